//! Empty files and folders that hold a protected name in a workspace while a run lasts, and who uses them.
//!
//! Several runs may work in one workspace. A stand-in is known by its time of modification, which nothing else has, so that
//! a later run takes it for what it is: a name that was free. Each run that uses one holds a shared lock on it; the last one
//! removes it, whoever made it. Promises: nothing is removed that is not empty, or that a living run uses.
//!
//! Inside a run a stand-in is read-only; a lock that the program inside takes on it ends with that program.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, Stat, Timespec, Timestamps};
use rustix::io::{Errno, Result};

use super::journal::Thing;
use super::{Cross, Dir};

/// The time of modification that marks one: 1 January 1980 and a number that no clock gives by chance.
const MARK: Timespec = Timespec { tv_sec: 315_532_800, tv_nsec: 706_968_601 };
/// How often somebody who is just looking at one is waited for.
const TRIES: u32 = 5;
const A_MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };

/// One that this run uses.
#[derive(Debug)]
pub(super) struct StandIn {
    pub(super) thing: Thing,
    lock: Option<OwnedFd>,
}

/// What became of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Removal {
    Gone,
    /// Another run uses it, and will remove it.
    InUse,
    /// It is not what was made, not empty, or not there.
    Not,
}

/// Whether this is the stand-in of some run: marked, and empty.
pub(crate) fn is_one(parent: &Dir, name: &OsStr, stat: &Stat) -> bool {
    let marked = (stat.st_mtime, u64::try_from(MARK.tv_nsec)) == (MARK.tv_sec, Ok(stat.st_mtime_nsec));
    // Of a folder its time alone proves nothing: whoever puts something in can set it back.
    marked && parent.is_empty(name, stat.st_mode, u64::try_from(stat.st_size).unwrap_or(u64::MAX), Cross::No)
}

/// Makes one. `None` if the name is taken.
pub(super) fn make(parent: &Dir, name: &OsStr, path: PathBuf, folder: bool) -> Result<Option<StandIn>> {
    let made = if folder {
        rustix::fs::mkdirat(parent, Path::new(name), Mode::RWXU)
    } else {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        parent.open_file(name, flags, Mode::RUSR | Mode::WUSR).map(drop)
    };
    match made {
        Ok(()) => {}
        Err(Errno::EXIST) => return Ok(None),
        Err(errno) => return Err(errno),
    }
    // Whoever looks inside must be able to read it (git, npm), whatever our umask is and whoever we are.
    let readable = Mode::from_raw_mode(if folder { 0o755 } else { 0o644 });
    rustix::fs::chmodat(parent, Path::new(name), readable, AtFlags::empty())?;
    let times = Timestamps { last_access: MARK, last_modification: MARK };
    rustix::fs::utimensat(parent, Path::new(name), &times, AtFlags::SYMLINK_NOFOLLOW)?;
    let Some(stat) = parent.stat(name)? else { return Ok(None) };
    Ok(used(parent, name, path, &stat))
}

/// The one that stands there, if one does; `note` writes it down before it counts as ours too.
pub(super) fn adopt<E>(
    parent: &Dir,
    name: &OsStr,
    path: PathBuf,
    note: impl FnOnce(&Thing) -> std::result::Result<(), E>,
) -> std::result::Result<Option<StandIn>, E> {
    let Ok(Some(stat)) = parent.stat(name) else { return Ok(None) };
    if !is_one(parent, name, &stat) {
        return Ok(None);
    }
    note(&Thing::StubMade(path.clone(), stat.st_dev, stat.st_ino))?;
    Ok(used(parent, name, path, &stat))
}

/// Locks it, and looks whether it still stands there: its last user may have removed it meanwhile.
fn used(parent: &Dir, name: &OsStr, path: PathBuf, stat: &Stat) -> Option<StandIn> {
    let lock = parent.open_file(name, OFlags::RDONLY, Mode::empty()).ok().and_then(|file| {
        let locked = |_| {
            let taken = rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_ok();
            // Nothing to wait on tells when such a lock is free, and one that never is must not hold us.
            if !taken {
                rustix::event::poll(&mut [], Some(&A_MOMENT)).unwrap_or_default();
            }
            taken
        };
        (0..TRIES).any(locked).then(|| OwnedFd::from(file))
    });
    let still = parent.stat(name).ok().flatten().is_some_and(|now| same(&now, stat));
    still.then(|| StandIn { thing: Thing::StubMade(path, stat.st_dev, stat.st_ino), lock })
}

impl StandIn {
    /// This run needs it no more.
    pub(super) fn leave(self) -> (Removal, Thing) {
        drop(self.lock);
        (remove(&self.thing), self.thing)
    }
}

/// Removes one if it is still what was made, still empty, and used by nobody.
pub(super) fn remove(stub: &Thing) -> Removal {
    let (path, made) = match stub {
        Thing::StubMade(path, dev, ino) => (path, Some((*dev, *ino))),
        Thing::Stub(path) => (path, None),
        Thing::Cgroup(_) | Thing::Temp(_) => return Removal::Not,
    };
    let Some((parent, name)) = super::gc::parent_of(path) else { return Removal::Not };
    let Ok(Some(stat)) = parent.stat(name) else { return Removal::Not };
    if made.is_some_and(|made| made != (stat.st_dev, stat.st_ino)) {
        return Removal::Not;
    }
    let lock = parent.open_file(name, OFlags::RDONLY, Mode::empty());
    if let Ok(file) = &lock
        && rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK)
    {
        return Removal::InUse;
    }
    let removed = match FileType::from_raw_mode(stat.st_mode) {
        // A folder that is not empty answers ENOTEMPTY.
        FileType::Directory => rustix::fs::unlinkat(&parent, Path::new(name), AtFlags::REMOVEDIR),
        FileType::RegularFile if stat.st_size == 0 => rustix::fs::unlinkat(&parent, Path::new(name), AtFlags::empty()),
        FileType::RegularFile
        | FileType::Symlink
        | FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => Err(Errno::NOTEMPTY),
    };
    if removed.is_ok() { Removal::Gone } else { Removal::Not }
}

fn same(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}
