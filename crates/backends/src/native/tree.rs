//! The file tree of the container tier, as the list of operations that the guest carries out.
//!
//! Sources are resolved here, once, to (path without symlinks, device, inode); the guest opens them again inside its
//! mount namespace and refuses when they have changed, so that nobody can swap a path in between (FS-16).

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use guest::config::{Attrs, Identity, Lowers, OwnedOp as Op, OwnedSource as Source};
use policy::value::{Grant, Image, Root, StoredImage, TOOLS};

use super::blueprint::{Blueprint, HostTree, TreeAccess};
use super::folders::{self, ShownTree};
use super::landlock::{Access, Rules};
use super::proc_view;
use super::source::{Resolved, resolve, text};
use super::{devices, etc_cache};
use crate::StartError;
use crate::backend::{FIRST_EXTRA, GitPart, Launch, Protect};
use crate::etc;
use crate::host::Capabilities;
use crate::identity::Identity as Identities;
use crate::sizes::Size;
use crate::trust;

/// Bytes of the root tmpfs: `/etc` and mount points only; it is read-only before anything runs.
const ROOT_BYTES: u64 = 4 << 20;
const ROOT_INODES: u64 = 8192;
/// Terminals that may be open at once.
const TERMINALS: u32 = 64;

/// Where the home folder really lies.
pub(crate) const HOME: &str = "/tmp/.home";
/// Where files of the run itself are shown.
pub(crate) const OURS: &str = "/run/fumehood";

/// The slot under which the workspace layer is handed out.
pub(crate) const WORKSPACE_SLOT: u32 = 0;
/// The slot under which `/tmp` of a live sandbox is handed out; layers of git's folders have numbers from 0 on.
pub const TMP_SLOT: u32 = 1000;

/// What the guest builds.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) sources: Vec<Source>,
    pub(crate) ops: Vec<Op>,
    pub(crate) rules: Rules,
    /// Working directory of the payload.
    pub(crate) cwd: PathBuf,
    /// To be id-mapped: the guest's descriptors from `FIRST_EXTRA` on, in this order.
    pub(crate) mapped: Vec<Mapped>,
    /// The workspace, canonical, for read-back.
    pub(crate) workspace: Option<PathBuf>,
    /// Keeps the copy of `/etc` from being removed.
    pub(crate) etc: Option<std::fs::File>,
    /// Where what the plan shows really lies inside.
    pub(crate) placed: Vec<Placed>,
}

/// A tree or file that the plan shows, as it was mounted.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    /// Where the plan shows it.
    pub(crate) at: PathBuf,
    /// Where the mount is.
    pub(crate) point: PathBuf,
    pub(crate) dir: bool,
    pub(crate) write: bool,
    /// What was taken from the host for it; `None`: a folder of the run.
    pub(crate) source: Option<Identity>,
    /// What must be found there, where a mount shows the thing itself: a layer and a copy are others.
    pub(crate) is: Option<Identity>,
}

impl Placed {
    /// Where a path below one of them really lies inside: by the innermost, which is mounted last.
    pub(crate) fn point_of(all: &[Self], path: &Path) -> Option<PathBuf> {
        let around = all.iter().filter_map(|placed| Some((placed, path.strip_prefix(&placed.at).ok()?)));
        let (placed, below) = around.max_by_key(|(placed, _)| placed.at.components().count())?;
        // A trailing slash would make a file a folder.
        Some(if below == Path::new("") { placed.point.clone() } else { placed.point.join(below) })
    }

    /// What is shown at a place, taken from where the plan says. That is looked up anew, by the plan's own words and not by those that
    /// were applied.
    ///
    /// # Errors
    /// Nothing is shown there, or something that was taken from elsewhere.
    pub(crate) fn planned<'a>(all: &'a [Self], from: &Path, at: &Path) -> Result<&'a Self, String> {
        let placed = all.iter().rev().find(|placed| placed.at == *at);
        let placed = placed.ok_or_else(|| format!("{} is not shown", at.display()))?;
        let planned = resolve("fs", from).map_err(|why| format!("{}: {why:?}", from.display()))?.identity();
        let came = || format!("what is at {} does not come from {}", at.display(), from.display());
        if placed.source == Some(planned) { Ok(placed) } else { Err(came()) }
    }

    /// The first one that no list names: as a whole it must not be read.
    pub(crate) fn closed<'a>(all: &'a [Self], folders: &[PathBuf]) -> Option<&'a Self> {
        all.iter().find(|placed| !folders::lists(folders, &placed.at))
    }
}

