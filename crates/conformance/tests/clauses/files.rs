//! Grants, what is hidden in them, host sockets below them, and the control files that nobody may plant.

use std::os::unix::net::UnixListener;
use std::path::Path;

use conformance::case::{BOTH, CONTAINER, CONTAINERS, EVERY, PROCESS, TREES};
use conformance::fixture::{root, text, there};
use conformance::{Case, CaseResult, Cell, Fixture, Who, check};
use policy::ClauseId;

pub(crate) const CASES: &[Case] = &[
    Case {
        clause: ClauseId::FsRead,
        backends: EVERY,
        sentence: "a granted file is read and not written",
        cell: Cell::Enforced(read),
    },
    Case {
        clause: ClauseId::FsRead,
        backends: TREES,
        sentence: "a grant is seen where it was moved to, and nowhere else",
        cell: Cell::Enforced(moved),
    },
    Case {
        clause: ClauseId::FsRead,
        backends: PROCESS,
        sentence: "a moved grant is refused",
        cell: Cell::Refused(&["fs.read=[{from=\"/usr/share\",to=\"/shared\"}]"], "fs.read/moved-needs-container"),
    },
    Case {
        clause: ClauseId::FsWrite,
        backends: BOTH,
        sentence: "a write grant is written on the host, and nothing beside it",
        cell: Cell::Enforced(write),
    },
    Case {
        clause: ClauseId::FsWrite,
        backends: CONTAINER,
        sentence: "grants of root and of a second user are written as their owners' own, by root's run alone",
        cell: Cell::Enforced(write_as_owners),
    },
    Case {
        clause: ClauseId::FsWrite,
        backends: PROCESS,
        sentence: "a grant of root is refused, since nobody but root could write there",
        cell: Cell::Enforced(write_of_root),
    },
    Case {
        clause: ClauseId::FsWrite,
        backends: BOTH,
        sentence: "a write grant whose size nobody holds is refused",
        cell: Cell::Enforced(write_without_quota),
    },
    Case {
        clause: ClauseId::FsHide,
        backends: CONTAINERS,
        sentence: "what matches is not visible in a layered workspace, and stays on the host",
        cell: Cell::Enforced(hide),
    },
    Case {
        clause: ClauseId::FsHide,
        backends: CONTAINER,
        sentence: "what matches is not visible in grants, for reading and for writing, and stays on the host",
        cell: Cell::Enforced(hide_in_grants),
    },
    Case {
        clause: ClauseId::FsHide,
        backends: CONTAINER,
        sentence: "without a layer it is refused",
        cell: Cell::Refused(&["fs.hide=[\"**/.env\"]", "workspace.path=.", "workspace.mode=ro"], "hide/mode"),
    },
    Case {
        clause: ClauseId::FsHide,
        backends: PROCESS,
        sentence: "it is refused",
        cell: Cell::Refused(&["fs.hide=[\"**/.env\"]"], "hide/mode"),
    },
    Case {
        clause: ClauseId::FsSockets,
        backends: EVERY,
        sentence: "a unix socket of the host below a read grant hears nobody",
        cell: Cell::Enforced(socket_below_read),
    },
    Case {
        clause: ClauseId::FsSockets,
        backends: BOTH,
        sentence: "a unix socket of the host below a write grant hears nobody",
        cell: Cell::Enforced(socket_below_write),
    },
    Case {
        clause: ClauseId::FsSockets,
        backends: CONTAINER,
        sentence: "with `own` programs inside reach each other, and the host's socket hears nobody",
        cell: Cell::Enforced(socket_own),
    },
    Case {
        clause: ClauseId::FsSockets,
        backends: BOTH,
        sentence: "with `fs.sockets` it hears the payload",
        cell: Cell::Enforced(socket_allowed),
    },
    Case {
        clause: ClauseId::FsProtect,
        backends: CONTAINER,
        sentence: "no control file is planted in a read-write workspace when it ends, not even where there was none",
        cell: Cell::Enforced(protect_rw),
    },
    Case {
        clause: ClauseId::FsProtect,
        backends: CONTAINER,
        sentence: "what an overlay planted is not applied",
        cell: Cell::Enforced(protect_overlay),
    },
    Case {
        clause: ClauseId::FsProtect,
        backends: EVERY,
        sentence: "what a copy planted is not applied",
        cell: Cell::Enforced(protect_copy),
    },
    Case {
        clause: ClauseId::FsProtect,
        backends: PROCESS,
        sentence: "a read-write workspace with control files is refused",
        cell: Cell::Refused(
            &["workspace.path=.", "workspace.mode=rw", "prefer=[\"limits.disk\",\"limits.files\"]"],
            "fs.protect/needs-container",
        ),
    },
];

