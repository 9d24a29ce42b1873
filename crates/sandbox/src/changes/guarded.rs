//! Which changes are not taken unless they are named.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::io::Errno;

use super::exchange::parent;
use super::honest::{Honest, Judged, LIES};
use super::manifest::{Change, Entry, Kind, Manifest};
use super::references::References;
use super::together::Checkout;
use super::worktrees::{HostSubmodule, other_worktrees};
use crate::fault::show_path;
use crate::protect::{
    self, BlobNames, DATA, Hash, Led, LeftOut, List, NEW_REPOSITORY, NewObjects, NodeChange, Part, REPOSITORY,
    StoredObjects, TreeEntry, Verdict, WorkTree, config_objection, index_objection, judge, makes_repository,
    named_by_git, objection, part, split, with_links,
};
use crate::state::{Cross, Dir};

/// A file of git's that is larger is not judged.
pub(crate) const MAX_JUDGED: u64 = 256 << 20;

/// So many bytes of the host's files are read to compare them with the indices of a run.
const MAX_HASHED: u64 = 16 << 30;
/// Why an index is held of which nobody can say more.
const TOO_MUCH: &str =
    "it has more entries of large files on the host than are looked at (16 GiB): `git add` them on the host";
/// So many paths are told of what no file shows.
const MAX_TOLD: usize = 8;

/// Judges the changes of one run.
pub(super) struct Guarding<'a> {
    pub(super) list: &'a List,
    pub(super) manifest: &'a Manifest,
    /// Folders that are held with all that is in them.
    folders: Vec<(&'a Path, String)>,
    /// The workspace and the contents of the run: git's configuration is compared, and held where either is missing.
    pub(super) host: Option<&'a Dir>,
    pub(super) blobs: Option<&'a Dir>,
    /// Folders that git takes for its own on the host, whatever they are called, submodules' among them.
    pub(super) repositories: BTreeSet<&'a Path>,
    /// Other paths that are held, and why: what links among the control files lead to, documents of the policy, what git's
    /// configuration on the host names, what is hidden.
    steering: BTreeMap<PathBuf, &'static str>,
    /// What the run made or changed.
    pub(super) changed: BTreeMap<&'a Path, &'a Entry>,
    /// New commits that were looked into, by their folder of git's.
    pub(super) commits: BTreeMap<&'a Path, BTreeSet<Vec<u8>>>,
    /// All new commits, of which the trees need not be new, by their folder of git's.
    pub(super) made: BTreeMap<&'a Path, BTreeSet<Vec<u8>>>,
    /// What the host and the run have of references, by their folder of git's.
    pub(super) references: BTreeMap<&'a Path, References>,
    /// And of objects.
    pub(super) objects: BTreeMap<&'a Path, StoredObjects<'a>>,
    /// Submodules that somebody asked for: by the folder of git's around them, and where they lie.
    pub(super) submodules: RefCell<SubmodulesByPlace>,
    /// What git may call contents of the run's, once somebody asked.
    pub(super) named: RefCell<BTreeMap<(String, Hash), Option<BlobNames>>>,
    /// So many bytes of the host's files may still be read to say what git calls them.
    pub(super) unhashed: Cell<u64>,
    /// Folders of git's of which `packed-refs` is held.
    pub(super) without_list: BTreeSet<&'a Path>,
    /// The working trees of which something changed.
    pub(super) checkouts: Vec<Checkout<'a>>,
}

/// Submodules of the host, none where there is none, by the folder of git's around them and where they lie.
type SubmodulesByPlace = BTreeMap<(PathBuf, PathBuf), Option<Rc<HostSubmodule>>>;

/// Why nothing of a repository is taken.
pub(crate) const PARTIAL: &str = "version control: the run fetched a part of the history alone (`--depth`, `--filter`): branches would name commits \
                       that are not there";
/// Where git keeps what is still to be done.
const LISTS: [&str; 3] = ["rebase-merge", "rebase-apply", "sequencer"];
/// Why such a folder is held.
const HALF_REMOVED: &str =
    "version control: a part of what a rebase or the like has still to do was removed: it would go on without";
/// Why a path of git's configuration is held.
const NAMED: &str = "version control: git's configuration names it";
/// Why a hidden path is held.
const HIDDEN: &str = "hidden: the policy hides it (`fs.hide`), and the run did not see what is there";

