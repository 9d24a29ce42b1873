//! The kernel itself judges the compiled profiles. An older filter answers every call that ours lets through with an
//! errno of its own, so no tested call is ever executed: not `reboot`, not `pause`, not `exit`.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "registers and counters of a test"
)]
#![expect(clippy::too_many_lines, reason = "a table")]

mod added;
use super::rule::{Action, Condition, Test, Verdict, Width};
use super::*;

/// No real errno.
const PASSED: u16 = 777;
/// In the sixth argument: a call of the test itself.
const OURS: u64 = 0x5ec_0123;
const CALLS: u32 = 480;

fn raw(number: u32, arguments: [u64; 6]) -> i64 {
    // SAFETY: the marker filter lets only calls of the test itself through, with arguments that are valid.
    unsafe { crate::arch::system_call(number as usize, arguments.map(|argument| argument as usize)) as i64 }
}

fn i(code: u16, jt: u8, jf: u8, k: u32) -> Instruction {
    Instruction { code, jt, jf, k }
}

/// Lets `seccomp` and `exit_group` with our mark pass, and answers all else with [`PASSED`].
fn marker() -> Program {
    Program::from_instructions(vec![
        i(0x20, 0, 0, 16 + 5 * 8),
        i(0x15, 0, 4, OURS as u32),
        i(0x20, 0, 0, 0),
        i(0x15, 1, 0, 317),
        i(0x15, 0, 1, 231),
        i(0x06, 0, 0, 0x7fff_0000),
        i(0x06, 0, 0, 0x0005_0000 | u32::from(PASSED)),
    ])
}

fn apply_raw(program: &Program) -> i64 {
    let header = libc::sock_fprog {
        len: program.instructions().len() as u16,
        filter: program.instructions().as_ptr().cast_mut().cast(),
    };
    raw(317, [1, 0, (&raw const header) as u64, 0, 0, OURS])
}

/// What the kernel does with each call under `program`.
fn kernel(program: &Program, calls: &[(u32, [u64; 6])]) -> Vec<Action> {
    let size = (calls.len() + 1) * 8;
    // SAFETY: a fresh shared anonymous mapping.
    let shared = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(shared, libc::MAP_FAILED);
    // SAFETY: the mapping has room for one number per call and one for the progress, zeroed, and lives until munmap.
    let cells = unsafe { std::slice::from_raw_parts(shared.cast::<std::sync::atomic::AtomicI64>(), calls.len() + 1) };
    let order = std::sync::atomic::Ordering::SeqCst;
    let marker = marker();
    let mut seen = Vec::new();
    while seen.len() < calls.len() {
        let from = seen.len();
        // SAFETY: the child makes raw calls and touches only memory that exists.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: sets a flag of this process.
            unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
            if apply_raw(&marker) != 0 || apply_raw(program) != 0 {
                loop {
                    raw(231, [99, 0, 0, 0, 0, OURS]);
                }
            }
            for (at, (number, arguments)) in calls.iter().enumerate().skip(from) {
                cells[calls.len()].store(at as i64 + 1, order);
                cells[at].store(raw(*number, *arguments), order);
            }
            cells[calls.len()].store(calls.len() as i64 + 1, order);
            loop {
                raw(231, [0, 0, 0, 0, 0, OURS]);
            }
        }
        let mut status = 0;
        // SAFETY: reaps the child just made.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_ne!(status, 99 << 8, "the filters could not be installed");
        let reached = cells[calls.len()].load(order) as usize;
        for cell in &cells[from..(reached - 1).min(calls.len())] {
            seen.push(match -cell.load(order) {
                777 => Action::Allow,
                errno => Action::Errno(u16::try_from(errno).unwrap()),
            });
        }
        if reached <= calls.len() {
            assert_eq!(status & 0x7f, libc::SIGSYS, "call {:?}", calls[reached - 1]);
            seen.push(Action::Kill);
        }
    }
    // SAFETY: the mapping made above; `cells` is not used any more.
    unsafe { libc::munmap(shared, size) };
    seen
}

