//! `HEAD`, its branches and the index of one working tree: together or not at all, by the real git.

use std::collections::BTreeSet;

use super::objects::AS;
use super::references::{assert_held, held_after, held_of, shell};
use super::*;

/// Two commits on `main`, a fix of somebody else's on `dev`, and what was fetched: one more commit, and one that says of a server.
const BEGUN: &str = "git init -q -b main . && git add a && git commit -qm A && echo b > b && git add b && git commit -qm B && \
                     git checkout -qb dev && echo fix > fix && git add fix && git commit -qm fix && git checkout -q --detach main && \
                     echo s > s && git add s && git commit -qm S && git update-ref refs/remotes/origin/main HEAD && \
                     printf '[lfs]\\n\\turl = https://evil.invalid\\n' > .lfsconfig && git add .lfsconfig && git commit -qm pr && \
                     git branch pr-7 && git update-ref refs/remotes/origin/pr HEAD && git checkout -q main";
const COMMIT: &str = "echo n > n; git add n; git commit -qm n; ";

/// An entry of the index with contents that no file has.
fn entry(path: &str) -> String {
    format!("git update-index --add --cacheinfo 100644,$(echo evil | git hash-object -w --stdin),{path}; ")
}

fn telling(host: &Host, request: &Request) -> (Applied, Option<String>) {
    apply_telling(&host.state, &host.run, request, list(), Timestamp::now()).unwrap()
}

#[test]
fn a_branch_that_is_checked_out_moves_with_an_index_that_fits() {
    for (script, path) in [
        ("git rev-parse dev > .git/refs/heads/main", "refs/heads/main"),
        ("git update-ref refs/heads/main pr-7", "refs/heads/main"),
        ("git update-ref refs/heads/main dev; git pack-refs --all", "packed-refs"),
        ("git update-ref refs/heads/main dev; git pack-refs --all", "refs/heads/main"),
        ("git reset -q --soft HEAD~1", "refs/heads/main"),
        ("git symbolic-ref HEAD refs/heads/dev", "HEAD"),
        ("git symbolic-ref HEAD refs/heads/nowhere", "HEAD"),
        ("rm .git/refs/heads/main", "refs/heads/main"),
        ("git checkout -q dev; git branch -qD dev 2>/dev/null || rm .git/refs/heads/dev", "HEAD"),
        ("git read-tree dev", "index"),
        ("git update-ref refs/heads/main dev; git read-tree dev; git update-index --force-remove b", "refs/heads/main"),
        ("c=$(git rev-parse dev); echo $c > .git/HEAD", "HEAD"),
    ] {
        assert_held(BEGUN, script, path);
    }
    // A pack that nobody looks into, for it is not called as git calls one, and so stays with the run.
    let unseen = "n=$(git commit-tree HEAD^{tree} -p HEAD -m n); cd .git/objects; echo $n | git pack-objects -q pack/pack > /dev/null; \
                  for f in pack/pack-*; do mv $f pack/x.${f##*.}; done; rm -f $(echo $n | sed 's|..|&/|'); cd ../..; \
                  echo $n > .git/refs/heads/main; git cat-file -e main";
    assert_held(BEGUN, unseen, "refs/heads/main");
    // As git once wrote it.
    let linked = format!("{BEGUN} && ln -sf refs/heads/main .git/HEAD");
    let held = held_after(&linked, "git update-ref refs/heads/main dev");
    assert!(held.contains(&"refs/heads/main".to_owned()), "{held:?}");
    // What an older list says of a branch is where it goes.
    let packed = format!("{BEGUN} && git pack-refs --all && echo c > c && git add c && git commit -qm C");
    assert!(held_after(&packed, "rm .git/refs/heads/main").contains(&"refs/heads/main".to_owned()));
}

