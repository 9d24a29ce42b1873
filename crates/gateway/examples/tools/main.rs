//! `cargo run --release -p fumehood-gateway --example tools -- [FILE]` (`scripts/bench --only tools`): what a decision of the
//! whole broker costs, what the counters need, how long a large policy takes to load, and what the gateway adds to a call
//! over MCP. Prints a table beside the bars, and writes it to FILE.
//!
//! Times of one decision are of the wall; beside the longest, which on a machine with other work is that of the other work,
//! stands the longest by this thread's own processor time. Loading is given in processor time.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "an example prints, and ends if it cannot be set up"
)]

mod mcp;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gate::Gate;
use gate::call::{Call, Caller, ToolFacts};
use gate::demand::{Demand, Key, Want};
use gate::result::ToolResult;
use gate::rules::{Condition, Counters, EvalContext};
use gateway::Broker;
use gateway::approvals::Approvals;
use gateway::limits::Ledger;
use gateway::record::{Event, Record};
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

/// Processor time of this thread.
fn own_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(now.tv_sec).unwrap(), u32::try_from(now.tv_nsec).unwrap())
}

/// Times by the wall, sorted, and the longest by the processor.
struct Times {
    wall: Vec<Duration>,
    own: Duration,
}

fn times(count: usize, mut one: impl FnMut(usize)) -> Times {
    let mut all = Times { wall: Vec::with_capacity(count), own: Duration::ZERO };
    for at in 0..count {
        let (begun, own) = (Instant::now(), own_time());
        one(at);
        all.own = all.own.max(own_time().saturating_sub(own));
        all.wall.push(begun.elapsed());
    }
    all.wall.sort_unstable();
    all
}

fn us(time: Duration) -> String {
    format!("{:.1} us", time.as_secs_f64() * 1e6)
}

fn row(what: &str, all: &[Duration], bar: &str) -> String {
    let at = |part: usize| all.get((all.len() * part / 1000).min(all.len() - 1)).copied().unwrap_or_default();
    format!("| {what} | {} | {} | {} | {bar} |", us(at(500)), us(at(990)), us(at(1000)))
}

fn row_of(what: &str, all: &Times, bar: &str) -> String {
    let at = |part: usize| all.wall.get(all.wall.len() * part / 1000).copied().unwrap_or_default();
    let longest = all.wall.last().copied().unwrap_or_default();
    format!("| {what} | {} | {} | {} ({}) | {bar} |", us(at(500)), us(at(990)), us(longest), us(all.own))
}

/// Pages of this process, in KiB, those of the mapped counters included.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    match args.get(1).map(String::as_str) {
        Some("server") => return mcp::server(),
        Some("gateway") => return mcp::gateway(Path::new(&args[2])),
        Some(_) | None => {}
    }
    let folder = Path::new("/tmp").join(format!("fumehood-tools-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let mut out = vec![
        "| what | p50 | p99 | longest (by own processor time) | bar |".to_owned(),
        "| --- | --- | --- | --- | --- |".to_owned(),
    ];
    decisions(&folder, &mut out);
    keys(&folder, &mut out);
    policies(&mut out);
    mcp::measure(&folder, &mut out);
    std::fs::remove_dir_all(&folder).unwrap();
    let table = out.join("\n");
    println!("{table}");
    if let Some(file) = args.get(1) {
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split(' ').next().unwrap_or_default();
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let head = "# What the tool gateway costs\n\nWritten by `scripts/bench --only tools`; how it is measured is said in `crates/gateway/examples/tools`.\n";
        let text = format!("{head}Load when it ended: {load}, on {cores} processors.\n\n{table}\n");
        std::fs::write(file, text).unwrap();
    }
}

