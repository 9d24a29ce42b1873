//! An image of this host's programs: what everybody on it may read, of the folders that hold no user's data.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use sandbox::state::{Cross, Dir, errno_of};

use crate::error::ImageError;
use crate::made::{files, folders};
use crate::store::{Listed, Store};
use crate::tree::times;
use crate::unpack::{MAX_ENTRIES, MAX_UNPACKED, MERGED, UnpackNotes};

/// Below these nobody keeps their own; all else of a host is not to be had.
const ROOTS: [&str; 2] = ["/usr", "/opt"];

/// What is taken of the host.
#[derive(Clone, Debug, Default)]
pub struct FromHost {
    /// Below `/usr` and `/opt`; all of `/usr` if there is none.
    pub paths: Vec<PathBuf>,
    /// Names in `/etc`.
    pub etc: Vec<String>,
    /// The most bytes; [`MAX_UNPACKED`] unless said.
    pub limit: Option<u64>,
}

impl Store {
    /// Makes an image of the host's programs. What not everybody may read is left out and counted, and so is what lies on
    /// another mount, sockets, pipes and devices.
    ///
    /// # Errors
    /// [`ImageError::NotAnImage`] for a path outside of `/usr` and `/opt`; [`ImageError::TooLarge`].
    pub fn from_host(&self, name: &str, wanted: &FromHost) -> Result<Listed, ImageError> {
        let all = [PathBuf::from("/usr")];
        let paths = if wanted.paths.is_empty() { &all[..] } else { &wanted.paths };
        if let Some(path) = paths.iter().find(|path| !is_offered(path)) {
            let why = "only what lies below `/usr` and `/opt` is taken, by a path without `..`".to_owned();
            return Err(ImageError::NotAnImage { path: path.clone(), why });
        }
        self.make(name, |stage| {
            let limit = wanted.limit.unwrap_or(MAX_UNPACKED);
            let mut copy = Copy { limit, left: limit, ..Copy::new(&stage.root) };
            let failed = |path: &Path, errno| ImageError::Io { path: path.to_owned(), errno };
            folders(&stage.root).map_err(|errno| failed(&stage.path, errno))?;
            for path in paths {
                copy.path(path)?;
            }
            for name in MERGED {
                copy.top(name)?;
            }
            for name in &wanted.etc {
                copy.path(&Path::new("/etc").join(name))?;
            }
            files(&stage.root).map_err(|errno| failed(&stage.path, errno))?;
            Ok(copy.told)
        })
    }
}

fn is_offered(path: &Path) -> bool {
    let plain = path.components().all(|part| !matches!(part, std::path::Component::ParentDir));
    plain && ROOTS.iter().any(|root| path.starts_with(root))
}

struct Copy<'a> {
    root: &'a Dir,
    limit: u64,
    left: u64,
    entries: u64,
    told: UnpackNotes,
    /// First place of each file that has several names.
    names: BTreeMap<(u64, u64), PathBuf>,
}

/// An entry of the host.
struct Entry<'a> {
    from: &'a Dir,
    to: &'a Dir,
    name: &'a OsStr,
    /// Below the root, of host and tree alike.
    path: PathBuf,
    /// What was asked for may be a mount; what lies below is not followed into others.
    cross: Cross,
}

impl<'a> Copy<'a> {
    fn new(root: &'a Dir) -> Self {
        Self { root, limit: 0, left: 0, entries: 0, told: UnpackNotes::default(), names: BTreeMap::new() }
    }

