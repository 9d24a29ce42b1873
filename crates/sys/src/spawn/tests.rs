use super::*;
use crate::pidfd::{self, End};
use std::os::fd::AsFd as _;
use std::time::Instant;

fn open(path: &str, write: bool) -> OwnedFd {
    let flags = if write { rustix::fs::OFlags::RDWR } else { rustix::fs::OFlags::RDONLY };
    rustix::fs::open(path, flags | rustix::fs::OFlags::CLOEXEC, rustix::fs::Mode::empty()).unwrap()
}

fn plain<'a>(program: BorrowedFd<'a>, argv: &'a [&'a CStr], fds: &'a [(BorrowedFd<'a>, i32)]) -> Spawn<'a> {
    Spawn {
        namespaces: Namespaces::NONE,
        cgroup: None,
        tasks: &[],
        cgroup_namespace: false,
        mounts: &[],
        id_maps: IdMaps::Later,
        time_offsets: None,
        ambient: 0,
        fds,
        program,
        argv,
    }
}

/// Runs a shell text in what `change` describes; status and output.
fn shell(text: &CStr, change: impl Fn(&mut Spawn<'_>), meanwhile: impl Fn(&Child)) -> (End, String) {
    let program = open("/bin/sh", false);
    let null = open("/dev/null", true);
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let (go, go_write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let fds = [(null.as_fd(), 0), (write.as_fd(), 1), (write.as_fd(), 2), (go.as_fd(), 3)];
    let argv = [c"sh", c"-c", text];
    let mut spawn = plain(program.as_fd(), &argv, &fds);
    change(&mut spawn);
    let child = spawn.start().unwrap();
    meanwhile(&child);
    drop((write, go_write, go));
    let mut output = String::new();
    std::io::Read::read_to_string(&mut std::fs::File::from(read), &mut output).unwrap();
    (pidfd::wait(&child.pidfd).unwrap().0, output)
}

const ALL: Namespaces = Namespaces::USER
    .and(Namespaces::MOUNT)
    .and(Namespaces::PID)
    .and(Namespaces::NET)
    .and(Namespaces::IPC)
    .and(Namespaces::UTS)
    .and(Namespaces::TIME);

fn ids(inside: u32) -> IdMaps {
    IdMaps::BySelf {
        outside_uid: rustix::process::geteuid().as_raw(),
        outside_gid: rustix::process::getegid().as_raw(),
        inside_uid: inside,
        inside_gid: inside,
    }
}

#[test]
fn a_child_has_the_named_descriptors_and_no_environment() {
    let (end, text) = shell(c"/usr/bin/env; ls /proc/self/fd | tr '\\n' ' '", |_| {}, |_| {});
    assert_eq!(end, End::Exited(0));
    assert!(text.ends_with("0 1 2 3 4 "), "{text}");
    assert!(!text.contains("CARGO"), "{text}");
}

#[test]
fn a_child_in_all_new_namespaces_is_pid_1_and_maps_itself() {
    let change = |spawn: &mut Spawn<'_>| {
        spawn.namespaces = ALL;
        spawn.id_maps = ids(1000);
        spawn.cgroup_namespace = true;
    };
    let links = |child: &Child| {
        for name in ["user", "mnt", "pid", "net", "ipc", "uts", "time", "cgroup"] {
            let of = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/{name}")).unwrap();
            assert_ne!(of("self"), of(&child.pid.to_string()), "{name}");
        }
    };
    let (end, text) = shell(c"read x <&3; echo $$; id -u; id -g", change, links);
    assert_eq!(end, End::Exited(0), "{text}");
    assert_eq!(text, "1\n1000\n1000\n");
}

#[test]
fn the_parent_can_map_after_the_start() {
    let change = |spawn: &mut Spawn<'_>| {
        spawn.namespaces = Namespaces::USER;
        spawn.ambient = 0x1ff_ffff_ffff;
    };
    let map = |child: &Child| {
        let range = |outside| [IdRange { inside: 1000, outside, count: 1 }];
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        write_id_maps(child.pid, &range(uid), &range(gid), true).unwrap();
    };
    let (end, text) = shell(c"read x <&3; id -u; grep CapEff /proc/self/status", change, map);
    assert_eq!(end, End::Exited(0), "{text}");
    let capabilities = text.rsplit('\t').next().unwrap().trim();
    assert_eq!(text.lines().next().unwrap(), "1000");
    assert_ne!(u64::from_str_radix(capabilities, 16).unwrap() & (1 << 21), 0, "{text}");
}

