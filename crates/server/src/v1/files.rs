//! `/v1/sandboxes/ID/files`: one file's bytes, what is where, folders as tar streams, and what changes.
//!
//! The agent inside does all of it, as the sandbox's user: a path reaches what a program inside would reach by it.

use std::collections::BTreeMap;
use std::sync::Arc;

use agent::words::{Change, Code, Entries, Entry, Request as Ask, Skipped};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Response, StatusCode, Uri, header};
use live::client::{Error, Incoming, Stream};
use serde_json::{Map, Value as Json, json};
use tokio_stream::StreamExt as _;

use super::events::{self, Events};
use super::sandbox::Living;
use super::{HttpResult, body, yes};
use crate::answer::{Problem, harden, json_response};
use crate::app::AppState;
use crate::envd::{CutStream, pieces, send_file};
use crate::listing::Listing;
use crate::request::Query;
use crate::{backend, json as read};

fn path(query: &Query) -> Result<String, Problem> {
    let path = query.get("path").unwrap_or_default().to_owned();
    if path.is_empty() { Err(Problem::invalid("path", "`path` is missing")) } else { Ok(path) }
}

fn entry(entry: &Entry) -> Response<Body> {
    json_response(StatusCode::OK, &json!(entry))
}

pub(super) async fn read(State(app): State<Arc<AppState>>, Living(info): Living, uri: Uri) -> HttpResult {
    let ask = Ask::Read { path: path(&Query::of(&uri))?, offset: 0, length: None };
    let mut stream = backend::open(&*app.sandboxes, &info.id, &ask).await?;
    let entry = backend::reply::<Entry>(&mut stream).await?;
    let mut response = bytes(&app, &info.id, stream, "application/octet-stream");
    // Files of the kernel have no size, and bytes all the same.
    if entry.size > 0 {
        response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(entry.size));
    }
    Ok(response)
}

fn bytes(app: &AppState, id: &str, stream: Stream, kind: &'static str) -> Response<Body> {
    let (to, body) = CutStream::body(app.cut_of(id));
    tokio::spawn(send_file(stream, to));
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    harden(headers);
    response
}

pub(super) async fn write(State(app): State<Arc<AppState>>, Living(info): Living, request: Request) -> HttpResult {
    let query = Query::of(request.uri());
    let mode = query.get("mode").map(|mode| u32::from_str_radix(mode, 8).ok().filter(|mode| *mode <= 0o777));
    let mode = match mode {
        None => None,
        Some(Some(mode)) => Some(mode),
        Some(None) => return Err(Problem::invalid("mode", "`mode` is no octal number up to 777").into()),
    };
    let ask = Ask::Write { path: path(&query)?, mode, metadata: metadata(&query)? };
    let mut stream = upload(&app, &info.id, &ask, request).await?;
    Ok(entry(&stream.result::<Entry>().await.map_err(Error::failure)?))
}

/// `metadata={"KEY": "VALUE"}`
fn metadata(query: &Query) -> Result<Option<BTreeMap<String, String>>, Problem> {
    let Some(text) = query.get("metadata") else { return Ok(None) };
    let what = |error| Problem::invalid("metadata", &format!("`metadata` is no JSON object of texts: {error}"));
    serde_json::from_value(read::parse(text.as_bytes()).map_err(what)?).map(Some).map_err(what)
}

/// Sends a body to a request.
async fn upload(app: &AppState, id: &str, ask: &Ask, request: Request) -> Result<Stream, Problem> {
    let stream = backend::open(&*app.sandboxes, id, ask).await?;
    let mut pieces = pieces(request);
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|error| Problem::invalid("body", &error.to_string()))?;
        if stream.send(&piece).await.is_err() {
            break;
        }
    }
    // Where it ended already, the end says why.
    let _ended = stream.eof().is_err();
    Ok(stream)
}

pub(super) async fn remove(State(app): State<Arc<AppState>>, Living(info): Living, uri: Uri) -> HttpResult {
    let ask = Ask::Remove { path: path(&Query::of(&uri))? };
    backend::call::<Json>(&*app.sandboxes, &info.id, &ask).await?;
    Ok(json_response(StatusCode::OK, &json!({})))
}

pub(super) async fn stat(State(app): State<Arc<AppState>>, Living(info): Living, uri: Uri) -> HttpResult {
    let query = Query::of(&uri);
    let ask = Ask::Stat { path: path(&query)?, follow: yes(&query, "follow")? };
    Ok(entry(&backend::call(&*app.sandboxes, &info.id, &ask).await?))
}

