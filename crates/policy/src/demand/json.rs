//! What each clause demands, as JSON: what digests and `--json` are made of.
//!
//! Sizes are integers of bytes, times are numbers of seconds, shares of processors are numbers of cores.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::clause::ClauseId;
use crate::json::sha256_hex;
use crate::net;
use crate::units::{MilliCpus, Millis};
use crate::value::{Grant, Input, NetMode, Policy, Root, Sockets, Threshold, Workspace, WorkspaceMode};

/// Seconds as a number: whole where they are.
#[expect(clippy::cast_precision_loss, reason = "durations are capped at ten years: 2^39 ms, exact in a double")]
fn seconds(time: Millis) -> Value {
    if time.0.is_multiple_of(1000) { json!(time.0 / 1000) } else { json!(time.0 as f64 / 1000.0) }
}

/// Cores as a number: whole where they are.
fn cores(share: MilliCpus) -> Value {
    if share.0.is_multiple_of(1000) { json!(share.0 / 1000) } else { json!(f64::from(share.0) / 1000.0) }
}

fn path_text(path: &Path) -> Value {
    Value::String(path.to_string_lossy().into_owned())
}

fn grant(grant: &Grant) -> Value {
    let mut map = Map::new();
    map.insert("from".to_owned(), path_text(&grant.from));
    map.insert("to".to_owned(), path_text(&grant.to));
    if grant.dangerous {
        map.insert("dangerous".to_owned(), Value::Bool(true));
    }
    Value::Object(map)
}

fn root(root: &Root) -> Value {
    match root {
        Root::Host => json!("host"),
        Root::Empty => json!("empty"),
        Root::Dir(path) => Value::String(format!("dir:{}", path.to_string_lossy())),
        Root::Image(image) => Value::String(format!("image:{}", image.written())),
    }
}

fn workspace(workspace: &Workspace) -> Value {
    let at = workspace.at.as_deref().map_or_else(|| json!("same"), path_text);
    let path = workspace.path.as_deref().map_or(Value::Null, path_text);
    json!({ "path": path, "at": at, "mode": workspace.mode.as_str() })
}

fn threshold(threshold: &Threshold) -> Value {
    let mut map = Map::new();
    if let Some(percent) = threshold.cpu_percent {
        map.insert("cpu_percent".to_owned(), json!(percent));
    }
    if let Some(memory) = threshold.memory {
        map.insert("memory".to_owned(), json!(memory.0));
    }
    map.insert("for".to_owned(), seconds(threshold.lasting));
    Value::Object(map)
}

/// The given value stands only as its digest: it is content, and a plan goes into the audit log.
fn input(input: &Input) -> Value {
    let mut map = Map::new();
    map.insert("type".to_owned(), json!(input.kind.as_str()));
    if let Some(n) = input.max_length {
        map.insert("max_length".to_owned(), json!(n));
    }
    if let Some(list) = &input.one_of {
        map.insert("enum".to_owned(), json!(list));
    }
    if let Some(pattern) = &input.pattern {
        map.insert("pattern".to_owned(), json!(pattern));
    }
    map.insert("required".to_owned(), json!(input.required));
    if let Some(value) = &input.value {
        map.insert("value_sha256".to_owned(), json!(sha256_hex(value.as_bytes())));
    }
    Value::Object(map)
}

/// A list that asks for something: an empty one does not.
fn list<T>(list: &[T], one: impl Fn(&T) -> Value) -> Option<Value> {
    (!list.is_empty()).then(|| list.iter().map(one).collect())
}

/// The same of what stands under names.
fn named<T>(map: &BTreeMap<String, T>, one: impl Fn(&T) -> Value) -> Option<Value> {
    (!map.is_empty()).then(|| Value::Object(map.iter().map(|(name, value)| (name.clone(), one(value))).collect()))
}

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

