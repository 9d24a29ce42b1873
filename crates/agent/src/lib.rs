//! The protocol of live sandboxes: what their callers, their supervisor and the agent inside say to one another; and the agent,
//! the program inside.
//!
//! The same frames and the same requests go from a caller to the supervisor (over its unix socket) and from the supervisor to
//! the agent (over a socket pair, or any other carrier of bytes).
//!
//! # Promises
//! Every frame and every text has an upper bound; what is not as it should be is an error, not something to skip. What comes
//! from an agent is hostile: decoding panics on nothing. The agent is one thread, asks the kernel with the rights of the
//! sandbox's user, and holds a bounded number of bytes for each stream.
//! # Does not promise
//! That the agent is to be believed: what runs beside it may be of the same user.
#![forbid(unsafe_code)]

mod files;
mod flow;
pub mod frame;
mod inside;
mod leftovers;
pub mod machine;
pub mod path_text;
mod serve;
mod starter;
mod task;
mod tree;
pub mod words;

pub use serve::serve;

/// The program: the first process of a machine, else the agent.
#[must_use]
pub fn main() -> std::process::ExitCode {
    if sys::caller::pid() == 1 && std::path::Path::new("/").join(machine::MODULES).exists() {
        machine::main()
    } else {
        serve::main()
    }
}

/// The program, static: it works in an empty root.
#[cfg(feature = "embed")]
pub static ELF: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/agent.elf"));
