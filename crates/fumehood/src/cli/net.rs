//! `fumehood net check`: would a destination be reached under a policy, and if not, why.

use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt as _;

use egress::denial::{Reason, To};
use egress::host::{AuthorityHost, authority};
use egress::http::framing;
use egress::judge::{Connect, Granted, LookUp, NotBuilt, Reading, Request, Rules, not_built};
use egress::wire::Denied;
use policy::diagnostic::behind_login;
use policy::value::{Net, NetMode, is_loopback_name};
use serde_json::json;

use super::args::{Flag, Positionals, To as Where, usage};
use super::ask::asked_layers;
use super::flags::POLICY;
use super::spec::{Call, Spec};
use crate::load;
use crate::ui::{Failure, REFUSED, Role};
use sandbox::fault::{Fault, show_bytes, show_text};

const REQUEST: &[Flag] = &[
    Flag::new("method", Some("METHOD"), Where::Ours, "The method of the request; default GET"),
    Flag::new("udp", None, Where::Ours, "Datagrams, not a connection: what a rule with `protocol = \"udp\"` has"),
];

pub(super) const CHECK: Spec = Spec {
    path: &["net", "check"],
    about: "Judge a destination by the `net` of a policy; nothing is connected to",
    usage: "-p POLICY [FLAGS] [--method METHOD] URL|HOST:PORT, or --udp HOST:PORT",
    more: "Exit codes:\n  \
      0    it would be reached, if it leads to a public address or a rule says by `address` where it is; \
                by `net.proxy`, wherever the proxy resolves it to\n  \
      1    it would be refused; the reason is told, and what to do instead\n  \
      3    somebody would be asked\n  \
      125  a failure of fumehood itself, or bad usage\n  \
      126  the policy is wrong, or has a rule that no run takes\n\n\
    Without a port: 443, or the one of the URL's scheme. With --json: {schema, decision, host, port, proxy, reason}.\n\
    Example: `fumehood net check --allow-host example.org https://example.org/index.html`",
    tables: &[POLICY, REQUEST],
    words: Positionals::Mixed(1),
    hidden: false,
    run: check,
};

/// What is asked about.
struct Destination {
    to: To,
    port: u16,
    /// Path and query, where it is a URL.
    target: Option<String>,
    /// It is one of `https`.
    tls: bool,
    /// Datagrams.
    udp: bool,
}

/// What the rules say.
enum NetVerdict {
    /// By this proxy, where one resolves the name.
    Allowed(Option<String>),
    Asked,
    Refused(Reason),
}

fn check(call: &mut Call<'_>) -> Result<u8, Failure> {
    let word = call.parsed.words.first().map(|word| show_bytes(word.as_bytes())).unwrap_or_default();
    let udp = call.parsed.has("udp");
    // A URL asks for HTTP over a connection.
    let asked = read(&word).filter(|asked| !udp || asked.target.is_none()).map(|asked| Destination { udp, ..asked });
    let asked = asked.ok_or_else(|| Failure::own(nothing(&word)))?;
    let method = call.parsed.value("method").map_or_else(|| "GET".to_owned(), |text| show_bytes(text.as_bytes()));
    let loaded = load::policy(&asked_layers(call, REFUSED)?, call.environment)?;
    let closed = loaded.policy.net.mode != NetMode::Allow;
    if !closed {
        held(&loaded.policy.net)?;
    }
    let rules = Rules::of(loaded.policy.net);
    let has_secret = loaded.policy.secrets.values().any(|secret| egress::secret::is_for(secret, &asked.to, asked.port));
    let said = if udp { datagrams(&rules, &asked) } else { judge((&rules, has_secret), &asked, &method) };
    let denied = match &said {
        NetVerdict::Refused(reason) => Some(record(reason, &asked, closed)),
        NetVerdict::Allowed(_) | NetVerdict::Asked => None,
    };
    if call.json {
        let (decision, proxy) = match &said {
            NetVerdict::Allowed(proxy) => ("allow", proxy.as_deref()),
            NetVerdict::Asked => ("ask", None),
            NetVerdict::Refused(_) => ("deny", None),
        };
        let reason = denied.as_ref().map(egress::denial::body);
        let host = asked.to.to_string();
        call.console.json(&json!({
            "schema": 1, "decision": decision, "host": host, "port": asked.port, "proxy": proxy, "reason": reason,
        }))?;
    } else {
        call.console.data(text(call, &asked, denied.as_ref(), &said).as_bytes())?;
    }
    Ok(match said {
        NetVerdict::Allowed(_) => 0,
        NetVerdict::Refused(_) => 1,
        NetVerdict::Asked => 3,
    })
}

