//! Tools that are programs: `--tool NAME=FILE`. Each call is a run of its own, in a fresh sandbox under the policy that
//! `--sandbox` names. The arguments come as JSON on stdin; what stands on stdout is the result, JSON or text.
//!
//! No shell, no arguments on a command line: nothing of a call is ever read as anything but JSON by anybody.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use gate::result::{Content, ToolFailure, ToolResult};
use gateway::engine::Run;
use sandbox::fault::show_text;
use sandbox::{Environment, PolicyLayer};
use serde_json::{Value as Json, json};

use crate::run::in_process::{Runner, only_needed};

/// Bytes of its stderr that a failed tool is told with.
const TOLD: usize = 2000;

/// The tools that are programs.
#[derive(Clone, Debug)]
pub struct Commands {
    files: BTreeMap<String, PathBuf>,
    /// Those of the policy that they are under.
    documents: BTreeSet<PathBuf>,
    how: Arc<Launcher>,
}

/// How programs are started.
#[derive(Debug)]
struct Launcher {
    runner: Runner,
    policy: String,
}

impl Commands {
    /// Tools by name, each a file, all under one policy (a preset or a file) of these documents.
    #[must_use]
    pub fn new(
        files: BTreeMap<String, PathBuf>,
        (policy, documents): (String, BTreeSet<PathBuf>),
        environment: &Environment,
    ) -> Self {
        let env = only_needed(&environment.env);
        let own = Environment::new(environment.cwd.clone(), env, environment.euid);
        let environment = own.with_broker(environment.broker.clone()).with_images(environment.images);
        Self { files, documents, how: Arc::new(Launcher { runner: Runner::new(&environment), policy }) }
    }

    /// The same where these documents, of whoever offers the tools, are held too: no tool says what may be called.
    #[must_use]
    pub fn holding(self, documents: &BTreeSet<PathBuf>) -> Self {
        let how = Launcher { runner: self.how.runner.holding(documents), policy: self.how.policy.clone() };
        Self { how: Arc::new(how), ..self }
    }

    /// The documents of their own policy.
    #[must_use]
    pub const fn documents(&self) -> &BTreeSet<PathBuf> {
        &self.documents
    }

    /// Whether a tool is one of these.
    #[must_use]
    pub fn has(&self, tool: &str) -> bool {
        self.files.contains_key(tool)
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// What runs a tool, if it is one of these.
    #[must_use]
    pub fn run(&self, tool: &str) -> Option<Run> {
        let (file, how) = (self.files.get(tool)?.clone(), Arc::clone(&self.how));
        Some(Box::new(move |args| Box::pin(async move { how.once(file, &args).await })))
    }
}

impl Launcher {
    /// One run. Dropped on the way, everything inside is ended.
    async fn once(&self, file: PathBuf, args: &Json) -> Result<ToolResult, ToolFailure> {
        let mut text = gate::json::canonical(args);
        text.push('\n');
        let what = match crate::program::script(file, None, Vec::new()) {
            Ok(what) => what,
            Err(stop) => return result_of(&stop.json()),
        };
        let layers = vec![PolicyLayer::Document(self.policy.clone())];
        result_of(&self.runner.report(layers, what, Some(text.into_bytes())).await)
    }
}

/// What a report says of a tool.
fn result_of(report: &Json) -> Result<ToolResult, ToolFailure> {
    let failed = |message: String| Err(ToolFailure { message });
    if report.is_null() {
        return failed("the tool's run left no report".to_owned());
    }
    let text = |path: &str| report.pointer(path).and_then(Json::as_str).unwrap_or_default();
    let told = |text: &str| show_text(&text.chars().take(TOLD).collect::<String>());
    if let Some(refused) = report.get("refused").or_else(|| report.get("errors")) {
        return failed(format!("the tool's sandbox was refused: {}", told(&refused.to_string())));
    }
    let exited = text("/outcome/kind") == "exited" && report.pointer("/outcome/code") == Some(&json!(0));
    if !exited {
        let outcome = report.get("outcome").map(Json::to_string).unwrap_or_default();
        return failed(format!("the tool failed: {}: {}", told(&outcome), told(text("/stderr"))));
    }
    let Some(out) = report.get("stdout").and_then(Json::as_str) else {
        return failed("the tool answered with bytes that are no text".to_owned());
    };
    // Strictly: what two parsers read differently is text and nothing more.
    let result = match gate::json::read(out.trim()) {
        Ok(value) => ToolResult { structured: Some(value), ..ToolResult::default() },
        Err(_) => ToolResult { content: vec![Content::Text(out.to_owned())], ..ToolResult::default() },
    };
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_run_that_ended_well_has_a_result() {
        let of = |report: Json| result_of(&report);
        let good = |out: &str| json!({ "outcome": { "kind": "exited", "code": 0 }, "stdout": out, "stderr": "" });
        assert_eq!(of(good("{\"a\": 1}\n")).unwrap().structured, Some(json!({ "a": 1 })));
        assert_eq!(of(good("plain\n")).unwrap().content, [Content::Text("plain\n".into())]);
        assert_eq!(of(good("{\"a\": 1, \"a\": 2}")).unwrap().structured, None, "read in two ways: it is text");
        let bad = [
            json!({ "outcome": { "kind": "exited", "code": 1 }, "stdout": "{}", "stderr": "no\u{1b}" }),
            json!({ "outcome": { "kind": "limit", "limit": "wall" }, "stdout": "{}" }),
            json!({ "outcome": { "kind": "signalled", "signal": 9 }, "stdout": "{}" }),
            json!({ "refused": [{ "id": "x" }] }),
            json!({ "outcome": { "kind": "exited", "code": 0 }, "stdout_base64": "/w==" }),
            json!({}),
        ];
        for report in bad {
            let failure = of(report.clone()).unwrap_err();
            assert!(!failure.message.contains('\u{1b}'), "{report}: {failure:?}");
        }
        assert!(result_of(&Json::Null).is_err());
    }
}