#[test]
fn what_daily_work_does_is_taken() {
    for script in [
        COMMIT,
        "echo x >> a; git commit -qam x; echo x >> a; git commit -q --amend -a --no-edit",
        "git commit -q --amend -m reworded",
        "git commit -q --allow-empty -m e",
        "git checkout -qb t; echo x > x; git add x; git commit -qm x; git checkout -q main; git merge -q --no-ff -m m t; git branch -qd t",
        "git switch -qc f",
        "git checkout -q dev",
        "git checkout -q --detach HEAD~1",
        "git branch -qm main trunk",
        "git merge -q -m m dev",
        "git merge -q --no-ff -m m dev",
        "git cherry-pick dev",
        "git rebase -q main dev",
        "git reset -q --hard HEAD~1",
        "git reset -q HEAD~1",
        "git revert --no-edit HEAD",
        "git reset -q --soft HEAD~1; git commit -qm squashed",
        "git branch old HEAD~1",
        "git checkout -qb fix refs/remotes/origin/main",
        "git merge -q --ff-only refs/remotes/origin/main",
        "git checkout -qb x; git merge -q dev",
        "echo x >> a; git stash -q; git stash pop -q; git commit -qam s",
        "git checkout -q --orphan o; git commit -qm o",
        "git mv a aa; git commit -qm mv",
        "git rm -q a; git commit -qm rm",
        "git rm -q --cached a; git commit -qm untracked",
        "git rm -q a",
        "echo x >> a; git commit -qam one; echo y >> a",
        "echo x > n; git add n; git commit -qm one; rm n",
        "printf 'w text eol=crlf\\n' > .gitattributes; printf 'a\\r\\nb\\r\\n' > w; git add .gitattributes w; git commit -qm w",
        "echo n > n; git add n; git commit -qm n; echo m > m; git add m; git rm -q a",
        "echo n > n; git add -N n",
        "mkdir -p d/e; echo n > d/e/n; git add d; git commit -qm d; git gc -q",
    ] {
        let mut host = Host::new(&[("a", "a\n")]);
        shell(&host, BEGUN);
        host.begin();
        host.overlay(&format!("{AS}{script}"));
        host.read();
        // Of what `git gc` packs once more, a commit of the host's with another `.lfsconfig`.
        let request = Request { guarded: Guarded::Leave, ..all() };
        let (applied, why) = telling(&host, &request);
        let Applied::Done { left, .. } = applied else { panic!("{script}: {applied:?}") };
        assert!(left == 0 || script.contains("gc"), "{script}: {why:?}");
        shell(&host, "git fsck --strict; git status");
    }
}

#[test]
fn where_one_is_held_all_of_its_working_tree_are_and_no_others() {
    let script = format!("git checkout -qb x; {COMMIT}git branch y; {}", entry(".envrc"));
    let mut host = Host::new(&[("a", "a\n")]);
    shell(&host, BEGUN);
    host.begin();
    host.overlay(&format!("{AS}{script}"));
    host.read();
    let Applied::Conflicts(held) = host.apply() else { panic!("applied") };
    let paths: Vec<_> = held.iter().map(|one| one.path.to_str().unwrap()).collect();
    assert_eq!(paths, [".git/HEAD", ".git/index", ".git/refs/heads/x"]);
    assert!(held.iter().all(|one| one.why.contains(".envrc")), "{held:?}");
    let (applied, why) = telling(&host, &Request { guarded: Guarded::Leave, ..all() });
    assert!(matches!(applied, Applied::Done { left: 3, .. }), "the rest is taken: {applied:?}");
    assert!(why.is_some_and(|why| why.contains(".envrc")));
    assert_eq!(
        shell(&host, "git log --format=%s -1 y; git branch --show-current; git status --porcelain"),
        "n\nmain\n?? n"
    );
    // Whatever is not taken of the list is still there.
    let mut host = Host::new(&[("a", "a\n")]);
    shell(&host, BEGUN);
    let before = shell(&host, "git for-each-ref");
    host.begin();
    host.overlay(&format!("{AS}git update-ref refs/heads/main dev; git pack-refs --all --prune"));
    host.read();
    let _left = host.apply_with(&Request { guarded: Guarded::Leave, ..all() }).unwrap();
    assert_eq!(shell(&host, "git for-each-ref"), before);
}

