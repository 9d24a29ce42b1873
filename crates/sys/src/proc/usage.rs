//! What the processes of a tree use, as `/proc` shows it.
//!
//! *Promises*: what cannot be looked into is an error and never counts as nothing.
//!
//! *Kernel facts*: when its first thread ended, a process shows its memory and descriptors in `task/TID` of the others alone.
//! `Pss` counts neither page tables nor huge pages of a pool. `scm_fds` of a socket's fdinfo (5.5) is the number of
//! descriptors that were sent to it and not received.

use std::io::{BufRead as _, BufReader};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::{LARGE, Process, SMALL};

/// The longest table of sockets that is read, bytes: some 16,000 lines. The kernel begins one anew for each 4 KiB of it, so that
/// twice the sockets take four times as long.
const MAX_TABLE: usize = 2 << 20;
use crate::error::{Error, ErrorContext as _, Result};

/// An open file without a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unlinked {
    /// Device.
    pub device: u64,
    /// Inode.
    pub inode: u64,
    /// Bytes that it occupies.
    pub bytes: u64,
}

/// What a process holds open, as far as it counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Descriptors {
    /// Files, folders and links that no name leads to any more: memory files, and what was removed.
    pub unlinked: Vec<Unlinked>,
    /// Sockets: inode, and how many descriptors wait in it.
    pub sockets: Vec<(u64, u64)>,
    /// Instances of inotify, in which events wait.
    pub watchers: u64,
    /// Files that take no room, as those of `/proc`: one that was read in part keeps what the kernel wrote for it.
    pub written_when_read: u64,
}

/// A mapped file that no name leads to any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// (major, minor) of its device.
    pub device: (u32, u32),
    /// Inode.
    pub inode: u64,
    /// Its last name, as the kernel shows it.
    pub path: String,
}

