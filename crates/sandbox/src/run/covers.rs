//! What is not to be seen in trees of the host: paths that `fs.hide` names, and unix sockets.
//!
//! Both are looked for once, at start. In the layer or copy of a workspace what was found is not there at all; in a grant,
//! and in a workspace that is shown as it is, an empty mount covers it.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use policy::Plan;
use policy::control::{Control, Cover};
use policy::value::Grant;

use super::guard::Protected;
use super::trees::{Trees, WorkspaceView};
use crate::error::Error;
use crate::fault::Fault;

/// A tree with more paths than this is not searched: the run is refused rather than covered in part.
const MAX: usize = 500_000;
/// As deep as a path can be useful.
const MAX_DEPTH: usize = 256;
/// Each is a mount of its own.
const MAX_COVERED: usize = 1000;

/// What the controls of a plan cover in grants and in a workspace that is shown as it is.
///
/// # Errors
/// A tree cannot be searched whole, or a glob can match nothing that is shown.
pub(super) fn covered(plan: &Plan, protected: Option<&Protected>) -> Result<Vec<Grant>, Error> {
    let trees = Trees::of(plan);
    let mut hidden = BTreeSet::new();
    if !trees.hide.is_empty() {
        reaching(&trees)?;
        hidden = hidden_of_host(&trees, &CoverPatterns::hidden(&trees.hide)?)?;
        shown_whole(&trees, &hidden)?;
    }
    let mut found = Vec::new();
    for control in plan.controls() {
        let Control::Covered(cover) = control else { continue };
        let (wanted, places) = match cover {
            Cover::Sockets => (CoverPatterns::sockets(), writable(&trees)),
            Cover::Hidden(globs) => (CoverPatterns::hidden(globs)?, trees.grants().cloned().collect()),
        };
        for place in &places {
            // A tree that was walked for its control files is not walked again.
            let walked = protected.filter(|_| wanted.sockets).and_then(|protected| protected.sockets(&place.from));
            let paths = match walked {
                Some((sockets, rest)) => wanted.and_below(sockets, rest, place)?,
                None if wanted.sockets => wanted.below(&place.from, &place.to)?,
                // All trees were searched together.
                None => below_both(Vec::new(), &place.from, &hidden),
            };
            if let Some(link) =
                paths.iter().map(|path| joined(&place.from, path)).find(|path| is_link_below(path, place))
            {
                return Err(link_hidden(&link));
            }
            let grant = |path: PathBuf| Grant {
                from: joined(&place.from, &path),
                to: joined(&place.to, &path),
                dangerous: place.dangerous,
            };
            found.extend(paths.into_iter().map(grant));
        }
    }
    if found.len() > MAX_COVERED {
        let why = format!("{} paths would have to be covered, at most {MAX_COVERED} can be", found.len());
        return Err(failed("the grants", &why));
    }
    Ok(found)
}

/// A grant that is itself a link is shown as what it leads to.
fn is_link_below(path: &Path, place: &Grant) -> bool {
    *path != place.from && path.symlink_metadata().is_ok_and(|meta| meta.is_symlink())
}

/// No mount stands on a symbolic link: the kernel takes none.
fn link_hidden(link: &Path) -> Error {
    Error::refused(Fault {
        id: "run/hide-link",
        what: format!("`{}` cannot be hidden", crate::fault::show_text(&link.display().to_string())),
        place: "fs.hide".to_owned(),
        why: "it is a symbolic link in a grant: what is hidden there is covered by a mount, and none can stand on a link"
            .to_owned(),
        fix: "grant folders without it, take the link away, or correct the glob (what a link leads to is hidden by its own \
              name); a workspace with mode `overlay` or `copy` hides links too"
            .to_owned(),
    })
}

