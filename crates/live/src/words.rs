//! What a caller can ask a supervisor, beside what it hands on to the agent ([`agent::words::Request`], but for `hello` and
//! `start`). Frames and flow are those of [`agent::frame`].

use std::collections::BTreeMap;

use agent::words::{Program, Size};
use sandbox::state::PathText;
use serde::{Deserialize, Serialize};

/// How a sandbox is doing. States change only by its supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Its supervisor runs.
    Running,
    /// Its processes are frozen.
    Paused,
    /// Nothing of it runs any more; its record and its changes are there.
    Ended,
}

/// Why a sandbox ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// Somebody asked for it.
    Killed,
    /// Its life (`--timeout`) was over.
    Timeout,
    /// Nothing was asked of it and nothing ran for `--idle`.
    Idle,
    /// A limit of the policy that holds for the whole sandbox; `message` says which.
    Limit,
    /// Its memory was used up and the agent was ended for it.
    Memory,
    /// A program inside ended the agent, or the agent broke the protocol.
    Agent,
    /// The supervisor was told to stop by a signal (a shutdown of the host).
    Signal,
    /// The supervisor is gone and said nothing: it was killed, or the host went down.
    Lost,
    /// Our own failure; `message` says it.
    Failed,
}

/// A program to run for a caller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exec {
    /// The program.
    pub program: Program,
    /// After so many milliseconds its whole tree is killed; never without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// It lives on when the caller that started it is gone; without, a lost connection kills its tree.
    #[serde(default)]
    pub detach: bool,
    /// A word of the caller's by which it can be found, e.g. E2B's `tag`; need not be unique.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

/// Which program of the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Which {
    /// By its word (`p1`, `p2`, ...), as `exec` told it.
    Id(String),
    /// By its pid inside.
    Pid(u32),
    /// By its tag; the newest.
    Tag(String),
}

/// What a caller asks of a supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Ask {
    /// All about the sandbox. End: [`Info`].
    Info {},
    /// Runs a program. Reply: [`Running`]; data both ways, controls [`agent::words::ProgramControl`]; End: [`Report`].
    Exec(Exec),
    /// Runs code that keeps no state in the Python that has imported and waits, where the sandbox was created with `imports`:
    /// as an `exec` of `python3 -c CODE`. `unsupported` without one.
    Python {
        /// The code, 128 KiB at most.
        code: String,
        /// After so many milliseconds its whole tree is killed; never without.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
    },
    /// Listens to a program that runs, and may write to it: as the stream of its `exec`, from now on. One that ended less than
    /// 30 s ago is answered with Reply and End.
    Attach {
        /// The program.
        which: Which,
    },
    /// What a program has printed so far, as it was kept (the newest MiB of each lane). Data; End: empty.
    Logs {
        /// The program.
        which: Which,
        /// Go on with what comes, until the program ends.
        #[serde(default)]
        follow: bool,
    },
    /// The programs that `exec` started: those that run, and those that ended less than 30 s ago. End: [`Programs`].
    Programs {},
    /// Signals a program; End: empty; `not_found` if none such runs.
    Signal {
        /// The program.
        which: Which,
        /// The signal's number.
        number: u8,
        /// To everything that descends from it.
        #[serde(default)]
        tree: bool,
    },
    /// Writes to a program's input or terminal, after what was written before. End: empty; `invalid` where it has no input.
    Input {
        /// The program.
        which: Which,
        /// What to write, base64.
        bytes: String,
        /// Only to a terminal: `invalid` where it has none.
        #[serde(default)]
        tty: bool,
    },
    /// Closes a program's input. End: empty.
    CloseInput {
        /// The program.
        which: Which,
    },
    /// Gives a program's terminal another size. End: empty.
    Resize {
        /// The program.
        which: Which,
        /// Rows and columns.
        size: Size,
    },
    /// Ends the sandbox. End: [`Info`], when nothing is left of it.
    Kill {},
    /// Freezes it. End: [`Info`]; `unsupported` where the host has no freezer.
    Pause {},
    /// Thaws it. End: [`Info`].
    Resume {},
    /// Its life is over so many milliseconds from now. End: [`Info`].
    Timeout {
        /// Milliseconds from now; 0 = at once.
        ms: u64,
        /// Only if that is later than its end is now.
        #[serde(default)]
        only_later: bool,
        /// Labels that it has from then on, beside its others: what the caller must remember of this end.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        labels: BTreeMap<String, String>,
    },
    /// Waits for its end. End: [`Info`], which has the report of the run.
    Wait {},
    /// Reads what it changed in its workspace so far into the store of its run, where `diff` finds it; everything inside stands
    /// still meanwhile. End: [`Changed`]; `unsupported` where it has no layer or the host has no freezer.
    Changes {},
    /// Replaces the rules of its network; connections that no longer fit are cut. End: [`Replaced`].
    Network {
        /// The whole `[net]` table, resolved (`policy::value::Net::document`).
        net: serde_json::Value,
        /// The `[secrets]` that the caller names beside them (`policy::value::secrets_document`): others than those of its start
        /// are refused.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        secrets: Option<serde_json::Value>,
    },
    /// Replaces whom the rules of its network allow, at once with reading the others: what is denied, the limits and the rest stay
    /// as they are by then. End: [`Replaced`].
    Hosts {
        /// A whole `[net]` table, of which `mode`, `presets` and `allow` are taken.
        net: serde_json::Value,
    },
    /// The rules of its network as they are now. End: the whole `[net]` table, as [`Ask::Network`] takes it.
    Rules {},
    /// Takes changes to the host, as they are now, while everything inside stands still. End: [`Taken`]; `unsupported` as above.
    Apply(Apply),
    /// Keeps its files as a snapshot, of one moment. End: [`Snapshotted`]; `unsupported` as above, `exists` where the name is
    /// taken.
    Snapshot {
        /// A name of its own; unique.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
}