impl Process {
    /// Where its memory and descriptors show: itself, or a thread that lives when the first one ended. `None`: all of it
    /// ended, and waits to be reaped.
    ///
    /// # Errors
    /// ESRCH: it is gone.
    pub fn living(&self) -> Result<Option<Self>> {
        if self.lives()? {
            return Self::at(self.name.clone()).map(Some);
        }
        for thread in self.threads()? {
            match Self::at(format!("{}/task/{thread}", self.name)).and_then(|task| Ok((task.lives()?, task))) {
                Ok((true, task)) => return Ok(Some(task)),
                Ok((false, _)) => {}
                Err(error) if error.is_gone() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Whether its first thread has not ended.
    ///
    /// # Errors
    /// ESRCH: it is gone.
    pub fn lives(&self) -> Result<bool> {
        let text = self.text("stat", SMALL)?;
        let state = text.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
        state.map(|state| !matches!(state, 'Z' | 'X')).ok_or_else(|| self.bad("stat"))
    }

    /// What its memory counts without pages of files in memory (its share of what is resident, what was swapped out, huge
    /// pages, page tables), and its share of the pages of those files, in bytes.
    ///
    /// # Errors
    /// ESRCH: it has ended. EACCES: not allowed to look at it. EBADMSG: a line is missing or unreadable.
    pub fn resident_bytes(&self) -> Result<(u64, u64)> {
        let text = self.text("smaps_rollup", SMALL)?;
        let all = kib(&text, "Pss:").ok_or_else(|| self.bad("smaps_rollup"))?;
        let shared = kib(&text, "Pss_Shmem:").unwrap_or(0);
        // What was swapped out is as much its own as what stayed; a kernel without huge pages has no line for them.
        let besides = ["SwapPss:", "Private_Hugetlb:", "Shared_Hugetlb:"].iter().filter_map(|name| kib(&text, name));
        let tables = kib(&self.text("status", SMALL)?, "VmPTE:").unwrap_or(0);
        Ok((all.saturating_sub(shared).saturating_add(besides.sum()).saturating_add(tables), shared))
    }

    /// What it holds open, the file that it executes, which stays while it lives though nothing of it is mapped any more, and the folder
    /// in which it works.
    ///
    /// # Errors
    /// ESRCH: it has ended. EACCES: not allowed to look at its descriptors.
    pub fn descriptors(&self) -> Result<Descriptors> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(&self.folder, "fd", flags, Mode::empty()).named("open", || self.path("fd"))?;
        let mut found = Descriptors::default();
        // Between fork(2) and its end a process may have no memory, and so no program.
        for held in ["exe", "cwd"] {
            let stat = rustix::fs::statat(&self.folder, held, AtFlags::empty());
            found.unlinked.extend(stat.ok().and_then(|stat| unlinked(&stat)));
        }
        for entry in rustix::fs::Dir::read_from(&folder).named("readdir", || self.path("fd"))? {
            let entry = entry.named("readdir", || self.path("fd"))?;
            // A descriptor that was closed meanwhile is no file any more.
            let Ok(stat) = rustix::fs::statat(&folder, entry.file_name(), AtFlags::empty()) else { continue };
            if let Some(file) = unlinked(&stat) {
                found.unlinked.push(file);
            } else if FileType::from_raw_mode(stat.st_mode) == FileType::Socket {
                let name = entry.file_name().to_str().unwrap_or_default();
                found.sockets.push((stat.st_ino, self.waiting_in(name)));
            } else if is_watcher(&folder, entry.file_name(), &stat) {
                found.watchers = found.watchers.saturating_add(1);
            } else if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_blocks == 0 {
                found.written_when_read = found.written_when_read.saturating_add(1);
            }
        }
        Ok(found)
    }

    /// Descriptors that wait in a socket; one that was closed meanwhile has none.
    fn waiting_in(&self, descriptor: &str) -> u64 {
        let info = self.text(&format!("fdinfo/{descriptor}"), SMALL).unwrap_or_default();
        let line = info.lines().find_map(|line| line.strip_prefix("scm_fds:"));
        line.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
    }

    /// What it has mapped of files that no name leads to any more.
    ///
    /// # Errors
    /// ESRCH, EACCES as above; EFBIG: it has more mappings than anybody could look through.
    pub fn mapped_unlinked(&self) -> Result<Vec<Mapped>> {
        let bytes = self.bytes("maps", LARGE)?;
        Ok(String::from_utf8_lossy(&bytes).lines().filter_map(mapped).collect())
    }

    /// An upper bound of what waits in the sockets of its network namespace, in bytes: `each` for a unix socket after the
    /// first `free`, whatever waits in those of UDP, and in those of TCP as if each byte was a packet of its own, but no more
    /// than all of the machine's have.
    ///
    /// # Errors
    /// ESRCH: it has ended. EFBIG: there are more sockets than anybody could look through.
    pub fn socket_bytes(&self, free: u64, each: u64) -> Result<u64> {
        let mut sum = 0_u64;
        for file in ["net/unix", "net/udp", "net/udp6", "net/netlink"] {
            let text = self.network_text(file)?;
            let lines = text.lines().skip(1);
            sum = sum.saturating_add(match file {
                "net/unix" => unix_buffers(lines).saturating_sub(free).saturating_mul(each),
                "net/netlink" => lines.map(netlink_bytes).fold(0, u64::saturating_add),
                _ => lines.map(inet_bytes).fold(0, u64::saturating_add),
            });
        }
        let ((old, over), (new, over_new)) = (self.tcp_lines("net/tcp")?, self.tcp_lines("net/tcp6")?);
        let bytes = tcp_bytes(old.lines().chain(new.lines()), tcp_memory(&self.network_text("net/sockstat")?));
        let over = over.saturating_add(over_new).saturating_mul(WAITING_FOR_TIME);
        Ok(sum.saturating_add(bytes).saturating_add(over))
    }

    /// What waits in sockets of its network namespace and is charged to no control group, in bytes: what came for
    /// connections that nobody has accepted yet, and messages of netlink.
    ///
    /// # Errors
    /// ESRCH: it is gone. EFBIG: more sockets than anybody could look through.
    pub fn uncharged_socket_bytes(&self) -> Result<u64> {
        let mut sum = self.network_text("net/netlink")?.lines().skip(1).map(netlink_bytes).fold(0, u64::saturating_add);
        // The tables of TCP are the whole machine's, and take time: a namespace without such a socket is not looked at.
        for (counts, name, file) in [("net/sockstat", "TCP:", "net/tcp"), ("net/sockstat6", "TCP6:", "net/tcp6")] {
            if tcp_in_use(&self.network_text(counts)?, name) {
                let (text, _) = self.tcp_lines(file)?;
                let waiting = text.lines().filter(|line| is_unaccepted(line)).map(inet_bytes);
                sum = waiting.fold(sum, u64::saturating_add);
            }
        }
        Ok(sum)
    }

    /// The lines of a table of TCP, and how many connections beside them are over and only wait for their time: a server has a
    /// hundred thousand of those, with no buffer.
    fn tcp_lines(&self, file: &str) -> Result<(String, u64)> {
        /// More than the kernel keeps of those that wait (`net.ipv4.tcp_max_tw_buckets`).
        const MAX_LINES: u64 = 1 << 20;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let opened = rustix::fs::openat(&self.folder, file, flags, Mode::empty());
        if opened.as_ref().is_err_and(|errno| *errno == Errno::NOENT) {
            return Ok((String::new(), 0));
        }
        let table = std::fs::File::from(opened.named("open", || self.path(file))?);
        let (mut kept, mut over, mut seen) = (String::new(), 0_u64, 0_u64);
        for line in BufReader::with_capacity(SMALL, table).lines().skip(1) {
            let line = line.map_err(|error| {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::BADMSG);
                Error::new("read", self.path(file), errno)
            })?;
            seen = seen.saturating_add(1);
            if is_over(&line) {
                over = over.saturating_add(1);
            } else {
                kept.push_str(&line);
                kept.push('\n');
            }
            if kept.len() > LARGE || seen > MAX_LINES {
                return Err(Error::new("read", self.path(file), Errno::FBIG));
            }
        }
        Ok((kept, over))
    }

    /// A table of its network namespace; empty where the kernel has no such protocol.
    fn network_text(&self, file: &str) -> Result<String> {
        match self.text(file, MAX_TABLE) {
            Err(error) if error.errno == Errno::NOENT => Ok(String::new()),
            read => read,
        }
    }
}

/// The file or folder, if no name leads to it: an empty folder keeps what the names in it took.
fn unlinked(stat: &rustix::fs::Stat) -> Option<Unlinked> {
    let counts = matches!(
        FileType::from_raw_mode(stat.st_mode),
        FileType::RegularFile | FileType::Directory | FileType::Symlink
    );
    let removed = counts && stat.st_nlink == 0;
    let bytes = || u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512);
    removed.then(|| Unlinked { device: stat.st_dev, inode: stat.st_ino, bytes: bytes() })
}

