//! Snapshots without a sandbox: names, room, what a full disk or a killed maker leaves, and hostile folders.
#![expect(clippy::disallowed_methods, reason = "these tests mount, and look at the host")]

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{CWD, FileType};

use super::*;
use crate::changes::{Bounds, Store, Until, read_upper};
use crate::state::{Places, RunId};

struct Host {
    folder: tempfile::TempDir,
    run: RunId,
}

impl Host {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["work", "upper", "tmp"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self { folder, run: RunId::new(Timestamp::now()).unwrap() }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn state(&self) -> State {
        let euid = rustix::process::geteuid().as_raw();
        State::open(&Places { fumehood_state: Some(self.at("state")), euid, ..Places::default() }).unwrap()
    }

    fn begin(&self, name: Option<&str>) -> Result<Writer, SnapshotError> {
        begin(
            self.state(),
            &self.run,
            SnapshotRequest { name: name.map(str::to_owned), layers: serde_json::json!([1]) },
        )
    }

    /// The changes of a layer, as the run's supervisor keeps them.
    fn changes(&self) -> crate::changes::Manifest {
        let (state, work) = (self.state(), self.at("work"));
        let lower = Dir::open(&work).unwrap();
        let mut store = Store::begin(&state, &self.run, &work, &lower, (0, 0), Bounds::default()).unwrap();
        read_upper(&mut store, &Dir::open(&self.at("upper")).unwrap(), &lower, Path::new("")).unwrap();
        store.finish(&state).unwrap()
    }

    fn left(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.at("state/snapshots")).unwrap();
        let mut names: Vec<String> = names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| name != LOCK);
        names.sort();
        names
    }
}

fn pack_all(folder: &Path, packing: &Packing<'_>) -> (Packed, Vec<(String, char)>) {
    let mut stream = Vec::new();
    let packed = pack(&Dir::open(folder).unwrap(), &mut stream, packing).unwrap();
    let mut archive = tar::Archive::new(stream.as_slice());
    let kind = |entry: &tar::Entry<'_, &[u8]>| {
        let kind = entry.header().entry_type();
        let known = [(kind.is_file(), 'f'), (kind.is_dir(), 'd'), (kind.is_symlink(), 's'), (kind.is_hard_link(), 'h')];
        known.into_iter().find_map(|(is, letter)| is.then_some(letter)).unwrap()
    };
    let members = archive.entries().unwrap().map(|entry| {
        let entry = entry.unwrap();
        assert_eq!((entry.header().uid().unwrap(), entry.header().gid().unwrap()), (0, 0));
        (entry.path().unwrap().display().to_string(), kind(&entry))
    });
    let members = members.collect();
    (packed, members)
}

#[test]
fn names_are_plain_and_unique_and_there_is_an_end() {
    let host = Host::new();
    let id = "0123456789abcdef0123";
    for name in ["", "-a", ".a", "A", "a/b", "a b", "ä", "a\n", id, &"a".repeat(64)] {
        assert_eq!(host.begin(Some(name)).map(drop), Err(SnapshotError::Name { name: name.to_owned() }));
    }
    let first = host.begin(Some("base_1.0-x")).unwrap().finish().unwrap();
    assert_eq!((first.id().len(), first.about().name.as_deref()), (20, Some("base_1.0-x")));
    let taken = SnapshotError::Taken { name: "base_1.0-x".to_owned(), by: first.id().to_owned() };
    assert_eq!(host.begin(Some("base_1.0-x")).map(drop), Err(taken.clone()));
    let told = format!("{:?}", taken.fault());
    assert!(!told.contains(first.id()), "whose it is is not told: {told}");
    // Two that are made at once: the one that is whole first has the name.
    let (one, other) = (host.begin(Some("both")).unwrap(), host.begin(Some("both")).unwrap());
    let one = one.finish().unwrap();
    assert!(matches!(other.finish(), Err(SnapshotError::Taken { .. })));
    let state = host.state();
    assert_eq!(Snapshot::open(&state, "both").unwrap().id(), one.id());
    assert_eq!(Snapshot::open(&state, one.id()).unwrap().about(), one.about());
    assert_eq!(list(&state).unwrap().len(), 2);
    remove(&state, "both").unwrap();
    remove(&state, first.id()).unwrap();
    for word in ["both", first.id(), "../../etc", id] {
        assert_eq!(remove(&state, word), Err(SnapshotError::None { word: word.to_owned() }));
    }
    assert_eq!(host.left(), Vec::<String>::new());
    for _ in 0..MAX_SNAPSHOTS {
        host.begin(None).unwrap().finish().unwrap();
    }
    assert_eq!(host.begin(None).map(drop), Err(SnapshotError::TooMany { most: MAX_SNAPSHOTS }));
}

