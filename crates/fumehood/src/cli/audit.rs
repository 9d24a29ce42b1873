//! `fumehood audit show | tail | verify`: reading the log, and judging it.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value as Json;

use super::args::{Flag, Positionals, To, usage};
use super::spec::{Call, Spec};
use crate::ui::{Failure, Palette, Role, count};
use sandbox::audit::{AuditError, Event, Filter, Follow, Kind, Part, Verdict, show, verify};
use sandbox::fault::{show_bytes, show_json, show_path, show_text};
use sandbox::state::State;

const FOLDER: &[Flag] =
    &[Flag::new("dir", Some("DIR"), To::Ours, "The folder of the log, where `audit.path` moved it")];
const FILTER: &[Flag] = &[
    Flag::new("run", Some("RUN"), To::Ours, "Only events of this run"),
    Flag::new("kind", Some("KIND"), To::Ours, "Only events of this kind (run.ended) or family (run)"),
    Flag::new("since", Some("TIME"), To::Ours, "Only events from 2026-11-22T01:30:00Z on, or not older than 10m"),
    Flag::new("lines", Some("N"), To::Ours, "Only the newest N events").short(b'n'),
];
const TOOLS: &[Flag] = &[
    Flag::new("tools", None, To::Ours, "Only calls of tools and what people said of them, a line for each step"),
    Flag::new(
        "net",
        None,
        To::Ours,
        "Only what the network's broker stopped, asked, learned or was told (`--kind egress`), a line for each",
    ),
];
const KEY: &[Flag] =
    &[Flag::new("key", Some("HEX"), To::Ours, "The public key that must have signed; else the one in the keys folder")];

pub(super) const SHOW: Spec = Spec {
    path: &["audit", "show"],
    about: "Print events of the audit log",
    usage: "[--tools|--net] [--run RUN] [--kind KIND] [--since TIME] [-n N]",
    more: "With --json: {schema, events}. Nothing is judged here; `fumehood audit verify` does that.\n\
           Exit code 0, 125 if it cannot be read.",
    tables: &[FILTER, TOOLS, FOLDER],
    words: Positionals::Mixed(0),
    hidden: false,
    run: show_events,
};

pub(super) const TAIL: Spec = Spec {
    path: &["audit", "tail"],
    about: "Print events of the audit log as they come",
    usage: "[--run RUN] [--kind KIND] [-n N]",
    more: "The newest N events come first (10 unless -n says otherwise). With --json: one line per event.\n\
           Exit code 0, 125 if it cannot be read.",
    tables: &[FILTER, FOLDER],
    words: Positionals::Mixed(0),
    hidden: false,
    run: tail,
};

pub(super) const VERIFY: Spec = Spec {
    path: &["audit", "verify"],
    about: "Check the chain and the signatures of the audit log",
    usage: "[--key HEX]",
    more: "Exit code 0 if every event is as it was written, 1 if not (the first bad event is named), 125 if it cannot be read.",
    tables: &[KEY, FOLDER],
    words: Positionals::Mixed(0),
    hidden: false,
    run: verify_log,
};

fn failed(error: &AuditError) -> Failure {
    Failure::own(error.fault())
}

fn state(call: &Call<'_>) -> Result<State, Failure> {
    State::open(&call.environment.state).map_err(|error| Failure::own(error.fault()))
}

fn bad(flag: &str, value: &str, why: &str, fix: &str) -> Failure {
    Failure::own(usage("usage/bad-value", format!("`--{flag} {value}`"), why.to_owned(), fix.to_owned()))
}

/// The folder that is named. One that is not there has no log, and least of all an intact one.
fn folder(call: &Call<'_>) -> Result<Option<PathBuf>, Failure> {
    let Some(dir) = call.parsed.value("dir").map(Path::new) else { return Ok(None) };
    let dir = call.environment.cwd.as_deref().map_or_else(|| dir.to_owned(), |cwd| cwd.join(dir));
    if dir.is_dir() {
        return Ok(Some(dir));
    }
    let shown = show_bytes(dir.as_os_str().as_bytes());
    Err(bad("dir", &shown, "there is no such folder", "the folder that `audit.path` named"))
}

/// The key that must have signed, as `verify` writes it.
fn key(call: &Call<'_>) -> Result<Option<String>, Failure> {
    let Some(key) = call.parsed.value("key").map(|v| show_bytes(v.as_bytes())) else { return Ok(None) };
    if key.len() == 64 && key.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Ok(Some(key.to_ascii_lowercase()));
    }
    Err(bad(
        "key",
        &key,
        "a public key is 64 hexadecimal digits",
        "as `fumehood audit verify` shows it where it was made",
    ))
}

