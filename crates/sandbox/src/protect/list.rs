//! What becomes of a change at a path: the list of control files, and git's folders with a list of their own.

use std::path::Path;

pub use policy::protected::{List, Marked, Protected, Shape, is_short, list};

use super::gitdir::{self, Kind, NodeChange};

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

/// Why a link on the way to a control file is held.
const ON_THE_WAY: &str = "a link where a folder with control files is looked for: it decides which are found";

/// Judges a change at a path relative to the workspace.
#[must_use]
pub fn judge(list: &List, path: &Path, what: NodeChange) -> Verdict {
    if let Some((_, rest)) = gitdir::split(path) {
        return match gitdir::judge(&rest, what) {
            gitdir::Verdict::Harmless => Verdict::Free,
            gitdir::Verdict::Contents(kind) => Verdict::Contents(kind),
            gitdir::Verdict::Held(why) => Verdict::Held(format!("version control: {why}")),
        };
    }
    match list.covering(path, matches!(what, NodeChange::NewFolder | NodeChange::Folder)) {
        Some(entry) => Verdict::Held(format!("{}: {}", entry.category, entry.why)),
        None if what == NodeChange::Link && !list.beyond(path).is_empty() => Verdict::Held(ON_THE_WAY.to_owned()),
        None => Verdict::Free,
    }
}

/// Whether a workspace is a folder of control files or one where they are looked for, or lies within one, or in a folder of git's: what
/// is in it is not known by its path in it.
#[must_use]
pub fn steers(list: &List, workspace: &Path) -> bool {
    let of_git = gitdir::split(workspace).is_some_and(|(_, rest)| !rest.as_os_str().is_empty());
    // Of names as any folder may have (`tools`) entries are looked for in projects alone.
    of_git || list.folder(workspace, false).is_some()
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
            ".hg/hgrc-not-shared",
            "a/.hg/sharedpath",
            ".sl/config",
            ".jj/workspace-config.toml",
            "GIT~1/hooks/pre-commit",
            "sub/GIT~1/config",
            "VSCODE~1/tasks.json",
        ] {
            let verdict = judge(list(), Path::new(path), NodeChange::File);
            assert!(verdict != Verdict::Free, "{path}");
        }
        for path in [".git/description", "hooks/x", ".gitignore", "src/main.rs", ".claudex"] {
            assert_eq!(judge(list(), Path::new(path), NodeChange::NewFile), Verdict::Free, "{path}");
        }
        assert_eq!(judge(list(), Path::new(".git"), NodeChange::Folder), Verdict::Free);
        assert!(matches!(judge(list(), Path::new("a/.git"), NodeChange::NewFolder), Verdict::Held(_)));
        let link = |path: &str| judge(list(), Path::new(path), NodeChange::Link) != Verdict::Free;
        assert!(link(".hg") && link("a/.config") && link(".jj/repo") && !link("hg") && !link("src/x"));
        assert!(judge(list(), Path::new(".hg"), NodeChange::NewFolder) != Verdict::Free);
        assert_eq!(judge(list(), Path::new(".jj/repo"), NodeChange::NewFolder), Verdict::Free);
        assert!(judge(list(), Path::new(".jj/repo"), NodeChange::NewFile) != Verdict::Free);
        let within = |path: &str| steers(list(), Path::new(path));
        assert!(within("/w/.git/hooks") && within("/w/.vscode") && within("/w/.claude") && within("/w/.hg"));
        assert!(
            within("/h/.config/nvim") && within("/w/.husky/_") && within("/w/.github/hooks") && within("/w/.vscode/x")
        );
        assert!(!within("/w/.git") && !within("/w/.claude/worktrees/x") && !within("/w/tools") && !within("/"));
        assert!(!within("/h/.config/other") && !within("/tmp/.tmpA1b2C3/work") && !within("/h/.local/state/x"));
        let at_top = |path: &str| list().at_top(Path::new(path), false).is_some();
        assert!(at_top(".envrc") && !at_top("a/.envrc"));
    }
}