pub(super) async fn list(State(app): State<Arc<AppState>>, Living(info): Living, uri: Uri) -> HttpResult {
    let query = Query::of(&uri);
    let depth = query.get("depth").map_or(Some(1), |depth| depth.parse().ok().filter(|depth| (1..=64).contains(depth)));
    let depth = depth.ok_or_else(|| Problem::invalid("depth", "`depth` is no number from 1 to 64"))?;
    let ask = Ask::List { path: path(&query)?, depth };
    let mut stream = backend::open(&*app.sandboxes, &info.id, &ask).await?;
    let mut listing = Listing::default();
    while let Some(incoming) = stream.next().await {
        match incoming {
            Incoming::Event(event) => {
                let added = listing.add(backend::read::<Entries>(event)?.entries);
                added.map_err(|what| Problem::invalid("depth", &what))?;
            }
            Incoming::End(end) => {
                end?;
                return Ok(json_response(StatusCode::OK, &json!({ "entries": listing.entries })));
            }
            Incoming::Out(_) | Incoming::Err(_) => {}
        }
    }
    Err(backend::gone().into())
}

async fn fields(request: Request, known: &[&str]) -> Result<Map<String, Json>, Problem> {
    let asked = read::object(&body(request).await?)?;
    read::known(&asked, known)?;
    Ok(asked)
}

fn named(asked: &Map<String, Json>, field: &str) -> Result<String, Problem> {
    let found = read::text(asked, field)?.filter(|text| !text.is_empty());
    found.map(str::to_owned).ok_or_else(|| Problem::invalid(field, &format!("`{field}` is missing")))
}

pub(super) async fn mkdir(State(app): State<Arc<AppState>>, Living(info): Living, request: Request) -> HttpResult {
    let asked = fields(request, &["path"]).await?;
    let ask = Ask::Mkdir { path: named(&asked, "path")? };
    Ok(entry(&backend::call(&*app.sandboxes, &info.id, &ask).await?))
}

pub(super) async fn rename(State(app): State<Arc<AppState>>, Living(info): Living, request: Request) -> HttpResult {
    let asked = fields(request, &["from", "to"]).await?;
    let ask = Ask::Move { from: named(&asked, "from")?, to: named(&asked, "to")? };
    Ok(entry(&backend::call(&*app.sandboxes, &info.id, &ask).await?))
}

/// A file or folder as a tar stream.
pub(super) async fn archive(State(app): State<Arc<AppState>>, Living(info): Living, uri: Uri) -> HttpResult {
    let path = path(&Query::of(&uri))?;
    // What is not there is told before the answer begins.
    let there = Ask::Stat { path: path.clone(), follow: false };
    backend::call::<Entry>(&*app.sandboxes, &info.id, &there).await?;
    let stream = backend::open(&*app.sandboxes, &info.id, &Ask::Archive { path }).await?;
    Ok(bytes(&app, &info.id, stream, "application/x-tar"))
}

/// Unpacks a tar stream into a folder.
pub(super) async fn extract(State(app): State<Arc<AppState>>, Living(info): Living, request: Request) -> HttpResult {
    let ask = Ask::Extract { path: path(&Query::of(request.uri()))? };
    let mut stream = upload(&app, &info.id, &ask, request).await?;
    let skipped = stream.result::<Skipped>().await.map_err(Error::failure)?;
    Ok(json_response(StatusCode::OK, &json!(skipped)))
}

/// Events as a folder changes; `failed` where it cannot be watched any longer.
pub(super) async fn watch(State(app): State<Arc<AppState>>, Living(info): Living, uri: Uri) -> HttpResult {
    let query = Query::of(&uri);
    let ask = Ask::Watch { path: path(&query)?, recursive: yes(&query, "recursive")? };
    let mut stream = backend::open(&*app.sandboxes, &info.id, &ask).await?;
    backend::reply::<Json>(&mut stream).await?;
    let (to, response) = events::answer(&app, &info.id);
    tokio::spawn(async move {
        if events::put(&to, "watching", &json!({})).await {
            tell(stream, &to).await;
        }
    });
    Ok(response)
}

async fn tell(mut stream: Stream, to: &Events) {
    loop {
        let incoming = tokio::select! {
            () = to.closed() => return,
            incoming = stream.next() => incoming,
        };
        match incoming {
            Some(Incoming::Event(event)) => {
                let told = backend::read::<Change>(event).map_or(Json::Null, |change| json!(change));
                if !events::put(to, "change", &told).await {
                    return;
                }
            }
            Some(Incoming::Out(_) | Incoming::Err(_)) => {}
            Some(Incoming::End(Err(failure))) if failure.code != Code::Ended => {
                // Who reads no more needs no end.
                let _told = events::put(to, "failed", &Problem::from(failure).record()).await;
                return;
            }
            Some(Incoming::End(_)) | None => return events::reset(to).await,
        }
    }
}
