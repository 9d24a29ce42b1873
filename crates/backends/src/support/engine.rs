//! The container tier by an engine: what the native backend holds, since the guest builds the tree by itself there too.

use policy::value::{Policy, Threat};
use policy::{ClauseId, Support};

use super::{container, unmet, when};
use crate::host::{Capabilities, Missing, Runtime};

/// How refusals of one engine are named, and who is asked for it.
#[derive(Clone, Copy)]
pub(crate) struct EngineRow {
    label: &'static str,
    devices: &'static str,
    needs_root: &'static str,
    no_group: &'static str,
    /// Whether it is there.
    there: fn(&Capabilities) -> Result<(), Missing>,
    /// The refusal of a runtime with faults that are known, against hostile code.
    faulty: fn(&Policy, &Capabilities) -> Option<Support>,
}

/// podman's service, which is told to make containers by `crun`.
pub(crate) const PODMAN: EngineRow = EngineRow {
    label: "process.label/podman",
    devices: "process.devices/podman",
    needs_root: "podman/needs-root",
    no_group: "podman/no-group",
    there: |host| host.podman().and(host.crun()).map(drop),
    faulty: super::crun::faulty,
};

/// Docker's daemon, which has runtimes of its own.
pub(crate) const DOCKER: EngineRow = EngineRow {
    label: "process.label/docker",
    devices: "process.devices/docker",
    needs_root: "docker/needs-root",
    no_group: "docker/no-group",
    there: |host| host.docker().map(drop),
    faulty: faulty_of_docker,
};

fn faulty_of_docker(policy: &Policy, host: &Capabilities) -> Option<Support> {
    let (name, runtime) = &host.docker().ok()?.runtime;
    let faults: Vec<String> =
        runtime.faults().map(|fault| format!("{} (mended in {})", fault.id, fault.mended)).collect();
    let Runtime { path, version, .. } = runtime;
    (policy.threat != Threat::Mistakes && !faults.is_empty()).then(|| {
        unmet(
            "docker/known-faults",
            format!(
                "Docker's daemon starts containers by `{name}` ({}), whose release {version} has faults that are mended since: {}",
                path.display(),
                faults.join(", ")
            ),
            "install a newer release, or give the daemon a newer one or `crun` as another of its runtimes; or use `backend = \"native\"`",
        )
    })
}

/// Answers for one clause.
#[expect(clippy::too_many_lines, reason = "a table: one arm per clause")]
pub(crate) fn support(row: &EngineRow, id: ClauseId, policy: &Policy, host: &Capabilities) -> Support {
    match id {
        ClauseId::Tier => tier(row, policy, host),
        ClauseId::ProcessLabel => when(policy.process.label.is_some(), || {
            unmet(
                row.label,
                "the engine gives labels of its own to what it starts, and which one holds then was not shown",
                "remove `process.label`, or use `backend = \"native\"`",
            )
        }),
        ClauseId::ProcessDevices => super::devices::only_native(policy, row.devices),
        ClauseId::Backend
        | ClauseId::Threat
        | ClauseId::Enforcer
        | ClauseId::FsRoot
        | ClauseId::FsRead
        | ClauseId::FsWrite
        | ClauseId::FsHide
        | ClauseId::FsSockets
        | ClauseId::FsLandlock
        | ClauseId::FsExec
        | ClauseId::FsNoexec
        | ClauseId::FsTmp
        | ClauseId::FsShm
        | ClauseId::FsRun
        | ClauseId::FsProtect
        | ClauseId::Workspace
        | ClauseId::LimitsWall
        | ClauseId::LimitsCpuTime
        | ClauseId::LimitsCpus
        | ClauseId::LimitsCpuset
        | ClauseId::LimitsMemory
        | ClauseId::LimitsPids
        | ClauseId::LimitsOpenFiles
        | ClauseId::LimitsFileSize
        | ClauseId::LimitsDisk
        | ClauseId::LimitsFiles
        | ClauseId::LimitsOutput
        | ClauseId::LimitsOver
        | ClauseId::LimitsIoRead
        | ClauseId::LimitsIoWrite
        | ClauseId::LimitsIdle
        | ClauseId::LimitsWarn
        | ClauseId::LimitsKill
        | ClauseId::NetMode
        | ClauseId::NetPresets
        | ClauseId::NetAllow
        | ClauseId::NetDeny
        | ClauseId::NetUnknown
        | ClauseId::NetDns
        | ClauseId::NetCa
        | ClauseId::NetPrograms
        | ClauseId::NetProxy
        | ClauseId::NetBandwidth
        | ClauseId::NetBytes
        | ClauseId::NetConnections
        | ClauseId::EnvPass
        | ClauseId::EnvSet
        | ClauseId::Inputs
        | ClauseId::Secrets
        | ClauseId::ProcessUser
        | ClauseId::ProcessHostname
        | ClauseId::ProcessUmask
        | ClauseId::ProcessTty
        | ClauseId::SyscallsProfile
        | ClauseId::SyscallsAllow
        | ClauseId::SyscallsDeny
        | ClauseId::LanguageModules
        | ClauseId::LanguageSteps
        | ClauseId::LanguageRecursion
        | ClauseId::Commands
        | ClauseId::Tools
        | ClauseId::AuditPath
        | ClauseId::AuditContent
        | ClauseId::AuditSync
        | ClauseId::AuditRedact => container(id, policy, host),
    }
}

/// What no policy can do without on this backend.
pub(crate) fn probe(row: &EngineRow, host: &Capabilities) -> Result<(), Missing> {
    super::container_probe(host)?;
    if !host.root() && !host.is_assumed() {
        return Err(Missing {
            id: row.needs_root,
            why: "the supervisor looks at the processes that root's service starts, and puts them into groups"
                .to_owned(),
            fix: "run fumehood as root, or use `backend = \"native\"`, which needs none".to_owned(),
        });
    }
    (row.there)(host)?;
    if host.controller("memory").is_none() && !host.is_assumed() {
        return Err(Missing {
            id: row.no_group,
            why: format!(
                "the container's processes are held and ended by a control group: {}",
                host.cgroup_why("memory")
            ),
            fix: "run where control groups are writable (`fumehood doctor` says how), or use `backend = \"native\"`"
                .to_owned(),
        });
    }
    Ok(())
}

fn tier(row: &EngineRow, policy: &Policy, host: &Capabilities) -> Support {
    if let Err(Missing { id, why, fix }) = probe(row, host) {
        return unmet(id, why, fix);
    }
    // It makes the container for the engine.
    if let Some(faulty) = (row.faulty)(policy, host) {
        return faulty;
    }
    super::crun::without_time(container(ClauseId::Tier, policy, host))
}
