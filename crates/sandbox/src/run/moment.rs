//! When a run began, on the clock by which file systems tell when something changed. That clock can be set back while the run
//! lasts: what somebody changes afterwards would look older than the run, and `apply` would write over it.

use std::time::Duration;

use rustix::time::ClockId;

/// Seconds and nanoseconds, as file systems have them.
pub(super) type Stamp = (i64, u64);

/// A moment on both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    real: Duration,
    /// Nobody sets this one, and it counts a machine's sleep.
    boot: Duration,
}

impl Moment {
    pub(super) fn now() -> Self {
        Self { real: read(ClockId::Realtime), boot: read(ClockId::Boottime) }
    }

    /// This moment on the clock of files; earlier by as much as that clock was set back since then, so that nothing that changed
    /// since looks older.
    pub(super) fn on_files(self) -> Stamp {
        stamp(self.seen_at(Self::now()))
    }

    fn seen_at(self, now: Self) -> Duration {
        let passed = now.boot.saturating_sub(self.boot);
        self.real.min(now.real.saturating_sub(passed))
    }
}

fn read(clock: ClockId) -> Duration {
    let now = rustix::time::clock_gettime(clock);
    let (seconds, nanos) = (u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0));
    Duration::new(seconds, nanos)
}

fn stamp(at: Duration) -> Stamp {
    (i64::try_from(at.as_secs()).unwrap_or(i64::MAX), u64::from(at.subsec_nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(real: u64, boot: u64) -> Moment {
        Moment { real: Duration::from_secs(real), boot: Duration::from_secs(boot) }
    }

    #[test]
    fn what_changes_after_the_clock_was_set_back_is_not_older_than_the_run() {
        let began = at(1000, 10);
        // 60 s later, and the clock was set back by 300 s: somebody's change is of second 760 or later.
        assert_eq!(began.seen_at(at(760, 70)), Duration::from_secs(700));
        // Without a jump, and with one ahead, it is the moment itself.
        assert_eq!(began.seen_at(at(1060, 70)), Duration::from_secs(1000));
        assert_eq!(began.seen_at(at(9999, 70)), Duration::from_secs(1000));
        assert_eq!(began.seen_at(at(3, 70)), Duration::ZERO, "before 1970 there is nothing");
    }

    #[test]
    fn the_two_clocks_agree_on_a_machine_where_nobody_sets_one() {
        let began = Moment::now();
        let (seconds, _) = began.on_files();
        assert!(seconds.abs_diff(i64::try_from(began.real.as_secs()).unwrap()) <= 1);
    }
}
