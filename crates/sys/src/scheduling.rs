//! What scheduling policy children begin with (sched(7)).
//!
//! A policy is inherited. A real-time child is held by no share of processors (`cpu.max` and `cpu.cfs_quota_us` are about
//! ordinary ones alone), is refused by a group of v1 that has no budget for it (EINVAL), and keeps a parent of its own
//! priority waiting for as long as it likes.
//!
//! *Promises*: what this thread starts afterwards is ordinary (`SCHED_OTHER`), or there is an error. The thread itself, and
//! the children of one that is ordinary, stay as they are.

use rustix::io::Errno;

use crate::error::{Error, Result};

/// Lets this thread start ordinary children alone (`SCHED_RESET_ON_FORK`). Call it before other threads are made.
///
/// # Errors
/// EPERM: one with `SCHED_DEADLINE` may not change its own policy without `CAP_SYS_NICE`; what the kernel cannot tell.
pub fn start_ordinary_children() -> Result<()> {
    // SAFETY: the call takes no pointers; 0 is this thread.
    let policy = unsafe { libc::sched_getscheduler(0) };
    match policy {
        libc::SCHED_FIFO | libc::SCHED_RR | libc::SCHED_DEADLINE => reset_on_fork(),
        -1 => Err(failed("sched_getscheduler")),
        _ => Ok(()),
    }
}

fn reset_on_fork() -> Result<()> {
    /// Its only flag, for both calls.
    const RESET: u64 = libc::SCHED_FLAG_RESET_ON_FORK as u64;
    const LENGTH: usize = size_of::<libc::sched_attr>();
    // SAFETY: `sched_attr` is plain data for which all zero bytes are a value.
    let mut now: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: `now` is valid for writing `LENGTH` bytes, of which the kernel writes no more; 0 is this thread.
    if unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut now, LENGTH, 0) } != 0 {
        return Err(failed("sched_getattr"));
    }
    now.sched_flags |= RESET;
    // SAFETY: `now` is valid for reading its own length, which its first field tells; 0 is this thread.
    if unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const now, 0) } != 0 {
        return Err(failed("sched_setattr"));
    }
    Ok(())
}

fn failed(call: &'static str) -> Error {
    let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
    Error::new(call, "this thread", Errno::from_raw_os_error(errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The policy of a thread that this one starts, which begins as any child does.
    fn of_a_child() -> i32 {
        // SAFETY: the call takes no pointers.
        std::thread::spawn(|| unsafe { libc::sched_getscheduler(0) }).join().unwrap()
    }

    fn become_one(policy: i32, priority: i32) -> bool {
        let wanted = libc::sched_param { sched_priority: priority };
        // SAFETY: `wanted` is valid for reading; 0 is this thread.
        unsafe { libc::sched_setscheduler(0, policy, &raw const wanted) == 0 }
    }

    #[test]
    fn children_of_real_time_threads_are_ordinary_and_others_inherit() {
        for (policy, priority, child) in [
            (libc::SCHED_FIFO, 1, libc::SCHED_OTHER),
            (libc::SCHED_RR, 1, libc::SCHED_OTHER),
            (libc::SCHED_BATCH, 0, libc::SCHED_BATCH),
            (libc::SCHED_IDLE, 0, libc::SCHED_IDLE),
            (libc::SCHED_OTHER, 0, libc::SCHED_OTHER),
        ] {
            let case = std::thread::spawn(move || {
                if !become_one(policy, priority) {
                    println!("skipped: this user may not have policy {policy}");
                    return;
                }
                assert_eq!(of_a_child(), policy, "without it a child inherits");
                start_ordinary_children().unwrap();
                assert_eq!(of_a_child(), child, "policy {policy}");
            });
            case.join().unwrap();
        }
    }
}
