//! clone3 with an own stack: the only place where two processes share one memory.
//!
//! *Kernel facts*: with `CLONE_VM | CLONE_VFORK` the calling thread sleeps until the child executes a program or exits;
//! other threads of the caller go on. Without `CLONE_VFORK` the caller goes on too, and `CLONE_CHILD_CLEARTID` tells when
//! the child has let go of the memory, by an execution or by its end (kernel/fork.c, mm_release). The child has the caller's thread pointer, so it must not touch anything of the C
//! library (errno lives there), nor allocate (another thread may hold the lock for ever).

use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering};
use std::os::fd::{FromRawFd as _, OwnedFd};

use rustix::io::Errno;

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
        // SAFETY: the mapping is ours alone; the child that ran on it has executed a program or is gone
        // (CLONE_VFORK returns no earlier), so nothing uses it any more.
        unsafe { libc::munmap(self.base, STACK + GUARD) };
    }
}

/// Runs `entry(data)` in a new process that shares this memory, and returns when it has executed a program or exited.
/// The pid, and the descriptor when `flags` has `CLONE_PIDFD`.
pub(super) fn clone_vfork<T>(
    flags: u64,
    cgroup: Option<i32>,
    entry: extern "C" fn(*const T) -> !,
    data: &T,
) -> rustix::io::Result<(i32, OwnedFd)> {
    let stack = Stack::map()?;
    let mut pidfd: i32 = -1;
    let args = CloneArgs {
        flags: flags | CLONE_VM | CLONE_VFORK | CLONE_PIDFD | CLONE_CLEAR_SIGHAND,
        pidfd: (&raw mut pidfd).addr() as u64,
        exit_signal: SIGCHLD,
        stack: stack.base.addr().wrapping_add(GUARD) as u64,
        stack_size: STACK as u64,
        cgroup: cgroup.map_or(0, |fd| u64::from(fd.unsigned_abs())),
        ..CloneArgs::default()
    };
    // SAFETY: both are pointers to functions of the same ABI and result that take one thin pointer.
    let entry =
        unsafe { std::mem::transmute::<extern "C" fn(*const T) -> !, extern "C" fn(*const c_void) -> !>(entry) };
    // SAFETY: `args` is a valid clone_args of the given size whose pointers are live for the call; the stack is
    // writable, unused and outlives the child (vfork); `entry` never returns and gets the pointer that it expects.
    let mut pid = unsafe { clone3(&raw const args, size_of::<CloneArgs>(), entry, std::ptr::from_ref(data).cast()) };
    // Container engines forbid clone3, whose flags lie in memory that a filter cannot read: clone(2) does all that has
    // no flag above 32 bits. It keeps our signal handlers until the execution; we install none that return.
    if pid == -(libc::ENOSYS as isize) && cgroup.is_none() && flags & LOW_BYTE == 0 {
        let flags = args.flags & !CLONE_CLEAR_SIGHAND | SIGCHLD;
        let top = args.stack.wrapping_add(args.stack_size);
        // SAFETY: as above; the top of the stack is aligned to a page, and `pidfd` lives until the call returns.
        pid = unsafe { clone(flags, top, &raw mut pidfd, entry, std::ptr::from_ref(data).cast()) };
    }
    drop(stack);
    let pid = i32::try_from(pid).unwrap_or(-libc::EIO);
    if pid < 0 {
        return Err(Errno::from_raw_os_error(pid.saturating_neg()));
    }
    // SAFETY: the call succeeded with CLONE_PIDFD: the kernel stored a fresh descriptor that nobody else owns.
    Ok((pid, unsafe { OwnedFd::from_raw_fd(pidfd) }))
}

/// A child that still runs on our memory. Dropping it waits until that is over.
struct Beside {
    /// Set to 0 by the kernel, with a wake-up, when the child lets go of the memory (`CLONE_CHILD_CLEARTID`).
    shared: AtomicU32,
}

