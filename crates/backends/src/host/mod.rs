//! What this host can do: cheap questions that leave no trace, asked once per run.
//!
//! Nothing here is trusted to *enforce*: the plan is made of these answers, and the posture that is read back before
//! the payload starts proves them.

mod crun;
mod devices;
pub(crate) mod docker;
mod docker_client;
pub(crate) mod engine;
mod faults;
mod firecracker;
mod kernel;
mod kvm;
pub(crate) mod podman;
mod program;
mod qemu;
mod runsc;

pub use crun::Runtime;
pub use docker::Daemon;
pub use docker_client::DockerClient;
pub use faults::Fault;
pub use firecracker::FIRECRACKER_VARIABLE;
pub use kernel::{Kernel, MODULES, find_module};
pub use kvm::{KvmRecord, kvm_file};
pub use podman::Service;
pub use qemu::Emulation;
pub(crate) use qemu::mke2fs;
pub use runsc::Engine;

use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use policy::control::Emulator;
use policy::value::{Policy, Sockets};

use crate::label::Lsm;

/// How a file is opened that somebody else may have put there: `O_NOFOLLOW | O_NONBLOCK`.
pub(crate) const CAREFUL: i32 = 0o400_000 | 0o4000;
/// How long the service manager may take to hand over a group.
const DELEGATION: Duration = Duration::from_secs(2);

/// The leaf of a group that was handed over, where this process stays.
const SUPERVISOR: &str = "supervisor";

/// Something that the host lacks, and the exact remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Stable id for `doctor` and `explain`.
    pub id: &'static str,
    /// Why it does not work.
    pub why: String,
    /// The setting or command that makes it work.
    pub fix: String,
}

/// What a probe of the host found.
#[derive(Debug)]
pub struct Capabilities {
    /// Effective user id of the supervisor.
    pub euid: u32,
    /// Effective group id of the supervisor.
    pub egid: u32,
    /// Kernel release as `uname` says it.
    pub release: String,
    /// Major and minor number of the release.
    pub kernel: (u32, u32),
    /// Landlock ABI; 0 = none.
    pub landlock: u32,
    /// Supplementary groups, without the group itself.
    groups: Vec<u32>,
    manager: Option<Manager>,
    given: OnceLock<CgroupSource>,
    time_namespace: OnceLock<bool>,
    overlay: OnceLock<bool>,
    runsc: OnceLock<Result<Engine, Missing>>,
    crun: OnceLock<Result<Runtime, Missing>>,
    podman: OnceLock<Result<Service, Missing>>,
    docker: OnceLock<Result<Daemon, Missing>>,
    docker_client: DockerClient,
    assumed: Option<Assumed>,
    proc: OnceLock<Result<(), Missing>>,
    namespaces: OnceLock<Result<(), Missing>>,
    groups_here: OnceLock<Result<sys::cgroup::Hierarchies, String>>,
    machine: OnceLock<Result<Emulation, Missing>>,
    firecracker: OnceLock<Result<Emulation, Missing>>,
    /// Where the caller says that it is.
    firecracker_at: Option<PathBuf>,
    devices: devices::Places,
    kvm: kvm::Gate,
    /// Others than those, when the service manager gave some.
    groups_given: OnceLock<Option<Result<sys::cgroup::Hierarchies, String>>>,
}

/// Where the control groups come from that this process may make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CgroupSource {
    /// There are none.
    Nowhere,
    /// The caller's own group, or one above it.
    Own,
    /// The caller's own group, which the service manager gave to it alone (`Delegate=yes`).
    Delegated,
    /// A scope of its own, which the user's service manager started for this process.
    Manager,
    /// There are none, and the user's service manager was asked: its answer, or why it was not even asked.
    Refused(String),
}

impl CgroupSource {
    /// A word for it.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Nowhere | Self::Refused(_) => "none",
            Self::Own => "own-group",
            Self::Delegated => "delegated-group",
            Self::Manager => "service-manager",
        }
    }
}

