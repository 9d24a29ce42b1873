//! Starting a supervisor: the request goes to a process of its own, and one line comes back.
//!
//! The process is the program itself, called with a hidden command ([`crate::supervise`]).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use sandbox::{Environment, Hidden, PolicyLayer};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sys::command::Command;
use sys::spawn::Child;

use crate::begin::Begin;
use crate::client;
use crate::error::LiveError;
use crate::record::Home;
use crate::words::Info;

/// The hidden command by which the program becomes a supervisor.
pub const COMMAND: &str = "supervise";
/// [`Refusal::code`] of our own failures.
const FAILED: u8 = 125;
/// No request and no answer is longer.
pub(crate) const MAX_LINE: u64 = 16 << 20;

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
    /// [`sandbox::Options::no_links`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_links: bool,
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
    /// What it begins with, in the place of what its template says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin: Option<Begin>,
    /// The snapshot that it begins as, by id or name. Its layers are not taken from there: [`crate::RestoreSettings`] has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Modules that a Python inside imports, which then waits for code that keeps no state ([`crate::words::Ask::Python`]); none =
    /// no such Python.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imports: Option<Vec<String>>,
    /// Values of secrets that are for this sandbox alone, by the variable that `from` of each names. They are kept nowhere: what
    /// begins as a snapshot of it has none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub given: BTreeMap<String, Hidden>,
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

impl Refusal {
    /// Whether something of ours failed: another try may do.
    pub(crate) const fn is_ours(&self) -> bool {
        self.code == FAILED
    }
}

/// What a supervisor says when it has started, or why it did not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CreateReply {
    /// It runs.
    Created(Box<Info>),
    /// It is ready, and waits to be taken.
    Parked(Parked),
    /// It was taken, and begins as its template says, which takes as long as that takes.
    Begins,
    /// It does not run.
    Refused(Refusal),
}

/// A sandbox in which everything is in force and proven, and whose agent has answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parked {
    /// Name and digest of the policy that it was made ready with, as in [`Info`].
    pub policy: String,
    /// `process`, `container` or `vm`.
    pub tier: String,
    /// The guest's process, outside.
    pub guest: i32,
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
    let mut started = SupervisorProcess::new(program, environment)?;
    // One that ended before it read says so by its answer, or by none.
    drop(started.say(&Order::Create(request.clone()), None));
    started.created(None)
}

/// What a supervisor is told on its stdin, each in a line of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// Make this sandbox.
    Create(Request),
    /// Make it as nobody's, and wait for `Take`. Who closes stdin instead has no use for it.
    Park(Request),
    /// Let it go, as this one's.
    Take(Taking),
}

impl Order {
    pub(crate) fn taking(self) -> Option<Taking> {
        match self {
            Self::Take(taking) => Some(taking),
            Self::Create(_) | Self::Park(_) => None,
        }
    }
}

/// What is said of a sandbox when it is taken, beside what it was made ready with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Taking {
    pub(crate) name: Option<String>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) idle_ms: Option<u64>,
}

/// A supervisor's process that was started, and waits for what it is told. Dropped, it hears that nobody wants anything of it.
#[derive(Debug)]
pub(crate) struct SupervisorProcess {
    orders: File,
    answers: BufReader<File>,
    pub(crate) child: Child,
}

impl SupervisorProcess {
    pub(crate) fn new(program: &std::path::Path, environment: &Environment) -> Result<Self, LiveError> {
        let failed = |error: &dyn std::fmt::Display| LiveError::Start { why: error.to_string() };
        let (their_orders, our_orders) = sys::channel::pipe().map_err(|error| failed(&error))?;
        let (our_answers, their_answers) = sys::channel::pipe().map_err(|error| failed(&error))?;
        let null = sys::channel::dev_null().map_err(|error| failed(&error))?;
        let mut command = Command::new(program).arg(COMMAND);
        for (name, value) in &environment.env {
            let mut variable = name.clone();
            variable.push("=");
            variable.push(value);
            command = command.variable(variable);
        }
        let directory: PathBuf = environment.cwd.clone().unwrap_or_else(|| PathBuf::from("/"));
        let child = command
            .directory(directory)
            .start(their_orders.as_fd(), their_answers.as_fd(), null.as_fd())
            .map_err(|error| failed(&error))?;
        // One that is stopped reads nothing: who tells it something waits no longer than he says.
        sys::channel::set_nonblocking(&our_orders).map_err(|error| failed(&error))?;
        Ok(Self { orders: File::from(our_orders), answers: BufReader::new(File::from(our_answers)), child })
    }

