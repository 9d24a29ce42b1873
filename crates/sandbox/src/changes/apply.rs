//! Taking changes over into the workspace: all or nothing, never through a link, never over somebody else's work.
//!
//! How: everything is first staged in a folder of ours in the workspace (so that renames stay on one disk), content
//! checked against its hash. Then each path is exchanged with what is there by one `renameat2`, and what came out is
//! compared with what was there when the run began: if it is not that, the exchange is taken back, and so is all before it.
//! So even a change in the last microsecond is seen. What came out is removed when all went in.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, RenameFlags, Uid};
use rustix::io::{Errno, Result as KernelResult};
use serde::Serialize;

use super::ChangesError;
use super::guarded::Guarding;
use super::manifest::{BLOBS, Change, Entry, Fingerprint, Kind, Manifest, Refused, load, target_bytes};
use super::marks::leaves;
use super::parts;
use super::store::{keep, stream};
use crate::protect::List;
use crate::state::{Cross, Dir, Journal, PathText, Resource, RunId, State, path_text, rights_of};

/// What to do with protected paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guarded {
    /// Nothing is applied while one is chosen.
    Refuse,
    /// They are left out and stay with the run.
    Leave,
    /// These (and what lies in them) are taken; others refuse.
    Take(Vec<PathBuf>),
}

/// What to apply.
#[derive(Clone, Debug)]
pub struct Request {
    /// These paths and what lies in them; `None` = all.
    pub paths: Option<Vec<PathBuf>>,
    /// What was shown.
    pub digest: Option<String>,
    /// Protected paths.
    pub guarded: Guarded,
    /// Take links that lead out of the workspace.
    pub leaving_links: bool,
}

/// Why nothing was applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Conflict {
    /// Relative to the workspace.
    #[serde(with = "path_text")]
    pub path: PathBuf,
    /// `changed`, `exists`, `missing`, `touched`, `protected`, `link-leaves`, `not-empty`, `folder`, `not-carried`.
    pub id: &'static str,
    /// Why.
    pub why: String,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Applied {
    /// All of these are in the workspace now.
    Done {
        /// Digest of what was taken.
        digest: String,
        /// Paths taken.
        paths: Vec<PathText>,
        /// Protected paths that were left.
        left: usize,
        /// Of git's configurations that were taken in part: the keys that were left.
        keys: Vec<KeysLeft>,
        /// What was asked for and is not carried over.
        refused: Vec<Refused>,
    },
    /// Nothing was applied.
    Conflicts(Vec<Conflict>),
}

/// Keys of a configuration that stay with the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeysLeft {
    /// The configuration, relative to the workspace.
    #[serde(with = "path_text")]
    pub path: PathBuf,
    /// Their names, for people.
    pub keys: String,
}

