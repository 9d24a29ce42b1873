//! One end of a conversation, whichever side it is on: ids, cancellation and progress of both directions.
//!
//! The gateway is a client of its upstreams and a server to its clients, and it owns both id spaces: nothing of one hop is
//! ever used on the other. What arrives is taken without waiting, so that a cancellation never queues behind the call it is
//! about; an answer that nobody waits for (late, second, made up, or with an id of another type) is counted and dropped.

mod request;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::Value as Json;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::wire::{self, Id, Malformed, Message, Outcome, RpcError};
use crate::engine::BoxFuture;
use crate::given_up::Unfinished;
use crate::mcp::lock;

pub use request::{Incoming, Ticket};

/// Most requests of the other side that are worked on at once.
pub const MAX_SERVED: usize = 256;

/// Where messages go out.
pub trait Outlet: Send + Sync + 'static {
    /// Sends, waiting for room; false if the other side is gone. `route` is the request of the other side that the message
    /// is about: where requests have streams of their own, it goes there.
    fn send<'a>(&'a self, message: Json, route: Option<&'a Id>) -> BoxFuture<'a, bool>;

    /// Sends if there is room at once; false if not.
    fn offer(&self, message: Json, route: Option<&Id>) -> bool;
}

/// What a side does with what it is asked and told. Called by the task that reads: it must not wait.
pub trait Handler: Send + Sync + 'static {
    /// A request; [`Incoming::answer`] ends it.
    fn request(&self, incoming: Incoming);

    /// A notification; `cancelled` and `progress` are the peer's own business and do not come here.
    fn notification(&self, peer: &Peer, method: &str, params: Json);
}

/// Takes the progress of one request of ours.
pub type Progress = Arc<dyn Fn(Json) + Send + Sync>;

struct Waiting {
    answer: oneshot::Sender<Outcome>,
    progress: Option<Progress>,
}

#[derive(Default)]
struct Tables {
    /// Requests of ours.
    waiting: HashMap<i64, Waiting>,
    /// Requests of ours that were given up and that the other side has not answered: told when it does, or has ended.
    given_up: HashMap<i64, Unfinished>,
    /// Requests of theirs.
    served: HashMap<Id, CancellationToken>,
    closed: Option<String>,
}

struct Inner {
    outlet: Arc<dyn Outlet>,
    handler: Mutex<Option<Arc<dyn Handler>>>,
    tables: Mutex<Tables>,
    next: AtomicI64,
    strays: AtomicU64,
    /// Messages that wait for room outside the outlet.
    parked: AtomicUsize,
    done: CancellationToken,
}

/// How many requests may be given up and unanswered: of more nobody is told.
const MAX_GIVEN_UP: usize = 1024;

/// How many refusals may wait for a side that does not read: one that asks on and on would fill our memory.
const MAX_PARKED: usize = 256;

/// One end of a conversation.
#[derive(Clone)]
pub struct Peer {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peer").field("strays", &self.strays()).finish_non_exhaustive()
    }
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// The other side answered with an error.
    Rpc(RpcError),
    /// The other side is gone; why.
    Gone(String),
}

impl Failure {
    /// As an error for whoever asked us.
    #[must_use]
    pub fn into_rpc(self) -> RpcError {
        match self {
            Self::Rpc(error) => error,
            Self::Gone(why) => RpcError::new(wire::UNAVAILABLE, why),
        }
    }
}

