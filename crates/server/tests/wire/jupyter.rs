//! Jupyter's kernel gateway: who may ask, and what is not there. Its kernels are tried in `scripts/e2b`.

use serde_json::json;

use crate::stage::{Caller, stage};

const NONE: &str = "/api/kernels/01234567-89ab-cdef-0123-456789abcdef";

fn with_token(caller: &Caller, scheme: &str) -> Caller {
    let key = &caller.headers[0].1;
    Caller { base: caller.base.clone(), headers: vec![("authorization".to_owned(), format!("{scheme} {key}"))] }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_shown_in_any_of_four_ways_and_nothing_is_answered_without() {
    let stage = stage().await;
    let caller = Caller::new(&stage, "one");
    let nobody = Caller { base: caller.base.clone(), headers: Vec::new() };
    for path in ["/api", "/api/kernels", "/api/kernelspecs", NONE, "/api/none", "/v1/sandboxes/abc/jupyter/api/kernels"]
    {
        assert_eq!(nobody.send("GET", path, "").await.status, 401, "{path}");
        assert_eq!(nobody.send("GET", &format!("{path}?token=e2b_0"), "").await.status, 401, "{path}");
    }
    let query = format!("/api?token={}", caller.headers[0].1);
    assert_eq!(nobody.send("GET", &query, "").await.status, 200);
    for good in [caller.clone(), with_token(&caller, "token"), with_token(&caller, "Bearer")] {
        assert_eq!(good.send("GET", "/api", "").await.status, 200);
    }
    // What a header says is not made good by the query.
    let wrong = nobody.with("authorization", "token e2b_0");
    assert_eq!(wrong.send("GET", &query, "").await.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_is_told_and_a_template_that_was_not_built_is_the_callers_to_ask_for() {
    let stage = stage().await;
    let caller = Caller::new(&stage, "one");
    assert_eq!(caller.send("GET", "/api/kernels", "").await.json(), json!([]));
    for (method, path) in
        [("GET", ""), ("DELETE", ""), ("POST", "/interrupt"), ("POST", "/restart"), ("GET", "/channels")]
    {
        assert_eq!(caller.send(method, &format!("{NONE}{path}"), "").await.status, 404, "{path}");
    }
    let refused = caller.json("POST", "/api/kernels", json!({ "name": "python3" })).await;
    assert_eq!(refused.status, 400);
    assert!(refused.json()["message"].as_str().unwrap().contains("fumehood template build code-interpreter-v1"));
    assert_eq!(caller.send("GET", "/api/kernelspecs", "").await.status, 400);
    assert_eq!(caller.json("POST", "/api/kernels", json!({ "image": "x" })).await.status, 400);
    assert!(caller.send("GET", "/v1/sandboxes", "").await.json()["sandboxes"].as_array().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn kernels_within_a_sandbox_are_those_of_its_key_and_no_page_asks_for_them() {
    let stage = stage().await;
    let (caller, other) = (Caller::new(&stage, "one"), Caller::new(&stage, "two"));
    let made = caller.json("POST", "/v1/sandboxes", json!({ "template": "base", "name": "box" })).await.json();
    let kernels = format!("/v1/sandboxes/{}/jupyter/api/kernels", made["id"].as_str().unwrap());
    assert_eq!(caller.send("GET", &kernels, "").await.json(), json!([]));
    let by_name = "/v1/sandboxes/box/jupyter/api/kernels";
    assert_eq!(caller.send("GET", by_name, "").await.json(), json!([]));
    for kernels in [kernels.as_str(), by_name] {
        assert_eq!(other.send("GET", kernels, "").await.status, 404);
    }
    // It is none of the sandboxes that are a kernel.
    assert_eq!(caller.send("GET", "/api/kernels", "").await.json(), json!([]));
    for origin in ["http://evil.example", "null"] {
        assert_eq!(caller.with("origin", origin).send("GET", &kernels, "").await.status, 403, "{origin}");
    }
    let missing = caller.json("POST", &kernels, json!({ "name": "cobol" })).await;
    assert!(
        missing.status == 501 && missing.json()["message"].as_str().unwrap().contains("cobol"),
        "{}",
        missing.status
    );
}
