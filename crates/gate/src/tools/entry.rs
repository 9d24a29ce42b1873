//! One entry of the policy, compiled.

use std::sync::{Arc, OnceLock};

use policy::diagnostic::SourceLocation;
use policy::span::{Documents, Span};
use policy::tools::{Approval, ApprovalBy, Decision, Effect, ResultRule, ToolEntry};
use policy::units::Millis;

use super::argument::Argument;
use super::demands::Demands;
use crate::call::ToolFacts;
use crate::rules::Condition;
use crate::schema::Schema;

/// A place that is turned into words when a message needs it.
#[derive(Debug)]
pub(super) struct LazyLocation {
    spot: Span,
    words: OnceLock<SourceLocation>,
}

impl LazyLocation {
    pub(super) const fn new(spot: Span) -> Self {
        Self { spot, words: OnceLock::new() }
    }

    pub(super) fn told(&self, documents: &Documents) -> SourceLocation {
        self.words.get_or_init(|| documents.locate(self.spot)).clone()
    }
}

/// A guard of one argument.
#[derive(Debug)]
pub(super) struct Guarded {
    pub(super) argument: Argument,
    pub(super) rule: Arc<str>,
    pub(super) at: LazyLocation,
    pub(super) guard: crate::guard::Compiled,
}

/// A condition.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) condition: Condition,
    pub(super) rule: Arc<str>,
    pub(super) decision: Decision,
    pub(super) message: String,
    pub(super) at: LazyLocation,
}

/// One entry.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) is_exact: bool,
    pub(super) rule: Arc<str>,
    pub(super) at: LazyLocation,
    pub(super) decision: Decision,
    pub(super) effect: Option<Effect>,
    pub(super) approval: Approval,
    pub(super) approval_by: Option<ApprovalBy>,
    pub(super) schema: Option<Arc<Schema>>,
    pub(super) guards: Vec<Guarded>,
    pub(super) rules: Vec<Rule>,
    pub(super) demands: Demands,
    pub(super) timeout: Option<Millis>,
    pub(super) result: ResultRule,
}

impl Entry {
    /// Whether it says anything of an argument.
    pub(super) fn looks_at(&self, argument: &str) -> bool {
        let guarded = |guarded: &Guarded| guarded.argument.begins_at(argument);
        let named = |schema: &Arc<Schema>| {
            schema.closed().get("properties").is_some_and(|properties| properties.get(argument).is_some())
        };
        // By its letters: a condition that is thought to be about it and is not sees one value more.
        let mentioned = |rule: &Rule| rule.condition.text().contains(argument);
        self.guards.iter().any(guarded) || self.schema.as_ref().is_some_and(named) || self.rules.iter().any(mentioned)
    }

    /// Whether it names the tool for what it is: a write needs an entry that is about it alone and does not call it a read.
    pub(super) fn names_write(&self) -> bool {
        self.is_exact && self.effect != Some(Effect::Read) && self.decision != Decision::Deny
    }
}

/// What a tool does: what the policy declares, raised by what the tool says of itself. What nobody declared is a write: a
/// tool's own word that it only reads is the word of somebody who is not trusted.
pub(super) fn effect<'e>(entries: impl Iterator<Item = &'e Entry>, facts: &ToolFacts) -> Effect {
    let declared = entries.filter_map(|entry| entry.effect).max();
    declared.unwrap_or(Effect::Write).max(facts.effect.unwrap_or(Effect::Read))
}

/// The name of an entry or a part of it in reasons: `tools.tool[2].guards.to`.
pub(super) fn rule_name(index: usize, part: &str) -> Arc<str> {
    if part.is_empty() { format!("tools.tool[{index}]").into() } else { format!("tools.tool[{index}].{part}").into() }
}

/// The parts of an entry that need no compiling.
pub(super) fn plain(index: usize, ordinal: usize, entry: &ToolEntry) -> Entry {
    let name = entry.name.value.clone();
    Entry {
        is_exact: !name.contains('*'),
        rule: rule_name(index, ""),
        at: LazyLocation::new(entry.name.at),
        decision: entry.decision,
        effect: entry.effect,
        approval: entry.approval,
        approval_by: entry.approval_by,
        schema: None,
        guards: Vec::new(),
        rules: Vec::new(),
        demands: Demands::new(index, ordinal, entry),
        timeout: entry.timeout,
        result: entry.result.clone(),
        name,
    }
}
