//! Who is inside a door, and who has to leave it for others.
//!
//! Strangers, who have not shown a good token yet, have few places: whoever opens connections and says nothing is in the way
//! of other strangers for a moment, and of those who are known not at all. Each token has places of its own, so that an agent
//! can keep neither another agent nor the people who answer outside. Where there is no place, the one that has been idle the
//! longest leaves; one with a request on its way never does.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

/// Places of strangers.
pub(super) const MOST_STRANGERS: usize = 128;
/// Places of one token.
pub(super) const MOST_OF_ONE: usize = 256;
/// A stranger may stay for so long whoever comes: enough for a head that is on its way.
const LEAST: Duration = Duration::from_millis(50);

/// The places of a door.
#[derive(Clone, Debug, Default)]
pub(super) struct Guests {
    inside: Arc<Mutex<Inside>>,
}

#[derive(Debug, Default)]
struct Inside {
    next: u64,
    /// By the order in which they came.
    guests: BTreeMap<u64, Guest>,
}

#[derive(Debug)]
struct Guest {
    leave: CancellationToken,
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

/// One place, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    guests: Guests,
    id: u64,
    leave: CancellationToken,
}

/// A request on its way; its connection does not have to leave for others.
#[derive(Debug)]
#[must_use]
pub struct Request {
    guests: Guests,
    id: u64,
}

/// How a connection may stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stay {
    /// It has shown no good token.
    Stranger,
    /// Nothing of it is on its way, since then.
    Idle(Instant),
    /// A request is.
    Busy,
}

impl Guests {
    fn inside(&self) -> std::sync::MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes room for one more stranger: done at once, or when the eldest had its moment.
    pub(super) async fn make_room(&self) {
        while let Some(wait) = self.is_full() {
            tokio::time::sleep(wait).await;
        }
    }

    /// How long the eldest stranger may still stay, if it is in the way; sends it away if that is over.
    fn is_full(&self) -> Option<Duration> {
        let mut inside = self.inside();
        let mut strangers = inside.guests.iter().filter(|(_, guest)| guest.who.is_none());
        let (eldest, since) = strangers.next().map(|(id, guest)| (*id, guest.since))?;
        if strangers.count() + 1 < MOST_STRANGERS {
            return None;
        }
        let left = LEAST.saturating_sub(since.elapsed());
        if left.is_zero() {
            inside.leaves(eldest);
            return None;
        }
        Some(left)
    }

    /// Sends the eldest stranger away, whenever it came: something else than places is used up.
    pub(super) fn spare_one(&self) {
        let mut inside = self.inside();
        let eldest = inside.guests.iter().find(|(_, guest)| guest.who.is_none()).map(|(id, _)| *id);
        if let Some(id) = eldest {
            inside.leaves(id);
        }
    }

    /// Sends everybody away who has no request on its way.
    pub(super) fn close(&self) {
        let mut inside = self.inside();
        let idle: Vec<u64> = inside.guests.iter().filter(|(_, guest)| guest.requests == 0).map(|(id, _)| *id).collect();
        for id in idle {
            inside.leaves(id);
        }
    }

    /// A place for a stranger.
    pub(super) fn enter(&self) -> Place {
        let leave = CancellationToken::new();
        let mut inside = self.inside();
        let id = inside.next;
        inside.next = id.wrapping_add(1);
        let guest = Guest { leave: leave.clone(), who: None, requests: 0, since: Instant::now() };
        inside.guests.insert(id, guest);
        Place { guests: self.clone(), id, leave }
    }

    /// A request with a good token has come; none if all places of this token have one on its way.
    pub(super) fn request(&self, id: u64, owner: Owner) -> Option<Request> {
        let mut inside = self.inside();
        let others =
            || inside.guests.iter().filter(|(other, guest)| **other != id && guest.who.as_ref() == Some(&owner));
        if others().count() >= MOST_OF_ONE {
            let idle = others().filter(|(_, guest)| guest.requests == 0).min_by_key(|(_, guest)| guest.since);
            let idle = idle.map(|(other, _)| *other)?;
            inside.leaves(idle);
        }
        let guest = inside.guests.get_mut(&id)?;
        guest.who = Some(owner);
        guest.requests = guest.requests.saturating_add(1);
        drop(inside);
        Some(Request { guests: self.clone(), id })
    }
}

impl Inside {
    fn leaves(&mut self, id: u64) {
        if let Some(guest) = self.guests.remove(&id) {
            guest.leave.cancel();
        }
    }
}

impl Place {
    /// Its number, by which its requests are told.
    pub(super) const fn id(&self) -> u64 {
        self.id
    }

    /// Cancelled when somebody else needs the place.
    pub(super) fn left(&self) -> CancellationToken {
        self.leave.clone()
    }

    /// How it may stay.
    pub(super) fn stay(&self) -> Stay {
        match self.guests.inside().guests.get(&self.id) {
            Some(Guest { requests: 1.., .. }) => Stay::Busy,
            Some(Guest { who: Some(_), since, .. }) => Stay::Idle(*since),
            Some(Guest { who: None, .. }) | None => Stay::Stranger,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.guests.inside().guests.remove(&self.id);
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if let Some(guest) = self.guests.inside().guests.get_mut(&self.id) {
            guest.requests = guest.requests.saturating_sub(1);
            guest.since = Instant::now();
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
    async fn the_eldest_stranger_leaves_for_the_next_and_no_sooner_than_it_may() {
        let guests = Guests::default();
        let began = Instant::now();
        let mut places = Vec::new();
        for _ in 0..MOST_STRANGERS {
            guests.make_room().await;
            places.push(guests.enter());
        }
        assert!(places.iter().all(|place| !place.left().is_cancelled()));
        guests.make_room().await;
        assert!(began.elapsed() >= LEAST);
        let gone: Vec<_> = places.iter().map(|place| place.left().is_cancelled()).collect();
        assert!(gone.first() == Some(&true) && gone.iter().filter(|gone| **gone).count() == 1, "{gone:?}");
    }

    #[tokio::test]
    async fn one_token_takes_its_own_places_only_and_those_with_a_request_stay() {
        let guests = Guests::default();
        let mut all = Vec::new();
        for _ in 0..MOST_OF_ONE {
            let place = guests.enter();
            let request = guests.request(place.id(), agent("a")).unwrap();
            all.push((place, Some(request)));
        }
        let (more, people) = (guests.enter(), guests.enter());
        assert!(guests.request(more.id(), agent("a")).is_none(), "all its places are busy");
        assert!(guests.request(more.id(), agent("b")).is_some());
        assert!(guests.request(people.id(), Owner::People).is_some());
        let (idle, request) = all.get_mut(7).unwrap();
        let left = idle.left();
        drop(request.take());
        assert!(matches!(idle.stay(), Stay::Idle(_)) && !left.is_cancelled());
        let late = guests.enter();
        let made = guests.request(late.id(), agent("a"));
        assert!(made.is_some() && left.is_cancelled(), "the idle one made room");
        assert_eq!(late.stay(), Stay::Busy);
        assert!(all.iter().enumerate().all(|(at, (place, _))| at == 7 || !place.left().is_cancelled()));
    }

    #[test]
    fn the_end_sends_away_all_but_those_with_a_request() {
        let guests = Guests::default();
        let (stranger, busy) = (guests.enter(), guests.enter());
        let request = guests.request(busy.id(), agent("a"));
        guests.close();
        assert_eq!((stranger.left().is_cancelled(), busy.left().is_cancelled()), (true, false));
        drop(request);
        guests.close();
        assert!(busy.left().is_cancelled());
    }
}
