//! `[net]` and `[secrets]`: hosts, addresses, ports, methods, paths.

mod host;
mod rule;
mod secrets;

use std::collections::BTreeMap;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;

use super::limits::LEAST_RATE;
use super::scalar::Least;
use super::{Reader, fault, list_words};
use crate::diagnostic::{did_you_mean, quote, without_login};
use crate::document::{self, Format, Kind, Node, Source, Value};
use crate::net_presets::NET_PRESETS;
use crate::presets::Preset;
use crate::value::{Login, Net, NetMode, NetRule, Proxy, Unknown};

pub(crate) const NET: &[&str] = &[
    "mode",
    "presets",
    "allow",
    "deny",
    "unknown",
    "programs",
    "dns",
    "ca",
    "proxy",
    "bandwidth",
    "bytes",
    "connections",
];
/// More rules than this are not meant; each is compared at each connection.
const MAX_RULES: usize = 1000;
const MAX_CONNECTIONS: u32 = 65_535;
/// Most bytes of a user or a password of a proxy.
const MAX_LOGIN: usize = 1024;
const LEAST_BYTES: Least = Least { value: 4096, why: "less than a page is not enough for one answer", example: "1G" };

/// `USER:PASSWORD` as it stands in a URL, decoded.
fn login(text: &str) -> Option<Login> {
    let decoded = |part: &str| percent_decode_str(part).decode_utf8().ok().map(std::borrow::Cow::into_owned);
    let (user, password) = text.split_once(':')?;
    let (user, password) = (decoded(user)?, decoded(password)?);
    let fits = |part: &str| part.len() <= MAX_LOGIN && !part.chars().any(char::is_control);
    let whole = !user.is_empty() && !user.contains(':') && fits(&user) && fits(&password);
    whole.then(|| Login(format!("{user}:{password}")))
}

