//! What `apply` does to the workspace once it may: each step can be taken back, until the last one is done.
//!
//! Everything is first staged in a folder of ours in the workspace (so that renames stay on one disk), content checked
//! against its hash. It stands in git's folder where there is one: a run that may write in the workspace at this very
//! moment has a layer of its own there, and could write what is staged elsewhere. Then each path, in its turn, is exchanged with what is
//! there by one `renameat2`, and what came out is compared with what was there when the run began: if it is not that, the
//! exchange is taken back, and so is all before it. So even a change in the last microsecond is seen. What came out is
//! removed when all went in.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, RenameFlags, Uid};
use rustix::io::{Errno, Result as KernelResult};

use super::ChangesError;
use super::access::{AccessList, Attributes, SET_GROUP, give, given_group};
use super::apply::Conflict;
use super::interrupted::UnderWay;
use super::judged::Judged;
use super::locks::{self, Held, Lock};
use super::manifest::{BLOBS, Change, Entry, Fingerprint, Kind, Manifest, target_bytes};
use super::reflog::Tips;
use super::store::stream;
use super::turns::{Turn, in_turn};
use crate::protect::{MAX_LIST, references_of, split};
use crate::state::{Cross, Dir, Journal, PathText, Resource, RunId, State, own_link, rights_of};

pub(super) fn parent(root: &Dir, path: &Path) -> KernelResult<(Dir, OsString)> {
    let name = path.file_name().ok_or(Errno::INVAL)?.to_owned();
    let above = path.parent().unwrap_or(Path::new(""));
    root.enter(above, Cross::No).map(|dir| (dir, name))
}

/// Why a change stopped half-way; everything before it is taken back.
pub(super) enum ExchangeError {
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
    /// A file's, by its inode.
    FileMode(PathBuf, u64, u32),
}

/// A file of the host's (device, inode), what it will hold, and its mode.
type OneFile<'e> = (u64, u64, Option<&'e str>, u32);

/// One `apply` under way.
pub(super) struct Work<'a> {
    journal: Journal,
    under_way: UnderWay<'a>,
    workspace: &'a Path,
    root: &'a Dir,
    blobs: Dir,
    /// The folder in which the staging folder stands, and the path of that.
    place: Dir,
    staging_path: PathBuf,
    staging: Dir,
    owner: (Uid, Gid),
    undo: Vec<Undo>,
    /// Locks of git's that we hold.
    held: Vec<Held>,
    next: u64,
}

/// What is exchanged.
pub(super) struct Plan<'p> {
    pub(super) todo: &'p [&'p Entry],
    /// Those of git's files with their locks.
    pub(super) locks: &'p [Lock],
    /// For whoever goes on if this one is ended.
    pub(super) judged: &'p Judged,
    pub(super) tips: &'p Tips,
}

/// After so many steps a test does something: it ends the `apply`, as SIGKILL does, or looks around.
#[cfg(test)]
type Step = (u32, fn());

#[cfg(test)]
thread_local! {
    pub(super) static STEPS: std::cell::Cell<Option<Step>> = const { std::cell::Cell::new(None) };
}

#[cfg(test)]
fn step() {
    match STEPS.take() {
        Some((0, then)) => then(),
        left => STEPS.set(left.map(|(left, then)| (left - 1, then))),
    }
}

impl<'a> Work<'a> {
    pub(super) fn begin(
        state: &State,
        manifest: &'a Manifest,
        root: &'a Dir,
        store: &'a Dir,
        (todo, now): (&[&Entry], Timestamp),
    ) -> Result<Self, ChangesError> {
        let workspace = manifest.workspace.as_path();
        let failed = |errno| ChangesError::Write { path: workspace.into(), errno };
        let id = RunId::new(now)?;
        let (name, above) = (format!(".fumehood-apply-{id}"), staged_in(root, todo));
        let (place, staging_path) = (root.enter(&above, Cross::No).map_err(failed)?, above.join(&name));
        let under_way = UnderWay::new((state, store), &manifest.run, &id);
        let mut journal = Journal::begin(state, id, Some(workspace), now)?;
        journal.note(&Resource::Temp(workspace.join(&staging_path)))?;
        let stat = rustix::fs::fstat(root).map_err(failed)?;
        let owner = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
        let blobs = store.enter(BLOBS, Cross::No).map_err(failed)?;
        let staging = match staging_folder(&place, &name, owner) {
            Ok(staging) => staging,
            Err(errno) => {
                journal.end()?;
                return Err(match errno {
                    Errno::STALE => ChangesError::Replaced { path: workspace.join(&staging_path) },
                    errno => failed(errno),
                });
            }
        };
        let (undo, held, next) = (Vec::new(), Vec::new(), 0);
        Ok(Self { journal, under_way, workspace, root, blobs, place, staging_path, staging, owner, undo, held, next })
    }

