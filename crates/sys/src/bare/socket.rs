//! The control socket: bytes, and descriptors along with them.

use core::ffi::CStr;

use linux_raw_sys::general::{__NR_bind, __NR_connect, __NR_recvmsg, __NR_sendmsg, __NR_setsockopt, __NR_socket};
use linux_raw_sys::net::{AF_UNIX, MSG_CMSG_CLOEXEC, MSG_CTRUNC, MSG_DONTWAIT, MSG_NOSIGNAL, SOCK_STREAM};

use super::errno::{Errno, Result};
use super::fd::{Fd, Owned};
use super::raw::{call, read, uint, write};

/// Most descriptors in one message.
const MAX_FDS: usize = 16;

/// `struct msghdr`, its pointers as numbers.
#[repr(C)]
struct Message {
    name: usize,
    name_len: usize,
    vectors: usize,
    vector_count: usize,
    control: usize,
    control_len: usize,
    flags: usize,
}

/// `struct cmsghdr` and its descriptors.
#[repr(C)]
struct Rights<const N: usize> {
    len: usize,
    level: u32,
    kind: u32,
    fds: [i32; N],
}

const SOL_SOCKET: u32 = 1;
const SCM_RIGHTS: u32 = 1;
/// Bytes of a `Rights` before its descriptors.
const HEADER: usize = 16;

const SOCK_CLOEXEC: u32 = 0x0008_0000;
/// Its calls answer `EAGAIN` instead of waiting.
pub(super) const SOCK_NONBLOCK: u32 = 0x0000_0800;

/// A socket of a family, close-on-exec.
pub(super) fn socket(family: u32, kind: u32) -> Result<Owned> {
    // SAFETY: the call takes numbers alone; the kernel touches no memory of ours.
    unsafe { call(__NR_socket, [uint(family), uint(kind | SOCK_CLOEXEC), 0]) }.map(Owned::new)
}

/// `struct ifreq` with a number, of which flags are the lower half, or with the address of what a request reads; padded to the size
/// that the kernel copies.
#[repr(C)]
pub(super) struct InterfaceRequest {
    name: [u8; 16],
    pub(super) value: usize,
    rest: [u8; 16],
}

impl InterfaceRequest {
    pub(super) fn of(name: &[u8], value: usize) -> Self {
        let mut request = Self { name: [0; 16], value, rest: [0; 16] };
        for (to, from) in request.name.iter_mut().zip(name) {
            *to = *from;
        }
        request
    }
}

/// An option whose value is 1.
pub(super) fn switch_on(socket: Fd, level: u32, option: u32) -> Result<()> {
    let on: u32 = 1;
    let arguments = [socket.raw(), uint(level), uint(option), read(&on), size_of::<u32>()];
    // SAFETY: the option's value is the four bytes of `on`.
    unsafe { call(__NR_setsockopt, arguments) }.map(drop)
}

/// Sends all bytes, and the descriptors with the first of them.
///
/// # Errors
/// `EMSGSIZE` for more than 16 descriptors; `EPIPE` when nobody is there any more.
pub fn send(socket: Fd, bytes: &[u8], fds: &[Fd]) -> Result<()> {
    let mut rights: Rights<MAX_FDS> = Rights { len: 0, level: SOL_SOCKET, kind: SCM_RIGHTS, fds: [-1; MAX_FDS] };
    if fds.len() > MAX_FDS {
        return Err(Errno::EMSGSIZE);
    }
    for (place, fd) in rights.fds.iter_mut().zip(fds) {
        *place = fd.number();
    }
    rights.len = HEADER.saturating_add(fds.len().saturating_mul(size_of::<i32>()));
    let mut rest = bytes;
    while !rest.is_empty() {
        let first = rest.len() == bytes.len() && !fds.is_empty();
        let vector = [read(rest), rest.len()];
        let message = Message {
            name: 0,
            name_len: 0,
            vectors: read(&vector),
            vector_count: 1,
            control: if first { read(&rights) } else { 0 },
            control_len: if first { rights.len } else { 0 },
            flags: 0,
        };
        // SAFETY: a msghdr of one vector over a valid slice, and control bytes that lie within `rights`.
        let sent = unsafe { call(__NR_sendmsg, [socket.raw(), read(&message), uint(MSG_NOSIGNAL)]) }?;
        rest = rest.get(sent..).unwrap_or(&[]);
    }
    Ok(())
}

