//! Then and now: two plans, two hosts, two ends.

use std::collections::BTreeSet;

use sandbox::Finished;
use sandbox::fault::{Fault, show_text};
use serde_json::{Map, Value, json};

use super::fault;
use super::record::RecordedRun;

/// Of a clause's holder.
const HELD: &[&str] = &["enforcer", "strength", "against", "overshoot", "evidence"];
/// Of an end.
const OUTCOME: &[&str] = &["kind", "code", "signal", "limit"];

/// The members of `body[key]` that are others in `now`.
pub(super) fn members(body: &Value, key: &str, now: &Value) -> Vec<(String, Value, Value)> {
    let empty = Map::new();
    let map = |value: Option<&Value>| value.and_then(Value::as_object).cloned().unwrap_or_default();
    let then = map(body.get(key));
    let now = now.as_object().unwrap_or(&empty);
    let other = |(name, is): (&String, &Value)| {
        let was = then.get(name).cloned().unwrap_or_default();
        (was != *is).then(|| (name.clone(), was, is.clone()))
    };
    now.iter().filter_map(other).collect()
}

/// Every clause that has another value or another holder, each as a reason. `host`: what is known of the host, in words.
pub(super) fn plans(then: &Value, now: &Value, host: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    for key in ["tier", "backend"] {
        if then.get(key) != now.get(key) {
            let what = format!("`{key}` was {} and is {}", shown(then.get(key)), shown(now.get(key)));
            faults.push(fault(
                "replay/differs",
                &what,
                format!("another one holds the policy here: {host}"),
                "run it where it ran",
            ));
        }
    }
    for clause in names(then).union(&names(now)) {
        faults.extend(of_clause(clause, entry(then, clause), entry(now, clause), host));
    }
    faults
}

fn of_clause(clause: &str, then: Option<&Value>, now: Option<&Value>, host: &str) -> Option<Fault> {
    let value = |entry: Option<&Value>| entry.and_then(|entry| entry.get("value")).cloned();
    let origin = |entry: Option<&Value>| entry.and_then(|e| e.get("origin")).and_then(Value::as_str).map(show_text);
    if value(then) != value(now) {
        let what = format!("`{clause}` was {} and is {}", shown(value(then).as_ref()), shown(value(now).as_ref()));
        let place = origin(now).or_else(|| origin(then)).unwrap_or_default();
        let why = format!("the policy is another one ({place}), or what its names mean on this host");
        return Some(fault("replay/differs", &what, why, "put the document back as it was, or run it anew"));
    }
    let part = |entry: Option<&Value>, key: &str| entry.and_then(|entry| entry.get(key)).cloned().unwrap_or_default();
    let other = HELD.iter().find(|key| part(then, key) != part(now, key))?;
    let what = format!(
        "`{clause}` was held by {} and would be by {}",
        shown(Some(&part(then, "enforcer"))),
        shown(Some(&part(now, "enforcer")))
    );
    let what = if *other == "enforcer" {
        what
    } else {
        format!(
            "of `{clause}` {other} was {} and is {}",
            shown(Some(&part(then, other))),
            shown(Some(&part(now, other)))
        )
    };
    Some(fault(
        "replay/differs",
        &what,
        format!("this host or version holds it otherwise: {host}"),
        "run it where it ran",
    ))
}

fn clauses(plan: &Value) -> impl Iterator<Item = &Value> {
    plan.get("clauses").and_then(Value::as_array).into_iter().flatten()
}

fn name(entry: &Value) -> Option<&str> {
    entry.get("clause").and_then(Value::as_str)
}

fn names(plan: &Value) -> BTreeSet<&str> {
    clauses(plan).filter_map(name).collect()
}

fn entry<'a>(plan: &'a Value, clause: &str) -> Option<&'a Value> {
    clauses(plan).find(|entry| name(entry) == Some(clause))
}

fn shown(value: Option<&Value>) -> String {
    value.filter(|value| !value.is_null()).map_or_else(|| "nothing".to_owned(), |value| show_text(&value.to_string()))
}

/// What of the end is another: outcome, what was stopped, how much was written, what changed.
pub(super) fn ends(recorded: &RecordedRun, finished: &Finished) -> Vec<(String, Value, Value)> {
    let now = json!(finished.report);
    let Some(then) = recorded.events.iter().rev().find(|event| event.kind == "run.ended").map(|event| &event.body)
    else {
        return vec![("end".to_owned(), Value::Null, now.get("outcome").cloned().unwrap_or_default())];
    };
    let mut list = Vec::new();
    let mut compared = |what: &str, then: Value, now: Value| {
        if then != now {
            list.push((what.to_owned(), then, now));
        }
    };
    let at = |value: &Value, pointer: &str| value.pointer(pointer).cloned().unwrap_or_default();
    for key in OUTCOME {
        let pointer = format!("/outcome/{key}");
        compared(&format!("outcome.{key}"), at(then, &pointer), at(&now, &pointer));
    }
    compared("bytes of output", at(then, "/usage/output"), at(&now, "/usage/output"));
    compared("changes of the workspace", at(then, "/workspace/changes"), at(&now, "/workspace/changes"));
    let violations =
        recorded.events.iter().filter(|event| matches!(event.kind.as_str(), "run.violation" | "egress.denied"));
    let then = stopped(violations.map(|event| &event.body));
    let now = stopped(now.get("violations").and_then(Value::as_array).into_iter().flatten());
    compared("violations", then, now);
    list
}

/// Violations by id and what was tried, each once: how often may be chance.
fn stopped<'a>(list: impl Iterator<Item = &'a Value>) -> Value {
    let part = |one: &Value, key: &str| one.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let set: BTreeSet<String> = list.map(|one| format!("{}: {}", part(one, "id"), part(one, "what"))).collect();
    json!(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(value: u64, enforcer: &str) -> Value {
        let memory = json!({ "clause": "limits.memory", "value": value, "origin": "--memory", "enforcer": enforcer });
        json!({ "tier": "container", "backend": "native", "clauses": [memory] })
    }

    #[test]
    fn a_policy_and_a_host_that_differ_are_told_apart() {
        let told = |then: &Value, now: &Value| plans(then, now, "`kernel` was 6 and is 7");
        assert_eq!(told(&plan(1, "cgroup"), &plan(1, "cgroup")), []);
        let policy = told(&plan(1, "cgroup"), &plan(2, "cgroup"));
        assert_eq!(policy.len(), 1);
        assert!(policy[0].what.contains("was 1 and is 2") && policy[0].why.contains("--memory"), "{policy:?}");
        let host = told(&plan(1, "cgroup"), &plan(1, "sampling"));
        assert!(host[0].what.contains("sampling") && host[0].why.contains("`kernel` was 6 and is 7"), "{host:?}");
        let gone = told(&plan(1, "cgroup"), &json!({ "tier": "process", "backend": "native", "clauses": [] }));
        assert_eq!(gone.len(), 2, "{gone:?}");
        assert!(gone[1].what.contains("is nothing"), "{gone:?}");
    }
}
