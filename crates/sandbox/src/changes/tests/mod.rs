//! Layers as attackers leave them, and workspaces that change meanwhile.
#![expect(clippy::disallowed_methods, reason = "these tests mount, and look at the host")]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use jiff::Timestamp;
use rustix::fs::{CWD, FileType, Mode};

mod access;
mod git;
mod half_done;
mod hard_links;
mod indices;
mod links;
mod objects;
mod races;
mod references;
mod repacked;
mod sparse;
mod steering;
mod tidied;
mod together;
mod worktrees;

use super::*;
use crate::protect::list;
use crate::state::{Cross, Dir, Places, RunId, State};

/// A host with a workspace, a state folder and an empty upper layer.
pub(super) struct Host {
    folder: tempfile::TempDir,
    pub(super) state: State,
    pub(super) run: RunId,
    pub(super) started: (i64, u64),
}

impl Host {
    pub(super) fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let euid = rustix::process::geteuid().as_raw();
        let places = Places { fumehood_state: Some(folder.path().join("state")), euid, ..Places::default() };
        for name in ["work", "upper", "inner", "merged"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        for (name, text) in files {
            put(&folder.path().join("work"), name, text);
        }
        let state = State::open(&places).unwrap();
        let mut host = Self { folder, state, run: RunId::new(Timestamp::now()).unwrap(), started: (0, 0) };
        host.begin();
        host
    }

    /// The run begins now. The clock of the file system ticks every few milliseconds: what was made before is older.
    fn begin(&mut self) {
        std::thread::sleep(std::time::Duration::from_millis(12));
        let now = Timestamp::now();
        self.started = (now.as_second(), u64::from(now.subsec_nanosecond().unsigned_abs()));
    }

    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn work(&self, name: &str) -> PathBuf {
        self.at("work").join(name)
    }

    fn read_upper(&self, bounds: Bounds) -> Manifest {
        let lower = Dir::open(&self.at("work")).unwrap();
        let mut store = Store::begin(&self.state, &self.run, &self.at("work"), &lower, self.started, bounds).unwrap();
        read_upper(&mut store, &Dir::open(&self.at("upper")).unwrap(), &lower, Path::new("")).unwrap();
        store.finish(&self.state).unwrap()
    }

    pub(super) fn read(&self) -> Manifest {
        self.read_upper(Bounds::default())
    }

    fn apply_with(&self, request: &Request) -> Result<Applied, ChangesError> {
        apply(&self.state, &self.run, request, list(), Timestamp::now())
    }

    fn apply(&self) -> Applied {
        self.apply_with(&all()).unwrap()
    }

    pub(super) fn apply_all(&self) -> Applied {
        self.apply()
    }

    /// The changes lie on a disk of so many bytes from here on.
    pub(super) fn fill_state(&self, bytes: usize) -> bool {
        let changes = self.at("state/changes");
        self.state.changes().unwrap();
        let options = format!("size={bytes},mode=0700");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "none"]).arg(changes).status().unwrap().success()
    }

    fn conflicts(&self) -> Vec<(PathBuf, &'static str)> {
        let before = tree(&self.at("work"));
        let Applied::Conflicts(conflicts) = self.apply() else { panic!("applied") };
        assert_eq!(tree(&self.at("work")), before, "nothing may be applied");
        conflicts.into_iter().map(|c| (c.path, c.id)).collect()
    }

    fn diff(&self) -> Diff {
        diff(&self.state, &self.run, None, list(), &[]).unwrap()
    }

    /// Runs a script in a copy of the workspace.
    fn copy(&self, script: &str) -> Baseline {
        let (root, copy) = (Dir::open(&self.at("work")).unwrap(), Dir::open(&self.at("merged")).unwrap());
        let baseline = copy_in(&root, &copy, Bounds::default()).unwrap();
        let done = Command::new("sh").args(["-ec", script]).current_dir(self.at("merged")).status().unwrap();
        assert!(done.success(), "{done}: {script}");
        baseline
    }

    fn read_copied(&self, baseline: &Baseline) -> Manifest {
        let (root, copy) = (Dir::open(&self.at("work")).unwrap(), Dir::open(&self.at("merged")).unwrap());
        let (work, bounds) = (self.at("work"), Bounds::default());
        let mut store = Store::begin(&self.state, &self.run, &work, &root, self.started, bounds).unwrap();
        read_copy(&mut store, &copy, baseline).unwrap();
        store.finish(&self.state).unwrap()
    }
    /// Runs a script in a real overlay over the workspace.
    pub(super) fn overlay(&self, script: &str) {
        let options = format!(
            "lowerdir={},upperdir={},workdir={},userxattr",
            self.at("work").display(),
            self.at("upper").display(),
            self.at("inner").display()
        );
        let run = |program: &str, args: &[&str]| Command::new(program).args(args).status().unwrap().success();
        let merged = self.at("merged").display().to_string();
        assert!(run("mount", &["-t", "overlay", "-o", &options, "overlay", &merged]), "under scripts/private-mounts");
        let done = Command::new("sh").args(["-ec", script]).current_dir(&merged).status().unwrap();
        // Whoever of git's own is in it still for a moment has nothing to write any more.
        assert!(run("umount", &["-l", &merged]));
        assert!(done.success(), "{done}: {script}");
    }
}

