//! What git's configuration names in a workspace, however it is written and wherever it lies.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, chown};

use super::*;

fn binds(work: &Work) -> Vec<PathBuf> {
    work.plan().binds.into_iter().map(|bind| bind.path).collect()
}

/// A repository with hooks in a folder that its configuration names.
fn with(config: &str, hooks: &str) -> Work {
    let work = Work::new(&REPO);
    work.put(&format!("{hooks}/x"), "");
    work.put("src/x", "");
    work.put(".git/config", config);
    work
}

#[test]
fn hooks_are_found_however_the_configuration_is_written() {
    for config in [
        "[core]\n\thooksPath = tools/hooks\n",
        "[core] hooksPath = tools/hooks\n",
        "[core] # ours\n\thooksPath = tools/hooks\n",
        "[core]\n\thooksPath = tools/hooks\n[alias]\n\tx = \"!f() { \\\n\tsrc; }; f\"\n",
        "[core]\n\thooksPath = tools/ho\\\noks\n",
        "[core]\n\thooksPath = tools/hooks;ours\n",
        "[core]\n\thooksPath = \"tools/ho\"oks # ours\n",
        "[core]\n\thooksPath = ~/work/tools/hooks\n",
        "[x \"a\\\\b\"]\n\ty = 1\n[core]\n\thooksPath = ./src/../tools/hooks\n",
    ] {
        let binds = binds(&with(config, "tools/hooks"));
        assert!(has(&binds, "tools/hooks") && !has(&binds, "src"), "{config}: {binds:?}");
    }
    assert!(has(binds(&with("[core]\n\thooksPath = my hooks\n", "my hooks")), "my hooks"));
}

/// What is behind one more `cd` than is looked at could be anything.
#[test]
fn a_command_that_enters_more_folders_than_are_looked_at_holds_all() {
    let named = |count: usize| {
        let enter: Vec<String> = (0..count).map(|n| format!("cd -P d{n:02} && ./run")).collect();
        let work = with(&format!("[filter \"f\"]\n\tclean = {}\n", enter.join(" && ")), "hooks");
        named_by_git(&work.root, &Dir::open(&work.root).unwrap(), [Path::new("")])
    };
    let found = named(16);
    assert!(["d00/run", "d15/run"].iter().all(|path| found.contains(Path::new(path))), "{found:?}");
    assert_eq!(named(17), BTreeSet::from([PathBuf::new()]));
}

#[test]
fn a_command_names_what_a_shell_would_find() {
    // As `git config` writes them: with the quotes of the shell behind a backslash.
    for command in [
        r#"sh \"tools/run\""#,
        r#"\"tools/run\" %f"#,
        r#""sh -c \"exec 'tools/run'\"""#,
        "$(git rev-parse --show-toplevel)/tools/run",
        r#"\"$PWD\"/tools/run"#,
        "${PWD}/tools/run %f",
        "`pwd`/tools/run",
        "$HOME/work/tools/run",
        "cd tools && ./run",
        r#"cd \"$(git rev-parse --show-toplevel)/tools\" && ./run"#,
    ] {
        for heading in ["[filter \"f\"]", "[filter \"f\"] # ours"] {
            let work = with(&format!("{heading}\n\tclean = {command}\n"), "hooks");
            work.put("tools/run", "");
            let binds = binds(&work);
            let is_held = has(&binds, "tools/run") || has(&binds, "tools");
            assert!(is_held && !has(&binds, "src"), "{heading} {command}: {binds:?}");
            std::fs::remove_file(work.root.join("tools/run")).unwrap();
            let held = named_by_git(&work.root, &Dir::open(&work.root).unwrap(), [Path::new("")]);
            assert!(has(&held, "tools/run"), "{heading} {command}: {held:?}");
            assert!(has(work.plan().links, "tools/run"), "{heading} {command}: what is made there is put aside");
        }
    }
    let work = with("[alias]\n\tx = !tools/run\n", "hooks");
    assert!(!has(work.plan().links, "tools/run"), "an alias does not run by itself");
}

