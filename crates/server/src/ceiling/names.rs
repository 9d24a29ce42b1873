//! What a ceiling says of names inside: `fs.hide` and `fs.exec`. Both are held by where something is shown, so a part of a grant,
//! or the same file under another name, would not be what they speak of.

use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};
use policy::value::Fs;

/// Letters of a glob that stand for something else, with which its parts may be no longer those of a path.
const GROUPS: [char; 3] = ['{', '[', '\\'];

/// What a ceiling hides and lets be executed.
pub(super) struct Names<'a> {
    /// None where a glob cannot be read, and then nothing is known to be left visible.
    globs: Option<Vec<GlobMatcher>>,
    exec: &'a [PathBuf],
    /// It says neither.
    is_silent: bool,
}

impl<'a> Names<'a> {
    pub(super) fn of(ceiling: &'a Fs) -> Self {
        let read = |glob: &String| GlobBuilder::new(glob).literal_separator(true).build().ok();
        let globs = ceiling.hide.iter().map(|glob| Some(read(glob)?.compile_matcher())).collect();
        let is_silent = ceiling.hide.is_empty() && ceiling.exec.is_none();
        Self { globs, exec: ceiling.exec.as_deref().unwrap_or_default(), is_silent }
    }

    /// Whether a grant may be asked for that is `below` a ceiling's and is to be seen at `at`, where the ceiling itself would show
    /// it at `there`.
    pub(super) fn let_grant(&self, below: &Path, there: &Path, at: &Path) -> bool {
        self.is_silent || (at == there && self.leave(below, there, at))
    }

    /// The same of a workspace, which may begin further below: `top` is where the ceiling shows its own.
    pub(super) fn let_workspace(&self, below: &Path, (top, there): (&Path, &Path), at: &Path) -> bool {
        let is_no_program = at == there || (at == top && self.are_none_below(top));
        self.is_silent || ((self.exec.is_empty() || is_no_program) && self.leave(below, there, at))
    }

    /// Whether a workspace that is empty at first may be seen there: what is written to it could stand for a program of the list.
    pub(super) fn let_empty(&self, top: Option<&Path>, at: &Path) -> bool {
        let is_known = top == Some(at) || at == Path::new("/workspace");
        self.exec.is_empty() || (is_known && self.are_none_below(at))
    }

    fn are_none_below(&self, place: &Path) -> bool {
        !self.exec.iter().any(|program| program.starts_with(place))
    }

    /// Whether nothing that the ceiling hides is seen there.
    fn leave(&self, below: &Path, there: &Path, at: &Path) -> bool {
        let Some(globs) = &self.globs else { return false };
        !globs.iter().any(|glob| is_of(glob, below, there) || reaches_into(glob, below, (there, at)))
    }
}

/// Whether a glob of a ceiling names what is `below` its grant and seen at `there`, or a folder above it.
fn is_of(glob: &GlobMatcher, below: &Path, there: &Path) -> bool {
    if glob.glob().glob().starts_with('/') {
        return there.ancestors().any(|path| glob.is_match(path));
    }
    below.ancestors().filter(|path| *path != Path::new("")).any(|path| glob.is_match(path))
}

/// Whether a glob of a ceiling may name something deeper, which the same glob in the policy that is asked for would not name.
fn reaches_into(glob: &GlobMatcher, below: &Path, (there, at): (&Path, &Path)) -> bool {
    let text = glob.glob().glob();
    match text.strip_prefix('/') {
        Some(rest) => at != there && reaches(rest, there.strip_prefix("/").unwrap_or(there)),
        None => below != Path::new("") && reaches(text, below),
    }
}

/// Whether a glob may name something below a place that the same glob, counted from that place on, would not name. Where that is
/// not plain it is taken to be so.
fn reaches(glob: &str, place: &Path) -> bool {
    let parts: Vec<&str> = glob.split('/').collect();
    // A name at any depth is found from everywhere.
    if let ["**", name] = parts.as_slice()
        && *name != "**"
    {
        return false;
    }
    let mut names = place.components();
    for part in parts {
        let Some(name) = names.next() else { return true };
        if part == "**" || part.contains(GROUPS) {
            return true;
        }
        // A part with `*` or `?` is one name all the same, and may be this one.
        if !part.contains(['*', '?']) && name.as_os_str() != part {
            return false;
        }
    }
    // It ends at the place or above it, where it was looked for.
    false
}
