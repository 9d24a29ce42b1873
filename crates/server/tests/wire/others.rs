//! Another key, no key, and guessed ids: on every route of the interface, taken from its own document.

use serde_json::{Value, json};

use crate::stage::{Caller, stage};

/// A route of the document with its names filled in.
fn filled(path: &str, id: &str) -> String {
    let named = path.replace("{id}", id).replace("{process}", "p1").replace("{port}", "8000");
    let named = named.replace("{*path}", "a").replace("{context}", "c").replace("{snapshot}", "none");
    named.replace("{approval}", "none")
}

/// Methods and paths of the document, with a path of a file where a query takes one.
fn routes(document: &Value) -> Vec<(String, String)> {
    let all = document["paths"].as_object().unwrap().iter();
    let of = |(path, methods): (&String, &Value)| -> Vec<(String, String)> {
        let operations = methods.as_object().unwrap().iter().filter(|(key, _)| *key != "parameters");
        let route = |(method, operation): (&String, &Value)| {
            let parameters = [&operation["parameters"], &methods["parameters"]].into_iter().filter_map(Value::as_array);
            let takes = parameters.flatten().any(|one| (&one["name"], &one["in"]) == (&json!("path"), &json!("query")));
            (method.to_uppercase(), format!("{path}{}", if takes { "?path=a.txt" } else { "" }))
        };
        operations.map(route).collect()
    };
    all.flat_map(of).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_of_a_sandbox_is_closed_to_other_keys_and_to_nobody() {
    let stage = stage().await;
    let (owner, other) = (Caller::new(&stage, "owner"), Caller::new(&stage, "other"));
    let nobody = Caller { headers: Vec::new(), ..owner.clone() };
    let made = owner.json("POST", "/v1/sandboxes", json!({ "name": "mine", "timeout": "5m" })).await.json();
    let id = made["id"].as_str().unwrap().to_owned();
    let document = owner.send("GET", "/v1/openapi.json", "").await.json();
    let mut tried = 0;
    for (method, path) in routes(&document) {
        for word in [id.as_str(), "mine", "a0000000000000000000", "mine%2f..%2fmine"] {
            let path = filled(&path, word);
            assert_eq!(nobody.send(&method, &path, "").await.status, 401, "{method} {path} without a key");
            let closed = if path.contains("/sandboxes/") { other.send(&method, &path, "").await.status } else { 404 };
            assert_eq!(closed, 404, "{method} {path} with another key");
            tried += 1;
        }
    }
    assert!(tried > 100, "{tried}");
    // The control: the same requests are answered by the sandbox for its own key. The end comes last.
    for (method, path) in routes(&document) {
        if method == "DELETE" || !path.contains("{id}") || path.contains("/watch") {
            continue;
        }
        let path = filled(&path, "mine");
        let answer = owner.send(&method, &path, "").await;
        let text = String::from_utf8_lossy(&answer.body);
        assert!(answer.status != 401 && !text.contains("serve/no-such-sandbox"), "{method} {path}: {text}");
    }
    assert_eq!(owner.send("DELETE", &format!("/v1/sandboxes/{id}"), "").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_path_of_a_file_is_given_on_as_it_is_written() {
    let stage = stage().await;
    let caller = Caller::new(&stage, "one");
    let made = caller.json("POST", "/v1/sandboxes", json!({})).await.json();
    let path = format!("/v1/sandboxes/{}", made["id"].as_str().unwrap());
    // Here the agent's root is this test's own: that a path reaches only what the sandbox's user may read is shown over a real one, by
    // the command line's tests (`file_calls.rs`). What is shown here: none is taken apart, joined or normalised on its way.
    assert_eq!(caller.send("PUT", &format!("{path}/files?path=a%2Fb"), "x").await.status, 200);
    assert_eq!(std::fs::read(stage.home.join("a/b")).unwrap(), b"x");
    for (name, status) in [("a%00b", 400), ("", 400), ("a/b/c", 400), ("%ff%fe", 404)] {
        let answer = caller.send("GET", &format!("{path}/files?path={name}"), "").await;
        assert_eq!(answer.status, status, "{name}: {}", String::from_utf8_lossy(&answer.body));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fork_kill_and_pause_at_once_leave_one_end_and_no_sandbox() {
    let stage = stage().await;
    let caller = Caller::new(&stage, "one");
    for _ in 0..10 {
        let made = caller.json("POST", "/v1/sandboxes", json!({})).await.json();
        let path = format!("/v1/sandboxes/{}", made["id"].as_str().unwrap());
        let ask = |rest: &'static str| {
            let (caller, path) = (caller.clone(), path.clone());
            async move { caller.json("POST", &format!("{path}/{rest}"), json!({})).await.status }
        };
        let (paused, forked, resumed, killed) =
            tokio::join!(ask("pause"), ask("fork"), ask("resume"), caller.send("DELETE", &path, ""));
        for status in [paused, forked, resumed] {
            assert!(matches!(status, 200 | 404 | 409 | 500 | 501), "{status}");
        }
        assert_eq!(killed.status, 200);
        assert_eq!(caller.send("GET", &path, "").await.json()["state"], "ended");
    }
    assert_eq!(caller.json("GET", "/v1/sandboxes", Value::Null).await.json(), json!({ "sandboxes": [] }));
}
