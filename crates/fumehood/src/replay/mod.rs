//! A recorded run once more: the same documents and flags, the same program, the same plan, or every reason why not.
//!
//! Promises: what runs has the plan's digest and the program's identity of the record, whose chain is intact; else nothing runs.
//! Does not promise: the same input, values of passed variables, secrets or files: the record holds none of them, and says so.

mod compare;
mod record;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use sandbox::fault::{Fault, show_path, show_text};
use sandbox::run::{Earlier, facts, plan_without_values};
use sandbox::state::RunId;
use sandbox::{Capabilities, Finished, Planned, PolicyLayer, Workload};
use serde_json::{Value, json};

use crate::environment::Environment;
use crate::load;
use crate::program::{code, language, nothing, script};
use crate::run::{RunOptions, earlier, to_end};
use crate::ui::{Failure, REFUSED};
use record::RecordedRun;

/// What a call gives that no record holds.
#[derive(Debug, Default)]
pub(crate) struct ReplayInputs {
    /// The folder of the log, where `audit.path` moved it.
    pub(crate) log: Option<PathBuf>,
    /// Values of variables and inputs.
    pub(crate) values: Vec<PolicyLayer>,
    /// `--lang`
    pub(crate) language: Option<OsString>,
    /// `--code`
    pub(crate) code: Option<OsString>,
    /// What follows `--`: the command, or the script and its arguments, or the arguments of the code.
    pub(crate) words: Option<Vec<OsString>>,
    /// The outputs are kept for a report.
    pub(crate) keep: bool,
}

/// How the same plan ended this time.
#[derive(Debug)]
pub(crate) struct ReplayResult {
    pub(crate) finished: Finished,
    /// What is another than in the record: of what, then and now.
    pub(crate) differs: Vec<(String, Value, Value)>,
    /// What the record does not hold, in words.
    pub(crate) not_recorded: Vec<String>,
}

/// Runs what a record says.
///
/// # Errors
/// 126 with every reason why it would not be the same run; nothing was run then.
pub(crate) fn replay(run: &RunId, given: &ReplayInputs, environment: &Environment) -> Result<ReplayResult, Failure> {
    let recorded = record::read(run, given.log.as_deref(), environment)?;
    let asked = recorded.asked()?;
    let mut around = environment.clone();
    around.caller.cwd = Some(asked.folder.clone());
    let host = Capabilities::probe_with(environment.services());
    let layers = [asked.layers, given.values.clone()].concat();
    let missing = asked.hidden.iter().filter(|hidden| !hidden.is_given(&given.values));
    let missing: Vec<String> = missing.map(ToString::to_string).collect();
    let loaded = load::policy(&layers, &around).map_err(|stop| lacking_values(stop.into(), &missing))?;
    if loaded.policy.process.tty && !environment.stdin_terminal {
        return Err(one("replay/terminal", "the run had a terminal", "stdin is none", "call it from a terminal"));
    }
    let what = workload(&recorded, given, &asked.folder)?;
    let planned = sandbox::plan(loaded, what, &host).map_err(|stop| lacking_values(stop.into(), &missing))?;
    same_plan(&recorded, &planned, &host, &missing)?;
    same_program(&recorded, &planned)?;
    let earlier = from_changes(&recorded, environment)?;
    let mut not_recorded = not_recorded(&planned);
    let now = facts(&host);
    for (name, then, now) in compare::members(&recorded.body, "host", &now) {
        not_recorded.push(format!("of the host, `{name}` was {then} and is {now}; the plan is the same"));
    }
    let asker = crate::approvals::asker(environment);
    let keep = given.keep;
    let tools = crate::serve::script_tools(&planned.plan, &layers, &around)?;
    let run_options = RunOptions { interactive: false, keep, silent: true, asked: layers, asker, earlier, tools };
    let finished = to_end(planned, run_options, (&around, &host))?;
    let differs = compare::ends(&recorded, &finished);
    Ok(ReplayResult { finished, differs, not_recorded })
}

