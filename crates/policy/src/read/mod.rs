//! From a tree to values: types, units, words, paths. Every mistake is noted and reading goes on.

mod allowed;
mod commands;
mod files;
mod given;
mod guards;
mod language;
mod limits;
mod net;
mod scalar;
mod sql;
mod surroundings;
pub(crate) mod tools;

pub(crate) use allowed::{normal, over};

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::clause::ClauseId;
use crate::danger;
use crate::diagnostic::{Diagnostic, Diagnostics, did_you_mean, quote};
use crate::document::{self, Format, Kind, Node, Source, SourceSpan, Value};
use crate::load::Caller;
use crate::value::{BackendName, EnforcerDemand, Policy, Threat, Tier, TierChoice};

/// Keys of the whole document.
pub(crate) const TOP: &[&str] = &[
    "version",
    "name",
    "extends",
    "tier",
    "backend",
    "threat",
    "enforcer",
    "prefer",
    "fs",
    "workspace",
    "limits",
    "net",
    "env",
    "git",
    "inputs",
    "secrets",
    "process",
    "syscalls",
    "language",
    "commands",
    "tools",
    "mcp",
    "audit",
];

/// Reads trees; what is wrong is gathered in `mistakes`.
pub(crate) struct Reader<'a> {
    pub(crate) sources: &'a [Source],
    pub(crate) caller: &'a Caller,
    /// Folders of ours, as dangerous to grant as credentials.
    pub(crate) private: &'a [PathBuf],
    pub(crate) mistakes: &'a mut Diagnostics,
}

/// Clauses of which no line is repeated.
const SECRET: [&str; 2] = ["secrets", "net.proxy"];
/// Clauses of hosts: who pastes an address has a login in it.
const HOSTS: [&str; 3] = ["net.allow", "net.deny", "net.programs"];

/// The parts of a mistake that the place does not say.
pub(crate) struct Fault {
    pub(crate) id: &'static str,
    pub(crate) what: String,
    pub(crate) why: String,
    pub(crate) fix: String,
}

pub(crate) fn fault(
    id: &'static str,
    what: impl Into<String>,
    why: impl Into<String>,
    fix: impl Into<String>,
) -> Fault {
    Fault { id, what: what.into(), why: why.into(), fix: fix.into() }
}

