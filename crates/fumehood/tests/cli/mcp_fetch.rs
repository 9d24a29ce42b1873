//! `fumehood mcp fetch`: servers as clients' files have them, from the real registries and from one of this machine, and started
//! without a network.

use serde_json::json;

use crate::mcp::{Client, text};
use crate::templates::Registry;
use crate::{Fixture, files_below};

const POLICY: &str = r#"
version = 1
[mcp.servers.files]
command = "npx"
args = ["-y", "@modelcontextprotocol/server-filesystem", "/tmp"]
policy = "node"
[mcp.servers.time]
command = "uvx"
args = ["mcp-server-time", "--local-timezone=UTC"]
policy = "python"
[mcp.servers.image]
command = "docker"
args = ["run", "-i", "--rm", "--privileged", "mcp/git"]
[mcp.servers.own]
command = "python3"
[[tools.tool]]
name = "files.list_directory"
decision = "allow"
effect = "read"
[[tools.tool]]
name = "time.get_current_time"
decision = "allow"
effect = "read"
"#;

/// What clients of registries are told by the environment of the test.
fn is_of_registries(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let known = ["ssl_cert_file", "ssl_cert_dir", "requests_ca_bundle", "node_extra_ca_certs"];
    name.starts_with("pip_") || name.starts_with("npm_config_") || name.ends_with("_proxy") || known.contains(&&*name)
}

#[expect(clippy::disallowed_methods, reason = "where the registries are stands in the environment of the tests")]
fn fixture() -> Fixture {
    let env = std::env::vars().filter(|(name, _)| is_of_registries(name));
    let fixture = env.fold(Fixture::new(), |fixture, (name, value)| fixture.with(&name, &value));
    std::fs::write(fixture.path("work/p.toml"), POLICY).unwrap();
    fixture
}

/// Whether a registry's own client answers here; told by name if not.
#[expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "the registry's own client is the control; skips are told"
)]
fn reachable(fixture: &Fixture, name: &str, line: &[&str]) -> bool {
    let mut command = std::process::Command::new(line[0]);
    command.args(&line[1..]).env_clear().env("PATH", "/usr/bin:/bin").env("HOME", fixture.dir.path());
    command.envs(fixture.env.iter().map(|(name, value)| (name, value)));
    let there = command.output().is_ok_and(|output| output.status.success());
    if !there {
        println!("skip: mcp fetch: {name} is not reached by its client here");
    }
    there
}

/// What a server offers, asked for as long as a start may take.
fn offers(fixture: &Fixture, server: &str) -> crate::CommandOutput {
    fixture.run(&["tools", "ls", "-p", "p.toml", "--server", server])
}

#[test]
fn a_server_of_npm_is_fetched_once_and_starts_from_there() {
    let fixture = fixture();
    let package = "@modelcontextprotocol/server-filesystem";
    if !reachable(&fixture, "npm", &["/usr/bin/npm", "view", package, "version"]) {
        return;
    }
    assert_eq!(offers(&fixture, "files").code, 125, "the control: without a registry it never starts");
    let fetched = fixture.run(&["mcp", "fetch", "files", "-p", "p.toml", "--json"]);
    assert_eq!(fetched.code, 0, "{fetched:?}");
    let fetched = fetched.json();
    assert_eq!(fetched["content"].as_str().map(str::len), Some(64));
    let installed = fetched["installed"].as_array().unwrap();
    let own = format!("{package}@");
    assert!(installed.iter().any(|one| one.as_str().is_some_and(|one| one.starts_with(&own))), "{fetched}");
    assert_eq!(fixture.run(&["mcp", "fetch", "files", "-p", "p.toml", "--json"]).json(), fetched, "it is there");

    let mut client = Client::new(&fixture, &["mcp", "gateway", "-p", "p.toml"]);
    assert!(offers(&fixture, "files").out.contains("files.list_directory"));
    let listed = client.call("files__list_directory", &json!({"path": "/tmp"}));
    assert_ne!(listed["result"]["isError"], true, "{listed}");
    assert_eq!(client.end(), 0);
}

