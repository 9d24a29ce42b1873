//! `[commands]` and the `command` guard: shape, names and types. Whether a program has a table, and where it lies, the
//! broker knows.

use std::path::PathBuf;

use super::scalar::compile;
use super::{Reader, fault, list_words};
use crate::commands::{ArgRule, Commands, FlagRule, PRESETS, Program, ProgramArgs, TYPES};
use crate::diagnostic::{did_you_mean, quote};
use crate::document::{Node, Value};
use crate::span::{Span, Spanned};

const KEYS: &[&str] = &["programs", "presets", "wrappers", "env", "write", "read", "block", "exec"];
const GUARD_KEYS: &[&str] = &["kind", "programs", "presets", "wrappers", "env", "write", "read", "block", "root"];
const PROGRAM: &[&str] = &["name", "args"];
const RULE: &[&str] = &["sub", "flags", "positional", "most"];

impl Reader<'_> {
    /// The table at `path`: `commands` itself, or the guard of a tool.
    pub(crate) fn commands_table(&mut self, path: &str, node: &Node) -> Option<Commands> {
        let guard = path != "commands";
        self.table(path, node, if guard { GUARD_KEYS } else { KEYS })?;
        let before = self.mistakes.list.len();
        let commands = Commands {
            programs: self.programs(&format!("{path}.programs"), node.get("programs")),
            presets: self.preset_names(&format!("{path}.presets"), node.get("presets")),
            wrappers: self.program_names(&format!("{path}.wrappers"), node.get("wrappers")),
            env: self.variable_names(&format!("{path}.env"), node.get("env")),
            write: self.line_paths(&format!("{path}.write"), node.get("write")),
            read: node.get("read").map(|node| self.line_paths(&format!("{path}.read"), Some(node))),
            granted: Vec::new(),
            block: self.blocks(&format!("{path}.block"), node.get("block")),
            exec: node.get("exec").and_then(|node| self.truth(&format!("{path}.exec"), node)).unwrap_or(true),
            root: node.get("root").filter(|_| guard).and_then(|node| {
                let value = self.host_path(&format!("{path}.root"), node)?;
                Some(Spanned { value, at: Span(node.place) })
            }),
            written: super::tools::json(node),
        };
        (self.mistakes.list.len() == before).then_some(commands)
    }

    fn each<T>(
        &mut self,
        path: &str,
        node: Option<&Node>,
        mut read: impl FnMut(&mut Self, &Node) -> Option<T>,
    ) -> Vec<Spanned<T>> {
        let Some(items) = node.and_then(|node| self.items(path, node)) else { return Vec::new() };
        items.iter().filter_map(|item| read(self, item).map(|value| Spanned { value, at: Span(item.place) })).collect()
    }

    fn programs(&mut self, path: &str, node: Option<&Node>) -> Vec<Spanned<Program>> {
        let programs = self.each(path, node, |reader, item| reader.program(path, item));
        let twice = programs
            .iter()
            .enumerate()
            .find(|(at, program)| programs.iter().take(*at).any(|other| other.value.name == program.value.name));
        if let Some((_, Spanned { value, at })) = twice {
            let what = format!("{} is listed twice", quote(&value.name));
            let why = "which of the two rules is meant cannot be told";
            self.note(path, at.0, fault("commands/twice", what, why, "keep one entry, with all its rules"));
        }
        programs
    }

    fn program(&mut self, path: &str, node: &Node) -> Option<Program> {
        if let Value::Text(name) | Value::Bare(name) = &node.value {
            let what = format!("{} says nothing of its arguments", quote(name));
            let why = "a name alone would allow every argument, and most programs run others or write when told to";
            let fix = format!("write {{ name = \"{name}\", args = \"read-only\" }}, or args = \"workspace\", or rules");
            self.note(path, node.place, fault("value/incomplete", what, why, fix));
            return None;
        }
        let table = self.table(path, node, PROGRAM)?;
        let (Some(name), Some(args)) = (table.get("name"), table.get("args")) else {
            let missing = if table.get("name").is_none() { "name" } else { "args" };
            let why = "an entry is a program and what it may be given";
            let fix = "write { name = \"git\", args = \"read-only\" }, or args = \"workspace\", or a list of rules";
            self.note(path, node.place, fault("value/incomplete", format!("a program has no `{missing}`"), why, fix));
            return None;
        };
        let name = self.program_name(path, name)?;
        let args = self.args(&format!("{path}.args"), args)?;
        Some(Program { name, args })
    }

    fn args(&mut self, path: &str, node: &Node) -> Option<ProgramArgs> {
        match &node.value {
            Value::Array(rules) => {
                let rules: Option<Vec<ArgRule>> = rules.iter().map(|rule| self.arg_rule(path, rule)).collect();
                rules.map(ProgramArgs::Rules)
            }
            Value::Text(_) | Value::Bare(_) => self
                .keyword(path, node, &[("workspace", true), ("read-only", false)])
                .map(|workspace| if workspace { ProgramArgs::Workspace } else { ProgramArgs::ReadOnly }),
            Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Float(_) | Value::Table(_) => {
                let fix = "write \"read-only\", \"workspace\", or a list of rules: [{ flags = [\"-l\"], positional = \"path\" }]";
                self.wrong_type(path, node, "a word or a list of rules", fix);
                None
            }
        }
    }

    fn arg_rule(&mut self, path: &str, node: &Node) -> Option<ArgRule> {
        let table = self.table(path, node, RULE)?;
        let before = self.mistakes.list.len();
        let rule = ArgRule {
            sub: table.get("sub").and_then(|node| self.plain_word(&format!("{path}.sub"), node)),
            flags: {
                let path = format!("{path}.flags");
                self.each(&path, table.get("flags"), |reader, item| reader.flag_rule(&path, item))
            },
            positional: table.get("positional").and_then(|node| {
                let path = format!("{path}.positional");
                let text = self.text(&path, node)?;
                self.argument_type(&path, node, &text)?;
                Some(Spanned { value: text, at: Span(node.place) })
            }),
            most: table.get("most").and_then(|node| self.small(&format!("{path}.most"), node, 0, 10_000)),
        };
        (self.mistakes.list.len() == before).then_some(rule)
    }

    fn plain_word(&mut self, path: &str, node: &Node) -> Option<String> {
        let text = self.text(path, node)?;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if !text.is_empty() && !text.starts_with('-') && text.chars().all(plain) {
            return Some(text);
        }
        let why = "a sub-command is a word of letters, digits and dashes";
        self.note(
            path,
            node.place,
            fault("commands/word", format!("`{path}` is {}", quote(&text)), why, "write \"log\""),
        );
        None
    }

    fn flag_rule(&mut self, path: &str, node: &Node) -> Option<String> {
        let text = self.text(path, node)?;
        match FlagRule::parse(&text) {
            Ok(flag) => {
                if let Some(value) = flag.value {
                    self.argument_type(path, node, value)?;
                }
            }
            Err(why) => {
                let what = format!("{} is not a flag", quote(&text));
                let fix = "write \"--oneline\", \"-n,--lines=int\" or \"--color?=word\"";
                self.note(path, node.place, fault("commands/flag", what, why, fix));
                return None;
            }
        }
        Some(text)
    }

    fn argument_type(&mut self, path: &str, node: &Node, text: &str) -> Option<()> {
        if let Some(pattern) = text.strip_prefix('/').and_then(|rest| rest.strip_suffix('/')).filter(|_| text.len() > 2)
        {
            if let Err(error) = compile(pattern) {
                let why = error.to_string().lines().last().unwrap_or_default().trim().to_owned();
                let what = format!("{} is not a pattern", quote(text));
                let fix = "write a regular expression between slashes; it must match the whole word";
                self.note(path, node.place, fault("commands/pattern", what, why, fix));
                return None;
            }
            return Some(());
        }
        if TYPES.contains(&text) {
            return Some(());
        }
        let fix = match did_you_mean(text, TYPES.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("write one of {}, or /PATTERN/", list_words(TYPES)),
        };
        let what = format!("{} is not a type of words", quote(text));
        self.note(path, node.place, fault("commands/type", what, "each word is judged by its type", fix));
        None
    }

    fn program_names(&mut self, path: &str, node: Option<&Node>) -> Vec<Spanned<String>> {
        self.each(path, node, |reader, item| reader.program_name(path, item))
    }

    fn program_name(&mut self, path: &str, node: &Node) -> Option<String> {
        let text = self.text(path, node)?;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '+' | '[' | ':' | '/');
        let normal = !text.split('/').skip(1).any(|part| matches!(part, "" | "." | ".."));
        let name = !text.contains('/') || text.starts_with('/');
        if !text.is_empty() && !text.starts_with('-') && name && normal && text.chars().all(plain) {
            return Some(text);
        }
        let what = format!("{} is not a program", quote(&text));
        let why = "a program is a name on the system's own path list, or an absolute path without `.` and `..`";
        self.note(path, node.place, fault("commands/program", what, why, "write \"git\" or \"/opt/tool/bin/tool\""));
        None
    }

    fn preset_names(&mut self, path: &str, node: Option<&Node>) -> Vec<Spanned<String>> {
        let words: Vec<(&str, &str)> = PRESETS.iter().map(|name| (*name, *name)).collect();
        self.each(path, node, |reader, item| reader.keyword(path, item, &words).map(str::to_owned))
    }

    fn variable_names(&mut self, path: &str, node: Option<&Node>) -> Vec<Spanned<String>> {
        self.each(path, node, |reader, item| {
            let text = reader.text(path, item)?;
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if text.chars().all(plain) && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
                return Some(text);
            }
            let what = format!("{} is not the name of a variable", quote(&text));
            let why = "only names without subscripts and patterns can be compared";
            reader.note(path, item.place, fault("commands/variable", what, why, "write \"LC_ALL\""));
            None
        })
    }

    /// Paths stay relative: what they are relative to, `root`, is known where commands are run.
    fn line_paths(&mut self, path: &str, node: Option<&Node>) -> Vec<Spanned<PathBuf>> {
        let id = if path.ends_with("read") { "commands/read" } else { "commands/write" };
        self.each(path, node, |reader, item| {
            let text = reader.text(path, item)?;
            let base = std::path::Path::new("/");
            let escapes = text.split('/').any(|part| part == "..");
            let wrong = if escapes {
                Some("a folder with `..` could be any folder".to_owned())
            } else {
                super::normal(base, &text).err().map(|(_, why, _)| why)
            };
            if let Some(why) = wrong {
                let what = format!("`{path}` has the folder {}", quote(&text));
                reader.note(path, item.place, fault(id, what, why, "write \".\" or \"build\""));
                return None;
            }
            let full = super::normal(base, &text).ok()?;
            Some(if text.starts_with('/') { full } else { full.strip_prefix("/").ok()?.to_owned() })
        })
    }

    fn blocks(&mut self, path: &str, node: Option<&Node>) -> Vec<Spanned<String>> {
        self.each(path, node, |reader, item| {
            let text = reader.text(path, item)?;
            let plain = text.split_ascii_whitespace().next().is_some() && !text.chars().any(char::is_control);
            let quoted = text.contains(['\'', '"', '\\', '*', '$', '`']);
            if plain && !quoted {
                return Some(text);
            }
            let what = format!("`{path}` has the pattern {}", quote(&text));
            let why =
                "it is compared word by word with what bash makes of a line: quotes and patterns have no place in it";
            let fix = "write the words, for example \"rm -rf\", \"curl\" or \"/etc/passwd\"";
            reader.note(path, item.place, fault("commands/block", what, why, fix));
            None
        })
    }
}
