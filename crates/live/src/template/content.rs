//! What a template holds, as one sum: what was installed is still what is started.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

/// SHA-256, in hex, over every name below a folder in order: its kind, whether it is executable, and what it holds or leads
/// to. The record of the template itself is left out.
///
/// # Errors
/// As open(2) and read(2); what is neither file, folder nor link.
pub(super) fn digest(folder: &Path) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut left = vec![PathBuf::new()];
    while let Some(path) = left.pop() {
        let full = folder.join(&path);
        let meta = fs::symlink_metadata(&full)?;
        part(&mut hash, path.as_os_str().as_bytes());
        if meta.is_dir() {
            hash.update(b"d");
            let entries = fs::read_dir(&full)?.collect::<io::Result<Vec<_>>>()?;
            let names = entries.into_iter().map(|entry| path.join(entry.file_name()));
            let mut names: Vec<_> = names.filter(|name| name != Path::new(super::RECORD)).collect();
            names.sort_by(|one, other| other.cmp(one));
            left.extend(names);
        } else if meta.is_symlink() {
            hash.update(b"l");
            part(&mut hash, fs::read_link(&full)?.as_os_str().as_bytes());
        } else if meta.is_file() {
            hash.update(if meta.permissions().mode() & 0o111 == 0 { b"f" } else { b"x" });
            hash.update(meta.len().to_le_bytes());
            content(&mut File::open(&full)?, &mut hash)?;
        } else {
            return Err(io::Error::other(format!("{} is no file, folder or link", full.display())));
        }
    }
    Ok(policy::json::hex(&hash.finalize()))
}

fn content(file: &mut File, hash: &mut Sha256) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => hash.update(buffer.get(..length).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn part(hash: &mut Sha256, bytes: &[u8]) {
    hash.update(u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_le_bytes());
    hash.update(bytes);
}
