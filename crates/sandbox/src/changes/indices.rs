//! What the host's indices of git listed when a run began. `git status`, and every prompt that asks git, writes an index anew and changes
//! nothing of what it lists: at the end of the run the file alone does not say whether somebody did more than that.
//!
//! They are kept open, and read only where another file is there at the end: git never writes into an index, it puts a new one in
//! its place. And where each working tree was: another `HEAD` at the end is somebody's work, too.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::exchange::parent;
use super::manifest::{Fingerprint, HASHED, Kind, NotedHead, NotedReference, listed};
use super::repacked::Lists;
use super::store::Store;
use crate::protect::{Branches, MAX_REFERENCE, branches_of_head, split};
use crate::state::{Cross, Dir};
use policy::json::hex;

/// So many are kept open.
const MAX_INDICES: usize = 64;
/// So many folders of submodules are looked at, and so many names in one.
const MAX_FOLDERS: usize = 512;
const MAX_NAMES: usize = 256;
/// So many references are noted, each in a file of its own.
const MAX_REFERENCES: usize = 1024;
const HEAD: &str = "HEAD";
/// How an index is called.
const INDEX: &str = "index";

/// The indices of a workspace, open since the run began, and the commits that its working trees were on.
#[derive(Debug, Default)]
pub struct Indices {
    open: Vec<OpenIndex>,
    heads: BTreeMap<PathBuf, NotedHead>,
    /// What files of references said, by the folder of git's and their whole names.
    references: BTreeMap<PathBuf, BTreeMap<String, Vec<u8>>>,
    /// Where all other references were.
    lists: Lists,
}

#[derive(Debug)]
struct OpenIndex {
    /// Relative to the workspace.
    path: PathBuf,
    file: File,
    /// As it was opened.
    then: Fingerprint,
}

