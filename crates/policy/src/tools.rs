//! `[tools]` and `[mcp]`: which tools may be called, with what, how often, at what cost, and who is asked.
//!
//! The values here are read and checked for shape; the broker compiles them (schemas, conditions, patterns) and judges calls.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use crate::guards::Guard;
use crate::names::is_env_name;
use crate::span::Spanned;
use crate::units::{Bytes, Millis};

/// What is to become of a call. The strictest of all entries and rules that match wins: the order here is that strictness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Decision {
    /// The call is made.
    Allow,
    /// A person is asked first.
    Ask,
    /// The call is refused.
    Deny,
}

impl Decision {
    /// `allow`, `ask`, `deny`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

/// Whether a tool changes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// It only looks.
    Read,
    /// It changes something; only an entry that names the tool itself, without a glob, allows that.
    Write,
}

/// Whether a person is asked about calls that the rules allow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Approval {
    /// Nobody is asked.
    #[default]
    Never,
    /// The first call of a session with these arguments is asked about.
    First,
    /// Every call is asked about.
    Always,
}

/// Who may answer a question about a call. The order is that of strictness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ApprovalBy {
    /// Whoever sits at the caller's own client may answer as well. The client may be the agent's, and answer for itself.
    Anyone,
    /// A person by a way that the caller has no part in: a terminal, HTTP with an approver's key, a webhook.
    Person,
}

impl ApprovalBy {
    /// `anyone`, `person`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Anyone => "anyone",
            Self::Person => "person",
        }
    }

    /// Who answers where nothing is said: what changes something is not approved by the client that asks for it.
    #[must_use]
    pub const fn of_effect(effect: Effect) -> Self {
        match effect {
            Effect::Read => Self::Anyone,
            Effect::Write => Self::Person,
        }
    }
}

/// `[tools]` with `[mcp]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Tools {
    /// What becomes of a tool that no entry names: deny or ask, never allow.
    pub default: Decision,
    /// `[[tools.tool]]`, of all layers: a layer adds entries and takes none away.
    pub entries: Vec<ToolEntry>,
    /// `[mcp]`.
    pub mcp: Mcp,
    /// As written, canonical: what the plan shows and its digest covers.
    pub written: Json,
}

/// One `[[tools.tool]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolEntry {
    /// `tool`, `server.tool`, or a glob within one server, `server.*`.
    pub name: Spanned<String>,
    /// What becomes of a call that passes all the rest; `Deny` if not written.
    pub decision: Decision,
    /// Declared effect; otherwise the tool's own annotation may raise it, and unknown counts as write.
    pub effect: Option<Effect>,
    /// JSON Schema 2020-12 of the arguments (a file is read when the policy loads).
    pub schema: Option<Spanned<Json>>,
    /// By argument: `to`, `message.to`, `recipients[]` (each element).
    pub guards: Vec<(Spanned<String>, Spanned<Guard>)>,
    /// Conditions in CEL.
    pub rules: Vec<Rule>,
    /// Calls per window.
    pub rate: Option<Spanned<Rate>>,
    /// Cost per window and in total.
    pub budget: Option<Spanned<Budget>>,
    /// Calls at once.
    pub concurrency: Option<u32>,
    /// How long one call may take.
    pub timeout: Option<Millis>,
    /// What a result may be.
    pub result: ResultRule,
    /// Whether a person is asked although the rules allow.
    pub approval: Approval,
    /// Who may answer, whatever the reason for asking; by the effect if not written, see [`ApprovalBy::of_effect`].
    pub approval_by: Option<ApprovalBy>,
    /// Calls that must come out as written, tried when the policy loads.
    pub examples: Vec<Example>,
}

impl ToolEntry {
    /// An entry that says nothing but its name: it denies.
    #[must_use]
    pub const fn bare(name: Spanned<String>) -> Self {
        Self {
            name,
            decision: Decision::Deny,
            effect: None,
            schema: None,
            guards: Vec::new(),
            rules: Vec::new(),
            rate: None,
            budget: None,
            concurrency: None,
            timeout: None,
            result: ResultRule { max: ResultRule::MAX, redact: Vec::new(), types: Vec::new() },
            approval: Approval::Never,
            approval_by: None,
            examples: Vec::new(),
        }
    }
}

/// A condition over `args`, `session`, `agent`, `counters` and `now`; where it is true, or fails, its decision counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The expression, in CEL.
    pub when: Spanned<String>,
    /// Ask or deny; deny if not written. A condition that cannot be evaluated denies, whatever stands here.
    pub decision: Decision,
    /// For the model.
    pub message: String,
}

