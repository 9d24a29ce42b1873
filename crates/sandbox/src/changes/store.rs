//! Taking what a run left into `changes/RUN`, within bounds.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::{Errno, Result as KernelResult};
use sha2::{Digest as _, Sha256};

use super::ChangesError;
use super::manifest::{BLOBS, Change, Entry, Fingerprint, Kind, Manifest, NotedHead, Refused};
use crate::fault::show_path;
use crate::protect;
use crate::state::{Cross, Dir, PathText, RunId, State, StateError, changes_of, errno_of};
use policy::json::hex;

/// How much is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of all contents together.
    pub bytes: u64,
    /// Paths.
    pub entries: usize,
    /// Bytes of the list of them: a name costs a run nearly nothing, and whoever reads the list memory and disk.
    pub list: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { bytes: 4 << 30, entries: 200_000, list: 128 << 20 }
    }
}

/// Deeper folders are not carried over: nothing on the host could use them.
pub const MAX_DEPTH: usize = 128;

/// Longer paths can be made step by step, and no system call takes them (PATH_MAX, with its end).
const MAX_PATH: usize = 4095;
/// Files up to this size, in bytes, are looked at before they are copied.
const SMALL: u64 = 64 << 10;
/// So many hard links are told one by one.
const MAX_PARTED: u64 = 8;
/// Of a file that changed, where the host has more of its names.
const KEPT: &str = "on the host it has another name (a hard link): one that changed in the same way, and is taken with it, stays a name \
                    of the same file, and any other keeps what it had";
const TOO_LONG: &str = "its path is longer than the kernel takes";

/// How long somebody may go on reading: the sandbox that waits meanwhile can be ended.
#[derive(Clone, Debug, Default)]
pub struct Until {
    /// Somebody ended it.
    pub ended: Arc<AtomicBool>,
    /// Its time is over then.
    pub at: Option<Instant>,
}

impl Until {
    /// Whether to give up.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.ended.load(Ordering::Relaxed) || self.at.is_some_and(|at| Instant::now() >= at)
    }

    /// # Errors
    /// ECANCELED if it is over.
    pub(crate) fn go_on(&self) -> KernelResult<()> {
        if self.is_over() { Err(Errno::CANCELED) } else { Ok(()) }
    }
}

/// What is known of a layer before it is read.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// What `apply` put on the host since the sandbox began: no change by somebody else.
    pub applied: BTreeMap<PathBuf, Fingerprint>,
    /// What indices of git's listed when the run began, where another file is there now.
    pub replaced: BTreeMap<PathBuf, String>,
    /// Where working trees of git were when the run began.
    pub heads: Vec<NotedHead>,
    /// Paths that are covered for the run: a mark of a removal there is ours, and no change of it.
    pub covered: BTreeSet<PathBuf>,
    /// When to give up.
    pub until: Until,
}

/// The changes of one run while they are being read.
#[derive(Debug)]
pub struct Store {
    dir: Dir,
    blobs: Dir,
    path: PathBuf,
    /// When the run began, on the clock of the file system: what changed on the host after it is a conflict.
    pub(super) started: (i64, u64),
    left: Bounds,
    /// Files with more names than one: their content is taken once. With the first of them.
    linked: BTreeMap<(u64, u64), Linked>,
    /// Folders of the host's that somebody put in their places since the run began: what lies there is older, and was not there.
    moved_in: BTreeSet<PathBuf>,
    /// Names that become files of their own.
    parted: u64,
    /// Paths for which there was no room.
    unlisted: u64,
    /// What belongs to somebody else is not taken.
    owner: Option<u32>,
    pub(super) known: Known,
    pub(super) manifest: Manifest,
}

/// Why what belongs to somebody else is not taken.
pub(crate) const FOREIGN: &str = "it belongs to another user than the run's";

impl Store {
    /// Begins; `workspace` is the host's folder without links, `started` the real time (s, ns) just before the run.
    ///
    /// # Errors
    /// [`ChangesError`] if the state folder cannot be written.
    pub fn begin(
        state: &State,
        run: &RunId,
        workspace: &Path,
        root: &Dir,
        started: (i64, u64),
        bounds: Bounds,
    ) -> Result<Self, ChangesError> {
        let dir = changes_of(state, run)?;
        let path = state.path().join("changes").join(run.as_str());
        let failed = |errno| ChangesError::Write { path: path.clone(), errno };
        dir.make(BLOBS, Mode::RWXU).map_err(failed)?;
        let blobs = dir.enter(BLOBS, Cross::No).map_err(failed)?;
        super::order::number(&state.changes()?, &dir).map_err(failed)?;
        let stat = rustix::fs::fstat(root).map_err(|errno| ChangesError::Read { path: workspace.into(), errno })?;
        let manifest = Manifest {
            schema: 1,
            run: run.to_string(),
            workspace: workspace.into(),
            root: (stat.st_dev, stat.st_ino),
            entries: Vec::new(),
            refused: Vec::new(),
            policies: Vec::new(),
            worktree: None,
            hidden: Vec::new(),
            heads: Vec::new(),
            moved: Vec::new(),
            listed: Vec::new(),
            untaken: Vec::new(),
        };
        Ok(Self {
            dir,
            blobs,
            path,
            started,
            left: bounds,
            linked: BTreeMap::new(),
            moved_in: BTreeSet::new(),
            parted: 0,
            unlisted: 0,
            owner: None,
            known: Known::default(),
            manifest,
        })
    }