/// Applies changes of a run.
///
/// # Errors
/// [`ChangesError`]; nothing was applied then. A conflict is no error.
pub fn apply(
    state: &State,
    run: &RunId,
    request: &Request,
    list: &List,
    now: Timestamp,
) -> Result<Applied, ChangesError> {
    let (mut manifest, store) = load(state, run)?;
    let chosen = manifest.choose(request.paths.as_deref())?;
    let digest = manifest.digest(&chosen);
    if let Some(wanted) = request.digest.as_ref().filter(|wanted| **wanted != digest) {
        return Err(ChangesError::Digest { wanted: wanted.clone(), found: digest });
    }
    let root = open_root(&manifest)?;
    let refused = manifest.left_behind(request.paths.as_deref());
    let blobs = store.enter(BLOBS, Cross::No).ok();
    let parted = match &request.guarded {
        Guarded::Leave => parts::split(&mut manifest, request.paths.as_deref(), list, (&root, blobs.as_ref()))?,
        Guarded::Refuse | Guarded::Take(_) => Vec::new(),
    };
    let chosen = manifest.choose(request.paths.as_deref())?;
    let guarding = Guarding::of(list, &manifest, Some(&root), blobs.as_ref());
    let Judged { chosen, left, mut conflicts } = judge(chosen, request, &guarding);
    // What is named is taken, or nothing is.
    let named_alone = |path: &&PathBuf| !manifest.has(path);
    for named in request.paths.iter().flatten().filter(named_alone) {
        conflicts.extend(refused.iter().filter(|refused| refused.path.starts_with(named)).map(Conflict::not_carried));
    }
    if chosen.is_empty() && conflicts.is_empty() {
        return Ok(Applied::Conflicts(left.into_iter().chain(refused.iter().map(Conflict::not_carried)).collect()));
    }
    let mut todo = Vec::new();
    let removed: BTreeSet<&Path> =
        chosen.iter().filter(|e| e.change == Change::Removed).map(|e| e.path.as_path()).collect();
    for entry in &chosen {
        match standing(&root, entry, &removed) {
            Ok(Standing::Ready) => todo.push(*entry),
            Ok(Standing::Done) => {}
            Ok(Standing::Conflict(id, why)) => conflicts.push(Conflict { path: entry.path.clone(), id, why }),
            Err(errno) => return Err(ChangesError::Read { path: manifest.workspace.join(&entry.path), errno }),
        }
    }
    if !conflicts.is_empty() {
        return Ok(Applied::Conflicts(conflicts));
    }
    let mut work = Work::begin(state, &manifest, &root, &store, now)?;
    let result = work.stage(&todo).and_then(|()| work.commit(&todo));
    work.end(result.is_err())?;
    match result {
        Ok(()) => {}
        Err(Stop::Conflict(conflict)) => return Ok(Applied::Conflicts(vec![conflict])),
        Err(Stop::Failed(error)) => return Err(error),
    }
    let paths = chosen.iter().map(|e| PathText(e.path.clone())).collect();
    let taken: BTreeSet<(PathBuf, Change)> = chosen.iter().map(|e| (e.path.clone(), e.change)).collect();
    let left = left.len().saturating_add(parted.len());
    manifest.entries.retain(|e| !taken.contains(&(e.path.clone(), e.change)));
    let keys = parts::keep(&mut manifest, parted, &root);
    keep_rest(state, run, &manifest, &store)?;
    Ok(Applied::Done { digest, paths, left, keys, refused })
}

fn open_root(manifest: &Manifest) -> Result<Dir, ChangesError> {
    let path = &manifest.workspace;
    let failed = |errno| ChangesError::Read { path: path.clone(), errno };
    let root = Dir::open(path).map_err(failed)?;
    let stat = rustix::fs::fstat(&root).map_err(failed)?;
    if (stat.st_dev, stat.st_ino) == manifest.root { Ok(root) } else { Err(ChangesError::Moved { path: path.clone() }) }
}

impl Conflict {
    fn not_carried(refused: &Refused) -> Self {
        Self { path: refused.path.clone(), id: "not-carried", why: refused.why.clone() }
    }
}

/// What the list and the request say.
#[derive(Default)]
struct Judged<'a> {
    chosen: Vec<&'a Entry>,
    /// Protected, and left out as it was asked for.
    left: Vec<Conflict>,
    conflicts: Vec<Conflict>,
}

/// Before anybody looks at the host.
fn judge<'a>(entries: Vec<&'a Entry>, request: &Request, guarding: &Guarding<'_>) -> Judged<'a> {
    let mut judged = Judged::default();
    for entry in entries {
        let conflict = |id, why: String| Conflict { path: entry.path.clone(), id, why };
        if let Some(why) = guarding.why(entry) {
            match &request.guarded {
                Guarded::Leave => {
                    judged.left.push(conflict("protected", why));
                    continue;
                }
                Guarded::Take(paths) if paths.iter().any(|path| entry.path.starts_with(path)) => {}
                Guarded::Refuse | Guarded::Take(_) => {
                    judged.conflicts.push(conflict("protected", why));
                    continue;
                }
            }
        }
        if entry.kind == Kind::Symlink && entry.change != Change::Removed && !request.leaving_links && leaves(entry) {
            judged.conflicts.push(conflict("link-leaves", "the link leads out of the workspace, or could".into()));
        } else {
            judged.chosen.push(entry);
        }
    }
    judged
}

