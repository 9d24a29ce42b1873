//! What can be wrong with the ledger itself. Each of them denies the call: a limit that cannot be counted is not held.

use std::fmt;
use std::path::PathBuf;

use policy::diagnostic::quote;

/// The ledger cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LedgerFault {
    /// A file of it cannot be opened, locked or grown.
    File {
        /// Which.
        path: PathBuf,
        /// What the kernel said.
        why: String,
    },
    /// A file of it is not as it was written.
    Corrupt {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// There is no place for one more counter.
    Full {
        /// Which file.
        path: PathBuf,
    },
    /// Another process held it too long.
    Busy {
        /// Which file.
        path: PathBuf,
    },
    /// Others use it by a clock that cannot be compared with ours.
    Clock {
        /// Which file.
        path: PathBuf,
    },
    /// More processes than can be told apart.
    Processes {
        /// Which file.
        path: PathBuf,
    },
    /// More limits in one call than are kept together.
    TooMany,
}

impl LedgerFault {
    /// Stable id.
    #[must_use]
    pub const fn id(&self) -> &'static str {
        match self {
            Self::File { .. } => "tools.ledger/unusable",
            Self::Corrupt { .. } => "tools.ledger/corrupt",
            Self::Full { .. } => "tools.ledger/full",
            Self::Busy { .. } => "tools.ledger/busy",
            Self::Clock { .. } => "tools.ledger/clock",
            Self::Processes { .. } => "tools.ledger/processes",
            Self::TooMany => "tools.ledger/too-many",
        }
    }

    /// What, why, fix.
    #[must_use]
    pub fn parts(&self) -> [String; 3] {
        let name = |path: &PathBuf| quote(&path.display().to_string());
        match self {
            Self::File { path, why } => [
                format!("the counters in {} cannot be used", name(path)),
                why.clone(),
                "make its folder writable and leave room on its disk".to_owned(),
            ],
            Self::Corrupt { path, why } => [
                format!("the counters in {} are not as they were written", name(path)),
                (*why).to_owned(),
                "look who writes there, then move the file away: all counting begins anew".to_owned(),
            ],
            Self::Full { path } => [
                format!("there is no place for one more counter in {}", name(path)),
                "too many sessions, agents or keys are counted at once".to_owned(),
                "wait until windows end, count by agent or gateway, or end sessions".to_owned(),
            ],
            Self::Busy { path } => [
                format!("the counters in {} were in use for too long", name(path)),
                "another process holds their lock, and does not go on".to_owned(),
                "end or continue the process that has the file open".to_owned(),
            ],
            Self::Clock { path } => [
                format!("the counters in {} are in use under another clock", name(path)),
                "their user is in another time namespace, and its windows cannot be compared with ours".to_owned(),
                "give each time namespace a state folder of its own".to_owned(),
            ],
            Self::Processes { path } => [
                format!("too many processes count in {}", name(path)),
                "256 can be told apart".to_owned(),
                "end some gateways, or let them share one over HTTP".to_owned(),
            ],
            Self::TooMany => [
                "one call demands too many limits".to_owned(),
                "they are all reserved together, or none, and 16 fit".to_owned(),
                "write fewer entries with limits that match one tool".to_owned(),
            ],
        }
    }
}

impl fmt::Display for LedgerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [what, why, fix] = self.parts();
        write!(f, "{what}: {why}; {fix}")
    }
}

impl std::error::Error for LedgerFault {}
