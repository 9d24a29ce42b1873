//! Names of hosts, and patterns of them.

use std::net::IpAddr;

use super::{Reader, fault};
use crate::diagnostic::{behind_login, quote};
use crate::document::Node;
use crate::value::is_loopback_name;

/// Whether a text is a name as DNS has it, without wildcards: labels of letters, digits, `-` and `_`, the last not a number (`1`,
/// `0x7f`), by which programs take the whole for an address.
pub(super) fn is_name(name: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
    };
    let last = name.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    let hex = last.strip_prefix("0x").is_some_and(|digits| digits.chars().all(|c| c.is_ascii_hexdigit()));
    let numeric = hex || last.chars().all(|c| c.is_ascii_digit());
    name.len() <= 253 && name.split('.').all(label) && !numeric
}

/// Whether a text is an address, in brackets or not.
pub(super) fn is_address(text: &str) -> bool {
    text.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok()
}

impl Reader<'_> {
    /// A host name, `*.name` or `**.name`; lower case, without a trailing dot.
    pub(crate) fn host(&mut self, path: &str, node: &Node, text: &str) -> Option<String> {
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let plain = name.strip_prefix("**.").or_else(|| name.strip_prefix("*."));
        // `*.org` would be half of the world.
        let wide = plain.is_some_and(|plain| !plain.contains('.'));
        if is_name(plain.unwrap_or(&name)) && !wide && !is_loopback_name(&name) {
            return Some(name);
        }
        let (why, fix) = if is_loopback_name(&name) {
            (
                "inside it is the sandbox itself: programs ask nobody where it is",
                "give it another name, as in { host = \"dev.internal\", ports = [8080], address = \"127.0.0.1:8080\" }"
                    .to_owned(),
            )
        } else if text.contains("://") || text.contains('/') {
            ("a host is a name, not an address of a page", "write the name alone, and `paths` for the rest".to_owned())
        } else if text.contains('@') {
            (
                "a host is a name without a login, which is a secret",
                "write the name alone, and in `[secrets]` where the password is found, with as = { basic = \"USER\" }"
                    .to_owned(),
            )
        } else if is_address(text) {
            ("an address is no name", "in `net.allow` and `net.deny`, write `cidr` instead of `host`".to_owned())
        } else if wide || text == "*" || text == "**" {
            ("it would allow hosts of everybody", "name the hosts, or `*.example.org`".to_owned())
        } else if !text.is_ascii() {
            ("names outside ASCII look alike", "write it in its xn-- form".to_owned())
        } else {
            ("it is not a host name", "write example.org or *.example.org".to_owned())
        };
        self.note(
            path,
            node.place,
            fault("value/host", format!("`{path}` names {}", quote(&behind_login(text))), why, fix),
        );
        None
    }

    /// A list of hosts.
    pub(super) fn hosts(&mut self, path: &str, node: &Node) -> Option<Vec<String>> {
        let mut names = Vec::new();
        for item in self.items(path, node)? {
            let Some(text) = self.text(path, item) else { continue };
            names.extend(self.host(path, item, &text));
        }
        names.sort();
        names.dedup();
        Some(names)
    }
}
