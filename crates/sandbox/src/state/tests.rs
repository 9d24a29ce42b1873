//! The folder, the journal and the sweep, with what attackers and crashes leave.
#![expect(clippy::disallowed_methods, reason = "these tests start programs and look at the host")]

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;
use std::time::Instant;

use super::*;
use crate::gc::{CONTROL_FILE, Scope, Sweep, sweep};

fn places(path: PathBuf) -> Places {
    Places { fumehood_state: Some(path), euid: rustix::process::geteuid().as_raw(), ..Places::default() }
}

fn fresh() -> (tempfile::TempDir, State) {
    let folder = tempfile::tempdir().unwrap();
    let state = State::open(&places(folder.path().join("state"))).unwrap();
    (folder, state)
}

fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}

/// The journal of a run whose owner is dead.
fn dead_run(state: &State, things: &[Resource]) -> RunId {
    let id = RunId::new(now()).unwrap();
    let mut journal = Journal::begin(state, id.clone(), None, now()).unwrap();
    for thing in things {
        journal.note(thing).unwrap();
    }
    drop(journal);
    let path = state.path().join(format!("runs/{id}.json"));
    let text = std::fs::read_to_string(&path).unwrap();
    let text = text.replace(&format!("\"pid\":{}", std::process::id()), "\"pid\":4194305");
    std::fs::write(path, text).unwrap();
    id
}

#[test]
fn the_place_follows_the_variables_and_relative_ones_are_refused() {
    let at = |p: &Places| p.state().map(|(path, _)| path);
    let mut p = Places { home: Some("/home/a".into()), euid: 1000, ..Places::default() };
    assert_eq!(at(&p).unwrap(), Path::new("/home/a/.local/state/fumehood"));
    p.euid = 0;
    assert_eq!(at(&p).unwrap(), Path::new("/var/lib/fumehood"));
    p.xdg_state_home = Some("/x".into());
    assert_eq!(at(&p).unwrap(), Path::new("/x/fumehood"));
    p.fumehood_state = Some("/s".into());
    assert_eq!((at(&p).unwrap(), p.keys().unwrap().0), ("/s".into(), "/s/keys".into()));
    p.fumehood_keys = Some("/k".into());
    assert_eq!(p.keys().unwrap().0, Path::new("/k"));
    for bad in ["s", "/a/../b"] {
        p.fumehood_state = Some(bad.into());
        assert!(matches!(at(&p), Err(StateError::Relative { variable: "FUMEHOOD_STATE", .. })), "{bad}");
    }
    assert_eq!(at(&Places { euid: 5, ..Places::default() }), Err(StateError::NoPlace));
}

#[test]
fn links_anywhere_and_folders_that_others_may_write_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let real = folder.path().join("real");
    std::fs::create_dir(&real).unwrap();
    symlink(&real, folder.path().join("link")).unwrap();
    for path in ["link", "link/state"] {
        let error = State::open(&places(folder.path().join(path))).unwrap_err();
        assert!(matches!(error, StateError::Link { .. }), "{error:?}");
        assert!(error.fault().fix.contains("FUMEHOOD_STATE"));
    }
    std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o770)).unwrap();
    assert!(matches!(State::open(&places(real.clone())), Err(StateError::Open { mode: 0o770, .. })));
    std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o755)).unwrap();
    let state = State::open(&places(real.clone())).unwrap();
    assert_eq!(std::fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o700);
    symlink("/etc", real.join("audit")).unwrap();
    assert!(matches!(state.audit(), Err(StateError::Link { .. })));
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&real, Some(1234), None).unwrap();
        assert!(matches!(State::open(&places(real)), Err(StateError::Owner { owner: 1234, .. })));
    }
}

#[test]
fn a_read_only_disk_is_refused_and_the_variable_named() {
    let folder = tempfile::tempdir().unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "ro", "none"]).arg(folder.path()).status().unwrap();
    assert!(mounted.success(), "these tests run under scripts/private-mounts");
    let fault = State::open(&places(folder.path().join("state"))).unwrap_err().fault();
    assert!(Command::new("umount").arg(folder.path()).status().unwrap().success());
    assert!(fault.why.contains("read-only") && fault.fix.contains("FUMEHOOD_STATE"), "{fault}");
}

#[test]
fn a_live_run_is_left_alone_and_its_clean_end_leaves_nothing() {
    let (_folder, state) = fresh();
    let journal = Journal::begin(&state, RunId::new(now()).unwrap(), None, now()).unwrap();
    let swept = sweep(&state, now(), Scope::All).unwrap();
    assert_eq!((swept.live, swept.removed, swept.kept), (1, vec![], vec![]));
    journal.end().unwrap();
    assert!(state.runs().unwrap().names().unwrap().is_empty());
}

