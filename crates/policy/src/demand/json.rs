//! The values of clauses as JSON: what digests and `--json` are made of.
//!
//! Sizes are integers of bytes, times are numbers of seconds, shares of processors are numbers of cores.

use serde_json::{Map, Value, json};

use super::Clause;
use crate::json::sha256_hex;
use crate::net;
use crate::units::Millis;
use crate::value::{Grant, Input, Root, Sockets, Threshold, Workspace};

/// Seconds as a number: whole where they are.
#[expect(clippy::cast_precision_loss, reason = "durations are capped at ten years: 2^39 ms, exact in a double")]
fn seconds(time: Millis) -> Value {
    if time.0.is_multiple_of(1000) { json!(time.0 / 1000) } else { json!(time.0 as f64 / 1000.0) }
}

fn path_text(path: &std::path::Path) -> Value {
    Value::String(path.to_string_lossy().into_owned())
}

fn grants(list: &[Grant]) -> Value {
    let one = |grant: &Grant| {
        let mut map = Map::new();
        map.insert("from".to_owned(), path_text(&grant.from));
        map.insert("to".to_owned(), path_text(&grant.to));
        if grant.dangerous {
            map.insert("dangerous".to_owned(), Value::Bool(true));
        }
        Value::Object(map)
    };
    Value::Array(list.iter().map(one).collect())
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

impl Clause<'_> {
    /// The value as JSON: bytes as integers, times as seconds, shares as cores.
    #[must_use]
    pub fn value_json(&self) -> Value {
        match self {
            Self::Tier(tier) => Value::String(tier.to_string()),
            Self::Backend(name) => json!(name.as_str()),
            Self::Threat(threat) => json!(threat.as_str()),
            Self::Enforcer(who) => json!(who.as_str()),
            Self::FsRoot(value) => root(value),
            Self::FsRead(list) | Self::FsWrite(list) => grants(list),
            Self::FsSockets(Sockets::Own) => json!("own"),
            Self::FsSockets(which) => json!(*which == Sockets::Host),
            Self::FsLandlock(abi) => json!(abi),
            Self::FsExec(list) | Self::NetCa(list) => Value::Array(list.iter().map(|path| path_text(path)).collect()),
            Self::FsNoexec | Self::FsProtect | Self::ProcessTty => json!(true),
            Self::FsTmp(n) | Self::FsShm(n) | Self::FsRun(n) | Self::NetBytes(n) => json!(n.0),
            Self::Workspace(value) => workspace(value),
            Self::LimitsWall(t) | Self::LimitsCpuTime(t) | Self::LimitsIdle(t) => seconds(*t),
            Self::LimitsCpus(share) if share.0.is_multiple_of(1000) => json!(share.0 / 1000),
            Self::LimitsCpus(share) => json!(f64::from(share.0) / 1000.0),
            Self::LimitsCpuset(list) => json!(list),
            Self::LimitsMemory(n) | Self::LimitsFileSize(n) | Self::LimitsOutput(n) => json!(n.0),
            Self::LimitsPids(n) | Self::LimitsOpenFiles(n) | Self::NetConnections(n) => json!(n),
            Self::LimitsDisk(disk) => json!(disk.total.0),
            Self::LimitsFiles(files) => json!(files.total),
            Self::LimitsOver(over) => json!(over.as_str()),
            Self::LimitsIoRead(rate) | Self::LimitsIoWrite(rate) | Self::NetBandwidth(rate) => json!(rate.0),
            Self::LimitsWarn(value) | Self::LimitsKill(value) => threshold(value),
            Self::NetMode(mode) => json!(mode.as_str()),
            Self::NetPresets(map) => {
                let rules = |(name, list): (&String, &Vec<_>)| (name.clone(), list.iter().map(net::rule).collect());
                Value::Object(map.iter().map(rules).collect())
            }
            Self::NetAllow(list) => list.iter().map(net::rule).collect(),
            Self::NetDeny(list) => list.iter().map(net::denial).collect(),
            Self::NetUnknown(what) => json!(what.as_str()),
            Self::NetPrograms(map) => net::programs(map),
            Self::EnvSet(map) => json!(map),
            Self::Inputs(map) => Value::Object(map.iter().map(|(name, i)| (name.clone(), input(i))).collect()),
            Self::Secrets(map) => net::secrets_document(map),
            Self::ProcessUmask(mask) => Value::String(format!("{mask:04o}")),
            Self::ProcessDevices(list) => list.iter().map(|device| json!(device.to_string())).collect(),
            Self::NetProxy(proxy) => json!(proxy.to_string()),
            Self::NetDns(text)
            | Self::ProcessUser(text)
            | Self::ProcessHostname(text)
            | Self::ProcessLabel(text)
            | Self::SyscallsProfile(text) => json!(text),
            Self::FsHide(list)
            | Self::EnvPass(list)
            | Self::SyscallsAllow(list)
            | Self::SyscallsDeny(list)
            | Self::AuditRedact(list) => json!(list),
            Self::LanguageModules(list) => json!(list),
            Self::LanguageSteps(count) => json!(count),
            Self::LanguageRecursion(depth) => json!(depth),
            Self::Commands(value) => (*value).clone(),
            Self::Tools(tools) => tools.written.clone(),
            Self::AuditPath(path) => path_text(path),
            Self::AuditContent(content) => json!(content.as_str()),
            Self::AuditSync(sync) => json!(sync.as_str()),
        }
    }
}
