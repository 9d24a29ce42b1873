//! Connect's protocol with JSON: unary calls, streams of enveloped messages, and errors in both.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use serde_json::{Map, Value as Json, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::content::{CutStream, broken};
use crate::answer::{harden, json_response};
use crate::rpc::{RpcCode, RpcError};

/// The longest message of a caller, bytes.
const MAX_MESSAGE: usize = 8 << 20;
/// How long a unary body may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// The flag of the last envelope.
const END: u8 = 2;
/// The flag of an envelope that is compressed.
const COMPRESSED: u8 = 1;
/// Bytes before a message.
const HEADER: usize = 5;

/// The message of a unary call.
pub(super) async fn message(request: Request) -> Result<Map<String, Json>, RpcError> {
    if !is_kind(request.headers(), "application/json") {
        return Err(RpcError::new(RpcCode::InvalidArgument, "send JSON, as `Content-Type: application/json`"));
    }
    let read = axum::body::to_bytes(request.into_body(), MAX_MESSAGE);
    match tokio::time::timeout(BODY_TIMEOUT, read).await {
        Ok(Ok(bytes)) => object(&bytes),
        Ok(Err(_cut)) => Err(RpcError::new(RpcCode::ResourceExhausted, "the message broke off, or is too long")),
        Err(_late) => Err(RpcError::new(RpcCode::DeadlineExceeded, "the message did not come within 60 s")),
    }
}

fn object(bytes: &[u8]) -> Result<Map<String, Json>, RpcError> {
    match crate::json::parse(bytes) {
        Ok(Json::Object(map)) => Ok(map),
        Ok(_) => Err(RpcError::new(RpcCode::InvalidArgument, "the message is no JSON object")),
        Err(error) => Err(RpcError::new(RpcCode::InvalidArgument, format!("the message is no JSON: {error}"))),
    }
}

fn is_kind(headers: &HeaderMap, kind: &str) -> bool {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let plain = given.split(';').next().unwrap_or_default().trim();
    let encoding = headers.get(header::CONTENT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or("identity");
    plain.eq_ignore_ascii_case(kind) && encoding.eq_ignore_ascii_case("identity")
}

/// The answer to a unary call.
pub(super) fn unary(id: &str, result: Result<Json, RpcError>) -> Response<Body> {
    match result {
        Ok(value) => json_response(StatusCode::OK, &value),
        Err(error) if error.code == RpcCode::Gone => super::gone(id, false),
        Err(error) => json_response(error.code.code_and_status().1, &error.json()),
    }
}

/// The messages of a stream that a caller sends.
pub(super) struct Messages {
    body: Body,
    waiting: Vec<u8>,
}

impl Messages {
    /// # Errors
    /// It is no stream of JSON.
    pub(super) fn of(request: Request) -> Result<Self, RpcError> {
        if is_kind(request.headers(), "application/connect+json") {
            Ok(Self { body: request.into_body(), waiting: Vec::new() })
        } else {
            let message = "send enveloped JSON, as `Content-Type: application/connect+json`";
            Err(RpcError::new(RpcCode::InvalidArgument, message))
        }
    }

    /// The next message; none at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Map<String, Json>>, RpcError> {
        loop {
            if let Some((flags, length)) = envelope(&self.waiting)? {
                let end = HEADER.saturating_add(length);
                if let Some(message) = self.waiting.get(HEADER..end) {
                    let message = (flags & END == 0).then(|| object(message)).transpose()?;
                    self.waiting.drain(..end);
                    return Ok(message);
                }
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        self.waiting.extend_from_slice(&bytes);
                    }
                }
                Some(Err(_)) => return Err(RpcError::new(RpcCode::Canceled, "the request broke off")),
                None if self.waiting.is_empty() => return Ok(None),
                None => return Err(RpcError::new(RpcCode::InvalidArgument, "the request ends inside a message")),
            }
        }
    }
}

