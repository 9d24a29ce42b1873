//! Paths of the host that a plan names: resolved once, with what must be found there when the guest opens them.

use std::ffi::CString;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use guest::config::Identity;

use crate::StartError;

/// A resolved host path.
pub(crate) struct Resolved {
    pub(crate) path: PathBuf,
    pub(crate) dev: u64,
    pub(crate) ino: u64,
    pub(crate) dir: bool,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Permission bits.
    pub(crate) mode: u32,
}

impl Resolved {
    /// What the guest must find at this path.
    pub(crate) fn identity(&self) -> Identity {
        let (major, minor) = sys::caller::device_numbers(self.dev);
        Identity { major, minor, ino: self.ino }
    }
}

/// Resolves a host path once: canonical, with its identity.
pub(crate) fn resolve(clause: &'static str, path: &Path) -> Result<Resolved, StartError> {
    let canonical = path.canonicalize().map_err(|e| StartError::path(clause, path, &e))?;
    let meta = canonical.symlink_metadata().map_err(|e| StartError::path(clause, path, &e))?;
    found(clause, path, canonical, &meta)
}

/// As [`resolve`], of an entry that was looked at and is no link, in a folder that is canonical: it is not looked at again,
/// for a link may stand there by now.
pub(crate) fn seen(clause: &'static str, path: &Path, meta: &Metadata) -> Result<Resolved, StartError> {
    found(clause, path, path.to_owned(), meta)
}

/// As [`resolve`], of an entry whose folder is known to be canonical: what is no link is what its name says.
pub(crate) fn resolve_entry(clause: &'static str, path: &Path) -> Result<Resolved, StartError> {
    let meta = path.symlink_metadata().map_err(|e| StartError::path(clause, path, &e))?;
    if meta.is_symlink() { resolve(clause, path) } else { seen(clause, path, &meta) }
}

fn found(clause: &'static str, path: &Path, canonical: PathBuf, meta: &Metadata) -> Result<Resolved, StartError> {
    let kind = meta.file_type();
    if kind.is_socket() || kind.is_fifo() || kind.is_block_device() {
        return Err(StartError::special(clause, path));
    }
    let (uid, gid) = (meta.uid(), meta.gid());
    Ok(Resolved {
        dev: meta.dev(),
        ino: meta.ino(),
        dir: meta.is_dir(),
        path: canonical,
        uid,
        gid,
        mode: meta.mode() & 0o7777,
    })
}

/// A path as the guest reads it. Paths with a NUL never get here: policies and the kernel refuse them.
pub(crate) fn text(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}
