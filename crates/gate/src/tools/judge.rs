//! One call against all entries that match.

use std::sync::Arc;

use policy::diagnostic::quote;
use policy::tools::{Approval, ApprovalBy, Decision, Effect, ResultRule};
use serde_json::Value as Json;

use super::compile::{arguments_of, nearest};
use super::entry::{Entry, Guarded, effect};
use super::{Gate, ToolJudgement, argument};
use crate::blocked::Blocked;
use crate::call::Call;
use crate::demand::MAX_DEMANDS;
use crate::json;
use crate::rules::EvalContext;
use crate::schema::{Schema, Step};
use crate::verdict::{Reason, Verdict};

pub(super) fn judge(gate: &Gate, call: &Call<'_>) -> ToolJudgement {
    let matched = gate.matching(call.tool);
    let entries: Vec<&Entry> = gate.entries_at(&matched).collect();
    let effect = effect(entries.iter().copied(), call.facts);
    let mut judging = Judging { gate, call, entries, reasons: Vec::new() };
    judging.entries();
    judging.effect(effect);
    let args = judging.args();
    if let Some(args) = &args {
        judging.rules(args);
    }
    judging.approvals();
    let entries = std::mem::take(&mut judging.entries);
    let (mut limits, mut reported) = (Vec::new(), Vec::new());
    entries.iter().for_each(|entry| entry.demands.of(call.caller, &mut limits, &mut reported));
    if limits.len() > MAX_DEMANDS {
        let why = format!("a call is counted at most {MAX_DEMANDS} times");
        judging.deny("tools.limits/many", "tools", "too many limits match this tool".to_owned(), why, String::new());
    }
    let mut reasons = judging.reasons;
    gate.place(&mut reasons);
    let verdict = verdict(call.tool, reasons, args);
    let timeout = entries.iter().filter_map(|entry| entry.timeout).min();
    let result = strictest(entries.iter().map(|entry| &entry.result));
    // The strictest of what is written; where nothing is, the effect says it.
    let approval_by = entries.iter().filter_map(|entry| entry.approval_by).max();
    let approval_by = approval_by.unwrap_or_else(|| ApprovalBy::of_effect(effect));
    ToolJudgement { verdict, entries: matched, limits, reported, timeout, result, effect, approval_by }
}

/// Puts reasons in their order, strictest first, and takes the decision from them. No reason is no permission.
fn verdict(tool: &str, mut reasons: Vec<Reason>, args: Option<Json>) -> Verdict {
    reasons.sort_by_key(|reason| std::cmp::Reverse(reason.decision));
    let first = reasons.first();
    let hash = args.as_ref().map(|args| json::hash(tool, args));
    Verdict {
        decision: first.map_or(Decision::Deny, |reason| reason.decision),
        rule: first.map(|reason| reason.rule.clone()).unwrap_or_default(),
        instead: first.map(|reason| reason.instead.clone()).unwrap_or_default(),
        args,
        hash,
        reasons,
    }
}

/// What a result may be under several rules: what all of them allow.
pub(super) fn strictest<'e>(rules: impl Iterator<Item = &'e ResultRule>) -> ResultRule {
    let mut all = ResultRule { max: ResultRule::MAX, redact: Vec::new(), types: Vec::new() };
    let mut first = true;
    for rule in rules {
        all.max = if first { rule.max } else { all.max.min(rule.max) };
        for pattern in &rule.redact {
            if !all.redact.contains(pattern) {
                all.redact.push(pattern.clone());
            }
        }
        if all.types.is_empty() {
            all.types.clone_from(&rule.types);
        } else if !rule.types.is_empty() {
            all.types.retain(|kind| rule.types.contains(kind));
            if all.types.is_empty() {
                // An empty list means all kinds; this one means none.
                all.types.push("nothing".to_owned());
            }
        }
        first = false;
    }
    all
}

struct Judging<'g, 'c> {
    gate: &'g Gate,
    call: &'c Call<'c>,
    entries: Vec<&'g Entry>,
    reasons: Vec<Reason>,
}

impl Judging<'_, '_> {
    fn deny(&mut self, id: &'static str, rule: &str, what: String, why: String, instead: String) {
        let (rule, decision) = (rule.to_owned(), Decision::Deny);
        self.reasons.push(Reason { id, rule, at: None, decision, what, why, instead });
    }

