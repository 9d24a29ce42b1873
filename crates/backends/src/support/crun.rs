//! The container tier by the runtime `crun`: what the native backend holds, but for what its bundle cannot say yet.

use policy::control::{Control, Controls, Namespace};
use policy::value::{Policy, Threat, WorkspaceMode};
use policy::{ClauseId, Support};

use super::{by_group, container, unmet, when, when_some};
use crate::host::{Capabilities, Missing};

/// Tasks of the run's group that are ours: the guest, and the runtime, which has one thread and waits for it.
const OWN_TASKS: u64 = 2;

/// Answers for one clause.
#[expect(clippy::too_many_lines, reason = "a table: one arm per clause")]
pub(crate) fn support(id: ClauseId, policy: &Policy, host: &Capabilities) -> Support {
    let fs = &policy.fs;
    let native = || container(id, policy, host);
    match id {
        ClauseId::Tier => tier(policy, host),
        ClauseId::FsRoot if fs.root.is_built() => unmet(
            "fs.root/crun",
            "the tree of an image that is being built is written to, and this backend writes nothing straight to the host",
            "build it by `backend = \"native\"`; what was built runs here",
        ),
        ClauseId::FsWrite => when(!fs.write.is_empty(), || {
            unmet(
                "fs.write/crun",
                "what is written straight to the host is not shown by this backend yet",
                "use workspace mode `copy`, or `backend = \"native\"`",
            )
        }),
        ClauseId::FsHide if !fs.hide.is_empty() && !fs.read.is_empty() => unmet(
            "fs.hide/crun",
            "nothing covers single files of grants in this backend yet",
            "grant the wanted paths one by one, or use `backend = \"native\"`",
        ),
        ClauseId::Workspace if policy.workspace.mode == WorkspaceMode::Rw => unmet(
            "workspace/crun",
            "a workspace that is written straight to the host is not shown by this backend yet",
            "use `overlay` or `copy`, whose changes wait for `apply`, or `ro`; or `backend = \"native\"`",
        ),
        ClauseId::ProcessLabel => when(policy.process.label.is_some(), || {
            unmet(
                "process.label/crun",
                "the label is given through a /proc that the guest mounts, and here the runtime does",
                "remove `process.label`, or use `backend = \"native\"`",
            )
        }),
        ClauseId::LimitsIoRead | ClauseId::LimitsIoWrite => when(policy.demand(id).is_some(), || {
            unmet(
                "limits.io/crun",
                "nothing of a disk can be written by this backend yet, and no rate of reading was shown to hold",
                "remove the limit, or use `backend = \"native\"`",
            )
        }),
        ClauseId::LimitsPids => when_some(policy.limits.pids, |count| {
            let most = u64::from(count).saturating_add(OWN_TASKS);
            by_group(host, "crun/no-group", [super::tasks(most)])
        }),
        ClauseId::ProcessDevices => super::devices::only_native(policy, "process.devices/crun"),
        ClauseId::Backend
        | ClauseId::Threat
        | ClauseId::Enforcer
        | ClauseId::FsRoot
        | ClauseId::FsRead
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
        | ClauseId::LimitsOpenFiles
        | ClauseId::LimitsFileSize
        | ClauseId::LimitsDisk
        | ClauseId::LimitsFiles
        | ClauseId::LimitsOutput
        | ClauseId::LimitsOver
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
        | ClauseId::AuditRedact => native(),
    }
}

/// What no policy can do without on this backend.
pub(crate) fn probe(host: &Capabilities) -> Result<(), Missing> {
    super::container_probe(host)?;
    let runtime = host.crun()?;
    if !host.root() && !host.is_assumed() {
        return Err(Missing {
            id: "crun/needs-root",
            why: format!("{} is started as root, whose groups and namespaces hold it", runtime.path.display()),
            fix: "run fumehood as root, or use `backend = \"native\"`, which needs none".to_owned(),
        });
    }
    if host.controller("memory").is_none() && !host.is_assumed() {
        return Err(Missing {
            id: "crun/no-group",
            why: format!(
                "the runtime's processes are held and ended by a control group: {}",
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
    if let Some(faulty) = faulty(policy, host) {
        return faulty;
    }
    without_time(container(ClauseId::Tier, policy, host))
}

/// The refusal of a release with faults that are known, against hostile code.
pub(super) fn faulty(policy: &Policy, host: &Capabilities) -> Option<Support> {
    let faults: Vec<String> = host.crun().map_or_else(
        |_missing| Vec::new(),
        |runtime| {
            runtime.faults().map(|fault| format!("{} (mended in {}): {}", fault.id, fault.mended, fault.what)).collect()
        },
    );
    (policy.threat != Threat::Mistakes && !faults.is_empty()).then(|| {
        unmet(
            "crun/known-faults",
            format!("this release of `crun` has faults that are mended since: {}", faults.join("; ")),
            "install a newer release, or use `backend = \"native\"`",
        )
    })
}

/// The runtime makes no time namespace: what says how long the host runs is not hidden.
pub(super) fn without_time(answer: Support) -> Support {
    match answer {
        Support::Held(controls) => {
            let others = controls.iter().filter(|control| **control != Control::Namespace(Namespace::Time)).cloned();
            let mut others = others.collect::<Vec<_>>().into_iter();
            others.next().map_or(Support::NotAsked, |first| Support::Held(Controls::new(first, others)))
        }
        refused @ (Support::NotAsked | Support::Unmet(_)) => refused,
    }
}
