//! What a repository's own configuration makes git start.
//!
//! Most of it is overridden by the environment (`resources/commands/programs/git.toml`). What has names of its own choice
//! (`filter.X.clean`, `diff.X.textconv`, includes) cannot be: so the configuration may only have keys that start nothing, and git
//! is refused where it has others. A workspace comes from somewhere, and its `.git/config` with it.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Longer than this is no configuration that anybody wrote.
const LONGEST: u64 = 256 * 1024;

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

/// Looks at the repositories that git would find from `folder` up to `root`; why git may not be used there.
pub(super) fn unfit(root: &Path, folder: &Path) -> Option<String> {
    let folder = if folder.starts_with(root) { folder } else { root };
    let up = folder.ancestors().take_while(|place| place.starts_with(root));
    up.filter_map(|place| place.join(".git").symlink_metadata().ok().map(|meta| (place, meta))).find_map(
        |(place, meta)| {
            let modules = place.join(".gitmodules");
            if let Some(text) = read(&modules)
                && keys(&text)
                    .is_none_or(|keys| keys.iter().any(|key| key.ends_with(".ignore") || key.ends_with(".update")))
            {
                return Some(format!("`{}` says how submodules are entered", modules.display()));
            }
            let found = if meta.is_file() { elsewhere(place) } else { Some(place.join(".git")) };
            let Some(git) = found else { return Some(format!("`{}/.git` leads to no repository", place.display())) };
            configuration(&git)
        },
    )
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
        if file.symlink_metadata().is_err() {
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
    let says =
        |file: &PathBuf| file.symlink_metadata().is_ok() && read(file).is_none_or(|text| !text.trim().is_empty());
    attributes.into_iter().find(says).map(|file| format!("`{}` names filters", file.display()))
}

fn harmless(key: &str) -> bool {
    HARMLESS.iter().any(|known| match known.strip_suffix('.') {
        Some(section) => key.split_once('.').is_some_and(|(of, _)| of == section),
        None => *known == key,
    })
}

fn read(path: &Path) -> Option<String> {
    if !path.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    File::open(path).ok()?.take(LONGEST).read_to_string(&mut text).ok()?;
    (u64::try_from(text.len()).ok()? < LONGEST).then_some(text)
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

    fn with(config: &str) -> Option<String> {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join(".git/info")).unwrap();
        std::fs::create_dir_all(root.path().join("sub/deep")).unwrap();
        std::fs::write(root.path().join(".git/config"), config).unwrap();
        unfit(root.path(), &root.path().join("sub/deep"))
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
        assert_eq!(unfit(root.path(), root.path()), None);
        std::fs::write(root.path().join(".gitmodules"), "[submodule \"a\"]\n\tpath = a\n\tignore = none\n").unwrap();
        assert!(unfit(root.path(), root.path()).is_some());
        std::fs::remove_file(root.path().join(".gitmodules")).unwrap();
        std::fs::write(root.path().join(".git/info/attributes"), "* filter=x\n").unwrap();
        assert!(unfit(root.path(), root.path()).is_some());
    }
}