impl Indices {
    /// Opens those of the folders of git's at these paths, of their worktrees and of their submodules. One that cannot be opened is
    /// not known afterwards: what happens to it is a change.
    #[must_use]
    pub fn of<'a>(root: &Dir, folders: impl IntoIterator<Item = &'a Path>) -> Self {
        let mut all = Self::default();
        let mut ahead: Vec<(PathBuf, bool)> = folders.into_iter().map(|folder| (folder.to_owned(), true)).collect();
        for _ in 0..MAX_FOLDERS {
            let Some((folder, is_whole)) = ahead.pop() else { break };
            let has_one = all.open(root, folder.join(INDEX)).is_some();
            let worktrees = below(root, &folder.join("worktrees"));
            for worktree in &worktrees {
                all.open(root, worktree.join(INDEX));
            }
            all.note(root, &folder, [folder.clone()].into_iter().chain(worktrees));
            let modules = below(root, &folder.join("modules"));
            // A submodule whose name has a slash lies a folder deeper.
            let deeper = if has_one || is_whole { Vec::new() } else { below(root, &folder) };
            ahead.extend(modules.into_iter().chain(deeper).map(|module| (module, false)));
        }
        all
    }

    fn open(&mut self, root: &Dir, path: PathBuf) -> Option<()> {
        let file = root.open_file(&path, OFlags::RDONLY, Mode::empty()).ok()?;
        let then = Fingerprint::from_stat(&rustix::fs::fstat(&file).ok()?);
        if then.kind == Kind::File && then.size <= HASHED && self.open.len() < MAX_INDICES {
            self.open.push(OpenIndex { path, file, then });
        }
        Some(())
    }

    /// Where working trees are: each `own` has the `HEAD` of one, and `folder` the branches.
    fn note(&mut self, root: &Dir, folder: &Path, own: impl Iterator<Item = PathBuf>) {
        let mut heads = own.filter_map(|own| Some((root.read(own.join(HEAD), MAX_REFERENCE).ok()?, own))).peekable();
        if heads.peek().is_none() {
            return;
        }
        self.lists.keep(root, folder);
        let branches = Branches::of(root, &folder.join("config"));
        for (head, own) in heads {
            let (commit, _) = branches.commit_of(&head);
            let noted = NotedHead { own: own.clone(), head: hex(&head), commit: commit.map(|id| hex(&id)) };
            self.heads.insert(own, noted);
        }
        let noted: usize = self.references.values().map(BTreeMap::len).sum();
        self.references.insert(folder.to_owned(), branches.in_files(MAX_REFERENCES.saturating_sub(noted)));
    }

    /// From here on the index at this path is another one, by us, or working trees are where we put them.
    pub fn forget(&mut self, root: &Dir, path: &Path) {
        self.open.retain(|index| index.path != path);
        for (folder, noted) in &mut self.references {
            if let Some(name) = path.strip_prefix(folder).ok().and_then(Path::to_str) {
                noted.remove(name);
            }
        }
        self.lists.put(root, path);
        note_put(self.heads.values_mut(), root, &[path]);
    }

    /// What a copy of the workspace need not know: it says itself what was copied.
    #[must_use]
    pub fn but_files(self) -> Self {
        Self { open: Vec::new(), ..self }
    }

    /// Where the working trees were.
    #[must_use]
    pub fn heads(&self) -> Vec<NotedHead> {
        self.heads.values().cloned().collect()
    }

    /// References that are elsewhere by now, or nowhere: one that git on the host packed is where it was.
    fn moved(&self, root: &Dir) -> Vec<NotedReference> {
        let mut moved = Vec::new();
        for (folder, noted) in self.references.iter().filter(|(_, noted)| !noted.is_empty()) {
            let host = Branches::of(root, &folder.join("config"));
            let elsewhere = noted.iter().filter(|(name, id)| host.now(name).as_ref() != Some(*id));
            moved.extend(elsewhere.map(|(name, id)| NotedReference { path: folder.join(name), id: hex(id) }));
        }
        moved
    }

    /// What those listed that were replaced since.
    #[must_use]
    pub fn replaced(&self, root: &Dir) -> BTreeMap<PathBuf, String> {
        let is_replaced = |index: &&OpenIndex| {
            let now = parent(root, &index.path).and_then(|(dir, name)| dir.stat(&name));
            // The same file still: where somebody wrote into it, nobody knows what it listed.
            matches!(now, Ok(Some(now)) if now.st_ino != index.then.inode)
        };
        let found = self.open.iter().filter(is_replaced);
        found.filter_map(|index| Some((index.path.clone(), index.listed()?))).collect()
    }
}

impl OpenIndex {
    /// `None` where somebody wrote into it.
    fn listed(&self) -> Option<String> {
        let mut content = vec![0; usize::try_from(self.then.size).ok()?];
        self.file.read_exact_at(&mut content, 0).ok()?;
        // Losing its name is a change of the inode, and none of the contents.
        let now = Fingerprint::from_stat(&rustix::fs::fstat(&self.file).ok()?);
        let is_same = (now.size, now.mtime) == (self.then.size, self.then.mtime);
        listed(INDEX.as_ref(), &content).filter(|_| is_same)
    }
}

impl Store {
    /// After all was read, so that nothing lies between: notes which references are elsewhere by now, and where working trees are that are
    /// not known, in whose folders of git's something changed.
    pub fn note_late(&mut self, root: &Dir, indices: &Indices) {
        self.manifest.moved = indices.moved(root);
        let folders: BTreeSet<PathBuf> =
            self.manifest.entries.iter().filter_map(|entry| Some(split(&entry.path)?.0)).collect();
        let is_known = |folder: &Path| self.manifest.heads.iter().any(|noted| noted.own.starts_with(folder));
        let late: Vec<&Path> = folders.iter().map(PathBuf::as_path).filter(|folder| !is_known(folder)).collect();
        let is_since = |path: &Path| {
            let there = parent(root, path).and_then(|(dir, name)| Fingerprint::of(&dir, &name)).ok().flatten();
            let is_ours = |now: &Fingerprint| self.known.applied.get(path).is_some_and(|then| then.is_same(now));
            there.is_some_and(|now| now.ctime > self.started && !is_ours(&now))
        };
        let noted = noted_late(root, late, is_since);
        let loose = |folder: &Path, path: &Path| {
            let name = path.strip_prefix(folder).ok()?.to_str()?;
            Some(hex(indices.references.get(folder)?.get(name)?))
        };
        let listed = indices.lists.noted(root, &self.manifest.entries, &loose, &is_since);
        self.manifest.heads.extend(noted);
        self.manifest.listed = listed;
    }
}