    /// What no change may take the place of unasked: where the documents of the policy lie in the workspace, and what it hides.
    #[must_use]
    pub fn holding(mut self, policies: BTreeSet<PathBuf>, hidden: BTreeSet<PathBuf>) -> Self {
        self.manifest.policies = policies.into_iter().map(PathText).collect();
        self.manifest.hidden = hidden.into_iter().map(PathText).collect();
        self
    }

    /// Of a linked worktree: its own part of git's folder.
    #[must_use]
    pub fn in_worktree(mut self, own: Option<PathBuf>) -> Self {
        self.manifest.worktree = own.map(PathText);
        self
    }

    /// Before anything is read.
    #[must_use]
    pub fn knowing(mut self, mut known: Known) -> Self {
        self.manifest.heads = std::mem::take(&mut known.heads);
        self.known = known;
        self
    }

    /// Gives up: what was kept before is as it was, and if there was nothing, nothing is left.
    ///
    /// # Errors
    /// [`ChangesError`]; `gc` takes what is left then.
    pub fn abandon(self, state: &State) -> Result<(), ChangesError> {
        let run: RunId = self.manifest.run.parse()?;
        let failed = |errno| ChangesError::Write { path: self.path.clone(), errno };
        match super::load(state, &run) {
            Ok((manifest, dir)) => drop_blobs(&dir, &manifest).map_err(failed),
            Err(_none) => state.changes()?.remove_tree(run.as_str()).map_err(failed),
        }
    }

    /// Ends: the list is written, and the folder removed again if nothing changed.
    ///
    /// # Errors
    /// [`ChangesError::Write`].
    pub fn finish(mut self, state: &State) -> Result<Manifest, ChangesError> {
        if self.unlisted > 0 {
            let why = format!("{} paths of the run have no room in the list of its changes", self.unlisted);
            self.manifest.refused.push(Refused::new(".", why));
        }
        if let Some(more) = self.parted.checked_sub(MAX_PARTED).filter(|more| *more > 0) {
            self.note(Path::new("."), format!("{more} more hard links, each of which becomes a file of its own"));
        }
        self.manifest.entries.sort_by(|a, b| (&a.path, a.change).cmp(&(&b.path, b.change)));
        let failed = |errno| ChangesError::Write { path: self.path.clone(), errno };
        if self.manifest.entries.is_empty() && self.manifest.refused.is_empty() {
            state.changes()?.remove_tree(OsStr::new(&self.manifest.run)).map_err(failed)?;
        } else {
            // In this order: what an older list names is there until the new one is.
            self.manifest.save(&self.dir).map_err(failed)?;
            drop_blobs(&self.dir, &self.manifest).map_err(failed)?;
        }
        Ok(self.manifest)
    }

    /// Only what belongs to this user is taken from here on.
    pub(super) fn of_owner(&mut self, uid: u32) {
        self.owner = Some(uid);
    }

    pub(super) fn is_foreign(&self, uid: u32) -> bool {
        self.owner.is_some_and(|owner| owner != uid)
    }

    /// Why a step of the walk failed at `at`: nothing that is only read answers that there is no room.
    pub(super) fn failed(&self, at: PathBuf, errno: Errno) -> ChangesError {
        match errno {
            Errno::NOSPC | Errno::DQUOT | Errno::ROFS => {
                StateError::NotWritable { path: self.path.clone(), variable: "FUMEHOOD_STATE", errno }.into()
            }
            Errno::CANCELED => ChangesError::Ended { run: self.manifest.run.clone() },
            errno => ChangesError::Read { path: at, errno },
        }
    }

    pub(super) fn refuse(&mut self, path: &Path, why: impl Into<String>) {
        self.tell(Refused::new(path, why));
    }