/// The program of the record: from there where it was kept, else from the call.
fn workload(recorded: &RecordedRun, given: &ReplayInputs, folder: &Path) -> Result<Workload, Failure> {
    let what = recorded.what();
    let text = |key: &str| what.get(key).and_then(Value::as_str);
    let kept: Option<Vec<OsString>> = what
        .get("words")
        .and_then(Value::as_array)
        .map(|words| words.iter().filter_map(Value::as_str).map(OsString::from).collect());
    let spoken = given.language.clone().or_else(|| text("language").map(OsString::from));
    let spoken = || spoken.as_deref().map(language).transpose();
    let given_words = given.words.clone().filter(|words| !words.is_empty());
    match text("kind") {
        Some("command") => match given_words.or(kept) {
            Some(words) => Ok(Workload::Argv(words)),
            None => Err(needs_program("the command", "`fumehood replay RUN -- CMD ARGS`")),
        },
        Some("script") => {
            let kept = text("text").map(|path| std::iter::once(path.into()).chain(kept.unwrap_or_default()).collect());
            let mut words = given_words.or(kept).unwrap_or_default().into_iter();
            match words.next() {
                Some(path) => {
                    script(folder.join(path), given.language.as_deref().map(language).transpose()?, words.collect())
                }
                None => Err(needs_program("the script", "`fumehood replay RUN -- SCRIPT ARGS`")),
            }
        }
        Some("code") => {
            let bytes = given.code.clone().map(std::os::unix::ffi::OsStringExt::into_vec);
            let bytes = bytes.or_else(|| text("text").map(|text| text.as_bytes().to_vec()));
            match (bytes, spoken()?) {
                (Some(bytes), Some(language)) => code(language.name(), bytes, given_words.or(kept).unwrap_or_default()),
                (Some(_), None) => Err(nothing("code without a language")),
                (None, _) => Err(needs_program("the code", "`fumehood replay RUN --lang LANGUAGE --code TEXT`")),
            }
        }
        Some("nothing") => Ok(Workload::Image),
        Some("live" | "shell") => Err(one(
            "replay/interactive",
            "the run was a shell or a live sandbox",
            "what was asked of it is not in its record",
            "`fumehood audit show --run RUN` says what it did",
        )),
        Some(_) | None => Err(unreadable("it does not say what ran")),
    }
}

/// What runs must have the plan of the record; else every clause that has another holder or value, and every fact of the host
/// that may be why.
fn same_plan(
    recorded: &RecordedRun,
    planned: &Planned,
    host: &Capabilities,
    missing: &[String],
) -> Result<(), Failure> {
    let then = recorded.body.get("digest").and_then(Value::as_str);
    if then == Some(planned.plan.digest()) {
        return Ok(());
    }
    let facts: Vec<String> = compare::members(&recorded.body, "host", &facts(host))
        .into_iter()
        .map(|(name, then, now)| format!("`{name}` was {then} and is {now}"))
        .collect();
    let host =
        if facts.is_empty() { "the host's facts of the record are the same".to_owned() } else { facts.join(", ") };
    let mut faults = compare::plans(&recorded.body, &plan_without_values(&planned.plan), &host);
    if !missing.is_empty() {
        faults.push(hidden(missing));
    }
    if faults.is_empty() {
        let why =
            "what is recorded of it is the same; a value that is never recorded (`env.set`) is another".to_owned();
        faults.push(fault(
            "replay/differs",
            "the plan has another digest",
            why,
            "give the values of that time by `--env`",
        ));
    }
    Err(Failure::Faults { code: REFUSED, faults })
}

fn same_program(recorded: &RecordedRun, planned: &Planned) -> Result<(), Failure> {
    let what = recorded.what();
    if what.get("kind").and_then(Value::as_str) == Some("nothing") {
        return Ok(());
    }
    let Some(then) = what.get("sha256").and_then(Value::as_str) else {
        let why = "`audit.content = \"none\"` kept nothing of what ran, so that nobody can say that it is the same";
        return Err(one(
            "replay/no-content",
            "the record does not tell what ran",
            why,
            "`fumehood run` runs anything anew",
        ));
    };
    if planned.identity()? == then {
        return Ok(());
    }
    let why = "its words, interpreter or text are not those whose SHA-256 was recorded";
    Err(one("replay/other-program", "what would run is not what ran", why, "give the program of that time"))
}