fn decisions(folder: &Path, out: &mut Vec<String>) {
    let text = format!("version = 1\n[tools]\n[[tools.tool]]\nname = \"mail\"\n{ENTRY}");
    let ledger = Ledger::open(&folder.join("limits")).unwrap();
    let broker = Broker::new(gate(&text), ledger.clone(), Approvals::open(folder).unwrap(), Arc::new(Nowhere));
    let caller = Caller { agent: "a".into(), session: "s".into(), key: None };
    let facts = ToolFacts::default();
    let args = json!({"to": "ann@company.com", "subject": "figures", "amount": 12, "cc": ["bob@company.com"]});
    let counters = Counters::default();
    let call =
        || Call { tool: "mail", args: args.clone(), caller: &caller, facts: &facts, counters, now: 1_795_336_215_250 };
    assert_eq!(broker.check(&call()).decision.as_str(), "allow");
    out.push(row_of("gate: schema, e-mail guard, 3 rules", &times(50_000, |_| drop(broker.gate().judge(&call()))), ""));
    let judged = broker.gate().judge(&call());
    out.push(row_of(
        "ledger: reserve and let go",
        &times(50_000, |_| drop(ledger.reserve(&judged.limits).unwrap())),
        "",
    ));
    let decide = |_| {
        let judged = broker.gate().judge(&call());
        drop(ledger.reserve(&judged.limits).unwrap());
    };
    out.push(row_of("**decision: gate and reservation**", &times(50_000, decide), "30 us, 200 us"));
    let text = "has(args.cc) && args.cc.exists(x, !x.endsWith('@company.com'))";
    let condition = Condition::compile(text, None).unwrap();
    let seen = EvalContext { args: &args, session: "s", agent: "a", counters, now: 1 };
    out.push(row_of("one condition", &times(50_000, |_| assert!(!condition.holds(&seen).unwrap())), ""));
    out.push(row_of("compile one condition", &times(1000, |_| drop(Condition::compile(text, None).unwrap())), ""));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let whole = |_| {
        let run = |_| async { Ok(ToolResult::default()) };
        assert!(runtime.block_on(broker.call(call(), run)).result.is_some());
    };
    out.push(row_of("whole call, of a tool that does nothing", &times(20_000, whole), ""));
}

fn keys(folder: &Path, out: &mut Vec<String>) {
    let before = resident();
    let ledger = Ledger::open(&folder.join("keys")).unwrap();
    let reserve = |key: usize| {
        let want = Want::Rate { calls: 10, per_ms: 3_600_000, burst: 10 };
        let demand = Demand { rule: "r".into(), key: Key::new(&["rate", &key.to_string()]), want };
        drop(ledger.reserve(&[demand]).unwrap());
    };
    out.push(row_of("100,000 keys: first call of each", &times(100_000, reserve), "5 ms at most"));
    out.push(row_of("100,000 keys: second call of each", &times(100_000, reserve), "5 ms at most"));
    let grown = resident().saturating_sub(before);
    let disk = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(ledger.path()).unwrap()) / 2;
    out.push(format!("| **100,000 keys: memory** | {:.1} MiB | | disk {:.1} MiB | 64 MiB |", mib(grown), mib(disk)));
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

/// A policy of 1,000 tools, each with a schema and so many conditions of its own.
fn policy(own: usize) -> String {
    let mut text = "version = 1\n[tools]\n".to_owned();
    for number in 0..1000 {
        let entry = ENTRY.replace("maxLength = 200", &format!("maxLength = {}", 200 + number));
        let entry = if own > 0 { entry.replace("100.0", &format!("{number}.5")) } else { entry };
        let entry = if own > 1 { entry.replace(">= 100000000", &format!(">= {number}")) } else { entry };
        let entry =
            if own > 2 { entry.replace("@company.com'))", &format!("@{number}.company.com'))")) } else { entry };
        text.push_str(&format!("[[tools.tool]]\nname = \"tool{number}\"\n{entry}\n"));
    }
    text
}

/// Processor time, since a load is one thread's work.
fn loads(what: &str, bar: &str, mut load: impl FnMut()) -> String {
    let mut all: Vec<Duration> = (0..20)
        .map(|_| {
            let begun = own_time();
            load();
            own_time().saturating_sub(begun)
        })
        .collect();
    all.sort_unstable();
    row(what, &all, bar)
}

fn policies(out: &mut Vec<String>) {
    let text = policy(1);
    out.push(loads("policy of 1,000 tools: read", "", || drop(loaded(&text))));
    let bar = "150 ms";
    for (own, what) in [(0, "no condition is a tool's own"), (1, "one of three is"), (3, "all three are")] {
        let text = policy(own);
        out.push(loads(&format!("**policy of 1,000 tools: load**, {what}"), bar, || drop(gate(&text))));
    }
}