/// What the caller's environment says of services that may be asked.
#[derive(Clone, Debug, Default)]
pub struct CallerServices {
    /// The socket of the user's message bus (`$XDG_RUNTIME_DIR/bus`).
    pub bus: Option<PathBuf>,
    /// Which daemon the caller's client of Docker would ask.
    pub docker: DockerClient,
    /// The caller's state folder, where it is kept whether machines run on KVM.
    pub state: Option<PathBuf>,
    /// Where Firecracker is, if it is in none of the folders of programs ([`FIRECRACKER_VARIABLE`]).
    pub firecracker: Option<PathBuf>,
    /// Machines by this emulator are tried on KVM, whatever is kept of it.
    pub tries_kvm: Option<Emulator>,
}

/// The service manager that may hand over a group.
#[derive(Clone, Debug)]
struct Manager {
    /// The socket of the user's message bus.
    bus: Option<PathBuf>,
}

/// What a host that is only spoken of has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assumed {
    /// Namespaces and every controller of control groups.
    Groups,
    /// Namespaces, and no control group that could be used.
    NoGroups,
}

impl Capabilities {
    /// A host that is not asked but assumed, for pages that must read the same everywhere: an ordinary user on a kernel
    /// with all that this version can use.
    #[must_use]
    pub fn assumed(assumed: Assumed) -> Self {
        Self {
            euid: 1000,
            egid: 1000,
            release: "6.12".to_owned(),
            kernel: (6, 12),
            landlock: 6,
            groups: Vec::new(),
            manager: None,
            given: OnceLock::new(),
            time_namespace: OnceLock::from(true),
            overlay: OnceLock::new(),
            runsc: OnceLock::from(Ok(Engine::assumed())),
            crun: OnceLock::from(Ok(Runtime::assumed())),
            podman: OnceLock::from(Ok(Service::assumed())),
            docker: OnceLock::from(Ok(Daemon::assumed())),
            docker_client: DockerClient::default(),
            assumed: Some(assumed),
            proc: OnceLock::new(),
            namespaces: OnceLock::new(),
            groups_here: OnceLock::new(),
            machine: OnceLock::new(),
            firecracker: OnceLock::new(),
            firecracker_at: None,
            devices: devices::Places::of_host(),
            kvm: kvm::Gate::default(),
            groups_given: OnceLock::new(),
        }
    }

    /// Asks the host, with a service manager that may hand over a control group, or has done so.
    ///
    /// The message bus is used only for an ordinary user, only when a limit is asked for that no group of the caller's own can hold,
    /// and then at most once. Another Docker than root's own of this host is refused where it is asked for.
    #[must_use]
    pub fn probe_with(services: CallerServices) -> Self {
        let CallerServices { bus, docker, state, firecracker, tries_kvm } = services;
        let kvm = kvm::Gate::new(state, tries_kvm);
        let manager = Some(Manager { bus });
        Self { manager, docker_client: docker, firecracker_at: firecracker, kvm, ..Self::probe() }
    }

    /// Asks the host.
    #[must_use]
    pub fn probe() -> Self {
        let release = sys::caller::kernel_release();
        let kernel = kernel::version(&release);
        Self {
            euid: sys::caller::euid(),
            egid: sys::caller::egid(),
            kernel,
            landlock: sys::landlock::abi(),
            groups: sys::caller::groups(),
            release,
            manager: None,
            given: OnceLock::new(),
            time_namespace: OnceLock::new(),
            overlay: OnceLock::new(),
            runsc: OnceLock::new(),
            crun: OnceLock::new(),
            podman: OnceLock::new(),
            docker: OnceLock::new(),
            docker_client: DockerClient::default(),
            assumed: None,
            proc: OnceLock::new(),
            namespaces: OnceLock::new(),
            groups_here: OnceLock::new(),
            machine: OnceLock::new(),
            firecracker: OnceLock::new(),
            firecracker_at: None,
            devices: devices::Places::of_host(),
            kvm: kvm::Gate::default(),
            groups_given: OnceLock::new(),
        }
    }

