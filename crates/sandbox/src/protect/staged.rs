//! What an index has otherwise than a commit: what is staged. The index says the names of its trees, so that of a commit those alone
//! are read in which something differs.

use std::collections::BTreeMap;

use super::hash::Hash;
use super::index::{Entry, READ_AS_FILES, entries};
use super::stored::{FOLDER, StoredObjects, TreeEntry};

/// A longer index is not compared, and so many paths are told.
const MAX_STAGED: usize = 1 << 20;
/// So many trees are read: one that has others again and again would have no end.
const MAX_TREES: usize = 1 << 16;
/// So many folders of an index are made trees of.
const MAX_INDEX_FOLDERS: usize = 1 << 17;
/// So many bytes of paths are told.
const MAX_TOLD: usize = 64 << 20;
/// Deeper folders are not looked into.
const MAX_FOLDERS: usize = 512;

/// What is at a path that is not the same in both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Staged {
    /// In the index: what `git commit` would take.
    pub index: Option<TreeEntry>,
    /// In the commit.
    pub commit: Option<TreeEntry>,
}

/// What an index (`b""` where there is none) has otherwise than a tree (`None` where there is no commit yet), by path; `None` where that
/// cannot be said.
#[must_use]
pub fn staged(index: &[u8], tree: Option<&[u8]>, stored: &StoredObjects<'_>) -> Option<BTreeMap<Vec<u8>, Staged>> {
    let entries: Vec<(Vec<u8>, TreeEntry)> = contents_of(index, stored.hash())?.into_iter().collect();
    if entries.len() > MAX_STAGED {
        return None;
    }
    let mut folders = MAX_INDEX_FOLDERS;
    let folder = IndexFolder::of(&entries, 0, (MAX_FOLDERS, &mut folders), stored.hash())?;
    let mut comparing = Comparing { stored, left: MAX_TREES, told: MAX_TOLD, found: BTreeMap::new() };
    comparing.compare(Some(&folder), tree, (&[], MAX_FOLDERS))?;
    Some(comparing.found)
}

/// What `git commit` would take of an index (`b""` where there is none), by path.
#[must_use]
pub fn contents_of(index: &[u8], hash: Hash) -> Option<BTreeMap<Vec<u8>, TreeEntry>> {
    if index.is_empty() {
        return Some(BTreeMap::new());
    }
    let taken = entries(index, hash.bytes())?.into_iter().filter(|entry| entry.stage() == 0 && !entry.is_intended());
    let content = |entry: Entry<'_>| {
        let (mode, is) = entry.content()?;
        Some((entry.path.clone(), (u32::from_be_bytes(mode.try_into().ok()?), is.to_vec())))
    };
    taken.map(content).collect()
}

/// What an index says of the files that are read where none is there, by their hashes.
#[must_use]
pub fn servers(index: &[u8], hash: Hash) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut found = contents_of(index, hash).unwrap_or_default();
    READ_AS_FILES.into_iter().filter_map(|name| Some((name.to_vec(), found.remove(name)?.1))).collect()
}

/// A folder as an index has it.
struct IndexFolder {
    /// The name of the tree that git would make of it.
    tree: Vec<u8>,
    nodes: BTreeMap<Vec<u8>, IndexNode>,
}

enum IndexNode {
    File(TreeEntry),
    Folder(IndexFolder),
}

impl IndexFolder {
    /// Of entries that stand in git's order: those of one folder stand together.
    fn of(entries: &[(Vec<u8>, TreeEntry)], skip: usize, (left, all): (usize, &mut usize), hash: Hash) -> Option<Self> {
        let left = left.checked_sub(1)?;
        *all = all.checked_sub(1)?;
        let (mut rest, mut nodes, mut content) = (entries, BTreeMap::new(), Vec::new());
        while let Some((path, entry)) = rest.first() {
            let tail = path.get(skip..)?;
            let (name, mode, is) = if let Some(at) = tail.iter().position(|byte| *byte == b'/') {
                let upto = skip.checked_add(at)?.checked_add(1)?;
                let within = path.get(..upto)?;
                let count = rest.partition_point(|(path, _)| path.starts_with(within));
                let (here, behind) = rest.split_at_checked(count)?;
                let inner = Self::of(here, upto, (left, &mut *all), hash)?;
                let (name, is) = (tail.get(..at)?, inner.tree.clone());
                nodes.insert(name.to_vec(), IndexNode::Folder(inner));
                rest = behind;
                (name, FOLDER, is)
            } else {
                nodes.insert(tail.to_vec(), IndexNode::File(entry.clone()));
                rest = rest.get(1..)?;
                (tail, entry.0, entry.1.clone())
            };
            content.extend(format!("{mode:o} ").into_bytes());
            content.extend(name);
            content.push(0);
            content.extend(is);
        }
        let head = format!("tree {}\0", content.len());
        Some(Self { tree: hash.sum(&[head.as_bytes(), &content]), nodes })
    }
}

struct Comparing<'a> {
    stored: &'a StoredObjects<'a>,
    /// Trees that may still be read.
    left: usize,
    /// Bytes of paths that may still be told.
    told: usize,
    found: BTreeMap<Vec<u8>, Staged>,
}

impl Comparing<'_> {
    fn compare(&mut self, folder: Option<&IndexFolder>, tree: Option<&[u8]>, (at, left): (&[u8], usize)) -> Option<()> {
        if folder.map(|folder| folder.tree.as_slice()) == tree {
            return Some(());
        }
        let left = left.checked_sub(1)?;
        let mut there = match tree {
            Some(tree) => {
                self.left = self.left.checked_sub(1)?;
                self.stored.tree(tree)?
            }
            None => BTreeMap::new(),
        };
        let below = |name: &[u8]| if at.is_empty() { name.to_vec() } else { [at, b"/", name].concat() };
        for (name, node) in folder.iter().flat_map(|folder| &folder.nodes) {
            let path = below(name);
            let other = there.remove(name);
            let (folder, file) = match other {
                Some((FOLDER, tree)) => (Some(tree), None),
                other => (None, other),
            };
            let (inner, entry) = match node {
                IndexNode::File(entry) => (None, Some(entry)),
                IndexNode::Folder(inner) => (Some(inner), None),
            };
            self.tell(&path, entry.cloned(), file)?;
            self.compare(inner, folder.as_deref(), (&path, left))?;
        }
        for (name, (mode, is)) in there {
            let path = below(&name);
            if mode == FOLDER {
                self.compare(None, Some(&is), (&path, left))?;
            } else {
                self.tell(&path, None, Some((mode, is)))?;
            }
        }
        Some(())
    }

    fn tell(&mut self, path: &[u8], index: Option<TreeEntry>, commit: Option<TreeEntry>) -> Option<()> {
        if index != commit {
            self.told = self.told.checked_sub(path.len())?;
            self.found.insert(path.to_vec(), Staged { index, commit });
        }
        (self.found.len() <= MAX_STAGED).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_of_more_folders_than_any_tree_has_is_given_up() {
        let of = |count: usize| {
            let path = |n: usize| format!("{n:05}/{}f", "a/".repeat(500)).into_bytes();
            let entries: Vec<(Vec<u8>, TreeEntry)> = (0..count).map(|n| (path(n), (0o100_644, vec![7; 20]))).collect();
            let mut left = MAX_INDEX_FOLDERS;
            IndexFolder::of(&entries, 0, (MAX_FOLDERS, &mut left), Hash::Sha1).is_some()
        };
        assert!(of(200) && !of(MAX_INDEX_FOLDERS / 500 + 1));
    }
}
