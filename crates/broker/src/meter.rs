//! What a run sent and received, and how much and how fast it may: `net.bytes` and `net.bandwidth`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use policy::value::Net;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
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
    bucket: Mutex<Bucket>,
}

/// A token bucket: a second's worth at most, and below zero while somebody waits.
#[derive(Debug)]
struct Bucket {
    /// Bytes a second.
    rate: Option<u64>,
    tokens: i128,
    filled: Instant,
}

impl Meter {
    pub(crate) fn new(net: &Net) -> Self {
        let bucket = Bucket { rate: None, tokens: 0, filled: Instant::now() };
        let meter = Self {
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            most: AtomicU64::new(u64::MAX),
            bucket: Mutex::new(bucket),
        };
        meter.limit(net);
        meter
    }

    /// Takes the limits of other rules; what was counted stays.
    pub(crate) fn limit(&self, net: &Net) {
        self.most.store(net.bytes.map_or(u64::MAX, |bytes| bytes.0), Ordering::Relaxed);
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let rate = net.bandwidth.map(|rate| rate.0.max(1));
        match (bucket.rate, rate) {
            // Another rate is no new second: what was spent, or is owed, stays so.
            (Some(_), Some(rate)) => {
                bucket.spend(0, Instant::now());
                bucket.tokens = bucket.tokens.min(i128::from(rate));
                bucket.rate = Some(rate);
            }
            (None, Some(_)) | (_, None) => {
                *bucket = Bucket { rate, tokens: i128::from(rate.unwrap_or(0)), filled: Instant::now() };
            }
        }
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
        self.bucket.lock().unwrap_or_else(PoisonError::into_inner).spend(0, Instant::now())
    }

    /// Counts bytes that went.
    pub(crate) fn count(&self, way: Way, count: usize) {
        let bytes = u64::try_from(count).unwrap_or(u64::MAX);
        match way {
            Way::Out => self.sent.fetch_add(bytes, Ordering::Relaxed),
            Way::In => self.received.fetch_add(bytes, Ordering::Relaxed),
        };
        self.bucket.lock().unwrap_or_else(PoisonError::into_inner).spend(bytes, Instant::now());
    }
}

impl Bucket {
    /// Takes so many; how long to wait before more may go.
    fn spend(&mut self, bytes: u64, now: Instant) -> Option<Duration> {
        let rate = i128::from(self.rate?);
        let passed = i128::try_from(now.saturating_duration_since(self.filled).as_micros()).unwrap_or(i128::MAX);
        let more = passed.saturating_mul(rate) / 1_000_000;
        if more > 0 {
            self.filled = now;
        }
        self.tokens = self.tokens.saturating_add(more).min(rate).saturating_sub(i128::from(bytes));
        if self.tokens >= 0 {
            return None;
        }
        let wait = self.tokens.saturating_neg().saturating_mul(1_000_000) / rate;
        Some(Duration::from_micros(u64::try_from(wait).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::units::{Bytes, BytesPerSecond};

    #[test]
    fn a_second_of_burst_and_then_the_rate() {
        let start = Instant::now();
        let mut bucket = Bucket { rate: Some(1000), tokens: 1000, filled: start };
        assert_eq!(bucket.spend(1000, start), None);
        assert_eq!(bucket.spend(500, start), Some(Duration::from_millis(500)));
        assert_eq!(bucket.spend(0, start + Duration::from_millis(500)), None);
        assert_eq!(
            bucket.spend(2000, start + Duration::from_secs(60)),
            Some(Duration::from_secs(1)),
            "no more than one"
        );
    }

    #[test]
    fn what_one_connection_spent_all_of_them_owe() {
        let mut net = Net::closed();
        let meter = Meter::new(&net);
        meter.count(Way::Out, usize::MAX);
        assert_eq!(meter.owed(), None, "no rate");
        net.bandwidth = Some(BytesPerSecond(1000));
        meter.limit(&net);
        meter.count(Way::Out, 1000);
        assert_eq!(meter.owed(), None);
        meter.count(Way::In, 60_000);
        assert!(meter.owed().is_some_and(|wait| wait > Duration::from_secs(50)));
        assert!(meter.owed().is_some(), "to ask pays nothing");
    }

    #[test]
    fn another_rate_is_no_new_burst() {
        let mut net = Net::closed();
        net.bandwidth = Some(BytesPerSecond(1000));
        let meter = Meter::new(&net);
        meter.count(Way::Out, 60_000);
        for rate in [1001, 1000, 2000] {
            net.bandwidth = Some(BytesPerSecond(rate));
            meter.limit(&net);
            assert!(meter.owed().is_some_and(|wait| wait > Duration::from_secs(20)), "{rate}: {:?}", meter.owed());
        }
    }

    #[test]
    fn bytes_end_exactly_where_they_should() {
        let mut net = Net::closed();
        net.bytes = Some(Bytes(100));
        net.bandwidth = Some(BytesPerSecond(1 << 30));
        let meter = Meter::new(&net);
        assert_eq!(meter.room(70), 70);
        meter.count(Way::Out, 60);
        assert_eq!((meter.room(70), meter.is_used()), (40, false));
        meter.count(Way::In, 40);
        assert_eq!((meter.room(1), meter.is_used(), meter.counts()), (0, true, (60, 40)));
        net.bytes = None;
        meter.limit(&net);
        assert_eq!(meter.room(usize::MAX), usize::MAX);
    }
}
