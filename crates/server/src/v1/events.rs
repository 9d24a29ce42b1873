//! Server-sent events.

use std::io;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, Response, header};
use serde_json::Value as Json;
use tokio::sync::mpsc::Sender;
use tokio_util::sync::CancellationToken;

use crate::answer::harden;
use crate::app::AppState;
use crate::envd::CutStream;

/// Where events are put.
pub(super) type Events = Sender<io::Result<Bytes>>;

/// Whether a request wants events.
pub(super) fn wanted(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/event-stream"))
}

/// One event.
pub(super) fn event(name: &str, data: &Json) -> Bytes {
    // JSON has no line breaks: the data is one line.
    Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
}

/// An answer of events, which breaks off when the sandbox is gone, and where they are put.
pub(super) fn answer(app: &AppState, id: &str) -> (Events, Response<Body>) {
    answer_until(app.cut_of(id))
}

/// The same, which breaks off when this is cancelled.
pub(super) fn answer_until(cut: CancellationToken) -> (Events, Response<Body>) {
    let (to, body) = CutStream::body(cut);
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    harden(response.headers_mut());
    (to, response)
}

/// Puts an event; false where nobody reads any more.
pub(super) async fn put(to: &Events, name: &str, data: &Json) -> bool {
    to.send(Ok(event(name, data))).await.is_ok()
}

/// Breaks the answer off: the sandbox is gone.
pub(super) async fn reset(to: &Events) {
    // Who reads no more needs no end.
    drop(to.send(Err(io::ErrorKind::ConnectionReset.into())).await);
}
