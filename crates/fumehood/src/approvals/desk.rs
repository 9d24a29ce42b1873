//! Where questions of a network are looked up in the store of approvals, parked, and written down.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use gateway::approvals::{ApprovalAnswer, ApprovalError, Approvals, Ask, DESTINATION, Parked, REQUEST, Settings};
use policy::tools::{Approval, ApprovalBy};
use sandbox::audit::{Kind, Log, Options};
use sandbox::state::{Places, State};
use sandbox::{Question, Reply, RequestHead};
use serde_json::{Value as Json, json};
use tokio::time::Instant;

/// How long a question waits: the broker denies after 30 s, and must not hear of an answer that the store took for good.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(29);
/// For so long the store is not asked again about what it answered at once.
const KNOWN: Duration = Duration::from_secs(1);
/// Most answers that are known so.
const MAX_KNOWN: usize = 256;

/// An answer that the store gave at once.
#[derive(Debug)]
struct KnownAnswer {
    allow: bool,
    /// The approval that answers.
    approval: String,
    /// How often it was given again since it was written down.
    again: u64,
}

/// What is open for all questions of one policy.
#[derive(Debug)]
struct Opened {
    state: State,
    log: Log,
    approvals: Approvals,
    /// What its approvals are bound to.
    policy: String,
}

/// Who asks, for the store, and how long that is so.
#[derive(Debug)]
struct KnownAgent {
    run: String,
    agent: String,
    until: Option<Instant>,
}

/// Where all questions come.
#[derive(Debug)]
pub(super) struct Desk {
    places: Places,
    opened: Option<Rc<Opened>>,
    known: Rc<RefCell<HashMap<Question, KnownAnswer>>>,
    agent: Option<KnownAgent>,
    /// The run that ended last: nobody is asked for it any more.
    ended: Option<String>,
}

impl Desk {
    pub(super) fn new(places: Places) -> Self {
        Self { places, opened: None, known: Rc::default(), agent: None, ended: None }
    }

    /// Gets a question answered, at once or when a person has; whether the store was asked.
    pub(super) fn take(&mut self, question: Question, reply: Reply) -> bool {
        if self.ended.as_ref() == Some(&question.run) {
            reply(false);
            return false;
        }
        let known = self.known.borrow_mut().get_mut(&question).map(|known| {
            known.again = known.again.saturating_add(1);
            known.allow
        });
        if let Some(allow) = known {
            reply(allow);
            return false;
        }
        match self.ask(&question) {
            Some(Asked::Waits(opened, parked)) => {
                tokio::task::spawn_local(
                    async move { reply(waited(&opened, &question, *parked).await.unwrap_or(false)) },
                );
            }
            Some(Asked::Answered { allow, approval, stands }) => {
                reply(allow);
                if stands {
                    self.know(question, allow, approval);
                }
            }
            // Without the store or the log nobody is asked; both are opened anew.
            None => {
                self.opened = None;
                reply(false);
            }
        }
        true
    }

    /// The network of this run is over.
    pub(super) fn end(&mut self, run: &str) {
        let of: Vec<Question> = self.known.borrow().keys().filter(|one| one.run == run).cloned().collect();
        for question in of {
            write_count(self.opened.as_deref(), &self.known, &question);
        }
        self.ended = Some(run.to_owned());
        if let Some(opened) = &self.opened {
            // What stays then ends with its time.
            drop(opened.approvals.withdraw(run));
        }
    }

    /// Parks a question, or finds its answer.
    fn ask(&mut self, question: &Question) -> Option<Asked> {
        let opened = self.open(&question.policy)?;
        let agent = self.agent(&opened.state, &question.run);
        let (tool, rule, reason) = match &question.request {
            None => (DESTINATION, "net.unknown", "no rule of `net` names this host"),
            Some(_) => (REQUEST, "net.allow", "a rule of `net` asks about this request"),
        };
        let args = arguments(question);
        let ask = Ask {
            tool: tool.to_owned(),
            server: None,
            hash: gate::json::hash(tool, &args),
            args,
            rule: rule.to_owned(),
            reason: reason.to_owned(),
            agent,
            session: question.run.clone(),
            approval: Approval::Never,
            by: ApprovalBy::Person,
        };
        let parked = match opened.approvals.ask(&ask) {
            Ok(parked) => parked,
            Err(ApprovalError::Store(_)) => return None,
            Err(
                ApprovalError::TooMany { .. }
                | ApprovalError::TooLarge { .. }
                | ApprovalError::DeniedBefore { .. }
                | ApprovalError::Cancelled
                | ApprovalError::Used,
            ) => return Some(Asked::Answered { allow: false, approval: String::new(), stands: true }),
        };
        match parked.known() {
            None => {
                opened.record(question, "asked", parked.id(), 1)?;
                Some(Asked::Waits(opened, Box::new(parked)))
            }
            // Where a remembered approval answers, nobody is asked.
            Some(answer) => {
                let (said, id) = spelled(answer);
                // What is not written down is not done.
                opened.record(question, said, id, 1)?;
                let stands = matches!(answer, ApprovalAnswer::Approved { remembered: Some(_), .. });
                Some(Asked::Answered { allow: answer.is_approved(), approval: id.to_owned(), stands })
            }
        }
    }

