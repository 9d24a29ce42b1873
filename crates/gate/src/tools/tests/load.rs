//! What is found when a policy is loaded: examples that fail, mistakes, lints, and how long it takes.

use super::*;

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
