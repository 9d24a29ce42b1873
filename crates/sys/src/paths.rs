//! Paths resolved once, into descriptors, without following what somebody else put there.
//!
//! *Promises*: no symbolic link is followed on the whole way, nor a link of `/proc`; what was judged by [`identity`] is
//! the object behind the descriptor, whatever the name leads to later. Opening never blocks on a pipe or a terminal.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;

use crate::error::{Error, ErrorContext as _, Result};

/// How often a look-up that was disturbed is tried.
const RACES: u32 = 64;

/// Which object a name led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    /// Device, (major, minor).
    pub device: (u32, u32),
    /// Inode number on it.
    pub inode: u64,
}

/// What an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link itself.
    Link,
    /// A unix socket.
    Socket,
    /// A named pipe.
    Pipe,
    /// A device.
    Device,
}

/// An object's facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStat {
    /// Which one.
    pub identity: Identity,
    /// What it is.
    pub kind: Kind,
    /// Permission bits with set-user-id, set-group-id and sticky.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// How many names it has.
    pub links: u32,
    /// Which mount it was reached through; `None` before Linux 5.8.
    pub mount: Option<u64>,
}

/// How much a file system holds, and how much more it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsStats {
    /// Bytes, in all.
    pub bytes: u64,
    /// Bytes that are free.
    pub free_bytes: u64,
    /// Files and folders, in all; 0 where the file system does not count them.
    pub files: u64,
    /// Files and folders that can still be made.
    pub free_files: u64,
}

/// The room of the file system that `place` lies in; a place that was opened by `O_PATH` will do.
///
/// # Errors
/// That of fstatvfs(3).
pub fn fs_stats(place: impl AsFd) -> Result<FsStats> {
    let fs = rustix::fs::fstatvfs(&place).named("fstatvfs", || "a place".to_owned())?;
    Ok(FsStats {
        bytes: fs.f_blocks.saturating_mul(fs.f_frsize),
        free_bytes: fs.f_bfree.saturating_mul(fs.f_frsize),
        files: fs.f_files,
        free_files: fs.f_ffree,
    })
}

/// Opens `path` as a place (`O_PATH`), absolute or from the working directory. No link is followed on the way.
///
/// # Errors
/// ELOOP: there is a link on the way. ENOENT, EACCES.
pub fn open_place(path: &Path) -> Result<OwnedFd> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    open(rustix::fs::CWD, path, OFlags::PATH, resolve)
}

/// Opens what is at `path` as a place, a link itself where it is one. No link is followed on the way there.
///
/// # Errors
/// ELOOP: there is a link on the way. ENOENT, EACCES.
pub fn open_entry(path: &Path) -> Result<OwnedFd> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    open(rustix::fs::CWD, path, OFlags::PATH | OFlags::NOFOLLOW, resolve)
}

/// Opens `path` as a place below `folder`: neither `..` nor a link leads out, since no link is followed at all.
///
/// # Errors
/// EXDEV: it leads out. ELOOP: there is a link on the way. ENOENT, EACCES.
pub fn open_place_below(folder: impl AsFd, path: &Path) -> Result<OwnedFd> {
    open(folder, path, OFlags::PATH, ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS)
}

/// Opens `path` as a place below `folder`, following links as long as they stay below it; none of `/proc` is.
///
/// # Errors
/// EXDEV: it leads out, by `..` or by a link. ELOOP: too many links, or one of `/proc`. EAGAIN: something was renamed
/// meanwhile. ENOENT, ENOTDIR, EACCES.
pub fn open_place_beneath(folder: impl AsFd, path: &Path) -> Result<OwnedFd> {
    open(folder, path, OFlags::PATH, ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS)
}

/// Whether a tree that is to be another root has something at `path`, which may itself be a link: the links before it are
/// followed as a program inside would, and none leads out of the tree.
#[must_use]
pub fn is_within(tree: &Path, path: &Path) -> bool {
    open_within(tree, path, OFlags::PATH | OFlags::NOFOLLOW).is_ok()
}

/// Opens `path` as a place of a tree that is to be another root: links are followed as a program inside would, the last one too, and
/// none leads out of the tree.
///
/// # Errors
/// ELOOP: too many links, or one of `/proc`. ENOENT, ENOTDIR, EACCES.
pub fn open_place_within(tree: &Path, path: &Path) -> Result<OwnedFd> {
    open_within(tree, path, OFlags::PATH)
}

