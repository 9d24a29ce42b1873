//! What all tasks share.

use std::path::PathBuf;

use crate::files::place;
use crate::leftovers::Leftovers;
use crate::starter::Starters;
use crate::words::Failure;

/// What all tasks share.
pub(crate) struct Inside {
    pub(crate) home: PathBuf,
    pub(crate) cwd: PathBuf,
    pub(crate) user: String,
    pub(crate) starters: Starters,
    pub(crate) leftovers: Leftovers,
}

impl Inside {
    /// The absolute path of a request's text.
    pub(crate) fn path(&self, text: &str) -> Result<PathBuf, Failure> {
        place::absolute(text, &self.home)
    }
}