enum Standing {
    Ready,
    /// It is already so: an `apply` that was ended half-way.
    Done,
    Conflict(&'static str, String),
}

fn standing(root: &Dir, entry: &Entry, removed: &BTreeSet<&Path>) -> KernelResult<Standing> {
    let replaced = entry.base.is_none() && entry.path.ancestors().skip(1).any(|above| removed.contains(above));
    let found = match parent(root, &entry.path) {
        Ok((dir, name)) => Fingerprint::of(&dir, &name)?,
        Err(Errno::NOENT) => None,
        // What is in the way goes first.
        Err(Errno::LOOP | Errno::NOTDIR) if replaced => None,
        Err(Errno::LOOP | Errno::NOTDIR | Errno::XDEV) => {
            return Ok(Standing::Conflict("folder", "its folder is a link, a file or another disk now".into()));
        }
        Err(errno) => return Err(errno),
    };
    if is_done(entry, found.as_ref()) {
        return Ok(Standing::Done);
    }
    Ok(match (&entry.base, found) {
        _ if entry.touched => Standing::Conflict("touched", "somebody changed it while the run lasted".into()),
        (None, None) => Standing::Ready,
        // What replaces a removed path finds it there still.
        (None, Some(now)) if entry.change == Change::Added && (now.kind == Kind::Dir) != (entry.kind == Kind::Dir) => {
            Standing::Ready
        }
        (None, Some(_)) => Standing::Conflict("exists", "it was made on the host meanwhile".into()),
        (Some(_), None) => Standing::Conflict("missing", "it was removed on the host meanwhile".into()),
        (Some(base), Some(now)) if base.is_same(&now) => Standing::Ready,
        (Some(_), Some(_)) => Standing::Conflict("changed", "it was changed on the host meanwhile".into()),
    })
}

fn is_done(entry: &Entry, found: Option<&Fingerprint>) -> bool {
    match (entry.change, found) {
        (Change::Removed, None) => true,
        (Change::Removed, Some(_)) | (Change::Added | Change::Modified, None) => false,
        (Change::Added | Change::Modified, Some(now)) => {
            let same_mode = now.mode & 0o777 == entry.mode;
            now.kind == entry.kind
                && match entry.kind {
                    Kind::Dir => same_mode || entry.change == Change::Added,
                    Kind::Symlink => now.target == entry.target,
                    Kind::File => same_mode && now.sha256.is_some() && now.sha256 == entry.sha256,
                    Kind::Special => false,
                }
        }
    }
}

pub(super) fn parent(root: &Dir, path: &Path) -> KernelResult<(Dir, OsString)> {
    let name = path.file_name().ok_or(Errno::INVAL)?.to_owned();
    let above = path.parent().unwrap_or(Path::new(""));
    root.enter(above, Cross::No).map(|dir| (dir, name))
}

enum Stop {
    Conflict(Conflict),
    Failed(ChangesError),
}

/// How to take one step back.
enum Undo {
    /// What was exchanged is exchanged again.
    Exchange(PathBuf, String),
    /// What was put where nothing was goes back to the staging folder.
    TakeOut(PathBuf, String),
    /// What was taken out goes back.
    PutBack(PathBuf, String),
    /// A folder that was made.
    RemoveDir(PathBuf),
    /// A folder that was removed.
    MakeDir(PathBuf, u32),
    /// A folder's mode.
    Mode(PathBuf, u32),
}

struct Work<'a> {
    journal: Journal,
    workspace: &'a Path,
    root: &'a Dir,
    blobs: Dir,
    staging_name: String,
    staging: Dir,
    owner: (Uid, Gid),
    undo: Vec<Undo>,
    next: u64,
}