#[test]
fn of_machines_fewer_are_kept_and_what_is_not_as_it_was_written_is_damaged() {
    use std::io::{Read as _, Write as _};

    let host = Host::new();
    let machine = |name: &str| {
        let mut writer = host.begin(Some(name)).unwrap();
        for file in ["memory", "root"] {
            writer.file(file).unwrap().write_all(file.as_bytes()).unwrap();
        }
        let sum = |text: &str| policy::json::hex(&<sha2::Sha256 as sha2::Digest>::digest(text));
        let memory = Memory { kind: "kind".into(), digest: sum("memory"), root: sum("root"), machine_id: None };
        writer.about.memory = Some(memory);
        writer.finish()
    };
    for number in 0..MAX_MEMORIES {
        machine(&number.to_string()).unwrap();
    }
    assert_eq!(machine("more").map(drop), Err(SnapshotError::TooManyMachines { most: MAX_MEMORIES }));
    // The control: there is room for others.
    let other = host.begin(None).unwrap().finish().unwrap();
    assert!(other.memory().unwrap().is_none());
    let open = |name: &str| Snapshot::open(&host.state(), name).unwrap();
    let whole = open("0").memory().unwrap().unwrap();
    let mut text = String::new();
    (&whole.state).read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), whole.kind.as_str()), ("memory", "kind"));
    for (number, file) in ["memory", "root"].iter().enumerate() {
        let (name, found) = (number.to_string(), open(&number.to_string()));
        let path = host.at("state/snapshots").join(found.id()).join(file);
        std::fs::write(&path, "other").unwrap();
        assert_eq!(
            found.memory().map(drop),
            Err(SnapshotError::Damaged { id: found.id().to_owned() }),
            "{name} {file}"
        );
        std::fs::remove_file(&path).unwrap();
        assert!(found.memory().is_err(), "{name} {file}");
    }
}

#[test]
fn what_a_killed_maker_left_is_swept_and_what_lives_is_not() {
    let host = Host::new();
    let state = host.state();
    let (whole, making) = (host.begin(None).unwrap().finish().unwrap(), host.begin(None).unwrap());
    making.file("other.tar").unwrap();
    let dead = state.snapshots().unwrap();
    dead.make(".new-0123456789abcdef0123", Mode::RWXU).unwrap();
    std::fs::write(host.at("state/snapshots/.new-0123456789abcdef0123/tmp.tar"), "half").unwrap();
    let swept = crate::gc::sweep(&state, Timestamp::now(), crate::gc::Scope::All).unwrap();
    let paths: Vec<_> = swept.removed.iter().map(|removed| (removed.what, removed.path.clone())).collect();
    assert_eq!(paths, [("snapshot", host.at("state/snapshots/.new-0123456789abcdef0123"))]);
    let (id, unfinished) = (whole.id().to_owned(), format!(".new-{}", making.id()));
    assert_eq!(host.left(), [unfinished, id.clone()]);
    assert_eq!(list(&state).unwrap().len(), 1, "nobody sees what is not whole");
    let finished = making.finish().unwrap();
    assert!(finished.file("other.tar").unwrap().is_some());
    drop(host.begin(None).unwrap());
    assert_eq!(host.left().len(), 2);
    let mode = |path: PathBuf| path.symlink_metadata().unwrap().mode() & 0o777;
    let folder = host.at("state/snapshots");
    assert_eq!(
        (mode(folder.clone()), mode(folder.join(&id)), mode(folder.join(&id).join(ABOUT))),
        (0o700, 0o700, 0o600)
    );
}

