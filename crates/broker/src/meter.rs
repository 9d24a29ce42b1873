//! What a run sent and received, and how much and how fast it may: `net.bytes` and `net.bandwidth`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use policy::value::Net;

use crate::bucket::Bucket;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From inside to outside.
    Out,
    /// From outside to inside.
    In,
}

/// Counts and limits of all connections together.
#[derive(Debug)]
pub(crate) struct Meter {
    sent: AtomicU64,
    received: AtomicU64,
    /// `net.bytes`; all bits set: no limit.
    most: AtomicU64,
    /// `net.bandwidth` in bytes, with a second's worth at once; `None`: no limit.
    bucket: Mutex<Option<Bucket>>,
}

impl Meter {
    pub(crate) fn new(net: &Net) -> Self {
        let meter = Self {
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            most: AtomicU64::new(u64::MAX),
            bucket: Mutex::default(),
        };
        meter.limit(net);
        meter
    }

    /// Takes the limits of other rules; what was counted stays.
    pub(crate) fn limit(&self, net: &Net) {
        self.most.store(net.bytes.map_or(u64::MAX, |bytes| bytes.0), Ordering::Relaxed);
        let (mut bucket, now) = (self.bucket(), Instant::now());
        match (bucket.as_mut(), net.bandwidth) {
            (Some(bucket), Some(rate)) => bucket.change(rate.0, now),
            (None, Some(rate)) => *bucket = Some(Bucket::new(rate.0, rate.0, now)),
            (_, None) => *bucket = None,
        }
    }

    fn bucket(&self) -> MutexGuard<'_, Option<Bucket>> {
        self.bucket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sent and received so far.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.sent.load(Ordering::Relaxed), self.received.load(Ordering::Relaxed))
    }

    /// How many bytes may still go, at most `wanted`.
    pub(crate) fn room(&self, wanted: usize) -> usize {
        let most = self.most.load(Ordering::Relaxed);
        if most == u64::MAX {
            return wanted;
        }
        let (sent, received) = self.counts();
        let left = most.saturating_sub(sent.saturating_add(received));
        wanted.min(usize::try_from(left).unwrap_or(usize::MAX))
    }

    /// Whether `net.bytes` is used up.
    pub(crate) fn is_used(&self) -> bool {
        self.room(1) == 0
    }

    /// Waits until more may go. Who counts what it moves before it waits again is the only one that moves a buffer for it.
    pub(crate) async fn wait(&self) {
        while let Some(wait) = self.owed() {
            tokio::time::sleep(wait).await;
        }
    }

    /// How long to wait before more may go.
    pub(crate) fn owed(&self) -> Option<Duration> {
        self.bucket().as_mut()?.owed(Instant::now())
    }

    /// Counts bytes that went.
    pub(crate) fn count(&self, way: Direction, count: usize) {
        let bytes = u64::try_from(count).unwrap_or(u64::MAX);
        match way {
            Direction::Out => self.sent.fetch_add(bytes, Ordering::Relaxed),
            Direction::In => self.received.fetch_add(bytes, Ordering::Relaxed),
        };
        if let Some(bucket) = self.bucket().as_mut() {
            bucket.spend(bytes, Instant::now());
        }
    }
}

/// A side of a connection whose bytes are read and written anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Towards the program.
    Inside,
    /// Towards its servers, all of them together.
    Outside,
}

/// Bytes that went one way, on each side.
#[derive(Debug, Default)]
struct Sides {
    inside: AtomicU64,
    outside: AtomicU64,
}

impl Sides {
    fn of(&self, side: Side) -> &AtomicU64 {
        match side {
            Side::Inside => &self.inside,
            Side::Outside => &self.outside,
        }
    }

    /// How many bytes may go on this side until it has carried as much as the other.
    fn behind(&self, side: Side) -> u64 {
        let (inside, outside) = (self.inside.load(Ordering::Relaxed), self.outside.load(Ordering::Relaxed));
        inside.max(outside).saturating_sub(self.of(side).load(Ordering::Relaxed))
    }
}

/// What a connection carries whose bytes are read and written anew. Its sides differ: a header that HTTP/2 says with one byte may
/// be thousands to a server of HTTP/1, and one program's connection may be many to servers. The larger of both is counted.
#[derive(Debug)]
pub(crate) struct Carried {
    meter: Arc<Meter>,
    out: Sides,
    back: Sides,
}

impl Carried {
    pub(crate) fn new(meter: Arc<Meter>) -> Self {
        Self { meter, out: Sides::default(), back: Sides::default() }
    }

    fn sides(&self, way: Direction) -> &Sides {
        match way {
            Direction::Out => &self.out,
            Direction::In => &self.back,
        }
    }

    /// How many bytes may go, at most `wanted`: those that the other side has carried are counted already.
    pub(crate) fn room(&self, side: Side, way: Direction, wanted: usize) -> usize {
        let counted = usize::try_from(self.sides(way).behind(side)).unwrap_or(usize::MAX).min(wanted);
        counted.saturating_add(self.meter.room(wanted.saturating_sub(counted)))
    }

