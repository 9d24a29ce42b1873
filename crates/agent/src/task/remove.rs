//! Removes a file, or a folder with all that is in it, never through a link.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::{Progress, Task};
use crate::files::failure::at;
use crate::files::names::{Names, open_folder};
use crate::files::place;
use crate::flow::Io;
use crate::inside::Inside;
use crate::words::Failure;

/// Names that one step removes.
const SLICE: usize = 256;
/// Folders that are open at once. One that lies deeper is moved up to the first before it is emptied.
const MAX_DEPTH: usize = 32;

pub(super) struct Remove {
    path: PathBuf,
    above: OwnedFd,
    name: OsString,
    folders: Vec<Folder>,
    moved: u64,
}

struct Folder {
    name: OsString,
    fd: OwnedFd,
    reading: Option<Names>,
    names: VecDeque<OsString>,
}

impl Folder {
    fn open(at: &OwnedFd, name: OsString) -> Result<Self, Errno> {
        let fd = open_folder(at, &name)?;
        let reading = Some(Names::new(&fd)?);
        Ok(Self { name, fd, reading, names: VecDeque::new() })
    }
}

impl Remove {
    pub(super) fn new(path: &Path) -> Result<Self, Failure> {
        let (folder, name) = place::parts(path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // A folder that can be passed and not read can still be removed from.
        let above = rustix::fs::open(folder, flags | OFlags::PATH, Mode::empty()).map_err(at("removing", path))?;
        Ok(Self { path: path.to_owned(), above, name: name.to_owned(), folders: Vec::new(), moved: 0 })
    }

    /// Removes what is no folder, or opens it; true when it is gone.
    fn remove(&mut self, name: OsString) -> Result<bool, Errno> {
        let at = self.folders.last().map_or(&self.above, |folder| &folder.fd);
        let stat = match rustix::fs::statat(at, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            // Somebody else removed it; but what was asked for must have been there.
            Err(Errno::NOENT) if !self.folders.is_empty() => return Ok(true),
            Err(errno) => return Err(errno),
        };
        if rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::Directory {
            rustix::fs::unlinkat(at, &name, AtFlags::empty())?;
            return Ok(true);
        }
        match rustix::fs::unlinkat(at, &name, AtFlags::REMOVEDIR) {
            Ok(()) => return Ok(true),
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        if let (MAX_DEPTH.., Some(first)) = (self.folders.len(), self.folders.first()) {
            self.moved = self.moved.saturating_add(1);
            let new = OsString::from(format!(".fumehood-{}-{}", sys::caller::pid(), self.moved));
            rustix::fs::renameat(at, &name, &first.fd, &new)?;
            self.folders.first_mut().into_iter().for_each(|first| first.names.push_back(new.clone()));
            return Ok(true);
        }
        let folder = Folder::open(at, name)?;
        self.folders.push(folder);
        Ok(false)
    }
}

impl Task for Remove {
    fn step(&mut self, io: &mut Io<'_>, _inside: &mut Inside) -> Result<Progress, Failure> {
        io.drop_input();
        let path = self.path.clone();
        let failed = at("removing", &path);
        for _ in 0..SLICE {
            let Some(folder) = self.folders.last_mut() else {
                if self.remove(self.name.clone()).map_err(&failed)? {
                    return Progress::done(());
                }
                continue;
            };
            if let Some(names) = &mut folder.reading {
                if names.read().map_err(&failed)?
                    && let Some(names) = folder.reading.take()
                {
                    folder.names.extend(names.sorted());
                }
                return Ok(Progress::More);
            }
            if let Some(name) = folder.names.pop_front() {
                self.remove(name).map_err(&failed)?;
                continue;
            }
            // Empty: removed by name at its next turn, from the folder above; what was made in it meanwhile is found then.
            let name = self.folders.pop().map(|folder| folder.name);
            let Some((above, name)) = self.folders.last_mut().zip(name) else { continue };
            above.names.push_front(name);
        }
        Ok(Progress::More)
    }
}
