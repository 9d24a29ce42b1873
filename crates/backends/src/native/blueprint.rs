//! What the controls of a plan come to: all that a start is built from. Nothing of it is asked of the policy again.

use std::path::{Path, PathBuf};

use policy::control::{
    Accelerator, CgroupLimit, Control, Cover, Emulator, Filter, Inlet, Interpreter, Machine, Namespace, Resource,
    Variables, Watch,
};
use policy::value::{Root, Threat};
use policy::{ClauseId, Plan};

use super::folders::Folders;
use super::source::{self, Resolved};
use crate::StartError;
use crate::backend::{GitPart, Launch, Stdio};
use crate::sizes::Size;

/// A tree or file of the host, and where it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostTree {
    pub(crate) from: PathBuf,
    pub(crate) at: PathBuf,
    pub(crate) how: TreeAccess,
}

/// How a tree of the host is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TreeAccess {
    ReadOnly,
    Writable,
    /// With a layer over it.
    Overlay(Size),
    /// As a copy in a tmpfs.
    Copy(Size),
    /// As a copy in a folder of the run.
    CopyInFolder,
}

/// The parts of a virtual machine, as they are seen from outside.
#[derive(Clone, Debug, Default)]
pub(crate) struct MachineParts {
    /// The emulator, what runs the instructions, and against whom the sandbox around the emulator holds.
    pub(crate) emulator: Option<(Emulator, Accelerator, Threat)>,
    /// Release and digest.
    pub(crate) kernel: Option<(String, String)>,
    /// Bytes.
    pub(crate) memory: Option<u64>,
    pub(crate) no_network: bool,
    /// Its frames are carried to the sandbox; with IPv6.
    pub(crate) network: Option<bool>,
}

/// A start's parts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blueprint {
    pub(crate) container: bool,
    /// Grants and the workspace lead through no link.
    pub(crate) no_links: bool,
    pub(crate) namespaces: Vec<Namespace>,
    pub(crate) root: Option<Root>,
    pub(crate) user: Option<(String, u32)>,
    pub(crate) hostname: Option<String>,
    /// Nodes of devices, with their numbers.
    pub(crate) devices: Vec<(PathBuf, (u32, u32))>,
    pub(crate) inner_limits: bool,
    pub(crate) no_new_privs: bool,
    pub(crate) drop_capabilities: bool,
    pub(crate) clear_groups: bool,
    pub(crate) kept_groups: bool,
    pub(crate) mark: bool,
    pub(crate) close_descriptors: bool,
    pub(crate) undumpable: bool,
    pub(crate) session: bool,
    pub(crate) keyring: bool,
    pub(crate) signal_scope: bool,
    pub(crate) payload_scope: bool,
    pub(crate) umask: Option<u32>,
    pub(crate) terminal: bool,
    pub(crate) label: Option<String>,
    pub(crate) reads: Vec<HostTree>,
    pub(crate) writes: Vec<HostTree>,
    pub(crate) workspace: Option<HostTree>,
    pub(crate) readonly_overlay: bool,
    pub(crate) tmp: Option<Size>,
    pub(crate) shm: Option<Size>,
    pub(crate) run: Option<Size>,
    pub(crate) noexec: bool,
    /// The only executables.
    pub(crate) exec: Option<Vec<PathBuf>>,
    /// That is our own program alone, on the language tier and of a broker: wherever it lies.
    pub(crate) own_program: bool,
    /// Of what the host gives, what alone can be read and written to.
    pub(crate) folders: Folders,
    /// Git's folders that lie elsewhere than the workspace, and are used as its own would be.
    pub(crate) git: Vec<PathBuf>,
    pub(crate) protected_mounts: bool,
    /// What was found in grants is covered.
    pub(crate) covers: Vec<Cover>,
    /// Where the certificates that the run trusts are shown.
    pub(crate) certificates: Option<Vec<PathBuf>>,
    /// Paths are covered in the layer before the guest goes on.
    pub(crate) hides: bool,
    /// ABI of the Landlock layer.
    pub(crate) landlock: Option<u32>,
    pub(crate) profile: Option<String>,
    pub(crate) allow: Vec<String>,
    pub(crate) deny: Vec<String>,
    pub(crate) no_inet: bool,
    pub(crate) no_unix: bool,
    pub(crate) shared_pids: bool,
    pub(crate) shared_files: bool,
    pub(crate) shared_locks: bool,
    pub(crate) shared_watches: bool,
    /// Where links lead is asked of the supervisor.
    pub(crate) links: bool,
    /// No process hides what it has from a look.
    pub(crate) visible: bool,
    /// The agent of a live sandbox is what runs: it puts layers on its own programs, so that rules of Landlock stay open.
    pub(crate) agent: bool,
    /// Another kernel than the host's answers.
    pub(crate) own_kernel: bool,
    /// No memory that nobody can count.
    pub(crate) counted_memory: bool,
    pub(crate) cgroup: sys::cgroup::Limits,
    pub(crate) rlimits: Vec<(Resource, u64)>,
    /// What goes into the environment, clause by clause.
    pub(crate) variables: Vec<Variables>,
    /// Bytes of memory that the supervisor watches.
    pub(crate) watched_memory: Option<u64>,
    /// Commands were judged before.
    pub(crate) judged: bool,
    #[cfg(feature = "mutation")]
    pub(crate) told: Option<fn(&mut guest::config::Config)>,
    /// The network is the host's own.
    pub(crate) host_network: bool,
    pub(crate) machine: MachineParts,
    /// The other kernel's interface is one of a pair.
    pub(crate) veth: bool,
    /// Every IPv4 address leads to the sandbox, and every IPv6 address.
    pub(crate) local: [bool; 2],
    pub(crate) inlets: Vec<Inlet>,
    /// Names are asked of the broker.
    pub(crate) resolver: bool,
    /// The payload is an interpreter of ours, which is told these limits.
    pub(crate) interpreter: Option<Interpreter>,
}

