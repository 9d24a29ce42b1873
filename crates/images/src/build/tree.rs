//! Trees copied, and places in them found as a program inside would find them.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use sandbox::state::{Cross, Dir, errno_of};

use super::{NEW, OWN};

/// Deeper folders are refused.
const MAX_DEPTH: usize = 1000;
/// Links on one way.
const MAX_LINKS: usize = 40;

/// Why something cannot be copied.
#[derive(Debug)]
pub(super) enum Problem {
    /// The kernel refused.
    Kernel(PathBuf, Errno),
    /// In words.
    Words(String),
}

/// How copied files are changed on the way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct As {
    /// Permissions of files and folders.
    pub(super) mode: Option<u32>,
}

/// Copies all that a folder holds into another one.
pub(super) fn copy_all(from: &Dir, to: &Dir) -> Result<(), Problem> {
    copy_chosen(from, to, Path::new(""), As::default(), &|_| true)
}

/// As [`copy_all`], of those that are chosen by their path; folders are there when something in them is.
pub(super) fn copy_chosen(
    from: &Dir,
    to: &Dir,
    below: &Path,
    how: As,
    chosen: &dyn Fn(&Path) -> bool,
) -> Result<(), Problem> {
    if below.components().count() > MAX_DEPTH {
        return Err(Problem::Words(format!("folders are deeper than {MAX_DEPTH}")));
    }
    let kernel = |errno| Problem::Kernel(below.to_owned(), errno);
    for name in from.names().map_err(kernel)? {
        let path = below.join(&name);
        if !chosen(&path) {
            continue;
        }
        let kernel = |errno| Problem::Kernel(path.clone(), errno);
        let Some(stat) = from.stat(&name).map_err(kernel)? else { continue };
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            folder(to, &name, &stat, how).map_err(kernel)?;
            let inner = from.enter(Path::new(&name), Cross::No).map_err(kernel)?;
            let made = to.enter(Path::new(&name), Cross::No).map_err(kernel)?;
            copy_chosen(&inner, &made, &path, how, chosen)?;
            dated(&made, &stat).map_err(kernel)?;
        } else {
            copy_one(from, &name, to, &name, how).map_err(|problem| problem.at(&path))?;
        }
    }
    Ok(())
}

impl Problem {
    fn at(self, path: &Path) -> Self {
        match self {
            Self::Kernel(_, errno) => Self::Kernel(path.to_owned(), errno),
            words @ Self::Words(_) => words,
        }
    }
}

/// A folder with the mode of another one; it may be there.
fn folder(to: &Dir, name: &OsStr, stat: &Stat, how: As) -> Result<(), Errno> {
    // A file or link that is there stays, and nothing is copied: EEXIST.
    to.make(name, Mode::RWXU)?;
    let made = to.enter(Path::new(name), Cross::No)?;
    // The owner reads and enters everything, as in an import.
    let mode = how.mode.unwrap_or(stat.st_mode & 0o777) | 0o700;
    rustix::fs::fchmod(&made, Mode::from_raw_mode(mode))
}

fn dated(dir: &Dir, stat: &Stat) -> Result<(), Errno> {
    rustix::fs::futimens(dir, &crate::tree::times(stat.st_mtime))
}

/// Copies a file or a link; what is there goes, unless it is a folder.
pub(super) fn copy_one(from: &Dir, name: &OsStr, to: &Dir, called: &OsStr, how: As) -> Result<(), Problem> {
    let kernel = |errno| Problem::Kernel(PathBuf::from(name), errno);
    let Some(stat) = from.stat(name).map_err(kernel)? else { return Err(kernel(Errno::NOENT)) };
    if to.kind(called).map_err(kernel)? == Some(FileType::Directory) {
        return Err(Problem::Words(format!("`{}` is a folder there, and no file", called.to_string_lossy())));
    }
    to.remove_tree(called).map_err(kernel)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let mut source = from.open_file(name, OFlags::RDONLY, Mode::empty()).map_err(kernel)?;
            let mut file = to.open_file(called, NEW, OWN).map_err(kernel)?;
            io::copy(&mut source, &mut file).map_err(|error| kernel(errno_of(&error)))?;
            let mode = how.mode.unwrap_or(stat.st_mode & 0o777) | 0o400;
            rustix::fs::fchmod(&file, Mode::from_raw_mode(mode)).map_err(kernel)?;
            rustix::fs::futimens(&file, &crate::tree::times(stat.st_mtime)).map_err(kernel)
        }
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(from, name, Vec::new()).map_err(kernel)?;
            rustix::fs::symlinkat(&target, to, called).map_err(kernel)?;
            let times = crate::tree::times(stat.st_mtime);
            rustix::fs::utimensat(to, called, &times, AtFlags::SYMLINK_NOFOLLOW).map_err(kernel)
        }
        FileType::Directory
        | FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => {
            Err(Problem::Words(format!("`{}` is no file, folder or link", Path::new(name).display())))
        }
    }
}

/// A path of the tree without links and `..`, as a program inside would find it. What is missing is taken as it is written.
pub(super) fn found(root: &Dir, path: &Path) -> Result<PathBuf, Problem> {
    let mut real = PathBuf::new();
    let mut open: Vec<OsString> = parts(path);
    let mut links = 0_usize;
    while let Some(part) = open.pop() {
        if part == ".." {
            real.pop();
            continue;
        }
        let at = real.join(&part);
        let stands = root.enter(if real.as_os_str().is_empty() { Path::new(".") } else { &real }, Cross::No);
        let kind = stands.as_ref().ok().and_then(|dir| dir.kind(&part).ok().flatten());
        if let (Ok(dir), Some(FileType::Symlink)) = (&stands, kind) {
            links = links.saturating_add(1);
            if links > MAX_LINKS {
                return Err(Problem::Words(format!("`{}` leads through too many links", path.display())));
            }
            let target = rustix::fs::readlinkat(dir, &part, Vec::new()).map_err(|errno| Problem::Kernel(at, errno))?;
            let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
            if target.is_absolute() {
                real.clear();
            }
            open.extend(parts(&target));
            continue;
        }
        real = at;
    }
    Ok(real)
}

/// The parts of a path, the last one first.
fn parts(path: &Path) -> Vec<OsString> {
    let part = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsStr::from_bytes(b"..").to_owned()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    let mut all: Vec<_> = path.components().filter_map(part).collect();
    all.reverse();
    all
}

/// A folder of the tree, made where it is missing, found as a program inside would find it.
pub(super) fn folder_at(root: &Dir, path: &Path) -> Result<Dir, Problem> {
    let real = found(root, path)?;
    let mut dir = root.enter(".", Cross::No).map_err(|errno| Problem::Kernel(real.clone(), errno))?;
    for name in real.iter() {
        let kernel = |errno| Problem::Kernel(real.clone(), errno);
        if dir.make(name, Mode::RWXU).map_err(kernel)? {
            let made = dir.enter(Path::new(name), Cross::No).map_err(kernel)?;
            rustix::fs::fchmod(&made, Mode::from_raw_mode(0o755)).map_err(kernel)?;
        }
        dir = dir.enter(Path::new(name), Cross::No).map_err(kernel)?;
    }
    Ok(dir)
}