/// A repository that somebody sent may have such a configuration: what is made of it grows as it does.
#[test]
fn a_command_that_enters_hundreds_of_folders_names_no_more_than_its_words_and_some() {
    let enters = |many: usize| (0..many).map(|at| format!("cd f{at}; ")).collect::<String>();
    let work = with(&format!("[filter \"f\"]\n\tclean = cd tools && cd more && ./run; {}\n", enters(14)), "hooks");
    let below = Dir::open(&work.root).unwrap();
    let named = || crate::protect::named::named(&crate::protect::led::Ways::of(&work.root, &below), [Path::new("")]);
    let found = named();
    assert!((100..10_000).contains(&found.paths.len()) && !found.cut, "{}", found.paths.len());
    let has = |path: &str| found.paths.iter().any(|one| one.within(&work.root) == Some(Path::new(path)));
    assert!(has("tools/run") && has("more/run") && has("f13"));
    work.put(".git/config", &format!("[alias]\n\tx = !{}\n", enters(500)));
    let found = named();
    assert!((1_000..100_000).contains(&found.paths.len()) && !found.cut, "{}", found.paths.len());
    work.put(".git/config", &format!("[filter \"f\"]\n\tclean = {}\n", enters(50_000)));
    assert!(named().cut);
}

#[test]
fn a_configuration_with_more_words_than_are_looked_at_opens_nothing() {
    let more = |many: usize| (0..many).map(|at| format!("\tk{at} = some/path/w{at} x y z\n")).collect::<String>();
    let of = |many: usize| {
        let work = Work::new(&REPO);
        work.put(".git/config", "[include]\n\tpath = ../a\n\tpath = ../b\n");
        work.put("a", &format!("[a]\n{}", more(many)));
        symlink("a", work.root.join("b")).unwrap();
        let began = std::time::Instant::now();
        let is_refused = work.plan().unlooked;
        let below = Dir::open(&work.root).unwrap();
        let held = named_by_git(&work.root, &below, [Path::new("")]);
        let elsewhere = named_elsewhere(&work.root, &below, [Path::new("")]);
        (is_refused, has(held, ""), elsewhere.is_none(), began.elapsed())
    };
    let (refused, held, unknown, _) = of(50);
    assert!(!refused && !held && !unknown);
    // Too many words, and too many bytes.
    for many in [10_000, 60_000] {
        let (refused, held, unknown, took) = of(many);
        assert!(refused && held && unknown && took.as_secs() < 20, "{many}: {refused} {held} {unknown} {took:?}");
    }
}

#[test]
fn the_time_for_names_grows_with_their_number_and_no_faster() {
    let took = |many: usize| {
        let work = Work::new(&REPO);
        let keys: String = (0..many).map(|at| format!("\tk{at} = some/path/w{at} x y z\n")).collect();
        work.put(".git/config", &format!("[a]\n{keys}"));
        let began = std::time::Instant::now();
        assert!(!work.plan().unlooked);
        began.elapsed()
    };
    let (few, many) = (took(400), took(3_200));
    assert!(many < few * 24, "{few:?} for 400 keys, {many:?} for 3200");
}

/// A path that no include says is a program's: what is in it are no words.
#[test]
fn the_path_of_a_program_is_no_further_configuration() {
    let work = Work::new(&REPO);
    work.put(".git/config", "[mergetool \"m\"]\n\tpath = ../bin/merge\n");
    work.put("bin/merge", &"[core]\n\tfsmonitor = ./src/x\n".repeat(50_000));
    work.put("src/x", "");
    let plan = work.plan();
    assert!(!plan.unlooked && !has(plan.binds.iter().map(|bind| &bind.path), "src/x"));
}

