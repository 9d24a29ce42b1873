//! Conditions (CEL): whatever is read ends soon and the same each time, and every flaw lies within the text.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use gate::rules::{Condition, Counters, EvalContext};
use serde_json::{Value as Json, json};

pub(crate) const TOKENS: &[&str] = &[
    "args.amount",
    "args.to",
    "args.cc",
    "args[\"x\"]",
    "counters.tool",
    "session",
    "agent",
    "now",
    " && ",
    " || ",
    "!",
    "has(args.x)",
    ".all(x, ",
    ".exists(x, ",
    ".map(x, ",
    ".filter(x, x > 1)",
    ".matches('^(a+)+$')",
    ".matches('(.*){1000}')",
    ".startsWith('a')",
    ".contains('b')",
    ".size()",
    "size(",
    " in ",
    " ? true : false",
    "[1, 2, 3]",
    "{'a': 1}",
    "9223372036854775807",
    "-9223372036854775808",
    "1u",
    "1e308",
    " / 0",
    " % 0",
    "((((((((",
    "))))))))",
    "timestamp('2026-01-01T00:00:00Z')",
    "duration('1h')",
    "b'\\xff'",
    "\\U0010ffff",
    "r'\\d'",
    "'''",
    "é",
    "\u{1f600}",
    "int(",
    "double(",
    "string(",
    "type(",
    "dyn(",
    "null",
    "//",
    "@",
    "?.",
    "_?_:_",
    "__result__",
];

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    [
        "args.amount > 100.0 && agent != 'boss'",
        "has(args.cc) && args.cc.exists(x, !x.endsWith('@company.com'))",
        "counters.tool >= 10 || counters.session > 100 || counters.total > 1000",
        "args.to.matches('^[a-z]+@company\\\\.com$')",
        "args.cc.all(x, args.cc.exists(y, x == y))",
        "args.cc.map(x, size(x)).filter(n, n > 3) == [4, 5]",
        "now > timestamp('2026-01-01T00:00:00Z') && now.getHours() < 8",
        "args.mode in ['fast', 'slow'] ? args.amount * 2.0 < 5.0 : session == 's'",
        "size(args.to) % 3 == 1 && -args.n < 4 && !(args.flag)",
        "args['amount'] == 3 || {'a': [1, 2]}.a[1] == 2",
        "((((args.n + 1) * 2) - 3) / 4) <= 5",
    ]
    .map(|seed| seed.as_bytes().to_vec())
    .to_vec()
}

static ARGS: LazyLock<Vec<Json>> = LazyLock::new(|| {
    let many: Vec<Json> = (0..400).map(|n| json!(format!("user{n}@company.com"))).collect();
    vec![
        json!({}),
        json!({"amount": 12, "to": "ann@company.com", "cc": ["b@company.com", "c@x"], "mode": "fast", "n": 7, "flag": true}),
        json!({"amount": 1e300, "to": "a".repeat(5000), "cc": many, "n": -9_007_199_254_740_992_i64, "mode": null}),
        json!({"amount": "text", "to": ["list"], "cc": {"a": 1}, "n": [[[[1]]]], "x": {"y": {"z": []}}}),
    ]
});

static SCHEMA: LazyLock<Json> = LazyLock::new(|| {
    json!({"type": "object", "properties": {
        "amount": {"type": "number"}, "to": {"type": "string"}, "cc": {"type": "array", "items": {"type": "string"}},
        "mode": {"enum": ["fast", "slow"]}, "n": {"type": "integer"}, "flag": {"type": "boolean"}, "x": {},
    }})
});

/// A condition has fuel, not time; on a slow and busy machine the fuel burns in far less than this.
const SOON: Duration = Duration::from_secs(20);

pub(crate) fn read(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for schema in [None, Some(&*SCHEMA)] {
        let begun = Instant::now();
        let compiled = Condition::compile(&text, schema);
        assert!(begun.elapsed() < SOON, "compiling took {:?}", begun.elapsed());
        let condition = match compiled {
            Ok(condition) => condition,
            Err(flaw) => {
                assert!(text.get(flaw.range.clone()).is_some(), "{:?} of {text:?}", flaw.range);
                assert!(!flaw.what.is_empty() && !flaw.why.is_empty() && !flaw.fix.is_empty(), "{flaw:?}");
                continue;
            }
        };
        assert_eq!(condition.text(), text);
        for hint in condition.hints() {
            assert!(text.get(hint.range.clone()).is_some(), "{:?} of {text:?}", hint.range);
        }
        let mut answers = Vec::new();
        for args in ARGS.iter() {
            let facts = |now, tool| EvalContext {
                args,
                session: "s",
                agent: "a",
                counters: Counters { tool, ..Counters::default() },
                now,
            };
            let begun = Instant::now();
            let answer = condition.holds(&facts(1_795_336_215_250, 3));
            assert!(begun.elapsed() < SOON, "{text:?} took {:?}", begun.elapsed());
            assert_eq!(condition.holds(&facts(1_795_336_215_250, 3)), answer, "{text:?}");
            // What it says that it looks at is all that it looks at.
            let uses = condition.uses();
            if !uses.now {
                assert_eq!(condition.holds(&facts(0, 3)), answer, "{text:?} looks at the time");
            }
            if !uses.counters {
                assert_eq!(condition.holds(&facts(1_795_336_215_250, 0)), answer, "{text:?} looks at counters");
            }
            answers.push(answer.ok());
        }
        if !condition.uses().args {
            assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "{text:?} looks at arguments: {answers:?}");
        }
    }
}
