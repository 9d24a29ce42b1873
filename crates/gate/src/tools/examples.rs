//! Examples of calls, tried when the policy loads: one that comes out otherwise fails the load.

use policy::diagnostic::{Diagnostics, quote};
use policy::tools::{Example, ToolEntry, Tools};

use super::Gate;
use super::compile::mistake;
use crate::call::{Call, Caller, ToolFacts};
use crate::names;
use crate::rules::Counters;

/// When examples happen: Monday, 5 January 2026, noon (UTC), so that conditions on time come out alike every day.
const NOW: u64 = 1_767_614_400_000;

/// Tries all examples.
pub(super) fn hold(gate: &Gate, tools: &Tools) -> Result<(), Diagnostics> {
    let mut mistakes = Diagnostics::default();
    for entry in &tools.entries {
        for example in &entry.examples {
            one(gate, entry, example, &mut mistakes);
        }
    }
    if mistakes.list.is_empty() { Ok(()) } else { Err(mistakes.in_order()) }
}

fn one(gate: &Gate, entry: &ToolEntry, example: &Example, mistakes: &mut Diagnostics) {
    let tool = example.tool.as_deref().unwrap_or(&entry.name.value);
    if !names::matches(&entry.name.value, tool) {
        let what = format!("an example calls {}", quote(tool));
        let why = format!("the entry is about {}", quote(&entry.name.value));
        let fix = "move it to the entry of that tool";
        mistakes.add(mistake(&gate.documents, example.at, "tools.example/elsewhere", what, why, fix));
        return;
    }
    let caller = Caller { agent: "example".to_owned(), session: "example".to_owned(), key: None };
    let facts = ToolFacts::default();
    let call = Call {
        tool,
        args: example.args.clone(),
        caller: &caller,
        facts: &facts,
        counters: Counters::default(),
        now: NOW,
    };
    let verdict = gate.judge(&call).verdict;
    if verdict.decision == example.expect {
        return;
    }
    let what = format!("an example of {} comes out as `{}`", quote(tool), verdict.decision.as_str());
    let reason = verdict.reasons.first();
    let why = match reason {
        Some(reason) => {
            format!("`{}` is expected, and {}: {} ({})", example.expect.as_str(), reason.rule, reason.what, reason.why)
        }
        None => format!("`{}` is expected", example.expect.as_str()),
    };
    let fix = "change the entry or the example, whichever is wrong";
    mistakes.add(mistake(&gate.documents, example.at, "tools.example/otherwise", what, why, fix));
}
