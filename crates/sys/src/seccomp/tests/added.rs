//! What `syscalls.allow` may add.

use super::super::names;
use super::super::profile::ADDABLE;
use super::super::rule::{Action, Verdict};
use super::super::{Profile, Surroundings, profiles};

/// Newer calls do what older ones do that are held by their arguments, and each kernel brings more: only what was looked at is added.
#[test]
fn a_call_that_nobody_looked_at_cannot_be_added() {
    let process =
        Surroundings { shared_pids: true, shared_files: true, counted_memory: true, ..Surroundings::default() };
    let twins = [
        "setxattrat",
        "file_setattr",
        "sched_setattr",
        "mbind",
        "set_mempolicy_home_node",
        "fanotify_init",
        "fanotify_mark",
        "io_setup",
        "keyctl",
        "add_key",
        "request_key",
        "process_madvise",
        "process_mrelease",
        "openat2",
        "ioctl",
        "memfd_create",
        "bpf",
        "perf_event_open",
        "userfaultfd",
        "open_by_handle_at",
        "open_tree_attr",
        "clone3",
        "mount",
        "lsm_set_self_attr",
        "remap_file_pages",
    ];
    for surroundings in [Surroundings::default(), process] {
        for name in twins {
            let mut profile = Profile::load("default", &surroundings).unwrap();
            let before = profile.clone();
            assert!(profile.allow(name).is_err(), "{name}");
            assert_eq!(profile, before, "{name}");
        }
    }
    // Every call that is neither open in a profile nor in the list is refused, by whatever name the kernel has it.
    let listed: Vec<&str> = ADDABLE.iter().flat_map(|(calls, _)| calls.iter().copied()).collect();
    let open = |name: &str| {
        let number = names::number(name).unwrap();
        profiles().iter().any(|profile| {
            let profile = Profile::load(profile, &Surroundings::default()).unwrap();
            profile.filter().calls.get(number) == Some(&Verdict::Always(Action::Allow))
        })
    };
    for name in names::all() {
        let added = Profile::load("strict", &Surroundings::default()).unwrap().allow(name).is_ok();
        assert_eq!(added, listed.contains(&name) || open(name), "{name}");
    }
    // The page of the clause names them.
    let page = include_str!("../../../../../docs/reference/policy.md");
    let section = page.split("### syscalls.allow").nth(1).unwrap().split("### ").next().unwrap();
    assert!(listed.iter().all(|name| section.contains(&format!("`{name}`"))), "{section}");
}

/// The attacks: a renaming that leaves a device node behind, and questions about processes of the host by their descriptors.
#[test]
fn no_renaming_leaves_a_node_and_no_descriptor_tells_of_a_process() {
    let process = Surroundings { shared_pids: true, shared_files: true, ..Surroundings::default() };
    let number = |name| names::number(name).unwrap();
    for name in profiles() {
        for surroundings in [Surroundings::default(), process] {
            let profile = Profile::load(name, &surroundings).unwrap();
            let renamed = |flags| profile.judge(number("renameat2"), [0, 0, 0, 0, flags, 0]);
            for flags in [4, 5, 4 | 1 << 32] {
                assert_eq!(renamed(flags), Action::Errno(22), "{name} {flags}");
            }
            assert_eq!([0, 1, 2].map(renamed), [Action::Allow; 3], "{name}");
        }
        let profile = Profile::load(name, &process).unwrap();
        // PIDFD_GET_INFO, and a namespace of it.
        for request in [0xc050_ff0b, 0xff01] {
            assert_eq!(profile.judge(number("ioctl"), [3, request, 0, 0, 0, 0]), Action::Errno(1), "{name}");
        }
    }
}

/// The attack: filters of the program's own are memory that nobody counts where memory is counted by looking.
#[test]
fn no_filter_is_added_where_memory_is_counted_by_looking() {
    let number = |name| names::number(name).unwrap();
    for name in profiles() {
        for (counted_memory, open) in [(false, *name == "default" || *name == "image-build"), (true, false)] {
            for undumpable in [false, true] {
                let surroundings = Surroundings { counted_memory, undumpable, ..Surroundings::default() };
                let profile = Profile::load(name, &surroundings).unwrap();
                let called =
                    |call, first, second| profile.judge(number(call), [first, second, 0, 0, 0, 0]) == Action::Allow;
                assert_eq!(called("seccomp", 1, 0), open, "{name} {counted_memory}");
                assert_eq!(called("prctl", 22, 2), open, "{name} {counted_memory}");
                assert!(called("prctl", 38, 1) && called("prctl", 15, 0), "{name}");
                assert_eq!(called("prctl", 4, 0), undumpable, "{name}");
            }
        }
    }
}
