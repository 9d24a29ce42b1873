//! `POST /v1/sandboxes/ID/exec`: one answer, or events as they happen.

use std::sync::Arc;

use agent::frame::MAX_WORDS;
use agent::words::{Code, Program, Size};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use live::client::{Incoming, Stream};
use live::words::{Ask, Exec, Lost, Running};
use serde_json::{Map, Value as Json, json};

use super::events::{self, Events};
use super::sandbox::Living;
use super::sandboxes::duration;
use super::{HttpResult, body, is_not_repeated};
use crate::answer::{Problem, json_response};
use crate::app::AppState;
use crate::{backend, json as read};

/// Fields of a request.
const KNOWN: &[&str] = &["cmd", "python", "env", "cwd", "timeout", "stdin", "tty", "detach", "tag"];
/// Most bytes of one lane in one answer; events have no such bound.
const MAX_KEPT: usize = 16 << 20;
/// Most bytes of a program that is asked for: its answer repeats it, with more around it, and fits a frame.
const MAX_ASKED: usize = MAX_WORDS - 8 * 1024;
/// Rows and columns of a terminal of which none are told.
const SIZE: Size = Size { rows: 24, cols: 80 };

/// What is to be run, and what is written to it at once.
pub(super) struct ExecRequest {
    pub(super) exec: Exec,
    pub(super) stdin: Stdin,
}

/// What a program reads.
pub(super) enum Stdin {
    /// Nothing, or what is written to it later.
    Later,
    /// This, and then the end.
    Now(String),
}

pub(super) async fn exec(State(app): State<Arc<AppState>>, Living(info): Living, request: Request) -> HttpResult {
    is_not_repeated(&request)?;
    let as_events = events::wanted(request.headers());
    let asked = read::object(&body(request).await?)?;
    read::known(&asked, KNOWN)?;
    let (detached, (running, stream)) = match python(&asked)? {
        Some(ask) => (false, started_by(&app, &info.id, &ask).await?),
        None => {
            let wanted = wanted(&asked)?;
            (wanted.exec.detach, begin(&app, &info.id, wanted).await?)
        }
    };
    if as_events {
        let (to, response) = events::answer(&app, &info.id);
        tokio::spawn(async move {
            if events::put(&to, "started", &started(&running)).await {
                carry(stream, &to, "ended").await;
            }
        });
        return Ok(response);
    }
    if detached {
        return Ok(json_response(StatusCode::ACCEPTED, &started(&running)));
    }
    let mut answer = printed(stream).await?;
    if let (Json::Object(answer), Json::Object(started)) = (&mut answer, started(&running)) {
        answer.extend(started);
    }
    Ok(json_response(StatusCode::OK, &answer))
}

fn started(running: &Running) -> Json {
    json!({ "id": running.id, "pid": running.pid })
}

/// Code for the Python that waits, if that is what is asked for.
fn python(asked: &Map<String, Json>) -> Result<Option<Ask>, Problem> {
    let Some(code) = read::text(asked, "python")? else { return Ok(None) };
    if let Some(other) = asked.keys().find(|field| !matches!(field.as_str(), "python" | "timeout")) {
        return Err(Problem::invalid(other, "code for the Python that waits comes with `timeout` alone"));
    }
    Ok(Some(Ask::Python { code: code.to_owned(), timeout_ms: duration(asked, "timeout")? }))
}

async fn started_by(app: &AppState, id: &str, ask: &Ask) -> Result<(Running, Stream), Problem> {
    if serde_json::to_vec(ask).is_ok_and(|words| words.len() > MAX_ASKED) {
        let what = "the program is larger than one request to a sandbox holds";
        let why = "its arguments, variables and folder are more than 248 KiB together, as JSON";
        let instead = "write it to a file, or to its input";
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "serve/body", what, why, instead).about("cmd"));
    }
    app.meters.exec();
    let mut stream = backend::open(&*app.sandboxes, id, ask).await?;
    let running = backend::reply::<Running>(&mut stream).await?;
    Ok((running, stream))
}

/// Starts a program.
pub(super) async fn begin(app: &AppState, id: &str, wanted: ExecRequest) -> Result<(Running, Stream), Problem> {
    let ExecRequest { exec, stdin } = wanted;
    let (running, stream) = started_by(app, id, &Ask::Exec(exec)).await?;
    if let Stdin::Now(text) = stdin {
        let sender = stream.sender();
        tokio::spawn(async move {
            // A program that ended reads no more.
            let _ended = sender.send(text.as_bytes()).await.is_ok() && sender.eof().is_err();
        });
    }
    Ok((running, stream))
}

