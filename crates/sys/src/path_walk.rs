//! The way that a path takes, walked as the kernel walks it: name by name and link by link (path_resolution(7)).
//!
//! For whoever has to know not only where a path leads, but who has a say in it: every folder in which one of its names is
//! looked up.
//!
//! *Does not promise*: that it still is so afterwards. What is to be held is opened ([`crate::paths`]), and compared.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// As many links as the kernel follows (`MAXSYMLINKS`).
const MAX_LINKS: usize = 40;

/// A way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathWalk {
    /// Each name that was looked up, in order, with the folder in which that was, which has no links.
    pub names: Vec<PathBuf>,
    /// Those of them that are links.
    pub links: Vec<PathBuf>,
    /// Where it leads, without links; there need not be anything.
    pub end: PathBuf,
}

/// The way of an absolute path; `None` if it passes more links than the kernel follows. A name that cannot be read, or is
/// not there, is taken for no link.
#[must_use]
pub fn of(path: &Path) -> Option<PathWalk> {
    let mut way = PathWalk { names: Vec::new(), links: Vec::new(), end: PathBuf::from("/") };
    let mut ahead = names(path);
    while let Some(name) = ahead.pop() {
        if name == ".." {
            way.end.pop();
            continue;
        }
        let at = way.end.join(&name);
        way.names.push(at.clone());
        let Ok(target) = std::fs::read_link(&at) else {
            way.end = at;
            continue;
        };
        way.links.push(at);
        if way.links.len() > MAX_LINKS {
            return None;
        }
        if target.is_absolute() {
            way.end = PathBuf::from("/");
        }
        ahead.extend(names(&target));
    }
    Some(way)
}

/// The names of a path that move, the last one first.
fn names(path: &Path) -> Vec<OsString> {
    path.components()
        .rev()
        .filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir))
        .map(|part| part.as_os_str().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A folder without links on the way to it.
    fn folder() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap();
        (dir, path)
    }

    #[test]
    fn it_ends_where_the_kernel_ends_and_names_each_link() {
        let (_dir, top) = folder();
        std::fs::create_dir_all(top.join("a/b")).unwrap();
        std::fs::write(top.join("a/file"), "").unwrap();
        symlink("a/b", top.join("relative")).unwrap();
        symlink(top.join("relative"), top.join("absolute")).unwrap();
        // `..` after a link is above where it leads, and not above where it stands.
        let path = top.join("absolute/../file");
        let way = of(&path).unwrap();
        assert_eq!(way.end, path.canonicalize().unwrap());
        assert_eq!(way.links, [top.join("absolute"), top.join("relative")]);
        assert_eq!(way.names.last(), Some(&top.join("a/file")));
        assert!(way.names.contains(&top.join("a/b")));
    }

    #[test]
    fn what_is_not_there_is_passed_and_what_turns_in_a_circle_is_not() {
        let (_dir, top) = folder();
        let way = of(&top.join("none/file")).unwrap();
        assert_eq!((way.end, way.links), (top.join("none/file"), Vec::new()));
        symlink("two", top.join("one")).unwrap();
        symlink("one", top.join("two")).unwrap();
        assert_eq!(of(&top.join("one")), None);
    }
}
