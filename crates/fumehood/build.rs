//! Packs the tables that only people ask for, and says how the released program is laid out: three changes to the linker's own
//! layout, which tests and debug builds keep.
//!
//! `unwind.ld` leaves out the tables for unwinding: the program aborts on panic and carries no symbols, so nothing could read
//! them, and they are 2 MB of it. Functions of the same instructions become one (`--icf`; Rust promises no two addresses for two
//! functions). `hot.ld` lays the functions of a start side by side: fewer pages to map.
#![expect(clippy::disallowed_methods, reason = "a build script is told everything through the environment")]

use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// The catalogue of attacks, in its order.
const ATTACKS: [&str; 6] = ["res", "fs", "net", "priv", "info", "pers"];

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    let folder = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let released = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    if released {
        println!("cargo::rustc-link-arg-bins=-Wl,--no-eh-frame-hdr");
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    }
    for script in ["unwind.ld", "hot.ld"] {
        println!("cargo::rerun-if-changed={script}");
        if released {
            println!("cargo::rustc-link-arg-bins=-Wl,-T,{folder}/{script}");
        }
    }
    let resources = Path::new(&folder).join("../../resources");
    pack(&[resources.join("explain.toml")], "explain.packed")?;
    pack(&ATTACKS.map(|group| resources.join(format!("attacks/{group}.toml"))), "attacks.packed")
}

/// Writes the files behind each other, deflated, for `src/packed.rs`.
fn pack(files: &[PathBuf], name: &str) -> io::Result<()> {
    let mut all = Vec::new();
    for file in files {
        println!("cargo::rerun-if-changed={}", file.display());
        all.extend(fs::read(file)?);
        all.push(b'\n');
    }
    let folder = env::var("OUT_DIR").map_err(io::Error::other)?;
    fs::write(Path::new(&folder).join(name), miniz_oxide::deflate::compress_to_vec(&all, 10))
}
