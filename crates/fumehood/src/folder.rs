//! A folder of ours below `/tmp` that goes with whoever made it.
//!
//! Promise: it is written down before it is made. Where we are killed before it is removed, the next start finds its journal and
//! takes it away, as what any run leaves.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use sandbox::fault::{Fault, show_path};
use sandbox::state::{Journal, Resource, RunId, State, StateError};

use crate::ui::Failure;

/// Gone when this is dropped.
#[derive(Debug)]
pub(crate) struct OwnFolder {
    path: PathBuf,
    journal: Option<Journal>,
}

impl OwnFolder {
    /// A new one, whose name says what it is for.
    ///
    /// # Errors
    /// It cannot be written down, or not be made.
    pub(crate) fn new(environment: &sandbox::Environment, purpose: &str, mode: u32) -> Result<Self, Failure> {
        let unwritten = |error: StateError| Failure::own(error.fault());
        let now = jiff::Timestamp::now();
        let state = State::open(&environment.state).map_err(unwritten)?;
        let id = RunId::new(now).map_err(unwritten)?;
        let path = PathBuf::from(format!("/tmp/fumehood-{purpose}-{id}"));
        let mut journal = Journal::begin(&state, id, None, now).map_err(unwritten)?;
        journal.note(&Resource::Temp(path.clone())).map_err(unwritten)?;
        let folder = Self { path, journal: Some(journal) };
        let made = std::fs::DirBuilder::new().mode(mode).create(&folder.path);
        made.map_err(|error| folder.failed(&error))?;
        Ok(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What goes in it cannot be written.
    pub(crate) fn failed(&self, error: &std::io::Error) -> Failure {
        Failure::own(Fault {
            id: "run/no-tmp",
            what: "a folder of our own cannot be made or filled".to_owned(),
            place: show_path(&self.path),
            why: error.to_string().to_lowercase(),
            fix: "make room in /tmp".to_owned(),
        })
    }
}

impl Drop for OwnFolder {
    fn drop(&mut self) {
        let gone = match std::fs::remove_dir_all(&self.path) {
            Ok(()) => true,
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        };
        // What cannot be removed keeps its journal, and `gc` tries again.
        if gone
            && let Some(journal) = self.journal.take()
            && journal.end().is_err()
        {}
    }
}
