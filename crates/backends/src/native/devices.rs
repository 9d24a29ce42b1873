//! The few devices of the host that a container shows.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use guest::config::Attrs;

use crate::StartError;

/// Names in `/dev`, with their numbers (Documentation/admin-guide/devices.txt).
pub(super) const SHOWN: &[(&str, u32, u32)] =
    &[("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];
/// How they are mounted.
pub(super) const ATTRS: Attrs = Attrs::NOSUID.and(Attrs::NOEXEC);

/// Told here, where it can be explained; the guest holds what it has mounted against the same numbers.
pub(super) fn judge(path: &Path, major: u32, minor: u32) -> Result<(), StartError> {
    let meta = path.symlink_metadata().map_err(|e| StartError::path("fs.root", path, &e))?;
    if meta.file_type().is_char_device() && sys::caller::device_numbers(meta.rdev()) == (major, minor) {
        return Ok(());
    }
    Err(StartError::NotTheDevice { path: path.to_owned() })
}
