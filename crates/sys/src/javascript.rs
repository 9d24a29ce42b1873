//! The heap of a JavaScript interpreter: all its values together have a bound, and it is known that one was refused.
//!
//! QuickJS tells its program of a refused allocation by an exception, which a program can catch; by this heap its owner learns of
//! it all the same.

use std::cell::Cell;
use std::rc::Rc;

use rquickjs::allocator::{Allocator, RustAllocator};

/// Bytes that an allocation takes beside its own, at most.
const HEADER: usize = 16;
/// A size that no allocator has, and that can be rounded up.
const MAX_SIZE: usize = usize::MAX / 4;

/// A heap of at most so many bytes.
pub struct Heap {
    most: usize,
    used: usize,
    refused: Rc<Cell<bool>>,
    at_refusal: Option<Box<dyn Fn()>>,
}

impl std::fmt::Debug for Heap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Heap").field("most", &self.most).field("used", &self.used).finish_non_exhaustive()
    }
}

impl Heap {
    /// With nothing in it.
    #[must_use]
    pub fn new(most: Option<u64>) -> Self {
        let most = most.map_or(MAX_SIZE, |bytes| usize::try_from(bytes).unwrap_or(MAX_SIZE).min(MAX_SIZE));
        Self { most, used: 0, refused: Rc::default(), at_refusal: None }
    }

    /// Does this where something is refused, before the interpreter hears of it: what QuickJS does without the memory that it asked
    /// for is not sound everywhere, so a process of its own ends there.
    #[must_use]
    pub fn ending(mut self, at_refusal: Box<dyn Fn()>) -> Self {
        self.at_refusal = Some(at_refusal);
        self
    }

    fn refuse(&self) {
        self.refused.set(true);
        if let Some(end) = &self.at_refusal {
            end();
        }
    }

    /// Whether something was refused since it was made.
    #[must_use]
    pub fn refused(&self) -> Rc<Cell<bool>> {
        Rc::clone(&self.refused)
    }

    /// Whether so many more bytes fit where so many go.
    fn fits(&self, gone: usize, more: usize) -> bool {
        let fits = self.used.saturating_sub(gone).saturating_add(more).saturating_add(HEADER) <= self.most;
        if !fits {
            self.refuse();
        }
        fits
    }

    /// Counts what was made, or that the machine has no more.
    fn counted(&mut self, gone: usize, made: *mut u8) -> *mut u8 {
        if made.is_null() {
            self.refuse();
            return made;
        }
        // SAFETY: the pointer comes from this allocator, just now.
        let size = unsafe { RustAllocator::usable_size(made) };
        self.used = self.used.saturating_sub(gone).saturating_add(size).saturating_add(HEADER);
        made
    }
}

// SAFETY: every pointer that it gives is null or one of `RustAllocator`, which keeps the promises of the trait, and every one that
// it takes goes to that allocator; what it adds is a count.
unsafe impl Allocator for Heap {
    fn alloc(&mut self, size: usize) -> *mut u8 {
        if !self.fits(0, size) {
            return std::ptr::null_mut();
        }
        let made = RustAllocator.alloc(size);
        self.counted(0, made)
    }

    fn calloc(&mut self, count: usize, size: usize) -> *mut u8 {
        let total = count.saturating_mul(size);
        // Nothing is made of nothing, and nothing is missing then.
        if total == 0 || !self.fits(0, total) {
            return std::ptr::null_mut();
        }
        let made = RustAllocator.calloc(count, size);
        self.counted(0, made)
    }

    unsafe fn dealloc(&mut self, ptr: *mut u8) {
        // SAFETY: the caller's pointer is one of this allocator.
        let size = unsafe { RustAllocator::usable_size(ptr) };
        self.used = self.used.saturating_sub(size.saturating_add(HEADER));
        // SAFETY: as above; it is used no more.
        unsafe { RustAllocator.dealloc(ptr) };
    }

    unsafe fn realloc(&mut self, ptr: *mut u8, new_size: usize) -> *mut u8 {
        if ptr.is_null() {
            return self.alloc(new_size);
        }
        // SAFETY: the caller's pointer is one of this allocator.
        let gone = unsafe { RustAllocator::usable_size(ptr) }.saturating_add(HEADER);
        if !self.fits(gone, new_size) {
            return std::ptr::null_mut();
        }
        // SAFETY: as above; where a new one comes, the old one is used no more.
        let made = unsafe { RustAllocator.realloc(ptr, new_size) };
        self.counted(gone, made)
    }

    unsafe fn usable_size(ptr: *mut u8) -> usize {
        // SAFETY: the caller's pointer is one of this allocator.
        unsafe { RustAllocator::usable_size(ptr) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_the_bound_is_refused_and_told_and_what_goes_makes_room() {
        let mut heap = Heap::new(Some(1000));
        let refused = heap.refused();
        let first = heap.alloc(600);
        assert!(!first.is_null() && heap.alloc(600).is_null() && refused.replace(false));
        // SAFETY: it is one of this heap.
        let first = unsafe { heap.realloc(first, 100) };
        let second = heap.calloc(10, 60);
        assert!(!first.is_null() && !second.is_null() && !refused.get());
        // SAFETY: it is one of this heap.
        let grown = unsafe { heap.realloc(second, 900) };
        assert!(grown.is_null() && refused.replace(false));
        for one in [first, second] {
            // SAFETY: it is one of this heap, and used no more.
            unsafe { heap.dealloc(one) };
        }
        assert_eq!(heap.used, 0);
        assert!(heap.calloc(usize::MAX, 2).is_null() && refused.get());
        assert!(Heap::new(None).alloc(usize::MAX).is_null());
    }

    #[test]
    fn where_something_is_refused_the_end_comes_before_the_answer() {
        let told = Rc::new(Cell::new(0));
        let count = Rc::clone(&told);
        let mut heap = Heap::new(Some(1000)).ending(Box::new(move || count.set(count.get() + 1)));
        let first = heap.alloc(600);
        assert!(!first.is_null() && told.get() == 0);
        assert!(heap.alloc(600).is_null() && told.get() == 1);
        // SAFETY: it is one of this heap, and used no more.
        unsafe { heap.dealloc(first) };
    }
}
