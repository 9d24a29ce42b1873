//! Which branches, tags and `HEAD`s of the host's a run moves: to commits that were looked into or that a branch of the host's has, none on
//! which somebody works elsewhere, and none by which git would not know which of two is meant.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::Path;

use rustix::fs::FileType;

use super::guarded::{Guarding, MAX_JUDGED, in_git};
use super::manifest::{Change, Entry, Kind};
use super::tidied::ListedNames;
use super::worktrees::Tree;
use crate::protect::{self, Branches, History, READ_AS_FILES, StoredObjects};
use crate::state::{Cross, Dir};

/// Why a branch stays where it is.
const OTHER_COMMIT: &str = "it names a commit that is neither new, with a tree of its own, nor one that a branch of the host's or of its servers has, or \
                            whose tree one has: nobody looked at it, or it says of other servers than the host";
/// Why a new tag stays with the run.
const OTHER_TAG: &str = "it names a commit that is neither new, with a tree of its own, nor one that a branch, a tag or a `HEAD` of the host's or a branch \
                         of its servers has (10,000 from their ends are looked at): nobody looked at it, or it says of other servers than the host";
/// Why a new tag stays with the run.
const NO_COMMIT: &str = "it names no commit but a file, a folder or what is not there, and no tag of the host's names that: nobody looked at it, and \
                         `git push --tags` sends it";
/// git follows a tag of a tag so far here.
const MAX_TAGS: usize = 5;
/// Why a branch stays where it is, and `HEAD` on its own.
const CHECKED_OUT: &str = "a worktree out of the workspace is on that branch, or nobody can read whether one is: git itself moves none that is checked out \
     elsewhere";
/// Why a new name stays with the run.
const AMBIGUOUS: &str = "a branch, a tag or a server's branch has that name too: git would take the one for the other";
/// Why a new name stays with the run.
const WHOLE: &str = "it begins as the whole name of another reference does (`refs/`, `heads/`, `tags/`, `remotes/`, or a server's name): git \
                     would take the one for the other";
/// Why a new name stays with the run.
const IN_THE_WAY: &str = "one of it and of another reference would be a folder of the other: git could write neither";
/// Why a new branch or tag stays with the run.
const AS_FILE: &str = "a file is called so: `git checkout` of that name would go to it, and `git log` and `git diff` would not know which \
                       is meant";
/// Why a branch of git-annex stays where it is.
const SYNCED: &str = "git-annex takes it over by itself the next time that it syncs, and sends it on";
/// Why `HEAD` stays on its branch.
const OTHER_REMOTE: &str =
    "the host has that branch, and pulls it from or pushes it to another server than the one that it is on";
/// Why `HEAD` stays on its branch.
const ON_BRANCH: &str =
    "git's configuration on the host has parts that count on some branches alone (`includeIf.onbranch`)";

/// Where branches stand, and tags.
const PREFIXES: [&str; 2] = ["refs/heads/", "refs/tags/"];

/// How names of references begin, beside those of servers.
const WHOLE_NAMES: [&str; 4] = ["refs", "heads", "tags", "remotes"];

/// What the host has of the references of one repository, and what its list becomes.
pub(super) struct References {
    pub(super) host: Branches,
    pub(super) tips: BTreeMap<String, Vec<u8>>,
    /// Branches on which somebody works where the run did not; any, where that cannot be read.
    checked_out: Option<BTreeSet<String>>,
    /// Servers that the host has names for.
    servers: BTreeSet<String>,
    /// `packed-refs` as it becomes.
    pub(super) list: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// Whether that is the run's.
    pub(super) is_of_run: bool,
    /// The run's, where that is not taken now.
    untaken: Option<ListedNames>,
    /// The commits where its branches are.
    ends: BTreeSet<Vec<u8>>,
    /// What its branches have, and those of its servers, once somebody asked.
    history: OnceCell<History>,
    /// What its tags and `HEAD`s are and have, once somebody asked.
    tagged: OnceCell<Tagged>,
    /// What the host's index says of servers, once somebody asked: it may be large, and references many.
    files: OnceCell<BTreeMap<Vec<u8>, Vec<u8>>>,
    /// Which commits are as good as where a branch is, of those for which somebody asked.
    as_good: RefCell<BTreeMap<Vec<u8>, bool>>,
    /// Why no new tag is this, of what somebody asked for.
    untagged: RefCell<BTreeMap<Vec<u8>, Option<&'static str>>>,
}