/// The paths of a workspace that the globs name, the outermost first; what lies below a hidden folder is not listed.
///
/// # Errors
/// The workspace cannot be searched whole.
pub(super) fn hidden(root: &Path, trees: &Trees, globs: &[String]) -> Result<Vec<PathBuf>, Error> {
    let wanted = CoverPatterns::hidden(globs)?;
    let workspace = workspace(trees);
    let found = wanted.below(root, workspace.as_ref().map_or(root, |shown| &shown.to))?;
    Ok(below_both(found, root, &hidden_of_host(trees, &wanted)?))
}

/// What the globs name in all that is shown, as paths of the host: who shows such a path a second time hides it there too, by
/// whatever name it has then.
fn hidden_of_host(trees: &Trees, wanted: &CoverPatterns) -> Result<BTreeSet<PathBuf>, Error> {
    let mut found = BTreeSet::new();
    // A workspace alone is searched by whoever lays it, and has nothing to compare with.
    let granted = trees.grants().next().is_some();
    let places = Some(shown(trees)).filter(|places| granted || places.len() > 1).unwrap_or_default();
    for place in places {
        let root = real(&place.from);
        let below = wanted.below(&root, &place.to)?;
        found.extend(below.into_iter().map(|path| root.join(path)));
    }
    Ok(found)
}

/// What was found below a tree, and what of other trees lies in it; the outermost paths.
fn below_both(mut found: Vec<PathBuf>, root: &Path, hosts: &BTreeSet<PathBuf>) -> Vec<PathBuf> {
    let root = real(root);
    found.extend(hosts.iter().filter_map(|host| Some(host.strip_prefix(&root).ok()?.to_owned())));
    found.retain(|path| !path.as_os_str().is_empty());
    found.sort();
    found.dedup_by(|path, above| path.starts_with(above));
    found
}

/// All trees that are shown and searched.
fn shown(trees: &Trees) -> Vec<Grant> {
    trees.grants().cloned().chain(workspace(trees)).collect()
}

/// Without links; what is gone is refused by whoever shows it.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_gone| path.to_owned())
}

/// Whether the globs name a path of a workspace that is shown at `at`, or a folder above it.
pub(super) fn hides(globs: &[String], at: &Path, path: &Path) -> Result<bool, Error> {
    let wanted = CoverPatterns::hidden(globs)?;
    Ok(path.ancestors().any(|path| wanted.matches(at, path)))
}

fn joined(root: &Path, below: &Path) -> PathBuf {
    // A trailing slash would make a file a folder.
    if below == Path::new("") { root.to_owned() } else { root.join(below) }
}

/// What is shown of the host as it is, and can be written.
fn writable(trees: &Trees) -> Vec<Grant> {
    let is_written = trees.workspace.as_ref().is_some_and(|(_, view)| *view == WorkspaceView::Written);
    trees.write.iter().cloned().chain(workspace(trees).filter(|_| is_written)).collect()
}

/// The workspace, by its real name; where it is shown by its own, by that.
fn workspace(trees: &Trees) -> Option<Grant> {
    let (shown, _) = trees.workspace.as_ref()?;
    let from = real(&shown.from);
    let to = if shown.to == shown.from { from.clone() } else { shown.to.clone() };
    Some(Grant { from, to, dangerous: false })
}

/// An absolute glob must begin at, above or below something that is shown: else it is a mistake that hides nothing.
fn reaching(trees: &Trees) -> Result<(), Error> {
    let places: Vec<&Path> = trees.grants().map(|shown| shown.to.as_path()).chain(trees.named.as_deref()).collect();
    for glob in trees.hide.iter().filter(|glob| glob.starts_with('/')) {
        let literal = glob.split(['*', '?', '[', '{']).next().unwrap_or_default();
        let whole = literal.len() == glob.len();
        let reaches = |place: &&Path| {
            Path::new(literal).starts_with(place) || (!whole && place.to_string_lossy().starts_with(literal))
        };
        if !places.iter().any(reaches) {
            return Err(failed(glob, "it lies in nothing that is shown, so that it hides nothing"));
        }
    }
    Ok(())
}