    /// What the entries themselves say, or the default.
    fn entries(&mut self) {
        let documents = &self.gate.documents;
        for entry in &self.entries {
            let (id, why, instead) = match entry.decision {
                Decision::Allow => ("tools.entry/allow", "the policy allows it", String::new()),
                Decision::Ask => {
                    ("tools.entry/ask", "the policy wants a person to agree", "wait for the answer".to_owned())
                }
                Decision::Deny => ("tools.entry/deny", "the policy denies it", "use another tool".to_owned()),
            };
            self.reasons.push(Reason {
                id,
                rule: entry.rule.to_string(),
                at: Some(entry.at.told(documents)),
                decision: entry.decision,
                what: format!("{} is `{}`", quote(&entry.name), entry.decision.as_str()),
                why: why.to_owned(),
                instead,
            });
        }
        if let Some(policy::names::NameFlaw { why, fix }) = policy::names::flaw_of_tool(self.call.tool) {
            let what = format!("{} is not the name of a tool", quote(self.call.tool));
            self.deny("tools.name/unfit", "tools", what, why, fix);
        } else if self.entries.is_empty() {
            self.reasons.push(Reason {
                id: "tools.entry/none",
                rule: "tools.default".to_owned(),
                at: None,
                decision: self.gate.default,
                what: format!("no entry names {}", quote(self.call.tool)),
                why: format!("what no entry names gets the default, `{}`", self.gate.default.as_str()),
                instead: match self.gate.default {
                    Decision::Ask => "wait for the answer".to_owned(),
                    Decision::Allow | Decision::Deny => self.known(),
                },
            });
        }
    }

    /// Tools that may be called instead of one that nobody named.
    fn known(&self) -> String {
        let open = self.gate.entries.iter().filter(|entry| entry.decision != Decision::Deny);
        let names: Vec<&str> = open.map(|entry| entry.name.as_str()).collect();
        match policy::diagnostic::did_you_mean(self.call.tool, names.iter().copied()) {
            Some(near) => format!("did you mean {}?", quote(near)),
            None if names.is_empty() => "no tool may be called".to_owned(),
            None => {
                let names: Vec<String> = names.into_iter().take(20).map(quote).collect();
                format!("the policy names {}", names.join(", "))
            }
        }
    }

    /// A write needs an entry that names it, and that does not call it a read.
    fn effect(&mut self, effect: Effect) {
        if effect == Effect::Read || self.entries.is_empty() || self.entries.iter().any(|entry| entry.names_write()) {
            return;
        }
        let tool = quote(self.call.tool);
        let exact = self.entries.iter().find(|entry| entry.is_exact && entry.decision != Decision::Deny);
        let (id, rule, what, why, instead) = match exact {
            Some(entry) => (
                "tools.effect/raised",
                Arc::clone(&entry.rule),
                format!("{tool} says of itself, or another entry says, that it changes something"),
                "the entry that names it calls it a read".to_owned(),
                "effect = \"write\" in that entry, if that is meant".to_owned(),
            ),
            None => (
                "tools.effect/unnamed",
                self.entries.first().map_or_else(|| "tools".into(), |entry| Arc::clone(&entry.rule)),
                format!("{tool} changes something, or nobody said that it only reads, and only globs name it"),
                "what changes something needs an entry of its own".to_owned(),
                format!("an entry with name = {tool}, or effect = \"read\" if it only reads"),
            ),
        };
        self.deny(id, &rule, what, why, instead);
    }

    /// The arguments as the tool would get them; none if they are not what schemas and guards want.
    fn args(&mut self) -> Option<Json> {
        // A tool that is denied whatever the arguments are: they are not looked at.
        if self.reasons.iter().any(|reason| reason.decision == Decision::Deny) {
            return None;
        }
        let args = match json::settle(&self.with_defaults()) {
            Ok(args) => args,
            Err(flaw) => {
                self.deny(flaw.id, "args", flaw.what, flaw.why.to_owned(), flaw.fix.to_owned());
                return None;
            }
        };
        if !args.is_object() {
            let what = format!("the arguments are {}", crate::guard::kind_of(&args));
            let why = "arguments have names".to_owned();
            self.deny("tools.args/not-object", "args", what, why, "give an object".to_owned());
            return None;
        }
        let before = self.reasons.len();
        let schemas = self.schemas()?;
        self.reach(&schemas);
        self.fit(&schemas, &args);
        if schemas.is_empty() {
            self.named_by_guards(&args);
        }
        let mut passed = args.clone();
        self.guards(&mut passed);
        if self.reasons.len() == before && passed != args {
            self.settled(&schemas, &passed);
        }
        (self.reasons.len() == before).then_some(passed)
    }

