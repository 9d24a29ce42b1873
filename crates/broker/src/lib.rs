//! The gate that an agent's tool calls and commands pass: judged, counted, asked about, bounded, recorded.
//!
//! [`Gate`](gate) decides and is pure; [`Broker`](broker) adds what has a state: counters, people, time, the record. Every front
//! door (MCP, HTTP, Python, command line) speaks to the broker and to nothing else. Errors are denials.
#![forbid(unsafe_code)]

pub mod approvals;
pub mod broker;
pub mod call;
pub mod command;
pub mod gate;
pub mod guard;
pub mod http;
pub mod json;
pub mod limits;
pub mod mcp;
pub mod names;
pub mod pipe;
pub mod record;
pub mod result;
pub mod rules;
pub mod schema;
mod stack;
mod unseen;
pub mod verdict;

pub use broker::{Answer, Broker, Meters};
pub use call::{Call, Caller, ToolFacts};
pub use gate::{Gate, Judged, Listed};
pub use record::{Event, Record};
pub use verdict::{Reason, Verdict};
