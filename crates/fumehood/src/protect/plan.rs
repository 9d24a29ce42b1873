//! What is protected in one workspace, found at start.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use rustix::io::{Errno, Result};
use serde::Serialize;

use super::git::{self, GitElsewhere, GitProblem};
use super::list::{List, Missing, Protected, Shape};
use crate::state::{Cross, Dir, is_stand_in, path_text};

/// How deep and how far nested repositories are looked for.
const NESTED_DEPTH: usize = 4;
const NESTED_ENTRIES: usize = 20_000;
/// Folders in which nobody works.
const SKIPPED: [&str; 4] = ["node_modules", "target", ".venv", "venv"];
/// How many names a `*` may stand for.
const MOST_STARS: usize = 1000;

/// A protected path that exists: to be bound read-only on itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Bind {
    /// Relative to the workspace; no part of it is a link.
    #[serde(with = "path_text")]
    pub path: PathBuf,
    /// What it is on the disk.
    pub kind: Shape,
    /// For people.
    pub category: String,
    /// Why.
    pub why: String,
}

/// A protected path that is missing: to be made empty (journalled first), bound read-only, and removed at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stub {
    /// Relative to the workspace.
    #[serde(with = "path_text")]
    pub path: PathBuf,
    /// What to make.
    pub kind: Shape,
    /// For people.
    pub category: String,
    /// Why.
    pub why: String,
}

/// A protected path that can be neither bound nor stubbed; looked at when the run is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Watch {
    /// Relative to the workspace; may hold `*`.
    pub pattern: String,
    /// Why not bound: it is missing, a symbolic link, or of another kind than expected.
    pub because: &'static str,
}

/// What a protected path was at start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Seen {
    /// Inode.
    pub inode: u64,
    /// File type bits and mode.
    pub mode: u32,
    /// Size.
    pub size: i64,
    /// Modification, ns.
    pub mtime: (i64, u64),
    /// Where it leads, if it is a link.
    pub target: Option<Vec<u8>>,
}

/// What is protected in one workspace, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ProtectPlan {
    /// The workspace.
    #[serde(with = "path_text")]
    pub root: PathBuf,
    /// Exist: bind read-only.
    pub binds: Vec<Bind>,
    /// Parents of binds and stubs, outermost first: bind on themselves, so that they cannot be renamed away.
    pub pins: Vec<PathBuf>,
    /// Missing: make, bind, remove.
    pub stubs: Vec<Stub>,
    /// Looked at in the end.
    pub watch: Vec<Watch>,
    /// Git's folder, if it lies elsewhere.
    pub git: Option<GitElsewhere>,
    /// Git's folder lies elsewhere and is not granted, and why.
    pub git_problem: Option<GitProblem>,
    /// Repositories below: not protected in `rw`.
    pub nested: Vec<PathBuf>,
    /// The search for them was cut short.
    pub nested_cut: bool,
    /// Control files with other names (hard links) that were not all found: such a name could be written.
    pub linked: Vec<PathBuf>,
    /// What was there at start, by path.
    #[serde(skip)]
    pub before: BTreeMap<PathBuf, Seen>,
}

/// Looks through a workspace.
///
/// # Errors
/// What the kernel answers when the workspace itself cannot be read.
pub fn plan(root: &Path, below: &Dir, list: &List) -> Result<ProtectPlan> {
    let mut plan = ProtectPlan { root: root.into(), before: seen(below, list)?, ..ProtectPlan::default() };
    match below.kind(".git")? {
        Some(FileType::RegularFile) => {
            let why = "says where git's folder is: another one brings its own hooks".into();
            plan.binds.push(Bind { path: ".git".into(), kind: Shape::File, category: "version control".into(), why });
        }
        Some(FileType::Symlink) => plan.watch.push(Watch { pattern: ".git".into(), because: "it is a symbolic link" }),
        Some(_) => {}
        None => plan.watch.push(Watch { pattern: ".git".into(), because: "it is missing" }),
    }
    match git::elsewhere(root, below) {
        Ok(Some(found)) if found.git_dir.starts_with(root) => plan.git_within(&found),
        Ok(found) => plan.git = found,
        Err(problem) => plan.git_problem = Some(problem),
    }
    for entry in &list.path {
        plan.entry(below, entry)?;
    }
    plan.other_names(below)?;
    let pins: BTreeSet<_> =
        plan.binds.iter().map(|b| &b.path).chain(plan.stubs.iter().map(|s| &s.path)).flat_map(|p| parents(p)).collect();
    plan.pins = pins.into_iter().collect();
    plan.nested(below);
    Ok(plan)
}

