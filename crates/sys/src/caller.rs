//! Who this process is.

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

/// Process id in the own pid namespace.
#[must_use]
pub fn pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
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

/// Whole seconds of CLOCK_MONOTONIC and CLOCK_BOOTTIME.
#[must_use]
pub fn clocks_since_boot() -> (i64, i64) {
    use rustix::time::{ClockId, clock_gettime};
    (clock_gettime(ClockId::Monotonic).tv_sec, clock_gettime(ClockId::Boottime).tv_sec)
}

/// Takes the owner's own rights out of the mask of this process: under a mask of 0777 nobody could enter a folder that they
/// have just made. What the mask says of others stays.
pub fn keep_owner_rights() {
    use rustix::fs::Mode;
    let before = rustix::process::umask(Mode::from_raw_mode(0o077));
    rustix::process::umask(before & Mode::from_raw_mode(0o077));
}
