//! The file tree of the container tier, as the list of operations that the guest carries out.
//!
//! Sources are resolved here, once, to (path without symlinks, device, inode); the guest opens them again inside its
//! mount namespace and refuses when they have changed, so that nobody can swap a path in between (FS-16).

use std::ffi::CString;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use guest::config::{Attrs, Identity, Lowers, OwnedOp as Op, OwnedSource as Source};
use policy::value::{Grant, Policy, Root, WorkspaceMode};

use super::identity::Identity as Identities;
use super::landlock::{Access, Rules};
use super::prepare::{FIRST_EXTRA, GitPart, Launch, Protect};
use super::proc_view;
use super::sizes::{self, Sizes};
use super::{devices, etc, etc_cache};
use crate::StartError;
use crate::host::Capabilities;

/// Top-level names of the host that hold its tools.
const TOOLS: &[&str] = &["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"];
/// Bytes of the root tmpfs: `/etc` and mount points only; it is read-only before anything runs.
const ROOT_BYTES: u64 = 4 << 20;
const ROOT_INODES: u64 = 8192;
/// Terminals that may be open at once.
const TERMINALS: u32 = 64;

/// Where the home folder really lies.
const HOME: &str = "/tmp/.home";
/// Where files of the run itself are shown.
const OURS: &str = "/run/fumehood";

/// For a git folder in a layer: references that are packed there would be gone with it, and `info` is read-only.
const GIT_CONFIG: &[u8] = b"[gc]\n\tpackRefs = false\n[repack]\n\tupdateServerInfo = false\n";

/// The slot under which the workspace layer is handed out.
pub(crate) const WORKSPACE_SLOT: u32 = 0;

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

/// A resolved host path.
pub(crate) struct Resolved {
    pub(crate) path: PathBuf,
    pub(crate) dev: u64,
    pub(crate) ino: u64,
    pub(crate) dir: bool,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Permission bits.
    pub(crate) mode: u32,
}

impl Resolved {
    /// What the guest must find at this path.
    pub(crate) fn identity(&self) -> Identity {
        let (major, minor) = sys::caller::device_numbers(self.dev);
        Identity { major, minor, ino: self.ino }
    }
}

/// Resolves a host path once: canonical, with its identity.
pub(crate) fn resolve(clause: &'static str, path: &Path) -> Result<Resolved, StartError> {
    let canonical = path.canonicalize().map_err(|e| StartError::path(clause, path, &e))?;
    let meta = canonical.symlink_metadata().map_err(|e| StartError::path(clause, path, &e))?;
    found(clause, path, canonical, &meta)
}

/// As [`resolve`], of an entry whose folder is known to be canonical: what is no link is what its name says.
pub(crate) fn resolve_entry(clause: &'static str, path: &Path) -> Result<Resolved, StartError> {
    let meta = path.symlink_metadata().map_err(|e| StartError::path(clause, path, &e))?;
    if meta.is_symlink() { resolve(clause, path) } else { found(clause, path, path.to_owned(), &meta) }
}

fn found(clause: &'static str, path: &Path, canonical: PathBuf, meta: &Metadata) -> Result<Resolved, StartError> {
    let kind = meta.file_type();
    if kind.is_socket() || kind.is_fifo() || kind.is_block_device() {
        return Err(StartError::special(clause, path));
    }
    let (uid, gid) = (meta.uid(), meta.gid());
    Ok(Resolved {
        dev: meta.dev(),
        ino: meta.ino(),
        dir: meta.is_dir(),
        path: canonical,
        uid,
        gid,
        mode: meta.mode() & 0o7777,
    })
}

/// Builds the tree of a plan.
pub(crate) fn build(
    policy: &Policy,
    host: &Capabilities,
    launch: &Launch,
    identity: Identities,
) -> Result<Tree, StartError> {
    let git = launch.git.iter().any(|part| matches!(part, GitPart::Layered(_)));
    let sizes = sizes::divide(policy, git);
    let mut tree = Builder { policy, host, sizes, tree: Tree::default(), identity, launch };
    tree.op(Op::Root { size: ROOT_BYTES, inodes: ROOT_INODES });
    tree.devices()?;
    tree.root()?;
    tree.kernel_file_systems();
    tree.temporary();
    for grant in &policy.fs.read {
        tree.read(grant)?;
    }
    for grant in &policy.fs.write {
        tree.write(grant)?;
    }
    tree.workspace()?;
    tree.protect(&launch.protect);
    for grant in &launch.show {
        tree.read_ours(grant)?;
    }
    for part in &launch.git {
        tree.git(part)?;
    }
    tree.git_config();
    tree.placeholders(&launch.placeholders);
    tree.files(&launch.files);
    Ok(tree.tree)
}

