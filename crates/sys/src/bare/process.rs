//! Processes: sessions, children, their ends.

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, Ordering};

use linux_raw_sys::general::{
    __NR_clone, __NR_futex, __NR_getpid, __NR_getppid, __NR_getsid, __NR_setsid, __NR_unshare, __NR_wait4, __WALL,
    CLONE_NEWCGROUP, CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUSER, CLONE_NEWUTS, CLONE_VFORK,
    CLONE_VM, FUTEX_WAIT, FUTEX_WAKE, WNOHANG, rusage,
};

use super::errno::{Errno, Result};
use super::memory::map_words;
use super::raw::{call, int, read, small, uint, write};
use super::runtime::exit;
use super::signal::SIGCHLD;
use crate::arch::clone_onto;

/// getpid(2).
#[must_use]
pub fn pid() -> i32 {
    // SAFETY: no arguments; cannot fail.
    unsafe { call(__NR_getpid, []) }.map_or(0, small)
}

/// getppid(2); 0 = the parent is outside our pid namespace.
#[must_use]
pub fn parent() -> i32 {
    // SAFETY: no arguments; cannot fail.
    unsafe { call(__NR_getppid, []) }.map_or(0, small)
}

/// A namespace of control groups that begins where this process is.
///
/// # Errors
/// `EPERM` without CAP_SYS_ADMIN; `ENOSPC`: no more of them may be made.
pub fn new_cgroup_namespace() -> Result<()> {
    // SAFETY: the call takes a number alone; nothing that is shared with other threads changes by this flag.
    unsafe { call(__NR_unshare, [uint(CLONE_NEWCGROUP)]) }.map(drop)
}

/// What a copy of this process may be given of its own.
const OF_A_COPY: u32 = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;

/// A copy of this process, as fork(2) makes it, with namespaces of its own (`CLONE_NEW*`); its number, and `None` in the copy. For a
/// process of one thread.
///
/// # Errors
/// `EINVAL`: a flag is none of a namespace. `EPERM`: not without a user namespace. `ENOSPC`: no more of them may be made.
pub fn copy_into(namespaces: u32) -> Result<Option<i32>> {
    if namespaces & !OF_A_COPY != 0 {
        return Err(Errno::EINVAL);
    }
    // SAFETY: without CLONE_VM the copy has memory of its own, the stack with it, and goes on there as we go on here.
    let pid = unsafe { call(__NR_clone, [uint(namespaces | SIGCHLD), 0, 0, 0, 0]) }?;
    Ok((pid != 0).then(|| small(pid)))
}

/// setsid(2).
///
/// # Errors
/// `EPERM`: we lead a group already.
pub fn new_session() -> Result<i32> {
    // SAFETY: the call takes nothing; the kernel touches no memory of ours.
    unsafe { call(__NR_setsid, []) }.map(small)
}

/// The session that we are in.
///
/// # Errors
/// None that the kernel documents for this use.
pub fn session() -> Result<i32> {
    // SAFETY: the call takes numbers alone; the kernel touches no memory of ours.
    unsafe { call(__NR_getsid, [0]) }.map(small)
}

/// Waits until this child has ended.
///
/// # Errors
/// `ECHILD`: it is no child of ours.
pub fn reap(pid: i32) -> Result<()> {
    // SAFETY: both pointers are null, so the kernel writes no status and no usage.
    unsafe { call(__NR_wait4, [int(pid), 0, uint(__WALL), 0]) }.map(drop)
}

/// What happened to a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It ended with this code.
    Exited(u8),
    /// It ended by this signal.
    Killed {
        /// Which.
        signal: u8,
        /// It dumped core.
        core: bool,
    },
    /// It was stopped by this signal.
    Stopped(u8),
    /// It goes on.
    Continued,
}

/// What it used, with all that it waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// User time, microseconds.
    pub utime_us: u64,
    /// System time, microseconds.
    pub stime_us: u64,
}

/// Whether to wait until something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Until something happens.
    Block,
    /// Not at all.
    No,
}

/// The next change of any child, stops included; `None` = nothing happened (yet).
///
/// # Errors
/// `ECHILD`: there are no children.
pub fn wait_any(wait: Wait) -> Result<Option<(i32, Change, Used)>> {
    const WUNTRACED: u32 = 2;
    const WCONTINUED: u32 = 8;
    let flags = __WALL | WUNTRACED | WCONTINUED | if wait == Wait::No { WNOHANG } else { 0 };
    let mut status = 0_u32;
    let mut used = MaybeUninit::<rusage>::zeroed();
    // SAFETY: an int and a rusage that the kernel may write.
    let pid = unsafe { call(__NR_wait4, [int(-1), write(&mut status), uint(flags), write(&mut used)]) }?;
    if pid == 0 {
        return Ok(None);
    }
    // SAFETY: rusage is plain numbers, zeroed before the call, so that any bytes are a value.
    let used = unsafe { used.assume_init() };
    let us = |s: i64, us: i64| s.unsigned_abs().saturating_mul(1_000_000).saturating_add(us.unsigned_abs());
    let used = Used {
        utime_us: us(used.ru_utime.tv_sec, used.ru_utime.tv_usec),
        stime_us: us(used.ru_stime.tv_sec, used.ru_stime.tv_usec),
    };
    Ok(Some((small(pid), change(status), used)))
}

