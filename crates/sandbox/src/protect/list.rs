//! What becomes of a change at a path: the list of control files, and git's folders with a list of their own.

use std::path::Path;

pub use policy::protected::{List, Marked, Protected, Shape, list};

use super::gitdir::{self, Kind, What};

/// What `apply` does with a change, and the end of a `rw` run with one in a folder of git's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is taken.
    Free,
    /// It is taken if what is in it is harmless ([`super::objection`]).
    Contents(Kind),
    /// Not unasked, and why.
    Held(String),
}

/// Judges a change at a path relative to the workspace.
#[must_use]
pub fn judge(list: &List, path: &Path, what: What) -> Verdict {
    if let Some((_, rest)) = gitdir::split(path) {
        return match gitdir::judge(&rest, what) {
            gitdir::Verdict::Harmless => Verdict::Free,
            gitdir::Verdict::Contents(kind) => Verdict::Contents(kind),
            gitdir::Verdict::Held(why) => Verdict::Held(format!("version control: {why}")),
        };
    }
    match list.covering(path) {
        Some(entry) => Verdict::Held(format!("{}: {}", entry.category, entry.why)),
        None => Verdict::Free,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let verdict = judge(list(), Path::new(path), What::File);
            assert!(verdict != Verdict::Free, "{path}");
        }
        for path in [".git/ORIG_HEAD", ".git/objects/aa/bb", "hooks/x", ".gitignore", "src/main.rs", ".claudex"] {
            assert_eq!(judge(list(), Path::new(path), What::NewFile), Verdict::Free, "{path}");
        }
        assert_eq!(judge(list(), Path::new(".git"), What::Folder), Verdict::Free);
        assert!(matches!(judge(list(), Path::new("a/.git"), What::NewFolder), Verdict::Held(_)));
        assert!(list().at_top(Path::new(".envrc")).is_some() && list().at_top(Path::new("a/.envrc")).is_none());
    }
}
