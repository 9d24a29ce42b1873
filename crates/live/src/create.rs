//! Starting a supervisor: the request goes to a process of its own, and one line comes back.
//!
//! The process is the program itself, called with a hidden command. While it starts it dies with whoever started it; when it
//! answers, it has let go of everything of its caller: session, terminal, streams, signals.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use policy::Plan;
use policy::value::{Over, Policy};
use sandbox::audit::{Log, Options, Redactor};
use sandbox::snapshot::Snapshot;
use sandbox::state::State;
use sandbox::{Capabilities, Environment, Error, Planned, PolicyLayer};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sys::command::Command;

use crate::begin::Begin;
use crate::error::LiveError;
use crate::files::Files;
use crate::record::Home;
use crate::restore::{Kept, Restore};
use crate::supervisor::{Setup, Supervisor};
use crate::template::Store;
use crate::words::{Info, State as Doing};
use crate::{client, engine};

/// The hidden command by which the program becomes a supervisor.
pub const COMMAND: &str = "supervise";
/// No request and no answer is longer.
const MAX_LINE: u64 = 16 << 20;

/// One layer of a policy, as [`PolicyLayer`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// The name of a preset, or the path of a document.
    Document(String),
    /// A flag of a clause with its value.
    Flag(String, String),
    /// `CLAUSE=VALUE`
    Set(String),
}

impl From<PolicyLayer> for Layer {
    fn from(layer: PolicyLayer) -> Self {
        match layer {
            PolicyLayer::Document(name) => Self::Document(name),
            PolicyLayer::Flag { name, value } => Self::Flag(name, value),
            PolicyLayer::Set(text) => Self::Set(text),
        }
    }
}

impl From<Layer> for PolicyLayer {
    fn from(layer: Layer) -> Self {
        match layer {
            Layer::Document(name) => Self::Document(name),
            Layer::Flag(name, value) => Self::Flag { name, value },
            Layer::Set(text) => Self::Set(text),
        }
    }
}

/// What sandbox is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The policy, the weakest layer first.
    pub layers: Vec<Layer>,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whatever the caller wants to remember.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// It is ended when it was idle for so many milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_ms: Option<u64>,
    /// What it is made from; empty = nothing.
    #[serde(default)]
    pub template: String,
    /// The snapshot that it begins as, by id or name. Its layers are not taken from there: [`crate::Kept`] has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Width that words about a refusal are wrapped to; 0 = 100.
    #[serde(default)]
    pub columns: usize,
    /// Whether those words may have colours.
    #[serde(default)]
    pub colour: bool,
}

/// Why there is no sandbox: what `fumehood run` would say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// 126: refused; 125: our own failure.
    pub code: u8,
    /// For programs: `{refused}`, or `{schema, code, errors}`.
    pub json: Value,
    /// For people.
    pub text: String,
}

/// What a supervisor says when it has started, or why it did not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It runs.
    Created(Box<Info>),
    /// It does not.
    Refused(Refusal),
}

/// A sandbox that was created, and its supervisor's process.
#[derive(Debug)]
pub struct Created {
    /// All about it.
    pub info: Info,
    /// Readable when the supervisor has ended; who goes on must reap it then ([`Created::reap`]).
    pub process: OwnedFd,
}

impl Created {
    /// Waits for the end of the supervisor, so that no zombie of it is left. Whoever ends before it needs none of this.
    pub fn reap(self) {
        // One that was reaped by somebody else is gone as well.
        drop(sys::pidfd::wait(&self.process));
    }
}

/// Starts a supervisor by calling `program` with [`COMMAND`], for the caller whose `environment` this is, and waits for its
/// answer; the calling thread must not end before that. The outer error is that of the start itself.
///
/// # Errors
/// [`LiveError::Start`]; the refusal of a policy is in the answer.
pub fn create(
    request: &Request,
    program: &std::path::Path,
    environment: &Environment,
) -> Result<Result<Created, Refusal>, LiveError> {
    let failed = |error: &dyn std::fmt::Display| LiveError::Start { why: error.to_string() };
    let words = serde_json::to_vec(request).map_err(|error| failed(&error))?;
    let (their_request, our_request) = sys::channel::pipe().map_err(|error| failed(&error))?;
    let (our_answer, their_answer) = sys::channel::pipe().map_err(|error| failed(&error))?;
    let null = sys::channel::dev_null().map_err(|error| failed(&error))?;
    let mut command = Command::new(program).arg(COMMAND);
    for (name, value) in &environment.env {
        let mut variable = name.clone();
        variable.push("=");
        variable.push(value);
        command = command.variable(variable);
    }
    let directory: PathBuf = environment.cwd.clone().unwrap_or_else(|| PathBuf::from("/"));
    let started = command
        .directory(directory)
        .start(their_request.as_fd(), their_answer.as_fd(), null.as_fd())
        .map_err(|error| failed(&error))?;
    drop((their_request, their_answer));
    // One that ended before it read says so by its answer, or by none.
    drop(File::from(our_request).write_all(&words));
    let mut line = Vec::new();
    let read = BufReader::new(File::from(our_answer)).take(MAX_LINE).read_until(b'\n', &mut line);
    let process = started.pidfd;
    let answer = match read.map(|_| serde_json::from_slice(&line)) {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) | Err(_) => {
            let killed = sys::pidfd::send_signal(&process, 9);
            let ended = sys::pidfd::wait(&process);
            let why = format!("it ended without an answer: {ended:?} (killed: {})", killed.is_ok());
            return Err(LiveError::Start { why });
        }
    };
    match answer {
        Answer::Created(info) => Ok(Ok(Created { info: *info, process })),
        Answer::Refused(refusal) => {
            drop(sys::pidfd::wait(&process));
            Ok(Err(refusal))
        }
    }
}

