//! What a server may say beside the results of its tools: redacted as they are, bounded, and no more of it than a client can
//! be expected to read.
//!
//! Promises, for log messages, progress, updates and questions alike: what any entry of one of the server's tools redacts is
//! redacted; of all messages together no more bytes pass in a minute than the least `result.max`; no more than
//! [`EACH_SECOND`] messages pass, after a burst of [`BURST`]. What is over is dropped and counted, and the client is told once.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use gate::result::Bounds;
use serde_json::Value as Json;
use tokio::time::Instant;

use super::wire::{self, RpcError};
use super::{lock, protocol, text};

/// Messages that pass in a second.
const EACH_SECOND: u32 = 20;
/// How many may come at once.
const BURST: u32 = 50;
/// In what time the bytes of one result may pass.
const MINUTE: Duration = Duration::from_secs(60);
/// Longest number of a progress: the text of a number has no bound of its own.
const MAX_NUMBER: usize = 32;
/// Longest message of an error.
const MAX_ERROR: usize = 2000;

/// How much of something passes: so much at once, and so much again in a while.
#[derive(Debug)]
struct Bucket {
    most: f64,
    each_second: f64,
    left: f64,
    at: Instant,
}

impl Bucket {
    fn new(most: f64, each_second: f64) -> Self {
        Self { most, each_second, left: most, at: Instant::now() }
    }

    fn fill(&mut self, now: Instant) {
        let more = now.saturating_duration_since(self.at).as_secs_f64() * self.each_second;
        (self.left, self.at) = ((self.left + more).min(self.most), self.at.max(now));
    }
}

#[derive(Debug)]
struct Meter {
    messages: Bucket,
    bytes: Bucket,
    /// Dropped since somebody was told.
    dropped: u64,
    is_told: bool,
}

impl Meter {
    fn new(bytes: usize) -> Self {
        // Exact below 2^53, and a `result.max` beyond that bounds nothing anyhow.
        let bytes = u32::try_from(bytes).map_or(f64::from(u32::MAX), f64::from);
        Self {
            messages: Bucket::new(f64::from(BURST), f64::from(EACH_SECOND)),
            bytes: Bucket::new(bytes, bytes / MINUTE.as_secs_f64()),
            dropped: 0,
            is_told: false,
        }
    }

    fn admits(&mut self, bytes: usize, now: Instant) -> bool {
        self.messages.fill(now);
        self.bytes.fill(now);
        let bytes = u32::try_from(bytes).map_or(f64::INFINITY, f64::from);
        if self.messages.left < 1.0 || self.bytes.left < bytes {
            self.dropped = self.dropped.saturating_add(1);
            return false;
        }
        self.messages.left -= 1.0;
        self.bytes.left -= bytes;
        true
    }
}

/// What of a message passes.
#[derive(Debug, PartialEq)]
pub(super) enum Passed {
    /// This.
    Whole(Json),
    /// Nothing, for the first time: the client is told.
    DroppedFirst,
    /// Nothing.
    Dropped,
}

/// What one server may push to one client.
#[derive(Debug)]
pub(super) struct Pushed {
    /// None if its rules cannot be compiled: nothing passes then.
    bounds: Option<Arc<Bounds>>,
    messages: Mutex<Meter>,
    questions: Mutex<Meter>,
}

impl Pushed {
    /// By the rules of a server's tools.
    #[must_use]
    pub(super) fn new(bounds: Option<Arc<Bounds>>) -> Self {
        let most = bounds.as_ref().map_or(0, |bounds| bounds.most());
        Self { bounds, messages: Mutex::new(Meter::new(most)), questions: Mutex::new(Meter::new(most)) }
    }

    /// A text of the server's, as it may be shown: for notes and errors, which are few and bounded by whoever writes them.
    #[must_use]
    pub(super) fn sanitized(&self, words: &str) -> String {
        let seen = self.seen(&Json::from(words));
        seen.as_str().map_or_else(|| "[fumehood: withheld]".to_owned(), str::to_owned)
    }

    /// A value of the server's without what is redacted, hides, or says to be ours.
    #[must_use]
    pub(super) fn seen(&self, value: &Json) -> Json {
        let Some(bounds) = &self.bounds else { return Json::Null };
        // Before anything is written out: a mark within a secret would hide it from the patterns.
        let mut value = bounds.redacted(value);
        text::clean_all(&mut value);
        protocol::strip_own(&mut value);
        self.withhold_data(&mut value);
        value
    }

    /// A part of a tool's definition: as it was pinned, but for what is redacted. A server can list a tool whenever it likes.
    #[must_use]
    pub(super) fn definition(&self, part: Json) -> Json {
        match &self.bounds {
            Some(bounds) if !bounds.redacts() => part,
            Some(bounds) => bounds.redacted(&part),
            None => Json::Null,
        }
    }

    /// Data in base64 that holds what the policy redacts.
    fn withhold_data(&self, value: &mut Json) {
        match value {
            Json::Object(map) => {
                for (key, value) in map.iter_mut() {
                    let reveals = matches!(key.as_str(), "blob" | "data")
                        && value.as_str().is_some_and(|data| self.bounds.as_ref().is_none_or(|b| b.reveals(data)));
                    if reveals {
                        *value = "".into();
                    } else {
                        self.withhold_data(value);
                    }
                }
            }
            Json::Array(items) => items.iter_mut().for_each(|item| self.withhold_data(item)),
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
        }
    }

