//! Questions of a broker, on their way to a person and back. It reads hostile bytes: what it asks is a name and a port, or is not
//! passed on, and no more wait than a few.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use egress::host::{AuthorityHost, authority};
use egress::wire::{self, AllowedTraffic, Head};
use policy::Plan;

use super::rules::Rules;
use crate::run::asker::{AllowedAccess, Asker, Question, RequestHead};

/// Most questions that wait at once, as the broker has it.
const MAX_WAITING: usize = 64;

/// What is asked of whom.
#[derive(Debug)]
pub(super) struct Questions {
    asker: Option<Arc<dyn Asker>>,
    run: String,
    bound_to: BoundTo,
    waiting: Arc<AtomicUsize>,
    /// Something was asked.
    asked: AtomicBool,
}

impl Questions {
    pub(super) fn new(plan: &Plan, run: &str, asker: Option<Arc<dyn Asker>>) -> Self {
        let asker = asker.filter(|_| plan.policy.net.asks());
        let policy = format!("{} {}", plan.policy.name, plan.policy_digest());
        let bound_to = BoundTo { policy, started: wire::digest(&plan.policy.net.document()), now: None };
        Self { asker, run: run.to_owned(), bound_to, waiting: Arc::default(), asked: AtomicBool::new(false) }
    }

    /// The broker judges by the rules of this digest from now on, and asks by them.
    pub(super) fn judged_by(&mut self, digest: &str) {
        self.bound_to.judged_by(digest);
    }

    /// Passes a question on; its answer goes the way of `rules`. `false` where it is not passed on, which is no.
    pub(super) fn ask(&self, (id, host, port): (u64, &str, u16), head: Option<&Head>, rules: &Rules) -> bool {
        let plain = |head: &Head| head.path.starts_with('/') && is_request(&head.method, &head.path);
        let formed = is_name(host) && head.is_none_or(plain);
        let Some(asker) = self.asker.as_ref().filter(|_| formed) else { return false };
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= MAX_WAITING {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        let waits = Waits(Arc::clone(&self.waiting));
        self.asked.store(true, Ordering::Relaxed);
        let (run, policy, host, rules) = (self.run.clone(), self.bound_to.spelled(), host.to_owned(), rules.clone());
        let reply = move |allow| {
            drop(waits);
            rules.answer(id, allow);
        };
        let request = head.map(|head| {
            let Head { method, path, websocket } = head.clone();
            RequestHead { method, path, websocket }
        });
        asker.ask(Question { run, policy, host, port, request }, Box::new(reply));
        true
    }
}

impl Questions {
    /// No answer is of use any more.
    pub(super) fn end(&self) {
        if self.asked.load(Ordering::Relaxed) {
            self.asker.iter().for_each(|asker| asker.ended(&self.run));
        }
    }

    /// Whether what is let through is to be told.
    pub(super) fn observes(&self) -> bool {
        self.asker.as_ref().is_some_and(|asker| asker.observes())
    }

    /// Passes on what was let through; `false` where nobody asked for it, or it is of no form.
    pub(super) fn passed(&self, seen: &AllowedTraffic) -> bool {
        let Some(asker) = self.asker.as_ref().filter(|asker| asker.observes()) else { return false };
        let named = is_name(&seen.host) || seen.host.parse::<std::net::IpAddr>().is_ok();
        let request = match (&seen.method, &seen.path) {
            (None, None) => Some(None),
            (Some(method), Some(path)) => {
                let whole = path.is_empty() || path.starts_with('/') || path == "*";
                (whole && is_request(method, path)).then(|| Some((method.clone(), path.clone())))
            }
            (Some(_), None) | (None, Some(_)) => None,
        };
        let Some(request) = request.filter(|_| named) else { return false };
        asker.passed(AllowedAccess { host: seen.host.clone(), port: seen.port, request });
        true
    }
}

/// What answers are bound to that are remembered: the policy of the run, and its rules where others hold by now.
#[derive(Debug)]
struct BoundTo {
    policy: String,
    /// The digest of the rules that it was started with.
    started: String,
    /// The digest of others.
    now: Option<String>,
}

impl BoundTo {
    fn judged_by(&mut self, digest: &str) {
        self.now = (digest != self.started).then(|| digest.to_owned());
    }

    fn spelled(&self) -> String {
        self.now.as_ref().map_or_else(|| self.policy.clone(), |rules| format!("{} {rules}", self.policy))
    }
}

/// A name in its one form.
fn is_name(host: &str) -> bool {
    authority(host).is_some_and(|found| found.port.is_none() && found.host == AuthorityHost::Name(host.to_owned()))
}

/// A method and a path of visible characters.
fn is_request(method: &str, path: &str) -> bool {
    is_token(method) && path.bytes().all(|byte| byte.is_ascii_graphic())
}

/// A token of HTTP (RFC 9110).
fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// A question that waits, until it is dropped.
#[derive(Debug)]
struct Waits(Arc<AtomicUsize>);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_bound_to_the_rules_that_hold_when_somebody_is_asked() {
        let mut bound = BoundTo { policy: "mine abc".to_owned(), started: "first".to_owned(), now: None };
        assert_eq!(bound.spelled(), "mine abc");
        bound.judged_by("second");
        assert_eq!(bound.spelled(), "mine abc second");
        bound.judged_by("first");
        assert_eq!(bound.spelled(), "mine abc", "the same rules again are the same policy");
    }
}
