//! What holds the control files while a `rw` run lasts, seen from outside.
//!
//! Kernel facts: a rename or removal from another mount namespace takes away a mount that stands on the name
//! (`detach_mounts`, since 3.18; measured on 6.18). So a program outside that replaces a control file (an editor that
//! saves by rename, `git config`) takes its read-only mount away, and what stands there then can be written inside.
//! Whoever does so is noticed here: each thing is known by device, inode and time of birth, and looked for by name. A file
//! system that tells no birth could give the inode's number away again: there the thing is held open.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Statx, StatxFlags};
use rustix::io::{Errno, Result};

use super::plan::{ProtectPlan, parent_of};
use crate::state::{Cross, Dir, errno_of, rights_of};

/// A control file that is larger is held, but cannot be put back.
const MAX_KEPT: u64 = 1 << 20;

/// The control files of one workspace as they were when their mounts were made.
#[derive(Debug)]
pub struct Hold {
    below: Dir,
    /// By path.
    held: Vec<ControlFile>,
}

#[derive(Debug)]
pub(super) struct ControlFile {
    pub(super) path: PathBuf,
    is: Identity,
    /// Keeps the inode's number taken, where the file system tells no birth.
    _open: Option<OwnedFd>,
    pub(super) mode: u32,
    owner: (u32, u32),
    /// Its bytes at start, of a file.
    pub(super) content: Option<Vec<u8>>,
    /// It held nothing. What holds nothing may go.
    empty: bool,
}

/// Which thing it is: an inode's number alone is given away again when the thing is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: (u32, u32),
    inode: u64,
    born: Option<(i64, u32)>,
}

impl Identity {
    fn of(found: &Statx) -> Self {
        let told = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
        let born = told.then_some((found.stx_btime.tv_sec, found.stx_btime.tv_nsec));
        Self { device: (found.stx_dev_major, found.stx_dev_minor), inode: found.stx_ino, born }
    }
}

/// What stands where a held path was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeState {
    /// The same thing, which nobody inside could write.
    Same,
    /// The same file, which has another name too and other bytes: somebody may have written it by that name.
    Rewritten,
    /// Something else: the mount is gone.
    Other,
    /// Nothing.
    Nothing,
}

impl Hold {
    /// Takes hold of all that the plan binds, pins or layers, before the guest does it.
    ///
    /// # Errors
    /// What the kernel answers when one of them cannot be opened.
    pub fn take(plan: &ProtectPlan, below: Dir) -> Result<Self> {
        let binds = plan.binds.iter().map(|bind| &bind.path);
        let paths = plan.pins.iter().chain(binds).chain(&plan.layers);
        let mut held = paths.map(|path| ControlFile::take(&below, path)).collect::<Result<Vec<_>>>()?;
        held.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(Self { below, held })
    }

    /// The first path whose mount was taken away from outside.
    #[must_use]
    pub fn lost(&self) -> Option<PathBuf> {
        self.held.iter().find(|held| !held.is_there(&self.below)).map(|held| held.path.clone())
    }

    /// What was held at this path of the workspace.
    pub(super) fn of(&self, path: &Path) -> Option<&ControlFile> {
        let at = self.held.binary_search_by(|held| held.path.as_path().cmp(path)).ok()?;
        self.held.get(at)
    }
}

impl ControlFile {
    fn take(below: &Dir, path: &Path) -> Result<Self> {
        let (parent, name) = parent_of(below, path)?.ok_or(Errno::NOENT)?;
        let found = look(&parent, &name)?.ok_or(Errno::NOENT)?;
        let is = Identity::of(&found);
        let open = match is.born {
            Some(_) => None,
            None => Some(parent.open_file(&name, OFlags::PATH, Mode::empty())?.into()),
        };
        let mode = u32::from(found.stx_mode);
        // What is too large or may not be read is held all the same.
        let content = parent.read(&name, MAX_KEPT).ok().filter(|_| is_file(mode));
        let (owner, empty) = ((found.stx_uid, found.stx_gid), is_empty(&parent, &name, &found));
        Ok(Self { path: path.to_owned(), is, _open: open, mode, owner, content, empty })
    }

