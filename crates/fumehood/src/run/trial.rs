//! Small sandboxes that are started to see whether a tier works here, and what it costs.

use std::path::Path;
use std::time::Duration;

use policy::control::Emulator;
use policy::value::Tier;
use sandbox::{PolicyLayer, Stdio, Workload};
use serde_json::Value;
use sys::channel::Interest;

use super::in_process::Runner;
use crate::environment::Environment;
use crate::folder::OwnFolder;
use crate::program::code;
use crate::ui::Failure;

/// How long a sandbox may take that does next to nothing; a loaded machine is slow, a broken one never ends.
const MAX_TRIAL: Duration = Duration::from_secs(30);
/// The same in a machine, which may boot under emulation first.
const MAX_MACHINE: Duration = Duration::from_secs(120);

/// 42 by WASI's `fd_write`.
const WASM: &[u8] = include_bytes!("answer.wasm");

/// The shortest program that prints 42.
pub(crate) fn answer(backend: &str) -> Result<Workload, Failure> {
    match backend {
        "monty" => code("python", b"print(6 * 7)".to_vec(), Vec::new()),
        "quickjs" => code("javascript", b"console.log(6 * 7)".to_vec(), Vec::new()),
        "wasm" => code("wasm", WASM.to_vec(), Vec::new()),
        _ => Ok(Workload::Argv(["/bin/sh", "-c", "echo $((6 * 7))"].map(Into::into).to_vec())),
    }
}

/// How long a trial on a tier may take.
pub(crate) fn longest(tier: Tier) -> Duration {
    if tier == Tier::Vm { MAX_MACHINE } else { MAX_TRIAL }
}

/// A root of which this program of ours is the only file: what a machine can be shown without any other.
///
/// # Errors
/// It cannot be made.
pub(crate) fn own_root(program: &Path, environment: &Environment) -> Result<OwnFolder, Failure> {
    let root = OwnFolder::new(environment, "machine", 0o755)?;
    std::fs::copy(program, root.path().join("fumehood")).map_err(|error| root.failed(&error))?;
    Ok(root)
}

/// What trials of one command have in common.
#[derive(Debug)]
pub(crate) struct Trials(Runner);

impl Trials {
    /// Of the caller's variables only those that say where the state and Firecracker are go along: a trial is the same for everybody.
    pub(crate) fn new(environment: &Environment) -> Self {
        let firecracker = backends::FIRECRACKER_VARIABLE;
        let own = ["FUMEHOOD_STATE", "FUMEHOOD_KEYS", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "HOME", firecracker];
        let kept = own.into_iter().filter_map(|name| Some((name.into(), environment.variable(name)?.to_owned())));
        let own = sandbox::Environment::new(Some("/".into()), kept.collect(), environment.euid);
        Self(Runner::new(&own.with_broker(environment.broker.clone())))
    }

    /// The same, with machines by this emulator on KVM, whatever is known of it.
    pub(crate) fn on_kvm(emulator: Emulator, environment: &Environment) -> Self {
        let Self(runner) = Self::new(environment);
        Self(runner.on_kvm(emulator))
    }

    /// Runs the shortest program that prints 42, by a backend of a tier under the default policy; its report, or `None` if
    /// it did not end within [`longest`].
    ///
    /// # Errors
    /// A refusal, or our own failure.
    pub(crate) fn run(&self, on: (Tier, &str)) -> Result<Option<Value>, Failure> {
        self.run_this(on, &[], answer(on.1)?)
    }

    /// Has a machine start in which this program of ours, by its [`own_root`], says its version; else as [`Self::run_this`].
    ///
    /// # Errors
    /// As [`Self::run`].
    pub(crate) fn machine(
        &self,
        backend: &str,
        root: &OwnFolder,
        layers: &[PolicyLayer],
    ) -> Result<Option<Value>, Failure> {
        let root = PolicyLayer::Set(format!("fs.root=dir:{}", root.path().display()));
        let version = Workload::Argv(["/fumehood", "--version"].map(Into::into).to_vec());
        self.run_this((Tier::Vm, backend), &[layers, &[root]].concat(), version)
    }

    /// The same for another program, under the default policy with these layers.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub(crate) fn run_this(
        &self,
        (tier, backend): (Tier, &str),
        layers: &[PolicyLayer],
        what: Workload,
    ) -> Result<Option<Value>, Failure> {
        let on = [
            PolicyLayer::Flag { name: "--tier".to_owned(), value: tier.as_str().to_owned() },
            PolicyLayer::Set(format!("backend={backend}")),
        ];
        let sandbox = self.0.start(&[layers, &on].concat(), what, Stdio::kept())?;
        let end = [Interest { fd: sandbox.ended(), write: false }];
        let in_time = sys::channel::wait(&end, Some(longest(tier))).is_ok_and(|ready| ready.first() == Some(&true));
        if !in_time {
            sandbox.kill();
        }
        let finished = sandbox.wait()?;
        Ok(in_time.then(|| finished.to_json()))
    }
}
