//! The layer of a workspace: filled before the run when it is a copy, read back after it and, of a live sandbox, meanwhile; and the folder in which the
//! process tier writes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use backends::Capabilities;
use policy::Plan;
use policy::report::{Limit, WorkspaceChange, WorkspaceReport};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::earlier::Earlier;
use super::laying::{LayError, Laying, cover};
use super::moment::Moment;
use super::record::Recorded;
use super::trees::{Trees, bounds, copied};
use super::watches::Watches;
use crate::changes::{
    Applied, Baseline, Change, Fingerprint, Indices, Kind, Known, MAX_DEPTH, Manifest, Request, Store, Until,
    apply_own, copy_in, read_copy, read_upper,
};
use crate::error::Error;
use crate::fault::{Fault, show_bytes, show_path, show_text};
use crate::protect::list;
use crate::quantity::bytes;
use crate::state::{Cross, Dir};

/// What is needed to read a layer back.
#[derive(Debug)]
pub(super) struct Layer {
    /// Root of the overlay's upper or of the copy; it outlives the mount namespace.
    place: Dir,
    /// The workspace on the host, canonical.
    root: PathBuf,
    /// The folder of a copy that shares its file system with others.
    folder: Option<PathBuf>,
    /// Whom what is made in that folder belongs to, where that is not us.
    owner: Option<(u32, u32)>,
    /// Of a copy: what was copied.
    baseline: Option<Baseline>,
    /// Paths that are hidden from the run: no changes of it.
    hidden: Vec<PathBuf>,
    /// An earlier run's changes are in it.
    goes_on: bool,
    /// What of an earlier run is not in it, in words.
    notes: Vec<String>,
    /// What no change of an earlier run may take the place of: documents of its policy, and what it hid.
    held_before: [BTreeSet<PathBuf>; 2],
    /// What was applied while the run went on, as the host has it since.
    applied: BTreeMap<PathBuf, Fingerprint>,
    /// Just before the run: what changes on the host afterwards is a conflict.
    began: Moment,
    /// The host's indices of git as they were then, of an overlay, and where its working trees were.
    indices: Indices,
}

impl Layer {
    /// The upper of an overlay, or the empty file system of a copy.
    pub(super) fn new(fd: OwnedFd, root: PathBuf) -> Self {
        let indices = Dir::open(&root).map(|top| Indices::of(&top, [Path::new(".git")])).unwrap_or_default();
        Self { indices, ..Self::of(Dir::from(fd), root) }
    }

    fn of(place: Dir, root: PathBuf) -> Self {
        Self {
            place,
            root,
            folder: None,
            owner: None,
            baseline: None,
            hidden: Vec::new(),
            goes_on: false,
            notes: Vec::new(),
            held_before: Default::default(),
            applied: BTreeMap::new(),
            began: Moment::now(),
            indices: Indices::default(),
        }
    }

    /// Hides what `fs.hide` names: taken out of a copy, covered in an overlay. Nothing of the payload runs yet, and
    /// nobody has looked at these names in the overlay, so what is put into its upper layer now is what it shows.
    pub(super) fn hide(
        &mut self,
        globs: &[String],
        plan: &Plan,
        owner: (u32, u32),
        host: &Capabilities,
    ) -> Result<(), Error> {
        self.hidden = super::covers::hidden(&self.root, &Trees::of(plan), globs)?;
        if self.hidden.is_empty() {
            return Ok(());
        }
        let root = self.source()?;
        let _rights = rights(self.read_with(&root), owner, host)?;
        let mut laying = Laying::new(&root, &self.place, self.baseline.is_some());
        for path in &self.hidden {
            // What was not copied (a folder that the run's user may not list) is not there.
            let copied = |baseline: &Baseline| {
                baseline.entries.range(path.clone()..).next().is_some_and(|(first, _)| first.starts_with(path))
            };
            if self.baseline.as_ref().is_some_and(|baseline| !copied(baseline)) {
                continue;
            }
            let told = |errno: Errno| failed(&format!("hiding {}", show_path(path)), &errno.to_string());
            let (parent, name) = laying.parent(path).map_err(|stop| unlaid(path, stop))?;
            match &mut self.baseline {
                Some(baseline) => {
                    parent.remove_tree(&name).map_err(told)?;
                    baseline.entries.retain(|copied, _| !copied.starts_with(path));
                }
                None => cover(&parent, Path::new(&name)).map_err(told)?,
            }
        }
        laying.end().map_err(|stop| unlaid(Path::new(""), stop))
    }

