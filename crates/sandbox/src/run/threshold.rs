//! Thresholds: whether usage has stayed above what the policy names, for as long as it names.
//!
//! Memory has to be above it at each look. Processor time is a mean over the whole time that the policy names: a busy
//! program on a busy host is not on a processor at each look, and one that rests for a moment now and then has not
//! used less.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use backends::Sample;
use policy::value::Threshold;

use crate::quantity::bytes;

/// So many looks are kept of the time that a mean is taken over.
const KEPT: u32 = 64;

/// How long a threshold has been passed.
#[derive(Debug)]
pub(super) struct Lasting {
    /// Since when memory has been above it.
    memory: Option<Instant>,
    /// When so much processor time, in microseconds, had been used; the first is the oldest that is needed.
    used: VecDeque<(Instant, u64)>,
}

impl Lasting {
    /// Nothing was used when it began.
    pub(super) fn since(began: Instant) -> Self {
        Self { memory: None, used: VecDeque::from([(began, 0)]) }
    }

    /// What stayed above the threshold for as long as it says, in words.
    pub(super) fn judge(&mut self, threshold: &Threshold, sample: &Sample, now: Instant) -> Option<String> {
        let lasting = Duration::from_millis(threshold.lasting.0);
        let mut words = Vec::new();
        if let Some(limit) = threshold.cpu_percent
            && let Some(percent) = self.mean(sample.user_us.saturating_add(sample.system_us), lasting, now)
            && percent > u64::from(limit)
        {
            words.push(format!("processor {percent} % of one core (threshold {limit})"));
        }
        if let Some(limit) = threshold.memory {
            if sample.memory <= limit.0 {
                self.memory = None;
            } else if now.saturating_duration_since(*self.memory.get_or_insert(now)) >= lasting {
                words.push(format!("memory {} (threshold {limit})", bytes(sample.memory)));
            }
        }
        (!words.is_empty()).then(|| words.join(", "))
    }

    /// Per cent of one core over the last `lasting`; nothing before so much time has passed.
    fn mean(&mut self, used: u64, lasting: Duration, now: Instant) -> Option<u64> {
        while self.used.get(1).is_some_and(|(at, _)| now.saturating_duration_since(*at) >= lasting) {
            self.used.pop_front();
        }
        let (from, before) = *self.used.front()?;
        if self.used.back().is_none_or(|(at, _)| now.saturating_duration_since(*at) >= lasting / KEPT) {
            self.used.push_back((now, used));
        }
        let elapsed = now.saturating_duration_since(from);
        if elapsed < lasting {
            return None;
        }
        let spent = u128::from(used.saturating_sub(before));
        Some(u64::try_from(spent * 100 / elapsed.as_micros().max(1)).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use policy::{Bytes, Millis};

    use super::*;

    fn looks(threshold: &Threshold, usage: impl Fn(u64) -> (u64, u64)) -> Option<u64> {
        let began = Instant::now();
        let mut lasting = Lasting::since(began);
        (1..=100).map(|look| look * 100).find(|ms| {
            let (user_us, memory) = usage(*ms);
            let sample = Sample { user_us, memory, ..Sample::default() };
            lasting.judge(threshold, &sample, began + Duration::from_millis(*ms)).is_some()
        })
    }

    fn cpu(percent: u32, lasting: u64) -> Threshold {
        Threshold { cpu_percent: Some(percent), memory: None, lasting: Millis(lasting) }
    }

    #[test]
    fn a_program_that_is_not_on_a_processor_at_each_look_is_above_by_its_mean() {
        // 500 ms on, 100 ms off: never above for a second without a break, and 83 % all the same.
        let spells = |ms: u64| (((ms / 600) * 500 + (ms % 600).min(500)) * 1000, 0);
        assert_eq!(looks(&cpu(70, 1000), spells), Some(1000));
        assert_eq!(looks(&cpu(95, 1000), spells), None);
    }

    #[test]
    fn a_peak_shorter_than_the_time_and_a_use_below_the_threshold_pass() {
        assert_eq!(looks(&cpu(50, 2000), |ms| (ms.min(600) * 1000, 0)), None);
        assert_eq!(looks(&cpu(50, 1000), |ms| (ms * 490, 0)), None);
        // Idle first: the mean is of the last second, and not of the whole run.
        assert_eq!(looks(&cpu(90, 1000), |ms| (ms.saturating_sub(5000) * 1000, 0)), Some(6000));
    }

    #[test]
    fn what_is_kept_of_a_long_time_is_bounded_and_the_mean_is_right() {
        assert_eq!(looks(&cpu(50, 9000), |ms| (ms * 600, 0)), Some(9000));
        let began = Instant::now();
        let mut lasting = Lasting::since(began);
        for ms in (100..200_000).step_by(100) {
            lasting.mean(ms * 1000, Duration::from_secs(60), began + Duration::from_millis(ms));
        }
        assert!(lasting.used.len() <= 70, "{}", lasting.used.len());
    }

    #[test]
    fn memory_has_to_stay_above_at_each_look() {
        let above = Threshold { cpu_percent: None, memory: Some(Bytes(100)), lasting: Millis(500) };
        assert_eq!(looks(&above, |_| (0, 101)), Some(600));
        assert_eq!(looks(&above, |ms| (0, if ms % 300 == 0 { 99 } else { 101 })), None);
    }
}