#[test]
fn without_ambient_an_unmapped_child_loses_its_capabilities() {
    let change = |spawn: &mut Spawn<'_>| spawn.namespaces = Namespaces::USER;
    let (_, text) = shell(c"grep CapEff /proc/self/status", change, |_| {});
    assert_eq!(text.trim(), "CapEff:\t0000000000000000");
}

#[test]
fn clock_offsets_hold_inside() {
    let change = |spawn: &mut Spawn<'_>| {
        spawn.namespaces = Namespaces::USER.and(Namespaces::TIME);
        spawn.id_maps = ids(0);
        spawn.time_offsets = Some(TimeOffsets { monotonic: 0, boot: 500_000_000 });
    };
    let (_, text) = shell(c"cat /proc/uptime", change, |_| {});
    assert!(text.split('.').next().unwrap().parse::<u64>().unwrap() >= 500_000_000, "{text}");
}

#[test]
fn a_failure_names_its_step() {
    let null = open("/dev/null", true);
    let fds = [(null.as_fd(), 0)];
    let not_executable = open("/etc/passwd", false);
    let failed = plain(not_executable.as_fd(), &[c"x"], &fds).start().unwrap_err();
    assert_eq!((failed.step, failed.errno), (Step::Exec, Errno::ACCESS));

    let program = open("/bin/true", false);
    let tasks = [not_executable.as_fd()];
    let failed = Spawn { tasks: &tasks, ..plain(program.as_fd(), &[c"x"], &fds) }.start().unwrap_err();
    assert_eq!((failed.step, failed.errno), (Step::Cgroup, Errno::BADF));

    let failed = Spawn { id_maps: ids(1), ..plain(program.as_fd(), &[c"x"], &fds) }.start().unwrap_err();
    assert_eq!(failed.step, Step::IdMaps);

    let bad = [(null.as_fd(), 64)];
    let failed = plain(program.as_fd(), &[c"x"], &bad).start().unwrap_err();
    assert_eq!((failed.step, failed.errno), (Step::Prepare, Errno::BADF));
}

#[test]
fn a_start_is_right_beside_other_threads_and_a_large_heap() {
    let heap = vec![1u8; 200 << 20];
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    // The allocator's locks and errno are in use all the time.
                    drop(std::fs::read("/no/such/file"));
                    drop(vec![0u8; 5000]);
                }
            });
        }
        let program = open("/bin/true", false);
        let null = open("/dev/null", true);
        let fds = [(null.as_fd(), 0), (null.as_fd(), 1), (null.as_fd(), 2)];
        for _ in 0..200 {
            let child = plain(program.as_fd(), &[c"true"], &fds).start().unwrap();
            assert_eq!(pidfd::wait(&child.pidfd).unwrap().0, End::Exited(0));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(heap.len(), 200 << 20);
}

/// Not a judgement, a measurement: `cargo test --release -p fumehood-sys -- --ignored --nocapture measure`.
#[test]
#[ignore = "prints times"]
fn measure_starts() {
    let heap = vec![1u8; 200 << 20];
    let program = open("/bin/true", false);
    let null = open("/dev/null", true);
    let fds = [(null.as_fd(), 0), (null.as_fd(), 1), (null.as_fd(), 2)];
    let base = plain(program.as_fd(), &[c"true"], &fds);
    let kinds = [
        ("no namespace", base),
        ("all but net", Spawn { namespaces: Namespaces(ALL.0 & !Namespaces::NET.0), id_maps: ids(1000), ..base }),
        ("all", Spawn { namespaces: ALL, id_maps: ids(1000), cgroup_namespace: true, ..base }),
    ];
    let mut times = vec![Vec::new(); kinds.len()];
    for _ in 0..200 {
        for (kind, times) in kinds.iter().zip(&mut times) {
            let start = Instant::now();
            let child = kind.1.start().unwrap();
            let started = start.elapsed();
            pidfd::wait(&child.pidfd).unwrap();
            times.push((started, start.elapsed()));
        }
    }
    for ((name, _), times) in kinds.iter().zip(&mut times) {
        times.sort_unstable();
        let (p10, median) = (times[times.len() / 10], times[times.len() / 2]);
        println!("{name}: until executed p10 {:?} median {:?}; until reaped about {:?}", p10.0, median.0, median.1);
    }
    assert_eq!(heap.len(), 200 << 20);
}

/// Starts a program by its path from a certain thread; its output is read to the end.
fn start_from(parent: keeper::Parent, program: &CStr, argv: &[&CStr]) -> (Child, OwnedFd) {
    start_in(None, parent, program, argv)
}

