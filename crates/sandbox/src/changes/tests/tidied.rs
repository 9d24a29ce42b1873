//! What git tidies up, on the host while changes wait and in the run itself: none of it is a change that somebody asks about.

use super::indices::beside;
use super::objects::AS;
use super::references::{held_of, shell};
use super::*;

const BEGUN: &str = "git init -q -b main . && mkdir d && echo d > d/d && git add . && git commit -qm A && git branch topic/x && \
                     git tag v1 && git tag -a -m v v2 && git update-ref refs/remotes/origin/main HEAD && git notes add -m note";
/// All that a person asks git for.
const ALL: &str = "git log --all --format=%H%d --decorate=full; git for-each-ref; git status --porcelain=v2 --branch; git ls-files -s; cat .git/HEAD";

/// A run of a script, and what git says inside at its end.
fn run(begun: &str, script: &str) -> (Host, String) {
    let mut host = Host::new(&[("a", "a\n")]);
    shell(&host, begun);
    host.begin();
    host.overlay(&format!("{AS}{script}\n({ALL}) > ../said"));
    host.read();
    let said = std::fs::read_to_string(host.at("said")).unwrap();
    (host, said.trim().to_owned())
}

fn assert_taken(host: &Host, said: &str, of: &str) {
    assert_eq!(held_of(host), [""; 0], "{of}: {:?}", host.diff().text());
    assert_eq!(shell(host, &format!("git fsck --strict --no-dangling > /dev/null; {ALL}")), said, "{of}");
}

#[test]
fn what_the_host_packs_while_changes_wait_is_where_it_was() {
    let commit = "echo n > d/n; git add d; git commit -qm n; git update-ref refs/heads/topic/x HEAD; git tag v3";
    for meanwhile in [
        "git gc -q",
        "git gc -q --prune=now",
        "git repack -adq && git prune-packed",
        "git pack-refs --all",
        "git pack-refs --all --prune && find .git/refs/heads -type d -empty -delete; mkdir -p .git/refs/heads",
        "git maintenance run --quiet --task=gc --task=commit-graph",
    ] {
        let (host, said) = run(BEGUN, commit);
        shell(&host, meanwhile);
        assert!(!host.diff().text().contains("! protected"), "{meanwhile}: {}", host.diff().text());
        assert_taken(&host, &said, meanwhile);
    }
}

#[test]
fn what_somebody_moved_and_packed_is_a_conflict() {
    let (host, _) = run(BEGUN, "echo n > n; git add n; git commit -qm n; git branch -qD topic/x");
    shell(&host, "git pack-refs --all");
    let found = host.conflicts();
    assert_eq!(found, [(PathBuf::from(".git/refs/heads/topic/x"), "changed")], "what is removed is in the list still");
    shell(&host, "git branch -qD topic/x");
    assert_eq!(held_of(&host), [""; 0]);
    let (host, _) = run(BEGUN, "echo n > n; git add n; git commit -qm n");
    shell(&host, "echo m > m && git add m && git commit -qm M && git pack-refs --all");
    let Applied::Conflicts(found) = host.apply() else { panic!("applied") };
    assert!(
        found.iter().any(|one| one.path.ends_with("refs/heads/main") && one.why.contains("meanwhile")),
        "{found:?}"
    );
}

/// The lists are the same then, and what the run moved after that is taken.
#[test]
fn what_both_packed_before_the_run_moved_anything_is_no_conflict() {
    let host = beside(BEGUN, "git gc -q; echo n > n; git add n; git commit -qm n", "git gc -q");
    assert!(matches!(host.apply(), Applied::Done { .. }));
    assert_eq!(shell(&host, "git log -1 --format=%s main && git status --short"), "n");
}

