//! What a policy of tools says and probably does not mean.

use policy::diagnostic::quote;
use policy::span::Span;
use policy::tools::{Approval, Decision, Effect, Reach, ToolEntry, Tools};
use policy::{ClauseId, Lint};

use super::Gate;
use super::entry::Entry;
use crate::names;

/// All lints, in the order of the entries.
pub(super) fn lints(gate: &Gate, tools: &Tools) -> Vec<Lint> {
    let mut work = Work { gate, list: Vec::new() };
    for (written, entry) in tools.entries.iter().zip(&gate.entries) {
        work.scope(written, entry, tools);
        work.reach(written, entry);
        work.schema(written, entry);
    }
    work.list
}

struct Work<'g> {
    gate: &'g Gate,
    list: Vec<Lint>,
}

impl Work<'_> {
    fn lint(&mut self, spot: Span, id: &'static str, what: String, why: &str, fix: &str) {
        self.lint_at(self.gate.documents.locate(spot).to_string(), id, what, why, fix);
    }

    fn lint_at(&mut self, at: String, id: &'static str, what: String, why: &str, fix: &str) {
        self.list.push(Lint { id, clause: ClauseId::Tools, what, at, why: why.to_owned(), fix: fix.to_owned() });
    }

    /// Globs that reach too far, or allow nothing.
    fn scope(&mut self, written: &ToolEntry, entry: &Entry, tools: &Tools) {
        let name = quote(&entry.name);
        if entry.decision != Decision::Deny && (entry.name == "*" || entry.name.starts_with("*.")) {
            let why = "a server that is added tomorrow is in it as well";
            self.lint(
                written.name.at,
                "tools/all-servers",
                format!("{name} speaks of all servers"),
                why,
                "name the servers: `server.*`",
            );
        }
        if !entry.is_exact && entry.decision != Decision::Deny && entry.effect != Some(Effect::Read) {
            let what = format!("{name} lets no tool be called");
            let why = "what is not declared to be a read counts as a write, and a write needs an entry that names it";
            self.lint(
                written.name.at,
                "tools/write-by-glob",
                what,
                why,
                "say effect = \"read\" if all of them only read, or name the tools",
            );
        }
        let server = entry.name.split_once('.').map(|(server, _)| server).filter(|server| *server != "*");
        let imports = tools.mcp.servers.values().any(|server| matches!(server.value.reach, Reach::Import(_)));
        if let Some(server) = server
            && !imports
            && !tools.mcp.servers.is_empty()
            && !tools.mcp.servers.contains_key(server)
        {
            let what = format!("{name} is about a server that is not declared");
            self.lint(
                written.name.at,
                "tools/unknown-server",
                what,
                "no tool has that name",
                "declare it under [mcp.servers], or correct the name",
            );
        }
    }

    /// What can never count.
    fn reach(&mut self, written: &ToolEntry, entry: &Entry) {
        let name = quote(&entry.name);
        if entry.decision == Decision::Deny {
            let idle = [
                ("schema", entry.schema.is_some()),
                ("guards", !entry.guards.is_empty()),
                ("rules", !entry.rules.is_empty()),
                ("rate", written.rate.is_some()),
                ("budget", written.budget.is_some()),
                ("approval", entry.approval != Approval::Never || entry.approval_by.is_some()),
            ];
            let idle: Vec<&str> = idle.iter().filter(|(_, there)| *there).map(|(part, _)| *part).collect();
            if !idle.is_empty() {
                let what = format!("{name} is denied, and has {}", idle.join(", "));
                let fix = "write decision = \"allow\" or \"ask\" if calls that pass them may be made";
                self.lint(
                    written.name.at,
                    "tools/unreachable",
                    what,
                    "a tool that is denied is never looked at further",
                    fix,
                );
            }
            return;
        }
        let over = self.gate.entries.iter().find(|other| {
            other.decision == Decision::Deny && names::matches(&other.name, &entry.name) && other.name != entry.name
        });
        let twin = self.gate.entries.iter().any(|other| other.decision == Decision::Deny && other.name == entry.name);
        if twin || over.is_some() {
            let by = over.map_or_else(|| entry.name.clone(), |over| over.name.clone());
            let what = format!("{name} is never allowed");
            let why = format!("an entry for {} denies it, and deny counts before all else", quote(&by));
            self.lint(written.name.at, "tools/unreachable", what, &why, "take one of them away");
        }
        if entry.decision == Decision::Ask {
            for (index, rule) in written.rules.iter().enumerate().filter(|(_, rule)| rule.decision == Decision::Ask) {
                let what = format!("rule {index} of {name} asks");
                let why = "every call of this tool is asked about already";
                self.lint(rule.when.at, "tools/unreachable", what, why, "let it deny, or let the entry allow");
            }
            if entry.approval != Approval::Never {
                let why = "every call of this tool is asked about already";
                let what = format!("{name} asks, and has `approval`");
                self.lint(
                    written.name.at,
                    "tools/unreachable",
                    what,
                    why,
                    "remove `approval`, or write decision = \"allow\"",
                );
            }
        }
    }

    fn schema(&mut self, written: &ToolEntry, entry: &Entry) {
        let name = quote(&entry.name);
        if let (Some(schema), Some(spot)) = (&entry.schema, &written.schema) {
            for pointer in schema.loose() {
                let at = self.gate.documents.locate_pointer(spot.at, pointer).to_string();
                let what = format!("a pattern of {name} has no anchors");
                let why = "it fits every text that has a match somewhere in it";
                self.lint_at(at, "tools/loose-pattern", what, why, "write ^(?:...)$ round it");
            }
        }
        // A tool of a server brings its own schema; a function may bring none.
        if entry.is_exact
            && !entry.name.contains('.')
            && entry.decision != Decision::Deny
            && entry.schema.is_none()
            && entry.guards.is_empty()
        {
            let what = format!("{name} has no schema");
            let why = "unless the tool brings one, it can be called with anything";
            self.lint(written.name.at, "tools/no-schema", what, why, "write the schema of its arguments");
        }
        for rule in &entry.rules {
            for hint in rule.condition.hints() {
                let at = rule.at.told(&self.gate.documents).to_string();
                self.lint_at(at, "tools/condition", hint.what.clone(), &hint.why, &hint.fix);
            }
        }
    }
}
