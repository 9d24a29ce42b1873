//! Words against the option table of a program: which are options, which their values, which operands.
//!
//! The same rules as the programs' own parsers: bundled and joined short options, `--name=value`, `--`. Abbreviated long options
//! are refused, since what they stand for depends on options that a table does not list.

use super::table::{Flag, Kind, Style, Table};
use super::words::{Value, Word};
use crate::blocked::Blocked;
use policy::diagnostic::{did_you_mean, quote};

/// A word and what it must be.
#[derive(Clone, Debug)]
pub(super) struct Check<'t> {
    pub(super) word: Word,
    pub(super) kind: &'t Kind,
    /// For messages: `the value of `-n``.
    pub(super) role: String,
    /// Whether it is an operand of the program.
    pub(super) operand: bool,
}

/// What a program was given.
#[derive(Clone, Debug, Default)]
pub(super) struct ParsedArguments<'t> {
    /// Sub-commands, outermost first.
    pub(super) subs: Vec<String>,
    /// Options by their first spelling.
    pub(super) flags: Vec<String>,
    /// Words with a type.
    pub(super) checks: Vec<Check<'t>>,
    /// The command that it runs.
    pub(super) command: Vec<Word>,
    /// Whether it writes wherever it likes in the workspace.
    pub(super) writes_all: bool,
    /// The module that it runs, and what that is given.
    pub(super) module: Option<(String, Vec<Word>)>,
    /// Values of options that are written out, by the option's first spelling.
    values: Vec<(String, String)>,
    /// Words that are put in, and how many of the program's own words stand behind them.
    pub(super) inserts: Vec<(usize, &'t [String])>,
}

impl ParsedArguments<'_> {
    pub(super) fn has(&self, name: &str) -> bool {
        self.flags.iter().any(|flag| flag == name)
    }

    /// The last value of an option.
    pub(super) fn value_of(&self, name: &str) -> Option<String> {
        self.values.iter().rev().find(|(flag, _)| flag == name).map(|(_, value)| value.clone())
    }
}

pub(super) fn blocked(id: &'static str, what: String, why: impl Into<String>, instead: impl Into<String>) -> Blocked {
    Blocked { id, what, why: why.into(), instead: instead.into() }
}

/// Sorts the words that follow `program`.
pub(super) fn parse<'t>(program: &str, table: &'t Table, words: &[Word]) -> Result<ParsedArguments<'t>, Blocked> {
    if reads_responses(program)
        && let Some(word) = words.iter().find(|word| may_be_response(word))
    {
        return Err(response(program, word));
    }
    let plus = is_shell(program);
    let mut parser =
        Parser { program, table, given: ParsedArguments::default(), operands: Vec::new(), ended: false, plus };
    parser.given.writes_all = table.writes_all;
    if !table.insert.is_empty() {
        parser.given.inserts.push((words.len(), &table.insert));
    }
    match table.style {
        Style::Raw => parser.operands = words.to_vec(),
        Style::Find => parser.find(words)?,
        Style::Test => super::expressions::test(program, words, &mut parser.given)?,
        Style::Gnu | Style::Posix => parser.options(words)?,
    }
    parser.finish()
}

/// `--name=`: whatever follows is the value of that option, also where a pattern becomes several words.
fn joined(head: &str) -> bool {
    head.starts_with("--") && head.contains('=')
}

/// Shells, for which `+e` is an option as `-e` is, and `+c LINE` the same as `-c LINE`.
fn is_shell(program: &str) -> bool {
    let short = program.rsplit('/').next().unwrap_or(program);
    let plain = short.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-'));
    matches!(plain, "ash" | "bash" | "dash" | "ksh" | "lksh" | "mksh" | "rbash" | "rksh" | "sh" | "yash" | "zsh")
}