    /// The store and the log, opened once for all questions of a policy.
    fn open(&mut self, policy: &str) -> Option<Rc<Opened>> {
        if let Some(opened) = self.opened.as_ref().filter(|opened| opened.policy == policy) {
            return Some(Rc::clone(opened));
        }
        let state = State::open(&self.places).ok()?;
        let log = Log::open(&state, None, Options::default()).ok()?;
        let settings = Settings { patience: QUESTION_TIMEOUT, bound_to: policy.to_owned(), ..Settings::default() };
        let approvals = Approvals::open_with(state.path(), settings).ok()?;
        let opened = Rc::new(Opened { state, log, approvals, policy: policy.to_owned() });
        self.opened = Some(Rc::clone(&opened));
        Some(opened)
    }

    /// Answers the same for a second, and then writes down how often it did.
    fn know(&self, question: Question, allow: bool, approval: String) {
        if self.known.borrow().len() >= MAX_KNOWN {
            return;
        }
        self.known.borrow_mut().insert(question.clone(), KnownAnswer { allow, approval, again: 0 });
        let (known, opened) = (Rc::clone(&self.known), self.opened.clone());
        tokio::task::spawn_local(async move {
            tokio::time::sleep(KNOWN).await;
            write_count(opened.as_deref(), &known, &question);
        });
    }

    /// Who asks, for the store: places for questions and what is remembered are of one agent, and sandboxes of two keys are not
    /// one.
    fn agent(&mut self, state: &State, run: &str) -> String {
        let stands = |known: &&KnownAgent| known.run == run && known.until.is_none_or(|until| Instant::now() < until);
        if let Some(known) = self.agent.as_ref().filter(stands) {
            return known.agent.clone();
        }
        let living = live::Home::new(state).and_then(|home| home.list(false)).unwrap_or_default();
        let labels = living.into_iter().find(|info| info.run == run).map(|info| info.labels);
        let (agent, until) = match labels.as_ref().and_then(server::owner) {
            Some(owner) => (format!("sandbox of {owner}"), None),
            None => ("sandbox".to_owned(), Instant::now().checked_add(KNOWN)),
        };
        self.agent = Some(KnownAgent { run: run.to_owned(), agent: agent.clone(), until });
        agent
    }
}

/// What came of a question at once.
enum Asked {
    Waits(Rc<Opened>, Box<Parked>),
    Answered { allow: bool, approval: String, stands: bool },
}

impl Opened {
    fn record(&self, question: &Question, state: &str, approval: &str, count: u64) -> Option<()> {
        let mut body = arguments(question);
        let table = body.as_object_mut()?;
        table.extend([("state", state), ("approval", approval)].map(|(key, text)| (key.to_owned(), text.into())));
        if count > 1 {
            table.insert("count".to_owned(), count.into());
        }
        self.log.append(&question.run, &Kind::egress_asked(), &body).ok().map(drop)
    }
}

/// An answer is not known any more: how often it was given again is written down.
fn write_count(opened: Option<&Opened>, known: &RefCell<HashMap<Question, KnownAnswer>>, question: &Question) {
    let Some(found) = known.borrow_mut().remove(question).filter(|found| found.allow && found.again > 0) else {
        return;
    };
    // It was written down that it is allowed; only how often would be missing.
    let _written = opened.and_then(|opened| opened.record(question, "approved", &found.approval, found.again));
}

fn arguments(question: &Question) -> Json {
    match &question.request {
        None => json!({ "host": question.host, "port": question.port }),
        Some(RequestHead { method, path, websocket }) => {
            let mut args = json!({ "host": question.host, "port": question.port, "method": method, "path": path });
            // Who agrees to a request has not agreed to what goes through a WebSocket.
            if let Some(args) = args.as_object_mut().filter(|_| *websocket) {
                args.insert("websocket".to_owned(), json!(true));
            }
            args
        }
    }
}

fn spelled(answer: &ApprovalAnswer) -> (&'static str, &str) {
    match answer {
        ApprovalAnswer::Approved { id, .. } => ("approved", id),
        ApprovalAnswer::Denied { id, .. } => ("denied", id),
        ApprovalAnswer::TimedOut { id } => ("timed-out", id),
        ApprovalAnswer::Lost { id, why: _ } => ("lost", id),
    }
}

/// Waits for a person. What is not written down is not done.
async fn waited(opened: &Opened, question: &Question, parked: Parked) -> Option<bool> {
    let answer = parked.wait(QUESTION_TIMEOUT).await;
    let (said, id) = spelled(&answer);
    opened.record(question, said, id, 1)?;
    Some(answer.is_approved())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_about_a_websocket_is_another_one() {
        let of = |websocket| {
            let request = RequestHead { method: "GET".to_owned(), path: "/ws".to_owned(), websocket };
            let (run, policy, host) = ("r".to_owned(), "p".to_owned(), "a.test".to_owned());
            arguments(&Question { run, policy, host, port: 80, request: Some(request) })
        };
        assert_eq!(of(false), json!({ "host": "a.test", "port": 80, "method": "GET", "path": "/ws" }));
        assert_eq!(of(true)["websocket"], json!(true));
        assert_ne!(gate::json::hash(REQUEST, &of(false)), gate::json::hash(REQUEST, &of(true)));
    }
}
