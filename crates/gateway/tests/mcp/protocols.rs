//! Clients and servers of both revisions, in every pairing.

use serde_json::{Value as Json, json};

use crate::stage::{ALL, Client, Stage, is_error, text};

const ASKING: &str = "\n[mcp]\nelicitation = [\"a\"]\nsampling = [\"a\"]\nroots = [\"a\"]\n";

async fn stateless_call(client: &mut Client, name: &str, more: Json) -> Json {
    let mut params = json!({"name": name, "arguments": {"x": 1}});
    for (key, value) in more.as_object().unwrap() {
        params[key] = value.clone();
    }
    client.request("tools/call", Client::described(params, &json!({"elicitation": {"form": {}}}))).await
}

#[tokio::test]
async fn every_pairing_of_revisions_lists_and_calls() {
    for protocol in ["handshake", "stateless", "strict-handshake"] {
        let stage = Stage::new(ALL).server("a", &["--protocol", protocol]);
        let mut client = stage.met(json!({})).await;
        assert!(client.tools().await.len() > 20, "{protocol}");
        let answer = client.call("a__echo", json!({"x": 1})).await;
        assert_eq!(answer["result"]["structuredContent"], json!({"got": {"x": 1}}), "{protocol}: {answer}");
        assert!(answer["result"].get("resultType").is_none());
        client.end().await;

        let mut client = stage.client();
        let found = client.request("server/discover", Client::described(json!({}), &json!({}))).await;
        assert!(found["result"]["supportedVersions"].as_array().unwrap().contains(&json!("2026-07-28")), "{found}");
        assert!(!found.to_string().contains("IGNORE ALL"));
        let listed = client.request("tools/list", Client::described(json!({}), &json!({}))).await;
        assert!(listed["result"]["tools"].as_array().unwrap().len() > 20, "{protocol}: {listed}");
        assert_eq!(
            (listed["result"]["ttlMs"].as_u64(), listed["result"]["cacheScope"].as_str()),
            (Some(0), Some("private"))
        );
        let answer = stateless_call(&mut client, "a__echo", json!({})).await;
        assert_eq!(answer["result"]["resultType"], "complete", "{protocol}: {answer}");
        assert_eq!(answer["result"]["structuredContent"], json!({"got": {"x": 1}}));
        client.end().await;
        for message in stage.calls("a") {
            let says = message["params"]["_meta"].get("io.modelcontextprotocol/protocolVersion").is_some();
            assert_eq!(says, protocol == "stateless", "{protocol}: {message}");
            assert_ne!(
                message["params"]["_meta"]["io.modelcontextprotocol/clientInfo"]["name"], "raw",
                "who asks is us"
            );
        }
    }
}

#[tokio::test]
async fn a_request_without_state_must_describe_itself_and_in_a_known_revision() {
    let stage = Stage::new(ALL);
    let mut client = stage.client();
    let answer = client.request("tools/list", json!({})).await;
    assert_eq!(answer["error"]["code"], -32602);
    let answer =
        client.request("tools/list", json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}})).await;
    assert!(answer["error"]["message"].as_str().unwrap().contains("clientCapabilities"));
    let mut params = Client::described(json!({}), &json!({}));
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2099-01-01");
    let answer = client.request("tools/list", params).await;
    assert_eq!(answer["error"]["code"], -32022);
    assert!(answer["error"]["data"]["supported"].as_array().unwrap().contains(&json!("2025-11-25")));
    for method in ["initialize", "ping", "logging/setLevel", "resources/subscribe"] {
        let answer = client.request(method, Client::described(json!({}), &json!({}))).await;
        assert_eq!(answer["error"]["code"], -32601, "{method}: {answer}");
    }
    client.end().await;
}

