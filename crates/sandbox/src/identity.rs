//! `git.identity = "host"`: the name and mail of the caller's own git, and nothing else of its configuration.
//!
//! git itself is asked, on the host, before anything runs: it knows its files, what they include, and whose repositories it
//! may read. `git config --get` reads and starts nothing.

use std::path::{Path, PathBuf};
use std::time::Duration;

use policy::Loaded;
use sys::command::Command;

use crate::environment::Environment;

/// Where git is looked for: as for programs inside.
const PLACES: &[&str] = &["/usr/local/bin/git", "/usr/bin/git", "/bin/git"];
/// What git is told of the caller: where its configuration lies.
const TOLD: &[&str] = &["HOME", "XDG_CONFIG_HOME"];
const LIMIT: Duration = Duration::from_secs(5);
/// The longest name or address.
const MAX: usize = 256;

/// Puts the identity into the environment of the run, where the policy asks for it.
pub(crate) fn take(loaded: &mut Loaded, environment: &Environment) {
    if !loaded.policy.env.git_identity {
        return;
    }
    let folder = loaded.policy.workspace.path.clone().or_else(|| environment.cwd.clone());
    let ask = |key| asked(key, folder.as_deref(), environment);
    loaded.set_git_identity(ask("user.name").as_deref(), ask("user.email").as_deref());
}

/// One value, as git has it for this folder.
fn asked(key: &str, folder: Option<&Path>, environment: &Environment) -> Option<String> {
    let git = PLACES.iter().map(PathBuf::from).find(|path| path.is_file())?;
    let mut command = Command::new(git).args(["config", "--get", key]);
    command = command.directory(folder.filter(|folder| folder.is_dir()).unwrap_or(Path::new("/")));
    command = command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("GIT_TERMINAL_PROMPT", "0");
    for name in TOLD {
        if let Some(value) = environment.variable(name) {
            command = command.env(name, value);
        }
    }
    let output = command.output(b"", MAX.saturating_add(2), LIMIT).ok()?;
    plain(&output.stdout)
}

/// A value on one line; anything else is no name and no address.
fn plain(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes.strip_suffix(b"\n")?).ok()?;
    (!text.is_empty() && text.len() <= MAX && !text.chars().any(char::is_control)).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn only_one_line_of_text_is_an_identity() {
        assert_eq!(plain("Zoë Example\n".as_bytes()).as_deref(), Some("Zoë Example"));
        for odd in [&b""[..], b"\n", b"a\nb\n", b"a\x1b[2J\n", b"\xff\n", b"cut"] {
            assert_eq!(plain(odd), None, "{odd:?}");
        }
    }
}
