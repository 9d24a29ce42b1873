//! A plan for people: for each clause its value, who holds it, and where it came from.

use policy::Strength;
use policy::plan::{Entry, Plan, Weakened};

use crate::ui::{Palette, Role, Table, count};
use sandbox::fault::show_text;

/// Longest value shown in a table; the whole stands in `--json`.
const VALUE: usize = 60;

/// The text of a plan.
#[must_use]
pub fn plan(plan: &Plan, palette: Palette, columns: usize) -> String {
    let held = plan.entries.len();
    let kernel = plan.entries.iter().filter(|e| e.controls.strength() == Strength::Kernel).count();
    let number = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
    let mut out = weakened(&plan.weakened, palette);
    out.push_str(&format!(
        "policy `{}` holds on tier {} by backend {}: {}, {kernel} held by the kernel\n",
        show_text(&plan.policy.name),
        plan.tier,
        plan.backend,
        count(number(held), "clause", "clauses"),
    ));
    let mut table = Table::new(&["clause", "value", "held by", "from"]);
    // Sentences, which would widen a column for every clause.
    let mut overshoots = Table::new(&["", ""]);
    for Entry { clause, value: _, origin, controls } in &plan.entries {
        let text = plan.policy.demand_text(*clause).unwrap_or_default();
        let by = abbreviated(&controls.enforcer());
        if let Some(over) = &controls.overshoot() {
            overshoots.painted([(clause.path(), Some(Role::Name)), (&show_text(over), None)]);
        }
        let role = match controls.strength() {
            Strength::Kernel => Some(Role::Good),
            Strength::Broker => None,
            Strength::Supervisor => Some(Role::Weak),
        };
        table.painted([
            (clause.path(), Some(Role::Name)),
            (&short(show_text(&text)), None),
            (&by, role),
            (&show_text(origin), Some(Role::Aside)),
        ]);
    }
    out.push_str(&table.render(palette, 2, columns));
    if !overshoots.is_empty() {
        out.push_str("overshoot, before it is noticed or stopped:\n");
        out.push_str(&overshoots.render(palette, 2, columns));
    }
    for lint in &plan.lints {
        out.push_str(&format!("{} {}\n", palette.paint(Role::Weak, "note:"), show_text(lint)));
    }
    out.push_str(&format!("digest {}\n", plan.digest()));
    out
}

/// Most mechanisms that are named in a table; the whole list stands in `--json`.
const MAX_NAMES: usize = 8;

/// The enforcer of a clause, for a table.
#[must_use]
pub fn abbreviated(enforcer: &str) -> String {
    let names: Vec<&str> = enforcer.split('+').collect();
    match names.get(..MAX_NAMES) {
        Some(first) if names.len() > MAX_NAMES => {
            show_text(&format!("{} and {} more", first.join("+"), names.len().saturating_sub(MAX_NAMES)))
        }
        Some(_) | None => show_text(enforcer),
    }
}

/// What is held less than demanded, one line for all that is held in one way: never left out.
pub(super) fn weakened(list: &[Weakened], palette: Palette) -> String {
    let one_way = |one: &Weakened, other: &Weakened| one.got == other.got && one.why == other.why;
    list.chunk_by(one_way).fold(String::new(), |out, alike| {
        let label = palette.paint(Role::Weak, "weakened:");
        let clauses: Vec<_> = alike.iter().map(|one| one.clause.path()).collect();
        let wanted: Vec<_> = alike.iter().map(|one| show_text(&one.wanted)).collect();
        let held = alike.first().map(|one| format!("got {} ({})", show_text(&one.got), show_text(&one.why)));
        out + &format!(
            "{label} {}: wanted {}, {}\n",
            clauses.join(" and "),
            wanted.join(" and "),
            held.unwrap_or_default()
        )
    })
}

/// Cut to the width of a table's column.
fn short(text: String) -> String {
    if text.chars().count() <= VALUE {
        return text;
    }
    text.chars().take(VALUE - 1).chain(['…']).collect()
}
