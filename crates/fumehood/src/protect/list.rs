//! `resources/protected.toml` as values, and matching against it. Names are bytes; no text is lost or folded.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

/// What stands for a protected path that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Missing {
    /// An empty stand-in, read-only inside.
    Stub,
    /// Nothing; it is looked for at the end.
    Watch,
}

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
    /// If it is missing.
    pub missing: Missing,
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
        toml::from_str(include_str!("../../../../resources/protected.toml")).expect("the embedded list parses")
    });
    &LIST
}

impl List {
    /// The protected entry that covers a path relative to the workspace: the entry itself, anything in a protected folder,
    /// and anything that a whole protected path lies in (a folder that replaces `.git` replaces its hooks). Entries hold in
    /// nested folders too, since a repository or an editor may be opened there.
    #[must_use]
    pub fn covering(&self, path: &Path) -> Option<&Protected> {
        let parts: Vec<&[u8]> = path.components().map(|c| c.as_os_str().as_bytes()).collect();
        self.path.iter().find(|entry| {
            let pattern: Vec<&[u8]> = entry.pattern.split('/').map(str::as_bytes).collect();
            (0..parts.len()).any(|start| {
                let here = parts.get(start..).unwrap_or_default();
                let same = pattern.iter().zip(here).all(|(p, part)| *p == b"*" || same_name(p, part));
                same && here.len() >= pattern.len() && (here.len() == pattern.len() || entry.kind == Shape::Dir)
            })
        })
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

/// `*` is any bytes. Linear in the product of the lengths, without recursion.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n, mut star) = (0, 0, None);
    while let Some(byte) = name.get(n) {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(wanted) if wanted.eq_ignore_ascii_case(byte) => {
                p += 1;
                n += 1;
            }
            Some(_) | None => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    p = at + 1;
                    n = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern.get(p..).unwrap_or_default().iter().all(|&b| b == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn the_paths_that_peers_were_broken_by_are_covered() {
        for path in [
            ".git/hooks/pre-commit",
            ".git/config",
            ".GIT/config",
            "sub/.git/hooks/x",
            ".claude/settings.json",
            ".vscode/tasks.json",
            ".mcp.json",
            ".git/modules/a/hooks/x",
            ".idea",
            "a/b/.envrc",
            ".gitmodules",
            ".bashrc",
        ] {
            assert!(list().covering(Path::new(path)).is_some(), "{path}");
        }
        for path in [".git/HEAD", ".git/objects/aa/bb", "hooks/x", ".gitignore", "src/main.rs", ".claudex", ".git"] {
            assert!(list().covering(Path::new(path)).is_none(), "{path}");
        }
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
