//! What is legal but probably not meant.

use crate::clause::ClauseId;

/// One remark on a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lint {
    /// Stable id.
    pub id: &'static str,
    /// Clause.
    pub clause: ClauseId,
    /// What it is about.
    pub what: String,
    /// Where the value came from.
    pub at: String,
    /// Why it is worth a remark.
    pub why: String,
    /// What was probably meant.
    pub fix: String,
}

impl std::fmt::Display for Lint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({}): {}; {}", self.what, self.at, self.why, self.fix)
    }
}

impl Lint {
    /// `{id, clause, what, where, why, fix}`.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "id": self.id,
            "clause": self.clause.path(),
            "what": self.what,
            "where": self.at,
            "why": self.why,
            "fix": self.fix,
        })
    }
}
