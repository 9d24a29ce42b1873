//! `fumehood policy check | show | schema | presets`

use std::os::unix::ffi::OsStrExt as _;

use gate::command::Judge;
use policy::planning::policy_digest;
use policy::presets::{PRESETS as ALL, Preset};
use policy::show::ClauseLine;
use policy::value::Root;
use policy::{Lint, Loaded};
use serde_json::json;

use super::args::{Positionals, closest, usage};
use super::ask::asked_layers;
use super::default_policy::{offer, with_default};
use super::flags::POLICY;
use super::spec::{Call, Spec};
use crate::load;
use crate::ui::{Failure, REFUSED, Role, Table};
use sandbox::PolicyLayer;
use sandbox::fault::{show_bytes, show_text};
use sandbox::run::commands_around;

pub(super) const CHECK: Spec = Spec {
    path: &["policy", "check"],
    about: "Check a policy: types, units, words, contradictions",
    usage: "[FILE] [-p POLICY]... [FLAGS]",
    more: "Exit code 0 if the policy is right, 126 with every mistake if not. Whether this host can hold it, `fumehood plan` tells.",
    tables: &[POLICY],
    words: Positionals::Mixed(1),
    hidden: false,
    run: check,
};

pub(super) const SHOW: Spec = Spec {
    path: &["policy", "show"],
    about: "Print the effective value of every clause, and where it came from",
    usage: "[FILE] [-p POLICY]... [FLAGS]",
    more: "Exit code 0, 126 with every mistake if the policy is wrong.",
    tables: &[POLICY],
    words: Positionals::Mixed(1),
    hidden: false,
    run: show,
};

pub(super) const SCHEMA: Spec = Spec {
    path: &["policy", "schema"],
    about: "Print the JSON Schema of policy documents",
    usage: "",
    more: "For editors and generators; `policy check` also knows what a schema cannot say. Exit code 0.",
    tables: &[],
    words: Positionals::Mixed(0),
    hidden: false,
    run: schema,
};

pub(super) const PRESETS: Spec = Spec {
    path: &["policy", "presets"],
    about: "List the policies that ship with fumehood, or print one",
    usage: "[NAME]",
    more: "Exit code 0, or 125 if there is none of this name. Example: `fumehood policy presets strict > policy.toml`",
    tables: &[],
    words: Positionals::Mixed(1),
    hidden: false,
    run: presets,
};

/// The policy that a call names by a file, `-p` and flags.
fn loaded(call: &Call<'_>) -> Result<Loaded, Failure> {
    let mut layers = asked_layers(call, REFUSED)?;
    if let Some(word) = call.parsed.words.first() {
        layers.insert(0, PolicyLayer::Document(show_bytes(word.as_bytes())));
    }
    offer(&layers, call);
    let layers = with_default(layers, call.environment)?;
    Ok(load::policy_alone(&layers, call.environment)?)
}

fn check(call: &mut Call<'_>) -> Result<u8, Failure> {
    let mut loaded = loaded(call)?;
    compiled(&mut loaded, call)?;
    let digest = policy_digest(&loaded.policy);
    if call.json {
        let lints: Vec<_> = loaded.lints.iter().map(Lint::to_json).collect();
        call.console.json(&json!({ "schema": 1, "name": loaded.policy.name, "digest": digest, "lints": lints }))?;
        return Ok(0);
    }
    let mut text = format!(
        "{} policy `{}`, digest {digest}\n",
        call.console.out.paint(Role::Good, "right:"),
        show_text(&loaded.policy.name)
    );
    for lint in &loaded.lints {
        let Lint { id: _, clause: _, what, at, why, fix } = lint;
        let label = call.console.out.paint(Role::Weak, "note:");
        text.push_str(&format!("{label} {}\n", show_text(what)));
        for (label, part) in [("-->", at), ("why:", why), ("fix:", fix)] {
            text.push_str(&format!("  {} {}\n", call.console.out.paint(Role::Aside, label), show_text(part)));
        }
    }
    call.console.data(text.as_bytes())?;
    Ok(0)
}

/// What only those who use a clause can tell of it: wrappers and variables of `commands`, servers of `mcp`.
fn compiled(loaded: &mut Loaded, call: &Call<'_>) -> Result<(), Failure> {
    crate::mcp::check(loaded, call.environment)?;
    let policy = loaded.policy_on(policy::first_tier(loaded)).into_owned();
    let Some(commands) = &policy.commands else { return Ok(()) };
    // In another root nothing can be looked up here; the planner says what it thinks of that.
    if matches!(policy.fs.root, Root::Host) {
        let judge = Judge::new(commands, &loaded.documents, commands_around(&policy)).map_err(Failure::Diagnostics)?;
        loaded.lints.extend(judge.lints().iter().cloned());
    }
    Ok(())
}

fn show(call: &mut Call<'_>) -> Result<u8, Failure> {
    let loaded = loaded(call)?;
    if call.json {
        call.console.json(&loaded.show_json())?;
        return Ok(0);
    }
    let mut table = Table::new(&["clause", "from", "value"]);
    for ClauseLine { clause, text, value: _, origin } in loaded.show() {
        let (text, role) = match text {
            Some(text) => (show_text(&text), None),
            None => ("not asked for".to_owned(), Some(Role::Aside)),
        };
        table.painted([(clause.path(), Some(Role::Name)), (&show_text(&origin), Some(Role::Aside)), (&text, role)]);
    }
    call.console.data(table.render(call.console.out, 0, call.console.columns).as_bytes())?;
    Ok(0)
}

fn schema(call: &mut Call<'_>) -> Result<u8, Failure> {
    call.console.json(&policy::schema::schema())?;
    Ok(0)
}

fn presets(call: &mut Call<'_>) -> Result<u8, Failure> {
    let Some(word) = call.parsed.words.first() else { return list(call) };
    let typed = show_bytes(word.as_bytes());
    let Some(Preset { name, summary, text }) = ALL.iter().find(|preset| preset.name == typed) else {
        let names = || ALL.iter().map(|preset| preset.name);
        let fix = closest(&typed, names()).map_or_else(|| names().collect::<Vec<_>>().join(", "), str::to_owned);
        let why = "no preset has this name".to_owned();
        return Err(Failure::own(usage("preset/unknown", format!("unknown preset `{typed}`"), why, fix)));
    };
    if call.json {
        call.console.json(&json!({ "schema": 1, "name": name, "summary": summary, "text": text }))?;
    } else {
        call.console.data(text.as_bytes())?;
    }
    Ok(0)
}

fn list(call: &Call<'_>) -> Result<u8, Failure> {
    if call.json {
        let all: Vec<_> = ALL.iter().map(|p| json!({ "name": p.name, "summary": p.summary })).collect();
        call.console.json(&json!({ "schema": 1, "presets": all }))?;
        return Ok(0);
    }
    let mut table = Table::new(&["preset", "for"]);
    for preset in ALL {
        table.painted([(preset.name, Some(Role::Name)), (preset.summary, None)]);
    }
    call.console.data(table.render(call.console.out, 0, call.console.columns).as_bytes())?;
    Ok(0)
}
