//! Hostile bytes against everything that reads bytes of somebody else: nothing panics, nothing hangs, and what is accepted
//! is what it says.
//!
//! One target for each reader. Seeds are the examples of the docs and what our own side writes; an engine on stable Rust
//! mutates them for `FUMEHOOD_FUZZ_SECONDS` (2) each, at most `FUMEHOOD_FUZZ_INPUTS` times (without end). An input that
//! breaks a target is kept in `fuzz/found/`, named in the failure, and tried again by every later run.
//! `cargo test -p fumehood-conformance --test fuzz` runs it; what no other room may call has its target beside it and this engine
//! (`crates/broker/src/web/fuzz.rs`: HTTP/1 and HTTP/2 through the judge).
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a surprise in a test is a failed test, and its counts and inputs are its report"
)]

mod broker;
mod engine;
mod targets;
mod tools;

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
fn frames_and_words_of_live_sandboxes() {
    fuzz("live", &targets::live::seeds(), targets::live::TOKENS, targets::live::read);
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

#[test]
fn arguments_of_tools() {
    fuzz("arguments", &tools::arguments::seeds(), tools::arguments::TOKENS, tools::arguments::read);
}

#[test]
fn entries_of_a_policy() {
    fuzz("entries", &tools::entries::seeds(), tools::arguments::TOKENS, tools::entries::read);
}

#[test]
fn conditions_of_a_policy() {
    fuzz("conditions", &tools::conditions::seeds(), tools::conditions::TOKENS, tools::conditions::read);
}

#[test]
fn statements_of_sql() {
    fuzz("sql", &tools::sql::seeds(), tools::sql::TOKENS, tools::sql::read);
}

#[test]
fn lines_of_commands() {
    let world = tools::commands::World::new();
    fuzz("commands", &tools::commands::seeds(), tools::commands::TOKENS, |bytes| world.read(bytes));
}

#[test]
fn lines_of_commands_without_bash() {
    let world = tools::commands::World::new();
    fuzz("lines", &tools::commands::seeds(), tools::commands::TOKENS, |bytes| world.read_alone(bytes));
}

#[test]
fn schemas_of_servers() {
    fuzz("schemas", &tools::foreign::schemas::seeds(), &[], tools::foreign::schemas::read);
}

#[test]
fn patterns_of_schemas_and_conditions() {
    let seeds = tools::foreign::patterns::seeds();
    fuzz("patterns", &seeds, tools::foreign::patterns::TOKENS, tools::foreign::patterns::read);
}

#[test]
fn values_names_and_screens() {
    let place = tools::values::Place::new();
    fuzz("values", &place.seeds(), tools::values::TOKENS, |bytes| place.read(bytes));
}

#[test]
fn messages_of_mcp() {
    let stage = tools::messages::Stage::new();
    fuzz("messages", &tools::messages::seeds(), tools::messages::TOKENS, |bytes| stage.read(bytes));
}

#[test]
fn look_ups_of_programs() {
    fuzz("dns", &broker::dns::seeds(), &[], broker::dns::read);
}

#[test]
fn first_bytes_of_tls() {
    fuzz("hello", &broker::hello::seeds(), broker::hello::TOKENS, broker::hello::read);
}

#[test]
fn requests_of_http() {
    fuzz("framing", &broker::framing::seeds(), broker::framing::TOKENS, broker::framing::read);
}

#[test]
fn paths_and_names_of_hosts() {
    fuzz("paths", &broker::texts::seeds(), broker::texts::TOKENS, broker::texts::read);
}

#[test]
fn frames_of_the_broker() {
    fuzz("broker", &broker::frames::seeds(), broker::frames::TOKENS, broker::frames::read);
}
