//! The container tier on the native backend.

use policy::control::{Control, Cover, Filter, Namespace, Resource, Watch};
use policy::value::{Grant, NetMode, Policy, Root, Sockets, WorkspaceMode};
use policy::{ClauseId, Support};

use super::{
    commands, confinement, cpu_time, cpus, executables, file_size, held, held_with, idle, io, label, memory, network,
    of_language, pids, places, shown, tools, unmet, unmet_but, watched, when, when_some,
};
use crate::host::{Capabilities, Missing};
use crate::sizes::{self, Size};

/// Answers for one clause.
#[expect(clippy::too_many_lines, reason = "a table: one arm per clause")]
pub(crate) fn support(id: ClauseId, policy: &Policy, host: &Capabilities) -> Support {
    let (fs, limits, process) = (&policy.fs, &policy.limits, &policy.process);
    let layer = || Control::Landlock(host.landlock);
    let filter = |part| held(Control::Filter(part));
    match id {
        ClauseId::Tier => tier(policy, host),
        ClauseId::Backend | ClauseId::Threat | ClauseId::Enforcer => Support::NotAsked,
        ClauseId::FsRoot => super::root(&fs.root),
        ClauseId::FsRead => places::taken(policy, id)
            .or_else(|| shown::pipes(policy, host))
            .unwrap_or_else(|| mounts(&fs.read, false, layer())),
        ClauseId::FsWrite => places::taken(policy, id).unwrap_or_else(|| mounts(&fs.write, true, layer())),
        ClauseId::FsHide => when(!fs.hide.is_empty(), || hide(policy)),
        ClauseId::FsSockets => sockets(policy, host),
        ClauseId::FsLandlock => landlock(policy, host).unwrap_or_else(|| held(layer())),
        ClauseId::FsExec => when_some(fs.exec.clone(), |files| {
            if matches!(fs.root, Root::Image(_)) {
                return unmet(
                    "fs.exec/no-list",
                    "the kernel's list of executables is made for the host's own tree, and this root is an image",
                    "remove `fs.exec`, or use `fs.root = \"host\"`",
                );
            }
            if let Some(refused) = executables::refused(policy, true) {
                return refused;
            }
            held_with(Control::Executables { abi: host.landlock, files }, [Control::NoexecMounts])
        }),
        ClauseId::FsNoexec => when(fs.noexec, || held(Control::NoexecMounts)),
        ClauseId::FsTmp => held(tmpfs("/tmp", sizes::divide(policy).tmp)),
        ClauseId::FsShm => held(tmpfs("/dev/shm", sizes::divide(policy).shm)),
        ClauseId::FsRun => held(tmpfs("/run", sizes::divide(policy).run)),
        ClauseId::FsProtect => protect(policy),
        ClauseId::Workspace => places::taken(policy, id).unwrap_or_else(|| workspace(policy, host)),
        ClauseId::LimitsWall => when_some(limits.wall, |limit| held(watched(Watch::Wall(limit)))),
        ClauseId::LimitsCpuTime => cpu_time(policy, host),
        ClauseId::LimitsCpus => cpus(policy, host),
        ClauseId::LimitsCpuset => super::cpuset(policy, host),
        ClauseId::LimitsMemory => memory(policy, host, true),
        ClauseId::LimitsPids => pids(policy, host, |count| {
            // One more for the guest itself.
            let value = u64::from(count).saturating_add(1);
            held(Control::Rlimit { resource: Resource::Processes, value })
        }),
        ClauseId::LimitsOpenFiles => when_some(limits.open_files, |count| {
            held(Control::Rlimit { resource: Resource::OpenFiles, value: u64::from(count) })
        }),
        ClauseId::LimitsFileSize => {
            when(limits.file_size.is_some(), || file_size(policy).map_or(Support::NotAsked, held))
        }
        ClauseId::LimitsDisk => when(limits.disk.is_some(), || disk(policy, "limits.disk/rw-without-quota")),
        ClauseId::LimitsFiles => when(limits.files.is_some(), || disk(policy, "limits.files/rw-without-quota")),
        ClauseId::LimitsOutput | ClauseId::LimitsOver => {
            when_some(limits.output, |limit| held(watched(Watch::Output { limit, over: limits.over })))
        }
        ClauseId::LimitsIoRead | ClauseId::LimitsIoWrite => io(policy, host, id),
        ClauseId::LimitsIdle => idle(policy),
        ClauseId::LimitsWarn => when_some(limits.warn, |usage| held(watched(Watch::Warn(usage)))),
        ClauseId::LimitsKill => when_some(limits.kill, |usage| held(watched(Watch::Kill(usage)))),
        ClauseId::NetMode => match policy.net.mode {
            NetMode::None => held_with(Control::Namespace(Namespace::Net), [Control::Filter(Filter::NoInet)]),
            NetMode::Loopback => held(Control::Namespace(Namespace::Net)),
            NetMode::Allow => network::by_broker(policy, host),
        },
        ClauseId::NetPresets | ClauseId::NetAllow | ClauseId::NetDeny | ClauseId::NetUnknown | ClauseId::NetDns => {
            network::rules(policy, id)
        }
        ClauseId::NetCa => network::roots(policy),
        ClauseId::NetPrograms => network::programs(policy, id),
        ClauseId::NetProxy => network::proxy(policy, id),
        ClauseId::NetBandwidth | ClauseId::NetBytes | ClauseId::NetConnections => network::metered(policy, id),
        ClauseId::EnvPass | ClauseId::EnvSet | ClauseId::Inputs => super::environment(policy, id),
        ClauseId::Secrets => network::secrets(policy),
        ClauseId::ProcessUser => held(super::user(policy)),
        ClauseId::ProcessHostname => held(Control::Hostname(process.hostname.clone())),
        ClauseId::ProcessUmask => held(Control::Umask(process.umask)),
        ClauseId::ProcessTty => when(process.tty, || held(Control::Terminal { instance: true })),
        ClauseId::ProcessLabel => label(policy, host),
        ClauseId::ProcessDevices => super::devices::given(policy, host),
        ClauseId::SyscallsProfile => filter(Filter::Profile(policy.syscalls.profile.clone())),
        ClauseId::SyscallsAllow => {
            when(!policy.syscalls.allow.is_empty(), || filter(Filter::Allow(policy.syscalls.allow.clone())))
        }
        ClauseId::SyscallsDeny => {
            when(!policy.syscalls.deny.is_empty(), || filter(Filter::Deny(policy.syscalls.deny.clone())))
        }
        ClauseId::LanguageModules | ClauseId::LanguageSteps | ClauseId::LanguageRecursion => of_language(policy, id),
        ClauseId::Commands => commands::held_by(policy, host, Control::NoexecMounts, commands::within_own),
        ClauseId::Tools => tools(policy),
        ClauseId::AuditPath | ClauseId::AuditContent | ClauseId::AuditSync => held(Control::Audit),
        ClauseId::AuditRedact => when(!policy.audit.redact.is_empty(), || held(Control::Audit)),
    }
}

