//! What git's configuration on the host names in a workspace: hooks, programs, further files.
//!
//! A run with a layer of its own may write there as it likes. Taken over, it is what git runs: so it is not taken unasked,
//! also where nothing is there yet.
//!
//! Promises: more is held rather than less. Of a command every word may be a path, also behind a variable or a `cd`; of a
//! configuration that is not understood here every word of all of it; what it includes is read too; and a repository around
//! the workspace counts as one in it. What the owner's, the caller's and the machine's own configurations name counts in each.
//! Where they have more than is looked at, that is said. What is the caller's or the machine's is read with the caller's rights, all
//! else with those of the workspace's owner: root asks nothing on behalf of a run that its owner may not know.
//! *Does not promise*: what a program that is named reads or starts by itself; configurations that only variables of another
//! shell name (`GIT_CONFIG_GLOBAL`, a `HOME` that neither `/etc/passwd` knows nor is above the workspace).

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::FileType;
use rustix::io::Errno;

use super::led::{Ways, in_its_folder, real};
use super::plan::{MAX_LINKS, follow};
use super::words::{ConfigWord, KeyKind, words};
use super::{git, gitdir, users};
use crate::state::{Cross, Dir, rights_of};

/// So much is read of all configurations together, and so much of one: no run makes one larger (`gitconfig::objection`).
const MAX_BYTES: u64 = 64 << 20;
const MAX_CONFIG: u64 = 1 << 20;
/// So many words of configurations are looked at, those of all repositories together.
const MAX_ALL_WORDS: usize = 50_000;
/// So many paths they may name: words of users count in each repository.
const MAX_PATHS: usize = 200_000;
/// So many working trees may one repository be said to have.
const MAX_TREES: usize = 16;
/// So deep git follows lists of folders of objects.
const MAX_ALTERNATES: usize = 6;

/// A path that may be named.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ConfigPath {
    /// Absolute, as it is spelled.
    path: PathBuf,
    /// It may be a folder; else a folder is named by chance (as a branch, or a word of an alias).
    pub(super) folder: bool,
    /// It is no word by chance: what is made there is what git looks for.
    pub(super) exact: bool,
}

impl ConfigPath {
    /// Whether it is the workspace itself, as a folder that git looks through.
    pub(super) fn is_all(&self, root: &Path) -> bool {
        self.folder && self.exact && self.path == root
    }

    /// Out of the workspace: the file, or what is in the folder.
    pub(super) fn outside(&self, root: &Path) -> Vec<PathBuf> {
        if !self.exact || self.path.starts_with(root) {
            return Vec::new();
        }
        let inner = within(&self.path).filter(|_| self.folder);
        [self.path.clone()].into_iter().chain(inner).collect()
    }

    /// Relative to the workspace, if it lies in it.
    pub(super) fn within(&self, root: &Path) -> Option<&Path> {
        self.path.strip_prefix(root).ok().filter(|path| !path.as_os_str().is_empty())
    }
}

/// What they name out of the workspace, with whether it is a folder of hooks; `None` where they have more than is looked at.
#[must_use]
pub fn named_elsewhere<'a>(
    root: &Path,
    below: &Dir,
    folders: impl IntoIterator<Item = &'a Path>,
) -> Option<Vec<(PathBuf, bool)>> {
    let Named { paths, cut } = named(&Ways::of(root, below), folders);
    let elsewhere = paths.into_iter().filter(|one| one.exact && !one.path.starts_with(root));
    let elsewhere = elsewhere.map(|one| (real(&one.path).unwrap_or(one.path), one.folder)).collect();
    (!cut).then_some(elsewhere)
}

