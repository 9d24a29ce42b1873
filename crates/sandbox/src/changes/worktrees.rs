//! Where the working trees lie of the indices that a run changed, and who else works in the same repository.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::FileType;
use rustix::io::{Errno, Result as KernelResult};

use super::guarded::{Guarding, MAX_JUDGED, in_git};
use super::manifest::{Entry, Kind, Manifest, target_bytes};
use crate::protect::{
    self, BlobNames, Branches, Hash, History, MAX_POINTER, NewObjects, READ_AS_FILES, SUBMODULE, ServerFile, TreeEntry,
    split,
};
use crate::state::{Cross, Dir, rights_of};

/// The trees of so many branches say where submodules are.
const MAX_TIPS: usize = 1000;
/// A larger configuration says of no working tree where it lies.
const MAX_CONFIG: u64 = 1 << 20;
/// Why what belongs to a worktree is held.
const OTHER_WORKTREE: &str = "version control: it is of a worktree that lies out of the workspace";
/// Why all of a repository is held.
const UNREAD_INDEX: &str = "version control: new trees name submodules or servers, and the host's index, which says what it has of them, is not understood \
                            here (`git update-index --no-split-index` makes a split one whole)";
/// What says where a linked worktree lies.
const POINTER: &str = "gitdir";
/// Where git keeps which branch is being rebased: `HEAD` is on none meanwhile.
const REBASED: [&str; 2] = ["rebase-merge/head-name", "rebase-apply/head-name"];

/// A working tree on the host.
pub(super) struct Tree {
    /// Without links.
    top: PathBuf,
    below: Dir,
    /// Its path in the list of changes, if it lies in the workspace.
    within: Option<PathBuf>,
}

impl Tree {
    /// The path of one of its files in the list of changes.
    pub(super) fn at(&self, path: &Path) -> Option<PathBuf> {
        Some(self.within.as_ref()?.join(path))
    }

    fn kind(&self, path: &Path) -> KernelResult<Option<FileType>> {
        let (folder, name) = (path.parent().unwrap_or(Path::new("")), path.file_name().unwrap_or_default());
        self.below.enter(folder, Cross::Yes)?.kind(name)
    }

    /// Whether the host has something at a path, or nobody can say.
    pub(super) fn may_have(&self, path: &Path) -> bool {
        !matches!(self.kind(path), Ok(None) | Err(Errno::NOENT | Errno::NOTDIR))
    }

    /// Whether the host has a file at a path.
    pub(super) fn has_file(&self, path: &Path) -> bool {
        matches!(self.kind(path), Ok(Some(kind)) if kind != FileType::Directory)
    }
}

/// A submodule that the host has at a path of a working tree. It is looked at once: a tree of a run may name a commit of it in thousands
/// of entries.
pub(super) struct HostSubmodule {
    /// git's folder of it.
    folder: PathBuf,
    /// Where its branches and its `HEAD` are, and what its servers have as theirs.
    tips: BTreeSet<Vec<u8>>,
    /// What these have.
    history: OnceCell<History>,
    /// What the branches of the repository around it have at its path.
    said: OnceCell<BTreeSet<Vec<u8>>>,
}

/// What git keeps here of worktrees that lie elsewhere, and why that is held.
pub(super) fn other_worktrees<'a>(manifest: &'a Manifest, host: &Dir) -> Vec<(&'a Path, String)> {
    let folders: BTreeSet<&Path> = manifest.entries.iter().flat_map(|entry| entry.path.ancestors()).collect();
    let of_git = |folder: &Path| split(folder).map(|(_, rest)| rest);
    let is_one =
        |folder: &Path| of_git(folder).is_some_and(|rest| rest.iter().count() == 2 && rest.starts_with("worktrees"));
    let others = folders.into_iter().filter(|folder| is_one(folder) && is_elsewhere(manifest, host, folder));
    others.map(|folder| (folder, OTHER_WORKTREE.to_owned())).collect()
}

