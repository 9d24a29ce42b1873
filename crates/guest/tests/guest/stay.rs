//! A guest that stays when its first program has ended, and starts others: each on its own channel, with its own streams.

use std::fs::File;
use std::io::{IoSlice, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use guest::CALLS_AFTER_SECCOMP;
use guest::config::Config;
use guest::frames::{
    Address, End, ExecFailure, Exited, FromGuest, HEADER, MAX_PAYLOAD, MAX_PROGRAMS, OwnedStart, ToGuest, VERSION,
};
use guest::step::Step;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use sys::pidfd;
use sys::spawn::Namespaces;

use crate::filter::{PROGRAM, allow};
use crate::harness::{ALL, REQUEST, Sandbox, Who, pipe};
use crate::world::{c, container, process, shell};

/// The supervisor's ends of a program's streams.
struct Streams {
    input: Option<File>,
    output: File,
    errors: File,
}

impl Streams {
    /// They, and what goes in.
    fn new() -> (Self, [OwnedFd; 3]) {
        let ((stdin, input), (output, stdout), (errors, stderr)) = (pipe(), pipe(), pipe());
        let ours = Self { input: Some(File::from(input)), output: File::from(output), errors: File::from(errors) };
        (ours, [stdin, stdout, stderr])
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let mut byte = [0];
        while self.output.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
            line.push(char::from(byte[0]));
        }
        line
    }

    /// To the end of both.
    fn rest(&mut self) -> (String, String) {
        let (mut output, mut errors) = (String::new(), String::new());
        self.output.read_to_string(&mut output).unwrap();
        self.errors.read_to_string(&mut errors).unwrap();
        (output, errors)
    }
}

fn start(argv: &[&str]) -> OwnedStart {
    let argv = argv.iter().map(|text| c(text)).collect();
    OwnedStart { argv, env: vec![c("PATH=/usr/bin"), c("WHICH=another")], cwd: c("/usr") }
}

/// The request of a program's start: none has that of another.
fn at(channel: u16) -> Address {
    Address { channel, request: 1000 + u32::from(channel) }
}

/// Sends bytes, and descriptors with the first of them.
fn send(sandbox: &Sandbox, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    assert!(fds.is_empty() || rights.push(SendAncillaryMessage::ScmRights(fds)));
    let control = sandbox.control.as_ref().unwrap();
    let sent = rustix::net::sendmsg(control, &[IoSlice::new(bytes)], &mut rights, SendFlags::NOSIGNAL).unwrap();
    (&*control).write_all(&bytes[sent..]).unwrap();
}

/// Asks for a program on this channel.
fn ask(sandbox: &Sandbox, channel: u16, program: &OwnedStart) -> Streams {
    let (ours, theirs) = Streams::new();
    send(sandbox, &program.encode(at(channel)).unwrap(), &theirs.each_ref().map(|fd| fd.as_fd()));
    ours
}

/// Asks for a program and hears that it runs: its streams and its pid inside.
fn run(sandbox: &mut Sandbox, channel: u16, argv: &[&str]) -> (Streams, i32) {
    let streams = ask(sandbox, channel, &start(argv));
    match sandbox.hear_at() {
        Some((heard, FromGuest::Started { pid })) if heard == at(channel) => (streams, pid),
        other => panic!("instead of a start: {other:?}"),
    }
}

/// The next frame, which must be the end of this program.
fn end(sandbox: &mut Sandbox, program: Address) -> Exited {
    match sandbox.hear_at() {
        Some((heard, FromGuest::Exited(exited))) if heard == program => exited,
        other => panic!("instead of the end of {program:?}: {other:?}"),
    }
}

const FIRST: Address = Address { channel: 0, request: REQUEST };
const KILLED: End = End::Signal { number: 9, core: false };

/// Each way to start: as root and without privilege, in both tiers.
fn everywhere(argv: &[&str], work: impl Fn(&mut Sandbox) + Sync) {
    for who in Who::BOTH {
        for (mut config, namespaces) in [(container(who, argv), ALL), (process(who.outside(), argv), Namespaces::NONE)]
        {
            config.stay = true;
            who.be(|| {
                let mut sandbox = Sandbox::start_with(who, &config, namespaces, &[]);
                sandbox.posture();
                sandbox.go();
                work(&mut sandbox);
            });
        }
    }
}

