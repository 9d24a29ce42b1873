//! Who is connected: so many at once, and who waits longest without a request, or takes nothing of an answer, makes room for the next.
//!
//! What a connection of HTTP/2 is sent waits for its client without a write to the socket: that it is taken is seen here, by the
//! pieces of each answer, and not on the wire.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// Most bytes of an answer that are handed out at once: who has not taken so many since the last time has taken too little.
const MAX_PIECE: usize = 16 * 1024;
/// Who has taken nothing of an answer for so long makes room where all are at work.
const SLOW: Duration = Duration::from_secs(5);

/// Most connections at once, and most of one address that is not this machine's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    pub(crate) all: usize,
    pub(crate) of_one: usize,
}

/// The connections that stand.
#[derive(Debug)]
pub(crate) struct Places {
    most: ConnectionLimits,
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
    waits: Arc<Waits>,
    end: CancellationToken,
}

/// Answers of which a piece was handed out and the next one not asked for: since when, by the number of the request.
#[derive(Debug, Default)]
struct Waits(Mutex<BTreeMap<u64, Instant>>);

impl Waits {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Since when the one waits that waits longest.
    fn longest(&self) -> Option<Instant> {
        self.lock().values().min().copied()
    }
}

/// A connection's place; free again when it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    places: Arc<Places>,
    number: u64,
    waits: Arc<Waits>,
    /// An answer went out before the end of its request, and more of that may come.
    is_unheard: AtomicBool,
    /// Cancelled when another needs the place more.
    pub(crate) end: CancellationToken,
}

/// A request on its way: its connection is not idle.
#[derive(Debug)]
pub(crate) struct Busy {
    place: Arc<ConnectionSlot>,
    number: u64,
}

