//! Files and directories, by descriptor.

use core::ffi::CStr;

use linux_raw_sys::general::{
    __NR_chdir, __NR_fchdir, __NR_ioctl, __NR_mkdirat, __NR_mknodat, __NR_openat, __NR_openat2, __NR_read,
    __NR_readlinkat, __NR_statx, __NR_symlinkat, __NR_umask, __NR_write, AT_EMPTY_PATH, AT_NO_AUTOMOUNT,
    AT_SYMLINK_NOFOLLOW, O_CLOEXEC, O_CREAT, O_DIRECTORY, O_EXCL, O_NOCTTY, O_NONBLOCK, O_PATH, O_RDONLY, O_WRONLY,
    RESOLVE_BENEATH, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, S_IFCHR, S_IFDIR, S_IFMT, S_IFREG, STATX_INO,
    STATX_MODE, STATX_TYPE, open_how, statx,
};

use linux_raw_sys::ioctl::TCGETS;

use super::errno::Result;
use super::fd::{Fd, Owned};
use super::raw::{call, read, text, uint, write};

/// How a path is resolved. Never through a symlink or a magic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Within {
    /// Anywhere; the path may be absolute.
    Anywhere,
    /// Not above the directory where it starts.
    Beneath,
}

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Major number of its device.
    pub major: u32,
    /// Minor number of its device.
    pub minor: u32,
    /// Inode.
    pub ino: u64,
    /// Permissions.
    pub mode: u32,
    /// Whether it is a directory.
    pub dir: bool,
    /// Numbers of a character device.
    pub device: Option<(u32, u32)>,
    /// Bytes.
    pub size: u64,
}

fn open_without_links(dir: Fd, path: &CStr, flags: u32, mode: u32, within: Within) -> Result<Owned> {
    let resolve = match within {
        Within::Anywhere => RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
        Within::Beneath => RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_BENEATH,
    };
    let how = open_how { flags: u64::from(flags | O_CLOEXEC), mode: u64::from(mode), resolve: u64::from(resolve) };
    // SAFETY: path is a C string, how is an open_how of the given size; both outlive the call.
    unsafe { call(__NR_openat2, [dir.raw(), text(path), read(&how), size_of::<open_how>()]) }.map(Owned::new)
}

/// A descriptor that only names the file (`O_PATH`).
///
/// # Errors
/// That of openat2(2): `ELOOP` for a symlink on the way.
pub fn open_path(dir: Fd, path: &CStr, within: Within) -> Result<Owned> {
    // Not with O_NOFOLLOW: together with it the kernel would hand out the last link itself instead of ELOOP.
    open_without_links(dir, path, O_PATH, 0, within)
}

/// A directory that can be listed.
///
/// # Errors
/// That of openat2(2).
pub fn open_dir(dir: Fd, path: &CStr, within: Within) -> Result<Owned> {
    open_without_links(dir, path, O_RDONLY | O_DIRECTORY, 0, within)
}

/// An existing file for writing.
///
/// # Errors
/// That of openat2(2).
pub fn open_write(dir: Fd, path: &CStr, within: Within) -> Result<Owned> {
    open_without_links(dir, path, O_WRONLY | O_NOCTTY, 0, within)
}

/// An existing file for reading.
///
/// # Errors
/// That of openat2(2).
pub fn open_read(dir: Fd, path: &CStr, within: Within) -> Result<Owned> {
    open_without_links(dir, path, O_RDONLY | O_NOCTTY, 0, within)
}

/// A file that did not exist.
///
/// # Errors
/// That of openat2(2): `EEXIST`.
pub fn create(dir: Fd, path: &CStr, mode: u32, within: Within) -> Result<Owned> {
    open_without_links(dir, path, O_WRONLY | O_CREAT | O_EXCL, mode & 0o7777, within)
}

/// A device of ours for reading and writing, symlinks followed: for `/dev/pts/ptmx` of a fresh devpts.
///
/// # Errors
/// That of openat2(2).
pub fn open_device(path: &CStr) -> Result<Owned> {
    open_without_links(Fd::CWD, path, linux_raw_sys::general::O_RDWR | O_NOCTTY, 0, Within::Anywhere)
}

/// A device for reading and writing, with openat(2), which works where a filter closes openat2(2).
///
/// # Errors
/// That of openat(2).
pub fn open_read_write(path: &CStr) -> Result<Owned> {
    let flags = linux_raw_sys::general::O_RDWR | O_NOCTTY | O_CLOEXEC;
    // SAFETY: path is a C string that outlives the call.
    unsafe { call(__NR_openat, [Fd::CWD.raw(), text(path), uint(flags), 0]) }.map(Owned::new)
}

/// Tries to open a file for reading as any program would: with openat(2), following links, not waiting.
///
/// # Errors
/// That of openat(2).
pub fn open_as_anybody(path: &CStr, dir: bool) -> Result<Owned> {
    let kind = if dir { O_DIRECTORY } else { O_NONBLOCK | O_NOCTTY };
    // SAFETY: path is a C string that outlives the call.
    unsafe { call(__NR_openat, [Fd::CWD.raw(), text(path), uint(O_RDONLY | O_CLOEXEC | kind), 0]) }.map(Owned::new)
}

