//! Many sandboxes in one process: started from threads that may end before they do, each with its own outcome, and nothing
//! is left of them. And what belongs to the whole process is as it was.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};

use policy::OutcomeKind;
use policy::report::Limit;
use sandbox::{Capabilities, Environment, Inputs, Options, PolicyLayer, Sandbox, Sink, Stdin, Stdio, Workload};

/// Both tests count what the process has.
static ALONE: Mutex<()> = Mutex::new(());

struct Fixture {
    folder: tempfile::TempDir,
    environment: Environment,
    host: Capabilities,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let variables = [("PATH", "/usr/bin:/bin".into()), ("FUMEHOOD_STATE", folder.path().join("state"))];
        let env: BTreeMap<OsString, OsString> =
            variables.into_iter().map(|(name, value)| (name.into(), value.into_os_string())).collect();
        let euid = rustix::process::geteuid().as_raw();
        let environment = Environment::new(Some(folder.path().to_owned()), env, euid);
        Self { folder, environment, host: Capabilities::probe() }
    }

    fn start(&self, set: &[&str], argv: &[&str], stdin: Stdin) -> Sandbox {
        let mut layers = vec![PolicyLayer::Document("strict".to_owned())];
        layers.extend(set.iter().map(|set| PolicyLayer::Set((*set).to_owned())));
        let loaded = sandbox::load(&layers, &self.environment, Inputs::Now).unwrap();
        let what = Workload::Argv(argv.iter().map(OsString::from).collect());
        let planned = sandbox::plan(loaded, what, &self.host).unwrap();
        let stdio = Stdio::Streams { stdin, stdout: Sink::Keep, stderr: Sink::Keep };
        sandbox::start(planned, &self.environment, &self.host, Options::new(stdio)).unwrap()
    }

    fn journals(&self) -> usize {
        std::fs::read_dir(self.folder.path().join("state/runs")).unwrap().count()
    }
}

/// What one of them does, and how it must end.
#[derive(Clone, Copy, Debug)]
enum Case {
    Exits(i32),
    Echoes,
    TooLong,
    Signalled,
    Killed,
}

impl Case {
    fn of(number: usize) -> Self {
        match number % 5 {
            0 => Self::Exits(i32::try_from(number % 100).unwrap()),
            1 => Self::Echoes,
            2 => Self::TooLong,
            3 => Self::Signalled,
            _ => Self::Killed,
        }
    }

    fn start(self, place: &Fixture, number: usize) -> Sandbox {
        let sleep = ["sleep", "60"];
        match self {
            Self::Exits(code) => place.start(&[], &["sh", "-c", &format!("exit {code}")], Stdin::Nothing),
            Self::Echoes => place.start(&[], &["cat"], Stdin::Bytes(format!("this is {number}").into_bytes())),
            Self::TooLong => place.start(&["limits.wall=300ms"], &sleep, Stdin::Nothing),
            Self::Signalled => {
                let sandbox = place.start(&[], &sleep, Stdin::Nothing);
                sandbox.signal(15);
                sandbox
            }
            Self::Killed => {
                let sandbox = place.start(&[], &sleep, Stdin::Nothing);
                sandbox.handle().kill();
                sandbox
            }
        }
    }

    fn check(self, sandbox: Sandbox, number: usize) {
        let ended = sandbox.wait().unwrap();
        assert_eq!(ended.failed, [], "{number}");
        let outcome = &ended.report.outcome;
        let found = (outcome.kind, outcome.code, outcome.signal, outcome.limit);
        match self {
            Self::Exits(code) => assert_eq!(found, (OutcomeKind::Exited, Some(code), None, None), "{number}"),
            Self::Echoes => {
                assert_eq!(found, (OutcomeKind::Exited, Some(0), None, None), "{number}");
                assert_eq!(ended.stdout.bytes, format!("this is {number}").into_bytes());
            }
            Self::TooLong => assert_eq!((found.0, found.3), (OutcomeKind::Limit, Some(Limit::Wall)), "{number}"),
            Self::Signalled => assert_eq!(found, (OutcomeKind::Signalled, None, Some(15), None), "{number}"),
            Self::Killed => assert_eq!((found.0, found.2), (OutcomeKind::Signalled, Some(9)), "{number}"),
        }
    }
}

