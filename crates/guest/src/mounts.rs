//! The operations that build the new root, one function each.
//!
//! Every path is walked beneath the new root and through no symlink, since a source may be written to by somebody else
//! at this very moment. Mounts are built detached and attached when they are finished.

use core::ffi::CStr;

use sys::bare::{self, Errno, Fd, FileSystem, Owned, Within};

use crate::config::{Attrs, Lowers, MAX_EXPORTS, MAX_SOURCES, Op};
use crate::frames::Slots;
use crate::paths::{Decimal, Path, relative, split};

type Done<T = ()> = bare::Result<T>;

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

/// What the interpreter has made so far.
pub(crate) struct Tree {
    root: Option<Owned>,
    sources: [Option<Owned>; MAX_SOURCES],
    /// A tmpfs that never becomes part of the new root: layers of overlays and the empty folder lie there.
    scratch: Option<Owned>,
    wants_scratch: bool,
    overlays: u64,
    parent: Option<Parent>,
    dev_null: Option<Owned>,
    empty: Option<Owned>,
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
            dev_null: None,
            empty: None,
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
            Op::Tmpfs { path, size, inodes, mode, attrs } => {
                self.mount(path, &tmpfs(size, inodes, mode)?.mount(attrs.bits())?, true)
            }
            Op::Bind { source, path, attrs, file } => self.bind(source, path, attrs, file),
            Op::Overlay { ref lowers, path, size, inodes, attrs, export } => {
                self.overlay(lowers, path, (size, inodes), attrs, export)
            }
            Op::Fill { path, size, inodes, attrs, slot } => self.fill(path, (size, inodes), attrs, slot),
            Op::Devpts { path, max } => self.devpts(path, max),
            Op::Proc { path } => self.procfs(path),
            Op::Mqueue { path } => {
                let attrs = Attrs::NOSUID | Attrs::NODEV | Attrs::NOEXEC;
                self.mount(path, &FileSystem::open(c"mqueue")?.mount(attrs.bits())?, true)
            }
            Op::Mask { path } => self.mask(path),
            Op::ReadOnly { path, recursive } => self.onto_itself(path, Attrs::RDONLY, recursive),
            Op::Pin { path } => self.onto_itself(path, Attrs::NONE, true),
            Op::Stub { path, dir } => self.stub(path, dir),
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
        (self.scratch, self.dev_null, self.empty, self.parent) = (None, None, None, None);
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
        let mut at = bare::open_path(self.root()?, c".", Within::Beneath)?;
        let mut name = Path::new();
        for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            name.clear();
            name.push(part)?;
            at = match bare::open_path(at.fd(), name.as_c_str(), Within::Beneath) {
                Err(Errno::ENOENT) => {
                    bare::make_dir(at.fd(), name.as_c_str(), 0o755)?;
                    bare::open_path(at.fd(), name.as_c_str(), Within::Beneath)?
                }
                found => found?,
            };
        }
        Ok(at)
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
        if dir {
            // What was opened before may lie beneath it now.
            self.parent = None;
        }
        Ok(())
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
        let devpts = FileSystem::open(c"devpts")?;
        devpts.set_flag(c"newinstance")?;
        devpts.set(c"ptmxmode", c"0666")?;
        devpts.set(c"mode", c"0620")?;
        devpts.set(c"max", Decimal::new(u64::from(max)).as_c_str())?;
        let mount = devpts.mount((Attrs::NOSUID | Attrs::NOEXEC).bits())?;
        self.mount(path, &mount, true)?;
        let (parent, name) = self.parent(path)?;
        let mut target = Path::new();
        target.push(name.to_bytes())?;
        target.push(b"/ptmx")?;
        bare::make_symlink(target.as_c_str(), parent, c"ptmx")
    }

    fn procfs(&mut self, path: &CStr) -> Done {
        let attrs = Attrs::NOSUID | Attrs::NODEV | Attrs::NOEXEC;
        let mount = FileSystem::open(c"proc")?.mount(attrs.bits())?;
        self.mount(path, &mount, true)?;
        self.limits = Some(bare::open_path(mount.fd(), c"sys/user", Within::Beneath)?);
        self.proc = Some(mount);
        Ok(())
    }

    fn mask(&mut self, path: &CStr) -> Done {
        let over = match self.open(path) {
            Err(Errno::ENOENT) => return Ok(()),
            found => found?,
        };
        if !bare::status(over.fd(), c"")?.dir {
            return bare::attach(self.null()?.fd(), over.fd());
        }
        // One empty file system serves all masks: the first mount of it is attached, the others are copies.
        if let Some(empty) = &self.empty {
            return bare::attach(bare::clone_mount(empty.fd(), false)?.fd(), over.fd());
        }
        let attrs = Attrs::RDONLY | Attrs::NOSUID | Attrs::NODEV | Attrs::NOEXEC;
        let mount = tmpfs(4096, 1, 0o555)?.mount(attrs.bits())?;
        bare::attach(mount.fd(), over.fd())?;
        self.empty = Some(mount);
        Ok(())
    }

    fn null(&mut self) -> Done<Owned> {
        if self.dev_null.is_none() {
            self.dev_null = Some(self.open(c"/dev/null")?);
        }
        bare::clone_mount(self.dev_null.as_ref().map(Owned::fd).ok_or(Errno::ENOENT)?, false)
    }

    fn onto_itself(&mut self, path: &CStr, attrs: Attrs, recursive: bool) -> Done {
        let place = self.open(path)?;
        let mount = bare::clone_mount(place.fd(), recursive)?;
        bare::set_attributes(mount.fd(), attrs.bits(), recursive)?;
        self.parent = None;
        bare::attach(mount.fd(), place.fd())
    }

    fn stub(&mut self, path: &CStr, dir: bool) -> Done {
        let (parent, name) = split(relative(path)?)?;
        let mut whole = Path::new();
        whole.push(parent)?;
        // The parent must exist and is never made: what the supervisor has not written down could not be removed again.
        let parent = bare::open_path(self.root()?, whole.as_c_str(), Within::Beneath)?;
        let made =
            if dir { bare::make_dir(parent.fd(), name, 0o755) } else { bare::make_file(parent.fd(), name, 0o644) };
        match made {
            Ok(()) | Err(Errno::EEXIST) => self.onto_itself(path, Attrs::RDONLY, dir),
            Err(errno) => Err(errno),
        }
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
