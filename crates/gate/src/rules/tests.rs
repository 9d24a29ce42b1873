//! Conditions as people write them, as attackers feed them, and beside the `cel` library's own evaluation.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn facts(args: &Json) -> EvalContext<'_> {
    // 2026-11-22T08:30:15.250Z, a Sunday.
    let counters = Counters { tool: 3, session: 10, total: 100 };
    EvalContext { args, session: "s-1", agent: "builder", counters, now: 1_795_336_215_250 }
}

fn holds(text: &str, args: &Json) -> Result<bool, Failure> {
    Condition::compile(text, None).unwrap_or_else(|flaw| panic!("{text}: {flaw:?}")).holds(&facts(args))
}

fn flaw(text: &str, schema: Option<&Json>) -> CelError {
    match Condition::compile(text, schema) {
        Ok(_) => panic!("{text} was taken"),
        Err(flaw) => {
            assert!(text.get(flaw.range.clone()).is_some(), "{text}: {flaw:?}");
            assert!(![&flaw.what, &flaw.why, &flaw.fix].iter().any(|part| part.is_empty()));
            flaw
        }
    }
}

#[test]
fn conditions_see_arguments_session_agent_counters_and_time() {
    let args = json!({"amount": 150, "to": ["a@x.org", "b@y.org"], "note": null, "deep": {"x": 1.5}, "t": "2026-01-01T00:00:00Z"});
    for text in [
        "args.amount > 100.0",
        "args.amount * 1.1 > 164.9",
        "args['amount'] == 150",
        "agent == 'builder' && session.startsWith('s-')",
        "counters.tool >= 3 && counters.session == 10 && counters.total < 101",
        "args.to.exists(x, x.endsWith('@y.org'))",
        "!args.to.all(x, x.endsWith('@y.org'))",
        "args.to.exists_one(x, x.startsWith('a'))",
        "args.to.map(x, size(x)) == [7, 7]",
        "size(args.to.filter(x, x.contains('@x'))) == 1",
        "args.to.map(x, x > 'b', x.upperAscii()) == ['B@Y.ORG']",
        "has(args.note) && args.note == null && !has(args.other)",
        "has(args.deep.x) && args.deep.x / 0.5 == 3.0",
        "args.deep == {'x': 1.5}",
        "args.to[1].matches('^b@y[.]org$')",
        "'amount' in args && !('b' in args.to)",
        "args.to.exists(x, args.to.exists(y, x != y))",
        "now > timestamp('2026-01-01T00:00:00Z') && now.getHours() == 8 && now.getHours('+02:00') == 10",
        "now.getDayOfWeek() == 0 && now.getMonth() == 10 && now.getDate() == 22 && now.getDayOfMonth() == 21",
        "now.getMinutes('-00:30') == 0 && now.getMilliseconds() == 250 && now.getDayOfYear() == 325",
        "now - timestamp(args.t) > duration('24h') && duration('1h30m').getMinutes() == 90",
        "args.amount > 100 ? agent != 'root' : false",
        "false || args.missing == 1 || true",
        "!(args.missing == 1 && false)",
        "args.to.exists(x, x.nope == 1 || x == 'b@y.org')",
        "-args.amount == -150 && args.amount % 7 == 3 && 7 / 2 == 3 && -7 / 2 == -3",
        "string(args.amount) == '150' && int('42') == 42 && double(1) == 1.0 && bool('true')",
        "// a comment\nargs.amount > 1",
        "args.to + ['c'] == ['a@x.org', 'b@y.org', 'c'] && 'a' + 'b' == 'ab'",
        "{'a': 1, 2: 'x'}[2] == 'x' && [1, 2][1.0] == 2",
        "args.exists(k, k == 'deep')",
    ] {
        assert_eq!(holds(text, &args), Ok(true), "{text}");
    }
}

