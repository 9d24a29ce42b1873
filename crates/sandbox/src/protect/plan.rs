//! What is protected in one workspace, found at start.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use policy::protected::{folded, matches};
use rustix::fs::FileType;
use rustix::io::{Errno, Result};
use serde::Serialize;

use super::git::{self, GitElsewhere};
use super::gitdir::{self, DATA, is_repository};
use super::led::Ways;
use super::links::files;
use super::list::{List, Protected, Shape};
use super::named::named;
use crate::state::{Cross, Dir, PathText, Watched, path_text};

/// How many folders of a workspace are watched at most.
const MAX_FOLDERS: usize = 200_000;
/// As many links on one way as the kernel follows.
pub(super) const MAX_LINKS: usize = 40;

/// Why a document of a policy is protected.
pub const DOCUMENT: &str =
    "a policy that this run was started with: another one would decide how the next run is confined";

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

/// What a protected path was at start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PathStat {
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
    /// Their paths. A configuration may name thousands.
    #[serde(skip)]
    pub(super) bound: BTreeSet<PathBuf>,
    /// Folders of git's, relative to the workspace: shown below a layer, from which what is harmless is taken over at the
    /// end.
    pub layers: Vec<PathBuf>,
    /// Parents of binds, layers and links among the control files, outermost first: bind on themselves, so that they cannot be renamed away.
    pub pins: Vec<PathBuf>,
    /// Every folder of the workspace but those in git's: in each one a folder of git's could be made.
    #[serde(skip)]
    pub folders: Vec<PathBuf>,
    /// Links on the way from a control file to what it says: one that is made anew is put aside, as a control file is.
    pub links: BTreeSet<PathBuf>,
    /// Folders above a free name that a control file leads to: as a link one would lead it elsewhere.
    pub ways: BTreeSet<PathBuf>,
    /// What is called `.git` and is a link, and where each leads: it stays while it leads there, and what it leads to is bound.
    pub git_links: BTreeMap<PathBuf, PathBuf>,
    /// The workspace is a folder of git's, or lies in one.
    pub within_git: Option<PathBuf>,
    /// Unix sockets in all folders but those in `layers`; nothing where one of them was not listed.
    #[serde(skip)]
    pub sockets: Option<Vec<PathBuf>>,
    /// There are more of them than can be watched.
    pub too_many: bool,
    /// There is more in a home folder than was looked at for links that lead in, or more in git's configuration.
    pub unlooked: bool,
    /// Control files with other names (hard links) that were not all found: such a name could be written.
    pub linked: Vec<PathBuf>,
    /// Documents of the policy, and links on the way to them.
    #[serde(skip)]
    pub documents: BTreeSet<PathBuf>,
    /// One of them that can be written all the same: a folder that nothing can be mounted on.
    #[serde(skip)]
    pub unheld: Option<PathBuf>,
    /// What was there at start, by path.
    #[serde(skip)]
    pub before: BTreeMap<PathBuf, PathStat>,
}

/// Looks through a workspace. `documents` are the files of the policy: a run that could write them would decide how the next
/// one is confined.
///
/// # Errors
/// What the kernel answers when the workspace itself cannot be read.
pub fn plan(root: &Path, below: &Dir, list: &List, documents: &BTreeSet<PathBuf>) -> Result<ProtectPlan> {
    let mut plan = ProtectPlan { root: root.into(), before: seen(below, list)?, ..ProtectPlan::default() };
    // What is not shown needs no protection, and whoever shows it says so.
    if let Ok(Some(found)) = git::leads(root, below) {
        plan.git_within(&found);
    }
    let (ways, top) = (Ways::of(root, below), Top::of(below));
    for entry in list.path.iter().filter(|entry| top.may_have(&entry.pattern)) {
        plan.entry(&ways, &top, entry)?;
    }
    plan.walk(below);
    plan.within_git = plan.within_git.or_else(|| gitdir::split(root).map(|_| root.to_owned()));
    let outside = plan.named(&ways);
    let (led, is_cut) = ways.led_from_above(list);
    plan.unlooked |= is_cut;
    plan.within_git = plan.within_git.or_else(|| led.contains(Path::new("")).then(|| root.to_owned()));
    for path in led {
        plan.lead(&ways, &path, true, "a control file above the workspace leads to it");
    }
    plan.led_to(&ways);
    plan.documents = super::documents(root, documents);
    for path in plan.documents.clone() {
        // A link is no more than a way, whatever it leads to.
        let is_end = link_target(below, &path).is_none();
        plan.lead(&ways, &path, is_end, DOCUMENT);
        plan.awaited(below, &path);
    }
    plan.unheld = plan.documents.iter().find(|path| !plan.holds(below, path)).cloned();
    let home = ways.of_homes().into_iter().map(|path| (path, true));
    let outside: Vec<_> = outside.into_iter().map(|path| (path, false)).chain(home).collect();
    plan.other_names(below, &outside)?;
    let held: Vec<&PathBuf> = plan.binds.iter().map(|bind| &bind.path).chain(&plan.layers).collect();
    let links = plan.standing_links(below);
    // One in what is bound is held by that.
    let links = links.keys().filter(|link| !held.iter().any(|path| link.starts_with(path)));
    let pins: BTreeSet<_> = held.iter().copied().chain(links).flat_map(|path| parents(path)).collect();
    plan.pins = pins.into_iter().collect();
    Ok(plan)
}

