//! One command: is it a word of bash, a wrapper or a program, and does it fit its table.

use policy::diagnostic::quote;

use super::block::{Block, BlockSubject};
use super::options::{self, ParsedArguments, blocked};
use super::table::{Kind, Table};
use super::walk::Walk;
use super::words::{Value, Word};
use super::{Known, Resolved, repository};
use crate::blocked::Blocked;

/// Wrappers in wrappers end here.
const MAX_WRAPPERS: usize = 4;

/// Words of bash that evaluate text, define names or change how lines are read.
const EVALUATORS: &[&str] = &[
    ".",
    "alias",
    "bg",
    "bind",
    "builtin",
    "caller",
    "compgen",
    "complete",
    "compopt",
    "declare",
    "dirs",
    "disown",
    "enable",
    "eval",
    "exec",
    "fc",
    "fg",
    "getopts",
    "hash",
    "help",
    "history",
    "jobs",
    "kill",
    "let",
    "local",
    "logout",
    "mapfile",
    "popd",
    "pushd",
    "readarray",
    "readonly",
    "return",
    "shift",
    "shopt",
    "source",
    "suspend",
    "times",
    "trap",
    "typeset",
    "ulimit",
    "umask",
    "unalias",
];

/// How a command comes to be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StartContext {
    /// By bash, whose own words come before programs.
    pub(super) shell: bool,
    /// How many wrappers stand before it.
    wrapped: usize,
    /// Whether words are added to it that nobody sees now.
    appended: bool,
    /// Whether a wrapper clears the environment.
    cleared: bool,
}

impl StartContext {
    pub(super) const fn shell() -> Self {
        Self { shell: true, wrapped: 0, appended: false, cleared: false }
    }

    pub(super) const fn direct() -> Self {
        Self { shell: false, ..Self::shell() }
    }
}

/// The words of a program as it would be executed.
pub(super) type Final = Option<Vec<String>>;

