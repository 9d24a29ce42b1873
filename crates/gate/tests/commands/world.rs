//! A judge with a tree of canaries: every program that a line could name is a script that writes down how it was called.

use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gate::command::{Judge, JudgeOptions, Judgement};
use policy::{Caller, Format, Layers};

/// Wrappers run what they are given, so that what is behind them shows.
const REAL: &[&str] =
    &["env", "timeout", "nice", "nohup", "setsid", "stdbuf", "xargs", "find", "git", "tar", "awk", "bash"];
/// Beside every program of the tables.
const OTHERS: &[&str] = &[
    "curl", "wget", "nc", "ssh", "sh", "dash", "perl", "make", "tar", "dd", "id", "x", "evil", "sudo", "busybox",
    "docker", "ln", "install", "less", "vim", "watch", "command", "python3", "bash", "kill", "gzip", "cpio", "rsync",
    "zip", "evil.exe",
];
const NOBODY: u32 = 65_534;

/// A tree, a working folder, and a judge for it.
pub(crate) struct World {
    root: tempfile::TempDir,
    pub(crate) judge: Judge,
}

/// One program that was started: its name and words.
pub(crate) type Started = Vec<String>;

/// The policies of the corpus.
pub(crate) fn policy(name: &str) -> String {
    let block = r#"["rm -rf", "/etc/passwd", "curl", "wget", "/dev/tcp"]"#;
    let text = match name {
        "inspect" => format!(
            "presets = [\"inspect\", \"git-readonly\"]\nwrappers = [\"env\"]\nenv = [\"LC_ALL\"]\nblock = {block}"
        ),
        "dev" => format!(
            "presets = [\"python-dev\", \"inspect\"]\nwrappers = [\"env\", \"nohup\"]\nenv = [\"CI\", \"LC_ALL\"]\nwrite = [\".\", \"/tmp\"]\nblock = {block}\n\
             programs = [{}]",
            ["git", "rm", "cp", "mv", "mkdir", "touch", "tee", "chmod", "sed", "sort", "uniq", "bash", "node"]
                .map(|name| format!("{{ name = \"{name}\", args = \"workspace\" }}"))
                .join(", ")
        ),
        "free" => "presets = [\"inspect\"]\nread = [\"/\"]".to_owned(),
        other => panic!("no policy {other}"),
    };
    format!("version = 1\n[commands]\n{text}\n")
}

impl World {
    pub(crate) fn new(name: &str) -> Self {
        Self::of(&policy(name))
    }