impl ProtectPlan {
    /// What a later look needs to know ([`super::late`]).
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn watched(&self, below: &Dir) -> Result<Watched> {
        let stat = rustix::fs::fstat(below)?;
        let held = self.binds.iter().map(|bind| &bind.path).chain(&self.layers);
        let text = |path: &PathBuf| PathText(path.clone());
        Ok(Watched {
            root: self.root.clone(),
            is: (stat.st_dev, stat.st_ino),
            held: held.map(text).collect(),
            before: self.before.keys().map(text).collect(),
            git_links: self.git_links.iter().map(|(path, led)| (text(path), text(led))).collect(),
        })
    }

    /// Links among the control files and on the way from them, and where each leads: no mount can hold one.
    pub(super) fn standing_links(&self, below: &Dir) -> BTreeMap<PathBuf, PathBuf> {
        let listed = self.before.iter().filter(|(_, seen)| seen.target.is_some()).map(|(path, _)| path);
        let paths = listed.chain(&self.links).chain(self.git_links.keys());
        paths.filter_map(|path| Some((path.clone(), link_target(below, path)?))).collect()
    }

    /// What is there and protected, relative to the root.
    pub fn control_files(&self) -> impl Iterator<Item = &Path> {
        let binds = self.binds.iter().map(|bind| bind.path.as_path());
        binds.chain(self.layers.iter().map(PathBuf::as_path)).chain(self.git_links.keys().map(PathBuf::as_path))
    }

    /// Whether what has this path cannot be written; links and free names are watched.
    fn holds(&self, below: &Dir, path: &Path) -> bool {
        match look(below, path) {
            Ok(PathKind::Is(_)) => {
                self.binds.iter().map(|bind| &bind.path).chain(&self.layers).any(|held| path.starts_with(held))
            }
            Ok(PathKind::Link | PathKind::Nothing) => true,
            Ok(PathKind::Special) | Err(_) => false,
        }
    }

    fn entry(&mut self, ways: &Ways<'_>, top: &Top, entry: &Protected) -> Result<()> {
        for path in expand(ways.below, top, &entry.pattern) {
            match look(ways.below, &path)? {
                PathKind::Is(Shape::Dir) if entry.unless_folder => {}
                // Two names with `*` may mean one file, which is mounted once.
                PathKind::Is(_) if self.bound.contains(&path) => {}
                // A file where a folder is expected (or the other way round) is still read by somebody.
                PathKind::Is(kind) => {
                    self.bind(Bind { path, kind, category: entry.category.clone(), why: entry.why.clone() });
                }
                // Nothing is found where a folder on the way is a link, too.
                PathKind::Link | PathKind::Nothing => self.lead(ways, &path, true, &entry.why),
                PathKind::Special => {}
            }
        }
        Ok(())
    }

    /// `.git` leads to another place in the workspace: there is nothing to grant, and git's folder can only be read, unless it
    /// is called so and found by [`Self::walk`].
    fn git_within(&mut self, git: &GitElsewhere) {
        for path in [&git.git_dir, &git.common_dir] {
            let Ok(path) = path.strip_prefix(&self.root) else { continue };
            if gitdir::split(path).is_none() && !self.bound.contains(path) {
                self.bind_git(path.to_owned(), Shape::Dir, "steers git: the folder that `.git` leads to");
            }
        }
    }

    /// A folder of git's by another name.
    fn bare(&mut self, path: PathBuf) {
        if path.as_os_str().is_empty() {
            self.within_git = Some(self.root.clone());
        } else if !self.bound.contains(&path) {
            self.bind_git(path, Shape::Dir, "git takes it for a folder of its own");
        }
    }

