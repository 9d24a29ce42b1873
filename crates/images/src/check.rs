//! One digest of a whole tree: names, kinds, modes, contents and targets. Two trees with the same digest are the same for
//! whoever reads them; sizes, times and numbers of files take no part.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use sandbox::state::{Cross, Dir, errno_of};
use sha2::{Digest as _, Sha256};

use crate::decode::hex;

/// What a tree comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) digest: String,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    /// When a file was read nobody could write to it.
    pub(crate) alone: bool,
}

/// Reads all of a tree.
pub(crate) fn sum(root: &Dir) -> Result<Sum, Errno> {
    let mut walk = Walk::default();
    let mode = rustix::fs::fstat(root)?.st_mode & 0o7777;
    walk.hash.update(mode.to_le_bytes());
    walk.folder(root)?;
    Ok(Sum { digest: hex(&walk.hash.finalize()), files: walk.files, bytes: walk.bytes, alone: walk.alone })
}

/// Puts one entry that is no folder into a digest.
pub(crate) fn sum_of(dir: &Dir, name: &OsStr, hash: &mut Sha256) -> Result<(), Errno> {
    let mut walk = Walk::default();
    let Some(stat) = dir.stat(name)? else { return Err(Errno::STALE) };
    walk.entry(dir, name, stat.st_mode)?;
    hash.update(walk.hash.finalize());
    Ok(())
}

struct Walk {
    hash: Sha256,
    files: u64,
    bytes: u64,
    alone: bool,
    buffer: Vec<u8>,
    /// Contents of files that have more than one name, which are read and counted once: their digests.
    names: BTreeMap<(u64, u64), [u8; 32]>,
}

impl Default for Walk {
    fn default() -> Self {
        let (hash, buffer) = (Sha256::new(), vec![0; 128 << 10]);
        Self { hash, files: 0, bytes: 0, alone: true, buffer, names: BTreeMap::new() }
    }
}

impl Walk {
    /// Everything has a length before it, so that no two trees are the same bytes.
    fn text(&mut self, bytes: &[u8]) {
        self.hash.update(u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_le_bytes());
        self.hash.update(bytes);
    }

    fn folder(&mut self, dir: &Dir) -> Result<(), Errno> {
        for name in dir.names()? {
            let Some(stat) = dir.stat(&name)? else { return Err(Errno::STALE) };
            self.entry(dir, &name, stat.st_mode)?;
        }
        // The end of a folder: no name is so long.
        self.hash.update(u64::MAX.to_le_bytes());
        Ok(())
    }

    fn entry(&mut self, dir: &Dir, name: &OsStr, mode: u32) -> Result<(), Errno> {
        self.text(name.as_bytes());
        self.hash.update(mode.to_le_bytes());
        self.files = self.files.saturating_add(1);
        match FileType::from_raw_mode(mode) {
            FileType::Directory => self.folder(&dir.enter(Path::new(name), Cross::No)?),
            FileType::RegularFile => self.file(dir.open_file(name, OFlags::RDONLY, Mode::empty())?),
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(dir, Path::new(name), Vec::new())?;
                self.text(target.as_bytes());
                Ok(())
            }
            // Nothing of ours: its kind alone makes another digest.
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => Ok(()),
        }
    }

    fn file(&mut self, file: File) -> Result<(), Errno> {
        let stat = rustix::fs::fstat(&file)?;
        let (id, many) = ((stat.st_dev, stat.st_ino), stat.st_nlink > 1);
        if let Some(known) = self.names.get(&id).filter(|_| many) {
            self.hash.update(known);
            return Ok(());
        }
        let (digest, size) = self.content(file)?;
        if many {
            self.names.insert(id, digest);
        }
        self.bytes = self.bytes.saturating_add(size);
        self.hash.update(digest);
        Ok(())
    }

    fn content(&mut self, mut file: File) -> Result<([u8; 32], u64), Errno> {
        // Before it is read: what is written from here on changes its change time.
        self.alone = self.alone && sys::writers::none(&file);
        let (mut hash, mut size) = (Sha256::new(), 0_u64);
        loop {
            let read = file.read(&mut self.buffer).map_err(|error| errno_of(&error))?;
            let part = self.buffer.get(..read).unwrap_or_default();
            if part.is_empty() {
                return Ok((hash.finalize().into(), size));
            }
            hash.update(part);
            size = size.saturating_add(u64::try_from(read).unwrap_or(0));
        }
    }
}
