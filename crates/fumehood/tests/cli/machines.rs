//! Live sandboxes of the vm tier as a person meets them. One machine for all of it: each takes seconds to start.

use std::os::unix::fs::symlink;
use std::path::Path;

use crate::House;
use crate::live::{Live, call};

/// A root of busybox's; nothing where the host has no machines.
fn root(house: &House) -> Option<String> {
    let shell = Path::new("/bin/busybox");
    let lacks = backends::Capabilities::probe().machine().err().map(|missing| missing.why);
    if let Some(why) = lacks.or_else(|| (!shell.exists()).then(|| "there is no `/bin/busybox`".to_owned())) {
        eprintln!("skip: live sandboxes of the vm tier: {why}");
        return None;
    }
    let root = house.path("root");
    std::fs::create_dir_all(root.join("bin")).unwrap();
    std::fs::copy(shell, root.join("bin/busybox")).unwrap();
    for name in ["sh", "cat", "echo", "id", "touch", "true"] {
        symlink("busybox", root.join("bin").join(name)).unwrap();
    }
    Some(format!("fs.root=dir:{}", root.display()))
}

#[test]
fn a_live_sandbox_in_a_machine_is_worked_in_and_what_is_not_built_is_refused_by_name() {
    let house = &House::new();
    let Some(root) = root(house) else { return };
    let project = house.path("given");
    std::fs::create_dir(&project).unwrap();
    std::fs::write(project.join("file"), "of the host\n").unwrap();
    let mode = |mode: &str| format!("{}:{mode}", project.display());
    let (code, _, err) = call(house, &["create", "--tier=vm", "--set", &root, "-w", &mode("copy")]);
    assert!(code == 126 && err.contains("live sandbox in a machine"), "{code} {err}");
    let live = Live::new(house, &["--tier=vm", "--set", &root, "-w", &mode("ro")]);
    let (code, out, err) = live.exec(&[], &["sh", "-c", "cat file; id -u; echo kept >/tmp/a; touch new || exit 7"]);
    assert_eq!((code, out.as_str()), (7, "of the host\n1000\n"), "{err}");
    let (_, out, _) = live.exec(&[], &["cat", "/tmp/a", "/proc/sys/kernel/osrelease"]);
    let release = backends::Capabilities::probe().machine().unwrap().kernel.release.clone();
    assert_eq!(out, format!("kept\n{release}\n"));
    let (into, out_of) = (format!("{}:/tmp/came", live.id), house.path("back"));
    assert_eq!(call(house, &["cp", &project.join("file").display().to_string(), &into]).0, 0);
    assert_eq!(call(house, &["cp", &into, &out_of.display().to_string()]).0, 0);
    assert_eq!(std::fs::read_to_string(out_of).unwrap(), "of the host\n");
    assert_eq!(call(house, &["pause", &live.id]).0, 0);
    assert_eq!(live.exec(&[], &["true"]).0, 125);
    assert_eq!(call(house, &["resume", &live.id]).0, 0);
    assert_eq!(live.exec(&[], &["true"]).0, 0);
    for refused in ["snapshot", "fork"] {
        let (code, _, err) = call(house, &[refused, &live.id]);
        assert!(code == 125 && err.contains("no snapshot of a machine"), "{refused}: {code} {err}");
    }
    let (code, _, err) = call(house, &["diff", &live.id]);
    assert!(code == 125 && err.contains("no changes of this sandbox"), "{code} {err}");
    assert_eq!(call(house, &["kill", &live.id]).0, 0);
    assert_eq!(live.info()["state"], "ended");
}