impl Reader<'_> {
    pub(crate) fn net(&mut self, tree: &Node, net: &mut Net) {
        let Some(node) = tree.get("net") else { return };
        if self.table("net", node, NET).is_none() {
            return;
        }
        self.put(tree, "net.mode", &mut net.mode, |r, p, n| r.keyword(p, n, NetMode::WORDS));
        self.put(tree, "net.presets", &mut net.presets, Self::net_presets);
        self.put(tree, "net.allow", &mut net.allow, Self::rules);
        self.put(tree, "net.deny", &mut net.deny, Self::denials);
        self.put(tree, "net.unknown", &mut net.unknown, |r, p, n| r.keyword(p, n, Unknown::WORDS));
        self.put(tree, "net.programs", &mut net.programs, Self::net_programs);
        self.put(tree, "net.dns", &mut net.dns, |r, p, n| r.keyword(p, n, &[("broker", "broker")]).map(str::to_owned));
        self.put(tree, "net.ca", &mut net.ca, Self::certificates);
        self.put(tree, "net.proxy", &mut net.proxy, |r, p, n| r.limit(p, n, Self::proxy));
        self.put(tree, "net.bandwidth", &mut net.bandwidth, |r, p, n| {
            r.limit(p, n, |r, p, n| r.rate(p, n, LEAST_RATE))
        });
        self.put(tree, "net.bytes", &mut net.bytes, |r, p, n| r.limit(p, n, |r, p, n| r.size(p, n, LEAST_BYTES)));
        self.put(tree, "net.connections", &mut net.connections, |r, p, n| {
            r.limit(p, n, |r, p, n| r.small(p, n, 1, MAX_CONNECTIONS))
        });
        if net.rules().count() > MAX_RULES {
            let what = format!("`net` has {} rules", net.rules().count());
            let why = format!("each is compared at each connection, and {MAX_RULES} are the most");
            self.note(
                "net.allow",
                node.place,
                fault("net/rules", what, why, "use `*.` or `**.` names, or fewer rules"),
            );
        }
    }

    fn rules(&mut self, path: &str, node: &Node) -> Option<Vec<NetRule>> {
        let items = self.items(path, node)?;
        Some(items.iter().filter_map(|item| self.rule(path, item)).collect())
    }

    fn net_presets(&mut self, path: &str, node: &Node) -> Option<BTreeMap<String, Vec<NetRule>>> {
        let mut presets = BTreeMap::new();
        for item in self.items(path, node)? {
            let Some(name) = self.text(path, item) else { continue };
            match NET_PRESETS.iter().find(|preset| preset.name == name) {
                Some(preset) => {
                    presets.insert(name, self.rules_of(preset));
                }
                None => {
                    let known: Vec<&str> = NET_PRESETS.iter().map(|preset| preset.name).collect();
                    let fix = match did_you_mean(&name, known.iter().copied()) {
                        Some(near) => format!("did you mean `{near}`?"),
                        None => format!("presets of the network are {}", list_words(&known)),
                    };
                    let what = format!("{} is not a preset of `net`", quote(&name));
                    self.note(path, item.place, fault("net/preset", what, "only these ship with fumehood", fix));
                }
            }
        }
        Some(presets)
    }

    /// The rules that a preset stands for; a test reads each of them.
    fn rules_of(&mut self, preset: &Preset) -> Vec<NetRule> {
        let source = Source {
            kind: Kind::Preset,
            format: Format::Toml,
            name: format!("net/{}", preset.name),
            text: preset.text.to_owned(),
            base: PathBuf::from("/"),
        };
        let (tree, _) = document::parse(u16::MAX, &source);
        tree.as_ref()
            .and_then(|tree| tree.get("allow"))
            .and_then(|node| self.rules("net.presets", node))
            .unwrap_or_default()
    }

    fn net_programs(&mut self, path: &str, node: &Node) -> Option<BTreeMap<PathBuf, Vec<String>>> {
        let Value::Table(entries) = &node.value else {
            self.wrong_type(
                path,
                node,
                "a table of lists",
                "name a program and its hosts, as in \"/usr/bin/git\" = [\"github.com\"]",
            );
            return None;
        };
        let mut programs = BTreeMap::new();
        for (key, hosts) in entries {
            let program = Node { value: Value::Null, place: key.place };
            let Some(file) = self.inside_file(path, &program, &key.name) else { continue };
            let list = self.hosts(path, hosts)?;
            programs.insert(file, list);
        }
        Some(programs)
    }

    fn inside_file(&mut self, path: &str, node: &Node, text: &str) -> Option<PathBuf> {
        if text.starts_with('/') {
            return self.host_path_text(path, node, text);
        }
        let what = format!("`{path}` names the program {}", quote(text));
        let why = "programs are named by their absolute path inside: what they call themselves is their own choice";
        self.note(path, node.place, fault("path/relative", what, why, "write it as in \"/usr/bin/git\""));
        None
    }

    fn certificates(&mut self, path: &str, node: &Node) -> Option<Vec<PathBuf>> {
        let mut files = Vec::new();
        for item in self.items(path, node)? {
            let Some(text) = self.text(path, item) else { continue };
            files.extend(self.host_path_text(path, item, &text));
        }
        files.dedup();
        Some(files)
    }

    /// `http://HOST:PORT`, or `http://USER:PASSWORD@HOST:PORT`; no message repeats the password.
    fn proxy(&mut self, path: &str, node: &Node) -> Option<Proxy> {
        let text = self.text(path, node)?;
        let (before, place) = match text.strip_prefix("http://").map(|rest| rest.strip_suffix('/').unwrap_or(rest)) {
            Some(rest) => {
                rest.rsplit_once('@').map_or((None, Some(rest)), |(before, place)| (Some(before), Some(place)))
            }
            None => (None, None),
        };
        let parts = place.and_then(|place| place.rsplit_once(':'));
        let port = parts.and_then(|(_, port)| rule::port_number(port));
        let host = parts.map(|(host, _)| host).filter(|host| host::is_name(host) || host::is_address(host));
        let read = before.map(login);
        let (why, fix) = match (host, port, read) {
            (Some(_), Some(_), Some(None)) => (
                "before `@` stand a user and a password, which no control character is part of",
                "write proxy = \"http://USER:PASSWORD@proxy.example.org:3128\", and other characters as in URLs (%40)",
            ),
            (Some(host), Some(port), login) => {
                let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
                return Some(Proxy { host, port, login: login.flatten() });
            }
            (None, ..) | (_, None, _) => {
                ("a proxy is asked by HTTP, at a host and a port", "write proxy = \"http://proxy.example.org:3128\"")
            }
        };
        let shown = match text.rsplit_once('@') {
            // Without a scheme, or with half of one.
            Some((_, place)) if !text.contains("://") => format!("***@{place}"),
            Some(_) | None => without_login(&text),
        };
        let what = format!("`{path}` is {}", quote(&shown));
        self.note(path, node.place, fault("net/proxy", what, why, fix));
        None
    }
}
