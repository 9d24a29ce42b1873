//! What `/proc` tells about a process, read through a descriptor of its folder.
//!
//! *Promises*: a [`Process`] stays the process that it was opened for: when that has ended, every read fails with
//! ESRCH, even if its number lives again. Reads are bounded. Text that does not parse is an error, never a default.

mod connection;
mod limited;
mod mountinfo;
mod status;
mod usage;
mod waiting;

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Error, ErrorContext as _, Result};
use crate::paths;

pub use limited::{has_limit, limited};
pub use mountinfo::{Mount, parse as parse_mountinfo, shown};
pub use status::{Capabilities, Status, parse as parse_status};
pub use usage::{Descriptors, Mapped, Unlinked, locks, same_memory, ticks_everywhere, watcher_bytes};
pub use waiting::{Tracer, while_tracing};

const SMALL: usize = 64 * 1024;
/// A host with thousands of mounts.
const LARGE: usize = 16 * 1024 * 1024;

/// A process's folder in `/proc`.
#[derive(Debug)]
pub struct Process {
    folder: OwnedFd,
    name: String,
}

/// Kinds of namespaces, by their file in `ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespace {
    /// cgroup.
    Cgroup,
    /// ipc.
    Ipc,
    /// mnt.
    Mount,
    /// net.
    Net,
    /// pid.
    Pid,
    /// time.
    Time,
    /// user.
    User,
    /// uts.
    Uts,
}

impl Namespace {
    /// All of them.
    pub const ALL: [Self; 8] =
        [Self::Cgroup, Self::Ipc, Self::Mount, Self::Net, Self::Pid, Self::Time, Self::User, Self::Uts];

    /// The file's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cgroup => "cgroup",
            Self::Ipc => "ipc",
            Self::Mount => "mnt",
            Self::Net => "net",
            Self::Pid => "pid",
            Self::Time => "time",
            Self::User => "user",
            Self::Uts => "uts",
        }
    }
}

/// One line of `/proc/PID/cgroup`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// v1 controllers of this hierarchy; empty for v2.
    pub controllers: Vec<String>,
    /// Path below the hierarchy's root, as the reader's cgroup namespace shows it.
    pub path: String,
}

impl Process {
    /// The process with this number.
    ///
    /// # Errors
    /// ENOENT: there is none.
    pub fn open(pid: i32) -> Result<Self> {
        Self::at(format!("/proc/{pid}"))
    }

    /// This process.
    ///
    /// # Errors
    /// ENOENT: `/proc` is not mounted.
    pub fn own() -> Result<Self> {
        Self::at("/proc/self".into())
    }

