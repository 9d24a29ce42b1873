//! Traces: one span for each request that this server answers, sent to an OpenTelemetry receiver (OTLP, JSON over HTTP).
//!
//! Promises: without the variables nothing is made or sent; no request ever waits for a receiver: what does not fit the queue, or
//! cannot be delivered, is dropped and counted; a span holds no header, no query and no body.

mod variables;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Response};
use http::{Request, header};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use policy::json::{hex, unhex};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::answer::ProblemId;
use crate::meters::Part;

pub use variables::{Traces, Unfit};

/// Spans that wait to be sent; more are dropped.
const MAX_WAITING: usize = 2048;
/// Spans that are sent at once.
const MAX_BATCH: usize = 512;
/// Bytes of a path that a span holds.
const MAX_PATH: usize = 256;
/// How long the last ones may take when the server ends.
const LAST: Duration = Duration::from_secs(2);
/// SPAN_KIND_SERVER and STATUS_CODE_ERROR of OTLP.
const SERVER: u8 = 2;
const ERROR: u8 = 2;

/// What is known of a request when it comes.
#[derive(Debug)]
pub(crate) struct OpenSpan {
    trace: [u8; 16],
    parent: Option<[u8; 8]>,
    method: &'static str,
    path: Option<String>,
    at: SystemTime,
}

/// Where spans are put.
#[derive(Clone, Debug)]
pub(crate) struct Tracer {
    to: Sender<Value>,
    dropped: Arc<AtomicU64>,
}

/// What sends them; it runs as long as the server does.
#[derive(Debug)]
pub(crate) struct Exporter {
    settings: Traces,
    from: Receiver<Value>,
    dropped: Arc<AtomicU64>,
}

/// Both ends.
pub(crate) fn pair(settings: Traces) -> (Tracer, Exporter) {
    let (to, from) = channel(MAX_WAITING);
    let dropped = Arc::default();
    (Tracer { to, dropped: Arc::clone(&dropped) }, Exporter { settings, from, dropped })
}

impl Tracer {
    /// A request has come; none where its caller says that its trace is not sampled.
    pub(crate) fn begin(request: &Parts, part: Part) -> Option<OpenSpan> {
        let (trace, parent) = match caller(&request.headers) {
            Some((_, _, false)) => return None,
            Some((trace, parent, true)) => (trace, Some(parent)),
            None => (random()?, None),
        };
        // Below a sandbox's own address the path is its program's, and may hold what that takes for a secret.
        let ours = matches!(part, Part::Control | Part::Native);
        let path = request.uri.path();
        let path = ours.then(|| path.get(..path.floor_char_boundary(MAX_PATH)).unwrap_or_default().to_owned());
        Some(OpenSpan { trace, parent, method: method(request.method.as_str()), path, at: SystemTime::now() })
    }

