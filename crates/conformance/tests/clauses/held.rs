//! Control files of a read-write workspace while somebody outside works in it too: the kernel takes a read-only mount away
//! when what it stands on is replaced from outside.

use std::path::{Path, PathBuf};

use conformance::case::{BOTH, CONTAINER};
use conformance::fixture::{text, there};
use conformance::live::{Live, until};
use conformance::{Case, CaseError, CaseResult, Cell, Fixture, check};
use policy::ClauseId;

pub(crate) const CASES: &[Case] = &[
    Case {
        clause: ClauseId::FsProtect,
        backends: CONTAINER,
        sentence: "what a run plants in the moment in which its supervisor is killed is put aside by the next start, or gc",
        cell: Cell::Enforced(killed),
    },
    Case {
        clause: ClauseId::FsProtect,
        backends: BOTH,
        sentence: "a write grant with control files in it is refused, and in another one none stays that the run made",
        cell: Cell::Enforced(granted),
    },
    Case {
        clause: ClauseId::FsProtect,
        backends: CONTAINER,
        sentence: "a configuration of git's that names a program stays with the run, a plain one is taken over",
        cell: Cell::Enforced(locked),
    },
    Case {
        clause: ClauseId::FsProtect,
        backends: CONTAINER,
        sentence: "a control file that is replaced from outside ends the run, and is put back",
        cell: Cell::Enforced(replaced),
    },
    Case {
        clause: ClauseId::FsProtect,
        backends: CONTAINER,
        sentence: "a folder of git's that is replaced from outside ends the run, and nothing is planted in either",
        cell: Cell::Enforced(folder),
    },
    Case {
        clause: ClauseId::FsProtect,
        backends: CONTAINER,
        sentence: "another name of a control file is as protected",
        cell: Cell::Enforced(linked),
    },
    Case {
        clause: ClauseId::FsProtect,
        backends: CONTAINER,
        sentence: "work that goes on outside meanwhile disturbs no run",
        cell: Cell::Enforced(legitimate),
    },
    Case {
        clause: ClauseId::FsProtect,
        backends: CONTAINER,
        sentence: "commits on both sides meanwhile: the host's branch stays, and the run's commit is kept and told",
        cell: Cell::Enforced(both_sides),
    },
    Case {
        clause: ClauseId::FsProtect,
        backends: CONTAINER,
        sentence: "two runs in one workspace: what either makes is put aside, and the end of the first changes nothing for the second",
        cell: Cell::Enforced(overlapping),
    },
];

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);
const GIT: &str = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b \
                   GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'; set -e; ";

