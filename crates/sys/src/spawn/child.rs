//! What the new process does before it executes its program, in memory that it shares with its maker.
//!
//! Raw system calls only: no allocation, no C library, no panic, no destructor. Everything that it needs was prepared
//! by the maker and lies in [`Job`]. A failure is written there and read by the maker, which sleeps meanwhile.

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicI32, AtomicU8, Ordering};

use super::{InnerMount, Step, raw};
use crate::arch::{KernelSigaction, system_call};
use crate::bare::LAST_FD;

/// What to execute.
#[derive(Clone, Copy)]
pub(super) enum Program {
    /// An open file, by execveat with an empty path.
    Fd(i32),
    /// A path.
    Path(*const c_char),
}

/// A session of the program's own, so that it is the leader of a process group and nobody's terminal is its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Session {
    /// Without a terminal.
    Plain,
    /// Its descriptor 0 is a terminal, and becomes its controlling one.
    Terminal,
}

/// The texts of the three map files; the child may write them only for its own single id.
pub(crate) struct MapTexts {
    pub(super) uid: Vec<u8>,
    pub(super) gid: Vec<u8>,
}

/// Everything that the child needs, prepared by its maker.
pub(super) struct Job<'a> {
    pub(super) tasks: &'a [i32],
    pub(super) cgroup_namespace: bool,
    pub(super) mounts: &'a [InnerMount<'a>],
    /// What getppid must answer: 0 in a new pid namespace.
    pub(super) parent: i32,
    pub(super) time_offsets: Option<&'a [u8]>,
    pub(super) maps: Option<&'a MapTexts>,
    pub(super) ambient: u64,
    pub(super) reset_signals: bool,
    pub(super) directory: Option<&'a CStr>,
    pub(super) session: Option<Session>,
    /// Soft and hard limit of open files, where they are others than the maker's.
    pub(super) open_files: Option<[u64; 2]>,
    /// (source, target); every source is above every target.
    pub(super) fds: &'a [(i32, i32)],
    pub(super) program: Program,
    pub(super) argv: *const *const c_char,
    pub(super) env: *const *const c_char,
    /// The step that is being taken, then the one that failed.
    pub(super) step: AtomicU8,
    pub(super) errno: AtomicI32,
}

impl Job<'_> {
    fn at(&self, step: Step) {
        self.step.store(step as u8, Ordering::Relaxed);
    }

    /// The result of a call, or the end of this process.
    fn must(&self, result: isize) -> isize {
        if result >= 0 {
            return result;
        }
        self.fail(i32::try_from(result.wrapping_neg()).unwrap_or(libc::EIO))
    }

    fn fail(&self, errno: i32) -> ! {
        self.errno.store(errno, Ordering::Release);
        loop {
            call(libc::SYS_exit_group, [127, 0, 0, 0, 0]);
        }
    }
}

/// Entry of the child.
pub(super) extern "C" fn run(job: *const Job<'_>) -> ! {
    // SAFETY: the maker passes a pointer to a `Job` that it borrows until this process has executed or ended; all that
    // both sides write is atomic.
    let job = unsafe { &*job };
    // Before anything else.
    die_with_parent(job);
    // Before the groups: one of v1 that has no budget for real-time programs takes none.
    become_ordinary(job);
    attach(job);
    if !job.mounts.is_empty() {
        job.at(Step::Mounts);
        mount_all(job);
    }
    if let Some(text) = job.time_offsets {
        job.at(Step::TimeOffsets);
        write_file(job, c"/proc/self/timens_offsets", text);
    }
    if let Some(maps) = job.maps {
        job.at(Step::IdMaps);
        write_file(job, c"/proc/self/setgroups", b"deny");
        write_file(job, c"/proc/self/gid_map", &maps.gid);
        write_file(job, c"/proc/self/uid_map", &maps.uid);
    }
    if job.ambient != 0 {
        job.at(Step::Ambient);
        raise_ambient(job);
    }
    if job.reset_signals {
        job.at(Step::Signals);
        reset_signals(job);
    }
    if let Some(path) = job.directory {
        job.at(Step::Directory);
        job.must(call(libc::SYS_chdir, [path.as_ptr().addr(), 0, 0, 0, 0]));
    }
    place_descriptors(job);
    if let Some(session) = job.session {
        begin_session(job, session);
    }
    execute(job)
}