impl Walk<'_> {
    /// Judges a command; its final words, if it may run.
    pub(super) fn start(&mut self, words: &[Word], assigned: &[(String, Word)], context: StartContext) -> Final {
        let (program, rest) = words.split_first()?;
        let Some(name) = program.text().filter(|name| !name.is_empty()) else {
            let what = format!("the program {} is not written out", quote(&program.raw));
            let why = "only running tells which program it is";
            self.refused("commands.program/unproven", what, why, "the name of the program");
            return None;
        };
        if !name.is_ascii() {
            let what = format!("the program {} has other letters than ASCII", quote(&escaped(name)));
            let why = "letters that look alike are different names";
            self.refused("commands.program/unicode", what, why, "the name as the policy writes it");
            return None;
        }
        if context.shell && context.wrapped == 0 && self.own_word(name, rest) {
            return None;
        }
        let judge = self.judge;
        let data = judge.rules.data;
        if let Some(known) = judge.wrappers.iter().find(|known| known.is(name)) {
            return self.wrapper(known, name, rest, assigned, context);
        }
        if data.wrappers.contains_key(name.rsplit('/').next().unwrap_or(name)) {
            let list = judge.wrappers.iter().map(|known| format!("`{}`", known.name)).collect::<Vec<_>>().join(", ");
            let what = format!("{} runs another program", quote(name));
            let why = "only wrappers of `commands.wrappers` are judged through";
            let instead = if list.is_empty() { "the command without it".to_owned() } else { list };
            self.refuse(blocked("commands.wrapper/not-allowed", what, why, instead));
            return None;
        }
        let Some(known) = judge.programs.iter().find(|known| known.is(name)) else {
            self.refuse(not_allowed(self, name));
            return None;
        };
        self.known(known, name, rest, assigned, context)
    }

    /// Words that bash runs itself; true if it was one.
    fn own_word(&mut self, name: &str, rest: &[Word]) -> bool {
        if EVALUATORS.contains(&name) {
            let what = format!("`{name}` is a word of bash that is not allowed");
            let why = "it evaluates text, defines names, or changes how lines are read";
            self.refused("commands.builtin/evaluates", what, why, "write the commands themselves");
            return true;
        }
        let data = self.judge.rules.data;
        let asks = rest.first().and_then(Word::text).is_some_and(|word| matches!(word, "-v" | "-V"));
        if name == "command" && asks && rest.iter().all(|word| word.text().is_some()) {
            return true;
        }
        let Some(table) = data.builtins.get(name) else { return false };
        match options::parse(name, table, rest) {
            Ok(given) => {
                self.fit(name, &given);
                self.blocks(name, Some(table), rest);
                if name == "cd" {
                    self.enter(&given);
                }
            }
            Err(reason) => self.refuse(reason),
        }
        true
    }

    fn enter(&mut self, given: &ParsedArguments<'_>) {
        if self.loops > 0 {
            let what = "`cd` stands in a loop".to_owned();
            self.refused(
                "commands.path/outside",
                what,
                "where it leads depends on how often it runs",
                "cd before the loop",
            );
        }
        let target = given.checks.iter().find(|check| matches!(check.kind, Kind::Folder));
        if let Some(check) = target {
            self.folders = self.judge.rules.enter(&check.word, &self.folders);
        }
        if self.folders.len() > 64 {
            let what = "the line goes to too many folders".to_owned();
            self.refused("commands.line/too-big", what, "each is judged from each", "divide it");
        }
    }

    /// Every typed word against its type.
    fn fit(&mut self, name: &str, given: &ParsedArguments<'_>) {
        for check in &given.checks {
            self.writes |= matches!(check.kind, Kind::WritePath | Kind::PathSpec);
            if let Err(reason) = self.judge.rules.fits(name, check, &self.folders) {
                self.refuse(reason);
            }
        }
    }

    fn blocks(&mut self, name: &str, table: Option<&Table>, words: &[Word]) {
        let shallow = table.is_some_and(|table| table.shallow);
        let short = name.rsplit('/').next().unwrap_or(name);
        let started = BlockSubject { name: short, table, words, folders: &self.folders, shallow };
        let hits: Vec<Blocked> = self
            .judge
            .rules
            .blocks
            .iter()
            .filter(|block| block.hits(&started))
            .map(|block| {
                hit(block, &format!("{} {}", short, words.iter().map(Word::shown).collect::<Vec<_>>().join(" ")))
            })
            .collect();
        hits.into_iter().for_each(|reason| self.refuse(reason));
    }

    fn wrapper(
        &mut self,
        known: &Known,
        name: &str,
        rest: &[Word],
        assigned: &[(String, Word)],
        context: StartContext,
    ) -> Final {
        let given = match options::parse(name, &known.table, rest) {
            Ok(given) => given,
            Err(reason) => {
                self.refuse(reason);
                return None;
            }
        };
        if context.wrapped >= MAX_WRAPPERS {
            let what = format!("`{name}` is one wrapper too many");
            self.refused("commands.line/too-big", what, "so deep a line is not read", "fewer wrappers");
            return None;
        }
        self.fit(name, &given);
        let own = rest.len().saturating_sub(given.command.len());
        self.blocks(name, Some(&known.table), rest.get(..own).unwrap_or_default());
        let command = if known.table.appends { appended(&given) } else { given.command.clone() };
        let place = self.reserve(known, name, assigned);
        let inner = StartContext {
            shell: context.shell && known.builtin,
            wrapped: context.wrapped.saturating_add(1),
            appended: context.appended || known.table.appends,
            cleared: context.cleared || known.table.clears,
        };
        let tail = self.start(&command, &[], inner)?;
        let mut argv = vec![name.to_owned()];
        argv.extend(rest.get(..own).unwrap_or_default().iter().map(Word::shown));
        argv.extend(tail);
        self.fill(place, &argv);
        Some(argv)
    }

    fn known(
        &mut self,
        known: &Known,
        name: &str,
        rest: &[Word],
        assigned: &[(String, Word)],
        context: StartContext,
    ) -> Final {
        let given = match options::parse(name, &known.table, rest) {
            Ok(given) => given,
            Err(reason) => {
                self.refuse(reason);
                return None;
            }
        };
        if context.appended && known.table.interpreter {
            let what = format!("`{name}` would run what data says");
            self.refused(
                "commands.wrapper/interpreter",
                what,
                "the words that are added may be a program of their own",
                "a fixed command",
            );
        }
        if context.cleared && !known.table.env.is_empty() {
            let what = format!("`{name}` would run without the variables that it must have");
            self.refused(
                "commands.wrapper/environment",
                what,
                "a wrapper before it clears the environment",
                "run it without that wrapper",
            );
        }
        self.blocks(name, Some(&known.table), rest);
        self.fit(name, &given);
        self.inner(name, known, &given);
        self.whole_folders(name, &known.table, &given);
        self.writes |= known.table.interpreter;
        let asks = given.subs.is_empty() || given.subs.first().is_some_and(|sub| sub == "version");
        if known.table.repository && !asks {
            self.repository(name, &given);
        }
        let path = known.found.as_ref().map(|found| found.path.display().to_string());
        let place = self.reserve(known, name, assigned);
        let mut argv =
            vec![if context.wrapped > 0 { path.unwrap_or_else(|| name.to_owned()) } else { name.to_owned() }];
        argv.extend(rest.iter().map(Word::shown));
        let total = argv.len();
        for (behind, words) in given.inserts.iter().rev() {
            let at = total.saturating_sub(*behind).min(argv.len());
            argv.splice(at..at, words.iter().cloned());
        }
        self.fill(place, &argv);
        Some(argv)
    }

    /// Lines and modules that a program is given.
    fn inner(&mut self, name: &str, known: &Known, given: &ParsedArguments<'_>) {
        for check in given.checks.iter().filter(|check| matches!(check.kind, Kind::Line)) {
            match check.word.text() {
                // `bash -c -e LINE`: options go on behind `-c`, and the line is a later word.
                Some(line) if line.starts_with(['-', '+']) => {
                    let what = format!("the line {} of `{name}` would be an option", quote(line));
                    let why = "then another word is the line, which nobody has judged";
                    self.refused("commands.word/unproven", what, why, "options first, then -c, then the line");
                }
                Some(line) => self.nested(line),
                None => {
                    let what = format!("the line {} of `{name}` is not written out", quote(&check.word.raw));
                    self.refused(
                        "commands.word/unproven",
                        what,
                        "only running tells what it is",
                        "a line between single quotes",
                    );
                }
            }
        }
        let Some((module, words)) = &given.module else { return };
        let listed = known.table.modules.iter().any(|listed| listed == module);
        let table = self.judge.rules.data.programs.get(module).filter(|_| listed);
        let Some(shipped) = table else {
            let what = format!("the module {} of `{name}` is not allowed", quote(module));
            let instead = known.table.modules.join(", ");
            return self.refuse(blocked("commands.argument/module", what, "a module is a program of its own", instead));
        };
        let program = format!("{name} -m {module}");
        match options::parse(&program, &shipped.workspace, words) {
            Ok(given) => {
                self.fit(&program, &given);
                self.blocks(module, Some(&shipped.workspace), words);
            }
            Err(reason) => self.refuse(reason),
        }
    }

    /// What a program does below the folders that it is given, where their names alone do not tell.
    fn whole_folders(&mut self, name: &str, table: &Table, given: &ParsedArguments<'_>) {
        let rules = &self.judge.rules;
        let mut wrong = Vec::new();
        if given.writes_all && !rules.writes_all() {
            let sub = given.subs.join(" ");
            let what = format!("`{name} {sub}` may write any file of the workspace");
            let why = "`commands.write` has only parts of it";
            wrong.push(blocked("commands.write/outside", what, why, "write = [\".\"], if that is meant"));
        }
        let sources = || given.checks.iter().filter(|check| check.operand && matches!(check.kind, Kind::Path));
        let follows = |flag: &String| flag == "*" || given.has(flag);
        if table.follows.iter().any(follows) && !given.has("--no-dereference") {
            wrong.extend(sources().filter_map(|check| rules.read_below(name, &check.word, &self.folders).err()));
        }
        if table.into {
            let names: Vec<Option<String>> =
                sources().flat_map(|check| rules.names_of(&check.word, &self.folders)).collect();
            let targets = given.checks.iter().filter(|check| matches!(check.kind, Kind::WritePath));
            let deep = given.has("-r");
            let put = |check: &options::Check<'_>| rules.put_into(name, &check.word, &names, &self.folders, deep).err();
            wrong.extend(targets.filter_map(put));
        }
        wrong.into_iter().for_each(|reason| self.refuse(reason));
    }

    /// Where git would look for a repository; judged when the line is known.
    fn repository(&mut self, name: &str, given: &ParsedArguments<'_>) {
        let moved = given.checks.iter().filter(|check| matches!(check.kind, Kind::Inside) && !check.operand);
        let mut folders = self.folders.clone();
        for check in moved {
            folders = self.judge.rules.enter(&check.word, &folders);
        }
        self.repositories.push((name.to_owned(), folders));
    }

    /// What can be told only when all of the line is known: whether git may look at the repositories that it would find.
    pub(super) fn settle(&mut self) {
        let places = &self.judge.rules.places;
        let Some(root) = places.outside(&self.judge.rules.root) else { return };
        let mut wrong = Vec::new();
        for (name, folders) in &self.repositories {
            let leads = |folder: &std::path::PathBuf| places.real(folder).and_then(|real| places.outside(&real));
            let unfit = folders.iter().find_map(|folder| match leads(folder) {
                Some(folder) => repository::unfit(&root, &folder, self.writes),
                None => Some(repository::Unfit::Elsewhere(format!("the links of `{}` have no end", folder.display()))),
            });
            wrong.extend(unfit.map(|unfit| unfit.told(name)));
        }
        wrong.into_iter().for_each(|reason| self.refuse(reason));
    }

    /// Keeps the place of a program in the order of the line.
    fn reserve(&mut self, known: &Known, name: &str, assigned: &[(String, Word)]) -> usize {
        let Some(found) = &known.found else {
            let why = known
                .missing
                .clone()
                .unwrap_or_else(|| "no file of this name is on the system's own path list".to_owned());
            let what = format!("the program {} is not there", quote(name));
            self.refuse(blocked("commands.program/not-found", what, why, "install it, or name another program"));
            return usize::MAX;
        };
        let mut env = known.table.env.clone();
        env.extend(assigned.iter().map(|(name, value)| (name.clone(), value.shown())));
        self.programs.push(Resolved { path: found.path.clone(), argv: Vec::new(), env });
        self.programs.len().saturating_sub(1)
    }

    fn fill(&mut self, place: usize, argv: &[String]) {
        if let Some(program) = self.programs.get_mut(place) {
            program.argv = argv.to_vec();
        }
    }
}

