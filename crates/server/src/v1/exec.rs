//! `POST /v1/sandboxes/ID/exec`: one answer, or events as they happen.

use std::sync::Arc;

use agent::words::{Code, Program, Size};
use axum::body::{Body, Bytes};
use axum::extract::{Extension, Path, Request, State};
use axum::http::{HeaderValue, Response, StatusCode, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use live::client::{Incoming, Stream};
use live::words::{Ask, Exec, Programs, Running};
use serde_json::{Map, Value as Json, json};

use super::sandboxes::duration;
use super::{Answer, body};
use crate::answer::{Problem, harden, json_response};
use crate::desk::Desk;
use crate::envd::CutStream;
use crate::keys::Key;
use crate::{backend, json as read};

/// Fields of a request.
const KNOWN: &[&str] = &["cmd", "python", "env", "cwd", "timeout", "stdin", "tty", "detach"];
/// Most bytes of one lane in one answer; events have no such bound.
const MAX_KEPT: usize = 16 << 20;

pub(super) async fn exec(
    State(desk): State<Arc<Desk>>,
    Extension(key): Extension<Key>,
    Path(id): Path<String>,
    request: Request,
) -> Answer {
    let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let as_events = accept.contains("text/event-stream");
    let asked = read::object(&body(request).await?)?;
    let (ask, stdin) = wanted(&asked)?;
    desk.own(&key, &id).await?;
    let detached = matches!(&ask, Ask::Exec(exec) if exec.detach);
    let mut stream = backend::open(&*desk.sandboxes, &id, &ask).await?;
    let running = backend::reply::<Running>(&mut stream).await?;
    if !stdin.is_empty() {
        let sender = stream.sender();
        tokio::spawn(async move {
            // A program that ended reads no more.
            let _ended = sender.send(stdin.as_bytes()).await.is_ok() && sender.eof().is_err();
        });
    }
    if as_events {
        return Ok(events(&desk, &id, running, stream));
    }
    if detached {
        return Ok(json_response(StatusCode::ACCEPTED, &json!({ "id": running.id, "pid": running.pid })));
    }
    whole(running, stream).await
}

fn wanted(asked: &Map<String, Json>) -> Result<(Ask, String), Problem> {
    if let Some(unknown) = asked.keys().find(|field| !KNOWN.contains(&field.as_str())) {
        let what = format!("{} is not known here", policy::diagnostic::quote(unknown));
        return Err(Problem::invalid(unknown, &what));
    }
    if let Some(code) = read::text(asked, "python")? {
        if let Some(other) = asked.keys().find(|field| !matches!(field.as_str(), "python" | "timeout")) {
            return Err(Problem::invalid(other, "code for the Python that waits comes with `timeout` alone"));
        }
        let ask = Ask::Python { code: code.to_owned(), timeout_ms: duration(asked, "timeout")? };
        return Ok((ask, String::new()));
    }
    let argv = read::list(asked, "cmd")?;
    if argv.is_empty() {
        return Err(Problem::invalid("cmd", "`cmd` is missing: the program and its arguments, as a list"));
    }
    let stdin = read::text(asked, "stdin")?.unwrap_or_default().to_owned();
    let tty = read::flag(asked, "tty")?.unwrap_or(false).then_some(Size { rows: 24, cols: 80 });
    let program = Program {
        argv,
        env: read::texts(asked, "env")?,
        cwd: read::text(asked, "cwd")?.map(str::to_owned),
        tty,
        stdin: !stdin.is_empty(),
    };
    let detach = read::flag(asked, "detach")?.unwrap_or(false);
    Ok((Ask::Exec(Exec { program, timeout_ms: duration(asked, "timeout")?, detach, tag: None }), stdin))
}

/// The whole output and how it ended.
async fn whole(running: Running, mut stream: Stream) -> Answer {
    let (mut out, mut err, mut cut) = (Vec::new(), Vec::new(), 0_usize);
    while let Some(incoming) = stream.next().await {
        let (kept, bytes) = match incoming {
            Incoming::Out(bytes) => (&mut out, bytes),
            Incoming::Err(bytes) => (&mut err, bytes),
            Incoming::Event(_) => continue,
            Incoming::End(end) => {
                let mut answer = json!({ "id": running.id, "pid": running.pid, "report": end?, "cut": cut });
                if let Some(map) = answer.as_object_mut() {
                    put_text(map, "stdout", out);
                    put_text(map, "stderr", err);
                }
                return Ok(json_response(StatusCode::OK, &answer));
            }
        };
        let room = MAX_KEPT.saturating_sub(kept.len());
        kept.extend(bytes.iter().take(room));
        cut = cut.saturating_add(bytes.len().saturating_sub(room));
    }
    Err(backend::gone().into())
}

/// Text as text, other bytes as `NAME_base64`.
fn put_text(map: &mut Map<String, Json>, name: &str, bytes: Vec<u8>) {
    match String::from_utf8(bytes) {
        Ok(text) => map.insert(name.to_owned(), json!(text)),
        Err(error) => map.insert(format!("{name}_base64"), json!(STANDARD.encode(error.as_bytes()))),
    };
}

/// Server-sent events: `started`, `stdout` and `stderr` (base64), `ended`.
fn events(desk: &Desk, id: &str, running: Running, stream: Stream) -> Response<Body> {
    let (to, body) = CutStream::body(desk.cut_of(id));
    tokio::spawn(tell(running, stream, to));
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    harden(response.headers_mut());
    response
}

async fn tell(running: Running, mut stream: Stream, to: tokio::sync::mpsc::Sender<std::io::Result<Bytes>>) {
    let event = |name: &str, data: &Json| Bytes::from(format!("event: {name}\ndata: {data}\n\n"));
    let started = event("started", &json!({ "id": running.id, "pid": running.pid }));
    if to.send(Ok(started)).await.is_err() {
        return;
    }
    loop {
        let incoming = tokio::select! {
            // Who hears nothing any more lets go of the program too, unless it is detached.
            () = to.closed() => return,
            incoming = stream.next() => incoming,
        };
        let (bytes, is_last) = match incoming {
            Some(Incoming::Out(bytes)) => (event("stdout", &json!(STANDARD.encode(bytes))), false),
            Some(Incoming::Err(bytes)) => (event("stderr", &json!(STANDARD.encode(bytes))), false),
            Some(Incoming::Event(_)) => continue,
            Some(Incoming::End(Ok(report))) => (event("ended", &report), true),
            Some(Incoming::End(Err(failure))) if failure.code == Code::Ended => return reset(&to).await,
            Some(Incoming::End(Err(failure))) => (event("failed", &Problem::from(failure).record()), true),
            None => return reset(&to).await,
        };
        if to.send(Ok(bytes)).await.is_err() || is_last {
            return;
        }
    }
}

async fn reset(to: &tokio::sync::mpsc::Sender<std::io::Result<Bytes>>) {
    if to.send(Err(std::io::ErrorKind::ConnectionReset.into())).await.is_err() {
        // Nobody reads.
    }
}

pub(super) async fn processes(
    State(desk): State<Arc<Desk>>,
    Extension(key): Extension<Key>,
    Path(id): Path<String>,
) -> Answer {
    desk.own(&key, &id).await?;
    let programs = backend::call::<Programs>(&*desk.sandboxes, &id, &Ask::Programs {}).await?;
    let inside = agent::words::Request::Processes {};
    let inside = backend::call::<Json>(&*desk.sandboxes, &id, &inside).await?;
    let inside = inside.get("processes").cloned().unwrap_or(Json::Null);
    Ok(json_response(StatusCode::OK, &json!({ "programs": programs.programs, "processes": inside })))
}
