//! `[net]` and `[secrets]`: hosts, addresses, ports, methods, paths.

mod host;
mod rule;
mod secrets;

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::limits::LEAST_RATE;
use super::scalar::Least;
use super::{Reader, fault, list_words};
use crate::diagnostic::{did_you_mean, quote};
use crate::document::{self, Format, Kind, Node, Source, Value};
use crate::net_presets::NET_PRESETS;
use crate::presets::Preset;
use crate::value::{Net, NetMode, NetRule, Unknown};

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
const LEAST_BYTES: Least = Least { value: 4096, why: "less than a page is not enough for one answer", example: "1G" };

impl Reader<'_> {
    pub(crate) fn net(&mut self, tree: &Node, net: &mut Net) {
        let Some(node) = tree.get("net") else { return };
        if self.table("net", node, NET).is_none() {
            return;
        }
        self.put(tree, "net.mode", &mut net.mode, |r, p, n| r.word(p, n, NetMode::WORDS));
        self.put(tree, "net.presets", &mut net.presets, Self::net_presets);
        self.put(tree, "net.allow", &mut net.allow, Self::rules);
        self.put(tree, "net.deny", &mut net.deny, Self::denials);
        self.put(tree, "net.unknown", &mut net.unknown, |r, p, n| r.word(p, n, Unknown::WORDS));
        self.put(tree, "net.programs", &mut net.programs, Self::net_programs);
        self.put(tree, "net.dns", &mut net.dns, |r, p, n| r.word(p, n, &[("broker", "broker")]).map(str::to_owned));
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

    /// `http://HOST:PORT`, the only form: passwords do not belong into a policy, and the way to the proxy is the machine's own.
    fn proxy(&mut self, path: &str, node: &Node) -> Option<String> {
        let text = self.text(path, node)?;
        let place = text.strip_prefix("http://").map(|rest| rest.strip_suffix('/').unwrap_or(rest));
        let parts = place.and_then(|place| place.rsplit_once(':'));
        let port = parts.and_then(|(_, port)| rule::port_number(port));
        let host = parts.map(|(host, _)| host).filter(|host| host::is_name(host) || host::is_address(host));
        if let (Some(host), Some(port)) = (host, port) {
            return Some(format!("http://{}:{port}", host.to_ascii_lowercase()));
        }
        let (why, fix) = if place.is_some_and(|place| place.contains('@')) {
            ("a policy holds no password", "leave out what stands before `@`, and use a proxy that asks for none")
        } else {
            ("a proxy is asked by HTTP, at a host and a port", "write proxy = \"http://proxy.example.org:3128\"")
        };
        self.note(path, node.place, fault("net/proxy", format!("`{path}` is {}", quote(&text)), why, fix));
        None
    }
}
