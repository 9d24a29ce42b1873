//! Live sandboxes by the backends that a policy must name: every command, as on the native backend.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use crate::live::{Live, call};
use crate::{Fixture, on_terminal};

/// Tier and backend.
type By = [&'static str; 2];

const CRUN: By = ["container", "crun"];
const PODMAN: By = ["container", "podman"];
const DOCKER: By = ["container", "docker"];
const RUNSC: By = ["gvisor", "runsc"];

/// The flags that say so.
fn flags([tier, backend]: By) -> [String; 2] {
    [format!("--tier={tier}"), format!("--set=backend={backend}")]
}

/// Whether the backend is to be had here; why not is told.
#[expect(clippy::print_stdout, reason = "who reads the tests sees what was left out")]
fn is_here(fixture: &Fixture, by: By) -> bool {
    let [tier, named] = flags(by);
    let backend = by[1];
    let said = fixture.run(&["plan", "--json", &tier, &named]);
    if said.code != 0 {
        let why = said.json()["refused"].as_array().and_then(|all| all.first()).map(|first| first["why"].clone());
        println!("skip: live sandboxes by {backend}: {}", why.unwrap_or(Value::Null));
    }
    said.code == 0
}

/// A server inside, reached from outside by a port of this host.
fn forwards(live: &Live<'_>) {
    let server = "import http.server as h, os; os.chdir('/tmp'); h.HTTPServer(('127.0.0.1', 8000), h.SimpleHTTPRequestHandler).serve_forever()";
    let (code, _, err) = live.exec(&["-d"], &["/usr/bin/python3", "-c", server]);
    assert_eq!(code, 0, "{err}");
    let wait = "import socket, time\nfor _ in range(200):\n  try: socket.create_connection(('127.0.0.1', 8000)); break\n  except OSError: time.sleep(.05)";
    assert_eq!(live.exec(&[], &["/usr/bin/python3", "-c", wait]).0, 0);
    let mut forward = live.fixture.command(&["forward", &live.id, "8000:0"]);
    let mut forward = forward.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(forward.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let port = line.rsplit(':').next().unwrap_or_default();
    let port: u16 = port.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default().parse().unwrap();
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    std::io::Write::write_all(&mut stream, b"GET /note HTTP/1.0\r\n\r\n").unwrap();
    // The answer ends with its connection: whoever closes it inside closes it here.
    stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("tmp\n"), "{answer}");
    forward.kill().unwrap();
    forward.wait().unwrap();
}

/// Everything that can be asked of one.
fn works(by: By) {
    let fixture = &Fixture::new();
    if !is_here(fixture, by) {
        return;
    }
    std::fs::write(fixture.path("work/kept"), "old\n").unwrap();
    // A place of a grant within what is kept: whoever mounts makes folders there, which are no part of a snapshot.
    std::fs::create_dir(fixture.path("given")).unwrap();
    std::fs::write(fixture.path("given/tool"), "of the host\n").unwrap();
    let given = format!("{}:/tmp/deep/given", fixture.path("given").display());
    let [tier, backend] = flags(by);
    let live =
        Live::new(fixture, &[&tier, &backend, "-w", ".:copy", "--read", &given, "--disk", "64M", "--net", "loopback"]);
    assert_eq!(live.info()["tier"], by[0]);
    // Programs: their ends, their streams, and what one leaves for the next.
    let script = "echo new > kept; echo tmp > /tmp/note; echo home > ~/mine; echo told >&2; exit 7";
    let (code, out, err) = live.exec(&[], &["sh", "-c", script]);
    assert_eq!((code, out.as_str(), err.as_str()), (7, "", "told\n"));
    assert_eq!(live.exec(&[], &["sh", "-c", "cat kept /tmp/note ~/mine; id -u"]).1, "new\ntmp\nhome\n1000\n");
    assert_eq!(live.exec(&["--timeout", "300ms"], &["sleep", "60"]).0, 124);
    assert_eq!(live.exec(&["-d"], &["sleep", "600"]).0, 0);
    // What a program must not do it does not here either: no privilege, one network, no process of others.
    let (_, out, _) = live.exec(
        &[],
        &[
            "sh",
            "-c",
            "grep -E 'CapEff|NoNewPrivs|Seccomp:' /proc/self/status; for one in /sys /boot; do [ -e $one ] || echo no $one; done",
        ],
    );
    assert!(out.contains("CapEff:\t0000000000000000") && out.contains("Seccomp:\t2"), "{out}");
    // gVisor's kernel has a /sys of its own, and says nothing of privileges there.
    let linux = out.contains("NoNewPrivs:\t1") && out.contains("no /sys");
    assert!(out.contains("no /boot") && (linux || by == RUNSC), "{out}");
    // Files.
    let inside = |path: &str| format!("{}:{path}", live.id);
    std::fs::write(fixture.path("in"), "carried\n").unwrap();
    let (there, back) = (fixture.path("in"), fixture.path("out"));
    assert_eq!(call(fixture, &["cp", there.to_str().unwrap(), &inside("/tmp/in")]).0, 0);
    assert_eq!(call(fixture, &["cp", &inside("/tmp/in"), back.to_str().unwrap()]).0, 0);
    assert_eq!(std::fs::read_to_string(back).unwrap(), "carried\n");
    // Lists, a terminal, a port.
    assert_eq!(fixture.run(&["ps", "--json"]).json()["sandboxes"].as_array().unwrap().len(), 1);
    let shown = on_terminal(
        fixture,
        &["exec", "-t", &live.id, "--", "sh", "-c", "tty; stty size > /dev/null && echo sized"],
        "",
    );
    assert!(shown.contains("/dev/pts/") && shown.contains("sized"), "{shown}");
    forwards(&live);
    // It stands still, and goes on.
    assert_eq!(call(fixture, &["pause", &live.id]).0, 0);
    assert_eq!(call(fixture, &["resume", &live.id]).0, 0);
    // Its changes, a snapshot, and what is made of that.
    assert_eq!(call(fixture, &["diff", "--names", &live.id]), (1, "kept\n".to_owned(), String::new()));
    let said = fixture.run(&["snapshot", &live.id, "--name", "base"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(live.exec(&[], &["sh", "-c", "echo later > kept"]).0, 0);
    let other = Live::new(fixture, &["--from", "base"]);
    let read = "cat kept /tmp/note ~/mine /tmp/deep/given/tool";
    assert_eq!(other.exec(&[], &["sh", "-c", read]).1, "new\ntmp\nhome\nof the host\n");
    let forked = fixture.run(&["fork", &live.id]);
    assert_eq!(forked.code, 0, "{forked:?}");
    let fork = Live { fixture, id: forked.out.trim_end().to_owned() };
    assert_eq!(fork.exec(&[], &["cat", "kept"]).1, "later\n");
    let (code, _, err) = call(fixture, &["apply", &live.id]);
    assert!(code == 0 && std::fs::read_to_string(fixture.path("work/kept")).unwrap() == "later\n", "{err}");
    // Nothing is left.
    for one in [&fork, &other, &live] {
        assert_eq!(call(fixture, &["kill", &one.id]).0, 0);
    }
    assert!(std::fs::read_dir(fixture.state().join("runs")).unwrap().next().is_none(), "a journal is left");
}

/// Forks twice, into a session of its own, and leaves a line with the time again and again.
const LEAVES: &str = "import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            with open(sys.argv[1], 'a') as file: file.write(f'{time.monotonic()}\\n')
            time.sleep(0.02)
    os._exit(0)
time.sleep(float(sys.argv[2]))";
/// Says the least that a process can say to its own limits, and to who watches it.
const LOWERS: &str = "import os, resource
def tried(name, what):
    try: what(); print(name, 'done')
    except (OSError, ValueError): print(name, 'refused')
tried('mark', lambda: resource.setrlimit(resource.RLIMIT_RSS, (4096, 4096)))
tried('core', lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)))
tried('all', lambda: os.kill(-1, 0))
parent = os.getppid()
for up in range(3):
    tried(f'parent {up}', lambda: os.kill(parent, 0))
    parent = int(open(f'/proc/{parent}/stat').read().rpartition(')')[2].split()[1])";

/// What a command started ends with it, whatever parents and sessions it lost; what one that ended by itself left goes on.
#[expect(clippy::disallowed_methods, reason = "that nothing happens can only be waited for")]
fn takes_along(by: By) {
    let fixture = &Fixture::new();
    if !is_here(fixture, by) {
        return;
    }
    let [tier, backend] = flags(by);
    let live = Live::new(fixture, &[&tier, &backend]);
    let count = |file: &str| {
        let (code, out, err) = live.exec(&[], &["sh", "-c", &format!("wc -l < {file}")]);
        assert_eq!(code, 0, "{err}");
        out.trim().parse::<u32>().unwrap()
    };
    let goes_on = |file: &str| {
        let before = count(file);
        std::thread::sleep(Duration::from_millis(500));
        count(file) > before
    };
    let python = |file: &str, stays: &str, more: &[&str]| {
        live.exec(more, &["/usr/bin/python3", "-I", "-S", "-c", LEAVES, file, stays]).0
    };
    assert_eq!(python("/tmp/ended", "60", &["--timeout", "2s"]), 124);
    assert!(count("/tmp/ended") > 0 && !goes_on("/tmp/ended"), "it outlived its command");
    // The control, which also shows that it would go on.
    assert_eq!(python("/tmp/left", "0.5", &[]), 0);
    assert!(goes_on("/tmp/left"));
    // It stands still with the sandbox: the times that it wrote down have a gap.
    assert_eq!(call(fixture, &["pause", &live.id]).0, 0);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(call(fixture, &["resume", &live.id]).0, 0);
    assert!(goes_on("/tmp/left"));
    let gap = "import sys\ntimes = [float(line) for line in open(sys.argv[1])]\nprint(max(b - a for a, b in zip(times, times[1:])))";
    let (_, out, err) = live.exec(&[], &["/usr/bin/python3", "-I", "-S", "-c", gap, "/tmp/left"]);
    assert!(out.trim().parse::<f64>().is_ok_and(|gap| gap > 1.5), "{out} {err}");
    // Another one's end is none of its.
    assert_eq!(live.exec(&["--timeout", "300ms"], &["sleep", "60"]).0, 124);
    assert!(goes_on("/tmp/left"));
}

#[test]
fn crun_has_every_command() {
    works(CRUN);
    takes_along(CRUN);
}

#[test]
fn podman_has_every_command() {
    works(PODMAN);
    takes_along(PODMAN);
}

#[test]
fn docker_has_every_command() {
    works(DOCKER);
    takes_along(DOCKER);
}

#[test]
fn runsc_has_every_command() {
    works(RUNSC);
}

#[test]
fn what_a_command_started_ends_with_it_under_runsc() {
    takes_along(RUNSC);
}

/// The mark by which the agent knows what belongs to a command cannot be put down, and no signal reaches who looks for it.
#[test]
fn a_program_under_runsc_keeps_its_mark_and_does_not_reach_who_started_it() {
    let fixture = &Fixture::new();
    if !is_here(fixture, RUNSC) {
        return;
    }
    let [tier, backend] = flags(RUNSC);
    let live = Live::new(fixture, &[&tier, &backend]);
    let tries = ["/usr/bin/python3", "-I", "-S", "-c", LOWERS];
    let (code, out, err) = live.exec(&[], &tries);
    assert_eq!(code, 0, "{err}");
    let refused: Vec<&str> = out.lines().filter_map(|line| line.strip_suffix(" refused")).collect();
    // Its starter, the starter's maker, the agent; and what is a program's own is its own.
    assert_eq!(refused, ["mark", "all", "parent 0", "parent 1", "parent 2"], "{out}");
    assert!(out.contains("core done"), "{out}");
    // The control: without the agent the limit is the program's own.
    let mut run = vec!["run", "-q", &tier, &backend, "--"];
    run.extend(tries);
    let said = fixture.run(&run);
    assert!(said.out.contains("mark done"), "{said:?}");
    let denied = fixture.run(&["create", &tier, &backend, "--set=syscalls.deny=[\"seccomp\"]"]);
    assert!(denied.code == 126 && denied.err.contains("needs the call `seccomp`"), "{denied:?}");
}
