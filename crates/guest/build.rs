//! Builds the program inside (`payload/`) with a cargo of its own and leaves it as `OUT_DIR/guest.elf`.
//!
//! It needs other settings than everything around it: no std, no start files, no relocations, optimised for size even
//! in a debug build. A nested cargo is the only way to say so on stable; see the comments for what must not leak in.
#![expect(clippy::disallowed_methods, reason = "a build script is told everything through the environment")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Settings of the outer build that would change or break the inner one.
const MUST_NOT_LEAK: &[&str] = &[
    "RUSTFLAGS",
    "CARGO_BUILD_RUSTFLAGS",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "CARGO_BUILD_TARGET",
    "CARGO_TARGET_DIR",
    "CARGO_BUILD_TARGET_DIR",
];

/// Plain program headers: fewer pages to map and to fault, nothing that a loader would have to do.
const FLAGS: &[&str] = &[
    "-Crelocation-model=static",
    "-Ctarget-feature=+crt-static",
    "-Cforce-unwind-tables=no",
    "-Clink-arg=-nostartfiles",
    "-Clink-arg=-nostdlib",
    "-Clink-arg=-static",
    "-Clink-arg=-no-pie",
    "-Clink-arg=-Wl,--build-id=none",
    "-Clink-arg=-Wl,-z,noseparate-code",
    "-Clink-arg=-Wl,-z,norelro",
    "-Clink-arg=-Wl,--no-eh-frame-hdr",
];

fn main() -> Result<(), Box<dyn Error>> {
    if env::var_os("CARGO_FEATURE_EMBED").is_none() {
        return Ok(());
    }
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let sys = here.join("../sys");
    for watched in [here.join("payload"), here.join("src"), here.join("Cargo.toml"), here.join("build.rs")] {
        println!("cargo::rerun-if-changed={}", watched.display());
    }
    for watched in [sys.join("src/bare"), sys.join("src/arch"), sys.join("src/lib.rs"), sys.join("Cargo.toml")] {
        println!("cargo::rerun-if-changed={}", watched.display());
    }
    let manifest = write_manifest(&here, &sys, &out)?;
    // Not the outer target directory: the inner cargo would wait for the outer one's lock for ever.
    let target = out.join("payload-target");
    build(&here, &manifest, &target)?;
    fs::copy(target.join(env::var("TARGET")?).join("release/guest"), out.join("guest.elf"))?;
    Ok(())
}

fn write_manifest(here: &Path, sys: &Path, out: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let folder = out.join("payload");
    fs::create_dir_all(&folder)?;
    let payload = here.join("payload");
    let text = fs::read_to_string(payload.join("manifest.in"))?
        .replace("@MAIN@", &payload.join("main.rs").to_string_lossy())
        .replace("@GUEST@", &here.to_string_lossy())
        .replace("@SYS@", &sys.to_string_lossy());
    let manifest = folder.join("Cargo.toml");
    fs::write(&manifest, text)?;
    fs::copy(payload.join("lock.in"), folder.join("Cargo.lock"))?;
    Ok(manifest)
}

fn build(here: &Path, manifest: &Path, target: &Path) -> Result<(), Box<dyn Error>> {
    let mut cargo = Command::new(env::var("CARGO")?);
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        if MUST_NOT_LEAK.contains(&&*name) || name.starts_with("CARGO_PROFILE_") || name.starts_with("CARGO_FEATURE_") {
            cargo.env_remove(&*name);
        }
    }
    let sections = format!("-Clink-arg=-Wl,-T,{}", here.join("payload/sections.ld").display());
    let flags = [FLAGS, &[&sections]].concat().join("\u{1f}");
    // From here cargo finds the workspace's `.cargo/config.toml` (vendored sources, for one); its flags and target lose
    // against the variable and the argument.
    cargo
        .current_dir(here)
        .env("CARGO_ENCODED_RUSTFLAGS", flags)
        .args(["build", "--quiet", "--release", "--locked", "--target", &env::var("TARGET")?])
        .arg("--manifest-path")
        .arg(manifest)
        .arg("--target-dir")
        .arg(target);
    let status = cargo.status()?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("the program inside does not build: cargo ended with {status}").into())
    }
}
