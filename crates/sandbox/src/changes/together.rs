//! What of one working tree of git's is taken together or not at all: `HEAD`, the branches that it is on, before and after, and the index.
//! Of a part of them the next commit on the host would take back what the rest brought, or what was there.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use policy::json::hex;
use rustix::io::Errno;

use super::guarded::{Guarding, MAX_JUDGED, in_git};
use super::manifest::{Change, Entry};
use super::references::References;
use super::worktrees::{Tree, is_elsewhere};
use crate::fault::show_path;
use crate::protect::{self, Hash, History, LedTo, MAX_REFERENCE, SUBMODULE, Staged, StoredObjects, TreeEntry, Verdict};
use crate::state::{Cross, Dir};

const NOWHERE: &str =
    "`HEAD` would be on a branch that is not there: the next commit would begin without all that was before";
const UNREAD: &str = "`HEAD`, the commit that it comes to or the index cannot be read here: nobody can say what the next commit would take back";
/// What says that a merge, cherry-pick or revert was begun.
const BEGUN: [&str; 3] = ["MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD"];
/// What belongs to it.
const BESIDE_BEGUN: [&str; 2] = ["MERGE_MODE", "MERGE_MSG"];
/// What of a rebase, a bisect and the like tells git that it is under way. It stays with the run.
const HALF_DONE: [&str; 4] = ["rebase-merge", "rebase-apply", "sequencer", "BISECT_START"];
/// What stands for a branch of the run's that does not read: no commit.
const UNREADABLE: &[u8] = b"?";
const GIVEN_UP: &str = "version control: a merge, cherry-pick or revert that was begun on the host would be given up: the next commit would be an ordinary one, \
                        with all its changes";
/// Why nothing of a working tree is taken now.
const ELSEWHERE: &str = "the host is on another branch or commit than when the run began";

/// What an index has, by path.
type Contents = BTreeMap<Vec<u8>, TreeEntry>;
const UNSTAGED: &str =
    "what was staged on the host is staged no more, and neither committed nor in the file: it would be lost";
const LEFT_BEHIND: &str = "the commit that `HEAD` comes to has it otherwise, by somebody else's work, and the file stays as it was: `git commit -a` would take \
                           that back";

/// The host's index.
struct HostsIndex {
    /// What it has otherwise than the commit that `HEAD` is on.
    staged: BTreeMap<Vec<u8>, Staged>,
    contents: Contents,
    hash: Hash,
}

/// One working tree: the one around a repository, a linked one or a submodule's.
pub(super) struct Checkout<'a> {
    /// git's folder with the branches.
    folder: &'a Path,
    /// git's folder with `HEAD` and the index.
    own: PathBuf,
    /// What is taken together.
    paths: BTreeSet<PathBuf>,
    /// Whether `packed-refs` comes to say where one of its branches is.
    is_listed: bool,
    /// The commit that it is on.
    was: Option<Vec<u8>>,
    /// The commit that it comes to.
    is: Option<Vec<u8>>,
    /// What is staged then; `None` where nobody can say.
    staged: Option<BTreeMap<Vec<u8>, Staged>>,
    /// Where it stays on its commit and nothing that was begun is ended: what the host has staged.
    hosts_staged: Option<BTreeMap<Vec<u8>, Staged>>,
    /// Whether somebody on the host went elsewhere since the run began.
    is_elsewhere: bool,
    /// Why none of it is taken.
    why: Option<String>,
}

impl Checkout<'_> {
    fn has(&self, path: &Path) -> bool {
        self.paths.contains(path)
    }

    fn index(&self) -> PathBuf {
        self.own.join("index")
    }

    fn is_moved(&self) -> bool {
        self.was != self.is
    }
}

