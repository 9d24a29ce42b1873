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

fn noted(path: &Path) -> Option<Vec<u8>> {
    of(path, "user.comment")
}

#[test]
fn what_the_host_noted_of_a_file_stays() {
    let mut host = Host::new(&[("a", "1"), ("b", "1"), ("c", "1"), ("d", "1")]);
    for name in ["a", "b", "c"] {
        setxattr(host.work(name), "user.comment", b"of the host", XattrFlags::empty()).unwrap();
    }
    std::fs::hard_link(host.work("c"), host.at("outside")).unwrap();
    host.begin();
    let inode = |name: &str| std::fs::metadata(host.work(name)).unwrap().ino();
    let before = ["b", "c"].map(inode);
    host.overlay("echo 2 >> a; chmod 600 b; chmod 600 c; echo 2 > d; echo 2 > new");
    for name in ["d", "new"] {
        setxattr(host.at("upper").join(name), "user.comment", b"of the run", XattrFlags::empty()).unwrap();
    }
    host.read();
    assert!(matches!(host.apply(), Applied::Done { .. }));
    assert_eq!(std::fs::read_to_string(host.work("a")).unwrap(), "12\n");
    for name in ["a", "b", "c"] {
        assert_eq!(noted(&host.work(name)).as_deref(), Some(&b"of the host"[..]), "{name}");
    }
    assert_eq!([noted(&host.work("d")), noted(&host.work("new"))], [None, None]);
    assert_eq!(["b", "c"].map(|name| mode(&host.work(name))), [0o600; 2]);
    assert_eq!(
        (inode("b"), inode("c") == before[1]),
        (before[0], false),
        "one with another name is taken apart from it"
    );
    assert_eq!(mode(&host.at("outside")), 0o644);
}

#[test]
fn a_mode_that_was_changed_goes_back_with_all_else() {
    let host = Host::new(&[("a", "1"), ("dir/x", "1")]);
    host.overlay("chmod 600 a; rm -r dir");
    host.read();
    // What keeps the last step from being done.
    std::fs::write(host.work("dir/more"), "").unwrap();
    assert_eq!(host.conflicts(), [(PathBuf::from("dir"), "not-empty")]);
    assert_eq!(mode(&host.work("a")), 0o644);
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("skip: needs root");
    }
    is_root
}

#[test]
fn what_is_new_in_a_folder_that_gives_its_group_on_has_it() {
    if !is_root() {
        return;
    }
    let mut host = Host::new(&[("shared/x", "1"), ("plain/x", "1")]);
    chown(host.work("shared"), None, Some(4243)).unwrap();
    std::fs::set_permissions(host.work("shared"), std::fs::Permissions::from_mode(0o2775)).unwrap();
    host.begin();
    host.overlay("mkdir shared/d plain/d; for f in shared shared/d plain plain/d; do echo 2 > $f/new; done");
    host.read();
    assert!(matches!(host.apply(), Applied::Done { .. }));
    let of = |name: &str| {
        let meta = std::fs::metadata(host.work(name)).unwrap();
        (meta.gid(), meta.mode() & 0o7000)
    };
    for name in ["shared/new", "shared/d/new"] {
        assert_eq!(of(name), (4243, 0), "{name}");
    }
    assert_eq!(of("shared/d"), (4243, 0o2000));
    for name in ["plain/new", "plain/d", "plain/d/new"] {
        assert_eq!(of(name), (0, 0), "{name}");
    }
}

/// As somebody who works in another's folder, on a thread of its own.
fn as_somebody<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    use rustix::fs::{Gid, Uid};
    let somebody = || {
        let (uid, gid) = (Uid::from_raw(4711), Gid::from_raw(4711));
        rustix::thread::set_thread_groups(&[Gid::from_raw(4243)]).unwrap();
        rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
        rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
        work()
    };
    std::thread::scope(|scope| scope.spawn(somebody).join().unwrap())
}

#[test]
fn a_file_of_the_workspaces_owner_is_not_given_to_whoever_applies() {
    if !is_root() {
        return;
    }
    let host = Host::new(&[("alices", "1"), ("own", "1"), ("roots", "1"), (".git/index", "1")]);
    for name in ["", "alices", ".git/index"] {
        chown(host.work(name), Some(4242), Some(4243)).unwrap();
    }
    chown(host.work("own"), Some(4711), Some(4711)).unwrap();
    std::fs::set_permissions(host.work(""), std::fs::Permissions::from_mode(0o2775)).unwrap();
    let root = Dir::open(&host.work("")).unwrap();
    let owner =
        |name| super::super::access::of_another(&root, &Entry::plain(name, Change::Modified, Kind::File)).unwrap();
    let names = ["alices", "own", "roots", ".git/index"];
    assert_eq!(as_somebody(|| names.map(owner)), [Some(4242), None, Some(0), None]);
    // Root works there as their owner.
    assert_eq!(names.map(owner), [None, Some(4711), Some(0), None]);
    chown(host.work(""), Some(0), Some(0)).unwrap();
    assert_eq!(names.map(owner), [None; 4]);
}

#[test]
fn whoever_may_give_no_owner_gives_a_group_all_the_same() {
    use rustix::fs::{Gid, OFlags, Uid};
    if !is_root() {
        return;
    }
    let host = Host::new(&[]);
    std::fs::set_permissions(host.work(""), std::fs::Permissions::from_mode(0o777)).unwrap();
    let root = Dir::open(&host.work("")).unwrap();
    as_somebody(|| {
        let file = root.open_file("new", OFlags::WRONLY | OFlags::CREATE, Mode::RUSR).unwrap();
        let owner = Some(Uid::from_raw(4242));
        for group in [4243, 4244] {
            let chown = |uid, gid| rustix::fs::fchown(&file, uid, gid);
            super::super::access::give((owner, Some(Gid::from_raw(group))), chown).unwrap();
        }
    });
    let meta = std::fs::metadata(host.work("new")).unwrap();
    assert_eq!((meta.uid(), meta.gid()), (4711, 4243), "one that they are not in is none");
}

#[test]
fn a_file_of_a_third_user_is_given_to_nobody() {
    if !is_root() {
        return;
    }
    let mut host = Host::new(&[("theirs", "1"), ("own", "1")]);
    chown(host.work("theirs"), Some(4711), Some(4711)).unwrap();
    host.begin();
    host.overlay("echo 2 >> theirs; echo 2 >> own");
    host.read();
    let owner = |name: &str| std::fs::metadata(host.work(name)).unwrap().uid();
    for path in [host.work(""), host.work("own")] {
        chown(path, Some(4242), Some(4242)).unwrap();
    }
    std::fs::set_permissions(host.at(""), std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(host.conflicts(), [(PathBuf::from("theirs"), "owner")]);
    // In a workspace of root's own it keeps its owner.
    chown(host.work(""), Some(0), Some(0)).unwrap();
    let applied = host.apply();
    assert!(matches!(applied, Applied::Done { .. }), "{applied:?}");
    assert_eq!((owner("theirs"), std::fs::read_to_string(host.work("theirs")).unwrap().as_str()), (4711, "12\n"));
}
