//! The paths of git's `index`. git checks a path when it puts it there and trusts it afterwards: an entry `.git/hooks/x` or
//! `../x` that somebody else wrote into the file is checked out as it stands.

/// Why git's index may not be taken over; what is not understood may not.
pub(super) fn objection(index: &[u8]) -> Option<String> {
    let Some(paths) = Paths::of(index) else {
        return Some("it is no index of git's that is understood here".to_owned());
    };
    for path in paths {
        let Some(path) = path else { return Some("it is no index of git's that is understood here".to_owned()) };
        if !is_plain(&path) {
            return Some(format!(
                "its entry {} would be written where git writes nothing",
                crate::fault::show_bytes(&path)
            ));
        }
    }
    None
}

/// A path that git itself would put there: relative, without `.`, `..` or anything that some file system takes for `.git`.
fn is_plain(path: &[u8]) -> bool {
    path.split(|&b| b == b'/').all(|part| {
        let text: String = String::from_utf8_lossy(part).chars().filter(|c| !is_ignored(*c)).collect();
        let text = text.trim_end_matches(['.', ' ']).to_ascii_lowercase();
        let name = text.split(':').next().unwrap_or_default();
        !part.is_empty()
            && !matches!(part, b"." | b"..")
            && name != ".git"
            && !name.starts_with("git~")
            && !part.contains(&b'\\')
    })
}

/// Letters that HFS+ leaves out when it compares.
const fn is_ignored(letter: char) -> bool {
    matches!(letter, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}')
}

/// The paths of an index of version 2, 3 or 4; `None` for one that does not read.
struct Paths<'a> {
    rest: &'a [u8],
    left: u32,
    /// Bytes of a hash.
    hash: usize,
    compressed: bool,
    path: Vec<u8>,
    extensions: bool,
}

/// Bytes of an entry before the hash: times, device, inode, mode, ids and size.
const FIXED: usize = 40;

impl<'a> Paths<'a> {
    fn of(index: &'a [u8]) -> Option<Self> {
        let version = u32_at(index, 4)?;
        if index.get(..4)? != b"DIRC" || !(2..=4).contains(&version) {
            return None;
        }
        // Nothing in the file says which hash; the checksum at its end is one.
        let hash =
            [20, 32].into_iter().find(|hash| Self::with(index, version, *hash).is_some_and(Self::reads_whole))?;
        Self::with(index, version, hash)
    }

    fn with(index: &'a [u8], version: u32, hash: usize) -> Option<Self> {
        let rest = index.get(12..index.len().checked_sub(hash)?)?;
        let left = u32_at(index, 8)?;
        Some(Self { rest, left, hash, compressed: version == 4, path: Vec::new(), extensions: false })
    }

    /// Whether every entry reads, and after them stand extensions that name no other file.
    fn reads_whole(mut self) -> bool {
        self.by_ref().all(|path| path.is_some()) && self.extensions
    }

    fn entry(&mut self) -> Option<Vec<u8>> {
        let flags_at = FIXED.checked_add(self.hash)?;
        let flags = u16::from_be_bytes(self.rest.get(flags_at..flags_at.checked_add(2)?)?.try_into().ok()?);
        let extended = flags & 0x4000 != 0;
        let name_at = flags_at.checked_add(if extended { 4 } else { 2 })?;
        let mut name = self.rest.get(name_at..)?;
        if self.compressed {
            let (strip, used) = variable(name)?;
            name = name.get(used..)?;
            let end = name.iter().position(|&b| b == 0)?;
            self.path.truncate(self.path.len().checked_sub(strip)?);
            self.path.extend_from_slice(name.get(..end)?);
            self.rest = name.get(end.checked_add(1)?..)?;
        } else {
            let end = name.iter().position(|&b| b == 0)?;
            self.path = name.get(..end)?.to_vec();
            // Padded with 1 to 8 zeros to a multiple of eight.
            let length = name_at.checked_add(end)?.checked_add(8)? & !7;
            self.rest = self.rest.get(length..)?;
        }
        Some(self.path.clone())
    }

