//! Which of a run's branches, tags and entries of the index the host takes, by the real git.

use super::objects::AS;
use super::*;

/// Two commits, the first of which nothing names but a tag; what the host keeps to itself; a private file.
const BEGUN: &str = "git init -q -b main . && git add a && git commit -qm first && git tag v1.0 && echo b > a && \
                     git commit -qam second && git branch release && git branch fetched && git pack-refs --all && \
                     git config branch.main.remote private && git config branch.release.remote public && \
                     echo local > l && git add l && git commit -qm third && git update-index --skip-worktree l && \
                     echo .env > .git/info/exclude && echo KEY=x > .env && mkdir .git/rebase-apply && \
                     touch .git/rebase-apply/0001 .git/rebase-apply/0002";

/// What a script that ends well prints.
fn shell(host: &Host, script: &str) -> String {
    let (is_done, text) = super::objects::shell(host, script);
    assert!(is_done, "{script}: {text}");
    text
}

/// What of git's own folder is held of what a script does.
fn held(script: &str) -> Vec<String> {
    let mut host = Host::new(&[("a", "a\n")]);
    shell(&host, BEGUN);
    host.begin();
    host.overlay(&format!("{AS}{script}"));
    host.read();
    let held = match host.apply() {
        Applied::Done { .. } => Vec::new(),
        Applied::Conflicts(held) => held,
    };
    let held = held.into_iter().map(|one| one.path.display().to_string());
    held.filter_map(|path| path.strip_prefix(".git/").map(str::to_owned)).collect()
}

#[test]
fn what_names_other_than_plain_branches_and_tags_stays_with_the_run() {
    for (script, path) in [
        ("git checkout -qb '$(id)'", "HEAD"),
        ("git update-ref 'refs/heads/$(id)' HEAD", "refs/heads/$(id)"),
        ("git update-ref 'refs/heads/`id`' HEAD; git pack-refs --all", "packed-refs"),
        ("rm .git/packed-refs", "packed-refs"),
        ("git notes add -m x", "refs/notes/commits"),
        ("echo 'ref: refs/heads/main' > .git/refs/heads/other", "refs/heads/other"),
        ("echo 'ref: refs/tags/v1.0' > .git/HEAD", "HEAD"),
        ("git tag v1.0-1-gabcdef1", "refs/tags/v1.0-1-gabcdef1"),
        ("git update-ref refs/heads/git-annex HEAD", "refs/heads/git-annex"),
        ("git commit -qm x --allow-empty; echo x > .git/MERGE_MSG", "MERGE_MSG"),
    ] {
        let held = held(script);
        assert!(held.iter().any(|one| one == path), "{script}: {held:?}");
    }
    for script in ["git branch topic/a+b", "git checkout -qb feature-1.2_x", "git tag v1.1", "git branch \u{e9}t\u{e9}"]
    {
        assert_eq!(held(script), [""; 0], "{script}");
    }
}

#[test]
fn a_branch_moves_to_what_was_looked_into_and_head_to_where_is_pushed_alike() {
    for (script, path) in [
        ("git update-ref refs/heads/fetched v1.0", "refs/heads/fetched"),
        ("git update-ref refs/heads/new v1.0; git pack-refs --all", "packed-refs"),
        ("git update-ref refs/heads/main $(git commit-tree -m x v1.0^{tree})", "refs/heads/main"),
        ("git checkout -q --detach v1.0", "HEAD"),
        ("git symbolic-ref HEAD refs/heads/release", "HEAD"),
    ] {
        let held = held(script);
        assert!(held.iter().any(|one| one == path), "{script}: {held:?}");
    }
    for script in ["git update-ref refs/heads/fetched main", "echo n > n; git add n; git commit -qm n; git branch n"] {
        assert_eq!(held(script), [""; 0], "{script}");
    }
}

#[test]
fn an_index_has_what_is_there_and_what_is_left_to_do_is_whole() {
    let entry = |text: &str, path: &str| {
        format!(
            "b=$(printf '{text}' | git hash-object -w --stdin); git update-index --add --cacheinfo 100644,$b,{path}"
        )
    };
    for (script, path) in [
        (entry("* !filter\\n", "sub/.gitattributes"), "index"),
        (entry("", ".env"), "index"),
        (entry("x", ".envrc"), "index"),
        (format!("echo x > .envrc; {}", entry("x\\n", ".envrc")), "index"),
        ("git update-index --no-skip-worktree l".to_owned(), "index"),
        ("rm .git/rebase-apply/0002".to_owned(), "rebase-apply/0002"),
        // One without the other would take back what was committed.
        (format!("echo n > n; git add n; git commit -qm n; {}", entry("", ".env")), "refs/heads/main"),
        ("git update-ref 'refs/heads/$(id)' HEAD; git pack-refs --all".to_owned(), "refs/heads/main"),
    ] {
        let held = held(&script);
        assert!(held.iter().any(|one| one == path), "{script}: {held:?}");
    }
    for script in [
        "git add -f .env",
        "printf '* text\\n' > .gitattributes; git add .gitattributes",
        "git rm -q a",
        "rm -r .git/rebase-apply",
        "git branch index",
    ] {
        assert_eq!(held(script), [""; 0], "{script}");
    }
}

#[test]
fn where_a_branch_was_before_is_in_the_hosts_log() {
    let mut host = Host::new(&[("a", "a\n")]);
    let own = shell(
        &host,
        "git init -q -b main . && git add a && git commit -qm first && git commit -qm own --allow-empty && git rev-parse HEAD",
    );
    host.begin();
    host.overlay(&format!("{AS}echo n > n; git add n; git commit -qm n"));
    host.read();
    assert!(matches!(host.apply(), Applied::Done { .. }));
    assert_eq!(shell(&host, "git log --format=%s -1"), "n");
    assert_eq!(shell(&host, "git rev-parse HEAD@{1} main@{1}"), format!("{own}\n{own}"));
    assert!(shell(&host, "git reflog -1").contains("fumehood apply"));
}

#[test]
fn who_may_not_read_or_write_a_file_may_not_afterwards() {
    let host = Host::new(&[("secret", "s"), ("tool", "t"), ("open", "o")]);
    for (name, mode) in [("secret", 0o600), ("tool", 0o644), ("open", 0o666)] {
        std::fs::set_permissions(host.work(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }
    for (name, mode) in [("secret", 0o666), ("tool", 0o755), ("open", 0o666), ("new", 0o666)] {
        put(&host.at("upper"), name, "changed");
        std::fs::set_permissions(host.at("upper").join(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }
    host.read();
    assert!(matches!(host.apply(), Applied::Done { .. }));
    let mode = |name: &str| std::fs::metadata(host.work(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(["secret", "tool", "open", "new"].map(mode), [0o600, 0o755, 0o666, 0o664]);
}

#[test]
fn a_folder_of_the_project_may_be_called_as_one_of_gits() {
    let host =
        Host::new(&[("src/sequencer/a", ""), ("src/sequencer/b", ""), ("rebase-merge/c", ""), ("rebase-merge/d", "")]);
    host.overlay("rm src/sequencer/a rebase-merge/c");
    host.read();
    assert!(matches!(host.apply(), Applied::Done { .. }));
}
