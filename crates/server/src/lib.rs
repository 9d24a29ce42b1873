//! The HTTP server of live sandboxes.
//!
//! It keeps nothing that a crash can lose: sandboxes are those of the state folder, each with a supervisor of its own.
#![forbid(unsafe_code)]
