//! `[net]` and `[secrets]`: hosts, ports, methods, paths.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::limits::LEAST_RATE;
use super::{Reader, fault};
use crate::diagnostic::quote;
use crate::document::{Node, Value};
use crate::value::{HostRule, Net, NetMode, Secret};

pub(crate) const NET: &[&str] = &["mode", "allow", "dns", "bandwidth"];
const RULE: &[&str] = &["host", "ports", "methods", "paths"];
const HTTPS: u16 = 443;

impl Reader<'_> {
    pub(crate) fn net(&mut self, tree: &Node, net: &mut Net) {
        let Some(node) = tree.get("net") else { return };
        if self.table("net", node, NET).is_none() {
            return;
        }
        self.put(tree, "net.mode", &mut net.mode, |r, p, n| r.word(p, n, NetMode::WORDS));
        self.put(tree, "net.allow", &mut net.allow, |r, p, n| {
            let items = r.items(p, n)?;
            Some(items.iter().filter_map(|item| r.rule(p, item)).collect())
        });
        self.put(tree, "net.dns", &mut net.dns, |r, p, n| r.word(p, n, &[("broker", "broker")]).map(str::to_owned));
        self.put(tree, "net.bandwidth", &mut net.bandwidth, |r, p, n| {
            r.limit(p, n, |r, p, n| r.rate(p, n, LEAST_RATE))
        });
    }

    fn rule(&mut self, path: &str, node: &Node) -> Option<HostRule> {
        let Value::Table(_) = &node.value else {
            let text = self.text(path, node)?;
            let (host, port) = match text.rsplit_once(':') {
                // The address of a page has a colon too, and is told to be one.
                Some((host, port)) if !host.contains(':') && !port.starts_with("//") => (host, Some(port)),
                _ => (text.as_str(), None),
            };
            let port = match port.map(str::parse::<u16>) {
                None => HTTPS,
                Some(Ok(port)) if port > 0 => port,
                Some(_) => {
                    let what = format!("what follows `:` in {} is no port", quote(&text));
                    self.note(
                        path,
                        node.place,
                        fault("value/port", what, "ports are 1 to 65535", format!("write {host}:443")),
                    );
                    return None;
                }
            };
            let host = self.host(path, node, host)?;
            return Some(HostRule { host, ports: vec![port], methods: Vec::new(), paths: Vec::new() });
        };
        let table = self.table(path, node, RULE)?;
        let Some(host) = table.get("host") else {
            let fix = "write { host = \"example.org\", ports = [443] }";
            self.note(
                path,
                node.place,
                fault("value/incomplete", format!("an entry of `{path}` has no `host`"), "it must name one", fix),
            );
            return None;
        };
        let text = self.text(path, host)?;
        let mut rule =
            HostRule { host: self.host(path, host, &text)?, ports: Vec::new(), methods: Vec::new(), paths: Vec::new() };
        self.put(table, "ports", &mut rule.ports, |r, _, n| {
            let items = r.items("net.allow.ports", n)?;
            Some(
                items
                    .iter()
                    .filter_map(|i| r.whole("net.allow.ports", i, 1, 65_535).and_then(|n| u16::try_from(n).ok()))
                    .collect(),
            )
        });
        self.put(table, "methods", &mut rule.methods, |r, _, n| r.methods(n));
        self.put(table, "paths", &mut rule.paths, |r, _, n| r.globs("net.allow.paths", n));
        if rule.ports.is_empty() {
            rule.ports.push(HTTPS);
        }
        rule.ports.sort_unstable();
        rule.ports.dedup();
        Some(rule)
    }

    fn methods(&mut self, node: &Node) -> Option<Vec<String>> {
        let path = "net.allow.methods";
        let mut list = Vec::new();
        for item in self.items(path, node)? {
            let Some(text) = self.text(path, item) else { continue };
            if !text.is_empty() && text.len() <= 32 && text.chars().all(|c| c.is_ascii_uppercase() || c == '-') {
                list.push(text);
            } else {
                let what = format!("{} is not a method", quote(&text));
                let fix = format!("write {}", text.to_ascii_uppercase());
                self.note(
                    path,
                    item.place,
                    fault("value/method", what, "methods are in capitals, as on the wire", fix),
                );
            }
        }
        Some(list)
    }

    /// A host name, `*.name`, or an address; lower case.
    pub(crate) fn host(&mut self, path: &str, node: &Node, text: &str) -> Option<String> {
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let plain = name.strip_prefix("*.").unwrap_or(&name);
        let label = |label: &str| {
            !label.is_empty()
                && label.len() <= 63
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
        };
        let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        if let Ok(address) = address {
            return Some(address.to_string());
        }
        // `*.org` would be half of the world.
        let wide = name.starts_with("*.") && !plain.contains('.');
        let numeric = plain.rsplit('.').next().is_some_and(|last| last.chars().all(|c| c.is_ascii_digit()));
        if plain.len() <= 253 && plain.split('.').all(label) && !wide && !numeric {
            return Some(name);
        }
        let (why, fix) = if text.contains("://") || text.contains('/') {
            ("a host is a name, not an address of a page", "write the name alone, and `paths` for the rest".to_owned())
        } else if wide || text == "*" {
            ("it would allow hosts of everybody", "name the hosts, or `*.example.org`".to_owned())
        } else if !text.is_ascii() {
            ("names outside ASCII look alike", "write it in its xn-- form".to_owned())
        } else {
            ("it is not a host name", "write example.org or *.example.org".to_owned())
        };
        self.note(path, node.place, fault("value/host", format!("`{path}` names {}", quote(text)), why, fix));
        None
    }

    pub(crate) fn secrets(&mut self, tree: &Node, secrets: &mut BTreeMap<String, Secret>) {
        let Some(node) = tree.get("secrets") else { return };
        let Value::Table(entries) = &node.value else {
            self.wrong_type("secrets", node, "a table of tables", "write [secrets.NAME]");
            return;
        };
        for (key, node) in entries {
            let path = format!("secrets.{}", key.name);
            if self.table(&path, node, &["from", "hosts"]).is_none() {
                continue;
            }
            if let Some(secret) = self.secret(&path, node) {
                secrets.insert(key.name.clone(), secret);
            }
        }
    }

    fn secret(&mut self, path: &str, node: &Node) -> Option<Secret> {
        let (Some(from), Some(hosts)) = (node.get("from"), node.get("hosts")) else {
            let fix = "write from = \"env:GITHUB_TOKEN\" and hosts = [\"api.github.com\"]";
            let why = "a secret comes from somewhere and goes to named hosts only";
            self.note(
                path,
                node.place,
                fault("value/incomplete", format!("`{path}` needs `from` and `hosts`"), why, fix),
            );
            return None;
        };
        let text = self.text(path, from)?;
        let fits = match text.split_once(':') {
            Some(("env", name)) => super::surroundings::is_env_name(name),
            Some(("file", name)) => name.starts_with('/') || name.starts_with("./") || name.starts_with("../"),
            _ => false,
        };
        if !fits {
            let why = "a secret is taken from `env:NAME` or `file:PATH`, and never written into a policy";
            self.note(
                path,
                from.place,
                fault(
                    "value/secret",
                    format!("`{path}` has a `from` of another form"),
                    why,
                    "write from = \"env:NAME\"",
                ),
            );
            return None;
        }
        let from = match text.strip_prefix("file:") {
            Some(file) => format!("file:{}", self.host_path_text(path, from, file)?.to_string_lossy()),
            None => text,
        };
        let mut names = Vec::new();
        for item in self.items(path, hosts)? {
            let Some(text) = self.text(path, item) else { continue };
            names.extend(self.host(path, item, &text));
        }
        if names.is_empty() {
            let why = "without a host it could go nowhere";
            self.note(
                path,
                hosts.place,
                fault("value/incomplete", format!("`{path}` names no host"), why, "hosts = [\"api.github.com\"]"),
            );
            return None;
        }
        Some(Secret { from, hosts: names })
    }
}