#[test]
fn what_cannot_be_evaluated_is_a_failure_and_says_where() {
    let args = json!({"amount": "150", "list": [1], "big": 9_007_199_254_740_992_i64});
    for (text, part) in [
        ("args.missing == 1", "args.missing"),
        ("args.amount > 100.0", "args.amount > 100.0"),
        ("args.list[1] == 1", "args.list[1"),
        ("args.list[-1] == 1", "args.list"),
        ("args.amount", "args.amount"),
        ("args.amount.x == 1", "args.amount"),
        ("1 / args.list.size() == 1 && 1 / (args.list.size() - 1) == 1", "1 / "),
        ("args.big * args.big > 1", "args.big * args.big"),
        ("args.list.all(x, x > 'a')", "x > 'a'"),
        ("int(args.amount + 'x') == 1", "args.amount + 'x"),
        ("has(args.amount.x)", "args.amount"),
        ("args.list.exists(x, x == 2 || x.y == 3)", "x"),
        ("{args.amount: 1, '150': 2}.size() == 2", "'150'"),
    ] {
        let failure = holds(text, &args).expect_err(text);
        assert!(failure.what.contains(part), "{text}: {}", failure.what);
    }
}

#[test]
fn flaws_are_found_when_the_policy_loads_and_point_at_their_bytes() {
    for (text, part, says) in [
        ("arg.amount > 1", "arg", "not known"),
        ("args.amount > 1 &&", "", "no CEL"),
        ("args.amount >", "", "no CEL"),
        ("1 + 1", "1 + 1", "not true or false"),
        ("'yes'", "'yes'", "not true or false"),
        ("args.to + 'x'", "args.to + 'x'", "not true or false"),
        ("size(args.to)", "size(args.to", "not true or false"),
        ("false", "false", "never true"),
        ("1 == 2", "1 == 2", "never true"),
        ("1 / 0 == 1", "1 / 0 == 1", "always fails"),
        ("counters.tools > 1", "counters.tools", "no counter"),
        ("counters == 1", "counters", "no value"),
        ("counters.tool < 0", "counters.tool < 0", "never true"),
        ("args.x > 5 && args.x < 3", "args.x > 5 && args.x < 3", "never true"),
        ("args.x == 'a' && args.x == 'b'", "args.x == 'a' && args.x == 'b'", "never true"),
        ("args.x in ['a', 'b'] && args.x == 'c'", "args.x in ['a', 'b'] && args.x == 'c'", "never true"),
        ("args.x > 5 && args.y && 2 > args.x", "args.x > 5 && args.y && 2 > args.x", "never true"),
        ("args.x == 1 && (args.y && false)", "args.x == 1 && (args.y && false", "never true"),
        ("agent.endsWith('x', 'y')", "endsWith", "not known here"),
        ("agent.endWith('x')", "endWith", "not known here"),
        ("agent > 1", "agent > 1", "no order"),
        ("agent == 1", "agent == 1", "never equals"),
        ("agent - 'x' == 'y'", "agent - 'x'", "do not go together"),
        ("agent.matches(session)", "session", "not literal"),
        ("agent.matches('(a')", "'(a'", "cannot be used"),
        ("agent.matches('(?=a)')", "'(?=a)'", "cannot be used"),
        ("agent.matches('(((a{99}){99}){99})')", "'(((a{99}){99}){99})'", "cannot be used"),
        ("now.getHours('Europe/Berlin') == 1", "'Europe/Berlin'", "no offset"),
        ("now > timestamp('yesterday')", "timestamp", "no timestamp"),
        ("now - now > duration('1 hour')", "duration", "no duration"),
        ("args.n == 1u", "1u", "unsigned"),
        ("args.n == b'x'", "b'x'", "bytes"),
        ("has(args)", "has", "wants a field"),
        ("args.l.all('x', true)", "'x'", "name of a variable"),
        ("args.l.all(a, a.all(b, b.all(c, c == 1)))", "all", "in each other"),
        ("Foo{a: 1} == args.x", "", "message"),
        ("args.?x == 1", "", "no CEL"),
        ("now > args.x", "now > args.x", "no order"),
        ("dyn(args.x) == 1", "dyn", "not known here"),
    ] {
        let flaw = flaw(text, None);
        assert!(flaw.what.contains(says), "{text}: {flaw:?}");
        assert!(text.get(flaw.range.clone()).unwrap().contains(part), "{text}: {:?}", text.get(flaw.range));
    }
}

