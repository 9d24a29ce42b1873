//! Where messages of one HTTP conversation go: each answer to the request that it answers, the rest to the one stream that
//! is open for it, or into a short memory until that comes back.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value as Json;
use tokio::sync::mpsc;

use crate::engine::BoxFuture;
use crate::mcp::peer::Outlet;
use crate::mcp::wire::Id;

/// Messages that wait for a slow reader of one stream.
pub(super) const QUEUE: usize = 64;
/// Messages that are remembered for a stream that comes back.
const REMEMBERED: usize = 256;

/// One event of the standing stream.
pub(super) type Event = (u64, Json);

#[derive(Default)]
struct Tables {
    requests: HashMap<Id, mpsc::Sender<Json>>,
    standing: Option<mpsc::Sender<Event>>,
    memory: VecDeque<Event>,
    /// The last event that was given to a standing stream.
    given: u64,
    next: u64,
}

/// The streams of one conversation.
#[derive(Default)]
pub(super) struct Streams {
    tables: Mutex<Tables>,
}

impl Streams {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stream of a request; `None` if its id is in use.
    pub(super) fn open(&self, id: &Id) -> Option<mpsc::Receiver<Json>> {
        let mut tables = self.tables();
        if tables.requests.contains_key(id) {
            return None;
        }
        let (sender, receiver) = mpsc::channel(QUEUE);
        tables.requests.insert(id.clone(), sender);
        Some(receiver)
    }

    /// Forgets the stream of a request.
    pub(super) fn close(&self, id: &Id) {
        self.tables().requests.remove(id);
    }

    /// Opens the standing stream: it takes the place of one before it, and begins after the event that the client saw last.
    pub(super) fn stand(&self, seen: Option<u64>) -> mpsc::Receiver<Event> {
        let (sender, receiver) = mpsc::channel(QUEUE.max(REMEMBERED));
        let mut tables = self.tables();
        let after = seen.unwrap_or(tables.given);
        let mut given = tables.given;
        for event in tables.memory.iter().filter(|(number, _)| *number > after) {
            if sender.try_send(event.clone()).is_ok() {
                given = given.max(event.0);
            }
        }
        tables.given = given;
        tables.standing = Some(sender);
        receiver
    }

    /// The way of a message: the stream of its request, if it has one that is open. An answer is the last on its stream.
    fn way(&self, message: &Json, route: Option<&Id>) -> Option<mpsc::Sender<Json>> {
        let id = route?;
        let mut tables = self.tables();
        let is_answer = message.get("method").is_none() && message.get("id").and_then(Id::of).as_ref() == Some(id);
        if is_answer { tables.requests.remove(id) } else { tables.requests.get(id).cloned() }
    }

    /// To the standing stream, or into memory.
    fn remember(&self, message: Json) -> bool {
        let mut tables = self.tables();
        tables.next = tables.next.saturating_add(1);
        let event = (tables.next, message);
        let given = tables.standing.as_ref().is_some_and(|standing| standing.try_send(event.clone()).is_ok());
        if given {
            tables.given = event.0;
        } else if tables.standing.as_ref().is_some_and(mpsc::Sender::is_closed) {
            tables.standing = None;
        }
        tables.memory.push_back(event);
        let excess = tables.memory.len().saturating_sub(REMEMBERED);
        tables.memory.drain(..excess);
        true
    }
}

impl Outlet for Streams {
    fn send<'a>(&'a self, message: Json, route: Option<&'a Id>) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            match self.way(&message, route) {
                // A stream that broke off: what it missed is remembered, for a client that comes back.
                Some(way) => match way.send(message).await {
                    Ok(()) => true,
                    Err(lost) => self.remember(lost.0),
                },
                None => self.remember(message),
            }
        })
    }

    fn offer(&self, message: Json, route: Option<&Id>) -> bool {
        match self.way(&message, route) {
            Some(way) => way.try_send(message).is_ok(),
            None => self.remember(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn an_answer_goes_to_its_request_and_the_rest_to_the_standing_stream() {
        let streams = Streams::default();
        let (one, two) = (Id::Number(1), Id::Text("1".to_owned()));
        let mut first = streams.open(&one).unwrap();
        let mut second = streams.open(&two).unwrap();
        assert!(streams.open(&one).is_none(), "an id in use has its stream");
        streams.offer(json!({"method": "progress"}), Some(&one));
        streams.send(json!({"id": "1", "result": {}}), Some(&two)).await;
        streams.send(json!({"method": "changed"}), None).await;
        assert_eq!(first.recv().await.unwrap()["method"], "progress");
        assert_eq!(second.recv().await.unwrap()["id"], "1");
        assert!(second.recv().await.is_none(), "the answer is the last");
        let mut standing = streams.stand(None);
        assert_eq!(standing.recv().await.unwrap(), (1, json!({"method": "changed"})));
        drop(standing);
        streams.send(json!({"method": "missed"}), None).await;
        let mut standing = streams.stand(Some(0));
        assert_eq!(standing.recv().await.unwrap().0, 1, "a client says what it saw last");
        assert_eq!(standing.recv().await.unwrap().1["method"], "missed");
    }
}
