//! Which of a run's branches, tags and entries of the index the host takes, by the real git.

use super::indices::beside;
use super::objects::AS;
use super::*;

/// Three commits, the first of which a tag names; what the host keeps to itself; a private file.
const BEGUN: &str = "git init -q -b main . && git add a && git commit -qm first && git tag v1.0 && echo b > a && \
                     git commit -qam second && git branch release && git branch fetched && git pack-refs --all && \
                     git config branch.main.remote private && git config remote.private.url ../private && git config branch.release.remote public && \
                     echo local > l && git add l && git commit -qm third && git update-index --skip-worktree l && \
                     echo .env > .git/info/exclude && echo KEY=x > .env && mkdir .git/rebase-apply && \
                     touch .git/rebase-apply/0001 .git/rebase-apply/0002";

/// What a script that ends well prints.
pub(super) fn shell(host: &Host, script: &str) -> String {
    let (is_done, text) = super::objects::shell(host, script);
    assert!(is_done, "{script}: {text}");
    text
}

/// What of git's own folder is held of what a script does.
fn held(script: &str) -> Vec<String> {
    held_after(BEGUN, script)
}

/// The same where the host's repository began otherwise.
pub(super) fn held_after(begun: &str, script: &str) -> Vec<String> {
    let mut host = Host::new(&[("a", "a\n")]);
    shell(&host, begun);
    host.begin();
    host.overlay(&format!("{AS}{script}"));
    host.read();
    held_of(&host)
}

/// After a script this is among what is held.
pub(super) fn assert_held(begun: &str, script: &str, path: &str) {
    let held = held_after(begun, script);
    assert!(held.iter().any(|one| one == path), "{script}: {held:?}");
}

pub(super) fn held_of(host: &Host) -> Vec<String> {
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
    let alone = format!(
        "{BEGUN} && git tag alone $(git commit-tree -m x $(echo x | git hash-object -w --stdin | \
                         sed 's/.*/100644 blob &\\tx/' | git mktree))"
    );
    for (script, path) in [
        ("git update-ref refs/heads/fetched alone", "refs/heads/fetched"),
        ("git update-ref refs/heads/new alone; git pack-refs --all", "packed-refs"),
        ("git update-ref refs/heads/main $(git commit-tree -m x v1.0^{tree})", "refs/heads/main"),
        ("git checkout -q --detach v1.0", "HEAD"),
        ("git symbolic-ref HEAD refs/heads/release", "HEAD"),
    ] {
        assert_held(&alone, script, path);
    }
    for script in [
        "git update-ref refs/heads/fetched main",
        "git update-ref refs/heads/fetched v1.0",
        "echo n > n; git add n; git commit -qm n; git branch m",
    ] {
        assert_eq!(held(script), [""; 0], "{script}");
    }
}

#[test]
fn a_new_name_stands_for_one_reference_alone() {
    for (script, paths) in [
        ("git tag release", &["refs/tags/release"][..]),
        ("git branch v1.0", &["refs/heads/v1.0"][..]),
        ("git branch n; git tag n", &["refs/heads/n", "refs/tags/n"][..]),
        ("git branch n; git tag n; git pack-refs --all", &["packed-refs"][..]),
        ("git tag release; git pack-refs --all", &["packed-refs"][..]),
        ("git update-ref refs/remotes/up/x HEAD; git branch up/x", &["refs/heads/up/x"][..]),
        ("git update-ref refs/tags/ORIG_HEAD HEAD", &["refs/tags/ORIG_HEAD"][..]),
        // As scripts write a tag, and what the host has not fetched yet.
        ("git update-ref refs/heads/refs/tags/v1.0 HEAD", &["refs/heads/refs/tags/v1.0"][..]),
        ("git update-ref refs/heads/heads/x HEAD", &["refs/heads/heads/x"][..]),
        ("git update-ref refs/heads/private/hotfix HEAD", &["refs/heads/private/hotfix"][..]),
        ("git tag private/hotfix; git pack-refs --all", &["packed-refs"][..]),
    ] {
        let held = held(script);
        assert!(paths.iter().all(|path| held.iter().any(|one| one == path)), "{script}: {held:?}");
    }
    for script in ["git branch headset/x", "git branch privately"] {
        assert_eq!(held(script), [""; 0], "{script}");
    }
    // Who has both already goes on with both.
    let begun = format!("{BEGUN} && git update-ref refs/tags/release main~1 && git pack-refs --all");
    for script in ["git update-ref refs/heads/release main", "git tag m; git pack-refs --all"] {
        assert_eq!(held_after(&begun, script), [""; 0], "{script}");
    }
}

