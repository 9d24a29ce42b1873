//! Copying and filling memory with string instructions: a loop in Rust would be recognised by the compiler and turned into
//! a call of itself.

use core::arch::asm;

/// memcpy(3).
///
/// # Safety
/// As in C: both valid for `len` bytes, not overlapping.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    // SAFETY: the caller promised `len` bytes on both sides; the direction flag is clear by the ABI.
    unsafe {
        asm!("rep movsb", inout("rcx") len => _, inout("rdi") to => _, inout("rsi") from => _,
             options(nostack, preserves_flags));
    }
    to
}

/// memmove(3).
///
/// # Safety
/// As in C: both valid for `len` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    if to.addr().wrapping_sub(from.addr()) >= len {
        // SAFETY: `to` does not begin inside `from`, so that copying forwards reads each byte before it is overwritten.
        unsafe { memcpy(to, from, len) };
    } else {
        // SAFETY: backwards from the last byte, which exists since len > 0 here; the flag is cleared again.
        unsafe {
            asm!("std", "rep movsb", "cld", inout("rcx") len => _,
                 inout("rdi") to.wrapping_add(len).wrapping_sub(1) => _,
                 inout("rsi") from.wrapping_add(len).wrapping_sub(1) => _, options(nostack));
        }
    }
    to
}

/// memset(3).
///
/// # Safety
/// As in C: valid for `len` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: i32, len: usize) -> *mut u8 {
    // SAFETY: the caller promised `len` bytes.
    unsafe {
        asm!("rep stosb", inout("rcx") len => _, inout("rdi") to => _, in("eax") byte,
             options(nostack, preserves_flags));
    }
    to
}