fn read(scene: &Fixture) -> CaseResult {
    let file = scene.file("data/file", "as it was")?;
    let probe = format!("cat {0}; echo changed > {0}", file.display());
    let grant = format!("fs.read=[\"{}\"]", scene.work().join("data").display());
    let ended = scene.shell(&[&grant], &probe)?;
    check(ended.out() == "as it was" && ended.code != Some(0), || ended.said())?;
    check(text(&file)? == "as it was", || "the file was changed".to_owned())?;
    scene.control_shell(&probe)?;
    check(text(&file)? == "changed\n", || "the control did not change it".to_owned())
}

fn moved(scene: &Fixture) -> CaseResult {
    let file = scene.file("data/file", "as it was")?;
    let grant = format!("fs.read=[{{from=\"{}\",to=\"/moved\"}}]", scene.work().join("data").display());
    scene.control_shell(&format!("cat {}", file.display()))?;
    let ended = scene.shell(&[&grant], &format!("cat /moved/file && ! cat {}", file.display()))?;
    check(ended.code == Some(0) && ended.out() == "as it was", || ended.said())
}

fn write(scene: &Fixture) -> CaseResult {
    let out = scene.dir("out")?;
    let beside = scene.dir("beside")?;
    let probe = format!("echo 1 > {}/new && echo 2 > {}/new", out.display(), beside.display());
    let grant = format!("fs.write=[\"{}\"]", out.display());
    let ended = scene.shell(&[&grant, "prefer=[\"limits.disk\",\"limits.files\"]"], &probe)?;
    check(ended.code != Some(0) && there(&out.join("new")) && !there(&beside.join("new")), || ended.said())?;
    check(ended.report.pointer("/weakened/0/clause").is_some(), || format!("not told: {}", ended.said()))?;
    scene.control_shell(&probe)?;
    check(there(&beside.join("new")), || "the control wrote nothing".to_owned())
}

const PREFER: &str = "prefer=[\"limits.disk\",\"limits.files\"]";

/// A folder and a file that only their owner may use.
fn private(scene: &Fixture, name: &str, uid: u32) -> Result<std::path::PathBuf, conformance::CaseError> {
    let (folder, file) = (scene.dir(name)?, scene.file(&format!("{name}.txt"), "as it was\n")?);
    for (path, mode) in [(&folder, 0o700), (&file, 0o600)] {
        if root() {
            std::os::unix::fs::chown(path, Some(uid), Some(uid))?;
        }
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode))?;
    }
    Ok(folder)
}

fn owner_of(path: &Path) -> Result<u32, conformance::CaseError> {
    Ok(std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(path)?))
}

fn write_as_owners(scene: &Fixture) -> CaseResult {
    let (mine, other) = (private(scene, "of-root", 0)?, private(scene, "of-another", 12_345)?);
    let file = scene.work().join("of-root.txt");
    let probe =
        format!("echo 1 >{0}/new && echo 2 >{1}/new && echo 3 >>{2}", mine.display(), other.display(), file.display());
    let grants: Vec<String> = [&mine, &other, &file].map(|path| format!("\"{}\"", path.display())).into();
    let ended = scene.shell(&[&format!("fs.write=[{}]", grants.join(",")), PREFER], &probe)?;
    if scene.who == Who::Rootless {
        // An ordinary user has no more inside than outside.
        return check(!root() || ended.code != Some(0), || ended.said());
    }
    check(ended.code == Some(0), || ended.said())?;
    check(text(&file)? == "as it was\n3\n", || "the granted file was not written".to_owned())?;
    for (path, uid) in [(mine.join("new"), 0), (other.join("new"), 12_345), (file, 0)] {
        let found = owner_of(&path)?;
        check(found == uid, || format!("`{}` belongs to {found}, not to {uid}", path.display()))?;
    }
    Ok(())
}

fn write_of_root(scene: &Fixture) -> CaseResult {
    let mine = private(scene, "of-root", 0)?;
    let probe = format!("echo 1 >{}/new", mine.display());
    let ended = scene.shell(&[&format!("fs.write=[\"{}\"]", mine.display()), PREFER], &probe)?;
    if scene.who == Who::Rootless {
        return check(!root() || ended.code != Some(0), || ended.said());
    }
    let ids = ended.refusals();
    check(ended.code == Some(126) && ids.iter().any(|id| id == "run/workspace-of-root"), || ended.said())?;
    check(!there(&mine.join("new")), || "it was written all the same".to_owned())
}

