//! Control files: what other programs read or run without being asked, so that no run and no tool writes them.
//!
//! The list is `resources/protected.toml`, one for the sandbox (`fs.protect`), `apply` and the guards. Guards of paths and commands are
//! stricter than a sandbox: nothing in a folder of version control is written by its path, whatever it is, since who means to
//! change it uses the program that it belongs to.

use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

pub use crate::short_name::is_short;
use crate::short_name::is_short_of;

/// Folders of version control: configuration, hooks, and what both can be redirected by.
const VERSION_CONTROL: &[&str] = &[".git", ".hg", ".svn", ".jj"];

/// Beyond the list's `[[path]]`: a sandbox lets these be edited and marks them, as work may consist of it; they act without being
/// asked all the same, or are credentials.
const ALSO: &[(&str, &str)] = &[
    (".gitattributes", "it names the filters that git runs"),
    ("sitecustomize.py", "python runs it at every start"),
    ("usercustomize.py", "python runs it at every start"),
    ("*.pth", "python runs its lines at every start"),
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
    /// Relative to the workspace; `*` is any text within a part.
    pub pattern: String,
    /// What it is.
    pub kind: Shape,
    /// A folder of this name is none.
    #[serde(default)]
    pub unless_folder: bool,
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
    let of_git = |part: &&&str| parts.iter().any(|here| matches(part.as_bytes(), here));
    if let Some(part) = VERSION_CONTROL.iter().find(of_git) {
        return Some(format!(
            "`{part}` is a folder of version control, with hooks and configuration that name programs"
        ));
    }
    let found = list().covering(path, false);
    let found = found.map(|entry| (entry.pattern.as_str(), entry.why.as_str()));
    let also = || ALSO.iter().copied().find(|(pattern, _)| parts.iter().any(|part| matches(pattern.as_bytes(), part)));
    found.or_else(also).map(|(pattern, why)| format!("`{pattern}` is a control file: {why}"))
}

/// Whether git takes a folder for one of its own that has these names, each as a file, a folder or a link: `HEAD` with
/// `objects` and `refs`, or with `commondir`, which says where those two and the configuration lie.
#[must_use]
pub fn makes_repository(has: impl Fn(&str) -> bool) -> bool {
    has("HEAD") && (has("commondir") || (has("objects") && has("refs")))
}

impl List {
    /// The entry that protects a path of a `rw` workspace, where a folder stands or something else: it stands at the top, and
    /// only these are mounted or watched.
    #[must_use]
    pub fn at_top(&self, path: &Path, folder: bool) -> Option<&Protected> {
        let parts = parts_of(path);
        self.path.iter().find(|entry| begins(entry, &parts, folder))
    }

    /// Whether an entry at the top of a workspace lies below a path: a link that stands there decides what is found.
    #[must_use]
    pub fn is_above(&self, path: &Path) -> bool {
        self.first_below(&parts_of(path)).is_some()
    }

    fn first_below(&self, parts: &[&[u8]]) -> Option<PathBuf> {
        self.path.iter().find_map(|entry| rest(entry, parts))
    }

    /// What of the list a folder is that is opened by itself, known by its whole path: an entry, or what lies in one (the empty
    /// path); or one in which entries lie, with the first of them. A name as any folder may have (`tools`) says the latter where
    /// `of_any_name` alone. A working tree that an agent keeps (`.claude/worktrees/x`) is a project, whatever it lies in.
    #[must_use]
    pub fn folder(&self, path: &Path, of_any_name: bool) -> Option<PathBuf> {
        let all = parts_of(path);
        let is_kept = |two: &[&[u8]]| matches!(two, [agents, b"worktrees"] if agents.starts_with(b"."));
        let tree = all.windows(2).rposition(is_kept).and_then(|at| all.get(at.checked_add(2)?..));
        let parts = tree.filter(|tree| !tree.is_empty()).unwrap_or(&all);
        if self.covering_parts(parts, true).is_some() {
            return Some(PathBuf::new());
        }
        let mut tails = (0..parts.len()).filter_map(|start| parts.get(start..));
        tails.find_map(|tail| {
            let is_one = of_any_name || tail.first().is_some_and(|name| name.starts_with(b"."));
            self.first_below(tail).filter(|_| is_one)
        })
    }

    /// The protected entry that covers a path relative to the workspace, where a folder stands or something else: the entry
    /// itself, and anything in a protected folder. Entries hold in nested folders too, since a repository or an editor may be
    /// opened there.
    #[must_use]
    pub fn covering(&self, path: &Path, folder: bool) -> Option<&Protected> {
        self.covering_parts(&parts_of(path), folder)
    }