/// Why all of a workspace is held.
const WITHIN: &str =
    "the workspace is a folder of control files or of git's, or lies in one: by its path in it nobody would know one";

/// What is held beside the list.
fn steering(list: &List, manifest: &Manifest, led: Led, named: BTreeSet<PathBuf>) -> BTreeMap<PathBuf, &'static str> {
    // Where not everything was looked at, all of it could be meant.
    let all = led.cut.then(|| {
        (PathBuf::new(), "the workspace or a home folder has too much in it to look for links among control files")
    });
    let within = protect::steers(list, &manifest.workspace).then(|| (PathBuf::new(), WITHIN));
    let led = led.within.into_iter().map(|path| (path, "a link among the control files leads to it"));
    let policies = manifest.policies.iter().map(|path| (path.0.clone(), protect::DOCUMENT));
    let named = named.into_iter().map(|path| (path, NAMED));
    let hidden = manifest.hidden.iter().map(|path| (path.0.clone(), HIDDEN));
    all.into_iter().chain(within).chain(led).chain(policies).chain(named).chain(hidden).collect()
}

/// The folders above a path that git takes for its own, whatever they are called: those on the host, and those that become
/// one, of what the run made and what the host has, with whichever part comes last.
fn repositories<'a>(manifest: &'a Manifest, host: Option<&Dir>) -> (BTreeSet<&'a Path>, BTreeSet<&'a Path>) {
    let made: BTreeSet<&Path> =
        manifest.entries.iter().filter(|e| e.change != Change::Removed).map(|e| e.path.as_path()).collect();
    let makes = |folder: &Path, name: &str| made.contains(folder.join(name).as_path());
    // What cannot be looked at may be there.
    let there = |dir: Option<&Dir>, name: &str| dir.is_some_and(|dir| !matches!(dir.kind(name), Ok(None)));
    let is_module = |rest: &Path| rest.starts_with("modules");
    // In a folder of git's only submodules, and where data lies, which no name steers: a new worktree is held by its name.
    let may_be = |folder: &Path| {
        split(folder).is_none_or(|(_, rest)| {
            // An empty one of the host's is none yet.
            let is_whole = rest.as_os_str().is_empty();
            let is_data = rest.iter().any(|part| DATA.iter().any(|data| part == *data));
            is_whole || is_module(&rest) || is_data && REPOSITORY.iter().any(|name| makes(folder, name))
        })
    };
    let folders: BTreeSet<&Path> = manifest.entries.iter().flat_map(|entry| entry.path.ancestors().skip(1)).collect();
    let (mut old, mut new) = (BTreeSet::new(), BTreeSet::new());
    for folder in folders.into_iter().filter(|folder| may_be(folder)) {
        let dir = host.and_then(|host| host.enter(folder, Cross::No).ok());
        if makes_repository(|name| there(dir.as_ref(), name)) {
            old.insert(folder);
        } else if makes_repository(|name| makes(folder, name) || there(dir.as_ref(), name)) {
            new.insert(folder);
        }
    }
    old.retain(|folder| split(folder).is_none_or(|(_, rest)| is_module(&rest)));
    (old, new)
}

/// Folders of git's whose history the run has not whole: which commits are missing says a file that is held, and without it branches
/// would name what is not there.
fn partial<'a>(manifest: &'a Manifest, others: &BTreeSet<&Path>) -> impl Iterator<Item = &'a Path> {
    let present = manifest.entries.iter().filter(|entry| entry.change != Change::Removed);
    present.filter_map(|entry| {
        let is_promise = entry.path.extension().is_some_and(|end| end == "promisor");
        let depth =
            if is_promise { 3 } else { usize::from(entry.path.file_name().is_some_and(|name| name == "shallow")) };
        let folder = entry.path.ancestors().nth(depth).filter(|_| depth > 0)?;
        let is_whole = split(folder).is_some_and(|(_, rest)| rest.as_os_str().is_empty());
        (is_whole || others.contains(folder)).then_some(folder)
    })
}

/// The innermost folder of git's that a path lies in, and the path in it.
pub(super) fn in_git<'p>(repositories: &BTreeSet<&Path>, path: &'p Path) -> Option<(&'p Path, PathBuf)> {
    let other = repositories.iter().rfind(|folder| path.starts_with(folder));
    let (folder, rest) = match other {
        Some(folder) => (folder.to_path_buf(), path.strip_prefix(folder).ok()?.to_owned()),
        None => split(path)?,
    };
    Some((path.ancestors().find(|above| *above == folder)?, rest))
}