/// Whether a descriptor is an instance of inotify, which is known by its name alone.
fn is_watcher(folder: &std::os::fd::OwnedFd, name: &std::ffi::CStr, stat: &rustix::fs::Stat) -> bool {
    // What has no place in a file system has no type, or a kernel may call it a file, and no size.
    let kind = FileType::from_raw_mode(stat.st_mode);
    matches!(kind, FileType::Unknown | FileType::RegularFile)
        && stat.st_size == 0
        && rustix::fs::readlinkat(folder, name, Vec::new()).is_ok_and(|link| link.as_bytes() == b"anon_inode:inotify")
}

/// What waits at most in an instance of inotify, in bytes: an event with a long name takes half a KiB.
#[must_use]
pub fn watcher_bytes() -> u64 {
    const EVENT: u64 = 512;
    /// What the kernel begins with.
    const EVENTS: u64 = 16_384;
    let most = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events");
    most.ok().and_then(|most| most.trim().parse().ok()).unwrap_or(EVENTS).saturating_mul(EVENT)
}

/// Bytes that all sockets of TCP of the machine have, in pages at the end of `TCP: inuse 5 orphan 0 tw 0 alloc 6 mem 3`.
fn tcp_memory(sockstat: &str) -> u64 {
    let line = sockstat.lines().find_map(|line| line.strip_prefix("TCP:"));
    let pages = line.and_then(|line| line.rsplit_once("mem ")?.1.trim().parse::<u64>().ok());
    let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
    pages.map_or(u64::MAX, |pages| pages.saturating_mul(page))
}

