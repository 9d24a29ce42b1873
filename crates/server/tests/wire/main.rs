//! The server on the wire, over supervisors and agents in this process.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test that cannot go on fails")]

mod bounds;
mod builds;
mod carriers;
mod ceilings;
mod clients;
mod control;
mod data;
mod hangups;
mod interpreter;
mod jupyter;
mod kept;
mod metrics;
mod native;
mod others;
mod page;
mod schema;
mod stage;
mod templates;
mod terminal;