/// Whether a worktree, by what git keeps of it, is none in which the run worked.
pub(super) fn is_elsewhere(manifest: &Manifest, host: &Dir, folder: &Path) -> bool {
    match &manifest.worktree {
        Some(own) if own.0 == folder => false,
        Some(own) if own.0.parent() == folder.parent() => true,
        Some(_) | None => match host.read(folder.join(POINTER), MAX_POINTER) {
            Ok(pointer) => top_by(manifest, folder, &pointer).is_some_and(|top| !top.starts_with(&manifest.workspace)),
            Err(Errno::NOENT | Errno::NOTDIR) => false,
            // Nobody can say where it is.
            Err(_other) => true,
        },
    }
}

/// Where a worktree lies, by what git keeps of it; where nothing is there, as it is spelled.
fn top_of_worktree(manifest: &Manifest, host: &Dir, folder: &Path) -> Option<PathBuf> {
    top_by(manifest, folder, &host.read(folder.join(POINTER), MAX_POINTER).ok()?)
}

fn top_by(manifest: &Manifest, folder: &Path, pointer: &[u8]) -> Option<PathBuf> {
    let pointer = Path::new(OsStr::from_bytes(pointer.trim_ascii_end()));
    let top = protect::resolve(&manifest.workspace.join(folder), pointer.parent()?)?;
    Some(top.canonicalize().unwrap_or(top))
}

