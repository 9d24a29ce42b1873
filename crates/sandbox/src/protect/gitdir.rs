//! What a run may change in a folder of git's: what is known to be harmless, and nothing else.
//!
//! git obeys what lies there: hooks and keys of `config` name programs, `commondir` and `alternates` lead to other folders,
//! a half-done rebase runs what its list says. So this is an allowlist, for the folder itself and for those of submodules
//! and worktrees in it, and a name that nobody here knows is held.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

pub use policy::protected::makes_repository;
use policy::protected::matches;

use super::objects::Name;
use super::references::{is_hash, is_plain_head, is_plain_part, is_replace, new_name, packed_refs};

/// What stands at a path of git's folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeChange {
    /// A file that is new.
    NewFile,
    /// A file that has other bytes.
    File,
    /// A folder that is new.
    NewFolder,
    /// A folder that has another mode.
    Folder,
    /// A link.
    Link,
    /// Nothing any more.
    Removed,
}

/// Whether a change in a folder of git's may reach the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It can name no program and no other place.
    Harmless,
    /// It depends on what is in it ([`objection`]).
    Contents(Kind),
    /// Not unasked, and why.
    Held(&'static str),
}

/// Files of git's that are judged by what is in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `config`
    Config,
    /// `HEAD`, where the branch is named.
    Head,
    /// `index`, which git trusts to hold no path that it would not have put there.
    Index,
    /// A reference, which may lead to another one.
    Reference,
    /// `packed-refs`, which may hold some that replace objects.
    PackedRefs,
    /// A new loose object.
    Loose(Name),
    /// A new pack of objects.
    Pack(Name),
    /// What lies beside a new pack: it is judged with it.
    BesidePack,
    /// A new file of git-lfs.
    Large(Name),
}

impl Kind {
    /// Whether it is an object of git's, or holds some: what names objects waits for them.
    #[must_use]
    pub const fn holds_objects(self) -> bool {
        match self {
            Self::Loose(_) | Self::Pack(_) | Self::BesidePack | Self::Large(_) => true,
            Self::Config | Self::Head | Self::Index | Self::Reference | Self::PackedRefs => false,
        }
    }
}

/// What git makes from its objects for speed, and packs that were there.
const DERIVED: &str = "git believes it more than the objects, and makes it again: `git gc` on the host";
const REMOVED_OBJECT: &str = "objects are only added: what `git gc` packed and removed inside, it does on the host";
const CHANGED_OBJECT: &str = "an object that is there is never changed";
const UNKNOWN: &str = "git may obey it: it is not among what is known to be harmless";

/// Whether the last part of a path is `.git`, as the file system with the widest idea of sameness takes it.
pub(super) fn is_git(path: &Path) -> bool {
    path.file_name().is_some_and(|name| matches(b".git", name.as_bytes()))
}

/// The folder of git's that a path of a workspace lies in, up to and with its first `.git`, and the rest.
#[must_use]
pub fn split(path: &Path) -> Option<(PathBuf, PathBuf)> {
    let parts: Vec<&OsStr> = path.components().map(std::path::Component::as_os_str).collect();
    let at = parts.iter().position(|part| is_git(Path::new(part)))?;
    let (folder, rest) = parts.split_at_checked(at.checked_add(1)?)?;
    Some((folder.iter().collect(), rest.iter().collect()))
}

/// Names that make a folder one of git's, whatever it is called ([`makes_repository`]).
pub const REPOSITORY: [&str; 4] = ["HEAD", "objects", "refs", "commondir"];

/// Folders of git's that hold data alone.
pub const DATA: [&str; 4] = ["objects", "refs", "logs", "lfs"];

/// Why a folder that becomes one of git's is held.
pub const NEW_REPOSITORY: &str = "a new repository: git runs what it names as soon as somebody works there";

/// [`makes_repository`] of all names in a folder.
pub(super) fn is_repository<'a>(names: impl IntoIterator<Item = &'a OsStr>) -> bool {
    // Of most folders nothing is kept.
    let found: Vec<&OsStr> = names.into_iter().filter(|name| REPOSITORY.iter().any(|wanted| name == wanted)).collect();
    makes_repository(|wanted| found.iter().any(|name| *name == wanted))
}

