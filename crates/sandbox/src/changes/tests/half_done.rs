//! An `apply` that was killed: the same one goes on, whatever git on the host wrote into its index meanwhile.

use std::collections::BTreeSet;

use super::indices::beside;
use super::objects::{AS, shell};
use super::*;
use crate::changes::exchange::{Plan, STEPS, Work};
use crate::changes::judged::{Asked, Judged};
use crate::changes::reflog::Tips;

/// A run that changed files and committed to them.
fn committed() -> Host {
    let mut host = Host::new(&[("a", "1\n"), ("b", "1\n")]);
    assert!(shell(&host, "git init -q -b main . && git add . && git commit -qm first").0);
    host.begin();
    host.overlay(&format!("{AS}echo 2 > a; echo 2 > b; echo 2 > c; git add .; git commit -qm second"));
    host.read();
    host
}

/// What a killed one had put there: a file or folder of the layer.
fn put_there(host: &Host, name: &str) {
    let done = Command::new("cp").arg("-a").arg(host.at("upper").join(name)).arg(host.work(name)).status().unwrap();
    assert!(done.success());
}

fn goes_on(host: &Host) {
    let applied = host.apply();
    assert!(matches!(applied, Applied::Done { .. }), "{applied:?}");
    let (is_done, text) =
        shell(host, "git fsck --strict && git log --format=%s && git status --porcelain && cat a b c");
    assert!(is_done && text.ends_with("second\nfirst\n2\n2\n2"), "{text}");
}

#[test]
fn an_index_that_git_refreshed_is_no_change_of_somebodys() {
    let host = committed();
    // Killed after one file.
    put_there(&host, "a");
    std::fs::write(host.work("b"), "1\n").unwrap();
    let before = std::fs::read(host.work(".git/index")).unwrap();
    assert!(shell(&host, "touch -d @1 b; git status").0);
    assert!(std::fs::read(host.work(".git/index")).unwrap() != before, "git wrote it anew");
    // The file itself is what it was.
    goes_on(&host);
    // One with another entry is.
    let host = committed();
    assert!(shell(&host, "echo mine > mine; git add mine").0);
    assert!(host.conflicts().contains(&(PathBuf::from(".git/index"), "changed")));
}

#[test]
fn an_index_that_is_taken_already_and_was_refreshed_is_done() {
    let host = committed();
    for name in ["a", "b", "c", ".git/index"] {
        put_there(&host, name);
    }
    assert!(shell(&host, "touch -d @1 b; git status").0);
    goes_on(&host);
}

/// An `apply` of these paths that is not ended.
fn begun<'a>(host: &Host, (manifest, store, root): (&'a Manifest, &'a Dir, &'a Dir), paths: &[&str]) -> Work<'a> {
    let is_one = |entry: &&Entry| paths.iter().any(|path| entry.path == Path::new(path));
    let todo: Vec<&Entry> = manifest.entries.iter().filter(is_one).collect();
    let mut work = Work::begin(&host.state, manifest, root, store, (&todo, Timestamp::now())).unwrap();
    let request = Request { paths: Some(paths.iter().map(PathBuf::from).collect()), ..all() };
    let (judged, tips) = noted(root, &request, &todo);
    let plan = Plan { todo: &todo, locks: &[], judged: &judged, tips: &tips };
    assert!(work.stage(&todo).is_ok() && work.commit(&plan).is_ok());
    work
}

fn noted(root: &Dir, request: &Request, todo: &[&Entry]) -> (Judged, Tips) {
    (Judged::of(root, (Asked::of(request), ""), todo), Tips::of(root, todo, &BTreeSet::new()))
}

/// What is under way is that of another process, which is gone.
fn gone(host: &Host) {
    for journal in std::fs::read_dir(host.at("state/runs")).unwrap() {
        let path = journal.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace(&format!("\"pid\":{}", std::process::id()), "\"pid\":4194305")).unwrap();
        // Copies of this process that other tests begin have it open until they are programs of their own.
        let id: RunId = path.file_stem().unwrap().to_str().unwrap().parse().unwrap();
        for _ in 0..1000 {
            if !crate::state::lives(&host.state, &id).unwrap() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

/// An `apply` that is ended after so many steps; what came of it where it has no more.
fn ended_after(host: &Host, steps: u32, request: &Request) -> Option<Applied> {
    STEPS.set(Some((steps, || std::panic::resume_unwind(Box::new("ended")))));
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| host.apply_with(request).unwrap()));
    STEPS.set(None);
    gone(host);
    done.ok()
}

