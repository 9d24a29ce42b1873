//! An `apply` that was killed between two exchanges: which paths it was about to exchange stands beside the run's changes
//! until it has ended, so that it is told, and its other half is kept.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::PathBuf;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::{Errno, Result as KernelResult};
use serde::{Deserialize, Serialize};

use super::ChangesError;
use super::manifest::{Entry, MAX_MANIFEST, load, runs};
use crate::state::{Cross, Dir, PathText, RunId, State, errno_of, lives};

/// The list, in the folder of a run's changes.
const UNDER_WAY: &str = "applying.json";

#[derive(Debug, Default, Serialize, Deserialize)]
struct Exchanging {
    /// The journal of the `apply`.
    by: String,
    paths: BTreeSet<PathText>,
}

/// What an `apply` writes down before it exchanges anything.
pub(super) struct UnderWay<'a> {
    /// Of the run's changes, and its place.
    folder: &'a Dir,
    place: PathBuf,
    by: RunId,
    /// What earlier ones that were killed left.
    before: Exchanging,
}

impl<'a> UnderWay<'a> {
    pub(super) fn new((state, folder): (&State, &'a Dir), run: &str, by: &RunId) -> Self {
        let place = state.path().join("changes").join(run);
        Self { folder, place, by: by.clone(), before: read(folder).unwrap_or_default() }
    }

    pub(super) fn begin(&self, todo: &[&Entry]) -> Result<(), ChangesError> {
        let paths = todo.iter().map(|entry| PathText(entry.path.clone()));
        let paths = self.before.paths.iter().cloned().chain(paths).collect();
        self.write(&Exchanging { by: self.by.to_string(), paths })
    }

    /// All that was exchanged is as it was.
    pub(super) fn taken_back(&self) -> Result<(), ChangesError> {
        self.write(&self.before)
    }

    fn write(&self, under_way: &Exchanging) -> Result<(), ChangesError> {
        write(self.folder, under_way).map_err(|errno| ChangesError::Write { path: self.place.clone(), errno })
    }
}

/// These paths are as the run left them, whoever put them there.
pub(super) fn settle(folder: &Dir, taken: &[PathText]) -> KernelResult<()> {
    let Some(mut left) = read(folder) else { return Ok(()) };
    for path in taken {
        left.paths.remove(path);
    }
    write(folder, &left)
}

fn write(folder: &Dir, under_way: &Exchanging) -> KernelResult<()> {
    if under_way.paths.is_empty() {
        return match rustix::fs::unlinkat(folder, UNDER_WAY, AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            other => other,
        };
    }
    let (new, mode) = (format!("{UNDER_WAY}.new"), Mode::RUSR | Mode::WUSR);
    let mut file = folder.open_file(&new, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC, mode)?;
    let text = serde_json::to_vec(under_way).map_err(|error| errno_of(&error.into()))?;
    file.write_all(&text).map_err(|error| errno_of(&error))?;
    rustix::fs::fsync(&file)?;
    rustix::fs::renameat(folder, &new, folder, UNDER_WAY)
}

fn read(folder: &Dir) -> Option<Exchanging> {
    serde_json::from_slice(&folder.read(UNDER_WAY, MAX_MANIFEST).ok()?).ok()
}

/// A run of whose changes an `apply` was killed when a part of them may have been in the workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Interrupted {
    /// Whose changes.
    pub run: String,
    /// The workspace, escaped.
    pub workspace: String,
}

impl Interrupted {
    /// What it means and what to do, for people.
    #[must_use]
    pub fn told(&self) -> String {
        let Self { run, workspace } = self;
        format!(
            "an `apply` of {run} was ended half-way, and a part of it may be in {workspace}: the same `fumehood apply {run}` again finishes it"
        )
    }
}

/// Whether an `apply` of a run was killed half-way and nobody finished it.
///
/// # Errors
/// [`ChangesError`].
pub fn interrupted(state: &State, run: &RunId) -> Result<Option<Interrupted>, ChangesError> {
    // Of most there is none, and their lists may be long.
    let half = state.changes()?.enter(run.as_str(), Cross::No).ok().and_then(|folder| read(&folder));
    let Some(half) = half else { return Ok(None) };
    let manifest = match load(state, run) {
        Err(ChangesError::None { .. } | ChangesError::Damaged { .. }) => return Ok(None),
        other => other?.0,
    };
    // One that goes on just now is none.
    let goes_on = half.by.parse::<RunId>().ok().map(|by| lives(state, &by)).transpose()?.unwrap_or(false);
    let is_left = |entry: &Entry| half.paths.contains(&PathText(entry.path.clone()));
    let is_half = !goes_on && manifest.entries.iter().any(is_left);
    let workspace = || crate::fault::show_path(&manifest.workspace);
    Ok(is_half.then(|| Interrupted { run: run.to_string(), workspace: workspace() }))
}

/// All of which that is so.
///
/// # Errors
/// [`ChangesError`].
pub fn all_interrupted(state: &State) -> Result<Vec<Interrupted>, ChangesError> {
    let mut found = Vec::new();
    for run in runs(state)? {
        found.extend(interrupted(state, &run)?);
    }
    Ok(found)
}