/// What tags of the host's and `HEAD`s that are on no branch name, in the end, and the commits that these have.
struct Tagged {
    ends: BTreeSet<Vec<u8>>,
    history: History,
}

impl References {
    /// Whether the run's list has a reference, and stays with it.
    pub(super) fn is_in_untaken(&self, name: &str) -> bool {
        self.untaken.as_ref().is_some_and(|list| list.has(name.as_bytes()))
    }

    fn is_moved_elsewhere(&self, name: &str, to: Option<&Vec<u8>>) -> bool {
        let branch = name.strip_prefix("refs/heads/").filter(|branch| self.is_checked_out(branch));
        branch.is_some_and(|branch| self.tips.get(branch) != to)
    }

    fn is_checked_out(&self, branch: &str) -> bool {
        self.checked_out.as_ref().is_none_or(|all| all.contains(branch))
    }

    /// Whether a short name begins as whole ones do.
    fn begins_as_whole(&self, short: &str) -> bool {
        let mut firsts = WHOLE_NAMES.into_iter().chain(self.servers.iter().map(String::as_str));
        firsts.any(|first| short.strip_prefix(first).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
    }
}

impl<'a> Guarding<'a> {
    /// Of each repository of which something changed.
    pub(super) fn references(&self) -> BTreeMap<&'a Path, References> {
        let Some(host) = self.host else { return BTreeMap::new() };
        let folders = self.manifest.entries.iter().filter_map(|entry| Some(in_git(&self.repositories, &entry.path)?.0));
        let of = |folder: &'a Path| {
            let path = folder.join("packed-refs");
            let run = self.changed.get(path.as_path()).and_then(|entry| self.contents(entry));
            let is_of_run = run.is_some();
            let untaken = if is_of_run { None } else { self.untaken(&path) };
            let list = run.map_or_else(|| host.read(&path, MAX_JUDGED).unwrap_or_default(), |(_, now)| now);
            let list = protect::references_of(&list).map(|(name, id)| (name.to_vec(), protect::id_of(id))).collect();
            let known = Branches::of(host, &folder.join("config"));
            let (tips, checked_out) = (known.tips(), self.checked_out(host, folder));
            let config = host.read(folder.join("config"), MAX_JUDGED).unwrap_or_default();
            let fetched = host.enter(folder.join("refs").join("remotes"), Cross::No).and_then(|dir| dir.names());
            let fetched = fetched.unwrap_or_default().into_iter().map(|name| name.to_string_lossy().into_owned());
            let servers = protect::servers_named(&config).into_iter().chain(fetched).collect();
            let ends = tips.values().cloned().collect();
            let (history, tagged, files) = (OnceCell::new(), OnceCell::new(), OnceCell::new());
            let (as_good, untagged) = (RefCell::default(), RefCell::default());
            let host = known;
            (
                folder,
                References {
                    host,
                    tips,
                    checked_out,
                    servers,
                    list,
                    is_of_run,
                    untaken,
                    ends,
                    history,
                    tagged,
                    files,
                    as_good,
                    untagged,
                },
            )
        };
        folders.collect::<BTreeSet<_>>().into_iter().map(of).collect()
    }

    fn untaken(&self, path: &Path) -> Option<ListedNames> {
        let mut entries = self.manifest.entries.iter().chain(&self.manifest.untaken);
        let entry = entries.find(|entry| entry.path == path && entry.change != Change::Removed);
        Some(ListedNames::of(entry?, self.blobs))
    }

    /// Why a reference waits for another file of its repository's, or is not removed.
    pub(super) fn waits(&self, entry: &Entry) -> Option<String> {
        let folder = self.of_git(&entry.path);
        let told = |why: &str| Some(format!("version control: {why}"));
        let name = entry.path.strip_prefix(folder).ok().filter(|_| entry.change == Change::Removed)?.to_string_lossy();
        let is_listed_so = |refs: &References| {
            let listed = refs.list.get(name.as_bytes()).and_then(Option::as_ref);
            !refs.is_moved_elsewhere(&name, listed)
        };
        if self.references.get(folder).is_some_and(|refs| !is_listed_so(refs)) {
            return told(CHECKED_OUT);
        }
        if name.starts_with("refs/") && self.without_list.contains(folder) {
            return told("`packed-refs` is held, and says where it is now");
        }
        // What an older list says of it comes to light.
        let refs = self.references.get(folder).filter(|_| name.starts_with("refs/heads/"))?;
        let listed = refs.list.get(name.as_bytes())?.as_ref()?;
        (!self.is_known(folder, listed)).then(|| format!("version control: {OTHER_COMMIT}"))
    }

    /// Why a branch, a tag or `HEAD` stays where it is: what it would name is neither of the run nor of a branch of the host's, it is
    /// pushed elsewhere, somebody works on it, or its name would stand for two.
    pub(super) fn unmoved(&self, entry: &Entry, kind: protect::Kind, (before, now): (&[u8], &[u8])) -> Option<String> {
        let folder = self.of_git(&entry.path);
        let refs = self.references.get(folder);
        let named: Vec<Vec<u8>> = match kind {
            protect::Kind::Head => {
                let why = self.stays_on_branch(entry, folder, (before, now));
                if why.is_some() || now.starts_with(b"ref: ") {
                    return why.map(str::to_owned);
                }
                protect::id_of(now).into_iter().collect()
            }
            protect::Kind::Reference => {
                let (name, id) = (entry.path.strip_prefix(folder).ok()?.to_string_lossy(), protect::id_of(now));
                let why = refs.and_then(|refs| self.keeps_name(folder, refs, (name.as_ref(), id.as_ref())));
                if why.is_some() {
                    return why.map(str::to_owned);
                }
                // Nobody looked into what a new tag names either, and `git push --tags` sends it.
                if name.starts_with("refs/tags/") {
                    let alone = |id: &[u8]| (!self.is_known(folder, id)).then_some(OTHER_TAG);
                    let why = |id: &Vec<u8>| refs.map_or_else(|| alone(id), |refs| self.untagged(folder, refs, id));
                    return id.as_ref().map_or(Some(NO_COMMIT), why).map(str::to_owned);
                }
                if !name.starts_with("refs/heads/") {
                    return None;
                }
                id.into_iter().collect()
            }
            protect::Kind::PackedRefs => {
                if let Some(why) = refs.and_then(|refs| self.keeps_list(folder, refs, before)) {
                    return Some(why.to_owned());
                }
                if let Some((name, why)) = refs.and_then(|refs| self.unknown_tag(folder, refs, before)) {
                    return Some(format!(
                        "its new {}: {why}. Where a server has that tag, `git fetch --tags` on the host brings it, and the list can be taken",
                        crate::fault::show_short(name)
                    ));
                }
                let known: BTreeSet<_> = protect::branches_of(before).collect();
                protect::branches_of(now)
                    .filter(|one| !known.contains(one))
                    .filter_map(|(_, id)| protect::id_of(id))
                    .collect()
            }
            protect::Kind::Config
            | protect::Kind::Index
            | protect::Kind::Loose(_)
            | protect::Kind::Pack(_)
            | protect::Kind::BesidePack
            | protect::Kind::Large(_) => return None,
        };
        (!named.iter().all(|id| self.is_known(folder, id))).then(|| OTHER_COMMIT.to_owned())
    }

    /// Whether a commit is one that was looked into, where a branch of the host's is, or as good: what that has, or a server's branch as
    /// the host fetched it, or of the same tree, and says the same of servers as the host.
    fn is_known(&self, folder: &Path, id: &[u8]) -> bool {
        if self.commits.get(folder).is_some_and(|commits| commits.contains(id)) {
            return true;
        }
        let Some(refs) = self.references.get(folder) else { return false };
        if refs.ends.contains(id) {
            return true;
        }
        let known = refs.as_good.borrow().get(id).copied();
        known.unwrap_or_else(|| {
            let is_as_good = self.is_as_good(folder, refs, id).unwrap_or(false);
            refs.as_good.borrow_mut().insert(id.to_vec(), is_as_good);
            is_as_good
        })
    }

    fn is_as_good(&self, folder: &Path, refs: &References, id: &[u8]) -> Option<bool> {
        let stored = self.objects.get(folder)?;
        let tree = stored.tree_of(id)?;
        let history = refs.history.get_or_init(|| {
            let mut history = History::default();
            history.walk(stored, refs.tips.values().cloned());
            history.walk(stored, refs.host.fetched().into_values());
            history
        });
        let is_hosts = history.has(id) || history.has_tree(&tree);
        Some(is_hosts && self.says_as_host((folder, refs), (stored, &tree))?)
    }

    /// Whether a tree says of servers what the host's index does, or nothing.
    fn says_as_host(
        &self,
        (folder, refs): (&Path, &References),
        (stored, tree): (&StoredObjects<'_>, &[u8]),
    ) -> Option<bool> {
        let top = stored.tree(tree)?;
        let hosts = refs.files.get_or_init(|| self.servers(folder));
        let mut says = READ_AS_FILES.iter().filter_map(|name| Some((*name, &top.get(*name)?.1)));
        Some(says.all(|(name, is)| hosts.get(name) == Some(is)))
    }

    /// Why no new tag is this, which may be an object of its own.
    fn untagged(&self, folder: &Path, refs: &References, id: &[u8]) -> Option<&'static str> {
        let known = refs.untagged.borrow().get(id).copied();
        known.unwrap_or_else(|| {
            let why = self.not_to_tag(folder, refs, id);
            refs.untagged.borrow_mut().insert(id.to_vec(), why);
            why
        })
    }

    /// Beside what a branch may name a tag may what the host's tags and `HEAD`s name, and the commits that these have.
    fn not_to_tag(&self, folder: &Path, refs: &References, id: &[u8]) -> Option<&'static str> {
        let stored = self.objects.get(folder);
        let Some(id) = peeled(stored, id.to_vec()) else { return Some(NO_COMMIT) };
        if self.is_known(folder, &id) {
            return None;
        }
        let tagged = refs.tagged.get_or_init(|| {
            let named = refs.host.tags().into_values().chain(refs.host.all_detached());
            let ends: BTreeSet<Vec<u8>> = named.filter_map(|id| peeled(stored, id)).collect();
            let mut history = History::default();
            if let Some(stored) = stored {
                history.walk(stored, ends.iter().cloned());
            }
            Tagged { ends, history }
        });
        if tagged.ends.contains(&id) {
            return None;
        }
        let Some((stored, tree)) = stored.and_then(|stored| Some((stored, stored.tree_of(&id)?))) else {
            return Some(NO_COMMIT);
        };
        let says_as_host = || self.says_as_host((folder, refs), (stored, &tree)).unwrap_or(false);
        (!(tagged.history.has(&id) && says_as_host())).then_some(OTHER_TAG)
    }

    /// A tag that a list has and neither the host's list nor a file of the host's, and why it stays with the run.
    fn unknown_tag<'r>(&self, folder: &Path, refs: &'r References, before: &[u8]) -> Option<(&'r [u8], &'static str)> {
        let known: BTreeSet<&[u8]> = protect::references_of(before).map(|(name, _)| name).collect();
        let mut new =
            refs.list.iter().filter(|(name, _)| name.starts_with(b"refs/tags/") && !known.contains(name.as_slice()));
        new.find_map(|(name, id)| {
            if std::str::from_utf8(name).is_ok_and(|name| refs.host.has_reference(name)) {
                return None;
            }
            let why = id.as_ref().map_or(Some(NO_COMMIT), |id| self.untagged(folder, refs, id))?;
            Some((name.as_slice(), why))
        })
    }

    /// Why `HEAD` stays where it is, whatever is there.
    fn stays_on_branch(&self, entry: &Entry, folder: &Path, (before, now): (&[u8], &[u8])) -> Option<&'static str> {
        let (was, is) = (protect::branch_of(before), protect::branch_of(now));
        if was == is {
            return None;
        }
        let is_checked_out = |refs: &References| is.as_ref().is_some_and(|branch| refs.is_checked_out(branch));
        let own = entry.path.parent().unwrap_or(folder);
        let depends =
            || self.host.is_none_or(|host| protect::depends_on_branch(&self.manifest.workspace, host, [folder, own]));
        if self.references.get(folder).is_some_and(is_checked_out) {
            Some(CHECKED_OUT)
        } else if !self.is_pushed_alike(folder, was, is) {
            Some(OTHER_REMOTE)
        } else if depends() {
            Some(ON_BRANCH)
        } else {
            None
        }
    }

    /// Whether the branch that `HEAD` names is pushed to where the one before is, if the host has it.
    fn is_pushed_alike(&self, folder: &Path, was: Option<String>, is: Option<String>) -> bool {
        let Some(now) = is else { return true };
        let is_hosts = self.references.get(folder).is_some_and(|refs| refs.host.has(&now));
        let Some(host) = self.host.filter(|_| is_hosts) else { return true };
        let text = host.read(folder.join("config"), MAX_JUDGED).unwrap_or_default();
        protect::remotes_of(&text, &was.unwrap_or_default())
            .zip(protect::remotes_of(&text, &now))
            .is_some_and(|(one, other)| one == other)
    }

    /// Why a reference of this name does not come to name this.
    fn keeps_name(
        &self,
        folder: &Path,
        refs: &References,
        (name, id): (&str, Option<&Vec<u8>>),
    ) -> Option<&'static str> {
        if refs.is_moved_elsewhere(name, id) {
            return Some(CHECKED_OUT);
        }
        if self.is_synced(folder, refs, name) {
            return Some(SYNCED);
        }
        let short = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or_default();
        if short.is_empty() || refs.host.has_reference(name) {
            return None;
        }
        if refs.begins_as_whole(short) {
            return Some(WHOLE);
        }
        if self.is_in_the_way(folder, refs, name) {
            return Some(IN_THE_WAY);
        }
        let is_called_so = || {
            let is_made = |path: &Path| self.changed.get(path).is_some_and(|entry| entry.kind != Kind::Dir);
            let is_there = |tree: Tree| {
                tree.has_file(Path::new(short)) || tree.at(Path::new(short)).is_some_and(|path| is_made(&path))
            };
            self.tree_of(&folder.join("index")).is_some_and(is_there)
        };
        if is_called_so() {
            return Some(AS_FILE);
        }
        // As git looks for a name.
        let others = [
            format!("refs/{short}"),
            format!("refs/tags/{short}"),
            format!("refs/heads/{short}"),
            format!("refs/remotes/{short}"),
            format!("refs/remotes/{short}/HEAD"),
        ];
        let is_made = |other: &String| self.changed.get(folder.join(other).as_path()).is_some_and(is_file);
        let is_there = |other: &String| {
            refs.host.has_reference(other) || refs.list.contains_key(other.as_bytes()) || is_made(other)
        };
        others.iter().any(|other| other != name && is_there(other)).then_some(AMBIGUOUS)
    }

    /// Whether git-annex on the host merges a branch, and sends it on, without anybody who asks for it.
    fn is_synced(&self, folder: &Path, refs: &References, name: &str) -> bool {
        let Some(branch) = name.strip_prefix("refs/heads/") else { return false };
        // Where somebody works on one, it is a branch like others.
        let is_own = || {
            let head = self.host.and_then(|host| host.read(folder.join("HEAD"), MAX_JUDGED).ok()).unwrap_or_default();
            protect::branch_of(&head).is_some_and(|own| own == branch)
        };
        let is_synced = branch.starts_with("synced/") || branch.starts_with("adjusted/") && !is_own();
        is_synced && refs.host.has("git-annex")
    }

    /// Whether a new name has another reference above or below it, as files and folders are.
    fn is_in_the_way(&self, folder: &Path, refs: &References, name: &str) -> bool {
        let is_list_held = self.without_list.contains(folder);
        // A file of the host's that the run left there; each branch of the host's where its list stays as well.
        let stays = |other: &str| {
            let path = folder.join(other);
            let is_file = |host: &Dir| matches!(host.kind(&path), Ok(Some(kind)) if kind != FileType::Directory);
            let branch = other.strip_prefix("refs/heads/").filter(|_| is_list_held);
            branch.is_some_and(|branch| refs.tips.contains_key(branch))
                || self.host.is_some_and(is_file) && self.removed_at(&path).is_none()
        };
        let is_made = |other: &str| self.changed.get(folder.join(other).as_path()).is_some_and(is_file);
        let mut above = name.match_indices('/').skip(2).filter_map(|(at, _)| name.get(..at));
        if above.any(|above| refs.list.contains_key(above.as_bytes()) || is_made(above) || stays(above)) {
            return true;
        }
        let (below, path) = (format!("{name}/"), folder.join(name));
        let mut listed = refs.list.range(below.as_bytes().to_vec()..);
        let mut made = self.changed.range::<Path, _>((Bound::Excluded(path.as_path()), Bound::Unbounded));
        let tips = name.strip_prefix("refs/heads/").map(|short| refs.tips.range(format!("{short}/")..));
        let mut tips = tips.into_iter().flatten().map(|(branch, _)| format!("refs/heads/{branch}"));
        listed.next().is_some_and(|(other, _)| other.starts_with(below.as_bytes()))
            || made.next().is_some_and(|(other, entry)| other.starts_with(&path) && is_file(entry))
            || tips.by_ref().take_while(|other| other.starts_with(&below)).any(|other| stays(&other))
    }

    /// Why a list does not take the place of the host's.
    fn keeps_list(&self, folder: &Path, refs: &References, before: &[u8]) -> Option<&'static str> {
        let known: BTreeMap<Vec<u8>, Option<Vec<u8>>> =
            protect::references_of(before).map(|(name, id)| (name.to_vec(), protect::id_of(id))).collect();
        let gone = known.keys().filter(|name| !refs.list.contains_key(*name));
        let gone =
            gone.filter_map(|name| std::str::from_utf8(name).ok()).find(|name| refs.is_moved_elsewhere(name, None));
        let mut new = refs.list.iter().filter(|(name, id)| known.get(*name) != Some(*id));
        let why = new.find_map(|(name, id)| {
            self.keeps_name(folder, refs, (std::str::from_utf8(name).unwrap_or_default(), id.as_ref()))
        });
        gone.map(|_| CHECKED_OUT).or(why)
    }

    /// Whether the repository of a configuration has a branch on the host.
    pub(super) fn has_branch(&self, config: &Entry) -> impl Fn(&str) -> bool {
        let branches = self.host.map(|host| Branches::of(host, &config.path));
        move |name| branches.as_ref().is_none_or(|branches| branches.has(name))
    }
}

/// What a tag names in the end; `None` where that is a tag still.
fn peeled(stored: Option<&StoredObjects<'_>>, mut id: Vec<u8>) -> Option<Vec<u8>> {
    for _ in 0..=MAX_TAGS {
        match stored.and_then(|stored| stored.tagged(&id)) {
            Some(named) => id = named,
            None => return Some(id),
        }
    }
    None
}

fn is_file(entry: &&Entry) -> bool {
    entry.kind == Kind::File
}
