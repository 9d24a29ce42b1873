use super::*;

fn objection(before: &[u8], now: &[u8]) -> Option<String> {
    config_objection(before, now, &|_| false)
}

fn part(before: &[u8], now: &[u8]) -> Option<Part> {
    super::part(before, now, &|_| false)
}

#[test]
fn a_key_is_read_as_git_reads_it() {
    for config in [
        "[core \"hookspath\0\"]\n\tlogallrefupdates = always\n",
        "[submodule \"x.update\0\"]\n\tactive = !touch x\n",
        "[init]\n\tdefaultbranch = a\0b\n",
        "[init]\n\tdefaultbranch = a\u{85}b\n",
        "[core \"x\"]\n\tlogallrefupdates = always\n",
        "[init \"x\"]\n\tdefaultbranch = a\n",
    ] {
        assert!(objection(b"", config.as_bytes()).is_some(), "{config}");
        assert_eq!(part(b"", config.as_bytes()), None, "{config}");
    }
    let long = format!("[branch \"x\"]\n\tdescription = {}\n", "a".repeat(MAX_SIZE));
    assert!(objection(b"", long.as_bytes()).is_some());
}

#[test]
fn only_keys_that_steer_nothing_are_taken_over() {
    let old = "[core]\n\tbare = false\n[remote \"origin\"]\n\turl = https://a.example/x.git\n";
    let with = |more: &str| objection(old.as_bytes(), format!("{old}{more}").as_bytes());
    for more in [
        "",
        "[init]\n defaultBranch = x\n",
        "[branch \"x\"]\n\tremote = origin\n\tmerge = refs/heads/x\n",
        "# a comment\n",
        "[core]\n\tlogAllRefUpdates = always\n[branch \"x\"]\n\trebase = true\n",
        "[branch \"x\"]\n\tremote = origin\n\tmerge = refs/pull/6/head\n",
    ] {
        assert_eq!(with(more), None, "{more}");
    }
    for more in [
        "[core]\n\tfsmonitor = /tmp/x\n",
        "[alias]\n\tst = !sh\n",
        "[include]\n\tpath = /tmp/x\n",
        "[core]\n\thooksPath = x\n",
        "[remote \"origin\"]\n\turl = https://evil.example/x.git\n",
        "[remote \"e\"]\n\turl = /tmp/evil\n",
        "[branch \"x\"]\n\tremote = ext::sh\n",
        "[branch \"x\"]\n\tremote = ../evil\n",
        "[filter \"x\"]\n\tclean = sh\n",
        "[core]\n\tpager = sh\n",
        "[user]\n\tname = x\n",
        "[branch \"main\"]\n\tpushRemote = up\n[remote \"up\"]\n\turl = https://evil.example/x\n",
        "[x]\n\ty = \\\nz\n",
        "[remote \"up\"]\n\tuploadpack = sh\n",
        "[url \"https://evil/\"]\n\tinsteadOf = https://a.example/\n",
        "[core]fsmonitor = x\n",
        "fsmonitor = x\n[",
        "[extensions]\n\tworktreeConfig = true\n",
        "[remote \"new\"]\n\turl = https://evil.example/x.git\n",
        "[remote \"new\"]\n\turl = git@host.example:a/b.git\n\tfetch = +refs/heads/*:refs/remotes/new/*\n",
        "[remote \"origin\"]\n\tfetch = refs/pull/*:refs/remotes/origin/pull/*\n",
        "[submodule \"x\"]\n\turl = https://evil.example/x.git\n",
        "[core]\n\tignorecase = true\n",
        "[core]\n\tfilemode = false\n",
        "[core]\n\tsymlinks = false\n",
        "[init]\n\tdefaultbranch\n",
        "\u{b}[init]\n\tdefaultbranch = x\n",
        "[init]\n\tdefaultbranch\r= x\n",
        "[branch \"x\" ]\n\tmerge = refs/heads/x\n",
        "[branch \"\"]\n\tmerge = refs/heads/x\n",
        "[branch.]\n\tmerge = refs/heads/x\n",
        "[branch \"x\"]\n\trebase = maybe\n",
        "[core]\n\tlogallrefupdates = maybe\n",
        "\u{a0}\n",
        "[branch\u{2003}\"x\"]\n\tmerge = refs/heads/x\n",
    ] {
        assert!(with(more).is_some(), "{more}");
    }
    assert!(objection(b"", b"\xff").is_some());
}