    /// Tells it something, in this time.
    pub(crate) fn say(&mut self, order: &Order, within: Option<Duration>) -> std::io::Result<()> {
        let until = within.and_then(|within| Instant::now().checked_add(within));
        let mut line = serde_json::to_vec(order)?;
        line.push(b'\n');
        let mut rest = line.as_slice();
        while !rest.is_empty() {
            match self.orders.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => ready(self.orders.as_fd(), true, until)?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Its next answer. One that says nothing, or nothing in the time that it has, is ended.
    pub(crate) fn answer(&mut self, within: Option<Duration>) -> Result<CreateReply, LiveError> {
        let said = self.line(within);
        let in_time = !said.as_ref().is_err_and(|error| error.kind() == ErrorKind::TimedOut);
        match said.map(|line| serde_json::from_slice(&line)) {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) | Err(_) => {
                let killed = sys::pidfd::send_signal(&self.child.pidfd, 9);
                let ended = sys::pidfd::wait(&self.child.pidfd);
                let said = if in_time { "it ended without an answer" } else { "it did not answer in time" };
                let why = format!("{said}: {ended:?} (killed: {})", killed.is_ok());
                Err(LiveError::Start { why })
            }
        }
    }

    fn line(&mut self, within: Option<Duration>) -> std::io::Result<Vec<u8>> {
        let until = within.and_then(|within| Instant::now().checked_add(within));
        let mut line = Vec::new();
        while u64::try_from(line.len()).is_ok_and(|length| length < MAX_LINE) {
            if self.answers.buffer().is_empty() {
                ready(self.answers.get_ref().as_fd(), false, until)?;
            }
            let some = match self.answers.fill_buf() {
                Ok(some) => some,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let end = some.iter().position(|byte| *byte == b'\n').map(|at| at.saturating_add(1));
            let taken = end.unwrap_or(some.len());
            line.extend_from_slice(some.get(..taken).unwrap_or_default());
            self.answers.consume(taken);
            if end.is_some() || taken == 0 {
                break;
            }
        }
        Ok(line)
    }

    /// A sandbox of it, or why there is none; `within`: how long it may take to say that it was heard.
    pub(crate) fn created(mut self, mut within: Option<Duration>) -> Result<Result<Created, Refusal>, LiveError> {
        loop {
            match self.answer(within)? {
                CreateReply::Created(info) => return Ok(Ok(Created { info: *info, process: self.child.pidfd })),
                CreateReply::Refused(refusal) => {
                    drop(sys::pidfd::wait(&self.child.pidfd));
                    return Ok(Err(refusal));
                }
                CreateReply::Begins => within = None,
                CreateReply::Parked(_) => {
                    let child = self.leave();
                    drop(sys::pidfd::wait(&child.pidfd));
                    return Err(LiveError::Start { why: "it waits to be taken, which nobody asked for".to_owned() });
                }
            }
        }
    }

    /// Nobody wants anything of it any more: it ends by that.
    pub(crate) fn leave(self) -> Child {
        self.child
    }
}

/// Waits until something can be written or read, to this moment at most.
fn ready(fd: BorrowedFd<'_>, write: bool, until: Option<Instant>) -> std::io::Result<()> {
    let interest = sys::channel::Interest { fd, write };
    let ready = sys::channel::wait_until(&[interest], until).map_err(std::io::Error::other)?;
    if ready == [true] { Ok(()) } else { Err(ErrorKind::TimedOut.into()) }
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
