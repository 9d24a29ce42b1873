//! System calls that are made only to hear the kernel's answer: the proof that a filter is in force.
//!
//! Each of them changes nothing when it is not refused: its arguments are small numbers, which no pointer and no descriptor
//! of ours is, and the calls of the list do nothing with such numbers but fail.

use linux_raw_sys::general as nr;

use super::errno::{Errno, Result};
use super::raw::call;

/// Calls that may be attempted.
const HARMLESS: &[u32] = &[
    nr::__NR_bind,
    nr::__NR_fallocate,
    nr::__NR_fchmod,
    nr::__NR_fcntl,
    nr::__NR_fgetxattr,
    nr::__NR_flock,
    nr::__NR_getppid,
    nr::__NR_inotify_add_watch,
    nr::__NR_io_uring_setup,
    nr::__NR_memfd_create,
    nr::__NR_mmap,
    nr::__NR_prctl,
    nr::__NR_prlimit64,
    nr::__NR_ptrace,
    nr::__NR_seccomp,
    nr::__NR_sendto,
    nr::__NR_setns,
    nr::__NR_socket,
    nr::__NR_socketpair,
    nr::__NR_userfaultfd,
    nr::__NR_vmsplice,
];

/// The flag of sendto(2) that connects.
const MSG_FASTOPEN: u64 = 0x2000_0000;

const PR_SET_DUMPABLE: u64 = 4;

/// Below the lowest address that the kernel maps for anybody (`vm.mmap_min_addr` apart, which is no lower than one page).
const FIRST_PAGE: u64 = 4096;

/// Whether [`attempt`] makes this call.
#[must_use]
pub fn can_attempt(number: u32, args: &[u64; 6]) -> bool {
    let flag = |at: usize, value: u64| number == nr::__NR_sendto && at == 3 && value == MSG_FASTOPEN;
    let nowhere = |value: u64| value < FIRST_PAGE || value == u64::MAX || value == u64::from(u32::MAX);
    // Of these two only what the kernel refuses: a mapping of no bytes, and a value that PR_SET_DUMPABLE does not have.
    let refused = match (number, args) {
        (nr::__NR_mmap, [_, length, ..]) => *length == 0,
        (nr::__NR_prctl, [option, value, ..]) => *option == PR_SET_DUMPABLE && *value == 2,
        _ => true,
    };
    refused
        && HARMLESS.contains(&number)
        && args.iter().enumerate().all(|(at, value)| nowhere(*value) || flag(at, *value))
}

/// The errno with which the kernel, or a filter before it, answers; 0 = it worked.
///
/// # Errors
/// `EINVAL`: not one of the calls that can be attempted.
pub fn attempt(number: u32, args: &[u64; 6]) -> Result<i32> {
    if !can_attempt(number, args) {
        return Err(Errno::EINVAL);
    }
    let args = args.map(|value| usize::try_from(value).unwrap_or(usize::MAX));
    // SAFETY: no argument is an address of ours or a descriptor that is open, so that the kernel reads and writes nothing
    // of ours whichever call of the list this is.
    Ok(Errno::of(&unsafe { call(number, args) }))
}
