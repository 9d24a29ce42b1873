//! A tree that layers are put into: each name is walked to beneath its folder, through no link and no `..`.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;
use sandbox::state::{Cross, Dir};

/// Most parts of a name; so deep a tree can be walked with one descriptor for each level.
const MAX_PARTS: usize = 256;
/// Longest name, bytes.
const MAX_NAME: usize = 4096;

/// Why an entry is not made.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    Refused(&'static str),
    Call(Errno),
}

impl From<Errno> for Problem {
    fn from(errno: Errno) -> Self {
        match errno {
            // With O_DIRECTORY the kernel tells of a link by either.
            Errno::LOOP | Errno::NOTDIR => Self::Refused("a link or a file stands in its way"),
            Errno::NAMETOOLONG => Self::Refused("a part of its name is too long"),
            Errno::XDEV => Self::Refused("its name leads out of the tree"),
            other => Self::Call(other),
        }
    }
}

/// A name below the root: its folder, and its last part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TreePath {
    parts: Vec<Vec<u8>>,
}

impl TreePath {
    /// `None`: the root itself.
    pub(crate) fn new(name: &[u8]) -> Result<Option<Self>, Problem> {
        if name.starts_with(b"/") {
            return Err(Problem::Refused("its name is absolute"));
        }
        if name.len() > MAX_NAME || name.contains(&0) {
            return Err(Problem::Refused("its name is too long, or has a zero byte"));
        }
        let parts = name.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
        let parts: Vec<Vec<u8>> = parts.map(<[u8]>::to_vec).collect();
        if parts.iter().any(|part| part == b"..") {
            return Err(Problem::Refused("its name has `..`"));
        }
        if parts.len() > MAX_PARTS {
            return Err(Problem::Refused("its name has too many parts"));
        }
        Ok(if parts.is_empty() { None } else { Some(Self { parts }) })
    }

    pub(crate) fn last(&self) -> &[u8] {
        self.parts.last().map_or(b"", Vec::as_slice)
    }

    pub(crate) fn name(&self) -> &OsStr {
        OsStr::from_bytes(self.last())
    }

    pub(crate) fn folders(&self) -> &[Vec<u8>] {
        self.parts.split_last().map_or(&[], |(_, above)| above)
    }

    pub(crate) fn sibling(&self, name: &[u8]) -> Self {
        let mut parts = self.folders().to_vec();
        parts.push(name.to_vec());
        Self { parts }
    }

    fn path(&self) -> Vec<u8> {
        self.parts.join(&b'/')
    }

    fn above(&self) -> PathBuf {
        PathBuf::from(OsStr::from_bytes(&self.folders().join(&b'/')))
    }
}

/// Most folders that are made though no entry names them: a short name makes many, and no size is said of them.
const MAX_IMPLIED: u32 = 65_536;

/// Most bytes of the names of one layer, which are kept until it ends: a header costs nothing where many are alike.
const MAX_NAMES: usize = 256 << 20;

/// Most names that whiteouts look through, all together: each of many could look through all of a tree.
const MAX_LOOKED: u64 = 8_000_000;

/// The tree, and what the layer at hand has put into it.
pub(crate) struct Tree<'a> {
    root: &'a Dir,
    /// Its names; of a folder that an entry names, the time that it gets when all is in it.
    made: BTreeMap<Vec<u8>, Option<i64>>,
    /// Bytes of those names.
    names: usize,
    most_names: usize,
    /// Folders that no entry names and that had to be made.
    implied: u32,
    /// Names that whiteouts have looked through.
    looked: Cell<u64>,
    most_looked: u64,
}

impl<'a> Tree<'a> {
    pub(crate) fn new(root: &'a Dir) -> Self {
        let (made, names, most_names) = (BTreeMap::new(), 0, MAX_NAMES);
        Self { root, made, names, most_names, implied: 0, looked: Cell::new(0), most_looked: MAX_LOOKED }
    }

    /// Begins a layer: what is there now is of lower ones.
    pub(crate) fn begin(&mut self) {
        self.made.clear();
        self.names = 0;
    }

    /// Ends a layer: its folders get their times, if they are still there.
    pub(crate) fn end(&mut self) -> Result<(), (Vec<u8>, Problem)> {
        for (path, seconds) in std::mem::take(&mut self.made) {
            if let Some(seconds) = seconds
                && let Err(problem) = self.date(&path, seconds)
            {
                return Err((path, problem));
            }
        }
        Ok(())
    }

