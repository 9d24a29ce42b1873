//! The names in a folder, read in slices: it may hold millions.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;

use rustix::fs::{Dir, Mode, OFlags};
use rustix::io::Errno;

/// Names that one slice reads.
const SLICE: usize = 1024;
/// Most names of one folder that are held.
const MAX_NAMES: usize = 1_000_000;

/// Names that are being read.
pub(crate) struct Names {
    dir: Dir,
    names: Vec<OsString>,
}

impl Names {
    /// Begins with an open folder.
    pub(crate) fn new(folder: impl AsFd) -> Result<Self, Errno> {
        // A description of its own, for its own place in the folder.
        Dir::read_from(folder).map(|dir| Self { dir, names: Vec::new() })
    }

    /// Reads some; true when all are there.
    ///
    /// # Errors
    /// E2BIG: more names than are held.
    pub(crate) fn read(&mut self) -> Result<bool, Errno> {
        for _ in 0..SLICE {
            let Some(entry) = self.dir.read() else { return Ok(true) };
            let name = entry?.file_name().to_bytes().to_vec();
            if name == b"." || name == b".." {
                continue;
            }
            if self.names.len() >= MAX_NAMES {
                return Err(Errno::TOOBIG);
            }
            self.names.push(OsString::from_vec(name));
        }
        Ok(false)
    }

    /// All, in order.
    pub(crate) fn sorted(self) -> Vec<OsString> {
        let mut names = self.names;
        names.sort_unstable();
        names
    }
}

/// Opens a folder beneath an open one, never through a link.
pub(crate) fn open_folder(at: impl AsFd, name: &std::ffi::OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at, name, flags, Mode::empty())
}
