//! The gate by itself: policies as users write them, calls, and what is decided.

mod listing;
mod load;
mod strictest;
mod values;

use std::path::Path;

use policy::tools::{Decision, Effect, Tools};
use policy::{Format, Layers};
use serde_json::{Value as Json, json};

use super::*;
use crate::call::Caller;
use crate::json::{canonical, read};
use crate::rules::Counters;

fn loaded(layers: &[&str]) -> policy::Loaded {
    let caller = policy::Caller { dir: "/srv/work".into(), home: None, profiles: vec!["strict".to_owned()] };
    let mut made = Layers::new(caller);
    let none = |_: &Path| Err("no such file".to_owned());
    for (index, text) in layers.iter().enumerate() {
        let name = format!("p{index}.toml");
        made.document(&name, &format!("version = 1\n{text}\n"), Format::Toml, Path::new("/srv"), &none);
    }
    made.finish().unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

fn tried(layers: &[&str]) -> Result<(Gate, Vec<Lint>), Mistakes> {
    let loaded = loaded(layers);
    Gate::new(loaded.policy.tools.as_deref().unwrap(), &loaded.documents)
}

fn gate(text: &str) -> Gate {
    tried(&[text]).unwrap_or_else(|mistakes| panic!("{mistakes}")).0
}

fn lints(text: &str) -> Vec<&'static str> {
    tried(&[text]).unwrap_or_else(|mistakes| panic!("{mistakes}")).1.iter().map(|lint| lint.id).collect()
}

fn caller() -> Caller {
    Caller { agent: "a".to_owned(), session: "s".to_owned(), key: None }
}

fn judged(gate: &Gate, tool: &str, args: Json, facts: &ToolFacts) -> Judged {
    gate.judge(&Call { tool, args, caller: &caller(), facts, counters: Counters::default(), now: 0 })
}

fn verdict(gate: &Gate, tool: &str, args: Json) -> Verdict {
    judged(gate, tool, args, &ToolFacts::default()).verdict
}

fn decision(gate: &Gate, tool: &str, args: Json) -> Decision {
    verdict(gate, tool, args).decision
}

/// The first reason's id and rule.
fn why(gate: &Gate, tool: &str, args: Json) -> (Decision, &'static str, String) {
    let verdict = verdict(gate, tool, args);
    (verdict.decision, verdict.reasons.first().unwrap().id, verdict.rule)
}

const SEND: &str = r#"
[[tools.tool]]
name = "mail.send"
decision = "allow"
schema = { type = "object", required = ["to", "amount"], properties = { to = { type = "string" }, amount = { type = "integer", minimum = 0, maximum = 100 }, note = { type = "object", properties = { text = { type = "string" } } } } }
"#;

#[test]
fn what_no_entry_names_gets_the_default() {
    let deny = gate("tools.default = \"deny\"");
    assert_eq!(why(&deny, "x", json!({})), (Decision::Deny, "tools.entry/none", "tools.default".to_owned()));
    assert_eq!(decision(&gate("tools.default = \"ask\""), "x", json!({})), Decision::Ask);
    assert_eq!(decision(&gate("mcp = {}"), "x", json!({})), Decision::Deny);
}

#[test]
fn the_default_of_a_policy_without_tools_denies() {
    let tools =
        Tools { default: Decision::Deny, entries: Vec::new(), mcp: policy::tools::Mcp::default(), written: Json::Null };
    let gate = Gate::new(&tools, &policy::spot::Documents::default()).unwrap().0;
    assert_eq!(decision(&gate, "x", json!({})), Decision::Deny);
}
