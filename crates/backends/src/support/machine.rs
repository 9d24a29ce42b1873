//! The vm tier by QEMU or Firecracker: a machine with a kernel of its own, whose emulator runs in the container tier.
//!
//! What the machine's kernel holds inside is held as the container tier's kernel holds it; what bounds the machine from outside are
//! the emulator's words, and the control groups around it.

use policy::control::{Accelerator, CgroupLimit, Control, Controls, Emulator, Filter, Machine, Resource, Watch};
use policy::value::{NetMode, Policy, Root, Sockets, Threat, WorkspaceMode};
use policy::{Bytes, ClauseId, Support, Unmet};

use super::{
    base_rlimits, container, cpus, cpuset, held, held_with, idle, io, network, of_language, tools, unmet, watched,
    when, when_some,
};
use crate::host::{Capabilities, Emulation, Missing};
use crate::sizes::{self, Size};

/// Least memory with which the kernel that is prepared starts, and leaves something to programs.
const LEAST_MEMORY: u64 = 128 << 20;
/// Memory of a machine whose policy names none.
const DEFAULT_MEMORY: u64 = 512 << 20;
/// What the emulator may have beside the machine's memory: its code, what it translates, its buffers.
const OVERHEAD: u64 = 256 << 20;
/// The agent, the process that makes starters and the starter of the program are the user's own too.
const OWN_PROCESSES: u64 = 3;
/// Descriptors that the agent needs to start anything.
const LEAST_FILES: u32 = 128;

/// Memory of the machine of a policy.
fn memory_of(policy: &Policy) -> u64 {
    policy.limits.memory.map_or(DEFAULT_MEMORY, |limit| limit.0)
}

