//! Runs of the vm tier: a machine for each, emulated, so a few that ask for much at once. Skipped by name where the host has no
//! emulator, no prepared kernel, or no program that works in an empty root.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::print_stderr, reason = "a test that is skipped says so")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use policy::OutcomeKind;
use policy::report::Limit;
use sandbox::{
    Capabilities, Environment, Finished, Inputs, Options, PolicyLayer, Sandbox, Sink, Stdin, Stdio, Workload,
};

/// One emulator at a time: each takes a whole processor.
static ALONE: Mutex<()> = Mutex::new(());
/// The state folder of all of them, so that most begin with the memory of a prepared machine.
static STATE: OnceLock<PathBuf> = OnceLock::new();

fn state() -> PathBuf {
    let fresh = || {
        let state = Path::new(env!("CARGO_TARGET_TMPDIR")).join("machines");
        drop(std::fs::remove_dir_all(&state));
        state
    };
    STATE.get_or_init(fresh).clone()
}

/// The prepared machines that are kept.
fn kept() -> Vec<PathBuf> {
    let listed = std::fs::read_dir(state().join("machines"));
    listed.map(|all| all.map(|entry| entry.unwrap().path()).collect()).unwrap_or_default()
}

struct Fixture {
    folder: tempfile::TempDir,
    environment: Environment,
    host: Capabilities,
    _alone: MutexGuard<'static, ()>,
}

impl Fixture {
    fn new() -> Option<Self> {
        let host = Capabilities::probe();
        let shell = PathBuf::from("/bin/busybox");
        let lacks = host.machine(policy::control::Emulator::Qemu).err().map(|missing| missing.why);
        let lacks = lacks.or_else(|| (!shell.exists()).then(|| "there is no `/bin/busybox`".to_owned()));
        if let Some(why) = lacks {
            eprintln!("skip: the vm tier: {why}");
            return None;
        }
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        std::fs::create_dir_all(root.join("bin")).unwrap();
        std::fs::create_dir_all(root.join("etc")).unwrap();
        std::fs::copy(shell, root.join("bin/busybox")).unwrap();
        for name in [
            "sh", "cat", "echo", "sleep", "dd", "touch", "mount", "ls", "id", "kill", "rm", "grep", "chmod", "cp",
            "tr", "wc", "ln", "mkdir", "pwd", "od", "date",
        ] {
            symlink("busybox", root.join("bin").join(name)).unwrap();
        }
        std::fs::write(root.join("etc/passwd"), "user:x:1000:1000::/home/user:/bin/sh\n").unwrap();
        let variables = [("PATH", "/usr/bin:/bin".into()), ("FUMEHOOD_STATE", state())];
        let env: BTreeMap<OsString, OsString> =
            variables.into_iter().map(|(name, value)| (name.into(), value.into_os_string())).collect();
        let euid = rustix::process::geteuid().as_raw();
        let environment = Environment::new(Some(folder.path().to_owned()), env, euid);
        Some(Self { folder, environment, host, _alone: alone })
    }

    fn start(&self, set: &[&str], argv: &[&str], stdin: Stdin) -> Sandbox {
        let mut layers = vec![PolicyLayer::Document("strict".to_owned())];
        let root = format!("fs.root=dir:{}", self.folder.path().join("root").display());
        let own = ["tier=vm", root.as_str(), "limits.wall=60s"];
        layers.extend(own.iter().chain(set).map(|set| PolicyLayer::Set((*set).to_owned())));
        let loaded = sandbox::load(&layers, &self.environment, Inputs::Now).unwrap();
        let what = Workload::Argv(argv.iter().map(OsString::from).collect());
        let planned = sandbox::plan(loaded, what, &self.host).unwrap();
        let stdio = Stdio::Streams { stdin, stdout: Sink::Keep, stderr: Sink::Keep };
        sandbox::start(planned, &self.environment, &self.host, Options::new(stdio)).unwrap()
    }

    fn run(&self, set: &[&str], script: &str) -> Finished {
        let ended = self.start(set, &["sh", "-c", script], Stdin::Nothing).wait().unwrap();
        assert_eq!(ended.failed, [], "{script}");
        ended
    }

    /// A folder to work in.
    fn project(&self) -> PathBuf {
        let project = self.folder.path().join("project");
        std::fs::create_dir_all(project.join("a")).unwrap();
        std::fs::write(project.join("a/given"), "of the host\n").unwrap();
        std::fs::write(project.join("gone"), "").unwrap();
        project
    }

