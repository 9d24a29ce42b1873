//! The operations that build the new root, one function each.
//!
//! Every path is walked beneath the new root and through no symlink, since a source may be written to by somebody else
//! at this very moment. Mounts are built detached and attached when they are finished. What lies on the new root itself,
//! or in the fresh procfs, nobody else can reach: there mount(2) does in one call what takes the others eight, by a name
//! that was just made, or one that the kernel made. The supervisor compares what is mounted in the end, from outside.

use core::ffi::CStr;

use sys::bare::{self, Errno, Fd, FileSystem, Owned, Within};

use crate::config::{Attrs, Lowers, MAX_EXPORTS, MAX_SOURCES, Op};
use crate::frames::Slots;
use crate::paths::{Decimal, Path, relative, split};

type Done<T = ()> = bare::Result<T>;

/// File systems whose files the kernel makes.
const OF_THE_KERNEL: Attrs = Attrs::NOSUID.and(Attrs::NODEV).and(Attrs::NOEXEC);
/// The empty directory that hides others.
const HIDDEN: Attrs = OF_THE_KERNEL.and(Attrs::RDONLY);
/// Numbers of `/dev/null` (Documentation/admin-guide/devices.txt).
pub(crate) const NULL: (u32, u32) = (1, 3);

/// Whether an operation needs the scratch tmpfs.
pub(crate) fn wants_scratch(op: &Op<&CStr, &[u8]>) -> bool {
    matches!(op, Op::Overlay { .. })
}

/// A `Fill` whose attributes are still to be set.
struct Unfilled {
    mount: Owned,
    attrs: Attrs,
}

/// The directory of the last path: devices, for one, come in a row.
struct Parent {
    path: Path,
    dir: Owned,
}

/// Where the working directory is: mount(2) knows only paths.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    Elsewhere,
    /// At the new root.
    Root,
    /// In the directory of the last path.
    Parent,
}

/// What the interpreter has made so far.
pub(crate) struct Tree {
    root: Option<Owned>,
    sources: [Option<Owned>; MAX_SOURCES],
    /// A tmpfs that never becomes part of the new root: layers of overlays and the empty folder lie there.
    scratch: Option<Owned>,
    wants_scratch: bool,
    overlays: u64,
    parent: Option<Parent>,
    standing: Standing,
    /// The working directory's `dev/null` was seen to be the device.
    null_seen: bool,
    /// Where the empty file system of masks was mounted first, from the new root.
    empty: Option<Path>,
    /// Where our procfs is.
    procfs: Option<Path>,
    /// `sys/user` of our own procfs, opened before anything makes it read-only.
    pub(crate) limits: Option<Owned>,
    pub(crate) proc: Option<Owned>,
    pub(crate) slots: Slots,
    exports: [Option<Owned>; MAX_EXPORTS],
    unfilled: [Option<Unfilled>; MAX_EXPORTS],
}

impl Tree {
    pub(crate) fn new(wants_scratch: bool) -> Self {
        Self {
            wants_scratch,
            root: None,
            sources: [const { None }; MAX_SOURCES],
            scratch: None,
            overlays: 0,
            parent: None,
            standing: Standing::Elsewhere,
            null_seen: false,
            empty: None,
            procfs: None,
            limits: None,
            proc: None,
            slots: Slots::default(),
            exports: [const { None }; MAX_EXPORTS],
            unfilled: [const { None }; MAX_EXPORTS],
        }
    }

    pub(crate) fn keep_source(&mut self, index: usize, mount: Owned) -> Done {
        *self.sources.get_mut(index).ok_or(Errno::E2BIG)? = Some(mount);
        Ok(())
    }

    pub(crate) fn root(&self) -> Done<Fd> {
        self.root.as_ref().map(Owned::fd).ok_or(Errno::ENOENT)
    }

