//! Small sandboxes that are started to see whether a tier works here, and what it costs.

use std::time::Duration;

use policy::value::Tier;
use sandbox::{PolicyLayer, Stdio, Workload};
use serde_json::Value;
use sys::channel::Interest;

use super::in_process::Runner;
use crate::environment::Environment;
use crate::ui::Failure;

/// How long a sandbox may take that does next to nothing; a loaded machine is slow, a broken one never ends.
pub(crate) const MAX_TRIAL: Duration = Duration::from_secs(30);

/// What trials of one command have in common.
#[derive(Debug)]
pub(crate) struct Trials(Runner);

impl Trials {
    /// Of the caller's variables only those that say where the state is go along: a trial is the same for everybody.
    pub(crate) fn new(environment: &Environment) -> Self {
        let own = ["FUMEHOOD_STATE", "FUMEHOOD_KEYS", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "HOME"];
        let kept = own.into_iter().filter_map(|name| Some((name.into(), environment.variable(name)?.to_owned())));
        Self(Runner::new(&sandbox::Environment::new(Some("/".into()), kept.collect(), environment.euid)))
    }

    /// Runs a program on a tier under the default policy; its report, or `None` if it did not end within [`MAX_TRIAL`].
    ///
    /// # Errors
    /// A refusal, or our own failure.
    pub(crate) fn run(&self, tier: Tier, argv: &[&str]) -> Result<Option<Value>, Failure> {
        let layers = [PolicyLayer::Flag { name: "--tier".to_owned(), value: tier.as_str().to_owned() }];
        let argv = argv.iter().map(Into::into).collect();
        let sandbox = self.0.start(&layers, Workload::Argv(argv), Stdio::kept())?;
        let bell = [Interest { fd: sandbox.ended(), write: false }];
        let in_time = sys::channel::wait(&bell, Some(MAX_TRIAL)).is_ok_and(|ready| ready.first() == Some(&true));
        if !in_time {
            sandbox.kill();
        }
        let finished = sandbox.wait()?;
        Ok(in_time.then(|| finished.to_json()))
    }
}
