//! What a program without a C library brings itself: its first instruction, its last, and four functions that the
//! compiler calls by name.

use linux_raw_sys::general::__NR_exit_group;

use super::raw;

/// Makes `_start` and the panic handler of a program whose work is `$main: fn() -> i32`.
#[macro_export]
macro_rules! entry {
    ($main:path) => {
        /// The first instruction. The kernel gives an aligned stack; a call must leave it misaligned by eight.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn _start() -> ! {
            ::core::arch::naked_asm!("xor ebp, ebp", "and rsp, -16", "call {start}", "ud2", start = sym start)
        }

        extern "C" fn start() -> ! {
            $crate::bare::start($main)
        }

        #[panic_handler]
        fn panic(_: &::core::panic::PanicInfo<'_>) -> ! {
            // Nothing in the guest panics; if it does all the same, its death is the sandbox's death.
            $crate::bare::die()
        }
    };
}

/// Runs `main` and exits with its answer.
pub fn start(main: fn() -> i32) -> ! {
    exit(main())
}

/// Ends without a word.
pub fn die() -> ! {
    exit(125)
}

/// exit_group(2).
pub fn exit(code: i32) -> ! {
    loop {
        // SAFETY: exit_group takes a number and does not return; nothing of this process is used afterwards.
        let _never = unsafe { raw::call(__NR_exit_group, [raw::int(code)]) };
    }
}

#[cfg(not(feature = "std"))]
mod by_name {
    //! core's target for glibc has none of these. Written with string instructions, as a loop in Rust would be
    //! recognised by the compiler and turned into a call of itself.
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

    /// memcmp(3).
    ///
    /// # Safety
    /// As in C: both valid for `len` bytes.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, len: usize) -> i32 {
        for at in 0..len {
            // SAFETY: `at < len`, and the caller promised `len` bytes.
            let left = unsafe { a.wrapping_add(at).read() };
            // SAFETY: `at < len`, and the caller promised `len` bytes at `b` too.
            let right = unsafe { b.wrapping_add(at).read() };
            if left != right {
                return i32::from(left).wrapping_sub(i32::from(right));
            }
        }
        0
    }

    /// bcmp(3).
    ///
    /// # Safety
    /// As in C: both valid for `len` bytes.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, len: usize) -> i32 {
        // SAFETY: the caller promised `len` valid bytes at both, which is all that memcmp demands.
        unsafe { memcmp(a, b, len) }
    }

    /// strlen(3).
    ///
    /// # Safety
    /// As in C: a NUL must follow.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn strlen(text: *const u8) -> usize {
        let mut len: usize = 0;
        // SAFETY: every byte before the NUL and the NUL itself may be read.
        while unsafe { text.wrapping_add(len).read() } != 0 {
            len = len.wrapping_add(1);
        }
        len
    }
}
