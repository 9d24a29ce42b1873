//! Reading JSON bodies: strictly in what we act on, with the field named in each complaint.

use std::collections::BTreeMap;
use std::fmt::{self, Formatter};

use axum::http::StatusCode;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value as Json};

use crate::answer::Problem;

/// The fields of a body; no body has none.
pub(crate) fn object(bytes: &[u8]) -> Result<Map<String, Json>, Problem> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(Map::new());
    }
    match parse(bytes) {
        Ok(Json::Object(map)) => Ok(map),
        Ok(_) => Err(Problem::invalid("body", "the body is no JSON object")),
        Err(error) => Err(Problem::invalid("body", &format!("the body is no JSON: {error}"))),
    }
}

/// A JSON text. A key that stands twice in a table is refused, at any depth: of two values readers take different ones, and
/// whoever looked at the text before us may have taken the other.
///
/// # Errors
/// It is no JSON, or a key stands twice; says where.
pub(crate) fn parse(bytes: &[u8]) -> serde_json::Result<Json> {
    serde_json::from_slice(bytes).map(|Once(value)| value)
}

/// A value of which no key stands twice.
struct Once(Json);

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Values).map(Self)
    }
}

struct Values;

impl<'de> Visitor<'de> for Values {
    type Value = Json;

    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Json, A::Error> {
        let mut items = Vec::new();
        while let Some(Once(item)) = from.next_element()? {
            items.push(item);
        }
        Ok(Json::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Json, A::Error> {
        let mut table = Map::new();
        while let Some(key) = from.next_key::<String>()? {
            if table.contains_key(&key) {
                return Err(A::Error::custom(format!("the key {} stands twice", policy::diagnostic::quote(&key))));
            }
            let Once(value) = from.next_value()?;
            table.insert(key, value);
        }
        Ok(Json::Object(table))
    }
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

/// Variables by name, as any program can have them. What they may be called in a policy, its reader says.
pub(crate) fn variables(map: &Map<String, Json>, field: &str) -> Result<BTreeMap<String, String>, Problem> {
    let found = texts(map, field)?;
    match found.iter().find(|(name, value)| name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')) {
        None => Ok(found),
        Some((name, _)) => {
            let what = format!("`{field}` has {}, which is no variable", policy::diagnostic::quote(name));
            Err(Problem::invalid(
                field,
                &format!("{what}: a name is not empty and has no `=`, and nothing has a zero byte"),
            ))
        }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_key_that_stands_twice_is_refused_at_any_depth_and_named() {
        for (text, key) in [
            (r#"{"a": 1, "b": 2, "a": 3}"#, "a"),
            (r#"{"env": {"PATH": "/a", "PATH": "/b"}}"#, "PATH"),
            (r#"{"list": [{}, {"deep": {"x": 1, "\u0078": 1}}]}"#, "x"),
        ] {
            // The attack without the control: the reader of the library takes the last one.
            assert!(serde_json::from_str::<Json>(text).is_ok(), "{text}");
            let problem = object(text.as_bytes()).unwrap_err();
            let said = format!("{problem:?}");
            assert!(problem.status == StatusCode::BAD_REQUEST && said.contains("stands twice"), "{text}: {said}");
            assert!(said.contains(key), "{text}: {said}");
        }
        assert!(object(br#"{"a": {"x": 1}, "b": {"x": 1}, "list": [{"x": 1}, {"x": 1}]}"#).is_ok());
    }

    #[test]
    fn everything_else_is_read_as_the_library_reads_it() {
        let text = r#" {"z": [null, true, -1, 18446744073709551615, 1.5, 1e300, "\u00e9\n", []], "a": {"$b": {}}} "#;
        let (ours, theirs) = (parse(text.as_bytes()).unwrap(), serde_json::from_str::<Json>(text).unwrap());
        assert_eq!((&ours, ours.to_string()), (&theirs, theirs.to_string()));
        for bad in ["", "{", "[1,]", "{} {}", "nul", &"[".repeat(100_000)] {
            let (ours, theirs) = (parse(bad.as_bytes()), serde_json::from_str::<Json>(bad));
            assert_eq!(ours.unwrap_err().to_string(), theirs.unwrap_err().to_string(), "{bad:.9}");
        }
    }

    #[test]
    fn what_can_name_no_variable_is_refused_by_its_name() {
        let read = |env: Json| variables(json!({ "env": env }).as_object().unwrap(), "env");
        for bad in [json!({ "A=B": "x" }), json!({ "": "x" }), json!({ "A\u{0}": "x" }), json!({ "A": "x\u{0}" })] {
            let problem = read(bad.clone()).unwrap_err();
            assert_eq!(problem.status, StatusCode::BAD_REQUEST, "{bad}");
        }
        assert!(format!("{:?}", read(json!({ "A=B": "x" })).unwrap_err()).contains("A=B"));
        assert_eq!(read(json!({ "A": "x=y", "b.c": "" })).unwrap().len(), 2);
    }
}
