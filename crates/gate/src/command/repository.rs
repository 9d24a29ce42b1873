//! What a repository's own configuration makes git start.
//!
//! Most of it is overridden by the environment (`resources/commands/programs/git.toml`). What has names of its own choice
//! (`filter.X.clean`, `diff.X.textconv`, includes) cannot be: so the configuration may only have keys that start nothing, and git
//! is refused where it has others. Nor may git find another repository than the one of the folder where commands run. A workspace comes from somewhere, and its `.git/config` with it.

use std::path::{Path, PathBuf};

use super::options::blocked;
use crate::blocked::Blocked;
use crate::files::{self, FileType};

/// Longer than this is no configuration that anybody wrote.
const MAX_CONFIGURATION: u64 = 256 * 1024;

/// Keys that start nothing, `section.key` in small letters; a section of its own alone stands for all its keys.
const HARMLESS: &[&str] = &[
    "core.repositoryformatversion",
    "core.filemode",
    "core.bare",
    "core.logallrefupdates",
    "core.ignorecase",
    "core.precomposeunicode",
    "core.symlinks",
    "core.autocrlf",
    "core.eol",
    "core.safecrlf",
    "core.quotepath",
    "core.abbrev",
    "core.untrackedcache",
    "core.commitgraph",
    "core.longpaths",
    "remote.url",
    "remote.fetch",
    "remote.pushurl",
    "remote.push",
    "remote.tagopt",
    "remote.prune",
    "remote.pushdefault",
    "branch.",
    "user.name",
    "user.email",
    "user.signingkey",
    "author.",
    "committer.",
    "init.defaultbranch",
    "pull.rebase",
    "pull.ff",
    "push.default",
    "push.autosetupremote",
    "fetch.prune",
    "merge.conflictstyle",
    "merge.ff",
    "rebase.autosquash",
    "rerere.enabled",
    "diff.algorithm",
    "diff.renames",
    "diff.colormoved",
    "diff.mnemonicprefix",
    "log.date",
    "log.decorate",
    "status.short",
    "status.branch",
    "status.showuntrackedfiles",
    "color.",
    "column.",
    "advice.",
    "gc.auto",
    "maintenance.auto",
    "maintenance.strategy",
    "extensions.objectformat",
    "extensions.refstorage",
    "extensions.worktreeconfig",
    "submodule.url",
    "submodule.active",
    "lfs.repositoryformatversion",
    "index.version",
    "feature.manyfiles",
    "pack.threads",
];

/// Why git may not be used somewhere.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// It would find another repository than the workspace's own.
    Elsewhere(String),
    /// The workspace's own repository may start programs.
    Configuration(String),
}

impl Unfit {
    pub(super) fn told(self, program: &str) -> Blocked {
        match self {
            Self::Elsewhere(why) => {
                let what = format!("`{program}` would use a repository that is not the workspace's own");
                let instead = "git in the workspace's own repository, in a line of its own; another repository is a workspace of its own";
                blocked("commands.git/elsewhere", what, why, instead)
            }
            Self::Configuration(why) => {
                let what = format!("`{program}` would read a configuration that may start programs");
                let instead = "take it out of the repository's own configuration, or use git outside";
                blocked("commands.git/configuration", what, why, instead)
            }
        }
    }
}

/// Looks for the repository that git would find from `folder` on, as git does: `.git` in it or the folder itself, then the
/// folders above. It must be the one of `root`, and its configuration harmless. Both paths are without links. `writes`: the line
/// itself may make what is not there yet.
pub(super) fn unfit(root: &Path, folder: &Path, writes: bool) -> Option<Unfit> {
    let elsewhere = |why: String| Some(Unfit::Elsewhere(why));
    for place in folder.ancestors() {
        let shown = place.display();
        let kind = files::facts(&place.join(".git")).map(|facts| facts.kind);
        if place == root {
            let own = match kind {
                Some(FileType::Directory) if is_repository(&place.join(".git")) => Some(place.join(".git")),
                Some(FileType::RegularFile) => match linked(place) {
                    Some(git) => Some(git),
                    None => {
                        return elsewhere(format!("`{shown}/.git` leads to no repository that belongs to this folder"));
                    }
                },
                Some(FileType::Symlink) => return elsewhere(format!("`{shown}/.git` is a link")),
                Some(_) | None => None,
            };
            if let Some(git) = own {
                return if writes && folder != root {
                    elsewhere("the line also writes, and could make another repository below".to_owned())
                } else {
                    submodules(place).or_else(|| configuration(&git)).map(Unfit::Configuration)
                };
            }
        } else if kind.is_some() {
            return elsewhere(format!("`{shown}/.git` is the repository that it would find"));
        }
        if is_repository(place) {
            return elsewhere(format!("`{shown}` is a bare repository, which is used with what its own `config` says"));
        }
    }
    if writes {
        elsewhere("there is no repository, and the line also writes, so that it could make one".to_owned())
    } else {
        None
    }
}