struct Builder<'a> {
    policy: &'a Policy,
    host: &'a Capabilities,
    sizes: Sizes,
    tree: Tree,
    identity: Identities,
    launch: &'a Launch,
}

impl Builder<'_> {
    fn op(&mut self, op: Op) {
        self.tree.ops.push(op);
    }

    fn source(&mut self, source: Source) -> u32 {
        self.tree.sources.push(source);
        u32::try_from(self.tree.sources.len().saturating_sub(1)).unwrap_or(u32::MAX)
    }

    fn resolved(&mut self, r: &Resolved) -> u32 {
        self.source(Source::Path { path: text(&r.path), is: r.identity() })
    }

    fn bind(&mut self, r: &Resolved, to: &Path, attrs: Attrs) {
        let source = self.resolved(r);
        self.op(Op::Bind { source, path: text(to), attrs, file: !r.dir });
    }

    fn allow(&mut self, path: &Path, access: Access, dir: bool) {
        self.tree.rules.add(path, access, dir);
    }

    /// Execution is granted where the policy does not name the only executables.
    fn readable(&self) -> Access {
        if self.policy.fs.exec.is_some() { Access::READ } else { Access::READ | Access::EXECUTE }
    }

    fn writable(&self) -> Access {
        let run = if self.noexec() { Access::NONE } else { Access::EXECUTE };
        Access::READ | Access::WRITE | run
    }

    /// A list of the only executables needs noexec on all that is writable: the dynamic loader would run what it reads.
    fn noexec(&self) -> bool {
        self.policy.fs.noexec || self.policy.fs.exec.is_some()
    }

    fn writable_attrs(&self) -> Attrs {
        let attrs = Attrs::NOSUID | Attrs::NODEV;
        if self.noexec() { attrs | Attrs::NOEXEC } else { attrs }
    }

    fn root(&mut self) -> Result<(), StartError> {
        match self.policy.fs.root.clone() {
            Root::Host => {
                self.tools()?;
                self.etc()
            }
            Root::Empty | Root::Image(_) => {
                self.synthetic_etc();
                Ok(())
            }
            Root::Dir(path) => self.directory(&path),
        }
    }

    fn tools(&mut self) -> Result<(), StartError> {
        for name in TOOLS {
            let path = Path::new("/").join(name);
            let Ok(meta) = path.symlink_metadata() else { continue };
            if meta.is_symlink() {
                let target = std::fs::read_link(&path).map_err(|e| StartError::path("fs.root", &path, &e))?;
                self.op(Op::Symlink { path: text(&path), target: text(&target) });
                continue;
            }
            let resolved = resolve("fs.root", &path)?;
            self.bind(&resolved, &path, Attrs::RDONLY | Attrs::NOSUID | Attrs::NODEV);
            if self.policy.fs.exec.is_none() {
                self.allow(&path, Access::READ | Access::EXECUTE, true);
            }
        }
        self.only_executables()
    }

    /// With `fs.exec`, everything else that could be run is unreadable too, else `ld.so FILE` runs it: of the tools only
    /// shared libraries, interpreters' libraries and data stay readable.
    fn only_executables(&mut self) -> Result<(), StartError> {
        let Some(list) = self.policy.fs.exec.clone() else { return Ok(()) };
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
        let shown = etc::shown(&names);
        for name in shown {
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
        let (policy, launch) = (self.policy, self.launch);
        let grants = [&policy.fs.read, &policy.fs.write, &launch.show];
        let mut points = grants.into_iter().flatten().map(|grant| grant.to.as_path());
        let workspace = policy.workspace.at.as_deref().or(policy.workspace.path.as_deref());
        if points.any(|point| point.starts_with("/etc")) || workspace.is_some_and(|at| at.starts_with("/etc")) {
            return None;
        }
        etc_cache::copy(cache, &policy.process.user, &policy.process.hostname).ok()
    }

    fn synthetic_etc(&mut self) {
        for (name, content) in etc::synthetic(&self.policy.process.user, &self.policy.process.hostname) {
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
        self.op(Op::SetAttr { path: c"/".into(), attrs: devices::ATTRS, recursive: true });
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
        for (name, target) in [("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")] {
            self.op(Op::Symlink { path: text(&Path::new("/dev").join(name)), target: text(Path::new(target)) });
        }
        self.op(Op::Devpts { path: c"/dev/pts".into(), max: TERMINALS });
        self.allow(Path::new("/dev"), Access::READ | Access::WRITE_FILE | Access::IOCTL, true);
        self.allow(Path::new("/"), Access::LIST, true);
    }

    fn temporary(&mut self) {
        let attrs = self.writable_attrs();
        let Sizes { tmp, shm, run, workspace: _, git: _ } = self.sizes;
        for (path, size, mode) in [("/dev/shm", shm, 0o1777), ("/tmp", tmp, 0o1777), ("/run", run, 0o755)] {
            self.op(Op::Tmpfs { path: text(Path::new(path)), size: size.bytes, inodes: size.inodes, mode, attrs });
            self.allow(Path::new(path), self.writable(), true);
        }
        // The home folder is part of /tmp, so that one limit holds both.
        let home = Path::new("/home").join(&self.policy.process.user);
        self.op(Op::Dir { path: text(Path::new(HOME)), mode: 0o700 });
        self.op(Op::Symlink { path: text(&home), target: text(Path::new(HOME)) });
        self.op(Op::Symlink { path: c"/var/tmp".into(), target: c"/tmp".into() });
        self.tree.cwd = PathBuf::from("/tmp");
    }

    /// Read-only: through an overlay where the kernel can, since a plain bind would let the payload connect to a unix
    /// socket of the host that lies below.
    fn read(&mut self, grant: &Grant) -> Result<(), StartError> {
        let resolved = super::readable::granted(&grant.from, self.identity, true, !self.host.root())?;
        let source = self.resolved(&resolved);
        self.show(source, &resolved, &grant.to);
        Ok(())
    }

    /// Of ours: a script, a probe.
    fn read_ours(&mut self, grant: &Grant) -> Result<(), StartError> {
        let resolved = resolve("run", &grant.from)?;
        let source = self.resolved(&resolved);
        self.show(source, &resolved, &grant.to);
        Ok(())
    }

    /// Where a path really lies inside: some names are links of ours, and the guest follows none.
    fn really(&self, to: &Path) -> PathBuf {
        let home = Path::new("/home").join(&self.policy.process.user);
        let links = [(home.as_path(), HOME), (Path::new("/var/tmp"), "/tmp")];
        links
            .iter()
            .find_map(|(link, place)| to.strip_prefix(link).ok().map(|rest| Path::new(place).join(rest)))
            .unwrap_or_else(|| to.to_owned())
    }

    fn show(&mut self, source: u32, resolved: &Resolved, to: &Path) {
        let to = &self.really(to);
        let attrs = Attrs::RDONLY | Attrs::NOSUID | Attrs::NODEV;
        let path = text(to);
        if resolved.dir && self.host.overlay_readonly() && !self.policy.fs.sockets {
            self.op(Op::Overlay { lowers: Lowers::one(source), path, size: 0, inodes: 0, attrs, export: None });
        } else {
            self.op(Op::Bind { source, path, attrs, file: !resolved.dir });
        }
        self.allow(to, self.readable(), resolved.dir);
    }

    fn write(&mut self, grant: &Grant) -> Result<(), StartError> {
        let resolved = resolve("fs.write", &grant.from)?;
        let to = self.really(&grant.to);
        let (source, attrs) = (self.own_source(&resolved), self.writable_attrs());
        self.op(Op::Bind { source, path: text(&to), attrs, file: !resolved.dir });
        self.allow(&to, self.writable(), resolved.dir);
        Ok(())
    }

    fn workspace(&mut self) -> Result<(), StartError> {
        let Some(path) = self.policy.workspace.path.clone() else { return Ok(()) };
        if self.policy.workspace.mode == WorkspaceMode::None {
            return Ok(());
        }
        let resolved = resolve("workspace", &path)?;
        if !resolved.dir {
            return Err(StartError::NotADirectory { clause: "workspace", path });
        }
        let at = self.really(self.policy.workspace.at.as_deref().unwrap_or(&resolved.path));
        let size = self.sizes.workspace;
        let attrs = self.writable_attrs();
        match self.policy.workspace.mode {
            WorkspaceMode::None => {}
            WorkspaceMode::Ro => {
                let source = self.workspace_source(&resolved);
                self.show(source, &resolved, &at);
            }
            WorkspaceMode::Rw => {
                let source = self.workspace_source(&resolved);
                self.op(Op::Bind { source, path: text(&at), attrs, file: false });
                self.allow(&at, self.writable(), true);
            }
            WorkspaceMode::Overlay => {
                let source = self.workspace_source(&resolved);
                let export = Some(WORKSPACE_SLOT);
                let (size, inodes) = (size.bytes, size.inodes);
                self.op(Op::Overlay { lowers: Lowers::one(source), path: text(&at), size, inodes, attrs, export });
                self.allow(&at, self.writable(), true);
            }
            WorkspaceMode::Copy => {
                let (size, inodes) = (size.bytes, size.inodes);
                self.op(Op::Fill { path: text(&at), size, inodes, attrs, slot: WORKSPACE_SLOT });
                self.allow(&at, self.writable(), true);
            }
        }
        self.tree.workspace = Some(resolved.path);
        self.tree.cwd = at;
        Ok(())
    }

    fn git(&mut self, part: &GitPart) -> Result<(), StartError> {
        let path = match part {
            GitPart::ReadOnly(path) | GitPart::Writable(path) | GitPart::Layered(path) => path,
            GitPart::Link { at, to } => {
                self.op(Op::Symlink { path: text(&self.really(at)), target: text(to) });
                return Ok(());
            }
            GitPart::Held(path) => {
                self.held(path);
                return Ok(());
            }
        };
        let resolved = resolve("workspace", path)?;
        let source = self.workspace_source(&resolved);
        match part {
            GitPart::Writable(_) => {
                let to = self.really(path);
                self.op(Op::Bind { source, path: text(&to), attrs: self.writable_attrs(), file: !resolved.dir });
                self.allow(&to, self.writable(), resolved.dir);
            }
            GitPart::Layered(_) => self.layered(source, &resolved, path),
            GitPart::ReadOnly(_) | GitPart::Held(_) | GitPart::Link { .. } => self.show(source, &resolved, path),
        }
        Ok(())
    }

    fn can_layer(&self) -> bool {
        self.host.root() || self.host.overlay_on_tmpfs()
    }

    /// In git's layer, where there is one: below a read-only folder nothing can be made anyway.
    fn held(&mut self, path: &Path) {
        if self.can_layer() {
            let path = text(&self.really(path));
            self.op(Op::File { path: path.clone(), mode: 0o444, bytes: Vec::new() });
            self.op(Op::ReadOnly { path, recursive: false });
        }
    }

    /// Where the kernel cannot layer, git at least reads.
    fn layered(&mut self, source: u32, resolved: &Resolved, path: &Path) {
        if !self.can_layer() {
            self.show(source, resolved, path);
            return;
        }
        let to = self.really(path);
        let (size, attrs) = (self.sizes.git, self.writable_attrs());
        let (size, inodes) = (size.bytes, size.inodes);
        self.op(Op::Overlay { lowers: Lowers::one(source), path: text(&to), size, inodes, attrs, export: None });
        self.allow(&to, self.writable(), true);
    }

    /// What git reads where nothing else is configured.
    fn git_config(&mut self) {
        let layered = self.launch.git.iter().any(|part| matches!(part, GitPart::Layered(_)));
        if layered && self.policy.workspace.mode == WorkspaceMode::Rw {
            let path = text(&Path::new(HOME).join(".config/git/config"));
            self.op(Op::File { path, mode: 0o644, bytes: GIT_CONFIG.to_vec() });
        }
    }

    /// The file that git reads where nothing else is configured.
    fn placeholders(&mut self, paths: &[PathBuf]) {
        if paths.is_empty() {
            return;
        }
        let mut bytes = Vec::new();
        for path in paths {
            bytes.push(b'/');
            bytes.extend_from_slice(path.as_os_str().as_bytes());
            bytes.push(b'\n');
        }
        let path = text(&Path::new(HOME).join(".config/git/ignore"));
        self.op(Op::File { path, mode: 0o644, bytes });
    }

    /// Control files of a read-write workspace: bound on themselves, read-only or only pinned.
    fn protect(&mut self, list: &[Protect]) {
        let at = self.tree.cwd.clone();
        for one in list {
            match one {
                Protect::Pinned(path) => self.op(Op::Pin { path: text(&at.join(path)) }),
                Protect::ReadOnly(path) => self.op(Op::ReadOnly { path: text(&at.join(path)), recursive: true }),
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

    /// Folders of the workspace and of git are mapped; a file is only read, for which its owner does not count.
    fn workspace_source(&mut self, resolved: &Resolved) -> u32 {
        if resolved.dir { self.own_source(resolved) } else { self.resolved(resolved) }
    }

    /// A source whose files are the run's own.
    fn own_source(&mut self, resolved: &Resolved) -> u32 {
        if !self.identity.must_map(resolved.uid) {
            return self.resolved(resolved);
        }
        let before = u32::try_from(self.tree.mapped.len()).unwrap_or(u32::MAX);
        let (path, is) = (resolved.path.clone(), resolved.identity());
        self.tree.mapped.push(Mapped { path, is, uid: resolved.uid, gid: resolved.gid });
        self.source(Source::Fd(FIRST_EXTRA.saturating_add(before)))
    }
}

/// A path as the guest reads it. Paths with a NUL never get here: policies and the kernel refuse them.
pub(crate) fn text(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}
