//! Tar streams, both ways. Blocks are read and written with the crate `tar`; the walk and its safety are ours, since it has to
//! go on in slices and never through a link.

mod archive;
mod beneath;
mod extract;
mod pax;

pub(super) use archive::Archive;
pub(super) use extract::Extract;

use crate::files::failure::failure;
use crate::words::{Code, Skipped};

/// Bytes of a block.
const BLOCK: usize = 512;
/// Most reasons that are told.
const REASONS: usize = 100;
/// Characters of a reason that are told.
const REASON: usize = 256;

/// Bytes that fill the last block of a member.
fn padding(size: u64) -> u64 {
    size.wrapping_neg() % 512
}

/// Notes what is left out and why.
fn skip(skipped: &mut Skipped, name: &[u8], why: impl std::fmt::Display) {
    if skipped.skipped.len() < REASONS {
        let text = format!("{why}: {}", String::from_utf8_lossy(name));
        let line = failure(Code::Failed, text).message;
        skipped.skipped.push(line.chars().take(REASON).collect());
    }
}
