//! Files of a container, in and out, as tar streams.

use std::sync::Arc;

use agent::words::{Code, Entry, FileKind, Request as Ask, Skipped};
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, Uri, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use live::client::{Error, Incoming, Stream};
use live::words::{Ask as Outside, Info};
use serde_json::json;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;

use super::container::{Container, Phase};
use super::create::nothing;
use super::{Docker, DockerError, HttpResult, told};
use crate::clock;
use crate::envd::pieces;
use crate::request::Query;
use crate::{backend, envd};

/// Pieces that wait to be sent.
const QUEUE: usize = 8;
/// Go's bits for a folder and a link.
const GO_DIR: u32 = 1 << 31;
const GO_LINK: u32 = 1 << 27;

/// A container whose sandbox is thawed for as long as something is done with its files. What has exited stands still after it.
struct Thawed<'a> {
    docker: &'a Docker,
    sandbox: String,
    _turn: Option<tokio::sync::MutexGuard<'a, ()>>,
}

impl Docker {
    async fn thawed<'a>(&'a self, container: &'a Container) -> Result<Thawed<'a>, DockerError> {
        let sandbox = container.record().sandbox;
        if container.phase() != Phase::Exited {
            return Ok(Thawed { docker: self, sandbox, _turn: None });
        }
        let turn = container.turn.lock().await;
        let gone = |failure: agent::words::Failure| match failure.code == Code::Ended {
            true => told(StatusCode::CONFLICT, "the container has exited, and its files are no longer kept"),
            false => failure.into(),
        };
        backend::call::<Info>(&*self.app.sandboxes, &sandbox, &Outside::Resume {}).await.map_err(gone)?;
        Ok(Thawed { docker: self, sandbox, _turn: Some(turn) })
    }
}

impl Thawed<'_> {
    async fn over(self) {
        if self._turn.is_some()
            && backend::call::<Info>(&*self.docker.app.sandboxes, &self.sandbox, &Outside::Pause {}).await.is_err()
        {
            // It has ended.
        }
    }

    async fn entry(&self, path: &str) -> Result<Entry, DockerError> {
        let ask = Ask::Stat { path: path.to_owned(), follow: false };
        let found = backend::call(&*self.docker.app.sandboxes, &self.sandbox, &ask).await;
        found.map_err(|failure| {
            if failure.code == Code::NotFound {
                return told(StatusCode::NOT_FOUND, format!("Could not find the file {path} in container"));
            }
            failure.into()
        })
    }
}

/// A path of a query: what is not absolute begins at `/`, as with Docker.
fn path(uri: &Uri) -> Result<String, DockerError> {
    let query = Query::of(uri);
    let path = query.get("path").filter(|path| !path.is_empty());
    let path = path.ok_or_else(|| told(StatusCode::BAD_REQUEST, "`path` is missing"))?;
    let path = path.strip_suffix("/.").unwrap_or(path);
    let trimmed = path.trim_matches('/');
    Ok(format!("/{trimmed}"))
}

fn stat_header(entry: &Entry) -> Result<HeaderValue, DockerError> {
    let kind = match entry.kind {
        FileKind::Dir => GO_DIR,
        FileKind::Link => GO_LINK,
        FileKind::File | FileKind::Other => 0,
    };
    let (seconds, nanoseconds) = entry.modified;
    let body = json!({
        "name": entry.name, "size": entry.size, "mode": entry.mode | kind, "linkTarget": entry.target.clone().unwrap_or_default(),
        "mtime": clock::rfc3339_fine(seconds, nanoseconds),
    });
    let value = HeaderValue::from_str(&STANDARD.encode(body.to_string()));
    value.map_err(|_unfit| told(StatusCode::INTERNAL_SERVER_ERROR, "what is at the path cannot be told"))
}

pub(super) async fn stat(State(docker): State<Arc<Docker>>, Path(word): Path<String>, uri: Uri) -> HttpResult {
    let (container, path) = (docker.find(&word)?, path(&uri)?);
    let thawed = docker.thawed(&container).await?;
    let entry = thawed.entry(&path).await;
    thawed.over().await;
    let mut response = nothing(StatusCode::OK);
    response.headers_mut().insert("x-docker-container-path-stat", stat_header(&entry?)?);
    Ok(response)
}