impl Blueprint {
    /// The parts of a plan; tests leave a control out, or apply another one, to see that it is noticed.
    pub(crate) fn of(plan: &Plan, launch: &Launch) -> Self {
        let container = !plan.tier.on_host_tree();
        let git = launch.git.iter().filter_map(GitPart::folder).cloned().collect();
        let agent = launch.stdio == Stdio::Socket;
        let mut blueprint = Self { container, agent, no_links: launch.no_links, git, ..Self::default() };
        #[cfg(feature = "mutation")]
        {
            blueprint.told = launch.mutation.told;
        }
        for entry in &plan.entries {
            for control in entry.controls.iter().filter_map(|control| launch.applied(control)) {
                blueprint.add(entry.clause, control);
            }
        }
        blueprint
    }

    /// The parts of a virtual machine, what its kernel holds, and the control groups and the network around it; a control can be left out.
    pub(crate) fn of_machine(plan: &Plan, launch: &Launch) -> Self {
        let mut blueprint = Self { no_links: launch.no_links, ..Self::default() };
        for entry in &plan.entries {
            for control in entry.controls.iter().filter_map(|control| launch.applied(control)) {
                if let Control::InMachine(inner) = control {
                    blueprint.add(entry.clause, inner);
                } else if let Control::Machine(_)
                | Control::Cgroup { .. }
                | Control::LocalRoutes { .. }
                | Control::Inlets(_) = control
                {
                    blueprint.add(entry.clause, control);
                }
            }
        }
        blueprint
    }

    /// Resolves a path of a grant or of the workspace once. Where these were judged as they are, one that leads through a link is
    /// another place than the one that was judged: from here on its identity is what the guest compares.
    ///
    /// # Errors
    /// It is not there, can be shown to nobody, or leads through a link where it must not.
    pub(crate) fn resolve(&self, clause: &'static str, path: &Path) -> Result<Resolved, StartError> {
        let found = source::resolve(clause, path)?;
        if self.no_links && found.path != path { Err(StartError::linked(clause, path)) } else { Ok(found) }
    }

    /// Most memory of the program, whoever holds it.
    pub(crate) fn memory(&self) -> Option<u64> {
        self.machine.memory.or(self.cgroup.memory).or(self.watched_memory)
    }

    /// The user's name; on the process tier, which has no names of its own, the one that every payload is told.
    pub(crate) fn user_name(&self) -> &str {
        self.user.as_ref().map_or("user", |(name, _)| name)
    }

    /// Whether another kernel than the host's answers.
    pub(crate) const fn other_kernel(&self) -> bool {
        self.own_kernel || self.machine.kernel.is_some()
    }

    /// Whether there is an own loopback device that programs can use.
    pub(crate) const fn loopback(&self) -> bool {
        !self.no_inet
    }

