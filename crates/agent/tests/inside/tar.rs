//! Tar streams, both ways, with GNU tar as the other side.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::time::Duration;

use agent::words::{Code, Failure, Request, Skipped};
use sys::command::Command;
use sys::pidfd::End;
use tar::{EntryType, Header};

use crate::client::{Agent, text};

fn gnu(arguments: &[&str]) -> Vec<u8> {
    let output = Command::new("/bin/tar")
        .args(arguments)
        .env("PATH", "/usr/bin:/bin")
        .output(b"", 64 * 1024 * 1024, Duration::from_secs(60))
        .unwrap();
    assert_eq!(output.end, End::Exited(0), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn archive(agent: &mut Agent, path: &str) -> (Vec<u8>, Skipped) {
    let stream = agent.open(&Request::Archive { path: path.into() });
    let heard = agent.end(stream);
    (heard.out.clone(), heard.result().unwrap())
}

fn extract(agent: &mut Agent, path: &str, bytes: &[u8]) -> Result<Skipped, Failure> {
    let stream = agent.open(&Request::Extract { path: path.into() });
    agent.send(stream, bytes);
    if agent.streams[&stream].end.is_none() {
        agent.eof(stream);
    }
    agent.end(stream).result()
}

/// All below a folder: path, kind and mode, size, time, target.
fn shown(folder: &Path) -> Vec<(String, u32, u64, i64, String)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(one) = folders.pop() {
        for entry in std::fs::read_dir(&one).unwrap() {
            let path = entry.unwrap().path();
            let data = std::fs::symlink_metadata(&path).unwrap();
            let size = if data.is_file() { data.len() } else { 0 };
            let target = std::fs::read_link(&path).map(|target| text(&target)).unwrap_or_default();
            let name = path.strip_prefix(folder).unwrap().to_string_lossy().into_owned();
            found.push((name, data.mode(), size, data.mtime(), target));
            if data.is_dir() {
                folders.push(path);
            }
        }
    }
    found.sort();
    found
}

/// A tree with all that is hard.
fn tree(root: &Path) {
    let deep = root.join("tree").join("a".repeat(90)).join("b".repeat(90)).join("c".repeat(90));
    std::fs::create_dir_all(&deep).unwrap();
    std::fs::write(deep.join("d".repeat(200)), "deep").unwrap();
    std::fs::write(root.join("tree/empty"), "").unwrap();
    std::fs::write(root.join("tree/exact"), vec![7; 1024]).unwrap();
    std::fs::write(root.join("tree/large"), vec![9; 1_000_001]).unwrap();
    std::fs::write(root.join("tree/tool"), "x").unwrap();
    std::fs::set_permissions(root.join("tree/tool"), std::fs::Permissions::from_mode(0o751)).unwrap();
    std::fs::hard_link(root.join("tree/large"), root.join("tree/same")).unwrap();
    symlink("tool", root.join("tree/link")).unwrap();
    symlink("t".repeat(150), root.join("tree/long link")).unwrap();
    std::fs::create_dir(root.join("tree/closed")).unwrap();
    std::fs::write(root.join("tree/closed/in"), "x").unwrap();
    std::fs::set_permissions(root.join("tree/closed"), std::fs::Permissions::from_mode(0o500)).unwrap();
    std::fs::write(root.join("tree").join("no \u{fffd} text \n"), "x").unwrap();
    let bytes = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"bytes \xff\xfe");
    std::fs::write(root.join("tree").join(bytes), "x").unwrap();
    let old = rustix::fs::Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };
    let times = rustix::fs::Timestamps { last_access: old, last_modification: old };
    for name in ["tree/tool", "tree/closed"] {
        rustix::fs::utimensat(rustix::fs::CWD, root.join(name), &times, rustix::fs::AtFlags::empty()).unwrap();
    }
}