#[test]
fn what_the_host_has_staged_stays_staged() {
    let begun = format!("{BEGUN} && echo staged >> a && git add a && echo more >> a");
    let mut host = Host::new(&[("a", "a\n")]);
    shell(&host, &begun);
    host.begin();
    host.overlay(&format!("{AS}echo n > n; git add n; git commit -qm n n"));
    host.read();
    assert_eq!(held_of(&host), [""; 0]);
    assert_eq!(shell(&host, "git status --porcelain; git log --format=%s -1"), "MM a\nn");
    for script in ["git update-ref refs/heads/main dev", "git reset -q", "git update-index --force-remove b"] {
        assert!(!held_after(&begun, script).is_empty(), "{script}");
    }
}

#[test]
fn an_index_has_no_other_contents_for_what_the_run_changed() {
    for script in ["echo '# c' >> a; ", "chmod +x a; "] {
        let script = format!("{script}{}", entry("a"));
        assert_eq!(held_after(BEGUN, &script), ["index"], "{script}");
    }
    for script in ["git update-index --force-remove a", "git rm -q --cached a"] {
        assert_eq!(held_after(BEGUN, script), ["index"], "{script}");
    }
}

/// Which of a run's work some paths alone would bring.
#[test]
fn what_is_left_behind_is_not_there_for_what_is_taken() {
    let part = |script: &str, paths: &[&str]| {
        let mut host = Host::new(&[("a", "a\n")]);
        shell(&host, BEGUN);
        host.begin();
        host.overlay(&format!("{AS}{script}"));
        host.read();
        let paths = Some(paths.iter().map(PathBuf::from).collect());
        match host.apply_with(&Request { paths, ..all() }).unwrap() {
            Applied::Done { .. } => Vec::new(),
            Applied::Conflicts(held) => held.into_iter().map(|one| one.path.display().to_string()).collect(),
        }
    };
    let attributes = "mkdir s; echo '* !filter' > s/.gitattributes; echo ok > ok; git add .";
    assert_eq!(part(attributes, &["ok", ".git"]), [".git/index"]);
    assert_eq!(part(attributes, &["ok", "s", ".git"]), [""; 0]);
    assert_eq!(part(COMMIT, &[".git/refs/heads/main"]), [".git/refs/heads/main"]);
    assert_eq!(part(COMMIT, &["n", ".git/refs", ".git/objects"]), [".git/refs/heads/main"]);
    assert_eq!(part(COMMIT, &["n", ".git"]), [""; 0]);
    assert_eq!(part(COMMIT, &["n"]), [""; 0]);
}

#[test]
fn where_the_host_went_to_another_branch_nothing_of_its_working_tree_is_taken() {
    for (meanwhile, is_taken) in [
        ("git checkout -qb hotfix", false),
        ("git checkout -q --detach", false),
        ("git update-ref refs/heads/main dev", false),
        ("git branch other", true),
        ("git status", true),
    ] {
        let mut host = Host::new(&[("a", "a\n")]);
        shell(&host, BEGUN);
        host.begin();
        let root = Dir::open(&host.at("work")).unwrap();
        let heads = Indices::of(&root, [Path::new(".git")]).heads();
        host.overlay(&format!("{AS}{COMMIT}"));
        let store = Store::begin(&host.state, &host.run, &host.at("work"), &root, host.started, Bounds::default());
        let mut store = store.unwrap().knowing(Known { heads, ..Known::default() });
        read_upper(&mut store, &Dir::open(&host.at("upper")).unwrap(), &root, Path::new("")).unwrap();
        store.finish(&host.state).unwrap();
        // Only where it is, not what it remembers of files.
        shell(&host, &format!("cp .git/index ../index; {meanwhile}; cat ../index > .git/index"));
        match host.apply_with(&Request { guarded: Guarded::Take(vec![".git".into()]), ..all() }).unwrap() {
            Applied::Done { .. } => assert!(is_taken, "{meanwhile}"),
            Applied::Conflicts(found) => {
                assert!(!is_taken && found.iter().all(|one| one.id == "changed"), "{meanwhile}: {found:?}");
                assert!(found.iter().any(|one| one.path.ends_with("refs/heads/main")), "{meanwhile}: {found:?}");
            }
        }
    }
}