    /// Extensions may follow; one whose name is in lower case changes what the entries mean (`link`: another file has more).
    fn tail(&mut self) -> bool {
        while let Some((name, length)) = self.rest.get(..4).zip(u32_at(self.rest, 4)) {
            let known = name.iter().all(u8::is_ascii_uppercase) || name == b"sdir";
            let Some(rest) = usize::try_from(length).ok().and_then(|n| self.rest.get(n.checked_add(8)?..)) else {
                return false;
            };
            if !known || name == b"FSMN" {
                return false;
            }
            self.rest = rest;
        }
        self.rest.is_empty()
    }
}

impl Iterator for Paths<'_> {
    type Item = Option<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        let Some(left) = self.left.checked_sub(1) else {
            self.extensions = self.tail();
            return None;
        };
        self.left = left;
        let entry = self.entry();
        if entry.is_none() {
            self.left = 0;
        }
        Some(entry)
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// A number as packs have it, and how many bytes it took.
fn variable(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut value = 0_usize;
    for (at, byte) in bytes.iter().take(5).enumerate() {
        value = value.checked_shl(7)?.checked_add(usize::from(byte & 0x7f))?;
        if byte & 0x80 == 0 {
            return Some((value, at.checked_add(1)?));
        }
        value = value.checked_add(1)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(version: u32, paths: &[&str]) -> Vec<u8> {
        let mut all =
            [b"DIRC".as_slice(), &version.to_be_bytes(), &u32::try_from(paths.len()).unwrap().to_be_bytes()].concat();
        let mut before = "";
        for path in paths {
            let mut entry = vec![0; FIXED + 20];
            entry.extend_from_slice(&u16::try_from(path.len()).unwrap().to_be_bytes());
            if version == 4 {
                let same = before.bytes().zip(path.bytes()).take_while(|(a, b)| a == b).count();
                entry.push(u8::try_from(before.len() - same).unwrap());
                entry.extend_from_slice(&path.as_bytes()[same..]);
                entry.push(0);
            } else {
                entry.extend_from_slice(path.as_bytes());
                entry.resize((entry.len() + 8) & !7, 0);
            }
            all.extend(entry);
            before = path;
        }
        all.extend_from_slice(b"TREE\0\0\0\x02xx");
        all.extend([0; 20]);
        all
    }

    #[test]
    fn paths_of_every_version_are_read() {
        for version in [2, 3, 4] {
            assert_eq!(objection(&index(version, &["a", "a/b.txt", ".gitignore", "git", "ü/x"])), None, "{version}");
            assert_eq!(objection(&index(version, &[])), None);
        }
    }

    #[test]
    fn paths_that_git_would_not_put_there_are_found() {
        for path in [
            ".git/hooks/x",
            "a/.GIT/config",
            "../x",
            "/etc/x",
            "a//b",
            "a/./b",
            ".git",
            "GIT~1/x",
            ".git./x",
            ".g\u{200c}it/x",
            "a\\..\\b",
            ".git::$INDEX_ALLOCATION/x",
        ] {
            for version in [2, 4] {
                assert!(objection(&index(version, &["a", path])).is_some(), "{path}");
            }
        }
    }

    #[test]
    fn what_is_not_understood_is_held() {
        let whole = index(2, &["a", "b"]);
        for cut in 0..100 {
            assert!(objection(&whole[..cut]).is_some(), "{cut}");
        }
        let mut linked = index(2, &["a"]);
        let at = linked.len() - 30;
        linked[at..at + 4].copy_from_slice(b"link");
        assert!(objection(&linked).is_some());
        assert!(objection(&index(5, &["a"])).is_some() && objection(b"").is_some());
    }

    #[test]
    fn a_real_index_reads() {
        let folder = tempfile::tempdir().unwrap();
        let git = |words: &[&str]| {
            #[expect(clippy::disallowed_methods, reason = "git itself says what it writes")]
            let done = std::process::Command::new("git").args(words).current_dir(folder.path()).output().unwrap();
            assert!(done.status.success(), "{done:?}");
        };
        git(&["init", "-q"]);
        for name in ["a", "deep/b", "deep/c"] {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, name).unwrap();
        }
        git(&["add", "."]);
        git(&["add", "-N", "."]);
        let read = || std::fs::read(folder.path().join(".git/index")).unwrap();
        assert_eq!(objection(&read()), None);
        git(&["update-index", "--index-version", "4"]);
        assert_eq!(objection(&read()), None);
        git(&["update-index", "--split-index"]);
        assert!(objection(&read()).is_some(), "the rest is in another file");
    }
}
