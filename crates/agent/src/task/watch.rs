//! What changes in a folder, by inotify.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::event::PollFlags;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use super::write::Becomes;
use super::{Progress, Task, Waiting};
use crate::files::failure::{at, failure};
use crate::flow::Io;
use crate::inside::Inside;
use crate::path_text;
use crate::words::{Change, ChangeKind, Code, Failure};

/// Most folders that one request watches.
const MAX_FOLDERS: usize = 8192;
/// Entries that one step looks at.
const SLICE: usize = 512;
/// Room for the events of one read, bytes.
const READ: usize = 16 * 1024;
/// Most names that are remembered, so that nothing is told twice.
const MAX_TOLD: usize = 65_536;

pub(super) struct Watch {
    inotify: OwnedFd,
    root: PathBuf,
    recursive: bool,
    ready: bool,
    /// Folders below the root, by the number of their watch.
    folders: BTreeMap<i32, PathBuf>,
    /// Folders that are to be watched, and being looked through.
    todo: VecDeque<PathBuf>,
    looking: Option<(PathBuf, std::fs::ReadDir)>,
    /// What was found when a folder was looked through that came later: of what was made meanwhile the kernel tells as well.
    told: BTreeSet<PathBuf>,
    /// The rename of a file that is whole now, until its other half is read.
    whole: Option<(u32, Becomes)>,
}

