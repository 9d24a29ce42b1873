//! Nothing stays: neither after many runs, nor after many at once, nor when the supervisor is killed at any moment.
//!
//! Few of each here; `scripts/leftovers` does thousands. The counts come from `FUMEHOOD_LEFTOVERS`
//! (`ROW,TOGETHER,KILLS`).
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use conformance::case::{CRUN, DOCKER, MONTY, PODMAN};
use conformance::fixture::{root, text};
use conformance::live::{pause, until};
use conformance::survey::Survey;
use conformance::{BackendId, CaseError, CaseResult, Fixture, Tier, Who, check};

/// One at a time: a survey sees what another test has just started.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs whose journal was seen: one that is killed early has nothing in the log yet.
static SEEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

fn see_journals(scene: &Fixture) -> CaseResult {
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    for entry in std::fs::read_dir(scene.state().join("runs"))? {
        let name = entry?.file_name();
        seen.extend(name.to_str().and_then(|name| name.strip_suffix(".json")).map(str::to_owned));
    }
    Ok(())
}

/// How often.
struct Counts {
    row: usize,
    together: usize,
    kills: usize,
}

fn counts() -> Counts {
    let wanted = std::env::var_os("FUMEHOOD_LEFTOVERS").map(OsString::into_string).and_then(Result::ok);
    let mut numbers = wanted.iter().flat_map(|text| text.split(',')).filter_map(|number| number.parse().ok());
    let mut next = |usual| numbers.next().unwrap_or(usual);
    Counts { row: next(300), together: next(32), kills: next(60) }
}

/// What is here beyond `before` and belongs to this scene: other runs of this machine have their own.
fn left(scene: &Fixture, before: &Survey) -> Result<Vec<String>, CaseError> {
    let log = text(&scene.state().join("audit/audit.jsonl"))?;
    let ours = |thing: &String| {
        let run = thing.rsplit('/').next().unwrap_or_default().trim_start_matches("fumehood-");
        let seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner).contains(run);
        !(thing.starts_with("group ") || thing.starts_with("folder ")) || seen || log.contains(run)
    };
    Ok(Survey::take().beyond(before).into_iter().filter(ours).collect())
}

fn nothing_is_left(scene: &Fixture, before: &Survey) -> CaseResult {
    let clean = until(Duration::from_secs(60), || left(scene, before).is_ok_and(|left| left.is_empty()));
    check(clean, || format!("left behind: {:?}", left(scene, before)))?;
    let mut journals = Vec::new();
    for entry in std::fs::read_dir(scene.state().join("runs"))? {
        let path = entry?.path();
        journals.push(format!("{}: {:?}", path.display(), std::fs::read_to_string(&path)));
    }
    if journals.is_empty() {
        return Ok(());
    }
    // Why they stayed, in the words of who takes them away.
    let swept = scene.product(&["gc", "--json"])?.end()?;
    Err(format!("journals are left: {journals:#?}; gc: {}", swept.said()).into())
}

fn scenes() -> Result<Vec<Fixture>, CaseError> {
    let callers: &[Who] = if root() { &Who::ALL } else { &[Who::Rootless] };
    let pairs = callers.iter().flat_map(|who| BackendId::all().into_iter().flatten().map(|backend| (backend, *who)));
    // One interpreter stands for all, which are one program of ours. gVisor and crun are root's alone. A machine starts in
    // seconds: one whose supervisor is killed is in the command line's `machines.rs`. An engine needs a service: `engines`.
    let usual = |(backend, who): &(BackendId, Who)| match backend.tier {
        Tier::Language => MONTY.contains(backend),
        Tier::Process => true,
        Tier::Container => {
            ![PODMAN, DOCKER].concat().contains(backend) && (*who == Who::Rootful || !CRUN.contains(backend))
        }
        Tier::Gvisor => *who == Who::Rootful,
        Tier::Vm => false,
    };
    pairs.filter(usual).map(|(backend, who)| Fixture::new(backend, who)).collect()
}

/// What a run of these tests does.
#[derive(Clone, Copy)]
enum Job {
    /// Ends at once with this exit code.
    Exits(u8),
    /// Ends with 4 while something of it still runs.
    LeavesSome,
    /// Goes on for longer than a test waits.
    Stays,
}

/// A native program, or the same in Python where the tier is an interpreter, which starts no processes of its own.
fn command_line(scene: &Fixture, job: Job) -> Vec<OsString> {
    let (shell, python) = match job {
        Job::Exits(0) => ("true".to_owned(), "pass"),
        // An exception that nobody catches ends with 1, in Python as anywhere.
        Job::Exits(code) => (format!("exit {code}"), "1 / 0"),
        Job::LeavesSome => ("sleep 0.3 & sleep 0.2; exit 4".to_owned(), "1 / 0"),
        Job::Stays => ("setsid sleep 40 & sleep 0.02; wait".to_owned(), "while True:\n  pass"),
    };
    let mut words = ["run", "-q", "--tier", scene.tier.as_str()].map(OsString::from).to_vec();
    words.extend(scene.named());
    match scene.tier {
        Tier::Language => words.extend(["--lang", "python", "--code", python].map(OsString::from)),
        Tier::Process | Tier::Container | Tier::Gvisor | Tier::Vm => {
            words.extend(["--", "/bin/sh", "-c", &shell].map(OsString::from));
        }
    }
    words
}

