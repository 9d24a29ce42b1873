//! Other rules for a sandbox that runs: judged as those of its plan were, then by its broker, which answers with their digest.
//! Rules that are refused change nothing. A broker that does not answer is ended, and the network inside with it: nobody knows
//! then by which rules it judges.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use egress::wire::{self, Scope, ToBroker};
use policy::Violation;
use policy::report::NetUsage;
use policy::value::{Net, NetMode, Policy};
use serde_json::Value;

use crate::error::Error;
use crate::fault::{Fault, show_text};
use crate::run::secret_marks::Marks;

/// How long a broker may take to judge by other rules.
const ANSWER: Duration = Duration::from_secs(10);
/// Most rules that wait for their answer at once.
const MAX_WAITING: usize = 16;

/// Called when all that was stopped so far has been said; dropped where nobody says it any more.
pub(in crate::run) struct Counted(Box<dyn FnOnce() + Send>);

impl std::fmt::Debug for Counted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Counted")
    }
}

/// What the keeper of a broker is asked.
#[derive(Debug)]
enum KeeperRequest {
    /// These rules from now on.
    Rules(Value, Sender<Result<(), String>>),
    /// A person answered this question.
    Answer(u64, bool),
    /// All that it has counted is to be said; whoever waits for that is told.
    Tell(Counted),
    /// It did not answer: it is to end.
    End,
}

/// By this the rules of a sandbox are replaced, from any thread.
#[derive(Clone, Debug)]
pub(in crate::run) struct Rules {
    asked: Sender<KeeperRequest>,
    wake: Arc<OwnedFd>,
    /// The policy that it was started under.
    policy: Arc<Policy>,
    /// By what the values of its secrets are known again.
    marks: Arc<Marks>,
    /// What its broker counted when it last said so.
    used: Arc<Mutex<NetUsage>>,
    /// What it stopped, as far as it said so.
    stopped: Arc<Mutex<Arc<[Violation]>>>,
    /// It has ended before the run.
    pub(super) lost: Arc<AtomicBool>,
}

/// The keeper's side.
#[derive(Debug)]
pub(super) struct Replacing {
    pub(super) wake: OwnedFd,
    asked: Receiver<KeeperRequest>,
    waiting: VecDeque<(String, Sender<Result<(), String>>)>,
    /// Who waits for counts, in the order in which they were asked for.
    counting: VecDeque<Counted>,
}

/// Both sides of it.
pub(super) fn sides(policy: &Policy, marks: Marks) -> Result<(Rules, Replacing), sys::error::Error> {
    let (ours, theirs) = sys::channel::pair()?;
    // One that is full wakes the other side already.
    sys::channel::set_nonblocking(&ours)?;
    let (sender, asked) = channel();
    let (used, stopped) = (Arc::default(), Arc::new(Mutex::new(Arc::from([]))));
    let (policy, marks) = (Arc::new(policy.clone()), Arc::new(marks));
    let rules = Rules { asked: sender, wake: Arc::new(ours), policy, marks, used, stopped, lost: Arc::default() };
    Ok((rules, Replacing { wake: theirs, asked, waiting: VecDeque::new(), counting: VecDeque::new() }))
}