fn every_surrounding() -> impl Iterator<Item = Surroundings> {
    (0..128).map(|bits| Surroundings {
        unix_sockets: bits & 1 != 0,
        inet_sockets: bits & 2 != 0,
        shared_pids: bits & 4 != 0,
        shared_files: bits & 64 != 0,
        shared_watches: bits & 64 != 0,
        shared_locks: bits & 64 != 0,
        memfd: bits & 8 != 0,
        gvisor: false,
        undumpable: bits & 16 != 0,
        counted_memory: bits & 32 != 0,
        no_rules: bits & 32 != 0,
    })
}

/// An argument that passes a condition.
fn fitting(condition: &Condition) -> Vec<u64> {
    match &condition.test {
        Test::MaskedIn { values, .. } => values.to_vec(),
        Test::Ne(value) => vec![value ^ 1],
        Test::Le(most) => vec![*most, 0],
    }
}

/// Arguments around every border of a verdict: each alternative satisfied, then every single bit of it flipped.
fn borders(verdict: &Verdict) -> Vec<[u64; 6]> {
    let mut all = vec![[0; 6], [u64::MAX, u64::MAX, u64::MAX, u64::MAX, u64::MAX, 0]];
    let Verdict::When { any, .. } = verdict else { return all };
    for alternative in any.iter() {
        let most = alternative.iter().map(|condition| fitting(condition).len()).max().unwrap();
        for choice in 0..most {
            let mut base = [0; 6];
            for condition in alternative.iter() {
                let values = fitting(condition);
                base[usize::from(condition.argument)] = values[choice % values.len()];
            }
            all.push(base);
            for condition in alternative.iter() {
                for bit in 0..64 {
                    let mut flipped = base;
                    flipped[usize::from(condition.argument)] ^= 1 << bit;
                    all.push(flipped);
                }
            }
        }
    }
    all
}

#[test]
fn the_kernel_judges_every_rule_and_its_neighbours_as_the_profile_says() {
    for (name, _) in named() {
        for surroundings in every_surrounding() {
            let profile = Profile::load(name, &surroundings).unwrap();
            let program = profile.compile().unwrap();
            let unknown = Verdict::Always(profile.filter().unknown);
            let mut calls = Vec::new();
            let mut expected = Vec::new();
            for number in (0..CALLS)
                .chain([512, 1000, 0x3fff_ffff])
                .filter(|number| !crate::arch::CALLS_NEVER_JUDGED.contains(number))
            {
                let verdict = profile.filter().calls.get(number).unwrap_or(&unknown);
                for arguments in borders(verdict) {
                    calls.push((number, arguments));
                    expected.push(verdict.judge(arguments));
                }
            }
            let seen = kernel(&program, &calls);
            for ((call, expected), seen) in calls.iter().zip(&expected).zip(&seen) {
                assert_eq!(seen, expected, "{name} {surroundings:?} {:?} {call:x?}", names::name(call.0));
            }
        }
    }
}

/// Where processes are counted by looking at them, nothing hides from that.
#[test]
fn what_hides_from_those_who_count_is_closed_where_they_do() {
    let n = |name: &str| names::number(name).unwrap();
    for profile in super::profiles() {
        let of = |undumpable, counted_memory| {
            Profile::load(profile, &Surroundings { undumpable, counted_memory, ..Surroundings::default() }).unwrap()
        };
        let open = |profile: &Profile, name, arguments| profile.judge(n(name), arguments) == Action::Allow;
        let (free, counted) = (of(true, false), of(false, true));
        for (name, arguments) in [
            ("prctl", [4, 0, 0, 0, 0, 0]),
            ("mmap", [0, 4096, 3, 0x21, u64::MAX, 0]),
            ("setsockopt", [3, 1, 7, 0, 0, 0]),
        ] {
            assert!(open(&free, name, arguments) && !open(&counted, name, arguments), "{profile}: {name}");
        }
        assert!(!open(&counted, "shmget", [0, 4096, 0, 0, 0, 0]));
        // Memory of the process alone, shared files, and what was asked for by default stay open.
        for (name, arguments) in [
            ("prctl", [4, 1, 0, 0, 0, 0]),
            ("mmap", [0, 4096, 3, 0x22, u64::MAX, 0]),
            ("mmap", [0, 4096, 3, 0x01, 3, 0]),
            ("setsockopt", [3, 1, 2, 0, 0, 0]),
        ] {
            assert!(open(&counted, name, arguments), "{profile}: {name}");
        }
        let mut profile = of(false, true);
        assert!(profile.allow("prctl").is_err() && profile.allow("mmap").is_err() && profile.allow("fcntl").is_err());
    }
}

