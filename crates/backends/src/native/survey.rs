//! Usage of a tree by looking at its processes, where no control group counts.
//!
//! A look is whole when every process that was found was looked at: what was passed on to a child that was born meanwhile
//! is found in a further round. What cannot be looked into is told, and is for the caller to bear or not.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use sys::proc::{Mapped, Process, Unlinked};

use crate::backend::Unseen;

/// What is looked at besides times and memory that is mapped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    /// Where file systems of ours are mounted whose bytes are memory.
    pub(crate) in_memory: Vec<String>,
    /// Files without a name, sockets, and what waits in them.
    pub(super) files: bool,
    /// The tree has to stand still meanwhile: the program may hand them on, or hide some in calls that wait.
    pub(super) let_go: bool,
    /// The network namespace is the tree's own.
    pub(super) own_network: bool,
    /// What waits in sockets there and no control group is charged for.
    pub(super) uncharged: bool,
    /// The folder of the run: files below it are on disk, whatever its file system.
    pub(super) folder: Option<PathBuf>,
    /// Memory that shows in no file is closed: mappings of such cannot be.
    pub(super) counted_memory: bool,
    /// The payload's own program, where it is a sealed file in memory: its inode, of which nothing grows.
    pub(super) program: Option<u64>,
}

/// What the processes of a tree use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Survey {
    pub(super) user_us: u64,
    pub(super) system_us: u64,
    /// Memory of all, bytes.
    pub(super) memory: u64,
    /// Threads of all.
    pub(super) pids: u64,
    /// Bytes of open files on disk that no name leads to.
    pub(super) unlinked: u64,
    /// What could not be seen.
    pub(super) unseen: Unseen,
    /// Processor time that other threads of ours took for it.
    pub(super) aside: Duration,
}

/// Rounds of one look: a tree that is not whole then is told to be not.
const ROUNDS: usize = 12;
/// So much processor time one look may take. A tree that cannot be seen in it is told to be not whole.
const MAX_LOOK: Duration = Duration::from_millis(100);
/// So long it may take on a host whose processors are busy with others: what holds by time waits for it.
const MAX_WAIT: Duration = Duration::from_millis(300);
/// So long threads may take to stop. On a host that is busy with others they have their turn late.
const MAX_STOP: Duration = Duration::from_millis(100);
/// What an open file keeps of which a part was read, as those of `/proc`: what the kernel wrote for it, and its inode.
const HALF_READ: u64 = 8192;
/// Sockets that are counted as empty.
const FREE_SOCKETS: u64 = 64;
/// What waits at most in a socket of another: as long as its buffer (`net.core.wmem_default`) is not full, the kernel lets
/// one more packet in, which may be as large.
const SOCKET_BUFFER: u64 = 2 * 212_992;

/// Looks at the tree below `root`, itself included. A process that ends meanwhile counts as nothing. Where a program may hide something
/// it stands still meanwhile: what was not looked at yet is handed to nobody who was, and what only waiting calls hold is let go of.
///
/// Memory is what is mapped privately, plus the file systems of ours, plus files in memory without a name (memfd and what
/// was removed while open), each once: a page that is in a file and mapped too is counted with the file.
pub(super) fn tree(root: i32, scope: &Scope) -> Survey {
    if !scope.let_go {
        return Scan::new(root, scope).tree();
    }
    let looked = sys::proc::while_tracing(|tracer| {
        let mut look = Scan::new(root, scope);
        look.stop(tracer);
        look.tree()
    });
    looked.map_or_else(
        |_no_thread| Scan::new(root, scope).in_part(),
        |(took, mut survey)| {
            survey.aside = took;
            survey
        },
    )
}

struct Scan<'a> {
    root: i32,
    scope: &'a Scope,
    seen: BTreeSet<i32>,
    sum: Survey,
    /// Share of pages of files in memory that are mapped.
    mapped: u64,
    /// Bytes, by device and inode.
    open: BTreeMap<(u64, u64), u64>,
    only_mapped: BTreeMap<u64, bool>,
    /// By inode: how many descriptors wait in it.
    sockets: BTreeMap<u64, u64>,
    /// Instances of inotify: one that several processes share counts for each.
    watchers: u64,
    /// Open files that take no room: those of `/proc` and `/sys`.
    written_when_read: u64,
    memory_device: u64,
    folder: Option<(u64, String)>,
    began: Instant,
    /// Processor time of this thread then.
    spent: Duration,
}

impl<'a> Scan<'a> {
    fn new(root: i32, scope: &'a Scope) -> Self {
        let folder = scope.folder.as_ref().and_then(|path| {
            let device = std::os::unix::fs::MetadataExt::dev(&path.symlink_metadata().ok()?);
            Some((device, format!("{}/", path.display())))
        });
        Self {
            root,
            scope,
            seen: BTreeSet::new(),
            sum: Survey::default(),
            mapped: 0,
            open: BTreeMap::new(),
            only_mapped: BTreeMap::new(),
            sockets: BTreeMap::new(),
            watchers: 0,
            written_when_read: 0,
            memory_device: sys::caller::memory_device().unwrap_or(0),
            folder,
            began: Instant::now(),
            spent: sys::caller::thread_time(),
        }
    }