    /// Nothing of a run is left: no emulator, no folder.
    fn nothing_left(&self) {
        assert_eq!(std::fs::read_dir(state().join("runs")).unwrap().count(), 0);
        assert_eq!(emulators(), Vec::<i32>::new());
    }
}

/// Emulators that run below this process.
fn emulators() -> Vec<i32> {
    let own = i32::try_from(std::process::id()).unwrap();
    let all = sys::proc::tree(own).unwrap();
    let words = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    all.into_iter().filter(|pid| words(pid).contains("qemu-system")).collect()
}

fn text(ended: &Finished) -> String {
    String::from_utf8_lossy(&ended.stdout.bytes).into_owned()
}

#[test]
fn a_program_runs_on_a_kernel_of_its_own_and_its_streams_and_code_come_back() {
    let Some(place) = Fixture::new() else { return };
    let input = b"a line\n".repeat(40_000);
    let script = "cat /proc/sys/kernel/osrelease; id
        for one in fd stdin stdout stderr; do busybox readlink /dev/$one; done; wc -c </dev/stdin; echo oops >&2; exit 7";
    let sandbox = place.start(&[], &["sh", "-c", script], Stdin::Bytes(input.clone()));
    let ended = sandbox.wait().unwrap();
    assert_eq!(ended.failed, []);
    let outcome = &ended.report.outcome;
    assert_eq!((outcome.kind, outcome.code), (OutcomeKind::Exited, Some(7)), "{}", text(&ended));
    let release = &place.host.machine(policy::control::Emulator::Qemu).unwrap().kernel.release;
    assert!(text(&ended).starts_with(&format!("{release}\nuid=1000(user) gid=1000")), "{}", text(&ended));
    assert!(text(&ended).trim_end().ends_with(&input.len().to_string()), "{}", text(&ended));
    // As in every other tier with a root of its own.
    let named = "/proc/self/fd\n/proc/self/fd/0\n/proc/self/fd/1\n/proc/self/fd/2\n";
    assert!(text(&ended).contains(named), "{}", text(&ended));
    assert_eq!(ended.stderr.bytes, b"oops\n");
    place.nothing_left();
}

/// The second one begins with the memory of a prepared machine, and is in nothing another than one that boots: who holds what is
/// the same, it has the time, and its random numbers and its boot id are its own.
#[test]
fn a_machine_that_does_not_boot_is_as_any_other_and_has_random_numbers_of_its_own() {
    let Some(place) = Fixture::new() else { return };
    for one in kept() {
        std::fs::remove_file(one).unwrap();
    }
    let script =
        "cat /proc/sys/kernel/random/boot_id; dd if=/dev/urandom bs=16 count=1 2>/dev/null | od -An -tx1 | tr -d ' '
        date +%s; cat /proc/sys/kernel/osrelease; id";
    let began = Instant::now();
    let first = place.run(&[], script);
    let booted = began.elapsed();
    assert_eq!(kept().len(), 1);
    let mut seen = vec![first];
    for _ in 0..2 {
        let began = Instant::now();
        let sandbox = place.start(&[], &["sh", "-c", script], Stdin::Nothing);
        let took = began.elapsed();
        eprintln!("booted and ran in {} ms, began from memory in {} ms", booted.as_millis(), took.as_millis());
        let ended = sandbox.wait().unwrap();
        assert_eq!(ended.failed, []);
        seen.push(ended);
    }
    let lines: Vec<Vec<String>> = seen.iter().map(|ended| text(ended).lines().map(str::to_owned).collect()).collect();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    for (at, said) in lines.iter().enumerate() {
        assert_eq!(said.len(), 5, "{said:?}");
        for other in lines.iter().skip(at + 1) {
            assert!(said[0] != other[0] && said[1] != other[1], "{lines:?}");
            assert_eq!(said[3..], other[3..]);
        }
        let time: u64 = said[2].parse().unwrap();
        assert!(time <= now + 5 && time + 600 >= now, "{time} {now}");
    }
    let held = |ended: &Finished| serde_json::to_value(&ended.report.enforcers).unwrap();
    assert_eq!(held(&seen[0]), held(&seen[1]));
    place.nothing_left();
}

