//! What git's configuration on the host names in a workspace: hooks, programs, further files.
//!
//! A run with a layer of its own may write there as it likes. Taken over, it is what git runs: so it is not taken unasked,
//! also where nothing is there yet.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::plan::follow;
use super::{git, gitdir};
use crate::state::{Cross, Dir};

/// A configuration of git's that is larger names nothing.
const MAX_CONFIG: u64 = 1 << 20;

/// A path that may be named.
pub(super) struct ConfigPath {
    /// Relative to the workspace.
    pub(super) path: PathBuf,
    /// It may be a folder; else a folder is named by chance (as a branch, or a word of an alias).
    pub(super) folder: bool,
}

/// What the configurations of the repositories in these folders name, relative to the workspace, links on the way included.
#[must_use]
pub fn named_by_git<'a>(root: &Path, below: &Dir, folders: impl IntoIterator<Item = &'a Path>) -> BTreeSet<PathBuf> {
    let (mut found, mut links) = (BTreeSet::new(), Vec::new());
    for named in folders.into_iter().flat_map(|top| named(root, below, top)) {
        let led = follow(root, below, &named.path, |link| links.push(link));
        let of_a_file = |led: &PathBuf| named.folder || below.enter(led, Cross::Yes).is_err();
        let is_whole = |led: &PathBuf| led.as_os_str().is_empty() || gitdir::split(led).is_some();
        found.extend(led.filter(|led| of_a_file(led) && !is_whole(led)));
    }
    found.extend(links);
    found
}

/// What the configuration of the repository with its working tree here may name.
pub(super) fn named(root: &Path, below: &Dir, top: &Path) -> Vec<ConfigPath> {
    let Ok(dir) = below.enter(top, Cross::Yes) else { return Vec::new() };
    let top = root.join(top);
    let mut all = Vec::new();
    for (git, config) in configurations(&top, &dir) {
        for (word, folder) in gitdir::named(&config).into_iter().filter(|(word, _)| !is_a_value(word)) {
            // Hooks and programs are looked for from the top of the working tree, further files from git's folder.
            let paths = [top.join(&word), git.join(&word)];
            let within = paths.iter().filter_map(|path| path.strip_prefix(root).ok());
            all.extend(within.map(|path| ConfigPath { path: path.to_owned(), folder }));
        }
    }
    all
}

/// The configurations of a repository, each with its folder.
fn configurations(root: &Path, below: &Dir) -> Vec<(PathBuf, Vec<u8>)> {
    let folders = match git::leads(root, below) {
        Ok(Some(found)) => vec![found.git_dir, found.common_dir],
        Ok(None) => vec![root.join(".git")],
        // What is not git's, git does not read.
        Err(_) => Vec::new(),
    };
    let files = folders.into_iter().flat_map(|folder| {
        let dir = Dir::open(&folder).ok();
        let read = |name| dir.as_ref()?.read(name, MAX_CONFIG).ok();
        ["config", "config.worktree"]
            .into_iter()
            .filter_map(read)
            .map(|text| (folder.clone(), text))
            .collect::<Vec<_>>()
    });
    files.collect()
}

/// `bare = false`, `repositoryformatversion = 0`: words that name nothing.
fn is_a_value(word: &str) -> bool {
    ["true", "false", "yes", "no", "on", "off", "auto"].contains(&word) || word.bytes().all(|b| b.is_ascii_digit())
}
