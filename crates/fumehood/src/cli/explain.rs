//! `fumehood explain ID`: what an id means, why it is so, and what to do.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;

use super::args::Positionals;
use super::spec::{Call, Spec};
use crate::explain::{Entry, as_json, entries, named};
use crate::ui::{Failure, Role, hang};
use sandbox::fault::show_bytes;

pub(super) const SPEC: Spec = Spec {
    path: &["explain"],
    about: "Explain the id of a refusal, violation, limit or error",
    usage: "[ID|CLAUSE]",
    more: "Without an id, all of them are listed; with a clause, its own. \
           Exit code 0, or 125 if there is no such id. Example: `fumehood explain limits.memory/oom`",
    tables: &[],
    words: Positionals::Mixed(1),
    hidden: false,
    run: explain,
};

fn explain(call: &mut Call<'_>) -> Result<u8, Failure> {
    let entries = entries()?;
    let Some(word) = call.parsed.words.first() else { return list(call, &entries) };
    let typed = show_bytes(word.as_bytes());
    // A clause stands for all that may be said of it.
    let of_clause = |id: &String| id.strip_prefix(&typed).is_some_and(|rest| rest.starts_with('/'));
    let below: BTreeMap<String, Entry> =
        entries.iter().filter(|(id, _)| of_clause(id)).map(|(id, entry)| (id.clone(), entry.clone())).collect();
    if !below.is_empty() && !entries.contains_key(&typed) {
        return list(call, &below);
    }
    let (id, entry) = named(&entries, &typed)?;
    if call.json {
        call.console.json(&as_json(id, entry))?;
        return Ok(0);
    }
    let mut out = format!("{}\n", call.console.out.paint(Role::Name, id));
    for (label, text) in [("what:", &entry.what), ("why: ", &entry.why), ("fix: ", &entry.fix)] {
        let label = format!("  {} ", call.console.out.paint(Role::Aside, label));
        out.push_str(&hang(&label, 8, text, call.console.columns));
    }
    call.console.data(out.as_bytes())?;
    Ok(0)
}

fn list(call: &Call<'_>, entries: &BTreeMap<String, Entry>) -> Result<u8, Failure> {
    if call.json {
        call.console.json(&serde_json::json!({ "schema": 1, "ids": entries }))?;
        return Ok(0);
    }
    let mut table = crate::ui::Table::new(&["id", "what"]);
    for (id, entry) in entries {
        table.painted([(id, Some(Role::Name)), (&entry.what, None)]);
    }
    call.console.data(table.render(call.console.out, 0, call.console.columns).as_bytes())?;
    Ok(0)
}