/// What the policy shows cannot be hidden by its own name, nor within what another tree hides: it lies there all the same.
fn shown_whole(trees: &Trees, hidden: &BTreeSet<PathBuf>) -> Result<(), Error> {
    let wanted = CoverPatterns::hidden(&trees.hide)?;
    let places = shown(trees);
    for place in &places {
        let at = place.to.as_path();
        let by_path = at.ancestors().any(|path| wanted.absolute.is_match(path));
        // A file that is granted by itself has its name alone.
        let by_name = !place.from.is_dir() && at.file_name().is_some_and(|name| wanted.relative.is_match(name));
        let within = |other: &Grant| {
            let below = at.strip_prefix(&other.to).map(Path::ancestors);
            below.is_ok_and(|mut paths| paths.any(|path| wanted.matches(&other.to, path)))
        };
        let from = real(&place.from);
        let by_another_name = from.ancestors().any(|path| hidden.contains(path));
        if by_path || by_name || by_another_name || places.iter().any(within) {
            return Err(shown_and_hidden(at));
        }
    }
    Ok(())
}

fn shown_and_hidden(at: &Path) -> Error {
    Error::refused(Fault {
        id: "run/hide-shown",
        what: format!("`{}` is shown and hidden at once", crate::fault::show_text(&at.display().to_string())),
        place: "fs.hide".to_owned(),
        why: "the workspace or a grant lies there, whole, and a glob names it or a folder above it, here or in another tree that shows \
              it: to leave it out is to not grant it"
            .to_owned(),
        fix: "take the grant away, or correct the glob so that it names paths below it".to_owned(),
    })
}

/// What is looked for.
struct CoverPatterns {
    /// Globs that match a path below the tree.
    relative: GlobSet,
    /// Globs that match the path that it has inside.
    absolute: GlobSet,
    sockets: bool,
}

impl CoverPatterns {
    fn sockets() -> Self {
        Self { relative: GlobSet::empty(), absolute: GlobSet::empty(), sockets: true }
    }

    fn hidden(globs: &[String]) -> Result<Self, Error> {
        let (mut relative, mut absolute) = (GlobSetBuilder::new(), GlobSetBuilder::new());
        for glob in globs {
            let made = GlobBuilder::new(glob).literal_separator(true).build();
            let made = made.map_err(|e| failed(glob, &e.to_string()))?;
            if glob.starts_with('/') {
                absolute.add(made)
            } else {
                relative.add(made)
            };
        }
        let built = |set: GlobSetBuilder| set.build().map_err(|e| failed("fs.hide", &e.to_string()));
        Ok(Self { relative: built(relative)?, absolute: built(absolute)?, sockets: false })
    }

    /// What was found already in a tree, and what is below these folders of it.
    fn and_below(&self, found: &[PathBuf], rest: &[PathBuf], place: &Grant) -> Result<Vec<PathBuf>, Error> {
        let mut all = found.to_vec();
        for folder in rest {
            let below = self.below(&place.from.join(folder), &place.to.join(folder))?;
            all.extend(below.iter().map(|path| joined(folder, path)));
        }
        Ok(all)
    }

    fn matches(&self, at: &Path, path: &Path) -> bool {
        // Names need not be text, and globs match bytes.
        !path.as_os_str().as_bytes().is_empty()
            && (self.relative.is_match(path) || self.absolute.is_match(at.join(path)))
    }

    /// Where it is below a tree of the host, relative to it. There is nothing below a file.
    fn below(&self, root: &Path, at: &Path) -> Result<Vec<PathBuf>, Error> {
        let mut walk = Walk { root, at, wanted: self, seen: 0, found: Vec::new() };
        let kind = root.metadata().map_err(|e| failed(&root.display().to_string(), &e.to_string()))?;
        if kind.is_dir() {
            walk.folder(Path::new(""), 0)?;
        }
        Ok(walk.found)
    }
}

