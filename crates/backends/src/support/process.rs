//! The process tier on the native backend: no namespaces, so no tree of its own.

use std::path::Path;

use policy::control::{Control, Filter, Watch};
use policy::value::{Grant, NetMode, Policy, Root, Sockets, WorkspaceMode};
use policy::{ClauseId, Support};

use super::{
    commands, confinement, cpu_time, cpus, executables, file_size, held, held_with, idle, io, looked_at, memory,
    network, of_language, pids, tools, unmet, unmet_but, watched, when, when_some,
};
use crate::host::{Capabilities, Missing};

/// Least Landlock ABI: scopes for signals, without which the payload could signal the caller's processes.
const LEAST_LANDLOCK: u32 = 6;

/// Answers for one clause.
#[expect(clippy::too_many_lines, reason = "a table: one arm per clause")]
pub(crate) fn support(id: ClauseId, policy: &Policy, host: &Capabilities) -> Support {
    let (fs, limits, process) = (&policy.fs, &policy.limits, &policy.process);
    let layer = || Control::Landlock(host.landlock);
    let filter = |part| held(Control::Filter(part));
    match id {
        ClauseId::Tier => tier(policy, host),
        ClauseId::Backend | ClauseId::Threat | ClauseId::Enforcer => Support::NotAsked,
        ClauseId::FsRoot => match &fs.root {
            Root::Host => held(layer()),
            Root::Empty | Root::Dir(_) | Root::Image(_) => container_only(
                "fs.root/needs-container",
                "another root tree needs a mount namespace, and this tier has none",
            ),
        },
        ClauseId::FsRead => read_grants(policy),
        ClauseId::FsWrite => grants(&fs.write, true),
        ClauseId::FsHide => when(!fs.hide.is_empty(), || {
            container_only("fs.hide/needs-container", "Landlock cannot take a part out of a grant")
        }),
        // Without a tree of its own, sockets of the program cannot be told from those of the host.
        ClauseId::FsSockets => when(fs.sockets != Sockets::Host, || filter(Filter::NoUnix)),
        ClauseId::FsLandlock => too_old(policy, host).unwrap_or_else(|| held(layer())),
        ClauseId::FsExec => when_some(fs.exec.clone(), |files| {
            if let Some(file) = files.iter().find(|file| written(policy).any(|place| file.starts_with(place))) {
                let why = format!(
                    "`{}` lies in what can be written: whatever is put there would be executed",
                    file.display()
                );
                return container_only("fs.exec/within-write", &why);
            }
            if let Some(refused) = executables::refused(policy, false) {
                return refused;
            }
            held_with(Control::Executables { abi: host.landlock, files }, [Control::NoexecRules(host.landlock)])
        }),
        ClauseId::FsNoexec => when(fs.noexec, || held(Control::NoexecRules(host.landlock))),
        ClauseId::FsTmp => {
            looked_at(policy, host.may_stop(false), Watch::Tmp(fs.tmp), [Filter::Visible], file_size(policy))
        }
        // There is no /dev/shm and no /run of its own, so nothing has these sizes: the plan says it beside its clauses.
        ClauseId::FsShm | ClauseId::FsRun => Support::NotAsked,
        ClauseId::FsProtect => when(fs.protect, || protect(policy)),
        ClauseId::Workspace => workspace(policy),
        ClauseId::LimitsWall => when_some(limits.wall, |limit| held(watched(Watch::Wall(limit)))),
        ClauseId::LimitsCpuTime => cpu_time(policy, host),
        ClauseId::LimitsCpus => cpus(policy, host),
        ClauseId::LimitsCpuset => super::cpuset(policy, host),
        ClauseId::LimitsMemory => memory(policy, host, false),
        ClauseId::LimitsPids => {
            pids(policy, host, |count| looked_at(policy, true, Watch::Pids(count), [Filter::Visible], []))
        }
        ClauseId::LimitsOpenFiles => when_some(limits.open_files, |count| {
            held(Control::Rlimit { resource: policy::control::Resource::OpenFiles, value: u64::from(count) })
        }),
        ClauseId::LimitsFileSize => {
            when(limits.file_size.is_some(), || file_size(policy).map_or(Support::NotAsked, held))
        }
        ClauseId::LimitsDisk => {
            when_some(limits.disk, |size| disk(policy, host, "limits.disk/rw-without-quota", Watch::Disk(size)))
        }
        ClauseId::LimitsFiles => {
            when_some(limits.files, |count| disk(policy, host, "limits.files/rw-without-quota", Watch::Files(count)))
        }
        ClauseId::LimitsOutput | ClauseId::LimitsOver => {
            when_some(limits.output, |limit| held(watched(Watch::Output { limit, over: limits.over })))
        }
        ClauseId::LimitsIoRead | ClauseId::LimitsIoWrite => io(policy, host, id),
        ClauseId::LimitsIdle => idle(policy),
        ClauseId::LimitsWarn => when_some(limits.warn, |usage| held(watched(Watch::Warn(usage)))),
        ClauseId::LimitsKill => when_some(limits.kill, |usage| held(watched(Watch::Kill(usage)))),
        ClauseId::NetMode => match policy.net.mode {
            NetMode::None => filter(Filter::NoInet),
            NetMode::Loopback => container_only(
                "net.mode/loopback-needs-container",
                "without a network namespace `lo` is the host's own, with all that listens there",
            ),
            NetMode::Allow => network::without_namespace(policy, id),
        },
        ClauseId::NetPresets
        | ClauseId::NetAllow
        | ClauseId::NetDeny
        | ClauseId::NetUnknown
        | ClauseId::NetPrograms
        | ClauseId::NetDns
        | ClauseId::NetCa
        | ClauseId::NetProxy
        | ClauseId::NetBandwidth
        | ClauseId::NetBytes
        | ClauseId::NetConnections => network::without_namespace(policy, id),
        ClauseId::EnvPass | ClauseId::EnvSet | ClauseId::Inputs => super::environment(policy, id),
        ClauseId::Secrets => network::secrets_without_broker(policy),
        // Without namespaces the program runs as the caller (or, from root, as an unprivileged user), and sees the
        // machine's own name: the tier's table says so. Whoever asks for names of their own does not get them here.
        ClauseId::ProcessUser => when(process.user != SHOWN_USER, || {
            container_only(
                "process.user/needs-container",
                "a user name of its own needs a user namespace and an `/etc`",
            )
        }),
        ClauseId::ProcessHostname => when(process.hostname != SHOWN_HOSTNAME, || {
            container_only("process.hostname/needs-container", "a host name of its own needs a UTS namespace")
        }),
        ClauseId::ProcessUmask => held(Control::Umask(process.umask)),
        // One of the host's, opened before Landlock and given to the program alone: it can reach no other.
        ClauseId::ProcessDevices => when(!process.devices.is_empty(), || {
            container_only(
                "process.devices/needs-container",
                "a node of a device is shown by a mount, and this tier has none",
            )
        }),
        ClauseId::ProcessTty => when(process.tty, || held_with(Control::Terminal { instance: false }, [layer()])),
        ClauseId::ProcessLabel => when(process.label.is_some(), || {
            container_only(
                "process.label/needs-container",
                "without a pid namespace the end of a run is a signal, which the label's own policy may forbid",
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
        ClauseId::Commands => {
            commands::held_by(policy, host, Control::NoexecRules(host.landlock), commands::within_folder)
        }
        ClauseId::Tools => tools(policy),
        ClauseId::AuditPath | ClauseId::AuditContent | ClauseId::AuditSync => held(Control::Audit),
        ClauseId::AuditRedact => when(!policy.audit.redact.is_empty(), || held(Control::Audit)),
    }
}

/// What no policy can do without on this tier. The least Landlock depends on the policy.
pub(crate) fn probe(host: &Capabilities) -> Result<(), Missing> {
    host.proc()
}

fn tier(policy: &Policy, host: &Capabilities) -> Support {
    // Asked of the tier itself too: a policy that says nothing about Landlock needs it here all the same.
    if let Some(too_old) = too_old(policy, host) {
        return too_old;
    }
    if let Err(Missing { id, why, fix }) = probe(host) {
        return unmet(id, why, fix);
    }
    // One that the policy names is open, or closed to all: the plan shows that clause.
    let named = |call: &str| policy.syscalls.allow.iter().chain(&policy.syscalls.deny).any(|name| name == call);
    let asked = !["readlink", "readlinkat"].iter().all(|call| named(call));
    if asked && !host.may_stop(false) {
        return unmet(
            "tier/links-unread",
            "where a link leads is asked of the supervisor, and it may not read what a program asks (kernel.yama.ptrace_scope)",
            "sysctl -w kernel.yama.ptrace_scope=1, use `--tier container`, or say syscalls.allow = [\"readlink\", \"readlinkat\"]: then links of folders that were not granted are read",
        );
    }
    let links = asked.then_some(Control::Filter(Filter::Links));
    held_with(
        Control::Landlock(host.landlock),
        [
            Control::SignalScope,
            Control::RunMark,
            Control::Filter(Filter::SharedPids),
            Control::Filter(Filter::SharedFiles { locks: !policy.writes_to_host(), watches: true }),
        ]
        .into_iter()
        .chain(links)
        .chain(confinement(host)),
    )
}

/// What every policy says unless somebody wrote otherwise (`resources/presets/strict.toml`).
const SHOWN_USER: &str = "user";
const SHOWN_HOSTNAME: &str = "sandbox";

fn container_only(id: &'static str, why: &str) -> Support {
    unmet(id, why, "use `--tier container`, or change the clause")
}

/// What can be written on the host.
fn written(policy: &Policy) -> impl Iterator<Item = &Path> {
    let workspace = policy.workspace.path.as_deref().filter(|_| policy.workspace.mode == WorkspaceMode::Rw);
    policy.fs.write.iter().map(|grant| grant.from.as_path()).chain(workspace)
}

/// Whether a place lies in one that can be written, and so could be written too: rights of Landlock add up along a path.
fn within_written(policy: &Policy, place: &Path) -> bool {
    written(policy).any(|above| place != above && place.starts_with(above))
}

fn read_grants(policy: &Policy) -> Support {
    if let Some(grant) = policy.fs.read.iter().find(|grant| within_written(policy, &grant.from)) {
        let why = format!(
            "`{}` lies in what is granted for writing, and rights of Landlock add up along a path: it could be written too",
            grant.from.display()
        );
        return container_only("fs.read/within-write", &why);
    }
    grants(&policy.fs.read, false)
}

fn grants(list: &[Grant], write: bool) -> Support {
    if list.iter().any(|grant| grant.from != grant.to) {
        return container_only(
            "fs.read/moved-needs-container",
            "showing a path elsewhere needs a mount namespace, and this tier has none",
        );
    }
    let mut rules = list.iter().map(|grant| Control::Rule { path: grant.from.clone(), write });
    rules.next().map_or(Support::NotAsked, |first| held_with(first, rules))
}

/// The refusal where Landlock is too old.
fn too_old(policy: &Policy, host: &Capabilities) -> Option<Support> {
    let wanted = policy.fs.landlock.unwrap_or(LEAST_LANDLOCK).max(LEAST_LANDLOCK);
    (host.landlock < wanted).then(|| {
        unmet(
            "fs.landlock/too-old",
            format!("this kernel offers Landlock ABI {}, the process tier needs {wanted}", host.landlock),
            format!("boot a kernel with Landlock ABI {wanted} (6.12 or later for ABI 6), or use `--tier container`"),
        )
    })
}

fn protect(policy: &Policy) -> Support {
    let grants = policy.fs.write_protected().then(|| watched(Watch::Protected));
    match (policy.workspace.mode, grants) {
        (WorkspaceMode::None | WorkspaceMode::Ro, None) => Support::NotAsked,
        (WorkspaceMode::None | WorkspaceMode::Ro, Some(grants)) => held(grants),
        // An overlay is refused by the workspace clause; it would hold this one.
        (WorkspaceMode::Copy | WorkspaceMode::Overlay, grants) => held_with(Control::ProtectedAtApply, grants),
        (WorkspaceMode::Rw, _) => {
            container_only("fs.protect/needs-container", "Landlock cannot take control files out of a writable tree")
        }
    }
}

fn workspace(policy: &Policy) -> Support {
    if policy.workspace.mode != WorkspaceMode::None
        && policy.workspace.at.is_some()
        && policy.workspace.at != policy.workspace.path
    {
        return container_only(
            "workspace/moved-needs-container",
            "showing the workspace elsewhere needs a mount namespace, and this tier has none",
        );
    }
    let Some(path) = policy.workspace.path.clone() else { return Support::NotAsked };
    match policy.workspace.mode {
        WorkspaceMode::None => Support::NotAsked,
        WorkspaceMode::Ro if within_written(policy, &path) => container_only(
            "workspace/within-write",
            "it lies in what is granted for writing, and rights of Landlock add up along a path: it could be written too",
        ),
        WorkspaceMode::Ro => held(Control::Rule { path, write: false }),
        WorkspaceMode::Rw => held(Control::Rule { path, write: true }),
        WorkspaceMode::Overlay => container_only(
            "workspace/overlay-needs-container",
            "an overlay needs a mount namespace, and this tier has none",
        ),
        WorkspaceMode::Copy => held(Control::Copy { from: path.clone(), at: path, size: None }),
    }
}

fn disk(policy: &Policy, host: &Capabilities, id: &'static str, watch: Watch) -> Support {
    if policy.writes_to_host() {
        let each = policy.limits.file_size.or(policy.limits.disk).unwrap_or(policy::Bytes(u64::MAX));
        return unmet_but(
            id,
            "files are written straight to the host's file system, and it has no quota for this tree",
            "use `--tier container` with workspace mode `overlay`, or `copy`; or accept it by `--prefer`",
            Control::EachFile(each),
        );
    }
    looked_at(policy, host.may_stop(false), watch, [Filter::Visible], file_size(policy))
}

#[cfg(test)]
mod tests {
    use super::super::policy_of;
    use super::*;
    use crate::host::Assumed;

    #[test]
    fn places_that_are_not_there_have_no_size_that_is_held() {
        let host = Capabilities::assumed(Assumed::Groups);
        for clause in [ClauseId::FsShm, ClauseId::FsRun] {
            assert_eq!(support(clause, &policy_of("fs.shm = \"20M\"\nfs.run = \"8M\""), &host), Support::NotAsked);
        }
        assert!(matches!(support(ClauseId::FsTmp, &policy_of(""), &host), Support::Held(_)));
    }

    #[test]
    fn what_lies_within_a_written_place_is_no_place_to_read_or_execute_alone() {
        let host = Capabilities::assumed(Assumed::Groups);
        let written = "fs.write = [\"/srv/d\"]\n";
        for (more, clause, id) in [
            ("fs.read = [\"/srv/d/a\"]", ClauseId::FsRead, Some("fs.read/within-write")),
            ("fs.read = [\"/srv/da\", \"/srv\"]", ClauseId::FsRead, None),
            ("fs.exec = [\"/srv/d/tool\"]", ClauseId::FsExec, Some("fs.exec/within-write")),
            ("fs.exec = [\"/usr/bin/env\"]", ClauseId::FsExec, None),
            (
                "workspace = { path = \"/srv/d/w\", at = \"same\", mode = \"ro\" }",
                ClauseId::Workspace,
                Some("workspace/within-write"),
            ),
            ("workspace = { path = \"/srv/w\", at = \"same\", mode = \"ro\" }", ClauseId::Workspace, None),
        ] {
            let found = match support(clause, &policy_of(&format!("{written}{more}")), &host) {
                Support::Unmet(unmet) => Some(unmet.id),
                Support::Held(_) | Support::NotAsked => None,
            };
            assert_eq!(found, id, "{more}");
        }
    }
}