/// Root looks through somebody's workspace: what its owner may not know is read for no run, or the run would learn it from what is held.
#[test]
fn what_the_owner_of_a_workspace_may_not_read_names_nothing() {
    if !rustix::process::geteuid().is_root() {
        println!("skip: needs root");
        return;
    }
    let work = Work::new(&REPO);
    let (folder, owner) = (work.folder.path().canonicalize().unwrap(), 4242);
    let put = |name: &str, mode: u32| {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, format!("[core]\n\tfsmonitor = ./{}\n", name.replace('/', "-"))).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    put("closed/secret", 0o600);
    put("closed/open", 0o644);
    work.put(
        ".git/config",
        &format!("[include]\n\tpath = {0}/closed/secret\n\tpath = {0}/closed/open\n", folder.display()),
    );
    for name in ["closed-secret", "closed-open"] {
        work.put(name, "");
    }
    let give = |path: &Path| chown(path, Some(owner), Some(owner)).unwrap();
    let mut queue = vec![work.root.clone()];
    while let Some(path) = queue.pop() {
        give(&path);
        queue.extend(std::fs::read_dir(&path).into_iter().flatten().map(|entry| entry.unwrap().path()));
    }
    let found = binds(&work);
    assert!(has(&found, "closed-open") && !has(&found, "closed-secret"), "{found:?}");
    // The control: root's own workspace, with the same file.
    chown(&work.root, Some(0), Some(0)).unwrap();
    assert!(has(binds(&work), "closed-secret"));
    // A file of the workspace itself that its owner may not read: what it names is not known, so nothing is opened.
    give(&work.root);
    work.put(".git/config", "[core]\n\tfsmonitor = ./closed-open\n");
    assert!(!work.plan().unlooked);
    chown(work.root.join(".git/config"), Some(0), Some(0)).unwrap();
    std::fs::set_permissions(work.root.join(".git/config"), std::fs::Permissions::from_mode(0o600)).unwrap();
    assert!(work.plan().unlooked);
    // Whoever closed a folder above it.
    give(&work.root.join(".git/config"));
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
    assert!(has(binds(&work), "closed-open") && !work.plan().unlooked);
}

#[test]
fn objects_beside_those_beside_the_repositorys_own_are_believed_too() {
    let work = Work::new(&REPO);
    for (path, text) in [
        (".git/objects/info/alternates", "../../one\n"),
        ("one/info/alternates", "../two\n\"../odd one\"\n"),
        ("two/info/alternates", "../three\n"),
        ("three/aa/bb", ""),
        ("odd one/aa/bb", ""),
        ("other/aa/bb", ""),
    ] {
        work.put(path, text);
    }
    let (found, below) = (binds(&work), Dir::open(&work.root).unwrap());
    let held = named_by_git(&work.root, &below, [Path::new("")]);
    for path in ["one", "two", "three", "odd one"] {
        assert!(has(&found, path) && has(&held, path), "{path}: {found:?} {held:?}");
    }
    assert!(!has(&found, "other") && !has(&held, "other"));
}

#[test]
fn a_path_is_found_from_where_git_looks_for_it() {
    // From where an included file is named, not where its link leads.
    let work = with("[include]\n\tpath = ../dev/one\n", "tools/hooks");
    work.put("dev/deep/one", "[include]\n\tpath = two\n");
    work.put("dev/two", "[core]\n\thooksPath = tools/hooks\n");
    symlink("deep/one", work.root.join("dev/one")).unwrap();
    assert!(has(binds(&work), "tools/hooks"));
    // From the working tree that the configuration says, from the folder of a bare repository, from behind a link.
    let work = with("[core]\n\tworktree = ../other\n\thooksPath = hooks\n", "other/hooks");
    assert!(has(binds(&work), "other/hooks"));
    let work = with("[core]\n\thooksPath = link/../hooks\n", "deep/hooks");
    work.put("deep/down/x", "");
    symlink("deep/down", work.root.join("link")).unwrap();
    assert!(has(binds(&work), "deep/hooks"));
    let work = Work::new(&[("m.git/HEAD", ""), ("m.git/objects/x", ""), ("m.git/refs/x", ""), ("hooks/x", "")]);
    work.put("m.git/config", "[core]\n\thooksPath = ../hooks\n");
    assert!(has(binds(&work), "hooks"));
}

#[test]
fn what_is_named_out_of_the_workspace_is_told() {
    let config = "[core]\n\thooksPath = ../hooks\n\tfsmonitor = \"~/../watch/x --all\"\n[alias]\n\tx = !/etc/x\n";
    let work = with(config, "tools");
    let named = named_elsewhere(&work.root, &Dir::open(&work.root).unwrap(), [Path::new("")]).unwrap();
    let at = |name: &str| work.folder.path().canonicalize().unwrap().join(name);
    assert!(named.contains(&(at("hooks"), true)) && named.contains(&(at("watch/x"), true)), "{named:?}");
    assert!(!named.iter().any(|(path, _)| path == Path::new("/etc/x") || path.starts_with(&work.root)), "{named:?}");
}

