//! Descriptors.

use core::mem::ManuallyDrop;

use linux_raw_sys::general::{
    __NR_close, __NR_close_range, __NR_dup3, __NR_ppoll, O_CLOEXEC, POLLIN, POLLNVAL, pollfd,
};

use super::errno::{Errno, Result};
use super::raw::{call, int, read, small, uint, write};

/// A descriptor's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fd(i32);

impl Fd {
    /// The working directory, for calls that take a directory.
    pub const CWD: Self = Self(linux_raw_sys::general::AT_FDCWD);

    /// This number; numbers that no descriptor can have become one that every call refuses.
    #[must_use]
    pub fn new(number: u32) -> Self {
        Self(i32::try_from(number).unwrap_or(-1))
    }

    /// The number.
    #[must_use]
    pub fn number(self) -> i32 {
        self.0
    }

    pub(super) fn raw(self) -> usize {
        int(self.0)
    }
}

/// A descriptor that is closed at the end of its scope.
#[derive(Debug)]
pub struct Owned(Fd);

impl Owned {
    /// Takes charge of a descriptor that was passed in by number.
    #[must_use]
    pub fn adopt(fd: Fd) -> Self {
        Self(fd)
    }

    pub(super) fn new(returned: usize) -> Self {
        Self(Fd(small(returned)))
    }

    /// The number, as long as this lives.
    #[must_use]
    pub fn fd(&self) -> Fd {
        self.0
    }

    /// Leaves it open for good.
    #[must_use]
    pub fn leak(self) -> Fd {
        ManuallyDrop::new(self).0
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        close(self.0);
    }
}

/// close(2). Its error tells nothing that could be acted upon: the number is free in any case.
pub fn close(fd: Fd) {
    // SAFETY: the call takes numbers alone; the kernel touches no memory of ours.
    let _closed = unsafe { call(__NR_close, [fd.raw()]) };
}

/// The highest number that a descriptor can have. Linux takes any higher one as well; gVisor does not.
pub const LAST_FD: u32 = 0x7fff_ffff;

/// Closes all descriptors from `first` to `last`.
///
/// # Errors
/// That of close_range(2).
pub fn close_range(first: u32, last: u32) -> Result<()> {
    // SAFETY: the call takes numbers alone; the kernel touches no memory of ours.
    unsafe { call(__NR_close_range, [uint(first), uint(last), 0]) }.map(drop)
}

/// Descriptors that are closed together, in one call for each row of numbers that follow each other.
#[derive(Debug, Default)]
pub struct CloseList {
    numbers: [u32; 16],
    count: usize,
}

impl CloseList {
    /// Takes charge of one more; when there is no room the others are closed first.
    pub fn add(&mut self, fd: Owned) {
        if self.count == self.numbers.len() {
            self.close();
        }
        if let Some(place) = self.numbers.get_mut(self.count) {
            *place = fd.leak().0.unsigned_abs();
            self.count = self.count.saturating_add(1);
        }
    }

    /// Closes them.
    pub fn close(&mut self) {
        let mut row: Option<(u32, u32)> = None;
        for number in self.numbers.iter().take(self.count) {
            row = Some(match row {
                Some((first, last)) if *number == last.saturating_add(1) => (first, *number),
                Some((first, last)) => {
                    close_row(first, last);
                    (*number, *number)
                }
                None => (*number, *number),
            });
        }
        self.count = 0;
        if let Some((first, last)) = row {
            close_row(first, last);
        }
    }
}

fn close_row(first: u32, last: u32) {
    // It fails for a range that is none, and this is one.
    let _closed = close_range(first, last);
}

impl Drop for CloseList {
    fn drop(&mut self) {
        self.close();
    }
}

/// dup3(2), kept over an exec or not. `from` and `to` must differ.
///
/// # Errors
/// That of dup3(2).
pub fn duplicate_to(from: Fd, to: Fd, keep_over_exec: bool) -> Result<()> {
    let flags = if keep_over_exec { 0 } else { O_CLOEXEC };
    // SAFETY: the call takes numbers alone; the kernel touches no memory of ours.
    unsafe { call(__NR_dup3, [from.raw(), to.raw(), uint(flags)]) }.map(drop)
}

/// `POLLIN` as the kernel has it in `struct pollfd`.
const READABLE: i16 = 1;
const _: () = assert!(POLLIN == 1);

/// Waits until one of two descriptors can be read or has hung up; which.
///
/// # Errors
/// That of ppoll(2), `EINTR` included.
pub fn poll_readable(fds: [Fd; 2]) -> Result<[bool; 2]> {
    let mut polled = fds.map(|fd| pollfd { fd: fd.0, events: READABLE, revents: 0 });
    // SAFETY: the array is valid for its two elements; no time, no mask.
    unsafe { call(__NR_ppoll, [write(&mut polled), 2, 0, 0, 8]) }?;
    Ok(polled.map(|fd| fd.revents != 0))
}

/// Which of the first `count` (at most 256) descriptors are open: bits of the first 64, and whether one above is.
///
/// # Errors
/// That of ppoll(2): `EINVAL` when `count` is above `RLIMIT_NOFILE`.
pub fn open_bitmap(count: u32) -> Result<(u64, bool)> {
    let mut polled = [pollfd { fd: 0, events: 0, revents: 0 }; 256];
    for (number, place) in (0..).zip(&mut polled) {
        place.fd = number;
    }
    let count = polled.len().min(count as usize);
    let now: [u64; 2] = [0, 0];
    // SAFETY: the array has at least `count` elements; the time is a timespec of 0 s, which the kernel may write back.
    unsafe { call(__NR_ppoll, [write(&mut polled), count, read(&now), 0, 8]) }?;
    let mut open = polled.iter().take(count).map(|fd| i64::from(fd.revents) & i64::from(POLLNVAL) == 0);
    let bits = (0..64_u32).zip(open.by_ref()).fold(0, |bits, (at, open)| bits | (u64::from(open) << at));
    Ok((bits, open.any(|open| open)))
}

impl Errno {
    /// The errno of a result as the wire has it; 0 = success.
    #[must_use]
    pub fn of<T>(result: &Result<T>) -> i32 {
        result.as_ref().err().map_or(0, |errno| errno.number())
    }
}