/// What came of other rules for the network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Replaced {
    /// They hold from now on.
    Done {
        /// Their digest, as the broker said it: SHA-256 of their canonical JSON.
        digest: String,
    },
    /// They cannot be held in this sandbox; those before hold.
    Refused(RulesRefused),
}

/// Why rules were not taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RulesRefused {
    /// Stable id: `net/rules-refused`, or `net/no-rules` where it has no broker.
    pub id: String,
    /// The clause that cannot be held.
    pub clause: String,
    /// Why.
    pub why: String,
    /// What to do instead.
    pub fix: String,
}

/// What a sandbox changed in its workspace so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// How many paths were `added`, `modified`, `removed`, or `refused` (not carried over); what is none is not there.
    pub counts: BTreeMap<String, u64>,
}

/// What to take to the host: [`sandbox::changes::Request`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Apply {
    /// Relative to the workspace; these and what lies in them; all without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paths: Option<Vec<PathText>>,
    /// The digest of what was shown: anything else is not taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Protected paths are left out, instead of refusing.
    #[serde(default)]
    pub leave_protected: bool,
    /// These protected paths, and what lies in them, are taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub take_protected: Vec<PathText>,
    /// Links that lead out of the workspace are taken.
    #[serde(default)]
    pub leaving_links: bool,
}

/// What came of an `apply`. Lists are cut where they are longer than a frame takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Taken {
    /// All of it is in the workspace of the host now.
    Done {
        /// Digest of what was taken.
        digest: String,
        /// How many paths were taken.
        count: u64,
        /// Which; the first of them.
        paths: Vec<PathText>,
        /// Protected paths that were left.
        left: u64,
        /// Of git's configurations that were taken in part, which keys were left.
        keys: Vec<Left>,
        /// What was asked for and is not carried over; the first of it.
        refused: Vec<Left>,
    },
    /// Nothing was applied; the first reasons.
    Conflicts(Vec<Left>),
}

/// A path that was left, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// Relative to the workspace.
    pub path: PathText,
    /// Which kind of conflict it is, as `apply --json` has it; empty where it is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// Why, or which keys.
    pub why: String,
}

/// A snapshot that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshotted {
    /// Its id.
    pub id: String,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Bytes that it takes, contents that it shares included.
    pub bytes: u64,
    /// How many files are not in it: special ones, and what could not be read.
    pub left_out: u64,
}

/// A program that `exec` started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Running {
    /// Its word: `p1`, `p2`, ...
    pub id: String,
    /// Its pid inside; 0 where its time was over before it was started.
    pub pid: u32,
    /// Its tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// As it was asked for.
    pub program: Program,
    /// When it was started: milliseconds since 1970.
    pub started_ms: i64,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<Report>,
}

