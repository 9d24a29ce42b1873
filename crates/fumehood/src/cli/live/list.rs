//! `fumehood ps` and `fumehood info`.

use jiff::Timestamp;
use live::words::{Ask, Info, State, Stopped};
use serde_json::{Value, json};

use super::super::args::{Flag, Positionals, To};
use super::super::spec::{Call, Spec};
use super::{connected, home, sandbox_argument, stopped, wait_for};
use crate::ui::{Failure, Role, Table, count, seconds};
use sandbox::fault::show_text;

const FLAGS: &[Flag] = &[Flag::new("all", None, To::Ours, "Also those that ended, for a day").short(b'a')];

pub(crate) const PS: Spec = Spec {
    path: &["ps"],
    about: "List live sandboxes",
    usage: "[-a]",
    more: "The newest comes first. Exit code 0.",
    tables: &[FLAGS],
    words: Positionals::Mixed(0),
    hidden: false,
    run: ps,
};

pub(crate) const INFO: Spec = Spec {
    path: &["info"],
    about: "Say all about a live sandbox",
    usage: "ID|NAME",
    more: "Also of one that ended. Exit code 0, or 125 if it is not known.",
    tables: &[],
    words: Positionals::Mixed(1),
    hidden: false,
    run: info,
};

const fn state(info: &Info) -> (&'static str, Role) {
    match info.state {
        State::Running => ("running", Role::Good),
        State::Paused => ("paused", Role::Weak),
        State::Ended => ("ended", Role::Aside),
    }
}

/// Since a moment, or until it.
#[expect(clippy::cast_precision_loss, reason = "rounded to be read")]
fn apart(from_ms: i64, to_ms: i64) -> String {
    let whole = to_ms.saturating_sub(from_ms).max(0) / 1000;
    seconds(whole as f64)
}

/// How long it has lived, or did; of one whose supervisor was killed nobody knows.
fn age(info: &Info, now_ms: i64) -> String {
    match (info.state, info.ended_ms) {
        (State::Ended, None) => "-".to_owned(),
        (_, ended) => apart(info.created_ms, ended.unwrap_or(now_ms)),
    }
}

fn ps(call: &mut Call<'_>) -> Result<u8, Failure> {
    let found = home(call)?.list(call.parsed.has("all")).map_err(|error| stopped(&error))?;
    if call.json {
        return call.console.json(&json!({ "schema": 1, "sandboxes": found })).map(|_| 0);
    }
    let now = Timestamp::now().as_millisecond();
    let mut table = Table::new(&["id", "name", "state", "age", "tier", "end"]);
    for info in &found {
        let (state, role) = state(info);
        let age = age(info, now);
        let end = match (&info.message, info.ends_ms) {
            (Some(message), _) => show_text(message),
            (None, Some(ends)) => format!("in {}", apart(now, ends)),
            (None, None) => "open".to_owned(),
        };
        let name = info.name.as_deref().unwrap_or("-");
        table.painted([
            (info.id.as_str(), Some(Role::Name)),
            (name, None),
            (state, Some(role)),
            (&age, None),
            (&info.tier, None),
            (&end, None),
        ]);
    }
    call.console.data(table.render(call.console.out, 0, call.console.columns).as_bytes()).map(|_| 0)
}

fn info(call: &mut Call<'_>) -> Result<u8, Failure> {
    let (home, word) = (home(call)?, sandbox_argument(call, "info ID")?);
    let mut found = home.find(&word).map_err(|error| stopped(&error))?;
    if found.state != State::Ended {
        let now = wait_for(async {
            let (info, client) = connected(&home, &word).await?;
            client.call::<Info>(&Ask::Info {}).await.map_err(|error| super::answered(error, &info.id))
        });
        // One that ended just now has said so in its record.
        found = now.or_else(|_| home.find(&word).map_err(|error| stopped(&error)))?;
    }
    if call.json {
        return call.console.json(&found).map(|_| 0);
    }
    let now = Timestamp::now().as_millisecond();
    let mut table = Table::new(&["", ""]);
    let mut row = |name: &str, value: &str| table.row([name, &show_text(value)]);
    row("id", &found.id);
    row("name", found.name.as_deref().unwrap_or("-"));
    row("state", state(&found).0);
    row("run", &found.run);
    row("tier", &found.tier);
    row("policy", &found.policy);
    row("age", &age(&found, now));
    if let Some(ends) = found.ends_ms.filter(|_| found.state != State::Ended) {
        row("ends in", &apart(now, ends));
    }
    if let Some(message) = &found.message {
        row("ended", message);
    }
    for (key, value) in &found.labels {
        row(&format!("label {}", show_text(key)), value);
    }
    if let Some(agent) = &found.agent {
        row("user", &format!("{} ({}:{}), home {}, in {}", agent.user, agent.uid, agent.gid, agent.home, agent.cwd));
    }
    let denied = found.usage.pointer("/net/denied").and_then(Value::as_u64).filter(|denied| *denied > 0);
    if let Some(denied) = denied {
        row("stopped", &format!("{} of the network so far; the last kinds:", count(denied, "attempt", "attempts")));
    }
    for Stopped { what, why, count, .. } in &found.violations {
        let times = if *count > 1 { format!(" ({count} times)") } else { String::new() };
        row("", &format!("{what}{times}: {why}"));
    }
    call.console.data(table.render(call.console.out, 0, call.console.columns).as_bytes()).map(|_| 0)
}
