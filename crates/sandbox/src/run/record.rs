//! The audit record of a run: what was planned before anything starts, and how it ended.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use backends::Capabilities;
use policy::report::{AuditPointer, DetectedBy};
use policy::value::{Audit, Content};
use policy::{ClauseId, Diagnostic, Loaded, Plan, Report, Violation};
use serde_json::{Value, json};

use super::asked;
use super::options::Options as StartOptions;
use super::planning::{Planned, plan};
use crate::audit::{Kind, Log, Options, Redactor};
use crate::environment::Environment;
use crate::error::Error;
use crate::gc::Sweep;
use crate::state::{RunId, State};
use crate::workload::Workload;

/// The open record of a run.
#[derive(Debug)]
pub(super) struct Recorded {
    pub(super) state: State,
    pub(super) id: RunId,
    log: Arc<Log>,
    denials: Arc<Denials>,
    /// What is recorded beside the plan, until `run.planned` is written.
    beside: RefCell<Option<Value>>,
}

/// What the broker stopped, written when it hears of the first of a kind: a sandbox may live for days.
#[derive(Debug)]
pub(super) struct Denials {
    log: Arc<Log>,
    run: String,
    /// The counts that were written, by id and what was tried.
    written: Mutex<BTreeMap<(String, String), u64>>,
}

impl Denials {
    /// The first of its kind. A log that fails now fails the run at its end, where it is written again.
    pub(super) fn first(&self, violation: &Violation) {
        if self.log.append(&self.run, &Kind::egress_denied(), &json!(violation)).is_ok() {
            let key = (violation.id.clone(), violation.what.clone());
            self.written.lock().unwrap_or_else(PoisonError::into_inner).insert(key, violation.count);
        }
    }

    /// Whether it was written as it is now.
    fn is_written(&self, violation: &Violation) -> bool {
        let key = (violation.id.clone(), violation.what.clone());
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        violation.seen == DetectedBy::Broker && written.get(&key) == Some(&violation.count)
    }
}

/// Opens the log. One that cannot be opened for writing refuses the run.
pub(super) fn open(
    planned: &Planned,
    environment: &Environment,
    host: &Capabilities,
    start: &StartOptions,
) -> Result<Recorded, Error> {
    let (state, id) = (State::open(&environment.state)?, RunId::new(jiff::Timestamp::now())?);
    let audit = &planned.plan.policy.audit;
    let log = Arc::new(Log::open(&state, audit.path.as_deref(), options(audit))?);
    let denials = Denials { log: Arc::clone(&log), run: id.to_string(), written: Mutex::default() };
    let beside = beside(planned, environment, host, start)?;
    Ok(Recorded { state, id, log, denials: Arc::new(denials), beside: RefCell::new(Some(beside)) })
}

/// What is recorded beside a plan.
fn beside(
    planned: &Planned,
    environment: &Environment,
    host: &Capabilities,
    start: &StartOptions,
) -> Result<Value, Error> {
    let mut what = asked::program(&planned.judged.what, &planned.plan.policy.audit)?;
    if let (Some(map), Some(earlier)) = (what.as_object_mut(), &start.earlier) {
        map.insert("on".to_owned(), json!({ "run": earlier.run(), "digest": earlier.digest() }));
    }
    let asked = start.asked.as_ref().map(|layers| asked::layers(layers, environment.cwd.as_deref()));
    Ok(json!({ "what": what, "asked": asked, "host": facts(host) }))
}

/// How a policy wants its events written.
fn options(audit: &Audit) -> Options {
    Options { sync: audit.sync, redact: Redactor::new(&audit.redact), ..Options::default() }
}

/// Records a refusal as far as there is a log to write to; the refusal stands either way. `audit`: what the policy says of its log,
/// where there is a policy already. One that cannot be written to is why it was refused, and the caller's own log says so.
#[must_use]
pub fn refused(stop: Error, audit: Option<&Audit>, environment: &Environment) -> Error {
    if let Ok(state) = State::open(&environment.state)
        && let Ok(id) = RunId::new(jiff::Timestamp::now())
    {
        let body = without_values(&stop, audit.map_or(Content::Hash, |audit| audit.content));
        let to = |folder| {
            let options = audit.map_or_else(Options::default, options);
            Log::open(&state, folder, options)?.append(id.as_str(), &Kind::run_refused(), &body)
        };
        let own = audit.and_then(|audit| audit.path.as_deref());
        if own.is_none_or(|own| to(Some(own)).is_err()) {
            drop(to(None));
        }
    }
    stop
}

