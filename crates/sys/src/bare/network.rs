//! The one interface that a fresh network namespace has.

use linux_raw_sys::general::__NR_ioctl;
use linux_raw_sys::general::__NR_socket;
use linux_raw_sys::net::{AF_INET, SOCK_DGRAM};

use super::errno::Result;
use super::fd::Owned;
use super::raw::{call, read, uint};

/// `struct ifreq` with flags, padded to the size that the kernel copies.
#[repr(C)]
struct Request {
    name: [u8; 16],
    flags: u16,
    rest: [u8; 22],
}

/// `lo` up. Three calls.
///
/// # Errors
/// `EPERM` without CAP_NET_ADMIN over the network namespace.
pub fn loopback_up() -> Result<()> {
    const SIOCSIFFLAGS: u32 = 0x8914;
    const SOCK_CLOEXEC: u32 = 0x0008_0000;
    const IFF_UP_RUNNING: u16 = 0x41;
    // SAFETY: the call takes numbers alone; the kernel touches no memory of ours.
    let socket = unsafe { call(__NR_socket, [uint(AF_INET), uint(SOCK_DGRAM | SOCK_CLOEXEC), 0]) }.map(Owned::new)?;
    let mut request = Request { name: [0; 16], flags: IFF_UP_RUNNING, rest: [0; 22] };
    request.name[..2].copy_from_slice(b"lo");
    // SAFETY: SIOCSIFFLAGS reads an ifreq of 40 bytes.
    unsafe { call(__NR_ioctl, [socket.fd().raw(), uint(SIOCSIFFLAGS), read(&request)]) }.map(drop)
}
