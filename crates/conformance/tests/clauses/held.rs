//! Control files of a read-write workspace while somebody outside works in it too: the kernel takes a read-only mount away
//! when what it stands on is replaced from outside.

use std::path::{Path, PathBuf};

use conformance::case::CONTAINER;
use conformance::live::{Live, until};
use conformance::scene::{text, there};
use conformance::{Case, Cell, Held, Scene, Wrong, check};
use policy::ClauseId;

pub(crate) const CASES: &[Case] = &[
    Case {
        clause: ClauseId::FsProtect,
        tiers: CONTAINER,
        sentence: "git outside finds its configuration locked while a run lasts, and not after it",
        cell: Cell::Enforced(locked),
    },
    Case {
        clause: ClauseId::FsProtect,
        tiers: CONTAINER,
        sentence: "a control file that is replaced from outside ends the run, and is put back",
        cell: Cell::Enforced(replaced),
    },
    Case {
        clause: ClauseId::FsProtect,
        tiers: CONTAINER,
        sentence: "a folder of control files that is replaced from outside ends the run, and what was planted is put aside",
        cell: Cell::Enforced(folder),
    },
    Case {
        clause: ClauseId::FsProtect,
        tiers: CONTAINER,
        sentence: "another name of a control file is as protected",
        cell: Cell::Enforced(linked),
    },
    Case {
        clause: ClauseId::FsProtect,
        tiers: CONTAINER,
        sentence: "work that goes on outside meanwhile, commits included, disturbs no run",
        cell: Cell::Enforced(legitimate),
    },
    Case {
        clause: ClauseId::FsProtect,
        tiers: CONTAINER,
        sentence: "two runs in one workspace: the end of the first takes nothing from the second, and nothing stays after both",
        cell: Cell::Enforced(overlapping),
    },
];

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);
const GIT: &str = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b \
                   GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'; set -e; ";

fn tree(scene: &Scene) -> Result<PathBuf, Wrong> {
    scene.file("tree/.mcp.json", "{}")?;
    scene.file("tree/.vscode/tasks.json", "{}")?;
    let tree = scene.work().join("tree");
    scene.control_shell(&format!(
        "{GIT} cd {} && git init -q -b main . && echo one >a && git add a && git commit -qm one && \
         if [ \"$(id -u)\" = 0 ]; then chown -R --reference=.mcp.json .; fi",
        tree.display()
    ))?;
    Ok(tree)
}

/// A run that has begun, and goes on when `go` appears.
fn begin(scene: &Scene, tree: &Path, more: &[&str], script: &str) -> Result<Live, Wrong> {
    begin_as(scene, tree, "", more, script)
}

/// As [`begin`], one of several: it goes on when `go-NAME` appears.
fn begin_as(scene: &Scene, tree: &Path, name: &str, more: &[&str], script: &str) -> Result<Live, Wrong> {
    let named = |what: &str| if name.is_empty() { what.to_owned() } else { format!("{what}-{name}") };
    let (ready, waits_for) = (named("ready"), named("go"));
    let path = format!("workspace.path={}", tree.display());
    let mut values = vec![path.as_str(), "workspace.mode=rw", "prefer=[\"limits.disk\",\"limits.files\"]"];
    values.extend(["syscalls.profile=default", "limits.wall=60s"]);
    values.extend(more);
    let script = format!("touch {ready}; while ! [ -e {waits_for} ]; do sleep 0.02; done; {script}");
    let live = scene.start(&Scene::values(&values), &["/bin/sh", "-c", &script])?;
    check(until(PATIENCE, || there(&tree.join(&ready))), || "the run did not begin".to_owned())?;
    Ok(live)
}

/// As an editor that saves by rename.
fn replace(scene: &Scene, tree: &Path, name: &str, content: &str) -> Held {
    let new = scene.file("tree/new", content)?;
    Ok(std::fs::rename(new, tree.join(name))?)
}

fn go(scene: &Scene) -> Held {
    scene.file("tree/go", "").map(drop)
}

fn locked(scene: &Scene) -> Held {
    let tree = tree(scene)?;
    let before = text(&tree.join(".git/config"))?;
    let live = begin(
        scene,
        &tree,
        &[],
        "(echo planted >>.git/config) 2>/dev/null || (echo x >>.git/config.lock) 2>/dev/null || echo held",
    )?;
    let config = format!("{GIT} git -C {} config user.name x", tree.display());
    let outside = scene.bare(&["/bin/sh", "-c", &config])?;
    check(outside.code != Some(0) && outside.said().contains("lock"), || outside.said())?;
    go(scene)?;
    let ended = live.end()?;
    check(ended.code == Some(0) && ended.out() == "held", || ended.said())?;
    check(text(&tree.join(".git/config"))? == before, || "the configuration was changed".to_owned())?;
    scene.control_shell(&config)?;
    check(text(&tree.join(".git/config"))?.contains("name = x"), || "the control changed nothing".to_owned())
}

const SPIN: &str = "until (echo planted >>FILE) 2>/dev/null; do :; done; sleep 15";