/// Bytes that sockets of TCP take: packets that a program wants to stay apart (MSG_EOR) take more than a KiB for one byte, and
/// the lines do not tell. No more than `all`, which those of the whole machine have.
fn tcp_bytes<'a>(lines: impl Iterator<Item = &'a str>, all: u64) -> u64 {
    const PACKET: u64 = 4096;
    /// Both buffers of a socket, as large as the kernel lets them grow (`net.ipv4.tcp_wmem`, `tcp_rmem`).
    const BUFFERS: u64 = 36 << 20;
    let add = |(joined, apart): (u64, u64), line| {
        let small = waiting_bytes(line).saturating_mul(PACKET).min(BUFFERS);
        (joined.saturating_add(inet_bytes(line)), apart.saturating_add(small))
    };
    let (joined, apart) = lines.fold((0, 0), add);
    joined.max(apart.min(all))
}

/// Whether a line of `/proc/PID/net/sockstat` counts sockets: `TCP: inuse 5 orphan 0 tw 0 alloc 6 mem 3`. A line that nobody
/// can read counts as one that does.
fn tcp_in_use(text: &str, name: &str) -> bool {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.is_some_and(|line| line.split_ascii_whitespace().nth(1) != Some("0"))
}

/// What a connection that is over and waits for its time takes at most, in bytes (280 were measured).
const WAITING_FOR_TIME: u64 = 512;

/// Whether a line of TCP is a connection that is over, and only waits for its time (TIME_WAIT, state 06): it has no buffer.
fn is_over(line: &str) -> bool {
    line.split_ascii_whitespace().nth(3) == Some("06")
}

/// Whether a line of TCP is a connection that belongs to no descriptor: its inode, the tenth word, is 0.
fn is_unaccepted(line: &str) -> bool {
    line.split_ascii_whitespace().nth(9) == Some("0") && !is_over(line)
}

/// Bytes that wait in a socket of netlink, as the kernel counts them: the fifth and the sixth word, to be read and to be
/// sent.
fn netlink_bytes(line: &str) -> u64 {
    let word = |at: usize| line.split_ascii_whitespace().nth(at).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
    word(4).saturating_add(word(5))
}

/// `Name:   123 kB`.
fn kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// `7f0-7f1 rw-s 00000000 00:01 1234      /memfd:name (deleted)`.
fn mapped(line: &str) -> Option<Mapped> {
    let mut words = line.splitn(6, ' ');
    let (device, inode, path) = (words.nth(3)?, words.next()?, words.next()?);
    let path = path.trim_start().strip_suffix(" (deleted)")?;
    let (major, minor) = device.split_once(':')?;
    let device = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
    Some(Mapped { device, inode: inode.parse().ok()?, path: path.to_owned() })
}

/// How many buffers wait at most in the sockets of these lines: one for each of a pair, and for a socket that takes
/// datagrams as many as wait in its queue (`net.unix.max_dgram_qlen`, which a new namespace has at 10).
fn unix_buffers<'a>(lines: impl Iterator<Item = &'a str>) -> u64 {
    lines.map(|line| if line.split_ascii_whitespace().nth(4) == Some("0002") { 11 } else { 1 }).sum()
}

/// Bytes that wait in a socket of TCP or UDP, with what the kernel needs besides.
fn inet_bytes(line: &str) -> u64 {
    const SOCKET: u64 = 4096;
    waiting_bytes(line).saturating_mul(2).saturating_add(SOCKET)
}

/// Bytes that wait in a socket of TCP or UDP: `tx_queue:rx_queue` is the fifth word.
fn waiting_bytes(line: &str) -> u64 {
    let queues = line.split_ascii_whitespace().nth(4).and_then(|word| word.split_once(':'));
    let bytes = |hex: &str| u64::from_str_radix(hex, 16).unwrap_or(0);
    queues.map_or(0, |(out, into)| bytes(out).saturating_add(bytes(into)))
}

