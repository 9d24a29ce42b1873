//! `fumehood changes` and `fumehood discard --all`: what waits to be applied, of all runs.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::args::Positionals;
use super::spec::{Call, Spec};
use crate::changes::{failed, state};
use crate::ui::{Failure, Role, Table, count};
use sandbox::audit::{Kind, Log, Options};
use sandbox::changes::{ChangesError, Interrupted, aside_folder, discard, interrupted, load, put_aside, runs};
use sandbox::fault::{show_path, show_text};
use sandbox::state::{RunId, State};

pub(super) const SPEC: Spec = Spec {
    path: &["changes"],
    about: "List the runs whose changes wait to be applied",
    usage: "[PATH]",
    more: "The run that ended last comes first; with a path, those of the workspace around it alone. Control files that a run made in a\n\
           `rw` workspace are counted as put aside; a run that left nothing else is listed last, and with a path not at all.\n\
           `fumehood diff RUN` shows one, `apply RUN` takes it over, `discard RUN` throws it away, `discard --all` all of them.\n\
           Exit code 0.",
    tables: &[],
    words: Positionals::Mixed(1),
    hidden: false,
    run: list,
};

/// What waits of one run.
struct Pending {
    run: RunId,
    changes: Changes,
    /// Names of what was put aside.
    aside: Vec<OsString>,
    /// An `apply` of it was killed half-way.
    interrupted: Option<Interrupted>,
}

/// The list of a run's changes.
enum Changes {
    /// The workspace, how many paths changed, and how many are not carried over.
    Listed(PathBuf, usize, usize),
    /// It cannot be read.
    Damaged,
    /// There is none: something was put aside, and nothing else is left.
    Absent,
}

/// All that wait, those of the workspace around `path` alone if there is one.
fn pending(state: &State, path: Option<&Path>) -> Result<Vec<Pending>, Failure> {
    let mut found = Vec::new();
    let mut aside = put_aside(state).map_err(|error| failed(&error))?;
    for run in runs(state).map_err(|error| failed(&error))? {
        let changes = match load(state, &run) {
            Ok((manifest, _)) => Changes::Listed(manifest.workspace, manifest.entries.len(), manifest.refused.len()),
            Err(ChangesError::Damaged { .. }) => Changes::Damaged,
            // Applied or thrown away meanwhile.
            Err(ChangesError::None { .. }) => continue,
            Err(error) => return Err(failed(&error)),
        };
        let aside = aside.remove(&run).unwrap_or_default();
        let fits = path.is_none_or(|path| matches!(&changes, Changes::Listed(of, ..) if path.starts_with(of)));
        if fits {
            let interrupted = interrupted(state, &run).map_err(|error| failed(&error))?;
            found.push(Pending { run, changes, aside, interrupted });
        }
    }
    // Of which workspace these are is not written down.
    if path.is_none() {
        let rest = |(run, aside)| Pending { run, changes: Changes::Absent, aside, interrupted: None };
        found.extend(BTreeMap::into_iter(aside).rev().map(rest));
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
        let rows: Vec<Value> = found.iter().map(row).collect();
        call.console.json(&json!({ "schema": 1, "runs": rows }))?;
        return Ok(0);
    }
    if found.is_empty() {
        call.console.eprint("no changes wait\n");
        return Ok(0);
    }
    let mut table = Table::new(&["run", "changed", "put aside", "workspace"]);
    for Pending { run, changes, aside, .. } in &found {
        let (changed, workspace) = match changes {
            Changes::Listed(workspace, paths, _) => (paths.to_string(), show_path(workspace)),
            Changes::Damaged => ("?".to_owned(), "its list is damaged".to_owned()),
            Changes::Absent => ("0".to_owned(), String::new()),
        };
        let aside = aside.len().to_string();
        table.painted([
            (run.as_str(), Some(Role::Name)),
            (&changed, None),
            (&aside, None),
            (workspace.trim_matches('`'), None),
        ]);
    }
    call.console.data(table.render(call.console.out, 0, call.console.columns).as_bytes())?;
    for half in found.iter().filter_map(|one| one.interrupted.as_ref()) {
        call.console.eprint(&format!("note: {}\n", half.told()));
    }
    for Pending { run, .. } in found.iter().filter(|one| !one.aside.is_empty()) {
        let folder = show_path(&aside_folder(&state, run));
        call.console.eprint(&format!("note: what was put aside of {run} lies in {folder}\n"));
    }
    Ok(0)
}

fn row(Pending { run, changes, aside, interrupted }: &Pending) -> Value {
    let (workspace, paths, refused) = match changes {
        Changes::Listed(workspace, paths, refused) => {
            (json!(show_text(&workspace.to_string_lossy())), json!(paths), json!(refused))
        }
        Changes::Damaged => (Value::Null, Value::Null, Value::Null),
        Changes::Absent => (Value::Null, json!(0), json!(0)),
    };
    let aside: Vec<String> = aside.iter().map(|name| show_text(&name.to_string_lossy())).collect();
    let half = interrupted.is_some();
    json!({ "run": run.as_str(), "workspace": workspace, "paths": paths, "refused": refused, "aside": aside, "interrupted": half })
}

/// `discard --all [PATH]`: each is recorded before the next is looked at.
pub(super) fn drop_every(call: &Call<'_>) -> Result<u8, Failure> {
    let state = state(call.environment)?;
    let log = Log::open(&state, None, Options::default()).map_err(|error| Failure::own(error.fault()))?;
    let (mut gone, mut live, mut first) = (Vec::new(), Vec::new(), None);
    for Pending { run, .. } in pending(&state, named(call).as_deref())? {
        match discard(&state, &run) {
            Ok(()) => {}
            Err(ChangesError::None { .. }) => continue,
            // What goes on keeps its own; the others are thrown away all the same.
            Err(ChangesError::Lives { run }) => {
                live.push(run);
                continue;
            }
            // One that cannot be thrown away keeps none of the others; what it was is said in the end.
            Err(error) => {
                first.get_or_insert(error);
                continue;
            }
        }
        log.append(run.as_str(), &Kind::workspace_discarded(), &json!({}))
            .map_err(|error| Failure::own(error.fault()))?;
        gone.push(run.to_string());
    }
    if call.json && first.is_none() {
        call.console.json(&json!({ "schema": 1, "discarded": gone, "live": live }))?;
    } else if !call.json {
        let number = u64::try_from(gone.len()).unwrap_or(u64::MAX);
        call.console.eprint(&format!("the changes of {} are gone\n", count(number, "run", "runs")));
        for run in live {
            call.console.eprint(&format!("note: those of {run} stay: it goes on\n"));
        }
    }
    first.map_or(Ok(0), |error| Err(failed(&error)))
}