    fn at(name: String) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(name.as_str(), flags, Mode::empty()).named("open", || name.clone())?;
        Ok(Self { folder, name })
    }

    /// `status`.
    ///
    /// # Errors
    /// ESRCH: it has ended. EBADMSG: a line is missing or unreadable.
    pub fn status(&self) -> Result<Status> {
        let text = self.text("status", SMALL)?;
        status::parse(&text).ok_or_else(|| self.bad("status"))
    }

    /// Inode number of a namespace: equal numbers are the same namespace.
    ///
    /// # Errors
    /// ESRCH: it has ended. EACCES: not allowed to look at it. ENOENT: the kernel has no such namespaces.
    pub fn namespace(&self, kind: Namespace) -> Result<u64> {
        let path = format!("ns/{}", kind.name());
        // `net:[4026531840]`: to follow the link would make the kernel build a file for it.
        let link = rustix::fs::readlinkat(&self.folder, path.as_str(), Vec::with_capacity(64))
            .named("readlink", || self.path(&path))?;
        let text = link.to_str().ok().and_then(|text| text.split_once(":[")?.1.strip_suffix(']')?.parse().ok());
        text.ok_or_else(|| self.bad(&path))
    }

    /// The file that it executes, as its own root shows it; bytes that are no text are replaced.
    ///
    /// # Errors
    /// ESRCH: it has ended. EACCES: not allowed to look at it.
    pub fn executable(&self) -> Result<String> {
        let link = rustix::fs::readlinkat(&self.folder, "exe", Vec::with_capacity(256))
            .named("readlink", || self.path("exe"))?;
        Ok(link.to_string_lossy().into_owned())
    }

    /// The same file as a place (`O_PATH`), whatever its name leads to here.
    ///
    /// # Errors
    /// As [`Process::executable`].
    pub fn program(&self) -> Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        rustix::fs::openat(&self.folder, "exe", flags, Mode::empty()).named("open", || self.path("exe"))
    }

    /// `mountinfo`.
    ///
    /// # Errors
    /// ESRCH, EACCES, EBADMSG as above; EFBIG: above 16 MiB.
    pub fn mounts(&self) -> Result<Vec<Mount>> {
        let bytes = self.bytes("mountinfo", LARGE)?;
        mountinfo::parse(&mountinfo::as_text(&bytes)).ok_or_else(|| self.bad("mountinfo"))
    }

    /// As [`Process::mounts`], of the file systems whose type is `wanted`.
    ///
    /// # Errors
    /// As [`Process::mounts`].
    pub fn mounts_of(&self, wanted: impl Fn(&str) -> bool) -> Result<Vec<Mount>> {
        let bytes = self.bytes("mountinfo", LARGE)?;
        mountinfo::parse_of(&mountinfo::as_text(&bytes), wanted).ok_or_else(|| self.bad("mountinfo"))
    }

    /// `cgroup`.
    ///
    /// # Errors
    /// ESRCH, EBADMSG as above.
    pub fn cgroups(&self) -> Result<Vec<Membership>> {
        let text = self.text("cgroup", SMALL)?;
        text.lines().map(parse_membership).collect::<Option<_>>().ok_or_else(|| self.bad("cgroup"))
    }

    /// Start time in clock ticks since boot: with the number it names a process for ever (within one boot).
    ///
    /// # Errors
    /// ESRCH, EBADMSG as above.
    pub fn start_time(&self) -> Result<u64> {
        let text = self.text("stat", SMALL)?;
        parse_start_time(&text).ok_or_else(|| self.bad("stat"))
    }

    /// Its share of resident memory in bytes: pages shared by n processes count a n-th in each.
    ///
    /// # Errors
    /// ESRCH, EACCES, EBADMSG as above.
    pub fn proportional_bytes(&self) -> Result<u64> {
        let text = self.text("smaps_rollup", SMALL)?;
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        number.and_then(|kib| kib.checked_mul(1024)).ok_or_else(|| self.bad("smaps_rollup"))
    }

    /// Numbers of the children of all its threads, as this `/proc` counts them.
    ///
    /// # Errors
    /// ESRCH, EBADMSG as above; ENOENT: the kernel lacks `CONFIG_PROC_CHILDREN`.
    pub fn children(&self) -> Result<Vec<i32>> {
        let mut found = Vec::new();
        for thread in self.threads()? {
            let file = format!("task/{thread}/children");
            match self.text(&file, LARGE) {
                Ok(text) => {
                    for number in text.split_ascii_whitespace() {
                        found.push(number.parse().ok().ok_or_else(|| self.bad(&file))?);
                    }
                }
                // A thread may end while we look; its children are then another thread's.
                Err(error) if matches!(error.errno, Errno::SRCH | Errno::NOENT) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    fn threads(&self) -> Result<Vec<i32>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let tasks =
            rustix::fs::openat(&self.folder, "task", flags, Mode::empty()).named("open", || self.path("task"))?;
        let mut numbers = Vec::new();
        for entry in rustix::fs::Dir::read_from(&tasks).named("readdir", || self.path("task"))? {
            let entry = entry.named("readdir", || self.path("task"))?;
            numbers.extend(entry.file_name().to_str().ok().and_then(|name| name.parse::<i32>().ok()));
        }
        Ok(numbers)
    }

    /// Device and bytes in use of the file system in memory, or of the overlay, that the process sees at an absolute path.
    ///
    /// # Errors
    /// ENOENT, EACCES. ENODEV: another file system stands there, as where somebody took the mount away.
    pub fn used_bytes_at(&self, path: &str) -> Result<(u64, u64)> {
        const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x794c_7630];
        let place = self.place_at(path)?;
        let kind = rustix::fs::fstatfs(&place).named("fstatfs", || self.path(&format!("root{path}")))?.f_type;
        if !u64::try_from(kind).is_ok_and(|kind| IN_MEMORY.contains(&kind)) {
            return Err(rustix::io::Errno::NODEV).named("fstatfs", || self.path(&format!("root{path}")));
        }
        let room = paths::fs_stats(&place)?;
        let stat = rustix::fs::fstat(&place).named("fstat", || self.path(&format!("root{path}")))?;
        // Each file costs the kernel about a kilobyte, whatever is in it.
        let files = room.files.saturating_sub(room.free_files).saturating_mul(1024);
        Ok((stat.st_dev, room.bytes.saturating_sub(room.free_bytes).saturating_add(files)))
    }

    /// What the process sees at an absolute path, as a place (`O_PATH`): it can be looked at when the process has ended.
    ///
    /// # Errors
    /// ENOENT, EACCES.
    pub fn place_at(&self, path: &str) -> Result<OwnedFd> {
        let below = format!("root{path}");
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        rustix::fs::openat(&self.folder, below.as_str(), flags, Mode::empty()).named("open", || self.path(&below))
    }

    /// A folder that the process sees at an absolute path, to be read and written below.
    ///
    /// # Errors
    /// ENOENT, EACCES, ENOTDIR.
    pub fn folder_at(&self, path: &str) -> Result<OwnedFd> {
        let below = format!("root{path}");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(&self.folder, below.as_str(), flags, Mode::empty()).named("open", || self.path(&below))
    }

    /// A small text file of the process, e.g. `limits`, `oom_score_adj`, `uid_map`.
    ///
    /// # Errors
    /// ESRCH, ENOENT, EACCES; EFBIG: above 64 KiB; EBADMSG: not UTF-8.
    pub fn small_text(&self, file: &str) -> Result<String> {
        self.text(file, SMALL)
    }

    fn text(&self, file: &str, most: usize) -> Result<String> {
        String::from_utf8(self.bytes(file, most)?).map_err(|_not_text| self.bad(file))
    }

    fn bytes(&self, file: &str, most: usize) -> Result<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = rustix::fs::openat(&self.folder, file, flags, Mode::empty()).named("open", || self.path(file))?;
        paths::read_all(&fd, most).named("read", || self.path(file))
    }

    fn path(&self, file: &str) -> String {
        format!("{}/{file}", self.name)
    }

    fn bad(&self, file: &str) -> Error {
        Error::new("parse", self.path(file), Errno::BADMSG)
    }
}