/// Whether two processes share one memory, as a parent and its child do between vfork(2) and execve(2). `false` also where
/// the kernel does not tell.
#[must_use]
pub fn same_memory(one: i32, other: i32) -> bool {
    const KCMP_VM: libc::c_long = 1;
    let (one, other) = (libc::c_long::from(one), libc::c_long::from(other));
    // SAFETY: the call takes numbers alone.
    unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_VM, 0_usize, 0_usize) == 0 }
}

/// The number of byte-range locks of processes that `ours` names, at most `most` and one more: nothing is read further.
///
/// # Errors
/// `/proc/locks` cannot be read.
pub fn locks(most: u64, ours: impl Fn(i32) -> bool) -> Result<u64> {
    use std::io::BufRead as _;
    const FILE: &str = "/proc/locks";
    let error = |error: &std::io::Error| Error::new("read", FILE, Errno::from_io_error(error).unwrap_or(Errno::IO));
    let file = std::fs::File::open(FILE).map_err(|e| error(&e))?;
    let mut found = 0_u64;
    for line in std::io::BufReader::with_capacity(1 << 16, file).lines() {
        let line = line.map_err(|e| error(&e))?;
        if lock_of(&line).is_some_and(&ours) {
            found = found.saturating_add(1);
            if found > most {
                break;
            }
        }
    }
    Ok(found)
}

/// Whether each processor accounts for who runs on it at every tick, of 10 ms at most. Where some have no ticks while one
/// program runs (`nohz_full=`), its time shows late.
#[must_use]
pub fn ticks_everywhere() -> bool {
    const ALL: &str = "/sys/devices/system/cpu/online";
    const WITHOUT: &str = "/sys/devices/system/cpu/nohz_full";
    match std::fs::read_to_string(WITHOUT) {
        Ok(list) => !list.contains(|digit: char| digit.is_ascii_digit()),
        // A kernel that cannot do without ticks has no such file, beside those that all have.
        Err(error) => error.kind() == std::io::ErrorKind::NotFound && std::path::Path::new(ALL).exists(),
    }
}

