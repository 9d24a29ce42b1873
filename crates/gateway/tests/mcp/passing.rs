//! Resources, prompts, questions, logs: by allowlist, and cleaned.

use serde_json::{Value as Json, json};

use crate::stage::{ALL, QUIET, Stage, text};

const SOME: &str =
    "\n[mcp]\nresources = [\"a:file:///work/**\"]\nprompts = [\"a.hello\"]\nsampling = [\"a\"]\nroots = [\"a\"]\n";

#[tokio::test]
async fn without_allowlists_there_are_neither_resources_nor_prompts() {
    let stage = Stage::new(ALL);
    let mut client = stage.client();
    let hello = client.handshake(json!({})).await;
    assert_eq!(hello["result"]["capabilities"], json!({"tools": {"listChanged": true}, "logging": {}}));
    assert!(!hello.to_string().contains("IGNORE ALL"), "instructions of servers do not pass");
    assert_eq!(client.request("resources/list", json!({})).await["result"]["resources"], json!([]));
    assert_eq!(client.request("prompts/list", json!({})).await["result"]["prompts"], json!([]));
    assert!(client.request("resources/read", json!({"uri": "file:///work/a.txt"})).await.get("error").is_some());
    assert!(client.request("prompts/get", json!({"name": "a__hello"})).await.get("error").is_some());
    assert!(!stage.log("a").iter().any(|m| m["method"] == "resources/read" || m["method"] == "prompts/get"));
    client.end().await;
}

#[tokio::test]
async fn allowed_resources_are_read_cleaned_and_others_are_not() {
    let stage = Stage::new(&format!("{ALL}{SOME}"));
    let mut client = stage.met(json!({})).await;
    let listed = client.request("resources/list", json!({})).await;
    let resources = listed["result"]["resources"].as_array().unwrap();
    assert_eq!(resources.len(), 1);
    assert_eq!(
        (resources[0]["uri"].as_str(), resources[0]["description"].as_str()),
        (Some("file:///work/a.txt"), Some("r\\u{200b}"))
    );
    let read = client.request("resources/read", json!({"uri": "file:///work/new.txt"})).await;
    let contents = read["result"]["contents"].as_array().unwrap();
    assert_eq!(contents.len(), 1, "what was not asked for and is not allowed stays out: {read}");
    assert!(contents[0]["text"].as_str().unwrap().contains("\\u{1b}[31m"));
    for uri in [
        "file:///work/../etc/passwd",
        "file:///secret/b",
        "file:///work/%2e%2e/x",
        "FILE:///work/a",
        "file:/work/a",
        "",
    ] {
        let answer = client.request("resources/read", json!({ "uri": uri })).await;
        assert!(answer.get("error").is_some(), "{uri}");
    }
    let templates = client.request("resources/templates/list", json!({})).await;
    assert_eq!(templates["result"]["resourceTemplates"][0]["uriTemplate"], "file:///work/{name}");
    assert_eq!(stage.log("a").iter().filter(|m| m["method"] == "resources/read").count(), 1);
    client.end().await;
}

#[tokio::test]
async fn updates_come_only_for_what_was_subscribed_to() {
    let stage = Stage::new(&format!("{ALL}{SOME}"));
    let mut client = stage.met(json!({})).await;
    assert_eq!(client.request("resources/subscribe", json!({"uri": "file:///work/a.txt"})).await["result"], json!({}));
    let is_update = |message: &Json| message["method"] == "notifications/resources/updated";
    let mut told: Vec<_> = std::mem::take(&mut client.heard);
    if !told.iter().any(is_update) {
        told.push(client.until(is_update).await);
    }
    while let Some(message) = client.next_within(QUIET).await {
        told.push(message);
    }
    let updates: Vec<_> = told.iter().filter(|message| is_update(message)).collect();
    assert_eq!(updates.len(), 1);
    assert_eq!(updates[0]["params"]["uri"], "file:///work/a.txt");
    assert!(client.request("resources/subscribe", json!({"uri": "file:///secret/b"})).await.get("error").is_some());
    client.end().await;
}

#[tokio::test]
async fn allowed_prompts_have_public_names_and_are_cleaned() {
    let stage = Stage::new(&format!("{ALL}{SOME}"));
    let mut client = stage.met(json!({})).await;
    let listed = client.request("prompts/list", json!({})).await;
    assert_eq!(listed["result"]["prompts"], json!([{"name": "a__hello", "description": "d"}]));
    let got = client.request("prompts/get", json!({"name": "a__hello", "arguments": {"x": "1"}})).await;
    assert_eq!(got["result"]["messages"][0]["content"]["text"], "hello\\u{202e}");
    for name in ["a__hidden", "hello", "a__HELLO", "b__hello"] {
        assert!(client.request("prompts/get", json!({ "name": name })).await.get("error").is_some(), "{name}");
    }
    let params = json!({"ref": {"type": "ref/prompt", "name": "a__hello"}, "argument": {"name": "x", "value": ""}});
    let completed = client.request("completion/complete", params).await;
    assert!(completed["result"]["completion"]["values"][0].as_str().unwrap().contains("\"hello\""), "{completed}");
    client.end().await;
}

#[tokio::test]
async fn allowed_questions_reach_the_client_that_can_answer_them_and_no_other() {
    let stage = Stage::new(&format!("{ALL}{SOME}"));
    let mut client = stage.met(json!({"sampling": {}, "roots": {"listChanged": true}})).await;
    let id = client.ask("tools/call", json!({"name": "a__ask_model", "arguments": {}})).await;
    let asked = client.until(|m| m["method"] == "sampling/createMessage").await;
    let result = json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "hello"}});
    client.send(json!({"jsonrpc": "2.0", "id": asked["id"], "result": result})).await;
    assert!(text(&client.answer(id).await).contains("hello"));
    let id = client.ask("tools/call", json!({"name": "a__ask_roots", "arguments": {}})).await;
    let asked = client.until(|m| m["method"] == "roots/list").await;
    client.send(json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": [{"uri": "file:///work"}]}})).await;
    assert!(text(&client.answer(id).await).contains("file:///work"));
    let answer = client.call("a__ask_user", json!({})).await;
    assert!(text(&answer).contains("not allowed"), "{answer}");
    client.end().await;

    let mut client = stage.met(json!({})).await;
    let answer = client.call("a__ask_model", json!({})).await;
    assert!(text(&answer).contains("-32601"), "a client that cannot is not asked: {answer}");
    client.end().await;
}

#[tokio::test]
async fn log_messages_come_cleaned_under_the_servers_name_and_not_below_the_level() {
    let stage = Stage::new(ALL);
    let mut client = stage.met(json!({})).await;
    client.call("a__logs", json!({})).await;
    let log = client.heard.iter().find(|m| m["method"] == "notifications/message").unwrap();
    assert_eq!(log["params"], json!({"level": "warning", "logger": "a/l\\u{1b}", "data": {"m": "\\u{1b}[31mx"}}));
    client.heard.clear();
    assert_eq!(client.request("logging/setLevel", json!({"level": "error"})).await["result"], json!({}));
    client.call("a__logs", json!({})).await;
    assert!(client.heard.iter().all(|m| m["method"] != "notifications/message"));
    assert!(client.request("logging/setLevel", json!({"level": "loud"})).await.get("error").is_some());
    client.end().await;
}
