//! Files by path.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;

use agent::words::{Code, Entries, Entry, FileKind, Request};

use crate::client::{Agent, text};

fn mode(path: &std::path::Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_file_is_written_and_read_and_nothing_else_is_left() {
    let mut agent = Agent::new();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|number| u8::try_from(number % 251).unwrap()).collect();
    let entry = agent.write("a/b/c.bin", &bytes).unwrap();
    assert_eq!((entry.kind, entry.size, entry.mode), (FileKind::File, 3_000_000, 0o644));
    assert_eq!(entry.path, text(&agent.path("a/b/c.bin")));
    assert_eq!(agent.read("~/a/b/c.bin").unwrap(), bytes);
    let part = agent.open(&Request::Read { path: "a/b/c.bin".into(), offset: 10, length: Some(5) });
    assert_eq!(agent.end(part).out, &bytes[10..15]);
    assert_eq!(std::fs::read_dir(agent.path("a/b")).unwrap().count(), 1);
}

#[test]
fn a_replaced_file_keeps_its_mode_and_a_link_is_followed() {
    let mut agent = Agent::new();
    std::fs::write(agent.path("tool"), "old").unwrap();
    std::fs::set_permissions(agent.path("tool"), std::fs::Permissions::from_mode(0o750)).unwrap();
    std::os::unix::fs::symlink("tool", agent.path("link")).unwrap();
    agent.write("link", b"new").unwrap();
    assert_eq!(std::fs::read(agent.path("tool")).unwrap(), b"new");
    assert_eq!(mode(&agent.path("tool")), 0o750);
    assert!(std::fs::symlink_metadata(agent.path("link")).unwrap().is_symlink());
}

#[test]
fn a_file_that_may_not_be_written_is_not_exchanged_for_another() {
    let mut agent = Agent::of_a_user();
    agent.write("file", b"old").unwrap();
    let (path, to) = (agent.path("file"), text(&agent.path("file")));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).unwrap();
    assert_eq!(agent.write(&to, b"new").unwrap_err().code, Code::Denied);
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
    assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    agent.write(&to, b"new").unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"new");
}

#[test]
fn a_write_that_is_given_up_leaves_nothing() {
    let mut agent = Agent::new();
    for lost in [false, true] {
        let stream = agent.open(&Request::Write { path: "w/file".into(), mode: None, metadata: None });
        agent.send(stream, b"half");
        agent.until("the first half", |agent| {
            std::fs::read_dir(agent.path("w")).is_ok_and(|mut list| list.next().is_some())
        });
        if lost {
            let folder = agent.path("w");
            // Kept alive: the folder is looked at afterwards.
            let home = std::mem::replace(&mut agent.home, tempfile::tempdir().unwrap());
            agent.close().unwrap();
            assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0);
            drop(home);
            return;
        }
        agent.cancel(stream);
        assert_eq!(agent.end(stream).result::<()>().unwrap_err().code, Code::Cancelled);
        assert_eq!(std::fs::read_dir(agent.path("w")).unwrap().count(), 0);
    }
}

