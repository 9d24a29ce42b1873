//! What the front doors for functions (HTTP, the pipe) ask of those who decide and run: one trait, so that they can be tried
//! with nothing behind them. The MCP gateway holds the [`Broker`](crate::Broker) itself.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use gate::call::{Caller, ToolFacts};
use gate::result::{ToolFailure, ToolResult};
use gate::verdict::Verdict;
use serde_json::Value as Json;

use crate::approvals::Approvals;
use crate::record::Record;

/// A future that may be sent to another thread.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Runs a tool with the arguments that were judged.
pub type Run = Box<dyn FnOnce(Json) -> BoxFuture<'static, Result<ToolResult, ToolFailure>> + Send>;

/// What runs a tool.
pub struct ToolRoute {
    /// Runs it.
    pub run: Run,
    /// What it says of itself.
    pub facts: Option<ToolFacts>,
}

impl std::fmt::Debug for ToolRoute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolRoute").field("facts", &self.facts).finish_non_exhaustive()
    }
}

/// Why a tool cannot be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolUnavailable {
    /// No server of the policy is called so.
    NoServer,
    /// Its server is not there, or has no such tool; in words.
    NotThere(String),
    /// It is held back until somebody accepts it.
    Held,
    /// More conversations have servers than may.
    Full,
}

/// What became of a call.
#[derive(Clone, Debug)]
pub struct CallResult {
    /// The decision, an asked person's answer and the limits included.
    pub verdict: Verdict,
    /// The bounded result, where the tool was run.
    pub result: Option<Result<ToolResult, ToolFailure>>,
}

/// A call that somebody wants to be made.
#[derive(Clone, Debug)]
pub struct ToolRequest<'a> {
    /// `tool` or `server.tool`.
    pub tool: &'a str,
    /// Read by [`gate::json`]'s strict reader.
    pub args: Json,
    /// Who wants it.
    pub caller: &'a Caller,
    /// What the tool says of itself, where whoever asks runs it.
    pub facts: Option<&'a ToolFacts>,
}

/// What a front door needs of the broker and of those who run tools.
pub trait Engine: Send + Sync + Debug {
    /// Decides and reserves nothing. `facts` are what the tool says of itself, where whoever asks runs it.
    fn check(&self, tool: &str, args: Json, caller: &Caller, facts: Option<&ToolFacts>) -> Verdict;

    /// Decides, asks, counts, records, and runs the tool if all agree.
    fn call<'a>(&'a self, what: ToolRequest<'a>, run: Run) -> BoxFuture<'a, CallResult>;

    /// How a tool is run. A server that has it is started for that.
    fn implementation<'a>(
        &'a self,
        tool: &'a str,
        caller: &'a Caller,
    ) -> BoxFuture<'a, Result<ToolRoute, ToolUnavailable>>;

    /// A call that the policy would allow and nothing here can make: it is written down as a denied one.
    fn refused(&self, what: ToolRequest<'_>, why: &ToolUnavailable);

    /// A conversation is over: its servers end, and what was counted for it is forgotten.
    fn end_session<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, ()>;

    /// What may be seen of the tools: `{name, description, schema, implemented}`.
    fn tools<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, Vec<Json>>;

    /// Where calls are parked.
    fn approvals(&self) -> &Approvals;

    /// Where answers are written down.
    fn record(&self) -> Arc<dyn Record>;
}
