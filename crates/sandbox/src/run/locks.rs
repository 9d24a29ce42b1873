//! When byte-range locks are looked at. The table is that of the whole host, so that a look costs more the more sandboxes there
//! are, and each has its own supervisor: while nothing of a run runs, nothing can be locked, and nobody looks.

use std::time::{Duration, Instant};

use super::pace::Rest;

/// Between two looks.
const EVERY: Duration = Duration::from_millis(100);

/// The last look.
#[derive(Debug)]
pub(super) struct LockLook {
    at: Instant,
    rest: Rest,
}

impl LockLook {
    /// Before the first one.
    pub(super) fn new(now: Instant, ticks: bool) -> Self {
        Self { at: now, rest: Rest::new(ticks) }
    }

    /// Whether to look now, when the run has run for so long.
    pub(super) fn is_due(&mut self, ran_us: Option<u64>, now: Instant) -> bool {
        if now.saturating_duration_since(self.at) < EVERY {
            return false;
        }
        self.at = now;
        !self.rest.slept(ran_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(ticks: bool, ran: &[Option<u64>]) -> Vec<bool> {
        let start = Instant::now();
        let mut look = LockLook::new(start, ticks);
        let times = ran.iter().zip(1..);
        times.map(|(ran, number)| look.is_due(*ran, start + EVERY * number)).collect()
    }

    #[test]
    fn what_sleeps_is_not_looked_at_and_what_ran_is() {
        let ran = [Some(7), Some(7), Some(8), Some(8), Some(9)];
        assert_eq!(looks(true, &ran), [true, false, true, false, true]);
        assert_eq!(looks(true, &[Some(7), None, Some(7)]), [true, true, true], "what is not known counts as running");
        assert_eq!(looks(true, &[None, None]), [true, true]);
        assert_eq!(looks(false, &ran), [true; 5], "without ticks the time tells nothing");
    }

    #[test]
    fn looks_are_not_closer_than_they_need_be() {
        let start = Instant::now();
        let mut look = LockLook::new(start, true);
        assert!(!look.is_due(Some(1), start + EVERY / 2) && look.is_due(Some(1), start + EVERY));
        assert!(!look.is_due(Some(2), start + EVERY * 3 / 2), "and it is seen by the next");
        assert!(look.is_due(Some(2), start + EVERY * 2));
    }
}
