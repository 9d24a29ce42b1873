//! The front door over real sockets, with a counting tool behind: who is let in, what each request is answered, and who is served
//! while others crowd it.

mod admission;
mod answers;
mod connections;
mod webhook;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use std::sync::Arc;

use gate::call::{Caller, ToolFacts};
use gate::result::{Content, ToolResult};
use gate::verdict::{Reason, Verdict};
use policy::tools::{Approval, Decision};
use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};

use super::*;
use crate::approvals::{ApprovalAnswer, Approvals, Ask, State};
use crate::engine::{BoxFuture, CallResult, Engine, Run, ToolRequest, ToolRoute, ToolUnavailable};
use crate::record::{Event, Record};

/// `open` is allowed, `ask` is asked about, the rest denied; counts what runs.
#[derive(Debug)]
struct Fixture {
    approvals: Approvals,
    ran: Arc<AtomicUsize>,
    log: Log,
}

#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<&'static str>>>);

impl Record for Log {
    fn append(&self, event: &Event) -> Result<(), String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(event.kind);
        Ok(())
    }
}

fn verdict(decision: Decision, tool: &str, args: &Json) -> Verdict {
    let reason = Reason {
        id: "tools.entry/none",
        rule: "tools.default".into(),
        at: None,
        decision,
        what: format!("`{tool}`"),
        why: "no entry names it".into(),
        instead: "open".into(),
    };
    let reasons = if decision == Decision::Allow { Vec::new() } else { vec![reason] };
    let hash = Some(gate::json::hash(tool, args));
    Verdict { decision, rule: "r".into(), reasons, instead: String::new(), args: Some(args.clone()), hash }
}

impl Engine for Fixture {
    fn check(&self, tool: &str, args: Json, _: &Caller, _: Option<&ToolFacts>) -> Verdict {
        let decision = match tool {
            "open" | "bare" => Decision::Allow,
            "ask" => Decision::Ask,
            _ => Decision::Deny,
        };
        verdict(decision, tool, &args)
    }

    fn call<'a>(&'a self, what: ToolRequest<'a>, run: Run) -> BoxFuture<'a, CallResult> {
        Box::pin(async move {
            let ToolRequest { tool, args, caller, facts } = what;
            let mut verdict = self.check(tool, args.clone(), caller, facts);
            if verdict.decision == Decision::Ask {
                let ask = Ask {
                    tool: tool.into(),
                    server: None,
                    hash: verdict.hash.clone().unwrap_or_default(),
                    args: args.clone(),
                    rule: "r".into(),
                    reason: "asked".into(),
                    agent: caller.agent.clone(),
                    session: caller.session.clone(),
                    approval: Approval::Never,
                    by: policy::tools::ApprovalBy::Person,
                };
                let answer = match self.approvals.ask(&ask) {
                    Ok(parked) => parked.wait(Duration::from_secs(60)).await,
                    Err(why) => ApprovalAnswer::Lost { id: String::new(), why },
                };
                match answer.denial("r") {
                    Some(reason) => {
                        verdict.decision = Decision::Deny;
                        verdict.reasons = vec![reason];
                    }
                    None => verdict.decision = Decision::Allow,
                }
            }
            let result = if verdict.decision == Decision::Allow { Some(run(args).await) } else { None };
            CallResult { verdict, result }
        })
    }

    fn implementation<'a>(&'a self, tool: &'a str, _: &'a Caller) -> BoxFuture<'a, Result<ToolRoute, ToolUnavailable>> {
        let (ran, tool) = (Arc::clone(&self.ran), tool.to_owned());
        Box::pin(async move {
            if tool == "bare" {
                return Err(ToolUnavailable::NoServer);
            }
            let run: Run = Box::new(move |args| {
                Box::pin(async move {
                    ran.fetch_add(1, Ordering::SeqCst);
                    Ok(ToolResult { content: vec![Content::Text(format!("{tool} {args}"))], ..ToolResult::default() })
                })
            });
            Ok(ToolRoute { run, facts: None })
        })
    }

    fn refused(&self, _: ToolRequest<'_>, _: &ToolUnavailable) {}

    fn end_session<'a>(&'a self, _: &'a Caller) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }

    fn tools<'a>(&'a self, _: &'a Caller) -> BoxFuture<'a, Vec<Json>> {
        Box::pin(async { vec![json!({ "name": "open" })] })
    }

    fn approvals(&self) -> &Approvals {
        &self.approvals
    }

    fn record(&self) -> Arc<dyn Record> {
        Arc::new(self.log.clone())
    }
}