    fn add(&mut self, clause: ClauseId, control: &Control) {
        match control {
            Control::Namespace(kind) => {
                if !self.namespaces.contains(kind) {
                    self.namespaces.push(*kind);
                }
            }
            Control::Root(root) => self.root = Some(root.clone()),
            Control::User { name, id } => self.user = Some((name.clone(), *id)),
            Control::Device { at, major, minor } => self.devices.push((at.clone(), (*major, *minor))),
            Control::Hostname(name) => self.hostname = Some(name.clone()),
            Control::NoInnerNamespaces => self.inner_limits = true,
            Control::NoNewPrivs => self.no_new_privs = true,
            Control::NoCapabilities => self.drop_capabilities = true,
            Control::NoGroups => self.clear_groups = true,
            Control::KeptGroups(_) => self.kept_groups = true,
            Control::RunMark => self.mark = true,
            Control::NoDescriptors => self.close_descriptors = true,
            Control::Undumpable => self.undumpable = true,
            Control::Session => self.session = true,
            Control::Keyring => self.keyring = true,
            Control::SignalScope => self.signal_scope = true,
            Control::PayloadScope => self.payload_scope = true,
            Control::Umask(mask) => self.umask = Some(*mask),
            Control::Terminal { instance: _ } => self.terminal = true,
            Control::Label(label) => self.label = Some(label.clone()),
            Control::Mount { from, at, write } => self.show(clause, from, at, *write),
            Control::Rule { path, write } => self.show(clause, path, path, *write),
            Control::ReadOnlyOverlay => self.readonly_overlay = true,
            Control::Overlay { from, at, bytes, inodes } => {
                self.workspace_as(from, at, TreeAccess::Overlay(Size { bytes: *bytes, inodes: *inodes }));
            }
            Control::Copy { from, at, size } => {
                let how =
                    size.map_or(TreeAccess::CopyInFolder, |(bytes, inodes)| TreeAccess::Copy(Size { bytes, inodes }));
                self.workspace_as(from, at, how);
            }
            Control::Tmpfs { at, bytes, inodes } => self.tmpfs(at, Size { bytes: *bytes, inodes: *inodes }),
            Control::ProtectedMounts => self.protected_mounts = true,
            Control::Covered(cover) => self.covers.push(cover.clone()),
            Control::Certificates { at } => self.certificates = Some(at.clone()),
            Control::Hide(_) => self.hides = true,
            Control::NoexecMounts | Control::NoexecRules(_) => self.noexec = true,
            Control::Executables { abi: _, files } => self.exec = Some(files.clone()),
            Control::ReadFolders { abi: _, folders } => self.folders.read = Some(folders.clone()),
            Control::WriteFolders { abi: _, folders } => self.folders.write = Some(folders.clone()),
            Control::Landlock(abi) => self.landlock = Some(*abi),
            Control::Filter(part) => self.filter(part),
            Control::Cgroup { version: _, limit } => self.group(limit),
            Control::Rlimit { resource, value } => self.rlimit(*resource, *value),
            Control::EachFile(size) => self.rlimit(Resource::FileSize, size.0),
            Control::Environment(variables) => self.variables.push(variables.clone()),
            Control::Veth => self.veth = true,
            Control::LocalRoutes { ipv6 } => self.local = [true, *ipv6],
            Control::Inlets(inlets) => self.inlets.clone_from(inlets),
            Control::Broker => self.resolver = true,
            Control::Interpreter(limits) => self.interpreter = Some(limits.clone()),
            Control::OwnKernel { .. } => self.own_kernel = true,
            Control::Machine(part) => self.machine(part),
            Control::HostNetwork => self.host_network = true,
            Control::CommandGate => self.judged = true,
            Control::Watch(Watch::Memory(limit)) => self.watched_memory = Some(limit.0),
            // The supervisor's own parts, and those of a machine's kernel.
            Control::ProtectedAtApply
            | Control::ImageTree(_)
            | Control::InMachine(_)
            | Control::Proxy
            | Control::Secrets
            | Control::Watch(_)
            | Control::Audit
            | Control::ToolGate => {}
        }
    }

    fn show(&mut self, clause: ClauseId, from: &Path, at: &Path, write: bool) {
        let how = if write { TreeAccess::Writable } else { TreeAccess::ReadOnly };
        if clause == ClauseId::Workspace {
            self.workspace_as(from, at, how);
            return;
        }
        let list = if write { &mut self.writes } else { &mut self.reads };
        list.push(HostTree { from: from.to_owned(), at: at.to_owned(), how });
    }

    fn machine(&mut self, part: &Machine) {
        match part {
            Machine::Emulator { program, version: _, accelerator, against } => {
                self.machine.emulator = Some((*program, *accelerator, *against));
            }
            Machine::Kernel { release, digest } => self.machine.kernel = Some((release.clone(), digest.clone())),
            Machine::Memory(bytes) => self.machine.memory = Some(*bytes),
            Machine::NoNetwork => self.machine.no_network = true,
            Machine::Network { ipv6 } => self.machine.network = Some(*ipv6),
        }
    }

    fn workspace_as(&mut self, from: &Path, at: &Path, how: TreeAccess) {
        self.workspace = Some(HostTree { from: from.to_owned(), at: at.to_owned(), how });
    }

    fn tmpfs(&mut self, at: &str, size: Size) {
        match at {
            "/tmp" => self.tmp = Some(size),
            "/dev/shm" => self.shm = Some(size),
            "/run" => self.run = Some(size),
            // A place that nobody mounts leaves no evidence, and the start fails by that.
            _ => {}
        }
    }