impl<'a> Work<'a> {
    fn begin(
        state: &State,
        manifest: &'a Manifest,
        root: &'a Dir,
        store: &Dir,
        now: Timestamp,
    ) -> Result<Self, ChangesError> {
        let workspace = manifest.workspace.as_path();
        let failed = |errno| ChangesError::Write { path: workspace.into(), errno };
        let id = RunId::new(now)?;
        let staging_name = format!(".fumehood-apply-{id}");
        let mut journal = Journal::begin(state, id, Some(workspace), now)?;
        journal.note(&Resource::Temp(workspace.join(&staging_name)))?;
        let stat = rustix::fs::fstat(root).map_err(failed)?;
        let owner = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
        let blobs = store.enter(BLOBS, Cross::No).map_err(failed)?;
        let staging = match staging_folder(root, &staging_name, owner) {
            Ok(staging) => staging,
            Err(errno) => {
                journal.end()?;
                return Err(match errno {
                    Errno::STALE => ChangesError::Replaced { path: workspace.join(&staging_name) },
                    errno => failed(errno),
                });
            }
        };
        Ok(Self { journal, workspace, root, blobs, staging_name, staging, owner, undo: Vec::new(), next: 0 })
    }

    /// Brings all contents to the disk of the workspace, under names `0`, `1`, ... in the order of `todo`.
    fn stage(&mut self, todo: &[&Entry]) -> Result<(), Stop> {
        for (at, entry) in todo.iter().enumerate() {
            let made = match (entry.change, entry.kind) {
                (Change::Removed, _) | (_, Kind::Dir | Kind::Special) => Ok(()),
                (Change::Added | Change::Modified, Kind::Symlink) => self.stage_link(entry, at),
                (Change::Added | Change::Modified, Kind::File) => self.stage_file(entry, at),
            };
            made.map_err(|errno| self.failed(&entry.path, errno))?;
        }
        Ok(())
    }

    fn stage_link(&self, entry: &Entry, at: usize) -> KernelResult<()> {
        let target = entry.target.as_deref().and_then(target_bytes).ok_or(Errno::INVAL)?;
        let name = at.to_string();
        let rights = rights_of(self.root)?;
        rustix::fs::symlinkat(Path::new(&target), &self.staging, name.as_str())?;
        if rights.is_some() {
            return Ok(());
        }
        // A link has no descriptor to change its owner on; here the staging folder is the caller's alone.
        let (uid, gid) = self.belonged(entry)?.unwrap_or(self.owner);
        may_keep(rustix::fs::chownat(&self.staging, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW))
    }

    fn stage_file(&self, entry: &Entry, at: usize) -> KernelResult<()> {
        let sum = entry.sha256.as_deref().ok_or(Errno::INVAL)?;
        let blob = self.blobs.open_file(sum, OFlags::RDONLY, Mode::empty())?;
        let rights = rights_of(self.root)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let mut file = self.staging.open_file(at.to_string(), flags, Mode::RUSR | Mode::WUSR)?;
        // EBADMSG: the content is not what the list says.
        match stream(&blob, &mut file, entry.size)? {
            Some((found, _)) if found == sum => {}
            Some(_) | None => return Err(Errno::BADMSG),
        }
        let belonged = self.belonged(entry)?;
        let theirs = rights.is_some();
        drop(rights);
        match belonged {
            // A file of the owner's keeps the group that the owner gave it, and nothing becomes somebody else's.
            Some((uid, gid)) if theirs && uid == self.owner.0 => rustix::fs::fchown(&file, None, Some(gid))?,
            Some(_) | None if theirs => {}
            other => {
                let (uid, gid) = other.unwrap_or(self.owner);
                may_keep(rustix::fs::fchown(&file, Some(uid), Some(gid)))?;
            }
        }
        rustix::fs::fchmod(&file, Mode::from_raw_mode(entry.mode & 0o777))?;
        rustix::fs::fsync(&file)
    }

