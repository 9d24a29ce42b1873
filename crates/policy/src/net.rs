//! `[net]` and `[secrets]` as values: which destinations a run may reach by the broker, and what the broker adds to requests.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use serde_json::{Map, Value, json};

use crate::cidr::Cidr;
pub use crate::net_headers::{FRAMING, NO_CREDENTIALS, is_framing, is_spelling};
use crate::units::{Bytes, BytesPerSecond};
use crate::words::words;

/// Ports of a rule that names none.
pub(crate) const WEB_PORTS: [u16; 2] = [80, 443];

/// Ports on which a name that no rule has is heard, so that a person can be asked: the web, files, shells, mail, directories, and
/// databases. Those on which programs inside like to serve something themselves (8080, 8443 and the like) are not among them.
const ASKED_PORTS: [u16; 22] =
    [21, 22, 25, 80, 110, 143, 389, 443, 465, 587, 636, 853, 873, 993, 995, 1433, 3306, 5432, 5672, 6379, 9418, 27017];

/// Network mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetMode {
    /// No IP socket can be made at all.
    None,
    /// An empty network namespace with `lo` up.
    Loopback,
    /// The hosts of `net.allow`, by the broker.
    Allow,
}

/// `net.unknown`: what happens to a destination that no rule has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// It is refused.
    Deny,
    /// It waits for a person's answer.
    Ask,
}

/// Transport of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// `tls` of a rule: what the broker does with TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsUse {
    /// Opened where methods, paths or a secret need it, else passed.
    Auto,
    /// Never opened: the program verifies the server itself, and methods, paths and secrets cannot be held.
    Pass,
}

words! {
    NetMode { None = "none", Loopback = "loopback", Allow = "allow" }
    Unknown { Deny = "deny", Ask = "ask" }
    Protocol { Tcp = "tcp", Udp = "udp" }
    TlsUse { Auto = "auto", Pass = "pass" }
}

/// `[net]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Net {
    /// Mode.
    pub mode: NetMode,
    /// `net.presets` by name, with the rules that each stands for.
    pub presets: BTreeMap<String, Vec<NetRule>>,
    /// Allowed destinations.
    pub allow: Vec<NetRule>,
    /// Denied destinations; they win over `allow` and presets.
    pub deny: Vec<NetDenial>,
    /// What no rule has.
    pub unknown: Unknown,
    /// Hosts that a program may reach, by its absolute path inside; programs that are not here may reach all.
    pub programs: BTreeMap<PathBuf, Vec<String>>,
    /// Who resolves names; only `broker`.
    pub dns: String,
    /// Files of more root certificates, absolute.
    pub ca: Vec<PathBuf>,
    /// The broker's way out.
    pub proxy: Option<Proxy>,
    /// Rate over the broker, both directions together.
    pub bandwidth: Option<BytesPerSecond>,
    /// Bytes over the broker, both directions together, of the whole run.
    pub bytes: Option<Bytes>,
    /// Connections open at once.
    pub connections: Option<u32>,
}

/// `net.proxy`: the HTTP proxy by which the broker goes out, for all that no rule pins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    /// A name, or an address without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// By what it knows the broker.
    pub login: Option<Login>,
}

impl Proxy {
    /// `http://HOST:PORT`, without the login: as documents of plans, reports and logs have it.
    #[must_use]
    pub fn place(&self) -> String {
        format!("http://{}", self.authority())
    }

    fn authority(&self) -> String {
        let of_ipv6 = self.host.parse::<Ipv6Addr>().is_ok();
        if of_ipv6 { format!("[{}]:{}", self.host, self.port) } else { format!("{}:{}", self.host, self.port) }
    }
}

impl std::fmt::Display for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let login = if self.login.is_some() { "***@" } else { "" };
        write!(f, "http://{login}{}", self.authority())
    }
}

/// `USER:PASSWORD` of a proxy, as it is sent; nothing shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Login(pub String);

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Login")
    }
}

