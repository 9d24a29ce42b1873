//! The `syscall` instruction, and nothing else.

use core::arch::asm;

/// One system call; what the kernel returned, a negative errno included.
///
/// # Safety
/// What the call of this number demands of its arguments: pointers must be valid for what the kernel reads or writes,
/// and the call must not pull memory away from under safe code (munmap, a clone that returns twice on one stack, ...).
#[inline]
pub(crate) unsafe fn system_call(number: usize, arguments: [usize; 6]) -> isize {
    let [a0, a1, a2, a3, a4, a5] = arguments;
    let returned: isize;
    // SAFETY: the instruction changes rax, rcx and r11, all named; what the kernel does with the arguments is what the
    // caller promised. Memory is not declared untouched, so the compiler assumes that it changed.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => returned,
            in("rdi") a0,
            in("rsi") a1,
            in("rdx") a2,
            in("r10") a3,
            in("r8") a4,
            in("r9") a5,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    returned
}
