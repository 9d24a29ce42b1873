//! Closing: what a schema does not name is refused, wherever it describes an object and does not say otherwise.
//!
//! A plain object gets `additionalProperties: false`. Where an object is described by branches alone (`anyOf`, `oneOf`, one
//! `$ref`), the branches are closed. Where it is described by several schemas together (`allOf`, or branches beside its
//! own properties), closing each would refuse what the others name: there `unevaluatedProperties: false` stands above
//! them, and the schemas below stay open. Inside `not`, `if` and `contains` nothing changes: a condition that is made
//! narrower would mean something else.

use std::collections::BTreeSet;

use serde_json::{Map, Value as Json};

use super::survey::{IN_PLACE_LISTS, lookup};

/// A closed schema.
pub(super) struct Closed {
    pub(super) schema: Json,
    /// Whether `unevaluatedProperties` stands in it.
    pub(super) unevaluated: bool,
    /// Whether something below `oneOf` was closed: a value could fit one branch now that fitted two.
    pub(super) exclusive: bool,
}

/// Whether a schema alone speaks about a value, or together with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stand {
    Alone,
    Together,
}

/// What is done at one schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// No object, or it says itself what else may come.
    Said,
    /// An object of its own properties.
    Plain,
    /// An object, or several, by branches alone.
    Branches,
    /// An object by several schemas together.
    Joined,
}

/// Closes a schema.
pub(super) fn close(schema: &Json) -> Closed {
    let mut walk = Walk { root: schema, seen: BTreeSet::new(), joined: BTreeSet::new() };
    walk.look(schema, "", Stand::Alone);
    let (seen, joined) = (walk.seen, walk.joined);
    let mut closed = schema.clone();
    for (pointer, stand) in &seen {
        // What stands together with others anywhere stays open everywhere; above it `unevaluatedProperties` closes.
        if *stand == Stand::Together || joined.contains(pointer) {
            continue;
        }
        close_one(schema, &mut closed, pointer, &joined);
    }
    let unevaluated = text_has(&closed, "unevaluatedProperties");
    let exclusive = closed != *schema && text_has(schema, "oneOf");
    Closed { schema: closed, unevaluated, exclusive }
}

fn close_one(root: &Json, closed: &mut Json, pointer: &str, joined: &BTreeSet<String>) {
    let Some(Json::Object(map)) = closed.pointer_mut(pointer) else { return };
    match shape(root, map, joined) {
        Shape::Said | Shape::Branches => {}
        Shape::Plain => {
            map.insert("additionalProperties".to_owned(), Json::Bool(false));
        }
        Shape::Joined => {
            map.insert("unevaluatedProperties".to_owned(), Json::Bool(false));
        }
    }
}

fn shape(root: &Json, map: &Map<String, Json>, joined: &BTreeSet<String>) -> Shape {
    let says = ["additionalProperties", "unevaluatedProperties"].iter().any(|key| map.contains_key(*key));
    let object = match map.get("type") {
        None => true,
        Some(Json::String(kind)) => kind == "object",
        Some(Json::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
        Some(_) => false,
    };
    if says || !object {
        return Shape::Said;
    }
    let own = ["properties", "patternProperties"].iter().any(|key| map.contains_key(*key));
    let branching: Vec<&str> =
        ["anyOf", "oneOf", "allOf", "$ref"].into_iter().filter(|key| map.contains_key(*key)).collect();
    let conditional = ["if", "then", "else", "dependentSchemas"].iter().any(|key| map.contains_key(*key));
    match branching.as_slice() {
        [] if conditional => Shape::Joined,
        [] if own || map.contains_key("type") => Shape::Plain,
        // No word about objects at all: `{}` and `{"description": ...}` mean any value, `{"enum": [...]}` these.
        [] => Shape::Said,
        [one] if !own && !conditional => match (*one, map.get(*one)) {
            ("allOf", Some(Json::Array(all))) if all.len() > 1 => Shape::Joined,
            ("$ref", Some(Json::String(target))) if lookup(root, target).is_some() && stays_open(target, joined) => {
                Shape::Joined
            }
            _ => Shape::Branches,
        },
        _ => Shape::Joined,
    }
}

fn stays_open(target: &str, joined: &BTreeSet<String>) -> bool {
    target.strip_prefix('#').is_some_and(|pointer| joined.contains(pointer))
}

fn text_has(schema: &Json, key: &str) -> bool {
    match schema {
        Json::Object(map) => map.contains_key(key) || map.values().any(|value| text_has(value, key)),
        Json::Array(items) => items.iter().any(|item| text_has(item, key)),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => false,
    }
}

/// Finds every schema that describes a value, and whether it does so alone.
struct Walk<'s> {
    root: &'s Json,
    seen: BTreeSet<(String, Stand)>,
    /// Pointers to those that stand together with others somewhere.
    joined: BTreeSet<String>,
}

impl Walk<'_> {
    fn look(&mut self, schema: &Json, at: &str, stand: Stand) {
        if stand == Stand::Together {
            self.joined.insert(at.to_owned());
        }
        if !self.seen.insert((at.to_owned(), stand)) {
            return;
        }
        let Json::Object(map) = schema else { return };
        let below = match shape(self.root, map, &self.joined) {
            Shape::Branches => stand,
            // One that says what else may come still lets its branches speak together with it.
            Shape::Said | Shape::Plain | Shape::Joined => Stand::Together,
        };
        for key in IN_PLACE_LISTS {
            for (index, branch) in map.get(*key).and_then(Json::as_array).into_iter().flatten().enumerate() {
                self.look(branch, &format!("{at}/{key}/{index}"), below);
            }
        }
        for key in ["then", "else"] {
            if let Some(branch) = map.get(key) {
                self.look(branch, &format!("{at}/{key}"), Stand::Together);
            }
        }
        for (name, branch) in map.get("dependentSchemas").and_then(Json::as_object).into_iter().flatten() {
            self.look(branch, &format!("{at}/dependentSchemas/{}", escaped(name)), Stand::Together);
        }
        if let Some(target) = map.get("$ref").and_then(Json::as_str)
            && let Some(found) = lookup(self.root, target)
        {
            self.look(found, target.trim_start_matches('#'), below);
        }
        self.parts(map, at);
    }

    /// Schemas about parts of the value: each stands alone there.
    fn parts(&mut self, map: &Map<String, Json>, at: &str) {
        for key in ["properties", "patternProperties"] {
            for (name, part) in map.get(key).and_then(Json::as_object).into_iter().flatten() {
                self.look(part, &format!("{at}/{key}/{}", escaped(name)), Stand::Alone);
            }
        }
        for key in ["items", "additionalProperties", "unevaluatedProperties", "unevaluatedItems"] {
            if let Some(part) = map.get(key) {
                self.look(part, &format!("{at}/{key}"), Stand::Alone);
            }
        }
        for (index, part) in map.get("prefixItems").and_then(Json::as_array).into_iter().flatten().enumerate() {
            self.look(part, &format!("{at}/prefixItems/{index}"), Stand::Alone);
        }
    }
}

fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
