//! The gate: one call in, one decision out. Pure, but for guards of paths and commands, which ask where a path leads.
//!
//! All entries that match take part, and the strictest of what they say counts: deny before ask before allow, whatever
//! the order. Where nothing matches, the default counts. Whatever cannot be evaluated denies. What changes something needs
//! an entry that names it; what a tool says of itself can make a decision stricter and never weaker.

mod argument;
mod compile;
mod demands;
mod entry;
mod examples;
mod judge;
mod lints;
mod listed;
mod own;

use std::collections::HashMap;

use policy::Lint;
use policy::diagnostic::Diagnostics;
use policy::span::Documents;
use policy::tools::{ApprovalBy, Decision, Effect, ResultRule, Tools};
use policy::units::Millis;
use serde_json::Value as Json;

use entry::Entry;

use crate::call::{Call, ToolFacts};
use crate::demand::Demand;
use crate::names;
use crate::schema::Pool;
use crate::verdict::{Reason, Verdict};

/// The compiled policy of tools. Shared by all front doors.
#[derive(Debug)]
pub struct Gate {
    default: Decision,
    entries: Vec<Entry>,
    /// Entries by the one tool that they name.
    exact: HashMap<String, Vec<usize>>,
    globs: Vec<usize>,
    documents: Documents,
    own: own::SchemaCache,
}

/// A verdict, and what the broker needs to carry it out.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolJudgement {
    /// The decision with its reasons.
    pub verdict: Verdict,
    /// Indices of the entries that match.
    pub entries: Vec<usize>,
    /// What must be reserved before the call; of no meaning when it is denied.
    pub limits: Vec<Demand>,
    /// Of the demands for cost, by index: where the result says what the call did cost (a JSON Pointer).
    pub reported: Vec<(usize, String)>,
    /// Least of all time-outs.
    pub timeout: Option<Millis>,
    /// What a result may be: the strictest of all.
    pub result: ResultRule,
    /// What the tool does, as far as policy and tool say.
    pub effect: Effect,
    /// Who may answer, if somebody is asked.
    pub approval_by: ApprovalBy,
}

/// What a client may see of a tool.
#[derive(Clone, Debug, PartialEq)]
pub enum Listed {
    /// It is not listed: no call of it could be allowed.
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
    pub fn new(tools: &Tools, documents: &Documents) -> Result<(Self, Vec<Lint>), Diagnostics> {
        let pool = Pool::default();
        let entries = compile::entries(&tools.entries, documents, &pool)?;
        let mut exact: HashMap<String, Vec<usize>> = HashMap::with_capacity(entries.len());
        let mut globs = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            if entry.is_exact { exact.entry(entry.name.clone()).or_default().push(index) } else { globs.push(index) }
        }
        let documents = documents.clone();
        let gate = Self { default: tools.default, entries, exact, globs, documents, own: own::SchemaCache::default() };
        examples::hold(&gate, tools)?;
        let lints = lints::lints(&gate, tools);
        Ok((gate, lints))
    }

    /// Decides one call.
    #[must_use]
    pub fn judge(&self, call: &Call<'_>) -> ToolJudgement {
        judge::judge(self, call)
    }

    /// Whether a tool is listed, and with which schema. Arguments take no part: nobody has written them yet.
    #[must_use]
    pub fn lists(&self, tool: &str, facts: &ToolFacts) -> Listed {
        listed::lists(self, tool, facts)
    }

    /// What a server may say beside the results of its tools: the strictest of all entries that name one of them. Which tool
    /// a message is about is the server's own word, so the rules of all of them hold.
    #[must_use]
    pub fn result_of_server(&self, server: &str) -> ResultRule {
        let of = |entry: &&Entry| entry.name.split_once('.').is_some_and(|(name, _)| name == server);
        judge::strictest(self.entries.iter().filter(of).map(|entry| &entry.result))
    }

    /// Indices of the entries that match a tool, in the order of the documents. A name that is none matches nothing.
    fn matching(&self, tool: &str) -> Vec<usize> {
        if !names::is_name(tool) {
            return Vec::new();
        }
        let globs = self.globs.iter().copied();
        let by_glob =
            globs.filter(|index| self.entries.get(*index).is_some_and(|entry| names::matches(&entry.name, tool)));
        let mut all: Vec<usize> = self.exact.get(tool).into_iter().flatten().copied().chain(by_glob).collect();
        all.sort_unstable();
        all
    }

    /// Says where the entry of a reason was written, for reasons that know their rule alone.
    pub fn place(&self, reasons: &mut [Reason]) {
        for reason in reasons.iter_mut().filter(|reason| reason.at.is_none()) {
            let mut about = self.entries.iter().filter(|entry| {
                let rest = reason.rule.strip_prefix(&*entry.rule);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            });
            reason.at = about.next().map(|entry| entry.at.told(&self.documents));
        }
    }

    fn entries_at<'g>(&'g self, indices: &'g [usize]) -> impl Iterator<Item = &'g Entry> + 'g {
        indices.iter().filter_map(|index| self.entries.get(*index))
    }
}

#[cfg(test)]
mod tests;
