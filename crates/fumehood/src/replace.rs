//! A file of somebody else's is changed whole or not at all.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Writes beside and renames, so that a reader sees the one or the other.
pub(crate) fn replace(path: &Path, text: &str, mode: u32) -> std::io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".fumehood-{}", std::process::id()));
    let beside = path.with_file_name(name);
    let mut file = File::options().write(true).create_new(true).mode(mode).open(&beside)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_data());
    written.and_then(|()| std::fs::rename(&beside, path)).inspect_err(|_| {
        if std::fs::remove_file(&beside).is_err() {
            // It is gone.
        }
    })
}
