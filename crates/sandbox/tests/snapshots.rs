//! A sandbox that lives, and its files seen from outside: its changes so far, taken to the host while it goes on, and kept as
//! a snapshot of which another can be made.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod live;

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use live::Live;
use sandbox::Error;
use sandbox::changes::{Applied, Change, ChangesError, Guarded, Manifest, Request, apply, discard, load};
use sandbox::snapshot::{self, Snapshot, SnapshotRequest, TMP};
use sandbox::state::{Places, RunId, State};

const LAYERED: [(&str, &str); 3] = [("container", "overlay"), ("container", "copy"), ("process", "copy")];

/// A folder with a workspace in it.
fn host(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    // The payload of root is another user.
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let work = folder.path().join("work");
    std::fs::create_dir(&work).unwrap();
    for (name, text) in files {
        let path = work.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

fn create(folder: tempfile::TempDir, (tier, mode): (&str, &str), more: &[&str]) -> Live {
    let workspace = format!("workspace={{path='{}',mode='{mode}'}}", folder.path().join("work").display());
    let tier = format!("tier={tier}");
    let limits = ["limits.memory=512M", "limits.disk=256M", "limits.wall=300s", "limits.files=50000"];
    let set: Vec<&str> =
        [tier.as_str(), workspace.as_str()].into_iter().chain(limits).chain(more.iter().copied()).collect();
    let mut live = Live::within(folder, &set);
    assert_eq!(live.ask("cd \"${WORKSPACE:-.}\" && echo in"), "in");
    live
}

fn state(live: &Live) -> State {
    let euid = rustix::process::geteuid().as_raw();
    let fumehood_state = Some(live.folder.path().join("state"));
    State::open(&Places { fumehood_state, euid, ..Places::default() }).unwrap()
}

fn run_of(live: &Live) -> RunId {
    live.sandbox.id().parse().unwrap()
}

fn work(live: &Live, name: &str) -> PathBuf {
    live.folder.path().join("work").join(name)
}

/// Whether files can be read at one moment here; where not, each way to ask for it is refused by name.
#[expect(clippy::print_stdout, reason = "who reads the tests sees what was left out")]
fn freezes(live: &Live) -> bool {
    let handle = live.sandbox.handle();
    if handle.freeze(true).is_ok() {
        handle.freeze(false).unwrap();
        return true;
    }
    let refused = |error: Error| {
        assert!(error.is_refusal(), "{error:?}");
        assert_eq!(error.into_faults().first().unwrap().id, "run/not-frozen");
    };
    refused(handle.changes().unwrap_err());
    refused(handle.apply(all()).unwrap_err());
    let writer = snapshot::begin(state(live), &run_of(live), SnapshotRequest::default()).unwrap();
    refused(handle.snapshot(writer).unwrap_err());
    assert_eq!(snapshot::list(&state(live)).unwrap(), []);
    println!("skip: no freezer here");
    false
}

fn all() -> Request {
    Request { paths: None, digest: None, guarded: Guarded::Refuse, leaving_links: true }
}

fn changes(live: &Live) -> Vec<(String, Change)> {
    live.sandbox.handle().changes().unwrap();
    match load(&state(live), &run_of(live)) {
        Err(ChangesError::None { .. }) => Vec::new(),
        other => told(&other.unwrap().0),
    }
}

fn told(manifest: &Manifest) -> Vec<(String, Change)> {
    manifest.entries.iter().map(|entry| (entry.path.display().to_string(), entry.change)).collect()
}

fn take(live: &Live) -> Snapshot {
    let writer = snapshot::begin(state(live), &run_of(live), SnapshotRequest::default()).unwrap();
    live.sandbox.handle().snapshot(writer).unwrap()
}

/// Unpacks into a folder as the agent would.
fn unpack(stream: &[u8], into: &Path) {
    let mut archive = tar::Archive::new(stream);
    archive.set_preserve_permissions(true);
    archive.set_preserve_ownerships(false);
    archive.unpack(into).unwrap();
}

fn workspace_of(snapshot: &Snapshot, into: &Path) {
    for path in snapshot.deletions().unwrap() {
        let path = into.join(path);
        match path.symlink_metadata() {
            Ok(meta) if meta.is_dir() => std::fs::remove_dir_all(path).unwrap(),
            Ok(_) => std::fs::remove_file(path).unwrap(),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound),
        }
    }
    let mut stream = Vec::new();
    snapshot.write_tar(&mut stream).unwrap();
    unpack(&stream, into);
}

fn tmp_of(snapshot: &Snapshot, into: &Path) {
    let mut stream = Vec::new();
    std::io::Read::read_to_end(&mut snapshot.file(TMP).unwrap().unwrap(), &mut stream).unwrap();
    unpack(&stream, into);
}

/// Kind, mode and target or content of all in a folder.
fn tree(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut queue = vec![root.to_owned()];
    while let Some(at) = queue.pop() {
        for entry in std::fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            found.push(if meta.is_dir() {
                queue.push(path);
                format!("{name} d {:o}", meta.mode() & 0o777)
            } else if meta.is_symlink() {
                format!("{name} l {}", path.read_link().unwrap().display())
            } else {
                format!("{name} f {:o} {}", meta.mode() & 0o777, std::fs::read_to_string(&path).unwrap())
            });
        }
    }
    found.sort();
    found
}

