//! `fumehood keys`: who may use the server.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use images::NamePattern;
use sandbox::PolicyLayer;
use sandbox::fault::{Fault, show_bytes, show_text};
use sandbox::state::State;
use serde_json::json;
use server::keys::{Keys, KeysError, Rights};

use super::args::{Flag, Positionals, To, usage};
use super::spec::{Call, Spec};
use crate::ui::{Failure, Table};

const ADD_FLAGS: &[Flag] = &[
    Flag::new("name", Some("NAME"), To::Ours, "What the key is called, e.g. ci"),
    Flag::new("policy", Some("POLICY"), To::Ours, "The policy that no sandbox of this key may exceed").short(b'p'),
    Flag::new("sandboxes", Some("N"), To::Ours, "How many of its sandboxes may live at once"),
    Flag::new("templates", Some("NAMES"), To::Ours, "The templates that its sandboxes are made of, e.g. base,strict"),
    Flag::new("builds", Some("N"), To::Ours, "How many templates it may build and keep (20); 0: none"),
    Flag::new(
        "images",
        Some("PATTERNS"),
        To::Ours,
        "Images that its templates may begin as, e.g. 'python:3.*,ghcr.io/team/*'; none without",
    ),
    Flag::new("pull", None, To::Ours, "Bring those of --images that the store has not from their registries"),
    Flag::new(
        "operator",
        None,
        To::Ours,
        "A person's: it also answers approvals, applies changes, reads audit and metrics",
    ),
];

pub(super) const ADD: Spec = Spec {
    path: &["keys", "add"],
    about: "Make a key for the server, shown once",
    usage: "--name NAME [-p CEILING] [--sandboxes N] [--templates NAMES] [--builds N] [--images PATTERNS [--pull]] [--operator]",
    more: "Clients send it as E2B_API_KEY. Only its SHA-256 is kept; it counts at once, also for a server that runs.\n\
           Without a ceiling its sandboxes may use what they like of the limits, and still no file, variable or secret of the host.\n\
           Templates that its clients build are its own; with --templates it builds none. A pattern of --images is a name as Docker\n\
           writes it: `*` stands for any characters but `/`, and without a tag it means all of them and all digests.\n\
           A template of --templates that is not there yet is told as a warning.\n\
           Exit code 0; 125 if the name is taken, or the state folder cannot be used; 126 if the ceiling is no policy.\n\
           With --json: {schema, name, key, missing_templates}.",
    tables: &[ADD_FLAGS],
    words: Positionals::Mixed(0),
    hidden: false,
    run: add,
};

pub(super) const LS: Spec = Spec {
    path: &["keys", "ls"],
    about: "List the keys of the server",
    usage: "",
    more: "Exit code 0, also when there is none. With --json: {schema, keys}.",
    tables: &[],
    words: Positionals::Mixed(0),
    hidden: false,
    run: list,
};

pub(super) const RM: Spec = Spec {
    path: &["keys", "rm"],
    about: "Remove a key of the server; its sandboxes live on",
    usage: "NAME",
    more: "It counts at once, also for a server that runs. Exit code 0; 125 if there is no such key.",
    tables: &[],
    words: Positionals::Mixed(1),
    hidden: false,
    run: remove,
};

pub(super) fn open(call: &Call<'_>) -> Result<Keys, Failure> {
    let state = State::open(&call.environment.state).map_err(|error| Failure::own(error.fault()))?;
    Keys::open(state.path()).map_err(|error| unusable(&error))
}

