//! Entries of `net.allow` and `net.deny`.

use std::net::{IpAddr, SocketAddr};

use super::{Reader, fault};
use crate::diagnostic::{behind_login, quote};
use crate::document::{Node, Value};
use crate::net::WEB_PORTS;
use crate::value::{Cidr, NetDenial, NetRule, Protocol, Target, TlsUse};

const RULE: &[&str] = &[
    "host",
    "cidr",
    "ports",
    "protocol",
    "methods",
    "paths",
    "address",
    "tls",
    "decision",
    "encoded_slashes",
    "websocket",
];
/// Methods that no rule can allow, why, and what to do.
const NEVER: &[(&str, &str, &str)] = &[
    (
        "CONNECT",
        "a tunnel is refused whatever the rules say: what goes through it could not be judged",
        "leave it out; a host that is reached by TLS needs a rule with its name alone",
    ),
    ("PRI", "it is how a connection of HTTP/2 begins, and no request", "leave it out; HTTP/2 needs nothing of a rule"),
];
const DENIAL: &[&str] = &["host", "cidr", "ports"];

/// 1 to 65535, in digits.
pub(super) fn port_number(text: &str) -> Option<u16> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u16>().ok())?.filter(|port| *port > 0)
}

impl Reader<'_> {
    pub(super) fn rule(&mut self, path: &str, node: &Node) -> Option<NetRule> {
        let Value::Table(_) = &node.value else {
            let (to, port) = self.place(path, node)?;
            let ports = port.map_or_else(|| WEB_PORTS.to_vec(), |port| vec![port]);
            return Some(plain(to, ports));
        };
        let table = self.table(path, node, RULE)?;
        let at = |key: &str| format!("{path}.{key}");
        let mut rule = plain(self.target(path, table)?, self.ports(&at("ports"), table)?);
        if let Some(node) = table.get("protocol") {
            rule.protocol = self.keyword(&at("protocol"), node, Protocol::WORDS)?;
        }
        if let Some(node) = table.get("methods") {
            rule.methods = self.methods(&at("methods"), node)?;
        }
        if let Some(node) = table.get("paths") {
            rule.paths = self.url_paths(&at("paths"), node)?;
        }
        if let Some(node) = table.get("address") {
            rule.address = Some(self.address(&at("address"), node)?);
        }
        if let Some(node) = table.get("tls") {
            rule.tls = self.keyword(&at("tls"), node, TlsUse::WORDS)?;
        }
        if let Some(node) = table.get("decision") {
            rule.asks = self.keyword(&at("decision"), node, &[("allow", false), ("ask", true)])?;
        }
        for (key, said) in [("encoded_slashes", &mut rule.encoded_slashes), ("websocket", &mut rule.websocket)] {
            if let Some(node) = table.get(key) {
                *said = self.truth(&at(key), node)?;
            }
        }
        self.fits(path, table, &rule)?;
        if rule.ports.is_empty() {
            rule.ports.extend(WEB_PORTS);
        }
        Some(rule)
    }

    /// What the keys of a rule say of each other.
    fn fits(&mut self, path: &str, table: &Node, rule: &NetRule) -> Option<()> {
        let opened = rule.is_opened();
        let of_range = matches!(&rule.to, Target::Cidr(cidr) if !cidr.is_single());
        let mut wrong = |what: &str, why: &str, fix: &str| {
            self.note(path, table.place, fault("net/rule", what, why, fix));
            None
        };
        match rule {
            NetRule { tls: TlsUse::Pass, .. } if opened => wrong(
                "a rule has `tls = \"pass\"` and `methods` or `paths`",
                "what is passed is not read, so neither can be held",
                "leave out `tls`, or `methods` and `paths`",
            ),
            NetRule { protocol: Protocol::Udp, .. } if opened || rule.tls == TlsUse::Pass => wrong(
                "a rule has `protocol = \"udp\"` and `methods`, `paths` or `tls`",
                "these are of HTTP and TLS over TCP",
                "leave them out, or take protocol = \"tcp\"",
            ),
            NetRule { protocol: Protocol::Udp, .. } if rule.ports.is_empty() => wrong(
                "a rule has `protocol = \"udp\"` and no `ports`",
                "the ports of the web are meant for TCP",
                "name the ports, e.g. ports = [123]",
            ),
            NetRule { asks: true, .. } if !opened => wrong(
                "a rule has `decision = \"ask\"` and neither `methods` nor `paths`",
                "a person is asked about one request, and without them none is read",
                "name them; about hosts asks `net.unknown = \"ask\"`",
            ),
            NetRule { encoded_slashes: true, paths, .. } if paths.is_empty() => wrong(
                "a rule has `encoded_slashes` and no `paths`",
                "they are refused in paths that are judged, and without `paths` none is",
                "leave it out, or name the paths in both readings, e.g. paths = [\"/@*\", \"/@*/*\"]",
            ),
            NetRule { websocket: true, methods, .. } if !opened || !(methods.is_empty() || is_get(methods)) => wrong(
                "a rule has `websocket` and neither `paths` nor the method GET",
                "a WebSocket is opened by a GET; a rule that judges no requests allows it anyway",
                "leave it out, or name methods = [\"GET\"] or `paths`",
            ),
            NetRule { to: Target::Cidr(_), .. } if opened => wrong(
                "a rule has `cidr` and `methods` or `paths`",
                "requests are judged by the name that they are for, and a range of addresses has none",
                "name the `host`, or leave out `methods` and `paths`",
            ),
            NetRule { address: Some(_), .. } if of_range => wrong(
                "a rule has `address` and a `cidr` of several addresses",
                "all of them would lead to one place",
                "write a `cidr` of one address, e.g. 192.0.2.7/32",
            ),
            NetRule { .. } => Some(()),
        }
    }

    pub(super) fn denials(&mut self, path: &str, node: &Node) -> Option<Vec<NetDenial>> {
        let items = self.items(path, node)?;
        Some(items.iter().filter_map(|item| self.denial(path, item)).collect())
    }

    fn denial(&mut self, path: &str, node: &Node) -> Option<NetDenial> {
        let Value::Table(_) = &node.value else {
            let (to, port) = self.place(path, node)?;
            return Some(NetDenial { to, ports: Vec::from_iter(port) });
        };
        let table = self.table(path, node, DENIAL)?;
        Some(NetDenial { to: self.target(path, table)?, ports: self.ports(&format!("{path}.ports"), table)? })
    }

    /// `HOST`, `HOST:PORT`, an address, or a range of them.
    fn place(&mut self, path: &str, node: &Node) -> Option<(Target, Option<u16>)> {
        let text = self.text(path, node)?;
        if let Some((cidr, _)) = Cidr::parse(&text) {
            return self.range(path, node, &text).map(|()| (Target::Cidr(cidr), None));
        }
        if text.contains('@') {
            return self.host(path, node, &text).map(|host| (Target::Host(host), None));
        }
        let in_brackets = text.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let (host, port) = match (in_brackets, text.rsplit_once(':')) {
            (Some((host, rest)), _) => (host, rest.strip_prefix(':')),
            // The address of a page has a colon too, and is told to be one.
            (None, Some((host, port))) if !host.contains(':') && !port.starts_with("//") => (host, Some(port)),
            (None, _) => (text.as_str(), None),
        };
        let port = match port.map(port_number) {
            None => None,
            Some(Some(port)) => Some(port),
            Some(None) => {
                let what = format!("what follows `:` in {} is no port", quote(&text));
                let fix = format!("write {host}:443");
                self.note(path, node.place, fault("value/port", what, "ports are 1 to 65535", fix));
                return None;
            }
        };
        if let Ok(address) = host.parse::<IpAddr>() {
            let single = Cidr::parse(&address.to_string())?.0;
            return self.range(path, node, host).map(|()| (Target::Cidr(single), port));
        }
        Some((Target::Host(self.host(path, node, host)?), port))
    }

    /// `host` or `cidr`, one of them.
    fn target(&mut self, path: &str, table: &Node) -> Option<Target> {
        match (table.get("host"), table.get("cidr")) {
            (Some(host), None) => {
                let text = self.text(path, host)?;
                self.host(path, host, &text).map(Target::Host)
            }
            (None, Some(node)) => {
                let text = self.text(path, node)?;
                self.range(path, node, &text)?;
                Cidr::parse(&text).map(|(cidr, _)| Target::Cidr(cidr))
            }
            (Some(_), Some(second)) => {
                let what = format!("an entry of `{path}` has both `host` and `cidr`");
                self.note(
                    path,
                    second.place,
                    fault("value/incomplete", what, "each names whom it means", "make it two"),
                );
                None
            }
            (None, None) => {
                let what = format!("an entry of `{path}` has no `host` and no `cidr`");
                let fix = "write { host = \"example.org\", ports = [443] }";
                self.note(path, table.place, fault("value/incomplete", what, "it must name one", fix));
                None
            }
        }
    }

    /// Notes what is wrong with a range of addresses.
    fn range(&mut self, path: &str, node: &Node, text: &str) -> Option<()> {
        let what = format!("`{path}` has the range {}", quote(&behind_login(text)));
        let (why, fix) = match Cidr::parse(text) {
            None => ("it is no address and no range of them", "write it as in 192.0.2.0/24".to_owned()),
            Some((cidr, written)) if cidr.first != written => {
                ("it has bits behind its length, which mean nothing", format!("write {cidr}"))
            }
            Some((cidr, _)) if unmapped(cidr).is_some() => (
                "the kernel connects to these addresses by IPv4, whichever way a program writes them",
                unmapped(cidr).map_or_else(String::new, |plain| format!("write {plain}")),
            ),
            Some((cidr, _)) if is_own(cidr) => (
                "these addresses are the sandbox's own inside",
                "name a `host`, and by `address` where it really is".to_owned(),
            ),
            Some(_) => return Some(()),
        };
        self.note(path, node.place, fault("value/cidr", what, why, fix));
        None
    }

    /// The items of a list that narrows: an empty one would fit nothing, and means what nobody can know.
    fn named<'n>(&mut self, path: &str, node: &'n Node) -> Option<&'n [Node]> {
        let items = self.items(path, node)?;
        if items.is_empty() {
            let (what, why) =
                (format!("`{path}` is an empty list"), "nothing would fit it, and a rule for nothing allows nothing");
            let fix = "leave it out, or name what is meant";
            self.note(path, node.place, fault("value/incomplete", what, why, fix));
            return None;
        }
        Some(items)
    }

    pub(super) fn ports(&mut self, path: &str, table: &Node) -> Option<Vec<u16>> {
        let Some(node) = table.get("ports") else { return Some(Vec::new()) };
        let mut ports = Vec::new();
        for item in self.named(path, node)? {
            ports.push(self.whole(path, item, 1, 65_535).and_then(|port| u16::try_from(port).ok())?);
        }
        ports.sort_unstable();
        ports.dedup();
        Some(ports)
    }

    pub(super) fn methods(&mut self, path: &str, node: &Node) -> Option<Vec<String>> {
        let mut list = Vec::new();
        for item in self.named(path, node)? {
            let text = self.text(path, item)?;
            if let Some((_, why, fix)) = NEVER.iter().find(|(method, _, _)| *method == text) {
                let what = format!("`{path}` has {}", quote(&text));
                self.note(path, item.place, fault("value/method", what, *why, *fix));
                return None;
            }
            if text.is_empty() || text.len() > 32 || !text.chars().all(|c| c.is_ascii_uppercase() || c == '-') {
                let what = format!("{} is not a method", quote(&text));
                let fix = format!("write {}", text.to_ascii_uppercase());
                self.note(
                    path,
                    item.place,
                    fault("value/method", what, "methods are in capitals, as on the wire", fix),
                );
                return None;
            }
            list.push(text);
        }
        list.sort();
        list.dedup();
        Some(list)
    }

    /// Globs of the paths of requests: `*` within a name, `**` any number of names, all else as it is after decoding.
    pub(super) fn url_paths(&mut self, path: &str, node: &Node) -> Option<Vec<String>> {
        let mut list = Vec::new();
        for item in self.named(path, node)? {
            let text = self.text(path, item)?;
            if let Some((why, fix)) = unfit(&text) {
                let what = format!("`{path}` has {}", quote(&text));
                self.note(path, item.place, fault("value/url-path", what, why, fix));
                return None;
            }
            list.push(text);
        }
        Some(list)
    }

    fn address(&mut self, path: &str, node: &Node) -> Option<SocketAddr> {
        let text = self.text(path, node)?;
        let address = text.parse::<SocketAddr>().ok().filter(|address| address.port() > 0);
        if address.is_none() {
            let what = format!("`{path}` is {}", quote(&behind_login(&text)));
            let fix = "write it as in address = \"10.1.2.3:5432\" or \"[2001:db8::1]:5432\"";
            self.note(path, node.place, fault("value/address", what, "it is an address and a port", fix));
        }
        address
    }
}

