//! What an image may be called, and what names one.

use crate::config::sha256_of;

/// Longest name.
const MAX_NAME: usize = 255;

/// Whether an image may be called this. A name never looks like a digest.
pub(crate) fn is_name(name: &str) -> bool {
    name.len() <= MAX_NAME
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._:/@+-".contains(&byte))
        && !name.starts_with("sha256:")
}

/// The digest that a reference is, if it is one and no name.
pub(crate) fn digest_of(reference: &str) -> Option<&str> {
    sha256_of(reference).map(|_| reference)
}