/// Whose calls count together. The identity comes from the policy and the front door, never from the caller's own words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CountBy {
    /// One conversation.
    Session,
    /// One agent, over all its sessions and connections.
    #[default]
    Agent,
    /// One key that the caller proved.
    Key,
    /// Everybody.
    Gateway,
}

/// At most `calls` in any window of length `per`, and at most `burst` of them within `per / calls * burst`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Calls in any window; at least 1.
    pub calls: u32,
    /// Length of the window.
    pub per: Millis,
    /// How many may come at once; `calls` if not written.
    pub burst: u32,
    /// Whose calls count together.
    pub by: CountBy,
}

/// Spending. Amounts are millionths of the unit, so that sums are exact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// What one call reserves: its worst case.
    pub cost: u64,
    /// JSON Pointer into the result (or its `_meta`) where the tool reports what it did cost; settled afterwards.
    pub reported: Option<String>,
    /// Most in one window.
    pub limit: Option<u64>,
    /// Length of the window.
    pub per: Option<Millis>,
    /// Most ever.
    pub total: Option<u64>,
    /// `usd`, `tokens`, ...: a word for people.
    pub unit: String,
    /// Whose spending counts together.
    pub by: CountBy,
}

/// `result = { max, redact, types }`
#[derive(Clone, Debug, PartialEq)]
pub struct ResultRule {
    /// Most bytes that reach the caller; 1M if not written.
    pub max: Bytes,
    /// Patterns whose matches are replaced.
    pub redact: Vec<Spanned<String>>,
    /// Kinds of content that may come back; all if empty: `text`, `structured`, `image`, `audio`, `resource`, `link`.
    pub types: Vec<String>,
}

impl ResultRule {
    /// The size of a result where nothing is said.
    pub const MAX: Bytes = Bytes(1 << 20);
}

/// A call and what must become of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Example {
    /// The tool, where the entry is a glob.
    pub tool: Option<String>,
    /// Arguments.
    pub args: Json,
    /// What must come out.
    pub expect: Decision,
    /// For messages.
    pub at: crate::span::Span,
}

/// `[mcp]`: empty lists, everything off, unless written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mcp {
    /// Upstream servers by name.
    pub servers: BTreeMap<String, Spanned<McpServer>>,
    /// URI globs of resources that may be listed and read, `server:glob`.
    pub resources: Vec<Spanned<String>>,
    /// Names of prompts, `server.name`, globs within one server.
    pub prompts: Vec<Spanned<String>>,
    /// Servers that may ask the client's model.
    pub sampling: Vec<Spanned<String>>,
    /// Servers that may ask the client's user.
    pub elicitation: Vec<Spanned<String>>,
    /// Servers that may learn the client's roots.
    pub roots: Vec<Spanned<String>>,
}

/// One `[mcp.servers.NAME]`.
#[derive(Clone, Debug, PartialEq)]
pub struct McpServer {
    /// How it is reached.
    pub reach: Reach,
    /// Environment of the server, beside what its policy gives.
    pub env: BTreeMap<String, String>,
    /// The policy of its sandbox: a preset or a file; `strict` if not written.
    pub policy: Spanned<String>,
}

/// A value that a policy names and does not hold: `env:NAME`, or `Bearer env:NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FromEnv {
    /// The word before the value.
    pub scheme: Option<String>,
    /// The variable.
    pub variable: String,
}

impl FromEnv {
    /// Reads it; none if it is anything else, a value among them.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (scheme, from) = match text.split_once(' ') {
            Some((scheme, from)) => (Some(scheme), from),
            None => (None, text),
        };
        let variable = from.strip_prefix("env:").filter(|name| is_env_name(name))?;
        let is_word =
            |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if scheme.is_some_and(|scheme| !is_word(scheme)) {
            return None;
        }
        Some(Self { scheme: scheme.map(str::to_owned), variable: variable.to_owned() })
    }
}

/// How a server is reached.
#[derive(Clone, Debug, PartialEq)]
pub enum Reach {
    /// A program, started inside a sandbox, spoken to over its standard streams.
    Command {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
    },
    /// Streamable HTTP.
    Url {
        /// Where.
        url: String,
        /// Headers of every request, by name; their values are in variables of our environment.
        headers: BTreeMap<String, FromEnv>,
    },
    /// All servers of a client's configuration file (`mcpServers`), read when the gateway starts.
    Import(std::path::PathBuf),
}