/// Opens a device and asks it for something that only terminals know.
///
/// # Errors
/// `ENOTTY` of a device that is none; `EACCES` where Landlock lets nobody call a device.
pub fn call_device(path: &CStr) -> Result<()> {
    let device = open_as_anybody(path, false)?;
    // SAFETY: TCGETS writes to the place that it is given, and 0 is none: a terminal answers with EFAULT.
    unsafe { call(__NR_ioctl, [device.fd().raw(), uint(TCGETS), 0]) }.map(drop)
}

/// Writes all of it.
///
/// # Errors
/// That of write(2).
pub fn write_all(fd: Fd, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        // SAFETY: the slice is valid for its length.
        let written = unsafe { call(__NR_write, [fd.raw(), read(bytes), bytes.len()]) }?;
        bytes = bytes.get(written..).unwrap_or(&[]);
    }
    Ok(())
}

/// read(2).
///
/// # Errors
/// That of read(2).
pub fn read_some(fd: Fd, to: &mut [u8]) -> Result<usize> {
    // SAFETY: the slice is valid for its length.
    unsafe { call(__NR_read, [fd.raw(), write(to), to.len()]) }
}

/// mkdirat(2): the last part is never followed.
///
/// # Errors
/// That of mkdirat(2): `EEXIST`.
pub fn make_dir(dir: Fd, path: &CStr, mode: u32) -> Result<()> {
    // SAFETY: path is a C string that outlives the call.
    unsafe { call(__NR_mkdirat, [dir.raw(), text(path), uint(mode & 0o7777)]) }.map(drop)
}

/// An empty file by mknodat(2): the last part is never followed.
///
/// # Errors
/// That of mknodat(2): `EEXIST`.
pub fn make_file(dir: Fd, path: &CStr, mode: u32) -> Result<()> {
    // SAFETY: path is a C string that outlives the call.
    unsafe { call(__NR_mknodat, [dir.raw(), text(path), uint(S_IFREG | mode & 0o7777), 0]) }.map(drop)
}

/// symlinkat(2).
///
/// # Errors
/// That of symlinkat(2).
pub fn make_symlink(target: &CStr, dir: Fd, path: &CStr) -> Result<()> {
    // SAFETY: both are C strings that outlive the call.
    unsafe { call(__NR_symlinkat, [text(target), dir.raw(), text(path)]) }.map(drop)
}

/// readlinkat(2): how long its target is, as far as there was room for it.
///
/// # Errors
/// That of readlinkat(2).
pub fn read_symlink(path: &CStr, to: &mut [u8]) -> Result<usize> {
    // SAFETY: path is a C string, and the kernel writes at most `to.len()` bytes to `to`; both outlive the call.
    unsafe { call(__NR_readlinkat, [Fd::CWD.raw(), text(path), write(to), to.len()]) }
}

/// What a descriptor (path empty), or a path whose last part is not followed, is.
///
/// # Errors
/// That of statx(2).
pub fn status(dir: Fd, path: &CStr) -> Result<Status> {
    let mask = STATX_INO | STATX_MODE | STATX_TYPE | linux_raw_sys::general::STATX_SIZE;
    status_by(dir, path, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, mask)
}

/// Whether a path leads to something, symlinks followed.
#[must_use]
pub fn exists(path: &CStr) -> bool {
    status_by(Fd::CWD, path, 0, STATX_TYPE).is_ok()
}

fn status_by(dir: Fd, path: &CStr, flags: u32, mask: u32) -> Result<Status> {
    let mut found = core::mem::MaybeUninit::<statx>::zeroed();
    // SAFETY: path is a C string, the place is a statx that the kernel may write.
    unsafe { call(__NR_statx, [dir.raw(), text(path), uint(flags), uint(mask), write(&mut found)]) }?;
    // SAFETY: statx is plain numbers, zeroed before the call, so that any bytes are a value.
    let found = unsafe { found.assume_init() };
    let mode = u32::from(found.stx_mode);
    Ok(Status {
        major: found.stx_dev_major,
        minor: found.stx_dev_minor,
        ino: found.stx_ino,
        mode: mode & 0o7777,
        dir: mode & S_IFMT == S_IFDIR,
        device: (mode & S_IFMT == S_IFCHR).then_some((found.stx_rdev_major, found.stx_rdev_minor)),
        size: found.stx_size,
    })
}

/// chdir(2).
///
/// # Errors
/// That of chdir(2).
pub fn change_dir(path: &CStr) -> Result<()> {
    // SAFETY: path is a C string that outlives the call.
    unsafe { call(__NR_chdir, [text(path)]) }.map(drop)
}

/// fchdir(2).
///
/// # Errors
/// That of fchdir(2).
pub fn change_dir_to(dir: Fd) -> Result<()> {
    // SAFETY: the call takes numbers alone; the kernel touches no memory of ours.
    unsafe { call(__NR_fchdir, [dir.raw()]) }.map(drop)
}

/// The umask; the call that asks is the one that sets, so it is set twice.
#[must_use]
pub fn umask() -> u32 {
    // SAFETY: numbers only; the call cannot fail.
    let found = unsafe { call(__NR_umask, [uint(0o777)]) }.map_or(0, |mask| u32::try_from(mask).unwrap_or(0));
    set_umask(found);
    found
}

/// umask(2).
pub fn set_umask(mask: u32) {
    // SAFETY: numbers only; the call cannot fail.
    let _before = unsafe { call(__NR_umask, [uint(mask & 0o777)]) };
}