/// Of a rebase and the like, folders of which the run removed a part: git goes on without what is not listed any more.
fn half_removed<'a>(manifest: &'a Manifest, repositories: &BTreeSet<&Path>) -> BTreeSet<&'a Path> {
    let removed = manifest.entries.iter().filter(|entry| entry.change == Change::Removed);
    let removed: BTreeSet<&Path> = removed.map(|entry| entry.path.as_path()).collect();
    let is_list = |folder: &&Path| {
        let name = folder.file_name().is_some_and(|name| LISTS.iter().any(|list| name == *list));
        let rest = in_git(repositories, folder).map(|(_, rest)| rest).filter(|_| name);
        rest.is_some_and(|rest| rest.iter().count() == 1 || rest.starts_with("worktrees"))
    };
    let lists = removed.iter().filter_map(|path| path.ancestors().skip(1).find(is_list));
    lists.filter(|list| !removed.contains(list)).collect()
}

impl<'a> Guarding<'a> {
    pub(super) fn of(list: &'a List, manifest: &'a Manifest, host: Option<&'a Dir>, blobs: Option<&'a Dir>) -> Self {
        let (repositories, new) = repositories(manifest, host);
        let new_folders = manifest.entries.iter().filter(|entry| what(entry) == NodeChange::NewFolder);
        let folders =
            new_folders.filter_map(|entry| match verdict(list, &repositories, entry, NodeChange::NewFolder) {
                Verdict::Held(why) => Some((entry.path.as_path(), why)),
                Verdict::Free | Verdict::Contents(_) => None,
            });
        // Who removes `HEAD` removes the repository: then nothing of it is taken, or what is left would be none.
        let emptied = manifest.entries.iter().filter(|entry| entry.change == Change::Removed);
        let emptied = emptied.filter_map(|entry| {
            let (_, rest) = split(&entry.path)?;
            let gone = rest == Path::new("HEAD") && !manifest.has_other(&entry.path, Change::Removed);
            Some((entry.path.parent().filter(|_| gone)?, "version control: the repository would be gone".to_owned()))
        });
        let half = half_removed(manifest, &repositories).into_iter().map(|folder| (folder, HALF_REMOVED.to_owned()));
        let new = new.into_iter().map(|folder| (folder, format!("version control: {NEW_REPOSITORY}")));
        let partial = partial(manifest, &repositories).map(|folder| (folder, PARTIAL.to_owned()));
        let others = host.into_iter().flat_map(|host| other_worktrees(manifest, host));
        let folders: Vec<_> = folders.chain(emptied).chain(half).chain(new).chain(partial).chain(others).collect();
        let mut led = host.map(|host| protect::led(&manifest.workspace, host, list)).unwrap_or_default();
        let mut tops: BTreeSet<&Path> = led.repositories.iter().map(PathBuf::as_path).collect();
        tops.extend(manifest.entries.iter().flat_map(|entry| entry.path.ancestors().skip(1)));
        let mut named = host.map(|host| named_by_git(&manifest.workspace, host, tops)).unwrap_or_default();
        if let Some(host) = host {
            led.within = with_links(&manifest.workspace, host, std::mem::take(&mut led.within));
            named = with_links(&manifest.workspace, host, named);
        }
        let steering = steering(list, manifest, led, named);
        let changed = manifest.entries.iter().filter(|entry| entry.change != Change::Removed);
        let changed = changed.map(|entry| (entry.path.as_path(), entry)).collect();
        let mut all = Self {
            list,
            manifest,
            folders,
            host,
            blobs,
            repositories,
            steering,
            changed,
            commits: BTreeMap::new(),
            made: BTreeMap::new(),
            references: BTreeMap::new(),
            objects: BTreeMap::new(),
            submodules: RefCell::default(),
            named: RefCell::default(),
            unhashed: Cell::new(MAX_HASHED),
            without_list: BTreeSet::new(),
            checkouts: Vec::new(),
        };
        all.references = all.references();
        let seen = all.look_into_objects();
        all.objects = all.references.keys().filter_map(|folder| Some((*folder, all.stored(folder)?))).collect();
        all.look_into_servers(seen);
        let lists = manifest.entries.iter().filter(|entry| entry.path.file_name().is_some_and(|n| n == "packed-refs"));
        let own = lists.filter(|entry| entry.path.parent() == Some(all.of_git(&entry.path)));
        all.without_list =
            own.filter(|entry| all.alone(entry).is_some()).map(|entry| all.of_git(&entry.path)).collect();
        all.bring_together();
        all
    }

