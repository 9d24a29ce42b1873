//! Being a supervisor, in a process that was started for it.
//!
//! It is told what to make on its stdin and answers on its stdout. While it starts it dies with whoever started it; when it
//! answers, it has let go of everything of its caller: session, terminal, streams, signals. One that was told to make a
//! sandbox ready and wait lives as long as its stdin is held open: whoever does that may be killed at any moment, and nothing
//! stays behind.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use policy::Plan;
use policy::value::{Over, Policy};
use sandbox::audit::{Log, Options, Redactor};
use sandbox::snapshot::Snapshot;
use sandbox::state::State;
use sandbox::{Asker, Capabilities, Environment, Error, Planned, PolicyLayer};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::unix::pipe::Receiver;

use crate::begin::Begin;
use crate::create::{CreateReply, MAX_LINE, Order, Parked, Refusal, Request};
use crate::engine;
use crate::error::LiveError;
use crate::files::Files;
use crate::record::{Claim, Home};
use crate::restore::{Restore, RestoreSettings};
use crate::supervisor::{Setup, Supervisor, are_modules};
use crate::template::Store;
use crate::words::{Info, State as Doing};

/// The way of a caller from layers to a plan, and from a failure to words: the command line's own.
pub trait Caller {
    /// What was asked for, as a plan for the agent.
    ///
    /// # Errors
    /// A refusal, already recorded.
    fn plan(&self, layers: &[PolicyLayer], host: &Capabilities) -> Result<Planned, Error>;
    /// Who gets questions about the network answered.
    fn asker(&self) -> Option<Arc<dyn Asker>>;
    /// Why there is no sandbox.
    fn refusal(&self, stop: Error, request: &Request) -> Refusal;
}

type Orders = BufReader<Receiver>;

/// Is a supervisor: reads what it is to do from stdin, answers on stdout, and serves until the sandbox has ended.
pub fn supervise(environment: &Environment, caller: &dyn Caller) -> u8 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(4).build();
    let Ok(runtime) = runtime else { return 125 };
    runtime.block_on(async {
        let Some(mut orders) = orders() else { return 125 };
        let (request, waits) = match next(&mut orders).await {
            Some(Order::Create(request)) => (request, false),
            Some(Order::Park(request)) => (request, true),
            Some(Order::Take(_)) | None => return 125,
        };
        let ready = match Ready::make(&request, environment, caller) {
            Ok(ready) => ready,
            Err(stop) => return refuse(caller, stop, &request),
        };
        if waits {
            return spare(ready, orders, &request, (environment, caller)).await;
        }
        drop(orders);
        let supervisor = match ready.go(&request, environment).await {
            Ok(supervisor) => supervisor,
            Err(stop) => return refuse(caller, stop, &request),
        };
        serve(supervisor, false).await
    })
}

/// Answers that it is there, and serves to its end.
async fn serve(supervisor: Supervisor, has_let_go: bool) -> u8 {
    // From here on it lives whoever started it; before the answer, since nobody could end it otherwise.
    let answered =
        (has_let_go || let_go()) && answer(&CreateReply::Created(Box::new(supervisor.info()))) && close_streams();
    if !answered && rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM).is_err() {
        return 125;
    }
    supervisor.serve().await;
    0
}

/// One that waits: its agent has answered, and with it a Python if one is wanted. It is nobody's, and runs nothing, until it is taken.
async fn spare(
    ready: Ready,
    mut orders: Orders,
    request: &Request,
    (environment, caller): (&Environment, &dyn Caller),
) -> u8 {
    let (parked, life) = (ready.said(), ready.life());
    let home = State::open(&environment.state).map_err(Error::from).and_then(|state| Home::new(&state).map_err(own));
    let home = match home {
        Ok(home) => home,
        Err(stop) => return refuse(caller, stop, request),
    };
    let mut supervisor = match ready.started(request, environment, true).await {
        Ok((supervisor, _)) => supervisor,
        Err(stop) => return refuse(caller, stop, request),
    };
    if let Some(imports) = request.imports.clone() {
        supervisor.warm(imports);
    }
    let said = let_go() && answer(&CreateReply::Parked(parked));
    let wanted = async { if said { next(&mut orders).await.and_then(Order::taking) } else { None } };
    let Some((supervisor, taking)) = supervisor.wait(wanted).await else { return 0 };
    let taken = supervisor.taken((life, taking.idle_ms), |claim, info| {
        if let Some(name) = &taking.name {
            home.name(claim, name)?;
        }
        info.created_ms = jiff::Timestamp::now().as_millisecond();
        info.end_in(info.created_ms, life);
        (info.name, info.labels) = (taking.name.clone(), taking.labels.clone());
        Ok(())
    });
    let begun = match taken.await {
        Ok(supervisor) => begun(supervisor, request, environment, true).await,
        Err(error) => Err(own(error)),
    };
    match begun {
        Ok(supervisor) => serve(supervisor, true).await,
        Err(stop) => refuse(caller, stop, request),
    }
}

