//! `fumehood mcp serve | gateway | pins | install`

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use serde_json::{Value as Json, json};

use crate::Fixture;
use crate::secrets::{VALUE, echoing};

/// A client of a front door on stdin and stdout.
pub(crate) struct Client {
    child: std::process::Child,
    out: BufReader<std::process::ChildStdout>,
    next: i64,
}

impl Client {
    pub(crate) fn new(fixture: &Fixture, args: &[&str]) -> Self {
        let mut command = fixture.command(args);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut client = Self { child, out, next: 0 };
        let info = json!({"name": "t", "version": "1"});
        client.ask("initialize", &json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}));
        client
    }

    pub(crate) fn ask(&mut self, method: &str, params: &Json) -> Json {
        self.next += 1;
        let message = json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params});
        writeln!(self.child.stdin.as_mut().unwrap(), "{message}").unwrap();
        loop {
            let mut line = String::new();
            assert!(self.out.read_line(&mut line).unwrap() > 0, "it ended");
            let answer: Json = serde_json::from_str(&line).unwrap();
            if answer.get("id") == Some(&Json::from(self.next)) {
                return answer;
            }
        }
    }

    pub(crate) fn call(&mut self, name: &str, arguments: &Json) -> Json {
        self.ask("tools/call", &json!({"name": name, "arguments": arguments}))
    }

    pub(crate) fn tools(&mut self) -> Vec<String> {
        let listed = self.ask("tools/list", &json!({}));
        let tools = listed.pointer("/result/tools").and_then(Json::as_array).unwrap().iter();
        tools.filter_map(|tool| tool.get("name")?.as_str().map(str::to_owned)).collect()
    }

    pub(crate) fn end(mut self) -> i32 {
        drop(self.child.stdin.take());
        self.child.wait().unwrap().code().unwrap()
    }
}

pub(crate) fn text(answer: &Json) -> &str {
    answer.pointer("/result/content/0/text").and_then(Json::as_str).unwrap_or_else(|| panic!("{answer}"))
}

#[test]
fn a_model_runs_code_and_sees_what_was_stopped() {
    let fixture = Fixture::new();
    let mut client = Client::new(&fixture, &["mcp", "serve", "-p", "python"]);
    assert!(text(&client.call("run_code", &json!({"language": "python", "code": "print(6*7)"}))).starts_with("42\n"));
    let answer = client.call("run_command", &json!({"command": ["cat", "/etc/shadow"]}));
    assert_eq!(answer["result"]["structuredContent"]["violations"][0]["id"], "fs.read/outside");
    assert!(text(&answer).contains("instead:"), "{answer}");
    let explained = client.call("explain_denial", &json!({"id": "fs.read/outside"}));
    assert_eq!(explained["result"]["structuredContent"]["id"], "fs.read/outside");
    assert_eq!(client.end(), 0);
}

#[test]
fn nothing_of_a_call_is_read_as_a_flag_or_reaches_another_run() {
    let fixture = Fixture::new();
    let mut client = Client::new(&fixture, &["mcp", "serve", "-p", "python", "--apply"]);
    for run in ["--help", "-h", ".", "/", "r-20260101-000000-abcdef", ""] {
        for tool in ["diff", "apply"] {
            let answer = client.call(tool, &json!({"run": run, "digest": "x"}));
            assert_eq!(answer["result"]["isError"], true, "{tool} {run}: {answer}");
            let words = text(&answer);
            assert!(
                words.contains("no run of this conversation") || words.contains("no argument"),
                "{tool} {run}: {answer}"
            );
        }
    }
    for id in ["--help", "-h", "fs.read", "x y/z", "--color=always/x"] {
        assert!(text(&client.call("explain_denial", &json!({ "id": id }))).contains("an id looks like"), "{id}");
    }
    let answer = client.call("run_code", &json!({"language": "--tier=process", "code": "x"}));
    assert!(text(&answer).contains("unknown language"), "{answer}");
    let answer = client.call("run_command", &json!({"command": ["ls"], "policy": "none"}));
    assert!(text(&answer).contains("no argument of"), "{answer}");
    assert_eq!(client.end(), 0);
}

