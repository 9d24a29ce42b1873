//! Links in the place of folders that control files are looked for in, and names with `*`.

use super::*;

fn binds(work: &Work) -> Vec<PathBuf> {
    work.plan().binds.into_iter().map(|bind| bind.path).collect()
}

fn taken(slipped: &[Slipped]) -> Vec<&str> {
    slipped.iter().filter(|one| one.moved_to.is_some()).map(|one| one.path.to_str().unwrap()).collect()
}

#[test]
fn a_name_with_a_star_is_bound_in_any_case_and_put_aside_when_it_is_new() {
    let work = Work::new(&[("lefthook-local.yml", ""), ("LeftHook.toml", ""), (".config/lefthook.json", "")]);
    for plain in ["lefthook.go", "src/lefthook.yml", ".config/other"] {
        work.put(plain, "");
    }
    let found = binds(&work);
    for path in ["lefthook-local.yml", "LeftHook.toml", ".config/lefthook.json"] {
        assert!(has(&found, path), "{path}: {found:?}");
    }
    assert_eq!(found.len(), 3, "{found:?}");
    let plan = work.plan();
    let sentry = work.sentry();
    for path in [".lintstagedrc.mjs", "lint-staged.config.js", "mise.local.toml", "lefthook.rs"] {
        work.put(path, "");
    }
    let slipped = sentry.stop().unwrap();
    assert_eq!(slipped.len(), 3, "{slipped:?}");
    assert!(work.root.join("lefthook.rs").exists() && work.root.join("LeftHook.toml").exists());
    work.put(".lefthook.yaml", "");
    assert_eq!(taken(&work.check(&plan)), [".lefthook.yaml"]);
}

#[test]
fn a_new_link_to_a_folder_with_control_files_is_put_aside_and_a_folder_is_not() {
    let work = Work::new(&[("plain/x", "")]);
    let (plan, sentry) = (work.plan(), work.sentry());
    work.put("evil/hgrc", "[hooks]");
    for link in [".hg", ".bundle", "other"] {
        symlink("evil", work.root.join(link)).unwrap();
    }
    work.put(".jj/repo/store/x", "");
    work.put(".config/plain", "");
    let slipped = sentry.stop().unwrap();
    let (mut paths, stays) = (taken(&slipped), ["other", ".jj/repo/store/x", ".config/plain", "evil/hgrc"]);
    paths.sort_unstable();
    assert_eq!(paths, [".bundle", ".hg"]);
    assert!(stays.iter().all(|path| work.root.join(path).exists()));
    // Without anybody who watched, the last look finds it.
    symlink("evil", work.root.join(".hg")).unwrap();
    assert_eq!(taken(&work.check(&plan)), [".hg"]);
    std::fs::remove_dir_all(work.root.join(".jj/repo")).unwrap();
    work.put(".jj/repo", "/elsewhere");
    assert_eq!(taken(&work.check(&plan)), [".jj/repo"]);
}

#[test]
fn what_lies_behind_a_link_that_stood_there_is_bound_and_the_link_stays() {
    let work = Work::new(&[("dots/hg/hgrc", ""), ("dots/bundle/config", ""), ("dots/bundle/x", ""), ("real/x", "")]);
    symlink("dots/hg", work.root.join(".hg")).unwrap();
    symlink("dots/bundle", work.root.join(".bundle")).unwrap();
    symlink("real", work.root.join("gradle")).unwrap();
    let (found, plan) = (binds(&work), work.plan());
    assert!(has(&found, "dots/hg") && has(&found, "dots/bundle/config"), "{found:?}");
    assert!(!has(&found, "dots/bundle") && !has(&found, "real"), "{found:?}");
    assert_eq!(work.check(&plan), vec![]);
    assert_eq!(work.sentry().stop().unwrap(), vec![], "nobody made anything");
    let aside = work.folder.path().join("late");
    std::fs::create_dir(&aside).unwrap();
    let below = || Dir::open(&work.root).unwrap();
    let late = late(&plan.watched(&below()).unwrap(), below(), Dir::open(&aside).unwrap(), i64::MAX).unwrap();
    assert_eq!(late, vec![], "a killed supervisor leaves what stood there too");
    let sentry = work.sentry();
    // At once: a name that is gone is put back before anybody can take it.
    symlink("elsewhere", work.root.join("other")).unwrap();
    std::fs::rename(work.root.join("other"), work.root.join(".bundle")).unwrap();
    work.put("real/wrapper", "planted");
    let slipped = sentry.stop().unwrap();
    assert_eq!(taken(&slipped), [".bundle", "real/wrapper"], "{slipped:?}");
    assert_eq!(std::fs::read_link(work.root.join(".bundle")).unwrap(), Path::new("dots/bundle"));
}

