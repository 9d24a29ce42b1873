//! What the audit log holds of a run.

use std::fmt;
use std::path::{Path, PathBuf};

use sandbox::PolicyLayer;
use sandbox::audit::{AuditError, Event, Filter, show, verify};
use sandbox::fault::{show_path, show_text};
use sandbox::run::{AskedLayer, asked_layer};
use sandbox::state::{RunId, State};
use serde_json::Value;

use super::{one, there, unreadable};
use crate::environment::Environment;
use crate::ui::Failure;

/// A run as it was recorded.
#[derive(Debug)]
pub(super) struct RecordedRun {
    /// What `run.planned` says.
    pub(super) body: Value,
    /// Every event of the run.
    pub(super) events: Vec<Event>,
}

/// What the caller asked for.
#[derive(Debug)]
pub(super) struct RecordedRequest {
    pub(super) folder: PathBuf,
    pub(super) layers: Vec<PolicyLayer>,
    pub(super) hidden: Vec<RedactedLayer>,
}

/// A layer whose value is not recorded.
#[derive(Debug)]
pub(super) struct RedactedLayer {
    flag: String,
    name: String,
}

impl fmt::Display for RedactedLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.is_empty() { f.write_str(&self.flag) } else { write!(f, "{} {}", self.flag, self.name) }
    }
}

impl RedactedLayer {
    /// Whether a call gives the value.
    pub(super) fn is_given(&self, values: &[PolicyLayer]) -> bool {
        values.iter().any(|layer| match layer {
            PolicyLayer::Flag { name, value } => {
                *name == self.flag && value.split_once('=').is_some_and(|(name, _)| name == self.name)
            }
            PolicyLayer::Document(_) | PolicyLayer::Set(_) => false,
        })
    }
}

/// Reads the record of a run from a log whose chain is intact: one that was edited would decide what runs.
///
/// # Errors
/// There is no such run, or its log is not what was written.
pub(super) fn read(run: &RunId, folder: Option<&Path>, environment: &Environment) -> Result<RecordedRun, Failure> {
    let failed = |error: AuditError| Failure::own(error.fault());
    let state = State::open(&environment.state).map_err(|error| Failure::own(error.fault()))?;
    if let Some(broken) = verify(&state, folder, None).map_err(failed)?.broken {
        let what = format!("the log is broken at {}, line {}", show_path(&broken.file), broken.line);
        return Err(one("replay/broken", &what, &show_text(&broken.why), "`fumehood audit verify` says more"));
    }
    let filter = Filter { run: Some(run.to_string()), ..Filter::default() };
    let events = show(&state, folder, &filter).map_err(failed)?;
    // An interpreter that waited for its program was planned without it first.
    let planned = events.iter().rfind(|event| event.kind == "run.planned");
    let Some(body) = planned.map(|event| event.body.clone()) else {
        let what = format!("no run {run} was planned");
        return Err(one(
            "replay/no-run",
            &what,
            "the audit log has none of that id",
            "`fumehood audit show --kind run.planned`; `--dir` for another log",
        ));
    };
    if body.get("cut").is_some() {
        return Err(unreadable("it was too long for one event of the log, and was cut"));
    }
    Ok(RecordedRun { body, events })
}

impl RecordedRun {
    /// What ran.
    pub(super) fn what(&self) -> &Value {
        self.body.get("what").unwrap_or(&Value::Null)
    }

    /// Documents, flags and the folder to which they are relative.
    ///
    /// # Errors
    /// They were not recorded.
    pub(super) fn asked(&self) -> Result<RecordedRequest, Failure> {
        let asked = self.body.get("asked").filter(|asked| !asked.is_null());
        let asked = asked.ok_or_else(|| unreadable("whoever started it recorded no documents and flags"))?;
        let folder = asked.get("folder").and_then(Value::as_str);
        let folder = there(folder.ok_or_else(|| unreadable("it does not say where the caller stood"))?)?;
        let (mut layers, mut hidden) = (Vec::new(), Vec::new());
        for layer in asked.get("layers").and_then(Value::as_array).into_iter().flatten() {
            match asked_layer(layer).ok_or_else(|| unreadable("it has a layer that this version does not know"))? {
                AskedLayer::Known(layer) => layers.push(layer),
                AskedLayer::Hidden(flag, name) => hidden.push(RedactedLayer { flag, name }),
            }
        }
        Ok(RecordedRequest { folder, layers, hidden })
    }
}