/// Plans as [`plan`] does; a refusal is recorded where and as the policy wants it.
///
/// # Errors
/// As of [`plan`].
pub fn plan_recorded(
    loaded: Loaded,
    what: Workload,
    host: &Capabilities,
    environment: &Environment,
) -> Result<Planned, Error> {
    let audit = loaded.policy.audit.clone();
    plan(loaded, what, host).map_err(|stop| refused(stop, Some(&audit), environment))
}

/// A refusal as it is recorded. Of a mistake in a policy its id, clause and place are: its words repeat what was written, and that
/// may be a secret in the wrong place. Of a command that is not allowed only the ids are, unless the policy wants content kept: the
/// words are the command's. They are told to whoever asked for the run.
fn without_values(stop: &Error, content: Content) -> Value {
    let mut body = match stop {
        Error::Mistakes(mistakes) => {
            let one = |mistake: &Diagnostic| {
                let (clause, place) = (mistake.clause.map(ClauseId::path), mistake.at.to_string());
                json!({ "id": mistake.id, "clause": clause, "where": place })
            };
            return json!({ "refused": mistakes.list.iter().map(one).collect::<Vec<_>>() });
        }
        Error::Unheld(_) | Error::Refused(_) | Error::Failed(_) => stop.to_json(),
    };
    let lists = ["refused", "errors"];
    let reasons = body.as_object_mut().into_iter().flatten().filter(|(key, _)| lists.contains(&key.as_str()));
    for reason in reasons.filter_map(|(_, list)| list.as_array_mut()).flatten().filter_map(Value::as_object_mut) {
        let of = |key: &str| reason.get(key).and_then(Value::as_str).map(str::to_owned).unwrap_or_default();
        let (id, clause) = (of("id"), of("clause"));
        if [ClauseId::EnvSet, ClauseId::Secrets].iter().any(|hidden| clause == hidden.path()) {
            reason.insert("what".to_owned(), Value::from(format!("`{clause}`")));
        }
        if content != Content::Full && id.starts_with("commands.") {
            reason.retain(|key, _| matches!(key.as_str(), "id" | "where"));
        }
    }
    body
}

/// What tells hosts and versions apart, of which a plan depends.
#[must_use]
pub fn facts(host: &Capabilities) -> Value {
    json!({ "fumehood": env!("CARGO_PKG_VERSION"), "kernel": host.release, "landlock": host.landlock, "euid": host.euid })
}

/// A plan as it is recorded. Of variables that the policy sets only the names are, and of a command that reads a secret only the
/// program: a value or an argument may be a secret. That it was the same can be told by the digest of the plan.
#[must_use]
pub fn plan_without_values(plan: &Plan) -> Value {
    let mut body = plan.to_json();
    let clauses = body.get_mut("clauses").and_then(Value::as_array_mut);
    for clause in clauses.into_iter().flatten() {
        let is = |id: ClauseId| clause.get("clause").is_some_and(|found| found == id.path());
        let (variables, secrets) = (is(ClauseId::EnvSet), is(ClauseId::Secrets));
        let Some(value) = clause.get_mut("value") else { continue };
        if variables {
            let names = value.as_object().map(|set| set.keys().cloned().map(Value::String).collect());
            *value = Value::Array(names.unwrap_or_default());
        } else if secrets {
            value.as_object_mut().into_iter().flatten().for_each(|(_, secret)| hide_arguments(secret));
        }
    }
    body
}

/// Of each source of a secret that is a command its program alone.
fn hide_arguments(secret: &mut Value) {
    for (_, text) in secret.as_object_mut().into_iter().flatten() {
        let command = text.as_str().and_then(|text| text.strip_prefix("command:"));
        if let Some(program) = command.and_then(|words| words.split(' ').next()) {
            *text = Value::from(format!("command:{program}"));
        }
    }
}

