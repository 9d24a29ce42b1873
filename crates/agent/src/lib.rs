//! The protocol of live sandboxes: what their callers, their supervisor and the agent inside say to one another.
//!
//! The same frames and the same requests go from a caller to the supervisor (over its unix socket) and from the supervisor to
//! the agent (over a socket pair, or any other carrier of bytes).
//!
//! # Promises
//! Every frame and every text has an upper bound; what is not as it should be is an error, not something to skip. What comes
//! from an agent is hostile: decoding panics on nothing.
#![forbid(unsafe_code)]

pub mod frame;
pub mod words;