    /// Copies the workspace into the layer.
    pub(super) fn fill(&mut self, plan: &Plan, owner: (u32, u32), host: &Capabilities) -> Result<(), Error> {
        let from = self.source()?;
        let _rights = rights(Some(&from), owner, host)?;
        self.baseline = Some(copy_in(&from, &self.place, copied(plan))?);
        // What was copied says it.
        self.indices = Indices::of(&from, [Path::new(".git")]).but_files();
        Ok(())
    }

    /// Puts the changes of an earlier run into the layer, over what the host has now. What the host changes from here on is a
    /// conflict of this run.
    pub(super) fn go_on(&mut self, earlier: &Earlier, owner: (u32, u32), host: &Capabilities) -> Result<(), Error> {
        let root = self.source()?;
        earlier.lay(&root, &self.place, self.baseline.is_some(), &|| rights(self.read_with(&root), owner, host))?;
        for path in earlier.paths() {
            if let Some((_, copy)) = self.baseline.as_mut().and_then(|baseline| baseline.entries.get_mut(path)) {
                // It is looked into, whatever its times say.
                copy.inode = 0;
            }
        }
        self.goes_on = true;
        self.notes.extend(earlier.left_behind());
        self.held_before = earlier.held();
        Ok(())
    }

    /// Whether an earlier run's changes are in it.
    pub(super) const fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// What it lacks, in words.
    pub(super) fn notes(&self) -> Vec<String> {
        let refused = self.baseline.iter().flat_map(|baseline| &baseline.refused);
        let lacks = refused.map(|refused| crate::mounts::not_copied(&refused.path, &refused.why));
        lacks.chain(self.notes.iter().cloned()).collect()
    }

