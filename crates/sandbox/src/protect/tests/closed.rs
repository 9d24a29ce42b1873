//! Folders that a program closes, so that their names cannot be listed, or nothing in them be reached.

use std::os::unix::fs::{PermissionsExt as _, chown};

use sys::fsids::FsIdsGuard;

use super::*;
use crate::state::{Cross, rights_of};

const MODES: [u32; 4] = [0o311, 0o333, 0o000, 0o644];

/// Root may look everywhere: where it runs the tests, the rest of one is done with the rights of the workspace's owner.
fn as_owner(work: &Work) -> Option<FsIdsGuard> {
    let mut all = vec![work.folder.path().to_owned()];
    std::fs::create_dir_all(work.folder.path().join("aside")).unwrap();
    while let Some(path) = all.pop().filter(|_| rustix::process::geteuid().is_root()) {
        chown(&path, Some(4242), Some(4242)).unwrap();
        let below = path.is_dir().then(|| std::fs::read_dir(&path).unwrap());
        all.extend(below.into_iter().flatten().map(|entry| entry.unwrap().path()));
    }
    rights_of(&Dir::open(work.folder.path()).unwrap()).unwrap()
}

fn close(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o7777
}

#[test]
fn what_its_owner_closed_is_looked_into_and_closed_again() {
    for closed in MODES {
        let work = Work::new(&[("a/b/c/x", ""), ("a/y", "")]);
        let _owner = as_owner(&work);
        let below = Dir::open(&work.root).unwrap();
        for path in ["a/b/c", "a/b", "a", ""] {
            close(&work.root.join(path), closed);
        }
        // The old way.
        assert_eq!(below.enter("a/b", Cross::Yes).err(), Some(rustix::io::Errno::ACCESS), "{closed:o}");
        {
            let inner = below.look_into("a/b/c", Cross::Yes).unwrap();
            assert_eq!(inner.names().unwrap(), ["x"], "{closed:o}");
        }
        assert!(below.reach("a", Cross::Yes).unwrap().kind("y").unwrap().is_some(), "{closed:o}");
        assert_eq!(mode(&work.root), closed);
        close(&work.root, 0o700);
        assert_eq!(mode(&work.root.join("a")), closed);
        let open = below.look_into("", Cross::Yes).unwrap();
        close(&work.root, 0o750);
        drop(open);
        assert_eq!(mode(&work.root), 0o750, "who changed it meanwhile is not overruled");
    }
}

#[test]
fn control_files_in_closed_folders_are_put_aside_by_the_last_look_and_the_modes_stay() {
    for closed in [0o311, 0o333] {
        let work = Work::new(&[("d/e/x", ""), ("keep/x", "")]);
        let _owner = as_owner(&work);
        let mut sentry = work.sentry();
        sentry.ending();
        for path in [".envrc", "d/e/.git", "keep/y"] {
            work.put(path, "planted");
        }
        for path in ["d/e", "d", "keep", ""] {
            close(&work.root.join(path), closed);
        }
        let slipped = sentry.stop().unwrap();
        let told: Vec<_> = slipped.iter().map(|one| (one.path.to_str().unwrap(), one.moved_to.is_some())).collect();
        assert_eq!(told, [(".envrc", true), ("d/e/.git", true)], "{closed:o}: {slipped:?}");
        assert_eq!(mode(&work.root), closed);
        close(&work.root, 0o755);
        assert_eq!((mode(&work.root.join("d")), mode(&work.root.join("keep"))), (closed, closed));
    }
}

#[test]
fn control_files_below_a_closed_top_are_put_aside_while_somebody_watches() {
    let work = Work::new(&[("d/x", "")]);
    let _owner = as_owner(&work);
    let sentry = work.sentry();
    close(&work.root, 0o311);
    assert!(soon(|| mode(&work.root) == 0o311));
    work.put(".envrc", "planted");
    work.put("new/.git", "planted");
    assert!(soon(|| [".envrc", "new/.git"].iter().all(|path| !work.root.join(path).exists())));
    assert_eq!(sentry.failed(), None);
    assert_eq!(sentry.stop().unwrap().len(), 2);
    assert_eq!(mode(&work.root), 0o311);
}

#[test]
fn a_closed_folder_is_no_missing_one() {
    for closed in MODES {
        let work = Work::new(&REPO);
        work.put(".mcp.json", "{}");
        work.put("d/.git/HEAD", "");
        let _owner = as_owner(&work);
        let plan = work.plan();
        let hold = work.hold(&plan);
        let below = Dir::open(&work.root).unwrap();
        let aside = Dir::open(&work.folder.path().join("aside")).unwrap();
        for path in ["d", ""] {
            close(&work.root.join(path), closed);
        }
        assert_eq!(hold.lost(), None, "{closed:o}");
        assert_eq!(check(&plan, &hold, &below, &aside, list()).unwrap(), vec![], "{closed:o}");
        close(&work.root, 0o700);
        assert!(has(&work.plan().layers, "d/.git"), "one that was closed from the beginning: {closed:o}");
    }
}
