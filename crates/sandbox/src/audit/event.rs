//! One event: its kinds, and its one spelling as a line of the log.

use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

use policy::json::{canonical, sha256_hex, write_text};

/// `prev` of the first event.
pub const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Kind(String);

macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $make:ident = $name:literal;)+) => {
        impl Kind {
            $($(#[doc = $doc])+ #[must_use] pub fn $make() -> Self { Self($name.to_owned()) })+

            /// The kinds that are one word and one dot; beside them the families of [`Kind::FAMILIES`].
            pub const FIXED: &'static [&'static str] = &[$($name,)+];
        }
    };
}

kinds! {
    /// A plan was made.
    run_planned = "run.planned";
    /// A policy was refused.
    run_refused = "run.refused";
    /// The payload was let go.
    run_started = "run.started";
    /// An attempt was stopped.
    run_violation = "run.violation";
    /// Usage passed a threshold.
    run_threshold = "run.threshold";
    /// The run is over.
    run_ended = "run.ended";
    /// The run was ended by us before *go*, or by our own failure.
    run_aborted = "run.aborted";
    /// A program of a live sandbox is over.
    live_exec = "live.exec";
    /// A context of a live sandbox was given code.
    live_code = "live.code";
    /// The end of a live sandbox is moved.
    live_timeout = "live.timeout";
    /// A live sandbox is over.
    live_ended = "live.ended";
    /// A person was asked about a destination, and what came of it.
    egress_asked = "egress.asked";
    /// `fumehood learn`: what was reached without a rule, or would have been.
    egress_learned = "egress.learned";
    /// Other rules for the broker of a sandbox that runs: asked for, then taken or refused.
    egress_rules = "egress.rules";
    /// The broker stopped something.
    egress_denied = "egress.denied";
    /// The broker ended before its run.
    egress_ended = "egress.ended";
    /// A request to the server changed something, or tried to.
    server_request = "server.request";
    /// Changes were taken over into a workspace.
    workspace_applied = "workspace.applied";
    /// Changes were thrown away.
    workspace_discarded = "workspace.discarded";
    /// Leftovers of dead runs were removed.
    gc = "gc";
    /// A torn last line was cut off; written by the log itself.
    audit_recovered = "audit.recovered";
}

impl Kind {
    /// Families whose members are named by their own rooms.
    pub const FAMILIES: &'static [&'static str] = &["tool.", "egress.", "approval."];

    /// A kind by name; `None` for one that is not of the contract.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let word = |rest: &str| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        let known = Self::FIXED.contains(&name)
            || Self::FAMILIES.iter().any(|family| name.strip_prefix(family).is_some_and(word));
        known.then(|| Self(name.to_owned()))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One event, as written.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Event {
    /// Its number, from 1.
    pub seq: u64,
    /// When, RFC 3339 in UTC.
    pub time: String,
    /// The run; empty for events of no run.
    pub run: String,
    /// What it is about.
    pub kind: String,
    /// What is said; redacted, escaped, bounded.
    pub body: Value,
    /// The hash of the event before.
    pub prev: String,
    /// SHA-256 over the canonical form of all the above.
    pub hash: String,
}

/// Why a line is no event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAnEvent {
    /// No JSON object, or fields missing, of the wrong type, or too many.
    Shape,
    /// Spelled otherwise than we spell it.
    Spelling,
    /// Its hash is not that of its content.
    Hash,
}

/// An event before it has its hash.
#[derive(Debug)]
pub(super) struct Unsealed<'a> {
    pub(super) seq: u64,
    pub(super) time: &'a str,
    pub(super) run: &'a str,
    pub(super) kind: &'a str,
    /// The canonical spelling of the body.
    pub(super) body: &'a str,
    pub(super) prev: &'a str,
}

