//! Leaves out of the released program the tables for unwinding: it aborts on panic and carries no symbols, so nothing could
//! read them, and they are 2 MB of it. Tests unwind, and keep theirs.
#![expect(clippy::disallowed_methods, reason = "a build script is told everything through the environment")]

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=unwind.ld");
    let folder = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    if env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        println!("cargo::rustc-link-arg-bins=-Wl,--no-eh-frame-hdr");
        println!("cargo::rustc-link-arg-bins=-Wl,-T,{folder}/unwind.ld");
    }
}