impl ProtectPlan {
    fn entry(&mut self, below: &Dir, entry: &Protected) -> Result<()> {
        for path in expand(below, &entry.pattern)? {
            let because = match look(below, &path)? {
                Found::Is(kind) if kind == entry.kind => {
                    self.binds.push(Bind { path, kind, category: entry.category.clone(), why: entry.why.clone() });
                    continue;
                }
                Found::Nothing if entry.missing == Missing::Stub => {
                    let (category, why) = (entry.category.clone(), entry.why.clone());
                    self.stubs.push(Stub { path, kind: entry.kind, category, why });
                    continue;
                }
                // A file where a folder is expected (or the other way round) is still read by somebody.
                Found::Is(kind) => {
                    self.binds.push(Bind { path, kind, category: entry.category.clone(), why: entry.why.clone() });
                    continue;
                }
                Found::Nothing => "it is missing",
                Found::NoParent => "its folder is missing",
                Found::Link => {
                    self.target_of(below, &path, entry);
                    "it is a symbolic link"
                }
                Found::Special => "it is neither a file nor a folder",
            };
            self.watch.push(Watch { pattern: path.to_string_lossy().into_owned(), because });
        }
        if entry.pattern.contains('*') {
            self.watch.push(Watch { pattern: entry.pattern.clone(), because: "more may appear" });
        }
        Ok(())
    }

    /// `.git` leads to another place in the workspace: there is nothing to grant, and the same to protect.
    fn git_within(&mut self, git: &GitElsewhere) {
        for path in git.read.iter().filter_map(|path| path.strip_prefix(&self.root).ok()) {
            let kind = if path.ends_with("hooks") || path.ends_with("info") { Shape::Dir } else { Shape::File };
            let why = "steers git: the folder that `.git` leads to".to_owned();
            self.binds.push(Bind { path: path.to_owned(), kind, category: "version control".into(), why });
        }
    }

    /// A control file that is a link into the workspace (dotfiles kept in one folder): what it leads to is as protected as
    /// if it stood there itself.
    fn target_of(&mut self, below: &Dir, path: &Path, entry: &Protected) {
        let Ok(Some((parent, name))) = parent_of(below, path) else { return };
        let Ok(target) = rustix::fs::readlinkat(&parent, Path::new(&name), Vec::new()) else { return };
        let from = self.root.join(path.parent().unwrap_or(Path::new("")));
        let Some(target) = git::resolve(&from, Path::new(OsStr::from_bytes(target.to_bytes()))) else { return };
        let Ok(target) = target.strip_prefix(&self.root) else { return };
        if target.as_os_str().is_empty() || self.binds.iter().any(|bind| bind.path == target) {
            return;
        }
        if let Ok(Found::Is(kind)) = look(below, target) {
            let (category, why) = (entry.category.clone(), entry.why.clone());
            self.binds.push(Bind { path: target.to_owned(), kind, category, why });
        }
    }

