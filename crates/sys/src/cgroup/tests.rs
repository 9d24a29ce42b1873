use super::*;
use crate::command::Command;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
const FOLDER: &str = "fumehood-sys-tests";

/// These tests need root on a host with groups; without, each says so and does nothing else.
fn host() -> Option<Hierarchies> {
    let host = Hierarchies::probe().unwrap();
    let ready =
        rustix::process::geteuid().is_root() && host.available().memory.is_ok() && host.available().pids.is_ok();
    if !ready {
        println!("skip: no writable control groups: {:?}", host.available());
    }
    ready.then_some(host)
}

fn name() -> String {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    format!(
        "t{}-{}",
        rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_nsec,
        NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
    )
}

/// A shell born in the group, waiting.
fn start(group: &Group, text: &std::ffi::CStr) -> crate::spawn::Child {
    use rustix::fs::{Mode, OFlags};
    let shell = rustix::fs::open("/bin/sh", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let fds = [(null.as_fd(), 0), (null.as_fd(), 1), (null.as_fd(), 2)];
    crate::spawn::Spawn {
        namespaces: crate::spawn::Namespaces::NONE,
        cgroup: group.v2_dir(),
        tasks: &group.tasks(),
        cgroup_namespace: true,
        mounts: &[],
        id_maps: crate::spawn::IdMaps::Later,
        time_offsets: None,
        ambient: 0,
        fds: &fds,
        program: shell.as_fd(),
        argv: &[c"sh", c"-c", text],
    }
    .start()
    .unwrap()
}

#[test]
fn a_child_is_born_in_the_group_below_ours_and_both_go_away() {
    let Some(host) = host() else { return };
    let name = name();
    let limits = Limits { memory: Some(64 << 20), pids: Some(10), ..Limits::default() };
    let group = host.create(FOLDER, &name, &limits).unwrap();
    assert_eq!(group.limits().unwrap(), limits);
    let child = start(&group, c"sleep 30; :");
    assert!(group.holds(child.pid).unwrap());
    assert!(!group.holds(std::process::id().cast_signed()).unwrap());
    let own = crate::proc::Process::own().unwrap().cgroups().unwrap();
    let its = crate::proc::Process::open(child.pid).unwrap().cgroups().unwrap();
    for membership in its.iter().filter(|one| one.path.ends_with(&name)) {
        let ours = own.iter().find(|one| one.controllers == membership.controllers).unwrap();
        assert_eq!(membership.path, format!("{}/{FOLDER}/{name}", ours.path.trim_end_matches('/')));
    }
    assert!(host.names(FOLDER).unwrap().contains(&name));
    group.kill(LIMIT).unwrap();
    let end = crate::pidfd::wait(&child.pidfd).unwrap().0;
    assert_eq!(end, crate::pidfd::End::Signalled { signal: 9, core: false });
    group.remove(LIMIT).unwrap();
    assert!(host.open(FOLDER, &name).unwrap().is_none());
}

#[test]
fn a_memory_bomb_is_stopped_and_counted_and_lives_without_the_limit() {
    let Some(host) = host() else { return };
    let bomb = c"exec /usr/bin/python3 -c 'x=b\"a\"*(200<<20)'";
    let run = |memory: u64| {
        let group = host.create(FOLDER, &name(), &Limits { memory: Some(memory), ..Limits::default() }).unwrap();
        let watch = group.oom_watch().unwrap().unwrap();
        let child = start(&group, bomb);
        let end = crate::pidfd::wait(&child.pidfd).unwrap().0;
        let usage = group.usage().unwrap();
        let mut polled = [rustix::event::PollFd::new(&watch.fd, watch.interest)];
        let woken = rustix::event::poll(&mut polled, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap();
        group.remove(LIMIT).unwrap();
        (end, usage, woken)
    };
    let (end, usage, woken) = run(64 << 20);
    assert_eq!(end, crate::pidfd::End::Signalled { signal: 9, core: false });
    assert_eq!((usage.oom_kills, woken), (Some(1), 1));
    assert!(usage.memory_peak.unwrap() <= 64 << 20);
    let (end, usage, woken) = run(1 << 30);
    assert_eq!((end, usage.oom_kills, woken), (crate::pidfd::End::Exited(0), Some(0), 0));
    assert!(usage.memory_peak.unwrap() > 200 << 20);
}

#[test]
fn forks_above_the_limit_are_refused_and_counted() {
    let Some(host) = host() else { return };
    let group = host.create(FOLDER, &name(), &Limits { pids: Some(4), ..Limits::default() }).unwrap();
    let child = start(&group, c"for i in 1 2 3 4 5 6 7 8; do sleep 20 & done; wait");
    let deadline = Instant::now() + LIMIT;
    while group.usage().unwrap().pids_refused == Some(0) && Instant::now() < deadline {}
    let usage = group.usage().unwrap();
    assert!(usage.pids_refused.unwrap() >= 1, "{usage:?}");
    assert!(usage.pids.unwrap() <= 4);
    // At the end the peak stands for what is in use now, which is asked only where the kernel keeps no peak.
    let used = group.used().unwrap();
    assert_eq!((used.pids.is_none(), used.pids_peak), (usage.pids_peak.is_some(), usage.pids_peak));
    assert!(used.pids_refused >= usage.pids_refused && used.cpu_user_us >= usage.cpu_user_us, "{used:?}");
    group.kill(LIMIT).unwrap();
    crate::pidfd::wait(&child.pidfd).unwrap();
    group.remove(LIMIT).unwrap();
}

#[test]
fn a_fork_bomb_does_not_outrun_the_kill() {
    let Some(host) = host() else { return };
    for atomic in [true, false] {
        let limits = Limits { pids: Some(60), ..Limits::default() };
        let group = host.create(FOLDER, &name(), &limits).unwrap();
        let child = start(&group, c"b() { b & b & sleep 5; }; b; sleep 20");
        let deadline = Instant::now() + LIMIT;
        while group.usage().unwrap().pids < Some(30) && Instant::now() < deadline {}
        if atomic {
            group.kill(LIMIT).unwrap()
        } else {
            group.kill_frozen_for_test(LIMIT)
        }
        crate::pidfd::wait(&child.pidfd).unwrap();
        // Its orphans are zombies of this namespace's init, which may be this very test: only the living count.
        group.wait_empty(Duration::ZERO).unwrap();
        group.remove(LIMIT).unwrap();
    }
}

#[test]
fn a_share_of_the_processor_holds() {
    let Some(host) = host() else { return };
    if let Err(why) = &host.available().cpu {
        println!("skip: no share of the processor can be held: {why:?}");
        return;
    }
    // So small that a busy machine gives more than that.
    let share = CpuShare { quota_us: 5_000, period_us: 100_000 };
    let limits = Limits { cpu: Some(share), ..Limits::default() };
    let group = host.create(FOLDER, &name(), &limits).unwrap();
    assert_eq!(group.limits().unwrap().cpu, Some(share));
    let begun = Instant::now();
    let child = start(&group, c"timeout 1 sh -c 'while :; do :; done'");
    crate::pidfd::wait(&child.pidfd).unwrap();
    let most = u64::try_from(begun.elapsed().as_micros()).unwrap() / 4;
    let usage = group.usage().unwrap();
    let used = usage.cpu_user_us.unwrap() + usage.cpu_system_us.unwrap();
    assert!(used < most, "{usage:?}");
    // What ran is counted, and where nothing runs nothing is.
    assert!((10_000..most).contains(&usage.cpu_us.unwrap()), "{usage:?}");
    assert_eq!(group.usage().unwrap().cpu_us, usage.cpu_us);
    assert!(usage.cpu_throttled_us.unwrap() > 0, "{usage:?}");
    group.remove(LIMIT).unwrap();
}

#[test]
fn named_processors_hold() {
    let Some(host) = host() else { return };
    if let Err(why) = &host.available().cpuset {
        println!("skip: no processors can be named: {why:?}");
        return;
    }
    let limits = Limits { cpuset: Some("0".into()), ..Limits::default() };
    let group = host.create(FOLDER, &name(), &limits).unwrap();
    let child = start(&group, c"sleep 20; :");
    let status = crate::proc::Process::open(child.pid).unwrap().small_text("status").unwrap();
    assert!(status.contains("Cpus_allowed_list:\t0\n"), "{status}");
    group.kill(LIMIT).unwrap();
    crate::pidfd::wait(&child.pidfd).unwrap();
    group.remove(LIMIT).unwrap();
}

#[test]
fn an_impossible_limit_is_an_error_and_leaves_nothing() {
    let Some(host) = host() else { return };
    let name = name();
    let limits = Limits { pids: Some(5), cpuset: Some("4000".into()), ..Limits::default() };
    assert!(matches!(host.create(FOLDER, &name, &limits), Err(CgroupError::Limit { .. })));
    assert!(host.open(FOLDER, &name).unwrap().is_none());
    for bad in ["", "..", "a/b", "."] {
        assert!(host.create(FOLDER, bad, &Limits::default()).is_err(), "{bad}");
    }
}

#[test]
fn a_busy_group_is_not_removed_and_an_orphaned_one_is_found_again() {
    let Some(host) = host() else { return };
    let name = name();
    let group = host.create(FOLDER, &name, &Limits { pids: Some(5), ..Limits::default() }).unwrap();
    let child = start(&group, c"sleep 20; :");
    assert!(group.remove(Duration::from_millis(20)).is_err());
    let again = host.open(FOLDER, &name).unwrap().unwrap();
    again.kill(LIMIT).unwrap();
    crate::pidfd::wait(&child.pidfd).unwrap();
    again.remove(LIMIT).unwrap();
    assert!(Command::new("/bin/true").output(b"", 1, LIMIT).is_ok());
}

/// Where the time of entering goes, each way after a rest. As [`measure_a_group`].
#[test]
#[ignore = "prints times"]
fn measure_ways_into_a_group() {
    use rustix::fs::{Mode, OFlags};
    let Some(host) = host() else { return };
    let program = rustix::fs::open("/bin/true", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let limits = Limits { memory: Some(64 << 20), pids: Some(50), ..Limits::default() };
    let ways = ["nothing", "v2 birth", "v1 tasks", "both", "both and namespace"];
    let mut times: [Vec<Duration>; 5] = Default::default();
    for round in 0..250 {
        let mut nothing: [rustix::event::PollFd<'_>; 0] = [];
        rustix::event::poll(&mut nothing, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 60_000_000 })).unwrap();
        let way = round % 5;
        let group = host.create(FOLDER, &name(), &limits).unwrap();
        let tasks = group.tasks();
        let spawn = crate::spawn::Spawn {
            namespaces: crate::spawn::Namespaces::NONE,
            cgroup: group.v2_dir().filter(|_| matches!(way, 1 | 3 | 4)),
            tasks: if way >= 2 { &tasks } else { &[] },
            cgroup_namespace: way == 4,
            mounts: &[],
            id_maps: crate::spawn::IdMaps::Later,
            time_offsets: None,
            ambient: 0,
            fds: &[],
            program: program.as_fd(),
            argv: &[c"true"],
        };
        let start = Instant::now();
        let child = spawn.start().unwrap();
        times[way].push(start.elapsed());
        crate::pidfd::wait(&child.pidfd).unwrap();
        group.remove(LIMIT).unwrap();
    }
    for (name, times) in ways.iter().zip(&mut times) {
        times.sort_unstable();
        println!("{name}: p10 {:?} median {:?} p90 {:?}", times[5], times[25], times[45]);
    }
}

/// `cargo test --release -p fumehood-sys -- --ignored --nocapture measure`.
#[test]
#[ignore = "prints times"]
fn measure_a_group() {
    if host().is_none() {
        return;
    }
    let limits = Limits {
        memory: Some(64 << 20),
        pids: Some(50),
        cpu: Some(CpuShare { quota_us: 100_000, period_us: 100_000 }),
        ..Limits::default()
    };
    let mut times: [Vec<Duration>; 5] = Default::default();
    for _ in 0..60 {
        let mut nothing: [rustix::event::PollFd<'_>; 0] = [];
        rustix::event::poll(&mut nothing, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 60_000_000 })).unwrap();
        let start_time = Instant::now();
        let host = Hierarchies::probe().unwrap();
        let probed = Instant::now();
        let group = host.create(FOLDER, &name(), &limits).unwrap();
        let made = Instant::now();
        let child = start(&group, c":");
        let started = Instant::now();
        crate::pidfd::wait(&child.pidfd).unwrap();
        let ended = Instant::now();
        group.usage().unwrap();
        let read = Instant::now();
        group.remove(LIMIT).unwrap();
        let removed = Instant::now();
        for (times, (from, to)) in times.iter_mut().zip([
            (start_time, probed),
            (probed, made),
            (made, started),
            (ended, read),
            (read, removed),
        ]) {
            times.push(to - from);
        }
    }
    for (name, times) in ["probe", "create", "start in it", "read usage", "remove"].iter().zip(&mut times) {
        times.sort_unstable();
        println!("{name}: p10 {:?} median {:?} p90 {:?}", times[6], times[30], times[54]);
    }
}

#[test]
fn the_shared_folder_goes_when_it_is_empty_and_no_start_notices() {
    const SHARED: &str = "fumehood-sys-shared";
    let Some(host) = host() else { return };
    let limits = Limits { pids: Some(10), ..Limits::default() };
    let held = host.create(SHARED, &name(), &limits).unwrap();
    assert_eq!(host.remove_folder(SHARED), 0, "it holds a group");
    held.end(LIMIT).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let _some = host.remove_folder(SHARED);
            }
        });
        let made = (0..60).map(|_| host.create(SHARED, &name(), &limits).and_then(|group| group.end(LIMIT)));
        let all: Result<Vec<()>, _> = made.collect();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        all.unwrap();
    });
    let _last = host.remove_folder(SHARED);
    assert_eq!(host.names(SHARED).unwrap(), Vec::<String>::new());
    assert_eq!(host.remove_folder(SHARED), 0, "it is gone");
}
