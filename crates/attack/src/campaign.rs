//! A list of rows against one sandbox: what it promises, where it is tried, and what came of it.

use std::path::{Path, PathBuf};

use sandbox::audit::{Log, Options};
use sandbox::state::State;
use sandbox::{Capabilities, Environment, Error, Inputs, PolicyLayer, Workload};
use serde_json::{Value, json};

use crate::bare::Bare;
use crate::bwrap::Bwrap;
use crate::confined::Confined;
use crate::inside::fault;
use crate::judge::{Outcome, TrialSetup, Verdict, judge, program};
use crate::language::{self, Tier};
use crate::machine;
use crate::ours::{Ours, reasons};
use crate::promise::Promises;
use crate::proof::Proof;
use crate::row::{Row, catalogue};
use crate::stage::Stage;

/// Our own program, which holds the probes.
const OWN: &str = "/proc/self/exe";

/// What is attacked.
#[derive(Debug)]
pub enum Against {
    /// A sandbox of ours under the policy that these layers make, on this host.
    Ours(Vec<PolicyLayer>, Box<Capabilities>),
    /// bubblewrap, as a careful author would call it.
    Bubblewrap,
    /// Nothing: the probes themselves are tried.
    Nothing,
}

/// What came of it.
#[derive(Debug)]
pub struct Tried {
    /// Tier of what was attacked.
    pub tier: String,
    /// Its name.
    pub against: &'static str,
    /// One for each row, in their order.
    pub verdicts: Vec<Verdict>,
}

impl Tried {
    /// What the verdicts prove together. `named`: the rows were named one by one.
    #[must_use]
    pub fn proof(&self, named: bool) -> Proof {
        Proof::of(self.verdicts.iter().map(|verdict| verdict.result), named)
    }

    /// The result for programs.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let count = |outcome| self.verdicts.iter().filter(|verdict| verdict.result == outcome).count();
        json!({
            "schema": 1,
            "tier": self.tier,
            "against": self.against,
            "rows": self.verdicts,
            "totals": {
                "rows": self.verdicts.len(),
                "held": count(Outcome::Held),
                "escaped": count(Outcome::Escaped),
                "not-promised": count(Outcome::NotPromised),
                "skipped": count(Outcome::Skipped),
            },
        })
    }
}

fn failed(what: &str, why: impl std::fmt::Display) -> Error {
    Error::Failed(vec![fault(what, why)])
}

/// Every row of the catalogue, in its order.
///
/// # Errors
/// The built-in text is broken: a fault of ours.
pub fn rows() -> Result<Vec<Row>, Error> {
    catalogue().map_err(|error| failed("the built-in catalogue cannot be read", error.message()))
}

/// The rows against the language tier, as [`rows`].
///
/// # Errors
/// As [`rows`].
pub fn language_rows() -> Result<Vec<Row>, Error> {
    crate::row::language().map_err(|error| failed("the built-in catalogue cannot be read", error.message()))
}

/// Tries rows against the language tier under the policy that these layers make; `next` is told of each with its number, from 0.
///
/// # Errors
/// As [`run`].
pub fn run_language(
    rows: &[Row],
    (layers, host): (&[PolicyLayer], &Capabilities),
    environment: &Environment,
    next: &mut dyn FnMut(usize, &Row),
) -> Result<Tried, Error> {
    sandbox::load(layers, environment, Inputs::Now)
        .and_then(|loaded| sandbox::plan(loaded, language::python("pass"), host))
        .map_err(|stop| no_plan(&stop))?;
    let base = base("language", true);
    let (_stage, program) = stage_and_program(base, environment.euid == 0)?;
    let tier = Tier { layers, environment, host, base, program: &program };
    let mut verdicts = Vec::with_capacity(rows.len());
    for (at, row) in rows.iter().enumerate() {
        next(at, row);
        verdicts.push(tier.judge(row));
    }
    Ok(Tried { tier: "language".to_owned(), against: "fumehood", verdicts })
}

