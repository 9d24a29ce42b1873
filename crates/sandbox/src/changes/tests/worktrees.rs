//! Repositories with more working trees than one: worktrees out of the workspace and in it, and submodules. By the real git.

use super::objects::AS;
use super::references::{held_after, held_of, shell};
use super::*;

/// Worktrees out of the workspace: one on a branch, and one that rebases its own.
const OUTER: &str = "git init -q -b main . && git add a && git commit -qm first && git branch free && git worktree add -q -b B ../outer && \
                     git worktree add -q -b R ../rebased && git -C ../rebased checkout -q --detach && \
                     mkdir .git/worktrees/rebased/rebase-merge && echo refs/heads/R > .git/worktrees/rebased/rebase-merge/head-name";
/// A new commit.
const COMMIT: &str = "echo n > n; git add n; git commit -qm n; ";

#[test]
fn a_branch_that_is_checked_out_elsewhere_stays_where_it_is() {
    for (script, path) in [
        (format!("{COMMIT} git update-ref refs/heads/B HEAD"), "refs/heads/B"),
        (format!("{COMMIT} git update-ref refs/heads/R HEAD"), "refs/heads/R"),
        (format!("{COMMIT} git update-ref refs/heads/B HEAD; git pack-refs --all"), "packed-refs"),
        ("git update-ref -d refs/heads/B".to_owned(), "refs/heads/B"),
        ("git symbolic-ref HEAD refs/heads/B".to_owned(), "HEAD"),
    ] {
        let held = held_after(OUTER, &script);
        assert!(held.iter().any(|one| one == path), "{script}: {held:?}");
    }
    let packed = format!("{OUTER} && git pack-refs --all");
    for script in ["git update-ref -d refs/heads/B", "git pack-refs --all; sed -i /heads.B/d .git/packed-refs"] {
        assert!(held_after(&packed, script).iter().any(|one| one == "packed-refs"), "{script}");
    }
    for script in
        ["git pack-refs --all", "git branch -D free", &format!("{COMMIT} git branch -f free"), "git checkout -q free"]
    {
        assert_eq!(held_after(OUTER, script), [""; 0], "{script}");
    }
}

/// Who cannot be read may be on any branch.
#[test]
fn no_branch_moves_while_nobody_can_read_where_a_worktree_is() {
    let unread = format!("{OUTER} && truncate -s 9000 .git/worktrees/outer/HEAD");
    let moved = "git rev-parse HEAD > c; git commit-tree -m x -p HEAD HEAD^{tree} > .git/refs/heads/free";
    assert_eq!(held_after(OUTER, moved), [""; 0]);
    assert_eq!(held_after(&unread, moved), ["refs/heads/free"]);
}

/// A run in a worktree whose repository lies out of the workspace: its own files are the host's, and git's folder has the layer.
fn in_outer(script: &str) -> Vec<String> {
    let mut host = Host::new(&[("a", "a\n")]);
    shell(&host, OUTER);
    host.begin();
    let own = "export GIT_DIR=$PWD/.git/worktrees/outer GIT_WORK_TREE=$(dirname $PWD)/outer; cd ../outer; ";
    host.overlay(&format!("{AS}{own}{script}"));
    let lower = Dir::open(&host.at("work")).unwrap();
    let store = Store::begin(&host.state, &host.run, &host.at("work"), &lower, host.started, Bounds::default());
    let mut store = store.unwrap().in_worktree(Some(".git/worktrees/outer".into()));
    read_upper(&mut store, &Dir::open(&host.at("upper")).unwrap(), &lower, Path::new("")).unwrap();
    store.finish(&host.state).unwrap();
    held_of(&host)
}

#[test]
fn a_run_in_a_worktree_moves_its_own_branch_and_not_that_of_the_repository() {
    for script in [COMMIT, "echo n > n; git add n; git commit -qm n; git gc -q"] {
        let held = in_outer(script);
        assert!(
            !held.iter().any(|path| ["refs", "worktrees", "packed-refs"].iter().any(|top| path.starts_with(top))),
            "{script}: {held:?}"
        );
    }
    let held = in_outer(&format!("{COMMIT} git update-ref refs/heads/main HEAD; git update-ref refs/heads/R HEAD"));
    assert_eq!(held, ["refs/heads/R", "refs/heads/main"]);
    let held = in_outer("git update-index --add --cacheinfo 100644,$(echo x | git hash-object -w --stdin),.envrc");
    assert_eq!(held, ["worktrees/outer/index"]);
}

