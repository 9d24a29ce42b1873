//! Sockets of every family, and ways to reach a peer that are not `connect`.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};

use super::{call, checked};

/// socket(2) by numbers, close-on-exec and non-blocking.
///
/// # Errors
/// EAFNOSUPPORT, EPROTONOSUPPORT: not there or not allowed. EPERM, EACCES: not allowed.
pub fn socket(family: i32, kind: i32, protocol: i32) -> rustix::io::Result<OwnedFd> {
    let kind = kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the call takes numbers alone; the kernel touches no memory of ours.
    let fd = checked(unsafe { libc::socket(family, kind, protocol) })?;
    // SAFETY: the kernel just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Starts to connect to an address; a connection in progress is success.
///
/// # Errors
/// ECONNREFUSED, ENETUNREACH: nobody there. EPERM, EACCES: not allowed.
pub fn connect(socket: impl AsFd, to: SocketAddr) -> rustix::io::Result<()> {
    match rustix::net::connect(socket, &to) {
        Err(Errno::INPROGRESS) => Ok(()),
        result => result,
    }
}

/// Sends `bytes` to an address with the opening packet (TCP Fast Open), without `connect`.
///
/// # Errors
/// As [`connect`].
pub fn fast_open(socket: impl AsFd, to: SocketAddr, bytes: &[u8]) -> rustix::io::Result<()> {
    let flags = SendFlags::from_bits_retain(0x2000_0000) | SendFlags::NOSIGNAL;
    match rustix::net::sendto(socket, bytes, flags, &to) {
        Ok(_) | Err(Errno::INPROGRESS) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// What SIOCGIFNAME is asked with and answers: struct ifreq.
#[repr(C)]
struct InterfaceName {
    name: [u8; 16],
    index: i32,
    rest: [u8; 20],
}

/// Names of the first interfaces of this network namespace. Any socket answers, whatever its family.
///
/// # Errors
/// ENODEV: there are none. EPERM: not allowed.
pub fn interfaces(socket: impl AsFd) -> rustix::io::Result<Vec<String>> {
    const SIOCGIFNAME: usize = 0x8910;
    let number = usize::try_from(socket.as_fd().as_raw_fd()).map_err(|_negative| Errno::BADF)?;
    let mut asked = InterfaceName { name: [0; 16], index: 0, rest: [0; 20] };
    let (mut names, mut last) = (Vec::new(), Errno::NODEV);
    for index in 1..=16 {
        asked.index = index;
        let at = (&raw mut asked).expose_provenance();
        match call(libc::SYS_ioctl, [number, SIOCGIFNAME, at, 0, 0, 0]) {
            Ok(_) => names.push(String::from_utf8_lossy(&asked.name).trim_end_matches('\0').to_owned()),
            Err(errno) => last = errno,
        }
    }
    if names.is_empty() { Err(last) } else { Ok(names) }
}

/// Connects an `AF_VSOCK` stream to `cid` (1 is the loopback of this host, 2 its hypervisor).
///
/// # Errors
/// EAFNOSUPPORT: not there or not allowed. ECONNRESET, ENODEV, ETIMEDOUT: nobody there.
pub fn connect_vsock(socket: impl AsFd, cid: u32, port: u32) -> rustix::io::Result<()> {
    // struct sockaddr_vm: family (16 bits), reserved, port, cid, flags and zeros.
    let address: [u32; 4] = [40, port, cid, 0];
    let number = usize::try_from(socket.as_fd().as_raw_fd()).map_err(|_negative| Errno::BADF)?;
    match call(libc::SYS_connect, [number, address.as_ptr().expose_provenance(), 16, 0, 0, 0]) {
        Ok(_) | Err(Errno::INPROGRESS) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Sends `text` and a copy of `passed` over a unix socket.
///
/// # Errors
/// What sendmsg(2) says.
pub fn send_descriptor(socket: impl AsFd, text: &[u8], passed: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [passed];
    if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(Errno::NOBUFS);
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(text)], &mut control, SendFlags::NOSIGNAL).map(|_| ())
}

/// Receives one descriptor over a unix socket.
///
/// # Errors
/// EAGAIN: nothing was sent. ENODATA: no descriptor came along.
pub fn receive_descriptor(socket: impl AsFd) -> rustix::io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut text = [0_u8; 64];
    let mut parts = [std::io::IoSliceMut::new(&mut text)];
    rustix::net::recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut fds) = message
            && let Some(fd) = fds.next()
        {
            return Ok(fd);
        }
    }
    Err(Errno::NODATA)
}