    /// Tells what is otherwise of something that is carried over.
    fn note(&mut self, path: &Path, why: impl Into<String>) {
        self.tell(Refused { taken: true, ..Refused::new(path, why) });
    }

    fn tell(&mut self, refused: Refused) {
        if self.manifest.refused.len() < self.left.entries.max(1000) && self.has_room(&refused) {
            self.manifest.refused.push(refused);
        }
    }

    /// Takes the room of one line of the list; once there is none for a line, there is none for those after it.
    fn has_room(&mut self, line: &impl serde::Serialize) -> bool {
        let mut length = Length(1);
        let written = serde_json::to_writer(&mut length, line).is_ok();
        let rest = self.left.list.checked_sub(length.0).filter(|_| written && self.unlisted == 0);
        self.left.list = rest.unwrap_or(self.left.list);
        self.unlisted += u64::from(rest.is_none());
        rest.is_some()
    }

    /// [`Store::refuse`] as the end of a step: what is refused does not stop the rest.
    #[expect(clippy::unnecessary_wraps, reason = "it stands where a step ends")]
    pub(super) fn leave(&mut self, path: &Path, why: impl Into<String>) -> KernelResult<()> {
        self.refuse(path, why);
        Ok(())
    }

    /// Adds an entry; `touched` is found out here.
    pub(super) fn add(&mut self, mut entry: Entry) {
        if entry.path.as_os_str().len() > MAX_PATH {
            return self.refuse(&entry.path, TOO_LONG);
        }
        if self.left.entries == 0 {
            return self.refuse(&entry.path, "there are more changed paths than are kept");
        }
        if !self.has_room(&entry) {
            return;
        }
        self.left.entries -= 1;
        // A folder changes whenever something in it does: that alone is no conflict.
        let ours = |base: &Fingerprint| self.known.applied.get(&entry.path).is_some_and(|then| then.is_same(base));
        // git writes anew what it remembers of files; what an index lists is what it says.
        let listed = self.known.replaced.get(&entry.path);
        let refreshed = |base: &Fingerprint| listed.is_some() && listed == base.listed.as_ref();
        let touched =
            |base: &Fingerprint| base.kind != Kind::Dir && base.ctime > self.started && !ours(base) && !refreshed(base);
        let is_moved_in = || entry.path.ancestors().skip(1).any(|above| self.moved_in.contains(above));
        entry.touched =
            entry.base.as_ref().is_some_and(|base| touched(base) || base.kind != Kind::Dir && is_moved_in());
        self.manifest.entries.push(entry);
    }

    /// Looks at a folder of the host's before what is in it: one that was renamed since the run began has another time of its change than
    /// of its contents (as after chmod), until something is made or removed in it.
    pub(super) fn passes(&mut self, path: &Path, base: &Fingerprint) {
        let is_ours = self.known.applied.get(path).is_some_and(|then| then.inode == base.inode);
        if base.kind == Kind::Dir && base.ctime > self.started && base.ctime != base.mtime && !is_ours {
            self.moved_in.insert(path.to_owned());
        }
    }

    /// Everything at this path of the host is gone: one entry for each file and folder.
    pub(super) fn removed(&mut self, parent: &Dir, name: &OsStr, path: &Path, depth: usize) -> KernelResult<()> {
        let Some(base) = Fingerprint::of(parent, name)? else { return Ok(()) };
        if base.kind == Kind::Special {
            self.refuse(path, "a pipe, socket or device of the host was removed: remove it yourself");
            return Ok(());
        }
        if base.kind == Kind::Dir {
            if let Some(why) = too_deep(path, depth) {
                return self.leave(path, why);
            }
            let dir = match parent.enter(name, Cross::No) {
                Ok(dir) => dir,
                Err(errno) => return self.leave(path, format!("what it held cannot be told: {errno}")),
            };
            self.passes(path, &base);
            for child in dir.names()? {
                self.removed(&dir, &child, &path.join(&child), depth + 1)?;
            }
        }
        self.add(Entry {
            path: path.into(),
            change: Change::Removed,
            kind: base.kind,
            mode: base.mode & 0o777,
            size: base.size,
            sha256: None,
            target: None,
            stripped: false,
            base: Some(base),
            touched: false,
        });
        Ok(())
    }

