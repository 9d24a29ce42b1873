//! Unpacks a tar stream, and makes nothing outside its folder: each member is walked to from there, name by name, through no
//! link. (`openat2` would do it in one call; the sandbox's filter does not let it through.)

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::SeekFrom;
use rustix::io::Errno;
use tar::{EntryType, Header};

use super::super::{Progress, Task};
use super::beneath::{Beneath, Names};
use super::pax::Extended;
use super::{BLOCK, padding, skip};
use crate::files::failure::{at, code, error_text, failure};
use crate::files::place;
use crate::flow::Io;
use crate::inside::Inside;
use crate::words::{Code, Failure, Skipped};

/// Longest extended header, and longest name of GNU's, bytes.
const MAX_HEADER: u64 = 256 * 1024;
/// Folders whose mode and time are set when all is there; those of more are set at once.
const FOLDERS: usize = 100_000;
/// Parts of the stream that one step takes.
const SLICE: usize = 64;

pub(crate) struct Extract {
    path: PathBuf,
    beneath: Beneath,
    state: State,
    /// Bytes that are taken and dropped before the next header.
    drop: u64,
    /// What headers before the member's own said.
    extended: Extended,
    folders: Vec<(Names, Attributes)>,
    skipped: Skipped,
}

enum State {
    Header,
    /// The text of an extended header.
    Text {
        kind: EntryType,
        left: u64,
        bytes: Vec<u8>,
    },
    File(File),
    /// Behind the end.
    Over,
}

struct File {
    names: Names,
    /// Gone when it is whole.
    folder: Option<OwnedFd>,
    fd: OwnedFd,
    size: u64,
    left: u64,
    padding: u64,
    attributes: Attributes,
}

impl File {
    /// Takes bytes of the content; how many. What is zero stays a hole: a file that had holes takes no more room than it did.
    fn take(&mut self, part: &[u8]) -> Result<usize, Errno> {
        let count = if part.iter().all(|byte| *byte == 0) {
            rustix::fs::seek(&self.fd, SeekFrom::Current(i64::try_from(part.len()).unwrap_or(0)))?;
            part.len()
        } else {
            rustix::io::write(&self.fd, part)?
        };
        self.left = self.left.saturating_sub(u64::try_from(count).unwrap_or(0));
        Ok(count)
    }
}

/// What is kept of a member beside its content.
#[derive(Clone, Copy)]
pub(super) struct Attributes {
    pub(super) mode: u32,
    pub(super) modified: (i64, u32),
}

impl Drop for File {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            let _removed = rustix::fs::unlinkat(folder, self.names.last(), rustix::fs::AtFlags::empty());
        }
    }
}

impl Extract {
    pub(crate) fn new(path: &Path) -> Result<Self, Failure> {
        place::make_folders(path)?;
        let beneath = Beneath::new(path).map_err(at("opening the folder", path))?;
        Ok(Self {
            path: path.to_owned(),
            beneath,
            state: State::Header,
            drop: 0,
            extended: Extended::default(),
            folders: Vec::new(),
            skipped: Skipped::default(),
        })
    }

    /// Takes one part of what came; false where more has to come.
    fn part(&mut self, io: &mut Io<'_>) -> Result<bool, Failure> {
        if self.drop > 0 {
            let count = u64::try_from(io.input().len()).unwrap_or(u64::MAX).min(self.drop);
            io.take(usize::try_from(count).unwrap_or(usize::MAX));
            self.drop = self.drop.saturating_sub(count);
            return Ok(self.drop == 0);
        }
        match &mut self.state {
            State::Over => {
                io.drop_input();
                Ok(false)
            }
            State::Header => {
                let Some(block) = io.input().first_chunk::<BLOCK>().copied() else { return Ok(false) };
                io.take(BLOCK);
                self.header(&block).map(|()| true)
            }
            State::Text { kind, left, bytes } => {
                if *left == 0 {
                    let (kind, bytes) = (*kind, std::mem::take(bytes));
                    self.state = State::Header;
                    return self.text(kind, &bytes).map(|()| true);
                }
                let input = io.input();
                let count = input.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                bytes.extend_from_slice(input.get(..count).unwrap_or_default());
                *left = left.saturating_sub(u64::try_from(count).unwrap_or(0));
                io.take(count);
                Ok(count > 0)
            }
            State::File(file) if file.left == 0 => {
                self.drop = file.padding;
                finish(file, &mut self.skipped);
                self.state = State::Header;
                Ok(true)
            }
            State::File(file) => {
                let input = io.input();
                let count = input.len().min(usize::try_from(file.left).unwrap_or(usize::MAX));
                let Some(part) = input.get(..count).filter(|part| !part.is_empty()) else { return Ok(false) };
                match file.take(part) {
                    Ok(count) => {
                        io.take(count);
                        Ok(true)
                    }
                    Err(Errno::INTR) => Ok(true),
                    Err(errno) => Err(at("unpacking into", &self.path)(errno)),
                }
            }
        }
    }