/// Judges a path below a folder of git's.
#[must_use]
pub(super) fn judge(rest: &Path, what: NodeChange) -> Verdict {
    let parts: Vec<&[u8]> = rest.components().map(|part| part.as_os_str().as_bytes()).collect();
    let Some(last) = parts.last() else {
        return match what {
            NodeChange::Folder => Verdict::Harmless,
            NodeChange::NewFolder => Verdict::Held(NEW_REPOSITORY),
            NodeChange::NewFile | NodeChange::File | NodeChange::Link => {
                Verdict::Held("it says where git's folder is, hooks and configuration included")
            }
            NodeChange::Removed => Verdict::Held("the repository would be gone"),
        };
    };
    if what == NodeChange::Link {
        return Verdict::Held("a link in git's folder leads git to another place");
    }
    // No name of git's own is this one, at no depth: it would be a repository in the repository.
    if parts.iter().any(|part| is_git(Path::new(OsStr::from_bytes(part)))) {
        return Verdict::Held(UNKNOWN);
    }
    if last.ends_with(b".lock") {
        return Verdict::Held("a lock that somebody left: git would wait for it");
    }
    let mut own = parts.as_slice();
    if let [b"worktrees", _, inner @ ..] = own {
        if inner.is_empty() {
            return own_folder(what);
        }
        own = inner;
    } else if own.first() == Some(&&b"modules"[..]) {
        // Names of submodules have slashes: where the folder of one begins only the host tells, and from there it is judged as one.
        return own_folder(what);
    }
    in_folder(own, what)
}

/// The folder of one more worktree or submodule: what is in it counts.
const fn own_folder(what: NodeChange) -> Verdict {
    match what {
        NodeChange::Removed | NodeChange::Folder => Verdict::Harmless,
        NodeChange::NewFile | NodeChange::File | NodeChange::NewFolder | NodeChange::Link => {
            Verdict::Held("a new worktree or submodule brings a folder of its own")
        }
    }
}

/// Whether it is what git remembers of its own work, or was told by a server: git on the host remembers and is told by itself, and
/// believes it where somebody undoes, rebases or compares with what was sent. `AUTO_MERGE` and `REBASE_HEAD` stay behind when a merge,
/// rebase or stash is at its end (one that is under way says so elsewhere), and `gc.log` is what git shows of its last cleanup until there is another.
#[must_use]
pub fn is_remembered(rest: &Path) -> bool {
    let parts: Vec<&[u8]> = rest.components().map(|part| part.as_os_str().as_bytes()).collect();
    let own = match parts.as_slice() {
        [b"worktrees", _, inner @ ..] => inner,
        parts => parts,
    };
    matches!(
        own,
        [b"logs" | b"FETCH_HEAD" | b"ORIG_HEAD" | b"AUTO_MERGE" | b"REBASE_HEAD" | b"gc.log", ..]
            | [b"COMMIT_EDITMSG" | b"TAG_EDITMSG"]
            | [b"refs", b"remotes", ..]
    )
}

/// Why a merge and the like that is not at its end is held.
const HALF_DONE: &str =
    "a merge, cherry-pick or revert that was begun and not ended: the next commit outside would end it";

/// Files that are harmless at the top of a folder of git's.
const TOP: [&[u8]; 6] = [b"HEAD", b"packed-refs", b"COMMIT_EDITMSG", b"TAG_EDITMSG", b"description", b"AUTO_MERGE"];

