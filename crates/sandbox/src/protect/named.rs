//! What git's configuration on the host names in a workspace: hooks, programs, further files.
//!
//! A run with a layer of its own may write there as it likes. Taken over, it is what git runs: so it is not taken unasked,
//! also where nothing is there yet.
//!
//! Promises: more is held rather than less. Of a command every word may be a path, also behind a variable or a `cd`; of a
//! configuration that is not understood here every word of all of it; what it includes is read too; and a repository around
//! the workspace counts as one in it. What the owner's, the caller's and the machine's own configurations name counts in each.
//! *Does not promise*: what a program that is named reads or starts by itself; configurations that only variables of another
//! shell name (`GIT_CONFIG_GLOBAL`, a `HOME` that neither `/etc/passwd` knows nor is above the workspace).

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

use rustix::fs::FileType;

use super::led::{Ways, in_its_folder, real};
use super::plan::{MAX_LINKS, follow};
use super::{git, gitconfig, gitdir, users};
use crate::state::{Cross, Dir};

/// A configuration of git's that is larger names nothing. No run makes one so large ([`gitconfig::objection`]).
const MAX_CONFIG: u64 = 64 << 20;
/// So many files are read of one repository, with those that are included: no run includes more.
const MAX_FILES: usize = 4096;
/// So many words behind `cd` may be the folder that it enters.
const MAX_BEHIND: usize = 8;
/// Words behind which a folder is entered.
const ENTERS: [&str; 4] = ["cd", "pushd", "-C", "--chdir"];
/// So deep are commands looked for in words of commands.
const MAX_QUOTED: usize = 3;
/// Programs that run what is in a folder, where its name is their argument.
const RUN_FOLDERS: [&str; 5] = ["python", "pypy", "node", "bun", "deno"];
/// In a command: what becomes the name of a program only when it runs.
const MAKES_NAMES: [&str; 9] = ["$(", "`", "/$", "PATH=", "-exec", "xargs", "printf", " -I", "run-parts"];
/// They stand for the top, which is known.
const KNOWN_FOLDERS: [&str; 3] = ["$(git rev-parse --show-toplevel)", "$(pwd)", "`pwd`"];
/// What node looks for beside a name that is not there.
const OF_NODE: [&str; 3] = [".js", ".cjs", ".mjs"];
/// So many folders may be entered by one command: what comes after them may be meant from each.
const MAX_ENTERED: usize = 16;

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

/// A word of a configuration that may be a path.
#[derive(Clone)]
struct ConfigWord {
    path: PathBuf,
    /// The value of what key it is, or a part of it.
    of: KeyKind,
    exact: bool,
    /// It is a word behind the name of a program that git starts.
    argument: bool,
    /// All that is in it may be meant.
    folder: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum KeyKind {
    /// `core.hooksPath`, `init.templateDir`, `lfs.storage`: a folder.
    Hooks,
    /// `include.path` and the like.
    Further,
    /// Those that count on some branches alone.
    FurtherOnBranch,
    /// `core.worktree`, from which hooks and programs are looked for.
    Tree,
    Other,
}

impl KeyKind {
    fn of(section: &str, key: &str) -> Self {
        // Of a configuration that is not understood the name of the section is not known whole.
        let is_on_branch = section == "includeif" || section.starts_with("includeif.onbranch:");
        if ["hookspath", "templatedir", "storage"].iter().any(|end| key.ends_with(end)) {
            Self::Hooks
        } else if key.ends_with("path") {
            if is_on_branch { Self::FurtherOnBranch } else { Self::Further }
        } else if key.ends_with("worktree") {
            Self::Tree
        } else {
            Self::Other
        }
    }
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

/// What they name out of the workspace, with whether it is a folder of hooks.
#[must_use]
pub fn named_elsewhere<'a>(
    root: &Path,
    below: &Dir,
    folders: impl IntoIterator<Item = &'a Path>,
) -> Vec<(PathBuf, bool)> {
    let named =
        named(&Ways::of(root, below), folders).into_iter().filter(|one| one.exact && !one.path.starts_with(root));
    named.map(|one| (real(&one.path).unwrap_or(one.path), one.folder)).collect()
}

/// What the configurations of the repositories in these folders name, relative to the workspace, links on the way included.
#[must_use]
pub fn named_by_git<'a>(root: &Path, below: &Dir, folders: impl IntoIterator<Item = &'a Path>) -> BTreeSet<PathBuf> {
    let (mut found, mut links, host) = (BTreeSet::new(), Vec::new(), Ways::of(root, below));
    for named in named(&host, folders) {
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
    let words = host.words(own.chain(users::files(&host.homes)), &host.owners);
    words.iter().any(|(_, word)| word.of == KeyKind::FurtherOnBranch)
}

/// What the configurations of the repositories that are or have their working trees in these folders, and of those around the
/// workspace, may name.
pub(super) fn named<'a>(workspace: &Ways<'_>, folders: impl IntoIterator<Item = &'a Path>) -> BTreeSet<ConfigPath> {
    let (root, host) = (workspace.root, Host::of(workspace));
    let users = host.of_users();
    // git takes no repository of somebody else's, or is told to (`safe.directory`).
    let around = root.ancestors().skip(1).filter(|top| host.is_owned(&top.join(".git"))).map(Path::to_owned);
    let tops = around.chain(folders.into_iter().map(|folder| root.join(folder)));
    let anywhere = users.iter().flat_map(|(base, word)| host.paths(word, [base.as_path()]));
    tops.flat_map(|top| host.named(&top, &users)).chain(anywhere).chain(host.users_own()).collect()
}

