//! A call before it is judged.

use policy::tools::Effect;
use serde_json::{Map, Value as Json};

use crate::rules::Counters;

/// Who calls. Front doors fill it from what they know (policy, key, connection), never from the caller's own words.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Caller {
    /// The agent's identity, `local` where nothing tells agents apart.
    pub agent: String,
    /// One conversation or connection.
    pub session: String,
    /// Name of the key that was proven, if one was.
    pub key: Option<String>,
}

/// What a tool says of itself; a hint by whoever wrote it. It may make a decision stricter, never weaker.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolFacts {
    /// From `readOnlyHint` and `destructiveHint`.
    pub effect: Option<Effect>,
    /// Its own schema of its arguments.
    pub input_schema: Option<Json>,
    /// Its own schema of its structured result.
    pub output_schema: Option<Json>,
    /// What it takes for arguments that are not given. Those that the policy looks at are judged as if they had been.
    pub defaults: Map<String, Json>,
}

/// One call.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    /// `tool` or `server.tool`.
    pub tool: &'a str,
    /// The arguments, read by [`crate::json`]'s strict reader.
    pub args: Json,
    /// Who calls.
    pub caller: &'a Caller,
    /// What the tool says of itself.
    pub facts: &'a ToolFacts,
    /// How many calls there were before: `counters` in conditions.
    pub counters: Counters,
    /// Milliseconds since the epoch: `now` in conditions.
    pub now: u64,
}
