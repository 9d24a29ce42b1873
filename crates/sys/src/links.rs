//! A link that another process asks about, found as that process would find it (path_resolution(7)) and held: what is judged is
//! what is read.
//!
//! *Promises*: a text is read once, out of the memory of the thread that asks; a link is opened before anybody judges it, and read
//! from what was opened. `/proc/self` and `/proc/thread-self` are those of the thread that asks.
//!
//! *Does not promise*: roots that are not the caller's own (`chroot`) are not left by `..` alone.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::{Mode, OFlags, ResolveFlags};
pub use rustix::io::Errno;

use crate::paths::{self, FileStat, Kind};

/// As many links as the kernel follows (`MAXSYMLINKS`).
const MAX_LINKS: usize = 40;
/// The longest path, its end included (`PATH_MAX`).
const MAX_PATH: usize = 4096;
/// What is read of the memory of another process at once: the rest of a page may not be there.
const PAGE: usize = 4096;
/// `PROC_SUPER_MAGIC`, and the inode of the root of such a file system.
const PROC: u64 = 0x9fa0;
const PROC_ROOT: u64 = 1;
/// The deepest place whose folders are looked at.
const MAX_DEPTH: usize = 2048;

/// `AT_FDCWD`: seen from the working directory.
pub const CWD: i32 = libc::AT_FDCWD;

type Found<T> = Result<T, Errno>;

/// A thread that waits for an answer.
#[derive(Debug)]
pub struct Asker {
    thread: u32,
    memory: OwnedFd,
}

/// A link that was found.
#[derive(Debug)]
pub struct Link {
    /// Where it lies.
    pub folder: OwnedFd,
    link: OwnedFd,
    /// What it is.
    pub facts: FileStat,
    /// Its text where that is the asker's alone.
    own: Option<Vec<u8>>,
}

/// A place, as far as those judge who may pass there.
#[derive(Debug)]
pub struct Above {
    /// The folder itself, and each above it up to the root.
    pub folders: Vec<FileStat>,
    /// On procfs the uppermost folder below its root: a process, or what is no process.
    pub process: Option<OwnedFd>,
}

impl Asker {
    /// Opens the memory of a thread. It is the asker's if its question waits still.
    ///
    /// # Errors
    /// EACCES, EPERM: it may not be read.
    pub fn open(thread: u32) -> Found<Self> {
        let memory = rustix::fs::open(format!("/proc/{thread}/mem"), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { thread, memory })
    }

    /// The text at an address, without its end.
    ///
    /// # Errors
    /// EFAULT, ENAMETOOLONG.
    pub fn text(&self, mut at: u64) -> Found<Vec<u8>> {
        let mut text = Vec::with_capacity(256);
        while text.len() < MAX_PATH {
            let mut part = [0; PAGE];
            let within = usize::try_from(at).map_or(0, |at| at % PAGE);
            let part = part.get_mut(within..).unwrap_or_default();
            let read = rustix::io::pread(&self.memory, &mut *part, at).map_err(|_unreadable| Errno::FAULT)?;
            let part = part.get(..read).filter(|part| !part.is_empty()).ok_or(Errno::FAULT)?;
            if let Some(end) = part.iter().position(|byte| *byte == 0) {
                text.extend_from_slice(part.get(..end).unwrap_or_default());
                return if text.len() < MAX_PATH { Ok(text) } else { Err(Errno::NAMETOOLONG) };
            }
            text.extend_from_slice(part);
            at = u64::try_from(read).ok().and_then(|read| at.checked_add(read)).ok_or(Errno::FAULT)?;
        }
        Err(Errno::NAMETOOLONG)
    }

    /// Writes bytes to an address.
    ///
    /// # Errors
    /// EFAULT.
    pub fn give(&self, at: u64, bytes: &[u8]) -> Found<()> {
        match rustix::io::pwrite(&self.memory, bytes, at) {
            Ok(count) if count == bytes.len() => Ok(()),
            Ok(_) | Err(_) => Err(Errno::FAULT),
        }
    }

