//! Where the paths of a line lead on disk: links are followed as the kernel would, patterns become the names that are there.
//!
//! Text alone does not tell: `out/link/x` begins with `out`. So each path is judged twice, as it is written and as it resolves.
//!
//! *Does not promise*: that the names still lead there when the line runs, or that the line itself does not change them before.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

use super::block::matches_text;
use super::words::{Value, Word};
use crate::files::{self, FileType};

/// More links than this on the way are links without end; the kernel has the same bound.
const MAX_LINKS: usize = 40;
/// Names that are looked at for one pattern, or for one folder that is copied.
const MAX_NAMES: usize = 4096;

/// The tree that commands see, as far as it can be looked into.
#[derive(Debug)]
pub(super) struct Places {
    /// The folder where commands run, as they see it.
    root: PathBuf,
    /// The same folder as this process sees it; without it text is all there is.
    inspect: Option<PathBuf>,
    /// What `root` is when all links are followed, where this process sees it by the same name.
    canonical: Option<PathBuf>,
}

impl Places {
    pub(super) fn new(root: &Path, inspect: Option<&Path>) -> Self {
        let canonical = inspect.filter(|inspect| *inspect == root).and_then(files::canonical);
        Self { root: root.to_owned(), inspect: inspect.map(Path::to_owned), canonical }
    }

    /// A path of the commands, as this process sees it.
    pub(super) fn outside(&self, place: &Path) -> Option<PathBuf> {
        let inspect = self.inspect.as_ref()?;
        Some(match place.strip_prefix(&self.root) {
            Ok(rest) => inspect.join(rest),
            Err(_) => place.to_owned(),
        })
    }

    /// An absolute path without links and `..`; what is not there stands as written. None: links without end.
    pub(super) fn real(&self, place: &Path) -> Option<PathBuf> {
        if self.inspect.is_none() {
            return Some(lexical(place));
        }
        let (mut done, mut todo) = self.begin(place);
        let mut links = 0_usize;
        while let Some(part) = todo.pop_front() {
            if part == ".." {
                done.pop();
                continue;
            }
            done.push(&part);
            // The folder itself is where the policy says, whatever leads there.
            let target = if done == self.root { None } else { self.outside(&done).and_then(|at| files::link(&at)) };
            let Some(target) = target else { continue };
            links = links.saturating_add(1);
            if links > MAX_LINKS {
                return None;
            }
            done.pop();
            if target.is_absolute() {
                let (start, mut parts) = self.begin(&target);
                parts.append(&mut todo);
                (done, todo) = (start, parts);
            } else {
                parts(&target).into_iter().rev().for_each(|part| todo.push_front(part));
            }
        }
        if let Some(rest) = self.canonical.as_ref().and_then(|canonical| done.strip_prefix(canonical).ok()) {
            return Some(self.root.join(rest));
        }
        Some(done)
    }

    /// Where resolving starts: nothing on the way to the folder itself is looked at.
    fn begin(&self, place: &Path) -> (PathBuf, VecDeque<OsString>) {
        match place.strip_prefix(&self.root) {
            Ok(rest) => (self.root.clone(), parts(rest)),
            Err(_) => (PathBuf::from("/"), parts(place)),
        }
    }

    /// The paths that a word becomes in one folder: itself, or what its pattern matches. None: too many to look at.
    pub(super) fn expand(&self, folder: &Path, word: &Word) -> Option<Vec<PathBuf>> {
        let pattern = match &word.value {
            Value::Literal(text) => return Some(vec![folder.join(text)]),
            Value::Glob(pattern) => pattern,
            Value::One(_) | Value::Many => return None,
        };
        let absolute = matches!(pattern.first(), Some(('/', _)));
        let mut found = vec![if absolute { PathBuf::from("/") } else { folder.to_owned() }];
        let mut looked = 0_usize;
        for part in pattern.split(|(c, _)| *c == '/').filter(|part| !part.is_empty()) {
            let text: String = part.iter().map(|(c, _)| *c).collect();
            if !part.iter().any(|(_, active)| *active) {
                found.iter_mut().for_each(|place| place.push(&text));
                continue;
            }
            let mut next = Vec::new();
            for place in &found {
                let names = self.names(place)?;
                looked = looked.saturating_add(names.len());
                if looked > MAX_NAMES {
                    return None;
                }
                next.extend(names.iter().filter(|name| could_be(part, &text, name)).map(|name| place.join(name)));
            }
            // A pattern that matches nothing stays as it is.
            found = if next.is_empty() { found.into_iter().map(|place| place.join(&text)).collect() } else { next };
        }
        Some(found)
    }

