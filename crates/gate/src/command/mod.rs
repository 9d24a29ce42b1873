//! Command lines: read as bash reads them, judged word by word, run as judged.
//!
//! A line is allowed only if each program that bash would start for it is known beforehand, each of its words fits the
//! table of that program, and nothing is written outside the folders of the policy. What cannot be proven is refused.
//!
//! The way of a line: `parse` (bounds, then the tree) -> `walk` (every command, word and redirection) -> `words` (what a word
//! becomes) -> `start` (bash's own word, wrapper or program) -> `options` (words against the table) -> `argument_rules` (each word
//! against its type) and `block`. `table` is the data, `resolve` finds the files.
//!
//! *Does not promise*: a boundary. An allowed program does what it does; only the sandbox options it holds that.

mod argument_rules;
mod block;
mod compile;
mod expressions;
mod here;
mod lints;
mod options;
mod parse;
mod places;
mod quoting;
mod repository;
mod resolve;
mod scripts;
mod start;
mod subscripts;
mod table;
mod walk;
mod words;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use brush_parser::ast;
use policy::Lint;
use serde_json::{Value as Json, json};

use crate::blocked::Blocked;
use argument_rules::ArgumentRules;
use options::blocked;
use resolve::{ProgramPath, Tree};
use start::StartContext;
use table::Table;
use walk::Walk;
use words::{Word, WordPosition};

pub use parse::MAX_BYTES;
pub use resolve::PATH;

/// Where commands are run, and where programs are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JudgeOptions {
    /// The folder in which they run, as they see it: relative paths start here.
    pub root: PathBuf,
    /// The same folder as this process sees it, to look at a repository's configuration; none if there is no such folder.
    pub inspect: Option<PathBuf>,
    /// The tree in which programs are found: `/`, or the root of the sandbox as this process sees it.
    pub tree: PathBuf,
}

/// A program as it would be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The absolute path that is executed.
    pub path: PathBuf,
    /// Its words, the name first; a word that only running could tell is shown as written.
    pub argv: Vec<String>,
    /// What its environment has beside the caller's allowlist.
    pub env: Vec<(String, String)>,
}

/// What became of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It may run.
    Allowed {
        /// Every program that it starts, in the order in which they are written.
        programs: Vec<Resolved>,
        /// Whether bash must read the line; else the first of `programs` is to be executed without a shell.
        shell: bool,
    },
    /// It may not, and why; all reasons.
    Refused(Vec<Blocked>),
}

/// What to execute for an allowed line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecSpec {
    /// The program, absolute.
    pub path: PathBuf,
    /// Its words, the name first.
    pub argv: Vec<String>,
    /// Variables that it must have, beside `PATH` as in [`PATH`] and what the caller lets through.
    pub env: Vec<(String, String)>,
}

/// A line in braces: bash reads all of it before it runs any of it, as the judge did. Left alone it runs each command that it
/// has read, and a line that turns out to be broken would have run in part.
#[must_use]
pub fn as_one(line: &str) -> String {
    format!("{{ {line}\n}}")
}

/// Judges command lines by one `[commands]` table.
#[derive(Debug)]
pub struct Judge {
    tree: Tree,
    rules: ArgumentRules,
    programs: Vec<Known>,
    wrappers: Vec<Known>,
    lints: Vec<Lint>,
}

/// A program or wrapper that the policy lists.
#[derive(Debug)]
struct Known {
    name: String,
    /// Other spellings of the same file in the system's own folders.
    paths: Vec<String>,
    table: Arc<Table>,
    found: Option<ProgramPath>,
    /// Why it was not found, where there is more to say.
    missing: Option<String>,
    /// Whether bash runs it itself.
    builtin: bool,
}

impl Known {
    fn is(&self, name: &str) -> bool {
        self.name == name || self.paths.iter().any(|path| path == name)
    }
}

impl Judge {
    /// Judges a line as bash would read it.
    #[must_use]
    pub fn line(&self, line: &str) -> Judgement {
        if let Err(reason) = parse::plain(line) {
            return Judgement::Refused(vec![reason]);
        }
        if !parse::needs_stack(line) {
            return self.read(line);
        }
        parse::on_stack(|| self.read(line)).unwrap_or_else(|| {
            let what = "the line could not be read".to_owned();
            let reason = blocked("commands.line/too-big", what, "reading it took more than there was", "divide it");
            Judgement::Refused(vec![reason])
        })
    }