    /// Something that belongs to the thread.
    fn has(&self, name: &str) -> Found<OwnedFd> {
        rustix::fs::open(format!("/proc/{}/{name}", self.thread), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
    }

    /// The number of its process.
    fn process(&self) -> Found<String> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.thread)).map_err(|_gone| Errno::SRCH)?;
        let number = status.lines().find_map(|line| line.strip_prefix("Tgid:")).ok_or(Errno::SRCH)?;
        Ok(number.trim().to_owned())
    }

    /// The link at a path, seen from the thread's descriptor `folder` unless the path is absolute. `may` is asked about links of
    /// procfs that lead on the way there, each of which jumps to wherever its process is.
    ///
    /// # Errors
    /// As readlinkat(2).
    pub fn link(&self, folder: i32, path: &[u8], may: &dyn Fn(&Link) -> bool) -> Found<Link> {
        if path.is_empty() {
            return if folder == CWD { Err(Errno::NOENT) } else { self.held(folder) };
        }
        let base = match (path.first(), folder) {
            (Some(b'/'), _) => self.has("root")?,
            (_, CWD) => self.has("cwd")?,
            (_, number) => self.descriptor(number)?,
        };
        let (above, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (path.get(..at.max(1)).unwrap_or_default(), path.get(at.saturating_add(1)..).unwrap_or_default()),
            None => (&[][..], path),
        };
        // What is followed is no link any more; whether it is there is still the kernel's to say.
        if matches!(name, b"" | b"." | b"..") {
            self.folder(base, path, may)?;
            return Err(Errno::INVAL);
        }
        let folder = self.folder(base, above, may)?;
        self.entry(folder, name)
    }

    fn entry(&self, folder: OwnedFd, name: &[u8]) -> Found<Link> {
        let link = open(folder.as_fd(), name, OFlags::NOFOLLOW)?;
        let facts = paths::facts(&link).map_err(|error| error.errno)?;
        if facts.kind != Kind::Link {
            return Err(Errno::INVAL);
        }
        let own = match name {
            b"self" if is_proc_root(&folder) => Some(self.process()?),
            b"thread-self" if is_proc_root(&folder) => Some(format!("{}/task/{}", self.process()?, self.thread)),
            _ => None,
        };
        Ok(Link { folder, link, facts, own: own.map(String::into_bytes) })
    }

    fn descriptor(&self, number: i32) -> Found<OwnedFd> {
        self.has(&format!("fd/{number}")).map_err(|errno| if errno == Errno::NOENT { Errno::BADF } else { errno })
    }

    /// The link that a descriptor of the thread refers to; ENOENT: it is none, or it was moved meanwhile.
    fn held(&self, number: i32) -> Found<Link> {
        let held = self.descriptor(number)?;
        let facts = paths::facts(&held).map_err(|error| error.errno)?;
        if facts.kind != Kind::Link {
            return Err(Errno::NOENT);
        }
        let path = paths::path_of(&held).map_err(|error| error.errno)?;
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Err(Errno::NOENT) };
        let found = self.entry(open_plain(rustix::fs::CWD, above.as_os_str().as_bytes())?, name.as_bytes())?;
        if found.facts.identity == facts.identity { Ok(found) } else { Err(Errno::NOENT) }
    }

    /// The folder at a path; where nothing of it is a link, in one call.
    fn folder(&self, base: OwnedFd, path: &[u8], may: &dyn Fn(&Link) -> bool) -> Found<OwnedFd> {
        let first = path.iter().position(|byte| *byte != b'/');
        let below = first.and_then(|at| path.get(at..)).unwrap_or(b".");
        match open_plain(&base, below) {
            Err(Errno::LOOP) => self.walk(base, below, may),
            opened => opened,
        }
    }

    /// The same, name by name and link by link.
    fn walk(&self, start: OwnedFd, path: &[u8], may: &dyn Fn(&Link) -> bool) -> Found<OwnedFd> {
        let mut ahead: VecDeque<Vec<u8>> = names(path).collect();
        let (mut at, mut links) = (start, 0_usize);
        while let Some(name) = ahead.pop_front() {
            let found = match self.entry(again(at.as_fd())?, &name) {
                Err(Errno::INVAL) => {
                    at = open(at.as_fd(), &name, OFlags::NOFOLLOW)?;
                    continue;
                }
                found => found?,
            };
            links = links.saturating_add(1);
            if links > MAX_LINKS {
                return Err(Errno::LOOP);
            }
            if is_proc(&found.folder) && !is_proc_root(&found.folder) {
                if !may(&found) {
                    return Err(Errno::ACCESS);
                }
                at = open(at.as_fd(), &name, OFlags::empty())?;
                continue;
            }
            let text = found.text()?;
            if text.first() == Some(&b'/') {
                at = self.has("root")?;
            }
            names(&text).rev().for_each(|name| ahead.push_front(name));
        }
        if paths::facts(&at).is_ok_and(|facts| facts.kind == Kind::Folder) { Ok(at) } else { Err(Errno::NOTDIR) }
    }
}

