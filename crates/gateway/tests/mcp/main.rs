//! The MCP gateway against a server that counts and misbehaves, and clients of both revisions.
//!
//! Here servers run without a sandbox: what they may do on the host is not the question, what passes the gateway is.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails loudly"
)]

mod approvals;
mod ends;
mod expired;
mod hostile;
mod http;
mod life;
mod names;
mod passing;
mod protocols;
mod pushed;
mod results;
mod stage;
