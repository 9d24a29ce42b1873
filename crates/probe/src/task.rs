//! Processes: forks without exec, namespaces, identity, tracing, signals.

use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::io::Errno;

use super::{call, checked, last_errno};

/// Which of two processes we are after a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forked {
    /// The child.
    Child,
    /// The parent, with the number of the child.
    Parent(i32),
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By itself, with this code.
    Code(u8),
    /// By this signal.
    Signal(i32),
}

/// fork(2). For programs of one thread: in another one the child may call only what is async-signal-safe.
///
/// # Errors
/// EAGAIN: a limit. EPERM, ENOSYS: a filter.
pub fn fork() -> rustix::io::Result<Forked> {
    // SAFETY: the caller is a program of one thread (documented), so the child finds no lock held by a thread it lacks.
    let pid = checked(unsafe { libc::fork() })?;
    Ok(if pid == 0 { Forked::Child } else { Forked::Parent(pid) })
}

/// Ends this process at once, without destructors: for children that share their parent's buffers.
pub fn leave(code: u8) -> ! {
    // SAFETY: _exit has no requirement; it never returns.
    unsafe { libc::_exit(i32::from(code)) }
}

/// Runs `work` in a child and waits for it.
///
/// # Errors
/// As [`fork`].
pub fn in_child(work: impl FnOnce() -> u8) -> rustix::io::Result<Ended> {
    match fork()? {
        Forked::Child => leave(work()),
        Forked::Parent(pid) => wait(pid),
    }
}

/// Waits for one child.
///
/// # Errors
/// ECHILD: not ours.
pub fn wait(pid: i32) -> rustix::io::Result<Ended> {
    let mut status = 0;
    // SAFETY: the pointer is to a live integer.
    while let Err(errno) = checked(unsafe { libc::waitpid(pid, &raw mut status, 0) }) {
        if errno != Errno::INTR {
            return Err(errno);
        }
    }
    if libc::WIFEXITED(status) {
        return Ok(Ended::Code(u8::try_from(libc::WEXITSTATUS(status)).unwrap_or(255)));
    }
    Ok(Ended::Signal(libc::WTERMSIG(status)))
}

/// clone3(2) with these flags; the child, were it made, ends at once.
///
/// # Errors
/// What the kernel or a filter says.
pub fn clone3(flags: u64) -> rustix::io::Result<()> {
    let sigchld = u64::try_from(libc::SIGCHLD).unwrap_or(17);
    let mut args: [u64; 11] = [flags, 0, 0, 0, sigchld, 0, 0, 0, 0, 0, 0];
    let made = call(libc::SYS_clone3, [args.as_mut_ptr().expose_provenance(), 88, 0, 0, 0, 0])?;
    reap_or_leave(made)
}

/// clone(2) with these flags; the child, were it made, ends at once.
///
/// # Errors
/// What the kernel or a filter says.
pub fn clone(flags: u64) -> rustix::io::Result<()> {
    let flags = usize::try_from(flags).map_err(|_wide| Errno::INVAL)? | 17;
    let made = call(libc::SYS_clone, [flags, 0, 0, 0, 0, 0])?;
    reap_or_leave(made)
}

fn reap_or_leave(made: usize) -> rustix::io::Result<()> {
    let pid = i32::try_from(made).map_err(|_wide| Errno::OVERFLOW)?;
    if pid == 0 {
        leave(0);
    }
    wait(pid).map(|_| ())
}

/// unshare(2).
///
/// # Errors
/// What the kernel or a filter says.
pub fn unshare(flags: i32) -> rustix::io::Result<()> {
    // SAFETY: for programs of one thread; CLONE_FILES and CLONE_FS only make private what was shared.
    checked(unsafe { libc::unshare(flags) }).map(|_| ())
}

