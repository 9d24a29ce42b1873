//! A workspace whose git folder lies elsewhere: linked worktree, submodule, symbolic link.
//!
//! `.git` may have been planted to make us grant a stranger's folder: so the folder must look like git's, belong to the
//! workspace's owner, and - where git writes a link back - point back at this workspace.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::FileType;
use serde::Serialize;

use crate::state::{Dir, path_text};

/// Most bytes that are read of a file that says where another one lies, or which branch is checked out.
pub const MAX_POINTER: u64 = 8192;

/// What git needs that does not lie in the workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GitElsewhere {
    /// The folder of this worktree or submodule.
    #[serde(with = "path_text")]
    pub git_dir: PathBuf,
    /// The folder that it shares with others; the same as `git_dir` for a submodule.
    #[serde(with = "path_text")]
    pub common_dir: PathBuf,
    /// What `.git` says: a path, perhaps relative to the workspace.
    #[serde(with = "path_text")]
    pub pointer: PathBuf,
}

/// Why git's folder is not granted. The run goes on; git does not work inside, and the plan says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GitProblem {
    /// Where `.git` leads.
    pub leads_to: String,
    /// Why it is not followed.
    pub why: &'static str,
}

/// Finds git's folder, if it lies out of the workspace.
///
/// # Errors
/// It is not shown, and why.
pub fn elsewhere(root: &Path, below: &Dir) -> Result<Option<GitElsewhere>, GitProblem> {
    Ok(leads(root, below)?.filter(|git| !git.git_dir.starts_with(root)))
}

/// Git's folder where it lies in the workspace, and `.git` is a link or a file that leads to it.
pub fn within(root: &Path, below: &Dir) -> Option<PathBuf> {
    leads(root, below).ok().flatten().map(|git| git.git_dir).filter(|folder| folder.starts_with(root))
}

/// Where `.git` leads, if it is a link or a file.
pub(super) fn leads(root: &Path, below: &Dir) -> Result<Option<GitElsewhere>, GitProblem> {
    match below.kind(".git") {
        Ok(Some(FileType::RegularFile)) => pointed(root, below).map(Some),
        Ok(Some(FileType::Symlink)) => linked(root, below).map(Some),
        Ok(_) | Err(_) => Ok(None),
    }
}

fn pointed(root: &Path, below: &Dir) -> Result<GitElsewhere, GitProblem> {
    let text = below.read(".git", MAX_POINTER).unwrap_or_default();
    let leads_to = text.trim_ascii_end().strip_prefix(b"gitdir: ").unwrap_or_default();
    let problem = |why| GitProblem { leads_to: crate::fault::show_bytes(leads_to), why };
    if leads_to.is_empty() {
        return Err(problem("the file `.git` does not begin with `gitdir: `"));
    }
    let git_dir = resolve(root, Path::new(OsStr::from_bytes(leads_to))).ok_or(problem("it leads above the root"))?;
    let folder = owned(&git_dir, below).map_err(problem)?;
    let common = folder.read("commondir", MAX_POINTER).ok();
    let Some(common) = common else {
        // What lies in the workspace is shown with it.
        if git_dir.starts_with(root) {
            return Ok(grant(git_dir.clone(), git_dir, OsStr::from_bytes(leads_to)));
        }
        // A submodule: its configuration names its worktree.
        let config = folder.read("config", 1 << 20).unwrap_or_default();
        let back = worktree_of(&config).and_then(|path| resolve(&git_dir, &path));
        if back.as_deref() != Some(root) {
            return Err(problem("its configuration does not name this workspace as its worktree"));
        }
        return Ok(grant(git_dir.clone(), git_dir, OsStr::from_bytes(leads_to)));
    };
    let back = folder.read("gitdir", MAX_POINTER).unwrap_or_default();
    let back = resolve(&git_dir, Path::new(OsStr::from_bytes(back.trim_ascii_end())));
    if back.as_deref() != Some(&root.join(".git")) {
        return Err(problem("it does not point back at this workspace"));
    }
    let common_dir = resolve(&git_dir, Path::new(OsStr::from_bytes(common.trim_ascii_end())));
    let common_dir = common_dir.ok_or(problem("its common folder lies above the root"))?;
    if git_dir.parent() != Some(&common_dir.join("worktrees")) {
        return Err(problem("it does not lie in the `worktrees` of its common folder"));
    }
    owned(&common_dir, below).map_err(problem)?;
    Ok(grant(git_dir, common_dir, OsStr::from_bytes(leads_to)))
}

