//! The container tier by podman's service: what the native backend holds, since the guest builds the tree by itself there too.

use policy::value::Policy;
use policy::{ClauseId, Support};

use super::{container, unmet, when};
use crate::host::{Capabilities, Missing};

/// Answers for one clause.
#[expect(clippy::too_many_lines, reason = "a table: one arm per clause")]
pub(crate) fn support(id: ClauseId, policy: &Policy, host: &Capabilities) -> Support {
    match id {
        ClauseId::Tier => tier(policy, host),
        ClauseId::ProcessLabel => when(policy.process.label.is_some(), || {
            unmet(
                "process.label/podman",
                "the engine gives labels of its own to what it starts, and which one holds then was not shown",
                "remove `process.label`, or use `backend = \"native\"`",
            )
        }),
        ClauseId::ProcessDevices => super::devices::only_native(policy, "process.devices/podman"),
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
pub(crate) fn probe(host: &Capabilities) -> Result<(), Missing> {
    super::container_probe(host)?;
    if !host.root() && !host.is_assumed() {
        return Err(Missing {
            id: "podman/needs-root",
            why: "the supervisor looks at the processes that root's service starts, and puts them into groups"
                .to_owned(),
            fix: "run fumehood as root, or use `backend = \"native\"`, which needs none".to_owned(),
        });
    }
    host.podman()?;
    host.crun()?;
    if host.controller("memory").is_none() && !host.is_assumed() {
        return Err(Missing {
            id: "podman/no-group",
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

fn tier(policy: &Policy, host: &Capabilities) -> Support {
    if let Err(Missing { id, why, fix }) = probe(host) {
        return unmet(id, why, fix);
    }
    // It makes the container for the engine.
    if let Some(faulty) = super::crun::faulty(policy, host) {
        return faulty;
    }
    super::crun::without_time(container(ClauseId::Tier, policy, host))
}
