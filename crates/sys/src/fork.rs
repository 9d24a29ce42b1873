//! A copy of this process that goes on with work of ours, without executing a program.
//!
//! *Does not promise* anything about locks: one that another thread holds is held in the copy for ever. For programs of one
//! thread. (The C library sees to its own, so that memory can be had.)

use rustix::io::Errno;

use crate::error::{Error, Result};

/// Runs `work` in a copy of this process; the copy ends with the code that it gives, and nothing else of the caller's runs
/// in it. Its number.
///
/// # Errors
/// EAGAIN: a limit of processes. ENOMEM.
pub fn run(work: impl FnOnce() -> i32) -> Result<i32> {
    // SAFETY: the call takes no pointers; the copy has memory of its own, and from here on runs `work` and its own end alone.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // A panic must not go on in the caller's own code, twice.
        crate::bare::exit(std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(101));
    }
    if pid < 0 {
        let errno = Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO);
        return Err(Error::new("fork", "this process", errno));
    }
    Ok(pid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pidfd::{self, End};

    #[test]
    fn the_copy_does_the_work_and_ends_with_its_code() {
        let (read, write) = crate::channel::pipe().unwrap();
        let mut here = 1;
        let pid = run(|| {
            here = 2;
            i32::from(rustix::io::write(&write, b"x") == Ok(1)) + 6
        })
        .unwrap();
        let pidfd = pidfd::open(pid).unwrap();
        assert_eq!(pidfd::wait(&pidfd).unwrap().0, End::Exited(7));
        assert_eq!((here, rustix::io::read(&read, &mut [0; 8])), (1, Ok(1)));
    }
}