/// A staying guest whose first program sleeps, in a container without privilege.
fn staying(argv: &[&str], work: impl Fn(&mut Sandbox) + Sync) {
    staying_with(&Config { stay: true, ..container(Who::Rootless, argv) }, work);
}

fn staying_with(config: &Config, work: impl Fn(&mut Sandbox) + Sync) {
    Who::Rootless.be(|| {
        let mut sandbox = Sandbox::start(Who::Rootless, config);
        sandbox.posture();
        sandbox.go();
        work(&mut sandbox);
    });
}

/// Ends it: all is killed, and the guest goes by itself.
fn leave(sandbox: &mut Sandbox) {
    sandbox.say(ToGuest::Kill);
    gone(sandbox, 0);
}

fn gone(sandbox: &Sandbox, code: i32) {
    assert_eq!(pidfd::wait(&sandbox.child.pidfd).unwrap().0, pidfd::End::Exited(code));
}

/// The guest ends everything, and says why.
fn refused(sandbox: &mut Sandbox, errno: i32, detail: u32) {
    let failed = FromGuest::Failed { step: Step::Init, errno, detail };
    assert_eq!(sandbox.hear_at(), Some((Address::default(), failed)));
    gone(sandbox, 125);
}

#[test]
fn programs_run_after_each_other_when_the_first_has_ended() {
    everywhere(&shell("exit 3"), |sandbox| {
        assert_eq!(end(sandbox, FIRST).end, End::Code(3));
        for (channel, code) in [(1, 4), (2, 5), (3, 0)] {
            let text = format!("read x; echo $x from $0 in $PWD as $WHICH; echo no >&2; exit {code}");
            let (mut streams, _) = run(sandbox, channel, &["sh", "-c", &text, "me"]);
            streams.input.take().unwrap().write_all(b"a word\n").unwrap();
            let said = ("a word from me in /usr as another\n".to_owned(), "no\n".to_owned());
            assert_eq!(streams.rest(), said);
            assert_eq!(end(sandbox, at(channel)).end, End::Code(code));
        }
        leave(sandbox);
    });
}

#[test]
fn the_end_of_one_leaves_the_others_running() {
    everywhere(&["cat"], |sandbox| {
        let (mut second, _) = run(sandbox, 1, &["cat"]);
        let (mut third, _) = run(sandbox, 2, &["cat"]);
        sandbox.stdin = None;
        assert_eq!(end(sandbox, FIRST).end, End::Code(0));
        second.input.take().unwrap().write_all(b"second\n").unwrap();
        assert_eq!(second.rest().0, "second\n");
        assert_eq!(end(sandbox, at(1)).end, End::Code(0));
        third.input.as_mut().unwrap().write_all(b"third\n").unwrap();
        assert_eq!(third.line(), "third");
        // A channel whose program has ended is free again.
        let (mut again, _) = run(sandbox, 1, &["echo", "again"]);
        assert_eq!(again.rest().0, "again\n");
        assert_eq!(end(sandbox, at(1)).end, End::Code(0));
        third.input = None;
        assert_eq!(end(sandbox, at(2)).end, End::Code(0));
        leave(sandbox);
    });
}

