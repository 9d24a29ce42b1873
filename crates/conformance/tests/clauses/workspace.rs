//! The workspace: not at all, read-only, directly, or with changes kept aside until they are applied.

use conformance::case::{BOTH, CONTAINERS, EVERY, PROCESS};
use conformance::fixture::{text, there};
use conformance::{Case, CaseResult, Cell, Fixture, Tier, check};
use policy::ClauseId;

pub(crate) const CASES: &[Case] = &[
    Case {
        clause: ClauseId::Workspace,
        backends: EVERY,
        sentence: "none: the caller's folder is not there",
        cell: Cell::Enforced(none),
    },
    Case {
        clause: ClauseId::Workspace,
        backends: EVERY,
        sentence: "ro: read and not written",
        cell: Cell::Enforced(read_only),
    },
    Case {
        clause: ClauseId::Workspace,
        backends: BOTH,
        sentence: "rw: written on the host as its owner, and nothing outside it",
        cell: Cell::Enforced(read_write),
    },
    Case {
        clause: ClauseId::Workspace,
        backends: CONTAINERS,
        sentence: "overlay: the host changes by `apply` alone",
        cell: Cell::Enforced(overlay),
    },
    Case {
        clause: ClauseId::Workspace,
        backends: EVERY,
        sentence: "copy: the host changes by `apply` alone",
        cell: Cell::Enforced(copy),
    },
    Case {
        clause: ClauseId::Workspace,
        backends: EVERY,
        sentence: "`apply` refuses what was changed on the host meanwhile, and takes nothing",
        cell: Cell::Enforced(conflict),
    },
    Case {
        clause: ClauseId::Workspace,
        backends: PROCESS,
        sentence: "overlay is refused",
        cell: Cell::Refused(&["workspace.path=.", "workspace.mode=overlay"], "workspace/overlay-needs-container"),
    },
    Case {
        clause: ClauseId::Workspace,
        backends: PROCESS,
        sentence: "another place is refused",
        cell: Cell::Refused(
            &["workspace.path=.", "workspace.mode=ro", "workspace.at=/elsewhere"],
            "workspace/moved-needs-container",
        ),
    },
];

/// A tree, and the values that show it so.
fn tree(scene: &Fixture, mode: &str) -> Result<(std::path::PathBuf, [String; 2]), conformance::CaseError> {
    scene.file("tree/kept", "kept")?;
    scene.file("tree/changed", "before")?;
    scene.file("tree/removed", "removed")?;
    let tree = scene.work().join("tree");
    let values = [format!("workspace.path={}", tree.display()), format!("workspace.mode={mode}")];
    Ok((tree, values))
}

const CHANGE: &str =
    "set -e; cat kept; echo after > changed; rm removed; mkdir new; echo 1 > new/file; chmod 4755 new/file || true";

fn none(scene: &Fixture) -> CaseResult {
    let (tree, _) = tree(scene, "none")?;
    let probe = format!("cd {} && cat kept", tree.display());
    scene.control_shell(&probe)?;
    let ended = scene.shell(&[], &probe)?;
    check(ended.code != Some(0) && !ended.out().contains("kept"), || ended.said())
}

fn read_only(scene: &Fixture) -> CaseResult {
    let (tree, values) = tree(scene, "ro")?;
    let probe = "cat kept; echo x > new || echo x > changed || rm removed || mkdir folder || ln -s a b";
    let ended = scene.shell(&[&values[0], &values[1]], probe)?;
    check(ended.out() == "kept" && ended.code != Some(0), || ended.said())?;
    check(text(&tree.join("changed"))? == "before" && there(&tree.join("removed")), || "changed".to_owned())?;
    check(!there(&tree.join("new")), || "something new is there".to_owned())?;
    scene.control_shell(&format!("cd {} && {probe}", tree.display()))?;
    check(there(&tree.join("new")), || "the control wrote nothing".to_owned())
}

fn read_write(scene: &Fixture) -> CaseResult {
    use std::os::unix::fs::MetadataExt as _;
    let (tree, values) = tree(scene, "rw")?;
    let beside = scene.dir("beside")?;
    let probe = format!("{CHANGE}; echo x > {}/new", beside.display());
    let prefer = "prefer=[\"limits.disk\",\"limits.files\"]";
    let protect = if scene.tier == Tier::Process { "fs.protect=false" } else { "fs.protect=true" };
    let ended = scene.shell(&[&values[0], &values[1], prefer, protect], &probe)?;
    check(text(&tree.join("changed"))? == "after\n" && !there(&tree.join("removed")), || ended.said())?;
    check(ended.code != Some(0) && !there(&beside.join("new")), || ended.said())?;
    let owner = tree.symlink_metadata()?.uid();
    let made = tree.join("new/file").symlink_metadata()?;
    check(made.uid() == owner, || format!("the new file belongs to {}", made.uid()))?;
    scene.control_shell(&format!("echo x > {}/new", beside.display()))?;
    check(there(&beside.join("new")), || "the control wrote nothing".to_owned())
}

fn layered(scene: &Fixture, mode: &str) -> CaseResult {
    use std::os::unix::fs::MetadataExt as _;
    let (tree, values) = tree(scene, mode)?;
    let ended = scene.shell(&[&values[0], &values[1]], CHANGE)?;
    check(ended.code == Some(0) && ended.out() == "kept", || ended.said())?;
    check(text(&tree.join("changed"))? == "before" && there(&tree.join("removed")), || {
        "the host was changed".to_owned()
    })?;
    check(!there(&tree.join("new")), || "the host was changed".to_owned())?;
    let run = ended.text("/run").to_owned();
    let diff = scene.product(&["diff", &run])?.end()?;
    check(diff.code == Some(1) && diff.out().contains("changed") && diff.out().contains("removed"), || diff.said())?;
    let applied = scene.product(&["apply", &run])?.end()?;
    check(applied.code == Some(0), || format!("apply: {}", applied.said()))?;
    check(text(&tree.join("changed"))? == "after\n" && !there(&tree.join("removed")), || applied.said())?;
    let made = tree.join("new/file").symlink_metadata()?;
    check(made.mode() & 0o6000 == 0, || "a set-uid bit reached the host".to_owned())
}

fn overlay(scene: &Fixture) -> CaseResult {
    layered(scene, "overlay")
}

fn copy(scene: &Fixture) -> CaseResult {
    layered(scene, "copy")
}

fn conflict(scene: &Fixture) -> CaseResult {
    let (tree, values) = tree(scene, "copy")?;
    let ended = scene.shell(&[&values[0], &values[1]], CHANGE)?;
    check(ended.code == Some(0), || ended.said())?;
    scene.file("tree/changed", "by somebody else")?;
    let applied = scene.product(&["apply", ended.text("/run")])?.end()?;
    check(applied.code == Some(1), || format!("apply: {}", applied.said()))?;
    check(text(&tree.join("changed"))? == "by somebody else", || "it was overwritten".to_owned())?;
    check(there(&tree.join("removed")) && !there(&tree.join("new")), || "a part was applied".to_owned())
}
