//! Who this process is.

use crate::error::ErrorContext as _;

/// Effective user id.
#[must_use]
pub fn euid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Effective group id.
#[must_use]
pub fn egid() -> u32 {
    rustix::process::getegid().as_raw()
}

/// Supplementary groups, without the effective group; none where they cannot be read.
#[must_use]
pub fn groups() -> Vec<u32> {
    let own = egid();
    let all = rustix::process::getgroups().unwrap_or_default();
    all.into_iter().map(rustix::process::Gid::as_raw).filter(|group| *group != own).collect()
}

/// Process id in the own pid namespace.
#[must_use]
pub fn pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// Number of the own process group; 0 where that is one of another pid namespace.
#[must_use]
pub fn group() -> i32 {
    // SAFETY: the call takes no pointers, and cannot fail.
    unsafe { libc::getpgrp() }
}

/// Release of the running kernel, e.g. `6.18.0`.
#[must_use]
pub fn kernel_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// Major and minor part of a device number as stat(2) gives it.
#[must_use]
pub fn device_numbers(device: u64) -> (u32, u32) {
    (rustix::fs::major(device), rustix::fs::minor(device))
}

/// Whether a file can be opened by us for reading and writing, by its mode and its lists.
#[must_use]
pub fn may_open(path: &std::path::Path) -> bool {
    use rustix::fs::Access;
    rustix::fs::access(path, Access::READ_OK | Access::WRITE_OK).is_ok()
}

/// Processor time that the calling thread has used.
#[must_use]
pub fn thread_time() -> std::time::Duration {
    use rustix::time::{ClockId, clock_gettime};
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0));
    std::time::Duration::new(seconds, nanos)
}

/// The device of memory files and of shared memory without a file.
///
/// # Errors
/// ENFILE, EMFILE, ENOMEM.
pub fn memory_device() -> crate::error::Result<u64> {
    let name = || "a memory file".to_owned();
    let file = rustix::fs::memfd_create("", rustix::fs::MemfdFlags::CLOEXEC).named("memfd_create", name)?;
    rustix::fs::fstat(&file).map(|stat| stat.st_dev).named("fstat", name)
}

/// Time since the machine was started, its sleep included: nobody sets this clock.
#[must_use]
pub fn since_boot() -> std::time::Duration {
    use rustix::time::{ClockId, clock_gettime};
    let time = clock_gettime(ClockId::Boottime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0));
    std::time::Duration::new(seconds, nanos)
}

/// Whole seconds of CLOCK_MONOTONIC and CLOCK_BOOTTIME.
#[must_use]
pub fn clocks_since_boot() -> (i64, i64) {
    use rustix::time::{ClockId, clock_gettime};
    (clock_gettime(ClockId::Monotonic).tv_sec, clock_gettime(ClockId::Boottime).tv_sec)
}

/// The processors that this thread may use, in rising order; `None` where the kernel does not say, as for more than 1024 of
/// them.
#[must_use]
pub fn allowed_cpus() -> Option<Vec<u32>> {
    use rustix::thread::{CpuSet, sched_getaffinity};
    let all = sched_getaffinity(None).ok()?;
    let listed = (0..CpuSet::MAX_CPU).filter(|number| all.is_set(*number));
    Some(listed.filter_map(|number| u32::try_from(number).ok()).collect())
}

/// Takes the owner's own rights out of the mask of this process: under a mask of 0777 nobody could enter a folder that they
/// have just made. What the mask says of others stays.
pub fn keep_owner_rights() {
    use rustix::fs::Mode;
    let before = rustix::process::umask(Mode::from_raw_mode(0o077));
    rustix::process::umask(before & Mode::from_raw_mode(0o077));
}

#[cfg(test)]
mod tests {
    use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};

    #[test]
    fn a_thread_that_was_given_one_processor_may_use_that_one() {
        let case = std::thread::spawn(|| {
            let before = super::allowed_cpus().unwrap();
            let here = sched_getcpu();
            assert!(before.contains(&u32::try_from(here).unwrap()), "{here} of {before:?}");
            let mut one = CpuSet::new();
            one.set(here);
            sched_setaffinity(None, &one).unwrap();
            assert_eq!(super::allowed_cpus(), Some(vec![u32::try_from(here).unwrap()]));
        });
        case.join().unwrap();
    }
}
