//! Workspaces as people and attackers make them.

use std::os::unix::fs::symlink;

use super::*;
use crate::state::Dir;
use std::path::{Path, PathBuf};

mod closed;
mod named;
mod on_the_way;

struct Work {
    folder: tempfile::TempDir,
    root: PathBuf,
}

impl Work {
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("work");
        std::fs::create_dir(&root).unwrap();
        let work = Self { folder, root };
        for (name, text) in files {
            work.put(name, text);
        }
        work
    }

    fn put(&self, name: &str, text: &str) {
        self.try_put(name, text).unwrap();
    }

    fn try_put(&self, name: &str, text: &str) -> std::io::Result<()> {
        let path = self.root.join(name);
        std::fs::create_dir_all(path.parent().unwrap())?;
        std::fs::write(path, text)
    }

    fn plan(&self) -> ProtectPlan {
        plan(&self.root, &Dir::open(&self.root).unwrap(), list(), &Default::default()).unwrap()
    }

    fn hold(&self, plan: &ProtectPlan) -> Hold {
        Hold::take(plan, Dir::open(&self.root).unwrap()).unwrap()
    }

    /// As [`Self::held`], with what held from the beginning being of no account.
    fn check(&self, plan: &ProtectPlan) -> Vec<Slipped> {
        let nothing = ProtectPlan { binds: Vec::new(), pins: Vec::new(), layers: Vec::new(), ..plan.clone() };
        self.held(plan, &self.hold(&nothing))
    }

    fn elsewhere(&self) -> Result<Option<GitElsewhere>, GitProblem> {
        elsewhere(&self.root, &Dir::open(&self.root).unwrap())
    }

    fn sentry(&self) -> Sentry {
        let aside = self.folder.path().join("aside");
        std::fs::create_dir_all(&aside).unwrap();
        let (below, aside) = (Dir::open(&self.root).unwrap(), Dir::open(&aside).unwrap());
        Sentry::start(&self.plan(), below, aside, list()).unwrap()
    }

    fn held(&self, plan: &ProtectPlan, hold: &Hold) -> Vec<Slipped> {
        let aside = self.folder.path().join("aside");
        std::fs::create_dir_all(&aside).unwrap();
        check(plan, hold, &Dir::open(&self.root).unwrap(), &Dir::open(&aside).unwrap(), list()).unwrap()
    }
}

fn has(paths: impl IntoIterator<Item = impl AsRef<Path>>, path: &str) -> bool {
    paths.into_iter().any(|p| p.as_ref() == Path::new(path))
}

const REPO: [(&str, &str); 4] = [
    (".git/HEAD", "ref: refs/heads/main\n"),
    (".git/config", "[core]\n"),
    (".git/hooks/a.sample", ""),
    (".git/objects/x", ""),
];

#[test]
fn existing_paths_are_bound_gits_folders_layered_and_their_parents_pinned() {
    let work = Work::new(&REPO);
    for (path, text) in
        [(".vscode/tasks.json", ""), ("a/b/.git/HEAD", ""), ("c/.git", "gitdir: x"), ("gradle/wrapper/x", "")]
    {
        work.put(path, text);
    }
    let plan = work.plan();
    let binds: Vec<_> = plan.binds.iter().map(|b| &b.path).collect();
    assert!(has(&binds, ".vscode") && has(&binds, "c/.git") && has(&binds, "gradle/wrapper"), "{binds:?}");
    assert_eq!(plan.layers, [".git", "a/b/.git"].map(PathBuf::from));
    assert_eq!(plan.pins, ["a", "a/b", "c", "gradle"].map(PathBuf::from));
    assert!(has(&plan.folders, "") && has(&plan.folders, "a/b") && !has(&plan.folders, ".git"), "{:?}", plan.folders);
}

#[test]
fn links_are_never_followed_and_put_back() {
    let work = Work::new(&REPO);
    symlink("/etc", work.root.join(".vscode")).unwrap();
    let plan = work.plan();
    assert!(!has(plan.binds.iter().map(|b| &b.path), ".vscode"));
    assert_eq!(work.check(&plan), vec![]);
    std::fs::remove_file(work.root.join(".vscode")).unwrap();
    work.put(".vscode/tasks.json", "{}");
    let slipped = work.check(&plan);
    assert_eq!((slipped.len(), slipped[0].what), (1, "changed"));
    assert_eq!(std::fs::read_link(work.root.join(".vscode")).unwrap(), Path::new("/etc"));
    assert!(work.folder.path().join("aside/.vscode/tasks.json").exists());
}