    /// Puts a name to those of the layer; `false` if it was there.
    fn notes(&mut self, path: Vec<u8>, seconds: Option<i64>) -> Result<bool, Problem> {
        let length = path.len();
        if let Some(known) = self.made.get_mut(&path) {
            *known = seconds.or(*known);
            return Ok(false);
        }
        self.names = self.names.saturating_add(length);
        if self.names > self.most_names {
            return Err(Problem::Refused("the names of its layer are too long, all together"));
        }
        self.made.insert(path, seconds);
        Ok(true)
    }

    pub(crate) fn root(&self) -> &Dir {
        self.root
    }

    /// The folder of a place; missing ones are made.
    fn above(&mut self, place: &TreePath) -> Result<Dir, Problem> {
        let path = place.above();
        let folder = match self.root.enter(&path, Cross::No) {
            Err(Errno::NOENT) => self.make_above(place)?,
            other => other?,
        };
        let mut parts = place.folders();
        while !parts.is_empty() && self.notes(parts.join(&b'/'), None)? {
            parts = parts.split_last().map_or(&[], |(_, above)| above);
        }
        Ok(folder)
    }

    fn make_above(&mut self, place: &TreePath) -> Result<Dir, Problem> {
        let mut folder = self.root.enter(".", Cross::No)?;
        for part in place.folders() {
            let name = OsStr::from_bytes(part);
            folder = match folder.enter(Path::new(name), Cross::No) {
                Err(Errno::NOENT) => {
                    self.implied = self.implied.saturating_add(1);
                    if self.implied > MAX_IMPLIED {
                        return Err(Problem::Refused("its layers leave out too many folders of their entries"));
                    }
                    rustix::fs::mkdirat(&folder, name, Mode::RWXU)?;
                    let made = folder.enter(Path::new(name), Cross::No)?;
                    // Whatever the caller's umask is.
                    rustix::fs::fchmod(&made, Mode::from_raw_mode(0o755))?;
                    made
                }
                other => other?,
            };
        }
        Ok(folder)
    }

    /// The folder of a new entry that is no folder, with nothing in its place.
    fn room_for(&mut self, place: &TreePath) -> Result<Dir, Problem> {
        if self.made.contains_key(&place.path()) {
            return Err(Problem::Refused("its layer has the name twice"));
        }
        let folder = self.above(place)?;
        folder.remove_tree(place.name())?;
        self.notes(place.path(), None)?;
        Ok(folder)
    }

    pub(crate) fn file(&mut self, place: &TreePath) -> Result<File, Problem> {
        let folder = self.room_for(place)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        Ok(folder.open_file(place.name(), flags, Mode::from_raw_mode(0o600))?)
    }

    /// A folder, which may be there: then what is in it stays. Its time it gets at the end.
    pub(crate) fn folder(&mut self, place: &TreePath, mode: u32, seconds: i64) -> Result<(), Problem> {
        let folder = self.above(place)?;
        if folder.kind(place.name())? != Some(FileType::Directory) {
            if self.made.contains_key(&place.path()) {
                return Err(Problem::Refused("its layer has the name twice"));
            }
            folder.remove_tree(place.name())?;
            rustix::fs::mkdirat(&folder, place.name(), Mode::RWXU)?;
        }
        let own = folder.enter(Path::new(place.name()), Cross::No)?;
        rustix::fs::fchmod(&own, Mode::from_raw_mode(mode))?;
        self.notes(place.path(), Some(seconds)).map(drop)
    }