/// The files of the host, as far as they are read for a workspace.
struct Host<'a> {
    workspace: &'a Ways<'a>,
    /// Who owns the workspace, the caller and root: git believes what they wrote.
    owners: Vec<u32>,
    /// What `~` may be.
    homes: BTreeSet<PathBuf>,
}

impl<'a> Host<'a> {
    fn of(workspace: &'a Ways<'a>) -> Self {
        let owner = rustix::fs::fstat(workspace.below).map(|stat| stat.st_uid).ok();
        let owners = owner.into_iter().chain(users::trusted()).collect();
        Self { workspace, owners, homes: users::homes(workspace.root, owner) }
    }

    /// What the configurations of a working tree name, and those of its `users` in it.
    fn named(&self, top: &Path, users: &[(PathBuf, ConfigWord)]) -> Vec<ConfigPath> {
        let folders = self.folders(top);
        let files = folders.iter().flat_map(|folder| ["config", "config.worktree"].map(|name| folder.join(name)));
        let words = self.words(files, &self.owners);
        let trees = words.iter().filter(|(_, word)| word.of == KeyKind::Tree);
        let trees: Vec<PathBuf> = trees.filter_map(|(base, word)| base.join(&word.path).canonicalize().ok()).collect();
        // Hooks and programs are looked for from the top of the working tree, further files from where they are named.
        let from = || [top].into_iter().chain(trees.iter().map(PathBuf::as_path));
        let mut found: Vec<ConfigPath> =
            words.iter().flat_map(|(base, word)| self.paths(word, from().chain([base.as_path()]))).collect();
        if !folders.is_empty() {
            found.extend(users.iter().flat_map(|(_, word)| self.paths(word, from())));
        }
        // Objects that are believed as the repository's own are.
        for objects in folders.iter().map(|folder| folder.join("objects")) {
            let Some((_, list)) = self.read(&objects.join("info/alternates"), &self.owners) else { continue };
            let others = list.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            let others = others.flat_map(|other| self.spelled_and_led(&objects, Path::new(OsStr::from_bytes(other))));
            found.extend(others.map(|path| ConfigPath { path, folder: true, exact: true }));
        }
        let elsewhere = folders.iter().filter(|folder| !folder.starts_with(self.workspace.root));
        let led = elsewhere.flat_map(|folder| links(folder));
        found.extend(led.map(|path| ConfigPath { path, folder: true, exact: true }));
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
        let words = self.words(users::files(&self.homes), &self.owners);
        words.into_iter().filter(|(_, word)| word.exact || word.argument).collect()
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
    fn folders(&self, top: &Path) -> Vec<PathBuf> {
        let git = top.join(".git");
        let folder = match self.read(&git, &self.owners) {
            Some((_, pointer)) => {
                pointer.trim_ascii_end().strip_prefix(b"gitdir: ").map(|to| top.join(OsStr::from_bytes(to)))
            }
            None => Some(git),
        };
        let bare = gitdir::makes_repository(|name| top.join(name).symlink_metadata().is_ok());
        let folders = folder.into_iter().chain(bare.then(|| top.to_owned()));
        let folders = folders.filter_map(|folder| folder.canonicalize().ok()).filter(|folder| folder.is_dir());
        let with_common = folders.flat_map(|folder| {
            let common = self.read(&folder.join("commondir"), &self.owners);
            let common = common.map(|(_, text)| folder.join(OsStr::from_bytes(text.trim_ascii_end())));
            [Some(folder), common.and_then(|common| common.canonicalize().ok())].into_iter().flatten()
        });
        with_common.collect()
    }

    /// The words of these configurations, each with the folder from which git goes on: where the file is named, and where it lies.
    fn words(&self, files: impl Iterator<Item = PathBuf>, owners: &[u32]) -> Vec<(PathBuf, ConfigWord)> {
        let (mut queue, mut seen): (Vec<PathBuf>, BTreeSet<PathBuf>) = (files.collect(), BTreeSet::new());
        let mut found = Vec::new();
        while let Some(path) = queue.pop().filter(|_| seen.len() < MAX_FILES) {
            let Some((above, text)) = self.read(&path, owners).filter(|_| seen.insert(path.clone())) else { continue };
            let named = path.parent().map(Path::to_owned);
            let words = words(&text);
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

    /// A small file and its folder: of the workspace, or of one of the owners.
    fn read(&self, path: &Path, owners: &[u32]) -> Option<(PathBuf, Vec<u8>)> {
        let path = path.canonicalize().ok()?;
        let (above, name) = (path.parent()?, path.file_name()?);
        let dir = Dir::open(above).ok()?;
        let stat = dir.stat(name).ok()??;
        let is_theirs = path.starts_with(self.workspace.root) || owners.contains(&stat.st_uid);
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let text = if is_theirs && is_file { dir.read(name, MAX_CONFIG).ok() } else { None };
        text.map(|text| (above.to_owned(), text))
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

/// The words of a configuration that may be paths: values whole, and words of commands.
fn words(config: &[u8]) -> Vec<ConfigWord> {
    let Some(keys) = gitconfig::keys(config) else { return all_words(config) };
    let named = keys.iter().flat_map(|((section, key), values)| {
        let values = values.iter().filter(move |value| !names_nothing(section, key, value));
        values.flat_map(move |value| words_of(section, key, value, |word| PathBuf::from(word)))
    });
    // An address that begins with a helper stands in a section's name (`url "ext::sh x".insteadOf`).
    let sections =
        keys.keys().filter_map(|(section, _)| section.split_once('.')).filter(|(_, name)| name.contains("::"));
    let of_sections =
        sections.flat_map(|(section, name)| words_of(section, "helper", name, |word| PathBuf::from(word)));
    named.chain(of_sections).collect()
}

/// Of a configuration that is not understood here. It is read byte by byte: it need not be text.
fn all_words(config: &[u8]) -> Vec<ConfigWord> {
    let text: String = config.iter().copied().map(char::from).collect();
    let text = text.replace("\\\r\n", "").replace("\\\n", "");
    let bytes = |word: &str| word.chars().filter_map(|c| u8::try_from(u32::from(c)).ok()).collect::<Vec<u8>>();
    let (mut section, mut found) = (String::new(), Vec::new());
    for line in text.lines() {
        if let Some(heading) = line.trim_ascii_start().strip_prefix('[') {
            section = heading.chars().take_while(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
        }
        let (key, value) = line.split_once('=').unwrap_or((line, line));
        let key = key.trim_ascii().to_ascii_lowercase();
        found.extend(words_of(&section, &key, value, |word| OsString::from_vec(bytes(word)).into()));
    }
    found
}

/// An alias has words of all kinds, and does not run by itself.
fn words_of(section: &str, key: &str, value: &str, path: impl Fn(&str) -> PathBuf) -> Vec<ConfigWord> {
    let of = KeyKind::of(section, key);
    let whole = unquoted(value);
    let mut all: BTreeSet<String> = [whole.clone()].into();
    // Quotes belong to the configuration or to a shell: with and without what they hold together.
    for text in BTreeSet::from([value, &whole]) {
        let spaced = text.replace(['"', '\''], " ");
        all.extend(spaced.split_ascii_whitespace().map(|word| word.trim_start_matches('!').to_owned()));
        all.extend(of_command(&text.replace(['"', '\'', '\\'], "")));
    }
    of_shell(&whole, MAX_QUOTED, &mut all);
    let words = all.into_iter().filter(|word| word.bytes().any(|b| b.is_ascii_alphanumeric()) && !is_a_value(word));
    let exact = |word: &str| match of {
        KeyKind::Hooks | KeyKind::Further | KeyKind::FurtherOnBranch => true,
        KeyKind::Tree => false,
        KeyKind::Other => section != "alias" && word.contains('/'),
    };
    // A program without a folder is found by PATH.
    let program = whole.trim_start_matches('!').split_ascii_whitespace().next().unwrap_or_default();
    let is_command = section != "alias" && is_program(section, key);
    let argument = |word: &str| is_command && word != program;
    let runs_folders = is_command && RUN_FOLDERS.iter().any(|name| whole.contains(name));
    // Where a command makes the names of what it runs, all that is in a folder that it names may be meant.
    let of_known_folders = KNOWN_FOLDERS.iter().fold(whole.clone(), |text, known| text.replace(known, ""));
    let makes_names = is_command && MAKES_NAMES.iter().any(|name| of_known_folders.contains(name));
    let behind_options = |word: &String| {
        let rest = word.strip_prefix('-').map(|rest| rest.trim_start_matches('-').to_owned()).filter(|_| is_command);
        let without_letter = rest.as_ref().and_then(|rest| Some(rest.get(1..)?.to_owned()));
        rest.into_iter().chain(without_letter).filter(|rest| rest.contains('/') || makes_names).collect::<Vec<_>>()
    };
    let words: BTreeSet<String> = words.flat_map(|word| behind_options(&word).into_iter().chain([word])).collect();
    let mut found = Vec::new();
    for word in words {
        let (exact, argument) = (exact(&word), argument(&word));
        let mut add = |word: &str, folder: bool| {
            found.push(ConfigWord { path: path(word), of, exact, argument, folder });
        };
        let is_path = word.contains('/');
        // What a program does with a folder that it is given nobody knows here.
        let is_given = is_command && is_path && !word.trim_matches(['.', '/']).is_empty();
        add(&word, of == KeyKind::Hooks || is_given || makes_names);
        // What a pattern or a variable becomes is in the folder before it.
        let open =
            word.split_once(|c| "*?[{$`(".contains(c) || c == '%' && whole.contains("printf")).filter(|_| is_command);
        if let Some((folder, _)) = open.and_then(|(before, _)| before.rsplit_once('/')) {
            add(folder, true);
        }
        if runs_folders && is_path {
            OF_NODE.iter().for_each(|end| add(&format!("{word}{end}"), false));
        }
    }
    let modules = modules(&whole).filter(|_| runs_folders);
    let modules = modules.flat_map(|name| {
        let above = name.rsplit_once('/').map_or(String::new(), |(above, _)| format!("{above}/"));
        let ends = [".py", ".pyc", ".so", ".abi3.so"].map(|end| (format!("{name}{end}"), false));
        ends.into_iter().chain([(format!("{above}__pycache__"), true), (name, true)])
    });
    found.extend(modules.map(|(name, folder)| ConfigWord {
        path: path(&name),
        of,
        exact: true,
        argument: true,
        folder,
    }));
    found
}

/// What Python looks for where it is started, before it looks where programs are installed: `-m a.b` is `a/b.py`, or `a`.
fn modules(command: &str) -> impl Iterator<Item = String> {
    let words: Vec<&str> = command.split(|c: char| c.is_ascii_whitespace() || "'\"\\;|&()".contains(c)).collect();
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    let next = words.iter().skip(1).copied().chain([""]);
    let behind = words.iter().zip(next).filter_map(|(word, next)| {
        let options = word.strip_prefix('-').filter(|options| !options.starts_with('-'))?;
        let (_, name) = options.split_once('m')?;
        Some(if name.is_empty() { next } else { name })
    });
    let names = behind.filter(|name| name.chars().all(|c| c.is_alphanumeric() || "_.".contains(c)));
    let names = names.map(|name| name.replace('.', "/"));
    // A package that is there instead of the first part is taken for it.
    let names: BTreeSet<String> =
        names.flat_map(|name| [name.split('/').next().unwrap_or_default().to_owned(), name]).collect();
    names.into_iter().filter(|name| !name.is_empty())
}

/// The words of a shell's command, as its quotes hold them together; also of commands within a word (`sh -c`), so many deep.
fn of_shell(command: &str, deep: usize, found: &mut BTreeSet<String>) {
    let (mut word, mut quote, mut chars) = (String::new(), None, command.chars());
    let mut words = Vec::new();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some('\''), '\'') | (Some('"'), '"') => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None | Some('"'), '\\') => word.extend(chars.next()),
            (None, c) if c.is_ascii_whitespace() || ";|&()<>=!".contains(c) => words.push(std::mem::take(&mut word)),
            (_, c) => word.push(c),
        }
    }
    words.push(word);
    for word in words.into_iter().filter(|word| !word.is_empty() && word != command) {
        if deep > 0 && word.contains(|c: char| c.is_ascii_whitespace() || "'\"".contains(c)) {
            of_shell(&word, deep.saturating_sub(1), found);
        }
        found.insert(word);
    }
}

/// The words of a command: a variable or a substitution may be the top or the home folder, and what comes after `cd` may be meant
/// from there.
fn of_command(command: &str) -> Vec<String> {
    let of_shell = |c: char| c.is_ascii_whitespace() || "=;|&()<>{},:`#!$".contains(c);
    let (mut words, mut before) = (Vec::new(), None);
    for part in command.split_inclusive(of_shell) {
        let word = part.trim_end_matches(of_shell);
        words.extend([word].into_iter().filter(|word| !word.is_empty()).map(str::to_owned));
        let behind = word.split_once('/').filter(|_| matches!(before, Some('$' | ')' | '}' | '`')));
        words.extend(behind.into_iter().flat_map(|(_, rest)| [rest.to_owned(), format!("~/{rest}")]));
        before = part.chars().next_back();
    }
    let enters = words
        .iter()
        .enumerate()
        .filter(|(_, word)| ENTERS.contains(&word.as_str()))
        .map(|(at, _)| at.saturating_add(1));
    let enters: Vec<usize> = enters.collect();
    // The nearest first, so that each `cd` has its folder.
    let behind = (0..MAX_BEHIND).flat_map(|more| enters.iter().map(move |at| at.saturating_add(more)));
    let mut entered: Vec<&String> = Vec::new();
    for folder in behind.filter_map(|at| words.get(at)) {
        if entered.len() < MAX_ENTERED && !entered.contains(&folder) {
            entered.push(folder);
        }
    }
    let from_there: Vec<String> =
        entered.iter().flat_map(|folder| words.iter().map(move |word| format!("{folder}/{word}"))).collect();
    words.extend(from_there);
    words
}

/// A value as git reads it.
fn unquoted(value: &str) -> String {
    let (mut read, mut quoted, mut chars) = (String::new(), false, value.chars());
    while let Some(c) = chars.next() {
        match c {
            '"' => quoted = !quoted,
            '\\' => read.extend(chars.next().map(|c| match c {
                'n' => '\n',
                't' => '\t',
                'b' => '\u{8}',
                c => c,
            })),
            '#' | ';' if !quoted => break,
            _ => read.push(c),
        }
    }
    read.trim_ascii().to_owned()
}

/// Keys whose values are no paths: names, addresses and branches. An address with a helper is a command.
fn names_nothing(section: &str, key: &str, value: &str) -> bool {
    let plain = match section.split('.').next().unwrap_or_default() {
        "user" | "author" | "committer" | "branch" => true,
        "remote" => ["url", "pushurl", "fetch", "push"].contains(&key),
        "submodule" => ["url", "path", "branch", "active", "ignore"].contains(&key),
        "url" => ["insteadof", "pushinsteadof"].contains(&key),
        _ => false,
    };
    plain && !value.contains("::")
}

/// Keys whose values are commands.
fn is_program(section: &str, key: &str) -> bool {
    const ENDS: [&str; 20] = [
        "askpass",
        "browser",
        "clean",
        "cmd",
        "command",
        "driver",
        "editor",
        "external",
        "filter",
        "fsmonitor",
        "helper",
        "hook",
        "pack",
        "pager",
        "process",
        "program",
        "proxy",
        "smudge",
        "textconv",
        "editcmd",
    ];
    section.split('.').next() == Some("pager") || ENDS.iter().any(|end| key.ends_with(end))
}

/// `bare = false`, `repositoryformatversion = 0`: words that name nothing.
fn is_a_value(word: &str) -> bool {
    ["true", "false", "yes", "no", "on", "off", "auto"].contains(&word) || word.bytes().all(|b| b.is_ascii_digit())
}