#[test]
fn a_journal_that_is_only_being_begun_is_alive_and_an_old_empty_one_is_not() {
    let (_folder, state) = fresh();
    let path = state.path().join(format!("runs/{}.json", RunId::new(now()).unwrap()));
    drop(state.runs().unwrap());
    std::fs::write(&path, "{\"schema\":1,").unwrap();
    assert_eq!(sweep(&state, now(), Scope::Start).unwrap().live, 1);
    assert_eq!(sweep(&state, now() + jiff::SignedDuration::from_mins(5), Scope::Start).unwrap().removed.len(), 1);
}

#[test]
fn a_dead_run_is_swept_once_with_a_tree_made_to_resist() {
    let (folder, state) = fresh();
    let id = RunId::new(now()).unwrap();
    let tree = folder.path().join(format!("tmp-{id}"));
    let mut deep = tree.clone();
    std::fs::create_dir(&tree).unwrap();
    let outside = folder.path().join("outside");
    std::fs::write(&outside, "mine").unwrap();
    symlink(folder.path(), tree.join("link")).unwrap();
    std::fs::write(tree.join("a\nb\u{1b}[31m"), "").unwrap();
    std::fs::write(tree.join(".fumehood-removing-1"), "").unwrap();
    // Deeper than any path: 3000 levels of long names, made by descriptors.
    let mut at = Dir::open(&tree).unwrap();
    for level in 0..3000 {
        let name = format!("{level}{}", "d".repeat(40));
        at.make(&name, Mode::RWXU).unwrap();
        at = at.enter(&name, Cross::No).unwrap();
    }
    for name in ["x", "y"] {
        deep.push(name);
        std::fs::create_dir(&deep).unwrap();
    }
    std::fs::write(deep.join("f"), "").unwrap();
    for path in [&deep, &tree.join("x"), &tree] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o0)).unwrap();
    }
    let journal =
        Journal::begin(&state, id.clone(), None, now()).and_then(|mut j| j.note(&Resource::Temp(tree.clone())));
    journal.unwrap();
    let path = state.path().join(format!("runs/{id}.json"));
    let text = std::fs::read_to_string(&path).unwrap().replace("\"start_time\":", "\"start_time\":9");
    std::fs::write(&path, text).unwrap();
    let swept = sweep(&state, now(), Scope::Start).unwrap();
    assert_eq!(swept.kept, vec![]);
    assert_eq!(swept.removed.iter().map(|r| r.what).collect::<Vec<_>>(), ["temp", "journal"]);
    assert!(!tree.exists() && outside.exists());
    assert_eq!(sweep(&state, now(), Scope::All).unwrap(), Sweep::default());
}

#[test]
fn a_closed_folder_that_holds_something_is_removed_by_its_owner_however_deep() {
    let folder = tempfile::tempdir().unwrap();
    let top = folder.path().join("top");
    std::fs::create_dir(&top).unwrap();
    // Root is kept out by no mode: then somebody else is the owner.
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        for path in [folder.path(), &top] {
            std::os::unix::fs::chown(path, Some(2001), Some(2001)).unwrap();
        }
    }
    let _owner = is_root.then(|| sys::fsids::FsIdsGuard::user(2001, 2001).unwrap());
    let top = Dir::open(&top).unwrap();
    for name in ["one", "two"] {
        let mut at = top.enter(".", Cross::No).unwrap();
        for _ in 0..3000 {
            at.make(name, Mode::RWXU).unwrap();
            at = at.enter(name, Cross::No).unwrap();
        }
        at.make("full", Mode::RWXU).unwrap();
        let last = at.enter("full", Cross::No).unwrap();
        last.open_file("f", rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY, Mode::RUSR).unwrap();
        at.set_mode("full", Mode::empty()).unwrap();
        top.set_mode(name, Mode::empty()).unwrap();
        top.remove_tree(name).unwrap();
        assert_eq!(top.names().unwrap(), Vec::<std::ffi::OsString>::new());
    }
}

#[test]
fn what_does_not_carry_the_id_or_is_no_cgroup_is_never_removed() {
    let (folder, state) = fresh();
    let precious = folder.path().join("precious");
    std::fs::create_dir(&precious).unwrap();
    std::fs::write(precious.join("file"), "x").unwrap();
    let id = dead_run(&state, &[Resource::Temp(precious.clone()), Resource::Cgroup(precious.clone())]);
    let swept = sweep(&state, now(), Scope::All).unwrap();
    assert_eq!((swept.removed.len(), swept.kept.len()), (0, 2));
    assert!(precious.join("file").exists());
    let fake = folder.path().join(id.as_str());
    std::fs::create_dir(&fake).unwrap();
    assert!(cgroup::remove(&fake, &id).unwrap_err().contains("cgroup file system"));
    assert!(carries(Path::new(&format!("/a/x-{id}/b")), &id) && !carries(Path::new(&format!("/a/{id}/../b")), &id));
}

