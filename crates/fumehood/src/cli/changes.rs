//! `fumehood diff | apply | discard`: what a run did to its workspace is shown, taken, or thrown away.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::args::{Flag, Positionals, To, usage};
use super::live::{apply_live, is_live, read_live};
use super::pending::drop_every;
use super::spec::{Call, Spec};
use crate::changes::{self, failed, relative, state};
use crate::ui::{Failure, Palette, Role, Table, count, hang};
use sandbox::audit::{Kind, Log, Options};
use sandbox::changes::{
    Applied, ChangesError, Conflict, Guarded, Manifest, MarkedPath, Request, discard, discard_at, interrupted, load,
    newest,
};
use sandbox::fault::{Fault, show_bytes, show_path, show_text};
use sandbox::state::{RunId, State};

/// Marks that `apply` shows a person; `--json` has all.
const MAX_MARKS: usize = 20;

const NAMES: &[Flag] = &[Flag::new("names", None, To::Ours, "Only the names of what changed")];
const APPLY: &[Flag] = &[
    Flag::new("digest", Some("DIGEST"), To::Ours, "Take exactly what `diff --json` showed under this digest"),
    Flag::new("leave-protected", None, To::Ours, "Leave protected paths out instead of refusing"),
    Flag::new("take-protected", Some("PATH"), To::Ours, "Take this protected path; may be repeated").many(),
    Flag::new("leaving-links", None, To::Ours, "Take links that lead out of the workspace"),
];

const DISCARDING: &[Flag] =
    &[Flag::new("all", None, To::Ours, "The changes of all runs; with a path, of its workspace")];

pub(super) const DIFF: Spec = Spec {
    path: &["diff"],
    about: "Show what a run changed in its workspace",
    usage: "[RUN|PATH] [-- FILES...]",
    more: "Without a word it is the newest run of the workspace around the current directory.\n\
           Exit code 0 if nothing changed or nothing of it is left, 1 if something did, also where it is not carried over,\n\
           125 if the run is not known.",
    tables: &[NAMES],
    words: Positionals::MixedThenMore(1),
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
    words: Positionals::MixedThenMore(1),
    hidden: false,
    run: take,
};

pub(super) const DISCARD: Spec = Spec {
    path: &["discard"],
    about: "Throw away what a run changed",
    usage: "[RUN|PATH] [-- FILES...] | --all [PATH]",
    more: "The whole run's changes, or those of the named files and folders. `fumehood changes` lists the runs.\n\
           Exit code 0, or 125 if the run is not known.",
    tables: &[DISCARDING],
    words: Positionals::MixedThenMore(1),
    hidden: false,
    run: drop_all,
};

/// Why no run was found.
enum FindRunError {
    Changes(ChangesError),
    Named(Failure),
}

impl From<FindRunError> for Failure {
    fn from(stop: FindRunError) -> Self {
        match stop {
            FindRunError::Changes(error) => failed(&error),
            FindRunError::Named(failure) => failure,
        }
    }
}

fn run(call: &Call<'_>, state: &State, command: &str) -> Result<RunId, Failure> {
    newest_or_named(call, state, command).map_err(Failure::from)
}

/// The run that a call names by its id, or by that of its live sandbox.
fn named(call: &Call<'_>) -> Option<RunId> {
    let word = call.parsed.words.first()?.to_str()?;
    word.parse().ok().or_else(|| run_of_live(call, word))
}

/// The run of a live sandbox. A name of one that is a path as well is the path, as it always was.
fn run_of_live(call: &Call<'_>, word: &str) -> Option<RunId> {
    if !live::record::is_id(word) && (!live::record::is_name(word) || Path::new(word).exists()) {
        return None;
    }
    let home = live::Home::new(&state(call.environment).ok()?).ok()?;
    home.find(word).ok()?.run.parse().ok()
}

