//! Commits and trees of a repository, by their names: those that the host has, and those of a run.
//!
//! Promises: bounded in bytes and steps; nothing comes of what does not read. Must not: say whether an object is what it is called: of
//! new ones `objects` does, and those of the host git itself believes.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io::{BufReader, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use flate2::bufread::ZlibDecoder;

use super::hash::Hash;
use super::objects::{ObjectBase, inflate, packed_head, patch, sized};

/// So many packs are looked into.
const MAX_PACKS: usize = 256;
/// So many of them are open at one time, each with its index: others need descriptors too.
const MAX_OPEN: usize = 64;
/// How many bytes are unpacked, in all.
const MAX_UNPACKED: u64 = 1 << 30;
/// Each step of unpacking counts as so many bytes at least: a long chain of changes that say nothing has an end, too.
const MIN_COUNTED: u64 = 1 << 10;
/// No commit or tree is larger, nor what it is made from, in bytes.
const MAX_OBJECT: u64 = 64 << 20;
/// Of so many objects one is made at most.
const MAX_CHAIN: usize = 4096;
/// Bytes of an object of a pack before what is packed of it.
const MAX_HEAD: usize = 64;
/// No name in a tree is longer: no file system has one.
const MAX_NAME: usize = 4096;
/// So many commits are walked from one set of branches.
const MAX_COMMITS: usize = 10_000;
/// How the index of a pack begins, and where its names do, behind how many there are up to each first byte.
const INDEX: &[u8] = b"\xfftOc\0\0\0\x02";
const COUNTS: u64 = 8;
const NAMES: u64 = COUNTS + 4 * 256;

/// What is at a path: the mode, as git writes it today, and the name of the object.
pub type TreeEntry = (u32, Vec<u8>);
/// The mode of a folder.
pub(super) const FOLDER: u32 = 0o040_000;

/// How a file is opened, by its path in a folder.
pub(super) type OpenObject<'a> = Box<dyn Fn(&Path) -> Option<File> + 'a>;

/// A folder of objects: how a file in it is opened, and the indices of its packs.
#[expect(missing_debug_implementations, reason = "functions have none")]
pub struct ObjectsFolder<'a> {
    /// By its path in the folder.
    pub open: OpenObject<'a>,
    /// Their paths in the folder.
    pub indices: Vec<PathBuf>,
}

/// The objects of a repository.
#[expect(missing_debug_implementations, reason = "functions have none")]
pub struct StoredObjects<'a> {
    hash: Hash,
    folders: Vec<ObjectsFolder<'a>>,
    /// The packs that are open, by their numbers in all folders; the one that had an object last is the first.
    open: RefCell<VecDeque<(usize, Rc<StoredPack>)>>,
    left: Cell<u64>,
}

/// A commit.
pub(super) struct StoredCommit {
    tree: Vec<u8>,
    parents: Vec<Vec<u8>>,
}

impl<'a> StoredObjects<'a> {
    /// Of these folders.
    #[must_use]
    pub const fn new(hash: Hash, folders: Vec<ObjectsFolder<'a>>) -> Self {
        Self { hash, folders, open: RefCell::new(VecDeque::new()), left: Cell::new(MAX_UNPACKED) }
    }

    /// By which its objects have their names.
    #[must_use]
    pub const fn hash(&self) -> Hash {
        self.hash
    }

    /// The tree of a commit.
    #[must_use]
    pub fn tree_of(&self, commit: &[u8]) -> Option<Vec<u8>> {
        Some(self.commit(commit)?.tree)
    }

    /// The commits that one is made from.
    #[must_use]
    pub fn parents_of(&self, commit: &[u8]) -> Option<Vec<Vec<u8>>> {
        Some(self.commit(commit)?.parents)
    }

    /// What a tag names that is an object of its own.
    #[must_use]
    pub fn tagged(&self, tag: &[u8]) -> Option<Vec<u8>> {
        let content = self.read("tag", tag)?;
        let line = content.split(|byte| *byte == b'\n').next()?.strip_prefix(b"object ")?;
        policy::json::unhex(std::str::from_utf8(line).ok()?)
    }