/// Also one that the run made with it.
#[test]
fn no_new_branch_or_tag_is_called_as_a_file_of_the_runs() {
    for (script, held) in [
        (
            "echo z > z; git add z; git commit -qm z; git branch z; git tag zz; echo > zz",
            ["refs/heads/z", "refs/tags/zz"].as_slice(),
        ),
        ("mkdir z; echo z > z/y; git add z; git commit -qm z; git branch y", &[]),
    ] {
        let host = beside("git init -q -b main . && git add . && git commit -qm A", script, "true");
        assert_eq!(held_of(&host), held, "{script}");
    }
}

#[test]
fn no_new_name_is_a_folder_of_another_reference() {
    let nested = format!("{BEGUN} && git branch p/q && git branch loose && git pack-refs --all && git branch k/m");
    let at = |name: &str| format!("mkdir -p $(dirname .git/refs/{name}); git rev-parse HEAD > .git/refs/{name}");
    for (script, path) in [
        (at("heads/fetched/x"), "refs/heads/fetched/x"),
        (format!("rm -rf .git/refs/heads/p; {}", at("heads/p")), "refs/heads/p"),
        (at("tags/v1.0/x"), "refs/tags/v1.0/x"),
        ("echo $(git rev-parse HEAD) refs/heads/k >> .git/packed-refs".to_owned(), "packed-refs"),
        ("echo $(git rev-parse HEAD) refs/heads/k/m/n >> .git/packed-refs".to_owned(), "packed-refs"),
        ("echo $(git rev-parse HEAD) refs/heads/loose/n >> .git/packed-refs".to_owned(), "packed-refs"),
    ] {
        // Not held because of its order.
        let script = format!("{script}; sed -i '1s/.*/# pack-refs with: /' .git/packed-refs");
        assert_held(&nested, &script, path);
    }
    for script in ["git branch -m loose loose/x", "git branch -m p/q p", "git branch -m k/m k", "git branch fetched-x"]
    {
        assert_eq!(held_after(&nested, script), [""; 0], "{script}");
    }
}

/// Notes, what text conversions are kept as, and where git-annex asks.
#[test]
fn of_a_list_the_run_moves_branches_alone() {
    let names = ["refs/notes/commits", "refs/notes/textconv/x", "refs/heads/git-annex", "refs/tags/v1.0"];
    let made = names.map(|name| format!("git update-ref {name} v1.0")).join(" && ");
    let mut host = Host::new(&[("a", "a\n")]);
    shell(&host, &format!("{BEGUN} && {made} && git pack-refs --all"));
    let said = |host: &Host| names.map(|name| shell(host, &format!("git rev-parse {name}")));
    let before = said(&host);
    host.begin();
    let changed = names.map(|name| format!("sed -i \"s,.* {name}$,$(git rev-parse HEAD) {name},\" .git/packed-refs"));
    host.overlay(&format!("{AS}{}; git branch -f fetched main; git pack-refs --all", changed.join("; ")));
    host.read();
    assert_eq!(held_of(&host), [""; 0]);
    assert_eq!(said(&host), before);
    assert_eq!(shell(&host, "git rev-parse fetched"), shell(&host, "git rev-parse main"));
}

