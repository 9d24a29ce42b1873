//! An `apply` that was killed between two exchanges: which paths it was about to exchange stands beside the run's changes
//! until it has ended, so that it is told, and its other half is kept.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::{Errno, Result as KernelResult};
use serde::{Deserialize, Serialize};

use super::ChangesError;
use super::judged::{Asked, Judged};
use super::locks;
use super::manifest::{Entry, MAX_MANIFEST, Manifest, load, runs};
use super::reflog::{NotedTip, Tips};
use crate::state::{Cross, Dir, PathText, RunId, State, errno_of, lives};

/// The list, in the folder of a run's changes.
const UNDER_WAY: &str = "applying.json";

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Exchanging {
    /// The journal of the `apply`.
    by: String,
    paths: BTreeSet<PathText>,
    /// What was asked for, and what had been judged of git's files.
    #[serde(default)]
    judged: Vec<Judged>,
    /// Where branches were before.
    #[serde(default)]
    tips: Vec<NotedTip>,
    /// Locks of git's that it makes.
    #[serde(default)]
    locks: Vec<PathText>,
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

    pub(super) fn begin(
        &self,
        todo: &[&Entry],
        (judged, tips): (&Judged, &Tips),
        locks: Vec<PathText>,
    ) -> Result<(), ChangesError> {
        let mut noted = self.before.clone();
        noted.by = self.by.to_string();
        noted.paths.extend(todo.iter().map(|entry| PathText(entry.path.clone())));
        noted.judged.retain(|one| one.asked != judged.asked);
        noted.judged.push(judged.clone());
        // Those of earlier ones count, where they moved something that no log says.
        let now = tips.noted();
        noted.tips.retain(|one| !now.iter().any(|other| other.log == one.log));
        noted.tips.extend(now);
        noted.locks = locks;
        self.write(&noted)
    }

    /// All that was exchanged is as it was.
    pub(super) fn taken_back(&self) -> Result<(), ChangesError> {
        self.write(&self.before)
    }

    fn write(&self, under_way: &Exchanging) -> Result<(), ChangesError> {
        write(self.folder, under_way).map_err(|errno| ChangesError::Write { path: self.place.clone(), errno })
    }
}

/// What an `apply` that was ended half-way noted.
pub(super) struct Half(Exchanging);

impl Half {
    pub(super) fn of(store: &Dir) -> Self {
        Self(read(store).unwrap_or_default())
    }

    /// What it had judged, if the same is asked for again and that holds still.
    pub(super) fn judged(&self, root: &Dir, blobs: Option<&Dir>, asked: (&Asked, &str)) -> Option<&Judged> {
        self.0.judged.iter().find(|judged| judged.holds(root, blobs, asked))
    }

    /// Whether it was to exchange a path.
    pub(super) fn has(&self, path: &Path) -> bool {
        self.0.paths.contains(&PathText(path.to_owned()))
    }

    pub(super) fn tips(&self) -> &[NotedTip] {
        &self.0.tips
    }
}

/// Removes the locks of git's that an `apply` of a run left which was killed.
///
/// # Errors
/// [`ChangesError::State`].
pub(crate) fn unlock(state: &State, run: &RunId) -> Result<(), ChangesError> {
    let Ok(folder) = state.changes()?.enter(run.as_str(), Cross::No) else { return Ok(()) };
    let Some(half) = read(&folder).filter(|half| !half.locks.is_empty()) else { return Ok(()) };
    let Ok((manifest, _)) = load(state, run) else { return Ok(()) };
    let root = Dir::open(&manifest.workspace).ok().filter(|root| is_of(root, &manifest));
    if let Some(root) = root.filter(|_| !goes_on(state, &half).unwrap_or(true)) {
        locks::remove_left(&root, &half.locks);
    }
    Ok(())
}

fn is_of(root: &Dir, manifest: &Manifest) -> bool {
    rustix::fs::fstat(root).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == manifest.root)
}

/// Whether the `apply` that noted it lives.
fn goes_on(state: &State, half: &Exchanging) -> Result<bool, ChangesError> {
    Ok(half.by.parse::<RunId>().ok().map(|by| lives(state, &by)).transpose()?.unwrap_or(false))
}

/// These paths are as the run left them, whoever put them there.
pub(super) fn settle(folder: &Dir, taken: &[PathText]) -> KernelResult<()> {
    let Some(mut left) = read(folder) else { return Ok(()) };
    for path in taken {
        left.paths.remove(path);
    }
    left.locks.clear();
    let Exchanging { paths, judged, .. } = &mut left;
    judged.retain(|judged| paths.iter().any(|path| judged.asked.has(&path.0)));
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
    /// What finishes it, where that has few and plain words.
    pub command: Option<String>,
}

impl Interrupted {
    /// What it means and what to do, for people.
    #[must_use]
    pub fn told(&self) -> String {
        let Self { run, workspace, .. } = self;
        let finishes = self.finishes();
        format!(
            "an `apply` of {run} was ended half-way, and a part of it may be in {workspace}: {finishes} again finishes it"
        )
    }

    /// What finishes it, for people.
    #[must_use]
    pub fn finishes(&self) -> String {
        match &self.command {
            Some(command) => format!("the same `{command}`"),
            None => format!("the same `fumehood apply {} ...`, with the paths and flags that it had,", self.run),
        }
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
    let goes_on = goes_on(state, &half)?;
    let is_left = |entry: &Entry| half.paths.contains(&PathText(entry.path.clone()));
    let is_half = !goes_on && manifest.entries.iter().any(is_left);
    let workspace = || crate::fault::show_path(&manifest.workspace);
    let last = half.judged.last().map(|judged| judged.asked.command(run.as_str()));
    let command = || last.unwrap_or_else(|| Some(format!("fumehood apply {run}")));
    Ok(is_half.then(|| Interrupted { run: run.to_string(), workspace: workspace(), command: command() }))
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
