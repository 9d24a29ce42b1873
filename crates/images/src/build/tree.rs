//! Trees copied, and places in them found as a program inside would find them.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use sandbox::state::{Cross, Dir, errno_of};

use super::{NEW, OWN};
use crate::unpack::MAX_UNPACKED;

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
pub(super) struct CopyOptions {
    /// Permissions of files and folders.
    pub(super) mode: Option<u32>,
}

/// Copies all that a folder holds into another one.
pub(super) fn copy_all(from: &Dir, to: &Dir) -> Result<(), Problem> {
    copy_chosen(from, to, Path::new(""), CopyOptions::default(), &|_| true)
}

/// As [`copy_all`], of those that are chosen by their path; folders are there when something in them is.
pub(super) fn copy_chosen(
    from: &Dir,
    to: &Dir,
    below: &Path,
    how: CopyOptions,
    chosen: &dyn Fn(&Path) -> bool,
) -> Result<(), Problem> {
    let names = BTreeMap::new();
    Copying { root: to, start: below, how, chosen, names, left: MAX_UNPACKED }.folder(from, to, below)
}

/// One copy.
struct Copying<'a> {
    root: &'a Dir,
    start: &'a Path,
    how: CopyOptions,
    chosen: &'a dyn Fn(&Path) -> bool,
    /// The first place of each file that has more than one name.
    names: BTreeMap<(u64, u64), PathBuf>,
    /// Bytes that may still be copied.
    left: u64,
}

