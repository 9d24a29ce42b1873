//! May it? Pure questions to the rules of a policy.
//!
//! A rule of `net.allow` adds to the others, whatever their order; `net.deny` takes away, and wins. Rules name hosts or ranges of
//! addresses: a name is judged by the rules of hosts, an address that no name was given by those of ranges alone.

use std::net::{IpAddr, SocketAddr};

use policy::value::{
    Net, NetDenial, NetMode, NetRule, Protocol, Target, TlsUse, Unknown, host_matches, is_loopback_name,
};
use serde_json::Value;

use crate::denial::{Reason, To};
use crate::hello::Hello;
use crate::host::{self, AuthorityHost};
use crate::http::path::Read;
use crate::{address, http, wire};

/// Ports on which a program speaks first, TLS or HTTP, and is read before it is passed on.
const WEB: [u16; 2] = [80, 443];
/// Ports from here on belong to programs inside too: each name has sockets of its own for them.
pub const FIRST_HIGH: u16 = 1024;
/// The port of names, which the broker itself answers.
pub const NAMES_PORT: u16 = 53;

/// Most connections at once, and as many as there may be where the policy names no number: each costs the broker two descriptors.
pub const MAX_CONNECTIONS: u32 = 1500;

/// The rules of one run.
#[derive(Clone, Debug)]
pub struct Rules {
    net: Net,
    digest: String,
}

/// What a look-up comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookUp {
    /// Rules name it. `pinned`: all of them say where it is, so that nobody outside need be asked.
    Known {
        /// Where it is need not be asked.
        pinned: bool,
    },
    /// No rule names it; a person is asked when it is connected to.
    Ask,
    /// It may not.
    Denied(Reason),
}

/// What a connection comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Connect {
    /// It may.
    Way(Route),
    /// A person is asked.
    Ask,
    /// It may not.
    Denied(Reason),
}

/// How an allowed connection is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Where it really is, if a rule says so.
    pub pin: Option<SocketAddr>,
    /// What is read of it.
    pub reading: Reading,
}

/// What is read of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Nothing: the address alone decides.
    Nothing,
    /// The program's first bytes: TLS, whose server name must be right and which is passed on; else requests of HTTP.
    Names,
    /// Requests of HTTP, judged by method and path; TLS is opened for it.
    Requests,
}

/// What a request comes to that rules have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granted {
    /// It may.
    Allowed,
    /// A person is asked: every rule that has it says so.
    Ask,
}

/// A request's head, as it is judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The method, as sent.
    pub method: &'a str,
    /// The authority of an absolute form, or `:authority`.
    pub authority: Option<&'a str>,
    /// Every `Host`.
    pub hosts: Vec<&'a str>,
    /// The path without its query; `*` of OPTIONS.
    pub path: &'a str,
    /// It asks to go on as a WebSocket, which nobody reads.
    pub opens_websocket: bool,
}

/// A part of `[net]` that the broker cannot hold yet, and so refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotBuilt {
    /// The key.
    pub key: &'static str,
    /// The rule, where it is one.
    pub rule: Option<String>,
    /// Why.
    pub why: &'static str,
    /// What to do.
    pub fix: &'static str,
}

/// What of these rules the broker cannot hold yet: who starts it refuses them before.
#[must_use]
pub fn not_built(net: &Net) -> Vec<NotBuilt> {
    let first = |fits: fn(&NetRule) -> bool| net.rules().find(|rule| fits(rule)).map(|rule| rule.to.to_string());
    let part = |key, rule: Option<String>, why, fix| NotBuilt { key, rule, why, fix };
    let whole = |there: bool, key, why, fix| there.then(|| part(key, None, why, fix));
    let rule = |rule: Option<String>, why, fix| rule.map(|rule| part("net.allow", Some(rule), why, fix));
    let parts = [
        whole(
            !net.programs.is_empty(),
            "net.programs",
            "which program a connection is of can change before anybody has looked",
            "leave it out, and run the program in a sandbox of its own with these hosts",
        ),
        net.denied_out_of_sight().map(|denial| {
            let why = "a proxy resolves names, so that no `cidr` can be denied to them";
            let fix = "deny names, let the proxy refuse these addresses, or leave out `net.proxy`";
            part("net.deny", Some(denial.to.to_string()), why, fix)
        }),
        whole(
            net.connections > Some(MAX_CONNECTIONS),
            "net.connections",
            "the broker holds 1500 at once, and no more",
            "write 1500, or less",
        ),
        rule(
            net.datagrams_by_proxy().map(|rule| rule.to.to_string()),
            "a proxy of HTTP passes no datagrams on",
            "say by `address` where it is, use TCP, or leave this rule out",
        ),
        rule(
            first(is_unreachable),
            "a `cidr` that is not public is reached by `address` alone, which a range of several addresses has not",
            "write a rule for each host that is meant, with its `address`: \
             { host = \"db.corp\", ports = [5432], address = \"10.1.2.3:5432\" }",
        ),
        rule(
            first(|rule| rule.ports.contains(&NAMES_PORT)),
            "port 53 is where the broker itself answers names",
            "leave 53 out of its `ports`: names are looked up without a rule",
        ),
    ];
    parts.into_iter().flatten().collect()
}

