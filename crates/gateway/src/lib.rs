//! The gateway that an agent's tool calls pass: judged by the [gate], counted, asked about, bounded, recorded.
//!
//! [`Broker`](broker) adds to the pure gate what has a state: counters, people, time, the record. Every front door (MCP, HTTP,
//! Python, command line) speaks to the broker and to nothing else. Errors are denials.
#![forbid(unsafe_code)]

pub mod approvals;
pub mod broker;
pub mod clock;
pub mod engine;
mod given_up;
pub mod http;
pub mod limits;
pub mod mcp;
pub mod pipe;
pub mod record;
pub mod tool_route;

pub use broker::{Broker, CallOutcome, Meters};
pub use record::{Event, Record};
