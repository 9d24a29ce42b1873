//! `fumehood serve` over real sandboxes: what needs layers, a freezer or the store of approvals.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use serde_json::{Value as Json, json};

use crate::Fixture;

/// A server; it ends with this, and its sandboxes with it.
pub(crate) struct Served<'a> {
    fixture: &'a Fixture,
    child: Child,
    pub(crate) address: String,
}

impl<'a> Served<'a> {
    pub(crate) fn new(fixture: &'a Fixture) -> Self {
        Self::with(fixture, &[])
    }

    /// One that is told more at its start.
    pub(crate) fn with(fixture: &'a Fixture, more: &[&str]) -> Self {
        let args = [&["serve", "--listen", "127.0.0.1:0"], more].concat();
        let mut child = fixture.command(&args).stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut told = BufReader::new(child.stderr.take().unwrap()).lines();
        let first = told.next().unwrap().unwrap();
        let address = first.strip_prefix("listening on http://").unwrap_or_else(|| panic!("{first}")).to_owned();
        std::thread::spawn(move || for _line in told {});
        Self { fixture, child, address }
    }

    /// Ends it as a crash does: it says good-bye to nobody, and its sandboxes live on.
    pub(crate) fn killed(self) {
        let mut gone = std::mem::ManuallyDrop::new(self);
        gone.child.kill().unwrap();
        gone.child.wait().unwrap();
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn key(&self, name: &str, more: &[&str]) -> String {
        let said = self.fixture.run(&[&["keys", "add", "--name", name], more].concat());
        assert_eq!(said.code, 0, "{}", said.err);
        said.out.trim().to_owned()
    }

    pub(crate) fn ask(&self, key: &str, line: &str, body: &Json) -> (u16, Json) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.send(key, line, "", &body)
    }

    /// The same with further headers, each with its end of line.
    pub(crate) fn ask_with(&self, key: &str, line: &str, headers: &str) -> (u16, Json) {
        self.send(key, line, headers, "")
    }

    /// The same with further headers and a body as it is.
    pub(crate) fn send(&self, key: &str, line: &str, headers: &str, body: &str) -> (u16, Json) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(120))).unwrap();
        let request = format!(
            "{line} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nX-API-KEY: {key}\r\n{headers}Content-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        (status, serde_json::from_str(body).unwrap_or_else(|_| json!(body)))
    }
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap();
        let listed = self.fixture.run(&["ps", "--json"]).json();
        for one in listed["sandboxes"].as_array().into_iter().flatten() {
            self.fixture.run(&["kill", one["id"].as_str().unwrap()]);
        }
    }
}