    fn commit(&self, name: &[u8]) -> Option<StoredCommit> {
        let content = self.read("commit", name)?;
        let mut lines = content.split(|byte| *byte == b'\n');
        let named = |line: &[u8], what: &[u8]| {
            policy::json::unhex(std::str::from_utf8(line.strip_prefix(what)?).ok()?)
                .filter(|id| id.len() == self.hash.bytes())
        };
        let tree = named(lines.next()?, b"tree ")?;
        Some(StoredCommit { tree, parents: lines.map_while(|line| named(line, b"parent ")).collect() })
    }

    /// What a tree has, by its name.
    #[must_use]
    pub fn tree(&self, name: &[u8]) -> Option<BTreeMap<Vec<u8>, TreeEntry>> {
        // The one that has nothing git knows without an object.
        if name == self.hash.sum(&[b"tree 0\0"]) {
            return Some(BTreeMap::new());
        }
        let content = self.read("tree", name)?;
        let (mut rest, mut found) = (content.as_slice(), BTreeMap::new());
        while !rest.is_empty() {
            let (head, behind) = rest.split_at_checked(rest.iter().position(|byte| *byte == 0)?)?;
            let at = head.iter().position(|byte| *byte == b' ')?;
            let (mode, file) = (head.get(..at)?, head.get(at.checked_add(1)?..)?);
            if file.len() > MAX_NAME {
                return None;
            }
            let (is, behind) = behind.get(1..)?.split_at_checked(self.hash.bytes())?;
            let mode = u32::from_str_radix(std::str::from_utf8(mode).ok()?, 8).ok()?;
            found.insert(file.to_vec(), (canonical(mode), is.to_vec()));
            rest = behind;
        }
        Some(found)
    }

    /// What is at a path below a tree.
    #[must_use]
    pub fn at(&self, tree: &[u8], path: &[u8]) -> Option<TreeEntry> {
        self.found_at(tree, path)?
    }

    /// The same, if anything; `None` where that cannot be read.
    #[must_use]
    pub fn found_at(&self, tree: &[u8], path: &[u8]) -> Option<Option<TreeEntry>> {
        let mut here = Some((FOLDER, tree.to_vec()));
        for part in path.split(|byte| *byte == b'/') {
            let Some((FOLDER, name)) = here else { return Some(None) };
            here = self.tree(&name)?.remove(part);
        }
        Some(here)
    }

    /// Whether an object of this name is there, or may be: in more packs than are looked into there may be any.
    #[must_use]
    pub fn may_have(&self, name: &[u8]) -> bool {
        let packs: usize = self.folders.iter().map(|folder| folder.indices.len()).sum();
        packs > MAX_PACKS || self.open_loose(name).is_some() || self.find(name).is_some()
    }

    fn read(&self, kind: &str, name: &[u8]) -> Option<Vec<u8>> {
        self.loose(kind, name).or_else(|| self.packed(kind, name))
    }

    fn open_loose(&self, name: &[u8]) -> Option<File> {
        let text = policy::json::hex(name);
        let (folder, file) = text.split_at_checked(2)?;
        let path = Path::new(folder).join(file);
        self.folders.iter().find_map(|folder| (folder.open)(&path))
    }

    fn loose(&self, kind: &str, name: &[u8]) -> Option<Vec<u8>> {
        let file = self.open_loose(name)?;
        let mut packed = Vec::new();
        file.take(MAX_OBJECT).read_to_end(&mut packed).ok()?;
        let object = self.counted(|left| inflate(&mut packed.as_slice(), left))?;
        let (is, content) = sized(&object)?;
        (is == kind).then(|| content.to_vec())
    }

    fn packed(&self, kind: &str, name: &[u8]) -> Option<Vec<u8>> {
        let (mut pack, mut at) = self.find(name)?;
        let (mut changes, mut kept) = (Vec::new(), 0_u64);
        let mut content = loop {
            let PackedObject { from, content } = self.counted(|left| pack.object(at, self.hash, left))?;
            kept = kept.saturating_add(u64::try_from(content.len()).ok()?);
            if kept > MAX_OBJECT || changes.len() > MAX_CHAIN {
                return None;
            }
            match from {
                ObjectBase::Whole(is) if is == kind => break content,
                ObjectBase::Whole(_other) => return None,
                ObjectBase::Distance(far) => at = at.checked_sub(u64::try_from(far).ok()?)?,
                ObjectBase::Name(name) => (pack, at) = self.find(&name)?,
            }
            changes.push(content);
        };
        for change in changes.iter().rev() {
            content = self.counted(|left| patch(&content, change, left))?;
        }
        Some(content)
    }

