//! From a name to the one file that is executed.
//!
//! A name means the system's own path list, whatever `PATH` says, and is looked up once. A file of the same name elsewhere is a
//! look-alike: denied, not merely unknown.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::files::{self, FileType};

/// Where names are looked up; the environment of a run has the same list.
pub const PATH: &[&str] = &["/usr/local/bin", "/usr/bin", "/bin"];

/// Scripts of scripts of scripts end here.
const MAX_INTERPRETERS: usize = 4;

/// A program that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProgramPath {
    /// As it was looked up.
    pub(super) path: PathBuf,
    /// The file itself, without links.
    pub(super) real: PathBuf,
}

/// The tree in which programs are.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    root: PathBuf,
}

impl Tree {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: files::canonical(root).unwrap_or_else(|| root.to_owned()) }
    }

    /// The program of a name or an absolute path; an error says why the file that is there cannot be trusted.
    pub(super) fn program(&self, name: &str) -> Result<Option<ProgramPath>, String> {
        if name.starts_with('/') {
            return self.file(Path::new(name));
        }
        for folder in PATH {
            if let Some(found) = self.file(&Path::new(folder).join(name))? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn file(&self, path: &Path) -> Result<Option<ProgramPath>, String> {
        let Some(real) = self.real(path) else { return Ok(None) };
        let Some(facts) = files::facts(&self.outside(&real)) else { return Ok(None) };
        if facts.kind != FileType::RegularFile || facts.mode & 0o111 == 0 {
            return Ok(None);
        }
        for place in [Some(real.as_path()), real.parent(), path.parent()].into_iter().flatten() {
            let Some(facts) = files::facts_followed(&self.outside(place)) else { return Ok(None) };
            // A sticky folder lets nobody replace what is another's, but everybody add.
            if facts.mode & 0o002 != 0 {
                return Err(format!("everybody may write `{}`", place.display()));
            }
        }
        Ok(Some(ProgramPath { path: path.to_owned(), real }))
    }

    /// The path of a file inside the tree, without links; links do not lead out of it.
    pub(super) fn real(&self, path: &Path) -> Option<PathBuf> {
        if self.root == Path::new("/") { files::canonical(path) } else { files::canonical_inside(&self.root, path) }
    }

    /// The same path as this process sees it.
    fn outside(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The file, and the interpreters of a script down to a program of the machine.
    pub(super) fn chain(&self, found: &ProgramPath) -> BTreeSet<PathBuf> {
        let mut all = BTreeSet::from([found.real.clone()]);
        let mut file = found.real.clone();
        for _ in 0..MAX_INTERPRETERS {
            let Some(next) = self.interpreter(&file) else { break };
            // Through `env` both are executed.
            for found in next.iter().filter_map(|name| self.program(name).ok().flatten()) {
                file.clone_from(&found.real);
                all.insert(found.real);
            }
        }
        all
    }

    /// The words of a `#!` line that are programs.
    fn interpreter(&self, file: &Path) -> Option<Vec<String>> {
        let head = files::head(&self.outside(file), 256)?;
        let line = head.strip_prefix(b"#!")?;
        let line = line.split(|byte| *byte == b'\n').next()?;
        let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
        let first = words.next()?.to_owned();
        if first.rsplit('/').next() != Some("env") {
            return Some(vec![first]);
        }
        let second = words.find(|word| !word.starts_with('-') && !word.contains('='))?.to_owned();
        Some(vec![first, second])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn put(path: &Path, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn a_name_is_looked_up_in_the_trees_own_folders_and_links_stay_inside() {
        let root = tempfile::tempdir().unwrap();
        put(&root.path().join("usr/bin/real"), "#!/usr/bin/env -S inner\n");
        put(&root.path().join("usr/bin/inner"), "\x7fELF");
        put(&root.path().join("usr/bin/env"), "\x7fELF");
        symlink("/usr/bin/real", root.path().join("usr/bin/name")).unwrap();
        symlink("/../../../../../../bin/sh", root.path().join("usr/bin/out")).unwrap();
        let tree = Tree::new(root.path());
        let found = tree.program("name").unwrap().unwrap();
        assert_eq!(found, ProgramPath { path: "/usr/bin/name".into(), real: "/usr/bin/real".into() });
        let chain: Vec<String> = tree.chain(&found).iter().map(|path| path.display().to_string()).collect();
        assert_eq!(chain, ["/usr/bin/env", "/usr/bin/inner", "/usr/bin/real"]);
        assert_eq!(tree.program("out"), Ok(None));
        assert_eq!(tree.program("absent"), Ok(None));
    }

    #[test]
    fn a_file_that_everybody_may_replace_is_no_program() {
        let root = tempfile::tempdir().unwrap();
        put(&root.path().join("usr/local/bin/tool"), "\x7fELF");
        let tree = Tree::new(root.path());
        assert!(tree.program("tool").unwrap().is_some());
        let folder = root.path().join("usr/local/bin");
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(tree.program("tool").is_err());
    }
}