/// Lets a sandbox begin as its template says, where that says anything. One that waits for somebody has not begun; who takes it is
/// told that it was heard.
async fn begun(
    supervisor: Supervisor,
    request: &Request,
    environment: &Environment,
    was_taken: bool,
) -> Result<Supervisor, Error> {
    let begin = match &request.begin {
        Some(begin) => Some(begin.clone()),
        None => {
            let state = State::open(&environment.state)?;
            let begin = Begin::of(&Store::new(state.path()), &request.template);
            begin.map_err(|error| Error::Failed(vec![error.fault()]))?
        }
    };
    let Some(begin) = begin else { return Ok(supervisor) };
    if was_taken && !answer(&CreateReply::Begins) {
        return Err(own(LiveError::Start { why: "nobody hears it any more".to_owned() }));
    }
    let template = request.template.clone();
    supervisor.begun(begin).await.map_err(|why| own(LiveError::Begin { template, why }))
}

fn refuse(caller: &dyn Caller, stop: Error, request: &Request) -> u8 {
    let refusal = caller.refusal(stop, request);
    let code = refusal.code;
    if answer(&CreateReply::Refused(refusal)) { code } else { 125 }
}

/// The pipe on which it is told.
fn orders() -> Option<Orders> {
    let pipe = std::io::stdin().as_fd().try_clone_to_owned().ok()?;
    Some(BufReader::new(Receiver::from_owned_fd(pipe).ok()?))
}

async fn next(orders: &mut Orders) -> Option<Order> {
    let mut line = Vec::new();
    orders.take(MAX_LINE).read_until(b'\n', &mut line).await.ok()?;
    serde_json::from_slice(&line).ok()
}

/// A sandbox in which everything is in force and proven. Dropped, it is ended.
struct Ready {
    parked: sandbox::Parked,
    home: Home,
    claim: Claim,
    plan: Plan,
    log: Log,
    /// The log of what is done with its files.
    files: Files,
    restore: Option<(String, Restore)>,
}

/// Our own errors, as what a start refuses or fails with.
fn own(error: LiveError) -> Error {
    match error {
        LiveError::State(error) => Error::from(error),
        LiveError::Snapshot(error) => Error::from(error),
        LiveError::Name { .. }
        | LiveError::Taken { .. }
        | LiveError::Unfit { .. }
        | LiveError::Imports
        | LiveError::Begin { .. } => Error::Refused(vec![error.fault()]),
        LiveError::Folder { .. }
        | LiveError::Unknown { .. }
        | LiveError::Over { .. }
        | LiveError::Restore { .. }
        | LiveError::Start { .. } => Error::Failed(vec![error.fault()]),
    }
}

impl Ready {
    fn make(request: &Request, environment: &Environment, caller: &dyn Caller) -> Result<Self, Error> {
        if !request.imports.as_deref().is_none_or(are_modules) {
            return Err(own(LiveError::Imports));
        }
        let state = State::open(&environment.state)?;
        let home = Home::new(&state).map_err(own)?;
        let claim = home.claim(request.name.as_deref()).map_err(own)?;
        let host = Capabilities::probe_with(environment.services());
        let layers: Vec<PolicyLayer> = request.layers.iter().cloned().map(PolicyLayer::from).collect();
        let planned = caller.plan(&layers, &host)?;
        let plan = planned.plan.clone();
        let audit = &plan.policy.audit;
        let options = || Options { sync: audit.sync, redact: Redactor::new(&audit.redact), ..Options::default() };
        let open = || Log::open(&state, audit.path.as_deref(), options());
        let log = open()?;
        let snapshot = request.from.as_deref().map(|word| Snapshot::open(&state, word)).transpose()?;
        let memory = snapshot.as_ref().map(Snapshot::memory).transpose()?.flatten().map(Arc::new);
        let restore = match snapshot {
            Some(snapshot) => {
                let id = snapshot.id().to_owned();
                let unfit = |why| own(LiveError::Unfit { id: id.clone(), why });
                Some((id.clone(), Restore::new(snapshot, &plan).map_err(unfit)?))
            }
            None => None,
        };
        let files = Files::new(&environment.state, open()?, &plan.policy);
        let environment = Environment { given: request.given.clone(), ..environment.clone() };
        let parked = engine::park(planned, &environment, &host, (caller.asker(), request.no_links), memory)?;
        Ok(Self { parked, home, claim, plan, log, files, restore })
    }

