//! After a `rw` run: what slipped in is put aside.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FileType, Mode, RenameFlags};
use rustix::io::{Errno, Result};
use serde::Serialize;

use super::hold::{ControlFile, Hold, NodeState};
use super::list::List;
use super::plan::{ProtectPlan, kind_of, parent_of, seen};
use crate::state::{Dir, path_text, rights_of};

/// Characters of a path that are kept in the name of what was put aside.
const MAX_FLAT: usize = 50;

/// Numbers what was put aside, so that no name is tried twice.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// It was there at the start.
const VANISHED: &str = "vanished";
/// A folder on the way to it is closed, and not by its owner.
pub(super) const UNSEEN: &str = "could not be looked at in the end";
/// It was a link at the start, and is again.
pub(super) const LINKED_AGAIN: &str = "vanished, and was a link";

/// A protected path that is not as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Slipped {
    /// Relative to the workspace.
    #[serde(with = "path_text")]
    pub path: PathBuf,
    /// `appeared`, `changed`, `was replaced`, `vanished`, `vanished, and was a link`, or `could not be looked at in the end`.
    pub what: &'static str,
    /// Where it was put; relative to the workspace if it begins with its name, else in the folder of the run.
    pub moved_to: Option<String>,
    /// Why it was left, if it was.
    pub why: Option<String>,
}

impl Slipped {
    /// What came of one that was not moved, and about which nothing else is to be said.
    #[must_use]
    pub fn left(&self) -> &'static str {
        match self.what {
            VANISHED => "nothing stands there now",
            LINKED_AGAIN => "the link was made again",
            _ => "it was left as it is",
        }
    }
}

/// Compares with the start. What appeared is moved into `aside`. What was there and changed is only told: inside it was
/// read-only, so somebody changed it from outside. What was *replaced* lost its read-only mount then, and may have been
/// written inside: it is put aside too, and a file is put back as it was at the start.
///
/// # Errors
/// What the kernel answers when the workspace cannot be read.
pub fn check(plan: &ProtectPlan, hold: &Hold, below: &Dir, aside: &Dir, list: &List) -> Result<Vec<Slipped>> {
    let mut slipped = Vec::new();
    for path in plan.binds.iter().map(|bind| &bind.path).chain(&plan.layers) {
        let Some(held) = hold.of(path) else { continue };
        slipped.extend(match replaced(held, below, aside) {
            Ok(found) => found,
            Err(errno) => Some(told(path, UNSEEN, Some(errno.to_string()))),
        });
    }
    let undone: Vec<PathBuf> = slipped.iter().map(|one| one.path.clone()).collect();
    let now = seen(below, list)?;
    for (path, found) in now.iter().filter(|(path, _)| !undone.contains(path)) {
        match plan.before.get(path) {
            Some(before) if before == found => {}
            Some(before) if before.target != found.target => {
                slipped.push(relink(below, path, before.target.as_deref(), aside))
            }
            // It leads where it did: the watch may have made it again, as another inode, and has told of it.
            Some(before) if before.target.is_some() => {}
            Some(before) if before.inode == found.inode && is_folder(found.mode) => {}
            Some(_) => slipped.push(told(path, "changed", None)),
            None => slipped.push(put_aside(below, path, aside, "appeared")),
        }
    }
    let vanished = plan.before.keys().filter(|path| !now.contains_key(*path) && !undone.contains(path));
    slipped.extend(vanished.map(|path| {
        match kind_of(below, path) {
            Ok(None) => {}
            Ok(Some(_)) => return told(path, UNSEEN, None),
            Err(errno) => return told(path, UNSEEN, Some(errno.to_string())),
        }
        let target = plan.before.get(path).and_then(|before| before.target.as_deref());
        let (Some(target), Ok(Some((parent, name)))) = (target, parent_of(below, path)) else {
            return told(path, VANISHED, None);
        };
        match link_again(target, &parent, &name) {
            Ok(()) => told(path, LINKED_AGAIN, None),
            Err(errno) => told(path, VANISHED, Some(format!("the link could not be made again: {errno}"))),
        }
    }));
    Ok(slipped)
}

/// With the owner's rights: whoever owns the folder has made something else of the name meanwhile, perhaps.
pub(super) fn link_again(target: &[u8], parent: &Dir, name: &OsStr) -> Result<()> {
    let _owners = rights_of(parent)?;
    let _open = parent.open_for_changes()?;
    rustix::fs::symlinkat(Path::new(OsStr::from_bytes(target)), parent, Path::new(name))
}