#[test]
fn kill_ends_all_and_what_they_left_behind() {
    everywhere(&shell("(setsid sleep 600 &); echo up; exec sleep 600"), |sandbox| {
        assert_eq!(sandbox.line(), "up");
        let (_second, pid) = run(sandbox, 1, &["sleep", "600"]);
        let started = Instant::now();
        // One that is asked for in the same breath is refused.
        let mut bytes = [0; 64];
        let length = ToGuest::Kill.encode(Address::default(), &mut bytes).unwrap();
        let late = [&bytes[..length], &start(&["sleep", "600"]).encode(at(2)).unwrap()].concat();
        let (_late, theirs) = Streams::new();
        send(sandbox, &late, &theirs.each_ref().map(|fd| fd.as_fd()));
        let mut heard = Vec::new();
        while let Some(frame) = sandbox.hear_at() {
            heard.push(frame);
        }
        gone(sandbox, 0);
        assert!(started.elapsed() < Duration::from_secs(60));
        let mut ends = Vec::new();
        for (at, frame) in &heard {
            if let FromGuest::Exited(exited) = frame {
                ends.push((at.channel, exited.end));
            }
        }
        assert!(ends.contains(&(0, KILLED)) && ends.contains(&(1, KILLED)) && ends.len() == 2, "{heard:?}");
        let refused = FromGuest::ExecFailed { errno: libc::ESHUTDOWN, which: ExecFailure::Resources };
        assert!(heard.contains(&(at(2), refused)), "{heard:?}");
        assert!(!Sandbox::alive(pid) || pid < 10, "in the process tier the pid is that of outside");
    });
}

/// Tells which signals are blocked before a shell unblocks them, and becomes that shell.
const STATUS: &str = r"
import os, sys
print([line for line in open('/proc/self/status') if line.startswith('SigBlk')], flush=True)
os.execv('/bin/sh', ['sh', '-c', sys.argv[1]])
";

#[test]
fn a_program_is_confined_as_the_first_is() {
    // What the kernel says of a program's controls, its session, its signals, its descriptors and its parent.
    let tell = "grep -E '^(Uid|Gid|Groups|Umask|Cap|NoNewPrivs|Seccomp|Sig[BIC])' /proc/self/status; \
                readlink /proc/self/ns/*; ls /proc/self/fd | wc -l; cat /proc/self/limits; \
                exec python3 -c 'import os; print(os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid(), os.getppid())'";
    let python = ["python3", "-c", STATUS, tell];
    let mut config = container(Who::Rootless, &python);
    config.seccomp = allow_all();
    config.stay = true;
    staying_with(&config, |sandbox| {
        sandbox.stdin = None;
        let (first, errors) = sandbox.output();
        assert_eq!((end(sandbox, FIRST).end, errors.as_str()), (End::Code(0), ""));
        let (mut streams, _) = run(sandbox, 1, &python);
        streams.input = None;
        assert_eq!(streams.rest(), (first.clone(), String::new()));
        assert!(first.contains("Seccomp:\t2") && first.contains("NoNewPrivs:\t1"), "{first}");
        assert!(first.ends_with("True True 1\n"), "{first}");
        assert_eq!(end(sandbox, at(1)).end, End::Code(0));
        leave(sandbox);
    });
}

/// A filter that allows all.
fn allow_all() -> Vec<u8> {
    [&[6, 0, 0, 0][..], &0x7fff_0000_u32.to_le_bytes()].concat()
}

/// Tries on each of these processes what a neighbour must not be able to do, and prints the errnos.
const NEIGHBOUR: &str = r"
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def attempt(work):
    try:
        work()
        return 0
    except OSError as error:
        return error.errno
def call(number, *words):
    if libc.syscall(number, *words) < 0:
        raise OSError(ctypes.get_errno(), '')
for one in map(int, sys.argv[1:]):
    def pidfd_getfd():
        fd = os.pidfd_open(one)
        call(438, fd, 1, 0)
    print(attempt(lambda: os.kill(one, 0)), attempt(lambda: call(101, 16, one, 0, 0)), attempt(lambda: call(101, 0x4206, one, 0, 0)),
          attempt(lambda: os.open(f'/proc/{one}/fd/1', os.O_WRONLY)), attempt(lambda: os.readlink(f'/proc/{one}/fd/1')),
          attempt(lambda: open(f'/proc/{one}/mem', 'rb')), attempt(lambda: os.readlink(f'/proc/{one}/cwd')),
          attempt(pidfd_getfd))
print(*sorted(map(int, os.listdir('/proc/self/fd')))[:4])
";

