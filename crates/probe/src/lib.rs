//! System calls that ordinary programs do not make, for checks of what a confinement really stops.
//!
//! # Promises
//! Each function is safe to call and changes nothing outside the calling process tree, or says in its documentation what it
//! changes. Where a call could do harm it is made with arguments that the kernel refuses *after* the question of permission,
//! so that the errno answers the question and nothing happens ([`calls`]).
//!
//! # Does not promise
//! Meaning: whether an errno is good news is for the caller to say.
//!
//! # Kernel facts
//! Read at 6.18; a call that this kernel does not have answers ENOSYS.
//!
//! This is a room of its own, beside `sys`, so that nothing of the product but `attack` can make these calls.
#![expect(unsafe_code, reason = "attack payloads; nothing of the product but `attack` may import it")]

pub mod arch;
pub mod calls;
pub mod doors;
pub mod hide;
pub mod ipc;
pub mod net;
pub mod question;
pub mod task;

use rustix::io::Errno;

/// Makes a system call whose arguments are numbers, null, or addresses of statics.
fn call(number: libc::c_long, args: [usize; 6]) -> rustix::io::Result<usize> {
    let [a, b, c, d, e, f] = args;
    // SAFETY: private to this crate, whose callers pass numbers, null, descriptors, or pointers to values that outlive the
    // call and have the type that the call reads or writes; no row of it unmaps or changes memory of this process.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    usize::try_from(result).map_err(|_negative| last_errno())
}

/// The errno of the call that just failed.
fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// A result of the C library as a result.
fn checked(result: libc::c_int) -> rustix::io::Result<libc::c_int> {
    if result < 0 { Err(last_errno()) } else { Ok(result) }
}