fn all() -> Request {
    Request { paths: None, digest: None, guarded: Guarded::Refuse, leaving_links: false }
}

pub(super) fn put(root: &Path, name: &str, text: &str) {
    let path = root.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// Everything in a tree: path, mode, content or target.
pub(super) fn tree(root: &Path) -> Vec<(PathBuf, u32, Vec<u8>)> {
    let mut found = Vec::new();
    let mut queue = vec![root.to_owned()];
    while let Some(at) = queue.pop() {
        for entry in std::fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            let meta = std::fs::symlink_metadata(&path).unwrap();
            let content = if meta.is_dir() {
                queue.push(path.clone());
                vec![]
            } else if meta.is_symlink() {
                std::fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec()
            } else if meta.len() == 0 {
                vec![]
            } else {
                std::fs::read(&path).unwrap()
            };
            found.push((path.strip_prefix(root).unwrap().to_owned(), meta.mode() & 0o7777, content));
        }
    }
    found.sort();
    found
}

pub(super) fn changes(manifest: &Manifest) -> Vec<(String, Change)> {
    manifest.entries.iter().map(|e| (e.path.display().to_string(), e.change)).collect()
}

fn paths(manifest: &[Refused]) -> Vec<String> {
    manifest.iter().map(|r| r.path.display().to_string()).collect()
}

