//! `fumehood net check`: would a destination be reached under a policy, and if not, why.

use std::os::unix::ffi::OsStrExt as _;

use egress::denial::{Reason, To};
use egress::host::{Named, authority};
use egress::judge::{Connect, Granted, LookUp, Request, Rules};
use egress::wire::Denied;
use policy::value::NetMode;
use serde_json::json;

use super::args::{Flag, To as Where, Words, usage};
use super::ask::asked_layers;
use super::flags::POLICY;
use super::spec::{Call, Spec};
use crate::load;
use crate::ui::{Failure, Role};
use sandbox::fault::{Fault, show_bytes, show_text};

const METHOD: &[Flag] = &[Flag::new("method", Some("METHOD"), Where::Ours, "The method of the request; default GET")];

pub(super) const CHECK: Spec = Spec {
    path: &["net", "check"],
    about: "Judge a destination by the `net` of a policy; nothing is connected to",
    usage: "-p POLICY [FLAGS] [--method METHOD] URL|HOST:PORT",
    more: "Exit codes:\n  \
      0    it would be reached, if it leads to a public address or a rule says by `address` where it is; \
                by `net.proxy`, wherever the proxy resolves it to\n  \
      1    it would be refused; the reason is told, and what to do instead\n  \
      3    somebody would be asked\n  \
      125  a failure of fumehood itself, or bad usage\n  \
      126  the policy is wrong\n\n\
    Without a port: 443, or the one of the URL's scheme. With --json: {schema, decision, host, port, proxy, reason}.\n\
    Example: `fumehood net check --allow-host example.org https://example.org/index.html`",
    tables: &[POLICY, METHOD],
    words: Words::Mixed(1),
    hidden: false,
    run: check,
};

/// What is asked about.
struct Asked {
    to: To,
    port: u16,
    /// The path, where it is a URL.
    path: Option<String>,
}

/// What the rules say.
enum Said {
    /// By this proxy, where one resolves the name.
    Allowed(Option<String>),
    Asked,
    Refused(Reason),
}

fn check(call: &mut Call<'_>) -> Result<u8, Failure> {
    let word = call.parsed.words.first().map(|word| show_bytes(word.as_bytes())).unwrap_or_default();
    let asked = read(&word).ok_or_else(|| Failure::own(nothing(&word)))?;
    let method = call.parsed.value("method").map_or_else(|| "GET".to_owned(), |text| show_bytes(text.as_bytes()));
    let loaded = load::policy(&asked_layers(call, 126)?, call.environment)?;
    let closed = loaded.policy.net.mode != NetMode::Allow;
    let said = judge(&Rules::of(loaded.policy.net), &asked, &method);
    let denied = match &said {
        Said::Refused(reason) => Some(record(reason, &asked, closed)),
        Said::Allowed(_) | Said::Asked => None,
    };
    if call.json {
        let (decision, proxy) = match &said {
            Said::Allowed(proxy) => ("allow", proxy.as_deref()),
            Said::Asked => ("ask", None),
            Said::Refused(_) => ("deny", None),
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
        Said::Allowed(_) => 0,
        Said::Refused(_) => 1,
        Said::Asked => 3,
    })
}

/// A URL of HTTP, or a host with or without a port.
fn read(word: &str) -> Option<Asked> {
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
        Named::Name(name) => To::Name(name),
        Named::Address(address) => To::Address(address),
    };
    let path = path.split(['?', '#']).next().filter(|path| !path.is_empty()).unwrap_or("/");
    Some(Asked { to, port: found.port.unwrap_or(default), path: url.then(|| path.to_owned()) })
}

fn judge(rules: &Rules, asked: &Asked, method: &str) -> Said {
    let by_name;
    if let To::Name(name) = &asked.to {
        match rules.look_up(name) {
            LookUp::Denied(reason) => return Said::Refused(reason),
            LookUp::Ask => return Said::Asked,
            LookUp::Known { pinned: _ } => {}
        }
    }
    match rules.connect(&asked.to, asked.port) {
        Connect::Denied(reason) => return Said::Refused(reason),
        Connect::Ask => return Said::Asked,
        Connect::Way(way) => {
            by_name = way.pin.is_none() && matches!(asked.to, To::Name(_));
            // An address is asked for itself, and what a range allows may still lead inside.
            if let (To::Address(address), None) = (&asked.to, way.pin)
                && let Err(reason) = rules.outside(*address, asked.port)
            {
                return Said::Refused(reason);
            }
        }
    }
    let proxy = rules.net().proxy.as_ref().filter(|_| by_name).map(policy::value::Proxy::place);
    let Some(path) = &asked.path else { return Said::Allowed(proxy) };
    let host = match &asked.to {
        To::Address(address) if address.is_ipv6() => format!("[{address}]"),
        to @ (To::Name(_) | To::Address(_)) => to.to_string(),
    };
    let request = Request { method, authority: None, hosts: vec![&host], path, opens_websocket: false };
    match rules.request(&asked.to, asked.port, &request) {
        Ok(Granted::Allowed) => Said::Allowed(proxy),
        Ok(Granted::Ask) => Said::Asked,
        Err(reason) => Said::Refused(reason),
    }
}

/// The record of a refusal; without a network there is a simpler reason.
fn record(reason: &Reason, asked: &Asked, closed: bool) -> Denied {
    let record = reason.record(&asked.to, asked.port);
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

fn text(call: &Call<'_>, asked: &Asked, denied: Option<&Denied>, said: &Said) -> String {
    let paint = |role, text: &str| call.console.out.paint(role, text);
    let place = show_text(&format!("{}:{}", asked.to, asked.port));
    let Some(denied) = denied else {
        return match said {
            Said::Asked => format!("{} {place}\n", paint(Role::Weak, "asked:")),
            Said::Allowed(Some(proxy)) => {
                let by = format!("by the proxy {}, which resolves the name", show_text(proxy));
                format!("{} {place}, {by}\n", paint(Role::Good, "allowed:"))
            }
            Said::Allowed(None) | Said::Refused(_) => format!("{} {place}\n", paint(Role::Good, "allowed:")),
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
        if word.is_empty() { "no destination".to_owned() } else { format!("`{word}` is no destination") },
        "a decision is about one URL of HTTP, or one host and port".to_owned(),
        "`fumehood net check -p POLICY https://example.org/`, or example.org:5432".to_owned(),
    )
}
