//! What of git's own folder is taken, and what stays with the run.

use super::*;

/// What a branch of the host's names.
const COMMIT: &str = "0101010101010101010101010101010101010101\n";

#[test]
fn of_gits_folder_what_is_harmless_is_taken_and_the_rest_stays_with_the_run() {
    let host = Host::new(&[
        (".git/HEAD", "ref: refs/heads/main\n"),
        (".git/config", "[core]\n\tbare = false\n"),
        (".git/ORIG_HEAD", "1"),
        (".git/objects/k", ""),
        (".git/refs/heads/k", COMMIT),
    ]);
    let plain = "[core]\n\tbare = false\n[init]\n\tdefaultbranch = x\n";
    for (name, text) in [
        (".git/config", plain),
        (".git/ORIG_HEAD", "2"),
        (".git/refs/heads/main", COMMIT),
        (".git/hooks/pre-commit", "evil"),
        (".git/modules/vendor/lib/config", "[core]\n\tfsmonitor = evil\n"),
        (".git/commondir", "evil"),
    ] {
        put(&host.at("upper"), name, text);
    }
    host.read();
    assert!(host.diff().text().contains("protected: version control"), "{}", host.diff().text());
    let left = host.apply_with(&Request { guarded: Guarded::Leave, ..all() }).unwrap();
    assert!(
        matches!(&left, Applied::Done { paths, .. } if paths.iter().any(|path| path.0 == Path::new(".git/refs/heads/main"))),
        "{left:?}"
    );
    assert_eq!(std::fs::read_to_string(host.work(".git/config")).unwrap(), plain);
    assert_eq!(std::fs::read_to_string(host.work(".git/ORIG_HEAD")).unwrap(), "1");
    for held in [".git/hooks", ".git/modules", ".git/commondir"] {
        assert!(!host.work(held).exists(), "{held}");
    }
    let rest = load(&host.state, &host.run).unwrap().0;
    assert!(rest.entries.iter().any(|entry| entry.path == Path::new(".git/hooks/pre-commit")));
}

#[test]
fn a_configuration_that_names_a_program_is_held() {
    for text in ["[core]\n\tfsmonitor = evil\n", "[alias]\n\tx = !sh\n", "[include]\n\tpath = ../evil\n"] {
        let host = Host::new(&[(".git/HEAD", ""), (".git/config", "[core]\n\tbare = false\n")]);
        put(&host.at("upper"), ".git/config", text);
        host.read();
        assert_eq!(host.conflicts(), [(PathBuf::from(".git/config"), "protected")], "{text}");
    }
}

#[test]
fn what_the_hosts_configuration_of_git_names_is_held() {
    let config = "[core]\n\tbare = false\n\thooksPath = h\n\tfsmonitor = tools/watch.sh --all\n\
                  [include]\n\tpath = ../dev/config\n[user]\n\tname = src/x\n";
    let host = Host::new(&[(".git/HEAD", ""), (".git/config", config), ("my/hooks/x", ""), ("sub/src/x", "")]);
    symlink("my/hooks", host.work("h")).unwrap();
    symlink("other", host.at("upper").join("h")).unwrap();
    let held = ["dev/config", "h", "my/hooks/pre-commit", "tools/watch.sh"];
    for name in held.into_iter().skip(2).chain(["dev/config", "tools/other.sh", "src/x", "false", "other/x"]) {
        put(&host.at("upper"), name, "");
    }
    host.read();
    let found = host.conflicts().into_iter().filter(|(_, id)| *id == "protected").map(|(path, _)| path);
    assert_eq!(found.collect::<Vec<_>>(), held.map(PathBuf::from));
    assert!(host.diff().text().contains("git's configuration names it"));
    // Without a configuration that names them they are files like others.
    let plain = Host::new(&[(".git/HEAD", ""), (".git/config", "[core]\n\tbare = false\n")]);
    put(&plain.at("upper"), "tools/watch.sh", "");
    plain.read();
    assert!(matches!(plain.apply(), Applied::Done { .. }));
}

