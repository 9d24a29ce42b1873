//! Signals: blocked and read from a descriptor, never handled.

use linux_raw_sys::general::{
    __NR_kill, __NR_rt_sigaction, __NR_rt_sigprocmask, __NR_signalfd4, O_CLOEXEC, SIG_SETMASK,
};

use super::errno::Result;
use super::fd::Owned;
use super::raw::{call, int, read, uint};
use crate::arch::KernelSigaction;

/// SIGKILL.
pub const SIGKILL: i32 = 9;
/// SIGCHLD.
pub const SIGCHLD: u32 = 17;
const SIGSTOP: u32 = 19;

/// Blocks all signals, or none.
///
/// # Errors
/// None that the kernel documents for this use.
pub fn block_all(block: bool) -> Result<()> {
    let set: u64 = if block { u64::MAX } else { 0 };
    // SAFETY: a set of 8 bytes to read, nothing to write.
    unsafe { call(__NR_rt_sigprocmask, [uint(SIG_SETMASK), read(&set), 0, size_of::<u64>()]) }.map(drop)
}

/// These signals (bit n - 1 = signal n) do again what they do by default: an ignored one would stay ignored over an exec.
/// One call for each.
///
/// # Errors
/// None that the kernel documents for this use.
pub fn default_signals(which: u64) -> Result<()> {
    let default = KernelSigaction::default();
    for signal in (1..=64).filter(|signal| *signal != SIGKILL.unsigned_abs() && *signal != SIGSTOP) {
        if which >> (signal - 1) & 1 == 0 {
            continue;
        }
        // SAFETY: a kernel_sigaction to read, nothing to write; SIG_DFL runs no code of ours.
        unsafe { call(__NR_rt_sigaction, [uint(signal), read(&default), 0, size_of::<u64>()]) }?;
    }
    Ok(())
}

/// A descriptor that tells of SIGCHLD; it never makes its reader wait.
///
/// # Errors
/// `EMFILE` and the like.
pub fn children_fd() -> Result<Owned> {
    const O_NONBLOCK: u32 = 0o4000;
    let set = 1_u64 << (SIGCHLD - 1);
    // SAFETY: a set of 8 bytes to read.
    unsafe { call(__NR_signalfd4, [usize::MAX, read(&set), size_of::<u64>(), uint(O_CLOEXEC | O_NONBLOCK)]) }
        .map(Owned::new)
}

/// kill(2). `pid` -1 is everybody that we may signal, below that the group of that number.
///
/// # Errors
/// `ESRCH`, `EPERM`.
pub fn kill(pid: i32, signal: i32) -> Result<()> {
    // SAFETY: the call takes numbers alone; the kernel touches no memory of ours.
    unsafe { call(__NR_kill, [int(pid), int(signal)]) }.map(drop)
}
