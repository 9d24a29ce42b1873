//! Control files: what other programs read or run without being asked, so that no run and no tool writes them.
//!
//! The list is `resources/protected.toml`, one for the sandbox (`fs.protect`), `apply` and the guards. Guards of paths and commands are
//! stricter than a sandbox: nothing in a folder of version control is written by its path, whatever it is, since who means to
//! change it uses the program that it belongs to.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

/// Folders of version control: configuration, hooks, and what both can be redirected by.
const VERSION_CONTROL: &[&str] = &[".git", ".hg", ".svn", ".jj"];

/// Beyond the list's `[[path]]`: a sandbox lets these be edited and marks them, as work may consist of it; they act without being
/// asked all the same, or are credentials.
const ALSO: &[(&str, &str)] = &[
    (".gitattributes", "it names the filters that git runs"),
    ("sitecustomize.py", "python runs it at every start"),
    ("usercustomize.py", "python runs it at every start"),
    ("*.pth", "python runs its lines at every start"),
    (".gnupg", "it holds keys"),
    (".aws", "it holds credentials"),
];

/// File or folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// A regular file.
    File,
    /// A folder and all in it.
    Dir,
}

/// One protected path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Protected {
    /// Relative to the workspace; `*` is one whole part.
    pub pattern: String,
    /// What it is.
    pub kind: Shape,
    /// For people.
    pub category: String,
    /// Who reads it, and what it can make them do.
    pub why: String,
}

/// A path that `diff` marks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Marked {
    /// A file name, or the last parts of a path; `*` is any text within a part.
    pub pattern: String,
    /// Why it is marked.
    pub why: String,
}

/// The whole list.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {
    /// Protected.
    pub path: Vec<Protected>,
    /// Something runs them.
    pub executes: Vec<Marked>,
    /// Some agent obeys them.
    pub instructs: Vec<Marked>,
}

/// The list that is shipped.
#[must_use]
pub fn list() -> &'static List {
    // A list that does not parse cannot be shipped: the test below holds it, and an empty one would protect nothing.
    #[expect(clippy::expect_used, reason = "embedded data that a test parses; there is nothing to fall back to")]
    static LIST: LazyLock<List> = LazyLock::new(|| {
        toml::from_str(include_str!("../../../resources/protected.toml")).expect("the embedded list parses")
    });
    &LIST
}

/// Why nobody writes a path that is relative to a root; none if it is no control file. Entries hold in nested folders too, since a
/// repository or an editor may be opened there. Where the list cannot be read, every path is one.
#[must_use]
pub fn why(path: &Path) -> Option<String> {
    let parts: Vec<&[u8]> = path.components().map(|part| part.as_os_str().as_bytes()).collect();
    let of_git = |part: &&&str| parts.iter().any(|here| same_name(part.as_bytes(), here));
    if let Some(part) = VERSION_CONTROL.iter().find(of_git) {
        return Some(format!(
            "`{part}` is a folder of version control, with hooks and configuration that name programs"
        ));
    }
    let found = list().covering(path);
    let found = found.map(|entry| (entry.pattern.as_str(), entry.why.as_str()));
    let also = || ALSO.iter().copied().find(|(pattern, _)| parts.iter().any(|part| matches(pattern.as_bytes(), part)));
    found.or_else(also).map(|(pattern, why)| format!("`{pattern}` is a control file: {why}"))
}

impl List {
    /// The entry that protects a path of a `rw` workspace: it stands at the top, and only these are mounted or watched.
    #[must_use]
    pub fn at_top(&self, path: &Path) -> Option<&Protected> {
        let parts: Vec<&[u8]> = path.components().map(|c| c.as_os_str().as_bytes()).collect();
        self.path.iter().find(|entry| begins(entry, &parts))
    }

    /// The protected entry that covers a path relative to the workspace: the entry itself, anything in a protected folder,
    /// and anything that a whole protected path lies in (a folder that replaces `.git` replaces its hooks). Entries hold in
    /// nested folders too, since a repository or an editor may be opened there.
    #[must_use]
    pub fn covering(&self, path: &Path) -> Option<&Protected> {
        let parts: Vec<&[u8]> = path.components().map(|c| c.as_os_str().as_bytes()).collect();
        self.path
            .iter()
            .find(|entry| (0..parts.len()).any(|start| begins(entry, parts.get(start..).unwrap_or_default())))
    }

