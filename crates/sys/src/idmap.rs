//! A mount whose files belong to other ids than on disk: a workspace owned by one user, used by another, without a
//! single chown.
//!
//! *Kernel facts*: `MOUNT_ATTR_IDMAP` 5.12, for root of the file system's user namespace only; each file system must
//! support it (tmpfs since 6.3, overlay itself not). The mount must be detached and not yet visible anywhere.

use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

use crate::error::{Error, ErrorContext as _, Result};
use crate::spawn::{Child, IdMaps, IdRange, Namespaces, Spawn, write_id_maps};
use crate::tree::{self, MountAttr};

const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;

/// A detached copy of the tree at `place` in which `on_disk` ids are `shown` ones: (on disk, shown) for uid and gid.
/// Files of other ids belong to nobody in it.
///
/// # Errors
/// EINVAL: the file system cannot do it. EPERM: not root.
pub fn clone_mapped(place: impl AsFd, uid: (u32, u32), gid: (u32, u32)) -> Result<OwnedFd> {
    let tree = tree::clone(place, true)?;
    let namespace = user_namespace(uid, gid)?;
    let userns = u64::from(namespace.as_raw_fd().unsigned_abs());
    tree::set(&tree, &MountAttr { set: MOUNT_ATTR_IDMAP, clear: 0, propagation: 0, userns })?;
    Ok(tree)
}

/// A user namespace that maps one uid and one gid. It lives as long as its descriptor: the process that held it ends
/// here.
fn user_namespace(uid: (u32, u32), gid: (u32, u32)) -> Result<OwnedFd> {
    let program = crate::memfd::program(c"waits", crate::arch::WAITING)?;
    let child = Spawn {
        namespaces: Namespaces::USER,
        cgroup: None,
        tasks: &[],
        cgroup_namespace: false,
        mounts: &[],
        id_maps: IdMaps::Later,
        time_offsets: None,
        ambient: 0,
        fds: &[],
        program: program.as_fd(),
        argv: &[c"waits"],
    }
    .start()
    .map_err(|failed| Error::new("clone3", "user namespace", failed.errno))?;
    let namespace = mapped(&child, uid, gid);
    crate::pidfd::send_signal(&child.pidfd, libc::SIGKILL)?;
    crate::pidfd::wait(&child.pidfd)?;
    namespace
}

fn mapped(child: &Child, (uid, shown_uid): (u32, u32), (gid, shown_gid): (u32, u32)) -> Result<OwnedFd> {
    let range = |inside, outside| [IdRange { inside, outside, count: 1 }];
    write_id_maps(child.pid, &range(uid, shown_uid), &range(gid, shown_gid), false)?;
    let path = format!("/proc/{}/ns/user", child.pid);
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    rustix::fs::open(path.as_str(), flags, rustix::fs::Mode::empty()).named("open", || path.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    #[test]
    fn files_of_one_owner_belong_to_another_in_the_mount_and_stay_as_they_are_on_disk() {
        if !rustix::process::geteuid().is_root() {
            println!("skip: id-mapped mounts need root");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f");
        std::fs::write(&file, "x").unwrap();
        std::os::unix::fs::chown(&file, Some(0), Some(0)).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let place = crate::paths::open_place(folder.path()).unwrap();
        let tree = match clone_mapped(&place, (0, 12345), (0, 23456)) {
            Ok(tree) => tree,
            Err(error) if error.errno == Errno::INVAL => {
                println!("skip: this file system has no id-mapped mounts");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        let inside = crate::paths::open_place_below(&tree, std::path::Path::new("f")).unwrap();
        let facts = crate::paths::facts(&inside).unwrap();
        assert_eq!((facts.uid, facts.gid), (12345, 23456));
        // A write by the shown id is the owner's write on disk.
        let result = crate::fsids::FsIdsGuard::user(12345, 23456).unwrap();
        let made = rustix::fs::openat(
            &tree,
            "new",
            rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY,
            rustix::fs::Mode::from_bits_retain(0o600),
        );
        drop(result);
        made.unwrap();
        assert_eq!(std::fs::metadata(folder.path().join("new")).unwrap().uid(), 0);
        assert_eq!(std::fs::metadata(&file).unwrap().uid(), 0);
    }
}
