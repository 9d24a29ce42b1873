//! Upstream servers as they are asked for: by `[mcp.servers.NAME]`, or by the file of a client, read as it is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use policy::tools::{FromEnv, McpServer, Reach};
use serde_json::{Value as Json, json};

use super::{jsonc, names};

/// One upstream server.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// Its name, fit for public names.
    pub name: String,
    /// How it is reached.
    pub transport: Transport,
    /// Environment, beside what its policy gives.
    pub env: BTreeMap<String, String>,
    /// The policy of its sandbox: a preset or a file.
    pub policy: String,
    /// Where it was asked for, for messages.
    pub from: String,
    /// What it is started from, where that was fetched from a registry: packages, or an image.
    pub fetched: Option<String>,
}

/// How a server is reached.
#[derive(Clone, PartialEq)]
pub enum Transport {
    /// A program inside a sandbox.
    Command {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
    },
    /// Streamable HTTP.
    Url {
        /// Where.
        url: String,
        /// Headers of every request.
        headers: BTreeMap<String, String>,
    },
}

/// Values of headers are secrets: only their names are shown, here as everywhere.
impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Command { command, args } => {
                f.debug_struct("Command").field("command", command).field("args", args).finish()
            }
            Self::Url { url, headers } => {
                f.debug_struct("Url").field("url", url).field("headers", &headers.keys().collect::<Vec<_>>()).finish()
            }
        }
    }
}

impl Server {
    /// What is pinned of the way to it. Values of the environment and headers are secrets more often than not: their names
    /// count.
    #[must_use]
    pub fn pinned(&self) -> Json {
        let env: Vec<_> = self.env.keys().collect();
        match &self.transport {
            Transport::Command { command, args } => match &self.fetched {
                // A program has the same path inside, whatever it is a program of.
                Some(fetched) => json!({ "command": command, "args": args, "env": env, "fetched": fetched }),
                None => json!({ "command": command, "args": args, "env": env }),
            },
            Transport::Url { url, headers } => json!({ "url": url, "headers": headers.keys().collect::<Vec<_>>() }),
        }
    }
}

/// Why servers cannot be had from a policy or a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerError {
    /// `mcp/name`, `mcp/import`, ...
    pub id: &'static str,
    /// What is wrong.
    pub what: String,
    /// Where.
    pub place: String,
    /// Why.
    pub why: String,
    /// What to do.
    pub fix: String,
}

/// What the reading may ask of its surroundings.
pub trait Surroundings {
    /// The text of a file, or why it cannot be had.
    ///
    /// # Errors
    /// Why not, in words.
    fn read(&self, path: &Path) -> Result<String, String>;
    /// A variable of the environment.
    fn variable(&self, name: &str) -> Option<String>;
}

/// All servers of a policy, those of imported files among them; or all that is wrong with them.
///
/// # Errors
/// Every [`ServerError`].
pub fn all(
    asked: &BTreeMap<String, policy::span::Spanned<McpServer>>,
    documents: &policy::span::Documents,
    surroundings: &dyn Surroundings,
) -> Result<Vec<Server>, Vec<ServerError>> {
    let (mut servers, mut wrong) = (Vec::new(), Vec::new());
    for (name, spotted) in asked {
        let McpServer { reach, env, policy } = &spotted.value;
        let from = documents.locate(spotted.at).to_string();
        let one = |transport| Server {
            name: name.clone(),
            transport,
            env: env.clone(),
            policy: policy.value.clone(),
            from: from.clone(),
            fetched: None,
        };
        match reach {
            Reach::Command { command, args } => {
                servers.push(one(Transport::Command { command: command.clone(), args: args.clone() }));
            }
            Reach::Url { url, headers } => match filled(headers, name, &from, surroundings) {
                Ok(headers) => servers.push(one(Transport::Url { url: url.clone(), headers })),
                Err(found) => wrong.extend(found),
            },
            Reach::Import(path) => match import(path, &policy.value, env, surroundings) {
                Ok(found) => servers.extend(found),
                Err(found) => wrong.extend(found),
            },
        }
    }
    for server in &servers {
        check(server, &mut wrong);
    }
    servers.sort_by(|one, other| one.name.cmp(&other.name));
    for pair in servers.windows(2) {
        if let [one, other] = pair
            && one.name == other.name
        {
            wrong.push(ServerError {
                id: "mcp/name",
                what: format!("two servers are called `{}`", one.name),
                place: format!("{} and {}", one.from, other.from),
                why: "names tell servers apart: with one name for two, either could speak for the other".to_owned(),
                fix: "give one of them another name".to_owned(),
            });
        }
    }
    if wrong.is_empty() { Ok(servers) } else { Err(wrong) }
}

