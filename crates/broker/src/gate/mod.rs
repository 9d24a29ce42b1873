//! The gate: one call in, one decision out. Pure, but for path guards, which ask the kernel where a path leads.
//!
//! All entries that match take part, and the strictest of what they say counts: deny before ask before allow, whatever
//! the order. Where nothing matches, the default counts. Whatever cannot be evaluated denies.

mod around;
mod judge;

use std::sync::Arc;

use policy::Lint;
use policy::mistake::Mistakes;
use policy::spot::Documents;
use policy::tools::{Effect, ResultRule, Tools};
use policy::units::Millis;
use serde_json::Value as Json;

pub use around::Surroundings;

use crate::call::{Call, ToolFacts};
use crate::limits::Demand;
use crate::names;
use crate::verdict::Verdict;

/// The compiled policy of tools. Shared by all front doors.
#[derive(Debug)]
pub struct Gate {
    tools: Tools,
    documents: Documents,
}

/// A verdict, and what the broker needs to carry it out.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// The decision with its reasons.
    pub verdict: Verdict,
    /// Indices of the entries that match.
    pub entries: Vec<usize>,
    /// What must be reserved before the call; of no meaning when it is denied.
    pub limits: Vec<Demand>,
    /// Least of all time-outs.
    pub timeout: Option<Millis>,
    /// What a result may be: the strictest of all.
    pub result: ResultRule,
    /// What the tool does, as far as policy and tool say.
    pub effect: Effect,
}

/// What a client may see of a tool.
#[derive(Clone, Debug, PartialEq)]
pub enum Listed {
    /// It is not listed.
    Hidden,
    /// It is listed, with this schema of its arguments.
    Shown {
        /// As tight as the gate will judge.
        schema: Json,
    },
}

impl Gate {
    /// Compiles a policy and tries its examples.
    ///
    /// # Errors
    /// Everything that cannot be compiled, with line and column, and examples that come out otherwise.
    pub fn new(tools: &Tools, documents: &Documents, around: &Surroundings) -> Result<(Self, Vec<Lint>), Mistakes> {
        let _ = around;
        let gate = Self { tools: tools.clone(), documents: documents.clone() };
        Ok((gate, Vec::new()))
    }

    /// Decides one call.
    #[must_use]
    pub fn judge(&self, call: &Call<'_>) -> Judged {
        judge::judge(self, call)
    }

    /// Whether a tool is listed, and with which schema. Arguments take no part: nobody has written them yet.
    #[must_use]
    pub fn lists(&self, tool: &str, facts: &ToolFacts) -> Listed {
        let denied = self.matching(tool).iter().any(|index| {
            self.tools.entries.get(*index).is_none_or(|entry| entry.decision == policy::tools::Decision::Deny)
        });
        let nothing = self.matching(tool).is_empty() && self.tools.default == policy::tools::Decision::Deny;
        if denied || nothing || !names::is_name(tool) {
            return Listed::Hidden;
        }
        Listed::Shown { schema: facts.input_schema.clone().unwrap_or_else(|| serde_json::json!({ "type": "object" })) }
    }

    /// Indices of the entries that match a tool, in the order of the documents.
    fn matching(&self, tool: &str) -> Vec<usize> {
        let all = self.tools.entries.iter().enumerate();
        all.filter(|(_, entry)| names::matches(&entry.name.value, tool)).map(|(index, _)| index).collect()
    }
}

/// Shared text of a rule's name, `tools.tool[2].rate`.
pub(crate) fn rule_name(index: usize, part: &str) -> Arc<str> {
    if part.is_empty() { format!("tools.tool[{index}]").into() } else { format!("tools.tool[{index}].{part}").into() }
}