/// Processes whose parent is this one.
fn children() -> Vec<String> {
    let own = std::process::id().to_string();
    let stats = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path().join("stat"));
    let stats = stats.filter_map(|stat| std::fs::read_to_string(stat).ok());
    stats.filter(|stat| stat.rsplit_once(") ").unwrap().1.split(' ').nth(1) == Some(own.as_str())).collect()
}

fn groups_of(ids: &BTreeSet<String>) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![PathBuf::from("/sys/fs/cgroup")]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            if ids.contains(entry.file_name().to_str().unwrap_or_default()) {
                found.push(entry.path());
            }
            folders.push(entry.path());
        }
    }
    found
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// Starts one; every third is left behind by its thread, which may have ended by then.
fn run(place: &Fixture, number: usize) -> (usize, String, Option<Sandbox>) {
    let case = Case::of(number);
    let sandbox = case.start(place, number);
    let id = sandbox.id().to_owned();
    if number.is_multiple_of(3) {
        return (number, id, Some(sandbox));
    }
    case.check(sandbox, number);
    (number, id, None)
}

#[test]
fn two_hundred_from_eight_threads_end_as_they_should_and_leave_nothing() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let place = Fixture::new();
    let mounts = read("/proc/self/mountinfo");
    let mut ids = BTreeSet::new();
    let (sender, orphans) = channel();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (place, sender) = (&place, sender.clone());
            scope.spawn(move || {
                for number in (0..25).map(|turn| thread * 25 + turn) {
                    sender.send(run(place, number)).unwrap();
                }
            });
        }
    });
    drop(sender);
    for (number, id, left) in orphans {
        assert!(ids.insert(id), "two runs have one id");
        if let Some(sandbox) = left {
            Case::of(number).check(sandbox, number);
        }
    }
    assert_eq!(ids.len(), 200);
    assert_eq!(children(), Vec::<String>::new());
    assert_eq!(groups_of(&ids), Vec::<PathBuf>::new());
    assert_eq!(read("/proc/self/mountinfo"), mounts);
    assert_eq!(place.journals(), 0);
}

/// What a process, and the thread that asks, share with what they start.
fn shared() -> BTreeMap<&'static str, String> {
    let status = read("/proc/thread-self/status");
    let of = |name: &str| status.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    let process = read("/proc/self/status");
    let handled = process.lines().filter(|line| line.starts_with("SigIgn") || line.starts_with("SigCgt"));
    let open = std::fs::read_dir("/proc/self/fd").unwrap().count();
    BTreeMap::from([
        ("umask", of("Umask")),
        ("ids", of("Uid") + &of("Gid") + &of("Groups")),
        ("capabilities", of("CapEff") + &of("CapAmb")),
        ("signal mask", of("SigBlk")),
        ("signals handled", handled.collect()),
        ("processors", of("Cpus_allowed")),
        ("limits", read("/proc/self/limits")),
        ("control groups", read("/proc/self/cgroup")),
        ("descriptors", open.to_string()),
        ("directory", std::env::current_dir().unwrap().display().to_string()),
        ("environment", format!("{:?}", std::env::vars_os().collect::<Vec<_>>())),
        ("mounts", read("/proc/self/mountinfo")),
    ])
}

#[test]
fn nothing_that_belongs_to_the_whole_process_is_changed() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let before = shared();
    let place = Fixture::new();
    let workspace = place.folder.path().join("work");
    std::fs::create_dir(&workspace).unwrap();
    std::fs::write(workspace.join("a"), "one").unwrap();
    let work = format!("workspace.path={}", workspace.display());
    let copy = ["workspace.mode=copy", work.as_str()];
    let running = place.start(&copy, &["sh", "-c", "echo two > a; sleep 60"], Stdin::Nothing);
    let during = shared();
    running.kill();
    running.wait().unwrap();
    let process = ["tier=process", "threat=mistakes"];
    place.start(&process, &["true"], Stdin::Nothing).wait().unwrap();
    assert!(Path::new(&workspace).join("a").exists());
    // What is known of the host keeps its control groups open.
    drop(place);
    let after = shared();
    for (what, value) in before {
        assert_eq!(after.get(what), Some(&value), "{what}");
        // Its pipes and groups are open while it runs.
        assert!(what == "descriptors" || during.get(what) == Some(&value), "{what}: {:?}", during.get(what));
    }
}