/// The descriptors that can come along: three, as a program has streams.
pub type StdioFds = [Owned; 3];

/// Receives at least one byte, and the three descriptors that came along with it; 0 bytes = the other side is gone.
///
/// # Errors
/// `EAGAIN` when nothing is there and `wait` is false; `EMFILE` when there was no room for descriptors, or more than three;
/// `EPROTO` when there were fewer.
pub fn receive(socket: Fd, to: &mut [u8], wait: bool) -> Result<(usize, Option<StdioFds>)> {
    const ROOM: usize = HEADER + 3 * size_of::<i32>();
    let mut rights: Rights<3> = Rights { len: 0, level: 0, kind: 0, fds: [-1; 3] };
    let vector = [write(to), to.len()];
    let mut message = Message {
        name: 0,
        name_len: 0,
        vectors: read(&vector),
        vector_count: 1,
        control: write(&mut rights),
        control_len: ROOM,
        flags: 0,
    };
    let flags = MSG_CMSG_CLOEXEC | if wait { 0 } else { MSG_DONTWAIT };
    // SAFETY: a msghdr of one vector over a valid slice, with `ROOM` bytes for control that lie within `rights`.
    let count = unsafe { call(__NR_recvmsg, [socket.raw(), write(&mut message), uint(flags)]) }?;
    let came = rights.len.saturating_sub(HEADER) / size_of::<i32>();
    let known = rights.level == SOL_SOCKET && rights.kind == SCM_RIGHTS;
    let fds = rights.fds.map(|fd| u32::try_from(fd).ok().map(|number| Owned::adopt(Fd::new(number))));
    // The low half: what lies behind it is padding.
    if message.flags & uint(MSG_CTRUNC) != 0 {
        return Err(Errno::EMFILE);
    }
    match fds {
        [None, None, None] if came == 0 => Ok((count, None)),
        [Some(first), Some(second), Some(third)] if known && came == 3 => Ok((count, Some([first, second, third]))),
        [_, _, _] => Err(Errno::EPROTO),
    }
}

/// `struct sockaddr_un`.
#[repr(C)]
struct Address {
    family: u16,
    path: [u8; 108],
}

/// A stream to who listens at a path, close-on-exec. Two calls.
///
/// # Errors
/// `ENOENT`: nobody ever listened there. `ECONNREFUSED`: nobody does any more. `ENAMETOOLONG`.
pub fn connect(path: &CStr) -> Result<Owned> {
    const UNIX: u16 = 1;
    let mut address = Address { family: UNIX, path: [0; 108] };
    let bytes = path.to_bytes_with_nul();
    address.path.get_mut(..bytes.len()).ok_or(Errno::ENAMETOOLONG)?.copy_from_slice(bytes);
    let socket = socket(AF_UNIX, SOCK_STREAM)?;
    // SAFETY: connect reads an address of the given size.
    unsafe { call(__NR_connect, [socket.fd().raw(), read(&address), size_of::<Address>()]) }?;
    Ok(socket)
}

/// Binds a socket of `AF_VSOCK` to a port of this machine's own address, whatever that is.
///
/// # Errors
/// `EACCES`: a port below 1024 without CAP_NET_BIND_SERVICE. `EADDRINUSE`. `EAFNOSUPPORT`: it is another socket.
pub fn bind_vsock(socket: Fd, port: u32) -> Result<()> {
    const VSOCK: u8 = 40;
    // `struct sockaddr_vm`: family, nothing, port, address (all ones: any), and nothing more.
    let mut address = [0_u8; 16];
    address[0] = VSOCK;
    address[4..8].copy_from_slice(&port.to_le_bytes());
    address[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    // SAFETY: the kernel reads the 16 bytes of the address.
    unsafe { call(__NR_bind, [socket.raw(), read(&address), 16]) }.map(drop)
}

/// The errno of an attempt to make a socket; 0 = it worked (and is closed again).
#[must_use]
pub fn socket_errno(family: u32, kind: u32, protocol: u32) -> i32 {
    // SAFETY: the call takes numbers alone; the kernel touches no memory of ours.
    Errno::of(&unsafe { call(__NR_socket, [uint(family), uint(kind), uint(protocol)]) }.map(Owned::new))
}
