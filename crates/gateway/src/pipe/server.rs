//! Lines in, lines out.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gate::call::{Caller, ToolFacts};
use gate::json;
use gate::names;
use gate::result::{Content, ToolFailure, ToolResult};
use policy::diagnostic::quote;
use policy::tools::Effect;
use serde_json::{Map, Value as Json, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::approvals::{Approvals, Asker, ParkedCall};
use crate::engine::{BoxFuture, CallResult, Engine, Run, ToolRequest, ToolRoute, ToolUnavailable};
use crate::record::Event;
use crate::tool_route::{error_text, route};

/// Longest line.
const MAX_LINE: usize = json::MAX_BYTES + 4096;
/// Calls at once.
const MAX_CALLS: usize = 1024;
/// Tools that the other end may register.
const MAX_TOOLS: usize = 10_000;
/// Parked calls that the other end was told of.
const MAX_TOLD: usize = 100_000;
/// Lines that wait for a slow reader before we stop reading ourselves.
const MAX_QUEUED: usize = 256;
/// What a line may ask for, and its fields.
const FIELDS: [(&str, &[&str]); 8] = [
    ("tools", &["id", "op"]),
    ("cancel", &["id", "op"]),
    ("end", &["id", "op", "session"]),
    ("register", &["id", "op", "tool", "schema", "effect", "defaults"]),
    ("check", &["id", "op", "tool", "args", "text", "session"]),
    ("call", &["id", "op", "tool", "args", "text", "session", "here"]),
    ("ran", &["id", "op", "value", "failure"]),
    ("answer", &["id", "op", "approval", "approve", "by", "why"]),
];

/// What a pipe is served with.
#[derive(Clone, Debug)]
pub struct Pipe {
    /// Who decides and runs.
    pub engine: Arc<dyn Engine>,
    /// The agent that the program at the other end embeds, and the session of calls that name none.
    pub caller: Caller,
    /// The program is told of parked calls and sends answers, but for calls that a person must agree to.
    pub answers: bool,
    /// The first line, which says that we are ready.
    pub hello: Json,
}

/// Serves until the other end closes. Calls that are on their way then end with it.
///
/// # Errors
/// What the kernel answers, but for an end that went away.
pub async fn serve(
    pipe: Pipe,
    mut input: impl AsyncBufRead + Unpin,
    output: impl AsyncWrite + Unpin + Send + 'static,
) -> io::Result<()> {
    let (out, lines) = mpsc::channel(MAX_QUEUED);
    let writer = tokio::spawn(write(output, lines));
    let told = AnnouncedCalls::default();
    let teller = Arc::new(ParkNotifier(out.clone(), told.clone()));
    let _listening = pipe.answers.then(|| pipe.engine.approvals().listen(None, Arc::clone(&teller) as Arc<dyn Asker>));
    let server = Arc::new(PipeServer { out, jobs: Mutex::default(), facts: Mutex::default(), told, pipe });
    server.send(server.pipe.hello.clone()).await;
    let mut line = Vec::new();
    loop {
        line.clear();
        let limit = u64::try_from(MAX_LINE).unwrap_or(u64::MAX);
        let count = (&mut input).take(limit).read_until(b'\n', &mut line).await?;
        if count == 0 || server.out.is_closed() {
            break;
        }
        if !line.ends_with(b"\n") && count == MAX_LINE {
            // What follows cannot be told from a new line: nothing after it is believed.
            server
                .send(problem(
                    None,
                    "tools.pipe/line",
                    "a line is too long",
                    "8 MiB is the most that is read",
                    "send less",
                ))
                .await;
            break;
        }
        if let Err(answer) = server.take(&line).await {
            server.send(answer).await;
        }
    }
    for (_, job) in std::mem::take(&mut *server.jobs()) {
        job.task.abort();
    }
    drop((server, teller));
    drop(_listening);
    match writer.await {
        Ok(Err(error)) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

async fn write(mut output: impl AsyncWrite + Unpin, mut lines: mpsc::Receiver<Json>) -> io::Result<()> {
    while let Some(line) = lines.recv().await {
        let mut text = line.to_string();
        text.push('\n');
        output.write_all(text.as_bytes()).await?;
        // Many answers at once are one write to the kernel only where more are waiting.
        if lines.is_empty() {
            output.flush().await?;
        }
    }
    output.flush().await
}

/// Tells the other end of parked calls.
#[derive(Debug)]
struct ParkNotifier(mpsc::Sender<Json>, AnnouncedCalls);

/// The calls that the other end was told of: it may agree to those alone.
#[derive(Clone, Debug, Default)]
struct AnnouncedCalls(Arc<Mutex<BTreeSet<String>>>);

impl AnnouncedCalls {
    fn has(&self, id: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(id)
    }

    fn add(&self, id: &str) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Long answered, most of them.
        if told.len() >= MAX_TOLD {
            told.clear();
        }
        told.insert(id.to_owned());
    }
}

impl Asker for ParkNotifier {
    fn asked<'a>(&'a self, call: &'a ParkedCall, _: &'a Approvals) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.1.add(&call.id);
            if self.0.send(json!({ "asked": call.to_json() })).await.is_err() {
                // The end went away; so will the call.
            }
        })
    }

    fn is_the_callers(&self) -> bool {
        true
    }
}

