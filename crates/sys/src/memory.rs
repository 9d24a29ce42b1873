//! Memory that is never written to a disk.

use std::ffi::c_void;

use crate::error::{ErrorContext as _, Result};

/// Locks the pages in which these bytes lie, for as long as the process has them: they are not swapped out. What lies beside
/// them in a page is locked too, and nothing unlocks it.
///
/// # Errors
/// The kernel locks no more for this process (`RLIMIT_MEMLOCK`), or the call is not let through.
pub fn lock(bytes: &[u8]) -> Result<()> {
    // Nothing lies nowhere: the kernel would look for the page of a pointer that leads to none.
    if bytes.is_empty() {
        return Ok(());
    }
    let place = bytes.as_ptr().cast_mut().cast::<c_void>();
    // SAFETY: the pages are mapped, for the slice lives; locking changes neither what is in them nor who may use them.
    let locked = unsafe { rustix::mm::mlock(place, bytes.len()) };
    locked.named("mlock", || format!("{} bytes", bytes.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locked() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    #[test]
    fn pages_of_a_value_are_locked() {
        let value = vec![7_u8; 20_000];
        let before = locked();
        lock(&value).unwrap();
        assert!(locked() >= before + 20, "{} kB, before {before} kB", locked());
        assert_eq!(value, vec![7; 20_000]);
        lock(&[]).unwrap();
    }
}
