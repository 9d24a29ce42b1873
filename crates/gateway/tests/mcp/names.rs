//! GW-01 and GW-15: a name is one tool's of one server's, byte for byte, or nobody's.

use serde_json::json;

use crate::stage::{ALL, PATIENCE, Stage, is_error, text};

#[tokio::test]
async fn gw_01_a_name_that_is_not_listed_byte_for_byte_reaches_no_server() {
    let stage = Stage::new(ALL).server("b", &[]);
    let mut client = stage.met(json!({})).await;
    assert!(client.tools().await.contains(&"a__echo".to_owned()));
    let long = format!("a__echo{}", "x".repeat(100_000));
    for name in [
        "A__echo",
        "a__Echo",
        "a__ECHO",
        "a__echo ",
        " a__echo",
        "a__echo\0",
        "a__echo\u{0}x",
        "a__\u{435}cho",
        "\u{ff41}__echo",
        "a__ech\u{200b}o",
        "a.echo",
        "a_echo",
        "a___echo",
        "b__a__echo",
        "a__b__echo",
        "echo",
        "__echo",
        "a__",
        "",
        "mcp__a__echo",
        "a__echo/../b__echo",
        "a__echo\n",
        &long,
        "a__e\u{0301}cho",
        "\u{202e}ohce__a",
    ] {
        let answer = client.call(name, json!({})).await;
        assert_eq!(answer["error"]["code"], -32602, "{name:?} gave {answer}");
        assert!(!answer.to_string().contains('\u{202e}') && answer.to_string().len() < 2000);
    }
    for odd in [json!(null), json!(5), json!(["a__echo"]), json!({"a__echo": 1})] {
        let answer = client.request("tools/call", json!({"name": odd, "arguments": {}})).await;
        assert_eq!(answer["error"]["code"], -32602);
    }
    assert_eq!((stage.calls("a").len(), stage.calls("b").len()), (0, 0));
    assert_eq!(text(&client.call("a__echo", json!({"x": 1})).await), r#"{"x": 1}"#);
    assert_eq!(stage.calls("a").len(), 1, "the control reaches its server");
    client.end().await;
}

#[tokio::test]
async fn gw_01_arguments_that_are_no_object_reach_no_server() {
    let stage = Stage::new(ALL);
    let mut client = stage.met(json!({})).await;
    for arguments in [json!([1]), json!("x"), json!(1), json!(true)] {
        assert_eq!(client.call("a__echo", arguments).await["error"]["code"], -32602);
    }
    let answer = client.request("tools/call", json!({"name": "a__echo", "arguments": {}, "task": {"ttl": 5}})).await;
    assert_eq!(answer["error"]["code"], -32602);
    assert_eq!(stage.calls("a").len(), 0);
    client.end().await;
}

#[tokio::test]
async fn gw_15_a_server_cannot_speak_for_another() {
    let stage = Stage::new(ALL);
    let listed = stage.path("tools.json");
    let schema = json!({"type": "object", "properties": {"to": {}}});
    let tool = |name: &str| json!({"name": name, "inputSchema": schema});
    // Names that would be another server's if anybody took names apart, and one that comes twice.
    std::fs::write(
        &listed,
        json!([tool("b__echo"), tool("_b__echo"), tool("ok"), tool("ok2"), tool("ok2"), tool("x y"), tool("\u{0455}")])
            .to_string(),
    )
    .unwrap();
    let stage = stage.server("a", &["--tools", listed.to_str().unwrap()]).server("b", &[]);
    let mut client = stage.met(json!({})).await;
    let tools = client.tools().await;
    assert!(tools.contains(&"a__b__echo".to_owned()) && tools.contains(&"b__echo".to_owned()));
    assert!(!tools.iter().any(|name| name.contains("ok2") || name.contains(' ') || !name.is_ascii()), "{tools:?}");
    client.call("b__echo", json!({"to": "b"})).await;
    assert_eq!((stage.calls("a").len(), stage.calls("b").len()), (0, 1));
    client.call("a__b__echo", json!({"to": "a"})).await;
    assert_eq!((stage.calls("a").len(), stage.calls("b").len()), (1, 1));
    assert_eq!(stage.calls("a")[0]["params"]["name"], "b__echo");
    client.end().await;
}

#[tokio::test]
async fn gw_15_a_resource_that_two_servers_claim_is_nobodys_and_one_with_a_tools_name_is_no_tool() {
    let policy = format!("{ALL}\n[mcp]\nresources = [\"a:memo://*\", \"b:memo://*\", \"a:file:///work/**\"]\n");
    let stage = Stage::new(&policy).server("b", &[]);
    let mut client = stage.met(json!({})).await;
    let answer = client.request("resources/list", json!({})).await;
    let uris: Vec<_> =
        answer["result"]["resources"].as_array().unwrap().iter().map(|r| r["uri"].as_str().unwrap()).collect();
    assert_eq!(uris, ["file:///work/a.txt"]);
    assert!(answer["result"]["_meta"]["fumehood/notes"][0].as_str().unwrap().contains("claimed by a and b"));
    let answer = client.request("resources/read", json!({"uri": "memo://shared"})).await;
    assert!(answer.get("error").is_some(), "{answer}");
    let answer = client.request("resources/read", json!({"uri": "file:///work/a.txt"})).await;
    assert!(answer["result"]["contents"][0]["text"].as_str().unwrap().contains(" has "));
    client.end().await;
}

#[tokio::test]
async fn two_servers_of_one_name_are_refused_when_the_policy_loads() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("mcp.json");
    std::fs::write(&file, r#"{"mcpServers": {"x y": {"command": "1"}, "x-y": {"command": "2"}}}"#).unwrap();
    let mut layers = policy::Layers::new(policy::Caller { dir: dir.path().into(), ..policy::Caller::default() });
    let text = format!("version = 1\n[tools]\n[mcp.servers.files]\nimport = {:?}\n", file.display().to_string());
    layers.policy("./p.toml", &|_: &std::path::Path| Ok(text.clone()));
    let loaded = layers.finish().unwrap();
    struct Real;
    impl gateway::mcp::servers::Surroundings for Real {
        fn read(&self, path: &std::path::Path) -> Result<String, String> {
            std::fs::read_to_string(path).map_err(|error| error.to_string())
        }
        fn variable(&self, _: &str) -> Option<String> {
            None
        }
    }
    let wrong =
        gateway::mcp::GatewayPolicy::of(loaded.policy.tools.as_ref().unwrap(), &loaded.documents, &Real).unwrap_err();
    assert_eq!(wrong[0].id, "mcp/name");
    assert!(wrong[0].what.contains("two servers are called `x-y`"), "{wrong:?}");
}

#[tokio::test]
async fn a_denied_tool_is_neither_shown_nor_called_and_says_what_would_be() {
    let stage = Stage::new("[[tools.tool]]\nname = \"a.echo\"\ndecision = \"allow\"\neffect = \"read\"\n");
    let mut client = stage.met(json!({})).await;
    assert_eq!(client.tools().await, ["a__echo"]);
    let answer = client.call("a__slow", json!({})).await;
    assert!(is_error(&answer) && text(&answer).starts_with("denied (tools.entry/none)"), "{answer}");
    assert_eq!(answer["result"]["_meta"]["fumehood/denied"]["decision"], "deny");
    assert_eq!(stage.calls("a").len(), 0);
    assert!(client.next_within(std::time::Duration::from_millis(50)).await.is_none());
    tokio::time::timeout(PATIENCE, client.end()).await.unwrap();
}