/// Becomes uid and gid `id` for good, without supplementary groups.
///
/// # Errors
/// EPERM: not privileged.
pub fn become_id(id: u32) -> rustix::io::Result<()> {
    // SAFETY: a count of zero reads no memory.
    checked(unsafe { libc::setgroups(0, std::ptr::null()) })?;
    // SAFETY: the call takes numbers alone; the kernel touches no memory of ours.
    checked(unsafe { libc::setresgid(id, id, id) })?;
    // SAFETY: the call takes numbers alone; the kernel touches no memory of ours.
    checked(unsafe { libc::setresuid(id, id, id) }).map(|_| ())
}

/// setns(2) to a namespace of `kind` of the process behind `pidfd`, in a child.
///
/// # Errors
/// EPERM: not privileged in it.
pub fn join(pidfd: impl AsFd, kind: i32) -> rustix::io::Result<()> {
    let fd = pidfd.as_fd().as_raw_fd();
    // SAFETY: setns changes the namespaces of the child alone; numbers only.
    of_child(|| checked(unsafe { libc::setns(fd, kind) }).map(|_| ()))
}

/// Does `work` in a child and brings its errno home.
///
/// # Errors
/// What `work` or [`fork`] says; EINTR if a signal ended the child.
pub fn of_child(work: impl FnOnce() -> rustix::io::Result<()>) -> rustix::io::Result<()> {
    let ended = in_child(|| match work() {
        Ok(()) => 0,
        Err(errno) => u8::try_from(errno.raw_os_error()).unwrap_or(255),
    })?;
    match ended {
        Ended::Code(0) => Ok(()),
        Ended::Code(code) => Err(Errno::from_raw_os_error(i32::from(code))),
        Ended::Signal(_) => Err(Errno::INTR),
    }
}

/// Replaces this program by the one behind `program`, with exactly these arguments and this environment.
///
/// # Errors
/// What execveat(2) says; it does not return otherwise. EINVAL: a text has a zero byte.
pub fn exec(program: impl AsFd, argv: &[&OsStr], env: &[&OsStr]) -> Errno {
    let texts = |list: &[&OsStr]| list.iter().map(|t| CString::new(t.as_bytes())).collect::<Result<Vec<_>, _>>();
    let (Ok(argv), Ok(env)) = (texts(argv), texts(env)) else { return Errno::INVAL };
    let pointers = |list: &[CString]| -> Vec<*const libc::c_char> {
        list.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (argv, env) = (pointers(&argv), pointers(&env));
    let fd = program.as_fd().as_raw_fd();
    // SAFETY: path, arguments and environment are zero-ended and outlive the call, whose lists end with null.
    let result = unsafe {
        libc::syscall(libc::SYS_execveat, fd, c"".as_ptr(), argv.as_ptr(), env.as_ptr(), libc::AT_EMPTY_PATH)
    };
    if result < 0 { last_errno() } else { Errno::IO }
}

/// Attaches to a process as its tracer, and lets it go again at once.
///
/// # Errors
/// ESRCH, EPERM.
pub fn trace(pid: i32) -> rustix::io::Result<()> {
    let number = usize::try_from(pid).map_err(|_negative| Errno::INVAL)?;
    // PTRACE_SEIZE: unlike ATTACH it stops nothing.
    call(libc::SYS_ptrace, [0x4206, number, 0, 0, 0, 0])?;
    call(libc::SYS_ptrace, [0x11, number, 0, 0, 0, 0]).map(|_| ()).or(Ok(()))
}

/// A descriptor that this program was started with: for programs that look at what came along, before they open anything.
#[must_use]
pub fn inherited(number: RawFd) -> Option<BorrowedFd<'static>> {
    // SAFETY: F_GETFD takes no argument and only asks.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    // SAFETY: the descriptor is open, and a program that calls this closes none of those it was started with.
    (flags >= 0).then(|| unsafe { BorrowedFd::borrow_raw(number) })
}