#[test]
fn apply_is_offered_only_where_it_was_asked_for_and_tools_are_judged_where_the_policy_has_them() {
    let fixture = Fixture::new();
    let mut client = Client::new(&fixture, &["mcp", "serve", "-p", "python"]);
    assert!(!client.tools().contains(&"apply".to_owned()));
    assert_eq!(client.call("apply", &json!({"run": "r", "digest": "d"}))["error"]["code"], -32602);
    client.end();
    let policy = "version = 1\nextends = \"python\"\n[[tools.tool]]\nname = \"run_command\"\ndecision = \"allow\"\neffect = \"write\"\n";
    std::fs::write(fixture.path("work/p.toml"), policy).unwrap();
    let mut client = Client::new(&fixture, &["mcp", "serve", "-p", "p.toml"]);
    assert_eq!(client.tools(), ["run_command"]);
    assert!(text(&client.call("run_command", &json!({"command": ["echo", "hi"]}))).contains("hi"));
    let denied = client.call("run_code", &json!({"language": "sh", "code": "echo no"}));
    assert!(text(&denied).starts_with("denied (tools.entry/none)"), "{denied}");
    assert_eq!(client.end(), 0);
}

/// A fixture with an MCP server in Python behind the policy `p.toml`, which allows one of its tools.
pub(crate) fn with_server(fixture: Fixture, tool: &str, more: &str) -> Fixture {
    std::fs::create_dir(fixture.path("work/server")).unwrap();
    std::fs::write(fixture.path("work/server/main.py"), include_str!("server.py")).unwrap();
    std::fs::write(fixture.path("work/server/words"), "what it does").unwrap();
    let sandbox = "version = 1\nextends = \"python\"\n[fs]\nread = [{ from = \"./server\", to = \"/opt/server\" }]\n";
    std::fs::write(fixture.path("work/sandbox.toml"), sandbox).unwrap();
    let policy = format!(
        "version = 1\n[[tools.tool]]\nname = \"{tool}\"\ndecision = \"allow\"\neffect = \"read\"\n\
         [mcp.servers.s]\ncommand = \"python3\"\nargs = [\"/opt/server/main.py\"]\npolicy = \"./sandbox.toml\"\n{more}"
    );
    std::fs::write(fixture.path("work/p.toml"), policy).unwrap();
    fixture
}

fn gateway_house() -> Fixture {
    let fixture = with_server(Fixture::new().with("SECRET_OF_OURS", "s3cret"), "s.look", "env = { MINE = \"1\" }\n");
    std::fs::write(fixture.path("work/canary"), "CANARY").unwrap();
    fixture
}

#[test]
fn a_server_behind_the_gateway_sees_its_sandbox_and_nothing_of_ours() {
    let fixture = gateway_house();
    let mut client = Client::new(&fixture, &["mcp", "gateway", "-p", "p.toml"]);
    assert_eq!(client.tools(), ["s__look"]);
    let canary = fixture.path("work/canary").display().to_string();
    let answer = client.call("s__look", &json!({ "path": canary }));
    assert!(!text(&answer).contains("CANARY") && text(&answer).contains("No such file"), "{answer}");
    assert!(text(&answer).contains("'MINE'") && !text(&answer).contains("SECRET_OF_OURS"), "{answer}");
    assert!(
        text(&client.call("s__look", &json!({"path": "/opt/server/words"}))).starts_with("what it does"),
        "the control"
    );
    assert_eq!(client.end(), 0);
}

