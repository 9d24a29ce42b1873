//! After go: the payload is hostile to the guest, its end is told exactly, and nothing outlives it.

use std::io::Write as _;
use std::time::{Duration, Instant};

use guest::config::Op;
use guest::frames::{Address, End, ExecFailure, FromGuest, OwnedStart, ToGuest};
use sys::pidfd;

use crate::harness::{Sandbox, Who};
use crate::world::{c, container, shell};

/// Each line tries one thing on the guest and prints its errno, or 0.
const ATTACK: &str = r"
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
guest = int(sys.argv[1])
def attempt(work):
    try:
        work()
        return 0
    except OSError as error:
        return error.errno
def trace(request):
    if libc.ptrace(request, guest, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), '')
def vm_read():
    class V(ctypes.Structure):
        _fields_ = [('base', ctypes.c_void_p), ('len', ctypes.c_size_t)]
    buffer = ctypes.create_string_buffer(8)
    if libc.process_vm_readv(guest, ctypes.byref(V(ctypes.addressof(buffer), 8)), 1, ctypes.byref(V(0x400000, 8)), 1, 0) < 0:
        raise OSError(ctypes.get_errno(), '')
print(attempt(lambda: os.kill(guest, 9)), attempt(lambda: os.kill(guest, 15)), attempt(lambda: os.kill(guest, 0)),
      attempt(lambda: trace(16)), attempt(lambda: trace(0x4206)), attempt(vm_read),
      attempt(lambda: open(f'/proc/{guest}/mem', 'rb')), attempt(lambda: open(f'/proc/{guest}/environ', 'rb').read()),
      attempt(lambda: os.listdir(f'/proc/{guest}/fd')), attempt(lambda: os.readlink(f'/proc/{guest}/root')),
      attempt(lambda: os.pidfd_open(guest) and libc.syscall(438, os.pidfd_open(guest), 3, 0) >= 0 or os.close(-1)))
";

#[test]
fn the_payload_can_neither_signal_nor_trace_nor_read_the_guest() {
    for who in Who::BOTH {
        let told = who.be(|| Sandbox::run(who, &container(who, &["python3", "-c", ATTACK, "1"])));
        let errnos: Vec<i32> = told.stdout.split_whitespace().map(|errno| errno.parse().unwrap()).collect();
        assert_eq!(errnos.len(), 11, "{}", told.stderr);
        assert!(errnos.iter().all(|errno| *errno != 0), "{errnos:?}");
        assert_eq!(errnos[..5], [libc::EPERM; 5], "{errnos:?}");
        assert_eq!(told.exited.end, End::Code(0));
    }
}

#[test]
fn the_same_attacks_work_on_a_child_of_the_payload() {
    // The control: what fails on the guest fails because it is the guest.
    let attack = ATTACK
        .replace(
            "guest = int(sys.argv[1])",
            "import time; guest = os.fork()\nif guest == 0: time.sleep(50); os._exit(0)",
        )
        .replace("os.kill(guest, 9)", "os.kill(guest, 0)")
        .replace("os.kill(guest, 15)", "os.kill(guest, 0)");
    let who = Who::Rootless;
    let told = who.be(|| Sandbox::run(who, &container(who, &["python3", "-c", &attack])));
    let errnos: Vec<&str> = told.stdout.split_whitespace().collect();
    assert_eq!(&errnos[..4], ["0", "0", "0", "0"], "{told:?}");
    assert_eq!(&errnos[6..10], ["0", "0", "0", "0"], "{told:?}");
}

#[test]
fn codes_and_signals_of_the_payload_are_told_as_they_are() {
    let ends = [
        ("exit 0", End::Code(0)),
        ("exit 7", End::Code(7)),
        ("exit 255", End::Code(255)),
        ("kill -TERM $$", End::Signal { number: 15, core: false }),
        ("kill -KILL $$", End::Signal { number: 9, core: false }),
        ("kill -SEGV $$", End::Signal { number: 11, core: false }),
    ];
    for (text, end) in ends {
        let who = Who::Rootless;
        let told = who.be(|| Sandbox::run(who, &container(who, &shell(text))));
        assert_eq!(told.exited.end, end, "{text}");
    }
}