    /// Takes one step.
    pub(crate) fn apply(&mut self, op: &Op<&CStr, &[u8]>) -> Done {
        match *op {
            Op::Root { size, inodes } => self.make_root(size, inodes),
            Op::Dir { path, mode } => self.dir(path, mode),
            Op::File { path, mode, bytes } => self.file(path, mode, bytes),
            Op::Symlink { path, target } => {
                let (parent, name) = self.parent(path)?;
                bare::make_symlink(target, parent, name)
            }
            Op::Tmpfs { path, size, inodes, mode, attrs, export } => {
                self.mount_new(path, c"tmpfs", attrs, tmpfs_options(size, inodes, mode)?.as_c_str())?;
                export.map_or(Ok(()), |slot| self.export_dir(path, slot))
            }
            Op::Bind { source, path, attrs, file } => self.bind(source, path, attrs, file),
            Op::BindInner { from, path, attrs } => {
                let mount = bare::clone_mount(self.open(from)?.fd(), false)?;
                bare::set_attributes(mount.fd(), attrs.bits(), false)?;
                self.mount(path, &mount, false)
            }
            Op::Overlay { ref lowers, path, size, inodes, attrs, export } => {
                self.overlay(lowers, path, (size, inodes), attrs, export)
            }
            Op::Fill { path, size, inodes, attrs, slot } => self.fill(path, (size, inodes), attrs, slot),
            Op::Devpts { path, max } => self.devpts(path, max),
            Op::Proc { path } => self.procfs(path),
            Op::Mqueue { path } => self.mount_new(path, c"mqueue", OF_THE_KERNEL, c""),
            Op::Device { path, major, minor } => self.device(path, (major, minor)),
            Op::Mask { path, dir } => self.mask(path, dir),
            Op::ReadOnly { path, recursive } => self.read_only(path, recursive),
            Op::Pin { path } => self.onto_itself(path, Attrs::NONE, true),
            Op::SetAttr { path, attrs, recursive } if path == c"/" => {
                bare::set_attributes(self.root()?, attrs.bits(), recursive)
            }
            Op::SetAttr { path, attrs, recursive } => {
                bare::set_attributes(self.open(path)?.fd(), attrs.bits(), recursive)
            }
        }
    }

    /// The descriptors that are passed out, in the order of `slots`.
    pub(crate) fn exported(&self) -> [Fd; MAX_EXPORTS] {
        core::array::from_fn(|at| self.exports.get(at).and_then(Option::as_ref).map_or(Fd::new(0), Owned::fd))
    }

    pub(crate) fn must_be_filled(&self) -> bool {
        self.unfilled.iter().any(Option::is_some)
    }

    /// The supervisor has filled them: now their attributes hold.
    pub(crate) fn filled(&mut self) -> Done {
        for unfilled in self.unfilled.iter_mut().filter_map(Option::take) {
            bare::set_attributes(unfilled.mount.fd(), unfilled.attrs.bits(), false)?;
        }
        Ok(())
    }

    /// Closes what only building needed; `root` and the limits of namespaces stay.
    pub(crate) fn close(&mut self) {
        for source in self.sources.iter_mut().chain(&mut self.exports) {
            *source = None;
        }
        (self.scratch, self.parent) = (None, None);
    }

    /// Whether a scratch folder was laid over the old root.
    pub(crate) fn has_scratch(&self) -> bool {
        self.wants_scratch
    }

    fn make_root(&mut self, size: u64, inodes: u64) -> Done {
        if self.root.is_some() {
            return Err(Errno::EEXIST);
        }
        // First, so that it lies beneath the new root and goes with the old one.
        if self.wants_scratch {
            self.make_scratch()?;
        }
        let mount = tmpfs(size, inodes, 0o755)?.mount((Attrs::NOSUID | Attrs::NODEV).bits())?;
        // Before 6.15 nothing can be attached within a detached tree.
        bare::attach_over_root(mount.fd())?;
        self.root = Some(mount);
        Ok(())
    }

    /// What is at a path, by a descriptor that only names it.
    fn open(&self, path: &CStr) -> Done<Owned> {
        bare::open_path(self.root()?, relative(path)?, Within::Beneath)
    }

