//! Of what cases speak: tiers, their backends, and callers.

use crate::CaseError;

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
    pub fn all() -> Result<Vec<Self>, CaseError> {
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
/// JavaScript on the language tier.
pub const QUICKJS: &[BackendId] = &[BackendId { tier: Tier::Language, name: "quickjs" }];
/// The languages of the language tier that have variables, and no WASI.
pub const SCRIPTS: &[BackendId] =
    &[BackendId { tier: Tier::Language, name: "monty" }, BackendId { tier: Tier::Language, name: "quickjs" }];
/// WebAssembly on the language tier.
pub const WASM: &[BackendId] = &[BackendId { tier: Tier::Language, name: "wasm" }];
/// Every interpreter.
pub const INTERPRETERS: &[BackendId] = &[
    BackendId { tier: Tier::Language, name: "monty" },
    BackendId { tier: Tier::Language, name: "quickjs" },
    BackendId { tier: Tier::Language, name: "wasm" },
];
/// Interpreters that count calls.
pub const COUNTING: &[BackendId] =
    &[BackendId { tier: Tier::Language, name: "monty" }, BackendId { tier: Tier::Language, name: "wasm" }];
/// The native backend on both tiers.
pub const BOTH: &[BackendId] = &[BackendId::native(Tier::Process), BackendId::native(Tier::Container)];
/// Both tiers of the native backend, and the containers of engines, in which its guest works.
pub const GUEST: &[BackendId] =
    &[BackendId::native(Tier::Process), BackendId::native(Tier::Container), BY_PODMAN, BY_DOCKER];
/// The native backend on the process tier.
pub const PROCESS: &[BackendId] = &[BackendId::native(Tier::Process)];
/// The container tier where the guest builds the tree: by the native backend, and in a container of an engine's.
pub const CONTAINER: &[BackendId] = &[BackendId::native(Tier::Container), BY_PODMAN, BY_DOCKER];

/// gVisor by `runsc`.
pub const GVISOR: &[BackendId] = &[RUNSC];
/// Every backend of the process and container tiers.
pub const LINUX: &[BackendId] =
    &[BackendId::native(Tier::Process), BackendId::native(Tier::Container), BY_CRUN, BY_PODMAN, BY_DOCKER];
/// Every backend of the container tier.
pub const CONTAINERS: &[BackendId] = &[BackendId::native(Tier::Container), BY_CRUN, BY_PODMAN, BY_DOCKER];
/// Every backend beside whose sandbox a broker can stand.
pub const BROKERED: &[BackendId] = &[BackendId::native(Tier::Container), BY_CRUN, BY_PODMAN, BY_DOCKER, RUNSC];
/// The runtime `crun` on the container tier.
pub const CRUN: &[BackendId] = &[BY_CRUN];
/// podman's service on the container tier.
pub const PODMAN: &[BackendId] = &[BY_PODMAN];
/// Docker's daemon on the container tier.
pub const DOCKER: &[BackendId] = &[BY_DOCKER];
/// Every backend.
pub const EVERY: &[BackendId] =
    &[BackendId::native(Tier::Process), BackendId::native(Tier::Container), BY_CRUN, BY_PODMAN, BY_DOCKER, RUNSC];
/// Those that show a tree of their own.
pub const TREES: &[BackendId] = &[BackendId::native(Tier::Container), BY_CRUN, BY_PODMAN, BY_DOCKER, RUNSC];

pub(crate) const BY_CRUN: BackendId = BackendId { tier: Tier::Container, name: "crun" };
pub(crate) const BY_DOCKER: BackendId = BackendId { tier: Tier::Container, name: "docker" };
pub(crate) const BY_PODMAN: BackendId = BackendId { tier: Tier::Container, name: "podman" };
const RUNSC: BackendId = BackendId { tier: Tier::Gvisor, name: "runsc" };
/// Machines by each emulator.
pub const VM: &[BackendId] = &[BY_QEMU, BY_FIRECRACKER];
/// Machines that can have a network.
pub const QEMU: &[BackendId] = &[BY_QEMU];
/// Machines that have none.
pub const FIRECRACKER: &[BackendId] = &[BY_FIRECRACKER];
const BY_QEMU: BackendId = BackendId { tier: Tier::Vm, name: "qemu" };
const BY_FIRECRACKER: BackendId = BackendId { tier: Tier::Vm, name: "firecracker" };

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
