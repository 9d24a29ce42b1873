//! What a broker said of a run: one record for each kind of denial, and what was used. Bounded, whatever it says.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use egress::wire::{Denied, FromBroker, MAX_UNREACHED, Usage};
use policy::report::{DetectedBy, NetUsage};
use policy::{ClauseId, Policy, Violation};

use crate::fault::show_text;

/// Most kinds of denial that are kept; of more only the number is.
const KINDS: usize = 200;
/// The id of connections of which the program is told.
const UNKNOWN_ADDRESS: &str = "net.allow/unknown-address";
/// The program, where it could not be told.
const UNKNOWN: &str = "unknown";

/// What came of the network.
#[derive(Debug, Default)]
pub(in crate::run) struct Summary {
    denied: Vec<Denied>,
    /// Kinds for which there was no room.
    more: u64,
    usage: Usage,
    /// How often each secret was put into a request.
    used: BTreeMap<String, u64>,
    /// Hosts that may be reached and could not be, outside, and why.
    unreached: BTreeMap<String, String>,
    /// Programs that had a connection to such an address and port.
    programs: BTreeMap<(String, u16), String>,
    /// The digest of the rules that took the place of the plan's.
    pub(in crate::run) rules: Option<String>,
    /// Why the broker ended before the run did.
    pub(in crate::run) lost: Option<String>,
}

impl Summary {
    /// Takes a frame in; the last word counts. A denial of a kind that was not told yet is handed back.
    pub(super) fn hear(&mut self, frame: FromBroker) -> Option<Violation> {
        match frame {
            FromBroker::Denied(denied) => return self.deny(denied),
            FromBroker::Usage(usage) => self.usage = usage,
            FromBroker::Used { secrets } => self.used = secrets,
            FromBroker::Failed { what, why } => {
                self.lost.get_or_insert(format!("{}: {}", show_text(&what), show_text(&why)));
            }
            FromBroker::Unreached { host, port: _, why } => {
                if self.unreached.len() < MAX_UNREACHED {
                    self.unreached.entry(show_text(&host)).or_insert_with(|| show_text(&why));
                }
            }
            // What was asked of it is heard by its keeper; nothing can be asked of a person.
            FromBroker::Alive {}
            | FromBroker::Told {}
            | FromBroker::Holds { .. }
            | FromBroker::Ready { .. }
            | FromBroker::Refused { .. }
            | FromBroker::Seen(_)
            | FromBroker::Whose { .. }
            | FromBroker::Ask { .. } => {}
        }
        None
    }

    fn deny(&mut self, denied: Denied) -> Option<Violation> {
        // Words and all: a count stands beside what happened so often.
        let is_same = |known: &Denied| {
            (&known.id, &known.host, known.port, &known.what, &known.why)
                == (&denied.id, &denied.host, denied.port, &denied.what, &denied.why)
        };
        let known = self.denied.iter().position(is_same);
        let room = self.denied.len() < KINDS;
        match known.and_then(|at| self.denied.get_mut(at)) {
            Some(known) => *known = denied,
            None if room => {
                let first = self.violation(&denied);
                self.denied.push(denied);
                return Some(first);
            }
            None => self.more = self.more.saturating_add(1),
        }
        None
    }

    fn violation(&self, denied: &Denied) -> Violation {
        Violation {
            id: show_text(&denied.id),
            clause: ClauseId::from_path(&denied.clause).unwrap_or(ClauseId::NetAllow),
            what: show_text(&denied.what),
            why: show_text(&denied.why),
            instead: show_text(&denied.instead),
            count: denied.count,
            seen: DetectedBy::Broker,
            program: self.program(denied),
        }
    }

    /// A program had a connection there that was stopped.
    pub(super) fn had(&mut self, to: SocketAddr, program: String) {
        self.programs.insert((to.ip().to_canonical().to_string(), to.port()), program);
    }

    /// The program that had it, where one is told.
    fn program(&self, denied: &Denied) -> Option<String> {
        let is_told = denied.id == UNKNOWN_ADDRESS && denied.port > 0;
        let known = || self.programs.get(&(denied.host.clone(), denied.port));
        is_told.then(|| known().map_or_else(|| UNKNOWN.to_owned(), |program| show_text(program)))
    }

