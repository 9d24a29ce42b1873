//! Destinations that no rule names (`net.unknown = "ask"`), and requests of rules with `decision = "ask"`, wait in the store of
//! approvals, as calls of tools do.

use std::sync::Arc;
use std::time::Duration;

use gateway::approvals::{ApprovalAnswer, Approvals, Ask, DESTINATION, REQUEST, Settings};
use policy::tools::{Approval, ApprovalBy};
use sandbox::audit::{Kind, Log, Options};
use sandbox::state::{Places, State};
use sandbox::{Asker, Environment, Question, Reply};
use serde_json::json;

/// How long a question waits: the broker denies after 30 s, and must not hear of an answer that the store took for good.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(29);

/// Who asks the store of this caller.
pub(crate) fn asker(environment: &Environment) -> Arc<dyn Asker> {
    Arc::new(People { state: environment.state.clone() })
}

#[derive(Debug)]
struct People {
    state: Places,
}

impl Asker for People {
    fn ask(&self, question: Question, reply: Reply) {
        let places = self.state.clone();
        let wait = move || reply(answered(&places, &question).unwrap_or(false));
        // Without a thread nobody is asked, and the broker denies.
        drop(std::thread::Builder::new().name("fumehood-ask".to_owned()).spawn(wait));
    }

    fn ended(&self, run: &str) {
        let approvals = State::open(&self.state).ok().and_then(|state| Approvals::open(state.path()).ok());
        // What stays then ends with its time.
        approvals.iter().for_each(|approvals| drop(approvals.withdraw(run)));
    }
}

/// Parks a question and waits for its answer. Without the store or the log nobody is asked.
fn answered(places: &Places, question: &Question) -> Option<bool> {
    let state = State::open(places).ok()?;
    let log = Log::open(&state, None, Options::default()).ok()?;
    let settings = Settings { patience: QUESTION_TIMEOUT, bound_to: question.policy.clone(), ..Settings::default() };
    let approvals = Approvals::open_with(state.path(), settings).ok()?;
    let (tool, rule, reason) = match &question.request {
        None => (DESTINATION, "net.unknown", "no rule of `net` names this host"),
        Some(_) => (REQUEST, "net.allow", "a rule of `net` asks about this request"),
    };
    let args = match &question.request {
        None => json!({ "host": question.host, "port": question.port }),
        Some((method, path)) => {
            json!({ "host": question.host, "port": question.port, "method": method, "path": path })
        }
    };
    let ask = Ask {
        tool: tool.to_owned(),
        server: None,
        hash: gate::json::hash(tool, &args),
        args: args.clone(),
        rule: rule.to_owned(),
        reason: reason.to_owned(),
        agent: agent(&state, &question.run),
        session: question.run.clone(),
        approval: Approval::Never,
        by: ApprovalBy::Person,
    };
    let parked = approvals.ask(&ask).ok()?;
    let record = |state: &str, id: &str| {
        let mut body = args.clone();
        let said = [("state", state), ("approval", id)].map(|(key, text)| (key.to_owned(), text.into()));
        body.as_object_mut()?.extend(said);
        log.append(&question.run, &Kind::egress_asked(), &body).ok()
    };
    // Where a remembered approval answers, nobody is asked.
    if parked.known().is_none() {
        record("asked", parked.id())?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build().ok()?;
    let answer = runtime.block_on(parked.wait(QUESTION_TIMEOUT));
    let (said, id) = match &answer {
        ApprovalAnswer::Approved { id, .. } => ("approved", id),
        ApprovalAnswer::Denied { id, .. } => ("denied", id),
        ApprovalAnswer::TimedOut { id } => ("timed-out", id),
        ApprovalAnswer::Lost { id, why: _ } => ("lost", id),
    };
    // What is not written down is not done.
    record(said, id)?;
    Some(answer.is_approved())
}

/// Who asks, for the store: places for questions and what is remembered are of one agent, and sandboxes of two keys are not
/// one.
fn agent(state: &State, run: &str) -> String {
    let living = live::Home::new(state).and_then(|home| home.list(false)).unwrap_or_default();
    let labels = living.into_iter().find(|info| info.run == run).map(|info| info.labels);
    match labels.as_ref().and_then(server::owner) {
        Some(owner) => format!("sandbox of {owner}"),
        None => "sandbox".to_owned(),
    }
}
