//! `fumehood mcp pins ls | accept | reset`: what was trusted of the tools of MCP servers, what changed, and the answer.

use std::os::unix::ffi::OsStrExt as _;

use gateway::mcp::pins::{Pin, Pins, PinsError, RecordedDefinition, Scopes};
use jiff::Timestamp;
use serde_json::{Value as Json, json};

use super::args::{Positionals, closest, usage};
use super::ask::asked_layers;
use super::flags::POLICY;
use super::spec::{Call, Spec};
use crate::ui::{FAILED, Failure, Role, Table};
use sandbox::audit::{Kind, Log, Options};
use sandbox::fault::{Fault, show_bytes, show_path, show_text};
use sandbox::state::State;

pub(super) const PINS: Spec = Spec {
    path: &["mcp", "pins"],
    about: "Show, accept or forget what was trusted of tools of MCP servers",
    usage: "ls | accept SERVER[.TOOL] | reset SERVER[.TOOL] [-p POLICY]",
    more: "A tool is pinned when a gateway sees it first; one that changed is held back until it is accepted here.\n\
           With -p only what the gateway of this policy saw. `ls` shows what changed, word by word.\n\
           Exit code 0; 1 if nothing of this name is held (accept) or pinned (reset).",
    tables: &[POLICY],
    words: Positionals::Mixed(2),
    hidden: false,
    run: pins,
};

fn pins(call: &mut Call<'_>) -> Result<u8, Failure> {
    let words: Vec<String> = call.parsed.words.iter().map(|word| show_bytes(word.as_bytes())).collect();
    let state = State::open(&call.environment.state).map_err(|error| Failure::own(error.fault()))?;
    let store = Pins::new(state.path());
    let layers = asked_layers(call, FAILED)?;
    let scope = (!layers.is_empty()).then(|| crate::mcp::scope(&layers, call.environment));
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] | ["ls"] => list(call, &store, scope.as_deref()),
        ["accept", name] => change(call, &state, &store, scope.as_deref(), ("accept", name)),
        ["reset", name] => change(call, &state, &store, scope.as_deref(), ("reset", name)),
        [other, ..] => {
            let fix = closest(other, ["ls", "accept", "reset"].into_iter()).map_or_else(
                || "`fumehood mcp pins ls`, `accept SERVER[.TOOL]`, `reset SERVER[.TOOL]`".to_owned(),
                |near| format!("`fumehood mcp pins {near}`"),
            );
            let what = format!("`{other}` is nothing to do with pins, or needs a name");
            Err(Failure::own(usage("usage/unknown-command", what, "there are ls, accept and reset".to_owned(), fix)))
        }
    }
}

fn unusable(error: &PinsError) -> Failure {
    Failure::own(Fault {
        id: "mcp.pin/store",
        what: "the pins cannot be kept".to_owned(),
        place: show_path(&error.place),
        why: error.why.clone(),
        fix: "make the file your own and readable, or move it away to begin anew".to_owned(),
    })
}

fn list(call: &Call<'_>, store: &Pins, scope: Option<&str>) -> Result<u8, Failure> {
    let mut all = store.all().map_err(|error| unusable(&error))?;
    all.retain(|name, _| scope.is_none_or(|scope| scope == name));
    if call.json {
        call.console.json(&json!({ "schema": 1, "scopes": all }))?;
        return Ok(0);
    }
    call.console.data(text(call, &all).as_bytes())?;
    Ok(0)
}

fn text(call: &Call<'_>, all: &Scopes) -> String {
    let mut out = String::new();
    for (scope, servers) in all {
        out.push_str(&format!("{}\n", call.console.out.paint(Role::Name, &show_text(scope))));
        let mut table = Table::new(&["", "", ""]);
        let mut changes = String::new();
        for (server, pins) in servers {
            row(&mut table, &mut changes, server, &pins.reach);
            for (tool, pin) in &pins.tools {
                row(&mut table, &mut changes, &format!("{server}.{tool}"), pin);
            }
        }
        out.push_str(&table.render(call.console.out, 2, call.console.columns));
        out.push_str(&changes);
    }
    if out.is_empty() {
        out.push_str("nothing is pinned\n");
    }
    out
}