#[test]
fn a_flaw_behind_letters_of_many_bytes_is_at_its_bytes() {
    let text = "agent == '\u{1f600}\u{e9}' || agnt == 'x'";
    assert_eq!(text.get(flaw(text, None).range), Some("agnt"));
    let text = "agent == '\u{1f600}\u{e9}' &&\n agent == '\u{1f600}' | 'x'";
    let found = flaw(text, None);
    assert_eq!(text.get(found.range.clone()), Some("|"), "{found:?}");
}

#[test]
fn the_schema_says_what_arguments_there_are_and_what_they_can_be() {
    let schema = json!({
        "type": "object",
        "properties": {
            "amount": {"type": "number", "minimum": 0, "maximum": 100},
            "to": {"type": "array", "items": {"type": "object", "properties": {"mail": {"type": "string"}}}},
            "kind": {"enum": ["a", "b"]},
            "free": {"type": "object", "properties": {"x": {}}, "additionalProperties": true},
            "any": {},
        },
    });
    for (text, says) in [
        ("args.amuont > 1", "no `amuont`"),
        ("has(args.other)", "no `other`"),
        ("args['other'] == 1", "no `other`"),
        ("args.to[0].male == 'x'", "no `male`"),
        ("args.to.exists(t, t.male == 'x')", "no `male`"),
        ("args.amount > 100", "never true"),
        ("args.amount == -1", "never true"),
        ("args.amount == '5'", "never equals"),
        ("args.amount.startsWith('5')", "where text is needed"),
        ("args.kind == 'c'", "never true"),
        ("args.kind == 'a' && args.kind == 'b'", "never true"),
        ("args.kind in ['c', 'd']", "never true"),
        ("args.amount", "not true or false"),
        ("args.amount.x == 1", "has no fields"),
    ] {
        let flaw = flaw(text, Some(&schema));
        assert!(flaw.what.contains(says), "{text}: {flaw:?}");
    }
    for text in [
        "args.amount >= 100",
        "args.kind == 'b' || args.kind == 'c'",
        "args.free.y == 1",
        "args.any.z == 1",
        "args.to.exists(t, t.mail == 'x')",
        "args.any",
        "args.any > 5 && args.any < 6",
        "!(args.kind == 'c')",
    ] {
        assert!(Condition::compile(text, Some(&schema)).is_ok(), "{text}");
    }
}

#[test]
fn what_a_condition_uses_is_known_and_loose_patterns_are_hinted_at() {
    let uses = |text| Condition::compile(text, None).unwrap().uses();
    assert_eq!(uses("agent == 'x'"), Uses::default());
    assert_eq!(uses("args.x == 1 && counters.tool > 1"), Uses { args: true, counters: true, now: false });
    assert!(uses("now.getHours() > 8").now && uses("has(args.x)").args);
    let hints = |text| Condition::compile(text, None).unwrap().hints().len();
    assert_eq!((hints("agent.matches('^a$')"), hints("agent.matches('a')")), (0, 1));
}

/// Runs in a thread with the smallest stack that a runtime gives.
fn in_small_stack<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap().join().unwrap()
}

