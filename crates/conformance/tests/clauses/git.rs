//! Git, where its folder lies elsewhere: a linked worktree, with the real git on both sides.

use std::path::PathBuf;

use conformance::case::CONTAINER;
use conformance::fixture::{text, there};
use conformance::{Case, CaseError, CaseResult, Cell, Fixture, check};
use policy::ClauseId;

pub(crate) const CASES: &[Case] = &[
    Case {
        clause: ClauseId::Workspace,
        backends: CONTAINER,
        sentence: "rw: git works in a linked worktree, and of its shared folder only what git may change is changed",
        cell: Cell::Enforced(linked_worktree),
    },
    Case {
        clause: ClauseId::FsProtect,
        backends: CONTAINER,
        sentence: "what steers git in the shared folder of a linked worktree is not planted, not even where it is missing",
        cell: Cell::Enforced(steering),
    },
    Case {
        clause: ClauseId::Workspace,
        backends: CONTAINER,
        sentence: "overlay and copy: the report says that a commit to a folder elsewhere ends with the run",
        cell: Cell::Enforced(told),
    },
    Case {
        clause: ClauseId::FsProtect,
        backends: CONTAINER,
        sentence: "rw: of git's configuration the keys that steer nothing are taken over, and the others are told",
        cell: Cell::Enforced(keys),
    },
];

const NAMES: &str = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b \
                     GIT_CONFIG_NOSYSTEM=1; set -e; ";
/// For the controls: the repository belongs to the ordinary user, whoever looks at it.
const ANYBODYS: &str = "export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'; ";
const MORE: [&str; 3] = ["syscalls.profile=default", "limits.pids=128", "prefer=[\"limits.disk\",\"limits.files\"]"];

/// A repository, a worktree linked to it, a branch that is packed and one that is not.
fn repository(scene: &Fixture) -> Result<(PathBuf, PathBuf), CaseError> {
    let main = scene.dir("main")?;
    scene.control_shell(&format!(
        "{NAMES}{ANYBODYS} cd {0} && git init -q -b main . && echo one >a && git add a && git commit -qm one && git branch packed \
         && git pack-refs --all && git worktree add -q ../linked -b linked && git branch loose && if [ \"$(id -u)\" = 0 ]; then chown -R --reference=. . ../linked; fi",
        main.display()
    ))?;
    Ok((main, scene.work().join("linked")))
}

fn run(scene: &Fixture, linked: &std::path::Path, mode: &str, script: &str) -> Result<conformance::Ended, CaseError> {
    let values = [format!("workspace.path={}", linked.display()), format!("workspace.mode={mode}")];
    let mut all = vec![values[0].as_str(), values[1].as_str()];
    all.extend(MORE);
    scene.shell(&all, &format!("{NAMES} {script}"))
}

fn linked_worktree(scene: &Fixture) -> CaseResult {
    let (main, linked) = repository(scene)?;
    let work = "echo two >a; git commit -qam two; git branch x; git branch -d x 2>/dev/null; git branch -D loose 2>/dev/null; \
                echo d >a; git stash -q; git stash drop -q; git tag v1; git gc -q; git fsck; \
                git pack-refs --all; git config core.pager planted; echo all-done";
    let ended = run(scene, &linked, "rw", work)?;
    check(ended.code == Some(0) && ended.out().contains("all-done"), || ended.said())?;
    // The other side: everything is there, and nothing that git believed packed is lost.
    let git = |words: &str| scene.control_shell(&format!("{ANYBODYS} git -C {} {words}", main.display()));
    git("fsck --strict")?;
    for name in ["heads/main", "heads/packed", "heads/linked", "tags/v1"] {
        git(&format!("rev-parse --verify -q refs/{name}"))?;
    }
    check(git("log --format=%s linked")?.out().starts_with("two"), || "the commit is not there".to_owned())?;
    // Its index came with the branch: nothing waits to take the commit back.
    let status = scene.control_shell(&format!("{ANYBODYS} git -C {} status --porcelain", linked.display()))?;
    check(status.out().is_empty(), || format!("the worktree is not clean: {}", status.out()))?;
    check(git("branch --list loose x")?.out().is_empty(), || "a removed branch is there".to_owned())?;
    check(!text(&main.join(".git/config"))?.contains("planted"), || "the configuration was changed".to_owned())
}