fn start_in(
    cgroup: Option<BorrowedFd<'_>>,
    parent: keeper::Parent,
    program: &CStr,
    argv: &[&CStr],
) -> (Child, OwnedFd) {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let launch = launch::Launch {
        flags: 0,
        own_pid_namespace: false,
        cgroup,
        tasks: &[],
        cgroup_namespace: false,
        mounts: &[],
        maps: None,
        time_offsets: None,
        ambient: 0,
        reset_signals: true,
        directory: None,
        session: None,
        fds: &[(write.as_fd(), 1)],
        program: launch::Program::Path(program),
        argv,
        env: &[],
    };
    (launch.start_from(parent, |_pid| ()).unwrap().0, read)
}

fn read_to_end(pipe: OwnedFd) -> String {
    let mut text = String::new();
    std::io::Read::read_to_string(&mut std::fs::File::from(pipe), &mut text).unwrap();
    text
}

/// How a program has ended a while after the thread that started it; `None` when it has not.
fn after_its_thread(parent: keeper::Parent) -> Option<End> {
    let start = move || start_from(parent, c"/bin/sleep", &[c"sleep", c"60"]).0;
    let child = std::thread::spawn(start).join().unwrap();
    let wait = rustix::event::Timespec { tv_sec: 0, tv_nsec: 300_000_000 };
    let mut ended = [rustix::event::PollFd::new(&child.pidfd, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut ended, Some(&wait)).unwrap();
    let end = pidfd::try_wait(&child.pidfd).unwrap().map(|(end, _)| end);
    if end.is_none() {
        pidfd::send_signal(&child.pidfd, libc::SIGKILL).unwrap();
        pidfd::wait(&child.pidfd).unwrap();
    }
    end
}

#[test]
fn a_child_outlives_the_thread_that_asked_for_it() {
    // The control: the kernel's own rule.
    let killed = Some(End::Signalled { signal: libc::SIGKILL, core: false });
    assert_eq!(after_its_thread(keeper::Parent::Caller), killed);
    // A test is no main thread.
    assert_eq!(keeper::Parent::lasting(), keeper::Parent::Keeper);
    assert_eq!(after_its_thread(keeper::Parent::lasting()), None);
}

/// Were SIGCHLD blocked in the thread that makes children, the end of one would wake another thread of the caller, whose call
/// could end with EINTR. Any other signal is none of that thread's business.
#[test]
fn the_keeper_blocks_all_signals_but_that_of_its_children() {
    let (child, _) = start_from(keeper::Parent::Keeper, c"/bin/true", &[c"true"]);
    assert_eq!(pidfd::wait(&child.pidfd).unwrap().0, End::Exited(0));
    let mut seen = 0;
    for thread in std::fs::read_dir("/proc/self/task").unwrap() {
        let folder = thread.unwrap().path();
        // Threads of other tests come and go.
        let Ok(name) = std::fs::read_to_string(folder.join("comm")) else { continue };
        if name == "fumehood-spawn\n" {
            let status = std::fs::read_to_string(folder.join("status")).unwrap();
            let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:\t")).unwrap();
            let blocked = u64::from_str_radix(blocked, 16).unwrap();
            // One that has only just begun.
            if blocked == 0 {
                continue;
            }
            let bit = |signal: i32| blocked >> (signal - 1) & 1;
            assert_eq!((bit(libc::SIGCHLD), bit(libc::SIGTERM), bit(libc::SIGINT), bit(libc::SIGALRM)), (0, 1, 1, 1));
            seen += 1;
        }
    }
    assert!(seen > 0);
}

#[test]
fn a_child_may_use_the_processors_of_the_thread_that_asked_for_it() {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
    let allowed = || {
        let (child, output) = start_from(keeper::Parent::Keeper, c"/bin/cat", &[c"cat", c"/proc/self/status"]);
        pidfd::wait(&child.pidfd).unwrap();
        let text = read_to_end(output);
        text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().to_owned()
    };
    let before = allowed();
    let here = std::thread::spawn(move || {
        let mut one = CpuSet::new();
        one.set(sched_getcpu());
        sched_setaffinity(None, &one).unwrap();
        (allowed(), sched_getaffinity(None).unwrap() == one, (0..1024).find(|number| one.is_set(*number)).unwrap())
    });
    let (its, stays, number) = here.join().unwrap();
    assert_eq!((its, stays), (number.to_string(), true));
    assert_eq!(allowed(), before);
}

#[test]
fn a_child_gives_up_a_real_time_policy_and_keeps_any_other() {
    for (policy, priority, its) in [
        (libc::SCHED_FIFO, 1, libc::SCHED_OTHER),
        (libc::SCHED_RR, 1, libc::SCHED_OTHER),
        (libc::SCHED_BATCH, 0, libc::SCHED_BATCH),
        (libc::SCHED_IDLE, 0, libc::SCHED_IDLE),
        (libc::SCHED_OTHER, 0, libc::SCHED_OTHER),
    ] {
        let case = std::thread::spawn(move || {
            let wanted = libc::sched_param { sched_priority: priority };
            // SAFETY: `wanted` is valid for reading; 0 is this thread.
            if unsafe { libc::sched_setscheduler(0, policy, &raw const wanted) } != 0 {
                println!("skip: this user may not have policy {policy}");
                return;
            }
            // Field 41 is the policy (proc(5)).
            let argv = [c"cut", c"-d", c" ", c"-f", c"41", c"/proc/self/stat"];
            let (child, output) = start_from(keeper::Parent::Caller, c"/usr/bin/cut", &argv);
            pidfd::wait(&child.pidfd).unwrap();
            assert_eq!(read_to_end(output).trim(), its.to_string(), "policy {policy}");
            // SAFETY: the call takes no pointers.
            assert_eq!(unsafe { libc::sched_getscheduler(0) }, policy, "the thread itself stays as it was");
        });
        case.join().unwrap();
    }
}

/// From here on this thread and what it starts get ENOSYS for clone3, as below container engines.
fn without_clone3() {
    // linux/filter.h and linux/seccomp.h: load the number; equal, then the first answer, else the second.
    let line = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let clone3 = u32::try_from(libc::SYS_clone3).unwrap();
    let mut filter = [
        line(0x20, 0, 0, 0),
        line(0x15, 0, 1, clone3),
        line(0x06, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs()),
        line(0x06, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
    rustix::thread::set_no_new_privs(true).unwrap();
    // SAFETY: `program` and the filter that it points to are valid for reading during the call.
    let installed = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) };
    assert_eq!(installed, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn where_clone3_is_forbidden_the_older_call_does_the_same() {
    std::thread::spawn(|| {
        without_clone3();
        let (child, output) = start_in(None, keeper::Parent::Caller, c"/bin/cat", &[c"cat", c"/proc/self/status"]);
        assert_eq!(pidfd::wait(&child.pidfd).unwrap().0, End::Exited(0));
        let text = read_to_end(output);
        assert!(text.contains("\nSeccomp:\t2\n") && text.contains(&format!("\nPid:\t{}\n", child.pid)), "{text}");

        // It cannot give a group along: the child writes itself into it.
        let group = tempfile::tempdir().unwrap();
        std::fs::write(group.path().join("cgroup.procs"), "").unwrap();
        let folder = open(group.path().to_str().unwrap(), false);
        let (child, _) = start_in(Some(folder.as_fd()), keeper::Parent::Caller, c"/bin/true", &[c"true"]);
        assert_eq!(pidfd::wait(&child.pidfd).unwrap().0, End::Exited(0));
        assert_eq!(std::fs::read_to_string(group.path().join("cgroup.procs")).unwrap(), "0");
    })
    .join()
    .unwrap();
}

#[test]
fn a_file_system_is_mounted_for_the_child_alone() {
    if !rustix::process::geteuid().is_root() {
        println!("skip: only root mounts without a user namespace");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let at: &'static CStr = Box::leak(std::ffi::CString::new(path).unwrap().into_boxed_c_str());
    let mounts: &'static [InnerMount<'static>] =
        Box::leak(Box::new([InnerMount::New { kind: c"tmpfs", at, noexec: true, options: c"size=65536,nr_inodes=5" }]));
    let text = format!("cd {path}; grep ' {path} ' /proc/self/mountinfo; for n in 1 2 3 4 5 6; do : >$n; done; ls");
    let text = std::ffi::CString::new(text).unwrap();
    let mounted = |spawn: &mut Spawn<'_>| {
        spawn.namespaces = Namespaces::MOUNT;
        spawn.mounts = mounts;
    };
    let (_, output) = shell(&text, mounted, |_| ());
    for word in ["nosuid", "nodev", "noexec", "tmpfs"] {
        assert!(output.lines().next().is_some_and(|line| line.contains(word)), "{word}: {output}");
    }
    assert!(!output.contains("\n6"), "the fifth inode was not the last: {output}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "it shows outside");
    // The control: without it the same program writes into the folder.
    let (_, output) = shell(&text, |_| (), |_| ());
    assert!(!output.contains("tmpfs"), "{output}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 6);
}