    /// What the configuration of a repository names in the workspace: hooks, programs, further files. What it names out of it is
    /// given back.
    fn named(&mut self, ways: &Ways<'_>) -> Vec<PathBuf> {
        let below = ways.below;
        let pointers = self.binds.iter().map(|bind| &bind.path).filter(|path| gitdir::is_git(path));
        let repositories = self.layers.iter().chain(pointers).chain(self.git_links.keys());
        let bare = self.binds.iter().map(|bind| bind.path.as_path()).filter(|path| {
            let names = below.look_into(*path, Cross::Yes).and_then(|dir| dir.names());
            names.is_ok_and(|names| is_repository(names.iter().map(OsString::as_os_str)))
        });
        let tops: BTreeSet<&Path> =
            repositories.filter_map(|git| git.parent()).chain(bare).chain([Path::new("")]).collect();
        let found = named(ways, tops);
        if found.cut {
            // Then nothing is written here, and nobody need know the rest.
            self.unlooked = true;
            return Vec::new();
        }
        let mut outside = Vec::new();
        for one in found.paths {
            if sys::signals::asked_to_end() {
                self.unlooked = true;
                return outside;
            }
            outside.extend(one.outside(&self.root));
            if one.is_all(&self.root) {
                self.within_git = Some(self.root.clone());
            }
            let Some(path) = one.within(&self.root).map(Path::to_owned) else { continue };
            if one.exact {
                self.awaited(below, &path);
            }
            self.lead(ways, &path, one.folder, "git's configuration names it");
        }
        outside
    }

    /// A name that may be free: what is made there is put aside.
    fn awaited(&mut self, below: &Dir, path: &Path) {
        // In a folder of git's nothing of the run's appears.
        let known = self.links.contains(path) || gitdir::split(path).is_some();
        if !known && matches!(look(below, path), Ok(PathKind::Nothing)) {
            self.links.insert(path.to_owned());
            self.ways.extend(path.ancestors().skip(1).filter(|way| !way.as_os_str().is_empty()).map(Path::to_owned));
        }
    }

    /// What links among the control files lead to, and links in what that is.
    fn led_to(&mut self, ways: &Ways<'_>) {
        let mut links: Vec<PathBuf> = self.git_links.keys().cloned().collect();
        links.extend(self.layers.iter().flat_map(|layer| files(ways.below, layer, &DATA, FileType::Symlink)));
        let mut looked = BTreeSet::new();
        loop {
            let folders = self.binds.iter().filter(|bind| bind.kind == Shape::Dir).map(|bind| bind.path.clone());
            let folders: Vec<PathBuf> = folders.filter(|folder| looked.insert(folder.clone())).collect();
            links.extend(folders.iter().flat_map(|folder| files(ways.below, folder, &[], FileType::Symlink)));
            if links.is_empty() {
                return;
            }
            for link in links.drain(..) {
                self.lead(ways, &link, true, "a control file leads to it");
                // A folder out of the workspace may have links that lead in again.
                let out = ways.leads(&ways.root.join(&link)).filter(|out| !out.starts_with(ways.root));
                for path in out.map(|out| ways.leading_in(&out)).unwrap_or_default() {
                    self.lead(ways, &path, true, "a control file leads to it");
                }
            }
        }
    }

    /// Binds what a path leads to in the workspace, with every link on the way known.
    fn lead(&mut self, ways: &Ways<'_>, path: &Path, folders: bool, why: &str) {
        let (layers, links) = (&self.layers, &mut self.links);
        let led = follow(ways, path, |link| {
            if !is_within(&link, |above| layers.binary_search_by(|layer| layer.as_path().cmp(above)).is_ok()) {
                links.insert(link);
            }
        });
        if let Some(led) = led {
            // A link leads to a name that is free.
            if led != path {
                self.awaited(ways.below, &led);
            }
            self.bind_led(ways.below, led, folders, why);
        }
    }

    fn bind_led(&mut self, below: &Dir, path: PathBuf, folders: bool, why: &str) {
        let Ok(PathKind::Is(kind)) = look(below, &path) else { return };
        // They are sorted: what lies in one comes after it.
        let at = self.layers.partition_point(|layer| *layer < path);
        let is_around = self.layers.get(at).is_some_and(|layer| layer.starts_with(&path));
        let layers = &self.layers;
        let in_layer = is_within(&path, |above| layers.binary_search_by(|layer| layer.as_path().cmp(above)).is_ok());
        let is_held = is_around || in_layer || is_within(&path, |above| self.bound.contains(above));
        if path.as_os_str().is_empty() || is_held || !(folders || kind == Shape::File) {
            return;
        }
        // What lies in it is held by it, and a mount below another one would be none.
        let inner = self.bound.range(path.clone()..).next();
        if inner.is_some_and(|inner| inner.starts_with(&path)) {
            self.binds.retain(|bind| !bind.path.starts_with(&path));
            self.bound.retain(|bound| !bound.starts_with(&path));
        }
        self.bind_git(path, kind, why);
    }

