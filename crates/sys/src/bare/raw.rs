//! The `syscall` instruction, and nothing else.

use core::arch::asm;
use core::ffi::CStr;

use super::errno::{Errno, Result};

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("the guest is written for x86_64 Linux");

/// One system call with up to six arguments; the rest is 0.
///
/// # Safety
/// What the call of this number demands of its arguments: pointers must be valid for what the kernel reads or writes,
/// and the call must not pull memory away from under safe code (munmap, a clone that returns twice on one stack, ...).
#[inline]
pub(super) unsafe fn call<const N: usize>(number: u32, arguments: [usize; N]) -> Result<usize> {
    let mut six = [0; 6];
    for (place, argument) in six.iter_mut().zip(arguments) {
        *place = argument;
    }
    let [a0, a1, a2, a3, a4, a5] = six;
    let returned: isize;
    // SAFETY: the instruction changes rax, rcx and r11, all named; what the kernel does with the arguments is what the
    // caller promised. Memory is not declared untouched, so the compiler assumes that it changed.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") u64::from(number) => returned,
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
    Errno::split(returned)
}

/// A number that may be negative, as a register.
#[inline]
pub(super) const fn int(number: i32) -> usize {
    (number as isize).cast_unsigned()
}

/// An unsigned number as a register.
#[inline]
pub(super) const fn uint(number: u32) -> usize {
    number as usize
}

/// 64 bits as a register.
#[inline]
pub(super) const fn long(number: u64) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "registers of x86_64 have 64 bits")]
    return number as usize;
}

/// The address of something that the kernel reads.
#[inline]
pub(super) fn read<T: ?Sized>(from: &T) -> usize {
    core::ptr::from_ref(from).cast::<()>().expose_provenance()
}

/// The address of something that the kernel writes.
#[inline]
pub(super) fn write<T: ?Sized>(to: &mut T) -> usize {
    core::ptr::from_mut(to).cast::<()>().expose_provenance()
}

/// The address of a text.
#[inline]
pub(super) fn text(text: &CStr) -> usize {
    text.as_ptr().expose_provenance()
}

/// A value that the kernel keeps within 32 bits (descriptors, pids, counts).
#[inline]
pub(super) fn small(value: usize) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}
