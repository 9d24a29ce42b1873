//! `guards.NAME = { kind = ... }`: what an argument must be. Shapes and bounds are checked here; patterns of domains,
//! hosts and SQL names that need a library of their own are compiled by the broker, which points at the same places.

use std::path::PathBuf;

use serde_json::Value as Json;

use super::{Reader, fault, list_words};
use crate::diagnostic::quote;
use crate::document::{Node, Value};
use crate::exact::Exact;
use crate::guards::{EmailGuard, Guard, LengthGuard, NumberGuard, PathAccess, PathGuard, UrlGuard};
use crate::span::{Span, Spanned};

/// The kinds, each with its keys beside `kind`.
pub(crate) const KINDS: &[(&str, &[&str])] = &[
    ("email", &["kind", "domains", "subdomains"]),
    ("path", &["kind", "roots", "dangerous-roots", "access", "extensions", "hide"]),
    ("url", &["kind", "schemes", "hosts", "ports", "private"]),
    ("sql", &["kind", "dialect", "statements", "read_only", "tables", "columns", "functions"]),
    ("command", &["kind", "programs", "presets", "wrappers", "env", "write", "read", "block", "root"]),
    ("enum", &["kind", "values"]),
    ("number", &["kind", "min", "max", "integer"]),
    ("length", &["kind", "min", "max"]),
    ("pattern", &["kind", "pattern"]),
];

const ACCESSES: &[(&str, PathAccess)] = &[("read", PathAccess::Read), ("write", PathAccess::Write)];

