//! What can go wrong with changes, by stage. A conflict is no error: it is an answer.

use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::store::MAX_DEPTH;
use crate::fault::{Fault, show_path};
use crate::state::StateError;

/// A failure with changes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangesError {
    /// The state folder.
    #[error(transparent)]
    State(#[from] StateError),
    /// There are no changes of that run or workspace.
    #[error("there are no changes of {of}")]
    None {
        /// Of what.
        of: String,
    },
    /// The manifest is not as we wrote it.
    #[error("the list of changes of {run} is damaged")]
    Damaged {
        /// Run.
        run: String,
    },
    /// What is to be applied is not what was shown.
    #[error("these are not the changes that were shown")]
    Digest {
        /// Asked for.
        wanted: String,
        /// Found.
        found: String,
    },
    /// The sandbox was ended while its changes were read.
    #[error("the changes of {run} were not read to their end")]
    Ended {
        /// Run.
        run: String,
    },
    /// The run still goes on, and somebody else asks than its supervisor.
    #[error("run {run} still goes on")]
    Lives {
        /// Run.
        run: String,
    },
    /// A chosen path is not among the changes.
    #[error("{} is not among the changes", show_path(path))]
    NoSuchPath {
        /// Path.
        path: PathBuf,
    },
    /// A file or folder could not be read.
    #[error("{} cannot be read", show_path(path))]
    Read {
        /// Path.
        path: PathBuf,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The workspace is larger than its copy may be.
    #[error("the workspace does not fit into its copy: it ends at {}", show_path(path))]
    TooLarge {
        /// The first path for which there is no room.
        path: PathBuf,
        /// The kernel's answer, or EFBIG for a limit.
        errno: Errno,
    },
    /// A file or folder could not be written.
    #[error("{} cannot be written", show_path(path))]
    Write {
        /// Path.
        path: PathBuf,
        /// The kernel's answer.
        errno: Errno,
    },
    /// All is in the workspace, and what comes after that could not be done.
    #[error("all was applied; what the run keeps could not be written: {cause}")]
    Unkept {
        /// Why.
        cause: Box<Self>,
    },
    /// Something changed while it was being taken back.
    #[error("some files could not be put back: they are in {}", show_path(path))]
    Stuck {
        /// Where they are.
        path: PathBuf,
        /// The kernel's answer.
        errno: Errno,
    },
    /// Somebody put another folder in the place of ours.
    #[error("{} is not the folder that was made", show_path(path))]
    Replaced {
        /// Path.
        path: PathBuf,
    },
    /// The workspace is another folder than it was.
    #[error("{} is not the workspace of the run any more", show_path(path))]
    Moved {
        /// Path.
        path: PathBuf,
    },
}

/// Why, and what to do.
const ENDED: (&str, &str) =
    ("the sandbox was ended, or its time was over", "`fumehood diff` shows what was kept at its end");
const LIVES: (&str, &str) = (
    "only its supervisor can take its changes while it goes on, and nobody can throw them away",
    "name the live sandbox by its id; or end it (`fumehood kill ID`), and then apply or discard",
);

const UNKEPT: &str = "make room there, or make it writable to you; then the same `fumehood apply` again: it finds all in its place, and ends";

impl ChangesError {
    /// After all is in the workspace.
    pub(super) fn unkept(self) -> Self {
        Self::Unkept { cause: Box::new(self) }
    }

    /// What, where, why and fix.
    #[must_use]
    pub fn fault(&self) -> Fault {
        let what = self.to_string();
        let say = |id, place: String, why: &str, fix: &str| Fault {
            id,
            what: what.clone(),
            place,
            why: why.into(),
            fix: fix.into(),
        };
        match self {
            Self::State(error) => error.fault(),
            Self::None { of } => say(
                "changes/none",
                of.clone(),
                "nothing was changed, or it was applied, discarded or is older than 14 days",
                "run again",
            ),
            Self::Damaged { run } => say(
                "changes/damaged",
                run.clone(),
                "it does not parse",
                &format!("discard it: `fumehood discard {run}`"),
            ),
            Self::Digest { wanted, found } => say(
                "changes/digest",
                "--digest".into(),
                &format!("wanted {wanted}, found {found}"),
                "look again with `fumehood diff --json`, with the same files named",
            ),
            Self::Ended { run } => say("changes/ended", run.clone(), ENDED.0, ENDED.1),
            Self::Lives { run } => say("changes/lives", run.clone(), LIVES.0, LIVES.1),
            Self::NoSuchPath { path } => say(
                "changes/no-such-path",
                show_path(path),
                "the run did not change it",
                "`fumehood diff` lists what it changed",
            ),
            Self::Read { path, errno } => unread(self.to_string(), path, *errno),
            Self::TooLarge { path, errno } => say(
                "changes/too-large",
                show_path(path),
                &format!("`limits.disk` and `limits.files` hold for the copy too: {errno}"),
                "raise `limits.disk` and `limits.files` (in the container tier `limits.memory` as well); or use `-w PATH:overlay`, or a smaller folder",
            ),
            Self::Write { path, errno } => say("changes/write", show_path(path), &errno.to_string(), unwritten(*errno)),
            Self::Unkept { cause } => {
                let Fault { place, why, .. } = cause.fault();
                say("changes/unkept", place, &why, UNKEPT)
            }
            Self::Stuck { path, errno } => say(
                "changes/stuck",
                show_path(path),
                &errno.to_string(),
                "move them back yourself, then remove that folder",
            ),
            Self::Replaced { path } => say(
                "changes/replaced",
                show_path(path),
                "somebody who may write to the workspace put another in its place just now; nothing was applied",
                "look who works in there; then remove that folder and apply again",
            ),
            Self::Moved { path } => say(
                "changes/moved",
                show_path(path),
                "another folder has its name now",
                "put the old one back, or discard the changes",
            ),
        }
    }
}

/// What helps where something could not be written.
const fn unwritten(errno: Errno) -> &'static str {
    match errno {
        Errno::NOSPC | Errno::DQUOT => "make room there; nothing was applied",
        _ => "make its folder writable to you; nothing was applied",
    }
}

/// What could not be read.
fn unread(what: String, path: &Path, errno: Errno) -> Fault {
    let (why, fix) = if errno == Errno::NAMETOOLONG {
        let why = format!("{errno}, or it is nested too deep: a copy goes {MAX_DEPTH} folders down");
        (why, "use `-w PATH:overlay`, or a smaller folder")
    } else {
        (errno.to_string(), "make it readable to you")
    };
    Fault { id: "changes/read", what, place: show_path(path), why, fix: fix.to_owned() }
}