fn in_folder(parts: &[&[u8]], what: NodeChange) -> Verdict {
    let harmless = match parts {
        [] => false,
        [b"config"] if is_file(what) => return Verdict::Contents(Kind::Config),
        [b"index"] if is_file(what) => return Verdict::Contents(Kind::Index),
        [b"index"] if what == NodeChange::Removed => {
            return Verdict::Held("what it says is not to be committed, and what is ready to be, would be gone");
        }
        [b"HEAD"] if is_file(what) => return Verdict::Contents(Kind::Head),
        [b"packed-refs"] if is_file(what) => return Verdict::Contents(Kind::PackedRefs),
        // What somebody had not yet committed, and is nowhere else.
        [b"rebase-merge" | b"rebase-apply", b"autostash"] => false,
        // A rebase that was begun outside may end inside; one that was begun inside would run its list outside.
        [b"rebase-merge" | b"rebase-apply" | b"sequencer" | b"BISECT_LOG", ..] => what == NodeChange::Removed,
        [b"HEAD"] if what == NodeChange::Removed => return Verdict::Held("the repository would be gone"),
        // Without them git looks for a repository elsewhere.
        [b"objects" | b"refs"] if !is_folder(what) => return Verdict::Held("the repository would be gone"),
        // A list of conflicts that were solved: git copies the files that it names, wherever they lie.
        [b"MERGE_RR"] => what == NodeChange::Removed,
        // What somebody put aside: they take it out again without a look.
        [b"refs", b"stash", ..] => return Verdict::Held("the stash is of whoever works there"),
        // They show other contents than what is sent and fetched.
        [b"refs", name, ..] if is_replace(name) => false,
        // What git makes under no such name others take for an option, or stop at.
        [b"refs" | b"logs", ..] if what != NodeChange::Removed && !is_branch_of(parts) => false,
        // Under that of a branch, a tag or a server.
        [b"refs", _, ..] if what == NodeChange::NewFile => {
            return new_name(parts).map_or(Verdict::Contents(Kind::Reference), Verdict::Held);
        }
        [b"refs", b"tags", ..] if matches!(what, NodeChange::File | NodeChange::Removed) => {
            return Verdict::Held("a tag of the host's is what it was");
        }
        [b"refs", b"heads", b"git-annex"] if !is_folder(what) => {
            return Verdict::Held("git-annex reads from it which servers it asks and sends to");
        }
        [b"refs", other, ..] if !is_folder(what) && *other != b"heads" && *other != b"tags" => false,
        [b"gc.log"] if what != NodeChange::Removed => {
            return Verdict::Held("git shows it to whoever works there, and tidies up no more");
        }
        [b"packed-refs"] if what == NodeChange::Removed => return Verdict::Held("all that it lists would be gone"),
        [b"refs", _, ..] if is_file(what) => return Verdict::Contents(Kind::Reference),
        [b"MERGE_MODE" | b"MERGE_MSG" | b"SQUASH_MSG"] if what == NodeChange::Removed => true,
        [b"MERGE_MODE" | b"MERGE_MSG" | b"SQUASH_MSG"] => return Verdict::Held(HALF_DONE),
        [name]
            if what != NodeChange::Removed && is_head(name) && !is_remembered(Path::new(OsStr::from_bytes(name))) =>
        {
            return Verdict::Held(HALF_DONE);
        }
        [b"objects", rest @ ..] => return object(rest, what),
        [b"lfs", rest @ ..] => return large(rest, what),
        // Without the folder git writes no commit.
        [b"logs"] => is_folder(what) || what == NodeChange::Removed,
        [b"refs" | b"logs", ..] => true,
        [b"info"] => is_folder(what),
        // For readers over plain HTTP.
        [b"info", b"refs"] => true,
        // What git writes as a file it could not write any more where a folder stands.
        [name] => !is_folder(what) && (TOP.contains(name) || is_head(name) || *name == b"gc.log"),
        [_, _, ..] => false,
    };
    if harmless { Verdict::Harmless } else { Verdict::Held(UNKNOWN) }
}

/// Whether each part of a path below `refs` or `logs` may be one of a reference's name.
fn is_branch_of(parts: &[&[u8]]) -> bool {
    parts.iter().all(|part| is_plain_part(part))
}

const fn is_file(what: NodeChange) -> bool {
    matches!(what, NodeChange::NewFile | NodeChange::File)
}

const fn is_folder(what: NodeChange) -> bool {
    matches!(what, NodeChange::Folder | NodeChange::NewFolder)
}

/// `ORIG_HEAD` and the like.
fn is_head(name: &[u8]) -> bool {
    name.strip_suffix(b"_HEAD").is_some_and(|stem| stem.iter().all(|b| b.is_ascii_uppercase() || *b == b'_'))
}

/// git finds objects by their names and believes them: one that is there is never changed nor removed, and a new one is looked
/// into. What else lies there are answers to questions about objects, which git does not check.
fn object(rest: &[&[u8]], what: NodeChange) -> Verdict {
    let is_folder = is_folder(what);
    match rest {
        [] | [b"pack" | b"info"] if is_folder => Verdict::Harmless,
        [two] if is_folder && is_byte(two) => Verdict::Harmless,
        [b"pack", name] => match packed(name) {
            Some(kind) if what == NodeChange::NewFile => Verdict::Contents(kind),
            Some(_) | None => Verdict::Held(DERIVED),
        },
        [b"info", b"commit-graph" | b"commit-graphs" | b"packs", ..] => Verdict::Held(DERIVED),
        [two] if is_byte(two) && what == NodeChange::Removed => Verdict::Held(REMOVED_OBJECT),
        [two, name] if is_byte(two) => match (what, Name::of(&[two, name])) {
            (NodeChange::NewFile, Some(name)) => Verdict::Contents(Kind::Loose(name)),
            (NodeChange::Removed, Some(_)) => Verdict::Held(REMOVED_OBJECT),
            (NodeChange::File | NodeChange::Folder, Some(_)) => Verdict::Held(CHANGED_OBJECT),
            (NodeChange::NewFolder | NodeChange::Link, Some(_)) | (_, None) => Verdict::Held(UNKNOWN),
        },
        [] | [_, ..] => Verdict::Held(UNKNOWN),
    }
}