pub(super) fn unusable(error: &KeysError) -> Failure {
    let (id, fix) = match error {
        KeysError::File { .. } | KeysError::NoRandom => {
            ("keys/unusable", "repair or remove it; clients need new keys then")
        }
        KeysError::Taken(_) => ("keys/taken", "another name, or `fumehood keys rm` first"),
        KeysError::Unknown(_) => ("keys/unknown", "`fumehood keys ls` lists them"),
        KeysError::Name(_) => ("keys/name", "a name as `ci` or `laptop-2`"),
        KeysError::TooMany => ("keys/too-many", "`fumehood keys rm` some"),
    };
    Failure::own(Fault {
        id,
        what: show_text(&error.to_string()),
        place: "the keys of the server".to_owned(),
        why: "keys are known by their names, and lie in the state folder".to_owned(),
        fix: fix.to_owned(),
    })
}

fn add(call: &mut Call<'_>) -> Result<u8, Failure> {
    let value = |flag: &str| call.parsed.value(flag).map(|value| show_bytes(value.as_bytes()));
    let Some(name) = value("name") else {
        let why = "keys are told apart by their names".to_owned();
        let fix = "fumehood keys add --name ci".to_owned();
        return Err(Failure::own(usage("usage/missing-value", "`--name` is missing".to_owned(), why, fix)));
    };
    let rights = rights(call)?;
    let keys = open(call)?;
    let missing = keys.missing_templates(rights.templates.as_deref().unwrap_or_default());
    let token = keys.add_with(&name, rights).map_err(|error| unusable(&error))?;
    if call.json {
        call.console.json(&json!({ "schema": 1, "name": name, "key": token, "missing_templates": missing }))?;
    } else {
        if !missing.is_empty() {
            let (names, list) = (missing.join(", "), "`fumehood template ls` and the presets are what there is");
            call.console
                .eprint(&format!("warning: no template is called {names} now; {list}, and one may be built later\n"));
        }
        call.console.data(format!("{token}\n").as_bytes())?;
    }
    Ok(0)
}

/// What the flags let it do.
fn rights(call: &Call<'_>) -> Result<Rights, Failure> {
    let value = |flag: &str| call.parsed.value(flag).map(|value| show_bytes(value.as_bytes()));
    let rights = Rights {
        ceiling: value("policy").map(|ceiling| judged(call, &ceiling)).transpose()?,
        sandboxes: value("sandboxes").map(|text| whole("sandboxes", &text, 1)).transpose()?,
        templates: value("templates").map(|names| templates(&names)).transpose()?,
        builds: value("builds").map(|text| whole("builds", &text, 0)).transpose()?,
        images: value("images").map(|patterns| images(&patterns)).transpose()?,
        pull: call.parsed.has("pull"),
        operator: call.parsed.has("operator"),
    };
    let builds_none = rights.templates.is_some() || rights.builds == Some(0);
    let what = if rights.pull && rights.images.is_none() {
        "`--pull` stands alone"
    } else if rights.images.is_some() && builds_none {
        "`--images` of a key that builds no templates"
    } else {
        return Ok(rights);
    };
    let why = "`--images` says what a key's own templates may begin as, and `--pull` that these are brought".to_owned();
    let fix = "--images 'python:3.*' --pull, without `--templates` and `--builds 0`".to_owned();
    Err(Failure::own(usage("usage/two-flags", what.to_owned(), why, fix)))
}

/// A whole number from `least` on.
fn whole(flag: &str, text: &str, least: u32) -> Result<u32, Failure> {
    text.parse::<u32>().ok().filter(|number| *number >= least).ok_or_else(|| {
        let (what, why) = (format!("`--{flag} {text}`"), format!("it is no whole number from {least} on"));
        Failure::own(usage("usage/bad-value", what, why, format!("--{flag} 8")))
    })
}

/// Names as in `a,b`.
fn templates(names: &str) -> Result<Vec<String>, Failure> {
    let list: Vec<String> = names.split(',').map(|name| name.trim().to_owned()).collect();
    let is_name = |name: &String| {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        !name.is_empty() && name.chars().all(plain)
    };
    if list.iter().all(is_name) {
        return Ok(list);
    }
    let why = "names are letters, digits, `-`, `_` and `.`, with commas between them".to_owned();
    let what = format!("`--templates {}`", show_text(names));
    Err(Failure::own(usage("usage/bad-value", what, why, "--templates base,code-interpreter-v1".to_owned())))
}