#[test]
fn snapshots_and_forks_begin_as_the_sandbox_was_and_are_their_keys() {
    let fixture = &Fixture::new();
    let served = Served::new(fixture);
    let (one, other) = (served.key("one", &[]), served.key("other", &[]));
    let (status, made) = served.ask(&one, "POST /v1/sandboxes", &json!({ "name": "box", "timeout": "5m" }));
    assert_eq!(status, 201, "{made}");
    let write = json!({ "cmd": ["sh", "-c", "echo kept > /workspace/a.txt; echo tmp > /tmp/b"], "timeout": 20 });
    let (_, ran) = served.ask(&one, "POST /v1/sandboxes/box/exec", &write);
    assert_eq!(ran["report"]["code"], 0, "{ran}");
    let (status, changes) = served.ask(&one, "GET /v1/sandboxes/box/changes", &Json::Null);
    assert_eq!((status, &changes["entries"][0]["name"]), (200, &json!("a.txt")), "{changes}");
    let (status, refused) = served.ask(&one, "POST /v1/sandboxes/box/changes/apply", &json!({}));
    assert_eq!((status, &refused["id"]), (403, &json!("serve/apply")), "{refused}");
    let (status, taken) = served.ask(&one, "POST /v1/sandboxes/box/snapshots", &json!({ "name": "first" }));
    assert_eq!(status, 201, "{taken}");
    let (status, again) = served.ask(&one, "POST /v1/sandboxes/box/snapshots", &json!({ "name": "first" }));
    assert_eq!(status, 409, "{again}");
    let read = json!({ "cmd": ["cat", "/workspace/a.txt", "/tmp/b"], "timeout": 20 });
    let begun = |line: &str, body: &Json, id: &dyn Fn(&Json) -> String| {
        let (status, made) = served.ask(&one, line, body);
        assert_eq!(status, 201, "{made}");
        let (_, ran) = served.ask(&one, &format!("POST /v1/sandboxes/{}/exec", id(&made)), &read);
        assert_eq!(ran["stdout"], "kept\ntmp\n", "{line}: {ran}");
    };
    let text = |value: &Json| value.as_str().unwrap().to_owned();
    begun("POST /v1/sandboxes", &json!({ "from": "first" }), &|made| text(&made["id"]));
    begun("POST /v1/sandboxes/box/fork", &json!({}), &|made| text(&made["sandboxes"][0]["id"]));
    begun("POST /v2/sandboxes", &json!({ "templateID": taken["id"] }), &|made| text(&made["sandboxID"]));
    let id = text(&made["id"]);
    begun(&format!("POST /sandboxes/{id}/fork"), &json!({ "count": 1 }), &|made| {
        text(&made[0]["sandbox"]["sandboxID"])
    });
    // What is another key's is not there.
    for line in ["GET /v1/snapshots/first", "DELETE /v1/snapshots/first", "GET /v1/sandboxes/box"] {
        assert_eq!(served.ask(&other, line, &Json::Null).0, 404, "{line}");
    }
    assert_eq!(served.ask(&other, "POST /v1/sandboxes", &json!({ "from": "first" })).0, 404);
    assert_eq!(served.ask(&other, "POST /v2/sandboxes", &json!({ "templateID": taken["id"] })).0, 400);
    let (_, listed) = served.ask(&one, &format!("GET /snapshots?sandboxID={id}"), &Json::Null);
    assert_eq!(listed, json!([{ "snapshotID": taken["id"], "names": ["first"] }]), "that of a fork is gone");
    assert_eq!(served.ask(&one, &format!("DELETE /templates/{}", text(&taken["id"])), &Json::Null).0, 204);
    assert_eq!(served.ask(&one, "GET /v1/snapshots", &Json::Null).1, json!({ "snapshots": [] }));
}

#[test]
fn audit_and_approvals_are_seen_by_whom_they_concern() {
    let fixture = &Fixture::new();
    let served = Served::new(fixture);
    let (one, other) = (served.key("one", &[]), served.key("other", &[]));
    let person = served.key("person", &["--operator"]);
    let (status, made) = served.ask(&one, "POST /v1/runs", &json!({ "cmd": ["true"], "timeout": 20 }));
    assert_eq!((status, &made["report"]["code"]), (200, &json!(0)), "{made}");
    assert_eq!(made["sandbox"]["report"]["outcome"]["kind"], "signalled", "{made}");
    let kinds = |key: &str, query: &str| -> Vec<String> {
        let (status, told) = served.ask(key, &format!("GET /v1/audit{query}"), &Json::Null);
        assert_eq!(status, 200, "{told}");
        told["events"].as_array().unwrap().iter().map(|event| event["kind"].as_str().unwrap().to_owned()).collect()
    };
    for kind in ["run.planned", "live.exec", "live.ended"] {
        assert!(kinds(&one, "").contains(&kind.to_owned()), "{kind}: {:?}", kinds(&one, ""));
        assert!(kinds(&person, "").contains(&kind.to_owned()));
        assert!(!kinds(&other, "").contains(&kind.to_owned()));
    }
    assert_eq!(kinds(&person, "?after=0&limit=2").len(), 2);
    assert_eq!(served.ask(&one, "GET /v1/audit?limit=0", &Json::Null).0, 400);
    assert_eq!(served.ask(&one, "GET /v1/approvals", &Json::Null).0, 403);
    assert_eq!(served.ask(&person, "GET /v1/approvals", &Json::Null).1, json!({ "calls": [] }));
    let unknown = served.ask(&person, "POST /v1/approvals/none", &json!({ "decision": "approve" }));
    assert_eq!((unknown.0, &unknown.1["id"]), (404, &json!("serve/no-such-call")));
    let (status, plan) = served.ask(&one, "POST /v1/plan", &json!({ "policy": "strict" }));
    assert!(status == 200 && !plan["clauses"].as_array().unwrap().is_empty(), "{plan}");
}