/// The objects and the branch of a run that ended, then the rest.
#[test]
fn what_was_taken_by_its_name_first_is_nobody_elses_work() {
    let mut host = Host::new(&[("a", "a\n")]);
    shell(&host, BEGUN);
    host.begin();
    let root = Dir::open(&host.at("work")).unwrap();
    let heads = Indices::of(&root, [Path::new(".git")]).heads();
    host.overlay(&format!("{AS}{COMMIT}"));
    let store = Store::begin(&host.state, &host.run, &host.at("work"), &root, host.started, Bounds::default());
    let mut store = store.unwrap().knowing(Known { heads, ..Known::default() });
    read_upper(&mut store, &Dir::open(&host.at("upper")).unwrap(), &root, Path::new("")).unwrap();
    store.finish(&host.state).unwrap();
    let paths = [".git/objects", ".git/refs"].map(PathBuf::from).to_vec();
    let branch = Guarded::Take(vec![".git/refs/heads/main".into()]);
    let taken = host.apply_with(&Request { paths: Some(paths), guarded: branch, ..all() }).unwrap();
    assert!(matches!(taken, Applied::Done { .. }), "{taken:?}");
    let rest = host.apply();
    assert!(matches!(rest, Applied::Done { .. }), "{rest:?}");
    assert_eq!(shell(&host, "git status --porcelain; git log --format=%s -1"), "n");
}

/// An answer to whoever guesses what is hidden, and from then on it is committed.
#[test]
fn no_entry_of_an_index_is_for_what_is_hidden() {
    let begun = format!("{BEGUN} && echo KEY=x > .env && echo .env > .git/info/exclude");
    let guess = "git update-index --add --cacheinfo 100644,$(echo KEY=x | git hash-object -w --stdin),.env";
    for (hidden, expected) in [(&[".env"][..], &[".git/index"][..]), (&[][..], &[][..])] {
        let mut host = Host::new(&[("a", "a\n")]);
        shell(&host, &begun);
        host.begin();
        host.overlay(&format!("{AS}{guess}"));
        let lower = Dir::open(&host.at("work")).unwrap();
        let store = Store::begin(&host.state, &host.run, &host.at("work"), &lower, host.started, Bounds::default());
        let hidden: BTreeSet<PathBuf> = hidden.iter().map(PathBuf::from).collect();
        let mut store = store.unwrap().holding(BTreeSet::new(), hidden);
        read_upper(&mut store, &Dir::open(&host.at("upper")).unwrap(), &lower, Path::new("")).unwrap();
        store.finish(&host.state).unwrap();
        let held = match host.apply() {
            Applied::Done { .. } => Vec::new(),
            Applied::Conflicts(held) => held.into_iter().map(|one| one.path.display().to_string()).collect(),
        };
        assert_eq!(held, expected);
    }
}

#[test]
fn a_merge_that_somebody_began_is_ended_by_a_commit_that_has_it_or_as_if_it_had_not_been() {
    let begun = format!("{BEGUN} && git merge -q --no-commit --no-ff dev");
    let removed = "rm .git/MERGE_HEAD .git/MERGE_MODE .git/MERGE_MSG; ";
    assert_eq!(held_after(&begun, "rm .git/MERGE_MODE"), ["MERGE_MODE"]);
    for script in [removed, &format!("{removed}git commit -qm dev"), &format!("{removed}git commit -qm dev; git gc -q")]
    {
        let held = held_after(&begun, script);
        assert!(held.contains(&"MERGE_HEAD".to_owned()), "{script}: {held:?}");
        assert!(script == removed || held.iter().any(|one| one == "refs/heads/main"), "{script}: {held:?}");
    }
    for script in ["git commit -qm merged", &format!("git commit -qm merged; {COMMIT}"), "git merge --abort"] {
        assert_eq!(held_after(&begun, script), [""; 0], "{script}");
    }
}

