//! Trees of the host as mounts that are mounted nowhere: a child puts them where its program sees them
//! ([`crate::spawn::InnerMount`]).
//!
//! *Promises*: the tree is that of the place which the caller opened, whatever lies at its path meanwhile; attributes hold for all
//! of it, and nobody below can take them away.
//!
//! *Kernel facts*: `open_tree` 5.2, `mount_setattr` 5.12, both for whoever may mount.

use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

use rustix::io::Errno;
use rustix::mount::OpenTreeFlags;

use crate::error::{Error, Named as _, Result};

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
