//! What is known of types before a condition runs: from a schema, and from what operators make of their sides.

use serde_json::Value as Json;

use super::tree::{Math, Types};

/// What a schema says of a field.
#[derive(Debug)]
pub(super) enum FieldSchema<'s> {
    /// Its schema.
    Schema(&'s Json),
    /// Nothing.
    Unknown,
    /// That it cannot be.
    Missing,
}

/// Looks a field up. Unknown properties of arguments are refused, so what a plain object schema does not list is missing.
pub(super) fn field<'s>(schema: &'s Json, name: &str) -> FieldSchema<'s> {
    const ELSEWHERE: &[&str] = &[
        "$ref",
        "$dynamicRef",
        "allOf",
        "anyOf",
        "oneOf",
        "if",
        "then",
        "else",
        "not",
        "patternProperties",
        "dependentSchemas",
        "unevaluatedProperties",
        "propertyNames",
    ];
    let Some(properties) = schema.get("properties").and_then(Json::as_object) else { return FieldSchema::Unknown };
    if let Some(found) = properties.get(name) {
        return FieldSchema::Schema(found);
    }
    let is_open = schema.get("additionalProperties").is_some_and(|more| *more != Json::Bool(false));
    if is_open || ELSEWHERE.iter().any(|key| schema.get(key).is_some()) {
        FieldSchema::Unknown
    } else {
        FieldSchema::Missing
    }
}

/// What comes out; nothing if it cannot work.
pub(super) fn math_types(math: Math, a: Types, b: Types) -> Types {
    let mut out = Types::NONE;
    let both = |types: Types| a.meets(types) && b.meets(types);
    if both(Types::INT) {
        out = out.or(Types::INT);
    }
    let is_double = (a.meets(Types::DOUBLE) || b.meets(Types::DOUBLE)) && both(Types::NUMBER);
    if is_double && math != Math::Remainder {
        out = out.or(Types::DOUBLE);
    }
    if math == Math::Add {
        for types in [Types::TEXT, Types::LIST] {
            out = out.or(if both(types) { types } else { Types::NONE });
        }
    }
    if matches!(math, Math::Add | Math::Subtract) {
        if both(Types::SPAN) {
            out = out.or(Types::SPAN);
        }
        if a.meets(Types::TIME) && b.meets(Types::SPAN) {
            out = out.or(Types::TIME);
        }
    }
    if math == Math::Add && a.meets(Types::SPAN) && b.meets(Types::TIME) {
        out = out.or(Types::TIME);
    }
    if math == Math::Subtract && both(Types::TIME) {
        out = out.or(Types::SPAN);
    }
    out
}

/// What a schema allows; all of JSON where it does not say.
pub(super) fn types_of(schema: &Json) -> Types {
    const NAMED: [(&str, Types); 7] = [
        ("null", Types::NULL),
        ("boolean", Types::BOOL),
        ("integer", Types::NUMBER),
        ("number", Types::NUMBER),
        ("string", Types::TEXT),
        ("array", Types::LIST),
        ("object", Types::MAP),
    ];
    let named = |name: &str| NAMED.iter().find(|(known, _)| *known == name).map_or(Types::JSON, |(_, types)| *types);
    let valued = |value: &Json| match value {
        Json::Null => Types::NULL,
        Json::Bool(_) => Types::BOOL,
        Json::Number(_) => Types::NUMBER,
        Json::String(_) => Types::TEXT,
        Json::Array(_) => Types::LIST,
        Json::Object(_) => Types::MAP,
    };
    let all = |list: &[Json]| list.iter().map(valued).fold(Types::NONE, Types::or);
    let by_type = match schema.get("type") {
        Some(Json::String(name)) => named(name),
        Some(Json::Array(names)) => names.iter().filter_map(Json::as_str).map(named).fold(Types::NONE, Types::or),
        Some(Json::Null | Json::Bool(_) | Json::Number(_) | Json::Object(_)) | None => Types::JSON,
    };
    let by_value = if let Some(value) = schema.get("const") {
        valued(value)
    } else if let Some(Json::Array(values)) = schema.get("enum") {
        all(values)
    } else {
        Types::JSON
    };
    let types = by_type.and(by_value);
    if types.is_none() { Types::JSON } else { types }
}
