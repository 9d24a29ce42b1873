//! What enforces a plan on this host: probing, support, and the native backend.
//!
//! A backend sees the plan, never the policy document. `probe` and `support` answer what could be held; `prepare`
//! turns the plan into everything that the start needs; the start goes through types that cannot be skipped:
//! `Prepared -> Started -> Verified -> Running`, and only `Verified` has `go`.
#![forbid(unsafe_code)]

mod all;
mod backend;
mod cpio;
mod engine;
mod error;
mod etc;
mod gvisor;
mod host;
mod identity;
mod label;
mod machine;
mod native;
mod oci;
mod sizes;
mod support;
mod trust;

pub use all::{ALL, of};
#[cfg(feature = "mutation")]
pub use backend::Mutation;
pub use backend::{
    Backend, Exhausted, ExhaustedResource, FoundPaths, GitPart, Killer, Launch, Memory, OwnProgram, Prepared, Protect,
    Remembered, Running, Sample, Started, Stdio, Streams, Trust, Unseen, Verified,
};
pub use engine::EngineBackend;
pub use error::{Shut, StartError};
pub use etc::{names_resolver, shown as shown_of_etc};
pub use gvisor::Gvisor;
pub use host::{
    Assumed, CallerServices, Capabilities, CgroupSource, Daemon, DockerClient, Emulation, Engine, FIRECRACKER_VARIABLE,
    Fault, Kernel, KvmRecord, MODULES, Missing, Runtime, Service, find_module, kvm_file,
};
pub use machine::{Machines, sweep_machines};
pub use native::{
    Container, GROUPS, LANGUAGE_WORD, Language, Process, TMP_SLOT, hides_of_proc, keeps_of_proc, needs_call,
    sweep_cache,
};
pub use oci::Crun;
pub use support::{LANGUAGE_MODULES, unmet_rules, unshown_program};
pub use trust::{certificates_of, hashed_certificates_of, host_has_certificates, system_stores};