#[test]
fn git_finds_the_branch_that_somebody_was_on_before() {
    let mut host = Host::new(&[("a", "a\n")]);
    shell(&host, &format!("{BEGUN} && git checkout -q dev && git checkout -q main"));
    host.begin();
    host.overlay(&format!("{AS}git checkout -qb feature; {COMMIT}"));
    host.read();
    assert_eq!(held_of(&host), [""; 0]);
    assert_eq!(
        shell(&host, "git checkout -q -; git branch --show-current; git checkout -q -; git branch --show-current"),
        "main\nfeature"
    );
}

#[test]
fn a_stash_that_is_taken_by_its_name_is_one_that_git_lists() {
    let mut host = Host::new(&[("a", "a\n")]);
    shell(&host, BEGUN);
    host.begin();
    host.overlay(&format!("{AS}echo mine >> a; git stash -q"));
    host.read();
    let stash = vec![PathBuf::from(".git/refs/stash")];
    // The rest was taken before, as at the end of a run.
    let left = host.apply_with(&Request { guarded: Guarded::Leave, ..all() }).unwrap();
    assert!(matches!(left, Applied::Done { left: 2, .. }), "{left:?}");
    let take = Request { paths: Some(stash.clone()), guarded: Guarded::Take(stash), ..all() };
    let taken = host.apply_with(&take).unwrap();
    assert!(matches!(taken, Applied::Done { .. }), "{taken:?}");
    assert_eq!(shell(&host, "git stash list | wc -l; git stash pop -q; cat a"), "1\na\nmine");
}

#[test]
fn a_new_branch_is_called_as_no_file() {
    assert_eq!(held_after(BEGUN, "git branch a"), ["refs/heads/a"]);
    assert_eq!(held_after(BEGUN, "git tag a"), ["refs/tags/a"], "nor is a tag");
    assert_eq!(held_after(BEGUN, "git branch aa; git tag ab"), [""; 0]);
}

/// A branch of a server's that the host fetched is as good as its own, but for what it says of servers.
#[test]
fn a_fetched_commit_says_of_no_other_server() {
    assert_eq!(held_after(BEGUN, "git branch x refs/remotes/origin/pr"), [""; 0], "where a branch of the host's is");
    let fetched = format!("{BEGUN} && git branch -qD pr-7");
    for script in
        ["git branch x refs/remotes/origin/pr", "git branch x $(git commit-tree -m x refs/remotes/origin/pr^{tree})"]
    {
        assert_eq!(held_after(&fetched, script), ["refs/heads/x"], "{script}");
    }
    assert_eq!(held_after(&fetched, "git branch x refs/remotes/origin/main"), [""; 0]);
    let other = "git commit-tree -m x $(git ls-tree HEAD | tail -1 | git mktree)";
    let dangling = format!("{BEGUN} && git tag t $({other})");
    assert_eq!(held_after(&dangling, "git branch x t"), ["refs/heads/x"], "no branch has it");
}

/// A tree that has another one ten times, and that another one ten times, and so on.
#[test]
fn a_tree_without_an_end_is_held_in_time() {
    let bomb = "t=$(git mktree < /dev/null); for n in 1 2 3 4 5 6 7 8 9; do \
                t=$(for m in 0 1 2 3 4 5 6 7 8 9; do printf '040000 tree %s\\t%s\\n' $t $m; done | git mktree); done; \
                git update-ref refs/heads/main $(git commit-tree -m x -p HEAD $t)";
    assert_eq!(held_after(BEGUN, bomb), ["refs/heads/main"]);
}

