//! The layer of a workspace: filled before the run when it is a copy, read back after it; and the folder in which the
//! process tier writes.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use crate::ui::Failure;
use backends::Capabilities;
use policy::report::{Limit, WorkspaceReport};
use policy::{Plan, Policy};

use super::record::Recorded;

/// What is needed to read a layer back.
#[derive(Debug)]
pub(super) struct Layer {
    /// Root of the overlay's upper or of the copy.
    pub(super) fd: OwnedFd,
    /// The workspace on the host, canonical.
    pub(super) root: PathBuf,
    /// It is a copy, else an overlay's upper.
    pub(super) copy: bool,
}

/// Bytes that a layer holds on its own file system.
pub(super) fn used(layer: &Layer) -> u64 {
    rustix::fs::fstatvfs(&layer.fd).map_or(0, |fs| fs.f_blocks.saturating_sub(fs.f_bfree).saturating_mul(fs.f_frsize))
}

/// The limit that the folder of a run has passed, if any: bytes and inodes, counted by walking it.
pub(super) fn over_limit(tmp: &Path, policy: &Policy) -> Option<(Limit, String)> {
    let mut count = Count::default();
    count.walk(tmp, 0);
    let limits = &policy.limits;
    if let Some(disk) = limits.disk
        && count.bytes > disk.0
    {
        return Some((Limit::Disk, format!("{} bytes were written, the limit is {}", count.bytes, disk.0)));
    }
    if let Some(files) = limits.files
        && count.files > files
    {
        return Some((Limit::Disk, format!("{} files were made, the limit is {files}", count.files)));
    }
    None
}

#[derive(Default)]
struct Count {
    bytes: u64,
    files: u64,
}

impl Count {
    fn walk(&mut self, folder: &Path, depth: usize) {
        use std::os::unix::fs::MetadataExt as _;
        let Ok(entries) = std::fs::read_dir(folder) else { return };
        for entry in entries.filter_map(Result::ok) {
            let Ok(meta) = entry.metadata() else { continue };
            self.files = self.files.saturating_add(1);
            self.bytes = self.bytes.saturating_add(meta.blocks().saturating_mul(512));
            if meta.is_dir() && depth < 64 {
                self.walk(&entry.path(), depth + 1);
            }
        }
    }
}

/// Removes a folder of ours and all below it.
pub(super) fn remove_tree(path: &Path) -> std::io::Result<()> {
    std::fs::remove_dir_all(path)
}

impl Layer {
    pub(super) fn of_folder(path: &Path, root: PathBuf) -> Result<Self, Failure> {
        let _ = (path, root);
        Err(crate::cli::target::nothing("copy"))
    }
}

pub(super) fn copy_to_folder(_: &Path, _: &Path, _: &Policy, _: (u32, u32), _: &Capabilities) -> Result<(), Failure> {
    Err(crate::cli::target::nothing("copy"))
}

pub(super) fn fill(_: &Layer, _: &Policy, _: (u32, u32), _: &Capabilities) -> Result<(), Failure> {
    Err(crate::cli::target::nothing("copy"))
}

pub(super) fn read_back(layer: Option<Layer>, _: &Plan, _: &Recorded) -> Result<WorkspaceReport, Failure> {
    drop(layer);
    Ok(WorkspaceReport::default())
}
