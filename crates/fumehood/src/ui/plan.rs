//! A plan for people: for each clause its value, who holds it, and where it came from.

use policy::ClauseId;
use policy::plan::{Entry, Plan, Strength, Weakened};
use serde_json::Value;

use crate::fault::show_text;
use crate::ui::{Palette, Role, Table, bytes, count, seconds};

/// Longest value shown in a table; the whole stands in `--json`.
const VALUE: usize = 60;

/// The text of a plan.
#[must_use]
pub fn plan(plan: &Plan, palette: Palette, columns: usize) -> String {
    let held = plan.entries.len();
    let kernel = plan.entries.iter().filter(|e| e.strength == Strength::Kernel).count();
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
    for Entry { clause, value: demanded, origin, enforcer, strength, overshoot } in &plan.entries {
        let mut by = show_text(enforcer);
        if let Some(over) = overshoot {
            by.push_str(&format!(" (overshoot: {})", show_text(over)));
        }
        let role = match strength {
            Strength::Kernel => Some(Role::Good),
            Strength::Broker => None,
            Strength::Supervisor => Some(Role::Weak),
        };
        table.painted([
            (clause.path(), Some(Role::Name)),
            (&short(value(*clause, demanded)), None),
            (&by, role),
            (&show_text(origin), Some(Role::Aside)),
        ]);
    }
    out.push_str(&table.render(palette, 2, columns));
    for lint in &plan.lints {
        out.push_str(&format!("{} {}\n", palette.paint(Role::Weak, "note:"), show_text(lint)));
    }
    out.push_str(&format!("digest {}\n", plan.digest));
    out
}

/// What is held less than demanded, one line each: never left out.
pub(super) fn weakened(list: &[Weakened], palette: Palette) -> String {
    list.iter().fold(String::new(), |out, Weakened { clause, wanted, got, why }| {
        let label = palette.paint(Role::Weak, "weakened:");
        out + &format!(
            "{label} {}: wanted {}, got {} ({})\n",
            clause.path(),
            show_text(wanted),
            show_text(got),
            show_text(why)
        )
    })
}

/// A value for people: sizes and times with their units, everything harmless and on one line.
#[must_use]
pub fn value(clause: ClauseId, value: &Value) -> String {
    use ClauseId as C;
    let text = match (clause, value) {
        (
            C::FsTmp | C::FsShm | C::FsRun | C::LimitsMemory | C::LimitsFileSize | C::LimitsDisk | C::LimitsOutput,
            Value::Number(n),
        ) => n.as_u64().map(bytes),
        (C::LimitsIoRead | C::LimitsIoWrite | C::NetBandwidth, Value::Number(n)) => {
            n.as_u64().map(|n| format!("{}/s", bytes(n)))
        }
        (C::LimitsWall | C::LimitsCpuTime | C::LimitsIdle, Value::Number(n)) => n.as_f64().map(seconds),
        (_, Value::String(text)) => Some(text.clone()),
        (_, Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => None,
    };
    show_text(&text.unwrap_or_else(|| value.to_string()))
}

/// Cut to the width of a table's column.
fn short(text: String) -> String {
    if text.chars().count() <= VALUE {
        return text;
    }
    text.chars().take(VALUE - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_have_their_units() {
        assert_eq!(value(ClauseId::LimitsMemory, &json!(256 << 20)), "256 MiB");
        assert_eq!(value(ClauseId::LimitsIoRead, &json!(1024)), "1 KiB/s");
        assert_eq!(value(ClauseId::LimitsWall, &json!(0.5)), "500 ms");
        assert_eq!(value(ClauseId::LimitsPids, &json!(32)), "32");
        assert_eq!(value(ClauseId::FsHide, &json!(["**/.env\u{1b}"])), r#"["**/.env\u001b"]"#);
        assert_eq!(value(ClauseId::ProcessHostname, &json!("a\u{202e}b")), r"a\u{202e}b");
    }
}