    /// Takes the content of a file; `None` if it is beyond the bounds.
    pub(super) fn blob(&mut self, file: &File, size: u64) -> KernelResult<Option<(String, u64)>> {
        if size > self.left.bytes {
            return Ok(None);
        }
        if size <= SMALL
            && let Some(known) = self.known_blob(file)?
        {
            self.left.bytes = self.left.bytes.saturating_sub(known.1);
            return Ok(Some(known));
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
        let mut to = self.blobs.open_file("incoming", flags, Mode::RUSR | Mode::WUSR)?;
        let streamed = stream(file, &mut Timed { to: &mut to, until: &self.known.until }, self.left.bytes);
        if !matches!(streamed, Ok(Some(_))) {
            // Half a content serves nobody, least of all where the disk is full.
            rustix::fs::unlinkat(&self.blobs, "incoming", AtFlags::empty())?;
        }
        let Some((sum, length)) = streamed? else { return Ok(None) };
        self.left.bytes -= length;
        rustix::fs::renameat(&self.blobs, "incoming", &self.blobs, sum.as_str())?;
        Ok(Some((sum, length)))
    }

    /// The content of a small file, if it is there already: most of what is read again is as it was, and a sandbox waits.
    fn known_blob(&self, file: &File) -> KernelResult<Option<(String, u64)>> {
        let mut content = Vec::with_capacity(usize::try_from(SMALL).unwrap_or(0));
        (&mut &*file).take(SMALL).read_to_end(&mut content).map_err(|error| errno_of(&error))?;
        let length = u64::try_from(content.len()).unwrap_or(u64::MAX);
        let sum = hex(&Sha256::digest(&content));
        let there = self.blobs.stat(&sum)?.is_some_and(|stat| u64::try_from(stat.st_size) == Ok(length));
        // One that grew meanwhile is longer than what was looked at.
        let whole = (&mut &*file).read(&mut [0]).map_err(|error| errno_of(&error))? == 0;
        if there && whole {
            return Ok(Some((sum, length)));
        }
        rustix::fs::seek(file, rustix::fs::SeekFrom::Start(0))?;
        Ok(None)
    }

    /// A file, link or folder as it is now.
    pub(super) fn took(&mut self, path: &Path, now: &Fingerprint, sha256: Option<String>, base: Option<Fingerprint>) {
        let change = if base.is_some() { Change::Modified } else { Change::Added };
        self.add(Entry {
            path: path.into(),
            change,
            kind: now.kind,
            mode: now.mode & 0o777,
            size: if now.kind == Kind::File { now.size } else { 0 },
            sha256,
            target: now.target.clone(),
            stripped: now.kind == Kind::File && now.mode & 0o6000 != 0,
            base,
            touched: false,
        });
    }

    /// A regular file of the run against what the host has there.
    pub(super) fn file(
        &mut self,
        dir: &Dir,
        name: &OsStr,
        path: &Path,
        now: &Fingerprint,
        base: Option<Fingerprint>,
    ) -> KernelResult<()> {
        self.known.until.go_on()?;
        let file = match dir.open_file(name, OFlags::RDONLY, Mode::empty()) {
            Ok(file) => file,
            Err(errno) => return self.leave(path, format!("it cannot be read: {errno}")),
        };
        // What was looked at by name and what was opened must be one.
        let opened = rustix::fs::fstat(&file)?;
        if opened.st_ino != now.inode || Fingerprint::from_stat(&opened).kind != Kind::File {
            return self.leave(path, "it was replaced while it was read");
        }
        if self.is_foreign(opened.st_uid) {
            return self.leave(path, FOREIGN);
        }
        let known = self.linked.get(&(opened.st_dev, opened.st_ino)).cloned();
        let taken = match known {
            Some(Linked { sha256, size, first, of }) => {
                // Two names of one file of the host's stay that.
                if of.is_none() || of != of_several(base.as_ref()) {
                    self.part(path, || format!("a hard link to {}: it becomes a file of its own", show_path(&first)));
                }
                Some((sha256, size))
            }
            None => self.blob(&file, now.size)?,
        };
        let Some((sha256, size)) = taken else {
            return self.leave(path, "it is larger than what is left of the bytes that are kept");
        };
        if opened.st_nlink > 1 {
            let of = of_several(base.as_ref());
            let first = || Linked { sha256: sha256.clone(), size, first: path.to_owned(), of };
            self.linked.entry((opened.st_dev, opened.st_ino)).or_insert_with(first);
        }
        let same = |b: &Fingerprint| {
            b.kind == Kind::File && b.mode & 0o777 == now.mode & 0o777 && b.sha256.as_ref() == Some(&sha256)
        };
        // The run wrote an object that was there: git gives it a new time alone. It is of what the run made, for the host's git may
        // remove it meanwhile, as one of the old that nothing names.
        let base = base.filter(|base| !(same(base) && protect::is_loose_name(path)));
        if base.as_ref().is_some_and(same) {
            if opened.st_nlink == 1 {
                self.left.bytes += size;
            }
            return Ok(());
        }
        if base.as_ref().is_some_and(|base| base.has_other_names) {
            self.note(path, KEPT);
        }
        let mut now = now.clone();
        now.size = size;
        self.took(path, &now, Some(sha256), base);
        Ok(())
    }

    /// Tells that a name is of a file that has others: of builds and package managers there are thousands.
    fn part(&mut self, path: &Path, why: impl FnOnce() -> String) {
        self.parted = self.parted.saturating_add(1);
        if self.parted <= MAX_PARTED {
            self.note(path, why());
        }
    }
}

/// A file of the run's that has several names.
#[derive(Clone, Debug)]
struct Linked {
    sha256: String,
    size: u64,
    /// The name by which it was found first.
    first: PathBuf,
    /// The file of the host's that stood there, if it has several names too.
    of: Option<u64>,
}

/// The host's file, if it has several names.
fn of_several(base: Option<&Fingerprint>) -> Option<u64> {
    base.filter(|base| base.kind == Kind::File && base.has_other_names).map(|base| base.inode)
}

/// Why nobody looks into a folder: what it holds could not be used on the host, and its names alone would be long.
pub(super) fn too_deep(path: &Path, depth: usize) -> Option<&'static str> {
    let long = (path.as_os_str().len() > MAX_PATH).then_some(TOO_LONG);
    long.or_else(|| (depth >= MAX_DEPTH).then_some("too deep"))
}

