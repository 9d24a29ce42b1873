//! The plan against what is in force: each control must have left its evidence, else there is no *go*.
//!
//! The plan is walked, not what was sent to the guest: a control that nobody applied has no evidence, whatever the reason.

use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use guest::config::{Attrs, Config, OwnedOp as Op, OwnedProbe as Probe};
use guest::frames::{Posture, ToGuest};
use policy::Plan;
use policy::control::{CgroupLimit, Control, Cover, Filter, Inlet, Namespace, Watch};
use sys::proc::{Mount, Process, Status};

use super::capacity::WatchedMounts;
use super::prepare::Stands;
use super::running::Running;
use super::start::{Confined, Held, Started};
use super::words;
use crate::StartError;
use crate::backend::{self, Prepared as _};

/// SECBIT_NOROOT, NO_SETUID_FIXUP, KEEP_CAPS off, NO_CAP_AMBIENT_RAISE, each with its lock (capabilities(7)).
const SECUREBITS: u32 = 0b1110_1111;
/// Limits of memory come back as whole pages.
pub(crate) const PAGE: u64 = 4096;

/// What was seen from outside while the guest was on its way: later it cannot be traced, and nobody may look.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Kinds of namespace that are not ours.
    namespaces: Vec<Namespace>,
    /// The limits of its group, as the kernel has them; `None` = it is in no group of ours.
    limits: Option<sys::cgroup::Limits>,
    /// Its mounts, when nothing could change them any more.
    pub(crate) mounts: Option<Vec<Mount>>,
    /// Nodes of devices that the plan gives, with the numbers that were found.
    devices: Vec<(PathBuf, (u32, u32))>,
    /// The sockets that came out.
    sockets: Vec<sys::inlet::Inlet>,
    /// Its network namespace.
    network: Option<u64>,
    /// Why something could not be seen.
    pub(crate) blind: Vec<String>,
}

impl Seen {
    /// What is settled when the guest begins and nothing of it changes later: its namespaces and its control groups.
    pub(crate) fn born(&mut self, held: &Held, plan: &Plan) {
        let kind = |control: &Control| if let Control::Namespace(kind) = control { Some(*kind) } else { None };
        let mut demanded: Vec<Namespace> = plan.controls().filter_map(kind).collect();
        demanded.sort_unstable();
        demanded.dedup();
        if let Err(why) = self.namespaces(held.guest, &demanded) {
            self.blind.push(format!("the namespaces could not be read: {why}"));
        }
        if let Some(group) = &held.group {
            match (group.holds(held.guest), group.limits()) {
                (Ok(true), Ok(limits)) => self.limits = Some(limits),
                (Ok(_), Ok(_)) => self.blind.push("the guest is not in its control group".to_owned()),
                (Err(why), _) | (_, Err(why)) => {
                    self.blind.push(format!("the control group could not be read: {why}"));
                }
            }
        }
    }

    /// The sockets that came out, before they are the broker's.
    pub(crate) fn sockets(&mut self, sockets: &[std::os::fd::OwnedFd]) {
        for socket in sockets {
            match sys::inlet::look(socket) {
                Ok(inlet) => self.sockets.push(inlet),
                Err(why) => self.blind.push(format!("a socket of the sandbox could not be looked at: {why}")),
            }
        }
    }

    fn namespaces(&mut self, pid: i32, demanded: &[Namespace]) -> sys::error::Result<()> {
        if demanded.is_empty() {
            return Ok(());
        }
        let (process, own) = (Process::open(pid)?, Process::own()?);
        for kind in demanded.iter().copied() {
            // A kernel without one of them has no link for it.
            if let (Ok(theirs), Ok(ours)) = (process.namespace(of_kernel(kind)), own.namespace(of_kernel(kind)))
                && theirs != ours
            {
                self.namespaces.push(kind);
                self.network = self.network.or((kind == Namespace::Net).then_some(theirs));
            }
        }
        Ok(())
    }

