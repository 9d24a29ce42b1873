//! The control socket: bytes, and descriptors along with them.

use linux_raw_sys::general::{__NR_recvfrom, __NR_sendmsg, __NR_socket};
use linux_raw_sys::net::{MSG_DONTWAIT, MSG_NOSIGNAL};

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
struct Rights {
    len: usize,
    level: u32,
    kind: u32,
    fds: [i32; MAX_FDS],
}

/// Sends all bytes, and the descriptors with the first of them.
///
/// # Errors
/// `EMSGSIZE` for more than 16 descriptors; `EPIPE` when nobody is there any more.
pub fn send(socket: Fd, bytes: &[u8], fds: &[Fd]) -> Result<()> {
    const SOL_SOCKET: u32 = 1;
    const SCM_RIGHTS: u32 = 1;
    const HEADER: usize = 16;
    let mut rights = Rights { len: 0, level: SOL_SOCKET, kind: SCM_RIGHTS, fds: [-1; MAX_FDS] };
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

/// Receives at least one byte; 0 = the other side is gone. Descriptors that come along are dropped by the kernel.
///
/// # Errors
/// `EAGAIN` when nothing is there and `wait` is false.
pub fn receive(socket: Fd, to: &mut [u8], wait: bool) -> Result<usize> {
    let flags = if wait { 0 } else { MSG_DONTWAIT };
    // SAFETY: the slice is valid for its length; no address is asked for.
    unsafe { call(__NR_recvfrom, [socket.raw(), write(to), to.len(), uint(flags), 0, 0]) }
}

/// The errno of an attempt to make a socket; 0 = it worked (and is closed again).
#[must_use]
pub fn socket_errno(family: u32, kind: u32, protocol: u32) -> i32 {
    // SAFETY: the call takes numbers alone; the kernel touches no memory of ours.
    Errno::of(&unsafe { call(__NR_socket, [uint(family), uint(kind), uint(protocol)]) }.map(Owned::new))
}
