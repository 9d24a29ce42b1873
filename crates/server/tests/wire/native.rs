//! `/v1`.

use serde_json::{Value, json};

use crate::stage::{Caller, stage};

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_is_created_worked_in_and_ended() {
    let stage = stage().await;
    let caller = Caller::new(&stage, "one");
    let made =
        caller.json("POST", "/v1/sandboxes", json!({ "name": "box", "timeout": "5m", "labels": { "a": "b" } })).await;
    assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
    let made = made.json();
    assert_eq!(
        (&made["name"], &made["labels"], &made["state"]),
        (&json!("box"), &json!({ "a": "b" }), &json!("running"))
    );
    let path = format!("/v1/sandboxes/{}", made["id"].as_str().unwrap());
    let run =
        json!({ "cmd": ["sh", "-c", "cat; echo $X >&2; exit 7"], "stdin": "in", "env": { "X": "e" }, "timeout": 10 });
    let ran = caller.json("POST", &format!("{path}/exec"), run).await.json();
    assert_eq!((&ran["stdout"], &ran["stderr"], &ran["report"]["code"]), (&json!("in"), &json!("e\n"), &json!(7)));
    let events = caller.with("accept", "text/event-stream");
    let events = events.json("POST", &format!("{path}/exec"), json!({ "cmd": ["echo", "hi"] })).await;
    let text = String::from_utf8(events.body).unwrap();
    let names: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    assert_eq!(names, ["started", "stdout", "ended"], "{text}");
    assert_eq!(caller.send("PUT", &format!("{path}/files?path=f.txt"), "content").await.status, 200);
    assert_eq!(caller.send("GET", &format!("{path}/files?path=f.txt"), "").await.body, b"content");
    assert_eq!(caller.send("DELETE", &format!("{path}/files?path=f.txt"), "").await.status, 200);
    assert_eq!(caller.send("GET", &format!("{path}/files?path=f.txt"), "").await.status, 404);
    assert_eq!(caller.json("POST", &format!("{path}/pause"), Value::Null).await.json()["state"], "paused");
    assert_eq!(caller.json("POST", &format!("{path}/exec"), json!({ "cmd": ["true"] })).await.status, 409);
    assert_eq!(
        caller.json("POST", &format!("{path}/resume"), json!({ "timeout": 60 })).await.json()["state"],
        "running"
    );
    let ended = caller.json("DELETE", &path, Value::Null).await.json();
    assert_eq!((&ended["state"], &ended["reason"]), (&json!("ended"), &json!("killed")));
    for (method, rest) in [("POST", "/exec"), ("POST", "/fork"), ("GET", "/files?path=x")] {
        let over = caller.json(method, &format!("{path}{rest}"), Value::Null).await;
        assert_eq!((over.status, &over.json()["id"]), (404, &json!("serve/ended")), "{rest}");
    }
    assert_eq!(caller.json("GET", &path, Value::Null).await.json()["state"], "ended");
    assert_eq!(caller.json("GET", "/v1/sandboxes", Value::Null).await.json(), json!({ "sandboxes": [] }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_problem_says_what_why_and_what_instead() {
    let stage = stage().await;
    let caller = Caller::new(&stage, "one");
    let refused = caller.json("POST", "/v1/sandboxes", json!({ "policy": { "limits": { "memry": "1G" } } })).await;
    assert_eq!((refused.status, refused.header("content-type")), (400, "application/problem+json"));
    let json = refused.json();
    for part in ["id", "what", "why", "instead", "title", "status", "type"] {
        assert!(!json[part].is_null(), "{part}: {json}");
    }
    assert_eq!(json["refused"].as_array().unwrap().len(), 1);
    assert_eq!(caller.json("POST", "/v1/sandboxes", json!({ "polcy": "strict" })).await.status, 400);
    let document = caller.json("GET", "/v1/openapi.json", Value::Null).await.json();
    assert_eq!(document["openapi"], "3.1.0");
}

async fn made(caller: &Caller, body: Value) -> String {
    let made = caller.json("POST", "/v1/sandboxes", body).await;
    assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
    format!("/v1/sandboxes/{}", made.json()["id"].as_str().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_listed_moved_packed_and_watched() {
    let stage = stage().await;
    let caller = Caller::new(&stage, "one");
    let path = made(&caller, json!({ "name": "box" })).await;
    let at = |rest: &str| format!("{path}/files{rest}");
    assert_eq!(caller.send("PUT", &at("?path=d/a.txt&mode=600"), "content").await.status, 200);
    let entry = caller.send("GET", &at("/stat?path=d/a.txt"), "").await.json();
    assert_eq!((&entry["kind"], &entry["size"], &entry["mode"]), (&json!("file"), &json!(7), &json!(0o600)));
    assert_eq!(caller.send("PUT", &at("?path=x&mode=4755"), "").await.status, 400);
    assert_eq!(caller.json("POST", &at("/mkdir"), json!({ "path": "d/e" })).await.json()["kind"], "dir");
    let moved = caller.json("POST", &at("/move"), json!({ "from": "d/a.txt", "to": "d/e/b.txt" })).await;
    assert_eq!(moved.status, 200, "{}", String::from_utf8_lossy(&moved.body));
    let names = |listed: &Value| -> Vec<String> {
        listed["entries"].as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap().to_owned()).collect()
    };
    let listed = caller.send("GET", &at("/list?path=d&depth=2"), "").await.json();
    assert_eq!(names(&listed), ["e", "b.txt"]);
    // A name stands for the id.
    let named = caller.send("GET", "/v1/sandboxes/box/files/list?path=d", "").await.json();
    assert_eq!(names(&named), ["e"]);
    let tar = caller.send("GET", &at("/archive?path=d"), "").await;
    assert_eq!(tar.header("content-type"), "application/x-tar");
    assert_eq!(caller.send("PUT", &at("/archive?path=copy"), tar.body).await.json()["taken"], 3);
    assert_eq!(caller.send("GET", &at("?path=copy/d/e/b.txt"), "").await.body, b"content");
    assert_eq!(caller.send("GET", &at("/archive?path=nothing"), "").await.status, 404);
    let mut watched = caller.request("GET", &at("/watch?path=d&recursive=true"), "").send().await.unwrap();
    let mut text = String::new();
    while !text.contains("event: change") {
        text.push_str(std::str::from_utf8(&watched.chunk().await.unwrap().unwrap()).unwrap());
        if text.contains("event: watching") && !text.contains("event: change") {
            assert_eq!(caller.send("PUT", &at("?path=d/new.txt"), "x").await.status, 200);
        }
    }
    // A folder that goes says so.
    assert_eq!(caller.send("DELETE", &at("?path=d"), "").await.status, 200);
    while !text.contains(r#"{"what":"remove","name":""}"#) && !text.contains(r#"{"name":"","what":"remove"}"#) {
        text.push_str(std::str::from_utf8(&watched.chunk().await.unwrap().unwrap()).unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_of_a_file_is_texts_or_is_refused() {
    let stage = stage().await;
    let caller = Caller::new(&stage, "one");
    let path = made(&caller, json!({})).await;
    let written = |text: &str| format!("{path}/files?path=m&metadata={text}");
    for bad in ["x", "%5B%5D", "%7B%22a%22:1%7D"] {
        let refused = caller.send("PUT", &written(bad), "x").await;
        assert_eq!((refused.status, &refused.json()["clause"]), (400, &json!("metadata")), "{bad}");
    }
    let answer = caller.send("PUT", &written("%7B%22Key%22:%22%C3%A4%22%7D"), "x").await;
    // Where the file system of the tests keeps no attributes of users, that is said.
    assert!(answer.status == 501 || answer.json()["metadata"] == json!({ "Key": "ä" }), "{}", answer.status);
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_of_changes_that_are_no_text_are_bytes_and_nonsense_is_none() {
    let stage = stage().await;
    let caller = Caller::new(&stage, "one");
    let path = made(&caller, json!({})).await;
    assert_eq!(caller.send("DELETE", &path, "").await.status, 200);
    let all = caller.send("GET", &format!("{path}/changes?path=a&path=%FF"), "").await;
    assert_eq!((all.status, &all.json()["entries"]), (200, &json!([])));
    let refused = caller.send("GET", &format!("{path}/changes?path=a%00x"), "").await;
    assert_eq!((refused.status, &refused.json()["clause"]), (400, &json!("path")));
    let discard = format!("{path}/changes/discard");
    for bad in [json!("a"), json!([7]), json!([{ "hex": "x" }])] {
        let refused = caller.json("POST", &discard, json!({ "paths": bad })).await;
        assert_eq!((refused.status, &refused.json()["clause"]), (400, &json!("paths")));
    }
    // Read, and nothing is there of it.
    assert_eq!(caller.json("POST", &discard, json!({ "paths": ["a", { "hex": "ff" }] })).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_are_written_to_signalled_and_their_logs_kept() {
    let stage = stage().await;
    let caller = Caller::new(&stage, "one");
    let path = made(&caller, json!({})).await;
    let started = json!({ "cmd": ["cat"], "stdin": true, "detach": true, "tag": "echo" });
    let started = caller.json("POST", &format!("{path}/exec"), started).await;
    assert_eq!(started.status, 202);
    let word = started.json()["id"].as_str().unwrap().to_owned();
    let of = |word: &str, rest: &str| format!("{path}/processes/{word}/{rest}");
    assert_eq!(caller.send("POST", &of(&word, "stdin"), "one\n").await.json()["written"], 4);
    let last = vec![b'x'; 300_000];
    assert_eq!(caller.send("POST", &of("tag:echo", "stdin?close=true"), last).await.status, 200);
    let logs = caller.send("GET", &of(&word, "logs?follow=true"), "").await.json();
    assert_eq!(logs["stdout"].as_str().unwrap().len(), 300_004);
    let listed = caller.send("GET", &format!("{path}/processes"), "").await.json();
    assert_eq!(listed["programs"][0]["report"]["code"], 0);
    // Who comes later hears what comes from then on, and how it ends.
    let reads = json!({ "cmd": ["sh", "-c", "echo before; read x; echo $x; exit 3"], "stdin": true, "detach": true });
    let reads = caller.json("POST", &format!("{path}/exec"), reads).await.json()["id"].as_str().unwrap().to_owned();
    let events = caller.with("accept", "text/event-stream");
    let mut logs = events.request("GET", &of(&reads, "logs?follow=true"), "").send().await.unwrap();
    assert!(logs.chunk().await.unwrap().unwrap().starts_with(b"event: stdout\n"), "it has printed its first line");
    let mut attached = caller.request("GET", &of(&reads, "attach"), "").send().await.unwrap();
    let mut text = String::from_utf8(attached.chunk().await.unwrap().unwrap().to_vec()).unwrap();
    assert_eq!(caller.send("POST", &of(&reads, "stdin"), "later\n").await.status, 200);
    while let Some(chunk) = attached.chunk().await.unwrap() {
        text.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    let names: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    assert_eq!(names, ["started", "stdout", "ended"], "{text}");
    // `later` and a newline.
    assert!(text.contains("bGF0ZXIK") && text.contains("\"code\":3") && text.contains("\"argv\""), "{text}");
    assert_eq!(caller.send("GET", &of("999999", "attach"), "").await.status, 404);
    let sleeps = json!({ "cmd": ["sleep", "60"], "detach": true });
    let pid = caller.json("POST", &format!("{path}/exec"), sleeps).await.json()["pid"].to_string();
    assert_eq!(caller.json("POST", &of(&pid, "resize"), json!({ "rows": 5 })).await.status, 400);
    assert_eq!(caller.json("POST", &of(&pid, "signal"), json!({ "signal": "KILL" })).await.status, 200);
    let text = events.send("GET", &of(&pid, "logs?follow=true"), "").await.body;
    assert!(String::from_utf8(text).unwrap().contains("event: ended"));
    let again = caller.json("POST", &of(&pid, "signal"), json!({ "signal": 9 })).await;
    assert_eq!(again.status, 404);
    for (rest, body) in [("signal", json!({ "signal": "NOPE" })), ("signal", json!({ "sgnal": 9 }))] {
        assert_eq!(caller.json("POST", &of("p1", rest), body).await.status, 400);
    }
    assert_eq!(caller.send("GET", &of("nobody", "logs"), "").await.status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_is_told_until_the_end_and_what_cannot_be_held_is_refused() {
    let stage = stage().await;
    let caller = Caller::new(&stage, "one");
    let path = made(&caller, json!({})).await;
    let once = caller.send("GET", &format!("{path}/usage"), "").await.json();
    assert_eq!((&once["usage"]["cpu_user"], &once["state"]), (&json!(0.5), &json!("running")));
    let events = caller.with("accept", "text/event-stream");
    let mut told = events.request("GET", &format!("{path}/usage?every=0.2"), "").send().await.unwrap();
    assert!(told.chunk().await.unwrap().unwrap().starts_with(b"event: usage\n"));
    assert_eq!(events.send("GET", &format!("{path}/usage?every=0.01"), "").await.status, 400);
    // This stage has no layers: what is asked for is refused, and says why.
    for (method, rest, body) in [
        ("GET", "changes", Value::Null),
        ("POST", "changes/apply", json!({})),
        ("POST", "changes/apply", json!({ "a": 1 })),
    ] {
        let refused = caller.json(method, &format!("{path}/{rest}"), body).await;
        assert!(matches!(refused.status, 400 | 501), "{rest}: {}", String::from_utf8_lossy(&refused.body));
    }
    assert_eq!(caller.json("POST", &format!("{path}/changes/discard"), json!({})).await.status, 409);
    assert_eq!(caller.send("DELETE", &path, "").await.status, 200);
    let ended = caller.send("GET", &format!("{path}/changes"), "").await.json();
    assert_eq!(ended["entries"], json!([]));
    assert_eq!(caller.json("POST", &format!("{path}/changes/discard"), json!({})).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_inside_is_reached_and_its_answers_are_no_pages_of_ours() {
    let stage = stage().await;
    let caller = Caller::new(&stage, "one");
    let path = made(&caller, json!({})).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let (mut io, _) = listener.accept().await.unwrap();
        let mut head = vec![0; 4096];
        let count = io.read(&mut head).await.unwrap();
        let head = String::from_utf8_lossy(&head[..count]).to_lowercase();
        let answer = format!("{}|{}", head.lines().next().unwrap(), head.contains("e2b_") || head.contains("cookie"));
        let text = format!(
            "HTTP/1.1 200 OK\r\nset-cookie: a=b\r\ncontent-type: text/html\r\ncontent-length: {}\r\n\r\n{answer}",
            answer.len()
        );
        io.write_all(text.as_bytes()).await.unwrap();
    });
    let browser = caller.with("cookie", "secret=1");
    let answer = browser.send("GET", &format!("{path}/ports/{port}/a%2Fb/c?d=e"), "").await;
    assert_eq!(String::from_utf8_lossy(&answer.body), "get /a%2fb/c?d=e http/1.1|false");
    assert_eq!((answer.header("set-cookie"), answer.header("content-security-policy")), ("", "sandbox"));
    for (port, status) in [("0", 400), ("x", 400), ("1", 502)] {
        assert_eq!(caller.send("GET", &format!("{path}/ports/{port}/"), "").await.status, status, "{port}");
    }
    let ports = caller.send("GET", &format!("{path}/ports"), "").await.json();
    assert!(ports["ports"].as_array().unwrap().iter().any(|one| one["path"].as_str().unwrap().starts_with(&path)));
}

#[tokio::test(flavor = "multi_thread")]
async fn code_without_a_kernel_is_refused_in_the_terms_of_the_interface() {
    let stage = stage().await;
    let caller = Caller::new(&stage, "one");
    let path = made(&caller, json!({})).await;
    assert_eq!(caller.send("GET", &format!("{path}/contexts"), "").await.json(), json!({ "contexts": [] }));
    for (body, status) in [
        (json!({}), 400),
        (json!({ "code": "1", "langauge": "python" }), 400),
        (json!({ "code": "1", "context": "none" }), 404),
        (json!({ "code": "x".repeat(300_000) }), 413),
    ] {
        let answer = caller.json("POST", &format!("{path}/code"), body.clone()).await;
        assert_eq!(answer.status, status, "{}", String::from_utf8_lossy(&answer.body));
        assert_eq!(answer.header("content-type"), "application/problem+json");
    }
    assert_eq!(caller.send("DELETE", &format!("{path}/contexts/none"), "").await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_a_sandbox_that_ends_with_its_program() {
    let stage = stage().await;
    let caller = Caller::new(&stage, "one");
    let body = json!({ "cmd": ["sh", "-c", "cat; echo err >&2; exit 3"], "stdin": "in", "timeout": 10 });
    let ran = caller.json("POST", "/v1/runs", body.clone()).await.json();
    assert_eq!(
        (&ran["stdout"], &ran["report"]["code"], &ran["sandbox"]["state"]),
        (&json!("in"), &json!(3), &json!("ended"))
    );
    let events = caller.with("accept", "text/event-stream").json("POST", "/v1/runs", body.clone()).await;
    let text = String::from_utf8(events.body).unwrap();
    let names: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    assert_eq!((names[0], &names[names.len() - 2..]), ("started", &["exited", "ended"][..]), "{text}");
    assert_eq!(caller.json("GET", "/v1/sandboxes", Value::Null).await.json()["sandboxes"], json!([]));
    for bad in [json!({ "cmd": [] }), json!({ "cmd": ["true"], "detach": true }), json!({})] {
        assert_eq!(caller.json("POST", "/v1/runs", bad).await.status, 400);
    }
    assert_eq!(caller.with("idempotency-key", "a").json("POST", "/v1/runs", body).await.status, 400);
    // Who hangs up ends it.
    let long = json!({ "cmd": ["sleep", "60"] });
    let mut hung =
        caller.with("accept", "text/event-stream").request("POST", "/v1/runs", long.to_string()).send().await.unwrap();
    hung.chunk().await.unwrap();
    assert_eq!(caller.json("GET", "/v1/sandboxes", Value::Null).await.json()["sandboxes"].as_array().unwrap().len(), 1);
    drop(hung);
    while !caller.json("GET", "/v1/sandboxes", Value::Null).await.json()["sandboxes"].as_array().unwrap().is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_says_who_holds_what_and_starts_nothing() {
    let stage = stage().await;
    let caller = Caller::new(&stage, "one");
    let refused = caller.json("POST", "/v1/plan", json!({ "policy": { "limits": { "memry": "1G" } } })).await;
    assert_eq!(refused.status, 400);
    let beyond = caller.json("POST", "/v1/plan", json!({ "policy": { "env": { "pass": ["LANG"] } } })).await;
    assert_eq!((beyond.status, &beyond.json()["clause"]), (403, &json!("env.pass")));
    // On that tier files of the host are changed that nobody granted: a ceiling says so, or it is not had.
    let beyond = caller.json("POST", "/v1/plan", json!({ "policy": { "tier": "process" } })).await;
    assert_eq!((beyond.status, &beyond.json()["clause"]), (403, &json!("tier")));
    let plan = caller.json("POST", "/v1/plan", json!({ "policy": { "limits": { "memory": "1G" } } })).await;
    // Whether this host can hold it or not: an answer, with clauses.
    match plan.status {
        200 => assert!(plan.json()["clauses"].as_array().is_some_and(|clauses| !clauses.is_empty()), "{}", plan.json()),
        400 => assert!(!plan.json()["refused"].as_array().unwrap().is_empty()),
        other => panic!("{other}: {}", String::from_utf8_lossy(&plan.body)),
    }
    assert_eq!(caller.json("GET", "/v1/sandboxes?all=true", Value::Null).await.json()["sandboxes"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_is_of_its_key_and_refused_where_nothing_can_be_kept() {
    let stage = stage().await;
    let caller = Caller::new(&stage, "one");
    let path = made(&caller, json!({})).await;
    for route in ["snapshots", "fork"] {
        let refused = caller.json("POST", &format!("{path}/{route}"), json!({})).await;
        assert_eq!(refused.status, 501, "{}", String::from_utf8_lossy(&refused.body));
    }
    assert_eq!(caller.json("POST", &format!("{path}/fork"), json!({ "count": 21 })).await.status, 400);
    assert_eq!(caller.send("GET", "/v1/snapshots", "").await.json(), json!({ "snapshots": [] }));
    assert_eq!(caller.send("DELETE", "/v1/snapshots/0123456789abcdef0123", "").await.status, 404);
    assert_eq!(caller.json("POST", "/v1/sandboxes", json!({ "from": "none" })).await.status, 404);
    let both = caller.json("POST", "/v1/sandboxes", json!({ "from": "a", "template": "base" })).await;
    assert_eq!(both.status, 400);
    let templates = caller.send("GET", "/v1/templates", "").await.json();
    assert_eq!(templates["templates"][0], "base");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_request_that_changes_something_is_recorded_for_its_key_alone() {
    let stage = stage().await;
    let (caller, other) = (Caller::new(&stage, "one"), Caller::new(&stage, "other"));
    let path = made(&caller, json!({})).await;
    assert_eq!(caller.send("PUT", &format!("{path}/files?path=secret-name"), "x").await.status, 200);
    assert_eq!(caller.send("GET", &format!("{path}/files?path=secret-name"), "").await.status, 200);
    assert_eq!(caller.send("DELETE", &format!("{path}/files?path=none"), "").await.status, 404);
    let e2b = caller.json("POST", "/v2/sandboxes", json!({ "templateID": "base" })).await.json();
    let inside = caller.inside(&e2b);
    assert_eq!(inside.rpc("/filesystem.Filesystem/MakeDir", json!({ "path": "d" })).await.status, 200);
    assert_eq!(inside.rpc("/filesystem.Filesystem/Stat", json!({ "path": "d" })).await.status, 200);
    let kernel = "/api/kernels/01234567-89ab-cdef-0123-456789abcdef";
    assert_eq!(caller.send("DELETE", kernel, "").await.status, 404);
    assert_eq!(caller.send("GET", kernel, "").await.status, 404);
    let seen = async |caller: &Caller| -> Vec<(String, u64)> {
        let told = caller.send("GET", "/v1/audit", "").await.json();
        let requests = told["events"].as_array().unwrap().iter().filter(|event| event["kind"] == "server.request");
        let told: Vec<_> = requests.map(|event| event["body"].clone()).collect();
        assert!(!format!("{told:?}").contains("secret-name"), "what is in a query is not recorded");
        told.iter().map(|body| (body["route"].as_str().unwrap().to_owned(), body["status"].as_u64().unwrap())).collect()
    };
    let expected = [
        ("/v1/sandboxes", 201),
        ("/v1/sandboxes/{id}/files", 200),
        ("/v1/sandboxes/{id}/files", 404),
        ("/v2/sandboxes", 201),
        ("/filesystem.Filesystem/MakeDir", 200),
        ("/api/kernels/{kernel}", 404),
    ];
    assert_eq!(seen(&caller).await, expected.map(|(route, status)| (route.to_owned(), status)));
    assert_eq!(seen(&other).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_hangs_up_before_the_answer_is_recorded_as_well() {
    let stage = stage().await;
    let caller = Caller::new(&stage, "one");
    let path = made(&caller, json!({})).await;
    let body = json!({ "cmd": ["sleep", "20"] }).to_string();
    let asked = caller.request("POST", &format!("{path}/exec"), body).header("content-type", "application/json");
    assert!(asked.timeout(std::time::Duration::from_millis(300)).send().await.is_err());
    for _ in 0..100 {
        let told = caller.send("GET", "/v1/audit", "").await.json();
        let is_exec = |event: &Value| event["body"]["route"] == "/v1/sandboxes/{id}/exec";
        if let Some(event) = told["events"].as_array().unwrap().iter().find(|event| is_exec(event)) {
            assert_eq!(event["body"]["status"], 499);
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("no event of it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_word_of_a_query_that_nobody_knows_is_refused_by_name() {
    let stage = stage().await;
    let caller = Caller::new(&stage, "one");
    let path = made(&caller, json!({})).await;
    for (method, path, word, known) in [
        ("GET", "/v1/sandboxes?al=true".to_owned(), "al", "`all`"),
        ("POST", "/v1/sandboxes?name=x".to_owned(), "name", "leave it out"),
        ("GET", format!("{path}?verbose=1"), "verbose", "leave it out"),
        ("DELETE", format!("{path}?force=1"), "force", "leave it out"),
        ("GET", format!("{path}/files?path=.&range=7"), "range", "`path`"),
        ("GET", format!("{path}/usage?each=1"), "each", "`every`"),
        ("GET", "/v1/audit?since=3".to_owned(), "since", "`after`, `limit`, `sandbox`"),
    ] {
        let refused = caller.json(method, &path, Value::Null).await;
        let told = refused.json();
        assert_eq!((refused.status, refused.header("content-type")), (400, "application/problem+json"), "{path}");
        assert_eq!((&told["clause"], &told["id"]), (&json!(word), &json!("serve/invalid")), "{told}");
        assert!(told["what"].as_str().unwrap().contains(word), "{told}");
        assert!(told["instead"].as_str().unwrap().contains(known), "{told}");
    }
    // Nothing of it was done, and what is known goes on being heard.
    let all = caller.json("GET", "/v1/sandboxes?all=true", Value::Null).await.json();
    assert_eq!((all["sandboxes"].as_array().unwrap().len(), &all["sandboxes"][0]["state"]), (1, &json!("running")));
    let nobody = Caller { headers: Vec::new(), ..caller };
    assert_eq!(
        nobody.json("GET", "/v1/sandboxes?al=true", Value::Null).await.status,
        401,
        "who has no key learns nothing"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_that_is_none_ends_nothing() {
    let stage = stage().await;
    let caller = Caller::new(&stage, "one");
    let path = made(&caller, json!({ "timeout": 60 })).await;
    for bad in [
        json!(0),
        json!("0s"),
        json!("0ms"),
        json!(0.0001),
        json!(-1),
        json!(-0.001),
        json!("NaN"),
        json!("-1s"),
        json!(1e300),
        json!([1]),
        Value::Null,
    ] {
        let refused = caller.json("POST", &format!("{path}/timeout"), json!({ "timeout": bad })).await;
        assert_eq!((refused.status, &refused.json()["clause"]), (400, &json!("timeout")), "{bad}");
    }
    let nan = caller
        .with("content-type", "application/json")
        .send("POST", &format!("{path}/timeout"), "{\"timeout\":NaN}")
        .await;
    assert_eq!(nan.status, 400);
    assert_eq!(caller.json("GET", &path, Value::Null).await.json()["state"], "running");
    for path in [format!("{path}/exec"), "/v1/runs".to_owned()] {
        let none = caller.json("POST", &path, json!({ "cmd": ["true"], "timeout": "0s" })).await;
        assert_eq!((none.status, &none.json()["clause"]), (400, &json!("timeout")), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_whose_time_is_over_while_it_starts_ended_by_that_limit() {
    let stage = stage().await;
    let caller = Caller::new(&stage, "one");
    let path = made(&caller, json!({})).await;
    for round in 0..20 {
        let asked = json!({ "cmd": ["sleep", "5"], "timeout": "1ms" });
        for path in [format!("{path}/exec"), "/v1/runs".to_owned()] {
            let ended = caller.json("POST", &path, asked.clone()).await;
            let told = ended.json();
            assert_eq!((ended.status, &told["report"]["limit"]), (200, &json!("wall")), "{path}, {round}: {told}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_no_request_to_a_sandbox_holds_is_too_large_and_not_too_many() {
    let stage = stage().await;
    let caller = Caller::new(&stage, "one");
    let path = made(&caller, json!({})).await;
    let of = |length: usize| json!({ "cmd": ["true", "x".repeat(length)] });
    for path in [format!("{path}/exec"), "/v1/runs".to_owned()] {
        let long = caller.json("POST", &path, of(256 << 10)).await;
        assert_eq!((long.status, &long.json()["id"]), (413, &json!("serve/body")), "{path}");
        assert_eq!(caller.json("POST", &path, of(100 << 10)).await.status, 200, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_life_is_the_callers_word_else_the_templates_else_the_servers() {
    let stage = stage().await;
    let caller = Caller::new(&stage, "one");
    let folder = stage.home.parent().unwrap();
    let own = folder.join("own.toml");
    std::fs::write(&own, "version = 1\nextends = [\"strict\"]\n[limits]\nwall = \"2m\"\n").unwrap();
    let none = folder.join("none.toml");
    std::fs::write(&none, "version = 1\nextends = [\"strict\"]\n[limits]\npids = 7\n").unwrap();
    let store = live::template::Store::new(&folder.join("state"));
    let tools = live::template::Tools::new(&sandbox::Environment::default());
    for (name, policy) in [("team", own.to_str().unwrap()), ("plain", none.to_str().unwrap()), ("preset", "strict")] {
        let recipe = folder.join("recipe.toml");
        std::fs::write(&recipe, format!("policy = [{policy:?}]\n")).unwrap();
        store.build(name, &live::template::Source::file(&recipe).unwrap(), &tools).unwrap();
    }
    for (asked, seconds) in [
        (json!({ "template": "team" }), 120),
        (json!({ "template": "team", "policy": "strict" }), 120),
        (json!({ "template": "team", "timeout": 300 }), 300),
        (json!({ "template": "team", "policy": { "limits": { "wall": "30s" } } }), 30),
        (json!({ "template": "team", "policy": { "limits": { "wall": "30s" } }, "timeout": "5m" }), 300),
        (json!({ "template": "plain" }), 600),
        (json!({ "template": "preset" }), 600),
        (json!({}), 600),
    ] {
        let made = caller.json("POST", "/v1/sandboxes", asked.clone()).await;
        assert_eq!(made.status, 201, "{asked}: {}", String::from_utf8_lossy(&made.body));
        let made = made.json();
        let life = made["ends_ms"].as_i64().unwrap() - made["created_ms"].as_i64().unwrap();
        // Of the stage, whose two looks at the clock are one after the other.
        assert!((seconds * 1000..seconds * 1000 + 1000).contains(&life), "{asked}: {life}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_says_no_less_here_than_in_a_document() {
    let stage = stage().await;
    let caller = Caller::new(&stage, "one");
    for (policy, clause, word) in [
        (json!({ "limits": { "memory": {} } }), "limits.memory", "limits.memory"),
        (json!({ "limits": { "memory": null } }), "limits.memory", "limits.memory"),
        (json!({ "version": 99 }), "version", "version"),
        (json!({ "bogus": null }), "bogus", "bogus"),
        (json!({ "bogus": {} }), "", "bogus"),
        (json!({ "limits": { "bogus": {} } }), "", "limits.bogus"),
        (json!({ "secrets": { "api": { "from": "env:API_TOKEN" } } }), "secrets", "api"),
    ] {
        let told = caller.json("POST", "/v1/sandboxes", json!({ "policy": policy })).await;
        let json = told.json();
        assert_eq!((told.status, &json["clause"]), (400, &json!(clause)), "{policy}: {json}");
        assert!(json["what"].as_str().unwrap().contains(word), "{policy}: {json}");
    }
    // What the ceiling is, word for word, is below it: none of it was left out on the way.
    let mut clauses = json!({
        "version": 1, "extends": "strict", "limits": { "memory": "64M" }, "syscalls": { "profile": "default" },
        "net": { "mode": "allow", "allow": ["a.test"] }, "commands": {},
        "secrets": { "api": { "from": "env:API_TOKEN", "hosts": ["a.test"] } },
    });
    let ceiling = stage.home.with_extension("json");
    std::fs::write(&ceiling, clauses.to_string()).unwrap();
    let key = stage.keys.add("held", Some(ceiling.to_str().unwrap().to_owned()), None).unwrap();
    let held = caller.with("x-api-key", &key);
    let made = held.json("POST", "/v1/sandboxes", json!({ "policy": clauses, "timeout": 20 })).await;
    assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
    clauses.as_object_mut().unwrap().remove("commands");
    let more = held.json("POST", "/v1/sandboxes", json!({ "policy": clauses, "timeout": 20 })).await;
    assert_eq!((more.status, &more.json()["clause"]), (403, &json!("commands")));
}

#[tokio::test(flavor = "multi_thread")]
async fn below_a_ceiling_a_life_is_as_long_as_that_and_a_longer_one_is_refused() {
    let stage = stage().await;
    let caller = Caller::new(&stage, "one");
    let key = stage.keys.add("small", Some("strict".to_owned()), None).unwrap();
    let small = caller.with("x-api-key", &key);
    let life = |info: &Value| info["ends_ms"].as_i64().unwrap() - info["created_ms"].as_i64().unwrap();
    // `strict` says 30 s, and who asks for no time gets no more.
    let made = small.json("POST", "/v1/sandboxes", json!({ "policy": "strict" })).await;
    assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
    let made = made.json();
    assert!((30_000..31_000).contains(&life(&made)), "{made}");
    let id = made["id"].as_str().unwrap();
    let path = format!("/v1/sandboxes/{id}");
    let shorter = small.json("POST", &format!("{path}/timeout"), json!({ "timeout": "10s" })).await.json();
    assert!(life(&shorter) < 30_000, "{shorter}");
    for rest in ["timeout", "resume"] {
        let longer = small.json("POST", &format!("{path}/{rest}"), json!({ "timeout": "1m" })).await;
        assert_eq!((longer.status, &longer.json()["clause"]), (403, &json!("limits.wall")), "{rest}");
    }
    assert_eq!(small.send("GET", &path, "").await.json()["ends_ms"], shorter["ends_ms"]);
    // E2B's clients ask for more than they mean: what they get is bounded.
    let wire = small.json("POST", &format!("/sandboxes/{id}/timeout"), json!({ "timeout": 60 })).await;
    assert_eq!(wire.status, 204);
    let bounded = small.send("GET", &path, "").await.json();
    assert!((20_000..31_000).contains(&life(&bounded)), "{bounded}");
    // The time in which the server tells how a program ended is not the caller's.
    for (body, status) in [
        (json!({ "policy": "strict", "cmd": ["true"] }), 200),
        (json!({ "policy": "strict", "cmd": ["true"], "timeout": "30s" }), 200),
        (json!({ "policy": "strict", "cmd": ["true"], "timeout": "31s" }), 403),
    ] {
        let ran = small.json("POST", "/v1/runs", body.clone()).await;
        assert_eq!(ran.status, status, "{body}: {}", String::from_utf8_lossy(&ran.body));
    }
    let day = caller.json("POST", "/v1/runs", json!({ "cmd": ["true"], "timeout": "24h" })).await;
    assert_eq!(day.status, 200, "{}", String::from_utf8_lossy(&day.body));
}