    /// One path of the host with all below; the folders above it are made.
    fn path(&mut self, path: &Path) -> Result<(), ImageError> {
        let failed = |errno| ImageError::Io { path: path.to_owned(), errno };
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Err(failed(Errno::INVAL)) };
        let mut from = Dir::open(Path::new("/")).map_err(failed)?;
        let mut to = self.root.enter(".", Cross::No).map_err(failed)?;
        for part in above.components().skip(1) {
            from = from.enter(Path::new(&part), Cross::Yes).map_err(failed)?;
            if rustix::fs::fstat(&from).map_err(failed)?.st_mode & 0o001 == 0 {
                return Err(failed(Errno::ACCESS));
            }
            if to.make(part, Mode::RWXU).map_err(failed)? {
                let own = to.enter(Path::new(&part), Cross::No).map_err(failed)?;
                rustix::fs::fchmod(&own, Mode::from_raw_mode(0o755)).map_err(failed)?;
            }
            to = to.enter(Path::new(&part), Cross::No).map_err(failed)?;
        }
        if from.kind(name).map_err(failed)?.is_none() {
            return Err(failed(Errno::NOENT));
        }
        let below = path.strip_prefix("/").unwrap_or(path).to_owned();
        self.entry(&Entry { from: &from, to: &to, name, path: below, cross: Cross::Yes })
    }

    /// A link at the top is only text; where it is a folder, its programs are taken.
    fn top(&mut self, name: &str) -> Result<(), ImageError> {
        let path = Path::new("/").join(name);
        let failed = |errno| ImageError::Io { path: path.clone(), errno };
        let there = Dir::open(Path::new("/")).and_then(|top| top.kind(name)).map_err(failed)?;
        if there.is_some() { self.path(&path) } else { Ok(()) }
    }

    fn entry(&mut self, entry: &Entry<'_>) -> Result<(), ImageError> {
        self.entries = self.entries.saturating_add(1);
        if self.entries > MAX_ENTRIES {
            let why = format!("it has more than {MAX_ENTRIES} entries");
            return Err(ImageError::NotAnImage { path: entry.path.clone(), why });
        }
        match self.copied(entry) {
            Ok(()) => Ok(()),
            Err(Problem::Inside(error)) => Err(error),
            // Mounts, and what goes while it is read.
            Err(Problem::Call(Errno::XDEV | Errno::ACCESS | Errno::NOENT | Errno::LOOP)) => {
                self.told.left_out = self.told.left_out.saturating_add(1);
                Ok(())
            }
            Err(Problem::Call(errno)) => Err(ImageError::Io { path: Path::new("/").join(&entry.path), errno }),
        }
    }

    fn copied(&mut self, entry: &Entry<'_>) -> Result<(), Problem> {
        let stat = entry.from.stat(entry.name)?.ok_or(Errno::NOENT)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::Symlink {
            self.tell(&stat);
            let target = rustix::fs::readlinkat(entry.from, entry.name, Vec::new())?;
            rustix::fs::symlinkat(&target, entry.to, entry.name)?;
            let time = times(stat.st_mtime);
            return Ok(rustix::fs::utimensat(entry.to, entry.name, &time, AtFlags::SYMLINK_NOFOLLOW)?);
        }
        let (taken, needed) = match kind {
            FileType::Directory => (true, 0o005),
            FileType::RegularFile => (true, 0o004),
            FileType::Symlink
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => (false, 0),
        };
        // No layer holds a file of such a name: it would take another away.
        let hides = entry.name.as_bytes().starts_with(b".wh.");
        if !taken || hides || stat.st_mode & needed != needed {
            self.told.left_out = self.told.left_out.saturating_add(1);
            return Ok(());
        }
        self.tell(&stat);
        if kind == FileType::Directory { self.folder(entry, &stat) } else { self.file(entry, &stat) }
    }

    fn tell(&mut self, stat: &Stat) {
        let add = |number: &mut u64, yes: bool| *number = number.saturating_add(u64::from(yes));
        add(&mut self.told.owners, stat.st_uid != 0 || stat.st_gid != 0);
        add(&mut self.told.set_id, stat.st_mode & 0o7000 != 0);
    }

    fn folder(&mut self, entry: &Entry<'_>, stat: &Stat) -> Result<(), Problem> {
        let from = entry.from.enter(Path::new(entry.name), entry.cross)?;
        // A path and one above it may both be asked for.
        entry.to.make(entry.name, Mode::RWXU)?;
        let to = entry.to.enter(Path::new(entry.name), Cross::No)?;
        for name in from.names()? {
            if to.kind(&name)?.is_some_and(|kind| kind != FileType::Directory) {
                continue;
            }
            let path = entry.path.join(&name);
            self.entry(&Entry { from: &from, to: &to, name: &name, path, cross: Cross::No })
                .map_err(Problem::Inside)?;
        }
        rustix::fs::fchmod(&to, Mode::from_raw_mode(stat.st_mode & 0o777 | 0o700))?;
        Ok(rustix::fs::futimens(&to, &times(stat.st_mtime))?)
    }

    fn file(&mut self, entry: &Entry<'_>, stat: &Stat) -> Result<(), Problem> {
        let id = (stat.st_dev, stat.st_ino);
        if let Some(first) = self.names.get(&id) {
            return Ok(rustix::fs::linkat(self.root, first, entry.to, entry.name, AtFlags::empty())?);
        }
        let mut from = entry.from.open_file(entry.name, OFlags::RDONLY, Mode::empty())?;
        let attributes = rustix::fs::flistxattr(&from, &mut [0; 0][..]).unwrap_or(0);
        self.told.attributes = self.told.attributes.saturating_add(u64::from(attributes > 0));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let to = entry.to.open_file(entry.name, flags, Mode::from_raw_mode(0o600))?;
        self.fill(&mut from, &to)?;
        rustix::fs::fchmod(&to, Mode::from_raw_mode(stat.st_mode & 0o777 | 0o400))?;
        rustix::fs::futimens(&to, &times(stat.st_mtime))?;
        if stat.st_nlink > 1 {
            self.names.insert(id, entry.path.clone());
        }
        Ok(())
    }

    fn fill(&mut self, from: &mut File, mut to: &File) -> Result<(), Problem> {
        let most = self.left.saturating_add(1);
        let copied = io::copy(&mut from.take(most), &mut to).map_err(|error| errno_of(&error))?;
        let left = self.left.checked_sub(copied);
        self.left = left.ok_or(Problem::Inside(ImageError::TooLarge { limit: self.limit }))?;
        Ok(())
    }
}

