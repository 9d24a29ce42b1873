//! What an entry demands of the ledger for one call.

use std::sync::Arc;

use policy::tools::{Budget, CountBy, Rate, ToolEntry};

use super::entry::rule_name;
use crate::call::Caller;
use crate::demand::{Demand, Key, Want};

/// Limits of one entry, ready to be keyed.
#[derive(Debug)]
pub(super) struct Demands {
    /// Names the counter across restarts and edits of other entries: its name, and which of that name it is.
    counter: [String; 2],
    rate: Option<(Arc<str>, Rate)>,
    budget: Option<(Arc<str>, Budget)>,
    concurrency: Option<(Arc<str>, u32)>,
}

impl Demands {
    pub(super) fn new(index: usize, ordinal: usize, entry: &ToolEntry) -> Self {
        Self {
            counter: [entry.name.value.clone(), ordinal.to_string()],
            rate: entry.rate.as_ref().map(|rate| (rule_name(index, "rate"), rate.value.clone())),
            budget: entry.budget.as_ref().map(|budget| (rule_name(index, "budget"), budget.value.clone())),
            concurrency: entry.concurrency.map(|most| (rule_name(index, "concurrency"), most)),
        }
    }

    /// Adds the demands of one call; and where its cost is reported, by the index of the demand.
    pub(super) fn of(&self, caller: &Caller, demands: &mut Vec<Demand>, reported: &mut Vec<(usize, String)>) {
        if let Some((rule, Rate { calls, per, burst, by })) = &self.rate {
            let want = Want::Rate { calls: *calls, per_ms: per.0, burst: *burst };
            demands.push(Demand { rule: Arc::clone(rule), key: self.key("rate", *by, caller), want });
        }
        if let Some((rule, budget)) = &self.budget {
            let window = budget.limit.zip(budget.per).map(|(most, per)| (most, per.0));
            let want = Want::Budget { cost: budget.cost, window, total: budget.total };
            reported.extend(budget.reported.iter().map(|pointer| (demands.len(), pointer.clone())));
            demands.push(Demand { rule: Arc::clone(rule), key: self.key("budget", budget.by, caller), want });
        }
        if let Some((rule, most)) = &self.concurrency {
            let key = self.key("concurrency", CountBy::Gateway, caller);
            demands.push(Demand { rule: Arc::clone(rule), key, want: Want::Concurrency(*most) });
        }
    }

    /// The identity is what the front door knows of the caller, never what the call says.
    fn key(&self, what: &str, by: CountBy, caller: &Caller) -> Key {
        let [name, ordinal] = &self.counter;
        let (kind, first, second) = match (by, &caller.key) {
            (CountBy::Session, _) => ("session", caller.agent.as_str(), caller.session.as_str()),
            (CountBy::Key, Some(key)) => ("key", key.as_str(), ""),
            // Without a key, an agent counts as one, lest a call without a key were free.
            (CountBy::Agent, _) | (CountBy::Key, None) => ("agent", caller.agent.as_str(), ""),
            (CountBy::Gateway, _) => ("gateway", "", ""),
        };
        Key::new(&[what, name, ordinal, kind, first, second])
    }
}
