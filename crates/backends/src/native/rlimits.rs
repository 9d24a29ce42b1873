//! Resource limits of every process inside (setrlimit(2)); hard and soft are the same.

use guest::config::Rlimit;
use policy::Policy;

const CPU: u32 = 0;
const FSIZE: u32 = 1;
const CORE: u32 = 4;
const NPROC: u32 = 6;
const NOFILE: u32 = 7;
const MEMLOCK: u32 = 8;
const SIGPENDING: u32 = 11;
const MSGQUEUE: u32 = 12;
const NICE: u32 = 13;
const RTPRIO: u32 = 14;

/// The limits. `nproc`: the kernel's count of this user in this user namespace holds `limits.pids`.
pub(crate) fn of(policy: &Policy, nproc: bool) -> Vec<Rlimit> {
    let limits = &policy.limits;
    let mut list = vec![
        // 0 would still start a crash handler behind a pipe; 1 is the value that the kernel gives up at (core(5)).
        Rlimit { resource: CORE, value: 1 },
        // Not one page that the kernel cannot reclaim: any other value lets mlockall(2) through for what comes later.
        Rlimit { resource: MEMLOCK, value: 0 },
        Rlimit { resource: SIGPENDING, value: 1024 },
        Rlimit { resource: MSGQUEUE, value: 819_200 },
        Rlimit { resource: NICE, value: 0 },
        Rlimit { resource: RTPRIO, value: 0 },
    ];
    // One file cannot hold more than all may hold together.
    if let Some(size) = limits.file_size.into_iter().chain(limits.disk).min() {
        list.push(Rlimit { resource: FSIZE, value: size.0 });
    }
    if let Some(count) = limits.open_files {
        list.push(Rlimit { resource: NOFILE, value: u64::from(count) });
    }
    if let Some(time) = limits.cpu_time {
        // Per process and in whole seconds: the sampling of the tree comes first, this is behind it.
        list.push(Rlimit { resource: CPU, value: time.0.div_ceil(1000).saturating_add(1) });
    }
    if let (true, Some(count)) = (nproc, limits.pids) {
        // One more for the guest itself.
        list.push(Rlimit { resource: NPROC, value: u64::from(count).saturating_add(1) });
    }
    // What is allowed here is never more than the caller may have: a lower limit of theirs holds the clause as well.
    for limit in &mut list {
        let most = sys::rlimit::get(limit.resource).and_then(|(_, hard)| hard);
        limit.value = most.map_or(limit.value, |most| limit.value.min(most));
    }
    list
}