    /// A copy holds what its filling could read: closed folders too, where that was all. In an overlay nothing of the host is opened
    /// that the run's user may not open.
    fn read_with<'a>(&self, root: &'a Dir) -> Option<&'a Dir> {
        self.baseline.as_ref().map(|_| root)
    }

    fn source(&self) -> Result<Dir, Error> {
        Dir::open(&self.root).map_err(|e| failed("opening the workspace", &e.to_string()))
    }

    /// Bytes that the layer holds.
    pub(super) fn used(&self) -> u64 {
        if let Some(folder) = &self.folder {
            let mut count = Count::default();
            count.folder(folder);
            return count.bytes;
        }
        rustix::fs::fstatvfs(&self.place)
            .map_or(0, |fs| fs.f_blocks.saturating_sub(fs.f_bfree).saturating_mul(fs.f_frsize))
    }

    /// Takes what is in the layer into `changes/RUN`, in the place of what was taken before. Nothing may write meanwhile.
    pub(super) fn read(&self, recorded: &Recorded, plan: &Plan, until: &Until) -> Result<Manifest, Error> {
        let root = self.source()?;
        // The program may have closed the folder that it works in: that is no change of what lies in it. A sandbox that lives sees it
        // closed again.
        let place = self.place.look_into(".", Cross::Yes);
        let place = place.map_err(|errno| failed("looking into what the program left", &errno.to_string()))?;
        // A layer holds no more than its limit, but files with holes look larger than all of it: reading and keeping those
        // would cost the host what the limit is there to save.
        let bounds = bounds(plan);
        // In an overlay our mark is that of a removal. What the run put in its place stays, as a change of the run.
        let covered = if self.baseline.is_none() { self.hidden.iter().cloned().collect() } else { BTreeSet::new() };
        let replaced = self.indices.replaced(&root);
        let (applied, heads) = (self.applied.clone(), self.indices.heads());
        let known = Known { applied, replaced, heads, covered, until: until.clone() };
        let (state, run) = (&recorded.state, &recorded.id);
        let mut store = Store::begin(state, run, &self.root, &root, self.began.on_files(), bounds)?.knowing(known);
        let [mut policies, mut hidden] = self.held_before.clone();
        policies.extend(crate::protect::documents(&self.root, &plan.policy.documents.0));
        hidden.extend(self.hidden.iter().cloned());
        store = store.holding(policies, hidden);
        let read = match &self.baseline {
            Some(baseline) => read_copy(&mut store, &place, baseline),
            None => read_upper(&mut store, &place, &root, Path::new("")),
        };
        if let Err(error) = read {
            // The first failure is the one to tell.
            drop(store.abandon(state));
            return Err(error.into());
        }
        store.note_late(&root, &self.indices);
        Ok(store.finish(state)?)
    }

    /// What became of the copy elsewhere, and what that lacks, takes its place: `at` is where the program saw it.
    pub(super) fn brought(
        &mut self,
        (stream, lacks): (File, Vec<String>),
        at: &Path,
        plan: &Plan,
    ) -> Result<(), Error> {
        let told = |errno: Errno| failed("making room for what came back", &errno.to_string());
        let top = at.file_name().ok_or_else(|| told(Errno::INVAL))?;
        let (Some(above), Some(name)) =
            self.folder.as_deref().and_then(|folder| Some((folder.parent(), folder.file_name()?))).unzip()
        else {
            return Err(told(Errno::INVAL));
        };
        let above = Dir::open(above.unwrap_or(Path::new("/"))).map_err(told)?;
        above.remove_tree(name).map_err(told)?;
        let _rights =
            self.owner.map(|(uid, gid)| sys::fsids::FsIdsGuard::user(uid, gid)).transpose().map_err(told_as)?;
        above.make(name, Mode::RWXU).map_err(told)?;
        self.place = above.enter(name, Cross::No).map_err(told)?;
        let unpacked = super::brought::unpack(stream, top, &self.place, bounds(plan));
        unpacked.map_err(|why| failed("taking over what came back from the machine", &why))?;
        self.keep_what_is_lacking(!lacks.is_empty()).map_err(told)?;
        self.notes.extend(lacks.iter().map(|lack| format!("the machine did not hand over: {}", show_text(lack))));
        Ok(())
    }

    /// What was not handed over was not removed: where something is lacking nothing counts as removed. A machine's image has
    /// a `lost+found` of its own, so that nothing is known of another.
    fn keep_what_is_lacking(&mut self, lacks: bool) -> rustix::io::Result<()> {
        let Some(baseline) = &mut self.baseline else { return Ok(()) };
        let before = baseline.entries.len();
        let mut failed = None;
        baseline.entries.retain(|path, _| {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            let there = match rustix::fs::openat2(&self.place, path, flags, Mode::empty(), beneath) {
                Ok(_there) => true,
                // A folder of the way is a link now, or a file, or is closed.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => false,
                Err(errno) => {
                    failed = Some(errno);
                    false
                }
            };
            there || !(lacks || path.starts_with("lost+found"))
        });
        if let Some(errno) = failed {
            return Err(errno);
        }
        if baseline.entries.len() < before {
            self.notes.push("not all was handed over: nothing that is missing is told as removed".to_owned());
        }
        Ok(())
    }

    /// At the end, what a report says of it.
    pub(super) fn read_back(&self, recorded: &Recorded, plan: &Plan) -> Result<WorkspaceReport, Error> {
        self.read(recorded, plan, &Until::default()).map(|manifest| told(&manifest))
    }

    /// Takes changes to the host while the sandbox stands still. What it sees does not change by that: all that is taken lies
    /// in its layer, above what the host has there.
    pub(super) fn apply(
        &mut self,
        recorded: &Recorded,
        plan: &Plan,
        request: &Request,
        until: &Until,
    ) -> Result<Applied, Error> {
        let manifest = self.read(recorded, plan, until)?;
        let applied = apply_own(&recorded.state, &recorded.id, request, list(), jiff::Timestamp::now())?;
        if let Applied::Done { paths, .. } = &applied {
            let root = self.source()?;
            let sums =
                manifest.entries.iter().filter_map(|entry| Some((entry.path.as_path(), entry.sha256.as_deref()?)));
            let sums: BTreeMap<&Path, &str> = sums.collect();
            for path in paths {
                let known = self.took(&root, &path.0, sums.get(path.0.as_path()).copied());
                known.map_err(|errno| failed("looking at what was applied", &errno.to_string()))?;
            }
        }
        Ok(applied)
    }

    /// From here on what the host has at this path is no change by anybody, and the next changes are told against it.
    fn took(&mut self, root: &Dir, path: &Path, sum: Option<&str>) -> rustix::io::Result<()> {
        let (above, name) = (path.parent().unwrap_or(Path::new("")), path.file_name().unwrap_or_default());
        let there = |root: &Dir| match root.enter(above, Cross::No) {
            Ok(folder) => Fingerprint::of(&folder, name),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(errno),
        };
        self.indices.forget(root, path);
        let Some(mut host) = there(root)? else {
            self.applied.remove(path);
            self.baseline.iter_mut().for_each(|baseline| drop(baseline.entries.remove(path)));
            return Ok(());
        };
        if host.kind == Kind::File {
            // Of a large file nobody else knows the sum.
            host.sha256 = host.sha256.or_else(|| sum.map(str::to_owned));
        }
        if let Some(baseline) = &mut self.baseline
            && let Some(mut copy) = there(&self.place)?
        {
            if (copy.kind, &copy.sha256) != (host.kind, &host.sha256) {
                // Only a part of it was taken: it is looked into again.
                copy.inode = 0;
            }
            baseline.entries.insert(path.to_owned(), (host.clone(), copy));
        }
        self.applied.insert(path.to_owned(), host);
        Ok(())
    }
}

