//! The process tier on the native backend: no namespaces, so no tree of its own.

use policy::value::{NetMode, Policy, Root, WorkspaceMode};
use policy::{ClauseId, Support};

use super::{
    bandwidth, commands, controller, idle, kernel, network_by_broker, root_image, secrets, supervised, supervisor,
    thresholds, tools, unmet, unmet_but, when, writes_to_host,
};
use crate::host::Capabilities;

/// Least Landlock ABI: scopes for signals, without which the payload could signal the caller's processes.
const LEAST_LANDLOCK: u32 = 6;

/// Answers for one clause.
#[expect(clippy::too_many_lines, reason = "a table: one arm per clause")]
pub(crate) fn support(id: ClauseId, policy: &Policy, host: &Capabilities) -> Support {
    let limits = &policy.limits;
    match id {
        // Asked of the tier itself too: a policy that says nothing about Landlock needs it here all the same.
        ClauseId::Tier if host.landlock < LEAST_LANDLOCK => landlock(policy, host),
        ClauseId::Tier => match host.proc() {
            Ok(()) => kernel(format!("landlock:{},seccomp,rlimits,subreaper", host.landlock)),
            Err(missing) => unmet(missing.id, missing.why, missing.fix),
        },
        ClauseId::Threat | ClauseId::Enforcer => Support::NotAsked,
        ClauseId::FsRoot => match (root_image(&policy.fs.root), &policy.fs.root) {
            (Some(answer), _) => answer,
            (None, Root::Host) => kernel("landlock"),
            (None, Root::Empty | Root::Dir(_) | Root::Image(_)) => container_only(
                "fs.root/needs-container",
                "another root tree needs a mount namespace, and this tier has none",
            ),
        },
        ClauseId::FsRead => grants(policy, !policy.fs.read.is_empty(), &policy.fs.read),
        ClauseId::FsWrite => grants(policy, !policy.fs.write.is_empty(), &policy.fs.write),
        ClauseId::FsHide => when(!policy.fs.hide.is_empty(), || {
            container_only("fs.hide/needs-container", "Landlock cannot take a part out of a grant")
        }),
        ClauseId::FsSockets => when(!policy.fs.sockets, || kernel("seccomp:af_unix")),
        ClauseId::FsLandlock => landlock(policy, host),
        ClauseId::FsExec => when(policy.fs.exec.is_some(), || execute(host)),
        ClauseId::FsNoexec => when(policy.fs.noexec, || execute(host)),
        ClauseId::FsTmp => supervisor("supervisor:sampling+rlimit:fsize", Some(DISK_OVERSHOOT)),
        // There is no /dev/shm and no /run of its own: nothing can be written there, so no size is passed.
        ClauseId::FsShm | ClauseId::FsRun => kernel("landlock"),
        ClauseId::FsProtect => when(policy.fs.protect, || protect(policy)),
        ClauseId::Workspace => when(policy.workspace.mode != WorkspaceMode::None, || workspace(policy)),
        ClauseId::LimitsWall => when(limits.wall.is_some(), || supervisor("supervisor:timer", None)),
        ClauseId::LimitsCpuTime => when(limits.cpu_time.is_some(), || {
            supervisor("supervisor:sampling+rlimit:cpu", Some(super::CPU_TIME_OVERSHOOT))
        }),
        ClauseId::LimitsCpus => when(limits.cpus.is_some(), || controller(host, "cpu", "limits.cpus/no-controller")),
        ClauseId::LimitsCpuset => super::cpuset(policy, host),
        ClauseId::LimitsMemory => when(limits.memory.is_some(), || match host.controller("memory") {
            Some(by) => kernel(by),
            None => supervisor("supervisor:sampling", Some(super::MEMORY_OVERSHOOT)),
        }),
        ClauseId::LimitsPids => when(limits.pids.is_some(), || match host.controller("pids") {
            Some(by) => kernel(by),
            None => supervisor("supervisor:sampling", Some("what is started between two samples, 20 ms apart")),
        }),
        ClauseId::LimitsOpenFiles => when(limits.open_files.is_some(), || kernel("rlimit:nofile")),
        ClauseId::LimitsFileSize => when(limits.file_size.is_some(), || kernel("rlimit:fsize")),
        ClauseId::LimitsDisk => when(limits.disk.is_some(), || disk(policy, "limits.disk/rw-without-quota")),
        ClauseId::LimitsFiles => when(limits.files.is_some(), || disk(policy, "limits.files/rw-without-quota")),
        ClauseId::LimitsOutput | ClauseId::LimitsOver => {
            when(limits.output.is_some(), || supervisor("supervisor:stream", None))
        }
        ClauseId::LimitsIoRead => {
            when(limits.io_read.is_some(), || controller(host, "io", "limits.io_read/no-controller"))
        }
        ClauseId::LimitsIoWrite => {
            when(limits.io_write.is_some(), || controller(host, "io", "limits.io_write/no-controller"))
        }
        ClauseId::LimitsIdle => idle(policy),
        ClauseId::LimitsWarn => when(limits.warn.is_some(), thresholds),
        ClauseId::LimitsKill => when(limits.kill.is_some(), thresholds),
        ClauseId::NetMode => match policy.net.mode {
            NetMode::None => kernel("seccomp:socket"),
            NetMode::Loopback => container_only(
                "net.mode/loopback-needs-container",
                "without a network namespace `lo` is the host's own, with all that listens there",
            ),
            NetMode::Allow => network_by_broker(policy),
        },
        ClauseId::NetAllow => when(!policy.net.allow.is_empty(), || network_by_broker(policy)),
        ClauseId::NetDns => Support::NotAsked,
        ClauseId::NetBandwidth => bandwidth(policy),
        ClauseId::EnvPass => when(!policy.env.pass.is_empty(), || supervisor("guest:environment", None)),
        ClauseId::EnvSet => when(!policy.env.set.is_empty(), || supervisor("guest:environment", None)),
        ClauseId::Inputs => when(!policy.inputs.is_empty(), || supervisor("guest:environment", None)),
        ClauseId::Secrets => secrets(policy),
        // Without namespaces the program runs as the caller (or, from root, as an unprivileged user), and sees the
        // machine's own name: the tier's table says so. Whoever asks for names of their own does not get them here.
        ClauseId::ProcessUser => when(policy.process.user != SHOWN_USER, || {
            container_only(
                "process.user/needs-container",
                "a user name of its own needs a user namespace and an `/etc`",
            )
        }),
        ClauseId::ProcessHostname => when(policy.process.hostname != SHOWN_HOSTNAME, || {
            container_only("process.hostname/needs-container", "a host name of its own needs a UTS namespace")
        }),
        ClauseId::ProcessUmask => kernel("umask"),
        // One of the host's, opened before Landlock and given to the program alone: it can reach no other.
        ClauseId::ProcessTty => when(policy.process.tty, || kernel("pty:session+landlock")),
        ClauseId::ProcessLabel => when(policy.process.label.is_some(), || {
            container_only(
                "process.label/needs-container",
                "without a pid namespace the end of a run is a signal, which the label's own policy may forbid",
            )
        }),
        ClauseId::SyscallsProfile => kernel("seccomp"),
        ClauseId::SyscallsAllow => when(!policy.syscalls.allow.is_empty(), || kernel("seccomp")),
        ClauseId::SyscallsDeny => when(!policy.syscalls.deny.is_empty(), || kernel("seccomp")),
        ClauseId::Commands => commands(policy, host),
        ClauseId::Tools => tools(policy),
        ClauseId::AuditPath | ClauseId::AuditContent | ClauseId::AuditSync => supervisor("supervisor:audit", None),
        ClauseId::AuditRedact => when(!policy.audit.redact.is_empty(), || supervisor("supervisor:audit", None)),
    }
}

