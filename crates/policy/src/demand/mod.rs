//! What a policy asks for, clause by clause: the form in which backends answer.
//!
//! [`Clause`] has one variant per [`ClauseId`] and carries only values that demand something: a limit that is not
//! set does not appear, so a backend never has to decide whether `None` means "no limit" or "not said".

mod json;

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::clause::ClauseId;
use crate::json::canonical;
use crate::tools::Tools;
use crate::units::{Bytes, BytesPerSecond, MilliCpus, Millis};
use crate::value::{
    BackendName, Content, Device, EnforcerDemand, Grant, Input, NetDenial, NetMode, NetRule, Over, Policy, Proxy, Root,
    Secret, Sockets, Sync, Threat, Threshold, TierChoice, Unknown, Workspace, WorkspaceMode,
};

/// All that is writable together, in bytes, and who shares it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Disk<'a> {
    /// The whole.
    pub total: Bytes,
    /// What is left for the workspace after tmp, shm and run took their sizes.
    pub rest: Bytes,
    /// Size of `/tmp`.
    pub tmp: Bytes,
    /// Size of `/dev/shm`.
    pub shm: Bytes,
    /// Size of `/run`.
    pub run: Bytes,
    /// The workspace, whose mode decides where its bytes lie.
    pub workspace: &'a Workspace,
    /// Read-write grants: their bytes lie on the host.
    pub write: &'a [Grant],
}

impl Disk<'_> {
    /// Whether bytes reach host folders directly, where only a quota or watching can bound them.
    #[must_use]
    pub fn reaches_host(&self) -> bool {
        !self.write.is_empty() || self.workspace.mode == WorkspaceMode::Rw
    }
}

/// All that is writable together, in inodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Files<'a> {
    /// The whole.
    pub total: u64,
    /// The byte limit and sizes, in whose proportion the inodes are divided.
    pub disk: Option<Disk<'a>>,
    /// The workspace.
    pub workspace: &'a Workspace,
    /// Read-write grants.
    pub write: &'a [Grant],
}

