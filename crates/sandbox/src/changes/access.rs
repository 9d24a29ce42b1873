//! Access lists (POSIX ACLs), extended attributes and groups. Of a run's none is taken. A file of the host's keeps the list that it has,
//! whose mode speaks of no group but of the most that the list gives, and its attributes; what is new has what its folder says of new
//! things, its group too where that has a set-group-id bit; and none comes by way of the folder in which things are staged.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{
    Gid, Mode, Uid, XattrFlags, fgetxattr, fgetxattr_query, fremovexattr, fsetxattr, lgetxattr, lgetxattr_query,
    llistxattr, llistxattr_query,
};
use rustix::io::{Errno, Result as KernelResult};

use super::exchange::parent;
use super::manifest::{Change, Entry, Kind};
use crate::protect::split;
use crate::state::{Cross, Dir, own_link};

/// Of a file or folder.
const OWN: &str = "system.posix_acl_access";
/// Of what is made in a folder.
const NEW: &str = "system.posix_acl_default";
/// The owner's own rights are what the mode says.
const OWNER: u32 = 0o700;

/// What is to be put on something that is staged.
pub(super) enum AccessList {
    /// It has none.
    None,
    /// What is on the host has it.
    Kept(Vec<u8>),
    /// New things have it there.
    Given(Vec<u8>),
}

impl AccessList {
    /// Of an entry, where it goes.
    pub(super) fn of(root: &Dir, entry: &Entry) -> KernelResult<Self> {
        if entry.change == Change::Modified {
            // What became of the folder is seen when it is this one's turn.
            let Ok((dir, name)) = parent(root, &entry.path) else { return Ok(Self::None) };
            let path = Path::new(&own_link(&dir)).join(name);
            let list = there(lgetxattr_query(path.as_path(), OWN), |list| lgetxattr(path.as_path(), OWN, list))?;
            return Ok(list.map_or(Self::None, Self::Kept));
        }
        // A folder on the way that is new itself has its own from the one above.
        let above = entry.path.ancestors().skip(1).find_map(|above| root.enter(above, Cross::No).ok());
        let Some(above) = above else { return Ok(Self::None) };
        let list = there(fgetxattr_query(&above, NEW), |list| fgetxattr(&above, NEW, list))?;
        Ok(list.map_or(Self::None, Self::Given))
    }

    /// Puts it on a file that is staged, and what of the mode goes with it.
    pub(super) fn put(&self, file: impl AsFd, mode: u32) -> KernelResult<Mode> {
        let mode = match self {
            Self::None => {
                absent_is_fine(fremovexattr(&file, OWN))?;
                mode
            }
            Self::Kept(list) => {
                fsetxattr(&file, OWN, list, XattrFlags::empty())?;
                mode
            }
            Self::Given(list) => {
                fsetxattr(&file, OWN, list, XattrFlags::empty())?;
                mode & (rustix::fs::fstat(&file)?.st_mode | OWNER)
            }
        };
        Ok(Mode::from_raw_mode(mode & 0o777))
    }

    /// [`Self::put`] on a folder, which gives it on.
    pub(super) fn put_on_folder(&self, folder: &Dir, mode: u32) -> KernelResult<Mode> {
        match self {
            Self::Given(list) => fsetxattr(folder, NEW, list, XattrFlags::empty())?,
            Self::None | Self::Kept(_) => absent_is_fine(fremovexattr(folder, NEW))?,
        }
        self.put(folder, mode)
    }
}

/// The mode bit by which a folder gives its group on.
pub(super) const SET_GROUP: u32 = 0o2000;
/// Attributes of the host's files that stay: what people and programs noted, and the label of the file.
const USERS: &[u8] = b"user.";
const LABEL: &[u8] = b"security.selinux";

/// Attributes of what an entry changes on the host, by name.
pub(super) struct Attributes(Vec<(Vec<u8>, Vec<u8>)>);

