//! The gate by itself: policies as users write them, calls, and what is decided.

mod guarded;
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

fn tried(layers: &[&str]) -> Result<(Gate, Vec<Lint>), Diagnostics> {
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

fn judged(gate: &Gate, tool: &str, args: Json, facts: &ToolFacts) -> ToolJudgement {
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
    let gate = Gate::new(&tools, &policy::span::Documents::default()).unwrap().0;
    assert_eq!(decision(&gate, "x", json!({})), Decision::Deny);
}

#[test]
fn what_a_server_says_is_bounded_by_the_entries_of_all_its_tools() {
    let entry = |name: &str, result: &str| {
        format!("[[tools.tool]]\nname = \"{name}\"\ndecision = \"allow\"\neffect = \"read\"\nresult = {{ {result} }}\n")
    };
    let text = [
        entry("s.one", "max = \"1K\""),
        entry("s.t*", "redact = [\"a\"]"),
        entry("other.one", "max = \"10B\", redact = [\"b\"]"),
        entry("s", "redact = [\"c\"]"),
    ];
    let rule = gate(&text.concat()).result_of_server("s");
    let patterns: Vec<_> = rule.redact.iter().map(|pattern| pattern.value.as_str()).collect();
    assert_eq!((rule.max.0, patterns), (1024, vec!["a"]));
}

#[test]
fn what_a_tool_takes_for_an_argument_that_is_not_given_is_judged_where_the_policy_looks() {
    let defaults = |value: Json| ToolFacts { defaults: value.as_object().unwrap().clone(), ..ToolFacts::default() };
    let entry = "[[tools.tool]]\nname = \"t\"\ndecision = \"allow\"\neffect = \"read\"\n";
    for (more, good, bad) in [
        (
            "guards.to = { kind = \"email\", domains = [\"company.com\"] }",
            json!({"to": "a@company.com"}),
            json!({"to": "a@evil.example"}),
        ),
        ("schema = { properties = { n = { type = \"integer\", maximum = 5 } } }", json!({"n": 5}), json!({"n": 6})),
        (
            "schema = { properties = { n = { type = \"integer\" } } }\nrules = [{ when = \"has(args.n) && args.n > 5\" }]",
            json!({"n": 5}),
            json!({"n": 6}),
        ),
    ] {
        let gate = gate(&format!("{entry}{more}"));
        let judged = |facts: &ToolFacts, args: Json| judged(&gate, "t", args, facts).verdict;
        let verdict = judged(&defaults(good.clone()), json!({}));
        assert_eq!(
            (verdict.decision, verdict.args),
            (Decision::Allow, Some(good.clone())),
            "{more}: it gets what was judged"
        );
        assert_eq!(judged(&defaults(bad.clone()), json!({})).decision, Decision::Deny, "{more}");
        assert_eq!(judged(&defaults(bad), good.clone()).decision, Decision::Allow, "{more}: what is given counts");
        assert_eq!(judged(&ToolFacts::default(), json!({})).decision, Decision::Allow, "{more}: without a default");
        // What nobody looks at is the tool's own business.
        assert_eq!(judged(&defaults(json!({"other": 1})), json!({})).args, Some(json!({})), "{more}");
    }
}
