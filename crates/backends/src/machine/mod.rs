//! The vm tier: machines by QEMU, or by Firecracker.
//!
//! # Promises
//! A machine with a kernel of its own, one read-only image, and no network device but one that leads to a broker. The emulator is the program of a run of the container
//! tier, so that what gets out of it meets that next. Nothing that was started before *go* is the caller's.
//! # Does not promise
//! A boundary in the emulator itself: on its software processor its makers give none. On KVM, which is used where a kernel of ours
//! has started on it (`host::kvm`) and without which Firecracker does not start, the boundary is the host's kernel and the emulator's
//! devices; what gets out of those meets the same sandbox, in which there is `/dev/kvm` then.

mod firecracker;
mod frames;
mod image;
mod inside;
mod link;
mod live;
mod machine_cache;
mod monitor;
mod outer;
mod prepare;
mod proof;
mod pump;
mod relay;
mod running;
mod start;
#[cfg(test)]
mod tests;
mod up;

pub use machine_cache::sweep as sweep_machines;

use policy::control::Emulator;
use policy::value::Tier;
use policy::{ClauseId, Plan, Policy, Support};

use crate::backend::{Backend, Launch, Prepared};
use crate::host::{Capabilities, Missing};
use crate::{StartError, support};

/// The vm tier by one emulator.
#[derive(Clone, Copy, Debug)]
pub struct Machines(pub Emulator);

impl Backend for Machines {
    fn tier(&self) -> Tier {
        Tier::Vm
    }

    fn name(&self) -> &'static str {
        self.0.backend()
    }

    /// QEMU has more of what can be asked for.
    fn only_by_name(&self) -> bool {
        self.0 == Emulator::Firecracker
    }

    fn probe(&self, host: &Capabilities) -> Result<(), Missing> {
        support::machine_probe(self.0, host)
    }

    fn support(&self, clause: ClauseId, policy: &Policy, host: &Capabilities) -> Support {
        support::machine(clause, self.0, policy, host)
    }

    fn prepare(&self, plan: &Plan, host: &Capabilities, launch: &Launch) -> Result<Box<dyn Prepared>, StartError> {
        Ok(Box::new(prepare::prepare(plan, host, launch)?))
    }

    /// The emulator is in a pid namespace of its own, which ends with its first process.
    fn end_left(&self, _run: &str) -> Result<usize, String> {
        Ok(0)
    }
}
