//! Why something does not pass, in the words of every judge here: of values and of command lines.

/// Why a value does not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// Stable id, `tools.guard/email`.
    pub id: &'static str,
    /// What is wrong with the value; the value is quoted with [`policy::diagnostic::quote`].
    pub what: String,
    /// Why.
    pub why: String,
    /// What would pass.
    pub instead: String,
}

impl Blocked {
    pub(crate) fn new(
        id: &'static str,
        what: impl Into<String>,
        why: impl Into<String>,
        instead: impl Into<String>,
    ) -> Self {
        Self { id, what: what.into(), why: why.into(), instead: instead.into() }
    }
}
