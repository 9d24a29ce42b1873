//! `fumehood mcp install`: the gateway as a server in a client's own configuration, and out of it again.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::args::{Flag, To, Words, closest, usage};
use super::ask::asked_layers;
use super::flags::POLICY;
use super::spec::{Call, Spec};
use crate::mcp::install::{CLIENTS, Change, Client, Entry, forget, undo};
use crate::ui::{Failure, Role};
use sandbox::PolicyLayer;
use sandbox::fault::{show_bytes, show_path, show_text};
use sandbox::state::State;

const FLAGS: &[Flag] = &[
    Flag::new("client", Some("CLIENT"), To::Ours, "Whose configuration: claude-code, cursor, codex, vscode")
        .choices(&["claude-code", "cursor", "codex", "vscode"]),
    Flag::new("user", None, To::Ours, "The user's own file, not the project's"),
    Flag::new("file", Some("FILE"), To::Ours, "This file instead of the client's usual one"),
    Flag::new("name", Some("NAME"), To::Ours, "Name of the server there; default fumehood"),
    Flag::new("undo", None, To::Ours, "Take it out again"),
    Flag::new("dry-run", None, To::Ours, "Show the change and make none"),
];

pub(super) const INSTALL: Spec = Spec {
    path: &["mcp", "install"],
    about: "Put the gateway into the configuration of a client, or take it out",
    usage: "--client CLIENT -p POLICY [--user] [--undo] [--dry-run]",
    more: "Shows the change before it is made. Comments and everything else in the file stay; the file as it was is kept in\n\
           the state folder, and --undo brings it back.\n\
           Exit code 0, or 1 if there is nothing to undo.",
    tables: &[POLICY, FLAGS],
    words: Words::Mixed(0),
    hidden: false,
    run: install,
};

fn install(call: &mut Call<'_>) -> Result<u8, Failure> {
    let client = client(call)?;
    let state = State::open(&call.environment.state).map_err(|error| Failure::own(error.fault()))?;
    let file = match call.parsed.value("file") {
        Some(file) => call.environment.cwd.clone().unwrap_or_default().join(file),
        None => client.file(call.environment, call.parsed.has("user"))?,
    };
    let taking_out = call.parsed.has("undo");
    let entry = entry(call, taking_out)?;
    let change = if taking_out { undo(client, &file, &entry, &state)? } else { client.change(&file, &entry, true)? };
    let Some(change) = change else {
        let what = format!("{} has no server `{}`", show_path(&file), show_text(&entry.name));
        let fix = "name the file in which it stands with `--file`".to_owned();
        let fault = usage("mcp.install/nothing", what, "there is nothing to undo".to_owned(), fix);
        return Err(Failure::Faults { code: 1, faults: vec![fault] });
    };
    let dry = call.parsed.has("dry-run");
    let others =
        if taking_out { Vec::new() } else { client.others(change.after.as_deref().unwrap_or_default(), &entry) };
    show(call, &change, dry, &others)?;
    if !dry {
        change.make(&state, !taking_out)?;
        if taking_out {
            forget(&state, &change.file);
        }
        if !call.json {
            let done = if taking_out { "taken out of" } else { "written to" };
            call.console.eprint(&format!("{done} {}; restart {} to see it\n", show_path(&change.file), client.name));
        }
    }
    if !taking_out && !call.json {
        if !others.is_empty() {
            call.console.eprint(&beside(&change.file, &others));
        }
        call.console.eprint(&format!("note: tools of {} itself (a shell, an editor) pass no gateway\n", client.name));
    }
    Ok(0)
}

/// Other servers of the same file, which nobody judges.
fn beside(file: &Path, others: &[String]) -> String {
    let names: Vec<_> = others.iter().map(|name| format!("`{}`", show_text(name))).collect();
    format!(
        "note: {} server{} in {} stay ungated, because the client starts them itself: {}\n\
         fix:  move their entries to a file of their own, and name that in the policy: [mcp.servers.more] import = \"FILE\"\n",
        others.len(),
        if others.len() == 1 { "" } else { "s" },
        show_path(file),
        names.join(", ")
    )
}

