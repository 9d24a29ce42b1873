//! Signals as something to wait for (signalfd(2)), instead of handlers.

use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd as _, OwnedFd};

use rustix::io::Errno;

use crate::error::{Error, Result};

/// SIGWINCH: the terminal has another size.
pub const WINDOW_CHANGED: i32 = libc::SIGWINCH;

const FORWARDED: [i32; 5] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGWINCH];

/// What a supervisor passes on; no SIGHUP where it was begun to ignore that (`nohup`), for whoever did so means what is passed on, too.
#[must_use]
pub fn forwarded() -> Vec<i32> {
    FORWARDED.into_iter().filter(|number| *number != libc::SIGHUP || !is_ignored(*number)).collect()
}

fn is_ignored(number: i32) -> bool {
    // SAFETY: `sigaction` is plain data for which all zero bytes are a value.
    let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: `now` is valid for writing; without a new disposition nothing is changed.
    unsafe { libc::sigaction(number, std::ptr::null(), &raw mut now) == 0 && now.sa_sigaction == libc::SIG_IGN }
}

/// What would stop a supervisor, from its terminal: Ctrl-Z, and a read or write of one in the background. Who is stopped holds no limit.
pub const STOPPING: [i32; 3] = [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

/// Signals that are blocked in this thread and arrive here instead. Dropping it restores the mask.
#[derive(Debug)]
pub struct Signals {
    fd: OwnedFd,
    _held: BlockedSignals,
}

/// Signals that are blocked in this thread. Dropping it restores the mask.
#[derive(Debug)]
pub struct BlockedSignals {
    before: Mask,
    /// A mask is a thread's own: this stays with the thread that it is about.
    _here: PhantomData<*const ()>,
}

struct Mask(libc::sigset_t);

impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mask")
    }
}

impl Mask {
    fn of(numbers: &[i32]) -> Result<Self> {
        // SAFETY: `sigset_t` is plain data for which all zero bytes are a value.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: `set` is valid for writing.
        unsafe { libc::sigemptyset(&raw mut set) };
        for number in numbers {
            // SAFETY: `set` is an initialised set.
            if unsafe { libc::sigaddset(&raw mut set, *number) } != 0 {
                return Err(Error::new("sigaddset", format!("signal {number}"), Errno::INVAL));
            }
        }
        Ok(Self(set))
    }
}

impl BlockedSignals {
    /// Puts off what a person or the system ends a program by (Ctrl-C, Ctrl-\\, a closed terminal, SIGTERM) until what must not be
    /// left half done is. Of a program with more threads it says nothing: another one takes the signal.
    #[must_use]
    pub fn ending() -> Option<Self> {
        Mask::of(&[libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGTERM]).ok().map(|set| Self::of(&set))
    }

    fn of(set: &Mask) -> Self {
        // SAFETY: `sigset_t` is plain data for which all zero bytes are a value; the mask in force is written over it.
        let mut before: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: both sets are valid; only the calling thread's mask changes.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set.0, &raw mut before) };
        Self { before: Mask(before), _here: PhantomData }
    }
}

impl Signals {
    /// Blocks `numbers` in the calling thread and opens a descriptor that delivers them. Call it before other threads
    /// are made: they inherit the mask.
    ///
    /// # Errors
    /// EMFILE; EINVAL: no such signal.
    pub fn take(numbers: &[i32]) -> Result<Self> {
        let set = Mask::of(numbers)?;
        // SAFETY: the set is valid for reading; with -1 a new descriptor is made and nothing else is touched.
        let fd = unsafe { libc::signalfd(-1, &raw const set.0, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
            return Err(Error::new("signalfd", "forwarded signals", Errno::from_raw_os_error(errno)));
        }
        // SAFETY: the kernel just made this descriptor and nobody else knows it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, _held: BlockedSignals::of(&set) })
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

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the set is the one that this thread had before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before.0, std::ptr::null_mut()) };
    }
}

/// Blocks every signal in the calling thread, for good: one that does its work for others, who get the signals. But not SIGCHLD:
/// the kernel drops one that nobody handles when it is sent, unless the thread that made the child blocks it; then it wakes
/// another thread, whose call ends with EINTR.
pub fn block_all() {
    // SAFETY: `sigset_t` is plain data for which all zero bytes are a value.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `all` is valid for writing.
    unsafe { libc::sigfillset(&raw mut all) };
    // SAFETY: `all` is valid for writing.
    unsafe { libc::sigdelset(&raw mut all, libc::SIGCHLD) };
    // SAFETY: the set is valid; only the calling thread's mask changes.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut()) };
}

