//! git's `index`. git checks a path when it puts it there and trusts it afterwards: an entry `.git/hooks/x` or `../x` that
//! somebody else wrote into the file is checked out as it stands. And it believes what the index remembers: that a file is
//! as it was, that it is not to be looked at, which names a folder has, where among the bytes the entries are. With that a
//! run would make `git status` say that nothing changed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use policy::protected::folded;

use super::blob::mode_beside;
use super::hash::Hash;
use super::work_tree::{WorkTree, lost};
use crate::fault::show_path;

const UNKNOWN: &str = "it is no index of git's that is understood here (a split one is not, nor one with whole folders as entries: `git update-index \
                       --no-split-index` and `git sparse-checkout reapply --no-sparse-index` make them plain)";
const UNKNOWN_BEFORE: &str = "the index that the host has is none that is understood here (a split one is not): nobody can say what of it would be lost";
/// Bytes before the first entry.
const HEADER: usize = 12;
/// Bytes of an entry before the hash: times, device, inode, mode, ids and size.
const FIXED: usize = 40;
/// Where in them the mode stands, which is no memory but what is to be there.
const MODE: Range<usize> = 24..28;
/// The mode of a submodule.
pub const SUBMODULE: u32 = 0o160_000;
/// In the flags of an entry: it is taken to be unchanged.
const UNCHANGED: u16 = 0x8000;
/// More flags follow.
const EXTENDED: u16 = 0x4000;
/// In those: it is left out of the working tree.
const SKIPPED: u16 = 0x4000;
/// In those: it is to be added. git knows no others, and stops at one.
const INTENDED: u16 = 0x2000;
/// Of which side of a conflict the entry is.
const STAGE: u16 = 0x3000;
/// Where git LFS sends contents, and where git fetches submodules: both read the entry of this name where no file is there.
pub const READ_AS_FILES: [&[u8]; 2] = [b".lfsconfig", b".gitmodules"];
/// The length of the path, or that it is longer.
const LENGTH: u16 = 0x0fff;

/// Why git's index may not take the place of another; what is not understood may not.
#[must_use]
pub fn index_objection(before: &[u8], now: &[u8], hash: Option<Hash>, tree: &WorkTree<'_>) -> Option<String> {
    let Some((empty, hash)) = hash.map(|hash| (hash.sum(&[b"blob 0\0"]), hash.bytes())) else {
        return Some(UNKNOWN.to_owned());
    };
    let Some(entries) = entries(now, hash) else { return Some(UNKNOWN.to_owned()) };
    if !before.is_empty() && self::entries(before, hash).is_none() {
        return Some(UNKNOWN_BEFORE.to_owned());
    }
    let hosts: BTreeMap<(Vec<u8>, u16), Entry<'_>> =
        entries_of_host(before, hash).map(|entry| ((entry.path.clone(), entry.stage()), entry)).collect();
    let refused =
        |path: &[u8], why: &str| Some(format!("its entry {} {why}", show_path(Path::new(OsStr::from_bytes(path)))));
    let found = entries.iter().find_map(|entry| {
        let host = hosts.get(&(entry.path.clone(), entry.stage()));
        let is_same = host.is_some_and(|host| host.content() == entry.content());
        let path = Path::new(OsStr::from_bytes(&entry.path));
        let is_seen = |(_, name): (&[u8], &[u8])| {
            let is_nothing = entry.is_intended() && name == empty; // `git add -N`
            let seen = |mode| (mode_beside(mode, host.and_then(Entry::mode)), name.to_vec());
            (tree.is_seen)(path, entry.mode().filter(|_| !is_nothing).map(seen).as_ref())
        };
        let why = if !is_plain(&entry.path) {
            "would be written where git writes nothing"
        } else if entry.is_unseen() && !host.is_some_and(Entry::is_unseen) && !tree.leaves_out(entry) {
            "is one that git does not look at any more, whatever the file becomes (a sparse checkout of the host's may leave out what no file \
             is there for, as a commit of the run has it)"
        } else if entry.is_intended() && host.is_some_and(|host| !host.is_intended()) {
            "is only to be added by now, though the host has it: the next commit would remove it"
        } else if is_same {
            return None;
        } else if READ_AS_FILES.contains(&entry.path.as_slice()) {
            "is read where no file of this name is there, and says which server is asked"
        } else if entry.is_submodule() && !entry.content().is_some_and(|(_, id)| (tree.has_commit)(path, id)) {
            "names a commit of a submodule that is neither of this run nor where the host's submodule or a branch of it is: git looks at \
             no file there, and takes them from a server"
        } else if !entry.is_submodule()
            && !(tree.is_committed)(path, true)
            && !entry.content().is_some_and(is_seen)
        {
            "is of other contents, or another kind, than the file there, and no commit of the run has them so: the next commit would have them"
        } else {
            return None;
        };
        refused(&entry.path, why)
    });
    found.or_else(|| {
        let (lost, why) = lost(&entries, &hosts, tree)?;
        refused(&lost.path, why)
    })
}

