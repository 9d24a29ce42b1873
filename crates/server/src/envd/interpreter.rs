//! E2B's code interpreter: its port of a sandbox, answered by the supervisor's contexts and not by a program inside.
//!
//! Errors are plain text: clients show the body as it is.

use std::time::Duration;

use agent::frame::MAX_WORDS;
use agent::words::{Code, Failure};
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, Response, StatusCode, header};
use live::client::{Incoming, Stream};
use live::kernel::words::{Context as Kernel, Contexts, Execute, KernelAsk, ListContexts, NewContext};
use serde_json::{Map, Value as Json, json};
use tokio::sync::mpsc::Sender;
use tokio::time::timeout;

use super::content::{CutStream, broken};
use super::{Context, gone, has_token, port};
use crate::answer::{harden, json_response, status_of};
use crate::app::AppState;
use crate::{backend, json};

/// The port that E2B's clients of the code interpreter ask.
pub(super) const PORT: u16 = 49999;
/// The languages that have a context from the start, where the sandbox has their kernels.
const DEFAULTS: [&str; 2] = ["python", "javascript"];
/// After so long without a line it is said that all is well: while an execution waits for its turn, nobody else says it.
const SILENCE: Duration = Duration::from_secs(5);
const KEEPALIVE: &[u8] = b"{\"type\":\"keepalive\"}\n";
/// A line may come in pieces; each goes out as it comes.
type Pieces = Sender<std::io::Result<Bytes>>;

/// Why a request is not answered as it wants.
struct Refusal(StatusCode, String);

impl From<crate::answer::Problem> for Refusal {
    fn from(problem: crate::answer::Problem) -> Self {
        Self(problem.status, problem.what)
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self(status_of(failure.code), failure.message)
    }
}

/// What a request must show. Clients send the data token with `/execute` alone: for contexts the sandbox's id is the secret.
///
/// # Errors
/// What is missing.
pub(super) fn may_enter(
    app: &AppState,
    info: &live::words::Info,
    request: &Parts,
) -> Result<(), (StatusCode, &'static str)> {
    if !port::may_pass(app, info, &request.headers) {
        return Err((StatusCode::FORBIDDEN, port::WANTS_TOKEN));
    }
    if request.uri.path() == "/execute" && !has_token(app, &info.id, request) {
        return Err((StatusCode::UNAUTHORIZED, "the access token of this sandbox is missing or wrong"));
    }
    Ok(())
}

/// Answers a request.
pub(super) async fn answer(context: &Context, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    if let Err((status, why)) = may_enter(&context.app, &context.info, &parts) {
        return text(status, why);
    }
    let (method, path) = (parts.method.clone(), parts.uri.path().to_owned());
    let request = Request::from_parts(parts, body);
    let answered = match (&method, path.split('/').collect::<Vec<_>>().as_slice()) {
        (&Method::GET, ["", "health"]) => return text(StatusCode::OK, "OK"),
        (&Method::POST, ["", "execute"]) => execute(context, request).await,
        (&Method::GET, ["", "contexts"]) => list(context).await,
        (&Method::POST, ["", "contexts"]) => create(context, request).await,
        (&Method::POST, ["", "contexts", id, "restart"]) => {
            ask(context, &KernelAsk::ContextRestart { id: (*id).to_owned() }).await.map(|_: Json| done())
        }
        (&Method::DELETE, ["", "contexts", id]) => {
            ask(context, &KernelAsk::ContextRemove { id: (*id).to_owned() }).await.map(|_: Json| done())
        }
        (_, _) => Err(Refusal(StatusCode::NOT_FOUND, "nothing answers this path".to_owned())),
    };
    answered.unwrap_or_else(|refusal| refused(context, &refusal))
}

fn refused(context: &Context, Refusal(status, why): &Refusal) -> Response<Body> {
    match *status {
        // What clients know a sandbox by that is not there any more.
        StatusCode::BAD_GATEWAY => gone(context.id(), false),
        status => text(status, why),
    }
}

