//! The container tier by an engine that others run already: podman's service or Docker's daemon makes the first process of a container,
//! and the guest does in it what it does on the native backend.
//!
//! podman makes the namespaces and the ids too, and its first process is the guest. Docker's interface has no user namespace for one
//! container: there the first process has nothing, and makes the namespaces, in which a copy of it is the guest; the ids are the
//! supervisor's to map. The guest comes in by a socket in its root, and by that it is handed every tree that the plan
//! shows, opened and judged by the supervisor: the engine is told of none of them, and what it mounts by itself is left behind
//! by the guest's own pivot_root. Control groups are the supervisor's, in which it puts the guest before it is told anything.
//!
//! # Promises
//! The evidence of the native backend, and that the container is the one that was asked for, by what the engine says of it and
//! by what the kernel says of its process.
//! # Does not promise
//! Protection from faults of the engine and its runtime, which are root.

mod container;
mod docker;
mod docker_image;
mod podman;
mod prepare;
mod start;
mod verify;

use policy::value::Tier;
use policy::{ClauseId, Plan, Policy, Support};

use crate::backend::{self, Backend};
use crate::host::{Capabilities, Missing};
use crate::{Launch, StartError, support};

use prepare::Maker;

/// The container tier by one of them.
#[derive(Clone, Copy, Debug)]
pub enum EngineBackend {
    /// podman's service.
    Podman,
    /// Docker's daemon.
    Docker,
}

impl EngineBackend {
    const fn row(self) -> &'static support::EngineRow {
        match self {
            Self::Podman => &support::PODMAN,
            Self::Docker => &support::DOCKER,
        }
    }
}

impl Backend for EngineBackend {
    fn tier(&self) -> Tier {
        Tier::Container
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Podman => "podman",
            Self::Docker => "docker",
        }
    }

    fn only_by_name(&self) -> bool {
        true
    }

    fn wants_folder(&self) -> bool {
        true
    }

    fn probe(&self, host: &Capabilities) -> Result<(), Missing> {
        support::engine_probe(self.row(), host)
    }

    fn support(&self, clause: ClauseId, policy: &Policy, host: &Capabilities) -> Support {
        support::engine(self.row(), clause, policy, host)
    }

    fn prepare(
        &self,
        plan: &Plan,
        host: &Capabilities,
        launch: &Launch,
    ) -> Result<Box<dyn backend::Prepared>, StartError> {
        let maker = match self {
            Self::Podman => Maker::podman(host)?,
            Self::Docker => Maker::docker(host)?,
        };
        Ok(Box::new(prepare::prepare(plan, host, launch, maker)?))
    }

    /// Its container, which carries the run's label.
    fn end_left(&self, run: &str) -> Result<usize, String> {
        match self {
            Self::Podman => container::end_podmans(run),
            Self::Docker => container::end_dockers(run),
        }
    }
}
