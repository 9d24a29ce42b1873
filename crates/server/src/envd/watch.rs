//! Watching folders: as a stream, and as watchers that are asked.

use std::sync::Arc;
use std::time::Duration;

use agent::words::{Change, ChangeKind, Request as Ask};
use axum::body::Body;
use axum::extract::Request;
use axum::http::Response;
use live::client::{Incoming, Stream};
use serde_json::{Value as Json, json};

use super::Context;
use super::connect::{Events, Messages, keepalive, streaming};
use super::convert::{Message, entry, flag, invalid, text};
use crate::backend::{self, Sandboxes};
use crate::rpc::{RpcCode, RpcError};
use crate::watchers::EventQueue;

/// How changes are shown.
#[derive(Clone)]
struct WatchedFolder {
    sandboxes: Arc<dyn Sandboxes>,
    id: String,
    folder: String,
    with_entry: bool,
    hello: agent::words::Hello,
}

impl WatchedFolder {
    /// A change as E2B's event; an error where some were lost.
    async fn event(&self, change: Change) -> Result<Json, RpcError> {
        let (kind, is_there) = match change.what {
            ChangeKind::Create => ("EVENT_TYPE_CREATE", true),
            ChangeKind::Write => ("EVENT_TYPE_WRITE", true),
            ChangeKind::Remove => ("EVENT_TYPE_REMOVE", false),
            ChangeKind::Rename => ("EVENT_TYPE_RENAME", false),
            ChangeKind::Chmod => ("EVENT_TYPE_CHMOD", true),
            ChangeKind::Overflow => {
                let message =
                    "too much changed at once, and some of it was not seen: watch again and look at everything";
                return Err(RpcError::new(RpcCode::ResourceExhausted, message));
            }
        };
        let mut event = json!({ "name": change.name, "type": kind });
        if self.with_entry && is_there {
            let path = format!("{}/{}", self.folder.trim_end_matches('/'), change.name);
            let ask = Ask::Stat { path, follow: false };
            let found = backend::call::<agent::words::Entry>(&*self.sandboxes, &self.id, &ask).await;
            if let (Ok(found), Some(table)) = (found, event.as_object_mut()) {
                table.insert("entry".to_owned(), entry(&found, &self.hello));
            }
        }
        Ok(event)
    }
}

/// Begins to watch what a message names.
async fn begin(context: &Context, message: &Message) -> Result<(Stream, WatchedFolder), RpcError> {
    let folder = context.path(text(message, "path")?);
    let ask = Ask::Watch { path: folder.clone(), recursive: flag(message, "recursive")?.unwrap_or(false) };
    let mut stream = backend::open(&*context.app.sandboxes, context.id(), &ask).await?;
    backend::reply::<Json>(&mut stream).await?;
    let shown = WatchedFolder {
        sandboxes: Arc::clone(&context.app.sandboxes),
        id: context.id().to_owned(),
        folder,
        with_entry: flag(message, "includeEntry")?.unwrap_or(false),
        hello: context.hello(),
    };
    Ok((stream, shown))
}

/// The next change; an error at the end.
async fn next(stream: &mut Stream, shown: &WatchedFolder) -> Result<Json, RpcError> {
    while let Some(incoming) = stream.next().await {
        match incoming {
            Incoming::Event(event) => return shown.event(backend::read(event)?).await,
            Incoming::End(Err(failure)) => return Err(failure.into()),
            Incoming::End(Ok(_)) => return Err(RpcError::new(RpcCode::NotFound, "the folder is not there any more")),
            Incoming::Out(_) | Incoming::Err(_) => {}
        }
    }
    Err(backend::gone().into())
}

/// `WatchDir`
pub(super) async fn stream(context: &Context, user: Result<(), String>, request: Request) -> Response<Body> {
    let interval = keepalive(request.headers());
    let (events, response) = streaming(context.app.cut_of(context.id()));
    let begun = async {
        user.map_err(|why| RpcError::new(RpcCode::Unauthenticated, why))?;
        let message = Messages::of(request)?.next().await?.ok_or_else(|| invalid("there is no message"))?;
        begin(context, &message).await
    };
    match begun.await {
        Ok((stream, shown)) => tokio::spawn(tell(stream, shown, events, interval)),
        Err(error) => tokio::spawn(events.end(Err(error))),
    };
    response
}

async fn tell(mut stream: Stream, shown: WatchedFolder, events: Events, interval: Duration) {
    if !events.send(&json!({ "start": {} })).await {
        return;
    }
    loop {
        let change = tokio::select! {
            () = events.closed() => return,
            change = tokio::time::timeout(interval, next(&mut stream, &shown)) => change,
        };
        let sent = match change {
            Err(_silence) => events.send(&json!({ "keepalive": {} })).await,
            Ok(Ok(event)) => events.send(&json!({ "filesystem": event })).await,
            Ok(Err(error)) => return events.end(Err(error)).await,
        };
        if !sent {
            return;
        }
    }
}

/// `CreateWatcher`
pub(super) async fn create(context: &Context, message: &Message) -> Result<Json, RpcError> {
    let (mut stream, shown) = begin(context, message).await?;
    let keep = |kept: EventQueue| async move { while kept.add(next(&mut stream, &shown).await) {} };
    let name = context.app.watchers.add(context.id(), keep)?;
    Ok(json!({ "watcherId": name }))
}

/// `GetWatcherEvents`
pub(super) fn take(context: &Context, message: &Message) -> Result<Json, RpcError> {
    let events = context.app.watchers.take(context.id(), text(message, "watcherId")?)?;
    Ok(json!({ "events": events }))
}

/// `RemoveWatcher`
pub(super) fn remove(context: &Context, message: &Message) -> Result<Json, RpcError> {
    context.app.watchers.remove(context.id(), text(message, "watcherId")?)?;
    Ok(json!({}))
}
