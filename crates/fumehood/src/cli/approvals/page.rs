//! Calls and memories as a person sees them. Everything that an agent wrote passes `gateway::approvals::sanitize` on its way.

use gateway::approvals::{Memory, ParkedCall, Pattern, State, sanitize, sanitize_json, sanitize_text};
use serde_json::Value as Json;

use crate::ui::{Palette, Role, Table, seconds};

/// One line for each call.
pub(super) fn table(calls: &[ParkedCall], palette: Palette, columns: usize) -> String {
    let mut table = Table::new(&["id", "state", "tool", "agent", "why"]);
    for call in calls {
        let role = match call.state {
            State::Waiting => Role::Weak,
            State::Approved => Role::Good,
            State::Denied => Role::Bad,
            State::TimedOut | State::Cancelled => Role::Aside,
        };
        table.painted([
            (call.id.get(..10).unwrap_or(&call.id), Some(Role::Name)),
            (&state(call), Some(role)),
            (&sanitize_text(&call.tool), None),
            (&sanitize_text(&call.agent), None),
            (&sanitize_text(&call.reason), None),
        ]);
    }
    table.render(palette, 0, columns)
}

/// `waiting, 4 min left`, `approved by uid 0, used`.
fn state(call: &ParkedCall) -> String {
    let by = call
        .by
        .as_deref()
        .filter(|by| !by.is_empty())
        .map(|by| format!(" by {}", sanitize_text(by)))
        .unwrap_or_default();
    match call.state {
        State::Waiting => {
            let now = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or_default();
            let left = u32::try_from(call.expires.saturating_sub(now) / 1000).unwrap_or(u32::MAX);
            format!("waiting, {} left", seconds(f64::from(left)))
        }
        State::Approved if call.used.is_some() => format!("approved{by}, used"),
        State::Approved | State::Denied | State::TimedOut | State::Cancelled => format!("{}{by}", call.state.as_str()),
    }
}

/// All of one call.
pub(super) fn details(call: &ParkedCall, palette: Palette) -> String {
    let args: Json = serde_json::from_str(&call.args).unwrap_or(Json::Null);
    let arguments = sanitize_json(&args);
    let mut notes = arguments.notes;
    let mut plain = |text: &str| {
        let seen = sanitize(text);
        notes.extend(seen.notes);
        seen.text
    };
    let server = call.server.as_deref().map(|server| format!(" of server {}", plain(server))).unwrap_or_default();
    let rows = [
        ("tool", format!("{}{server}", plain(&call.tool))),
        ("agent", format!("{}, session {}", plain(&call.agent), plain(&call.session))),
        ("asked", format!("{} ({})", plain(&call.reason), plain(&call.rule))),
        ("hash", plain(&call.hash)),
    ];
    let mut out = format!("{}  {}\n", palette.paint(Role::Name, &call.id), state(call));
    for (label, text) in rows {
        out.push_str(&format!("  {} {text}\n", palette.paint(Role::Aside, &format!("{label:<6}"))));
    }
    out.push_str(&format!("  {}\n", palette.paint(Role::Aside, "arguments, as the tool would get them:")));
    for line in arguments.text.lines() {
        out.push_str(&format!("    {line}\n"));
    }
    notes.sort();
    notes.dedup();
    for note in notes {
        out.push_str(&format!("  {} {note}\n", palette.paint(Role::Bad, "look:")));
    }
    if let Some(why) = call.why.as_deref().filter(|why| !why.is_empty()) {
        out.push_str(&format!("  {} {}\n", palette.paint(Role::Aside, "said  "), sanitize_text(why)));
    }
    out
}

/// One line for each memory.
pub(super) fn memories(memories: &[Memory], palette: Palette, columns: usize) -> String {
    let mut table = Table::new(&["id", "tool", "for", "ends", "uses", "arguments"]);
    for memory in memories {
        let whose = match &memory.session {
            Some(session) => format!("{}, session {}", sanitize_text(&memory.agent), sanitize_text(session)),
            None => sanitize_text(&memory.agent),
        };
        let ends = if memory.revoked.is_some() {
            "revoked".to_owned()
        } else if memory.lasts_with_its_run() {
            "with its run".to_owned()
        } else if let Ok(Ok(time)) = i64::try_from(memory.expires).map(jiff::Timestamp::from_millisecond) {
            time.strftime("%Y-%m-%d %H:%M").to_string()
        } else {
            "never".to_owned()
        };
        table.painted([
            (memory.id.get(..10).unwrap_or(&memory.id), Some(Role::Name)),
            (&sanitize_text(&memory.tool), None),
            (&whose, None),
            (&ends, None),
            (&memory.uses.to_string(), None),
            (&pattern(&memory.pattern), None),
        ]);
    }
    table.render(palette, 0, columns)
}

/// `any`, or `to = "a@b.c", body = anything`.
fn pattern(pattern: &Pattern) -> String {
    let Pattern::Args(args) = pattern else { return "any".to_owned() };
    let part = |(name, value): (&String, &Option<Json>)| match value {
        Some(value) => format!("{} = {}", sanitize_text(name), sanitize_text(&value.to_string())),
        None => format!("{} = anything", sanitize_text(name)),
    };
    let parts: Vec<_> = args.iter().map(part).collect();
    if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
}