/// Written by hand, from the catalogue of attacks and not from the profiles.
#[test]
fn what_must_be_closed_is_closed_in_every_profile() {
    let n = |name: &str| names::number(name).unwrap();
    let closed: Vec<(&str, [u64; 6])> = vec![
        ("clone", [0x1000_0000 | 17, 0, 0, 0, 0, 0]),
        ("clone", [0x0002_0000 | 17, 0, 0, 0, 0, 0]),
        ("clone", [0x4000_0000 | 17, 0, 0, 0, 0, 0]),
        ("clone", [0x1000_0000_1000_0011, 0, 0, 0, 0, 0]),
        ("clone", [0x0001_0100, 0, 0, 0, 0, 0]),
        ("clone", [0x400 | 17, 0, 0, 0, 0, 0]),
        ("clone3", [0; 6]),
        ("close_range", [3, 0xffff_ffff, 2, 0, 0, 0]),
        ("fcntl", [3, 37, 0, 0, 0, 0]),
        ("fcntl", [3, 0x1_0000_0026, 0, 0, 0, 0]),
        ("fcntl", [3, 1026, 4, 0, 0, 0]),
        ("mmap", [0, 1 << 21, 3, 0x4_0022, u64::MAX, 0]),
        ("memfd_create", [0, 5, 0, 0, 0, 0]),
        ("setxattr", [0, 0, 0, 1 << 16, 0, 0]),
        ("fallocate", [3, 1, 0, 4096, 0, 0]),
        ("fallocate", [3, 0x11, 0, 4096, 0, 0]),
        ("fallocate", [3, 0x20, 0, 4096, 0, 0]),
        ("fallocate", [3, 0x41, 0, 4096, 0, 0]),
        ("ioctl", [3, 0x4030_5828, 0, 0, 0, 0]),
        ("ioctl", [3, 0x4030_582a, 0, 0, 0, 0]),
        ("ioctl", [3, 0x1_4030_5839, 0, 0, 0, 0]),
        ("ioctl", [3, 0x401c_5820, 0, 0, 0, 0]),
        ("setsockopt", [3, 1, 26, 0, 0, 0]),
        ("setsockopt", [3, 1, 50, 0, 0, 0]),
        ("setsockopt", [3, 1, 51, 0, 0, 0]),
        ("setsockopt", [3, 1, 52, 0, 0, 0]),
        ("setsockopt", [3, 0, 35, 0, 0, 0]),
        ("setsockopt", [3, 41, 20, 0, 0, 0]),
        ("setsockopt", [3, 41, 57, 0, 0, 0]),
        ("setsockopt", [3, 41, 42, 0, 0, 0]),
        ("setsockopt", [3, 41, 46, 0, 0, 0]),
        ("setsockopt", [3, 6, 14, 0, 0, 0]),
        ("setsockopt", [3, 6, 32, 0, 0, 0]),
        ("setsockopt", [3, 6, 38, 0, 0, 0]),
        ("unshare", [0x400, 0, 0, 0, 0, 0]),
        ("unshare", [0x1000_0000, 0, 0, 0, 0, 0]),
        ("unshare", [0x80, 0, 0, 0, 0, 0]),
        ("ioctl", [0, 0x5412, 0, 0, 0, 0]),
        ("ioctl", [0, 0x1_0000_5412, 0, 0, 0, 0]),
        ("ioctl", [0, 0xffff_ffff_0000_541c, 0, 0, 0, 0]),
        ("socket", [2, 1, 262, 0, 0, 0]),
        ("socket", [2, 1, 132, 0, 0, 0]),
        ("socket", [2, 3, 1, 0, 0, 0]),
        ("socket", [2, 2, 1, 0, 0, 0]),
        ("socket", [2, 5, 132, 0, 0, 0]),
        ("socket", [17, 3, 0x300, 0, 0, 0]),
        ("socket", [40, 1, 0, 0, 0, 0]),
        ("socket", [38, 5, 0, 0, 0, 0]),
        ("socket", [43, 1, 0, 0, 0, 0]),
        ("socket", [16, 3, 12, 0, 0, 0]),
        ("socketpair", [2, 1, 0, 0, 0, 0]),
        ("socketpair", [1, 2, 0, 0, 0, 0]),
        ("socketpair", [1, 0x80802, 0, 0, 0, 0]),
        ("chmod", [0, 0o4755, 0, 0, 0, 0]),
        ("fchmod", [0, 0o2755, 0, 0, 0, 0]),
        ("fchmodat", [0, 0, 0o4755, 0, 0, 0]),
        ("fchmodat2", [0, 0, 0o6755, 0, 0, 0]),
        ("open", [0, 0x40, 0o4755, 0, 0, 0]),
        ("openat", [0, 0, 0x41_0000, 0o4755, 0, 0]),
        ("openat", [0, 0, 0x41, 0o2755, 0, 0]),
        ("creat", [0, 0o4755, 0, 0, 0, 0]),
        ("mknod", [0, 0o060_660, 0, 0, 0, 0]),
        ("mknodat", [0, 0, 0o020_666, 0, 0, 0]),
        ("mknodat", [0, 0, 0o104_755, 0, 0, 0]),
        ("personality", [0x0040_0000, 0, 0, 0, 0, 0]),
        ("personality", [0x0004_0000, 0, 0, 0, 0, 0]),
        ("prctl", [35, 0, 0, 0, 0, 0]),
        ("prctl", [53, 0, 2, 0, 0, 0]),
        ("prctl", [62, 0, 0, 0, 0, 0]),
        ("arch_prctl", [0x1012, 0, 0, 0, 0, 0]),
        ("sched_setscheduler", [0, 1, 0, 0, 0, 0]),
        ("sched_setscheduler", [0, 0x4000_0002, 0, 0, 0, 0]),
        ("seccomp", [1, 8, 0, 0, 0, 0]),
    ];
    let whole = [
        "bpf",
        "perf_event_open",
        "userfaultfd",
        "io_uring_setup",
        "io_uring_enter",
        "io_uring_register",
        "keyctl",
        "add_key",
        "request_key",
        "process_vm_readv",
        "process_vm_writev",
        "pidfd_getfd",
        "kcmp",
        "open_by_handle_at",
        "name_to_handle_at",
        "fanotify_init",
        "mount",
        "umount2",
        "pivot_root",
        "chroot",
        "fsopen",
        "fsmount",
        "move_mount",
        "open_tree",
        "mount_setattr",
        "setns",
        "kexec_load",
        "kexec_file_load",
        "reboot",
        "init_module",
        "finit_module",
        "delete_module",
        "swapon",
        "swapoff",
        "acct",
        "quotactl",
        "settimeofday",
        "clock_settime",
        "adjtimex",
        "clock_adjtime",
        "sethostname",
        "syslog",
        "iopl",
        "ioperm",
        "modify_ldt",
        "lookup_dcookie",
        "openat2",
        "sched_setattr",
        "memfd_secret",
        "vhangup",
        "process_madvise",
    ];
    let mut calls: Vec<(u32, [u64; 6])> = closed.iter().map(|(name, arguments)| (n(name), *arguments)).collect();
    calls.extend(whole.iter().map(|name| (n(name), [0; 6])));
    for (name, _) in named() {
        for surroundings in every_surrounding() {
            let program = Profile::load(name, &surroundings).unwrap().compile().unwrap();
            for (call, action) in calls.iter().zip(kernel(&program, &calls)) {
                // Where sockets may have names, a pair of datagrams reaches nothing new.
                if surroundings.unix_sockets && call.0 == n("socketpair") && call.1[0] == 1 {
                    continue;
                }
                assert!(
                    matches!(action, Action::Errno(_)),
                    "{name} {surroundings:?} {:?} {call:x?}",
                    names::name(call.0)
                );
            }
        }
    }
    // Control: without a profile the marker sees each of them, so nothing else stands in the way.
    let free = Program::from_instructions(vec![i(0x06, 0, 0, 0x7fff_0000)]);
    assert!(kernel(&free, &calls).iter().all(|action| *action == Action::Allow));
}