/// An index without what git would believe of it unseen: its entries, those that the host has not in the same way without time
/// and size, so that git looks at the files again; and nothing behind them. `None` where it is not understood.
#[must_use]
pub fn settled(before: &[u8], now: &[u8], hash: Hash) -> Option<Vec<u8>> {
    let known: BTreeMap<Vec<u8>, Entry<'_>> =
        entries_of_host(before, hash.bytes()).map(|entry| (entry.path.clone(), entry)).collect();
    let mut settled = now.get(..HEADER)?.to_vec();
    for entry in entries(now, hash.bytes())? {
        let is_known = known.get(&entry.path).is_some_and(|known| known.head() == entry.head());
        let at = settled.len();
        settled.extend(entry.raw);
        if !is_known {
            settled.get_mut(at..at.checked_add(FIXED)?)?.fill(0);
            settled
                .get_mut(at.checked_add(MODE.start)?..at.checked_add(MODE.end)?)?
                .copy_from_slice(entry.raw.get(MODE)?);
        }
    }
    settled.extend(hash.sum(&[&settled]));
    Some(settled)
}

/// None of an index that is not understood.
pub(super) fn entries_of_host(index: &[u8], hash: usize) -> impl Iterator<Item = Entry<'_>> {
    entries(index, hash).unwrap_or_default().into_iter()
}

/// The entries of an index, if all of it reads.
pub(super) fn entries(index: &[u8], hash: usize) -> Option<Vec<Entry<'_>>> {
    let version = u32_at(index, 4)?;
    if index.get(..4)? != b"DIRC" || !(2..=4).contains(&version) {
        return None;
    }
    let rest = index.get(HEADER..index.len().checked_sub(hash)?)?;
    let mut reader = Reader { rest, hash, compressed: version == 4, path: Vec::new() };
    let entries = (0..u32_at(index, 8)?).map(|_| reader.entry()).collect::<Option<Vec<_>>>()?;
    (reader.extensions() && is_in_order(&entries)).then_some(entries)
}

/// Each entry is behind the one before, and below none that is a file: git stops in the middle of what it does otherwise.
fn is_in_order(entries: &[Entry<'_>]) -> bool {
    let mut files = BTreeSet::new();
    let mut before: Option<(&[u8], u16)> = None;
    entries.iter().all(|entry| {
        let here = (entry.path.as_slice(), entry.stage());
        let is_behind = before.is_none_or(|before| before < here);
        before = Some(here);
        files.insert(here);
        let slashes = entry.path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        is_behind && slashes.filter_map(|(at, _)| entry.path.get(..at)).all(|folder| !files.contains(&(folder, here.1)))
    })
}

/// One entry.
pub(super) struct Entry<'a> {
    pub(super) raw: &'a [u8],
    pub(super) path: Vec<u8>,
    pub(super) flags_at: usize,
    pub(super) path_at: usize,
}

