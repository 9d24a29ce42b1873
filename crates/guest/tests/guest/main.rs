//! The guest, really started: in namespaces as root and without any privilege, and in the process tier.
//!
//! Cargo runs this under `scripts/private-mounts`, so that a mistake stays in a pid and mount namespace of its own.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]

mod container;
mod failures;
mod filter;
mod harness;
mod payload;
mod process;
mod speed;
mod stay;
mod terminal;
mod world;
