//! What the engine is told: denials by kind with their counts, usage, questions.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};

use egress::denial::{Reason, To};
use egress::wire::{Denied, FromBroker, MAX_UNREACHED, Usage};
use tokio::sync::Notify;

/// Most kinds of denials that are told apart; what comes after is counted together by its id.
const MAX_KINDS: usize = 512;
/// Most words (what was tried, and why not) of one id, host and port that are told apart: a program chooses methods and paths.
const MAX_WORDS: usize = 16;
/// The host of what is counted together.
const OTHERS: &str = "others";

/// What is one record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct DenialKind {
    id: String,
    host: String,
    port: u16,
    what: String,
    why: String,
}

impl DenialKind {
    fn of(record: &Denied) -> Self {
        let Denied { id, clause: _, what, why, instead: _, host, port, count: _ } = record;
        let [id, host, what, why] = [id, host, what, why].map(String::clone);
        Self { id, host, port: *port, what, why }
    }

    /// Whether it is of the same id, host and port.
    fn is_beside(&self, other: &Self) -> bool {
        (&self.id, &self.host, self.port) == (&other.id, &other.host, other.port)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Records {
    kinds: RefCell<HashMap<DenialKind, CountedDenial>>,
    /// Frames that are to be said at once.
    fresh: RefCell<Vec<FromBroker>>,
    said: RefCell<Usage>,
    /// Hosts that could not be reached outside, of which it was told.
    unreached: RefCell<BTreeSet<String>>,
    /// Somebody added something.
    pub(crate) more: Notify,
}

#[derive(Debug)]
struct CountedDenial {
    record: Denied,
    said: u64,
}

impl Records {
    /// Adds a denial: the first of its kind is said at once.
    pub(crate) fn denied(&self, reason: &Reason, to: &To, port: u16) -> Denied {
        self.add(reason, (to, port), reason.record(to, port))
    }

    /// The same of a datagram.
    pub(crate) fn denied_datagram(&self, reason: &Reason, to: &To, port: u16) -> Denied {
        self.add(reason, (to, port), reason.record_of_datagram(to, port))
    }

    fn add(&self, reason: &Reason, (to, port): (&To, u16), record: Denied) -> Denied {
        let mut kinds = self.kinds.borrow_mut();
        // As the engine tells them apart, which hears them so.
        let mut told = Denied { count: 0, ..record.clone() }.bounded();
        let kind = DenialKind::of(&told);
        if *reason == Reason::Rate {
            // Names that come without end are one kind, whatever they are.
            (told.host, told.port) = (OTHERS.to_owned(), 0);
        } else if !kinds.contains_key(&kind) && kinds.keys().filter(|known| known.is_beside(&kind)).count() >= MAX_WORDS
        {
            let place = if port == 0 { to.to_string() } else { to.at(port) };
            told.what = format!("others at {place}");
            told.why = format!("{MAX_WORDS} of this host and port are told one by one");
            told = told.bounded();
        }
        if kinds.len() >= MAX_KINDS && !kinds.contains_key(&DenialKind::of(&told)) {
            (told.host, told.port) = (OTHERS.to_owned(), 0);
            told.what = "others of this kind".to_owned();
            told.why = format!("{MAX_KINDS} are told one by one");
        }
        let kind = kinds.entry(DenialKind::of(&told)).or_insert(CountedDenial { record: told, said: 0 });
        kind.record.count = kind.record.count.saturating_add(1);
        if kind.said == 0 {
            kind.said = 1;
            self.fresh.borrow_mut().push(FromBroker::Denied(kind.record.clone()).bounded());
            self.more.notify_one();
        }
        record
    }

    /// What may be reached could not be, outside: said once for each host, as far as there is room.
    pub(crate) fn unreached(&self, to: &To, port: u16, why: &str) {
        let (host, mut told) = (to.to_string(), self.unreached.borrow_mut());
        if told.len() < MAX_UNREACHED && told.insert(host.clone()) {
            // Its own name stands before it.
            let why = why.strip_prefix(&host).map_or(why, str::trim_start);
            let why = why.strip_prefix("cannot be reached: ").unwrap_or(why).to_owned();
            self.say(FromBroker::Unreached { host, port, why });
        }
    }

    /// Says this as soon as it can be.
    pub(crate) fn say(&self, frame: FromBroker) {
        self.fresh.borrow_mut().push(frame.bounded());
        self.more.notify_one();
    }

    /// What is to be said at once.
    pub(crate) fn fresh(&self) -> Vec<FromBroker> {
        self.fresh.borrow_mut().drain(..).collect()
    }

    /// What is said now and then, and at the end: counts that grew, usage that changed.
    pub(crate) fn counts(&self, usage: Usage) -> Vec<FromBroker> {
        let mut frames = self.fresh();
        let mut grown = Vec::new();
        for kind in self.kinds.borrow_mut().values_mut().filter(|kind| kind.record.count > kind.said) {
            kind.said = kind.record.count;
            grown.push(kind.record.clone());
        }
        // The order of a hash table is nobody's.
        let place = |record: &Denied| {
            (record.id.clone(), record.host.clone(), record.port, record.why.clone(), record.what.clone())
        };
        grown.sort_by_cached_key(place);
        frames.extend(grown.into_iter().map(|record| FromBroker::Denied(record).bounded()));
        if self.said.replace(usage) != usage {
            frames.push(FromBroker::Usage(usage));
        }
        frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> To {
        To::Name(text.to_owned())
    }

    fn counts(frames: &[FromBroker]) -> Vec<(String, u64)> {
        let denied = |frame: &FromBroker| {
            let FromBroker::Denied(denied) = frame else { return None };
            Some((denied.host.clone(), denied.count))
        };
        frames.iter().filter_map(denied).collect()
    }

    #[test]
    fn one_record_for_each_kind_with_a_count() {
        let records = Records::default();
        for _ in 0..1000 {
            records.denied(&Reason::UnknownName, &name("a.example"), 0);
        }
        records.denied(&Reason::UnknownName, &name("a.example"), 443);
        assert_eq!(counts(&records.fresh()), [("a.example".to_owned(), 1), ("a.example".to_owned(), 1)]);
        assert_eq!(counts(&records.counts(Usage::default())), [("a.example".to_owned(), 1000)]);
        assert_eq!(records.counts(Usage::default()), []);
        let usage = Usage { sent: 1, ..Usage::default() };
        assert_eq!(records.counts(usage), [FromBroker::Usage(usage)]);
    }

    #[test]
    fn what_was_tried_otherwise_is_a_record_of_its_own_up_to_a_bound() {
        let (records, to) = (Records::default(), name("web.example"));
        for method in ["PUT", "DELETE", "DELETE", "DELETE"] {
            records.denied(&Reason::Method(method.to_owned()), &to, 80);
        }
        let told = |frames: Vec<FromBroker>| -> Vec<(String, String, u64)> {
            let words =
                |frame| if let FromBroker::Denied(one) = frame { Some((one.what, one.why, one.count)) } else { None };
            frames.into_iter().filter_map(words).collect()
        };
        let words = |method: &str, count| {
            let what = format!("a request {method} to web.example:80");
            (what, format!("no rule for it has the method {method}"), count)
        };
        assert_eq!(told(records.fresh()), [words("PUT", 1), words("DELETE", 1)]);
        assert_eq!(told(records.counts(Usage::default())), [words("DELETE", 3)]);
        for number in 0..100 {
            records.denied(&Reason::Path(format!("/{number}")), &to, 80);
            // The engine hears no more of a text than this, and would take these for one.
            records.denied(&Reason::Path(format!("/{}{number}", "x".repeat(600))), &name("long.example"), 80);
        }
        let first = told(records.fresh());
        assert_eq!(first.len(), MAX_WORDS + 1 + 1, "{first:?}");
        let others =
            ("others at web.example:80".to_owned(), "16 of this host and port are told one by one".to_owned(), 84);
        let counted = told(records.counts(Usage::default()));
        assert!(
            counted.len() == 2 && counted.contains(&others) && counted.iter().any(|one| one.2 == 100),
            "{counted:?}"
        );
    }

    #[test]
    fn names_without_end_are_one_kind() {
        let records = Records::default();
        for number in 0..300 {
            records.denied(&Reason::Rate, &name(&format!("n{number}.example")), 0);
        }
        assert_eq!(counts(&records.fresh()), [("others".to_owned(), 1)]);
        assert_eq!(counts(&records.counts(Usage::default())), [("others".to_owned(), 300)]);
    }

    #[test]
    fn a_host_that_is_not_reached_is_told_once_and_of_some() {
        let records = Records::default();
        for number in 0..MAX_UNREACHED + 5 {
            let to = name(&format!("n{number}.example"));
            records.unreached(&to, 0, &format!("{to} cannot be reached: no way"));
            records.unreached(&to, 443, "again");
        }
        let fresh = records.fresh();
        assert_eq!(fresh.len(), MAX_UNREACHED);
        let (host, why) = ("n0.example".to_owned(), "no way".to_owned());
        assert_eq!(fresh.first(), Some(&FromBroker::Unreached { host, port: 0, why }));
    }

    #[test]
    fn kinds_have_an_end() {
        let records = Records::default();
        for number in 0..MAX_KINDS + 100 {
            records.denied(&Reason::UnknownName, &name(&format!("n{number}.example")), 0);
        }
        assert_eq!(records.fresh().len(), MAX_KINDS + 1);
        assert_eq!(counts(&records.counts(Usage::default())), [("others".to_owned(), 100)]);
    }
}
