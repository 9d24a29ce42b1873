//! Mounts, by the calls that build a tree apart before it is seen, and by mount(2), which is one call where those are
//! eight: for names that nobody else can change.

use core::ffi::CStr;

use linux_raw_sys::general::{
    __NR_fsconfig, __NR_fsmount, __NR_fsopen, __NR_mount, __NR_mount_setattr, __NR_move_mount, __NR_open_tree,
    __NR_pivot_root, __NR_umount2, AT_EMPTY_PATH, AT_RECURSIVE, AT_SYMLINK_NOFOLLOW, FSMOUNT_CLOEXEC, FSOPEN_CLOEXEC,
    MNT_DETACH, MOVE_MOUNT_F_EMPTY_PATH, MOVE_MOUNT_T_EMPTY_PATH, MS_BIND, MS_PRIVATE, MS_REC, OPEN_TREE_CLOEXEC,
    OPEN_TREE_CLONE, fsconfig_command, mount_attr,
};

use super::errno::{Errno, Result};
use super::fd::{Fd, Owned};
use super::raw::{call, long, read, text, uint};

/// A file system that is being configured.
#[derive(Debug)]
pub struct FileSystem(Owned);

impl FileSystem {
    /// fsopen(2).
    ///
    /// # Errors
    /// That of fsopen(2): `ENODEV` = the kernel does not have it.
    pub fn open(kind: &CStr) -> Result<Self> {
        // SAFETY: kind is a C string that outlives the call.
        unsafe { call(__NR_fsopen, [text(kind), uint(FSOPEN_CLOEXEC)]) }.map(|fd| Self(Owned::new(fd)))
    }

    /// An option with a value.
    ///
    /// # Errors
    /// That of fsconfig(2).
    pub fn set(&self, key: &CStr, value: &CStr) -> Result<()> {
        let command = fsconfig_command::FSCONFIG_SET_STRING as u32;
        // SAFETY: both are C strings that outlive the call.
        unsafe { call(__NR_fsconfig, [self.0.fd().raw(), uint(command), text(key), text(value), 0]) }.map(drop)
    }

    /// An option without a value.
    ///
    /// # Errors
    /// That of fsconfig(2).
    pub fn set_flag(&self, key: &CStr) -> Result<()> {
        let command = fsconfig_command::FSCONFIG_SET_FLAG as u32;
        // SAFETY: key is a C string that outlives the call.
        unsafe { call(__NR_fsconfig, [self.0.fd().raw(), uint(command), text(key), 0, 0]) }.map(drop)
    }

    /// Creates it and gives a detached mount of it. Two calls.
    ///
    /// # Errors
    /// That of fsconfig(2) or fsmount(2).
    pub fn mount(self, attributes: u64) -> Result<Owned> {
        let command = fsconfig_command::FSCONFIG_CMD_CREATE as u32;
        // SAFETY: the call takes numbers alone; the kernel touches no memory of ours.
        unsafe { call(__NR_fsconfig, [self.0.fd().raw(), uint(command), 0, 0, 0]) }?;
        // SAFETY: the call takes numbers alone; the kernel touches no memory of ours.
        unsafe { call(__NR_fsmount, [self.0.fd().raw(), uint(FSMOUNT_CLOEXEC), long(attributes)]) }.map(Owned::new)
    }
}

/// What mount(2) and mount_setattr(2) write alike: read-only, nosuid, nodev, noexec.
const COMMON_ATTRIBUTES: u64 = 0xf;

/// A new file system at a path, by mount(2): links are followed, so the path must be one that only we can change.
/// Attributes that mount(2) writes otherwise are refused.
///
/// # Errors
/// That of mount(2); `EINVAL` for such an attribute.
pub fn mount_new(kind: &CStr, path: &CStr, attributes: u64, options: &CStr) -> Result<()> {
    if attributes & !COMMON_ATTRIBUTES != 0 {
        return Err(Errno::EINVAL);
    }
    // SAFETY: all four are C strings that outlive the call; the options are text, as every kind that we mount expects.
    unsafe { call(__NR_mount, [text(kind), text(path), text(kind), long(attributes), text(options)]) }.map(drop)
}

/// Shows at `to` what is at `from`, with all that is mounted below it if asked, by mount(2): links are followed, so `to`
/// must be a path that only we can change, and what is there afterwards judged if `from` is none.
///
/// # Errors
/// That of mount(2): `ENOENT` for either, `ENOTDIR` if only one of them is a directory.
pub fn bind(from: &CStr, to: &CStr, recursive: bool) -> Result<()> {
    let flags = if recursive { MS_BIND | MS_REC } else { MS_BIND };
    // SAFETY: both are C strings that outlive the call; a bind reads neither kind nor options.
    unsafe { call(__NR_mount, [text(from), text(to), 0, uint(flags), 0]) }.map(drop)
}