#[test]
fn texts_at_the_caps_are_read_and_evaluated_on_a_small_stack() {
    let nested = |open: &str, inner: &str, close: &str| {
        format!("{}{inner}{}", open.repeat(MAX_NESTED), close.repeat(MAX_NESTED))
    };
    let texts = vec![
        vec!["args.n"; MAX_OPERATORS / 2].join("+") + " > 1",
        vec!["1"; MAX_OPERATORS].join("+") + " > 1",
        vec!["args.t"; MAX_OPERATORS / 2].join("&&"),
        vec!["true"; MAX_OPERATORS].join("||"),
        format!("{}true", "!".repeat(MAX_OPERATORS)),
        format!("{}1 < 5", "-".repeat(MAX_OPERATORS - 1)),
        format!("args{} == 1", ".a".repeat(MAX_OPERATORS - 1)),
        format!("args{} == 1", "[0]".repeat(1000)),
        format!("args{} == 1", "[0]".repeat(100)),
        format!("{}true", "true ? true : ".repeat(MAX_OPERATORS / 2)),
        format!("{}true", "true ? ".repeat(MAX_OPERATORS)),
        nested("(", "args.t", ")"),
        nested("[", "1", "]") + " == args.t",
        nested("{1:", "1", "}") + " == args.t",
        nested("size(", "args.s", ")") + " == 1",
        nested("size([", "1", "])") + " == 1",
        vec!["1"; MAX_OPERATORS].join(" in ") + " == 1",
        vec!["1"; MAX_OPERATORS].join(" < "),
        "(".repeat(MAX_BYTES),
        "a".repeat(MAX_BYTES),
        "'".repeat(MAX_BYTES),
        "1 ".repeat(MAX_BYTES / 2),
        "a b".repeat(MAX_BYTES / 3),
        "f(".repeat(MAX_NESTED),
        format!("[{}1]", "1,".repeat(2000)) + " == args.t",
        format!("f({}1)", "1,".repeat(2000)),
        "in ".repeat(1000),
        "!-".repeat(MAX_OPERATORS / 2) + "1",
    ];
    for text in texts {
        in_small_stack(move || {
            if let Ok(condition) = Condition::compile(&text, None) {
                let args = json!({"n": 1, "t": true, "s": "x", "a": {"a": 1}});
                let _answer = condition.holds(&facts(&args));
            }
        });
    }
}

/// What this thread has worked so far: a clock on the wall also counts what the machine did for others.
fn worked() -> Duration {
    rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime).try_into().unwrap()
}

#[test]
fn hostile_arguments_and_expressions_end_soon() {
    let long = "a".repeat(1 << 20);
    let args =
        json!({"s": long, "l": vec![1; 100_000], "ll": vec![vec![1; 300]; 300], "d": {"x": vec!["y".repeat(99); 999]}});
    let doubling = "[args.s]".to_owned() + &".map(x, x + x)".repeat(12) + ".size() == 1";
    for text in [
        "args.l.all(x, args.l.all(y, x == y))",
        "args.l.exists(x, args.l.exists(y, x + y == 5))",
        "args.l.map(x, args.l).size() == 1",
        "args.ll.all(x, args.ll == args.ll)",
        "args.d.x.all(x, args.d == args.d)",
        "args.s.matches('(a+)+$')",
        "args.l.all(x, args.s.contains('b') || true)",
        "args.l.map(x, args.l + args.l).size() == 1",
        "args.l.all(x, args.s + args.s == '')",
        "args.s + args.s + args.s + args.s == args.s + args.s",
        "size(args.s) > 1 && args.l.all(x, size(args.s) > 1)",
        doubling.as_str(),
    ] {
        let condition = Condition::compile(text, None).unwrap();
        let begun = worked();
        let answer = condition.holds(&facts(&args));
        let took = worked().saturating_sub(begun);
        assert!(took < Duration::from_secs(1), "{text}: {took:?}");
        if let Err(failure) = answer {
            assert!(failure.what.contains("takes too long"), "{text}: {}", failure.what);
        }
    }
    // Nothing absorbs the end of the fuel.
    assert!(holds("args.l.all(x, args.l.all(y, x == y)) || true", &args).is_err());
    assert!(holds("true || args.l.all(x, args.l.all(y, x == y))", &args).unwrap());
}

