//! Paths beneath roots, resolved by the kernel and passed on as they resolved.
//!
//! *Promises*: the answer names an object that lay beneath a root when it was judged: `openat2(2)` with `RESOLVE_BENEATH` resolves
//! it, so that no text has to be cleaned and no link is trusted. Kind, extension, hidden names and number of names are those of
//! what was found, not of what was written. Control files are written by nobody: the list is the sandbox's own. Text that other programs decode into another path is refused.
//!
//! *Does not promise*: that the name still leads there when a tool in another process opens it. Whoever can rename files beneath a root
//! can exchange them after the check. Where that matters, the tool runs in a sandbox that sees the root alone, or takes the
//! descriptor of [`PathJudge::open`], which cannot be exchanged.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use policy::diagnostic::quote;
use policy::guards::{PathAccess, PathGuard};
use serde_json::Value as Json;

use super::{Flaws, Passed, text};
use crate::blocked::Blocked;
use crate::control_files::ControlFiles;
use crate::files::{self, Errno, FileMetadata, FileType};

const ID: &str = "tools.guard/path";
/// The kernel's own bounds.
const MAX_LENGTH: usize = 4095;
/// A resolution that raced with a rename is tried again this often.
const MAX_TRIES: u32 = 8;

/// `kind = "path"`, compiled.
#[derive(Debug)]
pub struct PathJudge {
    roots: Vec<PathBuf>,
    access: PathAccess,
    extensions: BTreeSet<String>,
    hide: GlobSet,
    control_files: ControlFiles,
}

/// What was judged, held open.
#[derive(Debug)]
pub struct Opened {
    /// Absolute, as the kernel resolved it.
    pub path: PathBuf,
    /// The object itself (`O_PATH`); for a write its parent folder.
    pub place: OwnedFd,
    /// For a write: the last name, to be opened below `place` with `O_NOFOLLOW`.
    pub name: Option<OsString>,
}

/// A refusal in the making: why.
type Why = String;

impl PathJudge {
    pub(crate) fn new(guard: &PathGuard, flaws: &mut Flaws<'_>) -> Option<Self> {
        let mut hide = GlobSetBuilder::new();
        for glob in &guard.hide {
            // Whatever the file system thinks of case, `.ENV` is hidden where `.env` is.
            match GlobBuilder::new(&glob.value).literal_separator(true).case_insensitive(true).build() {
                Ok(glob) => drop(hide.add(glob)),
                Err(error) => {
                    let what = format!("{} is not a glob", quote(&glob.value));
                    flaws.note(
                        glob.at,
                        "value/glob",
                        what,
                        error.kind().to_string(),
                        "escape literal characters as [*]",
                    );
                }
            }
        }
        let roots = guard.roots.iter().map(|root| root.value.clone()).collect();
        let hide = hide.build().map_err(|error| {
            if let Some(glob) = guard.hide.first() {
                flaws.note(
                    glob.at,
                    "value/glob",
                    "the globs cannot be compiled",
                    error.to_string(),
                    "use simpler ones",
                );
            }
        });
        let control_files = ControlFiles::of(flaws.documents);
        Some(Self {
            roots,
            access: guard.access,
            extensions: guard.extensions.clone(),
            hide: hide.ok()?,
            control_files,
        })
    }

    pub(crate) fn pass(&self, value: &Json) -> Result<Passed, Blocked> {
        let given = text(value, ID, "a path")?;
        let opened = self.open(given)?;
        match opened.path.to_str() {
            Some(path) => Ok(Json::String(path.to_owned())),
            None => Err(self.blocked(given, "it resolves to a name that is not text")),
        }
    }

    /// Judges a path, and keeps hold of what was judged: for tools that run in this process.
    ///
    /// # Errors
    /// Why it does not pass.
    pub fn open(&self, given: &str) -> Result<Opened, Blocked> {
        self.resolve(given).map_err(|why| self.blocked(given, &why))
    }

