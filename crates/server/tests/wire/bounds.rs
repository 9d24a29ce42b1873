//! Connections: who waits makes room, what is ambiguous is refused, names that pages make up lead nowhere. Bodies: what could be read in
//! two ways is refused, and so is what would fill the server.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::stage::{Caller, Stage, stage};

async fn connect(stage: &Stage) -> TcpStream {
    TcpStream::connect(stage.base.strip_prefix("http://").unwrap()).await.unwrap()
}

/// All that is answered to these bytes, until the server hangs up or says nothing more for a while.
async fn said(stage: &Stage, bytes: &str) -> String {
    let mut io = connect(stage).await;
    io.write_all(bytes.as_bytes()).await.unwrap();
    let mut said = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(Ok(count @ 1..)) = tokio::time::timeout(Duration::from_millis(500), io.read(&mut buffer)).await {
        said.extend(&buffer[..count]);
    }
    String::from_utf8_lossy(&said).into_owned()
}

fn statuses(said: &str) -> Vec<&str> {
    said.lines().filter_map(|line| line.strip_prefix("HTTP/1.1 ")).map(|line| line.split(' ').next().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_hold_nobody_up() {
    let stage = stage().await;
    let caller = Caller::new(&stage, "one");
    let mut idle = Vec::new();
    for _ in 0..2100 {
        idle.push(connect(&stage).await);
    }
    assert_eq!(caller.json("GET", "/v1/sandboxes", Value::Null).await.status, 200);
    // The first ones made room.
    assert_eq!(idle[0].read(&mut [0; 1]).await.unwrap_or(0), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_two_readers_could_read_in_two_ways_reaches_nothing() {
    let stage = stage().await;
    let key = stage.keys.add("one", None, None).unwrap();
    let host = stage.base.strip_prefix("http://").unwrap();
    let head = format!("Host: {host}\r\nX-API-KEY: {key}\r\n");
    let good = format!("GET /v1/sandboxes HTTP/1.1\r\n{head}\r\n");
    assert_eq!(statuses(&said(&stage, &good).await), ["200"], "the control");
    let hidden = "GET /v1/templates HTTP/1.1\r\n";
    for (what, text) in [
        ("obs-fold", format!("GET /v1/sandboxes HTTP/1.1\r\n{head}X-A: b\r\n c\r\n\r\n")),
        ("a bare CR in a value", format!("GET /v1/sandboxes HTTP/1.1\r\n{head}X-A: b\rX-B: c\r\n\r\n")),
        ("a space before the colon", format!("GET /v1/sandboxes HTTP/1.1\r\n{head}Content-Length : 5\r\n\r\n")),
        (
            "two lengths",
            format!("POST /v1/runs HTTP/1.1\r\n{head}Content-Length: 5\r\nContent-Length: 6\r\n\r\n{hidden}"),
        ),
        ("a length with a sign", format!("POST /v1/runs HTTP/1.1\r\n{head}Content-Length: +5\r\n\r\n{hidden}")),
        ("another coding", format!("POST /v1/runs HTTP/1.1\r\n{head}Transfer-Encoding: xchunked\r\n\r\n{hidden}")),
        ("two hosts", format!("GET /v1/sandboxes HTTP/1.1\r\n{head}Host: {host}\r\n\r\n")),
        ("another host in the line", format!("GET http://evil.example/v1/sandboxes HTTP/1.1\r\n{head}\r\n")),
    ] {
        let told = said(&stage, &text).await;
        assert!(statuses(&told).iter().all(|status| *status == "400"), "{what}: {told}");
    }
    // Both framings: the chunks count, as RFC 9112 has it, and what follows them is the next request and no hidden one.
    let both = format!(
        "POST /v1/runs HTTP/1.1\r\n{head}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{good}"
    );
    let told = said(&stage, &both).await;
    assert!(matches!(statuses(&told)[..], ["400"] | ["400", "200"]), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_a_page_made_up_leads_nowhere() {
    let stage = stage().await;
    let caller = Caller::new(&stage, "one");
    for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example"] {
        let led = caller.with("host", host);
        for path in ["/health", "/v1/sandboxes", "/sandboxes"] {
            assert_eq!(led.json("GET", path, Value::Null).await.status, 403, "{host} {path}");
        }
    }
    for host in ["localhost", "127.0.0.1:1", "[::1]", "a.localhost"] {
        assert_eq!(caller.with("host", host).json("GET", "/v1/sandboxes", Value::Null).await.status, 200, "{host}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_are_bounded_in_number_and_size() {
    let stage = stage().await;
    let host = stage.base.strip_prefix("http://").unwrap();
    let many: String = (0..101).map(|n| format!("X-{n}: a\r\n")).collect();
    let long = format!("X-A: {}\r\n", "a".repeat(70_000));
    for (headers, statuses_then) in [(String::new(), ["200"]), (many, ["431"]), (long, ["431"])] {
        let told = said(&stage, &format!("GET /health HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n")).await;
        assert_eq!(statuses(&told), statuses_then);
    }
}

/// What is answered to an upload, once all of it was sent.
async fn uploaded(stage: &Stage, inside: &Caller, head: &str, pieces: &[Vec<u8>], pause: Duration) -> String {
    let headers: String = inside.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let mut io = connect(stage).await;
    let head = format!("POST /files HTTP/1.1\r\nHost: localhost\r\n{headers}{head}\r\n\r\n");
    io.write_all(head.as_bytes()).await.unwrap();
    for piece in pieces {
        io.write_all(piece).await.unwrap();
        tokio::time::sleep(pause).await;
    }
    let mut answer = [0; 4096];
    let count = io.read(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer[..count]).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_sends_all_of_an_upload_that_is_refused_early_is_told() {
    let stage = stage().await;
    let caller = Caller::new(&stage, "one");
    let made = caller.json("POST", "/sandboxes", json!({ "templateID": "base" })).await.json();
    let inside = caller.inside(&made);
    // A little is read to its end, though it comes in pieces, and the connection stays.
    let chunk = |bytes: &str| format!("{:x}\r\n{bytes}\r\n", bytes.len()).into_bytes();
    let part = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"/etc/passwd/a\"\r\n\r\nx\r\n";
    let mut pieces = vec![chunk(part); 10];
    pieces.push([chunk("--b--\r\n"), b"0\r\n\r\n".to_vec()].concat());
    let head = "Content-Type: multipart/form-data; boundary=b\r\nTransfer-Encoding: chunked";
    let told = uploaded(&stage, &inside, head, &pieces, Duration::from_millis(1)).await;
    assert!(told.starts_with("HTTP/1.1 400 ") && !told.contains("connection: close"), "{told}");
    // Of much the answer comes first, and what still comes is read for nobody.
    let megabyte = vec![b'x'; 1 << 20];
    let head = "Content-Type: multipart/form-data\r\nContent-Length: 33554432";
    let told = uploaded(&stage, &inside, head, &vec![megabyte; 32], Duration::ZERO).await;
    assert!(told.starts_with("HTTP/1.1 400 ") && told.contains("connection: close"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn http2_is_spoken_without_tls() {
    let stage = stage().await;
    let mut io = connect(&stage).await;
    io.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00").await.unwrap();
    let mut frame = [0; 9];
    io.read_exact(&mut frame).await.unwrap();
    assert_eq!(frame[3], 4, "its settings come first");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_of_few_and_long_links_is_refused_before_it_fills_the_server() {
    let stage = stage().await;
    let caller = Caller::new(&stage, "one");
    let made = caller.json("POST", "/sandboxes", json!({ "templateID": "base", "timeout": 300 })).await.json();
    let (inside, line) =
        (caller.inside(&made), format!("/v1/sandboxes/{}/files/list?path=many", made["sandboxID"].as_str().unwrap()));
    let folder = stage.home.join("many");
    std::fs::create_dir(&folder).unwrap();
    // Each byte that is no text is eight characters of JSON.
    let make = |numbers: std::ops::Range<u32>| {
        for number in numbers {
            symlink(OsStr::from_bytes(&[0xff; 4095]), folder.join(number.to_string())).unwrap();
        }
    };
    let ask = async || {
        let ours = caller.json("GET", &line, Value::Null).await;
        (ours, inside.rpc("/filesystem.Filesystem/ListDir", json!({ "path": "many" })).await)
    };
    make(0..100);
    let (ours, theirs) = ask().await;
    for answer in [&ours, &theirs] {
        assert_eq!(answer.json()["entries"].as_array().map(Vec::len), Some(100), "{}", answer.status);
        assert!(answer.body.len() > 100 * 4095 * 8, "the links are told whole");
    }
    make(100..600);
    let (ours, theirs) = ask().await;
    assert_eq!((ours.status, theirs.status), (400, 429));
    for answer in [&ours, &theirs] {
        assert!(answer.json().to_string().contains("16 MiB"), "{}", answer.json());
    }
    assert_eq!(theirs.json()["code"], "resource_exhausted");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_says_a_thing_twice_or_names_no_variable_is_refused_by_name() {
    let stage = stage().await;
    let caller = Caller::new(&stage, "one").with("content-type", "application/json");
    let made = caller.json("POST", "/sandboxes", json!({ "templateID": "base" })).await.json();
    let exec = &format!("/v1/sandboxes/{}/exec", made["sandboxID"].as_str().unwrap());
    let inside = caller.inside(&made).with("content-type", "application/json");
    let stat = "/filesystem.Filesystem/Stat";
    for (who, path, body, name) in [
        (&caller, "/v1/sandboxes", r#"{"name": "a", "name": "b"}"#, "`name`"),
        (&caller, "/v1/sandboxes", r#"{"env": {"A": "1", "A": "2"}}"#, "`A`"),
        (&caller, "/sandboxes", r#"{"templateID": "base", "metadata": {"m": "1", "m": "2"}}"#, "`m`"),
        (&inside, stat, r#"{"path": "/etc", "path": "/"}"#, "`path`"),
        (&caller, "/v1/sandboxes", r#"{"env": {"A=B": "1"}}"#, "A=B"),
        (&caller, exec, r#"{"cmd": ["true"], "env": {"A=B": "1"}}"#, "A=B"),
        (&caller, "/sandboxes", r#"{"templateID": "base", "envVars": {"A=B": "1"}}"#, "A=B"),
    ] {
        let answer = who.send("POST", path, body).await;
        let said = String::from_utf8_lossy(&answer.body);
        assert!(answer.status == 400 && said.contains(name), "{path} {body}: {} {said}", answer.status);
    }
    for (who, path, body) in [
        (&caller, "/v1/sandboxes", r#"{"name": "a", "env": {"A": "B=1"}}"#),
        (&caller, exec, r#"{"cmd": ["true"], "env": {"A": "B=1"}}"#),
        (&inside, stat, r#"{"path": "/etc"}"#),
    ] {
        let answer = who.send("POST", path, body).await;
        assert!(answer.status < 300, "{path} {body}: {}", String::from_utf8_lossy(&answer.body));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_a_program_is_not_repeated_by_a_key_and_says_so() {
    let stage = stage().await;
    let caller = Caller::new(&stage, "one").with("idempotency-key", "a");
    assert_eq!(caller.json("POST", "/v1/sandboxes", json!({ "name": "box" })).await.status, 201);
    for (path, body) in [
        ("/v1/runs", json!({ "cmd": ["true"] })),
        ("/v1/sandboxes/box/exec", json!({ "cmd": ["true"] })),
        ("/v1/sandboxes/box/code", json!({ "code": "1" })),
    ] {
        let answer = caller.json("POST", path, body).await;
        assert_eq!((answer.status, &answer.json()["clause"]), (400, &json!("Idempotency-Key")), "{path}");
    }
}
