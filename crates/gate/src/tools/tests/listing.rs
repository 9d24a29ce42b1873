//! What is listed, and what a server can change about that.

use super::*;

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
