//! git on the host writes its index anew while a run goes on.

use std::collections::BTreeMap;

use super::objects::{AS, shell};
use super::*;

/// A run of a script, and what somebody did on the host meanwhile; what was there at its beginning is known.
pub(super) fn beside(begun: &str, script: &str, meanwhile: &str) -> Host {
    let mut host = Host::new(&[("a", "a\n")]);
    let shell = |host: &Host, script: &str| {
        let (is_done, text) = shell(host, script);
        assert!(is_done, "{script}: {text}");
    };
    shell(&host, begun);
    host.begin();
    let root = Dir::open(&host.at("work")).unwrap();
    let indices = Indices::of(&root, [Path::new(".git")]);
    host.overlay(&format!("{AS}{script}"));
    shell(&host, meanwhile);
    let (replaced, heads) = (indices.replaced(&root), indices.heads());
    let store = Store::begin(&host.state, &host.run, &host.at("work"), &root, host.started, Bounds::default());
    let mut store = store.unwrap().knowing(Known { replaced, heads, ..Known::default() });
    read_upper(&mut store, &Dir::open(&host.at("upper")).unwrap(), &root, Path::new("")).unwrap();
    store.note_late(&root, &indices);
    store.finish(&host.state).unwrap();
    host
}

/// A run that committed, and what somebody did on the host meanwhile; with what was known of indices before it, or without.
fn run_while(meanwhile: &str, known: bool) -> Host {
    let mut host = Host::new(&[("a", "1\n"), ("b", "1\n")]);
    assert!(shell(&host, "git init -q -b main . && git add . && git commit -qm first").0);
    host.begin();
    let root = Dir::open(&host.at("work")).unwrap();
    let indices = Indices::of(&root, [Path::new(".git")]);
    let before = std::fs::read(host.work(".git/index")).unwrap();
    host.overlay(&format!("{AS}echo 2 > a; git add .; git commit -qm second"));
    let done = shell(&host, meanwhile);
    assert!(done.0, "{}", done.1);
    assert!(std::fs::read(host.work(".git/index")).unwrap() != before, "{meanwhile}: git wrote it anew");
    let replaced = if known { indices.replaced(&root) } else { BTreeMap::new() };
    let heads = indices.heads();
    let store = Store::begin(&host.state, &host.run, &host.at("work"), &root, host.started, Bounds::default());
    let mut store = store.unwrap().knowing(Known { replaced, heads, ..Known::default() });
    read_upper(&mut store, &Dir::open(&host.at("upper")).unwrap(), &root, Path::new("")).unwrap();
    store.finish(&host.state).unwrap();
    host
}

/// What `git status` alone does.
const REFRESH: &str = "touch -d @1 b; git status";

#[test]
fn an_index_that_git_refreshes_while_a_run_goes_on_is_no_change_of_somebodys() {
    for refresh in
        [REFRESH, &format!("git update-index --untracked-cache; {REFRESH}"), "git update-index --index-version 4"]
    {
        let host = run_while(refresh, true);
        let applied = host.apply();
        assert!(matches!(applied, Applied::Done { .. }), "{refresh}: {applied:?}");
        let (is_done, text) =
            shell(&host, "git fsck --strict && git log --format=%s && git status --porcelain && cat a");
        assert!(is_done && text.ends_with("second\nfirst\n2"), "{refresh}: {text}");
    }
    // Without the index of the beginning nobody knows.
    let index = (PathBuf::from(".git/index"), "touched");
    assert!(run_while(REFRESH, false).conflicts().contains(&index));
}

#[test]
fn an_index_with_another_entry_is() {
    for meanwhile in [
        "echo mine > mine; git add mine",
        "git rm -q --cached b",
        "git update-index --chmod=+x b",
        "git update-index --assume-unchanged b",
        "git update-index --skip-worktree b",
        // Into the file itself, as git never does it.
        "ln .git/index x; git update-index --assume-unchanged b; cp .git/index y; mv x .git/index; cat y > .git/index",
    ] {
        // Whatever else is to be said of the run's own.
        let request = Request { guarded: Guarded::Take(vec![".git".into()]), ..all() };
        let Applied::Conflicts(found) = run_while(meanwhile, true).apply_with(&request).unwrap() else {
            panic!("{meanwhile}: applied")
        };
        let found: Vec<_> = found.iter().map(|one| (one.path.to_str().unwrap(), one.id)).collect();
        assert_eq!(found, [(".git/index", "touched")], "{meanwhile}");
    }
}

