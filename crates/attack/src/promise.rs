//! Which rows a plan promises: by its tier and the clauses that it demands.

use std::collections::{BTreeMap, BTreeSet};

use policy::{Entry, Plan, Strength};
use serde_json::Value;

use crate::row::Row;

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
    /// What a plan promises.
    #[must_use]
    pub fn of(plan: &Plan) -> Self {
        let path = |entry: &Entry| entry.clause.path().to_owned();
        let watched = |entry: &&Entry| entry.controls.strength() == Strength::Supervisor;
        let names: Vec<String> = plan.entries.iter().map(|entry| entry.controls.enforcer()).collect();
        Self {
            tier: plan.tier.as_str().to_owned(),
            clauses: plan.entries.iter().map(|entry| (path(entry), entry.value.clone())).collect(),
            weakened: plan.weakened.iter().map(|weakened| weakened.clause.path().to_owned()).collect(),
            enforcers: names.iter().flat_map(|all| all.split('+')).map(str::to_owned).collect(),
            sampled: plan.entries.iter().filter(watched).map(|entry| (path(entry), overshoot(entry))).collect(),
        }
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

/// How far the entry may be passed, in the plan's words.
fn overshoot(entry: &Entry) -> String {
    entry.controls.overshoot().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::catalogue;

    fn plan(tier: &str, clause: &str) -> Promises {
        let clauses = BTreeMap::from([(clause.to_owned(), Value::from(1))]);
        Promises { tier: tier.to_owned(), clauses, ..Promises::default() }
    }

    #[test]
    fn a_limit_that_nobody_demanded_is_not_promised() {
        let rows = catalogue().unwrap();
        let row = rows.iter().find(|row| row.id == "RES-01").unwrap();
        let without = plan("container", "limits.pids");
        assert!(without.missing(row).unwrap().contains("limits.memory"));
        let with = plan("container", "limits.memory");
        assert_eq!(with.missing(row), None);
    }

    #[test]
    fn hosts_by_name_are_promised_by_each_tier_that_reaches_them() {
        let by_name = |row: &Row| row.when.get("net.mode").is_some_and(|modes| modes == &[Value::from("allow")]);
        let rows: Vec<_> = catalogue().unwrap().into_iter().filter(by_name).collect();
        assert!(rows.len() > 150, "{}", rows.len());
        for row in rows.iter().filter(|row| !row.tiers.is_empty()) {
            for tier in ["container", "gvisor", "vm"] {
                assert_eq!(plan(tier, "tier").missing(row), None, "{} on {tier}", row.id);
            }
            let why = plan("process", "tier").missing(row).unwrap();
            assert!(why.contains("the process tier refuses hosts by name"), "{}: {why}", row.id);
        }
    }

    #[test]
    fn the_process_tier_does_not_promise_to_hide_that_files_exist() {
        let rows = catalogue().unwrap();
        let row = rows.iter().find(|row| row.id == "INFO-05").unwrap();
        assert!(plan("process", "tier").missing(row).is_some());
        assert_eq!(plan("container", "tier").missing(row), None);
    }
}
