//! What git calls a file of a working tree.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::FileType;

use super::hash::Hash;
use super::plan::{link_target, parent_of};
use crate::state::Dir;

/// A larger file is none that is known.
const MAX_SIZE: u64 = 256 << 20;

/// Whether the file at a path, or the link, is what an object of this name holds. What filters change of a file is another one.
#[must_use]
pub fn is_blob(below: &Dir, path: &Path, name: &[u8], hash: Hash) -> bool {
    let contents = || {
        let (parent, last) = parent_of(below, path).ok()??;
        match parent.kind(&last).ok()?? {
            FileType::RegularFile => parent.read(&last, MAX_SIZE).ok(),
            FileType::Symlink => link_target(below, path).map(|to| to.as_os_str().as_bytes().to_vec()),
            FileType::Directory
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => None,
        }
    };
    contents().is_some_and(|contents| {
        let head = format!("blob {}\0", contents.len());
        hash.sum(&[head.as_bytes(), &contents]) == name
    })
}