#[test]
fn changes_so_far_are_shown_and_those_of_the_end_take_their_place() {
    for kind in LAYERED {
        let mut live = create(host(&[("old", "1"), ("gone", "2")]), kind, &[]);
        if !freezes(&live) {
            continue;
        }
        assert_eq!(changes(&live), [], "{kind:?}");
        live.ask("echo new > new; rm gone; echo 2 > old; echo done");
        let so_far = [("gone", Change::Removed), ("new", Change::Added), ("old", Change::Modified)];
        let so_far = so_far.map(|(name, change)| (name.to_owned(), change));
        assert_eq!(changes(&live), so_far, "{kind:?}");
        // Back as it was: what was kept before goes.
        live.ask("rm new; printf 1 > old; printf 2 > gone; chmod 644 gone; echo done");
        assert_eq!(changes(&live), [], "{kind:?}");
        live.ask("echo last > last; echo done");
        let (state, run) = (state(&live), run_of(&live));
        live.sandbox.kill();
        let Live { sandbox, folder, .. } = live;
        let finished = sandbox.wait().unwrap();
        assert_eq!(finished.failed, [], "{kind:?}");
        assert_eq!(told(&load(&state, &run).unwrap().0), [("last".to_owned(), Change::Added)], "{kind:?}");
        drop(folder);
    }
}

#[test]
fn what_was_paused_stays_paused_and_what_ran_goes_on() {
    let mut live = create(host(&[]), LAYERED[0], &[]);
    if !freezes(&live) {
        return;
    }
    let handle = live.sandbox.handle();
    live.ask("(while :; do echo x >> log; done) 2>/dev/null & while [ ! -s log ]; do :; done; echo started");
    let size = |live: &Live| {
        live.sandbox.handle().changes().unwrap();
        load(&state(live), &run_of(live)).unwrap().0.entries.first().unwrap().size
    };
    let first = size(&live);
    assert_eq!(live.ask("sleep 0.2; echo awake"), "awake");
    assert!(size(&live) > first, "it goes on");
    handle.freeze(true).unwrap();
    let second = size(&live);
    let (_never, silence) = std::sync::mpsc::channel::<()>();
    assert!(silence.recv_timeout(Duration::from_millis(300)).is_err());
    assert_eq!(size(&live), second, "it stands still");
    handle.freeze(false).unwrap();
    assert_eq!(live.ask("echo awake"), "awake");
}

