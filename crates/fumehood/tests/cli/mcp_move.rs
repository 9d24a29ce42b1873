//! `fumehood mcp install --move`: the client's other servers behind the gateway, and back again.

use serde_json::{Value as Json, json};

use crate::House;
use crate::mcp::Client;

const SERVER: &str = include_str!("server.py");

/// A project with a client's file, and a policy that allows a tool of the server `mine`.
fn house(file: &str, text: &str) -> House {
    let house = House::new();
    let path = house.path("work").join(file);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, text).unwrap();
    let policy =
        "version = 1\n[[tools.tool]]\nname = \"mine.look\"\ndecision = \"allow\"\neffect = \"read\"\n# the end";
    std::fs::write(house.path("work/p.toml"), policy).unwrap();
    house
}

fn read(house: &House, name: &str) -> String {
    std::fs::read_to_string(house.path("work").join(name)).unwrap()
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
    let house = house(".vscode/mcp.json", VSCODE);
    let policy = read(&house, "p.toml");
    let args = ["mcp", "install", "--client", "vscode", "-p", "p.toml"];
    let without = house.run(&args);
    assert!(without.err.contains("`mine`") && without.err.contains("`--move` takes them over"), "{without:?}");
    assert_eq!(read(&house, "p.toml"), policy, "nothing moves that nobody asked for");

    let moving = [&args[..], &["--move"]].concat();
    let dry = house.run(&[&moving[..], &["--dry-run"]].concat());
    assert!(dry.out.contains("-    \"mine\"") && dry.out.contains("+import = "), "{dry:?}");
    assert_eq!(read(&house, "p.toml"), policy);

    let moved = house.run(&moving);
    assert_eq!(moved.code, 0, "{moved:?}");
    assert!(moved.err.contains("moved behind the gateway: `mine`"), "{moved:?}");
    assert!(moved.err.contains("`asks` (") && moved.err.contains("nobody can type"), "{moved:?}");
    assert!(moved.err.contains("`off` (it is switched off there)"), "{moved:?}");
    let client = read(&house, ".vscode/mcp.json");
    assert!(!client.contains("\"mine\"") && client.contains("\"asks\"") && client.contains("// ours"), "{client}");
    let gated: Json = serde_json::from_str(&read(&house, ".vscode/mcp.gated.json")).unwrap();
    assert_eq!(gated["mcpServers"]["mine"]["command"], "python3");
    assert!(read(&house, "p.toml").starts_with(&format!("{policy}\n")));
    assert_eq!(house.run(&moving).code, 0, "once more moves nothing");

    assert_eq!(house.run(&["mcp", "install", "--client", "vscode", "--undo"]).code, 0);
    assert_eq!(read(&house, ".vscode/mcp.json"), VSCODE);
    assert_eq!(read(&house, "p.toml"), format!("{policy}\n"));
    assert!(!house.path("work/.vscode/mcp.gated.json").exists());
}

#[test]
fn a_server_that_moved_is_judged_and_runs_in_a_sandbox() {
    let server = SERVER.replace("open(\"/opt/server/words\").read()", "\"what it does\"");
    let entry = json!({"mcpServers": {"mine": {"command": "python3", "args": ["-c", server]}}});
    let house = house(".mcp.json", &entry.to_string());
    let said = house.run(&["mcp", "install", "--client", "claude-code", "-p", "p.toml", "--move", "--json"]);
    assert_eq!(said.json()["moved"], json!(["mine"]), "{said:?}");
    let mut client = Client::new(&house, &["mcp", "gateway", "-p", "p.toml"]);
    assert_eq!(client.tools(), ["mine__look"]);
    std::fs::write(house.path("work/canary"), "CANARY").unwrap();
    let canary = house.path("work/canary").display().to_string();
    let answer = client.call("mine__look", &json!({ "path": canary }));
    assert!(answer.to_string().contains("No such file"), "{answer}");
    assert_eq!(client.end(), 0);
}

#[test]
fn entries_come_back_too_where_somebody_has_written_the_file_since() {
    let text = "model = \"x\"\n\n[mcp_servers.mine]\ncommand = \"python3\"\nargs = [\"-V\"]\n";
    let house = house("codex/config.toml", text);
    let args = ["mcp", "install", "--client", "codex", "--file", "codex/config.toml"];
    let said = house.run(&[&args[..], &["-p", "p.toml", "--move"]].concat());
    assert!(said.code == 0 && said.err.contains("`mine`"), "{said:?}");
    assert!(!read(&house, "codex/config.toml").contains("mcp_servers.mine"));
    let written = read(&house, "codex/config.toml") + "\n[profile]\nname = \"y\"\n";
    std::fs::write(house.path("work/codex/config.toml"), written).unwrap();
    let undone = house.run(&[&args[..], &["--undo"]].concat());
    assert_eq!(undone.code, 0, "{undone:?}");
    let back = read(&house, "codex/config.toml");
    assert!(back.contains("[mcp_servers.mine]") && back.contains("\"-V\"") && back.contains("[profile]"), "{back}");
    assert!(!back.contains("fumehood"), "{back}");
}

#[test]
fn nothing_moves_where_it_could_not_be_taken_back_or_would_break_the_policy() {
    let text = r#"{"mcpServers": {"mine": {"command": "python3"}}}"#;
    let house = house(".mcp.json", text);
    let args = ["mcp", "install", "--client", "claude-code", "--move", "-p"];
    let preset = house.run(&[&args[..], &["python"]].concat());
    assert!(preset.code == 125 && preset.err.contains("no file of a policy"), "{preset:?}");
    // A file of somebody else's in the place where the entries would go.
    std::fs::write(house.path("work/.mcp.gated.json"), "{}").unwrap();
    let foreign = house.run(&[&args[..], &["p.toml"]].concat());
    assert!(foreign.code == 125 && foreign.err.contains("it is not the file of servers"), "{foreign:?}");
    std::fs::remove_file(house.path("work/.mcp.gated.json")).unwrap();
    // A policy in which a table cannot stand at the end.
    let inline = "version = 1\nmcp = { servers = {} }\n";
    std::fs::write(house.path("work/p.toml"), inline).unwrap();
    let broken = house.run(&[&args[..], &["p.toml"]].concat());
    assert_ne!(broken.code, 0, "{broken:?}");
    assert_eq!((read(&house, ".mcp.json").as_str(), read(&house, "p.toml").as_str()), (text, inline));
    assert!(!house.path("work/.mcp.gated.json").exists());
    // A name that the policy has already stays with the client.
    let named = "version = 1\n[mcp.servers.mine]\ncommand = \"true\"\n[[tools.tool]]\nname = \"mine.x\"\n";
    std::fs::write(house.path("work/p.toml"), named).unwrap();
    let said = house.run(&[&args[..], &["p.toml"]].concat());
    assert!(said.code == 0 && said.err.contains("the policy has a server `mine` already"), "{said:?}");
}
