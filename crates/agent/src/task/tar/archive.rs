//! A file or folder as a tar stream, in the order of the names.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use tar::{EntryType, Header};

use super::super::{Progress, Task};
use super::{BLOCK, padding, pax, skip};
use crate::files::failure::{at, error_text};
use crate::files::names::{Names, open_folder};
use crate::files::place;
use crate::flow::Io;
use crate::frame::{Lane, MAX_DATA};
use crate::inside::Inside;
use crate::words::{Failure, Skipped};

/// Names that one step looks at.
const SLICE: usize = 64;
/// Folders that are open at once.
const MAX_DEPTH: usize = 200;
/// Files with more than one name that are remembered.
const LINKED: usize = 100_000;

pub(crate) struct Archive {
    /// Where the first name is.
    above: OwnedFd,
    folders: Vec<Folder>,
    first: VecDeque<OsString>,
    /// The first name in the stream.
    root: Vec<u8>,
    /// Blocks to send before anything else.
    pending: Vec<u8>,
    sent: usize,
    file: Option<File>,
    /// First names of files that have more than one.
    linked: BTreeMap<(u64, u64), Vec<u8>>,
    skipped: Skipped,
    over: bool,
}

struct Folder {
    fd: OwnedFd,
    /// Its name in the stream, with a slash behind it.
    path: Vec<u8>,
    reading: Option<Names>,
    names: VecDeque<OsString>,
}

struct File {
    fd: OwnedFd,
    path: Vec<u8>,
    left: u64,
    padding: u64,
}

impl Archive {
    /// With `follows`, a link at the path is what it leads to, under the name of the link.
    pub(crate) fn new(path: &Path, follows: bool) -> Result<Self, Failure> {
        let real = if follows { place::followed(path)? } else { path.to_owned() };
        rustix::fs::lstat(&real).map_err(at("archiving", path))?;
        // The root of all has no name in a folder.
        let (folder, name) = place::parts(&real).unwrap_or((&real, OsStr::new(".")));
        let root = place::parts(path).map_or(name, |(_, name)| name);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let above = rustix::fs::open(folder, flags, Mode::empty()).map_err(at("archiving", path))?;
        Ok(Self {
            above,
            folders: Vec::new(),
            first: [name.to_owned()].into(),
            root: root.as_bytes().to_vec(),
            pending: Vec::new(),
            sent: 0,
            file: None,
            linked: BTreeMap::new(),
            skipped: Skipped::default(),
            over: false,
        })
    }

    /// Sends some of what is to be sent; true when nothing is left.
    fn send(&mut self, io: &mut Io<'_>) -> Result<bool, Failure> {
        let rest = self.pending.get(self.sent..).unwrap_or_default();
        if !rest.is_empty() {
            let part = rest.get(..io.may_send()).unwrap_or(rest);
            io.data(Lane::Out, part);
            self.sent = self.sent.saturating_add(part.len());
            return Ok(false);
        }
        self.pending.clear();
        self.sent = 0;
        let Some(file) = &mut self.file else { return Ok(true) };
        if file.left > 0 {
            let most = usize::try_from(file.left).unwrap_or(usize::MAX).min(MAX_DATA);
            match io.data_from(Lane::Out, most, |bytes| rustix::io::read(&file.fd, bytes)) {
                Ok(count @ 1..) => file.left = file.left.saturating_sub(u64::try_from(count).unwrap_or(0)),
                // The header has stated a size: what is missing is zeros.
                ended => {
                    let why = ended.err().map_or_else(|| "it became shorter while it was read".to_owned(), error_text);
                    skip(&mut self.skipped, &file.path, why);
                    file.padding = file.padding.saturating_add(file.left);
                    file.left = 0;
                }
            }
            return Ok(false);
        }
        let zeros = usize::try_from(file.padding).unwrap_or(usize::MAX).min(MAX_DATA);
        self.pending.resize(zeros, 0);
        file.padding = file.padding.saturating_sub(u64::try_from(zeros).unwrap_or(0));
        if file.padding == 0 {
            self.file = None;
        }
        Ok(false)
    }

    /// Goes to the next name.
    fn next(&mut self) -> Result<(), Failure> {
        let Some(folder) = self.folders.last_mut() else {
            match self.first.pop_front() {
                Some(name) => self.member(&name, self.root.clone()),
                None => {
                    self.over = true;
                    let end = self.pending.len().saturating_add(2 * BLOCK);
                    self.pending.resize(end, 0);
                }
            }
            return Ok(());
        };
        if let Some(names) = &mut folder.reading {
            match names.read() {
                Ok(false) => {}
                Ok(true) => {
                    let names = folder.reading.take().map(Names::sorted);
                    folder.names = names.unwrap_or_default().into();
                }
                Err(errno) => {
                    skip(&mut self.skipped, &folder.path, error_text(errno));
                    folder.reading = None;
                }
            }
            return Ok(());
        }
        match folder.names.pop_front() {
            Some(name) => {
                let path = [&folder.path, name.as_bytes()].concat();
                self.member(&name, path);
            }
            None => {
                self.folders.pop();
            }
        }
        Ok(())
    }