/// What is shown as the run's own, although it belongs to somebody else.
#[derive(Clone, Debug)]
pub(crate) struct Mapped {
    pub(crate) path: PathBuf,
    /// What must be found there.
    pub(crate) is: Identity,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// Builds the tree of a plan. `queues` says whether the filter leaves POSIX message queues open.
pub(crate) fn build(
    blueprint: &Blueprint,
    host: &Capabilities,
    launch: &Launch,
    identity: Identities,
    queues: bool,
) -> Result<Tree, StartError> {
    let elsewhere = launch.git.iter().filter(|part| matches!(part, GitPart::Layered(..))).count();
    let within = launch.protect.iter().filter(|one| matches!(one, Protect::Layered(..))).count();
    let sizes = Sizes::of(blueprint, elsewhere.saturating_add(within));
    let mut tree = Builder { blueprint, host, sizes, tree: Tree::default(), identity, launch };
    tree.op(Op::Root { size: ROOT_BYTES, inodes: ROOT_INODES });
    tree.devices()?;
    tree.root()?;
    tree.kernel_file_systems();
    if queues {
        tree.message_queues();
    }
    tree.temporary();
    tree.places()?;
    tree.protect(&launch.protect)?;
    tree.cover(&launch.covered);
    for grant in &launch.show {
        tree.read_ours(grant)?;
    }
    for part in &launch.git {
        tree.git(part)?;
    }
    let trusted = launch.trust.iter().flat_map(|trust| trust.files());
    tree.files(&launch.files.iter().cloned().chain(trusted).collect::<Vec<_>>());
    tree.certificates();
    Ok(tree.tree)
}

/// Sizes of what can be written. The layers of git's folders are taken out of the workspace's layer, or of `/tmp` where the
/// workspace has none.
pub(crate) struct Sizes {
    tmp: Option<Size>,
    pub(crate) workspace: Option<Size>,
    git: Size,
}

impl Sizes {
    fn of(blueprint: &Blueprint, repositories: usize) -> Self {
        let layer = blueprint.workspace.as_ref().and_then(|shown| match shown.how {
            TreeAccess::Overlay(size) | TreeAccess::Copy(size) => Some(size),
            TreeAccess::ReadOnly | TreeAccess::Writable | TreeAccess::CopyInFolder => None,
        });
        let each = |size: Size| {
            let parts = u64::try_from(repositories).unwrap_or(u64::MAX).max(1);
            Size { bytes: size.bytes / parts, inodes: size.inodes / parts }
        };
        match (repositories, layer) {
            (0, workspace) => Self { tmp: blueprint.tmp, workspace, git: Size::default() },
            (_, Some(size)) => {
                let (git, workspace) = size.quarter();
                Self { tmp: blueprint.tmp, workspace: Some(workspace), git: each(git) }
            }
            (_, None) => {
                let (git, tmp) = blueprint.tmp.unwrap_or_default().quarter();
                Self { tmp: Some(tmp), workspace: None, git: each(git) }
            }
        }
    }
}

/// Whether folders of git's get layers; else they are read-only.
pub(crate) fn can_layer(host: &Capabilities) -> bool {
    (host.root() && host.has_overlay()) || host.overlay_on_tmpfs()
}

pub(crate) struct Builder<'a> {
    pub(crate) blueprint: &'a Blueprint,
    pub(crate) host: &'a Capabilities,
    pub(crate) sizes: Sizes,
    pub(crate) tree: Tree,
    pub(crate) identity: Identities,
    pub(crate) launch: &'a Launch,
}

