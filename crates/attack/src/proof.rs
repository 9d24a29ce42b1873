//! What the verdicts prove together.

use crate::judge::Outcome;

/// What the rows show together.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub enum Proof {
    /// Something promised was possible.
    Escaped,
    /// All that is promised and could be tried was stopped.
    Held,
    /// No chosen row is promised: there is nothing that could escape, and nothing that holds.
    NothingPromised,
    /// No row came to an end, so nothing is proven: that is no success.
    NothingTried,
}

impl Proof {
    /// A whole catalogue of which nothing is promised is more likely a fault of ours than a wish: only rows that were
    /// named one by one may all be without a promise.
    #[must_use]
    pub fn of(results: impl IntoIterator<Item = Outcome>, named: bool) -> Self {
        let results: Vec<Outcome> = results.into_iter().collect();
        let any = |result| results.contains(&result);
        if any(Outcome::Escaped) {
            Self::Escaped
        } else if any(Outcome::Held) {
            Self::Held
        } else if named && !results.is_empty() && !any(Outcome::Skipped) {
            Self::NothingPromised
        } else {
            Self::NothingTried
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Outcome::{Escaped, Held, NotPromised, Skipped};
    use super::*;

    #[test]
    fn only_named_rows_may_all_be_without_a_promise() {
        assert_eq!(Proof::of([NotPromised, NotPromised], true), Proof::NothingPromised);
        assert_eq!(Proof::of([NotPromised, NotPromised], false), Proof::NothingTried);
    }

    #[test]
    fn what_could_not_be_tried_proves_nothing() {
        assert_eq!(Proof::of([], true), Proof::NothingTried);
        assert_eq!(Proof::of([Skipped], true), Proof::NothingTried);
        assert_eq!(Proof::of([NotPromised, Skipped], true), Proof::NothingTried);
        assert_eq!(Proof::of([NotPromised, Skipped, Held], true), Proof::Held);
    }

    #[test]
    fn one_escape_outweighs_all() {
        assert_eq!(Proof::of([Held, NotPromised, Escaped], true), Proof::Escaped);
    }
}
