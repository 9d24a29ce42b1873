//! What only the disk tells: where links lead, and which repository git would find. Each attack is run first without a judge.

use std::os::unix::fs::symlink;
use std::path::Path;

use gate::command::{Judge, JudgeOptions, Judgement};

/// A workspace beside something important, as a tool without a sandbox sees it.
struct Workspace {
    base: tempfile::TempDir,
}

impl Workspace {
    fn new() -> Self {
        let base = tempfile::tempdir().unwrap();
        for folder in ["ws/out/deep", "ws/pkg", "important"] {
            std::fs::create_dir_all(base.path().join(folder)).unwrap();
        }
        for file in ["ws/a.py", "ws/b.py", "ws/pkg/y", "important/keep"] {
            std::fs::write(base.path().join(file), "keep\n").unwrap();
        }
        Self { base }
    }

    fn at(&self, name: &str) -> std::path::PathBuf {
        self.base.path().join(name)
    }

    fn judge(&self, commands: &str) -> Judge {
        let root = self.at("ws");
        let options = JudgeOptions { inspect: Some(root.clone()), root, tree: "/".into() };
        crate::world::judge(&format!("version = 1\n[commands]\n{commands}\n"), options).unwrap()
    }

    /// Lets bash run a line in the workspace; whether it went well.
    fn run(&self, line: &str) -> bool {
        let command = sys::command::Command::new("/usr/bin/timeout")
            .args(["-s", "KILL", "20", "/bin/bash", "--noprofile", "--norc", "-c", line])
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.at("home"))
            .env("BASE", self.base.path())
            .directory(self.at("ws"));
        let output = command.output(b"", 1 << 16, std::time::Duration::from_secs(60)).unwrap();
        output.end == sys::pidfd::End::Exited(0)
    }
}

/// `allowed`, or the first reason's id.
fn why(judge: &Judge, line: &str) -> String {
    match judge.line(line) {
        Judgement::Allowed { .. } => "allowed".to_owned(),
        Judgement::Refused(reasons) => reasons[0].id.to_owned(),
    }
}

const WRITERS: &str = "presets = [\"inspect\", \"git-readonly\"]\nwrite = [\"out\"]\nprograms = [{ name = \"git\", args = \"workspace\" }, \
     { name = \"cp\", args = \"workspace\" }, { name = \"tee\", args = \"workspace\" }, { name = \"rm\", args = \"workspace\" }, \
     { name = \"sed\", args = \"workspace\" }, { name = \"touch\", args = \"workspace\" }]";

/// Each line changes what lies outside of `out` where nobody judges it, and is refused.
#[test]
fn writes_through_links_are_refused() {
    let ws = Workspace::new();
    let links = [
        ("../../important", "ws/out/lnk"),
        ("..", "ws/out/up"),
        ("../pkg/y", "ws/out/file"),
        ("../../important/new", "ws/out/dangling"),
        ("../../pkg", "ws/out/deep/pkg"),
    ];
    links.iter().for_each(|(target, name)| symlink(target, ws.at(name)).unwrap());
    symlink("../b.py", ws.at("ws/out/a.py")).unwrap();
    let judge = ws.judge(WRITERS);
    for (line, changed) in [
        ("echo x > out/lnk/new", "important/new"),
        ("echo x > out/up/evil.txt", "ws/evil.txt"),
        ("echo x >> out/file", "ws/pkg/y"),
        ("echo x > out/dangling", "important/new"),
        ("cd out && echo x > lnk/new", "important/new"),
        ("echo x | tee out/l*k/keep", "important/keep"),
        ("echo x | tee ./out/*le", "ws/pkg/y"),
        ("cp -t out/up a.py pkg/y", "ws/y"),
        ("cp a.py out/a.py", "ws/b.py"),
        ("cp ./a.p* out", "ws/b.py"),
        ("sed -i s/a/b/ out/up/a.py", "ws/a.py"),
        ("touch out/deep/pkg/z", "ws/pkg/z"),
        ("rm -rf out/up/pk*", "ws/pkg/y"),
    ] {
        let before = std::fs::read(ws.at(changed)).ok();
        std::fs::write(ws.at("ws/a.py"), "attack\n").unwrap();
        ws.run(line);
        assert_ne!(std::fs::read(ws.at(changed)).ok(), before, "no control: {line}");
        assert_eq!(why(&judge, line), "commands.write/outside", "{line}");
        for (file, text) in [("ws/a.py", "keep\n"), ("ws/b.py", "keep\n"), ("important/keep", "keep\n")] {
            std::fs::write(ws.at(file), text).unwrap();
        }
        std::fs::create_dir_all(ws.at("ws/pkg")).unwrap();
        std::fs::write(ws.at("ws/pkg/y"), "keep\n").unwrap();
        drop(std::fs::remove_file(ws.at("important/new")));
    }
    for line in
        ["echo x > out/new", "cp a.py out/deep/", "touch out/deep/x", "rm -r out/deep", "cp b.py out", "tee out/x"]
    {
        assert_eq!(why(&judge, line), "allowed", "{line}");
    }
    symlink("../.git", ws.at("ws/out/gl")).unwrap();
    assert_eq!(why(&judge, "echo x > out/gl/config"), "commands.write/protected");
    symlink("loop", ws.at("ws/out/loop")).unwrap();
    assert_eq!(why(&judge, "echo x > out/loop/x"), "commands.write/unproven");
    // A link that stays inside is as good as the path.
    symlink("deep", ws.at("ws/out/same")).unwrap();
    assert_eq!(why(&judge, "echo x > out/same/x"), "allowed");
}