/// Without the list its removed files are no removals: the host's branches would be nowhere.
#[test]
fn what_the_run_only_packed_is_not_lost_without_its_list() {
    let commit = "echo n > n; git add n; git commit -qm n";
    let tips = "git for-each-ref --format='%(refname)'";
    let (host, names) = run(BEGUN, &format!("git gc -q; {commit}"));
    let before = shell(&host, tips);
    let paths = [".git/objects", ".git/refs/heads", ".git/index", "n"].map(Into::into).to_vec();
    let applied = host.apply_with(&Request { paths: Some(paths), ..all() }).unwrap();
    if let Applied::Conflicts(found) = applied {
        panic!("{found:?} {names}")
    };
    assert_eq!((shell(&host, tips), shell(&host, "git log -1 --format=%s main")), (before, "n".to_owned()));

    let (host, _) = run(BEGUN, &format!("git gc -q; {commit}"));
    let before = shell(&host, tips);
    discard_at(&host.state, &host.run, &[".git/packed-refs".into()]).unwrap();
    assert!(matches!(host.apply(), Applied::Done { .. }));
    assert_eq!((shell(&host, tips), shell(&host, "git log -1 --format=%s main")), (before, "n".to_owned()));
}

/// Of the branches that both only packed while the changes waited nobody is asked to remove one: the lists alone differ in whose they are.
#[test]
fn no_branch_that_both_only_packed_is_to_be_removed() {
    let (host, _) = run(BEGUN, "git gc -q; echo n > n; git add n; git commit -qm n");
    let before = shell(&host, "git for-each-ref --format='%(refname)'");
    shell(&host, "git gc -q");
    assert_eq!(host.conflicts(), [(PathBuf::from(".git/packed-refs"), "exists")]);
    assert_eq!(shell(&host, "git for-each-ref --format='%(refname)'"), before);
}

/// Both lists are whole, and no list has both.
#[test]
fn where_the_run_packed_too_it_is_told_what_its_branches_are() {
    let commit = "echo n > n; git add n; git commit -qm n; git branch new";
    for ([before, packs], meanwhile, path) in [
        (["true", "git pack-refs --all"], "git gc -q", "packed-refs"),
        (["true", "git gc -q"], "git gc -q", "packed-refs"),
        (["true", "git gc -q"], "git commit -q --allow-empty -m H", "packed-refs"),
        (["true", "true"], "git commit -q --allow-empty -m H", "refs/heads/main"),
    ] {
        let host = beside(BEGUN, &format!("{before}; {commit}; {packs}"), meanwhile);
        let request = Request { guarded: Guarded::Leave, ..all() };
        let (applied, why) = apply_telling(&host.state, &host.run, &request, list(), Timestamp::now()).unwrap();
        let Applied::Conflicts(found) = applied else { panic!("applied, but {why:?}") };
        assert!(found.iter().all(|one| !one.path.ends_with("info/refs")), "{packs}, {meanwhile}: {found:?}");
        let list = found.iter().find(|one| one.path.ends_with(path)).unwrap();
        let is_by_both = path == "packed-refs" && meanwhile == "git gc -q";
        assert_eq!(list.why.contains("git wrote it anew"), is_by_both, "{list:?}");
        assert!(list.why.contains(&format!("`fumehood apply {} -- .git/objects`", host.run)), "{list:?}");
        assert!(path != "packed-refs" || list.why.contains("`git branch new "), "{list:?}");
        // What is told works.
        let objects = Request { paths: Some(vec![".git/objects".into()]), ..request };
        assert!(matches!(host.apply_with(&objects).unwrap(), Applied::Done { .. }));
        let command = list.why.split('`').find(|words| words.starts_with("git branch main-by-run ")).unwrap();
        assert_eq!(
            shell(&host, &format!("{command} && git log -1 --format=%s main-by-run")),
            "n",
            "{packs}, {meanwhile}"
        );
    }
}