fn write_without_quota(scene: &Fixture) -> CaseResult {
    let out = scene.dir("out")?;
    let grant = format!("fs.write=[\"{}\"]", out.display());
    let ended = scene.shell(&[&grant], &format!("echo 1 > {}/new", out.display()))?;
    let ids = ended.refusals();
    let wanted = ["limits.disk/rw-without-quota", "limits.files/rw-without-quota"];
    check(ended.code == Some(126) && wanted.iter().all(|id| ids.iter().any(|found| found == id)), || ended.said())?;
    check(!there(&out.join("new")), || "it ran all the same".to_owned())
}

fn hide(scene: &Fixture) -> CaseResult {
    let file = scene.file("tree/sub/.env", "canary-hidden")?;
    scene.file("tree/seen", "seen")?;
    let tree = scene.work().join("tree");
    scene.control_shell(&format!("cat {}", file.display()))?;
    for mode in ["overlay", "copy"] {
        let place = [format!("workspace.path={}", tree.display()), format!("workspace.mode={mode}")];
        let probe = "cat seen; ls -A sub; cat sub/.env";
        let shown = scene.shell(&[&place[0], &place[1]], probe)?;
        check(shown.out().contains("canary-hidden"), || format!("{mode}: unhidden it is there: {}", shown.said()))?;
        let ended = scene.shell(&[&place[0], &place[1], "fs.hide=[\"**/.env\"]"], probe)?;
        check(ended.out() == "seen" && ended.code == Some(1), || format!("{mode}: {}", ended.said()))?;
        check(text(&file)? == "canary-hidden", || "it was taken from the host".to_owned())?;
    }
    Ok(())
}

fn hide_in_grants(scene: &Fixture) -> CaseResult {
    for (clause, more) in [("fs.read", &[][..]), ("fs.write", &["prefer=[\"limits.disk\",\"limits.files\"]"])] {
        let key = scene.file("grant/sub/key.pem", "canary-hidden")?;
        let grant = scene.work().join("grant");
        scene.file("grant/seen", "seen")?;
        let shown = format!("{clause}=[\"{}\"]", grant.display());
        let probe = format!("cat {0}/seen; cat {0}/sub/key.pem", grant.display());
        let run = |hide: &[&str]| scene.shell(&[&[shown.as_str()], more, hide].concat(), &probe);
        let open = run(&[])?;
        check(open.out().contains("canary-hidden"), || format!("{clause}: unhidden it is there: {}", open.said()))?;
        for glob in ["**/*.pem".to_owned(), format!("{}/sub/*.pem", grant.display())] {
            let hidden = run(&[&format!("fs.hide=[\"{glob}\"]")])?;
            // An empty mount lies on it.
            check(hidden.out() == "seen", || format!("{clause} {glob}: {}", hidden.said()))?;
        }
        check(text(&key)? == "canary-hidden", || "it was taken from the host".to_owned())?;
    }
    Ok(())
}

const CONNECT: &str = "
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(PATH + '/socket')
s.sendall(b'hello')
";

/// Whether a listener of the host, below a granted folder, was reached inside; unconfined it must be.
fn reached(scene: &Fixture, clause: &str, values: &[&str]) -> Result<bool, conformance::CaseError> {
    let folder = scene.dir("sockets")?;
    let path = folder.join("socket");
    let listener = UnixListener::bind(&path)?;
    listener.set_nonblocking(true)?;
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o777))?;
    let code = format!("PATH = '{}'\n{CONNECT}", folder.display());
    let grant = format!("{clause}=[\"{}\"]", folder.display());
    let mut all = vec![grant.as_str()];
    all.extend(values);
    let ended = scene.python(&all, &code)?;
    check(ended.text("/outcome/kind") == "exited", || ended.said())?;
    let heard = listener.accept().is_ok();
    check(heard == (ended.code == Some(0)), || format!("inside and outside disagree: {}", ended.said()))?;
    scene.control_python(&code)?;
    check(listener.accept().is_ok(), || "the control was not heard".to_owned())?;
    Ok(heard)
}

fn socket_below_read(scene: &Fixture) -> CaseResult {
    check(!reached(scene, "fs.read", &["syscalls.profile=default"])?, || "the host's socket was reached".to_owned())
}

fn socket_below_write(scene: &Fixture) -> CaseResult {
    let values = ["syscalls.profile=default", "prefer=[\"limits.disk\",\"limits.files\"]"];
    check(!reached(scene, "fs.write", &values)?, || "the host's socket was reached".to_owned())
}