#[test]
fn a_program_reaches_neither_the_guest_nor_another_program_nor_its_descriptors() {
    staying(&["sleep", "600"], |sandbox| {
        let (_second, second) = run(sandbox, 1, &["sleep", "600"]);
        // The first has the pid that the guest told when it started it: 2 or, after a proof, 3.
        let others = format!("{second}");
        let (mut attacker, _) = run(sandbox, 2, &["python3", "-c", NEIGHBOUR, "1", &others]);
        let (said, errors) = attacker.rest();
        let lines: Vec<Vec<i32>> =
            said.lines().map(|line| line.split(' ').map(|number| number.parse().unwrap()).collect()).collect();
        assert_eq!(lines.len(), 3, "{said}{errors}");
        for errnos in &lines[..2] {
            assert!(errnos.iter().all(|errno| [libc::EPERM, libc::EACCES].contains(errno)), "{said}");
        }
        // Its own three, and the folder that it reads.
        assert_eq!(lines[2], [0, 1, 2, 3]);
        assert_eq!(end(sandbox, at(2)).end, End::Code(0));
        leave(sandbox);
    });
}

#[test]
fn what_fails_on_a_neighbour_works_on_a_programs_own_child() {
    let own = NEIGHBOUR.replace(
        "for one in map(int, sys.argv[1:]):",
        "child = os.fork()\nif child == 0:\n    import time\n    time.sleep(50)\n    os._exit(0)\nfor one in [child]:",
    );
    staying(&["sleep", "600"], |sandbox| {
        let (mut program, _) = run(sandbox, 1, &["python3", "-c", &own]);
        let mut errnos = Vec::new();
        program.line().split(' ').for_each(|number| errnos.push(number.parse::<i32>().unwrap()));
        // The second way to trace it: the first one has it already.
        assert_eq!(errnos.remove(2), libc::EPERM);
        assert_eq!(errnos, [0; 7]);
        leave(sandbox);
    });
}

#[test]
fn a_signal_goes_to_its_channel_alone() {
    everywhere(&["sleep", "600"], |sandbox| {
        let trap = "trap 'echo got it; exit 9' TERM; echo up; while :; do sleep 0.05; done";
        let (mut second, _) = run(sandbox, 1, &shell(trap));
        let (_third, _) = run(sandbox, 2, &["sleep", "600"]);
        assert_eq!(second.line(), "up");
        sandbox.say_at(Address { channel: 1, request: 0 }, ToGuest::Signal(15));
        assert_eq!(second.line(), "got it");
        assert_eq!(end(sandbox, at(1)).end, End::Code(9));
        // To one that has ended: nobody is there, which is no fault.
        sandbox.say_at(Address { channel: 1, request: 0 }, ToGuest::Signal(15));
        sandbox.say_at(Address { channel: 2, request: 0 }, ToGuest::Signal(19));
        assert_eq!(sandbox.hear_at(), Some((Address { channel: 2, request: 0 }, FromGuest::Stopped(19))));
        sandbox.say_at(Address { channel: 2, request: 0 }, ToGuest::Signal(18));
        assert_eq!(sandbox.hear_at(), Some((Address { channel: 2, request: 0 }, FromGuest::Continued)));
        sandbox.say_at(Address { channel: 2, request: 0 }, ToGuest::Signal(9));
        assert_eq!(end(sandbox, at(2)).end, KILLED);
        let ping = Address { channel: 0, request: 4711 };
        sandbox.say_at(ping, ToGuest::Ping);
        assert_eq!(sandbox.hear_at(), Some((ping, FromGuest::Pong)));
        sandbox.say(ToGuest::Signal(9));
        assert_eq!(end(sandbox, FIRST).end, KILLED);
        leave(sandbox);
    });
}

