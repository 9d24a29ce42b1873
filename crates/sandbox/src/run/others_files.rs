//! Files of a workspace that a run with a layer cannot change: they belong to a user or a group that has no number inside.

use std::path::PathBuf;

use rustix::fs::FileType;

use crate::fault::show_path;
use crate::state::Dir;

/// So many names at the top are looked at: a start waits for it.
const MAX_NAMES: usize = 1000;

/// What to say of the first of them at the top of a workspace. Inside there is the owner of the workspace with its group, or whoever
/// calls: a copy of what is anybody else's cannot be made in the layer.
pub(super) fn told(below: &Dir) -> Option<String> {
    let top = rustix::fs::fstat(below).ok()?;
    let caller = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let known = if caller.0 == 0 { (top.st_uid, top.st_gid) } else { caller };
    let is_one = |name: &std::ffi::OsString| {
        let stat = below.stat(name).ok()??;
        let kind = FileType::from_raw_mode(stat.st_mode);
        let is_other =
            [FileType::RegularFile, FileType::Directory].contains(&kind) && (stat.st_uid, stat.st_gid) != known;
        is_other.then(|| (PathBuf::from(name), stat.st_uid, stat.st_gid))
    };
    let (name, uid, gid) = below.names().ok()?.iter().take(MAX_NAMES).find_map(is_one)?;
    let whose = if uid == known.0 { format!("of the group {gid}") } else { format!("of the user {uid}") };
    Some(format!(
        "{} is {whose}, which has no number inside: it, and what is like it, cannot be changed there (`Value too large for defined data \
         type`), nor anything made in such a folder; `-w PATH:copy` can, and so can `rw`",
        show_path(&name)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_somebody_else_at_the_top_is_told() {
        if !rustix::process::geteuid().is_root() {
            println!("skip: needs root");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), "").unwrap();
        std::os::unix::fs::chown(folder.path(), Some(4242), Some(4242)).unwrap();
        let told = |uid, gid| {
            std::os::unix::fs::chown(folder.path().join("a"), Some(uid), Some(gid)).unwrap();
            told(&Dir::open(folder.path()).unwrap())
        };
        assert_eq!(told(4242, 4242), None);
        assert!(
            told(4242, 4711).is_some_and(|text| text.starts_with("`a` is of the group 4711") && text.contains("copy"))
        );
        assert!(told(4711, 4242).is_some_and(|text| text.starts_with("`a` is of the user 4711")));
    }
}
