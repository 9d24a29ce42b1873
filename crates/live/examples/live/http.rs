//! The server's rows: over one connection that stays.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::{MIB, Scene, Table, median, rest, through_socket, timed};

/// `fumehood serve`, ended with this.
pub(crate) struct Served {
    child: Child,
    from: BufReader<TcpStream>,
    key: String,
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Served {
    pub(crate) fn new(scene: &Scene, pool: &str) -> Self {
        let command = |words: &[&str]| {
            let mut command = Command::new(&scene.program);
            command.args(words).env_clear().env("FUMEHOOD_STATE", &scene.state).env("HOME", &scene.state);
            command
        };
        let name = format!("k{}", std::process::id());
        drop(command(&["keys", "rm", &name]).output());
        let key = command(&["keys", "add", "--name", &name]).output().unwrap();
        let mut serve = command(&["serve", "--listen", "127.0.0.1:0", "--pool", pool]);
        let mut child = serve.stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().rsplit('/').next().unwrap().rsplit(' ').next().unwrap().to_owned();
        let to = TcpStream::connect(address).unwrap();
        to.set_nodelay(true).unwrap();
        Self { child, from: BufReader::new(to), key: String::from_utf8(key.stdout).unwrap().trim().to_owned() }
    }

    /// One request, and the body of its answer.
    pub(crate) fn ask(&mut self, method: &str, path: &str, body: &[u8]) -> Vec<u8> {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nX-API-KEY: {}\r\nContent-Length: {}\r\n\r\n",
            self.key,
            body.len()
        );
        let mut to = self.from.get_ref();
        to.write_all(head.as_bytes()).unwrap();
        to.write_all(body).unwrap();
        let (mut line, mut length, mut chunked, mut status) = (String::new(), 0, false, String::new());
        loop {
            line.clear();
            self.from.read_line(&mut line).unwrap();
            if status.is_empty() {
                status = line.clone();
            }
            let lower = line.to_ascii_lowercase();
            if let Some(text) = lower.strip_prefix("content-length:") {
                length = text.trim().parse().unwrap();
            }
            chunked |= lower.starts_with("transfer-encoding: chunked");
            if line.trim().is_empty() {
                break;
            }
        }
        let answer = if chunked { self.chunks() } else { self.exactly(length) };
        assert!(status.starts_with("HTTP/1.1 2"), "{status} {}", String::from_utf8_lossy(&answer));
        answer
    }

    fn exactly(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.from.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn chunks(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let mut line = String::new();
            self.from.read_line(&mut line).unwrap();
            let size = usize::from_str_radix(line.trim(), 16).unwrap();
            all.extend(self.exactly(size));
            self.exactly(2);
            if size == 0 {
                return all;
            }
        }
    }

    fn create(&mut self) -> String {
        let made = self.ask("POST", "/v1/sandboxes", br#"{"policy": "strict"}"#);
        serde_json::from_slice::<Value>(&made).unwrap()["id"].as_str().unwrap().to_owned()
    }
}

pub(crate) fn rows(scene: &Scene, table: &mut Table) {
    let mut served = Served::new(scene, "4");
    for _ in 0..4 {
        let id = served.create();
        served.ask("DELETE", &format!("/v1/sandboxes/{id}"), b"");
    }
    rest(Duration::from_secs(1));
    let (mut bare, mut create, mut exec, mut above) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..scene.rounds(50) {
        rest(Duration::from_millis(100));
        let trip = timed(|| drop(served.ask("GET", "/health", b"")));
        let mut id = String::new();
        let made = timed(|| id = served.create());
        let path = format!("/v1/sandboxes/{id}");
        let ran = timed(|| drop(served.ask("POST", &format!("{path}/exec"), br#"{"cmd": ["/bin/true"]}"#)));
        above.push(made - trip);
        bare.push(trip);
        create.push(made);
        exec.push(ran);
        served.ask("DELETE", &path, b"");
    }
    let found = format!(
        "{:.2} ms above a bare round trip ({:.2} ms; created in {:.2} ms, `true` in it {:.2} ms more)",
        median(above),
        median(bare),
        median(create),
        median(exec)
    );
    table.row("a sandbox from the pool, over HTTP", &found, "<= 2 ms");
    let id = served.create();
    let path = format!("/v1/sandboxes/{id}/files?path=/tmp/file");
    let bytes = vec![7; MIB];
    let took = (0..scene.rounds(40)).map(|_| {
        timed(|| {
            served.ask("PUT", &path, &bytes);
            assert_eq!(served.ask("GET", &path, b"").len(), MIB);
        })
    });
    let api = 2.0 * 1000.0 / median(took.collect()) * (MIB as f64 / 1e6);
    served.ask("DELETE", &format!("/v1/sandboxes/{id}"), b"");
    let created = scene.cold();
    let socket = through_socket(scene, &created, scene.rounds(40));
    scene.end(created);
    table.row(
        "1 MiB written and read through the API",
        &format!("{api:.0} MB/s (by the socket {socket:.0} MB/s)"),
        ">= 300 MB/s",
    );
}