    /// Supplementary groups that a run keeps: root drops its own, and nobody else may.
    #[must_use]
    pub fn kept_groups(&self) -> &[u32] {
        if self.root() { &[] } else { &self.groups }
    }

    /// Whether the supervisor is root here.
    #[must_use]
    pub const fn root(&self) -> bool {
        self.euid == 0
    }

    /// Whether /proc is there and shows processes under the numbers that we see them by: the posture of every sandbox is
    /// read from it, and another's would be read, or written to, if it were that of another pid namespace.
    ///
    /// # Errors
    /// What is missing, and the remedy.
    pub fn proc(&self) -> Result<(), Missing> {
        if self.assumed.is_some() { Ok(()) } else { self.proc.get_or_init(own_proc).clone() }
    }

    /// Whether user, mount, pid, net, ipc, uts and cgroup namespaces can be made.
    ///
    /// # Errors
    /// What is missing, and the remedy.
    pub fn namespaces(&self) -> Result<(), Missing> {
        if self.assumed.is_some() {
            return Ok(());
        }
        self.namespaces.get_or_init(|| namespaces(self.root())).clone()
    }

    /// What emulates machines here, and the kernel that was prepared for them.
    ///
    /// # Errors
    /// What is missing, and the remedy.
    pub fn machine(&self, emulator: Emulator) -> Result<&Emulation, Missing> {
        let found = match emulator {
            Emulator::Qemu => self.machine.get_or_init(|| match self.assumed {
                Some(_) => Ok(Emulation::assumed()),
                None => Emulation::probe(),
            }),
            Emulator::Firecracker => self.firecracker.get_or_init(|| match self.assumed {
                Some(_) => Ok(firecracker::assumed()),
                None => firecracker::probe(self.firecracker_at.as_deref()),
            }),
        };
        found.as_ref().map_err(Missing::clone)
    }

    /// gVisor's runtime, which is looked for and asked once.
    ///
    /// # Errors
    /// What is missing, and the remedy.
    pub fn runsc(&self) -> Result<&Engine, Missing> {
        self.runsc.get_or_init(Engine::find).as_ref().map_err(Clone::clone)
    }

    /// The runtime `crun`, which is looked for and asked once.
    ///
    /// # Errors
    /// What is missing, and the remedy.
    pub fn crun(&self) -> Result<&Runtime, Missing> {
        self.crun.get_or_init(Runtime::find).as_ref().map_err(Clone::clone)
    }

    /// podman's service, which is looked for and asked once.
    ///
    /// # Errors
    /// What is missing, and the remedy.
    pub fn podman(&self) -> Result<&Service, Missing> {
        self.podman.get_or_init(Service::find).as_ref().map_err(Clone::clone)
    }

    /// Docker's daemon, which is looked for and asked once.
    ///
    /// # Errors
    /// What is missing, and the remedy.
    pub fn docker(&self) -> Result<&Daemon, Missing> {
        self.docker.get_or_init(|| Daemon::find(&self.docker_client)).as_ref().map_err(Clone::clone)
    }

    /// Whether this host is not asked but spoken of.
    #[must_use]
    pub(crate) const fn is_assumed(&self) -> bool {
        self.assumed.is_some()
    }

    /// Whether a time namespace can be entered with offsets: it exists (5.6, if built in), and a child that shares our
    /// memory until its exec enters it only then (6.3); before, it was in at once and its offsets were fixed.
    #[must_use]
    pub fn time_namespace(&self) -> bool {
        let there = || Path::new("/proc/self/ns/time").symlink_metadata().is_ok();
        *self.time_namespace.get_or_init(|| self.kernel >= (6, 3) && there())
    }

