//! How much a broker may take of the host. A control group holds it where the host has one; else the broker's keeper looks, as the
//! process tier does. Whatever a program makes it take, the broker ends of it, and the network inside with it.

use std::time::Duration;

use backends::Sample;
use policy::control::{CgroupLimit, Control, Watch};
use policy::{Bytes, Plan};

use crate::quantity::bytes;

/// Between two looks, where nobody but the keeper holds it.
const LOOK: Duration = Duration::from_millis(50);

/// The bounds of one broker.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bounds {
    /// What is said of an end by the kernel.
    limit: Option<Bytes>,
    memory: Option<Bytes>,
    pids: Option<u32>,
}

impl Bounds {
    /// Those of the broker's own plan.
    pub(super) fn of(plan: &Plan) -> Self {
        let mut all = Self::default();
        for control in plan.controls() {
            if let Control::Cgroup { limit: CgroupLimit::Memory(limit), version: _ } = control {
                all.limit = Some(Bytes(*limit));
            } else if let Control::Watch(Watch::Memory(limit)) = control {
                all.memory = Some(*limit);
            } else if let Control::Watch(Watch::Pids(limit)) = control {
                all.pids = Some(*limit);
            }
        }
        all
    }

    /// The controls that are in place by looking.
    pub(super) fn armed(&self) -> Vec<Control> {
        let watches = [self.memory.map(Watch::Memory), self.pids.map(Watch::Pids)];
        watches.into_iter().flatten().map(Control::Watch).collect()
    }

    /// When it is to be looked at next, if at all.
    pub(super) fn next(&self) -> Option<Duration> {
        (self.memory.is_some() || self.pids.is_some()).then_some(LOOK)
    }

    /// Which bound it has passed.
    pub(super) fn passed(&self, sample: &Sample) -> Option<String> {
        let memory = self.memory.filter(|limit| sample.memory > limit.0);
        let memory = memory.map(|limit| format!("its memory, {}, passed {limit}", bytes(sample.memory)));
        let pids = self.pids.filter(|limit| sample.pids > u64::from(*limit));
        memory.or_else(|| pids.map(|limit| format!("it had {} processes and threads, more than {limit}", sample.pids)))
    }

    /// Whether the kernel ended it for one of them.
    pub(super) fn ended(&self, sample: &Sample) -> Option<String> {
        let limit = self.limit.filter(|_| sample.oom_kills > 0)?;
        Some(format!("it needed more memory than {limit}, and the kernel ended it"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_a_bound_is_told() {
        let bounds = Bounds { limit: None, memory: Some(Bytes(1 << 20)), pids: Some(2) };
        let sample = |memory, pids| Sample { memory, pids, ..Sample::default() };
        assert_eq!(bounds.passed(&sample(1 << 20, 2)), None);
        assert_eq!(bounds.passed(&sample(2 << 20, 2)).as_deref(), Some("its memory, 2 MiB, passed 1M"));
        assert!(bounds.passed(&sample(0, 3)).unwrap().contains("3 processes"));
        assert_eq!(bounds.armed().len(), 2);
        let by_group = Bounds { limit: Some(Bytes(1 << 20)), memory: None, pids: None };
        assert_eq!((by_group.next(), by_group.passed(&sample(u64::MAX, 9))), (None, None));
        let killed = Sample { oom_kills: 1, ..Sample::default() };
        assert!(by_group.ended(&killed).unwrap().contains("the kernel ended it"));
        assert_eq!(by_group.ended(&Sample::default()), None);
    }
}
