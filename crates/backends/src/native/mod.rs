//! The native backend: the kernel's own mechanisms, no daemon, no helper program, no image.
//!
//! # Promises
//! The same for root and for an ordinary user; whatever a step of the start cannot do ends the start.
//! # Does not promise
//! Protection from bugs of the kernel: see SECURITY.md.

mod blueprint;
mod capacity;
mod control;
mod devices;
mod environment;
mod etc;
mod etc_cache;
mod filter;
pub(crate) mod identity;
pub(crate) mod label;
mod landlock;
mod launch;
mod mark;
mod places;
mod prepare;
mod proc_view;
mod process;
mod readable;
mod running;
pub(crate) mod sizes;
mod source;
mod spawn;
mod start;
mod survey;
mod tree;
mod verify;
mod words;

pub use capacity::{Exhausted, ExhaustedResource};
pub use control::Control;
pub use etc_cache::sweep as sweep_cache;
pub use label::Lsm;
pub use launch::{GitPart, Launch, Protect, Stdio};
pub use mark::end_marked;
pub use prepare::Prepared;
pub use prepare::prepare;
pub use running::{Running, Sample, Streams};
pub use start::{Confined, GROUPS, Started, start};
pub use survey::Unseen;
pub use tree::TMP_SLOT;
pub use verify::Verified;

use policy::value::Tier;
use policy::{Clause, Policy, Support};

use crate::host::Capabilities;
use crate::{Backend, support};

/// The container tier.
#[derive(Clone, Copy, Debug)]
pub struct Container;

/// The process tier.
#[derive(Clone, Copy, Debug)]
pub struct Process;

impl Backend for Container {
    fn tier(&self) -> Tier {
        Tier::Container
    }

    fn name(&self) -> &'static str {
        "native"
    }

    fn support(&self, clause: &Clause<'_>, policy: &Policy, host: &Capabilities) -> Support {
        support::container(clause.id(), policy, host)
    }
}

impl Backend for Process {
    fn tier(&self) -> Tier {
        Tier::Process
    }

    fn name(&self) -> &'static str {
        "native"
    }

    fn support(&self, clause: &Clause<'_>, policy: &Policy, host: &Capabilities) -> Support {
        support::process(clause.id(), policy, host)
    }
}
