//! `fumehood tools ls`: the entries of a policy, as the gate reads them.

use gateway::mcp::upstream_pool::Offered;
use policy::tools::{Approval, Budget, CountBy, Decision, Effect, Rate, ToolEntry, Tools};
use serde_json::{Value as Json, json};

use super::offered::{SERVER, arguments, offered, says, summary};
use super::{gated, role};
use crate::cli::args::Positionals;
use crate::cli::flags::POLICY;
use crate::cli::spec::{Call, Spec};
use crate::ui::{Failure, Role, Table};
use sandbox::fault::show_text;

pub(in crate::cli) const SPEC: Spec = Spec {
    path: &["tools", "ls"],
    about: "List what may be called: effect, decision, what is checked, counted and asked",
    usage: "-p POLICY [--server NAME]",
    more: "Of all entries that match a tool the strictest counts. With --server, what that MCP server offers, also what the\n\
           policy does not let through: it is started in its sandbox, and looking trusts nothing; see `tools suggest`.\n\
           With --json: {schema, default, tools, lints}, or {schema, server, tools, notes}.\n\
           Exit code 0, 126 if the policy is wrong, 125 if the server cannot be asked.",
    tables: &[POLICY, SERVER],
    words: Positionals::Mixed(0),
    hidden: false,
    run,
};

fn run(call: &mut Call<'_>) -> Result<u8, Failure> {
    let (loaded, tools, gate) = gated(call)?;
    if let Some((server, offers, notes)) = offered(call)? {
        return show_offers(call, &gate, &server, &offers, &notes);
    }
    let place = |entry: &ToolEntry| loaded.documents.locate(entry.name.at).to_string();
    if call.json {
        let entries: Vec<Json> = tools.entries.iter().map(|entry| entry_json(entry, &place(entry))).collect();
        let lints: Vec<Json> = loaded.lints.iter().map(policy::Lint::to_json).collect();
        let default = tools.default.as_str();
        call.console.json(&json!({ "schema": 1, "default": default, "tools": entries, "lints": lints }))?;
        return Ok(0);
    }
    let mut table = Table::new(&["tool", "decision", "effect", "checked", "counted", "from"]);
    for entry in &tools.entries {
        table.painted([
            (&show_text(&entry.name.value), Some(Role::Name)),
            (decision_word(entry), Some(role(entry.decision))),
            (effect_word(entry), None),
            (&checked(entry), None),
            (&counted(entry), None),
            (&show_text(&place(entry)), Some(Role::Aside)),
        ]);
    }
    let mut text = table.render(call.console.out, 0, call.console.columns);
    text.push_str(&rest(&tools));
    for lint in &loaded.lints {
        let label = call.console.out.paint(Role::Weak, "note:");
        text.push_str(&format!("{label} {}\n", show_text(&lint.to_string())));
    }
    call.console.data(text.as_bytes())?;
    Ok(0)
}

/// What a server offers, and whether the policy lets it through.
fn show_offers(
    call: &Call<'_>,
    gate: &gate::Gate,
    server: &str,
    offers: &[Offered],
    notes: &[String],
) -> Result<u8, Failure> {
    let listed = |tool: &Offered| matches!(gate.lists(&tool.name, &tool.facts), gate::Listed::Shown { .. });
    if call.json {
        let tools = offers.iter().map(|tool| {
            json!({
                "name": tool.name, "description": tool.description, "says": says(tool), "listed": listed(tool),
                "schema": tool.facts.input_schema,
            })
        });
        let tools: Vec<Json> = tools.collect();
        call.console.json(&json!({ "schema": 1, "server": server, "tools": tools, "notes": notes }))?;
        return Ok(0);
    }
    let mut table = Table::new(&["tool", "shown", "says", "arguments", "description"]);
    for tool in offers {
        let shown = listed(tool);
        table.painted([
            (&show_text(&tool.name), Some(Role::Name)),
            (if shown { "yes" } else { "no" }, Some(if shown { Role::Good } else { Role::Bad })),
            (says(tool), None),
            (&show_text(&arguments(tool).join(", ")), None),
            (&summary(tool, 60), Some(Role::Aside)),
        ]);
    }
    let text = table.render(call.console.out, 0, call.console.columns);
    call.console.data(text.as_bytes())?;
    for note in notes {
        call.console.eprint(&format!("note: {}\n", show_text(note)));
    }
    Ok(0)
}

