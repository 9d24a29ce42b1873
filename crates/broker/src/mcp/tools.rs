//! `tools/list` and `tools/call`: what is shown, and the one way of a call through the engine to its server and back.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use policy::tools::Decision;
use serde_json::{Map, Value as Json, json};
use tokio_util::sync::CancellationToken;

use super::ask::{self, Askable, Running};
use super::catalog::Tool;
use super::convert;
use super::engine::{Answer, Run};
use super::era::{self, Era};
use super::lock;
use super::peer::{Failure, Progress};
use super::pins::Standing;
use super::session::{Context, Session};
use super::text;
use super::upstream::Link;
use super::wire::{self, Outcome, RpcError};
use crate::call::Call;
use crate::gate::Listed;
use crate::result::{ToolFailure, ToolResult};
use crate::verdict::{Reason, Verdict};

/// Entries of one page.
const PAGE: usize = 200;
/// Most rounds of questions of one call.
const MOST_ROUNDS: usize = 10;
/// A call whose client no longer wants it ends within this.
const GRACE: Duration = Duration::from_secs(2);
/// The id of calls of tools that are held back.
const HELD: &str = "mcp.pin/changed";
/// Most bytes of the words that go with progress.
const MOST_WORDS: usize = 1000;

impl Session {
    pub(super) async fn list_tools(&self, params: &Json) -> Outcome {
        let catalog = self.catalog().await;
        let mut shown = Vec::new();
        for (public, tool) in catalog.tools.iter() {
            if tool.standing == Standing::Held {
                continue;
            }
            if let Listed::Shown { schema } = self.gateway.engine.lists(&tool.named, &tool.facts) {
                shown.push(tool.shown(public, schema));
            }
        }
        let mut page = page("tools", shown, params)?;
        if !catalog.notes.is_empty() {
            page.insert("_meta".to_owned(), json!({ "fumehood/notes": catalog.notes }));
        }
        Ok(Json::Object(page))
    }

