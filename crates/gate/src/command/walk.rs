//! The whole tree of a line: every command, word, substitution, here-document, assignment and redirection.

use brush_parser::ast;
use policy::diagnostic::quote;

use super::Judge;
use super::argument_rules::Folders;
use super::options::blocked;
use super::start::StartContext;
use super::words::{self, Value, Word, WordPosition};
use super::{Resolved, parse};
use crate::blocked::Blocked;

/// Lines inside lines end here.
const MAX_DEPTH: usize = 8;
/// Reasons that are told.
const MAX_REASONS: usize = 20;
/// Words of bash that are no program where they stand unquoted.
const RESERVED: &[&str] = &[
    "!", "{", "}", "[[", "]]", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if",
    "in", "select", "then", "time", "until", "while",
];

/// One walk over one line.
#[derive(Debug)]
pub(super) struct Walk<'j> {
    pub(super) judge: &'j Judge,
    /// Where a command may run.
    pub(super) folders: Folders,
    pub(super) loops: usize,
    pub(super) depth: usize,
    pub(super) programs: Vec<Resolved>,
    pub(super) blocked: Vec<Blocked>,
    /// Commands of any kind, builtins too.
    pub(super) commands: usize,
    /// Whether the line writes anything, or runs what may.
    pub(super) writes: bool,
    /// Where a program looks for a repository, with its name: judged when the whole line is known.
    pub(super) repositories: Vec<(String, Folders)>,
}

impl<'j> Walk<'j> {
    pub(super) fn new(judge: &'j Judge) -> Self {
        Self {
            judge,
            folders: Folders::from([judge.rules.root.clone()]),
            loops: 0,
            depth: 0,
            programs: Vec::new(),
            blocked: Vec::new(),
            commands: 0,
            writes: false,
            repositories: Vec::new(),
        }
    }

    pub(super) fn refuse(&mut self, reason: Blocked) {
        if self.blocked.len() < MAX_REASONS && !self.blocked.contains(&reason) {
            self.blocked.push(reason);
        }
    }

    pub(super) fn refused(&mut self, id: &'static str, what: String, why: &str, instead: &str) {
        self.refuse(blocked(id, what, why, instead));
    }

    /// A line inside: of a substitution, or of `bash -c`.
    pub(super) fn nested(&mut self, text: &str) {
        if self.depth >= MAX_DEPTH {
            let what = format!("{} is nested too deep", quote(text));
            return self.refused("commands.line/too-big", what, "so deep a line is not read", "divide it");
        }
        self.depth = self.depth.saturating_add(1);
        // A `cd` inside leads nowhere outside, but nothing is lost by thinking so.
        match parse::program(text) {
            Ok(program) => self.program(&program),
            Err(reason) => self.refuse(reason),
        }
        self.depth = self.depth.saturating_sub(1);
    }

    pub(super) fn program(&mut self, program: &ast::Program) {
        program.complete_commands.iter().for_each(|list| self.list(list));
    }

    fn list(&mut self, list: &ast::CompoundList) {
        for ast::CompoundListItem(and_or, _) in &list.0 {
            for (_, pipeline) in and_or {
                if pipeline.seq.is_empty() {
                    // The parser takes `time && ls`; for bash that is no line.
                    let what = "`time` or `!` stands before nothing".to_owned();
                    self.refused("commands.line/syntax", what, "bash does not read it so", "a command behind it");
                }
                pipeline.seq.iter().for_each(|command| self.any(command));
            }
        }
    }

    fn any(&mut self, command: &ast::Command) {
        match command {
            ast::Command::Simple(simple) => self.simple(simple),
            ast::Command::Compound(compound, redirects) => {
                self.compound(compound);
                self.redirects(redirects.as_ref());
            }
            ast::Command::Function(function) => {
                let what = format!("the function {} is defined", quote(&function.fname.value));
                let why = "from then on a name means something else than the program that was judged";
                self.refused("commands.shell/definition", what, why, "write its commands where they are used");
            }
            ast::Command::ExtendedTest(test, redirects) => {
                self.commands = self.commands.saturating_add(1);
                self.extended(&test.expr);
                self.redirects(redirects.as_ref());
            }
        }
    }

