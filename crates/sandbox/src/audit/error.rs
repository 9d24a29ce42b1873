//! What can go wrong with the audit log, by stage.

use std::path::PathBuf;

use rustix::io::Errno;

use crate::fault::{Fault, show_path, show_text};
use crate::state::{StateError, not_a_file, unwritable};

/// A failure of the audit log. Each of them refuses the run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuditError {
    /// The state folder.
    #[error(transparent)]
    State(#[from] StateError),
    /// An event could not be written.
    #[error("the audit log cannot be written")]
    Write {
        /// File.
        path: PathBuf,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The log could not be read.
    #[error("the audit log cannot be read")]
    Read {
        /// File.
        path: PathBuf,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The last line is no event, so nothing can be chained to it.
    #[error("the last line of the audit log is damaged")]
    Damaged {
        /// File.
        path: PathBuf,
        /// Where the line begins, in bytes.
        offset: u64,
    },
    /// A pattern to redact is no regular expression.
    #[error("a pattern of `audit.redact` is no regular expression")]
    Pattern {
        /// Pattern.
        pattern: String,
        /// The parser's words.
        why: String,
    },
    /// The signing key is not usable.
    #[error("the signing key of the audit log is not usable")]
    Key {
        /// File.
        path: PathBuf,
        /// Why.
        why: &'static str,
    },
    /// A thread of ours failed while it held the log.
    #[error("the audit log was left half-used by a failed thread")]
    Poisoned,
}

impl AuditError {
    /// What, where, why and fix.
    #[must_use]
    pub fn fault(&self) -> Fault {
        let what = self.to_string();
        let say = |id, place: String, why: String, fix: String| Fault { id, what: what.clone(), place, why, fix };
        match self {
            Self::State(error) => error.fault(),
            Self::Write { path, errno } => {
                let (why, fix) = unwritable(*errno, "FUMEHOOD_STATE (or the clause audit.path)");
                say("audit/not-writable", show_path(path), why, fix)
            }
            Self::Read { path, errno } => say(
                "audit/not-readable",
                show_path(path),
                not_a_file(*errno).map_or_else(|| errno.to_string().to_lowercase(), str::to_owned),
                "give its owner read permission, look at what stands there, or name another folder by `audit.path`".into(),
            ),
            Self::Damaged { path, offset } => say(
                "audit/damaged",
                format!("{} at byte {offset}", show_path(path)),
                "it ends like a whole line but is no event: somebody edited it, or the disk lost it".into(),
                "look with `fumehood audit verify`, then move the file to a safe place: a new log begins".into(),
            ),
            Self::Pattern { pattern, why } => say(
                "audit/pattern",
                format!("`{}`", show_text(pattern)),
                show_text(why.lines().last().unwrap_or_default()),
                "write it as the `regex` crate reads it: no look-around, no back-references".into(),
            ),
            Self::Key { path, why } => say(
                "audit/key",
                show_path(path),
                (*why).to_owned(),
                "move the key away: a new one is made; older checkpoints verify only with `--key` and the old public key".into(),
            ),
            Self::Poisoned => say(
                "audit/poisoned",
                "this process".into(),
                "a thread ended in the middle of an append".into(),
                "start again: the next append repairs the end of the log".into(),
            ),
        }
    }
}