#[tokio::test]
async fn a_client_with_a_handshake_is_asked_at_once_whatever_the_server_speaks() {
    for (protocol, tool) in [("handshake", "a__ask_user"), ("stateless", "a__input_required")] {
        let stage = Stage::new(&format!("{ALL}{ASKING}")).server("a", &["--protocol", protocol]);
        let mut client = stage.met(json!({"elicitation": {}})).await;
        let id = client.ask("tools/call", json!({"name": tool, "arguments": {}})).await;
        let asked = client.until(|message| message["method"] == "elicitation/create").await;
        assert!(asked["params"]["message"].as_str().unwrap().starts_with("[server `a` asks] "), "{asked}");
        assert!(!asked.to_string().contains('\u{202e}'));
        client.send(json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": {"name": "Ada"}}})).await;
        let answer = client.answer(id).await;
        assert!(text(&answer).contains("Ada"), "{protocol}: {answer}");
        client.end().await;
    }
}

#[tokio::test]
async fn a_client_without_state_comes_back_with_its_answers_whatever_the_server_speaks() {
    for (protocol, tool) in [("handshake", "a__ask_user"), ("stateless", "a__input_required")] {
        let stage = Stage::new(&format!("{ALL}{ASKING}")).server("a", &["--protocol", protocol]);
        let mut client = stage.client();
        let first = stateless_call(&mut client, tool, json!({})).await;
        assert_eq!(first["result"]["resultType"], "input_required", "{protocol}: {first}");
        assert!(!first.to_string().contains("server-secret-state"), "the server's own state stays with us");
        let state = first["result"]["requestState"].clone();
        let (key, asked) = first["result"]["inputRequests"].as_object().unwrap().iter().next().unwrap();
        assert_eq!(asked["method"], "elicitation/create");
        let answers = json!({ key: {"action": "accept", "content": {"name": "Ada"}} });

        // A state is bound to its call: another tool, other arguments, another state.
        let other =
            stateless_call(&mut client, "a__echo", json!({"requestState": state, "inputResponses": answers})).await;
        assert_eq!(other["error"]["code"], -32602);
        let other = stateless_call(
            &mut client,
            tool,
            json!({"requestState": state, "inputResponses": answers, "arguments": {"x": 2}}),
        )
        .await;
        assert_eq!(other["error"]["code"], -32602);
        let other =
            stateless_call(&mut client, tool, json!({"requestState": "00000000000000000000000000000000"})).await;
        assert_eq!(other["error"]["code"], -32602);

        let done = stateless_call(&mut client, tool, json!({"requestState": state, "inputResponses": answers})).await;
        assert!(text(&done).contains("Ada"), "{protocol}: {done}");
        let again = stateless_call(&mut client, tool, json!({"requestState": state, "inputResponses": answers})).await;
        assert_eq!(again["error"]["code"], -32602, "a state is good for once");
        let calls = stage.calls("a").len();
        assert_eq!(calls, if protocol == "stateless" { 2 } else { 1 }, "the call itself is made once");
        client.end().await;
    }
}

#[tokio::test]
async fn another_session_cannot_take_up_a_call_that_waits() {
    let stage = Stage::new(&format!("{ALL}{ASKING}"));
    let gateway = stage.gateway();
    let (mut one, mut two) = (Client::of(gateway.clone()), Client::of(gateway));
    let first = stateless_call(&mut one, "a__ask_user", json!({})).await;
    let state = first["result"]["requestState"].clone();
    let stolen = stateless_call(
        &mut two,
        "a__ask_user",
        json!({"requestState": state, "inputResponses": {"q0": {"action": "accept"}}}),
    )
    .await;
    assert_eq!(stolen["error"]["code"], -32602);
    one.end().await;
    two.end().await;
}

#[tokio::test]
async fn a_server_of_the_newest_revision_may_not_ask_what_is_not_allowed() {
    let stage = Stage::new(ALL).server("a", &["--protocol", "stateless"]);
    let mut client = stage.met(json!({"elicitation": {}})).await;
    let answer = client.call("a__input_required", json!({})).await;
    assert!(is_error(&answer) && text(&answer).contains("not allowed for this server"), "{answer}");
    assert!(client.heard.is_empty());
    client.end().await;
}

#[tokio::test]
async fn streams_without_a_session_tell_of_changes_until_they_are_cancelled() {
    let stage = Stage::new(ALL);
    let mut client = stage.client();
    client.request("tools/list", Client::described(json!({}), &json!({}))).await;
    let listen = client
        .ask(
            "subscriptions/listen",
            Client::described(json!({"notifications": {"toolsListChanged": true}}), &json!({})),
        )
        .await;
    let told = client.until(|m| m["method"] == "notifications/subscriptions/acknowledged").await;
    assert_eq!(told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], listen);
    assert_eq!(told["params"]["notifications"], json!({"toolsListChanged": true}));
    stateless_call(&mut client, "a__storm", json!({})).await;
    let changes = |m: &Json| m["method"] == "notifications/tools/list_changed";
    // Where the call takes longer than a change waits to be told, it was heard before the call's answer.
    let changed = match client.heard.iter().find(|m| changes(m)) {
        Some(heard) => heard.clone(),
        None => client.until(changes).await,
    };
    assert_eq!(changed["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], listen);
    client.send(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": listen}})).await;
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    stateless_call(&mut client, "a__storm", json!({})).await;
    while let Some(message) = client.next_within(crate::stage::QUIET).await {
        assert_ne!(message["method"], "notifications/tools/list_changed");
    }
    client.end().await;
}
