//! Builds the program inside (`payload/`) with a cargo of its own and leaves it as `OUT_DIR/agent.elf`.
//!
//! It needs other settings than everything around it: static without a loader, optimised for size even in a debug build. A
//! nested cargo is the only way to say so on stable; see the comments for what must not leak in.
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

/// Leaves out the tables that the standard library brings for unwinding.
const NO_UNWIND: &str = "../../resources/no-unwind.ld";

/// No loader, no relocations, and no tables for unwinding: nothing here unwinds.
const FLAGS: &[&str] = &[
    "-Ctarget-feature=+crt-static",
    "-Crelocation-model=static",
    "-Cforce-unwind-tables=no",
    "-Clink-arg=-Wl,--build-id=none",
    "-Clink-arg=-Wl,--gc-sections",
    "-Clink-arg=-Wl,-z,noseparate-code",
];

fn main() -> Result<(), Box<dyn Error>> {
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let sys = here.join("../sys");
    for watched in ["payload", "src", "Cargo.toml", "build.rs", NO_UNWIND] {
        println!("cargo::rerun-if-changed={}", here.join(watched).display());
    }
    for watched in ["src", "Cargo.toml"] {
        println!("cargo::rerun-if-changed={}", sys.join(watched).display());
    }
    if env::var_os("CARGO_FEATURE_EMBED").is_none() {
        return Ok(());
    }
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let manifest = write_manifest(&here, &out)?;
    // Not the outer target directory: the inner cargo would wait for the outer one's lock for ever.
    let target = out.join("payload-target");
    build(&here, &manifest, &target)?;
    fs::copy(target.join(env::var("TARGET")?).join("release/agent"), out.join("agent.elf"))?;
    Ok(())
}

fn write_manifest(here: &Path, out: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let folder = out.join("payload");
    fs::create_dir_all(&folder)?;
    let payload = here.join("payload");
    let text = fs::read_to_string(payload.join("manifest.in"))?
        .replace("@MAIN@", &payload.join("main.rs").to_string_lossy())
        .replace("@AGENT@", &here.to_string_lossy());
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
    let script = format!("-Clink-arg=-Wl,-T,{}", here.join(NO_UNWIND).display());
    let flags: Vec<&str> = FLAGS.iter().copied().chain([script.as_str()]).collect();
    // From here cargo finds the workspace's `.cargo/config.toml` (vendored sources, for one); its flags and target lose
    // against the variable and the argument.
    cargo
        .current_dir(here)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .args(["build", "--quiet", "--release", "--locked", "--target", &env::var("TARGET")?])
        .arg("--manifest-path")
        .arg(manifest)
        .arg("--target-dir")
        .arg(target);
    let status = cargo.status()?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("the agent inside does not build: cargo ended with {status}").into())
    }
}
