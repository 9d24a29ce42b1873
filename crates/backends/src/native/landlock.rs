//! Landlock rules of a plan: the second layer of the container tier, the first of the process tier.
//!
//! Grants stand close to where the work is: the kernel walks from a file upwards until the rights are found.

use std::ops::BitOr;
use std::path::{Path, PathBuf};

use guest::config::{Identity, OwnedRule};

use super::source::text;

/// Kinds of access, from which the rights of the running ABI are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access(u8);

impl Access {
    pub(crate) const NONE: Self = Self(0);
    /// Read files and list directories.
    pub(crate) const READ: Self = Self(1);
    /// Write, truncate, make, remove, link.
    pub(crate) const WRITE: Self = Self(2);
    /// Execute files.
    pub(crate) const EXECUTE: Self = Self(4);
    /// Write to what exists; make nothing.
    pub(crate) const WRITE_FILE: Self = Self(8);
    /// Device ioctls.
    pub(crate) const IOCTL: Self = Self(16);
    /// List directories only.
    pub(crate) const LIST: Self = Self(32);

    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl BitOr for Access {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// One rule.
#[derive(Clone, Debug)]
struct Row {
    path: PathBuf,
    access: Access,
    dir: bool,
    is: Option<Identity>,
}

/// Rules by path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules(Vec<Row>);

impl Rules {
    /// A path inside the tree that the guest builds. A rule without rights is an error of the kernel's, so it is none.
    pub(crate) fn add(&mut self, path: &Path, access: Access, dir: bool) {
        if access != Access::NONE {
            self.0.push(Row { path: path.to_owned(), access, dir, is: None });
        }
    }

    /// Whether a path has rights already: they add up along it.
    pub(crate) fn gives(&self, path: &Path, access: Access) -> bool {
        self.0.iter().any(|row| row.access.has(access) && path.starts_with(&row.path))
    }

    /// A path of the host, which must still be the same file when the guest opens it.
    pub(crate) fn add_host(&mut self, resolved: &super::source::Resolved, access: Access) {
        let path = &resolved.path;
        if access == Access::NONE {
            return;
        }
        if let Some(same) = self.0.iter_mut().find(|row| row.path == *path) {
            same.access = same.access | access;
            return;
        }
        self.0.push(Row { path: path.clone(), access, dir: resolved.dir, is: Some(resolved.identity()) });
    }

    /// The guest's rules for a Landlock ABI.
    pub(crate) fn for_abi(&self, abi: u32) -> Vec<OwnedRule> {
        self.0
            .iter()
            .map(|row| OwnedRule { path: text(&row.path), access: rights(row.access, abi, row.dir), is: row.is })
            .collect()
    }
}

/// The kernel's rights for a kind of access; of a file only those that files have (else EINVAL).
pub(crate) fn rights(access: Access, abi: u32, dir: bool) -> u64 {
    use sys::landlock::fs;
    let mut rights = 0;
    if access.has(Access::READ) {
        rights |= fs::READ_FILE | fs::READ_DIR;
    }
    if access.has(Access::LIST) {
        rights |= fs::READ_DIR;
    }
    if access.has(Access::EXECUTE) {
        rights |= fs::EXECUTE;
    }
    if access.has(Access::WRITE_FILE) {
        rights |= fs::WRITE_FILE | fs::TRUNCATE;
    }
    if access.has(Access::WRITE) {
        rights |= fs::WRITE_FILE
            | fs::TRUNCATE
            | fs::REMOVE_DIR
            | fs::REMOVE_FILE
            | fs::MAKE_DIR
            | fs::MAKE_REG
            | fs::MAKE_SOCK
            | fs::MAKE_FIFO
            | fs::MAKE_SYM
            | fs::REFER;
    }
    if access.has(Access::IOCTL) {
        rights |= fs::IOCTL_DEV;
    }
    let known = sys::landlock::fs_rights(abi);
    let fitting = if dir { known } else { known & sys::landlock::FILE_RIGHTS };
    rights & fitting
}

/// Folders of shared libraries and of interpreters' own libraries on the usual distributions, as far as they exist.
pub(crate) fn library_folders() -> Vec<PathBuf> {
    let fixed = ["/usr/share", "/usr/lib64", sys::arch::LIBRARY_FOLDER, "/usr/lib/ssl", "/lib64", "/usr/lib/locale"];
    let mut list: Vec<PathBuf> = fixed.iter().map(PathBuf::from).collect();
    for folder in ["/usr/lib", "/usr/local/lib"] {
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        for entry in entries.filter_map(Result::ok) {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if ["python3", "node_modules", "ruby", "perl"].iter().any(|prefix| name.starts_with(prefix)) {
                list.push(entry.path());
            }
        }
    }
    list.retain(|path| path.symlink_metadata().is_ok_and(|meta| meta.is_dir()));
    list
}

/// The dynamic loaders: `execve` of a dynamic program opens them for execution.
pub(crate) fn loaders() -> Vec<PathBuf> {
    sys::arch::LOADERS.iter().filter_map(|path| Path::new(path).canonicalize().ok()).collect()
}