impl<'a> Guarding<'a> {
    /// Finds the working trees of which something changed, and what of them is held.
    pub(super) fn bring_together(&mut self) {
        let Some(host) = self.host else { return };
        let mut found = Vec::new();
        for (folder, refs) in &self.references {
            let linked = folder.join("worktrees");
            let names = match host.enter(&linked, Cross::No).and_then(|linked| linked.names()) {
                Ok(names) => names,
                Err(Errno::NOENT | Errno::NOTDIR) => Vec::new(),
                // There may be any, each on any branch.
                Err(_other) => {
                    found.push(self.unread(folder, folder.to_path_buf()));
                    continue;
                }
            };
            let others = names.into_iter().map(|name| linked.join(name));
            let others = others.filter(|own| !is_elsewhere(self.manifest, host, own));
            let is_around = self.manifest.worktree.as_ref().is_some_and(|own| own.0.parent() == Some(linked.as_path()));
            let main = Some(folder.to_path_buf()).filter(|_| !is_around);
            found.extend(others.chain(main).filter_map(|own| self.checkout((host, *folder, refs), own)));
        }
        self.without_list.extend(found.iter().filter(|one| one.why.is_some()).map(|one| one.folder));
        self.checkouts = found;
        // What holds one may hold the list of references, and with that another one.
        loop {
            let open = self.checkouts.iter().enumerate().filter(|(_, checkout)| checkout.why.is_none());
            let found: Vec<(usize, String)> = open.filter_map(|(at, one)| Some((at, self.apart(one)?))).collect();
            if found.is_empty() {
                return;
            }
            for (at, why) in found {
                if let Some(checkout) = self.checkouts.get_mut(at) {
                    checkout.why = Some(why);
                    self.without_list.extend(Some(checkout.folder).filter(|_| checkout.is_listed));
                }
            }
        }
    }

