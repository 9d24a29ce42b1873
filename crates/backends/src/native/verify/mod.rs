//! The plan against what is in force: each control must have left its evidence, else there is no *go*.
//!
//! The plan is walked, not what was sent to the guest: a control that nobody applied has no evidence, whatever the reason.

mod mounts;
mod observation;
mod rules;

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use guest::config::OwnedProbe as Probe;
use guest::frames::{Posture, ToGuest};
use policy::control::{CgroupLimit, Control, Inlet, Machine, Namespace, Variables, Watch};
use sys::proc::{Process, Status};

pub(crate) use mounts::{Point, options, uppermost};
pub(crate) use observation::Observation;
pub(crate) use rules::path;

use super::running::Running;
use super::start::{Confined, Started};
use crate::StartError;
use crate::backend::{self, FoundPaths, Prepared as _};

/// SECBIT_NOROOT, NO_SETUID_FIXUP, KEEP_CAPS off, NO_CAP_AMBIENT_RAISE, each with its lock (capabilities(7)).
const SECUREBITS: u32 = 0b1110_1111;
/// Limits of memory come back as whole pages.
pub(crate) const PAGE: u64 = 4096;

/// A posture that equals the plan. Only this can go.
#[derive(Debug)]
pub(crate) struct Verified {
    confined: Confined,
}

impl Confined {
    /// Demands the evidence of every control of the plan. `armed`: those that the caller itself holds, as it set them up; `found`:
    /// what it found for the others.
    ///
    /// # Errors
    /// Every control without evidence, by clause; the guest is killed.
    pub(crate) fn verify(self, armed: &[Control], found: &FoundPaths) -> Result<Verified, StartError> {
        // A label that the host's own policy does not enforce is the caller's to change: a refusal.
        if let Some(label) = &self.started.prepared.label
            && let Some(why) = label.differs(self.posture.label.as_bytes())
        {
            return Err(StartError::Label { why });
        }
        let status = Process::open(self.started.child.guest).and_then(|process| process.status());
        let mut wrong = self.started.seen.blind.clone();
        match status {
            Ok(status) => {
                let proof = Proof { started: &self.started, posture: &self.posture, status, armed, found };
                wrong.extend(proof.lacks());
            }
            Err(error) => wrong.push(format!("the kernel's view could not be read: {error}")),
        }
        if wrong.is_empty() { Ok(Verified { confined: self }) } else { Err(StartError::Posture(wrong)) }
    }
}

/// All that is known of the guest that waits.
pub(crate) struct Proof<'a> {
    pub(crate) started: &'a Started,
    pub(crate) posture: &'a Posture,
    pub(crate) status: Status,
    pub(crate) armed: &'a [Control],
    pub(crate) found: &'a FoundPaths,
}

/// Evidence, or why there is none.
pub(crate) type Evident = Result<(), String>;

pub(crate) fn must(holds: bool, found: impl FnOnce() -> String) -> Evident {
    if holds { Ok(()) } else { Err(found()) }
}

