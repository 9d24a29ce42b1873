//! What the brokers of sandboxes counted, added up for `/metrics`.
//!
//! Each supervisor knows its own, so they are asked when somebody looks. What a sandbox that ended counted stays in the sums.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use live::words::{Ask, Info, State as Doing};
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};

use crate::backend::{self, Sandboxes};

/// How long all supervisors together may take to answer; of those that do not, what they said before stands.
const ANSWERS_TIMEOUT: Duration = Duration::from_secs(2);

/// `usage.net` of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Counted {
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) connections: u64,
    pub(crate) lookups: u64,
    pub(crate) denied: u64,
}

impl Counted {
    fn each(self, other: Self, with: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            sent: with(self.sent, other.sent),
            received: with(self.received, other.received),
            connections: with(self.connections, other.connections),
            lookups: with(self.lookups, other.lookups),
            denied: with(self.denied, other.denied),
        }
    }

    /// As a sandbox says, if it has a broker.
    fn of(info: &Info) -> Option<Self> {
        let used = info.report.as_ref().and_then(|report| report.get("usage")).unwrap_or(&info.usage);
        used.get("net").and_then(|net| Self::deserialize(net).ok())
    }
}

/// Sums, and what of each sandbox is among them.
#[derive(Debug, Default)]
pub(crate) struct Nets(Mutex<(Counted, BTreeMap<String, Counted>)>);

impl Nets {
    /// The sums over these sandboxes, which are all that are known, and those before them.
    pub(crate) async fn sums(&self, sandboxes: &dyn Sandboxes, infos: &[Info]) -> Counted {
        let until = Instant::now().checked_add(ANSWERS_TIMEOUT).unwrap_or_else(Instant::now);
        let mut seen = Vec::with_capacity(infos.len());
        for info in infos {
            let counted = match info.state {
                Doing::Ended => Counted::of(info),
                Doing::Running | Doing::Paused => {
                    let asked = timeout_at(until, backend::call::<Info>(sandboxes, &info.id, &Ask::Info {}));
                    asked.await.ok().and_then(Result::ok).as_ref().and_then(Counted::of)
                }
            };
            seen.push((info.id.clone(), counted));
        }
        self.add(seen)
    }

    fn add(&self, seen: Vec<(String, Option<Counted>)>) -> Counted {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (sums, before) = &mut *inner;
        let known = std::mem::take(before);
        for (id, counted) in seen {
            let last = known.get(&id).copied().unwrap_or_default();
            // Two that look at the same time may come in another order than they asked.
            let now = counted.unwrap_or(last).each(last, u64::max);
            *sums = sums.each(now.each(last, u64::saturating_sub), u64::saturating_add);
            before.insert(id, now);
        }
        *sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_grow_by_what_is_new_and_keep_what_ended() {
        let nets = Nets::default();
        let of = |sent| Some(Counted { sent, denied: 1, ..Counted::default() });
        let add = |seen: &[(&str, Option<Counted>)]| {
            let sums = nets.add(seen.iter().map(|(id, counted)| ((*id).to_owned(), *counted)).collect());
            (sums.sent, sums.denied)
        };
        assert_eq!(add(&[("a", of(5)), ("b", None)]), (5, 1));
        assert_eq!(add(&[("a", of(7)), ("b", of(1))]), (8, 2));
        // One does not answer, one says less than before.
        assert_eq!(add(&[("a", None), ("b", of(0))]), (8, 2));
        assert_eq!(add(&[("a", of(9))]), (10, 2));
        assert_eq!(add(&[]), (10, 2), "it is forgotten, and what it counted is not");
        assert_eq!(add(&[("c", of(1))]), (11, 3));
    }
}
