//! What spares a second reading of a tree: after all of it was read, the change time, number, mode and size of every entry are
//! written down as one digest, the seal. While they are the same in the same boot, so is the content.
//!
//! # Promises
//! No program changes what a sealed tree holds without another change time: no call sets one, and whoever had a file open for
//! writing when it was read, or mapped, left the tree without a seal. What is not sure is read again: another boot, another file
//! system than ext4 and btrfs, a kernel or a tree whose times are coarse and whose last change is young.
//! # Does not promise
//! Anything against whoever writes to the disk below the file system or sets the clock: root. That a disk does not fail
//! between two readings in one boot. The seal lies beside the digest of the tree, and protects as much as that.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::SystemTime;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use sandbox::state::{Cross, Dir};
use sha2::{Digest as _, Sha256};

use crate::check::Sum;
use crate::decode::hex;
use crate::unfinished::unfinished;

/// The file beside the tree.
const SEAL: &str = "seal";
/// A seal is a digest and the tree's.
const MAX_SEAL: u64 = 256;
/// Of file systems whose mappings and writes were looked at: each changes the change time. (A tmpfs does not for a mapping.)
const KNOWN: [u64; 2] = [0xef53, 0x9123_683e];
/// From this kernel on a change after a look has another time than what was seen, whatever the clock's steps are.
const FINE_SINCE: (u32, u32) = (6, 13);
/// Elsewhere the last change must be older than any clock of a file system is coarse.
const MIN_AGE_SECONDS: i64 = 3;

/// Every entry of a tree as the file system tells of it.
#[derive(Debug, PartialEq, Eq)]
struct TreeFingerprint {
    digest: [u8; 32],
    /// The youngest change.
    changed: i64,
    /// Some time has parts of a second.
    fine: bool,
}

/// Whether a tree with this digest is as it was sealed.
pub(crate) fn holds(dir: &Dir, root: &Dir, tree: &str) -> bool {
    let Ok(kept) = dir.read(SEAL, MAX_SEAL) else { return false };
    facts(root).is_some_and(|facts| text(&facts, tree).is_some_and(|now| now.as_bytes() == kept))
}

/// Whether a tree with this digest was sealed in this boot; not whether it is as it was then.
pub(crate) fn is_kept(dir: &Dir, tree: &str) -> bool {
    let (Ok(kept), Ok(boot)) = (dir.read(SEAL, MAX_SEAL), sys::machine::boot_id()) else { return false };
    let kept = String::from_utf8_lossy(&kept);
    kept.strip_prefix(&head(&boot)).is_some_and(|rest| rest.ends_with(&format!(" {tree}")))
}

/// The tree is not what was unpacked.
pub(crate) fn forget(dir: &Dir) {
    if rustix::fs::unlinkat(dir, SEAL, AtFlags::empty()).is_err() {
        // It has none.
    }
}

/// Reads a tree, and seals what was read where that is sure. A seal that cannot be written costs a reading.
pub(crate) fn around(dir: &Dir, root: &Dir, read: impl FnOnce() -> Result<Sum, Errno>) -> Result<Sum, Errno> {
    let before = facts(root).filter(is_sure);
    let sum = read()?;
    if let Some(before) = before
        && sum.alone
        && facts(root).as_ref() == Some(&before)
        && let Some(text) = text(&before, &sum.digest)
    {
        write(dir, &text);
    }
    Ok(sum)
}

/// A change after this look would be seen.
fn is_sure(facts: &TreeFingerprint) -> bool {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let young = i64::try_from(now).map_or(0, |now| now.saturating_sub(MIN_AGE_SECONDS)) <= facts.changed;
    !young || facts.fine && sys::machine::kernel() >= FINE_SINCE
}

fn text(facts: &TreeFingerprint, tree: &str) -> Option<String> {
    let boot = sys::machine::boot_id().ok()?;
    Some(format!("{}{} {tree}", head(&boot), hex(&facts.digest)))
}

fn head(boot: &str) -> String {
    format!("1 {boot} ")
}

/// There whole or not at all; without it the next use reads all again.
fn write(dir: &Dir, text: &str) {
    let Ok(new) = unfinished(".seal-") else { return };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let Ok(mut file) = dir.open_file(&new, flags, Mode::from_raw_mode(0o600)) else { return };
    let there = std::io::Write::write_all(&mut file, text.as_bytes()).is_ok()
        && rustix::fs::renameat(dir, new.as_str(), dir, SEAL).is_ok();
    if !there && dir.remove_tree(&new).is_err() {
        // It goes with the tree.
    }
}

/// `None` where nothing is sure of this file system, or the tree cannot be walked.
fn facts(root: &Dir) -> Option<TreeFingerprint> {
    let place = rustix::fs::fstatfs(root).ok()?;
    u64::try_from(place.f_type).ok().filter(|kind| KNOWN.contains(kind))?;
    let mut look = SealWalk { hash: Sha256::new(), changed: 0, fine: false };
    look.entry(OsStr::new(""), &rustix::fs::fstat(root).ok()?);
    look.folder(root).ok()?;
    Some(TreeFingerprint { digest: look.hash.finalize().into(), changed: look.changed, fine: look.fine })
}

struct SealWalk {
    hash: Sha256,
    changed: i64,
    fine: bool,
}

impl SealWalk {
    fn folder(&mut self, dir: &Dir) -> Result<(), Errno> {
        for name in dir.names()? {
            let Some(stat) = dir.stat(&name)? else { return Err(Errno::STALE) };
            self.entry(&name, &stat);
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                self.folder(&dir.enter(Path::new(&name), Cross::No)?)?;
            }
        }
        // The end of a folder: no name is so long.
        self.hash.update(u64::MAX.to_le_bytes());
        Ok(())
    }

    fn entry(&mut self, name: &OsStr, stat: &Stat) {
        let (seconds, nanos) = (stat.st_ctime, stat.st_ctime_nsec);
        self.changed = self.changed.max(seconds);
        self.fine |= nanos != 0;
        self.hash.update(u64::try_from(name.len()).unwrap_or(u64::MAX).to_le_bytes());
        self.hash.update(name.as_bytes());
        self.hash.update(stat.st_mode.to_le_bytes());
        self.hash.update(stat.st_ino.to_le_bytes());
        self.hash.update(stat.st_size.to_le_bytes());
        self.hash.update(seconds.to_le_bytes());
        self.hash.update(nanos.to_le_bytes());
    }
}