    /// The mounts, once the guest has no capability left to change them: while it goes on with its steps.
    pub(crate) fn settled(&mut self, held: &mut Held, devices: &[(PathBuf, (u32, u32))]) {
        let seen = Process::open(held.guest).and_then(|process| Ok((process.mounts()?, process)));
        match seen {
            Ok((mounts, process)) => {
                self.mounts = Some(mounts);
                held.watched = WatchedMounts::of(&process, &held.scope.in_memory);
                for (at, _) in devices {
                    let found = process.place_at(&at.to_string_lossy()).and_then(sys::paths::character_device);
                    self.devices.extend(found.ok().flatten().map(|numbers| (at.clone(), numbers)));
                }
            }
            Err(error) => self.blind.push(format!("the mounts could not be read: {error}")),
        }
    }
}

const fn of_kernel(kind: Namespace) -> sys::proc::Namespace {
    match kind {
        Namespace::User => sys::proc::Namespace::User,
        Namespace::Mount => sys::proc::Namespace::Mount,
        Namespace::Pid => sys::proc::Namespace::Pid,
        Namespace::Net => sys::proc::Namespace::Net,
        Namespace::Ipc => sys::proc::Namespace::Ipc,
        Namespace::Uts => sys::proc::Namespace::Uts,
        Namespace::Cgroup => sys::proc::Namespace::Cgroup,
        Namespace::Time => sys::proc::Namespace::Time,
    }
}

/// A posture that equals the plan. Only this can go.
#[derive(Debug)]
pub(crate) struct Verified {
    confined: Confined,
}