#[test]
fn a_path_need_not_be_text() {
    let name = std::ffi::OsStr::from_bytes(b"h\xe9\xa0");
    let work = Work::new(&REPO);
    std::fs::create_dir(work.root.join(name)).unwrap();
    std::fs::write(work.root.join(".git/config"), b"[core]\n\thooksPath = h\xe9\xa0\n").unwrap();
    assert!(binds(&work).iter().any(|path| path == Path::new(name)));
}

#[test]
fn what_a_configuration_includes_is_read_too() {
    let work = with("[include]\n\tpath = ../dev/one\n", "tools/hooks");
    work.put("dev/one", "[include]\n\tpath = two\n[remote \"x\"]\n\tuploadpack = ./dev/up\n");
    work.put("dev/two", "[include]\n\tpath = one\n[core]\n\thooksPath = tools/hooks\n");
    work.put("dev/up", "");
    let binds = binds(&work);
    for path in ["dev/one", "dev/two", "dev/up", "tools/hooks"] {
        assert!(has(&binds, path), "{path}: {binds:?}");
    }
}

#[test]
fn what_a_person_s_own_configuration_names_counts_in_every_repository() {
    let work = Work::new(&REPO);
    for path in
        ["ours/hooks/x", "main", "lg", "watch.py", "conf/git.inc", "tools/clean", "sub/.git/HEAD", "sub/ours/hooks/x"]
    {
        work.put(path, "");
    }
    // The home folder is above the workspace.
    let home = work.folder.path();
    let config = "[core]\n\thooksPath = ours/hooks\n\tfsmonitor = python3 watch.py\n[init]\n\tdefaultBranch = main\n\
                  [alias]\n\tlg = log lg\n[includeIf \"gitdir:~/work/\"]\n\tpath = ~/work/conf/git.inc\n";
    std::fs::write(home.join(".gitconfig"), config).unwrap();
    std::fs::create_dir_all(home.join(".config/git")).unwrap();
    std::fs::write(home.join(".config/git/config"), "[filter \"x\"]\n\tclean = tools/clean %f\n").unwrap();
    let found = binds(&work);
    for path in ["ours/hooks", "sub/ours/hooks", "watch.py", "conf/git.inc", "tools/clean"] {
        assert!(has(&found, path), "{path}: {found:?}");
    }
    assert!(!has(&found, "main") && !has(&found, "lg"), "{found:?}");
    let held = named_by_git(&work.root, &Dir::open(&work.root).unwrap(), [Path::new(""), Path::new("sub")]);
    for path in ["ours/hooks", "sub/ours/hooks", "watch.py", "conf/git.inc", "tools/clean"] {
        assert!(has(&held, path), "{path}: {held:?}");
    }
    // It includes a file of the workspace that has no repository, too.
    let work = Work::new(&[("conf/git.inc", ""), ("ours/hooks/x", "")]);
    std::fs::write(work.folder.path().join(".gitconfig"), config).unwrap();
    let found = binds(&work);
    assert!(has(&found, "conf/git.inc") && !has(&found, "ours/hooks"), "{found:?}");
}

#[test]
fn a_repository_around_the_workspace_counts_too() {
    let outer = Work::new(&REPO);
    outer.put("front/hooks/x", "");
    outer.put("front/hook.sh", "");
    outer.put("front/free", "");
    outer.put(".git/config", "[core]\n\thooksPath = front/hooks\n\tfsmonitor = front/later/watch\n");
    symlink("../../front/hook.sh", outer.root.join(".git/hooks/pre-commit")).unwrap();
    // A hook that is a link to a link.
    outer.put("front/new/hook", "");
    symlink("new", outer.root.join("front/way")).unwrap();
    symlink("../../front/way/hook", outer.root.join(".git/hooks/pre-push")).unwrap();
    let root = outer.root.join("front");
    let below = Dir::open(&root).unwrap();
    let found = plan(&root, &below, list(), &Default::default()).unwrap();
    let binds: Vec<_> = found.binds.iter().map(|bind| &bind.path).collect();
    assert!(has(&binds, "hooks") && has(&binds, "hook.sh") && !has(&binds, "free"), "{binds:?}");
    assert!(has(&found.links, "later/watch"), "what is made there is put aside: {:?}", found.links);
    assert!(has(&binds, "new/hook") && has(&found.links, "way"), "{binds:?} {:?}", found.links);
    let held = named_by_git(&root, &below, [Path::new("")]);
    assert!(has(&held, "hooks") && has(&held, "hook.sh") && has(&held, "later/watch"), "{held:?}");
    assert!(has(&held, "way") && has(&held, "new/hook"), "{held:?}");
}