#[test]
fn what_is_applied_meanwhile_changes_nothing_inside_and_is_no_change_any_more() {
    for kind in LAYERED {
        let mut live = create(host(&[("old", "1"), ("gone", "2"), ("folder/in", "3"), ("mine", "4")]), kind, &[]);
        if !freezes(&live) {
            continue;
        }
        let handle = live.sandbox.handle();
        let make = "echo new > new; rm gone; echo 2 > old; mkdir -p made/deep; echo d > made/deep/file; rm -r folder; \
                    mkdir folder; ln -s old link; head -c 9000000 /dev/zero > large; chmod 600 large";
        live.ask(&format!("{make}; echo done"));
        let look = "find . | sort | xargs ls -ld --time-style=+ | md5sum; find . -type f | sort | xargs cat | md5sum";
        let before = live.ask(&format!("{{ {look}; }} | xargs"));
        assert!(matches!(handle.apply(all()).unwrap(), Applied::Done { left: 0, .. }), "{kind:?}");
        assert_eq!(live.ask(&format!("{{ {look}; }} | xargs")), before, "{kind:?}");
        let host = |name: &str| std::fs::read_to_string(work(&live, name)).ok();
        assert_eq!((host("old"), host("gone"), host("folder/in")), (Some("2\n".to_owned()), None, None), "{kind:?}");
        assert_eq!(host("made/deep/file").as_deref(), Some("d\n"), "{kind:?}");
        assert_eq!(changes(&live), [], "{kind:?}");
        // What was taken can be changed, removed and taken again.
        live.ask("echo 3 > old; rm -r made; echo again > gone; rm large; echo done");
        let again = changes(&live);
        assert_eq!(again.len(), 6, "{kind:?} {again:?}");
        assert!(matches!(handle.apply(all()).unwrap(), Applied::Done { .. }), "{kind:?}");
        let host = |name: &str| std::fs::read_to_string(work(&live, name)).ok();
        assert_eq!((host("old"), host("gone")), (Some("3\n".to_owned()), Some("again\n".to_owned())), "{kind:?}");
        assert!(!work(&live, "made").exists() && !work(&live, "large").exists(), "{kind:?}");
        assert_eq!(changes(&live), [], "{kind:?}");
        // Somebody else's work is a conflict as ever.
        live.ask("echo 5 > mine; echo 6 > old; echo done");
        std::fs::write(work(&live, "mine"), "theirs").unwrap();
        std::fs::write(work(&live, "old"), "theirs").unwrap();
        let Applied::Conflicts(conflicts) = handle.apply(all()).unwrap() else { panic!("applied: {kind:?}") };
        assert_eq!(conflicts.len(), 2, "{kind:?} {conflicts:?}");
        assert_eq!(std::fs::read_to_string(work(&live, "old")).unwrap(), "theirs", "{kind:?}");
    }
}

#[test]
fn only_its_supervisor_takes_the_changes_of_one_that_lives() {
    let mut live = create(host(&[]), LAYERED[1], &[]);
    if !freezes(&live) {
        return;
    }
    live.ask("echo new > new; echo done");
    assert_eq!(changes(&live).len(), 1);
    let (state, run) = (state(&live), run_of(&live));
    let lives = Err(ChangesError::Lives { run: run.to_string() });
    let list = sandbox::protect::list();
    let now = jiff::Timestamp::now();
    assert_eq!(apply(&state, &run, &all(), list, now).map(drop), lives);
    assert_eq!(discard(&state, &run), lives);
    assert_eq!(sandbox::changes::discard_at(&state, &run, &["new".into()]).map(drop), lives);
    assert!(!work(&live, "new").exists());
    live.sandbox.kill();
    let Live { sandbox, folder, .. } = live;
    sandbox.wait().unwrap();
    assert!(matches!(apply(&state, &run, &all(), list, now).unwrap(), Applied::Done { .. }));
    assert!(folder.path().join("work/new").exists());
}

