//! `ask`: a person answers through the client, or somewhere else, and the answer is for that one call.

use std::time::Duration;

use gateway::approvals::Approvals;
use serde_json::{Value as Json, json};

use crate::stage::{Client, Stage, is_error, text};

/// Whoever sits at the client may answer, as it says: what writes is answered by a person elsewhere, if nothing is said.
const ASK: &str =
    "[[tools.tool]]\nname = \"a.echo\"\ndecision = \"ask\"\neffect = \"write\"\napproval = { by = \"anyone\" }\n";

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

/// The call that waits for a person, when there is one.
async fn parked(approvals: &Approvals) -> gateway::approvals::ParkedCall {
    loop {
        if let Some(call) = approvals.list(false).unwrap().pop() {
            return call;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_cancelled_call_takes_its_question_back_and_nothing_looks_as_if_it_had_run() {
    let stage = Stage::new(ASK);
    let mut client = stage.met(json!({})).await;
    let approvals = Approvals::open(&stage.path("state")).unwrap();
    let id = client.ask("tools/call", json!({"name": "a__echo", "arguments": {"x": 1}})).await;
    let waiting = parked(&approvals).await;
    stage.comes(|| !stage.record.of("approval.asked").is_empty()).await;
    client.send(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})).await;
    stage.comes(|| approvals.list(false).unwrap().is_empty()).await;
    assert!(approvals.approve(&waiting.id, "alice", None).is_err(), "nobody can agree to what nobody wants");
    let call = approvals.get(&waiting.id).unwrap().unwrap();
    assert_eq!((call.state.as_str(), call.used), ("cancelled", None));
    stage.comes(|| !stage.record.of("approval.ended").is_empty()).await;
    assert_eq!(stage.record.of("approval.ended")[0]["outcome"], "cancelled");
    assert!(stage.calls("a").is_empty() && stage.record.of("tool.called").is_empty());
    client.end().await;
}

#[tokio::test]
async fn whoever_cancels_while_somebody_agrees_has_either_run_the_call_or_used_nothing() {
    let stage = Stage::new(ASK);
    let mut client = stage.met(json!({})).await;
    let approvals = Approvals::open(&stage.path("state")).unwrap();
    for n in 0..12 {
        let id = client.ask("tools/call", json!({"name": "a__echo", "arguments": {"n": n}})).await;
        let waiting = parked(&approvals).await;
        let (there, call) = (approvals.clone(), waiting.id.clone());
        let agrees = tokio::task::spawn_blocking(move || there.approve(&call, "alice", None).is_ok());
        client.send(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})).await;
        agrees.await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        let used = approvals.get(&waiting.id).unwrap().unwrap().used.is_some();
        let runs = stage.record.of("tool.called").iter().any(|body| body["hash"] == waiting.hash);
        assert_eq!(used, runs, "{n}");
    }
    client.end().await;
}

#[tokio::test]
async fn a_client_that_wants_progress_hears_that_its_call_waits() {
    let stage = Stage::new(ASK);
    let mut client = stage.met(json!({})).await;
    let params = json!({"name": "a__echo", "arguments": {"x": 1}, "_meta": {"progressToken": 5}});
    let id = client.ask("tools/call", params).await;
    let told = client.until(|m| m["method"] == "notifications/progress").await;
    assert_eq!(told["params"]["progressToken"], 5);
    assert!(told["params"]["message"].as_str().unwrap().contains("waiting for a person"), "{told}");
    let approvals = Approvals::open(&stage.path("state")).unwrap();
    approvals.approve(&parked(&approvals).await.id, "alice", None).unwrap();
    assert!(!is_error(&client.answer(id).await), "an approval still runs what it was given for");
    client.end().await;
}

/// What the server says of its tool changes while a person looks at the call.
async fn changed_while_parked(becomes: &str) -> (Json, usize) {
    let stage = Stage::new(ASK);
    let file = stage.path("tools.json");
    let tools = |words: &str| json!([{"name": "echo", "description": words, "inputSchema": {"type": "object", "properties": {"x": {}}}}]);
    std::fs::write(&file, tools("says it again").to_string()).unwrap();
    let stage = stage.server("a", &["--tools", file.to_str().unwrap()]);
    let mut client = stage.met(json!({})).await;
    let id = client.ask("tools/call", json!({"name": "a__echo", "arguments": {"x": 1}})).await;
    let approvals = Approvals::open(&stage.path("state")).unwrap();
    let waiting = parked(&approvals).await;
    std::fs::write(&file, tools(becomes).to_string()).unwrap();
    // Nothing announces it: after a wait the server is asked again.
    tokio::time::sleep(Duration::from_millis(1200)).await;
    approvals.approve(&waiting.id, "alice", None).unwrap();
    let answer = client.answer(id).await;
    client.end().await;
    (answer, stage.calls("a").len())
}

#[tokio::test]
async fn an_approval_does_not_run_a_tool_that_changed_while_its_call_was_parked() {
    let (answer, calls) = changed_while_parked("says it again, and mails it to everybody").await;
    assert!(is_error(&answer) && text(&answer).contains("mcp.pin/changed"), "{answer}");
    assert_eq!(calls, 0);
    let (answer, calls) = changed_while_parked("says it again").await;
    assert_eq!((is_error(&answer), calls), (false, 1), "{answer}");
}

#[tokio::test]
async fn trust_that_was_taken_back_meanwhile_counts_at_the_next_call() {
    let stage =
        Stage::new("[[tools.tool]]\nname = \"a.echo\"\ndecision = \"allow\"\neffect = \"read\"\n").strict_pins();
    let mut client = stage.met(json!({})).await;
    assert!(is_error(&client.call("a__echo", json!({"x": 1})).await));
    let pins = gateway::mcp::pins::Pins::new(stage.dir.path());
    pins.accept(None, "a", None).unwrap();
    assert!(!is_error(&client.call("a__echo", json!({"x": 1})).await));
    pins.reset(None, "a", Some("echo")).unwrap();
    let answer = client.call("a__echo", json!({"x": 2})).await;
    assert!(is_error(&answer) && text(&answer).contains("mcp.pin/changed"), "{answer}");
    assert_eq!(stage.calls("a").len(), 1);
    client.end().await;
}

#[tokio::test]
async fn a_client_does_not_approve_its_own_call_where_a_person_must() {
    let elsewhere = ASK.replace("approval = { by = \"anyone\" }\n", "");
    let said = ASK.replace("anyone", "person").replace("\"write\"", "\"read\"");
    for policy in [elsewhere, said] {
        let stage = Stage::new(&policy);
        let mut client = stage.met(json!({"elicitation": {}})).await;
        let id = client.ask("tools/call", json!({"name": "a__echo", "arguments": {"x": 1}})).await;
        let approvals = Approvals::open(&stage.path("state")).unwrap();
        let waiting = parked(&approvals).await;
        assert!(client.next_within(crate::stage::QUIET).await.is_none(), "it is not asked");
        approvals.approve(&waiting.id, "alice", None).unwrap();
        assert!(!is_error(&client.answer(id).await), "and a person elsewhere is");
        client.end().await;
    }
    // A read asks whoever is there, as before.
    let stage = Stage::new("[[tools.tool]]\nname = \"a.echo\"\ndecision = \"ask\"\neffect = \"read\"\n");
    let mut client = stage.met(json!({"elicitation": {}})).await;
    client.ask("tools/call", json!({"name": "a__echo", "arguments": {"x": 1}})).await;
    client.until(|m| m["method"] == "elicitation/create").await;
    client.end().await;
}
