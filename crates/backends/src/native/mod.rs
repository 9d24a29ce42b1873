//! The native backend: the kernel's own mechanisms, no daemon, no helper program, no image.
//!
//! # Promises
//! The same for root and for an ordinary user; whatever a step of the start cannot do ends the start.
//! # Does not promise
//! Protection from bugs of the kernel: see SECURITY.md.

pub(crate) mod blueprint;
pub(crate) mod capacity;
pub(crate) mod control;
pub(crate) mod devices;
pub(crate) mod environment;
mod etc_cache;
pub(crate) mod filter;
mod folders;
pub(crate) mod handed;
mod image;
mod interpreter;
mod landlock;
mod links;
mod mark;
mod owner;
mod places;
pub(crate) mod prepare;
mod proc_view;
mod process;
mod readable;
pub(crate) mod running;
pub(crate) mod source;
pub(crate) mod spawn;
pub(crate) mod start;
mod survey;
pub(crate) mod tree;
pub(crate) mod verify;
mod words;

pub use etc_cache::sweep as sweep_cache;
pub use filter::needs_call;
pub use interpreter::WORD as LANGUAGE_WORD;
pub use proc_view::{hides_of_proc, keeps_of_proc};
pub use start::GROUPS;
pub use tree::TMP_SLOT;

use policy::control::Source;
use policy::value::Tier;
use policy::{ClauseId, Plan, Policy, Support};

use crate::backend::{self, Backend, Launch};
use crate::host::{Capabilities, Missing};
use crate::{StartError, support};

/// The container tier.
#[derive(Clone, Copy, Debug)]
pub struct Container;

/// The process tier.
#[derive(Clone, Copy, Debug)]
pub struct Process;

/// The language tier: an interpreter of ours as the program of a run of the process tier.
#[derive(Clone, Copy, Debug)]
pub struct Language(pub Source);

/// Its name, on both tiers.
const NAME: &str = "native";

/// A plan, prepared.
fn prepared(plan: &Plan, host: &Capabilities, launch: &Launch) -> Result<Box<dyn backend::Prepared>, StartError> {
    Ok(Box::new(prepare::prepare(plan, host, launch)?))
}

impl Backend for Container {
    fn tier(&self) -> Tier {
        Tier::Container
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn probe(&self, host: &Capabilities) -> Result<(), Missing> {
        support::container_probe(host)
    }

    fn support(&self, clause: ClauseId, policy: &Policy, host: &Capabilities) -> Support {
        support::container(clause, policy, host)
    }

    fn prepare(
        &self,
        plan: &Plan,
        host: &Capabilities,
        launch: &Launch,
    ) -> Result<Box<dyn backend::Prepared>, StartError> {
        prepared(plan, host, launch)
    }

    /// The end of its first process takes its pid namespace along.
    fn end_left(&self, _run: &str) -> Result<usize, String> {
        Ok(0)
    }
}

impl Backend for Process {
    fn tier(&self) -> Tier {
        Tier::Process
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn probe(&self, host: &Capabilities) -> Result<(), Missing> {
        support::process_probe(host)
    }

    fn support(&self, clause: ClauseId, policy: &Policy, host: &Capabilities) -> Support {
        support::process(clause, policy, host)
    }

    fn prepare(
        &self,
        plan: &Plan,
        host: &Capabilities,
        launch: &Launch,
    ) -> Result<Box<dyn backend::Prepared>, StartError> {
        prepared(plan, host, launch)
    }

    fn end_left(&self, run: &str) -> Result<usize, String> {
        mark::end_marked(run)
    }
}

impl Backend for Language {
    fn tier(&self) -> Tier {
        Tier::Language
    }

    fn name(&self) -> &'static str {
        self.0.backend()
    }

    fn probe(&self, host: &Capabilities) -> Result<(), Missing> {
        support::process_probe(host)
    }

    fn support(&self, clause: ClauseId, policy: &Policy, host: &Capabilities) -> Support {
        support::language(clause, policy, host, self.0)
    }

    fn prepare(
        &self,
        plan: &Plan,
        host: &Capabilities,
        launch: &Launch,
    ) -> Result<Box<dyn backend::Prepared>, StartError> {
        prepared(plan, host, launch)
    }

    fn end_left(&self, run: &str) -> Result<usize, String> {
        mark::end_marked(run)
    }
}