    fn resolve(&self, given: &str) -> Result<Opened, Why> {
        characters(given)?;
        let (root, rest) = self.root_of(Path::new(given))?;
        let folder = files::open_folder(root).map_err(|errno| match errno {
            Errno::LOOP => {
                format!("the way to the root {} leads over a link: the policy must name where it ends", shown(root))
            }
            errno => format!("the root {} cannot be opened: {errno}", shown(root)),
        })?;
        let base = files::path_of(&folder).map_err(unanswered)?;
        let opened = match self.access {
            PathAccess::Read => {
                let place = beneath(&folder, if rest.as_os_str().is_empty() { Path::new(".") } else { rest })?;
                self.judge_kind(&files::facts_of(&place).map_err(unanswered)?)?;
                Opened { path: files::path_of(&place).map_err(unanswered)?, place, name: None }
            }
            PathAccess::Write => self.resolve_write(&folder, given, rest)?,
        };
        let Ok(inner) = opened.path.strip_prefix(&base) else {
            return Err(format!("it resolves to {}, outside of the roots", shown(&opened.path)));
        };
        self.judge_name(inner, &opened.path)?;
        if self.access == PathAccess::Write
            && let Some(why) = self.control_files.why(inner, Some(&opened.path))
        {
            return Err(format!("it resolves to {}, and {why}", shown(&opened.path)));
        }
        Ok(opened)
    }

    /// The parent is resolved; the last name is taken as it is, and is no link.
    fn resolve_write(&self, folder: &OwnedFd, given: &str, rest: &Path) -> Result<Opened, Why> {
        let (Some(Component::Normal(name)), false) = (rest.components().next_back(), given.ends_with('/')) else {
            return Err("a write needs a name below a root, without `/`, `.` or `..` at its end".to_owned());
        };
        if given.ends_with("/.") {
            return Err("a write needs a name at its end, not `.`".to_owned());
        }
        let parent = rest.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let place = beneath(folder, parent)?;
        if files::facts_of(&place).map_err(unanswered)?.kind != FileType::Directory {
            return Err("what it lies in is no folder".to_owned());
        }
        match files::open_beneath_without_links(&place, Path::new(name)) {
            Ok(there) => self.judge_kind(&files::facts_of(&there).map_err(unanswered)?)?,
            Err(Errno::NOENT) => {}
            Err(Errno::LOOP) => {
                return Err("its last part is a link: what would be written lies elsewhere".to_owned());
            }
            Err(errno) => return Err(unanswered(errno)),
        }
        let path = files::path_of(&place).map_err(unanswered)?.join(name);
        Ok(Opened { path, place, name: Some(name.to_owned()) })
    }

