//! clone3 with an own stack: the only place where two processes share one memory.
//!
//! *Kernel facts*: with `CLONE_VM` and without `CLONE_VFORK` the caller goes on, and `CLONE_CHILD_CLEARTID` tells when the
//! child has let go of the memory, by an execution or by its end (kernel/fork.c, mm_release). The child has the thread
//! pointer of whoever made it, so it must not touch anything of the C library (errno lives there), nor allocate (another
//! thread may hold the lock for ever).

use core::ffi::c_void;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU32, Ordering};
use std::os::fd::{FromRawFd as _, OwnedFd};

use rustix::io::Errno;

use super::keeper::{self, Parent};
use crate::arch::{clone, clone3};

/// `struct clone_args` of linux/sched.h, size 88 (with `cgroup`, Linux 5.7).
#[repr(C)]
#[derive(Default)]
pub(super) struct CloneArgs {
    pub(super) flags: u64,
    pub(super) pidfd: u64,
    pub(super) child_tid: u64,
    pub(super) parent_tid: u64,
    pub(super) exit_signal: u64,
    pub(super) stack: u64,
    pub(super) stack_size: u64,
    pub(super) tls: u64,
    pub(super) set_tid: u64,
    pub(super) set_tid_size: u64,
    pub(super) cgroup: u64,
}

const STACK: usize = 256 * 1024;
const GUARD: usize = 4096;

/// The child's stack, with a page below it that faults.
struct Stack {
    base: *mut c_void,
}

impl Stack {
    fn map() -> rustix::io::Result<Self> {
        // SAFETY: a fresh private anonymous mapping at an address of the kernel's choice aliases nothing.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                STACK + GUARD,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(last_errno());
        }
        let stack = Self { base };
        // SAFETY: the page lies inside the mapping just made, and nothing refers to it.
        if unsafe { libc::mprotect(base, GUARD, libc::PROT_NONE) } != 0 {
            return Err(last_errno());
        }
        Ok(stack)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours alone; no child ran on it, or the one that did has executed a program or is gone
        // (`Sharing` holds it until then), so nothing uses it any more.
        unsafe { libc::munmap(self.base, STACK + GUARD) };
    }
}

/// The call that makes a process, ready to be made by any thread of this one.
pub(super) struct Order {
    args: *const CloneArgs,
    entry: extern "C" fn(*const c_void) -> !,
    data: *const c_void,
}

// SAFETY: all that it points to is memory of this process, which every thread may use; who hands one over waits until it
// was carried out, and changes nothing of that meanwhile (`keeper::carry_out`).
unsafe impl Send for Order {}

impl Order {
    /// Makes the process: its number, or a negative errno.
    ///
    /// # Safety
    /// `args` is a valid clone_args with a stack of its own, `CLONE_VM` and `CLONE_CHILD_CLEARTID` or `CLONE_VFORK`; it and the number
    /// at `pidfd` are live until this returns; the stack, `data`, to which `entry` fits, and the word at `child_tid` are live until that
    /// word is 0, or until this returns where the caller sleeps (`CLONE_VFORK`).
    pub(super) unsafe fn carry_out(&self) -> isize {
        // SAFETY: the caller promises that it can be read.
        let args = unsafe { &*self.args };
        // SAFETY: the caller promises all that the call asks for.
        let pid = unsafe { clone3(self.args.cast(), size_of::<CloneArgs>(), self.entry, self.data) };
        // Container engines forbid clone3, whose flags lie in memory that a filter cannot read: clone(2) does all that has
        // no flag above 32 bits. It keeps our signal handlers until the execution; we install none that return.
        if pid != -(libc::ENOSYS as isize) || args.flags & (CLONE_INTO_CGROUP | LOW_BYTE) != 0 {
            return pid;
        }
        let flags = args.flags & !CLONE_CLEAR_SIGHAND | SIGCHLD;
        let top = args.stack.wrapping_add(args.stack_size);
        // SAFETY: as above; the top of the stack is aligned to a page.
        unsafe { clone(flags, top, args.pidfd, args.child_tid, self.entry, self.data) }
    }
}

/// A child still runs on our memory. Dropping this waits until that is over: it has executed a program or exited.
#[must_use = "it waits when it is dropped"]
pub(super) struct Sharing<'a> {
    /// Set to 0 by the kernel, with a wake-up, when the child lets go of the memory (`CLONE_CHILD_CLEARTID`).
    shared: Box<AtomicU32>,
    _stack: Stack,
    _data: PhantomData<&'a ()>,
}

