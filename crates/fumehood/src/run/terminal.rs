//! The caller's own terminal: whether there is one, its size, its modes, and the way back to normal.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::Path;

use policy::{ClauseId, Loaded};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use sandbox::fault::{Fault, show_text};
use sandbox::{Error, Screen, Stdio, Workload};

use super::own;
use super::request::Request;
use crate::environment::Environment;

/// Whether the caller has the terminal that the policy wants to be matched inside (`process.tty`, which `-t` sets).
///
/// # Errors
/// There is none, or a report is wanted that would hold both streams apart.
pub(super) fn there(loaded: &Loaded, request: &Request, environment: &Environment) -> Result<(), Error> {
    if !loaded.policy.process.tty || matches!(request.what, Workload::Nothing) {
        return Ok(());
    }
    let fault = |id, why: &str, fix: &str| {
        Err(Error::Failed(vec![Fault {
            id,
            what: "`process.tty` asks for a terminal inside".to_owned(),
            place: show_text(loaded.origins.of(ClauseId::ProcessTty)),
            why: why.to_owned(),
            fix: fix.to_owned(),
        }]))
    };
    if request.json {
        let why = "a terminal mixes stdout and stderr, and `--json` holds them apart";
        return fault("usage/two-flags", why, "`--report FILE` instead of `--json`, or `--set process.tty=false`");
    }
    if !environment.stdin_terminal {
        return fault("usage/no-terminal", "stdin is not one", "call it from a terminal, or `--set process.tty=false`");
    }
    Ok(())
}

/// Programs that ask what to do where they are given no arguments: without a terminal they find nothing, and end in silence.
const ASKING: [&str; 21] = [
    "python", "python3", "ipython", "node", "deno", "sh", "bash", "dash", "zsh", "ksh", "fish", "ruby", "irb", "php",
    "perl", "lua", "R", "julia", "ghci", "psql", "sqlite3",
];

/// Whether a program would ask the caller's terminal what to do, and does not get it (`-t`, `-i`).
pub(super) fn asks_in_vain(request: &Request, loaded: &Loaded, environment: &Environment) -> bool {
    let given = request.interactive || loaded.policy.process.tty || !environment.stdin_terminal;
    match &request.what {
        Workload::Argv(words) if !given => matches!(words.as_slice(), [program] if is_asking(program)),
        Workload::Argv(_)
        | Workload::Script(_)
        | Workload::Code(_)
        | Workload::Shell
        | Workload::Agent(_)
        | Workload::Image
        | Workload::Nothing => false,
    }
}

fn is_asking(program: &OsStr) -> bool {
    let name = Path::new(program).file_name().unwrap_or_default().to_string_lossy();
    // `python3.11`, `lua5.4`
    let bare = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    ASKING.iter().any(|asking| *asking == name || *asking == bare)
}

/// Rows and columns of the terminal at stdin.
pub(crate) fn size() -> Option<(u16, u16)> {
    tcgetwinsize(std::io::stdin()).ok().map(|size| (size.ws_row, size.ws_col))
}

/// The terminal at stdin and stdout.
pub(super) fn screen() -> std::io::Result<Screen> {
    Ok(Screen { input: own(std::io::stdin())?, output: own(std::io::stdout())?, size: size().unwrap_or((24, 80)) })
}

/// While this lives, the terminal hands on what is typed as it is.
#[derive(Debug)]
pub(crate) struct RawMode(Option<(OwnedFd, Termios)>);

impl RawMode {
    /// Of the terminal that a run is connected to; nothing where it is not.
    ///
    /// # Errors
    /// It is no terminal.
    pub(super) fn of(stdio: &Stdio) -> std::io::Result<Self> {
        let Stdio::Terminal(screen) = stdio else { return Ok(Self(None)) };
        Self::set(own(&screen.input)?)
    }

    /// Of the terminal at stdin.
    ///
    /// # Errors
    /// It is no terminal.
    pub(crate) fn here() -> std::io::Result<Self> {
        Self::set(own(std::io::stdin())?)
    }

    /// Of none.
    pub(crate) const fn none() -> Self {
        Self(None)
    }

    fn set(input: OwnedFd) -> std::io::Result<Self> {
        let before = tcgetattr(&input)?;
        let mut raw = before.clone();
        raw.make_raw();
        // What was typed while the sandbox started is meant for it: it is kept, not flushed.
        tcsetattr(&input, OptionalActions::Drain, &raw)?;
        Ok(Self(Some((input, before))))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        if let Some((input, before)) = &self.0 {
            // The caller's terminal may be gone; then there is nothing to restore.
            if tcsetattr(input, OptionalActions::Drain, before).is_err() {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreters_ask_whatever_their_version_and_place() {
        for program in ["python3", "python3.11", "/usr/bin/lua5.4", "./.venv/bin/python", "bash", "sqlite3"] {
            assert!(is_asking(program.as_ref()), "{program}");
        }
        for program in ["true", "make", "pythonx", "", "3", "/"] {
            assert!(!is_asking(program.as_ref()), "{program}");
        }
    }
}
