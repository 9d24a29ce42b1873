//! A start whose program is ours and has no path inside, with a socket as its standard input: what live sandboxes stand on.
//! The shell plays the agent: it reads lines from the socket and writes to it.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use policy::OutcomeKind;
use policy::report::Limit;
use sandbox::{Capabilities, Environment, Inputs, Options, PolicyLayer, Sandbox, Stdio, Workload};

/// A live sandbox of this tier, and the socket to its agent.
struct Live {
    _folder: tempfile::TempDir,
    sandbox: Sandbox,
    socket: BufReader<UnixStream>,
}

impl Live {
    fn new(set: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let variables = [("PATH", "/usr/bin:/bin".into()), ("FUMEHOOD_STATE", folder.path().join("state"))];
        let env: BTreeMap<OsString, OsString> =
            variables.into_iter().map(|(name, value)| (name.into(), value.into_os_string())).collect();
        let euid = rustix::process::geteuid().as_raw();
        let environment = Environment::new(Some(folder.path().to_owned()), env, euid);
        let host = Capabilities::probe();
        let mut layers = vec![PolicyLayer::Document("strict".to_owned())];
        layers.extend(set.iter().map(|set| PolicyLayer::Set((*set).to_owned())));
        let loaded = sandbox::load(&layers, &environment, Inputs::Now).unwrap();
        let shell: &'static [u8] = Box::leak(std::fs::read("/bin/sh").unwrap().into_boxed_slice());
        let planned = sandbox::plan(loaded, Workload::Agent(shell), &host).unwrap();
        let mut sandbox = sandbox::start(planned, &environment, &host, Options::new(Stdio::Socket)).unwrap();
        let socket = UnixStream::from(sandbox.take_socket().unwrap());
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert!(sandbox.take_socket().is_none());
        Self { _folder: folder, sandbox, socket: BufReader::new(socket) }
    }

    /// What this line of shell answers.
    fn ask(&mut self, line: &str) -> String {
        self.socket.get_mut().write_all(format!("{{ {line}; }} >&0 2>&0\n").as_bytes()).unwrap();
        let mut answer = String::new();
        self.socket.read_line(&mut answer).unwrap();
        answer.trim_end().to_owned()
    }
}

const TIERS: [&str; 2] = ["tier=container", "tier=process"];

#[test]
fn a_program_without_a_path_answers_over_its_socket_and_is_confined_as_any_other() {
    for tier in TIERS {
        let mut live = Live::new(&[tier]);
        assert_eq!(live.ask("echo $((6 * 7))"), "42", "{tier}");
        assert_eq!(live.ask("cat /etc/shadow 2>/dev/null || echo no"), "no", "{tier}");
        // The process tier shows no /proc.
        if tier == "tier=container" {
            // Its own file cannot be reached by a name, and nothing of the guest's is left open.
            let open = live.ask("for fd in /proc/$$/fd/*; do readlink $fd; done | cut -d: -f1 | sort -u | xargs");
            assert_eq!(open, "/dev/null socket", "{tier}");
            assert_eq!(live.ask("grep -c NoNewPrivs:.1 /proc/self/status"), "1", "{tier}");
            assert_eq!(live.ask("grep Seccomp: /proc/self/status"), "Seccomp:\t2", "{tier}");
        }
        drop(live.socket.into_inner());
        let finished = live.sandbox.wait().unwrap();
        assert_eq!(finished.report.outcome.kind, OutcomeKind::Exited, "{tier}: {:?}", finished.report.outcome);
    }
}

#[test]
fn with_a_list_of_executables_the_agent_runs_and_nothing_else_does() {
    for tier in TIERS {
        let mut live = Live::new(&[tier, r#"fs.exec=["/usr/bin/cat"]"#]);
        assert_eq!(live.ask("/usr/bin/id >/dev/null 2>&1; echo $?"), "126", "{tier}");
        assert_eq!(live.ask("echo yes | /usr/bin/cat"), "yes", "{tier}");
    }
}

#[test]
fn its_life_can_be_made_longer_and_shorter() {
    let mut live = Live::new(&["limits.wall=1s"]);
    live.sandbox.handle().set_wall(Duration::from_secs(600));
    assert_eq!(live.ask("sleep 1.5; echo late"), "late");
    let began = Instant::now();
    live.sandbox.handle().set_wall(Duration::ZERO);
    let finished = live.sandbox.wait().unwrap();
    assert_eq!(finished.report.outcome.limit, Some(Limit::Wall));
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[test]
fn what_is_frozen_does_nothing_and_goes_on_afterwards() {
    let mut live = Live::new(&["limits.memory=64M", "limits.wall=60s"]);
    let handle = live.sandbox.handle();
    assert_eq!(live.ask("while :; do :; done & echo started"), "started");
    if let Err(why) = handle.freeze(true) {
        println!("skip: no freezer here: {why}");
        return;
    }
    let used = || {
        let usage = handle.usage();
        usage.cpu_user + usage.cpu_system
    };
    // The supervisor looks ten times a second; what it saw first may be of before.
    let (_never, silence) = std::sync::mpsc::channel::<()>();
    let pause = |time: Duration| assert!(silence.recv_timeout(time).is_err());
    pause(Duration::from_millis(300));
    let before = used();
    pause(Duration::from_millis(500));
    assert!((used() - before).abs() < 0.001, "{} after {before}", used());
    handle.freeze(false).unwrap();
    pause(Duration::from_millis(700));
    assert!(used() > before + 0.1, "{} after {before}", used());
    handle.freeze(true).unwrap();
    handle.kill();
    let finished = live.sandbox.wait().unwrap();
    assert_eq!(finished.report.outcome.kind, OutcomeKind::Signalled);
    assert!(handle.freeze(true).is_err());
}

#[test]
fn one_program_out_of_memory_is_not_the_end() {
    let mut live = Live::new(&["tier=container", "limits.memory=64M", "limits.wall=60s"]);
    assert_eq!(
        live.ask("sh -c 'head -c 200000000 /dev/zero | tail -c 200000000 >/dev/null' 2>/dev/null; echo $?"),
        "137"
    );
    assert_eq!(live.ask("echo still here"), "still here");
    live.sandbox.kill();
    let finished = live.sandbox.wait().unwrap();
    assert_eq!(finished.report.outcome.kind, OutcomeKind::Signalled, "{:?}", finished.report.outcome);
}
