//! Calls that return twice, on two stacks: no function of Rust could.

use core::arch::asm;
#[cfg(feature = "std")]
use core::ffi::c_void;

use linux_raw_sys::general::__NR_clone;

/// clone(2) whose child goes on in `entry`, on another stack; what the kernel returned, a negative errno included.
///
/// # Safety
/// `stack` must be the aligned top of memory that nobody else uses while the child runs; `argument` must stay valid for
/// what `entry` does with it, given that the memory is shared.
pub(crate) unsafe fn clone_onto<T>(
    flags: u32,
    stack: usize,
    entry: extern "C" fn(*mut T) -> !,
    argument: *mut T,
) -> isize {
    let returned: isize;
    // SAFETY: in the parent it is a system call like any other. In the child only registers are used until `entry` is
    // called on the new, aligned stack, and `entry` never comes back to this frame.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, {argument}",
            "call {entry}",
            "ud2",
            "2:",
            argument = in(reg) argument,
            entry = in(reg) entry,
            inlateout("rax") u64::from(__NR_clone) => returned,
            in("rdi") u64::from(flags),
            in("rsi") stack,
            in("rdx") 0,
            in("r10") 0,
            in("r8") 0,
            // Not late: the instruction destroys them before `argument` and `entry` are used.
            out("rcx") _,
            out("r11") _,
        );
    }
    returned
}

/// clone3(2) with a stack of its own. In the child the stack pointer is the top of that and the other registers are the caller's.
///
/// # Safety
/// `args` must be valid for `size` bytes with a stack of its own and CLONE_VM; `entry` must accept `data`.
#[cfg(feature = "std")]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn clone3(
    args: *const c_void,
    size: usize,
    entry: extern "C" fn(*const c_void) -> !,
    data: *const c_void,
) -> isize {
    // r8 and r9 survive `syscall` (only rax, rcx, r11 change) and are free for a callee to use. The parent goes on
    // with its own stack and returns. The child must not return: its stack is empty, so it calls and never comes back.
    core::arch::naked_asm!(
        "mov r8, rdx",
        "mov r9, rcx",
        "mov eax, 435",
        "syscall",
        "test rax, rax",
        "jnz 2f",
        "xor ebp, ebp",
        "mov rdi, r9",
        "call r8",
        "ud2",
        "2:",
        "ret",
    )
}

/// The older call, for where clone3 is not to be had. The same rules hold.
///
/// # Safety
/// `stack` must be the top of a stack of its own, and `flags` have CLONE_VM; `pidfd` must be valid for writes, and the word at
/// `child_tid` until it is 0; `entry` must accept `data`.
#[cfg(feature = "std")]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn clone(
    flags: u64,
    stack: u64,
    pidfd: u64,
    child_tid: u64,
    entry: extern "C" fn(*const c_void) -> !,
    data: *const c_void,
) -> isize {
    // The first three are where the kernel takes them, the fourth it takes from r10; r8 would be a thread pointer, which no
    // flag asks for. r8 and r9 survive `syscall`.
    core::arch::naked_asm!(
        "mov r10, rcx",
        "mov eax, 56",
        "syscall",
        "test rax, rax",
        "jnz 2f",
        "xor ebp, ebp",
        "mov rdi, r9",
        "call r8",
        "ud2",
        "2:",
        "ret",
    )
}
