//! A call that means nothing: what is wrong with a word of it, and the word that was meant.

use sandbox::fault::Fault;

/// A mistake on the command line.
#[must_use]
pub fn usage(id: &'static str, what: String, why: String, fix: String) -> Fault {
    Fault { id, what, place: "command line".to_owned(), why, fix }
}

/// The known word that `typed` was most likely meant to be.
pub fn closest<'a>(typed: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|word| (strsim::jaro_winkler(typed, word), word))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, word)| word)
}