/// What the configurations of the repositories in these folders name, relative to the workspace, links on the way included; the
/// empty path, which is all of it, where they have more than is looked at.
#[must_use]
pub fn named_by_git<'a>(root: &Path, below: &Dir, folders: impl IntoIterator<Item = &'a Path>) -> BTreeSet<PathBuf> {
    let (mut found, mut links, host) = (BTreeSet::new(), Vec::new(), Ways::of(root, below));
    let Named { paths, cut } = named(&host, folders);
    if cut {
        return BTreeSet::from([PathBuf::new()]);
    }
    for named in paths {
        // All of the workspace is a folder of hooks.
        found.extend(named.is_all(root).then(PathBuf::new));
        let Some(path) = named.within(root) else { continue };
        let led = follow(&host, path, |link| links.push(link));
        let of_a_file = |led: &PathBuf| named.folder || below.enter(led, Cross::Yes).is_err();
        let is_whole = |led: &PathBuf| led.as_os_str().is_empty() || gitdir::split(led).is_some();
        found.extend(led.filter(|led| of_a_file(led) && !is_whole(led)));
    }
    found.extend(links);
    found
}

/// Whether it depends on the branch that `HEAD` names what git reads of the configurations in these folders of a workspace, and of
/// those of users.
#[must_use]
pub fn depends_on_branch(root: &Path, below: &Dir, folders: [&Path; 2]) -> bool {
    let workspace = Ways::of(root, below);
    let host = Host::of(&workspace);
    let own = folders.iter().flat_map(|folder| ["config", "config.worktree"].map(|name| root.join(folder).join(name)));
    let mut words = host.words(own, ReadAs::Owner);
    words.extend(host.of_users());
    words.iter().any(|(_, word)| word.of == KeyKind::FurtherOnBranch) || host.cut.get()
}

/// What configurations name.
pub(super) struct Named {
    pub(super) paths: BTreeSet<ConfigPath>,
    /// They have more than is looked at.
    pub(super) cut: bool,
}

/// What the configurations of the repositories that are or have their working trees in these folders, and of those around the
/// workspace, may name.
pub(super) fn named<'a>(workspace: &Ways<'_>, folders: impl IntoIterator<Item = &'a Path>) -> Named {
    let (root, host) = (workspace.root, Host::of(workspace));
    let users = host.of_users();
    let users: Vec<(PathBuf, ConfigWord)> = users.into_iter().filter(|(_, word)| word.exact || word.argument).collect();
    // git takes no repository of somebody else's, or is told to (`safe.directory`).
    let around = root.ancestors().skip(1).filter(|top| host.is_owned(&top.join(".git"))).map(Path::to_owned);
    let tops = around.chain(folders.into_iter().map(|folder| root.join(folder)));
    let anywhere = users.iter().flat_map(|(base, word)| host.paths(word, [base.as_path()]));
    let mut paths: BTreeSet<ConfigPath> = anywhere.chain(host.users_own()).collect();
    let mut looked = 0_usize;
    for top in tops {
        let found = host.named(&top, &users);
        looked = looked.saturating_add(found.len());
        if looked > MAX_PATHS || !host.goes_on() {
            host.cut.set(true);
            break;
        }
        paths.extend(found);
    }
    Named { paths, cut: host.cut.get() }
}

/// Whose rights a file is read with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadAs {
    /// The caller's: what is the caller's own, and the machine's.
    Caller,
    /// Those of the workspace's owner.
    Owner,
}

/// The files of the host, as far as they are read for a workspace.
struct Host<'a> {
    workspace: &'a Ways<'a>,
    /// Who owns the workspace, the caller and root: git believes what they wrote.
    owners: Vec<u32>,
    /// What `~` may be.
    homes: BTreeSet<PathBuf>,
    /// How much may still be read, and how many words.
    left: Cell<(u64, usize)>,
    /// There is more, or somebody wants it to end.
    cut: Cell<bool>,
}

impl<'a> Host<'a> {
    fn of(workspace: &'a Ways<'a>) -> Self {
        let owner = rustix::fs::fstat(workspace.below).map(|stat| stat.st_uid).ok();
        let owners = owner.into_iter().chain(users::trusted()).collect();
        let (left, cut) = (Cell::new((MAX_BYTES, MAX_ALL_WORDS)), Cell::new(false));
        Self { workspace, owners, homes: users::homes(workspace.root, owner), left, cut }
    }

    fn goes_on(&self) -> bool {
        if sys::signals::asked_to_end() {
            self.cut.set(true);
        }
        !self.cut.get()
    }