    /// The arguments, and for those that are not given what the tool takes instead, where the policy looks at them: a guard, a
    /// schema or a condition is about what the tool gets, not about what was written.
    fn with_defaults(&self) -> Json {
        let mut args = self.call.args.clone();
        if let Some(args) = args.as_object_mut() {
            for (name, value) in &self.call.facts.defaults {
                if !args.contains_key(name) && self.entries.iter().any(|entry| entry.looks_at(name)) {
                    args.insert(name.clone(), value.clone());
                }
            }
        }
        args
    }

    /// All schemas that the arguments must fit: the tool's own and those of the entries.
    fn schemas(&mut self) -> Option<Vec<(Arc<str>, Arc<Schema>)>> {
        let mut schemas = Vec::with_capacity(2);
        for entry in &self.entries {
            if let Some(schema) = &entry.schema {
                schemas.push((Arc::<str>::from(format!("{}.schema", entry.rule)), Arc::clone(schema)));
            }
        }
        if let Some(own) = &self.call.facts.input_schema {
            match self.gate.own.get(self.call.tool, own) {
                Ok(schema) => schemas.push(("the tool's own schema".into(), schema)),
                Err(flaws) => {
                    for flaw in flaws.iter() {
                        let what = format!("the tool's own schema cannot be used: {}", flaw.what);
                        let why = format!("{}: {}", quote(&flaw.pointer), flaw.why);
                        let instead = "nothing until the tool's schema is mended".to_owned();
                        self.deny("tools.schema/unusable", "the tool's own schema", what, why, instead);
                    }
                    return None;
                }
            }
        }
        Some(schemas)
    }

    /// A guard that leads to nothing which the tool takes would judge nothing, whatever is given: the argument has another name,
    /// and would pass unguarded. What the tool says of itself counts; where it says nothing, what the policy says of it: an
    /// entry's own schema was looked at when it was compiled, and one without is held to those of the others.
    fn reach(&mut self, schemas: &[(Arc<str>, Arc<Schema>)]) {
        let own = self.call.facts.input_schema.as_ref().and(schemas.last());
        let mut lost = Vec::new();
        for entry in &self.entries {
            let counting: &[(Arc<str>, Arc<Schema>)] = match (own, &entry.schema) {
                (Some(own), _) => std::slice::from_ref(own),
                (None, Some(_)) => &[],
                (None, None) => schemas,
            };
            for guarded in &entry.guards {
                let refuses = |(_, schema): &&(Arc<str>, Arc<Schema>)| !schema.lets_in(&guarded.argument.steps);
                lost.extend(counting.iter().find(refuses).map(|(whose, schema)| self.lost(guarded, whose, schema)));
            }
        }
        self.reasons.extend(lost);
    }

    fn lost(&self, guarded: &Guarded, whose: &str, schema: &Schema) -> Reason {
        let argument = guarded.argument.shown();
        let known = arguments_of(schema);
        let near = nearest(&argument, schema);
        Reason {
            id: "tools.guard/no-argument",
            rule: guarded.rule.to_string(),
            at: Some(guarded.at.told(&self.gate.documents)),
            decision: Decision::Deny,
            what: format!("the guard of {} is about no argument of {}", quote(&argument), quote(self.call.tool)),
            why: format!("{whose} lets nothing in there, and another argument would pass unguarded: {known}"),
            instead: format!("in the policy, guard an argument of this tool: {near}"),
        }
    }

    fn fit(&mut self, schemas: &[(Arc<str>, Arc<Schema>)], args: &Json) {
        for (rule, schema) in schemas {
            for misfit in schema.check(args).err().into_iter().flatten() {
                let known = self.reasons.iter().any(|reason| reason.id == misfit.id && reason.what == misfit.what);
                if !known {
                    self.deny(misfit.id, rule, misfit.what, misfit.why, misfit.instead);
                }
            }
        }
    }

