//! Looking into the log: `audit show` and `audit tail`. Neither judges; that is `verify`'s work.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, inotify};
use rustix::io::Errno;

use super::event::Event;
use super::log::{ACTIVE, folder_of};
use super::{AuditError, archives};
use crate::state::{Dir, State, errno_of};

/// Which events are wanted.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Of this run.
    pub run: Option<String>,
    /// Of this kind, or of this family (`tool` or `tool.`).
    pub kind: Option<String>,
    /// Not older than this.
    pub since: Option<Timestamp>,
    /// The newest so many.
    pub limit: Option<usize>,
}

impl Filter {
    /// Whether an event is wanted; `limit` apart.
    #[must_use]
    pub fn wants(&self, event: &Event) -> bool {
        let kind = |kind: &String| {
            let rest = event.kind.strip_prefix(kind.as_str());
            rest.is_some_and(|rest| rest.is_empty() || kind.ends_with('.') || rest.starts_with('.'))
        };
        let since = |since: &Timestamp| event.time.parse::<Timestamp>().is_ok_and(|time| time >= *since);
        self.run.as_ref().is_none_or(|run| *run == event.run)
            && self.kind.as_ref().is_none_or(kind)
            && self.since.as_ref().is_none_or(since)
    }
}

/// The events that are wanted, oldest first. Lines that are no events are left out.
///
/// # Errors
/// [`AuditError`] if the log cannot be read.
pub fn show(state: &State, folder: Option<&Path>, filter: &Filter) -> Result<Vec<Event>, AuditError> {
    let mut wanted = VecDeque::new();
    scan(state, folder, &mut |event| {
        if filter.wants(&event) {
            wanted.push_back(event);
        }
        if filter.limit.is_some_and(|limit| wanted.len() > limit) {
            wanted.pop_front();
        }
        ControlFlow::Continue(())
    })?;
    Ok(wanted.into())
}

/// Hands each event over, oldest first, until it is told to break off; no more than one is held. Lines that are no events are
/// left out.
///
/// # Errors
/// [`AuditError`] if the log cannot be read.
pub fn scan(
    state: &State,
    folder: Option<&Path>,
    each: &mut dyn FnMut(Event) -> ControlFlow<()>,
) -> Result<(), AuditError> {
    let (dir, path) = folder_of(state, folder)?;
    let failed = |errno| AuditError::Read { path: path.clone(), errno };
    let mut files: Vec<_> = archives(&dir).map_err(failed)?.into_iter().map(|(_, name)| name).collect();
    if dir.stat(ACTIVE).map_err(failed)?.is_some() {
        files.push(ACTIVE.into());
    }
    for name in files {
        let failed = |errno| AuditError::Read { path: path.join(&name), errno };
        let file = dir.open_file(&name, OFlags::RDONLY, Mode::empty()).map_err(failed)?;
        let mut lines = Lines { file: BufReader::new(file), part: Vec::new() };
        while let Some(event) = lines.next_event().map_err(failed)? {
            if each(event).is_break() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Waits for events as they come, across rotations.
#[derive(Debug)]
pub struct Follow {
    dir: Dir,
    path: PathBuf,
    filter: Filter,
    watch: OwnedFd,
    lines: Option<Lines>,
    inode: u64,
}

impl AsFd for Follow {
    /// Readable when the folder of the log has changed.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }
}

impl Follow {
    /// Begins after the newest event.
    ///
    /// # Errors
    /// [`AuditError`] if the log cannot be read or watched.
    pub fn new(state: &State, folder: Option<&Path>, filter: Filter) -> Result<Self, AuditError> {
        let (dir, path) = folder_of(state, folder)?;
        let failed = |errno| AuditError::Read { path: path.clone(), errno };
        let watch = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK).map_err(failed)?;
        let changes = inotify::WatchFlags::MODIFY | inotify::WatchFlags::MOVE | inotify::WatchFlags::CREATE;
        inotify::add_watch(&watch, &path, changes).map_err(failed)?;
        let mut follow = Self { dir, path, filter, watch, lines: None, inode: 0 };
        follow.reopen()?;
        while let Some(lines) = &mut follow.lines {
            if lines.next_event().map_err(|errno| AuditError::Read { path: follow.path.clone(), errno })?.is_none() {
                break;
            }
        }
        Ok(follow)
    }

    /// The next event that is wanted, or `None` when `patience` is over.
    ///
    /// # Errors
    /// [`AuditError`] if the log cannot be read.
    pub fn next_within(&mut self, patience: Duration) -> Result<Option<Event>, AuditError> {
        if let Some(event) = self.take()? {
            return Ok(Some(event));
        }
        let limit = Timespec {
            tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(patience.subsec_nanos()),
        };
        match poll(&mut [PollFd::new(&self.watch, PollFlags::IN)], Some(&limit)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(AuditError::Read { path: self.path.clone(), errno }),
        }
        let mut seen = [0; 4096];
        while rustix::io::read(&self.watch, &mut seen).is_ok_and(|n| n > 0) {}
        self.take()
    }

    fn take(&mut self) -> Result<Option<Event>, AuditError> {
        loop {
            let path = &self.path;
            while let Some(lines) = &mut self.lines {
                match lines.next_event().map_err(|errno| AuditError::Read { path: path.clone(), errno })? {
                    Some(event) if self.filter.wants(&event) => return Ok(Some(event)),
                    Some(_) => {}
                    None => break,
                }
            }
            if !self.reopen()? {
                return Ok(None);
            }
        }
    }

    /// `true` if another file is the active one now.
    fn reopen(&mut self) -> Result<bool, AuditError> {
        let failed = |errno| AuditError::Read { path: self.path.join(ACTIVE), errno };
        let file = match self.dir.open_file(ACTIVE, OFlags::RDONLY, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(false),
            other => other.map_err(failed)?,
        };
        let inode = rustix::fs::fstat(&file).map_err(failed)?.st_ino;
        if self.lines.is_some() && inode == self.inode {
            return Ok(false);
        }
        self.inode = inode;
        self.lines = Some(Lines { file: BufReader::new(file), part: Vec::new() });
        Ok(true)
    }
}

/// A file of lines that may still grow.
#[derive(Debug)]
struct Lines {
    file: BufReader<File>,
    part: Vec<u8>,
}

impl Lines {
    fn next_event(&mut self) -> rustix::io::Result<Option<Event>> {
        loop {
            self.file.read_until(b'\n', &mut self.part).map_err(|e| errno_of(&e))?;
            if self.part.pop_if(|b| *b == b'\n').is_none() {
                return Ok(None);
            }
            let event = Event::parse_unchecked(&self.part);
            self.part.clear();
            if let Ok(event) = event {
                return Ok(Some(event));
            }
        }
    }
}
