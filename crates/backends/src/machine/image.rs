//! Images: a folder of the host, or a copy of one, as a read-only file system of the machine's.
//!
//! `mke2fs` copies names, modes, owners and links, and nothing of it is interpreted here. The machine shows it with no device and
//! no set-user-id.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use sys::pidfd::End;

use crate::StartError;
use crate::host::mke2fs;

/// How long it may take.
const LIMIT: Duration = Duration::from_secs(600);
/// Largest tree that becomes an image, bytes on a disk.
const MAX_SIZE: u64 = 16 << 30;
/// Most entries of it.
const MAX_ENTRIES: u64 = 2_000_000;
/// Block size.
const BLOCK: u64 = 4096;
/// Bytes of an inode.
const INODE: u64 = 256;

/// An image that could be made.
#[derive(Debug)]
pub(super) struct Planned<'a> {
    folder: &'a Path,
    /// What the machine knows it by.
    label: &'static str,
    bytes: u64,
    entries: u64,
}

impl<'a> Planned<'a> {
    /// Of a folder, which a clause names.
    pub(super) fn of(clause: &'static str, label: &'static str, folder: &'a Path) -> Result<Self, StartError> {
        let (bytes, entries) = size(clause, folder)?;
        Ok(Self { folder, label, bytes, entries })
    }

    /// Makes it in a file that is there and empty.
    pub(super) fn make(&self, file: &Path) -> Result<(), StartError> {
        make(self, file)
    }
}

/// A new, empty file for an image.
pub(super) fn place(file: &Path) -> Result<(), StartError> {
    let made = std::fs::File::options().write(true).create_new(true).open(file);
    made.map(drop).map_err(|error| StartError::system("making the file of an image", error.to_string()))
}

fn make(&Planned { folder, label, bytes, entries }: &Planned<'_>, file: &Path) -> Result<(), StartError> {
    let failed = |why: String| StartError::system("making an image for the machine", why);
    let program = mke2fs().ok_or_else(|| failed("there is no `mke2fs`: install e2fsprogs".to_owned()))?;
    // Blocks of files, one more for what points to those of each, inodes, and room for the tables of groups.
    let inodes = entries.saturating_add(64);
    let total = bytes.saturating_add(inodes.saturating_mul(INODE)).saturating_add(bytes / 32).saturating_add(8 << 20);
    let opened = std::fs::File::options().write(true).open(file);
    opened.and_then(|made| made.set_len(total.next_multiple_of(BLOCK))).map_err(|error| failed(error.to_string()))?;
    let output = sys::command::Command::new(program)
        .args(["-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0", "-I", "256"])
        .args(["-O", "^has_journal,^metadata_csum,^resize_inode"])
        .args(["-E", "lazy_itable_init=1,nodiscard,root_owner=0:0"])
        .args(["-L", label])
        .arg("-N")
        .arg(inodes.to_string())
        .arg("-d")
        .arg(folder)
        .arg(file)
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("LC_ALL", "C")
        .output(&[], 4096, LIMIT)
        .map_err(|error| failed(error.to_string()))?;
    match output.end {
        // The emulator is another user, whatever mask the caller has.
        End::Exited(0) => std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o444))
            .map_err(|error| failed(error.to_string())),
        End::Exited(_) | End::Signalled { .. } if output.timed_out => {
            Err(failed("`mke2fs` took longer than 10 minutes".to_owned()))
        }
        End::Exited(_) | End::Signalled { .. } => {
            Err(failed(format!("mke2fs: {}", String::from_utf8_lossy(&output.stderr).trim())))
        }
    }
}

