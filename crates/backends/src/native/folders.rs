//! Where commands are judged: which parts of what the plan shows may be read and written to.
//!
//! Rights of Landlock add up along a path, so a part is closed by giving the tree around it less, and nothing within a place that
//! is open anyhow can be closed.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::landlock::{Access, Rules};
use crate::StartError;

/// The only places of what is shown, as the program sees them; `None`: all of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Folders {
    pub(crate) read: Option<Vec<PathBuf>>,
    pub(crate) write: Option<Vec<PathBuf>>,
}

/// A tree or file that the plan shows.
pub(crate) struct ShownTree<'a> {
    /// As the program sees it.
    pub(crate) at: &'a Path,
    /// Where it really lies inside, without links.
    pub(crate) point: &'a Path,
    /// On the host.
    pub(crate) host: &'a Path,
    pub(crate) dir: bool,
}

/// What gets a rule of its own.
pub(crate) struct Part {
    /// Where it really lies inside.
    pub(crate) path: PathBuf,
    pub(crate) dir: bool,
    pub(crate) access: Access,
    /// Which list names it.
    pub(crate) clause: &'static str,
}

/// Whether a list has a place, or a folder around it.
pub(crate) fn lists(list: &[PathBuf], place: &Path) -> bool {
    list.iter().any(|folder| place.starts_with(folder))
}

impl Folders {
    /// What may be done at a place of what is shown, of all that its tree allows.
    pub(crate) fn at(&self, place: &Path, all: Access) -> Access {
        let listed = |list: &Option<Vec<PathBuf>>| list.as_ref().is_none_or(|list| lists(list, place));
        match (listed(&self.read), listed(&self.write)) {
            (true, true) => all,
            (true, false) => all.without(Access::WRITE),
            (false, _) => Access::NONE,
        }
    }

    /// The parts of a place that may be used, the whole of it first.
    ///
    /// # Errors
    /// A listed path is not there, or is read behind a link: the kernel's rule is for what is. Or what no list names lies in a place
    /// that the rules so far open.
    pub(crate) fn parts(&self, place: &ShownTree<'_>, all: Access, rules: &Rules) -> Result<Vec<Part>, StartError> {
        let access = self.at(place.at, all);
        for (right, clause) in [(Access::READ, "commands.read"), (Access::WRITE, "commands.write")] {
            if all.has(right) && !access.has(right) && rules.gives(place.point, right) {
                return Err(StartError::open_anyhow(clause, place.at));
            }
        }
        let mut parts = vec![Part { path: place.point.to_owned(), dir: place.dir, access, clause: "commands.read" }];
        for below in self.below(place.at) {
            let access = self.at(&place.at.join(below), all);
            let path = place.point.join(below);
            // What lies around it has its rights already.
            if !parts.iter().any(|part| part.access == access && path.starts_with(&part.path)) {
                let found = self.found(place, below)?;
                parts.extend(found.map(|(dir, clause)| Part { path, dir, access, clause }));
            }
        }
        Ok(parts)
    }

    /// What the lists name below a place, the outer ones first.
    fn below(&self, at: &Path) -> Vec<&Path> {
        let listed = self.read.iter().chain(&self.write).flatten();
        let mut below: Vec<&Path> = listed.filter_map(|path| path.strip_prefix(at).ok()).collect();
        below.retain(|below| *below != Path::new(""));
        below.sort_unstable();
        below.dedup();
        below
    }

    /// Whether what a list names is a folder, and which list that is; none if there is nothing to give a rule to.
    fn found(&self, place: &ShownTree<'_>, below: &Path) -> Result<Option<(bool, &'static str)>, StartError> {
        let at = place.at.join(below);
        let written = self.write.as_ref().is_some_and(|list| list.contains(&at));
        let clause = if written { "commands.write" } else { "commands.read" };
        // Nobody asked for a repository: one that is not there is used by nobody.
        let git = below.ends_with(".git");
        match plain(place.host, below) {
            Ok(Some(dir)) => Ok(Some((dir, clause))),
            // The judge lets nobody write through a link.
            Ok(None) if written || git => Ok(None),
            Ok(None) => Err(StartError::behind_link(clause, &at)),
            Err(error) if error.kind() == ErrorKind::NotFound && git => Ok(None),
            Err(error) => Err(StartError::path(clause, &place.host.join(below), &error)),
        }
    }
}

