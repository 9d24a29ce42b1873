//! `fumehood mcp install`: the gateway as a server in a client's own configuration, and out of it again.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use gateway::mcp::servers::Server;
use serde_json::json;

use super::args::{Flag, Positionals, To, closest, usage};
use super::ask::asked_layers;
use super::flags::POLICY;
use super::spec::{Call, Spec};
use crate::mcp::install::{
    CLIENTS, Change, Client, Entry, Into, Moved, forget, give_back, make_all, take, undo, unmake,
};
use crate::ui::{FAILED, Failure, Role};
use sandbox::PolicyLayer;
use sandbox::fault::{show_bytes, show_path, show_text};
use sandbox::state::State;

const FLAGS: &[Flag] = &[
    Flag::new("client", Some("CLIENT"), To::Ours, "Whose configuration: claude-code, cursor, codex, vscode")
        .choices(&["claude-code", "cursor", "codex", "vscode"]),
    Flag::new("user", None, To::Ours, "The user's own file, not the project's"),
    Flag::new("file", Some("FILE"), To::Ours, "This file instead of the client's usual one"),
    Flag::new("name", Some("NAME"), To::Ours, "Name of the server there; default fumehood"),
    Flag::new("move", None, To::Ours, "Take the other servers of the file over into the policy: behind the gateway"),
    Flag::new("undo", None, To::Ours, "Take it out again"),
    Flag::new("dry-run", None, To::Ours, "Show the change and make none"),
];

pub(super) const INSTALL: Spec = Spec {
    path: &["mcp", "install"],
    about: "Put the gateway into the configuration of a client, or take it out",
    usage: "--client CLIENT -p POLICY [--user] [--move] [--undo] [--dry-run]",
    more: "Shows the change before it is made. Comments and everything else in the file stay; the file as it was is kept in\n\
           the state folder, and --undo brings it back.\n\
           Other servers of the file stay with the client, ungated, and are named; with --move their entries go to a file\n\
           beside it (NAME.gated.json), which the policy (TOML) imports from then on.\n\
           Exit code 0, or 1 if there is nothing to undo.",
    tables: &[POLICY, FLAGS],
    words: Positionals::Mixed(0),
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
    if call.parsed.has("undo") {
        return take_out(call, client, &file, &state);
    }
    let entry = entry(call, false)?;
    let change = client.change(&file, &entry, true)?.ok_or_else(|| nothing(&file, &entry))?;
    let own = change.file.clone();
    let moved = if call.parsed.has("move") {
        let policy = policy_file(call)?;
        let names = policy_servers(call)?.into_iter().map(|server| server.name).collect();
        take(client, change, &entry, Into { file: &policy, names }, call.environment)?
    } else {
        let others = client.others(change.after.as_deref().unwrap_or_default(), &entry);
        let stay = others.into_iter().map(|name| (name, String::new())).collect();
        Moved { changes: vec![change], moved: Vec::new(), stay }
    };
    let dry = call.parsed.has("dry-run");
    show(call, &own, &moved, dry)?;
    if !dry {
        make_all(&moved.changes, &state, true)?;
        if !moved.moved.is_empty()
            && let Err(wrong) = policy_servers(call)
        {
            unmake(&moved.changes, &state)?;
            return Err(wrong);
        }
    }
    if !call.json {
        told(call, client, &moved, dry);
    }
    Ok(0)
}

/// Takes our entry out, and gives back what was moved.
fn take_out(call: &Call<'_>, client: &Client, file: &Path, state: &State) -> Result<u8, Failure> {
    let entry = entry(call, true)?;
    let change = undo(client, file, &entry, state)?.ok_or_else(|| nothing(file, &entry))?;
    let own = change.file.clone();
    let changes = give_back(client, change)?;
    let dry = call.parsed.has("dry-run");
    show(call, &own, &Moved { changes: changes.clone(), moved: Vec::new(), stay: Vec::new() }, dry)?;
    if !dry {
        make_all(&changes, state, false)?;
        forget(state, &own);
        if !call.json {
            call.console.eprint(&format!("taken out of {}; restart {} to see it\n", show_path(&own), client.name));
        }
    }
    Ok(0)
}

fn nothing(file: &Path, entry: &Entry) -> Failure {
    let what = format!("{} has no server `{}`", show_path(file), show_text(&entry.name));
    let fix = "name the file in which it stands with `--file`".to_owned();
    let fault = usage("mcp.install/nothing", what, "there is nothing to undo".to_owned(), fix);
    Failure::Faults { code: 1, faults: vec![fault] }
}

