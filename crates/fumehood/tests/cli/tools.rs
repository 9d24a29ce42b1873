//! `fumehood tools check | ls`, and what `policy check` tells of tools.

use crate::Fixture;

const POLICY: &str = r#"version = 1

[[tools.tool]]
name = "mail.send"
decision = "allow"
schema = { type = "object", required = ["to"], properties = { to = { type = "string" }, amount = { type = "number" } } }
guards.to = { kind = "email", domains = ["company.com"] }
rules = [{ when = "has(args.amount) && args.amount > 100.0", decision = "ask", message = "above 100 somebody must agree" }]
rate = { calls = 10, per = "60s", by = "session" }
examples = [{ args = { to = "ann@company.com" }, expect = "allow" }]
"#;

fn fixture(policy: &str) -> Fixture {
    let fixture = Fixture::new();
    std::fs::write(fixture.path("work/p.toml"), policy).unwrap();
    fixture
}

fn check(fixture: &Fixture, args: &str) -> crate::CommandOutput {
    fixture.run(&["tools", "check", "-p", "p.toml", "--tool", "mail.send", "--args", args])
}

#[test]
fn a_call_is_allowed_with_the_arguments_that_the_tool_would_get() {
    let fixture = fixture(POLICY);
    let said = check(&fixture, r#"{"to": "ann@COMPANY.com", "amount": 1e1}"#);
    let hash = policy::json::sha256_hex(br#"{"args":{"amount":10,"to":"ann@company.com"},"tool":"mail.send"}"#);
    said.is(
        0,
        &format!(
            "allow `mail.send`\n  rule:     tools.tool[0] (p.toml:4:8)\n  what:     `mail.send` is `allow`\n  why:      the policy allows it\n  id:       tools.entry/allow\n  args:     {{\"amount\":10,\"to\":\"ann@company.com\"}}\n  hash:     {hash}\n  counted:  tools.tool[0].rate\n"
        ),
        "",
    );
}

#[test]
fn a_denial_names_the_rule_the_value_and_what_would_be_allowed() {
    let fixture = fixture(POLICY);
    let said = check(&fixture, r#"{"to": "ann@company.com.evil.example"}"#);
    assert_eq!((said.code, said.err.as_str()), (1, ""), "{said:?}");
    assert!(
        said.out.starts_with("deny `mail.send`\n  rule:     tools.tool[0].guards.to (p.toml:7:13)\n"),
        "{}",
        said.out
    );
    assert!(
        said.out.contains("evil.example") && said.out.contains("instead:") && said.out.contains("company.com"),
        "{}",
        said.out
    );
    assert!(!said.out.contains("hash:"), "nothing can be approved: {}", said.out);
}

#[test]
fn a_guard_of_no_argument_of_the_tool_denies() {
    let fixture = fixture(
        "version = 1\n[[tools.tool]]\nname = \"mail.send\"\ndecision = \"allow\"\neffect = \"write\"\nguards.to = { kind = \"email\", domains = [\"company.com\"] }\n",
    );
    let run = |schema: &str, args: &str| {
        let words = ["tools", "check", "-p", "p.toml", "--tool", "mail.send", "--tool-schema", schema, "--args", args];
        fixture.run(&words)
    };
    let other = r#"{"type": "object", "properties": {"recipient": {"type": "string"}, "body": {"type": "string"}}}"#;
    let said = run(other, r#"{"recipient": "eve@evil.example", "body": "hello"}"#);
    assert_eq!((said.code, said.err.as_str()), (1, ""), "{said:?}");
    assert!(
        said.out.starts_with("deny `mail.send`\n  rule:     tools.tool[0].guards.to (p.toml:6:13)\n"),
        "{}",
        said.out
    );
    assert!(said.out.contains("tools.guard/no-argument") && said.out.contains("`recipient`"), "{}", said.out);
    let own = r#"{"type": "object", "properties": {"to": {"type": "string"}, "body": {"type": "string"}}}"#;
    assert_eq!(run(own, r#"{"body": "hello"}"#).code, 0);
    assert_eq!(run(own, r#"{"to": "eve@evil.example", "body": "hello"}"#).code, 1);
}

#[test]
fn a_rule_can_ask_and_the_exit_code_says_so() {
    let fixture = fixture(POLICY);
    let said = check(&fixture, r#"{"to": "ann@company.com", "amount": 500}"#);
    assert_eq!(said.code, 3, "{said:?}");
    assert!(
        said.out.contains("tools.tool[0].rules[0] (p.toml:8:19)") && said.out.contains("above 100"),
        "{}",
        said.out
    );
}

#[test]
fn json_has_the_keys_of_the_contract() {
    let fixture = fixture(POLICY);
    let said =
        fixture.run(&["tools", "check", "-p", "p.toml", "--tool", "mail.send", "--args", r#"{"to": 5}"#, "--json"]);
    assert_eq!(said.code, 1);
    let json = said.json();
    for key in ["schema", "tool", "decision", "rule", "reasons", "instead", "args", "hash"] {
        assert!(json.get(key).is_some(), "{key} in {json}");
    }
    assert_eq!(
        (json["decision"].as_str(), json["reasons"][0]["id"].as_str()),
        (Some("deny"), Some("tools.schema/type"))
    );
    assert!(json["args"].is_null() && json["hash"].is_null());
}

#[test]
fn arguments_come_from_a_file_from_stdin_and_strictly() {
    let fixture = fixture(POLICY);
    std::fs::write(fixture.path("work/args.json"), r#"{"to": "ann@company.com"}"#).unwrap();
    assert_eq!(check(&fixture, "@args.json").code, 0);
    let flags = ["tools", "check", "-p", "p.toml", "--tool", "mail.send", "--args", "-"];
    assert_eq!(fixture.run_with_stdin(&flags, br#"{"to": "ann@company.com"}"#).code, 0);
    // Longer than one word of a command line can be: only the way in is of interest.
    let long = format!(r#"{{"to": "ann@company.com", "amount": 1{}}}"#, " ".repeat(200_000));
    assert_eq!(fixture.run_with_stdin(&flags, long.as_bytes()).code, 0);
    let said = check(&fixture, r#"{"to": "ann@company.com", "to": "x@evil.example"}"#);
    assert_eq!(said.code, 1);
    assert!(said.out.contains("tools.json/duplicate"), "{}", said.out);
    assert_eq!(check(&fixture, "@missing.json").code, 125);
    assert_eq!(fixture.run(&["tools", "check", "-p", "p.toml"]).code, 125);
}

#[test]
fn what_nobody_named_is_denied_and_a_policy_without_tools_denies_all() {
    let fixture = fixture("version = 1\n");
    let said = check(&fixture, "{}");
    assert_eq!(said.code, 1);
    assert!(said.out.contains("tools.entry/none"), "{}", said.out);
}

#[test]
fn the_tools_own_schema_and_word_take_part() {
    let fixture = fixture("version = 1\n[[tools.tool]]\nname = \"s.*\"\ndecision = \"allow\"\neffect = \"read\"\n");
    let run = |more: &[&str]| {
        let all: Vec<&str> = ["tools", "check", "-p", "p.toml", "--tool", "s.t", "--args", r#"{"a": 1}"#]
            .iter()
            .chain(more)
            .copied()
            .collect();
        fixture.run(&all).code
    };
    assert_eq!(run(&[]), 0);
    assert_eq!(run(&["--tool-schema", r#"{"type": "object", "properties": {"a": {}}}"#]), 0);
    assert_eq!(run(&["--tool-schema", r#"{"type": "object", "properties": {"b": {}}}"#]), 1);
    assert_eq!(run(&["--tool-effect", "write"]), 1);
    assert_eq!(run(&["--tool-schema", "{"]), 125);
}

#[test]
fn a_wrong_policy_is_refused_wherever_it_is_read() {
    let fixture = fixture(&POLICY.replace("expect = \"allow\"", "expect = \"deny\""));
    for args in [
        vec!["tools", "check", "-p", "p.toml", "--tool", "mail.send"],
        vec!["tools", "ls", "-p", "p.toml"],
        vec!["policy", "check", "p.toml"],
        vec!["plan", "-p", "p.toml"],
    ] {
        let said = fixture.run(&args);
        assert_eq!(said.code, 126, "{said:?}");
        assert!(said.err.contains("--> p.toml:10:13") && said.err.contains("comes out as `allow`"), "{}", said.err);
    }
}

#[test]
fn ls_shows_what_may_be_called_and_lints() {
    let fixture = fixture(&format!("{POLICY}\n[[tools.tool]]\nname = \"fs.*\"\ndecision = \"allow\"\n"));
    let said = fixture.run(&["tools", "ls", "-p", "p.toml"]);
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{said:?}");
    for part in [
        "mail.send",
        "allow",
        "write (undeclared)",
        "schema, to, 1 rule",
        "10 in 1m by session",
        "p.toml:4:8",
        "every other tool: deny",
        "note: `fs.*` lets no tool be called",
    ] {
        assert!(said.out.contains(part), "{part} in {}", said.out);
    }
    let json = fixture.run(&["tools", "ls", "-p", "p.toml", "--json"]).json();
    assert_eq!((json["default"].as_str(), json["tools"][0]["guards"][0].as_str()), (Some("deny"), Some("to")));
    assert_eq!(json["lints"][0]["id"], "tools/write-by-glob");
}