    /// It was answered. Never waits.
    pub(crate) fn end(&self, begun: &OpenSpan, part: Part, response: &Response<Body>, took: Duration) {
        let Some(id) = random::<8>() else { return };
        if self.to.try_send(span(begun, id, part, response, took)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Spans that were dropped.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// A method by its name, or the word that stands for all others: a span's name is of a closed list.
fn method(name: &str) -> &'static str {
    const KNOWN: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
    KNOWN.into_iter().find(|known| *known == name).unwrap_or("_OTHER")
}

fn random<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    // Nothing but zeros would be no id.
    (sys::random::fill(&mut bytes) && bytes != [0; N]).then_some(bytes)
}

/// Trace, span and whether it is sampled, of a `traceparent` (W3C Trace Context) that is one.
fn caller(headers: &HeaderMap) -> Option<([u8; 16], [u8; 8], bool)> {
    let mut all = headers.get_all("traceparent").iter();
    let (Some(text), None) = (all.next(), all.next()) else { return None };
    let text = text.to_str().ok()?;
    let lower = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-'));
    let parts: Vec<&str> = text.split('-').collect();
    // Of a version that is not known yet more may follow; ff is none.
    let (version, trace, parent, flags) = match parts.as_slice() {
        [version, trace, parent, flags] => (*version, *trace, *parent, *flags),
        [version, trace, parent, flags, ..] if *version != "00" => (*version, *trace, *parent, *flags),
        _ => return None,
    };
    if !lower || version.len() != 2 || version == "ff" || flags.len() != 2 {
        return None;
    }
    let trace: [u8; 16] = unhex(trace)?.try_into().ok().filter(|id| *id != [0; 16])?;
    let parent: [u8; 8] = unhex(parent)?.try_into().ok().filter(|id| *id != [0; 8])?;
    let flags = unhex(flags)?.first().copied()?;
    Some((trace, parent, flags & 1 == 1))
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

/// OTLP's JSON has ids as hex, and numbers of 64 bits as text.
fn span(begun: &OpenSpan, id: [u8; 8], part: Part, response: &Response<Body>, took: Duration) -> Value {
    let nanos = |at: SystemTime| at.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos().to_string();
    let status = response.status().as_u16();
    let mut attributes = vec![
        text("http.request.method", begun.method),
        json!({ "key": "http.response.status_code", "value": { "intValue": status.to_string() } }),
        text("fumehood.part", part.as_str()),
    ];
    attributes.extend(begun.path.as_deref().map(|path| text("url.path", path)));
    attributes.extend(response.extensions().get::<ProblemId>().map(|ProblemId(id)| text("error.type", id)));
    let mut span = json!({
        "traceId": hex(&begun.trace),
        "spanId": hex(&id),
        "name": format!("{} {}", begun.method, part.as_str()),
        "kind": SERVER,
        "startTimeUnixNano": nanos(begun.at),
        "endTimeUnixNano": nanos(begun.at.checked_add(took).unwrap_or(begun.at)),
        "attributes": attributes,
    });
    if let Some(map) = span.as_object_mut() {
        if let Some(parent) = begun.parent {
            map.insert("parentSpanId".to_owned(), json!(hex(&parent)));
        }
        if status >= 500 {
            map.insert("status".to_owned(), json!({ "code": ERROR }));
        }
    }
    span
}

impl Exporter {
    /// Sends what comes, until `stop`; then what is left, for [`LAST`].
    pub(crate) async fn run(mut self, stop: impl Future<Output = ()>) {
        tokio::pin!(stop);
        let mut batch = Vec::new();
        loop {
            let more = async {
                let due = tokio::time::sleep(self.settings.delay);
                tokio::pin!(due);
                while batch.len() < MAX_BATCH {
                    tokio::select! {
                        () = &mut due => break,
                        span = self.from.recv() => match span {
                            Some(span) => batch.push(span),
                            None => return false,
                        },
                    }
                }
                true
            };
            let goes_on = tokio::select! { more = more => more, () = &mut stop => false };
            if !goes_on {
                break;
            }
            tokio::select! {
                () = self.send(std::mem::take(&mut batch)) => {}
                () = &mut stop => break,
            }
        }
        while batch.len() < MAX_BATCH
            && let Ok(span) = self.from.try_recv()
        {
            batch.push(span);
        }
        // Whoever ends the server does not wait for a receiver.
        let _late = tokio::time::timeout(LAST, self.send(batch)).await;
    }

    async fn send(&self, spans: Vec<Value>) {
        if spans.is_empty() {
            return;
        }
        let count = u64::try_from(spans.len()).unwrap_or(u64::MAX);
        let delivered = tokio::time::timeout(self.settings.timeout, self.deliver(spans)).await;
        if !matches!(delivered, Ok(Some(()))) {
            self.dropped.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// One connection for each batch: a receiver that hangs holds nothing up but the next batch.
    async fn deliver(&self, spans: Vec<Value>) -> Option<()> {
        let Traces { host, port, target, headers, resource, .. } = &self.settings;
        let attributes: Vec<Value> = resource.iter().map(|(key, value)| text(key, value)).collect();
        let body = json!({ "resourceSpans": [{
            "resource": { "attributes": attributes },
            "scopeSpans": [{ "scope": { "name": "fumehood" }, "spans": spans }],
        }] });
        let stream = TcpStream::connect((host.as_str(), *port)).await.ok()?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
        let connection = tokio::spawn(connection);
        let authority = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let mut request = Request::post(target.as_str())
            .header(header::HOST, authority)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(bytes::Bytes::from(body.to_string())))
            .ok()?;
        request.headers_mut().extend(headers.iter().cloned());
        let answered = sender.send_request(request).await;
        connection.abort();
        // Redirects are followed nowhere, and what it answers is nothing to us.
        answered.ok().filter(|answer| answer.status().is_success()).map(drop)
    }
}

#[cfg(test)]
mod tests;
