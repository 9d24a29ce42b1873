//! Which paths a sparse checkout leaves out of a working tree, by the patterns that the host has for it: as those of `.gitignore`, the last
//! one that fits counts, and what counts for a folder counts for all in it. A cone is written so, too.

use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};

use super::gitconfig::is_sparse;
use crate::state::Dir;

/// Larger files of configuration and patterns are not understood, in bytes.
const MAX_TEXT: u64 = 1 << 20;
/// So many patterns are.
const MAX_PATTERNS: usize = 4096;

/// What a sparse checkout leaves out.
#[derive(Debug)]
pub struct LeftOut(Vec<Pattern>);

#[derive(Debug)]
struct Pattern {
    glob: GlobMatcher,
    /// It fits folders alone.
    is_folder: bool,
    /// What fits is in the working tree.
    is_in: bool,
}

impl LeftOut {
    /// Of the working tree whose part of git's folder is `own`, in a repository with the branches in `folder`; `None` where all is checked
    /// out, or nobody can say what.
    #[must_use]
    pub fn of(host: &Dir, folder: &Path, own: &Path) -> Option<Self> {
        let read = |path: &Path| host.read(path, MAX_TEXT).ok();
        let (config, of_tree) = (read(&folder.join("config"))?, read(&own.join("config.worktree")).unwrap_or_default());
        if !is_sparse(&config, &of_tree)? {
            return None;
        }
        Self::by(&read(&own.join("info").join("sparse-checkout"))?)
    }

    fn by(patterns: &[u8]) -> Option<Self> {
        let lines = std::str::from_utf8(patterns).ok()?.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
        let lines: Vec<&str> = lines.map(|line| line.trim_end_matches(' ')).collect();
        let written = lines.into_iter().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let patterns = written.map(Pattern::of).collect::<Option<Vec<_>>>()?;
        (patterns.len() <= MAX_PATTERNS).then_some(Self(patterns))
    }

    /// Whether a file at a path is left out.
    #[must_use]
    pub fn has(&self, path: &Path) -> bool {
        let fits = |at: &Path, is_folder: bool| {
            self.0.iter().rev().find(|one| (is_folder || !one.is_folder) && one.glob.is_match(at)).map(|one| one.is_in)
        };
        let mut above = path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty());
        let is_in = fits(path, false).or_else(|| above.find_map(|above| fits(above, true)));
        !is_in.unwrap_or(false)
    }
}

impl Pattern {
    /// `None` where git could read it otherwise than it is read here.
    fn of(line: &str) -> Option<Self> {
        let (is_in, line) = line.strip_prefix('!').map_or((true, line), |rest| (false, rest));
        let (is_folder, line) = line.strip_suffix('/').map_or((false, line), |rest| (true, rest));
        // Classes by name are not known here, and a blank behind a backslash is none at the end.
        if line.contains("[:") || line.ends_with('\\') {
            return None;
        }
        let plain = line.replace('{', "\\{").replace('}', "\\}");
        let glob = match plain.strip_prefix('/') {
            Some(whole) => whole.to_owned(),
            None if plain.contains('/') => plain,
            None => format!("**/{plain}"),
        };
        let built = GlobBuilder::new(&glob).literal_separator(true).backslash_escape(true).build().ok()?;
        Some(Self { glob: built.compile_matcher(), is_folder, is_in })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// git itself says which paths it leaves out.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "git itself says what it leaves out")]
    fn what_is_left_out_is_what_git_leaves_out() {
        let paths = [
            "r",
            "src/a",
            "src/b/c",
            "src/b/d/e",
            "src/x/y",
            "docs/a",
            "docs/deep/b.md",
            "docs/deep/c",
            "new/{x}/f",
            "w/[a]/q",
            "w/a/q",
            "z*/q",
            "src/b.md",
            "\u{e9}/f",
        ];
        for (options, patterns) in [
            ("--cone", &["src/b"][..]),
            ("--cone", &["docs", "src/x"]),
            ("--cone", &[]),
            ("--cone", &["z*", "w/[a]"]),
            ("--no-cone", &["/*", "!/docs/", "/docs/deep/"]),
            ("--no-cone", &["*.md", "/src/**/e", "!b.md"]),
            ("--no-cone", &["docs", "!docs/deep/c", "src/*/c"]),
            ("--no-cone", &["**/deep", "new/{x}/", "w/\\[a\\]/q", "?"]),
            ("--no-cone", &["/*", "!src", "# x", "", "\u{e9}/"]),
        ] {
            let top = tempfile::tempdir().unwrap();
            let git = |words: &[&str]| {
                let mut git = std::process::Command::new("git");
                let name = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "core.quotePath=false"];
                let done = git
                    .args(name)
                    .args(words)
                    .env("GIT_CONFIG_GLOBAL", "/dev/null")
                    .current_dir(top.path())
                    .output()
                    .unwrap();
                assert!(done.status.success(), "{done:?}");
                String::from_utf8(done.stdout).unwrap()
            };
            git(&["init", "-q", "."]);
            let host = Dir::open(top.path()).unwrap();
            let left_out = || LeftOut::of(&host, Path::new(".git"), Path::new(".git"));
            for path in paths {
                let path = top.path().join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, "x").unwrap();
            }
            git(&["add", "."]);
            git(&["commit", "-qm", "A"]);
            assert!(left_out().is_none(), "all is checked out");
            git(&[&["sparse-checkout", "set", "--skip-checks", options], patterns].concat());
            let known = left_out().unwrap();
            for line in git(&["ls-files", "-t"]).lines() {
                let (tag, path) = line.split_once(' ').unwrap();
                assert_eq!(known.has(Path::new(path.trim_matches('"'))), tag == "S", "{patterns:?}: {line}");
            }
            git(&["sparse-checkout", "disable"]);
            assert!(left_out().is_none(), "the patterns are there, and say nothing");
        }
        assert!(LeftOut::by(b"[[:alpha:]]\n").is_none() && LeftOut::by(b"/x\xff\n").is_none());
    }
}