impl Watch {
    pub(super) fn new(root: &Path, recursive: bool) -> Result<Self, Failure> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(|errno| match errno {
            Errno::NOSYS | Errno::PERM | Errno::ACCESS => {
                failure(Code::Unsupported, "this sandbox has no inotify (proc.profile), so nothing can be watched")
            }
            other => at("watching", root)(other),
        })?;
        let mut watch = Self {
            inotify,
            root: root.to_owned(),
            recursive,
            ready: false,
            folders: BTreeMap::new(),
            todo: VecDeque::new(),
            looking: None,
            told: BTreeSet::new(),
            whole: None,
        };
        watch.add(Path::new(""))?;
        Ok(watch)
    }

    /// Watches a folder below the root, and looks through it if it has to.
    fn add(&mut self, below: &Path) -> Result<(), Failure> {
        let path = self.root.join(below);
        let mut flags = WatchFlags::CREATE
            | WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::DELETE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::ONLYDIR
            | WatchFlags::EXCL_UNLINK;
        flags.set(WatchFlags::DONT_FOLLOW, !below.as_os_str().is_empty());
        if self.folders.len() >= MAX_FOLDERS {
            return Err(failure(Code::TooMany, format!("more than {MAX_FOLDERS} folders: watch a part of them")));
        }
        let number = inotify::add_watch(&self.inotify, path.as_path(), flags).map_err(|errno| match errno {
            Errno::NOSPC => failure(
                Code::TooMany,
                "the kernel watches no more folders for this user: raise fs.inotify.max_user_watches",
            ),
            other => at("watching", &path)(other),
        })?;
        self.folders.insert(number, below.to_owned());
        if self.recursive {
            self.todo.push_back(below.to_owned());
        }
        Ok(())
    }

    /// A folder that came later, or lies below: what is gone meanwhile, or not this user's, is left out.
    fn add_below(&mut self, below: &Path, io: &mut Io<'_>) -> Result<(), Failure> {
        match self.add(below) {
            Err(failure) if failure.code == Code::TooMany => {
                if !self.ready {
                    return Err(failure);
                }
                io.event(&Change { what: ChangeKind::Overflow, name: String::new() });
                Ok(())
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Looks through a part of a folder; true while there is something to do.
    fn look(&mut self, io: &mut Io<'_>) -> Result<bool, Failure> {
        let (folder, mut list) = match self.looking.take() {
            Some(looking) => looking,
            None => match self.todo.pop_front() {
                Some(folder) => match std::fs::read_dir(self.root.join(&folder)) {
                    Ok(list) => (folder, list),
                    Err(_) => return Ok(true),
                },
                None => return Ok(false),
            },
        };
        for _ in 0..SLICE {
            let Some(entry) = list.next() else { return Ok(true) };
            let Ok(entry) = entry else { continue };
            let path = folder.join(entry.file_name());
            if self.ready && Becomes::of(&entry.file_name()).is_none() {
                // It was made before its folder was watched.
                tell(io, &path, &[ChangeKind::Create]);
                if entry.metadata().is_ok_and(|found| found.is_file() && found.len() > 0) {
                    tell(io, &path, &[ChangeKind::Write]);
                }
                if self.told.len() < MAX_TOLD {
                    self.told.insert(path.clone());
                }
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                self.add_below(&path, io)?;
            }
        }
        self.looking = Some((folder, list));
        Ok(true)
    }

    /// Reads what happened; true while there may be more.
    fn read(&mut self, io: &mut Io<'_>) -> Result<bool, Failure> {
        let mut buffer = [MaybeUninit::uninit(); READ];
        let inotify = self.inotify.try_clone().map_err(|_full| at("watching", &self.root)(Errno::MFILE))?;
        let mut reader = Reader::new(&inotify, &mut buffer);
        let mut any = false;
        loop {
            let (flags, number, name, cookie) = match reader.next() {
                Ok(event) => {
                    let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()).to_owned());
                    (event.events(), event.wd(), name, event.cookie())
                }
                Err(Errno::AGAIN) => {
                    // What comes from now on happened after all that was found.
                    self.told.clear();
                    return Ok(any);
                }
                Err(Errno::INTR) => return Ok(any),
                Err(errno) => return Err(at("watching", &self.root)(errno)),
            };
            any = true;
            self.happened((flags, number, cookie), name.as_deref(), io)?;
            if reader.is_buffer_empty() {
                return Ok(true);
            }
        }
    }

    fn happened(
        &mut self,
        (flags, number, cookie): (ReadFlags, i32, u32),
        name: Option<&OsStr>,
        io: &mut Io<'_>,
    ) -> Result<(), Failure> {
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            io.event(&Change { what: ChangeKind::Overflow, name: String::new() });
            return Ok(());
        }
        let Some(folder) = self.folders.get(&number).cloned() else { return Ok(()) };
        if flags.contains(ReadFlags::IGNORED) {
            self.folders.remove(&number);
            return Ok(());
        }
        if let Some(becomes) = name.and_then(Becomes::of) {
            if flags.contains(ReadFlags::MOVED_FROM) {
                self.whole = Some((cookie, becomes));
            }
            return Ok(());
        }
        let itself = name.is_none();
        let path = name.map_or_else(|| folder.clone(), |name| folder.join(name));
        // The folder above tells of one that lies below the root.
        if itself && !folder.as_os_str().is_empty() {
            return Ok(());
        }
        let (comes, goes) = (ReadFlags::CREATE | ReadFlags::MOVED_TO, ReadFlags::DELETE | ReadFlags::MOVED_FROM);
        if flags.intersects(comes | goes) && self.told.remove(&path) && flags.intersects(comes) {
            return Ok(());
        }
        if let Some((_, becomes)) = self.whole.take_if(|(of, _)| *of == cookie && flags.contains(ReadFlags::MOVED_TO)) {
            // As whoever writes it in its place is told of: made, given its mode, filled.
            match becomes {
                Becomes::New => tell(io, &path, &[ChangeKind::Create, ChangeKind::Chmod, ChangeKind::Write]),
                Becomes::Other => tell(io, &path, &[ChangeKind::Write]),
            }
            return Ok(());
        }
        const WHAT: [(ReadFlags, ChangeKind); 7] = [
            (ReadFlags::CREATE, ChangeKind::Create),
            (ReadFlags::MOVED_TO, ChangeKind::Create),
            (ReadFlags::MODIFY, ChangeKind::Write),
            (ReadFlags::DELETE, ChangeKind::Remove),
            (ReadFlags::DELETE_SELF, ChangeKind::Remove),
            (ReadFlags::MOVED_FROM, ChangeKind::Rename),
            (ReadFlags::ATTRIB, ChangeKind::Chmod),
        ];
        for (flag, what) in WHAT {
            if flags.contains(flag) {
                tell(io, &path, &[what]);
            }
        }
        if !self.recursive || !flags.contains(ReadFlags::ISDIR) || itself {
            return Ok(());
        }
        if flags.contains(ReadFlags::MOVED_FROM) {
            let gone: Vec<i32> =
                self.folders.iter().filter(|(_, below)| below.starts_with(&path)).map(|(number, _)| *number).collect();
            for number in gone {
                self.folders.remove(&number);
                let _gone = inotify::remove_watch(&self.inotify, number);
            }
        }
        if flags.intersects(comes) {
            self.add_below(&path, io)?;
        }
        Ok(())
    }
}

fn tell(io: &mut Io<'_>, path: &Path, all: &[ChangeKind]) {
    for what in all {
        io.event(&Change { what: *what, name: path_text::of(path) });
    }
}

impl Task for Watch {
    fn step(&mut self, io: &mut Io<'_>, _inside: &mut Inside) -> Result<Progress, Failure> {
        io.drop_input();
        if self.look(io)? {
            return Ok(Progress::More);
        }
        if !self.ready {
            self.ready = true;
            io.reply(&());
        }
        Ok(if self.read(io)? { Progress::More } else { Progress::Wait })
    }

    fn waits<'a>(&'a self, _flow: &Waiting, add: &mut dyn FnMut(BorrowedFd<'a>, PollFlags)) {
        add(self.inotify.as_fd(), PollFlags::IN);
    }
}