#[test]
fn what_keeps_a_program_from_starting_is_told_on_its_channel_and_ends_no_other() {
    staying(&["cat"], |sandbox| {
        let nowhere = OwnedStart { cwd: c("/nowhere"), ..start(&["true"]) };
        let cases = [
            (start(&["no-such-program"]), libc::ENOENT, ExecFailure::NotFound),
            (start(&["/etc/passwd"]), libc::EACCES, ExecFailure::NotExecutable),
            (nowhere, libc::ENOENT, ExecFailure::Cwd),
        ];
        for (program, errno, which) in cases {
            let mut streams = ask(sandbox, 1, &program);
            assert_eq!(sandbox.hear_at(), Some((at(1), FromGuest::ExecFailed { errno, which })));
            // Nobody holds its streams any more.
            assert_eq!(streams.rest(), (String::new(), String::new()));
        }
        let (mut program, _) = run(sandbox, 1, &["echo", "it", "works"]);
        assert_eq!(program.rest().0, "it works\n");
        assert_eq!(end(sandbox, at(1)).end, End::Code(0));
        sandbox.stdin = None;
        assert_eq!(end(sandbox, FIRST).end, End::Code(0));
        leave(sandbox);
    });
}

#[test]
fn one_program_more_than_fit_is_refused_until_another_has_ended() {
    staying(&["sleep", "600"], |sandbox| {
        let last = u16::try_from(MAX_PROGRAMS).unwrap() - 1;
        // All at once: what comes while one is started waits.
        let mut asked: Vec<_> = (1..=last + 1).map(|channel| ask(sandbox, channel, &start(&["cat"]))).collect();
        for channel in 1..=last {
            let heard = sandbox.hear_at();
            assert!(matches!(heard, Some((heard, FromGuest::Started { .. })) if heard == at(channel)), "{heard:?}");
        }
        let refused = FromGuest::ExecFailed { errno: libc::EAGAIN, which: ExecFailure::Resources };
        assert_eq!(sandbox.hear_at(), Some((at(last + 1), refused)));
        asked[0].input = None;
        assert_eq!(end(sandbox, at(1)).end, End::Code(0));
        let (mut program, _) = run(sandbox, last + 1, &["cat"]);
        // Each has its own streams, and no other.
        for (number, streams) in asked.iter_mut().enumerate().skip(1).take(usize::from(last) - 1) {
            streams.input.take().unwrap().write_all(format!("{number}\n").as_bytes()).unwrap();
            assert_eq!(streams.rest().0, format!("{number}\n"));
        }
        program.input.take().unwrap().write_all(b"the last\n").unwrap();
        assert_eq!(program.rest().0, "the last\n");
        sandbox.say(ToGuest::Kill);
        let mut ended = 0;
        while let Some((_, frame)) = sandbox.hear_at() {
            assert!(matches!(frame, FromGuest::Exited(_)), "{frame:?}");
            ended += 1;
        }
        assert_eq!(ended, MAX_PROGRAMS);
        gone(sandbox, 0);
    });
}

#[test]
fn a_long_start_comes_in_pieces_and_with_another_behind_it() {
    staying(&["sleep", "600"], |sandbox| {
        let long = "x".repeat(60_000);
        let (mut one, theirs) = Streams::new();
        let bytes = start(&["sh", "-c", "echo ${#1}", "sh", &long]).encode(at(1)).unwrap();
        send(sandbox, &bytes[..5000], &theirs.each_ref().map(|fd| fd.as_fd()));
        drop(theirs);
        send(sandbox, &bytes[5000..], &[]);
        let mut two = ask(sandbox, 2, &start(&["echo", "short"]));
        assert_eq!((one.rest().0, two.rest().0), ("60000\n".to_owned(), "short\n".to_owned()));
        leave(sandbox);
    });
}