/// Places for questions, and what is remembered, are of one agent: two keys must not be one.
#[test]
fn a_question_about_a_destination_is_of_the_key_whose_sandbox_asks() {
    let fixture = &Fixture::new();
    let ask = "version = 1\nextends = \"strict\"\nnet = { mode = \"allow\", unknown = \"ask\" }\nlimits.wall = \"5m\"\nsyscalls.profile = \"default\"\n";
    std::fs::write(fixture.path("work/ask.toml"), ask).unwrap();
    let served = Served::new(fixture);
    let keys = ["one", "two"].map(|name| served.key(name, &["-p", "ask.toml"]));
    let net = json!({ "mode": "allow", "unknown": "ask" });
    let policy = json!({ "extends": "strict", "net": net, "syscalls": { "profile": "default" } });
    let code =
        "import socket\ntry: socket.create_connection(('same.invalid', 443), 30).send(b'x')\nexcept OSError: pass";
    for key in &keys {
        let (status, made) = served.ask(key, "POST /v1/sandboxes", &json!({ "timeout": "2m", "policy": policy }));
        assert_eq!(status, 201, "{made}");
        let line = format!("POST /v1/sandboxes/{}/exec", made["id"].as_str().unwrap());
        let exec = json!({ "cmd": ["python3", "-c", code], "detach": true });
        assert!(served.ask(key, &line, &exec).0 < 300);
    }
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let agents = loop {
        let listed = fixture.run(&["approvals", "ls", "--json"]).json();
        let calls = listed["calls"].as_array().unwrap().iter();
        let mut agents: Vec<String> = calls.map(|call| call["agent"].as_str().unwrap().to_owned()).collect();
        agents.sort();
        if agents.len() == 2 || std::time::Instant::now() > until {
            break agents;
        }
        drop(sys::channel::wait(&[], Some(std::time::Duration::from_millis(100))));
    };
    assert!(agents.len() == 2 && agents[0].starts_with("sandbox of one "), "{agents:?}");
    assert!(agents[1].starts_with("sandbox of two "), "{agents:?}");
}

/// What a broker counted is told while its sandbox lives, and stays in the sums of the server after it.
#[test]
fn what_brokers_count_is_in_the_metrics() {
    let fixture = &Fixture::new();
    let ceiling = "version = 1\nextends = \"strict\"\nnet = { mode = \"allow\", allow = [\"a.invalid\"] }\nlimits.wall = \"5m\"\nsyscalls.profile = \"default\"\n";
    std::fs::write(fixture.path("work/net.toml"), ceiling).unwrap();
    let served = Served::new(fixture);
    let (key, person) = (served.key("one", &["-p", "net.toml"]), served.key("person", &["--operator"]));
    let net = json!({ "mode": "allow", "allow": ["a.invalid"] });
    let policy = json!({ "extends": "strict", "net": net, "syscalls": { "profile": "default" } });
    let (status, made) = served.ask(&key, "POST /v1/sandboxes", &json!({ "timeout": "2m", "policy": policy }));
    assert_eq!(status, 201, "{made}");
    let path = format!("/v1/sandboxes/{}", made["id"].as_str().unwrap());
    let metric = |name: &str| {
        let (status, page) = served.ask(&person, "GET /metrics", &Json::Null);
        assert_eq!(status, 200, "{page}");
        let line = format!("fumehood_net_{name}_total ");
        page.as_str().unwrap().lines().find_map(|found| found.strip_prefix(&line)?.parse::<u64>().ok()).unwrap()
    };
    assert_eq!((metric("lookups"), metric("denials"), metric("connections")), (0, 0, 0));
    let code =
        "import socket\nfor n in range(3):\n try: socket.getaddrinfo(f'x{n}.invalid', 443)\n except OSError: pass";
    let (_, ran) =
        served.ask(&key, &format!("POST {path}/exec"), &json!({ "cmd": ["python3", "-c", code], "timeout": 60 }));
    assert_eq!(ran["report"]["code"], 0, "{ran}");
    assert!(crate::pool::until(|| metric("lookups") >= 3 && metric("denials") >= 3));
    let used = served.ask(&key, &format!("GET {path}/usage"), &Json::Null).1;
    assert_eq!(used["usage"]["net"]["lookups"], metric("lookups"), "{used}");
    let before = (metric("lookups"), metric("denials"));
    assert_eq!(served.ask(&key, &format!("DELETE {path}"), &Json::Null).0, 200);
    assert_eq!((metric("lookups"), metric("denials")), before);
}