/// What git takes for a repository, or rather more.
fn is_repository(folder: &Path) -> bool {
    let has = |name: &str| files::facts(&folder.join(name)).is_some();
    has("HEAD") && (has("commondir") || has("objects") && has("refs"))
}

/// The repository of a linked worktree, if it knows this folder as its own: git writes both sides.
fn linked(place: &Path) -> Option<PathBuf> {
    let git = elsewhere(place)?;
    let back = read(&git.join("gitdir"))?;
    let back = files::canonical(&git.join(back.trim()))?;
    (back == files::canonical(&place.join(".git"))?).then_some(git)
}

fn submodules(place: &Path) -> Option<String> {
    let modules = place.join(".gitmodules");
    files::facts(&modules)?;
    let enters = |keys: Vec<String>| keys.iter().any(|key| key.ends_with(".ignore") || key.ends_with(".update"));
    let unfit = read(&modules).and_then(|text| keys(&text)).is_none_or(enters);
    unfit.then(|| format!("`{}` says how submodules are entered", modules.display()))
}

/// The folder that a `.git` file names.
fn elsewhere(place: &Path) -> Option<PathBuf> {
    let text = read(&place.join(".git"))?;
    let named = text.strip_prefix("gitdir:")?.trim();
    Some(place.join(named))
}

fn configuration(git: &Path) -> Option<String> {
    let mut folders = vec![git.to_owned()];
    // A linked worktree has the configuration of the repository that it belongs to.
    if let Some(common) = read(&git.join("commondir")) {
        folders.push(git.join(common.trim()));
    }
    let files = folders.iter().flat_map(|folder| [folder.join("config"), folder.join("config.worktree")]);
    for file in files {
        if files::facts(&file).is_none() {
            continue;
        }
        let shown = file.display();
        let Some(text) = read(&file) else { return Some(format!("`{shown}` cannot be read")) };
        let Some(keys) = keys(&text) else { return Some(format!("`{shown}` is not written plainly")) };
        if let Some(key) = keys.iter().find(|key| !harmless(key)) {
            return Some(format!("`{shown}` sets `{key}`"));
        }
    }
    let attributes = folders.iter().map(|folder| folder.join("info/attributes"));
    // An empty one is the stand-in that keeps others from writing it.
    let says = |file: &PathBuf| files::facts(file).is_some() && read(file).is_none_or(|text| !text.trim().is_empty());
    attributes.into_iter().find(says).map(|file| format!("`{}` names filters", file.display()))
}

fn harmless(key: &str) -> bool {
    HARMLESS.iter().any(|known| match known.strip_suffix('.') {
        Some(section) => key.split_once('.').is_some_and(|(of, _)| of == section),
        None => *known == key,
    })
}

fn read(path: &Path) -> Option<String> {
    if files::facts_followed(path)?.kind != FileType::RegularFile {
        return None;
    }
    let text = String::from_utf8(files::head(path, MAX_CONFIGURATION)?).ok()?;
    (u64::try_from(text.len()).ok()? < MAX_CONFIGURATION).then_some(text)
}

