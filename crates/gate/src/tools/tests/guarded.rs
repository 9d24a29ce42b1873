//! Guards against the schema of the tool: one that leads to nothing guards nothing, and denies.

use super::*;

const EMAIL: &str = "{ kind = \"email\", domains = [\"company.com\"] }";

fn entry(name: &str, more: &str) -> String {
    format!("[[tools.tool]]\nname = \"{name}\"\ndecision = \"allow\"\neffect = \"read\"\n{more}\n")
}

fn guarding(argument: &str) -> Gate {
    gate(&entry("s.t", &format!("guards.\"{argument}\" = {EMAIL}")))
}

fn of_tool(schema: Json) -> ToolFacts {
    ToolFacts { input_schema: Some(schema), ..ToolFacts::default() }
}

/// The ids of all reasons to deny.
fn denials(gate: &Gate, args: Json, facts: &ToolFacts) -> Vec<&'static str> {
    let verdict = judged(gate, "s.t", args, facts).verdict;
    let denied = verdict.reasons.iter().filter(|reason| reason.decision == Decision::Deny);
    denied.map(|reason| reason.id).collect()
}

fn rich() -> Json {
    json!({
        "type": "object",
        "properties": {
            "to": {"type": "string"},
            "message": {"type": "object", "properties": {"to": {"type": "string"}}},
            "rows": {"type": "array", "items": {"type": "object", "properties": {"mail": {"type": "string"}}}},
            "maybe": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
            "open": {"type": "object", "additionalProperties": true},
            "named": {"type": "object", "additionalProperties": {"type": "object", "properties": {"mail": {}}}},
            "same": {"$ref": "#/$defs/one"},
            "user.email": {"type": "string"},
            "any": {},
        },
        "$defs": {"one": {"type": "object", "properties": {"mail": {"type": "string"}}}},
    })
}

#[test]
fn a_guard_of_what_the_tool_does_not_take_denies_every_call() {
    let facts = of_tool(json!({
        "type": "object", "additionalProperties": false, "required": ["recipient"],
        "properties": {"recipient": {"type": "string"}, "body": {"type": "string"}},
    }));
    let gate = guarding("to");
    let verdict = judged(&gate, "s.t", json!({"recipient": "eve@evil.example"}), &facts).verdict;
    let first = verdict.reasons.first().unwrap();
    assert_eq!((verdict.decision, first.id), (Decision::Deny, "tools.guard/no-argument"), "{verdict:?}");
    assert_eq!(first.rule, "tools.tool[0].guards.to");
    assert!(first.what.contains("`to`") && first.at.is_some(), "{first:?}");
    assert!(first.why.contains("`recipient`") && first.why.contains("`body`"), "{first:?}");
    // What no call of could be allowed is not listed.
    assert_eq!(gate.lists("s.t", &facts), Listed::Hidden);
    // The schema that servers write most: nothing is said of other arguments, and they are refused.
    let plain = of_tool(json!({"type": "object", "properties": {"recipient": {"type": "string"}}}));
    assert_eq!(denials(&gate, json!({"recipient": "eve@evil.example"}), &plain), ["tools.guard/no-argument"]);
    assert_eq!(denials(&gate, json!({}), &of_tool(json!({"type": "object"}))), ["tools.guard/no-argument"]);
    // The tool's own name for it.
    let right = guarding("recipient");
    assert_eq!(denials(&right, json!({"recipient": "eve@evil.example"}), &facts), ["tools.guard/email"]);
    assert_eq!(denials(&right, json!({"recipient": "ann@company.com"}), &facts), Vec::<&str>::new());
}

#[test]
fn the_whole_way_of_a_guard_is_looked_for_in_the_tools_schema() {
    let facts = of_tool(rich());
    for good in [
        "to",
        "message",
        "message.to",
        "rows[].mail",
        "rows",
        "maybe[]",
        "open.x.y",
        "named.x.mail",
        "same.mail",
        "user.email",
        "any",
        "any.x[].y",
    ] {
        assert_eq!(denials(&guarding(good), json!({}), &facts), Vec::<&str>::new(), "{good}");
        assert_ne!(guarding(good).lists("s.t", &facts), Listed::Hidden, "{good}");
    }
    for bad in [
        "too",
        "To",
        "to[]",
        "to.x",
        "message.too",
        "message[]",
        "message.to.x",
        "rows[].email",
        "rows.mail",
        "rows[][]",
        "maybe[].x",
        "same.email",
        "user.mail",
        "user",
        "email",
    ] {
        assert_eq!(denials(&guarding(bad), json!({}), &facts), ["tools.guard/no-argument"], "{bad}");
        assert_eq!(guarding(bad).lists("s.t", &facts), Listed::Hidden, "{bad}");
    }
}

#[test]
fn joined_and_patterned_schemas_are_looked_through() {
    let facts = of_tool(json!({
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "allOf": [{"properties": {"b": {"type": "string"}}}],
        "anyOf": [{"properties": {"c": {"type": "string"}}}, {"required": ["a"]}],
        "patternProperties": {"^x-[0-9]$": {"type": "object", "properties": {"y": {"type": "string"}}}},
    }));
    for (way, good) in
        [("a", true), ("b", true), ("c", true), ("x-1", true), ("x-1.y", true), ("d", false), ("x-1.z", false)]
    {
        let wanted: &[&str] = if good { &[] } else { &["tools.guard/no-argument"] };
        assert_eq!(denials(&guarding(way), json!({"a": "x@company.com"}), &facts), wanted, "{way}");
    }
}

