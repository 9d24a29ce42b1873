//! A directory held open: everything below it is reached by name from its descriptor, never by a path that somebody
//! could have swapped meanwhile.
//!
//! Kernel facts: `openat2` (5.6) with `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS`; it answers EAGAIN
//! when a rename raced with it, which is tried again a bounded number of times.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path};

use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::{Errno, Result};

/// How often a lookup that raced with a rename is tried again.
const RACES: usize = 32;
/// How many entries [`Dir::remove_tree`] touches before it gives up.
const MAX_REMOVED: usize = 5_000_000;

/// An open directory.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    /// Folders on the way to it, and itself, that stand open for as long as it lives.
    _opened: Vec<Opened>,
}

/// A folder that its owner had closed and that is open while this lives; then it has its mode again, unless somebody gave it
/// another one meanwhile.
#[derive(Debug)]
pub struct Opened {
    folder: OwnedFd,
    was: Mode,
}

impl Drop for Opened {
    fn drop(&mut self) {
        let now = rustix::fs::fstat(&self.folder).map(|stat| Mode::from_raw_mode(stat.st_mode));
        if now == Ok(self.was | Mode::RWXU) {
            // Where it cannot be, the folder is more open to its owner than it was: nobody else gains by it.
            change_mode(&self.folder, self.was).unwrap_or_default();
        }
    }
}

/// Whether a lookup may cross into another mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cross {
    /// It stays on the mount that it began on.
    No,
    /// It may.
    Yes,
}

/// Calls `visit` with each name that is listed, without `.` and `..`, until it answers `false`.
fn visit_names(listed: rustix::fs::Dir, mut visit: impl FnMut(&[u8]) -> bool) -> Result<()> {
    for entry in listed {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." && !visit(name) {
            break;
        }
    }
    Ok(())
}

impl From<OwnedFd> for Dir {
    fn from(fd: OwnedFd) -> Self {
        Self { fd, _opened: Vec::new() }
    }
}

