//! What a program without a C library brings itself: its first instruction, its last, and functions that the compiler
//! calls by name.

use linux_raw_sys::general::__NR_exit_group;

use super::raw;

/// Makes `_start` and the panic handler of a program whose work is `$main: fn() -> i32`.
#[macro_export]
macro_rules! entry {
    ($main:path) => {
        $crate::first_instructions!(start);

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
    //! core's target for glibc has none of these, nor of those that copy and fill (`arch`).

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
