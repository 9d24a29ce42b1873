//! A refusal for people: every unmet clause at once, each with its remedy.

use policy::Refusal;
use policy::plan::Reason;

use crate::ui::{Palette, Role, hang};
use sandbox::fault::show_text;

/// The text of a refusal.
#[must_use]
pub fn refusal(refusal: &Refusal, palette: Palette, columns: usize) -> String {
    let Refusal { tier, demanded, refused } = refusal;
    let mut out = format!(
        "{} tier `{}` cannot hold {} of {} on this host; nothing ran\n",
        palette.paint(Role::Bad, "refused:"),
        show_text(tier),
        refused.len(),
        crate::ui::count(u64::try_from(*demanded).unwrap_or(u64::MAX), "clause", "clauses"),
    );
    for Reason { id, clause, what, at, why, fix, weaker } in refused {
        let from = if at.is_empty() { String::new() } else { format!("   ({})", show_text(at)) };
        out.push_str(&format!(
            "  {}  {}{}\n",
            palette.paint(Role::Name, clause.path()),
            show_text(what),
            palette.paint(Role::Aside, &from)
        ));
        let or = weaker.as_ref().map(|weaker| format!("--prefer {clause}   (held by {weaker}, recorded as weakened)"));
        let explain = format!("fumehood explain {id}");
        let parts = [("why: ", Some(why)), ("fix: ", Some(fix)), ("or:  ", or.as_ref()), ("more:", Some(&explain))];
        for (label, part) in parts.into_iter().filter_map(|(label, part)| Some((label, part?))) {
            let head = format!("    {} ", palette.paint(Role::Aside, label));
            out.push_str(&hang(&head, 10, &show_text(part), columns));
        }
    }
    out
}