/// What `fallocate` and `setsockopt` are called for every day.
#[test]
fn room_that_limits_see_and_ordinary_options_stay_open() {
    let calls = [
        ("fallocate", [3, 0, 0, 4096, 0, 0]),
        ("fallocate", [3, 3, 0, 4096, 0, 0]),
        ("fallocate", [3, 0x10, 0, 4096, 0, 0]),
        ("setsockopt", [3, 1, 2, 0, 0, 0]),
        ("setsockopt", [3, 6, 1, 0, 0, 0]),
        ("setsockopt", [3, 41, 26, 0, 0, 0]),
        ("setsockopt", [3, 0, 33, 0, 0, 0]),
    ]
    .map(|(name, arguments)| (names::number(name).unwrap(), arguments));
    for (name, _) in named() {
        for surroundings in every_surrounding() {
            let program = Profile::load(name, &surroundings).unwrap().compile().unwrap();
            let seen = kernel(&program, &calls);
            assert!(seen.iter().all(|action| *action == Action::Allow), "{name} {surroundings:?} {seen:?}");
        }
    }
}

#[test]
fn sockets_follow_the_surroundings() {
    let socket = names::number("socket").unwrap();
    let calls = [[1u64, 1, 0], [2, 1, 0], [2, 0x8_0801, 6], [10, 2, 17], [16, 0x8_0003, 0]]
        .map(|[family, kind, protocol]| (socket, [family, kind, protocol, 0, 0, 0]));
    for (unix_sockets, inet_sockets) in [(false, false), (true, false), (false, true), (true, true)] {
        let surroundings = Surroundings { unix_sockets, inet_sockets, ..Surroundings::default() };
        let program = Profile::load("strict", &surroundings).unwrap().compile().unwrap();
        let seen: Vec<bool> = kernel(&program, &calls).iter().map(|action| *action == Action::Allow).collect();
        assert_eq!(seen, [unix_sockets, inet_sockets, inet_sockets, inet_sockets, inet_sockets]);
    }
}

