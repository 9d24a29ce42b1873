//! Files that are made beneath a folder: walked to name by name, through no link and no `..`.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, StatxAttributes, StatxFlags, Timespec, Timestamps};
use rustix::io::Errno;

use super::extract::{Attributes, Problem};

/// Most parts of a name.
const PARTS: usize = 1024;

/// The name of a member, in parts; at least one.
pub(super) struct Names(Vec<Vec<u8>>);

impl Names {
    /// `None`: the folder itself.
    pub(super) fn new(name: &[u8]) -> Result<Option<Self>, &'static str> {
        if name.starts_with(b"/") {
            return Err("an absolute name");
        }
        let parts: Vec<Vec<u8>> = name
            .split(|byte| *byte == b'/')
            .filter(|part| !part.is_empty() && *part != b".")
            .map(<[u8]>::to_vec)
            .collect();
        if parts.iter().any(|part| part == b".." || part.contains(&0)) {
            return Err("a name with `..` or a zero byte");
        }
        if parts.len() > PARTS {
            return Err("a name of too many parts");
        }
        Ok(if parts.is_empty() { None } else { Some(Self(parts)) })
    }

    pub(super) fn last(&self) -> &OsStr {
        OsStr::from_bytes(self.0.last().map_or(b".", Vec::as_slice))
    }

    pub(super) fn text(&self) -> Vec<u8> {
        self.0.join(&b'/')
    }

    fn above(&self) -> impl Iterator<Item = &OsStr> {
        let parts = self.0.len().saturating_sub(1);
        self.0.iter().take(parts).map(|part| OsStr::from_bytes(part))
    }
}

/// The folder.
pub(super) struct Beneath {
    root: OwnedFd,
}

const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Beneath {
    pub(super) fn new(path: &Path) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(CWD, path, flags, Mode::empty()).map(|root| Self { root })
    }

    /// The folder of a member; missing ones are made if asked.
    fn above(&self, names: &Names, make: bool) -> Result<OwnedFd, Problem> {
        let mut folder = rustix::io::fcntl_dupfd_cloexec(&self.root, 3)?;
        for part in names.above() {
            folder = match open_folder(&folder, part) {
                Err(Errno::NOENT) if make => {
                    match rustix::fs::mkdirat(&folder, part, Mode::from_raw_mode(0o755)) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(errno) => return Err(errno.into()),
                    }
                    open_folder(&folder, part)
                }
                opened => opened,
            }
            .map_err(|errno| match errno {
                // With O_DIRECTORY the kernel tells of a link by either.
                Errno::LOOP | Errno::NOTDIR => Problem::Skip("a link or a file stands in the way"),
                other => other.into(),
            })?;
        }
        Ok(folder)
    }

    /// Makes way for something: what is there and no folder is removed.
    fn clear(folder: &OwnedFd, names: &Names) -> Result<(), Problem> {
        match rustix::fs::unlinkat(folder, names.last(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::ISDIR) => Err(Problem::Skip("a folder is there")),
            Err(errno) => Err(errno.into()),
        }
    }

    /// A new file and its folder.
    pub(super) fn file(&self, names: &Names) -> Result<(OwnedFd, OwnedFd), Problem> {
        let folder = self.above(names, true)?;
        Self::clear(&folder, names)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&folder, names.last(), flags, Mode::from_raw_mode(0o600))?;
        Ok((folder, file))
    }

    /// A folder, which may be there.
    pub(super) fn folder(&self, names: &Names) -> Result<(), Problem> {
        let folder = self.above(names, true)?;
        match rustix::fs::mkdirat(&folder, names.last(), Mode::from_raw_mode(0o700)) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => {
                let stat = rustix::fs::statat(&folder, names.last(), AtFlags::SYMLINK_NOFOLLOW)?;
                if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                    return Ok(());
                }
                Err(Problem::Skip("something that is no folder is there"))
            }
            Err(errno) => Err(errno.into()),
        }
    }

    /// Gives a folder that was made its mode and time. What is mounted has its own: a grant is the host's folder, and perhaps read-only.
    pub(super) fn finish_folder(&self, names: &Names, attributes: Attributes) -> Result<(), Problem> {
        let folder = self.above(names, false)?;
        let flags = FOLDER | OFlags::RDONLY;
        let own = rustix::fs::openat(&folder, names.last(), flags, Mode::empty())?;
        if is_mounted(&own) { Ok(()) } else { finish(&own, attributes).map_err(Problem::from) }
    }

    pub(super) fn symlink(&self, names: &Names, target: &[u8], attributes: Attributes) -> Result<(), Problem> {
        let folder = self.above(names, true)?;
        Self::clear(&folder, names)?;
        rustix::fs::symlinkat(target, &folder, names.last())?;
        rustix::fs::utimensat(&folder, names.last(), &times(attributes), AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(())
    }

    /// One more name of a member that is there.
    pub(super) fn link(&self, names: &Names, target: &Names) -> Result<(), Problem> {
        let from = self.above(target, false)?;
        let stat = rustix::fs::statat(&from, target.last(), AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            return Err(Problem::Skip("a link to a folder"));
        }
        if names.0 == target.0 {
            return Ok(());
        }
        let folder = self.above(names, true)?;
        Self::clear(&folder, names)?;
        rustix::fs::linkat(&from, target.last(), &folder, names.last(), AtFlags::empty())?;
        Ok(())
    }
}

fn open_folder(at: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(at, name, FOLDER | OFlags::PATH, Mode::empty())
}

fn is_mounted(folder: &OwnedFd) -> bool {
    let stat = rustix::fs::statx(folder, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
    stat.is_ok_and(|stat| stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// Mode and time of what is open.
pub(super) fn finish(file: impl AsFd, attributes: Attributes) -> Result<(), Errno> {
    rustix::fs::fchmod(&file, Mode::from_raw_mode(attributes.mode))?;
    rustix::fs::futimens(&file, &times(attributes))
}

fn times(attributes: Attributes) -> Timestamps {
    let (seconds, nanos) = attributes.modified;
    let modified = Timespec { tv_sec: seconds, tv_nsec: i64::from(nanos) };
    Timestamps { last_access: modified, last_modification: modified }
}