impl From<Dir> for OwnedFd {
    fn from(dir: Dir) -> Self {
        dir.fd
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Dir {
    /// Opens an absolute path of which no part is a symbolic link.
    ///
    /// # Errors
    /// ELOOP if a part is a symbolic link, ENOTDIR if it is no directory, and what `openat2` answers.
    pub fn open(path: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        lookup(CWD, path, flags, Mode::empty(), resolve).map(Self::from)
    }

    /// Opens a directory beneath this one; `.` and the empty path give a second descriptor of itself.
    ///
    /// # Errors
    /// ELOOP at a symbolic link, EXDEV at `..` out of it or at a mount that may not be crossed.
    pub fn enter(&self, below: impl AsRef<Path>, cross: Cross) -> Result<Self> {
        let below = below.as_ref();
        let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
        self.lookup(below, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty(), cross).map(Self::from)
    }

    /// [`Self::enter`] on the same mount where the names can be read too: a folder that may be read but not searched opens, and
    /// does not tell them.
    ///
    /// # Errors
    /// As [`Self::enter`]; EACCES where the names cannot be read.
    pub fn enter_to_list(&self, name: impl AsRef<Path>) -> Result<Self> {
        let dir = self.enter(name, Cross::No)?;
        dir.each_name(|_| false)?;
        Ok(dir)
    }

    /// As [`Self::enter`], also where the caller owns a folder and has closed it (0311, 0000): such a one is opened for as long
    /// as the answer lives.
    ///
    /// # Errors
    /// As [`Self::enter`]; EACCES where another user closed a folder; EBUSY where somebody closes the caller's again and again.
    pub fn look_into(&self, below: impl AsRef<Path>, cross: Cross) -> Result<Self> {
        self.opening(below.as_ref(), OFlags::RDONLY, cross)
    }

    /// A directory beneath this one in which names can be looked up, though perhaps not listed. What its owner closed is opened
    /// as by [`Self::look_into`].
    ///
    /// # Errors
    /// As [`Self::look_into`].
    pub fn reach(&self, below: impl AsRef<Path>, cross: Cross) -> Result<Self> {
        self.opening(below.as_ref(), OFlags::PATH, cross)
    }

    fn opening(&self, below: &Path, flags: OFlags, cross: Cross) -> Result<Self> {
        let flags = flags | OFlags::DIRECTORY;
        // The dot asks for the right to look names up in the last folder as well.
        let as_it_is = || self.lookup(&below.join("."), flags, Mode::empty(), cross).map(Self::from);
        let mut answer = as_it_is();
        if answer.as_ref().err() == Some(&Errno::ACCESS) {
            answer = Err(Errno::BUSY);
            for _ in 0..RACES {
                if answer.as_ref().err() != Some(&Errno::BUSY) {
                    break;
                }
                answer = self.step_by_step(below, flags, cross);
            }
        }
        answer
    }

    /// Opens what is closed on the way, each folder by its descriptor. EBUSY: one of the caller's own was closed meanwhile.
    fn step_by_step(&self, below: &Path, flags: OFlags, cross: Cross) -> Result<Self> {
        let (place, wanted) = (OFlags::PATH | OFlags::DIRECTORY, Mode::RUSR | Mode::XUSR);
        let mut opened: Vec<Opened> = opened_up(self.fd.as_fd(), wanted)?.into_iter().collect();
        let mut at = None::<Self>;
        for part in below.components().filter(|part| *part != Component::CurDir) {
            let from = at.as_ref().unwrap_or(self);
            let next = from.lookup(Path::new(part.as_os_str()), place, Mode::empty(), cross);
            let next = Self::from(next.map_err(|errno| from.refused(errno))?);
            opened.extend(opened_up(next.fd.as_fd(), wanted)?);
            at = Some(next);
        }
        let at = at.as_ref().unwrap_or(self);
        let fd = at.lookup(Path::new("."), flags, Mode::empty(), cross).map_err(|errno| at.refused(errno))?;
        Ok(Self { fd, _opened: opened })
    }

    /// A folder of the caller's own refuses them nothing for long.
    fn refused(&self, errno: Errno) -> Errno {
        let own = || rustix::fs::fstat(&self.fd).is_ok_and(|stat| stat.st_uid == rustix::process::geteuid().as_raw());
        if errno == Errno::ACCESS && own() { Errno::BUSY } else { errno }
    }

    /// Lets its owner change names in this folder for as long as the answer lives; `None` where they may already, or where it
    /// is somebody else's.
    ///
    /// # Errors
    /// What the change of its mode answers.
    pub fn open_for_changes(&self) -> Result<Option<Opened>> {
        opened_up(self.fd.as_fd(), Mode::WUSR | Mode::XUSR)
    }

    /// Whether the caller may make names in a folder beneath this one, on the way to which everything of theirs is open or opened.
    ///
    /// # Errors
    /// As [`Self::reach`], and what `faccessat2` answers.
    pub fn may_make_in(&self, below: impl AsRef<Path>) -> Result<bool> {
        let below = below.as_ref();
        let above = self.reach(below.parent().unwrap_or(Path::new("")), Cross::Yes)?;
        let place = above.place(below.file_name().unwrap_or(OsStr::new(".")))?;
        let wanted = Access::WRITE_OK | Access::EXEC_OK;
        match rustix::fs::accessat(CWD, own_link(&place), wanted, AtFlags::EACCESS) {
            Ok(()) => Ok(true),
            Err(Errno::ACCESS | Errno::ROFS) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Gives what has this name another mode, whatever it had.
    ///
    /// # Errors
    /// As [`Self::open_file`]; EOPNOTSUPP for a link.
    pub fn set_mode(&self, name: impl AsRef<Path>, mode: Mode) -> Result<()> {
        change_mode(&self.open_file(name, OFlags::PATH, Mode::empty())?, mode)
    }

    /// A directory beneath this one as a place alone: no right to look into it is asked.
    ///
    /// # Errors
    /// As [`Self::enter`].
    pub fn place(&self, below: impl AsRef<Path>) -> Result<OwnedFd> {
        self.lookup(below.as_ref(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty(), Cross::Yes)
    }

    /// Opens a file beneath this directory. `NOFOLLOW`, `NONBLOCK`, `NOCTTY` and `CLOEXEC` are added, so that neither a
    /// FIFO nor a terminal can hold us.
    ///
    /// # Errors
    /// As [`Dir::enter`], and what the open answers.
    pub fn open_file(&self, below: impl AsRef<Path>, flags: OFlags, mode: Mode) -> Result<File> {
        // What is opened as a place alone holds nobody, and takes no such flags.
        let held = OFlags::NONBLOCK | OFlags::NOCTTY;
        let flags = flags | OFlags::NOFOLLOW | if flags.contains(OFlags::PATH) { OFlags::empty() } else { held };
        self.lookup(below.as_ref(), flags, mode, Cross::No).map(File::from)
    }

    /// Reads a regular file of at most `most` bytes.
    ///
    /// # Errors
    /// EINVAL for anything but a regular file, EFBIG for one that is larger.
    pub fn read(&self, below: impl AsRef<Path>, most: u64) -> Result<Vec<u8>> {
        let file = self.open_file(below, OFlags::RDONLY, Mode::empty())?;
        let stat = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Errno::INVAL);
        }
        let mut content = Vec::with_capacity(usize::try_from(stat.st_size).unwrap_or(0).min(1 << 20));
        file.take(most.saturating_add(1)).read_to_end(&mut content).map_err(|e| errno_of(&e))?;
        if u64::try_from(content.len()).unwrap_or(u64::MAX) > most { Err(Errno::FBIG) } else { Ok(content) }
    }

    /// Makes a directory; `false` if a directory (and no link) of that name was there.
    ///
    /// # Errors
    /// What `mkdirat` answers; EEXIST if something else has the name.
    pub fn make(&self, name: impl AsRef<OsStr>, mode: Mode) -> Result<bool> {
        let name = Path::new(name.as_ref());
        match rustix::fs::mkdirat(&self.fd, name, mode) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) if self.kind(name)? == Some(FileType::Directory) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// What has this name, links not followed; `None` if nothing.
    ///
    /// # Errors
    /// What `statat` answers.
    pub fn kind(&self, name: impl AsRef<OsStr>) -> Result<Option<FileType>> {
        Ok(self.stat(name)?.map(|s| FileType::from_raw_mode(s.st_mode)))
    }

    /// The metadata of one direct child, links not followed; `None` if nothing has the name.
    ///
    /// # Errors
    /// What `statat` answers.
    pub fn stat(&self, name: impl AsRef<OsStr>) -> Result<Option<Stat>> {
        match rustix::fs::statat(&self.fd, Path::new(name.as_ref()), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether a file or folder in this directory holds nothing; anything else is not empty, nor is what cannot be read.
    #[must_use]
    pub fn is_empty(&self, name: &OsStr, mode: u32, size: u64, cross: Cross) -> bool {
        match FileType::from_raw_mode(mode) {
            FileType::RegularFile => size == 0,
            FileType::Directory => self.enter(name, cross).and_then(|dir| dir.names()).is_ok_and(|all| all.is_empty()),
            FileType::Symlink
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => false,
        }
    }

    /// The names in this directory, sorted by bytes, without `.` and `..`.
    ///
    /// # Errors
    /// What `getdents64` answers.
    pub fn names(&self) -> Result<Vec<OsString>> {
        let mut names = Vec::new();
        self.each_name(|name| {
            names.push(OsString::from_vec(name.to_vec()));
            true
        })?;
        names.sort_unstable();
        Ok(names)
    }

    /// The names in this directory, in an order that nobody can foresee, read so that its time of access tells nobody when.
    ///
    /// # Errors
    /// What `getdents64` answers.
    pub fn names_unforeseen(&self) -> Result<Vec<OsString>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = |flags| rustix::fs::openat(&self.fd, ".", flags, Mode::empty());
        // Only the owner may ask for that.
        let again = open(flags | OFlags::NOATIME).or_else(|_of_another| open(flags))?;
        let mut names = Vec::new();
        visit_names(rustix::fs::Dir::new(again)?, |name| {
            names.push(OsString::from_vec(name.to_vec()));
            true
        })?;
        let mut random = [0; 8];
        // Without random bytes the order is the kernel's.
        if sys::random::fill(&mut random) {
            let at = usize::try_from(u64::from_ne_bytes(random) >> 1).unwrap_or(0);
            let by = at.checked_rem(names.len()).unwrap_or(0);
            names.rotate_left(by);
        }
        Ok(names)
    }

    /// The names of the children and what they are, in no order.
    ///
    /// # Errors
    /// What `getdents64` answers.
    pub fn kinds(&self) -> Result<Vec<(OsString, FileType)>> {
        let mut found = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.fd)? {
            let entry = entry?;
            let name = OsString::from_vec(entry.file_name().to_bytes().to_vec());
            if name == "." || name == ".." {
                continue;
            }
            // Some file systems do not say; a name that is gone meanwhile is none.
            let told = entry.file_type();
            let kind = if told == FileType::Unknown { self.kind(&name)? } else { Some(told) };
            found.extend(kind.map(|kind| (name, kind)));
        }
        Ok(found)
    }

    /// Calls `visit` with each name until it answers `false`.
    ///
    /// # Errors
    /// What `getdents64` answers.
    pub fn each_name(&self, visit: impl FnMut(&[u8]) -> bool) -> Result<()> {
        visit_names(rustix::fs::Dir::read_from(&self.fd)?, visit)
    }

    /// Removes whatever has this name, a whole tree included. Symbolic links are removed, not followed; mounts are not
    /// entered. Directories without any permission are opened up first. The depth of the tree does not matter: inner
    /// directories are moved up before they are emptied, so at most two descriptors are open.
    ///
    /// # Errors
    /// The first thing that could not be removed; EBUSY or EXDEV for a mount inside.
    pub fn remove_tree(&self, name: impl AsRef<OsStr>) -> Result<()> {
        let name = Path::new(name.as_ref());
        match self.kind(name)? {
            None => return Ok(()),
            Some(FileType::Directory) => {}
            Some(_) => return rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()),
        }
        let top = self.open_up(name)?;
        let mut touched = 0;
        let mut moved = 0;
        loop {
            let names = top.names()?;
            if names.is_empty() {
                break;
            }
            for child in names {
                top.remove_one(&child, &mut moved, &mut touched)?;
            }
        }
        rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR)
    }

    /// Removes `child` of this directory; directories found in it become children of this directory.
    fn remove_one(&self, child: &OsStr, moved: &mut u64, touched: &mut usize) -> Result<()> {
        *touched += 1;
        if *touched > MAX_REMOVED {
            return Err(Errno::FBIG);
        }
        let path = Path::new(child);
        if self.kind(child)? != Some(FileType::Directory) {
            return absent_is_fine(rustix::fs::unlinkat(&self.fd, path, AtFlags::empty()));
        }
        let inner = self.open_up(path)?;
        for name in inner.names()? {
            *touched += 1;
            let name_path = Path::new(&name);
            if inner.kind(&name)? != Some(FileType::Directory) {
                absent_is_fine(rustix::fs::unlinkat(&inner.fd, name_path, AtFlags::empty()))?;
                continue;
            }
            // A directory whose parent changes is written to ("..": it must be ours and writable).
            drop(inner.open_up(name_path)?);
            loop {
                *moved += 1;
                let up = format!(".fumehood-removing-{moved}");
                match rustix::fs::renameat_with(
                    &inner.fd,
                    name_path,
                    &self.fd,
                    up.as_str(),
                    rustix::fs::RenameFlags::NOREPLACE,
                ) {
                    Err(Errno::EXIST) => {}
                    other => break other?,
                }
            }
        }
        rustix::fs::unlinkat(&self.fd, path, AtFlags::REMOVEDIR)
    }

    /// Opens a direct child for reading, its owner given all rights on it first.
    fn open_up(&self, name: &Path) -> Result<Self> {
        let dir = match self.enter(name, Cross::No) {
            Err(Errno::ACCESS) => {
                // Not readable even by its owner. The descriptor's own link in /proc is the one way to change the mode
                // of exactly what was looked up: a name could be swapped for a link.
                let path = self.lookup(name, OFlags::PATH | OFlags::DIRECTORY, Mode::empty(), Cross::No)?;
                change_mode(path, Mode::RWXU)?;
                self.enter(name, Cross::No)?
            }
            other => other?,
        };
        if rustix::fs::fstat(&dir.fd)?.st_mode & 0o700 != 0o700 {
            rustix::fs::fchmod(&dir.fd, Mode::RWXU)?;
        }
        Ok(dir)
    }

    fn lookup(&self, below: &Path, flags: OFlags, mode: Mode, cross: Cross) -> Result<OwnedFd> {
        let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        if cross == Cross::No {
            resolve |= ResolveFlags::NO_XDEV;
        }
        lookup(self.fd.as_fd(), below, flags | OFlags::CLOEXEC, mode, resolve)
    }
}

fn lookup(at: BorrowedFd<'_>, path: &Path, flags: OFlags, mode: Mode, resolve: ResolveFlags) -> Result<OwnedFd> {
    let mut answer = Err(Errno::AGAIN);
    for _ in 0..RACES {
        answer = rustix::fs::openat2(at, path, flags, mode, resolve);
        match answer {
            Err(Errno::AGAIN | Errno::INTR) => {}
            Ok(_) | Err(_) => break,
        }
    }
    answer
}

/// The descriptor's own link in /proc: the one way to change the mode of exactly what was looked up, for one (`fchmod` refuses
/// O_PATH, and a name could be swapped for a link).
pub(crate) fn own_link(fd: impl AsFd) -> String {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}

fn change_mode(fd: impl AsFd, mode: Mode) -> Result<()> {
    // Held until it is done: the number of one that is closed is nobody's, or another one's.
    rustix::fs::chmod(own_link(&fd), mode)
}

/// Opens a folder to its owner, if they have not these rights.
fn opened_up(folder: BorrowedFd<'_>, wanted: Mode) -> Result<Option<Opened>> {
    let was = Mode::from_raw_mode(rustix::fs::fstat(folder)?.st_mode);
    if was.contains(wanted) {
        return Ok(None);
    }
    let folder = folder.try_clone_to_owned().map_err(|e| errno_of(&e))?;
    match change_mode(&folder, was | Mode::RWXU) {
        Ok(()) => Ok(Some(Opened { folder, was })),
        // Somebody else's: whoever asks does without.
        Err(Errno::PERM) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn absent_is_fine(result: Result<()>) -> Result<()> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

/// The kernel's word behind a standard I/O error.
#[must_use]
pub fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// The last part of a path as bytes; empty for `/` and `..`.
#[must_use]
pub fn last_name(path: &Path) -> &[u8] {
    path.file_name().map_or(b"", OsStrExt::as_bytes)
}