impl Builder<'_> {
    pub(crate) fn op(&mut self, op: Op) {
        self.tree.ops.push(op);
    }

    fn source(&mut self, source: Source) -> u32 {
        self.tree.sources.push(source);
        u32::try_from(self.tree.sources.len().saturating_sub(1)).unwrap_or(u32::MAX)
    }

    pub(crate) fn resolved(&mut self, r: &Resolved) -> u32 {
        self.source(Source::Path { path: text(&r.path), is: r.identity() })
    }

    pub(crate) fn bind(&mut self, r: &Resolved, to: &Path, attrs: Attrs) {
        let source = self.resolved(r);
        self.op(Op::Bind { source, path: text(to), attrs, file: !r.dir });
    }

    pub(crate) fn allow(&mut self, path: &Path, access: Access, dir: bool) {
        self.tree.rules.add(path, access, dir);
    }

    /// Execution is granted where the policy does not name the only executables.
    pub(crate) fn readable(&self) -> Access {
        if self.blueprint.exec.is_some() { Access::READ } else { Access::READ | Access::EXECUTE }
    }

    pub(crate) fn writable(&self) -> Access {
        let run = if self.blueprint.noexec { Access::NONE } else { Access::EXECUTE };
        Access::READ | Access::WRITE | run
    }

    pub(crate) fn user(&self) -> &str {
        self.blueprint.user.as_ref().map_or("user", |(name, _)| name)
    }

    pub(crate) fn placed(&mut self, shown: &HostTree, point: &Path, r: &Resolved) {
        let itself = match shown.how {
            TreeAccess::ReadOnly => !(r.dir && self.blueprint.readonly_overlay),
            TreeAccess::Writable => true,
            TreeAccess::Overlay(_) | TreeAccess::Copy(_) | TreeAccess::CopyInFolder => false,
        };
        let (at, point, write) = (shown.at.clone(), point.to_owned(), shown.how != TreeAccess::ReadOnly);
        let (dir, source, is) = (r.dir, Some(r.identity()), itself.then(|| r.identity()));
        self.tree.placed.push(Placed { at, point, dir, write, source, is });
    }

    /// What may be done in what the plan shows, where it may be less than `all` in parts of it.
    pub(crate) fn allow_shown(
        &mut self,
        shown: &HostTree,
        point: &Path,
        r: &Resolved,
        all: Access,
    ) -> Result<(), StartError> {
        let place = ShownTree { at: &shown.at, point, host: &r.path, dir: r.dir };
        for part in self.blueprint.folders.parts(&place, all, &self.tree.rules)? {
            self.allow(&part.path, part.access, part.dir);
        }
        Ok(())
    }

    /// What may be done below a folder of git's: where commands are judged, one in the workspace as the lists say, and one elsewhere
    /// as they say of that of the workspace.
    fn of_git(&self, below: &Path, all: Access) -> Access {
        self.blueprint.folders.at(&self.blueprint.in_workspace(below), all)
    }

    pub(crate) fn writable_attrs(&self) -> Attrs {
        let attrs = Attrs::NOSUID | Attrs::NODEV;
        if self.blueprint.noexec { attrs | Attrs::NOEXEC } else { attrs }
    }

    fn root(&mut self) -> Result<(), StartError> {
        match self.blueprint.root.clone().unwrap_or(Root::Empty) {
            Root::Host => {
                self.tools()?;
                self.etc()
            }
            Root::Empty => {
                self.synthetic_etc();
                Ok(())
            }
            Root::Dir(path) => self.directory(&path),
            Root::Image(Image { name: _, found: Ok(found) }) => self.image(&found),
            Root::Image(Image { name, found: Err(_) }) => {
                Err(StartError::Internal(format!("a plan with an image `{name}` that was not found")))
            }
        }
    }

    fn tools(&mut self) -> Result<(), StartError> {
        for path in TOOLS.map(Path::new) {
            let Ok(meta) = path.symlink_metadata() else { continue };
            if meta.is_symlink() {
                let target = std::fs::read_link(path).map_err(|e| StartError::path("fs.root", path, &e))?;
                self.op(Op::Symlink { path: text(path), target: text(&target) });
                continue;
            }
            let resolved = resolve("fs.root", path)?;
            if self.blueprint.noexec && self.blueprint.written(&resolved.path) {
                return Err(StartError::among_tools(&resolved.path));
            }
            self.bind(&resolved, path, Attrs::RDONLY | Attrs::NOSUID | Attrs::NODEV);
            if self.blueprint.exec.is_none() {
                self.allow(path, Access::READ | Access::EXECUTE, true);
            }
        }
        self.only_executables()
    }

    /// With `fs.exec`, everything else that could be run is unreadable too, else `ld.so FILE` runs it: of the tools only
    /// shared libraries, interpreters' libraries and data stay readable.
    fn only_executables(&mut self) -> Result<(), StartError> {
        let Some(list) = self.blueprint.exec.clone() else { return Ok(()) };
        for path in super::landlock::library_folders() {
            self.allow(&path, Access::READ, true);
        }
        for path in super::landlock::loaders() {
            self.allow(&path, Access::READ | Access::EXECUTE, false);
        }
        for path in list {
            let resolved = resolve("fs.exec", &path)?;
            self.allow(&resolved.path, Access::READ | Access::EXECUTE, resolved.dir);
        }
        Ok(())
    }

    fn etc(&mut self) -> Result<(), StartError> {
        if let Some(copy) = self.kept_etc() {
            let (dev, ino, path) = (copy.meta.dev(), copy.meta.ino(), copy.path);
            let resolved = Resolved {
                dev,
                ino,
                dir: true,
                path,
                uid: copy.meta.uid(),
                gid: copy.meta.gid(),
                mode: copy.meta.mode() & 0o7777,
            };
            self.bind(&resolved, Path::new("/etc"), Attrs::RDONLY | Attrs::NOSUID | Attrs::NODEV | Attrs::NOEXEC);
            self.allow(Path::new("/etc"), Access::READ, true);
            self.tree.etc = Some(copy.lock);
            return Ok(());
        }
        let folder = Path::new("/etc");
        let names: Vec<String> = std::fs::read_dir(folder)
            .map_err(|e| StartError::path("fs.root", folder, &e))?
            .filter_map(|entry| entry.ok().and_then(|e| e.file_name().into_string().ok()))
            .collect();
        for name in etc::shown(&names) {
            let path = folder.join(name);
            // A dangling link (a half-removed package) is as good as a missing file.
            let Ok(resolved) = resolve("fs.root", &path) else { continue };
            self.bind(&resolved, &path, Attrs::RDONLY | Attrs::NOSUID | Attrs::NODEV | Attrs::NOEXEC);
        }
        self.synthetic_etc();
        Ok(())
    }

    /// The kept copy, unless something of the policy is to be shown within `/etc`: there a copy has no room for it.
    fn kept_etc(&self) -> Option<etc_cache::Copy> {
        let cache = self.launch.cache.as_deref()?;
        let (blueprint, launch) = (self.blueprint, self.launch);
        let shown = blueprint.reads.iter().chain(&blueprint.writes).chain(&blueprint.workspace);
        let mut points = shown.map(|shown| &shown.at).chain(launch.show.iter().map(|grant| &grant.to));
        if points.any(|point| point.starts_with("/etc")) {
            return None;
        }
        etc_cache::copy(cache, self.names()).ok()
    }

    pub(super) fn names(&self) -> etc::Names<'_> {
        etc::Names { user: self.user(), hostname: self.hostname(), resolver: self.blueprint.resolver }
    }

    fn hostname(&self) -> &str {
        self.blueprint.hostname.as_deref().unwrap_or_default()
    }

    fn synthetic_etc(&mut self) {
        for (name, content) in etc::synthetic(self.names()) {
            self.op(Op::File { path: text(&Path::new("/etc").join(name)), mode: 0o644, bytes: content });
        }
        self.op(Op::Symlink { path: c"/etc/mtab".into(), target: c"/proc/self/mounts".into() });
        self.allow(Path::new("/etc"), Access::READ, true);
    }

    /// A directory as root: its top-level entries, read-only; `/proc`, `/dev`, `/tmp` and `/run` stay ours.
    fn directory(&mut self, path: &Path) -> Result<(), StartError> {
        let root = resolve("fs.root", path)?;
        let entries = std::fs::read_dir(&root.path).map_err(|e| StartError::path("fs.root", path, &e))?;
        let mut names: Vec<_> = entries.filter_map(|e| e.ok().map(|e| e.file_name())).collect();
        names.sort();
        for name in names {
            if ["proc", "sys", "dev", "tmp", "run", "home"].iter().any(|ours| name == *ours) {
                continue;
            }
            let from = root.path.join(&name);
            let to = Path::new("/").join(&name);
            let meta = from.symlink_metadata().map_err(|e| StartError::path("fs.root", &from, &e))?;
            if meta.is_symlink() {
                let target = std::fs::read_link(&from).map_err(|e| StartError::path("fs.root", &from, &e))?;
                self.op(Op::Symlink { path: text(&to), target: text(&target) });
            } else if meta.is_dir() || meta.is_file() {
                let resolved = resolve("fs.root", &from)?;
                self.bind(&resolved, &to, Attrs::RDONLY | Attrs::NOSUID | Attrs::NODEV);
                self.allow(&to, self.readable(), resolved.dir);
            }
        }
        Ok(())
    }

    /// First of all, so that one operation gives them and the root their attributes.
    fn devices(&mut self) -> Result<(), StartError> {
        for (name, major, minor) in devices::SHOWN {
            let path = Path::new("/dev").join(name);
            devices::judge(&path, *major, *minor)?;
            self.op(Op::Device { path: text(&path), major: *major, minor: *minor });
        }
        for (path, (major, minor)) in self.blueprint.devices.clone() {
            devices::judge(&path, major, minor)?;
            self.op(Op::Device { path: text(&path), major, minor });
        }
        self.op(Op::SetAttr { path: c"/".into(), attrs: devices::WITH_ROOT, recursive: true });
        Ok(())
    }

    fn kernel_file_systems(&mut self) {
        self.op(Op::Proc { path: c"/proc".into() });
        // The right to write is for the process's own files (`oom_score_adj`, `comm`, `fd/1`); the rest is the kernel's.
        self.allow(Path::new("/proc"), Access::READ | Access::WRITE_FILE, true);
        // A file is masked by our /dev/null.
        for (path, dir) in proc_view::MASKED {
            self.op(Op::Mask { path: text(Path::new(path)), dir: *dir });
        }
        for path in proc_view::READ_ONLY {
            self.op(Op::ReadOnly { path: text(Path::new(path)), recursive: true });
        }
        // As the specification of OCI has them.
        for (name, below) in [("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")] {
            let target = format!("/proc/self/fd{below}");
            self.op(Op::Symlink { path: text(&Path::new("/dev").join(name)), target: text(Path::new(&target)) });
        }
        self.op(Op::Devpts { path: c"/dev/pts".into(), max: TERMINALS });
        self.allow(Path::new("/dev"), Access::READ | Access::WRITE_FILE | Access::IOCTL, true);
        // What lies below is listed with it: only where all of it may be read.
        let root = Path::new("/");
        if self.blueprint.folders.at(root, Access::READ) == Access::READ {
            self.allow(root, Access::LIST, true);
        }
    }

    /// Those of its own ipc namespace. Landlock grants what lies below a mount, and queues lie below none unless they are shown.
    fn message_queues(&mut self) {
        let path = Path::new("/dev/mqueue");
        self.op(Op::Mqueue { path: text(path) });
        self.allow(path, Access::READ | Access::WRITE, true);
    }

    fn temporary(&mut self) {
        let attrs = self.writable_attrs();
        let all = [
            ("/dev/shm", self.blueprint.shm, 0o1777),
            ("/tmp", self.sizes.tmp, 0o1777),
            ("/run", self.blueprint.run, 0o755),
        ];
        for (at, size, mode) in all {
            let Some(size) = size else { continue };
            // An agent's sandbox can be kept as a snapshot, for which somebody reads it from outside.
            let export = (self.launch.program.is_some() && at == "/tmp").then_some(TMP_SLOT);
            let (path, size, inodes) = (text(Path::new(at)), size.bytes, size.inodes);
            self.op(Op::Tmpfs { path, size, inodes, mode, attrs, export });
            self.allow(Path::new(at), self.writable(), true);
        }
        // The home folder is part of /tmp, so that one limit holds both.
        let home = Path::new("/home").join(self.user());
        self.op(Op::Dir { path: text(Path::new(HOME)), mode: 0o700 });
        // What is made in an image that is being built would stay there.
        if !self.found().is_some_and(|found| found.built) {
            self.op(Op::Symlink { path: text(&home), target: text(Path::new(HOME)) });
            self.op(Op::Symlink { path: c"/var/tmp".into(), target: c"/tmp".into() });
        }
        self.tree.cwd = PathBuf::from("/tmp");
        if let Some(found) = self.found().cloned() {
            self.begins_at(&found);
        }
    }

    /// The image that is the root.
    pub(super) fn found(&self) -> Option<&StoredImage> {
        match self.blueprint.root.as_ref()? {
            Root::Image(image) => image.found.as_ref().ok(),
            Root::Host | Root::Empty | Root::Dir(_) => None,
        }
    }

    fn git(&mut self, part: &GitPart) -> Result<(), StartError> {
        match part {
            GitPart::Link { at, to } => self.op(Op::Symlink { path: text(&self.really(at)), target: text(to) }),
            GitPart::ReadOnly(path) => {
                let resolved = resolve("workspace", path)?;
                let source = self.workspace_source(&resolved);
                self.git_read_only(source, &resolved, path);
            }
            GitPart::Layered(path, slot) => {
                let resolved = resolve("workspace", path)?;
                let source = self.workspace_source(&resolved);
                // Where the kernel cannot layer, git at least reads.
                if can_layer(self.host) {
                    self.layered(source, &self.really(path), *slot, Path::new(".git"));
                } else {
                    self.git_read_only(source, &resolved, path);
                }
            }
        }
        Ok(())
    }

    fn git_read_only(&mut self, source: u32, resolved: &Resolved, path: &Path) {
        let all = self.mount_read_only(source, resolved, path);
        self.allow(&self.really(path), self.of_git(Path::new(".git"), all), resolved.dir);
    }

    /// `below` the workspace is the folder as which it is used.
    fn layered(&mut self, source: u32, to: &Path, export: Option<u32>, below: &Path) {
        let (size, attrs) = (self.sizes.git, self.writable_attrs());
        let (size, inodes) = (size.bytes, size.inodes);
        self.op(Op::Overlay { lowers: Lowers::one(source), path: text(to), size, inodes, attrs, export });
        self.allow(to, self.of_git(below, self.writable()), true);
    }

    /// Control files of a read-write workspace: bound on themselves, read-only or only pinned; git's folders in layers.
    fn protect(&mut self, list: &[Protect]) -> Result<(), StartError> {
        let at = self.tree.cwd.clone();
        for one in list {
            match one {
                Protect::Pinned(path) => self.op(Op::Pin { path: text(&at.join(path)) }),
                Protect::Layered(path, slot) if can_layer(self.host) => {
                    let Some(root) = self.tree.workspace.clone() else {
                        return Err(StartError::Internal(format!("{} lies in no workspace", path.display())));
                    };
                    let resolved = self.blueprint.resolve("workspace", &root.join(path))?;
                    let source = self.workspace_source(&resolved);
                    self.layered(source, &at.join(path), Some(*slot), path);
                }
                Protect::ReadOnly(path) | Protect::Layered(path, _) => {
                    self.op(Op::ReadOnly { path: text(&at.join(path)), recursive: true });
                }
            }
        }
        Ok(())
    }

    /// Nothing of the host's is seen there any more.
    fn cover(&mut self, list: &[Grant]) {
        for found in list.iter().filter(|_| !self.blueprint.covers.is_empty()) {
            if let Some(place) = Placed::point_of(&self.tree.placed, &found.to) {
                self.op(Op::Mask { path: text(&place), dir: false });
            }
        }
    }

    /// Scripts and code of this run, in a folder that is read-only inside.
    fn files(&mut self, files: &[(String, Vec<u8>)]) {
        for (name, content) in files {
            let path = text(&Path::new(OURS).join(name));
            self.op(Op::File { path, mode: 0o555, bytes: content.clone() });
        }
        if !files.is_empty() {
            self.op(Op::ReadOnly { path: text(Path::new(OURS)), recursive: true });
        }
    }

    /// What the run trusts, in the place of the root's own files.
    fn certificates(&mut self) {
        let all = self.blueprint.certificates.iter().flatten().filter(|_| self.launch.trust.is_some());
        for path in all.cloned().collect::<Vec<_>>() {
            self.op(Op::BindInner { from: text(Path::new(trust::BUNDLE)), path: text(&path), attrs: trust::ATTRS });
            self.allow(&path, Access::READ, false);
        }
    }

    /// Folders of the workspace and of git are mapped; a file is only read, for which its owner does not count.
    pub(crate) fn workspace_source(&mut self, resolved: &Resolved) -> u32 {
        if resolved.dir { self.own_source(resolved) } else { self.resolved(resolved) }
    }

    /// A source whose files are the run's own.
    pub(crate) fn own_source(&mut self, resolved: &Resolved) -> u32 {
        if !self.identity.must_map(resolved.uid) {
            return self.resolved(resolved);
        }
        let before = u32::try_from(self.tree.mapped.len()).unwrap_or(u32::MAX);
        let (path, is) = (resolved.path.clone(), resolved.identity());
        self.tree.mapped.push(Mapped { path, is, uid: resolved.uid, gid: resolved.gid });
        self.source(Source::Fd(FIRST_EXTRA.saturating_add(before)))
    }
}
