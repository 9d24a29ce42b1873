//! Answers of `/v1` against what `/v1/openapi.json` says of them: each one that a test gets is held against it.

use std::sync::LazyLock;

use serde_json::{Value, json};

static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("../../../../resources/openapi.json")).unwrap());

/// What the document says of an answer; none of what it does not name, and of what is passed on from a port inside.
fn schema<'a>(method: &str, path: &str, status: u16) -> Option<&'a Value> {
    let path = path.split('?').next().unwrap();
    let parts: Vec<&str> = path.split('/').collect();
    let is_it = |template: &str| {
        let theirs: Vec<&str> = template.split('/').collect();
        theirs.len() == parts.len() && theirs.iter().zip(&parts).all(|(one, part)| one.starts_with('{') || one == part)
    };
    let (_, route) = DOCUMENT["paths"].as_object().unwrap().iter().find(|(template, _)| is_it(template))?;
    let answers = &route[method.to_ascii_lowercase()]["responses"];
    let told = answers.get(status.to_string());
    let told = told.unwrap_or_else(|| panic!("{method} {path}: {status} is in no document"));
    told["content"].get("application/json").map(|content| &content["schema"])
}

/// Holds an answer against the document.
pub(crate) fn hold(method: &str, path: &str, status: u16, body: &[u8]) {
    if !path.starts_with("/v1/") || !(200..300).contains(&status) {
        return;
    }
    if let Some(schema) = schema(method, path, status) {
        let value = serde_json::from_slice(body).unwrap();
        fits(schema, &value).unwrap_or_else(|why| panic!("{method} {path}: {why}: {value}"));
    }
}

fn fits(schema: &Value, value: &Value) -> Result<(), String> {
    if let Some(place) = schema["$ref"].as_str() {
        return fits(DOCUMENT.pointer(place.trim_start_matches('#')).unwrap(), value);
    }
    if let Some(any) = schema["oneOf"].as_array() {
        let tried: Vec<_> = any.iter().map(|one| fits(one, value)).collect();
        return if tried.iter().any(Result::is_ok) { Ok(()) } else { Err(format!("{tried:?}")) };
    }
    for one in schema["allOf"].as_array().into_iter().flatten() {
        fits(one, value)?;
    }
    if let Some(words) = schema["enum"].as_array() {
        return if words.contains(value) { Ok(()) } else { Err(format!("{value} is none of {words:?}")) };
    }
    let is_it = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("null") => value.is_null(),
        Some(other) => panic!("{other} is no type"),
        None => true,
    };
    if !is_it {
        return Err(format!("{value} is no {}", schema["type"]));
    }
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if value.get(name).is_none() {
            return Err(format!("`{name}` is missing"));
        }
    }
    for (name, one) in schema["properties"].as_object().into_iter().flatten() {
        let Some(inner) = value.get(name) else { continue };
        fits(one, inner).map_err(|why| format!("{name}: {why}"))?;
    }
    for inner in value.as_array().into_iter().flatten() {
        fits(&schema["items"], inner)?;
    }
    Ok(())
}

#[test]
fn an_answer_that_is_not_as_the_document_says_does_not_pass() {
    let schema = schema("GET", "/v1/sandboxes/abc/usage?every=1", 200).unwrap();
    let good = json!({
        "at_ms": 1, "state": "running", "usage": { "memory": 1, "disk": null }, "limits": { "memory": null, "cpus": 0.5, "disk": 2 },
    });
    fits(schema, &good).unwrap();
    for (pointer, bad) in
        [("/at_ms", json!("1")), ("/state", json!("gone")), ("/usage/memory", json!(null)), ("/limits", json!({}))]
    {
        let mut one = good.clone();
        *one.pointer_mut(pointer).unwrap() = bad;
        assert!(fits(schema, &one).is_err(), "{pointer}");
    }
    let mut without = good;
    without.as_object_mut().unwrap().remove("usage");
    assert!(fits(schema, &without).is_err());
}

#[test]
fn every_answer_in_json_says_what_is_in_it() {
    let paths = DOCUMENT["paths"].as_object().unwrap();
    for (path, route) in paths.iter().filter(|(path, _)| *path != "/v1/openapi.json") {
        for (method, call) in route.as_object().unwrap().iter().filter(|(name, _)| *name != "parameters") {
            for (status, answer) in call["responses"].as_object().unwrap() {
                let Some(content) = answer["content"].get("application/json") else { continue };
                assert!(content["schema"]["$ref"].is_string(), "{method} {path} {status}: {content}");
            }
            if let Some(body) = call.get("requestBody") {
                let bare = body["content"]["application/json"]["schema"] == json!({ "type": "object" });
                assert!(!bare, "{method} {path}: {body}");
            }
        }
    }
}