/// One allowed destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetRule {
    /// Whom it names.
    pub to: Target,
    /// Ports; sorted, never empty.
    pub ports: Vec<u16>,
    /// Transport.
    pub protocol: Protocol,
    /// HTTP methods, in capitals; empty = all.
    pub methods: Vec<String>,
    /// Globs of paths, each of which starts with `/`; empty = all.
    pub paths: Vec<String>,
    /// Where it really is: every port of the rule leads there, and private addresses are reached by this alone.
    pub address: Option<SocketAddr>,
    /// What is done with TLS.
    pub tls: TlsUse,
    /// `decision = "ask"`: what it is for waits for a person's answer. Only of rules that judge requests.
    pub asks: bool,
    /// Paths may have encoded slashes, and then are to fit in both of their readings. Only of rules with paths.
    pub encoded_slashes: bool,
    /// A request may open a WebSocket, behind which nothing is judged. Rules that judge no requests allow it all the same.
    pub websocket: bool,
}

impl NetRule {
    /// Whether requests are judged one by one, for which the connection is opened.
    #[must_use]
    pub const fn is_opened(&self) -> bool {
        !self.methods.is_empty() || !self.paths.is_empty()
    }

    /// Whether a request that fits may open a WebSocket.
    #[must_use]
    pub const fn opens_websockets(&self) -> bool {
        self.websocket || !self.is_opened()
    }
}

/// One denied destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetDenial {
    /// Whom it names.
    pub to: Target,
    /// Ports, sorted; empty = all.
    pub ports: Vec<u16>,
}

/// Whether programs take a name for their own loopback without asking anybody (RFC 6761).
#[must_use]
pub fn is_loopback_name(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

/// Whom a rule names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// A name in lower case without a trailing dot; `*.NAME` is one label more, `**.NAME` any number of them.
    Host(String),
    /// Addresses.
    Cidr(Cidr),
}

/// Whether a name (lower case, no trailing dot) is one that a pattern of rules stands for: `*.x` has one label more than `x`,
/// `**.x` one or more, any other pattern is the name itself.
#[must_use]
pub fn host_matches(pattern: &str, name: &str) -> bool {
    let before = |end: &str| name.strip_suffix(end)?.strip_suffix('.').filter(|before| !before.is_empty());
    if let Some(end) = pattern.strip_prefix("**.") {
        return before(end).is_some();
    }
    match pattern.strip_prefix("*.") {
        Some(end) => before(end).is_some_and(|label| !label.contains('.')),
        None => pattern == name,
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Host(name) => f.write_str(name),
            Self::Cidr(cidr) => cidr.fmt(f),
        }
    }
}

/// `kind` of a secret that signs.
pub(crate) const SIGV4: &str = "aws-sigv4";

/// `[secrets.NAME]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secret {
    /// Where it is found, outside.
    pub from: SecretSource,
    /// Hosts that may see it, as in rules; never empty.
    pub hosts: Vec<String>,
    /// Ports, sorted, never empty; 443 if none was written.
    pub ports: Vec<u16>,
    /// HTTP methods; empty = all.
    pub methods: Vec<String>,
    /// Globs of paths; empty = all.
    pub paths: Vec<String>,
    /// Where in a request it is put.
    pub put: SecretUse,
    /// The variable inside that holds a placeholder.
    pub env: Option<String>,
}

impl Secret {
    /// Where its values are found; the id of an access key is no secret.
    pub fn sources(&self) -> impl Iterator<Item = &SecretSource> {
        let token = match &self.put {
            SecretUse::Sign(signing) => signing.session_token.as_ref(),
            SecretUse::Header { .. } | SecretUse::Basic(_) | SecretUse::Query(_) | SecretUse::Placeholder => None,
        };
        std::iter::once(&self.from).chain(token)
    }

