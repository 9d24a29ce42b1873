//! What git calls a file of a working tree.

use std::cell::Cell;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::FileType;

use super::hash::Hash;
use super::plan::{link_target, parent_of};
use super::stored::TreeEntry;
use crate::state::Dir;
use policy::json::sha256_hex;

/// A larger file is none that is known.
const MAX_SIZE: u64 = 256 << 20;

/// Larger attributes tell of no filter.
const MAX_ATTRIBUTES: u64 = 1 << 20;
/// How they tell of that of git LFS.
const LFS: &[u8] = b"filter=lfs";

/// In an index, of a file of which it says nothing whether it can be executed.
const ANY_RIGHTS: u32 = 0o100_000;
/// Of a link.
const LINK: u32 = 0o120_000;
/// The owner may execute it.
const EXECUTE: u32 = 0o100;

/// Whether a mode of git's is one of a link, or of a file that its owner may execute or not.
#[must_use]
pub const fn is_mode_of(mode: u32, is_link: bool, rights: u32) -> bool {
    if is_link {
        return mode == LINK;
    }
    mode >> 12 == ANY_RIGHTS >> 12 && (mode == ANY_RIGHTS || mode & EXECUTE == rights & EXECUTE)
}

/// The mode that the file of an entry is to have, where the host has this for it. Where rights say nothing (`core.filemode`) git leaves
/// that of a file as it was, and makes none that can be executed: that takes nothing from anybody.
#[must_use]
pub fn mode_beside(mode: u32, host: Option<u32>) -> u32 {
    let is_file = mode >> 12 == ANY_RIGHTS >> 12;
    if is_file && host.map_or(mode & EXECUTE == 0, |host| host == mode) { ANY_RIGHTS } else { mode }
}

/// Whether the file at a path, or the link, is what an object of this name holds, or what git makes of it, and has its
/// mode. What is read of files is taken from `left`.
#[must_use]
pub fn is_blob(below: &Dir, path: &Path, (mode, name): &TreeEntry, (hash, left): (Hash, &Cell<u64>)) -> bool {
    let found = || {
        let (parent, last) = parent_of(below, path).ok()??;
        match parent.kind(&last).ok()?? {
            FileType::RegularFile => {
                let stat = parent.stat(&last).ok()?.filter(|stat| is_mode_of(*mode, false, stat.st_mode))?;
                let rest = left.get().checked_sub(u64::try_from(stat.st_size).ok()?.min(MAX_SIZE));
                left.set(rest.unwrap_or(0));
                let contents = rest.and_then(|_| parent.read(&last, MAX_SIZE).ok())?;
                Some(is_made_of(&contents, (below, path), name, hash))
            }
            FileType::Symlink => {
                let is_target = is_named(link_target(below, path)?.as_os_str().as_bytes(), name, hash);
                Some(is_mode_of(*mode, true, 0) && is_target)
            }
            FileType::Directory
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => None,
        }
    };
    found().unwrap_or(false)
}

/// Whether an object is what git makes of a file that has these contents ([`BlobNames`]).
fn is_made_of(contents: &[u8], (below, path): (&Dir, &Path), name: &[u8], hash: Hash) -> bool {
    is_named(contents, name, hash)
        || is_named(&with_plain_ends(contents), name, hash)
        || is_named(pointer_to(contents).as_bytes(), name, hash) && is_of_lfs(below, path)
}

/// What git may call contents: by what they are, with their lines ended as in the repository, or by the pointer that git LFS makes. What
/// other filters change of a file is another one. A run may name the same contents in as many places as it likes: they are looked at once.
#[derive(Clone, Debug)]
pub struct BlobNames {
    plain: Vec<u8>,
    ends: Vec<u8>,
    pointer: Vec<u8>,
}

impl BlobNames {
    /// Of these contents.
    #[must_use]
    pub fn of(contents: &[u8], hash: Hash) -> Self {
        Self {
            plain: named(contents, hash),
            ends: named(&with_plain_ends(contents), hash),
            pointer: named(pointer_to(contents).as_bytes(), hash),
        }
    }