/// A call on its way.
#[derive(Debug)]
struct Job {
    task: AbortHandle,
    ran: Option<oneshot::Sender<Result<ToolResult, ToolFailure>>>,
}

#[derive(Debug)]
struct PipeServer {
    pipe: Pipe,
    out: mpsc::Sender<Json>,
    told: AnnouncedCalls,
    jobs: Mutex<BTreeMap<u64, Job>>,
    /// What the tools of the other end say of themselves.
    facts: Mutex<BTreeMap<String, Arc<ToolFacts>>>,
}

impl PipeServer {
    async fn send(&self, line: Json) {
        if self.out.send(line).await.is_err() {
            // The writer ended because nobody reads: the next read ends us.
        }
    }

    fn jobs(&self) -> MutexGuard<'_, BTreeMap<u64, Job>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one line; what is wrong with it is the error.
    async fn take(self: &Arc<Self>, line: &[u8]) -> Result<(), Json> {
        let text = std::str::from_utf8(line).map_err(|error| {
            let what = format!("a line is no UTF-8 at byte {}", error.valid_up_to());
            problem(None, "tools.pipe/line", &what, "JSON is UTF-8", "send UTF-8")
        })?;
        let value = match json::read(text.trim_end()) {
            Ok(value) => value,
            Err(flaw) => return self.unread(text, &flaw),
        };
        let Some(Ok(id)) = value.get("id").map(|id| id.as_u64().ok_or(())) else {
            return Err(shape(None, "`id` is no whole number"));
        };
        let Json::Object(table) = value else { return Err(shape(None, "the line is no object")) };
        let op = table.get("op").and_then(Json::as_str).unwrap_or_default();
        let Some((_, known)) = FIELDS.iter().find(|(known, _)| *known == op) else {
            return Err(shape(Some(id), &format!("unknown `op` {}", quote(op))));
        };
        if let Some(odd) = table.keys().find(|key| !known.contains(&key.as_str())) {
            return Err(shape(Some(id), &format!("unknown field {}", quote(odd))));
        }
        match op {
            "tools" => {
                let tools = self.pipe.engine.tools(&self.pipe.caller).await;
                self.send(json!({ "id": id, "tools": tools })).await;
            }
            "check" => self.check(id, &table).await?,
            "end" => self.end(id, &table)?,
            "register" => self.register(id, &table).await?,
            "call" => self.call(id, &table)?,
            "ran" => self.ran(id, &table)?,
            "cancel" => {
                let job = self.jobs().remove(&id);
                if let Some(job) = job {
                    job.task.abort();
                }
            }
            _ => self.answer(id, &table).await?,
        }
        Ok(())
    }