fn row(table: &mut Table, changes: &mut String, name: &str, pin: &Pin) {
    let name = show_text(name);
    let since = |seen: &RecordedDefinition| {
        let at = i64::try_from(seen.at).ok().and_then(|at| Timestamp::from_second(at).ok());
        at.map(|at| at.to_string()).unwrap_or_default()
    };
    match (&pin.trusted, &pin.held) {
        (trusted, Some(held)) => {
            table.painted([("held", Some(Role::Bad)), (&name, None), (&since(held), Some(Role::Aside))]);
            changes.push_str(&difference(&name, trusted.as_ref(), held));
        }
        (Some(trusted), None) => {
            table.painted([("trusted", Some(Role::Good)), (&name, None), (&since(trusted), Some(Role::Aside))]);
        }
        (None, None) => {}
    }
}

/// What changed, as lines; nothing in it acts on a terminal.
fn difference(name: &str, trusted: Option<&RecordedDefinition>, held: &RecordedDefinition) -> String {
    let plain = |seen: Option<&RecordedDefinition>| {
        seen.map(|seen| format!("{:#}\n", sorted(&seen.definition))).unwrap_or_default()
    };
    let (old, new) = (plain(trusted), plain(Some(held)));
    let diff = similar::TextDiff::from_lines(&old, &new);
    let text = diff
        .unified_diff()
        .context_radius(2)
        .header(&format!("{name} (trusted)"), &format!("{name} (now)"))
        .to_string();
    let mut out = String::from("\n");
    for line in text.lines() {
        out.push_str(&format!("  {}\n", show_text(line)));
    }
    out
}

fn sorted(value: &Json) -> Json {
    match value {
        Json::Object(map) => {
            let mut entries: Vec<_> = map.iter().map(|(key, value)| (key.clone(), sorted(value))).collect();
            entries.sort_by(|one, other| one.0.cmp(&other.0));
            Json::Object(entries.into_iter().collect())
        }
        Json::Array(items) => items.iter().map(sorted).collect(),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => value.clone(),
    }
}

fn change(
    call: &Call<'_>,
    state: &State,
    store: &Pins,
    scope: Option<&str>,
    (what, name): (&str, &str),
) -> Result<u8, Failure> {
    let (server, tool) = match name.split_once('.') {
        Some((server, tool)) => (server, Some(tool)),
        None => (name, None),
    };
    // The log comes first: what cannot be recorded is not done.
    let log = Log::open(state, None, Options::default()).map_err(|error| Failure::own(error.fault()))?;
    let body = json!({ "pins": what, "server": server, "tool": tool, "scope": scope });
    log.append("", &pinned(), &body).map_err(|error| Failure::own(error.fault()))?;
    let done = if what == "accept" { store.accept(scope, server, tool) } else { store.reset(scope, server, tool) };
    let done = done.map_err(|error| unusable(&error))?;
    if done.is_empty() {
        let fix = "`fumehood mcp pins ls` lists them".to_owned();
        let why = if what == "accept" { "nothing of this name is held" } else { "nothing of this name is pinned" };
        let fault = usage("mcp.pin/unknown", format!("cannot {what} `{}`", show_text(name)), why.to_owned(), fix);
        return Err(Failure::Faults { code: 1, faults: vec![fault] });
    }
    if call.json {
        call.console.json(&json!({ "schema": 1, what: done }))?;
    } else {
        let verb = if what == "accept" { "accepted" } else { "forgotten" };
        call.console.eprint(&format!("{verb}: {}\n", show_text(&done.join(", "))));
    }
    Ok(0)
}

fn pinned() -> Kind {
    Kind::parse("tool.pinned").unwrap_or_else(Kind::gc)
}
