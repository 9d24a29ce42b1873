//! Where the kernel comes through on its way to a path.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Links on the way to a file that are followed, as the kernel does.
const MAX_LINKS: usize = 40;

/// Each folder and link that the kernel comes through on its way to a path, by its own place, and the end. A link in the middle of a
/// chain is in no path that is there whole: whoever may write it leads on to what he likes.
pub(crate) fn passed(path: &Path) -> Vec<PathBuf> {
    let (mut passed, mut real, mut links) = (Vec::new(), PathBuf::from("/"), 0_usize);
    let mut left: Vec<OsString> = path.components().rev().map(|part| part.as_os_str().to_owned()).collect();
    while let Some(part) = left.pop() {
        if part == "/" {
            real = PathBuf::from("/");
        } else if part == ".." {
            real.pop();
        } else if part != "." {
            let next = real.join(&part);
            passed.push(next.clone());
            match next.read_link() {
                Ok(target) if links < MAX_LINKS => {
                    links = links.saturating_add(1);
                    left.extend(target.components().rev().map(|part| part.as_os_str().to_owned()));
                }
                Ok(_) | Err(_) => real = next,
            }
        }
    }
    passed
}