/// All programs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Programs {
    /// In the order of their start.
    pub programs: Vec<Running>,
    /// How many are not in the list, which fits one answer: those that ended long ago first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// How a program of a live sandbox ended. The outcome is one of [`policy::OutcomeKind`], as in the report of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// `exited`, `signalled`, `limit`, `refused` or `failed`.
    pub outcome: String,
    /// Exit code; absent when a signal ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// Signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Which limit: `wall` (its own timeout), `output`, `memory`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// One sentence.
    pub message: String,
    /// Seconds from start to end.
    pub wall: f64,
    /// Seconds of processor time, user mode.
    pub cpu_user: f64,
    /// Seconds of processor time, in the kernel.
    pub cpu_system: f64,
    /// Largest resident set of one of its processes, bytes, with what it shares with others: what all of the sandbox have is in its usage.
    pub memory_peak: u64,
    /// Bytes that it printed.
    pub output: u64,
    /// Bytes of output that nobody was given, beyond `limits.output`.
    pub dropped: u64,
    /// What the policy may have stopped, by the program's own error text: never evidence. The first of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<Hint>,
    /// What the kernel ended for want of memory, and what the broker of the network stopped while it ran, whichever program of the
    /// sandbox tried it. The first kinds, and how many attempts of others there were.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub violations: Vec<Stopped>,
}

/// A violation of a run's report that was seen by somebody who is believed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopped {
    /// Stable id, e.g. `net.allow/unknown-name`.
    pub id: String,
    /// Clause that stopped it.
    pub clause: String,
    /// What was attempted.
    pub what: String,
    /// Why it was stopped.
    pub why: String,
    /// What to do instead.
    pub instead: String,
    /// How often.
    pub count: u64,
    /// Who saw it: `broker`.
    pub seen: String,
    /// Of a connection to an address that no name was looked up for: the program that had the first one, or `unknown`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
}

/// As a violation of a run's report that was `seen` in its output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hint {
    /// Stable id, e.g. `fs.read/outside`.
    pub id: String,
    /// Clause that may have stopped it.
    pub clause: String,
    /// What was attempted.
    pub what: String,
    /// Why it was stopped.
    pub why: String,
    /// What to do instead.
    pub instead: String,
    /// How often.
    pub count: u64,
}

/// All about a sandbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Info {
    /// Its id, `[a-z0-9]{20}`.
    pub id: String,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whatever the caller wants to remember; E2B's `metadata`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// How it is doing.
    pub state: State,
    /// The id of its run: under it `diff`, `apply`, `discard` and `audit` know it.
    pub run: String,
    /// `process`, `container` or `vm`: the tiers on which an agent was shown to hold.
    pub tier: String,
    /// Name and digest of the policy.
    pub policy: String,
    /// Digest of the plan.
    pub plan: String,
    /// What it was made from; empty = nothing.
    #[serde(default)]
    pub template: String,
    /// When it was created: milliseconds since 1970.
    pub created_ms: i64,
    /// When its life is over: milliseconds since 1970; absent = never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_ms: Option<i64>,
    /// The same on the clock that nobody sets: milliseconds since the machine was started. A sandbox does not outlive that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_boot_ms: Option<i64>,
    /// `--idle`, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_ms: Option<u64>,
    /// When it ended; absent also where nobody knows, since its supervisor was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<i64>,
    /// Why it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<EndReason>,
    /// Why it ended, in one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The supervisor's process, outside.
    pub pid: u32,
    /// The agent's own words: user, home, working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<agent::words::Hello>,
    /// `limits.memory`, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<u64>,
    /// `limits.cpus`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    /// `limits.disk`, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_limit: Option<u64>,
    /// Usage so far, as in the report of a run; of one that runs also what it uses now ([`sandbox::UsageNow`]).
    pub usage: serde_json::Value,
    /// What the broker of its network stopped so far: the last kinds that were new. How many attempts there were is in `usage`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub violations: Vec<Stopped>,
    /// The report of its run, when it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<serde_json::Value>,
}

/// Why a sandbox that has no ports has none.
pub const NO_PORTS: &str = "a sandbox of the process tier has no network of its own";

impl Info {
    /// Whether it has a network of its own, and so ports that mean what is inside.
    #[must_use]
    pub fn has_ports(&self) -> bool {
        self.tier != "process"
    }
}

/// An event on the stream of an `exec`, `attach` or `logs`: its reader did not keep up, and so much was left out here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// Bytes.
    pub lost: u64,
}
