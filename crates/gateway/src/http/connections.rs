//! The connections of a listener, and which of them is closed when another needs its slot.
//!
//! Unauthenticated connections, which have not shown a good token yet, have few slots: whoever opens connections and sends
//! nothing delays other unauthenticated ones for a moment, and authenticated ones not at all. Each token has slots of its own,
//! so that an agent can keep out neither another agent nor the people who answer. Where no slot is free, the connection that
//! has been idle the longest is closed; one with an active request never is.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

/// Slots of unauthenticated connections.
pub(super) const MAX_UNAUTHENTICATED: usize = 128;
/// Slots of one token.
pub(super) const MAX_PER_TOKEN: usize = 256;
/// An unauthenticated connection lives for so long whoever comes: enough for a head that is on its way.
const MIN_LIFETIME: Duration = Duration::from_millis(50);

/// The connections of a listener.
#[derive(Clone, Debug, Default)]
pub(super) struct ConnectionTable {
    inner: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    /// By the order in which they came.
    entries: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    close: CancellationToken,
    /// The owner of the token that it showed last.
    who: Option<Owner>,
    requests: usize,
    /// Since when it has no request.
    since: Instant,
}

/// Whose token it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// People who answer.
    People,
    /// An agent, by its name.
    Agent(String),
}

/// One slot, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    table: ConnectionTable,
    id: u64,
    close: CancellationToken,
}

/// A request on its way; its connection is not closed for others.
#[derive(Debug)]
#[must_use]
pub struct ActiveRequest {
    table: ConnectionTable,
    id: u64,
}

/// What a connection is doing, which says how long it may live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    /// It has shown no good token.
    Unauthenticated,
    /// Nothing of it is on its way, since then.
    Idle(Instant),
    /// A request is.
    Busy,
}

impl ConnectionTable {
    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes room for one more unauthenticated connection: done at once, or when the oldest had its moment.
    pub(super) async fn wait_for_slot(&self) {
        while let Some(wait) = self.is_full() {
            tokio::time::sleep(wait).await;
        }
    }

    /// How long the oldest unauthenticated connection may still live, if it is in the way; closes it if that is over.
    fn is_full(&self) -> Option<Duration> {
        let mut table = self.lock();
        let mut unauthenticated = table.entries.iter().filter(|(_, entry)| entry.who.is_none());
        let (oldest, since) = unauthenticated.next().map(|(id, entry)| (*id, entry.since))?;
        if unauthenticated.count() + 1 < MAX_UNAUTHENTICATED {
            return None;
        }
        let left = MIN_LIFETIME.saturating_sub(since.elapsed());
        if left.is_zero() {
            table.close_one(oldest);
            return None;
        }
        Some(left)
    }

    /// Closes the oldest unauthenticated connection, whenever it came: something else than slots is used up.
    pub(super) fn drop_oldest(&self) {
        let mut table = self.lock();
        let oldest = table.entries.iter().find(|(_, entry)| entry.who.is_none()).map(|(id, _)| *id);
        if let Some(id) = oldest {
            table.close_one(id);
        }
    }

    /// Closes all connections that have no active request.
    pub(super) fn close(&self) {
        let mut table = self.lock();
        let idle: Vec<u64> = table.entries.iter().filter(|(_, entry)| entry.requests == 0).map(|(id, _)| *id).collect();
        for id in idle {
            table.close_one(id);
        }
    }

    /// A slot for a new connection, unauthenticated as yet.
    pub(super) fn add(&self) -> Slot {
        let close = CancellationToken::new();
        let mut table = self.lock();
        let id = table.next;
        table.next = id.wrapping_add(1);
        let entry = Entry { close: close.clone(), who: None, requests: 0, since: Instant::now() };
        table.entries.insert(id, entry);
        Slot { table: self.clone(), id, close }
    }