fn tree(scene: &Fixture) -> Result<PathBuf, CaseError> {
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
fn begin(scene: &Fixture, tree: &Path, more: &[&str], script: &str) -> Result<Live, CaseError> {
    begin_as(scene, tree, "", more, script)
}

/// As [`begin`], one of several: it goes on when `go-NAME` appears.
fn begin_as(scene: &Fixture, tree: &Path, name: &str, more: &[&str], script: &str) -> Result<Live, CaseError> {
    let named = |what: &str| if name.is_empty() { what.to_owned() } else { format!("{what}-{name}") };
    let (ready, waits_for) = (named("ready"), named("go"));
    let path = format!("workspace.path={}", tree.display());
    let mut values = vec![path.as_str(), "workspace.mode=rw", "prefer=[\"limits.disk\",\"limits.files\"]"];
    values.extend(["syscalls.profile=default", "limits.wall=60s"]);
    values.extend(more);
    let script = format!("touch {ready}; while ! [ -e {waits_for} ]; do sleep 0.02; done; {script}");
    let live = scene.start(&Fixture::values(&values), &["/bin/sh", "-c", &script])?;
    check(until(PATIENCE, || there(&tree.join(&ready))), || "the run did not begin".to_owned())?;
    Ok(live)
}

/// As an editor that saves by rename.
fn replace(scene: &Fixture, tree: &Path, name: &str, content: &str) -> CaseResult {
    let new = scene.file("tree/new", content)?;
    Ok(std::fs::rename(new, tree.join(name))?)
}

fn go(scene: &Fixture) -> CaseResult {
    scene.file("tree/go", "").map(drop)
}

/// A configuration that names a program stays with the run, and one that names none is taken over.
fn locked(scene: &Fixture) -> CaseResult {
    let tree = tree(scene)?;
    let before = text(&tree.join(".git/config"))?;
    let evil = "git config core.fsmonitor planted; echo held";
    let live = begin(scene, &tree, &[], evil)?;
    go(scene)?;
    let ended = live.end()?;
    check(ended.code == Some(0) && ended.violations().contains(&"fs.protect/kept"), || ended.said())?;
    check(text(&tree.join(".git/config"))? == before, || "the configuration was changed".to_owned())?;
    for name in ["ready", "go"] {
        std::fs::remove_file(tree.join(name))?;
    }
    let live = begin(scene, &tree, &[], "git config init.defaultbranch inside")?;
    go(scene)?;
    let ended = live.end()?;
    check(ended.code == Some(0) && ended.violations().is_empty(), || ended.said())?;
    check(text(&tree.join(".git/config"))?.contains("branch = inside"), || {
        "a plain key was not taken over".to_owned()
    })?;
    scene.control_shell(&format!("{GIT} cd {} && {evil}", tree.display()))?;
    check(text(&tree.join(".git/config"))?.contains("planted"), || "the control changed nothing".to_owned())
}

const SPIN: &str = "until (echo planted >>FILE) 2>/dev/null; do :; done; sleep 15";

fn replaced(scene: &Fixture) -> CaseResult {
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

fn folder(scene: &Fixture) -> CaseResult {
    let tree = tree(scene)?;
    let live = begin(scene, &tree, &[], &SPIN.replace("FILE", ".git/hooks/pre-commit"))?;
    let git = tree.join(".git");
    std::fs::rename(&git, tree.join("old"))?;
    scene.dir("tree/.git")?;
    scene.dir("tree/.git/hooks")?;
    go(scene)?;
    let ended = live.end()?;
    check(ended.code == Some(125) && ended.text("/outcome/message").contains(".git"), || ended.said())?;
    for hook in ["tree/.git/hooks/pre-commit", "tree/old/hooks/pre-commit"] {
        check(!there(&scene.work().join(hook)), || format!("`{hook}` stayed: {}", ended.report))?;
    }
    let control = format!("echo planted >>{}", tree.join("old/hooks/pre-commit").display());
    scene.control_shell(&control).map(drop)
}

fn linked(scene: &Fixture) -> CaseResult {
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

fn legitimate(scene: &Fixture) -> CaseResult {
    let tree = tree(scene)?;
    let commit = "echo inside >b; git add b; git commit -qm inside; echo done";
    let live = begin(scene, &tree, &[], &format!("{GIT} {commit}"))?;
    replace(scene, &tree, "a", "by rename")?;
    std::fs::write(tree.join(".vscode/tasks.json"), "{\"mine\": 1}")?;
    go(scene)?;
    let ended = live.end()?;
    check(ended.code == Some(0) && ended.out() == "done" && ended.violations().is_empty(), || ended.said())?;
    let log = scene.control_shell(&format!("{GIT} git -C {} log --format=%s", tree.display()))?;
    check(log.out() == "inside\none", || log.said())?;
    check(text(&tree.join(".vscode/tasks.json"))?.contains("mine"), || "what was saved outside is gone".to_owned())
}

/// Somebody commits outside while the run commits inside: neither is lost.
fn both_sides(scene: &Fixture) -> CaseResult {
    both(scene, "true")?;
    both(&scene.fresh()?, "git gc -q")
}

fn both(scene: &Fixture, packs: &str) -> CaseResult {
    let tree = tree(scene)?;
    let commit = format!("echo inside >b; git add b; git commit -qm inside; {packs}; git rev-parse HEAD");
    let live = begin(scene, &tree, &[], &format!("{GIT} {commit}"))?;
    let outside = format!(
        "{GIT} cd {} && echo outside >c && git add c && git commit -qm outside && \
         if [ \"$(id -u)\" = 0 ]; then chown -R --reference=ready .git; fi",
        tree.display()
    );
    scene.control_shell(&outside)?;
    go(scene)?;
    let ended = live.end()?;
    let told = ended.report.pointer("/violations").map(ToString::to_string).unwrap_or_default();
    let named = format!("`git branch main-by-run {}`", ended.out());
    check(ended.code == Some(0) && told.contains(&named), || ended.said())?;
    let git = |words: &str| scene.control_shell(&format!("{GIT} git -C {} {words}", tree.display()));
    check(git("log -1 --format=%s main")?.out() == "outside", || "the branch of the host is another".to_owned())?;
    check(git(&format!("log -1 --format=%s {}", ended.out()))?.out() == "inside", || "the commit is lost".to_owned())
}

fn overlapping(scene: &Fixture) -> CaseResult {
    let tree = tree(scene)?;
    let first = begin(scene, &tree, &[], "true")?;
    let second = begin_as(scene, &tree, "second", &[], PLANT)?;
    go(scene)?;
    check(first.end()?.code == Some(0), || "the first run failed".to_owned())?;
    scene.file("tree/go-second", "")?;
    let ended = second.end()?;
    check(ended.code == Some(0) && ended.violations().contains(&"fs.protect/slipped"), || ended.said())?;
    check(!there(&tree.join(".envrc")) && !there(&tree.join("deep/.git")), || "something stayed".to_owned())?;
    let free = begin_as(scene, &tree, "free", &["fs.protect=false"], PLANT)?;
    scene.file("tree/go-free", "")?;
    check(free.end()?.code == Some(0), || "the control failed".to_owned())?;
    check(there(&tree.join(".envrc")) && there(&tree.join("deep/.git")), || "the control planted nothing".to_owned())
}

const PLANT: &str = "echo planted >.envrc; mkdir -p deep/.git/hooks; sleep 0.3";

fn granted(scene: &Fixture) -> CaseResult {
    let out = scene.dir("out")?;
    let at = out.display();
    let prefer = "prefer=[\"limits.disk\",\"limits.files\"]";
    let grant = format!("fs.write=[\"{at}\"]");
    let plant = format!(
        "echo 1 >{at}/result; echo planted >{at}/.envrc; mkdir -p {at}/a/.git/hooks; echo planted >{at}/a/.git/hooks/x"
    );
    let ended = scene.shell(&[&grant, prefer], &format!("{plant}; true"))?;
    check(ended.code == Some(0) && ended.violations().contains(&"fs.protect/slipped"), || ended.said())?;
    check(there(&out.join("result")), || "ordinary work did not pass".to_owned())?;
    let planted = || [".envrc", "a/.git"].into_iter().find(|name| there(&out.join(name)));
    check(planted().is_none(), || format!("{:?} was planted", planted()))?;
    // As it would be without: by the clause, by the spelling of the grant, and by the plain program.
    let danger = format!("fs.dangerous-write=[\"{at}\"]");
    for values in [[&grant, prefer, "fs.protect=false"], [&danger, prefer, "fs.protect=true"]] {
        let ended = scene.shell(&values, &plant)?;
        check(ended.code == Some(0) && planted().is_some(), || ended.said())?;
        scene.control_shell(&format!("rm -rf {at}/.envrc {at}/a"))?;
    }
    scene.control_shell(&plant)?;
    for name in [".envrc", "a"] {
        let ended = scene.shell(&[&grant, prefer], &format!("echo 2 >{at}/result"))?;
        check(ended.code == Some(126) && ended.refusals() == ["fs.protect/in-grant"], || ended.said())?;
        scene.control_shell(&format!("rm -rf {at}/{name}"))?;
    }
    let ended = scene.shell(&[&grant, prefer], &format!("echo 2 >{at}/result"))?;
    check(ended.code == Some(0) && text(&out.join("result"))? == "2\n", || ended.said())?;
    named_for_its_place(scene)
}

/// A folder that is granted may itself be one of control files, or the place of some: by its path in the grant none is known.
fn named_for_its_place(scene: &Fixture) -> CaseResult {
    let prefer = "prefer=[\"limits.disk\",\"limits.files\"]";
    for name in ["p/.vscode", "p/a/.cursor/rules", "p/.hg", "p/.config"] {
        let at = scene.dir(name)?;
        let write = format!("echo planted >{}/hgrc", at.display());
        let grants = |clause: &str| format!("fs.{clause}=[\"{}\"]", at.display());
        let ended = scene.shell(&[&grants("write"), prefer], &write)?;
        check(ended.code == Some(126) && ended.refusals() == ["fs.protect/in-grant"], || ended.said())?;
        check(!there(&at.join("hgrc")), || format!("{name} was written to"))?;
        for values in
            [[&grants("write"), prefer, "fs.protect=false"], [&grants("dangerous-write"), prefer, "fs.protect=true"]]
        {
            let ended = scene.shell(&values, &write)?;
            check(ended.code == Some(0) && there(&at.join("hgrc")), || ended.said())?;
            std::fs::remove_file(at.join("hgrc"))?;
        }
    }
    Ok(())
}

fn killed(scene: &Fixture) -> CaseResult {
    let tree = tree(scene)?;
    let plant = "mkdir -p deep/.git/hooks && echo planted >deep/.git/hooks/x && echo planted >.envrc && echo 1 >plain && sleep 60";
    let planted = [tree.join("deep/.git"), tree.join(".envrc")];
    for sweeper in ["gc", "run"] {
        let live = begin(scene, &tree, &[], plant)?;
        // A supervisor that stands still (SIGSTOP) sees nothing, as one that is killed in that moment.
        live.signal(19)?;
        go(scene)?;
        check(until(PATIENCE, || there(&tree.join("plain"))), || "the run did not go on".to_owned())?;
        live.signal(9)?;
        live.end()?;
        check(planted.iter().all(|path| there(path)), || "the attack planted nothing".to_owned())?;
        let told = if sweeper == "gc" {
            scene.product(&["gc", "--json"])?.end()?.out()
        } else {
            scene.shell(&[], "true")?.report.pointer("/workspace/notes").map(ToString::to_string).unwrap_or_default()
        };
        check(planted.iter().all(|path| !there(path)), || format!("{sweeper} left it: {told}"))?;
        check(told.contains("deep/.git") && told.contains(".envrc"), || format!("{sweeper} told nothing: {told}"))?;
        check(there(&tree.join("plain")) && there(&tree.join(".git/HEAD")), || "ordinary work is gone".to_owned())?;
        for name in ["ready", "go", "plain"] {
            std::fs::remove_file(tree.join(name))?;
        }
    }
    Ok(())
}
