//! Calls that a filter asks about: who holds the listener answers them (seccomp_unotify(2)).
//!
//! *Kernel facts*: a thread that asks stands still in its call, so that nothing of it changes but what other threads write to its
//! memory. When nobody holds the listener any more, each such call fails with ENOSYS, also one that waits. The number of a
//! thread is another's as soon as it is gone: what is opened by it is the asker's only if the question still waits afterwards.

use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use crate::error::{ErrorContext as _, Result};

/// `_IOWR('!', 0, struct seccomp_notif)`, `_IOWR('!', 1, struct seccomp_notif_resp)`, `_IOW('!', 2, __u64)`.
const RECEIVE: libc::Ioctl = 0xc050_2100_u32 as libc::Ioctl;
const SEND: libc::Ioctl = 0xc018_2101_u32 as libc::Ioctl;
const WAITS: libc::Ioctl = 0x4008_2102;

/// `struct seccomp_notif` with its `struct seccomp_data`.
#[derive(Default)]
#[repr(C)]
struct Notification {
    id: u64,
    pid: u32,
    flags: u32,
    number: u32,
    arch: u32,
    instruction: u64,
    arguments: [u64; 6],
}

/// `struct seccomp_notif_resp`.
#[repr(C)]
struct Response {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

const _: () = assert!(size_of::<Notification>() == 80 && size_of::<Response>() == 24);

/// Where calls are asked about.
#[derive(Debug)]
pub struct Listener(OwnedFd);

/// A call that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    id: u64,
    /// The thread that calls, as this process sees it.
    pub thread: u32,
    /// The call.
    pub number: u32,
    arguments: [u64; 6],
}

impl Question {
    /// An argument that the kernel takes as an `int`.
    #[must_use]
    pub fn int(&self, at: usize) -> i32 {
        let register = self.arguments.get(at).copied().unwrap_or_default();
        u32::try_from(register & 0xffff_ffff).unwrap_or_default().cast_signed()
    }

    /// One that it takes as an address.
    #[must_use]
    pub fn address(&self, at: usize) -> u64 {
        self.arguments.get(at).copied().unwrap_or_default()
    }
}

impl From<OwnedFd> for Listener {
    fn from(listener: OwnedFd) -> Self {
        // Who asks waits for who answers, on the same processor: half of the time of a question. Linux 6.6; it goes without.
        const SET_FLAGS: libc::Ioctl = 0x4008_2104;
        const SYNC_WAKE_UP: libc::c_ulong = 1;
        // SAFETY: the request takes a number; the kernel touches no memory of ours.
        let _slower = unsafe { libc::ioctl(listener.as_raw_fd(), SET_FLAGS, SYNC_WAKE_UP) };
        Self(listener)
    }
}

impl Listener {
    /// Waits for the next question; `None`: nobody is left who could ask.
    ///
    /// # Errors
    /// That of poll(2).
    pub fn next(&self) -> Result<Option<Question>> {
        loop {
            let mut waits = [PollFd::new(&self.0, PollFlags::IN)];
            match rustix::event::poll(&mut waits, None) {
                Err(Errno::INTR) => continue,
                polled => polled.named("poll", || "listener".to_owned())?,
            };
            let ready = waits.iter().fold(PollFlags::empty(), |all, one| all | one.revents());
            if !ready.contains(PollFlags::IN) {
                return Ok(None);
            }
            let mut asked = Notification::default();
            // ENOENT: whoever asked was ended meanwhile.
            if self.ask(RECEIVE, (&raw mut asked).cast()) {
                let Notification { id, pid: thread, number, arguments, .. } = asked;
                return Ok(Some(Question { id, thread, number, arguments }));
            }
        }
    }

    /// Whether the caller waits still: what was opened by its number before is the caller's.
    #[must_use]
    pub fn waits(&self, question: &Question) -> bool {
        let mut id = question.id;
        self.ask(WAITS, (&raw mut id).cast())
    }

    /// Ends the call with a value, or an error. Who is gone needs no answer.
    pub fn answer(&self, question: &Question, answer: std::result::Result<usize, Errno>) {
        let value = answer.unwrap_or(0);
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        let error = answer.err().map_or(0, |errno| errno.raw_os_error().saturating_neg());
        let mut response = Response { id: question.id, value, error, flags: 0 };
        let _gone = self.ask(SEND, (&raw mut response).cast());
    }

    /// `with` points to what the request takes.
    fn ask(&self, request: libc::Ioctl, with: *mut libc::c_void) -> bool {
        // SAFETY: the three requests above take a `Notification`, a `Response` and a `u64`, to which their callers point, and which
        // outlive the call; the kernel reads and writes no byte more.
        unsafe { libc::ioctl(self.0.as_fd().as_raw_fd(), request, with) == 0 }
    }
}