#[test]
fn what_kept_a_program_from_starting_is_told_apart() {
    let who = Who::Rootless;
    let file = |path: &str, mode, bytes: &[u8]| Op::File { path: c(path), mode, bytes: bytes.to_vec() };
    let cases = [
        (vec!["no-such-program"], libc::ENOENT, ExecFailure::NotFound),
        (vec!["/no/such/program"], libc::ENOENT, ExecFailure::NotFound),
        (vec![""], libc::ENOENT, ExecFailure::NotFound),
        (vec!["/etc/passwd"], libc::EACCES, ExecFailure::NotExecutable),
        (vec!["/etc"], libc::EACCES, ExecFailure::NotExecutable),
        (vec!["plain"], libc::EACCES, ExecFailure::NotExecutable),
        (vec!["/opt/text"], libc::ENOEXEC, ExecFailure::NotExecutable),
        (vec!["/opt/script"], libc::ENOENT, ExecFailure::NoInterpreter),
    ];
    for (argv, errno, which) in cases {
        let mut config = container(who, &argv);
        config.search.push(c("/opt"));
        config.ops.extend([
            file("/opt/text", 0o755, b"no program\n"),
            file("/opt/script", 0o755, b"#!/no/interpreter\n"),
            file("/opt/plain", 0o644, b"x"),
        ]);
        who.be(|| {
            let mut sandbox = Sandbox::start(who, &config);
            sandbox.posture();
            sandbox.say(ToGuest::Go);
            assert_eq!(sandbox.hear(), Some(FromGuest::ExecFailed { errno, which }), "{argv:?}");
            assert_eq!(sandbox.hear(), None);
        });
    }
    let mut config = container(who, &["true"]);
    config.cwd = c("/nowhere");
    who.be(|| {
        let mut sandbox = Sandbox::start(who, &config);
        sandbox.posture();
        sandbox.say(ToGuest::Go);
        let expected = FromGuest::ExecFailed { errno: libc::ENOENT, which: ExecFailure::Cwd };
        assert_eq!(sandbox.hear(), Some(expected));
    });
}

#[test]
fn a_signal_that_comes_together_with_go_reaches_the_payload() {
    for who in Who::BOTH {
        let started = Instant::now();
        let end = who.be(|| {
            let mut sandbox = Sandbox::start(who, &container(who, &["sleep", "60"]));
            // Both lie there when the guest reads for the first time after its posture.
            sandbox.say(ToGuest::Go);
            sandbox.say(ToGuest::Signal(15));
            sandbox.posture();
            assert!(matches!(sandbox.hear(), Some(FromGuest::Started { .. })));
            sandbox.exited().end
        });
        assert_eq!(end, End::Signal { number: 15, core: false });
        assert!(started.elapsed() < Duration::from_secs(60));
    }
}

#[test]
fn orphans_die_with_the_payload_and_count_in_its_usage() {
    for who in Who::BOTH {
        // The payload ends when its orphan says that it has worked.
        let text = "x=$( (setsid sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo worked; sleep 600' &) | \
                    head -n 1); exit 3";
        let started = Instant::now();
        let told = who.be(|| Sandbox::run(who, &container(who, &shell(text))));
        assert_eq!(told.exited.end, End::Code(3));
        assert!(started.elapsed() < Duration::from_secs(60));
        // The loop ran in the orphan alone.
        assert!(told.exited.utime_us + told.exited.stime_us > 30_000, "{:?}", told.exited);
    }
}

#[test]
fn the_end_of_the_control_socket_is_the_end_of_everything() {
    for who in Who::BOTH {
        who.be(|| {
            let mut sandbox = Sandbox::start(who, &container(who, &shell("trap '' HUP TERM; echo up; sleep 600")));
            sandbox.posture();
            sandbox.go();
            assert_eq!(sandbox.line(), "up");
            sandbox.control = None;
            assert_eq!(pidfd::wait(&sandbox.child.pidfd).unwrap().0, pidfd::End::Exited(125));
        });
    }
}