pub(super) async fn read(State(docker): State<Arc<Docker>>, Path(word): Path<String>, uri: Uri) -> HttpResult {
    let (container, path) = (docker.find(&word)?, path(&uri)?);
    let thawed = docker.thawed(&container).await?;
    let found = thawed.entry(&path).await.and_then(|entry| match entry.kind {
        FileKind::Dir | FileKind::File | FileKind::Link => stat_header(&entry),
        FileKind::Other => {
            let message = format!("{path} is a device, a pipe or a socket: there is no archive of it");
            Err(told(StatusCode::BAD_REQUEST, message))
        }
    });
    let head = match found {
        Ok(head) => head,
        Err(told) => {
            thawed.over().await;
            return Err(told);
        }
    };
    drop(thawed);
    let (to, from) = tokio::sync::mpsc::channel::<Result<Bytes, std::io::Error>>(QUEUE);
    let (begins, begun) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        let Ok(thawed) = docker.thawed(&container).await else { return };
        if let Ok(stream) = backend::open(&*docker.app.sandboxes, &thawed.sandbox, &Ask::Archive { path }).await {
            archived(stream, &to, begins).await;
        }
        thawed.over().await;
    });
    match begun.await {
        Ok(None) => {}
        Ok(Some(why)) => return Err(told(StatusCode::FORBIDDEN, format!("nothing could be read there: {why}"))),
        Err(_gone) => return Err(backend::gone().into()),
    }
    let mut response = Response::new(Body::from_stream(ReceiverStream::new(from)));
    let headers: &mut HeaderMap = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-tar"));
    headers.insert("x-docker-container-path-stat", head);
    Ok(response)
}

/// Whom it is told to whether an archive begins.
type Begins = tokio::sync::oneshot::Sender<Option<String>>;

/// Passes an archive on. `begins`: that something of it comes, or why nothing does.
async fn archived(mut stream: Stream, to: &tokio::sync::mpsc::Sender<Result<Bytes, std::io::Error>>, begins: Begins) {
    let mut begins = Some(begins);
    loop {
        let piece = match stream.next().await {
            // What begins with zeros is the end of an archive in which nothing is.
            Some(Incoming::Out(bytes)) if begins.is_some() && bytes.first() == Some(&0) => continue,
            Some(Incoming::Out(bytes)) => Ok(Bytes::from(bytes)),
            Some(Incoming::Event(_) | Incoming::Err(_)) => continue,
            Some(Incoming::End(Ok(ended))) => {
                let why = backend::read::<Skipped>(ended).ok().and_then(|ended| ended.skipped.into_iter().next());
                return begin(&mut begins, Some(why.unwrap_or_else(|| "it is gone".to_owned())));
            }
            Some(Incoming::End(Err(failure))) if begins.is_some() => return begin(&mut begins, Some(failure.message)),
            // A client must not take it for whole.
            Some(Incoming::End(Err(_))) | None => Err(envd::broken()),
        };
        begin(&mut begins, None);
        let is_last = piece.is_err();
        if to.send(piece).await.is_err() || is_last {
            return;
        }
    }
}

/// Tells it once.
fn begin(begins: &mut Option<Begins>, why: Option<String>) {
    if let Some(begins) = begins.take()
        && begins.send(why).is_err()
    {
        // Whoever asked is gone.
    }
}

pub(super) async fn write(State(docker): State<Arc<Docker>>, Path(word): Path<String>, request: Request) -> HttpResult {
    let (container, path) = (docker.find(&word)?, path(request.uri())?);
    let thawed = docker.thawed(&container).await?;
    let done = extract(&docker, &thawed, &path, request).await;
    thawed.over().await;
    let skipped = done?;
    match skipped.skipped.first() {
        None => Ok(nothing(StatusCode::OK)),
        Some(first) => {
            let count = skipped.skipped.len();
            let message = format!(
                "{count} entries were not unpacked in {path}, the first: {first}; {} were; the image itself is read-only",
                skipped.taken
            );
            Err(told(StatusCode::BAD_REQUEST, message))
        }
    }
}

async fn extract(docker: &Docker, thawed: &Thawed<'_>, path: &str, request: Request) -> Result<Skipped, DockerError> {
    let ask = Ask::Stat { path: path.to_owned(), follow: true };
    let there = backend::call::<Entry>(&*docker.app.sandboxes, &thawed.sandbox, &ask).await;
    match there {
        Ok(entry) if entry.kind == FileKind::Dir => {}
        Ok(_) => return Err(told(StatusCode::BAD_REQUEST, format!("{path} is no folder"))),
        Err(failure) if failure.code == Code::NotFound => {
            return Err(told(StatusCode::NOT_FOUND, format!("Could not find the file {path} in container")));
        }
        Err(failure) => return Err(failure.into()),
    }
    let mut stream =
        backend::open(&*docker.app.sandboxes, &thawed.sandbox, &Ask::Extract { path: path.to_owned() }).await?;
    let mut pieces = pieces(request);
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|error| told(StatusCode::BAD_REQUEST, format!("the archive broke off: {error}")))?;
        if stream.send(&piece).await.is_err() {
            break;
        }
    }
    // Where it ended already, the end says why.
    let _ended = stream.eof().is_err();
    Ok(stream.result::<Skipped>().await.map_err(Error::failure)?)
}
