//! Processes by descriptor: no number that could be reused by another process.

use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::error::{ErrorContext as _, Result};

/// Opens a descriptor of process `pid`, close-on-exec.
///
/// # Errors
/// ESRCH: no such process. EINVAL: `pid` is not positive.
pub fn open(pid: i32) -> Result<OwnedFd> {
    let object = || format!("pid {pid}");
    let number = Pid::from_raw(pid).ok_or(Errno::INVAL).named("pidfd_open", object)?;
    rustix::process::pidfd_open(number, PidfdFlags::empty()).named("pidfd_open", object)
}

/// Sends `signal` to exactly the process that `pidfd` names.
///
/// # Errors
/// ESRCH: it is gone. EPERM. EINVAL: no such signal.
pub fn send_signal(pidfd: impl AsFd, signal: i32) -> Result<()> {
    let object = || format!("pidfd, signal {signal}");
    let signal = Signal::from_named_raw(signal).ok_or(Errno::INVAL).named("pidfd_send_signal", object)?;
    rustix::process::pidfd_send_signal(pidfd, signal).named("pidfd_send_signal", object)
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It called exit.
    Exited(i32),
    /// A signal ended it.
    Signalled {
        /// Signal number.
        signal: i32,
        /// Whether a core was written.
        core: bool,
    },
}

/// What a child and its waited-for children used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Time in user mode, microseconds.
    pub user_us: u64,
    /// Time in the kernel, microseconds.
    pub system_us: u64,
    /// Largest resident set of one process of it, KiB.
    pub max_resident_kib: u64,
}

/// Waits until the child that `pidfd` names has ended, and reaps it.
///
/// # Errors
/// ECHILD: it is not a child of this process, or somebody else reaped it.
pub fn wait(pidfd: impl AsFd) -> Result<(End, Used)> {
    loop {
        match wait_id(&pidfd, libc::WEXITED) {
            Ok(Some(ended)) => return Ok(ended),
            Ok(None) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno).named("waitid", || "pidfd".into()),
        }
    }
}

/// Reaps the child that `pidfd` names if it has ended; `None` while it runs.
///
/// # Errors
/// As [`wait`].
pub fn try_wait(pidfd: impl AsFd) -> Result<Option<(End, Used)>> {
    wait_id(&pidfd, libc::WEXITED | libc::WNOHANG).named("waitid", || "pidfd".into())
}

fn wait_id(pidfd: &impl AsFd, options: i32) -> rustix::io::Result<Option<(End, Used)>> {
    // SAFETY: `siginfo_t` is plain data for which all zero bytes are a value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: `rusage` is plain data for which all zero bytes are a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // The C library's waitid has no room for the usage, the kernel's has (fifth argument, kernel/exit.c).
    // SAFETY: both pointers are to live, writable values of the types that waitid(2) fills; the descriptor is open.
    let result = unsafe {
        libc::syscall(
            libc::SYS_waitid,
            libc::P_PIDFD,
            pidfd.as_fd().as_raw_fd(),
            &raw mut info,
            options,
            &raw mut usage,
        )
    };
    if result < 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    // SAFETY: waitid succeeded, so the fields of SIGCHLD are set, or all zero when nothing had ended.
    if unsafe { info.si_pid() } == 0 {
        return Ok(None);
    }
    // SAFETY: si_pid is not zero, so a child ended and SIGCHLD's fields (si_status among them) are set.
    let status = unsafe { info.si_status() };
    let end = match info.si_code {
        libc::CLD_EXITED => End::Exited(status),
        code => End::Signalled { signal: status, core: code == libc::CLD_DUMPED },
    };
    Ok(Some((end, Used::of(&usage))))
}

impl Used {
    pub(crate) fn of(usage: &libc::rusage) -> Self {
        Self {
            user_us: micros(usage.ru_utime),
            system_us: micros(usage.ru_stime),
            max_resident_kib: u64::try_from(usage.ru_maxrss).unwrap_or(0),
        }
    }
}

fn micros(time: libc::timeval) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000).saturating_add(u64::try_from(time.tv_usec).unwrap_or(0))
}