/// The values of headers, out of our environment. No message says more of them than their names.
fn filled(
    headers: &BTreeMap<String, FromEnv>,
    server: &str,
    from: &str,
    surroundings: &dyn Surroundings,
) -> Result<BTreeMap<String, String>, Vec<ServerError>> {
    let (mut values, mut wrong) = (BTreeMap::new(), Vec::new());
    for (name, FromEnv { scheme, variable }) in headers {
        let value = surroundings.variable(variable).filter(|value| !value.is_empty());
        let why = match &value {
            None => format!("the variable `{variable}` is not set, or empty"),
            Some(value) if value.bytes().any(|byte| !(b' '..=b'~').contains(&byte)) => {
                format!("the variable `{variable}` holds what no header can: a line break, or other than visible ASCII")
            }
            Some(value) => {
                let value = scheme.as_ref().map_or_else(|| value.clone(), |scheme| format!("{scheme} {value}"));
                values.insert(name.clone(), value);
                continue;
            }
        };
        wrong.push(ServerError {
            id: "mcp/header",
            what: format!("the header `{name}` of the server `{server}` cannot be sent"),
            place: from.to_owned(),
            why,
            fix: format!("set `{variable}` to the value, and start again"),
        });
    }
    if wrong.is_empty() { Ok(values) } else { Err(wrong) }
}

fn check(server: &Server, wrong: &mut Vec<ServerError>) {
    if !names::is_server(&server.name) {
        wrong.push(ServerError {
            id: "mcp/name",
            what: format!("`{}` is no name of a server", super::text::shown(&server.name, 80)),
            place: server.from.clone(),
            why: "it becomes the first part of the public names of tools: letters, digits, `-` and single `_`, at most 40".to_owned(),
            fix: format!("for instance `{}`", names::fit_server(&server.name)),
        });
    }
    if let Transport::Url { url, .. } = &server.transport
        && let Err(why) = check_url(url)
    {
        wrong.push(ServerError {
            id: "mcp/url",
            what: format!("`{}` is no address of a server", super::text::shown(url, 200)),
            place: server.from.clone(),
            why,
            fix: "https://HOST/PATH; http:// only for this machine".to_owned(),
        });
    }
}

/// Only HTTP, without a user name, and in the clear only to this machine.
fn check_url(text: &str) -> Result<(), String> {
    let url = url::Url::parse(text).map_err(|error| error.to_string())?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("it has a user name or password in it, which end up in logs".to_owned());
    }
    let here = match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => return Err("it names no host".to_owned()),
    };
    match url.scheme() {
        "https" => Ok(()),
        "http" if here => Ok(()),
        "http" => Err("calls and tokens would cross the network in the clear".to_owned()),
        _ => Err("only HTTP is spoken".to_owned()),
    }
}

/// The servers of a client's file: `mcpServers` (Claude Code, Claude Desktop, Cursor, Gemini, ...), `servers` or
/// `mcp.servers` (VS Code).
///
/// # Errors
/// Every [`ServerError`].
pub fn import(
    path: &Path,
    policy: &str,
    extra: &BTreeMap<String, String>,
    surroundings: &dyn Surroundings,
) -> Result<Vec<Server>, Vec<ServerError>> {
    let place = path.display().to_string();
    let unreadable = |why: String| {
        vec![ServerError {
            id: "mcp/import",
            what: format!("`{}` cannot be read", super::text::shown(&place, 200)),
            place: place.clone(),
            why,
            fix: "name the file in which the client keeps its servers".to_owned(),
        }]
    };
    let text = surroundings.read(path).map_err(unreadable)?;
    let file = jsonc::read(&text).map_err(unreadable)?;
    let tables = [file.get("mcpServers"), file.get("servers"), file.get("mcp").and_then(|mcp| mcp.get("servers"))];
    let Some(table) = tables.into_iter().flatten().find_map(Json::as_object) else {
        return Err(unreadable("it has neither `mcpServers` nor `servers`".to_owned()));
    };
    let (mut servers, mut wrong) = (Vec::new(), Vec::new());
    let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
    for (name, entry) in table {
        match one_of_file(name, entry, &folder, surroundings) {
            Ok(None) => {}
            Ok(Some((transport, mut env))) => {
                env.extend(extra.clone());
                let fit = if names::is_server(name) { name.clone() } else { names::fit_server(name) };
                servers.push(Server {
                    name: fit,
                    transport,
                    env,
                    policy: policy.to_owned(),
                    from: format!("{place}: {name}"),
                    fetched: None,
                });
            }
            Err(why) => wrong.push(ServerError {
                id: "mcp/import",
                what: format!("the server `{}` cannot be taken over", super::text::shown(name, 80)),
                place: place.clone(),
                why,
                fix: "write it as [mcp.servers.NAME] in the policy, or mark it `disabled` in the file".to_owned(),
            }),
        }
    }
    if wrong.is_empty() { Ok(servers) } else { Err(wrong) }
}