/// A rule of which nothing more is said.
const fn plain(to: Target, ports: Vec<u16>) -> NetRule {
    NetRule {
        to,
        ports,
        protocol: Protocol::Tcp,
        methods: Vec::new(),
        paths: Vec::new(),
        address: None,
        tls: TlsUse::Auto,
        asks: false,
        encoded_slashes: false,
        websocket: false,
    }
}

fn is_get(methods: &[String]) -> bool {
    methods.iter().any(|method| method == "GET")
}

/// Whether a range lies in what the sandbox itself has: its loopback.
fn is_own(cidr: Cidr) -> bool {
    match cidr.first {
        IpAddr::V4(first) => first.is_loopback() && cidr.length >= 8,
        IpAddr::V6(first) => first.is_loopback() && cidr.is_single(),
    }
}

/// The range of IPv4 that one of IPv6 is, where all of it is mapped (`::ffff:0:0/96`).
fn unmapped(cidr: Cidr) -> Option<Cidr> {
    let IpAddr::V6(first) = cidr.first else { return None };
    let length = cidr.length.checked_sub(96)?;
    first.to_ipv4_mapped().map(|first| Cidr::of(IpAddr::V4(first), length))
}

/// Why a glob of paths would match nothing, or not what is meant.
fn unfit(text: &str) -> Option<(&'static str, String)> {
    if !text.starts_with('/') {
        return Some(("paths of requests start with `/`", format!("write /{text}")));
    }
    if text.contains(['?', '#', '%', '\\', '[', ']', '{', '}', ';']) || text.chars().any(char::is_control) {
        let why = "a path is judged after decoding, without its query, and only `*` and `**` stand for others";
        return Some((why, "write the characters themselves, and `*` for what cannot be written".to_owned()));
    }
    let mut names = text.split('/').skip(1).peekable();
    while let Some(name) = names.next() {
        if matches!(name, "." | "..") || (name.is_empty() && names.peek().is_some()) {
            return Some(("`.`, `..` and empty names are resolved or refused before", "leave them out".to_owned()));
        }
        if name.contains("**") && name != "**" {
            return Some(("`**` stands for whole names", "write `*`, or `/**/`".to_owned()));
        }
    }
    None
}