/// Programs for which `@FILE` is the words that stand in that file, options among them, wherever it stands: also behind `--` and
/// as the value of an option.
const RESPONSES: &[&str] = &[
    // GNU binutils, and what LLVM has of the same names.
    "addr2line",
    "ar",
    "as",
    "c++filt",
    "cxxfilt",
    "dlltool",
    "dwp",
    "elfedit",
    "gold",
    "gprof",
    "ld",
    "lld",
    "mold",
    "nm",
    "objcopy",
    "objdump",
    "ranlib",
    "readelf",
    "size",
    "strings",
    "strip",
    "symbolizer",
    "windmc",
    "windres",
    // Compilers and what belongs to them.
    "c++",
    "cc",
    "cl",
    "clang",
    "clang++",
    "cpp",
    "emcc",
    "flang",
    "g++",
    "gcc",
    "gccgo",
    "gdc",
    "gfortran",
    "ghc",
    "gnat",
    "kotlinc",
    "ldc",
    "protoc",
    "rustc",
    "rustdoc",
    "scalac",
    "swiftc",
    "zig",
    // Java's.
    "jar",
    "java",
    "javac",
    "javadoc",
    "jdeps",
    "jlink",
    "jpackage",
    // Python's: argparse with a prefix for files.
    "mypy",
    "py.test",
    "pylint",
    "pytest",
    "ruff",
    // Archives and pictures.
    "7z",
    "7za",
    "7zr",
    "composite",
    "convert",
    "identify",
    "magick",
    "mogrify",
    "montage",
    "rar",
    "unrar",
];

/// Whether a program is one of them: `strings`, `/usr/bin/gcc-12`, `x86_64-linux-gnu-ld.bfd`, `python3 -m pytest`.
fn reads_responses(program: &str) -> bool {
    let short = program.rsplit(['/', ' ']).next().unwrap_or(program);
    let plain = short.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-'));
    let own = plain.rsplit('-').next().unwrap_or(plain);
    let kind = own.split('.').next().unwrap_or(own);
    [short, plain, own, kind].iter().any(|name| RESPONSES.contains(name))
}

/// Whether a word could begin with `@` when the program gets it.
fn may_be_response(word: &Word) -> bool {
    let head = word.head();
    match &word.value {
        Value::Literal(text) => text.starts_with('@'),
        Value::One(_) | Value::Glob(_) => head.is_empty() || head.starts_with('@'),
        Value::Many => true,
    }
}

fn response(program: &str, word: &Word) -> Blocked {
    let shown = quote(&word.shown());
    let (id, what) = match word.text() {
        Some(_) => ("commands.argument/type", format!("`{program}` would read its words from {shown}")),
        None => ("commands.word/unproven", format!("{shown} of `{program}` could begin with `@`")),
    };
    let why = "`@FILE` stands for the words in that file: options that nobody judged, and a file that is read";
    blocked(id, what, why, "the words themselves; a file whose name begins so is `./@name`")
}

struct Parser<'t, 'p> {
    program: &'p str,
    table: &'t Table,
    given: ParsedArguments<'t>,
    operands: Vec<Word>,
    ended: bool,
    /// Whether `+` begins an option too.
    plus: bool,
}

