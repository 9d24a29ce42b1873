//! From the policy's table to a judge: tables chosen, programs found, mistakes told at their places.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use policy::commands::{Commands, Program, ProgramArgs};
use policy::diagnostic::{Diagnostic, Diagnostics, SourceLocation, did_you_mean, quote};
use policy::span::{Documents, Span, Spanned};
use policy::{ClauseId, Lint};

use super::argument_rules::{ArgumentRules, tidy};
use super::block::Block;
use super::lints::too_wide;
use super::places::Places;
use super::resolve::Tree;
use super::table::{Args, DATA, Data, Shipped, Table, from_rules};
use super::{Judge, JudgeOptions, Known};
use crate::control_files::ControlFiles;

impl Judge {
    /// Compiles the tables that the policy names and resolves their programs.
    ///
    /// # Errors
    /// Names without a table, wrappers among programs, and variables that run code, each at its place.
    pub fn new(commands: &Commands, documents: &Documents, options: JudgeOptions) -> Result<Self, Diagnostics> {
        let data = match &*DATA {
            Ok(data) => data,
            Err(why) => return Err(broken(why)),
        };
        let mut compiler = Compiler { data, documents, mistakes: Vec::new(), lints: Vec::new() };
        let tables = compiler.programs(commands);
        let wrappers = compiler.wrappers(commands);
        let env = compiler.variables(commands);
        let JudgeOptions { root: base, inspect, tree } = options;
        let tree = Tree::new(&tree);
        let root = tidy(&base);
        let write: Vec<PathBuf> = commands.write.iter().map(|folder| tidy(&base.join(&folder.value))).collect();
        let read = match &commands.read {
            Some(read) => read.iter().map(|path| tidy(&base.join(&path.value))).collect(),
            None => std::iter::once(root.clone()).chain(commands.granted.iter().cloned()).collect::<Vec<_>>(),
        };
        compiler.lint_reads(commands);
        let places = Places::new(&root, inspect.as_deref());
        let rules = ArgumentRules {
            // What may be written may be read.
            read: read.into_iter().chain(write.iter().cloned()).collect(),
            root,
            places,
            write,
            env,
            control_files: ControlFiles::of(documents),
            blocks: commands.block.iter().map(|block| Block::new(&block.value)).collect(),
            data,
        };
        if tables.is_empty() {
            compiler.lint(
                "commands/empty",
                String::new(),
                "`commands` lists no program".to_owned(),
                "every line is refused",
                "list what may run",
            );
        }
        if !compiler.mistakes.is_empty() {
            return Err(Diagnostics { list: compiler.mistakes });
        }
        let known = |(name, table): (String, Arc<Table>)| find(&tree, name, table, data);
        let programs: Vec<Known> = tables.into_iter().map(known).collect();
        let wrappers: Vec<Known> = wrappers.into_iter().map(known).collect();
        Ok(Self { rules, programs, wrappers, lints: compiler.lints, tree })
    }
}

/// Looks a program up, once.
fn find(tree: &Tree, name: String, table: Arc<Table>, data: &Data) -> Known {
    let (found, missing) = match tree.program(&name) {
        Ok(found) => (found, None),
        Err(why) => (None, Some(why)),
    };
    let shim = found.as_ref().and_then(|found| shim(&name, &found.real));
    let (found, missing) = if shim.is_some() { (None, shim) } else { (found, missing) };
    let mut paths = Vec::new();
    if let Some(found) = &found {
        paths.push(found.path.display().to_string());
        if !name.contains('/') {
            let same = |path: &String| tree.real(path.as_ref()).as_ref() == Some(&found.real);
            paths.extend(super::PATH.iter().map(|folder| format!("{folder}/{name}")).filter(same));
        }
    }
    let builtin = data.shell_wrappers.contains(&name);
    Known { name, paths, table, found, missing, builtin }
}

