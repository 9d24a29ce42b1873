//! The container tier by a runtime of the Open Containers Initiative: `crun` makes namespaces, mounts and the first process of
//! a bundle that is written from the plan's controls.
//!
//! The first process is the guest. What a runtime does not do (filters, Landlock, limits, the handshake) it does as on the native
//! backend, by the same code; and the supervisor reads in `/proc`, of the guest's process and its group, what it reads there
//! of a native guest. Trees of the host are opened, judged and restricted by the supervisor and mounted for the runtime,
//! which only puts them into their places; control groups are the supervisor's alone, and the runtime sees none.
//!
//! # Promises
//! The evidence of the native backend, and that what the runtime built is what the bundle says.
//! # Does not promise
//! Protection from faults of the runtime itself, which root starts.

pub(crate) mod begin;
pub(crate) mod bundle;
mod linux;
mod prepare;
mod start;
mod verify;

use policy::value::Tier;
use policy::{ClauseId, Plan, Policy, Support};

use crate::backend::{self, Backend, Launch};
use crate::host::{Capabilities, Missing};
use crate::{StartError, support};

/// The container tier by `crun`.
#[derive(Clone, Copy, Debug)]
pub struct Crun;

impl Backend for Crun {
    fn tier(&self) -> Tier {
        Tier::Container
    }

    fn name(&self) -> &'static str {
        "crun"
    }

    fn only_by_name(&self) -> bool {
        true
    }

    fn wants_folder(&self) -> bool {
        true
    }

    fn probe(&self, host: &Capabilities) -> Result<(), Missing> {
        support::crun_probe(host)
    }

    fn support(&self, clause: ClauseId, policy: &Policy, host: &Capabilities) -> Support {
        support::crun(clause, policy, host)
    }

    fn prepare(
        &self,
        plan: &Plan,
        host: &Capabilities,
        launch: &Launch,
    ) -> Result<Box<dyn backend::Prepared>, StartError> {
        Ok(Box::new(prepare::prepare(plan, host, launch)?))
    }

    /// Its processes are in the control group that the journal names, and die with the runtime.
    fn end_left(&self, _run: &str) -> Result<usize, String> {
        Ok(0)
    }
}
