//! Memory that is never written to a disk, and memory that a program needs no more.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{ErrorContext as _, Result};

/// How often each page is locked, by its number: the kernel counts no locks, and one page may have bytes of several.
static PAGES: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

/// Pages that are not swapped out for as long as this lives. To be dropped after what lies in them was wiped.
#[derive(Debug)]
#[must_use = "what was locked is unlocked when this goes"]
pub struct Locked {
    first: usize,
    end: usize,
}

unsafe extern "C" {
    /// Where the linker has put this program.
    static __executable_start: u8;
    /// The end of its code and constants.
    static etext: u8;
}

/// Takes the pages of this program's file out of this process. What is needed again is mapped again; around each page that a start
/// touched the kernel has mapped fifteen more.
pub fn unmap_program() {
    let (from, to, size) = (&raw const __executable_start, &raw const etext, rustix::param::page_size());
    let whole = to.addr().saturating_sub(from.addr()) / size * size;
    let place = from.cast_mut().cast::<c_void>();
    // SAFETY: these pages are of a file, private and never written to: who touches one again reads the same bytes.
    let unmapped = unsafe { rustix::mm::madvise(place, whole, rustix::mm::Advice::LinuxDontNeed) };
    match unmapped {
        // It holds what it held.
        Ok(()) | Err(_) => {}
    }
}

/// Locks the pages in which these bytes lie: they are not swapped out. What lies beside them in a page is locked too.
///
/// # Errors
/// The kernel locks no more for this process (`RLIMIT_MEMLOCK`), or the call is not let through.
pub fn lock(bytes: &[u8]) -> Result<Locked> {
    // Nothing lies nowhere: the kernel would look for the page of a pointer that leads to none.
    if bytes.is_empty() {
        return Ok(Locked { first: 0, end: 0 });
    }
    let (place, size) = (bytes.as_ptr().cast_mut().cast::<c_void>(), rustix::param::page_size());
    let mut pages = pages();
    // SAFETY: the pages are mapped, for the slice lives; locking changes neither what is in them nor who may use them.
    let locked = unsafe { rustix::mm::mlock(place, bytes.len()) };
    locked.named("mlock", || format!("{} bytes", bytes.len()))?;
    let from = place.expose_provenance();
    let (first, end) = (from / size, from.saturating_add(bytes.len()).div_ceil(size));
    for page in first..end {
        let count = pages.entry(page).or_default();
        *count = count.saturating_add(1);
    }
    Ok(Locked { first, end })
}

fn pages() -> MutexGuard<'static, BTreeMap<usize, usize>> {
    PAGES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Locked {
    fn drop(&mut self) {
        let (mut pages, size) = (pages(), rustix::param::page_size());
        for page in self.first..self.end {
            let Some(count) = pages.get_mut(&page) else { continue };
            *count = count.saturating_sub(1);
            if *count > 0 {
                continue;
            }
            pages.remove(&page);
            let place = std::ptr::with_exposed_provenance_mut::<c_void>(page.saturating_mul(size));
            // SAFETY: unlocking changes neither what is in a page nor who may use it; one that is mapped no more is an error.
            let unlocked = unsafe { rustix::mm::munlock(place, size) };
            match unlocked {
                // What is mapped no more is not locked, either.
                Ok(()) | Err(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_of_a_program_are_taken_out_and_it_goes_on() {
        let mapped = || {
            let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
            let line = text.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap();
            line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
        };
        let before = mapped();
        unmap_program();
        let after = mapped();
        assert!(after + 512 < before, "{before} KiB, then {after}");
    }

    /// Whether the kernel has the page of this byte locked.
    fn is_locked(byte: &u8) -> bool {
        let (at, mut inside) = (std::ptr::from_ref(byte).addr(), false);
        let number = |text: &str| usize::from_str_radix(text, 16).ok();
        for line in std::fs::read_to_string("/proc/self/smaps").unwrap().lines() {
            let range = line.split_ascii_whitespace().next().and_then(|word| word.split_once('-'));
            if let Some((Some(from), Some(to))) = range.map(|(from, to)| (number(from), number(to))) {
                inside = (from..to).contains(&at);
            } else if inside && let Some(flags) = line.strip_prefix("VmFlags:") {
                return flags.split_ascii_whitespace().any(|flag| flag == "lo");
            }
        }
        panic!("it is mapped somewhere")
    }

    #[test]
    fn pages_of_a_value_are_locked_for_as_long_as_somebody_needs_it() {
        let size = rustix::param::page_size();
        // Whole pages of its own in the middle, whatever lies beside it.
        let value = vec![7_u8; 4 * size];
        let middle = &value[size..2 * size];
        assert!(!is_locked(&value[2 * size]), "it is nobody's yet");
        let (all, part) = (lock(&value).unwrap(), lock(middle).unwrap());
        assert!(is_locked(&value[0]) && is_locked(&value[2 * size]) && is_locked(&value[4 * size - 1]));
        drop(all);
        assert!(is_locked(&middle[0]) && is_locked(&middle[size - 1]), "another still needs it");
        assert!(!is_locked(&value[3 * size - 1]));
        drop(part);
        assert!(!is_locked(&middle[0]));
        assert_eq!(value, vec![7; 4 * size]);
        drop(lock(&[]).unwrap());
    }
}