/// The folder below which stages are made. Without an overlay what is granted is refused in a place where the program writes.
fn base(tier: &str, overlays: bool) -> &'static Path {
    let first = match tier {
        "vm" => Some(machine::BASE),
        "container" if !overlays => Some("/srv"),
        _ => None,
    };
    let places = first.into_iter().chain(["/tmp", "/var/tmp"]).map(Path::new);
    let can_write = |path: &&Path| rustix::fs::access(*path, rustix::fs::Access::WRITE_OK).is_ok();
    places.into_iter().find(can_write).unwrap_or(Path::new("/"))
}

/// A stage with the copy of our program that everybody may execute.
fn stage_and_program(base: &Path, root: bool) -> Result<(Stage, PathBuf), Error> {
    let stage = Stage::make(base, root).map_err(|error| failed("no folder can be made", error))?;
    let program = program(&stage, Path::new(OWN)).map_err(|error| failed("our own program cannot be copied", error))?;
    Ok((stage, program))
}

/// Tries these rows for a caller, one after the other; `next` is told of each with its number, from 0.
///
/// # Errors
/// There is no plan to try, or nothing could be tried at all.
pub fn run(
    rows: &[Row],
    against: Against,
    environment: &Environment,
    next: &mut dyn FnMut(usize, &Row),
) -> Result<Tried, Error> {
    let root = environment.euid == 0;
    let (inside, promises): (Box<dyn Confined>, Promises) = match against {
        Against::Bubblewrap => (Box::new(Bwrap), Promises::everything()),
        Against::Nothing => (Box::new(Bare), Promises::everything()),
        Against::Ours(layers, host) => ours(layers, *host, environment)?,
    };
    let overlays = promises.enforcers.is_empty() || promises.enforcers.contains("overlay");
    let base = base(&promises.tier, overlays);
    let (_stage, program) = stage_and_program(base, root)?;
    let setup = TrialSetup { base: base.to_path_buf(), program, root, promises, environment: environment.clone() };
    let mut verdicts = Vec::with_capacity(rows.len());
    for (at, row) in rows.iter().enumerate() {
        next(at, row);
        verdicts.push(judge(row, &setup, inside.as_ref()));
    }
    Ok(Tried { tier: setup.promises.tier, against: inside.name(), verdicts })
}

/// There is no plan to try, for these reasons.
#[must_use]
pub fn no_plan(stop: &Error) -> Error {
    failed("there is no plan to try", reasons(stop))
}

/// Our own sandbox, with what its plan promises.
fn ours(
    layers: Vec<PolicyLayer>,
    host: Capabilities,
    environment: &Environment,
) -> Result<(Box<dyn Confined>, Promises), Error> {
    let planned = sandbox::load(&layers, environment, Inputs::Now)
        .and_then(|loaded| sandbox::plan(loaded, Workload::Nothing, &host))
        .map_err(|stop| no_plan(&stop))?;
    let promises = Promises::of(&planned.plan);
    // No run starts without a state folder and a log: told once, rather than as the reason of each row.
    let state = State::open(&environment.state).map_err(|error| Error::Failed(vec![error.fault()]))?;
    let folder = promises.clauses.get("audit.path").and_then(Value::as_str).map(Path::new);
    drop(Log::open(&state, folder, Options::default()).map_err(|error| Error::Failed(vec![error.fault()]))?);
    // Our own workspace takes the place of the user's, in the mode of the policy.
    let copies = matches!(promises.tier.as_str(), "process" | "gvisor" | "vm") || planned.plan.backend == "crun";
    let mode = match promises.workspace_mode() {
        "none" if copies => "copy",
        "none" => "overlay",
        mode => mode,
    };
    let workspace = |layer: &PolicyLayer| matches!(layer, PolicyLayer::Flag { name, .. } if name == "--workspace");
    let ours = Ours {
        layers: layers.into_iter().filter(|layer| !workspace(layer)).collect(),
        process_tier: promises.tier == "process",
        machine: promises.tier == "vm",
        mode: mode.to_owned(),
        environment: environment.clone(),
        host,
    };
    Ok((Box::new(ours), promises))
}
