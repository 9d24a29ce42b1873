//! Putting things into the layer of a workspace from outside, before anything runs in it: in an overlay's upper the folders above
//! them are made as the host has them, and each gets its mode when all is in it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::{Errno, Result as KernelResult};

use crate::changes::{Change, Entry, Kind, stream, target_bytes};
use crate::error::Error;
use crate::state::{Cross, Dir};

/// Why a path cannot be put there.
pub(super) enum LayError {
    /// The host is not what it was.
    Conflict(PathBuf, String),
    /// What the kernel answered.
    Kernel(PathBuf, Errno),
    /// Something else.
    Other(Error),
}

/// A layer that is being filled.
pub(super) struct Laying<'a> {
    /// The host's folder.
    root: &'a Dir,
    into: &'a Dir,
    /// What lies beneath is in the layer as well.
    copied: bool,
    /// Modes that folders get when all is in them.
    modes: BTreeMap<PathBuf, u32>,
}

impl<'a> Laying<'a> {
    pub(super) const fn new(root: &'a Dir, into: &'a Dir, copied: bool) -> Self {
        Self { root, into, copied, modes: BTreeMap::new() }
    }

    /// The folder of a path in the layer, open to us; in an overlay's it is made as the host has it.
    pub(super) fn parent(&mut self, path: &Path) -> Result<(Dir, OsString), LayError> {
        let told = |errno| LayError::Kernel(path.to_owned(), errno);
        let name = path.file_name().ok_or(told(Errno::INVAL))?.to_owned();
        let mut at = self.into.enter(".", Cross::Yes).map_err(told)?;
        let mut above = PathBuf::new();
        for part in path.parent().unwrap_or(Path::new("")) {
            above.push(part);
            at = self.enter(&at, part, &above).map_err(|errno| match errno {
                Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV => {
                    LayError::Conflict(above.clone(), "it is no folder, or another one, now".to_owned())
                }
                errno => told(errno),
            })?;
        }
        Ok((at, name))
    }

    fn enter(&mut self, at: &Dir, part: &OsStr, above: &Path) -> KernelResult<Dir> {
        if !self.copied && at.stat(part)?.is_none() {
            let mode = match self.root.enter(above, Cross::No) {
                Ok(host) => rustix::fs::fstat(host)?.st_mode & 0o777,
                // Nobody inside looks into what the run's user may not look into.
                Err(Errno::ACCESS) => 0o700,
                Err(errno) => return Err(errno),
            };
            at.make(part, Mode::RWXU)?;
            self.modes.insert(above.to_owned(), mode);
        }
        let mode = at.stat(part)?.ok_or(Errno::NOENT)?.st_mode & 0o777;
        let dir = at.enter(part, Cross::No)?;
        if mode & 0o300 != 0o300 {
            rustix::fs::fchmod(&dir, Mode::from_raw_mode(mode | 0o700))?;
            self.modes.entry(above.to_owned()).or_insert(mode);
        }
        Ok(dir)
    }

    pub(super) fn remove(&mut self, entry: &Entry, replaced: bool) -> Result<(), LayError> {
        let told = |errno| LayError::Kernel(entry.path.clone(), errno);
        let (dir, name) = self.parent(&entry.path)?;
        let name = Path::new(&name);
        if self.copied {
            let flags = if entry.kind == Kind::Dir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
            return match rustix::fs::unlinkat(&dir, name, flags) {
                // What could not be copied is not there.
                Ok(()) | Err(Errno::NOENT) => Ok(()),
                Err(errno) => Err(told(errno)),
            };
        }
        if entry.kind == Kind::Dir {
            // What was removed in it is covered with it.
            match dir.remove_tree(name) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(told(errno)),
            }
            self.modes.retain(|path, _| !path.starts_with(&entry.path));
        }
        if replaced {
            // What comes in its place covers it.
            return Ok(());
        }
        cover(&dir, name).map_err(told)
    }

    pub(super) fn put(&mut self, entry: &Entry, blob: Option<&std::fs::File>) -> Result<(), LayError> {
        let told = |errno| LayError::Kernel(entry.path.clone(), errno);
        let (dir, name) = self.parent(&entry.path)?;
        if entry.kind == Kind::Dir {
            if entry.change == Change::Added {
                dir.make(&name, Mode::RWXU).map_err(told)?;
            } else {
                self.enter(&dir, &name, &entry.path).map_err(told)?;
            }
            self.modes.insert(entry.path.clone(), entry.mode & 0o777);
            return Ok(());
        }
        if self.copied && entry.change == Change::Modified {
            rustix::fs::unlinkat(&dir, Path::new(&name), AtFlags::empty()).map_err(told)?;
        }
        match (entry.kind, blob) {
            (Kind::File, Some(blob)) => file(&dir, &name, entry, blob).map_err(told),
            (Kind::Symlink, _) => {
                let target = entry.target.as_deref().and_then(target_bytes).ok_or(told(Errno::BADMSG))?;
                rustix::fs::symlinkat(Path::new(&target), &dir, Path::new(&name)).map_err(told)
            }
            (Kind::File | Kind::Dir | Kind::Special, _) => Err(told(Errno::BADMSG)),
        }
    }

    /// Deepest first: a folder that is closed hides those in it.
    pub(super) fn end(&self) -> Result<(), LayError> {
        for (path, mode) in self.modes.iter().rev() {
            let set = self.into.enter(path, Cross::Yes);
            let set = set.and_then(|dir| rustix::fs::fchmod(dir, Mode::from_raw_mode(*mode)));
            set.map_err(|errno| LayError::Kernel(path.clone(), errno))?;
        }
        Ok(())
    }
}

/// Overlayfs's mark of a name that is not there: a character device 0/0.
pub(super) fn cover(upper: &Dir, name: &Path) -> KernelResult<()> {
    rustix::fs::mknodat(upper, name, FileType::CharacterDevice, Mode::empty(), 0)
}

fn file(dir: &Dir, name: &OsStr, entry: &Entry, blob: &std::fs::File) -> KernelResult<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let mut file = dir.open_file(name, flags, Mode::RUSR | Mode::WUSR)?;
    match stream(blob, &mut file, entry.size)? {
        Some((found, _)) if Some(&found) == entry.sha256.as_ref() => {}
        Some(_) | None => return Err(Errno::BADMSG),
    }
    rustix::fs::fchmod(&file, Mode::from_raw_mode(entry.mode & 0o777))
}
