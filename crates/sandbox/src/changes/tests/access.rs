//! Access lists: of the host's files they stay, of the run's none is taken.

use rustix::fs::{XattrFlags, lgetxattr, setxattr};
use rustix::io::Errno;

use super::*;

const OWN: &str = "system.posix_acl_access";
const NEW: &str = "system.posix_acl_default";

/// Somebody (4711) may `theirs`, the group nothing, and others nothing.
fn list(theirs: u16) -> Vec<u8> {
    let none = u32::MAX;
    let entries = [(0x01, 7, none), (0x02, theirs, 4711), (0x04, 0, none), (0x10, theirs, none), (0x20, 0, none)];
    let one = |(tag, rights, id): (u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    [2_u32.to_le_bytes().to_vec()].into_iter().chain(entries.map(one)).flatten().collect()
}

fn give(path: &Path, name: &str, theirs: u16) {
    setxattr(path, name, &list(theirs), XattrFlags::empty()).unwrap();
}

fn of(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut found = vec![0; 4096];
    match lgetxattr(path, name, &mut found[..]) {
        Ok(length) => Some(found[..length].to_vec()),
        Err(Errno::NODATA) => None,
        Err(errno) => panic!("{errno}"),
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_file_keeps_its_list_and_new_ones_have_their_folders() {
    let mut host = Host::new(&[(".git/HEAD", "ref: refs/heads/main\n"), ("secret", "1"), ("plain", "1"), ("d/x", "1")]);
    std::fs::set_permissions(host.work("secret"), std::fs::Permissions::from_mode(0o600)).unwrap();
    give(&host.work("secret"), OWN, 4);
    let kept = of(&host.work("secret"), OWN);
    assert_eq!(mode(&host.work("secret")), 0o740, "of a file with a list the mode says the most that it gives");
    // What is staged stands here.
    give(&host.work(".git"), NEW, 7);
    give(&host.work("d"), NEW, 5);
    host.begin();
    host.overlay(
        "echo 2 > secret; echo 2 > plain; echo 2 > new; mkdir e; echo 2 > e/y; echo 2 > d/z; mkdir d/f; echo 2 > d/f/z; chmod 666 d/z",
    );
    give(&host.at("upper").join("plain"), OWN, 6);
    give(&host.at("upper").join("new"), OWN, 6);
    host.read();
    let applied = host.apply();
    assert!(matches!(applied, Applied::Done { .. }), "{applied:?}");
    assert_eq!((of(&host.work("secret"), OWN), mode(&host.work("secret"))), (kept, 0o740));
    for name in ["plain", "new", "e", "e/y"] {
        assert_eq!([of(&host.work(name), OWN), of(&host.work(name), NEW)], [None, None], "{name}");
    }
    for name in ["d/z", "d/f", "d/f/z"] {
        assert!(of(&host.work(name), OWN).is_some() && mode(&host.work(name)) & 0o027 == 0, "{name}");
    }
    assert_eq!(of(&host.work("d/f"), NEW), Some(list(5)));
}