pub(super) fn is_byte(part: &[u8]) -> bool {
    part.len() == 2 && part.iter().all(u8::is_ascii_hexdigit)
}

/// `pack-HASH.pack`, and what is judged with it.
pub(super) fn packed(name: &[u8]) -> Option<Kind> {
    let name = name.strip_prefix(b"pack-")?;
    let beside = [&b".idx"[..], b".rev"].iter().find_map(|end| name.strip_suffix(*end));
    match beside {
        Some(stem) => Name::of(&[stem]).map(|_| Kind::BesidePack),
        None => Name::of(&[name.strip_suffix(b".pack")?]).map(Kind::Pack),
    }
}

/// Files of git-lfs are named by the SHA-256 of their contents, and not looked into when they are checked out.
fn large(rest: &[&[u8]], what: NodeChange) -> Verdict {
    match rest {
        [] | [b"objects"] if is_folder(what) => Verdict::Harmless,
        [b"objects", folders @ ..] if folders.len() <= 2 && is_folder(what) => Verdict::Harmless,
        [b"objects", ..] if what == NodeChange::Removed => Verdict::Held(REMOVED_OBJECT),
        [b"objects", one, two, name] if what == NodeChange::NewFile && name.starts_with(&[*one, *two].concat()) => {
            Name::of(&[name])
                .filter(Name::is_long)
                .map_or(Verdict::Held(UNKNOWN), |name| Verdict::Contents(Kind::Large(name)))
        }
        [b"objects", _, _, _] if what == NodeChange::File => Verdict::Held(CHANGED_OBJECT),
        [] | [_, ..] => Verdict::Held(UNKNOWN),
    }
}