    /// Looks at what the run added to folders of git's: what is new in each of which nothing lies.
    fn look_into_objects(&mut self) -> BTreeMap<&'a Path, NewObjects> {
        // In what is held already, such as a new repository, nobody needs to look.
        let objects = self.manifest.entries.iter().filter_map(|entry| match self.verdict(entry) {
            Verdict::Contents(kind) if kind.holds_objects() && !self.is_in_held(&entry.path) => {
                Some((entry.path.as_path(), (entry, kind)))
            }
            Verdict::Contents(_) | Verdict::Free | Verdict::Held(_) => None,
        });
        let Judged { lies, mut seen } = Honest::of(self.blobs, objects.collect()).judged(|path| self.of_git(path));
        let lied: BTreeSet<&'a Path> = lies.into_iter().map(|entry| self.of_git(&entry.path)).collect();
        seen.retain(|folder, _| !lied.contains(folder));
        self.folders.extend(lied.into_iter().map(|folder| (folder, LIES.to_owned())));
        self.made = seen.iter().map(|(folder, new)| (*folder, new.made())).collect();
        self.commits = seen.iter().map(|(folder, new)| (*folder, new.commits())).collect();
        seen
    }

    /// Holds all of what has other servers, or commits of submodules that nobody looked at.
    fn look_into_servers(&mut self, mut seen: BTreeMap<&'a Path, NewObjects>) {
        // What is held of a submodule is not there for the repository around it.
        let held = |all: &Self, seen: &BTreeMap<&'a Path, NewObjects>| {
            seen.iter().find_map(|(folder, new)| Some((*folder, all.other_servers(folder, new)?)))
        };
        while let Some((folder, why)) = held(self, &seen) {
            seen.remove(folder);
            self.commits.remove(folder);
            self.made.remove(folder);
            self.folders.push((folder, why));
            self.submodules.get_mut().clear();
        }
    }

    /// Whether it lies in a folder of which all is held.
    fn is_in_held(&self, path: &Path) -> bool {
        self.folders.iter().any(|(folder, _)| path.starts_with(folder))
    }

    /// Whether it is an object, or a pack of them, that was looked into and is what it is called.
    pub(super) fn is_looked_into(&self, entry: &Entry) -> bool {
        matches!(self.verdict(entry), Verdict::Contents(kind) if kind.holds_objects()) && !self.is_in_held(&entry.path)
    }

    /// The folder of git's that a path lies in.
    pub(super) fn of_git<'b>(&self, path: &'b Path) -> &'b Path {
        in_git(&self.repositories, path).map_or(path, |(folder, _)| folder)
    }

    /// Why a path is held that is on no list: it, what it lies in, or something below it that the change would replace.
    fn steered(&self, entry: &Entry) -> Option<&'static str> {
        let above = entry.path.ancestors().find_map(|path| self.steering.get(path));
        let stays = entry.kind == Kind::Dir && entry.change != Change::Removed;
        let below = || {
            let next = self.steering.range(entry.path.clone()..).next().filter(|_| !stays);
            next.filter(|(path, _)| path.starts_with(&entry.path)).map(|(_, why)| why)
        };
        above.or_else(below).copied()
    }

    /// Whether nobody is shown what is at a path.
    pub(super) fn hides(&self, path: &Path) -> bool {
        path.ancestors().any(|path| self.steering.get(path) == Some(&HIDDEN))
    }

    /// Whether a new file at a path is held though it is on no list.
    pub(super) fn steers(&self, path: &Path) -> bool {
        path.ancestors().any(|path| self.steering.contains_key(path))
    }

    /// What the run removed at a path.
    pub(super) fn removed_at(&self, path: &Path) -> Option<&'a Entry> {
        let (entries, removed) = (&self.manifest.entries, (path, Change::Removed));
        let at = entries.binary_search_by(|entry| (entry.path.as_path(), entry.change).cmp(&removed)).ok()?;
        entries.get(at)
    }

    /// What the run did at a path.
    pub(super) fn entry_at(&self, path: &Path) -> Option<&'a Entry> {
        self.changed.get(path).copied().or_else(|| self.removed_at(path))
    }

    /// Why an entry is held, if it is.
    pub(super) fn why(&self, entry: &Entry) -> Option<String> {
        self.alone(entry).or_else(|| self.with_others(entry))
    }

    /// Why an entry is held by itself.
    pub(super) fn alone(&self, entry: &Entry) -> Option<String> {
        if let Some((_, why)) = self.folders.iter().find(|(folder, _)| entry.path.starts_with(folder)) {
            return Some(why.clone());
        }
        let verdict = match self.verdict(entry) {
            // They were looked into, see `of`.
            Verdict::Contents(kind) if kind.holds_objects() => Verdict::Free,
            other @ (Verdict::Contents(_) | Verdict::Free | Verdict::Held(_)) => other,
        };
        let steered = self.steered(entry).map(str::to_owned).or_else(|| self.waits(entry));
        match verdict {
            Verdict::Held(why) => Some(why),
            Verdict::Free | Verdict::Contents(_) if steered.is_some() => steered,
            Verdict::Free => self.gives_up(entry).or_else(|| self.with_stash(entry)),
            Verdict::Contents(kind) => {
                let why = match self.contents(entry) {
                    Some((before, now)) if kind == protect::Kind::Index => {
                        let hash = self.host.and_then(|host| protect::Hash::of(host, &entry.path));
                        self.index_objection(&entry.path, (&before, &now), hash)
                    }
                    Some((before, now)) if kind == protect::Kind::Config => {
                        config_objection(&before, &now, &self.has_branch(entry))
                    }
                    Some((mut before, now)) => {
                        if kind == protect::Kind::PackedRefs {
                            before = self.list_before(entry, before, &now);
                        }
                        objection(kind, &before, &now).or_else(|| self.unmoved(entry, kind, (&before, &now)))
                    }
                    None => Some(self.unread_contents(entry).to_owned()),
                };
                why.map(|why| format!("version control: {why}"))
            }
        }
    }

    /// Why nobody can say what a file was or is.
    fn unread_contents(&self, entry: &Entry) -> &'static str {
        let is_gone = |host: &Dir| {
            matches!(parent(host, &entry.path).and_then(|(dir, name)| dir.kind(name)), Ok(None) | Err(Errno::NOENT))
        };
        if entry.base.is_some() && self.host.is_some_and(is_gone) {
            "it was on the host when the run began, and is no more, nor where it was: somebody moved or removed it meanwhile"
        } else {
            "it is too large to be judged (256 MiB), or cannot be read"
        }
    }

    fn index_objection(
        &self,
        index: &Path,
        (before, now): (&[u8], &[u8]),
        hash: Option<protect::Hash>,
    ) -> Option<String> {
        let (tree, folder) = (self.tree_of(index), self.of_git(index));
        let tree = tree.as_ref();
        let has_commit = |path: &Path, id: &[u8]| self.has_commit((folder, tree), path, id);
        let is_seen = |path: &Path, is: Option<&TreeEntry>| self.is_seen(tree, path, (hash, is));
        let is_committed = |path: &Path, is_there: bool| self.is_committed((index, tree), path, is_there);
        let is_gone = |path: &Path| self.is_gone(tree, path);
        let was_there = |path: &Path| tree.is_none_or(|tree| tree.may_have(path));
        let (host, left_out) = (self.host, OnceCell::new());
        let known = || LeftOut::of(host?, folder, index.parent()?);
        let is_left_out = |path: &Path| left_out.get_or_init(known).as_ref().is_some_and(|known| known.has(path));
        let tree = WorkTree {
            has_commit: &has_commit,
            is_seen: &is_seen,
            is_committed: &is_committed,
            is_gone: &is_gone,
            was_there: &was_there,
            is_left_out: &is_left_out,
        };
        let found = index_objection(before, now, hash, &tree);
        found.map(|why| if self.unhashed.get() == 0 { TOO_MUCH.to_owned() } else { why })
    }

    /// What of an index changed that is left out of the working tree, as a sparse checkout does: no file among the changes shows it.
    pub(super) fn left_out(&self, entry: &Entry) -> Option<String> {
        let (before, now) = self.contents(entry)?;
        left_out((&before, &now), protect::Hash::of(self.host?, &entry.path)?)
    }

    /// Of a configuration of git's that is held: what of it may be taken.
    pub(super) fn part(&self, entry: &Entry) -> Option<Part> {
        let is_within = self.folders.iter().any(|(folder, _)| entry.path.starts_with(folder));
        if is_within || entry.base.is_none() || self.steered(entry).is_some() {
            return None;
        }
        match self.verdict(entry) {
            Verdict::Contents(protect::Kind::Config) => {
                let (before, now) = self.contents(entry)?;
                part(&before, &now, &self.has_branch(entry))
            }
            Verdict::Contents(_) | Verdict::Free | Verdict::Held(_) => None,
        }
    }

    /// Whether an entry is of what git on the host remembers by itself: it stays with the run, and nobody need be asked.
    pub(super) fn is_remembered(&self, entry: &Entry) -> bool {
        let is_removed = entry.change == Change::Removed;
        // Which `git replace -d` leaves there.
        let is_empty = |rest: &Path| {
            rest == Path::new("refs").join("replace")
                && entry.kind == Kind::Dir
                && self.changed_below(&entry.path).len() == 1
        };
        let is_remembered = |(_, rest): (_, PathBuf)| {
            protect::is_remembered(&rest) || protect::is_tidied(&rest, is_removed) || is_empty(&rest)
        };
        in_git(&self.repositories, &entry.path).is_some_and(is_remembered) && self.with_stash(entry).is_none()
            || self.is_packed_inside(entry)
    }

    /// The file by which git says that it is about to change another one.
    pub(super) fn lock_of(&self, entry: &Entry) -> Option<PathBuf> {
        let (_, rest) = in_git(&self.repositories, &entry.path).filter(|_| entry.kind == Kind::File)?;
        // Objects have none.
        let is_locked = !rest.starts_with("objects") && !rest.starts_with("lfs");
        let mut name = rest.file_name().filter(|_| is_locked)?.to_owned();
        name.push(".lock");
        Some(entry.path.with_file_name(name))
    }

    pub(super) fn verdict(&self, entry: &Entry) -> Verdict {
        let what = if self.moves_listed(entry) { NodeChange::File } else { what(entry) };
        verdict(self.list, &self.repositories, entry, what)
    }

    /// What it was and is.
    pub(super) fn contents(&self, entry: &Entry) -> Option<(Vec<u8>, Vec<u8>)> {
        let before = match &entry.base {
            None => Some(Vec::new()),
            Some(_) => {
                let there = self.host.and_then(|host| host.read(&entry.path, MAX_JUDGED).ok());
                there.or_else(|| self.packed_since(entry))
            }
        };
        before.zip(entry.content(self.blobs))
    }
}