#[test]
fn a_schema_that_takes_too_long_to_look_through_lets_nothing_in() {
    let mut tangle = serde_json::Map::new();
    for n in 0..20 {
        let below = json!({"$ref": format!("#/$defs/d{}", n + 1)});
        tangle.insert(format!("d{n}"), json!({"anyOf": [below, below, below]}));
    }
    tangle.insert("d20".to_owned(), json!({"type": "object", "properties": {"recipient": {"type": "string"}}}));
    let long = json!({"type": "object", "allOf": [{"$ref": "#/$defs/d0"}], "$defs": tangle});
    let schema = crate::schema::Schema::new(&long, crate::schema::Author::Tool).unwrap();
    let way = |name: &str| [crate::schema::Step::Name(name.to_owned())];
    assert!(schema.lets_in(&way("recipient")) && !schema.lets_in(&way("to")));
    assert!(schema.known().len() <= 20);
}

#[test]
fn an_optional_argument_that_is_not_given_is_not_judged() {
    let closed = of_tool(rich());
    assert_eq!(denials(&guarding("to"), json!({}), &closed), Vec::<&str>::new());
    let open = of_tool(json!({"type": "object", "additionalProperties": true, "properties": {"x": {}}}));
    assert_eq!(denials(&guarding("to"), json!({"x": 1}), &open), Vec::<&str>::new());
    assert_eq!(denials(&guarding("to"), json!({"to": "eve@evil.example"}), &open), ["tools.guard/email"]);
}

#[test]
fn an_argument_with_a_dot_in_its_name_is_guarded_by_that_name() {
    let facts = of_tool(rich());
    let gate = guarding("user.email");
    assert_eq!(denials(&gate, json!({"user.email": "eve@evil.example"}), &facts), ["tools.guard/email"]);
    assert_eq!(denials(&gate, json!({"user.email": "ann@company.com"}), &facts), Vec::<&str>::new());
    let both = of_tool(json!({"type": "object", "properties": {
        "user": {"properties": {"email": {"type": "string"}}}, "user.email": {"type": "string"}}}));
    for (args, wanted) in [
        (json!({"user": {"email": "eve@evil.example"}, "user.email": "ann@company.com"}), vec!["tools.guard/email"]),
        (json!({"user": {"email": "ann@company.com"}, "user.email": "eve@evil.example"}), vec!["tools.guard/email"]),
        (json!({"user": {"email": "ann@company.com"}, "user.email": "ann@company.com"}), vec![]),
        // A name, beside which the guarded argument stands.
        (json!({"user": "eve", "user.email": "ann@company.com"}), vec![]),
        (json!({"user": "eve"}), vec!["tools.guard/shape"]),
    ] {
        assert_eq!(denials(&gate, args.clone(), &both), wanted, "{args}");
    }
    // Without any schema it is a guarded argument as well.
    let none = ToolFacts::default();
    assert_eq!(denials(&gate, json!({"user.email": "eve@evil.example"}), &none), ["tools.guard/email"]);
    assert_eq!(denials(&gate, json!({"user.email": "ann@company.com"}), &none), Vec::<&str>::new());
    assert_eq!(denials(&gate, json!({"user.mail": "ann@company.com"}), &none), ["tools.schema/none"]);
}

#[test]
fn the_whole_way_of_a_guard_is_looked_for_in_the_policys_schema_at_load() {
    let schema = "schema = { type = \"object\", properties = { message = { type = \"object\", properties = { to = { type = \"string\" } } }, \
                  rows = { type = \"array\", items = { type = \"object\", properties = { mail = { type = \"string\" } } } } } }";
    let loads = |way: &str| tried(&[&entry("g", &format!("{schema}\nguards.\"{way}\" = {EMAIL}"))]).map(|_| ());
    for good in ["message.to", "rows[].mail"] {
        assert!(loads(good).is_ok(), "{good}");
    }
    for (bad, near) in
        [("message.too", "`message.to`"), ("rows[].email", "`rows[].mail`"), ("rows.mail", "`rows[].mail`")]
    {
        let mistakes = loads(bad).unwrap_err();
        let mistake = mistakes.list.first().unwrap();
        assert_eq!(mistake.id, "tools.guard/no-argument", "{mistake}");
        assert!(mistake.why.contains(near), "{mistake}");
    }
}

#[test]
fn a_guard_of_one_entry_is_held_to_the_schema_of_another() {
    let two = |argument: &str| {
        let schema = "schema = { type = \"object\", properties = { to = { type = \"string\" } } }";
        gate(&[entry("s.t", schema), entry("s.t", &format!("guards.{argument} = {EMAIL}"))].concat())
    };
    let none = ToolFacts::default();
    assert_eq!(denials(&two("too"), json!({}), &none), ["tools.guard/no-argument"]);
    assert_eq!(denials(&two("to"), json!({}), &none), Vec::<&str>::new());
    // The tool says that it has both: what an entry leaves out is not given, and its guard is no mistake.
    let both = of_tool(json!({"type": "object", "properties": {"to": {"type": "string"}, "too": {"type": "string"}}}));
    assert_eq!(denials(&two("too"), json!({"to": "x"}), &both), Vec::<&str>::new());
}