#[test]
fn a_real_overlay_is_read_back_and_applied_exactly() {
    let host = Host::new(&[
        ("keep", "same"),
        ("edit", "old\n"),
        ("gone", "x"),
        ("dir/a", "1"),
        ("dir/b/c", "2"),
        ("re/x", "1"),
        ("re/y", "2"),
        ("file2dir", "f"),
        ("dir2file/in", "d"),
        ("mode", "m"),
    ]);
    host.overlay("echo new > edit; rm gone; rm -r dir; touch keep; rm -r re; mkdir re; echo 3 > re/x; rm file2dir; mkdir file2dir; echo i > file2dir/in;
        rm -r dir2file; echo f > dir2file; chmod 755 mode; mkdir -p n/m; echo hi > n/m/f; ln -s f n/m/l; mv edit moved; mv moved edit");
    let manifest = host.read();
    let expected = [
        ("dir", Change::Removed),
        ("dir/a", Change::Removed),
        ("dir/b", Change::Removed),
        ("dir/b/c", Change::Removed),
        ("dir2file", Change::Removed),
        ("dir2file", Change::Added),
        ("dir2file/in", Change::Removed),
        ("edit", Change::Modified),
        ("file2dir", Change::Removed),
        ("file2dir", Change::Added),
        ("file2dir/in", Change::Added),
        ("gone", Change::Removed),
        ("mode", Change::Modified),
        ("n", Change::Added),
        ("n/m", Change::Added),
        ("n/m/f", Change::Added),
        ("n/m/l", Change::Added),
        ("re/x", Change::Modified),
        ("re/y", Change::Removed),
    ];
    assert_eq!(changes(&manifest), expected.map(|(p, c)| (p.to_owned(), c)));
    assert!(manifest.refused.is_empty() && manifest.entries.iter().all(|e| !e.touched), "{:?}", manifest.refused);
    let digest = host.diff().digest;
    let applied = host.apply_with(&Request { digest: Some(digest), ..all() }).unwrap();
    assert!(matches!(applied, Applied::Done { .. }), "{applied:?}");
    host.overlay("true");
    let names: Vec<_> = tree(&host.at("work"))
        .into_iter()
        .map(|(p, _, c)| (p.display().to_string(), String::from_utf8(c).unwrap()))
        .collect();
    let expected = [
        ("dir2file", "f\n"),
        ("edit", "new\n"),
        ("file2dir", ""),
        ("file2dir/in", "i\n"),
        ("keep", "same"),
        ("mode", "m"),
        ("n", ""),
        ("n/m", ""),
        ("n/m/f", "hi\n"),
        ("n/m/l", "f"),
        ("re", ""),
        ("re/x", "3\n"),
    ];
    assert_eq!(names, expected.map(|(p, c)| (p.to_owned(), c.to_owned())));
    assert_eq!(std::fs::metadata(host.work("mode")).unwrap().mode() & 0o777, 0o755);
    assert!(matches!(load(&host.state, &host.run), Err(ChangesError::None { .. })), "nothing is left of it");
    assert!(host.state.runs().unwrap().names().unwrap().is_empty());
}

#[test]
fn nothing_changed_leaves_nothing_behind() {
    let host = Host::new(&[("a", "x")]);
    host.overlay("touch a; cat a; mkdir t; rmdir t");
    assert!(host.read().entries.is_empty());
    assert!(runs(&host.state).unwrap().is_empty());
}

#[test]
fn pipes_sockets_devices_and_forged_attributes_are_refused_without_hanging() {
    let host = Host::new(&[("victim/secret", "s"), ("a", "x")]);
    let upper = host.at("upper");
    rustix::fs::mknodat(CWD, upper.join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let device = rustix::fs::makedev(1, 5);
    match rustix::fs::mknodat(CWD, upper.join("zero"), FileType::CharacterDevice, Mode::RUSR, device) {
        // Only the real root makes devices: a socket stands in.
        Err(rustix::io::Errno::PERM) => drop(std::os::unix::net::UnixListener::bind(upper.join("zero")).unwrap()),
        made => made.unwrap(),
    }
    drop(std::os::unix::net::UnixListener::bind(upper.join("sock")).unwrap());
    put(&upper, "meta", "");
    put(&upper, "moved/x", "y");
    put(&upper, "wide", "");
    let set = |name: &str, key: &str, value: &[u8]| {
        rustix::fs::setxattr(upper.join(name), key, value, rustix::fs::XattrFlags::empty()).unwrap()
    };
    set("meta", "user.overlay.metacopy", b"");
    set("moved", "user.overlay.redirect", b"/victim");
    set("wide", "user.overlay.redirect", &[b'a'; 1000]);
    let manifest = host.read();
    assert_eq!(paths(&manifest.refused), ["meta", "moved", "pipe", "sock", "wide", "zero"]);
    assert!(manifest.entries.is_empty(), "{:?}", manifest.entries);
    assert!(host.diff().text().contains("pipe: a named pipe"));
}

#[test]
fn set_user_id_bits_and_owners_stay_behind() {
    let mut host = Host::new(&[("old", "1")]);
    if rustix::process::geteuid().is_root() {
        chown(host.at("work"), Some(1234), Some(4321)).unwrap();
        chown(host.work("old"), Some(1234), Some(78)).unwrap();
    }
    host.begin();
    let owner = |name: &str| std::fs::metadata(host.at(name)).map(|m| (m.uid(), m.gid())).unwrap();
    // In somebody's workspace root has that user's rights alone; a file keeps its group.
    let (of_new, of_old) = (owner("work"), owner("work/old"));
    for name in ["new", "old"] {
        put(&host.at("upper"), name, "#!/bin/sh\n");
        std::fs::set_permissions(host.at("upper").join(name), std::fs::Permissions::from_mode(0o6755)).unwrap();
    }
    let manifest = host.read();
    assert!(manifest.entries.iter().all(|e| e.stripped && e.mode == 0o755));
    assert!(matches!(host.apply(), Applied::Done { .. }));
    let look = |name: &str| std::fs::metadata(host.work(name)).map(|m| (m.mode() & 0o7777, m.uid(), m.gid())).unwrap();
    assert_eq!((look("new"), look("old")), ((0o755, of_new.0, of_new.1), (0o755, of_old.0, of_old.1)));
}

#[test]
fn whatever_changed_on_the_host_meanwhile_is_a_conflict_and_nothing_is_applied() {
    let host = Host::new(&[("edit", "1"), ("gone", "1"), ("lost", "1"), ("dir/a", "1"), ("touch", "1"), ("fine", "1")]);
    host.overlay(
        "echo 2 > edit; rm gone; echo 2 > lost; rm -r dir; echo 2 > touch; echo 2 > fine; echo 2 > made; echo 2 > same",
    );
    host.read();
    std::fs::write(host.work("edit"), "9").unwrap();
    std::fs::write(host.work("gone"), "99").unwrap();
    std::fs::remove_file(host.work("lost")).unwrap();
    std::fs::write(host.work("made"), "9").unwrap();
    std::fs::write(host.work("same"), "2\n").unwrap();
    std::fs::write(host.work("touch"), "1").unwrap();
    let found = host.conflicts();
    let expected = [("edit", "changed"), ("gone", "changed"), ("lost", "missing"), ("made", "exists")];
    assert_eq!(found, expected.map(|(p, id)| (PathBuf::from(p), id)));
    std::fs::write(host.work("dir/new"), "").unwrap();
    for (name, text) in [("edit", "1"), ("gone", "1"), ("lost", "1")] {
        std::fs::write(host.work(name), text).unwrap();
    }
    std::fs::remove_file(host.work("made")).unwrap();
    assert_eq!(host.conflicts(), [(PathBuf::from("dir"), "not-empty")], "and what was done before it is taken back");
    std::fs::remove_file(host.work("dir/new")).unwrap();
    assert!(matches!(host.apply(), Applied::Done { .. }));
    assert_eq!(std::fs::read_to_string(host.work("fine")).unwrap(), "2\n");
}

#[test]
fn a_change_on_the_host_during_the_run_is_a_conflict() {
    let host = Host::new(&[("a", "1"), ("b", "1")]);
    std::thread::sleep(std::time::Duration::from_millis(12));
    put(&host.at("upper"), "a", "run");
    std::fs::write(host.work("a"), "host").unwrap();
    let manifest = host.read();
    assert!(manifest.entries[0].touched);
    assert_eq!(host.conflicts(), [(PathBuf::from("a"), "touched")]);
}

#[test]
fn protected_paths_are_refused_left_or_taken_by_name() {
    let host = Host::new(&[("a", "1")]);
    for (name, text) in
        [(".git/hooks/pre-commit", "evil"), (".mcp.json", "{}"), ("a", "2"), ("sub/.git", "gitdir: /tmp/evil\n")]
    {
        put(&host.at("upper"), name, text);
    }
    host.read();
    let expected = [".git", ".git/hooks", ".git/hooks/pre-commit", ".mcp.json", "sub/.git"];
    let expected = expected.map(|p| (PathBuf::from(p), "protected"));
    assert_eq!(host.conflicts(), expected);
    let take = Guarded::Take(vec![".mcp.json".into()]);
    assert!(
        matches!(host.apply_with(&Request { guarded: take.clone(), ..all() }), Ok(Applied::Conflicts(c)) if c.len() == 4)
    );
    let chosen = Request { paths: Some(vec![".mcp.json".into()]), guarded: take, ..all() };
    assert!(matches!(host.apply_with(&chosen), Ok(Applied::Done { .. })));
    let left = host.apply_with(&Request { guarded: Guarded::Leave, ..all() }).unwrap();
    assert!(matches!(left, Applied::Done { left: 4, .. }), "{left:?}");
    assert!(host.work(".mcp.json").exists() && !host.work(".git/hooks").exists() && !host.work("sub/.git").exists());
    assert_eq!(load(&host.state, &host.run).unwrap().0.entries.len(), 4, "what was left stays with the run");
    discard(&host.state, &host.run).unwrap();
    assert!(matches!(discard(&host.state, &host.run), Err(ChangesError::None { .. })));
}

#[test]
fn only_what_was_shown_is_taken() {
    let host = Host::new(&[("a", "1")]);
    put(&host.at("upper"), "a", "2");
    put(&host.at("upper"), "b/c", "2");
    host.read();
    let shown = host.diff().digest;
    let some = Some(vec![PathBuf::from("b")]);
    let of_some = diff(&host.state, &host.run, some.as_deref(), list(), &[]).unwrap().digest;
    assert_ne!(shown, of_some);
    let wrong = Request { paths: some, digest: Some(shown.clone()), ..all() };
    assert!(matches!(host.apply_with(&wrong), Err(ChangesError::Digest { .. })));
    assert!(matches!(
        host.apply_with(&Request { paths: Some(vec!["zz".into()]), ..all() }),
        Err(ChangesError::NoSuchPath { .. })
    ));
    // A blob that was exchanged after it was shown.
    let blobs = host.at("state").join("changes").join(host.run.as_str()).join("blobs");
    for blob in std::fs::read_dir(&blobs).unwrap() {
        std::fs::write(blob.unwrap().path(), "3").unwrap();
    }
    let before = tree(&host.at("work"));
    assert!(matches!(
        host.apply_with(&Request { digest: Some(shown), ..all() }),
        Err(ChangesError::Write { errno: rustix::io::Errno::BADMSG, .. })
    ));
    assert_eq!(tree(&host.at("work")), before);
}

#[test]
fn hostile_names_and_contents_are_shown_without_acting() {
    let host = Host::new(&[]);
    let upper = host.at("upper");
    for name in [&b"a\nb\x1b[2J"[..], b"\xff\xfe", b"-rf", "x\u{202e}y".as_bytes(), b"$(id)", b"PROGRA~1", b"a\\b"] {
        std::fs::write(upper.join(OsStr::from_bytes(name)), "z").unwrap();
    }
    put(&upper, "text", "ok \u{1b}]0;owned\u{7}\nif a\u{202e}\u{2066} {\r\n");
    put(&upper, "Makefile", "all:\n\tsh\n");
    put(&upper, "docs/AGENTS.md", "hello\u{200b}");
    std::fs::write(upper.join("bin"), [0, 159, 146, 150]).unwrap();
    host.read();
    let shown = host.diff();
    let text = shown.text();
    assert!(text.chars().all(|c| c == '\n' || c == '\t' || !crate::fault::is_unsafe_to_show(c)), "{text}");
    let has = |name: &str, id: &str| shown.entries.iter().any(|e| e.name == name && e.marks.iter().any(|m| m.id == id));
    assert!(has("text", "hidden-text") && has("docs/AGENTS.md", "hidden-text") && has("docs/AGENTS.md", "instructs"));
    assert!(
        has("Makefile", "executes")
            && has("-rf", "hard-name")
            && has("\\xff\\xfe", "hard-name")
            && has("$(id)", "hard-name")
            && has("PROGRA~1", "hard-name")
            && !has("text", "hard-name")
    );
    assert!(text.contains("+all:\n+\tsh\n") && text.contains("not shown as text: 0 -> 4 bytes"), "{text}");
    let json = serde_json::to_string(&shown).unwrap();
    assert!(json.contains("\"hex\":\"fffe\"") && !json.contains('\u{202e}') || json.contains("x\u{202e}y"));
    assert!(matches!(host.apply(), Applied::Done { .. }));
    assert!(host.work("").join(OsStr::from_bytes(b"\xff\xfe")).exists(), "the bytes of a name are the name");
}

#[test]
fn bounds_hold_for_sparse_giants_many_files_and_deep_trees() {
    let host = Host::new(&[]);
    let giant = std::fs::File::create(host.at("upper").join("giant")).unwrap();
    giant.set_len(1 << 40).unwrap();
    for i in 0..30 {
        put(&host.at("upper"), &format!("f{i:02}"), "x");
    }
    let mut at = Dir::open(&host.at("upper")).unwrap();
    for _ in 0..400 {
        at.make("d", Mode::RWXU).unwrap();
        at = at.enter("d", Cross::No).unwrap();
    }
    let manifest = host.read_upper(Bounds { bytes: 1 << 20, entries: 140, ..Bounds::default() });
    assert_eq!(manifest.entries.len(), 140);
    assert!(paths(&manifest.refused).contains(&"giant".into()));
    assert!(manifest.refused.iter().any(|r| r.why == "too deep"));
}

#[test]
fn a_file_with_many_names_is_taken_once() {
    let host = Host::new(&[]);
    put(&host.at("upper"), "one", &"x".repeat(600));
    for i in 0..20 {
        std::fs::hard_link(host.at("upper").join("one"), host.at("upper").join(format!("name{i}"))).unwrap();
    }
    put(&host.at("upper"), "other", &"y".repeat(300));
    let manifest = host.read_upper(Bounds { bytes: 1000, entries: 140, ..Bounds::default() });
    assert_eq!(manifest.entries.len(), 22);
    let told: Vec<_> = manifest.refused.iter().map(|refused| refused.why.as_str()).collect();
    assert!(told.len() == 9 && told[8].starts_with("12 more hard links"), "one by one, but not all: {told:?}");
}

#[test]
fn an_apply_that_was_ended_half_way_is_finished_by_the_next() {
    let host = Host::new(&[("a", "1"), ("b", "1"), ("c", "1")]);
    host.overlay("echo 2 > a; echo 2 > b; rm c; mkdir d; echo 2 > d/e");
    host.read();
    std::fs::write(host.work("a"), "2\n").unwrap();
    std::fs::remove_file(host.work("c")).unwrap();
    std::fs::create_dir(host.work("d")).unwrap();
    assert!(matches!(host.apply(), Applied::Done { .. }));
    assert_eq!(tree(&host.at("work")).len(), 4);
}

#[test]
fn a_copy_is_compared_with_what_was_copied() {
    let host = Host::new(&[("a", "1"), ("b", "1"), ("same", "1"), ("dir/x", "1"), ("suid", "1"), ("t/f", "1")]);
    std::fs::set_permissions(host.work("suid"), std::fs::Permissions::from_mode(0o4755)).unwrap();
    rustix::fs::mknodat(CWD, host.work("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    symlink("/etc", host.work("link")).unwrap();
    let root = Dir::open(&host.at("work")).unwrap();
    let copy = Dir::open(&host.at("inner")).unwrap();
    let baseline = copy_in(&root, &copy, Bounds::default()).unwrap();
    assert_eq!(paths(&baseline.refused), ["pipe"]);
    let inner = host.at("inner");
    assert_eq!(std::fs::metadata(inner.join("suid")).unwrap().mode() & 0o7777, 0o755);
    std::fs::write(inner.join("a"), "2").unwrap();
    std::fs::remove_file(inner.join("b")).unwrap();
    std::fs::write(inner.join("same"), "1").unwrap();
    std::fs::remove_dir_all(inner.join("dir")).unwrap();
    std::fs::write(inner.join("dir"), "file").unwrap();
    put(&inner, "n/m", "new");
    // A change that hides behind its old times is still seen: the inode's change time cannot be set back.
    let old = std::fs::metadata(inner.join("t/f")).unwrap().modified().unwrap();
    std::fs::write(inner.join("t/f"), "2").unwrap();
    std::fs::File::options().write(true).open(inner.join("t/f")).unwrap().set_modified(old).unwrap();
    let mut store =
        Store::begin(&host.state, &host.run, &host.at("work"), &root, (i64::MAX, 0), Bounds::default()).unwrap();
    read_copy(&mut store, &copy, &baseline).unwrap();
    let manifest = store.finish(&host.state).unwrap();
    let expected = [
        ("a", Change::Modified),
        ("b", Change::Removed),
        ("dir", Change::Removed),
        ("dir", Change::Added),
        ("dir/x", Change::Removed),
        ("n", Change::Added),
        ("n/m", Change::Added),
        ("t/f", Change::Modified),
    ];
    assert_eq!(changes(&manifest), expected.map(|(p, c)| (p.to_owned(), c)));
    assert!(matches!(host.apply(), Applied::Done { .. }));
    assert_eq!(std::fs::read_to_string(host.work("dir")).unwrap(), "file");
    let too_small = copy_in(&root, &Dir::open(&host.at("merged")).unwrap(), Bounds { bytes: 2, entries: 100, list: 0 });
    assert!(matches!(too_small, Err(ChangesError::TooLarge { errno: rustix::io::Errno::FBIG, .. })));
}

/// As nobody: root reads whatever is closed.
#[test]
fn what_a_copy_does_not_let_anybody_read_was_not_removed() {
    let host = Host::new(&[("old/f", "1"), ("old/d/g", "1"), ("named/f", "1"), ("gone/f", "1"), ("a", "1")]);
    let root = Dir::open(&host.at("work")).unwrap();
    let inner = host.at("inner");
    let copy = Dir::open(&inner).unwrap();
    let baseline = copy_in(&root, &copy, Bounds::default()).unwrap();
    std::fs::remove_dir_all(inner.join("gone")).unwrap();
    std::fs::write(inner.join("a"), "2").unwrap();
    put(&inner, "new/x", "1");
    let closed = [("old", 0o311), ("named", 0o644), ("new", 0)];
    for (name, mode) in closed {
        std::fs::set_permissions(inner.join(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let mut store =
        Store::begin(&host.state, &host.run, &host.at("work"), &root, (i64::MAX, 0), Bounds::default()).unwrap();
    let (me, state) = (rustix::process::geteuid(), host.at("state"));
    let nobody = me.is_root().then(|| {
        give(&inner, 65534);
        give(&state, 65534);
        sys::fsids::FsIdsGuard::user(65534, 65534).unwrap()
    });
    read_copy(&mut store, &copy, &baseline).unwrap();
    drop(nobody);
    give(&state, me.as_raw());
    let manifest = store.finish(&host.state).unwrap();
    let expected = [("a", Change::Modified), ("gone", Change::Removed), ("gone/f", Change::Removed)];
    assert_eq!(changes(&manifest), expected.map(|(p, c)| (p.to_owned(), c)));
    assert_eq!(paths(&manifest.refused), ["named", "new", "old"]);
    assert!(matches!(host.apply(), Applied::Done { .. }));
    assert_eq!(std::fs::read_to_string(host.work("old/d/g")).unwrap(), "1");
    assert!(host.work("named/f").exists() && !host.work("gone").exists());
}

fn give(path: &Path, to: u32) {
    chown(path, Some(to), Some(to)).unwrap();
    if path.is_dir() {
        std::fs::read_dir(path).unwrap().for_each(|entry| give(&entry.unwrap().path(), to));
    }
}

#[test]
fn the_newest_run_of_a_workspace_is_found_from_inside_it() {
    let mut host = Host::new(&[("a", "1")]);
    put(&host.at("upper"), "a", "2");
    host.read();
    let first = host.run.clone();
    host.run = "r-29990101-000000-000000".parse().unwrap();
    host.read();
    assert_eq!(newest(&host.state, &host.work("some/where")).unwrap(), host.run);
    assert_eq!(runs(&host.state).unwrap(), [host.run.clone(), first]);
    assert!(
        matches!(newest(&host.state, &host.at("workx")), Err(ChangesError::None { .. })),
        "by parts, not by letters"
    );
    std::fs::rename(host.at("work"), host.at("old")).unwrap();
    std::fs::create_dir(host.at("work")).unwrap();
    assert!(matches!(host.apply_with(&all()), Err(ChangesError::Moved { .. })));
}

#[test]
fn a_folder_becomes_a_link() {
    let host = Host::new(&[("d/x", "1"), ("d/sub/y", "1"), ("other/x", "2")]);
    host.overlay("rm -r d; ln -s other d");
    host.read();
    assert!(matches!(host.apply(), Applied::Done { .. }));
    assert_eq!(std::fs::read_link(host.work("d")).unwrap(), Path::new("other"));
    assert_eq!(std::fs::read_to_string(host.work("other/x")).unwrap(), "2");
}