/// Whether a rule names addresses inside, and does not say by `address` that they are meant.
fn is_unreachable(rule: &NetRule) -> bool {
    match &rule.to {
        Target::Cidr(range) => rule.address.is_none() && address::is_special(*range),
        Target::Host(_) => false,
    }
}

impl Rules {
    /// The rules of a policy.
    #[must_use]
    pub fn of(net: Net) -> Self {
        let digest = wire::digest(&net.document());
        Self { net, digest }
    }

    /// The rules that the engine sent.
    ///
    /// # Errors
    /// What the policy's own reader refuses, or what is not built yet.
    pub fn read(net: &Value) -> Result<Self, String> {
        let read = Net::from_document(net).map_err(|mistakes| {
            mistakes.list.first().map_or_else(|| "no reason was said".to_owned(), |first| first.what.clone())
        })?;
        if let Some(part) = not_built(&read).first() {
            return Err(format!("`{}`: {}", part.key, part.why));
        }
        Ok(Self { net: read, digest: wire::digest(net) })
    }

    /// The policy's own values.
    #[must_use]
    pub fn net(&self) -> &Net {
        &self.net
    }

    /// [`wire::digest`] of what they were read from.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Whether a name (in its one form) may be looked up.
    #[must_use]
    pub fn look_up(&self, name: &str) -> LookUp {
        let to = To::Name(name.to_owned());
        let named: Vec<&NetRule> = self.naming(&to).collect();
        let everywhere = |denial: &NetDenial| {
            denial.ports.is_empty()
                || (!named.is_empty() && named.iter().all(|rule| covers(&denial.ports, &rule.ports)))
        };
        if self.net.deny.iter().any(|denial| names(&denial.to, &to) && everywhere(denial)) {
            return LookUp::Denied(Reason::Denied);
        }
        match (named.is_empty(), self.net.unknown) {
            (false, _) if self.net.mode == NetMode::Allow => {
                LookUp::Known { pinned: named.iter().all(|rule| rule.address.is_some()) }
            }
            (true, Unknown::Ask) if self.asks_about(name) => LookUp::Ask,
            (_, Unknown::Ask | Unknown::Deny) => LookUp::Denied(Reason::UnknownName),
        }
    }

    /// Whether a connection may be made, and how it is treated.
    #[must_use]
    pub fn connect(&self, to: &To, port: u16) -> Connect {
        if self.denies(to, port) {
            return Connect::Denied(Reason::Denied);
        }
        let fitting: Vec<&NetRule> = self.fitting(to, port).collect();
        if fitting.is_empty() || self.net.mode != NetMode::Allow {
            return self.unknown(to, Protocol::Tcp);
        }
        let pin = pinned(fitting.iter().copied());
        let reading = match to {
            To::Address(_) => Reading::Nothing,
            To::Name(_) if fitting.iter().all(|rule| rule.is_opened() && rule.tls == TlsUse::Auto) => Reading::Requests,
            To::Name(_) if WEB.contains(&port) => Reading::Names,
            To::Name(_) => Reading::Nothing,
        };
        Connect::Way(Route { pin, reading })
    }

    /// Whether datagrams may be sent there, and where that really is if a rule says so. Nobody is asked about them.
    ///
    /// # Errors
    /// They may not.
    pub fn datagrams(&self, to: &To, port: u16) -> Result<Option<SocketAddr>, Reason> {
        if self.denies(to, port) {
            return Err(Reason::Denied);
        }
        let fitting: Vec<&NetRule> =
            self.rules_of(to, Protocol::Udp).filter(|rule| rule.ports.contains(&port)).collect();
        if !fitting.is_empty() && self.net.mode == NetMode::Allow {
            return Ok(pinned(fitting.iter().copied()));
        }
        match self.unknown(to, Protocol::Udp) {
            Connect::Denied(reason) => Err(reason),
            Connect::Way(_) | Connect::Ask => Err(Reason::UnknownName),
        }
    }

