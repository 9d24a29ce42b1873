//! GW-20's rows of the local port, and what each request is answered, over real sockets with a counting tool behind.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use policy::tools::{Approval, Decision};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};

use super::webhook::{Webhook, verify};
use super::*;
use crate::approvals::{Answer, Ask};
use crate::record::Event;
use crate::result::Content;
use crate::verdict::Reason;

/// `open` is allowed, `ask` is asked about, the rest denied; counts what runs.
#[derive(Debug)]
struct House {
    approvals: Approvals,
    ran: Arc<AtomicUsize>,
    log: Log,
}

#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<&'static str>>>);

impl Record for Log {
    fn append(&self, event: &Event) -> Result<(), String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(event.kind);
        Ok(())
    }
}

fn verdict(decision: Decision, tool: &str, args: &Json) -> Verdict {
    let reason = Reason {
        id: "tools.entry/none",
        rule: "tools.default".into(),
        at: None,
        decision,
        what: format!("`{tool}`"),
        why: "no entry names it".into(),
        instead: "open".into(),
    };
    let reasons = if decision == Decision::Allow { Vec::new() } else { vec![reason] };
    let hash = Some(crate::json::hash(tool, args));
    Verdict { decision, rule: "r".into(), reasons, instead: String::new(), args: Some(args.clone()), hash }
}

impl Engine for House {
    fn check(&self, tool: &str, args: Json, _: &Caller, _: Option<&ToolFacts>) -> Verdict {
        let decision = match tool {
            "open" | "bare" => Decision::Allow,
            "ask" => Decision::Ask,
            _ => Decision::Deny,
        };
        verdict(decision, tool, &args)
    }

    fn call<'a>(&'a self, what: Wanted<'a>, run: Run) -> Boxed<'a, Called> {
        Box::pin(async move {
            let Wanted { tool, args, caller, facts } = what;
            let mut verdict = self.check(tool, args.clone(), caller, facts);
            if verdict.decision == Decision::Ask {
                let ask = Ask {
                    tool: tool.into(),
                    server: None,
                    hash: verdict.hash.clone().unwrap_or_default(),
                    args: args.clone(),
                    rule: "r".into(),
                    reason: "asked".into(),
                    agent: caller.agent.clone(),
                    session: caller.session.clone(),
                    approval: Approval::Never,
                };
                let answer = match self.approvals.ask(&ask) {
                    Ok(parked) => parked.wait(Duration::from_secs(5)).await,
                    Err(why) => Answer::Lost { id: String::new(), why },
                };
                match answer.denial("r") {
                    Some(reason) => {
                        verdict.decision = Decision::Deny;
                        verdict.reasons = vec![reason];
                    }
                    None => verdict.decision = Decision::Allow,
                }
            }
            let result = if verdict.decision == Decision::Allow { Some(run(args).await) } else { None };
            Called { verdict, result }
        })
    }

    fn implementation<'a>(&'a self, tool: &'a str, _: &'a Caller) -> Boxed<'a, Result<Way, Missing>> {
        let (ran, tool) = (Arc::clone(&self.ran), tool.to_owned());
        Box::pin(async move {
            if tool == "bare" {
                return Err(Missing::NoServer);
            }
            let run: Run = Box::new(move |args| {
                Box::pin(async move {
                    ran.fetch_add(1, Ordering::SeqCst);
                    Ok(ToolResult { content: vec![Content::Text(format!("{tool} {args}"))], ..ToolResult::default() })
                })
            });
            Ok(Way { run, facts: None })
        })
    }

    fn refused(&self, _: Wanted<'_>, _: &Missing) {}

    fn end_session<'a>(&'a self, _: &'a Caller) -> Boxed<'a, ()> {
        Box::pin(async {})
    }

    fn tools<'a>(&'a self, _: &'a Caller) -> Boxed<'a, Vec<Json>> {
        Box::pin(async { vec![json!({ "name": "open" })] })
    }

    fn approvals(&self) -> &Approvals {
        &self.approvals
    }

    fn record(&self) -> Arc<dyn Record> {
        Arc::new(self.log.clone())
    }
}

