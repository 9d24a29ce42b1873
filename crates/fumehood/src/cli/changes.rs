//! `fumehood diff | apply | discard`: what a run did to its workspace is shown, taken, or thrown away.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use jiff::Timestamp;
use serde_json::json;

use super::args::{Flag, To, Words, usage};
use super::spec::{Call, Spec};
use crate::audit::{self, Filter, Kind, Log, Options};
use crate::changes::{
    Applied, ChangesError, Conflict, Guarded, Manifest, Request, apply, diff, discard, discard_at, load, newest,
};
use crate::fault::{Fault, show_bytes, show_path, show_text};
use crate::protect::list;
use crate::state::{RunId, State};
use crate::ui::{Failure, Role, Table, count, hang};

const NAMES: &[Flag] = &[Flag::new("names", None, To::Ours, "Only the names of what changed")];
const APPLY: &[Flag] = &[
    Flag::new("digest", Some("DIGEST"), To::Ours, "Take exactly what `diff --json` showed under this digest"),
    Flag::new("leave-protected", None, To::Ours, "Leave protected paths out instead of refusing"),
    Flag::new("take-protected", Some("PATH"), To::Ours, "Take this protected path; may be repeated").many(),
    Flag::new("leaving-links", None, To::Ours, "Take links that lead out of the workspace"),
];

pub(super) const DIFF: Spec = Spec {
    path: &["diff"],
    about: "Show what a run changed in its workspace",
    usage: "[RUN|PATH] [-- FILES...]",
    more: "Without a word it is the newest run of the workspace around the current directory.\n\
           Exit code 0 if nothing changed or nothing of it is left, 1 if something did, also where it is not carried over,\n\
           125 if the run is not known.",
    tables: &[NAMES],
    words: Words::MixedThenMore(1),
    hidden: false,
    run: show,
};

pub(super) const TAKE: Spec = Spec {
    path: &["apply"],
    about: "Take what a run changed over into the workspace",
    usage: "[RUN|PATH] [--digest DIGEST] [-- FILES...]",
    more: "All or nothing, and never over what somebody changed meanwhile.\n\
           Exit code 0, or 1 with every reason and nothing applied.",
    tables: &[APPLY],
    words: Words::MixedThenMore(1),
    hidden: false,
    run: take,
};

pub(super) const DISCARD: Spec = Spec {
    path: &["discard"],
    about: "Throw away what a run changed",
    usage: "[RUN|PATH] [-- FILES...]",
    more: "The whole run's changes, or those of the named files and folders.",
    tables: &[],
    words: Words::MixedThenMore(1),
    hidden: false,
    run: drop_all,
};

/// What was looked at is not what is there: as with a conflict nothing is applied. Anything else is our own failure.
fn failed(error: &ChangesError) -> Failure {
    let code = if matches!(error, ChangesError::Digest { .. }) { 1 } else { 125 };
    Failure::Faults { code, faults: vec![error.fault()] }
}

fn state(call: &Call<'_>) -> Result<State, Failure> {
    State::open(&call.world.state).map_err(|error| Failure::own(error.fault()))
}

/// Why no run was found.
enum Stop {
    Changes(ChangesError),
    Named(Failure),
}

impl From<Stop> for Failure {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Changes(error) => failed(&error),
            Stop::Named(failure) => failure,
        }
    }
}

fn run(call: &Call<'_>, state: &State, command: &str) -> Result<RunId, Failure> {
    newest_or_named(call, state, command).map_err(Failure::from)
}

/// The run that a call names by its id.
fn named(call: &Call<'_>) -> Option<RunId> {
    call.parsed.words.first()?.to_str()?.parse().ok()
}

/// A run whose changes are none, or are gone, was a run all the same: its record says so.
fn nothing(call: &Call<'_>, state: &State, of: &str) -> Result<u8, Failure> {
    if let Some(run) = named(call) {
        let filter = Filter { run: Some(run.to_string()), limit: Some(1), ..Filter::default() };
        let events = audit::show(state, None, &filter).map_err(|error| Failure::own(error.fault()))?;
        if events.is_empty() {
            return Err(failed(&ChangesError::None { of: of.to_owned() }));
        }
    }
    if call.json {
        let run = named(call).map(|run| run.to_string());
        call.voice.json(&json!({ "schema": 1, "run": run, "entries": [], "refused": [] }))?;
    } else {
        call.voice
            .say(&format!("no changes of {of}: nothing was changed, or it was applied, discarded or is too old\n"));
    }
    Ok(0)
}

