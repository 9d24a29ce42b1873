//! URLs: characters first, then one parser, then scheme, host, port and address; what passes is the serialised form.
//!
//! Two parsers find two hosts in one text when it has a backslash, a tab, a second `@`, an encoded dot, a character that IDNA
//! drops, or a number in another base. Such text is refused before anybody parses it, so that the tool's own parser
//! has nothing left to disagree about.

use std::net::IpAddr;

use ::url::{Host, Url};
use policy::diagnostic::quote;
use policy::guards::UrlGuard;
use serde_json::Value as Json;

use super::address::judge_address;
use super::{Flaws, Passed, text};
use crate::blocked::Blocked;

const ID: &str = "tools.guard/url";
/// Servers and proxies cut or refuse longer ones.
const MAX_LENGTH: usize = 8192;

/// `kind = "url"`, compiled; whoever dials asks it again for each redirect and each address.
#[derive(Clone, Debug)]
pub struct UrlJudge {
    schemes: Vec<String>,
    hosts: Vec<Allowed>,
    ports: Vec<u16>,
    private: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Allowed {
    /// Any host of the public network.
    Public,
    /// This name.
    Name(String),
    /// Names below this one, not itself.
    Below(String),
    /// This address.
    Address(IpAddr),
}

impl UrlJudge {
    pub(crate) fn new(guard: &UrlGuard, flaws: &mut Flaws<'_>) -> Option<Self> {
        let mut hosts = Vec::new();
        for host in &guard.hosts {
            match allowed(&host.value, guard.private) {
                Ok(host) => hosts.push(host),
                Err((why, fix)) => {
                    let what = format!("{} cannot be allowed as a host", quote(&host.value));
                    flaws.note(host.at, "value/host", what, why, fix);
                }
            }
        }
        let whole = hosts.len() == guard.hosts.len();
        let (schemes, ports) = (guard.schemes.clone(), guard.ports.clone());
        whole.then_some(Self { schemes, hosts, ports, private: guard.private })
    }

    pub(crate) fn pass(&self, value: &Json) -> Result<Passed, Blocked> {
        let given = text(value, ID, "a URL")?;
        self.judge(given).map(|url| Json::String(url.into()))
    }

    /// Judges the text of a URL; the answer is what may be requested, and no other text.
    ///
    /// # Errors
    /// Why it may not.
    pub fn judge(&self, given: &str) -> Result<Url, Blocked> {
        let written = authority(given).map_err(|why| self.blocked(given, why))?;
        let url = Url::parse(given).map_err(|error| self.blocked(given, &format!("it is no URL: {error}")))?;
        if !self.schemes.iter().any(|scheme| scheme == url.scheme()) {
            return Err(self.blocked(given, &format!("its scheme is {}", quote(url.scheme()))));
        }
        if url.username() != "" || url.password().is_some() {
            return Err(self.blocked(given, "it carries a user name"));
        }
        let host = url.host().ok_or_else(|| self.blocked(given, "it has no host"))?;
        if !agrees(&host, written.host) {
            let why = format!("its host is written so that it reads as {}", quote(&host.to_string()));
            return Err(self.blocked(given, &why));
        }
        self.judge_host(given, &host)?;
        let port = url.port_or_known_default().unwrap_or_default();
        let fits = if self.ports.is_empty() { url.port().is_none() } else { self.ports.contains(&port) };
        if !fits {
            return Err(self.blocked(given, &format!("its port is {port}")));
        }
        // The serialised form must mean the same to the next parser.
        match Url::parse(url.as_str()) {
            Ok(again) if again == url && again.host() == url.host() && url.as_str().len() <= MAX_LENGTH => Ok(url),
            Ok(_) | Err(_) => Err(self.blocked(given, "it cannot be written in one way")),
        }
    }

    /// Judges where a server sends its caller, before anything is sent there.
    ///
    /// # Errors
    /// Why it may not be followed. A step from encryption to none never may.
    pub fn judge_redirect(&self, from: &Url, location: &str) -> Result<Url, Blocked> {
        characters(location).map_err(|why| self.blocked(location, why))?;
        let to = from.join(location).map_err(|error| self.blocked(location, &format!("it is no URL: {error}")))?;
        let to = self.judge(to.as_str())?;
        if matches!((from.scheme(), to.scheme()), ("https" | "wss", "http" | "ws" | "ftp")) {
            return Err(self.blocked(to.as_str(), "the redirect gives up encryption"));
        }
        Ok(to)
    }

