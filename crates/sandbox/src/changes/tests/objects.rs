//! Objects of git's, as the real git writes them and as somebody else does.

use super::*;

/// Nothing of git's lives on in the overlay when a script has ended.
pub(super) const AS: &str = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b GIT_CONFIG_NOSYSTEM=1 \
                  GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=maintenance.auto GIT_CONFIG_VALUE_0=false; ";
/// Commits to a file that is packed as differences, and one more that is loose.
const WORK: &str = "for n in 1 2 3 4 5; do seq 1 3000 > l; echo $n >> l; seq $n 400 >> l; git add l; git commit -qm $n; done; git tag v; \
                    git repack -adq; git multi-pack-index write; git commit-graph write --reachable; git prune-packed; \
                    echo loose > m; git add m; git commit -qm loose; ";

pub(super) fn shell(host: &Host, script: &str) -> (bool, String) {
    let done = Command::new("sh").args(["-ec", &format!("{AS}{script}")]).current_dir(host.work("")).output().unwrap();
    let text = [done.stdout, done.stderr].concat();
    (done.status.success(), String::from_utf8_lossy(&text).trim().to_owned())
}

/// A workspace with a repository, in which a run then worked.
fn repository(options: &str, script: &str) -> Host {
    let mut host = Host::new(&[("a", "reviewed\n")]);
    let made = shell(&host, &format!("git init -q -b main {options} . && git add a && git commit -qm first"));
    assert!(made.0, "{}", made.1);
    host.begin();
    host.overlay(&format!("{AS}{script}"));
    host.read();
    host
}

fn leave(host: &Host) -> Applied {
    host.apply_with(&Request { guarded: Guarded::Leave, ..all() }).unwrap()
}

#[test]
fn what_git_packs_is_taken_and_what_it_derives_stays_with_the_run() {
    for options in ["--object-format=sha1", "--object-format=sha256"] {
        for place in ["true", "false"] {
            let script = format!(
                "git config repack.useDeltaBaseOffset {place}; git config pack.writeReverseIndex true; {WORK} \
                 git verify-pack -v .git/objects/pack/*.idx | grep -q 'chain length' || exit 1"
            );
            let host = repository(options, &script);
            let before: Vec<_> = tree(&host.work(".git/objects"));
            let applied = leave(&host);
            assert!(matches!(&applied, Applied::Done { left: 1, .. }), "the configuration: {applied:?}");
            let checked = shell(&host, "git fsck --strict --full; git log --format=%s; git rev-parse v");
            assert!(checked.0 && checked.1.contains("loose\n5\n4\n3\n2\n1\nfirst"), "{}", checked.1);
            let after = tree(&host.work(".git/objects"));
            assert!(before.iter().all(|(path, ..)| after.iter().any(|(now, ..)| now == path)), "something was removed");
            let is = |end: &str| after.iter().any(|(path, ..)| path.to_str().unwrap().ends_with(end));
            assert!(is(".pack") && is(".idx") && is(".rev"), "{after:?}");
            assert!(!is("multi-pack-index") && !is("commit-graph"), "{after:?}");
        }
    }
}

