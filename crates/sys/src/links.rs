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
use crate::seccomp::{Listener, Question, names as calls};

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
const CWD: i32 = libc::AT_FDCWD;

type Found<T> = Result<T, Errno>;

/// A thread that waits for an answer.
#[derive(Debug)]
struct Asker {
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

/// The answer to a question about a link: what was written to the asker's memory, or why nothing was. Told is what `may` lets be
/// told; it is asked about links of procfs on the way there too, each of which jumps to wherever its process is.
///
/// # Errors
/// As readlinkat(2). EACCES: it may not be told. ESRCH: who asked is gone.
pub fn read(listener: &Listener, question: &Question, may: &dyn Fn(&Link) -> bool) -> Found<usize> {
    // readlink(path, to, size), readlinkat(folder, path, to, size).
    let within = calls::name(question.number) == Some("readlinkat");
    let (folder, at) = if within { (question.int(0), 1) } else { (CWD, 0) };
    let (path, to, size) = (question.address(at), question.address(at + 1), question.int(at + 2));
    let room = usize::try_from(size).ok().filter(|room| *room > 0).ok_or(Errno::INVAL)?;
    let asker = Asker::open(question.thread).map_err(|_closed| Errno::ACCESS)?;
    // What was opened by its number is the asker's if that waits still.
    let waits = || if listener.waits(question) { Ok(()) } else { Err(Errno::SRCH) };
    waits()?;
    let path = asker.text(path)?;
    let link = asker.link(folder, &path, may)?;
    if !may(&link) {
        return Err(Errno::ACCESS);
    }
    let text = link.text()?;
    waits()?;
    let text = text.get(..room).unwrap_or(&text);
    asker.give(to, text).map(|()| text.len())
}

impl Asker {
    /// Opens the memory of a thread. It is the asker's if its question waits still.
    fn open(thread: u32) -> Found<Self> {
        let memory = rustix::fs::open(format!("/proc/{thread}/mem"), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { thread, memory })
    }

