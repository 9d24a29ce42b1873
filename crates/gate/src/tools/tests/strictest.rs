//! Of all entries the strictest counts: for decisions, rules, approvals and limits.

use policy::tools::ApprovalBy;
use proptest::prelude::*;

use super::*;

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
fn what_writes_is_approved_by_a_person_unless_the_policy_says_otherwise() {
    let by = |text: &str| {
        judged(&gate(text), "mail.send", json!({"to": "x", "amount": 1}), &ToolFacts::default()).approval_by
    };
    let anyone = "approval.by = \"anyone\"";
    assert_eq!(by(SEND), ApprovalBy::Person, "what nobody declared is a write");
    assert_eq!(by(&format!("{SEND}effect = \"write\"")), ApprovalBy::Person);
    assert_eq!(by(&format!("{SEND}effect = \"read\"")), ApprovalBy::Anyone);
    assert_eq!(by(&format!("{SEND}effect = \"write\"\n{anyone}")), ApprovalBy::Anyone);
    assert_eq!(
        by(&format!("{SEND}effect = \"read\"\napproval = {{ when = \"first\", by = \"person\" }}")),
        ApprovalBy::Person
    );
    let glob = "[[tools.tool]]\nname = \"mail.*\"\ndecision = \"allow\"\napproval.by = \"person\"";
    assert_eq!(by(&format!("{SEND}{anyone}\n{glob}")), ApprovalBy::Person, "the strictest of all entries");
    // A tool that says of itself that it writes is one that writes.
    let facts = ToolFacts { effect: Some(Effect::Write), ..ToolFacts::default() };
    let gate = gate(&format!("{SEND}effect = \"read\""));
    assert_eq!(judged(&gate, "mail.send", json!({}), &facts).approval_by, ApprovalBy::Person);
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
    let mut text = format!("tools.default = \"{}\"\n", default.as_str());
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
