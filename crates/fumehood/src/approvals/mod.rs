//! The store of approvals: what is wrong with it as a fault, and who asks it about destinations.

mod desk;
mod destinations;

pub(crate) use destinations::asker;
use gateway::approvals::StoreError;
use sandbox::fault::{Fault, show_text};

use crate::ui::Failure;

/// What is wrong with the store, as a fault.
pub(crate) fn unusable(error: &StoreError) -> Failure {
    let (place, fix) = match error {
        StoreError::Folder { path } => (path.clone(), "`chmod 700` it, or set FUMEHOOD_STATE to a folder of your own"),
        StoreError::File { path, why: _ } => {
            (path.clone(), "free the disk, or move the file away: what waits is then lost")
        }
        StoreError::Version { path, version: _ } => (path.clone(), "use the later fumehood that wrote it"),
        StoreError::NoRandom => ("getrandom(2)".into(), "let the system call `getrandom` through"),
    };
    Failure::own(Fault {
        id: "approvals/unusable",
        what: "the store of approvals cannot be used".to_owned(),
        place: show_text(&place.to_string_lossy()),
        why: error.to_string(),
        fix: fix.to_owned(),
    })
}