#[test]
fn keys_stay_in_the_hosts_order() {
    let host = "[include]\n\tpath = x\n[core]\n\thooksPath = safe\n";
    let turned = "[core]\n\thooksPath = safe\n[include]\n\tpath = x\n";
    assert!(objection(host.as_bytes(), turned.as_bytes()).is_some());
    assert_eq!(objection(host.as_bytes(), format!("[init]\n\tdefaultbranch = a\n{host}").as_bytes()), None);
    let thrice = format!("[core]\n\thooksPath = safe\n{host}");
    let moved = "[core]\n\thooksPath = safe\n[core]\n\thooksPath = safe\n[include]\n\tpath = x\n";
    assert!(objection(thrice.as_bytes(), moved.as_bytes()).is_some(), "all of them, not the first of each");
}

#[test]
fn where_a_branch_is_pulled_from_and_pushed_to_is_the_hosts() {
    let host = "[remote \"origin\"]\n\turl = https://a.example/x.git\n[remote \"backup\"]\n\turl = https://evil.example/x.git\n";
    let main = "[branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n";
    let of = |before: &str, now: &str| {
        objection(format!("{host}{before}").as_bytes(), format!("{host}{now}").as_bytes()).is_some()
    };
    let branch =
        |remote: &str, merge: &str| format!("[branch \"main\"]\n\tremote = {remote}\n\tmerge = refs/{merge}\n");
    assert!(!of("", main) && !of("", &branch("origin", "pull/6/head")));
    // A server that an earlier run named, another branch, a branch of the run's own, half of what was said, nothing any more: the
    // next run would say it anew.
    for now in [
        branch("backup", "heads/main"),
        branch("origin", "heads/other"),
        branch(".", "heads/main"),
        main.replace("\tremote = origin\n", ""),
        format!("{main}\tpushRemote = backup\n"),
        format!("{main}\tpushRemote = origin\n"),
        String::new(),
    ] {
        assert!(of(main, &now), "{now}");
    }
    assert!(of("", &branch("backup", "heads/main")) && of("", &branch(".", "heads/main")));
    let described = "[branch \"main\"]\n\tdescription = x\n";
    assert!(of(described, &format!("{described}{main}")), "the host says something of it");
    let now = format!("{host}{main}");
    assert!(config_objection(host.as_bytes(), now.as_bytes(), &|name| name == "main").is_some(), "the host has it");
    assert!(of("", "[branch \"-x\"]\n\tremote = origin\n") && of("", "[branch \"../x\"]\n\tremote = origin\n"));
    let used = format!("{main}[branch \"x\"]\n\tremote = backup\n");
    assert!(of(&used, &format!("{used}[branch \"y\"]\n\tremote = backup\n")), "git takes origin by itself");
}

#[test]
fn harmless_keys_alone_are_taken_over_and_the_hosts_lines_stay() {
    let host = "; ours\n[core]\n\tbare = false\n\n# who fetches\n[remote \"origin\"]\n\turl = https://a.example/x.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n[branch \"old\"]\n\tmerge = refs/heads/old\n\tremote = origin\n[alias]\n\tst = status -s";
    let run = "[core]\n\tbare = false\n\tfsmonitor = /tmp/x\n\thooksPath = x\n[remote \"origin\"]\n\turl = https://evil.example/x\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n\tfetch = +refs/pull/*:refs/remotes/origin/pull/*\n[alias]\n\tst = !sh\n[branch \"new\"]\n\tremote = origin\n\tmerge = refs/heads/new\n[init]\n\tdefaultbranch = \"a b\"\n[remote \"up\"]\n\turl = ssh://git@b.example/y\n\tfetch = +refs/heads/*:refs/remotes/up/*\n";
    let part = part(host.as_bytes(), run.as_bytes()).unwrap();
    let expected = "; ours\n[core]\n\tbare = false\n\n# who fetches\n[remote \"origin\"]\n\turl = https://a.example/x.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n[branch \"old\"]\n\tmerge = refs/heads/old\n\tremote = origin\n[alias]\n\tst = status -s\n[branch \"new\"]\n\tmerge = refs/heads/new\n\tremote = origin\n[init]\n\tdefaultbranch = \"a b\"\n";
    assert_eq!(String::from_utf8(part.merged).unwrap(), expected);
    let taken = taken(host.as_bytes(), run.as_bytes(), &|_| false).unwrap();
    assert_eq!(taken, "`branch.new.merge`, `branch.new.remote`, `init.defaultbranch`");
    assert!(part.left.contains("`alias.st`") && part.left.ends_with(" more"), "{}", part.left);
    assert_eq!(objection(host.as_bytes(), expected.as_bytes()), None);
}