    /// Whether this kernel has IPv6, switched on.
    #[must_use]
    pub fn ipv6(&self) -> bool {
        self.assumed.is_some() || Path::new("/proc/net/if_inet6").exists()
    }

    /// The cgroup hierarchies of this host.
    ///
    /// # Errors
    /// They could not be read; in words.
    pub fn cgroups(&self) -> Result<&sys::cgroup::Hierarchies, &String> {
        let here = self.groups_here()?;
        self.groups_given.get_or_init(|| self.ask_for_groups(here)).as_ref().map_or(Ok(here), Result::as_ref)
    }

    /// The hierarchies as they are, before anybody is asked for groups of ours.
    fn groups_here(&self) -> Result<&sys::cgroup::Hierarchies, &String> {
        self.groups_here.get_or_init(hierarchies).as_ref()
    }

    /// Where the groups come from that this process may make.
    #[must_use]
    pub fn given(&self) -> CgroupSource {
        let usable = |found: &sys::cgroup::Hierarchies| found.available().memory.is_ok();
        let own = if self.cgroups().is_ok_and(usable) { CgroupSource::Own } else { CgroupSource::Nowhere };
        self.given.get().cloned().unwrap_or(own)
    }

    /// Asks the service manager for groups when there are none that this process may make. The hierarchies anew when it
    /// was moved by that.
    fn ask_for_groups(&self, here: &sys::cgroup::Hierarchies) -> Option<Result<sys::cgroup::Hierarchies, String>> {
        let manager = self.manager.as_ref().filter(|_| here.available().memory.is_err())?;
        let given = if sys::cgroup::systemd::settle_in_own(SUPERVISOR).is_ok_and(|done| done) {
            CgroupSource::Delegated
        } else {
            manager.bus.as_ref().filter(|_| !self.root()).map_or(CgroupSource::Nowhere, |bus| ask(bus))
        };
        let moved = matches!(given, CgroupSource::Delegated | CgroupSource::Manager);
        // Set once: this function is called by nobody but the cell of what it gives.
        drop(self.given.set(given));
        moved.then(hierarchies)
    }

    /// The version (1 or 2) of a controller that can be used.
    #[must_use]
    pub fn controller(&self, name: &str) -> Option<u8> {
        match self.version_of(name) {
            Ok(sys::cgroup::Version::V1) => Some(1),
            Ok(sys::cgroup::Version::V2) => Some(2),
            Err(_) => None,
        }
    }

    /// Whether the control group of a run counts its processor time.
    pub fn counts_time(&self) -> bool {
        let counts = || self.cgroups().is_ok_and(sys::cgroup::Hierarchies::counts_time);
        self.controller("cpu").is_some() && (self.assumed.is_some() || counts())
    }

    /// The block devices of this host, (major, minor), each whole disk that the kernel lists.
    ///
    /// # Errors
    /// They cannot be listed; in words.
    pub fn disks(&self) -> Result<Vec<(u32, u32)>, String> {
        match self.assumed {
            Some(_) => Ok(vec![(8, 0)]),
            None => disks().map_err(|error| error.to_string()),
        }
    }

    /// Why a controller cannot be used.
    #[must_use]
    pub fn cgroup_why(&self, name: &str) -> String {
        self.version_of(name).err().unwrap_or_default()
    }

    fn version_of(&self, name: &str) -> Result<sys::cgroup::Version, String> {
        match self.assumed {
            Some(Assumed::Groups) => return Ok(sys::cgroup::Version::V2),
            Some(Assumed::NoGroups) => return Err("no subtree was delegated".to_owned()),
            None => {}
        }
        let available = self.cgroups().map_err(String::clone)?.available();
        let mut controllers = [
            ("memory", &available.memory),
            ("pids", &available.pids),
            ("cpu", &available.cpu),
            ("cpuset", &available.cpuset),
            ("io", &available.io),
        ]
        .into_iter();
        let Some((_, answer)) = controllers.find(|(controller, _)| *controller == name) else {
            return Err(format!("`{name}` is not a controller that limits"));
        };
        answer.as_ref().map_err(ToString::to_string).copied()
    }

