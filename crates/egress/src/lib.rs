//! What a sandbox may reach by name: parsers of what its programs send, and a judge over the rules of a policy.
//!
//! # Promises
//! Pure: no system call, no clock, no socket, but for the keys and dates of [`authority`]. Every parser is bounded, panics on nothing, and refuses what two readers could
//! take differently. What is not allowed by a rule is denied with one record that says what, why and what to do instead.
//! # Does not promise
//! That anybody asks: the process that holds the sandbox's sockets (`broker`) does.
#![forbid(unsafe_code)]

pub mod address;
pub mod authority;
pub mod denial;
pub mod dns;
pub mod hello;
pub mod host;
pub mod http;
pub mod judge;
pub mod names;
pub mod pattern;
pub mod secret;
pub mod wire;
