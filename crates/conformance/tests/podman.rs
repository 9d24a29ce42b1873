//! The backend `podman` beside an engine that does not do what it is told, and beside a supervisor that is killed.
//!
//! `scripts/with-podman cargo test -p fumehood-conformance --test podman`: the service is exchanged here, which is not done to one that
//! is there for others.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed"
)]

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use conformance::live::{Ended, until};
use conformance::{BackendId, Fixture, Tier, Who};
use serde_json::Value;

const SOCKET: &str = "/run/podman/podman.sock";
/// Where the service's own socket is while another stands in its place.
const ASIDE: &str = "/run/podman/aside.sock";

/// One at a time: there is one service.
static ALONE: Mutex<()> = Mutex::new(());

/// The service is there for this test alone; else the test says why it proves nothing.
fn own_service() -> Option<MutexGuard<'static, ()>> {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    if std::env::var_os("FUMEHOOD_OWN_PODMAN").is_some() {
        return Some(alone);
    }
    println!("skip: there is no service of podman's for tests alone: scripts/with-podman starts one");
    None
}

fn scene() -> Fixture {
    Fixture::new(BackendId { tier: Tier::Container, name: "podman" }, Who::Rootful).unwrap()
}

/// A change of what passes between us and the engine.
#[derive(Clone, Copy)]
enum Change {
    /// Of the order of a container, which is then made otherwise.
    Order(&'static str, fn() -> Value),
    /// Of what is said of a container.
    Answer(&'static str, fn() -> Value),
}

/// A request whole, as our client sends it: with its length, and then nothing more. None where it only looked who serves.
fn request(stream: &mut UnixStream) -> Option<(String, Vec<u8>)> {
    let (mut all, mut some) = (Vec::new(), [0; 4096]);
    loop {
        if let Some(end) = all.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&all[..end]).into_owned();
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
            if all.len() >= end + 4 + length.parse::<usize>().unwrap() {
                return Some((head, all[end + 4..].to_vec()));
            }
        }
        let count = stream.read(&mut some).unwrap();
        if count == 0 {
            assert_eq!(all, b"", "the request ends early");
            return None;
        }
        all.extend_from_slice(&some[..count]);
    }
}

fn changed(body: &[u8], path: &str, to: fn() -> Value) -> Vec<u8> {
    let mut document: Value = serde_json::from_slice(body).unwrap();
    *document.pointer_mut(path).unwrap_or_else(|| panic!("there is no {path}")) = to();
    document.to_string().into_bytes()
}

fn body_of(answer: &[u8]) -> &[u8] {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    &answer[end + 4..]
}

/// Passes one request on, and its answer back.
fn pass(mut client: UnixStream, change: Option<Change>) {
    let Some((head, mut body)) = request(&mut client) else { return };
    let line = head.lines().next().unwrap().to_owned();
    if let (Some(Change::Order(path, to)), true) = (change, line.contains("/containers/create")) {
        body = changed(&body, path, to);
    }
    let mut engine = UnixStream::connect(ASIDE).unwrap();
    let length = body.len();
    let head = format!("{line}\r\nHost: podman\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n");
    engine.write_all(head.as_bytes()).unwrap();
    engine.write_all(&body).unwrap();
    let mut answer = Vec::new();
    engine.read_to_end(&mut answer).unwrap();
    let of_one = line.starts_with("GET") && line.contains("/json ");
    if let (Some(Change::Answer(path, to)), true) = (change, of_one) {
        answer = [b"HTTP/1.0 200 OK\r\n\r\n".as_slice(), &changed(body_of(&answer), path, to)].concat();
    }
    // Whoever is killed does not read it.
    drop(client.write_all(&answer));
}

/// A run beside an engine that changes something on the way.
fn beside(change: Option<Change>) -> Ended {
    let scene = scene();
    let over = AtomicBool::new(false);
    std::fs::rename(SOCKET, ASIDE).unwrap();
    let listener = UnixListener::bind(SOCKET).unwrap();
    let ended = std::thread::scope(|threads| {
        threads.spawn(|| {
            for client in listener.incoming() {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let client = client.unwrap();
                // Whoever asks may still hold the connection by which it saw who serves.
                threads.spawn(move || pass(client, change));
            }
        });
        let ended = scene.shell(&["workspace.mode=none"], "exit 7");
        over.store(true, Ordering::SeqCst);
        drop(UnixStream::connect(SOCKET));
        ended
    });
    std::fs::remove_file(SOCKET).unwrap();
    std::fs::rename(ASIDE, SOCKET).unwrap();
    ended.unwrap()
}

#[test]
fn what_the_engine_makes_otherwise_or_says_otherwise_ends_the_run() {
    let Some(_alone) = own_service() else { return };
    let control = beside(None);
    assert_eq!(control.code, Some(7), "{}", control.said());
    for change in [
        Change::Order("/privileged", || true.into()),
        Change::Order("/read_only_filesystem", || false.into()),
        Change::Order("/netns/nsmode", || "host".into()),
        Change::Order("/pidns/nsmode", || "host".into()),
        Change::Order("/ipcns/nsmode", || "host".into()),
        Change::Order("/utsns/nsmode", || "host".into()),
        Change::Order("/userns/nsmode", || "host".into()),
        Change::Order("/idmappings/UIDMap/0/host_id", || 0.into()),
        Change::Order("/cap_add", || serde_json::json!(["CAP_SYS_PTRACE"])),
        Change::Order("/rootfs", || "/".into()),
        Change::Answer("/HostConfig/Privileged", || true.into()),
        Change::Answer("/Mounts", || serde_json::json!([{ "Source": "/" }])),
        // Another process than the container's first.
        Change::Answer("/State/Pid", || std::process::id().into()),
    ] {
        let ended = beside(Some(change));
        let (Change::Order(path, _) | Change::Answer(path, _)) = change;
        assert_eq!(ended.code, Some(125), "{path}: {}", ended.said());
        assert_eq!(left(), Vec::<String>::new(), "{path}: {}", ended.said());
    }
}

/// Names of our containers that the engine has.
fn left() -> Vec<String> {
    let mut engine = UnixStream::connect(SOCKET).unwrap();
    engine.write_all(b"GET /v4.0.0/libpod/containers/json?all=true HTTP/1.0\r\nHost: podman\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    engine.read_to_end(&mut answer).unwrap();
    let all: Value = serde_json::from_slice(body_of(&answer)).unwrap();
    let names = all.as_array().unwrap().iter().filter_map(|one| one.pointer("/Names/0")?.as_str());
    names.filter(|name| name.starts_with("fumehood-")).map(str::to_owned).collect()
}

#[test]
fn a_killed_supervisor_leaves_nothing_that_the_next_start_does_not_take() {
    let Some(_alone) = own_service() else { return };
    let scene = scene();
    let live =
        scene.start(&Fixture::values(&["workspace.mode=none"]), &["/bin/sh", "-c", "echo begun; sleep 60"]).unwrap();
    assert!(until(Duration::from_secs(60), || left().len() == 1), "{:?}", left());
    live.signal(9).unwrap();
    live.end().unwrap();
    let next = scene.shell(&["workspace.mode=none"], "exit 7").unwrap();
    assert_eq!(next.code, Some(7), "{}", next.said());
    assert!(until(Duration::from_secs(60), || left().is_empty()), "{:?}", left());
}