/// The changes of an earlier run, from which the run went on.
fn from_changes(recorded: &RecordedRun, environment: &Environment) -> Result<Option<Earlier>, Failure> {
    let Some(on) = recorded.what().get("on") else { return Ok(None) };
    let text = |key: &str| on.get(key).and_then(Value::as_str);
    let id = text("run").and_then(|run| run.parse().ok()).ok_or_else(|| unreadable("its `on` names no run"))?;
    let found = earlier(&id, environment)?;
    if text("digest") == Some(found.digest().as_str()) {
        return Ok(Some(found));
    }
    let what = format!("the changes of {id}, from which the run went on, are others now");
    Err(one("replay/other-changes", &what, "some were applied or discarded", "there is nothing to go on from as then"))
}

/// What a run depends on that no record holds, in words.
fn not_recorded(planned: &Planned) -> Vec<String> {
    let policy = &planned.plan.policy;
    let mut list = vec!["standard input: it is the caller's".to_owned()];
    if !policy.env.pass.is_empty() {
        list.push("values of passed variables: they are the caller's".to_owned());
    }
    if !policy.secrets.is_empty() {
        list.push("values of secrets: they are read anew".to_owned());
    }
    if policy.workspace.path.is_some() || !policy.fs.read.is_empty() || !policy.fs.write.is_empty() {
        list.push("files of workspace and grants: they are as they are now".to_owned());
    }
    // An image has a digest, which is the plan's.
    if matches!(policy.fs.root, policy::value::Root::Host | policy::value::Root::Dir(_)) {
        list.push("files of the root (`fs.root`): they are as they are now".to_owned());
    }
    list
}

/// A value that was not given may be why there is no policy or no plan.
fn lacking_values(stop: Failure, missing: &[String]) -> Failure {
    if missing.is_empty() { stop } else { Failure::refused(hidden(missing)) }
}

fn hidden(missing: &[String]) -> Fault {
    fault(
        "replay/hidden",
        &format!("values are not in the record: {}", show_text(&missing.join(", "))),
        "a value of a variable or input may be a secret, and is never recorded".to_owned(),
        "give them by `--env NAME=VALUE` or `--input NAME=VALUE`",
    )
}

fn needs_program(what: &str, how: &str) -> Failure {
    let why = "of it the record keeps the SHA-256 alone (`audit.content = \"hash\"`)";
    one("replay/needs-program", &format!("{what} is not in the record"), why, &format!("give it again: {how}"))
}

fn unreadable(why: &str) -> Failure {
    one("replay/not-recorded", "the record does not say all that a run needs", why, "`fumehood run` runs anything anew")
}

fn one(id: &'static str, what: &str, why: &str, fix: &str) -> Failure {
    Failure::refused(fault(id, what, why.to_owned(), fix))
}

fn fault(id: &'static str, what: &str, why: String, fix: &str) -> Fault {
    Fault { id, what: what.to_owned(), place: "the record of the run".to_owned(), why, fix: fix.to_owned() }
}

impl ReplayResult {
    /// For programs.
    pub(crate) fn to_json(&self, run: &RunId) -> Value {
        let differs: Vec<Value> =
            self.differs.iter().map(|(what, then, now)| json!({ "what": what, "then": then, "now": now })).collect();
        json!({
            "schema": 1,
            "run": run.to_string(),
            "plan": self.finished.plan.digest(),
            "same": self.differs.is_empty(),
            "differs": differs,
            "not_recorded": self.not_recorded,
            "report": self.finished.to_json(),
        })
    }
}

/// Where the caller stood when it was recorded must still be there.
fn there(folder: &str) -> Result<PathBuf, Failure> {
    let path = PathBuf::from(folder);
    if path.is_dir() {
        return Ok(path);
    }
    let what = format!("the folder {} is not there any more", show_path(&path));
    Err(one("replay/no-folder", &what, "the paths of the run were relative to it", "make it again, or run it anew"))
}
