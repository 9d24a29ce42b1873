//! The container tier on the native backend.

use policy::value::{NetMode, Policy, WorkspaceMode};
use policy::{ClauseId, Enforced, Strength, Support};

use super::{
    bandwidth, commands, controller, idle, kernel, label, network_by_broker, root_image, secrets, supervised,
    supervisor, thresholds, tools, unmet, unmet_but, when, writes_to_host,
};
use crate::host::Capabilities;

/// Answers for one clause.
pub(crate) fn support(id: ClauseId, policy: &Policy, host: &Capabilities) -> Support {
    let limits = &policy.limits;
    match id {
        ClauseId::Tier => tier(host),
        ClauseId::Threat | ClauseId::Enforcer => Support::NotAsked,
        ClauseId::FsRoot => root_image(&policy.fs.root).unwrap_or_else(|| kernel("mountns+pivot_root")),
        ClauseId::FsRead => when(!policy.fs.read.is_empty(), || read(policy, host)),
        ClauseId::FsWrite => when(!policy.fs.write.is_empty(), || kernel("mountns:rw+landlock")),
        ClauseId::FsHide => when(!policy.fs.hide.is_empty(), || hide(policy)),
        ClauseId::FsSockets => sockets(policy, host),
        ClauseId::FsLandlock => landlock(policy, host, 1),
        ClauseId::FsExec => when(policy.fs.exec.is_some(), || kernel(format!("landlock:{}:execute", host.landlock))),
        ClauseId::FsNoexec => when(policy.fs.noexec, || kernel("mount:noexec")),
        ClauseId::FsTmp | ClauseId::FsShm | ClauseId::FsRun => kernel("tmpfs:size,nr_inodes"),
        ClauseId::FsProtect => protect(policy),
        ClauseId::Workspace => when(policy.workspace.mode != WorkspaceMode::None, || workspace(policy, host)),
        ClauseId::LimitsWall => when(limits.wall.is_some(), || supervisor("supervisor:timer", None)),
        ClauseId::LimitsCpuTime => when(limits.cpu_time.is_some(), || cpu_time(host)),
        ClauseId::LimitsCpus => when(limits.cpus.is_some(), || controller(host, "cpu", "limits.cpus/no-controller")),
        ClauseId::LimitsCpuset => super::cpuset(policy, host),
        ClauseId::LimitsMemory => when(limits.memory.is_some(), || memory(host)),
        ClauseId::LimitsPids => when(limits.pids.is_some(), || match host.controller("pids") {
            Some(by) => kernel(by),
            None => kernel("userns:nproc"),
        }),
        ClauseId::LimitsOpenFiles => when(limits.open_files.is_some(), || kernel("rlimit:nofile")),
        ClauseId::LimitsFileSize => when(limits.file_size.is_some(), || kernel("rlimit:fsize")),
        ClauseId::LimitsDisk => when(limits.disk.is_some(), || disk(policy, "limits.disk/rw-without-quota", "size")),
        ClauseId::LimitsFiles => {
            when(limits.files.is_some(), || disk(policy, "limits.files/rw-without-quota", "nr_inodes"))
        }
        ClauseId::LimitsOutput => when(limits.output.is_some(), || supervisor("supervisor:stream", None)),
        ClauseId::LimitsOver => when(limits.output.is_some(), || supervisor("supervisor:stream", None)),
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
            NetMode::None => kernel("netns+seccomp:socket"),
            NetMode::Loopback => kernel("netns"),
            NetMode::Allow => network_by_broker(policy),
        },
        ClauseId::NetAllow => when(!policy.net.allow.is_empty(), || network_by_broker(policy)),
        ClauseId::NetDns => Support::NotAsked,
        ClauseId::NetBandwidth => bandwidth(policy),
        ClauseId::EnvPass => when(!policy.env.pass.is_empty(), || supervisor("guest:environment", None)),
        ClauseId::EnvSet => when(!policy.env.set.is_empty(), || supervisor("guest:environment", None)),
        ClauseId::Inputs => when(!policy.inputs.is_empty(), || supervisor("guest:environment", None)),
        ClauseId::Secrets => secrets(policy),
        ClauseId::ProcessUser => kernel("userns:map"),
        ClauseId::ProcessHostname => kernel("utsns"),
        ClauseId::ProcessUmask => kernel("umask"),
        ClauseId::ProcessTty => when(policy.process.tty, || kernel("devpts:newinstance")),
        ClauseId::ProcessLabel => label(policy, host),
        ClauseId::SyscallsProfile => kernel("seccomp"),
        ClauseId::SyscallsAllow => when(!policy.syscalls.allow.is_empty(), || kernel("seccomp")),
        ClauseId::SyscallsDeny => when(!policy.syscalls.deny.is_empty(), || kernel("seccomp")),
        ClauseId::Commands => commands(policy, host),
        ClauseId::Tools => tools(policy),
        ClauseId::AuditPath | ClauseId::AuditContent | ClauseId::AuditSync => supervisor("supervisor:audit", None),
        ClauseId::AuditRedact => when(!policy.audit.redact.is_empty(), || supervisor("supervisor:audit", None)),
    }
}