    /// What the configurations of a working tree name, and those of its `users` in it.
    fn named(&self, top: &Path, users: &[(PathBuf, ConfigWord)]) -> Vec<ConfigPath> {
        // Of a repository around the workspace that is the caller's own, what it includes is the caller's.
        let caller = rustix::process::geteuid().as_raw();
        let is_own = || rustix::fs::lstat(top.join(".git")).is_ok_and(|stat| stat.st_uid == caller);
        let read_as = if !top.starts_with(self.workspace.root) && is_own() { ReadAs::Caller } else { ReadAs::Owner };
        let folders = self.folders(top, read_as);
        let files = folders.iter().flat_map(|folder| ["config", "config.worktree"].map(|name| folder.join(name)));
        let words = self.words(files, read_as);
        let trees = words.iter().filter(|(_, word)| word.of == KeyKind::Tree);
        let trees: BTreeSet<PathBuf> =
            trees.filter_map(|(base, word)| base.join(&word.path).canonicalize().ok()).collect();
        if trees.len() > MAX_TREES {
            self.cut.set(true);
            return Vec::new();
        }
        // Hooks and programs are looked for from the top of the working tree, further files from where they are named.
        let from = || [top].into_iter().chain(trees.iter().map(PathBuf::as_path));
        let mut found: Vec<ConfigPath> =
            words.iter().flat_map(|(base, word)| self.paths(word, from().chain([base.as_path()]))).collect();
        if !folders.is_empty() {
            found.extend(users.iter().flat_map(|(_, word)| self.paths(word, from())));
        }
        // Objects that are believed as the repository's own are.
        for objects in folders.iter().map(|folder| folder.join("objects")) {
            let others = self.alternates(objects, read_as).into_iter();
            found.extend(others.map(|path| ConfigPath { path, folder: true, exact: true }));
        }
        let elsewhere = folders.iter().filter(|folder| !folder.starts_with(self.workspace.root));
        let led = elsewhere.flat_map(|folder| links(folder));
        found.extend(led.map(|path| ConfigPath { path, folder: true, exact: true }));
        found
    }

    /// The folders of objects that git looks through beside one, and those beside them.
    fn alternates(&self, objects: PathBuf, read_as: ReadAs) -> BTreeSet<PathBuf> {
        let (mut found, mut now) = (BTreeSet::new(), vec![objects]);
        for _ in 0..MAX_ALTERNATES {
            let mut next = Vec::new();
            for objects in now.drain(..).filter(|_| self.goes_on()) {
                let Some((_, list)) = self.read(&objects.join("info/alternates"), read_as) else { continue };
                let lines = list.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
                for other in lines.flat_map(as_written_and_quoted) {
                    let led = self.spelled_and_led(&objects, Path::new(OsStr::from_bytes(other)));
                    next.extend(led.filter(|path| found.insert(path.clone())));
                }
                if found.len() > MAX_ALL_WORDS {
                    self.cut.set(true);
                }
            }
            now = next;
        }
        found
    }

