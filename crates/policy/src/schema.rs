//! The JSON Schema of policy documents (draft 2020-12), for editors; made of the rows.
//!
//! The schema is a help while writing. What counts is the reader, which says more and says it better.

use serde_json::{Map, Value, json};

use crate::rows::{ROWS, Row, Shape};
use crate::tool_rows;
use crate::units::{SIZE_PATTERN, TIME_PATTERN};

/// The schema of a whole document.
#[must_use]
pub fn schema() -> Value {
    let mut top = Map::new();
    top.insert("version".to_owned(), json!({ "const": 1, "description": "Always 1." }));
    top.insert(
        "name".to_owned(),
        json!({ "type": "string", "minLength": 1, "maxLength": 100, "description": "For people and audit." }),
    );
    let extends = json!({ "anyOf": [{ "type": "string" }, texts()], "description": "A preset or ./file; of a list, later wins." });
    top.insert("extends".to_owned(), extends);
    let clauses: Vec<&str> = ROWS.iter().map(|row| row.clause.path()).collect();
    let prefer = json!({ "type": "array", "items": { "enum": clauses }, "description": "Clauses that may be weakened when the host cannot hold them; recorded." });
    top.insert("prefer".to_owned(), prefer);
    for row in ROWS {
        insert(&mut top, row);
    }
    let identity = json!({ "enum": ["none", "host"], "description": "`host`: name and mail of the caller's git, and nothing else of its configuration." });
    top.insert("git".to_owned(), table(&json!({ "identity": identity }), &[]));
    top.insert("mcp".to_owned(), tool_rows::schema("mcp"));
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Fumehood policy",
        "type": "object",
        "required": ["version"],
        "additionalProperties": false,
        "properties": top,
    })
}

fn insert(top: &mut Map<String, Value>, row: &Row) {
    let mut schema = shape(row.shape);
    if row.lift {
        schema = json!({ "anyOf": [schema, { "const": "none" }] });
    }
    if let Value::Object(map) = &mut schema {
        map.insert("description".to_owned(), json!(row.promise));
    }
    let path = row.clause.path();
    let Some((section, key)) = path.split_once('.') else {
        top.insert(path.to_owned(), schema);
        return;
    };
    let table = top
        .entry(section)
        .or_insert_with(|| json!({ "type": "object", "additionalProperties": false, "properties": {} }));
    let Some(Value::Object(properties)) = table.get_mut("properties") else { return };
    if matches!(row.shape, Shape::Grants) {
        properties.insert(format!("dangerous-{key}"), schema.clone());
    }
    properties.insert(key.to_owned(), schema);
}

fn texts() -> Value {
    json!({ "type": "array", "items": { "type": "string" } })
}

fn table(properties: &Value, required: &[&str]) -> Value {
    json!({ "type": "object", "additionalProperties": false, "required": required, "properties": properties })
}