#[test]
fn an_index_of_a_worktree_has_what_is_there() {
    let begun = "git init -q -b main . && git add a && git commit -qm first && git worktree add -q -b W w && \
                 git worktree add -q -b X ../gone && rm -r ../gone";
    let entry = |content: &str, path: &str| {
        format!(
            "b=$({content}); export GIT_INDEX_FILE=$PWD/.git/worktrees/w/index; git update-index --add --cacheinfo 100644,$b,{path}"
        )
    };
    for path in [".envrc", "sub/.gitattributes", "b"] {
        let held = held_after(begun, &entry("echo x | git hash-object -w --stdin", path));
        assert_eq!(held, ["worktrees/w/index"], "{path}");
    }
    assert_eq!(held_after(begun, &entry("echo x > w/b; git hash-object -w w/b", "b")), [""; 0]);
    // Its branch waits for it, and no other.
    let script =
        format!("{COMMIT} git update-ref refs/heads/W HEAD; {}", entry("echo x | git hash-object -w --stdin", "b"));
    assert_eq!(held_after(begun, &script), ["refs/heads/W", "worktrees/w/index"]);
    assert_eq!(
        held_after(begun, &format!("{COMMIT} git update-ref refs/heads/W HEAD")),
        ["refs/heads/W"],
        "its index stays"
    );
    // Where nothing is, nothing is compared.
    let script = "echo x > n; b=$(git hash-object -w n); GIT_INDEX_FILE=$PWD/.git/worktrees/gone/index git update-index --add \
                  --cacheinfo 100644,$b,n";
    assert_eq!(held_after(begun, script), ["worktrees/gone/index"]);
}

/// A submodule with a branch and a commit that was fetched.
const SUBMODULE: &str = "git init -q -b main ../srv && cd ../srv && echo 1 > f && git add f && git commit -qm 1 && git branch old && \
                         echo 2 > f && git commit -qam 2 && git checkout -q -b pr && echo 3 > f && git commit -qam 3 && git checkout -q main && \
                         cd ../work && git init -q -b main . && git add a && \
                         git -c protocol.file.allow=always submodule add -q $PWD/../srv lib && git commit -qm first && \
                         git -C lib branch old origin/old";

#[test]
fn a_submodule_is_at_a_commit_of_the_run_or_of_the_hosts() {
    let to = |commit: &str| format!("git update-index --cacheinfo 160000,$(git -C lib rev-parse {commit}),lib");
    for (script, path) in [
        (to("origin/pr"), "index"),
        (to("origin/pr | tr 0-9a-f 1-9a-f0"), "index"),
        (format!("{}; git commit -qm bump", to("origin/pr")), "refs/heads/main"),
        (
            "t=$(printf '160000 commit %s\\tlib\\n' $(git -C lib rev-parse origin/pr) | git mktree); \
             git update-ref refs/heads/x $(git commit-tree -m x $t)"
                .to_owned(),
            "refs/heads/x",
        ),
        (
            "c=$(git -C lib rev-parse origin/pr); mkdir d; git update-index --add --cacheinfo 160000,$c,d".to_owned(),
            "index",
        ),
        (
            "git -C lib update-index --add --cacheinfo 100644,$(echo x | git -C lib hash-object -w --stdin),.envrc"
                .to_owned(),
            "modules/lib/index",
        ),
    ] {
        let held = held_after(SUBMODULE, &script);
        assert!(held.iter().any(|one| one == path), "{script}: {held:?}");
    }
    // As git reads the mode of an entry.
    let tree = |mode: &str, id: &str| {
        format!(
            "t=$( (printf '{mode} lib\\000'; perl -e 'print pack \"H*\", shift' $(git {id})) | \
             git hash-object -t tree -w --literally --stdin); git update-ref refs/heads/x $(git commit-tree -m x $t)"
        )
    };
    for mode in ["0160000", "60000", "170000", "160644", "40000000000"] {
        let held = held_after(SUBMODULE, &tree(mode, "-C lib rev-parse origin/pr"));
        assert!(held.contains(&"refs/heads/x".to_owned()), "{mode}: {held:?}");
    }
    assert_eq!(held_after(SUBMODULE, &tree("040000", "rev-parse HEAD^{tree}")), [""; 0], "as others once wrote it");
    let both = format!("{SUBMODULE} && git worktree add -q -b W w");
    let held = held_after(&both, "rm .git/modules/lib/index .git/worktrees/w/index");
    assert_eq!(held, ["modules/lib/index", "worktrees/w/index"]);
    let commit = "cd lib; echo n > n; git add n; git commit -qm n; cd ..; git add lib; git commit -qm bump";
    for script in
        [commit, &to("old"), &format!("{}; git commit -qm back", to("old")), "echo b > b; git add b; git commit -qm b"]
    {
        assert_eq!(held_after(SUBMODULE, script), [""; 0], "{script}");
    }
    // What the server has as its own, as the host fetched it.
    let fetched = format!("{SUBMODULE} && (cd ../srv && echo 4 > f && git commit -qam 4) && git -C lib fetch -q");
    assert_eq!(held_after(&fetched, &format!("{}; git commit -qm bump", to("origin/main"))), [""; 0]);
    assert!(held_after(&fetched, &format!("{}; git commit -qm bump", to("origin/pr"))).contains(&"index".to_owned()));
    // What is held of the submodule is not there.
    let held = held_after(SUBMODULE, &commit.replace("git add n;", "echo x > .lfsconfig; git add -f n .lfsconfig;"));
    assert!(["index", "refs/heads/main"].iter().all(|path| held.iter().any(|one| one == path)), "{held:?}");
}

