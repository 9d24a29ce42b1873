//! The root, the places that can be written, their sizes, and what may be executed.

use conformance::case::{CONTAINER, EVERY, LINUX, PROCESS, TREES};
use conformance::{Case, CaseResult, Cell, Fixture, Tier, check};
use policy::ClauseId;

pub(crate) const CASES: &[Case] = &[
    Case {
        clause: ClauseId::FsRoot,
        backends: EVERY,
        sentence: "a file of the host outside the root cannot be read",
        cell: Cell::Enforced(secret),
    },
    Case {
        clause: ClauseId::FsRoot,
        backends: TREES,
        sentence: "a folder as root shows itself and nothing of the host",
        cell: Cell::Enforced(folder_as_root),
    },
    Case {
        clause: ClauseId::FsRoot,
        backends: TREES,
        sentence: "an empty root has no programs",
        cell: Cell::Enforced(empty_root),
    },
    Case {
        clause: ClauseId::FsRoot,
        backends: PROCESS,
        sentence: "another root is refused",
        cell: Cell::Refused(&["fs.root=empty"], "fs.root/needs-container"),
    },
    Case {
        clause: ClauseId::FsRoot,
        backends: TREES,
        sentence: "an image as root shows itself and nothing of the host",
        cell: Cell::Enforced(image_as_root),
    },
    Case {
        clause: ClauseId::FsRoot,
        backends: TREES,
        sentence: "an image that is not in the store is refused",
        cell: Cell::Refused(&["fs.root=image:debian"], "fs.root/no-such-image"),
    },
    Case {
        clause: ClauseId::FsRoot,
        backends: PROCESS,
        sentence: "an image is refused",
        cell: Cell::Refused(&["fs.root=image:debian"], "fs.root/needs-container"),
    },
    Case {
        clause: ClauseId::FsExec,
        backends: CONTAINER,
        sentence: "a list of executables in an image is refused",
        cell: Cell::Refused(&["fs.root=image:debian", "fs.exec=[\"/bin/sh\"]"], "fs.exec/no-list"),
    },
    Case {
        clause: ClauseId::FsLandlock,
        backends: LINUX,
        sentence: "a version that no kernel has is refused",
        cell: Cell::Refused(&["fs.landlock=32"], "fs.landlock/too-old"),
    },
    Case {
        clause: ClauseId::FsLandlock,
        backends: LINUX,
        sentence: "a process outside, of the same user, cannot be signalled",
        cell: Cell::Enforced(signal_outside),
    },
    Case {
        clause: ClauseId::FsExec,
        backends: LINUX,
        sentence: "only the named programs run, not even by the dynamic loader",
        cell: Cell::Enforced(only_executables),
    },
    Case {
        clause: ClauseId::FsNoexec,
        backends: EVERY,
        sentence: "a written program cannot be executed, and a loader that maps it is stopped or named in the plan",
        cell: Cell::Enforced(noexec),
    },
    Case {
        clause: ClauseId::FsTmp,
        backends: EVERY,
        sentence: "/tmp ends at its size",
        cell: Cell::Enforced(tmp_size),
    },
    Case {
        clause: ClauseId::FsShm,
        backends: TREES,
        sentence: "/dev/shm ends at its size",
        cell: Cell::Enforced(shm_size),
    },
    Case {
        clause: ClauseId::FsRun,
        backends: TREES,
        sentence: "/run ends at its size",
        cell: Cell::Enforced(run_size),
    },
    Case {
        clause: ClauseId::FsShm,
        backends: PROCESS,
        sentence: "nothing can be written to the host's /dev/shm",
        cell: Cell::Enforced(no_shm),
    },
    Case {
        clause: ClauseId::FsRun,
        backends: PROCESS,
        sentence: "nothing can be written to the host's /run",
        cell: Cell::Enforced(no_run),
    },
];

/// Sizes that let each place be tried alone.
const ROOM: [&str; 3] = ["limits.disk=64M", "limits.memory=512M", "limits.file_size=64M"];

fn secret(scene: &Fixture) -> CaseResult {
    let path = scene.file("secret", "canary-5521")?;
    let script = format!("cat {}", path.display());
    let control = scene.control_shell(&script)?;
    check(control.out() == "canary-5521", || control.said())?;
    let ended = scene.shell(&[], &script)?;
    check(ended.code == Some(1) && !ended.said().contains("canary-5521"), || ended.said())
}

fn folder_as_root(scene: &Fixture) -> CaseResult {
    // The host's own `/usr`, seen from a folder that is not `/`: programs run, and nothing else is there.
    let root = scene.dir("root")?;
    scene.file("root/mark", "canary-7788")?;
    for link in ["bin", "lib", "lib64"] {
        std::os::unix::fs::symlink(format!("usr/{link}"), root.join(link))?;
    }
    let static_shell =
        ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| conformance::fixture::there(path.as_ref()));
    let Some(busybox) = static_shell else {
        // No program that needs nothing beside itself: the folder's own content is the proof that it is the root.
        let ended = scene.run(&Fixture::values(&[&format!("fs.root=dir:{}", root.display())]), &["/bin/true"])?;
        return check(ended.code == Some(127), || ended.said());
    };
    std::fs::create_dir(root.join("usr"))?;
    std::fs::create_dir(root.join("usr/bin"))?;
    std::fs::copy(busybox, root.join("usr/bin/busybox"))?;
    let values = [format!("fs.root=dir:{}", root.display())];
    let ended = scene.run(
        &Fixture::values(&[&values[0]]),
        &["/bin/busybox", "sh", "-c", "/bin/busybox cat /mark; /bin/busybox ls /etc/debian_version"],
    )?;
    check(ended.out() == "canary-7788" && ended.code == Some(1), || ended.said())
}

