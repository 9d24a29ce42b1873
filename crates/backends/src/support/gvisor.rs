//! The gvisor tier: what the Sentry holds by itself, what the host holds around it, and what is refused.

use policy::control::{CgroupLimit, Control, Filter, Namespace, Resource, Watch};
use policy::value::{Grant, NetMode, Policy, Sockets, Threat, WorkspaceMode};
use policy::{ClauseId, Support};

use super::{
    by_group, cpu_time, cpus, file_size, held, held_with, idle, network, no_controller, of_language, tools, unmet,
    watched, when, when_some,
};
use crate::host::{Capabilities, Missing};
use crate::sizes::{self, Size};

/// What gVisor itself takes of the memory of a run (measured: 18 to 22 MiB with a small program), and what one needs beside it.
const LEAST_MEMORY: u64 = 32 << 20;
/// Tasks of the host that gVisor has whatever runs inside, and those for each task inside.
const OWN_TASKS: u64 = 256;
const TASKS_FOR_EACH: u64 = 3;

/// Answers for one clause.
#[expect(clippy::too_many_lines, reason = "a table: one arm per clause")]
pub(crate) fn support(id: ClauseId, policy: &Policy, host: &Capabilities) -> Support {
    let (fs, limits, process) = (&policy.fs, &policy.limits, &policy.process);
    let filter = |part| held(Control::Filter(part));
    match id {
        ClauseId::Tier => tier(policy, host),
        ClauseId::Backend | ClauseId::Threat | ClauseId::Enforcer => Support::NotAsked,
        ClauseId::FsRoot if fs.root.is_built() => unmet(
            "fs.root/gvisor",
            "the tree of an image that is being built is written to, and this tier writes nothing straight to the host",
            "build it by `--tier container`; what was built runs here",
        ),
        ClauseId::FsRoot => super::root(&fs.root),
        ClauseId::FsRead => mounts(&fs.read),
        ClauseId::FsWrite => when(!fs.write.is_empty(), || {
            unmet(
                "fs.write/gvisor",
                "what a run of this tier writes on the host would belong to uid 1000 whoever owns the folder",
                "use workspace mode `copy`, or `--tier container`",
            )
        }),
        ClauseId::FsHide => when(!fs.hide.is_empty(), || {
            unmet(
                "fs.hide/gvisor",
                "nothing covers single files on this tier",
                "grant the wanted paths one by one, or use `--tier container`",
            )
        }),
        ClauseId::FsSockets => match fs.sockets {
            Sockets::Host => unmet(
                "fs.sockets/gvisor",
                "gVisor's file server connects no program to a socket of the host",
                "use `fs.sockets = \"own\"`, or `--tier container`",
            ),
            Sockets::Own => held(Control::Namespace(Namespace::Mount)),
            Sockets::Pairs => held_with(Control::Filter(Filter::NoUnix), [Control::Namespace(Namespace::Mount)]),
        },
        ClauseId::FsLandlock => when(fs.landlock.is_some(), || {
            unmet(
                "fs.landlock/gvisor",
                "gVisor's kernel has no Landlock",
                "remove `fs.landlock`: on this tier another kernel judges each path",
            )
        }),
        ClauseId::FsExec => when(fs.exec.is_some(), || {
            unmet(
                "fs.exec/gvisor",
                "gVisor's kernel has no Landlock, which holds the list of executables",
                "remove `fs.exec`, or use `--tier container`",
            )
        }),
        ClauseId::FsNoexec => when(fs.noexec, || held(Control::NoexecMounts)),
        ClauseId::FsTmp => held(tmpfs("/tmp", sizes::divide(policy).tmp)),
        ClauseId::FsShm => held(tmpfs("/dev/shm", sizes::divide(policy).shm)),
        ClauseId::FsRun => held(tmpfs("/run", sizes::divide(policy).run)),
        ClauseId::FsProtect => {
            when(fs.protect && policy.workspace.mode == WorkspaceMode::Copy, || held(Control::ProtectedAtApply))
        }
        ClauseId::Workspace => workspace(policy),
        ClauseId::LimitsWall => when_some(limits.wall, |limit| held(watched(Watch::Wall(limit)))),
        ClauseId::LimitsCpuTime => cpu_time(policy, host),
        ClauseId::LimitsCpus => cpus(policy, host),
        ClauseId::LimitsCpuset => super::cpuset(policy, host),
        ClauseId::LimitsMemory => memory(policy, host),
        ClauseId::LimitsPids => pids(policy, host),
        ClauseId::LimitsOpenFiles => when_some(limits.open_files, |count| {
            held(Control::Rlimit { resource: Resource::OpenFiles, value: u64::from(count) })
        }),
        ClauseId::LimitsFileSize => {
            when(limits.file_size.is_some(), || file_size(policy).map_or(Support::NotAsked, held))
        }
        ClauseId::LimitsDisk => when(limits.disk.is_some(), || disk(policy)),
        ClauseId::LimitsFiles => when(limits.files.is_some(), || disk(policy)),
        ClauseId::LimitsOutput | ClauseId::LimitsOver => {
            when_some(limits.output, |limit| held(watched(Watch::Output { limit, over: limits.over })))
        }
        ClauseId::LimitsIoRead | ClauseId::LimitsIoWrite => when(policy.demand(id).is_some(), || {
            unmet(
                "limits.io/gvisor",
                "gVisor's file server reads for the program, ahead and for itself: no rate of it was shown to hold",
                "remove the limit, or use `--tier container`",
            )
        }),
        ClauseId::LimitsIdle => idle(policy),
        ClauseId::LimitsWarn => when_some(limits.warn, |usage| held(watched(Watch::Warn(usage)))),
        ClauseId::LimitsKill => when_some(limits.kill, |usage| held(watched(Watch::Kill(usage)))),
        ClauseId::NetMode => match policy.net.mode {
            NetMode::None => held_with(Control::Namespace(Namespace::Net), [Control::Filter(Filter::NoInet)]),
            NetMode::Loopback => held(Control::Namespace(Namespace::Net)),
            NetMode::Allow => by_broker(policy, host),
        },
        ClauseId::NetPresets | ClauseId::NetAllow | ClauseId::NetDeny | ClauseId::NetUnknown | ClauseId::NetDns => {
            network::rules(policy, id)
        }
        ClauseId::NetCa => network::roots(policy),
        ClauseId::NetPrograms => network::programs(policy, id),
        ClauseId::NetProxy => network::proxy(policy, id),
        ClauseId::NetBandwidth | ClauseId::NetBytes | ClauseId::NetConnections => network::metered(policy, id),
        ClauseId::Secrets => network::secrets(policy),
        ClauseId::EnvPass | ClauseId::EnvSet | ClauseId::Inputs => super::environment(policy, id),
        ClauseId::ProcessUser => held(super::user(policy)),
        ClauseId::ProcessHostname => held(Control::Hostname(process.hostname.clone())),
        ClauseId::ProcessUmask => held(Control::Umask(process.umask)),
        ClauseId::ProcessTty => when(process.tty, || {
            unmet(
                "process.tty/gvisor",
                "a terminal of gVisor's own kernel cannot be handed out",
                "run it without `-t`, or use `--tier container`",
            )
        }),
        ClauseId::ProcessLabel => when(process.label.is_some(), || {
            unmet(
                "process.label/gvisor",
                "gVisor's kernel has no security module that gives labels",
                "remove `process.label`, or use `--tier container`",
            )
        }),
        ClauseId::ProcessDevices => when(!process.devices.is_empty(), || {
            unmet(
                "process.devices/gvisor",
                "gVisor's kernel has drivers of its own, and hands no device of the host on",
                "remove `process.devices`, or use `--tier container`",
            )
        }),
        ClauseId::SyscallsProfile => filter(Filter::Profile(policy.syscalls.profile.clone())),
        ClauseId::SyscallsAllow => {
            when(!policy.syscalls.allow.is_empty(), || filter(Filter::Allow(policy.syscalls.allow.clone())))
        }
        ClauseId::SyscallsDeny => {
            when(!policy.syscalls.deny.is_empty(), || filter(Filter::Deny(policy.syscalls.deny.clone())))
        }
        ClauseId::LanguageModules | ClauseId::LanguageSteps | ClauseId::LanguageRecursion => of_language(policy, id),
        ClauseId::Commands => when_some(policy.commands.as_ref(), |commands| match commands.exec {
            true => unmet(
                "commands/no-kernel-list",
                "gVisor's kernel has no Landlock, which holds the list of executables",
                "say `commands.exec = false`: then the broker alone judges; or use `--tier container`",
            ),
            false => super::commands::held_by(policy, host, Control::NoexecMounts, |_, _| None),
        }),
        ClauseId::Tools => tools(policy),
        ClauseId::AuditPath | ClauseId::AuditContent | ClauseId::AuditSync => held(Control::Audit),
        ClauseId::AuditRedact => when(!policy.audit.redact.is_empty(), || held(Control::Audit)),
    }
}

