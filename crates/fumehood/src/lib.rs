//! Fumehood: a sandbox for AI agents that enforces or refuses.
//!
//! The rooms outside the sandbox that are not a backend, in the order in which one run meets them: `cli` (what was
//! asked), `state` (where we keep what outlives a run), `audit` (the record that cannot be edited unseen), `protect`
//! (control files that a run must not plant), `changes` (what a run did to its workspace, kept aside until it is taken).
#![forbid(unsafe_code)]

pub mod attack;
pub mod audit;
pub mod changes;
pub mod cli;
pub mod doctor;
pub mod fault;
pub mod mcp;
mod packed;
pub mod protect;
pub mod run;
pub mod serve;
pub mod state;
pub mod ui;
