//! The backends `podman` and `docker` beside an engine that does not do what it is told, and beside a supervisor that is killed.
//!
//! `scripts/with-podman cargo test -p fumehood-conformance --test engines podman`, and the same of `docker`: the service is exchanged
//! here, which is not done to one that is there for others.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed"
)]

mod docker;
mod exchanged;
mod podman;
