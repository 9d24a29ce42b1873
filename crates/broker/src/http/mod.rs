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
mod guests;
mod keys;
#[cfg(test)]
mod tests;
mod tools;
mod way;
pub mod webhook;

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::http::{HeaderMap, Uri, header};
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
pub(crate) use guests::Owner;
pub use guests::Request;
pub(crate) use keys::Who;
pub use keys::{KeyError, Keys};
pub(crate) use way::way;
pub use way::{Way, words_of};

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

/// Whether a request that names its host in its first line as well names the same there as in its header.
pub(crate) fn names_one_host(headers: &HeaderMap, uri: &Uri) -> bool {
    let named = uri.authority().map(|authority| authority.as_str().as_bytes());
    named.is_none_or(|name| headers.get(header::HOST).is_some_and(|host| host.as_bytes() == name))
}

/// For a call that is denied anyway, of a tool that nothing here runs.
pub(crate) fn nowhere() -> Run {
    Box::new(|_| Box::pin(async { Err(ToolFailure { message: "nothing here runs the tool".to_owned() }) }))
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

/// What a front door needs of the broker and of those who run tools.
pub trait Engine: Send + Sync + Debug {
    /// Decides and reserves nothing. `facts` are what the tool says of itself, where whoever asks runs it.
    fn check(&self, tool: &str, args: Json, caller: &Caller, facts: Option<&ToolFacts>) -> Verdict;

    /// Decides, asks, counts, records, and runs the tool if all agree.
    fn call<'a>(&'a self, what: Wanted<'a>, run: Run) -> Boxed<'a, Called>;

    /// How a tool is run. A server that has it is started for that.
    fn implementation<'a>(&'a self, tool: &'a str, caller: &'a Caller) -> Boxed<'a, Result<Way, Missing>>;

    /// A call that the policy would allow and nothing here can make: it is written down as a denied one.
    fn refused(&self, what: Wanted<'_>, why: &Missing);

    /// A conversation is over: its servers end, and what was counted for it is forgotten.
    fn end_session<'a>(&'a self, caller: &'a Caller) -> Boxed<'a, ()>;

    /// What may be seen of the tools: `{name, description, schema, implemented}`.
    fn tools<'a>(&'a self, caller: &'a Caller) -> Boxed<'a, Vec<Json>>;

    /// Where calls are parked.
    fn approvals(&self) -> &Approvals;

    /// Where answers are written down.
    fn record(&self) -> Arc<dyn Record>;
}