/// Answers for one clause.
#[expect(clippy::too_many_lines, reason = "a table: one arm per clause")]
pub(crate) fn support(id: ClauseId, emulator: Emulator, policy: &Policy, host: &Capabilities) -> Support {
    let (fs, limits) = (&policy.fs, &policy.limits);
    let inside = || in_machine(container(id, policy, host));
    match id {
        ClauseId::Tier => tier(emulator, policy, host),
        ClauseId::Backend | ClauseId::Threat | ClauseId::Enforcer => Support::NotAsked,
        ClauseId::LanguageModules | ClauseId::LanguageSteps | ClauseId::LanguageRecursion => of_language(policy, id),
        ClauseId::FsRoot => root(&fs.root),
        ClauseId::FsRead => when(!fs.read.is_empty(), || grants("fs.read/not-in-a-machine")),
        ClauseId::FsWrite => when(!fs.write.is_empty(), || grants("fs.write/not-in-a-machine")),
        ClauseId::FsHide => when(!fs.hide.is_empty(), || {
            not_built("fs.hide/not-in-a-machine", "nothing of the host is shown in a machine that could be hidden")
        }),
        ClauseId::FsSockets => match fs.sockets {
            Sockets::Host => {
                not_built("fs.sockets/not-in-a-machine", "a machine sees no folder of the host, and so no socket of it")
            }
            Sockets::Own => by_kernel(emulator, host),
            Sockets::Pairs => held(inner(Control::Filter(Filter::NoUnix))),
        },
        ClauseId::FsLandlock => when(fs.landlock.is_some(), || {
            not_built("fs.landlock/not-in-a-machine", "programs in a machine have no Landlock layer")
        }),
        ClauseId::FsExec => when(fs.exec.is_some(), || {
            not_built("fs.exec/not-in-a-machine", "the list of executables is held by Landlock, and a machine has none")
        }),
        ClauseId::FsNoexec
        | ClauseId::FsTmp
        | ClauseId::FsShm
        | ClauseId::FsRun
        | ClauseId::LimitsFileSize
        | ClauseId::LimitsDisk
        | ClauseId::LimitsFiles
        | ClauseId::ProcessUser
        | ClauseId::ProcessHostname
        | ClauseId::ProcessUmask
        | ClauseId::EnvPass
        | ClauseId::EnvSet
        | ClauseId::Inputs
        | ClauseId::SyscallsProfile
        | ClauseId::SyscallsAllow
        | ClauseId::SyscallsDeny => inside(),
        ClauseId::LimitsOpenFiles => when_some(limits.open_files, |count| open_files(count, inside)),
        ClauseId::FsProtect => match policy.workspace.mode {
            WorkspaceMode::None | WorkspaceMode::Ro => Support::NotAsked,
            // These modes are refused by the workspace's clause.
            WorkspaceMode::Rw | WorkspaceMode::Overlay | WorkspaceMode::Copy => {
                when(fs.protect, || held(Control::ProtectedAtApply))
            }
        },
        ClauseId::Workspace => workspace(policy),
        ClauseId::LimitsWall => when_some(limits.wall, |limit| held(watched(Watch::Wall(limit)))),
        ClauseId::LimitsCpuTime => {
            when_some(limits.cpu_time, |limit| held(watched(Watch::CpuTime { limit, counted: host.counts_time() })))
        }
        ClauseId::LimitsCpus => cpus(policy, host),
        ClauseId::LimitsCpuset => cpuset(policy, host),
        ClauseId::LimitsMemory => when_some(limits.memory, |limit| memory(limit, policy, host)),
        ClauseId::LimitsPids => when_some(limits.pids, |count| {
            let value = u64::from(count).saturating_add(OWN_PROCESSES);
            held(inner(Control::Rlimit { resource: Resource::Processes, value }))
        }),
        ClauseId::LimitsOutput | ClauseId::LimitsOver => {
            when_some(limits.output, |limit| held(watched(Watch::Output { limit, over: limits.over })))
        }
        ClauseId::LimitsIoRead | ClauseId::LimitsIoWrite => io(policy, host, id),
        ClauseId::LimitsIdle => idle(policy),
        ClauseId::LimitsWarn => when(limits.warn.is_some(), || usage("limits.warn/not-in-a-machine")),
        ClauseId::LimitsKill => when(limits.kill.is_some(), || usage("limits.kill/not-in-a-machine")),
        ClauseId::NetMode => match policy.net.mode {
            NetMode::None => held_with(no_network(), [inner(Control::Filter(Filter::NoInet))]),
            NetMode::Loopback => held(no_network()),
            NetMode::Allow => by_broker(emulator, policy, host),
        },
        ClauseId::NetBandwidth | ClauseId::NetBytes | ClauseId::NetConnections if policy.net.mode != NetMode::Allow => {
            metered(policy, id)
        }
        ClauseId::NetPresets
        | ClauseId::NetAllow
        | ClauseId::NetDeny
        | ClauseId::NetUnknown
        | ClauseId::NetDns
        | ClauseId::NetCa
        | ClauseId::NetProxy
        | ClauseId::NetPrograms
        | ClauseId::NetBandwidth
        | ClauseId::NetBytes
        | ClauseId::NetConnections => container(id, policy, host),
        ClauseId::Secrets => variables_inside(container(id, policy, host)),
        ClauseId::ProcessTty => when(policy.process.tty, || {
            not_built("process.tty/not-in-a-machine", "no terminal leads into a machine in this version")
        }),
        ClauseId::ProcessDevices => when(!policy.process.devices.is_empty(), || {
            not_built(
                "process.devices/not-in-a-machine",
                "no device of the host is passed into a machine in this version",
            )
        }),
        ClauseId::ProcessLabel => when(policy.process.label.is_some(), || {
            not_built("process.label/not-in-a-machine", "the machine's kernel has no policy of a security module")
        }),
        ClauseId::Commands => when(policy.commands.is_some(), || {
            not_built(
                "commands/not-in-a-machine",
                "the list of executables is held by Landlock, and a machine has none",
            )
        }),
        ClauseId::Tools => tools(policy),
        ClauseId::AuditPath | ClauseId::AuditContent | ClauseId::AuditSync => held(Control::Audit),
        ClauseId::AuditRedact => when(!policy.audit.redact.is_empty(), || held(Control::Audit)),
    }
}

