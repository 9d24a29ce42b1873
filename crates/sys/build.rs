//! Reads the filter profiles, so that a start does not: `resources/seccomp` becomes constants of the library. What has no
//! profiles (the guest, the agent) builds without that and without its parser.

#[cfg(feature = "profiles")]
#[path = "build/profiles.rs"]
mod profiles;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "profiles")]
    profiles::write();
}