    /// A notification, if there is room for it.
    #[must_use]
    pub(super) fn message(&self, value: &Json) -> Passed {
        self.message_at(value, Instant::now())
    }

    fn message_at(&self, value: &Json, now: Instant) -> Passed {
        // Counted before it is looked at: a flood costs no more than reading it.
        let mut meter = lock(&self.messages);
        let size = if self.bounds.is_some() { size(value) } else { usize::MAX };
        if meter.admits(size, now) {
            drop(meter);
            return Passed::Whole(self.seen(value));
        }
        if std::mem::replace(&mut meter.is_told, true) { Passed::Dropped } else { Passed::DroppedFirst }
    }

    /// A question, which needs an answer: over the rate it is one of ours.
    ///
    /// # Errors
    /// The server asks too much.
    pub(super) fn question(&self, params: &Json) -> Result<Json, RpcError> {
        let size = if self.bounds.is_some() { size(params) } else { usize::MAX };
        if lock(&self.questions).admits(size, Instant::now()) {
            return Ok(self.seen(params));
        }
        let why =
            format!("the server asks too much: more than {EACH_SECOND} questions a second, or more than `result.max`");
        Err(RpcError::new(wire::UNAVAILABLE, why))
    }

    /// An error of the server's for the client: its code and its words. Its data stays here.
    #[must_use]
    pub(super) fn error(&self, error: &RpcError) -> RpcError {
        RpcError::new(error.code, text::shown(&self.sanitized(&error.message), MAX_ERROR))
    }

    /// How many messages were dropped since this was asked.
    #[must_use]
    pub(super) fn take_dropped(&self) -> u64 {
        std::mem::take(&mut lock(&self.messages).dropped)
    }

    /// What a client is told when the first message is dropped.
    #[must_use]
    pub(super) fn told(server: &str) -> String {
        format!(
            "the server `{server}` says more than passes ({EACH_SECOND} messages a second after {BURST} at once, and in a \
             minute the bytes of `result.max`): what is over is dropped and counted"
        )
    }
}

/// A number as it may be passed on.
#[must_use]
pub(super) fn number(value: &Json) -> Option<Json> {
    value.as_number().filter(|number| number.to_string().len() <= MAX_NUMBER).map(|number| Json::Number(number.clone()))
}

fn size(value: &Json) -> usize {
    serde_json::to_vec(value).map_or(usize::MAX, |bytes| bytes.len())
}

#[cfg(test)]
mod tests {
    use policy::tools::ResultRule;
    use policy::units::Bytes;
    use serde_json::json;

    use super::*;

    fn pushed(most: u64) -> Pushed {
        let rule = ResultRule { max: Bytes(most), redact: Vec::new(), types: Vec::new() };
        Pushed::new(Some(Arc::new(Bounds::new(&rule).unwrap())))
    }

    #[test]
    fn a_flood_is_cut_to_its_rate_counted_and_told_once() {
        let pushed = pushed(1 << 20);
        let begun = Instant::now();
        let pass = |n: u32, after: u64| {
            let now = begun + Duration::from_secs(after);
            (0..n).map(|n| pushed.message_at(&json!({ "n": n }), now)).collect::<Vec<_>>()
        };
        let first = pass(20_000, 1);
        let whole = |all: &[Passed]| all.iter().filter(|one| matches!(one, Passed::Whole(_))).count();
        assert_eq!(whole(&first), 50);
        assert_eq!(first.iter().filter(|one| **one == Passed::DroppedFirst).count(), 1);
        assert_eq!((pushed.take_dropped(), pushed.take_dropped()), (19_950, 0));
        assert_eq!(whole(&pass(1000, 2)), 20, "and then at its rate");
        assert_eq!(whole(&pass(40, 62)), 40, "what a quiet server says passes");
    }

    #[test]
    fn the_bytes_of_all_messages_are_bounded_together() {
        let pushed = pushed(1000);
        let now = Instant::now() + Duration::from_secs(1);
        let pass = |now| matches!(pushed.message_at(&json!("x".repeat(300)), now), Passed::Whole(_));
        assert_eq!([pass(now), pass(now), pass(now), pass(now)], [true, true, true, false]);
        assert!(pushed.question(&json!("x".repeat(2000))).is_err(), "a question is bounded as well");
        assert!(pushed.question(&json!("y")).is_ok(), "and has a count of its own");
        assert!(pass(now + Duration::from_secs(20)));
    }

    #[test]
    fn rules_that_cannot_be_compiled_let_nothing_through() {
        let none = Pushed::new(None);
        assert_eq!(none.message(&json!(1)), Passed::DroppedFirst);
        assert!(none.question(&json!({})).is_err());
        assert_eq!((none.sanitized("x"), none.seen(&json!("x"))), ("[fumehood: withheld]".to_owned(), Json::Null));
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(number(&json!(12.5)), Some(json!(12.5)));
        assert_eq!(number(&json!("1")), None);
    }
}