/// A served house, and what a client needs.
struct Street {
    dir: tempfile::TempDir,
    address: String,
    ran: Arc<AtomicUsize>,
    approvals: Approvals,
    log: Log,
    agent: String,
    person: String,
}

fn folder() -> tempfile::TempDir {
    tempfile::Builder::new().permissions(std::fs::Permissions::from_mode(0o700)).tempdir().unwrap()
}

fn read(dir: &Path, name: &str) -> String {
    std::fs::read_to_string(dir.join(name)).unwrap().trim().to_owned()
}

async fn street(listen: impl FnOnce(&Path) -> Listen, origins: &[&str]) -> Street {
    let dir = folder();
    let approvals = Approvals::open(dir.path()).unwrap();
    let (ran, log) = (Arc::new(AtomicUsize::new(0)), Log::default());
    let house = House { approvals: approvals.clone(), ran: Arc::clone(&ran), log: log.clone() };
    let mut keys = Keys::open(dir.path()).unwrap();
    keys.agent("other", &dir.path().join("other.token")).unwrap();
    let door = open(&listen(dir.path())).await.unwrap();
    let address = door.address().replace("http://", "");
    let origins = origins.iter().map(|origin| (*origin).to_owned()).collect();
    tokio::spawn(desk(door, Arc::new(house), keys, origins, std::future::pending()));
    let (agent, person) = (read(dir.path(), "tools.token"), read(dir.path(), "approvals.token"));
    Street { dir, address, ran, approvals, log, agent, person }
}

async fn on_loopback() -> Street {
    street(|_| Listen::parse("127.0.0.1:0").unwrap(), &[]).await
}

impl Street {
    /// Sends one request as written; status and body.
    async fn raw(&self, text: &str) -> (u16, Json) {
        let mut answer = Vec::new();
        if let Some(path) = self.address.strip_prefix("unix:") {
            let mut stream = UnixStream::connect(path).await.unwrap();
            stream.write_all(text.as_bytes()).await.unwrap();
            stream.read_to_end(&mut answer).await.unwrap();
        } else {
            let mut stream = TcpStream::connect(&self.address).await.unwrap();
            stream.write_all(text.as_bytes()).await.unwrap();
            stream.read_to_end(&mut answer).await.unwrap();
        }
        let answer = String::from_utf8(answer).unwrap();
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let body = answer.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
        (status, serde_json::from_str(body).unwrap_or(Json::Null))
    }

