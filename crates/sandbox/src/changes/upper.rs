//! Reading the upper layer of an overlay, by a descriptor: the mount namespace that it was made in may be dead.
//!
//! Kernel facts: a whiteout is a character device 0/0, or (with `userxattr`, 6.7) an empty file with `overlay.whiteout` in
//! a folder whose `overlay.opaque` is `x`; an opaque folder has `overlay.opaque` = `y`. We mount with `redirect_dir=off` and
//! `metacopy=off`, so `overlay.redirect` and `overlay.metacopy` were forged: such a path is refused, not read.
//! What stands in `user.overlay.*` inside the mount is escaped by the kernel and does not reach the upper under that name.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::{Errno, Result as KernelResult};

use super::ChangesError;
use super::manifest::{Fingerprint, Kind};
use super::store::{Store, stream, too_deep};
use crate::state::{Cross, Dir};

/// Takes everything in `upper` over into `store`, compared with the folder `lower` as it is on the host now, which lies at
/// `at` in the workspace.
///
/// # Errors
/// [`ChangesError`] if the layer cannot be read, or what changed cannot be kept.
pub fn read_upper(store: &mut Store, upper: &Dir, lower: &Dir, at: &Path) -> Result<(), ChangesError> {
    let mut at = at.to_owned();
    walk(store, upper, &Lower { dir: Some(lower), opaque: false }, &mut at, 0).map_err(|errno| store.failed(at, errno))
}

/// What the host has beneath a folder of the layer.
struct Lower<'a> {
    dir: Option<&'a Dir>,
    /// A folder above covers it whole. The kernel marks only the topmost one: what lies in that has nothing beneath it.
    opaque: bool,
}

fn walk(store: &mut Store, upper: &Dir, below: &Lower<'_>, at: &mut PathBuf, depth: usize) -> KernelResult<()> {
    let names = upper.names()?;
    let opaque = below.opaque || attribute(upper, "opaque")?.is_some_and(|v| v == b"y");
    if opaque && let Some(lower) = below.dir {
        for name in lower.names()?.iter().filter(|name| names.binary_search(name).is_err()) {
            store.removed(lower, name, &at.join(name), depth)?;
        }
    }
    let below = Lower { dir: below.dir, opaque };
    for name in names {
        at.push(&name);
        child(store, upper, &below, &name, at, depth)?;
        at.pop();
    }
    Ok(())
}

fn child(
    store: &mut Store,
    upper: &Dir,
    below: &Lower<'_>,
    name: &OsStr,
    at: &mut PathBuf,
    depth: usize,
) -> KernelResult<()> {
    let lower = below.dir;
    let Some(stat) = upper.stat(name)? else { return Ok(()) };
    let mut now = Fingerprint::from_stat(&stat);
    if FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && stat.st_rdev == 0 {
        let ours = store.known.covered.contains(at.as_path());
        return lower.filter(|_| !ours).map_or(Ok(()), |lower| store.removed(lower, name, at, depth));
    }
    let mut base = lower.map(|lower| Fingerprint::of(lower, name)).transpose()?.flatten();
    let replaced = base.as_ref().is_some_and(|b| (b.kind == Kind::Dir) != (now.kind == Kind::Dir));
    match now.kind {
        Kind::Special => return store.leave(at, special(stat.st_mode)),
        Kind::Dir => return folder(store, upper, below, name, at, (&now, base, replaced, depth)),
        Kind::Symlink => {
            now.target =
                Some(policy::json::hex(rustix::fs::readlinkat(upper, Path::new(name), Vec::new())?.as_bytes()));
            if base.as_ref().is_some_and(|b| b.kind == Kind::Symlink && b.target == now.target) {
                return Ok(());
            }
        }
        Kind::File => match forged_file(upper, name, now.size)? {
            File::Plain => {}
            File::Whiteout => return lower.map_or(Ok(()), |lower| store.removed(lower, name, at, depth)),
            File::Forged => {
                return store.leave(at, "it carries attributes that only the kernel may set on a layer");
            }
        },
    }
    if replaced && let Some(lower) = lower {
        store.removed(lower, name, at, depth)?;
        base = None;
    }
    if now.kind == Kind::File {
        let large = base.as_mut().zip(lower).filter(|(base, _)| base.sha256.is_none() && base.size == now.size);
        if let Some((base, lower)) = large {
            // Of a file that was only touched, or taken already, nothing changed: its size alone does not tell.
            base.sha256 = sum(lower, name, base)?;
        }
        return store.file(upper, name, at, &now, base);
    }
    store.took(at, &now, None, base);
    Ok(())
}