/// What stands in the place of a control file, if nobody can say who wrote it.
fn replaced(held: &ControlFile, below: &Dir, aside: &Dir) -> Result<Option<Slipped>> {
    match held.stands(below)? {
        NodeState::Same | NodeState::Nothing => return Ok(None),
        NodeState::Rewritten | NodeState::Other => {}
    }
    let mut slipped = put_aside(below, &held.path, aside, "was replaced");
    if slipped.moved_to.is_some() && !is_folder(held.mode) {
        slipped.why = held.put_back(below).err().map(|errno| format!("the old one could not be put back: {errno}"));
    }
    Ok(Some(slipped))
}

/// A link that was replaced: the new thing is put aside, the old link made again.
fn relink(below: &Dir, path: &Path, target: Option<&[u8]>, aside: &Dir) -> Slipped {
    let mut slipped = put_aside(below, path, aside, "changed");
    if let (Some(target), Some(_), Ok(Some((parent, name)))) = (target, &slipped.moved_to, parent_of(below, path)) {
        let made = link_again(target, &parent, &name);
        slipped.why = made.err().map(|errno| format!("the link could not be made again: {errno}"));
    }
    slipped
}

/// Moves what has a name into the folder for it, or where that lies on another disk disarms it where it is. The move alone is
/// root's where root runs: no owner of a workspace may write into the state folder.
pub(super) fn put_aside(below: &Dir, path: &Path, aside: &Dir, what: &'static str) -> Slipped {
    let (parent, name) = match parent_of(below, path) {
        Ok(Some(found)) => found,
        Ok(None) => return told(path, what, Some("its folder is gone".into())),
        Err(errno) => return told(path, what, Some(format!("its folder cannot be opened: {errno}"))),
    };
    // A folder that its owner may not write cannot be moved into another: its own `..` changes. Root may move it as it is, and
    // gives no folder of somebody else's another mode.
    let mut _open = None;
    if !rustix::process::geteuid().is_root() {
        // Where it cannot be opened, the move says so.
        _open = parent.open_for_changes().ok().flatten();
        if parent.kind(&name) == Ok(Some(FileType::Directory)) {
            parent.set_mode(&name, Mode::RWXU).unwrap_or_default();
        }
    }
    let flat = path.as_os_str().to_string_lossy().replace('/', "%");
    // Names have 255 bytes at most; the end says more than the beginning.
    let flat: String = flat.chars().skip(flat.chars().count().saturating_sub(MAX_FLAT)).collect();
    let mut to = flat.clone();
    loop {
        match rustix::fs::renameat_with(&parent, Path::new(&name), aside, to.as_str(), RenameFlags::NOREPLACE) {
            Ok(()) => return Slipped { path: path.into(), what, moved_to: Some(to), why: None },
            Err(Errno::EXIST) => to = format!("{flat}.{}", NUMBER.fetch_add(1, Ordering::Relaxed)),
            Err(Errno::XDEV) => return disarm(&parent, &name, path, what),
            Err(errno) => return told(path, what, Some(errno.to_string())),
        }
    }
}

/// The state folder lies on another disk: a name that nobody reads, and no permissions, do as well. With the owner's rights:
/// what the owner of the folder could not have renamed or closed is nothing that a run of theirs made.
fn disarm(parent: &Dir, name: &OsStr, path: &Path, what: &'static str) -> Slipped {
    let _owners = match rights_of(parent).and_then(|owners| Ok((parent.open_for_changes()?, owners))) {
        Ok(rights) => rights,
        Err(errno) => return told(path, what, Some(errno.to_string())),
    };
    loop {
        // Nothing of its own name: `.envrc.x` is one that the list knows as well, and would be put aside again.
        let to = format!(".fumehood-put-aside-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        match rustix::fs::renameat_with(parent, Path::new(name), parent, Path::new(&to), RenameFlags::NOREPLACE) {
            Ok(()) => {
                let closed = parent.set_mode(&to, Mode::empty());
                let moved_to = path.with_file_name(&to).to_string_lossy().into_owned();
                let why = closed.err().map(|errno| format!("its permissions stay: {errno}"));
                return Slipped { path: path.into(), what, moved_to: Some(moved_to), why };
            }
            Err(Errno::EXIST) => {}
            Err(errno) => return told(path, what, Some(errno.to_string())),
        }
    }
}

pub(super) fn told(path: &Path, what: &'static str, why: Option<String>) -> Slipped {
    Slipped { path: path.into(), what, moved_to: None, why }
}

fn is_folder(mode: u32) -> bool {
    FileType::from_raw_mode(mode) == FileType::Directory
}