/// Programs that start another one in the place of the name under which they are called, chosen by files of the workspace.
fn shim(name: &str, real: &Path) -> Option<String> {
    const SHIMS: &[&str] = &["asdf", "mise", "pyenv", "rbenv", "rustup", "rustup-init", "volta-shim"];
    let real = real.file_name()?.to_str()?;
    let other = SHIMS.contains(&real) && !name.ends_with(real);
    other.then(|| format!("it is `{real}`, which starts what files of the workspace name"))
}

fn broken(why: &str) -> Diagnostics {
    let at = SourceLocation { name: "the shipped tables".to_owned(), line_column: None, excerpt: String::new() };
    let fix = "this is a fault of fumehood: please report it";
    Diagnostics { list: vec![mistake("commands/data", "the shipped tables cannot be read".to_owned(), at, why, fix)] }
}

fn mistake(id: &str, what: String, at: SourceLocation, why: &str, fix: &str) -> Diagnostic {
    let clause = Some(ClauseId::Commands);
    Diagnostic { id: id.to_owned(), clause, what, at, why: why.to_owned(), fix: fix.to_owned() }
}

struct Compiler<'a> {
    data: &'static Data,
    documents: &'a Documents,
    mistakes: Vec<Diagnostic>,
    lints: Vec<Lint>,
}

