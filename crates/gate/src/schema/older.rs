//! Spellings of older drafts, which generators still write, in those of 2020-12.

use serde_json::{Map, Value as Json};

/// The schema in the words of 2020-12. What is new already stays as it is.
pub(super) fn translated(schema: &Json) -> Json {
    let mut schema = schema.clone();
    if let Json::Object(map) = &mut schema {
        // The root's own name and draft say nothing that is needed here; a name elsewhere is refused.
        map.remove("$schema");
        map.remove("$id");
    }
    translate(&mut schema, 0);
    schema
}

fn translate(schema: &mut Json, depth: usize) {
    // Deeper ones are refused by the survey.
    if depth > super::survey::MAX_DEPTH {
        return;
    }
    let Json::Object(map) = schema else { return };
    if matches!(map.get("items"), Some(Json::Array(_))) {
        if let Some(list) = map.remove("items") {
            map.insert("prefixItems".to_owned(), list);
        }
        if let Some(rest) = map.remove("additionalItems") {
            map.insert("items".to_owned(), rest);
        }
    }
    if let Some(Json::Object(all)) = map.remove("dependencies") {
        let (lists, schemas): (Map<_, _>, Map<_, _>) = all.into_iter().partition(|(_, value)| value.is_array());
        for (key, part) in [("dependentRequired", lists), ("dependentSchemas", schemas)] {
            if !part.is_empty() {
                map.insert(key.to_owned(), Json::Object(part));
            }
        }
    }
    super::survey::each_child_mut(map, &mut |child| translate(child, depth + 1));
}
