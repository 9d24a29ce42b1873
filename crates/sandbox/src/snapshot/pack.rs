//! A folder of a sandbox as a tar stream. Everything in it is the program's: names, links, modes, holes and depth.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{Read as _, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::{Errno, Result as KernelResult};
use tar::{Builder, EntryType, Header};

use crate::changes::{Bounds, FOREIGN, MAX_DEPTH, Refused, Timed, Until};
use crate::state::{Cross, Dir, errno_of};

/// So many members that are left out are named.
const NAMED: usize = 1000;

/// What becomes of what belongs to anybody but the folder's owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OfOthers {
    /// It is packed: nobody else writes there.
    #[default]
    Packed,
    /// It is left out, and told: the file system is shared with others.
    LeftOut,
    /// It is left out without a word: a runtime made it there to mount on. A new sandbox has its own, or another policy.
    MountPoint,
}

/// What is packed, and how much of it.
#[derive(Clone, Debug, Default)]
pub struct Packing<'a> {
    /// Names at the top that are left out.
    pub but: &'a [&'a str],
    /// What others own.
    pub others: OfOthers,
    /// Bytes of all contents together, and members.
    pub bounds: Bounds,
    /// When to give up.
    pub until: Until,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// Members in the stream.
    pub members: u64,
    /// Bytes of their contents.
    pub bytes: u64,
    /// Left out, and why; the first thousand.
    pub left_out: Vec<Refused>,
}

/// Writes what is in a folder. Nobody may write there meanwhile.
///
/// # Errors
/// What the kernel answers: ENOSPC and the like of `to`; ECANCELED if it took too long.
pub fn pack(folder: &Dir, to: &mut impl Write, packing: &Packing<'_>) -> KernelResult<Packed> {
    let owner = match packing.others {
        OfOthers::Packed => None,
        OfOthers::LeftOut | OfOthers::MountPoint => Some(rustix::fs::fstat(folder)?.st_uid),
    };
    let builder = Builder::new(Timed { to, until: &packing.until });
    let (left, linked, packed) = (packing.bounds, BTreeMap::new(), Packed::default());
    let mut walk = Walk { builder, owner, others: packing.others, left, linked, packed };
    for name in folder.names()? {
        if !packing.but.iter().any(|but| name == *but) {
            walk.member(folder, &name, &mut PathBuf::from(&name), 0)?;
        }
    }
    walk.builder.finish().map_err(|error| errno_of(&error))?;
    Ok(walk.packed)
}

struct Walk<W: Write> {
    builder: Builder<W>,
    owner: Option<u32>,
    others: OfOthers,
    left: Bounds,
    /// Where files with more names than one are in the stream.
    linked: BTreeMap<(u64, u64), PathBuf>,
    packed: Packed,
}