    fn is_there(&self, below: &Dir) -> bool {
        let seen = parent_of(below, &self.path).and_then(|above| {
            let Some((parent, name)) = above else { return Ok(false) };
            Ok(match look(&parent, &name)? {
                Some(found) if Identity::of(&found) == self.is => true,
                // Nothing for nothing: whoever fills it is noticed then.
                Some(found) => self.empty && is_empty(&parent, &name, &found),
                None => self.empty,
            })
        });
        match seen {
            Ok(there) => there,
            // A folder above is being closed again and again, or is somebody else's by now. No mount goes away by that, and the
            // last look sees what stands there, or says that it could not.
            Err(errno) => [Errno::ACCESS, Errno::BUSY].contains(&errno),
        }
    }

    /// What stands there now.
    pub(super) fn stands(&self, below: &Dir) -> Result<NodeState> {
        let Some((parent, name)) = parent_of(below, &self.path)? else { return Ok(NodeState::Nothing) };
        let Some(found) = look(&parent, &name)? else { return Ok(NodeState::Nothing) };
        let mode = u32::from(found.stx_mode);
        let is_a_copy = mode == self.mode && self.content.is_some() && !self.was_rewritten(&parent, &name);
        if Identity::of(&found) != self.is {
            if self.empty && is_empty(&parent, &name, &found) {
                return Ok(NodeState::Same);
            }
            // Another file with the same bytes is as good.
            return Ok(if is_a_copy { NodeState::Same } else { NodeState::Other });
        }
        let other_bytes = found.stx_nlink > 1 && is_file(mode) && !is_a_copy;
        Ok(if other_bytes { NodeState::Rewritten } else { NodeState::Same })
    }

    fn was_rewritten(&self, parent: &Dir, name: &OsStr) -> bool {
        let same = |content: &Vec<u8>| parent.read(name, MAX_KEPT).is_ok_and(|now| now == *content);
        !self.content.as_ref().is_some_and(same)
    }

    /// Makes the file again as it was at start, where its name is free.
    pub(super) fn put_back(&self, below: &Dir) -> Result<()> {
        if self.empty {
            return Ok(());
        }
        let content = self.content.as_ref().ok_or(Errno::FBIG)?;
        let (parent, name) = parent_of(below, &self.path)?.ok_or(Errno::NOENT)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        // Made with the rights of the folder's owner; the file that came of it is known by its descriptor from here on.
        let owners = rights_of(&parent)?;
        let _open = parent.open_for_changes()?;
        let mut file = parent.open_file(&name, flags, Mode::RUSR | Mode::WUSR)?;
        drop(owners);
        std::io::Write::write_all(&mut file, content).map_err(|e| errno_of(&e))?;
        let (uid, gid) = (rustix::fs::Uid::from_raw(self.owner.0), rustix::fs::Gid::from_raw(self.owner.1));
        match rustix::fs::fchown(&file, Some(uid), Some(gid)) {
            // Somebody else's file, made by its replacer's user: it stays ours.
            Ok(()) | Err(Errno::PERM) => {}
            Err(errno) => return Err(errno),
        }
        rustix::fs::fchmod(&file, Mode::from_raw_mode(self.mode & 0o777))
    }
}

fn look(parent: &Dir, name: &OsStr) -> Result<Option<Statx>> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    match rustix::fs::statx(parent, Path::new(name), AtFlags::SYMLINK_NOFOLLOW, wanted) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn is_empty(parent: &Dir, name: &OsStr, found: &Statx) -> bool {
    parent.is_empty(name, u32::from(found.stx_mode), found.stx_size, Cross::Yes)
}

fn is_file(mode: u32) -> bool {
    FileType::from_raw_mode(mode) == FileType::RegularFile
}