#[test]
fn what_is_no_file_is_neither_read_nor_written() {
    let mut agent = Agent::new();
    let fifo = agent.path("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::from_raw_mode(0o644)).unwrap();
    std::fs::create_dir(agent.path("dir")).unwrap();
    std::os::unix::fs::symlink("loop", agent.path("loop")).unwrap();
    assert_eq!(agent.read("fifo").unwrap_err().code, Code::Invalid);
    assert_eq!(agent.write("fifo", b"x").unwrap_err().code, Code::Invalid);
    assert_eq!(agent.read("dir").unwrap_err().code, Code::IsADirectory);
    assert_eq!(agent.write("dir", b"x").unwrap_err().code, Code::IsADirectory);
    assert_eq!(agent.read("loop").unwrap_err().code, Code::Invalid);
    assert_eq!(agent.write("loop", b"x").unwrap_err().code, Code::Invalid);
    assert_eq!(agent.read("nothing").unwrap_err().code, Code::NotFound);
    assert_eq!(agent.read("/dev/zero").unwrap_err().code, Code::Invalid);
    assert_eq!(agent.read("").unwrap_err().code, Code::Invalid);
    assert_eq!(agent.read("a\0b").unwrap_err().code, Code::Invalid);
    // Files of `/proc` say that they are empty.
    assert!(agent.read("/proc/self/status").unwrap().starts_with(b"Name:"));
}

#[test]
fn folders_are_made_listed_moved_and_removed() {
    let mut agent = Agent::new();
    agent.ask::<Entry>(&Request::Mkdir { path: "x/y/z".into() }).unwrap();
    assert_eq!(agent.fails(&Request::Mkdir { path: "x/y".into() }), Code::Exists);
    agent.write("x/file", b"12345").unwrap();
    std::os::unix::fs::symlink("file", agent.path("x/link")).unwrap();
    let stream = agent.open(&Request::List { path: "x".into(), depth: 2 });
    let names: Vec<(String, FileKind)> = agent
        .end(stream)
        .events
        .into_iter()
        .flat_map(|event| serde_json::from_value::<Entries>(event).unwrap().entries)
        .map(|entry| (entry.name, entry.kind))
        .collect();
    let expected = [("file", FileKind::File), ("link", FileKind::Link), ("y", FileKind::Dir), ("z", FileKind::Dir)];
    assert_eq!(names, expected.map(|(name, kind)| (name.to_owned(), kind)));
    let moved: Entry = agent.ask(&Request::Move { from: "x/link".into(), to: "new/place".into() }).unwrap();
    assert_eq!((moved.kind, moved.target.as_deref(), moved.target_kind), (FileKind::Link, Some("file"), None));
    assert_eq!(agent.fails(&Request::Move { from: "nothing".into(), to: "other/place".into() }), Code::NotFound);
    assert!(!agent.path("other").exists());
    agent.ask::<()>(&Request::Remove { path: "x".into() }).unwrap();
    assert!(!agent.path("x").exists());
    assert_eq!(agent.fails(&Request::Remove { path: "x".into() }), Code::NotFound);
    assert_eq!(agent.fails(&Request::Remove { path: "/".into() }), Code::Invalid);
}

#[test]
fn a_removal_follows_no_link_and_goes_to_any_depth() {
    let mut agent = Agent::new();
    std::fs::create_dir(agent.path("kept")).unwrap();
    std::fs::write(agent.path("kept/file"), "x").unwrap();
    let deep = (0..400).fold(agent.path("tree"), |path, _| path.join("d"));
    std::fs::create_dir_all(&deep).unwrap();
    std::fs::write(deep.join("leaf"), "x").unwrap();
    std::os::unix::fs::symlink(agent.path("kept"), agent.path("tree/link")).unwrap();
    for number in 0..2000 {
        std::fs::write(agent.path("tree").join(format!("f{number}")), "").unwrap();
    }
    agent.ask::<()>(&Request::Remove { path: "tree".into() }).unwrap();
    assert!(!agent.path("tree").exists() && agent.path("kept/file").exists());
}

#[test]
fn metadata_is_kept_with_the_file() {
    let mut agent = Agent::new();
    let metadata: BTreeMap<String, String> = [("key".to_owned(), "value \u{e4}".to_owned())].into();
    let request = Request::Write { path: "m".into(), mode: Some(0o600), metadata: Some(metadata.clone()) };
    let stream = agent.open(&request);
    agent.eof(stream);
    match agent.end(stream).result::<Entry>() {
        Ok(entry) => assert_eq!((entry.metadata, entry.mode), (metadata, 0o600)),
        Err(failure) => {
            assert_eq!(failure.code, Code::Unsupported);
            assert!(!agent.path("m").exists());
        }
    }
    // The filter of a sandbox lets no longer attribute be set.
    let long = [("key".to_owned(), "v".repeat(1024))].into();
    let stream = agent.open(&Request::Write { path: "long".into(), mode: None, metadata: Some(long) });
    agent.eof(stream);
    assert_eq!(agent.end(stream).result::<Entry>().unwrap_err().code, Code::Invalid);
}

#[test]
fn ten_thousand_files_and_names_that_are_no_text_are_listed_in_order() {
    let mut agent = Agent::new();
    std::fs::create_dir(agent.path("many")).unwrap();
    for number in 0..10_000 {
        std::fs::write(agent.path("many").join(format!("{number:05}")), "").unwrap();
    }
    let bytes = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"\xff\x01\n");
    std::fs::write(agent.path("many").join(bytes), "").unwrap();
    let stream = agent.open(&Request::List { path: "many".into(), depth: 1 });
    let heard = agent.end(stream);
    assert!(heard.events.len() > 1);
    let names: Vec<String> = heard
        .events
        .into_iter()
        .flat_map(|event| serde_json::from_value::<Entries>(event).unwrap().entries)
        .map(|entry| entry.name)
        .collect();
    assert_eq!(names.len(), 10_001);
    assert!(names[..10_000].is_sorted() && names[10_000] == "\0ff\u{1}\n");
    assert_eq!(agent.fails(&Request::List { path: "many/00001".into(), depth: 1 }), Code::NotADirectory);
    assert_eq!(agent.fails(&Request::List { path: "many".into(), depth: 0 }), Code::Invalid);
    let stream = agent.open(&Request::Archive { path: "many".into() });
    assert_eq!(agent.end(stream).result::<agent::words::Skipped>().unwrap().taken, 10_002);
}

