//! Reads the circumstances of this process, once at start: nothing beside `cli` asks for them.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::path::PathBuf;

use crate::environment::Environment;

impl Environment {
    /// Reads the circumstances of this process. Of a variable that stands twice the last value counts.
    #[must_use]
    pub fn read() -> Self {
        let env: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
        let stderr_terminal = std::io::stderr().is_terminal();
        let stdout_terminal = std::io::stdout().is_terminal();
        Self {
            stdin_terminal: std::io::stdin().is_terminal(),
            stdout_terminal,
            stderr_terminal,
            columns: columns(&env, stdout_terminal, stderr_terminal),
            argv0: std::env::args_os().next().map_or_else(|| PathBuf::from("fumehood"), PathBuf::from),
            caller: sandbox::Environment::new(std::env::current_dir().ok(), env, rustix::process::geteuid().as_raw())
                // One that was removed or replaced meanwhile has no name any more.
                .with_broker(std::env::current_exe().ok().filter(|program| program.is_file()))
                .with_images(Some(&images::OfCaller)),
        }
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
