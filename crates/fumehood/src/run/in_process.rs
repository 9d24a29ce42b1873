//! Runs for our servers: each in a sandbox of its own in this process, its report read as a value.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use policy::Loaded;
use policy::control::Emulator;
use policy::value::Tier;
use sandbox::run::Interpreter;
use sandbox::{
    Capabilities, Code, Environment, Error, Finished, Options, PolicyLayer, Sandbox, Sink, Stdin, Stdio, Workload,
};
use serde_json::Value;
use tokio::net::UnixStream;

use super::deliver::as_report;
use crate::load;
use crate::ui::{Detail, Failure, Palette, View, fault, report};

/// Bytes of output that are kept of a run whose policy does not say.
const MAX_KEPT: u64 = 64 << 20;

/// An interpreter that nobody took for so long is ended.
const WAITS: Duration = Duration::from_secs(60);

/// The interpreter that waits, if one does.
type Waiting = Mutex<Option<Interpreter>>;

/// What the sandboxes of a server have in common: whose they are, and what was found out about this host.
#[derive(Clone, Debug)]
pub(crate) struct Runner {
    environment: Arc<Environment>,
    host: Arc<Capabilities>,
    /// It ends with the last of its holders.
    waiting: Arc<Waiting>,
}

impl Runner {
    /// For this caller. The command line lets a service manager hand a group of control groups to this process, once.
    pub(crate) fn new(environment: &Environment) -> Self {
        let host = Arc::new(Capabilities::probe_with(environment.services()));
        Self { environment: Arc::new(environment.clone()), host, waiting: Arc::default() }
    }

    /// The same caller, whose machines by this emulator run on KVM, whatever is known of it.
    pub(crate) fn on_kvm(self, emulator: Emulator) -> Self {
        let services = backends::CallerServices { tries_kvm: Some(emulator), ..self.environment.services() };
        Self { host: Arc::new(Capabilities::probe_with(services)), ..self }
    }

    /// The same host for another caller.
    pub(crate) fn with(&self, environment: Environment) -> Self {
        Self { environment: Arc::new(environment), host: Arc::clone(&self.host), waiting: Arc::default() }
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
        self.start_loaded(self.loaded(layers)?, layers, what, stdio)
    }

    fn start_loaded(
        &self,
        loaded: Loaded,
        layers: &[PolicyLayer],
        what: Workload,
        stdio: Stdio,
    ) -> Result<Sandbox, Failure> {
        let planned = sandbox::run::plan_recorded(loaded, what, &self.host, &self.environment)?;
        let how = self.how(layers, stdio);
        let waiting = locked(&self.waiting).take_if(|waiting| waiting.is_for(&planned, &how));
        Ok(match waiting {
            Some(interpreter) => interpreter.go(planned, &self.environment, &self.host, how)?,
            None => sandbox::start(planned, &self.environment, &self.host, how)?,
        })
    }

    fn how(&self, layers: &[PolicyLayer], stdio: Stdio) -> Options {
        let asker = Some(crate::approvals::asker(&self.environment));
        Options { asker, asked: Some(layers.to_vec()), ..Options::new(stdio) }
    }

    /// Starts the interpreter of a program that is asked for as the last one was; what is refused is told to whoever asks.
    fn make_ready(&self, layers: &[PolicyLayer], code: Code, stdio: Stdio) -> Option<Interpreter> {
        let loaded = load::policy(layers, &self.environment).ok()?;
        let planned = sandbox::plan(loaded, Workload::Code(code), &self.host).ok()?;
        Interpreter::start(planned, &self.environment, &self.host, self.how(layers, stdio)).ok()?
    }

    /// Keeps an interpreter ready for who asks next, for a while. The server's end, or another one's, ends it.
    fn expect(&self, layers: Vec<PolicyLayer>, code: Code, stdio: Stdio) {
        let (runner, waiting) = (self.clone(), Arc::downgrade(&self.waiting));
        tokio::spawn(async move {
            let made = tokio::task::spawn_blocking(move || runner.make_ready(&layers, code, stdio)).await;
            let Ok(Some(interpreter)) = made else { return };
            let run = interpreter.id().to_owned();
            put(&waiting, Some(interpreter));
            tokio::time::sleep(WAITS).await;
            let kept =
                waiting.upgrade().is_some_and(|waiting| locked(&waiting).as_ref().is_some_and(|one| one.id() == run));
            if kept {
                drop(tokio::task::spawn_blocking(move || put(&waiting, None)).await);
            }
        });
    }

    /// Runs something to its end with these bytes to read; its report, or why there is none in the same shape. Dropped on the
    /// way, everything inside is ended.
    pub(crate) async fn report(&self, mut layers: Vec<PolicyLayer>, what: Workload, stdin: Option<Vec<u8>>) -> Value {
        let streams = |stdin| Stdio::Streams { stdin, stdout: Sink::Keep, stderr: Sink::Keep };
        let next = stdin.as_ref().map_or(Stdin::Nothing, |_| Stdin::Bytes(Vec::new()));
        let like = if let Workload::Code(Code { name, text: _, interpreter, args }) = &what {
            let (name, interpreter, args) = (name.clone(), interpreter.clone(), args.clone());
            Some(Code { name, text: Vec::new(), interpreter, args })
        } else {
            None
        };
        let stdio = streams(stdin.map_or(Stdin::Nothing, Stdin::Bytes));
        let runner = self.clone();
        let start = move || {
            let loaded = runner.bound_output(&mut layers)?;
            runner.start_loaded(loaded, &layers, what, stdio).map(|sandbox| (sandbox, layers))
        };
        // A start that nobody waits for any more gives a sandbox that nobody holds, and so ends it.
        let (sandbox, layers) = match tokio::task::spawn_blocking(start).await {
            Ok(Ok(started)) => started,
            Ok(Err(stop)) => return as_report(&stop),
            Err(_lost) => return Value::Null,
        };
        ended(&sandbox).await;
        match sandbox.wait() {
            Ok(finished) => {
                if let Some(code) = like.filter(|_| finished.plan.tier == Tier::Language) {
                    self.expect(layers, code, streams(next));
                }
                finished.to_json()
            }
            Err(stop) => as_report(&stop.into()),
        }
    }

    /// What is kept is kept in our memory: a policy without a bound of it gets ours.
    fn bound_output(&self, layers: &mut Vec<PolicyLayer>) -> Result<Loaded, Failure> {
        let loaded = self.loaded(layers)?;
        if loaded.policy.limits.output.is_some() {
            return Ok(loaded);
        }
        layers.push(PolicyLayer::Set(format!("limits.output={MAX_KEPT}")));
        self.loaded(layers)
    }

    fn loaded(&self, layers: &[PolicyLayer]) -> Result<Loaded, Failure> {
        Ok(load::policy(layers, &self.environment).map_err(|stop| self.refused(stop))?)
    }

    fn refused(&self, stop: Error) -> Error {
        sandbox::run::refused(stop, None, &self.environment)
    }
}

fn locked(waiting: &Waiting) -> MutexGuard<'_, Option<Interpreter>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Puts another one into the place of the one that waits; that one is ended, as is one for whom there is no place any more.
fn put(waiting: &Weak<Waiting>, interpreter: Option<Interpreter>) {
    let before = waiting.upgrade().and_then(|waiting| std::mem::replace(&mut *locked(&waiting), interpreter));
    drop(before);
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
