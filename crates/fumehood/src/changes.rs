//! What a run did to its workspace, as values: shown, or taken over and recorded.

use std::path::{Component, Path, PathBuf};

use jiff::Timestamp;
use sandbox::Environment;
use sandbox::audit::{self, Filter, Kind, Log, Options};
use sandbox::changes::{Applied, ChangesError, Diff, Manifest, MarkedPath, Request, apply_then, diff, marked};
use sandbox::fault::show_path;
use sandbox::protect::list;
use sandbox::state::{RunId, State};
use serde_json::{Value, json};

use crate::ui::{FAILED, Failure};

/// What was looked at is not what is there: as with a conflict nothing is applied. Anything else is our own failure.
pub(crate) fn failed(error: &ChangesError) -> Failure {
    let code = if matches!(error, ChangesError::Digest { .. }) { 1 } else { FAILED };
    Failure::Faults { code, faults: vec![error.fault()] }
}

/// The state folder of a caller.
pub(crate) fn state(environment: &Environment) -> Result<State, Failure> {
    State::open(&environment.state).map_err(|error| Failure::own(error.fault()))
}

/// What a run changed, or those of the paths.
pub(crate) fn shown(
    state: &State,
    run: &RunId,
    paths: Option<&[PathBuf]>,
    environment: &Environment,
) -> Result<Diff, Failure> {
    diff(state, run, paths, list(), &search(environment)).map_err(|error| failed(&error))
}

/// What is marked of what a request asks for.
pub(crate) fn marks(
    state: &State,
    run: &RunId,
    request: &Request,
    environment: &Environment,
) -> Result<Vec<MarkedPath>, Failure> {
    marked(state, run, request.paths.as_deref(), list(), &search(environment)).map_err(|error| failed(&error))
}

/// The folders of the caller's PATH.
fn search(environment: &Environment) -> Vec<PathBuf> {
    environment.variable("PATH").map(|path| std::env::split_paths(path).collect()).unwrap_or_default()
}

/// A run whose changes are none, or are gone, was a run all the same: its record says so.
pub(crate) fn nothing(state: &State, run: Option<&RunId>, of: &str) -> Result<Value, Failure> {
    if let Some(run) = run {
        let filter = Filter { run: Some(run.to_string()), limit: Some(1), ..Filter::default() };
        let events = audit::show(state, None, &filter).map_err(|error| Failure::own(error.fault()))?;
        if events.is_empty() {
            return Err(failed(&ChangesError::None { of: of.to_owned() }));
        }
    }
    Ok(json!({ "schema": 1, "run": run.map(RunId::to_string), "entries": [], "refused": [] }))
}

/// Takes over what was asked for. The log comes first: what cannot be recorded is not done.
pub(crate) fn taken(state: &State, run: &RunId, manifest: &Manifest, request: &Request) -> Result<Applied, Failure> {
    let own = |error: audit::AuditError| Failure::own(error.fault());
    let log = Log::open(state, None, Options::default()).map_err(own)?;
    let recorded = |applied: Applied| {
        if let Applied::Done { digest, paths, left, keys, refused: _ } = &applied {
            let body = json!({ "workspace": show_path(&manifest.workspace), "digest": digest, "paths": paths, "left": left, "keys": keys });
            log.append(run.as_str(), &Kind::workspace_applied(), &body).map_err(own)?;
        }
        Ok(applied)
    };
    apply_then(state, run, request, (list(), Timestamp::now()), recorded).map_err(|error| failed(&error))?
}

/// What came of it, for programs; `marks` of what was taken.
pub(crate) fn taken_json(run: &RunId, applied: &Applied, marks: &[MarkedPath]) -> Value {
    match applied {
        Applied::Done { digest, paths, left, keys, refused } => json!({
            "schema": 1, "run": run.as_str(), "applied": paths, "digest": digest, "left": left, "keys": keys, "refused": refused,
            "marks": marks,
        }),
        Applied::Conflicts(conflicts) => json!({ "schema": 1, "run": run.as_str(), "conflicts": conflicts }),
    }
}

/// A name of a file as a caller spells it, relative to the workspace: as seen from `here` in it, else from its top.
pub(crate) fn relative(name: &Path, here: Option<&Path>, workspace: &Path) -> PathBuf {
    let full = match name.strip_prefix(workspace) {
        Ok(below) => below.to_owned(),
        Err(_elsewhere) => here.unwrap_or(Path::new("")).join(name),
    };
    let mut plain = PathBuf::new();
    for part in full.components() {
        match part {
            Component::Normal(name) => plain.push(name),
            // Above the top there is nothing that a run could have changed: the name then fits no change.
            Component::ParentDir if !plain.pop() => plain.push(".."),
            Component::ParentDir | Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    plain
}

/// Names of files as a caller spells them, seen from where the caller stands.
pub(crate) fn files<'a>(
    named: impl IntoIterator<Item = &'a std::ffi::OsString>,
    environment: &Environment,
    workspace: &Path,
) -> Option<Vec<PathBuf>> {
    let here = environment.cwd.as_deref().and_then(|cwd| cwd.strip_prefix(workspace).ok().map(Path::to_owned));
    let files: Vec<_> = named.into_iter().map(|name| relative(Path::new(name), here.as_deref(), workspace)).collect();
    (!files.is_empty()).then_some(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_seen_from_where_the_caller_stands() {
        let of = |name: &str, here: Option<&str>| relative(Path::new(name), here.map(Path::new), Path::new("/srv/w"));
        assert_eq!(of("a", Some("")), Path::new("a"));
        assert_eq!(of("./a", Some("sub")), Path::new("sub/a"));
        assert_eq!(of("../a", Some("sub")), Path::new("a"));
        assert_eq!(of("/srv/w/x/y", Some("sub")), Path::new("x/y"));
        assert_eq!(of("a/../../b", None), Path::new("../b"));
    }
}
