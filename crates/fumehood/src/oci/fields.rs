//! Tables of a document, each with the name by which a refusal tells of it.

use std::path::{Component, Path, PathBuf};

use sandbox::PolicyLayer;
use serde_json::{Map, Value as Json};

/// A field that cannot be had, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// As in the document, e.g. `linux.sysctl`.
    pub(crate) field: String,
    pub(crate) why: String,
}

impl Refused {
    pub(super) fn new(field: impl Into<String>, why: impl Into<String>) -> Self {
        Self { field: field.into(), why: why.into() }
    }
}

/// Whether a value says nothing: null, false, zero, and what is empty or holds nothing else.
pub(super) fn says_nothing(value: &Json) -> bool {
    match value {
        Json::Null | Json::Bool(false) => true,
        Json::Bool(true) => false,
        Json::Number(number) => number.as_f64() == Some(0.0),
        Json::String(text) => text.is_empty(),
        Json::Array(items) => items.iter().all(says_nothing),
        Json::Object(table) => table.values().all(says_nothing),
    }
}

/// Tables that ask something by each key that is there, whatever its value is: devices of the network that are moved inside,
/// files of a group, and devices of which none may be used.
const KEYED: [&str; 3] = ["netDevices", "unified", "rdma"];

/// A table; one that is not there has no fields.
#[derive(Clone, Debug)]
pub(super) struct Table<'a> {
    fields: Option<&'a Map<String, Json>>,
    name: String,
}

impl<'a> Table<'a> {
    /// The document itself.
    pub(super) fn top(document: &'a Json) -> Result<Self, Refused> {
        let fields = document.as_object().ok_or_else(|| Refused::new("config.json", "it is no table"))?;
        Ok(Self { fields: Some(fields), name: String::new() })
    }

    /// The whole name of a field.
    pub(super) fn named(&self, field: &str) -> String {
        if self.name.is_empty() { field.to_owned() } else { format!("{}.{field}", self.name) }
    }

    pub(super) fn refused(&self, field: &str, why: impl Into<String>) -> Refused {
        Refused::new(self.named(field), why)
    }

    /// A value that says something.
    pub(super) fn said(&self, field: &str) -> Option<&'a Json> {
        self.fields?.get(field).filter(|value| !value.is_null())
    }

    /// What is not known says nothing, or is refused.
    pub(super) fn others_say_nothing(&self, known: &[&str]) -> Result<(), Refused> {
        let silent = |field: &str, value: &Json| match value.as_object() {
            Some(table) if KEYED.contains(&field) => table.is_empty(),
            Some(_) | None => says_nothing(value),
        };
        let other = |(field, value): &(&String, &Json)| !known.contains(&field.as_str()) && !silent(field, value);
        match self.fields.into_iter().flatten().find(other) {
            Some((field, _)) => Err(self.refused(field, "nothing here holds it; leave it out")),
            None => Ok(()),
        }
    }

    /// These say nothing, or are refused for this reason.
    pub(super) fn say_nothing(&self, fields: &[&str], why: &str) -> Result<(), Refused> {
        match fields.iter().find(|field| self.said(field).is_some_and(|value| !says_nothing(value))) {
            Some(field) => Err(self.refused(field, why)),
            None => Ok(()),
        }
    }

    pub(super) fn text(&self, field: &str) -> Result<Option<&'a str>, Refused> {
        let Some(value) = self.said(field) else { return Ok(None) };
        let text = value.as_str().ok_or_else(|| self.refused(field, "it is no text"))?;
        Ok(Some(text).filter(|text| !text.is_empty()))
    }

    pub(super) fn flag(&self, field: &str) -> Result<bool, Refused> {
        let Some(value) = self.said(field) else { return Ok(false) };
        value.as_bool().ok_or_else(|| self.refused(field, "it is neither true nor false"))
    }

    /// A whole number.
    pub(super) fn number(&self, field: &str) -> Result<Option<i64>, Refused> {
        let Some(value) = self.said(field) else { return Ok(None) };
        // Larger than that is what engines write for "no limit".
        let number = value.as_i64().or_else(|| value.as_u64().map(|_large| i64::MAX));
        number.map(Some).ok_or_else(|| self.refused(field, "it is no whole number"))
    }

    pub(super) fn texts(&self, field: &str) -> Result<Vec<&'a str>, Refused> {
        let Some(value) = self.said(field) else { return Ok(Vec::new()) };
        let items = value.as_array().ok_or_else(|| self.refused(field, "it is no list"))?;
        items.iter().map(|item| item.as_str().ok_or_else(|| self.refused(field, "not all in it are texts"))).collect()
    }

    pub(super) fn table(&self, field: &str) -> Result<Self, Refused> {
        let name = self.named(field);
        let Some(value) = self.said(field) else { return Ok(Self { fields: None, name }) };
        match value.as_object() {
            Some(fields) => Ok(Self { fields: Some(fields), name }),
            None => Err(Refused::new(name, "it is no table")),
        }
    }

    /// A list of tables.
    pub(super) fn tables(&self, field: &str) -> Result<Vec<Self>, Refused> {
        let Some(value) = self.said(field) else { return Ok(Vec::new()) };
        let items = value.as_array().ok_or_else(|| self.refused(field, "it is no list"))?;
        let one = |(index, item): (usize, &'a Json)| -> Result<Self, Refused> {
            let name = format!("{}[{index}]", self.named(field));
            let fields = item.as_object().ok_or_else(|| Refused::new(name.as_str(), "it is no table"))?;
            Ok(Self { fields: Some(fields), name })
        };
        items.iter().enumerate().map(one).collect()
    }

    /// Names and texts.
    pub(super) fn pairs(&self, field: &str) -> Result<Vec<(&'a str, &'a str)>, Refused> {
        let Some(value) = self.said(field) else { return Ok(Vec::new()) };
        let table = value.as_object().ok_or_else(|| self.refused(field, "it is no table"))?;
        let one = |(name, value): (&'a String, &'a Json)| match value.as_str() {
            Some(text) => Ok((name.as_str(), text)),
            None => Err(self.refused(&format!("{field}.{name}"), "it is no text")),
        };
        table.iter().map(one).collect()
    }
}

/// `CLAUSE=VALUE`
pub(super) fn set(layers: &mut Vec<PolicyLayer>, clause: &str, value: &str) {
    layers.push(PolicyLayer::Set(format!("{clause}={value}")));
}

/// An absolute path without `.` and `..`, without a slash at its end.
pub(super) fn inside(path: &str) -> Option<PathBuf> {
    let path = Path::new(path);
    let plain = |part: &Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    (path.is_absolute() && path.components().all(|part| plain(&part))).then(|| path.components().collect())
}
