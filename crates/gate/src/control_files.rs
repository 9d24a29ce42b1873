//! What nobody writes: the list by name that a sandbox protects, what git takes for a repository by what is in it, and the documents
//! of the policy.
//!
//! *Does not promise*: what git's configuration names (hooks elsewhere, programs of filters). A sandbox holds that (`fs.protect`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use policy::diagnostic::quote;
use policy::protected::makes_repository;
use policy::span::Documents;

use crate::files;

/// Without it no folder is a repository.
const HEAD: &str = "HEAD";

/// The control files of whoever is judged under one policy.
#[derive(Debug)]
pub(crate) struct ControlFiles {
    /// As they are named, and where they lie.
    documents: BTreeSet<PathBuf>,
}

impl ControlFiles {
    pub(crate) fn of(documents: &Documents) -> Self {
        let led = documents.files.iter().filter_map(|path| files::canonical(path));
        Self { documents: documents.files.iter().cloned().chain(led).collect() }
    }

    /// Why nobody writes a path: by its name below a root, and by where it is, as this process sees it.
    pub(crate) fn why(&self, name: &Path, place: Option<&Path>) -> Option<String> {
        let by_place = || self.by_place(place?);
        policy::protected::why(name).or_else(by_place)
    }

    fn by_place(&self, place: &Path) -> Option<String> {
        if self.documents.contains(place) {
            return Some("the policy is read from it".to_owned());
        }
        if place.file_name().is_some_and(|name| name == HEAD) {
            return Some(
                "a folder with a `HEAD` becomes a repository of git's, with hooks and configuration that name programs"
                    .to_owned(),
            );
        }
        let mut above = place.ancestors().skip(1);
        let is_one = |folder: &&Path| makes_repository(|name| files::facts(&folder.join(name)).is_some());
        let folder = above.find(is_one)?;
        let shown = quote(&folder.to_string_lossy());
        Some(format!("git takes {shown} for a repository: what lies in it are its hooks and configuration"))
    }
}