    /// A line that cannot be read in one way only. Whoever waits for its id is told, for nothing else of it is carried out:
    /// a caller that sent a number too large must not wait for ever, nor a call for a value that cannot come.
    fn unread(&self, line: &str, flaw: &json::JsonError) -> Result<(), Json> {
        #[derive(serde::Deserialize)]
        struct Head {
            id: u64,
            op: String,
        }
        let head = serde_json::from_str::<Head>(line).ok();
        if let Some(Head { id, op }) = &head
            && op == "ran"
            && let Some(ran) = self.jobs().get_mut(id).and_then(|job| job.ran.take())
        {
            let message = format!("what the tool answered cannot be passed on: {}: {}", flaw.what, flaw.why);
            if ran.send(Err(ToolFailure { message })).is_err() {
                // It timed out between the two lines.
            }
            return Ok(());
        }
        Err(problem(head.map(|head| head.id), flaw.id, &flaw.what, flaw.why, flaw.fix))
    }

    /// A verdict. Whoever registered the tool runs it; of others their servers are asked what they say of them, and a
    /// server that starts slowly keeps no other line waiting.
    async fn check(self: &Arc<Self>, id: u64, table: &Map<String, Json>) -> Result<(), Json> {
        let (tool, args, caller) = self.call_of(id, table)?;
        let facts = self.facts_of(&tool);
        if facts.is_some() {
            let verdict = self.pipe.engine.check(&tool, args, &caller, facts.as_deref());
            self.send(json!({ "id": id, "verdict": verdict.to_json() })).await;
            return Ok(());
        }
        let server = Arc::clone(self);
        tokio::spawn(async move {
            let line = match route(&*server.pipe.engine, &tool, &args, &caller).await {
                (_, Err(ToolUnavailable::Held)) => missing(id, &tool, &ToolUnavailable::Held),
                (verdict, _) => json!({ "id": id, "verdict": verdict.to_json() }),
            };
            server.send(line).await;
        });
        Ok(())
    }

    /// A conversation of the program is over.
    fn end(self: &Arc<Self>, id: u64, table: &Map<String, Json>) -> Result<(), Json> {
        let caller = self.caller_of(id, table)?;
        let server = Arc::clone(self);
        tokio::spawn(async move {
            server.pipe.engine.end_session(&caller).await;
            server.send(json!({ "id": id, "ended": true })).await;
        });
        Ok(())
    }

