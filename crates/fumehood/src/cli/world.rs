//! The circumstances of this process, read once at start and passed on: nothing below `cli` asks the environment.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::path::PathBuf;

use crate::state::Places;

/// What the caller gave us beside the arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct World {
    /// Current directory; `None` if it was removed or cannot be read.
    pub cwd: Option<PathBuf>,
    /// `$HOME`, if it is an absolute path.
    pub home: Option<PathBuf>,
    /// Effective user id.
    pub euid: u32,
    /// The whole environment. Of a name that stands twice the last value counts.
    pub env: BTreeMap<OsString, OsString>,
    /// The variables that place our own files, as given; empty ones and relative XDG folders count as unset.
    pub state: Places,
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

impl World {
    /// Reads the circumstances of this process.
    #[must_use]
    pub fn read() -> Self {
        let env: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
        let path = |name: &str| env.get(OsStr::new(name)).filter(|v| !v.is_empty()).map(PathBuf::from);
        let absolute = |name: &str| path(name).filter(|p| p.is_absolute());
        let home = absolute("HOME");
        let euid = rustix::process::geteuid().as_raw();
        let state = Places {
            fumehood_state: path("FUMEHOOD_STATE"),
            fumehood_keys: path("FUMEHOOD_KEYS"),
            xdg_state_home: absolute("XDG_STATE_HOME"),
            home: home.clone(),
            euid,
        };
        let stderr_terminal = std::io::stderr().is_terminal();
        let stdout_terminal = std::io::stdout().is_terminal();
        Self {
            cwd: std::env::current_dir().ok(),
            home,
            euid,
            state,
            stdin_terminal: std::io::stdin().is_terminal(),
            stdout_terminal,
            stderr_terminal,
            columns: columns(&env, stdout_terminal, stderr_terminal),
            argv0: std::env::args_os().next().map_or_else(|| PathBuf::from("fumehood"), PathBuf::from),
            env,
        }
    }

    /// The socket of the user's message bus, if the environment names a runtime folder.
    #[must_use]
    pub fn user_bus(&self) -> Option<PathBuf> {
        let folder = PathBuf::from(self.variable("XDG_RUNTIME_DIR")?);
        folder.is_absolute().then(|| folder.join("bus"))
    }

    /// A variable of the caller's environment.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<&OsStr> {
        self.env.get(OsStr::new(name)).map(OsString::as_os_str)
    }
}

/// Width to wrap our words to. `$COLUMNS` is for tests and for those who want another one.
fn columns(env: &BTreeMap<OsString, OsString>, stdout: bool, stderr: bool) -> usize {
    let said = env.get(OsStr::new("COLUMNS")).and_then(|v| v.to_str()).and_then(|v| v.parse::<usize>().ok());
    let asked = || {
        let size = if stderr {
            rustix::termios::tcgetwinsize(std::io::stderr())
        } else if stdout {
            rustix::termios::tcgetwinsize(std::io::stdout())
        } else {
            return None;
        };
        size.ok().map(|size| usize::from(size.ws_col))
    };
    said.or_else(asked).filter(|n| *n > 0).unwrap_or(100).clamp(40, 400)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_width_nobody_can_read_is_bounded() {
        let env = |v: &str| BTreeMap::from([(OsString::from("COLUMNS"), OsString::from(v))]);
        assert_eq!(columns(&env("80"), false, false), 80);
        assert_eq!(columns(&env("1"), false, false), 40);
        assert_eq!(columns(&env("0"), false, false), 100);
        assert_eq!(columns(&env("99999999999999999999999"), false, false), 100);
        assert_eq!(columns(&env("wide"), false, false), 100);
    }
}