    /// A request with a good token has come; none if all slots of this token have one.
    pub(super) fn request(&self, id: u64, owner: Owner) -> Option<ActiveRequest> {
        let mut table = self.lock();
        let others =
            || table.entries.iter().filter(|(other, entry)| **other != id && entry.who.as_ref() == Some(&owner));
        if others().count() >= MAX_PER_TOKEN {
            let idle = others().filter(|(_, entry)| entry.requests == 0).min_by_key(|(_, entry)| entry.since);
            let idle = idle.map(|(other, _)| *other)?;
            table.close_one(idle);
        }
        let entry = table.entries.get_mut(&id)?;
        entry.who = Some(owner);
        entry.requests = entry.requests.saturating_add(1);
        drop(table);
        Some(ActiveRequest { table: self.clone(), id })
    }
}

impl Table {
    fn close_one(&mut self, id: u64) {
        if let Some(entry) = self.entries.remove(&id) {
            entry.close.cancel();
        }
    }
}

impl Slot {
    /// Its number, by which its requests are told.
    pub(super) const fn id(&self) -> u64 {
        self.id
    }

    /// Cancelled when somebody else needs the slot.
    pub(super) fn closing(&self) -> CancellationToken {
        self.close.clone()
    }

    /// What its connection is doing.
    pub(super) fn activity(&self) -> Activity {
        match self.table.lock().entries.get(&self.id) {
            Some(Entry { requests: 1.., .. }) => Activity::Busy,
            Some(Entry { who: Some(_), since, .. }) => Activity::Idle(*since),
            Some(Entry { who: None, .. }) | None => Activity::Unauthenticated,
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.table.lock().entries.remove(&self.id);
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        if let Some(entry) = self.table.lock().entries.get_mut(&self.id) {
            entry.requests = entry.requests.saturating_sub(1);
            entry.since = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(name: &str) -> Owner {
        Owner::Agent(name.to_owned())
    }

    #[tokio::test]
    async fn the_oldest_unauthenticated_one_is_closed_for_the_next_and_no_sooner_than_it_may() {
        let table = ConnectionTable::default();
        let began = Instant::now();
        let mut slots = Vec::new();
        for _ in 0..MAX_UNAUTHENTICATED {
            table.wait_for_slot().await;
            slots.push(table.add());
        }
        assert!(slots.iter().all(|slot| !slot.closing().is_cancelled()));
        table.wait_for_slot().await;
        assert!(began.elapsed() >= MIN_LIFETIME);
        let gone: Vec<_> = slots.iter().map(|slot| slot.closing().is_cancelled()).collect();
        assert!(gone.first() == Some(&true) && gone.iter().filter(|gone| **gone).count() == 1, "{gone:?}");
    }

    #[tokio::test]
    async fn one_token_takes_its_own_slots_only_and_those_with_a_request_stay() {
        let table = ConnectionTable::default();
        let mut all = Vec::new();
        for _ in 0..MAX_PER_TOKEN {
            let slot = table.add();
            let request = table.request(slot.id(), agent("a")).unwrap();
            all.push((slot, Some(request)));
        }
        let (more, people) = (table.add(), table.add());
        assert!(table.request(more.id(), agent("a")).is_none(), "all its slots are busy");
        assert!(table.request(more.id(), agent("b")).is_some());
        assert!(table.request(people.id(), Owner::People).is_some());
        let (idle, request) = all.get_mut(7).unwrap();
        let left = idle.closing();
        drop(request.take());
        assert!(matches!(idle.activity(), Activity::Idle(_)) && !left.is_cancelled());
        let late = table.add();
        let made = table.request(late.id(), agent("a"));
        assert!(made.is_some() && left.is_cancelled(), "the idle one made room");
        assert_eq!(late.activity(), Activity::Busy);
        assert!(all.iter().enumerate().all(|(at, (slot, _))| at == 7 || !slot.closing().is_cancelled()));
    }

    #[test]
    fn the_end_closes_all_but_those_with_a_request() {
        let table = ConnectionTable::default();
        let (unauthenticated, busy) = (table.add(), table.add());
        let request = table.request(busy.id(), agent("a"));
        table.close();
        assert_eq!((unauthenticated.closing().is_cancelled(), busy.closing().is_cancelled()), (true, false));
        drop(request);
        table.close();
        assert!(busy.closing().is_cancelled());
    }
}