fn change(status: u32) -> Change {
    let [low, high, ..] = status.to_le_bytes();
    match (low & 0x7f, status) {
        (_, 0xffff) => Change::Continued,
        (0x7f, _) => Change::Stopped(high),
        (0, _) => Change::Exited(high),
        (signal, _) => Change::Killed { signal, core: low & 0x80 != 0 },
    }
}

/// Memory for the stack of a child that shares ours.
#[derive(Debug)]
pub struct Stack(&'static mut [usize]);

impl Stack {
    /// 64 KiB, for good.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new() -> Result<Self> {
        map_words(8192).map(Self)
    }

    fn top(&mut self) -> usize {
        self.0.as_mut_ptr_range().end.expose_provenance() & !15
    }
}

/// Starts a child in our memory on its own stack; we stand still until it has executed a program or ended. `work` runs
/// in the child; what it returns is the child's exit code. Everything that it changed in memory is then ours to see.
///
/// # Errors
/// That of clone(2).
pub fn spawn_in_our_memory(stack: &mut Stack, work: &mut dyn FnMut() -> i32) -> Result<i32> {
    extern "C" fn run(work: *mut &mut dyn FnMut() -> i32) -> ! {
        // SAFETY: the parent passed the address of its `work` and stands still, so that it is alive and only ours.
        let work = unsafe { &mut *work };
        exit(work())
    }
    let mut work = work;
    let flags = CLONE_VM | CLONE_VFORK | SIGCHLD;
    let on = stack.top();
    // SAFETY: the stack is ours alone, 16-byte aligned at its top; with CLONE_VFORK we do not run before the child is
    // done with `work` and the stack; `run` does not return.
    let returned = unsafe { clone_onto(flags, on, run, core::ptr::from_mut(&mut work)) };
    Errno::split(returned).map(small)
}

/// A process of ours that stays outside what we put on ourselves later: it does nothing, and proves by its existence
/// whom we can no longer signal.
#[derive(Debug)]
pub struct Witness {
    pid: i32,
    leave: &'static AtomicU32,
}

impl Witness {
    /// Starts it. It leaves when it is dismissed, or after some seconds.
    ///
    /// # Errors
    /// That of mmap(2) or clone(2).
    pub fn start() -> Result<Self> {
        extern "C" fn stand(leave: *mut AtomicU32) -> ! {
            let timeout: [u64; 2] = [5, 0];
            // SAFETY: a word in a mapping that lives for good, and a timespec; the call ends by wake, time or value.
            let _woken = unsafe { call(__NR_futex, [leave.expose_provenance(), uint(FUTEX_WAIT), 0, read(&timeout)]) };
            exit(0)
        }
        let leave = atomic(map_words(1)?)?;
        let mut stack = Stack::new()?;
        let on = stack.top();
        // SAFETY: a stack that nobody else has (its mapping is never unmapped), aligned; `stand` only reads an atomic
        // word that lives for good.
        let returned = unsafe { clone_onto(CLONE_VM | SIGCHLD, on, stand, core::ptr::from_ref(leave).cast_mut()) };
        Ok(Self { pid: Errno::split(returned).map(small)?, leave })
    }

    /// Its pid.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Lets it go. It ends by itself a little later, on whatever processor is free: [`Witness::reap`] waits for it.
    pub fn dismiss(&self) {
        self.leave.store(1, Ordering::Release);
        // SAFETY: a word in a mapping that lives for good.
        let _woken = unsafe { call(__NR_futex, [read(self.leave), uint(FUTEX_WAKE), 1]) };
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// That of wait4(2).
    pub fn reap(self) -> Result<()> {
        reap(self.pid)
    }
}

fn atomic(words: &'static mut [usize]) -> Result<&'static AtomicU32> {
    let word = words.first_mut().ok_or(Errno::ENOMEM)?;
    // SAFETY: an aligned usize is large and aligned enough for an AtomicU32, and its exclusive borrow ends here for good.
    Ok(unsafe { AtomicU32::from_ptr(core::ptr::from_mut(word).cast()) })
}