fn begin_session(job: &Job<'_>, session: Session) {
    job.at(Step::Session);
    job.must(call(libc::SYS_setsid, [0; 5]));
    if session == Session::Terminal {
        job.at(Step::Terminal);
        job.must(call(libc::SYS_ioctl, [0, TIOCSCTTY, 0, 0, 0]));
    }
}

fn attach(job: &Job<'_>) {
    job.at(Step::Cgroup);
    for fd in job.tasks {
        // "0" moves the writer alone, and only that skips the lock that waits for a grace period (kernel/cgroup/cgroup.c).
        let text = b"0";
        job.must(call(libc::SYS_write, [number(*fd), text.as_ptr().addr(), text.len(), 0, 0]));
    }
    if job.cgroup_namespace {
        job.at(Step::CgroupNamespace);
        job.must(call(libc::SYS_unshare, [CLONE_NEWCGROUP, 0, 0, 0, 0]));
    }
}

/// Private first: else what is mounted here would show in the namespace that this one is a copy of.
fn mount_all(job: &Job<'_>) {
    job.must(call(libc::SYS_mount, [0, c"/".as_ptr().addr(), 0, MS_REC | MS_PRIVATE, 0]));
    for mount in job.mounts {
        match mount {
            InnerMount::New { kind, at, noexec, options } => {
                let flags = MS_NOSUID | MS_NODEV | if *noexec { MS_NOEXEC } else { 0 };
                let (kind, at) = (kind.as_ptr().addr(), at.as_ptr().addr());
                job.must(call(libc::SYS_mount, [kind, at, kind, flags, options.as_ptr().addr()]));
            }
            InnerMount::Tree { tree, at } => {
                let (tree, at) = (number(raw(*tree)), at.as_ptr().addr());
                let own = c"".as_ptr().addr();
                job.must(call(libc::SYS_move_mount, [tree, own, AT_FDCWD, at, MOVE_MOUNT_F_EMPTY_PATH]));
            }
        }
    }
}

fn die_with_parent(job: &Job<'_>) {
    job.at(Step::DeathSignal);
    job.must(call(libc::SYS_prctl, [PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0]));
    // The maker may have died before the call above: then no signal will ever come.
    if call(libc::SYS_getppid, [0; 5]) != isize::try_from(job.parent).unwrap_or(-1) {
        job.fail(libc::ESRCH);
    }
}

/// No share of processors holds a real-time program, and it could keep whoever is to end it from running. A policy is
/// inherited, so one whose parent has such a policy gives it up.
fn become_ordinary(job: &Job<'_>) {
    job.at(Step::Scheduling);
    let policy = job.must(call(libc::SYS_sched_getscheduler, [0; 5])) & !RESET_ON_FORK;
    if [libc::SCHED_FIFO, libc::SCHED_RR, libc::SCHED_DEADLINE].iter().any(|one| isize::try_from(*one) == Ok(policy)) {
        let priority: i32 = 0;
        let ordinary = [0, number(libc::SCHED_OTHER), (&raw const priority).addr(), 0, 0];
        job.must(call(libc::SYS_sched_setscheduler, ordinary));
    }
}

fn write_file(job: &Job<'_>, path: &CStr, text: &[u8]) {
    let flags = number(libc::O_WRONLY | libc::O_CLOEXEC | libc::O_NOFOLLOW);
    let fd = job.must(call(libc::SYS_openat, [AT_FDCWD, path.as_ptr().addr(), flags, 0, 0]));
    let written = job.must(call(libc::SYS_write, [fd.cast_unsigned(), text.as_ptr().addr(), text.len(), 0, 0]));
    if written.cast_unsigned() != text.len() {
        job.fail(libc::EIO);
    }
    job.must(call(libc::SYS_close, [fd.cast_unsigned(), 0, 0, 0, 0]));
}

fn raise_ambient(job: &Job<'_>) {
    let header = CapHeader { version: 0x2008_0522, pid: 0 };
    let mut data = [CapData { effective: 0, permitted: 0, inheritable: 0 }; 2];
    job.must(call(libc::SYS_capget, [(&raw const header).addr(), data.as_mut_ptr().addr(), 0, 0, 0]));
    let [low, high] = &mut data;
    low.inheritable |= low.permitted & (job.ambient & 0xffff_ffff) as u32;
    high.inheritable |= high.permitted & (job.ambient >> 32) as u32;
    job.must(call(libc::SYS_capset, [(&raw const header).addr(), data.as_ptr().addr(), 0, 0, 0]));
    for capability in 0..64usize {
        if job.ambient & (1 << capability) != 0 {
            job.must(call(libc::SYS_prctl, [PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability, 0, 0]));
        }
    }
}