#[test]
fn own_children_can_be_traced_except_in_strict_and_python_and_node() {
    let ptrace = [(names::number("ptrace").unwrap(), [0; 6]), (names::number("shmget").unwrap(), [0; 6])];
    let seen = |name| {
        let program = Profile::load(name, &Surroundings::default()).unwrap().compile().unwrap();
        kernel(&program, &ptrace)
    };
    assert_eq!(seen("default"), [Action::Allow, Action::Allow]);
    assert_eq!(seen("strict"), [Action::Errno(1), Action::Errno(38)]);
}

#[test]
fn x32_numbers_kill_and_minus_one_is_no_call() {
    let program = Profile::load("default", &Surroundings::default()).unwrap().compile().unwrap();
    let calls = [(0x4000_0027, [0; 6]), (0x4000_0000, [0; 6]), (0xffff_fffe, [0; 6]), (39, [0; 6])];
    assert_eq!(kernel(&program, &calls), [Action::Kill, Action::Kill, Action::Kill, Action::Allow]);
}

/// Runs `inside` in a forked child, under the filter when there is one; its wait status.
fn forked(program: Option<&Program>, inside: impl Fn()) -> i32 {
    // SAFETY: the child calls only what `inside` names, none of which waits for a lock of another thread.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: sets a flag of this process.
        unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
        let ready = program.is_none_or(|program| apply(program).is_ok());
        if ready {
            inside();
        }
        loop {
            raw(231, [if ready { 0 } else { 98 }, 0, 0, 0, 0, 0]);
        }
    }
    let mut status = 0;
    // SAFETY: reaps the child just made.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}

