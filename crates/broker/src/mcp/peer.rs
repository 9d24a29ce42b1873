//! One end of a conversation, whichever side it is on: ids, cancellation and progress of both directions.
//!
//! The gateway is a client of its upstreams and a server to its clients, and it owns both id spaces: nothing of one hop is
//! ever used on the other. What arrives is taken without waiting, so that a cancellation never queues behind the call it is
//! about; an answer that nobody waits for (late, second, made up, or with an id of another type) is counted and dropped.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value as Json, json};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::wire::{self, Id, Malformed, Message, Outcome, RpcError};
use crate::mcp::lock;

/// Most requests of the other side that are worked on at once.
pub const MOST_SERVED: usize = 256;

/// A future on the heap.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where messages go out.
pub trait Outlet: Send + Sync + 'static {
    /// Sends, waiting for room; false if the other side is gone. `route` is the request of the other side that the message
    /// is about: where requests have streams of their own, it goes there.
    fn send<'a>(&'a self, message: Json, route: Option<&'a Id>) -> Boxed<'a, bool>;

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

/// How many refusals may wait for a side that does not read: one that asks on and on would fill our memory.
const MOST_PARKED: usize = 256;

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
            } else if tables.served.len() >= MOST_SERVED {
                Some(RpcError::new(wire::UNAVAILABLE, format!("more than {MOST_SERVED} requests at once")))
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
        if self.inner.parked.fetch_add(1, Ordering::Relaxed) >= MOST_PARKED {
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
            set_progress_token(&mut params, number);
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

fn set_progress_token(params: &mut Json, number: i64) {
    if !params.is_object() {
        *params = json!({});
    }
    if let Some(map) = params.as_object_mut() {
        let meta = map.entry("_meta").or_insert_with(|| json!({}));
        if let Some(meta) = meta.as_object_mut() {
            meta.insert("progressToken".to_owned(), number.into());
        }
    }
}

/// A request of ours that waits for its answer.
#[must_use = "a ticket that is dropped cancels its request"]
pub struct Ticket {
    peer: Peer,
    number: i64,
    message: Option<Json>,
    route: Option<Id>,
    receiver: oneshot::Receiver<Outcome>,
    done: bool,
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ticket").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Ticket {
    /// Sends the request and waits for the answer.
    ///
    /// # Errors
    /// [`Failure`]: the other side's error, or that it is gone.
    pub async fn answer(mut self) -> Result<Json, Failure> {
        if let Some(message) = self.message.take()
            && !self.peer.inner.outlet.send(message, self.route.as_ref()).await
        {
            self.done = true;
            lock(&self.peer.inner.tables).waiting.remove(&self.number);
            return Err(Failure::Gone(self.peer.why_closed()));
        }
        let outcome = (&mut self.receiver).await;
        self.done = true;
        match outcome {
            Ok(outcome) => outcome.map_err(Failure::Rpc),
            Err(_closed) => Err(Failure::Gone(self.peer.why_closed())),
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let waited = lock(&self.peer.inner.tables).waiting.remove(&self.number).is_some();
        // Nothing to cancel if it was never sent.
        if waited && self.message.is_none() {
            let params = json!({ "requestId": self.number, "reason": "nobody waits for the answer any more" });
            self.peer.offer(wire::notification("notifications/cancelled", params), None);
        }
    }
}

/// A request of the other side.
#[derive(Debug)]
pub struct Incoming {
    /// The conversation that it came by.
    pub peer: Peer,
    /// Its id there.
    pub id: Id,
    /// What is wanted.
    pub method: String,
    /// An object, or null.
    pub params: Json,
    /// Is cancelled when the other side no longer wants the answer, or is gone.
    pub cancel: CancellationToken,
    answered: bool,
}

impl Incoming {
    /// Ends the request. A request that was cancelled gets no answer.
    pub async fn answer(mut self, outcome: Outcome) {
        self.answered = true;
        let held = lock(&self.peer.inner.tables).served.contains_key(&self.id);
        if held && !self.cancel.is_cancelled() {
            self.peer.inner.outlet.send(wire::response(&self.id, outcome), Some(&self.id)).await;
        }
        self.release();
    }

    fn release(&self) {
        lock(&self.peer.inner.tables).served.remove(&self.id);
    }

    /// The progress token of the request, if its sender wants to be told.
    #[must_use]
    pub fn progress_token(&self) -> Option<Json> {
        let token = self.params.get("_meta")?.get("progressToken")?;
        (Id::of(token).is_some()).then(|| token.clone())
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        if !self.cancel.is_cancelled() {
            let error = RpcError::new(wire::INTERNAL, "the request was dropped without an answer");
            self.peer.offer(wire::response(&self.id, Err(error)), Some(&self.id));
        }
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    struct Out(mpsc::Sender<Json>);

    impl Outlet for Out {
        fn send<'a>(&'a self, message: Json, _: Option<&'a Id>) -> Boxed<'a, bool> {
            Box::pin(async move { self.0.send(message).await.is_ok() })
        }
        fn offer(&self, message: Json, _: Option<&Id>) -> bool {
            self.0.try_send(message).is_ok()
        }
    }

    /// Keeps requests until the test answers them.
    #[derive(Default)]
    struct Keep(Mutex<Vec<Incoming>>);

    impl Handler for Keep {
        fn request(&self, incoming: Incoming) {
            lock(&self.0).push(incoming);
        }
        fn notification(&self, _: &Peer, _: &str, _: Json) {}
    }

    fn peer() -> (Peer, Arc<Keep>, mpsc::Receiver<Json>) {
        let (sender, receiver) = mpsc::channel(16);
        let keep = Arc::new(Keep::default());
        (Peer::new(Arc::new(Out(sender)), keep.clone()), keep, receiver)
    }

    #[tokio::test]
    async fn a_second_a_late_and_a_foreign_answer_are_dropped() {
        let (peer, _, mut out) = peer();
        let asking = tokio::spawn(peer.request("ping", Json::Null, None).answer());
        assert_eq!(out.recv().await.unwrap()["id"], 1);
        for id in [json!("1"), json!(2), json!(-1)] {
            peer.accept(json!({"jsonrpc": "2.0", "id": id, "result": {"wrong": true}}));
        }
        peer.accept(json!({"jsonrpc": "2.0", "id": 1, "result": {"right": true}}));
        peer.accept(json!({"jsonrpc": "2.0", "id": 1, "result": {"second": true}}));
        assert_eq!(asking.await.unwrap(), Ok(json!({"right": true})));
        assert_eq!(peer.strays(), 4);
    }

    #[tokio::test]
    async fn a_side_that_asks_and_never_reads_is_left_alone() {
        let (peer, _, mut out) = peer();
        for id in 0..MOST_PARKED + 16 {
            assert!(!peer.is_closed(), "{id}");
            peer.accept(json!({"jsonrpc": "2.0", "id": {}, "method": "x"}));
        }
        peer.accept(json!({"jsonrpc": "2.0", "id": {}, "method": "x"}));
        assert!(peer.is_closed());
        let mut told = 0;
        while out.try_recv().is_ok() {
            told += 1;
        }
        assert_eq!(told, 16, "what the outlet holds, and no more");
    }

    #[tokio::test]
    async fn an_answer_that_is_none_ends_the_request_that_it_is_about() {
        for wrong in [
            json!({"jsonrpc": "2.0", "id": 1, "result": {}, "error": {"code": 1, "message": "both"}}),
            json!({"jsonrpc": "2.0", "id": 1}),
            json!({"jsonrpc": "1.0", "id": 1, "result": {}}),
        ] {
            let (peer, _, mut out) = peer();
            let asking = tokio::spawn(peer.request("ping", Json::Null, None).answer());
            assert_eq!(out.recv().await.unwrap()["id"], 1);
            assert!(!peer.accept_silently(wrong.clone()));
            let Err(Failure::Rpc(error)) = asking.await.unwrap() else { panic!("{wrong}") };
            assert!(error.message.contains("cannot be read"), "{error:?}");
        }
    }

    #[tokio::test]
    async fn a_ticket_that_is_dropped_cancels_its_own_id() {
        let (peer, _, mut out) = peer();
        let asking = tokio::spawn(peer.request("slow", Json::Null, None).answer());
        out.recv().await.unwrap();
        asking.abort();
        assert!(asking.await.is_err());
        let told = out.recv().await.unwrap();
        assert_eq!(
            (told["method"].as_str(), told["params"]["requestId"].as_i64()),
            (Some("notifications/cancelled"), Some(1))
        );
        peer.accept(json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
        assert_eq!(peer.strays(), 1);
    }

    #[tokio::test]
    async fn an_id_in_use_is_not_served_twice_and_a_cancelled_request_gets_no_answer() {
        let (peer, keep, mut out) = peer();
        let ask = |id: Json| peer.accept(json!({"jsonrpc": "2.0", "id": id, "method": "work"}));
        ask(json!(7));
        ask(json!(7));
        assert_eq!(out.recv().await.unwrap()["error"]["code"], wire::INVALID_REQUEST);
        assert_eq!(lock(&keep.0).len(), 1);
        peer.accept(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "7"}}));
        let work = lock(&keep.0).pop().unwrap();
        assert!(!work.cancel.is_cancelled(), "a cancellation with another type of id stops nothing");
        peer.accept(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}));
        assert!(work.cancel.is_cancelled());
        work.answer(Ok(json!({}))).await;
        assert!(out.try_recv().is_err());
        ask(json!(7));
        assert_eq!(lock(&keep.0).len(), 1, "the id is free again");
    }

    #[tokio::test]
    async fn progress_reaches_only_the_request_it_is_about() {
        let (peer, _, mut out) = peer();
        let (told, mut seen) = mpsc::unbounded_channel();
        let progress: Progress = Arc::new(move |params| assert!(told.send(params).is_ok()));
        let asking = tokio::spawn(peer.request_with_progress("slow", Json::Null, None, Some(progress)).answer());
        let sent = out.recv().await.unwrap();
        let token = sent["params"]["_meta"]["progressToken"].clone();
        for token in [json!(99), json!("1"), token] {
            let params = json!({"progressToken": token, "progress": 1});
            peer.accept(json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}));
        }
        assert_eq!(seen.recv().await.unwrap()["progress"], 1);
        assert!(seen.try_recv().is_err());
        peer.close("over");
        assert_eq!(asking.await.unwrap(), Err(Failure::Gone("over".to_owned())));
    }

    #[tokio::test]
    async fn more_requests_than_the_bound_are_refused() {
        let (peer, keep, _out) = peer();
        for id in 0..MOST_SERVED + 5 {
            peer.accept(json!({"jsonrpc": "2.0", "id": id, "method": "work"}));
        }
        assert_eq!(lock(&keep.0).len(), MOST_SERVED);
    }
}
