//! How a run ended, for people and programs.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::clause::ClauseId;
use crate::control::Strength;
use crate::plan::Weakened;

/// Kind of end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OutcomeKind {
    /// The program ended by itself.
    Exited,
    /// A signal ended the program.
    Signalled,
    /// A limit ended the run.
    Limit,
    /// No plan; nothing ran.
    Refused,
    /// Fumehood failed.
    Failed,
}

/// Which limit ended a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Wall time.
    Wall,
    /// Processor time.
    CpuTime,
    /// Memory.
    Memory,
    /// Processes.
    Pids,
    /// Disk.
    Disk,
    /// Output.
    Output,
    /// A usage threshold.
    Threshold,
    /// Steps of a program of the language tier.
    Steps,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// Kind.
    pub kind: OutcomeKind,
    /// Exit code of the program, if it exited.
    pub code: Option<i32>,
    /// Signal number, if one ended it.
    pub signal: Option<i32>,
    /// The limit, if one ended it.
    pub limit: Option<Limit>,
    /// One sentence for people: what ended it, with numbers.
    pub message: String,
}

impl Outcome {
    /// The exit code of `fumehood run` for this outcome (0-123 and 128+n are the program's own).
    #[must_use]
    pub fn exit_code(&self) -> i32 {
        match self.kind {
            OutcomeKind::Exited => self.code.unwrap_or(125),
            OutcomeKind::Signalled => self.signal.map_or(125, |n| 128 + n),
            OutcomeKind::Limit => 124,
            OutcomeKind::Refused => self.code.unwrap_or(126),
            OutcomeKind::Failed => self.code.unwrap_or(125),
        }
    }
}

/// What a run used. Seconds as numbers, bytes as integers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Usage {
    /// Wall time, seconds.
    pub wall: f64,
    /// User time of the tree, seconds.
    pub cpu_user: f64,
    /// System time of the tree, seconds.
    pub cpu_system: f64,
    /// Highest memory of the tree, bytes, as `limits.memory` counts it; on the vm tier that of the emulator, whose part is the machine's.
    /// `None`: it ended before anybody looked.
    pub memory_peak: Option<u64>,
    /// Most processes and threads at once; 0 = a kernel inside counts them and does not tell.
    pub pids_peak: u64,
    /// Bytes read from block devices. `None`: no control group counts them.
    pub io_read: Option<u64>,
    /// Bytes written to block devices; as the other.
    pub io_written: Option<u64>,
    /// Bytes held in writable places at the end. `None`: not counted, as of files that are written straight to the host.
    pub disk: Option<u64>,
    /// Bytes of stdout and stderr produced.
    pub output: u64,
    /// What passed the broker; `None`: the run had none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub net: Option<NetUsage>,
}

/// What passed the broker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NetUsage {
    /// Bytes from inside to outside.
    pub sent: u64,
    /// Bytes from outside to inside.
    pub received: u64,
    /// Connections that were passed on.
    pub connections: u64,
    /// Names that were looked up, denied ones as well.
    pub lookups: u64,
    /// What was stopped: look-ups, connections and requests.
    pub denied: u64,
}

/// Who saw a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DetectedBy {
    /// The kernel told us.
    Kernel,
    /// Read from the program's error text: a hint, never evidence.
    Output,
    /// The broker stopped it.
    Broker,
}

/// An attempt that was stopped, in words useful to the model that made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// Stable id, e.g. `fs.read/outside`.
    pub id: String,
    /// Clause that stopped it.
    pub clause: ClauseId,
    /// What was attempted.
    pub what: String,
    /// Why it was stopped.
    pub why: String,
    /// What to do instead.
    pub instead: String,
    /// How often.
    pub count: u64,
    /// Who saw it.
    pub seen: DetectedBy,
    /// Of a connection to an address that no name was looked up for: the file that the program executes which had the first
    /// one, as the sandbox shows it; `unknown` where that could not be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
}

/// A usage that stayed above what the policy wants to be told of; it ended nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// The clause that asks for it.
    pub clause: ClauseId,
    /// What was used, and the threshold.
    pub what: String,
}

/// One line of "what was enforced, by whom".
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EnforcerLine {
    /// Clause.
    pub clause: ClauseId,
    /// Mechanism.
    pub enforcer: String,
    /// Who holds it.
    pub strength: Strength,
    /// Overshoot.
    pub overshoot: Option<String>,
}

/// Name and digest of the policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PolicyRef {
    /// Name.
    pub name: String,
    /// SHA-256, hex.
    pub digest: String,
}

/// Digest of the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Digest {
    /// SHA-256, hex.
    pub digest: String,
}

/// What changed in the workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WorkspaceReport {
    /// How many paths were added, modified, removed, or refused (not carried over).
    pub counts: BTreeMap<String, u64>,
    /// The first [`WorkspaceReport::MAX`] of them; `fumehood diff` shows all.
    pub changes: Vec<WorkspaceChange>,
    /// What of the workspace does not work or is not protected as one may think, in words.
    pub notes: Vec<String>,
}

impl WorkspaceReport {
    /// Most changes that a report names.
    pub const MAX: usize = 200;
    /// Most notes that a report holds.
    pub const MAX_NOTES: usize = 20;
}

/// One changed path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WorkspaceChange {
    /// Relative to the workspace; bytes that are no text are shown as `\xNN`.
    pub path: String,
    /// `added`, `modified`, `removed` or `refused`.
    pub change: String,
}

/// Where the audit record stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AuditPointer {
    /// File of the last event.
    pub file: String,
    /// Its sequence number.
    pub seq: u64,
    /// Its hash.
    pub hash: String,
}

/// The report of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Always 1.
    pub schema: u32,
    /// Run id.
    pub run: String,
    /// Policy.
    pub policy: PolicyRef,
    /// Plan.
    pub plan: Digest,
    /// Tier.
    pub tier: String,
    /// Backend.
    pub backend: String,
    /// End.
    pub outcome: Outcome,
    /// Usage.
    pub usage: Usage,
    /// How many requests each secret was put into, or signed, by name; never a value.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, u64>,
    /// Enforcers.
    pub enforcers: Vec<EnforcerLine>,
    /// Weakenings.
    pub weakened: Vec<Weakened>,
    /// Thresholds of `limits.warn` that were passed.
    pub warnings: Vec<Warning>,
    /// Violations.
    pub violations: Vec<Violation>,
    /// Workspace.
    pub workspace: WorkspaceReport,
    /// Audit.
    pub audit: AuditPointer,
}