/// What `xargs` makes of a command: words at its end that nobody knows, or in the places of a mark.
fn appended(given: &ParsedArguments<'_>) -> Vec<Word> {
    let mut command = given.command.clone();
    match given.value_of("-I") {
        Some(mark) => {
            for word in &mut command {
                let at = word
                    .text()
                    .and_then(|text| text.find(&mark).map(|at| text.get(..at).unwrap_or_default().to_owned()));
                if let Some(head) = at {
                    word.value = Value::One(head);
                }
            }
        }
        None => command.push(Word { raw: "(words from its input)".to_owned(), value: Value::Many }),
    }
    command
}

/// A pattern of `block` that a command fits.
pub(super) fn hit(block: &Block, what: &str) -> Blocked {
    let what = format!("{} is blocked", quote(what));
    blocked("commands.block/matched", what, format!("`commands.block` has `{}`", block.text), "another command")
}

fn not_allowed(walk: &Walk<'_>, name: &str) -> Blocked {
    let programs = &walk.judge.programs;
    let short = name.rsplit('/').next().unwrap_or(name);
    if let Some(known) = programs.iter().find(|known| known.name == short && name.contains('/')) {
        let what = format!("{} is not the program `{}`", quote(name), known.name);
        let why = "a name means the system's own path list, and a file of that name elsewhere is something else";
        return blocked("commands.program/elsewhere", what, why, format!("`{}`", known.name));
    }
    let names = || programs.iter().map(|known| known.name.as_str());
    let what = format!("the program {} is not allowed", quote(name));
    let why = "`commands` is a list of what may run, and it is not on it";
    let instead = match policy::diagnostic::did_you_mean(name, names()) {
        Some(near) => format!("`{near}`"),
        None => few(programs.iter().filter(|known| known.found.is_some()).map(|known| known.name.as_str())),
    };
    blocked("commands.program/not-allowed", what, why, instead)
}

/// The first names of a list, and how many more there are.
fn few<'a>(names: impl Iterator<Item = &'a str>) -> String {
    const SHOWN: usize = 12;
    let all: Vec<&str> = names.collect();
    let shown: Vec<String> = all.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    match all.len().saturating_sub(SHOWN) {
        0 if shown.is_empty() => "nothing: none of the listed programs is there".to_owned(),
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Letters that are no ASCII, by number.
fn escaped(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii() { c.to_string() } else { c.escape_unicode().to_string() }).collect()
}