    /// The directory that holds a path, made if it is missing, and the name in it.
    fn parent<'p>(&mut self, path: &'p CStr) -> Done<(Fd, &'p CStr)> {
        let (parent, name) = split(relative(path)?)?;
        if parent == b"." {
            return Ok((self.root()?, name));
        }
        if self.parent.as_ref().is_none_or(|last| last.path.as_c_str().to_bytes() != parent) {
            self.forget_parent();
        }
        let dir = match self.parent.take().filter(|last| last.path.as_c_str().to_bytes() == parent) {
            Some(last) => last,
            None => {
                let mut path = Path::new();
                path.push(parent)?;
                let dir = match bare::open_path(self.root()?, path.as_c_str(), Within::Beneath) {
                    Err(Errno::ENOENT) => self.make_parents(parent)?,
                    found => found?,
                };
                Parent { path, dir }
            }
        };
        let fd = dir.dir.fd();
        self.parent = Some(dir);
        Ok((fd, name))
    }

    fn make_parents(&self, path: &[u8]) -> Done<Owned> {
        let mut at: Option<Owned> = None;
        let mut name = Path::new();
        for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            name.clear();
            name.push(part)?;
            let dir = at.as_ref().map_or(self.root(), |at| Ok(at.fd()))?;
            match bare::make_dir(dir, name.as_c_str(), 0o755) {
                Ok(()) | Err(Errno::EEXIST) => {}
                Err(errno) => return Err(errno),
            }
            at = Some(bare::open_path(dir, name.as_c_str(), Within::Beneath)?);
        }
        at.ok_or(Errno::EINVAL)
    }

    fn forget_parent(&mut self) {
        self.parent = None;
        if self.standing == Standing::Parent {
            self.standing = Standing::Elsewhere;
        }
    }

    /// Something was mounted here: what was opened before may lie beneath it now.
    fn covered(&mut self, path: &CStr) -> Done {
        let path = relative(path)?.to_bytes();
        let within = |parent: &[u8]| parent.strip_prefix(path).is_some_and(|rest| matches!(rest, [] | [b'/', ..]));
        if self.parent.as_ref().is_some_and(|last| within(last.path.as_c_str().to_bytes())) {
            self.forget_parent();
        }
        Ok(())
    }

    /// The working directory becomes the new root.
    fn stand_at_root(&mut self) -> Done {
        if self.standing != Standing::Root {
            bare::change_dir_to(self.root()?)?;
            self.standing = Standing::Root;
        }
        Ok(())
    }

    /// The working directory becomes what [`Tree::parent`] just gave.
    fn enter(&mut self, parent: Fd) -> Done {
        if parent == self.root()? {
            return self.stand_at_root();
        }
        if self.standing != Standing::Parent {
            bare::change_dir_to(parent)?;
            self.standing = Standing::Parent;
        }
        Ok(())
    }

    /// Mounts a new file system on a directory that is made for it, or is there already.
    fn mount_new(&mut self, path: &CStr, kind: &CStr, attrs: Attrs, options: &CStr) -> Done {
        let (parent, name) = self.parent(path)?;
        match bare::make_dir(parent, name, 0o755) {
            // It is ours and no link, so its name says where.
            Ok(()) => {
                self.enter(parent)?;
                bare::mount_new(kind, name, attrs.bits(), options)?;
            }
            Err(Errno::EEXIST) => {
                bare::change_dir_to(bare::open_path(parent, name, Within::Beneath)?.fd())?;
                self.standing = Standing::Elsewhere;
                bare::mount_new(kind, c".", attrs.bits(), options)?;
            }
            Err(errno) => return Err(errno),
        }
        self.covered(path)
    }

    /// A device of the host. Its path is followed wherever it leads: what counts is what is there in the end. Its mount is
    /// read-only, and what later hides a file by it is so too: the node is the host's, and nobody inside changes it.
    fn device(&mut self, path: &CStr, numbers: (u32, u32)) -> Done {
        let (parent, name) = self.parent(path)?;
        bare::make_file(parent, name, 0o644)?;
        self.enter(parent)?;
        bare::bind(path, name, false)?;
        if bare::status(parent, name)?.device != Some(numbers) {
            return Err(Errno::ENXIO);
        }
        bare::set_attributes_at(parent, name, Attrs::RDONLY.bits(), false)
    }

    /// Attaches a finished mount.
    fn mount(&mut self, path: &CStr, mount: &Owned, dir: bool) -> Done {
        let (parent, name) = self.parent(path)?;
        let made = if dir { bare::make_dir(parent, name, 0o755) } else { bare::make_file(parent, name, 0o644) };
        match made {
            // It is ours and no link, so its name says where.
            Ok(()) => bare::attach_at(mount.fd(), parent, name)?,
            Err(Errno::EEXIST) => bare::attach(mount.fd(), bare::open_path(parent, name, Within::Beneath)?.fd())?,
            Err(errno) => return Err(errno),
        }
        if dir { self.covered(path) } else { Ok(()) }
    }

    fn dir(&mut self, path: &CStr, mode: u32) -> Done {
        let (parent, name) = self.parent(path)?;
        match bare::make_dir(parent, name, mode) {
            Err(Errno::EEXIST) => {
                // It may exist, but only as a directory.
                let found = bare::open_path(parent, name, Within::Beneath)?;
                if bare::status(found.fd(), c"")?.dir { Ok(()) } else { Err(Errno::ENOTDIR) }
            }
            made => made,
        }
    }

    fn file(&mut self, path: &CStr, mode: u32, bytes: &[u8]) -> Done {
        let (parent, name) = self.parent(path)?;
        if bytes.is_empty() {
            return bare::make_file(parent, name, mode);
        }
        let file = bare::create(parent, name, mode, Within::Beneath)?;
        bare::write_all(file.fd(), bytes)
    }

    fn take_source(&mut self, index: u32) -> Done<Owned> {
        let index = usize::try_from(index).or(Err(Errno::EBADF))?;
        self.sources.get_mut(index).and_then(Option::take).ok_or(Errno::EBADF)
    }

    fn bind(&mut self, source: u32, path: &CStr, attrs: Attrs, file: bool) -> Done {
        let mount = self.take_source(source)?;
        bare::set_attributes(mount.fd(), attrs.bits(), true)?;
        self.mount(path, &mount, !file)
    }

    fn make_scratch(&mut self) -> Done {
        let attrs = Attrs::NOSUID | Attrs::NODEV | Attrs::NOEXEC;
        let mount = tmpfs(1 << 20, 4096, 0o700)?.mount(attrs.bits())?;
        bare::attach_over_root(mount.fd())?;
        self.scratch = Some(mount);
        Ok(())
    }

    fn scratch(&self) -> Done<Fd> {
        self.scratch.as_ref().map(Owned::fd).ok_or(Errno::ENOENT)
    }

    fn overlay(
        &mut self,
        lowers: &Lowers,
        path: &CStr,
        (size, inodes): (u64, u64),
        attrs: Attrs,
        export: Option<u32>,
    ) -> Done {
        let scratch = self.scratch()?;
        let number = Decimal::new(self.overlays);
        self.overlays = self.overlays.saturating_add(1);
        bare::make_dir(scratch, number.as_c_str(), 0o700)?;
        let here = bare::open_path(scratch, number.as_c_str(), Within::Beneath)?;

        let mut list = Path::new();
        let mut mode = None;
        for (at, index) in (0_u64..).zip(lowers.iter()) {
            let mount = self.take_source(index)?;
            bare::set_attributes(mount.fd(), Attrs::RDONLY.bits(), true)?;
            mode.get_or_insert(bare::status(mount.fd(), c"")?.mode);
            let name = Decimal::new(at);
            bare::make_dir(here.fd(), name.as_c_str(), 0o700)?;
            // Overlayfs takes lower layers of our own mount namespace only (before 6.15), so it is attached for a while.
            bare::attach(mount.fd(), bare::open_path(here.fd(), name.as_c_str(), Within::Beneath)?.fd())?;
            if at > 0 {
                list.push(b":")?;
            }
            list.push(name.as_c_str().to_bytes())?;
        }

        let overlay = FileSystem::open(c"overlay")?;
        let upper = if size == 0 { None } else { Some(upper_layer(here.fd(), (size, inodes), mode.unwrap_or(0o755))?) };
        // Relative paths need neither /proc nor a name in the new root; options are resolved as they are set.
        self.standing = Standing::Elsewhere;
        bare::change_dir_to(here.fd())?;
        if upper.is_some() {
            overlay.set(c"lowerdir", list.as_c_str())?;
            overlay.set(c"upperdir", c"t/upper")?;
            overlay.set(c"workdir", c"t/work")?;
        } else {
            // Without an upper layer overlayfs wants two lower ones.
            bare::make_dir(here.fd(), c"empty", 0o555)?;
            list.push(b":empty")?;
            overlay.set(c"lowerdir", list.as_c_str())?;
        }
        // The only attributes that an unprivileged user namespace may set.
        overlay.set_flag(c"userxattr")?;
        let mount = overlay.mount(attrs.bits())?;
        self.mount(path, &mount, true)?;
        match (export, upper) {
            (None, _) => Ok(()),
            (Some(slot), Some(upper)) => self.export(slot, upper),
            (Some(_), None) => Err(Errno::EINVAL),
        }
    }

    fn export(&mut self, slot: u32, fd: Owned) -> Done {
        let place = self.exports.get_mut(self.slots.len()).ok_or(Errno::E2BIG)?;
        *place = Some(fd);
        if self.slots.push(slot) { Ok(()) } else { Err(Errno::E2BIG) }
    }

    fn export_dir(&mut self, path: &CStr, slot: u32) -> Done {
        let inside = bare::open_dir(self.root()?, relative(path)?, Within::Beneath)?;
        self.export(slot, inside)
    }

    fn fill(&mut self, path: &CStr, (size, inodes): (u64, u64), attrs: Attrs, slot: u32) -> Done {
        let mount = tmpfs(size, inodes, 0o755)?.mount((Attrs::NOSUID | Attrs::NODEV).bits())?;
        self.mount(path, &mount, true)?;
        let inside = bare::open_dir(mount.fd(), c".", Within::Beneath)?;
        let at = self.slots.len();
        self.export(slot, inside)?;
        *self.unfilled.get_mut(at).ok_or(Errno::E2BIG)? = Some(Unfilled { mount, attrs });
        Ok(())
    }

    fn devpts(&mut self, path: &CStr, max: u32) -> Done {
        let mut options = Path::new();
        options.push(b"newinstance,ptmxmode=0666,mode=0620,max=")?;
        options.push(Decimal::new(u64::from(max)).as_c_str().to_bytes())?;
        self.mount_new(path, c"devpts", Attrs::NOSUID | Attrs::NOEXEC, options.as_c_str())?;
        let (parent, name) = self.parent(path)?;
        let mut target = Path::new();
        target.push(name.to_bytes())?;
        target.push(b"/ptmx")?;
        bare::make_symlink(target.as_c_str(), parent, c"ptmx")
    }

    fn procfs(&mut self, path: &CStr) -> Done {
        self.mount_new(path, c"proc", OF_THE_KERNEL, c"")?;
        let proc = self.open(path)?;
        self.limits = Some(bare::open_path(proc.fd(), c"sys/user", Within::Beneath)?);
        self.proc = Some(proc);
        let mut place = Path::new();
        place.push(relative(path)?.to_bytes())?;
        self.procfs = Some(place);
        Ok(())
    }

    /// Whether a path, from the new root, lies in our procfs: only the kernel makes names there.
    fn in_procfs(&self, path: &CStr) -> bool {
        let rest = self.procfs.as_ref().and_then(|proc| path.to_bytes().strip_prefix(proc.as_c_str().to_bytes()));
        rest.is_some_and(|rest| rest.first() == Some(&b'/'))
    }

    fn mask(&mut self, path: &CStr, dir: bool) -> Done {
        let path = relative(path)?;
        if !self.in_procfs(path) {
            // Its kind must be known before anything is laid over it: somebody else may have made it.
            let over = match bare::open_path(self.root()?, path, Within::Beneath) {
                Err(Errno::ENOENT) => return Ok(()),
                found => found?,
            };
            let mount = if bare::status(over.fd(), c"")?.dir { self.empty_mount()? } else { self.null_mount()? };
            return bare::attach(mount.fd(), over.fd());
        }
        self.stand_at_root()?;
        let hidden = match self.hide(path, dir) {
            Err(Errno::ENOTDIR) => self.hide(path, !dir),
            hidden => hidden,
        };
        // What hides it is known to be there.
        if hidden == Err(Errno::ENOENT) { Ok(()) } else { hidden }
    }

    /// From the new root. `ENOTDIR`: it is of the other kind.
    fn hide(&mut self, path: &CStr, dir: bool) -> Done {
        if !dir {
            self.see_null()?;
            return bare::bind(c"dev/null", path, false);
        }
        // One empty file system serves all masks.
        if let Some(first) = &self.empty {
            return bare::bind(first.as_c_str(), path, false);
        }
        bare::mount_new(c"tmpfs", path, HIDDEN.bits(), tmpfs_options(4096, 1, 0o555)?.as_c_str())?;
        let mut first = Path::new();
        first.push(path.to_bytes())?;
        self.empty = Some(first);
        Ok(())
    }

    /// `dev/null` of the new root must be the device: `ENXIO`, and never `ENOENT`, which would mean that there is nothing
    /// to hide.
    fn see_null(&mut self) -> Done {
        if !self.null_seen {
            let found = bare::status(self.root()?, c"dev/null").ok().and_then(|found| found.device);
            if found != Some(NULL) {
                return Err(Errno::ENXIO);
            }
            self.null_seen = true;
        }
        Ok(())
    }

    fn null_mount(&mut self) -> Done<Owned> {
        self.see_null()?;
        bare::clone_mount(self.open(c"/dev/null")?.fd(), false)
    }

    fn empty_mount(&self) -> Done<Owned> {
        tmpfs(4096, 1, 0o555)?.mount(HIDDEN.bits())
    }

    fn read_only(&mut self, path: &CStr, recursive: bool) -> Done {
        let inside = relative(path)?;
        if !self.in_procfs(inside) {
            return self.onto_itself(path, Attrs::RDONLY, recursive);
        }
        self.stand_at_root()?;
        bare::bind(inside, inside, recursive)?;
        bare::set_attributes_at(self.root()?, inside, Attrs::RDONLY.bits(), recursive)?;
        self.covered(path)
    }

    fn onto_itself(&mut self, path: &CStr, attrs: Attrs, recursive: bool) -> Done {
        let place = self.open(path)?;
        let mount = bare::clone_mount(place.fd(), recursive)?;
        bare::set_attributes(mount.fd(), attrs.bits(), recursive)?;
        self.covered(path)?;
        bare::attach(mount.fd(), place.fd())
    }
}

