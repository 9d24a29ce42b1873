//! The C library's heap, for a process that lives for one run.
//!
//! *Kernel facts*: each growth and each return of the heap is a call of brk, and what was returned costs a page fault a page
//! to have again. A second arena for a second thread is 64 MiB of address space, to be mapped and cut.

/// Keeps what was had, grows in larger steps, and lets all threads share one heap. Cheap, and of no promise.
pub fn keep() {
    // SAFETY: mallopt only sets a number in the C library, under its own lock; no other thread is there yet to mind.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    // SAFETY: as above.
    unsafe { libc::mallopt(libc::M_TOP_PAD, 512 << 10) };
    // SAFETY: as above.
    unsafe { libc::mallopt(libc::M_TRIM_THRESHOLD, 8 << 20) };
}