impl Confined {
    /// Demands the evidence of every control of the plan. `armed`: those that the caller itself holds, as it set them up.
    ///
    /// # Errors
    /// Every control without evidence, by clause; the guest is killed.
    pub(crate) fn verify(self, armed: &[Control]) -> Result<Verified, StartError> {
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
                let proof = Proof { started: &self.started, posture: &self.posture, status, armed };
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
            Control::Root(_) => self.root(),
            Control::User { name: _, id } => self.user(*id),
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
            Control::Terminal { instance: _ } => {
                must(self.started.streams.terminal.is_some(), || "no terminal came out of the sandbox".to_owned())
            }
            Control::Label(_) => self.label(),
            Control::Mount { from: _, at, write } => self.shown(at, *write).map(drop),
            Control::ReadOnlyOverlay => self.readonly_overlay(),
            Control::Overlay { from: _, at, bytes, inodes } => {
                let mount = self.shown(at, true)?;
                must(mount.kind == "overlay", || format!("it is a mount of {}", mount.kind))?;
                self.sized(&mount.point, *bytes, *inodes)
            }
            Control::Copy { from: _, at, size: Some((bytes, inodes)) } => {
                let mount = self.shown(at, true)?;
                must(mount.kind == "tmpfs", || format!("it is a mount of {}", mount.kind))?;
                self.sized(&mount.point, *bytes, *inodes)
            }
            Control::Tmpfs { at, bytes, inodes } => {
                let mount = self.uppermost(Path::new(at))?;
                must(mount.kind == "tmpfs", || format!("it is a mount of {}", mount.kind))?;
                self.sized(&mount.point, *bytes, *inodes)
            }
            Control::Covered(cover) => self.covered(cover),
            Control::ProtectedMounts => self.protected(),
            Control::NoexecMounts => self.noexec(),
            Control::NoexecRules(_) => self.never_written(),
            Control::Executables { abi: _, files } => self.listed(files),
            Control::Landlock(_) => self.landlock(),
            Control::Rule { path, write: _ } => self.rule(path),
            Control::Filter(part) => self.filter(part),
            Control::Cgroup { version: _, limit } => self.group(limit),
            Control::Rlimit { resource, value } => self.rlimit(resource.number(), *value),
            Control::EachFile(size) => self.rlimit(policy::control::Resource::FileSize.number(), size.0),
            Control::Environment => {
                let planned = self.started.prepared.config.env.len();
                must(self.started.prepared.blueprint.environment && usize::try_from(p.variables) == Ok(planned), || {
                    format!("it has {} variables", p.variables)
                })
            }
            Control::LocalRoutes { ipv6 } => must(p.local_ipv4 && (p.local_ipv6 || !ipv6), || {
                "a foreign address does not lead to the sandbox itself".to_owned()
            }),
            Control::Inlets(inlets) => self.inlets(inlets),
            Control::OwnKernel { .. } => Err("it is not this backend's".to_owned()),
            Control::HostNetwork => must(!self.started.prepared.blueprint.no_inet && !self.container(), || {
                "it is not for this plan".to_owned()
            }),
            Control::Interpreter(_) => {
                // What it says itself comes after this, and before it is given the program.
                must(self.armed.contains(control), || "nobody set it up".to_owned())?;
                self.listed(self.started.prepared.blueprint.exec.as_deref().unwrap_or_default())
            }
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

    fn user(&self, id: u32) -> Evident {
        let (p, (uid, gid)) = (self.posture, self.started.prepared.owner());
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
        has(self.uppermost(at)?, &options(super::devices::ATTRS))?;
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

    fn label(&self) -> Evident {
        must(self.started.prepared.label.is_some(), || "none was set".to_owned())
    }

    fn mounts(&self) -> Result<&[Mount], String> {
        self.started.seen.mounts.as_deref().ok_or_else(|| "the mounts were never final".to_owned())
    }

    /// One root, no mount but the planned ones (nothing of the host's tree is left), and those that are always there as
    /// they must be.
    fn root(&self) -> Evident {
        let found = self.mounts()?;
        let prepared = &self.started.prepared;
        must(prepared.blueprint.root.is_some(), || "no root was asked for".to_owned())?;
        let points = prepared.by_runtime.clone().unwrap_or_else(|| points(&prepared.config));
        let roots = found.iter().filter(|mount| mount.point == "/").count();
        must(roots == 1, || format!("{roots} mounts are the root"))?;
        for mount in found {
            let planned = points.contains_key(&mount.point)
                || points.iter().any(|(place, point)| {
                    point.whole && mount.point.strip_prefix(place.as_str()).is_some_and(|rest| rest.starts_with('/'))
                });
            must(planned, || format!("nobody planned the mount at {}", mount.point))?;
        }
        for (place, point) in &points {
            match uppermost(found, place) {
                Some(mount) => has(mount, &point.options)?,
                None => must(!point.needed, || format!("there is no mount at {place}"))?,
            }
        }
        Ok(())
    }

    fn uppermost(&self, at: &Path) -> Result<&Mount, String> {
        let place = sys::proc::shown(at.as_os_str().as_bytes());
        uppermost(self.mounts()?, &place).ok_or_else(|| format!("there is no mount at {place}"))
    }

    /// The mount of something that the plan shows.
    fn shown(&self, at: &Path, write: bool) -> Result<&Mount, String> {
        let placed = self.started.prepared.placed.iter().rev().find(|placed| placed.at == *at);
        let Some(placed) = placed else { return Err(format!("{} is not shown", at.display())) };
        let mount = self.uppermost(&placed.point)?;
        has(mount, if write { &["nosuid", "nodev"] } else { &["ro", "nosuid", "nodev"] })?;
        Ok(mount)
    }

    /// Folders of the host that can only be read lie behind a layer, where there are such.
    fn readonly_overlay(&self) -> Evident {
        must(self.started.prepared.blueprint.readonly_overlay, || "none was asked for".to_owned())?;
        for control in self.started.prepared.plan.controls() {
            let Control::Mount { at, write: false, .. } = control else { continue };
            let dir = self.started.prepared.placed.iter().any(|placed| placed.at == *at && placed.dir);
            let mount = self.shown(at, false)?;
            must(!dir || mount.kind == "overlay", || format!("{} is a mount of {}", mount.point, mount.kind))?;
        }
        Ok(())
    }

    fn sized(&self, place: &str, bytes: u64, inodes: u64) -> Evident {
        let Some((most_bytes, most_inodes)) = self.started.child.watched.size_of(place) else {
            return Err(format!("the size of {place} cannot be read"));
        };
        // A size of 0 would be none at all; the kernel rounds up to whole pages.
        let bytes = bytes.div_ceil(PAGE).saturating_mul(PAGE);
        must(most_bytes > 0 && most_bytes <= bytes, || format!("{place} holds {most_bytes} bytes"))?;
        must(most_inodes > 0 && most_inodes <= inodes, || format!("{place} holds {most_inodes} files"))
    }

    fn protected(&self) -> Evident {
        let prepared = &self.started.prepared;
        must(prepared.blueprint.protected_mounts, || "none was asked for".to_owned())?;
        for (path, stands) in &prepared.protected {
            let mount = self.uppermost(path)?;
            let held = match stands {
                Stands::Fast => true,
                Stands::ReadOnly => mount.has("ro"),
                Stands::Layered => mount.kind == "overlay",
            };
            must(held, || format!("{} can be written to", mount.point))?;
        }
        Ok(())
    }

    /// None but these and the group that the run has anyway.
    fn groups(&self, planned: bool, kept: &[u32]) -> Evident {
        let known = |group: &u32| kept.contains(group) || self.started.prepared.identity.gid == *group;
        let groups = &self.status.groups;
        must(planned && usize::try_from(self.posture.groups) == Ok(groups.len()) && groups.iter().all(known), || {
            format!("it has the supplementary groups {groups:?}")
        })
    }

    /// A file that is gone since it was found needs no cover.
    fn covered(&self, cover: &Cover) -> Evident {
        let prepared = &self.started.prepared;
        must(prepared.blueprint.covers.contains(cover), || "nothing was to be covered".to_owned())?;
        for found in &prepared.covered {
            let gone = found.from.symlink_metadata().is_err();
            self.uppermost(&found.to).map(drop).or_else(|lack| if gone { Ok(()) } else { Err(lack) })?;
        }
        Ok(())
    }

    /// Every mount that can be written to.
    fn noexec(&self) -> Evident {
        for mount in self.mounts()? {
            let buried = uppermost(self.mounts()?, &mount.point).is_some_and(|upper| upper.id != mount.id);
            let planned = self.started.prepared.by_runtime.as_ref().and_then(|points| points.get(&mount.point));
            let device = planned.is_some_and(|point| point.device);
            must(buried || device || mount.has("ro") || mount.has("noexec"), || {
                format!("{} can be executed from", mount.point)
            })?;
        }
        // What is shown read-only here may be written through another place.
        let prepared = &self.started.prepared;
        for control in prepared.plan.controls() {
            let Control::Mount { from, at, write: false } = control else { continue };
            let from = from.canonicalize().unwrap_or_else(|_gone| from.clone());
            if prepared.blueprint.written(&from) {
                let mount = self.shown(at, false)?;
                must(mount.has("noexec"), || format!("{} is written elsewhere, and can be executed", mount.point))?;
            }
        }
        Ok(())
    }

    /// The layer is in force, and no rule of it lets anything be executed that `allowed` does not know.
    fn executable(&self, allowed: impl Fn(&Path, u64) -> bool) -> Evident {
        use sys::landlock::fs::EXECUTE;
        self.landlock()?;
        let Some(layer) = &self.started.prepared.config.landlock else { return Err("there is no layer".to_owned()) };
        must(layer.handled_fs & EXECUTE != 0, || "the layer does not handle execution".to_owned())?;
        for rule in layer.rules.iter().filter(|rule| rule.access & EXECUTE != 0) {
            let path = Path::new(OsStr::from_bytes(rule.path.to_bytes()));
            must(allowed(path, rule.access), || format!("{} can be executed", path.display()))?;
        }
        Ok(())
    }

    /// Rights of Landlock add up along a path: nothing that can be executed lies above or below what can be written.
    fn never_written(&self) -> Evident {
        use sys::landlock::fs::WRITE_FILE;
        let rules = self.started.prepared.config.landlock.iter().flat_map(|layer| &layer.rules);
        let written: Vec<&Path> = rules
            .filter(|rule| rule.access & WRITE_FILE != 0)
            .map(|rule| Path::new(OsStr::from_bytes(rule.path.to_bytes())))
            .collect();
        self.executable(|path, _| !written.iter().any(|other| other.starts_with(path) || path.starts_with(other)))
    }

    /// Nothing but what is listed, and the loaders that a listed program needs.
    fn listed(&self, files: &[PathBuf]) -> Evident {
        let loaders = super::landlock::loaders();
        let listed = |path: &Path| {
            loaders.iter().chain(files).any(|file| file == path || file.canonicalize().is_ok_and(|file| file == path))
        };
        self.executable(|path, _| listed(path))
    }

    /// An open that must fail and one that must work.
    fn landlock(&self) -> Evident {
        must(self.posture.landlock_layers > 0, || "no layer was put on".to_owned())?;
        let opens = |probe: &Probe| matches!(probe, Probe::OpenMustFail(_));
        if self.container() || self.started.prepared.config.probes.iter().any(opens) {
            self.probed(opens)?;
        } else {
            must(self.posture.signal_scope_proven, || "nothing was seen to be refused".to_owned())?;
        }
        self.probed(|probe| matches!(probe, Probe::OpenMustWork(_)))
    }

    fn rule(&self, path: &Path) -> Evident {
        let prepared = &self.started.prepared;
        let placed = prepared.placed.iter().any(|placed| placed.at == *path);
        must(placed, || format!("{} has no rule", path.display()))?;
        let planned = prepared.config.landlock.as_ref().map_or(0, |layer| layer.rules.len());
        must(usize::try_from(self.posture.landlock_rules) == Ok(planned), || {
            format!("the layer has {} rules", self.posture.landlock_rules)
        })
    }

    /// At least one probe of a kind was made, and all of them were answered as they must be.
    fn probed(&self, kind: impl Fn(&Probe) -> bool) -> Evident {
        let asked = &self.started.prepared.config.probes;
        must(asked.len() == self.posture.probes.len(), || format!("{} probes were made", self.posture.probes.len()))?;
        let mut made = 0_usize;
        for (probe, errno) in asked.iter().zip(self.posture.probes.iter()).filter(|(probe, _)| kind(probe)) {
            made = made.saturating_add(1);
            must(probe.held(errno), || {
                format!("{}, and the kernel's answer was: {}", words::probe(probe), words::answer(errno))
            })?;
        }
        must(made > 0, || "no probe was made".to_owned())
    }

    fn filter(&self, part: &Filter) -> Evident {
        let Some(built) = &self.started.prepared.filter else { return Err("there is no filter".to_owned()) };
        must(self.posture.seccomp_mode == 2 && self.status.seccomp == 2, || {
            format!("the seccomp mode is {}", self.status.seccomp)
        })?;
        self.probed(|probe| matches!(probe, Probe::Call { errno: 0, .. }))?;
        self.probed(|probe| matches!(probe, Probe::Call { errno, .. } if *errno != 0))?;
        match part {
            Filter::Profile(_) => Ok(()),
            Filter::Allow(names) => must(built.says(names, true), || "a call is closed".to_owned()),
            Filter::Deny(names) => must(built.says(names, false), || "a call is open".to_owned()),
            Filter::NoUnix => must(built.closes_unix(), || "unix sockets can be made".to_owned()),
            Filter::SharedFiles { locks } => must(built.closes_leases() && (built.closes_locks() || !locks), || {
                "files of others can be held".to_owned()
            }),
            Filter::SharedPids => must(built.closes_others(), || "other processes can be reached".to_owned()),
            Filter::Visible => must(built.closes_undumpable(), || "a process can become undumpable".to_owned()),
            Filter::CountedMemory => {
                must(built.closes_uncounted(), || "memory can be had that nobody counts".to_owned())
            }
            Filter::NoInet => self.probed(|probe| matches!(probe, Probe::SocketMustFail { family: 2 | 10, .. })),
        }
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

/// The mount that is seen at a place, found as the kernel walks there: from the root it crosses, on the mount where it is,
/// the first one on its way. A mount that another one hides, at its place or above it, is never reached.
pub(crate) fn uppermost<'a>(found: &'a [Mount], place: &str) -> Option<&'a Mount> {
    let on_the_way = |point: &str| {
        point == "/" || place.strip_prefix(point).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    // The root of the namespace is mounted on itself, or on a mount that is not in the list.
    let mut here = found
        .iter()
        .find(|mount| mount.point == "/" && !found.iter().any(|m| m.id == mount.parent && m.id != mount.id))?;
    loop {
        let children = found.iter().filter(|mount| mount.parent == here.id && mount.id != here.id);
        match children.filter(|mount| on_the_way(&mount.point)).min_by_key(|mount| mount.point.len()) {
            Some(next) => here = next,
            None => return Some(here).filter(|mount| mount.point == place),
        }
    }
}

fn has(mount: &Mount, options: &[&str]) -> Evident {
    must(options.iter().all(|option| mount.has(option)), || {
        format!("the mount at {} must be {}, and it is {}", mount.point, options.join(", "), mount.options)
    })
}

/// What must be mounted at one place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Point {
    /// Mounts of the source may lie below.
    pub(crate) whole: bool,
    /// It must be there; a mask of something that the kernel does not have is not.
    pub(crate) needed: bool,
    /// Options that the uppermost mount must have.
    pub(crate) options: Vec<&'static str>,
    /// A device that a runtime shows, whose numbers are looked at: nothing that could be executed.
    pub(crate) device: bool,
}

/// Where mounts may be, and with which options.
fn points(config: &Config) -> BTreeMap<String, Point> {
    let text = |path: &CStr| sys::proc::shown(path.to_bytes());
    let root =
        Point { needed: true, options: options(Attrs::RDONLY | Attrs::NOSUID | Attrs::NODEV), ..Point::default() };
    let mut all = BTreeMap::from([("/".to_owned(), root)]);
    for op in &config.ops {
        let (path, whole, needed, attrs) = match op {
            Op::Bind { path, attrs, .. } => (path, true, true, *attrs),
            Op::ReadOnly { path, .. } => (path, true, true, Attrs::RDONLY),
            Op::Overlay { path, attrs, .. } | Op::Tmpfs { path, attrs, .. } | Op::Fill { path, attrs, .. } => {
                (path, false, true, *attrs)
            }
            Op::Devpts { path, .. } => (path, false, true, Attrs::NOSUID | Attrs::NOEXEC),
            Op::Proc { path } | Op::Mqueue { path } => {
                (path, false, true, Attrs::NOSUID | Attrs::NODEV | Attrs::NOEXEC)
            }
            Op::Pin { path } => (path, false, true, Attrs::NONE),
            Op::Mask { path, .. } => (path, false, false, Attrs::NONE),
            Op::Device { path, .. } => (path, false, true, super::devices::ATTRS),
            Op::Root { .. } | Op::Dir { .. } | Op::File { .. } | Op::Symlink { .. } | Op::SetAttr { .. } => continue,
        };
        let point = all.entry(text(path)).or_default();
        point.whole |= whole;
        point.needed |= needed;
        // What is mounted last at a place lies uppermost.
        point.options = options(attrs);
    }
    all
}

/// The words of `/proc/PID/mountinfo` for attributes of a mount.
pub(crate) fn options(attrs: Attrs) -> Vec<&'static str> {
    [(Attrs::RDONLY, "ro"), (Attrs::NOSUID, "nosuid"), (Attrs::NODEV, "nodev"), (Attrs::NOEXEC, "noexec")]
        .into_iter()
        .filter(|(attr, _)| attrs.bits() & attr.bits() != 0)
        .map(|(_, word)| word)
        .collect()
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