/// How a job ends.
fn code(scene: &Fixture, job: Job) -> Option<i32> {
    match (scene.tier, job) {
        (_, Job::Exits(0)) => Some(0),
        (Tier::Language, Job::Exits(_) | Job::LeavesSome) => Some(1),
        (_, Job::Exits(code)) => Some(i32::from(code)),
        (_, Job::LeavesSome) => Some(4),
        (_, Job::Stays) => None,
    }
}

#[test]
fn nothing_is_left_after_many_runs_in_a_row() {
    let _alone = alone();
    let scenes = scenes().unwrap();
    let rounds = counts().row / scenes.len();
    for scene in &scenes {
        scene.product(&command_line(scene, Job::Exits(0))).unwrap().end().unwrap();
        let before = Survey::take();
        let began = Instant::now();
        for _ in 0..rounds {
            let ended = scene.product(&command_line(scene, Job::Exits(3))).unwrap().end().unwrap();
            assert_eq!(ended.code, code(scene, Job::Exits(3)), "{}", ended.said());
        }
        nothing_is_left(scene, &before).unwrap();
        println!("{} {}: {rounds} runs in a row in {:?}", scene.tier.as_str(), scene.who.as_str(), began.elapsed());
    }
}

#[test]
fn nothing_is_left_after_many_runs_at_once() {
    let _alone = alone();
    for scene in scenes().unwrap() {
        scene.product(&command_line(&scene, Job::Exits(0))).unwrap().end().unwrap();
        let before = Survey::take();
        let together = counts().together;
        let all: Vec<_> =
            (0..together).map(|_| scene.product(&command_line(&scene, Job::LeavesSome)).unwrap()).collect();
        for live in all {
            let ended = live.end().unwrap();
            assert_eq!(ended.code, code(&scene, Job::LeavesSome), "{}", ended.said());
        }
        nothing_is_left(&scene, &before).unwrap();
        println!("{} {}: {together} runs at once", scene.tier.as_str(), scene.who.as_str());
    }
}

#[test]
fn nothing_is_left_when_the_supervisor_is_killed_at_any_moment() {
    let _alone = alone();
    let scenes = scenes().unwrap();
    let rounds = counts().kills / scenes.len();
    let seed = std::process::id();
    for scene in &scenes {
        scene.product(&command_line(scene, Job::Exits(0))).unwrap().end().unwrap();
        let before = Survey::take();
        let mut random = u64::from(seed) + 1;
        let mut finished = 0;
        for _ in 0..rounds {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let live = scene.product(&command_line(scene, Job::Stays)).unwrap();
            // A run takes some 40 ms to the payload, some 200 ms in gVisor: before it and in it.
            let span = if scene.tier == Tier::Gvisor { 400_000 } else { 90_000 };
            pause(Duration::from_micros((random >> 33) % span));
            if live.signal(9).is_err() {
                finished += 1;
            }
            live.end().unwrap();
            see_journals(scene).unwrap();
            let dead = until(Duration::from_secs(60), || {
                left(scene, &before).is_ok_and(|left| !left.iter().any(|thing| thing.starts_with("process ")))
            });
            assert!(dead, "seed {seed}: {:?}", left(scene, &before));
        }
        // The next start removes what the dead ones could not.
        let next = scene.product(&command_line(scene, Job::Exits(0))).unwrap().end().unwrap();
        assert_eq!(next.code, Some(0), "{}", next.said());
        nothing_is_left(scene, &before).unwrap();
        let verified = scene.product(&["audit", "verify"]).unwrap().end().unwrap();
        assert_eq!(verified.code, Some(0), "{}", verified.said());
        println!("{} {}: {rounds} kills, {finished} after the end", scene.tier.as_str(), scene.who.as_str());
    }
}

/// The folder that the groups share stays after a run, for the next one; `gc` takes it, wherever nobody uses it.
#[test]
fn gc_takes_the_empty_folder_of_the_control_groups() {
    let _alone = alone();
    // Who is not root takes only what is theirs, and on this kind of host makes none.
    for scene in scenes().unwrap().into_iter().filter(|scene| scene.who == Who::Rootful) {
        scene.product(&command_line(&scene, Job::Exits(0))).unwrap().end().unwrap();
        // A run that does not see v2 makes them in hierarchies of v1 where others make none.
        for hierarchy in ["freezer", "cpuacct"].map(|name| std::path::Path::new("/sys/fs/cgroup").join(name)) {
            let folder = hierarchy.join("fumehood");
            let there = !hierarchy.join("tasks").exists() || folder.exists();
            assert!(there || std::fs::create_dir(&folder).is_ok(), "{}", folder.display());
        }
        let mut left = empty_folders();
        // Others of this machine use them meanwhile, and make them again for runs of their own: what was empty
        // here goes once, or has groups of theirs.
        let taken = || {
            let ended = scene.product(&["gc"]).and_then(conformance::Live::end);
            let empty = empty_folders();
            left.retain(|folder| empty.contains(folder));
            ended.is_ok_and(|ended| ended.code == Some(0)) && left.is_empty()
        };
        assert!(until(Duration::from_secs(60), taken), "{left:?}");
    }
}

/// Folders of ours without a group in them, and which folder it is: one that is made again is another.
fn empty_folders() -> Vec<(std::path::PathBuf, u64)> {
    let hierarchies = std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
    let folders = hierarchies.map(|entry| entry.path().join("fumehood"));
    let is_empty = |folder: std::path::PathBuf| {
        let inode = std::fs::metadata(&folder).ok()?.ino();
        let mut groups = std::fs::read_dir(&folder).ok()?.flatten();
        (!groups.any(|entry| entry.path().is_dir())).then_some((folder, inode))
    };
    folders.filter_map(is_empty).collect()
}
