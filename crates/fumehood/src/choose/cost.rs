//! What a tier costs on this host: measured here, kept in the state folder, and measured anew when host or version changed.

use std::time::{Duration, Instant};

use backends::Capabilities;
use policy::control::Emulator;
use policy::value::Tier;
use rustix::fs::{Mode, OFlags};
use sandbox::state::State;
use serde_json::{Value, json};

use super::Row;
use crate::environment::Environment;
use crate::run::trial::{Trials, longest, own_root};

/// The file in the state folder.
const FILE: &str = "costs.json";
/// Most bytes of it.
const MAX_FILE: u64 = 64 << 10;
/// Starts whose median counts, at least.
pub(crate) const STARTS: usize = 5;

/// What is about to be measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measuring<'a> {
    /// Which of them, from 0, and how many there are.
    pub(crate) nth: (usize, usize),
    /// Its tier and backend.
    pub(crate) on: (Tier, &'a str),
    /// What all that are left may take together, if each trial takes as long as it may.
    pub(crate) longest: Duration,
}

/// The cost of one tier.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cost {
    tier: String,
    backend: String,
    /// From the policy to the report of the shortest program that prints a number, in milliseconds; the median of [`STARTS`] or
    /// more. In a machine the program is this one, which says its version.
    pub(crate) start_ms: f64,
    /// Peak of memory inside, of a machine with its emulator's, in bytes; `None` where nobody counts it.
    pub(crate) memory: Option<u64>,
}

impl Cost {
    /// Of a backend of a tier.
    pub(crate) fn new((tier, backend): (Tier, &str), start_ms: f64, memory: Option<u64>) -> Self {
        Self { tier: tier.as_str().to_owned(), backend: backend.to_owned(), start_ms, memory }
    }
}

/// What is known of this host.
#[derive(Debug, Default)]
pub(crate) struct Costs(Vec<Cost>);

impl Costs {
    /// Those that were kept for this host and version; the rest of what these rows need is measured. All of it with `anew`.
    /// What cannot be kept is measured the next time again. It takes seconds, so `tell` hears of each before it is measured, and each
    /// is kept as soon as it was.
    pub(crate) fn of_rows(
        rows: &[Row],
        (environment, host): (&Environment, &Capabilities),
        anew: bool,
        tell: &dyn Fn(&Measuring<'_>),
    ) -> Self {
        let key = key(host);
        let state = State::open(&environment.state).ok();
        let mut costs = state.as_ref().filter(|_| !anew).map_or_else(Self::default, |state| read(state, &key));
        let holding = rows.iter().filter(|row| row.holds() && costs.of(row).is_none());
        let missing: Vec<(Tier, &str)> = holding.filter_map(|row| Some((row.tier, row.backend?))).collect();
        if missing.is_empty() {
            return costs;
        }
        let trials = Trials::new(environment);
        let starts = u32::try_from(STARTS).unwrap_or(u32::MAX);
        for (nth, on) in missing.iter().enumerate() {
            let left = missing.get(nth..).unwrap_or_default();
            let longest: Duration = left.iter().map(|(tier, _)| longest(*tier).saturating_mul(starts)).sum();
            tell(&Measuring { nth: (nth, missing.len()), on: *on, longest });
            costs.0.extend(measure(*on, &trials, environment));
            if let Some(state) = &state {
                // Only a cache: the next call measures again.
                drop(write(state, &key, &costs));
            }
        }
        costs
    }

    /// Keeps these instead of what was kept before of the same backends.
    pub(crate) fn keep(costs: Vec<Cost>, environment: &Environment, host: &Capabilities) {
        let Ok(state) = State::open(&environment.state) else { return };
        let key = key(host);
        let mut all = read(&state, &key);
        all.0.retain(|old| !costs.iter().any(|new| (&new.tier, &new.backend) == (&old.tier, &old.backend)));
        all.0.extend(costs);
        // Only a cache: the next `choose` measures again.
        drop(write(&state, &key, &all));
    }

    pub(crate) fn of(&self, row: &Row) -> Option<&Cost> {
        self.0.iter().find(|cost| cost.tier == row.tier.as_str() && Some(cost.backend.as_str()) == row.backend)
    }
}

/// What a measurement holds for.
fn key(host: &Capabilities) -> String {
    // What others install, and what a machine starts with.
    let engines = [
        host.runsc().ok().map(|engine| engine.version.clone()),
        host.crun().ok().map(|runtime| runtime.version.clone()),
        host.podman().ok().map(|service| service.version.clone()),
        host.docker().ok().map(|daemon| format!("{} {}", daemon.version, daemon.runtime.1.version)),
    ];
    let machines = Emulator::ALL.map(|emulator| {
        let machine = host.machine(emulator).ok()?;
        let on_kvm = host.kvm(emulator).is_ok();
        Some(format!("{} {:?} {} {on_kvm}", machine.version, machine.identity().ok(), machine.kernel.digest()))
    });
    let own = [host.release.as_str(), host.given().as_str()];
    let facts = json!([env!("CARGO_PKG_VERSION"), host.euid, host.landlock, own, engines, machines]);
    policy::json::digest(&facts)
}

/// A machine is shown this program alone: the host's own tree, with the programs of the other tiers, goes into none.
fn measure(on: (Tier, &str), trials: &Trials, environment: &Environment) -> Option<Cost> {
    let program = environment.broker.as_deref();
    let root = if on.0 == Tier::Vm { Some(own_root(program?, environment).ok()?) } else { None };
    let mut times = Vec::with_capacity(STARTS);
    let mut memory = None;
    for _ in 0..STARTS {
        let begin = Instant::now();
        let ran = root.as_ref().map_or_else(|| trials.run(on), |root| trials.machine(on.1, root, &[]));
        let report = ran.ok()??;
        if report.pointer("/outcome/code") != Some(&json!(0)) {
            return None;
        }
        times.push(begin.elapsed().as_secs_f64() * 1000.0);
        memory = memory.max(report.pointer("/usage/memory_peak").and_then(Value::as_u64));
    }
    times.sort_by(f64::total_cmp);
    let median = times.get(STARTS / 2).copied()?;
    Some(Cost::new(on, (median * 10.0).round() / 10.0, memory))
}

fn read(state: &State, key: &str) -> Costs {
    let kept = state.root().read(FILE, MAX_FILE).ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    let Some(kept) = kept.filter(|kept| kept.get("key").and_then(Value::as_str) == Some(key)) else {
        return Costs::default();
    };
    let list = kept.get("costs").and_then(Value::as_array).cloned().unwrap_or_default();
    let cost = |value: &Value| {
        Some(Cost {
            tier: value.get("tier")?.as_str()?.to_owned(),
            backend: value.get("backend")?.as_str()?.to_owned(),
            start_ms: value.get("start_ms")?.as_f64()?,
            memory: value.get("memory").and_then(Value::as_u64),
        })
    };
    Costs(list.iter().filter_map(cost).collect())
}

fn write(state: &State, key: &str, costs: &Costs) -> std::io::Result<()> {
    let list: Vec<Value> = costs
        .0
        .iter()
        .map(|Cost { tier, backend, start_ms, memory }| json!({ "tier": tier, "backend": backend, "start_ms": start_ms, "memory": memory }))
        .collect();
    let text = json!({ "key": key, "costs": list }).to_string();
    let mode = Mode::RUSR | Mode::WUSR;
    let mut file = state.root().open_file(FILE, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC, mode)?;
    std::io::Write::write_all(&mut file, text.as_bytes())
}