#[test]
fn what_a_linked_control_file_leads_to_within_the_workspace_is_bound() {
    let work = Work::new(&[("dots/bashrc", ""), ("dots/claude/settings.json", ""), ("store.git/HEAD", "")]);
    for name in ["config", "hooks/x", "objects/x"] {
        work.put(&format!("store.git/{name}"), "");
    }
    symlink("dots/bashrc", work.root.join(".bashrc")).unwrap();
    symlink("./dots/claude", work.root.join(".claude")).unwrap();
    symlink("store.git", work.root.join(".git")).unwrap();
    symlink(".", work.root.join(".vscode")).unwrap();
    let plan = work.plan();
    let binds: Vec<_> = plan.binds.iter().map(|b| b.path.to_str().unwrap()).collect();
    for path in ["dots/bashrc", "dots/claude", "store.git"] {
        assert!(binds.contains(&path), "{path}: {binds:?}");
    }
    let within = || super::within(&work.root, &Dir::open(&work.root).unwrap());
    assert!(work.elsewhere().unwrap().is_none() && !binds.contains(&""), "{binds:?}");
    assert!(has(&plan.pins, "dots"));
    std::fs::remove_file(work.root.join(".git")).unwrap();
    work.put(".git", "gitdir: ./store.git\n");
    assert!(work.elsewhere().unwrap().is_none() && work.plan().binds.iter().any(|b| b.path == Path::new("store.git")));
    assert_eq!(within(), Some(work.root.join("store.git")));
}

#[test]
fn what_appeared_is_put_aside() {
    let work = Work::new(&[]);
    let plan = work.plan();
    for (name, text) in REPO {
        work.put(name, text);
    }
    work.put(".mcp.json", "{}");
    work.put(".claude/settings.json", "{}");
    let slipped: Vec<_> = work.check(&plan).into_iter().map(|s| (s.path, s.what, s.moved_to.is_some())).collect();
    let expected = [".claude", ".git", ".mcp.json"].map(|p| (PathBuf::from(p), "appeared", true));
    assert_eq!(slipped, expected);
    assert!(!work.root.join(".git").exists() && !work.root.join(".mcp.json").exists());
    assert_eq!(work.check(&plan), vec![]);
}

/// Waits until it is so, for five seconds at most.
#[expect(clippy::disallowed_methods, reason = "there is no descriptor to wait on")]
fn soon(what: impl Fn() -> bool) -> bool {
    (0..500).any(|_| {
        what() || {
            std::thread::sleep(std::time::Duration::from_millis(10));
            false
        }
    })
}

#[test]
fn what_is_made_while_somebody_watches_is_put_aside_at_once_at_every_depth() {
    let work = Work::new(&[("deep/er/x", ""), (".vscode/tasks.json", ""), ("sub/.git/HEAD", "")]);
    let sentry = work.sentry();
    for path in [
        ".envrc",
        "deep/er/.git/config",
        "new/folder/.git",
        "new/.envrc",
        "gradle/wrapper/x.jar",
        "deep/y",
        "sub/.git/index",
    ] {
        // Its folder may be put aside before anything is in it.
        let made = work.try_put(path, "x");
        assert!(
            made.as_ref().map_or_else(|error| error.kind() == std::io::ErrorKind::NotFound, |()| true),
            "{path}: {made:?}"
        );
    }
    // A tree that was made elsewhere and is moved in.
    work.put("z/.gitx/config", "x");
    std::fs::rename(work.root.join("z/.gitx"), work.root.join("z/.GIT")).unwrap();
    std::fs::create_dir_all(work.folder.path().join("tree/a/.git")).unwrap();
    std::fs::rename(work.folder.path().join("tree"), work.root.join("moved")).unwrap();
    // A path that is longer than the kernel takes ends nothing.
    let mut at = Dir::open(&work.root).unwrap();
    for _ in 0..20 {
        let name = "d".repeat(250);
        at.make(&name, rustix::fs::Mode::RWXU).unwrap();
        at = at.enter(&name, crate::state::Cross::No).unwrap();
    }
    let gone = ["deep/er/.git", ".envrc", "new/folder/.git", "gradle/wrapper", "z/.GIT", "moved/a/.git"];
    assert!(soon(|| gone.iter().all(|path| !work.root.join(path).exists())), "{gone:?}");
    // A folder that has another name is seen by it.
    std::fs::rename(work.root.join("deep"), work.root.join("shallow")).unwrap();
    work.put("shallow/er/.git", "x");
    assert!(soon(|| !work.root.join("shallow/er/.git").exists()));
    assert_eq!(sentry.failed(), None);
    let slipped = sentry.stop().unwrap();
    assert!(gone.iter().all(|path| has(slipped.iter().map(|one| &one.path), path)), "{slipped:?}");
    for stays in ["new/.envrc", "shallow/y", "sub/.git/index", ".vscode/tasks.json"] {
        assert!(work.root.join(stays).exists(), "{stays}");
    }
}

