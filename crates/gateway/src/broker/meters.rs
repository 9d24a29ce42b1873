//! Figures of a running broker, for a page of metrics.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use gate::demand::{Demand, Want};
use gate::verdict::Verdict;

/// Figures since the broker was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meters {
    /// Calls that were decided.
    pub calls: u64,
    /// Of them, those that were made.
    pub allowed: u64,
    /// Denials by the id of the reason that decided.
    pub denied: BTreeMap<&'static str, u64>,
    /// Denials by rule.
    pub denied_by_rule: BTreeMap<String, u64>,
    /// Calls that run now.
    pub running: u64,
    /// Calls that wait for a person now.
    pub waiting: u64,
    /// Calls that took too long.
    pub timed_out: u64,
    /// Results and messages of failure, in bytes.
    pub result_bytes: u64,
    /// Spent by budget rule, in millionths of its unit.
    pub spent: BTreeMap<String, u64>,
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    meters: Mutex<Meters>,
    running: AtomicU64,
    waiting: AtomicU64,
}

/// Counts one as long as it lives.
pub(super) struct One<'c>(&'c AtomicU64);

impl Drop for One<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Counts {
    fn with(&self, change: impl FnOnce(&mut Meters)) {
        change(&mut self.meters.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn read(&self) -> Meters {
        let mut meters = self.meters.lock().unwrap_or_else(PoisonError::into_inner).clone();
        meters.running = self.running.load(Ordering::Relaxed);
        meters.waiting = self.waiting.load(Ordering::Relaxed);
        meters
    }

    pub(super) fn runs(&self) -> One<'_> {
        self.running.fetch_add(1, Ordering::Relaxed);
        One(&self.running)
    }

    pub(super) fn waits(&self) -> One<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        One(&self.waiting)
    }

    pub(super) fn denied(&self, verdict: &Verdict) {
        self.with(|meters| {
            meters.calls += 1;
            let id = verdict.reasons.first().map_or("tools.entry/none", |reason| reason.id);
            *meters.denied.entry(id).or_default() += 1;
            *meters.denied_by_rule.entry(verdict.rule.clone()).or_default() += 1;
        });
    }

    pub(super) fn allowed(&self) {
        self.with(|meters| {
            meters.calls += 1;
            meters.allowed += 1;
        });
    }

    pub(super) fn ended(&self, bytes: usize, is_late: bool) {
        self.with(|meters| {
            meters.timed_out += u64::from(is_late);
            meters.result_bytes = meters.result_bytes.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        });
    }

    /// Budgets as they were settled: the reserved worst case where nothing less was reported.
    pub(super) fn spent(&self, demands: &[Demand], actual: &[(usize, u64)]) {
        for (index, demand) in demands.iter().enumerate() {
            let Want::Budget { cost, .. } = demand.want else { continue };
            let cost = actual.iter().find(|(of, _)| *of == index).map_or(cost, |(_, cost)| *cost);
            self.with(|meters| {
                let spent = meters.spent.entry(demand.rule.to_string()).or_default();
                *spent = spent.saturating_add(cost);
            });
        }
    }
}
