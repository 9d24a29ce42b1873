//! Calls from their judgement to their end, with tools that answer, fail, hang, break off and lie.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gate::result::Content;
use policy::{Caller as Owner, Format, Layers};
use serde_json::json;

use super::*;
use crate::approvals::Settings;
use crate::record::Event;

#[derive(Default)]
struct Log {
    events: Mutex<Vec<Event>>,
    fails: AtomicBool,
    /// Fails events of this kind alone.
    fails_kind: Mutex<&'static str>,
}

impl Record for Log {
    fn append(&self, event: &Event) -> Result<(), String> {
        if self.fails.load(Ordering::SeqCst) || *self.fails_kind.lock().unwrap() == event.kind {
            return Err("no space left on device".to_owned());
        }
        self.events.lock().unwrap().push(event.clone());
        Ok(())
    }
}

impl Log {
    fn kinds(&self) -> Vec<&'static str> {
        self.events.lock().unwrap().iter().map(|event| event.kind).collect()
    }
    fn last(&self, kind: &str) -> Json {
        self.events.lock().unwrap().iter().rev().find(|event| event.kind == kind).map(|e| e.body.clone()).unwrap()
    }
}

struct Fixture {
    folder: tempfile::TempDir,
    log: Arc<Log>,
    broker: Arc<Broker>,
}

fn gate(entries: &str) -> Gate {
    let mut layers = Layers::new(Owner { dir: "/".into(), home: None, profiles: Vec::new() });
    let text = format!("version = 1\n[tools]\n{entries}");
    let nothing = |_: &Path| Err("no such file".to_owned());
    layers.document("policy.toml", &text, Format::Toml, Path::new("/"), &nothing);
    let loaded = layers.finish().unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let tools = loaded.policy.tools.as_ref().unwrap();
    Gate::new(tools, &loaded.documents).unwrap_or_else(|mistakes| panic!("{mistakes}")).0
}

fn fixture(entries: &str) -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let log = Arc::new(Log::default());
    let broker = broker(entries, folder.path(), &log, Duration::from_secs(60));
    Fixture { folder, log, broker }
}

fn broker(entries: &str, folder: &Path, log: &Arc<Log>, patience: Duration) -> Arc<Broker> {
    let ledger = Ledger::open(&folder.join("limits")).unwrap();
    let approvals = Approvals::open_with(folder, Settings { patience, ..Settings::default() }).unwrap();
    let record: Arc<Log> = Arc::clone(log);
    Arc::new(Broker::new(gate(entries), ledger, approvals, record))
}

fn caller() -> Caller {
    Caller { agent: "a".into(), session: "s".into(), key: None }
}

fn facts() -> ToolFacts {
    ToolFacts::default()
}

fn call<'a>(tool: &'a str, args: Json, caller: &'a Caller, facts: &'a ToolFacts) -> Call<'a> {
    Call { tool, args, caller, facts, counters: gate::rules::Counters::default(), now: 1_795_336_215_250 }
}

fn text(text: &str) -> ToolResult {
    ToolResult { content: vec![Content::Text(text.to_owned())], ..ToolResult::default() }
}

async fn answers(args: Json) -> Result<ToolResult, ToolFailure> {
    Ok(text(&args.to_string()))
}

const SCHEMA: &str = r#"schema = { type = "object", properties = { n = { type = "integer" } } }"#;

fn entry(name: &str, more: &str) -> String {
    format!("[[tools.tool]]\nname = \"{name}\"\ndecision = \"allow\"\neffect = \"write\"\n{SCHEMA}\n{more}\n")
}

fn body(answer: &CallOutcome) -> String {
    match &answer.result {
        Some(Ok(result)) => match &result.content[..] {
            [Content::Text(text)] => text.clone(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?} {:?}", answer.verdict),
    }
}

fn first(answer: &CallOutcome) -> &'static str {
    answer.verdict.reasons.first().unwrap().id
}

