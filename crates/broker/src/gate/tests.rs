use std::path::Path;

use policy::tools::{Decision, Effect, Tools};
use policy::{Format, Layers};
use proptest::prelude::*;
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
fn gw_01_a_name_is_compared_byte_for_byte_and_anything_else_is_unknown() {
    let gate = gate(&format!("tools.default = \"ask\"\n{SEND}"));
    let good = json!({"to": "x", "amount": 1});
    assert_eq!(decision(&gate, "mail.send", good.clone()), Decision::Allow);
    // Unfit names are denied even where the default asks.
    let long = "m".repeat(100_000);
    for name in [
        "mail.send ",
        " mail.send",
        "mail.send\0",
        "mail.s\u{435}nd",
        "mail.send\u{200b}",
        "mail\u{ff0e}send",
        "mail.",
        ".send",
        "",
        "mail send",
        "m\u{e4}il.send",
        "ma__il.send",
        "mail__send",
        "mcp__mail__send",
        "mail.send\n",
        "mail.*",
        "*",
        long.as_str(),
    ] {
        assert_eq!(why(&gate, name, good.clone()).1, "tools.name/unfit", "{name:?}");
        assert_eq!(decision(&gate, name, good.clone()), Decision::Deny, "{name:?}");
    }
    // Fit names that are another's get the default, and none of what the entry allows.
    for name in [
        "Mail.send",
        "mail..",
        "mail.Send",
        "mail.sen",
        "mail.send2",
        "mail.send.x",
        "mail_send",
        "other.send",
        "send",
        "mai.lsend",
    ] {
        assert_eq!(why(&gate, name, good.clone()).1, "tools.entry/none", "{name:?}");
    }
}

#[test]
fn gw_02_unknown_missing_and_wrongly_typed_arguments_are_refused_and_nothing_is_converted() {
    let gate = gate(SEND);
    for (args, id) in [
        (json!({"to": "x", "amount": 1, "bcc": "y"}), "tools.schema/unknown-property"),
        (json!({"to": "x", "amount": 1, "__proto__": {}}), "tools.schema/unknown-property"),
        (json!({"to": "x", "amount": 1, "note": {"text": "a", "constructor": 1}}), "tools.schema/unknown-property"),
        (json!({"to": "x"}), "tools.schema/missing"),
        (json!({"to": "x", "amount": "1"}), "tools.schema/type"),
        (json!({"to": "x", "amount": true}), "tools.schema/type"),
        (json!({"to": "x", "amount": null}), "tools.schema/type"),
        (json!({"to": "x", "amount": [1]}), "tools.schema/type"),
        (json!({"to": 5, "amount": 1}), "tools.schema/type"),
        (json!({"to": "x", "amount": 1.5}), "tools.schema/type"),
        (json!({"to": "x", "amount": 101}), "tools.schema/range"),
        (json!({"to": "x", "amount": -1}), "tools.schema/range"),
        (json!([]), "tools.args/not-object"),
        (json!(null), "tools.args/not-object"),
        (json!("{}"), "tools.args/not-object"),
    ] {
        let verdict = verdict(&gate, "mail.send", args.clone());
        assert_eq!((verdict.decision, verdict.reasons.first().unwrap().id), (Decision::Deny, id), "{args}");
        assert_eq!((verdict.args, verdict.hash), (None, None), "{args}");
        assert!(!verdict.instead.is_empty(), "{args}");
    }
}

