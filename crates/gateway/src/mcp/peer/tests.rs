//! Two ends that keep no order: what is dropped, cancelled, refused and told.

use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc;

use super::*;

struct Out(mpsc::Sender<Json>);

impl Outlet for Out {
    fn send<'a>(&'a self, message: Json, _: Option<&'a Id>) -> BoxFuture<'a, bool> {
        Box::pin(async move { self.0.send(message).await.is_ok() })
    }
    fn offer(&self, message: Json, _: Option<&Id>) -> bool {
        self.0.try_send(message).is_ok()
    }
}

/// Keeps requests until the test answers them.
#[derive(Default)]
struct Keep(Mutex<Vec<Incoming>>);

impl Handler for Keep {
    fn request(&self, incoming: Incoming) {
        lock(&self.0).push(incoming);
    }
    fn notification(&self, _: &Peer, _: &str, _: Json) {}
}

fn peer() -> (Peer, Arc<Keep>, mpsc::Receiver<Json>) {
    let (sender, receiver) = mpsc::channel(16);
    let keep = Arc::new(Keep::default());
    (Peer::new(Arc::new(Out(sender)), keep.clone()), keep, receiver)
}

#[tokio::test]
async fn a_second_a_late_and_a_foreign_answer_are_dropped() {
    let (peer, _, mut out) = peer();
    let asking = tokio::spawn(peer.request("ping", Json::Null, None).answer());
    assert_eq!(out.recv().await.unwrap()["id"], 1);
    for id in [json!("1"), json!(2), json!(-1)] {
        peer.accept(json!({"jsonrpc": "2.0", "id": id, "result": {"wrong": true}}));
    }
    peer.accept(json!({"jsonrpc": "2.0", "id": 1, "result": {"right": true}}));
    peer.accept(json!({"jsonrpc": "2.0", "id": 1, "result": {"second": true}}));
    assert_eq!(asking.await.unwrap(), Ok(json!({"right": true})));
    assert_eq!(peer.strays(), 4);
}

#[tokio::test]
async fn whoever_gave_a_request_up_is_told_when_the_other_side_has_ended_it() {
    let (peer, _, mut out) = peer();
    let mut given_up = async |id: i64| {
        let unfinished = crate::given_up::Unfinished::default();
        let asking = peer.request("tools/call", Json::Null, None).telling(Some(unfinished.clone())).answer();
        // Polled until it was sent, and dropped.
        assert!(tokio::time::timeout(Duration::from_millis(20), asking).await.is_err());
        assert_eq!(out.recv().await.unwrap()["id"], id);
        assert_eq!(out.recv().await.unwrap()["method"], "notifications/cancelled");
        assert!(unfinished.is_followed());
        unfinished
    };
    let (answered, silent) = (given_up(1).await, given_up(2).await);
    assert!(!answered.is_over());
    peer.accept(json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32800, "message": "cancelled"}}));
    assert!(answered.is_over() && !silent.is_over());
    peer.close("it closed its output");
    assert!(!silent.is_over(), "a program may work on");
    peer.works_no_more();
    assert!(silent.is_over());
}

#[tokio::test]
async fn a_side_that_asks_and_never_reads_is_left_alone() {
    let (peer, _, mut out) = peer();
    for id in 0..MAX_PARKED + 16 {
        assert!(!peer.is_closed(), "{id}");
        peer.accept(json!({"jsonrpc": "2.0", "id": {}, "method": "x"}));
    }
    peer.accept(json!({"jsonrpc": "2.0", "id": {}, "method": "x"}));
    assert!(peer.is_closed());
    let mut told = 0;
    while out.try_recv().is_ok() {
        told += 1;
    }
    assert_eq!(told, 16, "what the outlet holds, and no more");
}

#[tokio::test]
async fn an_answer_that_is_none_ends_the_request_that_it_is_about() {
    for wrong in [
        json!({"jsonrpc": "2.0", "id": 1, "result": {}, "error": {"code": 1, "message": "both"}}),
        json!({"jsonrpc": "2.0", "id": 1}),
        json!({"jsonrpc": "1.0", "id": 1, "result": {}}),
    ] {
        let (peer, _, mut out) = peer();
        let asking = tokio::spawn(peer.request("ping", Json::Null, None).answer());
        assert_eq!(out.recv().await.unwrap()["id"], 1);
        assert!(!peer.accept_silently(wrong.clone()));
        let Err(Failure::Rpc(error)) = asking.await.unwrap() else { panic!("{wrong}") };
        assert!(error.message.contains("cannot be read"), "{error:?}");
    }
}

#[tokio::test]
async fn a_ticket_that_is_dropped_cancels_its_own_id() {
    let (peer, _, mut out) = peer();
    let asking = tokio::spawn(peer.request("slow", Json::Null, None).answer());
    out.recv().await.unwrap();
    asking.abort();
    assert!(asking.await.is_err());
    let told = out.recv().await.unwrap();
    assert_eq!(
        (told["method"].as_str(), told["params"]["requestId"].as_i64()),
        (Some("notifications/cancelled"), Some(1))
    );
    peer.accept(json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
    assert_eq!(peer.strays(), 1);
}

#[tokio::test]
async fn an_id_in_use_is_not_served_twice_and_a_cancelled_request_gets_no_answer() {
    let (peer, keep, mut out) = peer();
    let ask = |id: Json| peer.accept(json!({"jsonrpc": "2.0", "id": id, "method": "work"}));
    ask(json!(7));
    ask(json!(7));
    assert_eq!(out.recv().await.unwrap()["error"]["code"], wire::INVALID_REQUEST);
    assert_eq!(lock(&keep.0).len(), 1);
    peer.accept(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "7"}}));
    let work = lock(&keep.0).pop().unwrap();
    assert!(!work.cancel.is_cancelled(), "a cancellation with another type of id stops nothing");
    peer.accept(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}));
    assert!(work.cancel.is_cancelled());
    work.answer(Ok(json!({}))).await;
    assert!(out.try_recv().is_err());
    ask(json!(7));
    assert_eq!(lock(&keep.0).len(), 1, "the id is free again");
}

#[tokio::test]
async fn progress_reaches_only_the_request_it_is_about() {
    let (peer, _, mut out) = peer();
    let (told, mut seen) = mpsc::unbounded_channel();
    let progress: Progress = Arc::new(move |params| assert!(told.send(params).is_ok()));
    let asking = tokio::spawn(peer.request_with_progress("slow", Json::Null, None, Some(progress)).answer());
    let sent = out.recv().await.unwrap();
    let token = sent["params"]["_meta"]["progressToken"].clone();
    for token in [json!(99), json!("1"), token] {
        let params = json!({"progressToken": token, "progress": 1});
        peer.accept(json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}));
    }
    assert_eq!(seen.recv().await.unwrap()["progress"], 1);
    assert!(seen.try_recv().is_err());
    peer.close("over");
    assert_eq!(asking.await.unwrap(), Err(Failure::Gone("over".to_owned())));
}

#[tokio::test]
async fn more_requests_than_the_bound_are_refused() {
    let (peer, keep, _out) = peer();
    for id in 0..MAX_SERVED + 5 {
        peer.accept(json!({"jsonrpc": "2.0", "id": id, "method": "work"}));
    }
    assert_eq!(lock(&keep.0).len(), MAX_SERVED);
}
