//! Asking an engine of containers: one request, one answer, by its socket.
//!
//! HTTP/1.0, so that an answer has neither parts nor a length to be believed: it ends with the connection.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Where an engine is asked. Only root's own socket of each counts: the supervisor must be able to look at the processes that the
/// engine starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Api {
    /// The engine, in words.
    pub(crate) engine: &'static str,
    /// Its socket, as its package and its unit have it.
    pub(crate) socket: &'static str,
    /// What every path begins with.
    pub(crate) prefix: &'static str,
}

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
    /// Another user than root serves it; in words.
    Rootless(String),
    /// Whoever serves it is not in sight; in words.
    Elsewhere(String),
    /// It speaks no version of the interface that we do; in words.
    OtherVersion(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nobody(why)
            | Self::Other(why)
            | Self::Rootless(why)
            | Self::Elsewhere(why)
            | Self::OtherVersion(why) => f.write_str(why),
            Self::Unknown => f.write_str("the engine knows no such container"),
        }
    }
}

/// What is sent with a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Body<'a> {
    None,
    Document(&'a Value),
    /// An archive of files.
    Archive(&'a [u8]),
}

impl Api {
    fn other(&self, error: &std::io::Error) -> Failure {
        Failure::Other(format!("{}: {error}", self.socket))
    }

    /// Connects to the service.
    pub(crate) fn connect(&self) -> Result<UnixStream, Failure> {
        UnixStream::connect(self.socket).map_err(|error| {
            if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) {
                Failure::Nobody(format!("{}: {error}", self.socket))
            } else {
                self.other(&error)
            }
        })
    }

    /// Asks for `path` below the interface's own, and gives the document of the answer: null where there is none.
    pub(crate) fn ask(&self, method: Method, path: &str, body: Body<'_>) -> Result<Value, Failure> {
        let answer = self.answer(method, path, body)?;
        if answer.iter().all(u8::is_ascii_whitespace) {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&answer)
            .map_err(|error| Failure::Other(format!("{}'s answer cannot be read: {error}", self.engine)))
    }

    /// The same where nobody reads what the answer says beside that it was done.
    pub(crate) fn tell(&self, method: Method, path: &str, body: Body<'_>) -> Result<(), Failure> {
        self.answer(method, path, body).map(drop)
    }

    fn answer(&self, method: Method, path: &str, body: Body<'_>) -> Result<Vec<u8>, Failure> {
        let mut stream = self.connect()?;
        let (kind, body) = match body {
            Body::None => ("application/json", Vec::new()),
            Body::Document(document) => ("application/json", document.to_string().into_bytes()),
            Body::Archive(bytes) => ("application/x-tar", bytes.to_vec()),
        };
        let (host, prefix) = (self.engine, self.prefix);
        let head = format!(
            "{} {prefix}{path} HTTP/1.0\r\nHost: {host}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
            method.as_str(),
            body.len()
        );
        let until = Instant::now() + ANSWER;
        stream.set_write_timeout(Some(ANSWER)).map_err(|error| self.other(&error))?;
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body)).map_err(|error| self.other(&error))?;
        let answer = self.read(&mut stream, until)?;
        self.parse(&answer)
    }

    fn read(&self, stream: &mut UnixStream, until: Instant) -> Result<Vec<u8>, Failure> {
        let socket = self.socket;
        let late = || Failure::Other(format!("{socket}: no answer within {} s", ANSWER.as_secs()));
        let (mut all, mut some) = (Vec::new(), [0; 16 << 10]);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(late());
            }
            stream.set_read_timeout(Some(left)).map_err(|error| self.other(&error))?;
            match stream.read(&mut some) {
                Ok(0) => return Ok(all),
                Ok(count) => all.extend_from_slice(some.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return Err(late()),
                Err(error) => return Err(self.other(&error)),
            }
            if all.len() > MAX_ANSWER {
                return Err(Failure::Other(format!("{socket}: an answer of more than {MAX_ANSWER} bytes")));
            }
        }
    }

    fn parse(&self, answer: &[u8]) -> Result<Vec<u8>, Failure> {
        let no_http = || Failure::Other(format!("{}: what answers does not speak HTTP", self.socket));
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
            return Err(Failure::Other(format!("{} answered {status}: {}", self.engine, said(body))));
        }
        Ok(body.to_vec())
    }

    /// Whether root of this host serves it; in words why not, and which way: its process is somebody else's, or not in sight.
    pub(crate) fn served_by_root(&self) -> Result<(), Failure> {
        let stream = self.connect()?;
        let (pid, uid) =
            sys::channel::peer(&stream).map_err(|error| Failure::Other(format!("{}: {error}", self.socket)))?;
        if uid != 0 {
            return Err(Failure::Rootless(format!(
                "{} is served by user {uid}, whose containers no supervisor of root's could hold",
                self.socket
            )));
        }
        if pid <= 0 {
            return Err(Failure::Elsewhere(format!(
                "{} is served by a process that cannot be seen from here",
                self.socket
            )));
        }
        Ok(())
    }
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

    const PODMAN: Api = crate::host::podman::API;

    fn parsed(text: &str) -> Result<String, String> {
        let body = PODMAN.parse(text.as_bytes()).map_err(|failure| failure.to_string())?;
        Ok(String::from_utf8(body).unwrap())
    }

    #[test]
    fn an_answer_is_a_status_and_a_document_and_a_failure_has_the_engines_words() {
        assert_eq!(parsed("HTTP/1.0 201 Created\r\nA: b\r\n\r\n{\"Id\":\"7\"}"), Ok("{\"Id\":\"7\"}".to_owned()));
        assert_eq!(parsed("HTTP/1.0 204 No Content\r\n\r\n"), Ok(String::new()));
        let why = parsed("HTTP/1.0 500 Internal Server Error\r\n\r\n{\"cause\":\"x\",\"message\":\"no\\nroom\"}");
        assert_eq!(why, Err("podman answered 500: noroom".to_owned()));
        assert!(matches!(PODMAN.parse(b"HTTP/1.1 404 Not Found\r\n\r\n{}"), Err(Failure::Unknown)));
        for hostile in ["", "SSH-2.0-x\r\n\r\n", "HTTP/1.0\r\n\r\n", "HTTP/1.0 200 OK\n\n{}"] {
            assert!(parsed(hostile).is_err(), "{hostile:?}");
        }
    }

    #[test]
    fn what_is_no_document_is_no_answer() {
        use std::io::Write as _;
        let folder = tempfile::tempdir().unwrap();
        let socket: &'static str = folder.path().join("socket").to_str().unwrap().to_owned().leak();
        let listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
        let api = Api { engine: "it", socket, prefix: "/v1" };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for body in ["{\"a\":1}", "", "{"] {
                    let (mut client, _) = listener.accept().unwrap();
                    drop(client.read(&mut [0; 4096]));
                    client.write_all(format!("HTTP/1.0 200 OK\r\n\r\n{body}").as_bytes()).unwrap();
                }
            });
            let asked = || api.ask(Method::Get, "/x", Body::None).map_err(|failure| failure.to_string());
            assert_eq!(asked(), Ok(serde_json::json!({ "a": 1 })));
            assert_eq!(asked(), Ok(Value::Null));
            assert!(asked().unwrap_err().contains("cannot be read"));
        });
    }
}
