//! Showing changes to a person or a program. Nothing in it can act on a terminal.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::ChangesError;
use super::guarded::Guarding;
use super::interrupted::{Interrupted, interrupted};
use super::manifest::{BLOBS, Change, Entry, Kind, Manifest, Refused, load, target_bytes};
use super::marks::{Mark, marks};
use crate::fault::{is_unsafe_to_show, show_bytes, show_path};
use crate::protect::{self, List, Verdict};
use crate::state::{Cross, Dir, RunId, State, path_text};

/// Larger files are shown by their sizes.
const MAX_TEXT: u64 = 1 << 20;
/// Lines of one file that are shown.
const MAX_LINES: usize = 2000;

/// Changes as they are shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diff {
    /// Always 1.
    pub schema: u32,
    /// Run.
    pub run: String,
    /// Workspace, escaped.
    pub workspace: String,
    /// What `apply --digest` takes, with the same files named.
    pub digest: String,
    /// By path.
    pub entries: Vec<DiffEntry>,
    /// Not carried over, of what was asked for.
    pub refused: Vec<Refused>,
    /// An `apply` of it was killed half-way: a part may be in the workspace already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupted: Option<Interrupted>,
}

/// One change as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DiffEntry {
    /// The change.
    #[serde(flatten)]
    pub entry: Entry,
    /// Its path, escaped.
    pub name: String,
    /// What to look at.
    pub marks: Vec<Mark>,
    /// A unified diff, escaped; `None` for what is no text.
    pub diff: Option<String>,
}

/// The changes of a run, all or those at the paths given. `search` are the folders of the caller's PATH.
///
/// # Errors
/// [`ChangesError`].
pub fn diff(
    state: &State,
    run: &RunId,
    paths: Option<&[PathBuf]>,
    list: &List,
    search: &[PathBuf],
) -> Result<Diff, ChangesError> {
    let (manifest, dir) = load(state, run)?;
    let interrupted = interrupted(state, run)?;
    let chosen = manifest.choose(paths)?;
    let digest = manifest.digest(&chosen);
    let host = Dir::open(&manifest.workspace).ok();
    let blobs = dir.enter(BLOBS, Cross::No).ok();
    let guarding = Guarding::of(list, &manifest, host.as_ref(), blobs.as_ref());
    let seen = Seen::of(list, &guarding, &chosen);
    let show = |entry: &&Entry| {
        let new = content(blobs.as_ref(), entry.sha256.as_deref().map(Path::new), entry.kind, entry.size);
        let old = match &entry.base {
            Some(base) => content(host.as_ref(), Some(&entry.path), base.kind, base.size),
            None => Some(Vec::new()),
        };
        let found = seen.marks(list, search, entry, new.as_deref());
        let name = show_bytes(entry.path.as_os_str().as_encoded_bytes());
        let is_text = entry.kind == Kind::File || entry.base.as_ref().is_some_and(|b| b.kind == Kind::File);
        let new = if entry.change == Change::Removed { Some(Vec::new()) } else { new };
        let text = if is_text { old.zip(new).and_then(|(old, new)| unified(&name, entry, &old, &new)) } else { None };
        let mut entry = (*entry).clone();
        let hidden = guarding.hides(&entry.path);
        if hidden {
            // Nor the size and the hash of what the host has there.
            entry.base = None;
            if entry.change == Change::Removed {
                (entry.size, entry.sha256, entry.target) = (0, None, None);
            }
        }
        DiffEntry { entry, name, marks: found, diff: text.filter(|_| !hidden) }
    };
    let entries = chosen.iter().map(show).collect();
    let refused = manifest.left_behind(paths);
    let Manifest { run, workspace, .. } = &manifest;
    let workspace = show_bytes(workspace.as_os_str().as_encoded_bytes());
    Ok(Diff { schema: 1, run: run.clone(), workspace, digest, entries, refused, interrupted })
}

/// What is known of all changes together.
struct Seen<'a> {
    guarding: &'a Guarding<'a>,
    /// What control files name, and which.
    mentioned: BTreeMap<PathBuf, PathBuf>,
}

impl<'a> Seen<'a> {
    fn of(list: &List, guarding: &'a Guarding<'a>, chosen: &[&Entry]) -> Self {
        let folders = chosen.iter().flat_map(|entry| entry.path.ancestors().skip(1));
        let root = &guarding.manifest.workspace;
        let mentioned = guarding.host.map(|host| protect::mentioned(root, host, list, folders)).unwrap_or_default();
        Self { guarding, mentioned }
    }

    fn marks(&self, list: &List, search: &[PathBuf], entry: &Entry, content: Option<&[u8]>) -> Vec<Mark> {
        let Self { guarding, mentioned } = self;
        // Of what git does by itself nobody is asked.
        let held = if guarding.is_remembered(entry) { None } else { guarding.why(entry) };
        let mut found = marks((list, held), &guarding.manifest.workspace, search, entry, content);
        if let Some(by) = mentioned.get(&entry.path).filter(|_| entry.kind != Kind::Dir) {
            found.push(Mark { id: "executes", why: format!("{} names it", show_path(by)) });
        }
        if let Verdict::Contents(protect::Kind::Config) = guarding.verdict(entry) {
            let keys = guarding
                .contents(entry)
                .and_then(|(before, now)| protect::taken(&before, &now, &guarding.has_branch(entry)));
            found.extend(keys.map(|keys| Mark { id: "configures", why: keys }));
        }
        if let Verdict::Contents(protect::Kind::Index) = guarding.verdict(entry) {
            found.extend(guarding.left_out(entry).map(|why| Mark { id: "left-out", why }));
        }
        found.sort();
        found
    }
}