/// The way of a caller from layers to a plan, and from a failure to words: the command line's own.
pub trait Caller {
    /// What was asked for, as a plan for the agent.
    ///
    /// # Errors
    /// A refusal, already recorded.
    fn plan(&self, layers: &[PolicyLayer], host: &Capabilities) -> Result<Planned, Error>;
    /// Why there is no sandbox.
    fn refusal(&self, stop: Error, request: &Request) -> Refusal;
}

/// Is a supervisor, in a process that was started for it: reads the request from stdin, answers on stdout, and serves until
/// the sandbox has ended.
pub fn supervise(environment: &Environment, caller: &dyn Caller) -> u8 {
    let mut words = Vec::new();
    let read = std::io::stdin().lock().take(MAX_LINE).read_to_end(&mut words);
    let Ok(Ok(request)) = read.map(|_| serde_json::from_slice::<Request>(&words)) else { return 125 };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(4).build();
    let Ok(runtime) = runtime else { return 125 };
    runtime.block_on(async {
        let begun = begin(&request, environment, caller).await;
        let supervisor = match begun {
            Ok(supervisor) => supervisor,
            Err(stop) => {
                let refusal = caller.refusal(stop, &request);
                let code = refusal.code;
                return if answer(&Answer::Refused(refusal)) { code } else { 125 };
            }
        };
        // From here on it lives whoever started it; before the answer, since nobody could end it otherwise.
        let answered = let_go() && answer(&Answer::Created(Box::new(supervisor.info()))) && close_streams();
        if !answered && rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM).is_err()
        {
            return 125;
        }
        supervisor.serve().await;
        0
    })
}

async fn begin(request: &Request, environment: &Environment, caller: &dyn Caller) -> Result<Supervisor, Error> {
    let own = |error: LiveError| match error {
        LiveError::State(error) => Error::from(error),
        LiveError::Snapshot(error) => Error::from(error),
        LiveError::Name { .. } | LiveError::Taken { .. } | LiveError::Unfit { .. } | LiveError::Begin { .. } => {
            Error::Refused(vec![error.fault()])
        }
        LiveError::Folder { .. }
        | LiveError::Unknown { .. }
        | LiveError::Over { .. }
        | LiveError::Restore { .. }
        | LiveError::Start { .. } => Error::Failed(vec![error.fault()]),
    };
    let state = State::open(&environment.state)?;
    let claim = Home::new(&state).and_then(|home| home.claim(request.name.as_deref())).map_err(own)?;
    let host = Capabilities::probe_with(environment.user_bus());
    let layers: Vec<PolicyLayer> = request.layers.iter().cloned().map(PolicyLayer::from).collect();
    let planned = caller.plan(&layers, &host)?;
    let plan = planned.plan.clone();
    let audit = &plan.policy.audit;
    let options = || Options { sync: audit.sync, redact: Redactor::new(&audit.redact), ..Options::default() };
    let open = || Log::open(&state, audit.path.as_deref(), options());
    let log = open()?;
    let snapshot = request.from.as_deref().map(|word| Snapshot::open(&state, word)).transpose()?;
    let from = snapshot.as_ref().map(|snapshot| snapshot.id().to_owned()).unwrap_or_default();
    let restore = snapshot.map(|snapshot| Restore::new(snapshot, &plan)).transpose();
    let restore = restore.map_err(|why| own(LiveError::Unfit { id: from.clone(), why }))?;
    let begins = Begin::of(&Store::new(state.path()), &request.template);
    let begins = begins.map_err(|error| Error::Failed(vec![error.fault()]))?;
    let files = Files::new(&environment.state, open()?, kept(request, environment), &plan.policy);
    let (carrier, run) = engine::start(planned, environment, &host, files)?;
    let policy: &Policy = &plan.policy;
    let info = info(request, &plan, claim.id(), run);
    let setup = Setup {
        claim,
        info,
        log: Some(log),
        output: policy.limits.output.map(|bytes| bytes.0),
        kill_over: policy.limits.over == Over::Kill,
        life: policy.limits.wall.map(|wall| Duration::from_millis(wall.0)),
        idle: request.idle_ms.map(Duration::from_millis),
    };
    let supervisor = Supervisor::begin(setup, carrier).await.map_err(own)?;
    let supervisor = match restore {
        None => supervisor,
        Some(restore) => {
            let restored = supervisor.restored(restore).await;
            restored.map_err(|why| own(LiveError::Restore { id: from, why }))?
        }
    };
    match begins {
        None => Ok(supervisor),
        Some(begins) => {
            let template = request.template.clone();
            supervisor.begun(begins).await.map_err(|why| own(LiveError::Begin { template, why }))
        }
    }
}

