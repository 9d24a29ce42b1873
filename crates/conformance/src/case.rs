//! Cases, the cells they fill, and the count.

use policy::ClauseId;

use crate::{Fixture, Held, Wrong, check};

/// A tier of the product that some backend implements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// An interpreter.
    Language,
    /// No namespaces.
    Process,
    /// Namespaces.
    Container,
    /// Another kernel in user space.
    Gvisor,
    /// A machine of its own.
    Vm,
}

/// Who runs the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// uid 0.
    Rootful,
    /// An ordinary user without any group or capability.
    Rootless,
}

/// A backend of the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BackendId {
    /// Its tier.
    pub tier: Tier,
    /// Its name in plans and reports.
    pub name: &'static str,
}

impl BackendId {
    /// The native backend of a tier.
    #[must_use]
    pub const fn native(tier: Tier) -> Self {
        Self { tier, name: "native" }
    }

    /// Every backend of this version.
    ///
    /// # Errors
    /// One is of a tier that no case can name.
    pub fn all() -> Result<Vec<Self>, Wrong> {
        let named = |backend: &&dyn backends::Backend| match backend.tier() {
            policy::value::Tier::Language => Ok(Self { tier: Tier::Language, name: backend.name() }),
            policy::value::Tier::Process => Ok(Self { tier: Tier::Process, name: backend.name() }),
            policy::value::Tier::Container => Ok(Self { tier: Tier::Container, name: backend.name() }),
            policy::value::Tier::Gvisor => Ok(Self { tier: Tier::Gvisor, name: backend.name() }),
            policy::value::Tier::Vm => Ok(Self { tier: Tier::Vm, name: backend.name() }),
        };
        backends::ALL.iter().map(named).collect()
    }
}

impl std::fmt::Display for BackendId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} by {}", self.tier.as_str(), self.name)
    }
}

/// Python on the language tier.
pub const MONTY: &[BackendId] = &[BackendId { tier: Tier::Language, name: "monty" }];
/// WebAssembly on the language tier.
pub const WASM: &[BackendId] = &[BackendId { tier: Tier::Language, name: "wasm" }];
/// Both interpreters.
pub const INTERPRETERS: &[BackendId] =
    &[BackendId { tier: Tier::Language, name: "monty" }, BackendId { tier: Tier::Language, name: "wasm" }];
/// The native backend on both tiers.
pub const BOTH: &[BackendId] = &[BackendId::native(Tier::Process), BackendId::native(Tier::Container)];
/// The native backend on the process tier.
pub const PROCESS: &[BackendId] = &[BackendId::native(Tier::Process)];
/// The container tier where the guest builds the tree: by the native backend, and in a container of podman's.
pub const CONTAINER: &[BackendId] = &[BackendId::native(Tier::Container), BY_PODMAN];

/// gVisor by `runsc`.
pub const GVISOR: &[BackendId] = &[RUNSC];
/// Every backend of the process and container tiers.
pub const LINUX: &[BackendId] =
    &[BackendId::native(Tier::Process), BackendId::native(Tier::Container), BY_CRUN, BY_PODMAN];
/// Every backend of the container tier.
pub const CONTAINERS: &[BackendId] = &[BackendId::native(Tier::Container), BY_CRUN, BY_PODMAN];
/// The runtime `crun` on the container tier.
pub const CRUN: &[BackendId] = &[BY_CRUN];
/// podman's service on the container tier.
pub const PODMAN: &[BackendId] = &[BY_PODMAN];
/// Every backend.
pub const EVERY: &[BackendId] =
    &[BackendId::native(Tier::Process), BackendId::native(Tier::Container), BY_CRUN, BY_PODMAN, RUNSC];
/// Those that show a tree of their own.
pub const TREES: &[BackendId] = &[BackendId::native(Tier::Container), BY_CRUN, BY_PODMAN, RUNSC];

const BY_CRUN: BackendId = BackendId { tier: Tier::Container, name: "crun" };
const BY_PODMAN: BackendId = BackendId { tier: Tier::Container, name: "podman" };
const RUNSC: BackendId = BackendId { tier: Tier::Gvisor, name: "runsc" };
/// A machine by QEMU.
pub const VM: &[BackendId] = &[BackendId { tier: Tier::Vm, name: "qemu" }];

