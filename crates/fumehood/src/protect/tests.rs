//! Workspaces as people and attackers make them.

use std::os::unix::fs::symlink;

use super::*;
use crate::state::Dir;
use std::path::{Path, PathBuf};

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
        let path = self.root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn plan(&self) -> ProtectPlan {
        plan(&self.root, &Dir::open(&self.root).unwrap(), list()).unwrap()
    }

    fn hold(&self, plan: &ProtectPlan) -> Hold {
        Hold::take(plan, Dir::open(&self.root).unwrap(), &[]).unwrap()
    }

    /// As [`Self::held`], with what held from the beginning being of no account.
    fn check(&self, plan: &ProtectPlan) -> Vec<Slipped> {
        let nothing = ProtectPlan { binds: Vec::new(), pins: Vec::new(), git: None, ..plan.clone() };
        self.held(plan, &self.hold(&nothing))
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
fn existing_paths_are_bound_their_parents_pinned_and_missing_ones_stubbed() {
    let work = Work::new(&REPO);
    work.put(".git/modules/sub/config", "");
    let plan = work.plan();
    let binds: Vec<_> = plan.binds.iter().map(|b| &b.path).collect();
    let stubs: Vec<_> = plan.stubs.iter().map(|s| &s.path).collect();
    assert!(has(&binds, ".git/hooks") && has(&binds, ".git/config") && has(&binds, ".git/modules/sub/config"));
    assert!(has(&stubs, ".vscode") && has(&stubs, ".claude") && has(&stubs, ".git/modules/sub/hooks"));
    assert!(!has(&stubs, ".git/info/attributes"), "its folder is missing");
    assert!(plan.watch.iter().any(|w| w.pattern == ".git/info/attributes" && w.because == "its folder is missing"));
    assert_eq!(plan.pins, [".git", ".git/modules", ".git/modules/sub"].map(PathBuf::from));
    assert_eq!((plan.git.as_ref(), plan.nested.len()), (None, 0));
}

#[test]
fn links_are_watched_and_never_followed_and_put_back() {
    let work = Work::new(&REPO);
    symlink("/etc", work.root.join(".vscode")).unwrap();
    let plan = work.plan();
    assert!(!has(plan.binds.iter().map(|b| &b.path), ".vscode"));
    assert!(plan.watch.iter().any(|w| w.pattern == ".vscode" && w.because == "it is a symbolic link"));
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
    for path in ["dots/bashrc", "dots/claude", "store.git/config", "store.git/hooks"] {
        assert!(binds.contains(&path), "{path}: {binds:?}");
    }
    assert!(plan.git.is_none() && !binds.contains(&""), "{binds:?}");
    assert!(has(&plan.pins, "dots") && has(&plan.pins, "store.git"));
}

#[test]
fn what_appeared_is_put_aside_and_a_plain_git_init_is_not() {
    let work = Work::new(&[]);
    let plan = work.plan();
    for (name, text) in REPO {
        work.put(name, text);
    }
    work.put(".git/config", "[core]\n\trepositoryformatversion = 0\n\tbare = false\n");
    assert_eq!(work.check(&plan), vec![]);
    work.put(".git/hooks/pre-commit", "#!/bin/sh\n");
    work.put(".git/config", "[core]\n\tfsmonitor = /tmp/evil\n");
    work.put(".mcp.json", "{}");
    work.put(".claude/settings.json", "{}");
    let slipped: Vec<_> = work.check(&plan).into_iter().map(|s| (s.path, s.what, s.moved_to.is_some())).collect();
    let expected = [".claude", ".git/config", ".git/hooks", ".mcp.json"].map(|p| (PathBuf::from(p), "appeared", true));
    assert_eq!(slipped, expected);
    assert!(!work.root.join(".git/hooks").exists() && !work.root.join(".mcp.json").exists());
    assert_eq!(work.check(&plan), vec![]);
}

#[test]
fn a_config_with_a_program_hidden_in_it_is_not_plain() {
    for config in [
        "[core]\nbare = false \\\n",
        "[core] fsmonitor=x\n",
        "[alias]\na = !sh\n",
        "[include]\npath = x\n",
        "[core]\nhooksPath = .\n",
        "[remote \"o\"]\nuploadpack = sh\n",
        "fsmonitor = x\n",
        "[core]\nbare\nsshCommand=x\n",
    ] {
        let work = Work::new(&[]);
        let plan = work.plan();
        work.put(".git/config", config);
        assert_eq!(work.check(&plan).len(), 1, "{config:?}");
    }
}

#[test]
fn a_linked_worktree_is_granted_what_git_needs_and_never_its_control_files() {
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
    let plan = work.plan();
    let git = plan.git.unwrap_or_else(|| panic!("{:?}", plan.git_problem));
    assert_eq!(git.write, [main.join("objects"), main.join("refs"), own.clone()]);
    assert!(git.read.contains(&main.join("config")) && git.read.contains(&main.join("hooks")));
    assert!(plan.binds.iter().any(|b| b.path == Path::new(".git")));
    std::fs::write(own.join("gitdir"), "/elsewhere/.git\n").unwrap();
    assert_eq!(work.plan().git_problem.unwrap().why, "it does not point back at this workspace");
}

#[test]
fn a_planted_pointer_to_a_folder_that_is_not_gits_is_not_followed() {
    let work = Work::new(&[]);
    let secret = work.folder.path().join("secret");
    std::fs::create_dir(&secret).unwrap();
    for text in ["gitdir: ../secret\n", "gitdir: /etc\n", "gitdir: ../../../../../../../..\n", "nonsense", ""] {
        work.put(".git", text);
        let plan = work.plan();
        assert!(plan.git.is_none() && plan.git_problem.is_some(), "{text}");
    }
    std::fs::remove_file(work.root.join(".git")).unwrap();
    symlink("../secret", work.root.join(".git")).unwrap();
    assert!(work.plan().git.is_none());
}

#[test]
fn a_submodule_must_name_its_worktree() {
    let work = Work::new(&[(".git", "gitdir: ../super/.git/modules/work\n")]);
    let own = work.folder.path().join("super/.git/modules/work");
    std::fs::create_dir_all(own.join("objects")).unwrap();
    std::fs::write(own.join("HEAD"), "").unwrap();
    std::fs::write(own.join("config"), "[core]\n\tworktree = ../../../../work\n").unwrap();
    let git = work.plan().git.unwrap();
    assert_eq!((git.write, git.read), (vec![own.clone()], vec![own.join("config")]));
    assert_eq!(git.pointer, Path::new("../super/.git/modules/work"));
    std::fs::write(own.join("config"), "[core]\n\tworktree = ../../../../other\n").unwrap();
    assert!(work.plan().git_problem.is_some());
}

#[test]
fn nested_repositories_are_named() {
    let work = Work::new(&REPO);
    work.put("a/b/.git/HEAD", "");
    work.put("c/.git", "gitdir: x");
    work.put("node_modules/d/.git/HEAD", "");
    assert_eq!(work.plan().nested, ["a/b", "c"].map(PathBuf::from));
}

#[test]
fn what_would_steer_git_and_was_not_there_is_put_aside_in_its_folder_too() {
    let work = Work::new(&[(".git", "gitdir: ../super/.git/modules/work\n")]);
    let own = work.folder.path().join("super/.git/modules/work");
    std::fs::create_dir_all(own.join("objects")).unwrap();
    std::fs::write(own.join("HEAD"), "").unwrap();
    std::fs::write(own.join("config"), "[core]\n\tworktree = ../../../../work\n").unwrap();
    let plan = work.plan();
    std::fs::write(own.join("commondir"), "/tmp/evil\n").unwrap();
    std::fs::create_dir(own.join("hooks")).unwrap();
    std::fs::write(own.join("index"), "").unwrap();
    let slipped: Vec<_> = work.check(&plan).into_iter().map(|s| (s.path, s.moved_to.is_some())).collect();
    assert_eq!(slipped, [(PathBuf::from("commondir"), true), (PathBuf::from("hooks"), true)]);
    assert!(!own.join("commondir").exists() && !own.join("hooks").exists() && own.join("index").exists());
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
fn a_hooks_folder_that_is_replaced_is_put_aside_unless_it_holds_samples_alone() {
    let work = Work::new(&REPO);
    let plan = work.plan();
    let hold = work.hold(&plan);
    let hooks = work.root.join(".git/hooks");
    std::fs::rename(&hooks, work.root.join(".git/old")).unwrap();
    work.put(".git/hooks/b.sample", "");
    assert_eq!(hold.lost(), Some(PathBuf::from(".git/hooks")));
    assert_eq!(work.held(&plan, &hold)[0].moved_to, None);
    assert!(hooks.exists());
    work.put(".git/hooks/pre-commit", "planted");
    assert!(work.held(&plan, &hold)[0].moved_to.is_some());
    assert!(!hooks.exists());
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
fn plain_settings_of_git_that_somebody_made_outside_stay_and_others_do_not() {
    let remote = "[core]\n\tbare = false\n[remote \"o\"]\n\turl = x\n";
    for (text, stays) in [
        (format!("{remote}[user]\n\tname = x\n"), true),
        (format!("{remote}\tfetch = y\n"), false),
        (format!("{remote}[core]\n\tfsmonitor = planted\n"), false),
        ("[core]\n\tbare = false\n[alias]\n\turl = x\n".to_owned(), false),
    ] {
        let work = Work::new(&[(".git/HEAD", ""), (".git/config", remote), (".git/hooks/a.sample", "")]);
        let plan = work.plan();
        let hold = work.hold(&plan);
        replace(&work, ".git/config", &text);
        let slipped = work.held(&plan, &hold);
        assert_eq!((slipped.len(), slipped[0].moved_to.is_none()), (1, stays), "{text}");
        let now = std::fs::read_to_string(work.root.join(".git/config")).unwrap();
        assert_eq!(now, if stays { text } else { remote.to_owned() });
    }
}

#[test]
fn another_name_of_a_control_file_is_as_protected() {
    let work = Work::new(&REPO);
    std::fs::create_dir_all(work.root.join("deep/node_modules")).unwrap();
    let config = work.root.join(".git/config");
    std::fs::hard_link(&config, work.root.join("deep/node_modules/x")).unwrap();
    std::fs::hard_link(&config, work.folder.path().join("outside")).unwrap();
    let plan = work.plan();
    assert!(has(plan.binds.iter().map(|b| &b.path), "deep/node_modules/x"), "{:?}", plan.binds);
    assert!(has(&plan.pins, "deep/node_modules") && plan.linked.is_empty());
    let hold = work.hold(&plan);
    assert_eq!(work.held(&plan, &hold), vec![]);
    // A name that somebody outside made while the run went on.
    std::fs::write(&config, "[core]\n\tfsmonitor = planted\n").unwrap();
    let slipped = work.held(&plan, &hold);
    assert!(slipped.iter().all(|one| one.what == "was replaced" && one.moved_to.is_some()), "{slipped:?}");
    assert_eq!(std::fs::read_to_string(&config).unwrap(), "[core]\n");
}

/// Two runs in one workspace: the stand-ins of the first go with it.
#[test]
fn the_stand_ins_of_another_run_may_come_and_go_while_they_are_empty() {
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
