//! The server on the wire, over supervisors and agents in this process.

mod clients;
mod control;
mod data;
mod native;
mod stage;
