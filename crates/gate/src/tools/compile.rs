//! From the policy's entries to what judges: schemas, guards, conditions, patterns. Every mistake is told at its place.

use std::collections::{HashMap, HashSet};

use policy::ClauseId;
use policy::diagnostic::{Diagnostic, Diagnostics, SourceLocation, did_you_mean, quote};
use policy::span::{Documents, Span};
use policy::tools::ToolEntry;

use super::argument::Argument;
use super::entry::{Entry, Guarded, LazyLocation, Rule, plain, rule_name};
use crate::guard::Compiled;
use crate::rules::Condition;
use crate::schema::{Author, Pool, Schema};

/// Compiles all entries.
pub(super) fn entries(list: &[ToolEntry], documents: &Documents, pool: &Pool) -> Result<Vec<Entry>, Diagnostics> {
    let conditions = crate::rules::Pool::default();
    let patterns = HashSet::new();
    let mut work = Work { documents, pool, conditions, patterns, mistakes: Diagnostics::default() };
    let mut seen: HashMap<&str, usize> = HashMap::with_capacity(list.len());
    let compiled = list
        .iter()
        .enumerate()
        .map(|(index, entry)| {
            let ordinal = seen.entry(entry.name.value.as_str()).or_default();
            let made = work.entry(index, *ordinal, entry);
            *ordinal += 1;
            made
        })
        .collect();
    if work.mistakes.list.is_empty() { Ok(compiled) } else { Err(work.mistakes.in_order()) }
}

struct Work<'a> {
    documents: &'a Documents,
    pool: &'a Pool,
    conditions: crate::rules::Pool,
    /// Patterns that can be compiled: many tools have the same.
    patterns: HashSet<String>,
    mistakes: Diagnostics,
}

impl Work<'_> {
    fn entry(&mut self, index: usize, ordinal: usize, written: &ToolEntry) -> Entry {
        let mut entry = plain(index, ordinal, written);
        self.schema(&mut entry, written);
        for (name, guard) in &written.guards {
            match Compiled::new(&guard.value, self.documents) {
                Ok(compiled) => entry.guards.push(Guarded {
                    argument: Argument::new(&name.value),
                    rule: rule_name(index, &format!("guards.{}", name.value)),
                    at: LazyLocation::new(guard.at),
                    guard: compiled,
                }),
                Err(mistakes) if mistakes.list.is_empty() => {
                    let why = "this version cannot judge it".to_owned();
                    let what = format!("the guard of `{}` cannot be compiled", name.value);
                    self.note(
                        "tools.guard/unusable",
                        what,
                        self.documents.locate(guard.at),
                        why,
                        "remove it".to_owned(),
                    );
                }
                Err(mistakes) => mistakes.list.into_iter().for_each(|mistake| self.mistakes.add(mistake)),
            }
        }
        for (number, rule) in written.rules.iter().enumerate() {
            self.rule(&mut entry, rule_name(index, &format!("rules[{number}]")), rule, written);
        }
        self.patterns(written);
        entry
    }

    fn note(&mut self, id: &str, what: String, at: SourceLocation, why: String, fix: String) {
        self.mistakes.add(Diagnostic { id: id.to_owned(), clause: Some(ClauseId::Tools), what, at, why, fix });
    }

    fn schema(&mut self, entry: &mut Entry, written: &ToolEntry) {
        let Some(schema) = &written.schema else { return };
        match self.pool.get(&schema.value, Author::Policy) {
            Ok(made) => entry.schema = Some(made),
            Err(flaws) => {
                for flaw in flaws {
                    let at = self.documents.locate_pointer(schema.at, &flaw.pointer);
                    self.note(flaw.id, flaw.what, at, flaw.why, flaw.fix);
                }
            }
        }
        let Some(made) = &entry.schema else { return };
        // A guard of what the schema does not let in would never judge anything.
        for (name, guard) in &written.guards {
            if made.lets_in(&Argument::new(&name.value).steps) {
                continue;
            }
            let what = format!("the guard of `{}` is about no argument", name.value);
            let why = format!("the schema of `{}` lets nothing in there: {}", entry.name, arguments_of(made));
            let at = self.documents.locate(guard.at);
            self.note("tools.guard/no-argument", what, at, why, nearest(&name.value, made));
        }
    }

    fn rule(&mut self, entry: &mut Entry, name: std::sync::Arc<str>, rule: &policy::tools::Rule, written: &ToolEntry) {
        let schema = written.schema.as_ref().map(|schema| &schema.value);
        match Condition::compile_in(&mut self.conditions, &rule.when.value, schema) {
            Ok(condition) => entry.rules.push(Rule {
                condition,
                rule: name,
                decision: rule.decision,
                message: rule.message.clone(),
                at: LazyLocation::new(rule.when.at),
            }),
            Err(flaw) => {
                let at = self.documents.locate_part(rule.when.at, &rule.when.value, flaw.range);
                self.note("tools.rule/condition", flaw.what, at, flaw.why, flaw.fix);
            }
        }
    }

    /// Patterns of results are compiled by whoever bounds results; that they can be, is known from here on.
    fn patterns(&mut self, written: &ToolEntry) {
        for pattern in &written.result.redact {
            if self.patterns.contains(&pattern.value) {
                continue;
            }
            let flaw = regex::RegexBuilder::new(&pattern.value).size_limit(1 << 18).build().err();
            if flaw.is_none() {
                self.patterns.insert(pattern.value.clone());
            }
            if let Some(error) = flaw {
                let why = error.to_string().lines().last().unwrap_or_default().trim().to_owned();
                let what = "a pattern of `result.redact` cannot be compiled".to_owned();
                let at = self.documents.locate(pattern.at);
                self.note("tools.result/pattern", what, at, why, "write a simpler one".to_owned());
            }
        }
    }
}

/// Which arguments a schema has, for people.
pub(super) fn arguments_of(schema: &Schema) -> String {
    let known: Vec<String> = schema.known().iter().map(|way| quote(way)).collect();
    if known.is_empty() { "it names no argument".to_owned() } else { format!("it names {}", known.join(", ")) }
}

/// What a guard was probably meant for.
pub(super) fn nearest(argument: &str, schema: &Schema) -> String {
    let known = schema.known();
    match did_you_mean(argument, known.iter().map(String::as_str)) {
        Some(near) => format!("did you mean {}?", quote(near)),
        None => "name an argument of the schema".to_owned(),
    }
}

/// A mistake about an entry as a whole.
pub(super) fn mistake(documents: &Documents, spot: Span, id: &str, what: String, why: String, fix: &str) -> Diagnostic {
    let at = documents.locate(spot);
    Diagnostic { id: id.to_owned(), clause: Some(ClauseId::Tools), what, at, why, fix: fix.to_owned() }
}