/// What the library says: `None` for an error.
fn library(text: &str, args: &Json) -> Option<bool> {
    let program = cel::Program::compile(text).ok()?;
    let mut context = cel::Context::default();
    context.add_variable("args", args).ok()?;
    context.add_variable_from_value("agent", "builder");
    context.add_variable_from_value("session", "s-1");
    match program.execute(&context) {
        Ok(cel::Value::Bool(truth)) => Some(truth),
        _ => None,
    }
}

fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("args.i".to_owned()),
        Just("args.j".to_owned()),
        Just("args.d".to_owned()),
        Just("args.s".to_owned()),
        Just("args.t".to_owned()),
        Just("args.l".to_owned()),
        Just("args.m".to_owned()),
        Just("args.m.x".to_owned()),
        Just("args.z".to_owned()),
        Just("args.none".to_owned()),
        Just("agent".to_owned()),
        Just("0".to_owned()),
        Just("1".to_owned()),
        Just("2".to_owned()),
        Just("-3".to_owned()),
        Just("9223372036854775807".to_owned()),
        Just("1.5".to_owned()),
        Just("2.0".to_owned()),
        Just("'a'".to_owned()),
        Just("'builder'".to_owned()),
        Just("''".to_owned()),
        Just("true".to_owned()),
        Just("false".to_owned()),
        Just("null".to_owned()),
        Just("[1, 2]".to_owned()),
        Just("[]".to_owned()),
        Just("{'x': 1}".to_owned()),
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        let two = (inner.clone(), inner.clone());
        prop_oneof![
            (
                two.clone(),
                prop::sample::select(vec!["+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||", "in"])
            )
                .prop_map(|((a, b), op)| format!("({a} {op} {b})")),
            inner.clone().prop_map(|a| format!("!{a}")),
            inner.clone().prop_map(|a| format!("size({a})")),
            inner.clone().prop_map(|a| format!("string({a})")),
            inner.clone().prop_map(|a| format!("int({a})")),
            inner.clone().prop_map(|a| format!("{a}.startsWith('b')")),
            inner.clone().prop_map(|a| format!("{a}.contains('a')")),
            two.clone().prop_map(|(a, b)| format!("{a}[{b}]")),
            (two.clone(), inner).prop_map(|((a, b), c)| format!("({a} ? {b} : {c})")),
            (two.clone(), prop::sample::select(vec!["all", "exists", "exists_one", "filter", "map"]))
                .prop_map(|((a, b), each)| format!("{a}.{each}(x, {})", b.replace("args.i", "x"))),
            two.prop_map(|(a, b)| format!("[{a}, {b}]")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, max_global_rejects: 1_000_000, ..ProptestConfig::default() })]

    #[test]
    fn where_the_library_has_an_answer_ours_is_the_same(a in value(), b in value(), op in prop::sample::select(vec!["==", "!=", "<", "&&", "||", "in"])) {
        let args = json!({"i": 1, "j": -7, "d": 2.5, "s": "a", "t": true, "l": [1, 2, "a"], "m": {"x": 2}, "z": null});
        let text = format!("{a} {op} {b}");
        let Some(theirs) = library(&text, &args) else { return Ok(()) };
        // A flaw that we find when it loads is stricter, and never another answer.
        if let Ok(condition) = Condition::compile(&text, None) {
            prop_assert_eq!(condition.holds(&facts(&args)).ok(), Some(theirs), "{}", text);
        }
    }

    #[test]
    fn no_text_makes_compiling_or_evaluating_panic(text in "[-a-z0-9 .()\\[\\]{}'\"!&|<>=+*/%?:,_]{0,60}") {
        let args = json!({"a": 1, "b": [1], "c": {"d": "x"}});
        if let Ok(condition) = Condition::compile(&text, None) {
            let _answer = condition.holds(&facts(&args));
        }
    }
}
