//! Names as clients see them: `server__tool`, one to one, or not at all.
//!
//! A public name is looked up in a table that was built from what the servers listed; it is never taken apart. So a name of
//! another case, with a look-alike letter, with another server's prefix or of any other spelling is simply unknown.

use std::collections::BTreeMap;

pub use policy::names::{MAX_SERVER, is_server};

/// The server of a tool, by the name that policies have for it: `mail` of `mail.send`.
#[must_use]
pub fn server_of(tool: &str) -> Option<&str> {
    tool.split_once('.').map(|(server, _)| server)
}

/// The name of a server of a client's file, made fit: other characters become `-`.
#[must_use]
pub fn fit_server(name: &str) -> String {
    let mut fit: String = name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' }).collect();
    fit.truncate(MAX_SERVER);
    fit.trim_matches('-').to_owned()
}

/// The public name of a tool or prompt of a server; `None` where its own name can be none.
#[must_use]
pub fn public(server: &str, own: &str) -> Option<String> {
    gate::names::Public::default().insert(Some(server), own).ok()
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
        let tools = ["b", "b__c", "_b", "c", "b.c", "b/c", "b_c", &"x".repeat(80), &"x".repeat(81)];
        let mut seen = BTreeMap::new();
        for server in ["a", "a_b", "a-b", "ab"] {
            assert!(is_server(server));
            for tool in tools {
                let name = public(server, tool).unwrap();
                assert!(name.len() <= 64 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b)));
                assert_eq!(seen.insert(name, (server, tool)), None, "{server} {tool}");
            }
        }
        for bad in ["a b", "a\u{200b}", "a\n", "", "ä", "\u{202e}a"] {
            assert_eq!(public("a", bad), None, "{bad:?}");
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
}