/// Patterns as in `a,b`.
fn images(patterns: &str) -> Result<Vec<String>, Failure> {
    let list: Vec<String> = patterns.split(',').map(|pattern| pattern.trim().to_owned()).collect();
    match list.iter().find(|pattern| NamePattern::parse(pattern).is_none()) {
        None => Ok(list),
        Some(bad) => {
            let what = format!("`{}` of `--images`", show_text(bad));
            let why =
                "no image can be called so: a name as Docker writes it, with `*` in repository and tag".to_owned();
            Err(Failure::own(usage("usage/bad-value", what, why, "--images 'python:3.*,ghcr.io/team/*'".to_owned())))
        }
    }
}

/// A ceiling that can be read now, and found from anywhere.
fn judged(call: &Call<'_>, ceiling: &str) -> Result<String, Failure> {
    let loaded = crate::load::policy_alone(&[PolicyLayer::Document(ceiling.to_owned())], call.environment)?;
    if let Some((document, place)) = server::written_by_itself(&loaded.policy) {
        let (document, place) = (show_bytes(document.as_os_str().as_bytes()), show_bytes(place.as_os_str().as_bytes()));
        let what = format!("the ceiling is read from {document}, and lets programs write {place}");
        let why = "a program of a sandbox of this key would say itself what the key may".to_owned();
        return Err(Failure::own(usage("usage/bad-value", what, why, "keep it in another folder".to_owned())));
    }
    if policy::presets::preset(ceiling).is_some() {
        return Ok(ceiling.to_owned());
    }
    let path = call.environment.cwd.clone().unwrap_or_default().join(Path::new(ceiling));
    Ok(path.to_string_lossy().into_owned())
}

fn list(call: &mut Call<'_>) -> Result<u8, Failure> {
    let keys = open(call)?.list().map_err(|error| unusable(&error))?;
    if call.json {
        let shown: Vec<_> = keys
            .iter()
            .map(|key| json!({ "name": key.name, "ceiling": key.ceiling, "sandboxes": key.sandboxes, "templates": key.templates, "builds": key.builds, "images": key.images, "pull": key.pull, "operator": key.operator, "added_ms": key.added_ms }))
            .collect();
        call.console.json(&json!({ "schema": 1, "keys": shown }))?;
        return Ok(0);
    }
    let mut table = Table::new(&["name", "ceiling", "sandboxes", "templates", "operator", "added"]);
    for key in &keys {
        let added =
            jiff::Timestamp::from_millisecond(key.added_ms).map(|time| format!("{time:.0}")).unwrap_or_default();
        let most = key.sandboxes.map_or_else(|| "any number".to_owned(), |most| most.to_string());
        table.row([
            &key.name,
            &show_text(key.ceiling.as_deref().unwrap_or("none")),
            &most,
            &key.templates.as_ref().map_or_else(|| "all".to_owned(), |names| names.join(", ")),
            if key.operator { "yes" } else { "no" },
            &added,
        ]);
    }
    let text =
        if table.is_empty() { "no keys\n".to_owned() } else { table.render(call.console.out, 0, call.console.columns) };
    call.console.data(text.as_bytes())?;
    Ok(0)
}

fn remove(call: &mut Call<'_>) -> Result<u8, Failure> {
    let Some(name) = call.parsed.words.first().map(|name| show_bytes(name.as_bytes())) else {
        let why = "a key is removed by its name".to_owned();
        let fix = "`fumehood keys ls` lists them".to_owned();
        return Err(Failure::own(usage("usage/missing-value", "no key is named".to_owned(), why, fix)));
    };
    open(call)?.remove(&name).map_err(|error| unusable(&error))?;
    if call.json {
        call.console.json(&json!({ "schema": 1, "removed": name }))?;
    }
    Ok(0)
}