impl AsFd for Process {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.folder.as_fd()
    }
}

/// Numbers of `root` and all its descendants. Not atomic: what forks meanwhile may be missed, so it is for looking, and
/// never for killing.
///
/// # Errors
/// As [`Process::children`], of `root` itself only.
pub fn tree(root: i32) -> Result<Vec<i32>> {
    const MAX: usize = 65_536;
    let mut all = vec![root];
    let mut next = Process::open(root)?.children()?;
    while let Some(pid) = next.pop() {
        if all.len() >= MAX {
            break;
        }
        all.push(pid);
        match Process::open(pid).and_then(|process| process.children()) {
            Ok(children) => next.extend(children),
            Err(error) if matches!(error.errno, Errno::SRCH | Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

fn parse_membership(line: &str) -> Option<Membership> {
    let mut parts = line.splitn(3, ':');
    parts.next()?.parse::<u32>().ok()?;
    let controllers = parts.next()?.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
    Some(Membership { controllers, path: parts.next()?.to_owned() })
}

/// The name in field 2 may hold spaces and brackets: fields are counted from the last bracket.
fn parse_start_time(text: &str) -> Option<u64> {
    let (_, after_name) = text.rsplit_once(')')?;
    after_name.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// An amount of `/proc/meminfo` (`MemTotal:      242788 kB`), in bytes.
#[must_use]
pub fn parse_meminfo(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_reads_as_itself() {
        let own = Process::own().unwrap();
        let status = own.status().unwrap();
        assert_eq!(status.uid, [rustix::process::getuid().as_raw(); 4]);
        assert!(own.start_time().unwrap() > 0);
        assert!(own.proportional_bytes().unwrap() > 4096);
        assert!(own.mounts().unwrap().iter().any(|mount| mount.point == "/"));
        assert!(!own.cgroups().unwrap().is_empty());
        let again = Process::open(std::process::id().cast_signed()).unwrap();
        for kind in Namespace::ALL {
            assert_eq!(own.namespace(kind).unwrap(), again.namespace(kind).unwrap());
        }
    }

    #[test]
    fn a_tree_holds_the_child_and_an_ended_process_cannot_be_read() {
        let null = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty()).unwrap();
        let (null, command) = (null.as_fd(), crate::command::Command::new("/bin/sleep").arg("30"));
        let child = command.start(null, null, null).unwrap();
        let process = Process::open(child.pid).unwrap();
        let own = std::process::id().cast_signed();
        assert!(tree(own).unwrap().contains(&child.pid));
        assert_eq!(process.status().unwrap().parent, own);
        crate::pidfd::send_signal(&child.pidfd, libc::SIGKILL).unwrap();
        crate::pidfd::wait(&child.pidfd).unwrap();
        assert!(matches!(process.status().unwrap_err().errno, Errno::SRCH | Errno::NOENT));
    }

    #[test]
    fn a_name_with_brackets_does_not_shift_the_start_time() {
        let numbers: Vec<String> = (4..=30).map(|number| number.to_string()).collect();
        let line = format!("12 (a) R 9 (b) ) S {}", numbers.join(" "));
        assert_eq!(parse_start_time(&line), Some(22));
    }

    #[test]
    fn a_membership_keeps_colons_of_its_path() {
        let parsed = parse_membership("4:cpu,cpuacct:/a:b").unwrap();
        assert_eq!(parsed.controllers, ["cpu", "cpuacct"]);
        assert_eq!(parsed.path, "/a:b");
        assert_eq!(parse_membership("0::/x").unwrap().controllers, Vec::<String>::new());
        assert_eq!(parse_membership("nonsense"), None);
    }
}