/// So much later changes are thrown away.
fn sweep_later(host: &Host) {
    let later = Timestamp::now() + jiff::SignedDuration::from_hours(30 * 24);
    crate::gc::sweep(&host.state, later, crate::gc::Scope::All).unwrap();
}

#[test]
fn one_that_was_killed_is_told_and_its_other_half_is_kept() {
    let host = committed();
    let (manifest, store) = load(&host.state, &host.run).unwrap();
    let root = Dir::open(&host.at("work")).unwrap();
    let told = || interrupted(&host.state, &host.run).unwrap().map(|half| half.told());
    let work = begun(&host, (&manifest, &store, &root), &["a", "b"]);
    assert_eq!(told(), None, "it goes on");
    drop(work);
    gone(&host);
    assert!(told().is_some_and(|told| told.contains(&format!("the same `fumehood apply {} -- a b` again", host.run))));
    assert_eq!(all_interrupted(&host.state).unwrap().len(), 1);
    assert!(host.diff().interrupted.is_some());
    sweep_later(&host);
    let apply = |paths: &[&str]| {
        let paths = Some(paths.iter().map(PathBuf::from).collect());
        assert!(matches!(host.apply_with(&Request { paths, ..all() }), Ok(Applied::Done { .. })));
    };
    apply(&["a"]);
    assert!(told().is_some(), "of `b` nobody knows yet");
    apply(&["b"]);
    assert_eq!(told(), None);
    goes_on(&host);
    // One that was put back, and one that was never begun, keep nothing.
    let host = committed();
    let (manifest, store) = load(&host.state, &host.run).unwrap();
    let root = Dir::open(&host.at("work")).unwrap();
    begun(&host, (&manifest, &store, &root), &["a", "c"]).end(true).unwrap();
    assert_eq!(interrupted(&host.state, &host.run).unwrap(), None);
    assert!(!host.work("c").exists());
    sweep_later(&host);
    assert!(load(&host.state, &host.run).is_err());
}

/// Commits have the same names wherever they are made.
const THEN: &str = "export GIT_AUTHOR_DATE=2026-01-01T00:00:00Z GIT_COMMITTER_DATE=2026-01-01T00:00:00Z; ";
const BEGUN: &str = "git init -q -b main . && git add . && git commit -qm first; \
    git branch side $(git commit-tree -p main -m side main^{tree}); git branch other $(git commit-tree -p main -m other main^{tree}); ";
/// What git on the host has, and the files.
const LOOK: &str = "git for-each-ref --format='%(refname) %(objectname)'; git rev-parse HEAD; git symbolic-ref HEAD; git status -s; \
    git ls-files -s; find . -path ./.git -prune -o -printf '%p %y %m\\n' | sort; git fsck --no-dangling; find .git -name '*.lock'";

fn worked(begun: &str, script: &str) -> Host {
    let begun = format!("{THEN}mkdir src; echo 1 > a; echo 1 > src/s; {BEGUN}{begun}");
    beside(&begun, &format!("{THEN}{script}"), "true")
}

fn look(host: &Host) -> String {
    let (is_done, text) = shell(host, LOOK);
    assert!(is_done, "{text}");
    text
}

/// What the run did, and whether each commit has a name all the time.
const WORKS: [(&str, &str, bool); 10] = [
    ("true", "git branch -m side topic", true),
    ("git pack-refs --all", "git branch -m side topic", true),
    ("true", "git branch -m main trunk; echo 2 > a; git commit -qam second", true),
    ("git pack-refs --all", "git branch -m main trunk; echo 2 > a; git commit -qam second", true),
    // The one is in the way of the other.
    ("true", "git branch -m side side/one", false),
    (
        "true",
        "s=$(git rev-parse side) o=$(git rev-parse other); git update-ref refs/heads/side $o; git update-ref refs/heads/other $s",
        false,
    ),
    (
        "git pack-refs --all",
        "echo 2 > a; git commit -qam r1; git pack-refs --all; echo 3 > a; git commit -qam r2",
        true,
    ),
    ("true", "rm a; mkdir a; echo 1 > a/1; rm -r src; echo s > src; git add -A; git commit -qm r; git gc -q", true),
    ("true", "git checkout -qb y; echo z > z; git add z; git commit -qm rz", true),
    (
        "git pack-refs --all",
        "git branch -m main trunk; git branch -D other; git gc -q; echo 2 > a; git commit -qam r2",
        true,
    ),
];