/// What no policy can do without on this tier.
pub(crate) fn probe(host: &Capabilities) -> Result<(), Missing> {
    host.proc()?;
    let engine = host.runsc()?;
    if !host.root() && !host.is_assumed() {
        return Err(Missing {
            id: "gvisor/needs-root",
            why: format!("{} is started as root, whose groups and namespaces hold it", engine.path.display()),
            fix: "run fumehood as root (`sudo fumehood run --tier gvisor ...`), or use the weaker `--tier container`"
                .to_owned(),
        });
    }
    if host.controller("memory").is_none() && !host.is_assumed() {
        return Err(Missing {
            id: "gvisor/no-group",
            why: format!("gVisor's processes are held and ended by a control group: {}", host.cgroup_why("memory")),
            fix: "run where control groups are writable (`fumehood doctor` says how), or use `--tier container`"
                .to_owned(),
        });
    }
    Ok(())
}

fn tier(policy: &Policy, host: &Capabilities) -> Support {
    if let Err(Missing { id, why, fix }) = probe(host) {
        return unmet(id, why, fix);
    }
    let engine = match host.runsc() {
        Ok(engine) => engine,
        Err(Missing { id, why, fix }) => return unmet(id, why, fix),
    };
    let faults = engine.told_faults();
    // Several parties rely on gVisor alone; against one hostile program it comes on top of what the host holds, so its faults are
    // told in the plan there (0059).
    if let Some(faults) = faults.as_ref().filter(|_| policy.threat == Threat::MultiTenant) {
        return unmet(
            "gvisor/known-faults",
            format!("gVisor {} has faults that are mended since: {faults}", engine.version),
            "put gVisor's own newest release at /usr/local/bin/runsc, or use `--tier vm`",
        );
    }
    let namespaces = [Namespace::User, Namespace::Mount, Namespace::Net, Namespace::Ipc, Namespace::Uts];
    let posture = [
        Control::NoNewPrivs,
        Control::NoCapabilities,
        Control::NoGroups,
        Control::NoDescriptors,
        Control::Undumpable,
        Control::Session,
    ];
    held_with(
        Control::OwnKernel { platform: engine.platform, faults },
        namespaces.map(Control::Namespace).into_iter().chain(posture),
    )
}