    /// Stops the tree: whoever was made by one that had not stopped yet is found in a further round.
    fn stop(&mut self, tracer: &mut sys::proc::Tracer) {
        let (mut refused, mut left) = (BTreeSet::new(), MAX_STOP);
        for _ in 0..ROUNDS {
            let mut new = 0_usize;
            // The guest is ours.
            for pid in sys::proc::tree(self.root).unwrap_or_default().into_iter().filter(|pid| *pid != self.root) {
                match tracer.ask(pid) {
                    Ok((asked, is_refused)) => {
                        new = new.saturating_add(asked);
                        refused.extend(is_refused.then_some(pid));
                    }
                    Err(error) if error.is_gone() => {}
                    Err(_closed) => refused.extend([pid]),
                }
                if self.is_over() {
                    self.sum.unseen.partly = true;
                    return;
                }
            }
            if new == 0 {
                break;
            }
            // One that has had no turn of a processor yet does nothing: of a host that is busy with others nobody here is the cause.
            let asked = Instant::now();
            let _all = tracer.wait(left);
            left = left.saturating_sub(asked.elapsed());
        }
        self.sum.unseen.processes = u64::try_from(refused.len()).unwrap_or(u64::MAX);
        self.began = Instant::now();
    }

    fn tree(mut self) -> Survey {
        for _ in 0..ROUNDS {
            let listed = sys::proc::tree(self.root).unwrap_or_default();
            let fresh: Vec<i32> = listed.into_iter().filter(|pid| !self.seen.contains(pid)).collect();
            if fresh.is_empty() {
                return self.finish();
            }
            for pid in fresh {
                if self.is_over() {
                    return self.in_part();
                }
                if self.process(pid) {
                    self.seen.insert(pid);
                }
            }
        }
        self.in_part()
    }

    fn is_over(&self) -> bool {
        let waited = self.began.elapsed();
        // One thread has no more processor time than time: a call for each process is spared while there is enough of that.
        waited > MAX_WAIT || waited > MAX_LOOK && self.took() > MAX_LOOK
    }

    /// Processor time so far: of a host that is busy with others nobody here is the cause.
    fn took(&self) -> Duration {
        sys::caller::thread_time().saturating_sub(self.spent)
    }

    /// Whether it was looked at; else it is gone.
    fn process(&mut self, pid: i32) -> bool {
        let Ok(process) = Process::open(pid) else { return false };
        let Ok(text) = process.small_text("stat") else { return false };
        let used = match self.inside(pid, &process, parent(&text)) {
            Ok(used) => used,
            Err(error) if error.is_gone() => return false,
            // The guest is ours, and closed to everybody.
            Err(_) if pid == self.root => (0, 0),
            Err(_closed) => {
                self.sum.unseen.processes = self.sum.unseen.processes.saturating_add(1);
                (0, 0)
            }
        };
        let (user, system, threads) = times(&text);
        let sum = &mut self.sum;
        sum.memory = sum.memory.saturating_add(used.0);
        self.mapped = self.mapped.saturating_add(used.1);
        sum.user_us = sum.user_us.saturating_add(user);
        sum.system_us = sum.system_us.saturating_add(system);
        sum.pids = sum.pids.saturating_add(threads);
        true
    }

    /// Private memory, and mapped pages of files in memory; files and sockets are kept for the end.
    fn inside(&mut self, pid: i32, process: &Process, parent: i32) -> sys::error::Result<(u64, u64)> {
        let Some(living) = process.living()? else { return Ok((0, 0)) };
        let used = living.resident_bytes()?;
        if self.scope.files {
            let (held, mapped) = (living.descriptors()?, living.mapped_unlinked()?);
            held.unlinked.into_iter().for_each(|file| self.open(file));
            self.sockets.extend(held.sockets);
            self.watchers = self.watchers.saturating_add(held.watchers);
            self.written_when_read = self.written_when_read.saturating_add(held.written_when_read);
            mapped.iter().for_each(|file| self.mapped(file));
        }
        // Between vfork(2) and execve(2) a child has its parent's memory.
        // Whose first thread has ended has none to compare.
        let lives = |pid| Process::open(pid).and_then(|process| process.lives()).unwrap_or(false);
        let borrowed =
            self.seen.contains(&parent) && lives(pid) && lives(parent) && sys::proc::same_memory(pid, parent);
        Ok(if borrowed { (0, 0) } else { used })
    }