    /// What a word means from each of these folders.
    fn paths<'b>(&self, word: &ConfigWord, from: impl IntoIterator<Item = &'b Path>) -> Vec<ConfigPath> {
        let paths =
            from.into_iter().flat_map(|from| self.spelled_and_led(from, &word.path)).chain(self.of_home(&word.path));
        let paths: Vec<PathBuf> = paths.collect();
        // A hook may be a link in a folder out there.
        let elsewhere = paths.iter().filter(|path| word.of == KeyKind::Hooks && !path.starts_with(self.workspace.root));
        let led: Vec<PathBuf> = elsewhere.flat_map(|path| linked(within(path)).chain(links(path))).collect();
        let led = led.into_iter().map(|path| ConfigPath { path, folder: true, exact: true });
        let named = paths.into_iter().map(|path| ConfigPath { path, folder: word.folder, exact: word.exact });
        named.chain(led).collect()
    }

    /// The words of the configurations that count in every repository, each with the folder where it is. Most of them are no paths:
    /// there a name without a folder counts behind a program only.
    fn of_users(&self) -> Vec<(PathBuf, ConfigWord)> {
        let own = users::own_home();
        let is_callers = |file: &PathBuf| {
            let is_own = own.as_ref().is_some_and(|home| file.starts_with(home));
            !file.starts_with(self.workspace.root) && (is_own || users::is_of_the_machine(file))
        };
        let (callers, others): (Vec<PathBuf>, Vec<PathBuf>) = users::files(&self.homes).partition(is_callers);
        let mut words = self.words(callers.into_iter(), ReadAs::Caller);
        words.extend(self.words(others.into_iter(), ReadAs::Owner));
        words
    }

    /// The configurations that count in every repository, where links lead to them in the workspace.
    fn users_own(&self) -> impl Iterator<Item = ConfigPath> {
        let elsewhere = users::files(&self.homes).filter(|path| !path.starts_with(self.workspace.root));
        let led = elsewhere.flat_map(|path| {
            let steps = ways(&path).into_iter().map(|step| self.workspace.here(step));
            steps.chain(self.workspace.leads(&path)).collect::<Vec<_>>()
        });
        led.map(|path| ConfigPath { path, folder: false, exact: true })
    }

    /// A path as it is spelled; and where it leads, behind `..` or where links out there lead into the workspace.
    fn spelled_and_led(&self, from: &Path, path: &Path) -> impl Iterator<Item = PathBuf> {
        let climbs = path.components().any(|part| part == Component::ParentDir);
        let spelled = git::resolve(from, path);
        let is_out = spelled.as_ref().is_none_or(|spelled| !spelled.starts_with(self.workspace.root));
        let led = if climbs || is_out { self.workspace.leads(&from.join(path)) } else { None };
        spelled.into_iter().chain(led.filter(|led| climbs || led.starts_with(self.workspace.root)))
    }

    /// The folders of git's of a working tree, as git finds them: also those that are not shown inside, and the folder itself.
    fn folders(&self, top: &Path, read_as: ReadAs) -> Vec<PathBuf> {
        let git = top.join(".git");
        let folder = match self.read(&git, read_as) {
            Some((_, pointer)) => {
                pointer.trim_ascii_end().strip_prefix(b"gitdir: ").map(|to| top.join(OsStr::from_bytes(to)))
            }
            None => Some(git),
        };
        let bare = gitdir::makes_repository(|name| top.join(name).symlink_metadata().is_ok());
        let folders = folder.into_iter().chain(bare.then(|| top.to_owned()));
        let folders = folders.filter_map(|folder| folder.canonicalize().ok()).filter(|folder| folder.is_dir());
        let with_common = folders.flat_map(|folder| {
            let common = self.read(&folder.join("commondir"), read_as);
            let common = common.map(|(_, text)| folder.join(OsStr::from_bytes(text.trim_ascii_end())));
            [Some(folder), common.and_then(|common| common.canonicalize().ok())].into_iter().flatten()
        });
        with_common.collect()
    }

    /// The words of these configurations, each with the folder from which git goes on: where the file is named, and where it lies.
    fn words(&self, files: impl Iterator<Item = PathBuf>, read_as: ReadAs) -> Vec<(PathBuf, ConfigWord)> {
        let (mut queue, mut seen): (Vec<PathBuf>, BTreeSet<PathBuf>) = (files.collect(), BTreeSet::new());
        let mut found = Vec::new();
        while let Some(path) = queue.pop().filter(|_| self.goes_on()) {
            let Some((above, text)) = self.read(&path, read_as).filter(|_| seen.insert(path.clone())) else { continue };
            let named = path.parent().map(Path::to_owned);
            let (bytes, many) = self.left.get();
            let bytes = bytes.checked_sub(u64::try_from(text.len()).unwrap_or(u64::MAX));
            let words = words(&text);
            let many = words.as_ref().and_then(|words| many.checked_sub(words.len()));
            let Some((words, left)) = words.zip(bytes.zip(many)) else {
                self.cut.set(true);
                return Vec::new();
            };
            self.left.set(left);
            for base in [above].into_iter().chain(named).collect::<BTreeSet<_>>() {
                let further = [KeyKind::Further, KeyKind::FurtherOnBranch];
                for word in words.iter().filter(|word| further.contains(&word.of)) {
                    queue.push(base.join(&word.path));
                    queue.extend(self.of_home(&word.path));
                }
                found.extend(words.iter().map(|word| (base.clone(), word.clone())));
            }
        }
        found
    }

    /// `~/a/b`: the home folder of somebody who works here, or any that the workspace is or lies in.
    fn of_home(&self, word: &Path) -> impl Iterator<Item = PathBuf> {
        let mut parts = word.components();
        let home = parts.next().is_some_and(|first| first.as_os_str().as_bytes().starts_with(b"~"));
        let homes = self.homes.iter().filter(move |_| home);
        homes.flat_map(move |home| self.spelled_and_led(home, parts.as_path()))
    }

    /// A small file and its folder: of the workspace, or of one of the owners. What is in the workspace is reached from there, whoever
    /// closed a folder above it.
    fn read(&self, path: &Path, read_as: ReadAs) -> Option<(PathBuf, Vec<u8>)> {
        let path = path.canonicalize().ok()?;
        let (above, name) = (path.parent()?.to_owned(), path.file_name()?);
        let rights = match read_as {
            ReadAs::Caller => None,
            ReadAs::Owner => rights_of(self.workspace.below).ok()?,
        };
        let inner = above.strip_prefix(self.workspace.root).ok();
        let dir = match inner {
            Some(inner) => self.workspace.below.reach(inner, Cross::Yes),
            None => Dir::open(Path::new("/"))
                .and_then(|top| top.reach(above.strip_prefix("/").unwrap_or(&above), Cross::Yes)),
        };
        let read = dir.and_then(|dir| {
            let Some(stat) = dir.stat(name)? else { return Ok(None) };
            let is_theirs = inner.is_some() || self.owners.contains(&stat.st_uid);
            let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
            if is_theirs && is_file { dir.read(name, MAX_CONFIG).map(Some) } else { Ok(None) }
        });
        // What one says that is closed to its owner is not known, and whoever may read it obeys it.
        let is_closed = |errno| [Errno::ACCESS, Errno::BUSY].contains(&errno) && inner.is_some() && rights.is_some();
        if read.as_ref().is_err_and(|errno| *errno == Errno::FBIG || is_closed(*errno)) {
            self.cut.set(true);
        }
        read.ok()?.map(|text| (above, text))
    }

    fn is_owned(&self, path: &Path) -> bool {
        rustix::fs::lstat(path).is_ok_and(|stat| self.owners.contains(&stat.st_uid))
    }
}

