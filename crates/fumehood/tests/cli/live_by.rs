//! Live sandboxes by the backends that a policy must name: every command, as on the native backend.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use serde_json::Value;

use crate::live::{Live, call};
use crate::{House, on_terminal};

/// Whether the backend is to be had here; why not is told.
#[expect(clippy::print_stdout, reason = "who reads the tests sees what was left out")]
fn is_here(house: &House, backend: &str) -> bool {
    let said = house.run(&["plan", "--json", &format!("--set=backend={backend}")]);
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
    let mut forward = live.house.command(&["forward", &live.id, "8000:0"]);
    let mut forward = forward.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(forward.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let port = line.rsplit(':').next().unwrap_or_default();
    let port: u16 = port.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default().parse().unwrap();
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    std::io::Write::write_all(&mut stream, b"GET /note HTTP/1.0\r\n\r\n").unwrap();
    let (mut answer, mut part) = (String::new(), [0; 4096]);
    while !answer.ends_with("tmp\n") {
        let count = stream.read(&mut part).unwrap();
        assert!(count > 0, "{answer}");
        answer.push_str(&String::from_utf8_lossy(&part[..count]));
    }
    forward.kill().unwrap();
    forward.wait().unwrap();
}

/// Everything that can be asked of one.
fn works(backend: &str) {
    let house = &House::new();
    if !is_here(house, backend) {
        return;
    }
    std::fs::write(house.path("work/kept"), "old\n").unwrap();
    let by = format!("--set=backend={backend}");
    let live = Live::new(house, &[&by, "-w", ".:copy", "--disk", "64M", "--net", "loopback"]);
    assert_eq!(live.info()["tier"], "container");
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
            "grep -E 'CapEff|NoNewPrivs|Seccomp:' /proc/self/status; ls /sys /boot 2>&1; ls /proc | grep -c '^[0-9]'",
        ],
    );
    assert!(out.contains("CapEff:\t0000000000000000") && out.contains("NoNewPrivs:\t1"), "{out}");
    assert!(out.contains("Seccomp:\t2") && out.matches("No such file").count() == 2, "{out}");
    // Files.
    let inside = |path: &str| format!("{}:{path}", live.id);
    std::fs::write(house.path("in"), "carried\n").unwrap();
    let (there, back) = (house.path("in"), house.path("out"));
    assert_eq!(call(house, &["cp", there.to_str().unwrap(), &inside("/tmp/in")]).0, 0);
    assert_eq!(call(house, &["cp", &inside("/tmp/in"), back.to_str().unwrap()]).0, 0);
    assert_eq!(std::fs::read_to_string(back).unwrap(), "carried\n");
    // Lists, a terminal, a port.
    assert_eq!(house.run(&["ps", "--json"]).json()["sandboxes"].as_array().unwrap().len(), 1);
    let shown =
        on_terminal(house, &["exec", "-t", &live.id, "--", "sh", "-c", "tty; stty size > /dev/null && echo sized"], "");
    assert!(shown.contains("/dev/pts/") && shown.contains("sized"), "{shown}");
    forwards(&live);
    // It stands still, and goes on.
    assert_eq!(call(house, &["pause", &live.id]).0, 0);
    assert_eq!(call(house, &["resume", &live.id]).0, 0);
    // Its changes, a snapshot, and what is made of that.
    assert_eq!(call(house, &["diff", "--names", &live.id]), (1, "kept\n".to_owned(), String::new()));
    let said = house.run(&["snapshot", &live.id, "--name", "base"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(live.exec(&[], &["sh", "-c", "echo later > kept"]).0, 0);
    let other = Live::new(house, &["--from", "base"]);
    assert_eq!(other.exec(&[], &["sh", "-c", "cat kept /tmp/note ~/mine"]).1, "new\ntmp\nhome\n");
    let forked = house.run(&["fork", &live.id]);
    assert_eq!(forked.code, 0, "{forked:?}");
    let fork = Live { house, id: forked.out.trim_end().to_owned() };
    assert_eq!(fork.exec(&[], &["cat", "kept"]).1, "later\n");
    let (code, _, err) = call(house, &["apply", &live.id]);
    assert!(code == 0 && std::fs::read_to_string(house.path("work/kept")).unwrap() == "later\n", "{err}");
    // Nothing is left.
    for one in [&fork, &other, &live] {
        assert_eq!(call(house, &["kill", &one.id]).0, 0);
    }
    assert!(std::fs::read_dir(house.state().join("runs")).unwrap().next().is_none(), "a journal is left");
}

#[test]
fn crun_has_every_command() {
    works("crun");
}

#[test]
fn podman_has_every_command() {
    works("podman");
}