#[test]
fn what_a_repository_elsewhere_in_the_workspace_names_is_held() {
    let config = "[core]\n\thooksPath = ../tools/hooks\n";
    let files = [(".git/HEAD", ""), ("sub/.git/HEAD", ""), ("sub/.git/config", config)];
    let bare = [("b.git/HEAD", ""), ("b.git/config", config), ("b.git/objects/x", ""), ("b.git/refs/x", "")];
    for files in [&files[..], &bare] {
        let host = Host::new(files);
        put(&host.at("upper"), "tools/hooks/pre-commit", "evil");
        put(&host.at("upper"), "tools/x", "");
        host.read();
        let held: Vec<_> = host.conflicts();
        assert_eq!(
            held,
            [("tools/hooks", "protected"), ("tools/hooks/pre-commit", "protected")].map(|(p, id)| (p.into(), id))
        );
    }
}

#[test]
fn what_git_remembers_stays_with_the_run_and_nobody_is_asked() {
    let host = Host::new(&[&WHOLE[..], &[(".git/refs/remotes/origin/main", "1\n")]].concat());
    let remembered = [".git/logs/HEAD", ".git/refs/remotes/origin/main", ".git/refs/remotes/up/x", ".git/FETCH_HEAD"];
    remembered.iter().for_each(|name| put(&host.at("upper"), name, "evil\n"));
    host.read();
    let done = host.apply();
    assert!(matches!(&done, Applied::Done { paths, left: 0, .. } if paths.is_empty()), "{done:?}");
    assert_eq!(std::fs::read_to_string(host.work(".git/refs/remotes/origin/main")).unwrap(), "1\n");
    assert!(!host.work(".git/logs").exists() && !host.work(".git/FETCH_HEAD").exists());
    // Named, they are taken; a stash and a merge that is not at its end are held.
    put(&host.at("upper"), ".git/refs/remotes/up/x", &"01".repeat(20));
    put(&host.at("upper"), ".git/refs/stash", &"01".repeat(20));
    put(&host.at("upper"), ".git/MERGE_HEAD", &"01".repeat(20));
    host.read();
    let held = host.conflicts();
    assert_eq!(held.len(), 2, "{held:?}");
    let named = vec![PathBuf::from(".git/refs/remotes/up")];
    let take = Request { paths: Some(named.clone()), guarded: Guarded::Take(named), ..all() };
    let taken = host.apply_with(&take).unwrap();
    assert!(matches!(taken, Applied::Done { .. }), "{taken:?}");
    assert!(host.work(".git/refs/remotes/up/x").exists());
}

#[test]
fn what_belongs_to_a_worktree_elsewhere_is_held() {
    let host = Host::new(&WHOLE);
    let elsewhere = host.work("").parent().unwrap().join("elsewhere");
    for (id, tree) in [("own", host.work("w")), ("other", elsewhere)] {
        std::fs::create_dir_all(&tree).unwrap();
        put(&host.work(""), &format!(".git/worktrees/{id}/gitdir"), &format!("{}\n", tree.join(".git").display()));
        put(&host.work(""), &format!(".git/worktrees/{id}/HEAD"), "ref: refs/heads/a\n");
        put(&host.at("upper"), &format!(".git/worktrees/{id}/HEAD"), "ref: refs/heads/b\n");
    }
    host.read();
    let held: Vec<PathBuf> = host.conflicts().into_iter().filter(|one| one.1 == "protected").map(|one| one.0).collect();
    assert_eq!(held, [PathBuf::from(".git/worktrees/other/HEAD")]);
}