    /// The tool behind a public name. Only the server that the name may belong to is waited for.
    async fn tool(&self, public: &str) -> Result<Arc<Tool>, RpcError> {
        let known = self.catalog_now(None).and_then(|catalog| catalog.tools.get(public).cloned());
        if let Some(tool) = known.filter(|tool| tool.standing != Standing::Held) {
            return Ok(tool);
        }
        self.look_at_pins();
        let mut notes = Vec::new();
        let begins = |name: &&String| public.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with("__"));
        for server in self.upstreams.keys().filter(begins) {
            let part = self.part(server).await;
            // A server that lists more tools while it is asked for them has a part that is not kept; the call is for this one.
            if let Some(tool) = self.catalog_with(server, part.clone()).tools.get(public) {
                return Ok(tool.clone());
            }
            if part.tools.is_empty() {
                notes.extend(part.notes.iter().cloned());
            }
        }
        let mut words = format!("unknown tool: `{}`", text::shown(public, 100));
        if !notes.is_empty() {
            words = format!("{words}; {}", notes.join("; "));
        }
        Err(RpcError::new(wire::INVALID_PARAMS, words))
    }

    pub(super) async fn call_tool(&self, context: &Context, params: &Json) -> Outcome {
        let public = params.get("name").and_then(Json::as_str);
        let public = public.ok_or_else(|| RpcError::new(wire::INVALID_PARAMS, "a call names its tool"))?;
        if params.get("task").is_some_and(|task| !task.is_null()) {
            return Err(RpcError::new(wire::INVALID_PARAMS, "calls as tasks are not offered"));
        }
        let args = match params.get("arguments") {
            None | Some(Json::Null) => json!({}),
            Some(args @ Json::Object(_)) => args.clone(),
            Some(_) => return Err(RpcError::new(wire::INVALID_PARAMS, "`arguments` is no object")),
        };
        let tool = match self.tool(public).await {
            Ok(tool) => tool,
            Err(error) => {
                let instead = "a tool of `tools/list`".to_owned();
                self.refused(&text::shown(public, 200), args, ("mcp.tool/unknown", error.message.clone(), instead));
                return Err(error);
            }
        };
        if tool.standing == Standing::Held {
            let instead = format!("`fumehood mcp pins accept {}`", tool.named);
            let what = format!("the tool `{}` is held back", tool.named);
            self.refused(&tool.named, args, (HELD, what, instead));
            return Ok(held(&tool));
        }
        let binding = format!("{} {}", self.caller.agent, crate::json::hash(&tool.named, &args));
        let state = params.get("requestState").and_then(Json::as_str);
        let running = match state {
            Some(state) => self.waiting.resume(state, &binding, params.get("inputResponses"))?,
            None => self.begin(context, params, tool, args)?,
        };
        self.waiting.go_on(running, binding, &context.cancel).await
    }

    /// A call that ends here is an event of the record, as every decision is.
    fn refused(&self, tool: &str, args: Json, (id, what, instead): (&'static str, String, String)) {
        let (counters, now) = (crate::rules::Counters::default(), crate::call::now_ms());
        let facts = crate::call::ToolFacts::default();
        let why = "the gateway has no such tool to call".to_owned();
        let reason = Reason { id, rule: "mcp".to_owned(), at: None, decision: Decision::Deny, what, why, instead };
        self.gateway.engine.refused(&Call { tool, args, caller: &self.caller, facts: &facts, counters, now }, reason);
    }

    /// Begins a call in a task of its own: it may outlive the request of a client that comes back later.
    fn begin(&self, context: &Context, params: &Json, tool: Arc<Tool>, args: Json) -> Result<Running, RpcError> {
        let me = self.me().ok_or_else(|| RpcError::new(wire::UNAVAILABLE, "the session ended"))?;
        let (askable, needs) = match context.client.era {
            Era::Handshake => {
                let askable = Askable::direct(context.peer.clone(), Some(context.id.clone()), context.client.clone());
                (askable, tokio::sync::mpsc::channel(1).1)
            }
            Era::Stateless => Askable::waiting(context.client.clone()),
        };
        let listed = OnTheList::new(me.clone(), &tool.server, &askable);
        let meta = era::strip_meta(params.get("_meta"));
        let progress = context.progress.clone().map(|token| forward(context, token));
        // Not the request's own: without a handshake that ends when the client is asked, and the call goes on.
        let cancel = CancellationToken::new();
        let trip = Trip { session: me.clone(), tool, meta, askable, progress, cancel: cancel.clone() };
        let task = tokio::spawn(async move {
            let outcome = me.make(args, trip).await;
            drop(listed);
            outcome
        });
        Ok(Running::new(task, needs, cancel))
    }

    async fn make(self: &Arc<Self>, args: Json, trip: Trip) -> Outcome {
        let (tool, cancel) = (trip.tool.clone(), trip.cancel.clone());
        let listening = self.approvals_by(&tool.named, &trip.askable);
        let call = Call {
            tool: &tool.named,
            args,
            caller: &self.caller,
            facts: &tool.facts,
            counters: crate::rules::Counters::default(),
            now: crate::call::now_ms(),
        };
        let run: Run = Box::new(move |args| Box::pin(trip.there_and_back(args)));
        let mut calling = self.gateway.engine.call(call, run);
        let answer = tokio::select! {
            answer = &mut calling => Some(answer),
            () = cancel.cancelled() => None,
        };
        let answer = match answer {
            Some(answer) => answer,
            // The trip sees the cancellation too and ends; the engine writes that down.
            None => match tokio::time::timeout(GRACE, calling).await {
                Ok(answer) => answer,
                Err(_) => return Err(RpcError::new(wire::UNAVAILABLE, "cancelled")),
            },
        };
        drop(listening);
        Ok(said(&answer))
    }

    pub(super) fn link_of(&self, server: &str) -> Option<&Arc<super::upstream::Upstream>> {
        self.upstreams.get(server)
    }
}