/// `1: POSIX  ADVISORY  WRITE 1234 08:01:5678 0 EOF`, or `1: -> POSIX ...` for one that waits.
fn lock_of(line: &str) -> Option<i32> {
    let mut words = line.split_ascii_whitespace().skip(1).filter(|word| *word != "->");
    matches!(words.next()?, "POSIX" | "FLOCK").then(|| words.nth(2)?.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_sockets_without_end_is_not_read_to_its_end() {
        const MANY: u64 = 18_000;
        let _turn = crate::rlimit::TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        crate::rlimit::raise_open_files(MANY + 1000);
        if crate::rlimit::open_files() < MANY + 1000 {
            println!("skip: open files: this caller may not have {MANY} files open");
            return;
        }
        let own = Process::own().unwrap();
        assert!(own.socket_bytes(0, 0).is_ok());
        let port = 20_000 + u16::try_from(std::process::id() % 20_000).unwrap();
        // On as many addresses, so that no port is taken from anybody.
        let bound = |number: u64| {
            let [.., high, low] = number.to_be_bytes();
            std::net::UdpSocket::bind((std::net::Ipv4Addr::new(127, 77, high, low), port)).unwrap()
        };
        let sockets: Vec<_> = (0..MANY).map(bound).collect();
        assert_eq!(own.socket_bytes(0, 0).unwrap_err().errno, Errno::FBIG);
        drop(sockets);
        assert!(own.socket_bytes(0, 0).is_ok());
    }

    /// It may unmap all of it, and keeps it.
    #[test]
    fn a_program_that_was_removed_is_a_file_that_its_process_holds() {
        use std::os::fd::AsFd as _;
        use std::os::unix::fs::MetadataExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        std::fs::copy("/bin/sleep", &path).unwrap();
        let inode = std::fs::metadata(&path).unwrap().ino();
        let null = crate::channel::dev_null().unwrap();
        let (null, command) = (null.as_fd(), crate::command::Command::new(&path).arg("30"));
        let child = command.start(null, null, null).unwrap();
        let process = Process::open(child.pid).unwrap();
        let held = || process.descriptors().unwrap().unlinked.iter().any(|file| file.inode == inode && file.bytes > 0);
        let named = held();
        std::fs::remove_file(&path).unwrap();
        let removed = held();
        crate::pidfd::send_signal(&child.pidfd, libc::SIGKILL).unwrap();
        crate::pidfd::wait(&child.pidfd).unwrap();
        assert_eq!((named, removed), (false, true));
    }

    #[test]
    fn what_is_mapped_and_has_no_name_is_told_from_the_rest() {
        let line = "7f00-7f01 rw-s 00000000 00:01 1234                       /memfd:a b (deleted)";
        assert_eq!(mapped(line), Some(Mapped { device: (0, 1), inode: 1234, path: "/memfd:a b".to_owned() }));
        assert_eq!(mapped("7f00-7f01 rw-p 00000000 00:00 0"), None);
        assert_eq!(mapped("7f00-7f01 r-xp 00000000 fe:00 99       /usr/bin/true"), None);
        assert_eq!(mapped("7f00-7f01 rw-p 00000000 00:00 0          [heap]"), None);
    }

    #[test]
    fn a_lock_names_its_process() {
        assert_eq!(lock_of("1: POSIX  ADVISORY  WRITE 1234 08:01:5678 0 EOF"), Some(1234));
        assert_eq!(lock_of("1: -> POSIX  ADVISORY  WRITE 77 08:01:5678 0 EOF"), Some(77));
        assert_eq!(lock_of("2: FLOCK  ADVISORY  WRITE 5 08:01:5678 0 EOF"), Some(5));
        assert_eq!(lock_of("3: LEASE  ACTIVE    READ 5 08:01:5678 0 EOF"), None);
        assert_eq!(lock_of("2: OFDLCK ADVISORY  WRITE -1 08:01:5678 0 EOF"), None);
    }

    #[test]
    fn queues_are_counted_with_what_the_kernel_needs_besides() {
        let line = " 0: 0100007F:1F90 00000000:0000 0A 00000010:00000020 00:00000000 00000000 0 0 1 1 0";
        assert_eq!(inet_bytes(line), 48 * 2 + 4096);
        let unix = ["0: 00000002 00000000 00010000 0001 01 12 /a", "0: 00000002 00000000 00000000 0002 01 13 /b"];
        assert_eq!(unix_buffers(unix.into_iter()), 12);
        let netlink = "0000000000000000 0   1234   00000000 4096     512      0        2        0        5678";
        assert_eq!(netlink_bytes(netlink), 4608);
    }

    #[test]
    fn bytes_of_tcp_may_each_be_a_packet_but_take_no_more_than_all_have() {
        let line = " 0: 0100007F:1F90 00000000:0000 01 00000010:00000020 00:00000000 00000000 0 0 1 1 0";
        let most = |all| tcp_bytes([line, line].into_iter(), all);
        assert_eq!((most(u64::MAX), most(100_000), most(0)), (96 * 4096, 100_000, 96 * 2 + 2 * 4096));
        let full = line.replace("00000010", "00400000");
        assert_eq!(tcp_bytes([full.as_str()].into_iter(), u64::MAX), 36 << 20);
        let page = u64::try_from(rustix::param::page_size()).unwrap();
        assert_eq!(tcp_memory("sockets: used 4\nTCP: inuse 2 orphan 0 tw 0 alloc 3 mem 7\nUDP: mem 1"), 7 * page);
        assert_eq!(tcp_memory("sockets: used 4"), u64::MAX);
    }

    #[test]
    fn an_instance_of_inotify_is_told_from_other_descriptors() {
        use rustix::fd::AsRawFd as _;
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        let watcher = rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::CLOEXEC).unwrap();
        let folder = rustix::fs::open("/proc/self/fd", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let told = |number: i32| {
            let name = std::ffi::CString::new(number.to_string()).unwrap();
            is_watcher(&folder, &name, &rustix::fs::statat(&folder, &name, AtFlags::empty()).unwrap())
        };
        assert!(told(watcher.as_raw_fd()) && !told(event.as_raw_fd()) && !told(folder.as_raw_fd()));
        assert!(Process::own().unwrap().descriptors().unwrap().watchers > 0 && watcher_bytes() >= 512);
    }

    #[test]
    fn a_connection_that_nobody_accepted_has_no_inode() {
        let line = |state: &str, inode: u64| {
            format!(" 0: 0100007F:1F90 0100007F:8000 {state} 00000000:0000EA60 00:00000000 00000000 0 0 {inode} 1 0")
        };
        assert!(is_unaccepted(&line("01", 0)) && is_unaccepted(&line("08", 0)));
        assert!(!is_unaccepted(&line("01", 77)) && !is_unaccepted(&line("06", 0)));
        assert!(tcp_in_use("sockets: used 4\nTCP: inuse 2 orphan 0 tw 0 alloc 3 mem 1", "TCP:"));
        assert!(!tcp_in_use("sockets: used 4\nTCP: inuse 0 orphan 0 tw 0 alloc 3 mem 1", "TCP:"));
    }

    /// Eight thousand half-read files of `/proc` were memory that nobody counted.
    #[test]
    fn a_file_of_proc_that_is_open_is_known() {
        let count = || Process::own().unwrap().descriptors().unwrap().written_when_read;
        let before = count();
        let open: Vec<_> = (0..50).map(|_| std::fs::File::open("/proc/self/status").unwrap()).collect();
        // Other tests open and close some meanwhile.
        assert!(count() + 20 >= before + 50);
        drop(open);
    }

    /// A server that closed a hundred thousand connections in a minute was ended for sockets that nobody could look through.
    #[test]
    fn connections_that_only_wait_for_their_time_are_counted_apart_whatever_their_number() {
        let folder = tempfile::tempdir().unwrap();
        let line = |state: &str| {
            format!(
                "{:4}: 0100007F:1F90 0100007F:8000 {state} 00000000:00000000 00:00000000 00000000     0        0 0 3 0000000000000000      {:40}\n",
                0, ""
            )
        };
        std::fs::write(
            folder.path().join("tcp"),
            format!("  sl  local_address\n{}{}", line("0A"), line("06").repeat(140_000)),
        )
        .unwrap();
        let at = rustix::fs::open(folder.path(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let process = Process { folder: at, ..Process::own().unwrap() };
        let (kept, over) = process.tcp_lines("tcp").unwrap();
        assert_eq!((kept.lines().count(), over), (1, 140_000));
        assert_eq!(process.tcp_lines("none").unwrap(), (String::new(), 0));
        std::fs::write(folder.path().join("tcp"), line("01").repeat(140_000)).unwrap();
        assert_eq!(process.tcp_lines("tcp").unwrap_err().errno, Errno::FBIG);
    }

    #[test]
    fn own_memory_descriptors_and_locks_are_seen() {
        let own = Process::own().unwrap();
        let living = own.living().unwrap().unwrap();
        assert!(living.resident_bytes().unwrap().0 > 4096);
        let memory = rustix::fs::memfd_create("seen", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let stat = rustix::fs::fstat(&memory).unwrap();
        let found = living.descriptors().unwrap().unlinked;
        assert!(found.iter().any(|file| (file.device, file.inode) == (stat.st_dev, stat.st_ino)));
        // A folder keeps what the names in it took.
        let folder = tempfile::tempdir().unwrap();
        let kept = std::fs::File::open(folder.path()).unwrap();
        let stat = rustix::fs::fstat(&kept).unwrap();
        let is_seen = || {
            let found = living.descriptors().unwrap().unlinked;
            found.iter().any(|file| (file.device, file.inode) == (stat.st_dev, stat.st_ino))
        };
        assert!(!is_seen());
        folder.close().unwrap();
        assert!(is_seen());
        let own = std::process::id().cast_signed();
        assert!(same_memory(own, own) && !same_memory(own, -1));
        assert!(locks(10, |_| false).is_ok());
    }
}