fn image_as_root(scene: &Fixture) -> CaseResult {
    let static_shell =
        ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| conformance::fixture::there(path.as_ref()));
    let busybox = static_shell.ok_or("busybox-static is needed: scripts/setup installs it")?;
    let tree = scene.dir("tree")?;
    std::fs::write(tree.join("mark"), "canary-9911")?;
    std::fs::copy(busybox, tree.join("busybox"))?;
    let (tree, saved) = (tree.display().to_string(), scene.dir("saved")?);
    let packed = |words: &[&str]| scene.bare(words).and_then(|ended| check(ended.code == Some(0), || ended.said()));
    let layer = saved.join("layer.tar");
    packed(&["/bin/tar", "-C", &tree, "-cf", &layer.display().to_string(), "mark", "busybox"])?;
    let id = policy::json::sha256_hex(&std::fs::read(&layer)?);
    let arch = if std::env::consts::ARCH == "x86_64" { "amd64" } else { "arm64" };
    let config =
        format!(r#"{{"architecture":"{arch}","os":"linux","config":{{}},"rootfs":{{"diff_ids":["sha256:{id}"]}}}}"#);
    std::fs::write(saved.join("config.json"), config)?;
    let manifest = r#"[{"Config":"config.json","RepoTags":["mark:1"],"Layers":["layer.tar"]}]"#;
    std::fs::write(saved.join("manifest.json"), manifest)?;
    let (folder, archive) =
        (saved.display().to_string(), scene.dir("archive")?.join("saved.tar").display().to_string());
    packed(&["/bin/tar", "-C", &folder, "-cf", &archive, "config.json", "manifest.json", "layer.tar"])?;
    let imported = scene.product(&["image", "import", &archive])?.end()?;
    check(imported.code == Some(0), || imported.said())?;
    let script = "/busybox cat /mark; /busybox ls /etc/debian_version";
    let ended = scene.run(&Fixture::values(&["fs.root=image:mark:1"]), &["/busybox", "sh", "-c", script])?;
    check(ended.out() == "canary-9911" && ended.code == Some(1), || ended.said())
}

fn empty_root(scene: &Fixture) -> CaseResult {
    scene.control(&["/bin/true"])?;
    let ended = scene.run(&Fixture::values(&["fs.root=empty"]), &["/bin/true"])?;
    check(ended.code == Some(127), || ended.said())
}

fn signal_outside(scene: &Fixture) -> CaseResult {
    // Of the very uid that the payload has outside, so that nothing but the confinement stands between.
    let uid = payload_uid(scene)?;
    let uid = uid.to_string();
    let sleeper = if conformance::fixture::root() {
        scene.bare_as_root(&["/usr/bin/setpriv", "--reuid", &uid, "--clear-groups", "/bin/sleep", "50"])?
    } else {
        scene.bare_start(&["/bin/sleep", "50"])?
    };
    let code = format!("import os; os.kill({}, 0)", sleeper.pid());
    scene.control_python(&code)?;
    let ended = scene.python(&[], &code)?;
    check(
        ended.code == Some(1)
            && (ended.err().contains("PermissionError") || ended.err().contains("ProcessLookupError")),
        || ended.said(),
    )?;
    // The observer: it lives until we end it.
    let alive = sys::proc::Process::open(sleeper.pid()).is_ok();
    sleeper.signal(9)?;
    sleeper.end()?;
    check(alive, || "the process outside was reached".to_owned())
}

fn payload_uid(scene: &Fixture) -> Result<u32, conformance::CaseError> {
    let live = scene.start_passing(&["limits.wall=1m"], "echo up; exec sleep 30")?;
    live.says("up")?;
    let status = sys::proc::Process::open(live.payload()?)?.status()?;
    // A killed one would leave its groups to a start that never comes.
    live.signal(15)?;
    live.end()?;
    Ok(status.uid[0])
}

/// Runs a program in every way that a shell cannot hide: directly, and by the loader that its ELF header names.
const RUN_IT: &str = "
import os, subprocess, sys
def tries(argv):
    try: return subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
    except OSError as e: return 'errno %d' % e.errno
import glob
loader = [f for f in glob.glob('/lib64/ld-linux*') + glob.glob('/lib/ld-linux*')][0]
print(tries([program, '0']), tries([loader, program, '0']))
";

