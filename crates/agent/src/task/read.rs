//! The bytes of a file.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};

use super::{Progress, Task};
use crate::files::entry;
use crate::files::failure::{at, failure};
use crate::flow::Io;
use crate::frame::{Lane, MAX_DATA};
use crate::inside::Inside;
use crate::words::{Code, Entry, Failure};

pub(super) struct Read {
    file: OwnedFd,
    path: std::path::PathBuf,
    entry: Option<Entry>,
    offset: u64,
    left: u64,
}

impl Read {
    pub(super) fn new(path: &Path, offset: u64, length: Option<u64>) -> Result<Self, Failure> {
        // Asked before it is opened: opening a device may do something, and a pipe would wait.
        let stat = rustix::fs::stat(path).map_err(at("reading", path))?;
        regular(path, stat.st_mode)?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(at("reading", path))?;
        let stat = rustix::fs::fstat(&file).map_err(at("reading", path))?;
        regular(path, stat.st_mode)?;
        if i64::try_from(offset).is_err() {
            return Err(failure(Code::Invalid, format!("no file has a byte {offset}")));
        }
        let entry = Some(entry::from(path, &stat));
        Ok(Self { file, path: path.to_owned(), entry, offset, left: length.unwrap_or(u64::MAX) })
    }
}

/// Only regular files are read and written.
pub(super) fn regular(path: &Path, mode: u32) -> Result<(), Failure> {
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(failure(Code::IsADirectory, format!("`{}` is a folder", path.display()))),
        FileType::Symlink
        | FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => {
            Err(failure(Code::Invalid, format!("`{}` is a device, pipe or socket, not a file", path.display())))
        }
    }
}

impl Task for Read {
    fn step(&mut self, io: &mut Io<'_>, _inside: &mut Inside) -> Result<Progress, Failure> {
        io.drop_input();
        if let Some(entry) = self.entry.take() {
            io.reply(&entry);
        }
        if self.left == 0 {
            return Progress::done(());
        }
        if io.may_send() == 0 {
            return Ok(Progress::Wait);
        }
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(MAX_DATA);
        let count = io
            .data_from(Lane::Out, most, |bytes| rustix::io::pread(&self.file, bytes, self.offset))
            .map_err(at("reading", &self.path))?;
        let read = u64::try_from(count).unwrap_or(0);
        self.left = self.left.saturating_sub(read);
        self.offset = self.offset.saturating_add(read);
        if count == 0 { Progress::done(()) } else { Ok(Progress::More) }
    }
}