#[test]
fn what_a_repository_borrows_is_read_as_well() {
    let borrowed = format!(
        "{BEGUN} && mv .git/objects ../borrowed && mkdir -p .git/objects/info .git/objects/pack && \
                            echo ../../../borrowed > .git/objects/info/alternates && git status"
    );
    let quoted = borrowed.replace("echo ../../../borrowed", "echo '\"../../../borrowed\"'");
    for borrowed in [&borrowed, &quoted] {
        assert_eq!(held_after(borrowed, COMMIT), [""; 0], "{borrowed}");
        assert_eq!(held_after(borrowed, "git checkout -q dev"), [""; 0], "{borrowed}");
    }
    assert!(!held_after(&borrowed, "git update-ref refs/heads/main dev").is_empty());
}

/// `git reset dev` moves `HEAD`, the branch and the index, and no file.
#[test]
fn a_file_of_before_takes_back_nothing_of_somebody_else() {
    // What a run makes on top of somebody's commit is its own, that commit is not.
    let on_top = "git checkout -q dev; echo n > n; git add n; git commit -qm n; git checkout -q main; git reset -q dev~0; rm -f n";
    for (script, path) in [
        ("git reset -q dev", "refs/heads/main"),
        ("git reset -q pr-7", "index"),
        ("git reset -q --hard dev; rm fix", "refs/heads/main"),
        (on_top, "refs/heads/main"),
        ("git checkout -q --detach dev; rm fix", "HEAD"),
    ] {
        assert_held(BEGUN, script, path);
    }
    for script in [
        "git reset -q HEAD~1",
        "git reset -q --hard dev; echo more >> fix",
        "git merge -q dev; rm a",
        "git rm -q --cached b; git commit -qm untracked",
    ] {
        assert_eq!(held_after(BEGUN, script), [""; 0], "{script}");
    }
}

/// What is removed of these stays, and is untracked then.
#[test]
fn a_control_file_that_a_commit_removes_holds_nothing_else() {
    let begun = "git init -q -b main . && mkdir .vscode && echo x > .envrc && echo '{}' > .vscode/tasks.json && git add . && \
                 git commit -qm A && git checkout -qb dev && git rm -q .envrc .vscode/tasks.json && git commit -qm fix && \
                 git update-ref refs/remotes/origin/main dev && git checkout -q main";
    for script in ["git merge -q dev", "git merge -q --ff-only refs/remotes/origin/main", "git checkout -q dev"] {
        assert_eq!(held_after(begun, script), [""; 0], "{script}");
    }
    let mut host = Host::new(&[("a", "a\n")]);
    shell(&host, begun);
    host.begin();
    host.overlay(&format!("{AS}git merge -q dev"));
    host.read();
    let left = host.apply_with(&Request { guarded: Guarded::Leave, ..all() }).unwrap();
    assert!(matches!(left, Applied::Done { .. }), "{left:?}");
    assert_eq!(
        shell(&host, "git log --format=%s -1; git status --porcelain; ls .envrc"),
        "fix\n?? .envrc\n?? .vscode/\n.envrc"
    );
}

#[test]
fn what_the_host_has_is_not_the_runs_because_it_wrote_it_again() {
    // Loose, beside a pack.
    let again = "git init -q --bare s; cat .git/objects/pack/*.pack | git -C s unpack-objects -q; \
                 for c in $(git rev-list --all | sed 's|..|&/|'); do mkdir -p .git/objects/${c%/*}; cp s/objects/$c .git/objects/$c; done; \
                 rm -rf s; git reset -q dev";
    let packed = format!("{BEGUN} && git repack -adq");
    for (begun, script) in [
        (BEGUN, "git gc -q; git reset -q dev"),
        (&packed, "git commit -q --allow-empty -m e; git gc -q; git reset -q dev"),
        (&packed, again),
    ] {
        assert_held(begun, script, "index");
    }
    // What is its own is so in a pack too.
    let own = "echo x > n; git add n; git commit -qm one; git repack -dq; rm n";
    let held = held_after(&packed, own);
    assert!(!held.iter().any(|one| one == "index"), "{held:?}");
}

