//! Sparse checkouts: what a run commits outside of what is checked out is taken, and told; what nobody left out is not hidden so.

use super::objects::AS;
use super::references::{held_of, shell};
use super::*;

/// `dev` changes, adds and removes below `docs`, and adds a folder at the top.
const BEGUN: &str = "git init -q -b main . && mkdir -p src docs/deep && echo d > docs/d && echo e > docs/deep/e && echo g > docs/g && echo s > src/s && \
                     git add . && git commit -qm A && git checkout -qb dev && echo d2 > docs/d && echo n > docs/n && git rm -q docs/g && mkdir new && \
                     echo x > new/x && echo s2 > src/s && git add . && git commit -qm dev && git checkout -q main && echo m > m && git add m && \
                     git commit -qm M && git update-ref refs/remotes/origin/dev dev";
const SPARSE: [&str; 2] = ["git sparse-checkout set src", "git sparse-checkout set --no-cone '/*' '!/docs/' '!/new/'"];
const ALL: &str = "git log --format=%H; git status --porcelain; git ls-files -ts; ls -R";

fn run(begun: &str, script: &str) -> (Host, String) {
    let mut host = Host::new(&[("a", "a\n")]);
    shell(&host, begun);
    host.begin();
    host.overlay(&format!("{AS}{script}\n({ALL}) > ../said"));
    host.read();
    let said = std::fs::read_to_string(host.at("said")).unwrap();
    (host, said.trim().to_owned())
}

#[test]
fn what_a_run_commits_outside_of_a_sparse_checkout_is_taken_and_told() {
    for sparse in SPARSE {
        for (script, is_out) in [
            ("git merge -q -m m dev", true),
            ("git rebase -q dev", true),
            ("git checkout -q dev", true),
            ("git cherry-pick dev", true),
            ("git reset -q --hard dev", true),
            ("git merge -q -m m refs/remotes/origin/dev; git revert --no-edit -m 1 HEAD", false),
            (
                "git checkout -qb x; echo t > src/t; git add src/t; git commit -qm t; echo u >> src/s; git commit -qam u",
                false,
            ),
            ("mkdir -p docs; echo o > docs/o; git add --sparse docs/o; git commit -qm o", false),
            ("git rm -q --sparse docs/d; git commit -qm r", true),
        ] {
            let (host, said) = run(&format!("{BEGUN} && {sparse}"), script);
            let text = host.diff().text();
            assert_eq!(text.contains("left-out: it changes what is left out"), is_out, "{sparse}; {script}: {text}");
            assert!(!is_out || text.contains("`docs/d`"), "{text}");
            assert_eq!(held_of(&host), [""; 0], "{sparse}; {script}: {text}");
            assert_eq!(shell(&host, &format!("git fsck --strict > /dev/null; {ALL}")), said, "{sparse}; {script}");
        }
    }
}

/// Outside of a cone a conflict is written out, and what solves it stays there.
#[test]
fn a_conflict_outside_of_a_sparse_checkout_is_solved_in_its_file() {
    let script = "git merge -q dev > /dev/null 2>&1 || true; echo solved > docs/d; git add --sparse docs/d; git commit -qm merged";
    for sparse in SPARSE {
        let (host, said) = run(&format!("{BEGUN} && echo other > docs/d && git commit -qam D && {sparse}"), script);
        assert_eq!(held_of(&host), [""; 0], "{}", host.diff().text());
        assert_eq!(shell(&host, ALL), said);
    }
}

/// Under `rw` what the run wrote is there already: of it git's own part alone comes afterwards.
#[test]
fn so_it_is_where_the_file_is_there_already() {
    let script = "git merge -q dev > /dev/null 2>&1 || true; echo solved > docs/d; git add --sparse docs/d; git commit -qm merged";
    for sparse in SPARSE {
        let (host, said) = run(&format!("{BEGUN} && echo other > docs/d && git commit -qam D && {sparse}"), script);
        for name in ["docs", "src"] {
            std::fs::create_dir_all(host.work(name)).unwrap();
            shell(&host, &format!("cp -a ../upper/{name}/. {name}/ && rm -r ../upper/{name}"));
        }
        host.read();
        assert_eq!(held_of(&host), [""; 0], "{}", host.diff().text());
        assert_eq!(shell(&host, ALL), said);
    }
    // One that is no file of what was left out stays unseen.
    let begun = "git init -q -b main . && echo l > l && git add . && git commit -qm A && git update-index --skip-worktree l && echo mine > l";
    let (host, _) = run(begun, "git update-index --no-skip-worktree l; git add l; git commit -qm l");
    let held = held_of(&host);
    assert!(held.iter().any(|one| one == "index"), "{held:?}");
}

#[test]
fn a_mark_of_the_runs_own_hides_nothing() {
    let commit = "git add .; git commit -qm evil; ";
    let evil = format!("echo evil > src/evil; {commit}");
    for (begun, script) in [
        // Nobody left it out.
        (BEGUN.to_owned(), format!("{evil}git update-index --skip-worktree src/evil; rm src/evil")),
        (format!("{BEGUN} && {}", SPARSE[0]), format!("{evil}git update-index --skip-worktree src/evil; rm src/evil")),
        (format!("{BEGUN} && {}", SPARSE[1]), format!("{evil}git update-index --skip-worktree src/evil; rm src/evil")),
        // By patterns of the run's own.
        (format!("{BEGUN} && {}", SPARSE[0]), format!("{evil}git sparse-checkout set docs")),
        (BEGUN.to_owned(), format!("{evil}git sparse-checkout set docs")),
        // By patterns that count no more.
        (format!("{BEGUN} && {} && git sparse-checkout disable", SPARSE[0]), "git merge -q -m m dev; git update-index --skip-worktree docs/n; rm docs/n".to_owned()),
        // Not as its commit has it; taken to be as it was; a control file, which the next checkout writes.
        (format!("{BEGUN} && {}", SPARSE[0]), "git update-index --cacheinfo 100644,$(echo evil | git hash-object -w --stdin),docs/d; git update-index --skip-worktree docs/d; git commit -q --allow-empty -m e --only -- src".to_owned()),
        (format!("{BEGUN} && {}", SPARSE[0]), "git merge -q -m m dev; git update-index --assume-unchanged docs/n".to_owned()),
        (format!("{BEGUN} && {}", SPARSE[0]), "mkdir -p docs; echo '* -filter' > docs/.gitattributes; git add --sparse .; git commit -qm a; git sparse-checkout reapply; rm -rf docs; git update-index --skip-worktree docs/.gitattributes".to_owned()),
        (format!("{BEGUN} && {}", SPARSE[0]), "git merge -q -m m dev; git update-index --no-skip-worktree docs/d".to_owned()),
        // A file of the host's own stands there.
        (format!("{BEGUN} && {} && mkdir docs && echo mine > docs/d && git update-index --skip-worktree docs/d", SPARSE[0]), "git -c sparse.expectFilesOutsideOfPatterns=true merge -q -m m dev".to_owned()),
    ] {
        let (host, _) = run(&begun, &script);
        let before = shell(&host, "git log --format=%H; git ls-files -s");
        let held = held_of(&host);
        assert!(held.iter().any(|one| one == "index"), "{begun}\n{script}: {held:?}");
        let _left = host.apply_with(&Request { guarded: Guarded::Leave, ..all() });
        assert_eq!(shell(&host, "git log --format=%H; git ls-files -s"), before, "{script}");
    }
}