/// The servers of the policy as it is now.
fn policy_servers(call: &Call<'_>) -> Result<Vec<Server>, Failure> {
    let loaded = crate::load::policy(&asked_layers(call, FAILED)?, call.environment)?;
    crate::mcp::servers(&loaded, call.environment)
}

/// The file of the policy that takes servers over: the last that was named.
fn policy_file(call: &Call<'_>) -> Result<PathBuf, Failure> {
    let layers = asked_layers(call, FAILED)?;
    let mut files = layers.iter().filter_map(|layer| match layer {
        PolicyLayer::Document(policy) => Some(PathBuf::from(full(policy, call))),
        PolicyLayer::Flag { .. } | PolicyLayer::Set(_) => None,
    });
    files.next_back().filter(|file| file.extension().is_some_and(|extension| extension == "toml")).ok_or_else(|| {
        let what = "servers can be moved into no file of a policy".to_owned();
        let why = "a preset is no file, and lines are added to TOML alone".to_owned();
        let fix = "name a policy of your own as the last `-p`: FILE.toml".to_owned();
        Failure::own(usage("mcp.install/policy", what, why, fix))
    })
}

/// What was done, and what of the client's servers is judged now and what is not.
fn told(call: &Call<'_>, client: &Client, moved: &Moved, dry: bool) {
    let own = moved.changes.last().map(|change| show_path(&change.file)).unwrap_or_default();
    if !dry {
        call.console.eprint(&format!("written to {own}; restart {} to see it\n", client.name));
    }
    if !moved.moved.is_empty() {
        let names: Vec<_> = moved.moved.iter().map(|server| format!("`{}`", show_text(&server.name))).collect();
        call.console.eprint(&format!(
            "note: moved behind the gateway: {}; no tool of theirs passes until an entry allows it\n\
             fix:  `fumehood tools suggest -p POLICY --server NAME` writes the entries\n",
            names.join(", ")
        ));
        for note in gateway::mcp::packages::notes(&moved.moved) {
            call.console.eprint(&format!("note: {note}\n"));
        }
    }
    if !moved.stay.is_empty() {
        call.console.eprint(&beside(&own, &moved.stay, call.parsed.has("move")));
    }
    call.console.eprint(&format!("note: tools of {} itself (a shell, an editor) pass no gateway\n", client.name));
}

/// Other servers of the same file, which nobody judges.
fn beside(file: &str, stay: &[(String, String)], asked: bool) -> String {
    let shown = |(name, why): &(String, String)| match why.as_str() {
        "" => format!("`{}`", show_text(name)),
        why => format!("`{}` ({})", show_text(name), show_text(why)),
    };
    let names: Vec<_> = stay.iter().map(shown).collect();
    let fix = if asked {
        "write them as [mcp.servers.NAME] in the policy"
    } else {
        "`--move` takes them over into the policy"
    };
    format!(
        "note: {} server{} in {file} stay ungated, because the client starts them itself: {}\nfix:  {fix}\n",
        stay.len(),
        if stay.len() == 1 { "" } else { "s" },
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
    let layers = asked_layers(call, FAILED)?;
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

fn show(call: &Call<'_>, own: &Path, moved: &Moved, dry: bool) -> Result<(), Failure> {
    let is_own = |change: &&Change| change.file == own;
    let Some(client) = moved.changes.iter().find(is_own) else { return Ok(()) };
    if call.json {
        let also = moved.changes.iter().filter(|change| change.file != own);
        let also: Vec<_> =
            also.map(|one| json!({"file": one.file, "before": one.before, "after": one.after})).collect();
        let names: Vec<_> = moved.moved.iter().map(|server| &server.name).collect();
        let ungated: Vec<_> = moved.stay.iter().map(|(name, _)| name).collect();
        call.console.json(&json!({
            "schema": 1, "file": own, "made": !dry, "before": client.before, "after": client.after,
            "ungated": ungated, "moved": names, "also": also,
        }))?;
        return Ok(());
    }
    let text: String = moved.changes.iter().map(|change| difference(call, change)).collect();
    call.console.data(if text.is_empty() { b"nothing changes\n" } else { text.as_bytes() })?;
    Ok(())
}

fn difference(call: &Call<'_>, change: &Change) -> String {
    let (before, after) = (change.before.as_deref().unwrap_or_default(), change.after.as_deref().unwrap_or_default());
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
    text
}
