//! Command lines: what passes starts listed programs only, as often as it is asked, and bash can read it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gate::command::{Judge, JudgeOptions, Judgement, Resolved, as_one};

pub(crate) const TOKENS: &[&str] = include!("../../crates/gate/tests/commands/tokens.in");

/// Programs of the policy, beside those of presets.
const LISTED: &[&str] = &[
    "git", "rm", "cp", "mv", "mkdir", "touch", "tee", "chmod", "sed", "sort", "uniq", "bash", "node", "env", "nohup",
    "timeout", "xargs", "find",
];
/// In the tree, and in no list.
const UNLISTED: &[&str] =
    &["curl", "wget", "nc", "ssh", "perl", "evil", "sudo", "busybox", "docker", "x", "id", "sh", "dash"];

pub(crate) struct World {
    tree: tempfile::TempDir,
    judge: Judge,
    /// Names that may be started.
    names: BTreeSet<String>,
    executables: Vec<PathBuf>,
}

impl World {
    pub(crate) fn new() -> Self {
        let tree = tempfile::tempdir().unwrap();
        let bin = tree.path().join("usr/bin");
        std::fs::create_dir_all(&bin).unwrap();
        let mut names: BTreeSet<String> = LISTED.iter().map(|name| (*name).to_owned()).collect();
        names.extend(of_presets(&["inspect", "git-readonly", "python-dev"]));
        for name in names.iter().map(String::as_str).chain(UNLISTED.iter().copied()) {
            std::fs::write(bin.join(name), format!("#!/usr/bin/dash\n# {name}\n")).unwrap();
            std::fs::set_permissions(bin.join(name), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        }
        std::os::unix::fs::symlink("/usr/bin", tree.path().join("bin")).unwrap();
        let programs: Vec<String> =
            LISTED.iter().take(13).map(|name| format!("{{ name = {name:?}, args = \"workspace\" }}")).collect();
        let text = format!(
            "version = 1\n[commands]\npresets = [\"python-dev\", \"inspect\", \"git-readonly\"]\n\
             wrappers = [\"env\", \"nohup\", \"timeout\", \"xargs\"]\nenv = [\"CI\", \"LC_ALL\"]\nwrite = [\".\", \"/tmp\"]\n\
             block = [\"rm -rf\", \"/etc/passwd\", \"curl\", \"wget\", \"/dev/tcp\"]\nprograms = [{}]\n",
            programs.join(", ")
        );
        let loaded = super::loaded(&text);
        let options = JudgeOptions { root: "/workspace".into(), inspect: None, tree: tree.path().to_owned() };
        let judge = Judge::new(loaded.policy.commands.as_ref().unwrap(), &loaded.documents, options).unwrap();
        let executables = judge.executables(true);
        Self { tree, judge, names, executables }
    }

    pub(crate) fn read(&self, bytes: &[u8]) {
        let line = String::from_utf8_lossy(bytes);
        match self.judge.line(&line) {
            Judgement::Refused(reasons) => {
                assert!(!reasons.is_empty(), "refused without a reason");
                for reason in &reasons {
                    assert!(!reason.what.is_empty() && !reason.why.is_empty(), "{reason:?}");
                    assert!(!reason.what.contains('\u{1b}') && !reason.what.contains('\u{202e}'), "{reason:?}");
                    assert_ne!(reason.what, "the line could not be read", "its reader broke off");
                }
            }
            Judgement::Allowed { programs, shell } => {
                programs.iter().for_each(|program| self.fits(&line, program));
                let launch = self.judge.launch(&line).unwrap();
                assert_eq!(
                    launch.argv.first().map(String::as_str) == Some("bash") && launch.argv.contains(&as_one(&line)),
                    shell,
                    "{line:?}"
                );
                assert!(self.judge.line(&line) == Judgement::Allowed { programs, shell }, "{line:?} is judged twice");
                assert!(bash_reads(&line), "{line:?} is allowed, and bash cannot read it");
            }
        }
    }

    /// The same without bash, which takes a hundred times as long as we do.
    pub(crate) fn read_alone(&self, bytes: &[u8]) {
        let line = String::from_utf8_lossy(bytes);
        if let Judgement::Allowed { programs, shell: _ } = self.judge.line(&line) {
            programs.iter().for_each(|program| self.fits(&line, program));
        }
    }

    /// A program that may start is in the list, is the file of that name, and is one that the kernel's own list has.
    fn fits(&self, line: &str, program: &Resolved) {
        let Resolved { path, argv, env: _ } = program;
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        assert!(self.names.contains(name), "{line:?} starts {path:?}");
        assert!(path.is_absolute() && (path.starts_with("/usr/bin") || path.starts_with("/bin")), "{line:?}: {path:?}");
        if self.tree.path().join("usr/bin").join(name).exists() {
            let real = Path::new("/usr/bin").join(name);
            let known = self.executables.iter().any(|file| file == path || *file == real);
            assert!(known, "{line:?} starts {path:?}, which the kernel would not: {:?}", self.executables);
        }
        assert!(!argv.iter().any(|word| word == "/etc/passwd"), "{line:?}: {argv:?}");
    }
}

fn of_presets(presets: &[&str]) -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../resources/commands/presets");
    let read = |preset: &&str| -> toml::Table {
        std::fs::read_to_string(folder.join(format!("{preset}.toml"))).unwrap().parse().unwrap()
    };
    let mut names = BTreeSet::new();
    for table in presets.iter().map(read) {
        names.extend(table["programs"].as_table().unwrap().keys().cloned());
        let wrappers = table.get("wrappers").and_then(toml::Value::as_array);
        names.extend(wrappers.into_iter().flatten().map(|name| name.as_str().unwrap().to_owned()));
    }
    names
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    super::corpus(include_str!("../../crates/gate/tests/commands/corpus.toml"), &["allow", "deny"])
}

fn bash_reads(line: &str) -> bool {
    let command = sys::command::Command::new("/bin/bash").args(["--noprofile", "--norc", "-n", "-c", line]);
    let output = command.output(b"", 4096, Duration::from_secs(60)).unwrap();
    output.end == sys::pidfd::End::Exited(0)
}
