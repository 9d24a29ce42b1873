//! One call against all entries that match.

use policy::tools::{Decision, Effect, ResultRule};

use super::{Gate, Judged, rule_name};
use crate::call::Call;
use crate::verdict::{Reason, Verdict};
use crate::{json, names};

pub(super) fn judge(gate: &Gate, call: &Call<'_>) -> Judged {
    let mut reasons = Vec::new();
    let entries = if names::is_name(call.tool) { gate.matching(call.tool) } else { Vec::new() };
    for index in &entries {
        let Some(entry) = gate.tools.entries.get(*index) else { continue };
        reasons.push(Reason {
            id: "tools.entry/decision",
            rule: rule_name(*index, "").to_string(),
            at: Some(gate.documents.locate(entry.name.at)),
            decision: entry.decision,
            what: format!("`{}` is `{}`", entry.name.value, entry.decision.word()),
            why: "the policy says so".to_owned(),
            instead: String::new(),
        });
    }
    if entries.is_empty() {
        reasons.push(Reason {
            id: "tools.entry/none",
            rule: "tools.default".to_owned(),
            at: None,
            decision: gate.tools.default,
            what: format!("no entry names {}", policy::mistake::quote(call.tool)),
            why: "what no entry names gets the default".to_owned(),
            instead: "call a tool that the policy names".to_owned(),
        });
    }
    reasons.sort_by_key(|reason| std::cmp::Reverse(reason.decision));
    let first = reasons.first();
    let verdict = Verdict {
        decision: first.map_or(Decision::Deny, |reason| reason.decision),
        rule: first.map(|reason| reason.rule.clone()).unwrap_or_default(),
        instead: first.map(|reason| reason.instead.clone()).unwrap_or_default(),
        reasons,
        args: Some(call.args.clone()),
        hash: Some(json::hash(call.tool, &call.args)),
    };
    let result = ResultRule { max: ResultRule::MOST, redact: Vec::new(), types: Vec::new() };
    Judged { verdict, entries, limits: Vec::new(), timeout: None, result, effect: Effect::Write }
}