/// truncate(2) to nothing, by path.
///
/// # Errors
/// EACCES, EROFS, ENOENT. EINVAL: the text has a zero byte.
pub fn truncate(path: &OsStr) -> rustix::io::Result<()> {
    let path = CString::new(path.as_bytes()).map_err(|_zero_byte| Errno::INVAL)?;
    // SAFETY: the path is zero-ended and outlives the call.
    checked(unsafe { libc::truncate(path.as_ptr(), 0) }).map(|_| ())
}

/// Sends signal 0, which only asks whether one might.
///
/// # Errors
/// ESRCH: not seen. EPERM: not allowed.
pub fn may_signal(pid: i32) -> rustix::io::Result<()> {
    // SAFETY: signal 0 is delivered to nobody.
    checked(unsafe { libc::kill(pid, 0) }).map(|_| ())
}

/// Takes a copy of descriptor `fd` of the process behind `pidfd`.
///
/// # Errors
/// EPERM: not allowed. EBADF: it has none.
pub fn take_descriptor(pidfd: impl AsFd, fd: RawFd) -> rustix::io::Result<OwnedFd> {
    let from = usize::try_from(pidfd.as_fd().as_raw_fd()).map_err(|_negative| Errno::BADF)?;
    let number = usize::try_from(fd).map_err(|_negative| Errno::BADF)?;
    let taken = call(libc::SYS_pidfd_getfd, [from, number, 0, 0, 0, 0])?;
    let taken = RawFd::try_from(taken).map_err(|_wide| Errno::BADF)?;
    // SAFETY: the kernel just made this descriptor for us; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(taken) })
}

/// Reads memory of another process.
///
/// # Errors
/// EPERM, ESRCH, EFAULT (the address is not mapped there, so reading would have been allowed).
pub fn read_memory(pid: i32, address: usize, into: &mut [u8]) -> rustix::io::Result<usize> {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote = libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: into.len() };
    // SAFETY: the local vector describes `into`, which is borrowed for the call; the remote one is another process' memory.
    let read = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(read).map_err(|_negative| last_errno())
}

/// Asks to run on every core, and answers how many this process may run on then.
///
/// # Errors
/// EPERM, EINVAL: not allowed.
pub fn set_affinity_all() -> rustix::io::Result<usize> {
    let mask = [u64::MAX; 16];
    call(libc::SYS_sched_setaffinity, [0, 128, mask.as_ptr().expose_provenance(), 0, 0, 0])?;
    let mut now = [0_u64; 16];
    let bytes = call(libc::SYS_sched_getaffinity, [0, 128, now.as_mut_ptr().expose_provenance(), 0, 0, 0])?;
    let cores: u32 = now.iter().take(bytes / 8).map(|word| word.count_ones()).sum();
    usize::try_from(cores).map_err(|_wide| Errno::OVERFLOW)
}

/// Sets a resource limit of this process, soft and hard.
///
/// # Errors
/// EPERM: above the hard limit.
pub fn set_limit(resource: u32, value: u64) -> rustix::io::Result<()> {
    let limit = libc::rlimit64 { rlim_cur: value, rlim_max: value };
    // SAFETY: the pointer is to a live, initialised structure.
    let result = unsafe { libc::prlimit64(0, resource, &raw const limit, std::ptr::null_mut()) };
    checked(result).map(|_| ())
}

/// The limit of this process: soft and hard.
///
/// # Errors
/// EINVAL: no such resource.
pub fn limit(resource: u32) -> rustix::io::Result<(u64, u64)> {
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a live structure that the call fills.
    let result = unsafe { libc::prlimit64(0, resource, std::ptr::null(), &raw mut limit) };
    checked(result).map(|_| (limit.rlim_cur, limit.rlim_max))
}

/// Sets the limit of another process to what it is already: changes nothing, asks whether one might.
///
/// # Errors
/// EPERM, ESRCH.
pub fn may_limit(pid: i32) -> rustix::io::Result<()> {
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a live structure that the call fills.
    checked(unsafe { libc::prlimit64(pid, libc::RLIMIT_CORE, std::ptr::null(), &raw mut limit) })?;
    // SAFETY: the pointer is to a live, initialised structure.
    checked(unsafe { libc::prlimit64(pid, libc::RLIMIT_CORE, &raw const limit, std::ptr::null_mut()) }).map(|_| ())
}

