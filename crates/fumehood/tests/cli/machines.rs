//! The vm tier as a person meets it. One machine for as much as possible: each takes seconds to start.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;

use crate::Fixture;
use crate::devices::open_kvm;
use crate::full::on_a_small_disk;
use crate::image_runs::imported;
use crate::live::{Live, call};

/// Whether the host has machines, and a static shell to put into them.
#[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
fn are_there() -> bool {
    let lacks =
        backends::Capabilities::probe().machine(policy::control::Emulator::Qemu).err().map(|missing| missing.why);
    let shell = Path::new("/bin/busybox").exists();
    if let Some(why) = lacks.or_else(|| (!shell).then(|| "there is no `/bin/busybox`".to_owned())) {
        println!("skip: the vm tier from the command line: {why}");
        return false;
    }
    true
}

/// A root of busybox's; nothing where the host has no machines.
pub(super) fn root(fixture: &Fixture) -> Option<String> {
    if !are_there() {
        return None;
    }
    let root = fixture.path("root");
    std::fs::create_dir_all(root.join("bin")).unwrap();
    std::fs::copy("/bin/busybox", root.join("bin/busybox")).unwrap();
    for name in ["sh", "cat", "date", "echo", "id", "sleep", "touch", "true"] {
        symlink("busybox", root.join("bin").join(name)).unwrap();
    }
    std::fs::create_dir(root.join("etc")).unwrap();
    std::fs::write(root.join("etc/machine-id"), "0123\n").unwrap();
    Some(format!("fs.root=dir:{}", root.display()))
}

/// That it opens is not enough; `scripts/vm` shows machines on a KVM that holds.
#[test]
fn a_kvm_on_which_no_machine_has_started_is_not_used_and_the_plan_says_why() {
    let fixture = &Fixture::new();
    let Some(root) = root(fixture).filter(|_| open_kvm(fixture)) else { return };
    let there = |module: &str| Path::new("/sys/module").join(module).exists();
    let kind = there("kvm_pvm") && !there("kvm_intel") && !there("kvm_amd");
    let why = if kind { "of the kind `kvm_pvm`" } else { "no machine was tried on KVM since this host is up" };
    let plan = fixture.run(&["plan", "--json", "--tier=vm", "--set", &root, "--", "sh"]).json();
    let notes = plan["notes"].as_array().unwrap();
    assert!(notes.iter().any(|note| note.as_str().unwrap().contains(why)), "{notes:?}");
    let tier = plan["clauses"].as_array().unwrap().iter().find(|one| one["clause"] == "tier").unwrap();
    assert!(tier["enforcer"].as_str().unwrap().starts_with("vm:qemu-tcg+"), "{tier}");
    let said = fixture.run(&["run", "-q", "--tier=vm", "--set", &root, "--", "echo", "there"]);
    assert_eq!((said.code, said.out.as_str()), (0, "there\n"), "{said:?}");
}