    fn header(&mut self, block: &[u8; BLOCK]) -> Result<(), Failure> {
        if block.iter().all(|byte| *byte == 0) {
            self.state = State::Over;
            return Ok(());
        }
        let header = Header::from_byte_slice(block);
        if !sum_is_right(header) {
            return Err(failure(Code::Invalid, "this is no tar stream: a checksum is wrong (is it compressed?)"));
        }
        let size = header.entry_size().ok().filter(|size| *size < 1 << 62);
        let size = size.ok_or_else(|| failure(Code::Invalid, "a member of the tar stream states no size"))?;
        let kind = header.entry_type();
        if kind.is_pax_local_extensions() || kind.is_gnu_longname() || kind.is_gnu_longlink() {
            if size > MAX_HEADER {
                return Err(failure(Code::Invalid, "an extended header of the tar stream is too long"));
            }
            self.state = State::Text { kind, left: size, bytes: Vec::new() };
            return Ok(());
        }
        if kind.is_pax_global_extensions() {
            self.drop = size.saturating_add(padding(size));
            return Ok(());
        }
        if kind.is_gnu_sparse() && header.as_gnu().is_some_and(|gnu| gnu.is_extended()) {
            return Err(failure(Code::Invalid, "the tar stream leaves holes out: make it without --sparse"));
        }
        let extended = std::mem::take(&mut self.extended);
        let size = extended.size.filter(|size| *size < 1 << 62).unwrap_or(size);
        let name = extended.path.clone().unwrap_or_else(|| header.path_bytes().into_owned());
        match self.member(header, &name, &extended, size) {
            Ok(()) => {}
            Err(Problem::Skip(why)) => skip(&mut self.skipped, &name, why),
            Err(Problem::Call(errno)) if is_fatal(errno) => {
                return Err(at("unpacking into", &self.path)(errno));
            }
            Err(Problem::Call(errno)) => skip(&mut self.skipped, &name, error_text(errno)),
        }
        if !matches!(self.state, State::File(_)) {
            // Links and folders have no content, whatever some writers state.
            self.drop = if !bare(kind) { size.saturating_add(padding(size)) } else { 0 };
        }
        Ok(())
    }

    /// Makes a member; a file's content is still to come.
    fn member(&mut self, header: &Header, name: &[u8], extended: &Extended, size: u64) -> Result<(), Problem> {
        let Some(names) = Names::new(name).map_err(Problem::Skip)? else { return Ok(()) };
        let mode = header.mode().unwrap_or(0o644) & 0o777;
        let seconds = header.mtime().ok().and_then(|seconds| i64::try_from(seconds).ok()).unwrap_or(0);
        let attributes = Attributes { mode, modified: extended.modified.unwrap_or((seconds, 0)) };
        let link = || extended.link.clone().or_else(|| header.link_name_bytes().map(std::borrow::Cow::into_owned));
        let kind = header.entry_type();
        // Writers of before 1988 mark a folder by its slash alone.
        if kind.is_dir() || (kind.is_file() && name.ends_with(b"/")) {
            self.folder(names, attributes)?;
        } else if kind.is_gnu_sparse() || extended.sparse {
            return Err(Problem::Skip("it is in a form that leaves holes out (--sparse)"));
        } else if kind.is_file() || kind.is_contiguous() {
            let (folder, fd) = self.beneath.file(&names)?;
            let padding = padding(size);
            self.state = State::File(File { names, folder: Some(folder), fd, size, left: size, padding, attributes });
            return Ok(());
        } else if kind.is_symlink() {
            let target = link().ok_or(Problem::Skip("a link that leads nowhere"))?;
            self.beneath.symlink(&names, &target, attributes)?;
        } else if kind.is_hard_link() {
            let target = link().ok_or(Problem::Skip("a link that leads nowhere"))?;
            let target = Names::new(&target).map_err(Problem::Skip)?.ok_or(Problem::Skip("a link to a folder"))?;
            self.beneath.link(&names, &target)?;
        } else {
            return Err(Problem::Skip("a device, pipe or something unknown"));
        }
        self.skipped.taken = self.skipped.taken.saturating_add(1);
        Ok(())
    }

