//! How often is looked at what a program uses: what a look takes is the program's to say, which has as many processes, files and
//! locks as it likes.

use std::time::Duration;

/// Between two samples while something is watched by sampling.
const CLOSE: Duration = Duration::from_millis(20);
/// Between two samples otherwise: a late out-of-memory kill of a child is noticed within this.
const EASY: Duration = Duration::from_millis(100);
/// A look may cost so much of one core: after a longer one there is a longer pause, named as overshoot.
const LOOKING_PERCENT: u32 = 10;
/// And no pause is longer: what a look takes is the program's to say, and what it takes meanwhile is held by nobody.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// The pause after a look that took so much processor time. `close`: something is held by looking.
pub(super) fn pause(close: bool, looking: Duration) -> Duration {
    let least = if close { CLOSE } else { EASY };
    least.max(looking.saturating_mul(100 / LOOKING_PERCENT)).min(MAX_PAUSE)
}

/// Whether a run ran between two looks.
#[derive(Debug)]
pub(super) struct Rest {
    /// Processor time of the run at the last look.
    ran_us: Option<u64>,
    /// The kernel accounts for who runs at each tick, on each processor.
    ticks: bool,
}

impl Rest {
    /// Before the first look.
    pub(super) const fn new(ticks: bool) -> Self {
        Self { ran_us: None, ticks }
    }

    /// Whether nothing of it ran since the last look, when it has run for so long; none where that is not known exactly. Somebody
    /// who runs since less than a tick is not accounted for yet, and is by the next time: that tick is part of the overshoot.
    pub(super) fn slept(&mut self, ran_us: Option<u64>) -> bool {
        let slept = self.ticks && ran_us.is_some() && ran_us == self.ran_us;
        self.ran_us = ran_us;
        slept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks within a time, by a clock that only this test moves, and what they took of it in percent.
    fn looks(close: bool, each: Duration, within: Duration) -> (u32, u32) {
        let (mut clock, mut count) = (Duration::ZERO, 0_u32);
        while clock < within {
            clock += each + pause(close, each);
            count += 1;
        }
        let percent = each.as_nanos() * u128::from(count) * 100 / clock.as_nanos();
        (count, u32::try_from(percent).unwrap())
    }

    #[test]
    fn a_program_with_many_processes_makes_looks_rarer_and_not_the_watcher_busier() {
        let minute = Duration::from_secs(60);
        let (few, _) = looks(true, Duration::from_micros(40), minute);
        // What 250 sleeping processes took each time: at every 20 ms it would be 40 percent of a core.
        let (many, percent) = looks(true, Duration::from_millis(13), minute);
        assert!(few > 2900 && many < few / 6, "{few} looks at one process, {many} at 250");
        assert!(percent <= LOOKING_PERCENT, "{percent}");
        for each in [1, 10, 50, 100].map(Duration::from_millis) {
            assert!(looks(false, each, minute).1 <= LOOKING_PERCENT, "{each:?}");
        }
    }

    #[test]
    fn a_look_that_takes_long_leaves_nobody_unlooked_at_for_long() {
        for each in [1, 10, 100].map(Duration::from_secs) {
            assert_eq!(pause(true, each), MAX_PAUSE);
        }
    }
}