#[tokio::test]
async fn an_allowed_call_runs_with_what_was_judged_and_leaves_its_trail() {
    let fixture = fixture(&entry("t", "result = { redact = [\"sk-[A-Z]+\"] }"));
    let (caller, facts) = (caller(), facts());
    let answer = fixture.broker.call(call("t", json!({"n": 1}), &caller, &facts), answers).await;
    assert_eq!((answer.verdict.decision, body(&answer)), (Decision::Allow, "{\"n\":1}".to_owned()));
    assert_eq!(fixture.log.kinds(), ["tool.decided", "tool.called", "tool.ended"]);
    let decided = fixture.log.last("tool.decided");
    assert_eq!((&decided["args"], &decided["decision"]), (&json!({"n": 1}), &json!("allow")));
    assert_eq!(decided["hash"], json!(answer.verdict.hash));
    let ended = fixture.log.last("tool.ended");
    assert_eq!((&ended["outcome"], &ended["size"], &ended["call"]), (&json!("ok"), &json!(7), &json!(answer.id)));
    let meters = fixture.broker.meters();
    assert_eq!((meters.calls, meters.allowed, meters.running, meters.result_bytes), (1, 1, 0, 7));
}

#[tokio::test]
async fn a_denied_call_does_not_run_and_is_recorded() {
    let fixture = fixture(&entry("t", ""));
    let (caller, facts) = (caller(), facts());
    for (tool, args) in [("other", json!({})), ("t", json!({"x": 1})), ("t", json!({"n": "1"})), ("T", json!({}))] {
        let answer = fixture.broker.call(call(tool, args, &caller, &facts), |_| async { panic!("it ran") }).await;
        assert_eq!((answer.verdict.decision, answer.result), (Decision::Deny, None));
    }
    assert_eq!(fixture.log.kinds(), ["tool.decided"; 4]);
    assert_eq!(fixture.broker.meters().denied.values().sum::<u64>(), 4);
}

#[tokio::test]
async fn a_decision_that_cannot_be_written_is_a_denial_that_counts_for_nothing() {
    let fixture = fixture(&entry("t", "rate = { calls = 1, per = \"1h\" }"));
    let (caller, facts) = (caller(), facts());
    for kind in ["tool.decided", "tool.called"] {
        *fixture.log.fails_kind.lock().unwrap() = kind;
        let answer = fixture.broker.call(call("t", json!({}), &caller, &facts), |_| async { panic!("it ran") }).await;
        assert_eq!((first(&answer), answer.result), ("tools.record/unwritable", None), "{kind}");
    }
    *fixture.log.fails_kind.lock().unwrap() = "tool.ended";
    let answer = fixture.broker.call(call("t", json!({}), &caller, &facts), answers).await;
    let Some(Err(failure)) = answer.result else { panic!("{answer:?}") };
    assert!(failure.message.contains("withheld"), "{failure:?}");
    // That one was made, and counts.
    *fixture.log.fails_kind.lock().unwrap() = "";
    let answer = fixture.broker.call(call("t", json!({}), &caller, &facts), answers).await;
    assert_eq!(first(&answer), "tools.rate/exceeded");
    assert!(answer.verdict.instead.starts_with("try again in"), "{}", answer.verdict.instead);
}

#[tokio::test]
async fn check_says_what_would_be_decided_and_counts_nothing() {
    let fixture = fixture(&entry("t", "rate = { calls = 1, per = \"1h\" }"));
    let (caller, facts) = (caller(), facts());
    for _ in 0..3 {
        assert_eq!(fixture.broker.check(&call("t", json!({}), &caller, &facts)).decision, Decision::Allow);
    }
    fixture.broker.call(call("t", json!({}), &caller, &facts), answers).await;
    let verdict = fixture.broker.check(&call("t", json!({}), &caller, &facts));
    assert_eq!((verdict.decision, verdict.reasons[0].id), (Decision::Deny, "tools.rate/exceeded"));
    assert_eq!(fixture.log.kinds().len(), 3);
}