type Entry = (Transport, BTreeMap<String, String>);

fn one_of_file(
    name: &str,
    entry: &Json,
    folder: &Path,
    surroundings: &dyn Surroundings,
) -> Result<Option<Entry>, String> {
    let Some(map) = entry.as_object() else { return Err("its entry is no object".to_owned()) };
    let off = map.get("disabled") == Some(&Json::Bool(true)) || map.get("enabled") == Some(&Json::Bool(false));
    if off || (names::fit_server(name).is_empty() && !names::is_server(name)) {
        return if off { Ok(None) } else { Err("nothing of its name can stand in the name of a tool".to_owned()) };
    }
    let fill = |text: &str| expand(text, folder, surroundings);
    let texts = |key: &str| -> Result<BTreeMap<String, String>, String> {
        let Some(table) = map.get(key).filter(|table| !table.is_null()) else { return Ok(BTreeMap::new()) };
        let table = table.as_object().ok_or(format!("`{key}` is no object"))?;
        table
            .iter()
            .map(|(key, value)| match value {
                Json::String(text) => Ok((key.clone(), fill(text)?)),
                Json::Number(_) | Json::Bool(_) => Ok((key.clone(), value.to_string())),
                Json::Null | Json::Array(_) | Json::Object(_) => Err(format!("`{key}` is no text")),
            })
            .collect()
    };
    let kind = map.get("type").and_then(Json::as_str).unwrap_or_default();
    if kind == "sse" {
        return Err(
            "it speaks the transport of 2024 (HTTP with a separate event stream), which is not spoken here".to_owned()
        );
    }
    let url = ["url", "serverUrl", "httpUrl"].iter().find_map(|key| map.get(*key)).and_then(Json::as_str);
    if let Some(url) = url {
        return Ok(Some((Transport::Url { url: fill(url)?, headers: texts("headers")? }, BTreeMap::new())));
    }
    let command = map.get("command").and_then(Json::as_str).ok_or("it has neither `command` nor `url`")?;
    let mut args = Vec::new();
    for arg in map.get("args").and_then(Json::as_array).into_iter().flatten() {
        args.push(fill(arg.as_str().ok_or("one of `args` is no text")?)?);
    }
    if map.contains_key("envFile") {
        return Err("it names an `envFile`; write the variables it needs into `env`".to_owned());
    }
    Ok(Some((Transport::Command { command: fill(command)?, args }, texts("env")?)))
}

/// `${NAME}`, `${NAME:-default}`, `${env:NAME}`, `${workspaceFolder}`, `${userHome}` as clients write them; nothing else,
/// and no shell.
fn expand(text: &str, folder: &Path, surroundings: &dyn Surroundings) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        out.push_str(before);
        let Some((name, tail)) = after.split_once('}') else { return Err("a `${` has no end".to_owned()) };
        out.push_str(&value_of(name, folder, surroundings)?);
        rest = tail;
    }
    out.push_str(rest);
    Ok(out)
}