/// Each attack prints a word when it succeeds; what a program may do is tried beside it.
#[test]
fn what_is_closed_in_a_machine_stays_closed_and_the_rest_works() {
    let Some(place) = Fixture::new() else { return };
    let script = "
        touch /bin/x 2>/dev/null && echo ROOT-WRITTEN
        touch /etc/x 2>/dev/null && echo IMAGE-WRITTEN
        cp /bin/busybox /tmp/b && chmod 755 /tmp/b && /tmp/b true 2>/dev/null && echo WRITTEN-EXECUTED
        mount -t tmpfs none /tmp 2>/dev/null && echo MOUNTED
        cat /dev/vda >/dev/null 2>&1 && echo DEVICE-READ
        ls /sys/kernel >/dev/null 2>&1 && echo SYS-SEEN
        echo 1 2>/dev/null >/proc/sys/kernel/panic && echo SYSCTL-WRITTEN
        echo b 2>/dev/null >/proc/sysrq-trigger && echo SYSRQ
        grep -q eth /proc/net/dev && echo NETWORK
        dd if=/dev/zero of=/tmp/big bs=1M count=500 2>/dev/null && echo DISK-UNBOUNDED
        rm -f /tmp/big
        kill -9 1 2>/dev/null && echo INIT-KILLED
        echo works >/tmp/file && cat /tmp/file && ls /home/user >/dev/null && echo LEGITIMATE";
    let ended = place.run(&["limits.file_size=none"], script);
    assert_eq!(text(&ended), "works\nLEGITIMATE\n");
    place.nothing_left();
}

/// It was started, and ran: that is never told as a refusal.
#[test]
fn who_ends_what_started_it_is_told_as_a_failure_of_the_run() {
    let Some(place) = Fixture::new() else { return };
    let ended = place.run(&[], "echo ran; kill -9 $PPID && sleep 2; echo still");
    let outcome = &ended.report.outcome;
    // From Linux 6.12 on no program can: there it goes on to its end.
    if outcome.kind != OutcomeKind::Exited {
        assert_eq!((outcome.kind, outcome.code), (OutcomeKind::Failed, Some(125)), "{outcome:?}");
        assert!(!outcome.message.contains("nothing was run") && ended.not_started.is_none(), "{outcome:?}");
    }
    assert!(text(&ended).starts_with("ran\n"), "{}", text(&ended));
    place.nothing_left();
}

/// The copy goes in, what was written comes back as changes, and nothing of the host is touched before `apply`.
#[test]
fn a_workspace_goes_in_as_a_copy_and_its_changes_come_back() {
    let Some(place) = Fixture::new() else { return };
    let project = place.project();
    let script = "
        pwd; cat a/given; echo more >>a/given; echo new >a/new; rm gone; ln -s ../../etc/passwd out
        ln a/new linked; mkdir -p deep/er; chmod 700 deep; id -u; ls -n a/given | tr -s ' '
        dd if=/dev/zero of=big bs=1M count=500 2>/dev/null && echo DISK-UNBOUNDED; rm -f big
        touch /workspace/../x 2>/dev/null && echo ROOT-WRITTEN; echo end";
    let mode = format!("workspace={{path=\"{}\",mode=\"copy\"}}", project.display());
    let ended = place.run(&[mode.as_str(), "limits.file_size=none", "limits.disk=32M", "fs.tmp=8M"], script);
    let said = text(&ended);
    assert!(said.starts_with("/workspace\nof the host\n1000\n-rw-r--r-- 1 1000 1000"), "{said}");
    assert!(said.ends_with("end\n") && !said.contains("UNBOUNDED") && !said.contains("WRITTEN"), "{said}");
    let report = &ended.report.workspace;
    let changes: Vec<String> =
        report.changes.iter().map(|change| format!("{} {}", change.change, change.path)).collect();
    // The link comes as a file of its own, which is told.
    let added = ["added a/new", "added deep", "added deep/er", "added linked", "added out"];
    let wanted = [&added[..], &["modified a/given", "refused linked", "removed gone"]].concat();
    let mut found = changes.clone();
    found.sort();
    assert_eq!(found, wanted, "{changes:?} {:?}", report.notes);
    assert_eq!(std::fs::read_to_string(project.join("a/given")).unwrap(), "of the host\n");
    assert!(project.join("gone").exists() && !project.join("out").exists());
    place.nothing_left();
}

