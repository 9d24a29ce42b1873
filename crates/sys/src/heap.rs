//! The memory of a process that lives for one run: its heap, and the pages of its own program.
//!
//! *Kernel facts*: each growth and each return of the heap is a call of brk, and what was returned costs a page fault a page
//! to have again. A second arena for a second thread is 64 MiB of address space, to be mapped and cut. A fault in a mapped
//! file maps sixteen pages at once, so a start that touches functions all over a large program holds most of it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that are handed out one behind the other. A start asks 3,700 times for 250 KB in all; a page of them that is touched
/// for the first time costs 1.8 us, so small blocks that come back are handed out again: 324 KB are touched, not 444.
const ROOM: usize = 512 << 10;
/// What is larger is no business of a start, and goes back to where it came from.
const LARGEST: usize = 16 << 10;

/// The program's heap: the first bytes come from a room of its own, by moving one number; the rest is the C library's. Of
/// what comes back the last block makes room for the next, and a small one is kept for whoever asks for as much on the same
/// thread. A start is over before that room is full, and neither searches free blocks nor joins them; a process that lives
/// for long leaves the room and is where it would have been.
#[derive(Clone, Copy, Debug)]
pub struct Heap;

#[repr(C, align(4096))]
struct Room(UnsafeCell<[MaybeUninit<u8>; ROOM]>);

// SAFETY: nobody reads or writes it but through the blocks that `Heap` hands out, and no byte is in two of them at once.
unsafe impl Sync for Room {}

static BYTES: Room = Room(UnsafeCell::new([MaybeUninit::uninit(); ROOM]));
/// How many of them are handed out. Relaxed: it orders nothing but itself, and whoever passes a block to another thread
/// orders what is in it.
static USED: AtomicUsize = AtomicUsize::new(0);

fn room() -> *mut u8 {
    BYTES.0.get().cast()
}

/// Where a block begins in the room; `None` for one of the C library's.
fn place(block: *mut u8) -> Option<usize> {
    block.addr().checked_sub(room().addr()).filter(|at| *at < ROOM)
}

