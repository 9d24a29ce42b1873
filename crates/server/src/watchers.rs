//! Watchers that are asked: what was seen in a folder waits here until a client comes for it.
//!
//! A watcher lives in this process: after a restart of the server its name is unknown, which clients are told as such.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use policy::json::hex;
use serde_json::Value as Json;
use tokio::task::AbortHandle;

use crate::rpc::{RpcCode, RpcError};

/// Most watchers of a sandbox.
const MAX_WATCHERS: usize = 64;
/// Most events of one watcher that wait for who asks, and most bytes of them as JSON: a program inside names what it changes.
const MAX_EVENTS: usize = 10_000;
const MAX_BYTES: usize = 4 << 20;

/// The watchers of all sandboxes, by the sandbox and their own name.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    table: Mutex<BTreeMap<(String, String), Watcher>>,
}

#[derive(Debug)]
struct Watcher {
    kept: EventQueue,
    task: AbortHandle,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What one watcher has seen and nobody has asked for yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventQueue(Arc<Mutex<QueueState>>);

#[derive(Debug, Default)]
struct QueueState {
    /// As JSON, which is smaller than what it says.
    events: VecDeque<String>,
    /// Their bytes.
    bytes: usize,
    /// Why nothing more comes, or something was lost.
    failed: Option<RpcError>,
}

impl EventQueue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what was seen next; whether more is kept after it.
    pub(crate) fn add(&self, event: Result<Json, RpcError>) -> bool {
        let mut seen = self.lock();
        if seen.failed.is_some() {
            return false;
        }
        match event.map(|event| event.to_string()) {
            Ok(event) if seen.events.len() < MAX_EVENTS && seen.bytes.saturating_add(event.len()) <= MAX_BYTES => {
                seen.bytes = seen.bytes.saturating_add(event.len());
                seen.events.push_back(event);
            }
            Ok(_) => {
                let message = "nobody asked for 10,000 events, or 4 MiB of them: watch again and look at everything";
                seen.failed = Some(RpcError::new(RpcCode::ResourceExhausted, message));
            }
            Err(error) => seen.failed = Some(error),
        }
        seen.failed.is_none()
    }

    fn take(&self) -> Result<Vec<Json>, RpcError> {
        let mut seen = self.lock();
        seen.bytes = 0;
        let events: Vec<Json> = seen.events.drain(..).filter_map(|event| serde_json::from_str(&event).ok()).collect();
        match &seen.failed {
            Some(error) if events.is_empty() => Err(error.clone()),
            Some(_) | None => Ok(events),
        }
    }
}

impl Watchers {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, String), Watcher>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new watcher of a sandbox, which does `work` until it is removed; its name.
    ///
    /// # Errors
    /// There are as many as there may be, or the kernel gives no random bytes.
    pub(crate) fn add<F>(&self, id: &str, work: impl FnOnce(EventQueue) -> F) -> Result<String, RpcError>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut random = [0_u8; 16];
        if !sys::random::fill(&mut random) {
            return Err(RpcError::new(RpcCode::Internal, "the kernel gave no random bytes"));
        }
        let mut table = self.lock();
        if table.keys().filter(|(of, _)| of == id).count() >= MAX_WATCHERS {
            let message = format!("there are {MAX_WATCHERS} watchers already: remove some");
            return Err(RpcError::new(RpcCode::ResourceExhausted, message));
        }
        let (name, kept) = (hex(&random), EventQueue::default());
        let task = tokio::spawn(work(kept.clone())).abort_handle();
        table.insert((id.to_owned(), name.clone()), Watcher { kept, task });
        Ok(name)
    }

    /// What a watcher has seen since it was asked last.
    ///
    /// # Errors
    /// There is none of this name, or it sees nothing more; what was seen before is told first.
    pub(crate) fn take(&self, id: &str, name: &str) -> Result<Vec<Json>, RpcError> {
        let table = self.lock();
        let watcher = table.get(&(id.to_owned(), name.to_owned())).ok_or_else(unknown)?;
        watcher.kept.take()
    }

    /// Removes a watcher.
    ///
    /// # Errors
    /// There is none of this name.
    pub(crate) fn remove(&self, id: &str, name: &str) -> Result<(), RpcError> {
        self.lock().remove(&(id.to_owned(), name.to_owned())).map(drop).ok_or_else(unknown)
    }

    /// Forgets those of a sandbox.
    pub(crate) fn forget(&self, id: &str) {
        self.lock().retain(|(of, _), _| of != id);
    }
}

fn unknown() -> RpcError {
    RpcError::new(RpcCode::NotFound, "there is no such watcher")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// How many such events are kept until it is too much.
    fn kept(event: &Json) -> (usize, EventQueue) {
        let kept = EventQueue::default();
        let count = (0..=MAX_EVENTS).take_while(|_| kept.add(Ok(event.clone()))).count();
        (count, kept)
    }

    #[test]
    fn what_waits_is_bounded_in_number_and_in_bytes_and_told_before_that_it_was_too_much() {
        let (short, long) = (json!({ "name": "a" }), json!({ "name": "\u{0}ff".repeat(1365) }));
        assert_eq!(kept(&short).0, MAX_EVENTS);
        let (count, kept) = kept(&long);
        assert_eq!(count, MAX_BYTES / long.to_string().len(), "a tenth of their number is 80 MiB");
        assert!(!kept.add(Ok(short)), "what was lost is not made up for by what is smaller");
        assert_eq!(kept.take(), Ok(vec![long; count]));
        assert_eq!(kept.take().unwrap_err().code, RpcCode::ResourceExhausted);
    }

    #[test]
    fn who_asks_in_time_loses_nothing() {
        let (kept, long) = (EventQueue::default(), json!({ "name": "a".repeat(4096) }));
        for _ in 0..4 {
            let some = vec![long.clone(); 1000];
            assert!(some.iter().all(|event| kept.add(Ok(event.clone()))));
            assert_eq!(kept.take(), Ok(some));
        }
    }
}