    fn covering_parts(&self, parts: &[&[u8]], folder: bool) -> Option<&Protected> {
        self.path
            .iter()
            .find(|entry| (0..parts.len()).any(|start| begins(entry, parts.get(start..).unwrap_or_default(), folder)))
    }

    /// The paths that entries have below a path, at any depth: what a link that stands there leads elsewhere. Of an entry with
    /// `*` it is the folder that would be looked through.
    #[must_use]
    pub fn beyond(&self, path: &Path) -> Vec<PathBuf> {
        let parts = parts_of(path);
        let of = |entry| (0..parts.len()).find_map(|start| rest(entry, parts.get(start..).unwrap_or_default()));
        self.path.iter().filter_map(of).map(|rest| path.components().chain(rest.components()).collect()).collect()
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

fn parts_of(path: &Path) -> Vec<&[u8]> {
    path.components().map(|part| part.as_os_str().as_bytes()).collect()
}

/// Whether a path is an entry's, or lies in its folder.
fn begins(entry: &Protected, parts: &[&[u8]], folder: bool) -> bool {
    let patterns: Vec<&str> = entry.pattern.split('/').collect();
    let Some((own, below)) = parts.split_at_checked(patterns.len()) else { return false };
    let same = patterns.iter().zip(own).all(|(pattern, part)| matches(pattern.as_bytes(), part));
    same && if below.is_empty() { !(folder && entry.unless_folder) } else { entry.kind == Shape::Dir }
}

/// What an entry has below a path, up to a part with `*`.
fn rest(entry: &Protected, parts: &[&[u8]]) -> Option<PathBuf> {
    let patterns: Vec<&str> = entry.pattern.split('/').collect();
    let (above, below) =
        patterns.split_at_checked(parts.len()).filter(|(above, below)| !above.is_empty() && !below.is_empty())?;
    let same = above.iter().zip(parts).all(|(pattern, part)| matches(pattern.as_bytes(), part));
    same.then(|| below.iter().take_while(|part| !part.contains('*')).collect())
}

fn find<'a>(marked: &'a [Marked], path: &Path) -> Option<&'a str> {
    let parts = parts_of(path);
    let hit = |entry: &&Marked| {
        let pattern: Vec<&[u8]> = entry.pattern.split('/').map(str::as_bytes).collect();
        let Some(start) = parts.len().checked_sub(pattern.len()) else { return false };
        pattern.iter().zip(parts.get(start..).unwrap_or_default()).all(|(p, part)| matches(p, part))
    };
    marked.iter().find(hit).map(|entry| entry.why.as_str())
}

/// Whether a name is what a part of a pattern says, or its short one: `*` is any bytes; case is nothing, as git and others take their
/// own names on disks without case.
#[must_use]
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let name = folded(name);
    let is_same = crate::wild::matches(pattern, &name, |one| *one == b'*', u8::eq_ignore_ascii_case);
    is_same || name.contains(&b'~') && is_short_of(pattern, &name)
}

