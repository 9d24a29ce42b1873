//! E2B's data interface: programs, files, watches, ports.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::hangups::BlockingSandboxes;
use crate::stage::{Caller, Stage, stage, stage_over};

async fn sandbox() -> (Stage, Caller, Caller, Value) {
    let stage = stage().await;
    let caller = Caller::new(&stage, "one");
    let made = caller.json("POST", "/v2/sandboxes", json!({ "templateID": "base" })).await.json();
    let inside = caller.inside(&made);
    (stage, caller, inside, made)
}

fn bash(line: &str) -> Value {
    json!({ "process": { "cmd": "/bin/bash", "args": ["-c", line] }, "stdin": false })
}

fn output(events: &[Value], lane: &str) -> String {
    let parts = events.iter().filter_map(|event| event["event"]["data"][lane].as_str());
    parts.map(|part| String::from_utf8(STANDARD.decode(part).unwrap()).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_starts_speaks_and_ends() {
    let (stage, _, inside, _) = sandbox().await;
    let (events, end) = inside.events("/process.Process/Start", bash("echo out; echo err >&2; pwd; exit 3")).await;
    assert_eq!(end, Ok(json!({})));
    assert!(events[0]["event"]["start"]["pid"].as_u64().unwrap() > 0);
    assert_eq!(output(&events, "stdout"), format!("out\n{}\n", stage.home.display()));
    assert_eq!(output(&events, "stderr"), "err\n");
    let last = &events.last().unwrap()["event"]["end"];
    assert_eq!(
        (&last["exitCode"], &last["status"], &last["exited"]),
        (&json!(3), &json!("exit status 3"), &json!(true))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_outlives_its_deadline_by_nothing() {
    let (_stage, _, inside, _) = sandbox().await;
    let begun = std::time::Instant::now();
    let (_, end) = inside.with("connect-timeout-ms", "300").events("/process.Process/Start", bash("sleep 20")).await;
    assert_eq!(end.unwrap()["error"]["code"], "deadline_exceeded");
    assert!(begun.elapsed() < std::time::Duration::from_secs(10));
    let running = inside.rpc("/process.Process/List", json!({})).await.json();
    assert_eq!(running, json!({ "processes": [] }));
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_are_written_to_listed_and_killed() {
    let (_stage, _, inside, _) = sandbox().await;
    let caller = inside.clone();
    let start = json!({ "process": { "cmd": "/bin/cat" }, "stdin": true, "tag": "cat" });
    let following = tokio::spawn(async move { caller.events("/process.Process/Start", start).await });
    let mut listed = Value::Null;
    for _ in 0..100 {
        listed = inside.rpc("/process.Process/List", json!({})).await.json();
        if listed["processes"].as_array().is_some_and(|all| !all.is_empty()) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(listed["processes"][0]["tag"], "cat");
    let process = json!({ "pid": listed["processes"][0]["pid"] });
    let input = json!({ "process": { "tag": "cat" }, "input": { "stdin": STANDARD.encode("hello\n") } });
    assert_eq!(inside.rpc("/process.Process/SendInput", input).await.json(), json!({}));
    let typed = json!({ "process": process, "input": { "pty": STANDARD.encode("x") } });
    let refused = inside.rpc("/process.Process/SendInput", typed).await;
    assert_eq!((refused.status, &refused.json()["code"]), (500, &json!("internal")), "it has no terminal");
    assert_eq!(inside.rpc("/process.Process/CloseStdin", json!({ "process": process })).await.status, 200);
    let (events, end) = following.await.unwrap();
    assert_eq!((output(&events, "stdout").as_str(), end), ("hello\n", Ok(json!({}))));
    let signal = json!({ "process": process, "signal": "SIGNAL_SIGKILL" });
    let gone = inside.rpc("/process.Process/SendSignal", signal).await;
    assert_eq!((gone.status, &gone.json()["code"]), (404, &json!("not_found")));
    let (events, end) = inside.events("/process.Process/Connect", json!({ "process": process })).await;
    assert!(
        events[0]["event"]["start"]["pid"].is_u64() && end == Ok(json!({})),
        "an ended one is still known: {events:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_one_user_is_the_only_one() {
    let (_stage, _, inside, _) = sandbox().await;
    let root = inside.with("authorization", &format!("Basic {}", STANDARD.encode("root:")));
    let (_, end) = root.events("/process.Process/Start", bash("id")).await;
    let error = end.unwrap()["error"].clone();
    assert_eq!(error["code"], "unauthenticated");
    assert_eq!(root.rpc("/filesystem.Filesystem/Stat", json!({ "path": "/" })).await.status, 401);
    assert_eq!(root.send("GET", "/files?path=/etc/passwd", "").await.status, 401);
    assert_eq!(inside.send("GET", "/files?path=/etc/passwd&username=root", "").await.status, 401);
    let user = inside.with("authorization", &format!("Basic {}", STANDARD.encode("user:")));
    assert_eq!(user.rpc("/filesystem.Filesystem/Stat", json!({ "path": "/" })).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_inside_answers_without_its_token() {
    let (_stage, caller, inside, made) = sandbox().await;
    let other = caller.json("POST", "/v2/sandboxes", json!({ "templateID": "base" })).await.json();
    let stranger = inside.with("x-access-token", other["envdAccessToken"].as_str().unwrap());
    let keyed = Caller { headers: [caller.headers.clone(), inside.headers[..2].to_vec()].concat(), ..inside.clone() };
    for caller in [&stranger, &keyed, &inside.with("x-access-token", "")] {
        assert_eq!(caller.json("GET", "/health", Value::Null).await.status, 204);
        assert_eq!(caller.rpc("/filesystem.Filesystem/Stat", json!({ "path": "/" })).await.status, 401);
        assert_eq!(caller.send("GET", "/files?path=/etc/passwd", "").await.status, 401);
        assert_eq!(caller.json("GET", "/envs", Value::Null).await.status, 401);
    }
    for path in ["/init", "/freeze", "/upgrade", "/nothing"] {
        assert_eq!(inside.json("POST", path, json!({})).await.status, 404, "{path}");
    }
    let id = made["sandboxID"].as_str().unwrap();
    let missing = Caller { headers: vec![("e2b-sandbox-id".to_owned(), id.to_owned())], ..inside.clone() };
    assert_eq!(missing.json("GET", "/health", Value::Null).await.status, 400);
    let unknown = inside.with("e2b-sandbox-id", "aaaaaaaaaaaaaaaaaaaa");
    assert_eq!(unknown.json("GET", "/health", Value::Null).await.status, 502);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_written_and_read() {
    let (stage, _, inside, _) = sandbox().await;
    let bytes: Vec<u8> = (0..300_000_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
    let raw = inside.with("content-type", "application/octet-stream").with("x-metadata-Kind", "test");
    let written = raw.send("POST", "/files?path=a/b.bin", bytes.clone()).await;
    assert_eq!(written.status, 200, "{}", String::from_utf8_lossy(&written.body));
    let path = stage.home.join("a/b.bin");
    assert_eq!(written.json()[0]["path"], path.to_str().unwrap());
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    let read = inside.send("GET", "/files?path=a/b.bin", "").await;
    assert!(read.status == 200 && read.body == bytes);
    assert_eq!(read.header("content-length"), "300000");
    let part = inside.with("range", "bytes=10-19").send("GET", "/files?path=a/b.bin", "").await;
    assert_eq!((part.status, part.header("content-range")), (206, "bytes 10-19/300000"));
    assert_eq!(part.body, bytes[10..20]);
    // Of a file that changed meanwhile no part is one of what its reader has.
    let changed = read.header("last-modified");
    let part = |known: &str| inside.with("range", "bytes=10-19").with("if-range", known);
    assert_eq!(part(changed).send("GET", "/files?path=a/b.bin", "").await.status, 206);
    assert_eq!(part("Sun, 06 Nov 1994 08:49:37 GMT").send("GET", "/files?path=a/b.bin", "").await.status, 200);
    let known = inside.with("if-modified-since", changed).send("GET", "/files?path=a/b.bin", "").await;
    assert_eq!((known.status, known.body.len()), (304, 0));
    let packed = inside.with("accept-encoding", "gzip, identity;q=0").send("GET", "/files?path=a/b.bin", "").await;
    assert_eq!((packed.status, packed.header("content-encoding")), (200, "gzip"));
    let mut unpacked = Vec::new();
    std::io::copy(&mut flate2::read::GzDecoder::new(&packed.body[..]), &mut unpacked).unwrap();
    assert_eq!(unpacked, bytes);
    let none = inside.with("accept-encoding", "br, *;q=0").send("GET", "/files?path=a/b.bin", "").await;
    assert_eq!(none.status, 406);
    let missing = inside.send("GET", "/files?path=none", "").await;
    assert_eq!((missing.status, missing.json()["code"].clone()), (404, json!(404)));
    assert_eq!(inside.send("GET", "/files?path=a", "").await.status, 400);
    let proc = inside.send("GET", "/files?path=/proc/sys/kernel/random/boot_id", "").await;
    assert_eq!(proc.body.len(), 37);
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_of_an_upload_are_named_by_their_whole_paths() {
    let (stage, _, inside, _) = sandbox().await;
    let full = stage.home.join("deep/two.txt");
    let body = format!(
        "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"one.txt\"\r\n\r\n1\r\n--b\r\n\
         Content-Disposition: form-data; name=\"file\"; filename=\"{}\"\r\n\r\n2\r\n--b--\r\n",
        full.display()
    );
    let form = inside.with("content-type", "multipart/form-data; boundary=b");
    let written = form.send("POST", "/files", body.clone()).await;
    assert_eq!(written.status, 200, "{}", String::from_utf8_lossy(&written.body));
    assert_eq!(std::fs::read_to_string(stage.home.join("one.txt")).unwrap(), "1");
    assert_eq!(std::fs::read_to_string(&full).unwrap(), "2");
    let twice = body.replace(full.to_str().unwrap(), "one.txt");
    assert_eq!(form.send("POST", "/files", twice).await.status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signed_address_opens_one_file() {
    let (stage, _, inside, made) = sandbox().await;
    std::fs::write(stage.home.join("s.txt"), "signed").unwrap();
    let token = made["envdAccessToken"].as_str().unwrap();
    let signature = |text: String| {
        let digest = <sha2::Sha256 as sha2::Digest>::digest(text.as_bytes());
        let encoded = base64::engine::general_purpose::STANDARD_NO_PAD.encode(digest);
        let query = [("signature", format!("v1_{encoded}"))];
        url::form_urlencoded::Serializer::new(String::new()).extend_pairs(query).finish()
    };
    let good = signature(format!("s.txt:read::{token}"));
    let nobody = Caller { headers: Vec::new(), ..inside.clone() };
    let read = nobody.send("GET", &format!("/files?path=s.txt&{good}"), "").await;
    assert_eq!((read.status, &read.body[..]), (200, &b"signed"[..]));
    assert_eq!(nobody.send("GET", &format!("/files?path=other&{good}"), "").await.status, 401);
    assert_eq!(nobody.send("POST", &format!("/files?path=s.txt&{good}"), "").await.status, 401);
    let late = signature(format!("s.txt:read::{token}:1000"));
    let late = format!("/files?path=s.txt&signature_expiration=1000&{late}");
    // Also where the signature is all that says whose file it is.
    for caller in [&nobody, &inside.with("x-access-token", "")] {
        let told = Caller { headers: caller.headers.iter().take(2).cloned().collect(), ..nobody.clone() };
        let refused = told.send("GET", &late, "").await;
        let words = json!({ "code": 401, "message": "signature is already expired" });
        assert_eq!((refused.status, refused.json()), (401, words));
    }
    assert_eq!(nobody.send("GET", "/files?path=s.txt", "").await.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_are_made_listed_moved_and_removed() {
    let (stage, _, inside, _) = sandbox().await;
    let rpc = |method: &str, message: Value| {
        let (inside, method) = (inside.clone(), format!("/filesystem.Filesystem/{method}"));
        async move { inside.rpc(&method, message).await }
    };
    let made = rpc("MakeDir", json!({ "path": "d/e" })).await.json();
    assert_eq!(made["entry"]["type"], "FILE_TYPE_DIRECTORY");
    let again = rpc("MakeDir", json!({ "path": "d/e" })).await;
    assert_eq!((again.status, again.json()["code"].clone()), (409, json!("already_exists")));
    std::fs::write(stage.home.join("d/f"), "x").unwrap();
    assert_eq!(rpc("MakeDir", json!({ "path": "d/f" })).await.status, 400);
    let names = |listed: &Value| -> Vec<String> {
        listed["entries"].as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&rpc("ListDir", json!({ "path": "d" })).await.json()), ["e", "f"]);
    std::fs::write(stage.home.join("d/e/deep"), "x").unwrap();
    assert_eq!(names(&rpc("ListDir", json!({ "path": "d", "depth": 2 })).await.json()), ["e", "deep", "f"]);
    std::fs::remove_file(stage.home.join("d/e/deep")).unwrap();
    assert_eq!(rpc("ListDir", json!({ "path": "d/f" })).await.json()["code"], "invalid_argument");
    assert_eq!(rpc("ListDir", json!({ "path": "none" })).await.status, 404);
    let moved = rpc("Move", json!({ "source": "d/f", "destination": "g/h" })).await.json();
    assert_eq!(moved["entry"]["path"], stage.home.join("g/h").to_str().unwrap());
    assert_eq!(rpc("Stat", json!({ "path": "d/f" })).await.status, 404);
    assert_eq!(rpc("Remove", json!({ "path": "d" })).await.json(), json!({}));
    assert_eq!(rpc("Remove", json!({ "path": "d" })).await.json(), json!({}), "what is gone is gone");
    assert!(!stage.home.join("d").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn watchers_tell_what_changed_since_they_were_asked() {
    let (stage, _, inside, _) = sandbox().await;
    let rpc = |method: &str, message: Value| {
        let (inside, method) = (inside.clone(), format!("/filesystem.Filesystem/{method}"));
        async move { inside.rpc(&method, message).await }
    };
    let watcher = rpc("CreateWatcher", json!({ "path": "~", "includeEntry": true })).await.json()["watcherId"].clone();
    std::fs::write(stage.home.join("new.txt"), "x").unwrap();
    let mut seen = Vec::new();
    for _ in 0..100 {
        let events = rpc("GetWatcherEvents", json!({ "watcherId": watcher })).await.json();
        seen.extend(events["events"].as_array().unwrap().clone());
        if seen.iter().any(|event| event["type"] == "EVENT_TYPE_WRITE") {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let created = seen.iter().find(|event| event["type"] == "EVENT_TYPE_CREATE").unwrap();
    assert_eq!((&created["name"], &created["entry"]["type"]), (&json!("new.txt"), &json!("FILE_TYPE_FILE")));
    assert_eq!(rpc("RemoveWatcher", json!({ "watcherId": watcher })).await.status, 200);
    assert_eq!(rpc("GetWatcherEvents", json!({ "watcherId": watcher })).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_breaks_off_when_its_sandbox_is_killed_or_paused() {
    for method in ["DELETE", "POST"] {
        let (_stage, caller, inside, made) = sandbox().await;
        let path = format!(
            "/sandboxes/{}{}",
            made["sandboxID"].as_str().unwrap(),
            if method == "POST" { "/pause" } else { "" }
        );
        let following =
            tokio::spawn(async move { inside.events("/process.Process/Start", bash("echo up; sleep 20")).await });
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        let begun = std::time::Instant::now();
        assert_eq!(caller.json(method, &path, Value::Null).await.status, 204);
        let (events, end) = following.await.unwrap();
        assert_eq!(output(&events, "stdout"), "up\n");
        assert!(end.is_err(), "{method}: {end:?}");
        assert!(begun.elapsed() < std::time::Duration::from_secs(5), "{method}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_cut_off_by_a_kill_finds_the_sandbox_gone_while_it_ends() {
    let mut kept = None;
    let stage = stage_over(|folder| {
        kept = Some(BlockingSandboxes::over(folder));
        kept.clone().unwrap()
    })
    .await;
    let (held, caller) = (kept.unwrap(), Caller::new(&stage, "one"));
    let made = caller.json("POST", "/v2/sandboxes", json!({ "templateID": "base" })).await.json();
    let (inside, path) = (caller.inside(&made), format!("/sandboxes/{}", made["sandboxID"].as_str().unwrap()));
    let follower = inside.clone();
    let following = tokio::spawn(async move { follower.events("/process.Process/Start", bash("sleep 20")).await });
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    held.hold();
    let killing = tokio::spawn(async move { caller.json("DELETE", &path, Value::Null).await.status });
    assert!(following.await.unwrap().1.is_err(), "it is cut off before the sandbox is asked to end");
    for port in ["49983", "49999"] {
        let health = inside.with("e2b-sandbox-port", port).json("GET", "/health", Value::Null).await;
        assert_eq!((health.status, &health.json()["message"]), (502, &json!("The sandbox was not found")), "{port}");
    }
    held.let_go();
    assert_eq!(killing.await.unwrap(), 204);
    assert_eq!(inside.json("GET", "/health", Value::Null).await.status, 502);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ends_with_the_life_of_its_sandbox_is_cut_off_and_has_no_end_of_its_own() {
    let (_stage, caller, _, _) = sandbox().await;
    let made = caller.json("POST", "/v2/sandboxes", json!({ "templateID": "base", "timeout": 1 })).await.json();
    let inside = caller.inside(&made);
    let (events, end) = inside.events("/process.Process/Start", bash("echo up; sleep 20")).await;
    assert_eq!(output(&events, "stdout"), "up\n");
    assert!(end.is_err() && events.iter().all(|event| event["event"]["end"].is_null()), "{events:?} {end:?}");
    assert_eq!(inside.json("GET", "/health", Value::Null).await.status, 502);
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_are_reached_by_name_and_by_headers() {
    let (_stage, caller, inside, made) = sandbox().await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let app = axum::Router::new().fallback(|request: axum::extract::Request| async move {
        if request.uri().path() == "/keys" {
            let keys = ["x-api-key", "authorization"].iter().filter_map(|name| request.headers().get(*name));
            return format!("{:?}", keys.collect::<Vec<_>>());
        }
        let host = request.headers()["host"].to_str().unwrap().to_owned();
        let token = request.headers().contains_key("x-access-token");
        format!("{} {} {host} {token}", request.method(), request.uri())
    });
    listener.set_nonblocking(true).unwrap();
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    let by_headers = inside.with("e2b-sandbox-port", &port.to_string());
    let answer = by_headers.send("PUT", "/x/y?z=1", "body").await;
    let body = String::from_utf8(answer.body).unwrap();
    assert!(answer.status == 200 && body.starts_with("PUT /x/y?z=1 127.0.0.1") && body.ends_with("false"), "{body}");
    let name = format!("{port}-{}.localhost", made["sandboxID"].as_str().unwrap());
    let by_name = Caller { headers: vec![("host".to_owned(), name.clone())], ..inside.clone() };
    let answer = by_name.send("GET", "/", "").await;
    assert_eq!(String::from_utf8(answer.body).unwrap(), format!("GET / {name} false"));
    // Whoever sends more than he has to shows no key of ours to the program, and keys of the program's own go through.
    let key = caller.headers[0].1.clone();
    let keys = by_headers.with("x-api-key", &key).with("authorization", &format!("Bearer {key}"));
    assert_eq!(keys.send("GET", "/keys", "").await.body, b"[]");
    let theirs = by_headers.with("x-api-key", "theirs").with("authorization", "Basic YTpi");
    assert_eq!(theirs.send("GET", "/keys", "").await.body, b"[\"theirs\", \"Basic YTpi\"]");
    let closed = inside.with("e2b-sandbox-port", "1").send("GET", "/", "").await;
    assert_eq!(
        (closed.status, &closed.json()["message"]),
        (502, &json!("The sandbox is running but port is not open"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_ends_with_its_connection_ends_outside_too() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let (_stage, _, inside, _) = sandbox().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut io, _) = listener.accept().await.unwrap();
        assert!(io.read(&mut [0; 4096]).await.unwrap() > 0);
        io.write_all(b"HTTP/1.0 200 OK\r\n\r\nno length").await.unwrap();
    });
    let caller = inside.with("e2b-sandbox-port", &port.to_string());
    let answer = tokio::time::timeout(std::time::Duration::from_secs(20), caller.send("GET", "/", "")).await;
    assert_eq!(answer.expect("it does not end").body, b"no length");
}