    fn facts_of(&self, tool: &str) -> Option<Arc<ToolFacts>> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner).get(tool).cloned()
    }

    /// Tool, arguments and caller of a line.
    fn call_of(&self, id: u64, table: &Map<String, Json>) -> Result<(String, Json, Caller), Json> {
        let tool = table.get("tool").and_then(Json::as_str).ok_or_else(|| shape(Some(id), "`tool` is no text"))?;
        let args = match (table.get("args"), table.get("text")) {
            (Some(args), None) => args.clone(),
            (None, None) => json!({}),
            // As the model wrote it: read here, so that no reader before us settles what is ambiguous.
            (None, Some(Json::String(text))) => {
                json::read(text).map_err(|flaw| problem(Some(id), flaw.id, &flaw.what, flaw.why, flaw.fix))?
            }
            (_, Some(_)) => return Err(shape(Some(id), "one of `args` and `text` is needed")),
        };
        Ok((tool.to_owned(), args, self.caller_of(id, table)?))
    }

    fn caller_of(&self, id: u64, table: &Map<String, Json>) -> Result<Caller, Json> {
        let mut caller = self.pipe.caller.clone();
        match table.get("session") {
            None | Some(Json::Null) => {}
            Some(Json::String(session)) if is_session(session) => caller.session.clone_from(session),
            Some(_) => return Err(shape(Some(id), "`session` is no name of 1 to 128 visible ASCII letters")),
        }
        Ok(caller)
    }

    /// What a tool of the other end says of itself: it makes decisions stricter.
    async fn register(&self, id: u64, table: &Map<String, Json>) -> Result<(), Json> {
        let tool = table.get("tool").and_then(Json::as_str).filter(|tool| names::is_name(tool));
        let tool = tool.ok_or_else(|| shape(Some(id), "`tool` is no name of a tool"))?.to_owned();
        let effect = match table.get("effect").map(Json::as_str) {
            None => None,
            Some(Some("read")) => Some(Effect::Read),
            Some(Some("write")) => Some(Effect::Write),
            Some(_) => return Err(shape(Some(id), "`effect` is neither read nor write")),
        };
        let input_schema = table.get("schema").cloned();
        let defaults = match table.get("defaults") {
            None => Map::new(),
            Some(Json::Object(defaults)) => defaults.clone(),
            Some(_) => return Err(shape(Some(id), "`defaults` is no object")),
        };
        let registered = {
            let mut facts = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
            let room = facts.len() < MAX_TOOLS || facts.contains_key(&tool);
            let said = ToolFacts { effect, input_schema, output_schema: None, defaults };
            room.then(|| facts.insert(tool, Arc::new(said))).is_some()
        };
        if !registered {
            let why = format!("{MAX_TOOLS} are registered");
            return Err(problem(Some(id), "tools.pipe/busy", "too many tools", &why, "register those that are called"));
        }
        self.send(json!({ "id": id, "registered": true })).await;
        Ok(())
    }

    fn call(self: &Arc<Self>, id: u64, table: &Map<String, Json>) -> Result<(), Json> {
        let (tool, args, caller) = self.call_of(id, table)?;
        let here = match table.get("here") {
            None => false,
            Some(Json::Bool(here)) => *here,
            Some(_) => return Err(shape(Some(id), "`here` is neither true nor false")),
        };
        let (ran, answered) = oneshot::channel();
        let there = here.then(|| self.runs_there(id, answered));
        let mut jobs = self.jobs();
        if jobs.contains_key(&id) {
            return Err(shape(Some(id), "a call of this `id` is on its way"));
        }
        if jobs.len() >= MAX_CALLS {
            let why = format!("{MAX_CALLS} are on their way");
            return Err(problem(Some(id), "tools.pipe/busy", "too many calls at once", &why, "wait for some of them"));
        }
        let server = Arc::clone(self);
        // The job is in the table before its task can end: the lock is held until then.
        let task = tokio::spawn(async move {
            let line = server.make(id, &tool, args, &caller, there).await;
            let is_ours = server.jobs().remove(&id).is_some();
            if is_ours {
                server.send(line).await;
            }
        });
        jobs.insert(id, Job { task: task.abort_handle(), ran: here.then_some(ran) });
        Ok(())
    }

    /// Makes a call, by the way that leads to the other end or by what runs the tool here; the last line about it.
    async fn make(&self, id: u64, tool: &str, args: Json, caller: &Caller, there: Option<Run>) -> Json {
        let facts = self.facts_of(tool);
        let (run, own) = match there {
            Some(run) => (run, None),
            None => match route(&*self.pipe.engine, tool, &args, caller).await.1 {
                Ok(ToolRoute { run, facts }) => (run, facts),
                Err(why) => {
                    self.pipe.engine.refused(ToolRequest { tool, args, caller, facts: None }, &why);
                    return missing(id, tool, &why);
                }
            },
        };
        let what = ToolRequest { tool, args, caller, facts: own.as_ref().or(facts.as_deref()) };
        json!({ "id": id, "called": called_json(&self.pipe.engine.call(what, run).await) })
    }

    /// A tool that the other end runs.
    fn runs_there(&self, id: u64, answered: oneshot::Receiver<Result<ToolResult, ToolFailure>>) -> Run {
        let out = self.out.clone();
        Box::new(move |args| {
            Box::pin(async move {
                let gone = || ToolFailure { message: "the program that runs the tool went away".to_owned() };
                if out.send(json!({ "id": id, "run": { "args": args } })).await.is_err() {
                    return Err(gone());
                }
                answered.await.unwrap_or_else(|_| Err(gone()))
            })
        })
    }

    fn ran(&self, id: u64, table: &Map<String, Json>) -> Result<(), Json> {
        let result = match (table.get("value"), table.get("failure")) {
            (Some(value), None) => Ok(result_of(value)),
            (None, Some(Json::String(message))) => Err(ToolFailure { message: message.clone() }),
            (_, _) => return Err(shape(Some(id), "one of `value` and `failure` is needed")),
        };
        let ran = self.jobs().get_mut(&id).and_then(|job| job.ran.take());
        // A call that timed out meanwhile was told so; its late answer is nobody's.
        if let Some(ran) = ran
            && ran.send(result).is_err()
        {
            // It timed out between the two lines.
        }
        Ok(())
    }

    async fn answer(&self, id: u64, table: &Map<String, Json>) -> Result<(), Json> {
        if !self.pipe.answers {
            let (what, why) = ("no answers are taken here", "whoever may call may not agree, unless told so");
            return Err(problem(
                Some(id),
                "tools.pipe/no-answers",
                what,
                why,
                "start with `--answers`, or use `fumehood approvals`",
            ));
        }
        let text = |name: &str| table.get(name).and_then(Json::as_str).map(str::to_owned);
        let approval = text("approval").ok_or_else(|| shape(Some(id), "`approval` is no text"))?;
        let Some(approve) = table.get("approve").and_then(Json::as_bool) else {
            return Err(shape(Some(id), "`approve` is neither true nor false"));
        };
        let (by, why) =
            (text("by").unwrap_or_else(|| "the embedding program".to_owned()), text("why").unwrap_or_default());
        let engine = Arc::clone(&self.pipe.engine);
        if approve && !self.told.has(&approval) {
            return Err(problem(
                Some(id),
                "tools.pipe/person",
                "a person must agree to this call",
                "the program that makes calls answers here, and could answer for itself",
                "`fumehood approvals approve`, an approver's key over HTTP, or `approval.by = \"anyone\"` for this tool",
            ));
        }
        let say = move || {
            let kind = if approve { "approval.approved" } else { "approval.denied" };
            let body = json!({ "id": approval, "by": by });
            engine.record().append(&Event { kind, body })?;
            let approvals = engine.approvals();
            let said =
                if approve { approvals.approve(&approval, &by, None) } else { approvals.deny(&approval, &by, &why) };
            said.map_err(|lost| lost.to_string())
        };
        let said = tokio::task::spawn_blocking(say).await.unwrap_or_else(|error| Err(error.to_string()));
        match said {
            Ok(call) => {
                self.send(json!({ "id": id, "call": call.to_json() })).await;
                Ok(())
            }
            Err(why) => Err(problem(
                Some(id),
                "tools.http/too-late",
                "the answer does not count",
                &why,
                "nothing is left to do",
            )),
        }
    }
}

