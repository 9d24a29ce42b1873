//! What the ids of refusals, violations, limits and errors mean: `resources/explain.toml`.

use std::collections::BTreeMap;

use sandbox::fault::Fault;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::ui::{Failure, closest, usage};

/// One entry of `resources/explain.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    /// What it says.
    pub(crate) what: String,
    /// Why it is so.
    pub(crate) why: String,
    /// What to do.
    pub(crate) fix: String,
}

const EXPLANATIONS: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../resources/explain.toml"));

/// Every entry by id.
pub(crate) fn entries() -> Result<BTreeMap<String, Entry>, Failure> {
    toml::from_str(EXPLANATIONS).map_err(|error: toml::de::Error| {
        Failure::own(Fault {
            id: "explain/unreadable",
            what: "the built-in explanations cannot be read".to_owned(),
            place: "resources/explain.toml".to_owned(),
            why: error.message().to_lowercase(),
            fix: "report this as a fault of fumehood".to_owned(),
        })
    })
}

/// The entry of an id, or the id that was meant.
pub(crate) fn named<'a>(entries: &'a BTreeMap<String, Entry>, typed: &str) -> Result<(&'a String, &'a Entry), Failure> {
    entries.get_key_value(typed).ok_or_else(|| {
        let fix = match closest(typed, entries.keys().map(String::as_str)) {
            Some(best) => format!("`fumehood explain {best}`"),
            None => "`fumehood explain` lists all of them".to_owned(),
        };
        let why = "no refusal, violation, limit or error has this id".to_owned();
        Failure::own(usage("usage/unknown-id", format!("unknown id `{typed}`"), why, fix))
    })
}

/// An entry, for programs.
pub(crate) fn as_json(id: &str, entry: &Entry) -> Value {
    json!({ "schema": 1, "id": id, "what": entry.what, "why": entry.why, "fix": entry.fix })
}