/// What its own user may not read, nobody inside hands over: it is told, and not taken for removed.
#[test]
fn what_a_machine_does_not_hand_over_is_not_told_as_removed() {
    let Some(place) = Fixture::new() else { return };
    let mode = format!("workspace={{path=\"{}\",mode=\"copy\"}}", place.project().display());
    let script = "chmod 0 a/given; echo x >closed; chmod 0 closed; rm gone; echo new >new";
    let ended = place.run(&[mode.as_str(), "limits.disk=32M", "fs.tmp=8M"], script);
    let report = &ended.report.workspace;
    let changes: Vec<String> =
        report.changes.iter().map(|change| format!("{} {}", change.change, change.path)).collect();
    assert_eq!(changes, ["added new"], "{:?}", report.notes);
    for told in ["closed", "a/given", "nothing that is missing is told as removed"] {
        assert!(report.notes.iter().any(|note| note.contains(told)), "{told}: {:?}", report.notes);
    }
    place.nothing_left();
}

/// One that is ended has nobody left who hands over what it wrote: that is said, and never told as "no changes".
#[test]
fn a_limit_of_time_ends_the_machine_and_what_it_wrote_is_said_to_be_lost() {
    let Some(place) = Fixture::new() else { return };
    let mode = format!("workspace={{path=\"{}\",mode=\"copy\"}}", place.project().display());
    let began = Instant::now();
    let script = ["sh", "-c", "echo new >new; sleep 60"];
    let ended = place.start(&[mode.as_str(), "limits.wall=2s"], &script, Stdin::Nothing).wait().unwrap();
    let outcome = &ended.report.outcome;
    assert_eq!((outcome.kind, outcome.limit), (OutcomeKind::Limit, Some(Limit::Wall)));
    assert!(began.elapsed() < Duration::from_secs(200));
    let ids: Vec<_> = ended.failed.iter().map(|fault| fault.id).collect();
    assert_eq!(ids, ["run/changes-lost"], "{:?}", ended.failed);
    assert!(ended.report.workspace.changes.is_empty());
    place.nothing_left();
}

#[test]
fn memory_is_that_of_the_machine_and_the_report_says_so() {
    let Some(place) = Fixture::new() else { return };
    let ended = place
        .run(&["limits.memory=160M", "limits.disk=64M", "fs.tmp=16M"], "dd if=/dev/zero of=/dev/null bs=120M count=1");
    let outcome = &ended.report.outcome;
    assert_eq!(
        (outcome.kind, outcome.limit),
        (OutcomeKind::Limit, Some(Limit::Memory)),
        "{outcome:?} {}",
        text(&ended)
    );
    place.nothing_left();
}

#[test]
#[expect(clippy::disallowed_methods, reason = "what the program has said is told at its end alone")]
fn a_signal_reaches_the_program_and_a_killed_run_leaves_nothing() {
    let Some(place) = Fixture::new() else { return };
    let script = "trap 'echo got; exit 3' TERM; echo up; while :; do sleep 0.1; done";
    let sandbox = place.start(&[], &["sh", "-c", script], Stdin::Nothing);
    std::thread::sleep(Duration::from_secs(3));
    sandbox.signal(15);
    let ended = sandbox.wait().unwrap();
    assert_eq!(text(&ended), "up\ngot\n");
    let sandbox = place.start(&[], &["sleep", "60"], Stdin::Nothing);
    assert_eq!(emulators().len(), 1);
    sandbox.handle().kill();
    let ended = sandbox.wait().unwrap();
    assert_eq!(ended.report.outcome.signal, Some(9), "{:?}", ended.report.outcome);
    place.nothing_left();
}

/// Nobody in the machine can say so any more: it is a failure of ours by name, and never an end of the program.
#[test]
fn an_emulator_that_is_killed_is_told_as_a_failure_and_leaves_nothing() {
    let Some(place) = Fixture::new() else { return };
    let sandbox = place.start(&[], &["sleep", "60"], Stdin::Nothing);
    let emulator = rustix::process::Pid::from_raw(emulators()[0]).unwrap();
    rustix::process::kill_process(emulator, rustix::process::Signal::KILL).unwrap();
    let ended = sandbox.wait().unwrap();
    let outcome = &ended.report.outcome;
    assert_eq!((outcome.kind, outcome.exit_code()), (OutcomeKind::Failed, 125), "{outcome:?}");
    assert!(outcome.message.contains("ended without saying how the program did"), "{outcome:?}");
    place.nothing_left();
}

#[test]
fn a_program_that_is_not_there_is_told_as_on_every_tier() {
    let Some(place) = Fixture::new() else { return };
    let ended = place.start(&[], &["nothing-of-that-name"], Stdin::Nothing).wait().unwrap();
    assert_eq!(ended.report.outcome.exit_code(), 127, "{:?}", ended.report.outcome);
    place.nothing_left();
}
