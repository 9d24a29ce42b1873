//! Packages into a folder: fetched on the host, without any of their code being run.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sandbox::fault::show_text;
use sys::command::{Command, Output};

use super::{INSIDE, Recipe, TemplateError};

/// Where the host's Python and npm are, and what they may know of the caller.
#[derive(Clone, Debug)]
pub struct Tools {
    /// The Python that a sandbox sees under the same path.
    pub python: PathBuf,
    /// npm.
    pub npm: PathBuf,
    /// The caller's environment; what is about registries and proxies is handed on.
    pub env: BTreeMap<OsString, OsString>,
    /// How long one client may take.
    pub limit: Duration,
}

impl Tools {
    /// The usual ones.
    #[must_use]
    pub fn new(env: BTreeMap<OsString, OsString>) -> Self {
        let (python, npm) = (PathBuf::from("/usr/bin/python3"), PathBuf::from("/usr/bin/npm"));
        Self { python, npm, env, limit: Duration::from_secs(3600) }
    }

    fn command(&self, program: &Path) -> Command {
        let command =
            Command::new(program).env("PATH", "/usr/local/bin:/usr/bin:/bin").env("LANG", "C.UTF-8").directory("/");
        let handed = self.env.iter().filter(|(name, _)| is_handed_on(name));
        handed.fold(command, |command, (name, value)| command.variable([name.as_os_str(), value].join(OsStr::new("="))))
    }

    fn run(&self, command: &Command, what: &'static str) -> Result<(), TemplateError> {
        let output = command.output(b"", 256 * 1024, self.limit);
        let output = output.map_err(|error| TemplateError::Tools { what, why: error.to_string() })?;
        if output.end == sys::pidfd::End::Exited(0) {
            return Ok(());
        }
        Err(TemplateError::Packages { what, why: last_words(&output, self.limit) })
    }
}

/// What the clients of registries know of the machine: where they are, and by which way. Nothing that could make them load code.
fn is_handed_on(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    let lower = name.to_ascii_lowercase();
    let whole = [
        "home",
        "http_proxy",
        "https_proxy",
        "no_proxy",
        "all_proxy",
        "ssl_cert_file",
        "ssl_cert_dir",
        "requests_ca_bundle",
    ];
    whole.contains(&lower.as_str())
        || name == "NODE_EXTRA_CA_CERTS"
        || name.starts_with("PIP_")
        || lower.starts_with("npm_config_")
}

fn last_words(output: &Output, limit: Duration) -> String {
    if output.timed_out {
        return format!("it was not ready within {} s", limit.as_secs());
    }
    let all = [output.stdout.as_slice(), &output.stderr].concat();
    let text = String::from_utf8_lossy(&all);
    let errors = text.lines().filter(|line| line.starts_with("ERROR") || line.contains("npm error"));
    let said: Vec<String> = errors.take(3).map(|line| show_text(&line.chars().take(300).collect::<String>())).collect();
    if !said.is_empty() {
        return said.join("; ");
    }
    let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    show_text(&last.chars().take(300).collect::<String>())
}

/// Everything of a recipe, in this folder.
pub(super) fn build(recipe: &Recipe, folder: &Path, tools: &Tools) -> Result<(), TemplateError> {
    if !recipe.packages.pip.is_empty() {
        pip(recipe, folder, tools)?;
    }
    if !recipe.packages.npm.is_empty() {
        npm(recipe, folder, tools)?;
    }
    readable(folder).map_err(|error| TemplateError::state(folder, &error))
}

fn pip(recipe: &Recipe, folder: &Path, tools: &Tools) -> Result<(), TemplateError> {
    let venv = folder.join("venv");
    let made = tools.command(&tools.python).args(["-I", "-m", "venv"]).arg(&venv);
    tools.run(&made, "python3 -m venv")?;
    // One call alone: what it installs could be run by the next one (`.pth`).
    let flags = ["-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"];
    let call = tools.command(&venv.join("bin/python3")).args(flags).arg("--only-binary=:all:").arg("--");
    tools.run(&call.args(&recipe.packages.pip), "pip install")?;
    let moved = move_scripts(&venv, &format!("{INSIDE}/venv"));
    moved.map_err(|error| TemplateError::state(&venv, &error))
}

fn npm(recipe: &Recipe, folder: &Path, tools: &Tools) -> Result<(), TemplateError> {
    let node = folder.join("node");
    fs::create_dir(&node).map_err(|error| TemplateError::state(&node, &error))?;
    let flags = ["install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"];
    let call = tools.command(&tools.npm).args(flags).arg("--prefix").arg(&node).directory(&node).arg("--");
    tools.run(&call.args(&recipe.packages.npm), "npm install")
}

/// Scripts name the folder in which they were made; a sandbox sees it elsewhere.
fn move_scripts(venv: &Path, to: &str) -> std::io::Result<()> {
    let from = venv.display().to_string();
    let mut texts = vec![venv.join("pyvenv.cfg")];
    for entry in fs::read_dir(venv.join("bin"))? {
        texts.push(entry?.path());
    }
    for path in texts {
        let kind = fs::symlink_metadata(&path)?;
        if !kind.is_file() || kind.len() > 1 << 20 {
            continue;
        }
        if let Ok(text) = String::from_utf8(fs::read(&path)?)
            && text.contains(&from)
        {
            fs::write(&path, text.replace(&from, to))?;
        }
    }
    Ok(())
}

/// Whoever the sandbox's user is: he reads it, and executes what its maker could.
fn readable(folder: &Path) -> std::io::Result<()> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755))?;
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let kind = fs::symlink_metadata(&path)?;
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() {
                let execute = if kind.permissions().mode() & 0o100 == 0 { 0o644 } else { 0o755 };
                fs::set_permissions(&path, fs::Permissions::from_mode(execute))?;
            }
        }
    }
    Ok(())
}

/// What was installed, each with its version.
pub(super) fn installed(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut take = |folder: PathBuf| {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if let Some((name, version)) = name.strip_suffix(".dist-info").and_then(|name| name.rsplit_once('-')) {
                found.push(format!("{name}=={version}"));
            }
        }
    };
    for entry in fs::read_dir(folder.join("venv/lib")).into_iter().flatten().flatten() {
        take(entry.path().join("site-packages"));
    }
    if let Ok(lock) = fs::read(folder.join("node/node_modules/.package-lock.json")) {
        let lock: serde_json::Value = serde_json::from_slice(&lock).unwrap_or_default();
        let packages = lock.get("packages").and_then(serde_json::Value::as_object);
        for (path, package) in packages.into_iter().flatten() {
            let version = package.get("version").and_then(serde_json::Value::as_str).unwrap_or("?");
            let name = path.rsplit_once("node_modules/").map_or(path.as_str(), |(_, name)| name);
            found.push(format!("{name}@{version}"));
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registries_and_proxies_are_handed_on_and_nothing_else() {
        for yes in ["PIP_INDEX_URL", "npm_config_registry", "NPM_CONFIG_REGISTRY", "https_proxy", "HTTPS_PROXY", "HOME"]
        {
            assert!(is_handed_on(OsStr::new(yes)), "{yes}");
        }
        for no in ["PYTHONPATH", "PYTHONSTARTUP", "LD_PRELOAD", "NODE_OPTIONS", "AWS_SECRET_ACCESS_KEY", "PATH"] {
            assert!(!is_handed_on(OsStr::new(no)), "{no}");
        }
    }
}