#[test]
fn a_live_sandbox_in_a_machine_is_worked_in_and_what_is_not_built_is_refused_by_name() {
    let fixture = &Fixture::new();
    let Some(root) = root(fixture) else { return };
    let project = fixture.path("given");
    std::fs::create_dir(&project).unwrap();
    std::fs::write(project.join("file"), "of the host\n").unwrap();
    let mode = |mode: &str| format!("{}:{mode}", project.display());
    let (code, _, err) = call(fixture, &["create", "--tier=vm", "--set", &root, "-w", &mode("copy")]);
    assert!(code == 126 && err.contains("live sandbox in a machine"), "{code} {err}");
    let live = Live::new(fixture, &["--tier=vm", "--set", &root, "-w", &mode("ro")]);
    let (code, out, err) = live.exec(&[], &["sh", "-c", "cat file; id -u; echo kept >/tmp/a; touch new || exit 7"]);
    assert_eq!((code, out.as_str()), (7, "of the host\n1000\n"), "{err}");
    let (code, out, _) = live.exec(&[], &["cat", "/etc/machine-id"]);
    assert_eq!((code, out.as_str()), (0, ""), "the root's own id");
    let (_, out, _) = live.exec(&[], &["cat", "/tmp/a", "/proc/sys/kernel/osrelease"]);
    let release =
        backends::Capabilities::probe().machine(policy::control::Emulator::Qemu).unwrap().kernel.release.clone();
    assert_eq!(out, format!("kept\n{release}\n"));
    let (into, out_of) = (format!("{}:/tmp/came", live.id), fixture.path("back"));
    assert_eq!(call(fixture, &["cp", &project.join("file").display().to_string(), &into]).0, 0);
    assert_eq!(call(fixture, &["cp", &into, &out_of.display().to_string()]).0, 0);
    assert_eq!(std::fs::read_to_string(out_of).unwrap(), "of the host\n");
    assert_eq!(call(fixture, &["pause", &live.id]).0, 0);
    assert_eq!(live.exec(&[], &["true"]).0, 125);
    assert_eq!(call(fixture, &["resume", &live.id]).0, 0);
    assert_eq!(live.exec(&[], &["true"]).0, 0);
    for refused in ["snapshot", "fork"] {
        let (code, _, err) = call(fixture, &[refused, &live.id]);
        assert!(code == 125 && err.contains("no snapshot of this machine"), "{refused}: {code} {err}");
    }
    let (code, _, err) = call(fixture, &["diff", &live.id]);
    assert!(code == 125 && err.contains("no changes of this sandbox"), "{code} {err}");
    assert_eq!(call(fixture, &["kill", &live.id]).0, 0);
    assert_eq!(live.info()["state"], "ended");
}

/// A shell that runs when its machine is copied: it holds `/dev/urandom`, and says one number of its own and one of the kernel's for
/// each time that it is asked.
const RUNS: &str = "exec 3</dev/urandom; : $RANDOM; n=0; echo $$ >/tmp/pid; while :; do if [ -e /tmp/ask ]; then rm /tmp/ask; \
                    n=$((n+1)); echo $n $RANDOM $(dd bs=16 count=1 <&3 2>/dev/null | od -An -tx1 | tr -d ' ') >/tmp/said.new; \
                    mv /tmp/said.new /tmp/said; fi; sleep 0.2; done";