impl Proof<'_> {
    /// Every control without evidence.
    fn lacks(&self) -> Vec<String> {
        let mut lacks = Vec::new();
        for entry in &self.started.prepared.plan.entries {
            let missing = entry.controls.iter().filter_map(|control| Some((control, self.evidence(control).err()?)));
            lacks.extend(missing.map(|(control, why)| format!("`{}` by {}: {why}", entry.clause, control.name())));
        }
        lacks.dedup();
        lacks
    }

    #[expect(clippy::too_many_lines, reason = "a table: one arm per control")]
    pub(crate) fn evidence(&self, control: &Control) -> Evident {
        let p = self.posture;
        match control {
            Control::Namespace(kind) => self.namespace(*kind),
            Control::Root(planned) => self.root(planned),
            Control::User { name, id } => self.user(name, *id),
            Control::Device { at, major, minor } => self.device(at, (*major, *minor)),
            Control::Hostname(name) => must(p.hostname.as_bytes() == name.as_bytes(), || {
                format!("the host name is {}", String::from_utf8_lossy(p.hostname.as_bytes()))
            }),
            Control::NoInnerNamespaces => must(p.inner_limits, || "the limits were not read back".to_owned()),
            Control::NoNewPrivs => must(p.no_new_privs && self.status.no_new_privs, || "it is not set".to_owned()),
            Control::NoCapabilities => self.capabilities(),
            Control::NoGroups => self.groups(self.started.prepared.blueprint.clear_groups, &[]),
            Control::KeptGroups(kept) => self.groups(self.started.prepared.blueprint.kept_groups, kept),
            Control::RunMark => {
                let value = super::mark::of(&self.started.prepared.run);
                let found = usize::try_from(super::mark::RESOURCE).ok().and_then(|at| p.rlimits.get(at).copied());
                must(found == Some((value, value)), || "it does not carry the run's mark".to_owned())
            }
            Control::NoDescriptors => self.descriptors(),
            Control::Undumpable => must(p.dumpable == 0, || format!("the guest's dumpable flag is {}", p.dumpable)),
            Control::Session => self.session(),
            Control::Keyring => must(p.keyring_replaced, || "the session keyring is the caller's".to_owned()),
            Control::SignalScope => must(p.signal_scope_proven, || "no witness was out of reach".to_owned()),
            Control::PayloadScope => {
                must(p.payload_scope_proven, || "a child under the payload's layer reached the guest".to_owned())
            }
            Control::Umask(mask) => {
                must(self.status.umask == Some(*mask), || format!("the umask is {:?}", self.status.umask))
            }
            Control::Terminal { instance } => self.terminal(*instance),
            Control::Label(_) => self.label(),
            Control::Mount { from, at, write } => self.shown(from, at, *write).map(drop),
            Control::ReadOnlyOverlay => self.readonly_overlay(),
            Control::Overlay { from, at, bytes, inodes } => {
                let mount = self.shown(from, at, true)?;
                must(mount.kind == "overlay", || format!("it is a mount of {}", mount.kind))?;
                self.sized(&mount.point, *bytes, *inodes)
            }
            Control::Copy { from, at, size: Some((bytes, inodes)) } => {
                let mount = self.shown(from, at, true)?;
                must(mount.kind == "tmpfs", || format!("it is a mount of {}", mount.kind))?;
                self.sized(&mount.point, *bytes, *inodes)
            }
            Control::Tmpfs { at, bytes, inodes } => {
                let mount = self.uppermost(Path::new(at))?;
                must(mount.kind == "tmpfs", || format!("it is a mount of {}", mount.kind))?;
                self.sized(&mount.point, *bytes, *inodes)
            }
            Control::Certificates { at } => self.certificates(at),
            Control::Covered(cover) => self.covered(cover),
            Control::ProtectedMounts => self.protected(),
            Control::NoexecMounts => self.noexec(),
            Control::NoexecRules(abi) => self.never_written(*abi),
            Control::Executables { abi, files } => self.listed(*abi, files),
            Control::ReadFolders { abi, folders } => self.read_only_there(*abi, folders),
            Control::WriteFolders { abi, folders } => self.written_only(*abi, folders),
            Control::Landlock(abi) => self.landlock(*abi),
            Control::Rule { path, write } => self.rule(path, *write),
            Control::Filter(part) => self.filter(part),
            Control::Cgroup { version: _, limit } => self.group(limit),
            Control::Rlimit { resource, value } => self.rlimit(resource.number(), *value),
            Control::EachFile(size) => self.rlimit(policy::control::Resource::FileSize.number(), size.0),
            Control::Environment(variables) => self.environment(variables),
            Control::LocalRoutes { ipv6 } => must(p.local_ipv4 && (p.local_ipv6 || !ipv6), || {
                "a foreign address does not lead to the sandbox itself".to_owned()
            }),
            Control::Inlets(inlets) => self.inlets(inlets),
            Control::OwnKernel { .. } | Control::Veth => Err("it is not this backend's".to_owned()),
            Control::HostNetwork => {
                let blueprint = &self.started.prepared.blueprint;
                must(blueprint.host_network && !blueprint.no_inet && !self.container(), || {
                    "it is not for this plan".to_owned()
                })
            }
            Control::Interpreter(_) => {
                // What it says itself comes after this, and before it is given the program.
                must(self.armed.contains(control), || "nobody set it up".to_owned())?;
                self.interpreter_alone()
            }
            Control::Machine(Machine::Network { .. }) => self.link(),
            Control::Machine(_) | Control::InMachine(_) => Err("there is no machine on this tier".to_owned()),
            Control::Copy { size: None, .. }
            | Control::Broker
            | Control::Proxy
            | Control::Secrets
            | Control::Hide(_)
            | Control::ProtectedAtApply
            | Control::ImageTree(_)
            | Control::Watch(
                Watch::Wall(_)
                | Watch::CpuTime { .. }
                | Watch::Memory(_)
                | Watch::Locks(_)
                | Watch::Waiting(_)
                | Watch::Pids(_)
                | Watch::Disk(_)
                | Watch::Files(_)
                | Watch::Tmp(_)
                | Watch::Output { .. }
                | Watch::Warn(_)
                | Watch::Kill(_)
                | Watch::Protected,
            )
            | Control::Audit
            | Control::CommandGate
            | Control::ToolGate => must(self.armed.contains(control), || "nobody set it up".to_owned()),
        }
    }

    const fn container(&self) -> bool {
        self.started.prepared.blueprint.container
    }

    fn namespace(&self, kind: Namespace) -> Evident {
        must(self.started.seen.namespaces.contains(&kind), || "it is ours".to_owned())?;
        if kind != Namespace::Pid {
            return Ok(());
        }
        let (pid, pids) = (self.posture.pid, &self.status.pids);
        must(pid == 1 && pids.len() > 1 && pids.last() == Some(&1), || format!("the guest is process {pid}"))
    }

    /// Each socket is of the sandbox's own namespace, and waits where the plan says; there are no others.
    fn inlets(&self, planned: &[Inlet]) -> Evident {
        let seen = &self.started.seen;
        must(seen.sockets.len() == planned.len(), || format!("{} sockets came out", seen.sockets.len()))?;
        must(seen.network.is_some(), || "the sandbox has no network namespace of its own".to_owned())?;
        for (socket, inlet) in seen.sockets.iter().zip(planned) {
            must(Some(socket.namespace) == seen.network, || "a socket is of another network namespace".to_owned())?;
            let listens = !inlet.udp && inlet.port != 0;
            let found = (socket.ipv6, socket.udp, socket.listens, socket.port);
            must(found == (inlet.ipv6, inlet.udp, listens, Some(inlet.port)), || format!("a socket is {socket:?}"))?;
        }
        Ok(())
    }

    /// The frames of a machine are those of one interface of the sandbox's own namespace.
    fn link(&self) -> Evident {
        let seen = &self.started.seen;
        let found = seen.link.ok_or("no packet socket came out")?;
        must(seen.network == Some(found.namespace), || "its link is of another network namespace".to_owned())?;
        must(found.interface == sys::bare::LINK, || format!("its link is interface {}", found.interface))
    }

    /// One came out; where the plan has a new instance of the kernel's file system for terminals, that is mounted.
    fn terminal(&self, instance: bool) -> Evident {
        must(self.started.streams.terminal.is_some(), || "no terminal came out of the sandbox".to_owned())?;
        if !instance {
            return Ok(());
        }
        let mount = self.uppermost(Path::new("/dev/pts"))?;
        must(mount.kind == "devpts", || format!("{} is a mount of {}", mount.point, mount.kind))
    }

    fn user(&self, name: &str, id: u32) -> Evident {
        let (p, (uid, gid)) = (self.posture, self.started.prepared.owner());
        // The kernel knows numbers: the name is what its files and variables were made with.
        let named = self.started.prepared.blueprint.user_name();
        must(named == name, || format!("inside its name is {named}"))?;
        must([p.uid, p.euid, p.suid, p.gid, p.egid, p.sgid] == [id; 6], || {
            format!("inside it is user {}, {}, {} and group {}, {}, {}", p.uid, p.euid, p.suid, p.gid, p.egid, p.sgid)
        })?;
        must(self.status.uid == [uid; 4] && self.status.gid == [gid; 4], || {
            format!("outside it is user {:?} and group {:?}", self.status.uid, self.status.gid)
        })
    }

    /// The node is the device, its mount gives nothing else, and it could be opened.
    fn device(&self, at: &Path, numbers: (u32, u32)) -> Evident {
        let found = self.started.seen.devices.iter().find(|(place, _)| place == at).map(|(_, numbers)| *numbers);
        must(found == Some(numbers), || format!("{} is {found:?}", at.display()))?;
        mounts::has(self.uppermost(at)?, &mounts::options(super::devices::ATTRS))?;
        self.probed(|probe| matches!(probe, Probe::OpenMustWork(path) if path.to_bytes() == at.as_os_str().as_bytes()))
    }

    fn capabilities(&self) -> Evident {
        let (inside, outside) = (&self.posture.capabilities, &self.status.capabilities);
        let all = inside.inheritable
            | inside.permitted
            | inside.effective
            | inside.ambient
            | outside.inheritable
            | outside.permitted
            | outside.effective
            | outside.ambient;
        must(all == 0, || format!("its capability sets together are {all:#x}"))?;
        if !self.container() {
            // Who it is outside is who it is inside: without a user namespace nobody is mapped.
            let ((uid, gid), p) = (self.started.prepared.owner(), self.posture);
            return must([p.uid, p.euid, p.suid] == [uid; 3] && [p.gid, p.egid, p.sgid] == [gid; 3], || {
                format!("it is user {}, {}, {}", p.uid, p.euid, p.suid)
            });
        }
        must(outside.bounding == 0, || format!("its bounding set is {:#x}", outside.bounding))?;
        must(self.posture.securebits & SECUREBITS == SECUREBITS, || {
            format!("its securebits are {:#x}", self.posture.securebits)
        })
    }

    fn descriptors(&self) -> Evident {
        let config = &self.started.prepared.config;
        // 0 to 3, the config, and one more while the posture is gathered; both sides of a terminal. Nothing else is open,
        // but for a program without a path, behind the folders that were given to the guest.
        let known: u32 = if config.tty.is_some() { 8 } else { 6 };
        let among = config.program.is_some_and(|program| program < known);
        let program = config.program.and_then(|program| 1_u64.checked_shl(program)).unwrap_or(0);
        let others = self.posture.descriptors & !program;
        must(self.started.prepared.blueprint.close_descriptors, || "they were not closed".to_owned())?;
        must(!self.posture.more_descriptors && others >> (known + u32::from(among)) == 0, || {
            format!("open descriptors are {:#x}", self.posture.descriptors)
        })
    }

    fn session(&self) -> Evident {
        let p = self.posture;
        // A runtime makes one unasked.
        must(self.started.prepared.blueprint.session, || "nobody asked for it".to_owned())?;
        must(p.session == p.pid, || format!("its session is {}", p.session))?;
        // In the process tier the guest must outlive us for a moment: it ends its tree when the control socket closes.
        let death_signal = if self.container() { 9 } else { 0 };
        must(p.death_signal == death_signal, || format!("its parent-death signal is {}", p.death_signal))?;
        must(self.status.ignored == 0, || format!("its set of ignored signals is {:#x}", self.status.ignored))
    }

    /// The guest was handed as many variables as there are, and of them each has the value of the plan.
    fn environment(&self, variables: &Variables) -> Evident {
        let (prepared, count) = (&self.started.prepared, self.posture.variables);
        let env = &prepared.config.env;
        must(prepared.blueprint.variables.contains(variables), || "nobody gave them".to_owned())?;
        must(usize::try_from(count) == Ok(env.len()), || format!("it has {count} variables"))?;
        let of = |control: &Control| if let Control::Environment(part) = control { Some(part.clone()) } else { None };
        let planned: Vec<Variables> = prepared.plan.controls().filter_map(of).collect();
        super::environment::as_planned(env, &planned, variables, prepared.blueprint.judged)
    }

    fn label(&self) -> Evident {
        must(self.started.prepared.label.is_some(), || "none was set".to_owned())
    }

    /// None but these and the group that the run has anyway.
    fn groups(&self, planned: bool, kept: &[u32]) -> Evident {
        let known = |group: &u32| kept.contains(group) || self.started.prepared.identity.gid == *group;
        let groups = &self.status.groups;
        must(planned && usize::try_from(self.posture.groups) == Ok(groups.len()) && groups.iter().all(known), || {
            format!("it has the supplementary groups {groups:?}")
        })
    }

    fn group(&self, limit: &CgroupLimit) -> Evident {
        let Some(found) = &self.started.seen.limits else { return Err("the guest is in no group of ours".to_owned()) };
        let told = |found: &dyn std::fmt::Debug| format!("the group has {found:?}");
        let device = |device: &(u32, u32)| found.io.iter().find(|limit| limit.device == *device);
        match limit {
            // The kernel keeps whole pages.
            CgroupLimit::Memory(bytes) => {
                must(found.memory.is_some_and(|found| found <= *bytes && bytes - found < PAGE), || told(&found.memory))
            }
            CgroupLimit::Pids(count) => must(found.pids == Some(*count), || told(&found.pids)),
            CgroupLimit::Cpu { quota_us, period_us } => {
                let holds = found.cpu.is_some_and(|cpu| (cpu.quota_us, cpu.period_us) == (*quota_us, *period_us));
                must(holds, || told(&found.cpu))
            }
            CgroupLimit::Cpuset(cores) => {
                let listed = found.cpuset.as_deref().map(|list| policy::units::ranges(list).flatten());
                let all: Vec<u32> = listed.into_iter().flatten().flat_map(|(from, to)| from..=to).collect();
                must(all == *cores, || told(&found.cpuset))
            }
            CgroupLimit::IoRead { device: at, rate } => {
                must(device(at).and_then(|limit| limit.read) == Some(*rate), || told(&device(at)))
            }
            CgroupLimit::IoWrite { device: at, rate } => {
                must(device(at).and_then(|limit| limit.write) == Some(*rate), || told(&device(at)))
            }
        }
    }

    fn rlimit(&self, resource: u32, value: u64) -> Evident {
        let asked = self.started.prepared.config.rlimits.iter().any(|limit| limit.resource == resource);
        let found = usize::try_from(resource).ok().and_then(|index| self.posture.rlimits.get(index)).filter(|_| asked);
        match found {
            Some((soft, hard)) => must(soft == hard && *hard <= value, || format!("it is {soft}, at most {hard}")),
            None => Err("it was not set".to_owned()),
        }
    }
}

impl backend::Verified for Verified {
    fn pid(&self) -> i32 {
        self.confined.started.child.guest
    }

    fn go(self: Box<Self>) -> Result<Box<dyn backend::Running>, StartError> {
        Ok(Box::new(self.run()?))
    }
}

impl Verified {
    /// Lets the payload go.
    ///
    /// # Errors
    /// The guest is gone.
    pub(super) fn run(self) -> Result<Running, StartError> {
        let started = self.confined.started;
        started.control.send(ToGuest::Go)?;
        let label = started.prepared.label;
        Ok(Running { held: started.child, control: started.control, streams: started.streams, label })
    }
}