/// Makes this mount namespace private and shows the processes of this pid namespace at `/proc`: for process 1 of new ones.
///
/// # Errors
/// EPERM: the namespace is not ours, or a parent's `/proc` is partly covered.
pub fn own_proc() -> rustix::io::Result<()> {
    use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    mount("proc", "/proc", "proc", MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC, None::<&std::ffi::CStr>)
}

/// A mount namespace of its own, with an empty file system in memory at `path`.
///
/// # Errors
/// EPERM: not privileged.
pub fn own_mount_at(path: &OsStr) -> rustix::io::Result<()> {
    use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
    unshare(libc::CLONE_NEWNS)?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    mount("tmpfs", path, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, Some(c"size=64k,mode=755"))
}

/// A mount namespace of its own, in which a file stands in the place of another one.
///
/// # Errors
/// EPERM: not privileged; ENOENT: one of them is not there.
pub fn own_file_at(file: &OsStr, at: &str) -> rustix::io::Result<()> {
    use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
    unshare(libc::CLONE_NEWNS)?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    mount_bind(file, at)
}

/// Mounts the working directory on itself, in the mount namespace of this process.
///
/// # Errors
/// EPERM: the namespace is not ours.
pub fn bind_here() -> rustix::io::Result<()> {
    rustix::mount::mount_bind(".", ".")
}

/// Joins these groups beside its own.
///
/// # Errors
/// EPERM: not privileged.
pub fn join_groups(groups: &[u32]) -> rustix::io::Result<()> {
    // SAFETY: pointer and count describe a live slice of gid_t.
    checked(unsafe { libc::setgroups(groups.len(), groups.as_ptr()) }).map(|_| ())
}

/// A session of its own, whose terminal is standard input.
///
/// # Errors
/// EPERM: a session leader already. ENOTTY: no terminal.
pub fn own_terminal() -> rustix::io::Result<()> {
    // SAFETY: setsid takes nothing and touches no memory of ours.
    checked(unsafe { libc::setsid() })?;
    // SAFETY: TIOCSCTTY takes a number.
    checked(unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) }).map(|_| ())
}

/// Ignores every signal that can be ignored.
pub fn ignore_signals() {
    for signal in 1..=64 {
        // SAFETY: SIG_IGN runs no code; the C library refuses the numbers it keeps for itself.
        let _before = unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Stops this process until somebody continues it.
pub fn stop() {
    // SAFETY: raising a signal has no requirement.
    let _result = unsafe { libc::raise(libc::SIGSTOP) };
}

/// Types one byte into a terminal, as if somebody had pressed a key. `high` sets bits of the request that the kernel ignores.
///
/// # Errors
/// EPERM, EIO: not allowed. ENOTTY: no terminal.
pub fn type_into_terminal(fd: impl AsFd, byte: u8, high: u64) -> rustix::io::Result<()> {
    let request = 0x5412_u64 | (high << 32);
    let number = usize::try_from(fd.as_fd().as_raw_fd()).map_err(|_negative| Errno::BADF)?;
    let request = usize::try_from(request).map_err(|_wide| Errno::INVAL)?;
    call(libc::SYS_ioctl, [number, request, (&raw const byte).expose_provenance(), 0, 0, 0]).map(|_| ())
}

/// Asks the console driver for its selection (TIOCLINUX, sub-code 6: shift state, reads one byte).
///
/// # Errors
/// ENOTTY: no console. EPERM: not allowed.
pub fn ask_console(fd: impl AsFd) -> rustix::io::Result<()> {
    let mut code = 6_u8;
    let number = usize::try_from(fd.as_fd().as_raw_fd()).map_err(|_negative| Errno::BADF)?;
    call(libc::SYS_ioctl, [number, 0x541c, (&raw mut code).expose_provenance(), 0, 0, 0]).map(|_| ())
}
