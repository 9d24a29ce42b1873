//! Where a probe runs: in our sandbox, in another one, or in none.

use std::ffi::OsString;
use std::os::fd::{OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use crate::row::Control;
use crate::survey::Task;
use sandbox::fault::Fault;

/// One run of a probe.
#[derive(Clone, Debug, Default)]
pub struct ProbeCall {
    /// The program: a copy of our own binary that everybody may read.
    pub program: PathBuf,
    /// What follows its name.
    pub argv: Vec<OsString>,
    /// A folder of the host to work in, writable in the policy's own way.
    pub workspace: Option<PathBuf>,
    /// Folders of the host to be granted for reading, at their own path.
    pub read: Vec<PathBuf>,
    /// Folders of the host to be granted for writing, at their own path.
    pub write: Vec<PathBuf>,
    /// Clauses set for this run.
    pub set: Vec<(String, String)>,
    /// Variables of whoever starts the sandbox, beside those of the caller: the probe should not see them.
    pub env: Vec<(String, OsString)>,
    /// Descriptors that whoever starts the sandbox holds open, with their numbers.
    pub fds: Vec<(Rc<OwnedFd>, RawFd)>,
    /// Standard input; `None` is `/dev/null`.
    pub stdin: Option<Rc<OwnedFd>>,
    /// Working directory of whoever starts it. `None`: the workspace for a bare probe, and for a sandbox where the user
    /// stands: a policy may name files from there.
    pub directory: Option<PathBuf>,
    /// Standard input is a terminal, and its session is that of whoever starts it.
    pub terminal: bool,
    /// Whoever starts it is in more groups than its own.
    pub groups: bool,
    /// Another file system, with a secret in it, that whoever starts it has mounted here.
    pub mount: Option<(PathBuf, String)>,
    /// The file that names the machine's resolvers, for whoever starts it alone.
    pub resolvers: Option<PathBuf>,
    /// A network namespace, for whoever starts it alone.
    pub network: Option<PathBuf>,
    /// How an unconfined run is made.
    pub control: Control,
    /// Killed after this.
    pub limit: Duration,
}

impl ProbeCall {
    /// The word by which its processes are known from outside.
    pub(crate) fn marker(&self) -> &str {
        self.argv.get(1).and_then(|marker| marker.to_str()).unwrap_or_default()
    }

    /// Where a probe is started that no sandbox puts anywhere.
    #[must_use]
    pub fn bare_directory(&self) -> &Path {
        self.directory.as_deref().or(self.workspace.as_deref()).unwrap_or(Path::new("/"))
    }
}

/// What is seen from outside while it runs.
#[derive(Debug)]
pub struct Moment<'a> {
    /// Since the start.
    pub since: Duration,
    /// The tasks of the probe, by its marker.
    pub tasks: &'a [Task],
    /// The process that supervises it.
    pub child: i32,
}

/// What a run left.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// What the probe wrote.
    pub stdout: Vec<u8>,
    /// What it and its sandbox wrote beside.
    pub stderr: Vec<u8>,
    /// Exit code of what we started.
    pub code: Option<i32>,
    /// We killed it.
    pub timed_out: bool,
    /// How long it took.
    pub wall: Duration,
    /// The JSON report, where there is one.
    pub report: serde_json::Value,
}

/// A confinement, or none.
pub trait Confined: Sync {
    /// For messages.
    fn name(&self) -> &'static str;

    /// Where the workspace is seen from inside.
    fn workspace_seen(&self, host: &Path) -> PathBuf;

    /// Runs the probe to its end, calling `watch` all the while.
    ///
    /// # Errors
    /// The sandbox could not be started, or refused.
    fn run(&self, call: &ProbeCall, watch: &mut dyn FnMut(&Moment<'_>)) -> Result<Observed, Fault>;
}
