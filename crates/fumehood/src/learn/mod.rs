//! What a program needs of the network, learned from a run of it: its broker lets every public name through and says what it
//! was used for; nothing else of the policy is weaker. A proposal comes of it, which nobody obeys before it is written down.
//!
//! # Promises
//! Never reached: addresses that are private, loopback, link-local or of a cloud's metadata, what `net.deny` names, addresses that
//! no name was looked up for. No secret is put into a request. Everything that was let through without a rule is in the audit log.
//! # Does not promise
//! That the program sends nothing away meanwhile: no rule of names holds while it is learned what it needs.

mod document;
mod proposal;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use policy::report::{Violation, Warning};
use policy::value::Net;
use policy::{ClauseId, Loaded};
use sandbox::audit::{Kind, Log, Options};
use sandbox::fault::Fault;
use sandbox::state::{Places, State};
use sandbox::{AllowedAccess, Asker, Environment, Error, Finished, PolicyLayer, Question, Reply};
use serde_json::json;

use crate::ui::Failure;
use document::Base;
pub(crate) use proposal::Proposal;

/// Said before the run, in its report and in the log.
pub(crate) const NOT_LIMITED: &str =
    "learning: every public host may be reached, so this run is not limited by name; no secret is put into a request";

/// A name that is nobody's (RFC 6761). Its rule gives the sandbox sockets for ports that a program may try with other names.
const NOBODY: &str = "**.learn.invalid";
/// Ports that are heard beside those on which a person would be asked: other HTTP.
const PORTS: [u16; 2] = [8080, 8443];
/// Most destinations that are kept; of more the program is refused.
const MAX_DESTINATIONS: usize = 1000;

/// What is learned, and from whom it is asked: the asker of a run that answers by itself.
#[derive(Debug)]
pub struct Learner {
    state: Places,
    /// The layers of the caller, without ours.
    given: Vec<PolicyLayer>,
    /// Their rules.
    rules: Net,
    /// Their document, as it was before the run: what runs may be able to write it.
    base: Base,
    /// `--write`
    write: Option<PathBuf>,
    heard: Mutex<Heard>,
}

/// What was heard of the run.
#[derive(Debug, Default)]
struct Heard {
    asked: BTreeSet<(String, u16)>,
    passed: BTreeSet<AllowedAccess>,
}

impl Learner {
    /// For the policy that the caller gave.
    ///
    /// # Errors
    /// 126: it has secrets, or a proxy. 125: its document cannot be added to.
    pub(crate) fn new(
        given: Vec<PolicyLayer>,
        loaded: Loaded,
        environment: &Environment,
        write: Option<PathBuf>,
    ) -> Result<Self, Failure> {
        if let Some(name) = loaded.policy.secrets.keys().next() {
            return Err(Error::Refused(vec![Fault {
                id: "learn/secrets",
                what: format!("`secrets.{name}` cannot be used in a run that is not limited by name"),
                place: "secrets".to_owned(),
                why: "what comes back for a secret could be sent to any host".to_owned(),
                fix: "learn without the `secrets` table, and write it into the policy that comes of it".to_owned(),
            }])
            .into());
        }
        if loaded.policy.net.proxy.is_some() {
            return Err(Error::Refused(vec![Fault {
                id: "learn/proxy",
                what: "`net.proxy` cannot be used in a run that is not limited by name".to_owned(),
                place: "net.proxy".to_owned(),
                why: "it resolves names itself, and whether one leads to a private address is not seen here".to_owned(),
                fix: "learn without `net.proxy`, and write it into the policy that comes of it".to_owned(),
            }])
            .into());
        }
        let base = Base::read(&given, environment)?;
        let (state, rules) = (environment.state.clone(), loaded.policy.net);
        Ok(Self { state, given, rules, base, write, heard: Mutex::default() })
    }

    /// The layers by which it is learned.
    pub(crate) fn layers(&self) -> Vec<PolicyLayer> {
        let set = |text: &str| PolicyLayer::Set(text.to_owned());
        let port = |port: u16| PolicyLayer::Flag { name: "--allow-host".to_owned(), value: format!("{NOBODY}:{port}") };
        let ours = [set("net.mode=allow"), set("net.unknown=ask")].into_iter().chain(PORTS.map(port));
        self.given.iter().cloned().chain(ours).collect()
    }