    /// The root that an absolute path names by whole parts; a relative one starts at the first root.
    fn root_of<'p>(&'p self, path: &'p Path) -> Result<(&'p Path, &'p Path), Why> {
        if !path.is_absolute() {
            return self.roots.first().map(|root| (root.as_path(), path)).ok_or_else(|| "there is no root".to_owned());
        }
        let below = |root: &'p PathBuf| path.strip_prefix(root).ok().map(|rest| (root.as_path(), rest));
        // The deepest root counts, where one lies in another.
        let found = self.roots.iter().filter_map(below).max_by_key(|(root, _)| root.components().count());
        found.ok_or_else(|| "it does not begin with one of the roots".to_owned())
    }

    fn judge_kind(&self, facts: &FileMetadata) -> Result<(), Why> {
        match facts.kind {
            FileType::RegularFile if facts.links > 1 => {
                Err(format!("the file has {} names: another may lie outside of the roots", facts.links))
            }
            FileType::RegularFile => Ok(()),
            FileType::Directory if self.extensions.is_empty() => Ok(()),
            FileType::Directory => Err("it is a folder".to_owned()),
            FileType::Symlink => Err("it is a link".to_owned()),
            FileType::Socket
            | FileType::Fifo
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => Err("it is a socket, a pipe or a device, and no file".to_owned()),
        }
    }

    fn judge_name(&self, inner: &Path, whole: &Path) -> Result<(), Why> {
        let hidden = |part: &&Path| !part.as_os_str().is_empty() && self.hide.is_match(part);
        if let Some(part) = inner.ancestors().find(hidden) {
            return Err(format!("it resolves to {}, and {} is hidden", shown(whole), shown(part)));
        }
        if self.extensions.is_empty() {
            return Ok(());
        }
        let name = whole.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let fits = |ext: &String| name.len() > ext.len() && name.ends_with(ext.as_str());
        if self.extensions.iter().any(fits) {
            return Ok(());
        }
        Err(format!("it resolves to {}, which has another extension", shown(whole)))
    }

    fn blocked(&self, given: &str, why: &str) -> Blocked {
        let roots: Vec<String> = self.roots.iter().map(|root| shown(root)).collect();
        let kind = match self.extensions.iter().map(|ext| quote(ext)).collect::<Vec<_>>() {
            list if list.is_empty() => String::new(),
            list => format!(" that ends with {}", list.join(" or ")),
        };
        let instead = format!("a path{kind} beneath {}", roots.join(" or "));
        Blocked::new(ID, format!("{} does not pass as a path", quote(given)), why, instead)
    }
}

fn shown(path: &Path) -> String {
    quote(&path.to_string_lossy())
}

/// What other programs would decode, expand or cut.
fn characters(given: &str) -> Result<(), Why> {
    let said = |why: &str| Err(why.to_owned());
    if given.is_empty() || given.len() > MAX_LENGTH {
        return said("a path has 1 to 4095 bytes");
    }
    if given.contains('\0') {
        return said("it has a NUL, at which the kernel ends it");
    }
    if given.chars().any(char::is_control) {
        return said("it has a control character");
    }
    if given.contains('\\') {
        return said("it has a backslash, which other systems read as `/`");
    }
    if given.starts_with('~') {
        return said("`~` is not replaced");
    }
    if given.starts_with("//") {
        return said("a path of two slashes names another machine on other systems");
    }
    let escape = |(at, _): (usize, &str)| {
        let rest: Vec<char> = given.get(at + 1..).unwrap_or_default().chars().take(2).collect();
        rest.len() == 2 && rest.iter().all(char::is_ascii_hexdigit)
    };
    if given.match_indices('%').any(escape) {
        return said("it has an escape such as `%2e`, which some programs decode");
    }
    let scheme = given.split('/').next().and_then(|first| first.split_once(':')).map(|(scheme, _)| scheme);
    if scheme.is_some_and(|scheme| !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric())) {
        return said("it begins as a URL or a drive does");
    }
    let cut = |part: &str| part != "." && part != ".." && (part.ends_with(['.', ' ']) || part.starts_with(' '));
    if given.split('/').any(cut) {
        return said("a part of it begins with a blank, or ends with a blank or a dot, which some systems cut off");
    }
    Ok(())
}

fn unanswered(errno: Errno) -> Why {
    format!("the kernel answers: {errno}")
}

fn beneath(folder: &OwnedFd, rest: &Path) -> Result<OwnedFd, Why> {
    let mut tries = 0;
    loop {
        match files::open_beneath(folder, rest) {
            Ok(place) => return Ok(place),
            Err(Errno::AGAIN) if tries < MAX_TRIES => tries += 1,
            Err(errno) => {
                return Err(match errno {
                    Errno::XDEV => "it leads out of the root, by `..` or by a link".to_owned(),
                    Errno::LOOP => "it has a link of `/proc`, or too many links".to_owned(),
                    Errno::NOENT => "there is no such file".to_owned(),
                    Errno::NOTDIR => "a part of it is no folder".to_owned(),
                    errno => unanswered(errno),
                });
            }
        }
    }
}