impl Places {
    pub(crate) fn new(most: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self { most, table: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a connection from there; none where all are at work.
    pub(crate) fn take(self: &Arc<Self>, peer: Option<IpAddr>) -> Option<Arc<ConnectionSlot>> {
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
        let (number, waits, end) = (table.last, Arc::<Waits>::default(), CancellationToken::new());
        let taken =
            Taken { peer, busy: 0, begun: 0, idle: Instant::now(), waits: Arc::clone(&waits), end: end.clone() };
        table.taken.insert(number, taken);
        let is_unheard = AtomicBool::new(false);
        Some(Arc::new(ConnectionSlot { places: Arc::clone(self), number, waits, is_unheard, end }))
    }
}

impl Table {
    /// Ends the one of these that has been idle longest; where none is, the one that has taken nothing for longest.
    fn make_room(&mut self, of: impl Fn(&Taken) -> bool) -> Option<()> {
        let these = || self.taken.iter().filter(|(_, taken)| of(taken));
        let idle = these().filter(|(_, taken)| taken.busy == 0).min_by_key(|(_, taken)| taken.idle);
        let slow = || {
            let since = these().filter_map(|(number, taken)| Some((number, taken.waits.longest()?)));
            since.filter(|(_, since)| since.elapsed() >= SLOW).min_by_key(|(_, since)| *since)
        };
        let first = *idle.map(|(number, _)| number).or_else(|| Some(slow()?.0))?;
        self.taken.remove(&first)?.end.cancel();
        Some(())
    }
}

impl ConnectionSlot {
    /// A request begins.
    pub(crate) fn begin(self: &Arc<Self>) -> Busy {
        let mut number = 0;
        if let Some(taken) = self.places.lock().taken.get_mut(&self.number) {
            taken.busy = taken.busy.saturating_add(1);
            taken.begun = taken.begun.saturating_add(1);
            number = taken.begun;
        }
        Busy { place: Arc::clone(self), number }
    }

    /// Done when the client has not taken a piece of an answer for so long.
    pub(crate) async fn stalled(&self, most: Duration) {
        loop {
            let since = self.waits.longest();
            if since.is_some_and(|since| since.elapsed() >= most) {
                return;
            }
            sleep_until(since.unwrap_or_else(Instant::now) + most).await;
        }
    }

    /// Done when there was no request for so long.
    pub(crate) async fn idle(&self, most: Duration) {
        loop {
            let found = self.places.lock().taken.get(&self.number).map(|taken| (taken.busy, taken.idle));
            let since = found.filter(|(busy, _)| *busy == 0).map(|(_, idle)| idle);
            if since.is_some_and(|since| since.elapsed() >= most) {
                return;
            }
            sleep_until(since.unwrap_or_else(Instant::now) + most).await;
        }
    }

    /// An answer goes out before the end of its request.
    pub(crate) fn set_unheard(&self) {
        self.is_unheard.store(true, Ordering::Relaxed);
    }

    /// Whether more may come of a request that was answered.
    pub(crate) fn is_unheard(&self) -> bool {
        self.is_unheard.load(Ordering::Relaxed)
    }

    /// How many requests have begun, and whether one is on its way.
    pub(crate) fn work(&self) -> (u64, bool) {
        self.places.lock().taken.get(&self.number).map_or((0, false), |taken| (taken.begun, taken.busy > 0))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(taken) = self.place.places.lock().taken.get_mut(&self.place.number) {
            taken.busy = taken.busy.saturating_sub(1);
            taken.idle = Instant::now();
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.places.lock().taken.remove(&self.number);
    }
}

/// An answer whose request is on its way until all of it was sent. It is handed out in pieces, so that one long one is not taken
/// for silence.
pub(crate) struct Sending {
    body: Body,
    /// What of its last frame was not handed out yet.
    rest: Bytes,
    busy: Arc<Busy>,
}

impl Sending {
    pub(crate) fn body(body: Body, busy: Arc<Busy>) -> Body {
        Body::new(Self { body, rest: Bytes::new(), busy })
    }

    fn waits(&self) -> MutexGuard<'_, BTreeMap<u64, Instant>> {
        self.busy.place.waits.lock()
    }
}

impl http_body::Body for Sending {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        // Whoever asks for more has taken what was before it.
        self.waits().remove(&self.busy.number);
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)).transpose()?.map(Frame::into_data) {
                Some(Ok(bytes)) => self.rest = bytes,
                Some(Err(trailers)) => return Poll::Ready(Some(Ok(trailers))),
                None => return Poll::Ready(None),
            }
        }
        let length = self.rest.len().min(MAX_PIECE);
        let piece = self.rest.split_to(length);
        self.waits().insert(self.busy.number, Instant::now());
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, body) = (u64::try_from(self.rest.len()).unwrap_or(u64::MAX), self.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower().saturating_add(rest));
        if let Some(upper) = body.upper().and_then(|upper| upper.checked_add(rest)) {
            hint.set_upper(upper);
        }
        hint
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.waits().remove(&self.busy.number);
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use tokio::time::timeout;
    use tokio_stream::StreamExt as _;

    use super::*;

    const FAR: Option<IpAddr> = Some(IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)));

    #[test]
    fn who_waits_longest_makes_room_and_who_works_does_not() {
        let places = Places::new(ConnectionLimits { all: 3, of_one: 2 });
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

    #[tokio::test(start_paused = true)]
    async fn where_all_are_at_work_who_takes_nothing_makes_room_and_who_waits_for_more_does_not() {
        let places = Places::new(ConnectionLimits { all: 2, of_one: 2 });
        let (slow, live) = (places.take(None).unwrap(), places.take(None).unwrap());
        let answer = |place: &Arc<ConnectionSlot>, bytes: usize| {
            let all = tokio_stream::iter([Ok::<_, std::io::Error>(vec![b'a'; bytes])]).chain(tokio_stream::pending());
            Sending::body(Body::from_stream(all), Arc::new(place.begin()))
        };
        let (mut stuck, mut waits) = (answer(&slow, 2 * MAX_PIECE), answer(&live, 1));
        for body in [&mut stuck, &mut waits] {
            assert!(body.frame().await.unwrap().unwrap().data_ref().unwrap().len() <= MAX_PIECE);
        }
        // It has taken what there was, and hears nothing more yet.
        assert!(timeout(Duration::ZERO, waits.frame()).await.is_err());
        tokio::time::advance(SLOW - Duration::from_millis(1)).await;
        assert!(places.take(None).is_none(), "nobody is that slow yet");
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(places.take(None).is_some() && slow.end.is_cancelled() && !live.end.is_cancelled());
        // Who takes again is not late.
        assert!(timeout(SLOW, live.stalled(SLOW)).await.is_err());
        assert!(timeout(SLOW, slow.stalled(SLOW)).await.is_ok());
        assert_eq!(stuck.frame().await.unwrap().unwrap().data_ref().unwrap().len(), MAX_PIECE);
        assert!(timeout(2 * SLOW, slow.stalled(3 * SLOW)).await.is_err());
    }

    #[test]
    fn one_address_far_away_has_its_share_and_no_more() {
        let places = Places::new(ConnectionLimits { all: 10, of_one: 2 });
        let (first, second) = (places.take(FAR).unwrap(), places.take(FAR).unwrap());
        let _third = places.take(FAR).unwrap();
        assert!(first.end.is_cancelled() && !second.end.is_cancelled());
        let near: Vec<_> = (0..7).map(|_| places.take(Some("127.0.0.1".parse().unwrap())).unwrap()).collect();
        assert!(near.iter().all(|near| !near.end.is_cancelled()));
    }
}