/// Moves the end of what is handed out, if nobody did meanwhile.
fn moved(from: usize, to: usize) -> bool {
    to <= ROOM && USED.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

/// Blocks of one class are of so many bytes, times the class.
const STEP: usize = 16;
/// Classes; what is larger than the last is not kept.
const CLASSES: usize = 65;

thread_local! {
    /// Blocks of the room that were given back, by class; each holds the address of the next.
    static GIVEN_BACK: [Cell<*mut u8>; CLASSES] = const { [const { Cell::new(std::ptr::null_mut()) }; CLASSES] };
}

/// The class of a block; 0 for what is not kept.
fn class(layout: Layout) -> usize {
    let class = layout.size().div_ceil(STEP);
    if class < CLASSES && layout.align() <= STEP { class } else { 0 }
}

/// How long a block is in the room.
fn length(layout: Layout) -> usize {
    match class(layout) {
        0 => layout.size(),
        class => class * STEP,
    }
}

fn reused(class: usize) -> Option<*mut u8> {
    if class == 0 {
        return None;
    }
    GIVEN_BACK.with(|lists| {
        let list = lists.get(class)?;
        let block = list.get();
        if block.is_null() {
            return None;
        }
        // SAFETY: a block on a list belongs to nobody, and the address of the next was written into it when it came there.
        list.set(unsafe { block.cast::<*mut u8>().read() });
        Some(block)
    })
}

fn keep_block(block: *mut u8, class: usize) {
    if class == 0 {
        return;
    }
    GIVEN_BACK.with(|lists| {
        if let Some(list) = lists.get(class) {
            // SAFETY: the block was given back, is at least `STEP` bytes long and aligned to as many.
            unsafe { block.cast::<*mut u8>().write(list.get()) };
            list.set(block);
        }
    });
}

fn take(layout: Layout) -> Option<*mut u8> {
    if layout.size() > LARGEST || layout.align() > 4096 {
        return None;
    }
    if let Some(block) = reused(class(layout)) {
        return Some(block);
    }
    // All of them are aligned to a step: one that is made smaller may come onto a list.
    let align = layout.align().max(STEP);
    loop {
        let used = USED.load(Ordering::Relaxed);
        let start = used.next_multiple_of(align);
        let end = start + length(layout);
        if end > ROOM {
            return None;
        }
        if moved(used, end) {
            return Some(room().wrapping_add(start));
        }
    }
}

// SAFETY: a block is either the C library's, which keeps this contract, or a range of the room that is aligned as asked (the
// room is aligned to a page), as long as asked, and in no other block: the end of what is handed out moves in one step.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises about `layout` are those that `System` asks for.
        take(layout).unwrap_or_else(|| unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match take(layout) {
            Some(block) => {
                // SAFETY: the block is ours alone and `size` bytes long; it may have been used before.
                unsafe { block.write_bytes(0, layout.size()) };
                block
            }
            // SAFETY: as in `alloc`.
            None => unsafe { System.alloc_zeroed(layout) },
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match place(block) {
            // The last one makes room for the next; of the others the small ones are kept.
            Some(start) if moved(start + length(layout), start) => {}
            Some(_) => keep_block(block, class(layout)),
            // SAFETY: what is not in the room came from `System`, by this very layout.
            None => unsafe { System.dealloc(block, layout) },
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Some(start) = place(block) else {
            // SAFETY: as in `dealloc`; the caller promises that `size` is one that `System` takes.
            return unsafe { System.realloc(block, layout, size) };
        };
        // SAFETY: the caller promises that `size`, rounded up to the alignment, does not overflow.
        let wider = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        let (from, to) = (length(layout), length(wider));
        if to <= from || size <= LARGEST && moved(start + from, start + to) {
            return block;
        }
        // SAFETY: `size` is not zero, as the caller promises.
        let new = unsafe { self.alloc(wider) };
        if !new.is_null() {
            // SAFETY: the old block is `layout.size()` bytes long, the new one longer, and they do not overlap.
            unsafe { new.copy_from_nonoverlapping(block, layout.size()) };
            // SAFETY: it is the caller's block, and nobody uses it from here on.
            unsafe { self.dealloc(block, layout) };
        }
        new
    }
}

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

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

    /// A block that is full of one byte, and must still be when it is looked at.
    struct Block {
        first: *mut u8,
        layout: Layout,
        fill: u8,
    }

    impl Block {
        fn new(layout: Layout, zeroed: bool, fill: u8) -> Self {
            let first = if zeroed {
                // SAFETY: no layout of these tests is empty.
                unsafe { Heap.alloc_zeroed(layout) }
            } else {
                // SAFETY: as above.
                unsafe { Heap.alloc(layout) }
            };
            assert!(first.addr().is_multiple_of(layout.align()), "{layout:?}");
            let block = Self { first, layout, fill };
            assert!(!zeroed || block.bytes().iter().all(|byte| *byte == 0));
            block.filled()
        }

        fn filled(self) -> Self {
            // SAFETY: the block is ours and as long as its layout says.
            unsafe { self.first.write_bytes(self.fill, self.layout.size()) };
            self
        }

        fn bytes(&self) -> &[u8] {
            // SAFETY: the block is ours, as long as its layout says, and was written from end to end.
            unsafe { std::slice::from_raw_parts(self.first, self.layout.size()) }
        }

        fn check(&self, length: usize) {
            assert!(self.bytes().iter().take(length).all(|byte| *byte == self.fill), "{:?}", self.layout);
        }

        fn resized(mut self, size: usize, fill: u8) -> Self {
            // SAFETY: the block came from this heap by this layout, and the new size is not zero.
            self.first = unsafe { Heap.realloc(self.first, self.layout, size) };
            assert!(self.first.addr().is_multiple_of(self.layout.align()), "{:?} to {size}", self.layout);
            let kept = size.min(self.layout.size());
            self.layout = layout(size, self.layout.align());
            self.check(kept);
            self.fill = fill;
            self.filled()
        }

        fn free(self) {
            self.check(self.layout.size());
            // SAFETY: the block came from this heap by this layout, and is not used again.
            unsafe { Heap.dealloc(self.first, self.layout) };
        }
    }

    fn exchange(seed: u64) {
        let mut random = seed;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from((random >> 33) % below).unwrap()
        };
        let mut held: Vec<Block> = Vec::new();
        for round in 0..4_000_u32 {
            let fill = u8::try_from(1 + round % 251).unwrap();
            let most = if next(20) == 0 { 40_000 } else { 300 };
            let (size, kind) = (1 + next(most), next(4));
            match kind {
                0 | 1 if !held.is_empty() => {
                    let block = held.swap_remove(next(held.len() as u64));
                    if kind == 0 { block.free() } else { held.push(block.resized(size, fill)) }
                }
                _ => held.push(Block::new(layout(size, 1 << next(7)), kind == 2, fill)),
            }
        }
        held.into_iter().for_each(Block::free);
    }

    #[test]
    fn no_two_blocks_share_a_byte_from_however_many_threads_in_the_room_and_behind_it() {
        std::thread::scope(|scope| {
            for seed in 1..=4 {
                scope.spawn(move || exchange(seed));
            }
        });
        assert!(USED.load(Ordering::Relaxed) <= ROOM);
        let large = Block::new(layout(LARGEST + 1, 8), false, 1);
        assert_eq!(place(large.first), None, "large ones are the C library's");
        large.free();
    }

    #[test]
    fn small_blocks_are_handed_out_again_and_may_come_back_on_another_thread() {
        let again = std::thread::spawn(|| {
            let mut all: Vec<Block> = (0..9).map(|_| Block::new(layout(40, 8), false, 7)).collect();
            let given = all.swap_remove(3);
            let first = given.first.addr();
            given.free();
            // As long as the step is, not as it was asked for.
            let next = Block::new(layout(33, 1), true, 8);
            let again = (first, next.first.addr(), place(next.first).is_some());
            next.free();
            all.into_iter().for_each(Block::free);
            again
        });
        let (first, next, inside) = again.join().unwrap();
        // Other tests may have filled the room.
        assert!(!inside || first == next, "{first:x} {next:x}");
        std::thread::scope(|scope| {
            let (to, told) = std::sync::mpsc::channel::<usize>();
            scope.spawn(move || {
                for at in told {
                    let first = std::ptr::with_exposed_provenance_mut(at);
                    Block { first, layout: layout(24, 8), fill: 9 }.free();
                    Block::new(layout(24, 8), false, 10).free();
                }
            });
            for _ in 0..500 {
                let block = Block::new(layout(24, 8), false, 9);
                to.send(block.first.expose_provenance()).unwrap();
                Block::new(layout(24, 8), false, 11).free();
            }
            drop(to);
        });
    }

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