/// Why an entry is not copied.
enum Problem {
    Call(Errno),
    /// Something further down.
    Inside(ImageError),
}

impl From<Errno> for Problem {
    fn from(errno: Errno) -> Self {
        Self::Call(errno)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use super::*;

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// A host's folder, and what is copied of it.
    fn copied(limit: u64, make: impl FnOnce(&Path)) -> (tempfile::TempDir, Result<UnpackNotes, ImageError>, PathBuf) {
        let place = tempfile::tempdir().unwrap();
        let real = place.path().canonicalize().unwrap();
        mode(&real, 0o755);
        let (host, tree) = (real.join("host"), real.join("tree"));
        for folder in [&host, &tree] {
            fs::create_dir(folder).unwrap();
            mode(folder, 0o755);
        }
        make(&host);
        let root = Dir::open(&tree).unwrap();
        let mut copy = Copy { limit, left: limit, ..Copy::new(&root) };
        let done = copy.path(&host).map(|()| copy.told);
        let of_host = tree.join(host.strip_prefix("/").unwrap());
        (place, done, of_host)
    }

    #[test]
    fn programs_links_and_modes_are_taken_and_secrets_are_not() {
        let (_place, done, tree) = copied(1 << 20, |host| {
            for (name, bits) in [("tool", 0o755), ("suid", 0o4755), ("secret", 0o600), ("group", 0o640)] {
                fs::write(host.join(name), name).unwrap();
                mode(&host.join(name), bits);
            }
            fs::hard_link(host.join("tool"), host.join("again")).unwrap();
            symlink("../elsewhere", host.join("link")).unwrap();
            fs::create_dir_all(host.join("private/below")).unwrap();
            fs::write(host.join("private/below/open"), "x").unwrap();
            mode(&host.join("private"), 0o750);
            fs::write(host.join(".wh.tool"), "x").unwrap();
            rustix::fs::mkfifoat(rustix::fs::CWD, host.join("pipe"), Mode::from_raw_mode(0o666)).unwrap();
        });
        let told = done.unwrap();
        assert_eq!((told.left_out, told.set_id), (5, 1), "secret, group, private, .wh.tool, pipe");
        let mut names: Vec<_> =
            fs::read_dir(&tree).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names, ["again", "link", "suid", "tool"]);
        let meta = |name: &str| fs::symlink_metadata(tree.join(name)).unwrap();
        assert_eq!(meta("tool").ino(), meta("again").ino());
        assert_eq!((meta("tool").mode() & 0o7777, meta("suid").mode() & 0o7777), (0o755, 0o755));
        assert_eq!(fs::read_link(tree.join("link")).unwrap(), Path::new("../elsewhere"));
        assert_eq!(fs::read_to_string(tree.join("suid")).unwrap(), "suid");
    }

    #[test]
    fn more_than_the_limit_is_refused_and_so_is_what_is_not_offered() {
        let big = |host: &Path| {
            fs::write(host.join("big"), vec![1; 2000]).unwrap();
            mode(&host.join("big"), 0o644);
        };
        assert!(matches!(copied(1999, big).1, Err(ImageError::TooLarge { limit: 1999 })));
        assert!(copied(2000, big).1.is_ok());
        for path in ["/etc/passwd", "/home/me", "/root", "/usr/../root", "usr", "/", "/optional"] {
            assert!(!is_offered(Path::new(path)), "{path}");
        }
        assert!(["/usr", "/usr/bin/env", "/opt/tools"].iter().all(|path| is_offered(Path::new(path))));
    }
}
