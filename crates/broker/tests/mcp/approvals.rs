//! `ask`: a person answers through the client, or somewhere else, and the answer is for that one call.

use std::time::Duration;

use broker::approvals::Approvals;
use serde_json::{Value as Json, json};

use crate::stage::{Client, Stage, is_error, text};

const ASK: &str = "[[tools.tool]]\nname = \"a.echo\"\ndecision = \"ask\"\neffect = \"write\"\n";

#[tokio::test]
async fn the_clients_own_user_is_asked_with_the_exact_arguments() {
    let stage = Stage::new(ASK);
    let mut client = stage.met(json!({"elicitation": {}})).await;
    for (decision, reaches) in [("approve", true), ("deny", false)] {
        let before = stage.calls("a").len();
        let id = client
            .ask("tools/call", json!({"name": "a__echo", "arguments": {"x": format!("pay\u{202e} {decision}")}}))
            .await;
        let asked = client.until(|m| m["method"] == "elicitation/create").await;
        let words = asked["params"]["message"].as_str().unwrap();
        assert!(words.contains("a.echo") && words.contains("hash: ") && words.contains(decision), "{words}");
        assert!(!words.contains('\u{202e}'), "what hides is written out");
        assert_eq!(asked["params"]["requestedSchema"]["properties"]["decision"]["default"], "deny");
        let content = json!({"action": "accept", "content": {"decision": decision}});
        client.send(json!({"jsonrpc": "2.0", "id": asked["id"], "result": content})).await;
        let answer = client.answer(id).await;
        assert_eq!(is_error(&answer), !reaches, "{answer}");
        assert_eq!(stage.calls("a").len() - before, usize::from(reaches));
    }
    let who = stage.record.of("approval.ended");
    assert!(who.iter().any(|body| body.to_string().contains("the user of raw")), "{who:?}");
    client.end().await;
}

#[tokio::test]
async fn a_client_without_state_comes_back_with_its_users_answer() {
    let stage = Stage::new(ASK);
    let mut client = stage.client();
    let call = |more: Json| {
        let mut params = json!({"name": "a__echo", "arguments": {"x": 1}});
        for (key, value) in more.as_object().unwrap() {
            params[key] = value.clone();
        }
        Client::described(params, &json!({"elicitation": {"form": {}}}))
    };
    let first = client.request("tools/call", call(json!({}))).await;
    assert_eq!(first["result"]["resultType"], "input_required", "{first}");
    assert_eq!(stage.calls("a").len(), 0);
    let (key, _) = first["result"]["inputRequests"].as_object().unwrap().iter().next().unwrap();
    let answers = json!({ key: {"action": "accept", "content": {"decision": "approve"}} });
    let done = client
        .request(
            "tools/call",
            call(json!({"requestState": first["result"]["requestState"], "inputResponses": answers})),
        )
        .await;
    assert!(!is_error(&done), "{done}");
    assert_eq!(stage.calls("a").len(), 1);
    client.end().await;
}

#[tokio::test]
async fn a_client_that_cannot_ask_waits_for_somebody_else() {
    let stage = Stage::new(ASK);
    let mut client = stage.met(json!({})).await;
    let id = client.ask("tools/call", json!({"name": "a__echo", "arguments": {"x": 1}})).await;
    let approvals = Approvals::open(&stage.path("state")).unwrap();
    let waiting = loop {
        if let Some(call) = approvals.list(false).unwrap().pop() {
            break call;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!((waiting.tool.as_str(), waiting.args.as_str()), ("a.echo", r#"{"x":1}"#));
    approvals.approve(&waiting.id, "alice", None).unwrap();
    assert!(!is_error(&client.answer(id).await));
    assert!(client.heard.iter().all(|message| message["method"] != "elicitation/create"));
    client.end().await;
}

#[tokio::test]
async fn two_calls_at_once_are_each_asked_about_once() {
    let stage = Stage::new(ASK);
    let mut client = stage.met(json!({"elicitation": {}})).await;
    let mut ids = Vec::new();
    for n in 0..2 {
        ids.push(client.ask("tools/call", json!({"name": "a__echo", "arguments": {"n": n}})).await);
    }
    for _ in 0..2 {
        let asked = client.until(|m| m["method"] == "elicitation/create").await;
        client.send(json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": {"decision": "approve"}}})).await;
    }
    for id in ids {
        assert!(!is_error(&client.answer(id).await));
    }
    assert!(client.next_within(crate::stage::QUIET).await.is_none(), "nobody is asked a third time");
    client.end().await;
}

#[tokio::test]
async fn a_denial_tells_the_model_and_a_cancelled_call_is_no_longer_asked_about() {
    let stage = Stage::new(ASK);
    let mut client = stage.met(json!({"elicitation": {}})).await;
    let id = client.ask("tools/call", json!({"name": "a__echo", "arguments": {"x": 1}})).await;
    let asked = client.until(|m| m["method"] == "elicitation/create").await;
    client.send(json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "decline"}})).await;
    let answer = client.answer(id).await;
    assert!(text(&answer).contains("tools.approval/denied"), "{answer}");

    let id = client.ask("tools/call", json!({"name": "a__echo", "arguments": {"x": 2}})).await;
    let asked = client.until(|m| m["method"] == "elicitation/create").await;
    client.send(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})).await;
    let told = client.until(|m| m["method"] == "notifications/cancelled").await;
    assert_eq!(told["params"]["requestId"], asked["id"], "the client's question is taken back with its own id");
    assert_eq!(stage.calls("a").len(), 0);
    client.end().await;
}