#[test]
fn a_branch_that_is_another_name_of_one_leads_to_that() {
    let renamed = format!(
        "{BEGUN} && git symbolic-ref refs/heads/master refs/heads/main && git symbolic-ref HEAD refs/heads/master"
    );
    for script in ["git rev-parse dev > .git/refs/heads/main", "git rev-parse dev > .git/refs/heads/master"] {
        assert!(!held_after(&renamed, script).is_empty(), "{script}");
    }
    assert_eq!(held_after(&renamed, COMMIT), [""; 0]);
    assert_eq!(held_after(&renamed, "git checkout -q dev"), [""; 0]);
    // One that leads to itself says nothing.
    let circle = format!(
        "{BEGUN} && printf 'ref: refs/heads/y' > .git/refs/heads/x && printf 'ref: refs/heads/x' > .git/refs/heads/y"
    );
    let circle = format!("{circle} && printf 'ref: refs/heads/x' > .git/HEAD");
    assert!(!held_after(&circle, "git rev-parse dev > .git/refs/heads/main").is_empty());
}

/// A stop at `edit` or `exec` has no `CHERRY_PICK_HEAD`.
#[test]
fn a_rebase_that_is_under_way_is_not_taken_by_half() {
    for script in [
        "GIT_SEQUENCE_EDITOR='sed -i 1s/pick/edit/' git rebase -q -i HEAD~1",
        "git rebase -q -x false HEAD~1 || true",
        "git rebase -q -x false HEAD~1 || true; echo z > z; git add z; git commit -qm z",
    ] {
        let held = held_after(BEGUN, script);
        assert!(
            ["HEAD", "index"].iter().all(|path| held.iter().any(|one| one == path)) || !script.contains('z'),
            "{script}: {held:?}"
        );
        assert!(held.iter().any(|one| one == "HEAD"), "{script}: {held:?}");
    }
    assert_eq!(held_after(BEGUN, "git rebase -q -x true HEAD~1; git rebase -q dev"), [""; 0]);
}

#[test]
fn an_entry_of_an_index_is_of_the_kind_that_its_file_is() {
    let link = format!(
        "{BEGUN} && printf ../../.bashrc > v && git add v && git commit -qm v && ln -s v l && git add l && git commit -qm l"
    );
    for script in [
        "git update-index --cacheinfo 120000,$(git rev-parse HEAD:v),v",
        "git update-index --chmod=+x v",
        "git update-index --cacheinfo 100755,$(git rev-parse HEAD:l),l",
        "git update-index --cacheinfo 100644,$(git rev-parse HEAD:l),l",
        "chmod +x v; git update-index --add --cacheinfo 100755,$(git rev-parse HEAD:v),w; cp v w; chmod -x w",
    ] {
        assert_eq!(held_after(&link, script), ["index"], "{script}");
    }
    for script in [
        "chmod +x v; git add v",
        "rm v; ln -s l v; git add v",
        "cp v w; chmod +x w; git add w",
        "rm l; cp v l; git add l",
    ] {
        assert_eq!(held_after(&link, script), [""; 0], "{script}");
    }
}

#[test]
fn what_somebody_has_staged_or_begun_does_not_go_with_any_commit() {
    let staged = format!(
        "{BEGUN} && echo s >> a && git add a && git checkout -q HEAD~0 2>/dev/null; git show HEAD:a > a; git checkout -q main"
    );
    let held = held_after(&staged, "git reset -q; git commit -q --allow-empty -m tidy");
    assert!(held.iter().any(|one| one == "refs/heads/main"), "{held:?}");
    assert_eq!(held_after(&staged, "git commit -qm s; echo n > n"), [""; 0]);
    let picked = format!(
        "{BEGUN} && git checkout -q dev && echo o > a && git commit -qam O && git checkout -q main && echo p > a && git commit -qam P && \
                          ! git cherry-pick dev > /dev/null 2>&1 && echo solved > a && git add a"
    );
    let held = held_after(
        &picked,
        "rm .git/CHERRY_PICK_HEAD; git update-ref HEAD $(git commit-tree HEAD^{tree} -p HEAD -m tidy)",
    );
    assert!(held.iter().any(|one| one == "CHERRY_PICK_HEAD"), "{held:?}");
    for script in
        ["git commit -qm picked", "git cherry-pick --abort", "echo other > a; git add a; git commit -qm picked"]
    {
        assert_eq!(held_after(&picked, script), [""; 0], "{script}");
    }
    let nowhere = "git update-ref HEAD $(git cat-file commit HEAD | sed '1a parent 1111111111111111111111111111111111111111' | \
                   git hash-object -t commit -w --literally --stdin)";
    assert_held(BEGUN, nowhere, "refs/heads/main");
}