    pub(crate) fn of(text: &str) -> Self {
        let root = tempfile::Builder::new()
            .prefix("canaries")
            .permissions(std::fs::Permissions::from_mode(0o755))
            .tempdir()
            .unwrap();
        let bin = root.path().join("usr/bin");
        std::fs::create_dir_all(&bin).unwrap();
        let log = root.path().join("log");
        std::fs::write(&log, "").unwrap();
        std::fs::create_dir(root.path().join("work")).unwrap();
        for path in ["log", "work"] {
            if rustix::process::geteuid().is_root() {
                chown(root.path().join(path), Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
        let script = format!("#!/bin/sh\nprintf '%s\\037' \"${{0##*/}}\" \"$@\" '^^' >> {}\n", log.display());
        for name in names() {
            if REAL.contains(&name.as_str()) {
                let real = ["/usr/bin", "/bin"].iter().map(|f| Path::new(f).join(&name)).find(|p| p.exists());
                if let Some(real) = real {
                    std::fs::copy(real, bin.join(&name)).unwrap();
                    continue;
                }
            }
            std::fs::write(bin.join(&name), &script).unwrap();
            std::fs::set_permissions(bin.join(&name), std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        symlink("/usr/bin", root.path().join("bin")).unwrap();
        let options = JudgeOptions { root: "/workspace".into(), inspect: None, tree: root.path().to_owned() };
        let judge = judge(text, options).unwrap_or_else(|wrong| panic!("{wrong}"));
        Self { root, judge }
    }

    pub(crate) fn allows(&self, line: &str) -> bool {
        matches!(self.judge.line(line), Judgement::Allowed { .. })
    }

    /// The first reason's id.
    pub(crate) fn why(&self, line: &str) -> String {
        match self.judge.line(line) {
            Judgement::Refused(reasons) => reasons[0].id.to_owned(),
            Judgement::Allowed { .. } => "allowed".to_owned(),
        }
    }

    /// Lets bash run a line as nobody, with the canaries as all there is: what was started.
    pub(crate) fn run(&self, line: &str) -> Vec<Started> {
        let log = self.root.path().join("log");
        std::fs::write(&log, "").unwrap();
        let path = self.root.path().join("usr/bin");
        let mut words = Vec::new();
        if rustix::process::geteuid().is_root() {
            words.extend(["/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
        }
        // What stands in a process substitution, or in the background, is waited for by nobody.
        let wait = if line.contains(['&', '(']) { "\"$@\"; /bin/sleep 0.3" } else { "\"$@\"" };
        words.extend(["/bin/sh", "-c", wait, "sh"]);
        words.extend(["/usr/bin/timeout", "-s", "KILL", "5", "/bin/bash", "--noprofile", "--norc", "-c", line]);
        let command = sys::command::Command::new(words[0])
            .args(&words[1..])
            .env("PATH", path)
            .env("HOME", "/nonexistent")
            .directory(self.root.path().join("work"));
        let output = command.output(b"", 1 << 16, Duration::from_secs(60)).unwrap();
        assert!(!output.timed_out, "{line}");
        let text = String::from_utf8_lossy(&std::fs::read(&log).unwrap()).into_owned();
        let mut all = vec![Vec::new()];
        for word in text.split('\u{1f}') {
            if word == "^^" { all.push(Vec::new()) } else { all.last_mut().unwrap().push(word.to_owned()) }
        }
        all.retain(|words: &Started| words.iter().any(|word| !word.is_empty()));
        all
    }

    /// Puts a file into the folder where lines run.
    pub(crate) fn put(&self, name: &str, text: &str) {
        let path = self.root.path().join("work").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Puts a canary of another name beside the programs.
    pub(crate) fn plant(&self, name: &str) {
        let bin = self.root.path().join("usr/bin");
        std::fs::copy(bin.join("evil"), bin.join(name)).unwrap();
    }

    /// What a canary is made of.
    pub(crate) fn canary(&self) -> String {
        std::fs::read_to_string(self.root.path().join("usr/bin/evil")).unwrap()
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.root.path().join("work")
    }
}

/// Every name of the tables, by the tables' own text.
fn names() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../resources/commands/programs");
    let mut all: BTreeSet<String> = OTHERS.iter().map(|name| (*name).to_owned()).collect();
    for entry in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let table: toml::Table = toml::from_str(&text).unwrap();
        all.extend(
            table.keys().filter(|name| !["cd", ":", "exit", "read", "set", "unset"].contains(&name.as_str())).cloned(),
        );
    }
    all
}

pub(crate) fn judge(text: &str, options: JudgeOptions) -> Result<Judge, policy::Diagnostics> {
    let mut layers = Layers::new(Caller { dir: "/".into(), ..Caller::default() });
    let none = |_: &Path| -> Result<String, String> { Err("no such file".to_owned()) };
    layers.document("policy.toml", text, Format::Toml, Path::new("/"), &none);
    let loaded = layers.finish()?;
    Judge::new(loaded.policy.commands.as_ref().unwrap(), &loaded.documents, options)
}

/// Whether bash can read a line.
pub(crate) fn bash_reads(line: &str) -> bool {
    let command = sys::command::Command::new("/bin/bash").args(["--noprofile", "--norc", "-n", "-c", line]);
    let output = command.output(b"", 4096, Duration::from_secs(60)).unwrap();
    output.end == sys::pidfd::End::Exited(0)
}