/// The run that a call names: by its id, by a path in its workspace, or by where the caller stands.
fn newest_or_named(call: &Call<'_>, state: &State, command: &str) -> Result<RunId, Stop> {
    if let Some(id) = named(call) {
        return Ok(id);
    }
    let word = match call.parsed.words.first() {
        Some(word) => word.clone(),
        None => super::load::here(call.world, "it tells which workspace is meant").map_err(Stop::Named)?.into(),
    };
    let path = std::fs::canonicalize(&word).map_err(|error| {
        Stop::Named(Failure::own(Fault {
            id: "changes/no-such-place",
            what: format!("{} is neither a run nor a path", show_path(Path::new(&word))),
            place: "command line".to_owned(),
            why: error.to_string().to_lowercase(),
            fix: "a run's id stands in its report and in `fumehood audit show`; files follow `--`".to_owned(),
        }))
    })?;
    if !path.is_dir() {
        // All that the run did is more than whoever names a file means.
        let fix = format!("`fumehood {} -- {}`", command, show_bytes(word.as_bytes()));
        return Err(Stop::Named(Failure::own(usage(
            "usage/file-for-workspace",
            format!("{} is a file", show_path(Path::new(&word))),
            "the word names a run or a workspace; files follow `--`".to_owned(),
            fix,
        ))));
    }
    newest(state, &path).map_err(Stop::Changes)
}

/// The files after `--`, relative to the workspace: as seen from here if here lies in it, else from its top.
fn files(call: &Call<'_>, workspace: &Path) -> Option<Vec<PathBuf>> {
    let named = call.parsed.after.as_ref().filter(|named| !named.is_empty())?;
    let here = call.world.cwd.as_deref().and_then(|cwd| cwd.strip_prefix(workspace).ok().map(Path::to_owned));
    Some(named.iter().map(|name| relative(Path::new(name), here.as_deref(), workspace)).collect())
}