    /// The text at an address, without its end.
    fn text(&self, mut at: u64) -> Found<Vec<u8>> {
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
    fn give(&self, at: u64, bytes: &[u8]) -> Found<()> {
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

    /// The link at a path, seen from the thread's descriptor `folder` unless the path is absolute.
    fn link(&self, folder: i32, path: &[u8], may: &dyn Fn(&Link) -> bool) -> Found<Link> {
        if path.is_empty() {
            return if folder == CWD { Err(Errno::NOENT) } else { self.held(folder) };
        }
        let base = match (path.first(), folder) {
            (Some(b'/'), _) => self.has("root")?,
            (_, CWD) => self.has("cwd")?,
            (_, number) => self.descriptor(number)?,
        };
        let (above, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(at) => {
                (path.get(..at.max(1)).unwrap_or_default(), path.get(at.saturating_add(1)..).unwrap_or_default())
            }
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
        // Most names are no links, and that is told in one call.
        let mut nothing = [0_u8];
        rustix::fs::readlinkat_raw(&folder, OsStr::from_bytes(name), &mut nothing)?;
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
    fn text(&self) -> Found<Vec<u8>> {
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
        let mut facts = paths::facts(&at).map_err(|error| error.errno)?;
        while above.folders.len() < MAX_DEPTH {
            let up = open(at.as_fd(), b"..", OFlags::DIRECTORY)?;
            let over = paths::facts(&up).map_err(|error| error.errno)?;
            if on_proc
                && above.process.is_none()
                && over.identity.inode == PROC_ROOT
                && facts.identity.inode != PROC_ROOT
            {
                above.process = Some(at);
            }
            // A folder that is mounted below itself has the same number, in another mount.
            let root = (facts.identity, facts.mount) == (over.identity, over.mount);
            above.folders.push(facts);
            if root {
                return Ok(above);
            }
            (at, facts) = (up, over);
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

#[cfg(test)]
mod tests {
    use std::os::fd::{FromRawFd as _, RawFd};
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;
    use crate::bare;
    use crate::seccomp::asking;

    type Told = Vec<Result<Vec<u8>, Errno>>;

    /// What a thread is told, before it is under a filter that asks and afterwards, where `may` judges.
    fn told(work: impl Fn() -> Told + Send + Sync, may: &dyn Fn(&Link) -> bool) -> (Told, Told) {
        let (send, receive) = std::sync::mpsc::channel::<RawFd>();
        std::thread::scope(|scope| {
            let asker = scope.spawn(|| {
                let before = work();
                bare::set_no_new_privs().unwrap();
                let numbers = ["readlink", "readlinkat"].map(|name| calls::number(name).unwrap());
                let listener = bare::set_asking_filter(&asking(&numbers).bytes()).unwrap();
                send.send(listener.leak().number()).unwrap();
                (before, work())
            });
            // SAFETY: it is open, new, and nobody else's.
            let listener = Listener::from(unsafe { OwnedFd::from_raw_fd(receive.recv().unwrap()) });
            while let Some(question) = listener.next().unwrap() {
                listener.answer(&question, read(&listener, &question, may));
            }
            asker.join().unwrap()
        })
    }

    fn at(folder: impl AsFd, path: impl rustix::path::Arg) -> Result<Vec<u8>, Errno> {
        rustix::fs::readlinkat(folder, path, Vec::new()).map(|text| text.into_bytes())
    }

    /// A call as it is, for arguments that no library would pass on.
    fn raw(path: *const libc::c_char, room: &mut [u8], size: libc::size_t) -> Result<Vec<u8>, Errno> {
        // SAFETY: the kernel checks the address of the path, and writes at most `size` bytes, for which there is room or which it refuses.
        let length = unsafe { libc::syscall(libc::SYS_readlink, path, room.as_mut_ptr(), size) };
        usize::try_from(length)
            .map(|length| room[..length].to_vec())
            .map_err(|_failed| Errno::from_io_error(&std::io::Error::last_os_error()).unwrap())
    }

    fn scene() -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(top.join("a/b")).unwrap();
        std::fs::write(top.join("a/file"), "").unwrap();
        for (target, link) in
            [("a/b", "down"), ("../file", "a/b/up"), ("round", "round"), ("nowhere", "gone"), ("down/up", "two")]
        {
            symlink(target, top.join(link)).unwrap();
        }
        symlink(&top, top.join("a/top")).unwrap();
        (folder, top)
    }

    #[test]
    fn a_question_is_answered_as_the_kernel_would_answer_it() {
        let (_folder, top) = scene();
        let long = "x".repeat(5000);
        let work = || {
            let cwd = rustix::fs::CWD;
            let place = OFlags::PATH | OFlags::CLOEXEC;
            let open = |path: &Path, more| rustix::fs::open(path, place | more, Mode::empty()).unwrap();
            let (folder, link) = (open(&top.join("a"), OFlags::DIRECTORY), open(&top.join("down"), OFlags::NOFOLLOW));
            let file = open(&top.join("a/file"), OFlags::empty());
            let paths = [
                "down",
                "a/b/up",
                "down/up",
                "two",
                "a/top/down/up",
                "a//./b/../b/up",
                "a/top/../nothing",
                "gone",
                "round/x",
                "round",
                "down/",
                "down/.",
                "a/b/up/",
                "gone/",
                "a/file",
                "a",
                "a/file/x",
                "nothing",
                "nothing/x",
                ".",
                "",
            ];
            let mut all: Told = paths.iter().map(|path| at(cwd, top.join(path))).collect();
            all.extend(["b/up", "top/down", "../down", "top", "file", "", "nothing"].map(|path| at(&folder, path)));
            all.extend([at(&link, ""), at(&file, ""), at(&file, "x"), at(cwd, "")]);
            all.extend(
                [
                    "/",
                    "//",
                    "/bin",
                    "/proc/self",
                    "/proc/thread-self",
                    "/proc/self/exe",
                    "/proc/mounts",
                    "/proc/thread-self/cwd",
                ]
                .map(|path| at(cwd, path)),
            );
            all.extend(
                ["/dev/fd", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0", "/proc/self/root/bin", "/proc/self/cwd/none"]
                    .map(|path| at(cwd, path)),
            );
            all.push(at(cwd, long.as_str()));
            let (path, mut room) = (std::ffi::CString::new(top.join("down").as_os_str().as_bytes()).unwrap(), [0; 16]);
            all.extend([0, 1, 2, 16, 1 << 31].map(|size| raw(path.as_ptr(), &mut room, size)));
            all.push(raw(std::ptr::without_provenance(1), &mut room, 16));
            all
        };
        let (before, after) = told(work, &|_| true);
        assert_eq!(after, before);
        assert_eq!(before[0], Ok(b"a/b".to_vec()), "some are told");
    }

    #[test]
    fn nothing_is_told_of_what_may_not_be_told_and_no_process_is_a_way_there() {
        let (_folder, top) = scene();
        let secret = paths::identity(paths::open_entry(&top.join("a/top")).unwrap()).unwrap();
        let work = || {
            let mut all = vec![at(rustix::fs::CWD, top.join("a/top")), at(rustix::fs::CWD, top.join("a/b/../top"))];
            let link = rustix::fs::open(top.join("a/top"), PLACE | OFlags::NOFOLLOW, Mode::empty()).unwrap();
            all.push(at(&link, ""));
            all.push(at(
                rustix::fs::CWD,
                Path::new("/proc/self/root").join(top.strip_prefix("/").unwrap()).join("down"),
            ));
            all.push(at(rustix::fs::CWD, top.join("down")));
            all.push(at(rustix::fs::CWD, top.join("a/file")));
            all
        };
        let (before, after) = told(work, &|link| link.facts.identity != secret && !is_proc(&link.folder));
        assert!(before[..5].iter().all(Result::is_ok), "without the filter all are told");
        assert_eq!(after[..4], [const { Err(Errno::ACCESS) }; 4]);
        assert_eq!(after[4..], [Ok(b"a/b".to_vec()), Err(Errno::INVAL)]);
    }

    #[test]
    fn what_lies_above_a_folder_ends_at_the_root_and_names_its_process() {
        let (_folder, top) = scene();
        let open = |path: &Path| paths::open_place(path).unwrap();
        let above = Above::of(open(&top.join("a/b")).as_fd()).unwrap();
        assert_eq!(above.folders.len(), top.components().count() + 2);
        assert_eq!(above.folders[1].identity, paths::identity(open(&top.join("a"))).unwrap());
        assert_eq!(above.folders.last().unwrap().identity, paths::identity(open(Path::new("/"))).unwrap());
        assert!(above.process.is_none());
        let own = format!("/proc/{}", std::process::id());
        let of_own = Above::of(open(Path::new(&own).join("fd").as_path()).as_fd()).unwrap();
        assert_eq!(paths::path_of(of_own.process.unwrap()).unwrap(), Path::new(&own));
        assert!(Above::of(open(Path::new("/proc")).as_fd()).unwrap().process.is_none());
    }
}
