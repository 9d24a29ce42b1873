//! The same deeds by doors that came later, or that ask by another name: a filter that knows the older ones only lets them
//! through.

use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, UCred};

use super::call;

const AT_FDCWD: usize = usize::MAX - 99;

fn path_of(path: &OsStr) -> rustix::io::Result<CString> {
    CString::new(path.as_bytes()).map_err(|_zero_byte| Errno::INVAL)
}

/// fchmodat2(2), since 6.6.
///
/// # Errors
/// What the kernel or a filter says.
pub fn change_mode(path: &OsStr, mode: u32) -> rustix::io::Result<()> {
    let path = path_of(path)?;
    let mode = usize::try_from(mode).map_err(|_wide| Errno::INVAL)?;
    call(452, [AT_FDCWD, path.as_ptr().expose_provenance(), mode, 0, 0, 0]).map(|_| ())
}

/// setxattrat(2), since 6.13: `user.fumehood` becomes `x`.
///
/// # Errors
/// What the kernel or a filter says.
pub fn set_attribute(path: &OsStr) -> rustix::io::Result<()> {
    /// struct `xattr_args`.
    #[repr(C)]
    struct Args {
        value: u64,
        size: u32,
        flags: u32,
    }
    let path = path_of(path)?;
    let value = u64::try_from(c"x".as_ptr().expose_provenance()).map_err(|_wide| Errno::FAULT)?;
    let args = Args { value, size: 1, flags: 0 };
    let name = c"user.fumehood".as_ptr().expose_provenance();
    let args = (&raw const args).expose_provenance();
    call(463, [AT_FDCWD, path.as_ptr().expose_provenance(), 0, name, args, 16]).map(|_| ())
}

/// file_setattr(2), since 6.17: no flag is set that was not set before.
///
/// # Errors
/// What the kernel or a filter says.
pub fn set_flags(path: &OsStr) -> rustix::io::Result<()> {
    let path = path_of(path)?;
    // struct file_attr: flags, extent size, extents, project id and copy size, all as they are by default.
    let none = [0_u64; 3];
    let none = none.as_ptr().expose_provenance();
    call(469, [AT_FDCWD, path.as_ptr().expose_provenance(), none, 24, 0, 0]).map(|_| ())
}

/// Says over a unix socket that it is process 1.
///
/// # Errors
/// EPERM: not allowed.
pub fn claim_to_be_init(socket: impl AsFd) -> rustix::io::Result<()> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let pid = rustix::process::Pid::from_raw(1).ok_or(Errno::INVAL)?;
    let who = UCred { pid, uid: rustix::process::getuid(), gid: rustix::process::getgid() };
    if !control.push(SendAncillaryMessage::ScmCredentials(who)) {
        return Err(Errno::NOBUFS);
    }
    let text = [std::io::IoSlice::new(b"x")];
    rustix::net::sendmsg(socket, &text, &mut control, SendFlags::NOSIGNAL).map(|_| ())
}

/// A control of a descriptor that takes no argument and may answer with a new descriptor, which is closed again.
///
/// # Errors
/// What the kernel or a filter says.
pub fn control(fd: impl AsFd, request: u32) -> rustix::io::Result<()> {
    let number = usize::try_from(fd.as_fd().as_raw_fd()).map_err(|_negative| Errno::BADF)?;
    let request = usize::try_from(request).map_err(|_wide| Errno::INVAL)?;
    let made = call(libc::SYS_ioctl, [number, request, 0, 0, 0, 0])?;
    if let Ok(made @ 3..) = RawFd::try_from(made) {
        // SAFETY: the kernel just made this descriptor for us; nobody else owns it.
        drop(unsafe { OwnedFd::from_raw_fd(made) });
    }
    Ok(())
}

/// Gives a terminal another line discipline (TIOCSETD), which is other code of the kernel.
///
/// # Errors
/// What the kernel or a filter says. EINVAL: this kernel has none of this number.
pub fn set_discipline(terminal: impl AsFd, discipline: i32) -> rustix::io::Result<()> {
    let number = usize::try_from(terminal.as_fd().as_raw_fd()).map_err(|_negative| Errno::BADF)?;
    call(libc::SYS_ioctl, [number, 0x5423, (&raw const discipline).expose_provenance(), 0, 0, 0]).map(|_| ())
}
