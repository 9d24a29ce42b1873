//! `[commands]`: which programs a command line may start, and with which words.

use std::path::PathBuf;

use serde_json::Value as Json;

use crate::spot::Spotted;

/// `[commands]`, and the `command` guard of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Commands {
    /// Programs, by name (found on the system's own path list) or absolute path.
    pub programs: Vec<Spotted<Program>>,
    /// Shipped sets: `git-readonly`, `python-dev`, `inspect`.
    pub presets: Vec<Spotted<String>>,
    /// Programs that run other programs and are judged through.
    pub wrappers: Vec<Spotted<String>>,
    /// Names that may be assigned before a command.
    pub env: Vec<Spotted<String>>,
    /// Where redirections and arguments may write: folders, relative to `root`.
    pub write: Vec<Spotted<PathBuf>>,
    /// Refused whatever else allows, matched on the parsed words.
    pub block: Vec<Spotted<String>>,
    /// The folder in which commands run; the workspace if not written.
    pub root: Option<Spotted<PathBuf>>,
    /// As written, canonical.
    pub written: Json,
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
    /// Flags that may stand, `--oneline`, `-n=int`, `--output=write-path`.
    pub flags: Vec<String>,
    /// The type of every positional: `none`, `any`, `path`, `write-path`, `int`, `word`, or a pattern in slashes.
    pub positional: Option<String>,
    /// Most positionals.
    pub most: Option<u32>,
}
