//! An `apply` that was killed: the same one goes on, whatever git on the host wrote into its index meanwhile.

use super::objects::{AS, shell};
use super::*;
use crate::changes::exchange::Work;

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
    assert!(work.stage(&todo).is_ok() && work.commit(&todo).is_ok());
    work
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
    // Of another process, which is gone.
    for journal in std::fs::read_dir(host.at("state/runs")).unwrap() {
        let path = journal.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(path, text.replace(&format!("\"pid\":{}", std::process::id()), "\"pid\":4194305")).unwrap();
    }
    assert!(told().is_some_and(|told| told.contains(&format!("fumehood apply {}", host.run))));
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
