//! What enforces a plan on this host: probing, support, and the native backend.
//!
//! A backend sees the plan, never the policy document. `probe` and `support` answer what could be held; `prepare`
//! turns the plan into everything that the start needs; the start goes through types that cannot be skipped:
//! `Prepared -> Started -> Verified -> Running`, and only `Verified` has `go`.
#![forbid(unsafe_code)]

mod backend;
mod error;
mod gvisor;
mod host;
mod native;
mod oci;
mod qemu;
mod support;

pub use backend::{ALL, Backend, Prepared, Running, Started, Verified, of};
pub use error::{Shut, StartError};
pub use gvisor::{Engine, Gvisor, Known, known_faults};
pub use host::{Assumed, Capabilities, CgroupSource, Missing};
pub use native::{
    Container, Exhausted, ExhaustedResource, GROUPS, GitPart, LANGUAGE_WORD, Language, Launch, OwnProgram, Process,
    Protect, Sample, Stdio, Streams, TMP_SLOT, Trust, Unseen, hides_of_proc, keeps_of_proc, shown_of_etc, sweep_cache,
};
pub use oci::{Crun, Fault, Runtime};
pub use qemu::{Emulation, Kernel, MODULES, Qemu, find_module};
pub use support::{LANGUAGE_MODULES, unmet_rules};
