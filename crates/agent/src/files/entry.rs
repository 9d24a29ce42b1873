//! What is at a path.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Stat, XattrFlags};
use rustix::io::Errno;

use super::failure::at;
use crate::path_text;
use crate::words::{Entry, Failure, FileKind};

/// Extended attributes that are metadata.
const PREFIX: &str = "user.e2b.";
/// Most bytes of metadata that are read of one file.
const METADATA: usize = 16 * 1024;

/// What is at a path, following a link at its end if asked.
pub(crate) fn of(path: &Path, follow: bool) -> Result<Entry, Failure> {
    let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
    let stat = rustix::fs::statat(CWD, path, flags).map_err(at("looking at", path))?;
    Ok(from(path, &stat))
}

/// The entry of a path and what the kernel said about it.
pub(crate) fn from(path: &Path, stat: &Stat) -> Entry {
    let kind = kind(stat);
    let (target, target_kind) = if kind == FileKind::Link { leads_to(path) } else { (None, None) };
    let metadata = if matches!(kind, FileKind::File | FileKind::Dir) { metadata(path) } else { BTreeMap::new() };
    Entry {
        name: path_text::of(path.file_name().unwrap_or(path.as_os_str())),
        path: path_text::of(path),
        kind,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        modified: (stat.st_mtime, u32::try_from(stat.st_mtime_nsec).unwrap_or(0)),
        target,
        target_kind,
        metadata,
    }
}

pub(crate) fn kind(stat: &Stat) -> FileKind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Dir,
        FileType::Symlink => FileKind::Link,
        FileType::Fifo | FileType::Socket | FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => {
            FileKind::Other
        }
    }
}

fn leads_to(path: &Path) -> (Option<String>, Option<FileKind>) {
    let target = rustix::fs::readlink(path, Vec::new()).ok();
    let there = rustix::fs::stat(path).ok();
    (target.map(|target| path_text::of(OsStr::from_bytes(target.to_bytes()))), there.as_ref().map(kind))
}

/// Metadata of a file or folder; none where the file system has no such attributes.
fn metadata(path: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut left = METADATA;
    for name in names(path) {
        let Some(key) = name.strip_prefix(PREFIX) else { continue };
        let mut value = vec![0; 4096];
        let Ok(length) = rustix::fs::lgetxattr(path, name.as_str(), &mut value[..]) else { continue };
        value.truncate(length);
        let Some(rest) = left.checked_sub(key.len().saturating_add(value.len())) else { break };
        left = rest;
        found.insert(key.to_owned(), String::from_utf8_lossy(&value).into_owned());
    }
    found
}

fn names(path: &Path) -> Vec<String> {
    // None, which is nearly always so, costs one call.
    let mut list = [0; 256];
    let listed = match rustix::fs::llistxattr(path, &mut list[..]) {
        Ok(length) => list.get(..length).unwrap_or_default().to_vec(),
        Err(Errno::RANGE) => {
            // The kernel's own bound (XATTR_LIST_MAX).
            let mut list = vec![0; 64 * 1024];
            let length = rustix::fs::llistxattr(path, &mut list[..]).unwrap_or(0);
            list.truncate(length);
            list
        }
        Err(_) => Vec::new(),
    };
    listed
        .split(|byte| *byte == 0)
        .filter(|name| name.starts_with(PREFIX.as_bytes()))
        .filter_map(|name| String::from_utf8(name.to_vec()).ok())
        .collect()
}

/// Gives an open file metadata.
///
/// # Errors
/// EOPNOTSUPP, ENOSYS: there are no such attributes here. ENOSPC: too much.
pub(crate) fn set_metadata(file: impl std::os::fd::AsFd, metadata: &BTreeMap<String, String>) -> Result<(), Errno> {
    metadata.iter().try_for_each(|(key, value)| {
        rustix::fs::fsetxattr(&file, format!("{PREFIX}{key}"), value.as_bytes(), XattrFlags::empty())
    })
}