fn steering(scene: &Fixture) -> CaseResult {
    let (main, linked) = repository(scene)?;
    let git = main.join(".git");
    std::fs::remove_dir_all(git.join("info"))?;
    let names = [
        "commondir",
        "config.worktree",
        "info/attributes",
        "hooks/pre-commit",
        "rebase-merge/git-rebase-todo",
        "config",
    ];
    let before = text(&git.join("config"))?;
    let plant = names.map(|name| {
        format!("(mkdir -p \"$(dirname {0}/{name})\"; echo planted >>{0}/{name}) 2>/dev/null || true", git.display())
    });
    let ended = run(scene, &linked, "rw", &plant.join("; "))?;
    check(ended.code == Some(0), || ended.said())?;
    for name in &names[..5] {
        check(!there(&git.join(name)), || format!("`{name}` was planted"))?;
    }
    check(text(&git.join("config"))? == before, || "the configuration was changed".to_owned())?;
    scene.control_shell(&plant.join("; "))?;
    check(names.iter().all(|name| text(&git.join(name)).is_ok_and(|text| text.contains("planted"))), || {
        "the control planted nothing".to_owned()
    })
}

fn told(scene: &Fixture) -> CaseResult {
    let (main, linked) = repository(scene)?;
    for mode in ["overlay", "copy"] {
        let ended = run(scene, &linked, mode, "echo two >a; git commit -qam two; git log --format=%s -1")?;
        check(ended.code == Some(0) && ended.out().contains("two"), || ended.said())?;
        let notes = ended.report.pointer("/workspace/notes").map(ToString::to_string).unwrap_or_default();
        check(notes.contains("a commit made inside ends with the run"), || format!("{mode}: {notes}"))?;
        let log = scene.control_shell(&format!("{ANYBODYS} git -C {} log --format=%s linked", main.display()))?;
        check(log.out() == "one", || format!("{mode}: the host's branch moved: {}", log.out()))?;
    }
    Ok(())
}

fn keys(scene: &Fixture) -> CaseResult {
    let (main, _) = repository(scene)?;
    let config = main.join(".git/config");
    let before = format!("# by hand\n{}", text(&config)?);
    std::fs::write(&config, &before)?;
    let work = "git config user.name agent; git config init.defaultbranch trunk; git remote add up https://git.example/x.git; git config branch.main.description d; \
                git config core.fsmonitor ./planted; git config alias.st '!./planted'; git config remote.evil.url ./planted";
    let ended = run(scene, &main, "rw", work)?;
    check(ended.code == Some(0), || ended.said())?;
    let after = text(&config)?;
    check(!after.contains("planted") && !after.contains("agent") && after.starts_with(&before), || {
        format!("the host's lines: {after}")
    })?;
    let git = |words: &str| scene.control_shell(&format!("{ANYBODYS} git -C {} {words}", main.display()));
    let of_git = [("init.defaultbranch", "trunk"), ("branch.main.description", "d")];
    for (key, value) in of_git {
        check(git(&format!("config {key}"))?.out() == value, || format!("{key} was not taken over: {after}"))?;
    }
    let told = ended.report.pointer("/violations").map(ToString::to_string).unwrap_or_default();
    for key in ["alias.st", "core.fsmonitor", "remote.evil.url", "remote.up.url"] {
        check(told.contains(key), || format!("{key} is not told: {told}"))?;
    }
    // The same program without us.
    scene.control_shell(&format!("cd {} && {ANYBODYS} {work}", main.display()))?;
    check(text(&config)?.contains("planted"), || "the control planted nothing".to_owned())
}
