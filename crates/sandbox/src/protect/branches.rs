//! The branches that a repository on the host has, and which other names.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::FileType;
use rustix::io::Errno;

use super::links::files;
use super::references::{branch_of, id_of, references_of};
use crate::state::{Cross, Dir};

/// A larger list is not read.
pub const MAX_LIST: u64 = 64 << 20;

/// No reference is larger, `HEAD` neither, in bytes.
pub const MAX_REFERENCE: u64 = 4096;

/// git follows so many names to others.
const MAX_NAMES: usize = 5;

/// The branches of the repository whose configuration this is.
#[derive(Debug)]
pub struct Branches {
    /// git's own.
    folder: Option<Dir>,
    /// `refs/heads`.
    heads: Option<Dir>,
    /// `packed-refs`.
    list: Vec<u8>,
    /// What it says of each name, once somebody asked.
    listed: OnceCell<BTreeMap<Vec<u8>, Option<Vec<u8>>>>,
    /// It cannot be said which there are.
    unknown: bool,
}

impl Branches {
    /// `config`: its path below `host`.
    #[must_use]
    pub fn of(host: &Dir, config: &Path) -> Self {
        let unknown = Self { folder: None, heads: None, list: Vec::new(), listed: OnceCell::new(), unknown: true };
        let Ok(folder) = host.enter(config.parent().unwrap_or(Path::new("")), Cross::No) else { return unknown };
        let heads = match folder.enter(Path::new("refs").join("heads"), Cross::No) {
            Ok(heads) => Some(heads),
            Err(Errno::NOENT) => None,
            // Such as the file that stands there where references are kept otherwise (`reftable`).
            Err(_) => return unknown,
        };
        let list = match folder.read("packed-refs", MAX_LIST) {
            Ok(list) => list,
            Err(Errno::NOENT) => Vec::new(),
            Err(_) => return unknown,
        };
        Self { folder: Some(folder), heads, list, listed: OnceCell::new(), unknown: false }
    }

    /// What each names, by its name.
    #[must_use]
    pub fn tips(&self) -> BTreeMap<String, Vec<u8>> {
        self.named(b"refs/heads/", self.heads.as_ref())
    }

    /// What the branches of servers are, as the host fetched them last.
    #[must_use]
    pub fn fetched(&self) -> BTreeMap<String, Vec<u8>> {
        let folder =
            self.folder.as_ref().and_then(|folder| folder.enter(Path::new("refs").join("remotes"), Cross::No).ok());
        self.named(b"refs/remotes/", folder.as_ref())
    }

    /// What each tag is: what it names, or an object of its own that says so.
    #[must_use]
    pub fn tags(&self) -> BTreeMap<String, Vec<u8>> {
        let folder =
            self.folder.as_ref().and_then(|folder| folder.enter(Path::new("refs").join("tags"), Cross::No).ok());
        self.named(b"refs/tags/", folder.as_ref())
    }

    fn named(&self, prefix: &[u8], folder: Option<&Dir>) -> BTreeMap<String, Vec<u8>> {
        let packed = references_of(&self.list).filter_map(|(name, text)| {
            let name = name.strip_prefix(prefix)?;
            Some((String::from_utf8_lossy(name).into_owned(), id_of(text)?))
        });
        let loose = folder.into_iter().flat_map(|folder| {
            let paths = files(folder, Path::new(""), &[], FileType::RegularFile);
            let named = |path: PathBuf| {
                Some((path.to_string_lossy().into_owned(), id_of(&folder.read(path, MAX_REFERENCE).ok()?)?))
            };
            paths.into_iter().filter_map(named)
        });
        packed.chain(loose).collect()
    }

