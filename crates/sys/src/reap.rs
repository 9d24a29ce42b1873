//! Ends of children, whichever: for a program that is the parent of all orphans below it.

use crate::pidfd::{End, Used};

/// One child that has ended, reaped: its number, how it ended, what it used. `None`: none has.
#[must_use]
pub fn any() -> Option<(i32, End, Used)> {
    let mut status: i32 = 0;
    // SAFETY: `rusage` is plain data for which all zero bytes are a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live, writable values of the types that wait4(2) fills.
    let pid = unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG, &raw mut usage) };
    if pid <= 0 {
        return None;
    }
    let end = if libc::WIFSIGNALED(status) {
        End::Signalled { signal: libc::WTERMSIG(status), core: libc::WCOREDUMP(status) }
    } else {
        End::Exited(libc::WEXITSTATUS(status))
    };
    Some((pid, end, Used::of(&usage)))
}
