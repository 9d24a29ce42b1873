//! The agent in this process, in a thread, with the test as its supervisor.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a surprise in a test is a failed test"
)]

mod client;
#[cfg(feature = "embed")]
mod embedded;
mod files;
mod flow;
mod net;
mod programs;
mod tar;
mod watch;