impl Tier {
    /// As policies spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Language => "language",
            Self::Process => "process",
            Self::Container => "container",
            Self::Gvisor => "gvisor",
            Self::Vm => "vm",
        }
    }
}

impl Who {
    /// Both callers.
    pub const ALL: [Self; 2] = [Self::Rootful, Self::Rootless];

    /// For people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rootful => "rootful",
            Self::Rootless => "rootless",
        }
    }
}

/// What is to hold.
#[derive(Clone, Copy, Debug)]
pub enum Cell {
    /// The probe is stopped inside, its control is not.
    Enforced(fn(&Fixture) -> Held),
    /// With these values (`clause=value`) the run is refused with 126, for this reason, and nothing is run.
    Refused(&'static [&'static str], &'static str),
    /// Enforced where this cgroup controller can be used, else refused for this reason with these values.
    Controller(&'static str, &'static [&'static str], &'static str, fn(&Fixture) -> Held),
}

/// One sentence about one clause.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Clause.
    pub clause: ClauseId,
    /// Of which backends.
    pub backends: &'static [BackendId],
    /// What holds.
    pub sentence: &'static str,
    /// The proof.
    pub cell: Cell,
}

/// What a cell turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The probe was stopped.
    Enforced,
    /// The run was refused.
    Refused,
}

/// The count at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Cells where the probe was stopped.
    pub enforced: usize,
    /// Cells where the run was refused.
    pub refused: usize,
    /// Cells that this host cannot show.
    pub skipped: usize,
    /// Cells that do not hold.
    pub failed: usize,
}

impl Case {
    /// Proves it.
    ///
    /// # Errors
    /// Why it does not hold.
    pub fn prove(&self, scene: &Fixture) -> Result<Found, Wrong> {
        // The tier is root's: for everybody else each of its cells is that refusal.
        if (scene.tier, scene.who) == (Tier::Gvisor, Who::Rootless) {
            return refused(scene, &[], "gvisor/needs-root").map(|()| Found::Refused);
        }
        if (scene.backend(), scene.who) == (BY_CRUN, Who::Rootless) {
            return refused(scene, &[], "crun/needs-root").map(|()| Found::Refused);
        }
        if (scene.backend(), scene.who) == (BY_PODMAN, Who::Rootless) {
            return refused(scene, &[], "podman/needs-root").map(|()| Found::Refused);
        }
        match self.cell {
            Cell::Enforced(proof) => proof(scene).map(|()| Found::Enforced),
            Cell::Refused(values, id) => refused(scene, values, id).map(|()| Found::Refused),
            Cell::Controller(name, values, id, proof) => {
                let planned = scene.plan(values)?;
                // Refused for something else, the proof names what that tier lacks beside it.
                if planned.code == Some(126) && planned.refusals().iter().any(|found| found == id) {
                    // Root on a host that has the controller must get it: a refusal would be a lost capability.
                    let there = backends::Capabilities::probe().controller(name).is_some();
                    check(scene.who == Who::Rootless || !there, || {
                        format!("`{name}` is there and was refused: {}", planned.said())
                    })?;
                    return refused(scene, values, id).map(|()| Found::Refused);
                }
                proof(scene).map(|()| Found::Enforced)
            }
        }
    }
}

/// A module that does nothing.
const WAT: &str = r#"(module (func (export "_start")))"#;

/// The run is refused with the reason, and its command leaves no mark.
fn refused(scene: &Fixture, values: &[&str], id: &str) -> Held {
    let mark = scene.work().join("ran");
    let script = format!("touch {}", mark.display());
    let ended = match scene.tier {
        crate::Tier::Language => scene.interpreted(values, "print('ran')", WAT)?,
        crate::Tier::Process | crate::Tier::Container | crate::Tier::Gvisor | crate::Tier::Vm => {
            scene.run(&Fixture::values(values), &["/bin/sh", "-c", &script])?
        }
    };
    let ids = ended.refusals();
    check(ended.code == Some(126) && ids.iter().any(|found| found == id), || {
        format!("expected 126 with `{id}`, got {:?} with {ids:?}: {}", ended.code, ended.said())
    })?;
    let printed = ended.out().lines().any(|line| line == "ran");
    check(!crate::fixture::there(&mark) && !printed, || "it was refused and ran all the same".to_owned())
}