/// A tmpfs with both of its bounds: without them it may take half of the memory.
fn tmpfs(size: u64, inodes: u64, mode: u32) -> Done<FileSystem> {
    let tmpfs = FileSystem::open(c"tmpfs")?;
    // 0 would mean "no bound" to the kernel.
    tmpfs.set(c"size", Decimal::new(size.max(4096)).as_c_str())?;
    tmpfs.set(c"nr_inodes", Decimal::new(inodes.max(1)).as_c_str())?;
    if mode != 0o777 {
        tmpfs.set(c"mode", octal(mode).as_c_str())?;
    }
    Ok(tmpfs)
}

/// The same for mount(2).
fn tmpfs_options(size: u64, inodes: u64, mode: u32) -> Done<Path> {
    let (size, inodes, mode) = (Decimal::new(size.max(4096)), Decimal::new(inodes.max(1)), octal(mode));
    let numbers = [size.as_c_str(), inodes.as_c_str(), mode.as_c_str()];
    let mut options = Path::new();
    for (name, number) in [&b"size="[..], b",nr_inodes=", b",mode="].into_iter().zip(numbers) {
        options.push(name)?;
        options.push(number.to_bytes())?;
    }
    Ok(options)
}

/// The upper layer and its workdir on a tmpfs of their own; the descriptor is of the upper layer.
fn upper_layer(here: Fd, (size, inodes): (u64, u64), mode: u32) -> Done<Owned> {
    let mount = tmpfs(size, inodes, 0o700)?.mount((Attrs::NOSUID | Attrs::NODEV).bits())?;
    bare::make_dir(here, c"t", 0o700)?;
    bare::attach(mount.fd(), bare::open_path(here, c"t", Within::Beneath)?.fd())?;
    bare::make_dir(mount.fd(), c"work", 0o700)?;
    bare::make_dir(mount.fd(), c"upper", mode)?;
    bare::open_dir(mount.fd(), c"upper", Within::Beneath)
}

fn octal(mode: u32) -> Decimal {
    let digit = |shift: u32| u64::from((mode >> shift) & 7);
    // Four octal digits, read as decimal ones.
    Decimal::new(digit(9) * 1000 + digit(6) * 100 + digit(3) * 10 + digit(0))
}