/// git LFS and git itself read these files from a commit where none stands in the working tree.
#[test]
fn a_branch_whose_commit_names_other_servers_stays_with_the_run() {
    for (options, pack) in
        [("--object-format=sha1", ""), ("--object-format=sha256", "; git repack -adq; git pack-refs --all")]
    {
        for (name, held) in [(".lfsconfig", true), (".gitmodules", true), ("lfsconfig", false)] {
            let commit = "t=$(printf '100644 blob %s\\t%s\\n' $b NAME | git mktree); git update-ref HEAD $(git commit-tree -m x -p HEAD $t); \
                          git reset -q --hard";
            let commit = commit.replace("NAME", name);
            let script = format!("b=$(echo x | git hash-object -w --stdin); {commit}{pack}");
            let host = repository(options, &script);
            let before = shell(&host, "git rev-parse main").1;
            let applied = leave(&host);
            let after = shell(&host, "git rev-parse main").1;
            assert_eq!(before == after, held, "{options} {name}: {applied:?}");
            if held {
                let said = host.diff().text();
                assert!(said.contains("which server is asked"), "{name}: {said}");
                leave(&host);
                assert_eq!(before, shell(&host, "git rev-parse main").1, "{name}: the second time");
            }
        }
    }
    // Brought by one run and named by the next.
    let host = repository("", "mkdir d; echo x > d/.lfsconfig; git add -A; git write-tree > t; git reset -q");
    leave(&host);
    let tree = shell(&host, "cat t").1;
    assert!(!shell(&host, &format!("git cat-file -e {tree}")).0, "{}", host.diff().text());
    // A library with one of its own, which git reads of no commit but of one that has it at the top; and what the host says is not known.
    let vendored = "mkdir -p third/x && echo l > third/x/l && printf '[submodule \"q\"]\n\tpath=q\n' > third/x/.gitmodules && git add . && \
                    git commit -qm second";
    for (more, script, expected) in [
        ("", "", &[][..]),
        ("", "git branch x $(git commit-tree -m x HEAD:third/x); ", &["which server is asked"][..]),
        ("", "echo >> third/x/.gitmodules; git commit -qam x; ", &["which server is asked"][..]),
        ("&& git update-index --split-index", "", &["--no-split-index"][..]),
    ] {
        let mut host = Host::new(&[("a", "1")]);
        assert!(shell(&host, &format!("git init -q -b main . && {vendored} {more}")).0);
        host.begin();
        host.overlay(&format!("{AS}echo fix >> third/x/l; git commit -qam third; {script}"));
        host.read();
        let Applied::Conflicts(held) = host.apply() else {
            assert!(expected.is_empty(), "{script}");
            continue;
        };
        let is_said = |why: &&&str| held.iter().any(|one| one.why.contains(**why));
        assert!(!expected.is_empty() && expected.iter().all(|why| is_said(&why)), "{more} {script}: {held:?}");
    }
    // What the host has so is no other.
    let mut host = Host::new(&[(".lfsconfig", "[lfs]\n\turl = https://a.example/x\n")]);
    assert!(shell(&host, "git init -q -b main . && git add .lfsconfig && git commit -qm first").0);
    host.begin();
    host.overlay(&format!("{AS}echo b > b; git add b; git commit -qm second"));
    host.read();
    leave(&host);
    assert_eq!(shell(&host, "git log --format=%s -1").1, "second");
}

/// Lets somebody change the files below `.git/objects` that the run left, with those names.
fn forge(host: &Host, end: &str, change: impl Fn(&Path)) {
    let objects = host.at("upper").join(".git/objects");
    let found: Vec<_> = tree(&objects).into_iter().filter(|(path, ..)| path.to_str().unwrap().ends_with(end)).collect();
    assert!(!found.is_empty(), "{end}");
    for (path, ..) in found {
        let path = objects.join(path);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        change(&path);
    }
    host.read();
}