impl Guarding<'_> {
    /// The branches of a repository on which somebody works where the run did not; `None` where that cannot be read.
    pub(super) fn checked_out(&self, host: &Dir, folder: &Path) -> Option<BTreeSet<String>> {
        let linked = folder.join("worktrees");
        let names = there(host.enter(&linked, Cross::No).and_then(|dir| dir.names()))?;
        let others = names.into_iter().map(|name| linked.join(name));
        let others = others.filter(|other| is_elsewhere(self.manifest, host, other));
        let is_around = self.manifest.worktree.as_ref().is_some_and(|own| own.0.parent() == Some(linked.as_path()));
        let own = is_around.then(|| folder.to_owned());
        let mut branches = BTreeSet::new();
        for other in others.chain(own) {
            for (name, begins) in REBASED.map(|name| (name, "ref: ")).into_iter().chain([("HEAD", "")]) {
                let head = there(host.read(other.join(name), MAX_POINTER))?;
                let head = [begins.as_bytes(), &head].concat();
                if protect::branch_of(&head).is_some() {
                    branches.extend(protect::branches_of_head(host, folder, &head)?);
                }
            }
        }
        Some(branches)
    }

    /// The working tree of an index: around git's folder, or where the host's configuration or git's own file of a worktree says.
    pub(super) fn tree_of(&self, index: &Path) -> Option<Tree> {
        let (host, root, own) = (self.host?, &self.manifest.workspace, index.parent()?);
        let (folder, rest) = in_git(&self.repositories, index)?;
        let top = if rest.iter().count() == 1 {
            let read = |name: &str| host.read(folder.join(name), MAX_CONFIG).ok();
            let said = ["config.worktree", "config"].iter().find_map(|name| protect::worktree_of(&read(name)?));
            match said {
                Some(said) => root.join(folder).join(said).canonicalize().ok()?,
                None if split(folder).is_some_and(|(_, below)| is_empty(&below)) => root.join(folder.parent()?),
                // A folder of git's by another name has none, unless a link leads to it.
                None => root
                    .join(".git")
                    .canonicalize()
                    .ok()
                    .filter(|git| *git == root.join(folder))
                    .map(|_| root.clone())?,
            }
        } else {
            top_of_worktree(self.manifest, host, own)?
        };
        match top.strip_prefix(root) {
            Ok(within) => {
                let (below, within) = (host.enter(within, Cross::Yes).ok()?, Some(within.to_owned()));
                Some(Tree { top, below, within })
            }
            Err(_out) => {
                let is_own = self.manifest.worktree.as_ref().is_some_and(|worktree| worktree.0 == own);
                Some(Tree { below: Dir::open(&top).ok().filter(|_| is_own)?, top, within: None })
            }
        }
    }

    /// Whether the file at a path is what this says, as the host has it or the run leaves it; without it, whether the run changed it. Of a
    /// tree that is not known nobody can say it, and of what is hidden the run is not told.
    pub(super) fn is_seen(
        &self,
        tree: Option<&Tree>,
        path: &Path,
        (hash, is): (Option<Hash>, Option<&TreeEntry>),
    ) -> bool {
        let Some((tree, hash)) = tree.zip(hash) else { return false };
        if tree.at(path).is_some_and(|place| self.hides(&place)) {
            return false;
        }
        let changed = self.left_at(tree, path);
        let Some(is) = is else { return changed.is_some() };
        changed.is_some_and(|entry| self.is_left(entry, (tree, path), (is, hash)))
            || self.is_hosts((tree, path), (is, hash))
    }

    /// Whether the file at a path is what this says when the run's changes are taken; `None` for that nothing is there.
    pub(super) fn stays(&self, (tree, path): (&Tree, &Path), (is, hash): (Option<&TreeEntry>, Hash)) -> bool {
        let Some(is) = is else { return self.is_gone(Some(tree), path) };
        match self.left_at(tree, path) {
            Some(entry) => self.is_left(entry, (tree, path), (is, hash)),
            None => !self.is_gone(Some(tree), path) && self.is_hosts((tree, path), (is, hash)),
        }
    }

    /// What the run made or changed at a path of a working tree.
    fn left_at(&self, tree: &Tree, path: &Path) -> Option<&Entry> {
        let place = tree.at(path)?;
        // A file that is held is not there, and none of git's own says what an index may have.
        let changed = self.changed.get(place.as_path()).copied();
        changed.filter(|entry| !self.is_of_git(&entry.path) && self.why(entry).is_none())
    }

    fn is_left(&self, entry: &Entry, (tree, path): (&Tree, &Path), ((mode, name), hash): (&TreeEntry, Hash)) -> bool {
        if !protect::is_mode_of(*mode, entry.kind == Kind::Symlink, entry.mode) {
            return false;
        }
        let names = match entry.kind {
            Kind::Symlink => {
                let target = entry.target.as_deref().and_then(target_bytes).map(OsString::into_vec);
                target.map(|target| BlobNames::of(&target, hash))
            }
            Kind::File => entry.sha256.as_deref().and_then(|sum| self.names_of(sum, hash)),
            Kind::Dir | Kind::Special => None,
        };
        self.with_rights(|| names.is_some_and(|names| names.has(name, (&tree.below, path))))
    }

    /// What git may call contents of the run's. Each is read once, whatever number of files has it.
    fn names_of(&self, sum: &str, hash: Hash) -> Option<BlobNames> {
        let key = (sum.to_owned(), hash);
        if let Some(known) = self.named.borrow().get(&key) {
            return known.clone();
        }
        let found = self.blobs.and_then(|blobs| blobs.read(sum, MAX_JUDGED).ok());
        let found = found.map(|contents| BlobNames::of(&contents, hash));
        self.named.borrow_mut().insert(key, found.clone());
        found
    }

    fn is_hosts(&self, (tree, path): (&Tree, &Path), (is, hash): (&TreeEntry, Hash)) -> bool {
        self.with_rights(|| protect::is_blob(&tree.below, path, is, (hash, &self.unhashed)))
    }

    /// Reads with the rights of the workspace's owner: of what they may not read, nobody answers a guess.
    fn with_rights(&self, read: impl FnOnce() -> bool) -> bool {
        let rights = self.host.map(rights_of).transpose();
        rights.is_ok() && read()
    }

    /// Whether no file is at a path, as the host has it or the run leaves it.
    pub(super) fn is_gone(&self, tree: Option<&Tree>, path: &Path) -> bool {
        let Some(tree) = tree else { return false };
        let there = || !matches!(tree.kind(path), Ok(None) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP));
        let Some(place) = tree.at(path) else { return !there() };
        if self.changed.get(place.as_path()).is_some_and(|entry| entry.kind != Kind::Dir) {
            return false;
        }
        let removed = self.removed_at(&place).filter(|_| !self.is_of_git(&place));
        removed.is_some_and(|entry| self.why(entry).is_none()) || !there()
    }

    fn is_of_git(&self, path: &Path) -> bool {
        in_git(&self.repositories, path).is_some()
    }

    /// Whether the submodule that the host has at a path has a commit by this run (one that it fetched, too), or one that a branch of
    /// it, its `HEAD` or the branch that its server has as `HEAD` has; or a branch of the repository around it has it there.
    pub(super) fn has_commit(&self, (around, tree): (&Path, Option<&Tree>), path: &Path, id: &[u8]) -> bool {
        let Some(submodule) = tree.and_then(|tree| self.host_submodule(around, tree, path)) else { return false };
        let history = || {
            let mut history = History::default();
            if let Some(stored) = self.stored(&submodule.folder) {
                history.walk(&stored, submodule.tips.iter().cloned());
            }
            history
        };
        self.commits.get(submodule.folder.as_path()).is_some_and(|commits| commits.contains(id))
            || submodule.tips.contains(id)
            || submodule.history.get_or_init(history).has(id)
            || submodule.said.get_or_init(|| self.said(around, path)).contains(id)
    }

    /// The commits of a submodule that the branches of the repository around it have at its path.
    fn said(&self, around: &Path, path: &Path) -> BTreeSet<Vec<u8>> {
        let Some((refs, stored)) = self.references.get(around).zip(self.objects.get(around)) else {
            return BTreeSet::new();
        };
        let at = |tip: &Vec<u8>| stored.at(&stored.tree_of(tip)?, path.as_os_str().as_bytes());
        let said = refs.tips.values().take(MAX_TIPS).filter_map(at);
        said.filter(|(mode, _)| *mode == SUBMODULE).map(|(_, id)| id).collect()
    }

    fn host_submodule(&self, around: &Path, tree: &Tree, path: &Path) -> Option<Rc<HostSubmodule>> {
        let place = (around.to_owned(), tree.top.join(path));
        if let Some(known) = self.submodules.borrow().get(&place) {
            return known.clone();
        }
        let found = self.submodule(tree, path).zip(self.host).map(|(folder, host)| {
            let branches = Branches::of(host, &folder.join("config"));
            let tips = branches.tips().into_values().chain(branches.detached()).chain(branches.defaults()).collect();
            Rc::new(HostSubmodule { folder, tips, history: OnceCell::new(), said: OnceCell::new() })
        });
        self.submodules.borrow_mut().insert(place, found.clone());
        found
    }

    /// The folder of git's of a submodule on the host, if it lies in the workspace.
    fn submodule(&self, tree: &Tree, path: &Path) -> Option<PathBuf> {
        let (top, below) = (tree.top.join(path), tree.below.enter(path, Cross::Yes).ok()?);
        let folder = match below.kind(".git").ok()?? {
            FileType::Directory => top.join(".git"),
            FileType::RegularFile => {
                let pointer = below.read(".git", MAX_POINTER).ok()?;
                protect::resolve(
                    &top,
                    Path::new(OsStr::from_bytes(pointer.trim_ascii_end().strip_prefix(b"gitdir: ")?)),
                )?
            }
            FileType::Symlink
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => return None,
        };
        folder.canonicalize().ok()?.strip_prefix(&self.manifest.workspace).ok().map(Path::to_owned)
    }

    /// The index of the working tree of a repository in which the run was.
    fn own_index(&self, folder: &Path) -> PathBuf {
        let worktree = self.manifest.worktree.as_ref().filter(|own| own.0.starts_with(folder));
        worktree.map_or(folder, |own| own.0.as_path()).join("index")
    }

    /// What the host's index says of the files that say which servers are asked.
    pub(super) fn servers(&self, folder: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let index = self.own_index(folder);
        let text = self.host.and_then(|host| host.read(&index, MAX_JUDGED).ok()).unwrap_or_default();
        let hash = self.host.and_then(|host| Hash::of(host, &index));
        hash.map(|hash| protect::servers(&text, hash)).unwrap_or_default()
    }

    /// Why all of a repository is held: a new tree says of other servers than the host's index, or names a commit of a submodule that
    /// nobody looked at.
    pub(super) fn other_servers(&self, folder: &Path, new: &NewObjects) -> Option<String> {
        if new.files.is_empty() && new.links.is_empty() {
            return None;
        }
        let index = self.own_index(folder);
        let read = || {
            let host = self.host?;
            Some((there(host.read(&index, MAX_JUDGED))?, Hash::of(host, &index)?))
        };
        let Some(listed) = read().and_then(|(text, hash)| protect::contents_of(&text, hash)) else {
            return Some(UNREAD_INDEX.to_owned());
        };
        if let Some(ServerFile { name, .. }) = other_file(new, &listed) {
            let name = String::from_utf8_lossy(name);
            return Some(format!(
                "version control: a new commit has another `{name}` than the host, which is read from there too and says which \
                 server is asked"
            ));
        }
        let links = listed.into_iter().filter(|(_, (mode, _))| *mode == SUBMODULE);
        let links: Vec<(Vec<u8>, Vec<u8>)> = links.map(|(path, (_, id))| (path, id)).collect();
        let tree = self.tree_of(&index);
        let is_known = |id: &&Vec<u8>| {
            let has = |path: &[u8]| self.has_commit((folder, tree.as_ref()), Path::new(OsStr::from_bytes(path)), id);
            links.iter().any(|(path, known)| known == *id || has(path))
        };
        let (other, name) = new.links.iter().find(|(id, _)| !is_known(id))?;
        let called = |path: &&Vec<u8>| path.rsplit(|byte| *byte == b'/').next() == Some(name.as_slice());
        let path = links.iter().map(|(path, _)| path).find(called).unwrap_or(name);
        Some(format!(
            "version control: a new commit has the submodule `{}` at {}, which is no commit of this run nor where the host's submodule or a \
             branch of it is: its files would come from a server, and nobody looked at them. Fetch it into the submodule on the host, \
             look at it, make a branch there (`git branch NAME ID`), and take this again",
            crate::fault::show_bytes(path),
            policy::json::hex(other)
        ))
    }
}