    /// What is said of it while it waits.
    fn said(&self) -> Parked {
        Parked { policy: name(&self.plan), tier: self.plan.tier.as_str().to_owned(), guest: self.parked.pid() }
    }

    /// How long it is to live.
    fn life(&self) -> Option<Duration> {
        self.plan.policy.limits.wall.map(|wall| Duration::from_millis(wall.0))
    }

    /// Lets it go as the sandbox of this request, and makes it what its snapshot was.
    async fn go(self, request: &Request, environment: &Environment) -> Result<Supervisor, Error> {
        let (mut supervisor, restore) = self.started(request, environment, false).await?;
        // What its template begins with goes on in it.
        let goes_on = restore.as_ref().is_some_and(|(_, restore)| restore.goes_on());
        if let Some((id, restore)) = restore {
            let restored = supervisor.restored(restore).await;
            supervisor = restored.map_err(|why| own(LiveError::Restore { id, why }))?;
        }
        if !goes_on {
            supervisor = begun(supervisor, request, environment, false).await?;
        }
        if let Some(imports) = request.imports.clone() {
            supervisor.warm(imports);
        }
        Ok(supervisor)
    }

    /// Lets it go; `spare`: as nobody's yet. And what it is to become.
    async fn started(
        self,
        request: &Request,
        environment: &Environment,
        spare: bool,
    ) -> Result<(Supervisor, Option<(String, Restore)>), Error> {
        let life = self.life().filter(|_| !spare);
        let Self { parked, home, mut claim, plan, log, files, restore } = self;
        if let Some(name) = &request.name {
            home.name(&mut claim, name).map_err(own)?;
        }
        let files = files.kept(kept(request, environment));
        let (carrier, run) = engine::go(parked, files)?;
        let policy: &Policy = &plan.policy;
        let info = info(request, &plan, claim.id(), run);
        let setup = Setup {
            claim,
            info,
            log: Some(log),
            policy: Some(Box::new(policy.clone())),
            output: policy.limits.output.map(|bytes| bytes.0),
            kill_over: policy.limits.over == Over::Kill,
            life,
            idle: request.idle_ms.map(Duration::from_millis),
        };
        let supervisor =
            if spare { Supervisor::ready(setup, carrier).await } else { Supervisor::begin(setup, carrier).await };
        Ok((supervisor.map_err(own)?, restore))
    }
}

/// Name and digest of a policy.
fn name(plan: &Plan) -> String {
    format!("{} {}", plan.policy.name, plan.policy_digest())
}

/// All about it that is known before its agent has answered.
fn info(request: &Request, plan: &Plan, id: &str, run: String) -> Info {
    let policy: &Policy = &plan.policy;
    let created_ms = jiff::Timestamp::now().as_millisecond();
    let life = policy.limits.wall.map(|wall| Duration::from_millis(wall.0));
    let mut info = Info {
        id: id.to_owned(),
        name: request.name.clone(),
        labels: request.labels.clone(),
        state: Doing::Running,
        run,
        tier: plan.tier.as_str().to_owned(),
        policy: name(plan),
        plan: plan.digest().to_owned(),
        template: request.template.clone(),
        created_ms,
        ends_ms: None,
        ends_boot_ms: None,
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
        violations: Vec::new(),
        report: None,
    };
    info.end_in(created_ms, life);
    info
}

/// What a snapshot of it says.
fn kept(request: &Request, environment: &Environment) -> RestoreSettings {
    RestoreSettings {
        cwd: environment.cwd.clone(),
        layers: request.layers.clone(),
        template: request.template.clone(),
        imports: request.imports.clone(),
        idle_ms: None,
        labels: BTreeMap::new(),
    }
}

/// Away from the caller's session, terminal and end.
fn let_go() -> bool {
    let alone = rustix::process::setsid().is_ok();
    let outlives = rustix::process::set_parent_process_death_signal(None).is_ok();
    // Of the caller's folder nothing is held.
    alone && outlives && rustix::process::chdir("/").is_ok()
}

fn answer(answer: &CreateReply) -> bool {
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
