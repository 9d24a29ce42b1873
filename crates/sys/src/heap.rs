//! The memory of a process that lives for one run: its heap, and the pages of its own program.
//!
//! *Kernel facts*: each growth and each return of the heap is a call of brk, and what was returned costs a page fault a page
//! to have again. A second arena for a second thread is 64 MiB of address space, to be mapped and cut. A fault in a mapped
//! file maps sixteen pages at once, so a start that touches functions all over a large program holds most of it.

/// Keeps what was had, grows in larger steps, and lets all threads share one heap. Cheap, and of no promise.
pub fn keep() {
    // SAFETY: mallopt only sets a number in the C library, under its own lock.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    // SAFETY: as above.
    unsafe { libc::mallopt(libc::M_TOP_PAD, 512 << 10) };
    // SAFETY: as above.
    unsafe { libc::mallopt(libc::M_TRIM_THRESHOLD, 8 << 20) };
}

/// Lets go of the program's own pages that are only read, for a process that will wait for long: what is needed again
/// comes back from the page cache. Nothing is lost, and a kernel that refuses changes nothing.
pub fn let_go_of_program() {
    unsafe extern "C" {
        /// Where the linker put the first byte of the program.
        static __executable_start: u8;
        /// The first byte behind its instructions.
        static etext: u8;
    }
    const PAGE: usize = 4096;
    let from = (&raw const __executable_start).addr().next_multiple_of(PAGE);
    let to = (&raw const etext).addr() / PAGE * PAGE;
    let Some(length) = to.checked_sub(from) else { return };
    // SAFETY: constants and instructions of this program, mapped read-only from its file and never written: the kernel
    // drops the pages from our tables, and reads the very same bytes at the next touch.
    unsafe { libc::madvise(std::ptr::without_provenance_mut(from), length, libc::MADV_DONTNEED) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_files() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssFile:")).unwrap();
        line.split_ascii_whitespace().next().unwrap().parse().unwrap()
    }

    #[test]
    fn a_program_that_lets_go_of_itself_goes_on_and_is_smaller() {
        keep();
        let before = of_files();
        let_go_of_program();
        let after = of_files();
        assert!(after < before, "{before} KiB, then {after} KiB");
        assert_eq!(format!("{:?}", [1, 2, 3]), "[1, 2, 3]");
    }
}