impl Peer {
    /// A peer that speaks through `outlet`.
    #[must_use]
    pub fn new(outlet: Arc<dyn Outlet>, handler: Arc<dyn Handler>) -> Self {
        let inner = Inner {
            outlet,
            handler: Mutex::new(Some(handler)),
            tables: Mutex::default(),
            next: AtomicI64::new(1),
            strays: AtomicU64::new(0),
            parked: AtomicUsize::new(0),
            done: CancellationToken::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// How many answers came that nobody waited for.
    #[must_use]
    pub fn strays(&self) -> u64 {
        self.inner.strays.load(Ordering::Relaxed)
    }

    /// Whether both are the same end.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Becomes ready when the conversation is over.
    pub async fn closed(&self) {
        self.inner.done.cancelled().await;
    }

    /// Whether the conversation is over.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.inner.done.is_cancelled()
    }

    /// How many requests of the other side are worked on.
    #[must_use]
    pub fn serving(&self) -> usize {
        lock(&self.inner.tables).served.len()
    }

    /// How many requests of ours wait for their answers.
    #[must_use]
    pub fn asking(&self) -> usize {
        lock(&self.inner.tables).waiting.len()
    }

    /// The other side has ended, and so has what it did for requests that were given up. The end of a conversation is not that:
    /// a program may work on after it closed its output.
    pub fn works_no_more(&self) {
        let given_up = std::mem::take(&mut lock(&self.inner.tables).given_up);
        given_up.into_values().for_each(|unfinished| unfinished.end());
    }

    /// Ends the conversation: whoever waits is told why, whoever works for the other side is stopped.
    pub fn close(&self, why: &str) {
        let (waiting, served) = {
            let mut tables = lock(&self.inner.tables);
            tables.closed.get_or_insert_with(|| why.to_owned());
            (std::mem::take(&mut tables.waiting), std::mem::take(&mut tables.served))
        };
        // Dropping the senders tells the waiting ones.
        drop(waiting);
        let mut tokens: Vec<_> = served.into_iter().collect();
        tokens.sort_by(|one, other| one.0.cmp(&other.0));
        for (_, token) in tokens {
            token.cancel();
        }
        drop(lock(&self.inner.handler).take());
        self.inner.done.cancel();
    }

    /// Takes a JSON value of the other side; false if it is no message at all.
    pub fn accept(&self, value: Json) -> bool {
        match Message::read(value) {
            Ok(message) => {
                self.take(message);
                true
            }
            Err(Malformed { id, why }) => {
                self.refuse(id.as_ref(), &RpcError::new(wire::INVALID_REQUEST, why));
                false
            }
        }
    }

    /// The same without an answer to what is no message: two sides that answer each other's noise would never end.
    pub fn accept_silently(&self, value: Json) -> bool {
        let is_answer = value.get("method").is_none();
        match Message::read(value) {
            Ok(message) => {
                self.take(message);
                true
            }
            Err(Malformed { id, why }) => {
                // Whoever waits for this answer is told: no other will come, and a call must not look like one that hangs.
                if let Some(id) = id.filter(|_| is_answer) {
                    self.answered(&id, Err(RpcError::new(wire::INVALID_REQUEST, format!("it cannot be read: {why}"))));
                }
                false
            }
        }
    }

    /// Answers what could not even be read.
    pub fn refuse(&self, id: Option<&Id>, error: &RpcError) {
        let answer = match id {
            Some(id) => wire::response(id, Err(error.clone())),
            None => wire::error_without_id(error),
        };
        self.offer(answer, id);
    }

    fn take(&self, message: Message) {
        match message {
            Message::Response { id, outcome } => self.answered(&id, outcome),
            Message::Notification { method, params } => match method.as_str() {
                "notifications/cancelled" => self.cancelled(&params),
                "notifications/progress" => self.progressed(params),
                _ => {
                    if let Some(handler) = self.handler() {
                        handler.notification(self, &method, params);
                    }
                }
            },
            Message::Request { id, method, params } => self.asked(id, method, params),
        }
    }

    fn handler(&self) -> Option<Arc<dyn Handler>> {
        lock(&self.inner.handler).clone()
    }

    fn answered(&self, id: &Id, outcome: Outcome) {
        let found = match id {
            Id::Number(number) => lock(&self.inner.tables).waiting.remove(number),
            Id::Text(_) => None,
        };
        let taken = found.is_some_and(|waiting| waiting.answer.send(outcome).is_ok());
        if !taken {
            if let Id::Number(number) = id
                && let Some(unfinished) = lock(&self.inner.tables).given_up.remove(number)
            {
                unfinished.end();
            }
            self.inner.strays.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn cancelled(&self, params: &Json) {
        let Some(id) = params.get("requestId").and_then(Id::of) else { return };
        // The entry stays until the work is over, so that the id cannot be used again meanwhile.
        let token = lock(&self.inner.tables).served.get(&id).cloned();
        match token {
            Some(token) => token.cancel(),
            None => {
                self.inner.strays.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn progressed(&self, params: Json) {
        let tables = lock(&self.inner.tables);
        let waiting = params.get("progressToken").and_then(Json::as_i64).and_then(|token| tables.waiting.get(&token));
        match waiting.and_then(|waiting| waiting.progress.as_ref()) {
            Some(progress) => progress(params),
            None => {
                self.inner.strays.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn asked(&self, id: Id, method: String, params: Json) {
        let cancel = self.inner.done.child_token();
        let refused = {
            let mut tables = lock(&self.inner.tables);
            if tables.closed.is_some() {
                return;
            }
            if tables.served.contains_key(&id) {
                Some(RpcError::new(wire::INVALID_REQUEST, "this id is in use by a request that has no answer yet"))
            } else if tables.served.len() >= MAX_SERVED {
                Some(RpcError::new(wire::UNAVAILABLE, format!("more than {MAX_SERVED} requests at once")))
            } else {
                tables.served.insert(id.clone(), cancel.clone());
                None
            }
        };
        if let Some(error) = refused {
            self.offer(wire::response(&id, Err(error)), Some(&id));
            return;
        }
        let incoming = Incoming { peer: self.clone(), id, method, params, cancel, answered: false };
        match self.handler() {
            Some(handler) => handler.request(incoming),
            None => drop(incoming),
        }
    }

    fn offer(&self, message: Json, route: Option<&Id>) {
        if self.inner.outlet.offer(message.clone(), route) {
            return;
        }
        // No room: somebody else waits for it, so that reading goes on.
        let (peer, route) = (self.clone(), route.cloned());
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if self.inner.parked.fetch_add(1, Ordering::Relaxed) >= MAX_PARKED {
            return self.close("it asks on and on, and reads no answer");
        }
        runtime.spawn(async move {
            tokio::select! {
                _ = peer.inner.outlet.send(message, route.as_ref()) => {}
                () = peer.closed() => {}
            }
            peer.inner.parked.fetch_sub(1, Ordering::Relaxed);
        });
    }

    /// Asks the other side. The request is cancelled there if the ticket is dropped before the answer came.
    pub fn request(&self, method: &str, params: Json, route: Option<&Id>) -> Ticket {
        self.request_with_progress(method, params, route, None)
    }

    /// As [`Peer::request`]; `progress` is told of the progress that the other side reports.
    pub fn request_with_progress(
        &self,
        method: &str,
        mut params: Json,
        route: Option<&Id>,
        progress: Option<Progress>,
    ) -> Ticket {
        let number = self.inner.next.fetch_add(1, Ordering::Relaxed);
        if progress.is_some() {
            request::set_progress_token(&mut params, number);
        }
        let (answer, receiver) = oneshot::channel();
        {
            let mut tables = lock(&self.inner.tables);
            if tables.closed.is_none() {
                tables.waiting.insert(number, Waiting { answer, progress });
            }
        }
        Ticket {
            peer: self.clone(),
            number,
            message: Some(wire::request(&Id::Number(number), method, params)),
            route: route.cloned(),
            receiver,
            unfinished: None,
            done: false,
        }
    }

    /// Tells the other side, waiting for room.
    pub async fn notify(&self, method: &str, params: Json, route: Option<&Id>) -> bool {
        self.inner.outlet.send(wire::notification(method, params), route).await
    }

    /// Tells the other side if there is room: for what may be lost (progress, log messages).
    pub fn mention(&self, method: &str, params: Json, route: Option<&Id>) -> bool {
        self.inner.outlet.offer(wire::notification(method, params), route)
    }

    /// Why the conversation is over.
    #[must_use]
    pub fn why_closed(&self) -> String {
        lock(&self.inner.tables).closed.clone().unwrap_or_else(|| "the other side is gone".to_owned())
    }
}