impl Entry<'_> {
    /// All but the path.
    fn head(&self) -> Option<&[u8]> {
        self.raw.get(..self.path_at)
    }

    fn is_submodule(&self) -> bool {
        self.mode() == Some(SUBMODULE)
    }

    /// What is there: its mode and its hash.
    pub(super) fn content(&self) -> Option<(&[u8], &[u8])> {
        self.raw.get(MODE).zip(self.raw.get(FIXED..self.flags_at))
    }

    pub(super) fn mode(&self) -> Option<u32> {
        u32_at(self.raw, MODE.start)
    }

    /// Of which side of a conflict it is.
    pub(super) fn stage(&self) -> u16 {
        u16_at(self.raw, self.flags_at).unwrap_or_default() & STAGE
    }

    /// Whether it is only to be added.
    pub(super) fn is_intended(&self) -> bool {
        let flags = |at: usize| u16_at(self.raw, at).unwrap_or_default();
        flags(self.flags_at) & EXTENDED != 0 && flags(self.flags_at.saturating_add(2)) & INTENDED != 0
    }

    /// Whether it is left out of the working tree, and nothing else is said of it.
    pub(super) fn is_skipped_alone(&self) -> bool {
        self.is_unseen() && u16_at(self.raw, self.flags_at).unwrap_or(u16::MAX) & UNCHANGED == 0
    }

    /// Whether git does not look at the file.
    pub(super) fn is_unseen(&self) -> bool {
        let flags = |at: usize| u16_at(self.raw, at).unwrap_or(u16::MAX);
        let first = flags(self.flags_at);
        first & UNCHANGED != 0 || first & EXTENDED != 0 && flags(self.flags_at.saturating_add(2)) & SKIPPED != 0
    }
}

/// A path that git itself would put there: relative, without `.`, `..` or anything that some file system takes for `.git`.
fn is_plain(path: &[u8]) -> bool {
    // A backslash is a character like others here, and ends a name on Windows.
    let is_gits = |part: &[u8]| {
        let name = folded(String::from_utf8_lossy(part).as_bytes()).to_ascii_lowercase();
        matches!(part, b"." | b"..") || name == b".git" || name.starts_with(b"git~")
    };
    path.split(|&b| b == b'/').all(|part| !part.is_empty() && !part.split(|&b| b == b'\\').any(is_gits))
}

/// Reads an index of version 2, 3 or 4 as git does, entry by entry.
struct Reader<'a> {
    rest: &'a [u8],
    /// Bytes of a hash.
    hash: usize,
    compressed: bool,
    path: Vec<u8>,
}

impl<'a> Reader<'a> {
    fn entry(&mut self) -> Option<Entry<'a>> {
        let whole = self.rest;
        let flags_at = FIXED.checked_add(self.hash)?;
        let flags = u16_at(whole, flags_at)?;
        let path_at = flags_at.checked_add(if flags & EXTENDED == 0 { 2 } else { 4 })?;
        let mut name = whole.get(path_at..)?;
        let length = if self.compressed {
            let (strip, used) = variable(name)?;
            name = name.get(used..)?;
            let end = name.iter().position(|&b| b == 0)?;
            self.path.truncate(self.path.len().checked_sub(strip)?);
            self.path.extend_from_slice(name.get(..end)?);
            path_at.checked_add(used)?.checked_add(end)?.checked_add(1)?
        } else {
            let end = name.iter().position(|&b| b == 0)?;
            self.path = name.get(..end)?.to_vec();
            // Padded with 1 to 8 zeros to a multiple of eight.
            let length = path_at.checked_add(end)?.checked_add(8)? & !7;
            let padding = whole.get(path_at.checked_add(end)?..length)?;
            padding.iter().all(|byte| *byte == 0).then_some(length)?
        };
        // git goes by this number to the next entry: one that is not so would hide entries.
        let said = usize::from(flags & LENGTH);
        let is_said = said == self.path.len() || said == usize::from(LENGTH) && self.path.len() > said;
        let further = if flags & EXTENDED == 0 { 0 } else { u16_at(whole, flags_at.checked_add(2)?)? };
        let is_known = further & !(SKIPPED | INTENDED) == 0 && is_mode(u32_at(whole, MODE.start)?);
        let raw = whole.get(..length).filter(|_| is_said && is_known)?;
        self.rest = whole.get(length..)?;
        Some(Entry { raw, path: self.path.clone(), flags_at, path_at })
    }

    /// Extensions may follow; one whose name is in lower case changes what the entries mean (`link`: another file has more). What the
    /// others remember is not taken.
    fn extensions(&mut self) -> bool {
        while let Some((name, length)) = self.rest.get(..4).zip(u32_at(self.rest, 4)) {
            let known = name.iter().all(u8::is_ascii_uppercase) || name == b"sdir";
            let Some(rest) = usize::try_from(length).ok().and_then(|n| self.rest.get(n.checked_add(8)?..)) else {
                return false;
            };
            if !known {
                return false;
            }
            self.rest = rest;
        }
        self.rest.is_empty()
    }
}

