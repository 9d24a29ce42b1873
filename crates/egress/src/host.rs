//! One form of a host's name.

use std::net::IpAddr;

/// A name in lower case without its trailing dot; `None` if no host can be called so: empty or long labels, other letters than
/// `a-z 0-9 - _`, or an address.
#[must_use]
pub fn plain(text: &str) -> Option<String> {
    let text = text.strip_suffix('.').unwrap_or(text);
    let label = |label: &str| {
        (1..=63).contains(&label.len()) && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    };
    let fits = text.len() <= 253 && text.split('.').all(label) && !is_numeric(text);
    fits.then(|| text.to_ascii_lowercase())
}

/// Whether some reader would take a name for an IPv4 address: its last label is a number (`127.1`, `0x7f.1`, `2130706433`).
fn is_numeric(text: &str) -> bool {
    let last = text.rsplit('.').next().unwrap_or_default();
    let hex = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    last.bytes().all(|byte| byte.is_ascii_digit()) || hex.is_some_and(|h| h.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Whom an authority (`Host`, `:authority`, the host of an absolute form) names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// The host.
    pub host: AuthorityHost,
    /// The port, where one is written.
    pub port: Option<u16>,
}

/// A host as a name or as an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthorityHost {
    /// As [`plain`] gives it.
    Name(String),
    /// An address: four numbers, or in brackets.
    Address(IpAddr),
}

/// In its one form.
impl std::fmt::Display for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.host {
            AuthorityHost::Name(name) => f.write_str(name)?,
            AuthorityHost::Address(IpAddr::V4(address)) => write!(f, "{address}")?,
            AuthorityHost::Address(IpAddr::V6(address)) => write!(f, "[{address}]")?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// Reads `HOST`, `HOST:PORT`, `1.2.3.4` or `[::1]:PORT`; users, paths and anything else are `None`.
#[must_use]
pub fn authority(text: &str) -> Option<Authority> {
    if let Some(rest) = text.strip_prefix('[') {
        let (address, after) = rest.split_once(']')?;
        let host = AuthorityHost::Address(IpAddr::V6(address.parse().ok()?));
        let port = match after {
            "" => None,
            after => Some(port(after.strip_prefix(':')?)?),
        };
        return Some(Authority { host, port });
    }
    let (host, port) = match text.split_once(':') {
        Some((host, digits)) => (host, Some(port(digits)?)),
        None => (text, None),
    };
    let host = match host.parse::<std::net::Ipv4Addr>() {
        Ok(address) => AuthorityHost::Address(IpAddr::V4(address)),
        Err(_) => AuthorityHost::Name(plain(host)?),
    };
    Some(Authority { host, port })
}

fn port(digits: &str) -> Option<u16> {
    let plain = (1..=5).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|port| plain && *port != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_one_form() {
        for (text, expected) in [
            ("Example.ORG.", Some("example.org")),
            ("xn--bcher-kva.example", Some("xn--bcher-kva.example")),
            ("_dmarc.example", Some("_dmarc.example")),
            ("localhost", Some("localhost")),
            ("", None),
            (".", None),
            ("a..b", None),
            ("example.org..", None),
            ("a b", None),
            ("a%2eb", None),
            ("user@a", None),
            ("a#b", None),
            ("127.1", None),
            ("0x7f000001", None),
            ("2130706433", None),
            ("a.0X1f", None),
            ("1.2.3.4", None),
            ("4.example", Some("4.example")),
        ] {
            assert_eq!(plain(text).as_deref(), expected, "{text}");
        }
        assert_eq!(plain(&"a".repeat(64)), None);
    }

    #[test]
    fn authorities_are_read_strictly() {
        let shown = |text: &str| authority(text).map(|a| (a.host, a.port));
        let name = |text: &str| AuthorityHost::Name(text.to_owned());
        assert_eq!(shown("A.example:8080"), Some((name("a.example"), Some(8080))));
        assert_eq!(shown("a.example."), Some((name("a.example"), None)));
        assert_eq!(shown("192.0.2.1:80"), Some((AuthorityHost::Address([192, 0, 2, 1].into()), Some(80))));
        assert_eq!(shown("[2001:db8::1]"), Some((AuthorityHost::Address("2001:db8::1".parse().unwrap()), None)));
        assert_eq!(shown("[::1]:8443"), Some((AuthorityHost::Address("::1".parse().unwrap()), Some(8443))));
        for bad in [
            "",
            ":80",
            "a.example:",
            "a.example:0",
            "a.example:65536",
            "a.example:+80",
            "a.example:80:80",
            "u@a.example",
            "a.example/",
            "2001:db8::1",
            "[::1",
            "[::1]80",
            "[a.example]",
            "a.example:080000",
            "127.1",
            "192.0.2.01",
        ] {
            assert_eq!(authority(bad), None, "{bad}");
        }
    }
}