    /// New files belong to the owner of the workspace, changed ones to whom they belonged.
    fn belonged(&self, entry: &Entry) -> KernelResult<Option<(Uid, Gid)>> {
        if entry.change == Change::Modified
            && let Ok((dir, base)) = parent(self.root, &entry.path)
            && let Some(stat) = dir.stat(&base)?
        {
            return Ok(Some((Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid))));
        }
        Ok(None)
    }

    fn commit(&mut self, todo: &[&Entry]) -> Result<(), Stop> {
        let _rights = rights_of(self.root).map_err(|errno| self.failed(Path::new(""), errno))?;
        // Deepest first, so that folders are empty when their turn comes.
        for entry in todo.iter().rev().filter(|e| e.change == Change::Removed) {
            self.remove(entry)?;
        }
        for (at, entry) in todo.iter().enumerate().filter(|(_, e)| e.change != Change::Removed) {
            match entry.kind {
                Kind::Dir => self.folder(entry)?,
                Kind::File | Kind::Symlink => self.put(entry, &at.to_string())?,
                Kind::Special => return Err(self.failed(&entry.path, Errno::INVAL)),
            }
        }
        self.sync(todo)
    }

    fn remove(&mut self, entry: &Entry) -> Result<(), Stop> {
        let (dir, name) = self.parent(entry)?;
        let path = Path::new(&name);
        if entry.kind == Kind::Dir {
            return match rustix::fs::unlinkat(&dir, path, AtFlags::REMOVEDIR) {
                Ok(()) => {
                    self.undo.push(Undo::MakeDir(entry.path.clone(), entry.mode));
                    Ok(())
                }
                Err(Errno::NOTEMPTY | Errno::EXIST) => {
                    Err(conflict(entry, "not-empty", "there are other things in it"))
                }
                Err(errno) => Err(self.failed(&entry.path, errno)),
            };
        }
        let out = self.fresh();
        rustix::fs::renameat_with(&dir, path, &self.staging, out.as_str(), RenameFlags::NOREPLACE)
            .map_err(|errno| self.failed(&entry.path, errno))?;
        self.undo.push(Undo::PutBack(entry.path.clone(), out.clone()));
        self.compare(entry, &out)
    }

    fn folder(&mut self, entry: &Entry) -> Result<(), Stop> {
        // The owner keeps the right to look into it, or the rest could not be put there.
        let mode = Mode::from_raw_mode(entry.mode & 0o777 | 0o700);
        if entry.change == Change::Added {
            // It is given away where nobody can put another in its place, and only then put there.
            let staged = self.fresh();
            self.fresh_folder(&staged, mode).map_err(|errno| self.failed(&entry.path, errno))?;
            self.place(entry, &staged, RenameFlags::NOREPLACE)?;
            self.undo.push(Undo::RemoveDir(entry.path.clone()));
            return Ok(());
        }
        let (dir, name) = self.parent(entry)?;
        let before = set_mode(&dir, &name, mode).map_err(|errno| self.failed(&entry.path, errno))?;
        self.undo.push(Undo::Mode(entry.path.clone(), before));
        Ok(())
    }

    /// A folder of the workspace's owner, in our own.
    fn fresh_folder(&self, name: &str, mode: Mode) -> KernelResult<()> {
        self.staging.make(name, Mode::RWXU)?;
        let made = self.staging.enter(name, Cross::No)?;
        // In a foreign workspace it was made with the owner's ids, and this changes nothing.
        may_keep(rustix::fs::fchown(&made, Some(self.owner.0), Some(self.owner.1)))?;
        rustix::fs::fchmod(&made, mode)
    }

    /// Puts what is staged where it belongs.
    fn place(&self, entry: &Entry, staged: &str, flags: RenameFlags) -> Result<(), Stop> {
        let (dir, name) = self.parent(entry)?;
        rustix::fs::renameat_with(&self.staging, staged, &dir, Path::new(&name), flags).map_err(|errno| match errno {
            Errno::EXIST => conflict(entry, "exists", "it was made on the host meanwhile"),
            Errno::NOENT if flags == RenameFlags::EXCHANGE => {
                conflict(entry, "missing", "it was removed on the host meanwhile")
            }
            errno => self.failed(&entry.path, errno),
        })
    }

    fn put(&mut self, entry: &Entry, staged: &str) -> Result<(), Stop> {
        let exchange = entry.change == Change::Modified;
        self.place(entry, staged, if exchange { RenameFlags::EXCHANGE } else { RenameFlags::NOREPLACE })?;
        if !exchange {
            self.undo.push(Undo::TakeOut(entry.path.clone(), staged.to_owned()));
            return Ok(());
        }
        self.undo.push(Undo::Exchange(entry.path.clone(), staged.to_owned()));
        self.compare(entry, staged)
    }

    /// What came out must be what was there when the run began. A rename sets the change time of the inode: leave that out.
    fn compare(&self, entry: &Entry, out: &str) -> Result<(), Stop> {
        let found = Fingerprint::of(&self.staging, out.as_ref()).map_err(|errno| self.failed(&entry.path, errno))?;
        let same = found.zip(entry.base.as_ref()).is_some_and(|(now, base)| {
            let now = Fingerprint { ctime: base.ctime, ..now };
            base.is_same(&now)
        });
        if same { Ok(()) } else { Err(conflict(entry, "changed", "it was changed on the host just now")) }
    }

    fn parent(&self, entry: &Entry) -> Result<(Dir, OsString), Stop> {
        parent(self.root, &entry.path).map_err(|errno| match errno {
            Errno::LOOP | Errno::NOTDIR | Errno::XDEV => {
                conflict(entry, "folder", "its folder is a link, a file or another disk now")
            }
            Errno::NOENT => conflict(entry, "folder", "its folder is not there; take it too"),
            errno => self.failed(&entry.path, errno),
        })
    }

    fn sync(&self, todo: &[&Entry]) -> Result<(), Stop> {
        let folders: BTreeSet<_> = todo.iter().filter_map(|e| e.path.parent()).collect();
        for folder in folders {
            match self.root.enter(folder, Cross::No).and_then(|dir| rustix::fs::fsync(&dir)) {
                // A folder that was itself removed, or is a file now.
                Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(errno) => return Err(self.failed(folder, errno)),
            }
        }
        Ok(())
    }

    /// Takes everything back if asked, and removes the staging folder.
    fn end(mut self, back: bool) -> Result<(), ChangesError> {
        let failed = |errno| ChangesError::Write { path: self.workspace.join(&self.staging_name), errno };
        let rights = rights_of(self.root).map_err(failed)?;
        if back {
            while let Some(step) = self.undo.pop() {
                if let Err(errno) = self.take_back(&step) {
                    // A file of the host is in the staging folder and cannot go back: nobody may sweep it away.
                    let error = ChangesError::Stuck { path: self.workspace.join(&self.staging_name), errno };
                    drop(rights);
                    self.journal.end()?;
                    return Err(error);
                }
            }
        }
        let failed = |errno| ChangesError::Write { path: self.workspace.join(&self.staging_name), errno };
        self.root.remove_tree(&self.staging_name).map_err(failed)?;
        drop(rights);
        self.journal.end().map_err(ChangesError::State)
    }

    fn take_back(&self, step: &Undo) -> KernelResult<()> {
        let rename = |from: &Dir, a: &Path, to: &Dir, b: &Path, flags| rustix::fs::renameat_with(from, a, to, b, flags);
        match step {
            Undo::Exchange(path, staged) => {
                let (dir, name) = parent(self.root, path)?;
                rename(&self.staging, Path::new(staged), &dir, Path::new(&name), RenameFlags::EXCHANGE)
            }
            Undo::TakeOut(path, staged) => {
                let (dir, name) = parent(self.root, path)?;
                rename(&dir, Path::new(&name), &self.staging, Path::new(staged), RenameFlags::NOREPLACE)
            }
            Undo::PutBack(path, out) => {
                let (dir, name) = parent(self.root, path)?;
                rename(&self.staging, Path::new(out), &dir, Path::new(&name), RenameFlags::NOREPLACE)
            }
            Undo::RemoveDir(path) => {
                let (dir, name) = parent(self.root, path)?;
                rustix::fs::unlinkat(&dir, Path::new(&name), AtFlags::REMOVEDIR)
            }
            Undo::MakeDir(path, mode) => {
                let (dir, name) = parent(self.root, path)?;
                rustix::fs::mkdirat(&dir, Path::new(&name), Mode::RWXU)?;
                rustix::fs::fchmod(dir.enter(&name, Cross::No)?, Mode::from_raw_mode(*mode))
            }
            Undo::Mode(path, mode) => {
                let (dir, name) = parent(self.root, path)?;
                rustix::fs::fchmod(dir.enter(&name, Cross::No)?, Mode::from_raw_mode(*mode))
            }
        }
    }

    fn fresh(&mut self) -> String {
        self.next += 1;
        format!("out-{}", self.next)
    }

    fn failed(&self, path: &Path, errno: Errno) -> Stop {
        Stop::Failed(ChangesError::Write { path: self.workspace.join(path), errno })
    }
}