/// Its programs go on in each copy where they stood, with what they had in memory and with random numbers of the copy's own: those of
/// the kernel. A generator of a program's own is part of its memory, which shows that it is the same program that goes on.
#[test]
fn a_snapshot_of_a_machine_keeps_its_memory_and_forks_share_no_random_numbers() {
    let fixture = &Fixture::new();
    let Some(root) = root(fixture) else { return };
    for name in ["dd", "od", "tr", "mv", "rm", "grep"] {
        symlink("busybox", fixture.path("root/bin").join(name)).unwrap();
    }
    let live = Live::new(fixture, &["--tier=vm", "--set", &root]);
    assert_eq!(live.exec(&["-d"], &["sh", "-c", RUNS]).0, 0);
    let asked = |live: &Live<'_>| {
        let ask = "touch /tmp/ask; while [ -e /tmp/ask ] || [ ! -e /tmp/said ]; do sleep 0.1; done; cat /tmp/pid /tmp/said; rm /tmp/said";
        let (code, out, err) = live.exec(&[], &["sh", "-c", ask]);
        assert_eq!(code, 0, "{err}");
        let words: Vec<String> = out.split_whitespace().map(str::to_owned).collect();
        let [pid, count, own, kernels] = <[String; 4]>::try_from(words).unwrap();
        (pid, count, own, kernels)
    };
    let first = asked(&live);
    let (code, out, err) = call(fixture, &["snapshot", &live.id, "--name", "then"]);
    assert_eq!(code, 0, "{err}");
    let kept = fixture.path("state/snapshots").join(out.trim_end());
    for name in ["memory", "root", "snapshot.json"] {
        let mode = std::os::unix::fs::PermissionsExt::mode(&kept.join(name).metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    // The first one goes on, and what it does then is in no copy.
    let original = asked(&live);
    let (code, out, err) = call(fixture, &["create", "--from", "then"]);
    assert_eq!(code, 0, "{err}");
    let restored = Live { fixture, id: out.trim_end().to_owned() };
    // A paused one is copied as well, and stays paused.
    assert_eq!(call(fixture, &["pause", &live.id]).0, 0);
    let (code, out, err) = call(fixture, &["fork", &live.id]);
    assert_eq!(code, 0, "{err}");
    let forked = Live { fixture, id: out.trim_end().to_owned() };
    assert_eq!(live.info()["state"], "paused");
    assert_eq!(call(fixture, &["resume", &live.id]).0, 0);
    let (second, third, fourth) = (asked(&live), asked(&restored), asked(&forked));
    assert_eq!((first.1.as_str(), original.1.as_str(), third.1.as_str()), ("1", "2", "2"), "{third:?}");
    assert_eq!((second.1.as_str(), fourth.1.as_str()), ("3", "3"), "{second:?} {fourth:?}");
    // The same program with the same memory ...
    assert!([&first, &original, &second, &third, &fourth].iter().all(|said| said.0 == first.0));
    assert_eq!((&third.2, &fourth.2), (&original.2, &second.2), "a generator of its own");
    // ... and no number of the kernel's twice.
    let kernels: std::collections::BTreeSet<_> =
        [&first, &original, &second, &third, &fourth].map(|said| &said.3).into();
    assert_eq!(kernels.len(), 5, "{kernels:?}");
    // Programs that went along are nobody's in the copy, and the clock is not that of the snapshot.
    let (_, out, _) = call(fixture, &["ps", &restored.id, "--json"]);
    assert!(!out.contains("urandom"), "{out}");
    let (_, out, _) = restored.exec(&[], &["date", "+%s"]);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert!(now.abs_diff(out.trim_end().parse().unwrap()) < 30, "{out}");
    // What is otherwise than it was is refused, and nothing boots in its place.
    for flags in [&["--memory", "384M"][..], &["--env", "A=b"], &["--tier", "container"]] {
        let (code, _, err) = call(fixture, &[&["create", "--from", "then"], flags].concat());
        assert!(code == 126 || code == 125, "{flags:?}: {code} {err}");
        assert!(err.contains("cannot"), "{flags:?}: {err}");
    }
    std::fs::OpenOptions::new().append(true).open(kept.join("memory")).unwrap().set_len(1 << 20).unwrap();
    let (code, _, err) = call(fixture, &["create", "--from", "then"]);
    assert!(code == 125 && err.contains("damaged") && err.contains("does not have the sum"), "{code} {err}");
    assert_eq!(call(fixture, &["snapshots", "--rm", "then"]).0, 0);
    assert!(!kept.exists());
}

/// What is counted is the emulator's: beside a limit of the machine's it would look like one that does not hold.
#[test]
fn what_a_machine_used_stands_beside_no_limit_of_its_own() {
    let fixture = Fixture::new();
    let Some(root) = root(&fixture) else { return };
    let flags = ["run", "--tier=vm", "--memory=192M", "--pids=3", "--report=out.json", "--set", &root];
    let said = fixture.run(&[&flags[..], &["--", "sh", "-c", "echo a | cat"]].concat());
    assert_eq!((said.code, said.out.as_str()), (0, "a\n"), "{said:?}");
    let words = said.err.split_whitespace().collect::<Vec<_>>().join(" ");
    for told in ["with the emulator's own", "processes counted inside alone"] {
        assert!(words.contains(told), "{told}: {said:?}");
    }
    assert!(!words.contains("of 192 MiB") && !words.contains("of 3 processes"), "{said:?}");
    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(fixture.path("work/out.json")).unwrap()).unwrap();
    assert_eq!(report["usage"]["pids_peak"], 0, "{report}");
}

/// Its tree is read whole and goes in as a disk, and its wishes count as on other tiers.
#[test]
fn an_image_is_the_root_of_a_machine() {
    if !are_there() {
        return;
    }
    let fixture = Fixture::new();
    imported(&fixture);
    let script = "pwd; cat /marker; id -u; echo $COLOUR; touch /etc/x 2>/dev/null && echo WRITTEN; cat /etc/own";
    let said = fixture.run(&["run", "-q", "--tier=vm", "--set=fs.root=image:app:1", "--", "sh", "-c", script]);
    assert_eq!((said.code, said.out.as_str()), (0, "/srv\nof the image\n1234\nblue\nkept\n"), "{}", said.err);
}