    fn nested(&mut self, below: &Dir) {
        let mut left = NESTED_ENTRIES;
        let mut queue = vec![(PathBuf::new(), 0)];
        while let Some((at, depth)) = queue.pop() {
            let here = if at.as_os_str().is_empty() { Path::new(".") } else { &at };
            let Ok(dir) = below.enter(here, Cross::Yes) else { continue };
            for name in dir.names().unwrap_or_default() {
                if left == 0 {
                    self.nested_cut = true;
                    return;
                }
                left -= 1;
                if name == ".git" && depth > 0 {
                    self.nested.push(at.clone());
                } else if !is_worth_entering(&dir, &name) {
                } else if depth < NESTED_DEPTH {
                    queue.push((at.join(&name), depth + 1));
                } else {
                    self.nested_cut = true;
                }
            }
        }
        self.nested.sort();
    }
}

fn is_worth_entering(dir: &Dir, name: &OsStr) -> bool {
    name != ".git" && !SKIPPED.iter().any(|s| name == *s) && dir.kind(name) == Ok(Some(FileType::Directory))
}

/// Everything on the list that is there now.
pub(super) fn seen(below: &Dir, list: &List) -> Result<BTreeMap<PathBuf, Seen>> {
    let mut all = BTreeMap::new();
    let patterns = list.path.iter().map(|entry| entry.pattern.as_str()).chain([".git"]);
    for pattern in patterns {
        for path in expand(below, pattern)? {
            let Some((parent, name)) = parent_of(below, &path)? else { continue };
            let Some(stat) = parent.stat(&name)? else { continue };
            if is_stand_in(&parent, &name, &stat) {
                continue;
            }
            let target = if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
                Some(rustix::fs::readlinkat(&parent, Path::new(&name), Vec::new())?.into_bytes())
            } else {
                None
            };
            let mtime = (stat.st_mtime, stat.st_mtime_nsec);
            all.insert(path, Seen { inode: stat.st_ino, mode: stat.st_mode, size: stat.st_size, mtime, target });
        }
    }
    Ok(all)
}

enum Found {
    Is(Shape),
    /// But for the stand-in of another run, perhaps.
    Nothing,
    NoParent,
    Link,
    Special,
}

fn look(below: &Dir, path: &Path) -> Result<Found> {
    let Some((parent, name)) = parent_of(below, path)? else { return Ok(Found::NoParent) };
    let Some(stat) = parent.stat(&name)?.filter(|stat| !is_stand_in(&parent, &name, stat)) else {
        return Ok(Found::Nothing);
    };
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Found::Is(Shape::File),
        FileType::Directory => Found::Is(Shape::Dir),
        FileType::Symlink => Found::Link,
        FileType::Fifo | FileType::Socket | FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => {
            Found::Special
        }
    })
}

/// The folder of a path, and its last part; `None` if the folder is missing or reached by a link.
pub(super) fn parent_of(below: &Dir, path: &Path) -> Result<Option<(Dir, OsString)>> {
    let name = path.file_name().unwrap_or(OsStr::new(".")).to_owned();
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match below.enter(parent, Cross::Yes) {
        Ok(dir) => Ok(Some((dir, name))),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// The paths that a pattern stands for now. Without `*` that is the path itself, whether it is there or not.
fn expand(below: &Dir, pattern: &str) -> Result<Vec<PathBuf>> {
    let mut paths = vec![PathBuf::new()];
    for part in pattern.split('/') {
        if part != "*" {
            paths.iter_mut().for_each(|path| path.push(part));
            continue;
        }
        let mut longer = Vec::new();
        for path in paths {
            let here = if path.as_os_str().is_empty() { Path::new(".") } else { &path };
            let Ok(dir) = below.enter(here, Cross::Yes) else { continue };
            dir.each_name(|name| {
                longer.push(path.join(OsString::from_vec(name.to_vec())));
                longer.len() < MOST_STARS
            })?;
        }
        longer.sort();
        paths = longer;
    }
    Ok(paths)
}

fn parents(path: &Path) -> Vec<PathBuf> {
    path.ancestors().skip(1).filter(|p| !p.as_os_str().is_empty()).map(Path::to_owned).collect()
}