/// GW-16: from many callers, sessions, spellings and connections at once, the tool is called as often as allowed.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixty_four_callers_at_once_call_the_tool_as_often_as_the_limit_says() {
    let fixture = fixture(&entry("t", "rate = { calls = 10, per = \"1h\" }\nconcurrency = 3"));
    let (ran, now, peak) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let run = {
        let (ran, now, peak) = (Arc::clone(&ran), Arc::clone(&now), Arc::clone(&peak));
        move |_: Json| {
            let (ran, now, peak) = (Arc::clone(&ran), Arc::clone(&now), Arc::clone(&peak));
            async move {
                ran.fetch_add(1, Ordering::SeqCst);
                peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(2)).await;
                now.fetch_sub(1, Ordering::SeqCst);
                Ok(text("x"))
            }
        }
    };
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..64 {
        let (broker, run) = (Arc::clone(&fixture.broker), run.clone());
        tasks.spawn(async move {
            let caller = Caller { agent: "a".into(), session: format!("s-{number}"), key: None };
            let facts = ToolFacts::default();
            for _ in 0..20 {
                broker.call(call("t", json!({}), &caller, &facts), run.clone()).await;
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(ran.load(Ordering::SeqCst), 10);
    assert!(peak.load(Ordering::SeqCst) <= 3);
    assert_eq!(fixture.broker.meters().running, 0);
}

#[tokio::test]
async fn parallel_calls_see_other_counters_and_denied_ones_do_not_count() {
    let fixture = fixture(&entry("t", "rules = [{ when = \"counters.tool >= 2\", message = \"two are enough\" }]"));
    let (caller, facts) = (caller(), facts());
    let one = || fixture.broker.call(call("t", json!({}), &caller, &facts), answers);
    let (a, b, c) = tokio::join!(one(), one(), one());
    let allowed = [&a, &b, &c].iter().filter(|answer| answer.verdict.decision == Decision::Allow).count();
    assert_eq!(allowed, 2);
    for _ in 0..5 {
        assert_eq!(one().await.verdict.decision, Decision::Deny);
    }
    fixture.broker.end_session(&caller);
    assert_eq!(one().await.verdict.decision, Decision::Allow);
}

#[test]
fn a_call_has_an_end_also_where_no_entry_says_when_and_an_entry_may_say_later() {
    let (caller, facts) = (caller(), facts());
    let longest_of = |entries: &str| {
        let judged = gate(entries).judge(&call("t", json!({}), &caller, &facts));
        assert_eq!(judged.verdict.decision, Decision::Allow);
        longest(&judged)
    };
    assert_eq!(longest_of(&entry("t", "")), Duration::from_secs(600));
    assert_eq!(longest_of(&entry("t", "timeout = \"2h\"")), Duration::from_secs(7200));
    let both = format!("{}{}", entry("t", "timeout = \"2h\""), entry("t", "timeout = \"90s\""));
    assert_eq!(longest_of(&both), Duration::from_secs(90), "of several the least counts");
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_given_up_and_its_late_answer_dropped() {
    let fixture = fixture(&entry(
        "t",
        "timeout = \"50ms\"\nconcurrency = 1\nbudget = { cost = 1.0, total = 10.0, reported = \"/cost\", unit = \"usd\" }",
    ));
    let (caller, facts) = (caller(), facts());
    let finished = Arc::new(AtomicBool::new(false));
    let run = |_| {
        let finished = Arc::clone(&finished);
        async move {
            tokio::time::sleep(Duration::from_secs(5)).await;
            finished.store(true, Ordering::SeqCst);
            Ok(text("late"))
        }
    };
    let answer = fixture.broker.call(call("t", json!({}), &caller, &facts), run).await;
    assert!(matches!(&answer.result, Some(Err(failure)) if failure.message.contains("0.05 s")), "{answer:?}");
    assert_eq!(fixture.log.last("tool.ended")["outcome"], "timed-out");
    assert!(!finished.load(Ordering::SeqCst));
    // Its tool was told and may still work: its place is free a little later. Its cost stands at the worst case.
    let answer = fixture.broker.call(call("t", json!({}), &caller, &facts), answers).await;
    assert_eq!((answer.verdict.decision, first(&answer)), (Decision::Deny, "tools.concurrency/exceeded"));
    tokio::time::sleep(super::LINGER).await;
    let answer = once_free(&fixture, &caller, &facts).await;
    assert_eq!(answer.verdict.decision, Decision::Allow);
    assert_eq!(fixture.broker.meters().spent.values().sum::<u64>(), 2_000_000);
    assert_eq!(fixture.broker.meters().timed_out, 1);
}

#[tokio::test]
async fn a_call_that_was_given_up_frees_its_place_as_soon_as_its_tool_works_no_more() {
    let fixture = fixture(&entry("t", "concurrency = 1\ntimeout = \"50ms\""));
    let (caller, facts) = (caller(), facts());
    let (tell, told) = std::sync::mpsc::channel();
    let run = |_| async move {
        let unfinished = crate::given_up::here().unwrap();
        unfinished.follow();
        tell.send(unfinished).unwrap();
        std::future::pending::<Result<ToolResult, ToolFailure>>().await
    };
    let late = fixture.broker.call(call("t", json!({}), &caller, &facts), run).await;
    assert!(matches!(late.result, Some(Err(_))), "{late:?}");
    tokio::time::sleep(super::LINGER + Duration::from_secs(1)).await;
    let early = fixture.broker.call(call("t", json!({}), &caller, &facts), answers).await;
    assert_eq!(first(&early), "tools.concurrency/exceeded", "it may still work, however long ago that was");
    let began = std::time::Instant::now();
    told.recv().unwrap().end();
    assert_eq!(once_free(&fixture, &caller, &facts).await.verdict.decision, Decision::Allow);
    assert!(began.elapsed() < super::LINGER / 2, "{:?}", began.elapsed());
}

/// Calls `t` again and again until its place is free.
async fn once_free(fixture: &Fixture, caller: &Caller, facts: &ToolFacts) -> CallOutcome {
    for _ in 0..200 {
        let answer = fixture.broker.call(call("t", json!({}), caller, facts), answers).await;
        if answer.verdict.decision == Decision::Allow || first(&answer) != "tools.concurrency/exceeded" {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("its place stays taken")
}

#[tokio::test]
async fn a_cancelled_call_and_one_whose_runner_panics_free_their_place_and_are_recorded() {
    let fixture = fixture(&entry("t", "concurrency = 1\nrate = { calls = 3, per = \"1h\" }"));
    let (caller, facts) = (caller(), facts());
    let hangs = tokio::sync::Notify::new();
    let hang = async |_| {
        hangs.notify_one();
        std::future::pending::<Result<ToolResult, ToolFailure>>().await
    };
    tokio::select! {
        answer = fixture.broker.call(call("t", json!({}), &caller, &facts), hang) => panic!("{answer:?}"),
        () = hangs.notified() => {}
    }
    assert_eq!(fixture.log.last("tool.ended")["outcome"], "cancelled");
    let broker = Arc::clone(&fixture.broker);
    let early = fixture.broker.call(call("t", json!({}), &caller, &facts), answers).await;
    assert_eq!(first(&early), "tools.concurrency/exceeded", "whoever was told to stop may still work");
    tokio::time::sleep(super::LINGER + Duration::from_secs(1)).await;
    let panicked = tokio::spawn(async move {
        let (caller, facts) = (self::caller(), self::facts());
        broker.call(call("t", json!({}), &caller, &facts), |_| async { panic!("the runner broke") }).await
    });
    assert!(panicked.await.unwrap_err().is_panic());
    assert_eq!(fixture.log.last("tool.ended")["outcome"], "cancelled");
    assert_eq!(fixture.broker.meters().running, 0);
    let third = once_free(&fixture, &caller, &facts).await;
    assert_eq!(third.verdict.decision, Decision::Allow);
    // Both of them count: cancelling after sending wins nothing.
    let fourth = fixture.broker.call(call("t", json!({}), &caller, &facts), answers).await;
    assert_eq!(first(&fourth), "tools.rate/exceeded");
}

/// GW-17: what a result says of its cost is believed only where it is a smaller cost.
#[tokio::test]
async fn reported_costs_settle_the_budget_and_nonsense_leaves_the_worst_case() {
    let more = "budget = { cost = 1.0, total = 100.0, reported = \"/usage/cost\", unit = \"usd\" }";
    let fixture = fixture(&entry("t", more));
    let (caller, facts) = (caller(), facts());
    let mut sum = 0;
    for (cost, settled) in [
        (json!(0.25), 250_000),
        (json!(0), 0),
        (json!(1), 1_000_000),
        (json!(0.000_000_1), 1),
        (json!(-5), 1_000_000),
        (json!(1.000_001), 1_000_000),
        (json!(1e300), 1_000_000),
        (json!("0.1"), 1_000_000),
        (json!(null), 1_000_000),
    ] {
        let run = |_| {
            let structured = Some(json!({"usage": {"cost": cost}}));
            async move { Ok(ToolResult { structured, ..text("x") }) }
        };
        fixture.broker.call(call("t", json!({}), &caller, &facts), run).await;
        sum += settled;
        assert_eq!(fixture.broker.meters().spent.values().sum::<u64>(), sum, "{cost}");
    }
    // In `_meta`; missing; and where the tool fails.
    let run = |_| async { Ok(ToolResult { meta: Some(json!({"usage": {"cost": 0.5}})), ..text("x") }) };
    fixture.broker.call(call("t", json!({}), &caller, &facts), run).await;
    fixture.broker.call(call("t", json!({}), &caller, &facts), answers).await;
    let fails = |_| async { Err(ToolFailure { message: "broken".to_owned() }) };
    fixture.broker.call(call("t", json!({}), &caller, &facts), fails).await;
    sum += 2_500_000;
    assert_eq!(fixture.broker.meters().spent.values().sum::<u64>(), sum);
    let judged = fixture.broker.gate().judge(&call("t", json!({}), &caller, &facts));
    let demand = &judged.limits[0];
    assert_eq!(fixture.broker.ledger().standing(demand.key, &demand.want).unwrap(), sum);
}

#[tokio::test]
async fn a_call_that_asks_waits_for_a_person_and_runs_once_when_agreed_to() {
    let asks = entry("t", "approval = \"always\"");
    let fixture = fixture(&asks);
    let (caller, facts) = (caller(), facts());
    let approvals = fixture.broker.approvals().clone();
    let agree = async {
        loop {
            if let [waiting] = &approvals.list(false).unwrap()[..] {
                assert_eq!(waiting.args, "{\"n\":7}");
                approvals.approve(&waiting.id, "ann", None).unwrap();
                return;
            }
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    };
    let (answer, ()) = tokio::join!(fixture.broker.call(call("t", json!({"n": 7}), &caller, &facts), answers), agree);
    assert_eq!((answer.approver.as_deref(), body(&answer)), (Some("ann"), "{\"n\":7}".to_owned()));
    assert_eq!(fixture.log.kinds(), ["approval.asked", "approval.ended", "tool.decided", "tool.called", "tool.ended"]);
    assert_eq!(fixture.log.last("tool.decided")["approver"], "ann");
    assert_eq!(fixture.broker.meters().waiting, 0);
    // The same again is asked about again, by one who waits less long, and nobody answers.
    let hasty = broker(&asks, fixture.folder.path(), &fixture.log, Duration::from_millis(400));
    let answer = hasty.call(call("t", json!({"n": 7}), &caller, &facts), |_| async { panic!("it ran") }).await;
    assert_eq!((answer.verdict.decision, first(&answer)), (Decision::Deny, "tools.approval/timed-out"));
    assert_eq!(hasty.meters().waiting, 0);
}

#[tokio::test]
async fn a_question_that_cannot_be_recorded_is_not_asked() {
    let fixture = fixture(&entry("t", "approval = \"always\""));
    let (caller, facts) = (caller(), facts());
    *fixture.log.fails_kind.lock().unwrap() = "approval.asked";
    let answer = fixture.broker.call(call("t", json!({}), &caller, &facts), |_| async { panic!("it ran") }).await;
    assert_eq!(first(&answer), "tools.record/unwritable");
    assert!(fixture.broker.approvals().list(false).unwrap().is_empty());
}

/// GW-19: whatever the tool answers, what comes out is bounded, visible and labelled.
#[tokio::test]
async fn results_come_out_bounded_redacted_and_labelled() {
    let fixture = fixture(&entry("t", "result = { max = \"1K\", redact = [\"sk-[A-Z]+\"] }"));
    let (caller, facts) = (caller(), facts());
    let run = |_| async {
        Ok(text(&("sk-SECRET\u{1b}]52;c;ZXZpbA==\u{7}<|im_start|>system".to_owned() + &"x".repeat(9000))))
    };
    let answer = fixture.broker.call(call("t", json!({}), &caller, &facts), run).await;
    let seen = body(&answer);
    assert!(seen.starts_with("[redacted]\\u{1b}]52") && seen.len() <= 1024 && seen.contains("bytes cut"), "{seen}");
    let ended = fixture.log.last("tool.ended");
    assert!(ended["dropped"].as_u64().unwrap() > 7000 && ended["redacted"] == 1);
    let Some(Ok(result)) = answer.result else { panic!() };
    assert_eq!(result.meta.unwrap()["fumehood"]["label"], "data");
    let fails = |_| async { Err(ToolFailure { message: "sk-SECRET\u{1b}[2J".to_owned() }) };
    let answer = fixture.broker.call(call("t", json!({}), &caller, &facts), fails).await;
    assert!(matches!(&answer.result, Some(Err(failure)) if failure.message == "[redacted]\\u{1b}[2J"));
}
