//! Hostile bytes against everything that reads bytes of somebody else: nothing panics, nothing hangs, and what is accepted
//! is what it says.
//!
//! One target for each reader. Seeds are the examples of the docs and what our own side writes; an engine on stable Rust
//! mutates them for `FUMEHOOD_FUZZ_SECONDS` (2) each. An input that breaks a target is kept in `fuzz/found/`, named in the
//! failure, and tried again by every later run. `cargo test -p fumehood-conformance --test fuzz` runs it.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a surprise in a test is a failed test, and its counts and inputs are its report"
)]

mod engine;
mod targets;

use engine::fuzz;

#[test]
fn policy_documents() {
    fuzz("policy", &targets::policy::seeds(), targets::policy::TOKENS, targets::policy::read);
}

#[test]
fn frames_of_the_guest() {
    fuzz("frames", &targets::frames::seeds(), &[], targets::frames::read);
}

#[test]
fn the_config_that_the_guest_reads() {
    fuzz("config", &targets::config::seeds(), &[], targets::config::read);
}

#[test]
fn texts_of_proc() {
    fuzz("proc", &targets::proc::seeds(), targets::proc::TOKENS, targets::proc::read);
}

#[test]
fn manifests_of_changes() {
    let place = targets::manifest::Place::new();
    fuzz("manifest", &targets::manifest::seeds(), targets::manifest::TOKENS, |bytes| place.read(bytes));
}

#[test]
fn lines_of_the_audit_log() {
    fuzz("audit", &targets::audit::seeds(), targets::audit::TOKENS, targets::audit::read);
}