/// What no policy can do without on this tier: all that the container tier needs for the emulator, and the emulator itself.
pub(crate) fn probe(emulator: Emulator, host: &Capabilities) -> Result<(), Missing> {
    super::container_probe(host)?;
    host.machine(emulator)?;
    match emulator {
        Emulator::Qemu => Ok(()),
        Emulator::Firecracker => host.kvm(emulator).map_err(|missing| Missing {
            why: format!("Firecracker starts machines on KVM alone: {}", missing.why),
            fix: format!("{}; or drop `backend`: QEMU has a software processor", missing.fix),
            ..missing
        }),
    }
}

fn tier(emulator: Emulator, policy: &Policy, host: &Capabilities) -> Support {
    if let Err(Missing { id, why, fix }) = probe(emulator, host) {
        return unmet(id, why, fix);
    }
    let emulation = match host.machine(emulator) {
        Ok(emulation) => emulation,
        Err(Missing { id, why, fix }) => return unmet(id, why, fix),
    };
    let faults: Vec<String> =
        emulation.faults().map(|hole| format!("{} (mended in {}): {}", hole.id, hole.mended, hole.what)).collect();
    if policy.threat != Threat::Mistakes && !faults.is_empty() {
        return unmet(
            match emulator {
                Emulator::Qemu => "qemu/known-faults",
                Emulator::Firecracker => "firecracker/known-faults",
            },
            format!(
                "{} {} has faults that are mended since: {}",
                emulator.as_str(),
                emulation.version,
                faults.join("; ")
            ),
            "install a newer release, or say `threat = \"mistakes\"` where the code is honest and may only be wrong",
        );
    }
    let memory = memory_of(policy);
    if memory < LEAST_MEMORY {
        return unmet(
            "limits.memory/less-than-a-machine",
            "a machine with its own kernel needs 128 MiB",
            "use `--memory 128M` or more, or `--tier container`",
        );
    }
    let version = emulation.version.clone();
    let accelerator = match emulator {
        Emulator::Qemu => host.accelerator(),
        Emulator::Firecracker => Accelerator::Kvm,
    };
    let emulator =
        Control::Machine(Machine::Emulator { program: emulator, version, accelerator, against: policy.threat });
    let inside = [Control::NoNewPrivs, Control::NoCapabilities, Control::NoGroups, Control::NoInnerNamespaces];
    held_with(
        emulator,
        [kernel(emulation), Control::Machine(Machine::Memory(memory))]
            .into_iter()
            .chain((policy.net.mode != NetMode::Allow).then(no_network))
            .chain(inside.into_iter().chain(base_rlimits()).map(inner)),
    )
}

fn kernel(emulation: &Emulation) -> Control {
    let (release, digest) = (emulation.kernel.release.clone(), emulation.kernel.digest());
    Control::Machine(Machine::Kernel { release, digest })
}

fn by_kernel(emulator: Emulator, host: &Capabilities) -> Support {
    match host.machine(emulator) {
        Ok(emulation) => held(kernel(emulation)),
        Err(Missing { id, why, fix }) => unmet(id, why, fix),
    }
}

const fn no_network() -> Control {
    Control::Machine(Machine::NoNetwork)
}

fn inner(control: Control) -> Control {
    Control::InMachine(Box::new(control))
}

/// What the container tier answers, held by the machine's own kernel.
fn in_machine(answer: Support) -> Support {
    match answer {
        Support::NotAsked => Support::NotAsked,
        Support::Held(controls) => {
            let mut all = controls.iter().cloned().map(inner);
            all.next().map_or(Support::NotAsked, |first| Support::Held(Controls::new(first, all)))
        }
        // What is weaker there is not built here.
        Support::Unmet(unmet) => Support::Unmet(Unmet { weaker: None, ..unmet }),
    }
}

fn root(root: &Root) -> Support {
    let other = |why| {
        unmet(
            "fs.root/not-in-a-machine",
            why,
            "use `fs.root = \"dir:PATH\"` or `\"image:NAME\"`: the tree goes in as a disk",
        )
    };
    match root {
        Root::Dir(_) => held(inner(Control::Root(root.clone()))),
        Root::Image(image) => match &image.found {
            // What is built, or another's, has no digest that could be demanded.
            Ok(found) if !found.is_kept() => other("a tree that no store keeps is not read whole before it goes in"),
            Ok(found) => held_with(inner(Control::Root(root.clone())), [Control::ImageTree(found.digest.clone())]),
            Err(lacking) => unmet(lacking.id, lacking.why.clone(), lacking.fix.clone()),
        },
        Root::Empty => other("a machine has no empty root in this version"),
        Root::Host => other("the host's own tree does not go into a machine: it would have to be copied"),
    }
}

