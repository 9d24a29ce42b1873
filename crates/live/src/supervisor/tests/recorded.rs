//! What is done is in the log, and what cannot be recorded is not told as done.

use std::path::PathBuf;

use super::*;
use crate::client::Error;
use crate::words::EndReason;

async fn recorded(with: With) -> (Live, PathBuf) {
    let (folder, state) = folder();
    let log = state.path().join("audit/audit.jsonl");
    (begin(&folder, &state, With { log: true, ..with }).await.unwrap(), log)
}

/// The bodies of a kind of events.
fn bodies(log: &PathBuf, kind: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(log).unwrap();
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.filter(|event| event["kind"] == kind).map(|event| event["body"].clone()).collect()
}

/// From now on the log takes nothing.
fn break_log(log: &PathBuf) {
    std::fs::remove_file(log).unwrap();
    std::fs::create_dir(log).unwrap();
}

#[tokio::test]
async fn each_time_its_end_is_moved_is_an_event() {
    let (live, log) = recorded(With { life: Some(LONG), ..With::default() }).await;
    let client = live.client().await;
    let ask = |ms, only_later| Ask::Timeout { ms, only_later, labels: BTreeMap::new() };
    client.call::<Info>(&ask(90_000, false)).await.unwrap();
    client.call::<Info>(&ask(1, true)).await.unwrap();
    let moved = bodies(&log, "live.timeout");
    assert_eq!(moved, [serde_json::json!({ "sandbox": live.id, "life_ms": 90_000 })]);
    kill(&client).await;
}

#[tokio::test]
async fn an_end_that_cannot_be_recorded_is_not_moved() {
    let (live, log) = recorded(With { life: Some(LONG), ..With::default() }).await;
    let client = live.client().await;
    break_log(&log);
    let moved = client.call::<Info>(&Ask::Timeout { ms: 90_000, only_later: false, labels: BTreeMap::new() }).await;
    assert!(matches!(moved.unwrap_err(), Error::Failed(failure) if failure.message.contains("audit log")));
    assert!(live.run.walls.lock().unwrap().is_empty());
    assert_eq!(live.over().await.reason, Some(EndReason::Failed));
}

#[tokio::test]
async fn a_program_that_cannot_be_recorded_is_not_told_as_done() {
    let (live, log) = recorded(With::default()).await;
    let client = live.client().await;
    let mut good = client.open(&Ask::Exec(exec(&["print", "3"]))).unwrap();
    to_end(&mut good).await;
    assert_eq!(bodies(&log, "live.exec").len(), 1);
    break_log(&log);
    let mut lost = client.open(&Ask::Exec(exec(&["print", "3"]))).unwrap();
    let end = loop {
        if let Incoming::End(end) = lost.next().await.unwrap() {
            break end;
        }
    };
    let message = end.unwrap_err().message;
    assert!(message.starts_with("the audit log cannot be written: ") && message.matches("audit log").count() == 1);
    let info = live.over().await;
    assert_eq!((info.reason, info.message), (Some(EndReason::Failed), Some(message)));
}
