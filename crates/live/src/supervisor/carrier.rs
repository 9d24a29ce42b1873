//! The one place where the engine comes in: a run whose program is the agent, and a socket that leads to it.

use std::collections::BTreeMap;
use std::future::Future;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use agent::words::{Code, Failure};
use policy::Violation;
use serde_json::Value;

use crate::words::{Apply, Changed, EndReason, Replaced, Snapshotted, Taken};

/// What a supervisor asks of a run. Nothing here may wait but what gives a result, which is called in a thread of its own unless it
/// says otherwise.
pub trait Run: Send + Sync {
    /// Usage so far, as in the report of a run.
    fn usage(&self) -> Value;
    /// How often the kernel ended something inside because memory was used up.
    fn oom_kills(&self) -> u64;
    /// The secret of its policy whose value stands in a text, which must not come inside.
    fn secret_in(&self, _text: &str) -> Option<String> {
        None
    }
    /// What the broker of its network stopped so far, as far as it was told: one for each kind, in the order of the first ones.
    fn violations(&self) -> Arc<[Violation]> {
        Arc::from([])
    }
    /// Has what was stopped counted, and calls `done` when [`Run::violations`] has it; or drops it where that will not be. `false`
    /// where there is nothing to wait for.
    fn count(&self, _done: Box<dyn FnOnce() + Send>) -> bool {
        false
    }
    /// Whether it had a broker of its network, which has ended: programs inside reach nothing.
    fn has_lost_network(&self) -> bool {
        false
    }
    /// Ends everything inside.
    fn kill(&self);
    /// Its wall time is over so long from now; without, never.
    fn set_wall(&self, from_now: Option<Duration>);
    /// It is somebody's from now on: usage of its time begins.
    fn taken(&self) {}
    /// Freezes everything inside, or thaws it.
    ///
    /// # Errors
    /// `unsupported` where the host has no freezer.
    fn freeze(&self, frozen: bool) -> Result<(), Failure>;
    /// Reads what it changed in its workspace so far into the store of its run.
    ///
    /// # Errors
    /// `unsupported` where it has no layer, or the host has no freezer.
    fn changes(&self) -> Result<Changed, Failure> {
        Err(no_files())
    }
    /// Replaces the rules of its network by those of a whole `[net]` table, which is recorded under the id of the run; `secrets`:
    /// those that are named beside them.
    ///
    /// # Errors
    /// The broker, or the log, failed.
    fn network(&self, _net: &Value, _secrets: Option<&Value>) -> Result<Replaced, Failure> {
        Err(Failure::new(Code::Unsupported, "this sandbox has no broker, and reaches no host".to_owned()))
    }
    /// The same of those whom a whole `[net]` table allows; the rest stays as it is.
    ///
    /// # Errors
    /// As [`Run::network`].
    fn hosts(&self, _net: &Value) -> Result<Replaced, Failure> {
        Err(Failure::new(Code::Unsupported, "this sandbox has no broker, and reaches no host".to_owned()))
    }
    /// The rules of its network as they are now: a whole `[net]` table. Does not wait.
    ///
    /// # Errors
    /// `unsupported` where nobody knows them.
    fn rules(&self) -> Result<Value, Failure> {
        Err(Failure::new(Code::Unsupported, "this sandbox has no rules of a network".to_owned()))
    }
    /// Takes changes to the host, which is recorded under the id of the run.
    ///
    /// # Errors
    /// As [`Run::changes`]; nothing was applied then.
    fn apply(&self, _wanted: &Apply) -> Result<Taken, Failure> {
        Err(no_files())
    }
    /// Keeps its files as a snapshot, which says these labels and this idle time.
    ///
    /// # Errors
    /// As [`Run::changes`]; and `exists` where the name is taken.
    fn snapshot(
        &self,
        _name: Option<String>,
        _labels: BTreeMap<String, String>,
        _idle_ms: Option<u64>,
    ) -> Result<Snapshotted, Failure> {
        Err(no_files())
    }
}

fn no_files() -> Failure {
    Failure::new(Code::Unsupported, "the files of this sandbox cannot be read from outside".to_owned())
}

/// How a run ended, when nothing of it is left.
#[derive(Clone, Debug, PartialEq)]
pub struct Finish {
    /// Why, as far as the run knows: it was killed, a limit was reached, or the agent ended by itself.
    pub reason: EndReason,
    /// The same in one sentence.
    pub message: String,
    /// Its report.
    pub report: Option<Value>,
}

/// A run that was let go.
pub struct Carrier {
    /// Leads to the agent.
    pub socket: UnixStream,
    /// The run.
    pub run: Arc<dyn Run>,
    /// Its end.
    pub ended: Pin<Box<dyn Future<Output = Finish> + Send>>,
}

impl std::fmt::Debug for Carrier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Carrier").field("socket", &self.socket).finish_non_exhaustive()
    }
}