/// Of a `git pull` inside that moves a submodule: what git fetched of it by itself comes along, and without that it is told what to do.
#[test]
fn a_submodule_that_others_moved_comes_with_what_was_fetched_of_it() {
    let server = "git init -q -b main ../srv && (cd ../srv && echo 1 > f && git add f && git commit -qm 1) && git init -q -b main ../top && \
                  (cd ../top && ALLOW submodule add -q $PWD/../srv lib && git commit -qm top) && rm a && \
                  ALLOW clone -q --recurse-submodules $PWD/../top . && (cd ../srv && echo 2 > f && git commit -qam 2) && \
                  (cd ../top && git -C lib pull -q && git commit -qam bump)"
        .replace("ALLOW", "git -c protocol.file.allow=always");
    let pulled = |options: &str| {
        let mut host = Host::new(&[("a", "a\n")]);
        shell(&host, &server);
        host.begin();
        host.overlay(&format!("{AS}git -c protocol.file.allow=always pull -q {options}"));
        host.read();
        host
    };
    let host = pulled("");
    assert_eq!(held_of(&host), [""; 0]);
    // Without any server.
    shell(&host, "mv ../srv ../gone; git submodule update -q --no-fetch");
    assert_eq!(shell(&host, "cat lib/f; git log --format=%s -1; git status --porcelain"), "2\nbump");
    let host = pulled("--no-recurse-submodules");
    let Applied::Conflicts(held) = host.apply() else { panic!("applied") };
    assert!(
        held.iter().any(|one| one.why.contains("submodule `lib`") && one.why.contains("git branch NAME ID")),
        "{held:?}"
    );
    shell(&host, "git -C lib fetch -q origin main && git -C lib branch seen FETCH_HEAD");
    assert_eq!(held_of(&host), [""; 0]);
}

/// As a run could make the host read the history of a submodule for each entry of a tree.
#[test]
fn a_tree_with_a_thousand_commits_of_a_submodule_is_judged_in_time() {
    let many = format!(
        "{SUBMODULE} && seq 1000 | (echo 'reset refs/heads/many'; while read n; do \
         printf 'commit refs/heads/many\ncommitter a <a@b> %s +0000\ndata 1\nx\n\n' $n; done) | git -C lib fast-import --quiet"
    );
    let mut host = Host::new(&[("a", "a\n")]);
    shell(&host, &many);
    assert_eq!(shell(&host, "git -C lib rev-list many | wc -l"), "1000");
    host.begin();
    host.overlay(&format!(
        "{AS}t=$(git -C lib rev-list many | awk '{{printf \"160000 commit %s\\ts%s\\n\", $1, NR}}' | git mktree); \
         git update-ref refs/heads/x $(git commit-tree -m x $t)"
    ));
    host.read();
    let begun = std::time::Instant::now();
    assert_eq!(held_of(&host), [""; 0]);
    // Each by itself takes a minute.
    assert!(begun.elapsed() < std::time::Duration::from_secs(15), "{:?}", begun.elapsed());
}

/// Where an undo in a linked worktree or a submodule finds what was there before.
#[test]
fn what_a_run_moves_in_worktrees_and_submodules_is_in_their_logs() {
    for (begun, own, script) in [
        (
            "git init -q -b main . && git add a && git commit -qm first && git worktree add -q -b W w".to_owned(),
            "w",
            format!("export GIT_DIR=$PWD/.git/worktrees/w GIT_WORK_TREE=$PWD/w; cd w; {COMMIT}"),
        ),
        (SUBMODULE.to_owned(), "lib", format!("cd lib; {COMMIT}")),
    ] {
        let mut host = Host::new(&[("a", "a\n")]);
        shell(&host, &format!("{begun} && git -C {own} commit -qm own --allow-empty"));
        let before = shell(&host, &format!("git -C {own} rev-parse HEAD"));
        host.begin();
        host.overlay(&format!("{AS}{script}"));
        host.read();
        assert_eq!(held_of(&host), [""; 0], "{own}");
        assert_eq!(shell(&host, &format!("git -C {own} log --format=%s -1")), "n");
        assert_eq!(shell(&host, &format!("git -C {own} rev-parse HEAD@{{1}}")), before, "{own}");
        assert!(shell(&host, &format!("git -C {own} reflog -1")).contains("fumehood apply"), "{own}");
    }
}

#[test]
fn a_folder_of_gits_by_another_name_has_the_working_tree_from_which_a_link_leads_to_it() {
    for (link, is_taken) in [("ln -s repo.git .git", true), ("true", false)] {
        let mut host = Host::new(&[("a", "a\n")]);
        shell(
            &host,
            &format!("git init -q -b main . && git add a && git commit -qm first && mv .git repo.git && {link}"),
        );
        host.begin();
        host.overlay(&format!("{AS}export GIT_DIR=$PWD/repo.git GIT_WORK_TREE=$PWD; {COMMIT}"));
        host.read();
        assert_eq!(matches!(host.apply(), Applied::Done { .. }), is_taken, "{link}");
    }
}
