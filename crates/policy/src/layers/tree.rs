//! Trees upon trees: merging, joining lists, and where a value came from.

use std::path::PathBuf;

use crate::clause::ClauseId;
use crate::document::{self, DEFAULT_ORIGIN, Format, Key, Kind, Node, Source, SourceSpan, Value};

/// A table with one entry.
pub(super) fn wrap(name: &str, node: Node, place: SourceSpan) -> Node {
    Node { value: Value::Table(vec![(Key { name: name.to_owned(), place }, node)]), place }
}

/// A flag's value in TOML's own spelling; its parts get the place of the flag.
pub(super) fn typed(value: &str, place: SourceSpan) -> Option<Value> {
    if !value.starts_with(['[', '{', '"', '\'']) {
        return None;
    }
    let text = format!("v = {value}");
    let source = Source { kind: Kind::Flag, format: Format::Toml, name: String::new(), text, base: PathBuf::new() };
    let (tree, mistakes) = document::parse(0, &source);
    let mut node = tree.filter(|_| mistakes.is_empty())?.get("v")?.clone();
    replace(&mut node, place);
    Some(node.value)
}

fn replace(node: &mut Node, place: SourceSpan) {
    node.place = place;
    match &mut node.value {
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, place)),
        Value::Table(entries) => {
            for (key, node) in entries {
                key.place = place;
                replace(node, place);
            }
        }
        Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Float(_) | Value::Text(_) | Value::Bare(_) => {}
    }
}

/// Puts one tree upon another.
pub(super) fn merge(below: &mut Node, above: Node) {
    match (&mut below.value, above) {
        (Value::Table(entries), Node { value: Value::Table(new), .. }) => {
            for (key, node) in new {
                match entries.iter_mut().find(|(known, _)| known.name == key.name) {
                    Some((_, old)) => merge(old, node),
                    None => entries.push((key, node)),
                }
            }
        }
        (_, above) => *below = above,
    }
}

/// Adds a flag's value to the list at a path.
pub(super) fn join(tree: &mut Node, mut flag: Node, path: &str) {
    let Some(added) = flag.at(path).cloned() else { return };
    let mut list =
        if let Some(Node { value: Value::Array(items), .. }) = tree.at(path) { items.clone() } else { Vec::new() };
    let place = list.first().map_or(added.place, |first| first.place);
    match added.value {
        Value::Array(items) => list.extend(items),
        value @ (Value::Null
        | Value::Bool(_)
        | Value::Integer(_)
        | Value::Float(_)
        | Value::Text(_)
        | Value::Bare(_)
        | Value::Table(_)) => list.push(Node { value, place: added.place }),
    }
    let whole = Node { value: Value::Array(list), place };
    flag = path.rsplit('.').fold(whole, |node, name| wrap(name, node, added.place));
    merge(tree, flag);
}

pub(super) fn origin(sources: &[Source], tree: &Node, id: ClauseId) -> String {
    let mut list: Vec<(u16, String)> = Vec::new();
    const ALSO: &[(ClauseId, &str)] =
        &[(ClauseId::FsRead, "fs.dangerous-read"), (ClauseId::FsWrite, "fs.dangerous-write"), (ClauseId::Tools, "mcp")];
    let also = ALSO.iter().filter(|(of, _)| *of == id).map(|(_, path)| *path);
    let nodes: Vec<&Node> = std::iter::once(id.path()).chain(also).filter_map(|path| tree.at(path)).collect();
    let empty = |node: &Node| matches!(&node.value, Value::Array(items) if items.is_empty());
    for node in &nodes {
        // An empty list beside a full one says nothing.
        if nodes.len() == 1 || !empty(node) {
            gather(sources, node, &mut list);
        }
    }
    let list: Vec<String> = list.into_iter().map(|(_, text)| text).collect();
    if list.is_empty() { DEFAULT_ORIGIN.to_owned() } else { list.join(", ") }
}

/// The first place in each source that a value is made of.
fn gather(sources: &[Source], node: &Node, list: &mut Vec<(u16, String)>) {
    match &node.value {
        Value::Table(entries) => entries.iter().for_each(|(_, node)| gather(sources, node, list)),
        Value::Array(items) if !items.is_empty() && items.iter().any(|item| item.place.source != node.place.source) => {
            items.iter().for_each(|item| gather(sources, item, list));
        }
        Value::Null
        | Value::Bool(_)
        | Value::Integer(_)
        | Value::Float(_)
        | Value::Text(_)
        | Value::Bare(_)
        | Value::Array(_) => {
            let known = list.iter().any(|(source, _)| *source == node.place.source);
            if let Some(source) = sources.get(usize::from(node.place.source)).filter(|_| !known) {
                list.push((node.place.source, source.origin(node.place)));
            }
        }
    }
}