impl Recorded {
    fn add(&self, kind: &Kind, body: &Value) -> Result<AuditPointer, Error> {
        Ok(self.log.append(self.id.as_str(), kind, body)?)
    }

    /// What dead runs left was taken away. A log that fails now refuses the run with its plan.
    pub(super) fn swept(&self, swept: &Sweep) {
        if !swept.removed.is_empty() {
            let body = json!({ "removed": swept.removed, "kept": swept.kept });
            drop(self.log.append("", &Kind::gc(), &body));
        }
    }

    /// Writes what is planned, once; always before *go*, or before the run is said to be aborted. It may be written while
    /// the guest is busy with itself: nobody's program runs yet, and an unwritable log refuses the run all the same.
    pub(super) fn plan(&self, planned: &Planned) -> Result<(), Error> {
        let Some(Value::Object(beside)) = self.beside.take() else { return Ok(()) };
        let plan = &planned.plan;
        let mut body = plan_without_values(plan);
        if let Some(map) = body.as_object_mut() {
            map.insert("policy".to_owned(), json!({ "name": plan.policy.name, "digest": plan.policy_digest() }));
            map.extend(beside);
        }
        self.add(&Kind::run_planned(), &body).map(drop)
    }

    /// Writes again what is planned: for a program that was not known when the sandbox was made ready. Always before *go*.
    pub(super) fn taken(
        &self,
        planned: &Planned,
        environment: &Environment,
        host: &Capabilities,
        start: &StartOptions,
    ) -> Result<(), Error> {
        self.beside.replace(Some(beside(planned, environment, host, start)?));
        self.plan(planned)
    }

    /// The payload was let go.
    pub(super) fn started(&self, planned: &Planned, pid: i32) -> Result<(), Error> {
        let body = json!({ "tier": planned.plan.tier.as_str(), "plan": planned.plan.digest(), "guest": pid });
        self.add(&Kind::run_started(), &body).map(drop)
    }

    /// The run was ended by us before *go*.
    pub(super) fn abort(&self, stop: Error, planned: &Planned) -> Error {
        let body = without_values(&stop, planned.plan.policy.audit.content);
        // The reason is told to the user in any case.
        drop(self.plan(planned).and_then(|()| self.add(&Kind::run_aborted(), &body)));
        stop
    }

    /// By which it is recorded that our own failure ended the run when it had been let go: also where the record is lost with it.
    pub(super) fn lost(&self) -> impl Fn(Error) -> Error + use<> {
        let (log, run) = (Arc::clone(&self.log), self.id.to_string());
        move |stop| {
            drop(log.append(&run, &Kind::run_aborted(), &without_values(&stop, Content::Hash)));
            stop
        }
    }

    /// A usage threshold was passed. A log that fails now fails the run at its end.
    pub(super) fn threshold(&self, words: &str) {
        drop(self.add(&Kind::run_threshold(), &json!({ "usage": words })));
    }

    /// The broker ended before the run. A log that fails now fails the run at its end.
    pub(super) fn broker_lost(&self) {
        drop(self.add(&Kind::egress_ended(), &json!({ "what": super::broker::LOST })));
    }

    /// Takes what the broker stops while the run goes on.
    pub(super) fn denials(&self) -> Arc<Denials> {
        Arc::clone(&self.denials)
    }

    /// How it ended; where that stands. What the broker stopped once was written when it did.
    pub(super) fn ended(&self, report: &Report) -> Result<AuditPointer, Error> {
        for violation in report.violations.iter().filter(|violation| !self.denials.is_written(violation)) {
            self.violation(violation)?;
        }
        let body = json!({
            "outcome": report.outcome, "usage": report.usage, "secrets": report.secrets, "workspace": report.workspace,
            "violations": report.violations.len(),
        });
        self.add(&Kind::run_ended(), &body)
    }

    fn violation(&self, violation: &Violation) -> Result<(), Error> {
        let kind = match violation.seen {
            DetectedBy::Kernel | DetectedBy::Output => Kind::run_violation(),
            DetectedBy::Broker => Kind::egress_denied(),
        };
        self.add(&kind, &json!(violation)).map(drop)
    }
}
