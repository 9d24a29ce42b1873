//! Connections that are kept: who may ask again on one is answered, and who may not is told.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::stage::{Caller, Stage, stage};

/// A connection and what came on it.
struct KeepAliveClient {
    io: TcpStream,
    heard: Vec<u8>,
}

impl KeepAliveClient {
    async fn new(stage: &Stage) -> Self {
        let io = TcpStream::connect(stage.base.strip_prefix("http://").unwrap()).await.unwrap();
        Self { io, heard: Vec::new() }
    }

    async fn say(&mut self, text: &[u8]) {
        // A connection that was closed says so when it is read.
        drop(self.io.write_all(text).await);
    }

    /// All until this comes, or until the connection ends.
    async fn until(&mut self, end: &[u8]) -> String {
        let read = async {
            let mut part = [0; 4096];
            loop {
                if let Some(at) = self.heard.windows(end.len()).position(|window| window == end) {
                    let said: Vec<u8> = self.heard.drain(..at + end.len()).collect();
                    return String::from_utf8_lossy(&said).to_ascii_lowercase();
                }
                match self.io.read(&mut part).await {
                    Ok(count @ 1..) => self.heard.extend(&part[..count]),
                    Ok(_) | Err(_) => return format!("closed after: {}", String::from_utf8_lossy(&self.heard)),
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(20), read).await.unwrap()
    }
}

/// Asks, answers late with the rest of the body, and asks again: the head of the first answer, and what the second came to.
async fn asked_twice(stage: &Stage, head: &str, first: &[u8], rest: &[u8]) -> (String, String) {
    let mut kept = KeepAliveClient::new(stage).await;
    kept.say(format!("{head}\r\n").as_bytes()).await;
    kept.say(first).await;
    let answer = kept.until(b"\r\n\r\n").await;
    kept.say(rest).await;
    let host = stage.base.strip_prefix("http://").unwrap();
    kept.say(format!("GET /health HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).await;
    (answer, kept.until(b"{\"status\":\"ok\"}").await)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_before_the_end_of_its_request_says_that_the_connection_ends() {
    let stage = stage().await;
    let host = stage.base.strip_prefix("http://").unwrap();
    let caller = Caller::new(&stage, "one");
    let made = caller.json("POST", "/sandboxes", json!({ "templateID": "base" })).await.json();
    let inside: String =
        caller.inside(&made).headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let start = format!(
        "POST /process.Process/Start HTTP/1.1\r\nHost: {host}\r\n{inside}Content-Type: application/connect+json\r\n\
         Transfer-Encoding: chunked\r\n"
    );
    let message = json!({ "process": { "cmd": "true" } }).to_string();
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let enveloped = [&[0][..], &length, message.as_bytes()].concat();
    let chunk = [format!("{:x}\r\n", enveloped.len()).as_bytes(), &enveloped, b"\r\n"].concat();
    let end = b"0\r\n\r\n";
    let nobody = format!("POST /v1/sandboxes HTTP/1.1\r\nHost: {host}\r\nContent-Length: 5\r\n");
    let held = format!("{nobody}Expect: 100-continue\r\n");
    for (what, head, first, rest) in [
        ("a refusal before the body", &nobody, &b""[..], &b"hello"[..]),
        ("a refusal in the middle of it", &nobody, b"he", b"llo"),
        ("a refusal of what the client holds back", &held, b"", b""),
        ("a stream of answers to a message whose stream goes on", &start, &chunk, end),
    ] {
        let (answer, then) = asked_twice(&stage, head, first, rest).await;
        assert!(answer.contains("\r\nconnection: close\r\n"), "{what}: {answer}, then {then}");
        assert!(!answer.contains(" 100 "), "{what}: {answer}");
    }
    // The control: what came whole, read or not, keeps its connection.
    let whole = [&chunk, &end[..]].concat();
    for (what, head, first) in [("a refusal", &nobody, &b"hello"[..]), ("a stream of answers", &start, &whole)] {
        let (answer, then) = asked_twice(&stage, head, first, b"").await;
        assert!(!answer.contains("connection: close"), "{what}: {answer}");
        assert!(then.contains("\"status\":\"ok\""), "{what}: {answer}, then {then}");
    }
}

/// Longer than a head may take: E2B's clients keep idle connections for five minutes.
pub(crate) async fn idle_for_longer_than_a_head_takes(stage: &Stage) {
    let mut kept = KeepAliveClient::new(stage).await;
    let host = stage.base.strip_prefix("http://").unwrap();
    let ask = format!("GET /health HTTP/1.1\r\nHost: {host}\r\n\r\n");
    for pause in [0, 33] {
        tokio::time::sleep(Duration::from_secs(pause)).await;
        kept.say(ask.as_bytes()).await;
        let said = kept.until(b"{\"status\":\"ok\"}").await;
        assert!(said.starts_with("http/1.1 200"), "after {pause} s: {said}");
    }
}
