//! References that git on the host moved and packed, of which a run made a file: no file of the host's shows it.

use std::os::unix::ffi::OsStrExt as _;
use std::sync::atomic::{AtomicBool, Ordering};

use super::indices::beside;
use super::references::{held_of, shell};
use super::*;

/// `side`, and the tag `v1`, are in the list alone.
const BEGUN: &str =
    "git init -q -b main . && git add . && git commit -qm A && git branch side && git tag v1 && git pack-refs --all";
/// A commit of the run's on `side` alone.
const SIDE: &str = "git update-ref refs/heads/side $(git commit-tree -p side -m run side^{tree})";
/// One of somebody's on the host.
const HOSTS: &str = "git update-ref refs/heads/side $(git commit-tree -p side -m host side^{tree})";

#[test]
fn a_branch_that_the_host_moved_and_packed_is_a_conflict() {
    for (begun, script, meanwhile, is_conflict) in [
        (BEGUN, SIDE, "true".to_owned(), false),
        (BEGUN, SIDE, "git branch other; git tag v2; git pack-refs --all".to_owned(), false),
        (BEGUN, SIDE, HOSTS.to_owned(), true),
        (BEGUN, SIDE, format!("{HOSTS}; git pack-refs --all"), true),
        (BEGUN, SIDE, format!("{HOSTS}; git gc -q"), true),
        (BEGUN, SIDE, "git branch -qD side".to_owned(), true),
        // Both made it anew.
        (
            BEGUN,
            "git branch new $(git commit-tree -p main -m run main^{tree})",
            "git branch new; git gc -q".to_owned(),
            true,
        ),
        (BEGUN, "git branch new", "git branch new; git gc -q".to_owned(), false),
        (
            BEGUN,
            "git tag new $(git commit-tree -p main -m run main^{tree})",
            "git tag new; git pack-refs --all".to_owned(),
            true,
        ),
        // It was in a file when the run began, and the host packed it where it was, or elsewhere.
        (
            "git init -q -b main . && git add . && git commit -qm A && git branch side",
            &format!("git pack-refs --all; {SIDE}"),
            "git pack-refs --all".to_owned(),
            false,
        ),
        (
            "git init -q -b main . && git add . && git commit -qm A && git branch side",
            &format!("git pack-refs --all; {SIDE}"),
            format!("{HOSTS}; git pack-refs --all"),
            true,
        ),
    ] {
        let host = beside(begun, script, &meanwhile);
        let was = shell(&host, "git for-each-ref --format='%(refname) %(objectname)'");
        match host.apply() {
            Applied::Done { .. } => assert!(!is_conflict, "{script}; {meanwhile}"),
            Applied::Conflicts(found) => {
                assert!(
                    is_conflict && found.iter().any(|one| one.why.contains("meanwhile") || one.id != "changed"),
                    "{script}; {meanwhile}: {found:?}"
                );
                assert_eq!(shell(&host, "git for-each-ref --format='%(refname) %(objectname)'"), was);
            }
        }
    }
}

/// While changes wait, and in a repository further down, of whose list nothing is known.
#[test]
fn so_is_one_that_moves_while_changes_wait_and_one_further_down() {
    let host = beside(BEGUN, SIDE, "true");
    shell(&host, &format!("{HOSTS}; git pack-refs --all"));
    assert_eq!(host.conflicts(), [(PathBuf::from(".git/refs/heads/side"), "changed")]);
    let further = |script: &str| format!("git init -q -b main n; cd n; {script}");
    let begun = further("git commit -q --allow-empty -m A && git branch side && git pack-refs --all");
    for (meanwhile, is_conflict) in [("true".to_owned(), false), (format!("cd n; {HOSTS}; git pack-refs --all"), true)]
    {
        let host = beside(&begun, &format!("cd n; {SIDE}"), &meanwhile);
        assert_eq!(matches!(host.apply(), Applied::Conflicts(_)), is_conflict, "{meanwhile}");
    }
}