#[test]
fn a_folder_of_hooks_that_is_made_while_somebody_watches_is_put_aside() {
    let work = Work::new(&REPO);
    work.put(".git/config", "[core]\n\thooksPath = tools/hooks\n");
    let sentry = work.sentry();
    // The folder may be gone before the file is made.
    let _made = work.try_put("tools/hooks/pre-commit", "x");
    work.put("tools/free", "x");
    let slipped = sentry.stop().unwrap();
    assert_eq!(slipped.iter().map(|one| one.path.as_path()).collect::<Vec<_>>(), [Path::new("tools/hooks")]);
    assert!(!work.root.join("tools/hooks").exists() && work.root.join("tools/free").exists());
}

#[test]
fn submodules_and_links_to_folders_of_gits_have_configurations_too() {
    let work = Work::new(&[(".git/HEAD", ""), ("sub/.git", "gitdir: ../.git/modules/sub\n"), ("sub/hooks/x", "")]);
    work.put(".git/modules/sub/config", "[core]\n\tworktree = ../../../sub\n\thooksPath = hooks\n");
    assert!(has(binds(&work), "sub/hooks"));
    let work = Work::new(&[("hooks/x", "")]);
    let outside = work.folder.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("config"), "[core]\n\thooksPath = hooks\n").unwrap();
    symlink("../outside", work.root.join(".git")).unwrap();
    assert!(has(binds(&work), "hooks"));
}

#[test]
fn links_out_of_the_workspace_that_lead_in_again_are_gone_through() {
    let work = Work::new(&REPO);
    for path in ["bin/fsm", "hk/pre-commit", "f.py", "conf/rc", "xdg/ignore", "gitconfig", "template/hooks/x"] {
        work.put(path, "");
    }
    let home = work.folder.path();
    symlink("work", home.join("proj")).unwrap();
    symlink("work/hk", home.join("hooks")).unwrap();
    symlink("work/conf", home.join("lib")).unwrap();
    symlink("work/gitconfig", home.join(".gitconfig")).unwrap();
    std::fs::create_dir(home.join(".config")).unwrap();
    symlink("../work/xdg", home.join(".config/git")).unwrap();
    symlink(home.join("lib/rc"), work.root.join(".envrc")).unwrap();
    let elsewhere = home.display();
    work.put(
        ".git/config",
        &format!(
            "[core]\n\tfsmonitor = {elsewhere}/proj/bin/fsm\n\thooksPath = ~/hooks\n[init]\n\ttemplateDir = ~/proj/template\n\
             [filter \"f\"]\n\tclean = {elsewhere}/proj/later/f\n"
        ),
    );
    let plan = work.plan();
    let found: Vec<_> = plan.binds.iter().map(|bind| &bind.path).collect();
    for path in ["bin/fsm", "hk", "template", "gitconfig", "conf/rc"] {
        assert!(has(&found, path), "{path}: {found:?}");
    }
    let held = named_by_git(&work.root, &Dir::open(&work.root).unwrap(), [Path::new("")]);
    for path in ["bin/fsm", "hk", "template", "gitconfig", "later/f", "xdg/config"] {
        assert!(has(&held, path), "{path}: {held:?}");
    }
    assert!(!has(&held, "f.py") && !has(&held, "xdg"), "{held:?}");
}