/// The broker of its own run: the same rules, the same secrets, as for any program.
#[test]
fn a_server_behind_the_gateway_reaches_the_hosts_of_its_policy_alone_with_a_secret_that_is_outside() {
    let (fixture, (port, sent)) = (with_server(Fixture::new().with("API_TOKEN", VALUE), "s.look", ""), echoing());
    let at = |host: &str| format!("{{ host = \"{host}\", ports = [80], address = \"127.0.0.1:{port}\" }}");
    let with = |net: &str| {
        let sandbox = format!(
            "version = 1\nextends = \"python\"\n[fs]\nread = [{{ from = \"./server\", to = \"/opt/server\" }}]\n{net}"
        );
        std::fs::write(fixture.path("work/sandbox.toml"), sandbox).unwrap();
        Client::new(&fixture, &["mcp", "gateway", "-p", "p.toml"])
    };
    let secret = "[secrets.api]\nfrom = \"env:API_TOKEN\"\nhosts = [\"served.test\"]\nports = [80]\nenv = \"TOKEN\"\n";
    let mut client = with(&format!("[net]\nmode = \"allow\"\nallow = [{}]\n{secret}", at("served.test")));
    let answer = client.call("s__look", &json!({ "path": "http://served.test/x" }));
    assert!(text(&answer).contains("GET /x") && text(&answer).contains("***"), "{answer}");
    assert!(text(&answer).contains("'TOKEN'") && !text(&answer).contains(VALUE), "{answer}");
    assert!(sent.lock().unwrap()[0].contains(&format!("uthorization: Bearer {VALUE}")), "{sent:?}");
    let other = client.call("s__look", &json!({ "path": "http://other.test/x" }));
    let local = client.call("s__look", &json!({ "path": format!("http://127.0.0.1:{port}/x") }));
    assert!(!text(&other).contains("GET /x") && !text(&local).contains("GET /x"), "{other} {local}");
    assert_eq!((sent.lock().unwrap().len(), client.end()), (1, 0));
    // The same name, where a rule has it; and none at all.
    let mut client = with(&format!("[net]\nmode = \"allow\"\nallow = [{}]\n", at("other.test")));
    let other = client.call("s__look", &json!({ "path": "http://other.test/x" }));
    assert!(text(&other).contains("GET /x"), "{other}");
    client.end();
    let mut client = with("");
    let none = client.call("s__look", &json!({ "path": "http://served.test/x" }));
    assert!(!text(&none).contains("GET /x"), "{none}");
    client.end();
}

#[test]
fn pins_are_listed_accepted_and_forgotten() {
    let fixture = gateway_house();
    let see = |fixture: &Fixture| {
        let mut client = Client::new(fixture, &["mcp", "gateway", "-p", "p.toml"]);
        let tools = client.tools();
        client.end();
        tools
    };
    assert_eq!(see(&fixture), ["s__look"]);
    std::fs::write(fixture.path("work/server/words"), "what it does, and mails it\u{1b}[31m").unwrap();
    assert!(see(&fixture).is_empty());
    let listed = fixture.run(&["mcp", "pins", "ls"]);
    assert!(
        listed.out.contains("held") && listed.out.contains("+  \"description\": \"what it does, and mails it"),
        "{}",
        listed.out
    );
    assert!(!listed.out.contains('\u{1b}'));
    assert_eq!(fixture.run(&["mcp", "pins", "accept", "s.none"]).code, 1);
    assert_eq!(fixture.run(&["mcp", "pins", "accept", "s.look", "-p", "p.toml"]).code, 0);
    assert_eq!(see(&fixture), ["s__look"]);
    assert_eq!(fixture.run(&["mcp", "pins", "reset", "s"]).code, 0);
    assert_eq!(fixture.run(&["mcp", "pins", "ls"]).out, "nothing is pinned\n");
}

#[test]
fn a_gateway_without_tools_or_with_a_wrong_server_is_refused() {
    let fixture = Fixture::new();
    let said = fixture.run(&["mcp", "gateway", "-p", "python"]);
    assert_eq!(said.code, 126);
    assert!(said.err.contains("names neither tools nor servers"), "{}", said.err);
    let said = fixture.run(&["mcp", "gateway", "-p", "python", "--listen", "0.0.0.0:1"]);
    assert_eq!(said.code, 125, "{}", said.err);
    assert!(said.err.contains("others could reach it"), "{}", said.err);
}