    fn read(&self, line: &str) -> Judgement {
        let program = match parse::program(line) {
            Ok(program) => program,
            Err(reason) => return Judgement::Refused(vec![reason]),
        };
        let mut walk = Walk::new(self);
        walk.program(&program);
        walk.settle();
        if walk.commands == 0 {
            let what = "the line runs nothing".to_owned();
            walk.refused("commands.line/empty", what, "there is no command in it", "a command");
        }
        if !walk.blocked.is_empty() {
            return Judgement::Refused(walk.blocked);
        }
        match self.alone(&program) {
            Some(programs) => Judgement::Allowed { programs, shell: false },
            None => Judgement::Allowed { programs: walk.programs, shell: true },
        }
    }

    /// The programs of a line that is one plain command and needs no shell.
    fn alone(&self, program: &ast::Program) -> Option<Vec<Resolved>> {
        let [list] = program.complete_commands.as_slice() else { return None };
        let [ast::CompoundListItem(and_or, ast::SeparatorOperator::Sequence)] = list.0.as_slice() else { return None };
        let ast::AndOrList { first: pipeline, additional } = and_or;
        let [ast::Command::Simple(command)] = pipeline.seq.as_slice() else { return None };
        if !additional.is_empty() || pipeline.bang || pipeline.timed.is_some() {
            return None;
        }
        let read = |raw: &str, stands| {
            let mut lines = Vec::new();
            let word = words::read(raw, stands, &mut lines).ok()?;
            (lines.is_empty() && word.text().is_some()).then_some(word)
        };
        let (mut assigned, mut given) = (Vec::new(), Vec::new());
        for item in command.prefix.iter().flat_map(|prefix| &prefix.0) {
            let ast::CommandPrefixOrSuffixItem::AssignmentWord(_, word) = item else { return None };
            let (name, value) = word.value.split_once('=')?;
            assigned.push((name.to_owned(), read(value, WordPosition::Alone)?));
        }
        given.push(read(&command.word_or_name.as_ref()?.value, WordPosition::Argument)?);
        for item in command.suffix.iter().flat_map(|suffix| &suffix.0) {
            match item {
                ast::CommandPrefixOrSuffixItem::Word(word)
                | ast::CommandPrefixOrSuffixItem::AssignmentWord(_, word) => {
                    given.push(read(&word.value, WordPosition::Argument)?);
                }
                ast::CommandPrefixOrSuffixItem::IoRedirect(_)
                | ast::CommandPrefixOrSuffixItem::ProcessSubstitution(..) => {
                    return None;
                }
            }
        }
        let mut walk = Walk::new(self);
        walk.start(&given, &assigned, StartContext::direct());
        (walk.blocked.is_empty() && !walk.programs.is_empty()).then_some(walk.programs)
    }

    /// Judges words that are executed without a shell.
    #[must_use]
    pub fn argv(&self, words: &[OsString]) -> Judgement {
        let mut known = Vec::new();
        for word in words {
            let Some(text) = word.to_str() else {
                let what = format!("{} is no text", policy::diagnostic::quote(&word.to_string_lossy()));
                let reason = blocked("commands.line/character", what, "what cannot be shown cannot be judged", "UTF-8");
                return Judgement::Refused(vec![reason]);
            };
            if let Err(reason) = parse::plain(text) {
                return Judgement::Refused(vec![reason]);
            }
            known.push(Word::literal(text));
        }
        // A word may be a line of its own (`bash -c`), and nest as deep as one.
        let judged = || {
            let mut walk = Walk::new(self);
            if known.is_empty() {
                walk.refused(
                    "commands.line/empty",
                    "there are no words".to_owned(),
                    "they name no program",
                    "a command",
                );
            }
            walk.start(&known, &[], StartContext::direct());
            walk.settle();
            if walk.blocked.is_empty() {
                Judgement::Allowed { programs: walk.programs, shell: false }
            } else {
                Judgement::Refused(walk.blocked)
            }
        };
        if known.iter().filter_map(Word::text).any(parse::needs_stack) {
            return parse::on_stack(judged).unwrap_or_else(|| {
                let what = "the words could not be read".to_owned();
                let reason =
                    blocked("commands.line/too-big", what, "reading them took more than there was", "divide them");
                Judgement::Refused(vec![reason])
            });
        }
        judged()
    }