    /// Judges the address that is about to be dialled for a name that passed: a name may resolve to another address
    /// each time it is looked up.
    ///
    /// # Errors
    /// What kind of address it is.
    pub fn judge_dial(&self, address: IpAddr) -> Result<(), Blocked> {
        if self.private {
            return Ok(());
        }
        judge_address(address).map_err(|fault| {
            let what = format!("the name resolves to {}", quote(&address.to_string()));
            Blocked::new("tools.guard/address", what, fault.to_string(), "a host of the public network")
        })
    }

    fn judge_host(&self, given: &str, host: &Host<&str>) -> Result<(), Blocked> {
        let address = match host {
            Host::Ipv4(address) => Some(IpAddr::V4(*address)),
            Host::Ipv6(address) => Some(IpAddr::V6(*address)),
            Host::Domain(_) => None,
        };
        if let (Some(address), false) = (address, self.private)
            && let Err(fault) = judge_address(address)
        {
            return Err(self.blocked(given, &fault.to_string()));
        }
        if let (Host::Domain(name), false) = (host, self.private)
            && let Some(what) = inside(name)
        {
            return Err(self.blocked(given, &format!("its host is {what}")));
        }
        let listed = self.hosts.iter().any(|allowed| match (allowed, host, address) {
            (Allowed::Name(name), Host::Domain(host), _) => name == host,
            (Allowed::Below(name), Host::Domain(host), _) => {
                host.strip_suffix(name.as_str()).is_some_and(|rest| rest.ends_with('.') && rest.len() > 1)
            }
            (Allowed::Address(known), _, Some(address)) => *known == address,
            // Also where private addresses may be named: then those that are listed.
            (Allowed::Public, Host::Domain(host), _) => is_public(host),
            (Allowed::Public, _, Some(address)) => judge_address(address).is_ok(),
            (Allowed::Public | Allowed::Name(_) | Allowed::Below(_) | Allowed::Address(_), _, _) => false,
        });
        if listed { Ok(()) } else { Err(self.blocked(given, &format!("its host is {}", quote(&host.to_string())))) }
    }

    fn blocked(&self, given: &str, why: &str) -> Blocked {
        let hosts: Vec<String> = self.hosts.iter().take(8).map(|host| quote(&host.to_string())).collect();
        let more = if self.hosts.len() > 8 { ", ..." } else { "" };
        let ports: Vec<String> = self.ports.iter().map(u16::to_string).collect();
        let ports = if ports.is_empty() { String::new() } else { format!(", port {}", ports.join(" or ")) };
        let instead = format!("{}://HOST/..., HOST being {}{more}{ports}", self.schemes.join("|"), hosts.join(", "));
        Blocked::new(ID, format!("{} does not pass as a URL", quote(given)), why, instead)
    }
}

impl std::fmt::Display for Allowed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Public => f.write_str("public"),
            Self::Name(name) => f.write_str(name),
            Self::Below(name) => write!(f, "*.{name}"),
            Self::Address(address) => write!(f, "{address}"),
        }
    }
}

type Unfit = (String, String);

fn allowed(text: &str, private: bool) -> Result<Allowed, Unfit> {
    if text == "public" {
        return Ok(Allowed::Public);
    }
    let address = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text).parse::<IpAddr>();
    if let Ok(address) = address {
        return match judge_address(address) {
            Err(fault) if !private => Err((fault.to_string(), "add private = true, if it is meant".to_owned())),
            Ok(()) | Err(_) => Ok(Allowed::Address(address)),
        };
    }
    let (below, plain) = text.strip_prefix("*.").map_or((false, text), |rest| (true, rest));
    let name = ascii_name(plain).map_err(|why| (why.to_owned(), "write example.com or *.example.com".to_owned()))?;
    if name.rsplit('.').next().is_some_and(numeric) {
        return Err(("it would be read as an address".to_owned(), "write an address as 192.0.2.1".to_owned()));
    }
    if let (Some(what), false) = (inside(&name), private) {
        return Err((format!("it is {what}"), "add private = true, if it is meant".to_owned()));
    }
    Ok(if below { Allowed::Below(name) } else { Allowed::Name(name) })
}

/// Names that mean somebody's inside wherever they are looked up: this host, and the metadata services of clouds.
fn inside(name: &str) -> Option<&'static str> {
    const METADATA: &[&str] = &[
        "instance-data",
        "instance-data.ec2",
        "instance-data.ec2.internal",
        "metadata",
        "metadata.azure.internal",
        "metadata.goog",
        "metadata.google.internal",
        "metadata.oraclecloud.com",
        "metadata.packet.net",
        "metadata.platformequinix.com",
        "metadata.tencentyun.com",
    ];
    if name == "localhost" || name.ends_with(".localhost") || name == "localhost.localdomain" {
        return Some("this host itself");
    }
    METADATA.contains(&name).then_some("a cloud's metadata service")
}