impl Copying<'_> {
    fn folder(&mut self, from: &Dir, to: &Dir, below: &Path) -> Result<(), Problem> {
        if below.components().count() > MAX_DEPTH {
            return Err(Problem::Words(format!("folders are deeper than {MAX_DEPTH}")));
        }
        let kernel = |errno| Problem::Kernel(below.to_owned(), errno);
        for name in from.names().map_err(kernel)? {
            let path = below.join(&name);
            if !(self.chosen)(&path) {
                continue;
            }
            let kernel = |errno| Problem::Kernel(path.clone(), errno);
            let Some(stat) = from.stat(&name).map_err(kernel)? else { continue };
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                folder(to, &name, &stat, self.how).map_err(kernel)?;
                let inner = from.enter(Path::new(&name), Cross::No).map_err(kernel)?;
                let made = to.enter(Path::new(&name), Cross::No).map_err(kernel)?;
                self.folder(&inner, &made, &path)?;
                dated(&made, &stat).map_err(kernel)?;
            } else {
                self.one((from, to), &name, &path, &stat).map_err(|problem| problem.at(&path))?;
            }
        }
        Ok(())
    }

    fn one(&mut self, (from, to): (&Dir, &Dir), name: &OsStr, path: &Path, stat: &Stat) -> Result<(), Problem> {
        let id = (stat.st_dev, stat.st_ino);
        let many = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_nlink > 1;
        if let Some(first) = self.names.get(&id).filter(|_| many) {
            make_room(to, name)?;
            let linked = rustix::fs::linkat(self.root, first, to, name, AtFlags::empty());
            return linked.map_err(|errno| Problem::Kernel(path.to_owned(), errno));
        }
        self.left = self.left.saturating_sub(copy_within(from, name, (to, name), self.how, self.left)?);
        if many {
            self.names.insert(id, path.strip_prefix(self.start).unwrap_or(path).to_owned());
        }
        Ok(())
    }
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
fn folder(to: &Dir, name: &OsStr, stat: &Stat, how: CopyOptions) -> Result<(), Errno> {
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

/// What is there goes, unless it is a folder.
fn make_room(to: &Dir, called: &OsStr) -> Result<(), Problem> {
    let kernel = |errno| Problem::Kernel(PathBuf::from(called), errno);
    if to.kind(called).map_err(kernel)? == Some(FileType::Directory) {
        return Err(Problem::Words(format!("`{}` is a folder there, and no file", called.to_string_lossy())));
    }
    to.remove_tree(called).map_err(kernel)
}

/// Copies a file or a link; what is there goes, unless it is a folder.
pub(super) fn copy_one(from: &Dir, name: &OsStr, to: &Dir, called: &OsStr, how: CopyOptions) -> Result<(), Problem> {
    copy_within(from, name, (to, called), how, MAX_UNPACKED).map(drop)
}

/// As [`copy_one`], of at most so many bytes; how many there were.
fn copy_within(
    from: &Dir,
    name: &OsStr,
    (to, called): (&Dir, &OsStr),
    how: CopyOptions,
    most: u64,
) -> Result<u64, Problem> {
    let kernel = |errno| Problem::Kernel(PathBuf::from(name), errno);
    let Some(stat) = from.stat(name).map_err(kernel)? else { return Err(kernel(Errno::NOENT)) };
    make_room(to, called)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let source = from.open_file(name, OFlags::RDONLY, Mode::empty()).map_err(kernel)?;
            let mut file = to.open_file(called, NEW, OWN).map_err(kernel)?;
            let copied = io::copy(&mut source.take(most.saturating_add(1)), &mut file);
            let copied = copied.map_err(|error| kernel(errno_of(&error)))?;
            if copied > most {
                return Err(Problem::Words(format!("more than {} GiB would be copied", MAX_UNPACKED >> 30)));
            }
            let mode = how.mode.unwrap_or(stat.st_mode & 0o777) | 0o400;
            rustix::fs::fchmod(&file, Mode::from_raw_mode(mode)).map_err(kernel)?;
            rustix::fs::futimens(&file, &crate::tree::times(stat.st_mtime)).map_err(kernel)?;
            Ok(copied)
        }
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(from, name, Vec::new()).map_err(kernel)?;
            rustix::fs::symlinkat(&target, to, called).map_err(kernel)?;
            let times = crate::tree::times(stat.st_mtime);
            rustix::fs::utimensat(to, called, &times, AtFlags::SYMLINK_NOFOLLOW).map_err(kernel)?;
            Ok(0)
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;
    use crate::check::sum;

    #[test]
    fn a_file_of_many_names_is_copied_and_counted_as_one() {
        let place = tempfile::tempdir().unwrap();
        let top = place.path().canonicalize().unwrap();
        for folder in ["from/deep", "to", "apart/deep"] {
            fs::create_dir_all(top.join(folder)).unwrap();
        }
        for (name, text) in [("from/one", "same"), ("from/other", "other"), ("to/two", "was there")] {
            fs::write(top.join(name), text).unwrap();
        }
        for name in ["from/two", "from/deep/three"] {
            fs::hard_link(top.join("from/one"), top.join(name)).unwrap();
        }
        let dir = |name: &str| Dir::open(&top.join(name)).unwrap();
        copy_all(&dir("from"), &dir("to")).unwrap();
        let inode = |name: &str| fs::metadata(top.join(name)).unwrap().ino();
        assert_eq!([inode("to/two"), inode("to/deep/three")], [inode("to/one"); 2]);
        assert_ne!(inode("to/one"), inode("from/one"));
        // A tree is the same whether its names share a file or not.
        for name in ["one", "two", "deep/three", "other"] {
            fs::copy(top.join("from").join(name), top.join("apart").join(name)).unwrap();
        }
        for (name, mode) in [("to", 0o755), ("apart", 0o755), ("to/deep", 0o755), ("apart/deep", 0o755)] {
            fs::set_permissions(top.join(name), std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        }
        let sums = ["to", "apart"].map(|name| sum(&dir(name)).unwrap());
        assert_eq!(sums[0].digest, sums[1].digest);
        assert_eq!(sums.map(|sum| (sum.bytes, sum.files)), [(9, 5), (17, 5)], "its bytes count once");
    }

    #[test]
    fn no_more_is_copied_than_may_be() {
        let place = tempfile::tempdir().unwrap();
        let dir = Dir::open(&place.path().canonicalize().unwrap()).unwrap();
        fs::write(place.path().join("a"), "four").unwrap();
        let copied = |most| copy_within(&dir, OsStr::new("a"), (&dir, OsStr::new("b")), CopyOptions::default(), most);
        assert!(matches!(copied(3), Err(Problem::Words(_))));
        assert!(matches!(copied(4), Ok(4)));
    }
}
