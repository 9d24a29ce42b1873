//! `runs/ID.json`: what a run makes on the host, written down before it is made.
//!
//! One JSON object a line: first who owns the run, then one line for each thing. Lines are only appended, each by one
//! write, so a crash costs the line being written at most - and then the thing was not made yet. The owner holds a lock on
//! the file for as long as it lives: that tells the living from the dead across pid namespaces too.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::owner::Owner;
use super::{Dir, PathText, RunId, State, StateError, errno_of, own_link, path_text};

/// No journal that we wrote is larger.
pub(super) const MAX_JOURNAL: u64 = 16 << 20;

/// The first line of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Head {
    /// Always 1.
    pub schema: u32,
    /// Who owns the run.
    #[serde(flatten)]
    pub owner: Owner,
    /// When it began, RFC 3339.
    pub time: String,
    /// The workspace on the host.
    pub workspace: Option<String>,
}

/// Something that a run makes on the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// A control group; a part of its path must be the run's id.
    Cgroup(#[serde(with = "path_text")] PathBuf),
    /// A file or tree that is removed whatever it holds; its name, or that of a folder above, must hold the run's id.
    Temp(#[serde(with = "path_text")] PathBuf),
    /// A tree of the host that the run may write to: control files that it makes in it are put aside.
    Watched(Watched),
}

/// A tree that is watched for control files, and what of them was there at the start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watched {
    /// The tree, canonical.
    #[serde(with = "path_text")]
    pub root: PathBuf,
    /// Its device and inode.
    pub is: (u64, u64),
    /// Held by mounts: relative to the tree, with all that is in them.
    pub held: Vec<PathText>,
    /// On the list of control files.
    pub before: Vec<PathText>,
    /// What is called `.git` and was a link, and where each led.
    pub git_links: Vec<(PathText, PathText)>,
}

/// The open journal of a run that lives.
#[derive(Debug)]
pub struct Journal {
    file: File,
    runs: Dir,
    path: PathBuf,
    id: RunId,
}

impl Journal {
    /// Begins a run: from here on what it leaves is found.
    ///
    /// # Errors
    /// [`StateError::NotWritable`] and the like; the run is refused.
    pub fn begin(state: &State, id: RunId, workspace: Option<&Path>, now: Timestamp) -> Result<Self, StateError> {
        let runs = state.runs()?;
        let name = format!("{id}.json");
        let path = state.path().join("runs").join(&name);
        let failed = |errno| StateError::NotWritable { path: path.clone(), variable: "FUMEHOOD_STATE", errno };
        let head = Head {
            schema: 1,
            owner: Owner::this(),
            time: now.to_string(),
            workspace: workspace.map(|w| crate::fault::show_bytes(w.as_os_str().as_encoded_bytes())),
        };
        let mut line = serde_json::to_vec(&head).or(Err(failed(Errno::INVAL)))?;
        line.push(b'\n');
        let file = match appear_whole(&runs, &name, &line) {
            Some(file) => file,
            None => {
                let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL;
                let mut file = runs.open_file(&name, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
                let locked = rustix::fs::flock(&file, FlockOperation::LockExclusive);
                if let Err(errno) = locked.and_then(|()| file.write_all(&line).map_err(|e| errno_of(&e))) {
                    // A full disk: a journal without a first line would count as a run for a minute.
                    rustix::fs::unlinkat(&runs, name.as_str(), AtFlags::empty()).unwrap_or_default();
                    return Err(failed(errno));
                }
                file
            }
        };
        Ok(Self { file, runs, path, id })
    }

    /// The run.
    #[must_use]
    pub fn id(&self) -> &RunId {
        &self.id
    }

    /// Writes down what is about to be made.
    ///
    /// # Errors
    /// [`StateError::NotWritable`]: then do not make it.
    pub fn note(&mut self, thing: &Resource) -> Result<(), StateError> {
        self.line(thing)
    }

    /// A descriptor by which [`beat`] says that the run lives. The journal counts as that of a live run while it is open.
    ///
    /// # Errors
    /// No descriptor is free.
    pub fn pulse(&self) -> std::io::Result<File> {
        self.file.try_clone()
    }

    /// The clean end: nothing of this run is left on the host but its changes.
    ///
    /// # Errors
    /// [`StateError::NotWritable`] if the journal cannot be removed; a later start does it then.
    pub fn end(self) -> Result<(), StateError> {
        let name = format!("{}.json", self.id);
        rustix::fs::unlinkat(&self.runs, name.as_str(), AtFlags::empty()).map_err(|errno| StateError::NotWritable {
            path: self.path.clone(),
            variable: "FUMEHOOD_STATE",
            errno,
        })
    }

    fn line(&mut self, value: &impl Serialize) -> Result<(), StateError> {
        let failed = |errno| StateError::NotWritable { path: self.path.clone(), variable: "FUMEHOOD_STATE", errno };
        let mut line = serde_json::to_vec(value).or(Err(failed(Errno::INVAL)))?;
        line.push(b'\n');
        self.file.write_all(&line).map_err(|e| failed(errno_of(&e)))
    }
}

/// Writes down that the run still lives, as the time of its journal: what was made much later is not its work. A file
/// system that takes no times leaves the one at which it was last written.
pub fn beat(pulse: &File) {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let unchanged = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    rustix::fs::futimens(pulse, &Timestamps { last_access: unchanged, last_modification: now }).unwrap_or_default();
}

/// A journal that has its lock and its first line before it has its name: whoever is killed in between leaves nothing.
/// `None` where the file system or a missing /proc does not allow that, or anything else is in the way.
fn appear_whole(runs: &Dir, name: &str, line: &[u8]) -> Option<File> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::openat(runs, ".", flags, Mode::RUSR | Mode::WUSR).ok()?);
    rustix::fs::flock(&file, FlockOperation::LockExclusive).ok()?;
    file.write_all(line).ok()?;
    rustix::fs::linkat(rustix::fs::CWD, own_link(&file), runs, name, AtFlags::SYMLINK_FOLLOW).ok()?;
    Some(file)
}

impl Resource {
    /// Where it is.
    #[must_use]
    pub fn path(self) -> Option<PathBuf> {
        match self {
            Self::Cgroup(path) | Self::Temp(path) => Some(path),
            Self::Watched(watched) => Some(watched.root),
        }
    }
}

/// The lines of a journal; a torn last one is left out.
pub(super) fn parse(content: &[u8]) -> (Option<Head>, Vec<Resource>) {
    let whole = content.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
    let mut lines = content.get(..whole).unwrap_or_default().split(|&b| b == b'\n').filter(|line| !line.is_empty());
    let head = lines.next().and_then(|line| serde_json::from_slice(line).ok());
    (head, lines.filter_map(|line| serde_json::from_slice(line).ok()).collect())
}
