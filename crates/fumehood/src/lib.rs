//! Fumehood: a sandbox for AI agents that enforces or refuses.
//!
//! What a person or a program calls: the command line (`cli`, `ui`), one run (`run`), the servers (`mcp`, `serve`), and what
//! looks at the host (`doctor`). What surrounds a run lies in the crate `sandbox`.
#![forbid(unsafe_code)]

mod agents;
mod approvals;
mod bench;
mod broker;
mod bzimage;
mod changes;
mod choose;
pub mod cli;
pub mod doctor;
pub mod environment;
mod explain;
mod folder;
pub mod learn;
pub mod load;
mod machine;
pub mod mcp;
#[cfg(feature = "mutation")]
pub mod mutation;
mod oci;
pub mod program;
mod replace;
mod replay;
pub mod run;
pub mod serve;
pub mod ui;