/// Where links lead that steer git from its folder: hooks, mostly.
fn links(folder: &Path) -> Vec<PathBuf> {
    let steering = ["hooks", "info", "config", "config.worktree"].map(|name| folder.join(name));
    let inner: Vec<PathBuf> = steering.iter().flat_map(|path| within(path)).collect();
    linked(steering.into_iter().chain(inner)).collect()
}

/// What is in a folder.
fn within(folder: &Path) -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// Where those of these lead that are links.
fn linked(paths: impl IntoIterator<Item = PathBuf>) -> impl Iterator<Item = PathBuf> {
    paths.into_iter().filter(|path| path.is_symlink()).flat_map(|path| ways(&path))
}

/// Where a link leads, step by step, and in the end: each step may be in the workspace, and another link.
fn ways(link: &Path) -> Vec<PathBuf> {
    let (mut at, mut found) = (link.to_owned(), Vec::new());
    let next = |at: &Path| git::resolve(&at.parent()?.canonicalize().ok()?, &std::fs::read_link(at).ok()?);
    for _ in 0..MAX_LINKS {
        let Some(next) = next(&at) else { break };
        at = in_its_folder(&next).unwrap_or_else(|| next.clone());
        found.extend([next, at.clone()]);
    }
    found.extend(real(link));
    found
}

/// git writes a path with odd letters in quotes.
pub fn as_written_and_quoted(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let quoted = line.strip_prefix(b"\"").and_then(|line| line.strip_suffix(b"\""));
    [line].into_iter().chain(quoted)
}