fn tier(host: &Capabilities) -> Support {
    if let Err(missing) = host.proc() {
        return unmet(missing.id, missing.why, missing.fix);
    }
    match host.namespaces() {
        Ok(()) if host.time_namespace() => kernel("userns,mountns,pidns,netns,ipcns,utsns,cgroupns,timens"),
        Ok(()) => kernel("userns,mountns,pidns,netns,ipcns,utsns,cgroupns"),
        Err(missing) => {
            unmet("tier/no-namespaces", missing.why, format!("{}; or use the weaker `--tier process`", missing.fix))
        }
    }
}

fn read(policy: &Policy, host: &Capabilities) -> Support {
    let _ = policy;
    if host.overlay_readonly() { kernel("mountns:ro+overlay+landlock") } else { kernel("mountns:ro+landlock") }
}

fn hide(policy: &Policy) -> Support {
    match policy.workspace.mode {
        WorkspaceMode::Overlay | WorkspaceMode::Copy => kernel("overlay:whiteout"),
        // A document that says so is refused with its line; this answers for a policy that was made otherwise.
        WorkspaceMode::None | WorkspaceMode::Ro | WorkspaceMode::Rw => unmet(
            "hide/mode",
            "a file that appears later could match the glob: only a layer of ours can hide it for good",
            "use workspace mode `overlay` or `copy`, or grant the wanted paths one by one",
        ),
    }
}

fn sockets(policy: &Policy, host: &Capabilities) -> Support {
    if policy.fs.sockets {
        return Support::NotAsked;
    }
    if writes_to_host(policy) && host.landlock < 9 {
        // Connecting to a socket file under a plain bind is not a write of the file system, and Landlock sees it from
        // ABI 9 only: so no unix socket but a pair can be made.
        return kernel("seccomp:af_unix");
    }
    kernel("mountns+overlay")
}

fn landlock(policy: &Policy, host: &Capabilities, least: u32) -> Support {
    let wanted = policy.fs.landlock.unwrap_or(least);
    if host.landlock >= wanted {
        return kernel(format!("landlock:{}", host.landlock));
    }
    unmet(
        "fs.landlock/too-old",
        if host.landlock == 0 {
            "this kernel has no Landlock, or it is not enabled".to_owned()
        } else {
            format!("this kernel offers Landlock ABI {}, the policy needs {wanted}", host.landlock)
        },
        format!(
            "boot a kernel with Landlock ABI {wanted} (`lsm=landlock,...` on its command line), or ask for less by `fs.landlock`"
        ),
    )
}

const PROTECT_OVERSHOOT: &str = "a control file that somebody outside replaces can be written for up to 100 ms: \
                                 then the run is ended, and the file put aside";

fn protect(policy: &Policy) -> Support {
    when(policy.fs.protect, || match policy.workspace.mode {
        WorkspaceMode::None | WorkspaceMode::Ro => Support::NotAsked,
        // The kernel takes a mount away when somebody outside replaces what it stands on; nobody inside can.
        WorkspaceMode::Rw => Support::Enforced(Enforced {
            by: "mountns:ro+supervisor:sampling".to_owned(),
            strength: Strength::Kernel,
            overshoot: Some(PROTECT_OVERSHOOT.to_owned()),
        }),
        WorkspaceMode::Overlay | WorkspaceMode::Copy => supervisor("supervisor:apply", None),
    })
}

fn workspace(policy: &Policy, host: &Capabilities) -> Support {
    if policy.workspace.mode == WorkspaceMode::Overlay && !host.overlay_on_tmpfs() {
        return unmet(
            "workspace/no-overlay",
            format!("overlay inside a user namespace needs kernel 6.6, this is {}", host.release),
            "use `copy` instead of `overlay`: `-w PATH:copy`",
        );
    }
    match policy.workspace.mode {
        WorkspaceMode::None => Support::NotAsked,
        WorkspaceMode::Ro => kernel("mountns:ro+landlock"),
        WorkspaceMode::Rw => kernel("mountns:rw+landlock"),
        WorkspaceMode::Overlay => kernel("overlay+tmpfs"),
        WorkspaceMode::Copy => kernel("tmpfs"),
    }
}

fn cpu_time(host: &Capabilities) -> Support {
    let _ = host;
    supervisor("supervisor:sampling+rlimit:cpu", Some(super::CPU_TIME_OVERSHOOT))
}

fn memory(host: &Capabilities) -> Support {
    match host.controller("memory") {
        Some(by) => kernel(by),
        None => supervisor("supervisor:sampling", Some(super::MEMORY_OVERSHOOT)),
    }
}

fn disk(policy: &Policy, id: &'static str, what: &str) -> Support {
    if !writes_to_host(policy) {
        return kernel(format!("tmpfs:{what}"));
    }
    unmet_but(
        id,
        "files are written straight to the host's file system, and it has no quota for this tree",
        "use workspace mode `overlay` or `copy`, or write below /tmp; or accept it by `--prefer`",
        supervised("rlimit:fsize", Some("any number of files, each up to `limits.file_size`")),
    )
}
