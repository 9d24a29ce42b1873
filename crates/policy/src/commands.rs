//! `[commands]`: which programs a command line may start, and with which words.

use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use crate::span::Spanned;

/// The sets that ship with the product; the broker holds what is in them, and a test holds the two lists together.
pub const PRESETS: &[&str] = &[GIT_PRESET, "python-dev", "inspect"];
/// The one of them that has git.
pub const GIT_PRESET: &str = "git-readonly";

/// `[commands]`, and the `command` guard of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Commands {
    /// Programs, by name (found on the system's own path list) or absolute path.
    pub programs: Vec<Spanned<Program>>,
    /// Shipped sets: `git-readonly`, `python-dev`, `inspect`.
    pub presets: Vec<Spanned<String>>,
    /// Programs that run other programs and are judged through.
    pub wrappers: Vec<Spanned<String>>,
    /// Names that may be assigned before a command.
    pub env: Vec<Spanned<String>>,
    /// Where redirections and arguments may write: folders, relative to `root`.
    pub write: Vec<Spanned<PathBuf>>,
    /// What programs may read by their arguments and redirections: paths, relative to `root`. If not written: the folder in which
    /// commands run, and what is granted.
    pub read: Option<Vec<Spanned<PathBuf>>>,
    /// What the policy grants beside the workspace (`fs.read`, `fs.write`), as the sandbox shows it; nothing for a guard.
    pub granted: Vec<PathBuf>,
    /// Refused whatever else allows, matched on the parsed words.
    pub block: Vec<Spanned<String>>,
    /// Whether the kernel holds the list of executables as well, where commands are run (`fs.exec`); true if not written.
    pub exec: bool,
    /// The folder in which commands run; the workspace if not written.
    pub root: Option<Spanned<PathBuf>>,
    /// As written, canonical.
    pub written: Json,
}

impl Commands {
    /// The folders that may be written to, absolute: those of `write`, and git's own where a rule lets git write.
    #[must_use]
    pub fn write_folders(&self, root: &Path) -> Vec<PathBuf> {
        let writes = self.git().any(|git| git.args != ProgramArgs::ReadOnly);
        absolute(root, &self.write, writes)
    }

    /// The places of what is shown that may be read, absolute: those of `read`, git's own folder where git may be run, and what may
    /// be written to. `None`: all that is shown.
    #[must_use]
    pub fn read_folders(&self, root: &Path) -> Option<Vec<PathBuf>> {
        let read = self.read.as_ref()?;
        let runs = self.git().next().is_some() || self.presets.iter().any(|preset| preset.value == GIT_PRESET);
        Some(absolute(root, read, runs).into_iter().chain(self.write_folders(root)).collect())
    }

    /// What `programs` says of git.
    fn git(&self) -> impl Iterator<Item = &Program> {
        let is_git = |program: &&Program| Path::new(&program.name).file_name().is_some_and(|name| name == "git");
        self.programs.iter().map(|program| &program.value).filter(is_git)
    }
}

/// Paths of a list, and git's own folder where that is one of them.
fn absolute(root: &Path, list: &[Spanned<PathBuf>], git: bool) -> Vec<PathBuf> {
    let listed = list.iter().map(|path| root.join(&path.value));
    // `.` at the end of a path is no part of it.
    listed.chain(git.then(|| root.join(".git"))).map(|path| path.components().collect()).collect()
}

/// One program and what it may be given.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// Name or absolute path.
    pub name: String,
    /// What it may be given.
    pub args: ProgramArgs,
}

/// What a program may be given.
#[derive(Clone, Debug, PartialEq)]
pub enum ProgramArgs {
    /// The shipped table of this program, its writes kept in `write`.
    Workspace,
    /// The shipped table of this program, without what writes or runs.
    ReadOnly,
    /// Rules of the policy's own.
    Rules(Vec<ArgRule>),
}

/// One rule on a program's arguments.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ArgRule {
    /// The sub-command that it is about (`log`); none: the program itself.
    pub sub: Option<String>,
    /// Flags that may stand: `--oneline`, `-n,--lines=int`, `--output=write-path`.
    pub flags: Vec<Spanned<String>>,
    /// The type of every positional: `none`, `any`, `word`, `int`, `path`, `write-path`, or a pattern in slashes.
    pub positional: Option<Spanned<String>>,
    /// Most positionals.
    pub most: Option<u32>,
}

/// The types that words of a rule may have, beside a pattern in slashes.
pub const TYPES: &[&str] = &["none", "any", "word", "int", "path", "write-path"];

/// A flag of a rule, taken apart: `-n,--lines=int` has two spellings and a value of type `int`; `--color?=word` one that may
/// be left out and is otherwise joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlagRule<'a> {
    /// Every spelling, with its dashes.
    pub names: Vec<&'a str>,
    /// The type of its value, if it takes one.
    pub value: Option<&'a str>,
    /// Whether the value may be left out.
    pub optional: bool,
}

impl<'a> FlagRule<'a> {
    /// Takes a flag apart.
    ///
    /// # Errors
    /// Why it is no flag, in words.
    pub fn parse(text: &'a str) -> Result<Self, String> {
        let (names, value) = match text.split_once('=') {
            Some((names, value)) => (names, Some(value)),
            None => (text, None),
        };
        let (names, optional) = match names.strip_suffix('?') {
            Some(names) if value.is_some() => (names, true),
            Some(_) | None => (names, false),
        };
        if value.is_some_and(str::is_empty) {
            return Err("nothing says which type its value has".to_owned());
        }
        let names: Vec<&str> = names.split(',').collect();
        for name in &names {
            let body = name.trim_start_matches('-');
            let dashes = name.len().saturating_sub(body.len());
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '+');
            if !(1..=2).contains(&dashes) || body.is_empty() || !body.chars().all(plain) {
                return Err(format!("`{name}` is not written like a flag"));
            }
        }
        Ok(Self { names, value, optional })
    }
}

#[cfg(test)]
mod tests {
    use super::FlagRule;

    #[test]
    fn a_flag_is_its_spellings_and_the_type_of_its_value() {
        let flag = FlagRule::parse("-n,--lines=int").unwrap();
        assert_eq!((flag.names, flag.value, flag.optional), (vec!["-n", "--lines"], Some("int"), false));
        let flag = FlagRule::parse("--color?=word").unwrap();
        assert_eq!((flag.names, flag.value, flag.optional), (vec!["--color"], Some("word"), true));
        for wrong in ["", "-", "--", "oneline", "-n=", "---x", "--a b", "-n,=int"] {
            assert!(FlagRule::parse(wrong).is_err(), "{wrong}");
        }
    }
}