    /// Whether a person may be asked about a name that no rule has. Not about loopback: programs take it for their own, no rule can
    /// name it, and a proxy would take it for its.
    fn asks_about(&self, name: &str) -> bool {
        self.net.mode == NetMode::Allow && !is_loopback_name(name)
    }

    fn unknown(&self, to: &To, protocol: Protocol) -> Connect {
        let known = self.rules_of(to, protocol).next().is_some();
        match (known, self.net.unknown, to) {
            (true, ..) => Connect::Denied(Reason::Port),
            (false, Unknown::Ask, To::Name(name)) if self.asks_about(name) => Connect::Ask,
            (false, _, To::Name(_)) => Connect::Denied(Reason::UnknownName),
            (false, _, To::Address(_)) => Connect::Denied(Reason::UnknownAddress),
        }
    }

    /// Whether a name may lead to this real address, which no rule pinned.
    ///
    /// # Errors
    /// It is not public, or `net.deny` has it.
    pub fn outside(&self, real: IpAddr, port: u16) -> Result<(), Reason> {
        if let Some(what) = address::special(real) {
            return Err(Reason::Inside(what));
        }
        self.not_denied(real, port)
    }

    /// Whether `net.deny` leaves a real address alone; what a rule pins is asked this alone.
    ///
    /// # Errors
    /// It does not.
    pub fn not_denied(&self, real: IpAddr, port: u16) -> Result<(), Reason> {
        if self.denies(&To::Address(real.to_canonical()), port) { Err(Reason::Denied) } else { Ok(()) }
    }

    fn denies(&self, to: &To, port: u16) -> bool {
        let is_meant = |ports: &[u16]| ports.is_empty() || ports.contains(&port);
        self.net.deny.iter().any(|denial| names(&denial.to, to) && is_meant(&denial.ports))
    }

    /// Whether a client hello asks for the name that the connection is for.
    ///
    /// # Errors
    /// It hides the name, has none, or another.
    pub fn hello(&self, name: &str, hello: &Hello) -> Result<(), Reason> {
        if hello.encrypted {
            return Err(Reason::Encrypted);
        }
        if hello.name.as_deref() == Some(name) { Ok(()) } else { Err(Reason::ServerName(hello.name.clone())) }
    }

    /// Whether a request may be passed on, on a connection to `to` and `port`.
    ///
    /// # Errors
    /// It is meant for another host, or no rule has its method and path.
    pub fn request(&self, to: &To, port: u16, request: &Request<'_>) -> Result<Granted, Reason> {
        meant_for(to, port, request)?;
        let fitting: Vec<&NetRule> = self.fitting(to, port).collect();
        let by_method = |rule: &&&NetRule| rule.methods.is_empty() || rule.methods.iter().any(|m| m == request.method);
        let methods: Vec<&&NetRule> = fitting.iter().filter(by_method).collect();
        if methods.is_empty() {
            return Err(Reason::Method(request.method.to_owned()));
        }
        let path = http::path::read(request.path);
        let having: Vec<&&NetRule> =
            methods.into_iter().filter(|rule| rule.paths.is_empty() || has_path(rule, &path)).collect();
        if having.is_empty() {
            return Err(Reason::Path(unfit(path, &fitting)));
        }
        let mut having =
            having.into_iter().filter(|rule| !request.opens_websocket || rule.opens_websockets()).peekable();
        if having.peek().is_none() {
            return Err(Reason::WebSocket);
        }
        // Rules add up: one that asks takes nothing from one that does not.
        Ok(if having.all(|rule| rule.asks) { Granted::Ask } else { Granted::Allowed })
    }

    /// Rules that name it, whatever the port and the protocol.
    fn naming<'a>(&'a self, to: &'a To) -> impl Iterator<Item = &'a NetRule> {
        self.net.rules().filter(|rule| names(&rule.to, to))
    }

    fn rules_of<'a>(&'a self, to: &'a To, protocol: Protocol) -> impl Iterator<Item = &'a NetRule> {
        self.naming(to).filter(move |rule| rule.protocol == protocol)
    }

    /// Rules of connections that name it with this port.
    fn fitting<'a>(&'a self, to: &'a To, port: u16) -> impl Iterator<Item = &'a NetRule> {
        self.rules_of(to, Protocol::Tcp).filter(move |rule| rule.ports.contains(&port))
    }

