//! The copy of a workspace: its image's tree in a file system of bounded size, which belongs to the user.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};

use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use super::init::{Fault, at};
use super::root::{NEW, folder};
use super::{FsSize, Machine, Workspace};

/// The image's device.
pub(super) const DEVICE: &str = "/dev/vdb";
/// Where the image lies while it is copied.
const IMAGE: &str = "/workspace";
/// Folders within each other; the copy on the host has no more.
const MAX_DEPTH: usize = 128;

const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Makes it, if there is one.
pub(super) fn make(machine: &Machine) -> Result<(), Fault> {
    let Some(Workspace { at: place, size, write }) = &machine.workspace else { return Ok(()) };
    let FsSize { bytes, inodes } = size;
    folder(IMAGE, 0o755)?;
    let sealed = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount(DEVICE, IMAGE, "ext4", sealed, c"noload").map_err(at("mounting the workspace's image"))?;
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    flags.set(MountFlags::NOEXEC, machine.noexec);
    let id = machine.id;
    let options = format!("size={bytes},nr_inodes={inodes},mode=0755,uid={id},gid={id}");
    let options = std::ffi::CString::new(options).unwrap_or_default();
    let point = walked(place, true)?;
    rustix::mount::mount("tmpfs", by_descriptor(&point), "tmpfs", flags, options.as_c_str())
        .map_err(at(place.clone()))?;
    let (from, to) = (open(IMAGE)?, walked(place, false)?);
    copy(&from, &to, id, 0).map_err(at(format!("copying the workspace to {place}")))?;
    drop(from);
    rustix::mount::unmount(IMAGE, UnmountFlags::empty()).map_err(at("taking the workspace's image away"))?;
    if *write {
        return Ok(());
    }
    rustix::mount::mount_remount(by_descriptor(&to), flags | MountFlags::RDONLY, c"").map_err(at(place.clone()))
}

fn by_descriptor(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

fn open(path: &str) -> Result<OwnedFd, Fault> {
    rustix::fs::open(path, FOLDER | OFlags::RDONLY, Mode::empty()).map_err(at(path))
}

/// A folder of the new tree, through no link; what is missing is made if asked.
fn walked(path: &str, make: bool) -> Result<OwnedFd, Fault> {
    let mut at_folder = open(NEW)?;
    for part in Path::new(path).components() {
        let name = match part {
            Component::RootDir | Component::CurDir => continue,
            Component::Normal(name) => name,
            Component::ParentDir | Component::Prefix(_) => return Err(at(path)(Errno::INVAL)),
        };
        if make {
            match rustix::fs::mkdirat(&at_folder, name, Mode::from_raw_mode(0o755)) {
                // One that is read-only has what is there, and no more.
                Ok(()) | Err(Errno::EXIST | Errno::ROFS) => {}
                Err(errno) => return Err(at(path)(errno)),
            }
        }
        at_folder = rustix::fs::openat(&at_folder, name, FOLDER | OFlags::RDONLY, Mode::empty()).map_err(at(path))?;
    }
    Ok(at_folder)
}

/// Copies what is in a folder; all of it belongs to the user afterwards, with the modes that it had.
fn copy(from: &OwnedFd, to: &OwnedFd, id: u32, depth: usize) -> Result<(), Errno> {
    if depth > MAX_DEPTH {
        return Err(Errno::NAMETOOLONG);
    }
    for entry in Dir::read_from(from)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        // Of the image itself.
        let own = name == "." || name == ".." || (depth == 0 && name == "lost+found");
        if !own {
            child(from, to, name, id, depth)?;
        }
    }
    Ok(())
}

fn child(from: &OwnedFd, to: &OwnedFd, name: &OsStr, id: u32, depth: usize) -> Result<(), Errno> {
    let stat = rustix::fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let mode = Mode::from_raw_mode(stat.st_mode & 0o777);
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => {
            rustix::fs::mkdirat(to, name, Mode::RWXU)?;
            let inner = rustix::fs::openat(from, name, FOLDER | OFlags::RDONLY, Mode::empty())?;
            let made = rustix::fs::openat(to, name, FOLDER | OFlags::RDONLY, Mode::empty())?;
            copy(&inner, &made, id, depth.saturating_add(1))?;
            owned(&made, id, mode)
        }
        FileType::RegularFile => {
            let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let source = rustix::fs::openat(from, name, flags | OFlags::RDONLY, Mode::empty())?;
            let made = flags | OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
            let made = rustix::fs::openat(to, name, made, Mode::RUSR | Mode::WUSR)?;
            let (mut source, mut made) = (File::from(source), File::from(made));
            let copied = std::io::copy(&mut source, &mut made);
            copied.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
            owned(&OwnedFd::from(made), id, mode)
        }
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(from, name, Vec::new())?;
            rustix::fs::symlinkat(&target, to, name)?;
            let (user, group) = (Some(Uid::from_raw(id)), Some(Gid::from_raw(id)));
            rustix::fs::chownat(to, name, user, group, AtFlags::SYMLINK_NOFOLLOW)
        }
        // The copy on the host has none of them.
        FileType::Fifo | FileType::Socket | FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => {
            Ok(())
        }
    }
}

fn owned(made: &OwnedFd, id: u32, mode: Mode) -> Result<(), Errno> {
    rustix::fs::fchown(made, Some(Uid::from_raw(id)), Some(Gid::from_raw(id)))?;
    rustix::fs::fchmod(made, mode)
}
