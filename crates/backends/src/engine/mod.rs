//! The container tier by an engine that others run already: podman's service makes the namespaces, the ids and the first
//! process of a container, and the guest does in it what it does on the native backend.
//!
//! The first process is the guest. It comes in by a socket in its root, and by that it is handed every tree that the plan
//! shows, opened and judged by the supervisor: the engine is told of none of them, and what it mounts by itself is left behind
//! by the guest's own pivot_root. Control groups are the supervisor's, in which it puts the guest before it is told anything.
//!
//! # Promises
//! The evidence of the native backend, and that the container is the one that was asked for, by what the engine says of it and
//! by what the kernel says of its process.
//! # Does not promise
//! Protection from faults of the engine and its runtime, which are root.

mod container;
mod prepare;
mod start;
mod verify;

use policy::value::Tier;
use policy::{ClauseId, Plan, Policy, Support};

use crate::backend::{self, Backend};
use crate::host::{Capabilities, Missing};
use crate::{Launch, StartError, support};

/// The container tier by podman's service.
#[derive(Clone, Copy, Debug)]
pub struct Podman;

impl Backend for Podman {
    fn tier(&self) -> Tier {
        Tier::Container
    }

    fn name(&self) -> &'static str {
        "podman"
    }

    fn only_by_name(&self) -> bool {
        true
    }

    fn wants_folder(&self) -> bool {
        true
    }

    fn probe(&self, host: &Capabilities) -> Result<(), Missing> {
        support::podman_probe(host)
    }

    fn support(&self, clause: ClauseId, policy: &Policy, host: &Capabilities) -> Support {
        support::podman(clause, policy, host)
    }

    fn prepare(
        &self,
        plan: &Plan,
        host: &Capabilities,
        launch: &Launch,
    ) -> Result<Box<dyn backend::Prepared>, StartError> {
        Ok(Box::new(prepare::prepare(plan, host, launch)?))
    }

    /// Its container, which carries the run's label.
    fn end_left(&self, run: &str) -> Result<usize, String> {
        container::end_labelled(run)
    }
}
