//! Which tools a client sees, and with which schema.
//!
//! A tool is hidden when no call of it could be allowed, whatever its arguments. Conditions on arguments take no part: a
//! rule that needs arguments which nobody has written yet would hide everything.

use policy::tools::{Decision, Effect};
use serde_json::{Map, Value as Json, json};

use super::entry::effect;
use super::{Gate, Listed};
use crate::call::ToolFacts;
use crate::names;
use crate::schema::Schema;

pub(super) fn lists(gate: &Gate, tool: &str, facts: &ToolFacts) -> Listed {
    let matched = gate.matching(tool);
    let entries = || gate.entries_at(&matched);
    let denied = entries().any(|entry| entry.decision == Decision::Deny);
    let nobody = matched.is_empty() && gate.default == Decision::Deny;
    let effect = effect(entries(), facts);
    let unnamed = effect == Effect::Write && !matched.is_empty() && !entries().any(super::entry::Entry::names_write);
    if !names::is_name(tool) || denied || nobody || unnamed {
        return Listed::Hidden;
    }
    let own = match &facts.input_schema {
        None => None,
        Some(own) => match gate.own.get(tool, own) {
            Ok(own) => Some(own),
            Err(_unusable) => return Listed::Hidden,
        },
    };
    // A guard of an argument that the tool does not have denies every call.
    let guards = || entries().flat_map(|entry| &entry.guards);
    if own.as_ref().is_some_and(|own| guards().any(|guarded| !own.lets_in(&guarded.argument.steps))) {
        return Listed::Hidden;
    }
    let policies = entries().filter_map(|entry| entry.schema.as_deref());
    let all: Vec<&Json> = policies.chain(own.as_deref()).map(Schema::closed).collect();
    let mut schema = together(&all);
    // Whatever draft it was written in, it is shown in the words of this one.
    let named = facts.input_schema.as_ref().is_some_and(|own| own.get("$schema").is_some());
    if let Json::Object(map) = &mut schema
        && named
    {
        map.insert("$schema".to_owned(), json!(crate::schema::DRAFT));
    }
    Listed::Shown { schema }
}

/// One schema that says what several say. Where all are plain objects, so is it, since clients like those best.
fn together(schemas: &[&Json]) -> Json {
    match schemas {
        [] => json!({ "type": "object" }),
        [one] => with_type((*one).clone()),
        many => match plain(many) {
            Some(one) => one,
            // References start at the root of a schema, so each keeps a root of its own.
            None => {
                let parts = many.iter().enumerate().map(|(index, schema)| rooted(schema, index));
                json!({ "type": "object", "allOf": parts.collect::<Vec<_>>() })
            }
        },
    }
}

fn with_type(mut schema: Json) -> Json {
    if let Json::Object(map) = &mut schema {
        map.entry("type").or_insert_with(|| json!("object"));
    }
    schema
}

fn rooted(schema: &Json, index: usize) -> Json {
    let mut schema = schema.clone();
    if let Json::Object(map) = &mut schema {
        map.insert("$id".to_owned(), json!(format!("urn:fumehood:{index}")));
    }
    schema
}

const PLAIN: &[&str] = &["type", "properties", "required", "additionalProperties", "title", "description"];

fn plain(schemas: &[&Json]) -> Option<Json> {
    let maps: Vec<&Map<String, Json>> = schemas.iter().filter_map(|schema| schema.as_object()).collect();
    let simple = |map: &&Map<String, Json>| {
        map.keys().all(|key| PLAIN.contains(&key.as_str()))
            && map.get("additionalProperties") == Some(&Json::Bool(false))
            && !mentions_ref(&Json::Object((**map).clone()))
    };
    if maps.len() != schemas.len() || !maps.iter().all(simple) {
        return None;
    }
    let all: Vec<&Map<String, Json>> =
        maps.iter().filter_map(|map| map.get("properties")).filter_map(Json::as_object).collect();
    let mut properties = Map::new();
    if all.len() == maps.len() {
        let (first, rest) = all.split_first()?;
        for (name, schema) in *first {
            let others: Vec<&Json> = rest.iter().filter_map(|map| map.get(name)).collect();
            if others.len() == rest.len() {
                properties.insert(name.clone(), both(schema, &others));
            }
        }
    }
    let mut required: Vec<&Json> =
        maps.iter().filter_map(|map| map.get("required")).filter_map(Json::as_array).flatten().collect();
    required.sort_by_key(|name| name.as_str());
    required.dedup();
    let mut out = Map::new();
    for key in ["title", "description"] {
        if let Some(text) = maps.iter().find_map(|map| map.get(key)) {
            out.insert(key.to_owned(), text.clone());
        }
    }
    out.insert("type".to_owned(), json!("object"));
    out.insert("properties".to_owned(), Json::Object(properties));
    out.insert("required".to_owned(), json!(required));
    out.insert("additionalProperties".to_owned(), Json::Bool(false));
    Some(Json::Object(out))
}

fn both(first: &Json, others: &[&Json]) -> Json {
    let mut parts = vec![first];
    for other in others {
        if !parts.contains(other) {
            parts.push(other);
        }
    }
    if let [one] = parts.as_slice() { (*one).clone() } else { json!({ "allOf": parts }) }
}

fn mentions_ref(schema: &Json) -> bool {
    match schema {
        Json::Object(map) => map.contains_key("$ref") || map.values().any(mentions_ref),
        Json::Array(items) => items.iter().any(mentions_ref),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => false,
    }
}