/// Where working trees are of which nothing was noted when the run began, since nobody looked for them in all of the workspace. Whoever
/// wrote a `HEAD` or its branch since is elsewhere, wherever that is.
fn noted_late<'a>(
    root: &Dir,
    folders: impl IntoIterator<Item = &'a Path>,
    is_since: impl Fn(&Path) -> bool,
) -> Vec<NotedHead> {
    let mut heads = Indices::of(root, folders).heads;
    for noted in heads.values_mut() {
        let head = policy::json::unhex(&noted.head).unwrap_or_default();
        let on = branches_of(root, &noted.own, &head);
        if on.iter().any(|branch| is_since(branch)) {
            noted.commit = Some(String::new());
        }
        if is_since(&noted.own.join(HEAD)) {
            noted.head.clear();
        }
    }
    heads.into_values().collect()
}

/// The files of the branches that a `HEAD` leads to, in the folder of git's of this working tree.
fn branches_of(root: &Dir, own: &Path, head: &[u8]) -> Vec<PathBuf> {
    let folder = folder_of(own);
    let branches = branches_of_head(root, folder, head).unwrap_or_default();
    branches.into_iter().map(|name| folder.join("refs").join("heads").join(name)).collect()
}

/// git's folder with the branches, of a working tree's own.
fn folder_of(own: &Path) -> &Path {
    match own.parent() {
        Some(above) if above.ends_with("worktrees") => above.parent().unwrap_or(own),
        Some(_) | None => own,
    }
}

/// After these paths were put there by us: working trees are where they lead. A branch that one is not on says nothing of where it is,
/// nor does a list that has it while a file of its own says it; and whoever went to another branch meanwhile is somewhere else still.
pub(super) fn note_put<'a>(noted: impl IntoIterator<Item = &'a mut NotedHead>, root: &Dir, paths: &[&Path]) {
    let mut known = BTreeMap::new();
    for noted in noted {
        let own = noted.own.clone();
        let folder = folder_of(&own);
        let on = branches_of(root, &own, &policy::json::unhex(&noted.head).unwrap_or_default());
        let has = |put: &Path| paths.contains(&put);
        let is_head = has(&own.join(HEAD));
        let [is_branch, is_list] = [on.iter().any(|branch| has(branch)), has(&folder.join("packed-refs"))];
        if !(is_head || is_branch || is_list) {
            continue;
        }
        let Ok(head) = root.read(own.join(HEAD), MAX_REFERENCE) else { continue };
        let branches = known.entry(folder.to_owned()).or_insert_with(|| Branches::of(root, &folder.join("config")));
        let (commit, is_listed) = branches.commit_of(&head);
        if is_head || hex(&head) == noted.head && (is_branch || is_list && is_listed) {
            (noted.head, noted.commit) = (hex(&head), commit.map(|id| hex(&id)));
        }
    }
}

/// The paths below a folder.
fn below(root: &Dir, folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    if let Ok(dir) = root.enter(folder, Cross::No) {
        let read = dir.each_name(|name| {
            found.push(folder.join(OsStr::from_bytes(name)));
            found.len() < MAX_NAMES
        });
        // What could not be read is not known.
        read.unwrap_or_default();
    }
    found
}
