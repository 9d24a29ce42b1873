//! One `[[tools.tool]]`.

use serde_json::Value as Json;

use super::super::{Reader, fault};
use super::{json, spotted};
use crate::diagnostic::quote;
use crate::document::{self, Format, Kind, Node, Source, SourceSpan, Value};
use crate::guards::Guard;
use crate::names::{NameFlaw, flaw_of_entry};
use crate::span::{Span, Spanned};
use crate::tools::{Approval, ApprovalBy, Decision, Effect, Example, Rule, ToolEntry};

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
const DECISIONS: &[(&str, Decision)] = &[("allow", Decision::Allow), ("ask", Decision::Ask), ("deny", Decision::Deny)];
const EFFECTS: &[(&str, Effect)] = &[("read", Effect::Read), ("write", Effect::Write)];
const APPROVALS: &[(&str, Approval)] =
    &[("never", Approval::Never), ("first", Approval::First), ("always", Approval::Always)];
const APPROVERS: &[(&str, ApprovalBy)] = &[("anyone", ApprovalBy::Anyone), ("person", ApprovalBy::Person)];
const APPROVAL: &[&str] = &["when", "by"];
const RULE: &[&str] = &["when", "decision", "message"];
const EXAMPLE: &[&str] = &["tool", "args", "expect"];
/// Longest condition; the broker's engine has the same bound.
const MAX_WHEN: usize = 4096;