#[test]
fn folders_of_submodules_are_judged_from_where_they_begin_on_the_host() {
    let mut files = vec![(".git/HEAD".to_owned(), "ref: refs/heads/main\n".to_owned())];
    for name in ["src/logs", "lib/refs", "lib/own"] {
        let parts = [("HEAD", "ref: refs/heads/main\n"), ("objects/x", ""), ("refs/heads/x", COMMIT)];
        files.extend(parts.map(|(part, text)| (format!(".git/modules/{name}/{part}"), text.to_owned())));
    }
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let host = Host::new(&files);
    let held = [
        ".git/modules/lib/refs/index",
        ".git/modules/src/logs/HEAD",
        ".git/modules/src/logs/hooks/post-checkout",
        ".git/modules/src/logs/packed-refs",
        ".git/modules/src/other/index",
    ];
    let taken = [
        ".git/modules/lib/own/description",
        ".git/modules/lib/own/refs/heads/index",
        ".git/modules/src/logs/description",
        ".git/modules/src/logs/refs/heads/other",
    ];
    held.iter().for_each(|name| put(&host.at("upper"), name, "evil"));
    taken.iter().for_each(|name| put(&host.at("upper"), name, COMMIT));
    host.read();
    let left = host.apply_with(&Request { guarded: Guarded::Leave, ..all() }).unwrap();
    assert!(matches!(left, Applied::Done { .. }), "{left:?}");
    for name in taken {
        assert_eq!(std::fs::read_to_string(host.work(name)).ok().as_deref(), Some(COMMIT), "{name}: {left:?}");
    }
    for name in held {
        assert!(std::fs::read_to_string(host.work(name)).unwrap_or_default() != "evil", "{name}");
    }
}

#[test]
fn of_a_configuration_the_harmless_keys_are_taken_and_the_others_stay_with_the_run() {
    let (host_text, run) = (
        "# ours\n[core]\n\tbare = false\n",
        "[core]\n\tbare = false\n\tfsmonitor = evil\n[init]\n\tdefaultbranch = x\n",
    );
    let host = Host::new(&[(".git/HEAD", "ref: refs/heads/main\n"), (".git/config", host_text)]);
    put(&host.at("upper"), ".git/config", run);
    host.read();
    assert_eq!(host.conflicts(), [(PathBuf::from(".git/config"), "protected")], "unless it is asked for");
    let leave = Request { guarded: Guarded::Leave, ..all() };
    let Ok(Applied::Done { paths, left, keys, .. }) = host.apply_with(&leave) else { panic!("not applied") };
    assert_eq!((paths.len(), left, keys.len()), (1, 1, 1));
    assert_eq!((keys[0].path.as_path(), keys[0].keys.as_str()), (Path::new(".git/config"), "`core.fsmonitor`"));
    let config = || std::fs::read_to_string(host.work(".git/config")).unwrap();
    assert_eq!(config(), "# ours\n[core]\n\tbare = false\n[init]\n\tdefaultbranch = x\n");
    assert!(matches!(host.apply_with(&leave), Ok(Applied::Conflicts(left)) if left.len() == 1), "nothing more");
    assert!(host.diff().text().contains("+\tfsmonitor = evil"), "{}", host.diff().text());
    let take = Request { guarded: Guarded::Take(vec![".git/config".into()]), ..all() };
    assert!(matches!(host.apply_with(&take), Ok(Applied::Done { .. })));
    assert_eq!(config(), run);
    assert!(load(&host.state, &host.run).is_err(), "nothing is left");
}

#[test]
fn folders_of_gits_by_other_names_are_held_too() {
    let host = Host::new(&[
        ("m.git/HEAD", "ref: refs/heads/main\n"),
        ("m.git/objects/x", ""),
        ("m.git/refs/x", ""),
        ("src/a", ""),
    ]);
    for name in ["m.git/hooks/update", "m.git/config", "src/HEAD", "src/objects/x", "src/refs/x", "src/config", "src/b"]
    {
        put(&host.at("upper"), name, "[core]\n\tfsmonitor = evil\n");
    }
    host.read();
    let held: Vec<_> = host.conflicts().into_iter().map(|(path, _)| path).collect();
    for path in ["m.git/hooks/update", "m.git/config", "src/config", "src/HEAD"] {
        assert!(held.contains(&PathBuf::from(path)), "{path}: {held:?}");
    }
}