/// A folder of ours in the workspace, then its owner's. Whoever owns the workspace can rename it away and put another in
/// its place: that it is new and ours is looked at on the descriptor by which it is used from here on. STALE: it is not.
fn staging_folder(root: &Dir, name: &str, (uid, gid): (Uid, Gid)) -> KernelResult<Dir> {
    if !root.make(name, Mode::RWXU)? {
        return Err(Errno::EXIST);
    }
    let staging = match root.enter(name, Cross::No) {
        Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => return Err(Errno::STALE),
        other => other?,
    };
    let stat = rustix::fs::fstat(&staging)?;
    let caller = rustix::process::geteuid();
    if stat.st_uid != caller.as_raw() || stat.st_mode & 0o077 != 0 || !staging.names()?.is_empty() {
        return Err(Errno::STALE);
    }
    if caller.is_root() && !uid.is_root() {
        rustix::fs::fchown(&staging, Some(uid), Some(gid))?;
    }
    Ok(staging)
}

/// Who is not root can give nothing away, and need not: it is the caller's already.
fn may_keep(given: KernelResult<()>) -> KernelResult<()> {
    if given == Err(Errno::PERM) && !rustix::process::geteuid().is_root() { Ok(()) } else { given }
}

/// The mode that a folder had before.
fn set_mode(dir: &Dir, name: &OsStr, mode: Mode) -> KernelResult<u32> {
    let folder = dir.enter(name, Cross::No)?;
    let before = rustix::fs::fstat(&folder)?.st_mode & 0o7777;
    rustix::fs::fchmod(&folder, mode)?;
    Ok(before)
}

fn conflict(entry: &Entry, id: &'static str, why: &str) -> Stop {
    Stop::Conflict(Conflict { path: entry.path.clone(), id, why: why.into() })
}

/// What was not taken stays with the run; if nothing did, the run's changes are gone.
fn keep_rest(state: &State, run: &RunId, manifest: &Manifest, store: &Dir) -> Result<(), ChangesError> {
    if manifest.entries.is_empty() { super::discard(state, run) } else { keep(state, run, manifest, store) }
}