    /// Many may hold one file, which may grow while they are looked at.
    fn open(&mut self, Unlinked { device, inode, bytes }: Unlinked) {
        // Ours: its size is known, and its pages are counted where they are mapped.
        if device == self.memory_device && self.scope.program == Some(inode) {
            return;
        }
        let known = self.open.entry((device, inode)).or_default();
        *known = bytes.max(*known);
    }

    fn mapped(&mut self, file: &Mapped) {
        let below = self.folder.as_ref().is_some_and(|(_, folder)| file.path.starts_with(folder));
        if below {
            self.only_mapped.insert(file.inode, true);
        } else if file.device == sys::caller::device_numbers(self.memory_device) {
            if self.scope.program == Some(file.inode) {
                // Its size is known, and its pages are counted where they are mapped.
            } else if file.path.starts_with("/memfd:") {
                self.only_mapped.insert(file.inode, false);
            } else {
                self.sum.unseen.memory = self.sum.unseen.memory || self.scope.counted_memory;
            }
        }
    }

    fn in_part(mut self) -> Survey {
        self.sum.unseen.partly = true;
        self.finish()
    }

    fn finish(mut self) -> Survey {
        let (mut files, mut ours) = (0_u64, BTreeSet::new());
        if let Ok(guest) = Process::open(self.root) {
            for (device, used) in self.scope.in_memory.iter().filter_map(|place| guest.used_bytes_at(place).ok()) {
                ours.insert(device);
                files = files.saturating_add(used);
            }
            self.sum.memory = self.sum.memory.saturating_add(self.socket_bytes(&guest));
        }
        let on_disk = |device: u64| {
            sys::caller::device_numbers(device).0 != 0 || self.folder.as_ref().is_some_and(|(own, _)| *own == device)
        };
        for ((device, _), bytes) in self.open.iter().filter(|((device, _), _)| !ours.contains(device)) {
            let sum = if on_disk(*device) { &mut self.sum.unlinked } else { &mut files };
            *sum = sum.saturating_add(*bytes);
        }
        let unseen = &mut self.sum.unseen;
        let known: BTreeSet<u64> = self.open.keys().map(|(_, inode)| *inode).collect();
        for (_, disk) in self.only_mapped.iter().filter(|(inode, _)| !known.contains(inode)) {
            let count = if *disk { &mut unseen.disk_files } else { &mut unseen.memory_files };
            *count = count.saturating_add(1);
        }
        unseen.waiting = self.sockets.values().fold(0, |sum, waiting| sum.saturating_add(*waiting));
        // How many events wait, and of which length, the kernel tells nobody.
        let events = if self.watchers == 0 { 0 } else { sys::proc::watcher_bytes().saturating_mul(self.watchers) };
        let half_read = self.written_when_read.saturating_mul(HALF_READ);
        let besides = events.saturating_add(half_read);
        self.sum.memory = self.sum.memory.saturating_add(files.max(self.mapped)).saturating_add(besides);
        // What takes so long to look at is no more whole than what there was no time for.
        self.sum.unseen.partly = self.sum.unseen.partly || self.took() > MAX_LOOK;
        self.sum
    }

    /// What waits in sockets, at most.
    fn socket_bytes(&mut self, guest: &Process) -> u64 {
        if !self.scope.files {
            return 0;
        }
        if self.scope.own_network {
            return guest.socket_bytes(FREE_SOCKETS, SOCKET_BUFFER).unwrap_or_else(|_too_many| {
                self.sum.unseen.memory = true;
                0
            });
        }
        let count = u64::try_from(self.sockets.len()).unwrap_or(u64::MAX);
        count.saturating_sub(FREE_SOCKETS).saturating_mul(SOCKET_BUFFER)
    }
}

/// The parent, of a line of `/proc/PID/stat`: field 4.
fn parent(stat: &str) -> i32 {
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    rest.split_ascii_whitespace().nth(1).and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// User and system time in microseconds, of it and of the children that it waited for, and threads, of a line of
/// `/proc/PID/stat` (proc_pid_stat(5)): fields 14 to 17 and 20; the name in field 2 may hold anything, so counting starts
/// after its last bracket. A tick is 10 ms.
fn times(stat: &str) -> (u64, u64, u64) {
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let field =
        |number: usize| rest.split_ascii_whitespace().nth(number).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0);
    let micros = |own: usize, children: usize| field(own).saturating_add(field(children)).saturating_mul(10_000);
    (micros(11, 13), micros(12, 14), field(17))
}

#[cfg(test)]
mod tests {
    use super::{parent, times};

    #[test]
    fn a_name_with_brackets_and_blanks_does_not_shift_the_fields() {
        let stat = "7 (a) b) c) S 1 7 7 0 -1 4194560 1 2 3 4 15 16 5 6 20 0 3 0 99";
        assert_eq!(times(stat), (200_000, 220_000, 3));
        assert_eq!(parent(stat), 1);
    }
}