fn client(call: &Call<'_>) -> Result<&'static Client, Failure> {
    let typed = call.parsed.value("client").map(|name| show_bytes(name.as_bytes()));
    let found = typed.as_deref().and_then(Client::named);
    found.ok_or_else(|| {
        let names = || CLIENTS.iter().map(|client| client.name);
        let all = names().collect::<Vec<_>>().join(", ");
        let (what, fix) = match &typed {
            Some(typed) => {
                let near = closest(typed, names())
                    .map_or_else(|| format!("one of {all}"), |near| format!("`--client {near}`"));
                (format!("unknown client `{typed}`"), near)
            }
            None => ("no client was named".to_owned(), format!("`--client` with one of {all}")),
        };
        Failure::own(usage("mcp.install/client", what, "each client has a file of its own".to_owned(), fix))
    })
}

/// What is to stand in the file. The policy is named by its full path: clients start servers wherever they stand.
fn entry(call: &Call<'_>, taking_out: bool) -> Result<Entry, Failure> {
    let name = call.parsed.value("name").map_or_else(|| "fumehood".to_owned(), |name| show_bytes(name.as_bytes()));
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
        let what = format!("`--name {name}`");
        let why = "it becomes a part of tool names and of keys in the file".to_owned();
        return Err(Failure::own(usage("usage/bad-value", what, why, "1 to 64 letters, digits, - and _".to_owned())));
    }
    let layers = asked_layers(call, 125)?;
    let mut args = vec!["mcp".to_owned(), "gateway".to_owned()];
    for layer in &layers {
        match layer {
            PolicyLayer::Document(policy) => args.extend(["-p".to_owned(), full(policy, call)]),
            PolicyLayer::Flag { name, value } => args.extend([name.clone(), value.clone()]),
            PolicyLayer::Set(text) => args.extend(["--set".to_owned(), text.clone()]),
        }
    }
    if !taking_out {
        if !layers.iter().any(|layer| matches!(layer, PolicyLayer::Document(_))) {
            let why = "a gateway without a policy lets nothing through".to_owned();
            return Err(Failure::own(usage(
                "mcp/no-tools",
                "no policy was named".to_owned(),
                why,
                "`-p POLICY`".to_owned(),
            )));
        }
        // A mistake is told now, not when the client starts it.
        crate::load::policy(&layers, call.environment)?;
    }
    let binary = std::fs::read_link("/proc/self/exe").unwrap_or_else(|_| call.environment.argv0.clone());
    Ok(Entry { name, command: binary.display().to_string(), args })
}

fn full(policy: &str, call: &Call<'_>) -> String {
    if !policy.contains('/') && Path::new(policy).extension().is_none() {
        return policy.to_owned();
    }
    let path: PathBuf = call.environment.cwd.clone().unwrap_or_default().join(policy);
    std::fs::canonicalize(&path).unwrap_or(path).display().to_string()
}

fn show(call: &Call<'_>, change: &Change, dry: bool, others: &[String]) -> Result<(), Failure> {
    let (before, after) = (change.before.as_deref().unwrap_or_default(), change.after.as_deref().unwrap_or_default());
    if call.json {
        call.console.json(&json!({
            "schema": 1, "file": change.file, "made": !dry, "before": change.before, "after": change.after,
            "ungated": others,
        }))?;
        return Ok(());
    }
    let name = change.file.display().to_string();
    let diff = similar::TextDiff::from_lines(before, after);
    let mut text = String::new();
    for line in diff.unified_diff().context_radius(3).header(&name, &name).to_string().lines() {
        let role = match line.as_bytes().first() {
            Some(b'+') => Role::Good,
            Some(b'-') => Role::Bad,
            Some(_) | None => Role::Aside,
        };
        text.push_str(&format!("{}\n", call.console.out.paint(role, &show_text(line))));
    }
    if text.is_empty() {
        text.push_str("nothing changes\n");
    }
    call.console.data(text.as_bytes())?;
    Ok(())
}