    /// Memory and swap of this host, bytes; `None` where the kernel does not say.
    #[must_use]
    pub fn memory(&self) -> Option<u64> {
        let text = std::fs::read_to_string("/proc/meminfo").ok().filter(|_| self.assumed.is_none())?;
        let [memory, swap] = ["MemTotal", "SwapTotal"].map(|name| sys::proc::parse_meminfo(&text, name));
        Some(memory?.saturating_add(swap.unwrap_or(0)))
    }

    /// Whether threads of a run can be made to stand still. `own_users`: it is in a user namespace of ours, whose processes we may
    /// trace by capability.
    pub(crate) fn may_stop(&self, own_users: bool) -> bool {
        self.assumed.is_some() || sys::machine::may_stop(own_users || self.euid == 0).unwrap_or(false)
    }

    /// The processors of this host that are switched on, as the kernel lists them (`0-3,8`); `None` where it does not say.
    #[must_use]
    pub fn processors(&self) -> Option<String> {
        let text = std::fs::read_to_string("/sys/devices/system/cpu/online").ok().filter(|_| self.assumed.is_none())?;
        Some(text.trim().to_owned())
    }

    /// The processors that our caller may use: its control group's and its affinity's. `None` where the kernel does not say.
    #[must_use]
    pub fn allowed_cpus(&self) -> Option<Vec<u32>> {
        if self.assumed.is_some() { None } else { sys::caller::allowed_cpus() }
    }

    /// What the security module of a label does here.
    #[must_use]
    pub fn labels(&self, lsm: Lsm) -> sys::machine::Labels {
        match (self.assumed, lsm) {
            (Some(_), _) => sys::machine::Labels::Absent,
            (None, Lsm::Apparmor) => sys::machine::apparmor(),
            (None, Lsm::Selinux) => sys::machine::selinux(),
        }
    }

    /// Overlay with its upper on a tmpfs in a user namespace: user xattrs on tmpfs came with 6.6.
    #[must_use]
    pub fn overlay_on_tmpfs(&self) -> bool {
        self.kernel >= (6, 6) && self.has_overlay()
    }

    /// Read-only overlay of two lowers in a user namespace (5.11).
    #[must_use]
    pub fn overlay_readonly(&self) -> bool {
        self.kernel >= (5, 11) && self.has_overlay()
    }

    /// Whether what is only read is shown by a layer of its own, and not as it is: the layer hides the host's unix sockets too.
    #[must_use]
    pub fn layers_reads(&self, policy: &Policy) -> bool {
        self.overlay_readonly() && policy.fs.sockets != Sockets::Host
    }

    /// Whether the kernel has overlays, or the module from which it gets them when the first one is mounted.
    #[must_use]
    pub fn has_overlay(&self) -> bool {
        *self.overlay.get_or_init(|| {
            let listed = |path: &Path, line: &str| {
                std::fs::read_to_string(path).is_ok_and(|text| text.lines().any(|one| one.contains(line)))
            };
            let modules = Path::new("/lib/modules").join(&self.release);
            self.assumed.is_some()
                || listed(Path::new("/proc/filesystems"), "\toverlay")
                || listed(&modules.join("modules.dep"), "/overlay.ko")
        })
    }
}

/// Every whole disk that the kernel lists; one that cannot be read is not left out.
fn disks() -> std::io::Result<Vec<(u32, u32)>> {
    let mut list = Vec::new();
    for entry in std::fs::read_dir("/sys/block")? {
        let text = std::fs::read_to_string(entry?.path().join("dev"))?;
        let numbers =
            text.trim().split_once(':').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        list.push(numbers.ok_or(std::io::ErrorKind::InvalidData)?);
    }
    list.sort_unstable();
    Ok(list)
}