impl<W: Write> Walk<W> {
    fn member(&mut self, dir: &Dir, name: &OsStr, at: &mut PathBuf, depth: usize) -> KernelResult<()> {
        let Some(stat) = dir.stat(name)? else { return Ok(()) };
        if self.owner.is_some_and(|owner| owner != stat.st_uid) {
            return if self.others == OfOthers::MountPoint { Ok(()) } else { self.leave(at, FOREIGN) };
        }
        if self.left.entries == 0 {
            return self.leave(at, "there are more files than a snapshot keeps");
        }
        self.left.entries -= 1;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => self.folder(dir, name, at, (&stat, depth)),
            FileType::RegularFile => self.file(dir, name, at, &stat),
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(dir, Path::new(name), Vec::new())?;
                let target = PathBuf::from(OsStr::from_bytes(target.as_bytes()));
                self.link(EntryType::Symlink, &stat, at, &target)
            }
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => self.leave(at, "a pipe, socket or device"),
        }
    }

    fn folder(&mut self, dir: &Dir, name: &OsStr, at: &mut PathBuf, (stat, depth): (&Stat, usize)) -> KernelResult<()> {
        let inner = match dir.enter(name, Cross::No) {
            Ok(inner) => inner,
            Err(errno) => return self.leave(at, &format!("it cannot be read: {errno}")),
        };
        let mut header = header(stat, EntryType::Directory);
        self.put(|builder| builder.append_data(&mut header, &*at, std::io::empty()))?;
        if depth >= MAX_DEPTH {
            return self.leave(at, "what is in it lies too deep");
        }
        for name in inner.names()? {
            at.push(&name);
            self.member(&inner, &name, at, depth + 1)?;
            at.pop();
        }
        Ok(())
    }

    fn file(&mut self, dir: &Dir, name: &OsStr, at: &Path, stat: &Stat) -> KernelResult<()> {
        let inode = (stat.st_dev, stat.st_ino);
        if let Some(first) = self.linked.get(&inode).cloned() {
            return self.link(EntryType::Link, stat, at, &first);
        }
        let file = match dir.open_file(name, OFlags::RDONLY, Mode::empty()) {
            Ok(file) => file,
            Err(errno) => return self.leave(at, &format!("it cannot be read: {errno}")),
        };
        // What was looked at by name and what was opened must be one.
        let opened = rustix::fs::fstat(&file)?;
        let other = opened.st_ino != stat.st_ino || self.owner.is_some_and(|owner| owner != opened.st_uid);
        if other || FileType::from_raw_mode(opened.st_mode) != FileType::RegularFile {
            return self.leave(at, "it was replaced while it was read");
        }
        let size = u64::try_from(opened.st_size).unwrap_or(0);
        let Some(left) = self.left.bytes.checked_sub(size) else {
            return self.leave(at, "it is larger than what is left of the bytes that are kept");
        };
        self.left.bytes = left;
        let mut header = header(&opened, EntryType::Regular);
        header.set_size(size);
        // The header has stated a size: should anything be missing, it is zeros.
        let whole = file.chain(std::io::repeat(0)).take(size);
        self.put(|builder| builder.append_data(&mut header, at, whole))?;
        self.packed.bytes = self.packed.bytes.saturating_add(size);
        if opened.st_nlink > 1 {
            self.linked.insert(inode, at.to_owned());
        }
        Ok(())
    }

    fn link(&mut self, kind: EntryType, stat: &Stat, at: &Path, target: &Path) -> KernelResult<()> {
        let mut header = header(stat, kind);
        self.put(|builder| append_link(builder, &mut header, at, target))
    }

    fn put(&mut self, append: impl FnOnce(&mut Builder<W>) -> std::io::Result<()>) -> KernelResult<()> {
        append(&mut self.builder).map_err(|error| errno_of(&error))?;
        self.packed.members = self.packed.members.saturating_add(1);
        Ok(())
    }

    #[expect(clippy::unnecessary_wraps, reason = "it stands where a step ends")]
    fn leave(&mut self, at: &Path, why: &str) -> KernelResult<()> {
        if self.packed.left_out.len() < NAMED {
            self.packed.left_out.push(Refused::new(at, why));
        }
        Ok(())
    }
}

/// Mode and time; who owns it is whoever unpacks it, and set-user-id bits stay behind.
fn header(stat: &Stat, kind: EntryType) -> Header {
    let mut header = plain(kind, stat.st_mode);
    header.set_mtime(u64::try_from(stat.st_mtime).unwrap_or(0));
    header
}

/// A link whose target stays as it is: the library's own call takes `a//./b/` for `a/b`, where it is short.
pub(super) fn append_link(
    builder: &mut Builder<impl Write>,
    header: &mut Header,
    at: &Path,
    target: &Path,
) -> std::io::Result<()> {
    if header.set_link_name_literal(target.as_os_str().as_bytes()).is_ok() {
        return builder.append_data(header, at, std::io::empty());
    }
    builder.append_link(header, at, target)
}

/// A header without a size.
pub(super) fn plain(kind: EntryType, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode & 0o777);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(0);
    header
}

impl From<Errno> for super::SnapshotError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::CANCELED => Self::Ended,
            errno => Self::Read { path: PathBuf::from("/tmp"), errno },
        }
    }
}
