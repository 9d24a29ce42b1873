//! Signals as something to wait for (signalfd(2)), instead of handlers.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use rustix::io::Errno;

use crate::error::{Error, Result};

/// SIGWINCH: the terminal has another size.
pub const WINDOW_CHANGED: i32 = libc::SIGWINCH;

/// What a supervisor passes on.
pub const FORWARDED: [i32; 5] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGWINCH];

/// Signals that are blocked in this thread and arrive here instead. Dropping it restores the mask.
#[derive(Debug)]
pub struct Signals {
    fd: OwnedFd,
    before: Mask,
}

struct Mask(libc::sigset_t);

impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mask")
    }
}

impl Signals {
    /// Blocks `numbers` in the calling thread and opens a descriptor that delivers them. Call it before other threads
    /// are made: they inherit the mask.
    ///
    /// # Errors
    /// EMFILE; EINVAL: no such signal.
    pub fn take(numbers: &[i32]) -> Result<Self> {
        // SAFETY: `sigset_t` is plain data for which all zero bytes are a value.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: `sigset_t` is plain data for which all zero bytes are a value; the mask in force is written over it.
        let mut before: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: `set` is valid for writing.
        unsafe { libc::sigemptyset(&raw mut set) };
        for number in numbers {
            // SAFETY: `set` is an initialised set.
            if unsafe { libc::sigaddset(&raw mut set, *number) } != 0 {
                return Err(Error::new("sigaddset", format!("signal {number}"), Errno::INVAL));
            }
        }
        // SAFETY: `set` is valid for reading; with -1 a new descriptor is made and nothing else is touched.
        let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
            return Err(Error::new("signalfd", "forwarded signals", Errno::from_raw_os_error(errno)));
        }
        // SAFETY: the kernel just made this descriptor and nobody else knows it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: both sets are valid; only the calling thread's mask changes.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before) };
        Ok(Self { fd, before: Mask(before) })
    }

    /// The next signal that has arrived, without waiting.
    #[must_use]
    pub fn next(&self) -> Option<i32> {
        let mut info = [0_u8; size_of::<libc::signalfd_siginfo>()];
        let count = rustix::io::read(&self.fd, &mut info).ok()?;
        if count < info.len() {
            return None;
        }
        // `ssi_signo` is the first field (signalfd(2)).
        let number = info.first_chunk::<4>().map(|bytes| u32::from_ne_bytes(*bytes))?;
        i32::try_from(number).ok()
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        debug_assert!(self.fd.as_raw_fd() >= 0);
        // SAFETY: the set is the one that this thread had before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before.0, std::ptr::null_mut()) };
    }
}

/// A write past the caller's limit of file sizes answers EFBIG instead of ending the process without a word.
pub fn ignore_file_size() {
    // SAFETY: SIG_IGN is a valid disposition, and no handler of ours is replaced.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Writes to a closed pipe answer EPIPE instead of ending the process.
pub fn ignore_broken_pipes() {
    // SAFETY: SIG_IGN is a valid disposition, and no handler of ours is replaced.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}
