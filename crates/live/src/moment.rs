//! When a life is over, on two clocks: the one that people read, which may be set, and the one that decides.

use std::time::Duration;

use crate::words::Info;

/// Milliseconds since the machine was started, its sleep included.
#[must_use]
pub fn boot_ms() -> i64 {
    millis(sys::caller::since_boot())
}

/// Milliseconds of it, as far as they can be counted.
#[must_use]
pub fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

impl Info {
    /// Its life is over so long after now, which is `now_ms` for people; without: never.
    pub(crate) fn end_in(&mut self, now_ms: i64, life: Option<Duration>) {
        let after = |now: i64| life.map(|life| now.saturating_add(millis(life)));
        (self.ends_ms, self.ends_boot_ms) = (after(now_ms), after(boot_ms()));
    }
}