    fn compound(&mut self, compound: &ast::CompoundCommand) {
        match compound {
            ast::CompoundCommand::Arithmetic(_) | ast::CompoundCommand::ArithmeticForClause(_) => {
                let what = "an arithmetic command `((` stands in the line".to_owned();
                let why = "arithmetic evaluates the text of variables, and `((` may also begin two sub-shells";
                self.refused(
                    "commands.shell/arithmetic",
                    what,
                    why,
                    "[ A -lt B ], or `( (` with the inner list closed by `;`",
                );
            }
            ast::CompoundCommand::BraceGroup(group) => self.list(&group.list),
            ast::CompoundCommand::Subshell(sub) => self.list(&sub.list),
            ast::CompoundCommand::ForClause(clause) => {
                if !self.judge.rules.is_own(&clause.variable_name) {
                    let what = format!("`for` assigns the variable {}", quote(&clause.variable_name));
                    self.refused("commands.env/not-allowed", what, "programs would see it", "a name in small letters");
                }
                for value in clause.values.iter().flatten() {
                    let word = self.word(value, WordPosition::Argument);
                    let pattern = word.filter(|word| matches!(word.value, Value::Glob(_)));
                    let read = pattern.map(|word| self.judge.rules.read_names("for", &word, &self.folders));
                    if let Some(Err(reason)) = read {
                        self.refuse(reason);
                    }
                }
                self.inside_loop(|walk| walk.list(&clause.body.list));
            }
            ast::CompoundCommand::CaseClause(clause) => {
                self.word(&clause.value, WordPosition::Alone);
                for case in &clause.cases {
                    self.patterns(&case.patterns);
                    if let Some(list) = &case.cmd {
                        self.list(list);
                    }
                }
            }
            ast::CompoundCommand::IfClause(clause) => {
                self.list(&clause.condition);
                self.list(&clause.then);
                for other in clause.elses.iter().flatten() {
                    if let Some(condition) = &other.condition {
                        self.list(condition);
                    }
                    self.list(&other.body);
                }
            }
            ast::CompoundCommand::WhileClause(clause) | ast::CompoundCommand::UntilClause(clause) => {
                self.inside_loop(|walk| {
                    walk.list(&clause.0);
                    walk.list(&clause.1.list);
                });
            }
            ast::CompoundCommand::Coprocess(_) => {
                let what = "`coproc` stands in the line".to_owned();
                self.refused(
                    "commands.shell/definition",
                    what,
                    "it names a command and its pipes for later use",
                    "a pipe",
                );
            }
        }
    }

    /// Patterns of `case`. Bash ends the command at an `esac`, and runs what the parser takes for the rest of the pattern.
    fn patterns(&mut self, patterns: &[ast::Word]) {
        for pattern in patterns {
            if pattern.value == "esac" {
                let what = "`esac` stands where a pattern does".to_owned();
                self.refused("commands.line/syntax", what, "bash reads it as the end", "\"esac\", quoted");
            }
            self.word(pattern, WordPosition::Alone);
        }
    }

    fn inside_loop(&mut self, work: impl FnOnce(&mut Self)) {
        self.loops = self.loops.saturating_add(1);
        work(self);
        self.loops = self.loops.saturating_sub(1);
    }

    /// Reads a word and judges the lines inside it; none if it cannot be known.
    fn word(&mut self, word: &ast::Word, stands: WordPosition) -> Option<Word> {
        self.text(&word.value, stands)
    }

    fn text(&mut self, raw: &str, stands: WordPosition) -> Option<Word> {
        let mut lines = Vec::new();
        let word = match words::read(raw, stands, &mut lines) {
            Ok(word) => Some(word),
            Err(why) => {
                let what = format!("{} cannot be proven", quote(raw));
                self.refused("commands.word/unproven", what, why, "write the word out, or quote it");
                None
            }
        };
        for line in lines {
            self.nested(&line);
        }
        // Escapes and quotes may have made what the text did not show.
        if let Some(text) = word.as_ref().and_then(Word::text)
            && let Err(reason) = parse::plain(text)
        {
            self.refuse(reason);
            return None;
        }
        word
    }