    /// Whether requests to it are judged by the same rules as by these others.
    #[must_use]
    pub fn judges_as(&self, others: &Self, to: &To, port: u16) -> bool {
        self.fitting(to, port).eq(others.fitting(to, port))
    }

    /// Each name that a rule of connections has without a wildcard, with each of its ports.
    pub fn exact(&self) -> impl Iterator<Item = (&str, u16)> {
        self.net.rules().filter(|rule| rule.protocol == Protocol::Tcp).flat_map(|rule| {
            let name = match &rule.to {
                Target::Host(host) if !host.starts_with('*') => Some(host),
                Target::Host(_) | Target::Cidr(_) => None,
            };
            name.into_iter().flat_map(|name| rule.ports.iter().map(|port| (name.as_str(), *port)))
        })
    }

    /// Whether a connection of a name that no rule has is heard at a port, so that a person can be asked.
    #[must_use]
    pub fn is_asked_at(&self, port: u16) -> bool {
        self.net.asked_ports().contains(&port)
    }

    /// The ports of rules of connections that name it.
    #[must_use]
    pub fn ports(&self, to: &To) -> Vec<u16> {
        let mut ports: Vec<u16> =
            self.rules_of(to, Protocol::Tcp).flat_map(|rule| rule.ports.iter().copied()).collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }
}

/// Where rules say that a place really is: a name's own rule before one of a pattern, and the longer pattern before the shorter.
fn pinned<'a>(rules: impl Iterator<Item = &'a NetRule>) -> Option<SocketAddr> {
    let near = |rule: &&NetRule| match &rule.to {
        Target::Host(host) => (!host.starts_with('*'), host.trim_start_matches('*').len(), !host.starts_with("**")),
        Target::Cidr(_) => (true, 0, true),
    };
    rules.filter(|rule| rule.address.is_some()).max_by_key(near).and_then(|rule| rule.address)
}

/// Whether a rule has a path, in every reading that it may have.
fn has_path(rule: &NetRule, path: &Result<Read, &'static str>) -> bool {
    path.as_ref().is_ok_and(|path| path.is_of(&rule.paths, rule.encoded_slashes))
}

/// Why no rule has a path: what is wrong with it, else the path itself.
fn unfit(path: Result<Read, &'static str>, fitting: &[&NetRule]) -> String {
    match path {
        Err(why) => format!("it has {why}"),
        Ok(Read { kept: Some(_), .. }) if fitting.iter().all(|rule| !rule.encoded_slashes) => {
            "it has an encoded slash".to_owned()
        }
        Ok(Read { decoded, .. }) => decoded,
    }
}

fn names(target: &Target, to: &To) -> bool {
    match (target, to) {
        (Target::Host(pattern), To::Name(name)) => host_matches(pattern, name),
        (Target::Cidr(cidr), To::Address(address)) => cidr.contains(*address),
        (Target::Host(_), To::Address(_)) | (Target::Cidr(_), To::Name(_)) => false,
    }
}

fn covers(denied: &[u16], ports: &[u16]) -> bool {
    ports.iter().all(|port| denied.contains(port))
}

/// Every way in which a request names a host must name this one, and it must name one.
///
/// # Errors
/// It names another, none, or asks for a tunnel.
pub fn meant_for(to: &To, port: u16, request: &Request<'_>) -> Result<(), Reason> {
    let not = |why: String| Err(Reason::Host(why));
    if request.method.eq_ignore_ascii_case("CONNECT") {
        return not("CONNECT asks for a tunnel".to_owned());
    }
    if request.hosts.len() > 1 {
        return not("it has more than one Host".to_owned());
    }
    let written: Vec<&str> = request.hosts.iter().copied().chain(request.authority).collect();
    if written.is_empty() {
        return not("it has no Host".to_owned());
    }
    for text in written {
        let Some(authority) = host::authority(text) else { return not(format!("{text:?} is no host")) };
        let same = match (&authority.host, to) {
            (AuthorityHost::Name(name), To::Name(meant)) => name == meant,
            (AuthorityHost::Address(address), To::Address(meant)) => address == meant,
            (AuthorityHost::Name(_), To::Address(_)) | (AuthorityHost::Address(_), To::Name(_)) => false,
        };
        if !same || authority.port.is_some_and(|other| other != port) {
            return not(format!("it names {text}"));
        }
    }
    Ok(())
}
