//! What every program of a starter carries where the kernel lets nobody adopt orphans, as gVisor's of 2022: a resource limit whose
//! value is the starter's own, and a filter that keeps it.
//!
//! No kernel holds `RLIMIT_RSS`. It is inherited by every child and shown in `/proc/PID/stat`, so whoever descends from a program is
//! found by it, whatever parents and sessions it lost. A program cannot raise it again, and the filter lets nobody lower it. The same
//! filter keeps signals from those who watch: no Landlock does it there.

use rustix::process::{Resource, Rlimit};
use sys::seccomp::names;
use sys::seccomp::rule::{Action, Calls, Condition, Filter, Test, Verdict, Width};

/// The first one; bytes that nobody would ask for.
const FIRST: u64 = 1 << 50;
/// `RLIMIT_RSS`.
const RSS: u64 = 5;
const INIT: i32 = 1;
/// To everybody, for kill(2).
const ALL: i32 = -1;
/// Who is told that a descriptor is ready, by a number and by a description in memory: of fcntl(2).
const SET_OWNER: u64 = 8;
const SET_OWNER_EX: u64 = 15;
/// The same of ioctl(2): FIOSETOWN, SIOCSPGRP.
const OWNERS: [u64; 2] = [0x8901, 0x8902];

/// The mark of the starter that was made after so many others.
pub(super) const fn of(made: u64) -> u64 {
    FIRST.saturating_add(made)
}

/// Puts a mark on this process and all that it starts, for good; no signal of theirs reaches `ours`.
///
/// # Errors
/// `None`: it could not be put on, or not be kept; then nothing may be started.
pub(super) fn put(mark: u64, ours: [i32; 3]) -> Option<()> {
    let limit = Rlimit { current: Some(mark), maximum: Some(mark) };
    rustix::process::setrlimit(Resource::Rss, limit).ok()?;
    sys::bare::set_no_new_privs().ok()?;
    sys::seccomp::apply(&filter(ours, sys::caller::group()).compile().ok()?).ok()
}

fn filter(ours: [i32; 3], group: i32) -> Filter {
    // The group may be one that has no number here; 0 means the caller's own.
    let signalled = ours.into_iter().chain([INIT, ALL, group.saturating_neg()]).filter(|pid| *pid != 0);
    let ours: Vec<u64> = signalled.map(|pid| u64::from(pid.cast_unsigned())).collect();
    let is = |argument: u8, values: &[u64]| Condition {
        argument,
        width: Width::Int,
        test: Test::MaskedIn { mask: u64::from(u32::MAX), values: values.to_vec().into() },
    };
    let sets = Condition { argument: 2, width: Width::Long, test: Test::Ne(0) };
    let first = vec![vec![is(0, &ours)]];
    let either = vec![vec![is(0, &ours)], vec![is(1, &ours)]];
    let rules = [
        ("setrlimit", vec![vec![is(0, &[RSS])]]),
        ("prlimit64", vec![vec![is(1, &[RSS]), sets]]),
        ("kill", first.clone()),
        ("tkill", first.clone()),
        ("rt_sigqueueinfo", first.clone()),
        ("pidfd_open", first),
        ("tgkill", either.clone()),
        ("rt_tgsigqueueinfo", either),
        ("fcntl", vec![vec![is(1, &[SET_OWNER]), is(2, &ours)], vec![is(1, &[SET_OWNER_EX])]]),
        ("ioctl", vec![vec![is(1, &OWNERS)]]),
    ];
    let mut calls = Calls::new();
    for (name, any) in rules {
        let any: Vec<_> = any.into_iter().map(Into::into).collect();
        let verdict = Verdict::When { any: any.into(), then: Action::Errno(1), otherwise: Action::Allow };
        // One that this processor has not nobody can make.
        names::number(name).into_iter().for_each(|number| calls.insert(number, verdict.clone()));
    }
    Filter { calls, unknown: Action::Allow }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_kept_and_those_who_watch_are_reached_by_no_signal() {
        let filter = filter([20, 21, 22], 19);
        let judge = |name: &str, arguments: [u64; 6]| {
            let verdict = filter.calls.get(names::number(name).unwrap());
            verdict.map_or(filter.unknown, |verdict| verdict.judge(arguments))
        };
        let (refused, minus) = (Action::Errno(1), |pid: i32| u64::from(pid.cast_unsigned()));
        // Set by any of the ways, of oneself or of another; what a register holds above an int changes nothing.
        assert_eq!(judge("setrlimit", [RSS, 9, 0, 0, 0, 0]), refused);
        assert_eq!(judge("setrlimit", [RSS | 1 << 40, 9, 0, 0, 0, 0]), refused);
        for pid in [0, 99] {
            assert_eq!(judge("prlimit64", [pid, RSS, 9, 0, 0, 0]), refused);
            assert_eq!(judge("prlimit64", [pid, RSS, 0, 9, 0, 0]), Action::Allow, "it may be read");
            assert_eq!(judge("prlimit64", [pid, 7, 9, 0, 0, 0]), Action::Allow, "others may be set");
        }
        assert_eq!(judge("setrlimit", [7, 9, 0, 0, 0, 0]), Action::Allow);
        for name in ["kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"] {
            for pid in [1, 20, 21, 22, minus(-1), minus(-19), 20 | 1 << 32] {
                assert_eq!(judge(name, [pid, 9, 9, 0, 0, 0]), refused, "{name} {pid}");
            }
            // The control: programs signal one another, their own groups and themselves.
            for pid in [0, 23, minus(-23)] {
                assert_eq!(judge(name, [pid, 9, 9, 0, 0, 0]), Action::Allow, "{name} {pid}");
            }
        }
        assert_eq!(judge("tgkill", [23, 20, 9, 0, 0, 0]), refused);
        assert_eq!(judge("fcntl", [3, SET_OWNER, 20, 0, 0, 0]), refused);
        assert_eq!(judge("fcntl", [3, SET_OWNER, 23, 0, 0, 0]), Action::Allow);
        assert_eq!(judge("fcntl", [3, SET_OWNER_EX, 9, 0, 0, 0]), refused);
        assert_eq!(judge("ioctl", [3, 0x8901, 9, 0, 0, 0]), refused);
        assert_eq!(judge("ioctl", [3, 0x5401, 9, 0, 0, 0]), Action::Allow);
        assert!(filter.compile().is_ok());
    }
}
