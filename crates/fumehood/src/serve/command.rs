//! Tools that are programs: `--tool NAME=FILE`. Each call is a run of its own, in a fresh sandbox under the policy that
//! `--sandbox` names. The arguments come as JSON on stdin; what stands on stdout is the result, JSON or text.
//!
//! No shell, no arguments on a command line: nothing of a call is ever read as anything but JSON by anybody.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use broker::http::Run;
use broker::result::{Content, ToolFailure, ToolResult};
use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

use crate::cli::World;
use crate::fault::show_text;

/// What a run needs to find its own files and its program; nothing else of our environment reaches it.
const NEEDED: &[&str] = &["HOME", "LANG", "LC_ALL", "PATH", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"];
/// Our own variables.
const OURS: &str = "FUMEHOOD_";
/// Bytes of a report that are read: the policy's own bound of output is smaller.
const MOST_REPORT: u64 = 64 << 20;
/// Bytes of its stderr that a failed tool is told with.
const TOLD: usize = 2000;

/// The tools that are programs.
#[derive(Clone, Debug, Default)]
pub struct Commands {
    files: BTreeMap<String, PathBuf>,
    how: Arc<How>,
}

/// How programs are started.
#[derive(Debug, Default)]
struct How {
    fumehood: PathBuf,
    policy: String,
    env: BTreeMap<OsString, OsString>,
    folder: PathBuf,
}

impl Commands {
    /// Tools by name, each a file, all under one policy (a preset or a file).
    ///
    /// # Errors
    /// Our own binary cannot be found.
    pub fn new(files: BTreeMap<String, PathBuf>, policy: String, world: &World) -> std::io::Result<Self> {
        let fumehood = std::fs::read_link("/proc/self/exe")?;
        let wanted =
            |name: &OsString| name.to_str().is_some_and(|name| NEEDED.contains(&name) || name.starts_with(OURS));
        let env = world.env.iter().filter(|(name, _)| wanted(name)).map(|(name, value)| (name.clone(), value.clone()));
        let folder = world.cwd.clone().unwrap_or_else(|| PathBuf::from("/"));
        Ok(Self { files, how: Arc::new(How { fumehood, policy, env: env.collect(), folder }) })
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

impl How {
    /// One run. Dropped on the way, the supervisor dies, and the sandbox with it.
    async fn once(&self, file: PathBuf, args: &Json) -> Result<ToolResult, ToolFailure> {
        let failed = |what: &str, error: std::io::Error| ToolFailure {
            message: format!("{what}: {}", error.to_string().to_lowercase()),
        };
        let mut command = Command::new(&self.fumehood);
        command.args(["run", "--json", "-p", &self.policy]).arg(file).env_clear().envs(&self.env);
        command.current_dir(&self.folder).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.kill_on_drop(true).process_group(0);
        let mut child = command.spawn().map_err(|error| failed("the tool could not be started", error))?;
        let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(ToolFailure { message: "the tool has no streams".to_owned() });
        };
        let mut text = broker::json::canonical(args);
        text.push('\n');
        let mut report = Vec::new();
        let mut bounded = stdout.take(MOST_REPORT);
        let feed = async {
            if stdin.write_all(text.as_bytes()).await.is_err() {
                // A tool that reads nothing closed its stdin: no failure.
            }
            drop(stdin);
        };
        let (read, ()) = tokio::join!(bounded.read_to_end(&mut report), feed);
        read.map_err(|error| failed("the tool could not be listened to", error))?;
        child.wait().await.map_err(|error| failed("the tool could not be waited for", error))?;
        result_of(&report)
    }
}

/// What a report says of a tool.
fn result_of(report: &[u8]) -> Result<ToolResult, ToolFailure> {
    let failed = |message: String| Err(ToolFailure { message });
    let Ok(report) = serde_json::from_slice::<Json>(report) else {
        return failed("the tool's run left no report".to_owned());
    };
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
    let result = match broker::json::read(out.trim()) {
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
        let of = |report: Json| result_of(report.to_string().as_bytes());
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
        assert!(result_of(b"").is_err());
    }
}
