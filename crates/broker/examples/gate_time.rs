//! How long a policy of a thousand tools takes to load, and a decision with schema, three conditions, a rate and a guard.
//!
//! `cargo run --release -p fumehood-broker --example gate_time`

#![expect(clippy::print_stdout, reason = "it measures and tells")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use broker::rules::Counters;
use broker::{Call, Caller, Gate, ToolFacts};
use policy::Layers;
use policy::tools::Decision;
use serde_json::json;

const TOOLS: usize = 1000;
const ROUNDS: usize = 20_000;

fn text() -> String {
    let mut text = String::from("version = 1\n");
    for n in 0..TOOLS {
        text.push_str(&format!(
            r#"
[[tools.tool]]
name = "server{}.tool{n}"
decision = "allow"
effect = "write"
schema = {{ type = "object", required = ["to"], properties = {{ to = {{ type = "string", maxLength = 200 }}, subject = {{ type = "string", pattern = "^[a-z {n}]*$" }}, amount = {{ type = "number", minimum = 0, maximum = {n} }} }} }}
guards.to = {{ kind = "email", domains = ["company.com"] }}
rules = [
  {{ when = "args.to.startsWith('root')", decision = "ask", message = "root reads all" }},
  {{ when = "args.subject.contains('password')", message = "no passwords" }},
  {{ when = "counters.session > 1000", message = "enough" }},
]
rate = {{ calls = 10, per = "60s", by = "session" }}
"#,
            n % 20
        ));
    }
    text
}

fn load(text: &str) -> Result<Gate, Box<dyn Error>> {
    let mut layers = Layers::new(policy::Caller { dir: PathBuf::from("/"), ..policy::Caller::default() });
    let none = |_: &Path| Err("no such file".to_owned());
    layers.document("p.toml", text, policy::Format::Toml, Path::new("/"), &none);
    let loaded = layers.finish()?;
    let tools = loaded.policy.tools.as_deref().ok_or("no tools")?;
    Ok(Gate::new(tools, &loaded.documents)?.0)
}

fn main() -> Result<(), Box<dyn Error>> {
    let text = text();
    let mut loads: Vec<Duration> = Vec::new();
    for _ in 0..10 {
        let start = Instant::now();
        drop(load(&text)?);
        loads.push(start.elapsed());
    }
    loads.sort();
    println!("load of {TOOLS} tools, {} bytes: best {:?}, median {:?}", text.len(), loads.first(), loads.get(5));
    let gate = load(&text)?;
    let caller = Caller { agent: "a".to_owned(), session: "s".to_owned(), key: None };
    let facts = ToolFacts::default();
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let args = json!({ "to": "ann@company.com", "subject": "hello", "amount": 5 });
        let start = Instant::now();
        let judged = gate.judge(&Call {
            tool: "server7.tool7",
            args,
            caller: &caller,
            facts: &facts,
            counters: Counters::default(),
            now: 0,
        });
        times.push(start.elapsed());
        if judged.verdict.decision != Decision::Allow {
            return Err(format!("{:?}", judged.verdict).into());
        }
    }
    times.sort();
    let at = |share: usize| times.get(ROUNDS * share / 100);
    println!("decision: p50 {:?}, p99 {:?}", at(50), at(99));
    Ok(())
}