    fn simple(&mut self, command: &ast::SimpleCommand) {
        self.commands = self.commands.saturating_add(1);
        let (mut assigned, mut given, mut whole) = (Vec::new(), Vec::new(), true);
        for item in command.prefix.iter().flat_map(|prefix| &prefix.0) {
            match item {
                ast::CommandPrefixOrSuffixItem::AssignmentWord(_, word) => match self.assignment(&word.value) {
                    Some(pair) => assigned.push(pair),
                    None => whole = false,
                },
                ast::CommandPrefixOrSuffixItem::IoRedirect(redirect) => self.redirect(redirect),
                ast::CommandPrefixOrSuffixItem::Word(word) => given.push(self.word(word, WordPosition::Argument)),
                ast::CommandPrefixOrSuffixItem::ProcessSubstitution(_, sub) => given.push(self.process(sub)),
            }
        }
        if let Some(word) = &command.word_or_name {
            if given.is_empty() && (RESERVED.contains(&word.value.as_str()) || looks_assigned(&word.value)) {
                let what = format!("{} stands where a program is named", quote(&word.value));
                let why = "bash takes it for a word of its own, or for an assignment";
                return self.refused("commands.word/unproven", what, why, "a program, or the name between quotes");
            }
            given.push(self.word(word, WordPosition::Argument));
        }
        for item in command.suffix.iter().flat_map(|suffix| &suffix.0) {
            match item {
                ast::CommandPrefixOrSuffixItem::AssignmentWord(_, word)
                | ast::CommandPrefixOrSuffixItem::Word(word) => {
                    given.push(self.word(word, WordPosition::Argument));
                }
                ast::CommandPrefixOrSuffixItem::IoRedirect(redirect) => self.redirect(redirect),
                ast::CommandPrefixOrSuffixItem::ProcessSubstitution(_, sub) => given.push(self.process(sub)),
            }
        }
        let known: Option<Vec<Word>> = given.into_iter().collect();
        let Some(known) = known.filter(|_| whole) else { return };
        if let Some(word) = known.iter().find(|word| is_descriptor(&word.raw)) {
            let what = format!("{} stands in the line", quote(&word.raw));
            let why = "before a redirection bash assigns the variable of that name";
            return self.refused("commands.word/unproven", what, why, "quote it");
        }
        self.assigned(&known, &assigned);
        if !known.is_empty() {
            self.start(&known, &assigned, StartContext::shell());
        }
    }

    /// `NAME=VALUE` before a command, or alone.
    fn assignment(&mut self, raw: &str) -> Option<(String, Word)> {
        let (name, value) = raw.split_once('=').unwrap_or((raw, ""));
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if !name.chars().all(plain) || name.is_empty() {
            let what = format!("the assignment {} is not a plain one", quote(raw));
            let why = "a subscript is evaluated, and `+=` adds to what is not known";
            self.refused("commands.env/form", what, why, "name=value");
            return None;
        }
        let value = self.text(value, WordPosition::Alone)?;
        Some((name.to_owned(), value))
    }

    fn assigned(&mut self, words: &[Word], assigned: &[(String, Word)]) {
        let rules = &self.judge.rules;
        let program = words.first().map(Word::shown);
        let mut wrong = Vec::new();
        for (name, value) in assigned {
            let alone = program.is_none() && rules.is_own(name);
            // The usual form of reading a line as it is.
            let reading = name == "IFS" && value.text() == Some("") && program.as_deref() == Some("read");
            if !alone && !reading {
                wrong.extend(rules.variable(program.as_deref().unwrap_or("the line"), name).err());
            }
        }
        wrong.into_iter().for_each(|reason| self.refuse(reason));
    }

    /// `<(list)`: a command, and a path of its pipe.
    fn process(&mut self, sub: &ast::SubshellCommand) -> Option<Word> {
        self.list(&sub.list);
        Some(Word { raw: "<(...)".to_owned(), value: Value::Literal(super::argument_rules::PIPE.to_owned()) })
    }