/// `git annex sync` merges them into the branch that somebody is on, and sends them on.
#[test]
fn what_git_annex_takes_over_by_itself_stays_with_the_run() {
    let annex = format!("{BEGUN} && git branch git-annex && git branch synced/main");
    for (script, path) in [
        ("git branch -f synced/main release", "refs/heads/synced/main"),
        ("git branch synced/release", "refs/heads/synced/release"),
        ("git branch -f synced/main HEAD~1; git pack-refs --all", "packed-refs"),
        ("git branch adjusted/main", "refs/heads/adjusted/main"),
    ] {
        assert_held(&annex, script, path);
    }
    let adjusted = format!("{annex} && git checkout -qb adjusted/main");
    let commit = "echo n > n; git add n; git commit -qm n";
    assert_eq!(held_after(&adjusted, commit), [""; 0]);
    for script in ["git branch synced/main", "git branch adjusted/main"] {
        assert_eq!(held(script), [""; 0], "without git-annex: {script}");
    }
}

#[test]
fn a_stash_or_a_rebase_that_is_at_its_end_holds_nothing() {
    let begun = "git init -q -b main . && git add a && git commit -qm first";
    let rebased = "git checkout -qb dev; echo d > d; git add d; git commit -qm d; git checkout -q main; echo e > e; git add e; \
                   git commit -qm e; git rebase -q main dev";
    for script in ["echo z >> a; git stash -q; git stash pop -q", rebased] {
        // As several versions of git leave it.
        let script =
            format!("{script}; git rev-parse HEAD^{{tree}} > .git/AUTO_MERGE; echo 'error: run this' > .git/gc.log");
        assert_eq!(held_after(begun, &script), [""; 0], "{script}");
    }
    let mut host = Host::new(&[("a", "a\n")]);
    shell(&host, begun);
    host.begin();
    host.overlay(&format!("{AS}{rebased}; echo 'error: run this' > .git/gc.log; git rev-parse HEAD > .git/AUTO_MERGE"));
    host.read();
    assert!(matches!(host.apply(), Applied::Done { .. }));
    assert_eq!(shell(&host, "git log --format=%s -1; git branch --show-current"), "d\ndev");
    assert!(["gc.log", "AUTO_MERGE"].iter().all(|name| !host.work(".git").join(name).exists()));
}

#[test]
fn head_stays_where_the_configuration_depends_on_its_branch() {
    let own = "git config 'includeIf.onbranch:ci/**.path' ../ci";
    let included = "printf '[includeIf \"onbranch:ci/**\"]\\n\\tpath = ci\\n' > inc && git config include.path ../inc";
    for condition in [own, included] {
        for script in ["git checkout -qb ci/x", "git checkout -qb other", "git checkout -q --detach"] {
            let held = held_after(&format!("{BEGUN} && {condition}"), script);
            // What belongs to it waits with it.
            let is_with = |path: &String| path == "index" || path.starts_with("refs/heads/");
            assert!(held[0] == "HEAD" && held[1..].iter().all(is_with), "{condition}: {script}: {held:?}");
        }
        assert_eq!(held_after(&format!("{BEGUN} && {condition}"), "git branch ci/x"), [""; 0], "{condition}");
    }
    assert_eq!(held("git checkout -q --detach"), [""; 0]);
}