    /// One member: its header, and what follows it.
    fn member(&mut self, name: &OsStr, path: Vec<u8>) {
        let at = self.folders.last().map_or(&self.above, |folder| &folder.fd);
        match member(at, name) {
            Ok((stat, Content::File(fd))) => self.file_of(&stat, fd, path),
            Ok((stat, Content::Folder(fd, names))) => {
                let path = [&path[..], b"/"].concat();
                self.header(&stat, EntryType::Directory, &path, None);
                if self.folders.len() >= MAX_DEPTH {
                    skip(&mut self.skipped, &path, format!("what is in it lies deeper than {MAX_DEPTH} folders"));
                    return;
                }
                self.folders.push(Folder { fd, path, reading: Some(names), names: VecDeque::new() });
            }
            Ok((stat, Content::Link(target))) => self.header(&stat, EntryType::Symlink, &path, Some(&target)),
            Ok((_, Content::Special)) => skip(&mut self.skipped, &path, "a device, pipe or socket"),
            Err(errno) => skip(&mut self.skipped, &path, error_text(errno)),
        }
    }

    fn file_of(&mut self, stat: &Stat, fd: OwnedFd, path: Vec<u8>) {
        if stat.st_nlink > 1 {
            let inode = (stat.st_dev, stat.st_ino);
            if let Some(first) = self.linked.get(&inode).cloned() {
                return self.header(stat, EntryType::Link, &path, Some(&first));
            }
            if self.linked.len() < LINKED {
                self.linked.insert(inode, path.clone());
            }
        }
        self.header(stat, EntryType::Regular, &path, None);
        let left = u64::try_from(stat.st_size).unwrap_or(0);
        self.file = Some(File { fd, path, left, padding: padding(left) });
    }

    fn header(&mut self, stat: &Stat, kind: EntryType, path: &[u8], link: Option<&[u8]>) {
        let mut extended = Vec::new();
        let mut header = Header::new_ustar();
        fill(&mut header, path, link, &mut extended);
        header.set_entry_type(kind);
        header.set_mode(stat.st_mode & 0o777);
        header.set_uid(u64::from(stat.st_uid));
        header.set_gid(u64::from(stat.st_gid));
        header.set_size(if kind == EntryType::Regular { u64::try_from(stat.st_size).unwrap_or(0) } else { 0 });
        match u64::try_from(stat.st_mtime) {
            Ok(seconds) => header.set_mtime(seconds),
            Err(_) => pax::put(&mut extended, "mtime", stat.st_mtime.to_string().as_bytes()),
        }
        header.set_cksum();
        if !extended.is_empty() {
            self.extended(&extended);
        }
        self.pending.extend_from_slice(header.as_bytes());
        self.skipped.taken = self.skipped.taken.saturating_add(1);
    }

    fn extended(&mut self, records: &[u8]) {
        let mut header = Header::new_ustar();
        fill(&mut header, b"./PaxHeaders/x", None, &mut Vec::new());
        header.set_entry_type(EntryType::XHeader);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        let size = u64::try_from(records.len()).unwrap_or(0);
        header.set_size(size);
        header.set_cksum();
        self.pending.extend_from_slice(header.as_bytes());
        self.pending.extend_from_slice(records);
        let filled = self.pending.len().saturating_add(usize::try_from(padding(size)).unwrap_or(0));
        self.pending.resize(filled, 0);
    }
}

/// Writes the names into their fields as they are, and whole into extended records where they are too long.
fn fill(header: &mut Header, path: &[u8], link: Option<&[u8]>, extended: &mut Vec<u8>) {
    let old = header.as_old_mut();
    for (field, text, key) in [(&mut old.name, path, "path"), (&mut old.linkname, link.unwrap_or_default(), "linkpath")]
    {
        if text.len() > field.len() {
            pax::put(extended, key, text);
        }
        field.iter_mut().zip(text).for_each(|(to, from)| *to = *from);
    }
}

enum Content {
    File(OwnedFd),
    Folder(OwnedFd, Names),
    Link(Vec<u8>),
    Special,
}

fn member(at: &OwnedFd, name: &OsStr) -> Result<(Stat, Content), Errno> {
    let stat = rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            let fd = rustix::fs::openat(at, name, flags, Mode::empty())?;
            // What it is and how long, of what was opened.
            let stat = rustix::fs::fstat(&fd)?;
            let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
            Ok((stat, if regular { Content::File(fd) } else { Content::Special }))
        }
        FileType::Directory => {
            let fd = open_folder(at, name)?;
            let names = Names::new(&fd)?;
            Ok((stat, Content::Folder(fd, names)))
        }
        FileType::Symlink => Ok((stat, Content::Link(rustix::fs::readlinkat(at, name, Vec::new())?.into_bytes()))),
        FileType::Fifo | FileType::Socket | FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => {
            Ok((stat, Content::Special))
        }
    }
}

impl Task for Archive {
    fn step(&mut self, io: &mut Io<'_>, _inside: &mut Inside) -> Result<Progress, Failure> {
        io.drop_input();
        for _ in 0..SLICE {
            if io.may_send() == 0 {
                return Ok(Progress::Wait);
            }
            // Small members go together: frames as long as they may be.
            let whole = self.over || self.file.is_some() || self.pending.len() >= MAX_DATA;
            if whole && !self.send(io)? {
                continue;
            }
            if self.over {
                return Progress::done(std::mem::take(&mut self.skipped));
            }
            self.next()?;
        }
        Ok(Progress::More)
    }
}
