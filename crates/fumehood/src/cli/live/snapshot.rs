//! `fumehood snapshot | snapshots | fork`: what a live sandbox is now, kept, and made again.

use live::words::{Ask, Snapshotted};
use sandbox::fault::show_text;
use sandbox::snapshot::{About, SnapshotError, list, remove};
use serde_json::{Value, json};

use super::super::args::{Flag, Positionals, To, usage};
use super::super::spec::{Call, Spec};
use super::create::{of_snapshot, refused, started};
use super::{answered, connected, home, sandbox_argument, text, wait_for};
use crate::changes::state;
use crate::ui::{Failure, Role, Table, count};

/// Most sandboxes that one call makes.
const MAX_COUNT: u32 = 100;

pub(crate) const SNAPSHOT: Spec = Spec {
    path: &["snapshot"],
    about: "Keep the files of a live sandbox, and print the id of what was kept",
    usage: "ID|NAME [--name NAME]",
    more: "What it changed in its workspace, its home folder and `/tmp`, all of one moment: everything inside stands still \
           meanwhile. Memory and programs are part of it on the vm tier alone, which keeps the whole machine.\n\
           `fumehood create --from SNAPSHOT` makes another sandbox of it.\n\
           Exit code 0, or 125 where it could not be made.",
    tables: &[&[Flag::new("name", Some("NAME"), To::Ours, "A name that stands for its id")]],
    words: Positionals::Mixed(1),
    hidden: false,
    run: snapshot,
};

pub(crate) const SNAPSHOTS: Spec = Spec {
    path: &["snapshots"],
    about: "List the snapshots of live sandboxes, or remove some",
    usage: "[--rm SNAPSHOT]",
    more: "The oldest comes first. Exit code 0, or 125 if one that is to be removed is not known.",
    tables: &[&[Flag::new("rm", Some("SNAPSHOT"), To::Ours, "Remove this one, by id or name; may be repeated").many()]],
    words: Positionals::Mixed(0),
    hidden: false,
    run: snapshots,
};

pub(crate) const FORK: Spec = Spec {
    path: &["fork"],
    about: "Make live sandboxes that begin as another one is now, and print their ids",
    usage: "ID|NAME [-n N]",
    more: "Files and policy are the same, programs go along on the vm tier alone; names and labels are not copied.\n\
           Exit code 0; 125 or 126 if not all could be made: those that could are printed.",
    tables: &[&[Flag::new("number", Some("N"), To::Ours, "So many (1)").short(b'n')]],
    words: Positionals::Mixed(1),
    hidden: false,
    run: fork,
};

fn failed(error: &SnapshotError) -> Failure {
    Failure::own(error.fault())
}

/// Asks the supervisor for one.
fn taken(call: &Call<'_>, word: &str, name: Option<String>) -> Result<Snapshotted, Failure> {
    let home = home(call)?;
    wait_for(async {
        let (info, client) = connected(&home, word).await?;
        client.call(&Ask::Snapshot { name }).await.map_err(|error| answered(error, &info.id))
    })
}

fn snapshot(call: &mut Call<'_>) -> Result<u8, Failure> {
    let word = sandbox_argument(call, "snapshot ID")?;
    let made = taken(call, &word, call.parsed.value("name").map(text).transpose()?)?;
    if call.json {
        return call.console.json(&made).map(|_| 0);
    }
    if made.left_out > 0 {
        let files = count(made.left_out, "file is", "files are");
        call.console.eprint(&format!("{files} not in it: special, too large or unreadable\n"));
    }
    call.console.data(format!("{}\n", made.id).as_bytes()).map(|_| 0)
}

fn snapshots(call: &mut Call<'_>) -> Result<u8, Failure> {
    let state = state(call.environment)?;
    if call.parsed.has("rm") {
        let named = call.parsed.flags.iter().filter(|(flag, _)| flag.long == "rm");
        let named: Vec<String> =
            named.filter_map(|(_, value)| value.as_deref()).map(text).collect::<Result<_, Failure>>()?;
        for word in &named {
            remove(&state, word).map_err(|error| failed(&error))?;
        }
        return if call.json { call.console.json(&json!({ "schema": 1, "removed": named })).map(|_| 0) } else { Ok(0) };
    }
    let found: Vec<About> = list(&state).map_err(|error| failed(&error))?;
    if call.json {
        // Flags that gave variables their values are for what begins as it, and not to be shown.
        let shown = found.into_iter().map(|about| About { layers: Value::Null, ..about });
        return call.console.json(&json!({ "schema": 1, "snapshots": shown.collect::<Vec<_>>() })).map(|_| 0);
    }
    let mut table = Table::new(&["id", "name", "made", "tier", "bytes", "run"]);
    for about in &found {
        let name = about.name.as_deref().map_or_else(|| "-".to_owned(), show_text);
        let (made, tier) = (show_text(&about.made), show_text(&about.tier));
        table.painted([
            (about.id.as_str(), Some(Role::Name)),
            (&name, None),
            (&made, None),
            (&tier, None),
            (&about.bytes.to_string(), None),
            (&show_text(&about.run), None),
        ]);
    }
    call.console.data(table.render(call.console.out, 0, call.console.columns).as_bytes()).map(|_| 0)
}

fn fork(call: &mut Call<'_>) -> Result<u8, Failure> {
    let word = sandbox_argument(call, "fork ID")?;
    let number = number(call)?;
    let made = taken(call, &word, None)?;
    let done = forks(call, &made.id, number);
    // It was there for this alone, whatever came of it.
    let removed = state(call.environment).and_then(|state| remove(&state, &made.id).map_err(|error| failed(&error)));
    let code = done?;
    removed?;
    Ok(code)
}

fn forks(call: &Call<'_>, snapshot: &str, number: u32) -> Result<u8, Failure> {
    let (mut made, mut code, mut refusal_json) = (Vec::new(), 0, Value::Null);
    for _ in 0..number {
        let (wanted, environment) = of_snapshot(call, snapshot)?;
        match started(&wanted, &environment)? {
            Ok(created) if call.json => made.push(created.info),
            // At once: should the next one fail, this one is there all the same.
            Ok(created) => drop(call.console.data(format!("{}\n", created.info.id).as_bytes())?),
            Err(refusal) => {
                code = if call.json { refusal.code } else { refused(call, &refusal)? };
                refusal_json = refusal.json;
                break;
            }
        }
    }
    if call.json {
        let mut told = json!({ "schema": 1, "sandboxes": made, "code": code });
        // Why there are no more, as of `create`.
        for part in ["refused", "errors"] {
            if let (Some(why), Some(told)) = (refusal_json.get(part), told.as_object_mut()) {
                told.insert(part.to_owned(), why.clone());
            }
        }
        call.console.json(&told)?;
    }
    Ok(code)
}

fn number(call: &Call<'_>) -> Result<u32, Failure> {
    let Some(value) = call.parsed.value("number") else { return Ok(1) };
    let read = value.to_str().and_then(|value| value.parse().ok());
    read.filter(|number| (1..=MAX_COUNT).contains(number)).ok_or_else(|| {
        Failure::own(usage(
            "usage/bad-value",
            format!("`-n {}`", show_text(&value.to_string_lossy())),
            format!("it is no number from 1 to {MAX_COUNT}"),
            "`-n 3`".to_owned(),
        ))
    })
}