/// What an index comes to have otherwise where no file shows it, in words.
pub(crate) fn left_out((before, now): (&[u8], &[u8]), hash: Hash) -> Option<String> {
    let found = protect::unseen_changes(before, now, hash);
    let named: Vec<String> =
        found.iter().take(MAX_TOLD).map(|path| show_path(Path::new(OsStr::from_bytes(path)))).collect();
    let more = found.len().saturating_sub(named.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let say = || {
        format!(
            "it changes what is left out of the working tree, so that no file here shows it: {}{more}. `git show --stat` tells what a \
             commit has of it",
            named.join(", ")
        )
    };
    (!found.is_empty()).then(say)
}

fn verdict(list: &List, repositories: &BTreeSet<&Path>, entry: &Entry, what: NodeChange) -> Verdict {
    // The innermost: what lies above another one in the order is one around it.
    let folder = repositories.iter().rfind(|folder| entry.path.starts_with(folder));
    match folder.and_then(|folder| entry.path.strip_prefix(folder).ok()) {
        // A path in a folder of git's by another name is judged as if it were called `.git`.
        Some(rest) => judge(list, &Path::new(".git").join(rest), what),
        None => judge(list, &entry.path, what),
    }
}

fn what(entry: &Entry) -> NodeChange {
    match (entry.change, entry.kind) {
        (Change::Removed, _) => NodeChange::Removed,
        (Change::Added, Kind::Dir) => NodeChange::NewFolder,
        (Change::Modified, Kind::Dir) => NodeChange::Folder,
        (Change::Added | Change::Modified, Kind::Symlink) => NodeChange::Link,
        (Change::Added, Kind::File | Kind::Special) => NodeChange::NewFile,
        (Change::Modified, Kind::File | Kind::Special) => NodeChange::File,
    }
}