/// The machine ends with who watched it; what it was made of stays for `gc`, whose groups can only go with nobody in them.
#[test]
fn gc_takes_all_that_a_killed_supervisor_of_a_machine_left() {
    let fixture = Fixture::new();
    let Some(root) = root(&fixture) else { return };
    let words = ["run", "-q", "--tier=vm", "--set", &root, "--", "sh", "-c", "echo up; sleep 60"];
    let mut supervisor = fixture.command(&words).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(supervisor.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "up\n");
    supervisor.kill().unwrap();
    supervisor.wait().unwrap();
    let journals = || std::fs::read_dir(fixture.path("state/runs")).unwrap().map(|entry| entry.unwrap().path());
    let run = journals().next().unwrap().file_stem().unwrap().to_str().unwrap().to_owned();
    let files = Path::new("/tmp").join(format!("fumehood-{run}"));
    assert!(files.join("kernel").exists(), "the control: there is something to take");
    let swept = fixture.run(&["gc", "--json"]);
    assert_eq!((swept.code, &swept.json()["kept"]), (0, &serde_json::json!([])), "{swept:?}");
    assert!(!files.exists());
    assert_eq!(journals().count(), 0);
    assert_eq!(fixture.run(&["gc", "--json"]).json()["removed"], serde_json::json!([]));
}

/// What a test needs is perhaps below the place that is to be full: it is shown elsewhere.
const ELSEWHERE: &str = "mkdir ../bin && mount --bind ${1%/*} ../bin && mount --rbind .. /mnt && cd /mnt || exit 77; \
                         export FUMEHOOD_STATE=/mnt/work/disk/state; ";

/// No room to keep a machine is no fault; none for what one starts from, or for the journal, is told, and nothing of it stays.
#[test]
fn a_full_disk_is_told_and_leaves_nothing_of_a_machine() {
    let fixture = Fixture::new();
    if root(&fixture).is_none() {
        return;
    }
    let text = "machine() { bin/fumehood run -q --tier=vm --set=fs.root=dir:/mnt/root -- echo ran; echo $?; }; \
                left() { ls $FUMEHOOD_STATE/runs $FUMEHOOD_STATE/machines | grep -v -e : -e ^$; echo left; }; \
                machine; left; fill; machine; left; rm $disk/fill; \
                mount -t tmpfs -o size=1M,mode=1777 none /tmp || exit 77; machine; ls -A /tmp; left";
    let Some(said) = on_a_small_disk(&fixture, "2M", &format!("{ELSEWHERE}{text}")) else { return };
    assert_eq!(said.out, "ran\n0\nleft\n126\nleft\n125\nleft\n", "{said:?}");
    for told in ["why: the disk is full", "writing what the machine starts from failed", "No space left on device"] {
        assert!(said.err.contains(told), "{told}: {said:?}");
    }
}

/// What a machine is takes as much as its memory: where there is no room, that is the reason, and the machine goes on.
#[test]
fn a_snapshot_for_which_there_is_no_room_says_so() {
    let fixture = Fixture::new();
    if root(&fixture).is_none() {
        return;
    }
    let text = "id=$(bin/fumehood create --tier=vm --memory=192M --set=fs.root=dir:/mnt/root) || exit; \
                bin/fumehood snapshot $id; echo $?; bin/fumehood exec $id -- echo on; bin/fumehood kill $id";
    let Some(said) = on_a_small_disk(&fixture, "4M", &format!("{ELSEWHERE}{text}")) else { return };
    assert_eq!(said.out, "125\non\n", "{said:?}");
    let told = said.err.contains("the disk is full; free some space");
    assert!(told && !said.err.contains("try again"), "{said:?}");
}

/// It starts one where it is asked for, and knows of it afterwards.
#[test]
fn doctor_starts_a_machine_once() {
    if !are_there() {
        return;
    }
    let fixture = Fixture::new();
    let proof = |flags: &[&str]| {
        let said = fixture.run(&[&["doctor", "--json"], flags].concat());
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