#[test]
fn other_names_and_mounts_of_a_workspace_are_the_workspace() {
    let work = Work::new(&REPO);
    for path in ["gitconfig", "bin/fsm", "h/pre-commit", "src/x", "own"] {
        work.put(path, "");
    }
    let home = work.folder.path();
    std::fs::create_dir(home.join("gh")).unwrap();
    for (here, there) in [("gitconfig", ".gitconfig"), ("bin/fsm", "fsm"), ("h/pre-commit", "gh/pre-commit")] {
        std::fs::hard_link(work.root.join(here), home.join(there)).unwrap();
    }
    work.put(".git/config", "[core]\n\tfsmonitor = ~/fsm\n\thooksPath = ~/gh\n");
    let found = binds(&work);
    for path in ["gitconfig", "bin/fsm", "h/pre-commit"] {
        assert!(has(&found, path), "{path}: {found:?}");
    }
    assert!(!has(&found, "src/x") && !has(&found, "own"), "{found:?}");
}

#[test]
fn control_files_above_a_workspace_may_lead_into_it() {
    let work = Work::new(&REPO);
    for path in ["rc", "code/tasks.json", "tasks", "own"] {
        work.put(path, "");
    }
    let home = work.folder.path();
    symlink("work/rc", home.join(".envrc")).unwrap();
    symlink("work/code", home.join(".vscode")).unwrap();
    std::fs::create_dir(home.join(".idea")).unwrap();
    symlink("../work/tasks", home.join(".idea/x.xml")).unwrap();
    symlink("work/own", home.join("own")).unwrap();
    for (link, path) in
        [(".config/Code/User/keys", "deep"), (".oh-my-zsh/custom/x.zsh", "zsh"), (".local/share/k/s", "share")]
    {
        work.put(path, "");
        std::fs::create_dir_all(home.join(link).parent().unwrap()).unwrap();
        symlink(work.root.join(path), home.join(link)).unwrap();
    }
    let found = binds(&work);
    let led = crate::protect::led(&work.root, &Dir::open(&work.root).unwrap(), list());
    for path in ["rc", "code", "tasks", "deep", "zsh", "share"] {
        assert!(has(&found, path) && has(&led.within, path), "{path}: {found:?} {led:?}");
    }
    assert!(!has(&found, "own") && !has(&led.within, "own"), "{found:?}");
}

#[test]
fn a_workspace_that_a_control_file_above_leads_to_is_all_of_it() {
    let is_whole = |link: &str, to: &str| {
        let work = Work::new(&[("inner/x", "")]);
        let link = work.folder.path().join(link);
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(work.folder.path().join(to), link).unwrap();
        let led = crate::protect::led(&work.root, &Dir::open(&work.root).unwrap(), list());
        assert_eq!(work.plan().within_git.is_some(), has(&led.within, ""));
        has(&led.within, "")
    };
    assert!(is_whole(".config/nvim", "work") && is_whole(".claude/skills/x", "work"));
    for (link, to) in [(".config/nvim", "work/inner"), (".config/nvim", "."), (".other", "work"), ("own", "work")] {
        assert!(!is_whole(link, to), "{link} {to}");
    }
}

#[test]
fn a_folder_of_git_s_elsewhere_may_have_links_that_lead_in() {
    let work = Work::new(&REPO);
    work.put("scripts/x.sh", "");
    let home = work.folder.path();
    std::fs::create_dir(home.join("gh")).unwrap();
    symlink(work.root.join("scripts/x.sh"), home.join("gh/post-index-change")).unwrap();
    let hooks = work.root.join(".git/hooks");
    if hooks.exists() {
        std::fs::remove_dir_all(&hooks).unwrap();
    }
    symlink("../../gh", &hooks).unwrap();
    let led = crate::protect::led(&work.root, &Dir::open(&work.root).unwrap(), list());
    assert!(has(binds(&work), "scripts/x.sh") && has(&led.within, "scripts/x.sh"), "{led:?}");
}