#[test]
fn a_folder_that_becomes_a_repository_loses_its_head() {
    let work =
        Work::new(&[("src/main.c", ""), ("old.git/HEAD", ""), ("old.git/objects/x", ""), ("old.git/refs/x", "")]);
    let plan = work.plan();
    assert!(has(plan.binds.iter().map(|b| &b.path), "old.git"));
    let sentry = work.sentry();
    for path in ["src/refs/x", "src/objects/x", "src/config", "src/HEAD"] {
        work.put(path, "x");
    }
    assert!(soon(|| !work.root.join("src/HEAD").exists()));
    assert_eq!(sentry.stop().unwrap().len(), 1);
    assert!(work.root.join("old.git/HEAD").exists() && work.root.join("src/config").exists());
}

#[test]
fn a_head_with_a_commondir_is_a_repository_as_well() {
    let work = Work::new(&[("old/HEAD", ""), ("old/commondir", ""), ("had/HEAD", ""), ("src/x", "")]);
    assert!(has(work.plan().binds.iter().map(|bind| &bind.path), "old"));
    let sentry = work.sentry();
    for path in ["src/commondir", "src/HEAD", "had/commondir"] {
        work.put(path, "x");
    }
    assert!(soon(|| ["src/HEAD", "had/HEAD"].iter().all(|path| !work.root.join(path).exists())));
    assert_eq!(sentry.stop().unwrap().len(), 2);
    assert!(work.root.join("old/HEAD").exists() && work.root.join("src/commondir").exists());
    assert!(Work::new(&[("HEAD", ""), ("commondir", "")]).plan().within_git.is_some());
}

#[test]
fn what_control_files_and_configurations_lead_to_is_bound() {
    let work = Work::new(&REPO);
    for path in [
        "scripts/hook",
        "dots/claude.json",
        "conf/real",
        "tools/hooks/x",
        "dev/gitconfig",
        ".claude/x",
        "store/git/HEAD",
    ] {
        work.put(path, "");
    }
    work.put(
        ".git/config",
        "[core]\n\thooksPath = tools/hooks\n[include]\n\tpath = ../dev/gitconfig\n[alias]\n\tx = !make store\n",
    );
    for (target, link) in [
        ("../../scripts/hook", ".git/hooks/pre-commit"),
        ("../dots/claude.json", ".claude/settings.json"),
        ("conf/link", ".envrc"),
        ("real", "conf/link"),
    ] {
        symlink(target, work.root.join(link)).unwrap();
    }
    let plan = work.plan();
    let binds: Vec<_> = plan.binds.iter().map(|b| &b.path).collect();
    for path in ["scripts/hook", "dots/claude.json", "conf/real", "tools/hooks", "dev/gitconfig"] {
        assert!(has(&binds, path), "{path}: {binds:?}");
    }
    assert!(!has(&binds, "store"));
    assert!(has(&plan.links, "conf/link") && has(&plan.links, ".envrc"), "{:?}", plan.links);
}

#[test]
fn a_link_to_a_repository_that_was_there_stays_and_another_does_not() {
    let work = Work::new(&[("store/a/x", ""), ("store/b/x", ""), ("sub/x", ""), ("other/x", "")]);
    for folder in ["sub", "other"] {
        symlink("../store/a", work.root.join(folder).join(".git")).unwrap();
    }
    symlink("store/a", work.root.join(".git")).unwrap();
    assert_eq!(work.sentry().stop().unwrap(), vec![], "nobody made anything");
    let sentry = work.sentry();
    symlink("../store/b", work.root.join("other/new")).unwrap();
    std::fs::rename(work.root.join("other/new"), work.root.join("other/.git")).unwrap();
    let slipped = sentry.stop().unwrap();
    let told: Vec<_> = slipped.iter().map(|one| (one.path.as_path(), one.moved_to.is_some())).collect();
    assert_eq!(told, [(Path::new("other/.git"), true), (Path::new("other/.git"), false)]);
    assert_eq!(std::fs::read_link(work.root.join("other/.git")).unwrap(), Path::new("../store/a"));
    assert!(work.root.join("sub/.git").is_symlink() && work.root.join(".git").is_symlink());
}

