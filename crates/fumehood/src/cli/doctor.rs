//! `fumehood doctor`: what this host can hold, and what to do about the rest.

use serde_json::json;

use super::args::Words;
use super::flags::DOCTOR;
use super::spec::{Call, Spec};
use crate::doctor::{Finding, Health, Row, Severity, TierHealth, default_tier, examine};
use crate::fault::show_text;
use crate::ui::{Failure, Palette, Role, Table, count, wrap};

pub(super) const SPEC: Spec = Spec {
    path: &["doctor"],
    about: "Say what this host can hold on each tier, and the exact fix for the rest",
    usage: "[-v]",
    more: "-v lists every clause of every tier. Exit code 0, or 1 if the default tier is not to be had.",
    tables: &[DOCTOR],
    words: Words::Mixed(0),
    hidden: false,
    run: doctor,
};

fn doctor(call: &mut Call<'_>) -> Result<u8, Failure> {
    let health = examine(&call.world.state, None);
    let code = u8::from(!health.has_default());
    if call.json {
        let default = default_tier().word();
        call.voice.json(&json!({ "schema": 1, "default": default, "ok": code == 0, "host": health }))?;
    } else {
        let verbose = call.parsed.has("verbose");
        call.voice.data(text(&health, verbose, call.voice.out, call.voice.columns).as_bytes())?;
    }
    Ok(code)
}

fn text(health: &Health, verbose: bool, palette: Palette, columns: usize) -> String {
    let Health { kernel, user, landlock, tiers, findings } = health;
    let landlock = if *landlock == 0 { "none".to_owned() } else { format!("ABI {landlock}") };
    let mut out = format!("Linux {}, user {user}, Landlock {landlock}\n\n", show_text(kernel));
    for tier in tiers {
        out.push_str(&tier_text(tier, health.has(tier), verbose, palette, columns));
    }
    if findings.is_empty() {
        out.push_str("nothing is missing\n");
    }
    for Finding { id, severity, tiers: _, what, why, fix } in findings {
        let (role, word) = match severity {
            Severity::Blocks => (Role::Bad, "blocks:"),
            Severity::Limits => (Role::Weak, "limits:"),
            Severity::Note => (Role::Aside, "note:"),
        };
        out.push_str(&format!("{} {}  ({id})\n", palette.paint(role, word), show_text(what)));
        out.push_str(&labelled("why:", &show_text(why), palette, columns));
        out.push_str(&labelled("fix:", &show_text(fix), palette, columns));
    }
    out
}

fn tier_text(health: &TierHealth, has: bool, verbose: bool, palette: Palette, columns: usize) -> String {
    let TierHealth { tier, backend, refused, proof, score, total, clauses } = health;
    let default = if *tier == default_tier() { " (default)" } else { "" };
    let (role, word) = if has { (Role::Good, "to be had") } else { (Role::Bad, "not to be had") };
    let mut out = format!(
        "{}{default} by {backend}: {}, {total} of 100\n",
        palette.paint(Role::Name, tier.word()),
        palette.paint(role, word)
    );
    let points: Vec<String> = score.iter().map(|(domain, points)| format!("{} {points}", domain.word())).collect();
    out.push_str(&labelled("score:", &points.join(", "), palette, columns));
    if let Some(proof) = proof {
        out.push_str(&labelled("tried:", &show_text(&proof.how), palette, columns));
    }
    for reason in refused {
        let text = format!("{}: {}; {}", reason.clause, show_text(&reason.why), show_text(&reason.fix));
        out.push_str(&labelled("lacks:", &text, palette, columns));
    }
    let unmet = clauses.iter().filter(|row| row.enforcer.is_none()).count();
    let held = count(u64::try_from(clauses.len() - unmet).unwrap_or(u64::MAX), "clause", "clauses");
    let rest = format!("{held} of {} can be held{}", clauses.len(), if verbose { ":" } else { "; -v lists them" });
    out.push_str(&labelled("holds:", &rest, palette, columns));
    if verbose {
        out.push_str(&clause_table(clauses).render(palette, 4, columns));
    }
    out.push('\n');
    out
}

fn clause_table(rows: &[Row]) -> Table {
    let mut table = Table::new(&["clause", "strength", "held by, or why not"]);
    for Row { clause, enforcer, strength, overshoot, why, example: _, id: _, fix: _ } in rows {
        let over = overshoot.as_ref().map_or_else(String::new, |over| format!(" ({})", show_text(over)));
        let (text, role) = match (enforcer, why) {
            (Some(by), _) => (format!("{}{over}", show_text(by)), None),
            (None, why) => (show_text(why.as_deref().unwrap_or_default()), Some(Role::Bad)),
        };
        let word = strength.map_or("refused", policy::Strength::word);
        table.painted([(clause.path(), Some(Role::Name)), (word, role), (&text, None)]);
    }
    table
}

/// `  label text`, wrapped under the text.
fn labelled(label: &str, text: &str, palette: Palette, columns: usize) -> String {
    const INDENT: usize = 9;
    let gap = " ".repeat((INDENT - 2).saturating_sub(label.len()));
    let mut out = String::new();
    for (i, line) in wrap(text, columns.saturating_sub(INDENT)).iter().enumerate() {
        if i == 0 {
            out.push_str(&format!("  {}{gap}{line}\n", palette.paint(Role::Aside, label)));
        } else {
            out.push_str(&format!("{}{line}\n", " ".repeat(INDENT)));
        }
    }
    out
}