impl Beside {
    fn wait(&self) {
        while self.shared.load(Ordering::Acquire) != 0 {
            // Woken, interrupted or too late to sleep: the word decides.
            match rustix::thread::futex::wait(&self.shared, rustix::thread::futex::Flags::empty(), 1, None) {
                Ok(()) | Err(_) => {}
            }
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.wait();
    }
}

/// As [`clone_vfork`], but `meanwhile` runs in the caller while the child is on its way to its program.
pub(super) fn clone_beside<T, R>(
    flags: u64,
    cgroup: Option<i32>,
    entry: extern "C" fn(*const T) -> !,
    data: &T,
    meanwhile: impl FnOnce(i32) -> R,
) -> rustix::io::Result<(i32, OwnedFd, R)> {
    let stack = Stack::map()?;
    // Declared after the stack, so dropped before it: also when `meanwhile` panics, the child is off the stack first.
    let beside = Beside { shared: AtomicU32::new(0) };
    let mut pidfd: i32 = -1;
    let args = CloneArgs {
        flags: flags | CLONE_VM | CLONE_PIDFD | CLONE_CLEAR_SIGHAND | CLONE_CHILD_CLEARTID,
        pidfd: (&raw mut pidfd).addr() as u64,
        child_tid: std::ptr::from_ref(&beside.shared).addr() as u64,
        exit_signal: SIGCHLD,
        stack: stack.base.addr().wrapping_add(GUARD) as u64,
        stack_size: STACK as u64,
        cgroup: cgroup.map_or(0, |fd| u64::from(fd.unsigned_abs())),
        ..CloneArgs::default()
    };
    beside.shared.store(1, Ordering::Release);
    // SAFETY: both are pointers to functions of the same ABI and result that take one thin pointer.
    let entry =
        unsafe { std::mem::transmute::<extern "C" fn(*const T) -> !, extern "C" fn(*const c_void) -> !>(entry) };
    // SAFETY: `args` is a valid clone_args of the given size whose pointers are live until the child has let go of this
    // memory (`beside` waits for that); the stack is writable, unused and outlives the child likewise; `entry` never
    // returns and gets the pointer that it expects, to data that the caller lends until then.
    let pid = unsafe { clone3(&raw const args, size_of::<CloneArgs>(), entry, std::ptr::from_ref(data).cast()) };
    let pid = i32::try_from(pid).unwrap_or(-libc::EIO);
    if pid < 0 {
        // There is no child that would ever set it.
        beside.shared.store(0, Ordering::Release);
        return Err(Errno::from_raw_os_error(pid.saturating_neg()));
    }
    // SAFETY: clone3 succeeded with CLONE_PIDFD: the kernel stored a fresh descriptor that nobody else owns.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    let result = meanwhile(pid);
    // In place: moving it would leave the kernel with the address of a word that nobody looks at.
    beside.wait();
    Ok((pid, pidfd, result))
}

// linux/sched.h; the C library's constants are signed.
const CLONE_VM: u64 = 0x100;
const CLONE_PIDFD: u64 = 0x1000;
const CLONE_VFORK: u64 = 0x4000;
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

/// The call itself. In the child the stack pointer is the top of the new stack and the registers are the caller's.
///
/// # Safety
/// `args` must be valid for `size` bytes with a stack of its own and CLONE_VM; `entry` must accept `data`.
#[unsafe(naked)]
unsafe extern "C" fn clone3(
    args: *const CloneArgs,
    size: usize,
    entry: extern "C" fn(*const c_void) -> !,
    data: *const c_void,
) -> isize {
    // r8 and r9 survive `syscall` (only rax, rcx, r11 change) and are free for a callee to use. The parent goes on
    // with its own stack and returns. The child must not return: its stack is empty, so it calls and never comes back.
    core::arch::naked_asm!(
        "mov r8, rdx",
        "mov r9, rcx",
        "mov eax, 435",
        "syscall",
        "test rax, rax",
        "jnz 2f",
        "xor ebp, ebp",
        "mov rdi, r9",
        "call r8",
        "ud2",
        "2:",
        "ret",
    )
}

/// The older call, for where clone3 is not to be had. The same rules hold.
///
/// # Safety
/// `stack` must be the top of a stack of its own, and `flags` have CLONE_VM; `pidfd` must be valid for writes; `entry` must
/// accept `data`.
#[unsafe(naked)]
unsafe extern "C" fn clone(
    flags: u64,
    stack: u64,
    pidfd: *mut i32,
    entry: extern "C" fn(*const c_void) -> !,
    data: *const c_void,
) -> isize {
    // The first three are where the kernel takes them; r8 would be a thread pointer, which no flag asks for. rcx does not
    // survive `syscall`, r8 and r9 do.
    core::arch::naked_asm!(
        "mov r9, rcx",
        "xor r10d, r10d",
        "mov eax, 56",
        "syscall",
        "test rax, rax",
        "jnz 2f",
        "xor ebp, ebp",
        "mov rdi, r8",
        "call r9",
        "ud2",
        "2:",
        "ret",
    )
}