/// A name as it is found on file systems that take more names for the same one, but for the case: folders without case (ext4, f2fs,
/// tmpfs) and HFS+ leave letters out and fold others to those of ASCII, FAT and NTFS take dots and blanks off the end, and
/// after a colon NTFS has a stream of the file.
#[must_use]
pub fn folded(name: &[u8]) -> Cow<'_, [u8]> {
    let is_plain = |byte: &u8| byte.is_ascii() && *byte != b':';
    if name.iter().all(is_plain) && !name.ends_with(b".") && !name.ends_with(b" ") {
        return Cow::Borrowed(name);
    }
    let Ok(text) = std::str::from_utf8(name) else { return Cow::Borrowed(name) };
    let mut folded = String::with_capacity(text.len());
    for letter in text.chars().take_while(|letter| *letter != ':') {
        match letter {
            // Left out (Default_Ignorable_Code_Point).
            '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'
            | '\u{1160}'
            | '\u{17b4}'
            | '\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fff8}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}' => {}
            // Of all other letters these alone fold to ASCII's.
            '\u{17f}' => folded.push('s'),
            '\u{212a}' => folded.push('k'),
            '\u{df}' | '\u{1e9e}' => folded.push_str("ss"),
            '\u{fb00}' => folded.push_str("ff"),
            '\u{fb01}' => folded.push_str("fi"),
            '\u{fb02}' => folded.push_str("fl"),
            '\u{fb03}' => folded.push_str("ffi"),
            '\u{fb04}' => folded.push_str("ffl"),
            '\u{fb05}' | '\u{fb06}' => folded.push_str("st"),
            other => folded.push(other),
        }
    }
    folded.truncate(folded.trim_end_matches(['.', ' ']).len());
    if folded.is_empty() { Cow::Borrowed(name) } else { Cow::Owned(folded.into_bytes()) }
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
            "lefthook-local.yml",
            "a/.lefthook/pre-commit/x.sh",
            ".config/lefthook.toml",
            ".lintstagedrc.mjs",
            "lint-staged.config.js",
            "simple-git-hooks.cjs",
            "mise.production.toml",
            ".ocamlinit",
            "work.sublime-project",
            ".dir-locals-2.el",
            ".pnpmfile.mjs",
            "_darcs/prefs/defaults",
            ".github/hooks/x.json",
            ".openhands/setup.sh",
            "a/.config/git/config",
        ] {
            assert!(why(Path::new(path)).is_some(), "{path}");
        }
        for path in [
            "",
            "src/main.rs",
            ".gitignore",
            "git/config",
            ".github/x.md",
            "claude",
            "a.pth.txt",
            ".envrc2",
            "lefthook.go",
            "src/lefthook_test.rb",
            "simple-git-hooks.md",
            "mise.md",
            "crush.rs",
            "pnpm-workspace.yaml",
            "pixi.toml",
            ".env",
            ".python-version",
            "sublime-project",
            ".github/workflows/ci.yml",
            ".gradle/8.5/checksums.bin",
            ".local/share/x",
            ".config/x/y",
            ".m2/repository/x.jar",
        ] {
            assert_eq!(why(Path::new(path)), None, "{path}");
        }
    }

    #[test]
    fn what_tools_of_few_people_run_is_known_too() {
        for path in [
            ".theia/tasks.json",
            "a/.theia/settings.json",
            ".arcconfig",
            ".git-crypt/keys/default/0/AA.gpg",
            ".lsp/config.edn",
            "buildServer.json",
            ".bloop/x.json",
            ".smartcd_enter",
            ".yadm/bootstrap",
            ".chezmoi.toml.tmpl",
            ".chezmoiscripts/run_x.sh",
            ".gnupg/gpg-agent.conf",
            ".config/direnv/direnvrc",
            ".config/fumehood/policy.toml",
            ".config/Code/User/settings.json",
            ".gradle/init.d/x.gradle",
            ".local/bin/git",
            ".gdbinit.py",
            ".config/go/env",
            "a/.ctags.d/x.ctags",
        ] {
            assert!(why(Path::new(path)).is_some(), "{path}");
        }
        let marked = [
            ".arclint",
            ".actrc",
            "a/Berksfile",
            "debian/rules",
            "magefile.go",
            "magefiles/x.go",
            ".moon/workspace.yml",
            ".prototools",
            ".golangci.yml",
            "project/plugins.sbt",
            "psalm.xml",
            "install.conf.yaml",
            "a/.classpath",
            ".clj-kondo/config.edn",
            ".clj-kondo/hooks/x.clj",
            ".perlcriticrc",
            "a/.clang-tidy",
            ".vale.ini",
            "build/compile_commands.json",
            ".zellij.kdl",
            "sorbet/config",
        ];
        for path in marked {
            assert!(list().executes(Path::new(path)).is_some() && why(Path::new(path)).is_none(), "{path}");
        }
        assert!(
            list().executes(Path::new("rules")).is_none() && list().executes(Path::new("debian/control")).is_none()
        );
        // Read by programs that run nothing for it (decision 0096).
        for path in [
            ".mailmap",
            ".gitignore",
            ".a.swp",
            ".a.un~",
            "pyrightconfig.json",
            ".watchmanconfig",
            "go.env",
            ".stow-local-ignore",
        ] {
            assert!(list().executes(Path::new(path)).is_none() && why(Path::new(path)).is_none(), "{path}");
        }
    }

    #[test]
    fn names_that_an_attacker_tried_are_as_others_of_their_kind() {
        for path in [
            "a/.run/x.run.xml",
            "x.ipr",
            ".replit",
            ".codesandbox/tasks.json",
            "devfile.yaml",
            ".vibe/config.toml",
            ".codebuddy/settings.json",
            "conductor.json",
            "gptme.toml",
            ".flox/env/manifest.toml",
            ".lando.local.yml",
            ".jj/repo/store/git_target",
        ] {
            assert!(why(Path::new(path)).is_some(), "{path}");
        }
        for path in [
            "a/poetry.lock",
            "bun.lockb",
            "constraints-dev.txt",
            "app/app.gradle.kts",
            "gradle/libs.versions.toml",
            "buildSrc/src/main/kotlin/x.kt",
            "x.vcxproj",
            "Dockerfile.dev",
            "Makefile.am",
            "docs/conf.py",
            "PKGBUILD",
        ] {
            assert!(list().executes(Path::new(path)).is_some() && why(Path::new(path)).is_none(), "{path}");
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
    fn a_name_that_some_file_system_takes_for_a_control_files_is_one() {
        for name in [
            ".g\u{200c}it",
            ".git.",
            ".GIT ",
            ".git::$INDEX_ALLOCATION",
            ".v\u{17f}code",
            ".en\u{feff}vrc",
            ".git\u{fe0f}",
            ".gitcon\u{fb01}g",
            ".envrc. .",
            "GIT~1",
            "a/VSCODE~1/tasks.json",
            "ENVRC~1",
        ] {
            assert!(why(Path::new(name)).is_some(), "{name:?}");
        }
        for name in ["...", ". .", ":", "a:b", "\u{200c}", "stra\u{df}e", "git.", "x.", "GIT~", "notes~1"] {
            assert_eq!(why(Path::new(name)), None, "{name:?}");
        }
        assert_eq!(
            (&*folded(b"..."), &*folded(b"\xff.git."), &*folded(b"a.b")),
            (&b"..."[..], &b"\xff.git."[..], &b"a.b"[..])
        );
    }

    #[test]
    fn what_lies_on_the_way_to_an_entry_is_known() {
        let beyond = |path: &str| list().beyond(Path::new(path));
        assert!(beyond("a/.bundle") == [Path::new("a/.bundle/config")] && beyond(".bundle/config").is_empty());
        assert!(beyond(".dvc").contains(&".dvc".into()), "of a name with `*` the folder: {:?}", beyond(".dvc"));
        assert!(list().is_above(Path::new(".dvc")) && !list().is_above(Path::new("a/.dvc")));
        assert!(!list().is_above(Path::new("")) && beyond("").is_empty() && beyond("src").is_empty());
    }

    #[test]
    fn a_folder_that_is_opened_by_itself_is_known_by_its_whole_path() {
        let of = |path: &str, of_any_name| list().folder(Path::new(path), of_any_name);
        let within = Some(PathBuf::new());
        for path in [
            "/home/u/.config/nvim",
            "/home/u/.config/fish/functions",
            "/p/.github/hooks",
            "/p/.vscode/x",
            "/p/.husky/_",
            "/home/u/.cargo/registry/src",
            "/p/.claude/worktrees",
            "/p/.claude/worktrees/x/.vscode",
        ] {
            assert_eq!([of(path, false), of(path, true)], [within.clone(), within.clone()], "{path}");
        }
        assert!(of("/home/u/.config", false).is_some() && of("/home/u/.config/Code", false).is_some());
        assert!(of("/p/.jj/repo", false).is_some() && of("/p/.yarn", false).is_some());
        assert!(of("/p/tools", true) == Some("bazel".into()) && of("/p/tools", false).is_none());
        for path in ["/", "/p", "/home/u/.config/other", "/p/.claude/worktrees/x", "/p/a/.tmp/x", "/p/.git"] {
            assert!(of(path, false).is_none(), "{path}");
        }
    }

    #[test]
    fn a_pointer_is_an_entry_as_a_file_and_none_as_a_folder() {
        let repo = Path::new("a/.jj/repo");
        assert!(list().covering(repo, false).is_some() && list().covering(repo, true).is_none());
        assert!(list().at_top(Path::new(".jj/repo"), false).is_some());
        assert!(list().covering(&repo.join("config.toml"), false).is_some());
        assert!(list().covering(&repo.join("store/x"), false).is_none());
    }

    #[test]
    fn marks_match_names_and_the_ends_of_paths() {
        for path in [
            "Makefile",
            "a/b/makefile",
            "x/conftest.py",
            ".storybook/main.ts",
            "Taskfile.yaml",
            ".github/workflows/ci.yml",
            "requirements-dev.txt",
            "a.pth",
            "pnpm-workspace.yaml",
            "pixi.toml",
            ".env",
            ".python-version",
            ".venv/pyvenv.cfg",
            "env/bin/python",
        ] {
            assert!(list().executes(Path::new(path)).is_some(), "{path}");
        }
        assert!(list().executes(Path::new("Makefile/x.c")).is_none());
        assert!(list().instructs(Path::new("docs/AGENTS.md")).is_some());
        assert!(matches(b"*a*b", b"xxaxxab") && !matches(b"*a*b", b"xxaxx") && matches(b"*", b""));
    }
}
