//! Whether who the run is may read what `fs.read` grants. A run that root starts is somebody else, so that a file of root
//! alone would be visible but unreadable: that is told before the start, as a path that is not there is.
//!
//! *Does not promise*: what lies below a granted folder is its owner's matter, and where an access control list or the
//! caller's own groups count too, the kernel is asked or nothing is said.

use std::path::Path;

use super::source::{Resolved, resolve_entry};
use crate::identity::Identity;
use crate::{Shut, StartError};

const READ: u32 = 0o4;
const SEARCH: u32 = 0o1;

/// What was found at a grant for reading; refused where the run's user could not read it. Only its own owner and mode count
/// in the container tier, where the folders above it are ours; elsewhere the way to it counts too.
pub(crate) fn granted(found: Resolved, who: Identity, container: bool, rootless: bool) -> Result<Resolved, StartError> {
    let shut = |at: &Path, shut: &Resolved| {
        StartError::Unreadable(Box::new(Shut {
            path: found.path.clone(),
            at: at.to_owned(),
            folder: shut.dir,
            owner: shut.uid,
            mode: shut.mode,
            uid: who.uid,
            others: !rootless,
        }))
    };
    // A folder that can only be passed through still shows what one knows the name of.
    let wanted = if found.dir { &[READ, SEARCH][..] } else { &[READ] };
    if !wanted.iter().any(|right| may(&found, *right, who, rootless)) {
        return Err(shut(&found.path, &found));
    }
    if container || rootless {
        return Ok(found);
    }
    for above in found.path.ancestors().skip(1) {
        // What cannot even be looked at is no reason to refuse: the kernel found the path a moment ago.
        let Ok(folder) = resolve_entry("fs.read", above) else { continue };
        if !may(&folder, SEARCH, who, rootless) {
            return Err(shut(above, &folder));
        }
    }
    Ok(found)
}

/// By mode bits, which is all there is to it for most files.
fn may(found: &Resolved, right: u32, who: Identity, rootless: bool) -> bool {
    let bits = |class: u32| (found.mode >> class) & right == right;
    let (owner, group, others) = (bits(6), bits(3), bits(0));
    if who.uid == 0 {
        return true;
    }
    if found.uid == who.uid {
        return owner;
    }
    if rootless {
        // The caller itself, who may be of its group or in its list.
        return (group && others) || sys::paths::may(&found.path, right == READ);
    }
    // A run that root starts is of no other group.
    (if found.gid == who.gid { group } else { others }) || sys::paths::has_access_list(&found.path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::source::resolve;
    use super::*;

    const STRANGER: Identity = Identity { uid: 54_321, gid: 54_321, maps: true };

    fn at(path: &Path) -> Resolved {
        resolve("fs.read", path).unwrap()
    }

    fn with_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn what_only_its_owner_may_read_is_refused_for_another_user_and_the_same_file_open_to_all_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("data");
        std::fs::write(&file, "x").unwrap();
        with_mode(&file, 0o640);
        let refused = granted(at(&file), STRANGER, true, false).err().unwrap();
        assert!(
            matches!(&refused, StartError::Unreadable(shut) if (shut.mode, shut.uid) == (0o640, 54_321)),
            "{refused:?}"
        );
        with_mode(&file, 0o644);
        assert!(granted(at(&file), STRANGER, true, false).is_ok());
    }

    #[test]
    fn the_owner_the_group_and_root_are_judged_by_their_own_bits() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("data");
        std::fs::write(&file, "x").unwrap();
        let base = &at(&file);
        let who = |uid, gid| Identity { uid, gid, maps: true };
        for (mode, owner, group, other) in [
            (0o600, true, false, false),
            (0o640, true, true, false),
            (0o644, true, true, true),
            (0o044, false, true, true),
        ] {
            let found = Resolved { mode, uid: 7, gid: 8, path: base.path.clone(), ..*base };
            let answers = [who(7, 1), who(1, 8), who(1, 1)].map(|who| may(&found, READ, who, false));
            assert_eq!(answers, [owner, group, other], "{mode:o}");
            assert!(may(&found, READ, who(0, 0), false));
        }
    }

    #[test]
    fn a_folder_on_the_way_counts_only_where_the_run_has_to_take_that_way() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, file) = (dir.path().join("shut"), dir.path().join("shut/data"));
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(&file, "x").unwrap();
        for path in [dir.path(), &file] {
            with_mode(path, 0o755);
        }
        with_mode(&folder, 0o700);
        assert!(granted(at(&file), STRANGER, true, false).is_ok());
        let refused = granted(at(&file), STRANGER, false, false).err().unwrap();
        assert!(matches!(&refused, StartError::Unreadable(shut) if shut.at == folder.canonicalize().unwrap()));
        with_mode(&folder, 0o711);
        assert!(granted(at(&file), STRANGER, false, false).is_ok());
    }
}