fn filter(call: &Call<'_>) -> Result<Filter, Failure> {
    let text = |flag| call.parsed.value(flag).map(|v| show_bytes(v.as_bytes()));
    let since = |text: String| {
        moment(&text, Timestamp::now())
            .ok_or_else(|| bad("since", &text, "it is neither a time nor a duration", "2026-11-22T01:30:00Z, or 10m"))
    };
    let lines =
        |text: String| text.parse::<usize>().map_err(|_not_one| bad("lines", &text, "it is no whole number", "-n 20"));
    // A misspelt kind would be an empty answer.
    let kind = |text: String| {
        let family = |name: &str| name.split('.').next() == Some(text.trim_end_matches('.'));
        if Kind::parse(&text).is_some() || Kind::FIXED.iter().chain(Kind::FAMILIES).any(|name| family(name)) {
            return Ok(text);
        }
        let families: Vec<String> = Kind::FAMILIES.iter().map(|family| format!("{family}*")).collect();
        let known = format!("{}, {}; or the word before the dot", Kind::FIXED.join(", "), families.join(", "));
        Err(bad("kind", &text, "no event has this kind", &known))
    };
    Ok(Filter {
        run: text("run"),
        kind: text("kind").or_else(|| call.parsed.has("net").then(|| "egress".to_owned())).map(kind).transpose()?,
        since: text("since").map(since).transpose()?,
        limit: text("lines").map(lines).transpose()?,
    })
}

/// A time, or how long ago it was.
fn moment(text: &str, now: Timestamp) -> Option<Timestamp> {
    const UNITS: [(&str, i64); 5] = [("s", 1), ("m", 60), ("min", 60), ("h", 3600), ("d", 86_400)];
    if let Ok(time) = text.parse::<Timestamp>() {
        return Some(time);
    }
    let split = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at_checked(split)?;
    let number: i64 = number.parse().ok()?;
    let (_, seconds) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let ago = jiff::SignedDuration::from_secs(number.checked_mul(*seconds)?);
    now.checked_sub(ago).ok()
}

fn show_events(call: &mut Call<'_>) -> Result<u8, Failure> {
    let of_tools = call.parsed.has("tools");
    let mut filter = filter(call)?;
    // The newest N of those that are shown, not those among the newest N.
    let most = if of_tools { filter.limit.take() } else { None };
    let mut events = show(&state(call)?, folder(call)?.as_deref(), &filter).map_err(|e| failed(&e))?;
    if of_tools {
        events.retain(|event| event.kind.starts_with("tool.") || event.kind.starts_with("approval."));
        events.drain(..most.map_or(0, |most| events.len().saturating_sub(most)));
    }
    if call.json {
        call.console.json(&serde_json::json!({ "schema": 1, "events": events }))?;
        return Ok(0);
    }
    let line = match (of_tools, call.parsed.has("net")) {
        (true, _) => step,
        (false, true) => destination,
        (false, false) => line,
    };
    let text: String = events.iter().map(|event| line(event, call.console.out, call.console.columns)).collect();
    call.console.data(text.as_bytes())?;
    if events.is_empty() {
        call.console.eprint("no events, or none that was asked for\n");
    }
    Ok(0)
}

fn tail(call: &mut Call<'_>) -> Result<u8, Failure> {
    let mut filter = filter(call)?;
    filter.limit = filter.limit.or(Some(10));
    let (state, folder) = (state(call)?, folder(call)?);
    // The watch comes first, so that no event falls between the two looks.
    let mut follow = Follow::new(&state, folder.as_deref(), filter.clone()).map_err(|e| failed(&e))?;
    let old = show(&state, folder.as_deref(), &filter).map_err(|e| failed(&e))?;
    let newest = old.last().map_or(0, |event| event.seq);
    for event in &old {
        if !tell(call, event)? {
            return Ok(0);
        }
    }
    loop {
        let event = follow.next_within(Duration::from_secs(3600)).map_err(|e| failed(&e))?;
        if let Some(event) = event.filter(|event| event.seq > newest)
            && !tell(call, &event)?
        {
            return Ok(0);
        }
    }
}

/// Prints one event; `false` if nobody reads any more.
fn tell(call: &Call<'_>, event: &Event) -> Result<bool, Failure> {
    if call.json {
        let mut text = show_json(serde_json::to_string(event).unwrap_or_default());
        text.push('\n');
        return call.console.data(text.as_bytes());
    }
    call.console.data(line(event, call.console.out, call.console.columns).as_bytes())
}

/// `seq time kind run body`, the body cut to the width.
fn line(event: &Event, palette: Palette, columns: usize) -> String {
    let Event { seq, time, run, kind, body, prev: _, hash: _ } = event;
    let head = format!("{seq:>6}  {}  {:<18} {run:<24} ", show_text(time), show_text(kind), run = show_text(run));
    let room = columns.saturating_sub(head.chars().count()).max(20);
    let body = show_text(&body.to_string());
    let short: String =
        if body.chars().count() > room { body.chars().take(room - 1).chain(['…']).collect() } else { body };
    format!("{head}{}\n", palette.paint(Role::Aside, &short))
}

