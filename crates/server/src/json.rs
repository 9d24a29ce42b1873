//! Reading JSON bodies: strictly in what we act on, with the field named in each complaint.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use serde_json::{Map, Value as Json};

use crate::answer::Problem;

/// The fields of a body; no body has none.
pub(crate) fn object(bytes: &[u8]) -> Result<Map<String, Json>, Problem> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(Map::new());
    }
    match serde_json::from_slice(bytes) {
        Ok(Json::Object(map)) => Ok(map),
        Ok(_) => Err(Problem::invalid("body", "the body is no JSON object")),
        Err(error) => Err(Problem::invalid("body", &format!("the body is no JSON: {error}"))),
    }
}

/// A text as TOML has it, which escapes one character more than JSON.
pub(crate) fn toml_text(text: &str) -> String {
    Json::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// What is not understood is not ignored.
///
/// # Errors
/// A field that is none of these.
pub(crate) fn known(map: &Map<String, Json>, known: &[&str]) -> Result<(), Problem> {
    match map.keys().find(|field| !known.contains(&field.as_str())) {
        Some(unknown) => Err(Problem::unknown(unknown, known)),
        None => Ok(()),
    }
}

/// Whether a field says something: absent, null, `false` and the empty say nothing.
pub(crate) fn says(map: &Map<String, Json>, field: &str) -> bool {
    match map.get(field) {
        None | Some(Json::Null | Json::Bool(false)) => false,
        Some(Json::Array(list)) => !list.is_empty(),
        Some(Json::Object(table)) => !table.is_empty(),
        Some(Json::String(text)) => !text.is_empty(),
        Some(Json::Bool(true) | Json::Number(_)) => true,
    }
}

/// As [`known`] for the bodies of clients that send more than they mean: a field that says nothing may be there.
///
/// # Errors
/// A field that says something, and is none of these.
pub(crate) fn acted_on(map: &Map<String, Json>, known: &[&str]) -> Result<(), Problem> {
    match map.keys().find(|field| !known.contains(&field.as_str()) && says(map, field)) {
        Some(field) => {
            let what = format!("{} is not known here", policy::diagnostic::quote(field));
            let why = "what is not understood cannot be held";
            Err(Problem::cannot(StatusCode::BAD_REQUEST, field, &what, why, "leave it out"))
        }
        None => Ok(()),
    }
}

/// A text.
pub(crate) fn text<'a>(map: &'a Map<String, Json>, field: &str) -> Result<Option<&'a str>, Problem> {
    match map.get(field) {
        None | Some(Json::Null) => Ok(None),
        Some(Json::String(text)) => Ok(Some(text)),
        Some(_) => Err(Problem::invalid(field, &format!("`{field}` is no text"))),
    }
}

/// A whole number that is not negative.
pub(crate) fn number(map: &Map<String, Json>, field: &str) -> Result<Option<u64>, Problem> {
    match map.get(field) {
        None | Some(Json::Null) => Ok(None),
        Some(value) => match value.as_u64().or_else(|| whole(value)) {
            Some(number) => Ok(Some(number)),
            None => Err(Problem::invalid(field, &format!("`{field}` is no whole number from 0 on"))),
        },
    }
}

/// `3.0` is whole: some callers divide.
fn whole(value: &Json) -> Option<u64> {
    let float = value.as_f64().filter(|float| float.fract() == 0.0 && (0.0..9.0e15).contains(float))?;
    format!("{float:.0}").parse().ok()
}

/// Yes or no.
pub(crate) fn flag(map: &Map<String, Json>, field: &str) -> Result<Option<bool>, Problem> {
    match map.get(field) {
        None | Some(Json::Null) => Ok(None),
        Some(Json::Bool(yes)) => Ok(Some(*yes)),
        Some(_) => Err(Problem::invalid(field, &format!("`{field}` is neither true nor false"))),
    }
}

/// Texts by name.
pub(crate) fn texts(map: &Map<String, Json>, field: &str) -> Result<BTreeMap<String, String>, Problem> {
    match map.get(field) {
        None | Some(Json::Null) => Ok(BTreeMap::new()),
        Some(Json::Object(table)) => table
            .iter()
            .map(|(key, value)| match value {
                Json::String(text) => Ok((key.clone(), text.clone())),
                Json::Null | Json::Bool(_) | Json::Number(_) | Json::Array(_) | Json::Object(_) => {
                    Err(Problem::invalid(field, &format!("`{field}.{key}` is no text")))
                }
            })
            .collect(),
        Some(_) => Err(Problem::invalid(field, &format!("`{field}` is no table"))),
    }
}

/// Texts in a row.
pub(crate) fn list(map: &Map<String, Json>, field: &str) -> Result<Vec<String>, Problem> {
    let wrong = || Problem::invalid(field, &format!("`{field}` is no list of texts"));
    match map.get(field) {
        None | Some(Json::Null) => Ok(Vec::new()),
        Some(Json::Array(items)) => {
            items.iter().map(|item| item.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
        }
        Some(_) => Err(wrong()),
    }
}
