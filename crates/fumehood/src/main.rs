//! Fumehood: a sandbox for AI agents that enforces or refuses.
#![forbid(unsafe_code)]
#![no_main]

#[global_allocator]
static HEAP: sys::heap::Heap = sys::heap::Heap;

sys::program!(fumehood::cli::main);
