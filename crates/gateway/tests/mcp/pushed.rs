//! What servers say beside results: redacted, bounded, and not too much of it.

use serde_json::json;

use crate::stage::{ALL, QUIET, Stage, text};

const REDACTS: &str = r#"
[[tools.tool]]
name = "a.*"
decision = "allow"
effect = "read"
[[tools.tool]]
name = "a.rarely_called"
decision = "allow"
effect = "read"
result = { redact = ["sk-[A-Z]+"] }
[mcp]
elicitation = ["a"]
roots = ["a"]
resources = ["a:file:///work/**"]
"#;

#[tokio::test]
async fn a_flood_of_messages_reaches_nobody_and_is_told_once_and_counted() {
    let stage = Stage::new(ALL);
    for how in ["log", "progress"] {
        let mut client = stage.met(json!({})).await;
        let params = json!({"name": "a__flood", "arguments": {"x": how}, "_meta": {"progressToken": "t"}});
        let answer = client.request("tools/call", params).await;
        assert_eq!(text(&answer), "done");
        let of = |method: &str| client.heard.iter().filter(|m| m["method"] == method).collect::<Vec<_>>();
        let said = of("notifications/message").len() + of("notifications/progress").len();
        assert!((50..1000).contains(&said), "{how}: {said} of 5000");
        let told: Vec<_> =
            of("notifications/message").into_iter().filter(|m| m["params"]["logger"] == "fumehood").collect();
        assert_eq!(told.len(), 1, "{how}");
        let note = answer["result"]["_meta"]["fumehood/notes"][0].as_str().unwrap_or_default();
        assert!(note.contains("messages of the server `a` were dropped"), "{answer}");
        assert!(!stage.calls("a").is_empty());
        client.end().await;
    }
}

#[tokio::test]
async fn a_flood_of_questions_is_answered_by_us() {
    let stage = Stage::new(REDACTS);
    let mut client = stage.met(json!({"roots": {}})).await;
    // The call ends well, or the server is given up because it reads none of its answers.
    client.call("a__flood", json!({"x": "roots"})).await;
    while let Some(message) = client.next_within(QUIET).await {
        client.heard.push(message);
    }
    let asked = client.heard.iter().filter(|m| m["method"] == "roots/list").count();
    assert!((1..1000).contains(&asked), "{asked} of 5000");
    client.end().await;
}

#[tokio::test]
async fn what_a_tool_of_the_server_redacts_is_redacted_in_all_that_it_says() {
    let leaks = |stage: Stage| async move {
        let mut client = stage.met(json!({"elicitation": {}})).await;
        let params = json!({"name": "a__leak", "arguments": {}, "_meta": {"progressToken": "t"}});
        let id = client.ask("tools/call", params).await;
        let asked = client.until(|m| m["method"] == "elicitation/create").await;
        let secret = asked.to_string().contains("LEAK");
        client.send(json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "decline"}})).await;
        let answer = client.answer(id).await;
        let said: Vec<_> = client.heard.iter().filter(|m| m.get("method").is_some()).cloned().collect();
        assert!(said.iter().any(|m| m["method"] == "notifications/message"), "it is heard: {said:?}");
        assert!(said.iter().any(|m| m["method"] == "notifications/progress"));
        let words = json!(said).to_string();
        client.end().await;
        (secret, words.contains("LEAK"), answer)
    };
    // Which tool a message is about only the server says, so the rule of any of them holds for all that is no result.
    let (asked, said, _) = leaks(Stage::new(REDACTS)).await;
    assert_eq!((asked, said), (false, false));
    let open = REDACTS.replace("result = { redact = [\"sk-[A-Z]+\"] }", "");
    let (asked, said, answer) = leaks(Stage::new(&open)).await;
    assert_eq!((asked, said), (true, true), "without the rule it all passes");
    assert!(answer.to_string().contains("YSBzay1MRUFLRUQ="));
    // The rule of the tool itself, for its result: bytes that hold the secret are withheld.
    let own = REDACTS.replace("a.rarely_called", "a.leak");
    let (_, _, answer) = leaks(Stage::new(&own)).await;
    assert!(!answer.to_string().contains("LEAK") && !answer.to_string().contains("YSBzay1MRUFLRUQ="), "{answer}");
    assert!(answer.to_string().contains("its data holds what the policy redacts"), "{answer}");
}

#[tokio::test]
async fn nobody_else_speaks_under_our_names() {
    let stage = Stage::new(ALL);
    let mut client = stage.met(json!({})).await;
    let answer = client.call("a__poser", json!({})).await;
    let meta = answer["result"]["_meta"].as_object().unwrap();
    assert_eq!(meta.keys().collect::<Vec<_>>(), ["mine", "fumehood"], "{answer}");
    assert_eq!(meta["fumehood"]["label"], "data");
    client.end().await;
}

#[tokio::test]
async fn only_allowed_prompts_and_templates_are_completed() {
    let stage = Stage::new(REDACTS);
    let mut client = stage.met(json!({})).await;
    let complete = |reference| json!({"ref": reference, "argument": {"name": "x", "value": ""}});
    let good = json!({"type": "ref/resource", "uri": "file:///work/{name}", "name": "hidden"});
    let answer = client.request("completion/complete", complete(good)).await;
    let seen = answer["result"]["completion"]["values"][0].as_str().unwrap();
    assert!(seen.contains("file:///work/{name}") && !seen.contains("hidden"), "{answer}");
    for bad in [
        json!({"type": "ref/resource", "uri": "file:///secret/{name}"}),
        json!({"type": "ref/resource", "uri": "file:///{+path}"}),
        json!({"type": "ref/resource", "uri": "file:///other/{name}"}),
        json!({"type": "ref/prompt", "name": "a__hidden"}),
        json!({"type": "ref/prompt", "name": "a__hello"}),
        json!({"type": "ref/tool", "name": "a__echo"}),
    ] {
        let answer = client.request("completion/complete", complete(bad.clone())).await;
        assert!(answer.get("error").is_some(), "{bad}: {answer}");
    }
    assert_eq!(stage.log("a").iter().filter(|m| m["method"] == "completion/complete").count(), 1);
    client.end().await;
}

#[tokio::test]
async fn a_description_carries_nothing_that_is_redacted() {
    for (policy, leaks) in [(REDACTS.to_owned(), false), (REDACTS.replace("sk-[A-Z]+", "none"), true)] {
        let stage = Stage::new(&policy);
        let file = stage.path("tools.json");
        let schema = json!({"type": "object", "properties": {"x": {"description": "sk-LEAKED"}}});
        let tools = json!([{"name": "echo", "description": "it is sk-LEAKED", "inputSchema": schema}]);
        std::fs::write(&file, tools.to_string()).unwrap();
        let stage = stage.server("a", &["--tools", file.to_str().unwrap()]);
        let mut client = stage.met(json!({})).await;
        let listed = client.request("tools/list", json!({})).await;
        assert_eq!(listed["result"]["tools"].as_array().unwrap().len(), 1, "{listed}");
        assert_eq!(listed.to_string().contains("LEAKED"), leaks, "{listed}");
        assert!(text(&client.call("a__echo", json!({"x": 1})).await).contains('1'), "and it can be called");
        client.end().await;
    }
}
