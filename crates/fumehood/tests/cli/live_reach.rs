//! A live sandbox reached from outside: by a terminal, by its ports; and what the process tier has none of.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use serde_json::{Value as Json, json};

use crate::live::{Live, call};
use crate::pool::until;
use crate::served::Served;
use crate::{Fixture, Terminal};

/// Says in capitals what it is told, a connection at a time, and that it listens.
const SHOUTS: &str = r#"
import socket
door = socket.create_server(("127.0.0.1", 7000))
print("listens", flush=True)
while True:
    guest, _ = door.accept()
    with guest:
        while said := guest.recv(65536):
            guest.sendall(said.upper())
"#;

/// `fumehood forward`; it is killed with its test.
struct Forwarded {
    child: Child,
    at: String,
}

impl Forwarded {
    fn new(live: &Live<'_>, ports: &str) -> Self {
        let mut command = live.fixture.command(&["forward", &live.id, ports]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut at = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut at).unwrap();
        Self { child, at: at.trim_end().to_owned() }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.at).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        stream
    }
}

impl Drop for Forwarded {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _gone = self.child.kill().is_err();
        self.child.wait().unwrap();
    }
}

/// A sandbox in which a program listens on port 7000.
fn listening(fixture: &Fixture) -> Live<'_> {
    let live = Live::new(fixture, &["--net", "loopback"]);
    let (code, word, err) = live.exec(&["-d"], &["python3", "-c", SHOUTS]);
    assert_eq!(code, 0, "{err}");
    let word = word.trim_end();
    assert!(until(|| call(fixture, &["logs", &live.id, word]).1.contains("listens")), "nobody listens inside");
    live
}

#[test]
fn a_port_inside_is_reached_on_loopback_both_ways_and_ends_with_the_sandbox() {
    let fixture = &Fixture::new();
    let live = listening(fixture);
    let mut forwarded = Forwarded::new(&live, "7000:0");
    // Nobody but this machine reaches it.
    assert!(forwarded.at.starts_with("127.0.0.1:"), "{}", forwarded.at);
    let said = "a word, ".repeat(100_000);
    let mut stream = forwarded.connect();
    let mut ears = stream.try_clone().unwrap();
    let heard = std::thread::spawn(move || {
        let mut heard = String::new();
        ears.read_to_string(&mut heard).unwrap();
        heard
    });
    stream.write_all(said.as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert!(heard.join().unwrap() == said.to_uppercase(), "what came back is not what was said");
    // Another connection is another one.
    let mut again = forwarded.connect();
    again.write_all(b"again").unwrap();
    let mut five = [0; 5];
    again.read_exact(&mut five).unwrap();
    assert_eq!(&five, b"AGAIN");
    // The end of the sandbox is that of the connection and of `forward`.
    assert_eq!(call(fixture, &["kill", &live.id]).0, 0);
    assert_eq!(again.read(&mut five).unwrap_or(0), 0);
    assert_eq!(forwarded.child.wait().unwrap().code(), Some(0));
    assert!(TcpStream::connect(&forwarded.at).is_err(), "it listens still");
}

#[test]
fn a_port_where_nobody_listens_is_told_and_ctrl_c_ends_it() {
    let fixture = &Fixture::new();
    let live = Live::new(fixture, &["--net", "loopback"]);
    let mut command = fixture.command(&["forward", &live.id, "7000:0"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut at, mut told) = (String::new(), String::new());
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut at).unwrap();
    let mut stream = TcpStream::connect(at.trim_end()).unwrap();
    // Nothing comes, whichever way it ends.
    assert_eq!(stream.read(&mut [0; 16]).unwrap_or(0), 0);
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut told).unwrap();
    assert!(told.starts_with("fumehood: port 7000: "), "{told}");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(live.exec(&[], &["true"]).0, 0, "the sandbox goes on");
    for wrong in ["x", "70000", "7000:y"] {
        assert_eq!(call(fixture, &["forward", &live.id, wrong]).0, 125, "{wrong}");
    }
}

#[test]
fn a_program_has_a_terminal_of_its_own_that_follows_the_callers() {
    let fixture = &Fixture::new();
    let live = Live::new(fixture, &[]);
    let mut terminal = Terminal::new(fixture, &["exec", "-t", &live.id, "--", "sh", "-c", "echo rea''dy; exec sh"]);
    let size = |rows, cols| Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&terminal.master, size(33, 99)).unwrap();
    kill_process(Pid::from_child(&terminal.child), Signal::WINCH).unwrap();
    terminal.until("ready");
    // What is typed goes on as it is: the caller's terminal shows nothing by itself, and gives no signal.
    let shows = LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
    assert!(!tcgetattr(&terminal.master).unwrap().local_modes.intersects(shows));
    // Of its own: not the one of the caller, whose name means nothing inside.
    terminal.types("test -t 0 && test -t 1 && echo is-a-$((40+2))\n");
    terminal.until("is-a-42");
    terminal.types("until test \"$(stty size)\" = '33 99'; do sleep 0.1; done; echo si$((1))ze\n");
    terminal.until("si1ze");
    tcsetwinsize(&terminal.master, size(44, 111)).unwrap();
    kill_process(Pid::from_child(&terminal.child), Signal::WINCH).unwrap();
    terminal.types("until test \"$(stty size)\" = '44 111'; do sleep 0.1; done; echo si$((2))ze\n");
    terminal.until("si2ze");
    // Ctrl-C is the program's inside, and not ours.
    // Who says it is in the foreground by then.
    terminal.types("sh -c 'echo sle$((1))eps; exec sleep 600'\n");
    terminal.until("sle1eps");
    terminal.types("\u{3}");
    terminal.types("echo inter$((1))rupted; exit 7\n");
    terminal.until("inter1rupted");
    assert_eq!(terminal.child.wait().unwrap().code(), Some(7));
    let after = tcgetattr(&terminal.master).unwrap().local_modes;
    assert!(after.contains(shows), "the caller's terminal is as it was: {after:?}");
}

