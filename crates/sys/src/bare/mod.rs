//! What the guest needs of the kernel: raw calls without allocation and without a C library.
//!
//! # Promises
//! Nothing here allocates, panics, or keeps state; every call is one system call and answers with the kernel's errno.
//! # Does not promise
//! I/O safety between parts of one process: [`Fd`] is a number, as the guest gets most of its descriptors by number.
//!
//! A child that shares our memory (clone with `CLONE_VM`) may call anything here but what allocates a mapping.
#![expect(unsafe_code, reason = "system calls; the guest itself forbids unsafe code")]

mod errno;
mod raw;
mod runtime;

pub use errno::{Errno, Result};
pub use runtime::exit;
#[doc(hidden)]
pub use runtime::{die, start};
