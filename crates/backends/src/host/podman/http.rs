//! Asking the engine: one request, one answer, by its socket.
//!
//! HTTP/1.0, so that an answer has neither parts nor a length to be believed: it ends with the connection.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde_json::Value;

/// The service's socket, as its package and its unit have it. No other one counts: the supervisor must be able to look at the
/// processes that it starts.
pub(crate) const SOCKET: &str = "/run/podman/podman.sock";
/// How long one answer may take: the engine may have to wait for a lock of its own.
const ANSWER: Duration = Duration::from_secs(30);
/// Longest answer; what is asked for is some KiB long.
const MAX_ANSWER: usize = 4 << 20;
/// Longest text of the engine that is told.
const MAX_TOLD: usize = 300;

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Method {
    Get,
    Post,
    Delete,
}

impl Method {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Delete => "DELETE",
        }
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nobody serves the socket; in words.
    Nobody(String),
    /// It is served, and this is what went wrong.
    Other(String),
    /// It answers that it does not know the thing.
    Unknown,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nobody(why) | Self::Other(why) => f.write_str(why),
            Self::Unknown => f.write_str("podman knows no such container"),
        }
    }
}

fn other(error: &std::io::Error) -> Failure {
    Failure::Other(format!("{SOCKET}: {error}"))
}

/// Connects to the service.
pub(crate) fn connect() -> Result<UnixStream, Failure> {
    UnixStream::connect(SOCKET).map_err(|error| {
        if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) {
            Failure::Nobody(format!("{SOCKET}: {error}"))
        } else {
            other(&error)
        }
    })
}

/// Asks for `path` below the interface's own, and gives the document of the answer: null where there is none.
pub(crate) fn ask(method: Method, path: &str, body: Option<&Value>) -> Result<Value, Failure> {
    let mut stream = connect()?;
    let body = body.map(Value::to_string).unwrap_or_default();
    let head = format!(
        "{} /v4.0.0/libpod{path} HTTP/1.0\r\nHost: podman\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        method.as_str(),
        body.len()
    );
    let until = Instant::now() + ANSWER;
    stream.set_write_timeout(Some(ANSWER)).map_err(|error| other(&error))?;
    stream
        .write_all(head.as_bytes())
        .and_then(|()| stream.write_all(body.as_bytes()))
        .map_err(|error| other(&error))?;
    let answer = read(&mut stream, until)?;
    parse(&answer)
}

fn read(stream: &mut UnixStream, until: Instant) -> Result<Vec<u8>, Failure> {
    let late = || Failure::Other(format!("{SOCKET}: no answer within {} s", ANSWER.as_secs()));
    let (mut all, mut some) = (Vec::new(), [0; 16 << 10]);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(late());
        }
        stream.set_read_timeout(Some(left)).map_err(|error| other(&error))?;
        match stream.read(&mut some) {
            Ok(0) => return Ok(all),
            Ok(count) => all.extend_from_slice(some.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return Err(late()),
            Err(error) => return Err(other(&error)),
        }
        if all.len() > MAX_ANSWER {
            return Err(Failure::Other(format!("{SOCKET}: an answer of more than {MAX_ANSWER} bytes")));
        }
    }
}

fn parse(answer: &[u8]) -> Result<Value, Failure> {
    let no_http = || Failure::Other(format!("{SOCKET}: what answers does not speak HTTP"));
    let split = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or_else(no_http)?;
    let (head, rest) = answer.split_at(split);
    let body = rest.get(4..).unwrap_or_default();
    let head = String::from_utf8_lossy(head);
    let mut words = head.lines().next().unwrap_or_default().split(' ');
    let (Some(version), Some(status)) = (words.next(), words.next()) else { return Err(no_http()) };
    if !version.starts_with("HTTP/1.") {
        return Err(no_http());
    }
    if status == "404" {
        return Err(Failure::Unknown);
    }
    if !["200", "201", "204", "304"].contains(&status) {
        return Err(Failure::Other(format!("podman answered {status}: {}", said(body))));
    }
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Value::Null);
    }
    serde_json::from_slice(body).map_err(|error| Failure::Other(format!("podman's answer cannot be read: {error}")))
}

/// The engine's own words for a failure.
fn said(body: &[u8]) -> String {
    let document: Option<Value> = serde_json::from_slice(body).ok();
    let words = document.as_ref().and_then(|document| document.get("message")?.as_str().map(str::to_owned));
    let words = words.unwrap_or_else(|| String::from_utf8_lossy(body).into_owned());
    words.chars().filter(|c| !c.is_control()).take(MAX_TOLD).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Value, String> {
        parse(text.as_bytes()).map_err(|failure| failure.to_string())
    }

    #[test]
    fn an_answer_is_a_status_and_a_document_and_a_failure_has_the_engines_words() {
        assert_eq!(parsed("HTTP/1.0 201 Created\r\nA: b\r\n\r\n{\"Id\":\"7\"}"), Ok(serde_json::json!({ "Id": "7" })));
        assert_eq!(parsed("HTTP/1.0 204 No Content\r\n\r\n"), Ok(Value::Null));
        let why = parsed("HTTP/1.0 500 Internal Server Error\r\n\r\n{\"cause\":\"x\",\"message\":\"no\\nroom\"}");
        assert_eq!(why, Err("podman answered 500: noroom".to_owned()));
        assert!(matches!(parse(b"HTTP/1.1 404 Not Found\r\n\r\n{}"), Err(Failure::Unknown)));
        for hostile in
            ["", "SSH-2.0-x\r\n\r\n", "HTTP/1.0\r\n\r\n", "HTTP/1.0 200 OK\r\n\r\n{", "HTTP/1.0 200 OK\n\n{}"]
        {
            assert!(parsed(hostile).is_err(), "{hostile:?}");
        }
    }
}