#[test]
fn what_is_archived_gnu_tar_unpacks_and_the_other_way_round() {
    let mut agent = Agent::new();
    tree(agent.home.path());
    let fifo = agent.path("tree/fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::from_raw_mode(0o644)).unwrap();
    let (bytes, skipped) = archive(&mut agent, "tree");
    assert_eq!(skipped.skipped, ["a device, pipe or socket: tree/fifo"]);
    assert_eq!(archive(&mut agent, "tree").0, bytes, "the order is always the same");
    std::fs::remove_file(fifo).unwrap();

    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("a.tar");
    std::fs::write(&file, &bytes).unwrap();
    gnu(&["-xpf", &text(&file), "-C", &text(place.path())]);
    assert_eq!(shown(&place.path().join("tree")), shown(&agent.path("tree")));
    let inode = |name: &str| std::fs::metadata(place.path().join("tree").join(name)).unwrap().ino();
    assert_eq!(inode("large"), inode("same"));

    let expected = shown(&agent.path("tree"));
    assert_eq!(u64::try_from(expected.len() + 1).unwrap(), skipped.taken);
    for (number, format) in ["gnu", "pax", "oldgnu"].into_iter().enumerate() {
        let home = text(agent.home.path());
        let bytes = gnu(&["-c", "--format", format, "-C", &home, "tree"]);
        let to = format!("out{number}");
        let skipped = extract(&mut agent, &to, &bytes).unwrap();
        assert_eq!((skipped.skipped.len(), skipped.taken), (0, u64::try_from(expected.len() + 1).unwrap()));
        assert_eq!(shown(&agent.path(&to).join("tree")), expected, "{format}");
    }
    // And our own, over what is there already.
    let skipped = extract(&mut agent, "out0", &bytes).unwrap();
    assert_eq!(skipped.skipped.len(), 0, "{skipped:?}");
    assert_eq!(shown(&agent.path("out0/tree")), expected);
}

fn member(kind: EntryType, name: &str, link: &str, content: &[u8]) -> Vec<u8> {
    let mut header = Header::new_ustar();
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(0o6755);
    header.set_size(u64::try_from(content.len()).unwrap());
    header.set_mtime(5);
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

#[test]
fn nothing_is_made_outside_the_folder() {
    let mut agent = Agent::new();
    let outside = agent.path("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("secret"), "old").unwrap();
    std::fs::create_dir(agent.path("to")).unwrap();
    symlink("../outside", agent.path("to/there")).unwrap();
    let target = text(&outside);
    let mut bytes = Vec::new();
    for (kind, name, link) in [
        (EntryType::Regular, "../outside/one", ""),
        (EntryType::Regular, "a/../../outside/two", ""),
        (EntryType::Regular, "there/three", ""),
        (EntryType::Symlink, "way", &target),
        (EntryType::Regular, "way/four", ""),
        (EntryType::Link, "stolen", "../outside/secret"),
        (EntryType::Link, "stolen too", "there/secret"),
        (EntryType::Link, "stolen three", "way/secret"),
        (EntryType::Directory, "way", ""),
        (EntryType::Directory, "there/five", ""),
        (EntryType::Char, "device", ""),
        (EntryType::Fifo, "pipe", ""),
    ] {
        let content: &[u8] = if kind == EntryType::Regular { b"new" } else { b"" };
        bytes.extend(member(kind, name, link, content));
    }
    let absolute = format!("{target}/six");
    bytes.extend(member(EntryType::Regular, &absolute, "", b"new"));
    // A file through a link that the same stream made.
    bytes.extend(member(EntryType::Symlink, "file", &format!("{target}/secret"), b""));
    bytes.extend(member(EntryType::Regular, "file", "", b"new"));
    // The control: what belongs there is made.
    bytes.extend(member(EntryType::Regular, "good/file", "", b"good"));
    let skipped = extract(&mut agent, "to", &bytes).unwrap();
    assert_eq!(skipped.skipped.len(), 12, "{skipped:#?}");
    assert_eq!(std::fs::read(outside.join("secret")).unwrap(), b"old");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
    assert_eq!(std::fs::metadata(outside.join("secret")).unwrap().nlink(), 1);
    assert_eq!(std::fs::read(agent.path("to/good/file")).unwrap(), b"good");
    assert_eq!(std::fs::read(agent.path("to/file")).unwrap(), b"new");
    // No set-user-id and set-group-id bits.
    let mode = std::fs::metadata(agent.path("to/good/file")).unwrap().mode() & 0o7777;
    assert_eq!(mode, 0o755);
    // The control of the whole test: a tool that follows links would have written outside.
    std::fs::write(agent.path("to/there/seven"), "x").unwrap();
    assert!(outside.join("seven").exists());
}

#[test]
fn a_folder_that_becomes_a_link_meanwhile_leads_nowhere() {
    let mut agent = Agent::new();
    let outside = agent.path("outside");
    std::fs::create_dir(&outside).unwrap();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (to, target, stopped) = (agent.path("to"), outside.clone(), std::sync::Arc::clone(&stop));
    let swaps = std::thread::spawn(move || {
        let (folder, aside) = (to.join("d"), to.join("aside"));
        let mut swaps = 0_u32;
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            if std::fs::rename(&folder, &aside).is_ok() {
                swaps += u32::from(symlink(&target, &folder).is_ok());
                drop(std::fs::remove_file(&folder));
                drop(std::fs::rename(&aside, &folder));
            }
        }
        swaps
    });
    let bytes: Vec<u8> =
        (0..4000).flat_map(|number| member(EntryType::Regular, &format!("d/f{number}"), "", b"x")).collect();
    extract(&mut agent, "to", &bytes).unwrap();
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(swaps.join().unwrap() > 10, "the attack took place");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
}

#[test]
fn what_is_no_tar_stream_is_told_and_half_a_file_is_not_left() {
    let mut agent = Agent::new();
    assert_eq!(extract(&mut agent, "to", &[b'x'; 600]).unwrap_err().code, Code::Invalid);
    let whole = member(EntryType::Regular, "file", "", &[1; 2000]);
    assert_eq!(extract(&mut agent, "to", &whole[..1000]).unwrap_err().code, Code::Invalid);
    assert_eq!(std::fs::read_dir(agent.path("to")).unwrap().count(), 0);
    assert_eq!(extract(&mut agent, "to", b"").unwrap(), Skipped::default());
    let mut damaged = whole.clone();
    damaged[0] ^= 1;
    assert_eq!(extract(&mut agent, "to", &damaged).unwrap_err().code, Code::Invalid);
    // An extended header that lies about its length.
    let lies = [member(EntryType::XHeader, "x", "", b"99 path=y\n"), whole.clone()].concat();
    assert_eq!(extract(&mut agent, "to", &lies).unwrap_err().code, Code::Invalid);
    assert_eq!(extract(&mut agent, "to", &whole).unwrap().taken, 1);
    let stream = agent.open(&Request::Extract { path: "to".into() });
    agent.send(stream, &member(EntryType::Regular, "half", "", &[1; 2000])[..1000]);
    agent.until("the file", |agent| agent.path("to/half").exists());
    agent.cancel(stream);
    agent.end(stream);
    assert!(!agent.path("to/half").exists());
}

/// A header with a size that octal digits do not hold, both ways.
#[test]
fn a_size_of_more_than_8_gib_is_read_and_written() {
    let mut agent = Agent::new();
    let sparse = std::fs::File::create(agent.path("huge")).unwrap();
    sparse.set_len(9 << 30).unwrap();
    let stream = agent.open(&Request::Archive { path: "huge".into() });
    agent.slow.push(stream);
    agent.until("its header", |agent| agent.streams[&stream].out.len() > 512);
    let block: [u8; 512] = *agent.streams[&stream].out.first_chunk().unwrap();
    assert_eq!(Header::from_byte_slice(&block).entry_size().unwrap(), 9 << 30);
    agent.cancel(stream);
    agent.end(stream);
    let to = agent.open(&Request::Extract { path: "to".into() });
    agent.send(to, &[&block[..], &[7; 4096]].concat());
    agent.until("its beginning", |agent| std::fs::metadata(agent.path("to/huge")).is_ok_and(|file| file.len() == 4096));
    agent.cancel(to);
    agent.end(to);
}

#[test]
fn a_stream_of_nothing_but_folders_and_links_is_whole_and_ends_with_two_blocks() {
    let mut agent = Agent::new();
    for number in 0..40 {
        std::fs::create_dir_all(agent.home.path().join(format!("many/d{number:02}"))).unwrap();
        symlink("nowhere", agent.home.path().join(format!("many/l{number:02}"))).unwrap();
    }
    let path = agent.path("many");
    let (bytes, skipped) = archive(&mut agent, path.to_str().unwrap());
    assert_eq!((bytes.len(), skipped.taken), ((81 + 2) * 512, 81));
    assert_eq!(tar::Archive::new(&bytes[..]).entries().unwrap().map(Result::unwrap).count(), 81);
    assert!(bytes[81 * 512..].iter().all(|byte| *byte == 0));
}

#[test]
fn holes_stay_holes_and_zeros_stay_zeros() {
    let folder = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(folder.path().join("holes")).unwrap();
    std::os::unix::fs::FileExt::write_at(&file, b"begin", 0).unwrap();
    std::os::unix::fs::FileExt::write_at(&file, b"middle", 4_000_000).unwrap();
    file.set_len(8_000_000).unwrap();
    let mut agent = Agent::new();
    let (bytes, _) = archive(&mut agent, &text(&folder.path().join("holes")));
    let to = folder.path().join("to");
    extract(&mut agent, &text(&to), &bytes).unwrap();
    let (was, is) = (std::fs::read(folder.path().join("holes")).unwrap(), std::fs::read(to.join("holes")).unwrap());
    assert!(was == is, "it is another file now");
    let blocks = std::fs::metadata(to.join("holes")).unwrap().blocks();
    assert!(blocks * 512 < 1_000_000, "{blocks} blocks");
}

#[test]
fn a_link_is_what_it_leads_to_with_a_slash_alone() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("real")).unwrap();
    std::fs::write(folder.path().join("real/in"), "x").unwrap();
    symlink("real", folder.path().join("link")).unwrap();
    let mut agent = Agent::new();
    let link = text(&folder.path().join("link"));
    let mut names = |path: &str| {
        let (bytes, _) = archive(&mut agent, path);
        let mut archive = tar::Archive::new(bytes.as_slice());
        let names = archive.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().display().to_string());
        names.collect::<Vec<_>>()
    };
    assert_eq!(names(&link), ["link"]);
    assert_eq!(names(&format!("{link}/")), ["link/", "link/in"]);
}