fn socket_own(scene: &Fixture) -> CaseResult {
    let values = ["syscalls.profile=default", "prefer=[\"limits.disk\",\"limits.files\"]", "fs.sockets=own"];
    check(!reached(scene, "fs.write", &values)?, || "the host's socket was reached".to_owned())?;
    let code = "
import os, socket, tempfile
own = tempfile.mkdtemp() + '/own'
ears = socket.socket(socket.AF_UNIX); ears.bind(own); ears.listen()
mouth = socket.socket(socket.AF_UNIX); mouth.connect(own); mouth.sendall(b'x')
os.unlink(own); os.rmdir(os.path.dirname(own))
";
    let ended = scene.python(&values, code)?;
    check(ended.code == Some(0), || format!("its own was not reached: {}", ended.said()))?;
    scene.control_python(code).map(drop)
}

fn socket_allowed(scene: &Fixture) -> CaseResult {
    let values = ["syscalls.profile=default", "prefer=[\"limits.disk\",\"limits.files\"]", "fs.sockets=true"];
    check(reached(scene, "fs.write", &values)?, || "it was asked for, and not reached".to_owned())
}

/// Plants control files; prints how many of them it could make.
const PLANT: &str = "
import os
done = 0
for name in ['.git/hooks/post-checkout', '.git/config', '.vscode/tasks.json', '.claude/settings.json', '.mcp.json', '.envrc']:
    try:
        os.makedirs(os.path.dirname(name) or '.', exist_ok=True)
        open(name, 'a').write('planted')
        done += 1
    except OSError as e: pass
open('ordinary', 'w').write('x')
print(done)
";

const PLANTED: [&str; 4] = [".git/hooks/post-checkout", ".vscode/tasks.json", ".claude/settings.json", ".mcp.json"];

fn workspace(scene: &Fixture) -> Result<std::path::PathBuf, conformance::CaseError> {
    scene.file("tree/.git/HEAD", "ref: refs/heads/main\n")?;
    scene.file("tree/.git/config", "[core]\n")?;
    scene.file("tree/.git/hooks/sample", "")?;
    for folder in ["tree/.git/objects", "tree/.git/refs"] {
        scene.dir(folder)?;
    }
    Ok(scene.work().join("tree"))
}

fn nothing_planted(tree: &Path) -> CaseResult {
    for name in PLANTED {
        check(!there(&tree.join(name)), || format!("`{name}` was planted"))?;
    }
    check(text(&tree.join(".git/config"))? == "[core]\n", || "`.git/config` was changed".to_owned())?;
    check(there(&tree.join("ordinary")), || "an ordinary file was not written".to_owned())
}

fn protect_control(scene: &Fixture, tree: &Path) -> CaseResult {
    let control = scene.control_python(&format!("import os; os.chdir('{}')\n{PLANT}", tree.display()))?;
    check(control.out() == "6" && there(&tree.join(".mcp.json")), || control.said())
}

fn protect_rw(scene: &Fixture) -> CaseResult {
    let tree = workspace(scene)?;
    let path = format!("workspace.path={}", tree.display());
    let values = [path.as_str(), "workspace.mode=rw", "prefer=[\"limits.disk\",\"limits.files\"]"];
    let ended = scene.python(&values, PLANT)?;
    // What is made is put aside at once, and what lies in git's folder stays with the run: both are told.
    let told = ["fs.protect/slipped", "fs.protect/kept"].iter().all(|id| ended.violations().contains(id));
    check(ended.code == Some(0) && told, || ended.said())?;
    nothing_planted(&tree)?;
    protect_control(scene, &tree)
}

fn protect_layer(scene: &Fixture, mode: &str) -> CaseResult {
    let tree = workspace(scene)?;
    let (path, mode) = (format!("workspace.path={}", tree.display()), format!("workspace.mode={mode}"));
    let ended = scene.python(&[&path, &mode], PLANT)?;
    check(ended.code == Some(0), || ended.said())?;
    check(!there(&tree.join("ordinary")), || "the host was written before `apply`".to_owned())?;
    let whole = scene.product(&["apply", ended.text("/run")])?.end()?;
    check(whole.code == Some(1) && whole.said().contains(".mcp.json"), || format!("apply: {}", whole.said()))?;
    check(!there(&tree.join("ordinary")), || "a refused `apply` took a part".to_owned())?;
    let applied = scene.product(&["apply", ended.text("/run"), "--", "ordinary"])?.end()?;
    check(applied.code == Some(0), || format!("apply of one file: {}", applied.said()))?;
    nothing_planted(&tree)?;
    protect_control(scene, &tree)
}

fn protect_overlay(scene: &Fixture) -> CaseResult {
    protect_layer(scene, "overlay")
}

fn protect_copy(scene: &Fixture) -> CaseResult {
    protect_layer(scene, "copy")
}
