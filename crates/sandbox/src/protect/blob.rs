//! What git calls a file of a working tree.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::FileType;

use super::hash::Hash;
use super::plan::{link_target, parent_of};
use crate::state::Dir;
use policy::json::sha256_hex;

/// A larger file is none that is known.
const MAX_SIZE: u64 = 256 << 20;

/// Larger attributes tell of no filter.
const MAX_ATTRIBUTES: u64 = 1 << 20;
/// How they tell of that of git LFS.
const LFS: &[u8] = b"filter=lfs";

/// Whether the file at a path, or the link, is what an object of this name holds, or what git makes of it ([`is_made_of`]).
#[must_use]
pub fn is_blob(below: &Dir, path: &Path, name: &[u8], hash: Hash) -> bool {
    let found = || {
        let (parent, last) = parent_of(below, path).ok()??;
        match parent.kind(&last).ok()?? {
            FileType::RegularFile => {
                let contents = parent.read(&last, MAX_SIZE).ok()?;
                Some(is_made_of(&contents, (below, path), name, hash))
            }
            FileType::Symlink => Some(is_named(link_target(below, path)?.as_os_str().as_bytes(), name, hash)),
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

/// Whether an object is what git makes of a file that has, or will have, these contents: the same, with its lines ended as in the
/// repository, or the pointer that git LFS makes. What other filters change of a file is another one.
#[must_use]
pub fn is_made_of(contents: &[u8], (below, path): (&Dir, &Path), name: &[u8], hash: Hash) -> bool {
    is_named(contents, name, hash)
        || is_named(&with_plain_ends(contents), name, hash)
        || is_named(pointer_to(contents).as_bytes(), name, hash) && is_of_lfs(below, path)
}

fn is_named(contents: &[u8], name: &[u8], hash: Hash) -> bool {
    let head = format!("blob {}\0", contents.len());
    hash.sum(&[head.as_bytes(), contents]) == name
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
        let is = |path: &str, name: &[u8]| is_blob(&below, Path::new(path), name, Hash::Sha1);
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
        assert!(!is("link", &of(&pointer)) && is("link", &of("large")), "a link has no filter");
    }
}