/// What git packs inside, and the run does not move, stays where the host has it, whoever moves or removes it there.
#[test]
fn what_the_host_moves_or_removes_while_the_run_packs_it_is_where_the_host_has_it() {
    let begun =
        format!("{BEGUN} && git commit -q --allow-empty -m B && git branch other && git worktree add -q ../wt other");
    let others = "git for-each-ref --format='%(refname) %(objectname)' | grep -v refs/heads/main";
    for script in [
        "echo n > n; git add n; git commit -qm n; git gc -q",
        "git pack-refs --all; echo n > n; git add n; git commit -qm n",
        "echo n > n; git add n; git commit -qm n; git gc -q --prune=now; git commit -q --allow-empty -m m",
    ] {
        for meanwhile in [
            "git branch -qf topic/x main",
            "git branch -qf topic/x $(git commit-tree -m t HEAD^{tree})",
            "git branch -qD topic/x; git tag -d v1 > /dev/null",
            "git tag -f v1 main > /dev/null; git notes add -f -m other",
            "git branch fresh; git tag fresh-tag",
            "cd ../wt; echo w > w; git add w; git commit -qm w",
        ] {
            let end = "git log -1 --format=%s main";
            let host = beside(&begun, script, meanwhile);
            let before = shell(&host, others);
            assert_eq!(held_of(&host), [""; 0], "{script}; {meanwhile}: {}", host.diff().text());
            assert_eq!(shell(&host, others), before, "{script}; {meanwhile}");
            let is = if script.ends_with("-m m") { "m" } else { "n" };
            assert_eq!(shell(&host, &format!("git fsck --strict --no-dangling > /dev/null; {end}")), is, "{meanwhile}");
            // The same after the run.
            let (host, _) = run(&begun, script);
            shell(&host, meanwhile);
            let before = shell(&host, others);
            assert_eq!(held_of(&host), [""; 0], "{script}; {meanwhile} afterwards");
            assert_eq!(shell(&host, others), before, "{script}; {meanwhile} afterwards");
        }
    }
    // What the run moved as well is a conflict, and so is what is under somebody's feet.
    for (script, meanwhile, path) in [
        (
            "git branch -qf topic/x main; git pack-refs --all",
            "git branch -qf topic/x $(git commit-tree -m t HEAD^{tree})",
            "refs/heads/topic/x",
        ),
        (
            "git branch -qf topic/x main~1; echo n > n; git add n; git commit -qm n; git branch -qf topic/x; git gc -q",
            "git branch -qD topic/x",
            "refs/heads/topic/x",
        ),
        ("echo n > n; git add n; git gc -q", "git commit -q --allow-empty -m H", "index"),
        ("git gc -q; git checkout -qb f", "git commit -q --allow-empty -m H", "HEAD"),
    ] {
        let held = held_of(&beside(&begun, script, meanwhile));
        assert!(held.iter().any(|one| one == path), "{script}; {meanwhile}: {held:?}");
    }
}

/// How conflicts were solved stays with the run, and nobody is asked.
#[test]
fn what_git_remembers_of_solved_conflicts_is_asked_of_nobody() {
    let begun = format!(
        "{BEGUN} && git config rerere.enabled true && git checkout -qb o && echo o > a && git commit -qam o && git checkout -q main && \
         echo m > a && git commit -qam m"
    );
    let (host, _) = run(&begun, "git merge -q o > /dev/null 2>&1 || true; echo s > a; git commit -qam s 2> /dev/null");
    assert!(!host.diff().text().contains("! protected"), "{}", host.diff().text());
    assert_eq!(held_of(&host), [""; 0]);
    assert_eq!(shell(&host, "git log -1 --format=%s; find .git/rr-cache -type f; git status --porcelain"), "s");
}

