//! `/v1/sandboxes/ID/files?path=`: one file's bytes.

use std::sync::Arc;

use agent::words::{Entry, Request as Ask};
use axum::extract::{Extension, Path, Request, State};
use axum::http::{HeaderValue, Response, StatusCode, Uri, header};
use live::client::Error;
use serde_json::{Value as Json, json};

use super::Answer;
use crate::answer::{Problem, harden, json_response};
use crate::backend;
use crate::desk::Desk;
use crate::envd::{CutStream, Query, pieces, send_file};
use crate::keys::Key;

fn path(uri: &Uri) -> Result<String, Problem> {
    let path = Query::of(uri).get("path").unwrap_or_default().to_owned();
    if path.is_empty() { Err(Problem::invalid("path", "`path` is missing")) } else { Ok(path) }
}

pub(super) async fn read(
    State(desk): State<Arc<Desk>>,
    Extension(key): Extension<Key>,
    Path(id): Path<String>,
    uri: Uri,
) -> Answer {
    let path = path(&uri)?;
    desk.own(&key, &id).await?;
    let ask = Ask::Read { path, offset: 0, length: None };
    let mut stream = backend::open(&*desk.sandboxes, &id, &ask).await?;
    let entry = backend::reply::<Entry>(&mut stream).await?;
    let (to, body) = CutStream::body(desk.cut_of(&id));
    tokio::spawn(send_file(stream, to));
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    if entry.size > 0 {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(entry.size));
    }
    harden(headers);
    Ok(response)
}

pub(super) async fn write(
    State(desk): State<Arc<Desk>>,
    Extension(key): Extension<Key>,
    Path(id): Path<String>,
    request: Request,
) -> Answer {
    use tokio_stream::StreamExt as _;
    let path = path(request.uri())?;
    desk.own(&key, &id).await?;
    let ask = Ask::Write { path, mode: None, metadata: None };
    let mut stream = backend::open(&*desk.sandboxes, &id, &ask).await?;
    let mut pieces = pieces(request);
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|error| Problem::invalid("body", &error.to_string()))?;
        if stream.send(&piece).await.is_err() {
            break;
        }
    }
    // Where it ended already, the end says why.
    let _ended = stream.eof().is_err();
    let entry = stream.result::<Entry>().await.map_err(Error::failure)?;
    Ok(json_response(StatusCode::OK, &json!(entry)))
}

pub(super) async fn remove(
    State(desk): State<Arc<Desk>>,
    Extension(key): Extension<Key>,
    Path(id): Path<String>,
    uri: Uri,
) -> Answer {
    let path = path(&uri)?;
    desk.own(&key, &id).await?;
    backend::call::<Json>(&*desk.sandboxes, &id, &Ask::Remove { path }).await?;
    Ok(json_response(StatusCode::OK, &json!({})))
}