/// The run that a call names: by its id, by a path in its workspace, or by where the caller stands.
fn newest_or_named(call: &Call<'_>, state: &State, command: &str) -> Result<RunId, FindRunError> {
    if let Some(id) = named(call) {
        return Ok(id);
    }
    let word = match call.parsed.words.first() {
        Some(word) => word.clone(),
        None => sandbox::here(call.environment, "it tells which workspace is meant")
            .map_err(|stop| FindRunError::Named(stop.into()))?
            .into(),
    };
    let path = std::fs::canonicalize(&word).map_err(|error| {
        FindRunError::Named(Failure::own(Fault {
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
        return Err(FindRunError::Named(Failure::own(usage(
            "usage/file-for-workspace",
            format!("{} is a file", show_path(Path::new(&word))),
            "the word names a run or a workspace; files follow `--`".to_owned(),
            fix,
        ))));
    }
    newest(state, &path).map_err(FindRunError::Changes)
}

/// The files after `--`, relative to the workspace: as seen from here if here lies in it, else from its top.
fn files(call: &Call<'_>, workspace: &Path) -> Option<Vec<PathBuf>> {
    changes::files(call.parsed.after.iter().flatten(), call.environment, workspace)
}

/// Lines that were added and taken away, in colour. No other line of the text begins as they do.
fn coloured(text: &str, palette: Palette) -> String {
    if !palette.is_on() {
        return text.to_owned();
    }
    let line = |line: &str| match line.as_bytes() {
        [b'+', ..] => palette.paint(Role::Good, line),
        [b'-', ..] => palette.paint(Role::Bad, line),
        [b'@', b'@', ..] => palette.paint(Role::Aside, line),
        [] | [_, ..] => line.to_owned(),
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// No changes are left of what a call names.
fn nothing(call: &Call<'_>, state: &State, of: &str) -> Result<u8, Failure> {
    let told = changes::nothing(state, named(call).as_ref(), of)?;
    if call.json {
        call.console.json(&told)?;
    } else {
        call.console
            .eprint(&format!("no changes of {of}: nothing was changed, or it was applied, discarded or is too old\n"));
    }
    Ok(0)
}

fn show(call: &mut Call<'_>) -> Result<u8, Failure> {
    let state = state(call.environment)?;
    let found = newest_or_named(call, &state, "diff").and_then(|run| {
        read_live(call, &run).map_err(FindRunError::Named)?;
        let (manifest, _) = load(&state, &run).map_err(FindRunError::Changes)?;
        Ok((run, manifest))
    });
    let (run, manifest) = match found {
        Ok(found) => found,
        Err(FindRunError::Changes(ChangesError::None { of })) => return nothing(call, &state, &of),
        Err(stop) => return Err(stop.into()),
    };
    let paths = files(call, &manifest.workspace);
    let found = changes::shown(&state, &run, paths.as_deref(), call.environment)?;
    if call.json {
        call.console.json(&found)?;
    } else if call.parsed.has("names") {
        let names: String = found.entries.iter().map(|shown| format!("{}\n", show_text(&shown.name))).collect();
        call.console.data(names.as_bytes())?;
        if !found.refused.is_empty() {
            let are = if found.refused.len() == 1 { "is" } else { "are" };
            call.console.eprint(&format!(
                "{} {are} not carried over: `fumehood diff` says why\n",
                paths_of(found.refused.len())
            ));
        }
    } else {
        call.console.data(coloured(&found.text(), call.console.out).as_bytes())?;
    }
    if let Some(half) = found.interrupted.as_ref().filter(|_| !call.json) {
        call.console.eprint(&format!("note: {}\n", half.told()));
    }
    Ok(u8::from(!found.entries.is_empty() || !found.refused.is_empty()))
}

fn take(call: &mut Call<'_>) -> Result<u8, Failure> {
    let state = state(call.environment)?;
    let run = run(call, &state, "apply")?;
    read_live(call, &run)?;
    let (manifest, _) = load(&state, &run).map_err(|error| failed(&error))?;
    let request = Request {
        paths: files(call, &manifest.workspace),
        digest: call.parsed.value("digest").map(|digest| show_bytes(digest.as_bytes())),
        guarded: guarded(call, &manifest.workspace),
        leaving_links: call.parsed.has("leaving-links"),
    };
    let mut marks = changes::marks(&state, &run, &request, call.environment)?;
    let (applied, number) = match apply_live(call, &run, &request)? {
        Some(applied) => applied,
        None => {
            let applied = changes::taken(&state, &run, &manifest, &request)?;
            let number = if let Applied::Done { paths, .. } = &applied { paths.len() } else { 0 };
            (applied, number)
        }
    };
    let code = u8::from(matches!(applied, Applied::Conflicts(_)));
    marks.retain(|one| is_among(&one.path, &applied, number));
    if call.json {
        call.console.json(&changes::taken_json(&run, &applied, &marks))?;
        return Ok(code);
    }
    match &applied {
        Applied::Done { .. } => call.console.eprint(&done(&manifest.workspace, &applied, number, &marks)),
        Applied::Conflicts(conflicts) => tell(call, &manifest, conflicts),
    }
    Ok(code)
}

/// Whether a path was taken. The list of a live sandbox may be shorter than what was taken: then it may have been.
fn is_among(path: &Path, applied: &Applied, number: usize) -> bool {
    match applied {
        Applied::Done { paths, .. } => paths.len() < number || paths.iter().any(|taken| taken.0 == path),
        Applied::Conflicts(_) => false,
    }
}

/// What was taken, for a person.
fn done(workspace: &Path, applied: &Applied, number: usize, marks: &[MarkedPath]) -> String {
    let mut text = format!("{} applied to {}", paths_of(number), show_path(workspace));
    if let Applied::Done { digest: _, paths: _, left, keys, refused } = applied {
        if *left > 0 {
            text.push_str(&format!("; {left} protected left"));
        }
        for left in keys {
            text.push_str(&format!("; of {} without {}", show_path(&left.path), left.keys));
        }
        if !refused.is_empty() {
            text.push_str(&format!("; {} not carried over:", refused.len()));
        }
        for refused in refused {
            let path = show_bytes(refused.path.as_os_str().as_bytes());
            text.push_str(&format!("\n  {path}: {}", show_text(&refused.why)));
        }
    }
    for MarkedPath { path, marks } in marks.iter().take(MAX_MARKS) {
        let path = show_bytes(path.as_os_str().as_bytes());
        let told: Vec<String> = marks.iter().map(|mark| format!("{}: {}", mark.id, show_text(&mark.why))).collect();
        text.push_str(&format!("\n  ! {path}: {}", told.join("; ")));
    }
    let more = marks.len().saturating_sub(MAX_MARKS);
    if more > 0 {
        text.push_str(&format!("\n  ! {more} more: `--json` has all"));
    }
    text.push('\n');
    text
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

fn tell(call: &Call<'_>, manifest: &Manifest, conflicts: &[Conflict]) {
    let mut table = Table::new(&["", "", ""]);
    for Conflict { path, id, why } in conflicts {
        table.painted([(id, Some(Role::Bad)), (show_path(path).trim_matches('`'), None), (&show_text(why), None)]);
    }
    let head = call.console.err.paint(Role::Bad, "conflict:");
    let text = table.render(call.console.err, 2, call.console.columns);
    let label = format!("  {} ", call.console.err.paint(Role::Aside, "fix:"));
    let fix = hang(&label, 7, &ways_out(manifest, conflicts).join("; "), call.console.columns);
    call.console.eprint(&format!("{head} nothing was applied\n{text}{fix}"));
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
    if of("locked") > 0 {
        ways.push("try again when git has ended, and remove a lock of one that ended long ago".to_owned());
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
    if call.parsed.has("all") {
        let one = if named(call).is_some() {
            "a run"
        } else if call.parsed.after.is_some() {
            "files after `--`"
        } else {
            return drop_every(call);
        };
        return Err(Failure::own(usage(
            "usage/two-flags",
            format!("both `--all` and {one}"),
            "`--all` means every run and all of its changes".to_owned(),
            "keep one".to_owned(),
        )));
    }
    let state = state(call.environment)?;
    let run = run(call, &state, "discard")?;
    if let Some(id) = is_live(call, &run)? {
        return Err(Failure::own(Fault {
            id: "changes/lives",
            what: format!("the changes of {run} cannot be thrown away while its sandbox lives"),
            place: format!("sandbox {id}"),
            why: "they are what its programs see, and would be told again by the next `diff`".to_owned(),
            fix: format!("undo them inside by `fumehood exec {id}`; or `fumehood kill {id}`, and then discard"),
        }));
    }
    let half = interrupted(&state, &run).map_err(|error| failed(&error))?;
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
        call.console.json(&json!({ "schema": 1, "run": run.as_str(), "discarded": true, "paths": paths }))?;
    } else {
        let what = match named.map(|paths| paths.len()) {
            None => format!("the changes of {run} are gone"),
            Some(1) => format!("1 path of {run} is gone"),
            Some(number) => format!("{} of {run} are gone", paths_of(number)),
        };
        let stays = "; what an `apply` took of them before it was ended half-way stays in the workspace";
        call.console.eprint(&format!("{what}{}\n", half.map_or("", |_| stays)));
    }
    Ok(0)
}