#[test]
fn what_such_links_lead_to_is_held_by_apply_alone_where_it_counts() {
    let work = Work::new(&[("dots/bundle/x", ""), ("dots/hg/x", "")]);
    let out = work.folder.path().canonicalize().unwrap().join("out");
    std::fs::create_dir(&out).unwrap();
    for (target, link) in [("dots/bundle", ".bundle"), ("dots/hg", ".hg")] {
        symlink(target, work.root.join(link)).unwrap();
    }
    symlink(&out, work.root.join("dots/.yarn")).unwrap();
    let led = led(&work.root.canonicalize().unwrap(), &Dir::open(&work.root).unwrap(), list());
    assert!(has(&led.within, "dots/bundle/config") && has(&led.within, "dots/hg"), "{led:?}");
    assert!(!has(&led.within, "dots/bundle") && led.out.contains(&out), "{led:?}");
}

#[test]
fn each_link_of_a_chain_to_a_document_is_known_and_a_folder_among_them_is_bound() {
    let work = Work::new(&[("certs/a.0", ""), ("with/.git/HEAD", ""), ("plain/x", ""), ("conf/x", "")]);
    let out = work.folder.path().canonicalize().unwrap();
    let root = work.root.canonicalize().unwrap();
    std::fs::write(out.join("real.toml"), "").unwrap();
    symlink(out.join("real.toml"), root.join("plain/link")).unwrap();
    symlink(root.join("plain/link"), out.join("far")).unwrap();
    symlink(out.join("far"), root.join("conf/mine.toml")).unwrap();
    let of = |names: &[PathBuf]| {
        let documents = names.iter().cloned().collect();
        plan(&root, &Dir::open(&root).unwrap(), list(), &documents).unwrap()
    };
    let found = of(&[root.join("conf/mine.toml"), root.join("certs"), root.join("later/new")]);
    assert!(has(&found.documents, "plain/link") && has(&found.links, "plain/link"), "{found:?}");
    assert!(has(&found.pins, "plain") && has(&found.pins, "conf") && has(&found.links, "conf/mine.toml"), "{found:?}");
    assert!(has(found.binds.iter().map(|bind| &bind.path), "certs") && has(&found.links, "later/new"), "{found:?}");
    assert_eq!((found.unheld, found.binds.len()), (None, 1));
    assert_eq!(of(&[root.join("with")]).unheld, Some(PathBuf::from("with")), "nothing is mounted over git's folder");
    assert_eq!(of(std::slice::from_ref(&root)).unheld, Some(PathBuf::new()));
    assert_eq!(of(&[root.join("with/.git/HEAD")]).unheld, None, "that lies below a layer");
    assert_eq!(of(&[out.join("real.toml"), out]).documents.len(), 0);
}

/// The folder around a workspace may be somebody's home, so this one is.
#[test]
fn another_name_of_a_file_that_programs_read_at_home_is_protected() {
    let work = Work::new(&[("dots/bashrc", ""), ("dots/settings", ""), ("dots/plain", "")]);
    let home = work.folder.path();
    std::fs::create_dir_all(home.join(".config/x")).unwrap();
    for (here, there) in [("dots/bashrc", ".bashrc"), ("dots/settings", ".config/x/rc"), ("dots/plain", "plain")] {
        std::fs::hard_link(work.root.join(here), home.join(there)).unwrap();
    }
    // Both names of this one are there.
    std::fs::write(home.join(".config/a"), "").unwrap();
    std::fs::hard_link(home.join(".config/a"), home.join(".config/b")).unwrap();
    let plan = work.plan();
    let binds: Vec<_> = plan.binds.iter().map(|bind| &bind.path).collect();
    assert!(has(&binds, "dots/bashrc") && has(&binds, "dots/settings") && !has(&binds, "dots/plain"), "{binds:?}");
    assert!(has(&plan.pins, "dots") && plan.linked.is_empty());
}
