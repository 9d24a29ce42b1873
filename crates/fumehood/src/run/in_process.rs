//! Runs for our servers: each in a sandbox of its own in this process, its report read as a value.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use sandbox::{
    Capabilities, Environment, Error, Finished, Options, PolicyLayer, Sandbox, Sink, Stdin, Stdio, Workload,
};
use serde_json::Value;
use tokio::net::UnixStream;

use super::deliver::as_report;
use crate::load;
use crate::ui::{Detail, Failure, Palette, View, fault, report};

/// Bytes of output that are kept of a run whose policy does not say.
const MAX_KEPT: u64 = 64 << 20;

/// What the sandboxes of a server have in common: whose they are, and what was found out about this host.
#[derive(Clone, Debug)]
pub(crate) struct Runner {
    environment: Arc<Environment>,
    host: Arc<Capabilities>,
}

impl Runner {
    /// For this caller. The command line lets a service manager hand a group of control groups to this process, once.
    pub(crate) fn new(environment: &Environment) -> Self {
        let host = Arc::new(Capabilities::probe_with(environment.services()));
        Self { environment: Arc::new(environment.clone()), host }
    }

    /// The same host for another caller.
    pub(crate) fn with(&self, environment: Environment) -> Self {
        Self { environment: Arc::new(environment), host: Arc::clone(&self.host) }
    }

    /// The same where these documents, of whoever starts the sandboxes, are held too.
    pub(crate) fn holding(&self, documents: &BTreeSet<PathBuf>) -> Self {
        self.with(Environment { documents: documents.clone(), ..Environment::clone(&self.environment) })
    }

    /// Starts something; a refusal is recorded, as that of any run.
    ///
    /// # Errors
    /// A refusal, or our own failure.
    pub(crate) fn start(&self, layers: &[PolicyLayer], what: Workload, stdio: Stdio) -> Result<Sandbox, Failure> {
        let loaded = load::policy(layers, &self.environment).map_err(|stop| self.refused(stop))?;
        let planned = sandbox::run::plan_recorded(loaded, what, &self.host, &self.environment)?;
        let asker = Some(crate::approvals::asker(&self.environment));
        let how = Options { asker, asked: Some(layers.to_vec()), ..Options::new(stdio) };
        Ok(sandbox::start(planned, &self.environment, &self.host, how)?)
    }

    /// Runs something to its end with these bytes to read; its report, or why there is none in the same shape. Dropped on the
    /// way, everything inside is ended.
    pub(crate) async fn report(&self, mut layers: Vec<PolicyLayer>, what: Workload, stdin: Option<Vec<u8>>) -> Value {
        let stdin = stdin.map_or(Stdin::Nothing, Stdin::Bytes);
        let stdio = Stdio::Streams { stdin, stdout: Sink::Keep, stderr: Sink::Keep };
        let runner = self.clone();
        let start = move || {
            runner.bound_output(&mut layers)?;
            runner.start(&layers, what, stdio)
        };
        // A start that nobody waits for any more gives a sandbox that nobody holds, and so ends it.
        let sandbox = match tokio::task::spawn_blocking(start).await {
            Ok(Ok(sandbox)) => sandbox,
            Ok(Err(stop)) => return as_report(&stop),
            Err(_lost) => return Value::Null,
        };
        ended(&sandbox).await;
        match sandbox.wait() {
            Ok(finished) => finished.to_json(),
            Err(stop) => as_report(&stop.into()),
        }
    }

    /// What is kept is kept in our memory: a policy without a bound of it gets ours.
    fn bound_output(&self, layers: &mut Vec<PolicyLayer>) -> Result<(), Failure> {
        let loaded = load::policy(layers, &self.environment).map_err(|stop| self.refused(stop))?;
        if loaded.policy.limits.output.is_none() {
            layers.push(PolicyLayer::Set(format!("limits.output={MAX_KEPT}")));
        }
        Ok(())
    }

    fn refused(&self, stop: Error) -> Error {
        sandbox::run::refused(stop, None, &self.environment)
    }
}

/// Waits until a sandbox has ended; [`Sandbox::wait`] has its report then.
pub(crate) async fn ended(sandbox: &Sandbox) {
    if let Ok(fd) = sandbox.ended().try_clone_to_owned()
        && let Ok(end) = UnixStream::from_std(fd.into())
        && end.readable().await.is_err()
    {
        // Then its report is waited for in this thread.
    }
}

/// What a run needs to find its own files and its program; nothing else of our environment reaches one that is not ours.
const NEEDED: &[&str] = &["HOME", "LANG", "LC_ALL", "PATH", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"];
/// Our own variables.
const OURS: &str = "FUMEHOOD_";

/// Whether a run needs this variable.
pub(crate) fn is_needed(name: &str) -> bool {
    NEEDED.contains(&name) || name.starts_with(OURS)
}

/// Of an environment what a run needs.
pub(crate) fn only_needed(env: &BTreeMap<OsString, OsString>) -> BTreeMap<OsString, OsString> {
    let needed = env.iter().filter(|(name, _)| name.to_str().is_some_and(is_needed));
    needed.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// What `fumehood run -q` says of an end.
pub(crate) fn quiet_report(finished: &Finished) -> String {
    let view = View {
        report: &finished.report,
        plan: Some(&finished.plan),
        dropped: finished.dropped(),
        detail: Detail::Quiet,
        palette: Palette::PLAIN,
        columns: 10_000,
    };
    let mut words: String =
        finished.not_started.iter().chain(&finished.failed).map(|why| fault(why, Palette::PLAIN)).collect();
    words.push_str(&report(&view));
    words
}
