//! Locks of git's: the files by which it says that it is about to change another one. Before the index and the references are exchanged
//! we make them ourselves, as git does, and hold them until all of these are there: git on the host begins nothing in between.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::{Errno, Result as KernelResult};

use super::apply::Conflict;
use super::exchange::parent;
use super::guarded::Guarding;
use super::manifest::Entry;
use crate::fault::show_path;
use crate::state::{Dir, PathText, errno_of, rights_of};

/// So often a lock of git's is looked for again.
const MAX_LOOKS: u32 = 10;
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);
/// What stands in one of ours: git's have what it is about to write.
const OURS: &[u8] = b"fumehood apply\n";
/// How one is called until it is there.
const STAGED: &str = "lock";

/// A file of git's, and its lock.
pub(super) type Lock = (PathBuf, PathBuf);

/// Files of git's, each with the one by which git says that it is about to change it.
pub(super) fn locks(chosen: &[&Entry], guarding: &Guarding<'_>) -> Vec<Lock> {
    chosen.iter().filter_map(|entry| Some((entry.path.clone(), guarding.lock_of(entry)?))).collect()
}

/// What git on the host is about to change, or has been since it was ended in the middle of it. Most of what it does it does at once.
pub(super) fn locked(root: &Dir, locks: &[Lock]) -> Vec<Conflict> {
    let is_there = |lock: &Path| {
        let kind = parent(root, lock).and_then(|(dir, name)| dir.kind(name));
        matches!(kind, Ok(Some(_)))
    };
    let mut there = Vec::new();
    for left in (0..=MAX_LOOKS).rev() {
        there = locks.iter().filter(|(_, lock)| is_there(lock)).collect();
        if there.is_empty() || left == 0 {
            break;
        }
        drop(sys::channel::wait(&[], Some(BETWEEN_LOOKS)));
    }
    there.into_iter().map(conflict).collect()
}

pub(super) fn conflict((path, lock): &Lock) -> Conflict {
    let why = format!("git is at work there: {} is there", show_path(lock));
    Conflict { path: path.clone(), id: "locked", why }
}

/// A lock of ours.
pub(super) struct Held {
    /// Of which file.
    pub(super) of: PathBuf,
    lock: PathBuf,
    inode: u64,
}

impl Held {
    /// Makes one; `None` where its folder is not there, and so nothing that it would be the lock of. EEXIST: git holds it.
    pub(super) fn take(root: &Dir, staging: &Dir, (of, lock): &Lock) -> KernelResult<Option<Self>> {
        let (dir, name) = match parent(root, lock) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => return Ok(None),
            other => other?,
        };
        let (flags, mode) = (OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC, Mode::from_raw_mode(0o644));
        let mut file = staging.open_file(STAGED, flags, mode)?;
        file.write_all(OURS).map_err(|error| errno_of(&error))?;
        let inode = rustix::fs::fstat(&file)?.st_ino;
        let put = || rustix::fs::renameat_with(staging, STAGED, &dir, Path::new(&name), RenameFlags::NOREPLACE);
        let mut done = put();
        for _ in 0..MAX_LOOKS {
            if done != Err(Errno::EXIST) {
                break;
            }
            drop(sys::channel::wait(&[], Some(BETWEEN_LOOKS)));
            done = put();
        }
        done.map(|()| Some(Self { of: of.clone(), lock: lock.clone(), inode }))
    }

    /// One that is not ours any more stays.
    pub(super) fn release(&self, root: &Dir) -> KernelResult<()> {
        let (dir, name) = parent(root, &self.lock)?;
        match dir.stat(&name)? {
            Some(stat) if stat.st_ino == self.inode => rustix::fs::unlinkat(&dir, Path::new(&name), AtFlags::empty()),
            Some(_) | None => Ok(()),
        }
    }
}

/// Removes those of ours that an `apply` left which was killed. One that cannot be removed is told by whoever needs it.
pub(super) fn remove_left(root: &Dir, locks: &[PathText]) {
    let Ok(_rights) = rights_of(root) else { return };
    for PathText(lock) in locks {
        let is_ours = root.read(lock, 64).is_ok_and(|text| text == OURS);
        if let Some((dir, name)) = parent(root, lock).ok().filter(|_| is_ours) {
            rustix::fs::unlinkat(&dir, Path::new(&name), AtFlags::empty()).unwrap_or_default();
        }
    }
}
