//! What a call demands before it is made: how often, how many at once, and at what cost.
//!
//! A [`Demand`] says whose counter is meant ([`Key`]) and what must hold ([`Want`]). The gate names the demands; the gateway's
//! ledger meets all demands of one call together or not at all.

use sha2::{Digest as _, Sha256};

/// Most demands of one call.
pub const MAX_DEMANDS: usize = 16;

/// One thing that must hold for a call to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The rule that demands it, for messages and the record: `tools.tool[2].rate`.
    pub rule: std::sync::Arc<str>,
    /// Whose counter.
    pub key: Key,
    /// What must hold.
    pub want: Want,
}

/// What must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// At most `calls` in any window of `per_ms`, and at most `burst` in any window of `per_ms / calls * burst`.
    Rate {
        /// Calls in any window; 0 allows none.
        calls: u32,
        /// Length of the window, in milliseconds.
        per_ms: u64,
        /// How many may come at once; no limit of its own where it is not below `calls`.
        burst: u32,
    },
    /// Spending, in millionths of the unit.
    Budget {
        /// What this call reserves.
        cost: u64,
        /// Most in any window of so many milliseconds.
        window: Option<(u64, u64)>,
        /// Most ever.
        total: Option<u64>,
    },
    /// At most so many calls at once.
    Concurrency(u32),
}

/// Names one counter: a hash over the rule and the identity, so that a key has one size, whatever the words are.
///
/// Words are compared byte for byte: case and normal form are part of an identity, since the front door, and never the
/// caller, says what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(u128);

impl Key {
    /// The counter of these words. Each is hashed with its length, so that `("a", "bc")` is not `("ab", "c")`.
    #[must_use]
    pub fn new(words: &[&str]) -> Self {
        let mut hash = Sha256::new();
        for word in words {
            hash.update(u64::try_from(word.len()).unwrap_or(u64::MAX).to_le_bytes());
            hash.update(word.as_bytes());
        }
        let digest = hash.finalize();
        // 0 marks an empty place of the table.
        let number = digest.iter().take(16).fold(0_u128, |number, byte| (number << 8) | u128::from(*byte));
        Self(number.max(1))
    }

    /// The key as a number; never 0.
    #[must_use]
    pub const fn get(self) -> u128 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_told_apart_by_byte_and_by_border() {
        let all = [
            Key::new(&["rate", "mail.send", "agent", "a"]),
            Key::new(&["rate", "mail.send", "agent", "A"]),
            Key::new(&["rate", "mail.send", "agenta", ""]),
            Key::new(&["rate", "mail.sen", "dagent", "a"]),
            Key::new(&["rate", "mail.send", "agent", "\u{e9}"]),
            Key::new(&["rate", "mail.send", "agent", "e\u{301}"]),
            Key::new(&["rate", "mail.send", "agent"]),
            Key::new(&[]),
        ];
        for (index, key) in all.iter().enumerate() {
            assert_eq!(all.iter().position(|other| other == key), Some(index));
        }
    }
}