/// The flags and the length of the first message, once they are there.
fn envelope(bytes: &[u8]) -> Result<Option<(u8, usize)>, RpcError> {
    let Some(&[flags, a, b, c, d]) = bytes.first_chunk::<HEADER>() else { return Ok(None) };
    let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
    if flags & COMPRESSED != 0 {
        return Err(RpcError::new(RpcCode::InvalidArgument, "messages are not compressed here"));
    }
    if length > MAX_MESSAGE {
        return Err(RpcError::new(RpcCode::ResourceExhausted, "a message is longer than 8 MiB"));
    }
    Ok(Some((flags, length)))
}

fn enveloped(flags: u8, message: &Json) -> Bytes {
    let text = message.to_string();
    let mut bytes = Vec::with_capacity(text.len().saturating_add(HEADER));
    bytes.push(flags);
    bytes.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes.into()
}

/// Where the messages of an answer go.
#[derive(Debug)]
pub(super) struct Events {
    to: mpsc::Sender<std::io::Result<Bytes>>,
}

impl Events {
    /// Sends a message; false when nobody reads any more.
    pub(super) async fn send(&self, message: &Json) -> bool {
        self.to.send(Ok(enveloped(0, message))).await.is_ok()
    }

    /// Done when nobody reads any more.
    pub(super) async fn closed(&self) {
        self.to.closed().await;
    }

    /// The last envelope; of a sandbox that is gone there is none: the answer breaks off.
    pub(super) async fn end(self, result: Result<(), RpcError>) {
        let last = match result {
            Ok(()) => Ok(enveloped(END, &json!({}))),
            Err(error) if error.code == RpcCode::Gone => Err(broken()),
            Err(error) => Ok(enveloped(END, &json!({ "error": error.json() }))),
        };
        if self.to.send(last).await.is_err() {
            // Nobody reads.
        }
    }
}

/// An answer of many messages, which breaks off when it is cut.
pub(super) fn streaming(cut: CancellationToken) -> (Events, Response<Body>) {
    let (to, body) = CutStream::body(cut);
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/connect+json"));
    harden(headers);
    (Events { to }, response)
}

/// After how long a silent stream says that it is alive.
pub(super) fn keepalive(headers: &HeaderMap) -> Duration {
    let asked = headers.get("keepalive-ping-interval").and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    Duration::from_secs(asked.unwrap_or(90).clamp(1, 3600))
}

/// How long the call may take, as the caller says.
pub(super) fn deadline_ms(headers: &HeaderMap) -> Option<u64> {
    headers.get("connect-timeout-ms")?.to_str().ok()?.parse().ok().filter(|ms| *ms > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_is_read_when_it_is_there_and_bounded() {
        assert_eq!(envelope(&[0, 0, 0, 0]), Ok(None));
        assert_eq!(envelope(&[2, 0, 0, 1, 0, 7]), Ok(Some((2, 256))));
        assert_eq!(envelope(&[1, 0, 0, 0, 0]).unwrap_err().code, RpcCode::InvalidArgument);
        assert_eq!(envelope(&[0, 255, 255, 255, 255]).unwrap_err().code, RpcCode::ResourceExhausted);
    }

    #[tokio::test]
    async fn messages_come_whole_however_the_body_is_cut() {
        let bytes = [enveloped(0, &json!({ "a": 1 })), enveloped(0, &json!({ "b": 2 }))].concat();
        let pieces = bytes.chunks(3).map(|piece| Ok::<_, std::io::Error>(Bytes::copy_from_slice(piece)));
        let body = Body::from_stream(tokio_stream::iter(pieces.collect::<Vec<_>>()));
        let mut messages = Messages { body, waiting: Vec::new() };
        assert_eq!(messages.next().await.unwrap().unwrap().get("a"), Some(&json!(1)));
        assert_eq!(messages.next().await.unwrap().unwrap().get("b"), Some(&json!(2)));
        assert_eq!(messages.next().await, Ok(None));
        let mut broken = Messages { body: Body::from(vec![0, 0, 0, 0, 9, b'{']), waiting: Vec::new() };
        assert_eq!(broken.next().await.unwrap_err().code, RpcCode::InvalidArgument);
    }
}