impl Reader<'_> {
    /// One guard. What is wrong is noted at its place, and then there is none.
    pub(crate) fn guard(&mut self, path: &str, node: &Node) -> Option<Spanned<Guard>> {
        let kinds: Vec<&str> = KINDS.iter().map(|(kind, _)| *kind).collect();
        let Value::Table(_) = &node.value else {
            self.wrong_type(path, node, "a table", "write { kind = \"email\", domains = [\"company.com\"] }");
            return None;
        };
        let Some(kind) = node.get("kind") else {
            let why = format!("a guard parses what it guards: it must know whether that is {}", list_words(&kinds));
            self.incomplete(path, node, "a guard has no `kind`", &why, "write kind = \"email\"");
            return None;
        };
        let words: Vec<(&str, &str)> = kinds.iter().map(|kind| (*kind, *kind)).collect();
        let kind = self.keyword(&format!("{path}.kind"), kind, &words)?;
        let keys = KINDS.iter().find(|(known, _)| *known == kind).map(|(_, keys)| *keys)?;
        let table = self.table(path, node, keys)?;
        let before = self.mistakes.list.len();
        let guard = match kind {
            "email" => self.email(path, table),
            "path" => self.path_guard(path, table),
            "url" => self.url_guard(path, table),
            "sql" => self.sql_guard(path, table),
            "command" => self.command_guard(path, table),
            "enum" => self.choices(path, table),
            "number" => self.number_guard(path, table),
            "length" => self.length_guard(path, table),
            _ => self.pattern_guard(path, table),
        };
        // A guard of which a part could not be read would be another guard.
        let whole = self.mistakes.list.len() == before;
        guard.filter(|_| whole).map(|value| Spanned { value, at: Span(node.place) })
    }

    pub(super) fn incomplete(&mut self, path: &str, node: &Node, what: &str, why: &str, fix: &str) {
        self.note(path, node.place, fault("value/incomplete", format!("`{path}`: {what}"), why, fix));
    }

    /// Texts with their places; `judge` says why one does not fit, and what to write.
    pub(super) fn spotted(
        &mut self,
        path: &str,
        node: &Node,
        judge: impl Fn(&str) -> Result<(), (&'static str, String, String)>,
    ) -> Option<Vec<Spanned<String>>> {
        let mut list: Vec<Spanned<String>> = Vec::new();
        for item in self.items(path, node)? {
            let Some(text) = self.text(path, item) else { continue };
            match judge(&text) {
                Ok(()) => list.push(Spanned { value: text, at: Span(item.place) }),
                Err((id, why, fix)) => {
                    self.note(path, item.place, fault(id, format!("`{path}` has {}", quote(&text)), why, fix));
                }
            }
        }
        if matches!(&node.value, Value::Array(items) if items.is_empty()) {
            self.incomplete(path, node, "the list is empty", "nothing could pass it", "name what is allowed");
        }
        Some(list)
    }

    fn email(&mut self, path: &str, table: &Node) -> Option<Guard> {
        let mut guard = EmailGuard::default();
        let read = |r: &mut Self, _: &str, n: &Node| r.spotted(&format!("{path}.domains"), n, domain);
        self.put(table, "domains", &mut guard.domains, read);
        self.put(table, "subdomains", &mut guard.subdomains, |r, _, n| r.truth(&format!("{path}.subdomains"), n));
        if guard.subdomains && table.get("domains").is_none() {
            let why = "without `domains` every domain is allowed already";
            self.incomplete(path, table, "`subdomains` without `domains`", why, "add domains = [\"company.com\"]");
        }
        Some(Guard::Email(guard))
    }

    fn path_guard(&mut self, path: &str, table: &Node) -> Option<Guard> {
        if table.get("roots").or_else(|| table.get("dangerous-roots")).is_none() {
            let why = "a path is judged by the folder that it resolves beneath";
            self.incomplete(path, table, "no `roots`", why, "add roots = [\"/srv/data\"]");
            return None;
        }
        let mut roots = Vec::new();
        if let Some(node) = table.get("roots") {
            let inner = format!("{path}.roots");
            let plain = self.spotted(&inner, node, root)?;
            plain.iter().for_each(|root| self.plain_root(&inner, root));
            roots.extend(plain);
        }
        if let Some(node) = table.get("dangerous-roots") {
            roots.extend(self.spotted(&format!("{path}.dangerous-roots"), node, root)?);
        }
        let roots = roots.into_iter().map(|root| Spanned { value: normal_root(&root.value), at: root.at }).collect();
        let mut guard =
            PathGuard { roots, access: PathAccess::default(), extensions: Default::default(), hide: Vec::new() };
        self.put(table, "access", &mut guard.access, |r, _, n| r.keyword(&format!("{path}.access"), n, ACCESSES));
        self.put(table, "extensions", &mut guard.extensions, |r, _, n| {
            let list = r.spotted(&format!("{path}.extensions"), n, extension)?;
            Some(list.into_iter().map(|text| text.value).collect())
        });
        self.put(table, "hide", &mut guard.hide, |r, _, n| {
            let inner = format!("{path}.hide");
            r.globs(&inner, n)?;
            r.spotted(&inner, n, |_| Ok(()))
        });
        Some(Guard::Path(guard))
    }

    /// What is dangerous to grant to a sandbox is so for a tool that has none.
    fn plain_root(&mut self, path: &str, root: &Spanned<String>) {
        if let Some(why) = self.danger(&normal_root(&root.value)) {
            let what = format!("`{path}` has {}", quote(&root.value));
            let fix = "name a folder below it, or list it under `dangerous-roots`";
            self.note(path, root.at.0, fault("grant/dangerous", what, why, fix));
        }
    }

    fn url_guard(&mut self, path: &str, table: &Node) -> Option<Guard> {
        let Some(hosts) = table.get("hosts") else {
            let why = "without hosts nothing could pass: every host must be named";
            self.incomplete(path, table, "no `hosts`", why, "add hosts = [\"api.example.com\"]");
            return None;
        };
        let hosts = self.spotted(&format!("{path}.hosts"), hosts, host)?;
        let mut guard = UrlGuard { schemes: vec!["https".to_owned()], hosts, ports: Vec::new(), private: false };
        self.put(table, "schemes", &mut guard.schemes, |r, _, n| {
            let list = r.spotted(&format!("{path}.schemes"), n, scheme)?;
            Some(list.into_iter().map(|text| text.value).collect())
        });
        self.put(table, "ports", &mut guard.ports, |r, _, n| {
            let inner = format!("{path}.ports");
            let items = r.items(&inner, n)?;
            if items.is_empty() {
                r.incomplete(&inner, n, "the list is empty", "no port could be reached", "write ports = [443]");
            }
            Some(items.iter().filter_map(|item| r.port(&inner, item)).collect())
        });
        self.put(table, "private", &mut guard.private, |r, _, n| r.truth(&format!("{path}.private"), n));
        Some(Guard::Url(guard))
    }

    fn port(&mut self, path: &str, node: &Node) -> Option<u16> {
        self.whole(path, node, 1, 65_535).and_then(|port| u16::try_from(port).ok())
    }

    /// The keys of `[commands]`, beside `kind`.
    fn command_guard(&mut self, path: &str, table: &Node) -> Option<Guard> {
        let entries = table.entries().iter().filter(|(key, _)| key.name != "kind").cloned().collect();
        let rest = Node { value: Value::Table(entries), place: table.place };
        if table.get("root").is_none() {
            let why = "paths in a command start from a folder, and a tool of somebody else has its own";
            self.incomplete(path, table, "no `root`", why, "add root = \"/srv/work\"");
        }
        self.commands_table(path, &rest).map(|commands| Guard::Command(Box::new(commands)))
    }

    fn choices(&mut self, path: &str, table: &Node) -> Option<Guard> {
        let Some(node) = table.get("values") else {
            self.incomplete(
                path,
                table,
                "no `values`",
                "there is nothing to choose from",
                "add values = [\"a\", \"b\"]",
            );
            return None;
        };
        let inner = format!("{path}.values");
        let mut list: Vec<Json> = Vec::new();
        for item in self.items(&inner, node)? {
            let Some(value) = plain(item) else {
                self.wrong_type(&inner, item, "text, a number, true or false", "write the value itself");
                continue;
            };
            if list.contains(&value) {
                let why = "the second says nothing";
                let what = format!("`{inner}` has {} twice", quote(&value.to_string()));
                self.note(&inner, item.place, fault("value/duplicate", what, why, "remove one"));
            }
            list.push(value);
        }
        if list.is_empty() {
            self.incomplete(&inner, node, "the list is empty", "nothing could pass it", "name what is allowed");
        }
        Some(Guard::Enum(list))
    }

    fn number_guard(&mut self, path: &str, table: &Node) -> Option<Guard> {
        let mut guard = NumberGuard::default();
        self.put(table, "min", &mut guard.min, |r, _, n| r.exact(&format!("{path}.min"), n).map(Some));
        self.put(table, "max", &mut guard.max, |r, _, n| r.exact(&format!("{path}.max"), n).map(Some));
        self.put(table, "integer", &mut guard.integer, |r, _, n| r.truth(&format!("{path}.integer"), n));
        if guard == NumberGuard::default() && table.get("min").is_none() && table.get("max").is_none() {
            let why = "every number would pass";
            self.incomplete(path, table, "neither `min` nor `max` nor `integer`", why, "add max = 100");
        }
        if let (Some(min), Some(max)) = (&guard.min, &guard.max)
            && min > max
        {
            self.crossed(path, table, &min.to_string(), &max.to_string());
        }
        Some(Guard::Number(guard))
    }

    fn length_guard(&mut self, path: &str, table: &Node) -> Option<Guard> {
        let mut guard = LengthGuard::default();
        let read = |r: &mut Self, key: &str, n: &Node| r.whole(&format!("{path}.{key}"), n, 0, 1 << 40).map(Some);
        self.put(table, "min", &mut guard.min, read);
        self.put(table, "max", &mut guard.max, read);
        if table.get("min").is_none() && table.get("max").is_none() {
            self.incomplete(path, table, "neither `min` nor `max`", "every length would pass", "add max = 200");
        }
        if let (Some(min), Some(max)) = (guard.min, guard.max)
            && min > max
        {
            self.crossed(path, table, &min.to_string(), &max.to_string());
        }
        Some(Guard::Length(guard))
    }

    fn crossed(&mut self, path: &str, table: &Node, min: &str, max: &str) {
        let place = table.get("min").map_or(table.place, |node| node.place);
        let what = format!("`{path}.min` is {min}, and `max` is {max}");
        self.note(path, place, fault("value/range", what, "nothing lies between them", "exchange them"));
    }

    /// A bound, as it is written: the digits of the document, not the double nearest to them.
    fn exact(&mut self, path: &str, node: &Node) -> Option<Exact> {
        let read = match &node.value {
            Value::Integer(number) => Exact::parse(&number.to_string()),
            Value::Float(_) => Exact::parse(self.written(node.place)),
            Value::Bare(text) => Exact::parse(text),
            Value::Null | Value::Bool(_) | Value::Text(_) | Value::Array(_) | Value::Table(_) => None,
        };
        if read.is_none() {
            self.wrong_type(path, node, "a decimal number", "write a number such as 100 or 0.5, without quotes");
        }
        read
    }

    fn pattern_guard(&mut self, path: &str, table: &Node) -> Option<Guard> {
        let Some(node) = table.get("pattern") else {
            let why = "there is nothing to match";
            self.incomplete(path, table, "no `pattern`", why, "add pattern = \"[A-Z]{3}-[0-9]+\"");
            return None;
        };
        let text = self.pattern(&format!("{path}.pattern"), node)?;
        if text.is_empty() {
            let why = "the whole text must match, so that only the empty text could pass";
            self.incomplete(path, node, "the pattern is empty", why, "write what the text looks like");
        }
        Some(Guard::Pattern(Spanned { value: text, at: Span(node.place) }))
    }
}

