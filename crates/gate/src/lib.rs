//! The judge of an agent's tool calls and commands: one call or command line in, one decision out.
//!
//! It decides and does nothing else: no clock, no network, no environment, no state. What it must ask of the machine (where a
//! path leads, which file a program is, what a repository configures) it asks through one module, `files`. Errors are denials.
#![forbid(unsafe_code)]

mod blocked;
pub mod call;
pub mod command;
mod control_files;
pub mod demand;
mod files;
pub mod guard;
pub mod invisible;
pub mod json;
pub mod names;
pub mod result;
pub mod rules;
pub mod schema;
mod stack;
pub mod tools;
pub mod verdict;

pub use blocked::Blocked;
pub use call::{Call, Caller, ToolFacts};
pub use tools::{Gate, Listed, ToolJudgement};
pub use verdict::{Reason, Verdict};
