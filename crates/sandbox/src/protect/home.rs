//! Links in home folders: whoever has one there, where programs read their own files from, uses what it leads to. Another name of such
//! a file (a hard link) is the file.

use std::ffi::OsStr;
use std::fs::{DirEntry, FileType};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// So many entries of one home folder are looked at. A folder with its names costs a few microseconds, a file that is looked at for other
/// names one.
const MAX_ENTRIES: usize = 500_000;

/// The links of a home folder.
#[derive(Debug, Default)]
pub(super) struct HomeLinks {
    /// Where they stand.
    pub(super) links: Vec<PathBuf>,
    /// There is more in it than was looked at.
    pub(super) cut: bool,
}

/// Of a folder in a home folder, how deep below its own entries links are looked for: programs keep folders by their name, in those
/// that are shared another one deep. `None` of one that no program reads by itself.
fn levels(name: &OsStr) -> Option<usize> {
    match name.as_bytes() {
        b".config" | b".local" => Some(2),
        // Made by programs, and large.
        b".cache" | b"bin" => Some(0),
        name => name.starts_with(b".").then_some(1),
    }
}

/// Looks through a home folder. Folders that the workspace lies in are gone through by themselves.
pub(super) fn links(home: &Path, root: &Path) -> HomeLinks {
    links_among(home, root, MAX_ENTRIES)
}

fn links_among(home: &Path, root: &Path, most: usize) -> HomeLinks {
    let mut links = Vec::new();
    let cut = look_through(home, root, most, |entry, kind| links.extend(kind.is_symlink().then(|| entry.path())));
    HomeLinks { links, cut }
}

/// The files there that have other names, on the disk of the workspace: those of one disk alone can be in it.
pub(super) fn with_other_names(home: &Path, root: &Path) -> Vec<PathBuf> {
    let Ok(disk) = std::fs::metadata(root).map(|stat| stat.dev()) else { return Vec::new() };
    let mut found = Vec::new();
    // Where there is more, that is said by [`links`].
    let _is_cut = look_through(home, root, MAX_ENTRIES, |entry, kind| {
        let path = entry.path();
        // Of a link what it leads to.
        let is_one = |stat: std::fs::Metadata| stat.is_file() && stat.nlink() > 1 && stat.dev() == disk;
        if !kind.is_dir() && std::fs::metadata(&path).is_ok_and(is_one) {
            found.extend(path.canonicalize());
        }
    });
    found
}

/// Whether there is more than is looked at. `each` is told of what programs read by themselves there.
fn look_through(home: &Path, root: &Path, most: usize, mut each: impl FnMut(&DirEntry, FileType)) -> bool {
    let mut left = most;
    let mut queue = vec![(home.to_owned(), None)];
    while let Some((folder, level)) = queue.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Some(rest) = left.checked_sub(1) else { return true };
            left = rest;
            let is_top = level.is_none();
            let below = level.map_or_else(|| levels(&entry.file_name()), |level: usize| level.checked_sub(1));
            let Ok(kind) = entry.file_type() else { continue };
            let path = entry.path();
            if !is_top || below.is_some() {
                each(&entry, kind);
            }
            // `~/.config` itself may be a link to a folder.
            let is_folder = kind.is_dir() || kind.is_symlink() && is_top && below.is_some() && path.is_dir();
            if is_folder && below.is_some() && !root.starts_with(&path) {
                queue.push((path, below));
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn files_with_other_names_are_found_there() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path();
        for path in [".config/x/a", ".bashrc", ".profile", "ws/dots/b", "plain"] {
            std::fs::create_dir_all(home.join(path).parent().unwrap()).unwrap();
            std::fs::write(home.join(path), "").unwrap();
        }
        for (here, there) in [("ws/c", ".bashrc"), ("ws/d", ".config/x/a"), ("ws/e", "plain")] {
            std::fs::hard_link(home.join(there), home.join(here)).unwrap();
        }
        symlink("plain", home.join(".linked")).unwrap();
        let home = home.canonicalize().unwrap();
        let mut found = with_other_names(&home, &home.join("ws"));
        found.sort();
        assert_eq!(found, [".bashrc", ".config/x/a", "plain"].map(|path| home.join(path)));
    }

    #[test]
    fn links_are_looked_for_where_programs_keep_their_files() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path();
        let near = [".direnvrc", ".gnupg/a", ".oh-my-zsh/custom/b", ".config/c", ".config/x/d", ".config/x/y/e"];
        let others = [".local/bin/f", ".local/share/applications/g", "bin/h", ".cache/i", ".dots/deep/j"];
        let far = [".config/x/y/z/k", ".gnupg/x/y/l", ".cache/x/m", "n", "src/o", ".work/p"];
        for path in near.iter().chain(&others).chain(&far) {
            std::fs::create_dir_all(home.join(path).parent().unwrap()).unwrap();
            symlink("/elsewhere", home.join(path)).unwrap();
        }
        std::fs::create_dir(home.join("dots")).unwrap();
        symlink("/elsewhere", home.join("dots/q")).unwrap();
        symlink("dots", home.join(".linked")).unwrap();
        let found = links(home, &home.join(".work/ws"));
        let has = |path: &str| found.links.contains(&home.join(path));
        for path in near.iter().chain(&others).chain(&[".linked", ".linked/q"]) {
            assert!(has(path), "{path}");
        }
        assert!(!far.iter().any(|path| has(path)) && !has("dots/q") && !found.cut, "{found:?}");
        let all = found.links.len();
        let few = links_among(home, &home.join(".work/ws"), 5);
        assert!(few.cut && few.links.len() < all);
    }
}