impl Reader<'_> {
    pub(super) fn tool(&mut self, node: &Node) -> Option<ToolEntry> {
        let path = "tools.tool";
        let table = self.table(path, node, TOOL)?;
        let name = self.tool_name(table);
        let mut entry = ToolEntry::bare(name.unwrap_or_else(|| spotted(String::new(), node)));
        let get = |key: &str| table.get(key);
        if let Some(node) = get("decision") {
            entry.decision = self.keyword("tools.tool.decision", node, DECISIONS).unwrap_or(Decision::Deny);
        }
        entry.effect = get("effect").and_then(|node| self.keyword("tools.tool.effect", node, EFFECTS));
        entry.schema = get("schema").and_then(|node| self.tool_schema(node));
        if let Some(node) = get("guards") {
            self.guards("tools.tool.guards", "", node, &mut entry.guards);
        }
        if let Some(node) = get("rules") {
            let items = self.items("tools.tool.rules", node).unwrap_or_default();
            entry.rules = items.iter().filter_map(|item| self.tool_rule(item)).collect();
        }
        self.tool_limits(table, &mut entry);
        if let Some(node) = get("approval") {
            self.approval(node, &mut entry);
        }
        if let Some(node) = get("examples") {
            let items = self.items("tools.tool.examples", node).unwrap_or_default();
            entry.examples = items.iter().filter_map(|item| self.example(item, &entry.name.value)).collect();
        }
        Some(entry)
    }

    /// A word, which says when somebody is asked, or a table of that and of who may answer.
    fn approval(&mut self, node: &Node, entry: &mut ToolEntry) {
        let path = "tools.tool.approval";
        if !matches!(node.value, Value::Table(_)) {
            entry.approval = self.keyword(path, node, APPROVALS).unwrap_or(Approval::Always);
            return;
        }
        let Some(table) = self.table(path, node, APPROVAL) else { return };
        if let Some(node) = table.get("when") {
            entry.approval = self.keyword("tools.tool.approval.when", node, APPROVALS).unwrap_or(Approval::Always);
        }
        if let Some(node) = table.get("by") {
            let by = self.keyword("tools.tool.approval.by", node, APPROVERS);
            entry.approval_by = Some(by.unwrap_or(ApprovalBy::Person));
        }
    }

    fn tool_name(&mut self, table: &Node) -> Option<Spanned<String>> {
        let path = "tools.tool.name";
        let Some(node) = table.get("name") else {
            let why = "an entry judges the tools that it names";
            let fault = fault("value/incomplete", "a tool has no `name`", why, "write name = \"mail.send\"");
            let start = SourceSpan { end: table.place.start.saturating_add(1), ..table.place };
            self.note(path, start, fault);
            return None;
        };
        let text = self.text(path, node)?;
        if let Some(NameFlaw { why, fix }) = flaw_of_entry(&text) {
            let what = format!("{} is not the name of a tool", quote(&text));
            self.note(path, node.place, fault("tools/name", what, why, fix));
            return None;
        }
        Some(spotted(text, node))
    }

    /// A table, a text of JSON, or `{ file = ... }`, which the layers have replaced by the file's content where they could.
    fn tool_schema(&mut self, node: &Node) -> Option<Spanned<Json>> {
        let path = "tools.tool.schema";
        match &node.value {
            Value::Table(_) if file_of_schema(node).is_some() => {
                let why = "files are read for documents, relative to them; not for flags, and not by another file";
                let fix = "write the schema into the document, or name the file there";
                self.note(
                    path,
                    node.place,
                    fault("tools/schema-file", "a schema's `file` cannot be read here", why, fix),
                );
                None
            }
            Value::Table(_) => Some(spotted(json(node), node)),
            Value::Text(text) | Value::Bare(text) => self.schema_text(path, node, text),
            Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Float(_) | Value::Array(_) => {
                let fix = "write a table, a text of JSON, or { file = \"schema.json\" }";
                self.wrong_type(path, node, "a JSON Schema", fix);
                None
            }
        }
    }

    fn schema_text(&mut self, path: &str, node: &Node, text: &str) -> Option<Spanned<Json>> {
        let base = std::path::PathBuf::new();
        let source =
            Source { kind: Kind::File, format: Format::Json, name: String::new(), text: text.to_owned(), base };
        let (tree, flaws) = document::parse_flaws(node.place.source, &source);
        if flaws.is_empty()
            && let Some(tree) = tree
            && let Value::Table(_) = tree.value
        {
            return Some(spotted(json(&tree), node));
        }
        if flaws.is_empty() {
            self.wrong_type(
                path,
                node,
                "a JSON Schema",
                "a schema of arguments is an object: {\"type\": \"object\", ...}",
            );
        }
        for flaw in flaws {
            let place = self.inside(node.place, text, flaw.range);
            self.note(path, place, fault(flaw.id, format!("`{path}`: {}", flaw.what), flaw.why, flaw.fix));
        }
        None
    }

    /// The place of a part of a text; of the whole text where it is not written as it reads (escapes).
    fn inside(&self, place: SourceSpan, text: &str, range: std::ops::Range<usize>) -> SourceSpan {
        let Some(source) = self.source(place) else { return place };
        source.inside(place, text, range).unwrap_or(place)
    }

    /// A table of guards by argument; a table without a `kind` is about the parts of an argument.
    fn guards(&mut self, path: &str, prefix: &str, node: &Node, list: &mut Vec<(Spanned<String>, Spanned<Guard>)>) {
        let Value::Table(entries) = &node.value else {
            let fix = "write it as a table: { kind = \"email\", domains = [\"example.org\"] }";
            self.wrong_type(
                &format!("{path}{}{prefix}", if prefix.is_empty() { "" } else { "." }),
                node,
                "a guard",
                fix,
            );
            return;
        };
        if entries.is_empty() && !prefix.is_empty() {
            let what = format!("the guard of `{prefix}` says nothing");
            let why = "a guard has a `kind`";
            self.note(
                path,
                node.place,
                fault("value/incomplete", what, why, "write kind = \"pattern\" and what it needs"),
            );
        }
        for (key, node) in entries {
            let name = if prefix.is_empty() { key.name.clone() } else { format!("{prefix}.{}", key.name) };
            let is_guard = node.get("kind").is_some_and(|kind| !matches!(kind.value, Value::Table(_)));
            if !is_guard {
                self.guards(path, &name, node, list);
                continue;
            }
            if !is_argument(&name) {
                let what = format!("{} names no argument", quote(&name));
                let why = "an argument is `to`, `message.to`, or `recipients[]` for each element";
                self.note(path, key.place, fault("tools/argument", what, why, "write the name of the argument"));
                continue;
            }
            if let Some(guard) = self.guard(&format!("{path}.{name}"), node) {
                list.push((Spanned { value: name, at: Span(key.place) }, guard));
            }
        }
    }

    fn tool_rule(&mut self, node: &Node) -> Option<Rule> {
        let path = "tools.tool.rules";
        let table = self.table(path, node, RULE)?;
        let Some(when) = table.get("when") else {
            let why = "a rule has a condition";
            self.note(
                path,
                node.place,
                fault("value/incomplete", "a rule has no `when`", why, "write when = \"args.amount > 100\""),
            );
            return None;
        };
        let text = self.text("tools.tool.rules.when", when)?;
        if text.trim().is_empty() || text.len() > MAX_WHEN {
            let what = format!("a condition has {} bytes", text.len());
            let why = format!("conditions have 1 to {MAX_WHEN}");
            self.note(path, when.place, fault("value/range", what, why, "divide it into several rules"));
            return None;
        }
        let mut decision = Decision::Deny;
        if let Some(node) = table.get("decision") {
            decision = self.rule_decision(node)?;
        }
        let message = match table.get("message") {
            Some(node) => self.text("tools.tool.rules.message", node)?,
            None => String::new(),
        };
        Some(Rule { when: spotted(text, when), decision, message })
    }

    fn rule_decision(&mut self, node: &Node) -> Option<Decision> {
        let decision = self.keyword("tools.tool.rules.decision", node, DECISIONS)?;
        if decision == Decision::Allow {
            let what = "a rule says `allow`";
            let why =
                "rules make a decision stricter: the strictest of all that match counts, so it would never do anything";
            let fix = "write when a call is to be asked about or denied; the entry's `decision` allows";
            self.note("tools.tool.rules.decision", node.place, fault("tools/rule-allow", what, why, fix));
            return None;
        }
        Some(decision)
    }

    fn example(&mut self, node: &Node, name: &str) -> Option<Example> {
        let path = "tools.tool.examples";
        let table = self.table(path, node, EXAMPLE)?;
        let mut missing = |key: &str, fix: &str| {
            let what = format!("an example has no `{key}`");
            let why = "an example is a call and what must become of it";
            self.note(path, node.place, fault("value/incomplete", what, why, fix.to_owned()));
        };
        let Some(expect) = table.get("expect") else {
            missing("expect", "write expect = \"allow\", \"ask\" or \"deny\"");
            return None;
        };
        if table.get("tool").is_none() && name.contains('*') {
            missing("tool", "the entry is a glob: write tool = \"server.tool\"");
            return None;
        }
        let args = match table.get("args") {
            Some(Node { value: Value::Table(_), .. }) => table.get("args").map(json)?,
            Some(node) => {
                self.wrong_type("tools.tool.examples.args", node, "a table", "write { to = \"a@example.org\" }");
                return None;
            }
            None => Json::Object(serde_json::Map::new()),
        };
        let tool = match table.get("tool") {
            Some(node) => Some(self.text("tools.tool.examples.tool", node)?),
            None => None,
        };
        let expect = self.keyword("tools.tool.examples.expect", expect, DECISIONS)?;
        Some(Example { tool, args, expect, at: Span(node.place) })
    }
}

/// The path of `schema = { file = "x.json" }`: no JSON Schema has only a `file`.
pub(crate) fn file_of_schema(node: &Node) -> Option<(&Node, &str)> {
    if let [(key, file)] = node.entries()
        && key.name == "file"
    {
        match &file.value {
            Value::Text(text) | Value::Bare(text) => Some((file, text)),
            Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Float(_) | Value::Array(_) | Value::Table(_) => {
                None
            }
        }
    } else {
        None
    }
}

/// `to`, `message.to`, `recipients[]`, `rows[].name`.
fn is_argument(path: &str) -> bool {
    path.split('.').all(|part| {
        let name = part.trim_end_matches("[]");
        !name.is_empty() && !name.contains(['[', ']'])
    })
}
