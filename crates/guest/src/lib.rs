//! The program inside the sandbox, and the words that it and the supervisor share.
//!
//! The supervisor writes a [`config`], starts the program ([`ELF`]) and speaks [`frames`] with it. The program
//! confines itself in the order of [`step::Step`], tells what is in force (its posture), waits for *go*, and then
//! stays as init: it reaps, forwards signals and reports the end. Where the config says so it outlives its first program and
//! starts others.
//!
//! # Promises
//! Nothing here allocates or panics without the feature `std`; every byte that is decoded is checked, on both sides.
//! # Does not promise
//! To judge: the supervisor compares the posture with the plan.
#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]

mod child;
pub mod config;
mod confine;
mod fault;
pub mod frames;
mod identity;
mod init;
mod layers;
mod link;
mod links;
mod mounts;
mod network;
mod paths;
mod posture;
mod programs;
mod ready;
mod runtime_entry;
mod state;
pub mod step;
mod text;
mod wire;

pub use confine::{CALLS_AFTER_SECCOMP, run as main};
pub use text::Text;

/// The program, ready for a sealed memfd: static, without a C library, without relocations.
#[cfg(feature = "embed")]
pub static ELF: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/guest.elf"));