/// What every policy says unless somebody wrote otherwise (`resources/presets/strict.toml`).
const SHOWN_USER: &str = "user";
const SHOWN_HOSTNAME: &str = "sandbox";

const DISK_OVERSHOOT: &str = "what is written between two samples, 20 ms apart, and removed files whose descriptors wait in a \
                              socket, each file at most `limits.file_size`";

/// Landlock judges `execve`, not `mmap`: a loader among the executables maps whatever it can read (measured).
fn execute(host: &Capabilities) -> Support {
    Support::Enforced(policy::Enforced {
        by: format!("landlock:{}:execute", host.landlock),
        strength: policy::Strength::Kernel,
        overshoot: Some(
            "a written file that is given to the dynamic loader runs, as a script does that is given to its interpreter"
                .to_owned(),
        ),
    })
}

fn container_only(id: &'static str, why: &str) -> Support {
    unmet(id, why, "use `--tier container`, or change the clause")
}

fn grants(policy: &Policy, asked: bool, list: &[policy::value::Grant]) -> Support {
    let _ = policy;
    when(asked, || {
        if list.iter().any(|grant| grant.from != grant.to) {
            return container_only(
                "fs.read/moved-needs-container",
                "showing a path elsewhere needs a mount namespace, and this tier has none",
            );
        }
        kernel("landlock")
    })
}

fn landlock(policy: &Policy, host: &Capabilities) -> Support {
    let wanted = policy.fs.landlock.unwrap_or(LEAST_LANDLOCK).max(LEAST_LANDLOCK);
    if host.landlock >= wanted {
        return kernel(format!("landlock:{}", host.landlock));
    }
    unmet(
        "fs.landlock/too-old",
        format!("this kernel offers Landlock ABI {}, the process tier needs {wanted}", host.landlock),
        format!("boot a kernel with Landlock ABI {wanted} (6.12 or later for ABI 6), or use `--tier container`"),
    )
}

fn protect(policy: &Policy) -> Support {
    match policy.workspace.mode {
        WorkspaceMode::None | WorkspaceMode::Ro => Support::NotAsked,
        // An overlay is refused by the workspace clause; it would hold this one.
        WorkspaceMode::Copy | WorkspaceMode::Overlay => supervisor("supervisor:apply", None),
        WorkspaceMode::Rw => {
            container_only("fs.protect/needs-container", "Landlock cannot take control files out of a writable tree")
        }
    }
}

fn workspace(policy: &Policy) -> Support {
    if policy.workspace.at.is_some() && policy.workspace.at != policy.workspace.path {
        return container_only(
            "workspace/moved-needs-container",
            "showing the workspace elsewhere needs a mount namespace, and this tier has none",
        );
    }
    match policy.workspace.mode {
        WorkspaceMode::None => Support::NotAsked,
        WorkspaceMode::Ro | WorkspaceMode::Rw => kernel("landlock"),
        WorkspaceMode::Overlay => container_only(
            "workspace/overlay-needs-container",
            "an overlay needs a mount namespace, and this tier has none",
        ),
        WorkspaceMode::Copy => kernel("landlock"),
    }
}

fn disk(policy: &Policy, id: &'static str) -> Support {
    if writes_to_host(policy) {
        return unmet_but(
            id,
            "files are written straight to the host's file system, and it has no quota for this tree",
            "use `--tier container` with workspace mode `overlay`, or `copy`; or accept it by `--prefer`",
            supervised("rlimit:fsize", Some("any number of files, each up to `limits.file_size`")),
        );
    }
    supervisor("supervisor:sampling+rlimit:fsize", Some(DISK_OVERSHOOT))
}
