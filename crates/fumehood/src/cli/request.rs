//! What a call of `run`, `shell` or `plan` asks for, as a value: the one thing that `cli` hands to `run`.

use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;

use crate::ui::When;

/// A call of `run`, `shell` or `plan`.
#[derive(Debug)]
pub struct Request {
    /// Documents and flags that make the policy, weakest first.
    pub layers: Vec<Ingredient>,
    /// What to run.
    pub what: What,
    /// `-i`: stdin may be the caller's terminal.
    pub interactive: bool,
    /// `-t`: the program gets a terminal of its own.
    pub tty: bool,
    /// `-q`: none of our words beside errors and weakenings.
    pub quiet: bool,
    /// `-v`: also who enforced what.
    pub verbose: bool,
    /// `--json`: stdout is one report.
    pub json: bool,
    /// `--report FILE`.
    pub report: Option<PathBuf>,
    /// `--color`.
    pub color: When,
}

/// One layer of the policy, as the user gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ingredient {
    /// `-p`: the name of a preset, or the path of a document.
    Document(OsString),
    /// A flag that sets a clause.
    Flag {
        /// Path of the key, e.g. `limits.memory`, `env.set.LANG`, `inputs.question`.
        key: String,
        /// Whether the value replaces what weaker layers say, or adds to their list.
        how: How,
        /// The value as typed, or as a TOML value where the flag builds one.
        value: FlagValue,
        /// Where the value came from, for plans and messages: the flag's name, e.g. `--memory`.
        origin: String,
    },
}

/// How a flag meets what weaker layers say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// The flag's value alone counts.
    Replace,
    /// The flag's value joins the list.
    Append,
}

/// The value of a flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlagValue {
    /// Text of a value whose type the clause decides: `512M`, `true`, `["a", "b"]`.
    Typed(String),
    /// Text that is text, whatever it looks like.
    Text(String),
    /// A table of texts and whole numbers, e.g. a grant's `from` and `to`.
    Table(Vec<(&'static str, Field)>),
}

/// A field of [`FlagValue::Table`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// Text.
    Text(String),
    /// Numbers, e.g. ports.
    Numbers(Vec<u16>),
}

/// What to run.
#[derive(Debug)]
pub enum What {
    /// `-- CMD ARGS...`: looked up inside.
    Argv(Vec<OsString>),
    /// `SCRIPT ARGS...`
    Script(Script),
    /// `--lang L --code TEXT`, or code on stdin.
    Code(Code),
    /// The user's shell, interactively.
    Shell,
    /// `plan` without a command.
    Nothing,
}

/// A script of the host, already open, so that what was judged is what runs.
#[derive(Debug)]
pub struct Script {
    /// As the user named it.
    pub path: PathBuf,
    /// The regular file, open for reading.
    pub file: File,
    /// What to run it with.
    pub interpreter: Interpreter,
    /// Its own arguments.
    pub args: Vec<OsString>,
}

/// Code without a file of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// File name to show it under, e.g. `code.py`.
    pub name: String,
    /// The code.
    pub text: Vec<u8>,
    /// What to run it with.
    pub interpreter: Interpreter,
    /// Its arguments.
    pub args: Vec<OsString>,
}

/// How to find the interpreter of a script inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpreter {
    /// Language, e.g. `python`, or the `#!` line's program; for messages.
    pub name: String,
    /// The first of these whose program (first word) exists inside is used, with its words before the script's name.
    pub candidates: Vec<Vec<OsString>>,
}
