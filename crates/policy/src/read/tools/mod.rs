//! `[tools]` and `[mcp]`: every value checked for its shape; schemas, conditions and patterns are compiled by the broker.

mod entry;
mod limits;
mod mcp;

use serde_json::{Map, Value as Json};

use super::{Reader, fault};
use crate::diagnostic::quote;
use crate::document::{Node, Value};
use crate::span::{Span, Spanned};
use crate::tools::{Decision, Tools};

pub(crate) use entry::file_of_schema;

const TOOLS: &[&str] = &["default", "tool"];
const DEFAULTS: &[(&str, Decision)] = &[("deny", Decision::Deny), ("ask", Decision::Ask)];
/// More entries than this are no policy that somebody reads.
const MAX_TOOLS: usize = 10_000;

impl Reader<'_> {
    pub(crate) fn tools(&mut self, tree: &Node) -> Option<Box<Tools>> {
        let (tools, mcp) = (tree.get("tools"), tree.get("mcp"));
        if tools.is_none() && mcp.is_none() {
            return None;
        }
        let mut written = Map::new();
        let mut read = Tools {
            default: Decision::Deny,
            entries: Vec::new(),
            mcp: crate::tools::Mcp::default(),
            written: Json::Null,
        };
        if let Some(node) = tools {
            self.table("tools", node, TOOLS)?;
            if let Some(default) = node.get("default") {
                read.default = self.default_decision(default).unwrap_or(Decision::Deny);
            }
            let list = node.get("tool").and_then(|list| self.items("tools.tool", list)).unwrap_or_default();
            if list.len() > MAX_TOOLS {
                let what = format!("`tools.tool` has {} entries", list.len());
                let why = format!("{MAX_TOOLS} are the most that are read");
                self.note("tools.tool", node.place, fault("document/size", what, why, "use globs"));
                return None;
            }
            read.entries = list.iter().filter_map(|node| self.tool(node)).collect();
            written.insert("tools".to_owned(), json(node));
        }
        if let Some(node) = mcp {
            read.mcp = self.mcp(node)?;
            written.insert("mcp".to_owned(), json(node));
        }
        read.written = Json::Object(written);
        Some(Box::new(read))
    }

    fn default_decision(&mut self, node: &Node) -> Option<Decision> {
        if let Value::Text(text) | Value::Bare(text) = &node.value
            && text == "allow"
        {
            let why = "a tool that nobody named would be called with anything";
            let fix = "name the tools that may be called, or write \"ask\"";
            let what = format!("`tools.default` is {}", quote(text));
            self.note("tools.default", node.place, fault("tools/default-allow", what, why, fix));
            return None;
        }
        self.keyword("tools.default", node, DEFAULTS)
    }

    /// Texts with their places.
    pub(crate) fn spotted_texts(&mut self, path: &str, node: &Node) -> Option<Vec<Spanned<String>>> {
        let items = self.items(path, node)?;
        let one = |reader: &mut Self, item: &Node| Some(spotted(reader.text(path, item)?, item));
        Some(items.iter().filter_map(|item| one(self, item)).collect())
    }
}

/// A value and where it stands.
pub(crate) const fn spotted<T>(value: T, node: &Node) -> Spanned<T> {
    Spanned { value, at: Span(node.place) }
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
