//! What a listing of files may come to. A program inside names, links and describes its files as it likes, and all of one answer is
//! held at once.

use agent::words::Entry;

/// Most entries.
const MAX_ENTRIES: usize = 100_000;
/// Most bytes of names, paths, links and metadata together, as JSON writes them.
const MAX_TEXT: usize = 16 << 20;

/// Entries as they come.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) entries: Vec<Entry>,
    text: usize,
}

impl Listing {
    /// Keeps more of them.
    ///
    /// # Errors
    /// They are too many, or too long: says which, and what to ask for.
    pub(crate) fn add(&mut self, more: Vec<Entry>) -> Result<(), String> {
        for entry in more {
            self.text = self.text.saturating_add(written(&entry));
            self.entries.push(entry);
            if self.entries.len() > MAX_ENTRIES {
                return Err(format!("there are more than {MAX_ENTRIES} entries: list with less depth"));
            }
            if self.text > MAX_TEXT {
                let what = "the names, paths, links and metadata of the entries have more than 16 MiB";
                return Err(format!("{what}: list with less depth, or a folder below"));
            }
        }
        Ok(())
    }
}

/// Bytes of the texts of an entry in JSON.
fn written(entry: &Entry) -> usize {
    let metadata = entry.metadata.iter().flat_map(|(key, value)| [key, value]);
    let all = [&entry.name, &entry.path].into_iter().chain(&entry.target).chain(metadata);
    all.map(|text| text.bytes().map(escaped).sum::<usize>()).sum()
}

/// Bytes that JSON writes for one.
const fn escaped(byte: u8) -> usize {
    match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' => 2,
        0..=0x1f => "\\u0000".len(),
        0x20..=0xff => 1,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(name: &str, target: &str) -> Entry {
        serde_json::from_value(json!({
            "name": name, "path": format!("/home/user/{name}"), "kind": "link", "size": 1, "mode": 0o777, "uid": 1000, "gid": 1000,
            "modified": [0, 0], "target": target, "metadata": { "key": "a\"b" },
        }))
        .unwrap()
    }

    #[test]
    fn texts_count_as_they_are_written() {
        for name in ["plain", "caf\u{0}e9", "é\n\"\\\u{1}", ""] {
            let entry = entry(name, "there");
            let texts = json!([entry.name, entry.path, entry.target, "key", "a\"b"]);
            let written_then = texts.to_string().len() - "[\"\",\"\",\"\",\"\",\"\"]".len();
            assert_eq!(written(&entry), written_then, "{name:?}");
        }
    }

    #[test]
    fn a_listing_is_bounded_in_number_and_in_bytes() {
        let many = |count, of: &Entry| Listing::default().add(vec![of.clone(); count]);
        let short = entry("a", "b");
        assert_eq!(many(MAX_ENTRIES, &short), Ok(()));
        assert!(many(MAX_ENTRIES + 1, &short).unwrap_err().contains("100000 entries"));
        // Links of 4 KiB that are no text: a hundredth of that number is gigabytes where only the number counts.
        let long = entry("a", &"\u{0}ff".repeat(4095));
        let fit = MAX_TEXT / written(&long);
        assert_eq!(many(fit, &long), Ok(()));
        assert!(fit < MAX_ENTRIES / 100 && many(fit + 1, &long).unwrap_err().contains("16 MiB"));
        // However they come.
        let mut listing = Listing::default();
        assert!((0..=fit).any(|_| listing.add(vec![long.clone()]).is_err()));
    }
}