/// Why a file that is judged by its contents may not take the place of another.
#[must_use]
pub fn objection(kind: Kind, before: &[u8], now: &[u8]) -> Option<String> {
    match kind {
        Kind::Head => (!is_plain_head(now)).then(|| {
            "it names neither a branch nor a commit: git would look for a repository elsewhere, or move what it names"
                .to_owned()
        }),
        Kind::Reference => (!is_hash(now.trim_ascii_end()))
            .then(|| "it names no commit but another reference, and would go where that one goes".to_owned()),
        Kind::PackedRefs => packed_refs(before, now),
        // They need more than two files to be judged (`crate::changes`, [`super::config_objection`], [`super::index_objection`]).
        Kind::Config | Kind::Index | Kind::Loose(_) | Kind::Pack(_) | Kind::BesidePack | Kind::Large(_) => {
            Some(UNKNOWN.to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::references::TAKEN_FOR_ID;
    use super::*;

    fn of(path: &str, what: NodeChange) -> Verdict {
        judge(Path::new(path), what)
    }

    #[test]
    fn what_git_remembers_is_the_hosts_own() {
        for path in [
            "logs/HEAD",
            "worktrees/w/logs/HEAD",
            "refs/remotes/origin/main",
            "FETCH_HEAD",
            "worktrees/w/ORIG_HEAD",
            "worktrees/w/AUTO_MERGE",
            "REBASE_HEAD",
            "gc.log",
        ] {
            assert!(is_remembered(Path::new(path)), "{path}");
        }
        assert!(matches!(of("gc.log", NodeChange::NewFile), Verdict::Held(_)), "where it is taken by name");
        assert_eq!(of("gc.log", NodeChange::Removed), Verdict::Harmless);
        for path in ["refs/heads/logs", "HEAD", "refs/stash", "worktrees/logs", "MERGE_HEAD", "refs/tags/remotes"] {
            assert!(!is_remembered(Path::new(path)), "{path}");
        }
        for path in ["MERGE_HEAD", "CHERRY_PICK_HEAD", "worktrees/w/REVERT_HEAD", "MERGE_MODE"] {
            assert_eq!(of(path, NodeChange::NewFile), Verdict::Held(HALF_DONE), "{path}");
            assert_eq!(of(path, NodeChange::Removed), Verdict::Harmless, "{path}");
        }
        for path in ["refs/stash", "rebase-merge/autostash"] {
            for what in [NodeChange::NewFile, NodeChange::File, NodeChange::Removed] {
                assert!(matches!(of(path, what), Verdict::Held(_)), "{path}");
            }
        }
        assert_eq!(of("rebase-merge/done", NodeChange::Removed), Verdict::Harmless);
    }

    #[test]
    fn what_daily_work_writes_is_harmless() {
        for (path, kind) in [
            ("packed-refs", Some(Kind::PackedRefs)),
            ("COMMIT_EDITMSG", None),
            ("refs/heads/config", Some(Kind::Reference)),
            ("logs/refs/heads/hooks", None),
        ] {
            assert_eq!(of(path, NodeChange::NewFile), kind.map_or(Verdict::Harmless, Verdict::Contents), "{path}");
            assert!(matches!(of(path, NodeChange::Link), Verdict::Held(_)), "{path} as a link");
            let is_list = path == "packed-refs";
            assert_eq!(of(path, NodeChange::Removed) == Verdict::Harmless, !is_list, "{path}");
        }
        assert_eq!(of("config", NodeChange::File), Verdict::Contents(Kind::Config));
        assert_eq!(of("HEAD", NodeChange::File), Verdict::Contents(Kind::Head));
        assert_eq!(of("worktrees/w/index", NodeChange::NewFile), Verdict::Contents(Kind::Index));
        assert_eq!(of("rebase-merge/git-rebase-todo", NodeChange::Removed), Verdict::Harmless);
    }

    #[test]
    fn what_steers_git_is_held_at_every_depth() {
        for path in [
            "hooks/pre-commit",
            "hooks",
            "commondir",
            "gitdir",
            "config.worktree",
            "info/attributes",
            "info/exclude",
            "info/grafts",
            "objects/info/alternates",
            "objects/info/http-alternates",
            "rebase-merge/git-rebase-todo",
            "sequencer/todo",
            "rebase-apply/applying",
            "modules/a/hooks/x",
            "modules/a/refs/heads/main",
            "modules/src/logs/index",
            "modules/a/b/hooks/post-checkout",
            "modules/a/commondir",
            "modules/refs/hooks/x",
            "modules/evil/objects/hooks/x",
            "modules/evil/refs/config",
            "modules/evil/objects/config",
            "worktrees/w/commondir",
            "worktrees/w/gitdir",
            "worktrees/w/config.worktree",
            "worktrees/new",
            "modules/a/info/attributes",
            "modules/a/FETCH_HEAD/hooks/x",
            "modules/a/FETCH_HEAD/x",
            "modules/FETCH_HEAD",
            "modules/a/FETCH_HEAD.lock",
            "remotes/origin",
            "branches/x",
            "index.lock",
            "refs/heads/main.lock",
            "BISECT_RUN",
            "fsmonitor--daemon.ipc",
            "x",
            "modules/evil/refs/modules/x/HEAD",
            "HOOKS/pre-commit",
            "",
            "objects/ab/../../config",
            "refs/heads/.git",
            "logs/.GIT/config",
            "lfs/objects/.git/config",
        ] {
            let verdict = of(path, NodeChange::File);
            assert!(matches!(verdict, Verdict::Held(_)), "{path}: {verdict:?}");
        }
    }

    #[test]
    fn names_that_git_gives_to_nothing_and_folders_in_the_place_of_files_are_held() {
        for path in [
            "refs/replace/x",
            "refs/Replace/x",
            "sharedindex.0a",
            "refs/heads/--upload-pack=x",
            "refs/heads/a b",
            "refs/heads/x~1",
            "refs/heads/-d/x",
            "logs/refs/heads/a..b",
            "MERGE_RR",
            "logs",
        ] {
            assert!(matches!(of(path, NodeChange::File), Verdict::Held(_)), "{path}");
        }
        for path in ["refs/tags/a8f9508", "refs/heads/0123456789", "refs/remotes/a8f9508/HEAD"] {
            assert_eq!(of(path, NodeChange::NewFile), Verdict::Held(TAKEN_FOR_ID), "{path}");
            let is_branch = path.starts_with("refs/h");
            assert_eq!(
                of(path, NodeChange::File) == Verdict::Contents(Kind::Reference),
                is_branch,
                "{path} of the host's"
            );
        }
        for path in ["refs/heads/cafe", "refs/heads/x/a8f9508", "refs/tags/v1.0.0"] {
            assert_eq!(of(path, NodeChange::NewFile), Verdict::Contents(Kind::Reference), "{path}");
        }
        for folder in ["FETCH_HEAD", "COMMIT_EDITMSG", "refs/heads/--x"] {
            assert!(matches!(of(folder, NodeChange::NewFolder), Verdict::Held(_)), "{folder}");
        }
        assert_eq!(of("refs/heads/--x", NodeChange::Removed), Verdict::Harmless);
        for path in ["HEAD", "index", "worktrees/w/index"] {
            assert!(matches!(of(path, NodeChange::Removed), Verdict::Held(_)), "{path}");
        }
        assert!(
            matches!(of("", NodeChange::NewFolder), Verdict::Held(_))
                && of("", NodeChange::Folder) == Verdict::Harmless
        );
        for folder in ["modules/evil", "modules/evil/FETCH_HEAD", "modules/FETCH_HEAD"] {
            assert!(matches!(of(folder, NodeChange::NewFolder), Verdict::Held(_)), "{folder}");
        }
    }

    #[test]
    fn objects_are_only_added_and_looked_into_and_what_is_derived_from_them_is_held() {
        let (sum, long) = (format!("01{}", "23".repeat(19)), format!("0123{}", "45".repeat(30)));
        for path in [
            format!("objects/01/{}", "23".repeat(19)),
            format!("objects/01/{}", "45".repeat(31)),
            format!("objects/pack/pack-{sum}.pack"),
            format!("objects/pack/pack-{long}.idx"),
            format!("worktrees/a/objects/pack/pack-{sum}.rev"),
            format!("lfs/objects/01/23/{long}"),
        ] {
            assert!(
                matches!(of(&path, NodeChange::NewFile), Verdict::Contents(kind) if kind.holds_objects()),
                "{path}"
            );
            for what in [NodeChange::File, NodeChange::Removed, NodeChange::Link, NodeChange::NewFolder] {
                assert!(matches!(of(&path, what), Verdict::Held(_)), "{path}: {what:?}");
            }
        }
        for path in [
            "objects/01/23",
            "objects/pack/pack-a1.pack",
            "objects/pack/x.idx",
            "objects/pack/multi-pack-index",
            "objects/pack/multi-pack-index.d/multi-pack-index-chain",
            "objects/info/commit-graph",
            "objects/info/commit-graphs/commit-graph-chain",
            "objects/info/packs",
            "lfs/objects/ab/cd/x",
            "lfs/cache/locks/x",
            &format!("lfs/objects/ab/cd/{long}"),
            &format!("objects/pack/pack-{sum}.bitmap"),
            &format!("objects/pack/pack-{sum}.mtimes"),
            &format!("objects/pack/pack-{sum}.promisor"),
        ] {
            for what in [NodeChange::NewFile, NodeChange::File, NodeChange::Removed] {
                assert!(matches!(of(path, what), Verdict::Held(_)), "{path}: {what:?}");
            }
        }
        for path in ["objects", "objects/pack", "objects/info", "objects/ab", "lfs", "lfs/objects", "lfs/objects/ab/cd"]
        {
            assert_eq!(of(path, NodeChange::NewFolder), Verdict::Harmless, "{path}");
            assert!(matches!(of(path, NodeChange::Removed), Verdict::Held(_)), "{path}");
        }
    }

    #[test]
    fn what_makes_a_folder_a_repository_is_what_git_looks_for() {
        let is = |names: &[&str]| is_repository(names.iter().map(OsStr::new));
        for names in [
            &["HEAD", "objects", "refs"][..],
            &["refs", "src", "objects", "config", "HEAD"],
            &["HEAD", "commondir"],
            &["commondir", "x", "objects", "HEAD"],
        ] {
            assert!(is(names), "{names:?}");
        }
        for names in
            [&["HEAD"][..], &[], &["HEAD", "objects", "config"], &["objects", "refs", "commondir"], &["HEAD", "refs"]]
        {
            assert!(!is(names), "{names:?}");
        }
    }

    #[test]
    fn a_path_is_split_at_its_first_git_folder() {
        let split = |path: &str| {
            split(Path::new(path)).map(|(a, b)| (a.to_str().unwrap().to_owned(), b.to_str().unwrap().to_owned()))
        };
        assert_eq!(split("a/.git/config"), Some(("a/.git".into(), "config".into())));
        assert_eq!(split(".GIT"), Some((".GIT".into(), String::new())));
        assert_eq!(split("a/.github/x"), None);
    }
}