#[test]
fn a_working_tree_is_where_we_put_it_and_not_where_somebody_else_went() {
    let (commit, switch) = ("git commit -qm second --allow-empty", "git checkout -q other");
    let listed = format!("{commit}; git pack-refs --all");
    for (meanwhile, put, is_known) in [
        (commit, ".git/refs/heads/main", true),
        (listed.as_str(), ".git/packed-refs", true),
        (switch, ".git/HEAD", true),
        (commit, ".git/packed-refs", false),
        (commit, ".git/refs/heads/other", false),
        (switch, ".git/packed-refs", false),
        (switch, ".git/refs/heads/main", false),
        (switch, ".git/refs/heads/x", false),
    ] {
        let host = Host::new(&[("a", "1\n")]);
        assert!(shell(&host, "git init -q -b main . && git add . && git commit -qm first && git branch other").0);
        let root = Dir::open(&host.at("work")).unwrap();
        let mut indices = Indices::of(&root, [Path::new(".git")]);
        let before = indices.heads();
        assert!(before.len() == 1 && before[0].commit.is_some());
        assert!(shell(&host, meanwhile).0);
        indices.forget(&root, Path::new(put));
        assert_eq!(indices.heads() != before, is_known, "{meanwhile}, {put}");
    }
}

/// Of a repository further down nothing is noted when the run begins.
#[test]
fn a_working_tree_further_down_that_somebody_takes_elsewhere_is_a_conflict() {
    let begun = "git init -q -b main n && cd n && echo a > a && echo b > b && git add . && git commit -qm A && git branch other && git gc -q";
    let commit = "cd n; echo 2 > b; git add b; git commit -qm second";
    for (script, meanwhile, is_conflict) in [
        (commit, "true", false),
        (commit, "cd n; git branch third; git gc -q", false),
        (commit, "cd n; git symbolic-ref HEAD refs/heads/other", true),
        (commit, "cd n; git symbolic-ref HEAD refs/heads/other; git symbolic-ref HEAD refs/heads/main", true),
        (commit, "cd n; git commit -q --allow-empty -m H", true),
        (
            "cd n; echo 2 > b; git add b",
            "cd n; git update-ref refs/heads/main $(git commit-tree -p main -m H main^{tree})",
            true,
        ),
    ] {
        let host = beside(begun, script, meanwhile);
        match host.apply() {
            Applied::Done { .. } => assert!(!is_conflict, "{meanwhile}"),
            Applied::Conflicts(found) => {
                let elsewhere = found.iter().any(|one| one.why.contains("on another branch or commit"));
                assert!(is_conflict && elsewhere, "{script}; {meanwhile}: {found:?}");
            }
        }
    }
}

#[test]
fn those_of_worktrees_and_submodules_are_known_too() {
    let host = Host::new(&[("a", "1\n")]);
    assert!(shell(&host, "git init -q -b main . && git add .").0);
    let all = [".git/index", ".git/worktrees/w/index", ".git/modules/x/y/index", ".git/modules/z/modules/in/index"];
    let anew = |path: &str| {
        std::fs::copy(host.work(".git/index"), host.work("new")).unwrap();
        std::fs::create_dir_all(host.work(path).parent().unwrap()).unwrap();
        std::fs::rename(host.work("new"), host.work(path)).unwrap();
    };
    all.iter().for_each(|path| anew(path));
    let root = Dir::open(&host.at("work")).unwrap();
    let indices = Indices::of(&root, [Path::new(".git")]);
    assert_eq!(indices.replaced(&root).len(), 0);
    all.iter().for_each(|path| anew(path));
    let found: Vec<PathBuf> = indices.replaced(&root).into_keys().collect();
    let mut expected = all.map(PathBuf::from);
    expected.sort();
    assert_eq!(found, expected);
    // One that we put there ourselves, and one into which somebody wrote before it was replaced.
    let mut indices = Indices::of(&root, [Path::new(".git")]);
    std::fs::write(host.work(all[1]), "DIRC").unwrap();
    indices.forget(&root, Path::new(all[0]));
    all.iter().for_each(|path| anew(path));
    let found: Vec<PathBuf> = indices.replaced(&root).into_keys().collect();
    assert_eq!(found, [PathBuf::from(all[2]), all[3].into()]);
}