#[test]
fn what_no_supervisor_of_ours_asks_for_ends_everything_by_name() {
    let good = start(&["true"]).encode(at(1)).unwrap();
    let header = |payload: usize, channel: u16, request: u32| {
        let length = u32::try_from(payload).unwrap().to_le_bytes();
        [&length[..], &[VERSION, 8], &channel.to_le_bytes(), &request.to_le_bytes()].concat()
    };
    let mut malformed = good.clone();
    malformed[HEADER] += 1;
    let cases: [(&str, Vec<u8>, usize, i32, u32); 11] = [
        ("malformed", malformed, 3, libc::EPROTO, 8),
        ("oversized", header(MAX_PAYLOAD + 1, 1, 1), 3, libc::EMSGSIZE, u32::try_from(MAX_PAYLOAD).unwrap() + 1),
        ("no program", [header(21, 1, 1), vec![0; 16], vec![1, 0, 0, 0, 0]].concat(), 3, libc::EPROTO, 8),
        ("no request", [header(good.len() - HEADER, 1, 0), good[HEADER..].to_vec()].concat(), 3, libc::EPROTO, 0),
        (
            "the first channel",
            [header(good.len() - HEADER, 0, 1), good[HEADER..].to_vec()].concat(),
            3,
            libc::ECHRNG,
            0,
        ),
        ("an unknown channel", start(&["true"]).encode(at(4)).unwrap(), 3, libc::ECHRNG, 4),
        ("a channel in use", start(&["true"]).encode(at(2)).unwrap(), 3, libc::EBUSY, 2),
        ("no streams", good.clone(), 0, libc::EBADF, 0),
        ("one stream", good.clone(), 1, libc::EPROTO, 0),
        ("four streams", good.clone(), 4, libc::EMFILE, 0),
        ("streams of nobody", vec![0, 0, 0, 0, VERSION, 7, 0, 0, 1, 0, 0, 0], 3, libc::EBADF, 0),
    ];
    for (name, bytes, streams, errno, detail) in cases {
        staying(&["sleep", "600"], |sandbox| {
            let (_one, _) = run(sandbox, 1, &["true"]);
            assert_eq!(end(sandbox, at(1)).end, End::Code(0));
            let (_two, _) = run(sandbox, 2, &["sleep", "600"]);
            let theirs: Vec<OwnedFd> = (0..streams).map(|_| pipe().0).collect();
            let theirs: Vec<_> = theirs.iter().map(|fd| fd.as_fd()).collect();
            send(sandbox, &bytes, &theirs);
            if name == "streams of nobody" {
                assert!(matches!(sandbox.hear_at(), Some((_, FromGuest::Pong))));
            }
            refused(sandbox, errno, detail);
        });
    }
    staying(&["sleep", "600"], |sandbox| {
        sandbox.say_at(Address { channel: 1, request: 0 }, ToGuest::Signal(9));
        refused(sandbox, libc::ECHRNG, 1);
    });
}

#[test]
fn the_end_of_the_control_socket_is_the_end_of_all_programs() {
    everywhere(&shell("trap '' HUP TERM; echo up; sleep 600"), |sandbox| {
        assert_eq!(sandbox.line(), "up");
        let (mut streams, _) = run(sandbox, 1, &shell("trap '' HUP TERM; echo up; sleep 600"));
        assert_eq!(streams.line(), "up");
        sandbox.control = None;
        gone(sandbox, 125);
        assert_eq!(streams.rest().0, "");
    });
}

#[test]
fn a_first_program_that_does_not_start_is_the_end_of_the_guest() {
    let who = Who::Rootless;
    who.be(|| {
        let config = Config { stay: true, ..container(who, &["no-such-program"]) };
        let mut sandbox = Sandbox::start(who, &config);
        sandbox.posture();
        sandbox.say(ToGuest::Go);
        let failed = FromGuest::ExecFailed { errno: libc::ENOENT, which: ExecFailure::NotFound };
        assert_eq!(sandbox.hear_at(), Some((FIRST, failed)));
        assert_eq!(sandbox.hear_at(), None);
        gone(&sandbox, 0);
    });
}

#[test]
fn the_published_calls_are_all_that_a_guest_makes_that_stays() {
    let config = Config {
        stay: true,
        seccomp: allow(&[CALLS_AFTER_SECCOMP, PROGRAM].concat()),
        ..container(Who::Rootless, &["true"])
    };
    staying_with(&config, |sandbox| {
        assert_eq!(end(sandbox, FIRST).end, End::Code(0));
        let (_streams, _) = run(sandbox, 1, &["true"]);
        assert_eq!(end(sandbox, at(1)).end, End::Code(0));
        // The control: uname is on neither list.
        let (_streams, _) = run(sandbox, 1, &["uname"]);
        assert_eq!(end(sandbox, at(1)).end, End::Signal { number: 31, core: false });
        leave(sandbox);
    });
}
