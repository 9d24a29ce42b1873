//! What our own server's tools do: a run of our own binary each, with its report read back.
//!
//! Paths of a model are arguments of programs inside the sandbox and are never opened out here.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use broker::result::{Content, ToolResult};
use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

use super::tools::{Deed, Tool};
use crate::cli::{Ingredient, World};

/// Most bytes of a report.
const MOST: u64 = 64 << 20;

/// Does what tools ask for.
#[derive(Clone, Debug)]
pub struct Actor {
    program: PathBuf,
    folder: PathBuf,
    env: BTreeMap<OsString, OsString>,
    /// Policy and flags of each run, as `fumehood run` takes them.
    policy: Vec<OsString>,
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
    /// An actor under this policy, whose runs are made by `program`.
    #[must_use]
    pub fn new(program: PathBuf, layers: &[Ingredient], world: &World, may_apply: bool) -> Self {
        let mut policy: Vec<OsString> = Vec::new();
        for layer in layers {
            match layer {
                Ingredient::Document(name) => policy.extend(["-p".into(), name.into()]),
                Ingredient::Flag { name, value } => policy.extend([name.into(), value.into()]),
                Ingredient::Set(text) => policy.extend(["--set".into(), text.into()]),
            }
        }
        Self {
            program,
            folder: world.cwd.clone().unwrap_or_else(|| PathBuf::from("/")),
            env: world.env.clone(),
            policy,
            may_apply,
            runs: Arc::default(),
        }
    }

    /// Whether a tool is there at all.
    #[must_use]
    pub(super) fn offers(&self, tool: &Tool) -> bool {
        tool.deed != Deed::Apply || self.may_apply
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
            Deed::RunCode => {
                // In one word: a value that begins with a dash stays a value.
                let mut words = vec![format!("--lang={}", text("language")).into(), "-".into()];
                words.extend(list("args"));
                self.run(words, Some(text("code"))).await
            }
            Deed::RunCommand => self.inside(list("command"), None).await,
            Deed::ReadFile => self.inside(vec!["cat".into(), "--".into(), path(text("path")).into()], None).await,
            Deed::ListFiles => {
                let folder = if text("path").is_empty() { ".".to_owned() } else { path(text("path")) };
                self.inside(["ls", "-1Ap", "--", &folder].iter().map(Into::into).collect(), None).await
            }
            Deed::WriteFile => {
                let target = path(text("path"));
                let words = ["dd", "status=none", &format!("of={target}")].iter().map(Into::into).collect();
                self.inside(words, Some(text("content"))).await
            }
            Deed::Diff | Deed::Apply if !self.is_own(&text("run")) => {
                failed("no run of this conversation has this id; the result of each call names its run")
            }
            Deed::Diff => self.ours(vec!["diff".into(), "--json".into(), text("run").into()], &[0, 1]).await,
            Deed::Apply => {
                let digest = format!("--digest={}", text("digest"));
                let mut words: Vec<OsString> = vec!["apply".into(), "--json".into(), text("run").into(), digest.into()];
                let files = list("files");
                if !files.is_empty() {
                    words.push("--".into());
                    words.extend(files);
                }
                self.ours(words, &[0]).await
            }
            Deed::Explain if !is_an_id(&text("id")) => failed("an id looks like `fs.read/outside`"),
            Deed::Explain => self.ours(vec!["explain".into(), "--json".into(), text("id").into()], &[0]).await,
        }
    }

    fn is_own(&self, run: &str) -> bool {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).contains(run)
    }

    async fn inside(&self, command: Vec<OsString>, stdin: Option<String>) -> Done {
        let mut words = vec!["--".into()];
        words.extend(command);
        self.run(words, stdin).await
    }

    /// A run under the policy; its report, for the model.
    async fn run(&self, rest: Vec<OsString>, stdin: Option<String>) -> Done {
        let mut words: Vec<OsString> = vec!["run".into(), "--json".into()];
        words.extend(self.policy.iter().cloned());
        words.extend(rest);
        match self.start(words, stdin).await {
            Ok((_, report)) => {
                if let Some(run) = report.get("run").and_then(Json::as_str) {
                    self.runs.lock().unwrap_or_else(PoisonError::into_inner).insert(run.to_owned());
                }
                told(&report)
            }
            Err(why) => failed(&why),
        }
    }

    /// One of our other commands, whose answer is JSON.
    async fn ours(&self, words: Vec<OsString>, good: &[i32]) -> Done {
        match self.start(words, None).await {
            Ok((code, answer)) => {
                Done { text: format!("{answer:#}"), structured: Some(answer), is_error: !good.contains(&code) }
            }
            Err(why) => failed(&why),
        }
    }

    /// Dropped on the way, the supervisor dies, and the sandbox with it.
    async fn start(&self, words: Vec<OsString>, stdin: Option<String>) -> Result<(i32, Json), String> {
        let said = |what: &str, error: std::io::Error| format!("{what}: {}", error.to_string().to_lowercase());
        let mut command = Command::new(&self.program);
        command.args(words).env_clear().envs(&self.env).current_dir(&self.folder).kill_on_drop(true).process_group(0);
        command.stdin(if stdin.is_some() { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| said("it could not be started", error))?;
        let input = child.stdin.take();
        let Some(output) = child.stdout.take() else { return Err("it has no output".to_owned()) };
        let feed = async {
            if let (Some(mut input), Some(text)) = (input, stdin)
                && input.write_all(text.as_bytes()).await.is_err()
            {
                // A program that reads nothing closed its stdin: no failure.
            }
        };
        let mut report = Vec::new();
        let mut output = output.take(MOST);
        let (read, ()) = tokio::join!(output.read_to_end(&mut report), feed);
        read.map_err(|error| said("it could not be listened to", error))?;
        let status = child.wait().await.map_err(|error| said("it could not be waited for", error))?;
        let report = serde_json::from_slice(&report).map_err(|error| format!("it left no report: {error}"))?;
        Ok((status.code().unwrap_or(125), report))
    }
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
    lines.push_str(&format!("[{}; run {}]\n", text("/outcome/message"), text("/run")));
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
    let mut kept = serde_json::Map::new();
    for key in [
        "run",
        "outcome",
        "usage",
        "violations",
        "weakened",
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
    let is_error = text("/outcome/kind") != "exited" || report.pointer("/outcome/code") != Some(&json!(0));
    Done { text: lines, structured: Some(Json::Object(kept)), is_error }
}