#[test]
fn the_i386_gate_kills() {
    let program = Profile::load("default", &Surroundings::default()).unwrap().compile().unwrap();
    assert_eq!(forked(Some(&program), crate::arch::foreign_getpid) & 0x7f, libc::SIGSYS);
    let control = forked(None, crate::arch::foreign_getpid);
    assert!(control == 0 || control & 0x7f == libc::SIGSEGV, "a kernel with or without IA32: {control:x}");
    assert_eq!(forked(Some(&program), || ()), 0);
}

#[test]
fn ordinary_programs_run_under_every_profile() {
    let programs: &[&[&std::ffi::CStr]] = &[
        &[c"/bin/sh", c"-c", c"ls -l / | sort | tail -1 >/dev/null && cp -a /etc/hostname /tmp/.fh-sys-$$ && rm /tmp/.fh-sys-$$"],
        &[c"/usr/bin/python3", c"-c", c"import subprocess,threading,json,tempfile,os,socket\nt=threading.Thread(target=print);t.start();t.join()\nsubprocess.run(['/bin/true'],check=True)\nsocket.socketpair()"],
        &[c"/usr/bin/git", c"--version"],
    ];
    for (name, _) in named() {
        for surroundings in every_surrounding() {
            let program = Profile::load(name, &surroundings).unwrap().compile().unwrap();
            for argv in programs.iter().filter(|argv| std::path::Path::new(argv[0].to_str().unwrap()).exists()) {
                let mut pointers: Vec<_> = argv.iter().map(|text| text.as_ptr()).collect();
                pointers.push(std::ptr::null());
                let env = [c"PATH=/usr/bin:/bin".as_ptr(), std::ptr::null()];
                let null = std::fs::OpenOptions::new().write(true).open("/dev/null").unwrap();
                let status = forked(Some(&program), || {
                    raw(33, [std::os::fd::AsRawFd::as_raw_fd(&null) as u64, 1, 0, 0, 0, 0]);
                    raw(59, [pointers[0] as u64, pointers.as_ptr() as u64, env.as_ptr() as u64, 0, 0, 0]);
                    raw(231, [97, 0, 0, 0, 0, 0]);
                });
                assert_eq!(status, 0, "{name} {surroundings:?} {argv:?}");
            }
        }
    }
}

#[test]
fn names_can_be_allowed_and_denied_but_not_what_others_decide() {
    let mut profile = Profile::load("strict", &Surroundings::default()).unwrap();
    profile.allow("ptrace").unwrap();
    profile.deny("getpid").unwrap();
    let calls = ["ptrace", "getpid", "getppid"].map(|name| (names::number(name).unwrap(), [0; 6]));
    assert_eq!(kernel(&profile.compile().unwrap(), &calls), [Action::Allow, Action::Errno(1), Action::Allow]);
    for name in ["socket", "clone3", "io_uring_setup"] {
        assert!(matches!(profile.allow(name), Err(ProfileError::Reserved { .. })), "{name}");
    }
    assert_eq!(profile.allow("nonsense"), Err(ProfileError::NoSuchCall("nonsense".into())));
    assert_eq!(profile.deny("execve"), Err(ProfileError::Needed("execve".into())));
    assert_eq!(Profile::load("base", &Surroundings::default()), Err(ProfileError::NoSuchProfile("base".into())));
    assert_eq!(profile.why("bpf").map(str::is_empty), Some(false));
}

/// gVisor's kernel does not keep its first process, which is the guest, from signals: the filter does, and no policy undoes it.
#[test]
fn no_policy_opens_the_way_to_the_guest_under_gvisor() {
    let of = |gvisor| Profile::load("default", &Surroundings { gvisor, ..Surroundings::default() }).unwrap();
    for name in ["kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"] {
        let number = names::number(name).unwrap();
        let (mut inside, mut on_linux) = (of(true), of(false));
        assert!(matches!(inside.allow(name), Err(ProfileError::Reserved { .. })), "{name}");
        let (guest, other) = ([1, 9, 0, 0, 0, 0], [2, 9, 0, 0, 0, 0]);
        assert_eq!((inside.judge(number, guest), inside.judge(number, other)), (Action::Errno(1), Action::Allow));
        // Where Linux keeps it, the name is allowed as before.
        assert_eq!(on_linux.allow(name), Ok(()), "{name}");
        assert_eq!(on_linux.judge(number, guest), Action::Allow, "{name}");
    }
}

