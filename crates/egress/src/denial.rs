//! What a program, a report and the log are told of something that was stopped: one record, in one voice.

use std::net::IpAddr;

use serde_json::{Value, json};

use crate::wire::Denied;

/// Whom a connection is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum To {
    /// A name, in its one form.
    Name(String),
    /// An address that no name was given.
    Address(IpAddr),
}

impl To {
    /// It and a port, as flags and URLs write them: an IPv6 address in brackets, since without them the port would be its last group.
    #[must_use]
    pub fn at(&self, port: u16) -> String {
        match self {
            Self::Address(IpAddr::V6(address)) => format!("[{address}]:{port}"),
            Self::Address(IpAddr::V4(_)) | Self::Name(_) => format!("{self}:{port}"),
        }
    }
}

impl std::fmt::Display for To {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(address) => address.fmt(f),
        }
    }
}

/// Why something is stopped; each has an id of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No rule names the host.
    UnknownName,
    /// A look-up asks for no name of a host: no rule can have it.
    NoHostName,
    /// No rule holds the address.
    UnknownAddress,
    /// Rules name it, but not this port.
    Port,
    /// `net.deny` names it.
    Denied,
    /// The name leads to an address that is not public: what it is.
    Inside(&'static str),
    /// The name leads to one of this machine's own addresses.
    Own,
    /// TLS asks for no name, or another one.
    ServerName(Option<String>),
    /// TLS hides the name that it asks for.
    Encrypted,
    /// What should be TLS or HTTP is neither: what is wrong.
    Malformed(String),
    /// A request names another host, none or two.
    Host(String),
    /// The method is not among the rule's.
    Method(String),
    /// The path is not among the rule's, or has more than one reading.
    Path(String),
    /// A request asks for a WebSocket, of which its rule says nothing.
    WebSocket,
    /// More connections at once than `net.connections`, or than the broker holds.
    Connections(u32),
    /// `net.bytes` is used up.
    Bytes,
    /// More names than one run is given.
    Names,
    /// More names are asked for outside, in this time, than may be.
    Rate,
    /// Nobody can listen for it inside: why.
    Listener(String),
    /// A request to a host with secrets cannot be given them, or its answer cannot be searched for them.
    Secret {
        /// Why.
        why: &'static str,
        /// What to do instead.
        instead: &'static str,
    },
    /// A person said no, or nobody answered.
    Asked,
    /// The same about a request of this method, of which rules ask.
    AskedOf(String),
}