fn hierarchies() -> Result<sys::cgroup::Hierarchies, String> {
    sys::cgroup::Hierarchies::probe().map_err(|e| e.to_string())
}

/// Asks the user's service manager for a scope. Refused: the plan then names another enforcer, and `doctor` tells why.
fn ask(bus: &Path) -> CgroupSource {
    if !bus.symlink_metadata().is_ok_and(|meta| meta.file_type().is_socket()) {
        return CgroupSource::Nowhere;
    }
    let unit = format!("fumehood-{}.scope", sys::caller::pid());
    match sys::cgroup::systemd::delegate(bus, &unit, SUPERVISOR, DELEGATION) {
        Ok(_group) => CgroupSource::Manager,
        Err(refused) => CgroupSource::Refused(refused.to_string()),
    }
}

fn own_proc() -> Result<(), Missing> {
    let fix = "mount -t proc proc /proc".to_owned();
    match std::fs::read_link("/proc/self") {
        Ok(shown) if shown == Path::new(&sys::caller::pid().to_string()) => Ok(()),
        Ok(_) => Err(Missing {
            id: "host/foreign-proc",
            why: "/proc is that of another pid namespace: it shows our processes under other numbers".to_owned(),
            fix,
        }),
        Err(_) => Err(Missing { id: "host/no-proc", why: "/proc is not mounted, or not readable".to_owned(), fix }),
    }
}

fn namespaces(root: bool) -> Result<(), Missing> {
    // Without /proc nothing can be asked, and the container tier could not mount its own either.
    let facts = sys::machine::user_namespaces().map_err(|error| Missing {
        id: "userns/no-proc",
        why: error.to_string(),
        fix: "mount /proc".to_owned(),
    })?;
    if facts.most == Some(0) {
        return Err(Missing {
            id: "userns/max-zero",
            why: "user namespaces are switched off: /proc/sys/user/max_user_namespaces is 0".to_owned(),
            fix: "sysctl -w user.max_user_namespaces=15000".to_owned(),
        });
    }
    if root {
        return Ok(());
    }
    if facts.unprivileged_clone == Some(0) {
        return Err(Missing {
            id: "userns/debian-sysctl",
            why: "unprivileged user namespaces are switched off: kernel.unprivileged_userns_clone is 0".to_owned(),
            fix: "sysctl -w kernel.unprivileged_userns_clone=1".to_owned(),
        });
    }
    if facts.apparmor_restricts == Some(1) {
        return Err(Missing {
            id: "userns/apparmor",
            why: "AppArmor restricts unprivileged user namespaces on this host".to_owned(),
            fix: "install the AppArmor profile that `fumehood doctor` prints, or sysctl -w kernel.apparmor_restrict_unprivileged_userns=0".to_owned(),
        });
    }
    Ok(())
}

#[cfg(test)]
impl Capabilities {
    /// An assumed host whose gVisor is of this day.
    pub(crate) fn with_runsc_of(date: u32) -> Self {
        let engine = Engine { date, ..Engine::assumed() };
        Self { runsc: OnceLock::from(Ok(engine)), ..Self::assumed(Assumed::Groups) }
    }

    /// This host for root, whose devices lie in a folder: `dev`, `devices` and `lib`.
    pub(crate) fn with_devices(folder: &Path) -> Self {
        Self { devices: devices::Places::below(folder), euid: 0, ..Self::probe() }
    }

    /// An assumed host on which `/proc` is not mounted.
    pub(crate) fn without_proc() -> Self {
        let missing = Missing { id: "host/no-proc", why: "it is not mounted".to_owned(), fix: "mount it".to_owned() };
        Self { assumed: None, proc: OnceLock::from(Err(missing)), ..Self::assumed(Assumed::Groups) }
    }
}
