//! What the gate has to be told about the place it stands in.

use std::path::PathBuf;

use crate::command::Around;

/// The circumstances of a gate, read once by whoever builds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surroundings {
    /// Where command lines of `command` guards run, unless the guard names its own `root`.
    pub commands: Around,
}

impl Surroundings {
    /// Commands run in this folder of this host.
    #[must_use]
    pub fn of(folder: PathBuf) -> Self {
        Self { commands: Around { root: folder.clone(), inspect: Some(folder), tree: PathBuf::from("/") } }
    }
}
