//! The circumstances of this process as values: read once by the command line, and passed on.

use std::ops::Deref;
use std::path::PathBuf;

/// What the caller gave us beside the arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// What a run needs of it.
    pub caller: sandbox::Environment,
    /// stdin is a terminal.
    pub stdin_terminal: bool,
    /// stdout is a terminal.
    pub stdout_terminal: bool,
    /// stderr is a terminal.
    pub stderr_terminal: bool,
    /// Width of the terminal at stderr, else of the one at stdout, else 100.
    pub columns: usize,
    /// How we were called; for usage texts only.
    pub argv0: PathBuf,
}

/// Its directory, variables and places are the caller's.
impl Deref for Environment {
    type Target = sandbox::Environment;

    fn deref(&self) -> &Self::Target {
        &self.caller
    }
}
