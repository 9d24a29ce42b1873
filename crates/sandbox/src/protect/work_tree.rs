//! What an index may say beside its working tree: of what it loses, and of what git does not look at, as where a sparse checkout leaves it
//! out.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::blob::mode_beside;
use super::hash::Hash;
use super::index::{Entry, entries_of_host};
use super::stored::TreeEntry;

/// What the host says of the working tree of an index.
#[expect(missing_debug_implementations, reason = "functions have none")]
pub struct WorkTree<'a> {
    /// Whether the host has a repository at a path, with a branch, its `HEAD` or a commit of the run's of this id.
    pub has_commit: &'a dyn Fn(&Path, &[u8]) -> bool,
    /// Whether the file at a path is what this says, or becomes that; without it, whether the run changed it.
    pub is_seen: &'a dyn Fn(&Path, Option<&TreeEntry>) -> bool,
    /// Whether the index has at a path what the commit has to which `HEAD` comes by the run; with `true` for what is there.
    pub is_committed: &'a dyn Fn(&Path, bool) -> bool,
    /// Whether no file is at a path, or none will be.
    pub is_gone: &'a dyn Fn(&Path) -> bool,
    /// Whether the host has a file at a path.
    pub was_there: &'a dyn Fn(&Path) -> bool,
    /// Whether a sparse checkout of the host's leaves a path out.
    pub is_left_out: &'a dyn Fn(&Path) -> bool,
}

impl WorkTree<'_> {
    /// Whether git need not look at the file of an entry: the host's sparse checkout leaves it out, none is there, and the commit has it so.
    pub(super) fn leaves_out(&self, entry: &Entry<'_>) -> bool {
        let path = Path::new(OsStr::from_bytes(&entry.path));
        entry.is_skipped_alone()
            && (self.is_left_out)(path)
            && (self.is_gone)(path)
            && !(self.was_there)(path)
            && (self.is_committed)(path, true)
    }
}

/// An entry of the host's that an index lacks, or whose file git would look at again, and why it does not go.
pub(super) fn lost<'h, 'a>(
    entries: &[Entry<'_>],
    hosts: &'h BTreeMap<(Vec<u8>, u16), Entry<'a>>,
    tree: &WorkTree<'_>,
) -> Option<(&'h Entry<'a>, &'static str)> {
    let kept: BTreeMap<&[u8], &Entry<'_>> = entries.iter().map(|entry| (entry.path.as_slice(), entry)).collect();
    let is_unseen = |host: &&Entry<'_>| {
        let path = Path::new(OsStr::from_bytes(&host.path));
        let is_fine = || match kept.get(host.path.as_slice()) {
            None => !(tree.was_there)(path) && (tree.is_gone)(path) && (tree.is_committed)(path, false),
            Some(now) if now.is_unseen() => now.content() == host.content() || tree.leaves_out(now),
            // A file that the run brings is looked at again: a conflict of a merge, say. Of what a sparse checkout leaves out git itself
            // looks at a file that is there, so that it may have been there before, as what a `rw` run wrote is.
            Some(now) => {
                let is_looked_at = || (tree.is_left_out)(path) && (tree.is_committed)(path, true);
                (!(tree.was_there)(path) || is_looked_at()) && is_in_file(now, host, tree)
            }
        };
        host.is_unseen() && !is_fine()
    };
    let is_lost = |host: &&Entry<'_>| {
        let path = Path::new(OsStr::from_bytes(&host.path));
        !kept.contains_key(host.path.as_slice()) && !(tree.is_gone)(path) && !(tree.is_committed)(path, false)
    };
    let unseen = hosts.values().find(is_unseen);
    let unseen =
        unseen.map(|host| (host, "is one that git is told not to look at, on the host: it would be looked at"));
    unseen.or_else(|| {
        let lost = hosts.values().find(is_lost)?;
        Some((lost, "is no more there, and the file is: the next commit would remove it"))
    })
}

/// Whether the file of an entry is what this says, where the host has another one.
fn is_in_file(now: &Entry<'_>, host: &Entry<'_>, tree: &WorkTree<'_>) -> bool {
    let is = |mode| Some((mode_beside(mode, host.mode()), now.content()?.1.to_vec()));
    let is = now.mode().and_then(is);
    is.is_some_and(|is| (tree.is_seen)(Path::new(OsStr::from_bytes(&now.path)), Some(&is)))
}

/// The paths of an index that git does not look at.
#[must_use]
pub fn unseen(index: &[u8], hash: Hash) -> BTreeSet<Vec<u8>> {
    entries_of_host(index, hash.bytes()).filter(Entry::is_unseen).map(|entry| entry.path).collect()
}

/// The paths that git looks at in neither of two indices, or in one alone, and that the second has otherwise.
#[must_use]
pub fn unseen_changes(before: &[u8], now: &[u8], hash: Hash) -> BTreeSet<Vec<u8>> {
    let of = |index| -> BTreeMap<Vec<u8>, Entry<'_>> {
        entries_of_host(index, hash.bytes()).map(|entry| (entry.path.clone(), entry)).collect()
    };
    let (before, now) = (of(before), of(now));
    let is_unseen = |path: &Vec<u8>| now.get(path).or_else(|| before.get(path)).is_some_and(Entry::is_unseen);
    let is_other = |path: &&Vec<u8>| before.get(*path).map(Entry::content) != now.get(*path).map(Entry::content);
    before.keys().chain(now.keys()).filter(|path| is_unseen(path)).filter(is_other).cloned().collect()
}