impl Compiler<'_> {
    fn wrong(&mut self, id: &str, spot: Span, what: String, why: &str, fix: &str) {
        let at = self.documents.locate(spot);
        self.mistakes.push(mistake(id, what, at, why, fix));
    }

    fn lint(&mut self, id: &'static str, at: String, what: String, why: &str, fix: &str) {
        let (why, fix) = (why.to_owned(), fix.to_owned());
        self.lints.push(Lint { id, clause: ClauseId::Commands, what, at, why, fix });
    }

    /// What the policy lists itself counts before what a preset says of the same program; of two presets the harmless.
    fn programs(&mut self, commands: &Commands) -> BTreeMap<String, Arc<Table>> {
        let mut all: BTreeMap<String, (bool, Arc<Table>)> = BTreeMap::new();
        for Spanned { value: name, at } in &commands.presets {
            let Some(preset) = self.data.presets.get(name) else {
                let what = format!("{} is no preset of commands", quote(name));
                self.wrong(
                    "commands/preset",
                    *at,
                    what,
                    "presets ship with fumehood",
                    "git-readonly, python-dev or inspect",
                );
                continue;
            };
            for (program, args) in &preset.programs {
                let Some(Shipped { read_only, workspace }) = self.data.programs.get(program) else { continue };
                let (harmless, table) = match (args, read_only) {
                    (Args::ReadOnly, Some(table)) => (true, table),
                    (Args::ReadOnly, None) => continue,
                    (Args::Workspace, _) => (false, workspace),
                };
                let entry = all.entry(program.clone()).or_insert_with(|| (harmless, table.clone()));
                if harmless {
                    *entry = (true, table.clone());
                }
            }
        }
        for Spanned { value: program, at } in &commands.programs {
            if let Some(table) = self.table(program, *at) {
                all.insert(program.name.clone(), (false, table));
            }
        }
        all.into_iter().map(|(name, (_, table))| (name, table)).collect()
    }

    fn table(&mut self, program: &Program, at: Span) -> Option<Arc<Table>> {
        let short = program.name.rsplit('/').next().unwrap_or(&program.name);
        if self.data.wrappers.contains_key(short) {
            let what = format!("{} is listed as a program", quote(&program.name));
            let why = "it runs another program, and what it runs must be judged";
            self.wrong("commands/wrapper", at, what, why, &format!("wrappers = [\"{short}\"]"));
            return None;
        }
        let shipped = self.data.programs.get(short);
        let (found, word) = match &program.args {
            ProgramArgs::Rules(rules) => {
                let made = match from_rules(rules) {
                    Ok(made) => made,
                    Err(why) => {
                        self.wrong(
                            "commands/flag",
                            at,
                            format!("a rule of {} cannot be used", quote(short)),
                            &why,
                            "correct it",
                        );
                        return None;
                    }
                };
                self.lint_rules(short, at, &made, shipped);
                return Some(Arc::new(made));
            }
            ProgramArgs::Workspace => (shipped.map(|shipped| shipped.workspace.clone()), "workspace"),
            ProgramArgs::ReadOnly => (shipped.and_then(|shipped| shipped.read_only.clone()), "read-only"),
        };
        if found.is_none() {
            let what = format!("{} has no table for args = \"{word}\"", quote(&program.name));
            let near = did_you_mean(short, self.data.programs.keys().map(String::as_str)).filter(|near| *near != short);
            let (why, fix) = match (shipped, near) {
                (Some(_), _) => (
                    "it has no harmless form: it writes, or runs what it is given",
                    "args = \"workspace\", or rules".to_owned(),
                ),
                (None, Some(near)) => {
                    ("fumehood ships no table for it", format!("did you mean `{near}`? else write rules"))
                }
                (None, None) => (
                    "fumehood ships no table for it",
                    "write rules: args = [{ flags = [\"-l\"], positional = \"path\" }]".to_owned(),
                ),
            };
            self.wrong("commands/no-table", at, what, why, &fix);
        }
        found
    }

    fn lint_rules(&mut self, name: &str, at: Span, made: &Table, shipped: Option<&Shipped>) {
        let interprets = shipped.is_some_and(|shipped| shipped.workspace.interpreter);
        if let Some(how) = too_wide(name, interprets, made) {
            let what = format!("{} {how}", quote(name));
            let why = "it runs what it is given, so the rule allows everything that the sandbox does";
            let fix = "name scripts by a pattern, or use args = \"workspace\"";
            self.lint("commands/interpreter", self.documents.locate(at).to_string(), what, why, fix);
        }
    }

    /// What is dangerous to grant is dangerous to let a tool without a sandbox read.
    fn lint_reads(&mut self, commands: &Commands) {
        // The folder of a guard is read where nothing else is said.
        let given = commands.read.as_ref().map_or_else(|| commands.root.as_slice(), Vec::as_slice);
        for Spanned { value: path, at } in given {
            if let Some(why) = policy::danger::why(path, None, &[]).filter(|_| path.is_absolute()) {
                let what = format!("`read` has {}", quote(&path.to_string_lossy()));
                let why = format!("{why}; a program that only reads shows it to whoever asks");
                self.lint("commands/wide-read", self.documents.locate(*at).to_string(), what, &why, "name less");
            }
        }
    }

    fn wrappers(&mut self, commands: &Commands) -> BTreeMap<String, Arc<Table>> {
        let mut all = BTreeMap::new();
        let presets = commands.presets.iter().filter_map(|preset| self.data.presets.get(&preset.value));
        for name in presets.flat_map(|preset| &preset.wrappers) {
            if let Some(table) = self.data.wrappers.get(name) {
                all.insert(name.clone(), table.clone());
            }
        }
        for Spanned { value: name, at } in &commands.wrappers {
            if let Some(table) = self.data.wrappers.get(name) {
                all.insert(name.clone(), table.clone());
                continue;
            }
            let known: Vec<&str> = self.data.wrappers.keys().map(String::as_str).collect();
            let fix = match did_you_mean(name, known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("wrappers are {}", known.join(", ")),
            };
            let what = format!("{} is no wrapper that can be judged through", quote(name));
            self.wrong("commands/wrapper", *at, what, "how it finds the command that it runs must be known", &fix);
        }
        all
    }

    fn variables(&mut self, commands: &Commands) -> BTreeSet<String> {
        let mut all = BTreeSet::new();
        for Spanned { value: name, at } in &commands.env {
            if self.data.is_never(name) {
                let what = format!("the variable {} may not be let through", quote(name));
                let why = "it makes programs run other code, or lines mean something else";
                self.wrong(
                    "commands/variable",
                    *at,
                    what,
                    why,
                    "take it out; `env.set` of the policy sets it for the whole run",
                );
            } else {
                all.insert(name.clone());
            }
        }
        all
    }
}