/// A call that is on the list of those that run, until it is dropped.
pub(super) struct OnTheList {
    session: Arc<Session>,
    number: u64,
}

impl OnTheList {
    pub(super) fn new(session: Arc<Session>, server: &str, askable: &Askable) -> Self {
        let number = session.next.fetch_add(1, Ordering::Relaxed);
        lock(&session.running).insert(number, (server.to_owned(), askable.clone()));
        Self { session, number }
    }
}

impl Drop for OnTheList {
    fn drop(&mut self) {
        lock(&self.session.running).remove(&self.number);
    }
}

/// One call on its way to its server.
pub(super) struct Trip {
    pub(super) session: Arc<Session>,
    pub(super) tool: Arc<Tool>,
    pub(super) meta: Map<String, Json>,
    pub(super) askable: Askable,
    pub(super) progress: Option<Progress>,
    pub(super) cancel: CancellationToken,
}

impl Trip {
    pub(super) async fn there_and_back(self, args: Json) -> Result<ToolResult, ToolFailure> {
        let failed = |message: String| ToolFailure { message };
        let cancel = self.cancel.clone();
        let result = tokio::select! {
            result = self.rounds(args) => result,
            () = cancel.cancelled() => Err("the client cancelled the call".to_owned()),
        };
        convert::read(result.map_err(failed)?)
    }

    async fn rounds(&self, args: Json) -> Result<Json, String> {
        let server = &self.tool.server;
        let upstream = self.session.link_of(server).ok_or_else(|| "its server is gone".to_owned())?;
        let link = upstream.link().await.map_err(|down| down.words(server))?;
        let mut more = Map::new();
        for _ in 0..MOST_ROUNDS {
            let mut params = Map::new();
            params.insert("name".to_owned(), self.tool.own.as_str().into());
            params.insert("arguments".to_owned(), args.clone());
            params.extend(std::mem::take(&mut more));
            if !self.meta.is_empty() {
                params.insert("_meta".to_owned(), Json::Object(self.meta.clone()));
            }
            let result = self.once(&link, Json::Object(params)).await?;
            if result.get("resultType").and_then(Json::as_str) != Some("input_required") {
                return Ok(result);
            }
            let next = ask::next_round(&self.session.gateway.allow, server, &result, &self.askable).await;
            more =
                next.map_err(|error| format!("the tool asks what it may not, or was not answered: {}", error.message))?;
        }
        Err(format!("the tool asked its client {MOST_ROUNDS} times without an end"))
    }

    async fn once(&self, link: &Arc<Link>, params: Json) -> Result<Json, String> {
        match link.request("tools/call", params, self.progress.clone()).await {
            Ok(result) => Ok(result),
            Err(Failure::Rpc(error)) => Err(format!("the tool's server answered with an error: {}", error.message)),
            Err(Failure::Gone(why)) => Err(format!("the server `{}` ended during the call: {why}", self.tool.server)),
        }
    }
}

/// Passes progress on under the client's own token.
fn forward(context: &Context, token: Json) -> Progress {
    let (peer, id) = (context.peer.clone(), context.id.clone());
    Arc::new(move |params| {
        let mut told = Map::new();
        told.insert("progressToken".to_owned(), token.clone());
        for key in ["progress", "total"] {
            if let Some(number) = params.get(key).filter(|value| value.is_number()) {
                told.insert(key.to_owned(), number.clone());
            }
        }
        if let Some(words) = params.get("message").and_then(Json::as_str) {
            told.insert("message".to_owned(), text::shown(words, MOST_WORDS).into());
        }
        // What finds no room is lost: the next one says more.
        peer.mention("notifications/progress", Json::Object(told), Some(&id));
    })
}