#[test]
fn a_repository_is_not_emptied() {
    let host = Host::new(&[(".git/HEAD", ""), (".git/refs/heads/main", "0"), (".git/config", ""), ("a", "1")]);
    host.overlay("rm -r .git; echo 2 > a");
    host.read();
    let left = host.apply_with(&Request { guarded: Guarded::Leave, ..all() }).unwrap();
    assert!(matches!(&left, Applied::Done { paths, .. } if paths.len() == 1), "{left:?}");
    assert!(host.work(".git/refs/heads/main").exists());
}

#[test]
fn a_repository_whose_parts_lie_elsewhere_is_held() {
    let host = Host::new(&[("a", "1")]);
    host.overlay(
        "mkdir -p f fd/objects fd/refs; echo k > fd/objects/k; echo k > fd/refs/k; echo '[core]' > fd/config; \
         printf '[core]\\n\\tworktree = ../f\\n\\tfsmonitor = evil\\n' > f/config.worktree; \
         echo ../fd > f/commondir; echo 'ref: refs/heads/x' > f/HEAD; \
         mkdir l; ln -s ../fd/objects ../fd/refs l; echo 'ref: refs/heads/x' > l/HEAD; ln -s ../fd/config l/config",
    );
    host.read();
    let held: Vec<_> = host.conflicts();
    for path in ["f", "f/HEAD", "f/commondir", "f/config.worktree", "l", "l/HEAD", "l/objects", "l/refs", "l/config"] {
        assert!(held.contains(&(PathBuf::from(path), "protected")), "{path}: {held:?}");
    }
    assert!(!held.iter().any(|(path, _)| path.starts_with("fd")), "without a HEAD it is none: {held:?}");
    assert!(host.diff().text().contains("a new repository"), "{}", host.diff().text());
}

#[test]
fn a_folder_that_becomes_a_repository_by_its_last_part_is_held() {
    let whole = [("x/HEAD", "ref: refs/heads/x\n"), ("x/objects/k", "k"), ("x/refs/k", "k")];
    let shared = [("x/HEAD", "ref: refs/heads/x\n"), ("x/commondir", "../fd\n")];
    for parts in [&whole[..], &shared] {
        for (last, text) in parts {
            // The others came by an earlier run, or were there.
            let mut files: Vec<_> = parts.iter().copied().filter(|(name, _)| name != last).collect();
            files.push(("x/config", "[core]\n\tfsmonitor = evil\n"));
            let host = Host::new(&files);
            put(&host.at("upper"), last, text);
            put(&host.at("upper"), "y", "");
            host.read();
            let held = host.conflicts();
            assert!(held.contains(&(PathBuf::from(last), "protected")), "{last}: {held:?}");
            assert!(!held.iter().any(|(path, _)| path == Path::new("y")), "{last}: {held:?}");
        }
    }
    // By links, and in a folder of git's where only data lies.
    let host = Host::new(&[(".git/HEAD", "ref: refs/heads/main\n"), ("x/config", "")]);
    for name in ["objects", "refs"] {
        symlink("../y", host.work("x").join(name)).unwrap();
    }
    put(&host.work(""), ".git/refs/heads/k", COMMIT);
    let head = "ref: refs/heads/x\n";
    for name in ["x/HEAD", ".git/refs/x/HEAD", ".git/refs/x/objects/k", ".git/refs/x/refs/k", ".git/logs/x/HEAD"] {
        put(&host.at("upper"), name, head);
    }
    put(&host.at("upper"), ".git/logs/x/commondir", head);
    put(&host.at("upper"), ".git/refs/heads/origin/HEAD", COMMIT);
    host.read();
    let left = host.apply_with(&Request { guarded: Guarded::Leave, ..all() }).unwrap();
    assert!(matches!(left, Applied::Done { .. }), "{left:?}");
    for held in ["x/HEAD", ".git/refs/x", ".git/logs/x"] {
        assert!(!host.work(held).exists(), "{held}");
    }
    assert!(host.work(".git/refs/heads/origin/HEAD").exists());
}

