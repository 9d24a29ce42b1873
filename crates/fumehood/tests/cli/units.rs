//! The units in `resources/systemd`: what systemd says of them, and the server as it is started by them.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::Fixture;

const UNITS: [&str; 2] = ["fumehood.service", "fumehood.socket"];

fn unit(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../resources/systemd");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

/// The values of a key of a unit.
fn values<'a>(unit: &'a str, key: &str) -> Vec<&'a str> {
    let pairs = unit.lines().filter_map(|line| line.split_once('='));
    pairs.filter(|(name, _)| *name == key).map(|(_, value)| value).collect()
}

/// The words that the unit starts the product with.
fn words(service: &str) -> Vec<&str> {
    let command = values(service, "ExecStart");
    assert_eq!(command.len(), 1, "{command:?}");
    let words: Vec<&str> = command[0].split_whitespace().collect();
    assert_eq!(words[0], "%h/.local/bin/fumehood", "where README installs it");
    words[1..].to_vec()
}

/// What `systemd-analyze` complains of; none where it is not installed.
#[expect(clippy::disallowed_methods, reason = "systemd's own reader is the judge")]
fn complaints(fixture: &Fixture, changed: impl Fn(&str) -> String) -> Option<String> {
    let bin = fixture.path(".local/bin");
    std::fs::create_dir_all(&bin).unwrap();
    if !bin.join("fumehood").exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_fumehood"), bin.join("fumehood")).unwrap();
    }
    let folder = fixture.path("units");
    std::fs::create_dir_all(&folder).unwrap();
    let mut command = Command::new("systemd-analyze");
    command.args(["--user", "verify", "--man=no"]).env_clear().env("PATH", "/usr/bin:/bin");
    command.env("HOME", fixture.path("")).env("XDG_RUNTIME_DIR", &folder);
    for name in UNITS {
        std::fs::write(folder.join(name), changed(&unit(name))).unwrap();
        command.arg(folder.join(name));
    }
    match command.output() {
        Ok(said) => {
            Some(String::from_utf8(said.stderr).unwrap() + if said.status.success() { "" } else { "it failed" })
        }
        Err(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
            None
        }
    }
}

#[test]
fn systemd_understands_every_line_of_the_units() {
    let fixture = &Fixture::new();
    let Some(said) = complaints(fixture, str::to_owned) else {
        return println!("skip: systemd-analyze is not installed");
    };
    assert_eq!(said, "");
    // The control: a line that it does not know is told.
    let odd = complaints(fixture, |unit| unit.replace("[Unit]", "[Unit]\nNoSuchKey=1")).unwrap();
    assert!(odd.contains("NoSuchKey"), "{odd}");
}

#[test]
fn what_the_units_start_is_there_and_is_what_the_pages_say() {
    let fixture = Fixture::new();
    let (service, socket) = (unit(UNITS[0]), unit(UNITS[1]));
    let words = words(&service);
    let said = fixture.run(&[&words[..1], &["--help"]].concat());
    assert_eq!(said.code, 0, "{said:?}");
    for word in &words[1..] {
        let flag = word.split('=').next().unwrap_or_default();
        assert!(!flag.starts_with('-') || said.out.contains(flag), "`serve` has no {flag}");
    }
    // Sandboxes outlive the server, and the port is the one that `serve` has without a word.
    assert_eq!(values(&service, "KillMode"), ["process"]);
    assert_eq!(values(&service, "Type"), ["notify"]);
    let [listen] = values(&socket, "ListenStream")[..] else { panic!("{socket}") };
    assert!(said.out.contains(&format!("default {listen}")), "{listen}: {}", said.out);
}

/// The server as systemd starts it: with a socket as descriptor 3, and a place where it says how it is doing.
fn activated(fixture: &Fixture, door: &TcpListener, place: &Path) -> Child {
    let service = unit(UNITS[0]);
    let start = format!("exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$1\" {}", words(&service).join(" "));
    let mut command = crate::script(&start, fixture);
    command.env("NOTIFY_SOCKET", place).env("FUMEHOOD_IN_PRIVATE_MOUNTS", "1");
    command.stdin(Stdio::from(OwnedFd::from(door.try_clone().unwrap()))).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn heard(ear: &UnixDatagram) -> String {
    let mut text = [0; 64];
    let count = ear.recv(&mut text).unwrap();
    String::from_utf8_lossy(&text[..count]).into_owned()
}

#[test]
fn the_socket_of_systemd_is_taken_over_and_what_waits_at_it_is_answered_by_the_next_server() {
    let fixture = &Fixture::new();
    let door = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = door.local_addr().unwrap();
    let place = fixture.path("notify");
    let ear = UnixDatagram::bind(&place).unwrap();
    ear.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    for _server in 0..2 {
        // Before there is a server: it is the socket that takes the first request.
        let mut first = TcpStream::connect(at).unwrap();
        first.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        first.write_all(format!("GET /health HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n").as_bytes()).unwrap();
        let mut server = activated(fixture, &door, &place);
        assert_eq!(heard(&ear), "READY=1");
        let mut answer = String::new();
        first.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"ok\""), "{answer}");
        // That one alone, and not its own port as well.
        let mut told = String::new();
        BufReader::new(server.stderr.take().unwrap()).read_line(&mut told).unwrap();
        assert_eq!(told, format!("listening on http://{at}\n"));
        kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
        assert_eq!(heard(&ear), "STOPPING=1");
        assert_eq!(server.wait().unwrap().code(), Some(0));
    }
}
