//! The end: nothing of a run stays, however it ends; and the process tier where namespaces are forbidden.

use std::time::Duration;

use conformance::case::{BOTH, CONTAINER, EVERY, PROCESS};
use conformance::live::until;
use conformance::{Case, CaseResult, Cell, Fixture, Live, check, product};
use policy::ClauseId;

pub(crate) const CASES: &[Case] = &[
    Case {
        clause: ClauseId::Tier,
        backends: EVERY,
        sentence: "a daemon that leaves its session dies with the run",
        cell: Cell::Enforced(orphans),
    },
    Case {
        clause: ClauseId::Tier,
        backends: EVERY,
        sentence: "a supervisor killed by SIGKILL leaves no process, and the next start removes the rest",
        cell: Cell::Enforced(killed_supervisor),
    },
    Case {
        clause: ClauseId::Tier,
        backends: BOTH,
        sentence: "a guest killed by SIGKILL leaves no process, and with its supervisor none after `gc`",
        cell: Cell::Enforced(killed_guest),
    },
    Case {
        clause: ClauseId::Tier,
        backends: PROCESS,
        sentence: "it works where namespaces and mounts are forbidden",
        cell: Cell::Enforced(nested),
    },
    Case {
        clause: ClauseId::Tier,
        backends: CONTAINER,
        sentence: "where namespaces are forbidden it is refused or fails before anything runs, and names the way out",
        cell: Cell::Enforced(nested_refusal),
    },
];

/// Two generations that leave session, group and parent, ignoring what they can. It says `up` when both have, and ends
/// when it is told to.
const DAEMON: &str = "
import os, signal, sys, time
for s in (1, 2, 3, 15): signal.signal(s, signal.SIG_IGN)
heard, says = os.pipe()
if os.fork() == 0:
    try: os.setsid()
    except OSError: pass
    if os.fork() == 0:
        os.close(0); os.close(1); os.close(2)
        os.write(says, b'x')
        time.sleep(200)
        os._exit(0)
    time.sleep(200)
    os._exit(0)
os.read(heard, 1)
signal.signal(15, lambda *_: os._exit(0))
print('up', flush=True)
time.sleep(200)
";

/// Pids that are alive, zombies left out.
fn alive(pids: &[i32]) -> Vec<i32> {
    let lives = |pid: &&i32| {
        let status = sys::proc::Process::open(**pid).and_then(|process| process.status());
        status.is_ok_and(|status| !matches!(status.state, 'Z' | 'X'))
    };
    pids.iter().filter(lives).copied().collect()
}

fn gone(pids: &[i32]) -> CaseResult {
    let all = until(Duration::from_secs(60), || alive(pids).is_empty());
    check(all, || format!("{:?} still live", alive(pids)))
}

fn python(scene: &Fixture, code: &str) -> Result<Live, conformance::CaseError> {
    let words = ["run", "-q", "--tier", scene.tier.as_str(), "--", "/usr/bin/python3", "-I", "-S", "-c", code];
    scene.product(&words)
}

fn orphans(scene: &Fixture) -> CaseResult {
    // The control: unconfined, both generations outlive it.
    let bare = scene.bare_start(&["/usr/bin/python3", "-I", "-S", "-c", DAEMON])?;
    bare.says("up")?;
    let below = bare.below();
    check(below.len() >= 2, || format!("the control made {below:?}"))?;
    bare.signal(15)?;
    bare.end()?;
    let outlived = alive(&below);
    for pid in &below {
        drop(sys::pidfd::open(*pid).and_then(|process| sys::pidfd::send_signal(&process, 9)));
    }
    check(outlived.len() >= 2, || format!("the control left {outlived:?}"))?;
    let live = python(scene, DAEMON)?;
    live.says("up")?;
    let below = live.below();
    check(below.len() >= 3, || format!("only {below:?} below the supervisor"))?;
    live.signal(15)?;
    let ended = live.end()?;
    check(ended.code == Some(0), || ended.said())?;
    gone(&below)
}

fn killed_supervisor(scene: &Fixture) -> CaseResult {
    let live = python(scene, DAEMON)?;
    live.says("up")?;
    let below = live.below();
    check(below.len() >= 4, || format!("only {below:?} below the supervisor"))?;
    let journals = std::fs::read_dir(scene.state().join("runs"))?.flatten();
    let names: Vec<_> = journals.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    check(!names.is_empty(), || "a run without a journal".to_owned())?;
    live.signal(9)?;
    live.end()?;
    gone(&below)?;
    let next = scene.shell(&[], "true")?;
    check(next.code == Some(0), || next.said())?;
    let runs = std::fs::read_dir(scene.state().join("runs"))?.count();
    check(runs == 0, || format!("{runs} journals are left after the next start"))?;
    for name in names {
        let folder = std::path::Path::new("/tmp").join(format!("fumehood-{}", name.trim_end_matches(".json")));
        check(!conformance::fixture::there(&folder), || format!("`{}` is left", folder.display()))?;
    }
    Ok(())
}

/// The guest and, the second time, its supervisor too, as by the kernel for want of memory.
fn killed_guest(scene: &Fixture) -> CaseResult {
    for both in [false, true] {
        let live = python(scene, DAEMON)?;
        live.says("up")?;
        let (below, supervisor) = (live.below(), live.pid());
        let above = |pid: i32| -> Option<i32> {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
        };
        let guest = below.iter().copied().find(|pid| above(*pid) == Some(supervisor));
        let guest = guest.ok_or("nothing is right below the supervisor")?;
        check(below.len() >= 4, || format!("only {below:?} below the supervisor"))?;
        let guest = sys::pidfd::open(guest)?;
        if both {
            live.signal(9)?;
        }
        sys::pidfd::send_signal(&guest, 9)?;
        let ended = live.end()?;
        if both {
            let swept = scene.product(&["gc"])?.end()?;
            check(swept.code == Some(0), || swept.said())?;
        } else {
            check(ended.code == Some(125), || ended.said())?;
        }
        gone(&below)?;
    }
    Ok(())
}

/// Starts the product under a filter like that of an unprivileged container: no namespaces, no mounts.
fn forbidden(scene: &Fixture, script: &str) -> Result<conformance::Ended, conformance::CaseError> {
    let filter = conformance::nested::program()?;
    let product = product::binary()?.to_path_buf();
    conformance::nested::under(&filter, || {
        let words = ["run", "--json", "--tier", scene.tier.as_str(), "--", "/bin/sh", "-c", script];
        scene.begin_and_end(&scene.command(&product, &words))
    })
}

fn nested(scene: &Fixture) -> CaseResult {
    // The control of the control: the filter does forbid what it should.
    let probe = "unshare --user --map-root-user true";
    scene.control_shell(probe)?;
    let filter = conformance::nested::program()?;
    let stopped = conformance::nested::under(&filter, || scene.bare(&["/bin/sh", "-c", probe]))?;
    check(stopped.code != Some(0), || format!("the filter stops nothing: {}", stopped.said()))?;
    let secret = scene.file("secret", "canary-3310")?;
    let ended = forbidden(scene, &format!("cat {}; echo in; exit 4", secret.display()))?;
    check(ended.code == Some(4) && ended.out() == "in", || ended.said())
}

fn nested_refusal(scene: &Fixture) -> CaseResult {
    let ended = forbidden(scene, "echo ran")?;
    check(matches!(ended.code, Some(125 | 126)) && !ended.out().contains("ran"), || ended.said())?;
    check(ended.said().contains("--tier process"), || format!("no way out is named: {}", ended.said()))
}
