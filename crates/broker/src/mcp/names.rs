//! Names as clients see them: `server__tool`, one to one, or not at all.
//!
//! A public name is looked up in a table that was built from what the servers listed; it is never taken apart. So a name of
//! another case, with a look-alike letter, with another server's prefix or of any other spelling is simply unknown.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

/// Most characters of a public name; clients refuse longer ones.
pub const MOST: usize = 64;
/// Most bytes of a tool's own name.
pub const MOST_OWN: usize = 200;
/// Between the server and its tool.
pub const BETWEEN: &str = "__";

/// Whether a word can be the name of a server: letters, digits, `-` and single `_` inside, at most 32. So that no two pairs
/// of server and tool can ever make one public name, it neither holds `__` nor ends with `_`.
#[must_use]
pub fn is_server(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    !name.is_empty() && name.len() <= 32 && name.chars().all(plain) && !name.contains(BETWEEN) && !name.ends_with('_')
}

/// The name of a server of a client's file, made fit: other characters become `-`.
#[must_use]
pub fn fit_server(name: &str) -> String {
    let mut fit: String = name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' }).collect();
    fit.truncate(32);
    fit.trim_matches('-').to_owned()
}

/// Whether a server may call its tool or prompt so: 1 to 200 bytes without white space, control or hidden characters.
#[must_use]
pub fn is_own(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MOST_OWN
        && !name.chars().any(|c| c.is_whitespace() || c.is_control() || super::text::hides(c))
}

/// The public name of a tool.
#[must_use]
pub fn public(server: &str, own: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let joined = format!("{server}{BETWEEN}{own}");
    if own.chars().all(plain) && joined.len() <= MOST {
        return joined;
    }
    // What does not fit is made fit, and told apart by a digest of what it was.
    let digest = hex(&Sha256::digest(own.as_bytes()), 8);
    let mut fit: String = joined.chars().map(|c| if plain(c) { c } else { '_' }).collect();
    fit.truncate(MOST.saturating_sub(digest.len()).saturating_sub(1));
    format!("{fit}_{digest}")
}

/// The first `digits` hexadecimal digits of bytes.
#[must_use]
pub fn hex(bytes: &[u8], digits: usize) -> String {
    let mut text = String::with_capacity(digits.saturating_add(1));
    for byte in bytes {
        if text.len() >= digits {
            break;
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text.truncate(digits);
    text
}

/// SHA-256 of a text, in hexadecimal.
#[must_use]
pub fn sha256(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()), 64)
}

/// Public names and what each stands for. A name that two would have stands for neither.
#[derive(Clone, Debug)]
pub struct Table<T> {
    known: BTreeMap<String, T>,
    refused: BTreeMap<String, Vec<String>>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { known: BTreeMap::new(), refused: BTreeMap::new() }
    }
}

impl<T> Table<T> {
    /// Adds a name; `whose` says in words what it stands for.
    pub fn add(&mut self, public: String, whose: impl Fn(&T) -> String, value: T) {
        if let Some(owners) = self.refused.get_mut(&public) {
            owners.push(whose(&value));
            return;
        }
        match self.known.remove(&public) {
            None => {
                self.known.insert(public, value);
            }
            Some(first) => {
                self.refused.insert(public, vec![whose(&first), whose(&value)]);
            }
        }
    }

    /// What a name stands for, byte for byte.
    #[must_use]
    pub fn get(&self, public: &str) -> Option<&T> {
        self.known.get(public)
    }

    /// All names, sorted.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &T)> {
        self.known.iter()
    }

    /// Names that more than one claims.
    #[must_use]
    pub fn refused(&self) -> &BTreeMap<String, Vec<String>> {
        &self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_pairs_make_one_public_name() {
        let servers = ["a", "a_b", "a-b", "ab"];
        let tools = ["b", "b__c", "_b", "c", "b.c", "b/c", "b_c", &"x".repeat(80), &"x".repeat(81), "ä", "ö"];
        let mut seen = std::collections::BTreeMap::new();
        for server in servers {
            assert!(is_server(server));
            for tool in tools {
                let name = public(server, tool);
                assert!(name.len() <= MOST && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b)));
                assert_eq!(seen.insert(name, (server, tool)), None, "{server} {tool}");
            }
        }
        for bad in ["a__b", "a_", "", "a.b", "a b", "ä", &"a".repeat(33)] {
            assert!(!is_server(bad), "{bad}");
        }
    }

    #[test]
    fn a_name_that_two_claim_stands_for_neither() {
        let mut table = Table::default();
        for owner in ["one", "two", "three"] {
            table.add("x__y".to_owned(), |o: &&str| (*o).to_owned(), owner);
        }
        assert_eq!(table.get("x__y"), None);
        assert_eq!(table.refused()["x__y"], ["one", "two", "three"]);
    }

    #[test]
    fn names_that_hide_something_are_no_names() {
        for bad in ["a b", "a\u{200b}", "a\n", "", &"x".repeat(201), "\u{202e}a"] {
            assert!(!is_own(bad), "{bad:?}");
        }
        assert!(is_own("fs.read") && is_own("a/b"));
    }
}