    /// Written down before anything is started.
    ///
    /// # Errors
    /// The log cannot be written: nothing is learned then.
    pub(crate) fn begin(&self) -> Result<(), Failure> {
        let failed = |fault: Fault| Failure::own(fault);
        let state = State::open(&self.state).map_err(|error| failed(error.fault()))?;
        let log = Log::open(&state, None, Options::default()).map_err(|error| failed(error.fault()))?;
        let body = json!({ "state": "begins", "what": NOT_LIMITED });
        log.append("", &Kind::egress_learned(), &body).map_err(|error| failed(error.fault()))?;
        Ok(())
    }

    /// What comes of a run that has ended; its report says that it was not limited.
    ///
    /// # Errors
    /// What was let through cannot be written down, or the proposal cannot be made.
    pub(crate) fn end(&self, finished: &mut Finished, environment: &Environment) -> Result<Proposal, Failure> {
        let what = NOT_LIMITED.to_owned();
        finished.report.warnings.push(Warning { clause: ClauseId::NetUnknown, what });
        let mut heard = self.heard();
        let Heard { asked, passed } = &mut *heard;
        let is_stopped = |(host, port): &(String, u16)| leads_inside(&finished.report.violations, host, *port);
        asked.retain(|to| passed.iter().any(|one| one.host == to.0 && one.port == to.1) || !is_stopped(to));
        let proposal = Proposal::of(asked, passed, &self.rules);
        drop(heard);
        self.record(&finished.report.run, "ended", &proposal.to_json())
            .ok_or_else(|| Failure::own(unwritten(&finished.report.run)))?;
        document::write(proposal, &self.base, self.write.as_deref(), environment)
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, run: &str, state: &str, what: &serde_json::Value) -> Option<()> {
        let open = State::open(&self.state).ok()?;
        let log = Log::open(&open, None, Options::default()).ok()?;
        let body = json!({ "state": state, "what": what });
        log.append(run, &Kind::egress_learned(), &body).ok().map(drop)
    }

    /// Whether it may be reached: what is not written down is not done.
    fn answer(&self, question: &Question) -> bool {
        // What the policy itself asks about is for a person.
        if question.request.is_some() {
            return false;
        }
        let mut heard = self.heard();
        let to = (question.host.clone(), question.port);
        if heard.asked.contains(&to) {
            return true;
        }
        let what = json!({ "host": question.host, "port": question.port });
        let room = heard.asked.len() < MAX_DESTINATIONS;
        let may = room && self.record(&question.run, "let through", &what).is_some();
        if may {
            heard.asked.insert(to);
        }
        may
    }
}

impl Asker for Learner {
    fn ask(&self, question: Question, reply: Reply) {
        reply(self.answer(&question));
    }

    fn observes(&self) -> bool {
        true
    }

    fn passed(&self, passed: AllowedAccess) {
        // The broker tells no more than it has room for.
        self.heard().passed.insert(passed);
    }
}

/// Whether it was stopped for where it really leads: a rule that names it would not lead there, either.
fn leads_inside(stopped: &[Violation], host: &str, port: u16) -> bool {
    let what = format!("connecting to {host}:{port}");
    stopped.iter().any(|one| one.what == what && ["net.allow/inside", "net.deny/denied"].contains(&one.id.as_str()))
}

fn unwritten(run: &str) -> Fault {
    Fault {
        id: "learn/not-recorded",
        what: format!("what run {run} reached is not in the audit log"),
        place: "the audit log".to_owned(),
        why: "it could not be written".to_owned(),
        fix: "make room, and learn again".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use policy::report::DetectedBy;

    use super::*;

    #[test]
    fn only_what_was_stopped_for_where_it_leads_is_left_out() {
        let stopped = |id: &str, what: &str| Violation {
            id: id.to_owned(),
            clause: ClauseId::NetAllow,
            what: what.to_owned(),
            why: String::new(),
            instead: String::new(),
            count: 1,
            seen: DetectedBy::Broker,
            program: None,
        };
        let all = [
            stopped("net.allow/inside", "connecting to priv.test:80"),
            stopped("net.connections/full", "connecting to busy.test:80"),
        ];
        assert!(leads_inside(&all, "priv.test", 80));
        for (host, port) in [("priv.test", 443), ("xpriv.test", 80), ("busy.test", 80)] {
            assert!(!leads_inside(&all, host, port), "{host}:{port}");
        }
    }
}