#[test]
fn a_workspace_of_git_itself_is_known() {
    assert!(Work::new(&[("HEAD", ""), ("objects/x", ""), ("refs/x", "")]).plan().within_git.is_some());
    assert!(Work::new(&REPO).plan().within_git.is_none());
}

#[test]
fn nothing_is_put_aside_when_nobody_watches() {
    let work = Work::new(&[]);
    drop(work.sentry().stop().unwrap());
    work.put(".envrc", "x");
    assert!(work.root.join(".envrc").exists());
}

#[test]
fn a_linked_worktree_is_found_by_its_pointer_back() {
    let work = Work::new(&[(".git", "gitdir: ../main/.git/worktrees/work\n")]);
    let main = work.folder.path().join("main/.git");
    let own = main.join("worktrees/work");
    for (path, text) in
        [("HEAD", ""), ("config", ""), ("hooks/x", ""), ("objects/x", ""), ("refs/x", ""), ("info/attributes", "")]
    {
        std::fs::create_dir_all(main.join(path).parent().unwrap()).unwrap();
        std::fs::write(main.join(path), text).unwrap();
    }
    std::fs::create_dir_all(&own).unwrap();
    std::fs::write(own.join("HEAD"), "").unwrap();
    std::fs::write(own.join("commondir"), "../..\n").unwrap();
    std::fs::write(own.join("gitdir"), format!("{}\n", work.root.join(".git").display())).unwrap();
    let git = work.elsewhere().unwrap().unwrap();
    assert_eq!((git.git_dir, &git.common_dir), (own.clone(), &main));
    assert!(work.plan().binds.iter().any(|b| b.path == Path::new(".git")));
    work.put("tools/hooks/x", "");
    let hooks = || work.plan().binds.iter().any(|b| b.path == Path::new("tools/hooks"));
    assert!(!hooks(), "nobody names it");
    std::fs::write(main.join("config"), "[core]\n\thooksPath = tools/hooks\n").unwrap();
    assert!(hooks(), "the configuration that worktrees share names it");
    std::fs::write(own.join("gitdir"), "/elsewhere/.git\n").unwrap();
    assert_eq!(work.elsewhere().unwrap_err().why, "it does not point back at this workspace");
}

#[test]
fn a_planted_pointer_to_a_folder_that_is_not_gits_is_not_followed() {
    let work = Work::new(&[]);
    let secret = work.folder.path().join("secret");
    std::fs::create_dir(&secret).unwrap();
    for text in ["gitdir: ../secret\n", "gitdir: /etc\n", "gitdir: ../../../../../../../..\n", "nonsense", ""] {
        work.put(".git", text);
        assert!(work.elsewhere().is_err(), "{text}");
    }
    // Nor a link to one that is.
    for name in ["HEAD", "config", "objects/x"] {
        work.put(&format!("../other/.git/{name}"), "");
    }
    std::fs::remove_file(work.root.join(".git")).unwrap();
    for target in ["../secret", "../other/.git"] {
        symlink(target, work.root.join(".git")).unwrap();
        assert!(work.elsewhere().is_err(), "{target}");
        std::fs::remove_file(work.root.join(".git")).unwrap();
    }
}

#[test]
fn a_submodule_must_name_its_worktree() {
    let work = Work::new(&[(".git", "gitdir: ../super/.git/modules/work\n")]);
    let own = work.folder.path().join("super/.git/modules/work");
    std::fs::create_dir_all(own.join("objects")).unwrap();
    std::fs::write(own.join("HEAD"), "").unwrap();
    std::fs::write(own.join("config"), "[core]\n\tworktree = ../../../../work\n").unwrap();
    let git = work.elsewhere().unwrap().unwrap();
    assert_eq!((&git.git_dir, &git.common_dir), (&own, &own));
    assert_eq!(git.pointer, Path::new("../super/.git/modules/work"));
    std::fs::write(own.join("config"), "[core]\n\tworktree = ../../../../other\n").unwrap();
    assert!(work.elsewhere().is_err());
}