#[test]
fn git_writes_where_the_policy_says() {
    let ws = Workspace::new();
    let judge = ws.judge(WRITERS);
    let made = "git init -qb main . && git config user.name a && git config user.email a@b && git add . && git commit -qm x && git branch b";
    assert!(ws.run(made));
    for line in [
        "git restore --source=HEAD .",
        "git switch b",
        "git rm -rf .",
        "git mv a.py c.py",
        "git mv a.py .gitattributes",
        "cd out && git rm ':/a.py'",
        "cd out && git restore ':(top)a.py'",
    ] {
        let id = why(&judge, line);
        assert!(id.starts_with("commands.write/"), "{line}: {id}");
    }
    for line in ["git restore out", "git rm -r out/deep", "git add a.py", "git status", "git commit -m x"] {
        assert_eq!(why(&judge, line), "allowed", "{line}");
    }
    let all = ws.judge(&WRITERS.replace("[\"out\"]", "[\".\"]"));
    for line in ["git switch b", "git restore --source=HEAD .", "git rm -r pkg", "git mv a.py c.py"] {
        assert_eq!(why(&all, line), "allowed", "{line}");
    }
    assert_eq!(why(&all, "git mv a.py .gitattributes"), "commands.write/protected");
}

#[test]
fn git_uses_the_workspaces_own_repository_alone() {
    let ws = Workspace::new();
    let pwned = ws.at("pwned");
    let config = "printf '[core]\\n\\tfsmonitor = touch '$BASE'/pwned;\\n'";
    let made = format!(
        "git config --global user.name a && git config --global user.email a@b && git init -qb main . && \
         git init -q --bare bare && printf '[core]\\n\\trepositoryformatversion = 0\\n\\tbare = false\\n\\tworktree = ..\\n\\tfsmonitor = touch '$BASE'/pwned;\\n' > bare/config && \
         git init -q dep && cd dep && mkdir sub && echo x > sub/f && git add . && git commit -qm x && {config} >> .git/config && echo y > sub/f"
    );
    std::fs::create_dir_all(ws.at("home")).unwrap();
    assert!(ws.run(&made));
    symlink("dep/sub", ws.at("ws/lnk")).unwrap();
    let judge = ws.judge("presets = [\"inspect\", \"git-readonly\"]");
    for line in [
        "git -C dep status",
        "git -C bare status",
        "cd bare && git status",
        "git -C bare diff",
        "git -C lnk status",
        "cd lnk && git status",
        "git -C lnk diff",
        "git -C dep/sub status",
        "cd dep && git -C sub status",
    ] {
        drop(std::fs::remove_file(&pwned));
        ws.run(line);
        assert!(pwned.exists(), "no control: {line}");
        assert_eq!(why(&judge, line), "commands.git/elsewhere", "{line}");
    }
    for line in ["git status", "git -C pkg status", "cd out/deep && git status", "git --version", "git -C pkg version"]
    {
        assert_eq!(why(&judge, line), "allowed", "{line}");
    }
    // What the line makes itself is not there yet.
    let writes = ws.judge("presets = [\"inspect\", \"git-readonly\"]\nwrite = [\".\"]");
    for line in
        ["echo x > pkg/config; git -C pkg status", "for i in 1 2; do git -C pkg status; echo x > pkg/config; done"]
    {
        assert_eq!(why(&writes, line), "commands.git/elsewhere", "{line}");
    }
    assert_eq!(why(&writes, "echo x > pkg/f; git status"), "allowed");
    // A link in the place of `.git`.
    std::fs::rename(ws.at("ws/.git"), ws.at("elsewhere.git")).unwrap();
    symlink("../elsewhere.git", ws.at("ws/.git")).unwrap();
    assert_eq!(why(&judge, "git status"), "commands.git/elsewhere");
}