/// Whether somebody asked this process to end (SIGTERM, SIGINT) by a signal that is blocked in this thread and was not taken yet: for
/// long work between [`Signals::take`] and the first look at them.
#[must_use]
pub fn asked_to_end() -> bool {
    // SAFETY: `sigset_t` is plain data for which all zero bytes are a value.
    let mut pending: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `pending` is valid for writing.
    let told = unsafe { libc::sigpending(&raw mut pending) } == 0;
    // SAFETY: the set was initialised.
    told && [libc::SIGTERM, libc::SIGINT]
        .iter()
        .any(|number| unsafe { libc::sigismember(&raw const pending, *number) } == 1)
}

/// Sends a signal by number, those of real time included: to one process, or to the group that it leads. Numbers of processes
/// below 2 mean something else to kill(2), and are refused here.
///
/// # Errors
/// ESRCH: nobody is there. EPERM. EINVAL: no such signal, or a number below 2.
pub fn send(pid: i32, group: bool, number: i32) -> Result<()> {
    let failed = |errno| Error::new("kill", format!("pid {pid}, signal {number}"), errno);
    if pid < 2 || number < 1 {
        return Err(failed(Errno::INVAL));
    }
    // SAFETY: the call takes no pointers.
    if unsafe { libc::kill(if group { -pid } else { pid }, number) } == 0 {
        return Ok(());
    }
    Err(failed(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)))
}

/// A write past the caller's limit of file sizes answers EFBIG instead of ending the process without a word.
pub fn ignore_file_size() {
    // SAFETY: SIG_IGN is a valid disposition, and no handler of ours is replaced.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

#[cfg(test)]
mod tests {
    use super::{Mask, Signals};

    fn blocked() -> Vec<i32> {
        let mut now = Mask::of(&[]).unwrap();
        // SAFETY: the set is valid for writing; without a new one nothing is changed.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut now.0) };
        // SAFETY: the set was initialised.
        (1..32).filter(|number| unsafe { libc::sigismember(&raw const now.0, *number) } == 1).collect()
    }

    #[test]
    fn what_is_taken_is_blocked_here_until_it_is_dropped() {
        let before = blocked();
        let taken = Signals::take(&[libc::SIGHUP, libc::SIGUSR2]).unwrap();
        let mut expected = before.clone();
        expected.extend([libc::SIGHUP, libc::SIGUSR2]);
        expected.sort_unstable();
        assert_eq!(blocked(), expected);
        drop(taken);
        assert_eq!(blocked(), before);
    }

    #[test]
    fn what_ends_a_program_is_put_off_until_it_is_dropped() {
        let (before, held) = (blocked(), super::BlockedSignals::ending().unwrap());
        let now = blocked();
        assert!([libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGTERM].iter().all(|number| now.contains(number)));
        drop(held);
        assert_eq!(blocked(), before);
    }

    #[test]
    fn who_is_asked_to_end_knows_before_it_takes_the_signal() {
        let taken = Signals::take(&[libc::SIGINT]).unwrap();
        assert!(!super::asked_to_end());
        // SAFETY: to this thread alone, which blocks it.
        assert_eq!(unsafe { libc::raise(libc::SIGINT) }, 0);
        assert!(super::asked_to_end());
        assert_eq!((taken.next(), super::asked_to_end()), (Some(libc::SIGINT), false));
    }

    #[test]
    fn a_number_that_is_no_signal_is_an_error_and_changes_nothing() {
        let before = blocked();
        assert!(Signals::take(&[libc::SIGHUP, 4000]).is_err());
        assert_eq!(blocked(), before);
    }

    #[test]
    fn numbers_that_mean_many_processes_are_refused() {
        for pid in [i32::MIN, -1, 0, 1] {
            let refused = super::send(pid, false, libc::SIGCONT).unwrap_err();
            assert_eq!(refused.errno, rustix::io::Errno::INVAL);
        }
        let own = crate::caller::pid();
        // The control: one process, with a signal that does nothing to it.
        if own > 1 {
            super::send(own, false, libc::SIGCONT).unwrap();
        }
        assert_eq!(super::send(own.max(2), false, 0).unwrap_err().errno, rustix::io::Errno::INVAL);
    }
}
