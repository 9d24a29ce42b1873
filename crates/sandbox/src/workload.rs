//! What is to run: a command, a script of the host, code, or a shell.

use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;

/// What to run.
#[derive(Debug)]
pub enum Workload {
    /// A program with its arguments, looked up inside.
    Argv(Vec<OsString>),
    /// A script of the host.
    Script(Script),
    /// Code without a file.
    Code(Code),
    /// A shell, for a terminal.
    Shell,
    /// The agent of a live sandbox: a static executable of ours, which starts what callers ask for.
    Agent(&'static [u8]),
    /// What the image that is the root runs (its ENTRYPOINT and CMD).
    Image,
    /// Nothing: it is only planned.
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