    fn folder(&mut self, names: Names, attributes: Attributes) -> Result<(), Problem> {
        self.beneath.folder(&names)?;
        if self.folders.len() < FOLDERS {
            self.folders.push((names, attributes));
            return Ok(());
        }
        self.beneath.finish_folder(&names, attributes)
    }

    fn text(&mut self, kind: EntryType, bytes: &[u8]) -> Result<(), Failure> {
        self.drop = padding(u64::try_from(bytes.len()).unwrap_or(0));
        let name = || bytes.split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
        if kind.is_gnu_longname() {
            self.extended.path = Some(name());
        } else if kind.is_gnu_longlink() {
            self.extended.link = Some(name());
        } else {
            let read = self.extended.read(bytes);
            read.ok_or_else(|| failure(Code::Invalid, "an extended header of the tar stream cannot be read"))?;
        }
        Ok(())
    }

    /// Gives some folders their modes and times, the last first; true when all have them.
    fn finish_folders(&mut self) -> bool {
        for _ in 0..SLICE {
            let Some((names, attributes)) = self.folders.pop() else { return true };
            match self.beneath.finish_folder(&names, attributes) {
                Ok(()) => {}
                Err(Problem::Skip(why)) => skip(&mut self.skipped, &names.text(), why),
                Err(Problem::Call(errno)) => skip(&mut self.skipped, &names.text(), error_text(errno)),
            }
        }
        false
    }
}

/// Why a member is not made.
pub(super) enum Problem {
    Skip(&'static str),
    Call(Errno),
}

impl From<Errno> for Problem {
    fn from(errno: Errno) -> Self {
        Self::Call(errno)
    }
}

/// Whether the others will not fare better.
fn is_fatal(errno: Errno) -> bool {
    matches!(code(errno), Code::NoSpace | Code::TooMany)
}

/// Kinds whose header may state a size although nothing follows.
fn bare(kind: EntryType) -> bool {
    matches!(
        kind,
        EntryType::Directory
            | EntryType::Symlink
            | EntryType::Link
            | EntryType::Char
            | EntryType::Block
            | EntryType::Fifo
    )
}

fn sum_is_right(header: &Header) -> bool {
    let mut expected = header.clone();
    expected.set_cksum();
    matches!((header.cksum(), expected.cksum()), (Ok(stated), Ok(counted)) if stated == counted)
}

/// A whole file gets its mode and time, and stays.
fn finish(file: &mut File, skipped: &mut Skipped) {
    file.folder = None;
    skipped.taken = skipped.taken.saturating_add(1);
    // It may end with a hole.
    let whole = rustix::fs::ftruncate(&file.fd, file.size);
    if let Err(errno) = whole.and_then(|()| super::beneath::finish(&file.fd, file.attributes)) {
        skip(skipped, &file.names.text(), error_text(errno));
    }
}

impl Task for Extract {
    fn step(&mut self, io: &mut Io<'_>, _inside: &mut Inside) -> Result<Progress, Failure> {
        for _ in 0..SLICE {
            if self.part(io)? {
                continue;
            }
            if !io.flow.eof {
                return Ok(Progress::Wait);
            }
            let whole = matches!(self.state, State::Header | State::Over) && self.drop == 0 && io.is_over();
            if !whole {
                return Err(failure(Code::Invalid, "the tar stream ends in the middle of a member"));
            }
            if self.finish_folders() {
                return Progress::done(std::mem::take(&mut self.skipped));
            }
            return Ok(Progress::More);
        }
        Ok(Progress::More)
    }
}