#[test]
fn what_git_on_the_host_has_locked_is_a_conflict() {
    let mut host = Host::new(&[("a", "a\n")]);
    shell(&host, BEGUN);
    host.begin();
    host.overlay(&format!("{AS}echo n > n; git add n; git commit -qm n"));
    host.read();
    for (lock, path) in [(".git/index.lock", ".git/index"), (".git/refs/heads/main.lock", ".git/refs/heads/main")] {
        put(&host.work(""), lock, "");
        let Applied::Conflicts(found) = host.apply_with(&Request { guarded: Guarded::Leave, ..all() }).unwrap() else {
            panic!("applied in spite of {lock}")
        };
        assert_eq!(
            found.iter().map(|one| (one.path.to_str().unwrap(), one.id)).collect::<Vec<_>>(),
            [(path, "locked")]
        );
        assert!(found[0].why.contains(lock), "{found:?}");
        std::fs::remove_file(host.work(lock)).unwrap();
    }
    // One of what stays as it is.
    put(&host.work(""), ".git/HEAD.lock", "");
    assert!(matches!(host.apply(), Applied::Done { .. }));
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
        // With it the host's marks would be gone.
        ("rm .git/index".to_owned(), "index"),
        ("rm .git/rebase-apply/0002".to_owned(), "rebase-apply/0002"),
        // One without the other would take back what was committed.
        (format!("echo n > n; git add n; git commit -qm n; {}", entry("", ".env")), "refs/heads/main"),
        ("git update-ref 'refs/heads/$(id)' HEAD; git pack-refs --all".to_owned(), "packed-refs"),
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
fn an_index_may_have_what_git_lfs_makes_of_a_file() {
    let entry = |size: u32| {
        format!(
            "b=$(printf 'version https://git-lfs.github.com/spec/v1\\noid sha256:%s\\nsize {size}\\n' $(sha256sum < a | cut -c1-64) | \
             git hash-object -w --stdin); git update-index --cacheinfo 100644,$b,a"
        )
    };
    let begun = format!("{BEGUN} && echo 'a filter=lfs' > .gitattributes");
    assert_eq!(held_after(&begun, &entry(2)), [""; 0]);
    assert_eq!(held_after(&begun, &entry(3)), ["index"], "it is the pointer of another file");
    assert_eq!(held(&entry(2)), ["index"], "git knows of no filter");
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

/// Root writes with the owner's rights, and nobody into a file that has another name.
#[test]
fn a_line_is_added_to_logs_of_the_owners_alone() {
    let begun = "git init -q -b main . && git add a && git commit -qm first";
    let commit = "git config --global safe.directory '*'; echo n > n; git add n; git commit -qm n";
    let is_root = rustix::process::geteuid().is_root();
    for (is_other, is_linked) in [(true, false), (false, true)] {
        let mut host = Host::new(&[("a", "a\n")]);
        shell(&host, begun);
        let log = host.work(".git/logs/HEAD");
        if is_linked {
            std::fs::hard_link(&log, host.at("other")).unwrap();
        }
        if is_other && is_root {
            std::fs::set_permissions(host.at(""), std::fs::Permissions::from_mode(0o755)).unwrap();
            shell(&host, "chown -R 4242:4242 .; chown 0:0 .git/logs/HEAD; chmod 600 .git/logs/HEAD");
        } else if is_other {
            continue;
        }
        let before = std::fs::read_to_string(&log).unwrap();
        host.begin();
        host.overlay(&format!("{AS}export GIT_CONFIG_GLOBAL=$PWD/../g; {commit}"));
        host.read();
        assert!(matches!(host.apply(), Applied::Done { .. }));
        assert_eq!(std::fs::read_to_string(&log).unwrap(), before);
        let other = std::fs::read_to_string(host.work(".git/logs/refs/heads/main")).unwrap();
        assert!(other.contains("fumehood apply"), "{other}");
    }
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
fn a_folder_keeps_what_it_says_of_files_of_others() {
    let host = Host::new(&[("drop/a", ""), ("team/a", "")]);
    for (name, mode, given) in [("drop", 0o1777, 0o757), ("team", 0o2775, 0o755)] {
        std::fs::set_permissions(host.work(name), std::fs::Permissions::from_mode(mode)).unwrap();
        std::fs::create_dir(host.at("upper").join(name)).unwrap();
        std::fs::set_permissions(host.at("upper").join(name), std::fs::Permissions::from_mode(given)).unwrap();
    }
    host.read();
    assert!(matches!(host.apply(), Applied::Done { .. }));
    let mode = |name: &str| std::fs::metadata(host.work(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!(["drop", "team"].map(mode), [0o1757, 0o2755]);
}

#[test]
fn a_folder_of_the_project_may_be_called_as_one_of_gits() {
    let host =
        Host::new(&[("src/sequencer/a", ""), ("src/sequencer/b", ""), ("rebase-merge/c", ""), ("rebase-merge/d", "")]);
    host.overlay("rm src/sequencer/a rebase-merge/c");
    host.read();
    assert!(matches!(host.apply(), Applied::Done { .. }));
}
