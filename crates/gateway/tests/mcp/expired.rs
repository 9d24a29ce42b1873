//! A server behind HTTP that no longer knows our session, and one that says back with what header it was asked.
#![expect(clippy::disallowed_methods, reason = "the far server is no sandbox; it is started as anybody would")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::stage::{QUIET, Stage, is_error, text};

const TOKEN: &str = "the-servers-own-token";

/// The server; it ends with this.
struct Far {
    child: Child,
    base: String,
}

impl Far {
    fn start(script: &str) -> Self {
        if rustls::crypto::ring::default_provider().install_default().is_err() {
            // Another test has named it.
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers").join(script);
        let mut command = Command::new("/usr/bin/python3");
        let mut child = command.arg(script).arg(TOKEN).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, base: format!("http://127.0.0.1:{}", line.trim()) }
    }

    async fn forget(&self) -> usize {
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let answer = http.post(format!("{}/forget", self.base)).send().await.unwrap();
        answer.json().await.unwrap()
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[tokio::test]
async fn a_server_behind_http_comes_back_after_its_session_is_gone() {
    let far = Far::start("sessions.py");
    let near = Stage::new("[[tools.tool]]\nname = \"far.where\"\ndecision = \"allow\"\neffect = \"read\"\n").http(
        "far",
        &format!("{}/mcp", far.base),
        TOKEN,
    );
    let mut client = near.met(json!({})).await;
    let mut before = String::new();
    for round in 0..3 {
        let mut answer = client.call("far__where", json!({ "n": round })).await;
        for _ in 0..240 {
            if answer.get("error").is_none() && !is_error(&answer) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
            answer = client.call("far__where", json!({ "n": round })).await;
        }
        assert!(!is_error(&answer), "round {round}: {answer}");
        assert_ne!(text(&answer), before, "another session than the one that is gone");
        text(&answer).clone_into(&mut before);
        assert_eq!(client.tools().await, ["far__where"]);
        assert_eq!(far.forget().await, 1, "one session at a time, and now none");
    }
    client.end().await;
}

#[tokio::test]
async fn a_server_that_says_our_header_back_is_not_repeated_to_clients() {
    let far = Far::start("tells.py");
    let near = Stage::new("[[tools.tool]]\nname = \"far.*\"\ndecision = \"allow\"\neffect = \"read\"\n").http(
        "far",
        &format!("{}/mcp", far.base),
        TOKEN,
    );
    let mut client = near.client();
    let mut all = vec![client.handshake(json!({})).await, client.request("tools/list", json!({})).await];
    client.request("logging/setLevel", json!({ "level": "debug" })).await;
    for tool in ["far__result", "far__error", "far__broken"] {
        let params = json!({ "name": tool, "arguments": {}, "_meta": { "progressToken": 1 } });
        all.push(client.request("tools/call", params).await);
    }
    // What is told beside an answer may come behind it.
    while let Some(message) = client.next_within(QUIET).await {
        all.push(message);
    }
    all.append(&mut client.heard);
    client.end().await;
    let mut all = Json::Array(all).to_string();
    for event in near.record.0.lock().unwrap().iter() {
        all.push_str(&event.body.to_string());
    }
    let count = |word: &str| all.matches(word).count();
    for word in ["notifications/progress", "notifications/message", "[resource withheld: its data is no base64]"] {
        assert_eq!(count(word), 1, "{word}: {all}");
    }
    let backwards: String = TOKEN.chars().rev().collect();
    assert!(count(&backwards) >= 9, "each description, the progress, the result, errors and their records: {all}");
    assert_eq!(count("you came with ****************************, which is"), count(&backwards), "{all}");
    assert!(!all.contains(TOKEN) && !all.contains("dGhlLXNlcnZlcnMt"), "{all}");
}