fn text(status: StatusCode, what: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(what.to_owned()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    harden(response.headers_mut());
    response
}

fn done() -> Response<Body> {
    text(StatusCode::OK, "")
}

/// A failure of the sandbox itself is one of the gateway; that a context is not there is not.
fn of(failure: Failure) -> Refusal {
    if failure.code.is_away() {
        return Refusal(StatusCode::BAD_GATEWAY, failure.message);
    }
    failure.into()
}

async fn ask<T: serde::de::DeserializeOwned>(context: &Context, ask: &KernelAsk) -> Result<T, Refusal> {
    backend::call(&*context.app.sandboxes, context.id(), ask).await.map_err(of)
}

fn shown(kernel: &Kernel) -> Json {
    json!({ "id": kernel.id, "language": kernel.language, "cwd": kernel.cwd })
}

async fn list(context: &Context) -> Result<Response<Body>, Refusal> {
    let defaults = DEFAULTS.map(str::to_owned).to_vec();
    let wanted = ListContexts { defaults, cwd: Some(folder(context, None)) };
    let found: Contexts = ask(context, &KernelAsk::Contexts(wanted)).await?;
    Ok(json_response(StatusCode::OK, &found.contexts.iter().map(shown).collect()))
}

async fn create(context: &Context, request: Request) -> Result<Response<Body>, Refusal> {
    let body = object(request).await?;
    let wanted = NewContext {
        language: json::text(&body, "language")?.map(str::to_owned),
        cwd: Some(folder(context, json::text(&body, "cwd")?)),
        ..NewContext::default()
    };
    let kernel: Kernel = ask(context, &KernelAsk::ContextCreate(wanted)).await?;
    Ok(json_response(StatusCode::OK, &shown(&kernel)))
}

/// A folder as programs' are read: relative ones belong to the home folder, which is also the default.
fn folder(context: &Context, cwd: Option<&str>) -> String {
    super::process::folder(&context.hello().home, cwd.unwrap_or_default())
}

async fn object(request: Request) -> Result<Map<String, Json>, Refusal> {
    Ok(json::object(&crate::request::body(request).await?)?)
}

async fn execute(context: &Context, request: Request) -> Result<Response<Body>, Refusal> {
    let body = object(request).await?;
    let missing = || Refusal(StatusCode::BAD_REQUEST, "`code` is missing".to_owned());
    let wanted = KernelAsk::Execute(Execute {
        code: json::text(&body, "code")?.ok_or_else(missing)?.to_owned(),
        context: json::text(&body, "context_id")?.map(str::to_owned),
        language: json::text(&body, "language")?.map(str::to_owned),
        cwd: Some(folder(context, None)),
        env: json::variables(&body, "env_vars")?,
        // The client's own: when it hangs up, the code is interrupted.
        timeout_ms: None,
    });
    if serde_json::to_vec(&wanted).map_or(0, |words| words.len()) > MAX_WORDS {
        let why = "the code is longer than 256 KiB: write it to a file, and execute that".to_owned();
        return Err(Refusal(StatusCode::PAYLOAD_TOO_LARGE, why));
    }
    let mut stream = backend::open(&*context.app.sandboxes, context.id(), &wanted).await.map_err(of)?;
    // What fails at once is told by the status; after the first line, or some time, only lines can tell it.
    let first = match timeout(SILENCE, next(&mut stream)).await {
        Ok(Err(failure)) => return Err(of(failure)),
        Ok(Ok(first)) => first.map(Bytes::from),
        Err(_waits) => Some(Bytes::from_static(KEEPALIVE)),
    };
    let (to, body) = CutStream::body(context.app.cut_of(context.id()));
    if let Some(first) = first {
        tokio::spawn(carry(stream, to, first));
    }
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    harden(response.headers_mut());
    Ok(response)
}

/// What comes next; none at the end.
async fn next(stream: &mut Stream) -> Result<Option<Vec<u8>>, Failure> {
    while let Some(incoming) = stream.next().await {
        match incoming {
            Incoming::Out(bytes) => return Ok(Some(bytes)),
            Incoming::End(end) => return end.map(|_executed| None),
            Incoming::Event(_) | Incoming::Err(_) => {}
        }
    }
    Err(backend::gone())
}

/// Sends lines until the execution ends. When nobody reads any more, the stream is dropped, which interrupts it.
async fn carry(mut stream: Stream, to: Pieces, first: Bytes) {
    let mut piece = first;
    loop {
        // A line that was begun is not cut by one of ours.
        let whole = piece.last() == Some(&b'\n');
        if to.send(Ok(piece)).await.is_err() {
            return;
        }
        let came = tokio::select! {
            () = to.closed() => return,
            came = line_or_silence(&mut stream, whole) => came,
        };
        piece = match came {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return,
            Err(failure) => {
                let last = if failure.code == Code::Ended || !whole { Err(broken()) } else { Ok(aborted(&failure)) };
                // Who hung up needs no end.
                drop(to.send(last).await);
                return;
            }
        };
    }
}

/// What comes next; where that takes long, that all is well.
async fn line_or_silence(stream: &mut Stream, may_speak: bool) -> Result<Option<Bytes>, Failure> {
    if !may_speak {
        return Ok(next(stream).await?.map(Bytes::from));
    }
    match timeout(SILENCE, next(stream)).await {
        Ok(came) => Ok(came?.map(Bytes::from)),
        Err(_silence) => Ok(Some(Bytes::from_static(KEEPALIVE))),
    }
}

/// An execution that ended without its own last lines.
fn aborted(failure: &Failure) -> Bytes {
    let error = json!({ "type": "error", "name": "ExecutionAborted", "value": failure.message, "traceback": "" });
    Bytes::from(format!("{error}\n{{\"type\":\"end_of_execution\"}}\n"))
}
