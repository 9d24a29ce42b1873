//! How many heads a server of HTTP/2 says on one stream: any before an answer (1xx), the answer's own, and its trailers.
//!
//! The client behind it reads all that come before an answer one after the other, and keeps them meanwhile: nobody else is asked.

use std::collections::BTreeMap;

use super::MAX_STREAMS;
use super::server::MAX_BEFORE;

/// Bytes before what a frame says.
const FRAME_HEAD: usize = 9;
/// Kinds of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
/// The flag of the last frame of a stream.
const END_STREAM: u8 = 1;
/// Most heads of one stream: beside those before an answer there are two.
const MAX_HEADS: usize = MAX_BEFORE + 2;
/// Most streams that are followed; those that the program took back are among them, until their server ends them too.
const MAX_FOLLOWED: usize = 2 * MAX_STREAMS;

/// Follows what a server says.
#[derive(Debug, Default)]
pub(super) struct Heads {
    /// What there is of a frame's head.
    held: Vec<u8>,
    /// How much of a frame is still to come.
    left: usize,
    counts: BTreeMap<u32, usize>,
}

impl Heads {
    /// Follows the next bytes; whether there are still not too many heads.
    pub(super) fn follow(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let passed = self.left.min(bytes.len());
            self.left = self.left.saturating_sub(passed);
            bytes = bytes.get(passed..).unwrap_or_default();
            let (more, rest) = bytes.split_at(bytes.len().min(FRAME_HEAD.saturating_sub(self.held.len())));
            self.held.extend_from_slice(more);
            bytes = rest;
            if let [one, two, three, kind, flags, stream @ ..] = self.held.as_slice()
                && let Ok(stream) = <[u8; 4]>::try_from(stream)
            {
                self.left =
                    [*one, *two, *three].iter().fold(0, |sum: usize, byte| sum.wrapping_shl(8) | usize::from(*byte));
                let (kind, ends) = (*kind, flags & END_STREAM != 0);
                self.held.clear();
                if !self.frame(kind, u32::from_be_bytes(stream), ends) {
                    return false;
                }
            }
        }
        true
    }

    fn frame(&mut self, kind: u8, stream: u32, ends: bool) -> bool {
        if kind == RST_STREAM || matches!(kind, DATA | HEADERS) && ends {
            self.counts.remove(&stream);
            return true;
        }
        if kind != HEADERS {
            return true;
        }
        let count = self.counts.entry(stream).or_default();
        *count = count.saturating_add(1);
        let fits = *count <= MAX_HEADS;
        // A server that begins the oldest anew speaks of a stream that is over, which ends the connection.
        if self.counts.len() > MAX_FOLLOWED {
            self.counts.pop_first();
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, length: usize) -> Vec<u8> {
        let size = u32::try_from(length).unwrap().to_be_bytes();
        [&size[1..], &[kind, flags], &stream.to_be_bytes(), &vec![7; length]].concat()
    }

    /// Whole, and byte by byte.
    fn followed(frames: &[Vec<u8>]) -> bool {
        let bytes = frames.concat();
        let mut slow = Heads::default();
        let slowly = bytes.iter().all(|byte| slow.follow(std::slice::from_ref(byte)));
        assert_eq!(Heads::default().follow(&bytes), slowly);
        slowly
    }

    #[test]
    fn heads_are_counted_for_each_stream_until_it_ends() {
        let head = |stream| frame(HEADERS, 4, stream, 5);
        let before = |stream| vec![head(stream); MAX_BEFORE];
        let answer = |stream| vec![head(stream), frame(DATA, 0, stream, 300), frame(HEADERS, 5, stream, 9)];
        assert!(followed(&[before(1), answer(1), before(3), answer(3)].concat()), "as many as may be, of each");
        assert!(!followed(&[before(1), vec![head(1); 3]].concat()), "one more");
        let mixed: Vec<Vec<u8>> = (0..=MAX_HEADS).flat_map(|_| [head(1), frame(DATA, 0, 3, 70_000), head(5)]).collect();
        assert!(!followed(&mixed), "between others");
        let often: Vec<Vec<u8>> = (0..2000_u32).flat_map(|n| answer(2 * n + 1)).collect();
        assert!(followed(&often), "a connection that is kept");
        let ended =
            [before(1), vec![frame(RST_STREAM, 0, 1, 4)], before(1), vec![frame(DATA, 1, 1, 0)], before(1)].concat();
        assert!(followed(&ended));
        // What other frames have in them is no frame.
        let within: Vec<Vec<u8>> =
            (0..100).map(|_| [frame(DATA, 0, 1, 0)[..3].to_vec(), vec![0; 6]].concat()).collect();
        assert!(followed(&within));
        let mut many = Heads::default();
        assert!((0..10_000_u32).all(|n| many.follow(&head(2 * n + 1))) && many.counts.len() == MAX_FOLLOWED);
    }
}
