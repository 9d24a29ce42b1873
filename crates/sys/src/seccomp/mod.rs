//! System call filters: rules, profiles, and the programs that the kernel runs.
//!
//! *Promises*: what is not named fails with ENOSYS; a foreign architecture or an x32 number kills the process; arguments
//! are compared as wide as the kernel takes them.
//!
//! *Does not promise*: anything about what a pointer points to. Calls that take their flags in memory (`clone3`,
//! `openat2`, rings) are closed where the flags matter.

mod asked;
mod compile;
#[cfg(test)]
#[path = "../../build/conditions.rs"]
#[expect(unreachable_pub, reason = "the build script shares it")]
mod conditions;
mod install;
pub mod names;
#[cfg(feature = "profiles")]
mod profile;
pub mod rule;
#[cfg(test)]
#[cfg(feature = "profiles")]
mod tests;

pub use asked::{Listener, Question};
pub use compile::{CompileError, Instruction, Program, asking};
pub use install::apply;
#[cfg(feature = "profiles")]
pub use profile::{Profile, ProfileError, Surroundings, named, profiles};
