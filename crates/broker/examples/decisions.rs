//! `cargo run --release -p fumehood-broker --example decisions`: what a decision of the whole broker costs, what the
//! counters need, and how long a large policy takes to load. Prints a table beside the bars of the issue.
#![expect(clippy::print_stdout, reason = "an example prints")]
#![expect(clippy::unwrap_used, reason = "an example that cannot be set up ends")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use broker::approvals::Approvals;
use broker::call::{Call, Caller, ToolFacts};
use broker::limits::{Demand, Key, Ledger, Want};
use broker::record::{Event, Record};
use broker::result::ToolResult;
use broker::rules::{Condition, Counters, Facts};
use broker::{Broker, Gate};
use policy::{Format, Layers};
use serde_json::json;

/// A record that costs nothing: the audit log has its own figures.
struct Nowhere;

impl Record for Nowhere {
    fn append(&self, _: &Event) -> Result<(), String> {
        Ok(())
    }
}

const ENTRY: &str = r#"
decision = "allow"
effect = "write"
schema = { type = "object", required = ["to", "subject"], properties = { to = { type = "string" }, subject = { type = "string", maxLength = 200 }, amount = { type = "number" }, cc = { type = "array", items = { type = "string" } } } }
guards.to = { kind = "email", domains = ["company.com"] }
rules = [
  { when = "args.amount > 100.0 && agent != 'boss'", message = "too much" },
  { when = "counters.tool >= 100000000", message = "too often" },
  { when = "has(args.cc) && args.cc.exists(x, !x.endsWith('@company.com'))", message = "only us" },
]
rate = { calls = 100000000, per = "60s", by = "session" }
"#;

fn loaded(text: &str) -> policy::Loaded {
    let caller = policy::Caller { dir: "/".into(), home: None, profiles: Vec::new() };
    let mut layers = Layers::new(caller);
    let nothing = |_: &Path| Err("no such file".to_owned());
    layers.document("policy.toml", text, Format::Toml, Path::new("/"), &nothing);
    layers.finish().unwrap()
}

fn gate(text: &str) -> Gate {
    let loaded = loaded(text);
    Gate::new(loaded.policy.tools.as_ref().unwrap(), &loaded.documents).unwrap().0
}

fn times(count: usize, mut one: impl FnMut(usize)) -> Vec<Duration> {
    let time = |at| {
        let begun = Instant::now();
        one(at);
        begun.elapsed()
    };
    let mut all: Vec<Duration> = (0..count).map(time).collect();
    all.sort_unstable();
    all
}

fn row(what: &str, all: &[Duration], bar: &str) {
    let at = |part: usize| all.get((all.len() * part / 1000).min(all.len() - 1)).copied().unwrap_or_default();
    let us = |time: Duration| format!("{:.1} us", time.as_secs_f64() * 1e6);
    println!("| {what} | {} | {} | {} | {bar} |", us(at(500)), us(at(990)), us(at(1000)));
}

/// Pages of this process, in KiB, those of the mapped counters included.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
}

fn main() {
    let folder = Path::new("/tmp").join(format!("fumehood-decisions-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    println!("| what | p50 | p99 | longest | bar |\n| --- | --- | --- | --- | --- |");
    decisions(&folder);
    keys(&folder);
    policies();
    std::fs::remove_dir_all(&folder).unwrap();
}

fn decisions(folder: &Path) {
    let text = format!("version = 1\n[tools]\n[[tools.tool]]\nname = \"mail\"\n{ENTRY}");
    let ledger = Ledger::open(&folder.join("limits")).unwrap();
    let broker = Broker::new(gate(&text), ledger.clone(), Approvals::open(folder).unwrap(), Arc::new(Nowhere));
    let caller = Caller { agent: "a".into(), session: "s".into(), key: None };
    let facts = ToolFacts::default();
    let args = json!({"to": "ann@company.com", "subject": "figures", "amount": 12, "cc": ["bob@company.com"]});
    let counters = Counters::default();
    let call =
        || Call { tool: "mail", args: args.clone(), caller: &caller, facts: &facts, counters, now: 1_795_336_215_250 };
    assert_eq!(broker.check(&call()).decision.word(), "allow");
    row("gate: schema, e-mail guard, 3 rules", &times(50_000, |_| drop(broker.gate().judge(&call()))), "");
    let judged = broker.gate().judge(&call());
    row("ledger: reserve and let go", &times(50_000, |_| drop(ledger.reserve(&judged.limits).unwrap())), "");
    let decide = |_| {
        let judged = broker.gate().judge(&call());
        drop(ledger.reserve(&judged.limits).unwrap());
    };
    row("**decision: gate and reservation**", &times(50_000, decide), "30 us, 200 us");
    let text = "has(args.cc) && args.cc.exists(x, !x.endsWith('@company.com'))";
    let condition = Condition::compile(text, None).unwrap();
    let seen = Facts { args: &args, session: "s", agent: "a", counters, now: 1 };
    row("one condition", &times(50_000, |_| assert!(!condition.holds(&seen).unwrap())), "");
    row("compile one condition", &times(1000, |_| drop(Condition::compile(text, None).unwrap())), "");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let whole = |_| {
        let run = |_| async { Ok(ToolResult::default()) };
        assert!(runtime.block_on(broker.call(call(), run)).result.is_some());
    };
    row("whole call, of a tool that does nothing", &times(20_000, whole), "");
}

fn keys(folder: &Path) {
    let before = resident();
    let ledger = Ledger::open(&folder.join("keys")).unwrap();
    let reserve = |key: usize| {
        let want = Want::Rate { calls: 10, per_ms: 3_600_000, burst: 10 };
        let demand = Demand { rule: "r".into(), key: Key::new(&["rate", &key.to_string()]), want };
        drop(ledger.reserve(&[demand]).unwrap());
    };
    row("100,000 keys: first call of each", &times(100_000, reserve), "5 ms at most");
    row("100,000 keys: second call of each", &times(100_000, reserve), "5 ms at most");
    let grown = resident().saturating_sub(before);
    let disk = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(ledger.path()).unwrap()) / 2;
    println!("| 100,000 keys: memory | {:.1} MiB | | disk {:.1} MiB | 64 MiB |", mib(grown), mib(disk));
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

fn policies() {
    let mut text = "version = 1\n[tools]\n".to_owned();
    for number in 0..1000 {
        // Schemas and conditions differ from tool to tool, as they do in life.
        let entry = ENTRY.replace("maxLength = 200", &format!("maxLength = {}", 200 + number));
        let entry = entry.replace("100.0", &format!("{number}.5"));
        text.push_str(&format!("[[tools.tool]]\nname = \"tool{number}\"\n{entry}\n"));
    }
    row("policy of 1,000 tools: read", &times(10, |_| drop(loaded(&text))), "");
    row("**policy of 1,000 tools: read and compile**", &times(10, |_| drop(gate(&text))), "150 ms");
}