fn replaced(scene: &Scene) -> Held {
    let tree = tree(scene)?;
    let script = SPIN.replace("FILE", ".mcp.json");
    let live = begin(scene, &tree, &[], &script)?;
    go(scene)?;
    replace(scene, &tree, ".mcp.json", "{\"mine\": 1}")?;
    let ended = live.end()?;
    check(ended.code == Some(125) && ended.text("/outcome/message").contains(".mcp.json"), || ended.said())?;
    check(ended.violations().contains(&"fs.protect/slipped"), || format!("not told: {:?}", ended.violations()))?;
    check(text(&tree.join(".mcp.json"))? == "{}", || "it is not as it was at the start".to_owned())?;
    for name in ["ready", "go"] {
        std::fs::remove_file(tree.join(name))?;
    }
    let live = begin(scene, &tree, &["fs.protect=false"], &script.replace("; sleep 15", ""))?;
    go(scene)?;
    check(live.end()?.code == Some(0), || "the control did not run".to_owned())?;
    check(text(&tree.join(".mcp.json"))?.contains("planted"), || "the control wrote nothing".to_owned())
}

fn folder(scene: &Scene) -> Held {
    let tree = tree(scene)?;
    let live = begin(scene, &tree, &[], &SPIN.replace("FILE", ".git/hooks/pre-commit"))?;
    go(scene)?;
    let hooks = tree.join(".git/hooks");
    std::fs::rename(&hooks, tree.join(".git/hooks.old"))?;
    scene.dir("tree/.git/hooks")?;
    let ended = live.end()?;
    check(ended.code == Some(125) && ended.text("/outcome/message").contains(".git/hooks"), || ended.said())?;
    check(!there(&hooks.join("pre-commit")), || "the hook stayed".to_owned())?;
    let control = format!("echo planted >>{}", tree.join(".git/hooks.old/pre-commit").display());
    scene.control_shell(&control).map(drop)
}

fn linked(scene: &Scene) -> Held {
    let tree = tree(scene)?;
    scene.dir("tree/node_modules/deep")?;
    std::fs::hard_link(tree.join(".mcp.json"), tree.join("node_modules/deep/x"))?;
    let write = "echo planted >>node_modules/deep/x";
    let live = begin(scene, &tree, &[], &format!("({write}) 2>/dev/null || echo held"))?;
    go(scene)?;
    let ended = live.end()?;
    check(ended.code == Some(0) && ended.out() == "held", || ended.said())?;
    check(text(&tree.join(".mcp.json"))? == "{}", || "it was written by its other name".to_owned())?;
    scene.control_shell(&format!("cd {} && {write}", tree.display()))?;
    check(text(&tree.join(".mcp.json"))?.contains("planted"), || "the control wrote nothing".to_owned())
}

fn legitimate(scene: &Scene) -> Held {
    let tree = tree(scene)?;
    let commit = "echo inside >b; git add b; git commit -qm inside; sleep 0.3; echo done";
    let live = begin(scene, &tree, &[], &format!("{GIT} {commit}"))?;
    replace(scene, &tree, "a", "by rename")?;
    std::fs::write(tree.join(".vscode/tasks.json"), "{\"mine\": 1}")?;
    scene.control_shell(&format!(
        "{GIT} cd {} && git commit -qam outside && git branch other && \
         if [ \"$(id -u)\" = 0 ]; then chown -R --reference=ready .git; fi",
        tree.display()
    ))?;
    go(scene)?;
    let ended = live.end()?;
    check(ended.code == Some(0) && ended.out() == "done", || ended.said())?;
    let log = scene.control_shell(&format!("{GIT} git -C {} log --format=%s", tree.display()))?;
    check(log.out() == "inside\noutside\none", || log.said())?;
    check(text(&tree.join(".vscode/tasks.json"))?.contains("mine"), || "what was saved outside is gone".to_owned())
}

const PLANT: &str = "(echo planted >.envrc) 2>/dev/null || mkdir .idea/x 2>/dev/null || (echo x >.git/config.lock) 2>/dev/null || echo held";

fn overlapping(scene: &Scene) -> Held {
    let tree = tree(scene)?;
    let missing = [".envrc", ".idea", ".git/config.lock"].map(|name| tree.join(name));
    check(!missing.iter().any(|path| there(path)), || "the workspace has them already".to_owned())?;
    let first = begin(scene, &tree, &[], "true")?;
    let second = begin_as(scene, &tree, "second", &[], PLANT)?;
    go(scene)?;
    check(first.end()?.code == Some(0), || "the first run failed".to_owned())?;
    check(missing.iter().all(|path| there(path)), || "the first run took what the second needs".to_owned())?;
    scene.file("tree/go-second", "")?;
    let ended = second.end()?;
    check(ended.code == Some(0) && ended.out() == "held", || ended.said())?;
    check(ended.violations().iter().all(|id| *id != "fs.protect/slipped"), || "told of what nobody did".to_owned())?;
    check(!missing.iter().any(|path| there(path)), || "something stayed".to_owned())?;
    let free = begin_as(scene, &tree, "free", &["fs.protect=false"], PLANT)?;
    scene.file("tree/go-free", "")?;
    check(free.end()?.out() != "held", || "the control was held".to_owned())
}
