//! Who is connected: so many at once, and who waits longest without a request makes room for the next.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use http_body::{Frame, SizeHint};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Most connections at once, and most of one address that is not this machine's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Most {
    pub(crate) all: usize,
    pub(crate) of_one: usize,
}

/// The connections that stand.
#[derive(Debug)]
pub(crate) struct Places {
    most: Most,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    last: u64,
    taken: BTreeMap<u64, Taken>,
}

#[derive(Debug)]
struct Taken {
    /// None of a unix socket.
    peer: Option<IpAddr>,
    /// Requests on their way.
    busy: usize,
    /// Requests that have begun.
    begun: u64,
    /// Since when there is none.
    idle: Instant,
    end: CancellationToken,
}

/// A connection's place; free again when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    number: u64,
    /// Cancelled when another needs the place more.
    pub(crate) end: CancellationToken,
}

/// A request on its way: its connection is not idle.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Place>);

impl Places {
    pub(crate) fn new(most: Most) -> Arc<Self> {
        Arc::new(Self { most, table: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a connection from there; none where all are at work.
    pub(crate) fn take(self: &Arc<Self>, peer: Option<IpAddr>) -> Option<Arc<Place>> {
        let mut table = self.lock();
        let remote = peer.filter(|peer| !peer.is_loopback());
        let of_one = |taken: &Taken| remote.is_some() && taken.peer == remote;
        if table.taken.values().filter(|taken| of_one(taken)).count() >= self.most.of_one {
            table.make_room(of_one)?;
        }
        if table.taken.len() >= self.most.all {
            table.make_room(|_| true)?;
        }
        table.last = table.last.wrapping_add(1);
        let (number, end) = (table.last, CancellationToken::new());
        table.taken.insert(number, Taken { peer, busy: 0, begun: 0, idle: Instant::now(), end: end.clone() });
        Some(Arc::new(Place { places: Arc::clone(self), number, end }))
    }
}

impl Table {
    /// Ends the one of these that has been idle longest.
    fn make_room(&mut self, of: impl Fn(&Taken) -> bool) -> Option<()> {
        let idle = self.taken.iter().filter(|(_, taken)| taken.busy == 0 && of(taken));
        let oldest = idle.min_by_key(|(_, taken)| taken.idle).map(|(number, _)| *number)?;
        self.taken.remove(&oldest)?.end.cancel();
        Some(())
    }
}

impl Place {
    /// A request begins.
    pub(crate) fn begin(self: &Arc<Self>) -> Busy {
        if let Some(taken) = self.places.lock().taken.get_mut(&self.number) {
            taken.busy = taken.busy.saturating_add(1);
            taken.begun = taken.begun.saturating_add(1);
        }
        Busy(Arc::clone(self))
    }

    /// How many requests have begun, and whether one is on its way.
    pub(crate) fn work(&self) -> (u64, bool) {
        self.places.lock().taken.get(&self.number).map_or((0, false), |taken| (taken.begun, taken.busy > 0))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(taken) = self.0.places.lock().taken.get_mut(&self.0.number) {
            taken.busy = taken.busy.saturating_sub(1);
            taken.idle = Instant::now();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().taken.remove(&self.number);
    }
}

/// An answer whose request is on its way until all of it was sent.
pub(crate) struct Sending {
    body: Body,
    _busy: Arc<Busy>,
}

impl Sending {
    pub(crate) fn body(body: Body, busy: Arc<Busy>) -> Body {
        Body::new(Self { body, _busy: busy })
    }
}

impl http_body::Body for Sending {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAR: Option<IpAddr> = Some(IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)));

    #[test]
    fn who_waits_longest_makes_room_and_who_works_does_not() {
        let places = Places::new(Most { all: 3, of_one: 2 });
        let (first, second, third) =
            (places.take(None).unwrap(), places.take(None).unwrap(), places.take(None).unwrap());
        let busy = first.begin();
        let fourth = places.take(None).unwrap();
        assert!(second.end.is_cancelled() && !first.end.is_cancelled() && !third.end.is_cancelled());
        let (_third, _fourth) = (third.begin(), fourth.begin());
        assert!(places.take(None).is_none(), "all are at work");
        drop(busy);
        assert!(places.take(None).is_some() && first.end.is_cancelled());
    }

    #[test]
    fn one_address_far_away_has_its_share_and_no_more() {
        let places = Places::new(Most { all: 10, of_one: 2 });
        let (first, second) = (places.take(FAR).unwrap(), places.take(FAR).unwrap());
        let _third = places.take(FAR).unwrap();
        assert!(first.end.is_cancelled() && !second.end.is_cancelled());
        let near: Vec<_> = (0..7).map(|_| places.take(Some("127.0.0.1".parse().unwrap())).unwrap()).collect();
        assert!(near.iter().all(|near| !near.end.is_cancelled()));
    }
}