/// Why a path cannot be hidden.
fn unlaid(path: &Path, stop: LayError) -> Error {
    let what = format!("hiding {}", show_path(path));
    match stop {
        LayError::Conflict(_, why) => failed(&what, &why),
        LayError::Kernel(_, errno) => failed(&what, &errno.to_string()),
        LayError::Other(error) => error,
    }
}

/// What a report says of changes.
pub(super) fn told(manifest: &Manifest) -> WorkspaceReport {
    let mut report = WorkspaceReport::default();
    let mut tell = |path: &Path, change: &str| {
        *report.counts.entry(change.to_owned()).or_insert(0) += 1;
        if report.changes.len() < WorkspaceReport::MAX {
            let path = show_bytes(path.as_os_str().as_bytes());
            report.changes.push(WorkspaceChange { path, change: change.to_owned() });
        }
    };
    for entry in &manifest.entries {
        let change = match entry.change {
            Change::Added => "added",
            Change::Modified => "modified",
            Change::Removed => "removed",
        };
        tell(&entry.path, change);
    }
    for refused in &manifest.refused {
        tell(&refused.path, "refused");
    }
    report
}

/// As root the files of a layer are made as the run's user: its file system may know nobody else, and where it is shared
/// that user could put other things in the place of ours. What is copied is read with the same rights, so that what the
/// owner of a workspace may not read does not get into the copy either; of root's own workspace all is.
fn rights(
    from: Option<&Dir>,
    (uid, gid): (u32, u32),
    host: &Capabilities,
) -> Result<Option<sys::fsids::FsIdsGuard>, Error> {
    if !host.root() {
        return Ok(None);
    }
    let reads_all = match from {
        Some(from) => {
            let stat = rustix::fs::fstat(from).map_err(|e| failed("looking at the workspace", &e.to_string()))?;
            stat.st_uid == 0
        }
        None => false,
    };
    let become_user = if reads_all { sys::fsids::FsIdsGuard::user_who_reads_all } else { sys::fsids::FsIdsGuard::user };
    become_user(uid, gid).map(Some).map_err(told_as)
}

/// The copy of a workspace in the process tier: a folder of ours that belongs to the run's user.
pub(super) fn copy_to_folder(
    root: &Path,
    to: &Path,
    plan: &Plan,
    owner: (u32, u32),
    host: &Capabilities,
) -> Result<Layer, Error> {
    let made = |e: Errno| failed("making the copy of the workspace", &e.to_string());
    let (Some(folder), Some(name)) = (to.parent(), to.file_name()) else { return Err(made(Errno::INVAL)) };
    let from = Dir::open(root).map_err(|e| failed("opening the workspace", &e.to_string()))?;
    let folder = Dir::open(folder).map_err(made)?;
    // The folder is the run's user's already: all that is made in it is made as that user.
    let _rights = rights(Some(&from), owner, host)?;
    if !folder.make(name, Mode::RWXU).map_err(made)? {
        return Err(made(Errno::EXIST));
    }
    let mut layer = Layer::of(folder.enter(name, Cross::No).map_err(made)?, root.to_owned());
    layer.folder = Some(to.to_owned());
    layer.owner = host.root().then_some(owner);
    layer.baseline = Some(copy_in(&from, &layer.place, copied(plan))?);
    Ok(layer)
}

