//! What layers may do to tools: add entries and make the default stricter, never take away or soften.
//!
//! Everything else follows the rule of all layers: tables merge, lists and scalars of a later layer replace.

use std::path::Path;

use super::Layers;
use super::tree::merge;
use crate::diagnostic::quote;
use crate::document::{self, Format, Kind, Node, SourceSpan, Value};
use crate::read::tools::file_of_schema;

/// Puts a layer upon those below it.
pub(super) fn lay(below: &mut Node, mut above: Node) {
    let entries = take(below, "tool");
    let default = take(below, "default");
    add_entries(&mut above, entries);
    keep_stricter(&mut above, default);
    merge(below, above);
}

/// Takes a key out of `tools`.
fn take(tree: &mut Node, key: &str) -> Option<(document::Key, Node)> {
    let Value::Table(top) = &mut tree.value else { return None };
    let (_, tools) = top.iter_mut().find(|(name, _)| name.name == "tools")?;
    let Value::Table(entries) = &mut tools.value else { return None };
    let at = entries.iter().position(|(name, _)| name.name == key)?;
    Some(entries.remove(at))
}

/// The `tools` of a layer, made if it has none.
fn tools_of(tree: &mut Node, place: SourceSpan) -> Option<&mut Vec<(document::Key, Node)>> {
    let Value::Table(top) = &mut tree.value else { return None };
    if !top.iter().any(|(name, _)| name.name == "tools") {
        let key = document::Key { name: "tools".to_owned(), place };
        top.push((key, Node { value: Value::Table(Vec::new()), place }));
    }
    let (_, tools) = top.iter_mut().find(|(name, _)| name.name == "tools")?;
    match &mut tools.value {
        Value::Table(entries) => Some(entries),
        // Noted when this layer was read by itself; the policy is refused.
        Value::Null
        | Value::Bool(_)
        | Value::Integer(_)
        | Value::Float(_)
        | Value::Text(_)
        | Value::Bare(_)
        | Value::Array(_) => None,
    }
}

fn add_entries(above: &mut Node, below: Option<(document::Key, Node)>) {
    let Some((key, node)) = below else { return };
    let Some(tools) = tools_of(above, node.place) else { return };
    match tools.iter_mut().find(|(name, _)| name.name == "tool") {
        Some((_, later)) => {
            if let (Value::Array(first), Value::Array(more)) = (node.value, &mut later.value) {
                let more = std::mem::replace(more, first);
                if let Value::Array(all) = &mut later.value {
                    all.extend(more);
                }
                later.place = node.place;
            }
        }
        None => tools.push((key, node)),
    }
}

fn keep_stricter(above: &mut Node, below: Option<(document::Key, Node)>) {
    let Some((key, node)) = below else { return };
    let denies = |node: &Node| matches!(&node.value, Value::Text(text) | Value::Bare(text) if text == "deny");
    let Some(tools) = tools_of(above, node.place) else { return };
    match tools.iter_mut().find(|(name, _)| name.name == "default") {
        Some((_, later)) if denies(&node) => *later = node,
        Some(_) => {}
        None => tools.push((key, node)),
    }
}

impl Layers {
    /// `schema = { file = "x.json" }`: the file's content takes the place of the table, with places of its own.
    pub(super) fn schema_files(&mut self, tree: &mut Node, folder: &Path, loader: &dyn crate::load::Loader) {
        let Value::Table(top) = &mut tree.value else { return };
        let tools = top.iter_mut().find(|(name, _)| name.name == "tools");
        let Some((_, Node { value: Value::Table(tools), .. })) = tools else { return };
        let list = tools.iter_mut().find(|(name, _)| name.name == "tool");
        let Some((_, Node { value: Value::Array(list), .. })) = list else { return };
        for entry in list {
            let Value::Table(entry) = &mut entry.value else { continue };
            let Some((_, schema)) = entry.iter_mut().find(|(name, _)| name.name == "schema") else { continue };
            let Some((file, text)) = file_of_schema(schema) else { continue };
            let (place, text) = (file.place, text.to_owned());
            // What cannot be read is a mistake already; an empty table asks for no second one.
            let none = || Node { value: Value::Table(Vec::new()), place };
            *schema = self.schema_file(place, &text, folder, loader).unwrap_or_else(none);
        }
    }

    fn schema_file(
        &mut self,
        place: SourceSpan,
        text: &str,
        folder: &Path,
        loader: &dyn crate::load::Loader,
    ) -> Option<Node> {
        let what = format!("the schema {} cannot be read", quote(text));
        let mut no = |id: &'static str, why: String, fix: &str| {
            let fault = crate::read::fault(id, what.clone(), why, fix);
            self.reader().note("tools.tool.schema", place, fault);
            None
        };
        let path = match crate::read::normal(folder, text) {
            Ok(path) => path,
            Err((id, why, fix)) => return no(id, why, &fix),
        };
        let json = match loader.load(&path) {
            Ok(json) => json,
            Err(why) => return no("tools/schema-file", why, "check the path; it is relative to this document"),
        };
        let base = path.parent().unwrap_or(Path::new("/")).to_path_buf();
        self.tree(Kind::File, text, json, Format::Json, &base)
    }
}