impl Rules {
    /// Replaces them; the digest that the broker said of the new ones.
    pub(in crate::run) fn replace(&self, net: &Net) -> Result<String, Error> {
        let document = net.document();
        self.judge(net)?;
        let digest = wire::digest(&document);
        let (reply, answer) = channel();
        self.ask(KeeperRequest::Rules(document, reply));
        match answer.recv_timeout(ANSWER) {
            Ok(Ok(())) => Ok(digest),
            Ok(Err(why)) => Err(refused("net.allow", &why, OTHERS)),
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                self.ask(KeeperRequest::End);
                Err(super::failed("it did not say within 10 s that it judges by the new rules, and was ended"))
            }
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => Err(super::failed("it has ended")),
        }
    }

    /// What the broker counted when it last said so.
    pub(in crate::run) fn used(&self) -> NetUsage {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The broker counted.
    pub(super) fn told(&self, used: NetUsage) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = used;
    }

    /// Whether the broker that judges by them has ended.
    pub(in crate::run) fn are_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// The secret whose value stands in a text.
    pub(in crate::run) fn secret_in(&self, text: &[u8]) -> Option<&str> {
        self.marks.found_in(text)
    }

    /// What the broker stopped, as it last said.
    pub(in crate::run) fn violations(&self) -> Arc<[Violation]> {
        Arc::clone(&self.stopped.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The broker stopped something.
    pub(super) fn stopped(&self, list: Vec<Violation>) {
        *self.stopped.lock().unwrap_or_else(PoisonError::into_inner) = list.into();
    }

    /// Has the broker say all that it counted; then `done` is called.
    pub(in crate::run) fn count(&self, done: Box<dyn FnOnce() + Send>) {
        self.ask(KeeperRequest::Tell(Counted(done)));
    }

    /// The answer to a question of the broker.
    pub(super) fn answer(&self, id: u64, allow: bool) {
        self.ask(KeeperRequest::Answer(id, allow));
    }

    /// Whether these can be held where the others are: by the same backend, and with the sockets that are there.
    fn judge(&self, net: &Net) -> Result<(), Error> {
        if net.mode == NetMode::Loopback {
            let why = "its `lo` belongs to the broker";
            return Err(refused("net.mode", why, "`net.mode` can become `none`, which closes everything"));
        }
        if net.mode == NetMode::None {
            return Ok(());
        }
        if net.asks() && !self.policy.net.asks() {
            let why = "nobody is there who could be asked: `net.unknown = \"ask\"`, or a rule with `decision = \"ask\"`, must be so \
                       from the start";
            return Err(refused("net.unknown", why, OTHERS));
        }
        let policy = Policy { net: net.clone(), ..(*self.policy).clone() };
        if let Some(unmet) = backends::unmet_rules(&self.policy.net, &policy).first() {
            let clause = unmet.id.split('/').next().unwrap_or_default();
            return Err(refused(clause, &unmet.why, &unmet.fix));
        }
        egress::judge::not_built(net).first().map_or(Ok(()), |part| Err(refused(part.key, part.why, part.fix)))
    }

    fn ask(&self, asked: KeeperRequest) {
        // A broker that has ended hears nothing, and drops who waits for its answer.
        if self.asked.send(asked).is_ok() && sys::channel::send(&*self.wake, &[0]).is_err() {}
    }
}

impl Replacing {
    /// What to send of what was asked for; `None` where the broker is to end.
    pub(super) fn take_requests(&mut self) -> Option<Vec<ToBroker>> {
        let mut bytes = [0; 64];
        // What is wanted stands in the queue.
        drop(sys::channel::receive(&self.wake, &mut bytes, true));
        let mut fresh = Vec::new();
        while let Ok(asked) = self.asked.try_recv() {
            match asked {
                KeeperRequest::End => return None,
                // What is remembered is known to the store, which is asked each time.
                KeeperRequest::Answer(id, allow) => fresh.push(ToBroker::Answer { id, allow, scope: Scope::Once }),
                KeeperRequest::Tell(counted) => {
                    self.counting.push_back(counted);
                    fresh.push(ToBroker::Tell {});
                }
                KeeperRequest::Rules(_, reply) if self.waiting.len() >= MAX_WAITING => {
                    drop(reply.send(Err("too many others wait for its answer".to_owned())));
                }
                KeeperRequest::Rules(net, reply) => {
                    self.waiting.push_back((wire::digest(&net), reply));
                    fresh.push(ToBroker::Rules { net });
                }
            }
        }
        Some(fresh)
    }

    /// The broker judges by the rules of this digest; `false` where those are not the ones that it was given.
    pub(super) fn ready(&mut self, digest: &str) -> bool {
        let Some((expected, reply)) = self.waiting.pop_front() else { return false };
        if expected != digest {
            return false;
        }
        // Who asked may be gone.
        drop(reply.send(Ok(())));
        true
    }

    /// Whether somebody asked the broker for what it counted.
    pub(super) fn is_counted(&self) -> bool {
        !self.counting.is_empty()
    }

    /// It has said it.
    pub(super) fn counted(&mut self) {
        if let Some(Counted(done)) = self.counting.pop_front() {
            done();
        }
    }

    /// The broker did not take them; `false` where it was asked for nothing.
    pub(super) fn refused(&mut self, why: &str) -> bool {
        let Some((_, reply)) = self.waiting.pop_front() else { return false };
        drop(reply.send(Err(show_text(why))));
        true
    }
}

/// What helps where nothing nearer does.
const OTHERS: &str = "ask for rules that this sandbox can have, or create another one with them";

fn refused(clause: &str, why: &str, fix: &str) -> Error {
    Error::refused(Fault {
        id: "net/rules-refused",
        what: "the rules of the network are as they were".to_owned(),
        place: clause.to_owned(),
        why: why.to_owned(),
        fix: fix.to_owned(),
    })
}