/// The limit that the folder of a run has passed, if any: bytes and inodes, counted by walking it.
pub(super) fn over_limit(tmp: &Path, unlinked: u64, watches: &Watches) -> Option<(Limit, String)> {
    let mut count = Count { bytes: unlinked, ..Count::default() };
    // The copy of a workspace lies in the same folder, and is no part of what `fs.tmp` bounds.
    let copy = watches.copied.then_some("workspace");
    count.below(Dir::open(tmp), 0, copy);
    if let Some(size) = watches.tmp
        && count.bytes > size.0
    {
        let words = format!("{} were written to TMPDIR, its size is {size}", bytes(count.bytes));
        return Some((Limit::Disk, words));
    }
    if let Some(copy) = copy {
        count.folder(&tmp.join(copy));
    }
    if let Some(why) = count.unseen {
        // To go on would be to hold a limit that nobody can see.
        let words = format!("what a folder in TMPDIR or the copy of the workspace holds cannot be counted: {why}");
        return Some((Limit::Disk, words));
    }
    if let Some(disk) = watches.disk
        && count.bytes > disk.0
    {
        return Some((Limit::Disk, format!("{} were written, the limit is {disk}", bytes(count.bytes))));
    }
    if let Some(files) = watches.files
        && count.files > files
    {
        return Some((Limit::Disk, format!("{} files were made, the limit is {files}", count.files)));
    }
    None
}

/// Bytes in the folder of a run.
pub(super) fn written(folder: &Path) -> u64 {
    let mut count = Count::default();
    count.folder(folder);
    count.bytes
}

/// What lies in a folder of the run: walked by descriptors, since a path may be longer than the kernel takes.
#[derive(Default)]
struct Count {
    bytes: u64,
    files: u64,
    /// Why the rest could not be looked at.
    unseen: Option<String>,
}

impl Count {
    fn folder(&mut self, folder: &Path) {
        self.below(Dir::open(folder), 0, None);
    }

    fn below(&mut self, folder: rustix::io::Result<Dir>, depth: usize, but: Option<&str>) {
        // Whoever knew where the walk is could move a folder out of its way.
        let names = folder.and_then(|dir| dir.names_unforeseen().map(|names| (dir, names)));
        let Some((dir, names)) = self.seen(names) else { return };
        for name in names.iter().filter(|name| but.is_none_or(|but| *name != but)) {
            let Some(Some(stat)) = self.seen(dir.stat(name)) else { continue };
            self.files = self.files.saturating_add(1);
            let blocks = u64::try_from(stat.st_blocks).unwrap_or(0);
            self.bytes = self.bytes.saturating_add(blocks.saturating_mul(512));
            if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
                continue;
            }
            if depth < MAX_DEPTH {
                self.below(dir.enter(name, Cross::No), depth + 1, None);
            } else {
                self.unseen.get_or_insert_with(|| format!("folders are more than {MAX_DEPTH} deep"));
            }
        }
    }

    /// What was found; nothing if it went away meanwhile, or is another thing now.
    fn seen<T>(&mut self, found: rustix::io::Result<T>) -> Option<T> {
        match found {
            Ok(found) => Some(found),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => None,
            Err(errno) => {
                self.unseen.get_or_insert_with(|| errno.to_string().to_lowercase());
                None
            }
        }
    }
}

/// Removes a folder of ours and all below it, whatever modes the run left.
pub(super) fn remove_tree(path: &Path) -> Result<(), Error> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    // Most runs leave it empty.
    if rustix::fs::rmdir(path).is_ok() {
        return Ok(());
    }
    Dir::open(parent)
        .and_then(|dir| dir.remove_tree(name))
        .map_err(|e| failed("removing the folder of the run", &e.to_string()))
}

/// What a program wrote in a machine did not come back.
pub(super) fn lost(why: &str) -> Error {
    Error::failed(Fault {
        id: "run/changes-lost",
        what: "what the program changed in the workspace was lost".to_owned(),
        place: "the workspace in the machine".to_owned(),
        why: why.to_owned(),
        fix: "give it more time (`limits.wall`), or use `--tier container`, where changes outlive every end".to_owned(),
    })
}

fn told_as(error: impl std::fmt::Display) -> Error {
    failed("becoming the run's user for its files", &error.to_string())
}

fn failed(what: &str, why: &str) -> Error {
    Error::failed(Fault {
        id: "run/workspace",
        what: format!("{what} failed"),
        place: "the workspace".to_owned(),
        why: why.to_lowercase(),
        fix: "check owner, mode and free space; or use another workspace mode".to_owned(),
    })
}