    /// The variables of the caller that are read for it.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        let id = match &self.put {
            SecretUse::Sign(signing) => Some(&signing.key_id),
            SecretUse::Header { .. } | SecretUse::Basic(_) | SecretUse::Query(_) | SecretUse::Placeholder => None,
        };
        self.sources().chain(id).filter_map(|source| match source {
            SecretSource::Env(name) => Some(name.as_str()),
            SecretSource::File(_) | SecretSource::Command(_) => None,
        })
    }
}

/// `from` of a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// `env:NAME` of the caller.
    Env(String),
    /// `file:PATH`, absolute.
    File(PathBuf),
    /// `command:WORD ...`: run outside, once, without a shell.
    Command(Vec<String>),
}

impl std::fmt::Display for SecretSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Env(name) => write!(f, "env:{name}"),
            Self::File(path) => write!(f, "file:{}", path.to_string_lossy()),
            Self::Command(words) => write!(f, "command:{}", words.join(" ")),
        }
    }
}

/// `as` of a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretUse {
    /// A header, in lower case, with a value in which `{}` stands for the secret.
    Header {
        /// Name.
        name: String,
        /// Value.
        format: String,
        /// Everybody may see it: answers are not searched for it, and variables inside may have it.
        public: bool,
    },
    /// The password of this user, in `Authorization: Basic`.
    Basic(String),
    /// A parameter of the query.
    Query(String),
    /// Wherever the program sends the placeholder.
    Placeholder,
    /// `kind = "aws-sigv4"`: it signs the request, and is not part of it.
    Sign(Signing),
}

impl SecretUse {
    /// Whether everybody may see what is put, so that it is no secret but in that nobody inside has to know it.
    #[must_use]
    pub const fn is_public(&self) -> bool {
        matches!(self, Self::Header { public: true, .. })
    }
}

/// What AWS' signature (version 4) is made with beside the secret access key itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signing {
    /// Where the id of the access key is found.
    pub key_id: SecretSource,
    /// Where the session token is found, for credentials that expire.
    pub session_token: Option<SecretSource>,
    /// The region; none: as the host says.
    pub region: Option<String>,
    /// The service by its signing name; none: as the host says.
    pub service: Option<String>,
}

impl Net {
    /// What stands when nothing is said: no network.
    #[must_use]
    pub fn closed() -> Self {
        Self {
            mode: NetMode::None,
            presets: BTreeMap::new(),
            allow: Vec::new(),
            deny: Vec::new(),
            unknown: Unknown::Deny,
            programs: BTreeMap::new(),
            dns: "broker".to_owned(),
            ca: Vec::new(),
            proxy: None,
            bandwidth: None,
            bytes: None,
            connections: None,
        }
    }

    /// Every allowing rule: those that were written, then those of the presets.
    pub fn rules(&self) -> impl Iterator<Item = &NetRule> {
        self.allow.iter().chain(self.presets.values().flatten())
    }

    /// The rules for which TLS is opened, on whatever port it comes.
    pub fn opened(&self) -> impl Iterator<Item = &NetRule> {
        self.rules().filter(|rule| rule.is_opened() && rule.tls == TlsUse::Auto)
    }

    /// Whether a person may be asked: about hosts that no rule names, or about requests of rules that say so.
    #[must_use]
    pub fn asks(&self) -> bool {
        self.unknown == Unknown::Ask || self.rules().any(|rule| rule.asks)
    }

    /// Ports on which a connection to a name that no rule has is heard, where a person is asked about it: common ones, and those of
    /// the rules.
    #[must_use]
    pub fn asked_ports(&self) -> BTreeSet<u16> {
        if self.unknown != Unknown::Ask {
            return BTreeSet::new();
        }
        let rules = self.rules().filter(|rule| rule.protocol == Protocol::Tcp);
        rules.flat_map(|rule| rule.ports.iter().copied()).chain(ASKED_PORTS).collect()
    }

