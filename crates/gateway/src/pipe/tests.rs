//! A program at the other end, played by the test.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use gate::call::{Caller, ToolFacts};
use gate::verdict::Verdict;
use policy::tools::ApprovalBy;
use policy::tools::{Approval, Decision};
use serde_json::{Value as Json, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, ReadHalf, WriteHalf};

use super::*;
use crate::approvals::{ApprovalAnswer, Approvals, Ask};
use crate::engine::{BoxFuture, CallResult, Engine, Run, ToolRequest, ToolRoute, ToolUnavailable};
use crate::record::{Event, Record};

#[derive(Debug)]
struct Fixture(Approvals, Arc<std::sync::Mutex<Vec<String>>>);

#[derive(Debug)]
struct Nowhere;

impl Record for Nowhere {
    fn append(&self, _: &Event) -> Result<(), String> {
        Ok(())
    }
}

impl Engine for Fixture {
    fn check(&self, tool: &str, args: Json, _: &Caller, _: Option<&ToolFacts>) -> Verdict {
        let decision = match tool {
            "open" => Decision::Allow,
            "ask" => Decision::Ask,
            _ => Decision::Deny,
        };
        let hash = Some(gate::json::hash(tool, &args));
        Verdict { decision, rule: "r".into(), reasons: Vec::new(), instead: String::new(), args: Some(args), hash }
    }

    fn call<'a>(&'a self, what: ToolRequest<'a>, run: Run) -> BoxFuture<'a, CallResult> {
        Box::pin(async move {
            let ToolRequest { tool, args, caller, facts } = what;
            let mut verdict = self.check(tool, args.clone(), caller, facts);
            if verdict.decision == Decision::Ask {
                let hash = verdict.hash.clone().unwrap();
                let (agent, session) = (caller.agent.clone(), caller.session.clone());
                let ask = Ask {
                    tool: tool.into(),
                    server: None,
                    args: args.clone(),
                    hash,
                    rule: "r".into(),
                    reason: "asked".into(),
                    agent,
                    session,
                    approval: Approval::Never,
                    by: if args.get("person").is_some() { ApprovalBy::Person } else { ApprovalBy::Anyone },
                };
                let answer = self.0.ask(&ask).unwrap().wait(std::time::Duration::from_secs(60)).await;
                verdict.decision =
                    if matches!(answer, ApprovalAnswer::Approved { .. }) { Decision::Allow } else { Decision::Deny };
            }
            let result =
                if verdict.decision == Decision::Allow { Some(run(json!({ "judged": args })).await) } else { None };
            CallResult { verdict, result }
        })
    }

    fn implementation<'a>(&'a self, _: &'a str, _: &'a Caller) -> BoxFuture<'a, Result<ToolRoute, ToolUnavailable>> {
        Box::pin(async { Err(ToolUnavailable::NoServer) })
    }

    fn refused(&self, _: ToolRequest<'_>, _: &ToolUnavailable) {}

    fn end_session<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, ()> {
        self.1.lock().unwrap().push(caller.session.clone());
        Box::pin(async {})
    }

    fn tools<'a>(&'a self, _: &'a Caller) -> BoxFuture<'a, Vec<Json>> {
        Box::pin(async { vec![json!({ "name": "open" })] })
    }

    fn approvals(&self) -> &Approvals {
        &self.0
    }

    fn record(&self) -> Arc<dyn Record> {
        Arc::new(Nowhere)
    }
}

struct End {
    _dir: tempfile::TempDir,
    approvals: Approvals,
    ended: Arc<std::sync::Mutex<Vec<String>>>,
    input: BufReader<ReadHalf<DuplexStream>>,
    output: WriteHalf<DuplexStream>,
}

impl End {
    async fn new(answers: bool) -> Self {
        let owner = std::fs::Permissions::from_mode(0o700);
        let dir = tempfile::Builder::new().permissions(owner).tempdir().unwrap();
        let approvals = Approvals::open(dir.path()).unwrap();
        let caller = Caller { agent: "local".into(), session: "p".into(), key: None };
        let ended = Arc::default();
        let engine = Arc::new(Fixture(approvals.clone(), Arc::clone(&ended)));
        let pipe = Pipe { engine, caller, answers, hello: json!({ "ready": true }) };
        let (near, far) = tokio::io::duplex(1 << 16);
        let (input, output) = tokio::io::split(far);
        tokio::spawn(serve(pipe, BufReader::new(input), output));
        let (input, output) = tokio::io::split(near);
        let mut end = Self { _dir: dir, approvals, ended, input: BufReader::new(input), output };
        assert_eq!(end.next().await, json!({ "ready": true }));
        end
    }

