//! The MCP gateway against a server that counts and misbehaves, and clients of both revisions.
//!
//! Here servers run without a sandbox: what they may do on the host is not the question, what passes the gateway is.
#![forbid(unsafe_code)]
#![expect(missing_docs, reason = "tests are sentences")]

mod approvals;
mod eras;
mod hostile;
mod http;
mod life;
mod names;
mod passing;
mod results;
mod stage;