    /// What to execute for a line, exactly as it was judged.
    ///
    /// # Errors
    /// Why it may not run.
    pub fn launch(&self, line: &str) -> Result<ExecSpec, Vec<Blocked>> {
        match self.line(line) {
            Judgement::Refused(reasons) => Err(reasons),
            Judgement::Allowed { programs, shell: false } => self.launch_first(programs),
            Judgement::Allowed { programs, shell: true } => {
                let Some(path) = self.shell() else { return Err(vec![no_shell()]) };
                let argv = ["bash", "--noprofile", "--norc", "-c", &as_one(line)].map(str::to_owned).to_vec();
                Ok(ExecSpec { path, argv, env: environment(&programs) })
            }
        }
    }

    /// What to execute for words, exactly as they were judged.
    ///
    /// # Errors
    /// Why they may not run.
    pub fn launch_argv(&self, words: &[OsString]) -> Result<ExecSpec, Vec<Blocked>> {
        match self.argv(words) {
            Judgement::Refused(reasons) => Err(reasons),
            Judgement::Allowed { programs, shell: _ } => self.launch_first(programs),
        }
    }

    fn launch_first(&self, programs: Vec<Resolved>) -> Result<ExecSpec, Vec<Blocked>> {
        let env = environment(&programs);
        let first = programs.into_iter().next();
        first.map(|Resolved { path, argv, env: _ }| ExecSpec { path, argv, env }).ok_or_else(|| vec![no_shell()])
    }

    /// The bash that reads lines.
    #[must_use]
    pub fn shell(&self) -> Option<PathBuf> {
        self.tree.program("bash").ok().flatten().map(|found| found.path)
    }

    /// Every file that an allowed line may execute: programs, wrappers, the interpreters of those that are scripts, and
    /// what they start by themselves; for the kernel's own list. Bash is in it where lines need it.
    #[must_use]
    pub fn executables(&self, shell: bool) -> Vec<PathBuf> {
        let mut all = BTreeSet::new();
        for known in self.programs.iter().chain(&self.wrappers) {
            if let Some(found) = &known.found {
                all.extend(self.tree.chain(found));
                all.extend(known.table.helpers.iter().filter_map(|helper| self.tree.real(helper.as_ref())));
            }
        }
        if let Some(found) = self.tree.program("bash").ok().flatten().filter(|_| shell) {
            all.insert(found.real);
        }
        all.into_iter().collect()
    }

    /// Variables that every allowed program of the policy must have (those of git, say), whatever the line.
    #[must_use]
    pub fn environment(&self) -> Vec<(String, String)> {
        let mut all: Vec<(String, String)> = Vec::new();
        for (name, value) in self.programs.iter().flat_map(|known| &known.table.env) {
            if !all.iter().any(|(known, _)| known == name) {
                all.push((name.clone(), value.clone()));
            }
        }
        all
    }

    /// Legal, but probably not meant.
    #[must_use]
    pub fn lints(&self) -> &[Lint] {
        &self.lints
    }
}

/// What all programs of a line need, the first mention of a name counting.
fn environment(programs: &[Resolved]) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    for (name, value) in programs.iter().flat_map(|program| &program.env) {
        if !all.iter().any(|(known, _)| known == name) {
            all.push((name.clone(), value.clone()));
        }
    }
    all
}

fn no_shell() -> Blocked {
    let what = "the line needs bash, and there is none".to_owned();
    blocked("commands.program/not-found", what, "pipes, lists and redirections are bash's", "one plain command")
}

impl Judgement {
    /// `{decision, reasons, instead, programs, shell}`
    #[must_use]
    pub fn to_json(&self) -> Json {
        match self {
            Self::Allowed { programs, shell } => {
                let one = |program: &Resolved| {
                    let env: serde_json::Map<String, Json> =
                        program.env.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
                    json!({ "path": program.path.display().to_string(), "argv": program.argv, "env": env })
                };
                let programs: Vec<Json> = programs.iter().map(one).collect();
                json!({ "decision": "allow", "reasons": [], "instead": "", "programs": programs, "shell": shell })
            }
            Self::Refused(reasons) => {
                let one = |reason: &Blocked| {
                    let Blocked { id, what, why, instead } = reason;
                    json!({ "id": id, "what": what, "why": why, "instead": instead })
                };
                let instead = reasons.first().map(|reason| reason.instead.clone()).unwrap_or_default();
                let reasons: Vec<Json> = reasons.iter().map(one).collect();
                json!({ "decision": "deny", "reasons": reasons, "instead": instead, "programs": [], "shell": false })
            }
        }
    }
}
