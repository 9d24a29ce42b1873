//! Where programs inside may write, as far as whoever reads something outside has to know: what lies there, or is reached by a link
//! there, is what such a program says it is.

use std::path::{Path, PathBuf};

use policy::Policy;
use policy::value::WorkspaceMode;

use crate::mounts::Mounts;
use crate::steps::passed;

/// Places of the host that programs inside may change, at once or when changes are applied, by whichever mount.
#[derive(Debug)]
pub struct WritablePlaces {
    roots: Vec<PathBuf>,
    mounts: Mounts,
}

impl WritablePlaces {
    /// Those of a policy.
    #[must_use]
    pub fn of(policy: &Policy) -> Self {
        let changes = !matches!(policy.workspace.mode, WorkspaceMode::None | WorkspaceMode::Ro);
        let workspace = policy.workspace.path.iter().filter(|_| changes);
        let grants = policy.fs.write.iter().map(|grant| &grant.from);
        let roots = workspace.chain(grants).filter_map(|path| path.canonicalize().ok()).collect();
        Self { roots, mounts: Mounts::default() }
    }

    /// In which of them a path lies, or one of the links and folders on the way to it.
    #[must_use]
    pub fn met_by(&self, path: &Path) -> Option<&PathBuf> {
        let passed = passed(path);
        self.roots.iter().find(|root| passed.iter().any(|step| self.mounts.shows(root, step)))
    }
}
