//! Room for what is brought from a registry: an OCI layout that is filled, imported and cleared. What a pull that broke off
//! left stays, so that the next one goes on; `gc` takes it.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode};
use rustix::io::Errno;
use sandbox::state::{Cross, Dir};

use crate::error::ImageError;
use crate::store::{Store, flock};

const FOLDER: &str = "downloads";
const LOCK: &str = "lock";

/// The room, which is one caller's as long as this lives.
#[derive(Debug)]
pub struct Downloads {
    dir: Dir,
    path: PathBuf,
    _lock: File,
}

impl Store {
    /// The room for downloads; waits until nobody else has it.
    ///
    /// # Errors
    /// [`ImageError::Io`].
    pub fn downloads(&self) -> Result<Downloads, ImageError> {
        self.downloads_by(FlockOperation::LockExclusive)
    }

    /// Takes away what downloads left, unless one goes on. Whether there was something.
    pub(crate) fn clear_downloads(&self) -> Result<bool, ImageError> {
        match self.downloads_by(FlockOperation::NonBlockingLockExclusive) {
            Ok(downloads) => downloads.clear(),
            Err(ImageError::Io { errno: Errno::WOULDBLOCK, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn downloads_by(&self, how: FlockOperation) -> Result<Downloads, ImageError> {
        let path = self.path().join(FOLDER);
        let io = |errno| ImageError::Io { path: path.clone(), errno };
        self.dir().make(FOLDER, Mode::RWXU).map_err(io)?;
        let dir = self.dir().enter(FOLDER, Cross::No).map_err(io)?;
        let lock = flock(&dir, LOCK, how).map_err(io)?;
        Ok(Downloads { dir, path, _lock: lock })
    }
}

impl Downloads {
    /// The folder, for who fills it.
    #[must_use]
    pub const fn dir(&self) -> &Dir {
        &self.dir
    }

    /// Its path, for who imports it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes all away. Whether there was something.
    ///
    /// # Errors
    /// [`ImageError::Io`].
    pub fn clear(&self) -> Result<bool, ImageError> {
        let io = |errno| ImageError::Io { path: self.path.clone(), errno };
        let mut there = false;
        for name in self.dir.names().map_err(io)?.into_iter().filter(|name| name != LOCK) {
            self.dir.remove_tree(&name).map_err(io)?;
            there = true;
        }
        Ok(there)
    }
}