    async fn send(&mut self, line: &str) {
        self.output.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    async fn next(&mut self) -> Json {
        let mut line = String::new();
        self.input.read_line(&mut line).await.unwrap();
        serde_json::from_str(&line).unwrap_or(Json::Null)
    }

    async fn asked(&mut self, line: &str) -> Json {
        self.send(line).await;
        self.next().await
    }
}

#[tokio::test]
async fn the_other_end_runs_what_was_judged_and_gets_back_what_may_be_seen() {
    let mut end = End::new(false).await;
    let run = end.asked(r#"{"id": 1, "op": "call", "tool": "open", "args": {"n": 1}, "here": true}"#).await;
    assert_eq!(run, json!({ "id": 1, "run": { "args": { "judged": { "n": 1 } } } }));
    let called = end.asked(r#"{"id": 1, "op": "ran", "value": {"sum": 2}}"#).await;
    assert_eq!((&called["called"]["decision"], &called["called"]["value"]), (&json!("allow"), &json!({ "sum": 2 })));
    end.send(r#"{"id": 2, "op": "call", "tool": "open", "args": {}, "here": true}"#).await;
    end.next().await;
    let called = end.asked(r#"{"id": 2, "op": "ran", "failure": "it broke"}"#).await;
    assert_eq!(called["called"]["failure"], "it broke");
    let denied = end.asked(r#"{"id": 3, "op": "call", "tool": "shut", "args": {}, "here": true}"#).await;
    assert_eq!((&denied["called"]["decision"], denied.get("run")), (&json!("deny"), None), "it is told to run nothing");
    assert_eq!(end.asked(r#"{"id": 4, "op": "check", "tool": "ask"}"#).await["verdict"]["decision"], "ask");
    assert_eq!(end.asked(r#"{"id": 5, "op": "tools"}"#).await["tools"][0]["name"], "open");
    let none = end.asked(r#"{"id": 6, "op": "call", "tool": "open"}"#).await;
    assert_eq!(none["problem"]["id"], "tools.http/no-implementation");
}

#[tokio::test]
async fn lines_that_are_understood_by_half_are_not_carried_out() {
    let mut end = End::new(false).await;
    let bad = [
        "",
        "x",
        "[]",
        r#"{"op": "tools"}"#,
        r#"{"id": -1, "op": "tools"}"#,
        r#"{"id": 1, "op": "tools", "more": 1}"#,
        r#"{"id": 1, "op": "open"}"#,
        r#"{"id": 1, "op": "call", "tool": 1, "here": true}"#,
        r#"{"id": 1, "op": "call", "tool": "open", "here": "yes"}"#,
        r#"{"id": 1, "op": "call", "tool": "open", "here": true, "session": ""}"#,
        r#"{"id": 1, "op": "call", "tool": "open", "here": true, "session": "a b"}"#,
        r#"{"id": 1, "id": 2, "op": "tools"}"#,
        r#"{"id": 1, "op": "call", "tool": "open", "args": {"a": 1, "\u0061": 2}, "here": true}"#,
        r#"{"id": 1, "op": "ran"}"#,
        r#"{"id": 1, "op": "ran", "value": 1, "failure": "x"}"#,
        r#"{"id": 1, "op": "answer", "approval": "a-0", "approve": true}"#,
    ];
    for line in bad {
        let said = end.asked(line).await;
        assert!(said["problem"]["id"].is_string(), "{line}: {said}");
    }
    // Answers to calls that are not on their way are nobody's, and the pipe lives on.
    end.send(r#"{"id": 99, "op": "ran", "value": 1}"#).await;
    end.send(r#"{"id": 99, "op": "cancel"}"#).await;
    assert_eq!(end.asked(r#"{"id": 5, "op": "tools"}"#).await["id"], 5);
    let run = end.asked(r#"{"id": 6, "op": "call", "tool": "open", "here": true}"#).await;
    assert!(run["run"].is_object());
    let twice = end.asked(r#"{"id": 6, "op": "call", "tool": "open", "here": true}"#).await;
    assert_eq!(twice["problem"]["id"], "tools.pipe/line", "an id is used once at a time");
}

#[tokio::test]
async fn a_program_may_answer_if_it_was_started_so() {
    let mut end = End::new(true).await;
    let asked = end.asked(r#"{"id": 1, "op": "call", "tool": "ask", "args": {"n": 1}, "here": true}"#).await;
    assert_eq!((&asked["asked"]["args"], &asked["asked"]["session"]), (&json!({ "n": 1 }), &json!("p")));
    let id = asked["asked"]["id"].as_str().unwrap();
    end.send(&format!(r#"{{"id": 2, "op": "answer", "approval": "{id}", "approve": true, "by": "alice"}}"#)).await;
    let (mut approved, mut run) = (false, false);
    for _ in 0..2 {
        let line = end.next().await;
        approved |= line["call"]["by"] == "alice";
        run |= line["run"]["args"]["judged"] == json!({ "n": 1 });
    }
    assert!(approved && run);
    let late = end.asked(&format!(r#"{{"id": 3, "op": "answer", "approval": "{id}", "approve": false}}"#)).await;
    assert_eq!(late["problem"]["id"], "tools.http/too-late");
}

#[tokio::test]
async fn a_program_does_not_answer_for_a_person() {
    let mut end = End::new(true).await;
    end.send(r#"{"id": 1, "op": "call", "tool": "ask", "args": {"person": 1}, "here": true}"#).await;
    let mut waiting = Vec::new();
    while waiting.is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        waiting = end.approvals.list(false).unwrap();
    }
    let id = waiting[0].id.clone();
    let said =
        end.asked(&format!(r#"{{"id": 2, "op": "answer", "approval": "{id}", "approve": true, "by": "alice"}}"#)).await;
    assert_eq!(said["problem"]["id"], "tools.pipe/person", "it was not told of the call, and may not agree: {said}");
    // A person's own way is open, and whoever may call may always take a call back.
    end.approvals.approve(&id, "ann", None).unwrap();
    let run = end.next().await;
    assert_eq!(run["run"]["args"]["judged"], json!({ "person": 1 }), "{run}");
    end.send(r#"{"id": 3, "op": "call", "tool": "ask", "args": {"person": 2}, "here": true}"#).await;
    let mut second = None;
    while second.is_none() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        second = end.approvals.list(false).unwrap().into_iter().find(|call| call.id != id);
    }
    let second = second.unwrap().id;
    end.send(&format!(r#"{{"id": 4, "op": "answer", "approval": "{second}", "approve": false}}"#)).await;
    let lines = [end.next().await, end.next().await];
    assert!(lines.iter().any(|line| line["id"] == 4 && line["call"].is_object()), "{lines:?}");
}

#[tokio::test]
async fn calls_end_when_they_are_cancelled_and_when_the_other_end_goes_away() {
    let mut end = End::new(false).await;
    let approvals = end.approvals.clone();
    let waiting = async |n: usize| {
        for _ in 0..6000 {
            if approvals.list(false).unwrap().len() == n {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("never {n}");
    };
    end.send(r#"{"id": 1, "op": "call", "tool": "ask", "args": {"n": 1}, "here": true}"#).await;
    end.send(r#"{"id": 2, "op": "call", "tool": "ask", "args": {"n": 2}, "here": true}"#).await;
    waiting(2).await;
    end.send(r#"{"id": 1, "op": "cancel"}"#).await;
    waiting(1).await;
    drop(end);
    waiting(0).await;
}

#[tokio::test]
async fn a_line_that_can_be_read_in_two_ways_is_answered_to_the_id_that_waits() {
    let mut end = End::new(false).await;
    for args in ["{\"n\": 1152921504606846976}", "{\"n\": 1, \"n\": 2}", "{\"n\": \"\\ud800\"}", "{\"n\": 1e400}"] {
        let told =
            end.asked(&format!(r#"{{"op": "call", "tool": "open", "args": {args}, "here": true, "id": 7}}"#)).await;
        assert_eq!((&told["id"], told["problem"]["id"].is_string()), (&json!(7), true), "{told}");
    }
    assert_eq!(end.asked(r#"{"id": 7, "id": 8, "op": "tools"}"#).await["id"], Json::Null, "two ids are none");
    // What a tool answered and nobody can pass on ends its call as a failure.
    end.asked(r#"{"id": 9, "op": "call", "tool": "open", "here": true}"#).await;
    let called = end.asked(r#"{"id": 9, "op": "ran", "value": {"n": 1152921504606846976}}"#).await;
    assert!(called["called"]["failure"].as_str().unwrap().contains("cannot be passed on"), "{called}");
}

#[tokio::test]
async fn the_end_of_a_conversation_is_told_to_the_engine_and_a_made_up_field_is_not() {
    let mut end = End::new(false).await;
    assert_eq!(end.asked(r#"{"id": 1, "op": "end", "session": "s1"}"#).await, json!({ "id": 1, "ended": true }));
    assert_eq!(end.asked(r#"{"id": 2, "op": "end"}"#).await["ended"], true);
    for bad in [r#"{"id": 3, "op": "end", "session": ""}"#, r#"{"id": 4, "op": "end", "agent": "other"}"#] {
        assert_eq!(end.asked(bad).await["problem"]["id"], "tools.pipe/line", "{bad}");
    }
    assert_eq!(*end.ended.lock().unwrap(), ["s1", "p"]);
}