/// `time run kind what`: of what was stopped the words of its record, which name the host.
fn destination(event: &Event, palette: Palette, columns: usize) -> String {
    let Event { seq: _, time, run, kind, body, prev: _, hash: _ } = event;
    let text = |key: &str| body.get(key).and_then(Json::as_str);
    let said = match (text("what"), text("why")) {
        (Some(what), Some(why)) => format!("{what}: {why}"),
        (Some(_), None) | (None, Some(_) | None) => body.to_string(),
    };
    // Without what is less than a second.
    let time = time.split_once('.').map_or_else(|| time.clone(), |(seconds, _)| format!("{seconds}Z"));
    let (time, run) = (show_text(&time), show_text(run));
    let said = show_text(&format!("{kind}: {said}"));
    // The run stands behind what it did: where lines are cut, a host is read first.
    let head = format!("{time}  ");
    let room = columns.saturating_sub(head.chars().count()).max(30);
    let whole = format!("{said}  {run}");
    let short: String =
        if whole.chars().count() > room { whole.chars().take(room - 1).chain(['…']).collect() } else { whole };
    format!("{head}{}\n", palette.paint(Role::Aside, &short))
}

/// `time call tool step`: what was decided and by which rule, who was asked, how it ended.
fn step(event: &Event, palette: Palette, columns: usize) -> String {
    let Event { seq: _, time, run: _, kind, body, prev: _, hash: _ } = event;
    let text = |key: &str| body.get(key).and_then(Json::as_str).unwrap_or_default();
    let number = |key: &str| body.get(key).and_then(Json::as_u64);
    let (word, role, rest) = match kind.as_str() {
        "tool.decided" => {
            let role = if text("decision") == "deny" { Role::Bad } else { Role::Good };
            let reason = |key: &str| body.pointer("/reasons/0").and_then(|r| r.get(key)).and_then(Json::as_str);
            let by =
                body.get("approver").and_then(Json::as_str).map_or_else(String::new, |by| format!(", {by} agreed"));
            let (id, what) = (reason("id").unwrap_or_default(), reason("what").unwrap_or_default());
            (text("decision").to_owned(), role, format!("{id} ({}): {what}{by}", text("rule")))
        }
        "tool.ended" => {
            let role = if text("outcome") == "ok" { Role::Good } else { Role::Bad };
            let took = number("took_us").map_or_else(String::new, |us| format!("{}.{:03} ms", us / 1000, us % 1000));
            let size = number("size").map_or_else(String::new, |size| format!(", {size} bytes"));
            let lost = number("dropped").filter(|n| *n > 0).map_or_else(String::new, |n| format!(", {n} dropped"));
            (text("outcome").to_owned(), role, format!("{took}{size}{lost} {}", text("message")))
        }
        "tool.called" => ("called".to_owned(), Role::Aside, text("hash").to_owned()),
        "approval.ended" => {
            let role = if text("outcome") == "approved" { Role::Good } else { Role::Bad };
            (text("outcome").to_owned(), role, format!("{} by {}", text("id"), text("by")))
        }
        other => {
            let step = other.split_once('.').map_or(other, |(_, step)| step);
            (step.to_owned(), Role::Aside, format!("{} {}", text("id"), text("by")))
        }
    };
    let who = format!("{}/{}", text("agent"), text("session"));
    let head = format!(
        "{}  {:<18}  {:<24} {:<16}",
        show_text(time),
        show_text(text("call")),
        show_text(text("tool")),
        show_text(&who)
    );
    let room = columns.saturating_sub(head.chars().count() + 14).max(30);
    let rest = show_text(rest.trim());
    let short: String =
        if rest.chars().count() > room { rest.chars().take(room - 1).chain(['…']).collect() } else { rest };
    format!("{head}  {}  {short}\n", palette.paint(role, &format!("{:<10}", show_text(&word))))
}

fn verify_log(call: &mut Call<'_>) -> Result<u8, Failure> {
    let verdict = verify(&state(call)?, folder(call)?.as_deref(), key(call)?.as_deref()).map_err(|e| failed(&e))?;
    let code = u8::from(verdict.broken.is_some());
    if call.json {
        call.console.json(&serde_json::json!({ "schema": 1, "verdict": verdict }))?;
    } else {
        call.console.data(judged(&verdict, call.console.out).as_bytes())?;
    }
    Ok(code)
}