/// A value of the other end's own language: text is text, the rest is structure.
fn result_of(value: &Json) -> ToolResult {
    match value {
        Json::String(text) => ToolResult { content: vec![Content::Text(text.clone())], ..ToolResult::default() },
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::Array(_) | Json::Object(_) => {
            ToolResult { structured: Some(value.clone()), ..ToolResult::default() }
        }
    }
}

/// The verdict with `value`, or with `result` where a tool of ours gave more than one part, or with `failure`.
fn called_json(called: &CallResult) -> Json {
    let mut json = crate::http::called_json(called);
    let value = match &called.result {
        Some(Ok(ToolResult { content, structured: None, is_error: false, meta: _ })) => {
            if let [Content::Text(text)] = content.as_slice() { Some(json!(text)) } else { None }
        }
        Some(Ok(ToolResult { content, structured: Some(value), is_error: false, meta: _ })) if content.is_empty() => {
            Some(value.clone())
        }
        Some(Ok(_) | Err(_)) | None => None,
    };
    if let (Some(table), Some(value)) = (json.as_object_mut(), value) {
        table.insert("value".to_owned(), value);
    }
    json
}

fn is_session(name: &str) -> bool {
    (1..=128).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic())
}

fn missing(id: u64, tool: &str, missing: &ToolUnavailable) -> Json {
    let (name, [what, why, fix]) = error_text(tool, missing);
    problem(Some(id), name, &what, &why, &fix)
}

fn shape(id: Option<u64>, what: &str) -> Json {
    problem(
        id,
        "tools.pipe/line",
        what,
        "a line that is understood by half is not carried out",
        "see docs/reference/http.md",
    )
}

fn problem(id: Option<u64>, name: &str, what: &str, why: &str, fix: &str) -> Json {
    json!({ "id": id, "problem": { "id": name, "what": what, "why": why, "fix": fix } })
}