/// Signals that the maker ignores or blocks would stay so in the program: a shell without SIGPIPE never ends.
fn reset_signals(job: &Job<'_>) {
    let default = KernelSigaction::default();
    for signal in 1..=64usize {
        if signal != number(libc::SIGKILL) && signal != number(libc::SIGSTOP) {
            job.must(call(libc::SYS_rt_sigaction, [signal, (&raw const default).addr(), 0, 8, 0]));
        }
    }
    let none: u64 = 0;
    job.must(call(libc::SYS_rt_sigprocmask, [number(libc::SIG_SETMASK), (&raw const none).addr(), 0, 8, 0]));
}

fn place_descriptors(job: &Job<'_>) {
    job.at(Step::Descriptors);
    let mut first_free = 0;
    for (source, target) in job.fds {
        job.must(call(libc::SYS_dup3, [number(*source), number(*target), 0, 0, 0]));
        first_free = first_free.max(target.wrapping_add(1));
    }
    // Marked, not closed: the program is one of them, and execve closes them all.
    job.must(call(libc::SYS_close_range, [number(first_free), LAST_FD as usize, CLOSE_RANGE_CLOEXEC, 0, 0]));
    // Targets below the highest that were not named stay what the maker had there; they go as well.
    for unnamed in 0..first_free {
        if !job.fds.iter().any(|(_, target)| *target == unnamed) {
            call(libc::SYS_close, [number(unnamed), 0, 0, 0, 0]);
        }
    }
    if let Some(limit) = &job.open_files {
        job.must(call(libc::SYS_prlimit64, [0, RLIMIT_NOFILE, limit.as_ptr().addr(), 0, 0]));
    }
}

fn execute(job: &Job<'_>) -> ! {
    job.at(Step::Exec);
    let (argv, env) = (job.argv.addr(), job.env.addr());
    let result = match job.program {
        Program::Fd(fd) => {
            call(libc::SYS_execveat, [number(fd), c"".as_ptr().addr(), argv, env, number(libc::AT_EMPTY_PATH)])
        }
        Program::Path(path) => call(libc::SYS_execve, [path.addr(), argv, env, 0, 0]),
    };
    job.fail(i32::try_from(result.wrapping_neg()).unwrap_or(libc::EIO))
}

/// asm-generic/ioctls.h.
const TIOCSCTTY: usize = 0x540e;
/// asm-generic/resource.h; x86 and ARM use it.
const RLIMIT_NOFILE: usize = 7;
const AT_FDCWD: usize = 0usize.wrapping_sub(100);
const MOVE_MOUNT_F_EMPTY_PATH: usize = 4;
const MS_NOSUID: usize = 2;
const MS_NODEV: usize = 4;
const MS_NOEXEC: usize = 8;
const MS_REC: usize = 0x4000;
const MS_PRIVATE: usize = 1 << 18;
const CLONE_NEWCGROUP: usize = 0x0200_0000;
const CLOSE_RANGE_CLOEXEC: usize = 4;
const PR_SET_PDEATHSIG: usize = 1;
const PR_CAP_AMBIENT: usize = 47;
const PR_CAP_AMBIENT_RAISE: usize = 2;
const SIGKILL: usize = 9;
/// Told with the policy, as a flag beside its number.
const RESET_ON_FORK: isize = 0x4000_0000;

#[repr(C)]
struct CapHeader {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// A non-negative C int as a register. Negative ones cannot come here: they would be a huge, invalid number.
const fn number(value: i32) -> usize {
    value.unsigned_abs() as usize
}

fn call(number: libc::c_long, arguments: [usize; 5]) -> isize {
    let [first, second, third, fourth, fifth] = arguments;
    let number = isize::try_from(number).unwrap_or(-1).cast_unsigned();
    // SAFETY: the calls made in this file are given pointers to live memory of the size that each expects, and none of
    // them unmaps or remaps memory that is in use.
    unsafe { system_call(number, [first, second, third, fourth, fifth, 0]) }
}