#[test]
fn single_hooks_of_a_folder_elsewhere_may_lie_in_the_workspace() {
    let work = Work::new(&REPO);
    for path in ["h/pre-commit", "t/post-checkout", "src/x"] {
        work.put(path, "");
    }
    let home = work.folder.path();
    for (folder, name, to) in [("gh", "pre-commit", "h/pre-commit"), ("tmpl/hooks", "post-checkout", "t/post-checkout")]
    {
        std::fs::create_dir_all(home.join(folder)).unwrap();
        symlink(work.root.join(to), home.join(folder).join(name)).unwrap();
    }
    std::fs::write(home.join("gh/own"), "").unwrap();
    work.put(".git/config", "[core]\n\thooksPath = ~/gh\n[init]\n\ttemplateDir = ~/tmpl\n");
    let held = named_by_git(&work.root, &Dir::open(&work.root).unwrap(), [Path::new("")]);
    let found = binds(&work);
    for path in ["h/pre-commit", "t/post-checkout"] {
        assert!(has(&held, path) && has(&found, path), "{path}: {held:?} {found:?}");
    }
    assert!(!has(&held, "src/x") && !has(&held, "own"), "{held:?}");
}

#[test]
fn a_module_is_looked_for_where_git_starts_python() {
    for command in [
        r#"\"/opt/venv/bin/python3\" -m nbstripout.run"#,
        "python3 -mnbstripout.run",
        r#"sh -c 'exec python -um nbstripout.run'"#,
    ] {
        let work = with(&format!("[filter \"f\"]\n\tclean = {command}\n"), "hooks");
        let held = named_by_git(&work.root, &Dir::open(&work.root).unwrap(), [Path::new("")]);
        for path in ["nbstripout.py", "nbstripout", "nbstripout/run.py", "nbstripout/run"] {
            assert!(has(&held, path) && has(work.plan().links, path), "{command} {path}: {held:?}");
        }
        work.put("nbstripout/__init__.py", "");
        assert!(has(binds(&work), "nbstripout"), "{command}");
    }
    let work = with("[filter \"f\"]\n\tclean = sort -m nbstripout\n", "hooks");
    assert!(!has(work.plan().links, "nbstripout.py"));
}

#[test]
fn a_command_is_read_as_a_shell_reads_it() {
    for (config, path) in [
        ("fsmonitor = \\\"my bin/f\\\"", "my bin/f"),
        ("fsmonitor = 'my bin/f' x", "my bin/f"),
        ("fsmonitor = my\\\\ bin/f", "my bin/f"),
        ("fsmonitor = \"sh -c \\\"exec 'my bin/f'\\\" --\"", "my bin/f"),
        ("fsmonitor = sh bin/fs*", "bin"),
        ("fsmonitor = sh bin/fsm-$(uname)", "bin"),
        ("fsmonitor = env -C bin sh ./f", "bin/f"),
        ("fsmonitor = node bin/clean", "bin/clean.js"),
        ("fsmonitor = python3 tools/filt", "tools/filt"),
        ("fsmonitor = set -e\\nbin/f", "bin/f"),
        ("fsmonitor = sh\\tbin/f", "bin/f"),
        ("fsmonitor = ${X:-bin/f}", "bin/f"),
        ("fsmonitor = sed -fbin/f", "bin/f"),
        ("fsmonitor = PATH=$PWD/bin:$PATH f", "bin"),
        ("fsmonitor = find bin -name f -exec sh {} +", "bin"),
        ("fsmonitor = sh $(printf bin/%s f)", "bin"),
        ("fsmonitor = run-parts bin", "bin"),
        ("x = y\n[url \"ext::sh bin/f\"]\n\tinsteadOf = px:", "bin/f"),
    ] {
        let work = Work::new(&REPO);
        for file in ["my bin/f", "bin/f", "bin/clean.js", "tools/filt/__main__.py", "src/x"] {
            work.put(file, "");
        }
        work.put(".git/config", &format!("[core]\n\t{config}\n"));
        let found = binds(&work);
        assert!(has(&found, path) && !has(&found, "src"), "{config}: {found:?}");
        let held = named_by_git(&work.root, &Dir::open(&work.root).unwrap(), [Path::new("")]);
        assert!(has(&held, path), "{config}: {held:?}");
    }
}

#[test]
fn a_folder_of_hooks_that_is_the_workspace_is_all_of_it() {
    let work = Work::new(&REPO);
    work.put(".git/config", &format!("[core]\n\thooksPath = {}\n", work.root.display()));
    assert_eq!(work.plan().within_git.as_ref(), Some(&work.root));
    assert!(has(named_by_git(&work.root, &Dir::open(&work.root).unwrap(), [Path::new("")]), ""));
}
