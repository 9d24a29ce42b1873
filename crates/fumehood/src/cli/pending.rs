//! `fumehood changes` and `fumehood discard --all`: what waits to be applied, of all runs.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::args::Words;
use super::spec::{Call, Spec};
use crate::changes::{failed, state};
use crate::ui::{Failure, Role, Table, count};
use sandbox::audit::{Kind, Log, Options};
use sandbox::changes::{ChangesError, discard, discard_aside, load, runs};
use sandbox::fault::{show_path, show_text};
use sandbox::state::{RunId, State};

pub(super) const SPEC: Spec = Spec {
    path: &["changes"],
    about: "List the runs whose changes wait to be applied",
    usage: "[PATH]",
    more: "The run that ended last comes first; with a path, those of the workspace around it alone.\n\
           `fumehood diff RUN` shows one, `apply RUN` takes it over, `discard RUN` throws it away, `discard --all` all of them.\n\
           Exit code 0.",
    tables: &[],
    words: Words::Mixed(1),
    hidden: false,
    run: list,
};

/// The changes of one run; nothing is known of those whose list is damaged.
struct Pending {
    run: RunId,
    known: Option<(PathBuf, usize, usize)>,
}

/// All that wait, those of the workspace around `path` alone if there is one.
fn pending(state: &State, path: Option<&Path>) -> Result<Vec<Pending>, Failure> {
    let mut found = Vec::new();
    for run in runs(state).map_err(|error| failed(&error))? {
        let known = match load(state, &run) {
            Ok((manifest, _)) => Some((manifest.workspace, manifest.entries.len(), manifest.refused.len())),
            Err(ChangesError::Damaged { .. }) => None,
            // Applied or thrown away meanwhile.
            Err(ChangesError::None { .. }) => continue,
            Err(error) => return Err(failed(&error)),
        };
        let fits = path.is_none_or(|path| known.as_ref().is_some_and(|(workspace, ..)| path.starts_with(workspace)));
        if fits {
            found.push(Pending { run, known });
        }
    }
    Ok(found)
}

/// The path that a call names, without links where it is there.
fn named(call: &Call<'_>) -> Option<PathBuf> {
    let word = PathBuf::from(call.parsed.words.first()?);
    let full = call.environment.cwd.as_deref().unwrap_or(Path::new("/")).join(word);
    Some(std::fs::canonicalize(&full).unwrap_or(full))
}

fn list(call: &mut Call<'_>) -> Result<u8, Failure> {
    let state = state(call.environment)?;
    let found = pending(&state, named(call).as_deref())?;
    if call.json {
        let one = |Pending { run, known }: &Pending| {
            let (workspace, paths, refused) = match known {
                Some((workspace, paths, refused)) => {
                    (json!(show_text(&workspace.to_string_lossy())), json!(paths), json!(refused))
                }
                None => (Value::Null, Value::Null, Value::Null),
            };
            json!({ "run": run.as_str(), "workspace": workspace, "paths": paths, "refused": refused })
        };
        let rows: Vec<Value> = found.iter().map(one).collect();
        call.console.json(&json!({ "schema": 1, "runs": rows }))?;
        return Ok(0);
    }
    if found.is_empty() {
        call.console.eprint("no changes wait\n");
        return Ok(0);
    }
    let mut table = Table::new(&["run", "changed", "workspace"]);
    for Pending { run, known } in &found {
        let (changed, workspace) = match known {
            Some((workspace, paths, _)) => (paths.to_string(), show_path(workspace)),
            None => ("?".to_owned(), "its list is damaged".to_owned()),
        };
        table.painted([(run.as_str(), Some(Role::Name)), (&changed, None), (workspace.trim_matches('`'), None)]);
    }
    call.console.data(table.render(call.console.out, 0, call.console.columns).as_bytes())?;
    Ok(0)
}

/// `discard --all [PATH]`: each is recorded before the next is looked at.
pub(super) fn drop_every(call: &Call<'_>) -> Result<u8, Failure> {
    let state = state(call.environment)?;
    let log = Log::open(&state, None, Options::default()).map_err(|error| Failure::own(error.fault()))?;
    let (mut gone, mut live) = (Vec::new(), Vec::new());
    for Pending { run, .. } in pending(&state, named(call).as_deref())? {
        match discard(&state, &run) {
            Ok(()) => {}
            Err(ChangesError::None { .. }) => continue,
            // What goes on keeps its own; the others are thrown away all the same.
            Err(ChangesError::Lives { run }) => {
                live.push(run);
                continue;
            }
            Err(error) => return Err(failed(&error)),
        }
        log.append(run.as_str(), &Kind::workspace_discarded(), &json!({}))
            .map_err(|error| Failure::own(error.fault()))?;
        gone.push(run.to_string());
    }
    // What was put aside is of no workspace.
    if named(call).is_none() {
        discard_aside(&state).map_err(|error| failed(&error))?;
    }
    if call.json {
        call.console.json(&json!({ "schema": 1, "discarded": gone, "live": live }))?;
    } else {
        let number = u64::try_from(gone.len()).unwrap_or(u64::MAX);
        call.console.eprint(&format!("the changes of {} are gone\n", count(number, "run", "runs")));
        for run in live {
            call.console.eprint(&format!("note: those of {run} stay: it goes on\n"));
        }
    }
    Ok(0)
}