fn folder(
    store: &mut Store,
    upper: &Dir,
    beneath: &Lower<'_>,
    name: &OsStr,
    at: &mut PathBuf,
    (now, base, replaced, depth): (&Fingerprint, Option<Fingerprint>, bool, usize),
) -> KernelResult<()> {
    let lower = beneath.dir;
    if let Some(why) = too_deep(at, depth) {
        return store.leave(at, why);
    }
    base.iter().for_each(|base| store.passes(at, base));
    let dir = match upper.enter_to_list(name) {
        Ok(dir) => dir,
        Err(errno) => return store.leave(at, format!("it cannot be read: {errno}")),
    };
    if attribute(&dir, "redirect")?.is_some() || attribute(&dir, "metacopy")?.is_some() {
        return store.leave(at, "it carries attributes that only the kernel may set on a layer");
    }
    let below = match (&base, lower) {
        (Some(_), Some(lower)) if replaced => {
            store.removed(lower, name, at, depth)?;
            None
        }
        (Some(_), Some(lower)) => match lower.enter(name, Cross::No) {
            Ok(dir) => Some(dir),
            // The layer covers the workspace's own file system alone, and so does what is taken over.
            Err(Errno::XDEV) => return store.leave(at, "another file system is mounted there on the host"),
            Err(errno) => return Err(errno),
        },
        (None, _) | (Some(_), None) => None,
    };
    match base {
        Some(base) if below.is_some() => {
            if base.mode & 0o777 != now.mode & 0o777 {
                store.took(at, now, None, Some(base));
            }
        }
        Some(_) | None => store.took(at, now, None, None),
    }
    walk(store, &dir, &Lower { dir: below.as_ref(), opaque: beneath.opaque }, at, depth + 1)
}

/// The sum of a large file of the host; `None` if it cannot be read, or is another one by now.
fn sum(lower: &Dir, name: &OsStr, base: &Fingerprint) -> KernelResult<Option<String>> {
    let Ok(file) = lower.open_file(name, OFlags::RDONLY, Mode::empty()) else { return Ok(None) };
    let opened = rustix::fs::fstat(&file)?;
    if opened.st_ino != base.inode || Fingerprint::from_stat(&opened).kind != Kind::File {
        return Ok(None);
    }
    Ok(stream(&file, &mut std::io::sink(), base.size)?.map(|(sum, _)| sum))
}

enum File {
    Plain,
    Whiteout,
    Forged,
}

fn forged_file(upper: &Dir, name: &OsStr, size: u64) -> KernelResult<File> {
    let Ok(file) = upper.open_file(name, OFlags::RDONLY, Mode::empty()) else { return Ok(File::Plain) };
    if attribute(&file, "redirect")?.is_some() || attribute(&file, "metacopy")?.is_some() {
        return Ok(File::Forged);
    }
    let whiteout = size == 0 && attribute(&file, "whiteout")?.is_some();
    Ok(if whiteout { File::Whiteout } else { File::Plain })
}

/// An attribute of the overlay, under either of the two names it can have.
fn attribute(fd: impl AsFd, name: &str) -> KernelResult<Option<Vec<u8>>> {
    for space in ["user", "trusted"] {
        let mut value = [0; 256];
        match rustix::fs::fgetxattr(&fd, format!("{space}.overlay.{name}"), &mut value) {
            Ok(length) => return Ok(Some(value.get(..length).unwrap_or_default().to_vec())),
            Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::PERM) => {}
            // Longer than anything the kernel writes: it is there.
            Err(Errno::RANGE) => return Ok(Some(Vec::new())),
            Err(errno) => return Err(errno),
        }
    }
    Ok(None)
}

/// What is left in a workspace and never reaches the host.
pub(super) fn special(mode: u32) -> &'static str {
    match FileType::from_raw_mode(mode) {
        FileType::Fifo => "a named pipe: not carried over",
        FileType::Socket => "a socket: not carried over",
        FileType::CharacterDevice | FileType::BlockDevice => "a device: not carried over",
        FileType::RegularFile | FileType::Directory | FileType::Symlink | FileType::Unknown => {
            "of no known kind: not carried over"
        }
    }
}
