//! The filter of system calls.

use linux_raw_sys::general::__NR_seccomp;
use linux_raw_sys::prctl::{PR_GET_NO_NEW_PRIVS, PR_GET_SECCOMP, PR_SET_NO_NEW_PRIVS};

use super::capability::control;
use super::errno::{Errno, Result};
use super::fd::Owned;
use super::raw::{call, read, small, uint};

/// `struct sock_fprog` with its pointer as a number.
#[repr(C)]
struct Program {
    len: u16,
    instructions: usize,
}

/// Installs a filter of `struct sock_filter`s (8 bytes each) for this thread.
///
/// # Errors
/// `EINVAL` for a program that the kernel refuses, an empty one and one with a torn instruction included.
pub fn set_filter(instructions: &[u8]) -> Result<()> {
    set(instructions, 0).map(drop)
}

/// The same of one that asks about some calls: the descriptor from which whoever holds it is asked. A signal that does not end
/// the thread does not end its question, once that was heard.
///
/// # Errors
/// As [`set_filter`]; `EBUSY`: a filter that asks is on already.
pub fn set_asking_filter(instructions: &[u8]) -> Result<Owned> {
    const SECCOMP_FILTER_FLAG_NEW_LISTENER: u32 = 1 << 3;
    const SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV: u32 = 1 << 5;
    set(instructions, SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV).map(Owned::new)
}

fn set(instructions: &[u8], flags: u32) -> Result<usize> {
    const SECCOMP_SET_MODE_FILTER: u32 = 1;
    if instructions.is_empty() || !instructions.len().is_multiple_of(8) {
        return Err(Errno::EINVAL);
    }
    let len = u16::try_from(instructions.len() / 8).or(Err(Errno::EINVAL))?;
    let program = Program { len, instructions: read(instructions) };
    // SAFETY: a sock_fprog whose `len` instructions of 8 bytes are all in the slice; the kernel copies them.
    unsafe { call(__NR_seccomp, [uint(SECCOMP_SET_MODE_FILTER), uint(flags), read(&program)]) }
}

/// PR_GET_SECCOMP.
///
/// # Errors
/// That of the filter itself, if it denies the question.
pub fn seccomp_mode() -> Result<i32> {
    control(PR_GET_SECCOMP, 0).map(small)
}

/// No exec gives privileges any more.
///
/// # Errors
/// None that the kernel documents for this use.
pub fn set_no_new_privs() -> Result<()> {
    control(PR_SET_NO_NEW_PRIVS, 1).map(drop)
}

/// PR_GET_NO_NEW_PRIVS.
///
/// # Errors
/// None that the kernel documents for this use.
pub fn no_new_privs() -> Result<bool> {
    control(PR_GET_NO_NEW_PRIVS, 0).map(|set| set == 1)
}
