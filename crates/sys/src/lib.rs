//! Linux as Fumehood needs it: a safe interface in the kernel's own terms.
//!
//! This is the room with the product's `unsafe` code; attack payloads are in `probe`. It knows no word of the product,
//! writes no log and prints nothing: a caller gets a value or an error with the call, the object and the errno.
//!
//! Two halves. [`bare`] is for the guest: no allocation, no C library, no destructor that matters.
//! Everything else is for the supervisor and needs the feature `std`.
#![cfg_attr(not(feature = "std"), no_std)]
#![expect(unsafe_code, reason = "this is the room for it; every block carries its argument")]

pub mod arch;
pub mod bare;
#[cfg(feature = "std")]
pub mod caller;
#[cfg(feature = "std")]
pub mod cgroup;
#[cfg(feature = "std")]
pub mod channel;
#[cfg(feature = "std")]
pub mod command;
#[cfg(feature = "std")]
pub mod datagram;
#[cfg(feature = "std")]
pub mod error;
#[cfg(feature = "std")]
pub mod fork;
#[cfg(feature = "std")]
pub mod fsids;
#[cfg(feature = "std")]
pub mod idmap;
#[cfg(feature = "std")]
pub mod inlet;
#[cfg(feature = "javascript")]
pub mod javascript;
#[cfg(feature = "std")]
pub mod landlock;
#[cfg(feature = "std")]
pub mod links;
#[cfg(feature = "std")]
pub mod machine;
#[cfg(feature = "std")]
pub mod memfd;
#[cfg(feature = "std")]
pub mod memory;
#[cfg(feature = "std")]
pub mod network;
#[cfg(feature = "std")]
pub mod path_walk;
#[cfg(feature = "std")]
pub mod paths;
#[cfg(feature = "std")]
pub mod pidfd;
#[cfg(feature = "std")]
pub mod proc;
#[cfg(feature = "std")]
pub mod random;
#[cfg(feature = "std")]
pub mod reap;
#[cfg(feature = "std")]
pub mod rlimit;
#[cfg(feature = "std")]
pub mod scheduling;
#[cfg(feature = "std")]
pub mod seccomp;
#[cfg(feature = "std")]
pub mod shared;
#[cfg(feature = "std")]
pub mod signals;
#[cfg(feature = "std")]
pub mod spawn;
#[cfg(feature = "std")]
pub mod table;
#[cfg(feature = "std")]
pub mod terminal;
#[cfg(feature = "std")]
pub mod tree;
#[cfg(feature = "std")]
pub mod writers;
