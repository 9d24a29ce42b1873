//! What `COPY` takes: files of the folder, without those that `.dockerignore` names, or of another tree.

use std::path::{Component, Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use sandbox::state::{Cross, Dir};
use sha2::{Digest as _, Sha256};

use super::tree::{CopyOptions, Problem, copy_chosen, copy_one, folder_at, found};
use crate::dockerfile::Copy;
use crate::error::ImageError;

/// Largest list of what is left out.
const MAX_IGNORE: u64 = 1 << 20;

/// The folder of a build.
#[derive(Debug)]
pub(super) struct Context {
    dir: Dir,
    ignored: Vec<Ignored>,
}

/// One line of `.dockerignore`.
#[derive(Debug)]
struct Ignored {
    /// `!`: what it matches is taken all the same.
    but: bool,
    matcher: GlobMatcher,
}

impl Context {
    pub(super) fn open(path: &Path) -> Result<Self, ImageError> {
        let io = |errno| ImageError::Io { path: path.to_owned(), errno };
        let dir = Dir::open(path).map_err(io)?;
        let text = match dir.read(".dockerignore", MAX_IGNORE) {
            Err(Errno::NOENT) => Vec::new(),
            other => other.map_err(io)?,
        };
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let ignored = lines.map(|line| {
            let (but, pattern) = line.strip_prefix('!').map_or((false, line), |rest| (true, rest.trim()));
            let pattern = pattern.trim_matches('/').trim_start_matches("./");
            let why = |why: String| ImageError::NotAnImage { path: path.join(".dockerignore"), why };
            glob(pattern, true).map(|matcher| Ignored { but, matcher }).map_err(why)
        });
        Ok(Self { dir, ignored: ignored.collect::<Result<_, _>>()? })
    }

    /// Whether a path of the folder, or one above it, is left out; the last line that matches counts.
    fn leaves_out(&self, path: &Path) -> bool {
        let matches = |one: &&Ignored| path.ancestors().any(|part| one.matcher.is_match(part));
        self.ignored.iter().rfind(matches).is_some_and(|one| !one.but)
    }

    /// Whether something below a folder that is left out may be taken all the same.
    fn enters(&self) -> bool {
        self.ignored.iter().any(|one| one.but)
    }
}

/// `*` and `?` stand for no `/`; where `deep` is set, `**` does.
fn glob(pattern: &str, deep: bool) -> Result<GlobMatcher, String> {
    let pattern = as_docker_means(pattern, deep)?;
    let built = GlobBuilder::new(&pattern).literal_separator(true).backslash_escape(true).build();
    built.map(|glob| glob.compile_matcher()).map_err(|error| error.kind().to_string())
}

/// A pattern in which nothing is special that Docker takes for letters: braces, and `!` in front of a class.
fn as_docker_means(pattern: &str, deep: bool) -> Result<String, String> {
    if deep && pattern.split('/').any(|part| part.contains("**") && part != "**") {
        return Err("`**` is known as a whole part of a path alone".to_owned());
    }
    let (mut out, mut class, mut mark) = (String::new(), false, false);
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                out.push(c);
                out.extend(chars.next());
            }
            '[' if !class => {
                class = true;
                out.push(c);
                mark = chars.next_if_eq(&'!').is_some();
            }
            ']' if class => {
                out.extend(std::mem::take(&mut mark).then_some('!'));
                class = false;
                out.push(c);
            }
            '{' | '}' if !class => out.extend(['[', c, ']']),
            '*' if !class && !deep && out.ends_with('*') => {}
            _ => out.push(c),
        }
    }
    Ok(out)
}