    fn redirects(&mut self, list: Option<&ast::RedirectList>) {
        list.iter().flat_map(|list| &list.0).for_each(|redirect| self.redirect(redirect));
    }

    fn redirect(&mut self, redirect: &ast::IoRedirect) {
        match redirect {
            ast::IoRedirect::File(_, kind, target) => self.file(kind, target),
            ast::IoRedirect::HereDocument(_, here) => self.document(here),
            ast::IoRedirect::HereString(_, word) => drop(self.word(word, WordPosition::Alone)),
            ast::IoRedirect::OutputAndError(word, _) => self.written(word),
        }
    }

    fn document(&mut self, here: &ast::IoHereDocument) {
        let end = &here.here_end.value;
        let quoted = end.contains(['\'', '"', '\\']);
        let joins = !quoted && (here.doc.value.contains("\\\n") || here.doc.value.ends_with('\\'));
        if !super::here::is_plain(end) || joins {
            let what = format!("the end {} of a here-document may stand elsewhere", quote(end));
            let why = "quotes inside of it, or a line that goes on in the next one: bash runs what follows the end";
            return self.refused("commands.word/unproven", what, why, "<<'END' with letters and digits");
        }
        if quoted == here.requires_expansion {
            let what = format!("the here-document {} is read in two ways", quote(end));
            let why = "whether its body is expanded is not certain";
            return self.refused("commands.word/unproven", what, why, "quote all of it");
        }
        if !quoted {
            self.text(&here.doc.value, WordPosition::Document);
        }
    }

    fn file(&mut self, kind: &ast::IoFileRedirectKind, target: &ast::IoFileRedirectTarget) {
        let word = match target {
            ast::IoFileRedirectTarget::Fd(_) => return,
            ast::IoFileRedirectTarget::ProcessSubstitution(_, sub) => return drop(self.process(sub)),
            ast::IoFileRedirectTarget::Filename(word) | ast::IoFileRedirectTarget::Duplicate(word) => word,
        };
        match kind {
            ast::IoFileRedirectKind::Read => self.opened(word),
            ast::IoFileRedirectKind::DuplicateInput | ast::IoFileRedirectKind::DuplicateOutput
                if is_number(&word.value) => {}
            ast::IoFileRedirectKind::DuplicateInput => {
                let what = format!("`<&{}` names no descriptor", word.value);
                self.refused("commands.word/unproven", what, "only running tells which one", "a number");
            }
            ast::IoFileRedirectKind::Write
            | ast::IoFileRedirectKind::Append
            | ast::IoFileRedirectKind::ReadAndWrite
            | ast::IoFileRedirectKind::Clobber
            | ast::IoFileRedirectKind::DuplicateOutput => self.written(word),
        }
    }

    /// `< FILE`; the name is expanded like an argument.
    fn opened(&mut self, word: &ast::Word) {
        let Some(word) = self.word(word, WordPosition::Argument) else { return };
        let Some(text) = word.text() else {
            let what = format!("the file {} of a redirection is not written out", quote(&word.raw));
            return self.refused(
                "commands.word/unproven",
                what,
                "it could be a network address of bash's own",
                "write it out",
            );
        };
        if let Some(reason) = network(text) {
            return self.refuse(reason);
        }
        self.blocked_file(&word);
        if let Err(reason) = self.judge.rules.read_path("a redirection", &word, true, &self.folders) {
            self.refuse(reason);
        }
    }

    /// `> FILE`
    fn written(&mut self, word: &ast::Word) {
        let Some(word) = self.word(word, WordPosition::Argument) else { return };
        if word.text().is_none() {
            let what = format!("the file {} of a redirection is not written out", quote(&word.raw));
            return self.refused(
                "commands.write/unproven",
                what,
                "only running tells which file it is",
                "write it out",
            );
        }
        if let Some(reason) = word.text().and_then(network) {
            return self.refuse(reason);
        }
        if matches!(word.text(), Some("/dev/null" | "/dev/stdout" | "/dev/stderr")) {
            return;
        }
        self.writes = true;
        if let Err(reason) = self.judge.rules.write_path("a redirection", &word, &self.folders) {
            self.refuse(reason);
        }
        self.blocked_file(&word);
    }