/// Of a file, a link or a submodule. At others git stops; and where it is of a folder, git puts the names of a tree behind the path,
/// and never looks at those files.
const fn is_mode(mode: u32) -> bool {
    matches!(mode, 0o100_600..=0o100_777 | 0o120_000 | SUBMODULE)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
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
    use crate::state::Dir;

    fn objection(before: &[u8], now: &[u8]) -> Option<String> {
        let tree = WorkTree {
            has_commit: &|path, id| path == Path::new("sub") && id == [0; 20],
            is_seen: &|path, _| path != Path::new("unseen"),
            is_committed: &|_, _| false,
            is_gone: &|path| path != Path::new("kept"),
            was_there: &|_| true,
            is_left_out: &|_| true,
        };
        index_objection(before, now, Some(Hash::Sha1), &tree)
    }

    fn index(version: u32, paths: &[&str]) -> Vec<u8> {
        let mut all =
            [b"DIRC".as_slice(), &version.to_be_bytes(), &u32::try_from(paths.len()).unwrap().to_be_bytes()].concat();
        let mut before = "";
        for path in paths {
            let mut entry = vec![0; FIXED + 20];
            entry[MODE].copy_from_slice(&0o100_644_u32.to_be_bytes());
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
            assert_eq!(
                objection(b"", &index(version, &[".gitignore", "a.txt", "a/b.txt", "git", "ü/x"])),
                None,
                "{version}"
            );
            assert_eq!(objection(b"", &index(version, &[])), None);
        }
    }

    #[test]
    fn entries_stand_in_gits_order_and_none_below_a_file() {
        for paths in [&["b", "a"][..], &["a", "a"], &["a", "a/b"], &["a", "a.b", "a/b"]] {
            for version in [2, 4] {
                assert!(objection(b"", &index(version, paths)).is_some(), "{paths:?}");
            }
        }
    }

    #[test]
    fn a_submodule_is_one_of_the_hosts() {
        let of = |path: &str| {
            let mut index = index(2, &[path]);
            index[HEADER..][MODE].copy_from_slice(&SUBMODULE.to_be_bytes());
            index
        };
        assert_eq!(objection(b"", &of("sub")), None);
        assert!(objection(b"", &of("src")).is_some_and(|why| why.contains("looks at no file")));
        assert!(objection(b"", &index(2, &["unseen"])).is_some_and(|why| why.contains("other contents")));
        assert_eq!(objection(&index(2, &["unseen"]), &index(2, &["unseen"])), None, "the host has it so");
        assert!(objection(&index(2, &["src"]), &of("src")).is_some(), "it was a file");
        assert_eq!(objection(&of("src"), &of("src")), None, "the host has it so");
        assert!(objection(&index(2, &["a", "kept"]), &index(2, &["a"])).is_some_and(|why| why.contains("remove it")));
        assert_eq!(objection(&index(2, &["a", "kept"]), &index(2, &["kept"])), None, "its file is gone, too");
        let mut other = of("sub");
        other[HEADER + FIXED] = 1;
        assert!(objection(&of("sub"), &other).is_some_and(|why| why.contains("takes them from a server")));
        let contents = super::super::staged::contents_of(&other, Hash::Sha1).unwrap();
        let expected = (b"sub".to_vec(), (SUBMODULE, [&[1][..], &[0; 19]].concat()));
        assert_eq!(contents.into_iter().collect::<Vec<_>>(), [expected]);
    }

    #[test]
    fn what_is_read_of_an_index_as_a_file_is_the_hosts() {
        let host = index(2, &[".gitmodules", ".lfsconfig", "a"]);
        for name in [".lfsconfig", ".gitmodules"] {
            assert!(objection(b"", &index(2, &[name])).is_some_and(|why| why.contains("which server")), "{name}");
        }
        assert_eq!(objection(b"", &index(2, &["a/.gitmodules"])), None, "read at the top alone");
        assert_eq!(objection(&host, &index(4, &[".gitmodules", ".lfsconfig", "b"])), None, "the host has it so");
        let mut other = host.clone();
        other[HEADER + FIXED] = 1;
        assert!(objection(&host, &other).is_some_and(|why| why.contains("which server")));
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
            "a\\.git\\config",
            ".git::$INDEX_ALLOCATION/x",
        ] {
            for version in [2, 4] {
                assert!(objection(b"", &index(version, &[path])).is_some(), "{path}");
            }
        }
        // As systemd calls its units.
        assert_eq!(objection(b"", &index(2, &["dev-disk-by\\x2dlabel-data.mount"])), None);
    }

    #[test]
    fn an_entry_that_git_would_end_elsewhere_is_held() {
        // What we would take for a path up to its end git takes for one that goes on, and reads the next entry from there.
        for version in [2, 4] {
            let whole = index(version, &["a", "b"]);
            assert_eq!(objection(b"", &whole), None);
            for flags in [[0, 9], [0, 0], [0x0f, 0xff]] {
                let mut other = whole.clone();
                other[HEADER + FIXED + 20..][..2].copy_from_slice(&flags);
                assert!(objection(b"", &other).is_some(), "{version} {flags:?}");
            }
        }
        // `[12 bytes][entry of 64: 40 + 20 + 2 + "a" + one zero]`: a longer name has zeros to spare.
        let mut padded = index(2, &["abc"]);
        let end = HEADER + FIXED + 20 + 2 + 3;
        assert_eq!(padded[end..end + 7], [0; 7]);
        padded[end + 3] = 1;
        assert!(objection(b"", &padded).is_some());
    }

    #[test]
    fn an_index_is_read_with_the_hash_that_the_host_s_configuration_says() {
        // With the shorter one the path is `[10 bytes][flags].git/x`, which is plain; with the longer one `.git/x`, and as long as said.
        let mut both = index(2, &["0123456789\u{1}\u{6}.git/x"]);
        both.extend([0; 12]);
        let tree = WorkTree {
            has_commit: &|_, _| false,
            is_seen: &|_, _| true,
            is_committed: &|_, _| false,
            is_gone: &|_| true,
            was_there: &|_| true,
            is_left_out: &|_| false,
        };
        let reads = |hash| index_objection(b"", &both, Some(hash), &tree);
        assert!(reads(Hash::Sha256).is_some());
        assert_eq!(objection(b"", &index(2, &["0123456789\u{1}\u{6}.git/x"])), None, "the control");
        assert!(index_objection(b"", &index(2, &["a"]), None, &tree).is_some());
        let folder = tempfile::tempdir().unwrap();
        let host = Dir::open(folder.path()).unwrap();
        for inner in [".git", ".git/worktrees", ".git/worktrees/w"] {
            std::fs::create_dir(folder.path().join(inner)).unwrap();
        }
        std::fs::write(folder.path().join(".git/worktrees/w/commondir"), "../..\n").unwrap();
        let of = |path: &str| Hash::of(&host, Path::new(path));
        assert_eq!(of(".git/index"), Some(Hash::Sha1));
        for (config, hash) in [
            ("[core]\n\tbare = false\n", Some(Hash::Sha1)),
            ("[extensions]\n\tobjectFormat = sha256\n", Some(Hash::Sha256)),
            ("[extensions]\n\tobjectFormat = sha1\n", Some(Hash::Sha1)),
            ("[extensions]\n\tobjectFormat = sha1\n\tobjectformat = sha256\n", None),
            ("[extensions]\n\tobjectformat = sha512\n", None),
        ] {
            std::fs::write(folder.path().join(".git/config"), config).unwrap();
            assert_eq!([of(".git/index"), of(".git/worktrees/w/index")], [hash; 2], "{config}");
        }
        std::fs::write(folder.path().join(".git/worktrees/w/commondir"), "/elsewhere\n").unwrap();
        assert_eq!(of(".git/worktrees/w/index"), None);
    }

    #[test]
    fn an_entry_at_which_git_stops_is_held() {
        let plain = index(3, &["a"]);
        let mut mode = plain.clone();
        mode[HEADER..][MODE].copy_from_slice(&0o060_000_u32.to_be_bytes());
        assert!(objection(b"", &mode).is_some());
        mode[HEADER..][MODE].copy_from_slice(&0o040_000_u32.to_be_bytes());
        assert!(objection(b"", &mode).is_some());
        // More flags: two bytes before the path, and zeros behind it up to a multiple of eight.
        let with = |more: u16| {
            let (mut all, flags) = (plain.clone(), HEADER + FIXED + 20);
            all[flags] |= 0x40;
            all.splice(flags + 2..flags + 2, more.to_be_bytes());
            all.splice(flags + 5..flags + 5, [0; 6]);
            all
        };
        assert_eq!(objection(b"", &with(INTENDED)), None);
        assert!(objection(&plain, &with(INTENDED)).is_some_and(|why| why.contains("remove it")));
        assert!(objection(b"", &with(INTENDED | 1)).is_some_and(|why| why == UNKNOWN));
    }

    #[test]
    fn what_git_would_believe_unseen_is_not_taken() {
        let host = index(2, &["a", "b", "c"]);
        let mut run = host.clone();
        let size = 64;
        // Of `b` another size, and other trees.
        run[HEADER + size..][..FIXED].fill(7);
        run[HEADER + size..][MODE].copy_from_slice(&0o100_755_u32.to_be_bytes());
        let at = run.len() - 30;
        run[at..at + 4].copy_from_slice(b"UNTR");
        let taken = settled(&host, &run, Hash::Sha1).unwrap();
        assert_eq!(taken.len(), HEADER + 3 * size + 20, "nothing is behind the entries");
        assert_eq!(taken[HEADER..][..size], run[HEADER..][..size], "what the host has so too");
        let mut entry = run[HEADER + size..][..size].to_vec();
        entry[..MODE.start].fill(0);
        entry[MODE.end..FIXED].fill(0);
        assert_eq!(taken[HEADER + size..][..size], entry);
        assert_eq!(settled(&host, &taken, Hash::Sha1), Some(taken.clone()));
        assert_eq!(settled(&host, b"DIRC", Hash::Sha1), None);
        // A file that git does not look at.
        let mut hidden = host.clone();
        hidden[HEADER + FIXED + 20] |= 0x80;
        assert!(objection(&host, &hidden).is_some_and(|why| why.contains("does not look at")));
        assert_eq!(objection(&hidden, &hidden), None, "the host has it so");
    }

    #[test]
    fn what_is_not_understood_is_held() {
        let whole = index(2, &["a", "b"]);
        for cut in 0..100 {
            assert!(objection(b"", &whole[..cut]).is_some(), "{cut}");
        }
        let mut linked = index(2, &["a"]);
        let at = linked.len() - 30;
        linked[at..at + 4].copy_from_slice(b"link");
        assert!(objection(b"", &linked).is_some());
        assert!(objection(&linked, &whole).is_some_and(|why| why == UNKNOWN_BEFORE), "nor is what the host's says");
        let mut watched = index(2, &["a"]);
        watched[at..at + 4].copy_from_slice(b"FSMN");
        assert_eq!(objection(&watched, &watched), None, "what another program remembers of files is left out");
        assert!(objection(b"", &index(5, &["a"])).is_some() && objection(b"", b"").is_some());
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
        assert_eq!(objection(b"", &read()), None);
        git(&["update-index", "--index-version", "4"]);
        assert_eq!(objection(b"", &read()), None);
        // What is taken of it git reads, and looks at the files.
        std::fs::write(folder.path().join(".git/index"), settled(b"", &read(), Hash::Sha1).unwrap()).unwrap();
        git(&["fsck"]);
        git(&["diff", "--quiet", "--", "deep"]);
        assert_eq!(objection(b"", &read()), None);
        git(&["update-index", "--skip-worktree", "a"]);
        assert!(objection(b"", &read()).is_some());
        git(&["update-index", "--no-skip-worktree", "--assume-unchanged", "a"]);
        assert!(objection(b"", &read()).is_some());
        git(&["update-index", "--split-index"]);
        assert!(objection(b"", &read()).is_some(), "the rest is in another file");
    }
}
