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