struct Walk<'a> {
    root: &'a Path,
    at: &'a Path,
    wanted: &'a CoverPatterns,
    seen: usize,
    found: Vec<PathBuf>,
}

impl Walk<'_> {
    fn folder(&mut self, below: &Path, depth: usize) -> Result<(), Error> {
        let place = self.root.join(below);
        let shown = place.display().to_string();
        if depth > MAX_DEPTH {
            return Err(failed(&shown, "it is too deep to be searched"));
        }
        let entries = std::fs::read_dir(&place).map_err(|e| failed(&shown, &e.to_string()))?;
        for entry in entries {
            let entry = entry.map_err(|e| failed(&shown, &e.to_string()))?;
            self.seen += 1;
            if self.seen > MAX {
                return Err(failed(&shown, "the tree has too many paths to be searched"));
            }
            let path = below.join(entry.file_name());
            let kind = entry.file_type().map_err(|e| failed(&shown, &e.to_string()))?;
            if self.wanted.matches(self.at, &path) || (self.wanted.sockets && kind.is_socket()) {
                self.found.push(path);
                continue;
            }
            // A link is not followed: what it leads to is searched where it lies, or is not shown.
            if kind.is_dir() {
                self.folder(&path, depth + 1)?;
            }
        }
        Ok(())
    }
}

fn failed(what: &str, why: &str) -> Error {
    Error::refused(Fault {
        id: "run/hide",
        what: format!("what is to be covered cannot be: `{}`", crate::fault::show_text(what)),
        place: "the workspace and the grants".to_owned(),
        why: why.to_lowercase(),
        fix: "make the folder readable, name a smaller tree, or correct the glob; sockets need no search with `fs.sockets` false".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for file in [".env", "a/.env", "a/b/key.pem", "a/b/keys.txt", "secret/x", "secret/y/.env"] {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        }
        root
    }

    fn found(root: &Path, at: &str, globs: &[&str]) -> Vec<PathBuf> {
        let globs: Vec<String> = globs.iter().map(|s| (*s).to_owned()).collect();
        let mut found = CoverPatterns::hidden(&globs).unwrap().below(root, Path::new(at)).unwrap();
        found.sort();
        found
    }

    #[test]
    fn globs_name_files_at_every_depth_and_folders_whole() {
        let root = tree();
        let all = found(root.path(), "/w", &["**/.env", "**/*.pem", "secret"]);
        assert_eq!(all, [".env", "a/.env", "a/b/key.pem", "secret"].map(PathBuf::from));
    }

    #[test]
    fn an_absolute_glob_names_the_path_inside() {
        let root = tree();
        assert_eq!(found(root.path(), "/w", &["/w/a/b/key.pem", "/x/.env"]), [PathBuf::from("a/b/key.pem")]);
    }

    #[test]
    fn what_another_tree_hides_is_hidden_by_its_other_name() {
        let root = tree();
        let hosts = BTreeSet::from(["secret", "a/b/key.pem"].map(|path| real(root.path()).join(path)));
        let both = |found: &[&str], at: &str| {
            below_both(found.iter().map(PathBuf::from).collect(), &root.path().join(at), &hosts)
        };
        assert_eq!(both(&["secret/x", "a/.env"], ""), ["a/.env", "a/b/key.pem", "secret"].map(PathBuf::from));
        assert_eq!(both(&[], "a"), [PathBuf::from("b/key.pem")]);
        assert!(both(&[], "secret").is_empty(), "that one is refused");
    }

    #[test]
    fn sockets_are_found_and_nothing_else() {
        let root = tree();
        let _listener = std::os::unix::net::UnixListener::bind(root.path().join("a/s")).unwrap();
        let all = CoverPatterns::sockets().below(root.path(), Path::new("/w")).unwrap();
        assert_eq!(all, [PathBuf::from("a/s")]);
    }
}
