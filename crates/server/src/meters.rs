//! What is counted for `/metrics`: numbers alone, with labels from closed lists of ours.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::http::Response;

use crate::answer::ProblemId;

/// Upper bounds of the buckets of a time, seconds.
pub(crate) const BOUNDS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 5.0, 30.0];
/// Most ids of refusals that are counted one by one: they are those of `fumehood explain`.
const MAX_IDS: usize = 512;

/// Who answered a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// E2B's control interface.
    Control,
    /// Ours below `/v1`, and Jupyter's.
    Native,
    /// A sandbox.
    Sandbox,
    /// The page, and what is asked of the server itself.
    Other,
}

impl Part {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Native => "native",
            Self::Sandbox => "sandbox",
            Self::Other => "other",
        }
    }
}

/// How often something took how long.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    /// By bucket, those within its bound and not within the one before.
    pub(crate) counts: [u64; BOUNDS.len()],
    pub(crate) count: u64,
    pub(crate) sum: Duration,
}

impl Times {
    pub(crate) fn add(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        let mut buckets = BOUNDS.iter().zip(&mut self.counts);
        if let Some((_, count)) = buckets.find(|(bound, _)| seconds <= **bound) {
            *count = count.saturating_add(1);
        }
        self.count = self.count.saturating_add(1);
        self.sum = self.sum.saturating_add(took);
    }
}

/// What is counted.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    pub(crate) received: AtomicU64,
    pub(crate) sent: AtomicU64,
    pub(crate) execs: AtomicU64,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
pub(crate) struct Table {
    /// By part and status.
    pub(crate) requests: BTreeMap<(Part, u16), u64>,
    /// Until the head of the answer.
    pub(crate) answers: BTreeMap<Part, Times>,
    pub(crate) refusals: BTreeMap<Box<str>, u64>,
    pub(crate) created: Times,
    pub(crate) uncreated: u64,
}

fn add(counter: &AtomicU64, count: usize) {
    // A counter that overflows begins anew, which is what its readers expect.
    counter.fetch_add(u64::try_from(count).unwrap_or(0), Ordering::Relaxed);
}

impl Meters {
    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes came over a connection, after decryption.
    pub(crate) fn received(&self, count: usize) {
        add(&self.received, count);
    }

    /// Bytes went out over a connection, before encryption.
    pub(crate) fn sent(&self, count: usize) {
        add(&self.sent, count);
    }

    /// A program was asked for.
    pub(crate) fn exec(&self) {
        add(&self.execs, 1);
    }

    /// A sandbox was asked for.
    pub(crate) fn created(&self, is_there: bool, took: Duration) {
        let mut table = self.table();
        if is_there {
            table.created.add(took);
        } else {
            table.uncreated = table.uncreated.saturating_add(1);
        }
    }

    /// A request was answered.
    pub(crate) fn answered(&self, part: Part, response: &Response<Body>, took: Duration) {
        let mut table = self.table();
        let count = table.requests.entry((part, response.status().as_u16())).or_default();
        *count = count.saturating_add(1);
        table.answers.entry(part).or_default().add(took);
        let Some(ProblemId(id)) = response.extensions().get::<ProblemId>() else { return };
        if table.refusals.len() < MAX_IDS || table.refusals.contains_key(id) {
            let count = table.refusals.entry(id.clone()).or_default();
            *count = count.saturating_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_refusals_are_bounded() {
        let meters = Meters::default();
        for id in 0..=MAX_IDS {
            let mut response = Response::new(Body::empty());
            response.extensions_mut().insert(ProblemId(id.to_string().into()));
            meters.answered(Part::Other, &response, Duration::ZERO);
        }
        assert_eq!(meters.table().refusals.len(), MAX_IDS);
    }
}
