//! `/metrics`: of whom it is, and that its numbers are those of what was done.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use server::keys::Rights;

use crate::stage::{Caller, stage};

/// The samples of a page that Prometheus would read: each after the type of its family.
fn samples(page: &str) -> BTreeMap<String, f64> {
    let mut types = BTreeMap::new();
    let mut found = BTreeMap::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(types.insert(name, kind).is_none(), "{line} stands twice");
            continue;
        }
        if line.starts_with("# HELP ") {
            continue;
        }
        let (sample, value) = line.rsplit_once(' ').unwrap();
        let name = sample.split('{').next().unwrap();
        let is_of = |(family, kind): (&&str, &&str)| match name.strip_prefix(family) {
            Some("") => *kind != "histogram",
            Some("_bucket" | "_sum" | "_count") => *kind == "histogram",
            Some(_) | None => false,
        };
        assert!(types.iter().any(|(family, kind)| is_of((family, kind))), "{line} has no type");
        assert!(found.insert(sample.to_owned(), value.parse().unwrap()).is_none(), "{line} stands twice");
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_done_is_counted_and_shown_to_an_operator_alone() {
    let stage = stage().await;
    let caller = Caller::new(&stage, "plain");
    let key = stage.keys.add_with("person", Rights { operator: true, ..Rights::default() }).unwrap();
    let operator = caller.with("x-api-key", &key);
    // Nobody else learns anything, on loopback neither.
    assert_eq!(Caller { base: stage.base.clone(), headers: Vec::new() }.send("GET", "/metrics", "").await.status, 401);
    let refused = caller.send("GET", "/metrics", "").await;
    assert_eq!((refused.status, &refused.json()["fumehood"]["id"]), (403, &json!("serve/operator")));
    assert_eq!(operator.send("POST", "/metrics", "x").await.status, 404);

    let before = samples(&String::from_utf8(operator.send("GET", "/metrics", "").await.body).unwrap());
    assert_eq!((before["fumehood_execs_total"], before["fumehood_sandboxes{state=\"running\"}"]), (0.0, 0.0));
    let made = caller.json("POST", "/v1/sandboxes", json!({ "name": "secret-name" })).await;
    let id = made.json()["id"].as_str().unwrap().to_owned();
    let ran = json!({ "cmd": ["/bin/sh", "-c", "head -c 100000 /dev/zero"] });
    assert_eq!(caller.json("POST", &format!("/v1/sandboxes/{id}/exec"), ran).await.status, 200);
    assert_eq!(caller.json("POST", "/v1/sandboxes", json!({ "template": "no-such" })).await.status, 400);
    let huge = json!({ "labels": { "a": "x".repeat(10_000) } });
    assert_eq!(caller.json("POST", "/v1/sandboxes", huge).await.status, 400);

    let answer = operator.send("GET", "/metrics", "").await;
    assert_eq!(answer.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    let page = String::from_utf8(answer.body).unwrap();
    let after = samples(&page);
    let rose = |name: &str| after[name] - before.get(name).copied().unwrap_or(0.0);
    assert_eq!(after["fumehood_sandboxes{state=\"running\"}"], 1.0);
    assert_eq!(rose("fumehood_execs_total"), 1.0);
    assert_eq!(rose("fumehood_creates_total{result=\"created\"}"), 1.0);
    assert_eq!(rose("fumehood_creates_total{result=\"refused\"}"), 1.0, "no template is no creation yet");
    assert_eq!(rose("fumehood_create_seconds_count"), 1.0);
    assert_eq!(rose("fumehood_requests_total{part=\"native\",status=\"201\"}"), 1.0);
    assert_eq!(after["fumehood_denials_total{id=\"serve/operator\"}"], 1.0);
    assert_eq!(after["fumehood_denials_total{id=\"serve/key\"}"], 1.0);
    assert!(rose("fumehood_sent_bytes_total") > 100_000.0 && rose("fumehood_received_bytes_total") > 10_000.0);
    for secret in ["secret-name", &id, "person", "plain", &key] {
        assert!(!page.contains(secret), "{secret}");
    }
    assert_eq!(caller.json("DELETE", &format!("/v1/sandboxes/{id}"), Value::Null).await.status, 200);
    let ended = samples(&String::from_utf8(operator.send("GET", "/metrics", "").await.body).unwrap());
    assert_eq!(
        (ended["fumehood_sandboxes{state=\"running\"}"], ended["fumehood_sandboxes{state=\"ended\"}"]),
        (0.0, 1.0)
    );
}

/// Every name that is shown is told, and no other.
#[test]
fn the_reference_page_names_every_metric() {
    let told = include_str!("../../../../docs/reference/server.md");
    let source = include_str!("../../src/metrics.rs");
    let source: String = source.split("#[cfg(test)]").next().unwrap().split_whitespace().collect();
    let calls = ["self.family(\"", "self.one(\"", "page.family(\"", "page.one(\""];
    let calls = calls.into_iter().flat_map(|call| source.split(call));
    let names: std::collections::BTreeSet<String> = calls
        .filter_map(|part| part.split_once("\",\""))
        .map(|(name, _)| format!("fumehood_{name}"))
        .filter(|name| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'))
        .collect();
    let shown: std::collections::BTreeSet<String> = told
        .split('`')
        .filter(|word| word.starts_with("fumehood_"))
        .map(|word| word.split('{').next().unwrap().to_owned())
        .collect();
    assert_eq!(names, shown);
}
