//! What can go wrong with snapshots.

use std::path::PathBuf;

use rustix::io::Errno;

use crate::changes::ChangesError;
use crate::fault::{Fault, show_path, show_text};
use crate::state::StateError;

/// A failure with a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// The state folder.
    #[error(transparent)]
    State(#[from] StateError),
    /// The changes of the workspace.
    #[error(transparent)]
    Changes(#[from] ChangesError),
    /// There is none of this id or name.
    #[error("there is no snapshot `{}`", show_text(word))]
    None {
        /// What was asked for.
        word: String,
    },
    /// It is not as we wrote it.
    #[error("the snapshot {id} is damaged")]
    Damaged {
        /// Its id.
        id: String,
    },
    /// A name that cannot be one.
    #[error("`{}` cannot be the name of a snapshot", show_text(name))]
    Name {
        /// The name.
        name: String,
    },
    /// Another snapshot has the name.
    #[error("there is a snapshot of the name `{name}`")]
    Taken {
        /// The name.
        name: String,
        /// Its id.
        by: String,
    },
    /// There is no room for one more.
    #[error("there are {most} snapshots")]
    TooMany {
        /// So many may be kept.
        most: usize,
    },
    /// There is no room for one more of a machine.
    #[error("there are {most} snapshots of machines")]
    TooManyMachines {
        /// So many may be kept.
        most: usize,
    },
    /// A machine could not be written down.
    #[error("the machine could not be kept as it is")]
    Machine {
        /// Why.
        why: String,
    },
    /// The sandbox was ended meanwhile.
    #[error("the snapshot was not made to its end")]
    Ended,
    /// Something in the sandbox could not be read.
    #[error("{} of the sandbox cannot be read", show_path(path))]
    Read {
        /// Path inside.
        path: PathBuf,
        /// The kernel's answer.
        errno: Errno,
    },
}

impl SnapshotError {
    /// What, where, why and fix.
    #[must_use]
    pub fn fault(&self) -> Fault {
        let say = |id, place: String, why: String, fix: &str| Fault::of(self, id, place, &why, fix);
        match self {
            Self::State(error) => error.fault(),
            Self::Changes(error) => error.fault(),
            Self::None { word } => say(
                "snapshot/none",
                show_text(word),
                "no snapshot has this id or name".to_owned(),
                "take one from the list of snapshots",
            ),
            Self::Damaged { id } => say(
                "snapshot/damaged",
                id.clone(),
                "a file of it does not have the sum that was written down, does not parse, or is of another version"
                    .to_owned(),
                "remove it, and make another",
            ),
            Self::Name { name } => say(
                "snapshot/name",
                show_text(name),
                "a name has 1 to 63 characters of a-z, 0-9, `.`, `_` and `-`, begins with a letter or digit, and does \
                 not look like an id"
                    .to_owned(),
                "use another name",
            ),
            // Without its id: a server tells this to whoever asks for the name.
            Self::Taken { name, by: _ } => say(
                "snapshot/taken",
                name.clone(),
                "a name stands for one snapshot of this state folder".to_owned(),
                "use another name, or remove that one",
            ),
            Self::TooMany { most } => say(
                "snapshot/too-many",
                "the state folder".to_owned(),
                format!("at most {most} are kept"),
                "remove those that nobody needs",
            ),
            Self::TooManyMachines { most } => say(
                "snapshot/too-many",
                "the state folder".to_owned(),
                format!("at most {most} are kept: each is as large as a machine"),
                "remove those that nobody needs",
            ),
            Self::Machine { why } => say(
                "snapshot/machine",
                "the machine".to_owned(),
                show_text(why),
                "try again; the sandbox is as it was, unless that says otherwise",
            ),
            Self::Ended => say(
                "snapshot/ended",
                "the sandbox".to_owned(),
                "it was ended, or its time was over; nothing was kept".to_owned(),
                "make the snapshot earlier, or give the sandbox more time",
            ),
            Self::Read { path, errno } => say(
                "snapshot/read",
                show_path(path),
                errno.to_string().to_lowercase(),
                "look at the owner and mode of what lies there inside",
            ),
        }
    }
}