/// All about it that is known before its agent has answered.
fn info(request: &Request, plan: &Plan, id: &str, run: String) -> Info {
    let policy: &Policy = &plan.policy;
    let created_ms = jiff::Timestamp::now().as_millisecond();
    let life = policy.limits.wall.map(|wall| Duration::from_millis(wall.0));
    let ends = |wall: Duration| created_ms.saturating_add(i64::try_from(wall.as_millis()).unwrap_or(i64::MAX));
    Info {
        id: id.to_owned(),
        name: request.name.clone(),
        labels: request.labels.clone(),
        state: Doing::Running,
        run,
        tier: plan.tier.as_str().to_owned(),
        policy: format!("{} {}", policy.name, plan.policy_digest()),
        plan: plan.digest().to_owned(),
        template: request.template.clone(),
        created_ms,
        ends_ms: life.map(ends),
        idle_ms: request.idle_ms,
        ended_ms: None,
        reason: None,
        message: None,
        pid: std::process::id(),
        agent: None,
        memory_limit: policy.limits.memory.map(|bytes| bytes.0),
        cpus: policy.limits.cpus.map(|cpus| f64::from(cpus.0) / 1000.0),
        disk_limit: policy.limits.disk.map(|bytes| bytes.0),
        usage: Value::Null,
        report: None,
    }
}

/// What a snapshot of it says.
fn kept(request: &Request, environment: &Environment) -> Value {
    let kept = Kept {
        cwd: environment.cwd.clone(),
        layers: request.layers.clone(),
        template: request.template.clone(),
        idle_ms: request.idle_ms,
    };
    serde_json::to_value(kept).unwrap_or_default()
}

/// Away from the caller's session, terminal and end.
fn let_go() -> bool {
    let alone = rustix::process::setsid().is_ok();
    let outlives = rustix::process::set_parent_process_death_signal(None).is_ok();
    // Of the caller's folder nothing is held.
    alone && outlives && rustix::process::chdir("/").is_ok()
}

fn answer(answer: &Answer) -> bool {
    let Ok(mut line) = serde_json::to_vec(answer) else { return false };
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&line).and_then(|()| out.flush()).is_ok()
}

/// The streams that led to the caller.
fn close_streams() -> bool {
    let Ok(null) = sys::channel::dev_null() else { return false };
    rustix::stdio::dup2_stdin(&null).is_ok()
        && rustix::stdio::dup2_stdout(&null).is_ok()
        && rustix::stdio::dup2_stderr(&null).is_ok()
}

/// Ends a sandbox and waits until nothing is left of it, its supervisor included.
///
/// # Errors
/// [`client::Error`]; one that has ended meanwhile is no error.
pub async fn kill(home: &Home, id: &str) -> Result<(), client::Error> {
    let pid = home.find(id).ok().and_then(|info| i32::try_from(info.pid).ok());
    // Held before it can end: the number may be another process's later.
    let process = pid.and_then(|pid| sys::pidfd::open(pid).ok());
    match client::Client::connect(&home.socket_of(id)).await {
        Ok(client) => match client.call::<Info>(&crate::words::Ask::Kill {}).await {
            Ok(_) => {}
            Err(error) if error.is_gone() => {}
            Err(error) => return Err(error),
        },
        Err(error) if error.is_gone() => {}
        Err(error) => return Err(error),
    }
    if let Some(process) = process {
        let gone = tokio::task::spawn_blocking(move || {
            let interest = sys::channel::Interest { fd: process.as_fd(), write: false };
            sys::channel::wait(&[interest], Some(Duration::from_secs(5)))
        });
        drop(gone.await);
    }
    Ok(())
}
