//! What a caller can ask the code interpreter of a sandbox; beside [`crate::words::Ask`], on the same connection.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum KernelAsk {
    /// All contexts. End: [`Contexts`].
    Contexts(ListContexts),
    /// Makes a context and starts its kernel. End: [`Context`]; `unsupported` where the sandbox has no such kernel.
    ContextCreate(NewContext),
    /// Ends its kernel and starts another: all variables are gone, the id stays. End: [`Context`].
    ContextRestart {
        /// The context.
        id: String,
    },
    /// Ends its kernel and forgets it. End: empty.
    ContextRemove {
        /// The context.
        id: String,
    },
    /// Interrupts what it executes, as Ctrl-C would. End: empty.
    ContextInterrupt {
        /// The context.
        id: String,
    },
    /// Executes code. Data on lane `Out`: the lines of the answer, each a JSON object and a newline, as E2B's `/execute` has
    /// them (a line may be longer than an event may be). End: [`Executed`]. `Cancel` interrupts; the context lives on.
    Execute(Execute),
    /// Speaks Jupyter's messages with the kernel, until it is cancelled or the context is removed; any number at once up to
    /// [`super::MAX_CHANNELS`]. Data on lane `In`: lines, each a [`Spoken`]; data on lane `Out`: lines `{"message": {...}}`, each
    /// with the fields of a [`Spoken`]. Who takes nothing for 30 s is given up. End: empty.
    ContextChannels {
        /// The context.
        id: String,
    },
    /// Which languages have a kernel in the sandbox. End: [`Languages`].
    Languages {},
}

/// Which languages have a kernel in a sandbox, by their names here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Languages {
    /// The names, sorted.
    pub languages: Vec<String>,
}

/// A channel of a kernel that takes messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Channel {
    /// Requests; also of a message that names no channel, as some clients of Jupyter send it.
    #[default]
    Shell,
    /// Requests that wait for no other.
    Control,
    /// Answers to what the kernel asks.
    Stdin,
}

/// A message of Jupyter's protocol to a kernel.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Spoken {
    /// Where to.
    #[serde(default)]
    pub channel: Channel,
    /// An object; its `session` says whom answers are for.
    pub header: Box<RawValue>,
    /// The header of what it answers, or `{}`.
    #[serde(default = "empty")]
    pub parent_header: Box<RawValue>,
    /// An object.
    #[serde(default = "empty")]
    pub metadata: Box<RawValue>,
    /// What it says.
    pub content: Box<RawValue>,
    /// Bytes beside it, in Base64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buffers: Vec<String>,
}

fn empty() -> Box<RawValue> {
    // Two bytes that are JSON.
    RawValue::from_string("{}".to_owned()).unwrap_or_default()
}

/// Which contexts are listed beside those that were made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListContexts {
    /// The default ones of these languages, as far as the sandbox has kernels for them: each has its id from then on, and its kernel
    /// at its first use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub defaults: Vec<String>,
    /// Where those are started; without, where the sandbox starts programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}

/// A context to make.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewContext {
    /// `python` without; `js` and `ts` are `javascript` and `typescript`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// Working directory inside; without, that of the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Added to the environment of the sandbox.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

/// Code to execute.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Execute {
    /// The code.
    pub code: String,
    /// In which context; not together with `language`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// In the default context of this language, which is made at its first use; `python` without both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// Where that default context is started, if this is its first use; without, where the sandbox starts programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Set for this execution alone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// It is interrupted after so many milliseconds, counted from its own start; never without. A kernel that does not heed
    /// the interrupt is ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// A context.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    /// Its id: 32 characters, not to be guessed.
    pub id: String,
    /// Its language.
    pub language: String,
    /// Where its kernel was started.
    pub cwd: String,
    /// Whether it is the default one of its language.
    #[serde(default)]
    pub default: bool,
    /// Whether it executes something.
    #[serde(default)]
    pub busy: bool,
    /// Whether its kernel has ended; the next message or execution starts another.
    #[serde(default)]
    pub dead: bool,
    /// How many speak with it ([`KernelAsk::ContextChannels`]).
    #[serde(default)]
    pub connections: usize,
    /// When something passed between it and anybody last: milliseconds since 1970.
    #[serde(default)]
    pub last_ms: i64,
}

/// All contexts: the default ones, then the others, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contexts {
    /// The contexts.
    pub contexts: Vec<Context>,
}

/// How an execution ended. That code failed is no failure of the execution: an `error` line tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Executed {
    /// The context.
    pub context: String,
    /// Bytes of output that nobody was given, beyond the limit of an execution.
    #[serde(default)]
    pub truncated: u64,
    /// The kernel had ended before, and this is a new one.
    #[serde(default)]
    pub restarted: bool,
}