    /// Folder by folder; in each the packs that are open are asked first.
    fn find(&self, name: &[u8]) -> Option<(Rc<StoredPack>, u64)> {
        let mut first = 0_usize;
        for folder in &self.folders {
            let indices = || folder.indices.iter().zip(first..MAX_PACKS);
            if let Some(found) = self.find_open(first..first.saturating_add(indices().count()), name) {
                return Some(found);
            }
            for (path, number) in indices() {
                if self.open.borrow().iter().any(|(open, _)| *open == number) {
                    continue;
                }
                let Some(pack) = StoredPack::open(folder, path).map(Rc::new) else { continue };
                let place = pack.place(name);
                let mut open = self.open.borrow_mut();
                if let Some(place) = place {
                    open.push_front((number, Rc::clone(&pack)));
                    open.truncate(MAX_OPEN);
                    return Some((pack, place));
                }
                if open.len() < MAX_OPEN {
                    open.push_back((number, pack));
                }
            }
            first = first.saturating_add(folder.indices.len());
        }
        None
    }

    fn find_open(&self, numbers: Range<usize>, name: &[u8]) -> Option<(Rc<StoredPack>, u64)> {
        let mut open = self.open.borrow_mut();
        let mut those = open.iter().enumerate().filter(|(_, (number, _))| numbers.contains(number));
        let (at, place) = those.find_map(|(at, (_, pack))| Some((at, pack.place(name)?)))?;
        let (number, pack) = open.remove(at)?;
        open.push_front((number, Rc::clone(&pack)));
        Some((pack, place))
    }

    fn counted<T>(&self, step: impl FnOnce(&mut u64) -> Option<T>) -> Option<T> {
        let mut left = self.left.get();
        let done = step(&mut left);
        self.left.set(left);
        done
    }
}

/// As git writes a mode today.
const fn canonical(mode: u32) -> u32 {
    match mode >> 12 {
        0o04 => FOLDER,
        0o12 => 0o120_000,
        0o10 if mode & 0o100 == 0 => 0o100_644,
        0o10 => 0o100_755,
        0..=3 | 5..=7 | 9 | 11.. => 0o160_000,
    }
}

/// A pack and its index.
struct StoredPack {
    index: File,
    pack: File,
}

struct PackedObject {
    from: ObjectBase,
    content: Vec<u8>,
}

impl StoredPack {
    fn open(folder: &ObjectsFolder<'_>, index: &Path) -> Option<Self> {
        let (index, pack) = ((folder.open)(index)?, (folder.open)(&index.with_extension("pack"))?);
        let mut begins = [0; INDEX.len()];
        index.read_exact_at(&mut begins, 0).ok()?;
        (begins == *INDEX).then_some(Self { index, pack })
    }

    /// Where an object lies.
    fn place(&self, name: &[u8]) -> Option<u64> {
        let width = u64::try_from(name.len()).ok()?;
        let upto = |byte: u64| Some(u64::from(self.number(COUNTS.checked_add(byte.checked_mul(4)?)?)?));
        let first = u64::from(*name.first()?);
        let mut low = if first == 0 { 0 } else { upto(first.checked_sub(1)?)? };
        let (mut high, all) = (upto(first)?, upto(255)?);
        while low < high {
            let middle = low.midpoint(high);
            let mut is = vec![0; name.len()];
            self.index.read_exact_at(&mut is, NAMES.checked_add(middle.checked_mul(width)?)?).ok()?;
            match is.as_slice().cmp(name) {
                std::cmp::Ordering::Less => low = middle.checked_add(1)?,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return self.offset(middle, all, width),
            }
        }
        None
    }

