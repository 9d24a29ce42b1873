//! The end of a gateway while calls hang: bounded, the same for many as for one, and nothing is left.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::http::Front;
use crate::stage::{ALL, PATIENCE, Stage};

/// What is granted to servers, 1.8 s, and room for a slow machine. One after the other, four would take 7.2 s.
const BOUND: Duration = Duration::from_secs(6);

/// Servers that are stuck in a call, neither the end of their input nor a signal ends.
async fn stuck(stage: &Stage, count: usize) {
    let begun = Instant::now();
    while stage.log("a").iter().filter(|message| message.get("stuck").is_some()).count() < count {
        assert!(begun.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Servers of a stage that run.
pub(crate) fn running(stage: &Stage) -> usize {
    let log = stage.path("a.log").display().to_string();
    let of = |entry: std::fs::DirEntry| std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
    std::fs::read_dir("/proc").unwrap().filter_map(Result::ok).map(of).filter(|line| line.contains(&log)).count()
}

#[tokio::test]
async fn several_calls_that_hang_do_not_hold_up_the_end_whether_a_client_hung_up_or_not() {
    for hangs_up in [false, true] {
        let stage = Stage::new(ALL);
        let mut client = stage.met(json!({})).await;
        for _ in 0..5 {
            client.ask("tools/call", json!({"name": "a__stuck", "arguments": {}})).await;
        }
        stuck(&stage, 5).await;
        if hangs_up {
            client.hang_up().await;
        }
        let begun = Instant::now();
        client.end().await;
        assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
        assert_eq!(running(&stage), 0);
        let ends = stage.record.of("tool.ended");
        assert_eq!(ends.len(), 5, "each call that was made has an end in the record: {ends:?}");
    }
}

#[tokio::test]
async fn sessions_end_side_by_side() {
    let stage = Stage::new(ALL);
    let front = Front::open(&stage).await;
    let mut waiting = Vec::new();
    for id in 1..=4 {
        let session = front.begin(json!({})).await;
        let body = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "a__stuck", "arguments": {}}});
        let (http, url, headers) =
            (front.http.clone(), format!("{}/mcp", front.base), front.headers(&[("mcp-session-id", &session)]));
        waiting.push(tokio::spawn(async move { http.post(url).headers(headers).body(body.to_string()).send().await }));
    }
    stuck(&stage, 4).await;
    let begun = Instant::now();
    front.end().await;
    assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
    assert_eq!(running(&stage), 0);
    for one in waiting {
        one.abort();
    }
}

#[tokio::test]
async fn what_was_asked_before_the_last_word_is_still_answered() {
    let stage = Stage::new(ALL);
    let mut client = stage.met(json!({})).await;
    let asked = client.ask("tools/call", json!({"name": "a__echo", "arguments": {"n": 1}})).await;
    client.hang_up().await;
    assert_eq!(client.answer(asked).await["result"]["structuredContent"]["got"]["n"], 1);
}