/// One other byte in the middle, or one more at the end.
fn flip(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

fn longer(path: &Path) {
    let bytes = std::fs::read(path).unwrap();
    std::fs::write(path, [bytes, vec![0]].concat()).unwrap();
}

#[test]
fn objects_that_lie_hold_their_folder_and_nothing_is_lost() {
    for (end, change) in
        [(".idx", flip as fn(&Path)), (".rev", flip), (".pack", flip), (".pack", longer), (".idx", longer)]
    {
        let host = repository("", &format!("git config pack.writeReverseIndex true; echo new > b; {WORK}"));
        let before = tree(&host.work(".git"));
        forge(&host, end, change);
        assert!(host.diff().text().contains("git index-pack"), "{}", host.diff().text());
        let applied = leave(&host);
        assert!(
            matches!(&applied, Applied::Done { paths, .. } if paths.iter().any(|path| path.0 == Path::new("b"))),
            "{applied:?}"
        );
        assert_eq!(tree(&host.work(".git")), before, "{end}");
        let rest = load(&host.state, &host.run).unwrap().0;
        assert!(rest.entries.iter().any(|entry| entry.path.extension().is_some_and(|end| end == "pack")));
        // By name it is taken.
        let take = Request { guarded: Guarded::Take(vec![".git".into()]), ..all() };
        assert!(matches!(host.apply_with(&take), Ok(Applied::Done { .. })), "{end}");
    }
}

#[test]
fn a_loose_object_is_what_it_is_named_by() {
    let lie = "reviewed=$(git rev-parse HEAD:a); rm -rf x; git init -q x; printf 'evil\\n' > x/e; \
               evil=$(git -C x hash-object -w e); path() { echo objects/$(echo $1 | cut -c1-2)/$(echo $1 | cut -c3-); }; ";
    // Under the name of an object that nobody has yet: what a branch of somebody else brings.
    let plant = "other=1111111111111111111111111111111111111111; mkdir -p .git/objects/11; \
                 cp x/.git/$(path $evil) .git/$(path $other); rm -rf x; echo two > a; git commit -qam two";
    let host = repository("", &format!("{lie}{plant}"));
    let before = tree(&host.work(".git"));
    let held = host.conflicts();
    assert!(held.iter().any(|(path, _)| path.starts_with(".git/objects/11")), "{held:?}");
    assert!(held.contains(&(PathBuf::from(".git/refs/heads/main"), "protected")), "{held:?}");
    assert!(matches!(leave(&host), Applied::Done { .. }));
    assert_eq!(tree(&host.work(".git")), before);
    // Without the control the host shows it.
    let planted = host.work(".git/objects/11/11111111111111111111111111111111111111");
    std::fs::create_dir_all(planted.parent().unwrap()).unwrap();
    let upper = host.at("upper/.git/objects/11/11111111111111111111111111111111111111");
    std::fs::copy(upper, planted).unwrap();
    let shown = shell(&host, "git cat-file blob 1111111111111111111111111111111111111111");
    assert!(shown.1.contains("evil"), "{shown:?}");
    // Honest ones are taken.
    let host = repository("", "echo two > a; git commit -qam two");
    assert!(matches!(host.apply(), Applied::Done { .. }));
    assert_eq!(shell(&host, "git fsck --strict >/dev/null 2>&1; git show HEAD:a").1, "two");
}

#[test]
fn objects_are_not_removed_nor_are_files_of_lfs_changed() {
    let (sum, other) = (policy::json::sha256_hex(b"large"), policy::json::sha256_hex(b"other"));
    let at = |sum: &str| format!(".git/lfs/objects/{}/{}/{sum}", sum.get(..2).unwrap(), sum.get(2..4).unwrap());
    let files = [(".git/HEAD", "ref: refs/heads/main\n"), (&*at(&other), "other")];
    let host = Host::new(&files);
    put(&host.at("upper"), &at(&sum), "large");
    host.read();
    assert!(matches!(host.apply(), Applied::Done { .. }));
    for (path, text) in [(at(&other), "evil"), (at(&policy::json::sha256_hex(b"new")), "evil")] {
        let host = Host::new(&files);
        put(&host.at("upper"), &path, text);
        host.read();
        assert!(host.conflicts().contains(&(PathBuf::from(&path), "protected")), "{path}");
    }
    let host = repository("", "rm -f .git/objects/??/*");
    let before = tree(&host.work(".git"));
    // Nobody is asked about what `git gc` does, and nothing of it is done.
    let applied = host.apply();
    assert!(matches!(&applied, Applied::Done { paths, .. } if paths.is_empty()), "{applied:?}");
    assert_eq!(tree(&host.work(".git")), before);
}

/// git gives an object that is there already a new time alone, by which its own `prune` would spare it: that is in the run's layer.
#[test]
fn an_object_that_the_run_wrote_again_is_taken_where_the_host_removes_it_meanwhile() {
    const PRUNE: &str = "git prune --expire=1.week.ago; ! git cat-file -e $(echo again | git hash-object --stdin)";
    for (is_copied, is_pruned_late) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut host = Host::new(&[("a", "reviewed\n")]);
        let begun = "git init -q -b main . && git add a && git commit -qm first && echo again | git hash-object -w --stdin && \
                     find .git/objects -type f -exec touch -d '3 weeks ago' {} +";
        assert!(shell(&host, begun).0);
        host.begin();
        let script = format!("{AS} echo again > f; git add f; git commit -qm second");
        let baseline = is_copied.then(|| host.copy(&script));
        if !is_copied {
            host.overlay(&script);
        }
        let prune = || assert!(shell(&host, PRUNE).0);
        if !is_pruned_late {
            prune();
        }
        baseline.map_or_else(|| host.read(), |baseline| host.read_copied(&baseline));
        if is_pruned_late {
            prune();
        }
        let applied = host.apply();
        let whole = shell(&host, "git fsck --strict --no-dangling 2>&1; git show HEAD:f; git status --porcelain");
        assert_eq!(whole.1, "again", "{is_copied} {is_pruned_late} {applied:?}");
    }
}
