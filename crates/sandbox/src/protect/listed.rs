//! What an index of git's lists, without what git remembers of the files beside it: `git status` alone writes that anew, and nobody
//! would call it a change.

use sha2::{Digest as _, Sha256};

use super::hash::Hash;
use super::index::{Entry, entries};

/// A sum over the entries of an index, as each of git's hashes reads them; `None` where neither does.
#[must_use]
pub fn listed(index: &[u8]) -> Option<Vec<u8>> {
    let readings = [Hash::Sha1, Hash::Sha256].map(|hash| entries(index, hash.bytes()));
    if readings.iter().all(Option::is_none) {
        return None;
    }
    let mut sum = Sha256::new();
    for reading in readings {
        sum.update([u8::from(reading.is_some())]);
        for entry in reading.into_iter().flatten() {
            parts(&entry).into_iter().for_each(|part| {
                sum.update(part.len().to_le_bytes());
                sum.update(part);
            });
        }
    }
    Some(sum.finalize().to_vec())
}

/// The path of an entry, what is there, and its flags.
fn parts<'a>(entry: &'a Entry<'_>) -> [&'a [u8]; 4] {
    let (mode, hash) = entry.content().unwrap_or_default();
    [&entry.path, mode, hash, entry.raw.get(entry.flags_at..entry.path_at).unwrap_or_default()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "git itself says what it writes")]
    fn what_git_refreshes_is_no_change_and_all_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let git = |words: &[&str]| {
            let done = std::process::Command::new("git").args(words).current_dir(folder.path()).output().unwrap();
            assert!(done.status.success(), "{done:?}");
            std::fs::read(folder.path().join(".git/index")).unwrap_or_default()
        };
        git(&["init", "-q"]);
        for name in ["a", "b"] {
            std::fs::write(folder.path().join(name), name).unwrap();
        }
        let first = git(&["add", "."]);
        let old = std::fs::File::options().write(true).open(folder.path().join("a")).unwrap();
        old.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        let refreshed = git(&["status"]);
        assert!(first != refreshed && listed(&first).is_some() && listed(&first) == listed(&refreshed));
        assert_eq!(listed(&git(&["update-index", "--index-version", "4"])), listed(&first));
        let mut before = listed(&first);
        for words in [
            &["update-index", "--assume-unchanged", "a"][..],
            &["update-index", "--chmod=+x", "b"],
            &["rm", "-q", "-f", "--cached", "b"],
            &["add", "b"],
        ] {
            let now = listed(&git(words));
            assert!(now.is_some() && now != before, "{words:?}");
            before = now;
        }
        assert_eq!((listed(b""), listed(b"DIRC")), (None, None));
    }
}