/// What no policy can do without on this tier.
pub(crate) fn probe(host: &Capabilities) -> Result<(), Missing> {
    host.proc()?;
    host.namespaces().map_err(|missing| Missing {
        id: "tier/no-namespaces",
        why: missing.why,
        fix: format!("{}; or use the weaker `--tier process`", missing.fix),
    })
}

fn tier(policy: &Policy, host: &Capabilities) -> Support {
    if let Err(Missing { id, why, fix }) = probe(host) {
        return unmet(id, why, fix);
    }
    // Asked of the tier itself too: a policy that says nothing about Landlock needs it here all the same.
    if let Some(too_old) = landlock(policy, host) {
        return too_old;
    }
    let others = [Namespace::Mount, Namespace::Pid, Namespace::Net, Namespace::Ipc, Namespace::Uts, Namespace::Cgroup];
    let time = host.time_namespace().then_some(Namespace::Time);
    held_with(
        Control::Namespace(Namespace::User),
        others
            .into_iter()
            .chain(time)
            .map(Control::Namespace)
            .chain([Control::NoInnerNamespaces, Control::Landlock(host.landlock)])
            .chain(shown::shared_files(policy, host))
            .chain(confinement(host)),
    )
}

fn mounts(grants: &[Grant], write: bool, layer: Control) -> Support {
    let one = |grant: &Grant| Control::Mount { from: grant.from.clone(), at: grant.to.clone(), write };
    let mut all = grants.iter().map(one);
    all.next().map_or(Support::NotAsked, |first| held_with(first, all.chain([layer])))
}

fn hide(policy: &Policy) -> Support {
    let grants = !policy.fs.read.is_empty() || !policy.fs.write.is_empty();
    let covered = grants.then(|| Control::Covered(Cover::Hidden(policy.fs.hide.clone())));
    match (policy.workspace.mode, covered) {
        (WorkspaceMode::Overlay | WorkspaceMode::Copy, covered) => {
            held_with(Control::Hide(policy.fs.hide.clone()), covered)
        }
        (WorkspaceMode::None, Some(covered)) => held(covered),
        // A document that says so is refused with its line; this answers for a policy that was made otherwise.
        (WorkspaceMode::None | WorkspaceMode::Ro | WorkspaceMode::Rw, _) => unmet(
            "hide/mode",
            "a file that appears later could match the glob: only a layer of ours can hide it for good",
            "use workspace mode `overlay` or `copy`, or grant the wanted paths one by one",
        ),
    }
}

