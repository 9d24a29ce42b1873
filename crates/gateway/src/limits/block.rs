//! 32 words with a sum over them: the unit in which the table is read, written, and given up when its sum is wrong.

use std::sync::atomic::{AtomicU64, Ordering};

/// Words of a block.
pub(super) const WORDS: usize = 32;
/// Where its sum stands.
const SUM: usize = WORDS - 1;

/// One block, in our own memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block(pub(super) [u64; WORDS]);

impl Block {
    pub(super) const EMPTY: Self = Self([0; WORDS]);

    /// Copies a block of the table; the caller holds the lock.
    pub(super) fn read(from: &[AtomicU64]) -> Self {
        let mut block = Self::EMPTY;
        for (word, place) in block.0.iter_mut().zip(from) {
            *word = place.load(Ordering::Relaxed);
        }
        block
    }

    /// Copies it back, its sum with it.
    pub(super) fn write(&self, to: &[AtomicU64]) {
        for (word, place) in self.sealed().0.iter().zip(to) {
            place.store(*word, Ordering::Relaxed);
        }
    }

    /// With the right sum.
    pub(super) fn sealed(mut self) -> Self {
        self.0[SUM] = self.sum();
        self
    }

    /// Whether nobody ever wrote here.
    pub(super) fn is_fresh(&self) -> bool {
        *self == Self::EMPTY
    }

    /// Whether it is as it was written.
    pub(super) fn is_whole(&self) -> bool {
        self.0[SUM] == self.sum()
    }

    /// Never 0. Four lanes, since each step waits for the one before.
    fn sum(&self) -> u64 {
        let mut lanes =
            [0x9e37_79b9_7f4a_7c15_u64, 0xc2b2_ae3d_27d4_eb4f, 0x1656_67b1_9e37_79f9, 0x85eb_ca77_c2b2_ae63];
        let (words, _) = self.0.split_at(SUM);
        for part in words.chunks(lanes.len()) {
            for (lane, word) in lanes.iter_mut().zip(part) {
                *lane = (*lane ^ word).wrapping_mul(0x9fb2_1c65_1e98_df25).rotate_left(29);
            }
        }
        lanes.into_iter().fold(0, |sum, lane| (sum ^ lane).wrapping_mul(0xd6e8_feb8_6659_fd93).rotate_left(32)).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_of_a_bit_is_seen() {
        let mut block = Block::EMPTY;
        for (index, word) in block.0.iter_mut().enumerate() {
            *word = u64::try_from(index).unwrap() * 77;
        }
        let block = block.sealed();
        assert!(block.is_whole() && !Block::EMPTY.is_whole() && Block::EMPTY.is_fresh());
        for bit in 0..WORDS * 64 {
            let mut changed = block;
            changed.0[bit / 64] ^= 1 << (bit % 64);
            assert!(!changed.is_whole(), "bit {bit}");
        }
    }

    #[test]
    fn words_that_changed_places_are_seen() {
        let mut block = Block::EMPTY;
        block.0[1] = 5;
        let block = block.sealed();
        for to in [2, 5, 9, 30] {
            let mut moved = block;
            moved.0.swap(1, to);
            assert!(!moved.is_whole(), "{to}");
        }
    }
}