    fn checkout(&self, (host, folder, refs): (&Dir, &'a Path, &References), own: PathBuf) -> Option<Checkout<'a>> {
        let head = own.join("HEAD");
        let before = match host.read(&head, MAX_REFERENCE) {
            Ok(before) => before,
            Err(Errno::NOENT) => return None,
            // Such as a link, as git once made it.
            Err(_other) => return Some(self.unread(folder, own)),
        };
        let after = self.changed.get(head.as_path()).and_then(|entry| self.contents(entry)).map(|(_, now)| now);
        let noted = self.manifest.heads.iter().find(|noted| noted.own == own);
        let then = noted.and_then(|noted| policy::json::unhex(&noted.head));
        let heads = [Some(&before), after.as_ref(), then.as_ref()];
        let mut branches = BTreeSet::new();
        for head in heads.into_iter().flatten() {
            let Some(names) = protect::branches_of_head(host, folder, head) else {
                return Some(self.unread(folder, own));
            };
            branches.extend(names.into_iter().map(|name| format!("refs/heads/{name}")));
        }
        let after = after.as_ref().unwrap_or(&before);
        let was = match protect::branches_of_head(host, folder, &before).and_then(|mut names| names.pop()) {
            Some(name) => refs.tips.get(&name).cloned(),
            None => protect::id_of(&before),
        };
        let is = match protect::branch_of(after) {
            Some(name) => self.after((host, folder, refs), &format!("refs/heads/{name}")).0,
            None => protect::id_of(after),
        };
        let is_listed = branches.iter().any(|name| self.after((host, folder, refs), name).1);
        let begun = BEGUN.map(|name| own.join(name));
        let list = is_listed.then(|| folder.join("packed-refs"));
        let moving: BTreeSet<PathBuf> = branches.iter().map(|name| folder.join(name)).chain(list).collect();
        let is_there = |path: &PathBuf| self.entry_at(path).is_some();
        let [is_head, is_branch] = [is_there(&head), moving.iter().any(is_there)];
        let [is_index, is_ended] = [is_there(&own.join("index")), begun.iter().any(is_there)];
        if !(is_head || is_branch || is_index || is_ended) {
            return None;
        }
        // What is as the run left it came by an `apply` that was ended half-way.
        let is_elsewhere = noted.is_some_and(|noted| {
            let is_other_commit = noted.commit != was.as_deref().map(hex);
            // A branch that the run packed alone is where the host has it, and so somebody put it there.
            let is_packed =
                |name: &String| self.removed_at(&folder.join(name)).is_some() && refs.host.loose(name).is_some();
            let is_followed = (is_head || is_index || is_ended) && branches.iter().any(is_packed);
            let is_put = (is_head || is_branch) && was == is && !is_followed;
            hex(&before) != noted.head && !(is_head && before == *after) || is_other_commit && !is_put
        });
        let half = HALF_DONE.iter().flat_map(|name| self.changed_below(&own.join(name)));
        let paths = moving.into_iter().chain(begun).chain([head, own.join("index")]).chain(half).collect();
        let (staged, hosts_staged) = (None, None);
        let mut checkout =
            Checkout { folder, own, paths, is_listed, was, is, staged, hosts_staged, is_elsewhere, why: None };
        if checkout.is.is_some() && (checkout.is_moved() || is_ended || is_index) {
            checkout.staged = self.staged(host, &checkout);
        }
        if is_index && !checkout.is_moved() && !is_ended {
            checkout.hosts_staged = self.hosts_index(&checkout).map(|index| index.staged);
        }
        Some(checkout)
    }

    /// A working tree of which nobody can say where it is: each branch may be the one.
    fn unread(&self, folder: &'a Path, own: PathBuf) -> Checkout<'a> {
        let of_it = self.manifest.entries.iter().map(|entry| entry.path.clone());
        let of_it = of_it.filter(|path| path.starts_with(folder.join("refs")) || path.ends_with("packed-refs"));
        let paths = of_it.chain(["HEAD", "index"].map(|name| own.join(name))).collect();
        let why = Some(format!("version control: {UNREAD}"));
        let (was, is, staged, hosts_staged) = (None, None, None, None);
        Checkout { folder, own, paths, is_listed: true, was, is, staged, hosts_staged, is_elsewhere: false, why }
    }

    /// What a branch becomes, and whether a new `packed-refs` says it.
    fn after(&self, (host, folder, refs): (&Dir, &Path, &References), name: &str) -> (Option<Vec<u8>>, bool) {
        let read = |branch: &str| {
            let path = folder.join("refs").join("heads").join(branch);
            match self.changed.get(path.as_path()) {
                Some(entry) => {
                    let now = self.contents(entry).map(|(_, now)| now).filter(|now| !now.is_empty());
                    Some(now.unwrap_or_else(|| UNREADABLE.to_vec()))
                }
                None if self.removed_at(&path).is_some() => Some(Vec::new()),
                None => protect::read_branch(host, folder, branch),
            }
        };
        let led = protect::led_by(format!("ref: {name}").as_bytes(), read);
        let Some(LedTo { names, text }) = led else { return (None, false) };
        let Some(last) = names.last().filter(|_| text.is_empty()) else { return (protect::id_of(&text), false) };
        let is_new = self.changed.contains_key(folder.join("packed-refs").as_path());
        (refs.list.get(format!("refs/heads/{last}").as_bytes()).cloned().flatten(), is_new)
    }

    /// What the run made or changed at a path and below it.
    pub(super) fn changed_below(&self, path: &Path) -> Vec<PathBuf> {
        let from = self.changed.range::<Path, _>((Bound::Included(path), Bound::Unbounded));
        from.take_while(|(at, _)| at.starts_with(path)).map(|(at, _)| at.to_path_buf()).collect()
    }

    /// What is staged when a working tree comes to another commit.
    fn staged(&self, host: &Dir, checkout: &Checkout<'_>) -> Option<BTreeMap<Vec<u8>, Staged>> {
        let (index, stored) = (checkout.index(), self.objects.get(checkout.folder)?);
        let now = match self.changed.get(index.as_path()) {
            Some(entry) => self.contents(entry)?.1,
            None => index_of(host, &index)?,
        };
        if now.is_empty() {
            // None was there, and none is made: there is no working tree, or nothing is checked out in it.
            return Some(BTreeMap::new());
        }
        protect::staged(&now, Some(&stored.tree_of(checkout.is.as_deref()?)?), stored)
    }

    /// Whether what the host has staged at a path is in the file there as well, so that nothing is lost with it.
    fn is_in_file(&self, checkout: &Checkout<'_>, tree: Option<&Tree>, path: &Path) -> bool {
        let (Some(staged), Some(stored)) = (&checkout.hosts_staged, self.objects.get(checkout.folder)) else {
            return false;
        };
        match staged.get(path.as_os_str().as_bytes()) {
            None => true,
            Some(Staged { index: None, .. }) => self.is_gone(tree, path),
            Some(Staged { index: Some((SUBMODULE, _)), .. }) => false,
            Some(Staged { index: Some((mode, id)), .. }) => {
                let is = (protect::mode_beside(*mode, Some(*mode)), id.clone());
                tree.is_some_and(|tree| self.stays((tree, path), (Some(&is), stored.hash())))
            }
        }
    }

    /// Why nothing of a working tree is taken: a part is held, or its commit and its index do not fit.
    fn apart(&self, checkout: &Checkout<'_>) -> Option<String> {
        let mut of_it = checkout.paths.iter().filter_map(|path| self.entry_at(path));
        let held = of_it.find_map(|entry| self.why(entry));
        let unfit = || {
            let why = match (&checkout.was, &checkout.is) {
                (None, None) => return None,
                (Some(_), None) => NOWHERE.to_owned(),
                (_, Some(_)) if !checkout.is_moved() => return None,
                (_, Some(_)) => self.unfit(checkout)?,
            };
            Some(format!("version control: {why}"))
        };
        held.or_else(unfit)
    }

    /// The host's index, and what it has otherwise than the commit that `HEAD` is on.
    fn hosts_index(&self, checkout: &Checkout<'_>) -> Option<HostsIndex> {
        let (host, stored) = (self.host?, self.objects.get(checkout.folder)?);
        let index = index_of(host, &checkout.index())?;
        let tree = match &checkout.was {
            Some(was) => Some(stored.tree_of(was)?),
            None => None,
        };
        let staged = protect::staged(&index, tree.as_deref(), stored)?;
        Some(HostsIndex { staged, contents: protect::contents_of(&index, stored.hash())?, hash: stored.hash() })
    }

    /// A path that the index has otherwise than the commit that `HEAD` comes to: neither did the host have it staged, nor does the run.
    fn unfit(&self, checkout: &Checkout<'_>) -> Option<String> {
        let Some(staged) = &checkout.staged else { return Some(UNREAD.to_owned()) };
        let Some(hosts) = self.hosts_index(checkout) else { return Some(UNREAD.to_owned()) };
        let tree = self.tree_of(&checkout.index());
        let is_by_run = |path: &[u8], index: Option<&TreeEntry>| {
            let (host, name) = (hosts.contents.get(path), Path::new(OsStr::from_bytes(path)));
            host != index
                && match index {
                    Some((SUBMODULE, id)) => self.has_commit((checkout.folder, tree.as_ref()), name, id),
                    Some((mode, id)) => {
                        let is = (protect::mode_beside(*mode, host.map(|(mode, _)| *mode)), id.clone());
                        self.is_seen(tree.as_ref(), name, (Some(hosts.hash), Some(&is)))
                    }
                    None => self.is_gone(tree.as_ref(), name),
                }
        };
        let mut other = staged.iter().filter(|(path, is)| hosts.staged.get(*path) != Some(*is));
        if let Some((path, _)) = other.find(|(path, is)| !is_by_run(path, is.index.as_ref())) {
            let path = show_path(Path::new(OsStr::from_bytes(path)));
            return Some(format!(
                "the index has {path} otherwise than the commit that `HEAD` comes to: the next commit would take that back"
            ));
        }
        let known = || {
            let stored = self.objects.get(checkout.folder)?;
            let index = match self.changed.get(checkout.index().as_path()) {
                Some(entry) => self.contents(entry)?.1,
                None => index_of(self.host?, &checkout.index())?,
            };
            let (now, unseen) = (protect::contents_of(&index, stored.hash())?, protect::unseen(&index, stored.hash()));
            // Nothing is checked out.
            let Some(tree) = tree.as_ref().filter(|_| !(now.is_empty() && hosts.contents.is_empty())) else {
                return Some(None);
            };
            if let Some(path) = self.unstaged((&hosts, &now), tree) {
                return Some(Some((path, UNSTAGED)));
            }
            // What is left out of the working tree `git commit -a` takes back no more: which that may be says the host.
            let now: Contents = now.into_iter().filter(|(path, _)| !unseen.contains(path)).collect();
            Some(self.left_behind(checkout, (&hosts, &now), (tree, stored))?.map(|path| (path, LEFT_BEHIND)))
        };
        match known() {
            None => Some(UNREAD.to_owned()),
            Some(found) => {
                found.map(|(path, why)| format!("{}: {why}", show_path(Path::new(OsStr::from_bytes(&path)))))
            }
        }
    }

    /// A path that somebody had staged and that is so no more: neither is it in the commit, nor in the file.
    fn unstaged(&self, (hosts, now): (&HostsIndex, &Contents), tree: &Tree) -> Option<Vec<u8>> {
        let is_lost = |path: &[u8], staged: &Staged| {
            let Some(is) = &staged.index else { return false };
            let (mode, id) = is;
            now.get(path) != Some(is)
                && now.get(path) == staged.commit.as_ref()
                && *mode != SUBMODULE
                && !self.is_seen(
                    Some(tree),
                    Path::new(OsStr::from_bytes(path)),
                    (Some(hosts.hash), Some(&(protect::mode_beside(*mode, Some(*mode)), id.clone()))),
                )
        };
        hosts.staged.iter().find(|(path, staged)| is_lost(path, staged)).map(|(path, _)| path.clone())
    }

    /// A path that a commit changes which is neither of the run nor one that the branch had, while its file stays as it was; the outer
    /// `None` where something does not read. What the index lists no more `git commit -a` does not take back: so stays a control file
    /// that the commit removes.
    fn left_behind(
        &self,
        checkout: &Checkout<'_>,
        (hosts, now): (&HostsIndex, &Contents),
        (tree, stored): (&Tree, &StoredObjects<'_>),
    ) -> Option<Option<Vec<u8>>> {
        let mut theirs = self.nearest_of_others(checkout, stored)?;
        let Some(was) = &checkout.was else { return Some(None) };
        theirs.retain(|commit| commit != was);
        if theirs.is_empty() {
            return Some(None);
        }
        let mut history = History::default();
        history.walk(stored, [was.clone()]);
        theirs.retain(|commit| !history.has(commit));
        let trees = theirs.iter().map(|commit| stored.tree_of(commit)).collect::<Option<Vec<_>>>()?;
        let old = stored.tree_of(was)?;
        for (path, after) in now.iter().filter(|_| !trees.is_empty()) {
            let (before, after) = (hosts.contents.get(path), Some(after));
            let is_submodule = [before, after].into_iter().flatten().any(|(mode, _)| *mode == SUBMODULE);
            let is_so = |is| self.stays((tree, Path::new(OsStr::from_bytes(path))), (is, hosts.hash));
            if before == after || is_submodule || !is_so(before) || is_so(after) {
                continue;
            }
            let before = stored.found_at(&old, path)?;
            for tree in &trees {
                if stored.found_at(tree, path)? != before {
                    return Some(Some(path.clone()));
                }
            }
        }
        Some(None)
    }

    /// The commits of others nearest to the one that `HEAD` comes to: itself, or what those that the run made are made from. All of them
    /// are there.
    fn nearest_of_others(&self, checkout: &Checkout<'_>, stored: &StoredObjects<'_>) -> Option<BTreeSet<Vec<u8>>> {
        let (made, hosts) = (self.made.get(checkout.folder), self.hosts_objects(checkout.folder)?);
        // What the host has the run only wrote once more, as `git gc` does.
        let is_made = |commit: &Vec<u8>| made.is_some_and(|made| made.contains(commit)) && !hosts.may_have(commit);
        let (mut seen, mut found) = (BTreeSet::new(), BTreeSet::new());
        let mut ahead: Vec<Vec<u8>> = checkout.is.iter().cloned().collect();
        while let Some(commit) = ahead.pop() {
            let parents = stored.parents_of(&commit)?;
            if is_made(&commit) {
                ahead.extend(parents.into_iter().filter(|parent| seen.insert(parent.clone())));
            } else {
                found.insert(commit);
            }
        }
        Some(found)
    }

    /// Why what says that somebody began a merge and the like does not go: neither has the commit what was merged, nor is the index as if
    /// nothing had been.
    pub(super) fn gives_up(&self, entry: &Entry) -> Option<String> {
        let mut names = BEGUN.iter().chain(&BESIDE_BEGUN);
        if entry.change != Change::Removed || !names.any(|name| entry.path.ends_with(name)) {
            return None;
        }
        in_git(&self.repositories, &entry.path)?;
        let (own, host) = (entry.path.parent()?, self.host?);
        let checkout = self.checkouts.iter().find(|checkout| checkout.own == own);
        let is_ended = |checkout: &Checkout<'_>| {
            if !checkout.is_moved() {
                return Some(checkout.staged.as_ref()?.is_empty());
            }
            if !entry.path.ends_with("MERGE_HEAD") {
                let is_begun = BEGUN.iter().any(|name| entry.path.ends_with(name));
                return if is_begun { self.has_staged(checkout) } else { Some(true) };
            }
            let begun = host.read(&entry.path, MAX_REFERENCE).ok()?;
            let mut history = History::default();
            history.walk(self.objects.get(checkout.folder)?, checkout.is.clone());
            let mut merged = begun.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            Some(merged.all(|line| protect::id_of(line).is_some_and(|id| history.has(&id))))
        };
        (!checkout.and_then(is_ended).unwrap_or(false)).then(|| GIVEN_UP.to_owned())
    }

    /// Whether what was staged for a cherry-pick or a revert is in the commit, resolved in whatever way.
    fn has_staged(&self, checkout: &Checkout<'_>) -> Option<bool> {
        let (staged, hosts) = (checkout.staged.as_ref()?, self.hosts_index(checkout)?);
        let (stored, is) = (self.objects.get(checkout.folder)?, checkout.is.as_ref()?);
        let tree = stored.tree_of(is)?;
        for (path, was) in &hosts.staged {
            if staged.contains_key(path) || was.index.is_some() && stored.found_at(&tree, path)? == was.commit {
                return Some(false);
            }
        }
        Some(true)
    }

    /// Why what git remembers of a stash does not go without it, nor the stash without that.
    pub(super) fn with_stash(&self, entry: &Entry) -> Option<String> {
        let folder = entry.path.ancestors().nth(3).filter(|_| entry.path.ends_with("logs/refs/stash"))?;
        self.alone(self.entry_at(&folder.join("refs").join("stash"))?)
    }

    /// Why an entry is held because of what belongs to it.
    pub(super) fn with_others(&self, entry: &Entry) -> Option<String> {
        self.checkouts.iter().filter(|checkout| checkout.has(&entry.path)).find_map(|checkout| checkout.why.clone())
    }

    /// Why an entry is a conflict though it is as it was itself.
    pub(super) fn is_elsewhere(&self, entry: &Entry) -> Option<&'static str> {
        let mut of_it = self.checkouts.iter().filter(|checkout| checkout.has(&entry.path));
        of_it.any(|checkout| checkout.is_elsewhere).then_some(ELSEWHERE)
    }

    /// Whether an index has at a path what the commit has to which its working tree comes by the run, or on which it stays while what the
    /// host has staged there is in the file; and, of a file that is there in it, whether the file may be there unseen.
    pub(super) fn is_committed(&self, (index, tree): (&Path, Option<&Tree>), path: &Path, is_there: bool) -> bool {
        let of_it = self.checkouts.iter().find(|checkout| index.parent() == Some(checkout.own.as_path()));
        let Some(checkout) = of_it else { return false };
        let is_other = |staged: &BTreeMap<_, _>| staged.contains_key(path.as_os_str().as_bytes());
        if checkout.staged.as_ref().is_none_or(is_other) {
            return false;
        }
        if !checkout.is_moved() && !self.is_in_file(checkout, tree, path) {
            return false;
        }
        let Some(place) = tree.map(|tree| tree.at(path)) else { return false };
        let place = place.as_deref().unwrap_or(path);
        // git reads attributes from the index where the file is not there; and control files are written out by the next checkout.
        let is_read = || {
            path.file_name().is_some_and(|name| name == ".gitattributes")
                || protect::judge(self.list, place, protect::NodeChange::NewFile) != Verdict::Free
                || self.steers(place)
        };
        !(self.hides(place) || is_there && is_read())
    }
}

/// `b""` where there is none.
fn index_of(host: &Dir, path: &Path) -> Option<Vec<u8>> {
    match host.read(path, MAX_JUDGED) {
        Ok(index) => Some(index),
        Err(Errno::NOENT) => Some(Vec::new()),
        Err(_other) => None,
    }
}