    /// The commit of what a `HEAD` says, and whether the list alone says it. No other reference is read for it: there may be many, and
    /// as many working trees.
    #[must_use]
    pub fn commit_of(&self, head: &[u8]) -> (Option<Vec<u8>>, bool) {
        if branch_of(head).is_none() {
            return (id_of(head), false);
        }
        let led = self.folder.as_ref().and_then(|folder| led_by(head, |name| read_branch(folder, Path::new(""), name)));
        let Some((name, text)) = led.and_then(|mut led| Some((led.names.pop()?, led.text))) else {
            return (None, true);
        };
        if let Some(loose) = id_of(&text) {
            return (Some(loose), false);
        }
        let whole = format!("refs/heads/{name}");
        let listed = references_of(&self.list).filter(|(known, _)| *known == whole.as_bytes()).last();
        (listed.and_then(|(_, id)| id_of(id)), true)
    }

    /// The commit that `HEAD` is on, where it is on no branch.
    #[must_use]
    pub fn detached(&self) -> Option<Vec<u8>> {
        id_of(&self.folder.as_ref()?.read("HEAD", MAX_REFERENCE).ok()?)
    }

    /// The same of each working tree, the linked ones too.
    #[must_use]
    pub fn all_detached(&self) -> Vec<Vec<u8>> {
        let Some(folder) = &self.folder else { return Vec::new() };
        let worktrees = Path::new("worktrees");
        let linked = folder.enter(worktrees, Cross::No).and_then(|linked| linked.names()).unwrap_or_default();
        let head = |name| id_of(&folder.read(worktrees.join(name).join("HEAD"), MAX_REFERENCE).ok()?);
        self.detached().into_iter().chain(linked.into_iter().filter_map(head)).collect()
    }

    /// Where the branches are that servers have as their own `HEAD`, as the host fetched them last.
    #[must_use]
    pub fn defaults(&self) -> Vec<Vec<u8>> {
        let Some(folder) = &self.folder else { return Vec::new() };
        let remotes = Path::new("refs").join("remotes");
        let servers = folder.enter(&remotes, Cross::No).and_then(|remotes| remotes.names()).unwrap_or_default();
        let head = |server| {
            let head = folder.read(remotes.join(server).join("HEAD"), MAX_REFERENCE).ok()?;
            let name = head.trim_ascii_end().strip_prefix(b"ref: ")?.to_vec();
            let path = Path::new(OsStr::from_bytes(&name));
            if !path.starts_with(&remotes) || path.iter().any(|part| part == "..") {
                return None;
            }
            let loose = folder.read(path, MAX_REFERENCE).ok();
            let packed = || references_of(&self.list).find(|(known, _)| *known == name).and_then(|(_, id)| id_of(id));
            loose.map_or_else(packed, |id| id_of(&id))
        };
        servers.into_iter().filter_map(head).collect()
    }

    /// Whether there is a reference of this whole name (`refs/tags/NAME`), or may be.
    #[must_use]
    pub fn has_reference(&self, name: &str) -> bool {
        let is_file = |folder: &Dir| matches!(folder.kind(name), Ok(Some(kind)) if kind != FileType::Directory);
        self.unknown || self.folder.as_ref().is_some_and(is_file) || self.is_listed(name)
    }

    fn is_listed(&self, name: &str) -> bool {
        self.all_listed().contains_key(name.as_bytes())
    }

    fn all_listed(&self) -> &BTreeMap<Vec<u8>, Option<Vec<u8>>> {
        let all = || references_of(&self.list).map(|(name, id)| (name.to_vec(), id_of(id))).collect();
        self.listed.get_or_init(all)
    }

    /// What the list says of a reference, by its whole name.
    #[must_use]
    pub fn listed(&self, name: &str) -> Option<&Vec<u8>> {
        self.all_listed().get(name.as_bytes())?.as_ref()
    }

    /// What a reference is by now, by its whole name.
    #[must_use]
    pub fn now(&self, name: &str) -> Option<Vec<u8>> {
        self.loose(name).or_else(|| self.listed(name).cloned())
    }

    /// What the files of references say, by their whole names: so many at most, and none of servers'.
    #[must_use]
    pub fn in_files(&self, most: usize) -> BTreeMap<String, Vec<u8>> {
        let Some(folder) = &self.folder else { return BTreeMap::new() };
        let paths = files(folder, Path::new("refs"), &["remotes"], FileType::RegularFile).into_iter().take(most);
        let named = paths.filter_map(|path| {
            let id = id_of(&folder.read(&path, MAX_REFERENCE).ok()?)?;
            Some((path.into_os_string().into_string().ok()?, id))
        });
        named.collect()
    }