fn shape(shape: Shape) -> Value {
    match shape {
        Shape::Words(words) => json!({ "enum": words }),
        Shape::Size => json!({ "type": "string", "pattern": SIZE_PATTERN }),
        Shape::Rate => json!({ "type": "string", "pattern": SIZE_PATTERN.replace(r"\s*$", r"\s*/\s?s\s*$") }),
        Shape::Time => json!({ "type": "string", "pattern": TIME_PATTERN }),
        Shape::Whole(from, to) => json!({ "type": "integer", "minimum": from, "maximum": to }),
        Shape::Cores => json!({ "type": "number", "minimum": 0.001, "maximum": 4096 }),
        Shape::Cpuset => json!({ "anyOf": [
            { "type": "string", "pattern": r"^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$" },
            { "type": "array", "items": { "type": "integer", "minimum": 0, "maximum": 4095 } },
        ] }),
        Shape::Truth => json!({ "type": "boolean" }),
        Shape::TruthOr(word) => json!({ "enum": [true, false, word] }),
        Shape::Text => json!({ "type": "string" }),
        Shape::Texts => texts(),
        Shape::Root => json!({ "type": "string", "pattern": "^(host|empty|dir:.+|image:.+)$" }),
        Shape::Grants => {
            let both = table(&json!({ "from": { "type": "string" }, "to": { "type": "string" } }), &["from"]);
            json!({ "type": "array", "items": { "anyOf": [{ "type": "string" }, both] } })
        }
        Shape::Workspace => {
            let mode = json!({ "enum": ["none", "ro", "rw", "overlay", "copy"] });
            table(&json!({ "path": { "type": "string" }, "at": { "type": "string" }, "mode": mode }), &[])
        }
        Shape::Threshold => {
            let percent = json!({ "type": "integer", "minimum": 1, "maximum": 100 });
            table(
                &json!({ "cpu_percent": percent, "memory": shape_of_size(), "for": { "type": "string", "pattern": TIME_PATTERN } }),
                &[],
            )
        }
        Shape::Rules => {
            let mut keys = place_keys();
            for (key, schema) in [
                ("protocol", json!({ "enum": ["tcp", "udp"] })),
                ("methods", texts()),
                ("paths", texts()),
                ("address", json!({ "type": "string" })),
                ("tls", json!({ "enum": ["auto", "pass"] })),
                ("decision", json!({ "enum": ["allow", "ask"] })),
                ("encoded_slashes", json!({ "type": "boolean" })),
                ("websocket", json!({ "type": "boolean" })),
            ] {
                keys.insert(key.to_owned(), schema);
            }
            let rule = table(&Value::Object(keys), &[]);
            json!({ "type": "array", "items": { "anyOf": [{ "type": "string" }, rule] } })
        }
        Shape::Denials => {
            let denial = table(&Value::Object(place_keys()), &[]);
            json!({ "type": "array", "items": { "anyOf": [{ "type": "string" }, denial] } })
        }
        Shape::HostsOf => json!({ "type": "object", "additionalProperties": texts() }),
        Shape::EnvSet => json!({ "type": "object", "additionalProperties": { "type": "string" } }),
        Shape::Inputs => json!({ "type": "object", "additionalProperties": input() }),
        Shape::Secrets => json!({ "type": "object", "additionalProperties": secret() }),
        Shape::Umask => json!({ "type": "string", "pattern": "^(0o)?[0-7]{1,4}$" }),
        Shape::Tools => tool_rows::schema("tools"),
        Shape::Free => json!({ "type": "object" }),
    }
}

fn ports() -> Value {
    json!({ "type": "array", "items": { "type": "integer", "minimum": 1, "maximum": 65535 } })
}

/// Whom a rule of the network names.
fn place_keys() -> Map<String, Value> {
    let text = || json!({ "type": "string" });
    [("host", text()), ("cidr", text()), ("ports", ports())]
        .map(|(key, schema)| (key.to_owned(), schema))
        .into_iter()
        .collect()
}

fn secret() -> Value {
    let text = || json!({ "type": "string" });
    let one = |key: &str| table(&json!({ key: text() }), &[key]);
    let header = table(&json!({ "header": text(), "format": text(), "public": { "type": "boolean" } }), &["header"]);
    let put = json!({ "anyOf": [{ "const": "placeholder" }, header, one("basic"), one("query")] });
    let source = || json!({ "type": "string", "pattern": "^(env|file|command):" });
    let keys = json!({
        "kind": { "const": "aws-sigv4" },
        "from": source(),
        "key_id": source(),
        "session_token": source(),
        "region": text(),
        "service": text(),
        "hosts": texts(),
        "ports": ports(),
        "methods": texts(),
        "paths": texts(),
        "as": put,
        "env": text(),
    });
    table(&keys, &["from", "hosts"])
}

fn shape_of_size() -> Value {
    json!({ "type": "string", "pattern": SIZE_PATTERN })
}

fn input() -> Value {
    let scalars = json!({ "type": "array", "items": { "type": ["string", "number", "boolean"] } });
    table(
        &json!({
            "type": { "enum": ["string", "integer", "number", "boolean"] },
            "max_length": { "type": "integer", "minimum": 1 },
            "enum": scalars,
            "pattern": { "type": "string" },
            "required": { "type": "boolean" },
        }),
        &[],
    )
}