/// Whether a name is one of the public network: of several labels, below no domain that networks keep for themselves.
fn is_public(name: &str) -> bool {
    // IANA's special-use names (RFC 6761, 6762, 7686, 8375, 9476), ICANN's and RFC 6762's names of private networks, and what
    // resolvers of clusters and clouds complete by themselves: `kubernetes.default`, `kubernetes.default.svc`, `x.ec2`.
    const OWN: &[&str] = &[
        "alt",
        "arpa",
        "consul",
        "corp",
        "default",
        "docker",
        "domain",
        "ec2",
        "example",
        "home",
        "internal",
        "intranet",
        "invalid",
        "kube-system",
        "lan",
        "local",
        "localdomain",
        "localhost",
        "localnet",
        "mail",
        "onion",
        "pod",
        "private",
        "svc",
        "test",
        "workgroup",
    ];
    inside(name).is_none() && name.rsplit_once('.').is_some_and(|(_, top)| !OWN.contains(&top))
}

/// What stands between `//` and the path, as it is written.
struct Authority<'a> {
    host: &'a str,
}

fn characters(given: &str) -> Result<(), &'static str> {
    if given.len() > MAX_LENGTH {
        return Err("it is longer than 8192 bytes");
    }
    if given.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err("it has a blank or a control character, which some programs drop and others do not");
    }
    if given.contains('\\') {
        return Err("it has a backslash, which some programs read as `/`");
    }
    Ok(())
}

fn authority(given: &str) -> Result<Authority<'_>, &'static str> {
    characters(given)?;
    let Some((scheme, rest)) = given.split_once("://") else { return Err("it does not begin with a scheme and `://`") };
    if !scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c)) || scheme.is_empty() {
        return Err("it does not begin with a scheme and `://`");
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err("it has an `@` before the path: programs disagree on which side is the host");
    }
    if authority.contains('%') {
        return Err("it has a `%` in its host, which some programs decode");
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(inner) => inner.split_once(']').ok_or("it has a `[` without `]`")?,
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => None,
        None => return Err("something stands behind its host that is no port"),
        Some(port) => Some(port),
    };
    if port.is_some_and(|port| port.is_empty() || port.len() > 5 || !port.chars().all(|c| c.is_ascii_digit())) {
        return Err("its port is no number");
    }
    if host.is_empty() {
        return Err("it has no host");
    }
    if host.ends_with('.') {
        return Err("its host ends with a dot, which makes another name for some programs");
    }
    Ok(Authority { host })
}

/// Whether the parsed host is the one that a reader sees.
fn agrees(host: &Host<&str>, written: &str) -> bool {
    match host {
        Host::Domain(host) => ascii_name(written).is_ok_and(|name| name == *host),
        Host::Ipv4(address) => address.to_string() == written,
        Host::Ipv6(address) => written.parse() == Ok(*address),
    }
}

fn numeric(label: &str) -> bool {
    label.chars().all(|c| c.is_ascii_digit()) || label.starts_with("0x")
}

/// A name by IDNA, lower case. Only names that come back as they were written: what mapping changes or drops (full-width letters,
/// soft hyphens, ideographic dots) is seen differently by those who do not map.
pub(super) fn ascii_name(name: &str) -> Result<String, &'static str> {
    if name.is_empty() || name.len() > 253 || name.split('.').any(str::is_empty) {
        return Err("a name is labels with single dots between them");
    }
    if name.is_ascii() {
        let lower = name.to_ascii_lowercase();
        let label = |label: &str| {
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            label.len() <= 63 && !label.starts_with('-') && !label.ends_with('-') && label.chars().all(plain)
        };
        if !lower.split('.').all(label) {
            return Err("its labels are 1 to 63 letters, digits and hyphens");
        }
        let coded = lower.split('.').any(|label| label.starts_with("xn--"));
        let returns = || {
            let (unicode, result) = idna::domain_to_unicode(&lower);
            result.is_ok() && idna::domain_to_ascii(&unicode).is_ok_and(|ascii| ascii == lower)
        };
        if coded && !returns() {
            return Err("its `xn--` label stands for no name");
        }
        return Ok(lower);
    }
    let Ok(ascii) = idna::domain_to_ascii_strict(name) else { return Err("it is no name by IDNA") };
    let (unicode, result) = idna::domain_to_unicode(&ascii);
    if result.is_err() || unicode != name.to_lowercase() || ascii.len() > 253 {
        return Err("IDNA makes another name of it");
    }
    Ok(ascii)
}
