//! What people see: the effective policy, plans and refusals as text.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::clause::ClauseId;
use crate::load::Loaded;
use crate::plan::{Plan, Refusal};
use crate::planning::policy_digest;

/// One line of `policy show`.
#[derive(Clone, Debug, PartialEq)]
pub struct ClauseLine {
    /// Clause.
    pub clause: ClauseId,
    /// The value for people; `None` = nothing is demanded.
    pub text: Option<String>,
    /// The value as JSON; null = nothing is demanded.
    pub value: Value,
    /// Where it came from.
    pub origin: String,
}

impl Loaded {
    /// Every clause with its effective value and origin.
    #[must_use]
    pub fn show(&self) -> Vec<ClauseLine> {
        let one = |id: &ClauseId| ClauseLine {
            clause: *id,
            text: self.policy.demand_text(*id),
            value: self.policy.demand(*id).unwrap_or_default(),
            origin: self.origins.of(*id).to_owned(),
        };
        ClauseId::ALL.iter().map(one).collect()
    }

    /// `policy show`.
    #[must_use]
    pub fn show_text(&self) -> String {
        let mut out = format!("policy `{}`  {}\n", self.policy.name, policy_digest(&self.policy));
        for shown in self.show() {
            let value = shown.text.as_deref().unwrap_or("-");
            line(&mut out, format_args!("  {:<18} {value:<24} {}", shown.clause.path(), shown.origin));
        }
        for lint in &self.lints {
            line(&mut out, format_args!("lint: {lint}"));
        }
        out
    }

    /// `policy show --json`.
    #[must_use]
    pub fn show_json(&self) -> Value {
        let one =
            |shown: ClauseLine| json!({ "clause": shown.clause.path(), "value": shown.value, "origin": shown.origin });
        let clauses: Vec<Value> = self.show().into_iter().map(one).collect();
        let prefer: Vec<&str> = self.policy.prefer.iter().map(|id| id.path()).collect();
        let lints: Vec<Value> = self.lints.iter().map(crate::Lint::to_json).collect();
        json!({
            "schema": 1,
            "name": self.policy.name,
            "digest": policy_digest(&self.policy),
            "prefer": prefer,
            "clauses": clauses,
            "lints": lints,
        })
    }
}

/// Writing to a `String` cannot fail.
fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    let written = out.write_fmt(text);
    debug_assert!(written.is_ok());
    out.truncate(out.trim_end_matches(' ').len());
    out.push('\n');
}

impl Plan {
    /// `plan`.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        let digest = self.digest();
        line(
            &mut out,
            format_args!("plan: tier `{}`, backend `{}`, {} clauses", self.tier, self.backend, self.entries.len()),
        );
        let clauses: Vec<(String, &crate::Entry)> =
            self.entries.iter().map(|entry| (self.value_text(entry), entry)).collect();
        let width = clauses.iter().map(|(text, _)| text.chars().count()).max().unwrap_or(0).min(32);
        for (text, entry) in clauses {
            let overshoot = entry.controls.overshoot().map(|more| format!(", {more}")).unwrap_or_default();
            let held = format!("{} ({}{overshoot})", entry.controls.enforcer(), entry.controls.strength().as_str());
            line(&mut out, format_args!("  {:<18} {text:<width$}  {held}", entry.clause.path()));
        }
        for weak in &self.weakened {
            line(
                &mut out,
                format_args!("weakened: `{}` wanted {}, got {}: {}", weak.clause, weak.wanted, weak.got, weak.why),
            );
        }
        for lint in &self.lints {
            line(&mut out, format_args!("lint: {lint}"));
        }
        line(&mut out, format_args!("digest: {digest}"));
        out
    }

    fn value_text(&self, entry: &crate::Entry) -> String {
        self.policy.demand_text(entry.clause).unwrap_or_default()
    }
}

impl Refusal {
    /// Every unmet clause with why and what to do.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        let (count, demanded) = (self.refused.len(), self.demanded);
        line(
            &mut out,
            format_args!("refused: tier `{}` cannot hold {count} of {demanded} clauses on this host", self.tier),
        );
        for reason in &self.refused {
            line(&mut out, format_args!("  {}  {}", reason.clause, reason.why));
            line(&mut out, format_args!("    asked: {} ({})", reason.what, reason.at));
            line(&mut out, format_args!("    fix: {}", reason.fix));
            if reason.weaker.is_some() {
                line(&mut out, format_args!("    or:  --prefer {}   (recorded as weakened)", reason.clause));
            }
        }
        out
    }
}