#[test]
fn gw_02_what_the_tool_receives_is_the_validated_value_written_again() {
    let gate = gate(SEND);
    let args = read(r#" { "amount" : 1.0e1 , "to":"\u0041" } "#).unwrap();
    let verdict = verdict(&gate, "mail.send", args);
    assert_eq!(canonical(verdict.args.as_ref().unwrap()), r#"{"amount":10,"to":"A"}"#);
    assert_eq!(verdict.hash.unwrap(), crate::json::hash("mail.send", &json!({"to": "A", "amount": 10})));
}

#[test]
fn gw_05_schemas_that_leave_themselves_or_never_end_are_refused_with_line_and_column() {
    let at = |schema: &str| {
        let text = format!("[[tools.tool]]\nname = \"a\"\ndecision = \"allow\"\nschema = '{schema}'");
        let mistakes = tried(&[&text]).map(|_| ()).unwrap_err();
        let mistake = mistakes.list.first().unwrap();
        assert_eq!(mistake.clause, Some(policy::ClauseId::Tools));
        (mistake.id.clone(), mistake.at.line_column)
    };
    let place = |column| Some((5, column));
    assert_eq!(at(r#"{"$ref": "https://evil.example/x"}"#), ("tools.schema/remote".to_owned(), place(20)));
    assert_eq!(at(r#"{"$ref": "file:///etc/passwd"}"#).0, "tools.schema/remote");
    assert_eq!(at(r##"{"$ref": "#"}"##).0, "tools.schema/endless");
    assert_eq!(at(r##"{"$ref": "#/$defs/x"}"##).0, "tools.schema/reference");
    assert_eq!(
        at(r##"{"allOf": [{"$ref": "#/$defs/x"}], "$defs": {"x": {"anyOf": [{"$ref": "#"}]}}}"##).0,
        "tools.schema/endless"
    );
    assert_eq!(at(r#"{"properties": {"x": {"pattern": "(?=a)b"}}}"#), ("tools.schema/pattern".to_owned(), place(44)));
    assert_eq!(at(r#"{"properties": {"x": {"maxLength": "9"}}}"#), ("tools.schema/malformed".to_owned(), place(46)));
    assert_eq!(at(r#"{"type": "array"}"#), ("tools.schema/not-object".to_owned(), place(20)));
}

#[test]
fn gw_05_a_tool_whose_own_schema_is_remote_cannot_be_called_and_is_not_listed() {
    let gate = gate("[[tools.tool]]\nname = \"s.t\"\ndecision = \"allow\"");
    let facts = ToolFacts { input_schema: Some(json!({"$ref": "http://evil.example/"})), ..ToolFacts::default() };
    assert_eq!(judged(&gate, "s.t", json!({}), &facts).verdict.reasons.first().unwrap().id, "tools.schema/unusable");
    assert_eq!(gate.lists("s.t", &facts), Listed::Hidden);
}

#[test]
fn deny_counts_before_ask_before_allow_whatever_the_breadth() {
    let text = r#"
[[tools.tool]]
name = "s.get"
decision = "allow"
effect = "read"
[[tools.tool]]
name = "s.*"
decision = "ask"
effect = "read"
[[tools.tool]]
name = "*.drop"
decision = "deny"
"#;
    let gate = gate(text);
    assert_eq!(decision(&gate, "s.get", json!({})), Decision::Ask);
    assert_eq!(decision(&gate, "s.drop", json!({})), Decision::Deny);
    assert_eq!(decision(&gate, "t.get", json!({})), Decision::Deny);
}

#[test]
fn a_later_layer_cannot_weaken_an_earlier_one() {
    let allow = "[[tools.tool]]\nname = \"s.t\"\ndecision = \"allow\"";
    for (first, want) in [("deny", Decision::Deny), ("ask", Decision::Ask)] {
        let first = format!("[[tools.tool]]\nname = \"s.*\"\ndecision = \"{first}\"\neffect = \"write\"");
        for layers in [[first.as_str(), allow], [allow, first.as_str()]] {
            let gate = tried(&layers).unwrap().0;
            assert_eq!(decision(&gate, "s.t", json!({})), want);
        }
    }
    let gate = tried(&["tools.default = \"deny\"", "tools.default = \"ask\""]).unwrap().0;
    assert_eq!(decision(&gate, "x", json!({})), Decision::Deny);
}

#[test]
fn a_write_needs_an_entry_that_names_it() {
    let gate = gate(
        r#"
[[tools.tool]]
name = "s.*"
decision = "allow"
[[tools.tool]]
name = "s.put"
decision = "allow"
[[tools.tool]]
name = "r.*"
decision = "allow"
effect = "read"
[[tools.tool]]
name = "r.look"
decision = "allow"
effect = "read"
"#,
    );
    let says = |effect| ToolFacts { effect, ..ToolFacts::default() };
    let of = |tool: &str, facts: &ToolFacts| {
        let judged = judged(&gate, tool, json!({}), facts);
        (judged.verdict.decision, judged.verdict.reasons.first().unwrap().id, judged.effect)
    };
    assert_eq!(of("s.get", &says(None)), (Decision::Deny, "tools.effect/unnamed", Effect::Write));
    // The word of the tool itself lowers nothing.
    assert_eq!(of("s.get", &says(Some(Effect::Read))), (Decision::Deny, "tools.effect/unnamed", Effect::Write));
    assert_eq!(of("s.put", &says(None)), (Decision::Allow, "tools.entry/allow", Effect::Write));
    assert_eq!(of("r.get", &says(None)), (Decision::Allow, "tools.entry/allow", Effect::Read));
    // It raises.
    assert_eq!(of("r.get", &says(Some(Effect::Write))), (Decision::Deny, "tools.effect/unnamed", Effect::Write));
    assert_eq!(of("r.look", &says(Some(Effect::Write))), (Decision::Deny, "tools.effect/raised", Effect::Write));
    assert_eq!(gate.lists("r.look", &says(Some(Effect::Write))), Listed::Hidden);
}

#[test]
fn a_rule_that_cannot_be_evaluated_denies_and_one_that_holds_counts() {
    let gate = gate(
        r#"
[[tools.tool]]
name = "pay"
decision = "allow"
rules = [
  { when = "args.amount > 100.0", decision = "ask", message = "above 100 somebody must agree" },
  { when = "args.amount > 1000.0", message = "too much" },
]
"#,
    );
    assert_eq!(decision(&gate, "pay", json!({"amount": 5})), Decision::Allow);
    assert_eq!(
        why(&gate, "pay", json!({"amount": 500})),
        (Decision::Ask, "tools.rule/holds", "tools.tool[0].rules[0]".to_owned())
    );
    assert_eq!(
        why(&gate, "pay", json!({"amount": 5000})),
        (Decision::Deny, "tools.rule/holds", "tools.tool[0].rules[1]".to_owned())
    );
    for args in [json!({}), json!({"amount": "many"}), json!({"amount": null})] {
        assert_eq!(why(&gate, "pay", args.clone()).1, "tools.rule/failed", "{args}");
        assert_eq!(decision(&gate, "pay", args), Decision::Deny);
    }
    let verdict = verdict(&gate, "pay", json!({"amount": 500}));
    assert_eq!(verdict.instead, "above 100 somebody must agree");
    assert!(verdict.hash.is_some(), "whoever is asked is asked about these arguments");
}

#[test]
fn guards_judge_each_element_and_what_they_pass_is_what_the_tool_gets() {
    let gate = gate(
        r#"
[[tools.tool]]
name = "send"
decision = "allow"
guards."to[]" = { kind = "email", domains = ["company.com"] }
guards.message.link = { kind = "url", hosts = ["docs.company.com"] }
"#,
    );
    let ok = verdict(
        &gate,
        "send",
        json!({"to": ["a@company.com"], "message": {"link": "HTTPS://DOCS.company.com:443/a/../b"}}),
    );
    assert_eq!(ok.decision, Decision::Allow, "{ok:?}");
    assert_eq!(ok.args.unwrap()["message"]["link"], "https://docs.company.com/b");
    for (args, id) in [
        (json!({"to": ["a@company.com", "b@company.com.evil.example"]}), "tools.guard/email"),
        (json!({"to": "a@company.com"}), "tools.guard/shape"),
        (json!({"message": "x"}), "tools.guard/shape"),
        (json!({"message": {"link": "https://docs.company.com@evil.example/"}}), "tools.guard/url"),
        // No schema: what no guard names could say the same unguarded.
        (json!({"to": ["a@company.com"], "bcc": ["x@evil.example"]}), "tools.schema/none"),
        (json!({"message": {"link": "https://docs.company.com/", "bcc": "x@evil.example"}}), "tools.schema/none"),
    ] {
        assert_eq!(
            why(&gate, "send", args.clone()),
            (Decision::Deny, id, why(&gate, "send", args.clone()).2),
            "{args}"
        );
    }
}

#[test]
fn a_value_that_a_guard_changed_must_still_fit_the_schema() {
    let gate = gate(
        r#"
[[tools.tool]]
name = "open"
decision = "allow"
schema = { type = "object", properties = { url = { type = "string", pattern = "^HTTPS://" } } }
guards.url = { kind = "url", hosts = ["company.com"] }
"#,
    );
    assert_eq!(why(&gate, "open", json!({"url": "HTTPS://company.com/"})).1, "tools.schema/pattern");
}

#[test]
fn approval_asks_and_never_lifts_a_denial() {
    let text = |approval: &str| format!("{SEND}approval = \"{approval}\"");
    let good = json!({"to": "x", "amount": 1});
    for (word, id) in [("first", "tools.approval/first"), ("always", "tools.approval/always")] {
        let gate = gate(&text(word));
        let (decision, reason, _) = why(&gate, "mail.send", good.clone());
        assert_eq!((decision, reason), (Decision::Ask, id));
        assert_eq!(super::tests::decision(&gate, "mail.send", json!({})), Decision::Deny);
    }
}

#[test]
fn limits_of_all_entries_are_demanded_and_the_strictest_time_and_result_count() {
    let gate = gate(
        r#"
[[tools.tool]]
name = "s.t"
decision = "allow"
rate = { calls = 10, per = "60s", burst = 2, by = "session" }
timeout = "20s"
result = { max = "64K", redact = ["a"], types = ["text", "image"] }
[[tools.tool]]
name = "s.*"
decision = "allow"
effect = "write"
budget = { cost = 0.02, limit = 5, per = "24h", reported = "/_meta/cost" }
concurrency = 3
timeout = "5s"
result = { max = "8K", redact = ["b"], types = ["text"] }
"#,
    );
    let one = judged(&gate, "s.t", json!({}), &ToolFacts::default());
    let rules: Vec<&str> = one.limits.iter().map(|demand| &*demand.rule).collect();
    assert_eq!(rules, ["tools.tool[0].rate", "tools.tool[1].budget", "tools.tool[1].concurrency"]);
    assert_eq!(one.reported, [(1, "/_meta/cost".to_owned())]);
    assert_eq!(one.timeout.unwrap().0, 5000);
    assert_eq!((one.result.max.0, one.result.types.as_slice()), (8 << 10, ["text".to_owned()].as_slice()));
    assert_eq!(one.result.redact.len(), 2);
    // Another tool of the glob shares the glob's counter, another session does not share that of a session.
    let other = judged(&gate, "s.t", json!({}), &ToolFacts::default());
    assert_eq!(one.limits, other.limits);
    let elsewhere = Caller { session: "t".to_owned(), ..caller() };
    let call = Call {
        tool: "s.t",
        args: json!({}),
        caller: &elsewhere,
        facts: &ToolFacts::default(),
        counters: Counters::default(),
        now: 0,
    };
    let moved = gate.judge(&call).limits;
    assert_ne!(one.limits[0].key, moved[0].key);
    assert_eq!(one.limits[1].key, moved[1].key);
}

#[test]
fn listing_hides_what_could_never_be_called_and_shows_the_tightened_schema() {
    let gate = gate(&format!(
        "{SEND}rules = [{{ when = \"args.amount > 10\" }}]\n[[tools.tool]]\nname = \"mail.drop\"\ndecision = \"deny\""
    ));
    let own = json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "description": "sends", "properties": {
        "to": {"type": "string"}, "amount": {"type": "number"}, "bcc": {"type": "string"}}, "required": ["to"]});
    let facts = ToolFacts { input_schema: Some(own), ..ToolFacts::default() };
    assert_eq!(gate.lists("mail.drop", &facts), Listed::Hidden);
    assert_eq!(gate.lists("mail.other", &facts), Listed::Hidden);
    assert_eq!(gate.lists("mail__send", &facts), Listed::Hidden);
    // A rule about arguments hides nothing.
    let Listed::Shown { schema } = gate.lists("mail.send", &facts) else { panic!("hidden") };
    assert_eq!(schema["additionalProperties"], false);
    assert_eq!(schema["required"], json!(["amount", "to"]));
    assert_eq!(schema["description"], "sends");
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema", "it is shown in today's words");
    assert!(schema["properties"].get("bcc").is_none() && schema["properties"].get("note").is_none());
    assert_eq!(schema["properties"]["to"], json!({"type": "string"}));
    // And what is shown is what is judged.
    let with = |args: Json| judged(&gate, "mail.send", args, &facts).verdict.decision;
    assert_eq!(with(json!({"to": "x", "amount": 1})), Decision::Allow);
    assert_eq!(with(json!({"to": "x", "amount": 1, "bcc": "y"})), Decision::Deny);
    assert_eq!(with(json!({"to": "x", "amount": 1, "note": {}})), Decision::Deny);
    assert_eq!(with(json!({"to": "x", "amount": 1.5})), Decision::Deny);
}

#[test]
fn gw_14_a_tool_that_changes_its_schema_is_judged_by_the_new_one_at_once() {
    let gate = gate("[[tools.tool]]\nname = \"s.t\"\ndecision = \"allow\"");
    let facts = |name: &str| ToolFacts {
        input_schema: Some(json!({"type": "object", "properties": {name: {"type": "string"}}})),
        ..ToolFacts::default()
    };
    assert_eq!(judged(&gate, "s.t", json!({"a": "x"}), &facts("a")).verdict.decision, Decision::Allow);
    assert_eq!(judged(&gate, "s.t", json!({"a": "x"}), &facts("b")).verdict.decision, Decision::Deny);
    assert_eq!(judged(&gate, "s.t", json!({"a": "x"}), &facts("a")).verdict.decision, Decision::Allow);
}

#[test]
fn gw_15_an_entry_of_one_server_says_nothing_of_anothers_tool() {
    let gate = gate(
        "[[tools.tool]]\nname = \"mail.send\"\ndecision = \"allow\"\n[[tools.tool]]\nname = \"mail.get*\"\ndecision = \"allow\"\neffect = \"read\"",
    );
    for tool in ["mail2.send", "mai.l.send", "mail-.send", "send", "x.mail.send", "mail2.get", "get", "getmail.get"] {
        assert_ne!(decision(&gate, tool, json!({})), Decision::Allow, "{tool}");
    }
    assert_eq!(decision(&gate, "mail.get_all", json!({})), Decision::Allow);
}

#[test]
fn examples_are_tried_at_load_and_point_at_their_line() {
    let text = |expect: &str| {
        format!("{SEND}examples = [\n  {{ args = {{ to = \"x\", amount = 1 }}, expect = \"{expect}\" }},\n]")
    };
    assert!(tried(&[&text("allow")]).is_ok());
    let mistakes = tried(&[&text("deny")]).map(|_| ()).unwrap_err();
    let mistake = mistakes.list.first().unwrap();
    assert_eq!((mistake.id.as_str(), mistake.at.line_column), ("tools.example/otherwise", Some((8, 3))));
    assert!(mistake.what.contains("`allow`") && mistake.why.contains("tools.tool[0]"), "{mistake}");
    let elsewhere = "[[tools.tool]]\nname = \"s.*\"\nexamples = [{ tool = \"t.x\", expect = \"deny\" }]";
    assert_eq!(tried(&[elsewhere]).map(|_| ()).unwrap_err().list.first().unwrap().id, "tools.example/elsewhere");
}

#[test]
fn mistakes_in_conditions_and_guards_point_into_them() {
    let rule = "[[tools.tool]]\nname = \"a\"\nrules = [{ when = \"args.x > unknown\" }]";
    let mistakes = tried(&[rule]).map(|_| ()).unwrap_err();
    let mistake = mistakes.list.first().unwrap();
    assert_eq!((mistake.id.as_str(), mistake.at.line_column.unwrap().0), ("tools.rule/condition", 4), "{mistake}");
    assert!(mistake.at.line_column.unwrap().1 > 19, "{mistake}");
    let guard = "[[tools.tool]]\nname = \"a\"\ndecision = \"allow\"\nschema = { type = \"object\", properties = { to = {} } }\nguards.too = { kind = \"length\", max = 5 }";
    let mistakes = tried(&[guard]).map(|_| ()).unwrap_err();
    let mistake = mistakes.list.first().unwrap();
    assert_eq!((mistake.id.as_str(), mistake.at.line_column), ("tools.guard/no-argument", Some((6, 14))), "{mistake}");
}

#[test]
fn lints_tell_what_can_never_count_or_reaches_too_far() {
    let entry = |text: &str| format!("[[tools.tool]]\n{text}");
    for (text, wanted) in [
        (entry("name = \"*\"\ndecision = \"allow\"\neffect = \"read\""), vec!["tools/all-servers"]),
        (entry("name = \"*\"\ndecision = \"deny\""), vec![]),
        (entry("name = \"s.*\"\ndecision = \"allow\""), vec!["tools/write-by-glob"]),
        (entry("name = \"s.*\"\ndecision = \"allow\"\neffect = \"read\""), vec![]),
        (entry("name = \"f\"\ndecision = \"allow\""), vec!["tools/no-schema"]),
        (entry("name = \"s.f\"\ndecision = \"allow\""), vec![]),
        (entry("name = \"s.f\"\nrate = { calls = 1, per = \"1s\" }"), vec!["tools/unreachable"]),
        (entry("name = \"s.f\"\ndecision = \"ask\"\napproval = \"always\""), vec!["tools/unreachable"]),
        (
            entry("name = \"s.f\"\ndecision = \"ask\"\nrules = [{ when = \"args.x == 1\", decision = \"ask\" }]"),
            vec!["tools/unreachable"],
        ),
        (
            format!(
                "{}\n{}",
                entry("name = \"s.f\"\ndecision = \"allow\""),
                entry("name = \"s.*\"\ndecision = \"deny\"")
            ),
            vec!["tools/unreachable"],
        ),
        (
            entry(
                "name = \"s.f\"\ndecision = \"allow\"\nschema = { properties = { x = { pattern = \"[a-z]+\" }, y = { pattern = \"^[a-z]+$\" } } }",
            ),
            vec!["tools/loose-pattern"],
        ),
        (
            format!("{}\n[mcp.servers.t]\ncommand = \"t\"", entry("name = \"s.f\"\ndecision = \"allow\"")),
            vec!["tools/unknown-server"],
        ),
    ] {
        assert_eq!(lints(&text), wanted, "{text}");
    }
}

#[test]
fn a_denial_says_what_would_be_allowed() {
    let gate = gate(SEND);
    let unknown = verdict(&gate, "mail.sent", json!({}));
    assert_eq!(unknown.instead, "did you mean `mail.send`?");
    let typo = verdict(&gate, "mail.send", json!({"too": "x", "to": "x", "amount": 1}));
    assert_eq!(typo.instead, "did you mean `to`?");
    let public = verdict(&gate, "mail__send", json!({}));
    assert_eq!(public.instead, "write mail.send");
    let json = typo.to_json();
    let keys: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["decision", "rule", "reasons", "instead", "args", "hash"]);
}

/// A thousand tools are compiled in no more than the bar, also in a build without optimisation on a busy machine: the bar
/// itself is held by the bench.
#[test]
fn a_thousand_tools_are_compiled_without_building_their_validators() {
    let mut text = String::new();
    for n in 0..1000 {
        text.push_str(&format!(
            "[[tools.tool]]\nname = \"s.t{n}\"\ndecision = \"allow\"\nschema = {{ type = \"object\", properties = {{ x{n} = {{ type = \"string\", maxLength = {n} }} }} }}\n"
        ));
    }
    let gate = gate(&text);
    assert_eq!(gate.entries.len(), 1000);
    assert_eq!(decision(&gate, "s.t7", json!({"x7": "abcdefg"})), Decision::Allow);
    assert_eq!(decision(&gate, "s.t7", json!({"x7": "abcdefgh"})), Decision::Deny);
    assert_eq!(decision(&gate, "s.t7", json!({"x8": ""})), Decision::Deny);
}

fn of(entries: &[usize], default: Decision) -> Gate {
    const ENTRIES: &[&str] = &[
        "name = \"s.t\"\ndecision = \"allow\"",
        "name = \"s.t\"\ndecision = \"ask\"",
        "name = \"s.t\"\ndecision = \"deny\"",
        "name = \"s.*\"\ndecision = \"allow\"\neffect = \"read\"",
        "name = \"s.*\"\ndecision = \"ask\"\neffect = \"write\"",
        "name = \"*\"\ndecision = \"deny\"\n",
        "name = \"s.t\"\ndecision = \"allow\"\nguards.x = { kind = \"length\", max = 3 }",
        "name = \"s.t\"\ndecision = \"allow\"\nrules = [{ when = \"size(args.x) > 2\", decision = \"ask\" }]",
        "name = \"s.t\"\ndecision = \"allow\"\nrules = [{ when = \"args.x == 'no'\" }]",
        "name = \"s.t\"\ndecision = \"allow\"\nschema = { properties = { x = { type = \"string\" } } }",
        "name = \"other\"\ndecision = \"deny\"",
    ];
    let mut text = format!("tools.default = \"{}\"\n", default.word());
    for index in entries {
        text.push_str(&format!("[[tools.tool]]\n{}\n", ENTRIES[*index % ENTRIES.len()]));
    }
    gate(&text)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_permutation_of_entries_changes_a_decision(
        entries in prop::collection::vec(0usize..11, 1..6),
        rotation in 0usize..6,
        x in prop::sample::select(vec!["", "ab", "no", "abc", "abcdef"]),
    ) {
        let mut turned = entries.clone();
        turned.rotate_left(rotation % entries.len());
        turned.reverse();
        for default in [Decision::Deny, Decision::Ask] {
            let args = json!({ "x": x });
            let (one, other) = (of(&entries, default), of(&turned, default));
            prop_assert_eq!(decision(&one, "s.t", args.clone()), decision(&other, "s.t", args));
        }
    }

    #[test]
    fn no_entry_that_is_added_weakens_what_others_decided(
        entries in prop::collection::vec(0usize..11, 1..5),
        added in 0usize..11,
        x in prop::sample::select(vec!["", "ab", "no", "abc", "abcdef"]),
    ) {
        let args = json!({ "x": x });
        let before = verdict(&of(&entries, Decision::Deny), "s.t", args.clone());
        let more: Vec<usize> = entries.iter().copied().chain([added]).collect();
        let after = verdict(&of(&more, Decision::Deny), "s.t", args);
        // An entry can name what nobody had named: that is what entries are for. Nothing else can be lifted.
        let nameless = ["tools.entry/none", "tools.effect/unnamed", "tools.schema/none"];
        let held = before.reasons.iter().filter(|reason| !nameless.contains(&reason.id)).map(|reason| reason.decision).max();
        prop_assert!(held.is_none_or(|held| after.decision >= held), "{before:?} {after:?}");
    }

    #[test]
    fn what_passes_a_schema_is_what_was_sent_in_its_one_form(
        text in "\\PC{0,12}",
        number in -1000i32..1000,
        flag in any::<bool>(),
    ) {
        let gate = gate("[[tools.tool]]\nname = \"t\"\ndecision = \"allow\"\nschema = { properties = { a = { type = \"string\" }, b = { type = \"number\" }, c = { type = \"array\" } } }");
        let args = json!({ "a": text, "b": f64::from(number), "c": [flag, null, { "k": 0.5 }] });
        let verdict = verdict(&gate, "t", args.clone());
        prop_assert_eq!(verdict.decision, Decision::Allow);
        let sent = verdict.args.unwrap();
        prop_assert_eq!(canonical(&sent), canonical(&args));
        prop_assert_eq!(read(&serde_json::to_string(&sent).unwrap()).unwrap(), sent);
    }
}

#[test]
fn the_default_of_a_policy_without_tools_denies() {
    let tools =
        Tools { default: Decision::Deny, entries: Vec::new(), mcp: policy::tools::Mcp::default(), written: Json::Null };
    let gate = Gate::new(&tools, &policy::spot::Documents::default()).unwrap().0;
    assert_eq!(decision(&gate, "x", json!({})), Decision::Deny);
}