/// With real layers and a freezer: whoever comes first, the sandbox has one end, and of its forks none is lost.
#[test]
fn pause_fork_snapshot_and_kill_at_once_have_one_end_and_leave_nothing() {
    let fixture = &Fixture::new();
    let served = &Served::new(fixture);
    let key = &served.key("one", &[]);
    let none = |status: u16| matches!(status, 404 | 409 | 501);
    for round in 0..6 {
        let (status, made) = served.ask(key, "POST /v1/sandboxes", &json!({ "timeout": "5m" }));
        assert_eq!(status, 201, "{made}");
        let path = &format!("/v1/sandboxes/{}", made["id"].as_str().unwrap());
        let asks = [
            ("POST", "/pause", json!({})),
            ("POST", "/fork", json!({ "count": 2 })),
            ("POST", "/resume", json!({})),
            ("POST", "/snapshots", json!({ "name": format!("s{round}") })),
            ("POST", "/exec", json!({ "cmd": ["true"], "timeout": 60 })),
            ("DELETE", "", Json::Null),
        ];
        let told = std::thread::scope(|scope| {
            let one = |(method, rest, body): (&'static str, &'static str, Json)| {
                scope.spawn(move || served.ask(key, &format!("{method} {path}{rest}"), &body))
            };
            asks.map(one).map(|asked| asked.join().unwrap())
        });
        let [pause, fork, resume, snapshot, exec, kill] = &told;
        for (status, what) in [pause, fork, resume, snapshot, exec] {
            // What was begun and could not be brought to its end says so.
            let broke_off = *status == 500 && what.to_string().contains("ended");
            assert!(*status < 300 || none(*status) || broke_off, "{status} {what}");
        }
        assert_eq!(kill.0, 200, "{kill:?}");
        let (_, end) = served.ask(key, &format!("GET {path}"), &Json::Null);
        assert_eq!((&end["state"], &end["reason"]), (&json!("ended"), &json!("killed")), "{end}");
        // What was answered is there and works; what was not is not there.
        let forks: Vec<&str> =
            fork.1["sandboxes"].as_array().into_iter().flatten().filter_map(|one| one["id"].as_str()).collect();
        let (_, listed) = served.ask(key, "GET /v1/sandboxes", &Json::Null);
        assert_eq!(listed["sandboxes"].as_array().unwrap().len(), forks.len(), "{fork:?} {listed}");
        for id in forks {
            let ran =
                served.ask(key, &format!("POST /v1/sandboxes/{id}/exec"), &json!({ "cmd": ["true"], "timeout": 60 }));
            assert_eq!((ran.0, &ran.1["report"]["code"]), (200, &json!(0)), "{ran:?}");
            assert_eq!(served.ask(key, &format!("DELETE /v1/sandboxes/{id}"), &Json::Null).0, 200);
        }
    }
    assert!(crate::pool::until(|| crate::files_below(&fixture.state().join("runs")).is_empty()));
}

#[test]
fn a_ceiling_lies_where_its_own_sandboxes_write_nothing() {
    let fixture = Fixture::new();
    let ceiling =
        "version = 1\n[workspace]\npath = \".\"\nmode = \"MODE\"\n[limits]\ndisk = \"none\"\nfiles = \"none\"\n";
    for (mode, code) in [("rw", 125), ("overlay", 125), ("ro", 0)] {
        std::fs::write(fixture.path("work/ceiling.toml"), ceiling.replace("MODE", mode)).unwrap();
        let said = fixture.run(&["keys", "add", "--name", mode, "-p", "ceiling.toml"]);
        assert_eq!(said.code, code, "{said:?}");
        assert!(code == 0 || said.err.contains("keep it in another folder"), "{said:?}");
    }
}

#[test]
fn a_key_for_a_template_that_is_not_there_is_made_and_warns() {
    let fixture = Fixture::new();
    let said = fixture.run(&["keys", "add", "--name", "a", "--templates", "base,nosuch"]);
    assert_eq!((said.code, said.out.trim().len()), (0, 44), "{said:?}");
    assert!(said.err.starts_with("warning: no template is called nosuch now;"), "{}", said.err);
    let said = fixture.run(&["keys", "add", "--name", "b", "--templates", "base,strict"]);
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    let told = fixture.run(&["keys", "add", "--name", "c", "--templates", "base,nosuch", "--json"]);
    assert_eq!((&told.json()["missing_templates"], told.err.as_str()), (&json!(["nosuch"]), ""));
}
