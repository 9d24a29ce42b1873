//! A server behind HTTP that no longer knows our session.
#![expect(clippy::disallowed_methods, reason = "the far server is no sandbox; it is started as anybody would")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::json;

use crate::stage::{Stage, is_error, text};

const TOKEN: &str = "the-servers-own-token";

/// The server; it ends with this.
struct Far {
    child: Child,
    base: String,
}

impl Far {
    fn start() -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/sessions.py");
        let mut command = Command::new("/usr/bin/python3");
        let mut child = command.arg(script).arg(TOKEN).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, base: format!("http://127.0.0.1:{}", line.trim()) }
    }

    async fn forget(&self) -> usize {
        if rustls::crypto::ring::default_provider().install_default().is_err() {
            // Another test has named it.
        }
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
    let far = Far::start();
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