#[test]
fn without_a_terminal_there_is_none_to_give() {
    let fixture = &Fixture::new();
    let live = Live::new(fixture, &[]);
    let (code, _, err) = live.exec(&["-t"], &["true"]);
    assert!(code == 125 && err.contains("`-t` needs a terminal"), "{code} {err}");
    for flags in [["-t", "--json"], ["-t", "-d"]] {
        assert_eq!(live.exec(&flags, &["true"]).0, 125, "{flags:?}");
    }
    // The control: a program without one runs, and sees none.
    assert_eq!(live.exec(&["-i"], &["sh", "-c", "test ! -t 0"]).0, 0);
}

/// A program of the host on a port of its own; a sandbox that shares the host's network could be shown to reach it.
fn of_the_host() -> (std::net::TcpListener, u16) {
    let door = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    door.set_nonblocking(true).unwrap();
    let port = door.local_addr().unwrap().port();
    (door, port)
}

#[test]
fn the_process_tier_has_no_ports_and_says_so_before_it_listens() {
    let fixture = &Fixture::new();
    let live = Live::new(fixture, &["--tier", "process"]);
    assert_eq!(live.exec(&[], &["true"]).0, 0);
    let (door, port) = of_the_host();
    let (code, out, err) = call(fixture, &["forward", &live.id, &format!("{port}:0")]);
    assert!(
        code == 125 && out.is_empty() && err.contains("process tier has no network of its own"),
        "{code} {out} {err}"
    );
    assert!(err.contains("--tier container"), "{err}");
    assert!(door.accept().is_err(), "a service of the host was reached");
}

#[test]
fn a_sandbox_without_a_network_has_no_ports_either() {
    let fixture = &Fixture::new();
    let live = Live::new(fixture, &["--net", "none"]);
    let (code, out, err) = call(fixture, &["forward", &live.id, "8000:0"]);
    assert!(code == 125 && out.is_empty() && err.contains("--net loopback"), "{code} {out} {err}");
}

#[test]
fn pause_of_the_process_tier_holds_or_is_refused_by_name() {
    let fixture = &Fixture::new();
    let live = Live::new(fixture, &["--tier", "process"]);
    let (code, _, err) = call(fixture, &["pause", &live.id]);
    if code == 0 {
        assert_eq!(live.info()["state"], "paused");
        assert_eq!(live.exec(&[], &["true"]).0, 125);
        assert_eq!(call(fixture, &["resume", &live.id]).0, 0);
    } else {
        assert!(code == 125 && err.contains("control group"), "{code} {err}");
        assert_eq!(live.info()["state"], "running");
    }
    assert_eq!(live.exec(&[], &["true"]).0, 0);
}

#[test]
fn a_server_refuses_ports_of_the_process_tier_at_each_of_its_doors() {
    let fixture = &Fixture::new();
    let served = Served::new(fixture);
    let policy = json!({ "policy": { "tier": "process" }, "timeout": "5m" });
    // Without a ceiling a key does not have that tier, on which files of the host are changed that nobody granted.
    let (status, told) = served.ask(&served.key("none", &[]), "POST /v1/sandboxes", &policy);
    assert_eq!((status, &told["clause"]), (403, &json!("tier")), "{told}");
    let top = fixture.path("top.toml");
    std::fs::write(&top, "version = 1\nextends = \"strict\"\ntier = \"process\"\nlimits.wall = \"5m\"\n").unwrap();
    let key = &served.key("one", &["-p", top.to_str().unwrap()]);
    let (status, made) = served.ask(key, "POST /v1/sandboxes", &policy);
    assert_eq!((status, &made["tier"]), (201, &json!("process")), "{made}");
    let id = made["id"].as_str().unwrap();
    let path = format!("/v1/sandboxes/{id}");
    let ran = served.ask(key, &format!("POST {path}/exec"), &json!({ "cmd": ["true"], "timeout": 60 }));
    assert_eq!((ran.0, &ran.1["report"]["code"]), (200, &json!(0)), "{ran:?}");
    let (door, port) = of_the_host();
    let refused = |line: &str, more: &str| {
        let (status, told) = served.ask(key, &format!("{line}{more}"), &Json::Null);
        assert!(status == 501 && told.to_string().contains("no network of its own"), "{line}: {status} {told}");
    };
    refused(&format!("GET {path}/ports"), "");
    refused(&format!("GET {path}/ports/{port}/"), "");
    // As E2B's clients ask: by headers.
    let (status, told) =
        served.ask_with(key, "GET /", &format!("E2b-Sandbox-Id: {id}\r\nE2b-Sandbox-Port: {port}\r\n"));
    assert!(status == 501 && told.to_string().contains("no network of its own"), "{status} {told}");
    assert!(door.accept().is_err(), "a service of the host was reached");
    let (status, told) = served.ask(key, &format!("POST {path}/pause"), &json!({}));
    let by_name = status == 501 && told.to_string().contains("control group");
    assert!(by_name || (status == 200 && told["state"] == "paused"), "{status} {told}");
}