/// Tags, notes, what replaces objects and a stash among them, of which a run makes none, moves none and removes none.
#[test]
fn what_the_run_packs_is_where_it_was() {
    let begun = format!(
        "{BEGUN} && git tag rel/v1 && echo s >> a && git stash -q && git replace v1 $(git commit-tree -m r v1^{{tree}})"
    );
    let stale =
        format!("{begun} && git pack-refs --all && git notes add -m other v1^{{tree}} && git branch -f topic/x HEAD");
    for begun in [&begun, &stale] {
        for script in [
            "git pack-refs --all",
            "echo n > n; git add n; git commit -qm n; git pack-refs --all",
            "git checkout -qb f; echo n > n; git add n; git commit -qm n; git tag v3; git pack-refs --all; git branch -qD topic/x",
        ] {
            let (host, said) = run(begun, script);
            assert_taken(&host, &said, script);
        }
        for (script, path) in [
            ("git update-ref refs/tags/rel/v1 v2; git pack-refs --all", "refs/tags/rel/v1"),
            ("git tag -d v1", "refs/tags/v1"),
            ("git notes add -f -m evil; git pack-refs --all", "refs/notes/commits"),
            ("git stash drop -q; git pack-refs --all", "refs/stash"),
            ("git replace -d $(git rev-parse v1); git pack-refs --all", "refs/replace"),
        ] {
            let (host, _) = run(begun, script);
            let before = shell(&host, "git for-each-ref");
            let held = held_of(&host);
            // What no file of the host's says its list says still, whatever the run's does.
            let is_held = held.iter().any(|one| one.starts_with(path) || one == "packed-refs");
            assert!(is_held || begun == &stale, "{script}: {held:?}");
            let _left = host.apply_with(&Request { guarded: Guarded::Leave, ..all() });
            assert_eq!(shell(&host, "git for-each-ref"), before, "{script}");
        }
    }
}

#[test]
fn what_git_leaves_behind_and_tidies_up_inside_holds_nothing() {
    let begun = format!(
        "{BEGUN} && echo one > a && git commit -qam one && git checkout -qb dev HEAD~1 && echo two > a && git commit -qam two"
    );
    for script in [
        "git rebase -q main > /dev/null 2>&1 || true; echo solved > a; git add a; GIT_EDITOR=true git rebase --continue > /dev/null; git rev-parse REBASE_HEAD > /dev/null",
        "echo n > n; git add n; git commit -qm n; git gc -q --prune=now",
        "git repack -adq; git commit -q --allow-empty -m e; git commit-graph write --reachable; git multi-pack-index write",
        "git maintenance run --quiet; echo n > n; git add n; git commit -qm n",
        "git replace HEAD HEAD~1; git replace -d $(git replace -l) > /dev/null; echo n > n; git add n; git commit -qm n",
    ] {
        let (host, said) = run(&begun, script);
        let told = host.diff().text();
        assert!(!told.contains("! protected"), "what nobody is asked is not marked as if: {script}: {told}");
        assert_taken(&host, &said, script);
    }
    let (host, _) = run(&begun, "git rebase -q main > /dev/null 2>&1 || true");
    let held = held_of(&host);
    assert!(held.iter().any(|one| one == "HEAD") && !held.iter().any(|one| one == "REBASE_HEAD"), "{held:?}");
}

/// What somebody staged is in the files, so that nothing is lost, or stays staged.
#[test]
fn what_a_run_unstages_is_in_its_file() {
    let begun = format!("{BEGUN} && echo s > n && echo s >> a && git add n a");
    for script in [
        "git reset -q",
        "git reset -q -- n",
        "git reset -q --mixed HEAD",
        "git restore --staged a",
        "echo m >> a; git add a; git reset -q -- n",
    ] {
        let (host, said) = run(&begun, script);
        assert_taken(&host, &said, script);
    }
    for (begun, script) in [
        (format!("{begun} && echo t > a"), "git reset -q"),
        (begun, "git reset -q; echo other > n"),
        (
            format!(
                "{BEGUN} && echo '* -filter' > .gitattributes && git add . && git commit -qm a && git rm -q .gitattributes"
            ),
            "git reset -q",
        ),
        (
            format!(
                "{BEGUN} && git checkout -qb o && echo o > o && git add o && git commit -qm o && git checkout -q main && git merge -q --no-ff --no-commit o"
            ),
            "git reset -q",
        ),
    ] {
        let (host, _) = run(&begun, script);
        let held = held_of(&host);
        assert!(held.iter().any(|one| one == "index"), "{begun}: {script}: {held:?}");
    }
}