impl<'t> Parser<'t, '_> {
    fn options(&mut self, words: &[Word]) -> Result<(), Blocked> {
        let mut at = 0_usize;
        while let Some(word) = words.get(at) {
            at = at.saturating_add(1);
            if self.ended || !self.may_be_option(word)? {
                if self.operand(word, words.get(at..).unwrap_or_default())? {
                    return Ok(());
                }
                continue;
            }
            let text = match &word.value {
                Value::Literal(text) => text.clone(),
                Value::One(_) | Value::Glob(_) if joined(&word.head()) => {
                    self.joined_unknown(word, &word.head())?;
                    continue;
                }
                Value::One(_) | Value::Glob(_) | Value::Many => return Err(self.unproven(word)),
            };
            if text == "--" {
                self.ended = true;
            } else if text.starts_with("--") {
                at = at.saturating_add(self.long(&text, words.get(at))?);
            } else {
                at = at.saturating_add(self.short(&text, words.get(at))?);
            }
            if self.given.module.is_some() {
                self.module(words.get(at..).unwrap_or_default());
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whether the program would take it for an option.
    fn may_be_option(&self, word: &Word) -> Result<bool, Blocked> {
        let head = word.head();
        match &word.value {
            // A shell passes over `+` alone and reads on.
            Value::Literal(text) => Ok(text.len() > 1 && text.starts_with('-') || self.plus && text.starts_with('+')),
            Value::One(_) | Value::Glob(_) if !head.is_empty() => {
                Ok(head.starts_with('-') || self.plus && head.starts_with('+'))
            }
            Value::One(_) | Value::Glob(_) | Value::Many => Err(self.unproven(word)),
        }
    }

    fn unproven(&self, word: &Word) -> Blocked {
        blocked(
            "commands.word/unproven",
            format!("{} of `{}` could become an option", quote(&word.raw), self.program),
            "only running tells what it becomes, and a file or a value may begin with `-`",
            "write the word out, or put `--` before it, or begin it with `./`",
        )
    }

    /// Takes an operand; true if all further words belong to it.
    fn operand(&mut self, word: &Word, rest: &[Word]) -> Result<bool, Blocked> {
        if !self.table.subs.is_empty() {
            return self.sub(word, rest).map(|()| true);
        }
        if self.table.command && self.operands.len() >= self.lead().len() {
            let assigns = |text: &str| text.split_once('=').is_some_and(|(name, _)| !name.is_empty());
            if self.table.assignments && word.text().is_some_and(assigns) {
                self.check(word, &Kind::Assignment, "an assignment".to_owned(), false);
                self.ended = true;
                return Ok(false);
            }
            self.given.command = std::iter::once(word).chain(rest).cloned().collect();
            return Ok(true);
        }
        if self.table.style == Style::Posix {
            self.operands.push(word.clone());
            // A command may still follow: then options of the wrapper are over, and its leading operands go on.
            self.ended = true;
            return Ok(false);
        }
        self.operands.push(word.clone());
        Ok(false)
    }

    fn sub(&mut self, word: &Word, rest: &[Word]) -> Result<(), Blocked> {
        let known = || self.table.subs.keys().map(String::as_str);
        let names = || known().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let Some(text) = word.text() else {
            let what = format!("the sub-command {} of `{}` is not written out", quote(&word.raw), self.program);
            return Err(blocked("commands.word/unproven", what, "only running tells what it becomes", names()));
        };
        let Some((name, table)) = self.table.subs.get_key_value(text) else {
            let what = format!("`{} {text}` is not allowed", self.program);
            let why = "its table lists the sub-commands that may be used, and every other is refused";
            let instead = did_you_mean(text, known()).map_or_else(names, |near| format!("`{} {near}`", self.program));
            return Err(blocked("commands.argument/sub-command", what, why, instead));
        };
        let program = format!("{} {name}", self.program);
        let below = parse(&program, table, rest)?;
        self.given.subs.push(name.clone());
        self.given.subs.extend(below.subs);
        self.given.flags.extend(below.flags);
        self.given.checks.extend(below.checks);
        self.given.inserts.extend(below.inserts);
        self.given.command = below.command;
        self.given.writes_all |= below.writes_all;
        Ok(())
    }

    fn long(&mut self, text: &str, next: Option<&Word>) -> Result<usize, Blocked> {
        let (name, joined) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        let flag = self.find_flag(name)?;
        match (&flag.value, joined) {
            (None, None) => self.flag(flag),
            (None, Some(_)) => return Err(self.needless(name)),
            (Some(kind), Some(value)) => {
                self.flag(flag);
                self.value(flag, kind, name, &Word::literal(value));
            }
            (Some(_), None) if flag.optional => self.flag(flag),
            (Some(kind), None) => return self.next_value(flag, kind, name, next),
        }
        Ok(0)
    }

    /// `-abc`, `-n5`, `-n 5`, `-5`.
    fn short(&mut self, text: &str, next: Option<&Word>) -> Result<usize, Blocked> {
        // Options of more than one letter behind one dash (`-vv`) stand for themselves.
        if let Some(flag) = self.table.flags.iter().find(|flag| flag.names.iter().any(|name| name == text)) {
            match &flag.value {
                None => self.flag(flag),
                Some(_) if flag.optional => self.flag(flag),
                Some(kind) => return self.next_value(flag, kind, text, next),
            }
            return Ok(0);
        }
        let letters = text.strip_prefix(['-', '+']).unwrap_or(text);
        if letters.is_empty() {
            self.find_flag(text)?;
        }
        if self.table.digits && letters.chars().all(|c| c.is_ascii_digit()) {
            self.given.flags.push("-#".to_owned());
            return Ok(0);
        }
        let mut rest = letters.chars();
        while let Some(letter) = rest.next() {
            let name = format!("-{letter}");
            let flag = self.find_flag(&name)?;
            let tail = rest.as_str();
            match &flag.value {
                None => self.flag(flag),
                Some(_) if tail.is_empty() && flag.optional => self.flag(flag),
                Some(kind) if tail.is_empty() => return self.next_value(flag, kind, &name, next),
                Some(Kind::Line) => return Err(self.needless(&name)),
                Some(kind) => {
                    self.flag(flag);
                    self.value(flag, kind, &name, &Word::literal(tail));
                    return Ok(0);
                }
            }
        }
        Ok(0)
    }

    /// `--name="$x"`: the option is known, its value is one word.
    fn joined_unknown(&mut self, word: &Word, head: &str) -> Result<(), Blocked> {
        let (name, start) = head.split_once('=').unwrap_or((head, ""));
        let flag = self.find_flag(name)?;
        let Some(kind) = &flag.value else { return Err(self.needless(name)) };
        self.flag(flag);
        let value = Word { raw: word.raw.clone(), value: Value::One(start.to_owned()) };
        self.check(&value, kind, format!("the value of `{name}`"), false);
        Ok(())
    }

    fn next_value(
        &mut self,
        flag: &'t Flag,
        kind: &'t Kind,
        name: &str,
        next: Option<&Word>,
    ) -> Result<usize, Blocked> {
        self.flag(flag);
        let one = |word: &&Word| matches!(word.value, Value::Literal(_) | Value::One(_));
        let Some(word) = next.filter(one) else {
            let what = format!("`{name}` of `{}` has no value that is one word", self.program);
            let why = "what follows it may become no word, or several";
            return Err(blocked("commands.argument/value", what, why, kind.wanted()));
        };
        self.value(flag, kind, name, word);
        Ok(1)
    }

    fn value(&mut self, flag: &Flag, kind: &'t Kind, name: &str, word: &Word) {
        if let Some(text) = word.text() {
            self.given.values.push((flag.name().to_owned(), text.to_owned()));
        }
        if matches!(kind, Kind::Module) {
            self.given.module = Some((word.text().unwrap_or_default().to_owned(), Vec::new()));
        }
        self.check(word, kind, format!("the value of `{name}`"), false);
    }

    fn module(&mut self, rest: &[Word]) {
        if let Some((_, words)) = &mut self.given.module {
            *words = rest.to_vec();
        }
    }

    fn find_flag(&self, name: &str) -> Result<&'t Flag, Blocked> {
        let all = || self.table.flags.iter().flat_map(|flag| flag.names.iter());
        if let Some(flag) = self.table.flags.iter().find(|flag| flag.names.iter().any(|known| known == name)) {
            return Ok(flag);
        }
        let begun: Vec<&str> =
            all().filter(|known| name.starts_with("--") && known.starts_with(name)).map(String::as_str).collect();
        let what = format!("{} of `{}` is not allowed", quote(name), self.program);
        if let [full] = begun.as_slice() {
            let why = "an abbreviation may stand for an option that is not listed";
            return Err(blocked("commands.argument/flag", what, why, format!("write `{full}`")));
        }
        let instead = match did_you_mean(name, all().map(String::as_str)) {
            Some(near) => format!("`{near}`"),
            None if self.table.flags.is_empty() => "no option".to_owned(),
            None => self.table.flags.iter().map(|flag| format!("`{}`", flag.name())).collect::<Vec<_>>().join(", "),
        };
        let why = "only listed options are known neither to write nor to start anything";
        Err(blocked("commands.argument/flag", what, why, instead))
    }

    fn needless(&self, name: &str) -> Blocked {
        let what = format!("`{name}` of `{}` has a joined value", self.program);
        blocked("commands.argument/value", what, "the program would read it otherwise", format!("write `{name}` alone"))
    }

    fn flag(&mut self, flag: &Flag) {
        self.given.flags.push(flag.name().to_owned());
    }

    fn check(&mut self, word: &Word, kind: &'t Kind, role: String, operand: bool) {
        self.given.checks.push(Check { word: word.clone(), kind, role, operand });
    }

    fn lead(&self) -> &'t [Kind] {
        if self.table.lead_unless.iter().any(|flag| self.given.has(flag)) { &[] } else { &self.table.lead }
    }

    fn finish(mut self) -> Result<ParsedArguments<'t>, Blocked> {
        let operands = std::mem::take(&mut self.operands);
        self.counts(&operands)?;
        let lead = self.lead();
        let last_at = match &self.table.last {
            Some(_) if self.table.last_unless.iter().any(|flag| self.given.has(flag)) => None,
            Some(_) => operands.len().checked_sub(1),
            None => None,
        };
        for (at, word) in operands.iter().enumerate() {
            let first = lead.get(at);
            let is_last = last_at == Some(at);
            let single = matches!(word.value, Value::Literal(_) | Value::One(_));
            if !single && (at < lead.len() || is_last || self.table.most.is_some()) {
                return Err(blocked(
                    "commands.word/unproven",
                    format!("{} of `{}` may become several words", quote(&word.raw), self.program),
                    "the place of a word decides what the program does with it",
                    "write the words out",
                ));
            }
            let kind = match (first, is_last, &self.table.last) {
                (_, true, Some(last)) => last,
                (Some(kind), _, _) => kind,
                (None, _, _) if self.table.lists_with.iter().any(|flag| self.given.has(flag)) => &Kind::Any,
                (None, _, _) => self.table.positional.as_ref().unwrap_or(&Kind::None),
            };
            let kind = if self.rewrites() && matches!(kind, Kind::Path) { &Kind::WritePath } else { kind };
            self.check(word, kind, format!("operand {}", quote(&word.raw)), true);
        }
        Ok(self.given)
    }

    fn rewrites(&self) -> bool {
        self.table.rewrites.iter().any(|flag| self.given.has(flag))
    }

    fn counts(&self, operands: &[Word]) -> Result<(), Blocked> {
        let table = self.table;
        let wrong = |what: String, instead: String| {
            Err(blocked(
                "commands.argument/count",
                what,
                "the words that are missing or too many decide what it does",
                instead,
            ))
        };
        let asks = ["--version", "-V", "-h", "--help"].iter().any(|flag| self.given.has(flag));
        if !table.subs.is_empty() && self.given.subs.is_empty() && !asks {
            let names = table.subs.keys().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            return wrong(format!("`{}` has no sub-command", self.program), names);
        }
        if table.needs_flag && self.given.flags.is_empty() {
            let flags = table.flags.iter().map(|flag| format!("`{}`", flag.name())).collect::<Vec<_>>().join(", ");
            return wrong(format!("`{}` has no flag, and would run what it is given", self.program), flags);
        }
        if table.command && self.given.command.is_empty() {
            return wrong(format!("`{}` has no command to run", self.program), "name the command".to_owned());
        }
        let least = if asks || table.least_unless.iter().any(|flag| self.given.has(flag)) { 0 } else { table.least };
        if operands.len() < least {
            return wrong(format!("`{}` has fewer than {least} operands", self.program), "name them".to_owned());
        }
        if let Some(most) = table.most.filter(|most| operands.len() > *most) {
            return wrong(format!("`{}` has more than {most} operands", self.program), format!("at most {most}"));
        }
        Ok(())
    }

    fn find(&mut self, words: &[Word]) -> Result<(), Blocked> {
        let mut words = words.iter().peekable();
        while let Some(word) = words.next_if(|word| matches!(word.text(), Some("-H" | "-P"))) {
            self.given.flags.push(word.shown());
        }
        let begins = |word: &&Word| word.head().starts_with('-') || matches!(word.text(), Some("(" | ")" | "!" | ","));
        while let Some(word) = words.next_if(|word| !begins(word)) {
            if word.head().is_empty() && word.text().is_none() {
                return Err(self.unproven(word));
            }
            self.operands.push(word.clone());
        }
        while let Some(word) = words.next() {
            let Some(text) = word.text() else { return Err(self.unproven(word)) };
            if matches!(text, "(" | ")" | "!" | ",") {
                continue;
            }
            if !text.starts_with('-') {
                let what = format!("{} of `{}` is no part of an expression", quote(text), self.program);
                return Err(blocked(
                    "commands.argument/flag",
                    what,
                    "places stand before the expression",
                    "put it first",
                ));
            }
            let flag = self.find_flag(text)?;
            self.flag(flag);
            if let Some(kind) = &flag.value {
                let one = |word: &&&Word| matches!(word.value, Value::Literal(_) | Value::One(_));
                let Some(value) = words.next_if(|word| one(&word)) else {
                    let what = format!("`{text}` of `{}` has no value that is one word", self.program);
                    return Err(blocked("commands.argument/value", what, "quote a pattern", kind.wanted()));
                };
                self.check(value, kind, format!("the value of `{text}`"), false);
            }
        }
        Ok(())
    }
}
