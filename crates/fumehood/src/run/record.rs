//! The audit record of a run: what was planned before anything starts, and how it ended.

use std::cell::RefCell;

use crate::ui::Failure;
use policy::report::AuditPointer;
use policy::value::Content;
use policy::{Report, Violation};
use serde_json::{Value, json};

use super::planning::Planned;
use crate::audit::{Kind, Log, Options, Redactor};
use crate::cli::{Request, What, World};
use crate::state::{RunId, State};

/// The open record of a run.
#[derive(Debug)]
pub(super) struct Recorded {
    pub(super) state: State,
    pub(super) id: RunId,
    log: Log,
    /// What is run, until `run.planned` is written.
    what: RefCell<Option<Value>>,
}

/// Opens the log. One that cannot be opened for writing refuses the run.
pub(super) fn open(planned: &Planned, request: &Request, (state, id): (State, RunId)) -> Result<Recorded, Failure> {
    let audit = &planned.plan.policy.audit;
    let options = Options { sync: audit.sync, redact: Redactor::new(&audit.redact), ..Options::default() };
    let log = Log::open(&state, audit.path.as_deref(), options)?;
    Ok(Recorded { state, id, log, what: RefCell::new(Some(what(&request.what, audit.content))) })
}

/// Records a refusal as far as there is a log to write to; the refusal stands either way. `place`: where the run was
/// begun already.
pub(super) fn refused(stop: Failure, world: &World, place: Option<(State, RunId)>) -> Failure {
    let place = place.or_else(|| Some((State::open(&world.state).ok()?, RunId::new(jiff::Timestamp::now()).ok()?)));
    if let Some((state, id)) = place
        && let Ok(log) = Log::open(&state, None, Options::default())
    {
        drop(log.append(id.as_str(), &Kind::run_refused(), &stop.json()));
    }
    stop
}

/// What is run, as far as `audit.content` wants it kept.
fn what(what: &What, content: Content) -> Value {
    let (kind, bytes): (&str, Vec<u8>) = match what {
        What::Argv(words) => {
            let words: Vec<&[u8]> = words.iter().map(|w| w.as_encoded_bytes()).collect();
            ("command", words.join(&b' '))
        }
        What::Script(script) => ("script", script.path.as_os_str().as_encoded_bytes().to_vec()),
        What::Code(code) => ("code", code.text.clone()),
        What::Shell => ("shell", Vec::new()),
        What::Nothing => ("nothing", Vec::new()),
    };
    match content {
        Content::None => json!({ "kind": kind }),
        Content::Hash => json!({ "kind": kind, "sha256": crate::audit::sha256_hex(&bytes) }),
        Content::Full => json!({ "kind": kind, "text": String::from_utf8_lossy(&bytes) }),
    }
}

impl Recorded {
    fn add(&self, kind: &Kind, body: &Value) -> Result<AuditPointer, Failure> {
        Ok(self.log.append(self.id.as_str(), kind, body)?)
    }

    /// Writes what is planned, once; always before *go*, or before the run is said to be aborted. It may be written while
    /// the guest is busy with itself: nobody's program runs yet, and an unwritable log refuses the run all the same.
    pub(super) fn plan(&self, planned: &Planned) -> Result<(), Failure> {
        let Some(what) = self.what.take() else { return Ok(()) };
        let plan = &planned.plan;
        let mut body = plan.to_json();
        if let Some(map) = body.as_object_mut() {
            map.insert("policy".to_owned(), json!({ "name": plan.policy.name, "digest": plan.policy_digest() }));
            map.insert("what".to_owned(), what);
        }
        self.add(&Kind::run_planned(), &body).map(drop)
    }

    /// The payload was let go.
    pub(super) fn started(&self, planned: &Planned, pid: i32) -> Result<(), Failure> {
        let body = json!({ "tier": planned.plan.tier.word(), "plan": planned.plan.digest(), "guest": pid });
        self.add(&Kind::run_started(), &body).map(drop)
    }

    /// The run was ended by us before *go*.
    pub(super) fn abort(&self, stop: Failure, planned: &Planned) -> Failure {
        let body = stop.json();
        // The reason is told to the user in any case.
        drop(self.plan(planned).and_then(|()| self.add(&Kind::run_aborted(), &body)));
        stop
    }

    /// A usage threshold was passed. A log that fails now fails the run at its end.
    pub(super) fn threshold(&self, words: &str) {
        drop(self.add(&Kind::run_threshold(), &json!({ "usage": words })));
    }

    /// How it ended; where that stands.
    pub(super) fn ended(&self, report: &Report) -> Result<AuditPointer, Failure> {
        for violation in &report.violations {
            self.violation(violation)?;
        }
        let body = json!({
            "outcome": report.outcome, "usage": report.usage, "workspace": report.workspace,
            "violations": report.violations.len(),
        });
        self.add(&Kind::run_ended(), &body)
    }

    fn violation(&self, violation: &Violation) -> Result<(), Failure> {
        self.add(&Kind::run_violation(), &json!(violation)).map(drop)
    }
}