#[test]
fn install_shows_makes_and_undoes_its_change_to_the_byte() {
    let fixture = gateway_house();
    let file = fixture.path("work/.vscode/mcp.json");
    std::fs::create_dir(fixture.path("work/.vscode")).unwrap();
    let before = "{\n  // ours\n  \"servers\": {\n    \"git\": {\"command\": \"uvx\"}, // keep\n  },\n}\n";
    std::fs::write(&file, before).unwrap();
    let args = ["mcp", "install", "--client", "vscode", "-p", "p.toml"];
    let said = fixture.run(&[&args[..], &["--dry-run"]].concat());
    assert!(said.code == 0 && said.out.contains("+    \"fumehood\": {"), "{said:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), before);
    assert_eq!(fixture.run(&args).code, 0);
    // Once more changes nothing, the way back included.
    assert_eq!(fixture.run(&args).code, 0);
    let made = std::fs::read_to_string(&file).unwrap();
    assert!(made.contains("// ours") && made.contains("// keep") && made.contains("\"gateway\""), "{made}");
    assert!(made.contains(&fixture.path("work/p.toml").display().to_string()), "by its full path: {made}");
    assert_eq!(fixture.run(&["mcp", "install", "--client", "vscode", "--undo"]).code, 0);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), before);
    assert_eq!(fixture.run(&["mcp", "install", "--client", "vscode", "--undo"]).code, 1);
}

#[test]
fn install_writes_new_files_follows_links_and_keeps_what_others_wrote_since() {
    let fixture = gateway_house();
    assert_eq!(fixture.run(&["mcp", "install", "--client", "claude-code", "-p", "p.toml"]).code, 0);
    let made: Json = serde_json::from_str(&std::fs::read_to_string(fixture.path("work/.mcp.json")).unwrap()).unwrap();
    assert_eq!(made["mcpServers"]["fumehood"]["args"][1], "gateway");
    assert_eq!(fixture.run(&["mcp", "install", "--client", "claude-code", "--undo"]).code, 0);
    assert!(!fixture.path("work/.mcp.json").exists(), "what was not there before is gone again");

    std::fs::create_dir_all(fixture.path(".codex")).unwrap();
    std::fs::write(fixture.path("dotfiles.toml"), "model = \"x\" # mine\n").unwrap();
    std::os::unix::fs::symlink(fixture.path("dotfiles.toml"), fixture.path(".codex/config.toml")).unwrap();
    assert_eq!(fixture.run(&["mcp", "install", "--client", "codex", "-p", "p.toml"]).code, 0);
    assert!(std::fs::symlink_metadata(fixture.path(".codex/config.toml")).unwrap().is_symlink());
    let text = std::fs::read_to_string(fixture.path("dotfiles.toml")).unwrap();
    assert!(text.starts_with("model = \"x\" # mine\n") && text.contains("[mcp_servers.fumehood]"), "{text}");
    std::fs::write(fixture.path("dotfiles.toml"), format!("{text}\n[later]\na = 1\n")).unwrap();
    assert_eq!(fixture.run(&["mcp", "install", "--client", "codex", "--undo"]).code, 0);
    let text = std::fs::read_to_string(fixture.path("dotfiles.toml")).unwrap();
    assert!(text.contains("[later]") && !text.contains("fumehood"), "{text}");
    assert_eq!(fixture.run(&["mcp", "install", "--client", "emacs", "-p", "p.toml"]).code, 125);
}

