//! The reasons that the gate cannot know: limits, people, the record.

use std::time::Duration;

use gate::demand::{Demand, Want};
use gate::verdict::{Reason, Verdict};
use policy::diagnostic::quote;
use policy::tools::Decision;

use crate::limits::{Exceeded, LedgerFault, Unmet};

/// Makes a verdict a denial for these reasons; they come first.
pub(super) fn deny(verdict: &mut Verdict, mut reasons: Vec<Reason>) {
    let Some(first) = reasons.first() else { return };
    verdict.decision = Decision::Deny;
    verdict.rule.clone_from(&first.rule);
    verdict.instead.clone_from(&first.instead);
    reasons.append(&mut verdict.reasons);
    verdict.reasons = reasons;
}

/// Makes an `ask` that was answered an `allow`; what asked stays among the reasons.
pub(super) fn agreed(verdict: &mut Verdict, rule: &str, by: &str) {
    verdict.decision = Decision::Allow;
    verdict.instead.clear();
    verdict.reasons.insert(
        0,
        Reason {
            id: "tools.approval/given",
            rule: rule.to_owned(),
            at: None,
            decision: Decision::Allow,
            what: format!("{} agreed to this call", quote(by)),
            why: "the policy wanted a person to agree".to_owned(),
            instead: String::new(),
        },
    );
}

fn denial(id: &'static str, rule: &str, what: String, why: &str, instead: &str) -> Reason {
    let (rule, why, instead) = (rule.to_owned(), why.to_owned(), instead.to_owned());
    Reason { id, rule, at: None, decision: Decision::Deny, what, why, instead }
}

pub(super) fn of_unmet(unmet: &Unmet, demands: &[Demand]) -> Vec<Reason> {
    match unmet {
        Unmet::Exceeded(all) => all.iter().map(|exceeded| of_exceeded(exceeded, demands)).collect(),
        Unmet::Fault(fault) => vec![of_fault(fault)],
    }
}

fn of_fault(fault: &LedgerFault) -> Reason {
    let [what, why, fix] = fault.parts();
    let instead = format!("tell your user: {fix}");
    denial(fault.id(), "tools", what, &why, &instead)
}

fn of_exceeded(exceeded: &Exceeded, demands: &[Demand]) -> Reason {
    let Exceeded { demand, have, most, wait, want } = exceeded;
    let rule = demands.get(*demand).map_or("tools", |demand| &demand.rule);
    let again = match wait {
        Some(wait) => format!("try again in {}", span(*wait)),
        None => "try again when others have ended".to_owned(),
    };
    match want {
        Want::Rate { calls, per_ms, burst } => {
            let window = span(Duration::from_millis(*per_ms));
            let (what, why) = if u64::from(*calls) == *most {
                (format!("{have} calls were made within {window}"), format!("{calls} are allowed within {window}"))
            } else {
                (format!("{have} calls came at once"), format!("{burst} may come at once, and {calls} within {window}"))
            };
            denial("tools.rate/exceeded", rule, what, &why, &again)
        }
        Want::Budget { cost, window, .. } => {
            let is_total = wait.is_none() && window.is_none_or(|(limit, _)| limit != *most);
            let again = match wait {
                Some(_) => again,
                None if cost > most => "this call can never fit the budget".to_owned(),
                None => "the budget is used up; tell your user".to_owned(),
            };
            let span = if is_total {
                "in total".to_owned()
            } else {
                window.map_or_else(String::new, |(_, per)| format!("within {}", span(Duration::from_millis(per))))
            };
            let what = format!("{} are spent {span}, and this call may cost {}", amount(*have), amount(*cost));
            denial("tools.budget/exceeded", rule, what, &format!("{} may be spent {span}", amount(*most)), &again)
        }
        Want::Concurrency(most) => {
            let what = format!("{have} calls are running, or were given up and may still run");
            denial("tools.concurrency/exceeded", rule, what, &format!("{most} may run at once"), &again)
        }
    }
}

/// `12 s`, `340 ms`, `2 h`; rounded up, so that whoever waits so long waits long enough.
fn span(time: Duration) -> String {
    let ms = time.as_micros().div_ceil(1000);
    let of = |unit: u128, name: &str| format!("{} {name}", ms.div_ceil(unit));
    match ms {
        0..1_000 => of(1, "ms"),
        1_000..120_000 => of(1_000, "s"),
        120_000..7_200_000 => of(60_000, "min"),
        _ => of(3_600_000, "h"),
    }
}

/// Millionths as a decimal number.
fn amount(millionths: u64) -> String {
    let text = format!("{}.{:06}", millionths / 1_000_000, millionths % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

pub(super) fn unrecorded(why: &str, fault: Option<&LedgerFault>) -> Vec<Reason> {
    let what = "the decision could not be recorded".to_owned();
    let instead = "tell your user that `fumehood audit verify` and the free space of the disk need a look";
    let mut reasons = vec![denial("tools.record/unwritable", "audit", what, why, instead)];
    reasons.extend(fault.map(of_fault));
    reasons
}

pub(super) fn unusable_pattern(rule: &str, why: &str) -> Reason {
    let instead = "tell your user: write `result.redact` as the `regex` crate reads it";
    denial(
        "tools.result/pattern",
        rule,
        format!("a pattern of `result.redact` cannot be used: {why}"),
        "its result could not be redacted",
        instead,
    )
}

pub(super) fn no_arguments() -> Reason {
    let what = "there are no arguments that were judged".to_owned();
    denial("tools.args/none", "tools", what, "only what was judged is passed on", "call it with an object of arguments")
}

pub(super) fn changed(rule: &str) -> Reason {
    let what = "the arguments come out otherwise than when they were agreed to".to_owned();
    let why = "what they name (a path, a file) changed meanwhile, and nobody agreed to that";
    denial("tools.approval/changed", rule, what, why, "call it again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_long_enough_and_amounts_exact() {
        for (ms, text) in [
            (0, "0 ms"),
            (1, "1 ms"),
            (1001, "2 s"),
            (60_000, "60 s"),
            (119_001, "120 s"),
            (120_001, "3 min"),
            (86_400_000, "24 h"),
        ] {
            assert_eq!(span(Duration::from_millis(ms)), text);
        }
        assert_eq!(span(Duration::from_micros(1)), "1 ms");
        assert_eq!((amount(20_000).as_str(), amount(5_000_000).as_str(), amount(0).as_str()), ("0.02", "5", "0"));
    }
}