    /// What was stopped, as the report has it.
    pub(in crate::run) fn violations(&self) -> Vec<Violation> {
        let more = (self.more > 0).then(|| Violation {
            id: "net/more".to_owned(),
            clause: ClauseId::NetAllow,
            what: "destinations of more kinds than are told one by one".to_owned(),
            why: format!("a report tells {KINDS}"),
            instead: "look at the first ones".to_owned(),
            count: self.more,
            seen: DetectedBy::Broker,
            program: None,
        });
        self.denied.iter().map(|denied| self.violation(denied)).chain(more).collect()
    }

    /// What is told of hosts that may be reached and could not be.
    pub(in crate::run) fn unreached(&self) -> impl Iterator<Item = String> {
        self.unreached.iter().map(|(host, why)| format!("`{host}` is allowed, and could not be reached outside: {why}"))
    }

    /// How often each secret of the policy was put into a request.
    pub(in crate::run) fn used(&self, policy: &Policy) -> BTreeMap<String, u64> {
        let one = |name: &String| (name.clone(), self.used.get(name).copied().unwrap_or(0));
        policy.secrets.keys().map(one).collect()
    }

    /// What was counted.
    pub(in crate::run) fn usage(&self) -> NetUsage {
        let Usage { sent, received, open: _, connections, lookups } = self.usage;
        let denied = self.denied.iter().fold(self.more, |sum, one| sum.saturating_add(one.count));
        NetUsage { sent, received, connections, lookups, denied }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(host: &str, count: u64) -> FromBroker {
        FromBroker::Denied(Denied {
            id: "net/not-allowed".to_owned(),
            clause: "net.allow".to_owned(),
            what: "look up\u{1b}[31m".to_owned(),
            why: "no rule".to_owned(),
            instead: "ask".to_owned(),
            host: host.to_owned(),
            port: 0,
            count,
        })
    }

    #[test]
    fn one_kind_is_one_record_with_its_last_count() {
        let mut summary = Summary::default();
        let first = summary.hear(denied("a.test", 1));
        assert!(first.is_some_and(|first| first.count == 1), "the first of a kind is told at once");
        assert_eq!(summary.hear(denied("a.test", 7)), None);
        assert!(summary.hear(denied("b.test", 1)).is_some());
        let FromBroker::Denied(one) = denied("a.test", 2) else { panic!() };
        let other = summary.hear(FromBroker::Denied(Denied { why: "no other rule".to_owned(), ..one }));
        assert_eq!(other.map(|other| other.why).as_deref(), Some("no other rule"), "its words are its own");
        let list = summary.violations();
        assert_eq!(list.iter().map(|one| one.count).collect::<Vec<_>>(), [7, 1, 2]);
        assert!(list.iter().all(|one| !one.what.contains('\u{1b}') && one.clause == ClauseId::NetAllow));
        let used = Usage { sent: 1, received: 2, open: 3, connections: 4, lookups: 5 };
        assert_eq!(summary.hear(FromBroker::Usage(used)), None);
        let expected = NetUsage { sent: 1, received: 2, connections: 4, lookups: 5, denied: 10 };
        assert_eq!(summary.usage(), expected);
    }

    #[test]
    fn a_host_that_could_not_be_reached_is_told_without_what_moves_a_cursor() {
        let mut summary = Summary::default();
        for number in 0..MAX_UNREACHED + 5 {
            let (host, why) = (format!("h{number:02}.test"), "no resolver\u{1b} answered".to_owned());
            assert_eq!(summary.hear(FromBroker::Unreached { host, port: 0, why }), None);
        }
        let told: Vec<String> = summary.unreached().collect();
        assert_eq!(told.len(), MAX_UNREACHED);
        let first = told.first().unwrap();
        assert!(first.starts_with("`h00.test` is allowed, and could not be reached outside: no resolver"), "{first}");
        assert!(!first.contains('\u{1b}') && summary.violations().is_empty(), "{first}");
    }

    #[test]
    fn a_broker_that_says_too_much_fills_no_memory() {
        let mut summary = Summary::default();
        let told = (0..KINDS + 50).filter(|number| summary.hear(denied(&format!("{number}.test"), 1)).is_some());
        assert_eq!(told.count(), KINDS);
        let list = summary.violations();
        assert_eq!((list.len(), list.last().unwrap().count), (KINDS + 1, 50));
    }
}