impl Attributes {
    pub(super) fn of(root: &Dir, entry: &Entry) -> KernelResult<Self> {
        let none = Self(Vec::new());
        if entry.change != Change::Modified {
            return Ok(none);
        }
        let Ok((dir, name)) = parent(root, &entry.path) else { return Ok(none) };
        let path = Path::new(&own_link(&dir)).join(name);
        let names = there(llistxattr_query(path.as_path()), |names| llistxattr(path.as_path(), names))?;
        let names = names.unwrap_or_default();
        let names = names.split(|byte| *byte == 0).filter(|name| name.starts_with(USERS) || *name == LABEL);
        let read = |name: &[u8]| {
            let value = there(lgetxattr_query(path.as_path(), name), |value| lgetxattr(path.as_path(), name, value))?;
            Ok((name.to_vec(), value.unwrap_or_default()))
        };
        names.map(read).collect::<KernelResult<_>>().map(Self)
    }

    pub(super) fn put(&self, file: impl AsFd) -> KernelResult<()> {
        for (name, value) in &self.0 {
            match fsetxattr(&file, name.as_slice(), value, XattrFlags::empty()) {
                // Labels are the system's to give.
                Err(Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP) if name.as_slice() == LABEL => {}
                other => other?,
            }
        }
        Ok(())
    }
}

/// Who owns a file that an entry changes, if it would be another's, exchanged: the caller's, or, where root works in somebody's tree,
/// theirs. Root keeps owners in a tree of its own. Files of git's own folder git itself exchanges in the same way.
pub(super) fn of_another(root: &Dir, entry: &Entry) -> KernelResult<Option<u32>> {
    let Ok((dir, name)) = parent(root, &entry.path) else { return Ok(None) };
    let is_put = entry.change == Change::Modified && entry.kind != Kind::Dir && split(&entry.path).is_none();
    let Some(stat) = dir.stat(&name)?.filter(|_| is_put) else { return Ok(None) };
    let becomes = match (rustix::process::geteuid().as_raw(), rustix::fs::fstat(root)?.st_uid) {
        (0, 0) => return Ok(None),
        (0, owner) => owner,
        (caller, _) => caller,
    };
    Ok((stat.st_uid != becomes).then_some(stat.st_uid))
}

/// Gives what is staged an owner and a group, as far as the caller may: who is not root can give nothing away, and need not, for it is the
/// caller's already; but a group that the caller is in.
pub(super) fn give(
    (uid, gid): (Option<Uid>, Option<Gid>),
    chown: impl Fn(Option<Uid>, Option<Gid>) -> KernelResult<()>,
) -> KernelResult<()> {
    let may_keep = |given| match given {
        Err(Errno::PERM) if !rustix::process::geteuid().is_root() => Ok(()),
        other => other,
    };
    may_keep(chown(None, gid))?;
    may_keep(chown(uid, None))
}

/// The group of what is new at a path, where the folder on the host that it is made in gives its own on.
pub(super) fn given_group(root: &Dir, path: &Path) -> KernelResult<Option<Gid>> {
    let above = path.ancestors().skip(1).find_map(|above| root.enter(above, Cross::No).ok());
    let Some(stat) = above.map(rustix::fs::fstat).transpose()? else { return Ok(None) };
    Ok((stat.st_mode & SET_GROUP != 0).then(|| Gid::from_raw(stat.st_gid)))
}

/// A list, if there is one.
fn there(
    length: KernelResult<usize>,
    read: impl FnOnce(&mut [u8]) -> KernelResult<usize>,
) -> KernelResult<Option<Vec<u8>>> {
    let length = match length {
        Ok(length) => length,
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    let mut list = vec![0; length];
    let length = read(&mut list)?;
    list.truncate(length);
    Ok(Some(list).filter(|list| !list.is_empty()))
}

fn absent_is_fine(removed: KernelResult<()>) -> KernelResult<()> {
    match removed {
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
        other => other,
    }
}