    /// Behind the names are their sums, their places, and those places that are long.
    fn offset(&self, at: u64, all: u64, width: u64) -> Option<u64> {
        let places = NAMES.checked_add(all.checked_mul(width.checked_add(4)?)?)?;
        let place = self.number(places.checked_add(at.checked_mul(4)?)?)?;
        if place.leading_zeros() > 0 {
            return Some(u64::from(place));
        }
        let long = u64::from(place & (u32::MAX >> 1));
        let mut bytes = [0; 8];
        let at = places.checked_add(all.checked_mul(4)?)?.checked_add(long.checked_mul(8)?)?;
        self.index.read_exact_at(&mut bytes, at).ok()?;
        Some(u64::from_be_bytes(bytes))
    }

    fn number(&self, at: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.index.read_exact_at(&mut bytes, at).ok()?;
        Some(u32::from_be_bytes(bytes))
    }

    fn object(&self, at: u64, hash: Hash, left: &mut u64) -> Option<PackedObject> {
        let mut begins = Vec::new();
        let most = u64::try_from(MAX_HEAD).ok()?;
        PackReader { pack: &self.pack, at }.take(most).read_to_end(&mut begins).ok()?;
        let mut rest = begins.as_slice();
        let (from, size) = packed_head(&mut rest, hash)?;
        let at = at.checked_add(u64::try_from(begins.len().checked_sub(rest.len())?).ok()?)?;
        if size > MAX_OBJECT {
            return None;
        }
        *left = left.checked_sub(size.max(MIN_COUNTED))?;
        let mut content = Vec::new();
        let packed = ZlibDecoder::new(BufReader::new(PackReader { pack: &self.pack, at }));
        packed.take(size.checked_add(1)?).read_to_end(&mut content).ok()?;
        (u64::try_from(content.len()).ok()? == size).then_some(PackedObject { from, content })
    }
}

/// Reads a pack from a place on.
struct PackReader<'a> {
    pack: &'a File,
    at: u64,
}

impl Read for PackReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let read = self.pack.read_at(into, self.at)?;
        self.at = self.at.saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
        Ok(read)
    }
}

/// Commits that branches have, and their trees.
#[derive(Debug, Default)]
pub struct History {
    commits: BTreeSet<Vec<u8>>,
    trees: BTreeSet<Vec<u8>>,
}

impl History {
    /// From these on, the nearest first.
    pub fn walk(&mut self, stored: &StoredObjects<'_>, tips: impl IntoIterator<Item = Vec<u8>>) {
        let mut ahead: VecDeque<Vec<u8>> = tips.into_iter().collect();
        let mut left = MAX_COMMITS;
        while let Some(name) = ahead.pop_front() {
            if self.commits.contains(&name) {
                continue;
            }
            let Some(rest) = left.checked_sub(1) else { return };
            left = rest;
            // What is not there was not fetched.
            let Some(commit) = stored.commit(&name) else { continue };
            self.commits.insert(name);
            self.trees.insert(commit.tree);
            ahead.extend(commit.parents);
        }
    }

    /// Whether a commit is among them.
    #[must_use]
    pub fn has(&self, commit: &[u8]) -> bool {
        self.commits.contains(commit)
    }

