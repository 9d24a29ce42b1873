//! What our own server's tools do: a run each, in a sandbox of its own.
//!
//! Paths of a model are arguments of programs inside the sandbox and are never opened out here.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError};

use gate::result::{Content, ToolResult};
use sandbox::changes::{Applied, ChangesError, Guarded, Request};
use sandbox::state::RunId;
use sandbox::{Environment, PolicyLayer, Workload};
use serde_json::{Value as Json, json};

use super::tools::{Tool, ToolAction};
use crate::run::in_process::Runner;
use crate::ui::Failure;
use crate::{changes, explain};

/// Does what tools ask for.
#[derive(Clone, Debug)]
pub struct Actor {
    runner: Runner,
    environment: Environment,
    /// Policy and flags of each run.
    layers: Vec<PolicyLayer>,
    may_apply: bool,
    /// Runs of this server: `diff` and `apply` know no others, of other agents or workspaces.
    runs: Arc<Mutex<BTreeSet<String>>>,
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Done {
    text: String,
    structured: Option<Json>,
    is_error: bool,
}

/// A call that could not be made.
#[must_use]
pub(super) fn failed(why: &str) -> Done {
    Done { text: why.to_owned(), structured: None, is_error: true }
}

impl Done {
    /// As it stands on the wire.
    #[must_use]
    pub(super) fn to_json(&self) -> Json {
        let mut value = json!({ "content": [{ "type": "text", "text": self.text }], "isError": self.is_error });
        if let (Some(structured), Some(map)) = (&self.structured, value.as_object_mut()) {
            map.insert("structuredContent".to_owned(), structured.clone());
        }
        value
    }

    /// As the broker bounds it.
    #[must_use]
    pub(super) fn into_result(self) -> ToolResult {
        let Self { text, structured, is_error } = self;
        ToolResult { content: vec![Content::Text(text)], structured, is_error, meta: None }
    }
}

impl Actor {
    /// An actor under this policy.
    #[must_use]
    pub fn new(layers: &[PolicyLayer], environment: &Environment, may_apply: bool) -> Self {
        Self {
            runner: Runner::new(environment),
            environment: environment.clone(),
            layers: layers.to_vec(),
            may_apply,
            runs: Arc::default(),
        }
    }

    /// Whether a tool is there at all.
    #[must_use]
    pub(super) fn offers(&self, tool: &Tool) -> bool {
        tool.deed != ToolAction::Apply || self.may_apply
    }

    /// For the model.
    #[must_use]
    pub(super) fn instructions(&self) -> String {
        let apply =
            if self.may_apply { "`apply` takes it over" } else { "the user takes it over with `fumehood apply`" };
        format!(
            "Each call runs in a fresh sandbox under a policy, beginning with the workspace as it is. What a call changes is kept \
             aside under its run's id: `diff` shows it, {apply}. A violation names what was stopped and what to do instead."
        )
    }

    /// Does it. The arguments fit the tool.
    pub(super) async fn act(&self, tool: &Tool, args: &Json) -> Done {
        let text = |key: &str| args.get(key).and_then(Json::as_str).unwrap_or_default().to_owned();
        let list = |key: &str| -> Vec<OsString> {
            args.get(key)
                .and_then(Json::as_array)
                .into_iter()
                .flatten()
                .filter_map(Json::as_str)
                .map(Into::into)
                .collect()
        };
        // A path that begins with a dash stays a path.
        let path = |path: String| if path.starts_with('-') { format!("./{path}") } else { path };
        match tool.deed {
            ToolAction::RunCode => {
                let args = list("args");
                match crate::program::code(&text("language"), text("code").into_bytes(), args) {
                    Ok(what) => self.run(what, Some(Vec::new())).await,
                    Err(stop) => told(&stop.json()),
                }
            }
            ToolAction::RunCommand => self.inside(list("command"), None).await,
            ToolAction::ReadFile => self.inside(vec!["cat".into(), "--".into(), path(text("path")).into()], None).await,
            ToolAction::ListFiles => {
                let folder = if text("path").is_empty() { ".".to_owned() } else { path(text("path")) };
                self.inside(["ls", "-1Ap", "--", &folder].iter().map(Into::into).collect(), None).await
            }
            ToolAction::WriteFile => {
                let target = path(text("path"));
                let words = ["dd", "status=none", &format!("of={target}")].iter().map(Into::into).collect();
                self.inside(words, Some(text("content"))).await
            }
            ToolAction::Diff | ToolAction::Apply if !self.is_own(&text("run")) => {
                failed("no run of this conversation has this id; the result of each call names its run")
            }
            ToolAction::Diff => told_of(self.diff(&text("run"))),
            ToolAction::Apply => told_of(self.apply(&text("run"), text("digest"), &list("files"))),
            ToolAction::Explain if !is_an_id(&text("id")) => failed("an id looks like `fs.read/outside`"),
            ToolAction::Explain => told_of(explained(&text("id"))),
        }
    }

    fn diff(&self, run: &str) -> Result<(Json, bool), Failure> {
        let (state, run) = (changes::state(&self.environment)?, run_id(run)?);
        match sandbox::changes::load(&state, &run) {
            Ok(_) => Ok((json!(changes::shown(&state, &run, None, &self.environment)?), true)),
            Err(ChangesError::None { of }) => Ok((changes::nothing(&state, Some(&run), &of)?, true)),
            Err(error) => Err(changes::failed(&error)),
        }
    }