#[test]
fn one_that_was_ended_at_whichever_step_goes_on_and_loses_no_name() {
    for (begun, script, is_named) in WORKS {
        let host = worked(begun, script);
        let (_, tips) = shell(&host, "git for-each-ref --format='%(objectname)' refs/heads");
        if let other @ Applied::Conflicts(_) = host.apply() {
            // What may not be there at all is in no half either.
            panic!("{begun}; {script}: {other:?}");
        }
        let expected = look(&host);
        let removed: Vec<&str> =
            tips.lines().filter(|id| !shell(&host, &format!("git for-each-ref --contains {id} | grep .")).0).collect();
        for steps in 0..200 {
            let host = worked(begun, script);
            if ended_after(&host, steps, &all()).is_some() {
                assert!(steps > 1, "{script}");
                assert_eq!(look(&host), expected);
                break;
            }
            let at = format!("{begun}; {script}: ended after {steps}");
            for id in tips.lines().filter(|id| is_named && !removed.contains(id)) {
                assert!(
                    shell(&host, &format!("git for-each-ref --contains {id} | grep .")).0,
                    "{at}: {id} has no name"
                );
            }
            let applied = host.apply();
            assert!(matches!(applied, Applied::Done { .. }), "{at}: {applied:?}");
            assert_eq!(look(&host), expected, "{at}");
            assert!(load(&host.state, &host.run).is_err());
        }
    }
}

#[test]
fn what_somebody_did_since_it_was_ended_is_a_conflict_still() {
    let script = "git branch -m side topic; echo 2 > a; git commit -qam second";
    // `topic` is there, and `side` still.
    let is_between =
        |host: &Host| ["topic", "side"].iter().all(|name| host.work(".git/refs/heads").join(name).exists());
    let ends_between = |steps: &u32| {
        let host = worked("true", script);
        ended_after(&host, *steps, &all()).is_none() && is_between(&host)
    };
    let steps = (0..200).find(ends_between).unwrap();
    for (meanwhile, is_conflict) in [
        ("true", false),
        ("git status; echo n > n", false),
        ("git update-ref refs/heads/side $(git commit-tree -p side -m mine side^{tree})", true),
        ("git update-ref refs/heads/topic $(git commit-tree -p topic -m mine topic^{tree})", true),
        ("git checkout -q other", true),
        ("git commit -q --allow-empty -m mine", true),
        ("echo mine > a", true),
        ("echo n > n; git add n", true),
    ] {
        let host = worked("true", script);
        assert!(ended_after(&host, steps, &all()).is_none());
        // As git says where one is in its way.
        let (is_done, text) = shell(&host, &format!("find .git -name '*.lock' -delete; {meanwhile}"));
        assert!(is_done, "{meanwhile}: {text}");
        let is = matches!(host.apply(), Applied::Conflicts(_));
        assert_eq!(is, is_conflict, "{meanwhile}");
    }
}

#[test]
fn the_same_command_is_told_with_its_paths_and_flags() {
    for (paths, guarded, told) in [
        (None, Guarded::Leave, " --leave-protected`"),
        (None, Guarded::Take(vec![".git/config".into()]), " --take-protected .git/config`"),
        (Some(vec!["a".into()]), Guarded::Refuse, " -- a`"),
        (Some(vec!["a".into(), "it's".into()]), Guarded::Refuse, " ...`, with the paths"),
    ] {
        let host = worked("true", "echo 2 > a; echo 2 > b; echo 2 > \"it's\"");
        assert!(ended_after(&host, 0, &Request { paths, guarded, ..all() }).is_none());
        let half = interrupted(&host.state, &host.run).unwrap().unwrap();
        assert!(half.told().contains(&format!("the same `fumehood apply {}{told}", host.run)), "{}", half.told());
    }
}

/// It is there: an error says so, and nothing of it waits.
#[test]
fn what_fails_after_all_is_there_is_told_so() {
    let host = worked("true", "echo 2 > a; echo 2 > b");
    std::fs::create_dir(host.at("state/changes").join(host.run.as_str()).join("manifest.new")).unwrap();
    let error = host.apply_with(&Request { paths: Some(vec!["b".into()]), ..all() }).unwrap_err();
    assert!(error.to_string().starts_with("all was applied"), "{error}");
    assert!(!error.fault().fix.contains("nothing was applied") && host.work("b").exists(), "{:?}", error.fault());
    // Not all of the run's folder can be removed, as where `apply` is ended before that.
    let host = worked("true", "echo 2 > a; echo 2 > b");
    let stays = host.at("state/changes").join(host.run.as_str()).join("stays");
    std::fs::create_dir(&stays).unwrap();
    let mount = |args: &[&str]| Command::new("mount").args(args).arg(&stays).status().unwrap().success();
    assert!(mount(&["--bind", &stays.display().to_string()]));
    let error = host.apply_with(&all()).unwrap_err();
    assert!(matches!(error, ChangesError::Unkept { .. }), "{error:?}");
    assert!(Command::new("umount").arg(&stays).status().unwrap().success());
    assert!(matches!(load(&host.state, &host.run), Err(ChangesError::None { .. })), "it waits for nobody");
}