fn relative(name: &Path, here: Option<&Path>, workspace: &Path) -> PathBuf {
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

fn show(call: &mut Call<'_>) -> Result<u8, Failure> {
    let state = state(call)?;
    let found = newest_or_named(call, &state, "diff").and_then(|run| {
        let (manifest, _) = load(&state, &run).map_err(Stop::Changes)?;
        Ok((run, manifest))
    });
    let (run, manifest) = match found {
        Ok(found) => found,
        Err(Stop::Changes(ChangesError::None { of })) => return nothing(call, &state, &of),
        Err(stop) => return Err(stop.into()),
    };
    let paths = files(call, &manifest.workspace);
    let search: Vec<PathBuf> =
        call.world.variable("PATH").map(|path| std::env::split_paths(path).collect()).unwrap_or_default();
    let found = diff(&state, &run, paths.as_deref(), list(), &search).map_err(|error| failed(&error))?;
    if call.json {
        call.voice.data(format!("{}\n", serde_json::to_string_pretty(&found).unwrap_or_default()).as_bytes())?;
    } else if call.parsed.has("names") {
        let names: String = found.entries.iter().map(|shown| format!("{}\n", show_text(&shown.name))).collect();
        call.voice.data(names.as_bytes())?;
        if !found.refused.is_empty() {
            let are = if found.refused.len() == 1 { "is" } else { "are" };
            call.voice
                .say(&format!("{} {are} not carried over: `fumehood diff` says why\n", paths_of(found.refused.len())));
        }
    } else {
        call.voice.data(found.text().as_bytes())?;
    }
    Ok(u8::from(!found.entries.is_empty() || !found.refused.is_empty()))
}

fn take(call: &mut Call<'_>) -> Result<u8, Failure> {
    let state = state(call)?;
    let run = run(call, &state, "apply")?;
    let (manifest, _) = load(&state, &run).map_err(|error| failed(&error))?;
    // The log comes first: what cannot be recorded is not done.
    let log = Log::open(&state, None, Options::default()).map_err(|error| Failure::own(error.fault()))?;
    let request = Request {
        paths: files(call, &manifest.workspace),
        digest: call.parsed.value("digest").map(|digest| show_bytes(digest.as_bytes())),
        guarded: guarded(call, &manifest.workspace),
        leaving_links: call.parsed.has("leaving-links"),
    };
    let applied = apply(&state, &run, &request, list(), Timestamp::now()).map_err(|error| failed(&error))?;
    match &applied {
        Applied::Done { digest, paths, left, refused } => {
            let body =
                json!({ "workspace": show_path(&manifest.workspace), "digest": digest, "paths": paths, "left": left });
            log.append(run.as_str(), &Kind::workspace_applied(), &body).map_err(|error| Failure::own(error.fault()))?;
            if call.json {
                call.voice.json(&json!({
                    "schema": 1, "run": run.as_str(), "applied": paths, "digest": digest, "left": left, "refused": refused,
                }))?;
            } else {
                let mut text = format!("{} applied to {}", paths_of(paths.len()), show_path(&manifest.workspace));
                if *left > 0 {
                    text.push_str(&format!("; {left} protected left"));
                }
                if !refused.is_empty() {
                    text.push_str(&format!("; {} not carried over:", refused.len()));
                }
                for refused in refused {
                    let path = show_bytes(refused.path.as_os_str().as_bytes());
                    text.push_str(&format!("\n  {path}: {}", show_text(&refused.why)));
                }
                call.voice.say(&format!("{text}\n"));
            }
            Ok(0)
        }
        Applied::Conflicts(conflicts) => {
            tell(call, &manifest, conflicts)?;
            Ok(1)
        }
    }
}

fn guarded(call: &Call<'_>, workspace: &Path) -> Guarded {
    let taken = call.parsed.flags.iter().filter(|(flag, _)| flag.long == "take-protected");
    let taken: Vec<PathBuf> = taken
        .filter_map(|(_, value)| value.as_ref())
        .map(|value| relative(Path::new(value), None, workspace))
        .collect();
    match (taken.is_empty(), call.parsed.has("leave-protected")) {
        (false, _) => Guarded::Take(taken),
        (true, true) => Guarded::Leave,
        (true, false) => Guarded::Refuse,
    }
}

fn paths_of(number: usize) -> String {
    count(u64::try_from(number).unwrap_or(u64::MAX), "path", "paths")
}

fn tell(call: &Call<'_>, manifest: &Manifest, conflicts: &[Conflict]) -> Result<(), Failure> {
    let run = &manifest.run;
    if call.json {
        call.voice.json(&json!({ "schema": 1, "run": run, "conflicts": conflicts }))?;
        return Ok(());
    }
    let mut table = Table::new(&["", "", ""]);
    for Conflict { path, id, why } in conflicts {
        table.painted([(id, Some(Role::Bad)), (show_path(path).trim_matches('`'), None), (&show_text(why), None)]);
    }
    let head = call.voice.err.paint(Role::Bad, "conflict:");
    let text = table.render(call.voice.err, 2, call.voice.columns);
    let label = format!("  {} ", call.voice.err.paint(Role::Aside, "fix:"));
    let fix = hang(&label, 7, &ways_out(manifest, conflicts).join("; "), call.voice.columns);
    call.voice.say(&format!("{head} nothing was applied\n{text}{fix}"));
    Ok(())
}

/// What can be done where nothing was applied; only what would do something.
fn ways_out(manifest: &Manifest, conflicts: &[Conflict]) -> Vec<String> {
    let run = &manifest.run;
    let of = |id: &str| conflicts.iter().filter(|conflict| conflict.id == id).count();
    let in_the_way = conflicts.len().saturating_sub(of("not-carried"));
    let more = manifest.entries.len() > in_the_way;
    let mut ways = Vec::new();
    if of("protected") > 0 {
        ways.push("`--take-protected PATH` takes a protected path".to_owned());
    }
    if of("protected") > 0 && more {
        ways.push("`--leave-protected` takes the others".to_owned());
    }
    if of("link-leaves") > 0 {
        ways.push("`--leaving-links` takes links that lead out".to_owned());
    }
    if more {
        ways.push(format!("`fumehood apply {run} -- FILES` takes what is named alone"));
    }
    ways.push(format!("`fumehood discard {run}` drops it all"));
    ways
}

fn drop_all(call: &mut Call<'_>) -> Result<u8, Failure> {
    let state = state(call)?;
    let run = run(call, &state, "discard")?;
    let log = Log::open(&state, None, Options::default()).map_err(|error| Failure::own(error.fault()))?;
    let named = if call.parsed.after.as_ref().is_some_and(|named| !named.is_empty()) {
        let (manifest, _) = load(&state, &run).map_err(|error| failed(&error))?;
        let paths = files(call, &manifest.workspace).unwrap_or_default();
        Some(discard_at(&state, &run, &paths).map_err(|error| failed(&error))?)
    } else {
        // A damaged list is no reason to keep it.
        discard(&state, &run).map(|()| None).map_err(|error| failed(&error))?
    };
    let mut body = json!({});
    if let (Some(map), Some(paths)) = (body.as_object_mut(), &named) {
        let shown: Vec<String> = paths.iter().map(|path| show_bytes(path.as_os_str().as_bytes())).collect();
        map.insert("paths".to_owned(), json!(shown));
    }
    log.append(run.as_str(), &Kind::workspace_discarded(), &body).map_err(|error| Failure::own(error.fault()))?;
    if call.json {
        let paths = body.get("paths");
        call.voice.json(&json!({ "schema": 1, "run": run.as_str(), "discarded": true, "paths": paths }))?;
    } else {
        let what = match named.map(|paths| paths.len()) {
            None => format!("the changes of {run} are gone"),
            Some(1) => format!("1 path of {run} is gone"),
            Some(number) => format!("{} of {run} are gone", paths_of(number)),
        };
        call.voice.say(&format!("{what}\n"));
    }
    Ok(0)
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