    /// Whether one of them has this tree.
    #[must_use]
    pub fn has_tree(&self, tree: &[u8]) -> bool {
        self.trees.contains(tree)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is in a pack that is closed again is found all the same.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "git itself says what it writes")]
    fn few_packs_are_open_at_one_time() {
        let folder = tempfile::tempdir().unwrap();
        let script = format!(
            "export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; \
             git init -q .; t=$(git mktree < /dev/null); for n in $(seq {}); do c=$(git commit-tree -m $n $t); echo $c; \
             echo $c | git pack-objects -q .git/objects/pack/pack > /dev/null; done; git prune-packed",
            MAX_OPEN + 6
        );
        let mut shell = std::process::Command::new("sh");
        let done = shell.args(["-ec", &script]).current_dir(folder.path()).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        let commits: Vec<Vec<u8>> =
            String::from_utf8(done.stdout).unwrap().lines().map(|line| policy::json::unhex(line).unwrap()).collect();
        let objects = folder.path().join(".git/objects");
        let packs = std::fs::read_dir(objects.join("pack")).unwrap().map(|entry| entry.unwrap().path());
        let indices: Vec<PathBuf> = packs.filter(|path| path.extension().is_some_and(|end| end == "idx")).collect();
        assert_eq!((indices.len(), commits.len()), (MAX_OPEN + 6, MAX_OPEN + 6));
        let opened = Cell::new(0);
        let open = |path: &Path| {
            opened.set(opened.get() + 1);
            File::open(objects.join(path)).ok()
        };
        let stored = StoredObjects::new(Hash::Sha1, vec![ObjectsFolder { open: Box::new(open), indices }]);
        for commit in commits.iter().chain(commits.iter().rev()) {
            assert!(stored.tree_of(commit).is_some());
            assert!(stored.open.borrow().len() <= MAX_OPEN);
        }
        assert!(stored.tree_of(&[7; 20]).is_none());
        // One that is open is not opened again.
        let last = commits.first().unwrap();
        opened.set(0);
        assert!(stored.tree_of(last).is_some() && stored.tree_of(last).is_some());
        assert_eq!(opened.get(), 2, "loose ones are looked for, and not there");
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "git itself says what it writes")]
    fn what_git_packs_is_read_as_git_reads_it() {
        for format in ["sha1", "sha256"] {
            let folder = tempfile::tempdir().unwrap();
            let git = |script: &str| {
                let name = "export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; ";
                let mut shell = std::process::Command::new("sh");
                let done = shell.args(["-ec", &format!("{name}{script}")]).current_dir(folder.path()).output().unwrap();
                assert!(done.status.success(), "{done:?}");
                String::from_utf8(done.stdout).unwrap().trim().to_owned()
            };
            git(&format!(
                "git init -q --object-format={format} -b main .; mkdir -p d/e; seq 300 | while read n; do echo $n > d/f$n; done; \
                 ln -s x l; git add .; git commit -qm one; \
                 for n in 1 2 3 4; do echo $n > d/e/x; echo $n > d/f$n; git add .; git commit -qm $n; done; git branch other HEAD~2; \
                 git repack -adq; git verify-pack -v .git/objects/pack/*.idx | grep -q 'tree.* 1 '; \
                 chmod +x d/f7; git commit -qam loose"
            ));
            let objects = folder.path().join(".git/objects");
            let packs = std::fs::read_dir(objects.join("pack")).unwrap().map(|entry| entry.unwrap().path());
            let indices: Vec<PathBuf> = packs.filter(|path| path.extension().is_some_and(|end| end == "idx")).collect();
            assert_eq!(indices.len(), 1);
            let open = |path: &Path| File::open(objects.join(path)).ok();
            let hash = if format == "sha1" { Hash::Sha1 } else { Hash::Sha256 };
            let stored = StoredObjects::new(hash, vec![ObjectsFolder { open: Box::new(open), indices }]);
            let id = |name: &str| policy::json::unhex(&git(&format!("git rev-parse {name}"))).unwrap();
            for commit in ["main", "main~1", "main~2", "main~5", "other"] {
                let tree = stored.tree_of(&id(commit)).unwrap();
                assert_eq!(tree, id(&format!("{commit}^{{tree}}")), "{commit}");
                for (path, mode) in [("d/f7", 0o100_644), ("d/e/x", 0o100_644), ("l", 0o120_000), ("d/e", FOLDER)] {
                    let mode = mode + 0o111 * u32::from((commit, path) == ("main", "d/f7"));
                    let is_there = commit != "main~5" || !path.starts_with("d/e");
                    let expected = is_there.then(|| (mode, id(&format!("{commit}:{path}"))));
                    assert_eq!(stored.at(&tree, path.as_bytes()), expected, "{commit} {path}");
                }
                assert_eq!(stored.at(&tree, b"l/x").or(stored.at(&tree, b"d/z")), None);
            }
            assert_eq!(stored.commit(&id("main")).unwrap().parents, [id("main~1")]);
            assert!(stored.may_have(&id("main")) && stored.may_have(&id("main~1")));
            assert!(!stored.may_have(&vec![7; hash.bytes()]));
            assert!(stored.tree_of(&id("main^{tree}")).is_none() && stored.tree_of(&vec![7; hash.bytes()]).is_none());
            let mut history = History::default();
            history.walk(&stored, [id("other")]);
            assert!(history.has(&id("main~5")) && !history.has(&id("main")) && history.has_tree(&id("other^{tree}")));
        }
    }
}