/// Those that Ctrl-C, Ctrl-\\, a closed terminal and `kill` send.
fn is_put_off() -> bool {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
    let blocked = u64::from_str_radix(blocked.trim(), 16).unwrap();
    [1, 2, 3, 15].iter().all(|number| blocked & (1 << (number - 1)) != 0)
}

#[test]
fn what_ends_a_program_waits_while_paths_are_exchanged() {
    for steps in [0, 1, 4] {
        let host = worked("true", "echo 2 > a; git commit -qam second");
        STEPS.set(Some((steps, || assert!(is_put_off()))));
        let request = (list(), Timestamp::now());
        let waits = |applied| matches!(applied, Applied::Done { .. }) && is_put_off();
        assert!(apply_then(&host.state, &host.run, &all(), request, waits).unwrap());
        assert!(STEPS.take().is_none() && !is_put_off());
    }
}

#[test]
fn git_on_the_host_begins_nothing_while_its_files_are_exchanged() {
    let script = "echo 2 > a; git commit -qam second; git branch -f side HEAD";
    let locks = |host: &Host| shell(host, "find .git -name '*.lock' | sort").1;
    for steps in 0..200 {
        let host = worked("true", script);
        if ended_after(&host, steps, &all()).is_some() {
            assert!(steps > 2 && locks(&host).is_empty());
            break;
        }
        let there = locks(&host);
        let all_of = ".git/index.lock\n.git/refs/heads/main.lock\n.git/refs/heads/side.lock";
        assert!(there.is_empty() || there == all_of, "{there}");
        let is_index_there = shell(&host, "git diff --cached --quiet HEAD").0;
        assert!(is_index_there || !there.is_empty(), "the index is another one, and not locked");
        // What git made in the place of ours stays.
        if !there.is_empty() && steps % 2 == 0 {
            assert!(shell(&host, "git commit -qam mine").1.contains("index.lock"));
            std::fs::write(host.work(".git/index.lock"), "git's").unwrap();
            let Applied::Conflicts(found) = host.apply() else { panic!("applied") };
            assert!(found.iter().any(|one| one.path == Path::new(".git/index") && one.id == "locked"), "{found:?}");
            assert_eq!(locks(&host), ".git/index.lock");
        } else if !there.is_empty() {
            discard(&host.state, &host.run).unwrap();
            assert_eq!(locks(&host), "");
        }
    }
    // It locks it when all is staged, and files go first.
    let host = worked("true", "echo 2 > a; git commit -qam second");
    let (manifest, store) = load(&host.state, &host.run).unwrap();
    let (root, before) = (Dir::open(&host.at("work")).unwrap(), look(&host));
    let todo: Vec<&Entry> =
        manifest.entries.iter().filter(|e| e.path.starts_with("a") || e.path.ends_with("index")).collect();
    let mut work = Work::begin(&host.state, &manifest, &root, &store, (&todo, Timestamp::now())).unwrap();
    assert!(work.stage(&todo).is_ok());
    std::fs::write(host.work(".git/index.lock"), "git's").unwrap();
    let (judged, tips) = noted(&root, &all(), &todo);
    let locks = [(PathBuf::from(".git/index"), PathBuf::from(".git/index.lock"))];
    assert!(work.commit(&Plan { todo: &todo, locks: &locks, judged: &judged, tips: &tips }).is_err());
    work.end(true).unwrap();
    assert_eq!(std::fs::read(host.work(".git/index.lock")).unwrap(), b"git's");
    std::fs::remove_file(host.work(".git/index.lock")).unwrap();
    assert_eq!(look(&host), before);
}

#[test]
fn the_log_of_a_branch_has_a_line_for_what_the_first_half_moved() {
    let script = "echo 2 > a; git commit -qam second; git branch -f side HEAD";
    let lines = |host: &Host| {
        shell(host, "for n in main side HEAD; do git reflog -1 $n | grep -c 'fumehood apply'; done; git rev-parse main@{1} side@{1}").1
    };
    let host = worked("true", script);
    drop(host.apply());
    let expected = lines(&host);
    assert!(expected.starts_with("1\n1\n1\n"), "{expected}");
    for steps in 0..200 {
        let host = worked("true", script);
        if ended_after(&host, steps, &all()).is_some() {
            break;
        }
        assert!(matches!(host.apply(), Applied::Done { .. }));
        assert_eq!(lines(&host), expected, "after {steps}");
    }
}
