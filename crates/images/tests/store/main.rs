//! The store, with images of every kind: those that are unpacked, and those that are refused.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a surprise in a test is a failed test")]

mod built;
mod exported;
mod hostile;
mod packed;
mod used;