/// A copy that the supervisor makes goes in as an image, and into a file system of its own there.
fn workspace(policy: &Policy) -> Support {
    let Some(from) = policy.workspace.path.clone() else { return Support::NotAsked };
    let at = policy.workspace.at.clone().unwrap_or_else(|| from.clone());
    let copied = Control::Copy { from: from.clone(), at: at.clone(), size: None };
    match policy.workspace.mode {
        WorkspaceMode::None => Support::NotAsked,
        WorkspaceMode::Ro => held_with(inner(Control::Mount { from, at, write: false }), [copied]),
        WorkspaceMode::Copy => {
            let Size { bytes, inodes } = sizes::divide(policy).workspace;
            held_with(inner(Control::Copy { from, at, size: Some((bytes, inodes)) }), [copied])
        }
        mode @ (WorkspaceMode::Rw | WorkspaceMode::Overlay) => unmet(
            "workspace/not-in-a-machine",
            format!("a machine sees no folder of the host, and so no workspace of mode `{}`", mode.as_str()),
            "use `copy` (`-w PATH:copy`), whose changes wait for `apply`, or `ro`",
        ),
    }
}

fn not_built(id: &'static str, why: &str) -> Support {
    unmet(id, why, "leave it out, or use `--tier container`")
}

fn grants(id: &'static str) -> Support {
    unmet(
        id,
        "no file of the host goes into a machine in this version but its root",
        "put it into the root (`fs.root = \"dir:PATH\"`), or use `--tier container`",
    )
}

fn usage(id: &'static str) -> Support {
    not_built(id, "usage is that of the emulator: its memory and time say little of the programs inside")
}

/// Frames of the machine's one device go to the network namespace of the emulator's sandbox, where all stands that stands around a
/// container's programs.
fn by_broker(emulator: Emulator, policy: &Policy, host: &Capabilities) -> Support {
    if emulator == Emulator::Firecracker {
        return unmet(
            "net.mode/no-device",
            "a machine by Firecracker has no network device in this version",
            "use `backend = \"qemu\"`, whose machines reach hosts by name",
        );
    }
    if host.machine(emulator).is_ok_and(|emulation| !emulation.kernel.network) {
        return unmet(
            "net.mode/no-driver",
            "the kernel of machines was prepared by an older version, without what drives a network device",
            "prepare it again, as root: fumehood machine prepare",
        );
    }
    match network::by_broker(policy, host) {
        Support::Held(all) => {
            // The namespace itself is of the emulator's own plan.
            let others = all.iter().filter(|control| !matches!(control, Control::Namespace(_))).cloned();
            let is_inside = |control: &Control| matches!(control, Control::Certificates { .. });
            let others = others.map(|control| if is_inside(&control) { inner(control) } else { control });
            held_with(Control::Machine(Machine::Network { ipv6: host.ipv6() }), others.collect::<Vec<_>>())
        }
        other @ (Support::NotAsked | Support::Unmet(_)) => other,
    }
}

/// What the container tier answers, whose part in the environment is the machine's.
fn variables_inside(answer: Support) -> Support {
    match answer {
        Support::Held(all) => {
            let of = |control: &Control| {
                if matches!(control, Control::Environment(_)) { inner(control.clone()) } else { control.clone() }
            };
            let mut all = all.iter().map(of);
            all.next().map_or(Support::NotAsked, |first| Support::Held(Controls::new(first, all)))
        }
        other @ (Support::NotAsked | Support::Unmet(_)) => other,
    }
}

/// Where no byte leaves there is nothing to meter; on `lo` nobody is there who would.
fn metered(policy: &Policy, id: ClauseId) -> Support {
    match network::metered(policy, id) {
        Support::Held(_) => held_with(no_network(), [inner(Control::Filter(Filter::NoInet))]),
        other @ (Support::NotAsked | Support::Unmet(_)) => other,
    }
}

