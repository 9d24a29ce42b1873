//! The vm tier as a person meets it. One machine for as much as possible: each takes seconds to start.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;

use crate::House;
use crate::full::on_a_small_disk;
use crate::image_runs::imported;
use crate::live::{Live, call};

/// Whether the host has machines, and a static shell to put into them.
#[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
fn are_there() -> bool {
    let lacks = backends::Capabilities::probe().machine().err().map(|missing| missing.why);
    let shell = Path::new("/bin/busybox").exists();
    if let Some(why) = lacks.or_else(|| (!shell).then(|| "there is no `/bin/busybox`".to_owned())) {
        println!("skip: the vm tier from the command line: {why}");
        return false;
    }
    true
}

/// A root of busybox's; nothing where the host has no machines.
fn root(house: &House) -> Option<String> {
    if !are_there() {
        return None;
    }
    let root = house.path("root");
    std::fs::create_dir_all(root.join("bin")).unwrap();
    std::fs::copy("/bin/busybox", root.join("bin/busybox")).unwrap();
    for name in ["sh", "cat", "echo", "id", "sleep", "touch", "true"] {
        symlink("busybox", root.join("bin").join(name)).unwrap();
    }
    std::fs::create_dir(root.join("etc")).unwrap();
    std::fs::write(root.join("etc/machine-id"), "0123\n").unwrap();
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
    let (code, out, _) = live.exec(&[], &["cat", "/etc/machine-id"]);
    assert_eq!((code, out.as_str()), (0, ""), "the root's own id");
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

/// Its tree is read whole and goes in as a disk, and its wishes count as on other tiers.
#[test]
fn an_image_is_the_root_of_a_machine() {
    if !are_there() {
        return;
    }
    let house = House::new();
    imported(&house);
    let script = "pwd; cat /marker; id -u; echo $COLOUR; touch /etc/x 2>/dev/null && echo WRITTEN; cat /etc/own";
    let said = house.run(&["run", "-q", "--tier=vm", "--set=fs.root=image:app:1", "--", "sh", "-c", script]);
    assert_eq!((said.code, said.out.as_str()), (0, "/srv\nof the image\n1234\nblue\nkept\n"), "{}", said.err);
}

/// The machine ends with who watched it; what it was made of stays for `gc`, whose groups can only go with nobody in them.
#[test]
fn gc_takes_all_that_a_killed_supervisor_of_a_machine_left() {
    let house = House::new();
    let Some(root) = root(&house) else { return };
    let words = ["run", "-q", "--tier=vm", "--set", &root, "--", "sh", "-c", "echo up; sleep 60"];
    let mut supervisor = house.command(&words).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(supervisor.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "up\n");
    supervisor.kill().unwrap();
    supervisor.wait().unwrap();
    let journals = || std::fs::read_dir(house.path("state/runs")).unwrap().map(|entry| entry.unwrap().path());
    let run = journals().next().unwrap().file_stem().unwrap().to_str().unwrap().to_owned();
    let files = Path::new("/tmp").join(format!("fumehood-{run}"));
    assert!(files.join("kernel").exists(), "the control: there is something to take");
    let swept = house.run(&["gc", "--json"]);
    assert_eq!((swept.code, &swept.json()["kept"]), (0, &serde_json::json!([])), "{swept:?}");
    assert!(!files.exists());
    assert_eq!(journals().count(), 0);
    assert_eq!(house.run(&["gc", "--json"]).json()["removed"], serde_json::json!([]));
}

/// No room to keep a machine is no fault; none for what one starts from, or for the journal, is told, and nothing of it stays.
#[test]
fn a_full_disk_is_told_and_leaves_nothing_of_a_machine() {
    let house = House::new();
    if root(&house).is_none() {
        return;
    }
    // What the test needs is perhaps below the place that is to be full: it is shown elsewhere.
    let text = "mkdir ../bin && mount --bind ${1%/*} ../bin && mount --rbind .. /mnt && cd /mnt || exit 77; \
                export FUMEHOOD_STATE=/mnt/work/disk/state; \
                machine() { bin/fumehood run -q --tier=vm --set=fs.root=dir:/mnt/root -- echo ran; echo $?; }; \
                left() { ls $FUMEHOOD_STATE/runs $FUMEHOOD_STATE/machines | grep -v -e : -e ^$; echo left; }; \
                machine; left; fill; machine; left; rm $disk/fill; \
                mount -t tmpfs -o size=1M,mode=1777 none /tmp || exit 77; machine; ls -A /tmp; left";
    let Some(said) = on_a_small_disk(&house, "2M", text) else { return };
    assert_eq!(said.out, "ran\n0\nleft\n126\nleft\n125\nleft\n", "{said:?}");
    for told in ["why: the disk is full", "writing what the machine starts from failed", "No space left on device"] {
        assert!(said.err.contains(told), "{told}: {said:?}");
    }
}

/// It starts one where it is asked for, and knows of it afterwards.
#[test]
fn doctor_starts_a_machine_once() {
    if !are_there() {
        return;
    }
    let house = House::new();
    let proof = |flags: &[&str]| {
        let said = house.run(&[&["doctor", "--json"], flags].concat());
        let tiers = said.json()["host"]["tiers"].as_array().unwrap().clone();
        tiers.into_iter().find(|tier| tier["tier"] == "vm").unwrap()["proof"].clone()
    };
    assert!(proof(&[]).is_null());
    let tried = proof(&["--tier", "vm"]);
    assert_eq!(tried["held"], true, "{tried}");
    let known = proof(&[]);
    assert_eq!(known["held"], true, "{known}");
    assert!(known["how"].as_str().unwrap().contains("since this host is up"), "{known}");
}