/// The answer to a call of a tool that is held back.
fn held(tool: &Tool) -> Json {
    let id = HELD;
    let why = format!(
        "denied ({id}): the tool `{}` is held back, because what its server says of it is not what was trusted.\n\
         instead: tell the user; after a look at `fumehood mcp pins ls` they may run `fumehood mcp pins accept {}`.",
        tool.named, tool.named
    );
    json!({ "content": [{ "type": "text", "text": why }], "isError": true })
}

/// The answer of the engine, for the client: a result, or why there is none, in words for the model.
fn said(answer: &Answer) -> Json {
    match &answer.result {
        Some(Ok(result)) => convert::written(result),
        Some(Err(failure)) => json!({ "content": [{ "type": "text", "text": failure.message }], "isError": true }),
        None => {
            let verdict = &answer.verdict;
            json!({
                "content": [{ "type": "text", "text": words(verdict) }],
                "isError": true,
                "_meta": { "fumehood/denied": {
                    "decision": verdict.decision.word(), "rule": verdict.rule, "instead": verdict.instead,
                    "reasons": verdict.reasons.iter().map(crate::verdict::Reason::to_json).collect::<Vec<_>>(),
                } },
            })
        }
    }
}

/// A verdict as a model reads it: what, why, what would be allowed.
#[must_use]
pub fn words(verdict: &Verdict) -> String {
    let mut lines = Vec::new();
    for reason in verdict.reasons.iter().filter(|reason| reason.decision != Decision::Allow) {
        lines.push(format!("denied ({}): {}: {}", reason.id, reason.what, reason.why));
        if !reason.instead.is_empty() {
            lines.push(format!("instead: {}", reason.instead));
        }
    }
    if lines.is_empty() {
        lines.push("denied".to_owned());
    }
    if !verdict.instead.is_empty() && !lines.iter().any(|line| line.contains(&verdict.instead)) {
        lines.push(format!("instead: {}", verdict.instead));
    }
    text::escaped(&lines.join("\n")).0
}

/// One page of a list; the cursor names its place and is good for this list only.
///
/// # Errors
/// A cursor that is none of ours.
pub(super) fn page(key: &str, mut entries: Vec<Json>, params: &Json) -> Result<Map<String, Json>, RpcError> {
    let cursor = match params.get("cursor") {
        None | Some(Json::Null) => 0,
        Some(cursor) => cursor
            .as_str()
            .and_then(|cursor| cursor.strip_prefix("from-"))
            .and_then(|from| from.parse::<usize>().ok())
            .filter(|from| *from < entries.len() && from.is_multiple_of(PAGE) && *from > 0)
            .ok_or_else(|| RpcError::new(wire::INVALID_PARAMS, "this cursor is not of this list"))?,
    };
    let total = entries.len();
    let rest = entries.split_off(cursor.min(total));
    let mut map = Map::new();
    let next = cursor.saturating_add(PAGE);
    map.insert(key.to_owned(), rest.into_iter().take(PAGE).collect());
    if next < total {
        map.insert("nextCursor".to_owned(), format!("from-{next}").into());
    }
    Ok(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_comes_page_by_page_and_a_foreign_cursor_is_refused() {
        let entries = |n: usize| (0..n).map(|i| json!(i)).collect::<Vec<_>>();
        let first = page("tools", entries(450), &Json::Null).unwrap();
        assert_eq!((first["tools"].as_array().unwrap().len(), first["nextCursor"].as_str()), (200, Some("from-200")));
        let last = page("tools", entries(450), &json!({"cursor": "from-400"})).unwrap();
        assert_eq!((last["tools"][0].as_u64(), last.get("nextCursor")), (Some(400), None));
        for bad in [json!("from-600"), json!("from-1"), json!("from-0"), json!("x"), json!(5), json!("from--200")] {
            assert!(page("tools", entries(450), &json!({ "cursor": bad })).is_err(), "{bad}");
        }
        assert_eq!(page("tools", Vec::new(), &Json::Null).unwrap()["tools"], json!([]));
    }
}
