//! A thread with the scheduling policy `SCHED_DEADLINE` and its children (sched(7)).
//!
//! A policy is inherited, and a child that must not have a real-time one gives it up itself before it executes anything.
//! That is too late below a deadline thread: the kernel lets it fork only if its children are reset at birth.

use rustix::io::Errno;

/// While this is there, the calling thread may fork, and start threads, although its policy is `SCHED_DEADLINE`. Of any other nothing is changed.
#[derive(Debug)]
#[must_use = "the thread is as before when this is dropped"]
pub struct DeadlineForks(Option<libc::sched_attr>);

impl DeadlineForks {
    /// For the calling thread.
    ///
    /// # Errors
    /// EPERM: who has this policy may not change it without `CAP_SYS_NICE`; what the kernel cannot tell.
    pub fn allow() -> Result<Self, Errno> {
        // SAFETY: the call takes no pointers; 0 is this thread.
        let policy = unsafe { libc::sched_getscheduler(0) };
        if policy == -1 {
            return Err(last_errno());
        }
        if policy != libc::SCHED_DEADLINE {
            return Ok(Self(None));
        }
        let before = attributes()?;
        let mut resetting = before;
        resetting.sched_flags |= RESET_ON_FORK;
        set(&resetting)?;
        Ok(Self(Some(before)))
    }
}

impl Drop for DeadlineForks {
    fn drop(&mut self) {
        match self.0.map(|before| set(&before)) {
            // Who was allowed to change it is allowed to change it back.
            None | Some(Ok(()) | Err(_)) => {}
        }
    }
}

const RESET_ON_FORK: u64 = libc::SCHED_FLAG_RESET_ON_FORK as u64;
const LENGTH: usize = size_of::<libc::sched_attr>();

fn attributes() -> Result<libc::sched_attr, Errno> {
    // SAFETY: `sched_attr` is plain data for which all zero bytes are a value.
    let mut now: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: `now` is valid for writing `LENGTH` bytes, of which the kernel writes no more; 0 is this thread.
    let answer = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut now, LENGTH, 0) };
    if answer == 0 { Ok(now) } else { Err(last_errno()) }
}

fn set(wanted: &libc::sched_attr) -> Result<(), Errno> {
    // SAFETY: `wanted` is valid for reading its own length, which its first field tells; 0 is this thread.
    let answer = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, std::ptr::from_ref(wanted), 0) };
    if answer == 0 { Ok(()) } else { Err(last_errno()) }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_thread_may_fork_while_it_is_allowed_and_is_as_before_afterwards() {
        let case = std::thread::spawn(|| {
            let mut wanted = attributes().unwrap();
            wanted.sched_policy = libc::SCHED_DEADLINE.cast_unsigned();
            wanted.sched_nice = 0;
            (wanted.sched_runtime, wanted.sched_deadline, wanted.sched_period) = (1 << 20, 100 << 20, 100 << 20);
            if set(&wanted).is_err() {
                println!("skip: this user may not have this policy");
                return;
            }
            let before = attributes().unwrap();
            let fork = || std::thread::Builder::new().spawn(|| ()).map(|thread| thread.join().unwrap());
            assert!(fork().is_err(), "without it there is no child");
            let allowed = DeadlineForks::allow().unwrap();
            fork().unwrap();
            drop(allowed);
            assert_eq!(attributes().unwrap().sched_flags, before.sched_flags);
            assert!(fork().is_err());
        });
        case.join().unwrap();
    }
}
