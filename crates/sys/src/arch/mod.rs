//! What depends on the processor: a folder for each architecture, with the same names in it.
//!
//! A second one is a folder beside `x86_64` and its two lines below; the compiler then names what is missing.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod x86_64;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub use x86_64::*;

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!(
    "Fumehood is written for Linux on x86-64: another architecture needs a folder in `crates/sys/src/arch` with what `x86_64` has"
);

// Arguments of calls are passed as registers, which hold an address and 64 bits alike.
const _: () = assert!(usize::BITS == 64);