type CheckResult = Result<(), (&'static str, String, String)>;

fn wrong(id: &'static str, why: &str, fix: impl Into<String>) -> CheckResult {
    Err((id, why.to_owned(), fix.into()))
}

/// What can be seen of a domain without the tables of IDNA, which the broker has.
fn domain(text: &str) -> CheckResult {
    if let Some((_, domain)) = text.split_once('@') {
        return wrong("value/domain", "this is about the part behind the @", format!("write {domain}"));
    }
    if let Some(domain) = text.strip_prefix("*.") {
        return wrong("value/domain", "a star is no label", format!("write {domain} and subdomains = true"));
    }
    if text.starts_with('.') || text.ends_with('.') || !text.contains('.') {
        return wrong("value/domain", "a domain is labels with dots between them", "write company.com");
    }
    name(text, "value/domain")
}

fn host(text: &str) -> CheckResult {
    if text.contains("://") || text.contains('/') {
        return wrong("value/host", "a host is a name, not an address of a page", "write the name alone");
    }
    let plain = text.strip_prefix("*.").unwrap_or(text);
    if plain.contains('*') || (plain.len() < text.len() && !plain.contains('.')) {
        return wrong("value/host", "it would allow hosts of everybody", "name the hosts, or `*.example.org`");
    }
    if text.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>().is_ok() {
        return Ok(());
    }
    if text.contains(':') {
        return wrong("value/host", "ports have a key of their own", "write the host, and ports = [8443]");
    }
    name(plain, "value/host")
}

/// No blank, control, or mark of a URL or an address stands in a name.
fn name(text: &str, id: &'static str) -> CheckResult {
    let odd = |c: char| c.is_whitespace() || c.is_control() || "@/\\:?#%*[]<>\"'`(),;".contains(c);
    if text.is_empty() || text.len() > 253 || text.split('.').any(str::is_empty) || text.chars().any(odd) {
        return wrong(id, "it is not a name of labels with dots between them", "write company.com");
    }
    Ok(())
}

fn root(text: &str) -> CheckResult {
    if !text.starts_with('/') {
        let why = "roots are absolute: what a relative one means would depend on where the gate was started";
        return wrong("path/relative", why, format!("write /srv/{}", text.trim_start_matches("./")));
    }
    let folder = PathBuf::from(text);
    if folder.components().any(|part| part == std::path::Component::ParentDir) {
        return wrong("path/parent", "`..` leads elsewhere when the name before it is a link", "write it without `..`");
    }
    if text.len() > 4095 {
        return wrong("path/long", "the kernel ends paths at 4095 bytes", "give a shorter one");
    }
    Ok(())
}

fn normal_root(text: &str) -> PathBuf {
    PathBuf::from(text).components().filter(|part| *part != std::path::Component::CurDir).collect()
}

fn extension(text: &str) -> CheckResult {
    let rest = text.strip_prefix('.').unwrap_or(text);
    let odd = |c: char| c == '/' || c == '\\' || c == '*' || c.is_whitespace() || c.is_control();
    if rest.is_empty() || rest.starts_with('.') || rest.ends_with('.') || rest.chars().any(odd) {
        return wrong("value/extension", "it is not an extension", "write .csv");
    }
    if rest.len() == text.len() {
        return wrong("value/extension", "an extension begins with its dot", format!("write .{text}"));
    }
    Ok(())
}

fn scheme(text: &str) -> CheckResult {
    let shape = text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.".contains(c));
    if !shape {
        let plain = text.trim_end_matches("://").trim_end_matches(':').to_ascii_lowercase();
        return wrong("value/scheme", "it is not a scheme in small letters", format!("write {plain}"));
    }
    if !["http", "https", "ws", "wss", "ftp"].contains(&text) {
        let why = "only schemes with a host can be judged by host: `http`, `https`, `ws`, `wss`, `ftp`";
        return wrong("value/scheme", why, "write https");
    }
    Ok(())
}

/// A value that an argument can equal.
fn plain(node: &Node) -> Option<Json> {
    match &node.value {
        Value::Bool(on) => Some(Json::Bool(*on)),
        Value::Integer(number) => Some(Json::from(*number)),
        Value::Float(number) => serde_json::Number::from_f64(*number).map(Json::Number),
        Value::Text(text) | Value::Bare(text) => Some(Json::String(text.clone())),
        Value::Null | Value::Array(_) | Value::Table(_) => None,
    }
}
