//! Capabilities, securebits and what else prctl(2) holds.

use linux_raw_sys::general::{
    __NR_capget, __NR_capset, __NR_prctl, __user_cap_data_struct, __user_cap_header_struct, _LINUX_CAPABILITY_VERSION_3,
};
use linux_raw_sys::prctl::{
    PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, PR_CAP_AMBIENT_IS_SET, PR_CAPBSET_DROP, PR_GET_DUMPABLE,
    PR_GET_PDEATHSIG, PR_GET_SECUREBITS, PR_SET_CHILD_SUBREAPER, PR_SET_DUMPABLE, PR_SET_PDEATHSIG, PR_SET_SECUREBITS,
};

use super::errno::{Errno, Result};
use super::raw::{call, read, small, uint, write};

/// Inheritable, permitted and effective capabilities.
pub type Sets = [u64; 3];

pub(super) fn control(option: u32, argument: u32) -> Result<usize> {
    // SAFETY: only options whose arguments are numbers are passed by the functions of this room.
    unsafe { call(__NR_prctl, [uint(option), uint(argument), 0, 0, 0]) }
}

const SELF: __user_cap_header_struct = __user_cap_header_struct { version: _LINUX_CAPABILITY_VERSION_3, pid: 0 };

/// capget(2).
///
/// # Errors
/// None that the kernel documents for this use.
pub fn capabilities() -> Result<Sets> {
    let mut header = SELF;
    let mut halves = [__user_cap_data_struct { effective: 0, permitted: 0, inheritable: 0 }; 2];
    // SAFETY: version 3 reads the header and writes two halves.
    unsafe { call(__NR_capget, [write(&mut header), write(&mut halves)]) }?;
    let [low, high] = halves;
    let join = |low: u32, high: u32| u64::from(low) | (u64::from(high) << 32);
    Ok([
        join(low.inheritable, high.inheritable),
        join(low.permitted, high.permitted),
        join(low.effective, high.effective),
    ])
}

/// capset(2) to nothing.
///
/// # Errors
/// None that the kernel documents for this use.
pub fn drop_capabilities() -> Result<()> {
    let mut header = SELF;
    let nothing = [__user_cap_data_struct { effective: 0, permitted: 0, inheritable: 0 }; 2];
    // SAFETY: version 3 reads the header (and may correct it) and two halves.
    unsafe { call(__NR_capset, [write(&mut header), read(&nothing)]) }.map(drop)
}

/// Empties the bounding set. One call for each capability that the kernel knows.
///
/// # Errors
/// `EPERM` without CAP_SETPCAP.
pub fn drop_bounding() -> Result<()> {
    for capability in 0..64 {
        match control(PR_CAPBSET_DROP, capability) {
            Ok(_) => {}
            // The first number that the kernel does not know.
            Err(Errno::EINVAL) => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// The ambient set. One call for each capability that the kernel knows.
///
/// # Errors
/// None that the kernel documents for this use.
pub fn ambient() -> Result<u64> {
    let mut set = 0;
    for capability in 0..64 {
        let arguments = [uint(PR_CAP_AMBIENT), uint(PR_CAP_AMBIENT_IS_SET), uint(capability), 0, 0];
        // SAFETY: the call takes numbers alone; the kernel touches no memory of ours.
        match unsafe { call(__NR_prctl, arguments) } {
            Ok(held) => set |= u64::from(held != 0) << capability,
            Err(Errno::EINVAL) => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(set)
}

/// Empties the ambient set.
///
/// # Errors
/// None that the kernel documents for this use.
pub fn clear_ambient() -> Result<()> {
    control(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL).map(drop)
}

/// Securebits of prctl(2).
///
/// # Errors
/// `EPERM` without CAP_SETPCAP, or for a locked bit.
pub fn set_securebits(bits: u32) -> Result<()> {
    control(PR_SET_SECUREBITS, bits).map(drop)
}

/// Securebits of prctl(2).
///
/// # Errors
/// None that the kernel documents for this use.
pub fn securebits() -> Result<u32> {
    control(PR_GET_SECUREBITS, 0).map(|bits| small(bits).unsigned_abs())
}

/// Whether we may be traced, read and dumped.
///
/// # Errors
/// None that the kernel documents for this use.
pub fn set_dumpable(dumpable: bool) -> Result<()> {
    control(PR_SET_DUMPABLE, u32::from(dumpable)).map(drop)
}

/// PR_GET_DUMPABLE.
///
/// # Errors
/// None that the kernel documents for this use.
pub fn dumpable() -> Result<i32> {
    control(PR_GET_DUMPABLE, 0).map(small)
}

/// The signal that we get when our parent dies; 0 = none.
///
/// # Errors
/// `EINVAL` for a number that is no signal.
pub fn set_death_signal(signal: u32) -> Result<()> {
    control(PR_SET_PDEATHSIG, signal).map(drop)
}

/// PR_GET_PDEATHSIG.
///
/// # Errors
/// None that the kernel documents for this use.
pub fn death_signal() -> Result<i32> {
    let mut signal = 0_i32;
    // SAFETY: the option writes one i32.
    unsafe { call(__NR_prctl, [uint(PR_GET_PDEATHSIG), write(&mut signal), 0, 0, 0]) }?;
    Ok(signal)
}

/// Orphans below us become our children.
///
/// # Errors
/// None that the kernel documents for this use.
pub fn become_subreaper() -> Result<()> {
    control(PR_SET_CHILD_SUBREAPER, 1).map(drop)
}
