//! What a sandbox that runs uses now, beside what it used so far.

use std::time::{Duration, Instant};

use backends::Sample;
use policy::Usage;
use serde::Serialize;

/// A share of processor time is told over at least so long: processes are counted in ticks of 10 ms.
const WINDOW: Duration = Duration::from_secs(1);

/// What a sandbox uses while it runs. What nobody knows is absent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct UsageNow {
    /// As the report of its run will have it. `disk` is what is held now.
    #[serde(flatten)]
    pub so_far: Usage,
    /// Memory of the tree, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Processes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
    /// Processor time of the last second or so, percent of one core; since the start where that is not so long ago.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_percent: Option<f64>,
}

impl UsageNow {
    /// Nobody has looked yet.
    pub(super) const fn unseen(so_far: Usage) -> Self {
        Self { so_far, memory: None, pids: None, cpu_percent: None }
    }

    pub(super) fn of(seen: &UsageSample, so_far: Usage) -> Self {
        let sample = &seen.sample;
        let pids = (!sample.uncounted_pids).then_some(sample.pids);
        Self { so_far, memory: Some(sample.memory), pids, cpu_percent: Some(seen.percent) }
    }
}

/// What a supervisor saw.
#[derive(Clone, Copy, Debug)]
pub(super) struct UsageSample {
    pub(super) sample: Sample,
    /// Bytes of output.
    pub(super) output: u64,
    /// Bytes held in writable places, where they are known.
    pub(super) disk: Option<u64>,
    /// A moment before, and the processor time until then, microseconds.
    mark: (Instant, u64),
    /// Share of one core between two such moments.
    percent: f64,
    /// It is that of a whole window.
    settled: bool,
}

impl UsageSample {
    /// What else is known then.
    pub(super) const fn with(self, output: u64, disk: Option<u64>) -> Self {
        Self { output, disk, ..self }
    }

    /// The next look, at a moment.
    pub(super) fn after(before: Option<Self>, started: Instant, at: Instant, sample: Sample) -> Self {
        let used = sample.user_us.saturating_add(sample.system_us);
        let (mark, percent, settled) =
            before.map_or(((started, 0), 0.0, false), |seen| (seen.mark, seen.percent, seen.settled));
        let passed = at.saturating_duration_since(mark.0);
        let seen = Self { sample, output: 0, disk: None, mark, percent, settled };
        if passed < WINDOW && settled {
            return seen;
        }
        let ran = Duration::from_micros(used.saturating_sub(mark.1));
        let percent = if passed.is_zero() { 0.0 } else { ran.as_secs_f64() / passed.as_secs_f64() * 100.0 };
        if passed < WINDOW {
            Self { percent, ..seen }
        } else {
            Self { mark: (at, used), percent, settled: true, ..seen }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(times: &[(u64, u64)]) -> Vec<f64> {
        let started = Instant::now();
        let mut seen = None;
        let look = |&(ms, user_us): &(u64, u64)| {
            let sample = Sample { user_us, ..Sample::default() };
            let next = UsageSample::after(seen.take(), started, started + Duration::from_millis(ms), sample);
            seen = Some(next);
            next.percent
        };
        times.iter().map(look).collect()
    }

    #[test]
    fn a_share_is_that_of_the_last_window_and_not_of_the_whole_life() {
        let found = looks(&[(100, 50_000), (1000, 1_000_000), (1500, 1_000_000), (2000, 1_000_000), (3000, 3_000_000)]);
        let wanted = [50.0, 100.0, 100.0, 0.0, 200.0];
        assert!(found.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 0.01), "{found:?}");
    }

    #[test]
    fn a_look_at_once_and_a_counter_that_goes_back_are_no_share() {
        assert_eq!(looks(&[(0, 10)]), [0.0]);
        assert_eq!(looks(&[(1000, 500_000), (2000, 100_000)]).last(), Some(&0.0));
    }
}
