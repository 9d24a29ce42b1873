//! What only one processor architecture has: a folder or file for each, with the same names in it.

#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "x86_64")]
pub use x86_64::*;

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the attacks are written for x86-64: another architecture needs a module beside `arch/x86_64.rs`");
