//! A bucket of tokens: so many come a second, and so many may be taken at once.

use std::time::{Duration, Instant};

/// Parts of a token, in which it is counted: what came in any time is whole then.
const PARTS: i128 = 1_000_000;

#[derive(Debug)]
pub(crate) struct Bucket {
    /// Tokens a second.
    rate: u64,
    /// Tokens at most.
    most: u64,
    /// What is there; below zero, what is owed.
    parts: i128,
    filled: Instant,
}

impl Bucket {
    /// Full.
    pub(crate) fn new(rate: u64, most: u64, now: Instant) -> Self {
        Self { rate: rate.max(1), most, parts: i128::from(most).saturating_mul(PARTS), filled: now }
    }

    /// Takes another rate, with a second's worth at once. It is no new burst: what was spent, or is owed, stays so.
    pub(crate) fn change(&mut self, rate: u64, now: Instant) {
        self.fill(now);
        (self.rate, self.most) = (rate.max(1), rate.max(1));
        self.parts = self.parts.min(i128::from(self.most).saturating_mul(PARTS));
    }

    /// Takes so many, whether they are there or not.
    pub(crate) fn spend(&mut self, count: u64, now: Instant) {
        self.fill(now);
        self.parts = self.parts.saturating_sub(i128::from(count).saturating_mul(PARTS));
    }

    /// Takes one, if it is there.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        self.fill(now);
        let is_there = self.parts >= PARTS;
        if is_there {
            self.parts = self.parts.saturating_sub(PARTS);
        }
        is_there
    }

    /// How long until nothing is owed.
    pub(crate) fn owed(&mut self, now: Instant) -> Option<Duration> {
        self.fill(now);
        if self.parts >= 0 {
            return None;
        }
        // A part comes in a microsecond where the rate is one.
        let wait = self.parts.saturating_neg().checked_div(i128::from(self.rate)).unwrap_or(0).saturating_add(1);
        Some(Duration::from_micros(u64::try_from(wait).unwrap_or(u64::MAX)))
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.filled).as_micros();
        let passed = u64::try_from(passed).unwrap_or(u64::MAX);
        self.filled = self.filled.checked_add(Duration::from_micros(passed)).unwrap_or(now);
        let more = i128::from(passed).saturating_mul(i128::from(self.rate));
        self.parts = self.parts.saturating_add(more).min(i128::from(self.most).saturating_mul(PARTS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_and_then_the_rate() {
        let start = Instant::now();
        let mut bucket = Bucket::new(1000, 1000, start);
        bucket.spend(1000, start);
        assert_eq!(bucket.owed(start), None);
        bucket.spend(500, start);
        let wait = bucket.owed(start).unwrap();
        assert!(wait >= Duration::from_millis(500) && wait < Duration::from_millis(501), "{wait:?}");
        assert_eq!(bucket.owed(start + wait), None);
        let late = start + Duration::from_secs(60);
        bucket.spend(2000, late);
        let wait = bucket.owed(late).unwrap();
        assert!(
            wait >= Duration::from_secs(1) && wait < Duration::from_millis(1001),
            "no more than the burst: {wait:?}"
        );
    }

    /// However often it is asked, and at whatever moments: in a time no more are taken than burst and rate give, and no fewer.
    #[test]
    fn what_is_taken_is_burst_and_rate_to_the_token() {
        let start = Instant::now();
        for step in [1, 7, 19, 21, 333] {
            let mut bucket = Bucket::new(50, 100, start);
            let moments = (0..=10_000_u64).step_by(step).map(|at| start + Duration::from_millis(at));
            let mut taken = 0;
            for now in moments {
                while bucket.take(now) {
                    taken += 1;
                }
            }
            let last = 10_000 / u64::try_from(step).unwrap() * u64::try_from(step).unwrap();
            assert_eq!(taken, 100 + 50 * last / 1000, "every {step} ms");
        }
    }
}