impl Reason {
    fn id(&self) -> &'static str {
        match self {
            Self::UnknownName | Self::NoHostName => "net.allow/unknown-name",
            Self::UnknownAddress => "net.allow/unknown-address",
            Self::Port => "net.allow/port",
            Self::Denied => "net.deny/denied",
            Self::Inside(_) | Self::Own => "net.allow/inside",
            Self::ServerName(_) => "net.allow/server-name",
            Self::Encrypted => "net.allow/encrypted-hello",
            Self::Malformed(_) => "net.allow/malformed",
            Self::Host(_) => "net.allow/host-header",
            Self::Method(_) => "net.allow/method",
            Self::Path(_) => "net.allow/path",
            Self::WebSocket => "net.allow/websocket",
            Self::Connections(_) => "net.connections/full",
            Self::Bytes => "net.bytes/used",
            Self::Names => "net.allow/names",
            Self::Rate => "net.dns/rate",
            Self::Listener(_) => "net.allow/listener",
            Self::Secret { .. } => "secrets/not-put",
            Self::Asked => "net.unknown/answered",
            Self::AskedOf(_) => "net.allow/answered",
        }
    }

    /// The clause that stands before the `/` of the id.
    fn clause(&self) -> &'static str {
        self.id().split('/').next().unwrap_or_default()
    }

    fn why(&self) -> String {
        match self {
            Self::UnknownName => "no rule of `net.allow` names it".to_owned(),
            Self::NoHostName => {
                "no rule can name it: names of hosts have letters, digits, `-`, `_` and the class IN".to_owned()
            }
            Self::UnknownAddress => {
                "no name was looked up for it, and no rule of `net.allow` has it as `cidr`".to_owned()
            }
            Self::Port => "the rules that name it have other ports".to_owned(),
            Self::Denied => "`net.deny` names it".to_owned(),
            Self::Inside(what) => format!("its address is {what}, and no rule says by `address` that it is there"),
            Self::Own => "its address is one of this machine's own".to_owned(),
            Self::ServerName(None) => "TLS asks for no server name (SNI), so nothing says that it is meant".to_owned(),
            Self::ServerName(Some(name)) => format!("TLS asks for another server name (SNI): {name}"),
            Self::Encrypted => "TLS hides the server name that it asks for (encrypted client hello)".to_owned(),
            Self::Malformed(why) => format!("what was sent cannot be judged: {why}"),
            Self::Host(why) => format!("the request does not say that it is meant: {why}"),
            Self::Method(method) => format!("no rule for it has the method {method}"),
            Self::Path(why) => format!("no rule for it has this path: {why}"),
            Self::WebSocket => {
                "a WebSocket is not judged, and no rule that judges this request has `websocket`".to_owned()
            }
            Self::Connections(most) => format!("{most} connections are open, and no more may be at once"),
            Self::Bytes => "the run has sent and received as much as `net.bytes` is".to_owned(),
            Self::Names => "the run has looked up more names than the broker keeps".to_owned(),
            Self::Rate => {
                "50 names a second may be asked for outside, and 100 at once: what is asked for is said there"
                    .to_owned()
            }
            Self::Listener(why) => format!("nobody can listen for it inside: {why}"),
            Self::Secret { why, .. } => format!("secrets of the policy are for this host, and {why}"),
            Self::Asked | Self::AskedOf(_) => {
                "no person has allowed it: the answer was no, none came in time, or it could not be shown".to_owned()
            }
        }
    }

    fn instead(&self, to: &To, port: u16) -> String {
        match self {
            Self::UnknownName | Self::Port if port > 0 => {
                format!("reach a host that the policy allows, or ask for `--allow-host {}`", to.at(port))
            }
            Self::UnknownName | Self::Port => {
                format!("reach a host that the policy allows, or ask for `--allow-host {to}`")
            }
            Self::NoHostName => "look up names of hosts".to_owned(),
            Self::UnknownAddress => "connect to a name, or ask for a rule with `cidr`".to_owned(),
            Self::Denied | Self::Asked | Self::AskedOf(_) => "do without it".to_owned(),
            Self::Inside(_) | Self::Own => "ask for a rule with `address`, if it is really meant".to_owned(),
            Self::ServerName(_) => "let the client send the name that it connects to".to_owned(),
            Self::Encrypted => "switch encrypted client hello off in the client".to_owned(),
            Self::Malformed(_) => "speak TLS or HTTP/1.1 on this port, as the standard has it".to_owned(),
            Self::Host(_) => "send one Host, of the host that the connection is for".to_owned(),
            Self::Method(_) | Self::Path(_) => "keep to the methods and paths of the rule, or ask for more".to_owned(),
            Self::WebSocket => "do without a WebSocket, or ask for `websocket = true` on the rule".to_owned(),
            Self::Connections(_) => "close connections before opening more".to_owned(),
            Self::Bytes => "work with what is there".to_owned(),
            Self::Names => "look up fewer names".to_owned(),
            Self::Rate => "look up fewer names at once, and come again".to_owned(),
            Self::Secret { instead, .. } => (*instead).to_owned(),
            Self::Listener(_) => {
                "leave the ports of its rules free, and look up fewer names that have high ports".to_owned()
            }
        }
    }

    /// The record of it, for a look-up where the port is 0.
    #[must_use]
    pub fn record(&self, to: &To, port: u16) -> Denied {
        let what = match (self, port) {
            (Self::Rate, _) => "looking up many names".to_owned(),
            (Self::Secret { .. }, _) => format!("a request to {}", to.at(port)),
            (Self::Method(method) | Self::AskedOf(method), _) => format!("a request {method} to {}", to.at(port)),
            (_, 0) => format!("looking up {to}"),
            (_, port) => format!("connecting to {}", to.at(port)),
        };
        Denied {
            id: self.id().to_owned(),
            clause: self.clause().to_owned(),
            what,
            why: self.why(),
            instead: self.instead(to, port),
            host: to.to_string(),
            port,
            count: 1,
        }
    }

    /// The record of a datagram that may not go, which nobody connects for.
    #[must_use]
    pub fn record_of_datagram(&self, to: &To, port: u16) -> Denied {
        let mut record = self.record(to, port);
        if let Some(place) = record.what.strip_prefix("connecting to ") {
            record.what = format!("sending a datagram to {place}");
        }
        if matches!(self, Self::UnknownName | Self::Port) {
            "ask for a rule of this host and port with `protocol = \"udp\"`".clone_into(&mut record.instead);
        }
        record
    }
}

/// The record as a program inside is told it: the body of a 403.
#[must_use]
pub fn body(denied: &Denied) -> Value {
    json!({
        "id": denied.id,
        "clause": denied.clause,
        "what": denied.what,
        "why": denied.why,
        "instead": denied.instead,
    })
}
