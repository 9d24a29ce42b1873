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
    Document(String),
    /// A flag of a clause, e.g. `--memory` and `512M`.
    Flag {
        /// With its dashes.
        name: String,
        /// As typed.
        value: String,
    },
    /// `--set CLAUSE=VALUE`
    Set(String),
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