#[test]
fn a_new_tag_names_what_was_looked_into() {
    let fetched = format!("{BEGUN} && git branch -qD pr-7");
    for (script, path) in [
        ("git tag v3 refs/remotes/origin/pr", "refs/tags/v3"),
        ("git tag -a -m x v3 refs/remotes/origin/pr", "refs/tags/v3"),
        ("echo 1111111111111111111111111111111111111111 > .git/refs/tags/v3", "refs/tags/v3"),
        ("git tag v3 refs/remotes/origin/pr; git pack-refs --all", "packed-refs"),
    ] {
        assert_held(&fetched, script, path);
    }
    for script in [
        "git tag v3",
        "git tag -a -m x v3; git tag -a -m y v4 v3 2>/dev/null",
        "echo n > n; git add n; git commit -qm n; git tag -a -m n v3; git tag v4",
        "git tag v3 dev; git tag v4 refs/remotes/origin/main; git pack-refs --all",
    ] {
        assert_eq!(held_after(&fetched, script), [""; 0], "{script}");
    }
}

/// A tag of the host's, or its `HEAD`, may have what no branch has.
#[test]
fn a_new_tag_names_what_a_tag_or_a_head_of_the_hosts_has() {
    let begun = format!(
        "{BEGUN} && git tag old $(git commit-tree -m o -p $(git commit-tree -m p $(git ls-tree HEAD | tail -1 | git mktree)) HEAD:) && \
         git tag -a -m r rare $(git commit-tree -m q $(printf '100644 blob %s\tq\n' $(echo q | git hash-object -w --stdin) | git mktree)) && \
         git tag key HEAD:a && git pack-refs --all && git checkout -q --detach && echo d > d && git add d && git commit -qm D"
    );
    for script in [
        "git tag mine",
        "git tag -a -m x mine",
        "git tag mine old~1",
        "git tag mine rare; git tag other rare^{}",
        "git tag keys key",
        "git tag mine; git tag other rare; git tag keys key; git pack-refs --all",
        "git branch x main; git pack-refs --all",
    ] {
        assert_eq!(held_after(&begun, script), [""; 0], "{script}");
    }
    for (script, path) in [
        ("git tag blob HEAD:b", "refs/tags/blob"),
        ("git tag blob HEAD:b; git pack-refs --all", "packed-refs"),
        ("git branch x rare", "refs/heads/x"),
    ] {
        assert_held(&begun, script, path);
    }
}

/// An entry is an answer to whoever guesses what a file has.
#[test]
fn what_the_owner_of_a_tree_may_not_read_answers_no_guess() {
    if !rustix::process::geteuid().is_root() {
        println!("skip: needs root");
        return;
    }
    let trusted = "export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'; ";
    let guess = "git update-index --add --cacheinfo 100644,$(echo hunter2 | git hash-object -w --stdin),secret";
    for (owner, expected) in [("0:0", &["index"][..]), ("2001:2001", &[][..])] {
        let begun = format!(
            "{BEGUN} && echo hunter2 > secret && chmod 600 secret && echo secret > .git/info/exclude && chown -R 2001:2001 . && \
             chown {owner} secret"
        );
        assert_eq!(held_after(&begun, &format!("{trusted}{guess}")), expected, "{owner}");
    }
}