/// A served fixture, and what a client needs.
struct Street {
    dir: tempfile::TempDir,
    address: String,
    ran: Arc<AtomicUsize>,
    approvals: Approvals,
    log: Log,
    agent: String,
    person: String,
}

fn folder() -> tempfile::TempDir {
    tempfile::Builder::new().permissions(std::fs::Permissions::from_mode(0o700)).tempdir().unwrap()
}

fn read(dir: &Path, name: &str) -> String {
    std::fs::read_to_string(dir.join(name)).unwrap().trim().to_owned()
}

async fn street(listen: impl FnOnce(&Path) -> Listen, origins: &[&str]) -> Street {
    street_until(listen, origins, std::future::pending()).await.0
}

/// One that ends when `stop` is done.
async fn street_until(
    listen: impl FnOnce(&Path) -> Listen,
    origins: &[&str],
    stop: impl Future<Output = ()> + Send + 'static,
) -> (Street, tokio::task::JoinHandle<()>) {
    let dir = folder();
    let approvals = Approvals::open(dir.path()).unwrap();
    let (ran, log) = (Arc::new(AtomicUsize::new(0)), Log::default());
    let fixture = Fixture { approvals: approvals.clone(), ran: Arc::clone(&ran), log: log.clone() };
    let mut keys = Keys::open(dir.path()).unwrap();
    keys.agent("other", &dir.path().join("other.token")).unwrap();
    let listener = bind(&listen(dir.path())).await.unwrap();
    let address = listener.address().replace("http://", "");
    let origins = origins.iter().map(|origin| (*origin).to_owned()).collect();
    let serving = tokio::spawn(async move { serve(listener, Arc::new(fixture), keys, origins, stop).await.unwrap() });
    let (agent, person) = (read(dir.path(), "tools.token"), read(dir.path(), "approvals.token"));
    (Street { dir, address, ran, approvals, log, agent, person }, serving)
}

async fn on_loopback() -> Street {
    street(|_| Listen::parse("127.0.0.1:0").unwrap(), &[]).await
}

impl Street {
    /// Sends one request as written; status and body.
    async fn raw(&self, text: &str) -> (u16, Json) {
        let mut answer = Vec::new();
        if let Some(path) = self.address.strip_prefix("unix:") {
            let mut stream = UnixStream::connect(path).await.unwrap();
            stream.write_all(text.as_bytes()).await.unwrap();
            stream.read_to_end(&mut answer).await.unwrap();
        } else {
            let mut stream = TcpStream::connect(&self.address).await.unwrap();
            stream.write_all(text.as_bytes()).await.unwrap();
            stream.read_to_end(&mut answer).await.unwrap();
        }
        let answer = String::from_utf8(answer).unwrap();
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let body = answer.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
        (status, serde_json::from_str(body).unwrap_or(Json::Null))
    }

    async fn send(&self, line: &str, headers: &[(&str, &str)], body: &str) -> (u16, Json) {
        let mut text = format!("{line} HTTP/1.1\r\nConnection: close\r\n");
        if !headers.iter().any(|(name, _)| *name == "Host") {
            text.push_str(&format!(
                "Host: {}\r\n",
                if self.address.starts_with("unix:") { "localhost" } else { &self.address }
            ));
        }
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() {
            text.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        self.raw(&format!("{text}\r\n{body}")).await
    }

    async fn post(&self, token: &str, path: &str, body: &str) -> (u16, Json) {
        let bearer = format!("Bearer {token}");
        self.send(&format!("POST {path}"), &[("Authorization", &bearer), ("Content-Type", "application/json")], body)
            .await
    }

    async fn get(&self, token: &str, path: &str) -> (u16, Json) {
        self.send(&format!("GET {path}"), &[("Authorization", &format!("Bearer {token}"))], "").await
    }

    fn ran(&self) -> usize {
        self.ran.load(Ordering::SeqCst)
    }
}

const CALL: &str = r#"{"args": {"n": 1}}"#;