    /// How long to wait before so many may go: those that are counted already are paid for, too.
    pub(crate) fn owed(&self, side: Side, way: Direction, wanted: usize) -> Option<Duration> {
        let counted = u64::try_from(wanted).is_ok_and(|wanted| wanted <= self.sides(way).behind(side));
        if counted { None } else { self.meter.owed() }
    }

    /// Counts bytes that went.
    pub(crate) fn count(&self, side: Side, way: Direction, count: usize) {
        let sides = self.sides(way);
        let counted = usize::try_from(sides.behind(side)).unwrap_or(usize::MAX);
        sides.of(side).fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.meter.count(way, count.saturating_sub(counted));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::units::{Bytes, BytesPerSecond};

    #[test]
    fn what_one_connection_spent_all_of_them_owe() {
        let mut net = Net::closed();
        let meter = Meter::new(&net);
        meter.count(Direction::Out, usize::MAX);
        assert_eq!(meter.owed(), None, "no rate");
        net.bandwidth = Some(BytesPerSecond(1000));
        meter.limit(&net);
        meter.count(Direction::Out, 1000);
        assert_eq!(meter.owed(), None);
        meter.count(Direction::In, 60_000);
        assert!(meter.owed().is_some_and(|wait| wait > Duration::from_secs(50)));
        assert!(meter.owed().is_some(), "to ask pays nothing");
    }

    /// What stands in the way of every connection: without it each test of a real one that names the bandwidth is red, too.
    #[test]
    fn who_waits_goes_on_when_nothing_is_owed_and_not_before() {
        let mut net = Net::closed();
        net.bandwidth = Some(BytesPerSecond(10_000));
        let meter = Meter::new(&net);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let waited = || {
            let begun = Instant::now();
            runtime.block_on(meter.wait());
            begun.elapsed()
        };
        meter.count(Direction::Out, 10_000);
        assert!(waited() < Duration::from_millis(200), "a second's worth goes at once");
        meter.count(Direction::In, 4000);
        let wait = waited();
        assert!(wait > Duration::from_millis(190), "4000 bytes at 10,000 a second: {wait:?}");
        assert_eq!(meter.owed(), None);
    }

    #[test]
    fn another_rate_is_no_new_burst() {
        let mut net = Net::closed();
        net.bandwidth = Some(BytesPerSecond(1000));
        let meter = Meter::new(&net);
        meter.count(Direction::Out, 60_000);
        for rate in [1001, 1000, 2000] {
            net.bandwidth = Some(BytesPerSecond(rate));
            meter.limit(&net);
            assert!(meter.owed().is_some_and(|wait| wait > Duration::from_secs(20)), "{rate}: {:?}", meter.owed());
        }
    }

    #[test]
    fn the_larger_side_of_a_connection_is_counted() {
        let mut net = Net::closed();
        net.bytes = Some(Bytes(100));
        net.bandwidth = Some(BytesPerSecond(10));
        let meter = Arc::new(Meter::new(&net));
        let carried = Carried::new(Arc::clone(&meter));
        let (out, back) = (Direction::Out, Direction::In);
        carried.count(Side::Inside, out, 20);
        assert_eq!((meter.counts(), carried.room(Side::Outside, out, 200)), ((20, 0), 100));
        // What came from the other side is counted and paid for already.
        assert!(carried.owed(Side::Inside, out, 1).is_some() && carried.owed(Side::Outside, out, 20).is_none());
        assert!(carried.owed(Side::Outside, out, 21).is_some());
        carried.count(Side::Outside, out, 15);
        assert_eq!(meter.counts(), (20, 0));
        carried.count(Side::Outside, out, 55);
        assert_eq!((meter.counts(), carried.room(Side::Outside, out, 200)), ((70, 0), 30));
        carried.count(Side::Outside, back, 30);
        assert_eq!((carried.room(Side::Outside, back, 9), carried.room(Side::Inside, back, 200)), (0, 30));
        carried.count(Side::Inside, back, 30);
        assert_eq!((carried.room(Side::Inside, back, 1), meter.counts()), (0, (70, 30)));
        // Another connection has its own sides, and the same limit.
        assert_eq!(Carried::new(meter).room(Side::Inside, out, 9), 0);
    }

    #[test]
    fn bytes_end_exactly_where_they_should() {
        let mut net = Net::closed();
        net.bytes = Some(Bytes(100));
        net.bandwidth = Some(BytesPerSecond(1 << 30));
        let meter = Meter::new(&net);
        assert_eq!(meter.room(70), 70);
        meter.count(Direction::Out, 60);
        assert_eq!((meter.room(70), meter.is_used()), (40, false));
        meter.count(Direction::In, 40);
        assert_eq!((meter.room(1), meter.is_used(), meter.counts()), (0, true, (60, 40)));
        net.bytes = None;
        meter.limit(&net);
        assert_eq!(meter.room(usize::MAX), usize::MAX);
    }
}