/// Writes as long as there is time.
pub(crate) struct Timed<'a, W> {
    pub(crate) to: W,
    pub(crate) until: &'a Until,
}

impl<W: std::io::Write> std::io::Write for Timed<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.until.go_on()?;
        self.to.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.to.flush()
    }
}

/// Counts what is written to it.
struct Length(u64);

impl std::io::Write for Length {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 = self.0.saturating_add(bytes.len() as u64);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Copies a file and hashes it on the way; `None` if it has more than `most` bytes.
pub(crate) fn stream(from: &File, to: &mut impl std::io::Write, most: u64) -> KernelResult<Option<(String, u64)>> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 17];
    let mut length: u64 = 0;
    let mut from = from;
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => return Ok(Some((hex(&hash.finalize()), length))),
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(errno_of(&error)),
        };
        length = length.saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
        if length > most {
            return Ok(None);
        }
        let part = buffer.get(..read).ok_or(Errno::IO)?;
        hash.update(part);
        to.write_all(part).map_err(|e| errno_of(&e))?;
    }
}

/// Writes down what is left of a run's changes, and removes the content of what is not.
pub(super) fn keep(state: &State, run: &RunId, manifest: &Manifest, store: &Dir) -> Result<(), ChangesError> {
    let failed = |errno| ChangesError::Write { path: state.path().join("changes").join(run.as_str()), errno };
    manifest.save(store).map_err(failed)?;
    drop_blobs(store, manifest).map_err(failed)
}

/// Removes blobs that no entry names any more.
fn drop_blobs(dir: &Dir, manifest: &Manifest) -> KernelResult<()> {
    let blobs = dir.enter(BLOBS, Cross::No)?;
    let named: std::collections::BTreeSet<&str> = manifest.entries.iter().filter_map(|e| e.sha256.as_deref()).collect();
    for name in blobs.names()? {
        if !name.to_str().is_some_and(|name| named.contains(name)) {
            rustix::fs::unlinkat(&blobs, Path::new(&name), AtFlags::empty())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Places;

    #[test]
    fn the_list_has_an_end_and_says_what_it_lacks() {
        let folder = tempfile::tempdir().unwrap();
        let euid = rustix::process::geteuid().as_raw();
        let places = Places { fumehood_state: Some(folder.path().join("state")), euid, ..Places::default() };
        std::fs::create_dir(folder.path().join("work")).unwrap();
        for i in 0..20 {
            std::fs::write(folder.path().join(format!("work/{i}")), "x").unwrap();
        }
        let (state, work) = (State::open(&places).unwrap(), folder.path().join("work"));
        let (run, root) = (RunId::new(jiff::Timestamp::now()).unwrap(), Dir::open(&work).unwrap());
        let bounds = Bounds { list: 2000, ..Bounds::default() };
        let mut store = Store::begin(&state, &run, &work, &root, (0, 0), bounds).unwrap();
        for name in root.names().unwrap() {
            store.removed(&root, &name, Path::new(&name), 0).unwrap();
        }
        let manifest = store.finish(&state).unwrap();
        let listed = manifest.entries.len();
        assert!((2..10).contains(&listed), "{listed}");
        let why = format!("{} paths of the run have no room in the list of its changes", 20 - listed);
        assert_eq!(manifest.refused, [Refused::new(".", why)]);
    }
}