#[test]
fn nothing_runs_before_go() {
    let who = Who::Rootless;
    who.be(|| {
        let mut sandbox = Sandbox::start(who, &container(who, &shell("echo ran")));
        sandbox.posture();
        sandbox.control = None;
        assert_eq!(sandbox.output().0, "");
        assert_eq!(pidfd::wait(&sandbox.child.pidfd).unwrap().0, pidfd::End::Exited(125));
    });
}

#[test]
fn a_signal_reaches_the_payloads_own_handler() {
    let who = Who::Rootless;
    for (number, name) in [(1, "HUP"), (2, "INT"), (3, "QUIT"), (15, "TERM")] {
        who.be(|| {
            let text = format!("trap 'echo got {name}; exit 9' {name}; echo up; while :; do sleep 0.05; done");
            let mut sandbox = Sandbox::start(who, &container(who, &shell(&text)));
            sandbox.posture();
            sandbox.go();
            assert_eq!(sandbox.line(), "up");
            sandbox.say(ToGuest::Signal(number));
            assert_eq!(sandbox.line(), format!("got {name}"));
            assert_eq!(sandbox.exited().end, End::Code(9));
        });
    }
}

#[test]
fn stop_continue_kill_and_ping_are_answered() {
    let who = Who::Rootless;
    who.be(|| {
        let mut sandbox = Sandbox::start(who, &container(who, &["sleep", "600"]));
        sandbox.posture();
        sandbox.go();
        sandbox.say(ToGuest::Ping);
        assert_eq!(sandbox.hear(), Some(FromGuest::Pong));
        sandbox.say(ToGuest::Signal(19));
        assert_eq!(sandbox.hear(), Some(FromGuest::Stopped(19)));
        sandbox.say(ToGuest::Signal(18));
        assert_eq!(sandbox.hear(), Some(FromGuest::Continued));
        sandbox.say(ToGuest::Kill);
        assert_eq!(sandbox.exited().end, End::Signal { number: 9, core: false });
    });
}

#[test]
fn streams_end_when_the_payload_closes_them() {
    let who = Who::Rootless;
    who.be(|| {
        let mut sandbox = Sandbox::start(who, &container(who, &shell("read x; echo $x; exec <&- >&- 2>&-; sleep 600")));
        sandbox.posture();
        sandbox.go();
        sandbox.stdin.as_mut().unwrap().write_all(b"line\n").unwrap();
        // Were the guest to hold them, this would wait for the whole ten minutes.
        assert_eq!(sandbox.output(), ("line\n".into(), String::new()));
        sandbox.say(ToGuest::Kill);
        sandbox.exited();
    });
}

#[test]
fn nonsense_from_the_supervisor_ends_everything() {
    let who = Who::Rootless;
    let start = OwnedStart { argv: vec![c("true")], ..OwnedStart::default() };
    let start = start.encode(Address { channel: 1, request: 1 }).unwrap();
    // Bytes, a second go, a frame of another version, one that fits nowhere, one that this guest does not serve.
    for bytes in [
        &[0xff_u8; 12][..],
        &[0, 0, 0, 0, 2, 3, 0, 0, 1, 0, 0, 0],
        &[0, 0, 0, 0, 1, 6, 0, 0],
        &[0, 1, 0, 0, 2, 4, 0, 0, 0, 0, 0, 0],
        &start,
    ] {
        who.be(|| {
            let mut sandbox = Sandbox::start(who, &container(who, &["sleep", "600"]));
            sandbox.posture();
            sandbox.go();
            // In one piece: after the first part the guest may be gone.
            sandbox.control.as_ref().unwrap().write_all(&[bytes, &[0; 300]].concat()).unwrap();
            assert_eq!(pidfd::wait(&sandbox.child.pidfd).unwrap().0, pidfd::End::Exited(125), "{bytes:?}");
        });
    }
}
