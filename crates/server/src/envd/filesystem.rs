//! `filesystem.Filesystem`: what is where, and what changes.

use agent::words::{Code, Entries, Entry, Failure, FileKind, Request as Ask};
use axum::body::Body;
use axum::extract::Request;
use axum::http::{Method, Response, StatusCode};
use live::client::Incoming;
use serde_json::{Value as Json, json};

use super::connect::{message, unary};
use super::convert::{Message, entry, invalid, number, text};
use super::{Context, plain, watch};
use crate::backend;
use crate::listing::Listing;
use crate::rpc::{RpcCode, RpcError};

/// Answers a method.
pub(super) async fn answer(context: &Context, method: &str, request: Request) -> Response<Body> {
    if request.method() != Method::POST {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "calls are POST requests");
    }
    let user = context.check_user(request.headers(), None);
    if method == "WatchDir" {
        return watch::stream(context, user, request).await;
    }
    let call = async {
        user.map_err(|why| RpcError::new(RpcCode::Unauthenticated, why))?;
        let message = message(request).await?;
        match method {
            "Stat" => stat(context, &message).await,
            "MakeDir" => make_dir(context, &message).await,
            "Move" => rename(context, &message).await,
            "ListDir" => list_dir(context, &message).await,
            "Remove" => remove(context, &message).await,
            "CreateWatcher" => watch::create(context, &message).await,
            "GetWatcherEvents" => watch::take(context, &message),
            "RemoveWatcher" => watch::remove(context, &message),
            _ => Err(RpcError::new(RpcCode::Unimplemented, "there is no such method")),
        }
    };
    unary(context.id(), call.await)
}

fn path(context: &Context, message: &Message, name: &str) -> Result<String, RpcError> {
    Ok(context.path(text(message, name)?))
}

async fn ask(context: &Context, ask: &Ask) -> Result<Entry, Failure> {
    backend::call::<Entry>(&*context.app.sandboxes, context.id(), ask).await
}

fn found(context: &Context, found: &Entry) -> Json {
    json!({ "entry": entry(found, &context.hello()) })
}

async fn stat(context: &Context, message: &Message) -> Result<Json, RpcError> {
    let path = path(context, message, "path")?;
    let entry = ask(context, &Ask::Stat { path, follow: false }).await?;
    Ok(found(context, &entry))
}

async fn make_dir(context: &Context, message: &Message) -> Result<Json, RpcError> {
    let path = path(context, message, "path")?;
    match ask(context, &Ask::Mkdir { path: path.clone() }).await {
        Ok(entry) => Ok(found(context, &entry)),
        Err(failure) if failure.code == Code::Exists => {
            let there = ask(context, &Ask::Stat { path, follow: true }).await;
            let is_folder = there.is_ok_and(|entry| entry.kind == FileKind::Dir);
            if is_folder { Err(failure.into()) } else { Err(invalid(failure.message)) }
        }
        Err(failure) => Err(failure.into()),
    }
}

async fn rename(context: &Context, message: &Message) -> Result<Json, RpcError> {
    let (from, to) = (path(context, message, "source")?, path(context, message, "destination")?);
    let entry = ask(context, &Ask::Move { from, to }).await?;
    Ok(found(context, &entry))
}

async fn remove(context: &Context, message: &Message) -> Result<Json, RpcError> {
    let path = path(context, message, "path")?;
    match backend::call::<Json>(&*context.app.sandboxes, context.id(), &Ask::Remove { path }).await {
        Ok(_) => Ok(json!({})),
        Err(failure) if failure.code == Code::NotFound => Ok(json!({})),
        Err(failure) => Err(failure.into()),
    }
}

async fn list_dir(context: &Context, message: &Message) -> Result<Json, RpcError> {
    let depth = number(message, "depth")?.unwrap_or(0).max(1);
    let ask = Ask::List { path: path(context, message, "path")?, depth };
    let mut stream = backend::open(&*context.app.sandboxes, context.id(), &ask).await?;
    let hello = context.hello();
    let mut listing = Listing::default();
    while let Some(incoming) = stream.next().await {
        match incoming {
            Incoming::Event(event) => {
                let added = listing.add(backend::read::<Entries>(event)?.entries);
                added.map_err(|message| RpcError::new(RpcCode::ResourceExhausted, message))?;
            }
            Incoming::End(end) => {
                end?;
                // What is in a folder comes behind it, and not behind all folders beside it.
                listing.entries.sort_by(|one, other| one.path.split('/').cmp(other.path.split('/')));
                let told: Vec<Json> = listing.entries.iter().map(|found| entry(found, &hello)).collect();
                return Ok(json!({ "entries": told }));
            }
            Incoming::Out(_) | Incoming::Err(_) => {}
        }
    }
    Err(backend::gone().into())
}