    /// What the file of a reference says, by its whole name.
    #[must_use]
    pub fn loose(&self, name: &str) -> Option<Vec<u8>> {
        id_of(&self.folder.as_ref()?.read(name, MAX_REFERENCE).ok()?)
    }

    /// Whether there is one of this name, or may be.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        let is_loose = |heads: &Dir| !matches!(heads.stat(name), Ok(None));
        let line = [b" refs/heads/", name.as_bytes()].concat();
        self.unknown
            || self.heads.as_ref().is_some_and(is_loose)
            || self.list.split(|byte| *byte == b'\n').any(|known| known.trim_ascii_end().ends_with(&line))
    }
}

/// Where a `HEAD` leads.
#[derive(Debug)]
pub struct LedTo {
    /// The branches: one may be another name of the next one, as where `master` was renamed, and the last is where the commit is.
    pub names: Vec<String>,
    /// What the file of the last one says (`b""` where it has none), or `HEAD` itself where it is on no branch.
    pub text: Vec<u8>,
}

/// Follows a `HEAD`, by what `read` says of the file of a branch; `None` where nobody can say.
#[must_use]
pub fn led_by(head: &[u8], read: impl Fn(&str) -> Option<Vec<u8>>) -> Option<LedTo> {
    let (mut names, mut text) = (Vec::new(), head.to_vec());
    while let Some(name) = branch_of(&text) {
        let is_plain = Path::new(&name).components().all(|part| matches!(part, Component::Normal(_)));
        if names.len() > MAX_NAMES || !is_plain {
            return None;
        }
        text = read(&name)?;
        names.push(name);
    }
    // It names what is no branch.
    (!text.starts_with(b"ref:")).then_some(LedTo { names, text })
}

/// What the file of a branch says in the folder of git's at a path, `b""` where there is none; `None` where it cannot be read.
#[must_use]
pub fn read_branch(host: &Dir, folder: &Path, name: &str) -> Option<Vec<u8>> {
    match host.read(folder.join("refs").join("heads").join(name), MAX_REFERENCE) {
        Ok(text) => Some(text),
        // A folder is none.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::INVAL) => Some(Vec::new()),
        Err(_other) => None,
    }
}