impl Unsealed<'_> {
    /// The line (with its end) and the hash. Keys are in canonical order by construction.
    pub(super) fn seal(&self) -> (String, String) {
        let hash = sha256_hex(self.spell(None).as_bytes());
        let mut line = self.spell(Some(&hash));
        line.push('\n');
        (line, hash)
    }

    fn spell(&self, hash: Option<&str>) -> String {
        let mut out = String::with_capacity(self.body.len() + 320);
        out.push_str("{\"body\":");
        out.push_str(self.body);
        for (key, text) in
            [("hash", hash), ("kind", Some(self.kind)), ("prev", Some(self.prev)), ("run", Some(self.run))]
        {
            let Some(text) = text else { continue };
            out.push_str(",\"");
            out.push_str(key);
            out.push_str("\":");
            write_text(&mut out, text);
        }
        out.push_str(",\"seq\":");
        out.push_str(&self.seq.to_string());
        out.push_str(",\"time\":");
        write_text(&mut out, self.time);
        out.push('}');
        out
    }
}

impl Event {
    /// Reads a line (without its end) and checks its spelling and its own hash.
    ///
    /// # Errors
    /// [`NotAnEvent`]: the first of shape, spelling, hash that is wrong.
    pub fn parse(line: &[u8]) -> Result<Self, NotAnEvent> {
        let event = Self::parse_unchecked(line)?;
        let body = canonical(&event.body);
        let unsealed = Unsealed {
            seq: event.seq,
            time: &event.time,
            run: &event.run,
            kind: &event.kind,
            body: &body,
            prev: &event.prev,
        };
        if unsealed.spell(Some(&event.hash)).as_bytes() != line {
            return Err(NotAnEvent::Spelling);
        }
        if sha256_hex(unsealed.spell(None).as_bytes()) != event.hash {
            return Err(NotAnEvent::Hash);
        }
        Ok(event)
    }

    /// Reads a line without checking its hash.
    pub(super) fn parse_unchecked(line: &[u8]) -> Result<Self, NotAnEvent> {
        let Ok(Value::Object(mut fields)) = serde_json::from_slice(line) else { return Err(NotAnEvent::Shape) };
        let event = take_event(&mut fields).ok_or(NotAnEvent::Shape)?;
        if fields.is_empty() { Ok(event) } else { Err(NotAnEvent::Shape) }
    }
}

fn take_event(fields: &mut Map<String, Value>) -> Option<Event> {
    let seq = fields.remove("seq")?.as_u64()?;
    let body = fields.remove("body")?;
    let mut text = |key| match fields.remove(key) {
        Some(Value::String(text)) => Some(text),
        Some(_) | None => None,
    };
    Some(Event {
        seq,
        time: text("time")?,
        run: text("run")?,
        kind: text("kind")?,
        body,
        prev: text("prev")?,
        hash: text("hash")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> String {
        Unsealed { seq: 7, time: "2026-11-22T01:30:45Z", run: "r", kind: "gc", body: "{\"a\":1}", prev: GENESIS }
            .seal()
            .0
    }

    #[test]
    fn a_sealed_event_reads_back_and_its_spelling_is_canonical() {
        let line = line();
        let event = Event::parse(line.trim_end().as_bytes()).unwrap();
        assert_eq!((event.seq, event.kind.as_str()), (7, "gc"));
        assert_eq!(canonical(&serde_json::from_str(&line).unwrap()), line.trim_end());
    }

    #[test]
    fn any_change_of_a_byte_is_seen() {
        let line = line();
        let line = line.trim_end().as_bytes();
        for at in 0..line.len() {
            let mut edited = line.to_vec();
            edited[at] ^= 1;
            assert!(Event::parse(&edited).is_err(), "byte {at}");
        }
        let spaced = String::from_utf8(line.to_vec()).unwrap().replace("\"seq\":7", "\"seq\": 7");
        assert_eq!(Event::parse(spaced.as_bytes()), Err(NotAnEvent::Spelling));
        let twice = String::from_utf8(line.to_vec()).unwrap().replace("\"seq\":7", "\"seq\":6,\"seq\":7");
        assert_eq!(Event::parse(twice.as_bytes()), Err(NotAnEvent::Spelling));
    }

    #[test]
    fn kinds_are_a_closed_list_with_three_open_families() {
        assert!(Kind::parse("run.started").is_some() && Kind::parse("tool.denied").is_some());
        for bad in ["run.hacked", "tool.", "tool.\u{1b}", "toolx", "", "Gc"] {
            assert!(Kind::parse(bad).is_none(), "{bad}");
        }
    }
}