/// A URL of HTTP, or a host with or without a port.
fn read(word: &str) -> Option<Destination> {
    let (rest, default, url) = match word.split_once("://") {
        Some(("http", rest)) => (rest, 80, true),
        Some(("https", rest)) => (rest, 443, true),
        Some(_) => return None,
        None => (word, 443, false),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (host, path) = rest.split_at_checked(end)?;
    let found = authority(host)?;
    let to = match found.host {
        AuthorityHost::Name(name) => To::Name(name),
        // The kernel connects to an IPv4 address in either form, and the broker is told the one.
        AuthorityHost::Address(address) => To::Address(address.to_canonical()),
    };
    // What stands behind `#` no client sends; and it sends a path where there is none.
    let sent = path.split('#').next().unwrap_or_default();
    let target = if sent.starts_with('/') { sent.to_owned() } else { format!("/{sent}") };
    let (port, tls) = (found.port.unwrap_or(default), default == 443);
    Some(Destination { to, port, target: url.then_some(target), tls, udp: false })
}

/// Refuses rules that the broker of each run would refuse: of them nothing can be said.
fn held(net: &Net) -> Result<(), Failure> {
    let fault = |part: NotBuilt| Fault {
        id: "net/not-built",
        what: part.rule.map_or_else(
            || format!("`{}` cannot be held", part.key),
            |rule| format!("the rule of `{}` for `{}` cannot be held", part.key, show_text(&rule)),
        ),
        place: "the policy".to_owned(),
        why: part.why.to_owned(),
        fix: part.fix.to_owned(),
    };
    let faults: Vec<Fault> = not_built(net).into_iter().map(fault).collect();
    if faults.is_empty() { Ok(()) } else { Err(Failure::Faults { code: REFUSED, faults }) }
}

/// Where no rule has a name, a person is asked if anybody hears the connection; else the kernel refuses it.
fn unnamed((rules, has_secret): (&Rules, bool), asked: &Destination, method: &str) -> NetVerdict {
    if !rules.is_asked_at(asked.port) {
        return NetVerdict::Refused(Reason::UnknownName);
    }
    let reading = match (has_secret, asked.port) {
        (true, _) => Reading::Requests,
        (false, 80 | 443) => Reading::Names,
        (false, _) => Reading::Nothing,
    };
    // Who is asked agrees to the host: what is no request to it is refused all the same.
    match head(reading, asked, method) {
        Some(Err(reason)) => NetVerdict::Refused(reason),
        Some(Ok((host, path))) => {
            let request = Request { method, authority: None, hosts: vec![&host], path: &path, opens_websocket: false };
            let meant = egress::judge::meant_for(&asked.to, asked.port, &request);
            meant.map_or_else(NetVerdict::Refused, |()| NetVerdict::Asked)
        }
        None => NetVerdict::Asked,
    }
}

/// The host and the path that a request says, where one is read at all: by the reader that the broker has.
fn head(reading: Reading, asked: &Destination, method: &str) -> Option<Result<(String, String), Reason>> {
    let is_read = match reading {
        Reading::Nothing => false,
        // TLS is passed on once its server name was read.
        Reading::Names => !asked.tls,
        Reading::Requests => true,
    };
    let target = asked.target.as_ref().filter(|_| is_read)?;
    let host = match &asked.to {
        To::Address(address) if address.is_ipv6() => format!("[{address}]"),
        to @ (To::Name(_) | To::Address(_)) => to.to_string(),
    };
    let path = framing::path_of((method, target), &host);
    Some(path.map(|path| (host, path)).map_err(|why| Reason::Malformed(why.to_owned())))
}

/// Whether it may really lead where a rule has it: an address is asked for itself, and what a range allows may still lead inside.
fn leads(rules: &Rules, asked: &Destination, pin: Option<SocketAddr>) -> Result<(), Reason> {
    match (pin, &asked.to) {
        (Some(pin), _) => rules.not_denied(pin.ip(), pin.port()),
        (None, To::Address(address)) => rules.outside(*address, asked.port),
        (None, To::Name(_)) => Ok(()),
    }
}

/// Nobody is asked about datagrams, and no proxy passes them on.
fn datagrams(rules: &Rules, asked: &Destination) -> NetVerdict {
    let may_be_looked_up = match &asked.to {
        To::Name(name) => match rules.look_up(name) {
            LookUp::Denied(reason) => Err(reason),
            LookUp::Ask | LookUp::Known { pinned: _ } => Ok(()),
        },
        To::Address(_) => Ok(()),
    };
    let judged =
        may_be_looked_up.and_then(|()| rules.datagrams(&asked.to, asked.port)).and_then(|pin| leads(rules, asked, pin));
    judged.map_or_else(NetVerdict::Refused, |()| NetVerdict::Allowed(None))
}

fn judge((rules, has_secret): (&Rules, bool), asked: &Destination, method: &str) -> NetVerdict {
    if let To::Name(name) = &asked.to {
        match rules.look_up(name) {
            LookUp::Denied(reason) => return NetVerdict::Refused(reason),
            LookUp::Ask => return unnamed((rules, has_secret), asked, method),
            LookUp::Known { pinned: _ } => {}
        }
    }
    let way = match rules.connect(&asked.to, asked.port) {
        Connect::Denied(reason) => return NetVerdict::Refused(reason),
        Connect::Ask => return unnamed((rules, has_secret), asked, method),
        Connect::Way(way) => way,
    };
    if let Err(reason) = leads(rules, asked, way.pin) {
        return NetVerdict::Refused(reason);
    }
    let by_name = way.pin.is_none() && matches!(asked.to, To::Name(_));
    let proxy = rules.net().proxy.as_ref().filter(|_| by_name).map(policy::value::Proxy::place);
    let (host, path) = match head(if has_secret { Reading::Requests } else { way.reading }, asked, method) {
        Some(Ok(head)) => head,
        Some(Err(reason)) => return NetVerdict::Refused(reason),
        None => return NetVerdict::Allowed(proxy),
    };
    let request = Request { method, authority: None, hosts: vec![&host], path: &path, opens_websocket: false };
    match rules.request(&asked.to, asked.port, &request) {
        Ok(Granted::Allowed) => NetVerdict::Allowed(proxy),
        Ok(Granted::Ask) => NetVerdict::Asked,
        Err(reason) => NetVerdict::Refused(reason),
    }
}

/// The record of a refusal; without a network there is a simpler reason.
fn record(reason: &Reason, asked: &Destination, closed: bool) -> Denied {
    let record_of = if asked.udp { Reason::record_of_datagram } else { Reason::record };
    let mut record = record_of(reason, &asked.to, asked.port);
    if is_own(&asked.to) {
        record.why = "inside this is the sandbox's own loopback, which no rule leads out of".to_owned();
        record.instead = "name a `host`, and by `address` where it really is".to_owned();
    }
    if !closed {
        return record;
    }
    Denied {
        id: "net.mode/closed".to_owned(),
        clause: "net.mode".to_owned(),
        why: "the policy has no network but, at most, the run's own `lo`".to_owned(),
        ..record
    }
}

/// Whether programs take it for their own loopback.
fn is_own(to: &To) -> bool {
    match to {
        To::Address(address) => address.is_loopback(),
        To::Name(name) => is_loopback_name(name),
    }
}

fn text(call: &Call<'_>, asked: &Destination, denied: Option<&Denied>, said: &NetVerdict) -> String {
    let paint = |role, text: &str| call.console.out.paint(role, text);
    let place = show_text(&asked.to.at(asked.port));
    let Some(denied) = denied else {
        return match said {
            NetVerdict::Asked => format!("{} {place}\n", paint(Role::Weak, "asked:")),
            NetVerdict::Allowed(Some(proxy)) => {
                let by = format!("by the proxy {}, which resolves the name", show_text(proxy));
                format!("{} {place}, {by}\n", paint(Role::Good, "allowed:"))
            }
            NetVerdict::Allowed(None) | NetVerdict::Refused(_) => {
                format!("{} {place}\n", paint(Role::Good, "allowed:"))
            }
        };
    };
    format!(
        "{} {}\n  {} {}\n  {} {}\n  {} {}\n",
        paint(Role::Bad, "refused:"),
        show_text(&denied.what),
        paint(Role::Aside, "why:"),
        show_text(&denied.why),
        paint(Role::Aside, "fix:"),
        show_text(&denied.instead),
        paint(Role::Aside, "id: "),
        denied.id
    )
}

fn nothing(word: &str) -> Fault {
    usage(
        "usage/no-destination",
        if word.is_empty() {
            "no destination".to_owned()
        } else {
            format!("`{}` is no destination", behind_login(word))
        },
        "a decision is about one URL of HTTP, or one host and port; with `--udp` about a host and port alone"
            .to_owned(),
        "`fumehood net check -p POLICY https://example.org/`, or example.org:5432".to_owned(),
    )
}
