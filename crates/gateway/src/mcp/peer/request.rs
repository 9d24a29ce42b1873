//! Requests of both directions: ours, which are cancelled when nobody waits any more, and theirs, which are always answered.

use std::time::Duration;

use serde_json::{Value as Json, json};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::{Failure, MAX_GIVEN_UP, Peer};
use crate::given_up::Unfinished;
use crate::mcp::lock;
use crate::mcp::wire::{self, Id, Outcome, RpcError};

/// How long the reason is waited for when nothing can be sent any more.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// Asks to be told of progress under a token of ours.
pub(super) fn set_progress_token(params: &mut Json, number: i64) {
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
    pub(super) peer: Peer,
    pub(super) number: i64,
    pub(super) message: Option<Json>,
    pub(super) route: Option<Id>,
    pub(super) receiver: oneshot::Receiver<Outcome>,
    /// To be told when the other side works no more on a request that was given up.
    pub(super) unfinished: Option<Unfinished>,
    pub(super) done: bool,
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ticket").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Ticket {
    /// Tells of the end of the other side's work, should the request be given up.
    pub(crate) fn telling(mut self, unfinished: Option<Unfinished>) -> Self {
        self.unfinished = unfinished;
        self
    }

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
            // Its streams end before its words are read, which say why.
            drop(tokio::time::timeout(LAST_WORDS, self.peer.closed()).await);
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
        let sent = self.message.is_none();
        let waited = {
            let mut tables = lock(&self.peer.inner.tables);
            let waited = tables.waiting.remove(&self.number).is_some();
            let followed = self.unfinished.take().filter(|_| waited && sent && tables.given_up.len() < MAX_GIVEN_UP);
            if let Some(unfinished) = followed {
                unfinished.follow();
                tables.given_up.insert(self.number, unfinished);
            }
            waited
        };
        // Nothing to cancel if it was never sent.
        if waited && sent {
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
    pub(super) answered: bool,
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