#[test]
fn install_says_which_servers_stay_ungated() {
    let fixture = gateway_house();
    std::fs::create_dir(fixture.path("work/.vscode")).unwrap();
    std::fs::write(fixture.path("work/.vscode/mcp.json"), r#"{"servers": {"git": {"command": "uvx"}}}"#).unwrap();
    let args = ["mcp", "install", "--client", "vscode", "-p", "p.toml"];
    let said = fixture.run(&args);
    assert!(said.code == 0 && said.err.contains("stay ungated") && said.err.contains("`git`"), "{said:?}");
    let json: Json = serde_json::from_str(&fixture.run(&[&args[..], &["--json"]].concat()).out).unwrap();
    assert_eq!(json["ungated"], json!(["git"]));
    assert!(!fixture.run(&["mcp", "install", "--client", "cursor", "-p", "p.toml"]).err.contains("ungated"));
}

#[test]
fn what_a_server_offers_is_shown_and_entries_are_suggested_and_nothing_is_trusted_by_that() {
    let fixture = gateway_house();
    let said = fixture.run(&["tools", "ls", "-p", "p.toml", "--server", "s"]);
    assert!(said.code == 0, "{said:?}");
    for name in ["s.look", "s.count", "s.other"] {
        assert!(said.out.contains(name), "{}", said.out);
    }
    let json = fixture.run(&["tools", "ls", "-p", "p.toml", "--server", "s", "--json"]);
    let json: Json = serde_json::from_str(&json.out).unwrap();
    let listed = json["tools"].as_array().unwrap().iter().filter(|tool| tool["listed"] == true).count();
    assert_eq!((json["tools"].as_array().unwrap().len(), listed), (3, 1), "{json}");
    let said = fixture.run(&["tools", "suggest", "-p", "p.toml", "--server", "s"]);
    assert!(said.out.contains("name = \"s.other\"") && said.out.contains("# guards.path = "), "{}", said.out);
    std::fs::write(fixture.path("work/suggested.toml"), format!("version = 1\n{}", said.out)).unwrap();
    assert_eq!(fixture.run(&["tools", "ls", "-p", "suggested.toml"]).code, 0, "it is a policy");
    assert_eq!(fixture.run(&["mcp", "pins", "ls"]).out, "nothing is pinned\n", "looking trusts nothing");
    let said = fixture.run(&["tools", "ls", "-p", "p.toml", "--server", "none"]);
    assert!(said.code == 125 && said.err.contains("no server `none`"), "{said:?}");
    assert_eq!(fixture.run(&["tools", "suggest", "-p", "p.toml"]).code, 125);
}

#[test]
fn a_server_that_is_fetched_from_a_registry_is_told_when_the_gateway_loads() {
    let fixture = gateway_house();
    let file = r#"{"mcpServers": {"files": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/w"]}}}"#;
    std::fs::write(fixture.path("work/mcp.json"), file).unwrap();
    std::fs::write(
        fixture.path("work/npx.toml"),
        "version = 1\n[[tools.tool]]\nname = \"files.read\"\ndecision = \"allow\"\n[mcp.servers.more]\nimport = \"mcp.json\"\npolicy = \"python\"\n",
    )
    .unwrap();
    let said = fixture.run(&["mcp", "gateway", "-p", "npx.toml", "--lazy"]);
    assert!(said.err.contains("`npx` fetches `@modelcontextprotocol/server-filesystem`"), "{said:?}");
    assert!(said.err.contains("`fumehood mcp fetch files -p POLICY`"), "{said:?}");
    // Where one server is looked at, before it is waited for: what is said at the end of that has an `error:`.
    let gone = "version = 1\n[mcp.servers.gone]\ncommand = \"/nowhere/npx\"\nargs = [\"-y\", \"@example/server\"]\npolicy = \"python\"\n";
    std::fs::write(fixture.path("work/gone.toml"), gone).unwrap();
    let said = fixture.run(&["tools", "ls", "-p", "gone.toml", "--server", "gone"]);
    let (note, end) = said.err.split_once("error:").unwrap_or_else(|| panic!("{said:?}"));
    assert!(
        note.contains("note: `npx` fetches `@example/server`") && note.contains("`fumehood mcp fetch gone -p POLICY`"),
        "{said:?}"
    );
    assert!(said.code == 125 && end.contains("cannot be asked"), "{said:?}");
}

/// Whoever writes an entry of a client's file is not the caller: what runs outside for the policy is not started with its variables.
#[test]
#[expect(clippy::disallowed_methods, reason = "the control is started as anybody starts it")]
fn variables_of_an_entry_reach_no_program_outside_of_the_sandbox() {
    use std::os::unix::fs::PermissionsExt as _;
    let fixture = gateway_house();
    let (command, ran, taken) = (fixture.path("token.sh"), fixture.path("ran"), fixture.path("taken"));
    std::fs::write(&command, format!("#!/bin/bash\n: >'{}'\necho {VALUE}\n", ran.display())).unwrap();
    std::fs::set_permissions(&command, std::fs::Permissions::from_mode(0o755)).unwrap();
    let planted = format!("$(: >'{}')", taken.display());
    let control = std::process::Command::new(&command).env("BASH_ENV", &planted).output().unwrap();
    assert!(control.status.success() && taken.exists(), "bash runs what is planted there");
    for file in [&ran, &taken] {
        std::fs::remove_file(file).unwrap();
    }
    let entry = json!({ "command": "/bin/cat", "args": [], "env": { "BASH_ENV": planted, "OWN": "kept" } });
    std::fs::write(fixture.path("work/planted.json"), json!({ "mcpServers": { "a": entry } }).to_string()).unwrap();
    let inside = format!(
        "version = 1\nextends = \"strict\"\n[net]\nmode = \"allow\"\nallow = [\"api.test:443\"]\n[secrets.token]\nfrom = \"command:{}\"\nhosts = [\"api.test\"]\nenv = \"TOKEN\"\n",
        command.display()
    );
    std::fs::write(fixture.path("work/inside.toml"), inside).unwrap();
    let outside = "version = 1\n[[tools.tool]]\nname = \"a.b\"\ndecision = \"allow\"\n[mcp.servers.all]\nimport = \"planted.json\"\npolicy = \"./inside.toml\"\n";
    std::fs::write(fixture.path("work/outside.toml"), outside).unwrap();
    let said = fixture.run(&["tools", "ls", "-p", "outside.toml", "--server", "a"]);
    assert!(ran.exists(), "the secret's command was started: {said:?}");
    assert!(!taken.exists(), "{said:?}");
}

/// What the gateway's next start goes by: its policy, what that extends and imports, and the policies of its servers.
#[test]
fn a_server_writes_no_document_of_the_gateway_that_starts_it() {
    let fixture = Fixture::new();
    let inside = "version = 1\n[fs]\nroot = \"host\"\n[workspace]\npath = \".\"\nmode = \"rw\"\n[limits]\ndisk = \"none\"\nfiles = \"none\"\n";
    let gateway = "version = 1\nextends = \"./base.toml\"\n[mcp.servers.w]\ncommand = \"sh\"\nargs = [\"s.sh\"]\npolicy = \"./inside.toml\"\n\
                   [mcp.servers.v]\ncommand = \"cat\"\npolicy = \"./other.toml\"\n[mcp.servers.team]\nimport = \"./servers.json\"\n\
                   [[tools.tool]]\nname = \"w.*\"\ndecision = \"allow\"\neffect = \"read\"\n";
    let documents = [
        ("gw.toml", gateway),
        ("base.toml", "version = 1\n"),
        ("servers.json", "{\"mcpServers\":{}}"),
        ("inside.toml", inside),
        ("other.toml", "version = 1\nextends = \"./lower.toml\"\n"),
        ("lower.toml", "version = 1\n"),
    ];
    let names = documents.map(|(name, _)| name).join(" ");
    let script = format!("for name in {names} plain; do (echo '#x' >> $name) 2>> said; done\n");
    for (name, text) in documents.into_iter().chain([("s.sh", script.as_str())]) {
        std::fs::write(fixture.path("work").join(name), text).unwrap();
    }
    let said = fixture.run(&["tools", "ls", "-p", "gw.toml", "--server", "w"]);
    let read = |name: &str| std::fs::read_to_string(fixture.path("work").join(name)).unwrap_or_default();
    assert!(read("plain").starts_with("#x\n"), "the control: {said:?}");
    for (name, text) in documents {
        assert_eq!(read(name), text, "{name}: {}", read("said"));
    }
}
