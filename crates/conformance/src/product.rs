//! The binary under test.
//!
//! `$FUMEHOOD_BIN` names it; without that it is built by `cargo build -p fumehood` into the folder where this test's own
//! binary lies, once per test process, so that a plain `cargo test -p fumehood-conformance` never tests an old one.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use sys::command::Command;
use sys::pidfd::End;

static BINARY: OnceLock<Result<PathBuf, String>> = OnceLock::new();

/// The path of the binary.
///
/// # Errors
/// It does not build; in the compiler's words.
pub fn binary() -> Result<&'static Path, crate::CaseError> {
    let found = BINARY.get_or_init(|| match std::env::var_os("FUMEHOOD_BIN") {
        Some(path) => Ok(path.into()),
        None => build().map_err(|error| error.to_string()),
    });
    found.as_deref().map_err(|error| error.clone().into())
}

fn build() -> Result<PathBuf, crate::CaseError> {
    // .../TARGET/debug/deps/clauses-HASH
    let own = std::env::current_exe()?;
    let profile = own.parent().and_then(Path::parent).ok_or("the test binary lies in no target folder")?;
    let target = profile.parent().and_then(Path::parent).ok_or("the test binary lies in no target folder")?;
    let mut cargo = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--package", "fumehood", "--bin", "fumehood"])
        .directory(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .env("CARGO_TARGET_DIR", target);
    // What cargo says of this test's own package would build again whatever asks for it.
    let of_this_test =
        |name: &str| ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_"].iter().any(|it| name.starts_with(it));
    for (name, value) in std::env::vars_os() {
        if let Some(name) = name.to_str().filter(|name| *name != "CARGO_TARGET_DIR" && !of_this_test(name)) {
            cargo = cargo.env(name, value);
        }
    }
    if profile.ends_with("release") {
        cargo = cargo.arg("--release");
    }
    let built = cargo.output(b"", 1 << 16, Duration::from_secs(1500))?;
    if built.end != End::Exited(0) {
        return Err(format!("building the product failed: {}", String::from_utf8_lossy(&built.stderr)).into());
    }
    Ok(profile.join("fumehood"))
}
