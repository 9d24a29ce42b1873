//! Every clause, on every backend, for both callers: enforced or refused. No third cell.
//!
//! Prints a line for each cell and a count at the end. `cargo test -p fumehood-conformance --test clauses memory` runs
//! the cases whose clause or sentence contains the word; `tier=gvisor` those of one tier, `backend=crun` those of one backend.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "the lines are the report of the test")]

mod audit;
mod crun;
mod docker;
mod end;
mod environment;
mod files;
mod git;
mod gvisor;
mod held;
mod language;
mod limits;
mod network;
mod places;
mod podman;
mod process;
mod streams;
mod tier;
mod usage;
mod vm;
mod vm_network;
mod workspace;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use conformance::case;
use conformance::fixture::root;
use conformance::{BackendId, Case, CaseResult, CellResult, Fixture, Tally, Tier, Who, product};
use policy::ClauseId;

/// All cases.
fn cases() -> Vec<Case> {
    let groups: [&[Case]; 23] = [
        tier::CASES,
        places::CASES,
        files::CASES,
        workspace::CASES,
        git::CASES,
        held::CASES,
        limits::CASES,
        usage::CASES,
        network::CASES,
        environment::CASES,
        process::CASES,
        audit::CASES,
        streams::CASES,
        end::CASES,
        crun::CASES,
        podman::CASES,
        docker::CASES,
        gvisor::CASES,
        language::CASES,
        language::BEHIND,
        vm::CASES,
        vm_network::CASES,
        vm_network::WITHOUT,
    ];
    groups.concat()
}

/// Cells of the matrix without a case, and cases of a backend that there is not.
fn gaps(cases: &[Case], backends: &[BackendId]) -> Vec<String> {
    let filled: BTreeSet<_> =
        cases.iter().flat_map(|case| case.backends.iter().map(|backend| (case.clause, *backend))).collect();
    let all = ClauseId::ALL.iter().flat_map(|clause| backends.iter().map(|backend| (*clause, *backend)));
    let empty = all
        .filter(|cell| !filled.contains(cell))
        .map(|(clause, backend)| format!("no case says what `{clause}` does on {backend}"));
    let unknown = filled.iter().filter(|(_, backend)| !backends.contains(backend));
    empty.chain(unknown.map(|(clause, backend)| format!("`{clause}`: there is no backend {backend}"))).collect()
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    // What cargo's own harness understands and we have not: there is nothing ignored, and nothing to list.
    if words.iter().any(|word| matches!(word.as_str(), "--list" | "--ignored")) {
        return ExitCode::SUCCESS;
    }
    if let Err(error) = product::binary() {
        println!("{error}");
        return ExitCode::FAILURE;
    }
    let backends = match BackendId::all() {
        Ok(backends) => backends,
        Err(error) => {
            println!("FAILED {error}");
            return ExitCode::FAILURE;
        }
    };
    let cases = cases();
    let (tiers, wanted): (Vec<&String>, Vec<&String>) = words
        .iter()
        .filter(|word| !word.starts_with('-'))
        .partition(|word| word.starts_with("tier=") || word.starts_with("backend="));
    let of_tier = |backend: &BackendId| {
        let meant = |word: &&String| {
            word.strip_prefix("tier=") == Some(backend.tier.as_str())
                || word.strip_prefix("backend=") == Some(backend.name)
        };
        tiers.is_empty() || tiers.iter().any(meant)
    };
    let chosen: Vec<(Case, BackendId, Who)> = cases
        .iter()
        .filter(|case| {
            wanted.is_empty() || wanted.iter().any(|w| case.clause.path().contains(*w) || case.sentence.contains(*w))
        })
        .flat_map(|case| case.backends.iter().map(move |backend| (*case, *backend)))
        .filter(|(_, backend)| of_tier(backend))
        .flat_map(|(case, backend)| Who::ALL.map(|who| (case, backend, who)))
        .collect();
    let mut tally = prove(&chosen);
    let gaps = if wanted.is_empty() { gaps(&cases, &backends) } else { Vec::new() };
    for gap in &gaps {
        println!("FAILED {gap}");
    }
    tally.failed += gaps.len();
    println!(
        "cells: {} enforced, {} refused, {} skipped, {} failed; {} clauses, {} backends, 2 callers",
        tally.enforced,
        tally.refused,
        tally.skipped,
        tally.failed,
        ClauseId::ALL.len(),
        backends.len()
    );
    println!("{} passed, {} failed, {} skipped", tally.enforced + tally.refused, tally.failed, tally.skipped);
    if tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// One case on one backend for one caller.
type Chosen = (Case, BackendId, Who);

/// Two at a time: a case waits more than it works. One that failed so is tried once more with the machine to itself,
/// and named if it holds then.
fn prove(chosen: &[Chosen]) -> Tally {
    let (next, tally, again) = (AtomicUsize::new(0), Mutex::new(Tally::default()), Mutex::new(Vec::new()));
    let beside = || {
        while let Some(chosen) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (name, Err(why)) = one(chosen, &tally) else { continue };
            println!("failed beside another: {name}\n    {why}");
            again.lock().unwrap_or_else(PoisonError::into_inner).push(*chosen);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(beside);
        }
    });
    for chosen in again.into_inner().unwrap_or_else(PoisonError::into_inner) {
        let (name, Err(why)) = one(&chosen, &tally) else {
            println!("flaky: {} by {} for {}", chosen.0.sentence, chosen.1, chosen.2.as_str());
            continue;
        };
        println!("FAILED {name}\n    {why}");
        tally.lock().unwrap_or_else(PoisonError::into_inner).failed += 1;
    }
    tally.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Its name, and why it failed if it did; the rest is counted.
fn one((case, backend, who): &Chosen, tally: &Mutex<Tally>) -> (String, CaseResult) {
    let (backend, who) = (*backend, *who);
    let by_name = [case::CRUN, case::PODMAN, case::DOCKER, case::FIRECRACKER].concat();
    let on = if by_name.contains(&backend) { backend.to_string() } else { backend.tier.as_str().to_owned() };
    let name = format!("{} {on} {}: {}", case.clause, who.as_str(), case.sentence);
    let missing = if who == Who::Rootful && !root() {
        Some("the test is not run as root".to_owned())
    } else if backend.tier == Tier::Gvisor {
        backends::Capabilities::probe().runsc().err().map(|missing| missing.why)
    } else if backend.name == "crun" {
        backends::Capabilities::probe().crun().err().map(|missing| missing.why)
    } else if backend.name == "podman" && who == Who::Rootful {
        backends::Capabilities::probe().podman().err().map(|missing| missing.why)
    } else if backend.name == "docker" && who == Who::Rootful {
        backends::Capabilities::probe().docker().err().map(|missing| missing.why)
    } else if backend.tier == Tier::Vm {
        vm::missing(backend.name)
    } else {
        None
    };
    let result = missing.map_or_else(|| Ok(Fixture::new(backend, who).and_then(|scene| case.prove(&scene))), Err);
    let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
    let (word, count) = match result {
        Err(why) => {
            println!("skip: {name}: {why}");
            tally.skipped += 1;
            return (name, Ok(()));
        }
        Ok(Err(why)) => return (name, Err(why)),
        Ok(Ok(CellResult::Enforced)) => ("enforced", &mut tally.enforced),
        Ok(Ok(CellResult::Refused)) => ("refused ", &mut tally.refused),
    };
    *count += 1;
    println!("{word} {name}");
    (name, Ok(()))
}
