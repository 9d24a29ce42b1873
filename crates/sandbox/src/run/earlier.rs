//! A run that goes on from an earlier run's changes: they are put into its layer before anything runs, over the host's tree as it
//! is now. Where somebody changed that tree meanwhile, so that the changes could not be applied either, the run is refused: it
//! would take that work for its own, and `apply` would write over it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use policy::Plan;
use policy::value::{Tier, WorkspaceMode};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::{Errno, Result as KernelResult};

use super::laying::{LayError, Laying};
use crate::changes::{
    ApplyState, BLOBS, Change, ChangesError, Entry, Kind, LISTED_OTHERWISE, Manifest, load, must_have_ended, standing,
};
use crate::error::Error;
use crate::fault::{Fault, show_path, show_text};
use crate::state::{Cross, Dir, RunId, State};

/// Paths that are named when there are more.
const MAX_NAMED: usize = 8;

/// The changes of a run that has ended.
#[derive(Debug)]
pub struct Earlier {
    manifest: Manifest,
    blobs: Dir,
}

impl Earlier {
    /// Those of this run.
    ///
    /// # Errors
    /// [`ChangesError`]: there are none, or the run still goes on.
    pub fn load(state: &State, run: &RunId) -> Result<Self, ChangesError> {
        must_have_ended(state, run)?;
        let (manifest, dir) = load(state, run)?;
        let blobs = dir.enter(BLOBS, Cross::No).map_err(|_gone| ChangesError::Damaged { run: run.to_string() })?;
        Ok(Self { manifest, blobs })
    }

    /// The run.
    #[must_use]
    pub fn run(&self) -> &str {
        &self.manifest.run
    }

