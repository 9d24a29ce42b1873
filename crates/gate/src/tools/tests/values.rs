//! Names and arguments: compared, checked, guarded, and written again.

use super::*;

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