    /// Why a path runs, if it does.
    #[must_use]
    pub fn executes(&self, path: &Path) -> Option<&str> {
        find(&self.executes, path)
    }

    /// Who obeys a path, if somebody does.
    #[must_use]
    pub fn instructs(&self, path: &Path) -> Option<&str> {
        find(&self.instructs, path)
    }
}

/// Whether a path is an entry's, or lies in its folder.
fn begins(entry: &Protected, parts: &[&[u8]]) -> bool {
    let pattern: Vec<&[u8]> = entry.pattern.split('/').map(str::as_bytes).collect();
    let same = pattern.iter().zip(parts).all(|(p, part)| *p == b"*" || same_name(p, part));
    same && parts.len() >= pattern.len() && (parts.len() == pattern.len() || entry.kind == Shape::Dir)
}

fn find<'a>(marked: &'a [Marked], path: &Path) -> Option<&'a str> {
    let parts: Vec<&[u8]> = path.components().map(|c| c.as_os_str().as_bytes()).collect();
    let hit = |entry: &&Marked| {
        let pattern: Vec<&[u8]> = entry.pattern.split('/').map(str::as_bytes).collect();
        let Some(start) = parts.len().checked_sub(pattern.len()) else { return false };
        pattern.iter().zip(parts.get(start..).unwrap_or_default()).all(|(p, part)| matches(p, part))
    };
    marked.iter().find(hit).map(|entry| entry.why.as_str())
}

/// Git and others fold the case of their own names on case-insensitive disks; a name that differs only so is as good.
fn same_name(pattern: &[u8], part: &[u8]) -> bool {
    pattern.eq_ignore_ascii_case(part)
}

/// `*` is any bytes; case is nothing.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    crate::wild::matches(pattern, name, |one| *one == b'*', u8::eq_ignore_ascii_case)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_files_are_known_at_any_depth_and_in_any_case() {
        for path in [
            ".git",
            ".git/HEAD",
            ".git/hooks/pre-commit",
            "a/b/.GIT/config",
            ".mcp.json",
            "x/.claude/settings.json",
            ".vscode/tasks.json",
            ".envrc",
            "a/.Envrc",
            ".gitmodules",
            ".gitattributes",
            "lib/x.pth",
            "sitecustomize.py",
            ".hg/hgrc",
            ".bashrc",
            ".ssh/config",
            ".idea",
        ] {
            assert!(why(Path::new(path)).is_some(), "{path}");
        }
        for path in ["", "src/main.rs", ".gitignore", "git/config", ".github/x.md", "claude", "a.pth.txt", ".envrc2"] {
            assert_eq!(why(Path::new(path)), None, "{path}");
        }
    }

    #[test]
    fn the_shipped_list_parses_and_each_entry_says_why() {
        let list = list();
        assert!(list.path.len() > 40 && list.executes.len() > 40);
        for entry in &list.path {
            assert!(
                !entry.why.is_empty() && !entry.pattern.starts_with('/') && !entry.pattern.ends_with('/'),
                "{entry:?}"
            );
        }
        let mut patterns: Vec<_> = list.path.iter().map(|e| &e.pattern).collect();
        patterns.sort();
        patterns.dedup();
        assert_eq!(patterns.len(), list.path.len(), "each once");
    }

    #[test]
    fn marks_match_names_and_the_ends_of_paths() {
        for path in
            ["Makefile", "a/b/makefile", "x/conftest.py", ".github/workflows/ci.yml", "requirements-dev.txt", "a.pth"]
        {
            assert!(list().executes(Path::new(path)).is_some(), "{path}");
        }
        assert!(list().executes(Path::new("Makefile/x.c")).is_none());
        assert!(list().instructs(Path::new("docs/AGENTS.md")).is_some());
        assert!(matches(b"*a*b", b"xxaxxab") && !matches(b"*a*b", b"xxaxx") && matches(b"*", b""));
    }
}
