//! Processes by one of their resource limits.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::Process;
use crate::error::{ErrorContext as _, Result};

/// Rows of `/proc/PID/limits`, in the order of the resources' numbers.
const ROWS: usize = 16;

/// Every process whose soft limit of a resource has this value, by a descriptor that stays its own.
///
/// # Errors
/// `/proc` cannot be listed. A process that ends meanwhile is left out.
pub fn limited(resource: u32, value: u64) -> Result<Vec<OwnedFd>> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir("/proc").map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO));
    for entry in entries.named("open", || "/proc".to_owned())?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let has = || {
            // What has ended and waits to be reaped shows its limits still.
            let living = Process::open(pid).and_then(|process| process.living());
            let text = living.and_then(|process| process.map(|process| process.small_text("limits")).transpose());
            text.is_ok_and(|text| text.is_some_and(|text| soft(&text, resource) == Some(value)))
        };
        // Opened before it is looked at once more: the number may be another's by then.
        if has()
            && let Ok(pidfd) = crate::pidfd::open(pid)
            && has()
        {
            found.push(pidfd);
        }
    }
    Ok(found)
}

/// Whether the process whose folder of procfs this is has that soft limit; `None`: it is no folder of a process, or may not be looked into.
#[must_use]
pub fn has_limit(folder: impl AsFd, resource: u32, value: u64) -> Option<bool> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let limits = rustix::fs::openat(folder, "limits", flags, Mode::empty()).ok()?;
    let text = crate::paths::read_all(limits, super::SMALL).ok()?;
    Some(soft(&String::from_utf8_lossy(&text), resource) == Some(value))
}

/// The soft limit of a resource in the text of `/proc/PID/limits`.
fn soft(text: &str, resource: u32) -> Option<u64> {
    let row = usize::try_from(resource).ok().filter(|row| *row < ROWS)?;
    // A heading first; names have up to 25 characters and may have spaces.
    text.lines().nth(row.checked_add(1)?)?.get(25..)?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_read_by_its_number() {
        let own = Process::own().unwrap().small_text("limits").unwrap();
        let expected = crate::rlimit::get(7).unwrap().0;
        assert_eq!(soft(&own, 7), expected);
        assert_eq!((soft(&own, 16), soft("", 7)), (None, None));
    }

    #[test]
    fn a_process_is_found_by_a_limit_that_it_alone_has() {
        assert!(limited(7, 987_654_321_987).unwrap().is_empty());
    }
}