/// As on the container tier, with a way of gVisor's own network stack to the broker's sockets.
fn by_broker(policy: &Policy, host: &Capabilities) -> Support {
    let controls = match network::by_broker(policy, host) {
        Support::Held(controls) => controls,
        other @ (Support::NotAsked | Support::Unmet(_)) => return other,
    };
    let mut all = controls.iter().cloned();
    all.next().map_or(Support::NotAsked, |first| held_with(first, all.chain([Control::Veth])))
}

fn mounts(grants: &[Grant]) -> Support {
    let one = |grant: &Grant| Control::Mount { from: grant.from.clone(), at: grant.to.clone(), write: false };
    let mut all = grants.iter().map(one);
    all.next().map_or(Support::NotAsked, |first| held_with(first, all))
}

fn workspace(policy: &Policy) -> Support {
    let Some(from) = policy.workspace.path.clone() else { return Support::NotAsked };
    let at = policy.workspace.at.clone().unwrap_or_else(|| from.clone());
    match policy.workspace.mode {
        WorkspaceMode::None => Support::NotAsked,
        WorkspaceMode::Ro => held(Control::Mount { from, at, write: false }),
        WorkspaceMode::Copy => {
            let Size { bytes, inodes } = sizes::divide(policy).workspace;
            held(Control::Copy { from, at, size: Some((bytes, inodes)) })
        }
        mode @ (WorkspaceMode::Rw | WorkspaceMode::Overlay) => unmet(
            "workspace/gvisor",
            format!("a workspace of mode `{}` is not shown on this tier", mode.as_str()),
            "use `copy` (`-w PATH:copy`), whose changes wait for `apply`, or `ro`",
        ),
    }
}

