//! What is in a folder.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::{Progress, Task};
use crate::files::entry;
use crate::files::failure::{at, code, failure};
use crate::files::names::Names;
use crate::flow::Io;
use crate::inside::Inside;
use crate::words::{Code, Entries, Failure, FileKind};

/// Events that one step sends.
const EVENTS: usize = 4;
/// An event is sent when its entries' texts are so long, bytes; as JSON a byte may become six.
const EVENT: usize = 16 * 1024;
/// Most folders that wait for their turn.
const MAX_FOLDERS: usize = 100_000;

pub(super) struct List {
    depth: u32,
    now: Option<Folder>,
    /// Folders to come, with their depth; the next one is last.
    todo: Vec<(PathBuf, u32)>,
}

struct Folder {
    path: PathBuf,
    depth: u32,
    fd: OwnedFd,
    reading: Option<Names>,
    names: VecDeque<OsString>,
    /// Folders in it, in order.
    below: Vec<PathBuf>,
}

impl Folder {
    fn open(path: PathBuf, depth: u32) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // What was asked for may be a link to a folder; one further down is shown as what it is.
        let flags = if depth > 1 { flags | OFlags::NOFOLLOW } else { flags };
        let fd = rustix::fs::open(&path, flags, Mode::empty())?;
        let reading = Some(Names::new(&fd)?);
        Ok(Self { path, depth, fd, reading, names: VecDeque::new(), below: Vec::new() })
    }
}

impl List {
    pub(super) fn new(path: &Path, depth: u32) -> Result<Self, Failure> {
        if depth == 0 {
            return Err(failure(Code::Invalid, "a depth of 0 lists nothing: 1 is the folder itself"));
        }
        let folder = Folder::open(path.to_owned(), 1).map_err(at("listing", path))?;
        Ok(Self { depth, now: Some(folder), todo: Vec::new() })
    }
}

impl Task for List {
    fn step(&mut self, io: &mut Io<'_>, _inside: &mut Inside) -> Result<Progress, Failure> {
        io.drop_input();
        let Some(folder) = &mut self.now else {
            let Some((path, depth)) = self.todo.pop() else { return Progress::done(()) };
            match Folder::open(path.clone(), depth) {
                Ok(folder) => self.now = Some(folder),
                // Gone meanwhile, or not this user's: it was listed itself.
                Err(errno) if matches!(code(errno), Code::NotFound | Code::NotADirectory | Code::Denied) => {}
                Err(Errno::LOOP | Errno::NAMETOOLONG) => {}
                Err(errno) => return Err(at("listing", &path)(errno)),
            }
            return Ok(Progress::More);
        };
        if let Some(names) = &mut folder.reading {
            if names.read().map_err(at("listing", &folder.path))?
                && let Some(names) = folder.reading.take()
            {
                folder.names = names.sorted().into();
            }
            return Ok(Progress::More);
        }
        let goes_down = folder.depth < self.depth;
        for _ in 0..EVENTS {
            let entries = folder.some(goes_down);
            if !entries.is_empty() {
                io.event(&Entries { entries });
            }
            if folder.names.is_empty() || io.may_send() == 0 {
                break;
            }
        }
        if folder.names.is_empty() {
            let depth = folder.depth.saturating_add(1);
            let below = std::mem::take(&mut folder.below);
            if self.todo.len().saturating_add(below.len()) > MAX_FOLDERS {
                return Err(failure(Code::TooMany, format!("more than {MAX_FOLDERS} folders: list a part of them")));
            }
            self.todo.extend(below.into_iter().rev().map(|path| (path, depth)));
            self.now = None;
        }
        Ok(Progress::More)
    }
}

impl Folder {
    /// The next entries, as many as one event has.
    fn some(&mut self, goes_down: bool) -> Vec<crate::words::Entry> {
        let mut entries = Vec::new();
        let mut length: usize = 0;
        while length < EVENT {
            let Some(name) = self.names.pop_front() else { break };
            // Gone meanwhile.
            let Ok(stat) = rustix::fs::statat(&self.fd, &name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let path = self.path.join(&name);
            let entry = entry::from(&path, &stat);
            if goes_down && entry.kind == FileKind::Dir {
                self.below.push(path);
            }
            let metadata: usize = entry.metadata.iter().map(|(key, value)| key.len().saturating_add(value.len())).sum();
            length = [entry.name.len(), entry.path.len(), metadata, entry.target.as_ref().map_or(0, String::len)]
                .iter()
                .fold(length.saturating_add(128), |sum, one| sum.saturating_add(*one));
            entries.push(entry);
        }
        entries
    }
}