    /// Without any schema, guards are all that says which arguments there are.
    fn named_by_guards(&mut self, args: &Json) {
        let guards: Vec<&[Step]> = self
            .entries
            .iter()
            .flat_map(|entry| &entry.guards)
            .map(|guarded| guarded.argument.steps.as_slice())
            .collect();
        if guards.is_empty() {
            return;
        }
        if let Some(name) = argument::unnamed(args, &guards) {
            let rule = self.entries.first().map_or_else(|| "tools".into(), |entry| Arc::clone(&entry.rule));
            let what = format!("{} is named by no guard, and there is no schema", quote(&format!("args{name}")));
            let why = "without a schema only guarded arguments pass: another could say the same unguarded".to_owned();
            let instead = "leave it out; in the policy, write a `schema` that names it".to_owned();
            self.deny("tools.schema/none", &rule, what, why, instead);
        }
    }

    fn guards(&mut self, args: &mut Json) {
        let mut found: Vec<(Arc<str>, policy::diagnostic::SourceLocation, String, Blocked)> = Vec::new();
        for guarded in self.entries.iter().flat_map(|entry| &entry.guards) {
            let mut blocked = Vec::new();
            guarded.argument.pass(args, &guarded.guard, &mut blocked);
            let place = || guarded.at.told(&self.gate.documents);
            found.extend(blocked.into_iter().map(|(at, why)| (Arc::clone(&guarded.rule), place(), at, why)));
        }
        for (rule, place, at, Blocked { id, what, why, instead }) in found {
            let what = format!("{}: {what}", quote(&at));
            let (rule, at) = (rule.to_string(), Some(place));
            self.reasons.push(Reason { id, rule, at, decision: Decision::Deny, what, why, instead });
        }
    }

    /// What guards changed must still fit everything, and be left alone by all of them: else two of them mean two values.
    fn settled(&mut self, schemas: &[(Arc<str>, Arc<Schema>)], passed: &Json) {
        self.fit(schemas, passed);
        let mut again = passed.clone();
        let before = self.reasons.len();
        self.guards(&mut again);
        if self.reasons.len() == before && again != *passed {
            let what = "two guards of one argument want two different values".to_owned();
            let why = "what one of them passes, the other changes".to_owned();
            self.deny("tools.guard/unstable", "tools", what, why, "give the value in its plainest form".to_owned());
        }
    }

    /// Conditions, over what the tool would get. One that fails denies.
    fn rules(&mut self, args: &Json) {
        let Call { caller, counters, now, tool: _, args: _, facts: _ } = self.call;
        let facts =
            EvalContext { args, session: &caller.session, agent: &caller.agent, counters: *counters, now: *now };
        for entry in &self.entries {
            for rule in &entry.rules {
                let text = quote(rule.condition.text());
                let (id, decision, what, why) = match rule.condition.holds(&facts) {
                    Ok(false) => continue,
                    Ok(true) => ("tools.rule/holds", rule.decision, format!("{text} is true"), rule.message.clone()),
                    Err(failure) => {
                        ("tools.rule/failed", Decision::Deny, format!("{text} cannot be evaluated"), failure.what)
                    }
                };
                let instead = match (id, rule.message.as_str()) {
                    ("tools.rule/holds", "") => format!("arguments for which {text} is false"),
                    (_, message) => message.to_owned(),
                };
                let why = if why.is_empty() { "a rule of the policy".to_owned() } else { why };
                let at = Some(rule.at.told(&self.gate.documents));
                self.reasons.push(Reason { id, rule: rule.rule.to_string(), at, decision, what, why, instead });
            }
        }
    }

    fn approvals(&mut self) {
        for entry in &self.entries {
            let (id, what) = match entry.approval {
                Approval::Never => continue,
                Approval::First => ("tools.approval/first", "the first such call of a session is asked about"),
                Approval::Always => ("tools.approval/always", "every call is asked about"),
            };
            self.reasons.push(Reason {
                id,
                rule: format!("{}.approval", entry.rule),
                at: Some(entry.at.told(&self.gate.documents)),
                decision: Decision::Ask,
                what: what.to_owned(),
                why: "the policy wants a person to agree".to_owned(),
                instead: "wait for the answer".to_owned(),
            });
        }
    }
}