#[test]
fn every_width_and_test_compiles_to_what_it_means() {
    let value = 0x1_0000_0005;
    let tests = [
        Test::MaskedIn { mask: u64::MAX, values: vec![value, 7, 0xffff_ffff_0000_0007].into() },
        Test::MaskedIn { mask: 0xff00_0000_0000_00ff, values: vec![5].into() },
        Test::Ne(value),
        Test::Le(value),
    ];
    let mut filter = Profile::load("strict", &Surroundings::default()).unwrap().filter().clone();
    for test in tests {
        for argument in 0..5 {
            let condition = Condition { argument, width: Width::Long, test: test.clone() };
            let verdict = Verdict::When {
                any: vec![vec![condition].into()].into(),
                then: Action::Allow,
                otherwise: Action::Errno(5),
            };
            filter.calls.insert(300, verdict.clone());
            let calls: Vec<_> = borders(&verdict).into_iter().map(|arguments| (300, arguments)).collect();
            let expected: Vec<_> = calls.iter().map(|(_, arguments)| verdict.judge(*arguments)).collect();
            assert_eq!(kernel(&filter.compile().unwrap(), &calls), expected, "{test:?}");
        }
    }
}

/// `cargo test --release -p fumehood-sys -- --ignored --nocapture measure`.
#[test]
#[ignore = "prints times"]
fn measure_filters() {
    for (name, _) in named() {
        let surroundings = Surroundings { inet_sockets: true, ..Surroundings::default() };
        let mut load: Vec<_> = Vec::new();
        let mut install: Vec<_> = Vec::new();
        let mut length = 0;
        for _ in 0..60 {
            let start = std::time::Instant::now();
            let program = Profile::load(name, &surroundings).unwrap().compile().unwrap();
            load.push(start.elapsed());
            length = program.instructions().len();
            let (mut read, mut write) = ([0; 2], [0u8; 8]);
            // SAFETY: `read` has room for two descriptors.
            assert_eq!(unsafe { libc::pipe(read.as_mut_ptr()) }, 0);
            forked(None, || {
                let start = std::time::Instant::now();
                apply(&program).unwrap();
                let taken = (start.elapsed().as_nanos() as u64).to_le_bytes();
                raw(1, [read[1] as u64, taken.as_ptr() as u64, 8, 0, 0, 0]);
            });
            raw(0, [read[0] as u64, write.as_mut_ptr() as u64, 8, 0, 0, 0]);
            raw(3, [read[0] as u64, 0, 0, 0, 0, 0]);
            raw(3, [read[1] as u64, 0, 0, 0, 0, 0]);
            install.push(std::time::Duration::from_nanos(u64::from_le_bytes(write)));
        }
        load.sort_unstable();
        install.sort_unstable();
        let mut ranges = 0;
        let mut last = None;
        for number in 0..CALLS {
            let verdict = Some(Profile::load(name, &surroundings).unwrap().filter().calls.get(number).cloned());
            ranges += usize::from(verdict != last);
            last = verdict;
        }
        println!(
            "{name}: {ranges} ranges, {length} instructions; load+compile p10 {:?} median {:?}; install p10 {:?} median {:?}",
            load[6], load[30], install[6], install[30]
        );
    }
}

/// Who builds an image is told that owners were changed, and nothing is: elsewhere the kernel answers.
#[test]
fn changes_of_owners_are_not_executed_where_an_image_is_built() {
    for profile in super::profiles() {
        let built = Profile::load(profile, &Surroundings::default()).unwrap();
        for name in ["chown", "fchown", "lchown", "fchownat", "setgroups"] {
            let said = built.judge(names::number(name).unwrap(), [0; 6]);
            let wanted = if *profile == "image-build" { Action::Errno(0) } else { Action::Allow };
            assert_eq!(said, wanted, "{profile}: {name}");
        }
    }
}
