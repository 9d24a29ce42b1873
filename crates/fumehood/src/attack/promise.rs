//! Which rows a plan promises: by its tier and the clauses that it demands.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::attack::row::Row;

/// What matters of a plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Promises {
    /// Tier.
    pub tier: String,
    /// Demanded clauses with their values.
    pub clauses: BTreeMap<String, Value>,
    /// Clauses that are held less than demanded.
    pub weakened: Vec<String>,
    /// Names of the mechanisms that hold it.
    pub enforcers: BTreeSet<String>,
    /// Clauses that the supervisor holds by watching, with the overshoot that the plan names.
    pub sampled: BTreeMap<String, String>,
}

impl Promises {
    /// Reads `plan --json`. `None` if it is no plan.
    #[must_use]
    pub fn of(plan: &Value) -> Option<Self> {
        let tier = plan.get("tier")?.as_str()?.to_owned();
        let text = |entry: &Value| entry.get("clause").and_then(Value::as_str).map(str::to_owned);
        let entries = plan.get("clauses")?.as_array()?;
        let clauses = entries.iter().filter_map(|entry| Some((text(entry)?, entry.get("value")?.clone()))).collect();
        let weakened = plan.get("weakened").and_then(Value::as_array);
        let overshoot = |entry: &Value| {
            let watched = entry.get("strength").and_then(Value::as_str) == Some("supervisor");
            let said = entry.get("overshoot").and_then(Value::as_str).unwrap_or_default();
            watched.then(|| text(entry).map(|clause| (clause, said.to_owned())))?
        };
        let names = entries.iter().filter_map(|entry| entry.get("enforcer")?.as_str()).flat_map(|all| all.split('+'));
        let enforcers = names.map(str::to_owned).collect();
        let sampled = entries.iter().filter_map(overshoot).collect();
        Some(Self {
            tier,
            clauses,
            enforcers,
            sampled,
            weakened: weakened.into_iter().flatten().filter_map(text).collect(),
        })
    }

    /// What a careful author of this tier promises: everything. For peers, which have no plan.
    #[must_use]
    pub fn everything() -> Self {
        Self { tier: "container".to_owned(), ..Self::default() }
    }

    /// How the policy shows a workspace.
    #[must_use]
    pub fn workspace_mode(&self) -> &str {
        let value = self.clauses.get("workspace");
        let mode = value.and_then(|value| value.get("mode").or(Some(value))).and_then(Value::as_str);
        mode.unwrap_or("none")
    }

    /// The value of a clause, or of one key of it (`workspace.mode`).
    fn value(&self, path: &str) -> Option<Value> {
        if path == "workspace.mode" {
            return Some(Value::from(self.workspace_mode()));
        }
        self.clauses.get(path).cloned()
    }

    /// Why a row is not promised; `None` if it is.
    #[must_use]
    pub fn missing(&self, row: &Row) -> Option<String> {
        if !row.tiers.contains(&self.tier) {
            return Some(format!("tier `{}`: {}", self.tier, row.not_promised));
        }
        let lacks = |name: &&String| !self.enforcers.is_empty() && !self.enforcers.contains(*name);
        if let Some(name) = row.enforcer.as_ref().filter(lacks) {
            return Some(format!("nothing of the plan is held by `{name}`: it says so"));
        }
        for clause in &row.clauses {
            if self.weakened.contains(clause) {
                return Some(format!("`{clause}` is weakened by the policy"));
            }
            if !self.clauses.is_empty() && !self.clauses.contains_key(clause) {
                return Some(format!("the policy does not demand `{clause}`"));
            }
        }
        for (path, values) in &row.when {
            if let Some(value) = self.value(path)
                && !self.clauses.is_empty()
                && !values.contains(&value)
            {
                return Some(format!("`{path}` is {value}"));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attack::row::catalogue;

    fn plan(tier: &str, clauses: &Value) -> Promises {
        Promises::of(&serde_json::json!({ "tier": tier, "clauses": clauses, "weakened": [] })).unwrap()
    }

    #[test]
    fn a_limit_that_nobody_demanded_is_not_promised() {
        let rows = catalogue().unwrap();
        let row = rows.iter().find(|row| row.id == "RES-01").unwrap();
        let without = plan("container", &serde_json::json!([{ "clause": "limits.pids", "value": 32 }]));
        assert!(without.missing(row).unwrap().contains("limits.memory"));
        let with = plan("container", &serde_json::json!([{ "clause": "limits.memory", "value": 1 }]));
        assert_eq!(with.missing(row), None);
    }

    #[test]
    fn the_process_tier_does_not_promise_to_hide_that_files_exist() {
        let rows = catalogue().unwrap();
        let row = rows.iter().find(|row| row.id == "INFO-05").unwrap();
        let clauses = serde_json::json!([{ "clause": "tier", "value": "process" }]);
        assert!(plan("process", &clauses).missing(row).is_some());
        assert_eq!(plan("container", &clauses).missing(row), None);
    }
}