/// Where the repository says nothing of it another configuration of the host's does: the next commit would be by another name.
#[test]
fn who_commits_is_never_taken() {
    let host = "[user]\n\tname = nick\n\temail = nick@users.noreply.example\n";
    for section in ["user", "author", "committer"] {
        let host = host.replace("user]", &format!("{section}]"));
        let of = |before: &str, now: &str| {
            let now = now.replace("user]", &format!("{section}]"));
            objection(before.as_bytes(), now.as_bytes()).is_some_and(|why| why.contains(section))
        };
        for now in ["", "[user]\n\tname = nick\n", "[user]\n\temail = nick@users.noreply.example\n"] {
            assert!(of(&host, now), "{section}: {now:?}");
        }
        let (other, twice) = (host.replace("= nick\n", "= Chief\n"), format!("{host}\tname = Chief\n"));
        assert!(of(&host, &other) && of(&host, &twice), "{section}");
        assert!(of("", &host) && of("[user]\n\tname = nick\n", &host), "{section}: nothing was said here");
    }
    let run = b"[init]\n\tdefaultbranch = y\n[user]\n\temail = agent@x\n";
    let part = part(b"[init]\n\tdefaultbranch = x\n", run).unwrap();
    assert_eq!((part.merged, part.left), (b"[init]\n\tdefaultbranch = y\n".to_vec(), "`user.email`".to_owned()));
    let gone = super::taken(b"[init]\n\tdefaultbranch = x\n", b"[branch \"x\"]\n\trebase = true\n", &|_| false);
    assert_eq!(gone.unwrap(), "`init.defaultbranch` (removed), `branch.x.rebase`");
}

#[test]
fn a_part_is_taken_only_where_there_is_one() {
    let part = |before: &str, now: &str| part(before.as_bytes(), now.as_bytes());
    assert_eq!(part("", "[init]\n\tdefaultbranch = x\n"), None, "all of it");
    assert_eq!(part("", "[alias]\n\tx = !sh\n"), None, "none of it");
    assert_eq!(part("", "[alias]\n\tx = !sh\n[init]\n\tdefaultbranch = x \\\n\n"), None, "not understood");
    assert_eq!(
        part("[x]\n\ty = \"\\\n\"", "[init]\n\tdefaultbranch = x\n[alias]\n\tx = y\n"),
        None,
        "the host's neither"
    );
    // A remote without an address of its own is a folder, an address of another kind a program; a quote without end
    // stops git.
    for held in [
        "[remote \"e\"]\n\tfetch = x\n",
        "[init]\n\tdefaultbranch = \"x\n",
        "[remote \"e\"]\n\turl = ext::sh\n\tfetch = x\n",
    ] {
        assert_eq!(part("", held), None, "{held}");
        assert!(objection(b"", held.as_bytes()).is_some(), "{held}");
    }
    let gone = part("[a]\n\tb = c\n[init]\n\tdefaultbranch = x\n[core]\n", "[core]\n").unwrap();
    assert_eq!((gone.merged, gone.left), (b"[a]\n\tb = c\n[init]\n[core]\n".to_vec(), "`a.b`".to_owned()));
    let many: String = (0..9).map(|n| format!("[x{n}]\n\ty = z\n")).collect();
    let left = part("", &format!("{many}[init]\n\tdefaultbranch = x\n")).unwrap().left;
    assert!(left.ends_with("`x4.y` and 4 more"), "{left}");
}