fn only_executables(scene: &Fixture) -> CaseResult {
    let python = std::fs::canonicalize("/usr/bin/python3")?;
    let code = format!("program = '/usr/bin/sleep'\n{RUN_IT}");
    let control = scene.control_python(&code)?;
    check(control.out() == "0 0", || control.said())?;
    let exec = format!("fs.exec=[\"{}\"]", python.display());
    let ended = scene.python(&[&exec], &code)?;
    let words: Vec<_> = ended.out().split(' ').map(str::to_owned).collect();
    check(ended.code == Some(0) && words.len() >= 2 && words.iter().all(|word| word != "0"), || ended.said())
}

fn noexec(scene: &Fixture) -> CaseResult {
    let folder = scene.dir("bin")?;
    let copy = |to: &str| format!("import shutil; program = {to}; shutil.copy('/usr/bin/sleep', program)\n{RUN_IT}");
    let control = scene.control_python(&copy(&format!("'{}/sleep'", folder.display())))?;
    check(control.out() == "0 0", || control.said())?;
    let allowed = scene.python(&["fs.noexec=false"], &copy("__import__('os').environ['TMPDIR'] + '/sleep'"))?;
    check(allowed.out() == "0 0", || format!("with noexec off it must run: {}", allowed.said()))?;
    let ended = scene.python(&["fs.noexec=true"], &copy("__import__('os').environ['TMPDIR'] + '/sleep'"))?;
    check(ended.code == Some(0) && ended.out().starts_with("errno 13 "), || ended.said())?;
    match scene.tier {
        Tier::Container | Tier::Gvisor | Tier::Vm => check(!ended.out().ends_with(" 0"), || ended.said()),
        // Landlock does not see what a loader maps: the plan says so, and that is the promise.
        Tier::Language | Tier::Process => {
            let list = ended.report.get("enforcers").map(ToString::to_string).unwrap_or_default();
            check(list.contains("given to the dynamic loader"), || format!("the plan is silent: {list}"))
        }
    }
}

/// Writes 1 MiB pieces until it fails or 24 are written; prints how many, after `hold` seconds for a sampler to look.
fn fill(folder: &str, hold: u32) -> String {
    format!(
        "import os, sys, time
n = 0
try:
    f = open({folder} + '/fill', 'wb', 0)
    for n in range(24):
        f.write(b'x' * 1048576)
        time.sleep(0.01)
    n = 24
except OSError as e:
    print('errno', e.errno, flush=True)
print(n, flush=True)
if n == 24: time.sleep({hold})"
    )
}

fn tmp_size(scene: &Fixture) -> CaseResult {
    let values: Vec<&str> = ROOM.iter().copied().chain(["fs.tmp=8M"]).collect();
    let wide: Vec<&str> = ROOM.iter().copied().chain(["fs.tmp=40M"]).collect();
    let code = |hold| fill("os.environ['TMPDIR']", hold);
    let allowed = scene.python(&wide, &code(0))?;
    check(allowed.out() == "24", || format!("the control failed: {}", allowed.said()))?;
    let ended = scene.python(&values, &code(20))?;
    match scene.tier {
        Tier::Container | Tier::Gvisor | Tier::Vm => {
            check(ended.out().starts_with("errno 28\n7") || ended.out().starts_with("errno 28\n8"), || ended.said())
        }
        // Sampled: the run ends.
        Tier::Language | Tier::Process => check(ended.code == Some(124) && ended.limit() == "disk", || ended.said()),
    }
}

fn sized(scene: &Fixture, place: &str, clause: &str) -> CaseResult {
    let code = fill(&format!("'{place}'"), 0);
    let (small, large) = (format!("{clause}=4M"), format!("{clause}=30M"));
    let allowed: Vec<&str> = ROOM.iter().copied().chain(["fs.tmp=8M", large.as_str()]).collect();
    let allowed = scene.python(&allowed, &code)?;
    check(allowed.out() == "24", || format!("the control failed: {}", allowed.said()))?;
    let values: Vec<&str> = ROOM.iter().copied().chain(["fs.tmp=8M", small.as_str()]).collect();
    let ended = scene.python(&values, &code)?;
    check(ended.out().starts_with("errno 28\n3") || ended.out().starts_with("errno 28\n4"), || ended.said())
}

fn shm_size(scene: &Fixture) -> CaseResult {
    sized(scene, "/dev/shm", "fs.shm")
}

fn run_size(scene: &Fixture) -> CaseResult {
    sized(scene, "/run", "fs.run")
}

fn unwritable(scene: &Fixture, place: &str) -> CaseResult {
    let path = format!("{place}/conform-{}", scene.outside().file_name().unwrap_or_default().to_string_lossy());
    // What can be written unconfined, by root at least, is closed inside.
    let probe = format!("echo x > {path}");
    let ended = scene.shell(&[], &probe)?;
    check(ended.code != Some(0) && !conformance::fixture::there(path.as_ref()), || ended.said())?;
    if scene.who == conformance::Who::Rootful || place == "/dev/shm" {
        scene.control_shell(&format!("{probe} && rm {path}"))?;
    }
    Ok(())
}

fn no_shm(scene: &Fixture) -> CaseResult {
    unwritable(scene, "/dev/shm")
}

fn no_run(scene: &Fixture) -> CaseResult {
    unwritable(scene, "/run")
}