    async fn send(&self, line: &str, headers: &[(&str, &str)], body: &str) -> (u16, Json) {
        let mut text = format!("{line} HTTP/1.1\r\nConnection: close\r\n");
        if !headers.iter().any(|(name, _)| *name == "Host") {
            text.push_str(&format!(
                "Host: {}\r\n",
                if self.address.starts_with("unix:") { "localhost" } else { &self.address }
            ));
        }
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() {
            text.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        self.raw(&format!("{text}\r\n{body}")).await
    }

    async fn post(&self, token: &str, path: &str, body: &str) -> (u16, Json) {
        let bearer = format!("Bearer {token}");
        self.send(&format!("POST {path}"), &[("Authorization", &bearer), ("Content-Type", "application/json")], body)
            .await
    }

    async fn get(&self, token: &str, path: &str) -> (u16, Json) {
        self.send(&format!("GET {path}"), &[("Authorization", &format!("Bearer {token}"))], "").await
    }

    fn ran(&self) -> usize {
        self.ran.load(Ordering::SeqCst)
    }
}

const CALL: &str = r#"{"args": {"n": 1}}"#;

#[tokio::test]
async fn a_call_is_judged_run_and_answered_the_same_over_both_kinds_of_socket() {
    let unix = street(|dir| Listen::Unix(dir.join("door")), &[]).await;
    for street in [on_loopback().await, unix] {
        let (status, body) = street.post(&street.agent, "/v1/tools/open:call", CALL).await;
        assert_eq!((status, &body["result"]["content"][0]["text"]), (200, &json!(r#"open {"n":1}"#)), "{body}");
        assert_eq!(body["decision"], "allow");
        let (status, body) = street.post(&street.agent, "/v1/tools/open:check", CALL).await;
        assert_eq!((status, &body["decision"], &body["args"]), (200, &json!("allow"), &json!({"n": 1})));
        let (status, body) = street.post(&street.agent, "/v1/tools/shut:call", CALL).await;
        assert_eq!(
            (status, &body["id"], &body["reasons"][0]["instead"]),
            (403, &json!("tools.entry/none"), &json!("open"))
        );
        let (status, body) = street.post(&street.agent, "/v1/tools/bare:call", CALL).await;
        assert_eq!((status, &body["id"]), (404, &json!("tools.http/no-implementation")));
        let (status, body) = street.get(&street.agent, "/v1/tools").await;
        assert_eq!((status, &body["tools"][0]["name"]), (200, &json!("open")));
        assert_eq!(street.ran(), 1);
    }
}

/// DNS rebinding: a page at `evil.example` that resolves to 127.0.0.1 reaches the port with its own name.
#[tokio::test]
async fn gw_20_a_page_reaches_nothing_whatever_it_sends() {
    let street = on_loopback().await;
    let (bearer, port) = (format!("Bearer {}", street.agent), street.address.rsplit(':').next().unwrap().to_owned());
    let json = ("Content-Type", "application/json");
    let hosts = [
        format!("evil.example:{port}"),
        "evil.example".into(),
        "127.0.0.1".into(),
        format!("127.0.0.1.evil.example:{port}"),
        format!("localhost.:{port}"),
        format!("127.0.0.1:{port}@evil.example"),
        "127.0.0.1:1".into(),
        String::new(),
    ];
    for host in &hosts {
        let headers = [("Host", host.as_str()), ("Authorization", &bearer), json];
        let (status, body) = street.send("POST /v1/tools/open:call", &headers, CALL).await;
        assert!(matches!(status, 400 | 421), "{host}: {status} {body}");
    }
    let twice = [("Host", street.address.as_str()), ("Host", "evil.example"), ("Authorization", &bearer), json];
    assert!(matches!(street.send("POST /v1/tools/open:call", &twice, CALL).await.0, 400 | 421));
    let none = format!("POST /v1/tools/open:call HTTP/1.1\r\nAuthorization: {bearer}\r\nConnection: close\r\n\r\n");
    assert!(matches!(street.raw(&none).await.0, 400 | 421));
    let own = format!("Host: {}\r\nAuthorization: {bearer}\r\nConnection: close\r\n\r\n", street.address);
    let first_line = |name: &str| format!("GET http://{name}/v1/tools HTTP/1.1\r\n{own}");
    assert!(matches!(street.raw(&first_line("evil.example")).await.0, 400 | 421));
    assert_eq!(street.raw(&first_line(&street.address)).await.0, 200);
    for page in [
        ("Origin", "http://evil.example"),
        ("Origin", "null"),
        ("Origin", ""),
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),
    ] {
        let (status, body) =
            street.send("POST /v1/tools/open:call", &[page, ("Authorization", &bearer), json], CALL).await;
        assert_eq!((status, &body["id"]), (403, &json!("tools.http/origin")), "{page:?}");
        // Even what needs no preflight tells a page nothing: not whether the token was good.
        let (status, _) = street.send("GET /v1/tools", &[page], "").await;
        assert_eq!(status, 403, "{page:?}");
    }
    assert_eq!(street.ran(), 0);
    let (status, _) = street.send("POST /v1/tools/open:call", &[("Authorization", &bearer), json], CALL).await;
    assert_eq!((status, street.ran()), (200, 1), "the control");
}

#[tokio::test]
async fn a_page_that_was_named_may_come_in_with_the_token() {
    let street = street(|_| Listen::parse("127.0.0.1:0").unwrap(), &["http://localhost:3000"]).await;
    let bearer = format!("Bearer {}", street.agent);
    let ask = async |origin: &str| {
        let headers = [("Origin", origin), ("Sec-Fetch-Site", "cross-site"), ("Authorization", &bearer)];
        street.send("GET /v1/tools", &headers, "").await.0
    };
    assert_eq!((ask("http://localhost:3000").await, ask("http://localhost:3001").await), (200, 403));
}

#[tokio::test]
async fn without_a_good_token_nothing_is_answered_and_an_agents_token_answers_no_call() {
    let street = on_loopback().await;
    let long = "x".repeat(5000);
    for token in ["", "wrong", &street.agent.to_uppercase(), &format!("{}0", street.agent), &long] {
        let (status, body) = street.post(token, "/v1/tools/open:call", CALL).await;
        assert_eq!((status, &body["id"]), (401, &json!("tools.http/token")), "{token}");
    }
    let two = [("Authorization", &*format!("Bearer {}", street.agent)), ("Authorization", "Bearer x")];
    assert_eq!(street.send("GET /v1/tools", &two, "").await.0, 401);
    assert_eq!(street.send("GET /v1/tools", &[("Authorization", &format!("Basic {}", street.agent))], "").await.0, 401);
    let (status, body) = street.get(&street.agent, "/v1/approvals").await;
    assert_eq!((status, &body["id"]), (403, &json!("tools.http/not-yours")));
    assert_eq!(street.get(&street.person, "/v1/tools").await.0, 404, "and people call nothing with theirs");
    let mode = |name: &str| std::fs::metadata(street.dir.path().join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("tools.token"), mode("approvals.token")), (0o600, 0o600));
    assert_eq!(street.ran(), 0);
}

#[tokio::test]
async fn what_could_be_read_in_two_ways_is_refused() {
    let street = on_loopback().await;
    let bodies = [
        (r#"{"args": {"a": 1, "a": 2}}"#, 400),
        (r#"{"args": {"a": 1e999}}"#, 400),
        (r#"{"args": {"a": NaN}}"#, 400),
        (r#"{"args": {"a": 9007199254740993}}"#, 400),
        (r#"{"args": {}} {}"#, 400),
        ("\u{feff}{\"args\": {}}", 400),
        (r#"{"args": {}, "session": "other"}"#, 400),
        (r#"["args"]"#, 400),
        ("{", 400),
    ];
    for (body, wanted) in bodies {
        let (status, answer) = street.post(&street.agent, "/v1/tools/open:call", body).await;
        assert_eq!(status, wanted, "{body}: {answer}");
    }
    let bearer = format!("Bearer {}", street.agent);
    let form = [("Authorization", bearer.as_str()), ("Content-Type", "text/plain")];
    assert_eq!(street.send("POST /v1/tools/open:call", &form, CALL).await.0, 415);
    assert_eq!(street.send("PUT /v1/tools/open:call", &[("Authorization", &bearer)], "").await.0, 404);
    let huge =
        [("Authorization", bearer.as_str()), ("Content-Type", "application/json"), ("Content-Length", "999999999")];
    assert_eq!(street.send("POST /v1/tools/open:call", &huge, "").await.0, 413);
    for path in ["/v1/tools/open", "/v1/tools/open:run", "/v1/tools", "/v1/tools/", "/", "/v1/approvalsx", "/v2/tools"]
    {
        assert_eq!(street.post(&street.agent, path, CALL).await.0 / 100, 4, "{path}");
    }
    // Spelled otherwise, a tool is another one, and an unknown one at that.
    for path in ["/v1/tools/%6fpen:call", "/v1/tools/OPEN:call", "/v1/tools/./open:call", "/v1/tools//open:call"] {
        assert_eq!(street.post(&street.agent, path, CALL).await.0, 403, "{path}");
    }
    assert_eq!(street.ran(), 0);
}

#[tokio::test]
async fn gw_18_sessions_cannot_be_made_up_or_borrowed() {
    let street = on_loopback().await;
    let session = |body: Json| body["session"].as_str().unwrap().to_owned();
    let mine = session(street.post(&street.agent, "/v1/sessions", "").await.1);
    let other = read(street.dir.path(), "other.token");
    let theirs = session(street.post(&other, "/v1/sessions", "").await.1);
    let ask = async |token: &str, session: &str| {
        let headers = [
            ("Authorization", &*format!("Bearer {token}")),
            ("Fumehood-Session", session),
            ("Content-Type", "application/json"),
        ];
        street.send("POST /v1/tools/open:call", &headers, CALL).await.0
    };
    assert_eq!((ask(&street.agent, &mine).await, ask(&other, &theirs).await), (200, 200));
    let forged = mine.replace("s-", "s-0");
    for name in [theirs.as_str(), "", "http local", "s-", "s--", "s-00-00", &forged, &mine.to_uppercase()] {
        assert_eq!(ask(&street.agent, name).await, 403, "{name}");
    }
    assert_eq!(street.ran(), 2);
}

#[tokio::test]
async fn a_parked_call_is_answered_by_people_and_then_made_with_exactly_its_arguments() {
    let street = on_loopback().await;
    let wait = async |n: usize| loop {
        let (_, body) = street.get(&street.person, "/v1/approvals").await;
        let calls = body["calls"].as_array().unwrap().clone();
        if calls.len() == n {
            break calls;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let answer = async {
        let id = wait(1).await[0]["id"].as_str().unwrap().to_owned();
        assert_eq!(street.ran(), 0, "nothing runs before somebody agrees");
        let (status, body) = street.post(&street.agent, &format!("/v1/approvals/{id}:approve"), "{}").await;
        assert_eq!(status, 403, "the agent does not agree with itself: {body}");
        for path in [format!("/v1/approvals/{}:approve", &id.to_uppercase()), "/v1/approvals/a-:approve".into()] {
            assert_eq!(street.post(&street.person, &path, "{}").await.0, 404, "{path}");
        }
        let swap = r#"{"args": {"n": 2}}"#;
        assert_eq!(street.post(&street.person, &format!("/v1/approvals/{id}:approve"), swap).await.0, 400);
        let (status, body) = street.post(&street.person, &format!("/v1/approvals/{id}:approve"), "").await;
        assert_eq!((status, &body["call"]["state"]), (200, &json!("approved")));
        let (status, body) = street.post(&street.person, &format!("/v1/approvals/{id}:deny"), "").await;
        assert_eq!((status, &body["id"]), (409, &json!("tools.http/too-late")));
    };
    let ((status, body), ()) = tokio::join!(street.post(&street.agent, "/v1/tools/ask:call", CALL), answer);
    assert_eq!((status, &body["result"]["content"][0]["text"]), (200, &json!(r#"ask {"n":1}"#)), "{body}");
    let denial = async {
        let id = wait(1).await[0]["id"].as_str().unwrap().to_owned();
        street.post(&street.person, &format!("/v1/approvals/{id}:deny"), r#"{"why": "no"}"#).await
    };
    let ((status, body), (said, _)) = tokio::join!(street.post(&street.agent, "/v1/tools/ask:call", CALL), denial);
    assert_eq!((status, said, &body["id"], &body["detail"]), (403, 200, &json!("tools.approval/denied"), &json!("no")));
    assert_eq!(street.ran(), 1);
    let log = street.log.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert_eq!(log, ["approval.approved", "approval.denied", "approval.lost", "approval.denied"]);
}

#[tokio::test]
async fn what_is_remembered_over_http_is_listed_and_revoked() {
    let street = on_loopback().await;
    let agree = async {
        let id = loop {
            if let Some(call) = street.approvals.list(false).unwrap().pop() {
                break call.id;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        for bad in [
            r#"{"remember": {}}"#,
            r#"{"remember": {"args": "n*", "for": "agent", "seconds": 60}}"#,
            r#"{"remember": {"args": {"any": ["x"]}, "for": "agent", "seconds": 60}}"#,
        ] {
            assert_eq!(street.post(&street.person, &format!("/v1/approvals/{id}:approve"), bad).await.0, 400, "{bad}");
        }
        let body = r#"{"remember": {"args": {"any": ["n"]}, "for": "agent", "seconds": 3600}}"#;
        assert_eq!(street.post(&street.person, &format!("/v1/approvals/{id}:approve"), body).await.0, 200);
    };
    let ((status, _), ()) = tokio::join!(street.post(&street.agent, "/v1/tools/ask:call", CALL), agree);
    assert_eq!(status, 200);
    assert_eq!(street.post(&street.agent, "/v1/tools/ask:call", r#"{"args": {"n": 7}}"#).await.0, 200);
    let (_, body) = street.get(&street.person, "/v1/approvals/remembered").await;
    assert_eq!((&body["remembered"][0]["args"], &body["remembered"][0]["uses"]), (&json!({"n": "any"}), &json!(1)));
    let id = body["remembered"][0]["id"].as_str().unwrap();
    assert_eq!(street.post(&street.person, &format!("/v1/approvals/remembered/{id}:revoke"), "").await.0, 200);
    assert_eq!(street.post(&street.person, &format!("/v1/approvals/remembered/{id}:revoke"), "").await.0, 404);
    assert_eq!(street.ran(), 2);
}

#[tokio::test]
async fn a_caller_that_hangs_up_takes_its_question_back() {
    let street = on_loopback().await;
    let mut stream = TcpStream::connect(&street.address).await.unwrap();
    let head = format!(
        "POST /v1/tools/ask:call HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{CALL}",
        street.address,
        street.agent,
        CALL.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let waiting = async |n: usize| {
        for _ in 0..200 {
            if street.approvals.list(false).unwrap().len() == n {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        false
    };
    assert!(waiting(1).await);
    drop(stream);
    assert!(waiting(0).await, "nobody is asked about a call that nobody waits for");
    assert_eq!(street.ran(), 0);
}

#[tokio::test]
async fn only_the_loopback_and_our_own_sockets_are_listened_on() {
    for text in [
        "0.0.0.0:80",
        "[::]:80",
        "192.168.0.1:80",
        "8.8.8.8:80",
        "localhost:80",
        "80",
        "unix:door",
        "[::ffff:127.0.0.1]:80",
    ] {
        assert!(Listen::parse(text).is_err(), "{text}");
    }
    let dir = folder();
    let path = dir.path().join("door");
    std::fs::write(&path, "a file of somebody's").unwrap();
    assert!(open(&Listen::Unix(path.clone())).await.is_err());
    std::fs::remove_file(&path).unwrap();
    let first = open(&Listen::Unix(path.clone())).await.unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(open(&Listen::Unix(path.clone())).await.is_err(), "somebody listens");
    drop(first);
    assert!(!path.exists());
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(open(&Listen::Unix(path)).await.is_ok(), "a dead socket is in nobody's way");
}

#[test]
fn a_token_that_others_could_read_or_guess_is_refused() {
    let dir = folder();
    let file = dir.path().join("tools.token");
    let try_it = |text: &str, mode: u32| {
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        Keys::open(dir.path()).is_ok()
    };
    assert!(try_it("0123456789abcdef\n", 0o600));
    assert!(!try_it("0123456789abcdef\n", 0o640));
    assert!(!try_it("short\n", 0o600));
    assert!(!try_it("", 0o600));
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", &file).unwrap();
    assert!(Keys::open(dir.path()).is_err());
}

/// Each failure was told, without what is behind the host: that may be a secret.
fn assert_told(said: &[String]) {
    assert_eq!(said.len(), 3, "{said:?}");
    assert!(said.first().unwrap().contains("500") && said.last().unwrap().contains("redirects are not followed"));
    assert!(said.iter().all(|why| !why.contains("x=1")), "{said:?}");
}

/// A receiver that fails twice, hangs up once, and then takes it.
#[tokio::test]
async fn a_webhook_is_signed_tried_again_and_neither_blocks_nor_approves() {
    let dir = folder();
    let approvals = Approvals::open(dir.path()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook?x=1", listener.local_addr().unwrap());
    let secret = b"0123456789abcdef".to_vec();
    let said = Arc::new(std::sync::Mutex::new(Vec::new()));
    let complaints = Arc::clone(&said);
    let complain = Box::new(move |why: &str| complaints.lock().unwrap().push(why.to_owned()));
    let hook = Webhook::with(&url, secret.clone(), [0, 20, 40, 60, 80].map(Duration::from_millis), complain).unwrap();
    let receiver = tokio::spawn(async move {
        let mut seen = Vec::new();
        for answer in ["500 No", "", "302 Found\r\nLocation: http://127.0.0.1:1/", "200 OK"] {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut text = Vec::new();
            let mut part = [0; 4096];
            while !String::from_utf8_lossy(&text).contains("}}") {
                let count = stream.read(&mut part).await.unwrap();
                text.extend_from_slice(part.get(..count).unwrap());
            }
            seen.push(String::from_utf8(text).unwrap());
            if !answer.is_empty() {
                // Whatever the body says, it is no answer.
                let body = r#"{"approve": true, "state": "approved"}"#;
                let response =
                    format!("HTTP/1.1 {answer}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
                stream.write_all(response.as_bytes()).await.unwrap();
            }
        }
        seen
    });
    let _listening = approvals.listen(None, Arc::new(hook));
    let ask = Ask {
        tool: "ask".into(),
        server: None,
        args: json!({"n": 1}),
        hash: crate::json::hash("ask", &json!({"n": 1})),
        rule: "r".into(),
        reason: "asked".into(),
        agent: "local".into(),
        session: "s".into(),
        approval: Approval::Never,
    };
    let parked = approvals.ask(&ask).unwrap();
    let id = parked.id().to_owned();
    let answer = parked.wait(Duration::from_millis(900)).await;
    assert_eq!(answer, Answer::TimedOut { id: id.clone() }, "telling is not answering");
    let seen = receiver.await.unwrap();
    for text in &seen {
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let header = |name: &str| {
            let line = head.lines().find(|line| line.to_lowercase().starts_with(&format!("{name}: "))).unwrap();
            line.split_once(": ").unwrap().1.to_owned()
        };
        let (then, signature) = (header("fumehood-timestamp"), header("fumehood-signature"));
        let now: u64 = then.parse().unwrap();
        assert!(verify(&secret, &then, &signature, body, now));
        assert!(!verify(&secret, &then, &signature, body, now + 301), "too old");
        assert!(!verify(&secret, &(now + 1).to_string(), &signature, body, now), "another time");
        assert!(!verify(&secret, &then, &signature, &body.replace("\"n\":1", "\"n\":2"), now), "another body");
        assert!(!verify(b"another secret!!", &then, &signature, body, now));
        assert!(!verify(&secret, &format!("0{then}"), &signature, body, now));
        assert!(!verify(&secret, &then, "v1=", body, now) && !verify(&secret, &then, "v1=zz", body, now));
        assert_eq!(header("fumehood-delivery"), id, "the same for each try");
        let json: Json = serde_json::from_str(body).unwrap();
        assert_eq!((&json["call"]["id"], &json["call"]["args"]), (&json!(id), &json!({"n": 1})));
    }
    assert_eq!(seen.len(), 4);
    assert_told(&said.lock().unwrap());
}

#[test]
fn a_webhook_in_the_clear_or_with_a_password_is_refused() {
    let secret = || b"0123456789abcdef".to_vec();
    for url in [
        "http://example.org/",
        "http://user:pw@127.0.0.1/",
        "https://user@example.org/",
        "ftp://127.0.0.1/",
        "x",
        "http://127.0.0.1.evil.example/",
    ] {
        assert!(Webhook::with(url, secret(), [Duration::ZERO; 5], Box::new(|_| ())).is_err(), "{url}");
    }
    assert!(Webhook::with("http://[::1]:9/", secret(), [Duration::ZERO; 5], Box::new(|_| ())).is_ok());
}
