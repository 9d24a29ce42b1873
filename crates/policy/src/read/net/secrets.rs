//! `[secrets]`: where each is found, who may see it, and how it is put into a request.

use std::collections::BTreeMap;

use super::{Reader, fault};
use crate::diagnostic::quote;
use crate::document::{Node, Value};
use crate::names::is_env_name;
use crate::net::SIGV4;
use crate::net_headers::is_framing;
use crate::value::{Secret, SecretSource, SecretUse, Signing};

const SECRET: &[&str] = &[
    "from",
    "hosts",
    "ports",
    "methods",
    "paths",
    "as",
    "env",
    "kind",
    "key_id",
    "session_token",
    "region",
    "service",
];
/// What only a secret that signs has.
const OF_SIGNING: [&str; 4] = ["key_id", "session_token", "region", "service"];
/// Hosts whose names say region and service.
const AWS: [&str; 2] = [".amazonaws.com", ".amazonaws.com.cn"];
const USE: &[&str] = &["header", "format", "public", "basic", "query"];
const HTTPS: u16 = 443;
const HTTP: u16 = 80;
/// Where the secret stands in `format`.
const HOLE: &str = "{}";

impl Reader<'_> {
    pub(crate) fn secrets(&mut self, tree: &Node, secrets: &mut BTreeMap<String, Secret>) {
        let Some(node) = tree.get("secrets") else { return };
        let Value::Table(entries) = &node.value else {
            self.wrong_type("secrets", node, "a table of tables", "write [secrets.NAME]");
            return;
        };
        for (key, node) in entries {
            let path = format!("secrets.{}", key.name);
            if self.table(&path, node, SECRET).is_none() {
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
            let what = format!("`{path}` needs `from` and `hosts`");
            self.note(path, node.place, fault("value/incomplete", what, why, fix));
            return None;
        };
        let at = |key: &str| format!("{path}.{key}");
        let from = self.secret_source(path, from)?;
        let names = self.hosts(path, hosts)?;
        if names.is_empty() {
            // Of names that are none was said what they are.
            self.items(path, hosts).filter(|items| items.is_empty())?;
            let why = "without a host it could go nowhere";
            let what = format!("`{path}` names no host");
            self.note(path, hosts.place, fault("value/incomplete", what, why, "hosts = [\"api.github.com\"]"));
            return None;
        }
        let mut ports = self.ports(&at("ports"), node)?;
        if ports.is_empty() {
            ports.push(HTTPS);
        }
        let methods = node.get("methods").map_or(Some(Vec::new()), |node| self.methods(&at("methods"), node))?;
        let paths = node.get("paths").map_or(Some(Vec::new()), |node| self.url_paths(&at("paths"), node))?;
        let signs = node.get("kind").is_some() || OF_SIGNING.iter().any(|key| node.get(key).is_some());
        let put = if signs {
            self.signing(path, node, (&names, &ports)).map(SecretUse::Sign)?
        } else if let Some(node) = node.get("as") {
            self.secret_use(&at("as"), node)?
        } else {
            SecretUse::Header { name: "authorization".to_owned(), format: "Bearer {}".to_owned(), public: false }
        };
        let env = match node.get("env") {
            Some(node) => {
                let name = self.text(&at("env"), node)?;
                self.env_name(&at("env"), node, &name).then_some(Some(name))?
            }
            None => None,
        };
        Some(Secret { from, hosts: names, ports, methods, paths, put, env })
    }

    /// What signs is not part of a request: it goes over TLS, and needs to know for which region and service.
    fn signing(&mut self, path: &str, node: &Node, (hosts, ports): (&[String], &[u16])) -> Option<Signing> {
        let at = |key: &str| format!("{path}.{key}");
        // A word that is none comes first: what else is missing depends on it.
        let kind = node.get("kind");
        if let Some(kind) = kind {
            self.keyword(&at("kind"), kind, &[(SIGV4, ())])?;
        }
        let (Some(_), Some(key_id)) = (kind, node.get("key_id")) else {
            let what = format!("`{path}` needs `kind` and `key_id`");
            let fix = "write kind = \"aws-sigv4\" and key_id = \"env:AWS_ACCESS_KEY_ID\"";
            let why = "a signature names the access key; `from` is its secret part";
            self.note(path, node.place, fault("value/incomplete", what, why, fix));
            return None;
        };
        if let Some(put) = node.get("as") {
            let what = format!("`{path}.as` beside `kind`");
            let why = "a secret that signs is put nowhere";
            self.note(path, put.place, fault("value/secret-use", what, why, "leave `as` out"));
            return None;
        }
        if ports.contains(&HTTP) {
            let what = format!("`{path}` signs requests on port 80");
            let why = "who stands on the way could send what was signed once more";
            self.note(path, node.place, fault("value/secret-use", what, why, "leave port 80 out of its `ports`"));
            return None;
        }
        let key_id = self.secret_source(&at("key_id"), key_id)?;
        let session_token = match node.get("session_token") {
            Some(node) => Some(self.secret_source(&at("session_token"), node)?),
            None => None,
        };
        let mut word = |key: &str| {
            let Some(node) = node.get(key) else { return Some(None) };
            let text = self.text(&at(key), node)?;
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            self.printable(&at(key), node, &text, plain).map(|()| Some(text))
        };
        let (region, service) = (word("region")?, word("service")?);
        let is_aws = |host: &String| AWS.iter().any(|end| host.ends_with(end));
        if (region.is_none() || service.is_none()) && !hosts.iter().all(is_aws) {
            let what = format!("`{path}` needs `region` and `service`");
            let why = "only names below amazonaws.com say them";
            let fix = "write region = \"eu-central-1\" and service = \"s3\"";
            self.note(path, node.place, fault("value/incomplete", what, why, fix));
            return None;
        }
        Some(Signing { key_id, session_token, region, service })
    }

    fn secret_source(&mut self, path: &str, node: &Node) -> Option<SecretSource> {
        let text = self.text(path, node)?;
        let words = |text: &str| text.split_ascii_whitespace().map(str::to_owned).collect::<Vec<_>>();
        match text.split_once(':') {
            Some(("env", name)) if is_env_name(name) => return Some(SecretSource::Env(name.to_owned())),
            Some(("file", name)) if name.starts_with(['/', '.']) => {
                return self.host_path_text(path, node, name).map(SecretSource::File);
            }
            Some(("command", line)) if !line.trim().is_empty() && !line.contains(SHELL) => {
                return Some(SecretSource::Command(words(line)));
            }
            Some(_) | None => {}
        }
        let (why, fix) = if text.starts_with("command:") {
            ("a command is words that are run as they are, without a shell", "name a program or a script of yours")
        } else {
            (
                "a secret is taken from `env:NAME`, `file:PATH` or `command:WORDS`, and never written into a policy",
                "write from = \"env:NAME\"",
            )
        };
        // What was written may be the secret itself.
        let what = format!("`{path}` has a `from` of another form");
        self.note(path, node.place, fault("value/secret", what, why, fix));
        None
    }

    fn secret_use(&mut self, path: &str, node: &Node) -> Option<SecretUse> {
        if !matches!(&node.value, Value::Table(_)) {
            return self.keyword(path, node, &[("placeholder", ())]).map(|()| SecretUse::Placeholder);
        }
        let table = self.table(path, node, USE)?;
        let one = ["header", "basic", "query"].into_iter().filter(|key| table.get(key).is_some()).count() == 1;
        let format = match table.get("format") {
            Some(node) => Some((self.text(path, node)?, node)),
            None => None,
        };
        let public = table.get("public");
        // Both are said of a header alone.
        let bare = format.is_none() && public.is_none();
        if let (true, Some(node), true) = (one, table.get("basic"), bare) {
            let user = self.text(path, node)?;
            return self.printable(path, node, &user, |c| c != ':').map(|()| SecretUse::Basic(user));
        }
        if let (true, Some(node), true) = (one, table.get("query"), bare) {
            let key = self.text(path, node)?;
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.~".contains(c);
            return self.printable(path, node, &key, plain).map(|()| SecretUse::Query(key));
        }
        let (true, Some(name_node)) = (one, table.get("header")) else {
            let what = format!("`{path}` says no place, or several");
            let fix = "write as = { header = \"Authorization\", format = \"Bearer {}\" }, { basic = \"user\" }, { query = \"key\" } or \"placeholder\"";
            self.note(path, node.place, fault("value/secret-use", what, "a secret is put in one place", fix));
            return None;
        };
        let name = self.text(path, name_node)?.to_ascii_lowercase();
        let token = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        self.printable(path, name_node, &name, token)?;
        if is_framing(&name) {
            let what = format!("`{path}` has {}", quote(&name));
            let why = "that header says how a request is read, whom it is for, or in which form its answer comes";
            self.note(
                path,
                name_node.place,
                fault("value/secret-use", what, why, "name the header that the server wants"),
            );
            return None;
        }
        let (format, node) = format.unwrap_or_else(|| (HOLE.to_owned(), name_node));
        if format.matches(HOLE).count() != 1 {
            let what = format!("`{path}.format` is {}", quote(&format));
            let fix = "write format = \"Bearer {}\"";
            self.note(path, node.place, fault("value/secret-use", what, "`{}` stands in it once, for the secret", fix));
            return None;
        }
        self.printable(path, node, &format, |_| true)?;
        let public = public.map_or(Some(false), |node| self.truth(&format!("{path}.public"), node))?;
        Some(SecretUse::Header { name, format, public })
    }

    /// A text of a request: nothing that could end a line, and no more than fits.
    fn printable(&mut self, path: &str, node: &Node, text: &str, fits: impl Fn(char) -> bool) -> Option<()> {
        if !text.is_empty() && text.len() <= 256 && text.chars().all(|c| (c == ' ' || c.is_ascii_graphic()) && fits(c))
        {
            return Some(());
        }
        let what = format!("`{path}` has {}", quote(text));
        let why = "it becomes part of a request, where it has to be one plain word or line";
        self.note(path, node.place, fault("value/secret-use", what, why, "use letters, digits and `-`"));
        None
    }
}

/// What only a shell would understand.
const SHELL: [char; 12] = ['|', '&', ';', '<', '>', '$', '`', '"', '\'', '\\', '(', '\n'];
