//! The gvisor tier: a kernel of its own in user space (gVisor's Sentry, by `runsc`) answers the program's system calls.
//!
//! The guest is pid 1 of a bundle that is written from the plan's controls, and reads back from the Sentry what the native
//! guest reads back from Linux. What the host holds around it, the supervisor reads in /proc of gVisor's own processes:
//! their filter, namespaces, ids and control group, and the files that they serve. Places that can be written are tmpfs of
//! the host, in a mount namespace of the run, so that their sizes are the host kernel's to hold.
//!
//! # Promises
//! No control counts that left no evidence on the side that holds it; the end takes gVisor's processes along.
//! # Does not promise
//! What gVisor cannot hold, and what is not built yet, is refused by `support`. Bugs of the Sentry meet its own filter and
//! namespaces, then the host.

mod network;
mod prepare;
mod start;
mod verify;

use policy::value::Tier;
use policy::{ClauseId, Plan, Policy, Support};

use crate::backend::{self, Backend, Launch};
use crate::host::{Capabilities, Missing};
use crate::{StartError, support};

/// gVisor by its runtime `runsc`.
#[derive(Clone, Copy, Debug)]
pub struct Gvisor;

impl Backend for Gvisor {
    fn tier(&self) -> Tier {
        Tier::Gvisor
    }

    fn name(&self) -> &'static str {
        "runsc"
    }

    fn wants_folder(&self) -> bool {
        true
    }

    fn probe(&self, host: &Capabilities) -> Result<(), Missing> {
        support::gvisor_probe(host)
    }

    fn support(&self, clause: ClauseId, policy: &Policy, host: &Capabilities) -> Support {
        support::gvisor(clause, policy, host)
    }

    fn prepare(
        &self,
        plan: &Plan,
        host: &Capabilities,
        launch: &Launch,
    ) -> Result<Box<dyn backend::Prepared>, StartError> {
        Ok(Box::new(prepare::prepare(plan, host, launch)?))
    }

    /// Its processes are in the control group that the journal names, and die with the runtime's first process.
    fn end_left(&self, _run: &str) -> Result<usize, String> {
        Ok(0)
    }
}