#[test]
fn a_folder_that_is_no_repository_and_one_that_was_one_are_worked_in() {
    let host = Host::new(&[
        ("x/objects/k", ""),
        ("x/refs/k", ""),
        ("m.git/HEAD", "ref: refs/heads/main\n"),
        ("m.git/objects/k", ""),
        ("m.git/refs/heads/k", COMMIT),
    ]);
    for name in ["x/config", "x/commondir"] {
        put(&host.at("upper"), name, "");
    }
    put(&host.at("upper"), "m.git/refs/heads/new", COMMIT);
    put(&host.at("upper"), "m.git/HEAD", "ref: refs/heads/new\n");
    host.read();
    assert!(matches!(host.apply(), Applied::Done { .. }));
}

/// A repository of the host's.
const WHOLE: [(&str, &str); 4] = [
    (".git/HEAD", "ref: refs/heads/main\n"),
    (".git/config", ""),
    (".git/objects/k", ""),
    (".git/refs/heads/k", COMMIT),
];

#[test]
fn an_empty_folder_of_gits_becomes_no_repository_unasked() {
    let host = Host::new(&[("sub/.git/description", ""), ("sub/x", "")]);
    for name in ["sub/.git/HEAD", "sub/.git/objects/k", "sub/.git/refs/k", "sub/.git/config"] {
        put(&host.at("upper"), name, "ref: refs/heads/main\n");
    }
    put(&host.at("upper"), "sub/y", "");
    host.read();
    let held = host.conflicts();
    assert!(held.contains(&(PathBuf::from("sub/.git/HEAD"), "protected")), "{held:?}");
    assert!(!held.iter().any(|(path, _)| path == Path::new("sub/y")), "{held:?}");
}

#[test]
fn of_a_history_that_is_not_whole_nothing_is_taken() {
    for (name, is_partial) in [
        (".git/shallow", true),
        (".git/objects/pack/pack-0123456789012345678901234567890123456789.promisor", true),
        (".git/ORIG_HEAD", false),
        ("shallow", false),
    ] {
        let host = Host::new(&WHOLE);
        put(&host.at("upper"), ".git/refs/heads/x", COMMIT);
        put(&host.at("upper"), name, COMMIT);
        put(&host.at("upper"), "y", "");
        host.read();
        let left = host.apply_with(&Request { guarded: Guarded::Leave, ..all() }).unwrap();
        assert!(matches!(left, Applied::Done { .. }), "{left:?}");
        assert_eq!(host.work(".git/refs/heads/x").exists(), !is_partial, "{name}");
    }
}

#[test]
fn what_a_list_says_of_tags_is_not_taken_and_no_file_of_any_repository_is_for_others_to_write() {
    let host = Host::new(
        &[&WHOLE[..], &[("m/HEAD", "ref: refs/heads/x\n"), ("m/objects/k", ""), ("m/refs/heads/k", COMMIT)]].concat(),
    );
    let (one, other) = ("01".repeat(20), "23".repeat(20));
    let list = format!("# pack-refs with: peeled fully-peeled sorted \n{one} refs/tags/v1\n^{other}\n");
    for name in [".git/packed-refs", "m/packed-refs", "packed-refs"] {
        put(&host.at("upper"), name, &list);
    }
    for name in ["m/packed-refs", "packed-refs"] {
        std::fs::set_permissions(host.at("upper").join(name), std::fs::Permissions::from_mode(0o666)).unwrap();
    }
    host.read();
    assert!(matches!(host.apply(), Applied::Done { .. }));
    let taken = |name: &str| std::fs::read_to_string(host.work(name)).unwrap();
    let without = format!("# pack-refs with: sorted \n{one} refs/tags/v1\n");
    assert_eq!([taken(".git/packed-refs"), taken("m/packed-refs")], [without.clone(), without]);
    assert_eq!(taken("packed-refs"), list, "a file of the project");
    let mode = |name: &str| std::fs::metadata(host.work(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!([mode("m/packed-refs") & 0o002, mode("packed-refs")], [0, 0o664]);
}
