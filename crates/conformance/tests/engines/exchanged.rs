//! An engine in whose place another stands that passes everything on, and changes something on the way.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use conformance::live::{Ended, until};
use conformance::{BackendId, Fixture, Tier, Who};
use serde_json::Value;

/// An engine that is there for this test alone.
#[derive(Clone, Copy)]
pub(crate) struct OwnEngine {
    /// Its backend, and what comes after `scripts/with-`.
    pub(crate) name: &'static str,
    pub(crate) socket: &'static str,
    /// Where its own socket is while another stands in its place.
    pub(crate) aside: &'static str,
    /// What every path begins with.
    pub(crate) prefix: &'static str,
}

/// One at a time: there is one service of each.
static ALONE: Mutex<()> = Mutex::new(());

/// A change of what passes between us and the engine.
#[derive(Clone, Copy)]
pub(crate) enum Change {
    /// Of the order of a container, which is then made otherwise.
    Order(&'static str, fn() -> Value),
    /// Of what is said of a container.
    Answer(&'static str, fn() -> Value),
    /// Of the order, and what is said of it is what was wanted: the order's place, what it becomes, and the answer's place.
    Lie(&'static str, fn() -> Value, &'static str, fn(&Value) -> Value),
}

impl Change {
    pub(crate) const fn path(self) -> &'static str {
        let (Self::Order(path, _) | Self::Answer(path, _) | Self::Lie(path, ..)) = self;
        path
    }
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

fn changed(body: &[u8], path: &str, to: Value) -> Vec<u8> {
    let mut document: Value = serde_json::from_slice(body).unwrap();
    *document.pointer_mut(path).unwrap_or_else(|| panic!("there is no {path}")) = to;
    document.to_string().into_bytes()
}

fn body_of(answer: &[u8]) -> &[u8] {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    &answer[end + 4..]
}

impl OwnEngine {
    /// The service is there for this test alone; else the test says why it proves nothing.
    pub(crate) fn alone(self) -> Option<MutexGuard<'static, ()>> {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        if std::env::var_os(format!("FUMEHOOD_OWN_{}", self.name.to_ascii_uppercase())).is_some() {
            return Some(alone);
        }
        println!("skip: there is no service for tests alone: scripts/with-{} starts one", self.name);
        None
    }

    fn scene(self) -> Fixture {
        Fixture::new(BackendId { tier: Tier::Container, name: self.name }, Who::Rootful).unwrap()
    }

    /// Passes one request on, and its answer back.
    fn pass(self, mut client: UnixStream, change: Option<Change>, wanted: &Mutex<Value>) {
        let Some((head, mut body)) = request(&mut client) else { return };
        let line = head.lines().next().unwrap().to_owned();
        if let (Some(Change::Order(path, to) | Change::Lie(path, to, ..)), true) =
            (change, line.contains("/containers/create"))
        {
            let document: Value = serde_json::from_slice(&body).unwrap();
            *wanted.lock().unwrap() = document.pointer(path).unwrap().clone();
            body = changed(&body, path, to());
        }
        let mut engine = UnixStream::connect(self.aside).unwrap();
        let (length, kind) = (body.len(), if line.contains("/load") { "x-tar" } else { "json" });
        let head =
            format!("{line}\r\nHost: it\r\nContent-Type: application/{kind}\r\nContent-Length: {length}\r\n\r\n");
        engine.write_all(head.as_bytes()).unwrap();
        engine.write_all(&body).unwrap();
        let mut answer = Vec::new();
        engine.read_to_end(&mut answer).unwrap();
        let of_one = line.starts_with("GET") && line.contains("/containers/") && line.contains("/json ");
        let said = match change {
            Some(Change::Answer(path, to)) if of_one => Some((path, to())),
            Some(Change::Lie(_, _, path, told)) if of_one => Some((path, told(&wanted.lock().unwrap()))),
            Some(Change::Answer(..) | Change::Lie(..) | Change::Order(..)) | None => None,
        };
        if let Some((path, to)) = said {
            answer = [b"HTTP/1.0 200 OK\r\n\r\n".as_slice(), &changed(body_of(&answer), path, to)].concat();
        }
        // Whoever is killed does not read it.
        drop(client.write_all(&answer));
    }

    /// A run beside an engine that changes something on the way.
    pub(crate) fn beside(self, change: Option<Change>) -> Ended {
        let (scene, wanted) = (self.scene(), Mutex::new(Value::Null));
        let over = AtomicBool::new(false);
        std::fs::rename(self.socket, self.aside).unwrap();
        let listener = UnixListener::bind(self.socket).unwrap();
        let ended = std::thread::scope(|threads| {
            threads.spawn(|| {
                for client in listener.incoming().take_while(|_| !over.load(Ordering::SeqCst)) {
                    let (client, wanted) = (client.unwrap(), &wanted);
                    // Whoever asks may still hold the connection by which it saw who serves.
                    threads.spawn(move || self.pass(client, change, wanted));
                }
            });
            let ended = scene.shell(&["workspace.mode=none"], "exit 7");
            over.store(true, Ordering::SeqCst);
            drop(UnixStream::connect(self.socket));
            ended
        });
        std::fs::remove_file(self.socket).unwrap();
        std::fs::rename(self.aside, self.socket).unwrap();
        ended.unwrap()
    }

    /// Names of our containers that the engine has.
    pub(crate) fn left(self) -> Vec<String> {
        let mut engine = UnixStream::connect(self.socket).unwrap();
        let line = format!("GET {}/containers/json?all=true HTTP/1.0\r\nHost: it\r\n\r\n", self.prefix);
        engine.write_all(line.as_bytes()).unwrap();
        let mut answer = Vec::new();
        engine.read_to_end(&mut answer).unwrap();
        let all: Value = serde_json::from_slice(body_of(&answer)).unwrap();
        let names = all.as_array().unwrap().iter().filter_map(|one| one.pointer("/Names/0")?.as_str());
        let ours = names.map(|name| name.trim_start_matches('/')).filter(|name| name.starts_with("fumehood-"));
        ours.map(str::to_owned).collect()
    }

    /// What is made otherwise, or said otherwise, ends the run with 125 and leaves nothing.
    pub(crate) fn each_ends_the_run(self, changes: &[Change]) {
        let control = self.beside(None);
        assert_eq!(control.code, Some(7), "{}", control.said());
        for change in changes {
            let ended = self.beside(Some(*change));
            let path = change.path();
            assert_eq!(ended.code, Some(125), "{path}: {}", ended.said());
            assert_eq!(self.left(), Vec::<String>::new(), "{path}: {}", ended.said());
        }
    }

    pub(crate) fn a_killed_supervisor_leaves_nothing(self) {
        let scene = self.scene();
        let live = scene
            .start(&Fixture::values(&["workspace.mode=none"]), &["/bin/sh", "-c", "echo begun; sleep 60"])
            .unwrap();
        assert!(until(Duration::from_secs(60), || self.left().len() == 1), "{:?}", self.left());
        live.signal(9).unwrap();
        live.end().unwrap();
        let next = scene.shell(&["workspace.mode=none"], "exit 7").unwrap();
        assert_eq!(next.code, Some(7), "{}", next.said());
        assert!(until(Duration::from_secs(60), || self.left().is_empty()), "{:?}", self.left());
    }
}
