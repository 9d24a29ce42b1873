//! Entries of a policy, chosen and ordered by the input: order never counts, and what is added never weakens.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use gate::rules::Counters;
use gate::{Call, Caller, ToolFacts, json};
use gate::{Gate, Listed};
use policy::tools::{Decision, Effect};
use serde_json::Value as Json;

/// What can be chosen; each by one byte of the input.
const ENTRIES: &[&str] = &[
    "name = \"s.send\"\ndecision = \"allow\"\neffect = \"write\"",
    "name = \"s.send\"\ndecision = \"allow\"\neffect = \"read\"",
    "name = \"s.*\"\ndecision = \"allow\"\neffect = \"read\"",
    "name = \"s.*\"\ndecision = \"ask\"",
    "name = \"s.se*\"\ndecision = \"deny\"",
    "name = \"*\"\ndecision = \"allow\"\neffect = \"read\"",
    "name = \"t.*\"\ndecision = \"deny\"",
    "name = \"s.send\"\ndecision = \"allow\"\neffect = \"write\"\nschema = { type = \"object\", properties = { a = { type = \"string\" }, n = { type = \"number\" } } }",
    "name = \"s.send\"\ndecision = \"allow\"\neffect = \"write\"\nschema = { type = \"object\", properties = { a = {}, n = { maximum = 10 } } }",
    "name = \"s.*\"\ndecision = \"allow\"\neffect = \"read\"\nguards.a = { kind = \"length\", max = 5 }",
    "name = \"s.send\"\ndecision = \"allow\"\neffect = \"write\"\nguards.a = { kind = \"enum\", values = [\"x\", \"yes\"] }",
    "name = \"s.send\"\ndecision = \"allow\"\neffect = \"write\"\nrules = [{ when = \"args.n > 5\", decision = \"ask\", message = \"m\" }]",
    "name = \"s.*\"\ndecision = \"allow\"\neffect = \"read\"\nrules = [{ when = \"args.a == 'x'\", message = \"m\" }]",
    "name = \"s.send\"\ndecision = \"allow\"\neffect = \"write\"\napproval = \"always\"",
    "name = \"s.send\"\ndecision = \"allow\"\neffect = \"write\"\nrate = { calls = 3, per = \"1m\" }\ntimeout = \"5s\"\nresult = { max = \"1K\" }",
    "name = \"s.list\"\ndecision = \"allow\"\neffect = \"read\"\ntimeout = \"2s\"\nresult = { max = \"2K\" }",
];
const TOOLS: &[&str] = &["s.send", "s.list", "t.send", "s.sen", "S.send"];

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    for (chosen, args) in [
        (&[0, 2][..], r#"{"a":"x","n":1}"#),
        (&[0, 4, 5], "{}"),
        (&[7, 11, 12], r#"{"a":"yes","n":6}"#),
        (&[10, 9, 8], r#"{"a":"x"}"#),
        (&[14, 3, 13], r#"{"n":2.5}"#),
    ] {
        let mut seed = vec![0, u8::try_from(chosen.len()).unwrap()];
        seed.extend(chosen);
        seed.extend(args.bytes());
        seeds.push(seed);
    }
    seeds
}

fn gate_of(chosen: &[usize]) -> Arc<Gate> {
    static MADE: LazyLock<Mutex<HashMap<Vec<usize>, Arc<Gate>>>> = LazyLock::new(Mutex::default);
    let mut made = MADE.lock().unwrap();
    if made.len() > 2000 {
        made.clear();
    }
    let make = || {
        let entries: Vec<String> = chosen.iter().map(|at| format!("[[tools.tool]]\n{}\n", ENTRIES[*at])).collect();
        Arc::new(super::gate(&format!("version = 1\n[tools]\n{}", entries.concat())))
    };
    Arc::clone(made.entry(chosen.to_vec()).or_insert_with(make))
}

struct Seen {
    decision: Decision,
    args: Option<Json>,
    ids: Vec<&'static str>,
    timeout: Option<u64>,
    most: u64,
    limits: usize,
}

fn judge(gate: &Gate, tool: &str, args: &Json, facts: &ToolFacts) -> Seen {
    let caller = Caller { agent: "a".to_owned(), session: "s".to_owned(), key: None };
    let judged = gate.judge(&Call {
        tool,
        args: args.clone(),
        caller: &caller,
        facts,
        counters: Counters::default(),
        now: 1_795_336_215_250,
    });
    let mut ids: Vec<_> = judged.verdict.reasons.iter().map(|reason| reason.id).collect();
    ids.sort_unstable();
    ids.dedup();
    Seen {
        decision: judged.verdict.decision,
        args: judged.verdict.args,
        ids,
        timeout: judged.timeout.map(|timeout| timeout.0),
        most: judged.result.max.0,
        limits: judged.limits.len(),
    }
}

const fn rank(decision: Decision) -> u8 {
    match decision {
        Decision::Allow => 0,
        Decision::Ask => 1,
        Decision::Deny => 2,
    }
}

pub(crate) fn read(bytes: &[u8]) {
    let [tool, count, rest @ ..] = bytes else { return };
    let facts = ToolFacts {
        effect: [None, Some(Effect::Read), Some(Effect::Write)][usize::from(*tool >> 4) % 3],
        ..ToolFacts::default()
    };
    let tool = TOOLS[usize::from(*tool) % TOOLS.len()];
    let count = (1 + usize::from(*count) % 4).min(rest.len());
    let (chosen, text) = rest.split_at(count);
    let mut chosen: Vec<usize> = chosen.iter().map(|byte| usize::from(*byte) % ENTRIES.len()).collect();
    let args = json::read(&String::from_utf8_lossy(text)).unwrap_or_else(|_| Json::Object(serde_json::Map::new()));
    let all = judge(&gate_of(&chosen), tool, &args, &facts);
    assert!(all.decision == Decision::Deny || all.args.is_some());

    // What cannot be called at all is not listed, and what is listed was not hidden by an order.
    if matches!(gate_of(&chosen).lists(tool, &facts), Listed::Hidden) {
        assert_eq!(all.decision, Decision::Deny, "{chosen:?}: hidden and yet callable");
    }
    let Some(last) = chosen.pop() else { return };
    if !chosen.is_empty() {
        let fewer = judge(&gate_of(&chosen), tool, &args, &facts);
        // An entry that names a write, or the schema that an unguarded argument needs, is what opens: nothing else does.
        let opens = ["tools.entry/none", "tools.effect/unnamed", "tools.effect/raised", "tools.schema/none"];
        if !fewer.ids.iter().any(|id| opens.contains(id)) {
            assert!(rank(all.decision) >= rank(fewer.decision), "{chosen:?} and {last}: {tool} {args}");
            assert!(all.decision == Decision::Deny || all.args == fewer.args, "{chosen:?} and {last}: {args}");
            assert!(all.limits >= fewer.limits && all.most <= fewer.most, "{chosen:?} and {last}");
            assert!(all.timeout.unwrap_or(u64::MAX) <= fewer.timeout.unwrap_or(u64::MAX), "{chosen:?} and {last}");
        }
    }
    chosen.insert(0, last);
    for _ in 0..chosen.len() {
        chosen.rotate_left(1);
        let turned = judge(&gate_of(&chosen), tool, &args, &facts);
        assert_eq!((turned.decision, &turned.args), (all.decision, &all.args), "{chosen:?}: {tool} {args}");
        assert_eq!((turned.timeout, turned.most, turned.limits), (all.timeout, all.most, all.limits), "{chosen:?}");
        assert_eq!(turned.ids, all.ids, "{chosen:?}: {tool} {args}");
    }
}