    fn filter(&mut self, part: &Filter) {
        match part {
            Filter::Profile(name) => self.profile = Some(name.clone()),
            Filter::Allow(names) => self.allow.clone_from(names),
            Filter::Deny(names) => self.deny.clone_from(names),
            Filter::NoInet => self.no_inet = true,
            Filter::NoUnix => self.no_unix = true,
            Filter::SharedPids => self.shared_pids = true,
            Filter::SharedFiles { locks, watches } => {
                (self.shared_files, self.shared_locks, self.shared_watches) = (true, *locks, *watches);
            }
            Filter::Links => self.links = true,
            Filter::Visible => self.visible = true,
            Filter::CountedMemory => self.counted_memory = true,
        }
    }

    fn group(&mut self, limit: &CgroupLimit) {
        let limits = &mut self.cgroup;
        match limit {
            CgroupLimit::Memory(bytes) => limits.memory = Some(*bytes),
            CgroupLimit::Pids(count) => limits.pids = Some(*count),
            CgroupLimit::Cpu { quota_us, period_us } => {
                limits.cpu = Some(sys::cgroup::CpuShare { quota_us: *quota_us, period_us: *period_us });
            }
            CgroupLimit::Cpuset(cores) => {
                limits.cpuset = Some(cores.iter().map(ToString::to_string).collect::<Vec<_>>().join(","));
            }
            CgroupLimit::IoRead { device, rate } => self.rate_of(*device).read = Some(*rate),
            CgroupLimit::IoWrite { device, rate } => self.rate_of(*device).write = Some(*rate),
        }
    }

    fn rate_of(&mut self, device: (u32, u32)) -> &mut sys::cgroup::IoLimit {
        let list = &mut self.cgroup.io;
        let at = list.iter().position(|limit| limit.device == device).unwrap_or_else(|| {
            list.push(sys::cgroup::IoLimit { device, read: None, write: None });
            list.len().saturating_sub(1)
        });
        #[expect(clippy::indexing_slicing, reason = "found or pushed just now")]
        &mut list[at]
    }

    /// Whether what lies at this canonical path of the host can also be written through another place of the plan: then it
    /// must not be executed here either, where nothing writable may be.
    pub(crate) fn written(&self, path: &Path) -> bool {
        let workspace = self.workspace.iter().filter(|shown| shown.how == TreeAccess::Writable);
        self.writes.iter().chain(workspace).any(|shown| {
            let from = shown.from.canonicalize().unwrap_or_else(|_gone| shown.from.clone());
            from.starts_with(path) || path.starts_with(&from)
        })
    }

    /// Places of the host that the plan shows.
    pub(crate) fn shown(&self) -> impl Iterator<Item = &Path> {
        self.reads.iter().chain(&self.writes).chain(&self.workspace).map(|shown| shown.from.as_path())
    }

    /// A path below the workspace, as the program sees it.
    pub(crate) fn in_workspace(&self, below: &Path) -> PathBuf {
        self.workspace.as_ref().map_or(below.to_owned(), |shown| shown.at.join(below))
    }

    /// Of two for one resource the lower counts.
    fn rlimit(&mut self, resource: Resource, value: u64) {
        match self.rlimits.iter_mut().find(|(known, _)| *known == resource) {
            Some((_, known)) => *known = value.min(*known),
            None => self.rlimits.push((resource, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_became_a_link_after_it_was_judged_is_followed_only_where_links_are_wanted() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (work, sub, other) = (root.join("work"), root.join("work/sub"), root.join("other"));
        std::fs::create_dir_all(sub.join("deep")).unwrap();
        std::fs::create_dir_all(other.join("deep")).unwrap();
        let judged = Blueprint { no_links: true, ..Blueprint::default() };
        let resolve = |blueprint: &Blueprint, path: &Path| blueprint.resolve("fs.read", path).map(|found| found.path);
        for path in [&sub, &sub.join("deep")] {
            assert_eq!(resolve(&judged, path).unwrap(), *path, "legitimate work");
        }
        std::fs::rename(&sub, work.join("aside")).unwrap();
        std::os::unix::fs::symlink(&other, &sub).unwrap();
        for (path, led) in [(&sub, &other), (&sub.join("deep"), &other.join("deep"))] {
            assert_eq!(
                resolve(&Blueprint::default(), path).unwrap(),
                *led,
                "the attack works where links are followed"
            );
            let refused = resolve(&judged, path).unwrap_err();
            assert!(refused.is_refusal(), "{refused:?}");
            assert!(matches!(refused, StartError::Path { clause: "fs.read", .. }), "{refused:?}");
        }
    }
}