impl Drop for Sharing<'_> {
    fn drop(&mut self) {
        while self.shared.load(Ordering::Acquire) != 0 {
            // Woken, interrupted or too late to sleep: the word decides.
            match rustix::thread::futex::wait(&self.shared, rustix::thread::futex::Flags::empty(), 1, None) {
                Ok(()) | Err(_) => {}
            }
        }
    }
}

/// Runs `entry(data)` in a new process that shares this memory for a while. With `CLONE_VFORK` among `flags` the calling thread sleeps
/// meanwhile, and there is no pidfd: what every kernel has that calls itself Linux, gVisor's too, which tells nobody by
/// `CLONE_CHILD_CLEARTID` of an execution.
pub(super) fn start<T>(
    parent: Parent,
    flags: u64,
    cgroup: Option<i32>,
    entry: extern "C" fn(*const T) -> !,
    data: &T,
) -> rustix::io::Result<(i32, Option<OwnedFd>, Sharing<'_>)> {
    let stack = Stack::map()?;
    let sleeps = flags & CLONE_VFORK != 0;
    let shared = Box::new(AtomicU32::new(u32::from(!sleeps)));
    let mut pidfd: i32 = -1;
    let held = if sleeps { 0 } else { CLONE_PIDFD | CLONE_CHILD_CLEARTID };
    let args = CloneArgs {
        flags: flags | CLONE_VM | CLONE_CLEAR_SIGHAND | held,
        pidfd: (&raw mut pidfd).expose_provenance() as u64,
        child_tid: shared.as_ptr().expose_provenance() as u64,
        exit_signal: SIGCHLD,
        stack: stack.base.expose_provenance().wrapping_add(GUARD) as u64,
        stack_size: STACK as u64,
        cgroup: cgroup.map_or(0, |fd| u64::from(fd.unsigned_abs())),
        ..CloneArgs::default()
    };
    // SAFETY: both are pointers to functions of the same ABI and result that take one thin pointer.
    let entry =
        unsafe { std::mem::transmute::<extern "C" fn(*const T) -> !, extern "C" fn(*const c_void) -> !>(entry) };
    let order = Order { args: &raw const args, entry, data: std::ptr::from_ref(data).cast() };
    let number = match parent {
        // SAFETY: `args` and `pidfd` live in this function; the stack, the word and the borrow of `data` go into `Sharing`,
        // which ends only when the word is 0, or the call returns when all that is over; `entry` gets the pointer that it expects.
        Parent::Caller => unsafe { order.carry_out() },
        // SAFETY: as above; it returns when the call was made.
        Parent::Keeper => unsafe { keeper::carry_out(order) }?,
    };
    let pid = i32::try_from(number).unwrap_or(-libc::EIO);
    if pid < 0 {
        return Err(Errno::from_raw_os_error(pid.saturating_neg()));
    }
    let sharing = Sharing { shared, _stack: stack, _data: PhantomData };
    if sleeps {
        return Ok((pid, None, sharing));
    }
    if pidfd < 0 {
        // A kernel that passes over the flag, as gVisor's: nobody could hold this child.
        // SAFETY: the call takes no pointers; the child is ours and nobody has waited for it, so the number is its own.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        let _gone = crate::reap::wait(pid);
        sharing.shared.store(0, Ordering::Release);
        return Err(Errno::NOSYS);
    }
    // SAFETY: the call succeeded with CLONE_PIDFD: the kernel stored a fresh descriptor that nobody else owns.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok((pid, Some(pidfd), sharing))
}

// linux/sched.h; the C library's constants are signed.
const CLONE_VM: u64 = 0x100;
const CLONE_PIDFD: u64 = 0x1000;
/// The caller sleeps until the child has let go of the memory.
pub(super) const CLONE_VFORK: u64 = 0x4000;
const CLONE_CHILD_CLEARTID: u64 = 0x0020_0000;
const SIGCHLD: u64 = 17;
/// Where clone(2) takes the signal: CLONE_NEWTIME has no place there.
const LOW_BYTE: u64 = 0xff;
const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;
/// Enter the v2 group of `clone_args.cgroup`.
pub(super) const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