    fn bind_git(&mut self, path: PathBuf, kind: Shape, why: &str) {
        self.bind(Bind { path, kind, category: "version control".into(), why: why.to_owned() });
    }

    pub(super) fn bind(&mut self, bind: Bind) {
        self.bound.insert(bind.path.clone());
        self.binds.push(bind);
    }

    /// Every folder, and what is called `.git` in it.
    fn walk(&mut self, below: &Dir) {
        let mut queue = vec![PathBuf::new()];
        let mut sockets = Some(Vec::new());
        while let Some(at) = queue.pop() {
            if self.folders.len() == MAX_FOLDERS {
                self.too_many = true;
                return;
            }
            let names = below.look_into(&at, Cross::Yes).and_then(|dir| dir.kinds());
            if names.is_err() {
                sockets = None;
            }
            let names = names.unwrap_or_default();
            if is_repository(names.iter().map(|(name, _)| name.as_os_str())) {
                self.bare(at);
                sockets = None;
                continue;
            }
            for (name, kind) in names {
                let path = at.join(&name);
                match (kind == FileType::Directory, gitdir::is_git(Path::new(&name))) {
                    (true, true) => self.layers.push(path),
                    (true, false) => queue.push(path),
                    (false, true) if kind == FileType::RegularFile => {
                        let why = "says where git's folder is: another one brings its own hooks";
                        self.bind_git(path, Shape::File, why);
                    }
                    (false, true) if kind == FileType::Symlink => {
                        self.git_links.extend(link_target(below, &path).map(|target| (path, target)));
                    }
                    (false, _) if kind == FileType::Socket => sockets.iter_mut().for_each(|all| all.push(path.clone())),
                    (false, _) => {}
                }
            }
            self.folders.push(at);
        }
        self.layers.sort();
        self.sockets = sockets;
    }
}

/// What lies at the top of a workspace, read once: the list is long, and little of it is there.
pub(super) struct Top {
    /// None where nobody may list them.
    names: Option<Vec<OsString>>,
    /// In lower case.
    folded: BTreeSet<Vec<u8>>,
}

impl Top {
    pub(super) fn of(below: &Dir) -> Self {
        let names = below.look_into("", Cross::Yes).and_then(|dir| dir.names()).ok();
        let folded = names.iter().flatten().map(|name| folded(name.as_bytes()).to_ascii_lowercase()).collect();
        Self { names, folded }
    }

    /// Whether a pattern can stand for anything; where nobody may list the names, each is looked for.
    pub(super) fn may_have(&self, pattern: &str) -> bool {
        let first = pattern.split('/').next().unwrap_or_default().as_bytes();
        match &self.names {
            None => true,
            Some(names) if first.contains(&b'*') => names.iter().any(|name| matches(first, name.as_bytes())),
            Some(_) => self.folded.contains(&first.to_ascii_lowercase()),
        }
    }
}

/// Everything on the list that is there now.
pub(super) fn seen(below: &Dir, list: &List) -> Result<BTreeMap<PathBuf, PathStat>> {
    let mut all = BTreeMap::new();
    let patterns = list.path.iter().map(|entry| (entry.pattern.as_str(), entry.unless_folder)).chain([(".git", false)]);
    let top = Top::of(below);
    for (pattern, unless_folder) in patterns.filter(|(pattern, _)| top.may_have(pattern)) {
        for path in expand(below, &top, pattern) {
            // Behind a link on the way nothing is seen: the link counts.
            let mut above = parents(&path);
            above.reverse();
            let path = above.into_iter().find(|part| link_target(below, part).is_some()).unwrap_or(path);
            let Some((parent, name)) = reachable(parent_of(below, &path))? else { continue };
            let Some(stat) = reachable(parent.stat(&name))? else { continue };
            if unless_folder && FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                continue;
            }
            let target = if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
                Some(rustix::fs::readlinkat(&parent, Path::new(&name), Vec::new())?.into_bytes())
            } else {
                None
            };
            let mtime = (stat.st_mtime, stat.st_mtime_nsec);
            all.insert(path, PathStat { inode: stat.st_ino, mode: stat.st_mode, size: stat.st_size, mtime, target });
        }
    }
    Ok(all)
}

/// What lies in a folder that somebody else closed is out of reach of the run too, which has the caller's rights at most.
fn reachable<T>(found: Result<Option<T>>) -> Result<Option<T>> {
    if matches!(found, Err(Errno::ACCESS)) { Ok(None) } else { found }
}