/// A link asks nobody: what it leads to is shown only where it lies in the workspace, or is granted by itself.
fn linked(root: &Path, below: &Dir) -> Result<GitElsewhere, GitProblem> {
    let target = rustix::fs::readlinkat(below, ".git", Vec::new()).map(|t| t.into_bytes()).unwrap_or_default();
    let problem = |why| GitProblem { leads_to: crate::fault::show_bytes(&target), why };
    let git_dir = resolve(root, Path::new(OsStr::from_bytes(&target))).ok_or(problem("it leads above the root"))?;
    if !git_dir.starts_with(root) {
        return Err(problem(
            "a link out of the workspace is not followed: grant that folder, or work in its own repository",
        ));
    }
    owned(&git_dir, below).map_err(problem)?;
    Ok(grant(git_dir.clone(), git_dir, OsStr::from_bytes(&target)))
}

/// The folder, if it looks like git's and belongs to the owner of the workspace.
fn owned(path: &Path, below: &Dir) -> Result<Dir, &'static str> {
    let dir = Dir::open(path).or(Err("it cannot be opened without following a link"))?;
    let owner = |d: &Dir| rustix::fs::fstat(d).map(|s| s.st_uid);
    if owner(&dir) != owner(below) {
        return Err("it belongs to somebody else than the workspace");
    }
    if dir.kind("HEAD") != Ok(Some(FileType::RegularFile)) {
        return Err("it has no `HEAD`: it is no folder of git's");
    }
    let whole = dir.kind("objects") == Ok(Some(FileType::Directory))
        || dir.kind("commondir") == Ok(Some(FileType::RegularFile));
    if whole { Ok(dir) } else { Err("it has neither `objects` nor `commondir`: it is no folder of git's") }
}

fn grant(git_dir: PathBuf, common_dir: PathBuf, pointer: &OsStr) -> GitElsewhere {
    GitElsewhere { git_dir, common_dir, pointer: PathBuf::from(pointer) }
}

/// `core.worktree` of a submodule's configuration.
#[must_use]
pub fn worktree_of(config: &[u8]) -> Option<PathBuf> {
    let mut core = false;
    for line in config.split(|&b| b == b'\n').map(<[u8]>::trim_ascii) {
        if line.starts_with(b"[") {
            core = line.eq_ignore_ascii_case(b"[core]");
        } else if core && let Some(at) = line.iter().position(|&b| b == b'=') {
            let (key, value) = line.split_at_checked(at)?;
            if key.trim_ascii().eq_ignore_ascii_case(b"worktree") {
                return Some(PathBuf::from(OsStr::from_bytes(value.get(1..)?.trim_ascii())));
            }
        }
    }
    None
}

/// A path as git reads it, relative to `base`, with `.` and `..` taken out by their spelling: what is opened afterwards
/// must have no link on its way, so the spelling is the truth. `None` if it climbs above the root.
#[must_use]
pub fn resolve(base: &Path, path: &Path) -> Option<PathBuf> {
    let mut resolved = PathBuf::new();
    for part in base.join(path).components() {
        match part {
            Component::ParentDir => {
                if !resolved.pop() {
                    return None;
                }
            }
            Component::CurDir => {}
            Component::RootDir | Component::Normal(_) | Component::Prefix(_) => resolved.push(part),
        }
    }
    Some(resolved)
}