fn value_of(name: &str, folder: &Path, surroundings: &dyn Surroundings) -> Result<String, String> {
    let (name, default) = match name.split_once(":-") {
        Some((name, default)) => (name, Some(default.to_owned())),
        None => (name, None),
    };
    let is_name = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if name.starts_with("input:") {
        return Err("it asks its user for an input, which nobody can type here".to_owned());
    }
    match name {
        "workspaceFolder" => {
            // `.vscode/mcp.json`, `.cursor/mcp.json`: the folder of the folder.
            let dotted = folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
            let path: PathBuf =
                if dotted { folder.parent().map(Path::to_path_buf).unwrap_or_default() } else { folder.into() };
            Ok(path.display().to_string())
        }
        "userHome" => surroundings.variable("HOME").ok_or("`HOME` is not set".to_owned()),
        _ => {
            let plain = name.strip_prefix("env:").unwrap_or(name);
            if !is_name(plain) {
                return Err(format!("`${{{}}}` is not known", super::text::shown(name, 60)));
            }
            surroundings.variable(plain).or(default).ok_or(format!("the variable `{plain}` is not set"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct FixedSurroundings(&'static str);

    impl Surroundings for FixedSurroundings {
        fn read(&self, _: &Path) -> Result<String, String> {
            Ok(self.0.to_owned())
        }
        fn variable(&self, name: &str) -> Option<String> {
            (name == "TOKEN").then(|| "secret".to_owned())
        }
    }

    fn imported(text: &'static str) -> Result<Vec<Server>, Vec<ServerError>> {
        import(Path::new("/w/.vscode/mcp.json"), "node", &BTreeMap::new(), &FixedSurroundings(text))
    }

    #[test]
    fn the_files_of_clients_are_read_as_they_are() {
        let found = imported(
            r#"{ // Claude Code
              "mcpServers": {
                "file system": {"command": "npx", "args": ["-y", "x", "${workspaceFolder}"], "env": {"T": "${TOKEN}"},},
                "git": {"type": "stdio", "command": "uvx", "args": ["mcp-server-git", "${MISSING:-/w}"]},
                "web": {"type": "http", "url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${env:TOKEN}"}},
                "off": {"command": "rm", "disabled": true}
              }
            }"#,
        )
        .unwrap();
        assert_eq!(found.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["file-system", "git", "web"]);
        let Transport::Command { command, args } = &found[0].transport else { panic!() };
        assert_eq!((command.as_str(), args[2].as_str(), found[0].env["T"].as_str()), ("npx", "/w", "secret"));
        let Transport::Command { args, .. } = &found[1].transport else { panic!() };
        assert_eq!(args[1], "/w");
        let Transport::Url { headers, .. } = &found[2].transport else { panic!() };
        assert_eq!(headers["Authorization"], "Bearer secret");
        let vs_code = imported(r#"{"servers": {"a": {"command": "x"}}, "inputs": []}"#).unwrap();
        assert_eq!(vs_code.len(), 1);
    }

    #[test]
    fn what_cannot_be_taken_over_is_told_by_name() {
        for (text, words) in [
            (r#"{"mcpServers": {"a": {"type": "sse", "url": "http://x/sse"}}}"#, "2024"),
            (r#"{"mcpServers": {"a": {"command": "x", "env": {"K": "${input:key}"}}}}"#, "nobody can type"),
            (r#"{"mcpServers": {"a": {"command": "x", "args": ["${MISSING}"]}}}"#, "MISSING"),
            (r#"{"mcpServers": {"a": {"command": "x", "args": ["$(id)${a b}"]}}}"#, "not known"),
            (r#"{"mcpServers": {"a": {}}}"#, "neither"),
            (r#"{"other": {}}"#, "neither"),
            (r#"{"mcpServers": "#, "line 1 column 16"),
        ] {
            let wrong = imported(text).unwrap_err();
            assert!(wrong[0].why.contains(words), "{text}: {wrong:?}");
        }
    }

    #[test]
    fn what_a_server_was_fetched_from_is_pinned_with_its_command() {
        let mut server = imported(r#"{"mcpServers": {"a": {"command": "/server"}}}"#).unwrap().remove(0);
        let written = server.pinned();
        server.fetched = Some("docker.io/me/one:1".to_owned());
        let one = server.pinned();
        server.fetched = Some("docker.io/other/one:1".to_owned());
        assert!(written != one && one != server.pinned(), "{one}");
    }

    #[test]
    fn an_address_in_the_clear_is_for_this_machine_only() {
        for good in ["https://example.com/mcp", "http://127.0.0.1:8000/mcp", "http://[::1]/", "http://localhost:1/"] {
            assert_eq!(check_url(good), Ok(()), "{good}");
        }
        for bad in
            ["http://example.com/", "http://127.0.0.1.evil.example/", "file:///etc/passwd", "https://u:p@h/", "x"]
        {
            assert!(check_url(bad).is_err(), "{bad}");
        }
    }
}
