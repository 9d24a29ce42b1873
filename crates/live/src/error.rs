//! What can go wrong around live sandboxes, by stage.

use std::path::PathBuf;

use rustix::io::Errno;
use sandbox::fault::{Fault, show_path, show_text};
use sandbox::snapshot::SnapshotError;
use sandbox::state::{StateError, unwritable};

/// A failure of the records of live sandboxes, or of a start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LiveError {
    /// The state folder.
    #[error(transparent)]
    State(#[from] StateError),
    /// Something in the folder of live sandboxes cannot be made, read or written.
    #[error("{} cannot be used", show_path(path))]
    Folder {
        /// Path.
        path: PathBuf,
        /// The kernel's answer.
        errno: Errno,
    },
    /// A name that none can have.
    #[error("`{}` is no name of a sandbox", show_text(name))]
    Name {
        /// The name.
        name: String,
    },
    /// Another live sandbox has the name.
    #[error("a live sandbox is named `{name}`")]
    Taken {
        /// The name.
        name: String,
        /// Whose it is.
        id: String,
    },
    /// No sandbox has this id or name.
    #[error("no sandbox is known as `{}`", show_text(word))]
    Unknown {
        /// Id or name.
        word: String,
    },
    /// It has ended.
    #[error("the sandbox {id} has ended")]
    Over {
        /// Its id.
        id: String,
        /// Why, in one sentence.
        message: String,
    },
    /// It is to be made of a snapshot.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// A snapshot does not fit the sandbox that is wanted.
    #[error("the snapshot {id} cannot be what this sandbox begins with")]
    Unfit {
        /// Its id.
        id: String,
        /// Why.
        why: String,
    },
    /// A sandbox of a snapshot did not become what that was, and was ended.
    #[error("the sandbox did not become what the snapshot {id} was, and was ended")]
    Restore {
        /// The id of the snapshot.
        id: String,
        /// Why.
        why: String,
    },
    /// The commands of a template failed, and the sandbox was ended.
    #[error("the sandbox did not begin as the template `{}` says, and was ended", show_text(template))]
    Begin {
        /// The template.
        template: String,
        /// Why, with what they said.
        why: String,
    },
    /// What a Python is to import is no list of modules.
    #[error("what is to be imported is no list of names of modules")]
    Imports,
    /// The supervisor could not be started, or said nothing.
    #[error("the supervisor of a sandbox did not start")]
    Start {
        /// Why.
        why: String,
    },
}

impl LiveError {
    /// What, where, why and fix.
    #[must_use]
    pub fn fault(&self) -> Fault {
        let what = self.to_string();
        let say = |id, place: String, why: String, fix: String| Fault { id, what: what.clone(), place, why, fix };
        match self {
            Self::State(error) => error.fault(),
            Self::Folder { path, errno } => {
                let (why, fix) = unwritable(*errno, "FUMEHOOD_STATE");
                say("live/folder", show_path(path), why, fix)
            }
            Self::Name { .. } => say(
                "live/name",
                "--name".into(),
                "names are 1 to 63 letters, digits, `_`, `.` and `-`, begin with a letter or a digit, and do not look like an \
                 id (20 small letters and digits; `r-DATE-TIME-HEX`)"
                    .into(),
                "take another one".into(),
            ),
            // Without its id: that is a secret of whoever owns it, and a server tells this to whoever asks for the name.
            Self::Taken { name, id: _ } => say(
                "live/name-taken",
                "--name".into(),
                "a name stands for one sandbox of this state folder".into(),
                format!("take another name, or `fumehood kill {}` first", show_text(name)),
            ),
            Self::Unknown { .. } => say(
                "live/unknown",
                "command line".into(),
                "neither an id nor a name of a sandbox of this state folder".into(),
                "`fumehood ps -a` lists them".into(),
            ),
            Self::Over { id, message } => say(
                "live/ended",
                format!("sandbox {id}"),
                show_text(message),
                "`fumehood create` makes a new one; what of its changes was kept is shown by `fumehood diff`".into(),
            ),
            Self::Snapshot(error) => error.fault(),
            Self::Unfit { why, .. } => say(
                "live/unfit",
                "--from".into(),
                show_text(why),
                "leave out the flags that say otherwise than it was made with".into(),
            ),
            Self::Restore { why, .. } => say(
                "live/restore",
                "the agent inside".into(),
                show_text(why),
                "let it have the room and the rights that the first one had, or make another snapshot".into(),
            ),
            Self::Begin { why, .. } => say(
                "live/begin",
                "`start` and `ready` of the recipe".into(),
                show_text(why),
                "correct the recipe and build it again, or give the sandbox what they need".into(),
            ),
            Self::Imports => say(
                "live/imports",
                "imports".into(),
                "at most 64 names like `pandas` or `os.path`".into(),
                "name modules; other code is run, not imported".into(),
            ),
            Self::Start { why } => say(
                "live/start",
                "`fumehood supervise`, a process of its own".into(),
                show_text(why),
                "try again; if it stays, please report it with `fumehood doctor --json`".into(),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_a_taken_name_is_is_not_told() {
        let id = "a0123456789abcdefghi";
        let Fault { what, place, why, fix, .. } = LiveError::Taken { name: "box".into(), id: id.into() }.fault();
        let told = [what, place, why, fix].join(" ");
        assert!(!told.contains(id) && told.contains("`fumehood kill box`"), "{told}");
    }
}