/// The branches that a `HEAD` leads to, by the files of the folder of git's at a path; `None` where nobody can say.
#[must_use]
pub fn branches_of_head(host: &Dir, folder: &Path, head: &[u8]) -> Option<Vec<String>> {
    led_by(head, |name| read_branch(host, folder, name)).map(|led| led.names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(host: &Dir) -> Branches {
        Branches::of(host, Path::new(".git/config"))
    }

    #[test]
    fn a_branch_is_found_wherever_git_keeps_it() {
        let top = tempfile::tempdir().unwrap();
        let git = top.path().join(".git");
        std::fs::create_dir_all(git.join("refs/heads/a")).unwrap();
        std::fs::write(git.join("refs/heads/a/b"), "0\n").unwrap();
        std::fs::write(git.join("packed-refs"), "# pack-refs with: peeled\n00 refs/heads/packed\n00 refs/tags/tag\n")
            .unwrap();
        let host = Dir::open(top.path()).unwrap();
        let has = |name: &str| of(&host).has(name);
        assert!(has("a/b") && has("packed") && has("a"));
        assert!(!has("b") && !has("tag") && !has("pack") && !has("a/c"));
        assert!(has("a/b/c"), "no branch can be made there");
        std::fs::write(git.join("HEAD"), format!("{}\n", "01".repeat(20))).unwrap();
        std::fs::write(git.join("packed-refs"), format!("{} refs/tags/tag\n", "01".repeat(20))).unwrap();
        let known = of(&host);
        assert!(known.has_reference("refs/heads/a/b") && known.has_reference("refs/tags/tag"));
        assert!(!known.has_reference("refs/heads/a") && !known.has_reference("refs/heads/packed"));
        assert_eq!(known.detached(), Some(vec![1; 20]));
        assert_eq!(known.tags(), [("tag".to_owned(), vec![1; 20])].into());
        for (name, head) in [("w", format!("{}\n", "06".repeat(20))), ("x", "ref: refs/heads/a/b\n".to_owned())] {
            std::fs::create_dir_all(git.join("worktrees").join(name)).unwrap();
            std::fs::write(git.join("worktrees").join(name).join("HEAD"), head).unwrap();
        }
        assert_eq!(of(&host).all_detached(), [vec![1; 20], vec![6; 20]]);
        std::fs::write(git.join("refs/heads/loose"), format!("{}\n", "02".repeat(20))).unwrap();
        std::fs::write(
            git.join("packed-refs"),
            ["loose", "listed"].map(|name| format!("{} refs/heads/{name}\n", "03".repeat(20))).concat(),
        )
        .unwrap();
        for (name, other) in [("renamed", "loose"), ("circle", "circle")] {
            std::fs::write(git.join("refs/heads").join(name), format!("ref: refs/heads/{other}\n")).unwrap();
        }
        let known = of(&host);
        let id = "04".repeat(20);
        for (head, commit) in [
            ("ref: refs/heads/loose\n", (Some(vec![2; 20]), false)),
            ("ref: refs/heads/listed\n", (Some(vec![3; 20]), true)),
            ("ref: refs/heads/renamed\n", (Some(vec![2; 20]), false)),
            ("ref: refs/heads/circle\n", (None, true)),
            ("ref: refs/heads/a/../loose\n", (None, true)),
            ("ref: refs/heads/none\n", (None, true)),
            (id.as_str(), (Some(vec![4; 20]), false)),
        ] {
            assert_eq!(known.commit_of(head.as_bytes()), commit, "{head}");
        }
    }

    #[test]
    fn what_a_server_begins_with_is_known_and_where_no_branch_can_be_read_all_are_there() {
        let top = tempfile::tempdir().unwrap();
        let git = top.path().join(".git");
        std::fs::create_dir_all(git.join("refs/heads/a")).unwrap();
        std::fs::write(git.join("refs/heads/a/b"), "0\n").unwrap();
        std::fs::write(git.join("packed-refs"), format!("{} refs/tags/tag\n", "01".repeat(20))).unwrap();
        let host = Dir::open(top.path()).unwrap();
        let has = |name: &str| of(&host).has(name);
        let known = of(&host);
        assert_eq!(known.defaults(), [[0; 0]; 0]);
        std::fs::create_dir_all(git.join("refs/remotes/origin")).unwrap();
        std::fs::write(git.join("refs/remotes/origin/HEAD"), "ref: refs/remotes/origin/main\n").unwrap();
        let list =
            format!("{} refs/remotes/origin/main\n{} refs/remotes/origin/pr\n", "02".repeat(20), "03".repeat(20));
        std::fs::write(git.join("packed-refs"), list).unwrap();
        let defaults = || of(&host).defaults();
        assert_eq!(defaults(), [vec![2; 20]]);
        std::fs::write(git.join("refs/remotes/origin/main"), format!("{}\n", "04".repeat(20))).unwrap();
        assert_eq!(defaults(), [vec![4; 20]]);
        let fetched = of(&host).fetched();
        assert_eq!(
            fetched,
            [("origin/main", 4), ("origin/pr", 3)].map(|(name, id)| (name.to_owned(), vec![id; 20])).into()
        );
        std::fs::write(git.join("refs/remotes/origin/HEAD"), "ref: refs/heads/packed\n").unwrap();
        let list = format!("{} refs/heads/packed\n", "05".repeat(20));
        std::fs::write(git.join("packed-refs"), list).unwrap();
        assert_eq!(defaults(), [[0; 0]; 0], "no branch of a server's");
        let heads = git.join("refs").join("heads");
        std::fs::remove_dir_all(&heads).unwrap();
        assert!(!has("a/b"));
        std::fs::write(heads, "this repository uses the reftable format\n").unwrap();
        assert!(has("anything"), "references are kept otherwise");
    }
}