#[test]
fn a_snapshot_is_of_one_moment() {
    for kind in LAYERED {
        let mut live = create(host(&[("a", "0"), ("b", "0")]), kind, &[]);
        if !freezes(&live) {
            continue;
        }
        // A before B, and B before C, which lies elsewhere; what was logged first is never behind.
        let turn = "i=$((i+1)); echo $i > a.new; mv a.new a; echo $i > b.new; mv b.new b; echo $i > $HOME/c.new; \
                    mv $HOME/c.new $HOME/c; echo $i >> log";
        live.ask(&format!("(i=0; while :; do {turn}; done) 2>/dev/null & echo started"));
        // The reading of what comes between takes a while: nothing may move meanwhile.
        live.ask("mkdir aa; cd aa; for i in $(seq 500); do echo $i > $i; done; cd ..; while [ ! -e $HOME/c ]; do :; done; echo done");
        let mut seen = Vec::new();
        for _ in 0..8 {
            let snapshot = take(&live);
            let into = tempfile::tempdir().unwrap();
            let (work, tmp) = (into.path().join("work"), into.path().join("tmp"));
            std::fs::create_dir(&work).unwrap();
            std::fs::create_dir(&tmp).unwrap();
            workspace_of(&snapshot, &work);
            tmp_of(&snapshot, &tmp);
            let number = |path: PathBuf| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
            let home = if kind.0 == "container" { tmp.join(".home/c") } else { tmp.join("c") };
            let (a, b) = (number(work.join("a")).unwrap(), number(work.join("b")).unwrap());
            let (c, log) =
                (number(home), std::fs::read_to_string(work.join("log")).unwrap_or_default().lines().count() as u64);
            // A name that is not there stands just before its rename.
            let c = c.unwrap_or(b);
            assert!(
                a >= b && a - b <= 1 && b >= c && b - c <= 1 && c >= log && c - log <= 1,
                "{kind:?} {a} {b} {c} {log}"
            );
            seen.push(a);
        }
        assert!(seen.is_sorted() && seen.first() < seen.last(), "{kind:?} it went on: {seen:?}");
    }
}

#[test]
fn what_is_made_of_a_snapshot_is_what_it_was() {
    for kind in LAYERED {
        let files = [
            ("keep", "same"),
            ("edit", "1"),
            ("gone", "2"),
            ("covered/sub/in", "3"),
            ("becomes", "4"),
            ("dir/in", "5"),
        ];
        let mut live = create(host(&files), kind, &[]);
        if !freezes(&live) {
            continue;
        }
        let make = "echo 2 > edit; rm gone; rm -r covered; mkdir -p covered/sub; echo o > covered/new; rm becomes; \
                    mkdir becomes; echo in > becomes/in; rm -r dir; echo file > dir; ln -s ../../etc/passwd leads; \
                    ln -s a//./b// odd; ln -s /$(printf %0150d 1) long; ln edit linked; \
                    d=deep; for i in $(seq 30); do d=$d/deep$i; done; mkdir -p $d; echo down > $d/file; \
                    echo x > \"$(printf 'line\\nbreak\\377')\"; echo x > -rf; echo x > $(printf %0200d 1); \
                    echo run > run; chmod 755 run; echo closed > closed; chmod 400 closed; mkdir empty; chmod 750 empty; \
                    touch nothing; mkdir many; cd many; seq 10000 | xargs touch; cd ..";
        assert_eq!(live.ask(&format!("{make}; echo done")), "done", "{kind:?}");
        let home = "cd $HOME; echo h > file; ln file second; ln -s file link; mkdir .config; chmod 700 .config; \
                    echo c > .config/c; cd - > /dev/null";
        live.ask(&format!("{home}; echo done"));
        let began = Instant::now();
        let snapshot = take(&live);
        println!("{kind:?}: {} changes in {:?}", snapshot.about().changes, began.elapsed());
        let into = tempfile::tempdir().unwrap();
        let (again, tmp) = (into.path().join("work"), into.path().join("tmp"));
        std::fs::create_dir(&tmp).unwrap();
        let fresh = host(&files);
        std::fs::rename(fresh.path().join("work"), &again).unwrap();
        workspace_of(&snapshot, &again);
        tmp_of(&snapshot, &tmp);
        assert_eq!(std::fs::read_dir(again.join("many")).unwrap().count(), 10_000, "{kind:?}");
        std::fs::remove_dir_all(again.join("many")).unwrap();
        live.ask("rm -r many; echo done");
        // What apply makes of it is what it was inside, as other tests show.
        assert!(matches!(live.sandbox.handle().apply(all()).unwrap(), Applied::Done { .. }), "{kind:?}");
        assert_eq!(tree(&again), tree(&work(&live, "")), "{kind:?}");
        let home = if kind.0 == "container" { tmp.join(".home") } else { tmp.clone() };
        let one = |name: &str| home.join(name).metadata().unwrap().ino();
        assert_eq!(one("file"), one("second"), "{kind:?}");
        assert_eq!(home.join("link").read_link().unwrap(), Path::new("file"), "{kind:?}");
        assert_eq!(home.join(".config").metadata().unwrap().mode() & 0o777, 0o700, "{kind:?}");
        assert!(!home.join("workspace").exists(), "{kind:?}");
        assert_eq!(snapshot.about().left_out, [], "{kind:?}");
        let kept = snapshot::list(&state(&live)).unwrap();
        assert_eq!(kept.iter().map(|about| &about.id).collect::<Vec<_>>(), [snapshot.id()], "{kind:?}");
        snapshot::remove(&state(&live), snapshot.id()).unwrap();
        assert!(matches!(Snapshot::open(&state(&live), snapshot.id()), Err(snapshot::SnapshotError::None { .. })));
    }
}