    /// Brings all contents to the disk of the workspace, under names `0`, `1`, ... in the order of `todo`.
    pub(super) fn stage(&mut self, todo: &[&Entry]) -> Result<(), ExchangeError> {
        let mut names = BTreeMap::new();
        for (at, entry) in todo.iter().enumerate() {
            let made = match (entry.change, entry.kind) {
                (Change::Removed, _) | (_, Kind::Dir | Kind::Special) => Ok(()),
                (Change::Modified, Kind::File) if is_of_mode_alone(entry) => Ok(()),
                (Change::Added | Change::Modified, Kind::Symlink) => self.stage_link(entry, at),
                (Change::Added | Change::Modified, Kind::File) => self.stage_name(&mut names, entry, at),
            };
            made.map_err(|errno| self.failed(&entry.path, errno))?;
        }
        Ok(())
    }

    /// A file, or one more name of a file that is staged already: where the host has one file by both names, and both became the
    /// same.
    fn stage_name<'e>(
        &self,
        names: &mut BTreeMap<OneFile<'e>, usize>,
        entry: &'e Entry,
        at: usize,
    ) -> KernelResult<()> {
        let Some(file) = self.one_file(entry)? else { return self.stage_file(entry, at) };
        if let Some(first) = names.get(&file) {
            let _rights = rights_of(self.root)?;
            let (first, name) = (first.to_string(), at.to_string());
            // Where no more names can be had it becomes a file of its own.
            if rustix::fs::linkat(&self.staging, first, &self.staging, name, AtFlags::empty()).is_ok() {
                return Ok(());
            }
        }
        names.entry(file).or_insert(at);
        self.stage_file(entry, at)
    }

    /// What the host has by several names, and what it becomes.
    fn one_file<'e>(&self, entry: &'e Entry) -> KernelResult<Option<OneFile<'e>>> {
        let had_others = entry.base.as_ref().is_some_and(|base| base.has_other_names && base.kind == Kind::File);
        if entry.change != Change::Modified || !had_others {
            return Ok(None);
        }
        let Ok((dir, name)) = parent(self.root, &entry.path) else { return Ok(None) };
        let stat = dir.stat(&name)?.filter(|stat| stat.st_nlink > 1);
        Ok(stat.map(|stat| (stat.st_dev, stat.st_ino, entry.sha256.as_deref(), entry.mode & 0o777)))
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
        let (uid, gid) = self.belongs(entry)?;
        let chown = |uid, gid| rustix::fs::chownat(&self.staging, name.as_str(), uid, gid, AtFlags::SYMLINK_NOFOLLOW);
        give((Some(uid), Some(gid)), chown)
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
        let (uid, gid) = self.belongs(entry)?;
        let theirs = rights.is_some();
        drop(rights);
        // In somebody's tree nothing becomes another's, and it has the group that its owner, or the folder, gave it.
        let keeps = !theirs || uid == self.owner.0;
        give(((!theirs).then_some(uid), keeps.then_some(gid)), |uid, gid| rustix::fs::fchown(&file, uid, gid))?;
        Attributes::of(self.root, entry)?.put(&file)?;
        rustix::fs::fchmod(&file, AccessList::of(self.root, entry)?.put(&file, entry.mode)?)?;
        rustix::fs::fsync(&file)
    }

    /// New files belong to the owner of the workspace, changed ones to whom they belonged.
    fn belongs(&self, entry: &Entry) -> KernelResult<(Uid, Gid)> {
        let (uid, gid) = self.owner;
        if entry.change == Change::Modified
            && let Ok((dir, base)) = parent(self.root, &entry.path)
            && let Some(stat) = dir.stat(&base)?
        {
            return Ok((Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid)));
        }
        Ok((uid, given_group(self.root, &entry.path)?.unwrap_or(gid)))
    }

    pub(super) fn commit(&mut self, plan: &Plan<'_>) -> Result<(), ExchangeError> {
        let Plan { todo, locks, judged, tips } = plan;
        let order = in_turn(todo, |list| self.is_shorter(list));
        // Of what is not to be half there for git: the index and all that says where branches are.
        let late = order.iter().filter(|(turn, _, _)| *turn >= Turn::Index);
        let late: BTreeSet<&Path> = late.map(|(_, _, entry)| entry.path.as_path()).collect();
        let late: Vec<&Lock> = locks.iter().filter(|(of, _)| late.contains(of.as_path())).collect();
        let noted = late.iter().map(|(_, lock)| PathText(lock.clone())).collect();
        self.under_way.begin(todo, (judged, tips), noted).map_err(ExchangeError::Failed)?;
        let _rights = rights_of(self.root).map_err(|errno| self.failed(Path::new(""), errno))?;
        let mut late = Some(late);
        for (turn, at, entry) in order {
            if let Some(locks) = late.take_if(|_| turn >= Turn::Index) {
                self.lock(&locks)?;
            }
            #[cfg(test)]
            step();
            match (entry.change, entry.kind) {
                (Change::Removed, _) => self.remove(entry)?,
                (_, Kind::Dir) => self.folder(entry)?,
                (_, Kind::File) if is_of_mode_alone(entry) => self.mode(entry)?,
                (_, Kind::File | Kind::Symlink) => self.put(entry, &at.to_string())?,
                (_, Kind::Special) => return Err(self.failed(&entry.path, Errno::INVAL)),
            }
        }
        self.sync(todo)
    }

    /// Whether a list of references lacks a name that the host's has.
    fn is_shorter(&self, list: &Entry) -> bool {
        let Some(now) = list.content(Some(&self.blobs)) else { return false };
        let before = self.root.read(&list.path, MAX_LIST).unwrap_or_default();
        let names: BTreeSet<&[u8]> = references_of(&now).map(|(name, _)| name).collect();
        references_of(&before).any(|(name, _)| !names.contains(name))
    }

    /// Makes locks of git's, and holds them to the end.
    fn lock(&mut self, locks: &[&Lock]) -> Result<(), ExchangeError> {
        for lock in locks {
            match Held::take(self.root, &self.staging, lock) {
                Ok(held) => self.held.extend(held),
                Err(Errno::EXIST) => return Err(ExchangeError::Conflict(locks::conflict(lock))),
                Err(errno) => return Err(self.failed(&lock.1, errno)),
            }
        }
        Ok(())
    }

    /// Gives locks back: of one file, or all. One that cannot be removed is told by whoever needs it.
    fn unlock(&mut self, of: Option<&Path>) {
        let root = self.root;
        for held in self.held.extract_if(.., |held| of.is_none_or(|of| held.of == of)) {
            held.release(root).unwrap_or_default();
        }
    }

    fn remove(&mut self, entry: &Entry) -> Result<(), ExchangeError> {
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
        // Its folder may go, too.
        self.unlock(Some(&entry.path));
        self.compare(entry, &out)
    }

    fn folder(&mut self, entry: &Entry) -> Result<(), ExchangeError> {
        // The owner keeps the right to look into it, or the rest could not be put there.
        let mode = entry.mode & 0o777 | 0o700;
        if entry.change == Change::Added {
            // It is given away where nobody can put another in its place, and only then put there.
            let staged = self.fresh();
            self.fresh_folder(&staged, mode, entry).map_err(|errno| self.failed(&entry.path, errno))?;
            self.place(entry, &staged, RenameFlags::NOREPLACE)?;
            self.undo.push(Undo::RemoveDir(entry.path.clone()));
            return Ok(());
        }
        let (dir, name) = self.parent(entry)?;
        let before =
            set_mode(&dir, &name, Mode::from_raw_mode(mode)).map_err(|errno| self.failed(&entry.path, errno))?;
        self.undo.push(Undo::Mode(entry.path.clone(), before));
        Ok(())
    }

    /// The file stays the one that it is, with all that is noted of it.
    fn mode(&mut self, entry: &Entry) -> Result<(), ExchangeError> {
        let (dir, name) = self.parent(entry)?;
        let failed = |errno| self.failed(&entry.path, errno);
        let file = dir.open_file(&name, OFlags::PATH, Mode::empty()).map_err(failed)?;
        let (stat, found) = (rustix::fs::fstat(&file).map_err(failed)?, Fingerprint::of(&dir, &name).map_err(failed)?);
        let is_it = |(now, base): (Fingerprint, &Fingerprint)| now.inode == stat.st_ino && base.is_same(&now);
        if !found.zip(entry.base.as_ref()).is_some_and(is_it) {
            return Err(conflict(entry, "changed", "it was changed on the host just now"));
        }
        rustix::fs::chmod(own_link(&file), Mode::from_raw_mode(entry.mode & 0o777)).map_err(failed)?;
        self.undo.push(Undo::FileMode(entry.path.clone(), stat.st_ino, stat.st_mode & 0o7777));
        Ok(())
    }

    /// A folder of the workspace's owner, in our own.
    fn fresh_folder(&self, name: &str, mode: u32, entry: &Entry) -> KernelResult<()> {
        let (list, given) = (AccessList::of(self.root, entry)?, given_group(self.root, &entry.path)?);
        self.staging.make(name, Mode::RWXU)?;
        let made = self.staging.enter(name, Cross::No)?;
        // In a foreign workspace it was made with the owner's ids, and this changes nothing.
        give((Some(self.owner.0), Some(self.owner.1)), |uid, gid| rustix::fs::fchown(&made, uid, gid))?;
        let mut mode = list.put_on_folder(&made, mode)?;
        if let Some(group) = given {
            // Whoever is not in the group can give nothing to it.
            let is_given = rustix::fs::fchown(&made, None, Some(group)).is_ok();
            mode |= Mode::from_raw_mode(if is_given { SET_GROUP } else { 0 });
        }
        rustix::fs::fchmod(&made, mode)
    }

    /// Puts what is staged where it belongs.
    fn place(&self, entry: &Entry, staged: &str, flags: RenameFlags) -> Result<(), ExchangeError> {
        let (dir, name) = self.parent(entry)?;
        rustix::fs::renameat_with(&self.staging, staged, &dir, Path::new(&name), flags).map_err(|errno| match errno {
            Errno::EXIST => conflict(entry, "exists", "it was made on the host meanwhile"),
            Errno::NOENT if flags == RenameFlags::EXCHANGE => {
                conflict(entry, "missing", "it was removed on the host meanwhile")
            }
            errno => self.failed(&entry.path, errno),
        })
    }

    fn put(&mut self, entry: &Entry, staged: &str) -> Result<(), ExchangeError> {
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
    fn compare(&self, entry: &Entry, out: &str) -> Result<(), ExchangeError> {
        let called = entry.path.file_name().unwrap_or_default();
        let found = Fingerprint::of_called(&self.staging, out.as_ref(), called);
        let found = found.map_err(|errno| self.failed(&entry.path, errno))?;
        let same = found.zip(entry.base.as_ref()).is_some_and(|(now, base)| {
            let now = Fingerprint { ctime: base.ctime, ..now };
            base.is_same(&now)
        });
        if same { Ok(()) } else { Err(conflict(entry, "changed", "it was changed on the host just now")) }
    }

    fn parent(&self, entry: &Entry) -> Result<(Dir, OsString), ExchangeError> {
        parent(self.root, &entry.path).map_err(|errno| match errno {
            Errno::LOOP | Errno::NOTDIR | Errno::XDEV => {
                conflict(entry, "folder", "its folder is a link, a file or another disk now")
            }
            Errno::NOENT => conflict(entry, "folder", "its folder is not there; take it too"),
            errno => self.failed(&entry.path, errno),
        })
    }

    fn sync(&self, todo: &[&Entry]) -> Result<(), ExchangeError> {
        let folders: BTreeSet<_> = todo.iter().filter_map(|e| e.path.parent()).collect();
        for folder in folders {
            match self.root.enter(folder, Cross::No).and_then(|dir| rustix::fs::fsync(&dir)) {
                // A folder that was itself removed, or is a file or a link now.
                Ok(()) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(errno) => return Err(self.failed(folder, errno)),
            }
        }
        Ok(())
    }

    /// Takes everything back if asked, and removes the staging folder.
    pub(super) fn end(mut self, back: bool) -> Result<(), ChangesError> {
        let failed = |errno| ChangesError::Write { path: self.workspace.join(&self.staging_path), errno };
        let rights = rights_of(self.root).map_err(failed)?;
        if back {
            while let Some(step) = self.undo.pop() {
                if let Err(errno) = self.take_back(&step) {
                    // A file of the host is in the staging folder and cannot go back: nobody may sweep it away.
                    let error = ChangesError::Stuck { path: self.workspace.join(&self.staging_path), errno };
                    self.unlock(None);
                    drop(rights);
                    self.journal.end()?;
                    return Err(error);
                }
            }
        }
        self.unlock(None);
        let failed = |errno| ChangesError::Write { path: self.workspace.join(&self.staging_path), errno };
        self.place.remove_tree(self.staging_path.file_name().unwrap_or_default()).map_err(failed)?;
        drop(rights);
        if back {
            self.under_way.taken_back()?;
        }
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
            Undo::FileMode(path, inode, mode) => {
                let (dir, name) = parent(self.root, path)?;
                let file = dir.open_file(&name, OFlags::PATH, Mode::empty())?;
                // Another one that somebody put there meanwhile is as they want it.
                if rustix::fs::fstat(&file)?.st_ino != *inode {
                    return Ok(());
                }
                rustix::fs::chmod(own_link(&file), Mode::from_raw_mode(*mode))
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

    fn failed(&self, path: &Path, errno: Errno) -> ExchangeError {
        ExchangeError::Failed(ChangesError::Write { path: self.workspace.join(path), errno })
    }
}

/// Whether nothing but the mode of a file is another. One with other names is taken apart from them, as ever.
fn is_of_mode_alone(entry: &Entry) -> bool {
    let same = |base: &Fingerprint| {
        base.kind == Kind::File && !base.has_other_names && base.sha256.is_some() && base.sha256 == entry.sha256
    };
    entry.change == Change::Modified && entry.kind == Kind::File && entry.base.as_ref().is_some_and(same)
}

/// Where the staging folder stands: in a folder of git's that stays, else at the top.
fn staged_in(root: &Dir, todo: &[&Entry]) -> PathBuf {
    let owner = |dir: &Dir| rustix::fs::fstat(dir).map(|stat| stat.st_uid);
    let stays =
        |path: &Path| !todo.iter().any(|entry| entry.change == Change::Removed && path.starts_with(&entry.path));
    let fits = |path: &PathBuf| {
        let theirs = root.enter(path, Cross::No).is_ok_and(|dir| owner(&dir) == owner(root));
        theirs && stays(path) && root.may_make_in(path) == Ok(true)
    };
    let of_git: BTreeSet<PathBuf> = todo.iter().filter_map(|entry| Some(split(&entry.path)?.0)).collect();
    of_git.into_iter().chain([PathBuf::from(".git")]).find(fits).unwrap_or_default()
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

/// The mode that a folder had before. Its set-group-id and sticky bits stay: without them others could remove what is in it.
fn set_mode(dir: &Dir, name: &OsStr, mode: Mode) -> KernelResult<u32> {
    let folder = dir.enter(name, Cross::No)?;
    let before = rustix::fs::fstat(&folder)?.st_mode & 0o7777;
    rustix::fs::fchmod(&folder, mode | Mode::from_raw_mode(before & 0o7000))?;
    Ok(before)
}

fn conflict(entry: &Entry, id: &'static str, why: &str) -> ExchangeError {
    ExchangeError::Conflict(Conflict { path: entry.path.clone(), id, why: why.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_staged_stands_where_a_run_of_the_same_workspace_has_a_layer() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        let root = Dir::open(&top).unwrap();
        let staged = |todo: &[(&str, Change)]| {
            let entries: Vec<Entry> =
                todo.iter().map(|(path, change)| Entry::plain(path, *change, Kind::File)).collect();
            staged_in(&root, &entries.iter().collect::<Vec<_>>())
        };
        assert_eq!(staged(&[("a", Change::Added)]), Path::new(""), "there is none");
        std::os::unix::fs::symlink("sub", top.join(".git")).unwrap();
        assert_eq!(staged(&[("a", Change::Added)]), Path::new(""), "a link is none");
        std::fs::remove_file(top.join(".git")).unwrap();
        std::fs::create_dir_all(top.join(".git")).unwrap();
        std::fs::create_dir_all(top.join("sub/.git")).unwrap();
        assert_eq!(staged(&[("a", Change::Added)]), Path::new(".git"));
        assert_eq!(staged(&[("a", Change::Added), ("sub/.git/config", Change::Modified)]), Path::new("sub/.git"));
        let removed = [("sub", Change::Removed), ("sub/.git", Change::Removed), ("sub/.git/HEAD", Change::Removed)];
        assert_eq!(staged(&removed), Path::new(".git"), "one that goes is none");
    }
}