    fn names(&self, place: &Path) -> Option<Vec<OsString>> {
        let Some(at) = self.real(place).and_then(|real| self.outside(&real)) else { return Some(Vec::new()) };
        files::names(&at, MAX_NAMES)
    }

    /// The first link below a folder that leads where `allowed` says no, or the folder itself if it is too big to look through.
    /// A path that is no folder has nothing below it.
    pub(super) fn link_out(&self, folder: &Path, allowed: impl Fn(&Path) -> bool) -> Option<PathBuf> {
        let Some(start) = self.real(folder) else { return Some(folder.to_owned()) };
        let mut todo = vec![start];
        let mut looked = 0_usize;
        while let Some(place) = todo.pop() {
            let Some(names) = self.names(&place) else { return Some(folder.to_owned()) };
            looked = looked.saturating_add(names.len());
            if looked > MAX_NAMES {
                return Some(folder.to_owned());
            }
            for inner in names.into_iter().map(|name| place.join(name)) {
                match self.outside(&inner).and_then(|at| files::facts(&at)).map(|facts| facts.kind) {
                    Some(FileType::Symlink) if !self.real(&inner).is_some_and(|real| allowed(&real)) => {
                        return Some(inner);
                    }
                    Some(FileType::Directory) => todo.push(inner),
                    Some(_) | None => {}
                }
            }
        }
        None
    }
}

/// Whether a pattern can match a name. What begins with a dot is matched by a pattern that does.
fn could_be(pattern: &[(char, bool)], text: &str, name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.starts_with('.') == text.starts_with('.') && matches_text(pattern, &name)
}

fn parts(path: &Path) -> VecDeque<OsString> {
    let part = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsStr::new("..").to_owned()),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    };
    path.components().filter_map(part).collect()
}

/// A path without `.`, `..` and double slashes, by its text alone.
pub(super) fn lexical(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            Component::RootDir | Component::Normal(_) | Component::Prefix(_) => out.push(part),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A folder as the commands see it at `/work`.
    fn world() -> (tempfile::TempDir, Places) {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("out/deep")).unwrap();
        for (target, name) in [
            ("..", "out/up"),
            ("/work/out", "abs"),
            ("/etc", "etc"),
            ("loop", "loop"),
            ("out", "in"),
            ("../../x", "far"),
        ] {
            symlink(target, root.path().join(name)).unwrap();
        }
        let places = Places::new(Path::new("/work"), Some(root.path()));
        (root, places)
    }

    #[test]
    fn links_are_followed_as_the_commands_see_them() {
        let (_root, places) = world();
        for (given, leads) in [
            ("/work/out/new/x", Some("/work/out/new/x")),
            ("/work/out/up/x", Some("/work/x")),
            ("/work/abs/x", Some("/work/out/x")),
            ("/work/in/deep/../y", Some("/work/out/y")),
            ("/work/etc/passwd", Some("/etc/passwd")),
            ("/work/far", Some("/x")),
            ("/work/../../..", Some("/")),
            ("/work/loop/x", None),
        ] {
            assert_eq!(places.real(Path::new(given)).as_deref(), leads.map(Path::new), "{given}");
        }
        let blind = Places::new(Path::new("/work"), None);
        assert_eq!(blind.real(Path::new("/work/etc/../x")).as_deref(), Some(Path::new("/work/x")));
    }

    #[test]
    fn links_below_a_folder_are_found() {
        let (_root, places) = world();
        let inside = |path: &Path| path.starts_with("/work/out");
        assert_eq!(places.link_out(Path::new("/work/out"), inside).as_deref(), Some(Path::new("/work/out/up")));
        assert_eq!(places.link_out(Path::new("/work/out/deep"), inside), None);
        assert_eq!(places.link_out(Path::new("/work/absent"), inside), None);
    }
}
