//! Leaves the unwind tables out of the release, an eighth of it: there a panic aborts, and nobody reads them.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=../../resources/no-unwind.ld");
    let release = std::env::var_os("PROFILE").is_some_and(|profile| profile == "release");
    if let Some(folder) = std::env::var_os("CARGO_MANIFEST_DIR").filter(|_| release) {
        let script = Path::new(&folder).join("../../resources/no-unwind.ld");
        println!("cargo::rustc-link-arg-bins=-Wl,-T,{}", script.display());
    }
}
