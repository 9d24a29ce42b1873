//! Control files: what git, editors, shells and agents read without being asked, and so what a run must not plant.
//!
//! Promises: in a `rw` workspace each protected path that exists is in [`ProtectPlan::binds`] with its parents in `pins`,
//! each missing one in `stubs` or `watch`; nothing is followed through a symbolic link; [`Hold`] notices that somebody
//! outside took a mount away; [`check`] finds what slipped in and puts it aside. Does not promise: nested repositories in
//! `rw` - the plan names them in `nested`.
//! Must not: mount anything. The plan is a description for a backend.

mod check;
mod git;
mod hold;
mod links;
mod list;
mod plan;
#[cfg(test)]
mod tests;

pub use check::{Slipped, check};
pub use git::{GitElsewhere, GitProblem};
pub use hold::Hold;
pub use list::{List, Marked, Missing, Protected, Shape, list};
pub use plan::{Bind, ProtectPlan, Seen, Stub, Watch, plan};