impl Policy {
    /// What a clause demands: bytes as integers, times as seconds, shares as cores. `None` where it is not set, empty, or
    /// the absence of a wish.
    #[must_use]
    #[expect(clippy::too_many_lines, reason = "a table: one arm for each clause")]
    pub fn demand(&self, id: ClauseId) -> Option<Value> {
        let (fs, limits, net, process, audit) = (&self.fs, &self.limits, &self.net, &self.process, &self.audit);
        // What speaks of hosts by name says nothing where there are none.
        let open = net.mode == NetMode::Allow;
        match id {
            ClauseId::Tier => Some(json!(self.tier.to_string())),
            ClauseId::Backend => self.backend.map(|name| json!(name.as_str())),
            ClauseId::Threat => Some(json!(self.threat.as_str())),
            ClauseId::Enforcer => Some(json!(self.enforcer.as_str())),
            ClauseId::FsRoot => Some(root(&fs.root)),
            ClauseId::FsRead => list(&fs.read, grant),
            ClauseId::FsWrite => list(&fs.write, grant),
            ClauseId::FsHide => list(&fs.hide, |one| text(one)),
            ClauseId::FsSockets => Some(match fs.sockets {
                Sockets::Own => json!("own"),
                which @ (Sockets::Pairs | Sockets::Host) => json!(which == Sockets::Host),
            }),
            ClauseId::FsLandlock => fs.landlock.map(|abi| json!(abi)),
            ClauseId::FsExec => fs.exec.as_ref().map(|paths| paths.iter().map(|path| path_text(path)).collect()),
            ClauseId::FsNoexec => fs.noexec.then(|| json!(true)),
            ClauseId::FsTmp => Some(json!(fs.tmp.0)),
            ClauseId::FsShm => Some(json!(fs.shm.0)),
            ClauseId::FsRun => Some(json!(fs.run.0)),
            ClauseId::FsProtect => fs.protect.then(|| json!(true)),
            ClauseId::Workspace => (self.workspace.mode != WorkspaceMode::None).then(|| workspace(&self.workspace)),
            ClauseId::LimitsWall => limits.wall.map(seconds),
            ClauseId::LimitsCpuTime => limits.cpu_time.map(seconds),
            ClauseId::LimitsCpus => limits.cpus.map(cores),
            ClauseId::LimitsCpuset => limits.cpuset.as_ref().map(|list| json!(list)),
            ClauseId::LimitsMemory => limits.memory.map(|size| json!(size.0)),
            ClauseId::LimitsPids => limits.pids.map(|count| json!(count)),
            ClauseId::LimitsOpenFiles => limits.open_files.map(|count| json!(count)),
            ClauseId::LimitsFileSize => limits.file_size.map(|size| json!(size.0)),
            ClauseId::LimitsDisk => limits.disk.map(|size| json!(size.0)),
            ClauseId::LimitsFiles => limits.files.map(|count| json!(count)),
            ClauseId::LimitsOutput => limits.output.map(|size| json!(size.0)),
            ClauseId::LimitsOver => limits.output.map(|_| json!(limits.over.as_str())),
            ClauseId::LimitsIoRead => limits.io_read.map(|rate| json!(rate.0)),
            ClauseId::LimitsIoWrite => limits.io_write.map(|rate| json!(rate.0)),
            ClauseId::LimitsIdle => limits.idle.map(seconds),
            ClauseId::LimitsWarn => limits.warn.as_ref().map(threshold),
            ClauseId::LimitsKill => limits.kill.as_ref().map(threshold),
            ClauseId::NetMode => Some(json!(net.mode.as_str())),
            ClauseId::NetPresets if open => named(&net.presets, |rules| rules.iter().map(net::rule).collect()),
            ClauseId::NetAllow if open => list(&net.allow, net::rule),
            ClauseId::NetDeny if open => list(&net.deny, net::denial),
            ClauseId::NetUnknown if open => Some(json!(net.unknown.as_str())),
            ClauseId::NetPrograms if open => (!net.programs.is_empty()).then(|| net::programs(&net.programs)),
            ClauseId::NetDns if open => Some(text(&net.dns)),
            ClauseId::NetCa if open => list(&net.ca, |path| path_text(path)),
            ClauseId::NetProxy if open => net.proxy.as_ref().map(|proxy| json!(proxy.to_string())),
            ClauseId::NetPresets
            | ClauseId::NetAllow
            | ClauseId::NetDeny
            | ClauseId::NetUnknown
            | ClauseId::NetPrograms
            | ClauseId::NetDns
            | ClauseId::NetCa
            | ClauseId::NetProxy => None,
            ClauseId::NetBandwidth => net.bandwidth.map(|rate| json!(rate.0)),
            ClauseId::NetBytes => net.bytes.map(|size| json!(size.0)),
            ClauseId::NetConnections => net.connections.map(|count| json!(count)),
            // Empty, it demands that nothing of the caller's environment goes in.
            ClauseId::EnvPass => Some(json!(self.env.pass)),
            ClauseId::EnvSet => named(&self.env.set, |value| text(value)),
            ClauseId::Inputs => named(&self.inputs, input),
            ClauseId::Secrets => (!self.secrets.is_empty()).then(|| net::secrets_document(&self.secrets)),
            ClauseId::ProcessUser => Some(text(&process.user)),
            ClauseId::ProcessHostname => Some(text(&process.hostname)),
            ClauseId::ProcessUmask => Some(Value::String(format!("{:04o}", process.umask))),
            ClauseId::ProcessTty => process.tty.then(|| json!(true)),
            ClauseId::ProcessLabel => process.label.as_deref().map(text),
            ClauseId::ProcessDevices => list(&process.devices, |device| json!(device.to_string())),
            ClauseId::SyscallsProfile => Some(text(&self.syscalls.profile)),
            ClauseId::SyscallsAllow => list(&self.syscalls.allow, |one| text(one)),
            ClauseId::SyscallsDeny => list(&self.syscalls.deny, |one| text(one)),
            ClauseId::LanguageModules => self.language.modules.as_ref().map(|names| json!(names)),
            ClauseId::LanguageSteps => self.language.steps.map(|count| json!(count)),
            ClauseId::LanguageRecursion => self.language.recursion.map(|depth| json!(depth)),
            ClauseId::Commands => self.commands.as_ref().map(|commands| commands.written.clone()),
            ClauseId::Tools => self.tools.as_ref().map(|tools| tools.written.clone()),
            ClauseId::AuditPath => audit.path.as_deref().map(path_text),
            ClauseId::AuditRedact => list(&audit.redact, |one| text(one)),
            ClauseId::AuditContent => Some(json!(audit.content.as_str())),
            ClauseId::AuditSync => Some(json!(audit.sync.as_str())),
        }
    }
}