#[test]
fn writes_to_the_hosts_own_folder_are_no_snapshot() {
    let mut live = create(host(&[]), ("container", "ro"), &[]);
    if !freezes(&live) {
        return;
    }
    live.ask("echo t > /tmp/t; echo done");
    assert_eq!(take(&live).deletions().unwrap(), Vec::<PathBuf>::new(), "what is only read needs no layer");
    let error = live.sandbox.handle().changes().unwrap_err();
    assert_eq!(error.into_faults().first().unwrap().id, "run/no-changes");
    let live = create(host(&[]), ("container", "rw"), &[r#"prefer=["limits.disk","limits.files"]"#]);
    let writer = snapshot::begin(state(&live), &run_of(&live), SnapshotRequest::default()).unwrap();
    let error = live.sandbox.handle().snapshot(writer).unwrap_err();
    assert!(error.is_refusal());
    assert_eq!(error.into_faults().first().unwrap().id, "run/no-changes");
    assert_eq!(std::fs::read_dir(live.folder.path().join("state/snapshots")).unwrap().count(), 1, "the lock alone");
}

#[test]
fn a_sandbox_that_is_ended_waits_for_no_snapshot() {
    let mut live = create(host(&[]), LAYERED[0], &[]);
    if !freezes(&live) {
        return;
    }
    live.ask("mkdir many; cd many; for i in $(seq 40); do head -c 5000000 /dev/urandom > $i; done; echo done");
    let (handle, state, run) = (live.sandbox.handle(), state(&live), run_of(&live));
    let writer = snapshot::begin(state, &run, SnapshotRequest::default()).unwrap();
    let asked = handle.clone();
    let making = std::thread::spawn(move || asked.snapshot(writer).map(drop));
    let (_never, silence) = std::sync::mpsc::channel::<()>();
    assert!(silence.recv_timeout(Duration::from_millis(100)).is_err());
    handle.kill();
    let error = making.join().unwrap().unwrap_err();
    let faults = error.into_faults();
    assert!(["changes/ended", "snapshot/ended"].contains(&faults.first().unwrap().id), "{faults:?}");
    let Live { sandbox, folder, .. } = live;
    sandbox.wait().unwrap();
    assert_eq!(std::fs::read_dir(folder.path().join("state/snapshots")).unwrap().count(), 1, "the lock alone");
}
