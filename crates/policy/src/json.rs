//! Canonical JSON (RFC 8785) and the values of clauses in it: what digests and `--json` are made of.
//!
//! Sizes are integers of bytes, times are numbers of seconds, shares of processors are numbers of cores.

use std::fmt::Write as _;

use serde_json::{Map, Number, Value, json};
use sha2::{Digest as _, Sha256};

use crate::demand::Clause;
use crate::net;
use crate::units::Millis;
use crate::value::{
    BackendName, Content, EnforcerDemand, Grant, Input, InputType, NetMode, Over, Protocol, Root, Sockets, Sync,
    Threat, Threshold, Tier, TierChoice, TlsUse, Unknown, Workspace, WorkspaceMode,
};

macro_rules! words {
    ($($type:ident { $($variant:ident = $word:literal),+ $(,)? })+) => { $(
        impl $type {
            /// Every value by its word in documents.
            pub const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$variant)),+];

            /// The word in documents.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    )+ };
}

words! {
    Tier { Language = "language", Process = "process", Container = "container", Gvisor = "gvisor", Vm = "vm" }
    BackendName {
        Native = "native", Crun = "crun", Runc = "runc", Runsc = "runsc", Docker = "docker", Podman = "podman",
        Qemu = "qemu", Firecracker = "firecracker", Monty = "monty", Wasm = "wasm",
    }
    Threat { Mistakes = "mistakes", Hostile = "hostile", MultiTenant = "multi-tenant" }
    EnforcerDemand { Any = "any", Kernel = "kernel" }
    Sockets { Pairs = "false", Own = "own", Host = "true" }
    WorkspaceMode { None = "none", Ro = "ro", Rw = "rw", Overlay = "overlay", Copy = "copy" }
    Over { Cut = "cut", Kill = "kill" }
    NetMode { None = "none", Loopback = "loopback", Allow = "allow" }
    Unknown { Deny = "deny", Ask = "ask" }
    Protocol { Tcp = "tcp", Udp = "udp" }
    TlsUse { Auto = "auto", Pass = "pass" }
    InputType { String = "string", Integer = "integer", Number = "number", Boolean = "boolean" }
    Content { Hash = "hash", Full = "full", None = "none" }
    Sync { None = "none", Batch = "batch", Each = "each" }
}

impl std::fmt::Display for TierChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fixed(tier) => f.write_str(tier.as_str()),
            Self::Auto => f.write_str("auto"),
        }
    }
}

/// SHA-256 in lower-case hex.
#[must_use]
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Lower-case hex.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
        }
    }
    text
}

/// The bytes of a hex text; `None` if it is none.
#[must_use]
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    digits.chunks_exact(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

/// The digest of a value: SHA-256 over its canonical form.
#[must_use]
pub fn digest(value: &Value) -> String {
    sha256_hex(canonical(value).as_bytes())
}

/// RFC 8785: no spaces, keys by UTF-16 code units, shortest numbers.
#[must_use]
pub fn canonical(value: &Value) -> String {
    let mut out = String::with_capacity(1024);
    write_canonical(&mut out, value);
    out
}

fn write_canonical(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => write_number(out, number),
        Value::String(text) => write_text(out, text),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_canonical(out, item);
            }
            out.push(']');
        }
        Value::Object(map) => {
            let mut entries: Vec<(&String, &Value)> = map.iter().collect();
            entries.sort_unstable_by(|(a, _), (b, _)| by_utf16(a, b));
            out.push('{');
            for (index, (key, item)) in entries.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_text(out, key);
                out.push(':');
                write_canonical(out, item);
            }
            out.push('}');
        }
    }
}

/// Byte order and UTF-16 order differ only when a character beyond the BMP meets one from U+E000 on.
fn by_utf16(a: &str, b: &str) -> std::cmp::Ordering {
    if a.is_ascii() && b.is_ascii() { a.cmp(b) } else { a.encode_utf16().cmp(b.encode_utf16()) }
}

fn write_number(out: &mut String, number: &Number) {
    // A double holds integers exactly up to 2^53; RFC 8785 knows doubles only.
    const EXACT: u64 = 1 << 53;
    if let Some(n) = number.as_i64().filter(|n| n.unsigned_abs() <= EXACT) {
        push(out, format_args!("{n}"));
        return;
    }
    let n = number.as_f64().unwrap_or(0.0);
    let size = n.abs();
    if n == 0.0 {
        out.push('0');
    } else if (1e-6..1e21).contains(&size) {
        push(out, format_args!("{n}"));
    } else {
        let text = format!("{n:e}");
        out.push_str(&if text.contains("e-") { text } else { text.replace('e', "e+") });
    }
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a `String` cannot fail.
    if out.write_fmt(text).is_err() {
        out.push('0');
    }
}

/// A JSON string literal (RFC 8785, section 3.2.2.2).
pub fn write_text(out: &mut String, text: &str) {
    out.push('"');
    // Hardly any text has something to escape.
    if text.bytes().all(|b| b >= b' ' && b != b'"' && b != b'\\') {
        out.push_str(text);
    } else {
        text.chars().for_each(|c| write_char(out, c));
    }
    out.push('"');
}

fn write_char(out: &mut String, c: char) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\u{8}' => out.push_str("\\b"),
        '\u{c}' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        c if c < ' ' => push(out, format_args!("\\u{:04x}", u32::from(c))),
        c => out.push(c),
    }
}

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
            Self::Commands(value) => (*value).clone(),
            Self::Tools(tools) => tools.written.clone(),
            Self::AuditPath(path) => path_text(path),
            Self::AuditContent(content) => json!(content.as_str()),
            Self::AuditSync(sync) => json!(sync.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_sorted_by_utf16_and_nothing_is_escaped_without_need() {
        // From RFC 8785 section 3.2.3: the emoji sorts before U+FB33 by UTF-16, after it by code point.
        let value = json!({"\u{fb33}": 1, "\u{1f600}": 2, "\r": 3, "1": 4, "\u{80}": 5, "ö": "\u{f}\n/é\\\""});
        assert_eq!(
            canonical(&value),
            "{\"\\r\":3,\"1\":4,\"\u{80}\":5,\"ö\":\"\\u000f\\n/é\\\\\\\"\",\"\u{1f600}\":2,\"\u{fb33}\":1}"
        );
    }

    #[test]
    fn numbers_are_spelled_as_in_the_rfc() {
        let cases: [(f64, &str); 14] = [
            (0.0, "0"),
            (-0.0, "0"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (9_007_199_254_740_992.0, "9007199254740992"),
            (295_147_905_179_352_830_000.0, "295147905179352830000"),
            (1e21, "1e+21"),
            (9.999_999_999_999_997e22, "9.999999999999997e+22"),
            (0.000_001, "0.000001"),
            (1e-7, "1e-7"),
            (333_333_333.333_333_3, "333333333.3333333"),
            (-1.5, "-1.5"),
            (100.0, "100"),
            (0.001_5, "0.0015"),
        ];
        for (number, spelled) in cases {
            assert_eq!(canonical(&json!(number)), spelled, "{number}");
        }
        // RFC 8785 knows doubles alone: beyond 2^53 an integer is spelled as the double that it becomes.
        assert_eq!(
            canonical(&json!([u64::MAX, 1_u64 << 53, null, true])),
            "[18446744073709552000,9007199254740992,null,true]"
        );
    }

    #[test]
    fn hex_reads_back() {
        assert_eq!(unhex(&hex(&[0, 15, 255])).unwrap(), [0, 15, 255]);
        assert!(unhex("abc").is_none() && unhex("+1").is_none());
    }
}
