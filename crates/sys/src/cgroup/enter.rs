//! A group that somebody else names: entered by this process, so that what limits it limits all that is made below.

use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::CgroupError;
use super::detect::{below, read};
use crate::error::{Error, ErrorContext as _};
use crate::proc::{Mount, Process};

/// Puts this process into the group at `path` (absolute, below the root of each hierarchy) of every hierarchy that is mounted;
/// what is missing is made.
///
/// # Errors
/// A hierarchy does not show the path, or a folder or file cannot be made or written.
pub fn enter(path: &str) -> Result<(), CgroupError> {
    for mount in mounts()? {
        let folder = made(&mount, path)?;
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let object = || folder.join("cgroup.procs").display().to_string();
        let procs = rustix::fs::open(folder.join("cgroup.procs"), flags, Mode::empty()).named("open", object)?;
        rustix::io::write(&procs, b"0").named("write", object)?;
    }
    Ok(())
}

/// Removes the group at `path` from every hierarchy, where it is.
///
/// # Errors
/// EBUSY: processes or groups are left in it.
pub fn remove(path: &str) -> Result<(), CgroupError> {
    for mount in mounts()? {
        let folder = below(&mount, path)?;
        match rustix::fs::rmdir(folder.join(OURS)) {
            // One that is left keeps the folder busy.
            Ok(()) | Err(_) => {}
        }
        match rustix::fs::rmdir(&folder) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(Error::new("rmdir", folder.display().to_string(), errno).into()),
        }
    }
    Ok(())
}

/// The folder of all groups of runs.
const OURS: &str = "fumehood";

/// One mount of each hierarchy.
fn mounts() -> Result<Vec<Mount>, CgroupError> {
    let mut all: Vec<Mount> = Vec::new();
    for mount in Process::own()?.mounts_of(|kind| matches!(kind, "cgroup" | "cgroup2"))? {
        if !all.iter().any(|known| known.device == mount.device) {
            all.push(mount);
        }
    }
    Ok(all)
}

/// The folder, made part by part: a group of v1 has no processors until it is given some.
fn made(mount: &Mount, path: &str) -> Result<PathBuf, CgroupError> {
    let whole = below(mount, path)?;
    let top = PathBuf::from(&mount.point);
    let mut parts: Vec<&Path> = whole.ancestors().take_while(|part| part.starts_with(&top) && *part != top).collect();
    parts.reverse();
    for part in parts {
        if mount.kind == "cgroup2" {
            hand_down(part.parent().unwrap_or(&top));
        }
        let object = || part.display().to_string();
        match rustix::fs::mkdir(part, Mode::from_bits_retain(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(Error::new("mkdir", object(), errno).into()),
        }
        if mount.super_has("cpuset") && mount.kind == "cgroup" {
            processors(part)?;
        }
    }
    Ok(whole)
}

/// Lets groups below have what this one has. What it cannot hand down is missing below, and a limit by it is refused there.
fn hand_down(above: &Path) {
    let controllers = std::fs::read_to_string(above.join("cgroup.controllers")).unwrap_or_default();
    for controller in controllers.split_ascii_whitespace() {
        drop(std::fs::write(above.join("cgroup.subtree_control"), format!("+{controller}")));
    }
}

/// Those of the group above.
fn processors(part: &Path) -> Result<(), CgroupError> {
    let folder = |path: &Path| {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        rustix::fs::open(path, flags, Mode::empty()).named("open", || path.display().to_string())
    };
    let (own, above) = (folder(part)?, folder(part.parent().unwrap_or(Path::new("/")))?);
    for file in ["cpuset.cpus", "cpuset.mems"] {
        if read(&own, file)?.is_empty() {
            let value = read(&above, file)?;
            let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let target = rustix::fs::openat(&own, file, flags, Mode::empty()).named("openat", || file.to_owned())?;
            rustix::io::write(&target, value.as_bytes()).named("write", || file.to_owned())?;
        }
    }
    Ok(())
}
