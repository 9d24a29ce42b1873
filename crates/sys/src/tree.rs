//! Trees of the host as mounts that are mounted nowhere: a child puts them where its program sees them
//! ([`crate::spawn::InnerMount`]).
//!
//! *Promises*: the tree is that of the place which the caller opened, whatever lies at its path meanwhile; attributes hold for all
//! of it, and nobody below can take them away.
//!
//! *Kernel facts*: `open_tree` 5.2, `mount_setattr` 5.12, both for whoever may mount.

use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, OpenTreeFlags};

use crate::error::{Error, ErrorContext as _, Result};

const AT_EMPTY_PATH: u32 = 0x1000;
const AT_RECURSIVE: u32 = 0x8000;

/// As the kernel has it.
#[repr(C)]
pub(crate) struct MountAttr {
    pub(crate) set: u64,
    pub(crate) clear: u64,
    pub(crate) propagation: u64,
    pub(crate) userns: u64,
}

/// A copy of the mount at `place`, from there on; `whole` = with what is mounted below it.
///
/// # Errors
/// EPERM: not allowed to mount. EINVAL: something is mounted below that cannot be left out.
pub fn clone(place: impl AsFd, whole: bool) -> Result<OwnedFd> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    if whole {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    rustix::mount::open_tree(&place, c"", flags).named("open_tree", || "a tree".to_owned())
}

/// Gives a whole tree attributes: the bits of mount_setattr(2), as `MOUNT_ATTR_RDONLY`.
///
/// # Errors
/// EPERM: not allowed to mount.
pub fn restrict(tree: impl AsFd, attributes: u64) -> Result<()> {
    set(tree, &MountAttr { set: attributes, clear: 0, propagation: 0, userns: 0 })
}

/// A new file system in memory with both of its bounds, for nobody but root until it has folders.
///
/// # Errors
/// EPERM: not allowed to mount.
pub fn in_memory(bytes: u64, inodes: u64) -> Result<OwnedFd> {
    let object = || "a file system in memory".to_owned();
    let fs = rustix::mount::fsopen(c"tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).named("fsopen", object)?;
    // 0 would mean "no bound" to the kernel.
    let bounds = [("size", bytes.max(4096).to_string()), ("nr_inodes", inodes.max(1).to_string())];
    for (key, value) in bounds.into_iter().chain([("mode", "0700".to_owned())]) {
        rustix::mount::fsconfig_set_string(fs.as_fd(), key, value).named("fsconfig", object)?;
    }
    rustix::mount::fsconfig_create(fs.as_fd()).named("fsconfig", object)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    rustix::mount::fsmount(fs.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes).named("fsmount", object)
}

/// Makes a folder of these owners and this mode in a tree, and opens it.
///
/// # Errors
/// EEXIST, ENOSPC.
pub fn make_folder(tree: impl AsFd, name: &str, mode: u32, (uid, gid): (u32, u32)) -> Result<OwnedFd> {
    let object = || name.to_owned();
    let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
    rustix::fs::mkdirat(&tree, name, Mode::RWXU).named("mkdir", object)?;
    rustix::fs::chownat(&tree, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW).named("chown", object)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(&tree, name, flags, Mode::empty()).named("open", object)?;
    // After the owners, for a change of those takes bits away; and whatever our umask is.
    rustix::fs::fchmod(&folder, Mode::from_raw_mode(mode)).named("chmod", object)?;
    Ok(folder)
}

pub(crate) fn set(tree: impl AsFd, attributes: &MountAttr) -> Result<()> {
    // SAFETY: `attributes` is a live mount_attr of the given size, the path is a terminated string, both only read.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_fd().as_raw_fd(),
            c"".as_ptr(),
            AT_EMPTY_PATH | AT_RECURSIVE,
            std::ptr::from_ref(attributes),
            size_of::<MountAttr>(),
        )
    };
    if result == 0 {
        return Ok(());
    }
    let errno = Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO);
    Err(Error::new("mount_setattr", "a tree".to_owned(), errno))
}