#[test]
fn a_server_of_pypi_is_fetched_once_and_does_not_start_when_what_was_fetched_has_changed() {
    let fixture = fixture();
    let control = ["/usr/bin/python3", "-m", "pip", "download", "-q", "--no-deps", "-d", "/tmp", "mcp-server-time"];
    if !reachable(&fixture, "PyPI", &control) {
        return;
    }
    let fetched = fixture.run(&["mcp", "fetch", "time", "-p", "p.toml"]);
    assert_eq!(fetched.code, 0, "{fetched:?}");
    assert!(fetched.out.starts_with("time: mcp_server_time=="), "{fetched:?}");
    let mut client = Client::new(&fixture, &["mcp", "gateway", "-p", "p.toml"]);
    assert!(offers(&fixture, "time").out.contains("time.get_current_time"));
    let answer = client.call("time__get_current_time", &json!({"timezone": "UTC"}));
    assert!(text(&answer).contains("datetime"), "{answer}");
    assert_eq!(client.end(), 0);

    let below = files_below(&fixture.state().join("templates"));
    let module = below.iter().find(|path| path.ends_with("mcp_server_time/server.py")).unwrap();
    let written = std::fs::read_to_string(module).unwrap();
    std::fs::write(module, format!("{written}\n# one line more\n")).unwrap();
    let asked = offers(&fixture, "time");
    assert!(asked.err.contains("does not hold any more what was installed"), "{asked:?}");
    std::fs::write(module, written).unwrap();
    assert_eq!(offers(&fixture, "time").code, 0, "the control");
}

#[test]
fn what_cannot_be_fetched_is_refused_and_a_server_that_was_not_fetched_names_the_command() {
    let fixture = fixture();
    for (name, code, words) in [
        ("image", 126, "`--privileged` is not taken over"),
        ("own", 126, "it is started as it is written"),
        ("fils", 126, "`fumehood mcp fetch files`"),
    ] {
        let said = fixture.run(&["mcp", "fetch", name, "-p", "p.toml"]);
        assert_eq!(said.code, code, "{said:?}");
        assert!(said.err.contains(words), "{said:?}");
    }
    let asked = offers(&fixture, "time");
    assert!(asked.err.contains("`fumehood mcp fetch time -p POLICY`"), "{asked:?}");
}

/// From a registry of this machine, which the caller's settings name; and from none where no sandbox can hold the way there.
#[test]
fn a_package_is_fetched_in_a_sandbox_or_not_at_all() {
    let fixture = Fixture::new();
    let registry = Registry::new(&fixture);
    let index = format!("http://127.0.0.1:{}/simple", registry.port);
    let mut fixture = fixture.with("PIP_INDEX_URL", &index).with("PIP_RETRIES", "0");
    let policy = "version = 1\n[[tools.tool]]\nname = \"m.look\"\ndecision = \"allow\"\neffect = \"read\"\n\
                  [mcp.servers.m]\ncommand = \"uvx\"\nargs = [\"mirrored\"]\npolicy = \"python\"\n";
    std::fs::write(fixture.path("work/p.toml"), policy).unwrap();
    let fetch = ["mcp", "fetch", "m", "-p", "p.toml", "--json"];
    // A way out that the broker does not know.
    fixture.env.push(("https_proxy".to_owned(), "socks5://127.0.0.1:1".to_owned()));
    let said = fixture.run(&fetch);
    assert_eq!(said.code, 126, "{said:?}");
    assert!(offers(&fixture, "m").err.contains("`fumehood mcp fetch m -p POLICY`"), "nothing was installed instead");
    assert!(files_below(&fixture.state().join("templates")).is_empty());

    fixture.env.pop();
    let said = fixture.run(&fetch);
    assert_eq!(said.code, 0, "the control: {said:?}");
    assert!(said.json()["installed"].as_array().unwrap().contains(&json!("mirrored==1.0")), "{said:?}");
    drop(registry);
    let mut client = Client::new(&fixture, &["mcp", "gateway", "-p", "p.toml"]);
    assert_eq!(client.tools(), ["m__look"]);
    assert_eq!(text(&client.call("m__look", &json!({}))), "mirrored");
    assert_eq!(client.end(), 0);
}