    /// What it changed.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.manifest.entries.iter().map(|entry| entry.path.as_path())
    }

    /// The documents of its policy, and what it hid: what it changed there is asked for still.
    pub(super) fn held(&self) -> [BTreeSet<PathBuf>; 2] {
        [&self.manifest.policies, &self.manifest.hidden].map(|paths| paths.iter().map(|path| path.0.clone()).collect())
    }

    /// What `diff --json` shows of all of it.
    #[must_use]
    pub fn digest(&self) -> String {
        self.manifest.digest(&self.manifest.entries.iter().collect::<Vec<_>>())
    }

    /// What of it is not there, in words.
    pub(super) fn left_behind(&self) -> Option<String> {
        let first = self.manifest.refused.first()?;
        let count = self.manifest.refused.len();
        Some(format!(
            "of run {} {count} path{} not there, as {} would not have been applied: {} ({})",
            self.run(),
            if count == 1 { " is" } else { "s are" },
            if count == 1 { "it" } else { "they" },
            show_path(&first.path),
            show_text(&first.why)
        ))
    }

    /// Whether a plan has a place for it.
    pub(super) fn fits(&self, plan: &Plan) -> Result<(), Error> {
        let policy = &plan.policy;
        match policy.workspace.mode {
            WorkspaceMode::Overlay | WorkspaceMode::Copy => {}
            mode @ (WorkspaceMode::None | WorkspaceMode::Ro | WorkspaceMode::Rw) => {
                let why = format!("the workspace has the mode `{}`, and nothing that could hold them", mode.as_str());
                return Err(self.refused("run/on-mode", why, "use `-w PATH` (overlay) or `-w PATH:copy`"));
            }
        }
        let root = policy.workspace.path.as_deref().and_then(|path| rustix::fs::stat(path).ok());
        if root.is_none_or(|root| (root.st_dev, root.st_ino) != self.manifest.root) {
            let why = format!("its workspace is {}, and that is another folder", show_path(&self.manifest.workspace));
            return Err(self.refused("run/on-workspace", why, "name the workspace of the earlier run by `-w`"));
        }
        let at = policy.workspace.at.as_deref().or(policy.workspace.path.as_deref()).unwrap_or(Path::new("/"));
        for entry in &self.manifest.entries {
            if super::covers::hides(&policy.fs.hide, at, &entry.path)? {
                let why = format!("`fs.hide` takes {} out of sight, which that run changed", show_path(&entry.path));
                return Err(self.refused("run/on-hidden", why, "apply or discard that change first"));
            }
        }
        let bounds = super::trees::bounds(plan);
        let mut left = bounds.bytes;
        for (count, entry) in self.manifest.entries.iter().enumerate() {
            let size = if entry.change == Change::Removed { 0 } else { entry.size };
            match left.checked_sub(size).filter(|_| count < bounds.entries) {
                Some(rest) => left = rest,
                None => return Err(ChangesError::TooLarge { path: entry.path.clone(), errno: Errno::FBIG }.into()),
            }
        }
        Ok(())
    }

    /// The backend has nothing into which they could be put before anything runs.
    pub(super) fn no_place(&self, tier: Tier) -> Error {
        let why = format!("the tier `{tier}` gives no layer into which they could be put before the program runs");
        self.refused("run/on-mode", why, "use `--tier container`, or `-w PATH:copy`")
    }

    fn refused(&self, id: &'static str, why: String, fix: &str) -> Error {
        Error::refused(Fault {
            id,
            what: format!("the run cannot go on from the changes of {}", self.run()),
            place: "--on".to_owned(),
            why,
            fix: fix.to_owned(),
        })
    }

    /// Puts them into a layer over `root`, the host's folder; `copied`: what lies beneath is in the layer as well. While the
    /// answer of `rights` lives, files are made as the run's user.
    ///
    /// # Errors
    /// A refusal with the paths that the host changed meanwhile; or the layer has no room.
    pub(super) fn lay<R>(
        &self,
        root: &Dir,
        into: &Dir,
        copied: bool,
        rights: &dyn Fn() -> Result<R, Error>,
    ) -> Result<(), Error> {
        let todo = self.todo(root)?;
        let mut laying = Laying::new(root, into, copied);
        let laid = self.all(&mut laying, &todo, rights);
        laid.map_err(|stop| match stop {
            LayError::Conflict(path, why) => self.moved(&[(path, why)]),
            LayError::Kernel(path, errno @ (Errno::NOSPC | Errno::DQUOT)) => {
                ChangesError::TooLarge { path, errno }.into()
            }
            LayError::Kernel(_, Errno::BADMSG) => ChangesError::Damaged { run: self.run().to_owned() }.into(),
            LayError::Kernel(path, errno) => ChangesError::Write { path, errno }.into(),
            LayError::Other(error) => error,
        })
    }

    /// The entries that the host does not have already.
    fn todo(&self, root: &Dir) -> Result<Vec<&Entry>, Error> {
        let entries = &self.manifest.entries;
        let gone: BTreeSet<&Path> =
            entries.iter().filter(|e| e.change == Change::Removed).map(|e| e.path.as_path()).collect();
        let (mut todo, mut moved) = (Vec::new(), Vec::new());
        let repacked = self.manifest.listed_otherwise(root, None);
        for entry in entries {
            let read = |errno| ChangesError::Read { path: self.manifest.workspace.join(&entry.path), errno };
            match standing(root, entry, &gone).map_err(read)? {
                ApplyState::Done => {}
                ApplyState::Conflict(_, why) => moved.push((entry.path.clone(), why)),
                ApplyState::Ready if is_fuller(root, entry, &gone).map_err(read)? => {
                    moved.push((entry.path.clone(), "there are other things in it now".to_owned()));
                }
                ApplyState::Ready if repacked.contains(entry.path.as_path()) => {
                    moved.push((entry.path.clone(), LISTED_OTHERWISE.to_owned()));
                }
                ApplyState::Ready => todo.push(entry),
            }
        }
        if moved.is_empty() { Ok(todo) } else { Err(self.moved(&moved)) }
    }

    fn moved(&self, moved: &[(PathBuf, String)]) -> Error {
        let mut named: Vec<String> =
            moved.iter().take(MAX_NAMED).map(|(path, why)| format!("{}: {why}", show_path(path))).collect();
        if let Some(more) = moved.len().checked_sub(MAX_NAMED).filter(|more| *more > 0) {
            named.push(format!("and {more} more"));
        }
        let fix = format!(
            "`fumehood diff {0}` shows what that run did; throw those changes away (`fumehood discard {0} -- FILES`), or put the \
             host's files back",
            self.run()
        );
        self.refused("run/on-moved", named.join("; "), &fix)
    }

    fn all<R>(
        &self,
        laying: &mut Laying<'_>,
        todo: &[&Entry],
        rights: &dyn Fn() -> Result<R, Error>,
    ) -> Result<(), LayError> {
        // Deepest first, so that folders are empty when their turn comes.
        for entry in todo.iter().rev().filter(|entry| entry.change == Change::Removed) {
            let replaced = self.manifest.has_other(&entry.path, Change::Removed);
            let _rights = rights().map_err(LayError::Other)?;
            laying.remove(entry, replaced)?;
        }
        for entry in todo.iter().filter(|entry| entry.change != Change::Removed) {
            // What lies in the state folder is closed to the run's user.
            let blob = match entry.kind {
                Kind::File => Some(self.blob(entry).map_err(|errno| LayError::Kernel(entry.path.clone(), errno))?),
                Kind::Dir | Kind::Symlink | Kind::Special => None,
            };
            let _rights = rights().map_err(LayError::Other)?;
            laying.put(entry, blob.as_ref())?;
        }
        let _rights = rights().map_err(LayError::Other)?;
        laying.end()
    }

    fn blob(&self, entry: &Entry) -> KernelResult<std::fs::File> {
        let sum = entry.sha256.as_deref().ok_or(Errno::BADMSG)?;
        self.blobs.open_file(sum, OFlags::RDONLY, Mode::empty()).map_err(|errno| match errno {
            Errno::NOENT => Errno::BADMSG,
            errno => errno,
        })
    }
}

/// Whether a folder that the run removed holds what it did not.
fn is_fuller(root: &Dir, entry: &Entry, gone: &BTreeSet<&Path>) -> KernelResult<bool> {
    if (entry.change, entry.kind) != (Change::Removed, Kind::Dir) {
        return Ok(false);
    }
    let kinds = root.enter(&entry.path, Cross::No)?.kinds()?;
    // Pipes, sockets and devices are in no list.
    let listed = |kind: &FileType| matches!(kind, FileType::RegularFile | FileType::Directory | FileType::Symlink);
    Ok(kinds.iter().any(|(name, kind)| listed(kind) && !gone.contains(entry.path.join(name).as_path())))
}
