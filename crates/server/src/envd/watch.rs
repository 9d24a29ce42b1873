//! Watching folders: as a stream, and as watchers that are asked.
//!
//! A watcher lives in this process: after a restart of the server its id is unknown, which clients are told as such.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent::words::{Change, Request as Ask, What};
use axum::body::Body;
use axum::extract::Request;
use axum::http::Response;
use live::client::{Incoming, Stream};
use policy::json::hex;
use serde_json::{Value as Json, json};
use tokio::task::AbortHandle;

use super::Context;
use super::connect::{Events, Messages, RpcCode, RpcError, keepalive, streaming};
use super::convert::{Message, entry, flag, invalid, text};
use crate::backend::{self, Sandboxes};

/// Most watchers of a sandbox.
const MAX_WATCHERS: usize = 64;
/// Most events that wait for one who asks.
const MAX_EVENTS: usize = 10_000;

/// The watchers of all sandboxes.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    table: Mutex<BTreeMap<(String, String), Watcher>>,
}

#[derive(Debug)]
struct Watcher {
    seen: Arc<Mutex<Seen>>,
    task: AbortHandle,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Debug, Default)]
struct Seen {
    events: VecDeque<Json>,
    /// Why nothing more comes, or something was lost.
    failed: Option<RpcError>,
}

impl Watchers {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, String), Watcher>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets those of a sandbox.
    pub(crate) fn forget(&self, id: &str) {
        self.lock().retain(|(of, _), _| of != id);
    }
}

fn locked(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How changes are shown.
#[derive(Clone)]
struct Shown {
    sandboxes: Arc<dyn Sandboxes>,
    id: String,
    folder: String,
    with_entry: bool,
    hello: agent::words::Hello,
}

impl Shown {
    /// A change as E2B's event; an error where some were lost.
    async fn event(&self, change: Change) -> Result<Json, RpcError> {
        let (kind, is_there) = match change.what {
            What::Create => ("EVENT_TYPE_CREATE", true),
            What::Write => ("EVENT_TYPE_WRITE", true),
            What::Remove => ("EVENT_TYPE_REMOVE", false),
            What::Rename => ("EVENT_TYPE_RENAME", false),
            What::Chmod => ("EVENT_TYPE_CHMOD", true),
            What::Overflow => {
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
async fn begin(context: &Context, message: &Message) -> Result<(Stream, Shown), RpcError> {
    let folder = context.path(text(message, "path")?);
    let ask = Ask::Watch { path: folder.clone(), recursive: flag(message, "recursive")?.unwrap_or(false) };
    let mut stream = backend::open(&*context.desk.sandboxes, context.id(), &ask).await?;
    backend::reply::<Json>(&mut stream).await?;
    let shown = Shown {
        sandboxes: Arc::clone(&context.desk.sandboxes),
        id: context.id().to_owned(),
        folder,
        with_entry: flag(message, "includeEntry")?.unwrap_or(false),
        hello: context.hello(),
    };
    Ok((stream, shown))
}

/// The next change; an error at the end.
async fn next(stream: &mut Stream, shown: &Shown) -> Result<Json, RpcError> {
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
    let (events, response) = streaming(context.desk.cut_of(context.id()));
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

async fn tell(mut stream: Stream, shown: Shown, events: Events, interval: Duration) {
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
    let mut random = [0_u8; 16];
    if !sys::random::fill(&mut random) {
        return Err(RpcError::new(RpcCode::Internal, "the kernel gave no random bytes"));
    }
    let name = hex(&random);
    let seen = Arc::new(Mutex::new(Seen::default()));
    let kept = Arc::clone(&seen);
    let mut table = context.desk.watchers.lock();
    if table.keys().filter(|(id, _)| id == context.id()).count() >= MAX_WATCHERS {
        let message = format!("there are {MAX_WATCHERS} watchers already: remove some");
        return Err(RpcError::new(RpcCode::ResourceExhausted, message));
    }
    let task = tokio::spawn(async move {
        loop {
            let change = next(&mut stream, &shown).await;
            let mut seen = locked(&kept);
            match change {
                Ok(event) if seen.events.len() < MAX_EVENTS => seen.events.push_back(event),
                Ok(_) => {
                    let message = "nobody asked for 10,000 events: watch again and look at everything";
                    seen.failed = Some(RpcError::new(RpcCode::ResourceExhausted, message));
                    return;
                }
                Err(error) => {
                    seen.failed = Some(error);
                    return;
                }
            }
        }
    });
    let watcher = Watcher { seen, task: task.abort_handle() };
    table.insert((context.id().to_owned(), name.clone()), watcher);
    Ok(json!({ "watcherId": name }))
}

fn named(context: &Context, message: &Message) -> Result<(String, String), RpcError> {
    Ok((context.id().to_owned(), text(message, "watcherId")?.to_owned()))
}

fn unknown() -> RpcError {
    RpcError::new(RpcCode::NotFound, "there is no such watcher")
}

/// `GetWatcherEvents`
pub(super) fn take(context: &Context, message: &Message) -> Result<Json, RpcError> {
    let name = named(context, message)?;
    let table = context.desk.watchers.lock();
    let mut seen = locked(&table.get(&name).ok_or_else(unknown)?.seen);
    let events: Vec<Json> = seen.events.drain(..).collect();
    match &seen.failed {
        // What was seen before is told first.
        Some(error) if events.is_empty() => Err(error.clone()),
        Some(_) | None => Ok(json!({ "events": events })),
    }
}

/// `RemoveWatcher`
pub(super) fn remove(context: &Context, message: &Message) -> Result<Json, RpcError> {
    let name = named(context, message)?;
    context.desk.watchers.lock().remove(&name).map(|_| json!({})).ok_or_else(unknown)
}