/// Whether what lies below a tree is a folder; none if a link is on the way.
fn plain(tree: &Path, below: &Path) -> std::io::Result<Option<bool>> {
    let mut at = tree.to_owned();
    for part in below {
        at.push(part);
        if at.symlink_metadata()?.is_symlink() {
            return Ok(None);
        }
    }
    at.symlink_metadata().map(|meta| Some(meta.is_dir()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Access {
        Access::READ | Access::WRITE
    }

    fn folders(read: Option<&[&str]>, write: Option<&[&str]>) -> Folders {
        let list = |list: &[&str]| list.iter().map(PathBuf::from).collect();
        Folders { read: read.map(list), write: write.map(list) }
    }

    /// The rules of a workspace that is shown at `/w`: path, and whether it is read and written to.
    fn parts(folders: &Folders, host: &Path, rules: &Rules) -> Result<Vec<(String, bool, bool)>, StartError> {
        let place = ShownTree { at: Path::new("/w"), point: Path::new("/w"), host, dir: true };
        let told = |part: Part| {
            (part.path.display().to_string(), part.access.has(Access::READ), part.access.has(Access::WRITE))
        };
        folders.parts(&place, all(), rules).map(|parts| parts.into_iter().map(told).collect())
    }

    #[test]
    fn a_tree_is_open_where_a_list_says_so_and_whole_without_one() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("src/deep")).unwrap();
        std::fs::create_dir_all(dir.path().join("build")).unwrap();
        std::fs::write(dir.path().join("notes"), "").unwrap();
        let of = |read, write| parts(&folders(read, write), dir.path(), &Rules::default()).unwrap();
        let row = |path: &str, read, write| (path.to_owned(), read, write);
        assert_eq!(of(None, None), [row("/w", true, true)]);
        assert_eq!(of(None, Some(&["/w/build"])), [row("/w", true, false), row("/w/build", true, true)]);
        let read = ["/w/build", "/w/notes", "/w/src", "/w/src/deep", "/elsewhere"];
        assert_eq!(
            of(Some(&read), Some(&["/w/build"])),
            [
                row("/w", false, false),
                row("/w/build", true, true),
                row("/w/notes", true, false),
                row("/w/src", true, false)
            ]
        );
        for whole in [&["/w"][..], &["/"]] {
            assert_eq!(of(Some(whole), Some(whole)), [row("/w", true, true)], "{whole:?}");
        }
        // Another tree than those that are named is closed.
        assert_eq!(of(Some(&["/elsewhere"]), Some(&[])), [row("/w", false, false)]);
        assert_eq!(folders(Some(&["/w/src"]), None).at(Path::new("/w/srcs"), all()), Access::NONE);
    }

    #[test]
    fn what_a_list_names_must_be_there_and_be_no_link() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("src")).unwrap();
        std::os::unix::fs::symlink("src", dir.path().join("link")).unwrap();
        let of =
            |read: &[&str], write: &[&str]| parts(&folders(Some(read), Some(write)), dir.path(), &Rules::default());
        for read in ["/w/absent", "/w/link", "/w/link/below"] {
            let refused = of(&[read], &[]).unwrap_err();
            assert!(matches!(refused, StartError::Path { clause: "commands.read", .. }), "{read}: {refused:?}");
        }
        let refused = of(&["/w/absent"], &["/w/absent"]).unwrap_err();
        assert!(matches!(refused, StartError::Path { clause: "commands.write", .. }), "{refused:?}");
        // What lies in another listed folder has its rule, and nobody asked for a repository.
        let worked = of(&["/w/src", "/w/src/later", "/w/.git"], &[]).unwrap();
        assert_eq!(worked.len(), 2, "{worked:?}");
        assert_eq!(of(&["/w/src", "/w/link"], &["/w/link"]).unwrap().len(), 2, "the judge lets nobody write there");
    }

    #[test]
    fn what_no_list_names_is_refused_within_a_place_that_is_open() {
        let dir = tempfile::tempdir().unwrap();
        let mut rules = Rules::default();
        rules.add(Path::new("/"), Access::LIST, true);
        let closed = |rules: &Rules| parts(&folders(Some(&[]), Some(&[])), dir.path(), rules);
        assert!(closed(&rules).is_ok());
        rules.add(Path::new("/w"), Access::READ, true);
        let refused = closed(&rules).unwrap_err();
        assert!(refused.is_refusal() && matches!(refused, StartError::Path { clause: "commands.read", .. }));
        assert!(parts(&folders(Some(&["/w"]), Some(&[])), dir.path(), &rules).is_ok(), "it is listed");
    }
}
