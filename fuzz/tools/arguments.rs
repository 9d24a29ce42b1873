//! Arguments of a tool: read strictly, judged by schema, guards and conditions, and written again.

use std::sync::LazyLock;

use gate::Gate;
use gate::rules::Counters;
use gate::{Call, Caller, ToolFacts, json};
use policy::tools::Decision;
use serde_json::Value as Json;

pub(crate) const TOKENS: &[&str] = &[
    "\"to\":\"ann@company.com\"",
    "\"amount\":",
    "\"cc\":[",
    "\"mode\":\"fast\"",
    "\"more\":{\"deep\":[[",
    "\\ud800",
    "\\udc00",
    "\\u0000",
    "\u{feff}",
    "1e400",
    "-0",
    "-0.0",
    "9007199254740992",
    "1E2",
    "0.1",
    "NaN",
    ",,",
    "//",
    "[[[[[[[[[[[[[[[[",
    "{\"a\":{\"a\":{\"a\":",
    "]]]]",
    "}}}}",
    "\"\\u0061\"",
    "\"__proto__\"",
    "@evil.example",
    "\u{202e}",
    "é",
    "e\u{301}",
];

const ENTRY: &str = r#"
version = 1
[[tools.tool]]
name = "mail"
decision = "allow"
effect = "write"
schema = { type = "object", required = ["to"], properties = { to = { type = "string" }, subject = { type = "string", maxLength = 40, pattern = "^[a-z ]*$" }, amount = { type = "number", minimum = 0, maximum = 500 }, cc = { type = "array", maxItems = 3, uniqueItems = true, items = { type = "string" } }, mode = { enum = ["fast", "slow", 1] }, more = { type = "object", properties = { deep = {} } } } }
guards.to = { kind = "email", domains = ["company.com"] }
guards."cc[]" = { kind = "email", domains = ["company.com"] }
rules = [
  { when = "args.amount > 100.0", decision = "ask", message = "much" },
  { when = "has(args.more) && args.more.deep == 'no'", message = "no" },
]
"#;

static GATE: LazyLock<Gate> = LazyLock::new(|| super::gate(ENTRY));

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let seeds = [
        r#"{"to":"ann@company.com","subject":"figures","amount":12,"cc":["bob@company.com"],"mode":"fast"}"#,
        r#"{"to":"ann@company.com","amount":100.5,"more":{"deep":[1,{"x":null},true]}}"#,
        r#"{"to":"ann@company.com","mode":1,"more":{"deep":"no"}}"#,
        r#"{"to":"ann@evil.example"}"#,
        r#"[1,-0.0,1e2,0.30000000000000004,"\u00e9\ud83d\ude00"]"#,
    ];
    // The first is what mutations are to start from: it must be let in.
    assert_eq!(judge(&json::read(seeds[0]).unwrap()).0, Decision::Allow);
    seeds.map(|seed| seed.as_bytes().to_vec()).to_vec()
}

fn judge(args: &Json) -> (Decision, Option<Json>, Option<String>) {
    let caller = Caller { agent: "a".to_owned(), session: "s".to_owned(), key: None };
    let facts = ToolFacts::default();
    let call = Call {
        tool: "mail",
        args: args.clone(),
        caller: &caller,
        facts: &facts,
        counters: Counters::default(),
        now: 1_795_336_215_250,
    };
    let judged = GATE.judge(&call);
    let verdict = judged.verdict;
    assert!(verdict.decision == Decision::Allow || !verdict.reasons.is_empty(), "denied without a reason");
    (verdict.decision, verdict.args, verdict.hash)
}

pub(crate) fn read(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let value = match json::read(&text) {
        Ok(value) => value,
        Err(flaw) => {
            assert!(flaw.at <= text.len() && !flaw.what.is_empty() && !flaw.why.is_empty() && !flaw.fix.is_empty());
            return;
        }
    };
    one_form(&text, &value);
    let (decision, args, hash) = judge(&value);
    if decision == Decision::Deny {
        return;
    }
    let args = args.expect("what may run has its arguments");
    // What would run is a fixed point: an approver, the tool and a second look see the same value under the same hash.
    assert_eq!(hash.as_deref(), Some(json::hash("mail", &args).as_str()));
    assert_eq!(judge(&args), (decision, Some(args.clone()), hash));
    fits(&args);
    // A person is asked about what she sees: nothing of it acts on a terminal.
    let shown = gateway::approvals::sanitize_json(&args).text;
    assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{shown:?}");
}

/// Whatever is read is read back from its one form, by us and by another reader.
fn one_form(text: &str, value: &Json) {
    let form = json::canonical(value);
    let again = json::read(&form).unwrap_or_else(|flaw| panic!("{form}: {flaw}"));
    assert_eq!(&again, value, "{form}");
    assert_eq!(json::canonical(&again), form);
    assert_eq!(json::hash("t", &again), json::hash("t", value));
    let other: Json = serde_json::from_str(text).unwrap_or_else(|error| panic!("only ours reads {text:?}: {error}"));
    assert_eq!(&json::settle(&other).unwrap(), value, "another reader takes {text:?} otherwise");
    assert_eq!(&json::settle(value).unwrap(), value);
}

/// The schema and the guards once more, written by hand.
fn fits(args: &Json) {
    let table = args.as_object().expect("arguments have names");
    for (name, value) in table {
        match name.as_str() {
            "to" => assert!(is_ours(value), "{value}"),
            "subject" => {
                let text = value.as_str().expect("a text");
                assert!(text.chars().count() <= 40 && text.chars().all(|c| c.is_ascii_lowercase() || c == ' '));
            }
            "amount" => assert!((0.0..=500.0).contains(&value.as_f64().expect("a number"))),
            "cc" => {
                let all = value.as_array().expect("a list");
                assert!(all.len() <= 3 && all.iter().all(is_ours), "{value}");
            }
            "mode" => assert!(*value == "fast" || *value == "slow" || *value == 1, "{value}"),
            "more" => assert!(value.as_object().is_some_and(|more| more.keys().all(|key| key == "deep")), "{value}"),
            other => panic!("{other:?} is no argument"),
        }
    }
    assert!(table.contains_key("to"));
}

fn is_ours(value: &Json) -> bool {
    let Some((local, domain)) = value.as_str().and_then(|text| text.split_once('@')) else { return false };
    domain.eq_ignore_ascii_case("company.com")
        && !local.is_empty()
        && !local.contains(|c: char| c.is_control() || c == ' ')
}