#[test]
fn what_has_a_name_that_is_no_text_is_reached_by_the_name_that_is_told() {
    let mut agent = Agent::new();
    let bytes = |bytes: &'static [u8]| <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(bytes);
    std::fs::create_dir(agent.path("latin")).unwrap();
    let folder = agent.path("latin");
    let watch = agent.open(&Request::Watch { path: "latin".into(), recursive: false });
    agent.until("the watch", |agent| agent.streams[&watch].reply.is_some());
    assert_eq!(agent.write("latin/caf\0e9", b"one").unwrap().name, "caf\0e9");
    assert_eq!(std::fs::read(folder.join(bytes(b"caf\xe9"))).unwrap(), b"one");
    agent.until("the change", |agent| agent.streams[&watch].events.iter().any(|event| event["name"] == "caf\0e9"));
    assert_eq!(agent.read("latin/caf\0e9").unwrap(), b"one");
    let moved = Request::Move { from: "latin/caf\0e9".into(), to: "latin/\0ff/th\0e9".into() };
    let entry: Entry = agent.ask(&moved).unwrap();
    assert!(entry.path.ends_with("/latin/\0ff/th\0e9"), "{entry:?}");
    std::os::unix::fs::symlink(bytes(b"th\xe9"), folder.join(bytes(b"\xff/link"))).unwrap();
    let stat = |path: &str, follow| Request::Stat { path: path.into(), follow };
    let link: Entry = agent.ask(&stat("latin/\0ff/link", false)).unwrap();
    assert_eq!(link.target.as_deref(), Some("th\0e9"));
    let list = agent.open(&Request::List { path: "latin/\0ff".into(), depth: 1 });
    let heard = agent.end(list);
    let names: Vec<String> = heard
        .events
        .into_iter()
        .flat_map(|event| serde_json::from_value::<Entries>(event).unwrap().entries)
        .map(|entry| entry.name)
        .collect();
    assert_eq!(names, ["link", "th\0e9"]);
    let archive = agent.open(&Request::Archive { path: "latin/\0ff".into() });
    let heard = agent.end(archive);
    assert!(heard.out.windows(6).any(|part| part == b"\xff/th\xe9\0"), "{heard:?}");
    agent.ask::<()>(&Request::Remove { path: "latin/\0ff".into() }).unwrap();
    assert!(!folder.join(bytes(b"\xff")).exists());
    // There is no second way to write a name, and no zero in one.
    for wrong in ["latin\x002fcaf", "latin/\x002e\x002e", "a\0b", "a\0", "\0c3\0a9"] {
        assert_eq!(agent.fails(&stat(wrong, false)), Code::Invalid, "{wrong:?}");
    }
}

#[test]
fn long_names_fit_into_the_frames() {
    let mut agent = Agent::new();
    // Each byte becomes six as JSON.
    let name = "\u{1}".repeat(255);
    let deep = (0..10).fold(agent.path("deep"), |path, _| path.join(&name));
    std::fs::create_dir_all(&deep).unwrap();
    for number in 0..50 {
        std::os::unix::fs::symlink("\u{1}".repeat(4000), deep.join(format!("{number}"))).unwrap();
    }
    let stream = agent.open(&Request::List { path: "deep".into(), depth: 20 });
    let heard = agent.end(stream);
    heard.result::<()>().unwrap();
    let count: usize = heard.events.iter().map(|event| event["entries"].as_array().unwrap().len()).sum();
    assert_eq!(count, 60);
}

#[test]
fn a_full_disk_is_told_and_nothing_is_left() {
    let mut agent = Agent::new();
    let full = agent.path("full");
    std::fs::create_dir(&full).unwrap();
    // The tests have mounts of their own.
    let size = c"size=256k";
    if let Err(errno) = rustix::mount::mount("tmpfs", &full, "tmpfs", rustix::mount::MountFlags::empty(), Some(size)) {
        println!("skip: no file system of its own: {errno}");
        return;
    }
    agent.write("full/kept", b"kept").unwrap();
    assert_eq!(agent.write("full/kept", &vec![1; 1 << 20]).unwrap_err().code, Code::NoSpace);
    assert_eq!(agent.read("full/kept").unwrap(), b"kept");
    let names = std::fs::read_dir(&full).unwrap().count();
    assert_eq!(names, 1);
    agent.write("full/fits", &vec![1; 100 << 10]).unwrap();
    rustix::mount::unmount(&full, rustix::mount::UnmountFlags::DETACH).unwrap();
}