    /// A denied range of addresses that could not be held: a proxy resolves names where nobody of ours sees to what.
    #[must_use]
    pub fn denied_out_of_sight(&self) -> Option<&NetDenial> {
        let by_name = self.unknown == Unknown::Ask
            || self.rules().any(|rule| rule.address.is_none() && matches!(rule.to, Target::Host(_)));
        let range = |denial: &&NetDenial| matches!(denial.to, Target::Cidr(_));
        self.deny.iter().find(range).filter(|_| by_name && self.proxy.is_some())
    }

    /// A rule for datagrams to a name, which no proxy of HTTP passes on.
    #[must_use]
    pub fn datagrams_by_proxy(&self) -> Option<&NetRule> {
        let by_name = |rule: &&NetRule| rule.address.is_none() && matches!(rule.to, Target::Host(_));
        self.rules().filter(by_name).find(|rule| rule.protocol == Protocol::Udp && self.proxy.is_some())
    }

    /// The table as a document has it, presets replaced by their rules: what the broker is told. The login of a proxy is no
    /// part of it.
    #[must_use]
    pub fn document(&self) -> Value {
        let mut map = Map::new();
        map.insert("mode".to_owned(), json!(self.mode.as_str()));
        map.insert("allow".to_owned(), self.rules().map(rule).collect());
        map.insert("deny".to_owned(), self.deny.iter().map(denial).collect());
        map.insert("unknown".to_owned(), json!(self.unknown.as_str()));
        map.insert("programs".to_owned(), programs(&self.programs));
        map.insert("dns".to_owned(), json!(self.dns));
        map.insert("ca".to_owned(), self.ca.iter().map(|path| json!(path.to_string_lossy())).collect());
        let limits = [
            ("proxy", self.proxy.as_ref().map(|proxy| json!(proxy.place()))),
            ("bandwidth", self.bandwidth.map(|rate| json!(format!("{}B/s", rate.0)))),
            ("bytes", self.bytes.map(|bytes| json!(format!("{}B", bytes.0)))),
            ("connections", self.connections.map(|count| json!(count))),
        ];
        map.extend(limits.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
        Value::Object(map)
    }

    /// The same as clauses, `CLAUSE=VALUE` as `--set` has it, that take the place of all below them; roots and proxy, which
    /// are told at a start alone, are left as they are below.
    #[must_use]
    pub fn layers(&self) -> Vec<String> {
        let list = |values: Vec<Value>| {
            toml::Value::try_from(values).map_or_else(|_| "[]".to_owned(), |list| list.to_string())
        };
        let limit = |value: Option<String>| value.unwrap_or_else(|| "none".to_owned());
        [
            ("mode", self.mode.as_str().to_owned()),
            ("presets", "[]".to_owned()),
            ("allow", list(self.rules().map(rule).collect())),
            ("deny", list(self.deny.iter().map(denial).collect())),
            ("unknown", self.unknown.as_str().to_owned()),
            ("bandwidth", limit(self.bandwidth.map(|rate| format!("{}B/s", rate.0)))),
            ("bytes", limit(self.bytes.map(|bytes| format!("{}B", bytes.0)))),
            ("connections", limit(self.connections.map(|count| count.to_string()))),
        ]
        .into_iter()
        .map(|(key, value)| format!("net.{key}={value}"))
        .collect()
    }
}

/// The table of secrets as a document has it, by which the broker is told what each is for; no value is part of it.
#[must_use]
pub fn secrets_document(secrets: &BTreeMap<String, Secret>) -> Value {
    secrets.iter().map(|(name, one)| (name.clone(), secret(one))).collect()
}

/// What a rule says beside whom it names; what is not said is left out.
pub(crate) fn rule(rule: &NetRule) -> Value {
    let mut map = target(&rule.to);
    map.insert("ports".to_owned(), json!(rule.ports));
    if rule.protocol != Protocol::Tcp {
        map.insert("protocol".to_owned(), json!(rule.protocol.as_str()));
    }
    texts(&mut map, "methods", &rule.methods);
    texts(&mut map, "paths", &rule.paths);
    if let Some(address) = rule.address {
        map.insert("address".to_owned(), json!(address.to_string()));
    }
    if rule.tls != TlsUse::Auto {
        map.insert("tls".to_owned(), json!(rule.tls.as_str()));
    }
    if rule.asks {
        map.insert("decision".to_owned(), json!("ask"));
    }
    for (key, said) in [("encoded_slashes", rule.encoded_slashes), ("websocket", rule.websocket)] {
        if said {
            map.insert(key.to_owned(), json!(true));
        }
    }
    Value::Object(map)
}

pub(crate) fn denial(denial: &NetDenial) -> Value {
    let mut map = target(&denial.to);
    if !denial.ports.is_empty() {
        map.insert("ports".to_owned(), json!(denial.ports));
    }
    Value::Object(map)
}

pub(crate) fn programs(programs: &BTreeMap<PathBuf, Vec<String>>) -> Value {
    Value::Object(programs.iter().map(|(path, hosts)| (path.to_string_lossy().into_owned(), json!(hosts))).collect())
}

/// As a document has it; the secret itself is not part of a policy.
fn secret(secret: &Secret) -> Value {
    let mut map = Map::new();
    map.insert("from".to_owned(), json!(secret.from.to_string()));
    map.insert("hosts".to_owned(), json!(secret.hosts));
    map.insert("ports".to_owned(), json!(secret.ports));
    texts(&mut map, "methods", &secret.methods);
    texts(&mut map, "paths", &secret.paths);
    let put = match &secret.put {
        SecretUse::Header { name, format, public: false } => json!({ "header": name, "format": format }),
        SecretUse::Header { name, format, public: true } => {
            json!({ "header": name, "format": format, "public": true })
        }
        SecretUse::Basic(user) => json!({ "basic": user }),
        SecretUse::Query(key) => json!({ "query": key }),
        SecretUse::Placeholder => json!("placeholder"),
        SecretUse::Sign(signing) => {
            map.extend(sign(signing));
            Value::Null
        }
    };
    if !put.is_null() {
        map.insert("as".to_owned(), put);
    }
    if let Some(name) = &secret.env {
        map.insert("env".to_owned(), json!(name));
    }
    Value::Object(map)
}

fn sign(signing: &Signing) -> Map<String, Value> {
    let mut map = Map::new();
    map.insert("kind".to_owned(), json!(SIGV4));
    map.insert("key_id".to_owned(), json!(signing.key_id.to_string()));
    let more = [
        ("session_token", signing.session_token.as_ref().map(ToString::to_string)),
        ("region", signing.region.clone()),
        ("service", signing.service.clone()),
    ];
    map.extend(more.into_iter().filter_map(|(key, value)| Some((key.to_owned(), json!(value?)))));
    map
}

fn target(to: &Target) -> Map<String, Value> {
    let (key, value) = match to {
        Target::Host(name) => ("host", json!(name)),
        Target::Cidr(cidr) => ("cidr", json!(cidr.to_string())),
    };
    Map::from_iter([(key.to_owned(), value)])
}

fn texts(map: &mut Map<String, Value>, key: &str, list: &[String]) {
    if !list.is_empty() {
        map.insert(key.to_owned(), json!(list));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_stand_for_labels_and_never_for_the_name_itself() {
        for (pattern, name, matches) in [
            ("a.test", "a.test", true),
            ("a.test", "b.a.test", false),
            ("*.a.test", "b.a.test", true),
            ("*.a.test", "a.test", false),
            ("*.a.test", ".a.test", false),
            ("*.a.test", "c.b.a.test", false),
            ("*.a.test", "ba.test", false),
            ("**.a.test", "b.a.test", true),
            ("**.a.test", "c.b.a.test", true),
            ("**.a.test", "a.test", false),
            ("**.a.test", "ba.test", false),
        ] {
            assert_eq!(host_matches(pattern, name), matches, "{pattern} {name}");
        }
    }
}
