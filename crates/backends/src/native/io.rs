//! Block devices whose bandwidth is to be limited: all whole disks that the kernel lists.

use policy::Policy;

use crate::host::Capabilities;

/// Limits per disk; empty when the policy asks for none or the controller is missing (then the planner has refused).
pub(super) fn limits(policy: &Policy, host: &Capabilities) -> Vec<sys::cgroup::IoLimit> {
    let (read, write) = (policy.limits.io_read.map(|r| r.0), policy.limits.io_write.map(|w| w.0));
    if (read.is_none() && write.is_none()) || host.controller("io").is_none() {
        return Vec::new();
    }
    disks().into_iter().map(|device| sys::cgroup::IoLimit { device, read, write }).collect()
}

fn disks() -> Vec<(u32, u32)> {
    let Ok(entries) = std::fs::read_dir("/sys/block") else { return Vec::new() };
    let mut list: Vec<(u32, u32)> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| {
            let text = std::fs::read_to_string(entry.path().join("dev")).ok()?;
            let (major, minor) = text.trim().split_once(':')?;
            Some((major.parse().ok()?, minor.parse().ok()?))
        })
        .collect();
    list.sort_unstable();
    list
}
