//! `fumehood mcp install --move`: the client's other servers behind the gateway, and back again.

use serde_json::{Value as Json, json};

use crate::Fixture;
use crate::mcp::Client;

const SERVER: &str = include_str!("server.py");

/// A project with a client's file, and a policy that allows a tool of the server `mine`.
fn fixture(file: &str, text: &str) -> Fixture {
    let fixture = Fixture::new();
    let path = fixture.path("work").join(file);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, text).unwrap();
    let policy =
        "version = 1\n[[tools.tool]]\nname = \"mine.look\"\ndecision = \"allow\"\neffect = \"read\"\n# the end";
    std::fs::write(fixture.path("work/p.toml"), policy).unwrap();
    fixture
}

fn read(fixture: &Fixture, name: &str) -> String {
    std::fs::read_to_string(fixture.path("work").join(name)).unwrap()
}

const VSCODE: &str = r#"{
  // ours
  "servers": {
    "mine": {"command": "python3", "args": ["-c", "print()"]}, // keep
    "asks": {"command": "x", "env": {"K": "${input:key}"}},
    "off": {"command": "x", "disabled": true},
  },
}
"#;

#[test]
fn others_move_behind_the_gateway_and_come_back_to_the_byte() {
    let fixture = fixture(".vscode/mcp.json", VSCODE);
    let policy = read(&fixture, "p.toml");
    let args = ["mcp", "install", "--client", "vscode", "-p", "p.toml"];
    let without = fixture.run(&args);
    assert!(without.err.contains("`mine`") && without.err.contains("`--move` takes them over"), "{without:?}");
    assert_eq!(read(&fixture, "p.toml"), policy, "nothing moves that nobody asked for");

    let moving = [&args[..], &["--move"]].concat();
    let dry = fixture.run(&[&moving[..], &["--dry-run"]].concat());
    assert!(dry.out.contains("-    \"mine\"") && dry.out.contains("+import = "), "{dry:?}");
    assert_eq!(read(&fixture, "p.toml"), policy);

    let moved = fixture.run(&moving);
    assert_eq!(moved.code, 0, "{moved:?}");
    assert!(moved.err.contains("moved behind the gateway: `mine`"), "{moved:?}");
    assert!(moved.err.contains("`asks` (") && moved.err.contains("nobody can type"), "{moved:?}");
    assert!(moved.err.contains("`off` (it is switched off there)"), "{moved:?}");
    let client = read(&fixture, ".vscode/mcp.json");
    assert!(!client.contains("\"mine\"") && client.contains("\"asks\"") && client.contains("// ours"), "{client}");
    let gated: Json = serde_json::from_str(&read(&fixture, ".vscode/mcp.gated.json")).unwrap();
    assert_eq!(gated["mcpServers"]["mine"]["command"], "python3");
    assert!(read(&fixture, "p.toml").starts_with(&format!("{policy}\n")));
    assert_eq!(fixture.run(&moving).code, 0, "once more moves nothing");

    assert_eq!(fixture.run(&["mcp", "install", "--client", "vscode", "--undo"]).code, 0);
    assert_eq!(read(&fixture, ".vscode/mcp.json"), VSCODE);
    assert_eq!(read(&fixture, "p.toml"), format!("{policy}\n"));
    assert!(!fixture.path("work/.vscode/mcp.gated.json").exists());
}

#[test]
fn a_server_that_moved_is_judged_and_runs_in_a_sandbox() {
    let server = SERVER.replace("open(\"/opt/server/words\").read()", "\"what it does\"");
    let entry = json!({"mcpServers": {"mine": {"command": "python3", "args": ["-c", server]}}});
    let fixture = fixture(".mcp.json", &entry.to_string());
    let said = fixture.run(&["mcp", "install", "--client", "claude-code", "-p", "p.toml", "--move", "--json"]);
    assert_eq!(said.json()["moved"], json!(["mine"]), "{said:?}");
    let mut client = Client::new(&fixture, &["mcp", "gateway", "-p", "p.toml"]);
    assert_eq!(client.tools(), ["mine__look"]);
    std::fs::write(fixture.path("work/canary"), "CANARY").unwrap();
    let canary = fixture.path("work/canary").display().to_string();
    let answer = client.call("mine__look", &json!({ "path": canary }));
    assert!(answer.to_string().contains("No such file"), "{answer}");
    assert_eq!(client.end(), 0);
}

#[test]
fn entries_come_back_too_where_somebody_has_written_the_file_since() {
    let text = "model = \"x\"\n\n[mcp_servers.mine]\ncommand = \"python3\"\nargs = [\"-V\"]\n";
    let fixture = fixture("codex/config.toml", text);
    let args = ["mcp", "install", "--client", "codex", "--file", "codex/config.toml"];
    let said = fixture.run(&[&args[..], &["-p", "p.toml", "--move"]].concat());
    assert!(said.code == 0 && said.err.contains("`mine`"), "{said:?}");
    assert!(!read(&fixture, "codex/config.toml").contains("mcp_servers.mine"));
    let written = read(&fixture, "codex/config.toml") + "\n[profile]\nname = \"y\"\n";
    std::fs::write(fixture.path("work/codex/config.toml"), written).unwrap();
    let undone = fixture.run(&[&args[..], &["--undo"]].concat());
    assert_eq!(undone.code, 0, "{undone:?}");
    let back = read(&fixture, "codex/config.toml");
    assert!(back.contains("[mcp_servers.mine]") && back.contains("\"-V\"") && back.contains("[profile]"), "{back}");
    assert!(!back.contains("fumehood"), "{back}");
}

#[test]
fn nothing_moves_where_it_could_not_be_taken_back_or_would_break_the_policy() {
    let text = r#"{"mcpServers": {"mine": {"command": "python3"}}}"#;
    let fixture = fixture(".mcp.json", text);
    let args = ["mcp", "install", "--client", "claude-code", "--move", "-p"];
    let preset = fixture.run(&[&args[..], &["python"]].concat());
    assert!(preset.code == 125 && preset.err.contains("no file of a policy"), "{preset:?}");
    // A file of somebody else's in the place where the entries would go.
    std::fs::write(fixture.path("work/.mcp.gated.json"), "{}").unwrap();
    let foreign = fixture.run(&[&args[..], &["p.toml"]].concat());
    assert!(foreign.code == 125 && foreign.err.contains("it is not the file of servers"), "{foreign:?}");
    std::fs::remove_file(fixture.path("work/.mcp.gated.json")).unwrap();
    // A policy in which a table cannot stand at the end.
    let inline = "version = 1\nmcp = { servers = {} }\n";
    std::fs::write(fixture.path("work/p.toml"), inline).unwrap();
    let broken = fixture.run(&[&args[..], &["p.toml"]].concat());
    assert_ne!(broken.code, 0, "{broken:?}");
    assert_eq!((read(&fixture, ".mcp.json").as_str(), read(&fixture, "p.toml").as_str()), (text, inline));
    assert!(!fixture.path("work/.mcp.gated.json").exists());
    // A name that the policy has already stays with the client.
    let named = "version = 1\n[mcp.servers.mine]\ncommand = \"true\"\n[[tools.tool]]\nname = \"mine.x\"\n";
    std::fs::write(fixture.path("work/p.toml"), named).unwrap();
    let said = fixture.run(&[&args[..], &["p.toml"]].concat());
    assert!(said.code == 0 && said.err.contains("the policy has a server `mine` already"), "{said:?}");
}
