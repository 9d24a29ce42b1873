//! What the judges ask of the file system, each answer as of that moment. The only module of this crate that touches a file.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, Stat};

pub(crate) use rustix::fs::FileType;
pub(crate) use rustix::io::Errno;

/// What an object is, followed or not as it was asked for.
pub(crate) struct FileMetadata {
    pub(crate) kind: FileType,
    /// Permission bits.
    pub(crate) mode: u32,
    /// How many names it has.
    pub(crate) links: u64,
}

impl From<Stat> for FileMetadata {
    fn from(stat: Stat) -> Self {
        let kind = FileType::from_raw_mode(stat.st_mode);
        Self { kind, mode: stat.st_mode & 0o7777, links: stat.st_nlink }
    }
}

/// The facts of what a path names, of a link itself.
pub(crate) fn facts(path: &Path) -> Option<FileMetadata> {
    rustix::fs::lstat(path).ok().map(FileMetadata::from)
}

/// The facts of what a path leads to.
pub(crate) fn facts_followed(path: &Path) -> Option<FileMetadata> {
    rustix::fs::stat(path).ok().map(FileMetadata::from)
}

/// What a symbolic link says; none for anything else.
pub(crate) fn link(path: &Path) -> Option<PathBuf> {
    let target = rustix::fs::readlink(path, Vec::new()).ok()?;
    Some(PathBuf::from(OsStr::from_bytes(target.as_bytes())))
}

/// The names in a folder, none where there is no such folder; `None` if there are more than `most`, or they cannot be read.
pub(crate) fn names(path: &Path, most: usize) -> Option<Vec<OsString>> {
    let list = match std::fs::read_dir(path) {
        Ok(list) => list,
        Err(error) => {
            use std::io::ErrorKind::{NotADirectory, NotFound};
            return matches!(error.kind(), NotFound | NotADirectory).then(Vec::new);
        }
    };
    let mut names = Vec::new();
    for entry in list {
        names.push(entry.ok()?.file_name());
        if names.len() > most {
            return None;
        }
    }
    Some(names)
}

/// The facts of what a descriptor refers to.
///
/// # Errors
/// As fstat(2).
pub(crate) fn facts_of(fd: impl AsFd) -> Result<FileMetadata, Errno> {
    rustix::fs::fstat(fd).map(FileMetadata::from)
}

/// The first bytes of a file, at most so many.
pub(crate) fn head(path: &Path, most: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// A path as the kernel resolves it now, links followed.
pub(crate) fn canonical(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok()
}

/// Where an absolute path leads inside a tree that is another root, links followed and none out of it. The answer is a path
/// inside the tree too.
pub(crate) fn canonical_inside(tree: &Path, path: &Path) -> Option<PathBuf> {
    let below = path.strip_prefix("/").ok()?;
    let root = open(CWD, tree, OFlags::PATH | OFlags::DIRECTORY, ResolveFlags::empty()).ok()?;
    let file = open(&root, below, OFlags::PATH, ResolveFlags::IN_ROOT).ok()?;
    let full = name_of(&file).ok()?;
    Some(Path::new("/").join(full.strip_prefix(tree).ok()?))
}

/// Opens a folder. No link is followed on the way.
///
/// # Errors
/// ENOTDIR, ELOOP, ENOENT, EACCES.
pub(crate) fn open_folder(path: &Path) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    open(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY, resolve)
}

/// Opens a path below a folder as a place (`O_PATH`), following links as long as they stay below it; none of `/proc` is.
///
/// # Errors
/// EXDEV: it leads out, by `..` or by a link. ELOOP: too many links, or one of `/proc`. EAGAIN: something was renamed
/// meanwhile. ENOENT, ENOTDIR, EACCES.
pub(crate) fn open_beneath(folder: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    open(folder, path, OFlags::PATH, ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS)
}

/// As [`open_beneath`], following no link.
///
/// # Errors
/// As [`open_beneath`]; ELOOP: there is a link on the way.
pub(crate) fn open_beneath_without_links(folder: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    open(folder, path, OFlags::PATH, resolve)
}

/// The path that the kernel has for what a descriptor refers to.
///
/// # Errors
/// ENOENT: it was removed meanwhile, or lies outside of this process's root. As readlink(2).
pub(crate) fn path_of(fd: impl AsFd) -> Result<PathBuf, Errno> {
    let path = name_of(&fd)?;
    // A file may be called `x (deleted)`: it is gone only if that name does not lead to it.
    if !path.is_absolute() || (path.as_os_str().as_bytes().ends_with(b" (deleted)") && !leads_to(&path, &fd)) {
        return Err(Errno::NOENT);
    }
    Ok(path)
}

fn leads_to(path: &Path, fd: impl AsFd) -> bool {
    let there = rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW);
    let same = |there: &Stat, here: &Stat| (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino);
    there.is_ok_and(|there| rustix::fs::fstat(fd).is_ok_and(|here| same(&there, &here)))
}

fn name_of(fd: impl AsFd) -> Result<PathBuf, Errno> {
    let link = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    let target = rustix::fs::readlink(link, Vec::new())?;
    Ok(PathBuf::from(OsStr::from_bytes(target.as_bytes())))
}

fn open(folder: impl AsFd, path: &Path, flags: OFlags, resolve: ResolveFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::openat2(folder, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
}