/// The file of a tree that is its `/etc/machine-id`, by whatever links within the tree lead to it, as its path from the top. `None`
/// where there is none, where a machine does not show it, and where an absolute link leads to it.
pub(super) fn machine_id(folder: &Path) -> Option<String> {
    let top = folder.canonicalize().ok()?;
    let opened = sys::paths::open_folder(&top).ok()?;
    let file = sys::paths::open_place_beneath(&opened, Path::new("etc/machine-id")).ok()?;
    if sys::paths::facts(&file).ok()?.kind != sys::paths::Kind::File {
        return None;
    }
    let path = sys::paths::path_of(&file).ok()?;
    let path = path.strip_prefix(&top).ok()?.to_str()?;
    let first = path.split('/').next()?;
    (!agent::machine::OWN.contains(&first)).then(|| path.to_owned())
}

/// Whether a machine with a network can have a `/etc/resolv.conf` of its own: where the tree's `/etc` is a link, the folder is
/// another one, which is shown as it is.
pub(super) fn own_etc(folder: &Path) -> Result<(), StartError> {
    let path = folder.join("etc");
    match path.symlink_metadata() {
        Ok(meta) if !meta.is_dir() => {
            let why = "it is no folder, and a machine with a network has its own `resolv.conf` there".to_owned();
            Err(StartError::Path { clause: "fs.root", path, why, missing: false })
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Bytes in blocks, each file with one more, and entries of a tree; no other file system is entered.
fn size(clause: &'static str, folder: &Path) -> Result<(u64, u64), StartError> {
    let fault = |path: &Path, error: &std::io::Error| StartError::path(clause, path, error);
    let top = folder.symlink_metadata().map_err(|error| fault(folder, &error))?;
    if !top.is_dir() {
        return Err(StartError::NotADirectory { clause, path: folder.to_owned() });
    }
    let (mut bytes, mut entries) = (0_u64, 0_u64);
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).map_err(|error| fault(&folder, &error))? {
            let entry = entry.map_err(|error| fault(&folder, &error))?;
            let meta = entry.metadata().map_err(|error| fault(&entry.path(), &error))?;
            if meta.dev() != top.dev() {
                let why = "another file system is mounted in it, and an image has one".to_owned();
                return Err(StartError::Path { clause, path: entry.path(), why, missing: false });
            }
            let kind = meta.file_type();
            if kind.is_dir() {
                folders.push(entry.path());
            }
            bytes = bytes.saturating_add(meta.len().next_multiple_of(BLOCK)).saturating_add(BLOCK);
            entries = entries.saturating_add(1);
            if bytes > MAX_SIZE || entries > MAX_ENTRIES {
                let why = "the folder is too large for an image: 16 GiB and two million entries".to_owned();
                return Err(StartError::Path { clause, path: folder, why, missing: false });
            }
        }
    }
    Ok((bytes, entries))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_machine_id_of_a_tree_is_its_own_file_by_whatever_name() {
        let tree = tempfile::tempdir().unwrap();
        let at = |name: &str| tree.path().join(name);
        assert_eq!(machine_id(tree.path()), None, "there is none");
        for folder in ["etc", "var", "run", "usr/etc"] {
            std::fs::create_dir_all(at(folder)).unwrap();
        }
        std::fs::write(at("etc/machine-id"), "0123\n").unwrap();
        assert_eq!(machine_id(tree.path()).as_deref(), Some("etc/machine-id"));
        for (target, found) in [
            ("../var/id", Some("var/id")),
            ("../run/id", None),
            ("../nothing", None),
            ("../var", None),
            ("/etc/hostname", None),
            ("../../../../../../../../etc/hostname", None),
        ] {
            std::fs::remove_file(at("etc/machine-id")).unwrap();
            for name in ["var/id", "run/id"] {
                std::fs::write(at(name), "0123\n").unwrap();
            }
            symlink(target, at("etc/machine-id")).unwrap();
            assert_eq!(machine_id(tree.path()).as_deref(), found, "{target}");
        }
        std::fs::remove_dir_all(at("etc")).unwrap();
        symlink("usr/etc", at("etc")).unwrap();
        std::fs::write(at("usr/etc/machine-id"), "0123\n").unwrap();
        assert_eq!(machine_id(tree.path()).as_deref(), Some("usr/etc/machine-id"), "by a link above it");
    }
}