fn judged(verdict: &Verdict, palette: Palette) -> String {
    let Verdict { events, head, checkpoints, sealed_to, key, torn, broken } = verdict;
    let mut out = match broken {
        None => format!(
            "{} {}, chained to {head}\n",
            palette.paint(Role::Good, "intact:"),
            count(*events, "event", "events")
        ),
        Some(broken) => {
            let what = match (broken.part, broken.seq) {
                (Part::Event, seq) => format!("event {seq}"),
                (Part::Checkpoint, _) if broken.line == 0 => "checkpoints".to_owned(),
                (Part::Checkpoint, 0) => "a checkpoint".to_owned(),
                (Part::Checkpoint, seq) => format!("the checkpoint of event {seq}"),
            };
            format!(
                "{} {what} in {}{}: {}\n  good events before it: {events}\n",
                palette.paint(Role::Bad, "broken:"),
                show_path(&broken.file),
                if broken.line > 0 { format!(", line {}", broken.line) } else { String::new() },
                show_text(&broken.why),
            )
        }
    };
    match key {
        Some(key) if *checkpoints > 0 => out.push_str(&format!(
            "  {} signed with key {}; a truncation before event {sealed_to} would have been seen\n",
            count(*checkpoints, "checkpoint", "checkpoints"),
            show_text(key),
        )),
        // Of a broken log it was a checkpoint, mostly, that told.
        Some(_) | None if broken.is_some() => {}
        Some(_) | None => out.push_str("  no checkpoint yet: a truncation would not be seen\n"),
    }
    if *torn > 0 {
        out.push_str(&format!("  {torn} bytes of a last line that a crash cut short; the next event repairs it\n"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_time_or_how_long_ago() {
        let now: Timestamp = "2026-11-22T12:00:00Z".parse().unwrap();
        let at = |text| moment(text, now).map(|t| t.to_string());
        assert_eq!(at("2026-01-01T00:00:00Z").as_deref(), Some("2026-01-01T00:00:00Z"));
        assert_eq!(at("90m").as_deref(), Some("2026-11-22T10:30:00Z"));
        for odd in ["", "m", "10", "10 m", "-5m", "99999999999999999999d", "9223372036854775807d", "tomorrow"] {
            assert_eq!(at(odd), None, "{odd}");
        }
    }

    #[test]
    fn a_line_of_the_network_names_the_host_at_the_width_of_a_terminal() {
        let body = serde_json::json!({
            "id": "net.allow/unknown-name", "clause": "net.allow", "what": "connecting to evil\u{1b}.example:443",
            "why": "no rule of `net.allow` names it", "instead": "reach another",
        });
        let (kind, run) = ("egress.denied".to_owned(), "20261122-083000-000000-aaaa".to_owned());
        let time = "2026-11-22T08:00:00.123456Z".to_owned();
        let event = Event { seq: 1, time, run, kind, body, prev: String::new(), hash: String::new() };
        let said = destination(&event, Palette::PLAIN, 80);
        assert!(said.contains("egress.denied: connecting to evil") && said.contains(".example:443"), "{said}");
        assert!(said.trim_end().chars().count() <= 80 && !said.contains('\u{1b}'), "{said}");
        assert!(destination(&event, Palette::PLAIN, 200).contains("20261122-083000-000000-aaaa"));
    }

    #[test]
    fn each_step_of_a_call_is_a_line_that_names_rule_and_end() {
        let event = |kind: &str, body: Json| Event {
            seq: 1,
            time: "2026-11-22T08:00:00Z".into(),
            run: String::new(),
            kind: kind.into(),
            body,
            prev: String::new(),
            hash: String::new(),
        };
        let about = serde_json::json!({ "call": "c-1", "tool": "mail\u{1b}.send", "agent": "a", "session": "s" });
        let with = |more: Json| {
            let mut body = about.clone();
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            body
        };
        let denied = with(serde_json::json!({
            "decision": "deny", "rule": "tools.tool[0].rate",
            "reasons": [{ "id": "tools.rate/exceeded", "what": "10 calls were made within 60 s" }],
        }));
        let said = step(&event("tool.decided", denied), Palette::PLAIN, 200);
        assert!(said.contains("deny") && said.contains("tools.rate/exceeded (tools.tool[0].rate): 10 calls"), "{said}");
        assert!(!said.contains('\u{1b}'));
        let ended = with(serde_json::json!({ "outcome": "ok", "took_us": 1_234, "size": 7, "dropped": 3 }));
        let said = step(&event("tool.ended", ended), Palette::PLAIN, 200);
        assert!(said.trim_end().ends_with("1.234 ms, 7 bytes, 3 dropped"), "{said}");
        let answered = with(serde_json::json!({ "outcome": "approved", "id": "a-1", "by": "ann" }));
        assert!(step(&event("approval.ended", answered), Palette::PLAIN, 200).contains("a-1 by ann"));
    }
}