/// A file of servers that the host's index has not so: neither at the top nor, where no new commit has its tree at the top, under this
/// name anywhere. Below the top git reads none (a library that was copied in has its own), and no later run makes an older tree a
/// branch's.
fn other_file<'n>(new: &'n NewObjects, listed: &BTreeMap<Vec<u8>, TreeEntry>) -> Option<&'n ServerFile> {
    let tops = new.tops();
    let name_of = |path: &[u8]| {
        let name = path.rsplit(|byte| *byte == b'/').next();
        READ_AS_FILES.into_iter().find(|known| name == Some(*known))
    };
    let anywhere = listed.iter().filter_map(|(path, (_, id))| Some((name_of(path)?, id.as_slice())));
    let anywhere: BTreeSet<(&[u8], &[u8])> = anywhere.collect();
    let is_hosts = |file: &&ServerFile| {
        listed.get(file.name).is_some_and(|(_, id)| *id == file.is)
            || !tops.contains(file.tree.as_slice()) && anywhere.contains(&(file.name, file.is.as_slice()))
    };
    new.files.iter().find(|file| !is_hosts(file))
}

/// Nothing where nothing is; `None` where it cannot be read.
fn there<T: Default>(read: KernelResult<T>) -> Option<T> {
    match read {
        Err(Errno::NOENT | Errno::NOTDIR) => Some(T::default()),
        other => other.ok(),
    }
}

fn is_empty(path: &Path) -> bool {
    path.as_os_str().is_empty()
}