fn rest(tools: &Tools) -> String {
    let whole = if tools.entries.is_empty() { "every tool" } else { "every other tool" };
    format!("{whole}: {}\n", tools.default.as_str())
}

fn decision_word(entry: &ToolEntry) -> &'static str {
    match (entry.decision, entry.approval) {
        (Decision::Allow, Approval::Always) => "ask",
        (Decision::Allow, Approval::First) => "ask first",
        (decision, _) => decision.as_str(),
    }
}

fn effect_word(entry: &ToolEntry) -> &'static str {
    match entry.effect {
        Some(Effect::Read) => "read",
        Some(Effect::Write) => "write",
        None => "write (undeclared)",
    }
}

fn checked(entry: &ToolEntry) -> String {
    let mut parts = Vec::new();
    if entry.schema.is_some() {
        parts.push("schema".to_owned());
    }
    parts.extend(entry.guards.iter().map(|(name, _)| show_text(&name.value)));
    match entry.rules.len() {
        0 => {}
        1 => parts.push("1 rule".to_owned()),
        more => parts.push(format!("{more} rules")),
    }
    if parts.is_empty() { "-".to_owned() } else { parts.join(", ") }
}

fn counted(entry: &ToolEntry) -> String {
    let mut parts = Vec::new();
    if let Some(rate) = &entry.rate {
        let Rate { calls, per, burst: _, by } = &rate.value;
        parts.push(format!("{calls} in {per} by {}", by_word(*by)));
    }
    if let Some(budget) = &entry.budget {
        let Budget { limit, per, total, unit, by, cost: _, reported: _ } = &budget.value;
        let amount = |millionths: u64| {
            let (whole, part) = (millionths / 1_000_000, millionths % 1_000_000);
            let text = format!("{whole}.{part:06}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        };
        if let Some((limit, per)) = limit.zip(*per) {
            parts.push(format!("{} {} in {per} by {}", amount(limit), show_text(unit), by_word(*by)));
        }
        if let Some(total) = total {
            parts.push(format!("{} {} in all by {}", amount(*total), show_text(unit), by_word(*by)));
        }
    }
    parts.extend(entry.concurrency.map(|most| format!("{most} at once")));
    parts.extend(entry.timeout.map(|timeout| format!("{timeout} each")));
    if parts.is_empty() { "-".to_owned() } else { parts.join(", ") }
}

const fn by_word(by: CountBy) -> &'static str {
    match by {
        CountBy::Session => "session",
        CountBy::Agent => "agent",
        CountBy::Key => "key",
        CountBy::Gateway => "gateway",
    }
}

fn entry_json(entry: &ToolEntry, place: &str) -> Json {
    let guards: Vec<&str> = entry.guards.iter().map(|(name, _)| name.value.as_str()).collect();
    let rate = entry.rate.as_ref().map(|rate| {
        let Rate { calls, per, burst, by } = &rate.value;
        json!({ "calls": calls, "per_ms": per.0, "burst": burst, "by": by_word(*by) })
    });
    let budget = entry.budget.as_ref().map(|budget| {
        let Budget { cost, reported, limit, per, total, unit, by } = &budget.value;
        json!({ "cost_millionths": cost, "reported": reported, "limit_millionths": limit, "per_ms": per.map(|per| per.0),
                "total_millionths": total, "unit": unit, "by": by_word(*by) })
    });
    let approval = match entry.approval {
        Approval::Never => "never",
        Approval::First => "first",
        Approval::Always => "always",
    };
    json!({
        "name": entry.name.value, "decision": entry.decision.as_str(), "approval": approval,
        "effect": if entry.effect == Some(Effect::Read) { "read" } else { "write" },
        "schema": entry.schema.as_ref().map(|schema| &schema.value), "guards": guards,
        "rules": entry.rules.iter().map(|rule| &rule.when.value).collect::<Vec<_>>(),
        "rate": rate, "budget": budget, "concurrency": entry.concurrency,
        "timeout_ms": entry.timeout.map(|timeout| timeout.0), "result_max": entry.result.max.0, "where": place,
    })
}