#[test]
fn a_maker_that_is_killed_leaves_nothing_after_a_sweep() {
    const CHILD: &str = "FUMEHOOD_TEST_SNAPSHOT_CHILD";
    if let Some(state) = std::env::var_os(CHILD) {
        let euid = rustix::process::geteuid().as_raw();
        let state = State::open(&Places { fumehood_state: Some(state.into()), euid, ..Places::default() }).unwrap();
        let writer = begin(state, &RunId::new(Timestamp::now()).unwrap(), SnapshotRequest::default()).unwrap();
        writer.file(TMP).unwrap().set_len(1 << 20).unwrap();
        println!("begun");
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
    }
    let host = Host::new();
    let state = host.state();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "snapshot::tests::a_maker_that_is_killed_leaves_nothing_after_a_sweep", "--nocapture"])
        .env(CHILD, host.at("state"))
        .output()
        .unwrap();
    assert!(!child.status.success() && String::from_utf8_lossy(&child.stdout).contains("begun"));
    assert_eq!(host.left().len(), 1);
    crate::gc::sweep(&state, Timestamp::now(), crate::gc::Scope::All).unwrap();
    assert_eq!(host.left(), Vec::<String>::new());
}

#[test]
fn a_full_disk_leaves_nothing() {
    let host = Host::new();
    std::fs::create_dir(host.at("state")).unwrap();
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=1m,mode=0700", "none"]).arg(host.at("state"));
    if !mount.status().unwrap().success() {
        println!("skip: no mount here");
        return;
    }
    std::fs::write(host.at("tmp/large"), vec![7; 2 << 20]).unwrap();
    let mut writer = host.begin(None).unwrap();
    let packed = writer.tmp(&Dir::open(&host.at("tmp")).unwrap(), &Packing::default());
    let is_full = |error: &SnapshotError| {
        matches!(error, SnapshotError::State(StateError::NotWritable { errno: Errno::NOSPC, .. }))
    };
    assert!(is_full(&packed.unwrap_err()));
    drop(writer);
    assert_eq!(host.left(), Vec::<String>::new());
    // With less in it, it goes.
    std::fs::write(host.at("tmp/large"), vec![7; 1 << 19]).unwrap();
    let mut writer = host.begin(None).unwrap();
    writer.tmp(&Dir::open(&host.at("tmp")).unwrap(), &Packing::default()).unwrap();
    writer.finish().unwrap();
    assert!(Command::new("umount").arg(host.at("state")).status().unwrap().success());
}

