//! `fs.hide`: paths of the workspace that are not visible in its layer.
//!
//! The globs are resolved once, at start, against the workspace: nothing that appears on the host later shows through a
//! copy at all, and through an overlay only if it is made while the run lasts.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::fault::Fault;
use crate::ui::Failure;

/// A workspace with more paths than this is not searched: the run is refused rather than hidden in part.
const MOST: usize = 500_000;
/// As deep as a path can be useful.
const DEEPEST: usize = 256;

/// The paths below `root` that the globs name, the outermost first; what lies below a hidden folder is not listed.
///
/// # Errors
/// The workspace cannot be searched whole.
pub(super) fn resolve(root: &Path, globs: &[String]) -> Result<Vec<PathBuf>, Failure> {
    if globs.is_empty() {
        return Ok(Vec::new());
    }
    let set = compile(globs)?;
    let mut walk = Walk { root, set: &set, seen: 0, found: Vec::new() };
    walk.folder(Path::new(""), 0)?;
    Ok(walk.found)
}

fn compile(globs: &[String]) -> Result<GlobSet, Failure> {
    let mut builder = GlobSetBuilder::new();
    for glob in globs {
        let made = GlobBuilder::new(glob).literal_separator(true).build();
        builder.add(made.map_err(|e| failed(glob, &e.to_string()))?);
    }
    builder.build().map_err(|e| failed("fs.hide", &e.to_string()))
}

struct Walk<'a> {
    root: &'a Path,
    set: &'a GlobSet,
    seen: usize,
    found: Vec<PathBuf>,
}

impl Walk<'_> {
    fn folder(&mut self, below: &Path, depth: usize) -> Result<(), Failure> {
        let place = self.root.join(below);
        let shown = place.display().to_string();
        if depth > DEEPEST {
            return Err(failed(&shown, "it is too deep to be searched"));
        }
        let entries = std::fs::read_dir(&place).map_err(|e| failed(&shown, &e.to_string()))?;
        for entry in entries {
            let entry = entry.map_err(|e| failed(&shown, &e.to_string()))?;
            self.seen += 1;
            if self.seen > MOST {
                return Err(failed(&shown, "the workspace has too many paths to be searched"));
            }
            let path = below.join(entry.file_name());
            if self.matches(&path) {
                self.found.push(path);
                continue;
            }
            // A link is not followed: what it leads to is searched where it lies, or is not in the workspace.
            if entry.file_type().map_err(|e| failed(&shown, &e.to_string()))?.is_dir() {
                self.folder(&path, depth + 1)?;
            }
        }
        Ok(())
    }

    fn matches(&self, path: &Path) -> bool {
        // Names need not be text, and globs match bytes.
        !path.as_os_str().as_bytes().is_empty() && self.set.is_match(path)
    }
}

fn failed(what: &str, why: &str) -> Failure {
    Failure::Faults {
        code: 126,
        faults: vec![Fault {
            id: "run/hide",
            what: format!("`fs.hide` cannot be held for `{}`", crate::fault::show_text(what)),
            place: "the workspace".to_owned(),
            why: why.to_lowercase(),
            fix: "make the folder readable, or name a smaller workspace".to_owned(),
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::resolve;
    use std::path::PathBuf;

    #[test]
    fn globs_name_files_at_every_depth_and_folders_whole() {
        let root = tempfile::tempdir().unwrap();
        for file in [".env", "a/.env", "a/b/key.pem", "a/b/keys.txt", "secret/x", "secret/y/.env"] {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        }
        let globs: Vec<String> = ["**/.env", "**/*.pem", "secret"].iter().map(|s| (*s).to_owned()).collect();
        let mut found = resolve(root.path(), &globs).unwrap();
        found.sort();
        assert_eq!(found, [".env", "a/.env", "a/b/key.pem", "secret"].map(PathBuf::from));
    }
}