    fn blocked_file(&mut self, word: &Word) {
        let hit = self.judge.rules.blocks.iter().find(|block| block.hits_file(word, &self.folders));
        if let Some(block) = hit {
            let reason = super::start::hit(block, &format!("the file {} of a redirection", quote(&word.shown())));
            self.refuse(reason);
        }
    }

    fn extended(&mut self, expr: &ast::ExtendedTestExpr) {
        match expr {
            ast::ExtendedTestExpr::And(a, b) | ast::ExtendedTestExpr::Or(a, b) => {
                self.extended(a);
                self.extended(b);
            }
            ast::ExtendedTestExpr::Not(inner) | ast::ExtendedTestExpr::Parenthesized(inner) => self.extended(inner),
            ast::ExtendedTestExpr::UnaryTest(predicate, word) => {
                use ast::UnaryPredicate as P;
                if matches!(
                    predicate,
                    P::ShellOptionEnabled
                        | P::ShellVariableIsSetAndAssigned
                        | P::ShellVariableIsSetAndNameRef
                        | P::FdIsOpenTerminal
                ) {
                    self.evaluates(&format!("{predicate} {}", word.value));
                }
                self.word(word, WordPosition::Alone);
            }
            ast::ExtendedTestExpr::BinaryTest(predicate, a, b) => {
                use ast::BinaryPredicate as P;
                let (left, right) = (self.word(a, WordPosition::Alone), self.word(b, WordPosition::Alone));
                let numbers = [left, right].iter().flatten().all(|word| word.text().is_some_and(is_number));
                let arithmetic = matches!(
                    predicate,
                    P::ArithmeticEqualTo
                        | P::ArithmeticNotEqualTo
                        | P::ArithmeticLessThan
                        | P::ArithmeticLessThanOrEqualTo
                        | P::ArithmeticGreaterThan
                        | P::ArithmeticGreaterThanOrEqualTo
                );
                if arithmetic && !numbers {
                    self.evaluates(&format!("{} {predicate} {}", a.value, b.value));
                }
            }
        }
    }

    fn evaluates(&mut self, text: &str) {
        let what = format!("{} in `[[` evaluates text", quote(text));
        let why = "a subscript in a variable's name or value runs the commands that stand in it";
        self.refused("commands.builtin/expression", what, why, "[ A -eq B ], or numbers");
    }
}

/// `/dev/tcp/HOST/PORT`: bash connects.
fn network(text: &str) -> Option<Blocked> {
    let tidy: String = super::argument_rules::tidy(std::path::Path::new(text)).to_string_lossy().into_owned();
    let is = ["/dev/tcp", "/dev/udp"].iter().any(|place| text.starts_with(place) || tidy.starts_with(place));
    is.then(|| {
        let what = format!("the redirection to {} is a connection", quote(text));
        blocked("commands.shell/network", what, "bash opens it itself, without any program", "a file")
    })
}

/// Digits, or `-` for closing.
fn is_number(text: &str) -> bool {
    let digits = text.strip_suffix('-').unwrap_or(text);
    text == "-" || !digits.is_empty() && digits.len() <= 9 && digits.chars().all(|c| c.is_ascii_digit())
}

/// What bash would assign, although the parser handed it over as a word.
fn looks_assigned(raw: &str) -> bool {
    let name: String = raw.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
    let rest = raw.get(name.len()..).unwrap_or_default();
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && (rest.starts_with(['=', '[']) || rest.starts_with("+="))
}

/// `{name}`, which before a redirection is a variable.
fn is_descriptor(raw: &str) -> bool {
    let inner = raw.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    inner.is_some_and(|inner| {
        let name = inner.split('[').next().unwrap_or_default();
        !name.is_empty() && name.chars().all(plain)
    })
}
