//! How much work a check would be, counted before it is done.
//!
//! A schema that refers to itself below several branches makes a validator try each branch at each depth: a value of sixty
//! levels would take longer than the machine lasts. The count goes the same ways without looking at values, so it is never
//! less than the work, and it stops at the bound.

use serde_json::{Map, Value as Json};

use super::survey::in_place;

/// Steps; about 20 ms.
const MAX_STEPS: u32 = 100_000;

/// Whether a check of this value by this schema ends soon.
pub(super) fn is_bounded(root: &Json, value: &Json) -> bool {
    let mut left = MAX_STEPS;
    walk(root, root, value, &mut left).is_some()
}

fn walk(root: &Json, schema: &Json, value: &Json, left: &mut u32) -> Option<()> {
    *left = left.checked_sub(1)?;
    let Json::Object(map) = schema else { return Some(()) };
    // What was not evaluated is found by going through the branches once more.
    let rounds = 1 + u32::from(map.contains_key("unevaluatedProperties") || map.contains_key("unevaluatedItems"));
    for _ in 0..rounds {
        for next in in_place(root, schema) {
            walk(root, next, value, left)?;
        }
        match value {
            Json::Object(members) => each_member(root, map, members, left)?,
            Json::Array(items) => each_item(root, map, items, left)?,
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
        }
    }
    Some(())
}

fn each_member(root: &Json, map: &Map<String, Json>, members: &Map<String, Json>, left: &mut u32) -> Option<()> {
    let named = map.get("properties").and_then(Json::as_object);
    let patterns = map.get("patternProperties").and_then(Json::as_object);
    for (name, member) in members {
        *left = left.checked_sub(1)?;
        if let Some(schema) = named.and_then(|named| named.get(name)) {
            walk(root, schema, member, left)?;
        }
        for schema in patterns.into_iter().flat_map(Map::values) {
            walk(root, schema, member, left)?;
        }
        for key in ["additionalProperties", "unevaluatedProperties"] {
            if let Some(schema) = map.get(key) {
                walk(root, schema, member, left)?;
            }
        }
    }
    Some(())
}

fn each_item(root: &Json, map: &Map<String, Json>, items: &[Json], left: &mut u32) -> Option<()> {
    let first = map.get("prefixItems").and_then(Json::as_array);
    for (index, item) in items.iter().enumerate() {
        *left = left.checked_sub(1)?;
        if let Some(schema) = first.and_then(|first| first.get(index)) {
            walk(root, schema, item, left)?;
        }
        for key in ["items", "contains", "unevaluatedItems"] {
            if let Some(schema) = map.get(key) {
                walk(root, schema, item, left)?;
            }
        }
    }
    Some(())
}
