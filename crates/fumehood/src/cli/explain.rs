//! `fumehood explain ID`: what an id means, why it is so, and what to do.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;

use serde::{Deserialize, Serialize};

use super::args::{Words, closest, usage};
use super::spec::{Call, Spec};
use crate::fault::{Fault, show_bytes};
use crate::packed;
use crate::ui::{Failure, Role, hang};

/// One entry of `resources/explain.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    /// What it says.
    what: String,
    /// Why it is so.
    why: String,
    /// What to do.
    fix: String,
}

pub(super) const SPEC: Spec = Spec {
    path: &["explain"],
    about: "Explain the id of a refusal, violation, limit or error",
    usage: "[ID]",
    more: "Without an id, all of them are listed. Example: `fumehood explain limits.memory/oom`",
    tables: &[],
    words: Words::Mixed(1),
    hidden: false,
    run: explain,
};

/// Every entry by id.
pub(super) fn entries() -> Result<BTreeMap<String, Entry>, Failure> {
    packed::read(packed::EXPLANATIONS).map_err(|error| {
        Failure::own(Fault {
            id: "explain/unreadable",
            what: "the built-in explanations cannot be read".to_owned(),
            place: "resources/explain.toml".to_owned(),
            why: error.message().to_lowercase(),
            fix: "report this as a fault of fumehood".to_owned(),
        })
    })
}

fn explain(call: &mut Call<'_>) -> Result<u8, Failure> {
    let entries = entries()?;
    let Some(word) = call.parsed.words.first() else { return list(call, &entries) };
    let typed = show_bytes(word.as_bytes());
    let Some((id, entry)) = entries.get_key_value(&typed) else {
        let fix = match closest(&typed, entries.keys().map(String::as_str)) {
            Some(best) => format!("`fumehood explain {best}`"),
            None => "`fumehood explain` lists all of them".to_owned(),
        };
        let why = "no refusal, violation, limit or error has this id".to_owned();
        return Err(Failure::own(usage("usage/unknown-id", format!("unknown id `{typed}`"), why, fix)));
    };
    if call.json {
        call.voice.json(&serde_json::json!({
            "schema": 1, "id": id, "what": entry.what, "why": entry.why, "fix": entry.fix,
        }))?;
        return Ok(0);
    }
    let mut out = format!("{}\n", call.voice.out.paint(Role::Name, id));
    for (label, text) in [("what:", &entry.what), ("why: ", &entry.why), ("fix: ", &entry.fix)] {
        let label = format!("  {} ", call.voice.out.paint(Role::Aside, label));
        out.push_str(&hang(&label, 8, text, call.voice.columns));
    }
    call.voice.data(out.as_bytes())?;
    Ok(0)
}

fn list(call: &Call<'_>, entries: &BTreeMap<String, Entry>) -> Result<u8, Failure> {
    if call.json {
        call.voice.json(&serde_json::json!({ "schema": 1, "ids": entries }))?;
        return Ok(0);
    }
    let mut table = crate::ui::Table::new(&["id", "what"]);
    for (id, entry) in entries {
        table.painted([(id, Some(Role::Name)), (&entry.what, None)]);
    }
    call.voice.data(table.render(call.voice.out, 0, call.voice.columns).as_bytes())?;
    Ok(0)
}
