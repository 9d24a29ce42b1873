//! Below a folder of somebody else root acts with that user's rights.
//!
//! Whoever owns a folder can put a link, or another file, in the place of anything in it, between any two calls of ours. So
//! what is made, renamed or removed there is made with the owner's ids: then whatever stands there instead, nothing comes
//! of it that the owner could not have done alone. Together with it hold: descriptors instead of names, no links on the way
//! ([`Dir`]), and a look at what was opened.

use rustix::io::{Errno, Result};
use sys::fsids::FsIdsGuard;

use super::Dir;

/// While the answer lives, this thread acts on files as the owner of `folder`. `None` where there is nobody to become: the
/// caller is not root, or it is root's own folder. What lies in the state folder is closed meanwhile.
///
/// # Errors
/// As fstat(2); EPERM if that user cannot be become.
pub fn rights_of(folder: &Dir) -> Result<Option<FsIdsGuard>> {
    let stat = rustix::fs::fstat(folder)?;
    if !rustix::process::geteuid().is_root() || stat.st_uid == 0 {
        return Ok(None);
    }
    FsIdsGuard::user(stat.st_uid, stat.st_gid).map(Some).or(Err(Errno::PERM))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use rustix::fs::{Mode, OFlags};

    use super::*;
    use crate::state::Cross;

    #[test]
    fn below_a_foreign_folder_root_can_do_what_its_owner_can_and_no_more() {
        if !rustix::process::geteuid().is_root() {
            println!("skip: needs root");
            return;
        }
        let top = tempfile::tempdir().unwrap();
        std::fs::set_permissions(top.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = top.path().join("theirs");
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("closed"), "of root").unwrap();
        std::fs::set_permissions(path.join("closed"), std::fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::chown(&path, Some(4242), Some(4242)).unwrap();
        let (own, theirs) = (Dir::open(top.path()).unwrap(), Dir::open(&path).unwrap());
        let read = || theirs.open_file("closed", OFlags::RDONLY, Mode::empty()).map(drop);
        assert!(rights_of(&own).unwrap().is_none());
        assert_eq!(read(), Ok(()), "root reads it");
        let guard = rights_of(&theirs).unwrap();
        assert_eq!(read(), Err(Errno::ACCESS), "root's group is given up too");
        assert_eq!(own.make("new", Mode::RWXU), Err(Errno::ACCESS));
        assert_eq!(theirs.make("new", Mode::RWXU), Ok(true));
        drop(guard);
        assert_eq!((theirs.stat("new").unwrap().unwrap().st_uid, read()), (4242, Ok(())));
        assert!(theirs.enter("new", Cross::No).is_ok());
    }
}