/// The clause that a path belongs to: `inputs.question.type` is of `inputs`.
pub(crate) fn clause_of(path: &str) -> Option<ClauseId> {
    let path = match path {
        "fs.dangerous-read" => "fs.read",
        "fs.dangerous-write" => "fs.write",
        "mcp" => "tools",
        "git" | "git.identity" => "env.set",
        path => path,
    };
    let below = |id: &&ClauseId| {
        path.strip_prefix(id.path()).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    ClauseId::ALL.iter().filter(below).max_by_key(|id| id.path().len()).copied()
}

impl<'a> Reader<'a> {
    pub(crate) fn note(&mut self, path: &str, place: SourceSpan, fault: Fault) {
        let mut at = document::locate(self.sources, place);
        // What was written there may be the secret itself, or a login.
        let is_below = |of: &&str| path.strip_prefix(*of).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        let has_login = || self.source(place).is_some_and(|source| source.line_of(&place.range()).contains('@'));
        if SECRET.iter().any(is_below) || (HOSTS.iter().any(is_below) && has_login()) {
            at.excerpt.clear();
        }
        let Fault { id, what, why, fix } = fault;
        self.mistakes.add(Diagnostic { id: id.to_owned(), clause: clause_of(path), what, at, why, fix });
    }

    pub(crate) fn source(&self, place: SourceSpan) -> Option<&'a Source> {
        self.sources.get(usize::from(place.source))
    }

    /// How a value would be written here: in the language of the document, or as the flag.
    pub(crate) fn suggest(&self, path: &str, place: SourceSpan, value: &str) -> String {
        let key = path.rsplit('.').next().unwrap_or(path);
        match self.source(place) {
            Some(Source { kind: Kind::Flag, name, .. }) if name == "--set" => format!("--set {path}={value}"),
            Some(Source { kind: Kind::Flag, name, .. }) => format!("{name} {value}"),
            Some(Source { format: Format::Yaml, .. }) if is_plain(value) => format!("{key}: {value}"),
            Some(Source { format: Format::Yaml, .. }) => format!("{key}: \"{value}\""),
            Some(Source { format: Format::Json, .. }) => format!("\"{key}\": \"{value}\""),
            Some(Source { format: Format::Toml, .. }) | None => format!("{key} = \"{value}\""),
        }
    }

    pub(crate) fn wrong_type(&mut self, path: &str, node: &Node, wanted: &str, fix: impl Into<String>) {
        let what = format!("`{path}` is {wanted}, and this is {}", node.value.kind());
        let why = "a value of another type would have to be guessed at";
        self.note(path, node.place, fault("value/type", what, why, fix));
    }

    /// The entries of a table whose keys are known.
    pub(crate) fn table<'n>(&mut self, path: &str, node: &'n Node, keys: &[&str]) -> Option<&'n Node> {
        let Value::Table(entries) = &node.value else {
            self.wrong_type(path, node, "a table", format!("write it as a table with {}", list_words(keys)));
            return None;
        };
        for (key, _) in entries {
            if !keys.contains(&key.name.as_str()) {
                self.unknown_key(path, &key.name, key.place, keys);
            }
        }
        Some(node)
    }

    fn unknown_key(&mut self, path: &str, name: &str, place: SourceSpan, keys: &[&str]) {
        let inside = if path.is_empty() { "a policy".to_owned() } else { format!("`{path}`") };
        let what = format!("{} is not a key of {inside}", quote(name));
        let why = "unknown keys are refused, so that a misspelt limit is never silently absent";
        let leaf = |id: &ClauseId| id.path().rsplit('.').next().unwrap_or_default();
        let elsewhere = did_you_mean(name, ClauseId::ALL.iter().map(leaf))
            .and_then(|near| ClauseId::ALL.iter().find(|id| leaf(id) == near))
            .map(|id| id.path());
        let fix = match (did_you_mean(name, keys.iter().copied()), elsewhere) {
            (Some(near), _) => format!("did you mean `{near}`?"),
            (None, Some(full)) => format!("did you mean `{full}`?"),
            (None, None) => format!("keys here are {}", list_words(keys)),
        };
        self.note(path, place, fault("key/unknown", what, why, fix));
    }

    /// Reads a whole tree. Clauses that are absent get the value of the preset `strict`.
    pub(crate) fn policy(&mut self, tree: &Node, name: &str) -> Policy {
        if self.table("", tree, TOP).is_none() {
            return Policy::bare(name);
        }
        let mut policy = Policy::bare(name);
        if let Some(text) = tree.get("name").and_then(|node| self.name(node)) {
            policy.name = text;
        }
        self.demands(tree, &mut policy);
        self.fs(tree, &mut policy.fs);
        self.workspace(tree, &mut policy);
        self.limits(tree, &mut policy.limits);
        self.net(tree, &mut policy.net);
        self.env(tree, &mut policy.env);
        self.inputs(tree, &mut policy.inputs);
        self.secrets(tree, &mut policy.secrets);
        self.process(tree, &mut policy.process);
        self.syscalls(tree, &mut policy.syscalls);
        self.language(tree, &mut policy.language);
        self.audit(tree, &mut policy.audit);
        policy.commands = tree.get("commands").and_then(|node| self.commands_table("commands", node)).map(Box::new);
        if let Some(commands) = &mut policy.commands {
            // What the sandbox shows, a command may read.
            let grants = policy.fs.read.iter().chain(&policy.fs.write);
            commands.granted = grants.map(|grant| grant.to.clone()).collect();
        }
        policy.tools = self.tools(tree);
        policy
    }

    fn name(&mut self, node: &Node) -> Option<String> {
        let text = self.text("name", node)?;
        if text.is_empty() || text.chars().count() > 100 || text.chars().any(char::is_control) {
            let why = "names stand in reports and audit records: 1 to 100 printable characters";
            self.note(
                "name",
                node.place,
                fault("value/name", format!("`name` is {}", quote(&text)), why, "give a short name"),
            );
            return None;
        }
        Some(text)
    }

    fn demands(&mut self, tree: &Node, policy: &mut Policy) {
        const TIERS: &[(&str, TierChoice)] = &[
            ("language", TierChoice::Fixed(Tier::Language)),
            ("process", TierChoice::Fixed(Tier::Process)),
            ("container", TierChoice::Fixed(Tier::Container)),
            ("gvisor", TierChoice::Fixed(Tier::Gvisor)),
            ("vm", TierChoice::Fixed(Tier::Vm)),
            ("auto", TierChoice::Auto),
        ];
        self.put(tree, "tier", &mut policy.tier, |r, p, n| r.keyword(p, n, TIERS));
        self.put(tree, "backend", &mut policy.backend, |r, p, n| {
            r.limit(p, n, |r, p, n| r.keyword(p, n, BackendName::WORDS))
        });
        self.put(tree, "threat", &mut policy.threat, |r, p, n| r.keyword(p, n, Threat::WORDS));
        self.put(tree, "enforcer", &mut policy.enforcer, |r, p, n| r.keyword(p, n, EnforcerDemand::WORDS));
        self.put(tree, "prefer", &mut policy.prefer, Self::prefer);
    }

    fn prefer(&mut self, path: &str, node: &Node) -> Option<BTreeSet<ClauseId>> {
        let mut set = BTreeSet::new();
        for item in self.items(path, node)? {
            let Some(name) = self.text(path, item) else { continue };
            if let Some(id) = ClauseId::from_path(&name) {
                set.insert(id);
                continue;
            }
            let known = ClauseId::ALL.iter().map(|id| id.path());
            let fix = match did_you_mean(&name, known) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "`fumehood policy show` lists the clauses".to_owned(),
            };
            let what = format!("{} in `prefer` is not a clause", quote(&name));
            self.note(path, item.place, fault("value/clause", what, "only clauses can be preferred", fix));
        }
        Some(set)
    }

    /// Why a grant of a host path needs its `dangerous-` spelling.
    pub(crate) fn danger(&self, host: &Path) -> Option<String> {
        danger::why(host, self.caller.home.as_deref(), self.private)
    }

    /// Reads the value at a path, if it is there, into its place.
    pub(crate) fn put<T>(
        &mut self,
        tree: &Node,
        path: &str,
        slot: &mut T,
        read: impl FnOnce(&mut Self, &str, &Node) -> Option<T>,
    ) {
        if let Some(value) = tree.at(path).and_then(|node| read(self, path, node)) {
            *slot = value;
        }
    }
}

/// Whether YAML reads these words without quotes as the text that they are, and not as a number, a truth or nothing.
fn is_plain(text: &str) -> bool {
    let word = |c: char| c.is_ascii_alphabetic() || c == '/' || c == '.';
    let other = matches!(text, "true" | "false" | "null") || text.parse::<f64>().is_ok() || text.contains(": ");
    let quantity = text.starts_with(|c: char| c.is_ascii_digit()) && text.ends_with(|c: char| c.is_ascii_alphabetic());
    !other && (quantity || text.starts_with(word))
}

pub(crate) fn list_words(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

impl ClauseId {
    /// The clause of a document path such as `limits.memory`.
    #[must_use]
    pub fn from_path(path: &str) -> Option<Self> {
        Self::ALL.iter().find(|id| id.path() == path).copied()
    }
}
