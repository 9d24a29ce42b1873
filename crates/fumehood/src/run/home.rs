//! What a run has on the host: its journal, its folder, its stubs. Dropped on every way out, so that a start that fails
//! leaves nothing either; what cannot be removed stays in the journal, and the next start or `gc` takes it.

use std::path::{Path, PathBuf};

use policy::report::WorkspaceReport;

use super::workspace;
use crate::state::{Dir, Journal, StateError, Thing};

/// The things of one run. Must be dropped after the guest and its groups are gone.
#[derive(Debug)]
pub(super) struct Home {
    journal: Option<Journal>,
    tmp: Option<PathBuf>,
    notes: Vec<String>,
    /// Notes for which there was no room.
    more: usize,
}

impl Home {
    pub(super) const fn new(journal: Journal) -> Self {
        Self { journal: Some(journal), tmp: None, notes: Vec::new(), more: 0 }
    }

    /// Of what is only looked at: nothing can be made with it.
    pub(super) const fn of_nothing() -> Self {
        Self { journal: None, tmp: None, notes: Vec::new(), more: 0 }
    }

    /// Something about the workspace that whoever reads the report should know.
    pub(super) fn tell(&mut self, note: String) {
        // One place is kept for how many more there are.
        if self.notes.len() + 1 < WorkspaceReport::MOST_NOTES {
            self.notes.push(note);
        } else {
            self.more = self.more.saturating_add(1);
        }
    }

    /// What was told.
    pub(super) fn take_notes(&mut self) -> Vec<String> {
        let mut notes = std::mem::take(&mut self.notes);
        if self.more > 0 {
            notes.push(format!("and {} more of this kind", std::mem::take(&mut self.more)));
        }
        notes
    }

    /// Writes down what is about to be made.
    pub(super) fn note(&mut self, thing: &Thing) -> Result<(), StateError> {
        self.journal.as_mut().map_or(Ok(()), |journal| journal.note(thing))
    }

    /// Makes an empty file or folder that holds a protected name; `false` if the name is taken.
    pub(super) fn make_stub(
        &mut self,
        below: &Dir,
        root: &Path,
        name: &Path,
        folder: bool,
    ) -> Result<bool, StateError> {
        self.journal.as_mut().map_or(Ok(false), |journal| journal.make_stub(below, root, name, folder))
    }

    /// Removes the stubs; those that are not empty any more stay.
    pub(super) fn remove_stubs(&mut self) {
        if let Some(journal) = &mut self.journal {
            journal.remove_stubs();
        }
    }

    /// The folder in which the process tier writes.
    pub(super) fn tmp(&self) -> Option<&Path> {
        self.tmp.as_deref()
    }

    /// From now on this folder is removed with the run; the journal knows it already.
    pub(super) fn own(&mut self, tmp: PathBuf) {
        self.tmp = Some(tmp);
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let Some(mut journal) = self.journal.take() else { return };
        let stubs_left = journal.remove_stubs();
        let folder_left = self.tmp.take().is_some_and(|tmp| workspace::remove_tree(&tmp).is_err());
        if stubs_left.is_empty() && !folder_left {
            // A journal that cannot be removed is found by the next start, which has nothing to do then.
            drop(journal.end());
        }
    }
}
