//! `[mcp]`: upstream servers, and what may pass beside tools. Everything is off unless written.

use std::collections::BTreeMap;

use super::super::{Reader, fault};
use super::spotted;
use crate::diagnostic::quote;
use crate::document::{Key, Node, Value};
use crate::names::is_env_name;
use crate::names::is_server;
use crate::span::{Span, Spanned};
use crate::tools::{FromEnv, Mcp, McpServer, Reach};

const MCP: &[&str] = &["servers", "resources", "prompts", "sampling", "elicitation", "roots"];
const SERVER: &[&str] = &["command", "args", "env", "url", "headers", "policy", "import"];

/// What the transport writes itself, and what would change whom a request reaches or how it is read.
const OWN_HEADERS: &[&str] = &[
    "accept",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "last-event-id",
    "origin",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

impl Reader<'_> {
    pub(super) fn mcp(&mut self, node: &Node) -> Option<Mcp> {
        let table = self.table("mcp", node, MCP)?;
        let mut mcp = Mcp::default();
        if let Some(node) = table.get("servers") {
            self.servers(node, &mut mcp.servers);
        }
        let known: Vec<String> = mcp.servers.keys().cloned().collect();
        let imports = mcp.servers.values().any(|server| matches!(server.value.reach, Reach::Import(_)));
        let mut list = |key: &str| {
            let path = format!("mcp.{key}");
            table.get(key).and_then(|node| self.spotted_texts(&path, node)).unwrap_or_default()
        };
        (mcp.resources, mcp.prompts) = (list("resources"), list("prompts"));
        (mcp.sampling, mcp.elicitation, mcp.roots) = (list("sampling"), list("elicitation"), list("roots"));
        for (path, list, mark) in [("mcp.resources", &mcp.resources, ':'), ("mcp.prompts", &mcp.prompts, '.')] {
            for item in list {
                self.within_server(path, item, mark);
            }
        }
        // Servers of an imported file are known when the gateway starts.
        if !imports {
            for (path, list) in
                [("mcp.sampling", &mcp.sampling), ("mcp.elicitation", &mcp.elicitation), ("mcp.roots", &mcp.roots)]
            {
                for item in list {
                    self.known_server(path, item, &known);
                }
            }
        }
        Some(mcp)
    }

    fn within_server(&mut self, path: &str, item: &Spanned<String>, mark: char) {
        if item.value.split_once(mark).is_some_and(|(server, rest)| is_server(server) && !rest.is_empty()) {
            return;
        }
        let what = format!("{} in `{path}` names no server", quote(&item.value));
        let why = "each is about one server";
        let fix = format!("write server{mark}{}", item.value);
        let Span(place) = item.at;
        self.note(path, place, fault("mcp/scope", what, why, fix));
    }

    fn known_server(&mut self, path: &str, item: &Spanned<String>, known: &[String]) {
        if known.contains(&item.value) {
            return;
        }
        let what = format!("{} in `{path}` is none of the servers", quote(&item.value));
        let fix = match crate::diagnostic::did_you_mean(&item.value, known.iter().map(String::as_str)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("declare [mcp.servers.{}]", item.value),
        };
        let Span(place) = item.at;
        self.note(path, place, fault("mcp/server", what, "it would never be asked", fix));
    }

    fn servers(&mut self, node: &Node, servers: &mut BTreeMap<String, Spanned<McpServer>>) {
        let path = "mcp.servers";
        let Value::Table(entries) = &node.value else {
            self.wrong_type(path, node, "a table", "write [mcp.servers.NAME]");
            return;
        };
        for (Key { name, place }, node) in entries {
            if !is_server(name) {
                let what = format!("{} is not the name of a server", quote(name));
                let why = "letters, digits, - and single _, neither at its ends: clients see server__tool, which must divide in one way only";
                self.note(path, *place, fault("mcp/name", what, why, "give it another name"));
                continue;
            }
            if let Some(server) = self.server(node) {
                servers.insert(name.clone(), Spanned { value: server, at: Span(*place) });
            }
        }
    }

    fn server(&mut self, node: &Node) -> Option<McpServer> {
        let path = "mcp.servers";
        let table = self.table(path, node, SERVER)?;
        let reach = self.reach(node, table)?;
        let mut env = BTreeMap::new();
        if let Some(node) = table.get("env") {
            let Value::Table(entries) = &node.value else {
                self.wrong_type("mcp.servers.env", node, "a table", "write { NAME = \"value\" }");
                return None;
            };
            for (key, node) in entries {
                if !is_env_name(&key.name) {
                    let what = format!("{} is not the name of a variable", quote(&key.name));
                    let why = "names are letters, digits and _, not starting with a digit";
                    self.note("mcp.servers.env", key.place, fault("env/name", what, why, "give another name"));
                    continue;
                }
                if let Some(value) = self.text("mcp.servers.env", node) {
                    env.insert(key.name.clone(), value);
                }
            }
        }
        let policy = match table.get("policy") {
            Some(node) => self.server_policy(node)?,
            None => spotted("strict".to_owned(), node),
        };
        Some(McpServer { reach, env, policy })
    }

    /// A preset by its name, or a file, absolute from here on.
    fn server_policy(&mut self, node: &Node) -> Option<Spanned<String>> {
        let path = "mcp.servers.policy";
        let text = self.text(path, node)?;
        if crate::presets::preset(&text).is_some() {
            return Some(spotted(text, node));
        }
        if !text.contains('/') && crate::document::Format::of(std::path::Path::new(&text)).is_none() {
            let names: Vec<&str> = crate::presets::PRESETS.iter().map(|preset| preset.name).collect();
            let what = format!("{} is not a preset", quote(&text));
            let fix = format!("presets are {}; a file is written ./{text}.toml", names.join(", "));
            self.note(
                path,
                node.place,
                fault("preset/unknown", what, "a name without a folder is that of a preset", fix),
            );
            return None;
        }
        let full = self.host_path_text(path, node, &text)?;
        Some(spotted(full.to_string_lossy().into_owned(), node))
    }

    fn reach(&mut self, whole: &Node, table: &Node) -> Option<Reach> {
        let path = "mcp.servers";
        let (command, url, import) = (table.get("command"), table.get("url"), table.get("import"));
        if [command, url, import].iter().flatten().count() != 1 {
            let what = "a server has one of `command`, `url` and `import`";
            let why = "how it is reached cannot be told otherwise";
            self.note(path, whole.place, fault("mcp/reach", what, why, "keep one of them"));
            return None;
        }
        if command.is_none() && table.get("args").is_some() {
            let what = "`args` without a `command`";
            self.note(path, whole.place, fault("mcp/reach", what, "only a program takes arguments", "remove `args`"));
            return None;
        }
        if url.is_none() && table.get("headers").is_some() {
            let what = "`headers` without a `url`";
            let fix = "remove `headers`; a program gets its values by `env`";
            self.note(path, whole.place, fault("mcp/reach", what, "only requests have headers", fix));
            return None;
        }
        if let Some(node) = command {
            let command = self.text("mcp.servers.command", node)?;
            if command.is_empty() {
                let what = "`mcp.servers.command` is empty";
                self.note(path, node.place, fault("value/incomplete", what, "it names a program", "write the program"));
                return None;
            }
            let args = table.get("args").and_then(|node| self.spotted_texts("mcp.servers.args", node));
            let args = args.unwrap_or_default().into_iter().map(|arg| arg.value).collect();
            return Some(Reach::Command { command, args });
        }
        if let Some(node) = url {
            return self.url(node, table.get("headers"));
        }
        let node = import?;
        self.host_path("mcp.servers.import", node).map(Reach::Import)
    }

    fn url(&mut self, node: &Node, headers: Option<&Node>) -> Option<Reach> {
        let path = "mcp.servers.url";
        let text = self.text("mcp.servers.url", node)?;
        let good = ["https://", "http://"].iter().any(|scheme| text.len() > scheme.len() && text.starts_with(scheme));
        if !good || text.chars().any(|c| c.is_control() || c.is_whitespace() || c == '\\') {
            let what = format!("`mcp.servers.url` is {}", quote(&text));
            let why = "servers are reached by http or https";
            self.note(path, node.place, fault("value/form", what, why, "write https://host/path"));
            return None;
        }
        let headers = match headers {
            Some(node) => self.headers(node)?,
            None => BTreeMap::new(),
        };
        Some(Reach::Url { url: text, headers })
    }

    /// Headers by name, each a variable: what opens a door is never written into a policy.
    fn headers(&mut self, node: &Node) -> Option<BTreeMap<String, FromEnv>> {
        let path = "mcp.servers.headers";
        let Value::Table(entries) = &node.value else {
            self.wrong_type(path, node, "a table", "write { Authorization = \"env:NAME\" }");
            return None;
        };
        let mut headers: BTreeMap<String, FromEnv> = BTreeMap::new();
        for (Key { name, place }, node) in entries {
            let lower = name.to_ascii_lowercase();
            let fits = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
            if !fits || OWN_HEADERS.contains(&lower.as_str()) || lower.starts_with("mcp-") {
                let what = format!("{} is no header that can be given", quote(name));
                let why = "names are letters, digits and `-`; those that the transport writes itself are its own";
                self.note(path, *place, fault("mcp/header", what, why, "give another name"));
            } else if headers.keys().any(|other| other.eq_ignore_ascii_case(name)) {
                let what = format!("{} is given twice", quote(name));
                self.note(path, *place, fault("mcp/header", what, "names of headers have no case", "keep one"));
            } else if let Some(text) = self.text(path, node) {
                match FromEnv::parse(&text) {
                    Some(from) => drop(headers.insert(name.clone(), from)),
                    None => {
                        let what = format!("the header {} has a value of another form", quote(name));
                        let why = "a secret is taken from a variable, and never written into a policy";
                        let fix = "write \"env:NAME\" or \"Bearer env:NAME\"";
                        self.note(path, node.place, fault("value/secret", what, why, fix));
                    }
                }
            }
        }
        Some(headers)
    }
}
