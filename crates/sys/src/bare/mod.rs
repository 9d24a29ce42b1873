//! What the guest needs of the kernel: raw calls without allocation and without a C library.
//!
//! # Promises
//! Nothing here allocates or panics or keeps state; a function is one system call unless it says otherwise, and
//! answers with the kernel's errno.
//! # Does not promise
//! I/O safety between parts of one process: [`Fd`] is a number, as the guest gets most of its descriptors by number.
//! [`Owned`] closes itself, but nothing keeps a number from outliving it.

mod attempt;
mod capability;
mod errno;
mod exec;
mod fd;
mod file;
mod identity;
mod landlock;
mod link;
mod memory;
mod mount;
mod netlink;
mod network;
mod process;
mod random;
mod raw;
mod runtime;
mod seccomp;
mod signal;
mod socket;
mod tty;
mod veth;

pub use attempt::{EPERM, answered, attempt, can_attempt, harmless};
pub use capability::*;
pub use errno::{Errno, Result};
pub use exec::{Pointers, execute_descriptor, execve};
pub use fd::{CloseList, Fd, LAST_FD, Owned, close, close_range, duplicate_to, open_bitmap, poll_readable};
pub use file::*;
pub use identity::*;
pub use landlock::*;
pub use link::{DEVICE, GATEWAY, LINK, MACHINE, MACHINE6, join_link, make_link};
pub use memory::{copy_sealed, map_bytes, map_sealed, map_words};
pub use mount::*;
pub use network::{add_local_route, inlet, is_local, loopback_up, reach};
pub use process::*;
pub use random::reseed;
pub use runtime::exit;
#[doc(hidden)]
pub use runtime::{die, start};
pub use seccomp::{no_new_privs, seccomp_mode, set_asking_filter, set_filter, set_no_new_privs};
pub use signal::*;
pub use socket::{StdioFds, bind_vsock, connect, receive, send, socket_errno};
pub use tty::*;
pub use veth::{OUTSIDE, add_pair, set_inside, set_outside};