/// A detached copy of the mount at `from`, with all that is mounted below it if asked.
///
/// # Errors
/// That of open_tree(2).
pub fn clone_mount(from: Fd, recursive: bool) -> Result<Owned> {
    let below = if recursive { AT_RECURSIVE } else { 0 };
    let flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | below;
    // SAFETY: an empty C string, static.
    unsafe { call(__NR_open_tree, [from.raw(), text(c""), uint(flags)]) }.map(Owned::new)
}

/// Attaches a detached mount at `to`.
///
/// # Errors
/// That of move_mount(2).
pub fn attach(mount: Fd, to: Fd) -> Result<()> {
    let flags = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH;
    // SAFETY: empty C strings, static.
    unsafe { call(__NR_move_mount, [mount.raw(), text(c""), to.raw(), text(c""), uint(flags)]) }.map(drop)
}

/// Attaches a detached mount at one name in a directory; a link of that name is not followed.
///
/// # Errors
/// That of move_mount(2).
pub fn attach_at(mount: Fd, dir: Fd, name: &CStr) -> Result<()> {
    // SAFETY: both paths end with NUL and outlive the call; the kernel only reads them.
    unsafe { call(__NR_move_mount, [mount.raw(), text(c""), dir.raw(), text(name), uint(MOVE_MOUNT_F_EMPTY_PATH)]) }
        .map(drop)
}

/// Attaches a detached mount over the root directory, above whatever lies there already.
///
/// # Errors
/// That of move_mount(2).
pub fn attach_over_root(mount: Fd) -> Result<()> {
    let to = [Fd::CWD.raw(), text(c"/")];
    // SAFETY: both paths are static and end with NUL; the kernel only reads them.
    unsafe { call(__NR_move_mount, [mount.raw(), text(c""), to[0], to[1], uint(MOVE_MOUNT_F_EMPTY_PATH)]) }.map(drop)
}

/// Adds attributes to a mount, and to all below it if asked; none of them propagates any more.
///
/// # Errors
/// That of mount_setattr(2).
pub fn set_attributes(mount: Fd, attributes: u64, recursive: bool) -> Result<()> {
    set_attributes_by(mount, c"", AT_EMPTY_PATH, attributes, recursive)
}

/// The same of the mount at a path, whose last part is not followed.
///
/// # Errors
/// That of mount_setattr(2): `EINVAL` if nothing is mounted there.
pub fn set_attributes_at(dir: Fd, path: &CStr, attributes: u64, recursive: bool) -> Result<()> {
    set_attributes_by(dir, path, AT_SYMLINK_NOFOLLOW, attributes, recursive)
}

fn set_attributes_by(dir: Fd, path: &CStr, flags: u32, attributes: u64, recursive: bool) -> Result<()> {
    let attr = mount_attr { attr_set: attributes, attr_clr: 0, propagation: u64::from(MS_PRIVATE), userns_fd: 0 };
    let flags = if recursive { flags | AT_RECURSIVE } else { flags };
    let size = size_of::<mount_attr>();
    // SAFETY: path is a C string that outlives the call, as does the mount_attr of the given size.
    unsafe { call(__NR_mount_setattr, [dir.raw(), text(path), uint(flags), read(&attr), size]) }.map(drop)
}

/// Keeps every mount of this namespace to itself.
///
/// # Errors
/// That of mount_setattr(2).
pub fn make_all_private() -> Result<()> {
    let attr = mount_attr { attr_set: 0, attr_clr: 0, propagation: u64::from(MS_PRIVATE), userns_fd: 0 };
    let size = size_of::<mount_attr>();
    // SAFETY: a C string, static, and a mount_attr of the given size.
    unsafe { call(__NR_mount_setattr, [Fd::CWD.raw(), text(c"/"), uint(AT_RECURSIVE), read(&attr), size]) }.map(drop)
}

/// Makes the working directory, a mount point, the root; the old root lies over it afterwards.
///
/// # Errors
/// That of pivot_root(2).
pub fn pivot_here() -> Result<()> {
    // SAFETY: both paths are static and end with NUL; the kernel only reads them. With the same directory twice the old root is stacked onto the new one.
    unsafe { call(__NR_pivot_root, [text(c"."), text(c".")]) }.map(drop)
}

/// Detaches what lies over the working directory, with all below it.
///
/// # Errors
/// That of umount2(2).
pub fn detach_here() -> Result<()> {
    // SAFETY: a C string, static.
    unsafe { call(__NR_umount2, [text(c"."), uint(MNT_DETACH)]) }.map(drop)
}
