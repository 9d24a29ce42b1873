//! Whose counter: a hash over the rule and the identity, so that a key has one size, whatever the words are.

use sha2::{Digest as _, Sha256};

/// Names one counter. Words are compared byte for byte: case and normal form are part of an identity, since the front
/// door, and never the caller, says what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub(crate) u128);

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
