//! How a program of an interpreter ends.

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// By itself, with this code.
    Exited(u8),
    /// It failed; in its own words.
    Failed(String),
    /// It needs what the tier has not: its own words, and what that is.
    Lacks(String, String),
    /// A value would have passed the limit of memory; in its own words.
    Memory(String),
    /// It took all its steps.
    Steps(String),
}
