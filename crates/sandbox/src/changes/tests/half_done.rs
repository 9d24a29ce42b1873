//! An `apply` that was killed: the same one goes on, whatever git on the host wrote into its index meanwhile.

use super::objects::{AS, shell};
use super::*;

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
