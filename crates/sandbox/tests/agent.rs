//! A start whose program is ours and has no path inside, with a socket as its standard input: what live sandboxes stand on.
//! The shell plays the agent: it reads lines from the socket and writes to it.
#![forbid(unsafe_code)]

mod live;

use std::time::{Duration, Instant};

use live::Live;

use policy::OutcomeKind;
use policy::report::Limit;

const TIERS: [&str; 2] = ["tier=container", "tier=process"];

#[test]
fn a_program_without_a_path_answers_over_its_socket_and_is_confined_as_any_other() {
    for tier in TIERS {
        let mut live = Live::within(tempfile::tempdir().unwrap(), &[tier]);
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
        let journals = std::fs::read_dir(live.folder.path().join("state/runs")).unwrap();
        assert_eq!(journals.count(), 0, "{tier}: nothing is left");
    }
}

#[test]
fn with_a_list_of_executables_the_agent_runs_and_nothing_else_does() {
    for tier in TIERS {
        let mut live = Live::within(tempfile::tempdir().unwrap(), &[tier, r#"fs.exec=["/usr/bin/cat"]"#]);
        assert_eq!(live.ask("/usr/bin/id >/dev/null 2>&1; echo $?"), "126", "{tier}");
        assert_eq!(live.ask("echo yes | /usr/bin/cat"), "yes", "{tier}");
    }
}

#[test]
fn its_life_can_be_made_longer_and_shorter() {
    let mut live = Live::within(tempfile::tempdir().unwrap(), &["limits.wall=1s"]);
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
    let mut live = Live::within(tempfile::tempdir().unwrap(), &["limits.memory=64M", "limits.wall=60s"]);
    let handle = live.sandbox.handle();
    assert_eq!(live.ask("while :; do :; done & echo started"), "started");
    if let Err(why) = handle.freeze(true) {
        println!("skip: no freezer here: {why}");
        return;
    }
    let used = || {
        let usage = handle.usage().so_far;
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
    let mut live =
        Live::within(tempfile::tempdir().unwrap(), &["tier=container", "limits.memory=64M", "limits.wall=60s"]);
    assert_eq!(
        live.ask("sh -c 'head -c 200000000 /dev/zero | tail -c 200000000 >/dev/null' 2>/dev/null; echo $?"),
        "137"
    );
    assert_eq!(live.ask("echo still here"), "still here");
    live.sandbox.kill();
    let finished = live.sandbox.wait().unwrap();
    assert_eq!(finished.report.outcome.kind, OutcomeKind::Signalled, "{:?}", finished.report.outcome);
}

/// Whether it is so within ten seconds: the supervisor looks ten times a second.
fn comes(live: &Live, is_so: impl Fn(&sandbox::UsageNow) -> bool) -> bool {
    let handle = live.sandbox.handle();
    (0..200).any(|_| {
        drop(sys::channel::wait(&[], Some(Duration::from_millis(50))));
        is_so(&handle.usage())
    })
}

#[test]
fn what_is_used_now_is_told_apart_from_the_peak() {
    const MIB: u64 = 1 << 20;
    for tier in TIERS {
        let mut live = Live::within(tempfile::tempdir().unwrap(), &[tier, "limits.memory=256M", "limits.wall=60s"]);
        // `tail` keeps all of it until its input ends, and one look at least falls into the second that it has it.
        let held = "(head -c 64M /dev/zero; sleep 1) | tail -c 64M >/dev/null; echo freed";
        assert_eq!(live.ask(held), "freed", "{tier}");
        let freed = |usage: &sandbox::UsageNow| {
            let peak = usage.so_far.memory_peak.unwrap_or(0);
            peak >= 64 * MIB && usage.memory.is_some_and(|memory| memory + 32 * MIB < peak) && usage.pids.is_some()
        };
        assert!(comes(&live, freed), "{tier}: {:?}", live.sandbox.usage());
        // Its own processor time falls again, though what it used so far does not.
        assert_eq!(live.ask("i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo counted"), "counted", "{tier}");
        let falls = |usage: &sandbox::UsageNow| usage.cpu_percent.is_some_and(|percent| percent < 5.0);
        assert!(comes(&live, falls), "{tier}: {:?}", live.sandbox.usage());
        assert!(live.sandbox.usage().so_far.cpu_user > 0.05, "{tier}: {:?}", live.sandbox.usage());
    }
}

#[test]
fn what_lies_on_disk_now_is_told_where_it_is_counted() {
    const MIB: u64 = 1 << 20;
    let mut live = Live::within(tempfile::tempdir().unwrap(), &["tier=container", "limits.memory=256M", "fs.tmp=32M"]);
    assert_eq!(live.ask("head -c 8M /dev/zero >/tmp/eight && echo written"), "written");
    assert!(comes(&live, |usage| usage.so_far.disk.is_some_and(|disk| disk >= 8 * MIB)), "{:?}", live.sandbox.usage());
    assert_eq!(live.ask("rm /tmp/eight && echo removed"), "removed");
    assert!(comes(&live, |usage| usage.so_far.disk.is_some_and(|disk| disk < 4 * MIB)), "{:?}", live.sandbox.usage());
    // Files of the host are nobody's to count.
    let host = tempfile::tempdir().unwrap();
    let write = format!("fs.write=[\"{}\"]", host.path().display());
    let mut live = Live::within(
        tempfile::tempdir().unwrap(),
        &["tier=container", "limits.disk=none", "limits.files=none", &write],
    );
    assert_eq!(live.ask("echo here"), "here");
    assert!(comes(&live, |usage| usage.memory.is_some()));
    assert_eq!(live.sandbox.usage().so_far.disk, None);
}
