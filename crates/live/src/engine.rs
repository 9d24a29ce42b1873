//! A run of the engine as a supervisor holds it.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream as Socket;
use std::sync::Arc;
use std::time::Duration;

use agent::words::{Code, Failure};
use policy::report::Limit;
use policy::{OutcomeKind, Violation};
use sandbox::{
    Asker, Capabilities, Environment, Error, Finished, Handle, Options, Parked, Planned, Remembered, Sandbox, Stdio,
};
use serde_json::{Value, json};
use tokio::net::UnixStream;

use crate::files::Files;
use crate::supervisor::{Carrier, Finish, Run};
use crate::words::{Apply, Changed, EndReason, Replaced, Snapshotted, Taken};

/// Longest wall time of a run without an end: ten years.
const FOR_EVER: Duration = Duration::from_secs(10 * 366 * 24 * 60 * 60);

struct Engine {
    handle: Handle,
    files: Files,
}

impl Run for Engine {
    fn usage(&self) -> Value {
        json!(self.handle.usage())
    }

    fn oom_kills(&self) -> u64 {
        self.handle.out_of_memory()
    }

    fn secret_in(&self, text: &str) -> Option<String> {
        self.handle.secret_in(text.as_bytes()).map(str::to_owned)
    }

    fn violations(&self) -> Arc<[Violation]> {
        self.handle.violations()
    }

    fn count(&self, done: Box<dyn FnOnce() + Send>) -> bool {
        self.handle.count(done)
    }

    fn has_lost_network(&self) -> bool {
        self.handle.has_lost_network()
    }

    fn kill(&self) {
        self.handle.kill();
    }

    fn set_wall(&self, from_now: Option<Duration>) {
        // Counted from its start.
        let wall = from_now.map_or(FOR_EVER, |left| self.handle.elapsed().saturating_add(left));
        self.handle.set_wall(wall);
    }

    fn taken(&self) {
        self.handle.taken();
    }

    fn freeze(&self, frozen: bool) -> Result<(), Failure> {
        self.handle.freeze(frozen).map_err(|message| Failure::new(Code::Unsupported, message))
    }

    fn changes(&self) -> Result<Changed, Failure> {
        Files::changes(&self.handle)
    }

    fn network(&self, net: &Value, secrets: Option<&Value>) -> Result<Replaced, Failure> {
        self.files.network(&self.handle, net, secrets)
    }

    fn hosts(&self, net: &Value) -> Result<Replaced, Failure> {
        self.files.hosts(&self.handle, net)
    }

    fn rules(&self) -> Result<Value, Failure> {
        Ok(self.files.rules())
    }

    fn apply(&self, wanted: &Apply) -> Result<Taken, Failure> {
        self.files.apply(&self.handle, wanted)
    }

    fn snapshot(
        &self,
        name: Option<String>,
        labels: BTreeMap<String, String>,
        idle_ms: Option<u64>,
    ) -> Result<Snapshotted, Failure> {
        self.files.snapshot(&self.handle, name, (labels, idle_ms))
    }
}

/// Starts what was planned for the agent, as far as *go*; a machine goes on from what another one was, where that is given.
///
/// # Errors
/// As `sandbox::park`.
pub(crate) fn park(
    planned: Planned,
    environment: &Environment,
    host: &Capabilities,
    (asker, no_links): (Option<Arc<dyn Asker>>, bool),
    memory: Option<Arc<Remembered>>,
) -> Result<Parked, Error> {
    sandbox::park(planned, environment, host, Options { asker, no_links, memory, ..Options::new(Stdio::Socket) })
}

/// Lets the agent go; the run, and its id. Must be called within a tokio runtime.
///
/// # Errors
/// As `sandbox::Parked::go`.
pub(crate) fn go(parked: Parked, files: Files) -> Result<(Carrier, String), Error> {
    let mut sandbox = parked.go()?;
    let run = sandbox.id().to_owned();
    let handle = sandbox.handle();
    let Some(socket) = sandbox.take_socket() else { return Err(lost("the run has no socket to its agent")) };
    let ended = Box::pin(ended(sandbox));
    Ok((Carrier { socket: Socket::from(socket), run: Arc::new(Engine { handle, files }), ended }, run))
}

fn lost(why: &str) -> Error {
    Error::Failed(vec![crate::LiveError::Start { why: why.to_owned() }.fault()])
}

/// Waits for the end of a run.
async fn ended(sandbox: Sandbox) -> Finish {
    if let Ok(fd) = sandbox.ended().try_clone_to_owned()
        && let Ok(end) = UnixStream::from_std(fd.into())
        && end.readable().await.is_err()
    {
        // Then its report is waited for in a thread all the same.
    }
    let waited = tokio::task::spawn_blocking(move || sandbox.wait()).await;
    match waited {
        Ok(Ok(finished)) => finish(&finished),
        Ok(Err(error)) => failed(error),
        Err(_lost) => failed(lost("the thread that waited for its end is gone")),
    }
}

fn failed(error: Error) -> Finish {
    let message =
        error.into_faults().first().map_or_else(String::new, |fault| format!("{}: {}", fault.what, fault.why));
    Finish { reason: EndReason::Failed, message, report: None }
}

fn finish(finished: &Finished) -> Finish {
    let outcome = &finished.report.outcome;
    let (reason, message) = match (outcome.kind, outcome.limit) {
        (OutcomeKind::Limit, Some(Limit::Wall)) => (EndReason::Timeout, outcome.message.clone()),
        (OutcomeKind::Limit, Some(Limit::Memory)) => (EndReason::Memory, outcome.message.clone()),
        (OutcomeKind::Limit, _) => (EndReason::Limit, outcome.message.clone()),
        (OutcomeKind::Exited | OutcomeKind::Signalled, _) => {
            (EndReason::Agent, format!("the agent ended, and everything with it: {}", outcome.message))
        }
        (OutcomeKind::Refused | OutcomeKind::Failed, _) => (EndReason::Failed, outcome.message.clone()),
    };
    Finish { reason, message, report: Some(finished.to_json()) }
}
