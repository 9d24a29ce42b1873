//! The kernel's generator of random bytes, given fresh ones: for a machine whose memory began as that of others.

use linux_raw_sys::general::__NR_ioctl;

use super::errno::Result;
use super::fd::Fd;
use super::raw::{call, read, uint};

/// `_IOW('R', 3, int[2])`: bytes, and how many of their bits count as random.
const RNDADDENTROPY: u32 = 0x4008_5203;
/// `_IO('R', 7)`: what is given out from now on comes of a new key, on each processor.
const RNDRESEEDCRNG: u32 = 0x5207;

/// `struct rand_pool_info`, with its bytes.
#[repr(C)]
struct Fresh {
    bits: i32,
    size: i32,
    bytes: [u8; 32],
}

/// Mixes bytes that nobody else has into the generator behind `/dev/random`, and has it begin anew with them: two calls.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN`; `ENOTTY` for what is no such device.
pub fn reseed(device: Fd, bytes: [u8; 32]) -> Result<()> {
    let fresh = Fresh { bits: 256, size: 32, bytes };
    // SAFETY: RNDADDENTROPY reads the two numbers and as many bytes behind them as `size` says, all of which are `fresh`.
    unsafe { call(__NR_ioctl, [device.raw(), uint(RNDADDENTROPY), read(&fresh)]) }?;
    // SAFETY: RNDRESEEDCRNG takes no argument.
    unsafe { call(__NR_ioctl, [device.raw(), uint(RNDRESEEDCRNG), 0]) }.map(drop)
}