#[test]
fn old_changes_go_and_new_ones_stay() {
    let (_folder, state) = fresh();
    let id = RunId::new(now()).unwrap();
    drop(changes_of(&state, &id).unwrap());
    assert!(sweep(&state, now(), Scope::All).unwrap().removed.is_empty());
    let later = now() + jiff::SignedDuration::from_hours(15 * 24);
    assert!(sweep(&state, later, Scope::Start).unwrap().removed.is_empty());
    assert_eq!(sweep(&state, later, Scope::All).unwrap().removed.len(), 1);
}

#[test]
fn a_cgroup_with_a_process_in_it_is_ended_and_removed() {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let found = mounts.lines().filter_map(|l| l.split_once(" - cgroup")?.0.split(' ').nth(4).map(PathBuf::from));
    let id = RunId::new(now()).unwrap();
    let mut tried = 0;
    for mount in found {
        let group = mount.join(format!("fumehood-test-{id}"));
        let inner = group.join("inner");
        if std::fs::create_dir(&group).and_then(|()| std::fs::create_dir(&inner)).is_err() {
            continue;
        }
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let joined = std::fs::write(inner.join("cgroup.procs"), child.id().to_string());
        let removed = cgroup_remove_while_reaping(&group, &id, &mut child);
        if joined.is_ok() {
            tried += 1;
        }
        assert_eq!(removed, Ok(true), "{}", group.display());
        assert!(!group.exists());
    }
    assert!(tried > 0 || !rustix::process::geteuid().is_root(), "no cgroup could be tried");
}

fn cgroup_remove_while_reaping(
    group: &Path,
    id: &RunId,
    child: &mut std::process::Child,
) -> std::result::Result<bool, String> {
    std::thread::scope(|scope| {
        let removing = scope.spawn(|| cgroup::remove(group, id));
        let begin = Instant::now();
        while !removing.is_finished() && begin.elapsed().as_secs() < 5 {
            child.try_wait().unwrap();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        removing.join().unwrap()
    })
}

#[test]
#[ignore = "a measurement"]
fn measure_the_look_at_each_start() {
    let (_folder, state) = fresh();
    let rounds = 5000;
    let time = |name: &str, mut work: Box<dyn FnMut() + '_>| {
        let begin = Instant::now();
        (0..rounds).for_each(|_| work());
        println!("{name} {:?}", begin.elapsed() / rounds);
    };
    time("open", Box::new(|| drop(State::open(&places(state.path().into())).unwrap())));
    time("sweep of nothing", Box::new(|| drop(sweep(&state, now(), Scope::Start).unwrap())));
    time(
        "journal",
        Box::new(|| {
            let id = RunId::new(now()).unwrap();
            Journal::begin(&state, id, None, now()).unwrap().end().unwrap();
        }),
    );
}

#[test]
fn control_files_of_a_dead_run_are_put_aside_and_later_ones_are_somebody_elses() {
    let (folder, state) = fresh();
    let root = folder.path().join("work");
    for name in ["a/.git/hooks", "old/.git", "git/objects", "git/refs"] {
        std::fs::create_dir_all(root.join(name)).unwrap();
    }
    for name in [".envrc", ".mcp.json", "plain", "git/HEAD"] {
        std::fs::write(root.join(name), "x").unwrap();
    }
    let stat = rustix::fs::stat(&root).unwrap();
    let text = |names: &[&str]| names.iter().map(|name| PathText((*name).into())).collect::<Vec<_>>();
    let watched = |inode: u64| Watched {
        root: root.clone(),
        is: (stat.st_dev, inode),
        held: text(&["old/.git"]),
        before: text(&[".mcp.json"]),
        git_links: Vec::new(),
    };
    let swept = |inode: u64, lived: std::time::SystemTime| {
        let id = dead_run(&state, &[Resource::Watched(watched(inode))]);
        let journal = std::fs::File::options().append(true).open(state.path().join(format!("runs/{id}.json"))).unwrap();
        journal.set_modified(lived).unwrap();
        drop(journal);
        let swept = sweep(&state, now(), Scope::Start).unwrap();
        assert_eq!(swept.kept, vec![]);
        let files = swept.removed.into_iter().filter(|one| one.what == CONTROL_FILE);
        let mut files: Vec<_> = files.map(|one| one.path.strip_prefix(&root).unwrap().to_owned()).collect();
        files.sort();
        files
    };
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(600);
    assert_eq!(swept(stat.st_ino, long_ago), Vec::<PathBuf>::new(), "made long after it");
    assert_eq!(swept(stat.st_ino + 1, std::time::SystemTime::now()), Vec::<PathBuf>::new(), "another tree");
    let found = swept(stat.st_ino, std::time::SystemTime::now());
    assert_eq!(found, [".envrc", "a/.git", "git/HEAD"].map(PathBuf::from));
    for (name, stays) in
        [(".envrc", false), ("a/.git", false), ("old/.git", true), (".mcp.json", true), ("plain", true)]
    {
        assert_eq!(root.join(name).exists(), stays, "{name}");
    }
    assert_eq!(swept(stat.st_ino, std::time::SystemTime::now()), Vec::<PathBuf>::new(), "twice");
}