    pub(crate) fn symlink(&mut self, place: &TreePath, target: &[u8], seconds: i64) -> Result<(), Problem> {
        if target.is_empty() || target.len() >= MAX_NAME || target.contains(&0) {
            return Err(Problem::Refused("it is a link with an impossible target"));
        }
        let folder = self.room_for(place)?;
        rustix::fs::symlinkat(target, &folder, place.name())?;
        rustix::fs::utimensat(&folder, place.name(), &times(seconds), AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(())
    }

    /// One more name of what is there.
    pub(crate) fn link(&mut self, place: &TreePath, target: &TreePath) -> Result<(), Problem> {
        if place == target {
            return Err(Problem::Refused("it is a link to itself"));
        }
        let from = match self.root.enter(target.above(), Cross::No) {
            Err(Errno::NOENT) => return Err(Problem::Refused("it is a link to nothing")),
            other => other?,
        };
        match from.kind(target.name())? {
            Some(FileType::RegularFile | FileType::Symlink) => {}
            Some(
                FileType::Directory
                | FileType::Fifo
                | FileType::Socket
                | FileType::CharacterDevice
                | FileType::BlockDevice
                | FileType::Unknown,
            ) => return Err(Problem::Refused("it is a hard link to what is no file")),
            None => return Err(Problem::Refused("it is a link to nothing")),
        }
        let folder = self.room_for(place)?;
        match rustix::fs::linkat(&from, target.name(), &folder, place.name(), AtFlags::empty()) {
            // What stood in its place was a folder with the target in it.
            Err(Errno::NOENT) => Err(Problem::Refused("it is a link to nothing")),
            other => Ok(other?),
        }
    }

    /// Takes away what lower layers have of this name.
    pub(crate) fn whiteout(&self, place: &TreePath) -> Result<(), Problem> {
        let folder = match self.root.enter(place.above(), Cross::No) {
            Err(Errno::NOENT) => return Ok(()),
            other => other?,
        };
        if !self.made.contains_key(&place.path()) {
            return Ok(folder.remove_tree(place.name())?);
        }
        if folder.kind(place.name())? == Some(FileType::Directory) {
            let own = folder.enter(Path::new(place.name()), Cross::No)?;
            self.purge(&own, &place.path())?;
        }
        Ok(())
    }

    /// Takes away all that lower layers have in a folder; `None`: the root.
    pub(crate) fn opaque(&self, place: &[Vec<u8>]) -> Result<(), Problem> {
        let path = place.join(&b'/');
        match self.root.enter(Path::new(OsStr::from_bytes(&path)), Cross::No) {
            Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
            Ok(own) => self.purge(&own, &path),
        }
    }

    fn purge(&self, dir: &Dir, path: &[u8]) -> Result<(), Problem> {
        for (name, kind) in dir.kinds()? {
            self.looked.set(self.looked.get().saturating_add(1));
            if self.looked.get() > self.most_looked {
                return Err(Problem::Refused("its whiteouts look through too many names"));
            }
            let mut below = path.to_vec();
            if !below.is_empty() {
                below.push(b'/');
            }
            below.extend_from_slice(name.as_bytes());
            if !self.made.contains_key(&below) {
                dir.remove_tree(&name)?;
            } else if kind == FileType::Directory {
                self.purge(&dir.enter(Path::new(&name), Cross::No)?, &below)?;
            }
        }
        Ok(())
    }

    fn date(&self, path: &[u8], seconds: i64) -> Result<(), Problem> {
        match self.root.enter(Path::new(OsStr::from_bytes(path)), Cross::No) {
            Ok(own) => Ok(rustix::fs::futimens(&own, &times(seconds))?),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// Times that every file system can hold.
pub(crate) fn times(seconds: i64) -> Timestamps {
    let time = Timespec { tv_sec: seconds.clamp(0, 0x7fff_ffff), tv_nsec: 0 };
    Timestamps { last_access: time, last_modification: time }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whiteouts_together_look_through_a_bounded_number_of_names() {
        let place = tempfile::tempdir().unwrap();
        let root = Dir::open(&place.path().canonicalize().unwrap()).unwrap();
        let mut tree = Tree { most_looked: 100, ..Tree::new(&root) };
        for number in 0..10 {
            let name = format!("folder/{number}");
            drop(tree.file(&TreePath::new(name.as_bytes()).unwrap().unwrap()).unwrap());
        }
        let folder = [b"folder".to_vec()];
        for _ in 0..10 {
            assert_eq!(tree.opaque(&folder), Ok(()));
        }
        assert_eq!(tree.opaque(&folder), Err(Problem::Refused("its whiteouts look through too many names")));
    }

    #[test]
    fn the_names_of_a_layer_are_bounded_together_and_a_folder_has_one_however_often_it_is_named() {
        let place = tempfile::tempdir().unwrap();
        let root = Dir::open(&place.path().canonicalize().unwrap()).unwrap();
        let mut tree = Tree { most_names: 100, ..Tree::new(&root) };
        let named = |name: &str| TreePath::new(name.as_bytes()).unwrap().unwrap();
        for seconds in 1..1000 {
            assert_eq!(tree.folder(&named("deep/folder"), 0o755, seconds), Ok(()));
        }
        let long = "n".repeat(80);
        assert_eq!(tree.folder(&named(&long), 0o755, 1), Ok(()));
        let over = Problem::Refused("the names of its layer are too long, all together");
        assert_eq!(tree.folder(&named("one-more"), 0o755, 1), Err(over));
        assert_eq!(tree.end(), Ok(()));
        let time = |name: &str| std::fs::metadata(place.path().join(name)).unwrap().modified().unwrap();
        let at = |seconds| std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        assert_eq!((time("deep/folder"), time(&long)), (at(999), at(1)), "the last time that was said");
        tree.begin();
        assert_eq!(tree.folder(&named("one-more"), 0o755, 1), Ok(()), "each layer has its own");
    }
}
