//! `[tools]` and `[mcp]`: the outer shape is checked here, the meaning by the tool gateway.
//!
//! No backend holds these clauses yet, so the planner refuses them; they are carried as canonical JSON until then.

use serde_json::{Map, Value as Json};

use super::{Reader, fault};
use crate::document::{Node, Value};

const TOOLS: &[&str] = &["default", "tool"];
const TOOL: &[&str] = &[
    "name",
    "decision",
    "effect",
    "schema",
    "guards",
    "rules",
    "rate",
    "budget",
    "concurrency",
    "timeout",
    "result",
    "approval",
    "examples",
];
const MCP: &[&str] = &["servers", "resources", "prompts", "sampling", "elicitation", "roots"];
const DECISIONS: &[(&str, ())] = &[("allow", ()), ("ask", ()), ("deny", ())];

impl Reader<'_> {
    pub(crate) fn tools(&mut self, tree: &Node) -> Option<Json> {
        let mut both = Map::new();
        if let Some(node) = tree.get("tools") {
            self.table("tools", node, TOOLS)?;
            if let Some(default) = node.get("default") {
                self.word("tools.default", default, &[("deny", ()), ("ask", ())])?;
            }
            for tool in
                node.get("tool").map(|list| self.items("tools.tool", list).unwrap_or_default()).unwrap_or_default()
            {
                self.tool(tool);
            }
            both.insert("tools".to_owned(), json(node));
        }
        if let Some(node) = tree.get("mcp") {
            self.table("mcp", node, MCP)?;
            both.insert("mcp".to_owned(), json(node));
        }
        (!both.is_empty()).then_some(Json::Object(both))
    }

    fn tool(&mut self, node: &Node) {
        let path = "tools.tool";
        let Some(table) = self.table(path, node, TOOL) else { return };
        match table.get("name") {
            Some(name) => {
                self.text(path, name);
            }
            None => {
                let why = "an entry judges the tools that it names";
                self.note(
                    path,
                    node.place,
                    fault("value/incomplete", "a tool has no `name`", why, "write name = \"mail.send\""),
                );
            }
        }
        if let Some(node) = table.get("decision") {
            self.word("tools.tool.decision", node, DECISIONS);
        }
        if let Some(node) = table.get("effect") {
            self.word("tools.tool.effect", node, &[("read", ()), ("write", ())]);
        }
        if let Some(node) = table.get("approval") {
            self.word("tools.tool.approval", node, &[("never", ()), ("first", ()), ("always", ())]);
        }
    }
}

/// A tree as JSON; numbers that JSON does not have become null.
pub(crate) fn json(node: &Node) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::Bool(on) => Json::Bool(*on),
        Value::Integer(number) => Json::from(*number),
        Value::Float(number) => Json::from(*number),
        Value::Text(text) | Value::Bare(text) => Json::String(text.clone()),
        Value::Array(items) => Json::Array(items.iter().map(json).collect()),
        Value::Table(entries) => {
            Json::Object(entries.iter().map(|(key, node)| (key.name.clone(), json(node))).collect())
        }
    }
}
