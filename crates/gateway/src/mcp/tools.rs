//! `tools/list` and `tools/call`: what is shown, and the one way of a call through the broker to its server and back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gate::Listed;
use gate::call::Call;
use gate::result::{ToolFailure, ToolResult};
use gate::verdict::{Reason, Verdict};
use policy::tools::Decision;
use serde_json::{Map, Value as Json, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::catalog::Tool;
use super::client_requests::{self, Askable, From, Running};
use super::convert;
use super::lock;
use super::peer::{Failure, Peer, Progress};
use super::pins::PinState;
use super::protocol::{self, Protocol};
use super::pushed;
use super::session::{Context, Session};
use super::text;
use super::upstream::{Link, OnItsWay};
use super::wire::{self, Id, Outcome, RpcError};
use crate::broker::CallOutcome;

/// Entries of one page.
const PAGE: usize = 200;
/// Most rounds of questions of one call.
const MAX_ROUNDS: usize = 10;
/// When a client is first told that its call waits for a person, and how often again: clients give up after a minute of silence.
const FIRST_SIGN: Duration = Duration::from_secs(2);
const SIGN: Duration = Duration::from_secs(10);
/// A call that takes longer to reach its server has waited for a person.
const AT_ONCE: Duration = Duration::from_secs(1);
/// The id of calls of tools that are held back.
const HELD: &str = "mcp.pin/changed";
/// Most bytes of the words that go with progress.
const MAX_WORDS: usize = 1000;

impl Session {
    pub(super) async fn list_tools(&self, params: &Json) -> Outcome {
        let catalog = self.catalog().await;
        let mut shown = Vec::new();
        for (public, tool) in catalog.tools.iter() {
            if tool.standing == PinState::Held {
                continue;
            }
            if let Listed::Shown { schema } = self.gateway.broker.lists(&tool.named, &tool.facts) {
                shown.push(self.pushed(&tool.server).definition(tool.shown(public, schema)));
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
        if let Some(tool) = known.filter(|tool| tool.standing != PinState::Held) {
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
        if tool.standing == PinState::Held {
            let instead = format!("`fumehood mcp pins accept {}`", tool.named);
            let what = format!("the tool `{}` is held back", tool.named);
            self.refused(&tool.named, args, (HELD, what, instead));
            return Ok(held(&tool));
        }
        let binding = format!("{} {}", self.caller.agent, gate::json::hash(&tool.named, &args));
        let state = params.get("requestState").and_then(Json::as_str);
        let running = match state {
            Some(state) => self.waiting.resume(state, &binding, params.get("inputResponses"))?,
            None => self.begin(context, params, tool, args)?,
        };
        self.waiting.go_on(running, binding, &context.cancel).await
    }

    /// A call that ends here is an event of the record, as every decision is.
    fn refused(&self, tool: &str, args: Json, (id, what, instead): (&'static str, String, String)) {
        let (counters, now) = (gate::rules::Counters::default(), crate::clock::now_ms());
        let facts = gate::call::ToolFacts::default();
        let why = "the gateway has no such tool to call".to_owned();
        let reason = Reason { id, rule: "mcp".to_owned(), at: None, decision: Decision::Deny, what, why, instead };
        self.gateway.broker.refused(&Call { tool, args, caller: &self.caller, facts: &facts, counters, now }, reason);
    }

    /// Begins a call in a task of its own: it may outlive the request of a client that comes back later.
    fn begin(&self, context: &Context, params: &Json, tool: Arc<Tool>, args: Json) -> Result<Running, RpcError> {
        let me = self.me().ok_or_else(|| RpcError::new(wire::UNAVAILABLE, "the session ended"))?;
        let (askable, requests) = match context.client.protocol {
            Protocol::Handshake => {
                let askable = Askable::direct(context.peer.clone(), Some(context.id.clone()), context.client.clone());
                (askable, tokio::sync::mpsc::channel(1).1)
            }
            Protocol::Stateless => Askable::waiting(context.client.clone()),
        };
        let listed = OnTheList::new(me.clone(), &tool.server, &askable);
        let meta = protocol::strip_meta(params.get("_meta"));
        let progress = context.progress.clone().map(|token| forward(&me, &tool.server, context, token));
        let signs =
            context.progress.clone().map(|token| Signs { to: context.peer.clone(), about: context.id.clone(), token });
        // Not the request's own: without a handshake that ends when the client is asked, and the call goes on.
        let cancel = CancellationToken::new();
        let trip = ToolCall { session: me.clone(), tool, meta, askable, progress, begun: Instant::now() };
        let ends = cancel.clone();
        let task = tokio::spawn(async move {
            let outcome = me.make(args, trip, signs, ends).await;
            drop(listed);
            outcome
        });
        Ok(Running::new(task, requests, cancel))
    }

    async fn make(
        self: &Arc<Self>,
        args: Json,
        trip: ToolCall,
        signs: Option<Signs>,
        cancel: CancellationToken,
    ) -> Outcome {
        let tool = trip.tool.clone();
        let listening = self.approvals_by(&tool.named, &trip.askable);
        let call = Call {
            tool: &tool.named,
            args,
            caller: &self.caller,
            facts: &tool.facts,
            counters: gate::rules::Counters::default(),
            now: crate::clock::now_ms(),
        };
        let runs = Arc::new(AtomicBool::new(false));
        let began = runs.clone();
        let calling = self.gateway.broker.call(call, move |args| {
            began.store(true, Ordering::Release);
            trip.there_and_back(args)
        });
        // Dropped, the call is taken back: a person is no longer asked, a server is told, and the broker writes that down.
        let answer = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(RpcError::new(wire::UNAVAILABLE, "cancelled")),
            answer = calling => answer,
            never = give_signs(signs, &runs) => match never {},
        };
        drop(listening);
        let mut said = said(&answer);
        let dropped = self.pushed(&tool.server).take_dropped();
        if dropped > 0 {
            note_dropped(&mut said, &tool.server, dropped);
        }
        Ok(said)
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
pub(super) struct ToolCall {
    pub(super) session: Arc<Session>,
    pub(super) tool: Arc<Tool>,
    pub(super) meta: Map<String, Json>,
    pub(super) askable: Askable,
    pub(super) progress: Option<Progress>,
    /// When it was found: a long time before it runs somebody was asked in between.
    pub(super) begun: Instant,
}

impl ToolCall {
    pub(super) async fn there_and_back(self, args: Json) -> Result<ToolResult, ToolFailure> {
        let result = self.rounds(args).await;
        convert::read(result.map_err(|message| ToolFailure { message })?)
    }

    async fn rounds(&self, args: Json) -> Result<Json, String> {
        let server = &self.tool.server;
        let upstream = self.session.link_of(server).ok_or_else(|| "its server is gone".to_owned())?;
        let link = upstream.link().await.map_err(|down| down.describe(server))?;
        self.session.still_is(&self.tool, self.begun.elapsed() > AT_ONCE).await?;
        let mut more = Map::new();
        for _ in 0..MAX_ROUNDS {
            let mut params = Map::new();
            params.insert("name".to_owned(), self.tool.own.as_str().into());
            params.insert("arguments".to_owned(), args.clone());
            params.extend(std::mem::take(&mut more));
            if !self.meta.is_empty() {
                params.insert("_meta".to_owned(), Json::Object(self.meta.clone()));
            }
            let on_its_way = OnItsWay::new(upstream, &link);
            let result = self.once(&link, Json::Object(params)).await?;
            drop(on_its_way);
            if result.get("resultType").and_then(Json::as_str) != Some("input_required") {
                return Ok(result);
            }
            let from = From { server, pushed: &self.session.pushed(server) };
            let next = client_requests::next_round(&self.session.gateway.allow, from, &result, &self.askable).await;
            more =
                next.map_err(|error| format!("the tool asks what it may not, or was not answered: {}", error.message))?;
        }
        Err(format!("the tool asked its client {MAX_ROUNDS} times without an end"))
    }

    async fn once(&self, link: &Arc<Link>, params: Json) -> Result<Json, String> {
        match link.request("tools/call", params, self.progress.clone()).await {
            Ok(result) => Ok(result),
            Err(Failure::Rpc(error)) => Err(format!("the tool's server answered with an error: {}", error.message)),
            Err(Failure::Gone(why)) => Err(format!("the server `{}` ended during the call: {why}", self.tool.server)),
        }
    }
}

/// Where a client is told that its call waits.
struct Signs {
    to: Peer,
    about: Id,
    token: Json,
}

/// Tells a client now and then that its call waits for a person, until it runs; then its server speaks for itself.
async fn give_signs(signs: Option<Signs>, runs: &AtomicBool) -> std::convert::Infallible {
    let mut pause = FIRST_SIGN;
    let mut count = 0_u32;
    while let Some(Signs { to, about, token }) = &signs {
        tokio::time::sleep(std::mem::replace(&mut pause, SIGN)).await;
        if runs.load(Ordering::Acquire) {
            break;
        }
        count = count.saturating_add(1);
        // It must grow each time, and stay below what the server will say.
        let told = json!({
            "progressToken": token, "progress": f64::from(count) / 1e6,
            "message": "waiting for a person to agree; `fumehood approvals ls` shows the call",
        });
        to.mention("notifications/progress", told, Some(about));
    }
    std::future::pending().await
}

/// Passes progress on under the client's own token, as far as the server may push.
fn forward(session: &Arc<Session>, server: &str, context: &Context, token: Json) -> Progress {
    let (peer, id) = (context.peer.clone(), context.id.clone());
    let (session, server) = (Arc::downgrade(session), server.to_owned());
    Arc::new(move |params| {
        let Some(session) = session.upgrade() else { return };
        let words = params.get("message").and_then(Json::as_str).map(Json::from).unwrap_or_default();
        let Some(words) = session.passes(&server, &words) else { return };
        let mut told = Map::new();
        told.insert("progressToken".to_owned(), token.clone());
        for key in ["progress", "total"] {
            if let Some(number) = params.get(key).and_then(pushed::number) {
                told.insert(key.to_owned(), number);
            }
        }
        if let Some(words) = words.as_str() {
            told.insert("message".to_owned(), text::shown(words, MAX_WORDS).into());
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

/// The answer of the broker, for the client: a result, or why there is none, in words for the model.
fn said(answer: &CallOutcome) -> Json {
    match &answer.result {
        Some(Ok(result)) => convert::written(result),
        Some(Err(failure)) => json!({ "content": [{ "type": "text", "text": failure.message }], "isError": true }),
        None => {
            let verdict = &answer.verdict;
            json!({
                "content": [{ "type": "text", "text": denial_text(verdict) }],
                "isError": true,
                "_meta": { "fumehood/denied": {
                    "decision": verdict.decision.as_str(), "rule": verdict.rule, "instead": verdict.instead,
                    "reasons": verdict.reasons.iter().map(gate::verdict::Reason::to_json).collect::<Vec<_>>(),
                } },
            })
        }
    }
}

/// A server said more than passes while a call of it ran: the client is told how much it did not see.
fn note_dropped(said: &mut Json, server: &str, dropped: u64) {
    let Some(said) = said.as_object_mut() else { return };
    let note = format!("{dropped} messages of the server `{server}` were dropped: it says more than passes");
    if let Some(meta) = said.entry("_meta").or_insert_with(|| json!({})).as_object_mut() {
        meta.insert("fumehood/notes".to_owned(), json!([note]));
    }
}

/// A verdict as a model reads it: what, why, what would be allowed.
#[must_use]
pub fn denial_text(verdict: &Verdict) -> String {
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