fn open_within(tree: &Path, path: &Path, flags: OFlags) -> Result<OwnedFd> {
    let root = open(rustix::fs::CWD, tree, OFlags::PATH | OFlags::DIRECTORY, ResolveFlags::empty())?;
    let mut found = open(&root, path, flags, ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS);
    for _ in 1..RACES {
        // EAGAIN: something was renamed meanwhile, and the kernel could not say that `..` stays within.
        if found.as_ref().err().is_none_or(|error| error.errno != Errno::AGAIN) {
            break;
        }
        found = open(&root, path, flags, ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS);
    }
    found
}

/// The path that the kernel has for what a descriptor refers to, as this process sees it (`/proc/self/fd`).
///
/// # Errors
/// ENOENT: it was removed meanwhile, or lies outside of this process's root. As readlink(2).
pub fn path_of(fd: impl AsFd) -> Result<PathBuf> {
    let link = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    let target = rustix::fs::readlink(link.as_str(), Vec::new()).named("readlink", || link.clone())?.into_bytes();
    let (gone, path) = (target.ends_with(b" (deleted)"), PathBuf::from(OsStr::from_bytes(&target)));
    // A file may be called `x (deleted)`: it is gone only if that name does not lead to it.
    let there =
        || open_place(&path).and_then(identity).is_ok_and(|there| identity(&fd).is_ok_and(|here| here == there));
    if !path.is_absolute() || (gone && !there()) {
        return Err(Error::new("readlink", link, Errno::NOENT));
    }
    Ok(path)
}

/// Opens the folder at `path` for listing and for work below it. No link is followed on the way.
///
/// # Errors
/// ENOTDIR, ELOOP, ENOENT, EACCES.
pub fn open_folder(path: &Path) -> Result<OwnedFd> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    open(rustix::fs::CWD, path, OFlags::RDONLY | OFlags::DIRECTORY, resolve)
}

fn open(folder: impl AsFd, path: &Path, flags: OFlags, resolve: ResolveFlags) -> Result<OwnedFd> {
    rustix::fs::openat2(folder, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
        .named("openat2", || path.display().to_string())
}

/// The facts of what a descriptor refers to.
///
/// # Errors
/// EBADMSG: it is nothing that has a kind. Else as statx(2).
pub fn facts(fd: impl AsFd) -> Result<FileStat> {
    let object = || "descriptor".to_owned();
    // STATX_MNT_ID came with 5.8; older kernels leave its bit out of the answer.
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
    let stat =
        rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT, wanted).named("statx", object)?;
    let kind = match FileType::from_raw_mode(u32::from(stat.stx_mode)) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Folder,
        FileType::Symlink => Kind::Link,
        FileType::Socket => Kind::Socket,
        FileType::Fifo => Kind::Pipe,
        FileType::CharacterDevice | FileType::BlockDevice => Kind::Device,
        FileType::Unknown => return Err(Error::new("statx", object(), Errno::BADMSG)),
    };
    let mount = (stat.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(stat.stx_mnt_id);
    Ok(FileStat {
        identity: Identity { device: (stat.stx_dev_major, stat.stx_dev_minor), inode: stat.stx_ino },
        kind,
        mode: u32::from(stat.stx_mode) & 0o7777,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        size: stat.stx_size,
        links: stat.stx_nlink,
        mount,
    })
}

/// Major and minor number of the character device that a descriptor refers to; `None` for anything else.
///
/// # Errors
/// As statx(2).
pub fn character_device(fd: impl AsFd) -> Result<Option<(u32, u32)>> {
    let stat = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT, StatxFlags::TYPE)
        .named("statx", || "descriptor".to_owned())?;
    let device = FileType::from_raw_mode(u32::from(stat.stx_mode)) == FileType::CharacterDevice;
    Ok(device.then_some((stat.stx_rdev_major, stat.stx_rdev_minor)))
}

/// Which object a descriptor refers to.
///
/// # Errors
/// As [`facts`].
pub fn identity(fd: impl AsFd) -> Result<Identity> {
    facts(fd).map(|facts| facts.identity)
}