enum PathKind {
    Is(Shape),
    Nothing,
    Link,
    Special,
}

fn look(below: &Dir, path: &Path) -> Result<PathKind> {
    let Some((parent, name)) = reachable(parent_of(below, path))? else { return Ok(PathKind::Nothing) };
    let Some(stat) = reachable(parent.stat(&name))? else { return Ok(PathKind::Nothing) };
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => PathKind::Is(Shape::File),
        FileType::Directory => PathKind::Is(Shape::Dir),
        FileType::Symlink => PathKind::Link,
        FileType::Fifo | FileType::Socket | FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => {
            PathKind::Special
        }
    })
}

/// Where a path leads, if it is a link.
pub(super) fn link_target(below: &Dir, path: &Path) -> Option<PathBuf> {
    let (parent, name) = parent_of(below, path).ok()??;
    let target = rustix::fs::readlinkat(&parent, Path::new(&name), Vec::new()).ok()?;
    Some(PathBuf::from(OsStr::from_bytes(target.to_bytes())))
}

/// Where a path leads in the workspace, relative to it, whether anything is there or not; `on_link` is told of every link on
/// the way. `None` if it leads out.
pub(super) fn follow(ways: &Ways<'_>, path: &Path, mut on_link: impl FnMut(PathBuf)) -> Option<PathBuf> {
    let mut at = git::resolve(Path::new("/"), path)?;
    for _ in 0..MAX_LINKS {
        let inner = at.strip_prefix("/").ok()?.to_owned();
        // The first part that is a link.
        let mut parts: Vec<_> = inner.ancestors().collect();
        parts.reverse();
        let link = parts.into_iter().find_map(|part| Some((part.to_owned(), link_target(ways.below, part)?)));
        let Some((link, target)) = link else { return Some(inner) };
        let rest = inner.strip_prefix(&link).unwrap_or(Path::new("")).to_owned();
        let from = ways.root.join(link.parent().unwrap_or(Path::new("")));
        on_link(link);
        // What lies out of the workspace cannot be written; a link out there may lead in again.
        let to = git::resolve(&from, &target.join(rest))?;
        let to = if to.starts_with(ways.root) { to } else { ways.leads(&to)? };
        at = Path::new("/").join(to.strip_prefix(ways.root).ok()?);
    }
    None
}

/// Whether a path is one of some, or lies in one.
fn is_within(path: &Path, is_one: impl Fn(&Path) -> bool) -> bool {
    path.ancestors().any(is_one)
}

/// What has a path; `None` where there is nothing, or it is reached by a link.
pub(super) fn kind_of(below: &Dir, path: &Path) -> Result<Option<FileType>> {
    parent_of(below, path)?.map_or(Ok(None), |(parent, name)| parent.kind(name))
}

/// The folder of a path, and its last part; `None` if the folder is missing or reached by a link. A folder that is closed is
/// neither: its owner's is opened, and of somebody else's EACCES is the answer.
pub(super) fn parent_of(below: &Dir, path: &Path) -> Result<Option<(Dir, OsString)>> {
    let name = path.file_name().unwrap_or(OsStr::new(".")).to_owned();
    let parent = path.parent().unwrap_or(Path::new(""));
    match below.reach(parent, Cross::Yes) {
        Ok(dir) => Ok(Some((dir, name))),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// The paths that a pattern stands for now. Where the names of a folder cannot be listed, or a link stands in its place, a part
/// without `*` is itself, and of one with it the link is what is found.
pub(super) fn expand(below: &Dir, top: &Top, pattern: &str) -> Vec<PathBuf> {
    let (mut paths, mut found) = (vec![PathBuf::new()], Vec::new());
    for part in pattern.split('/') {
        let mut longer = Vec::new();
        for path in paths {
            let listed = || below.look_into(&path, Cross::Yes).and_then(|dir| dir.names()).ok();
            let names = if path.as_os_str().is_empty() { top.names.clone() } else { listed() };
            match names {
                Some(names) => {
                    let same = names.iter().filter(|name| matches(part.as_bytes(), name.as_bytes()));
                    longer.extend(same.map(|name| path.join(name)));
                }
                None if !part.contains('*') => longer.push(path.join(part)),
                None => found.extend(link_target(below, &path).is_some().then_some(path)),
            }
        }
        paths = longer;
    }
    found.extend(paths);
    found
}

fn parents(path: &Path) -> Vec<PathBuf> {
    path.ancestors().skip(1).filter(|p| !p.as_os_str().is_empty()).map(Path::to_owned).collect()
}