/// Where something is taken from.
pub(super) enum Source<'a> {
    Folder(&'a Context),
    Tree(&'a Dir),
}

/// One thing that is copied: a file, or what a folder holds.
#[derive(Debug)]
pub(super) struct Taken {
    path: PathBuf,
    folder: bool,
}

impl Source<'_> {
    fn dir(&self) -> &Dir {
        match self {
            Self::Folder(context) => &context.dir,
            Self::Tree(dir) => dir,
        }
    }

    fn takes(&self, path: &Path) -> bool {
        match self {
            Self::Folder(context) => !context.leaves_out(path),
            Self::Tree(_) => true,
        }
    }

    /// Whether a folder is entered.
    fn enters(&self, path: &Path) -> bool {
        match self {
            Self::Folder(context) => context.enters() || !context.leaves_out(path),
            Self::Tree(_) => true,
        }
    }

    /// What a `COPY` takes.
    pub(super) fn taken(&self, copy: &Copy) -> Result<Vec<Taken>, Problem> {
        let mut all = Vec::new();
        for source in &copy.sources {
            let before = all.len();
            self.one(source, &mut all)?;
            if all.len() == before {
                return Err(Problem::Words(format!("nothing there is called `{source}`, or all of it is left out")));
            }
        }
        if copy.add {
            all.iter().filter(|taken| !taken.folder).try_for_each(|taken| self.no_archive(taken))?;
        }
        Ok(all)
    }

    fn one(&self, source: &str, all: &mut Vec<Taken>) -> Result<(), Problem> {
        let path = plain(source).ok_or_else(|| Problem::Words(format!("`{source}` leads out of the folder")))?;
        if source.contains(['*', '?', '[']) {
            let matcher = glob(&path.to_string_lossy(), false).map_err(Problem::Words)?;
            return self.matching(&matcher, Path::new(""), path.components().count(), all);
        }
        let real = match self {
            // A program's own links are followed as it would.
            Self::Tree(dir) => found(dir, &path)?,
            Self::Folder(_) => path,
        };
        if real == Path::new("") {
            all.push(Taken { path: real, folder: true });
            return Ok(());
        }
        if let Some(folder) = self.kind(&real)? {
            all.extend(Some(Taken { path: real, folder }).filter(|taken| folder || self.takes(&taken.path)));
        }
        Ok(())
    }

    /// Whether something is a folder; `None` if it is not there.
    fn kind(&self, path: &Path) -> Result<Option<bool>, Problem> {
        let kernel = |errno| Problem::Kernel(path.to_owned(), errno);
        let above = path.parent().filter(|above| *above != Path::new("")).unwrap_or(Path::new("."));
        let above = match self.dir().enter(above, Cross::No) {
            Err(Errno::NOENT) => return Ok(None),
            other => other.map_err(kernel)?,
        };
        let kind = above.kind(path.file_name().unwrap_or_default()).map_err(kernel)?;
        Ok(kind.map(|kind| kind == FileType::Directory))
    }

    fn matching(&self, matcher: &GlobMatcher, at: &Path, deep: usize, all: &mut Vec<Taken>) -> Result<(), Problem> {
        let kernel = |errno| Problem::Kernel(at.to_owned(), errno);
        let dir = self.dir().enter(if at == Path::new("") { Path::new(".") } else { at }, Cross::No).map_err(kernel)?;
        for (name, kind) in dir.kinds().map_err(kernel)? {
            let path = at.join(&name);
            let folder = kind == FileType::Directory;
            if matcher.is_match(&path) && (folder || self.takes(&path)) {
                all.push(Taken { path, folder });
            } else if folder && path.components().count() < deep {
                self.matching(matcher, &path, deep, all)?;
            }
        }
        Ok(())
    }

    /// `ADD` would unpack it.
    fn no_archive(&self, taken: &Taken) -> Result<(), Problem> {
        const BEGINNINGS: [&[u8]; 4] = [b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd"];
        let bytes = self.beginning(&taken.path)?;
        let tar = bytes.get(257..262) == Some(b"ustar");
        if tar || BEGINNINGS.iter().any(|known| bytes.starts_with(known)) {
            return Err(Problem::Words(format!(
                "`{}` is an archive, which ADD would unpack: COPY it, and unpack it with RUN",
                taken.path.display()
            )));
        }
        Ok(())
    }

    fn beginning(&self, path: &Path) -> Result<Vec<u8>, Problem> {
        use std::io::Read as _;
        let kernel = |errno| Problem::Kernel(path.to_owned(), errno);
        let file = self.dir().open_file(path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).map_err(kernel)?;
        let mut bytes = Vec::new();
        let read = file.take(512).read_to_end(&mut bytes);
        read.map_err(|error| kernel(sandbox::state::errno_of(&error)))?;
        Ok(bytes)
    }

    /// Puts everything that is copied into a digest: names, kinds, modes and contents.
    pub(super) fn digest(&self, taken: &[Taken], hash: &mut Sha256) -> Result<(), Problem> {
        for one in taken {
            hash.update([u8::from(one.folder)]);
            self.digest_of(&one.path, one.folder, hash)?;
        }
        Ok(())
    }

    fn digest_of(&self, path: &Path, folder: bool, hash: &mut Sha256) -> Result<(), Problem> {
        let kernel = |errno| Problem::Kernel(path.to_owned(), errno);
        let text = path.as_os_str().as_encoded_bytes();
        hash.update(u64::try_from(text.len()).unwrap_or(u64::MAX).to_le_bytes());
        hash.update(text);
        if !folder {
            let above = path.parent().filter(|above| *above != Path::new("")).unwrap_or(Path::new("."));
            let above = self.dir().enter(above, Cross::No).map_err(kernel)?;
            return crate::check::sum_of(&above, path.file_name().unwrap_or_default(), hash).map_err(kernel);
        }
        let dir =
            self.dir().enter(if path == Path::new("") { Path::new(".") } else { path }, Cross::No).map_err(kernel)?;
        hash.update((rustix::fs::fstat(&dir).map_err(kernel)?.st_mode & 0o7777).to_le_bytes());
        for (name, kind) in dir.kinds().map_err(kernel)? {
            let below = path.join(&name);
            let folder = kind == FileType::Directory;
            if if folder { self.enters(&below) } else { self.takes(&below) } {
                self.digest_of(&below, folder, hash)?;
            }
        }
        Ok(())
    }

    /// Copies it to its place in a tree.
    pub(super) fn copy(&self, taken: &[Taken], copy: &Copy, workdir: &str, root: &Dir) -> Result<(), Problem> {
        let how = CopyOptions { mode: copy.chmod };
        let to = Path::new(workdir).join(&copy.to);
        let place = found(root, &to)?;
        let into = copy.to.ends_with('/') || copy.to == "." || taken.len() > 1 || is_folder(root, &place);
        if taken.len() > 1 && !copy.to.ends_with('/') && !is_folder(root, &place) {
            return Err(Problem::Words("more than one thing is copied, so its last word must end in `/`".to_owned()));
        }
        for one in taken {
            if one.folder {
                let kernel = |errno| Problem::Kernel(one.path.clone(), errno);
                let from = if one.path == Path::new("") { Path::new(".") } else { &one.path };
                let from = self.dir().enter(from, Cross::No).map_err(kernel)?;
                let made = folder_at(root, &place)?;
                let all = |path: &Path| if is_folder(self.dir(), path) { self.enters(path) } else { self.takes(path) };
                copy_chosen(&from, &made, &one.path, how, &all)?;
                continue;
            }
            let kernel = |errno| Problem::Kernel(one.path.clone(), errno);
            let name = one.path.file_name().unwrap_or_default();
            let above = one.path.parent().filter(|above| *above != Path::new("")).unwrap_or(Path::new("."));
            let from = self.dir().enter(above, Cross::No).map_err(kernel)?;
            let (folder, called) = match (into, place.file_name()) {
                (false, Some(called)) => (place.parent().unwrap_or(Path::new("")), called),
                (true, _) | (false, None) => (place.as_path(), name),
            };
            copy_one(&from, name, &folder_at(root, folder)?, called, how)?;
        }
        Ok(())
    }
}

fn is_folder(root: &Dir, path: &Path) -> bool {
    root.enter(if path == Path::new("") { Path::new(".") } else { path }, Cross::No).is_ok()
}

/// A path of the folder without `.`; none that leads out of it.
fn plain(text: &str) -> Option<PathBuf> {
    let mut path = PathBuf::new();
    for part in Path::new(text).components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_docker_means_by_them() {
        for (pattern, deep, meant, others) in [
            ("{a}", true, &["{a}"][..], &["a"][..]),
            ("{a,b}*", true, &["{a,b}c"], &["a", "b"]),
            ("[{}]x", true, &["{x", "}x"], &["x"]),
            ("[!a]", true, &["!", "a"], &["b"]),
            ("[^a]", true, &["b", "!"], &["a"]),
            ("[!a-c]x", false, &["bx", "!x"], &["dx"]),
            ("\\{a\\*", true, &["{a*"], &["{ab"]),
            ("**/x", true, &["x", "a/b/x"], &["ax"]),
            ("a/**", true, &["a/b", "a/b/c"], &["b"]),
            ("**/x", false, &["a/x"], &["x", "a/b/x"]),
            ("a?/*.pem", false, &["ab/k.pem"], &["a/k.pem", "ab/c/k.pem"]),
        ] {
            let matcher = glob(pattern, deep).unwrap();
            assert!(meant.iter().all(|path| matcher.is_match(path)), "{pattern}: {meant:?}");
            assert!(!others.iter().any(|path| matcher.is_match(path)), "{pattern}: {others:?}");
        }
        for bad in ["a**b", "**x/y", "[a", "[!]"] {
            assert!(glob(bad, true).is_err(), "{bad}");
        }
    }
}