#[test]
fn reads_stay_in_what_may_be_read() {
    let ws = Workspace::new();
    for (target, name) in
        [("/etc/passwd", "ws/link"), ("../../important", "ws/pkg/imp"), ("/proc/self/environ", "ws/env")]
    {
        symlink(target, ws.at(name)).unwrap();
    }
    let judge = ws.judge("presets = [\"inspect\"]");
    for line in [
        "cat /etc/passwd",
        "cat /proc/self/environ",
        "grep -r root /etc",
        "cat link",
        "cat env",
        "cat ./lin*",
        "cat pkg/imp/keep",
        "cat ../important/keep",
        "cat pkg/imp/../important/keep",
        "cat < link",
        "head -n 1 < /etc/passwd",
        "wc -l -- *",
        "diff link a.py",
        "sort /etc/passwd",
        "ls /etc",
        "find / -name x",
        "sed -n 1p /etc/passwd",
        // Names, and whether there is a file.
        "echo /etc/pass*",
        "printf '%s\\n' pkg/imp/*",
        "for f in /etc/pass*; do echo x; done",
        "test -s /etc/passwd",
        "[ -r link ]",
    ] {
        assert!(
            ws.run(line)
                || line.starts_with("find")
                || line.starts_with("diff")
                || line.starts_with("grep")
                || line.starts_with("wc"),
            "no control: {line}"
        );
        assert_eq!(why(&judge, line), "commands.read/outside", "{line}");
    }
    for line in [
        "find -L . -name keep",
        "find . -follow",
        "grep -R keep pkg",
        "diff -r pkg out",
        "diff pkg out",
        "cat \"$HOME/x\"",
        "find . | xargs cat --",
    ] {
        assert_ne!(why(&judge, line), "allowed", "{line}");
    }
    for line in [
        "cat a.py",
        "cat ./*.py",
        "cat pkg/../a.py",
        "cd pkg && cat y",
        "grep -r keep .",
        "grep -R keep out",
        "diff a.py b.py",
        "cat - < a.py",
        "cat /dev/null",
        "diff <(cat a.py) <(cat b.py)",
        "ls pkg",
        "cat missing",
        "echo *.py",
        "for f in ./*.py; do echo x; done",
        "[ -f a.py ]",
        "[ ! -d missing ]",
        "[ -n /etc/passwd ]",
        "test -e \"$HOME/x\"",
        "find . -name y",
    ] {
        assert_eq!(why(&judge, line), "allowed", "{line}");
    }
    let absolute = format!("cat {}", ws.at("ws/a.py").display());
    assert_eq!(why(&judge, &absolute), "allowed");
    let named = ws.judge(&format!(
        "presets = [\"inspect\"]\nread = [\"pkg\", \"{}\"]\nwrite = [\"out\"]",
        ws.at("important").display()
    ));
    for line in ["cat pkg/y", "cat pkg/imp/keep", "cat ../important/keep", "cat out/x"] {
        assert_eq!(why(&named, line), "allowed", "{line}");
    }
    assert_eq!(why(&named, "cat a.py"), "commands.read/outside");
    let all = ws.judge("presets = [\"inspect\"]\nread = [\"/\"]");
    assert_eq!(why(&all, "cat /etc/passwd"), "allowed");
    assert!(all.lints().iter().any(|lint| lint.id == "commands/wide-read"));
    assert!(judge.lints().is_empty() && Path::new("/etc/passwd").exists());
}

/// A repository without its name: what is written there is git's configuration all the same.
#[test]
fn what_git_takes_for_a_repository_is_not_written() {
    let ws = Workspace::new();
    for folder in ["ws/out/lib/objects", "ws/out/lib/refs", "ws/out/half/objects", "ws/out/half/refs"] {
        std::fs::create_dir_all(ws.at(folder)).unwrap();
    }
    std::fs::write(ws.at("ws/out/lib/HEAD"), "ref: refs/heads/main\n").unwrap();
    let judge = ws.judge(WRITERS);
    let lines = [
        "echo x >> out/lib/config",
        "cp a.py out/lib/config",
        "cp a.py out/lib",
        "tee out/lib/hooks/post-checkout < a.py",
        "echo x > out/half/HEAD",
    ];
    for line in lines {
        let why = why(&judge, line);
        assert!(why.starts_with("commands.write/"), "{line}: {why}");
    }
    assert_eq!(why(&judge, "echo x > out/half/config"), "allowed");
    assert!(ws.run("echo x >> out/lib/config") && ws.at("ws/out/lib/config").exists(), "without a judge it is written");
}
