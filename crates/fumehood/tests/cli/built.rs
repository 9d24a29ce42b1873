//! Templates that clients build, in real sandboxes: what comes of the steps, and what a hostile build comes to.
#![expect(clippy::disallowed_methods, reason = "a server is asked until a build is over")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::Fixture;
use crate::served::Served;

pub(crate) const HASH: &str = "abababababababababababababababababababababababababababababababab";

/// The template, and the build that is wanted of it.
pub(crate) struct Wished {
    pub(crate) id: String,
    pub(crate) build: String,
}

impl Wished {
    pub(crate) fn new(served: &Served<'_>, key: &str, body: &Json) -> Self {
        let (status, told) = served.ask(key, "POST /v3/templates", body);
        assert_eq!(status, 202, "{told}");
        let text = |field: &str| told[field].as_str().unwrap().to_owned();
        Self { id: text("templateID"), build: text("buildID") }
    }

    pub(crate) fn upload(&self, served: &Served<'_>, key: &str, archive: &[u8]) {
        let (status, told) = served.ask(key, &format!("GET /templates/{}/files/{HASH}", self.id), &Json::Null);
        assert_eq!(status, 201, "{told}");
        let url = told["url"].as_str().unwrap();
        let path = url.strip_prefix(&format!("http://{}", served.address)).unwrap();
        let mut stream = TcpStream::connect(&served.address).unwrap();
        let head = format!(
            "PUT {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            served.address,
            archive.len()
        );
        stream.write_all(&[head.as_bytes(), archive].concat()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    pub(crate) fn begin(&self, served: &Served<'_>, key: &str, body: &Json) {
        let line = format!("POST /v2/templates/{}/builds/{}", self.id, self.build);
        let (status, told) = served.ask(key, &line, body);
        assert_eq!(status, 202, "{told}");
    }

    pub(crate) fn status(&self, served: &Served<'_>, key: &str) -> Json {
        let line = format!("GET /templates/{}/builds/{}/status", self.id, self.build);
        let (status, told) = served.ask(key, &line, &Json::Null);
        assert_eq!(status, 200, "{told}");
        told
    }

    /// What came of it.
    pub(crate) fn ended(&self, served: &Served<'_>, key: &str) -> Json {
        let began = Instant::now();
        loop {
            let told = self.status(served, key);
            if !matches!(told["status"].as_str(), Some("waiting" | "building")) {
                return told;
            }
            assert!(began.elapsed() < Duration::from_secs(180), "{told}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

pub(crate) fn run(line: &str) -> Json {
    json!({ "type": "RUN", "args": [line], "force": false })
}

pub(crate) fn copy(source: &str, to: &str) -> Json {
    json!({ "type": "COPY", "args": [source, to, "", ""], "force": false, "filesHash": HASH })
}

/// An archive as clients send it, of names and texts.
pub(crate) fn archive(members: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, text) in members {
        let mut header = [0_u8; 512];
        let mut put = |at: usize, part: &[u8]| header[at..at + part.len()].copy_from_slice(part);
        put(0, name.as_bytes());
        put(100, b"0000644\0");
        put(124, format!("{:011o}\0", text.len()).as_bytes());
        put(136, b"00000000000\0");
        put(148, b"        ");
        put(156, b"0");
        put(257, b"ustar\x0000");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        bytes.extend_from_slice(&header);
        bytes.extend_from_slice(text.as_bytes());
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

/// A sandbox of a template, and what a program in it says.
pub(crate) fn says(served: &Served<'_>, key: &str, template: &str, line: &str) -> String {
    let (status, made) = served.ask(key, "POST /v2/sandboxes", &json!({ "templateID": template, "timeout": 60 }));
    assert_eq!(status, 201, "{made}");
    let id = made["sandboxID"].as_str().unwrap();
    let asked = json!({ "cmd": ["sh", "-c", line], "timeout": 20 });
    let (_, ran) = served.ask(key, &format!("POST /v1/sandboxes/{id}/exec"), &asked);
    assert_eq!(ran["report"]["code"], 0, "{ran}");
    served.ask(key, &format!("DELETE /sandboxes/{id}"), &Json::Null);
    ran["stdout"].as_str().unwrap().to_owned()
}

#[test]
fn a_template_is_what_its_steps_left_and_its_sandboxes_begin_so() {
    let fixture = &Fixture::new();
    let served = Served::new(fixture);
    let (one, other) = (served.key("one", &[]), served.key("other", &[]));
    let wished = Wished::new(&served, &one, &json!({ "name": "app", "tags": ["v1"], "memoryMB": 600 }));
    wished.upload(&served, &one, &archive(&[("src/app.sh", "echo from app\n"), ("src/in/data", "data\n")]));
    let body = json!({
        "fromTemplate": "base", "force": false, "startCmd": "touch begun; sleep 1000", "readyCmd": "test -e begun",
        "steps": [
            copy("src", "/srv/app"), copy("src", "here"), { "type": "WORKDIR", "args": ["/srv/app"] },
            { "type": "ENV", "args": ["TEAM", "a b"] }, run("cat in/data > made && echo \"$TEAM\" >> made"),
            { "type": "USER", "args": ["user"] }, { "type": "RUN", "args": ["id -u > ~/id", "root"] },
        ],
    });
    wished.begin(&served, &one, &body);
    let told = wished.ended(&served, &one);
    assert_eq!(told["status"], "ready", "{told}");
    let said = told["logEntries"].to_string();
    assert!(said.contains("root is the sandbox's one user here"), "{told}");
    let line = "cat /srv/app/made ~/here/in/data ~/id; echo \"$TEAM\"; ls /srv/app; touch /srv/app/more && echo writes";
    for template in ["app", "app:v1", &wished.id] {
        let found = says(&served, &one, template, line);
        let id = found.lines().nth(3).unwrap_or_default().to_owned();
        assert_ne!(id, "0", "{found}");
        let wanted = format!("data\na b\ndata\n{id}\na b\napp.sh\nbegun\nin\nmade\nwrites\n");
        assert_eq!(found, wanted, "{template}");
    }
    // Its sandboxes have the memory that it asked for, and the network of `base`: none, whatever its build had.
    let (_, made) = served.ask(&one, "POST /v2/sandboxes", &json!({ "templateID": "app", "timeout": 60 }));
    let id = made["sandboxID"].as_str().unwrap();
    let (_, detail) = served.ask(&one, &format!("GET /sandboxes/{id}"), &Json::Null);
    assert_eq!((&detail["memoryMB"], &detail["network"]["allowOut"]), (&json!(600), &json!([])), "{detail}");
    // What begins as a snapshot of such a sandbox begins with the same commands, and needs the template no more.
    let (_, snapshot) = served.ask(&one, &format!("POST /sandboxes/{id}/snapshots"), &json!({}));
    let (_, listed) = served.ask(&one, "GET /snapshots", &Json::Null);
    assert_eq!(listed.as_array().unwrap().len(), 1, "those of builds are no snapshots of the key: {listed}");
    // Another template begins as it.
    let child = Wished::new(&served, &one, &json!({ "name": "child" }));
    child.begin(&served, &one, &json!({ "fromTemplate": "app", "steps": [run("cat made > ~/of-app")] }));
    let told = child.ended(&served, &one);
    assert_eq!(told["status"], "ready", "{told}");
    assert_eq!(says(&served, &one, "child", "cat ~/of-app"), "data\na b\n");
    let listed = |key: &str| served.ask(key, "GET /v1/templates", &Json::Null).1["templates"].to_string();
    assert!(listed(&one).contains("\"app\"") && !listed(&other).contains("\"app\""));
    for (status, template) in [(400, "app"), (400, "child"), (400, &*wished.id)] {
        let (found, told) = served.ask(&other, "POST /v2/sandboxes", &json!({ "templateID": template }));
        assert_eq!(found, status, "{template}: {told}");
    }
    let (status, told) = served.ask(&one, "POST /templates/tags", &json!({ "target": "app:v1", "tags": ["stable"] }));
    assert_eq!((status, &told["buildID"]), (201, &json!(wished.build)), "{told}");
    assert_eq!(served.ask(&other, "POST /templates/tags", &json!({ "target": "app:v1", "tags": ["x"] })).0, 404);
    assert_eq!(served.ask(&one, "DELETE /templates/tags", &json!({ "name": "app", "tags": ["v1"] })).0, 204);
    assert_eq!(served.ask(&one, "POST /v2/sandboxes", &json!({ "templateID": "app:v1" })).0, 400);
    assert_eq!(served.ask(&one, &format!("DELETE /templates/{}", wished.id), &Json::Null).0, 204);
    assert_eq!(served.ask(&one, "POST /v2/sandboxes", &json!({ "templateID": "app" })).0, 400);
    assert_eq!(says(&served, &one, "child", "cat ~/of-app"), "data\na b\n", "it has what it needs itself");
    let from = snapshot["snapshotID"].as_str().unwrap();
    assert_eq!(says(&served, &one, from, "ls /srv/app/begun"), "/srv/app/begun\n");
}

#[test]
fn a_hostile_build_comes_to_its_own_end_and_to_nothing_else() {
    let fixture = &Fixture::new();
    let served = Served::new(fixture);
    let key = served.key("one", &[]);
    let failed = |name: &str, upload: Option<Vec<u8>>, steps: Json| {
        let wished = Wished::new(&served, &key, &json!({ "name": name }));
        upload.into_iter().for_each(|bytes| wished.upload(&served, &key, &bytes));
        wished.begin(&served, &key, &json!({ "fromTemplate": "base", "steps": steps }));
        let told = wished.ended(&served, &key);
        assert_eq!(told["status"], "error", "{told}");
        assert_eq!(served.ask(&key, "POST /v2/sandboxes", &json!({ "templateID": name })).0, 400);
        told["reason"].clone()
    };
    // What leads out of the archive, or beside what the step names, is refused before anything of it is made.
    for member in ["../../../../tmp/of-a-build", "/tmp/of-a-build", "src/../../x", "other/x"] {
        let reason = failed("way-out", Some(archive(&[(member, "x")])), json!([copy("src", "/home/user/")]));
        assert_eq!(reason["step"], "1", "{member}: {reason}");
    }
    assert!(!std::path::Path::new("/tmp/of-a-build").exists());
    // The same step with an archive that is as it should be comes through.
    let good = Wished::new(&served, &key, &json!({ "name": "good" }));
    good.upload(&served, &key, &archive(&[("src/x", "x")]));
    good.begin(&served, &key, &json!({ "fromTemplate": "base", "steps": [copy("src", "/home/user/")] }));
    assert_eq!(good.ended(&served, &key)["status"], "ready");

    let reason = failed("full", None, json!([run("true"), run("head -c 4G /dev/zero > ~/big && echo all of it")]));
    assert_eq!(reason["step"], "2", "{reason}");
    let forks = "f() { f | f & }; f; sleep 2; for i in $(seq 3000); do sleep 100 & done; exit 7";
    let reason = failed("forks", None, json!([run(forks)]));
    assert_eq!(reason["step"], "1", "{reason}");
    let reason = failed("programs", None, json!([run("echo x > /usr/bin/x")]));
    assert!(reason["message"].as_str().unwrap().contains("programs are read-only here"), "{reason}");

    // One that never ends is ended with its template, and what it ran with it.
    let endless = Wished::new(&served, &key, &json!({ "name": "endless" }));
    endless.begin(&served, &key, &json!({ "fromTemplate": "base", "steps": [run("echo begun; exec sleep 100000")] }));
    let began = Instant::now();
    while !endless.status(&served, &key).to_string().contains("begun\"") {
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(served.ask(&key, &format!("DELETE /templates/{}", endless.id), &Json::Null).0, 204);
    let lives = || fixture.run(&["ps", "--json"]).json()["sandboxes"].as_array().map_or(0, Vec::len);
    while lives() > 0 {
        assert!(began.elapsed() < Duration::from_secs(90));
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_build_reaches_registries_as_far_as_the_ceiling_of_its_key_lets_it() {
    let fixture = &Fixture::new();
    let served = Served::new(fixture);
    let top = fixture.path("top.toml");
    std::fs::write(&top, crate::templates::TOP).unwrap();
    let names = "cat /etc/resolv.conf > ~/names; cat ~/names";
    for (key, is_out) in [(served.key("one", &[]), true), (served.key("two", &["-p", top.to_str().unwrap()]), false)] {
        let wished = Wished::new(&served, &key, &json!({ "name": "net" }));
        wished.begin(&served, &key, &json!({ "fromTemplate": "base", "steps": [run(names)] }));
        let told = wished.ended(&served, &key);
        assert_eq!(told["status"], "ready", "{told}");
        let said = told["logEntries"].to_string();
        assert_eq!(said.contains("the ceiling of this key does not let them reach registries"), !is_out, "{told}");
        // Who answers a build's look-ups is the broker, which nobody has in its sandboxes.
        assert_eq!(said.contains("nameserver 198.18.0.1"), is_out, "{told}");
        let found = says(&served, &key, "net", "cmp -s ~/names /etc/resolv.conf && echo same || echo another");
        assert_eq!(found, if is_out { "another\n" } else { "same\n" });
    }
}

#[test]
fn a_build_that_a_server_left_is_told_as_failed_by_the_next() {
    let fixture = &Fixture::new();
    let first = Served::new(fixture);
    let key = first.key("one", &[]);
    let wished = Wished::new(&first, &key, &json!({ "name": "left" }));
    wished.begin(&first, &key, &json!({ "fromTemplate": "base", "steps": [run("sleep 100000")] }));
    let began = Instant::now();
    while wished.status(&first, &key)["status"] != "building" {
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(100));
    }
    // Another server of the same folder knows that somebody is at it.
    let second = Served::new(fixture);
    assert_eq!(wished.status(&second, &key)["status"], "building");
    first.killed();
    let told = wished.status(&second, &key);
    assert_eq!(told["status"], "error", "{told}");
    assert!(told["reason"]["message"].as_str().unwrap().contains("the server ended"), "{told}");
    let lives = fixture.run(&["ps", "--json"]).json();
    assert_eq!(lives["sandboxes"], json!([]), "its sandbox went with it");
    // The same template is built again.
    let again = Wished::new(&second, &key, &json!({ "name": "left" }));
    again.begin(&second, &key, &json!({ "fromTemplate": "base", "steps": [run("true")] }));
    assert_eq!(again.ended(&second, &key)["status"], "ready");
}