/// As references are after a clone, and each `git gc`.
#[test]
fn a_reference_that_the_hosts_list_alone_has_is_judged_as_one_in_a_file() {
    let begun = "git init -q -b main . && git add . && git commit -qm A && git tag v1 && git tag -a -m two v2 && git branch 'a&b' && \
                 git branch deadbeef";
    let tags = "git checkout -q -b x; echo evil > a; git commit -qam evil; git tag -f v1; git tag -f -a -m evil v2";
    let branches =
        "for b in 'a&b' deadbeef; do git update-ref refs/heads/$b $(git commit-tree -p main -m run main^{tree}); done";
    let same = "git tag -f v1 v1; git tag -f v2 v2; echo other > f";
    for packed in [begun.to_owned(), format!("{begun}; git pack-refs --all")] {
        let held = |script: &str| held_of(&beside(&packed, script, "true"));
        assert_eq!(held(tags), ["refs/tags/v1", "refs/tags/v2"], "{packed}");
        assert_eq!(held(branches), [""; 0], "{packed}");
        assert_eq!(held(same), [""; 0], "{packed}");
    }
}

/// Our own list is nobody's work.
#[test]
fn what_was_taken_of_a_list_is_no_conflict_of_the_rest() {
    let host = beside(BEGUN, &format!("git branch third; git pack-refs --all; {SIDE}"), "true");
    let paths = [".git/objects", ".git/packed-refs"].map(Into::into).to_vec();
    assert!(matches!(host.apply_with(&Request { paths: Some(paths), ..all() }).unwrap(), Applied::Done { .. }));
    assert_eq!(held_of(&host), [""; 0]);
    assert_eq!(shell(&host, "git log -1 --format=%s side"), "run");
}

/// Git would see the host's file alone, and the run's commit would be nowhere.
#[test]
fn what_the_run_packed_goes_under_no_file_that_the_host_made_meanwhile() {
    let packed = format!("{SIDE}; git pack-refs --all");
    let made = "git branch new $(git commit-tree -p main -m run main^{tree}); git tag t new; git pack-refs --all";
    for (script, meanwhile, is_conflict) in [
        (packed.as_str(), "true", false),
        (packed.as_str(), "git branch other; git tag v2", false),
        (packed.as_str(), HOSTS, true),
        (made, "git branch new", true),
        // Tags of the host's stay as they are.
        (made, "git tag t", false),
        (made, "git branch other", false),
    ] {
        let host = beside(BEGUN, script, meanwhile);
        match host.apply() {
            Applied::Done { .. } => assert!(!is_conflict, "{script}; {meanwhile}"),
            Applied::Conflicts(found) => {
                assert!(
                    is_conflict && found.iter().all(|one| one.path.ends_with("packed-refs")),
                    "{script}; {meanwhile}: {found:?}"
                );
                assert!(found.iter().any(|one| one.why.contains("by-run")), "the commits are named: {found:?}");
            }
        }
    }
}

/// Locks the index as soon as a folder of ours is there, in which all is written.
fn lock_while_it_is_written(host: &Host, is_over: &AtomicBool) {
    let is_ours = |entry: std::fs::DirEntry| entry.file_name().as_bytes().starts_with(b".fumehood-apply");
    while !is_over.load(Ordering::Relaxed) {
        if std::fs::read_dir(host.work(".git")).unwrap().flatten().any(is_ours) {
            return std::fs::write(host.work(".git/index.lock"), "").unwrap();
        }
    }
}

/// Writing everything beside takes seconds, in which git may begin something: an index that it wrote from the old one would take the commit back.
#[test]
fn what_git_locks_while_all_is_written_beside_is_a_conflict() {
    let many = "for n in $(seq 300); do echo $n > n$n; done; git add .; git commit -qm many";
    // The lock may come too late: then nothing is shown.
    for _ in 0..10 {
        let (host, is_over) = (beside(BEGUN, many, "true"), AtomicBool::new(false));
        let applied = std::thread::scope(|scope| {
            scope.spawn(|| lock_while_it_is_written(&host, &is_over));
            let applied = host.apply();
            is_over.store(true, Ordering::Relaxed);
            applied
        });
        if let Applied::Conflicts(found) = applied {
            assert_eq!(found.first().map(|one| one.id), Some("locked"), "{found:?}");
            std::fs::remove_file(host.work(".git/index.lock")).unwrap();
            assert_eq!(held_of(&host), [""; 0]);
            return;
        }
    }
    panic!("never a conflict");
}