/// The keys of a configuration, `section.key` without sub-section; none where a line is not one of the plain forms.
fn keys(text: &str) -> Option<Vec<String>> {
    let mut section = String::new();
    let mut all = Vec::new();
    for line in text.lines() {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if line.ends_with('\\') {
            return None;
        }
        if let Some(rest) = line.strip_prefix('[') {
            let inner = rest.strip_suffix(']')?;
            let (name, below) = inner.split_once([' ', '\t']).unwrap_or((inner, "\"\""));
            let quoted = below.trim().strip_prefix('"').and_then(|below| below.strip_suffix('"'))?;
            if quoted.contains('"') || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
                return None;
            }
            section = name.to_ascii_lowercase();
            continue;
        }
        let key = line.split(['=', ' ', '\t']).next().unwrap_or_default();
        if key.is_empty() || !key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
            return None;
        }
        all.push(format!("{section}.{}", key.to_ascii_lowercase()));
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(config: &str) -> Option<Unfit> {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join(".git/info")).unwrap();
        std::fs::create_dir_all(root.path().join("sub/deep")).unwrap();
        std::fs::write(root.path().join(".git/config"), config).unwrap();
        repository(&root.path().join(".git"));
        unfit(root.path(), &root.path().join("sub/deep"), false)
    }

    /// What makes a folder a repository.
    fn repository(folder: &Path) {
        std::fs::create_dir_all(folder.join("objects")).unwrap();
        std::fs::create_dir_all(folder.join("refs")).unwrap();
        std::fs::write(folder.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    }

    #[test]
    fn what_git_writes_itself_is_fit() {
        let usual = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n[remote \"origin\"]\n\turl = https://x/y.git\n\
                     \tfetch = +refs/heads/*:refs/remotes/origin/*\n[branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n";
        assert_eq!(with(usual), None);
    }

    #[test]
    fn whatever_names_a_program_is_not() {
        for config in [
            "[filter \"x\"]\n\tclean = touch pwned\n",
            "[diff \"x\"]\n\ttextconv = sh\n",
            "[include]\n\tpath = ../evil\n",
            "[includeIf \"gitdir:/\"]\n\tpath = ../evil\n",
            "[core]\n\tfsmonitor = ./x\n",
            "[CORE]\n\tFsMonitor = ./x\n",
            "[core] fsmonitor = ./x\n",
            "[core]\n\tfilemode = true\\\n",
            "[filter.x]\nclean = y\n",
            "[pretty]\n\tx = %G?\n",
            "[alias]\n\tst = !x\n",
        ] {
            assert!(with(config).is_some(), "{config}");
        }
    }

    #[test]
    fn attributes_of_the_repository_and_submodules_that_want_to_be_entered_are_refused() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join(".git/info")).unwrap();
        repository(&root.path().join(".git"));
        assert_eq!(unfit(root.path(), root.path(), true), None);
        std::fs::write(root.path().join(".gitmodules"), "[submodule \"a\"]\n\tpath = a\n\tignore = none\n").unwrap();
        assert!(unfit(root.path(), root.path(), false).is_some());
        std::fs::remove_file(root.path().join(".gitmodules")).unwrap();
        std::fs::write(root.path().join(".git/info/attributes"), "* filter=x\n").unwrap();
        assert!(unfit(root.path(), root.path(), false).is_some());
    }

    #[test]
    fn only_the_folders_own_repository_is_used() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        let elsewhere =
            |folder: &str, writes| matches!(unfit(root.path(), &at(folder), writes), Some(Unfit::Elsewhere(_)));
        std::fs::create_dir_all(at("plain/deep")).unwrap();
        // Nothing is there: git itself says so, unless the line makes something.
        assert_eq!(unfit(root.path(), &at("plain"), false), None);
        assert!(elsewhere("plain", true));
        repository(&at(".git"));
        repository(&at("bare"));
        repository(&at("dep/.git"));
        std::fs::create_dir_all(at("dep/sub")).unwrap();
        assert_eq!(unfit(root.path(), &at("plain/deep"), false), None);
        assert_eq!(unfit(root.path(), root.path(), true), None);
        assert!(elsewhere("plain", true) && elsewhere("bare", false) && elsewhere("bare/refs", false));
        assert!(elsewhere("dep", false) && elsewhere("dep/sub", false));
        assert!(matches!(unfit(&at("plain"), &at("plain/deep"), false), Some(Unfit::Elsewhere(_))), "the one above");
        // A worktree that git linked, and a file that only says so.
        repository(&at("bare/worktrees/w"));
        std::fs::create_dir_all(at("w")).unwrap();
        std::fs::write(at("w/.git"), format!("gitdir: {}\n", at("bare/worktrees/w").display())).unwrap();
        assert!(matches!(unfit(&at("w"), &at("w"), false), Some(Unfit::Elsewhere(_))));
        std::fs::write(at("bare/worktrees/w/gitdir"), format!("{}\n", at("w/.git").display())).unwrap();
        assert_eq!(unfit(&at("w"), &at("w"), false), None);
        std::fs::remove_file(at("w/.git")).unwrap();
        std::os::unix::fs::symlink("../bare", at("w/.git")).unwrap();
        assert!(matches!(unfit(&at("w"), &at("w"), false), Some(Unfit::Elsewhere(_))));
    }
}
