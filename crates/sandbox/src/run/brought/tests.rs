use std::io::{Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use tar::{Builder, EntryType, Header};

use super::*;

fn header(kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(0o755);
    header.set_size(size);
    header
}

/// A name as it is, which the crate's own methods would refuse.
fn raw(header: &mut Header, name: &[u8], link: &[u8]) {
    let old = header.as_old_mut();
    old.name.iter_mut().zip(name).for_each(|(to, from)| *to = *from);
    old.linkname.iter_mut().zip(link).for_each(|(to, from)| *to = *from);
    header.set_cksum();
}

type Entry<'a> = (EntryType, &'a str, &'a str);

const TOP: Entry<'_> = (EntryType::Directory, "workspace/", "");

/// A stream of these; of a file the last part is its content, of a link its target.
fn stream(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (kind, name, rest) in entries {
        let content = if *kind == EntryType::Regular { rest.as_bytes() } else { b"" };
        let mut header = header(*kind, content.len() as u64);
        raw(&mut header, name.as_bytes(), if content.is_empty() { rest.as_bytes() } else { b"" });
        builder.append(&header, content).unwrap();
    }
    builder.into_inner().unwrap()
}

/// Unpacks it below a folder, beside which nothing may appear.
fn unpacked(bytes: &[u8], bounds: Bounds) -> (tempfile::TempDir, Result<(), String>) {
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir(place.path().join("copy")).unwrap();
    std::fs::write(place.path().join("secret"), "host").unwrap();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    let into = Dir::open(&place.path().join("copy")).unwrap();
    let result = unpack(file, OsStr::new("workspace"), &into, bounds);
    let beside = std::fs::read_dir(place.path()).unwrap().count();
    assert_eq!(beside, 2);
    assert_eq!(std::fs::read_to_string(place.path().join("secret")).unwrap(), "host");
    (place, result)
}

#[test]
fn what_our_agent_writes_is_made_as_it_was() {
    let bytes = stream(&[
        TOP,
        (EntryType::Directory, "workspace/a/", ""),
        (EntryType::Regular, "workspace/a/f", "content"),
        (EntryType::Link, "workspace/a/g", "workspace/a/f"),
        (EntryType::Symlink, "workspace/out", "../secret"),
    ]);
    let (place, result) = unpacked(&bytes, Bounds::default());
    assert_eq!(result, Ok(()));
    let copy = place.path().join("copy");
    assert_eq!(std::fs::read_to_string(copy.join("a/g")).unwrap(), "content");
    assert_eq!(std::fs::metadata(copy.join("a/f")).unwrap().nlink(), 2);
    assert_eq!(std::fs::metadata(copy.join("a/f")).unwrap().permissions().mode() & 0o7777, 0o755);
    assert_eq!(std::fs::read_link(copy.join("out")).unwrap(), Path::new("../secret"));
}

#[test]
fn whatever_else_comes_refuses_the_whole() {
    let file = EntryType::Regular;
    let rows: &[&[Entry<'_>]] = &[
        &[],
        &[(file, "workspace/f", "x")],
        &[(file, "workspace", "x")],
        &[(EntryType::Symlink, "workspace", "/")],
        &[TOP, TOP],
        &[TOP, (file, "elsewhere/f", "x")],
        &[TOP, (file, "workspace/../secret", "x")],
        &[TOP, (file, "workspace/./f", "x")],
        &[TOP, (file, "workspace//f", "x")],
        &[TOP, (file, "/secret", "x")],
        &[TOP, (file, "../secret", "x")],
        &[TOP, (file, "workspace/f", "x"), (file, "workspace/f", "y")],
        &[TOP, (file, "workspace/missing/f", "x")],
        &[TOP, (EntryType::Symlink, "workspace/up", ".."), (file, "workspace/up/new", "x")],
        &[TOP, (EntryType::Symlink, "workspace/up", "../secret"), (file, "workspace/up", "x")],
        &[TOP, (EntryType::Symlink, "workspace/up", ".."), (EntryType::Directory, "workspace/up", "")],
        &[TOP, (EntryType::Link, "workspace/l", "secret")],
        &[TOP, (EntryType::Link, "workspace/l", "../secret")],
        &[TOP, (EntryType::Link, "workspace/l", "workspace/../../secret")],
        &[TOP, (EntryType::Link, "workspace/l", "workspace/l")],
        &[TOP, (EntryType::Symlink, "workspace/up", ".."), (EntryType::Link, "workspace/l", "workspace/up/secret")],
        &[TOP, (EntryType::Block, "workspace/disk", "")],
        &[TOP, (EntryType::Char, "workspace/null", "")],
        &[TOP, (EntryType::Fifo, "workspace/pipe", "")],
        &[TOP, (EntryType::GNUSparse, "workspace/holes", "")],
    ];
    for row in rows {
        let (_place, result) = unpacked(&stream(row), Bounds::default());
        assert!(result.is_err(), "{row:?}");
    }
}

#[test]
fn a_stream_that_is_cut_or_is_none_is_refused() {
    let whole = stream(&[TOP, (EntryType::Regular, "workspace/f", "content")]);
    let cut = whole.get(..1024 + 3).unwrap();
    assert!(unpacked(cut, Bounds::default()).1.is_err());
    assert!(unpacked(&[7; 4096], Bounds::default()).1.is_err());
}

/// A file with set-user-id, and a size that is not there.
#[test]
fn modes_are_nine_bits_and_sizes_are_bounded_before_they_are_read() {
    let mut top = header(EntryType::Directory, 0);
    raw(&mut top, b"workspace/", b"");
    let mut odd = header(EntryType::Regular, 1);
    odd.set_mode(0o6777);
    raw(&mut odd, b"workspace/suid", b"");
    let mut builder = Builder::new(Vec::new());
    builder.append(&top, &b""[..]).unwrap();
    builder.append(&odd, &b"x"[..]).unwrap();
    let (place, result) = unpacked(&builder.into_inner().unwrap(), Bounds::default());
    assert_eq!(result, Ok(()));
    let meta = std::fs::metadata(place.path().join("copy/suid")).unwrap();
    assert_eq!(meta.permissions().mode() & 0o7777, 0o777);
    let mut huge = header(EntryType::Regular, 1 << 40);
    raw(&mut huge, b"workspace/huge", b"");
    let bytes = [&top.as_bytes()[..], &huge.as_bytes()[..]].concat();
    let (_place, result) = unpacked(&bytes, Bounds::default());
    assert!(result.unwrap_err().contains("limits.disk"));
    let many = stream(&[TOP, (EntryType::Regular, "workspace/a", "x"), (EntryType::Regular, "workspace/b", "x")]);
    let (_place, result) = unpacked(&many, Bounds { entries: 1, ..Bounds::default() });
    assert!(result.unwrap_err().contains("limits.files"));
}
