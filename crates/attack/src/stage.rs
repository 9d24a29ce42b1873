//! The folder that one row works with: made for it, everybody's to read and write inside, gone afterwards.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Gid, Uid};

/// The uid of who owns nothing: what root's probes run as.
pub const NOBODY: u32 = 65534;

/// Random text that is nowhere else on this machine.
///
/// # Errors
/// The kernel gives no random bytes.
pub fn random() -> io::Result<String> {
    let mut bytes = [0; 12];
    if !sys::random::fill(&mut bytes) {
        return Err(io::Error::other("no random bytes"));
    }
    let mut text = String::with_capacity(24);
    for byte in bytes {
        write!(text, "{byte:02x}").map_err(io::Error::other)?;
    }
    Ok(text)
}

/// A folder below the base, removed when dropped.
#[derive(Debug)]
pub struct Stage {
    path: PathBuf,
    /// Root hands what it makes to nobody, so that ownership is not what stops a probe.
    root: bool,
}

impl Stage {
    /// Makes a folder of a random name in `base`.
    ///
    /// # Errors
    /// As mkdir(2).
    pub fn make(base: &Path, root: bool) -> io::Result<Self> {
        let path = base.join(format!("fumehood-attack-{}", random()?));
        fs::DirBuilder::new().mode(0o711).create(&path)?;
        // The umask must not decide what a probe can reach.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o711))?;
        Ok(Self { path, root })
    }

    /// The folder itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a folder in it that the probe's user owns.
    ///
    /// # Errors
    /// As mkdir(2) and chown(2).
    pub fn folder(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.path.join(name);
        fs::create_dir_all(&path)?;
        self.hand_over(&path, 0o777)?;
        Ok(path)
    }

    /// Writes a file in it that the probe's user owns and everybody may write.
    ///
    /// # Errors
    /// As open(2) and write(2).
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> io::Result<PathBuf> {
        let path = self.path.join(name);
        fs::write(&path, content)?;
        self.hand_over(&path, 0o666)?;
        Ok(path)
    }

    /// Gives `path` to the probe's user.
    ///
    /// # Errors
    /// As chown(2) and chmod(2).
    pub fn hand_over(&self, path: &Path, mode: u32) -> io::Result<()> {
        if self.root {
            rustix::fs::chown(path, Some(Uid::from_raw(NOBODY)), Some(Gid::from_raw(NOBODY)))?;
        }
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
    }

    /// A name in it.
    #[must_use]
    pub fn join(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.path.join(name.as_ref())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // What a probe made may forbid its own removal: modes are opened first.
        open_up(&self.path, 0);
        if fs::remove_dir_all(&self.path).is_err() {
            // A folder that stays is seen by whoever looks at the base; a destructor has nobody to tell.
        }
    }
}

/// Makes folders below `path` readable and removable again; links are not followed.
fn open_up(path: &Path, depth: usize) {
    let Ok(entries) = fs::read_dir(path) else { return };
    for entry in entries.flatten() {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder && depth < 64 {
            if fs::set_permissions(entry.path(), fs::Permissions::from_mode(0o700)).is_err() {
                continue;
            }
            open_up(&entry.path(), depth + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_gone_after_it_even_with_a_closed_folder_in_it() {
        let base = tempfile::tempdir().unwrap();
        let stage = Stage::make(base.path(), false).unwrap();
        let folder = stage.folder("a").unwrap();
        fs::create_dir(folder.join("b")).unwrap();
        fs::set_permissions(folder.join("b"), fs::Permissions::from_mode(0o000)).unwrap();
        drop(stage);
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
    }
}
