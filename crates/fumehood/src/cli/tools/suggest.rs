//! `fumehood tools suggest`: entries for the tools of a server, to begin a policy with.
//!
//! What a tool says of itself is a hint of whoever wrote it: every suggested entry asks a person, and what looks like a path,
//! an address or a command gets a guard to be filled in.

use gateway::mcp::upstream_pool::Offered;
use policy::tools::Effect;
use serde_json::json;

use super::offered::{SERVER, arguments, offered, summary};
use crate::cli::args::{Positionals, usage};
use crate::cli::flags::POLICY;
use crate::cli::spec::{Call, Spec};
use crate::ui::Failure;

pub(in crate::cli) const SPEC: Spec = Spec {
    path: &["tools", "suggest"],
    about: "Write entries for the tools that an MCP server offers, to begin a policy with",
    usage: "-p POLICY --server NAME",
    more: "Prints [[tools.tool]] entries for a policy; each asks a person until you decide otherwise. The server is started\n\
           in its sandbox for that, and nothing it says is trusted by it. With --json: {schema, server, toml, notes}.\n\
           Exit code 0, 125 if the server cannot be asked, 126 if the policy is wrong.",
    tables: &[POLICY, SERVER],
    words: Positionals::Mixed(0),
    hidden: false,
    run,
};

fn run(call: &mut Call<'_>) -> Result<u8, Failure> {
    let Some((server, tools, notes)) = offered(call)? else {
        let why = "entries are about the tools of one server".to_owned();
        let fix = "`--server NAME`, as in [mcp.servers.NAME]".to_owned();
        return Err(Failure::own(usage("usage/missing-value", "no server was named".to_owned(), why, fix)));
    };
    let text: String = tools.iter().map(entry).collect::<Vec<_>>().join("\n");
    if call.json {
        call.console.json(&json!({ "schema": 1, "server": server, "toml": text, "notes": notes }))?;
        return Ok(0);
    }
    call.console.data(text.as_bytes())?;
    for note in notes {
        call.console.eprint(&format!("note: {note}\n"));
    }
    Ok(0)
}

/// One entry, as it can stand in a policy.
fn entry(tool: &Offered) -> String {
    let effect = if tool.facts.effect == Some(Effect::Read) { "read" } else { "write" };
    let mut text = String::new();
    let words = summary(tool, 100);
    if !words.is_empty() {
        text.push_str(&format!("# {words}\n"));
    }
    // A name of a tool is letters, digits and `_-./`; a text of JSON is one of TOML.
    text.push_str(&format!("[[tools.tool]]\nname = {}\n", json!(tool.name)));
    text.push_str("decision = \"ask\"                       # \"allow\" when you know what it does\n");
    text.push_str(&format!("effect = \"{effect}\"\n"));
    for name in arguments(tool) {
        if let Some(guard) = guard(name, effect) {
            text.push_str(&format!("{guard}\n"));
        }
    }
    text
}

/// A guard for an argument whose name says what it is; its bounds are to be chosen, so it is a comment.
fn guard(name: &str, effect: &str) -> Option<String> {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || !name.chars().all(bare) {
        return None;
    }
    let lower = name.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    let kind = if has(&["path", "file", "dir", "folder"]) {
        format!("kind = \"path\", roots = [\".\"], access = \"{effect}\"")
    } else if has(&["url", "uri", "endpoint"]) {
        "kind = \"url\", hosts = [\"example.com\"]".to_owned()
    } else if has(&["sql", "query"]) {
        "kind = \"sql\", dialect = \"sqlite\", read_only = true".to_owned()
    } else if has(&["command", "cmd", "shell"]) {
        "kind = \"command\", presets = [\"inspect\"]".to_owned()
    } else if has(&["email", "recipient"]) {
        "kind = \"email\", domains = [\"example.com\"]".to_owned()
    } else {
        return None;
    };
    let each =
        if lower.ends_with('s') && !lower.ends_with("ss") { " # or guards.\"NAME[]\" where it is a list" } else { "" };
    Some(format!("# guards.{name} = {{ {kind} }}{}", each.replace("NAME", name)))
}

#[cfg(test)]
mod tests {
    use gate::call::ToolFacts;
    use policy::tools::Decision;

    use super::*;

    fn tool(effect: Option<Effect>, arguments: &[&str]) -> Offered {
        let properties: serde_json::Map<_, _> = arguments.iter().map(|name| ((*name).to_owned(), json!({}))).collect();
        let facts = ToolFacts {
            effect,
            input_schema: Some(json!({ "type": "object", "properties": properties })),
            ..ToolFacts::default()
        };
        Offered { name: "files.read_text".into(), description: "Reads\u{202e} a file\n# [evil]".into(), facts }
    }

    #[test]
    fn a_suggested_entry_is_one_of_a_policy_that_asks() {
        let text = entry(&tool(Some(Effect::Read), &["path", "x\"y", "paths"]));
        let document = format!("version = 1\n{text}");
        let mut layers = policy::Layers::new(policy::Caller { dir: "/".into(), ..policy::Caller::default() });
        layers.policy("./p.toml", &|_: &std::path::Path| Ok(document.clone()));
        let loaded = layers.finish().unwrap_or_else(|mistakes| panic!("{mistakes}\n{document}"));
        let tools = loaded.policy.tools.unwrap();
        assert_eq!(tools.entries.len(), 1);
        assert_eq!(tools.entries[0].decision, Decision::Ask);
        assert_eq!(tools.entries[0].effect, Some(Effect::Read));
        assert!(text.contains("# guards.path = { kind = \"path\"") && !text.contains("x\"y"), "{text}");
        assert!(!text.contains('\u{202e}') && !text.contains("[evil]"), "{text}");
        assert!(entry(&tool(None, &[])).contains("effect = \"write\""), "who says nothing writes");
    }
}