/// All bytes of the regular file at `path`; the last part may not be a link, and nothing that is no regular file is
/// read.
///
/// # Errors
/// EFBIG: more than `most` bytes. EISDIR, ELOOP, ENXIO; EINVAL: not a regular file. Else as open(2).
pub fn read_file(path: &Path, most: usize) -> Result<Vec<u8>> {
    let name = path.as_os_str();
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::empty()).named("open", || shown(name))?;
    read_regular(&fd, name, most)
}

/// As [`read_file`], below `folder`, without following any link.
///
/// # Errors
/// As [`read_file`]; EXDEV: it leads out.
pub fn read_file_below(folder: impl AsFd, path: &Path, most: usize) -> Result<Vec<u8>> {
    let name = path.as_os_str();
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fd =
        open(folder, path, flags, ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS)?;
    read_regular(&fd, name, most)
}

/// As [`read_file`], of what was opened as a place.
///
/// # Errors
/// As [`read_file`].
pub fn read_place(place: impl AsFd, most: usize) -> Result<Vec<u8>> {
    let link = format!("/proc/self/fd/{}", place.as_fd().as_raw_fd());
    // What its kind is was asked of the place itself: nothing else is opened, which could wait or do something.
    if facts(&place)?.kind != Kind::File {
        return Err(Error::new("read", link, Errno::INVAL));
    }
    let fd = rustix::fs::open(link.as_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    read_regular(&fd.named("open", || link.clone())?, OsStr::new(&link), most)
}

/// Whether the caller, with its effective ids and all its groups, may read what is at `path`, or else pass through it.
#[must_use]
pub fn may(path: &Path, read: bool) -> bool {
    let right = if read { Access::READ_OK } else { Access::EXEC_OK };
    rustix::fs::accessat(rustix::fs::CWD, path, right, AtFlags::EACCESS).is_ok()
}

/// Whether the rights to `path` are more than its mode says: it has an access control list, see acl(5).
#[must_use]
pub fn has_access_list(path: &Path) -> bool {
    let mut nothing: [u8; 0] = [];
    // Of size 0: only whether it is there, and how long it is.
    let found = rustix::fs::getxattr(path, c"system.posix_acl_access", &mut nothing);
    !matches!(found, Err(Errno::NODATA | Errno::NOTSUP))
}

fn read_regular(fd: &OwnedFd, name: &OsStr, most: usize) -> Result<Vec<u8>> {
    match facts(fd)?.kind {
        Kind::File => read_all(fd, most).named("read", || shown(name)),
        Kind::Folder => Err(Error::new("read", shown(name), Errno::ISDIR)),
        Kind::Link | Kind::Socket | Kind::Pipe | Kind::Device => Err(Error::new("read", shown(name), Errno::INVAL)),
    }
}

/// Reads to the end, or fails with EFBIG above `most` bytes.
pub(crate) fn read_all(fd: impl AsFd, most: usize) -> rustix::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    loop {
        match rustix::io::read(&fd, &mut part) {
            Ok(0) => return Ok(bytes),
            Ok(length) => {
                bytes.extend_from_slice(part.get(..length).unwrap_or_default());
                if bytes.len() > most {
                    return Err(Errno::FBIG);
                }
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

fn shown(name: &OsStr) -> String {
    String::from_utf8_lossy(name.as_bytes()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_anywhere_on_the_way_is_refused_and_the_plain_way_works() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().join("real");
        std::fs::create_dir(&real).unwrap();
        std::fs::write(real.join("file"), "x").unwrap();
        std::os::unix::fs::symlink(&real, folder.path().join("link")).unwrap();
        std::os::unix::fs::symlink("file", real.join("last")).unwrap();
        let place = |path: &str| open_place(&folder.path().join(path)).map_err(|error| error.errno);
        assert!(place("real/file").is_ok());
        assert_eq!(place("link/file").unwrap_err(), Errno::LOOP);
        assert_eq!(place("real/last").unwrap_err(), Errno::LOOP);
        assert_eq!(open_place(Path::new("/proc/self/root")).unwrap_err().errno, Errno::LOOP);
        let base = open_folder(&real).unwrap();
        assert!(open_place_below(&base, Path::new("file")).is_ok());
        assert_eq!(open_place_below(&base, Path::new("../real/file")).unwrap_err().errno, Errno::XDEV);
        assert_eq!(open_place_below(&base, Path::new("/etc/passwd")).unwrap_err().errno, Errno::XDEV);
    }

    #[test]
    fn a_trees_links_lead_within_it_and_never_to_the_hosts_own() {
        let folder = tempfile::tempdir().unwrap();
        let (tree, outside) = (folder.path().join("tree"), folder.path().join("outside"));
        std::fs::create_dir_all(tree.join("real/sub")).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("file"), "x").unwrap();
        for (target, link) in
            [(outside.as_path(), "out"), (Path::new("/real"), "own"), (Path::new("../../../real"), "up")]
        {
            std::os::unix::fs::symlink(target, tree.join(link)).unwrap();
        }
        assert!(tree.join("out/file").exists(), "the host's own look-up is led out");
        for there in ["/real/sub", "real/sub", "/own/sub", "/up/sub", "/out"] {
            assert!(is_within(&tree, Path::new(there)), "{there}");
        }
        for none in ["/out/file", "/none", "/../outside/file"] {
            assert!(!is_within(&tree, Path::new(none)), "{none}");
        }
    }

    #[test]
    fn links_are_followed_beneath_a_folder_and_never_out_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let real = std::fs::canonicalize(folder.path()).unwrap();
        std::fs::create_dir_all(real.join("root/sub")).unwrap();
        std::fs::write(real.join("root/sub/file"), "x").unwrap();
        std::fs::write(real.join("outside"), "x").unwrap();
        std::os::unix::fs::symlink("sub/file", real.join("root/inner")).unwrap();
        std::os::unix::fs::symlink("../outside", real.join("root/outer")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", real.join("root/absolute")).unwrap();
        std::os::unix::fs::symlink("/proc/self/root", real.join("root/magic")).unwrap();
        let root = open_folder(&real.join("root")).unwrap();
        let place = |path: &str| open_place_beneath(&root, Path::new(path));
        assert_eq!(path_of(place("inner").unwrap()).unwrap(), real.join("root/sub/file"));
        assert_eq!(path_of(place("sub/../sub/file").unwrap()).unwrap(), real.join("root/sub/file"));
        for path in ["outer", "absolute", "magic", "../outside", "/etc/passwd", "sub/../../outside"] {
            assert_eq!(place(path).unwrap_err().errno, Errno::XDEV, "{path}");
        }
        let gone = place("sub/file").unwrap();
        std::fs::rename(real.join("root/sub/file"), real.join("root/moved (deleted)")).unwrap();
        assert_eq!(path_of(&gone).unwrap(), real.join("root/moved (deleted)"));
        std::fs::remove_file(real.join("root/moved (deleted)")).unwrap();
        assert_eq!(path_of(&gone).unwrap_err().errno, Errno::NOENT);
    }

    #[test]
    fn an_identity_follows_the_object_and_not_the_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "one").unwrap();
        let before = open_place(&path).unwrap();
        let judged = identity(&before).unwrap();
        std::fs::write(folder.path().join("b"), "two").unwrap();
        std::fs::rename(folder.path().join("b"), &path).unwrap();
        assert_eq!(identity(&before).unwrap(), judged);
        assert_ne!(identity(open_place(&path).unwrap()).unwrap(), judged);
    }

    #[test]
    fn only_regular_files_of_bounded_size_are_read_and_a_pipe_does_not_block() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("file"), "12345").unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, path("pipe"), FileType::Fifo, Mode::from_bits_retain(0o600), 0).unwrap();
        std::os::unix::fs::symlink("file", path("link")).unwrap();
        assert_eq!(read_file(&path("file"), 5).unwrap(), b"12345");
        let errno = |name: &str, most| read_file(&path(name), most).unwrap_err().errno;
        assert_eq!((errno("file", 4), errno("pipe", 5), errno("link", 5)), (Errno::FBIG, Errno::INVAL, Errno::LOOP));
        assert_eq!(read_file(folder.path(), 5).unwrap_err().errno, Errno::ISDIR);
        assert_eq!(read_file(Path::new("/dev/zero"), 5).unwrap_err().errno, Errno::INVAL);
        let base = open_folder(folder.path()).unwrap();
        assert_eq!(read_file_below(&base, Path::new("file"), 5).unwrap(), b"12345");
        assert_eq!(read_file_below(&base, Path::new("link"), 5).unwrap_err().errno, Errno::LOOP);
    }
}
