//! Which limit a sample passes, of those that are held by sampling.

use std::time::{Duration, Instant};

use backends::Sample;
use policy::Millis;
use policy::report::Limit;

use super::violations::limit_of;
use super::watches::Watches;
use crate::quantity::bytes;

/// So long buffers of TCP and UDP may have all that they may have: traffic comes and goes, and what is kept stays.
const SOCKETS_FULL: Duration = Duration::from_millis(500);

/// What one sample alone does not tell.
#[derive(Debug, Default)]
pub(super) struct Passed {
    /// Since when the buffers of sockets were full at each look.
    sockets_full: Option<Instant>,
}

impl Passed {
    /// Limits that are held by sampling, and out-of-memory kills that the kernel counted.
    pub(super) fn judge(&mut self, watches: &Watches, sample: &Sample) -> Option<(Limit, String)> {
        if !sample.sockets_full {
            self.sockets_full = None;
        } else if self.sockets_full.get_or_insert_with(Instant::now).elapsed() > SOCKETS_FULL {
            let limit = limit_of(watches.memory_limit);
            return Some((Limit::Memory, format!("buffers of TCP and UDP took all of their part of {limit}")));
        }
        if let Some(most) = watches.waiting
            && sample.waiting > most.0
        {
            let limit = limit_of(watches.memory_limit);
            let words = if sample.waiting == u64::MAX {
                format!("it has more sockets than anybody could look through for what is not charged to {limit}")
            } else {
                let held = bytes(sample.waiting);
                format!(
                    "connections that nobody accepted and netlink sockets hold {held}, more than a quarter of {limit}"
                )
            };
            return Some((Limit::Memory, words));
        }
        if sample.oom_kills > 0 && !watches.live {
            let limit = limit_of(watches.memory_limit);
            let words = format!("memory of the tree reached {limit}: the kernel killed a process of it");
            return Some((Limit::Memory, words));
        }
        if let Some((limit, _)) = watches.cpu_time {
            let used = (sample.user_us + sample.system_us) / 1000;
            if used >= limit.0 {
                let words = format!("processor time of the tree, {}, reached its limit of {limit}", Millis(used));
                return Some((Limit::CpuTime, words));
            }
        }
        if let Some(limit) = watches.memory
            && sample.memory > limit.0
        {
            let words = format!("memory of the tree, {}, passed its limit of {limit}", bytes(sample.memory));
            return Some((Limit::Memory, words));
        }
        if let Some(limit) = watches.pids
            && sample.pids > u64::from(limit)
        {
            let words = format!("{} processes and threads, the limit is {limit}", sample.pids);
            return Some((Limit::Pids, words));
        }
        None
    }
}
