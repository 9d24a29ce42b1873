//! What enforces a plan on this host: probing, support, and the native backend.
//!
//! A backend sees the plan, never the policy document. `probe` and `support` answer what could be held; `prepare`
//! turns the plan into everything that the start needs; the start goes through types that cannot be skipped:
//! `Prepared -> Started -> Confined -> Verified -> Running`, and only `Verified` has `go`.
#![forbid(unsafe_code)]

mod error;
pub mod host;
pub mod native;
mod support;

pub use error::{Shut, StartError};
pub use host::{Assumed, Capabilities, CgroupSource, Missing};

use policy::value::Tier;
use policy::{Clause, Policy, Support};

/// What implements a tier on this host.
pub trait Backend {
    /// Its tier.
    fn tier(&self) -> Tier;

    /// Its name in plans and reports.
    fn name(&self) -> &'static str;

    /// Who would hold a clause here.
    fn support(&self, clause: &Clause<'_>, policy: &Policy, host: &Capabilities) -> Support;
}

/// The backends of this version, weakest tier first.
#[must_use]
pub fn all() -> [&'static dyn Backend; 2] {
    [&native::Process, &native::Container]
}
