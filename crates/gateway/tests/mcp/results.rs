//! GW-19: what a tool answers, as the client gets it; and GW-16 at this front door: sessions and connections evade no limit.

use serde_json::json;

use crate::stage::{ALL, Client, Stage, is_error, text};

#[tokio::test]
async fn gw_19_nothing_of_a_result_acts_or_hides_wherever_it_stands() {
    let stage = Stage::new(ALL);
    let mut client = stage.met(json!({})).await;
    for tool in ["a__ansi", "a__error", "a__fake_image"] {
        let answer = client.call(tool, json!({})).await;
        let bytes = answer.to_string();
        for act in ['\u{1b}', '\u{7}', '\u{202e}', '\u{200b}'] {
            assert!(!bytes.contains(act) && !bytes.contains(&format!("\\u{:04x}", u32::from(act))), "{tool}: {bytes}");
        }
        assert!(!bytes.contains("PHN2Zz"), "a picture that is text does not pass: {bytes}");
    }
    client.end().await;
}

#[tokio::test]
async fn gw_19_structure_that_its_own_schema_does_not_allow_does_not_pass() {
    let stage = Stage::new(ALL);
    let file = stage.path("tools.json");
    let output = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    std::fs::write(
        &file,
        json!([{"name": "structured", "inputSchema": {"type": "object"}, "outputSchema": output}]).to_string(),
    )
    .unwrap();
    let stage = stage.server("a", &["--tools", file.to_str().unwrap()]);
    let mut client = stage.met(json!({})).await;
    let answer = client.call("a__structured", json!({})).await;
    assert!(answer["result"].get("structuredContent").is_none(), "{answer}");
    client.end().await;
}

#[tokio::test]
async fn gw_19_a_result_is_no_larger_than_the_policy_lets_it_be_and_secrets_are_taken_out() {
    let policy = "[[tools.tool]]\nname = \"a.echo\"\ndecision = \"allow\"\neffect = \"read\"\nresult = { max = \"4K\", redact = [\"sk-[a-z0-9]+\"] }\n";
    let stage = Stage::new(policy);
    let mut client = stage.met(json!({})).await;
    let answer = client.call("a__echo", json!({"x": "y".repeat(1 << 20)})).await;
    assert!(answer["result"].to_string().len() < 8192, "{} bytes", answer.to_string().len());
    let answer = client.call("a__echo", json!({"x": "sk-abc123"})).await;
    assert!(!answer.to_string().contains("sk-abc"), "{answer}");
    client.end().await;
}

#[tokio::test]
async fn gw_16_new_connections_and_cancelled_calls_do_not_reset_a_limit() {
    let policy = "[[tools.tool]]\nname = \"a.echo\"\ndecision = \"allow\"\neffect = \"read\"\nrate = { calls = 3, per = \"10m\" }\n";
    let stage = Stage::new(policy);
    let gateway = stage.gateway();
    let mut denied = 0;
    for _ in 0..4 {
        let mut client = Client::of(gateway.clone());
        client.handshake(json!({})).await;
        for n in 0..2 {
            let answer = client.call("a__echo", json!({ "n": n })).await;
            if is_error(&answer) {
                assert!(text(&answer).contains("tools.rate/exceeded"), "{answer}");
                denied += 1;
            }
        }
        client.end().await;
    }
    assert_eq!((stage.calls("a").len(), denied), (3, 5));
}

#[tokio::test]
async fn every_decision_is_written_down_with_its_hash() {
    let stage = Stage::new("[[tools.tool]]\nname = \"a.echo\"\ndecision = \"allow\"\neffect = \"read\"\n");
    let mut client = stage.met(json!({})).await;
    client.call("a__echo", json!({"x": 1})).await;
    client.call("a__slow", json!({})).await;
    let decided = stage.record.of("tool.decided");
    assert_eq!(decided.len(), 2, "{decided:?}");
    assert_eq!(stage.record.of("tool.called").len(), 1);
    assert_eq!(stage.record.of("tool.ended").len(), 1);
    client.end().await;
}
