//! Why nobody is asked, why an answer does not count, and what is wrong with the store.

use std::path::PathBuf;

use gate::verdict::Reason;
use policy::diagnostic::quote;
use policy::tools::Decision;

use super::State;

/// What is wrong with `approvals.db` or its folder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Others may look into the folder, or it is not the caller's.
    #[error("{} is not the caller's alone", quote(&path.to_string_lossy()))]
    Folder {
        /// The folder.
        path: PathBuf,
    },
    /// The file cannot be opened, read or written.
    #[error("{} cannot be used: {why}", quote(&path.to_string_lossy()))]
    File {
        /// The file.
        path: PathBuf,
        /// What `SQLite` or the kernel says.
        why: String,
    },
    /// It was written by a later version.
    #[error("{} is of version {version}, which this program does not know", quote(&path.to_string_lossy()))]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: i64,
    },
    /// The kernel gave no random bytes.
    #[error("no random bytes from the kernel")]
    NoRandom,
}

/// Why nobody is asked, or an approval cannot be used; the call is denied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApprovalError {
    /// Too many wait already.
    #[error("{waiting} calls of {whose} already wait for a person")]
    TooMany {
        /// `this session`, `this agent`, `all agents`.
        whose: &'static str,
        /// How many.
        waiting: u32,
    },
    /// Nobody can be expected to read that much.
    #[error("{bytes} bytes of arguments are more than a person is asked to read")]
    TooLarge {
        /// How much.
        bytes: usize,
        /// The most.
        most: usize,
    },
    /// The same call was denied a moment ago.
    #[error("{} denied the same call {seconds} s ago", quote(by))]
    DeniedBefore {
        /// Who.
        by: String,
        /// What was said.
        why: String,
        /// How long ago.
        seconds: u64,
    },
    /// The caller went away, or somebody took the call back.
    #[error("the call was taken back")]
    Cancelled,
    /// Another call used the approval.
    #[error("the approval was used by another call")]
    Used,
    /// The store cannot be read or written.
    #[error("{0}")]
    Store(#[from] StoreError),
}

impl ApprovalError {
    /// The reason of the denial.
    #[must_use]
    pub fn denial(&self, rule: &str) -> Reason {
        let (id, why, instead) = match self {
            Self::TooMany { .. } => (
                "tools.approval/too-many",
                "a person who is flooded agrees to anything".to_owned(),
                "wait until the others are answered".to_owned(),
            ),
            Self::TooLarge { most, .. } => (
                "tools.approval/too-large",
                "what nobody reads nobody can agree to".to_owned(),
                format!("a call of at most {most} bytes"),
            ),
            Self::DeniedBefore { why, .. } => (
                "tools.approval/denied-before",
                if why.is_empty() { "the answer stands".to_owned() } else { why.clone() },
                "do something else; asking again for the same is denied".to_owned(),
            ),
            Self::Cancelled => (
                "tools.approval/cancelled",
                "the caller went away before anybody answered".to_owned(),
                "call again".to_owned(),
            ),
            Self::Used => (
                "tools.approval/used",
                "an approval is good for one call".to_owned(),
                "call again, so that a person is asked again".to_owned(),
            ),
            Self::Store(_) => (
                "tools.approval/unavailable",
                "without its store nobody can be asked".to_owned(),
                "tell your user: `fumehood approvals ls` says what is wrong".to_owned(),
            ),
        };
        Reason { id, rule: rule.to_owned(), at: None, decision: Decision::Deny, what: self.to_string(), why, instead }
    }
}

/// Why an answer does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// No call has this id.
    #[error("no call has the id {}", quote(id))]
    Unknown {
        /// As typed.
        id: String,
    },
    /// Somebody or something was first.
    #[error("the call is {} already", state.as_str())]
    Over {
        /// Where it stands.
        state: State,
        /// Who said so.
        by: Option<String>,
    },
    /// What is to be remembered does not fit the call.
    #[error("{why}")]
    Remember {
        /// Why.
        why: String,
    },
    /// The store cannot be read or written.
    #[error("{0}")]
    Store(#[from] StoreError),
}