#[test]
fn of_a_hostile_folder_what_can_be_packed_is_and_the_rest_is_named() {
    let host = Host::new();
    let tmp = host.at("tmp");
    for name in ["file", "-rf", "line\nbreak", "fumehood"] {
        std::fs::write(tmp.join(name), name).unwrap();
    }
    std::fs::set_permissions(tmp.join("file"), std::fs::Permissions::from_mode(0o4755)).unwrap();
    std::fs::hard_link(tmp.join("file"), tmp.join("second")).unwrap();
    symlink("/etc/shadow", tmp.join("leads")).unwrap();
    symlink("a//./b/", tmp.join("odd")).unwrap();
    rustix::fs::mknodat(CWD, tmp.join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    std::fs::File::create(tmp.join("sparse")).unwrap().set_len(1 << 40).unwrap();
    let mut deep = tmp.clone();
    for _ in 0..200 {
        deep.push("d");
        std::fs::create_dir(&deep).unwrap();
    }
    let packing = Packing { but: &["fumehood"], ..Packing::default() };
    let (packed, members) = pack_all(&tmp, &packing);
    let short: Vec<_> = members.iter().filter(|(name, _)| !name.starts_with('d')).cloned().collect();
    let expected = [("-rf", 'f'), ("file", 'f'), ("leads", 's'), ("line\nbreak", 'f'), ("odd", 's'), ("second", 'h')];
    assert_eq!(short, expected.map(|(name, kind)| (name.to_owned(), kind)));
    assert_eq!(members.len() - short.len(), crate::changes::MAX_DEPTH + 1);
    let left: Vec<_> = packed.left_out.iter().map(|left| left.path.components().count()).collect();
    assert_eq!(left, [crate::changes::MAX_DEPTH + 1, 1, 1], "{:?}", packed.left_out);
    // Bounds hold, and whoever waits can be heard.
    let bounds = Bounds { entries: 3, ..Bounds::default() };
    assert_eq!(pack_all(&tmp, &Packing { bounds, ..Packing::default() }).1.len(), 3);
    let until = Until { at: Some(std::time::Instant::now()), ..Until::default() };
    let late = pack(&Dir::open(&tmp).unwrap(), &mut std::io::sink(), &Packing { until, ..Packing::default() });
    assert_eq!(late, Err(Errno::CANCELED));
}

#[test]
fn targets_of_links_and_modes_stay_as_they_are() {
    let host = Host::new();
    let long = format!("a//./{}", "b".repeat(150));
    symlink("a//./b/", host.at("tmp/odd")).unwrap();
    symlink(&long, host.at("tmp/long")).unwrap();
    std::fs::write(host.at("tmp/s"), "").unwrap();
    std::fs::set_permissions(host.at("tmp/s"), std::fs::Permissions::from_mode(0o6711)).unwrap();
    let mut stream = Vec::new();
    pack(&Dir::open(&host.at("tmp")).unwrap(), &mut stream, &Packing::default()).unwrap();
    let mut archive = tar::Archive::new(stream.as_slice());
    let found = archive.entries().unwrap().map(|entry| {
        let entry = entry.unwrap();
        let target = entry.link_name_bytes().map(|target| String::from_utf8(target.into_owned()).unwrap());
        (entry.header().mode().unwrap(), target.unwrap_or_default())
    });
    let expected = [(0o777, long), (0o777, "a//./b/".to_owned()), (0o711, String::new())];
    assert_eq!(found.collect::<Vec<_>>(), expected);
}

#[test]
fn in_a_shared_file_system_only_the_owners_files_are_packed() {
    if !rustix::process::geteuid().is_root() {
        println!("skip: needs root");
        return;
    }
    let host = Host::new();
    std::fs::write(host.at("tmp/secret"), "of root").unwrap();
    std::fs::write(host.at("tmp/own"), "of theirs").unwrap();
    for name in ["tmp", "tmp/own"] {
        chown(host.at(name), Some(4242), Some(4242)).unwrap();
    }
    let shared = Packing { others: OfOthers::LeftOut, ..Packing::default() };
    let (packed, members) = pack_all(&host.at("tmp"), &shared);
    assert_eq!((members, packed.left_out.len()), (vec![("own".to_owned(), 'f')], 1));
    // What a runtime mounts on is no content, and nothing that anybody would miss.
    let mounted = Packing { others: OfOthers::MountPoint, ..Packing::default() };
    let (packed, members) = pack_all(&host.at("tmp"), &mounted);
    assert_eq!((members, packed.left_out.len()), (vec![("own".to_owned(), 'f')], 0));
    assert_eq!(pack_all(&host.at("tmp"), &Packing::default()).1.len(), 2, "without the rule it is packed");
}

#[test]
fn contents_are_shared_with_the_changes_and_survive_them() {
    let host = Host::new();
    for (name, text) in [("one", "1"), ("same", "1"), ("two", "22")] {
        std::fs::write(host.at("upper").join(name), text).unwrap();
    }
    std::fs::write(host.at("work/two"), "2").unwrap();
    let manifest = host.changes();
    let mut writer = host.begin(None).unwrap();
    writer.changes(&manifest).unwrap();
    let snapshot = writer.finish().unwrap();
    let about = snapshot.about();
    assert_eq!((about.changes, about.run.as_str()), (3, host.run.as_str()));
    let blobs = |root: PathBuf| {
        let files = std::fs::read_dir(root.join("blobs")).unwrap();
        let mut files: Vec<_> = files.map(|file| file.unwrap().metadata().unwrap().ino()).collect();
        files.sort_unstable();
        files
    };
    let own = host.at("state/snapshots").join(snapshot.id()).join(CHANGES);
    assert_eq!(blobs(own.clone()), blobs(host.at("state/changes").join(host.run.as_str())), "one file, two names");
    crate::changes::discard(&host.state(), &host.run).unwrap();
    assert_eq!(snapshot.changes().unwrap().unwrap(), manifest);
    let mut stream = Vec::new();
    snapshot.write_tar(&mut stream).unwrap();
    let mut archive = tar::Archive::new(stream.as_slice());
    let names = archive.entries().unwrap().map(|entry| {
        let entry = entry.unwrap();
        // 1970 is a time that archives and builds do not take.
        assert!(entry.header().mtime().unwrap() > 1_700_000_000);
        entry.path().unwrap().display().to_string()
    });
    assert_eq!(names.collect::<Vec<_>>(), ["one", "same", "two"]);
    // What somebody edited is told, and not handed on as it is.
    let blob = std::fs::read_dir(own.join("blobs")).unwrap().next().unwrap().unwrap().path();
    let length = blob.metadata().unwrap().len();
    std::fs::write(&blob, "x".repeat(usize::try_from(length).unwrap())).unwrap();
    let damaged = SnapshotError::Damaged { id: snapshot.id().to_owned() };
    assert_eq!(snapshot.write_tar(&mut std::io::sink()), Err(damaged));
}