    /// Whether an object of this name is what git makes of them at a path.
    #[must_use]
    pub fn has(&self, name: &[u8], (below, path): (&Dir, &Path)) -> bool {
        self.plain == name || self.ends == name || self.pointer == name && is_of_lfs(below, path)
    }
}

fn is_named(contents: &[u8], name: &[u8], hash: Hash) -> bool {
    named(contents, hash) == name
}

fn named(contents: &[u8], hash: Hash) -> Vec<u8> {
    let head = format!("blob {}\0", contents.len());
    hash.sum(&[head.as_bytes(), contents])
}

/// Without the first byte of each end of a line that has two (`eol=crlf`, `core.autocrlf`).
fn with_plain_ends(contents: &[u8]) -> Vec<u8> {
    let next = contents.iter().skip(1).map(Some).chain([None]);
    let kept = contents.iter().zip(next).filter(|(byte, next)| (**byte, *next) != (b'\r', Some(&b'\n')));
    kept.map(|(byte, _)| *byte).collect()
}

/// What git LFS keeps in a repository in the place of a file, byte for byte: it says the hash of the contents, so that it can be the
/// pointer of no others.
fn pointer_to(contents: &[u8]) -> String {
    let (sum, size) = (sha256_hex(contents), contents.len());
    format!("version https://git-lfs.github.com/spec/v1\noid sha256:{sum}\nsize {size}\n")
}

/// Whether attributes on the way to a file tell git of the filter of git LFS: where none do, a pointer would be written out as it stands.
fn is_of_lfs(below: &Dir, path: &Path) -> bool {
    let said = |folder: &Path| below.read(folder.join(".gitattributes"), MAX_ATTRIBUTES);
    path.ancestors().skip(1).any(|folder| {
        let told = said(folder).unwrap_or_default();
        told.windows(LFS.len()).any(|words| words == LFS)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_git_lfs_is_known_by_the_pointer_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("large"), "large\n").unwrap();
        std::os::unix::fs::symlink("large", folder.path().join("link")).unwrap();
        let below = Dir::open(folder.path()).unwrap();
        // `git hash-object` of each.
        let large = "f60ccf3732fd547d393fe12095261c4d49cc94be";
        let pointer = pointer_to(b"large\n");
        let of = |text: &str| Hash::Sha1.sum(&[format!("blob {}\0", text.len()).as_bytes(), text.as_bytes()]);
        let is = |path: &str, name: &[u8]| {
            let mode = if path == "link" { LINK } else { ANY_RIGHTS };
            is_blob(&below, Path::new(path), &(mode, name.to_vec()), (Hash::Sha1, &Cell::new(1000)))
        };
        assert!(is("large", &policy::json::unhex(large).unwrap()) && !is("large", &of(&pointer)));
        std::fs::write(folder.path().join(".gitattributes"), "large filter=lfs diff=lfs merge=lfs -text\n").unwrap();
        assert!(is("large", &policy::json::unhex(large).unwrap()) && is("large", &of(&pointer)));
        for other in [&pointer_to(b"other\n"), &pointer.replace("size 6", "size 7"), &format!("{pointer}\n")] {
            assert!(!is("large", &of(other)), "{other}");
        }
        std::fs::write(folder.path().join("lines"), "a\r\nb\rc\n\r\n\r").unwrap();
        assert!(
            is("lines", &of("a\nb\rc\n\n\r"))
                && is("lines", &of("a\r\nb\rc\n\r\n\r"))
                && !is("lines", &of("a\nb\nc\n\n"))
        );
        let left = Cell::new(1000);
        let plain = |mode: u32| is_blob(&below, Path::new("large"), &(mode, of("large\n")), (Hash::Sha1, &left));
        assert!(plain(0o100_644) && !plain(0o100_755) && !plain(LINK) && mode_beside(0o100_755, None) == 0o100_755);
        assert!(!is("link", &of(&pointer)) && is("link", &of("large")), "a link has no filter");
        left.set(11);
        assert!(plain(0o100_644) && !plain(0o100_644) && left.get() == 0, "all that may be read was read");
    }
}
