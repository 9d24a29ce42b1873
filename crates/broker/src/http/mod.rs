//! The gate over HTTP: tools are checked and called, and people answer.
//!
//! `GET /v1/tools`, `POST /v1/tools/NAME:check`, `POST /v1/tools/NAME:call`, `POST /v1/sessions`, and `/v1/approvals...`.
//! It listens on the loopback or on a Unix socket only. A page in a browser is kept out by Host and Origin, other users
//! of the machine by the token, and agents from the answers by a second token: whoever may call may not agree.
//!
//! Must not: decide. Everything goes to an [`Engine`], which is the broker; here requests are read and answers written.

mod answer;
mod approvals;
mod desk;
mod door;
mod keys;
#[cfg(test)]
mod tests;
mod tools;
pub mod webhook;

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::approvals::Approvals;
use crate::call::{Caller, ToolFacts};
use crate::record::Record;
use crate::result::{ToolFailure, ToolResult};
use crate::verdict::Verdict;

pub use crate::mcp::direct::Missing;
pub use answer::{called_json, result_json};
pub use desk::desk;
pub use door::{Connection, Door, Listen, Peer, open};
pub(crate) use keys::Who;
pub use keys::{KeyError, Keys};

/// A future that may be sent to another thread.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Runs a tool with the arguments that were judged.
pub type Run = Box<dyn FnOnce(Json) -> Boxed<'static, Result<ToolResult, ToolFailure>> + Send>;

/// What became of a call.
#[derive(Clone, Debug)]
pub struct Called {
    /// The decision, an asked person's answer and the limits included.
    pub verdict: Verdict,
    /// The bounded result, where the tool was run.
    pub result: Option<Result<ToolResult, ToolFailure>>,
}

/// For a call that is denied anyway, of a tool that nothing here runs.
pub(crate) fn nowhere() -> Run {
    Box::new(|_| Box::pin(async { Err(ToolFailure { message: "nothing here runs the tool".to_owned() }) }))
}

/// Why nothing runs a tool, as a problem has it: id, what, why, fix.
pub(crate) fn words_of(tool: &str, missing: &Missing) -> (&'static str, [String; 3]) {
    let quoted = policy::mistake::quote(tool);
    let words = |what: String, why: &str, fix: String| [what, why.to_owned(), fix];
    match missing {
        Missing::NoServer => (
            "tools.http/no-implementation",
            words(
                format!("nothing here runs {quoted}"),
                "the policy would allow the call, but no MCP server and no command implements the tool",
                "name a server in `[mcp.servers]`, start with `--tool NAME=COMMAND`, or use `:check` and run it yourself".to_owned(),
            ),
        ),
        Missing::NotThere(why) => (
            "tools.http/server",
            words(
                format!("the server of {quoted} does not offer it now"),
                why,
                "look at the server's own words, and try again; a server that ended is started again".to_owned(),
            ),
        ),
        Missing::Held => (
            "mcp.pin/changed",
            words(
                format!("{quoted} is held back"),
                "what its server says of it, or how the server is reached, is not what was trusted",
                format!("a person looks at `fumehood mcp pins ls`, then `fumehood mcp pins accept {tool}`"),
            ),
        ),
        Missing::Full => (
            "tools.http/busy",
            words(
                "too many conversations have servers".to_owned(),
                "each has servers of its own, and 64 may",
                "end those that are over: `POST /v1/sessions/ID:end`".to_owned(),
            ),
        ),
    }
}

/// A call that somebody wants to be made.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    /// `tool` or `server.tool`.
    pub tool: &'a str,
    /// Read by [`crate::json`]'s strict reader.
    pub args: Json,
    /// Who wants it.
    pub caller: &'a Caller,
    /// What the tool says of itself, where whoever asks runs it.
    pub facts: Option<&'a ToolFacts>,
}

/// A way to a tool.
pub struct Way {
    /// Runs it.
    pub run: Run,
    /// What it says of itself.
    pub facts: Option<ToolFacts>,
}

impl std::fmt::Debug for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Way").field("facts", &self.facts).finish_non_exhaustive()
    }
}

/// A call, judged as far as it can be before it is made: by the policy alone if that denies, else with what the tool says of
/// itself. So a tool that is denied starts no server, and `check` says what a call would be told.
pub(crate) async fn way(
    engine: &dyn Engine,
    tool: &str,
    args: &Json,
    caller: &Caller,
) -> (Verdict, Result<Way, Missing>) {
    let verdict = engine.check(tool, args.clone(), caller, None);
    if verdict.decision == policy::tools::Decision::Deny {
        // A denied tool is denied, and recorded so, not missing.
        return (verdict, Ok(Way { run: nowhere(), facts: None }));
    }
    let way = engine.implementation(tool, caller).await;
    match &way {
        Ok(Way { facts: Some(facts), .. }) => (engine.check(tool, args.clone(), caller, Some(facts)), way),
        Ok(_) | Err(_) => (verdict, way),
    }
}

/// What a front door needs of the broker and of those who run tools.
pub trait Engine: Send + Sync + Debug {
    /// Decides and reserves nothing. `facts` are what the tool says of itself, where whoever asks runs it.
    fn check(&self, tool: &str, args: Json, caller: &Caller, facts: Option<&ToolFacts>) -> Verdict;

    /// Decides, asks, counts, records, and runs the tool if all agree.
    fn call<'a>(&'a self, what: Wanted<'a>, run: Run) -> Boxed<'a, Called>;

    /// How a tool is run. A server that has it is started for that.
    fn implementation<'a>(&'a self, tool: &'a str, caller: &'a Caller) -> Boxed<'a, Result<Way, Missing>>;

    /// A conversation is over: its servers end, and what was counted for it is forgotten.
    fn end_session<'a>(&'a self, caller: &'a Caller) -> Boxed<'a, ()>;

    /// What may be seen of the tools: `{name, description, schema, implemented}`.
    fn tools<'a>(&'a self, caller: &'a Caller) -> Boxed<'a, Vec<Json>>;

    /// Where calls are parked.
    fn approvals(&self) -> &Approvals;

    /// Where answers are written down.
    fn record(&self) -> Arc<dyn Record>;
}