/// A path with what to look at before, or after, it is taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MarkedPath {
    /// Relative to the workspace.
    #[serde(with = "path_text")]
    pub path: PathBuf,
    /// In the order of their ids; never empty.
    pub marks: Vec<Mark>,
}

/// What [`diff`] marks, without the changes themselves.
///
/// # Errors
/// [`ChangesError`].
pub fn marked(
    state: &State,
    run: &RunId,
    paths: Option<&[PathBuf]>,
    list: &List,
    search: &[PathBuf],
) -> Result<Vec<MarkedPath>, ChangesError> {
    let (manifest, dir) = load(state, run)?;
    let host = Dir::open(&manifest.workspace).ok();
    let blobs = dir.enter(BLOBS, Cross::No).ok();
    let guarding = Guarding::of(list, &manifest, host.as_ref(), blobs.as_ref());
    let chosen = manifest.choose(paths)?;
    let seen = Seen::of(list, &guarding, &chosen);
    let looked_at = chosen.into_iter().map(|entry| {
        let new = content(blobs.as_ref(), entry.sha256.as_deref().map(Path::new), entry.kind, entry.size);
        let marks = seen.marks(list, search, entry, new.as_deref());
        MarkedPath { path: entry.path.clone(), marks }
    });
    Ok(looked_at.filter(|one| !one.marks.is_empty()).collect())
}

impl Diff {
    /// As text for a person.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = format!("run {} in {}\n", self.run, self.workspace);
        for shown in &self.entries {
            out.push('\n');
            shown.text(&mut out);
        }
        if !self.refused.is_empty() {
            out.push_str("\nnot carried over:\n");
        }
        for refused in &self.refused {
            put(
                &mut out,
                format_args!("  {}: {}\n", show_bytes(refused.path.as_os_str().as_encoded_bytes()), refused.why),
            );
        }
        put(&mut out, format_args!("\ndigest {}\n", self.digest));
        out
    }
}

impl DiffEntry {
    fn text(&self, out: &mut String) {
        let entry = &self.entry;
        let what = match entry.change {
            Change::Added => "added",
            Change::Modified => "modified",
            Change::Removed => "removed",
        };
        let kind = match entry.kind {
            Kind::File => "file",
            Kind::Dir => "folder",
            Kind::Symlink => "link",
            Kind::Special => "special file",
        };
        put(out, format_args!("{what} {kind} {}", self.name));
        if let Some(target) = entry.target.as_deref().and_then(target_bytes) {
            put(out, format_args!(" -> {}", show_bytes(target.as_encoded_bytes())));
        }
        if let Some(base) =
            entry.base.as_ref().filter(|b| entry.change == Change::Modified && b.mode & 0o777 != entry.mode)
        {
            put(out, format_args!(" (mode {:03o} -> {:03o})", base.mode & 0o777, entry.mode));
        }
        out.push('\n');
        for mark in &self.marks {
            put(out, format_args!("  ! {}: {}\n", mark.id, mark.why));
        }
        match &self.diff {
            Some(diff) => out.push_str(diff),
            None if entry.base.is_none() && entry.change != Change::Added => {
                out.push_str("  not shown: the policy hides what was there (fs.hide)\n");
            }
            None if entry.kind == Kind::File => {
                let before = entry.base.as_ref().map_or(0, |b| b.size);
                put(
                    out,
                    format_args!(
                        "  not shown as text: {before} -> {} bytes\n",
                        if entry.change == Change::Removed { 0 } else { entry.size }
                    ),
                );
            }
            None => {}
        }
    }
}

/// A small text file beneath a folder; `None` if it is none.
fn content(dir: Option<&Dir>, path: Option<&Path>, kind: Kind, size: u64) -> Option<Vec<u8>> {
    let (dir, path) = dir.zip(path)?;
    if kind != Kind::File || size > MAX_TEXT {
        return None;
    }
    dir.read(path, MAX_TEXT).ok()
}

fn unified(name: &str, entry: &Entry, old: &[u8], new: &[u8]) -> Option<String> {
    let text = |bytes| std::str::from_utf8(bytes).ok().filter(|text: &&str| !text.contains('\0'));
    let (old, new) = (text(old)?, text(new)?);
    let mut config = similar::TextDiff::configure();
    config.timeout(std::time::Duration::from_secs(2));
    let diff = config.diff_lines(old, new);
    let from = if entry.base.is_some() { format!("a/{name}") } else { "/dev/null".into() };
    let to = if entry.change == Change::Removed { "/dev/null".into() } else { format!("b/{name}") };
    let mut unified = diff.unified_diff();
    let full = unified.header(&from, &to).to_string();
    let mut out = String::with_capacity(full.len());
    let count = full.lines().count();
    for line in full.split('\n').take(MAX_LINES) {
        for c in line.chars() {
            if is_unsafe_to_show(c) && c != '\t' { out.extend(c.escape_unicode()) } else { out.push(c) }
        }
        out.push('\n');
    }
    if count > MAX_LINES {
        put(&mut out, format_args!("… {} more lines\n", count - MAX_LINES));
    }
    while out.ends_with("\n\n") {
        out.pop();
    }
    Some(out)
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a `String` cannot fail; if it did, the reader is told.
    if out.write_fmt(text).is_err() {
        out.push('?');
    }
}