/// One demand of a policy. Exhaustive: a new clause breaks every backend's `match` until it answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Clause<'a> {
    /// `tier`
    Tier(TierChoice),
    /// `backend`
    Backend(BackendName),
    /// `threat`
    Threat(Threat),
    /// `enforcer`
    Enforcer(EnforcerDemand),
    /// `fs.root`
    FsRoot(&'a Root),
    /// `fs.read`, not empty
    FsRead(&'a [Grant]),
    /// `fs.write`, not empty
    FsWrite(&'a [Grant]),
    /// `fs.hide`, not empty
    FsHide(&'a [String]),
    /// `fs.sockets`; but for `true` no socket of the host is reachable
    FsSockets(Sockets),
    /// `fs.landlock`
    FsLandlock(u32),
    /// `fs.exec`
    FsExec(&'a [PathBuf]),
    /// `fs.noexec = true`
    FsNoexec,
    /// `fs.tmp`
    FsTmp(Bytes),
    /// `fs.shm`
    FsShm(Bytes),
    /// `fs.run`
    FsRun(Bytes),
    /// `fs.protect = true`
    FsProtect,
    /// `workspace`, mode not `none`
    Workspace(&'a Workspace),
    /// `limits.wall`
    LimitsWall(Millis),
    /// `limits.cpu_time`
    LimitsCpuTime(Millis),
    /// `limits.cpus`
    LimitsCpus(MilliCpus),
    /// `limits.cpuset`, sorted, not empty
    LimitsCpuset(&'a [u32]),
    /// `limits.memory`
    LimitsMemory(Bytes),
    /// `limits.pids`
    LimitsPids(u32),
    /// `limits.open_files`
    LimitsOpenFiles(u32),
    /// `limits.file_size`
    LimitsFileSize(Bytes),
    /// `limits.disk`
    LimitsDisk(Disk<'a>),
    /// `limits.files`
    LimitsFiles(Files<'a>),
    /// `limits.output`
    LimitsOutput(Bytes),
    /// `limits.over`
    LimitsOver(Over),
    /// `limits.io_read`
    LimitsIoRead(BytesPerSecond),
    /// `limits.io_write`
    LimitsIoWrite(BytesPerSecond),
    /// `limits.idle`
    LimitsIdle(Millis),
    /// `limits.warn`
    LimitsWarn(Threshold),
    /// `limits.kill`
    LimitsKill(Threshold),
    /// `net.mode`
    NetMode(NetMode),
    /// `net.presets`, not empty, only with mode `allow`
    NetPresets(&'a BTreeMap<String, Vec<NetRule>>),
    /// `net.allow`, not empty, only with mode `allow`
    NetAllow(&'a [NetRule]),
    /// `net.deny`, not empty, only with mode `allow`
    NetDeny(&'a [NetDenial]),
    /// `net.unknown`, only with mode `allow`
    NetUnknown(Unknown),
    /// `net.programs`, not empty, only with mode `allow`
    NetPrograms(&'a BTreeMap<PathBuf, Vec<String>>),
    /// `net.dns`, only with mode `allow`
    NetDns(&'a str),
    /// `net.ca`, not empty, only with mode `allow`
    NetCa(&'a [PathBuf]),
    /// `net.proxy`, only with mode `allow`
    NetProxy(&'a Proxy),
    /// `net.bandwidth`
    NetBandwidth(BytesPerSecond),
    /// `net.bytes`
    NetBytes(Bytes),
    /// `net.connections`
    NetConnections(u32),
    /// `env.pass`; empty demands that nothing of the caller's environment goes in
    EnvPass(&'a [String]),
    /// `env.set`, not empty
    EnvSet(&'a BTreeMap<String, String>),
    /// `inputs`, not empty
    Inputs(&'a BTreeMap<String, Input>),
    /// `secrets`, not empty
    Secrets(&'a BTreeMap<String, Secret>),
    /// `process.user`
    ProcessUser(&'a str),
    /// `process.hostname`
    ProcessHostname(&'a str),
    /// `process.umask`
    ProcessUmask(u32),
    /// `process.tty = true`
    ProcessTty,
    /// `process.label`
    ProcessLabel(&'a str),
    /// `process.devices`
    ProcessDevices(&'a [Device]),
    /// `syscalls.profile`
    SyscallsProfile(&'a str),
    /// `syscalls.allow`, not empty
    SyscallsAllow(&'a [String]),
    /// `syscalls.deny`, not empty
    SyscallsDeny(&'a [String]),
    /// `commands`
    Commands(&'a serde_json::Value),
    /// `language.modules`
    LanguageModules(&'a [String]),
    /// `language.steps`
    LanguageSteps(u64),
    /// `language.recursion`
    LanguageRecursion(u32),
    /// `tools`
    Tools(&'a Tools),
    /// `audit.path`
    AuditPath(&'a PathBuf),
    /// `audit.redact`, not empty
    AuditRedact(&'a [String]),
    /// `audit.content`
    AuditContent(Content),
    /// `audit.sync`
    AuditSync(Sync),
}

impl Clause<'_> {
    /// Which clause this is.
    #[must_use]
    pub const fn id(&self) -> ClauseId {
        match self {
            Self::Tier(_) => ClauseId::Tier,
            Self::Backend(_) => ClauseId::Backend,
            Self::Threat(_) => ClauseId::Threat,
            Self::Enforcer(_) => ClauseId::Enforcer,
            Self::FsRoot(_) => ClauseId::FsRoot,
            Self::FsRead(_) => ClauseId::FsRead,
            Self::FsWrite(_) => ClauseId::FsWrite,
            Self::FsHide(_) => ClauseId::FsHide,
            Self::FsSockets(_) => ClauseId::FsSockets,
            Self::FsLandlock(_) => ClauseId::FsLandlock,
            Self::FsExec(_) => ClauseId::FsExec,
            Self::FsNoexec => ClauseId::FsNoexec,
            Self::FsTmp(_) => ClauseId::FsTmp,
            Self::FsShm(_) => ClauseId::FsShm,
            Self::FsRun(_) => ClauseId::FsRun,
            Self::FsProtect => ClauseId::FsProtect,
            Self::Workspace(_) => ClauseId::Workspace,
            Self::LimitsWall(_) => ClauseId::LimitsWall,
            Self::LimitsCpuTime(_) => ClauseId::LimitsCpuTime,
            Self::LimitsCpus(_) => ClauseId::LimitsCpus,
            Self::LimitsCpuset(_) => ClauseId::LimitsCpuset,
            Self::LimitsMemory(_) => ClauseId::LimitsMemory,
            Self::LimitsPids(_) => ClauseId::LimitsPids,
            Self::LimitsOpenFiles(_) => ClauseId::LimitsOpenFiles,
            Self::LimitsFileSize(_) => ClauseId::LimitsFileSize,
            Self::LimitsDisk(_) => ClauseId::LimitsDisk,
            Self::LimitsFiles(_) => ClauseId::LimitsFiles,
            Self::LimitsOutput(_) => ClauseId::LimitsOutput,
            Self::LimitsOver(_) => ClauseId::LimitsOver,
            Self::LimitsIoRead(_) => ClauseId::LimitsIoRead,
            Self::LimitsIoWrite(_) => ClauseId::LimitsIoWrite,
            Self::LimitsIdle(_) => ClauseId::LimitsIdle,
            Self::LimitsWarn(_) => ClauseId::LimitsWarn,
            Self::LimitsKill(_) => ClauseId::LimitsKill,
            Self::NetMode(_) => ClauseId::NetMode,
            Self::NetPresets(_) => ClauseId::NetPresets,
            Self::NetAllow(_) => ClauseId::NetAllow,
            Self::NetDeny(_) => ClauseId::NetDeny,
            Self::NetUnknown(_) => ClauseId::NetUnknown,
            Self::NetPrograms(_) => ClauseId::NetPrograms,
            Self::NetDns(_) => ClauseId::NetDns,
            Self::NetCa(_) => ClauseId::NetCa,
            Self::NetProxy(_) => ClauseId::NetProxy,
            Self::NetBandwidth(_) => ClauseId::NetBandwidth,
            Self::NetBytes(_) => ClauseId::NetBytes,
            Self::NetConnections(_) => ClauseId::NetConnections,
            Self::EnvPass(_) => ClauseId::EnvPass,
            Self::EnvSet(_) => ClauseId::EnvSet,
            Self::Inputs(_) => ClauseId::Inputs,
            Self::Secrets(_) => ClauseId::Secrets,
            Self::ProcessUser(_) => ClauseId::ProcessUser,
            Self::ProcessHostname(_) => ClauseId::ProcessHostname,
            Self::ProcessUmask(_) => ClauseId::ProcessUmask,
            Self::ProcessTty => ClauseId::ProcessTty,
            Self::ProcessLabel(_) => ClauseId::ProcessLabel,
            Self::ProcessDevices(_) => ClauseId::ProcessDevices,
            Self::SyscallsProfile(_) => ClauseId::SyscallsProfile,
            Self::SyscallsAllow(_) => ClauseId::SyscallsAllow,
            Self::SyscallsDeny(_) => ClauseId::SyscallsDeny,
            Self::LanguageModules(_) => ClauseId::LanguageModules,
            Self::LanguageSteps(_) => ClauseId::LanguageSteps,
            Self::LanguageRecursion(_) => ClauseId::LanguageRecursion,
            Self::Commands(_) => ClauseId::Commands,
            Self::Tools(_) => ClauseId::Tools,
            Self::AuditPath(_) => ClauseId::AuditPath,
            Self::AuditRedact(_) => ClauseId::AuditRedact,
            Self::AuditContent(_) => ClauseId::AuditContent,
            Self::AuditSync(_) => ClauseId::AuditSync,
        }
    }
}

fn full<T>(list: &[T]) -> Option<&[T]> {
    (!list.is_empty()).then_some(list)
}

fn full_map<K, V>(map: &BTreeMap<K, V>) -> Option<&BTreeMap<K, V>> {
    (!map.is_empty()).then_some(map)
}

impl Policy {
    /// Whether a tree of the host is shown writable without a layer of ours between.
    #[must_use]
    pub fn writes_to_host(&self) -> bool {
        self.workspace.mode == WorkspaceMode::Rw || !self.fs.write.is_empty() || self.fs.root.is_built()
    }

    /// Where commands run, as they see it: the workspace, else the folder for temporary files.
    #[must_use]
    pub fn commands_at(&self) -> PathBuf {
        self.workspace_at().cloned().unwrap_or_else(|| PathBuf::from("/tmp"))
    }

    /// Where the program sees the workspace; nowhere without one.
    #[must_use]
    pub fn workspace_at(&self) -> Option<&PathBuf> {
        let Workspace { path, at, mode } = &self.workspace;
        path.as_ref().filter(|_| *mode != WorkspaceMode::None).map(|path| at.as_ref().unwrap_or(path))
    }

    /// Every demand, in `ClauseId` order. What is not set, empty, or the absence of a wish is left out.
    pub fn clauses(&self) -> impl Iterator<Item = Clause<'_>> {
        ClauseId::ALL.iter().filter_map(|&id| self.clause(id))
    }

    /// The demand of one clause; `None` when it demands nothing.
    #[must_use]
    #[expect(clippy::too_many_lines, reason = "a table: one arm for each clause")]
    pub fn clause(&self, id: ClauseId) -> Option<Clause<'_>> {
        let (fs, limits, net, process, audit) = (&self.fs, &self.limits, &self.net, &self.process, &self.audit);
        let open = net.mode == NetMode::Allow;
        match id {
            ClauseId::Tier => Some(Clause::Tier(self.tier)),
            ClauseId::Backend => self.backend.map(Clause::Backend),
            ClauseId::Threat => Some(Clause::Threat(self.threat)),
            ClauseId::Enforcer => Some(Clause::Enforcer(self.enforcer)),
            ClauseId::FsRoot => Some(Clause::FsRoot(&fs.root)),
            ClauseId::FsRead => full(&fs.read).map(Clause::FsRead),
            ClauseId::FsWrite => full(&fs.write).map(Clause::FsWrite),
            ClauseId::FsHide => full(&fs.hide).map(Clause::FsHide),
            ClauseId::FsSockets => Some(Clause::FsSockets(fs.sockets)),
            ClauseId::FsLandlock => fs.landlock.map(Clause::FsLandlock),
            ClauseId::FsExec => fs.exec.as_deref().map(Clause::FsExec),
            ClauseId::FsNoexec => fs.noexec.then_some(Clause::FsNoexec),
            ClauseId::FsTmp => Some(Clause::FsTmp(fs.tmp)),
            ClauseId::FsShm => Some(Clause::FsShm(fs.shm)),
            ClauseId::FsRun => Some(Clause::FsRun(fs.run)),
            ClauseId::FsProtect => fs.protect.then_some(Clause::FsProtect),
            ClauseId::Workspace => {
                (self.workspace.mode != WorkspaceMode::None).then_some(Clause::Workspace(&self.workspace))
            }
            ClauseId::LimitsWall => limits.wall.map(Clause::LimitsWall),
            ClauseId::LimitsCpuTime => limits.cpu_time.map(Clause::LimitsCpuTime),
            ClauseId::LimitsCpus => limits.cpus.map(Clause::LimitsCpus),
            ClauseId::LimitsCpuset => limits.cpuset.as_deref().map(Clause::LimitsCpuset),
            ClauseId::LimitsMemory => limits.memory.map(Clause::LimitsMemory),
            ClauseId::LimitsPids => limits.pids.map(Clause::LimitsPids),
            ClauseId::LimitsOpenFiles => limits.open_files.map(Clause::LimitsOpenFiles),
            ClauseId::LimitsFileSize => limits.file_size.map(Clause::LimitsFileSize),
            ClauseId::LimitsDisk => self.disk().map(Clause::LimitsDisk),
            ClauseId::LimitsFiles => limits.files.map(|total| Clause::LimitsFiles(self.files(total))),
            ClauseId::LimitsOutput => limits.output.map(Clause::LimitsOutput),
            ClauseId::LimitsOver => limits.output.is_some().then_some(Clause::LimitsOver(limits.over)),
            ClauseId::LimitsIoRead => limits.io_read.map(Clause::LimitsIoRead),
            ClauseId::LimitsIoWrite => limits.io_write.map(Clause::LimitsIoWrite),
            ClauseId::LimitsIdle => limits.idle.map(Clause::LimitsIdle),
            ClauseId::LimitsWarn => limits.warn.map(Clause::LimitsWarn),
            ClauseId::LimitsKill => limits.kill.map(Clause::LimitsKill),
            ClauseId::NetMode => Some(Clause::NetMode(net.mode)),
            ClauseId::NetPresets => full_map(&net.presets).filter(|_| open).map(Clause::NetPresets),
            ClauseId::NetAllow => full(&net.allow).filter(|_| open).map(Clause::NetAllow),
            ClauseId::NetDeny => full(&net.deny).filter(|_| open).map(Clause::NetDeny),
            ClauseId::NetUnknown => open.then_some(Clause::NetUnknown(net.unknown)),
            ClauseId::NetPrograms => full_map(&net.programs).filter(|_| open).map(Clause::NetPrograms),
            ClauseId::NetDns => open.then_some(Clause::NetDns(&net.dns)),
            ClauseId::NetCa => full(&net.ca).filter(|_| open).map(Clause::NetCa),
            ClauseId::NetProxy => net.proxy.as_ref().filter(|_| open).map(Clause::NetProxy),
            ClauseId::NetBandwidth => net.bandwidth.map(Clause::NetBandwidth),
            ClauseId::NetBytes => net.bytes.map(Clause::NetBytes),
            ClauseId::NetConnections => net.connections.map(Clause::NetConnections),
            ClauseId::EnvPass => Some(Clause::EnvPass(&self.env.pass)),
            ClauseId::EnvSet => full_map(&self.env.set).map(Clause::EnvSet),
            ClauseId::Inputs => full_map(&self.inputs).map(Clause::Inputs),
            ClauseId::Secrets => full_map(&self.secrets).map(Clause::Secrets),
            ClauseId::ProcessUser => Some(Clause::ProcessUser(&process.user)),
            ClauseId::ProcessHostname => Some(Clause::ProcessHostname(&process.hostname)),
            ClauseId::ProcessUmask => Some(Clause::ProcessUmask(process.umask)),
            ClauseId::ProcessTty => process.tty.then_some(Clause::ProcessTty),
            ClauseId::ProcessLabel => process.label.as_deref().map(Clause::ProcessLabel),
            ClauseId::ProcessDevices => full(&process.devices).map(Clause::ProcessDevices),
            ClauseId::SyscallsProfile => Some(Clause::SyscallsProfile(&self.syscalls.profile)),
            ClauseId::SyscallsAllow => full(&self.syscalls.allow).map(Clause::SyscallsAllow),
            ClauseId::SyscallsDeny => full(&self.syscalls.deny).map(Clause::SyscallsDeny),
            ClauseId::LanguageModules => self.language.modules.as_deref().map(Clause::LanguageModules),
            ClauseId::LanguageSteps => self.language.steps.map(Clause::LanguageSteps),
            ClauseId::LanguageRecursion => self.language.recursion.map(Clause::LanguageRecursion),
            ClauseId::Commands => self.commands.as_ref().map(|commands| Clause::Commands(&commands.written)),
            ClauseId::Tools => self.tools.as_deref().map(Clause::Tools),
            ClauseId::AuditPath => audit.path.as_ref().map(Clause::AuditPath),
            ClauseId::AuditRedact => full(&audit.redact).map(Clause::AuditRedact),
            ClauseId::AuditContent => Some(Clause::AuditContent(audit.content)),
            ClauseId::AuditSync => Some(Clause::AuditSync(audit.sync)),
        }
    }

    /// How `limits.disk` is divided: tmp, shm and run take their sizes, the workspace the rest.
    #[must_use]
    pub fn disk(&self) -> Option<Disk<'_>> {
        let total = self.limits.disk?;
        let fixed = self.fs.tmp.0.saturating_add(self.fs.shm.0).saturating_add(self.fs.run.0);
        Some(Disk {
            total,
            rest: Bytes(total.0.saturating_sub(fixed)),
            tmp: self.fs.tmp,
            shm: self.fs.shm,
            run: self.fs.run,
            workspace: &self.workspace,
            write: &self.fs.write,
        })
    }

    fn files(&self, total: u64) -> Files<'_> {
        Files { total, disk: self.disk(), workspace: &self.workspace, write: &self.fs.write }
    }
}

impl Clause<'_> {
    /// The value for people: units as in documents.
    #[must_use]
    pub fn value_text(&self) -> String {
        match self {
            Self::FsTmp(n) | Self::FsShm(n) | Self::FsRun(n) | Self::NetBytes(n) => n.to_string(),
            Self::LimitsMemory(n) | Self::LimitsFileSize(n) | Self::LimitsOutput(n) => n.to_string(),
            Self::NetPresets(map) => map.keys().map(String::as_str).collect::<Vec<_>>().join(", "),
            Self::LimitsDisk(disk) => disk.total.to_string(),
            Self::LimitsWall(t) | Self::LimitsCpuTime(t) | Self::LimitsIdle(t) => t.to_string(),
            Self::LimitsIoRead(rate) | Self::LimitsIoWrite(rate) | Self::NetBandwidth(rate) => rate.to_string(),
            Self::FsRead(list) | Self::FsWrite(list) => grants_text(list),
            Self::Workspace(workspace) => workspace_text(workspace),
            Self::LimitsWarn(threshold) | Self::LimitsKill(threshold) => threshold_text(threshold),
            Self::FsExec(list) | Self::NetCa(list) => {
                list.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>().join(", ")
            }
            other @ (Self::Tier(_)
            | Self::Backend(_)
            | Self::Threat(_)
            | Self::Enforcer(_)
            | Self::FsRoot(_)
            | Self::FsHide(_)
            | Self::FsSockets(_)
            | Self::FsLandlock(_)
            | Self::FsNoexec
            | Self::FsProtect
            | Self::LimitsCpus(_)
            | Self::LimitsCpuset(_)
            | Self::LimitsPids(_)
            | Self::LimitsOpenFiles(_)
            | Self::LimitsFiles(_)
            | Self::LimitsOver(_)
            | Self::NetMode(_)
            | Self::NetAllow(_)
            | Self::NetDeny(_)
            | Self::NetUnknown(_)
            | Self::NetPrograms(_)
            | Self::NetDns(_)
            | Self::NetProxy(_)
            | Self::NetConnections(_)
            | Self::EnvPass(_)
            | Self::EnvSet(_)
            | Self::Inputs(_)
            | Self::Secrets(_)
            | Self::ProcessUser(_)
            | Self::ProcessHostname(_)
            | Self::ProcessUmask(_)
            | Self::ProcessTty
            | Self::ProcessLabel(_)
            | Self::ProcessDevices(_)
            | Self::SyscallsProfile(_)
            | Self::SyscallsAllow(_)
            | Self::SyscallsDeny(_)
            | Self::LanguageModules(_)
            | Self::LanguageSteps(_)
            | Self::LanguageRecursion(_)
            | Self::Commands(_)
            | Self::Tools(_)
            | Self::AuditPath(_)
            | Self::AuditRedact(_)
            | Self::AuditContent(_)
            | Self::AuditSync(_)) => {
                let value = other.value_json();
                value.as_str().map_or_else(|| canonical(&value), str::to_owned)
            }
        }
    }
}

fn grants_text(list: &[Grant]) -> String {
    let one = |grant: &Grant| {
        let from = grant.from.to_string_lossy();
        if grant.from == grant.to { from.into_owned() } else { format!("{from} at {}", grant.to.to_string_lossy()) }
    };
    list.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn workspace_text(workspace: &Workspace) -> String {
    let path = workspace.path.as_deref().map(|path| path.to_string_lossy()).unwrap_or_default();
    match &workspace.at {
        Some(at) => format!("{path} at {} ({})", at.to_string_lossy(), workspace.mode),
        None => format!("{path} ({})", workspace.mode),
    }
}

fn threshold_text(threshold: &Threshold) -> String {
    let percent = threshold.cpu_percent.map(|n| format!("cpu above {n}%"));
    let memory = threshold.memory.map(|n| format!("memory above {n}"));
    let parts: Vec<String> = percent.into_iter().chain(memory).collect();
    format!("{} for {}", parts.join(" or "), threshold.lasting)
}
