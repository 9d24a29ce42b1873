//! What a run has on the host: its journal, its folder. Dropped on every way out, so that a start that fails
//! leaves nothing either; what cannot be removed stays in the journal, and the next start or `gc` takes it.

use std::fs::File;
use std::path::{Path, PathBuf};

use policy::report::WorkspaceReport;
use rustix::fs::{FallocateFlags, Mode, OFlags};

use super::workspace;
use crate::state::{Journal, Resource, State, StateError};

/// Bytes. Commits and edited files are far less; an overlay may hold more, and then takes what the disk has beside it.
const ROOM: u64 = 16 << 20;

/// The things of one run. Must be dropped after the guest and its groups are gone.
#[derive(Debug)]
pub(super) struct HostResources {
    journal: Option<Journal>,
    tmp: Option<PathBuf>,
    /// A folder of the backend's.
    bundle: Option<PathBuf>,
    notes: Vec<String>,
    /// Notes for which there was no room.
    more: usize,
    /// Room on the disk of the state folder for what the run changes, until its end.
    room: Option<File>,
}

impl HostResources {
    pub(super) const fn new(journal: Journal) -> Self {
        Self { journal: Some(journal), tmp: None, bundle: None, notes: Vec::new(), more: 0, room: None }
    }

    /// Of what is only looked at: nothing can be made with it.
    pub(super) const fn of_nothing() -> Self {
        Self { journal: None, tmp: None, bundle: None, notes: Vec::new(), more: 0, room: None }
    }

    /// Something about the workspace that whoever reads the report should know.
    pub(super) fn tell(&mut self, note: String) {
        // One place is kept for how many more there are.
        if self.notes.len() + 1 < WorkspaceReport::MAX_NOTES {
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

    /// Keeps room for the changes of a run, as far as there is some: what fills the disk meanwhile does not cost what the run committed.
    /// The file has no name, so that it is gone with whoever has it open. A sandbox that lives is asked for its changes whenever somebody
    /// wants them.
    pub(super) fn keep_room(&mut self, state: &State, is_wanted: bool) {
        if !is_wanted {
            return;
        }
        let flags = OFlags::WRONLY | OFlags::TMPFILE;
        let made = state.changes().ok().and_then(|all| all.open_file(".", flags, Mode::RUSR | Mode::WUSR).ok());
        self.room = made.filter(|file| rustix::fs::fallocate(file, FallocateFlags::empty(), 0, ROOM).is_ok());
    }

    /// Gives that room to who writes the changes down.
    pub(super) fn free_room(&mut self) {
        self.room = None;
    }

    /// Writes down what is about to be made.
    pub(super) fn note(&mut self, thing: &Resource) -> Result<(), StateError> {
        self.journal.as_mut().map_or(Ok(()), |journal| journal.note(thing))
    }

    /// By which the journal is told that the run lives. Without one, what the run makes after its start is taken for
    /// somebody else's a little earlier.
    pub(super) fn pulse(&self) -> Option<File> {
        self.journal.as_ref().and_then(|journal| journal.pulse().ok())
    }

    /// The folder in which the process tier writes.
    pub(super) fn tmp(&self) -> Option<&Path> {
        self.tmp.as_deref()
    }

    /// From now on this folder is removed with the run; the journal knows it already.
    pub(super) fn own_bundle(&mut self, bundle: PathBuf) {
        self.bundle = Some(bundle);
    }

    /// As [`Self::own_bundle`], of the folder in which the run writes.
    pub(super) fn own(&mut self, tmp: PathBuf) {
        self.tmp = Some(tmp);
    }
}

impl Drop for HostResources {
    fn drop(&mut self) {
        let Some(journal) = self.journal.take() else { return };
        let folders = [self.tmp.take(), self.bundle.take()];
        // All of them, whatever becomes of one.
        let folder_left = folders.iter().flatten().filter(|path| workspace::remove_tree(path).is_err()).count() > 0;
        if !folder_left {
            // A journal that cannot be removed is found by the next start, which has nothing to do then.
            drop(journal.end());
        }
    }
}
