//! What was decided, by which rule, because of which value, and what would be allowed.

use policy::diagnostic::SourceLocation;
use policy::tools::Decision;
use serde_json::{Value as Json, json};

/// One thing that made a decision what it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Reason {
    /// Stable id, `tools.guard/email`, `tools.schema/unknown-property`; `fumehood explain` knows it.
    pub id: &'static str,
    /// The rule, `tools.tool[2].guards.to`.
    pub rule: String,
    /// Where the rule was written.
    pub at: Option<SourceLocation>,
    /// What it wants.
    pub decision: Decision,
    /// What is wrong, with the value.
    pub what: String,
    /// Why.
    pub why: String,
    /// What would be allowed.
    pub instead: String,
}

/// The answer of the gate.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The strictest of all that matched.
    pub decision: Decision,
    /// The rule that decided: the first of the strictest.
    pub rule: String,
    /// All that contributed, strictest first.
    pub reasons: Vec<Reason>,
    /// What would be allowed, for the model; empty when allowed.
    pub instead: String,
    /// The arguments as the tool would get them, re-serialised; none when denied before they were valid.
    pub args: Option<Json>,
    /// SHA-256, hex, over the canonical form of tool and arguments: what an approval is bound to.
    pub hash: Option<String>,
}

impl Reason {
    /// `{id, rule, where, decision, what, why, instead}`.
    #[must_use]
    pub fn to_json(&self) -> Json {
        json!({
            "id": self.id, "rule": self.rule, "where": self.at.as_ref().map(ToString::to_string),
            "decision": self.decision.as_str(), "what": self.what, "why": self.why, "instead": self.instead,
        })
    }
}

impl Verdict {
    /// The verdict on arguments that cannot be read in one way only.
    #[must_use]
    pub fn unreadable(flaw: &crate::json::JsonError) -> Self {
        let reason = Reason {
            id: flaw.id,
            rule: "args".to_owned(),
            at: None,
            decision: Decision::Deny,
            what: format!("{} at byte {}", flaw.what, flaw.at),
            why: flaw.why.to_owned(),
            instead: flaw.fix.to_owned(),
        };
        let (rule, instead) = (reason.rule.clone(), reason.instead.clone());
        Self { decision: Decision::Deny, rule, reasons: vec![reason], instead, args: None, hash: None }
    }

    /// The form that `tools check --json`, HTTP and Python print.
    #[must_use]
    pub fn to_json(&self) -> Json {
        json!({
            "decision": self.decision.as_str(), "rule": self.rule,
            "reasons": self.reasons.iter().map(Reason::to_json).collect::<Vec<_>>(),
            "instead": self.instead, "args": self.args, "hash": self.hash,
        })
    }
}