fn sockets(policy: &Policy, host: &Capabilities) -> Support {
    /// Landlock judges connecting to a socket file from here on.
    const JUDGES_SOCKETS: u32 = 9;
    // What is not shown cannot be reached; what is shown read-only is shown through a layer.
    let hidden = Control::Namespace(Namespace::Mount);
    match policy.fs.sockets {
        Sockets::Host => return Support::NotAsked,
        Sockets::Pairs => {
            let overlay = host.overlay_readonly().then_some(Control::ReadOnlyOverlay);
            return held_with(Control::Filter(Filter::NoUnix), std::iter::once(hidden).chain(overlay));
        }
        Sockets::Own => {}
    }
    let overlay = host.overlay_readonly().then_some(Control::ReadOnlyOverlay);
    match overlay {
        // Connecting to a socket file under a plain bind is not a write of the file system: so no unix socket but a pair
        // can be made.
        None => held_with(Control::Filter(Filter::NoUnix), [hidden]),
        // The entries of such a root are plain binds, and nobody here has read it.
        Some(overlay) if policy.fs.root.is_foreign() => held_with(Control::Filter(Filter::NoUnix), [hidden, overlay]),
        Some(overlay) if policy.writes_to_host() && host.landlock < JUDGES_SOCKETS => {
            held_with(Control::Covered(Cover::Sockets), [hidden, overlay])
        }
        Some(overlay) if policy.writes_to_host() => held_with(Control::Landlock(host.landlock), [hidden, overlay]),
        Some(overlay) => held_with(hidden, [overlay]),
    }
}

/// The refusal where Landlock is too old.
fn landlock(policy: &Policy, host: &Capabilities) -> Option<Support> {
    let wanted = policy.fs.landlock.unwrap_or(1).max(1);
    (host.landlock < wanted).then(|| {
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
    })
}

fn protect(policy: &Policy) -> Support {
    let grants = policy.fs.write_protected().then(|| watched(Watch::Protected));
    when(policy.fs.protect, || match (policy.workspace.mode, grants) {
        (WorkspaceMode::None | WorkspaceMode::Ro, None) => Support::NotAsked,
        (WorkspaceMode::None | WorkspaceMode::Ro, Some(grants)) => held(grants),
        // The kernel takes a mount away when somebody outside replaces what it stands on; nobody inside can.
        (WorkspaceMode::Rw, _) => held_with(Control::ProtectedMounts, [watched(Watch::Protected)]),
        (WorkspaceMode::Overlay | WorkspaceMode::Copy, grants) => held_with(Control::ProtectedAtApply, grants),
    })
}

fn workspace(policy: &Policy, host: &Capabilities) -> Support {
    if policy.workspace.mode == WorkspaceMode::Overlay && !host.overlay_on_tmpfs() {
        return unmet(
            "workspace/no-overlay",
            if host.has_overlay() {
                format!("overlay inside a user namespace needs kernel 6.6, this is {}", host.release)
            } else {
                format!("this kernel ({}) has no overlays, and there is no module of that name", host.release)
            },
            "use `copy` instead of `overlay`: `-w PATH:copy`",
        );
    }
    when_some(layer(policy), |layer| match policy.workspace.mode {
        WorkspaceMode::Ro | WorkspaceMode::Rw => held_with(layer, [Control::Landlock(host.landlock)]),
        WorkspaceMode::None | WorkspaceMode::Overlay | WorkspaceMode::Copy => held(layer),
    })
}

/// How the workspace is shown.
fn layer(policy: &Policy) -> Option<Control> {
    let from = policy.workspace.path.clone()?;
    let at = policy.workspace.at.clone().unwrap_or_else(|| from.clone());
    let Size { bytes, inodes } = sizes::divide(policy).workspace;
    match policy.workspace.mode {
        WorkspaceMode::None => None,
        WorkspaceMode::Ro => Some(Control::Mount { from, at, write: false }),
        WorkspaceMode::Rw => Some(Control::Mount { from, at, write: true }),
        WorkspaceMode::Overlay => Some(Control::Overlay { from, at, bytes, inodes }),
        WorkspaceMode::Copy => Some(Control::Copy { from, at, size: Some((bytes, inodes)) }),
    }
}

const fn tmpfs(at: &'static str, Size { bytes, inodes }: Size) -> Control {
    Control::Tmpfs { at, bytes, inodes }
}

/// All that is writable, unless it lies on the host.
fn disk(policy: &Policy, id: &'static str) -> Support {
    let each = policy.limits.file_size.or(policy.limits.disk).unwrap_or(policy::Bytes(u64::MAX));
    if policy.writes_to_host() {
        return unmet_but(
            id,
            "files are written straight to the host's file system, and it has no quota for this tree",
            "use workspace mode `overlay` or `copy`, or write below /tmp; or accept it by `--prefer`",
            Control::EachFile(each),
        );
    }
    let sizes = sizes::divide(policy);
    let others = [tmpfs("/dev/shm", sizes.shm), tmpfs("/run", sizes.run)];
    held_with(tmpfs("/tmp", sizes.tmp), others.into_iter().chain(layer(policy).filter(is_bounded)))
}

const fn is_bounded(control: &Control) -> bool {
    matches!(control, Control::Overlay { .. } | Control::Copy { .. })
}