fn open_files(count: u32, inside: impl FnOnce() -> Support) -> Support {
    if count >= LEAST_FILES {
        return inside();
    }
    unmet(
        "limits.open_files/less-than-a-machine",
        format!("the agent that starts programs in a machine needs {LEAST_FILES}"),
        format!("use `limits.open_files = {LEAST_FILES}` or more"),
    )
}

/// All programs of a machine together have the machine's memory, and the control group bounds the emulator with it.
fn memory(limit: Bytes, policy: &Policy, host: &Capabilities) -> Support {
    if let Some(there) = host.memory().filter(|there| *there < limit.0) {
        let there = there >> 20;
        return unmet(
            "limits.memory/more-than-the-host",
            format!("the machine would have {limit} of memory, and this host has {there} MiB with its swap"),
            "use a smaller `--memory`, or `--tier container`",
        );
    }
    let all = limit.0.saturating_add(OVERHEAD);
    let group = host.controller("memory").map(|version| Control::Cgroup { version, limit: CgroupLimit::Memory(all) });
    // The group does not count the locks of what got out of the emulator, nor what waits in the sockets of its namespace.
    let locks = group.is_some().then(|| watched(Watch::Locks(super::MAX_LOCKS)));
    let sockets = group.is_some() && policy.net.mode == NetMode::Allow;
    let waiting = sockets.then(|| watched(super::waiting(Bytes(all))));
    held_with(Control::Machine(Machine::Memory(limit.0)), group.into_iter().chain(locks).chain(waiting))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Assumed;
    use crate::support::policy_of;

    fn refused(id: ClauseId, emulator: Emulator, text: &str, host: &Capabilities) -> Option<&'static str> {
        match support(id, emulator, &policy_of(text), host) {
            Support::Unmet(unmet) => Some(unmet.id),
            Support::Held(_) | Support::NotAsked => None,
        }
    }

    #[test]
    fn hosts_by_name_are_refused_where_a_machine_has_no_device_for_them() {
        let host = Capabilities::assumed(Assumed::Groups);
        let allow = "net = { mode = \"allow\", allow = [\"example.org\"] }";
        let of = |emulator, text| refused(ClauseId::NetMode, emulator, text, &host);
        assert_eq!(of(Emulator::Firecracker, allow), Some("net.mode/no-device"));
        assert_eq!(of(Emulator::Qemu, allow), None);
        for closed in ["", "net.mode = \"loopback\""] {
            assert_eq!(of(Emulator::Firecracker, closed), None);
        }
    }

    /// This host has no machine by Firecracker that started on its KVM: nobody asked it to try.
    #[test]
    fn firecracker_without_its_program_or_a_kvm_that_it_has_started_on_is_refused_and_qemu_is_not_asked() {
        let host = Capabilities::probe();
        let missing = probe(Emulator::Firecracker, &host).unwrap_err();
        assert_eq!(refused(ClauseId::Tier, Emulator::Firecracker, "", &host), Some(missing.id));
        assert!(!missing.fix.is_empty() && !missing.why.contains("qemu"), "{missing:?}");
        let own = ["firecracker/not-here", "firecracker/not-trusted", "firecracker/unusable", "machine/no-kvm"];
        let of_machines = ["tier/no-machine-kernel", "tier/no-mke2fs", "tier/no-namespaces"];
        assert!(own.iter().chain(&of_machines).any(|id| *id == missing.id), "{missing:?}");
    }

    #[test]
    fn a_plan_names_the_emulator_and_what_it_runs_on() {
        let host = Capabilities::assumed(Assumed::Groups);
        let named = |emulator| match support(ClauseId::Tier, emulator, &policy_of(""), &host) {
            Support::Held(controls) => controls.iter().next().map(Control::name),
            Support::Unmet(_) | Support::NotAsked => None,
        };
        assert_eq!(named(Emulator::Firecracker).as_deref(), Some("vm:firecracker-kvm"));
        assert_eq!(named(Emulator::Qemu).as_deref(), Some("vm:qemu-tcg"));
    }
}