impl Link {
    /// Where it leads, as it is written.
    ///
    /// # Errors
    /// As readlinkat(2).
    pub fn text(&self) -> Found<Vec<u8>> {
        match &self.own {
            Some(text) => Ok(text.clone()),
            None => rustix::fs::readlinkat(&self.link, c"", Vec::with_capacity(256)).map(|text| text.into_bytes()),
        }
    }
}

impl Above {
    /// All that lies above a folder, and the folder.
    ///
    /// # Errors
    /// EACCES: a folder may not be passed. ENAMETOOLONG: it lies too deep.
    pub fn of(folder: BorrowedFd<'_>) -> Found<Self> {
        let on_proc = is_proc(folder);
        let mut above = Self { folders: Vec::with_capacity(8), process: None };
        let mut at = again(folder)?;
        while above.folders.len() < MAX_DEPTH {
            let facts = paths::facts(&at).map_err(|error| error.errno)?;
            let up = open(at.as_fd(), b"..", OFlags::DIRECTORY)?;
            let over = paths::facts(&up).map_err(|error| error.errno)?;
            if on_proc && above.process.is_none() && over.identity.inode == PROC_ROOT && facts.identity.inode != PROC_ROOT {
                above.process = Some(at);
            }
            // A folder that is mounted below itself has the same number, in another mount.
            let root = (facts.identity, facts.mount) == (over.identity, over.mount);
            above.folders.push(facts);
            if root {
                return Ok(above);
            }
            at = up;
        }
        Err(Errno::NAMETOOLONG)
    }
}

const PLACE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

fn open(folder: BorrowedFd<'_>, name: &[u8], more: OFlags) -> Found<OwnedFd> {
    rustix::fs::openat(folder, OsStr::from_bytes(name), PLACE | more, Mode::empty())
}

/// Without following a link on the way.
fn open_plain(folder: impl AsFd, path: &[u8]) -> Found<OwnedFd> {
    let plain = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(folder, OsStr::from_bytes(path), PLACE | OFlags::DIRECTORY, Mode::empty(), plain)
}

fn again(fd: BorrowedFd<'_>) -> Found<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(fd, 0)
}

fn names(path: &[u8]) -> impl DoubleEndedIterator<Item = Vec<u8>> {
    path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b".")).map(<[u8]>::to_vec)
}

fn is_proc(folder: impl AsFd) -> bool {
    rustix::fs::fstatfs(folder).is_ok_and(|found| u64::try_from(found.f_type) == Ok(PROC))
}

fn is_proc_root(folder: &OwnedFd) -> bool {
    is_proc(folder) && paths::identity(folder).is_ok_and(|identity| identity.inode == PROC_ROOT)
}