/// As an editor that saves by rename.
fn replace(work: &Work, name: &str, text: &str) {
    work.put("new", text);
    std::fs::rename(work.root.join("new"), work.root.join(name)).unwrap();
}

#[test]
fn a_control_file_that_is_replaced_is_noticed_put_aside_and_put_back() {
    let work = Work::new(&REPO);
    work.put(".mcp.json", "{}");
    let plan = work.plan();
    let hold = work.hold(&plan);
    assert_eq!(hold.lost(), None);
    work.put("other", "work goes on");
    work.put(".git/index", "");
    assert_eq!((hold.lost(), work.held(&plan, &hold)), (None, vec![]));
    replace(&work, ".mcp.json", r#"{"servers": "planted"}"#);
    assert_eq!(hold.lost(), Some(PathBuf::from(".mcp.json")));
    let slipped = work.held(&plan, &hold);
    assert_eq!((slipped.len(), slipped[0].what, slipped[0].why.as_ref()), (1, "was replaced", None));
    assert_eq!(std::fs::read_to_string(work.root.join(".mcp.json")).unwrap(), "{}");
    let aside = work.folder.path().join("aside").join(slipped[0].moved_to.as_ref().unwrap());
    assert!(std::fs::read_to_string(aside).unwrap().contains("planted"));
}

#[test]
fn a_folder_above_control_files_that_is_replaced_is_noticed() {
    let work = Work::new(&REPO);
    let hold = work.hold(&work.plan());
    std::fs::rename(work.root.join(".git"), work.root.join("old")).unwrap();
    for (name, text) in REPO {
        work.put(name, text);
    }
    assert_eq!(hold.lost(), Some(PathBuf::from(".git")));
}

#[test]
fn another_name_of_a_control_file_is_as_protected() {
    let work = Work::new(&REPO);
    std::fs::create_dir_all(work.root.join("deep/node_modules")).unwrap();
    let config = work.root.join(".git/config");
    std::fs::hard_link(&config, work.root.join("deep/node_modules/x")).unwrap();
    std::fs::hard_link(&config, work.folder.path().join("outside")).unwrap();
    work.put(".vscode/deep/tasks.json", "");
    work.put(".git/modules/a/b/hooks/x", "");
    std::fs::hard_link(work.root.join(".vscode/deep/tasks.json"), work.root.join("deep/tasks")).unwrap();
    std::fs::hard_link(work.root.join(".git/modules/a/b/hooks/x"), work.root.join("deep/hook")).unwrap();
    let plan = work.plan();
    assert!(has(plan.binds.iter().map(|b| &b.path), "deep/node_modules/x"), "{:?}", plan.binds);
    assert!(["deep/tasks", "deep/hook"].iter().all(|path| has(plan.binds.iter().map(|b| &b.path), path)));
    assert!(has(&plan.pins, "deep/node_modules") && plan.linked.is_empty());
    assert!(!has(plan.binds.iter().map(|b| &b.path), ".git/config"), "that one lies below the layer");
}

#[test]
fn what_holds_nothing_may_come_and_go() {
    let work = Work::new(&REPO);
    std::fs::create_dir(work.root.join(".vscode")).unwrap();
    work.put(".envrc", "");
    let plan = work.plan();
    let hold = work.hold(&plan);
    std::fs::remove_dir(work.root.join(".vscode")).unwrap();
    std::fs::remove_file(work.root.join(".envrc")).unwrap();
    assert_eq!(hold.lost(), None);
    std::fs::create_dir(work.root.join(".vscode")).unwrap();
    replace(&work, ".envrc", "");
    assert_eq!(hold.lost(), None);
    work.put(".envrc", "planted");
    assert_eq!(hold.lost(), Some(PathBuf::from(".envrc")));
    work.put(".vscode/tasks.json", "planted");
    let slipped = work.held(&plan, &hold);
    assert_eq!(slipped.iter().filter(|one| one.moved_to.is_some()).count(), 2, "{slipped:?}");
    assert!(!work.root.join(".envrc").exists() && !work.root.join(".vscode").exists());
}

#[test]
fn sockets_are_found_in_the_same_walk_or_it_says_that_some_may_be_missing() {
    let work = Work::new(&REPO);
    work.put("a/b/x", "");
    let _ears = ["a/b/s", ".git/fsmonitor--daemon.ipc"]
        .map(|name| std::os::unix::net::UnixListener::bind(work.root.join(name)).unwrap());
    let plan = work.plan();
    assert_eq!(plan.sockets, Some(vec![PathBuf::from("a/b/s")]));
    assert!(has(&plan.layers, ".git"), "there nobody looked");
    for path in ["bare/HEAD", "bare/objects/x", "bare/refs/x"] {
        work.put(path, "");
    }
    assert_eq!(work.plan().sockets, None);
}

#[test]
fn the_documents_of_the_policy_are_bound_with_every_link_of_the_way() {
    let work = Work::new(&[("real/mine.toml", ""), ("plain.toml", ""), ("other.toml", "")]);
    symlink("real", work.root.join("conf")).unwrap();
    symlink("mine.toml", work.root.join("real/alias.toml")).unwrap();
    let named =
        |paths: &[&str]| paths.iter().map(|path| work.root.join(path)).collect::<std::collections::BTreeSet<_>>();
    let paths = named(&["conf/alias.toml", "plain.toml"]);
    assert_eq!(
        documents(&work.root, &paths).into_iter().collect::<Vec<_>>(),
        ["conf", "plain.toml", "real/alias.toml", "real/mine.toml"].map(PathBuf::from)
    );
    let plan = plan(&work.root, &Dir::open(&work.root).unwrap(), list(), &paths).unwrap();
    let binds: Vec<_> = plan.binds.iter().map(|bind| bind.path.as_path()).collect();
    assert!(has(&binds, "plain.toml") && has(&binds, "real/mine.toml") && !has(&binds, "other.toml"), "{binds:?}");
    assert!(has(&plan.links, "conf") && has(&plan.links, "real/alias.toml") && has(&plan.pins, "real"), "{plan:?}");
    // By another name of the workspace too.
    let alias = work.folder.path().join("alias");
    symlink(&work.root, &alias).unwrap();
    let spelled = [alias.join("conf/alias.toml")].into();
    assert!(has(documents(&work.root, &spelled), "conf") && has(documents(&work.root, &spelled), "real/mine.toml"));
    assert!(documents(&work.root, &[PathBuf::from("/etc/passwd")].into()).is_empty());
    assert!(has(Work::new(&[("fumehood.toml", "")]).plan().binds.iter().map(|bind| &bind.path), "fumehood.toml"));
}

#[test]
fn what_is_made_where_a_control_link_led_to_nothing_is_put_aside() {
    let work = Work::new(&[]);
    symlink("dot/rc", work.root.join(".envrc")).unwrap();
    let sentry = work.sentry();
    work.put("dot/rc", "planted");
    work.put("dot/other", "");
    let slipped = sentry.stop().unwrap();
    assert_eq!(slipped.iter().map(|one| one.path.as_path()).collect::<Vec<_>>(), [Path::new("dot/rc")]);
    assert!(work.root.join(".envrc").is_symlink() && work.root.join("dot/other").exists());
}

/// The free name is made under another folder, which a link on the way then leads to.
#[test]
fn a_link_on_the_way_to_where_a_control_link_led_is_put_aside() {
    let work = Work::new(&[]);
    symlink("dot/deep/rc", work.root.join(".envrc")).unwrap();
    let sentry = work.sentry();
    work.put("elsewhere/deep/rc", "planted");
    symlink("elsewhere", work.root.join("dot")).unwrap();
    let slipped = sentry.stop().unwrap();
    assert_eq!(slipped.iter().map(|one| one.path.as_path()).collect::<Vec<_>>(), [Path::new("dot")]);
    assert!(!work.root.join("dot").is_symlink() && work.root.join("elsewhere/deep/rc").exists());
    // A folder there is one that anybody may make.
    let work = Work::new(&[]);
    symlink("dot/rc", work.root.join(".envrc")).unwrap();
    let sentry = work.sentry();
    work.put("dot/other", "");
    assert!(sentry.stop().unwrap().is_empty());
}

#[test]
fn a_link_that_vanished_is_made_again() {
    let work = Work::new(&[]);
    symlink("/etc/x", work.root.join(".claude")).unwrap();
    let plan = work.plan();
    std::fs::remove_file(work.root.join(".claude")).unwrap();
    let slipped = work.check(&plan);
    assert_eq!((slipped.len(), slipped[0].left()), (1, "the link was made again"));
    assert_eq!(std::fs::read_link(work.root.join(".claude")).unwrap(), Path::new("/etc/x"));
}

#[test]
fn a_link_that_goes_while_somebody_watches_is_made_again_at_once() {
    let work = Work::new(&[("rc", "x"), ("a/x", "")]);
    for (target, link) in [("rc", ".envrc"), ("/etc/x", ".claude"), ("../store.git", "a/.git")] {
        symlink(target, work.root.join(link)).unwrap();
    }
    let leads =
        |link: &str, target: &str| std::fs::read_link(work.root.join(link)).is_ok_and(|to| to == Path::new(target));
    assert!(has(&work.plan().pins, "a"), "nobody renames its folder");
    work.put(".vscode/deep/x", "");
    symlink("x", work.root.join(".vscode/deep/l")).unwrap();
    assert!(!has(&work.plan().pins, ".vscode") && !has(&work.plan().pins, ".vscode/deep"), "what is bound holds them");
    let (plan, sentry) = (work.plan(), work.sentry());
    std::fs::remove_file(work.root.join(".envrc")).unwrap();
    std::fs::rename(work.root.join("a/.git"), work.root.join("a/git")).unwrap();
    assert!(soon(|| leads(".envrc", "rc") && leads("a/.git", "../store.git")));
    // By another link, and by a file.
    symlink("other", work.root.join("new")).unwrap();
    std::fs::rename(work.root.join("new"), work.root.join(".claude")).unwrap();
    replace(&work, ".envrc", "planted");
    assert!(soon(|| leads(".envrc", "rc") && leads(".claude", "/etc/x")));
    // What is no control file goes.
    work.put("plain", "");
    std::fs::remove_file(work.root.join("plain")).unwrap();
    let slipped = sentry.stop().unwrap();
    for (path, times) in [(".envrc", 3), (".claude", 2), ("a/.git", 1)] {
        let told = slipped.iter().filter(|one| one.path == Path::new(path)).count();
        assert_eq!(told, times, "{path}: {slipped:?}");
    }
    assert!(!has(slipped.iter().map(|one| &one.path), "plain") && !work.root.join("plain").exists());
    assert_eq!(work.check(&plan), [], "what was made again is not told of a second time");
}

/// 1 ms.
fn moment() {
    let time = rustix::event::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    assert!(rustix::event::poll(&mut [], Some(&time)).is_ok());
}

#[test]
fn who_makes_control_files_again_and_again_is_noticed() {
    let work = Work::new(&[]);
    let (sentry, few) = (work.sentry(), Work::new(&[]));
    let (calm, until) = (few.sentry(), std::time::Instant::now() + std::time::Duration::from_secs(20));
    few.put(".envrc", "x");
    while !sentry.is_pestered() {
        assert!(std::time::Instant::now() < until, "nobody noticed");
        work.put(".envrc", "x");
        moment();
    }
    assert!(!calm.is_pestered());
    let (slipped, large) = (sentry.stop().unwrap(), Work::new(&[]));
    assert!(slipped.len() >= 32, "{}", slipped.len());
    // Few large ones are too much as well.
    let sentry = large.sentry();
    std::fs::File::create(large.root.join("new")).unwrap().set_len(65 << 20).unwrap();
    std::fs::rename(large.root.join("new"), large.root.join(".envrc")).unwrap();
    while !sentry.is_pestered() {
        assert!(std::time::Instant::now() < until, "nobody noticed");
        moment();
    }
}

#[test]
fn where_control_links_lead_out_of_the_workspace_is_known() {
    let work = Work::new(&[("a/b", "")]);
    let out = work.folder.path().canonicalize().unwrap().join("out");
    std::fs::create_dir(&out).unwrap();
    symlink(&out, work.root.join(".claude")).unwrap();
    symlink(out.join("missing"), work.root.join("a/.envrc")).unwrap();
    symlink(&out, work.root.join("plain")).unwrap();
    let led = led(&work.root.canonicalize().unwrap(), &Dir::open(&work.root).unwrap(), list());
    assert_eq!(led.out.into_iter().collect::<Vec<_>>(), [out.clone(), out.join("missing")]);
    assert!(!led.cut && !has(&led.within, "plain"));
}