/// The whole of gVisor is in the group, the program's memory and its own.
fn memory(policy: &Policy, host: &Capabilities) -> Support {
    when_some(policy.limits.memory, |limit| {
        if limit.0 < LEAST_MEMORY {
            return unmet(
                "limits.memory/gvisor",
                format!("gVisor's own processes are in the limit, and {limit} leave too little for a program"),
                "allow 32 MiB or more, or use `--tier container`",
            );
        }
        by_group(host, "gvisor/no-group", [CgroupLimit::Memory(limit.0)])
    })
}

/// gVisor's kernel counts the tasks of the program's user; the host counts those of gVisor, which are more.
fn pids(policy: &Policy, host: &Capabilities) -> Support {
    when_some(policy.limits.pids, |count| {
        let count = u64::from(count);
        // One more for the guest itself.
        let inside = Control::Rlimit { resource: Resource::Processes, value: count.saturating_add(1) };
        let outside = super::tasks(count.saturating_mul(TASKS_FOR_EACH).saturating_add(OWN_TASKS));
        match host.controller("pids") {
            Some(version) => held_with(inside, [Control::Cgroup { version, limit: outside }]),
            None => no_controller(host, "pids", "gvisor/no-group"),
        }
    })
}

const fn tmpfs(at: &'static str, Size { bytes, inodes }: Size) -> Control {
    Control::Tmpfs { at, bytes, inodes }
}

/// All that is writable.
fn disk(policy: &Policy) -> Support {
    let sizes = sizes::divide(policy);
    let others = [tmpfs("/dev/shm", sizes.shm), tmpfs("/run", sizes.run)];
    let copy = match workspace(policy) {
        Support::Held(controls) => controls.iter().find(|control| matches!(control, Control::Copy { .. })).cloned(),
        Support::NotAsked | Support::Unmet(_) => None,
    };
    held_with(tmpfs("/tmp", sizes.tmp), others.into_iter().chain(copy))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::policy_of;

    /// The answer of the tier under a threat, with a release of this day.
    fn asked(threat: Threat, date: u32) -> Result<Control, policy::Unmet> {
        let mut policy = policy_of("");
        policy.threat = threat;
        match support(ClauseId::Tier, &policy, &Capabilities::with_runsc_of(date)) {
            Support::Held(controls) => Ok(controls.iter().next().expect("one control").clone()),
            Support::Unmet(unmet) => Err(unmet),
            Support::NotAsked => panic!("it is always asked"),
        }
    }

    #[test]
    fn a_release_with_known_faults_is_refused_to_several_parties_and_told_to_one() {
        let (old, new) = (20_221_219, 20_250_401);
        let refused = asked(Threat::MultiTenant, old).expect_err("its faults are known");
        assert!(refused.id == "gvisor/known-faults" && refused.why.contains("CVE-2025-2713"), "{refused:?}");
        for (threat, date) in [(Threat::MultiTenant, new), (Threat::Hostile, old), (Threat::Mistakes, old)] {
            let control = asked(threat, date).unwrap_or_else(|unmet| panic!("{threat} {date}: {unmet:?}"));
            let told = control.overshoot().is_some_and(|words| words.contains("CVE-2025-2713"));
            assert_eq!(told, date == old, "{control:?}");
        }
    }
}
