//! Ends of children, whichever: for a program that is the parent of all orphans below it.

use crate::pidfd::{End, Used};

/// One child that has ended, reaped: its number, how it ended, what it used. `None`: none has.
#[must_use]
pub fn any() -> Option<(i32, End, Used)> {
    ended(-1, libc::WNOHANG)
}

/// Waits until the child of this number has ended, and reaps it. `None`: it is no child of this process, or was reaped.
pub fn wait(pid: i32) -> Option<(End, Used)> {
    // 0 and below mean others.
    let pid = (pid > 0).then_some(pid)?;
    loop {
        match ended(pid, 0) {
            Some((_, end, used)) => return Some((end, used)),
            None if std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => {}
            None => return None,
        }
    }
}

fn ended(whom: i32, options: i32) -> Option<(i32, End, Used)> {
    let mut status: i32 = 0;
    // SAFETY: `rusage` is plain data for which all zero bytes are a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live, writable values of the types that wait4(2) fills.
    let pid = unsafe { libc::wait4(whom, &raw mut status, options, &raw mut usage) };
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

/// Whether this process has no child left, not even one that has ended and was not reaped.
#[must_use]
pub fn is_childless() -> bool {
    // SAFETY: `siginfo_t` is plain data for which all zero bytes are a value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: the pointer is to a live, writable value of the type that waitid(2) fills.
    let answer = unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, options) };
    answer != 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ECHILD)
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;
    use crate::command::{Command, Session};

    /// In a copy of this process: no other test's children may be reaped.
    #[test]
    fn whoever_has_ended_is_told_with_its_end() {
        let pid = crate::fork::run(|| {
            let null = crate::channel::dev_null().unwrap();
            let start = |text: &str| {
                let command = Command::new("/bin/sh").args(["-c", text]).session(Session::Plain);
                command.start_with(&[(std::os::fd::AsFd::as_fd(&null), 0)]).unwrap().pid
            };
            assert!(any().is_none() && is_childless());
            let asleep = Command::new("/bin/sh").args(["-c", "exit 5"]).start_asleep(&[]).unwrap();
            assert_eq!(wait(asleep).map(|(end, _)| end), Some(End::Exited(5)));
            let missing = Command::new("/no/such").start_asleep(&[]).unwrap_err();
            assert_eq!((missing.errno, wait(asleep), is_childless()), (Errno::NOENT, None, true));
            let (one, other) = (start("exit 3"), start("kill -9 $$"));
            let mut seen = Vec::new();
            while seen.len() < 2 {
                assert!(!is_childless());
                seen.extend(any());
            }
            assert!(is_childless());
            let has = |pid, end| seen.iter().any(|(number, how, _)| (*number, *how) == (pid, end));
            let right = has(one, End::Exited(3)) && has(other, End::Signalled { signal: 9, core: false });
            i32::from(!right)
        })
        .unwrap();
        let pidfd = crate::pidfd::open(pid).unwrap();
        assert_eq!(crate::pidfd::wait(&pidfd).unwrap().0, End::Exited(0));
    }
}