/// A program of a request's fields.
pub(super) fn wanted(asked: &Map<String, Json>) -> Result<ExecRequest, Problem> {
    let argv = read::list(asked, "cmd")?;
    if argv.is_empty() {
        return Err(Problem::invalid("cmd", "`cmd` is missing: the program and its arguments, as a list"));
    }
    let tty = terminal(asked)?;
    let (open, stdin) = match asked.get("stdin") {
        None | Some(Json::Null | Json::Bool(false)) => (false, Stdin::Later),
        Some(Json::Bool(true)) => (true, Stdin::Later),
        Some(Json::String(text)) if text.is_empty() => (false, Stdin::Later),
        Some(Json::String(text)) => (true, Stdin::Now(text.clone())),
        Some(_) => {
            let what = "`stdin` is a text that the program reads, or true: it is written later";
            return Err(Problem::invalid("stdin", what));
        }
    };
    let program = Program {
        argv,
        env: read::variables(asked, "env")?,
        cwd: read::text(asked, "cwd")?.map(str::to_owned),
        tty,
        stdin: open,
    };
    let exec = Exec {
        program,
        timeout_ms: duration(asked, "timeout")?,
        detach: read::flag(asked, "detach")?.unwrap_or(false),
        tag: read::text(asked, "tag")?.map(str::to_owned),
    };
    Ok(ExecRequest { exec, stdin })
}

/// `tty`: true, or `{rows, cols}`.
fn terminal(asked: &Map<String, Json>) -> Result<Option<Size>, Problem> {
    match asked.get("tty") {
        None | Some(Json::Null | Json::Bool(false)) => Ok(None),
        Some(Json::Bool(true)) => Ok(Some(SIZE)),
        Some(Json::Object(size)) => self::size(size).map(Some),
        Some(_) => Err(Problem::invalid("tty", "`tty` is true, or {rows, cols}")),
    }
}

/// Rows and columns, 1 to 1,000 each.
pub(super) fn size(asked: &Map<String, Json>) -> Result<Size, Problem> {
    let one = |field: &str, default: u16| {
        let number = read::number(asked, field)?.unwrap_or(u64::from(default));
        let fits = u16::try_from(number).ok().filter(|number| (1..=1000).contains(number));
        fits.ok_or_else(|| Problem::invalid(field, &format!("`{field}` is no number from 1 to 1000")))
    };
    read::known(asked, &["rows", "cols"])?;
    Ok(Size { rows: one("rows", SIZE.rows)?, cols: one("cols", SIZE.cols)? })
}

/// The whole output of a stream, cut where it is too long, and its end.
pub(super) async fn printed(mut stream: Stream) -> Result<Json, Problem> {
    let (mut out, mut err, mut cut) = (Vec::new(), Vec::new(), 0_usize);
    while let Some(incoming) = stream.next().await {
        let (kept, bytes) = match incoming {
            Incoming::Out(bytes) => (&mut out, bytes),
            Incoming::Err(bytes) => (&mut err, bytes),
            Incoming::Event(event) => {
                let lost = serde_json::from_value::<Lost>(event).map_or(0, |lost| lost.lost);
                cut = cut.saturating_add(usize::try_from(lost).unwrap_or(usize::MAX));
                continue;
            }
            Incoming::End(end) => {
                let mut answer = Map::from_iter([("report".to_owned(), end?), ("cut".to_owned(), json!(cut))]);
                put_text(&mut answer, "stdout", out);
                put_text(&mut answer, "stderr", err);
                return Ok(Json::Object(answer));
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

/// `stdout` and `stderr` (base64) and `lost` (bytes that a slow reader was not given) as they come; then the end under this
/// name, or `failed`. Who hears nothing any more lets go of the program too, unless it is detached. False where it did not
/// come to its end.
pub(super) async fn carry(mut stream: Stream, to: &Events, end: &str) -> bool {
    loop {
        let incoming = tokio::select! {
            () = to.closed() => return false,
            incoming = stream.next() => incoming,
        };
        let (put, is_last) = match incoming {
            Some(Incoming::Out(bytes)) => (events::put(to, "stdout", &json!(STANDARD.encode(bytes))).await, false),
            Some(Incoming::Err(bytes)) => (events::put(to, "stderr", &json!(STANDARD.encode(bytes))).await, false),
            Some(Incoming::Event(lost)) => (events::put(to, "lost", &lost).await, false),
            Some(Incoming::End(Ok(report))) => (events::put(to, end, &report).await, true),
            Some(Incoming::End(Err(failure))) if failure.code != Code::Ended => {
                (events::put(to, "failed", &Problem::from(failure).record()).await, true)
            }
            Some(Incoming::End(Err(_))) | None => {
                events::reset(to).await;
                return false;
            }
        };
        if !put || is_last {
            return put;
        }
    }
}
