//! What every guard answers.

/// Why a value does not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// Stable id, `tools.guard/email`.
    pub id: &'static str,
    /// What is wrong with the value; the value is quoted with [`policy::mistake::quote`].
    pub what: String,
    /// Why.
    pub why: String,
    /// What would pass.
    pub instead: String,
}

/// A value that passed: what the tool gets (a guard may normalise: a URL as serialised, a path as resolved).
pub type Passed = serde_json::Value;