    fn apply(&self, run: &str, digest: String, files: &[OsString]) -> Result<(Json, bool), Failure> {
        let (state, run) = (changes::state(&self.environment)?, run_id(run)?);
        let (manifest, _) = sandbox::changes::load(&state, &run).map_err(|error| changes::failed(&error))?;
        let request = Request {
            paths: changes::files(files, &self.environment, &manifest.workspace),
            digest: Some(digest),
            guarded: Guarded::Refuse,
            leaving_links: false,
        };
        let mut marks = changes::marks(&state, &run, &request, &self.environment)?;
        let applied = changes::taken(&state, &run, &manifest, &request)?;
        if let Applied::Done { paths, .. } = &applied {
            marks.retain(|one| paths.iter().any(|taken| taken.0 == one.path));
        }
        Ok((changes::taken_json(&run, &applied, &marks), matches!(applied, Applied::Done { .. })))
    }

    fn is_own(&self, run: &str) -> bool {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).contains(run)
    }

    async fn inside(&self, command: Vec<OsString>, stdin: Option<String>) -> Done {
        if command.is_empty() {
            return told(&crate::program::nothing("the command has no words").json());
        }
        self.run(Workload::Argv(command), stdin.map(String::into_bytes)).await
    }

    /// A run under the policy; its report, for the model.
    async fn run(&self, what: Workload, stdin: Option<Vec<u8>>) -> Done {
        let report = self.runner.report(self.layers.clone(), what, stdin).await;
        if let Some(run) = report.get("run").and_then(Json::as_str) {
            self.runs.lock().unwrap_or_else(PoisonError::into_inner).insert(run.to_owned());
        }
        told(&report)
    }
}

fn run_id(text: &str) -> Result<RunId, Failure> {
    text.parse::<RunId>().map_err(|error| sandbox::Error::from(error).into())
}

/// The entry of an id.
fn explained(id: &str) -> Result<(Json, bool), Failure> {
    let entries = explain::entries()?;
    let (id, entry) = explain::named(&entries, id)?;
    Ok((explain::as_json(id, entry), true))
}

/// An answer that is JSON, and whether it is a good one.
fn told_of(answer: Result<(Json, bool), Failure>) -> Done {
    let (answer, good) = answer.unwrap_or_else(|stop| (stop.json(), false));
    Done { text: format!("{answer:#}"), structured: Some(answer), is_error: !good }
}

/// `area/name`: nothing that could be read as a flag.
fn is_an_id(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-/".contains(c);
    text.starts_with(|c: char| c.is_ascii_lowercase()) && text.contains('/') && text.chars().all(plain)
}

/// A report as a model reads it: what was printed, how it ended, what was stopped and what to do instead.
fn told(report: &Json) -> Done {
    let text = |path: &str| report.pointer(path).and_then(Json::as_str).unwrap_or_default();
    if report.get("outcome").is_none() {
        return Done {
            text: format!("nothing was run:\n{report:#}"),
            structured: Some(report.clone()),
            is_error: true,
        };
    }
    let mut lines = String::new();
    for stream in ["stdout", "stderr"] {
        if let Some(printed) = report.get(stream).and_then(Json::as_str).filter(|printed| !printed.is_empty()) {
            let head = if stream == "stderr" { "[stderr]\n" } else { "" };
            lines.push_str(&format!("{head}{}\n", printed.trim_end_matches('\n')));
        } else if report.get(format!("{stream}_base64")).is_some() {
            lines.push_str(&format!("[{stream} is no text; see structuredContent]\n"));
        }
    }
    // A refusal has no run.
    let run = report.get("run").and_then(Json::as_str).map(|run| format!("; run {run}")).unwrap_or_default();
    lines.push_str(&format!("[{}{run}]\n", text("/outcome/message")));
    for violation in report.get("violations").and_then(Json::as_array).into_iter().flatten() {
        let of = |key: &str| violation.get(key).and_then(Json::as_str).unwrap_or_default();
        lines.push_str(&format!(
            "[stopped ({}): {}: {}; instead: {}]\n",
            of("id"),
            of("what"),
            of("why"),
            of("instead")
        ));
    }
    // Why there was no run, and what failed of ours when there was one: another caller hears of it by the exit code.
    let reasons = ["refused", "errors"].into_iter().filter_map(|key| report.get(key).and_then(Json::as_array));
    for reason in reasons.flatten() {
        let of = |key: &str| reason.get(key).and_then(Json::as_str).unwrap_or_default();
        lines.push_str(&format!("[{}: {}: {}; fix: {}]\n", of("id"), of("what"), of("why"), of("fix")));
    }
    let mut kept = serde_json::Map::new();
    for key in [
        "run",
        "outcome",
        "refused",
        "errors",
        "usage",
        "violations",
        "weakened",
        "warnings",
        "workspace",
        "stdout",
        "stderr",
        "stdout_base64",
        "stderr_base64",
        "cut",
        "dropped",
    ] {
        if let Some(value) = report.get(key) {
            kept.insert(key.to_owned(), value.clone());
        }
    }
    let ran_well = text("/outcome/kind") == "exited" && report.pointer("/outcome/code") == Some(&json!(0));
    let is_error = !ran_well || report.get("errors").is_some();
    Done { text: lines, structured: Some(Json::Object(kept)), is_error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_refused_or_failed_is_told_with_its_remedy_and_is_no_good_answer() {
        let reason = json!({ "id": "a/b", "what": "it", "where": "here", "why": "no", "fix": "do so" });
        let exited = json!({ "kind": "exited", "code": 0, "message": "the program exited with 0" });
        assert!(!told(&json!({ "run": "r-1", "outcome": exited })).is_error);
        for (outcome, list) in [(exited, "errors"), (json!({ "kind": "refused", "code": 126 }), "refused")] {
            let done = told(&json!({ "run": "r-1", "outcome": outcome, list: [reason] }));
            assert!(done.is_error && done.text.contains("[a/b: it: no; fix: do so]"), "{done:?}");
            assert_eq!(done.structured.unwrap()[list][0]["id"], "a/b");
        }
    }
}
